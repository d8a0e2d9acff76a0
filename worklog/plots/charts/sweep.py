"""A sweep's tiles: all their numbers as lines, and two of their axes as a map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import Cell, Cells
from worklog.plots.page import Chart, Margins, Texts, on_axes, page
from worklog.plots.selection import dimensions, measured, no_time, rate
from worklog.plots.style import ACCENT, BASELINE, FAINT, GREY, INK, MUTED, PAPER, SMALL_PT, WIDTH_IN
from worklog.runs import CUBLAS, Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes
    from worklog.tune.sweep import Variant, Variants

# inches
HIGH = 2.6
EDGE = 0.5
ABOVE = 0.5
BELOW = 0.3
CELL_WIDE = 0.9
CELL_HIGH = 0.42
MAP_LEFT = 0.8
CELLS = Cells(1.0, 1.0, left=-0.5, top=-0.5, x_gap=0.04, y_gap=0.06)
Times = Mapping[str, Measurement]  # by tile


def _times(variants: Variants, run: Run) -> Times:
    """Return the measurement of each tile by name, from its loop with cuBLAS alone.

    Raises NothingToDraw if no variant can be built.
    """
    if not variants.kept:
        raise NothingToDraw(f"no tile is left: {variants.preview()}")
    with_cublas = {m.kernel: m for m in run.select(shape=variants.shape) if len(m.against) < 2}
    names = [variant.name for variant in variants.kept]
    return {name: with_cublas[name] for name in names if name in with_cublas}


def _title(variants: Variants, times: Times) -> str:
    """Return the finding: how much the best tile is faster than the worst."""
    rates = [m.tflops or 0.0 for m in times.values() if measured(m)]
    finding = f"{len(rates)} of {len(variants.kept)} tiles measured"
    if len(rates) > 1:
        speedup = max(rates) / min(rates)
        finding = f"the best of {len(rates)} tiles is {speedup:.2g} times as fast as the worst"
    return f"{variants.rung.name}: {finding}"


def _footer(variants: Variants, run: Run, times: Times) -> list[str]:
    """Return the sources, and the reasons why tiles have no time."""
    footer = [f"{run.full_label}; compiled for {variants.arch}"]
    labels = [m.label for m in times.values() if m.label not in ("", run.label)]
    footer += [f"{label}: {labels.count(label)} of these tiles" for label in dict.fromkeys(labels)]
    footer += [f"{name}: {no_time(m)}" for name, m in times.items() if not measured(m)]
    footer += [
        f"{variant.name}: not measured" for variant in variants.kept if variant.name not in times
    ]
    return footer


@style.chart
def sweep(variants: Variants, run: Run) -> Chart:
    """Draw parallel coordinates: a line per tile, the fastest in the accent colour.

    A line goes through the tile's parameters, registers, spilled bytes, resident warps and
    TFLOP/s. The alt text has the numbers, the fastest first. The footer has the reason why a tile
    has no time. Raises NothingToDraw if no variant can be built.
    """
    times = _times(variants, run)
    rates = {name: m.tflops or 0.0 for name, m in times.items() if measured(m)}
    order = sorted(variants.kept, key=lambda variant: -rates.get(variant.name, 0.0))
    columns = _columns(variants, order, rates)
    subtitle = f"C = A·B in FP32, {dimensions(variants.shape)}. One line per tile;"
    texts = Texts(
        "sweep",
        finding=_title(variants, times),
        subtitle=f"{subtitle} the fastest is highlighted.",
        footer=_footer(variants, run, times),
        alt=_sweep_alt(order, times),
    )
    chart = page(texts, ABOVE + HIGH + BELOW)
    axes = chart.axes_at(EDGE, chart.body_bottom + BELOW, WIDTH_IN - 2 * EDGE, HIGH)
    axes.set(xlim=(0, len(columns) - 1), ylim=(0, 1), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    heights = [
        _draw_coordinate(axes, place, heading, values)
        for place, (heading, values) in enumerate(columns.items())
    ]
    for number, line in reversed([*enumerate(zip(*heights, strict=True))]):
        is_fastest = number == 0 and bool(rates)
        colour = ACCENT if is_fastest else GREY
        line_pt = 2.0 if is_fastest else 0.8
        axes.plot(range(len(line)), line, clip_on=False, color=colour, linewidth=line_pt)
    return chart


def _columns(
    variants: Variants, order: Sequence[Variant], rates: Mapping[str, float]
) -> dict[str, list[float]]:
    """Return the numbers of the tiles, in this order, by heading. NaN if unknown.

    rates: in TFLOP/s, by tile
    """
    columns: dict[str, list[float]] = {}
    for axis in variants.space.axes:
        columns[axis.name] = [float(variant.values[axis.name]) for variant in order]
    columns["registers\nper thread"] = [float(variant.registers) for variant in order]
    columns["bytes\nspilled"] = [float(variant.spilled_bytes) for variant in order]
    columns["warps\nper SM"] = [float(variant.resident.warps) for variant in order]
    columns["TFLOP/s"] = [rates.get(variant.name, float("nan")) for variant in order]
    return columns


def _sweep_alt(order: Sequence[Variant], times: Times) -> list[str]:
    """Return the alt text: the numbers of each tile, in this order."""
    alt = ["Parallel coordinates of tiles"]
    for variant in order:
        m = times.get(variant.name)
        tflops = None
        share = ""
        if m is not None and measured(m):
            tflops = m.tflops
            share = f", {100 * (m.ratio or 0.0):.3g} % of cuBLAS"
        alt.append(
            f"{variant.name}: {variant.registers} registers, {variant.spilled_bytes} bytes "
            f"spilled, {variant.resident.warps} warps, {rate(tflops)} TFLOP/s{share}"
        )
    return alt


def _draw_coordinate(axes: Axes, place: int, heading: str, values: list[float]) -> list[float]:
    """Draw one vertical axis with its heading and ends; return the values' heights on it.

    place: the axis's x
    values: NaN if unknown
    """
    finite = [value for value in values if not math.isnan(value)]
    low = min(finite, default=0.0)
    high = max(finite, default=1.0)
    axes.plot([place, place], [0, 1], color=BASELINE, linewidth=0.8, clip_on=False)
    above = f"{high:.4g}" if finite else "–"
    below = f"{low:.4g}" if finite else "–"
    options: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL_PT}
    axes.annotate(above, (place, 1), (0, 3), va="bottom", color=INK, **options)
    axes.annotate(below, (place, 0), (0, -3), va="top", color=INK, **options)
    axes.annotate(heading, (place, 1), (0, 14), va="bottom", color=MUTED, **options)
    if high == low:
        return [0.5] * len(values)
    return [(value - low) / (high - low) for value in values]


@dataclass(frozen=True)
class Map:
    """The best share of cuBLAS for each two values of two axes."""

    x: str  # names of the axes
    y: str
    across: Sequence[int | float | str]  # the values of x
    down: Sequence[int | float | str]  # the values of y
    percent: NDArray[np.float64]  # by row and column; NaN if unknown


@style.chart
def heat_map(
    variants: Variants, run: Run, x: str = "", y: str = "", *, ax: OnAxes | None = None
) -> OnAxes:
    """Draw the best share of cuBLAS for each two values of two axes.

    It is the best over all other axes. Returns a Chart, or `ax`. Raises NothingToDraw without two
    such axes or a time.

    x, y: names of axes (default: the first two that vary)
    """
    times = _times(variants, run)
    best = _map(variants, times, x, y)
    subtitle = f"C = A·B in FP32, {dimensions(variants.shape)}. % of {CUBLAS},"
    texts = Texts(
        "heat_map",
        finding=_title(variants, times),
        subtitle=f"{subtitle} the best over the other axes.",
        footer=_footer(variants, run, times),
        alt=_map_alt(best),
    )

    def draw(axes: Axes) -> None:
        low = np.nanmin(best.percent)
        span = max(np.nanmax(best.percent) - low, 1e-9)
        for (row, column), percent in np.ndenumerate(best.percent):
            CELLS.draw_cell(axes, row, column, _cell(percent, low, span))
        columns = len(best.across)
        rows = len(best.down)
        axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), xlabel=best.x, ylabel=best.y)
        axes.set_xticks(range(columns), [str(value) for value in best.across])
        axes.set_yticks(range(rows), [str(value) for value in best.down])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)

    width = min(CELL_WIDE * len(best.across), WIDTH_IN - 1.2)
    margins = Margins(left=MAP_LEFT, right=WIDTH_IN - MAP_LEFT - width, above=0.1, below=0.45)
    return on_axes(ax, draw, texts, height=CELL_HIGH * len(best.down), margins=margins)


def _map(variants: Variants, times: Times, x: str, y: str) -> Map:
    """Return the best shares over all other axes.

    Raises NothingToDraw without two axes that vary, or without a time.

    x, y: as of heat_map()
    """
    varied = {axis.name: axis for axis in variants.space.axes if len(axis.values) > 1}
    y = y or next((name for name in varied if name != x), "")
    x = x or next((name for name in varied if name != y), "")
    if not {x, y} <= varied.keys() or x == y:
        raise NothingToDraw(
            f"a map needs two axes that vary: choose from {', '.join(varied) or 'none'}"
        )
    across = varied[x].values
    down = varied[y].values
    percent = np.full((len(down), len(across)), np.nan)
    for variant in variants.kept:
        if variant.name in times and measured(times[variant.name]):
            place = down.index(variant.values[y]), across.index(variant.values[x])
            percent[place] = np.fmax(percent[place], 100 * (times[variant.name].ratio or 0.0))
    if np.isnan(percent).all():
        raise NothingToDraw("no tile of these axes has a time: sweep them on a GPU")
    return Map(x, y, across, down, percent)


def _map_alt(best: Map) -> list[str]:
    """Return the alt text: the shares of each row."""
    alt = [f"Map of {best.y} and {best.x}: the best share of {CUBLAS} in percent"]
    for value, row in zip(best.down, best.percent, strict=True):
        alt.append(f"{best.y} = {value}: {', '.join(_percent(cell) for cell in row)}")
    return alt


def _cell(percent: float, low: float, span: float) -> Cell:
    """Return a cell of the map: the larger its share, the more opaque.

    low, span: the lowest share, and the highest share minus it
    """
    text = _percent(percent)
    if math.isnan(percent):
        return Cell(text, FAINT)
    depth = 0.15 + 0.85 * (percent - low) / span
    return Cell(text, ACCENT, depth, PAPER if depth > 0.6 else INK)


def _percent(cell: float) -> str:
    """Return a cell's number, or a dash for NaN."""
    return "–" if math.isnan(cell) else f"{cell:.3g}"
