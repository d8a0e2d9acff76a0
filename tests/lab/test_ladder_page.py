"""The ladder's page: what changed, what it costs, what it is compared with, and what is said where there is nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from tests.lab.test_view import descendants
from tests.plots.conftest import full_run, ladder_run
from tests.plots.test_charts import collisions, said
from worklog import lab
from worklog.analysis.traffic import traffic
from worklog.errors import BadShape, UnknownRung
from worklog.kernel.kernel import Program
from worklog.kernel.ladder import LADDER, rung
from worklog.lab.controls import Slider
from worklog.lab.step_picture import body, whole
from worklog.lab.step_words import diff_html, gain, headline, said_html, sections, text
from worklog.lab.steps import Climb, Step, source
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run


def recorded() -> Run:
    """The ladder by hand at 4096 and 1024, with what a compiler would have said of two rungs."""
    run = ladder_run()
    run.measurements += ladder_run(1024).measurements
    run.device["compute_capability"] = [9, 0]
    for name, registers in (("tiles_1d", 39), ("tiles_2d", 94)):
        program = Program.of(rung(name))
        run.kernels[name] |= {"registers": registers, "shared_bytes": 8192, "sha256": program.sha256}
    return run


def step(name: str | None = "tiles_2d", size: int | None = 4096, run: Run | None = None) -> Step:
    return Climb([run or recorded()], traffic(), name, size).step()


def facts(of: Step) -> dict[str, tuple[str, str]]:
    return {row.name: (row.now, row.before) for _, rows in sections(of) for row in rows}


def test_at_first_the_last_rung_at_the_articles_size() -> None:
    climb = Climb([recorded()], traffic())
    assert (climb.rung, climb.shape) == (LADDER[-1], Shape.of(4096))
    assert [str(shape) for shape in climb.shapes] == ["1024", "4096"]


def test_a_rung_is_compared_with_the_one_before() -> None:
    told = step()
    assert headline(told).startswith("tiles_2d at 4096: 5.610 ms → 24.50 TFLOP/s → 47.5 % ")
    assert gain(told) == "1.34 times as fast as tiles_1d"
    found = facts(told)
    assert found["time"] == ("5.610 ms", "7.510 ms")
    assert found["registers a thread"] == ("94", "39")
    assert found["resident on an SM"] == ("2 × 256 threads, 25 %", "3 × 512 threads, 75 %")
    assert found["which is limited by"] == ("registers", "registers")
    counted = traffic().rungs["tiles_2d"]
    assert found["sectors a global load"][0] == f"{counted.sectors_per_request:.1f}"
    assert found["of which bank conflicts"][0] == f"{100 * counted.conflict_share:.0f} %"


def test_numbers_stand_under_where_they_come_from() -> None:
    told = step()
    (timed, _), (counted, _) = sections(told)
    assert told.run.label in timed and traffic().label in counted


def test_the_first_rung_has_nothing_before_it() -> None:
    told = step("naive")
    assert told.before is None and gain(told).startswith("the first rung")
    assert all(before == "" for _, before in facts(told).values())
    assert {mark for mark, _ in told.diff(comments=False)} == {"+"}


@pytest.mark.parametrize("name", [each.name for each in LADDER[1:]])
@pytest.mark.parametrize("comments", [False, True])
def test_the_changed_lines_lead_from_one_source_to_the_other(name: str, comments: bool) -> None:
    told = step(name)
    diff = told.diff(comments=comments)
    earlier, later = (source(side.rung, comments=comments) for side in (told.before, told.now) if side)
    went, came = ([line for mark, line in diff if mark == sign] for sign in "-+")
    assert sorted([*set(earlier) - set(later)]) == sorted(set(went) - set(later))
    assert len(earlier) - len(went) == len(later) - len(came), "what stayed is as long in both"
    if not comments:
        assert told.lines == (len(came), len(went))
        assert not any("//" in line or not line.strip() for line in went + came)


def test_the_kernels_name_is_no_difference() -> None:
    assert "sgemm_tiles_2d" not in "".join(line for _, line in step().diff(comments=False))


def test_a_size_that_the_run_lacks_is_said_and_nothing_is_invented() -> None:
    told = step(size=512)
    assert headline(told) == "tiles_2d at 512 is not in this recorded run, which holds sizes 1024, 4096"
    assert facts(told)["time"] == ("not measured", "not measured")
    assert facts(told)["registers a thread"] == ("94", "39"), "that is known all the same"
    assert "nothing was timed at this size" in said(body(told)) and gain(told) == ""


def test_a_rung_that_was_refused_says_why() -> None:
    run = recorded()
    refused = Measurement("tiles_2d", (4096, 4096, 4096), "refused", reason="exact: 3 rows differ")
    run.measurements = [refused if m.kernel == "tiles_2d" and m.shape[0] == 4096 else m for m in run.measurements]
    told = step(run=run)
    assert headline(told) == "tiles_2d at 4096 was refused: exact: 3 rows differ"
    assert facts(told)["time"][0] == "refused"
    assert "refused" in said(body(told))


def test_one_within_the_noise_of_the_other_is_no_gain_and_a_slower_one_is_slower() -> None:
    run = recorded()
    assert gain(step("vectorized", 4096, run)).endswith("times as fast as tiles_2d")
    times = {"tiles_2d": 5610.0, "vectorized": 5600.0}
    run.measurements = [
        m if m.kernel not in times else Measurement(**{**m.__dict__, "us": times[m.kernel]}) for m in run.measurements
    ]
    assert gain(step("vectorized", 4096, run)) == "as fast as tiles_2d, within the noise of both"
    times = {"vectorized": 11220.0}
    run.measurements = [
        m if m.kernel not in times else Measurement(**{**m.__dict__, "us": times[m.kernel]}) for m in run.measurements
    ]
    assert gain(step("vectorized", 4096, run)) == "2 times as slow as tiles_2d at this size"


def test_numbers_of_other_code_than_the_one_shown_are_told() -> None:
    run = recorded()
    run.kernels["tiles_2d"]["sha256"] = "another"
    told = step(run=run)
    assert told.notes == ("tiles_2d was timed with other code than the one shown here",)
    assert told.notes[0] in said_html(told) and told.notes[0] in text(told)
    assert told.notes[0] in said(whole(told))


def test_the_first_run_that_holds_the_rung_answers_for_both() -> None:
    mine = recorded()
    mine.origin = "live"
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive"]
    climb = Climb([mine, recorded()], traffic(), "naive")
    assert climb.step().run is mine
    climb.choose("tiles_2d")
    assert climb.step().run.origin == "recorded"


def test_what_there_is_not() -> None:
    with pytest.raises(UnknownRung):
        step("wraptiled")
    with pytest.raises(BadShape):
        step(size=0)
    with pytest.raises(BadShape, match="there is no run"):
        Climb([], traffic()).step()


def test_up_and_down_end_with_the_ladder() -> None:
    climb = Climb([recorded()], traffic(), "naive")
    climb.climb(-1)
    assert climb.rung is LADDER[0]
    climb.climb(len(LADDER) + 5)
    assert climb.rung is LADDER[-1]


@pytest.mark.parametrize("name", ["naive", "tiles_2d", "warptiled"])
def test_nothing_overlaps_and_all_of_it_is_said_in_words(name: str) -> None:
    told = step(name)
    for chart in (body(told), whole(told)):
        assert collisions(chart) == []
        assert chart.alt == text(told) and told.run.label in chart.alt and traffic().label in chart.alt


def test_the_diff_is_marked_by_signs_and_for_screen_readers() -> None:
    told = diff_html(step(), comments=False)
    assert "<del" in told and "<ins" in told and 'tabindex="0"' in told
    assert 'aria-label="05_tiles_2d.cu against 04_tiles_1d.cu"' in told
    assert "//" not in told.replace("https://", "") and "//" in diff_html(step(), comments=True)


# ------------------------------------------------------------------------------------------------------------- widgets


def page(name: str = "tiles_2d", size: int = 4096, run: Run | None = None) -> Any:
    return lab.ladder(name, size, run=run or recorded())


def test_the_widgets_move_the_page() -> None:
    shown = page()
    assert "5.610 ms" in shown.words.value
    shown.up.click()
    assert shown.rung.value == "vectorized" and "3.890 ms" in shown.words.value
    shown.down.click()
    shown.size.index = 0
    assert "tiles_2d at 1024" in shown.words.value
    shown.rung.value = "naive"
    assert shown.down.disabled and not shown.up.disabled
    before = shown.diff.value
    shown.comments.value = True
    assert len(shown.diff.value) > len(before)


def test_a_missing_size_is_said_on_the_page_and_can_be_left() -> None:
    shown = page(size=512)
    assert "is not in this recorded run" in shown.words.value and shown.size.words == ["512", "1024", "4096"]
    shown.size.index = 2
    assert "5.610 ms" in shown.words.value and shown.size.words == ["1024", "4096"]


def test_every_control_has_a_name_and_two_pages_share_nothing() -> None:
    one, other = page(), page()
    controls = [w for w in descendants(one.box) if isinstance(w, (widgets.Dropdown, widgets.Button, widgets.Checkbox))]
    assert len(controls) == 4 and all(w.description for w in controls)
    assert [w.name for w in descendants(one.box) if isinstance(w, Slider)] == ["size"]
    one.up.click()
    assert other.rung.value == "tiles_2d" and "5.610 ms" in other.words.value


def test_a_page_without_a_kernel_gets_words() -> None:
    shown = page()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"].startswith("tiles_2d at 4096: 5.610 ms")


def test_by_default_the_latest_run_answers_and_the_recording_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    mine = full_run()
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive" and not m.changed]
    mine.save(tmp_path / "runs" / "mine.json")
    assert lab.ladder("naive", 4096).climb.step().run.origin == "live"
    assert lab.ladder("warptiled", 4096).climb.step().run.origin == "recorded"
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert "is not in this live run" in lab.ladder("warptiled", 4096).words.value
