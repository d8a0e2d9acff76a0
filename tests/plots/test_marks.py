"""What single charts draw: rows and their order, bars, points and colours, and the numbers behind them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.pyplot import subplots
from pytest import approx

from tests.helpers import measured
from tests.plots import conftest as runs
from tests.plots.conftest import NAIVE_READING, SIZE, TIMES_MS, full_run, of
from tests.plots.test_charts import boxes, drawn, said
from worklog import plots
from worklog.analysis import memory_counts
from worklog.analysis.memory_counts import LadderCounts, MemoryCounts
from worklog.errors import WorklogError
from worklog.plots import Chart, bars, ladder, lines, roofline, samples
from worklog.plots.charts.ablation import REMAINDER, falls
from worklog.plots.charts.harness import closing
from worklog.plots.charts.memory import levels_of
from worklog.plots.selection import sample_times
from worklog.plots.style import ACCENT, INK, OTHER
from worklog.problem.gemm import Shape
from worklog.runs import Estimate, recordings
from worklog.runs.ablation import effects
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run
from worklog.settings import PITFALLS


def names(chart: Chart) -> list[str]:
    return [label.get_text() for label in chart.axes[0].get_yticklabels()]


def lengths(chart: Chart) -> list[float]:
    """The bars, column by column."""
    return [bar.get_width() for axes in chart.axes for bar in axes.patches]


def test_rungs_stand_in_order_users_kernels_below_them_in_the_accent_and_failed_ones_have_no_bar(h200: Run) -> None:
    h200.measurements.sort(key=lambda m: (bool(m.changed), -list(TIMES_MS).index(m.kernel)))
    assert names(ladder(h200)) == names(drawn("ladder")) == [*TIMES_MS]
    chart = drawn("ladder, some failed and some the user's")
    assert names(chart) == [*list(TIMES_MS)[:-1], "mine · yours", "wrong · yours", "cuBLAS"]
    colours = [to_hex(bar.get_facecolor()) for bar in chart.axes[0].patches]
    assert len(colours) == len(names(chart)) - 2 and [colour == ACCENT for colour in colours].index(True) == 7
    assert runs.REASON in chart.alt and "one: a heading of more than one line, µs 12.50, % 0.000; " in drawn("bars").alt
    assert to_hex(drawn("ladder").axes[0].patches[0].get_facecolor()) == ACCENT
    assert drawn("ladder, far ceiling").axes[0].get_xlim()[1] < 60, "a far ceiling does not squeeze the bars"


@pytest.mark.parametrize(("share", "rival"), [(1.04, 51.6), (0.99, 51.6), (0.7, 30.0), (0.7, 10.0)])
def test_no_words_cross_the_line_of_cublas(share: float, rival: float) -> None:
    *rungs, cublas = runs.ladder_run().measurements
    us = 1e-6 * Shape(*SIZE).flops / rival
    shown = [runs.measurement(m.kernel, 4096, us / share, share) for m in rungs]
    shown[0] = Measurement("naive", SIZE, "skipped", reason="too slow: " + "one launch takes longer than that " * 3)
    chart = ladder(of(*shown, runs.measurement(cublas.kernel, 4096, us, 1.0)))
    crossed = chart.axes[0].transData.transform((rival, 0))[0]
    placed = [(words, box) for words, box in boxes(chart) if "TFLOP/s ·" in words or "slow" in words]
    assert len(placed) == len(rungs) + 1 and [words for words, box in placed if box.x0 < crossed < box.x1] == []


def ys(chart: Chart, panel: int = 0) -> list[list[float]]:
    """The values of each line with two points, in the order of the names."""
    return [line.get_ydata().tolist() for line in chart.axes[panel].lines if line.get_marker() not in (None, "None")]


def test_kernels_and_their_baseline_are_lines_of_the_rate_that_is_known() -> None:
    chart = drawn("lines of a benchmark")
    assert ys(chart) == [approx([1.0, 1.0]), approx([2.0, 2.0]), approx([0.5, 0.5])]
    assert [line.get_color() for line in chart.axes[0].lines] == [ACCENT, INK, OTHER]
    assert (chart.axes[0].get_ylabel(), chart.axes[0].get_xlabel()) == ("GB/s", "N")
    assert drawn("lines of times").axes[0].get_ylabel() == "µs"
    half = runs.benchmark().measurements
    run = of(*half, *(replace(m, axes={**m.axes, "dtype": "float"}) for m in half))
    assert "fast dtype=half 1 at 8" in lines(run).alt and "theirs dtype=float" in lines(run).alt, "other axes are named"
    against = {"cuBLAS": Estimate(0.5, 0.49, 0.51), "torch": Estimate(2.0, 1.99, 2.01)}
    chart = lines(of(*(replace(measured("naive", n, us=float(n)), against=against) for n in (256, 1024))), y="us")
    assert ys(chart) == [approx([256.0, 1024.0]), approx([512.0, 2048.0]), approx([128.0, 512.0])]
    assert "torch 512 at 256" in chart.alt and "cuBLAS 128 at 256" in chart.alt


def test_bars_are_as_long_as_their_numbers_and_the_tiles_of_a_sweep_in_order() -> None:
    assert lengths(drawn("bars")) == [12.5, 1979.0, 0.0, 0.0]
    assert lengths(bars("", {"a": {"x": 2.0}, "b": {"y": 3.0}}, "")) == [2.0, 0.0, 0.0, 3.0]
    words = said(drawn("sweep"))
    assert words.index("45.8 · 90.0 %") < words.index("15.3 · 30.0 %")


def test_the_interval_ends_as_the_harness_states_it() -> None:
    """cuBLAS at 512, whose placements make three quarters of the interval."""
    run = Run.load(recordings()["h200"], "recorded")
    [m] = run.select("cuBLAS", Shape.of(512))
    times, counts = sample_times(m)
    us = [time for time, counted in zip(times, counts, strict=True) if counted]
    placed = [place for place, counted in zip(m.samples.sides[0].placement, counts, strict=True) if counted]
    steps = closing(us, placed, (m.time and m.time.process) or 0.0)
    last = steps[-1].median
    assert [step.n for step in steps] == sorted({step.n for step in steps}) and steps[-1].n == len(us)
    assert (last.value, last.low, last.high) == (approx(m.us), approx(m.us_low), approx(m.us_high))
    assert f"known to ±{100 * last.relative_half_width:.2g} %" in samples(run, "cuBLAS", 512).headline
    assert 0.495 < 100 * last.relative_half_width < 0.505 < 50 * steps[0].median.relative_half_width


def test_the_levels_are_flop_per_byte() -> None:
    counted = MemoryCounts("", 1, 512, 32768, 256, 1, 512, 0, 0, 64**3)
    run = of(kernels={"one": {"tile": {"BM": 32, "BN": 32}}})
    [(name, at)] = levels_of(run, LadderCounts("", Shape.of(64), {"one": counted, "no tile": counted})).items()
    bytes_moved = [2 * 64**3 / x for x in (at.threads, at.sectors, at.blocks, at.compulsory)]
    assert name == "one" and bytes_moved == approx([32768 + 4 * 64**2, 32 * 1024, 20 * 64**2, 12 * 64**2])


def test_counts_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory_counts, "FILE", tmp_path / "traffic.json")
    (tmp_path / "traffic.json").write_text('{"label": 1, "shape": [1], "rungs": {"a": {"b": 1}}}', encoding="utf-8")
    with pytest.raises(WorklogError, match=r"traffic\.json cannot be read .*install gemm-worklog again"):
        memory_counts.memory_counts.__wrapped__()


def test_the_waterfalls_steps_lead_from_the_unbiased_to_the_naive_reading(h200: Run) -> None:
    every = falls(effects(h200, "warptiled"))
    assert list(every) == [Shape.of(n) for n in (256, 512, 1024, 2048, 4096)]
    for fall in every.values():
        assert fall.combined.unbiased * math.prod(fall.steps.values()) == approx(fall.combined.biased)
        assert fall.remainder.factor == approx(fall.steps[REMAINDER])
    steps = every[Shape.of(512)].steps
    rates = {pitfall.setting for pitfall in PITFALLS if pitfall.corrupts == "TFLOP/s"}
    assert set(steps) == (rates & NAIVE_READING.keys()) | {"statistic", REMAINDER} > {"queue", "placement"}
    assert steps["clocks"] == 1 and steps["l2"] == approx(1.31)
    h200.measurements = [m for m in h200.measurements if len(m.changed) < 5]
    four = falls(effects(h200, "warptiled"))[Shape.of(512)].steps
    assert set(four) == {"clocks", "timer", "l2", "warmup", REMAINDER}


@pytest.mark.parametrize("draw", [ladder, roofline, plots.levels, plots.calibration, plots.lines])
def test_a_chart_on_the_users_axes_gives_them_back_and_says_the_same(draw: Any) -> None:
    run = runs.over_sizes() if draw is plots.lines else full_run()
    figure, axes = subplots(figsize=(8, 5))
    before = axes.get_position()
    assert draw(run, ax=axes) is axes and figure.axes[0] is axes
    mine = {text.get_text() for text in axes.texts}
    assert mine and mine <= {text.get_text() for text in draw(run).axes[0].texts} | {runs.REASON}
    assert axes.get_position().x1 <= before.x1, "names at the right have room within the axes' own"


def test_a_run_has_its_charts() -> None:
    run = full_run()
    completer = pytest.importorskip("IPython.core.completer")
    with completer.provisionalcompleter():
        offered = {c.text for c in completer.IPCompleter(namespace={"run": run}).completions("run.plot.", 9)}
    assert {"ladder", "roofline", "sizes", "samples"} <= offered
    assert run.plot.ladder(size=4096).headline == drawn("ladder").headline
