"""A sweep's tiles: all their numbers as lines, two axes as a map; and when each card measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.figure import Chart, name_rows, on_axes, page, right_of
from worklog.plots.selection import dimensions, measured, no_time, rate
from worklog.plots.style import ACCENT, BASELINE, FAINT, GREY, INK, MUTED, PAPER, SMALL_PT, WIDTH_IN
from worklog.problem import spoken
from worklog.runs import CUBLAS, Measurement, Run

if TYPE_CHECKING:
    from worklog.plots.figure import OnAxes
    from worklog.tune.sweep import Variants

# inches
HIGH = 2.6
EDGE = 0.5
ABOVE = 0.5
BELOW = 0.3
CELL_WIDE = 0.9
CELL_HIGH = 0.42
CELLS_ABOVE = 0.1
CELLS_BELOW = 0.45
ROW = 0.4
BAR = 0.26


def _times(variants: Variants, run: Run) -> dict[str, Measurement]:
    """Return the measurement of each tile by name, from its loop with cuBLAS alone.

    Raises NothingToDraw if no variant can be built.
    """
    if not variants.kept:
        raise NothingToDraw(f"no tile is left: {variants.preview()}")
    with_cublas = {m.kernel: m for m in run.select(shape=variants.shape) if len(m.against) < 2}
    names = [variant.name for variant in variants.kept]
    return {name: with_cublas[name] for name in names if name in with_cublas}


def _title(variants: Variants, times: dict[str, Measurement]) -> str:
    """Return the finding: how much the best tile is faster than the worst."""
    rates = [m.tflops or 0.0 for m in times.values() if measured(m)]
    finding = f"{len(rates)} of {len(variants.kept)} tiles measured"
    if len(rates) > 1:
        speedup = max(rates) / min(rates)
        finding = f"the best of {len(rates)} tiles is {speedup:.2g} times as fast as the worst"
    return f"{variants.rung.name}: {finding}"


def _footer(variants: Variants, run: Run, times: dict[str, Measurement]) -> list[str]:
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
    columns: dict[str, list[float]] = {}
    for axis in variants.space.axes:
        columns[axis.name] = [float(variant.values[axis.name]) for variant in order]
    columns["registers\nper thread"] = [float(variant.registers) for variant in order]
    columns["bytes\nspilled"] = [float(variant.spilled_bytes) for variant in order]
    columns["warps\nper SM"] = [float(variant.resident.warps) for variant in order]
    columns["TFLOP/s"] = [rates.get(variant.name, float("nan")) for variant in order]
    alt = ["Parallel coordinates of tiles"]
    for variant in order:
        text = f"{variant.name}: {variant.registers} registers, {variant.spilled_bytes} bytes spilled, "
        text += f"{variant.resident.warps} warps, {rate(rates.get(variant.name))} TFLOP/s"
        if variant.name in rates:
            text += f", {100 * (times[variant.name].ratio or 0.0):.3g} % of cuBLAS"
        alt.append(text)
    chart = page(
        "sweep",
        _title(variants, times),
        f"C = A·B in FP32, {dimensions(variants.shape)}. One line per tile; the fastest is highlighted.",
        _footer(variants, run, times),
        alt,
        ABOVE + HIGH + BELOW,
    )
    axes = chart.axes_at(EDGE, chart.body_bottom + BELOW, WIDTH_IN - 2 * EDGE, HIGH)
    axes.set(xlim=(0, len(columns) - 1), ylim=(0, 1), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    heights = [
        _draw_coordinate(axes, place, heading, values)
        for place, (heading, values) in enumerate(columns.items())
    ]
    for number, line in reversed([*enumerate(zip(*heights, strict=True))]):
        is_fastest = number == 0 and bool(rates)
        colour, width = (ACCENT, 2.0) if is_fastest else (GREY, 0.8)
        axes.plot(range(len(line)), line, clip_on=False, color=colour, linewidth=width)
    return chart


def _draw_coordinate(axes: Axes, place: int, heading: str, values: list[float]) -> list[float]:
    """Draw one vertical axis with its heading and ends; return the values' heights on it.

    place: the axis's x
    values: NaN if unknown
    """
    finite = [value for value in values if not math.isnan(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    axes.plot([place, place], [0, 1], color=BASELINE, linewidth=0.8, clip_on=False)
    above, below = (f"{value:.4g}" if finite else "–" for value in (high, low))
    options: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL_PT}
    axes.annotate(above, (place, 1), (0, 3), va="bottom", color=INK, **options)
    axes.annotate(below, (place, 0), (0, -3), va="top", color=INK, **options)
    axes.annotate(heading, (place, 1), (0, 14), va="bottom", color=MUTED, **options)
    if high == low:
        return [0.5] * len(values)
    return [(value - low) / (high - low) for value in values]


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
    varied = {axis.name: axis for axis in variants.space.axes if len(axis.values) > 1}
    y = y or next((name for name in varied if name != x), "")
    x = x or next((name for name in varied if name != y), "")
    if not {x, y} <= varied.keys() or x == y:
        raise NothingToDraw(
            f"a map needs two axes that vary: choose from {', '.join(varied) or 'none'}"
        )
    across = varied[x].values
    down = varied[y].values
    best = np.full((len(down), len(across)), np.nan)
    for variant in variants.kept:
        if variant.name in times and measured(times[variant.name]):
            place = down.index(variant.values[y]), across.index(variant.values[x])
            best[place] = np.fmax(best[place], 100 * (times[variant.name].ratio or 0.0))
    if np.isnan(best).all():
        raise NothingToDraw("no tile of these axes has a time: sweep them on a GPU")
    alt = [f"Map of {y} and {x}: the best share of {CUBLAS} in percent"]
    for value, row in zip(down, best, strict=True):
        alt.append(f"{y} = {value}: {', '.join(_percent(cell) for cell in row)}")

    def draw(axes: Axes) -> None:
        low = np.nanmin(best)
        high = np.nanmax(best)
        for (row, column), cell in np.ndenumerate(best):
            depth = 0.0
            if not math.isnan(cell):
                depth = 0.15 + 0.85 * (cell - low) / max(high - low, 1e-9)
            axes.bar(
                column, 0.94, 0.96, row - 0.47, color=ACCENT if depth else FAINT, alpha=depth or 1.0
            )
            colour = PAPER if depth > 0.6 else INK
            axes.text(
                column,
                row,
                _percent(cell),
                ha="center",
                va="center",
                color=colour,
                fontsize=SMALL_PT,
            )
        axes.set(xlim=(-0.5, len(across) - 0.5), ylim=(len(down) - 0.5, -0.5), xlabel=x, ylabel=y)
        axes.set_xticks(range(len(across)), [str(value) for value in across])
        axes.set_yticks(range(len(down)), [str(value) for value in down])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)

    width = min(CELL_WIDE * len(across), WIDTH_IN - 1.2)
    left = 0.8
    return on_axes(
        ax,
        draw,
        "heat_map",
        _title(variants, times),
        f"C = A·B in FP32, {dimensions(variants.shape)}. % of {CUBLAS}, the best over the other axes.",
        _footer(variants, run, times),
        alt,
        height=CELL_HIGH * len(down),
        left=left,
        right=WIDTH_IN - left - width,
        above=CELLS_ABOVE,
        below=CELLS_BELOW,
    )


def _percent(cell: float) -> str:
    """Return a cell's number, or a dash for NaN."""
    return "–" if math.isnan(cell) else f"{cell:.3g}"


@style.chart
def cards(run: Run, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw a row per card of a sweep: when it checked and timed each tile.

    The loops of the finalists are filled. Returns a Chart, or `ax`. Raises NothingToDraw if the run
    isn't from a sweep.
    """
    by_card = _by_card(run)
    spans = list[tuple[float, float]]()
    tiles = 0
    for measurements in by_card.values():
        spans += [(m.ran.began, m.ran.began + m.ran.seconds) for m in measurements if m.ran]
        tiles += sum(1 for m in measurements if len(m.against) < 2)
    if not spans:
        raise NothingToDraw("the run is of no sweep: make one with `worklog sweep`")
    start = min(began for began, _ in spans)
    end = max(ended for _, ended in spans)
    busy = sum(ended - began for began, ended in spans) / ((end - start) * len(by_card))
    cards_were = f"{len(by_card)} cards were" if len(by_card) > 1 else "one card was"
    rows = {name: f"{name} · {run.cards[name].gpu.name}" for name in sorted(by_card)}

    def draw(axes: Axes) -> None:
        for row_y, name in zip(name_rows(axes, [*rows.values()], ROW), rows, strict=True):
            for m in by_card[name]:
                if m.ran is None:
                    continue
                colour = ACCENT if len(m.against) > 1 else PAPER
                began = m.ran.began - start
                axes.barh(
                    row_y, m.ran.seconds, BAR, began, color=colour, edgecolor=ACCENT, linewidth=0.6
                )
        axes.set(xlim=(0, end - start), xlabel="seconds")

    return on_axes(
        ax,
        draw,
        "cards",
        f"{tiles} tiles in {spoken(end - start)}: {cards_were} busy {100 * busy:.0f} % of the time",
        "Each box: the check and the loop of one tile, or filled, of the finalists against each other.",
        [run.full_label],
        [
            "Timeline of cards",
            *(f"{rows[name]}: {len(by_card[name])} measurements" for name in rows),
        ],
        height=ROW * len(rows),
        left=right_of(rows.values()),
        right=0.3,
    )


def _by_card(run: Run) -> dict[str, list[Measurement]]:
    """Return the measurements of each card of a sweep, by the card's name."""
    by_card = dict[str, list[Measurement]]()
    for m in run.measurements:
        if m.ran is not None and m.ran.card in run.cards:
            by_card.setdefault(m.ran.card, []).append(m)
    return by_card
