"""The gremlin ablation: the effect of each biased setting, alone and with the others.

Together, they lead to the naive reading.

Left, a heat map of the effects by size. Right, in the same rows and on a log axis, a waterfall from
the unbiased to the naive reading at one size, if several settings have a visible effect there.
Effects are factors, and they do not simply multiply: a host clock that stops at the launch hides
what the GPU would have waited for. The part that the single effects don't explain is a separate
step. Settings without a visible effect at any size are named in one line below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.errors import NothingToDraw
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
from worklog.plots.selection import ARTICLE_SHAPE, in_order, rate
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
from worklog.problem import Shape, Size
from worklog.runs import TOGETHER, Effect, Run, about, effect_in_words, effects, older

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
# steps that a waterfall must have, and the factor from which a step can be seen
FEWEST = 2
LEAST = 1.05
NAMES = {"TFLOP/s": "TFLOP/s", "of cuBLAS": "% of cuBLAS", "of the roof": "% of the peak"}
REMAINDER = "together"
# Those that touch the time first.
COMBINED = {name: settings for settings, (name, _) in reversed(TOGETHER.items())}
DETAILS = {
    "first_launch": "one launch, at its own clock · TFLOP/s",
    "article": "TFLOP/s",
    "all": "TFLOP/s",
    REMAINDER: "the next row, beyond the product of each",
}
Rows = Mapping[str, Mapping[Shape, Effect]]  # by setting and size


class Fall(NamedTuple):
    """A waterfall at one size, from the unbiased to the naive reading."""

    combined: Effect  # of all these settings at once
    steps: list[Effect]  # the visible effects of one setting alone, in order
    remainder: Effect  # of the settings together, beyond the product of the steps

    @property
    def bars(self) -> int:
        """The number of steps that are long enough to be seen."""
        return len(
            [effect for effect in self.steps if abs(math.log(effect.factor)) > math.log(LEAST)]
        )

    @property
    def ends(self) -> tuple[str, str]:
        """The unbiased and the naive reading in TFLOP/s, as texts."""
        naive = about(self.combined.biased, self.combined.noise, rate)
        return f"unbiased {rate(self.combined.unbiased)}", f"naive {naive}"


def ablated(run: Run) -> dict[str, list[Effect]]:
    """Return the effects on each kernel that the run has an ablation of, in order."""
    by_kernel = {}
    for kernel in in_order(sorted({m.kernel for m in run.measurements if m.changed})):
        with suppress(NothingToDraw):
            by_kernel[kernel] = effects(run, kernel)
    return by_kernel


@style.chart
def ablation(run: Run, rung: str | None = None, size: Size | None = None) -> Chart:
    """Draw a heat map of every pitfall's effect by size, and the waterfall at one size.

    Raises NothingToDraw if there is no combined reading, and BadSetting for a size that can't be.

    rung: default, the last rung of the ladder that the run has an ablation of
    size: of the waterfall and the finding; by default, the waterfall is at the size where most
        settings have an effect, and the finding at the size of the largest effect
    """
    kernel = rung or next(reversed(ablated(run)), None)
    if kernel is None:
        raise NothingToDraw("the run has no ablation: make one with `worklog ablate warptiled`")
    on_kernel = effects(run, kernel)
    falls = _falls(on_kernel)
    shape = _shape_of_fall(kernel, falls, size)
    fall = falls[shape]
    every_row = _rows(on_kernel, falls)
    rows = {setting: row for setting, row in every_row.items() if _is_shown(setting, row)}
    names = [_name(row) for row in rows.values()]
    details = [_detail(setting, row) for setting, row in rows.items()]
    sizes = list(dict.fromkeys(effect.problem for effect in on_kernel))
    has_fall = fall.bars >= FEWEST

    left = max(right_of(names), MARGIN_IN + 0.12 + widest(details, SMALL_PT))
    map_width = CELL * len(sizes)
    fall_width = GAP + FALL if has_fall else 0.0
    height = ROW * (len(rows) + 1)
    width = max(left + map_width + fall_width + MARGIN_IN, NARROWEST)
    hidden = [_name(row) for setting, row in every_row.items() if setting not in rows]
    note = []
    if hidden:
        text = f"No visible effect at any size: {', '.join(hidden)}."
        note = wrap(text, BODY_PT, width - 2 * MARGIN_IN)
    note_height = style.line_height(BODY_PT, len(note))
    axis_height = BELOW if has_fall else 0.15
    chart = page(
        f"ablation_{kernel}",
        _finding(kernel, on_kernel, None if size is None else shape),
        _subtitle(kernel, shape if has_fall else None),
        [run.full_label, *older(run)],
        _alt(kernel, every_row, fall if has_fall else None),
        HEAD + height + axis_height + note_height,
        width,
    )
    chart.write(MARGIN_IN, chart.body_bottom + note_height, note, BODY_PT)
    bottom = chart.body_bottom + note_height + axis_height
    cells = chart.axes_at(left, bottom, map_width, height)
    _draw_map(cells, rows, sizes, ["unbiased reading", *names], ["TFLOP/s", *details])
    if has_fall:
        frame = Rectangle(
            (CELL * sizes.index(shape), 0), CELL, height, fill=False, clip_on=False, zorder=4
        )
        frame.set(edgecolor=ACCENT, linewidth=1.2)
        cells.add_patch(frame)
        _draw_fall(chart.axes_at(left + map_width + GAP, bottom, FALL, height), fall, [*rows])
    return chart


def _falls(on_kernel: Sequence[Effect]) -> dict[Shape, Fall]:
    """Return a waterfall for each size with a combined reading.

    The combined reading is of all settings at once if there is one, else of the article's four.
    """
    kind = next(
        (kind for kind in COMBINED if any(effect.setting == kind for effect in on_kernel)), ""
    )
    by_size = {}
    for combined in (effect for effect in on_kernel if effect.setting == kind):
        steps = [
            effect
            for effect in on_kernel
            if effect.shape == combined.shape
            and effect.corrupts == "TFLOP/s"
            and _is_step(effect, kind)
        ]
        product = combined.unbiased * math.prod(effect.factor for effect in steps)
        remainder = replace(
            combined, setting=REMAINDER, title="together (they interact)", unbiased=product
        )
        by_size[combined.problem] = Fall(combined, steps, remainder)
    return by_size


def _is_step(effect: Effect, kind: str) -> bool:
    """Return True for a visible effect of a setting that is part of this combined one."""
    return effect.visible and effect.setting in COMBINED[kind]


def _shape_of_fall(kernel: str, falls: Mapping[Shape, Fall], size: Size | None) -> Shape:
    """Return the waterfall's size: default, where most settings have an effect.

    Raises NothingToDraw if the run has no combined reading, or none at this size.
    """
    if not falls:
        raise NothingToDraw(
            f"the run has no combined reading of {kernel}: make one with `worklog ablate {kernel}`"
        )
    if size is None:
        return max(
            falls, key=lambda shape: (falls[shape].bars, shape == ARTICLE_SHAPE, shape.flops)
        )
    shape = Shape.of(size)
    if shape not in falls:
        raise NothingToDraw(
            f"the run has no ablation of {kernel} at {shape}, only at {', '.join(map(str, falls))}"
        )
    return shape


def _rows(on_kernel: Sequence[Effect], falls: Mapping[Shape, Fall]) -> Rows:
    """Return all rows in order: single pitfalls, then combined ones.

    The remainder belongs to the row below it, where the waterfall ends.
    """
    rows = dict[str, dict[Shape, Effect]]()
    for effect in (*on_kernel, *(fall.remainder for fall in falls.values())):
        rows.setdefault(effect.setting, {})[effect.problem] = effect
    last = ["article", REMAINDER, "all"] if "all" in rows else [REMAINDER, "article"]
    for setting in last:
        if setting in rows:
            rows[setting] = rows.pop(setting)
    return rows


def _is_shown(setting: str, row: Mapping[Shape, Effect]) -> bool:
    """Return True if a setting has a row: a combined one, or one with a visible effect."""
    return setting in (REMAINDER, *COMBINED) or any(effect.visible for effect in row.values())


def _name(row: Mapping[Shape, Effect]) -> str:
    """Return a row's name: the pitfall's title, with its number in the article."""
    effect = next(iter(row.values()))
    return f"{effect.article} {effect.title}" if effect.article else effect.title


def _detail(setting: str, row: Mapping[Shape, Effect]) -> str:
    """Return the line below a row's name: the biased value, and what it changes."""
    if setting in DETAILS:
        return DETAILS[setting]
    effect = next(iter(row.values()))
    return f"{setting}={effect.value} · {NAMES[effect.corrupts]}"


def _finding(kernel: str, on_kernel: Sequence[Effect], shape: Shape | None) -> str:
    """Return the pitfall that changes TFLOP/s most, at this size or at any.

    Pitfalls that only change a share, of cuBLAS or of the peak, don't count.
    """
    single = [
        effect
        for effect in on_kernel
        if effect.setting not in COMBINED and effect.corrupts == "TFLOP/s" and effect.visible
    ]
    at_shape = [effect for effect in single if shape in (None, effect.problem)]
    if not at_shape:
        return f"No single gremlin moves {kernel}'s reading by more than the noise"
    worst = max(at_shape, key=lambda effect: abs(math.log(effect.factor)))
    text = f"{in_words(worst)}\u00a0at\u00a0{worst.problem}"
    return f"The largest gremlin in {kernel}'s TFLOP/s: {worst.title}, {text}"


def _subtitle(kernel: str, shape: Shape | None) -> str:
    """Return the explanation of the chart. shape: of the waterfall; None if there is none."""
    subtitle = (
        f"How {kernel}'s reading changes at one clock when one setting is biased, by size (M = N = K). Orange, + and "
        "×: it reads too high; blue, − and ÷: too low; the stronger, the larger the effect; 0: not visible above the "
        "noise."
    )
    if shape is not None:
        subtitle += f" Right: from the unbiased to the naive reading at {shape}, with what the settings do together."
    return subtitle


def _alt(kernel: str, rows: Rows, fall: Fall | None) -> list[str]:
    """Return the alt text: each row's effects, and the ends of the waterfall."""
    alt = [f"Heat map of how each biased setting changes the reading of {kernel}, by size"]
    for setting, row in rows.items():
        texts = ", ".join(f"{shape}: {text}" for shape, text in in_row(row).items())
        alt.append(f"{_name(row)} ({_detail(setting, row)}): {texts}")
    if fall is not None:
        alt.append(f"waterfall at {fall.combined.problem}: {' to '.join(fall.ends)} TFLOP/s")
    return alt


def in_row(row: Mapping[Shape, Effect]) -> dict[Shape, str]:
    """Return the texts of one setting's cells, all in factors or all in percent."""
    factors = any(abs(math.log(effect.step)) >= math.log(FACTORS) for effect in row.values())
    return {shape: in_words(effect, factors) for shape, effect in row.items()}


def in_words(effect: Effect, factors: bool | None = None) -> str:
    """Return the effect as a text with no-break spaces.

    factors: as a factor, or in percent; by default, the shorter of these
    """
    return effect_in_words(effect, factors).replace(" ", "\u00a0")


def _draw_map(
    axes: Axes, rows: Rows, sizes: list[Shape], names: list[str], details: list[str]
) -> None:
    """Draw the heat map's cells, and the names of its rows and columns.

    Lengths are inches: x from the left, y down from the row of unbiased readings.
    """
    axes.set(xlim=(0, CELL * len(sizes)), ylim=(ROW * len(names), 0))
    axes.set_axis_off()
    for line, (name, detail) in enumerate(zip(names, details, strict=True)):
        point = (0, ROW * (line + 0.5))
        annotate(axes, name, point, -6, 1.5, va="bottom", fontsize=BODY_PT, annotation_clip=False)
        annotate(axes, detail, point, -6, -1.5, va="top", color=MUTED, annotation_clip=False)
    unbiased = _unbiased(rows)
    for column, size in enumerate(sizes):
        middle = CELL * (column + 0.5)
        axes.text(middle, -0.13, str(size), ha="center", va="center", weight="bold")
        reading = rate(unbiased.get(size))
        axes.text(middle, ROW / 2, reading, ha="center", va="center_baseline", color=MUTED)
        for line, row in enumerate(rows.values(), start=1):
            _draw_cell(axes, column, line, row.get(size), in_row(row).get(size, "–"))


def _unbiased(rows: Rows) -> dict[Shape, float]:
    """Return the unbiased reading at each size, in TFLOP/s."""
    readings = {}
    for setting, row in rows.items():
        if setting == REMAINDER:
            continue
        for size, effect in row.items():
            if effect.corrupts == "TFLOP/s":
                readings[size] = effect.unbiased
    return readings


def _draw_cell(axes: Axes, column: int, line: int, effect: Effect | None, text: str) -> None:
    """Draw one cell of the heat map. effect: None if it isn't known at this size."""
    cell = Rectangle(
        (CELL * column, ROW * line),
        CELL,
        ROW,
        facecolor=_colour(effect),
        edgecolor=PAPER,
        linewidth=1.0,
    )
    axes.add_patch(cell)
    axes.text(
        CELL * (column + 0.5),
        ROW * (line + 0.5),
        text,
        ha="center",
        va="center_baseline",
        fontsize=BODY_PT * min(1.0, (CELL - 0.08) / text_width(text, BODY_PT)),
    )


def _colour(effect: Effect | None) -> tuple[str, float]:
    """Return a cell's colour and opacity: the larger the effect, the more opaque."""
    if effect is None:
        return style.DEFLATES, 0.0
    magnitude = math.log(effect.step, FULL)
    colour = style.INFLATES if magnitude > 0 else style.DEFLATES
    return colour, min(math.sqrt(abs(magnitude)), 1.0)


def _draw_fall(axes: Axes, fall: Fall, settings: list[str]) -> None:
    """Draw the waterfall on a log axis: a bar per step, at the y of its row.

    It starts at the unbiased reading in the first row and ends at the naive reading.
    """
    last = ROW * (len(settings) + 0.5)
    axes.set_ylim(last + ROW / 2, 0)
    reading = fall.combined.unbiased
    above = ROW / 2
    readings = [reading]
    for effect in (*fall.steps, fall.remainder):
        middle = ROW * (settings.index(effect.setting) + 1.5)
        # Leads the eye across from the heat map's row.
        axes.axhline(middle, color=style.FAINT, linewidth=0.5, zorder=0)
        axes.plot([reading, reading], [above, middle], color=MUTED, linewidth=0.6, zorder=1)
        ends = [reading, reading * effect.factor]
        axes.plot(ends, [middle, middle], color=_bar_colour(effect), **BAR)
        reading = reading * effect.factor
        readings.append(reading)
        above = middle
    axes.plot([reading, reading], [above, last], color=MUTED, linewidth=0.6, zorder=1)
    low, high = _limits(readings)
    label = f"TFLOP/s at {fall.combined.problem}, log scale"
    scale(axes.xaxis, tick_locator(low, high), label, (low, high), log=10)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    for text, value, middle in zip(
        fall.ends, (readings[0], readings[-1]), (ROW / 2, last), strict=True
    ):
        gap = -6 if math.log(value / low) > math.log(high / value) else 6
        axes.plot([value], [middle], "o", color=INK, markersize=5, zorder=3)
        lines = text.replace("naive ", "naive\n")  # which fit on either side of the middle
        annotate(axes, lines, (value, middle), gap, fontsize=BODY_PT, bbox=ON_PAPER)


def _bar_colour(effect: Effect) -> str:
    """Return the colour of a waterfall's bar: grey if its effect isn't visible."""
    if not effect.visible:
        return GREY
    return style.ALERT if effect.factor > 1 else ACCENT


def _limits(readings: Sequence[float]) -> tuple[float, float]:
    """Return the waterfall's limits, so wide that noise isn't drawn as a cliff."""
    span = math.log(max(readings) / min(readings))
    air = math.exp(max(0.12 * span, (math.log(1.5) - span) / 2))
    return min(readings) / air, max(readings) * air
