"""Ladder and roofline: the right kernels, in order, with the run's own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

from tests.plots.conftest import TIMES_MS, ladder_run
from tests.plots.test_charts import boxes, collisions, drawn, said
from worklog.errors import BadShape, NothingToDraw
from worklog.plots import Chart, ladder, roofline, sizes
from worklog.plots.figure import ACCENT
from worklog.plots.ladder import ARTICLE_PERCENT
from worklog.problem.gemm import Shape
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run

SHAPE = (4096, 4096, 4096)


def names(chart: Chart) -> list[str]:
    return [label.get_text() for label in chart.axes[0].get_yticklabels()]


def test_the_ladder_shows_rate_and_share_of_each_rung_in_order_and_the_finding(h200: Run) -> None:
    words = said(drawn("ladder"))
    for found in ("51.9 TFLOP/s · 100.6 %", "0.497 TFLOP/s · 1.0 %", "cuBLAS 51.6", "measured FP32 ceiling 66.0"):
        assert found in words
    assert "4096 × 4096 × 4096" in words
    assert drawn("ladder").headline == "warptiled reaches 100.6 % of cuBLAS, 104 times naive"
    h200.measurements.reverse()
    h200.measurements.sort(key=lambda m: bool(m.changed))
    assert names(ladder(h200)) == names(drawn("ladder")) == [*TIMES_MS]


def test_only_the_articles_rungs_at_its_size_have_its_circles_and_its_gpu_is_named(h200: Run) -> None:
    percents = [f"{percent} %" for percent in ARTICLE_PERCENT.values()]
    h200.measurements.append(replace(h200.select("tiles_1d", Shape(*SHAPE))[0], kernel="another"))
    words = said(ladder(h200))
    assert "RTX A6000" in words and [words.split("\n").count(percent) for percent in percents] == [1] * len(percents)
    other = replace(h200, measurements=[replace(m, kernel=f"my_{m.kernel}") for m in h200.measurements])
    for chart in (ladder(h200, 1024), ladder(other)):
        assert "A6000" not in said(chart) and not any(percent in said(chart).split("\n") for percent in percents)


def test_a_rung_without_a_time_has_a_row_with_the_reason(h200: Run) -> None:
    reason = "exact integers: 3 of 4096 rows differ, the first at row 127, column 0 (tile row 0, tile column 0 of 32)"
    failed = Measurement("vectorized", SHAPE, "refused", reason=reason)
    h200.measurements = [failed if m.kernel == "vectorized" and not m.changed else m for m in h200.measurements]
    chart = ladder(h200)
    assert reason in said(chart).replace("\n", " ") and reason in chart.alt and collisions(chart) == []
    assert len(chart.axes[0].patches) == len(names(chart)) - 1


def test_an_interval_that_is_too_wide_is_marked(h200: Run) -> None:
    assert "*" not in said(drawn("ladder"))
    h200.measurements[0] = replace(h200.measurements[0], converged=False)
    assert "1.0 % *" in said(ladder(h200)) and "* the interval" in said(ladder(h200))


def test_a_users_kernels_stand_below_the_rungs_in_the_accent(h200: Run) -> None:
    h200.kernels |= {"mine": {"user": "kernel"}, "wrong": {"user": "kernel"}}
    made = replace(h200.select("tiles_1d")[0], kernel="mine", ratio=0.5, tflops=25.0)
    h200.measurements = [made, *h200.select(), Measurement("wrong", SHAPE, "refused", reason="wrong")]
    chart = ladder(h200)
    assert collisions(chart) == []
    assert chart.headline == "mine reaches 50.0 % of cuBLAS, more than tiles_2d"
    assert names(chart)[-3:] == ["mine · yours", "wrong · yours", "cuBLAS"]
    colours = [to_hex(patch.get_facecolor()) for patch in chart.axes[0].patches]
    assert colours[-2] == ACCENT and ACCENT not in colours[:-2]
    assert to_hex(ladder(replace(h200, kernels={})).axes[0].patches[0].get_facecolor()) == ACCENT


@pytest.mark.parametrize(("share", "rival"), [(1.04, 51.6), (0.99, 51.6), (0.7, 30.0)])
def test_no_words_cross_the_line_of_cublas(h200: Run, share: float, rival: float) -> None:
    shown = [replace(m, tflops=share * rival, ratio=share) for m in h200.select(shape=Shape(*SHAPE))[:-1]]
    shown[0] = Measurement("naive", SHAPE, "skipped", reason="too slow: " + "one launch takes longer than that " * 3)
    baseline = replace(h200.select("cuBLAS", Shape(*SHAPE))[0], tflops=rival)
    chart = ladder(replace(h200, measurements=[*shown, baseline]))
    crossed = chart.axes[0].transData.transform((rival, 0))[0]
    found = [
        words for words, box in boxes(chart) if "TFLOP/s ·" in words or "slow" in words if box.x0 < crossed < box.x1
    ]
    assert found == []


def test_a_far_ceiling_does_not_squeeze_the_bars(h200: Run) -> None:
    h200.calibration["fp32_tflops"] = 600.0
    chart = ladder(h200)
    assert chart.axes[0].get_xlim()[1] < 60 and "600" in said(chart) and collisions(chart) == []


@pytest.mark.parametrize("draw", [ladder, roofline])
def test_a_size_that_cannot_be_drawn_is_an_error_that_names_those_that_can_and_there_is_a_default(
    h200: Run, draw: Callable[..., Chart]
) -> None:
    with pytest.raises(NothingToDraw, match=r"size 100, only at 256, .*--size 100"):
        draw(h200, 100)
    with pytest.raises(BadShape):
        draw(h200, 0)
    h200.measurements = [m for m in h200.measurements if m.problem != Shape.of(4096)]
    assert "2048 × 2048 × 2048" in said(draw(h200)), "by default the largest where 4096 was not measured"


def test_the_roofline_counts_from_the_tile_and_names_measured_roofs_and_draws_theoretical_ones_dashed(
    h200: Run,
) -> None:
    def intensity(chart: Chart) -> float:
        [points] = [line for line in chart.axes[0].lines if line.get_marker() == "o"]
        return float(points.get_xdata()[0])

    assert intensity(drawn("roofline")) == pytest.approx(8, rel=0.01)
    h200.kernels["naive"]["tile"] = {"BM": 16, "BN": 16}
    assert intensity(roofline(h200)) == pytest.approx(4, rel=0.01)
    words = said(drawn("roofline"))
    assert all(n in words for n in ("66.0 TFLOP/s measured", "66.9", "7.82 TB/s measured", "4.24 TB/s", "4.81"))
    assert [line.get_linestyle() for line in drawn("roofline").axes[0].lines].count("--") == 2


def test_both_charts_do_without_what_an_older_run_lacks() -> None:
    run = replace(ladder_run(), calibration={"fp32_tflops": 66.0}, device={"name": "some GPU"})
    assert collisions(roofline(run)) == []
    with pytest.raises(NothingToDraw, match="tile"):
        roofline(replace(run, kernels={}))
    run.calibration = {}
    assert "ceiling" not in said(ladder(run))
    with pytest.raises(NothingToDraw, match="ceiling"):
        roofline(run)


def test_performance_over_size_names_the_leader_at_either_end_and_draws_each_kernel_once_per_panel(
    h200: Run,
) -> None:
    chart = drawn("sizes")
    assert chart.headline == "warptiled: 110 % of cuBLAS at 4096, 20 % at 256, where shared leads with 70 %"
    above, below = ([line.get_ydata() for line in axes.lines if len(line.get_ydata()) == 2] for axes in chart.axes)
    assert len(above) == 3 and [70.0, 20.0] in [[*map(float, y)] for y in below]
    with pytest.raises(NothingToDraw, match="two sizes"):
        sizes(replace(h200, measurements=h200.measurements[:1]))
