"""The gremlin ablation: what each lie about the ruler does to the reading, and how the lies make up the naive one.

Side by side the effects are a heat map; one after the other, in the same rows and on a log axis, they are a waterfall
from the honest to the naive reading.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.errors import NothingToDraw
from worklog.kernel.ladder import LADDER
from worklog.plots.figure import Chart
from worklog.plots.page import page
from worklog.plots.selection import Size
from worklog.plots.style import (
    ACCENT,
    BELITTLES,
    BODY_PT,
    FLATTERS,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    styled,
    text_width,
)
from worklog.plots.waterfall import REMAINDER, Fall, clearest, draw_fall, factor, falls, rate
from worklog.problem.gemm import Shape
from worklog.runs.ablation import Effect, effects, percent
from worklog.runs.run import Run

# Inches.
ROW, HEAD, BELOW, CELL, FALL, GAP, NARROWEST = 0.34, 0.32, 0.42, 0.56, 1.7, 0.14, 5.5
NAMES = {"TFLOP/s": "TFLOP/s", "of cuBLAS": "% of cuBLAS", "of the roof": "% of the roof"}
TOGETHER = ("article", REMAINDER, "all")
DETAILS = {
    "first_launch": "warmup=none, one launch · TFLOP/s",
    "article": "TFLOP/s",
    "all": "TFLOP/s",
    REMAINDER: "the next row, beyond the product of each",
}


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
def ablation(run: Run, rung: str | None = None, size: Size | None = None) -> Chart:
    """Heat map of every gremlin's effect by size, beside the waterfall that they make at one size.

    rung: by default the last of the ladder that the run has an ablation of. size: of the waterfall and the finding; by
    default of the clearest waterfall and of the largest effect. Raises NothingToDraw where there is none; BadShape.
    """
    known = ablated(run)
    if rung is None and not known:
        raise NothingToDraw("the run has no ablation: make one with `worklog ablate warptiled`")
    kernel = rung or known[-1]
    found = effects(run, kernel)
    sizes = list(dict.fromkeys(Shape(*e.shape) for e in found))
    every = falls(run, found)
    if size is None:
        fall, shown = clearest(every), found
    else:
        shape = Shape.of(size)
        if shape not in sizes:
            there = ", ".join(map(str, sizes))
            raise NothingToDraw(f"the run has no ablation of {kernel} at {shape}, only at {there}")
        fall, shown = every.get(shape), [e for e in found if Shape(*e.shape) == shape]
    table = _table(found, every)
    label = 0.12 + max(max(text_width(row.name, BODY_PT), text_width(row.detail, SMALL_PT)) for row in table)
    wide, height = CELL * len(sizes), ROW * (len(table) + 1)
    width = 2 * MARGIN_IN + label + wide + (GAP + FALL if fall else 0)
    new = page(
        f"ablation_{kernel}",
        _finding(kernel, shown),
        _subtitle(kernel, fall),
        [run.full_label],
        _alt(run, kernel, table, fall),
        HEAD + height + BELOW,
        max(width, NARROWEST),
    )
    left, bottom = MARGIN_IN + label, new.body_bottom + BELOW
    _heat_map(new.axes(left, bottom, wide, height), table, found, sizes, fall)
    if fall:
        beside = new.axes(left + wide + GAP, bottom, FALL, height)
        beside.set_ylim(height, 0)
        lines = {row.setting: ROW * (line + 0.5) for line, row in enumerate(table, start=1)}
        draw_fall(beside, fall, lines, ROW / 2, height - ROW / 2)
    return new.figure


def _table(found: Sequence[Effect], every: dict[Shape, Fall]) -> list[Row]:
    """Rows in the order of the figure: single gremlins as the effects come, then those let loose together."""
    rows: dict[str, Row] = {}
    for e in [*found, *(fall.remainder for fall in every.values())]:
        name = f"{e.article} {e.title}" if e.article else e.title
        detail = DETAILS.get(e.setting, f"{e.setting}={e.lie} · {NAMES[e.corrupts]}")
        rows.setdefault(e.setting, Row(e.setting, name, detail, {})).cells[Shape(*e.shape)] = e
    last = [rows.pop(setting) for setting in TOGETHER if setting in rows]
    if every and not any(row.setting == "all" for row in last):
        last.reverse()  # the waterfall ends with the article's four, so their sum comes after what they do together
    return [*rows.values(), *last]


def _heat_map(axes: Axes, table: list[Row], found: Sequence[Effect], sizes: list[Shape], fall: Fall | None) -> None:
    """Cells in inches: x from the left, y down from the row of honest readings."""
    height = ROW * (len(table) + 1)
    axes.set_xlim(0, CELL * len(sizes))
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    unbiased = {Shape(*e.shape): e.unbiased for e in found if e.corrupts == "TFLOP/s"}
    _name(axes, 0, "the honest reading", "TFLOP/s")
    for column, size in enumerate(sizes):
        middle, chosen = CELL * (column + 0.5), fall is not None and size == fall.shape
        header = axes.text(middle, -0.13, str(size), ha="center", va="center")
        if chosen:
            header.set(color=ACCENT, weight="bold")
        axes.text(middle, ROW / 2, rate(unbiased.get(size)), ha="center", va="center_baseline", color=MUTED)
        for line, row in enumerate(table, start=1):
            _cell(axes, CELL * column, ROW * line, row.cells.get(size))
    for line, row in enumerate(table, start=1):
        _name(axes, line, row.name, row.detail)
    if fall is not None:
        frame = Rectangle((CELL * sizes.index(fall.shape), 0), CELL, height, fill=False, clip_on=False, zorder=4)
        frame.set(edgecolor=ACCENT, linewidth=1.2)
        axes.add_patch(frame)


def in_words(effect: Effect) -> str:
    """The ablation's own words for an effect, with a proper minus."""
    return percent(effect).replace("-", "−")


def _name(axes: Axes, line: int, name: str, detail: str) -> None:
    """A row's name with, under it, the setting that lies and the number that it moves."""
    y = ROW * (line + 0.5)
    right: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "annotation_clip": False}
    axes.annotate(name, (0, y), (-6, 1.5), va="bottom", fontsize=BODY_PT, color=INK, **right)
    axes.annotate(detail, (0, y), (-6, -1.5), va="top", fontsize=SMALL_PT, color=MUTED, **right)


def _cell(axes: Axes, x: float, y: float, effect: Effect | None) -> None:
    value = None if effect is None else factor(effect)
    words = "–" if effect is None or value is None else in_words(effect)
    doublings = math.log2(value or 1.0)
    colour = (FLATTERS if doublings > 0 else BELITTLES, min(abs(doublings), 1.0))
    axes.add_patch(Rectangle((x, y), CELL, ROW, facecolor=colour, edgecolor="none"))
    axes.add_patch(Rectangle((x, y), CELL, ROW, fill=False, edgecolor=PAPER, linewidth=1.0))
    points = BODY_PT * min(1.0, (CELL - 0.08) / text_width(words, BODY_PT))
    axes.text(x + CELL / 2, y + ROW / 2, words, ha="center", va="center_baseline", fontsize=points)


def _finding(kernel: str, found: Sequence[Effect]) -> str:
    """The largest lie that moves the rate itself; the others move only what it is a share of."""
    alone = [e for e in found if e.setting not in TOGETHER and e.corrupts == "TFLOP/s"]
    worst = max(alone, key=_doublings, default=None)
    if worst is None or not _doublings(worst):
        return f"No single lie moves {kernel}'s reading by more than the noise"
    much = f"{in_words(worst)} at {Shape(*worst.shape)}".replace(" ", "\u00a0")
    return f"The largest lie about {kernel}'s TFLOP/s: {worst.title}, {much}"


def _doublings(effect: Effect) -> float:
    return abs(math.log2(factor(effect) or 1.0))


def _subtitle(kernel: str, fall: Fall | None) -> str:
    words = (
        f"What each lie alone does to {kernel}'s reading, by size (M = N = K): orange flatters, blue belittles, "
        "full colour from ×\u00a02 or ÷\u00a02; 0 is not visible above the noise."
    )
    if fall is None:
        return words + " The run has no combined reading to split up."
    ends = f"from the honest to the naive reading at {fall.shape}"
    return f"{words} Right: {ends}; lies do not add up, so what they do together has a row."


def _alt(run: Run, kernel: str, table: list[Row], fall: Fall | None) -> str:
    parts = []
    for row in table:
        cells = [f"{size}: {in_words(e) if factor(e) else 'none'}" for size, e in row.cells.items()]
        parts.append(f"{row.name} ({row.detail}): {', '.join(cells)}")
    ends = (
        f" Waterfall at {fall.shape}: honest {rate(fall.unbiased)}, naive {rate(fall.naive)} TFLOP/s." if fall else ""
    )
    what = f"Heat map of what each lie about the measurement does to the reading of {kernel}, by size"
    return f"{what}. {'; '.join(parts)}.{ends} Source: {run.label}."
