"""The ablation page: the effect of each pitfall on one rung at one size, from a run, or what the run lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.plots.conftest import full_run, ladder_run
from tests.plots.test_charts import collisions, said
from worklog import lab
from worklog.errors import BadShape, NothingToDraw, UnknownRung
from worklog.lab.ablation_page import AblationChoice, cells
from worklog.lab.choice import NotRecorded
from worklog.problem.gemm import Shape
from worklog.runs.ablation import Effect, effects


def found(kernel: str | None = "warptiled", size: int | None = 512) -> list[Effect]:
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


def test_what_is_not_recorded_is_an_error_that_names_what_is() -> None:
    with pytest.raises(NotRecorded, match=r"tiles_2d at 512 .*naive at 256, .*4096"):
        found("tiles_2d")
    with pytest.raises(NotRecorded, match="warptiled at 100"):
        found(size=100)
    with pytest.raises(NothingToDraw, match="worklog ablate"):
        AblationChoice([ladder_run()])
    with pytest.raises(BadShape):
        found(size=-1)
    with pytest.raises(UnknownRung):
        found("wraptiled")


def test_the_first_run_with_the_rungs_ablation_answers() -> None:
    mine = full_run()
    mine.origin = "live"
    mine.measurements = [m for m in mine.measurements if m.kernel == "naive"]
    chosen = AblationChoice([ladder_run(), mine, full_run()])
    assert (chosen.kernel, str(chosen.shape), len(chosen.shapes)) == ("naive", "1024", 5)
    assert chosen.found()[0] is mine and chosen.kernels == ["naive", "warptiled"]
    chosen.choose_kernel("warptiled")
    assert chosen.found()[0].origin == "recorded"


def test_the_chart_is_about_the_chosen_size_and_nothing_overlaps() -> None:
    chart = lab.ablation_static("warptiled", 256, run=full_run())
    assert collisions(chart) == []
    assert "TFLOP/s at 256, log scale" in said(chart)


def test_the_page_shows_what_is_missing_and_its_widgets_lead_away() -> None:
    page = lab.ablation("tiles_2d", 512, run=full_run())
    assert "is not in these runs" in page.words.value and page.picture.value == page.table.value == ""
    page.kernel.value = "naive"
    assert "naive at 512" in page.table.value and "<img" in page.picture.value
    page.size.index = 4
    assert "naive at 4096" in page.table.value and "naive at 4096" in page.words.value
