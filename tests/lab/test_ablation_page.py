"""The ablation page: the effect of each pitfall on one rung at one size, from a run, or what the run lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.plots.conftest import full_run, ladder_run
from tests.plots.test_charts import collisions, said
from worklog import lab
from worklog.errors import BadShape, NothingToDraw, UnknownRung
from worklog.lab.ablation_page import Ablated, Ablation, AblationChoice, cells
from worklog.lab.readings import NotRecorded
from worklog.problem.gemm import Shape
from worklog.runs.ablation import effects


def found(kernel: str | None = "warptiled", size: int | None = 512) -> Ablated:
    return AblationChoice([full_run()], kernel, size).ablated()


def page(kernel: str = "warptiled") -> Ablation:
    return lab.ablation(kernel, 512, run=full_run())


def test_the_page_begins_with_the_last_rung_at_the_middle_size() -> None:
    first = AblationChoice([full_run()])
    assert (first.kernel, str(first.shape)) == ("warptiled", "1024")
    assert first.kernels == ["naive", "warptiled"] and len(first.shapes) == 5


def test_every_effect_at_the_size_is_a_row_in_html_and_in_text() -> None:
    shown = found()
    expected = [e for e in effects(full_run(), "warptiled") if Shape(*e.shape) == Shape.of(512)]
    assert list(shown.effects) == expected
    assert shown.table.html().count("<tr>") == 1 + len(expected)
    assert len(shown.table.text().splitlines()) == 3 + len(expected)
    assert shown.run.label in shown.table.text() and shown.run.label in shown.table.html()


def test_a_row_names_setting_number_effect_and_noise() -> None:
    rows = {cells(e)[1]: list(map(str, cells(e))) for e in found().effects}
    assert rows["l2 = warm"][0] == "3 L2 stays warm" and rows["l2 = warm"][5] == "+31.0 %"
    assert rows["clocks = ignored"][5] == "not visible"
    assert rows["baseline = tf32"][2] == "% of cuBLAS"
    unbiased, biased = (float(value) for value in rows["baseline = tf32"][3:5])
    assert biased / unbiased == pytest.approx(0.16, rel=0.01)
    assert rows["statistic = mean"][6] == "none, the same samples"


def test_the_headline_counts_the_visible_effects() -> None:
    visible = sum(str(cells(e)[5]) != "not visible" for e in found().effects)
    assert 0 < visible < len(found().effects)
    assert f"{visible} of {len(found().effects)}" in found().headline


def test_an_impossible_rate_is_printed_without_an_exponent() -> None:
    [host] = [e for e in found("naive", 4096).effects if e.setting == "timer"]
    assert cells(replace(host, biased=31612.4))[4] == "31612"


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
    chosen = AblationChoice([ladder_run(), mine, full_run()], None, 512)
    assert chosen.kernel == "naive" and chosen.ablated().run is mine
    chosen.choose_kernel("warptiled")
    assert chosen.ablated().run.origin == "recorded"


@pytest.mark.parametrize("size", [256, 512, 1024, 2048, 4096])
def test_the_chart_is_about_the_chosen_size_and_nothing_overlaps(size: int) -> None:
    chart = lab.ablation_static("warptiled", size, run=full_run())
    assert collisions(chart) == []
    assert f"TFLOP/s at {size}, log scale" in said(chart)


def test_the_widgets_move_the_page() -> None:
    shown = page()
    assert "warptiled at 512" in shown.table.value and "<img" in shown.picture.value
    shown.kernel.value = "naive"
    shown.size.index = 4
    assert "naive at 4096" in shown.table.value and "naive at 4096" in shown.words.value


def test_the_page_says_what_is_missing_and_keeps_nothing_old() -> None:
    shown = page("tiles_2d")
    assert "is not in these runs" in shown.words.value and shown.picture.value == shown.table.value == ""
    shown.kernel.value = "naive"
    assert "naive at 512" in shown.table.value and "<img" in shown.picture.value
