"""The gremlin ablation: what each lie about the ruler does to the reading, size by size, and how the lies make up the naive one.

Side by side the effects are a heat map; one after the other, in the same rows and on a log axis, they are a waterfall from the
honest to the naive reading.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from worklog.ablation import Effect, effects, percent
from worklog.errors import NothingToDraw
from worklog.gemm import Shape
from worklog.ladder import LADDER
from worklog.plots.figure import Chart
from worklog.plots.page import page
from worklog.plots.style import ACCENT, BODY_PT, INK, LIE, MARGIN_IN, MUTED, SMALL_PT, styled, text_width
from worklog.plots.waterfall import REMAINDER, Fall, clearest, factor, falls
from worklog.runs import Run
from worklog.tables import label_line

# Inches.
ROW, HEAD, BELOW, CELL, FALL, GAP, NARROWEST = 0.34, 0.32, 0.42, 0.52, 1.75, 0.16, 5.5
NAMES = {"TFLOP/s": "TFLOP/s", "of cuBLAS": "% of cuBLAS", "of the roof": "% of the roof"}
DETAILS = {"article": "TFLOP/s", "all": "TFLOP/s", REMAINDER: "beyond the product of the single ones"}
DIVERGING = LinearSegmentedColormap.from_list("belittles to flatters", [ACCENT, "#FFFFFF", LIE])


@dataclass(frozen=True)
class Row:
    """One line of the table. cells: the effect at each size that has it."""

    setting: str
    name: str
    detail: str
    cells: dict[Shape, Effect]


def ablated(run: Run) -> list[str]:
    """Kernels that the run has an ablation of, in the ladder's order."""
    names = {m.kernel for m in run.measurements if m.changed}
    order = [rung.name for rung in LADDER if rung.name in names] + sorted(names - {rung.name for rung in LADDER})
    return [name for name in order if _has_effects(run, name)]


def _has_effects(run: Run, name: str) -> bool:
    try:
        return bool(effects(run, name))
    except NothingToDraw:
        return False


@styled()
def ablation(run: Run, rung: str | None = None) -> Chart:
    """Heat map of every gremlin's effect by size, beside the waterfall that the lies make at one size; default the last rung ablated.

    Raises NothingToDraw where the run has no ablation of the rung.
    """
    known = ablated(run)
    if rung is None and not known:
        raise NothingToDraw("the run has no ablation: make one with `worklog ablate warptiled`")
    kernel = rung or known[-1]
    found = effects(run, kernel)
    sizes = list(dict.fromkeys(Shape(*e.shape) for e in found))
    every = falls(run, found)
    fall = clearest(every)
    table = _table(found, every)
    label = 0.12 + max(max(text_width(row.name, BODY_PT), text_width(row.detail, SMALL_PT)) for row in table)
    wide, height = CELL * len(sizes), ROW * (len(table) + 1)
    width = 2 * MARGIN_IN + label + wide + (GAP + FALL if fall else 0)
    new = page(
        f"ablation_{kernel}",
        _finding(kernel, found),
        _subtitle(kernel, fall),
        [label_line(run)],
        _alt(run, kernel, table, fall),
        HEAD + height + BELOW,
        max(width, NARROWEST),
    )
    left, bottom = MARGIN_IN + label, new.body_bottom + BELOW
    _heat_map(new.axes(left, bottom, wide, height), table, found, sizes, fall)
    if fall:
        _waterfall(new.axes(left + wide + GAP, bottom, FALL, height), table, fall)
    return new.figure


def _table(found: Sequence[Effect], every: dict[Shape, Fall]) -> list[Row]:
    """Rows in the order of the figure: single gremlins as the effects come, then those let loose together."""
    rows: dict[str, Row] = {}
    for e in [*found, *(fall.remainder for fall in every.values())]:
        name = f"{e.article} {e.title}" if e.article else e.title
        detail = DETAILS.get(e.setting, f"{e.setting}={e.lie} · {NAMES[e.corrupts]}")
        rows.setdefault(e.setting, Row(e.setting, name, detail, {})).cells[Shape(*e.shape)] = e
    last = [rows.pop(setting) for setting in ("article", REMAINDER, "all") if setting in rows]
    if every and not any(row.setting == "all" for row in last):
        last.reverse()  # the waterfall ends with the article's four, so their sum comes after what they do together
    return [*rows.values(), *last]


def _heat_map(axes: Axes, table: list[Row], found: Sequence[Effect], sizes: list[Shape], fall: Fall | None) -> None:
    """Cells in inches: x from the left, y down from the row of honest readings."""
    height = ROW * (len(table) + 1)
    axes.set_xlim(0, CELL * len(sizes))
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    honest = {Shape(*e.shape): e.honest for e in found if e.corrupts == "TFLOP/s"}
    _name(axes, 0, "the honest reading", "TFLOP/s")
    for column, size in enumerate(sizes):
        middle = CELL * (column + 0.5)
        chosen = fall is not None and size == fall.shape
        axes.text(
            middle,
            -0.13,
            str(size),
            ha="center",
            va="center",
            color=ACCENT if chosen else INK,
            weight="bold" if chosen else "normal",
        )
        axes.text(middle, ROW / 2, rate(honest.get(size)), ha="center", va="center_baseline", color=MUTED)
        for line, row in enumerate(table, start=1):
            _cell(axes, CELL * column, ROW * line, row.cells.get(size))
    for line, row in enumerate(table, start=1):
        _name(axes, line, row.name, row.detail)
    if fall is not None:
        x = CELL * sizes.index(fall.shape)
        axes.add_patch(
            Rectangle((x, 0), CELL, height, fill=False, edgecolor=ACCENT, linewidth=1.2, clip_on=False, zorder=4)
        )


def _name(axes: Axes, line: int, name: str, detail: str) -> None:
    """A row's name with, under it, the setting that lies and the number that it moves."""
    y = ROW * (line + 0.5)
    for words, up, points, colour in ((name, 1.5, BODY_PT, INK), (detail, -1.5, SMALL_PT, MUTED)):
        axes.annotate(
            words,
            (0, y),
            (-6, up),
            textcoords="offset points",
            ha="right",
            va="bottom" if up > 0 else "top",
            fontsize=points,
            color=colour,
            annotation_clip=False,
        )


def _cell(axes: Axes, x: float, y: float, effect: Effect | None) -> None:
    value = None if effect is None else factor(effect)
    words = "–" if effect is None or value is None else percent(effect)
    shade = 0.5 if not value else 0.5 + 0.5 * min(max(math.log2(value), -1.0), 1.0)
    colour = DIVERGING(shade)
    axes.add_patch(Rectangle((x, y), CELL, ROW, facecolor=colour, edgecolor="white", linewidth=1.0))
    dark = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 0.52
    points = BODY_PT * min(1.0, (CELL - 0.06) / max(text_width(words, BODY_PT), 0.01))
    axes.text(
        x + CELL / 2,
        y + ROW / 2,
        words,
        ha="center",
        va="center_baseline",
        fontsize=points,
        color="white" if dark else INK,
    )


def _waterfall(axes: Axes, table: list[Row], fall: Fall) -> None:
    """One bar a lie on a log axis, in the rows of the heat map, from the honest reading above to the naive one below."""
    height = ROW * (len(table) + 1)
    levels = [fall.honest]
    at, top = fall.honest, ROW / 2
    for line, row in enumerate(table, start=1):
        if row.setting not in fall.steps:
            continue
        y, after = ROW * (line + 0.5), at * fall.steps[row.setting]
        axes.plot([at, at], [top, y], color=MUTED, linewidth=0.6, zorder=1)
        axes.plot(
            [at, after],
            [y, y],
            color=LIE if after > at else ACCENT,
            linewidth=8 if after != at else 0,
            solid_capstyle="butt",
            zorder=2,
        )
        if after == at:
            axes.plot([at], [y], "|", color=MUTED, markersize=6)
        at, top = after, y
        levels.append(at)
    last = ROW * (len(table) + 0.5)
    axes.plot([at, at], [top, last], color=MUTED, linewidth=0.6, zorder=1)
    axes.set_xscale("log")
    axes.minorticks_off()
    limits = _limits(levels)
    axes.set_xlim(*limits)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    ticks = _ticks(limits)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.grid(True, axis="x")
    axes.set_xlabel(f"TFLOP/s at {fall.shape}, log scale")
    for words, value, y in (
        (f"honest {rate(fall.honest)}", fall.honest, ROW / 2),
        (f"naive {rate(fall.naive)}", fall.naive, last),
    ):
        _end(axes, limits, words, value, y)


def _end(axes: Axes, limits: tuple[float, float], words: str, value: float, y: float) -> None:
    """A reading as a dot with its words on the side where there is room."""
    to_the_left = math.log(value / limits[0]) > math.log(limits[1] / value)
    axes.plot([value], [y], "o", color=INK, markersize=5, zorder=3)
    axes.annotate(
        words,
        (value, y),
        (-6 if to_the_left else 6, 0),
        textcoords="offset points",
        ha="right" if to_the_left else "left",
        va="center_baseline",
        bbox={"facecolor": "white", "pad": 1.0},
    )


def _limits(levels: Sequence[float]) -> tuple[float, float]:
    """The readings with some air, and half a doubling at least, so that noise is not drawn as a cliff."""
    low, high = min(levels), max(levels)
    air = max(0.12 * math.log(high / low), 0.5 * (math.log(1.5) - math.log(high / low)), 0.02)
    return low * math.exp(-air), high * math.exp(air)


def _ticks(limits: tuple[float, float]) -> list[float]:
    """Two to four round values within the limits."""
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0), tuple(range(10, 100))):
        scale = 10 if max(steps) >= 10 else 1
        exponents = range(math.floor(math.log10(limits[0])) - 1, math.ceil(math.log10(limits[1])) + 1)
        ticks = [s / scale * 10.0**e for e in exponents for s in steps]
        kept = [tick for tick in ticks if limits[0] * 1.03 < tick < limits[1] / 1.03]
        if len(kept) >= 2:
            return kept[:: math.ceil(len(kept) / 4)]
    return kept


def rate(tflops: float | None) -> str:
    """TFLOP/s in three digits, or a dash."""
    if tflops is None:
        return "–"
    return f"{tflops:,.0f}".replace(",", " ") if tflops >= 100 else f"{tflops:.3g}"


def _finding(kernel: str, found: Sequence[Effect]) -> str:
    """The largest visible lie that moves the rate itself; lies about a share move only what it is a share of."""
    single = [
        e for e in found if e.setting not in ("article", "all") and e.corrupts == "TFLOP/s" and e.visible and factor(e)
    ]
    if not single:
        return f"No single lie moves {kernel}'s reading by more than the noise"
    worst = max(single, key=lambda e: abs(math.log2(factor(e) or 1.0)))
    return f"The largest lie about {kernel}: {worst.title}, {percent(worst)} at {Shape(*worst.shape)}"


def _subtitle(kernel: str, fall: Fall | None) -> str:
    words = (
        f"What each lie alone does to {kernel}'s reading, by size (M = N = K): orange flatters, blue belittles, full colour from × 2 or ÷ 2; "
        "0 is not visible above the noise."
    )
    if fall is None:
        return words + " The run has no combined reading that could be split up."
    return (
        words
        + f" Right: from the honest to the naive reading at {fall.shape}; lies do not add up, so what they do together has a row."
    )


def _alt(run: Run, kernel: str, table: list[Row], fall: Fall | None) -> str:
    parts = []
    for row in table:
        cells = [f"{size}: {percent(e) if factor(e) else 'none'}" for size, e in row.cells.items()]
        parts.append(f"{row.name} ({row.detail}): {', '.join(cells)}")
    ends = f" Waterfall at {fall.shape}: honest {rate(fall.honest)}, naive {rate(fall.naive)} TFLOP/s." if fall else ""
    return f"Heat map of what each lie about the measurement does to the reading of {kernel}, by size. {'; '.join(parts)}.{ends} Source: {run.label}."
