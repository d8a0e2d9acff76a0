"""A sweep's tiles: all their numbers as lines, two axes as a map; and when each card measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from worklog.plots import style
from worklog.plots.figure import Chart, name_rows, on_axes, page, right_of
from worklog.plots.selection import dimensions, measured, no_time, rate
from worklog.plots.style import ACCENT, BASELINE, FAINT, GREY, INK, MUTED, PAPER, SMALL_PT, WIDTH_IN
from worklog.problem import spoken
from worklog.runs import CUBLAS, Measurement, NothingToDraw, Run

if TYPE_CHECKING:
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


def _told(variants: Variants, run: Run) -> tuple[dict[str, Measurement], str, list[str]]:
    """By tile, its loop beside cuBLAS alone; the finding; and the footer, which says why others have no time. Raises
    NothingToDraw where no variant can be built.
    """
    if not variants.kept:
        raise NothingToDraw(f"no tile is left: {variants.preview()}")
    there = {m.kernel: m for m in run.select(shape=variants.shape) if len(m.against) < 2}
    times = {
        variant.name: there[variant.name] for variant in variants.kept if variant.name in there
    }
    rates = sorted((m.tflops or 0.0 for m in times.values() if measured(m)), reverse=True)
    finding = f"{len(rates)} of {len(variants.kept)} tiles measured"
    if len(rates) > 1:
        finding = f"the best of {len(rates)} tiles is {rates[0] / rates[-1]:.2g} times as fast as the worst"
    footer = [f"{run.full_label}; compiled for {variants.arch}"]
    labels = [m.label for m in times.values() if m.label not in ("", run.label)]
    footer += [f"{label}: {labels.count(label)} of these tiles" for label in dict.fromkeys(labels)]
    footer += [f"{name}: {no_time(m)}" for name, m in times.items() if not measured(m)]
    footer += [
        f"{variant.name}: not measured" for variant in variants.kept if variant.name not in times
    ]
    return times, f"{variants.rung.name}: {finding}", footer


@style.chart
def sweep(variants: Variants, run: Run) -> Chart:
    """Parallel coordinates: a line per tile through its parameters, registers, spilled bytes, resident warps and
    TFLOP/s, the fastest in the accent colour. The alt text has the numbers, the fastest first. The footer says why a
    tile has no time. Raises NothingToDraw where no variant can be built.
    """
    times, title, footer = _told(variants, run)
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
        of = f"{variant.registers} registers, {variant.spilled_bytes} bytes spilled, {variant.resident.warps} warps"
        share = (
            f", {100 * (times[variant.name].ratio or 0.0):.3g} % of cuBLAS"
            if variant.name in rates
            else ""
        )
        alt.append(f"{variant.name}: {of}, {rate(rates.get(variant.name))} TFLOP/s{share}")
    subtitle = f"C = A·B in FP32, {dimensions(variants.shape)}. One line per tile; the fastest is highlighted."
    new = page("sweep", title, subtitle, footer, alt, ABOVE + HIGH + BELOW)
    axes = new.axes_at(EDGE, new.body_bottom + BELOW, WIDTH_IN - 2 * EDGE, HIGH)
    axes.set(xlim=(0, len(columns) - 1), ylim=(0, 1), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    heights = []
    for place, (heading, values) in enumerate(columns.items()):
        known = [value for value in values if value == value]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        heights.append([0.5 if high == low else (value - low) / (high - low) for value in values])
        axes.plot([place, place], [0, 1], color=BASELINE, linewidth=0.8, clip_on=False)
        above, below = (f"{value:.4g}" if known else "–" for value in (high, low))
        at: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL_PT}
        axes.annotate(above, (place, 1), (0, 3), va="bottom", color=INK, **at)
        axes.annotate(below, (place, 0), (0, -3), va="top", color=INK, **at)
        axes.annotate(heading, (place, 1), (0, 14), va="bottom", color=MUTED, **at)
    for number, line in reversed([*enumerate(zip(*heights, strict=True))]):
        first = number == 0 and bool(rates)
        colour, width = (ACCENT, 2.0) if first else (GREY, 0.8)
        axes.plot(range(len(line)), line, clip_on=False, color=colour, linewidth=width)
    return new


@style.chart
def heat_map(
    variants: Variants, run: Run, x: str = "", y: str = "", *, ax: Axes | None = None
) -> Any:
    """The best share of cuBLAS for each two values of two axes (default: the first two that vary), over all others.
    Returns a Chart, or `ax`. Raises NothingToDraw without two such axes or a time.
    """
    times, title, footer = _told(variants, run)
    named = {axis.name: axis for axis in variants.space.axes if len(axis.values) > 1}
    y = y or next((name for name in named if name != x), "")
    x = x or next((name for name in named if name != y), "")
    if not {x, y} <= named.keys() or x == y:
        raise NothingToDraw(
            f"a map needs two axes that vary: choose from {', '.join(named) or 'none'}"
        )
    across = named[x].values
    down = named[y].values
    best = np.full((len(down), len(across)), np.nan)
    for variant in variants.kept:
        if variant.name in times and measured(times[variant.name]):
            place = down.index(variant.values[y]), across.index(variant.values[x])
            best[place] = np.fmax(best[place], 100 * (times[variant.name].ratio or 0.0))
    if np.isnan(best).all():
        raise NothingToDraw("no tile of these axes has a time: sweep them on a GPU")
    alt = [f"Map of {y} and {x}: the best share of {CUBLAS} in percent"]
    for value, row in zip(down, best, strict=True):
        alt.append(
            f"{y} = {value}: " + ", ".join("–" if cell != cell else f"{cell:.3g}" for cell in row)
        )
    subtitle = f"C = A·B in FP32, {dimensions(variants.shape)}. % of {CUBLAS}, the best over the other axes."

    def draw(axes: Axes) -> None:
        low = np.nanmin(best)
        high = np.nanmax(best)
        for (row, column), cell in np.ndenumerate(best):
            depth = 0.0 if cell != cell else 0.15 + 0.85 * (cell - low) / max(high - low, 1e-9)
            axes.bar(
                column, 0.94, 0.96, row - 0.47, color=ACCENT if depth else FAINT, alpha=depth or 1.0
            )
            words = "–" if cell != cell else f"{cell:.3g}"
            on = PAPER if depth > 0.6 else INK
            axes.text(column, row, words, ha="center", va="center", color=on, fontsize=SMALL_PT)
        axes.set(xlim=(-0.5, len(across) - 0.5), ylim=(len(down) - 0.5, -0.5), xlabel=x, ylabel=y)
        axes.set_xticks(range(len(across)), [str(value) for value in across])
        axes.set_yticks(range(len(down)), [str(value) for value in down])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)

    wide = min(CELL_WIDE * len(across), WIDTH_IN - 1.2)
    left = 0.8
    how = {
        "height": CELL_HIGH * len(down),
        "left": left,
        "above": CELLS_ABOVE,
        "below": CELLS_BELOW,
    }
    return on_axes(
        ax, draw, "heat_map", title, subtitle, footer, alt, right=WIDTH_IN - left - wide, **how
    )


@style.chart
def cards(run: Run, *, ax: Axes | None = None) -> Any:
    """A row per card of a sweep: when it checked and timed each tile, and the finalists (filled). Returns a Chart, or
    `ax`. Raises NothingToDraw for a run of no sweep.
    """
    by_card = dict[str, list[Measurement]]()
    for m in run.measurements:
        if m.ran is not None and m.ran.card in run.cards:
            by_card.setdefault(m.ran.card, []).append(m)
    spans = [
        (m.ran.began, m.ran.began + m.ran.seconds) for ms in by_card.values() for m in ms if m.ran
    ]
    if not spans:
        raise NothingToDraw("the run is of no sweep: make one with `worklog sweep`")
    start = min(began for began, _ in spans)
    end = max(ended for _, ended in spans)
    busy = sum(ended - began for began, ended in spans) / ((end - start) * len(by_card))
    tiles = sum(len(m.against) < 2 for ms in by_card.values() for m in ms)
    of = f"{len(by_card)} cards were" if len(by_card) > 1 else "one card was"
    finding = f"{tiles} tiles in {spoken(end - start)}: {of} busy {100 * busy:.0f} % of the time"
    rows = {name: f"{name} · {run.cards[name].gpu.name}" for name in sorted(by_card)}
    alt = [
        "Timeline of cards",
        *(f"{rows[name]}: {len(by_card[name])} measurements" for name in rows),
    ]
    subtitle = "Each box: the check and the loop of one tile, or filled, of the finalists against each other."

    def draw(axes: Axes) -> None:
        for y, name in zip(name_rows(axes, [*rows.values()], ROW), rows, strict=True):
            for m in by_card[name]:
                if m.ran:
                    colour = ACCENT if len(m.against) > 1 else PAPER
                    place = m.ran.began - start
                    axes.barh(
                        y, m.ran.seconds, BAR, place, color=colour, edgecolor=ACCENT, linewidth=0.6
                    )
        axes.set(xlim=(0, end - start), xlabel="seconds")

    how = {"height": ROW * len(rows), "left": right_of(rows.values()), "right": 0.3}
    return on_axes(ax, draw, "cards", finding, subtitle, [run.full_label], alt, **how)
