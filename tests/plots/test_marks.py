"""What single charts draw, and their files.

Whole, the same bytes in every process, with words for screen readers.
"""

import base64
import json
import math
import re
from dataclasses import replace
from html import escape
from importlib import import_module
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.pyplot import subplots
from matplotlib.text import Annotation
from PIL import Image, ImageColor
from pytest import approx

from tests.helpers import measured, product, small_run
from tests.plots import conftest as runs
from tests.plots.conftest import SIZE, TIMES_MS, ablate, benchmark, full_run, ladder_run, make_run
from tests.plots.test_charts import EMULATED, boxes, drawn, on_three_days, swept, tiles
from worklog import lab, plots
from worklog.errors import BadRunFile, NotDrawn, NothingToDraw, WorklogError
from worklog.kernel import LADDER
from worklog.kernel import rung as find_rung
from worklog.kernel.ladder import memory_counts
from worklog.plots import (
    DIAGRAMS,
    Chart,
    ablation,
    bars,
    calibration,
    draw_all,
    ladder,
    lines,
    roofline,
    save,
)
from worklog.plots.charts.ownership import first_block
from worklog.plots.drawing import Drawing
from worklog.plots.gallery import write_gallery
from worklog.plots.registry import FIGURES
from worklog.plots.style import (
    ACCENT,
    ALERT,
    DARK,
    DEFLATES,
    FAINT,
    GREY,
    INK,
    LIGHT,
    MUTED,
    OTHER,
    PAPER,
    text_width,
)
from worklog.problem import Point, Shape
from worklog.runs import Measurement, Run, recorded_run, recordings
from worklog.runs.changes import compare_revisions, revision_of
from worklog.runs.comparison import open_comparison
from worklog.runs.statistics import Estimate
from worklog.viewer.accesses import access


def names(chart: Chart) -> list[str]:
    return [label.get_text() for label in chart.axes[0].get_yticklabels()]


def lengths(chart: Chart) -> list[float]:
    """Return the bars, column by column."""
    return [bar.get_width() for axes in chart.axes for bar in axes.patches]


def test_rungs_stand_in_order_users_kernels_below_them_in_the_accent_and_failed_ones_have_no_bar(
    h200,
):
    h200.measurements.sort(key=lambda m: (bool(m.changed), -list(TIMES_MS).index(m.kernel)))
    assert names(ladder(h200)) == names(drawn("ladder")) == [*TIMES_MS]
    chart = drawn("ladder, some failed and some the user's")
    assert names(chart) == [*list(TIMES_MS)[:-1], "mine · yours", "wrong · yours", "cuBLAS"]
    colours = [to_hex(bar.get_facecolor()) for bar in chart.axes[0].patches]
    assert (
        len(colours) == len(names(chart)) - 2
        and [colour == ACCENT for colour in colours].index(True) == 7
    )
    assert (
        runs.REASON in chart.alt
        and "one: a heading of more than one line, µs 12.50, % 0.000; " in drawn("bars").alt
    )
    assert to_hex(drawn("ladder").axes[0].patches[0].get_facecolor()) == ACCENT


def test_the_two_ladders_have_headings_and_scales_of_their_own():
    chart = drawn("both ladders")
    assert {"on FP32 cores", "FP32 on tensor cores"} <= {words.get_text() for words in chart.texts}
    plain, tensor = (max(bar.get_width() for bar in axes.patches) for axes in chart.axes)
    assert [axes.get_xlim() for axes in chart.axes] == [
        approx((0, 1.06 * most)) for most in (plain, tensor)
    ]
    assert (plain, tensor) == (approx(55, abs=0.1), approx(229, abs=0.1))


@pytest.mark.parametrize(("share", "rival"), [(1.04, 51.6), (0.99, 51.6), (0.7, 30.0), (0.7, 10.0)])
def test_no_words_cross_the_line_of_cublas(share, rival):
    *rungs, cublas = runs.ladder_run().measurements
    us = 1e-6 * Shape(*SIZE).flops / rival
    shown = [runs.measurement(m.kernel, 4096, us / share, share) for m in rungs]
    shown[0] = Measurement(
        "naive",
        product(*SIZE),
        "skipped",
        reason="too slow: " + "one launch takes longer than that " * 3,
    )
    chart = ladder(make_run(*shown, runs.measurement(cublas.kernel, 4096, us, 1.0)))
    axes, above = chart.axes
    crossed = axes.transData.transform((rival, 0))[0]
    assert above.transData.transform((100, 0))[0] == approx(crossed), (
        "where the upper axis has 100 %"
    )
    assert above.get_xlabel().startswith("% of cuBLAS")
    assert [name for name, spine in above.spines.items() if spine.get_visible()] == ["top"]
    placed = [
        (words, box) for words, box in boxes(chart) if "TFLOP/s ·" in words or "slow" in words
    ]
    assert (
        len(placed) == len(rungs) + 1
        and [words for words, box in placed if box.x0 < crossed < box.x1] == []
    )


def ys(chart: Chart, panel: int = 0) -> list[list[float]]:
    """Return the values of each line with two points, in the order of the names."""
    return [
        line.get_ydata().tolist()
        for line in chart.axes[panel].lines
        if line.get_marker() not in (None, "None")
    ]


def test_kernels_and_their_baseline_are_lines_of_the_rate_that_is_known():
    chart = drawn("lines of a benchmark")
    assert ys(chart) == [approx([1.0, 1.0]), approx([2.0, 2.0]), approx([0.5, 0.5])]
    bands = [
        path.get_extents().intervaly
        for band in chart.axes[0].collections
        for path in band.get_paths()
    ]
    assert bands == [
        approx([1 / 1.01, 1 / 0.99]),
        approx([1 / 0.51, 1 / 0.49]),
        approx([0.5 / 1.01, 0.5 / 0.99]),
    ]
    looks = [(line.get_color(), line.get_linestyle()) for line in chart.axes[0].lines]
    assert looks == [(ACCENT, "-"), (INK, "--"), (OTHER, "-")]
    assert max(chart.axes[0].lines, key=lambda line: line.zorder).get_color() == ACCENT, "in front"
    named = {words.get_text(): words.get_color() for words in chart.axes[0].texts}
    assert named == {"fast": ACCENT, "theirs": MUTED, "slow": OTHER}
    measured_too = [
        (line.get_color(), line.get_linestyle()) for line in drawn("lines").axes[0].lines
    ]
    assert measured_too == [(ACCENT, "-"), (OTHER, "-"), (INK, "--")], (
        "a baseline that is a kernel of the run"
    )
    assert (chart.axes[0].get_ylabel(), chart.axes[0].get_xlabel()) == ("GB/s", "N")
    times = drawn("lines of times").axes[0]
    assert (times.get_ylabel(), times.get_yscale(), chart.axes[0].get_yscale()) == (
        "µs",
        "log",
        "linear",
    )
    assert chart.axes[0].get_ylim() == approx((0, 1.08 / 0.49))
    half = runs.benchmark().measurements
    run = make_run(
        *half,
        *(replace(m, point=Point(axes=tuple({**m.axes, "dtype": "float"}.items()))) for m in half),
    )
    chart = lines(run)
    assert "fast dtype=half 1 at 8" in chart.alt and "theirs dtype=float" in chart.alt, (
        "other axes are named"
    )
    colours = [line.get_color() for line in chart.axes[0].lines]
    assert [colours.count(colour) for colour in (ACCENT, OTHER, GREY, INK)] == [1, 1, 2, 2]
    against = {"cuBLAS": Estimate(0.5, 0.49, 0.51), "torch": Estimate(2.0, 1.99, 2.01)}
    shown = [replace(measured("naive", n, us=float(n)), against=against) for n in (256, 1024)]
    shown += [
        Measurement("wrong", product(*SIZE), "failed"),
        replace(measured("wide"), point=product(512, 256, 512)),
    ]
    chart = lines(make_run(*shown), y="us")
    assert ys(chart) == [approx([256.0, 1024.0]), approx([512.0, 2048.0]), approx([128.0, 512.0])]
    assert "torch 512 at 256" in chart.alt and "cuBLAS 128 at 256" in chart.alt


def reference_lines(name: str) -> list[list[list[float]]]:
    """Return the points of each line without markers."""
    return [
        line.get_xydata().tolist()
        for line in drawn(name).axes[0].lines
        if line.get_marker() in (None, "None")
    ]


def test_100_percent_and_the_limits_of_errors_are_lines():
    [whole] = reference_lines("sizes")
    [limit] = reference_lines("accuracy")
    assert ([y for _, y in whole], [x for x, _ in limit]) == ([100, 100], [1296, 1296])
    texts = drawn("accuracy").axes[0].texts
    points = drawn("accuracy").axes[0].lines[1:]
    assert [point.get_color() for point in points] == [DEFLATES, ACCENT, ACCENT, DEFLATES, MUTED]
    assert [point.get_markerfacecolor() == PAPER for point in points] == [
        False,
        True,
        False,
        False,
        False,
    ], "tf32"
    assert [words.xy[0] for words in texts if words.get_text() == "limit of class fp32"] == [1296]
    assert (reference_lines("lines"), reference_lines("error growth")) == (
        [],
        [[[128, 17], [1024, 42]]],
    )
    assert "never: 8 at 128, 61 at 1024" in drawn("error growth").alt
    assert "tf32 229 TFLOP/s with 20400 u·D" in drawn("accuracy").alt


def test_bars_are_as_long_as_their_numbers():
    chart = drawn("bars")
    assert lengths(chart) == [12.5, 1979.0, 0.0, 0.0]
    [longest] = [box for words, box in boxes(chart) if words == "1979"]
    assert longest.x1 <= chart.axes[0].bbox.x1, "the number of the longest bar has room beside it"
    assert lengths(bars("", {"a": {"x": 2.0}, "b": {"y": 3.0}}, "")) == [2.0, 0.0, 0.0, 3.0]


def test_a_sweep_is_a_line_per_tile_and_a_share_per_cell_and_a_box_per_measurement():
    sweep = drawn("sweep")
    cells = drawn("heat map").axes[0]
    *others, fastest = [line for line in sweep.axes[0].lines if len(line.get_xdata()) == 6]
    assert (
        len(others) == 3
        and list(fastest.get_ydata())[:2] == [0, 1]
        and fastest.get_ydata()[-1] == 1
    )
    assert [line.get_color() == ACCENT for line in (*others, fastest)] == [
        False,
        False,
        False,
        True,
    ]
    assert (
        sweep.axes[0].viewLim.extents.tolist() == [0, 0, 5, 1]
        and not sweep.axes[0].get_xticks().size
    )
    assert sweep.alt.index("45.8 TFLOP/s") < sweep.alt.index("15.3 TFLOP/s")
    assert [text.get_text() for text in cells.texts] == ["30", "90", "–", "–"], (
        "rows BM, columns BN"
    )
    boxes = [(box.get_x(), box.get_width()) for box in drawn("cards").axes[0].patches]
    assert sorted(boxes) == [(0, 1), (0, 2), (1, 1), (2, 2)]


def test_the_scale_of_errors_has_ticks_at_30_too_unless_they_differ_much():
    naive, *_, cublas = runs.both().measurements
    stage = naive.verdict.stages[0]
    far = replace(cublas, verdict=replace(naive.verdict, stages=(replace(stage, measured=400.0),)))
    for least, ticks in ((2.0, True), (1.0, False)):
        near = replace(
            naive, verdict=replace(naive.verdict, stages=(replace(stage, measured=least),))
        )
        chart = plots.accuracy(make_run(near, far))
        assert (30.0 in chart.axes[0].xaxis.get_majorticklocs().round(6)) is ticks


def test_changes_are_intervals_and_a_history_is_relative_to_its_first_run_on_the_newest_gpu():
    three = on_three_days()
    made = compare_revisions([revision_of(three[1])], [revision_of(three[2])])
    *lines, unchanged = plots.changes(made).axes[0].lines
    assert unchanged.get_xdata() == [0, 0]
    slower, faster = (row.change for row in made.rows)
    for line, change, colour in zip(lines[::2], (slower, faster), (ALERT, ACCENT), strict=True):
        assert (
            line.get_xdata() == approx([100 * change.low, 100 * change.high])
            and line.get_color() == colour
        )
    assert [line.get_xdata() for line in lines[1::2]] == [approx([10.0]), approx([-10.0])]
    three[0].measurements = small_run(
        gpu=replace(three[0].gpu, name="another"), measurements=[measured("a", us=90.0)]
    ).measurements
    assert plots.history("a", three[::-1]).axes[0].lines[-1].get_ydata() == approx([0.0, 10.0])


def test_a_size_of_one_run_has_no_line_in_a_history_and_no_say_in_what_it_finds():
    first, second, third = on_three_days()
    second.measurements.append(measured("a", 1024))
    both = plots.history("a", [first, second])
    assert "1024" not in both.headline and "1024" not in both.alt
    assert both.axes[0].lines[-1].get_ydata() == approx([0.0, 100 / 9])
    assert len(both.axes[0].lines) == len(plots.history("a", [first, third]).axes[0].lines)
    third.measurements.append(measured("a", 1024, us=300.0))
    assert "at 1024: +200.0 %" in plots.history("a", [first, second, third]).headline
    with pytest.raises(NothingToDraw, match="no two runs"):
        plots.history("a", [first, small_run(measurements=[measured("a", 1024)])])


def test_an_effect_that_is_not_known_at_a_size_has_no_colour():
    known = [
        m
        for m in full_run().measurements
        if not (m.changed == {"l2": "warm"} and m.problem == Shape.of(512))
    ]
    axes = ablation(make_run(*known), "naive").axes[0]
    [(x, y)] = [text.get_position() for text in axes.texts if text.get_text() == "–"]
    [cell] = [
        p
        for p in axes.patches
        if 0 < x - p.get_x() < p.get_width() and 0 < y - p.get_y() < p.get_height()
    ]
    assert cell.get_facecolor()[3] == 0


def test_a_row_of_an_ablation_has_one_unit_and_the_waterfall_several_bars():
    chart = drawn("ablation")
    rows = re.findall(r"\((?:\w+=[^)]*|TFLOP/s)\): ([^;]+)", chart.alt.partition("waterfall")[0])
    assert len(rows) > 8
    for row in rows:
        effects = {effect.strip() for effect in re.sub(r"\d+: ", "", row).split(",")} - {"0"}
        assert len({"%" in effect for effect in effects}) <= 1, row
    fall = chart.axes[1]
    assert len([line for line in fall.lines if line.get_linewidth() == 8]) > 2
    assert (
        len(
            ablation(
                make_run(*(m for m in full_run().measurements if len(m.changed) != 1)), "naive"
            ).axes
        )
        == 1
    )


def test_the_rungs_with_large_tiles_do_not_overlap():
    zoom = roofline(recorded_run(), 4096).axes[1]
    [dots] = [line for line in zoom.lines if line.get_marker() == "o"]
    pixels = zoom.transData.transform(dots.get_xydata())
    size = dots.get_markersize() * zoom.figure.dpi / 72
    assert len(pixels) == 8 and all(math.dist(*two) > size for two in combinations(pixels, 2))


def test_a_timeline_has_the_order_of_each_group_of_warps():
    rung = find_rung("double_buffered")
    _, row = lab.timeline(rung).alt.split(". ", 1)
    order = row.split(", ")
    assert row.startswith("warps 0–7: fetch to registers 0")
    assert (
        order.index("fetch to registers 1")
        < order.index("multiply 0")
        < order.index("store from registers 1")
    )
    assert "wait" in order[order.index("store from registers 1") : order.index("multiply 1")]
    assert (
        "wait" not in lab.timeline(rung.with_text(rung.source.replace("__syncthreads();", ""))).alt
    )


def test_the_roofline_takes_counted_bytes_where_each_rungs_are_recorded(monkeypatch, tmp_path):
    def intensities() -> tuple[Any, str]:
        chart = roofline(recorded_run(), 4096)
        [dots] = [line for line in chart.axes[0].lines if line.get_marker() == "o"]
        return dots.get_xdata(), chart.axes[0].get_xlabel() + "".join(
            words.get_text() for words in chart.texts
        )

    counters = import_module("worklog.kernel.ladder.recorded")
    path = tmp_path / "h200.json"
    monkeypatch.setattr(counters, "recordings", lambda part: {})
    by_tile, words = intensities()
    assert "from the tile" in words and "Nsight" not in words
    flops = Shape.of(4096).flops
    counted = [*map(round, flops / by_tile / 2)]
    kernels = {
        rung.name: {"bytes": {"L2": moved}} for rung, moved in zip(LADDER, counted, strict=True)
    }
    document = {
        "device": "a card",
        "date": "today",
        "ncu": "Version 1",
        "shape": [4096] * 3,
        "kernels": kernels,
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr(
        counters, "recordings", lambda part: {"h200": path} if part == "bytes" else {}
    )
    by_counters, words = intensities()
    assert (
        by_counters == approx(2 * by_tile)
        and "by counters" in words
        and "a card · today · Nsight" in words
    )
    del kernels["naive"]
    path.write_text(json.dumps(document), encoding="utf-8")
    assert intensities()[0] == approx(by_tile)


def test_a_tile_is_multiplied_behind_its_copies():
    [axes] = drawn("timeline of bulk_copies").axes
    boxes = [patch for patch in axes.patches if patch.get_y() < axes.get_ylim()[0]]
    key = [patch.get_bbox().intervalx for patch in axes.patches if patch not in boxes]
    words = [
        text.xy[0]
        for text in axes.texts
        if isinstance(text, Annotation) and text.xy[1] > axes.get_ylim()[0]
    ]
    assert len(key) == 5 and not any(low <= x <= high for low, high in key for x in words)
    waits = {
        sum(line.get_ydata()) / 2 for line in axes.lines if line.get_ydata()[0] < axes.get_ylim()[0]
    }
    assert sorted(waits) == approx(axes.get_yticks()), "in the middle of their rows"
    assert {box.get_y() + box.get_height() / 2 for box in boxes} == {*axes.get_yticks()}
    tiles = [text for text in axes.texts if text.get_text().isdigit()]
    assert tiles and all(
        any(box.contains_point(axes.transData.transform(text.xy)) for box in boxes)
        for text in tiles
    )
    blue = sorted(box.get_x() for box in boxes if to_hex(box.get_facecolor()) == ACCENT)
    copies = sorted(
        box.get_x() + box.get_width() for box in boxes if to_hex(box.get_facecolor()) == FAINT
    )
    assert len(blue) == 12 == len(copies) and all(
        begin >= end for begin, end in zip(blue, copies, strict=True)
    )


def test_a_number_in_a_timeline_does_not_touch_the_sides_of_its_part():
    chart = drawn("timeline of conflict_free")
    [axes] = chart.axes
    boxes = [patch.get_window_extent() for patch in axes.patches]
    numbers = [text for text in axes.texts if text.get_text().isdigit()]
    gap = 0.01 * chart.dpi
    for number in numbers:
        extent = number.get_window_extent()
        assert any(box.x0 + gap < extent.x0 and extent.x1 < box.x1 - gap for box in boxes), number


def test_the_tile_of_a_block_shows_a_warps_elements_and_those_of_a_thread():
    tile, *strips = plots.ownership(access("coalesced")).axes
    warp, thread = (
        {path.get_extents().bounds for path in of.get_paths()} for of in tile.collections
    )
    assert (
        sum(wide * high for *_, wide, high in warp)
        == 32 * sum(wide * high for *_, wide, high in thread)
        == 32
    )
    for strip, sectors in zip(strips, (1, 4, 4), strict=True):
        cells = {
            tuple(path.get_extents().intervalx)
            for of in strip.collections
            for path in of.get_paths()
        }
        assert all(end < begin for (_, end), (begin, _) in pairwise(sorted(cells)))
        assert len(cells) == 8 * sectors and max(cells)[1] < strip.get_xlim()[1], "of 8 floats each"
        assert strip.get_ylim() == approx((0.09, 0)), "in one row"


@pytest.mark.parametrize("name", ["naive", "shared", "vectorized"])
def test_as_many_floats_are_filled_as_a_warp_uses(name):
    shown = access(name)
    cells = [strip.collections for strip in plots.ownership(shown).axes[1:]]
    used = [
        sum(len(of.get_paths()) for of in strip if to_hex(of.get_facecolor()[0]) != FAINT)
        for strip in cells
    ]
    assert {*used} <= {len(request.floats) for request in first_block(shown)[1].values()}


def test_counts_that_cannot_be_read(monkeypatch, tmp_path):
    monkeypatch.setattr("worklog.kernel.ladder.counts.TRAFFIC", tmp_path / "traffic.json")
    (tmp_path / "traffic.json").write_text(
        '{"label": 1, "shape": [1], "rungs": {"a": {"b": 1}}}', encoding="utf-8"
    )
    with pytest.raises(
        WorklogError, match=r"traffic\.json cannot be read .*install gemm-worklog again"
    ):
        memory_counts.__wrapped__()


def test_a_tile_without_a_time_is_pale_in_the_map_and_each_cell_is_inside():
    [axes] = plots.heat_map(tiles(), swept()).axes
    pale = [to_hex(cell.get_facecolor()) == FAINT for cell in axes.patches]
    assert pale == [text.get_text() == "–" for text in axes.texts] and sum(pale) == 2
    assert (sorted(axes.get_xlim()), sorted(axes.get_ylim())) == ([-0.5, 1.5], [-0.5, 1.5])
    (parallel,) = plots.sweep(tiles(), small_run(measurements=swept().measurements[:1])).axes
    assert all(0 <= y <= 1 or y != y for line in parallel.lines for y in line.get_ydata())


def test_an_axis_that_doubles_is_logarithmic_from_1_on():
    assert [
        plots.lines(benchmark(sizes)).axes[0].get_xscale() for sizes in ((1, 1024), (8, 9))
    ] == ["log", "linear"]


@pytest.mark.parametrize("bold", [False, True])
def test_the_width_of_text_is_that_of_the_picture(bold):
    words = "tiles_2d reaches 68.7 % of cuBLAS"
    axes = plots.heat_map(tiles(), swept()).axes[0]
    text = axes.text(
        0, 0, words, fontsize=400, weight="bold" if bold else "normal", family="DejaVu Sans"
    )
    assert text.get_window_extent().width / axes.figure.dpi == approx(
        text_width(words, 400, bold), rel=0.005
    )


def test_text_has_a_width_where_the_font_lacks_its_letters():
    assert text_width("\u6838", 10) > 0 and text_width("a\u6838", 10) > text_width("a", 10)


@pytest.mark.parametrize("draw", [ladder, roofline, plots.calibration, plots.lines])
def test_a_chart_on_the_users_axes_gives_them_back_and_says_the_same(draw):
    run = runs.over_sizes() if draw is plots.lines else full_run()
    figure, axes = subplots(figsize=(8, 5))
    before = axes.get_position()
    assert draw(run, ax=axes) is axes and figure.axes[0] is axes
    mine = {text.get_text() for text in axes.texts}
    assert mine and mine <= {text.get_text() for text in draw(run).axes[0].texts} | {runs.REASON}
    assert axes.get_position().x1 <= before.x1, "names at the right have room within the axes' own"


def test_a_run_has_its_charts():
    run = full_run()
    assert {"ladder", "roofline", "sizes", "samples"} <= {*dir(run.plot)}, "which TAB offers"
    assert run.plot.ladder(size=4096).headline == drawn("ladder").headline


NAMES = *FIGURES, "ablation_warptiled"
# These come with the package, from other sources than this run.
SOURCES = dict.fromkeys(NAMES, "<GPU & Co>") | {"traffic": EMULATED}
SOURCES |= {
    "headline": Run.load([*recordings("grid").values()][-1], "recorded").label,
    "peers": open_comparison().label,
}
ENDS = (".svg", ".png", "_dark.svg", "_dark.png")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Draw all charts of a run made by hand into a new folder, as in the fixture one_png.

    The name of the device isn't HTML.
    """
    run = ladder_run()
    encoded = Drawing.encoded
    ablate(run, "warptiled")
    run.gpu, run.origin = replace(run.gpu, name="<GPU & Co>"), "recorded"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Drawing,
            "encoded",
            lambda self, svg: encoded(self, svg) if self.name == "ladder" else b"",
        )
        return draw_all(run, tmp_path_factory.mktemp("new") / "folder")


def test_all_charts_are_drawn_light_and_dark_with_a_role_a_title_and_a_description(files):
    """Figures of what this run lacks, such as clocks, are drawn from the recording.

    Tests/runs/test_recording.py.
    """
    drawn_here = {*NAMES} - {*files.missing}
    assert {path.name for path in files.paths} == {
        f"{name}{end}" for name in drawn_here for end in ENDS
    }
    assert files.paths[4].stem == "ladder" and files.paths[5].stat().st_size > 3000
    for path in (path for path in files.paths if path.suffix == ".svg"):
        svg = path.read_text(encoding="utf-8")
        name = path.stem.removesuffix("_dark")
        assert not any(trace in svg for trace in ("dc:date", "Matplotlib v", "Software"))
        root = ElementTree.fromstring(svg)
        title = root.find(f"{SVG}title")
        description = root.find(f"{SVG}desc")
        assert title is not None and description is not None and root.get("role") == "img"
        assert root.get("aria-labelledby") == title.get("id")
        assert root.get("aria-describedby") == description.get("id")
        assert len(title.text or "") > 20 and SOURCES[name] in (description.text or "")
        has_words = root.find(f".//{SVG}text") is not None
        assert has_words is (name in (*DIAGRAMS, "headline")), "a chart's text is outlines"


def test_what_cannot_be_drawn_is_named_with_the_reason_and_a_benchmark_has_its_lines(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Drawing, "encoded", lambda self, svg: b"")
    files = draw_all(make_run(), tmp_path)
    assert set(files.charts) == {"headline", "traffic", "peers", "calibration"}
    assert set(files.missing) == FIGURES.keys() - files.charts.keys() | {"ablation"}
    assert "worklog ablate" in files.missing["ablation"]
    assert (
        f"Not drawn: `roofline`, {files.missing['roofline']}"
        in (tmp_path / "README.md").read_text()
    )
    assert {"lines_fast", "lines_slow"} <= set(draw_all(benchmark(), tmp_path).charts)


def test_one_chart_that_fails_is_named_and_the_others_are_drawn(tmp_path, monkeypatch):
    """A chart may fail while it is made, or while its file is rendered."""

    def unrendered() -> Drawing:
        chart = calibration(make_run())
        chart.drawn = lambda: {}["no such key"]  # type: ignore[method-assign]
        return chart

    def broken() -> Drawing:
        raise ValueError("two\nlines")

    def damaged() -> Drawing:
        raise BadRunFile("the recording is damaged: install it again")

    monkeypatch.setattr(Drawing, "encoded", lambda self, svg: b"")
    run = make_run()
    run.save(tmp_path / "a run.jsonl")
    others = {"calibration": unrendered, "peers": broken, "traffic": damaged}
    steps = list[tuple[int, int, str]]()
    files = draw_all(run, tmp_path / "figures", others, progress=lambda *step: steps.append(step))
    assert [(done, of) for done, of, _ in steps] == [(n, len(steps)) for n in range(len(steps))]
    drawn = {*files.charts, *files.missing, *files.failed}
    assert {doing for *_, doing in steps} == {f"figure {name}" for name in drawn}
    assert set(files.charts) == {"headline"} and files.missing.keys().isdisjoint(files.failed)
    assert re.fullmatch(r"ValueError: two lines \(test_marks\.py:\d+\)", files.failed["peers"])
    assert files.failed["calibration"].startswith("KeyError: 'no such key' (test_marks.py:")
    assert files.failed["traffic"] == "the recording is damaged: install it again"
    assert not [*(tmp_path / "figures").glob("calibration*")]
    page = (tmp_path / "figures" / "README.md").read_text()
    assert f"Not drawn: `peers`, {files.failed['peers']}" in page
    with pytest.raises(NotDrawn, match="3 figures could not be drawn") as error:
        files.require_whole()
    assert all(f"  {name}: {why}" in str(error.value) for name, why in files.failed.items())
    assert f"`worklog figures --run '{tmp_path}/a run.jsonl'`" in str(error.value)
    draw_all(make_run(), tmp_path / "others").require_whole()


def test_neither_the_users_style_nor_the_palette_changes_what_is_the_users(h200):
    with matplotlib.rc_context(
        {"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "mine", "savefig.dpi": 30}
    ):
        chart = ladder(h200)
        assert chart.svg() == drawn("ladder").svg()
        assert matplotlib.rcParams["font.size"] == 20
    chart.axes[0].axvline(20, color="#123456", linewidth=20)
    assert "#123456" in chart.svg(dark=True)


def test_a_png_and_a_chart_in_a_notebook_have_its_words_and_its_colours_by_theme(files):
    chart = files.charts["ladder"]
    for name, palette in (("ladder.png", LIGHT), ("ladder_dark.png", DARK)):
        with Image.open(files.paths[0].with_name(name)) as image:
            assert image.width == 1400
            assert (image.info["Title"], image.info["Description"]) == (chart.headline, chart.alt)
            assert image.convert("RGB").getpixel((2, 2)) == ImageColor.getrgb(palette["paper"])
    formatters = pytest.importorskip("IPython.core.formatters")
    chart = drawn("ablation")
    data, metadata = formatters.DisplayFormatter().format(chart)
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == metadata["image/png"]["alt"] == chart.alt
    assert f'src="data:image/png;base64,{data["image/png"]}"' in data["text/html"], (
        "shown where a page drops styles"
    )
    [dark] = re.findall(r"--dark:url\(data:image/svg\+xml;base64,(.*?)\)", data["text/html"])
    assert (
        base64.b64decode(dark).decode() == chart.svg(dark=True)
        and data["text/html"].count("<img ") == 1
    )


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WorklogError, match=r"cannot write .*--out"):
        save(drawn("ladder"), tmp_path / "file" / "ladder")


def test_the_gallery_shows_every_figure_and_replaces_no_other_page(files, tmp_path):
    page = files.gallery.read_text(encoding="utf-8")
    for name, chart in files.charts.items():
        for link in (
            f'src="{name}.png"',
            f'srcset="{name}_dark.png"',
            f'href="{name}.svg"',
            f'href="{name}_dark.svg"',
        ):
            assert link in page
        assert f"### {escape(chart.headline, False)}\n" in page
        assert f'alt="{escape(chart.summary)}"' in page and chart.headline in chart.summary
        for row in chart.rows:
            text = escape(row, False)
            first, _, second = text.partition(": " if ": " in text else " ")
            assert f"| {first} | {second} |" in page
        assert chart.rows or escape(chart.alt, False) in page
    assert "<GPU" not in page
    assert page.index("diagram_1") < page.index("diagram_7") < page.index('"ladder.png"')
    own = tmp_path / "README.md"
    ladder = {"ladder": drawn("ladder")}
    assert write_gallery({}, {}, tmp_path) is None and not own.exists()
    own.write_text(page)
    assert write_gallery(ladder, {}, tmp_path) == own and "diagram" not in own.read_text()
    own.write_text("# My project")
    assert write_gallery(ladder, {}, tmp_path) is None and own.read_text() == "# My project"


def contrast(a: str, b: str) -> float:
    """WCAG's contrast ratio of two sRGB colours."""
    lights = []
    for colour in (a, b):
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)
        ]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_have_enough_contrast_and_each_role_a_colour_of_its_own(palette):
    """As WCAG 2.2 requires: 4.5 for text (1.4.3), 3 for marks (1.4.11)."""
    grounds = dict.fromkeys(("ink", "muted", "accent", "alert", "other"), ("paper", "pale", "tint"))
    grounds |= {
        "ink": (*grounds["ink"], "baseline", "faint", "inflates", "deflates"),
        "paper": ("accent", "muted"),
    }
    for text, backgrounds in grounds.items():
        assert [on for on in backgrounds if contrast(palette[text], palette[on]) < 4.5] == [], text
    assert contrast(palette["line"], palette["paper"]) > 3
    assert all(contrast(palette[mark], palette["faint"]) > 2.75 for mark in ("accent", "alert"))
    assert palette.keys() == LIGHT.keys() and len(set(palette.values())) == len(palette)
