"""Lines of a run over an axis: which there are, where their points lie, and what the title says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from tests.helpers import measured, small_run
from tests.plots.test_charts import collisions, said
from worklog.errors import NothingToDraw
from worklog.plots import draw_all, lines
from worklog.plots.figure import ACCENT, INK, OTHER, Drawing
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run


def point(name: str, n: int, us: float, **more: Any) -> Measurement:
    half = 0.01 * us
    usual: dict[str, Any] = dict(axes={"N": n, "dtype": "half"}, baseline="theirs", bytes_read=n * 1000, flops=None)
    usual |= dict(us_low=us - half, us_high=us + half, ratio=0.5, ratio_low=0.49, ratio_high=0.51)
    return replace(measured(name, us=us), shape=None, **(usual | more))


def of(*measurements: Measurement) -> Run:
    return small_run(measurements=[*measurements])


POINTS = [point(name, n, us * n) for name, us in (("fast", 1.0), ("slow", 2.0)) for n in (8, 64)]


def drawn(chart: Any) -> dict[str, list[float]]:
    """The y of each line's points, by the line's place."""
    return [line.get_ydata().tolist() for line in chart.axes[0].lines]  # type: ignore[return-value]


def test_kernels_and_their_baseline_are_lines_of_the_rate_that_is_known() -> None:
    chart = lines(of(*POINTS))
    assert drawn(chart) == [approx([1.0, 1.0]), approx([2.0, 2.0]), approx([0.5, 0.5])]
    assert [line.get_color() for line in chart.axes[0].lines] == [ACCENT, INK, OTHER]
    assert chart.axes[0].get_ylabel() == "GB/s" and chart.axes[0].get_xlabel() == "N"
    assert chart.headline == "fast: 1 GB/s at N = 64, 0.5 times the rate of theirs"
    assert collisions(chart) == [] and of().label in said(chart)


def test_an_axis_can_tell_the_lines_apart_and_the_others_are_in_their_names() -> None:
    run = of(*POINTS, *(replace(m, axes={**m.axes, "dtype": "float"}, us=3 * (m.us or 0.0)) for m in POINTS))
    assert "fast dtype=half 1 at 8" in lines(run).alt and "theirs dtype=float" in lines(run).alt
    assert "slow dtype=float 0.1667 at 8" in lines(run, by="dtype").alt
    assert "theirs" not in lines(run, by="dtype").alt
    assert lines(run, y="us").axes[0].get_ylabel() == "µs"


def test_further_baselines_of_matrix_products_are_lines_too() -> None:
    both = [measured("naive", n, us=float(n)) for n in (256, 1024)]
    others = [
        replace(measured("naive", n, us=float(n), ratio=2.0, against="torch"), baseline="torch") for n in (256, 1024)
    ]
    chart = lines(of(*both, *others), y="us")
    assert drawn(chart) == [approx([256.0, 1024.0]), approx([512.0, 2048.0]), approx([128.0, 512.0])]
    assert "torch 512 at 256" in chart.alt and "cuBLAS 128 at 256" in chart.alt


def test_a_difference_inside_the_intervals_is_no_finding() -> None:
    chart = lines(of(*(point(name, n, us * n, ratio=None) for name, us in (("a", 1.0), ("b", 1.01)) for n in (8, 64))))
    assert chart.headline == "a: 1 GB/s at N = 64, where b can't be distinguished from it"


@pytest.mark.parametrize(
    ("run", "how", "message"),
    [
        (of(), {}, "no line has two points"),
        (of(POINTS[0]), {}, "measure two values"),
        (of(*POINTS), {"by": "K"}, "has no axis K: choose from kernel, N, dtype"),
        (of(*POINTS), {"y": "tflops"}, "states no work for TFLOP/s"),
        (of(*POINTS), {"y": "speed"}, "choose from tflops, gbs, items, us"),
        (of(*POINTS), {"x": "dtype"}, "no line has two points over dtype"),
    ],
)
def test_what_cannot_be_drawn_has_a_reason(run: Run, how: dict[str, str], message: str) -> None:
    with pytest.raises(NothingToDraw, match=message):
        lines(run, **how)


def test_each_benchmark_of_a_run_is_among_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drawing, "encoded", lambda self, svg: b"")
    assert {"lines_fast", "lines_slow"} <= set(draw_all(of(*POINTS), tmp_path).charts)
