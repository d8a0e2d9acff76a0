"""What single charts draw: rows and their order, bars, points and colours, and the numbers behind them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.pyplot import subplots
from pytest import approx

from tests.helpers import measured
from tests.plots import conftest as runs
from tests.plots.conftest import ERRORS, NAIVE_READING, SIZE, TIMES_MS, empty_run, full_run, of
from tests.plots.test_charts import boxes, drawn, said
from worklog import plots
from worklog.analysis import memory_counts
from worklog.analysis.memory_counts import LadderCounts, MemoryCounts
from worklog.errors import NothingToDraw, WorklogError
from worklog.plots import Chart, bars, ladder, lines, roofline, samples
from worklog.plots.charts.ablation import REMAINDER, falls
from worklog.plots.charts.levels import levels_of
from worklog.plots.charts.samples import closing
from worklog.plots.figure import ACCENT, GREY, INK, OTHER, PAPER
from worklog.plots.selection import sample_times
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


def test_only_the_class_fp32_is_drawn_full() -> None:
    hollow = [bar for bar in drawn("both ladders").axes[0].patches if bar.get_facecolor()[3] == 0]
    assert [round(bar.get_width()) for bar in hollow] == [229]
    marks = [line for line in drawn("accuracy").axes[0].lines if line.get_marker() == "o"]
    assert len(marks) == 5
    assert [line.get_xdata()[0] for line in marks if line.get_markerfacecolor() == PAPER] == [20_400.0]


def test_the_roofline_counts_from_the_tile_and_draws_theoretical_roofs_dashed(h200: Run) -> None:
    def intensity(chart: Chart) -> float:
        [points] = [line for line in chart.axes[0].lines if line.get_marker() == "o"]
        return float(points.get_xdata()[0])

    assert intensity(drawn("roofline")) == approx(8, rel=0.01)
    assert [line.get_linestyle() for line in drawn("roofline").axes[0].lines].count("--") == 2
    h200.kernels["naive"]["tile"] = {"BM": 16, "BN": 16}
    assert intensity(roofline(h200)) == approx(4, rel=0.01)


def ys(chart: Chart, panel: int = 0) -> list[list[float]]:
    """The values of each line with two points, in the order of the names."""
    return [line.get_ydata().tolist() for line in chart.axes[panel].lines if line.get_marker() not in (None, "None")]


def test_performance_over_size_has_each_kernel_once_per_panel() -> None:
    assert len(ys(drawn("sizes"))) == 3 and ys(drawn("sizes"), 1) == [approx([70.0, 20.0]), approx([20.0, 110.0])]


def test_kernels_and_their_baseline_are_lines_of_the_rate_that_is_known() -> None:
    chart = drawn("lines of a benchmark")
    assert ys(chart) == [approx([1.0, 1.0]), approx([2.0, 2.0]), approx([0.5, 0.5])]
    assert [line.get_color() for line in chart.axes[0].lines] == [ACCENT, INK, OTHER]
    assert (chart.axes[0].get_ylabel(), chart.axes[0].get_xlabel()) == ("GB/s", "N")
    assert lines(runs.benchmark(), y="us").axes[0].get_ylabel() == "µs"


def test_other_axes_are_in_the_names_of_lines_and_further_baselines_are_lines_too() -> None:
    half = runs.benchmark().measurements
    run = of(*half, *(replace(m, axes={**m.axes, "dtype": "float"}) for m in half))
    assert "fast dtype=half 1 at 8" in lines(run).alt and "theirs dtype=float" in lines(run).alt
    against = {"cuBLAS": Estimate(0.5, 0.49, 0.51), "torch": Estimate(2.0, 1.99, 2.01)}
    timed = [replace(measured("naive", n, us=float(n)), against=against) for n in (256, 1024)]
    chart = lines(of(*timed), y="us")
    assert ys(chart) == [approx([256.0, 1024.0]), approx([512.0, 2048.0]), approx([128.0, 512.0])]
    assert "torch 512 at 256" in chart.alt and "cuBLAS 128 at 256" in chart.alt


def test_the_three_harnesses_nearest_to_the_true_length_have_colours_and_the_others_are_grey() -> None:
    colours = [line.get_color() for line in drawn("peers").axes[0].lines if len(line.get_xdata()) > 2]
    coloured = {name for name, colour in zip(ERRORS, colours, strict=True) if colour != GREY}
    assert coloured == {"worklog", "worklog, CUPTI", "do_bench_cudagraph"}
    assert len(set(colours)) == 4 and colours[0] == ACCENT


def test_bars_are_as_long_as_their_numbers_and_the_tiles_of_a_sweep_in_order() -> None:
    assert lengths(drawn("bars")) == [12.5, 1979.0, 0.0, 0.0]
    assert lengths(bars("", {"a": {"x": 2.0}, "b": {"y": 3.0}}, "")) == [2.0, 0.0, 0.0, 3.0]
    words = said(drawn("sweep"))
    assert words.index("45.8 · 90.0 %") < words.index("15.3 · 30.0 %")


def test_the_interval_ends_as_the_harness_states_it() -> None:
    """cuBLAS at 512, whose placements make three quarters of the interval."""
    run = Run.load(recordings()["h200"], "recorded")
    [m] = run.select("cuBLAS", Shape.of(512))
    times, counts = sample_times(run, m)
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
    run = replace(empty_run(), kernels={"one": {"tile": {"BM": 32, "BN": 32}}})
    [(name, at)] = levels_of(run, LadderCounts("", Shape.of(64), {"one": counted, "no tile": counted})).items()
    bytes_moved = [2 * 64**3 / x for x in (at.threads, at.sectors, at.blocks, at.compulsory)]
    assert name == "one" and bytes_moved == approx([32768 + 4 * 64**2, 32 * 1024, 20 * 64**2, 12 * 64**2])


@pytest.mark.parametrize("content", ["", '{"label": 1, "shape": [1], "rungs": {"a": {"b": 1}}}'])
def test_counts_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str) -> None:
    file = tmp_path / "traffic.json"
    file.write_text(content, encoding="utf-8")
    monkeypatch.setattr(memory_counts, "FILE", file)
    with pytest.raises(WorklogError, match=r"traffic\.json cannot be read .*install gemm-worklog again"):
        memory_counts.memory_counts.__wrapped__()


def test_wrong_tiles_are_filled_by_how_wrong_they_are_and_one_wrong_element_shows() -> None:
    tiles = drawn("tile map").axes[0].patches
    half, whole = (tile.get_alpha() for tile in tiles if tile.get_fill())
    assert half < whole == 1
    corners = [tile.get_bbox().max.tolist() for tile in tiles]
    assert len(corners) == 6 + 2 and [max(ends) for ends in zip(*corners, strict=True)] == [20, 12]
    [tile] = [tile for tile in drawn("tile map of (1, 4000)").axes[0].patches if tile.get_fill()]
    assert tile.get_alpha() > 0.2


def cells() -> dict[str, tuple[float, ...] | None]:
    """The words of the ablation's heat map, each with the colour of the cell that it is in."""
    axes, by_words = drawn("ablation").axes[0], dict[str, tuple[float, ...] | None]()
    filled = [patch for patch in axes.patches if patch.get_fill()]
    for text in axes.texts:
        under = [patch.get_facecolor() for patch in filled if patch.get_bbox().contains(*text.get_position())]
        by_words[text.get_text().replace("\u00a0", " ")] = to_rgba(under[0]) if under else None
    return by_words


def test_the_heat_map_has_the_articles_four_first_the_combined_rows_last_and_colours_that_show_sign_and_size() -> None:
    rows = [*cells()]
    visible = {e.setting for e in effects(full_run(), "warptiled") if e.visible}
    places = [rows.index(f"{p.article} {p.title}" if p.article else p.title) for p in PITFALLS if p.setting in visible]
    assert len(places) >= 9 and places == sorted(places) and "1 clocks drift" not in rows
    assert [title[0] for title in rows if title[0] in "1234" and title[1] == " "] == ["2", "3", "4", "4"]
    assert places[-1] < rows.index("the article's four together") < len(rows) - 2
    huge, larger, smaller = (cells()[words] or () for words in ("× 609", "+31.0 %", "÷ 14.8"))
    assert huge[0] > huge[2] and larger[0] > larger[2] and smaller[0] < smaller[2], "orange inflates, blue deflates"
    assert smaller[3] < 0.3 < larger[3] < huge[3] == 1, "pale where it is the same at every size"


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


def test_a_run_has_its_charts_and_a_frame_is_taken_for_a_run() -> None:
    run = full_run()
    completer = pytest.importorskip("IPython.core.completer")
    with completer.provisionalcompleter():
        offered = {c.text for c in completer.IPCompleter(namespace={"run": run}).completions("run.plot.", 9)}
    assert {"ladder", "roofline", "sizes", "samples"} <= offered
    whole, taken = run.plot.ladder(size=4096), ladder(run.frame(), 4096)
    assert whole.headline == drawn("ladder").headline == taken.headline and run.label in said(taken)
    assert names(taken) == names(whole) and lengths(taken) == lengths(whole)
    assert plots.sizes(runs.over_sizes().frame()).headline == drawn("sizes").headline
    with pytest.raises(NothingToDraw, match="no column changed"):
        ladder(run.frame().drop(columns="changed"))
