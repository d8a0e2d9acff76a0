"""The gremlin ablation: how far each biased setting alone moves the reading, and how they combine to the naive one.

Left, a heat map of the effects by size. Right, in the same rows and on a log axis, a waterfall from the unbiased to the
naive reading at one size, if several settings have a visible effect there. Effects are factors, and they do not simply
multiply: a host clock that stops at the launch hides what the GPU would have waited for. What the single effects do not
explain is a step of its own. Settings without a visible effect at any size are named in one line below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.plots import style
from worklog.plots.figure import (
    ON_PAPER,
    Chart,
    annotate,
    page,
    right_of,
    scale,
    tick_locator,
    widest,
)
from worklog.plots.selection import ARTICLE_SHAPE, Size, in_order, rate
from worklog.plots.style import (
    ACCENT,
    BODY_PT,
    GREY,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    text_width,
    wrap,
)
from worklog.problem import Shape
from worklog.runs import (
    TOGETHER,
    Effect,
    NothingToDraw,
    Run,
    about,
    effect_in_words,
    effects,
    older,
)

# Inches, but for the thickness of a step.
ROW = 0.34
HEAD = 0.32
BELOW = 0.42
CELL = 0.56
FALL = 1.7
GAP = 0.14
NARROWEST = 5.5
STEP_PT = 8
BAR: Any = {"linewidth": STEP_PT, "solid_capstyle": "butt", "zorder": 2}
FULL = 32  # the factor from which a cell has the full colour
FACTORS = 2  # from this effect on, a row is in factors, else in percent
# steps of a waterfall that are seen in it, and their factor
FEWEST = 2
LEAST = 1.05
NAMES = {"TFLOP/s": "TFLOP/s", "of cuBLAS": "% of cuBLAS", "of the roof": "% of the peak"}
REMAINDER = "together"
COMBINED = {
    name: settings for settings, (name, _) in reversed(TOGETHER.items())
}  # all that touch the time first
DETAILS = {
    "first_launch": "one launch, at its own clock · TFLOP/s",
    "article": "TFLOP/s",
    "all": "TFLOP/s",
    REMAINDER: "the next row, beyond the product of each",
}
Rows = Mapping[str, Mapping[Shape, Effect]]  # by setting and size


class Fall(NamedTuple):
    """A waterfall at one size, from the unbiased to the naive reading.

    combined: the effect of all these settings at once. steps: the visible effects of one setting alone, in order.
    remainder: what they do together beyond the product of these.
    """

    combined: Effect
    steps: list[Effect]
    remainder: Effect

    @property
    def bars(self) -> int:
        """How many steps are long enough to be seen."""
        return sum(abs(math.log(e.factor)) > math.log(LEAST) for e in self.steps)


def ablated(run: Run) -> dict[str, list[Effect]]:
    """The effects on each kernel that the run has an ablation of, in order."""
    known = {}
    for kernel in in_order(sorted({m.kernel for m in run.measurements if m.changed})):
        with suppress(NothingToDraw):
            known[kernel] = effects(run, kernel)
    return known


@style.chart
def ablation(run: Run, rung: str | None = None, size: Size | None = None) -> Chart:
    """Heat map of every pitfall's effect by size, beside the waterfall at one size.

    rung: by default the last of the ladder that the run has an ablation of. size: of the waterfall and the finding; by
    default the one where most settings have an effect, and that of the largest effect. Raises NothingToDraw where there
    is no combined reading; BadSetting.
    """
    kernel = rung or next(reversed(ablated(run)), None)
    if kernel is None:
        raise NothingToDraw("the run has no ablation: make one with `worklog ablate warptiled`")
    shown = effects(run, kernel)
    falls = _falls(shown)
    if not falls:
        raise NothingToDraw(
            f"the run has no combined reading of {kernel}: make one with `worklog ablate {kernel}`"
        )
    most = max(falls, key=lambda shape: (falls[shape].bars, shape == ARTICLE_SHAPE, shape.flops))
    shape = Shape.of(size) if size is not None else most
    if shape not in falls:
        raise NothingToDraw(
            f"the run has no ablation of {kernel} at {shape}, only at {', '.join(map(str, falls))}"
        )
    every = dict[str, dict[Shape, Effect]]()
    fall = falls[shape]
    for e in (*shown, *(fall.remainder for fall in falls.values())):
        every.setdefault(e.setting, {})[e.problem] = e
    # Single pitfalls, then combined ones; the remainder belongs to the row below it, where the waterfall ends.
    last = ["article", REMAINDER, "all"] if "all" in every else [REMAINDER, "article"]
    every |= {setting: every.pop(setting) for setting in last if setting in every}
    rows = dict[str, Mapping[Shape, Effect]]()
    names = list[str]()
    details = list[str]()
    none = list[str]()
    alt = [f"Heat map of how each biased setting changes the reading of {kernel}, by size"]
    for setting, row in every.items():
        e = next(iter(row.values()))
        name = f"{e.article} {e.title}" if e.article else e.title
        words = in_row(row)
        detail = DETAILS.get(setting, f"{setting}={e.value} · {NAMES[e.corrupts]}")
        alt.append(
            f"{name} ({detail}): " + ", ".join(f"{s}: {effect}" for s, effect in words.items())
        )
        if setting in (REMAINDER, *COMBINED) or any(e.visible for e in row.values()):
            rows[setting] = row
            names.append(name)
            details.append(detail)
        else:
            none.append(name)
    ends = (
        f"unbiased {rate(fall.combined.unbiased)}",
        f"naive {about(fall.combined.biased, fall.combined.noise, rate)}",
    )
    subtitle = (
        f"How {kernel}'s reading changes at one clock when one setting is biased, by size (M = N = K). Orange, + and "
        "×: it reads too high; blue, − and ÷: too low; the stronger, the larger the effect; 0: not visible above the "
        "noise."
    )
    falling = fall.bars >= FEWEST
    if falling:
        alt.append(f"waterfall at {shape}: {' to '.join(ends)} TFLOP/s")
        subtitle += f" Right: from the unbiased to the naive reading at {shape}, with what the settings do together."
    sizes = list(dict.fromkeys(e.problem for e in shown))
    left = max(right_of(names), MARGIN_IN + 0.12 + widest(details, SMALL_PT))
    wide = CELL * len(sizes)
    height = ROW * (len(rows) + 1)
    width = max(left + wide + falling * (GAP + FALL) + MARGIN_IN, NARROWEST)
    below = (
        wrap(f"No visible effect at any size: {', '.join(none)}.", BODY_PT, width - 2 * MARGIN_IN)
        if none
        else []
    )
    under = style.line_height(BODY_PT, len(below))
    axis = BELOW if falling else 0.15
    # The pitfall that changes TFLOP/s most. Those that only change a share, of cuBLAS or of the peak, don't count.
    alone = [e for e in shown if e.setting not in COMBINED and e.corrupts == "TFLOP/s"]
    at_size = [e for e in alone if e.visible and (size is None or e.problem == shape)]
    finding = f"No single gremlin moves {kernel}'s reading by more than the noise"
    if at_size:
        worst = max(at_size, key=lambda e: abs(math.log(e.factor)))
        effect = f"{in_words(worst)}\u00a0at\u00a0{worst.problem}"
        finding = f"The largest gremlin in {kernel}'s TFLOP/s: {worst.title}, {effect}"
    footer = [run.full_label, *older(run)]
    new = page(
        f"ablation_{kernel}", finding, subtitle, footer, alt, HEAD + height + axis + under, width
    )
    new.write(MARGIN_IN, new.body_bottom + under, below, BODY_PT)
    bottom = new.body_bottom + under + axis
    cells = new.axes_at(left, bottom, wide, height)
    _heat_map(cells, rows, sizes, ["unbiased reading", *names], ["TFLOP/s", *details])
    if falling:
        frame = Rectangle(
            (CELL * sizes.index(shape), 0), CELL, height, fill=False, clip_on=False, zorder=4
        )
        frame.set(edgecolor=ACCENT, linewidth=1.2)
        cells.add_patch(frame)
        _draw_fall(new.axes_at(left + wide + GAP, bottom, FALL, height), fall, ends, [*rows])
    return new


def _falls(shown: Sequence[Effect]) -> dict[Shape, Fall]:
    """A waterfall for each size with a combined reading: of all settings at once if there is one, else of the article's
    four."""
    kind = next((kind for kind in COMBINED if any(e.setting == kind for e in shown)), "")
    by_size = {}
    for combined in (e for e in shown if e.setting == kind):
        here = [
            e for e in shown if e.shape == combined.shape and e.corrupts == "TFLOP/s" and e.visible
        ]
        steps = [e for e in here if e.setting in COMBINED[kind]]
        product = combined.unbiased * math.prod(e.factor for e in steps)
        remainder = replace(
            combined, setting=REMAINDER, title="together (they interact)", unbiased=product
        )
        by_size[combined.problem] = Fall(combined, steps, remainder)
    return by_size


def in_row(row: Mapping[Shape, Effect]) -> dict[Shape, str]:
    """The effects of one setting as they are written in its cells, all in factors or all in percent."""
    factors = any(abs(math.log(e.step)) >= math.log(FACTORS) for e in row.values())
    return {shape: in_words(e, factors) for shape, e in row.items()}


def in_words(effect: Effect, factors: bool | None = None) -> str:
    """The effect with no-break spaces, as a factor or in percent; by default, as is shorter."""
    return effect_in_words(effect, factors).replace(" ", "\u00a0")


def _heat_map(
    axes: Axes, rows: Rows, sizes: list[Shape], names: list[str], details: list[str]
) -> None:
    """Cells in inches: x from the left, y down from the row of unbiased readings."""
    axes.set(xlim=(0, CELL * len(sizes)), ylim=(ROW * len(names), 0))
    axes.set_axis_off()
    for line, (name, detail) in enumerate(zip(names, details, strict=True)):
        at = (0, ROW * (line + 0.5))
        annotate(axes, name, at, -6, 1.5, va="bottom", fontsize=BODY_PT, annotation_clip=False)
        annotate(axes, detail, at, -6, -1.5, va="top", color=MUTED, annotation_clip=False)
    alone = [row for setting, row in rows.items() if setting != REMAINDER]
    unbiased = {
        size: e.unbiased for row in alone for size, e in row.items() if e.corrupts == "TFLOP/s"
    }
    for column, size in enumerate(sizes):
        middle = CELL * (column + 0.5)
        axes.text(middle, -0.13, str(size), ha="center", va="center", weight="bold")
        axes.text(
            middle,
            ROW / 2,
            rate(unbiased.get(size)),
            ha="center",
            va="center_baseline",
            color=MUTED,
        )
        for line, row in enumerate(rows.values(), start=1):
            words = in_row(row).get(size, "–")
            size_of_it = math.log(row[size].step, FULL) if size in row else 0.0
            colour = (
                style.INFLATES if size_of_it > 0 else style.DEFLATES,
                min(math.sqrt(abs(size_of_it)), 1.0),
            )
            cell = Rectangle(
                (CELL * column, ROW * line),
                CELL,
                ROW,
                facecolor=colour,
                edgecolor=PAPER,
                linewidth=1.0,
            )
            axes.add_patch(cell)
            points = BODY_PT * min(1.0, (CELL - 0.08) / text_width(words, BODY_PT))
            axes.text(
                middle,
                ROW * (line + 0.5),
                words,
                ha="center",
                va="center_baseline",
                fontsize=points,
            )


def _draw_fall(axes: Axes, fall: Fall, ends: tuple[str, str], settings: list[str]) -> None:
    """One bar per step on a log axis, at the y of its row, from the unbiased reading in the first row to the naive."""
    last = ROW * (len(settings) + 0.5)
    axes.set_ylim(last + ROW / 2, 0)
    before = fall.combined.unbiased
    above = ROW / 2
    values = [before]
    for e in (*fall.steps, fall.remainder):
        y = ROW * (settings.index(e.setting) + 1.5)
        colour = style.ALERT if e.factor > 1 else ACCENT
        axes.axhline(
            y, color=style.FAINT, linewidth=0.5, zorder=0
        )  # leads the eye across from the heat map's row
        axes.plot([before, before], [above, y], color=MUTED, linewidth=0.6, zorder=1)
        values.append(before * e.factor)
        axes.plot([before, values[-1]], [y, y], color=colour if e.visible else GREY, **BAR)
        before = values[-1]
        above = y
    axes.plot([before, before], [above, last], color=MUTED, linewidth=0.6, zorder=1)
    span = math.log(max(values) / min(values))
    air = math.exp(
        max(0.12 * span, (math.log(1.5) - span) / 2)
    )  # so that noise is not drawn as a cliff
    low = min(values) / air
    high = max(values) * air
    scale(
        axes.xaxis,
        tick_locator(low, high),
        f"TFLOP/s at {fall.combined.problem}, log scale",
        (low, high),
        log=10,
    )
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    for words, value, y in zip(ends, (values[0], values[-1]), (ROW / 2, last), strict=True):
        gap = -6 if math.log(value / low) > math.log(high / value) else 6
        axes.plot([value], [y], "o", color=INK, markersize=5, zorder=3)
        lines = words.replace("naive ", "naive\n")  # which fit on either side of the middle
        annotate(axes, lines, (value, y), gap, fontsize=BODY_PT, bbox=ON_PAPER)
