"""What holds for every chart: finding, source and alt text are there, nothing overlaps, and both palettes are complete.

Each chart is drawn once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from tests.helpers import measured, small_run
from tests.plots.conftest import comparison, full_run, tall_run
from worklog import plots
from worklog.analysis.counts import access_pattern
from worklog.analysis.memory_counts import LadderCounts, MemoryCounts
from worklog.errors import NothingToDraw
from worklog.gate.verdict import ErrorMap
from worklog.kernel.ladder import rung
from worklog.plots import Chart
from worklog.plots.figure import DARK, LIGHT, PAPER, in_the_dark
from worklog.problem.axes import Axis as TileAxis
from worklog.problem.gemm import Shape
from worklog.runner.sweep import Variants, variants
from worklog.runs.run import Run, recordings

EMULATED = "emulated · sm_90 PTX"
COUNTED = LadderCounts(
    EMULATED,
    Shape.of(64),
    {
        "naive": MemoryCounts("0", 4096, 67584, 524288, 67584, 32, 1024, 0, 0, 65536),
        "shared": MemoryCounts("0", 128, 512, 16384, 128, 32, 128, 3200, 800, 65536),
        "vectorized": MemoryCounts("0", 32, 512, 16384, 128, 32, 128, 640, 0, 65536),
    },
)
TILES = ((0.0, 0.0, 0.0), (0.0, 0.5, 1.0))
WHERE = ErrorMap((12, 20), 60, 240, "rows 8 to 11", "columns 8 to 19", (8, 8), TILES, "One tile: a race.")


@cache
def tiles() -> Variants:
    """Four tiles of one rung, compiled."""
    return variants(rung("vectorized"), [TileAxis("BM", (64, 128)), TileAxis("TN", (4, 8))], arch="sm_90")


def swept() -> Run:
    """The times of two tiles at 4096, and of cuBLAS."""
    slow, fast, *_ = (variant.name for variant in tiles().kept)
    times = {slow: (9000.0, 0.3), fast: (3000.0, 0.9), "cuBLAS": (2700.0, 1.0)}
    return small_run(measurements=[measured(name, n=4096, us=us, ratio=share) for name, (us, share) in times.items()])


# A rung that leads at 256 and one that leads at 4096, and cuBLAS.
OVER_SIZES = [
    measured(name, n=n, us=100.0, ratio=share)
    for n, shares in ((256, (0.7, 0.2, 1.0)), (4096, (0.2, 1.1, 1.0)))
    for name, share in zip(("shared", "warptiled", "cuBLAS"), shares, strict=True)
]

POWER = [
    replace(measured(name, n=4096, us=us, ratio=1.0), joules=joules, watts=joules / us * 1e6)
    for name, us, joules in (("naive", 277e3, 138.0), ("warptiled", 2653.0, 1.7), ("cuBLAS", 2700.0, 1.75))
]


def errors() -> Run:
    """cuBLAS and three rungs through tensor cores, one of them without FP32's error; made up."""
    found = []
    for name, us, rms in (
        ("cuBLAS", 2663.0, 19.3),
        ("tf32", 400.0, 4400.0),
        ("promoted", 1500.0, 8.1),
        ("split", 700.0, 7.2),
    ):
        verdict = {"stages": [{"name": "precision", "detail": f"class x: rms {rms} u·D (fp32 up to 80.8), largest 1"}]}
        found.append(replace(measured(name, n=4096, us=us, ratio=2663 / us), verdict=verdict))
    return replace(full_run(), measurements=found)


def both() -> Run:
    """Both ladders at 4096; tf32 has another class, split ran at a lower clock, and best on another day."""
    found = [
        replace(measured(name, n=4096, us=us, ratio=2663 / us), verdict={"precision": precision})
        for name, us, precision in (
            ("naive", 270_000, "fp32"),
            ("best", 2500, "fp32"),
            ("tf32", 600, "tf32"),
            ("split", 700, "fp32"),
            ("cuBLAS", 2663, "fp32"),
        )
    ]
    found[1], found[3] = replace(found[1], label="another day"), replace(found[3], sm_mhz=1650.0)
    device = {**full_run().device, "sm_clock_mhz": 1980.0}
    return replace(full_run(), measurements=found, device=device)


GROWTH = {"promoted every 128 k": {128: 8.0, 1024: 8.2}, "never": {128: 8.0, 1024: 61.0}}
NUMBERS = {"a heading of more than one line, µs": {"one": 12.5, "another name": 1979.0}, "%": {"one": 0.0}}

# Every chart from values that no recording touches, and the source that its footer and its alt text name.
CHARTS: dict[str, tuple[Callable[[], Chart], str]] = {
    "ladder": (lambda: plots.ladder(full_run()), full_run().label),
    "both ladders": (lambda: plots.ladders(both()), full_run().label),
    "roofline": (lambda: plots.roofline(full_run()), full_run().label),
    "sizes": (lambda: plots.sizes(replace(full_run(), measurements=OVER_SIZES)), full_run().label),
    "lines": (lambda: plots.lines(replace(full_run(), measurements=OVER_SIZES)), full_run().label),
    "ablation": (lambda: plots.ablation(full_run(), "warptiled"), full_run().label),
    "traffic": (lambda: plots.traffic(COUNTED), EMULATED),
    "levels": (lambda: plots.levels(full_run(), COUNTED), EMULATED),
    "accuracy": (lambda: plots.accuracy(errors()), full_run().label),
    "error growth": (lambda: plots.error_growth("It grows", GROWTH, {128: 17.0, 1024: 42.0}, EMULATED), EMULATED),
    "bars": (lambda: plots.bars("Two numbers", NUMBERS, "a source", accented=["one"]), "a source"),
    "energy": (lambda: plots.energy(replace(full_run(), measurements=POWER)), full_run().label),
    "calibration": (lambda: plots.calibration(full_run()), full_run().label),
    "peers": (lambda: plots.peers(comparison()), "recorded · NVIDIA H200"),
    "samples": (lambda: plots.samples(full_run(), "warptiled"), full_run().label),
    "sweep": (lambda: plots.sweep(tiles(), swept()), "live · NVIDIA H200"),
    "sweep without times": (lambda: plots.sweep(tiles()), "sm_90"),
    "tile map": (lambda: plots.tile_map(WHERE, EMULATED), EMULATED),
    "ownership": (lambda: plots.ownership(access_pattern(rung("tiles_2d"))), EMULATED),
    "ownership without shared memory": (lambda: plots.ownership(access_pattern(rung("naive"))), EMULATED),
}
every_chart = pytest.mark.parametrize("name", CHARTS)


@cache
def drawn(name: str) -> Chart:
    """One of the charts, not to be changed."""
    return CHARTS[name][0]()


def texts(chart: Chart) -> Iterator[Text]:
    """Texts that are drawn: visible, not empty, and no tick label outside its axis."""
    hidden = {id(label) for axis in chart.findobj(Axis) for label in _outside(axis)}
    for text in chart.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            yield text


def _outside(axis: Axis) -> Iterator[Text]:
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks() + axis.get_minor_ticks():
        if not axis.axes.axison or not low <= tick.get_loc() <= high:
            yield from (tick.label1, tick.label2)
    if not axis.axes.axison:
        yield axis.label


def boxes(chart: Chart) -> list[tuple[str, Bbox]]:
    """Each text with its extent in pixels at 100 dpi; an annotation's without its arrow."""
    canvas = FigureCanvasAgg(chart)
    canvas.draw()
    renderer = canvas.get_renderer()
    return [
        (
            t.get_text(),
            Text.get_window_extent(t, renderer) if isinstance(t, Annotation) else t.get_window_extent(renderer),
        )
        for t in texts(chart)
    ]


def collisions(chart: Chart, slack: float = 0.5) -> list[str]:
    """Pairs of texts that share more than a hair, and texts that leave the figure."""
    found, placed = [], boxes(chart)
    for (one, a), (other, b) in combinations(placed, 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > slack and min(a.y1, b.y1) - max(a.y0, b.y0) > slack:
            found.append(f"{one!r} on {other!r}")
    width, height = chart.bbox.width, chart.bbox.height
    return found + [
        f"{words!r} leaves the page"
        for words, box in placed
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]


def said(chart: Chart) -> str:
    """All words of a chart."""
    return "\n".join(text.get_text() for text in texts(chart))


def test_the_overlap_check_finds_overlaps_and_texts_that_leave() -> None:
    chart = CHARTS["ladder"][0]()
    chart.text(0.5, 0.5, "one")
    chart.text(0.501, 0.501, "two")
    chart.text(0.99, 0.3, "out of the page")
    assert {"'one' on 'two'", "'out of the page' leaves the page"} <= set(collisions(chart))


@every_chart
def test_finding_source_and_alt_text_are_there_and_all_of_it_is_readable(name: str) -> None:
    chart, source = drawn(name), CHARTS[name][1]
    assert collisions(chart) == []
    words = " ".join(said(chart).split())
    assert " ".join(chart.headline.split()) in words and source in words
    assert source in chart.alt and len(chart.alt) > len(chart.headline)
    assert 550 <= chart.bbox.width <= 740
    for text in texts(chart):
        red, green, blue = to_rgb(text.get_color())
        shade = 0.299 * red + 0.587 * green + 0.114 * blue
        assert text.get_fontsize() * chart.dpi / 72 * 700 / max(chart.bbox.width, 700) >= 8.5, text
        assert shade < 0.5 or text.get_color() == PAPER, text


@every_chart
def test_every_colour_is_the_palettes(name: str) -> None:
    light = drawn(name).svg()
    dark = in_the_dark(light)
    roles = {role for role in LIGHT if LIGHT[role] in light}
    assert set(re.findall(r"#[0-9a-f]{6}\b", light)) == {LIGHT[role] for role in roles} > {LIGHT["paper"]}
    assert set(re.findall(r"#[0-9a-f]{6}\b", dark)) == {DARK[role] for role in roles}


def test_the_recordings_are_drawn_without_overlaps() -> None:
    for path in recordings().values():
        run = Run.load(path, origin="recorded")
        first, *_, last = (*run.shapes(), *run.shapes())
        kernel = [m.kernel for m in run.select(shape=first) if m.status == "measured"][-1]
        charts = [draw(run) for draw in (plots.sizes, plots.ablation, plots.levels, plots.calibration)]
        charts.append(plots.samples(run, kernel, first))
        charts += [draw(run, shape) for draw in (plots.ladder, plots.roofline) for shape in (first, last)]
        for chart in charts:
            assert collisions(chart) == [], chart.headline
            assert run.label in said(chart)


@pytest.mark.parametrize("count", [1, 15])
def test_any_number_of_rungs_fits(count: int) -> None:
    run = tall_run(count)
    counts = dict.fromkeys((m.kernel for m in run.measurements[:-1]), COUNTED.rungs["shared"])
    many = replace(COUNTED, rungs=counts)
    for chart in (plots.ladder(run), plots.roofline(run), plots.traffic(many), plots.levels(run, many)):
        assert collisions(chart) == []
        assert all(name in said(chart) for name in counts)


def test_both_ladders_name_the_fastest_of_each_with_fp32s_error() -> None:
    chart = drawn("both ladders")
    first, second = chart.headline.split("; ")
    assert first == "split computes FP32 on tensor cores 3.8 times as fast as cuBLAS"
    assert second == "on FP32 cores, best reaches 106.5 % of cuBLAS"
    assert "444 % · class tf32" in said(chart) and "380 % · 1650 MHz" in said(chart) and "1980 MHz" not in said(chart)
    assert "another day: best" in said(chart), "which kernels have which label"
    hollow = [bar for bar in chart.axes[0].patches if bar.get_facecolor()[3] == 0]
    assert [round(bar.get_width()) for bar in hollow] == [229]
    with pytest.raises(NothingToDraw, match="no kernel FP32 on tensor cores was measured"):
        plots.ladders(full_run())


@pytest.mark.parametrize("draw", [plots.ladder, plots.roofline, plots.ablation])
def test_a_run_without_measurements_has_nothing_to_draw(draw: Callable[[Run], Chart]) -> None:
    with pytest.raises(NothingToDraw, match=r"`worklog (run|ablate)"):
        draw(replace(full_run(), measurements=[]))


def test_accuracy_names_the_fastest_kernel_with_fp32s_error_and_draws_the_others_hollow() -> None:
    chart = drawn("accuracy")
    assert chart.headline == "split is 3.80 times as fast as cuBLAS, with less error"
    marks = [line for line in chart.axes[0].lines if line.get_marker() == "o"]
    hollow = [line.get_xdata()[0] for line in marks if line.get_markerfacecolor() == PAPER]
    assert hollow == [4400.0] and len(marks) == 4
    with pytest.raises(NothingToDraw, match="error at size 4096"):
        plots.accuracy(swept())
