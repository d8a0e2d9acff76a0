"""What the three pages have in common; then the ladder and the ablation: what changed, what it costs, and what is said
where there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from tests.lab.grid import small_grid
from tests.plots.conftest import full_run, ladder_run
from tests.plots.test_charts import collisions, said
from worklog import lab
from worklog.analysis.memory_counts import memory_counts
from worklog.errors import BadSetting, NothingToDraw
from worklog.kernel.ladder import LADDER, rung
from worklog.lab.ablation_page import AblationChoice, cells
from worklog.lab.controls import Page, SizeSlider
from worklog.lab.ladder_page import Climb, diff, source
from worklog.lab.readings import NotRecorded
from worklog.problem.gemm import Shape
from worklog.runs.ablation import Effect, effects
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run

PAGES: dict[str, Callable[[], Page]] = {
    "panel": lambda: lab.panel("warptiled", 1024, run=small_grid()),
    "ladder": lambda: lab.ladder("warptiled", 1024, run=full_run()),
    "ablation": lambda: lab.ablation("warptiled", 1024, run=full_run()),
}


def descendants(widget: Any) -> list[Any]:
    return [widget, *(found for child in getattr(widget, "children", ()) for found in descendants(child))]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_named_controls_shares_nothing_and_can_be_read_without_a_kernel(name: str) -> None:
    one, other = PAGES[name](), PAGES[name]()
    inside = descendants(one.box)
    controls = [w for w in inside if isinstance(w, (widgets.Checkbox, widgets.Dropdown, widgets.Button))]
    assert controls and all(w.description for w in controls)
    assert len([w for w in inside if isinstance(w, SizeSlider)]) == 1
    shown = one._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"].startswith("warptiled at 1024")
    for kind in ("text/plain", "text/html"):
        assert "TFLOP/s" in shown[kind] and "recorded · NVIDIA H200" in shown[kind]
    before = other.words.value
    one.kernel.value = "naive"
    assert one.words.value != before == other.words.value and other.kernel.value == "warptiled"


@pytest.mark.parametrize(
    ("kernel", "size", "error", "words"),
    [
        ("wraptiled", 512, BadSetting, "wraptiled"),
        ("naive", 0, BadSetting, "0"),
        ("tiles_2d", 512, NotRecorded, r"tiles_2d at 512 .*naive at 256, .*4096"),
        ("warptiled", 100, NotRecorded, "warptiled at 100"),
    ],
)
def test_what_is_unknown_or_not_recorded_is_an_error(
    kernel: str, size: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        lab.ablation_static(kernel, size, run=full_run())
    if error is not NotRecorded:
        with pytest.raises(error):
            lab.ladder(kernel, size, run=full_run())


# ---------------------------------------------------------------------------------------------------------- the ladder


def recorded(**changed: Measurement) -> Run:
    """The ladder by hand at 4096 and 1024, with the compiler's facts about two rungs. changed: instead of a rung's."""
    run = ladder_run()
    run.measurements = [changed.get(m.kernel, m) for m in run.measurements] + ladder_run(1024).measurements
    run.device["compute_capability"] = [9, 0]
    for name, registers in (("tiles_1d", 39), ("tiles_2d", 94)):
        program = rung(name).program
        run.kernels[name] |= {"registers": registers, "shared_bytes": 8192, "sha256": program.code_sha256}
    return run


def climbed(name: str | None = "tiles_2d", size: int | None = 4096, run: Run | None = None) -> Climb:
    return Climb([run or recorded()], name, size)


def facts(of: Climb) -> dict[str, tuple[str, ...]]:
    return {str(row[0]): tuple(map(str, row[1:])) for table in of.tables for row in table.rows}


def test_the_ladder_begins_with_the_last_rung_at_the_articles_size_and_ends_where_it_ends() -> None:
    climb = climbed(None, None)
    assert (climb.kernel, climb.shape) == (LADDER[-1].name, Shape.of(4096))
    assert [str(shape) for shape in climb.shapes] == ["1024", "4096"]
    for by, name in ((5, LADDER[-1].name), (-100, LADDER[0].name)):
        climb.climb(by)
        assert climb.kernel == name
    past = climbed("lane_map")
    assert [each.name for each in past.rungs] == ["lane_map", "warptiled"] and "not in this" in past.sentences[0]
    past.climb(-1)
    assert past.kernel == "warptiled"


def test_a_rung_is_compared_with_the_one_before_in_tables_labelled_with_their_sources() -> None:
    headline, idea, changed, gain = climbed().sentences
    assert headline.startswith("tiles_2d at 4096: 5.610 ms → 24.50 TFLOP/s → 47.5 % ") and idea == rung("tiles_2d").idea
    assert changed.endswith("lines against tiles_1d") and gain == "1.34 times as fast as tiles_1d"
    timed, counted = climbed().tables
    assert recorded().label in timed.title and memory_counts().label in counted.title
    found, counts = facts(climbed()), memory_counts().rungs["tiles_2d"]
    for name, cell in {
        "time": ("5.610 ms", "7.510 ms"),
        "registers per thread": ("94", "39"),
        "resident on an SM": ("2 × 256 threads, 25 %", "3 × 512 threads, 75 %"),
        "resident blocks limited by": ("registers", "registers"),
    }.items():
        assert found[name] == cell
    assert found["sectors per global load"][0] == f"{counts.sectors_per_request:.1f}"
    assert found["of which bank conflicts"][0] == f"{100 * counts.conflict_share:.0f} %"
    first = climbed("naive")
    assert "first rung" in first.sentences[-1] and not any("−" in words for words in first.sentences)
    assert all(len(values) == 1 for values in facts(first).values())


def test_at_a_missing_size_only_the_time_is_missing() -> None:
    missing = climbed(size=512)
    assert "not in this recorded run, which holds it at 4096, 1024" in missing.sentences[0]
    assert len(missing.sentences) == 3, "no gain"
    assert facts(missing)["time"] == ("not measured", "not measured")
    assert facts(missing)["registers per thread"] == ("94", "39")
    with pytest.raises(NothingToDraw):
        missing.chart()


def test_a_rung_that_failed_the_gate_or_was_timed_with_other_code_is_marked() -> None:
    run = recorded(tiles_2d=Measurement("tiles_2d", (4096,) * 3, "refused", reason="exact: 3 rows differ"))
    run.kernels["tiles_2d"]["sha256"] = "another"
    page = lab.ladder("tiles_2d", run=run)
    assert facts(page.choice)["time"][0] == "failed"
    for text in (page.choice.chart().alt, page.words.value):
        assert "exact: 3 rows differ" in text and "tiles_2d was timed with different code" in text


@pytest.mark.parametrize(
    ("us", "gain"), [(3890.0, "1.44 times as fast"), (5600.0, "within the noise"), (11220.0, "2 times as slow")]
)
def test_a_gain_is_larger_than_the_noise(us: float, gain: str) -> None:
    [own] = ladder_run().select("vectorized")
    assert gain in climbed("vectorized", run=recorded(vectorized=replace(own, us=us))).sentences[-1]


def test_a_body_has_no_comments_and_a_diff_leads_from_one_source_to_the_other() -> None:
    found = diff("naive", "coalesced")
    assert [line[0] for line in repr(found).splitlines()] == ["-", "-", "+", "+"] and found.counts == "+2 −2 lines"
    assert {line[0] for line in diff(None, "naive").lines} == {"+"}, "against an empty file"
    with pytest.raises(BadSetting, match="nave"):
        diff("nave", "coalesced")
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


def test_the_diff_is_marked_for_screen_readers_and_can_be_scrolled_by_keyboard() -> None:
    climb = climbed()
    html = climb.changed_lines()
    assert html.count("<ins") > 5 and html.count("<del") > 5 and "i &lt; TM" in html and ">  ...<" in html
    assert 'tabindex="0"' in html and 'aria-label="05_tiles_2d.cu against 04_tiles_1d.cu"' in html
    climb.comments = True
    assert "//" not in html and "//" in climb.changed_lines()


def test_a_reader_without_a_kernel_sees_the_picture_and_the_table_of_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    drawn = lab.ladder_static("tiles_2d", 4096, run=recorded())
    assert collisions(drawn) == [] and "tiles_2d" in drawn.headline
    drawn._ipython_display_()
    picture, table = outputs
    assert "image/png" in picture and picture["text/plain"] == drawn.alt
    assert all(value in table["text/html"] for row in facts(climbed()).values() for value in row)
    assert recorded().label in table["text/plain"] and memory_counts().label in table["text/plain"]


def test_the_ladders_widgets_move_the_page() -> None:
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
    mine = full_run()
    mine.origin = "live"
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive" and not m.changed]
    mine.save(tmp_path / "runs" / "mine.json")
    page = lab.ladder("naive", 4096)
    assert page.choice.run.origin == "live"
    page.kernel.value = "warptiled"
    assert page.choice.run.origin == "recorded"
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert "is not in this live run" in lab.ladder("warptiled", 4096).words.value


# -------------------------------------------------------------------------------------------------------- the ablation


def found(kernel: str = "warptiled", size: int = 512) -> list[Effect]:
    return AblationChoice([full_run()], kernel, size).found()[1]


def test_every_effect_at_the_size_is_a_row_with_its_number_and_its_noise() -> None:
    assert found() == [e for e in effects(full_run(), "warptiled") if e.problem == Shape.of(512)]
    shown = lab.ablation("warptiled", 512, run=full_run()).shown
    [table] = shown.tables
    rows = {str(row[1]): [str(cell) for cell in row] for row in table.rows}
    assert len(table.rows) == len(found()) and table.notes == [full_run().full_label]
    assert rows["l2 = warm"][0] == "3 L2 stays warm" and rows["l2 = warm"][5] == "+31.0 %"
    assert rows["clocks = ignored"][5] == "not visible"
    assert rows["baseline = tf32"][2] == "% of cuBLAS"
    unbiased, biased = (float(value) for value in rows["baseline = tf32"][3:5])
    assert biased / unbiased == pytest.approx(0.16, rel=0.01)
    assert rows["statistic = mean"][6] == "none, the same samples"
    visible, count = sum(str(row[5]) != "not visible" for row in table.rows), len(table.rows)
    assert 0 < visible < count and f"{visible} of {count}" in shown.sentences[0]
    impossible = replace(found()[0], biased=31612.4, corrupts="TFLOP/s")
    assert cells(impossible)[4] == "31612", "without an exponent"
    chart = lab.ablation_static("warptiled", 256, run=full_run())
    assert collisions(chart) == [] and "TFLOP/s at 256, log scale" in said(chart)


def test_the_first_run_with_the_rungs_ablation_answers() -> None:
    with pytest.raises(NothingToDraw, match="worklog ablate"):
        AblationChoice([ladder_run()])
    mine = full_run()
    mine.origin = "live"
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive"]
    chosen = AblationChoice([ladder_run(), mine, full_run()])
    assert (chosen.kernel, str(chosen.shape), len(chosen.shapes)) == ("naive", "1024", 5)
    assert chosen.found()[0] is mine and chosen.kernels == ["naive", "warptiled"]
    chosen.choose_kernel("warptiled")
    assert chosen.found()[0].origin == "recorded"


def test_the_page_shows_what_is_missing_and_its_widgets_lead_away() -> None:
    page = lab.ablation("tiles_2d", 512, run=full_run())
    assert "is not in these runs" in page.words.value and page.picture.value == page.table.value == ""
    page.kernel.value = "naive"
    assert "naive at 512" in page.table.value and "<img" in page.picture.value
    page.size.index = 4
    assert "naive at 4096" in page.table.value and "naive at 4096" in page.words.value
