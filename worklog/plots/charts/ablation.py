"""The gremlin ablation: how far each biased setting alone moves the reading, and how they combine to the naive one.

Left, a heat map of the effects by size. Right, in the same rows and on a log axis, a waterfall from the unbiased to the
naive reading at one size. Effects are factors, and they do not simply multiply: a host clock that stops at the launch
hides what the GPU would have waited for. What the single effects do not explain is a step of its own. Settings without
a visible effect at any size are named in one line below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.charts.rates import BEHIND
from worklog.plots.figure import Chart, a_few, beside, page, right_of, scale, widest
from worklog.plots.selection import ARTICLE_SHAPE, Size, in_order, rate
from worklog.plots.style import ACCENT, BODY_PT, GREY, INK, MARGIN_IN, MUTED, PAPER, SMALL_PT, text_width, wrap
from worklog.problem import Shape
from worklog.runs import Run, about
from worklog.runs.ablation import TOGETHER, Effect, effect_in_words, effects, older

# Inches, but for the thickness of a step.
ROW, HEAD, BELOW, CELL, FALL, GAP, NARROWEST, STEP_PT = 0.34, 0.32, 0.42, 0.56, 1.7, 0.14, 5.5, 8
SAME, PALE = 1.05, 0.2  # effects within this factor of each other don't depend on the size: full colour for the others
NAMES = {"TFLOP/s": "TFLOP/s", "of cuBLAS": "% of cuBLAS", "of the roof": "% of the peak"}
REMAINDER = "together"
COMBINED = {name: settings for settings, (name, _) in reversed(TOGETHER.items())}  # all that touch the time first
DETAILS = {
    "first_launch": "warmup=none, one launch · TFLOP/s",
    "article": "TFLOP/s",
    "all": "TFLOP/s",
    REMAINDER: "the next row, beyond the product of each",
}


class Fall(NamedTuple):
    """A waterfall at one size, from the unbiased to the naive reading.

    combined: the effect of all these settings at once. steps: the factor of each biased setting alone, in order, then
    REMAINDER, what they do together beyond that, which `remainder` is as an effect.
    """

    combined: Effect
    steps: dict[str, float]
    remainder: Effect


@dataclass(frozen=True)
class Row:
    """A row of the heat map: the effects of one setting by size, a name, and a detail under it: the biased setting and
    the number that it moves."""

    name: str
    detail: str
    cells: dict[Shape, Effect]


def ablated(run: Run) -> dict[str, list[Effect]]:
    """The effects on each kernel that the run has an ablation of, in order."""
    known = {}
    for kernel in in_order(sorted({m.kernel for m in run.measurements if m.changed})):
        with suppress(NothingToDraw):
            known[kernel] = effects(run, kernel)
    return known


@style.styled()
def ablation(run: Run, rung: str | None = None, size: Size | None = None) -> Chart:
    """Heat map of every pitfall's effect by size, beside the waterfall at one size.

    rung: by default the last of the ladder that the run has an ablation of. size: of the waterfall and the finding; by
    default 4096, else the largest with a combined reading, and of the largest effect. Raises NothingToDraw where there
    is none; BadSetting.
    """
    known = ablated(run)
    if rung is None and not known:
        raise NothingToDraw("the run has no ablation: make one with `worklog ablate warptiled`")
    kernel = rung or list(known)[-1]
    shown = known.get(kernel) or effects(run, kernel)
    sizes, fall_at = list(dict.fromkeys(e.problem for e in shown)), falls(shown)
    if not fall_at:
        raise NothingToDraw(f"the run has no combined reading of {kernel}: make one with `worklog ablate {kernel}`")
    shape = Shape.of(size) if size is not None else ARTICLE_SHAPE if ARTICLE_SHAPE in fall_at else [*fall_at][-1]
    if shape not in fall_at:
        raise NothingToDraw(f"the run has no ablation of {kernel} at {shape}, only at {', '.join(map(str, fall_at))}")
    fall, every = fall_at[shape], dict[str, Row]()
    for e in (*shown, *(fall.remainder for fall in fall_at.values())):
        name = f"{e.article} {e.title}" if e.article else e.title
        detail = DETAILS.get(e.setting, f"{e.setting}={e.value} · {NAMES[e.corrupts]}")
        every.setdefault(e.setting, Row(name, detail, {})).cells[e.problem] = e
    # Single pitfalls, then combined ones; the remainder belongs to the row below it, where the waterfall ends.
    last = ["article", REMAINDER, "all"] if "all" in every else [REMAINDER, "article"]
    every |= {setting: every.pop(setting) for setting in last if setting in every}
    ends = f"unbiased {rate(fall.combined.unbiased)}", f"naive {about(fall.combined.biased, fall.combined.noise, rate)}"
    alt = [f"Heat map of how each biased setting changes the reading of {kernel}, by size"]
    for row in every.values():
        alt.append(f"{row.name} ({row.detail}): " + ", ".join(f"{s}: {in_words(e)}" for s, e in row.cells.items()))
    alt.append(f"waterfall at {shape}: {' to '.join(ends)} TFLOP/s")
    subtitle = (
        f"How {kernel}'s reading changes at one clock when one setting is biased, by size (M = N = K): orange inflates "
        "it, blue deflates it, full colour from ×\u00a02 or ÷\u00a02, pale where the size doesn't matter; 0 isn't "
        f"visible above the noise. Right: from the unbiased to the naive reading at {shape}; the effects interact, so "
        "what they do together has a row."
    )
    rows, none = dict[str, Row](), list[str]()
    for setting, row in every.items():
        if setting in (REMAINDER, *COMBINED) or any(in_words(e) != "0" for e in row.cells.values()):
            rows[setting] = row
        else:
            none.append(row.name)
    names, details = [row.name for row in rows.values()], [row.detail for row in rows.values()]
    left = max(right_of(names), MARGIN_IN + 0.12 + widest(details, SMALL_PT))
    wide, height = CELL * len(sizes), ROW * (len(rows) + 1)
    width = max(left + wide + GAP + FALL + MARGIN_IN, NARROWEST)
    below = wrap(f"No visible effect at any size: {', '.join(none)}.", BODY_PT, width - 2 * MARGIN_IN) if none else []
    under, body = style.line_height(BODY_PT, len(below)), HEAD + height + BELOW
    # The pitfall that changes TFLOP/s most. Those that only change a share, of cuBLAS or of the peak, don't count.
    alone = [e for e in shown if e.setting not in COMBINED and e.corrupts == "TFLOP/s"]
    at_size = [e for e in alone if size is None or e.problem == shape]
    worst = max(at_size, key=lambda e: abs(math.log2(e.step)), default=None)
    finding = f"No single gremlin moves {kernel}'s reading by more than the noise"
    if worst is not None and worst.visible:
        effect = f"{in_words(worst)}\u00a0at\u00a0{worst.problem}"
        finding = f"The largest gremlin in {kernel}'s TFLOP/s: {worst.title}, {effect}"
    footer = [run.full_label, *older(run)]
    new = page(f"ablation_{kernel}", finding, subtitle, footer, alt, body + under, width)
    new.write(MARGIN_IN, new.body_bottom + under, below, BODY_PT)
    bottom = new.body_bottom + under + BELOW
    _heat_map(new.axes_at(left, bottom, wide, height), rows, sizes, shape)
    _draw_fall(new.axes_at(left + wide + GAP, bottom, FALL, height), fall, ends, [*rows])
    return new


def falls(shown: Sequence[Effect]) -> dict[Shape, Fall]:
    """A waterfall for each size with a combined reading: of all settings at once if there is one, else of the article's
    four."""
    kind = next((kind for kind in COMBINED if any(e.setting == kind for e in shown)), "")
    by_size = {}
    for combined in (e for e in shown if e.setting == kind):
        alone = [e for e in shown if e.shape == combined.shape and e.corrupts == "TFLOP/s"]
        steps = {e.setting: e.step for e in alone if e.setting in COMBINED[kind]}
        steps[REMAINDER] = combined.factor / math.prod(steps.values())
        product = combined.biased / steps[REMAINDER]
        remainder = replace(combined, setting=REMAINDER, title="together (they interact)", unbiased=product)
        by_size[combined.problem] = Fall(combined, steps, remainder)
    return by_size


def in_words(effect: Effect) -> str:
    """The effect as it is written in a cell, with a minus sign and no-break spaces."""
    return effect_in_words(effect).replace("-", "−").replace(" ", "\u00a0")


def _heat_map(axes: Axes, rows: dict[str, Row], sizes: list[Shape], framed: Shape) -> None:
    """Cells in inches: x from the left, y down from the row of unbiased readings."""
    height, alone = ROW * (len(rows) + 1), [row for setting, row in rows.items() if setting != REMAINDER]
    axes.set(xlim=(0, CELL * len(sizes)), ylim=(height, 0))
    axes.set_axis_off()
    unbiased = {e.problem: e.unbiased for row in alone for e in row.cells.values() if e.corrupts == "TFLOP/s"}
    for line, row in enumerate([Row("unbiased reading", "TFLOP/s", {}), *rows.values()]):
        at = (0, ROW * (line + 0.5))
        beside(axes, row.name, at, -6, 1.5, va="bottom", fontsize=BODY_PT, annotation_clip=False)
        beside(axes, row.detail, at, -6, -1.5, va="top", color=MUTED, annotation_clip=False)
    for column, size in enumerate(sizes):
        middle = CELL * (column + 0.5)
        header = axes.text(middle, -0.13, str(size), ha="center", va="center")
        if size == framed:
            header.set(color=ACCENT, weight="bold")
        axes.text(middle, ROW / 2, rate(unbiased.get(size)), ha="center", va="center_baseline", color=MUTED)
        for line, row in enumerate(rows.values(), start=1):
            effect, steps = row.cells.get(size), [e.step for e in row.cells.values()]
            words, doublings = (in_words(effect), math.log2(effect.step)) if effect else ("–", 0.0)
            strongest = PALE if len(steps) > 1 and max(steps) < SAME * min(steps) else 1.0
            colour = style.INFLATES if doublings > 0 else style.DEFLATES, min(abs(doublings), strongest)
            cell = Rectangle((CELL * column, ROW * line), CELL, ROW, facecolor=colour, edgecolor=PAPER, linewidth=1.0)
            axes.add_patch(cell)
            points = BODY_PT * min(1.0, (CELL - 0.08) / text_width(words, BODY_PT))
            axes.text(middle, ROW * line + ROW / 2, words, ha="center", va="center_baseline", fontsize=points)
    frame = Rectangle((CELL * sizes.index(framed), 0), CELL, height, fill=False, clip_on=False, zorder=4)
    frame.set(edgecolor=ACCENT, linewidth=1.2)
    axes.add_patch(frame)


def _draw_fall(axes: Axes, fall: Fall, ends: tuple[str, str], settings: list[str]) -> None:
    """One bar per step on a log axis, at the y of its row, from the unbiased reading in the first row to the naive."""
    axes.set_ylim(ROW * (len(settings) + 1), 0)
    lines = {setting: ROW * (line + 1.5) for line, setting in enumerate(settings)}
    for y in lines.values():  # leads the eye across from the heat map's rows
        axes.axhline(y, color=style.FAINT, linewidth=0.5, zorder=0)
    naive, last = fall.combined.biased, ROW * (len(settings) + 0.5)
    before, above = fall.combined.unbiased, ROW / 2
    values = [before]
    for setting in (setting for setting in fall.steps if setting in lines):
        step, y = fall.steps[setting], lines[setting]
        colour = style.ALERT if step > 1 else ACCENT
        if abs(math.log(step)) <= fall.combined.noise and setting == REMAINDER:
            colour = GREY
        axes.plot([before, before], [above, y], color=MUTED, linewidth=0.6, zorder=1)
        axes.plot([before, before * step], [y, y], color=colour, linewidth=STEP_PT, solid_capstyle="butt", zorder=2)
        before, above = before * step, y
        values.append(before)
    axes.plot([naive, naive], [above, last], color=MUTED, linewidth=0.6, zorder=1)
    span = math.log(max(values) / min(values))
    air = math.exp(max(0.12 * span, (math.log(1.5) - span) / 2))  # so that noise is not drawn as a cliff
    low, high = min(values) / air, max(values) * air
    scale(axes.xaxis, a_few(low, high), f"TFLOP/s at {fall.combined.problem}, log scale", (low, high), log=10)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    for words, value, y in zip(ends, (fall.combined.unbiased, naive), (ROW / 2, last), strict=True):
        gap = -6 if math.log(value / low) > math.log(high / value) else 6
        axes.plot([value], [y], "o", color=INK, markersize=5, zorder=3)
        beside(axes, words, (value, y), gap, fontsize=BODY_PT, bbox=BEHIND)
