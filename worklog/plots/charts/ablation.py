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
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import ON_PAPER, Cell, Cells, Rows, annotate, scale, tick_locator, widest
from worklog.plots.page import Chart, Texts, page
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
)
from worklog.problem import Shape, Size
from worklog.runs import Run
from worklog.runs.effects import TOGETHER, Effect, effect_in_words, effects, older
from worklog.runs.text import format_estimate

# Inches, but for the thickness of a step.


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
CELLS = Cells(CELL, ROW, outline=PAPER, text_va="center_baseline")
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
Row = Mapping[Shape, Effect]


@dataclass(frozen=True)
class Fall:
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
        naive = format_estimate(self.combined.biased, self.combined.noise, rate)
        return f"unbiased {rate(self.combined.unbiased)}", f"naive {naive}"


@dataclass(frozen=True)
class AblationData:
    """What the chart shows of one kernel."""

    kernel: str
    effects: Sequence[Effect]
    every_row: Mapping[str, Row]  # by setting
    fall: Fall
    is_size_given: bool

    @property
    def rows(self) -> Mapping[str, Row]:
        """The rows that are drawn: combined ones, and those with a visible effect."""
        return {setting: row for setting, row in self.every_row.items() if _is_shown(setting, row)}

    @property
    def hidden(self) -> list[str]:
        """The names of the rows that aren't drawn."""
        return [_name(row) for setting, row in self.every_row.items() if setting not in self.rows]

    @property
    def sizes(self) -> list[Shape]:
        """The columns."""
        return list(dict.fromkeys(effect.problem for effect in self.effects))

    @property
    def shape(self) -> Shape:
        """The size of the waterfall."""
        return self.fall.combined.problem

    @property
    def has_fall(self) -> bool:
        """True if the waterfall has enough steps to be drawn."""
        return self.fall.bars >= FEWEST


@dataclass(frozen=True)
class Layout:
    """Where the parts of the chart are. Lengths are inches."""

    names: Sequence[str]  # of the heat map's rows
    details: Sequence[str]  # below the names
    left: float  # of the heat map
    map_width: float
    height: float  # of both axes
    width: float  # of the page


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
    data = _select(run, rung, size)
    texts = Texts(
        f"ablation_{data.kernel}",
        finding=_finding(data),
        subtitle=_subtitle(data),
        footer=[run.full_label, *older(run)],
        alt=_alt(data),
    )
    layout = _layout(data)
    note = []
    if data.hidden:
        text = f"No visible effect at any size: {', '.join(data.hidden)}."
        note = style.wrap(text, BODY_PT, layout.width - 2 * MARGIN_IN)
    note_height = style.line_height(BODY_PT, len(note))
    axis_height = BELOW if data.has_fall else 0.15
    chart = page(texts, HEAD + layout.height + axis_height + note_height, layout.width)
    bottom = chart.body_bottom + note_height
    chart.write((MARGIN_IN, bottom), note, BODY_PT)
    bottom += axis_height
    cells = chart.axes_at(layout.left, bottom, layout.map_width, layout.height)
    _draw_map(cells, data, layout)
    if data.has_fall:
        _frame(cells, data, layout.height)
        left = layout.left + layout.map_width + GAP
        _draw_fall(chart.axes_at(left, bottom, FALL, layout.height), data.fall, [*data.rows])
    return chart


def _select(run: Run, rung: str | None, size: Size | None) -> AblationData:
    """Return what the chart shows of a run. The arguments are those of ablation()."""
    kernel = rung or next(reversed(ablated(run)), None)
    if kernel is None:
        raise NothingToDraw("the run has no ablation: make one with `worklog ablate warptiled`")
    on_kernel = effects(run, kernel)
    falls = _falls(on_kernel)
    fall = falls[_shape_of_fall(kernel, falls, size)]
    return AblationData(kernel, on_kernel, _rows(on_kernel, falls), fall, size is not None)


def _layout(data: AblationData) -> Layout:
    """Return where the parts of the chart are."""
    names = [_name(row) for row in data.rows.values()]
    details = [_detail(setting, row) for setting, row in data.rows.items()]
    left = max(Rows(names, ROW).left, MARGIN_IN + 0.12 + widest(details, SMALL_PT))
    map_width = CELL * len(data.sizes)
    fall_width = GAP + FALL if data.has_fall else 0.0
    return Layout(
        ["unbiased reading", *names],
        ["TFLOP/s", *details],
        left,
        map_width,
        height=ROW * (len(names) + 1),
        width=max(left + map_width + fall_width + MARGIN_IN, NARROWEST),
    )


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


def _rows(on_kernel: Sequence[Effect], falls: Mapping[Shape, Fall]) -> Mapping[str, Row]:
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


def _is_shown(setting: str, row: Row) -> bool:
    """Return True if a setting has a row: a combined one, or one with a visible effect."""
    return setting in (REMAINDER, *COMBINED) or any(effect.visible for effect in row.values())


def _name(row: Row) -> str:
    """Return a row's name: the pitfall's title, with its number in the article."""
    effect = next(iter(row.values()))
    return f"{effect.article} {effect.title}" if effect.article else effect.title


def _detail(setting: str, row: Row) -> str:
    """Return the line below a row's name: the biased value, and what it changes."""
    if setting in DETAILS:
        return DETAILS[setting]
    effect = next(iter(row.values()))
    return f"{setting}={effect.value} · {NAMES[effect.corrupts]}"


def _finding(data: AblationData) -> str:
    """Return the pitfall that changes TFLOP/s most, at the given size or at any.

    Pitfalls that only change a share, of cuBLAS or of the peak, don't count.
    """
    single = [
        effect
        for effect in data.effects
        if effect.setting not in COMBINED and effect.corrupts == "TFLOP/s" and effect.visible
    ]
    if data.is_size_given:
        single = [effect for effect in single if effect.problem == data.shape]
    if not single:
        return f"No single gremlin moves {data.kernel}'s reading by more than the noise"
    worst = max(single, key=lambda effect: abs(math.log(effect.factor)))
    text = f"{in_words(worst)}\u00a0at\u00a0{worst.problem}"
    return f"The largest gremlin in {data.kernel}'s TFLOP/s: {worst.title}, {text}"


def _subtitle(data: AblationData) -> str:
    """Return the explanation of the heat map, and of the waterfall if it is drawn."""
    subtitle = (
        f"How {data.kernel}'s reading changes at one clock when one setting is biased, by size "
        "(M = N = K). Orange, + and ×: it reads too high; blue, − and ÷: too low; the stronger, "
        "the larger the effect; 0: not visible above the noise."
    )
    if data.has_fall:
        subtitle += (
            f" Right: from the unbiased to the naive reading at {data.shape}, with what the "
            "settings do together."
        )
    return subtitle


def _alt(data: AblationData) -> list[str]:
    """Return the alt text: each row's effects, and the ends of the waterfall."""
    kind = "Heat map of how each biased setting changes the reading"
    alt = [f"{kind} of {data.kernel}, by size"]
    for setting, row in data.every_row.items():
        texts = ", ".join(f"{shape}: {text}" for shape, text in in_row(row).items())
        alt.append(f"{_name(row)} ({_detail(setting, row)}): {texts}")
    if data.has_fall:
        alt.append(f"waterfall at {data.shape}: {' to '.join(data.fall.ends)} TFLOP/s")
    return alt


def in_row(row: Row) -> dict[Shape, str]:
    """Return the texts of one setting's cells, all in factors or all in percent."""
    factors = any(abs(math.log(effect.step)) >= math.log(FACTORS) for effect in row.values())
    return {shape: in_words(effect, factors) for shape, effect in row.items()}


def in_words(effect: Effect, factors: bool | None = None) -> str:
    """Return the effect as a text with no-break spaces.

    factors: as a factor, or in percent; by default, the shorter of these
    """
    return effect_in_words(effect, factors).replace(" ", "\u00a0")


def _draw_map(axes: Axes, data: AblationData, layout: Layout) -> None:
    """Draw the heat map's cells, and the names of its rows and columns.

    Lengths are inches: x from the left, y down from the row of unbiased readings.
    """
    axes.set(xlim=(0, layout.map_width), ylim=(layout.height, 0))
    axes.set_axis_off()
    for line, (name, detail) in enumerate(zip(layout.names, layout.details, strict=True)):
        _draw_name(axes, (0, ROW * (line + 0.5)), name, detail)
    unbiased = _unbiased(data.rows)
    for column, size in enumerate(data.sizes):
        middle = CELL * (column + 0.5)
        axes.text(middle, -0.13, str(size), ha="center", va="center", weight="bold")
        reading = rate(unbiased.get(size))
        axes.text(middle, ROW / 2, reading, ha="center", va="center_baseline", color=MUTED)
        for line, row in enumerate(data.rows.values(), start=1):
            CELLS.draw_cell(axes, line, column, _cell(row, size))


def _draw_name(axes: Axes, point: tuple[float, float], name: str, detail: str) -> None:
    """Write a row's name and its detail below, left of a point."""
    annotate(
        axes, name, point, gap=-6, lift=1.5, va="bottom", fontsize=BODY_PT, annotation_clip=False
    )
    annotate(axes, detail, point, gap=-6, lift=-1.5, va="top", color=MUTED, annotation_clip=False)


def _unbiased(rows: Mapping[str, Row]) -> dict[Shape, float]:
    """Return the unbiased reading at each size, in TFLOP/s."""
    readings = {}
    for setting, row in rows.items():
        if setting == REMAINDER:
            continue
        for size, effect in row.items():
            if effect.corrupts == "TFLOP/s":
                readings[size] = effect.unbiased
    return readings


def _cell(row: Row, size: Shape) -> Cell:
    """Return a cell of the heat map: its text fits, and a size without an effect has a dash."""
    text = in_row(row).get(size, "–")
    text_pt = BODY_PT * min(1.0, (CELL - 0.08) / text_width(text, BODY_PT))
    return Cell(text, _fill(row.get(size)), text_pt=text_pt)


def _fill(effect: Effect | None) -> tuple[str, float]:
    """Return a cell's colour and opacity: the larger the effect, the more opaque."""
    if effect is None:
        return style.DEFLATES, 0.0
    magnitude = math.log(effect.step, FULL)
    colour = style.INFLATES if magnitude > 0 else style.DEFLATES
    return colour, min(math.sqrt(abs(magnitude)), 1.0)


def _frame(axes: Axes, data: AblationData, height: float) -> None:
    """Draw a frame around the column of the waterfall's size. height: in inches."""
    left = CELL * data.sizes.index(data.shape)
    frame = Rectangle((left, 0), CELL, height, fill=False, clip_on=False, zorder=4)
    frame.set(edgecolor=ACCENT, linewidth=1.2)
    axes.add_patch(frame)


def _draw_fall(axes: Axes, fall: Fall, settings: Sequence[str]) -> None:
    """Draw the waterfall on a log axis: a bar per step, at the y of its row.

    It starts at the unbiased reading in the first row and ends at the naive reading.
    """
    last = ROW * (len(settings) + 0.5)
    axes.set_ylim(last + ROW / 2, 0)
    readings = _draw_steps(axes, fall, settings)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    low, high = _limits(readings)
    label = f"TFLOP/s at {fall.combined.problem}, log scale"
    scale(axes.xaxis, tick_locator(low, high), label, (low, high), log=10)
    axes.grid(True, axis="x")
    unbiased, naive = fall.ends
    _draw_end(axes, (readings[0], ROW / 2), unbiased)
    _draw_end(axes, (readings[-1], last), naive)


def _draw_steps(axes: Axes, fall: Fall, settings: Sequence[str]) -> list[float]:
    """Draw a bar per step with lines between them; return the readings from first to last."""
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
    last = ROW * (len(settings) + 0.5)
    axes.plot([reading, reading], [above, last], color=MUTED, linewidth=0.6, zorder=1)
    return readings


def _draw_end(axes: Axes, point: tuple[float, float], text: str) -> None:
    """Draw a dot at an end of the waterfall, with a text on the side with more space."""
    low, high = axes.get_xlim()
    gap = -6 if math.log(point[0] / low) > math.log(high / point[0]) else 6
    axes.plot(*point, "o", color=INK, markersize=5, zorder=3)
    lines = text.replace("naive ", "naive\n")  # which fit on either side of the middle
    annotate(axes, lines, point, gap=gap, fontsize=BODY_PT, bbox=ON_PAPER)


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
