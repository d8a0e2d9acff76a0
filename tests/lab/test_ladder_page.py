"""The ladder page: what changed, what it costs, how fast it is, and what is shown where there is nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from tests.plots.conftest import full_run, ladder_run
from tests.plots.test_charts import collisions
from worklog import lab
from worklog.analysis.memory_counts import memory_counts
from worklog.errors import BadShape, NothingToDraw, UnknownRung
from worklog.kernel.ladder import LADDER, rung
from worklog.lab.ladder_page import Climb, Step, changed_lines, diff, source
from worklog.problem.gemm import Shape
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run


def recorded() -> Run:
    """The ladder by hand at 4096 and 1024, with the compiler's facts about two rungs."""
    run = ladder_run()
    run.measurements += ladder_run(1024).measurements
    run.device["compute_capability"] = [9, 0]
    for name, registers in (("tiles_1d", 39), ("tiles_2d", 94)):
        program = rung(name).program
        run.kernels[name] |= {"registers": registers, "shared_bytes": 8192, "sha256": program.sha256}
    return run


def step(name: str | None = "tiles_2d", size: int | None = 4096, run: Run | None = None) -> Step:
    return Climb([run or recorded()], memory_counts(), name, size).step()


def facts(of: Step) -> dict[str, tuple[str, ...]]:
    return {str(row[0]): tuple(map(str, row[1:])) for table in of.tables for row in table.rows}


def test_the_page_begins_with_the_last_rung_at_the_articles_size() -> None:
    climb = Climb([recorded()], memory_counts())
    assert (climb.kernel, climb.shape) == (LADDER[-1].name, Shape.of(4096))
    assert [str(shape) for shape in climb.shapes] == ["1024", "4096"]
    climb.climb(5)
    assert climb.kernel == LADDER[-1].name
    climb.climb(-100)
    assert climb.kernel == LADDER[0].name


def test_a_rung_is_compared_with_the_one_before_in_tables_labelled_with_their_sources() -> None:
    shown = step()
    assert shown.headline.startswith("tiles_2d at 4096: 5.610 ms → 24.50 TFLOP/s → 47.5 % ")
    assert shown.gain == "1.34 times as fast as tiles_1d"
    timed, counted = shown.tables
    assert recorded().label in timed.title and memory_counts().label in counted.title
    found, counts = facts(shown), memory_counts().rungs["tiles_2d"]
    assert found["time"] == ("5.610 ms", "7.510 ms")
    assert found["registers per thread"] == ("94", "39")
    assert found["resident on an SM"] == ("2 × 256 threads, 25 %", "3 × 512 threads, 75 %")
    assert found["limited by"] == ("registers", "registers")
    assert found["sectors per global load"][0] == f"{counts.sectors_per_request:.1f}"
    assert found["of which bank conflicts"][0] == f"{100 * counts.conflict_share:.0f} %"


def test_the_first_rung_has_nothing_before_it() -> None:
    shown = step("naive")
    assert shown.before is None and "first rung" in shown.gain and "−" not in shown.changed
    assert all(len(values) == 1 for values in facts(shown).values())


def test_at_a_missing_size_only_the_time_is_missing() -> None:
    shown = step(size=512)
    assert "not in this recorded run, which holds it at 4096, 1024" in shown.headline and shown.gain == ""
    assert facts(shown)["time"] == ("not measured", "not measured")
    assert facts(shown)["registers per thread"] == ("94", "39")
    with pytest.raises(NothingToDraw):
        lab.ladder_static("tiles_2d", 512, run=recorded())


def test_a_rung_that_failed_the_gate_or_was_timed_with_other_code_is_marked() -> None:
    run = recorded()
    failed = Measurement("tiles_2d", (4096, 4096, 4096), "refused", reason="exact: 3 rows differ")
    run.measurements = [failed if m.kernel == "tiles_2d" and m.shape[0] == 4096 else m for m in run.measurements]
    run.kernels["tiles_2d"]["sha256"] = "another"
    shown, page = step(run=run), lab.ladder("tiles_2d", run=run)
    assert "exact: 3 rows differ" in shown.headline and facts(shown)["time"][0] == "failed"
    [note] = shown.notes
    assert "tiles_2d was timed with different code" in note
    for text in (page.choice.chart().alt, page.words.value):
        assert note in text and "exact: 3 rows differ" in text


@pytest.mark.parametrize(
    ("us", "gain"), [(3890.0, "1.44 times as fast"), (5600.0, "within the noise"), (11220.0, "2 times as slow")]
)
def test_a_gain_is_larger_than_the_noise(us: float, gain: str) -> None:
    run = recorded()
    run.measurements = [replace(m, us=us) if m.kernel == "vectorized" else m for m in run.measurements]
    assert gain in step("vectorized", run=run).gain


def test_a_body_has_no_comments_and_a_diff_leads_from_one_source_to_the_other() -> None:
    found = diff("naive", "coalesced")
    assert [line[0] for line in repr(found).splitlines()] == ["-", "-", "+", "+"] and found.counts == "+2 −2 lines"
    assert {line[0] for line in diff(None, "naive").lines} == {"+"}, "against an empty file"
    for record in LADDER:
        text = repr(source(record.name))
        assert "//" not in text and "__global__" not in text and f"sgemm_{record.name}" not in text and "acc" in text
        assert text.count("{") == text.count("}")
    for (before, after), comments in product(pairwise(record.name for record in LADDER), (False, True)):
        earlier, later = (list(source(name, comments=comments).lines) for name in (before, after))
        lines = diff(before, after, comments=comments, around=2).lines
        removed, added = ([line[1:] for line in lines if line.startswith(mark)] for mark in "-+")
        assert set(earlier) - set(later) <= set(removed) and set(later) - set(earlier) <= set(added)
        assert len(earlier) - len(removed) == len(later) - len(added)
        assert comments or len(diff(before, after).lines) <= 70, "short enough to read"


def test_an_unknown_rung_a_bad_size_and_no_run_are_errors() -> None:
    with pytest.raises(UnknownRung):
        step("wraptiled")
    with pytest.raises(UnknownRung, match="nave"):
        diff("nave", "coalesced")
    with pytest.raises(BadShape):
        step(size=0)
    with pytest.raises(BadShape, match="there is no run"):
        Climb([], memory_counts()).step()


def test_a_reader_without_a_kernel_sees_the_picture_and_the_table_of_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    drawn = lab.ladder_static("tiles_2d", 4096, run=recorded())
    assert collisions(drawn) == [] and "tiles_2d" in drawn.headline
    drawn._ipython_display_()
    picture, table = outputs
    assert "image/png" in picture and picture["text/plain"] == drawn.alt
    assert all(value in table["text/html"] for row in facts(step()).values() for value in row)
    assert recorded().label in table["text/plain"] and memory_counts().label in table["text/plain"]


def test_the_diff_is_marked_for_screen_readers_and_can_be_scrolled_by_keyboard() -> None:
    html = changed_lines(step(), comments=False)
    assert html.count("<ins") > 5 and html.count("<del") > 5 and "i &lt; TM" in html and ">  ...<" in html
    assert 'tabindex="0"' in html and diff("tiles_1d", "tiles_2d", around=2).html() in html
    assert 'aria-label="05_tiles_2d.cu against 04_tiles_1d.cu"' in html
    assert "//" not in html and "//" in changed_lines(step(), comments=True)


def test_the_widgets_move_the_page() -> None:
    page = lab.ladder("tiles_2d", 512, run=recorded())
    assert "is not in this recorded run" in page.words.value and page.size.words == ["512", "1024", "4096"]
    page.size.index = 2
    assert "5.610 ms" in page.words.value and page.size.words == ["1024", "4096"]
    page.up.click()
    assert page.kernel.value == "vectorized" and "3.890 ms" in page.words.value
    page.down.click()
    assert "tiles_2d at 4096" in page.words.value
    page.kernel.value = "naive"
    assert page.down.disabled and not page.up.disabled
    before = page.details.value
    page.comments.value = True
    assert len(page.details.value) > len(before)


def test_by_default_the_latest_run_answers_and_the_recording_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    mine = full_run()
    mine.origin = "live"
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive" and not m.changed]
    mine.save(tmp_path / "runs" / "mine.json")
    page = lab.ladder("naive", 4096)
    assert page.choice.step().run.origin == "live"
    page.kernel.value = "warptiled"
    assert page.choice.step().run.origin == "recorded"
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert "is not in this live run" in lab.ladder("warptiled", 4096).words.value
