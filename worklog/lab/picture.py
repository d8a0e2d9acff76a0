"""The answer as a picture: its samples beside the honest ones, and the way from the honest time to this, lie by lie.

The panel shows it next to the words; on a page of its own, with title and source, it is the panel's static twin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from worklog.lab.model import Answer
from worklog.lab.readings import say
from worklog.lab.words import headline, step_words, truth
from worklog.plots.figure import Chart
from worklog.plots.page import Page, page
from worklog.plots.style import (
    ACCENT,
    BODY_PT,
    FAINT,
    GREY,
    INK,
    LIE,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    shorten,
    styled,
)
from worklog.runs.table import duration

BESIDE_IN = 5.4  # width beside the settings, where a page of its own has 7
STRIP_IN = 1.15  # height of the samples
CAPTION_IN = 0.24
GAP_IN = 0.12
ROW_IN = 0.2  # height of one step
LEFT_IN, RIGHT_IN = 1.25, 0.95  # room for the steps' names and amounts
WIDE = 3.0  # times that are further apart than this factor are drawn on a logarithmic axis
BAR_PT = 7


@styled()
def body(answer: Answer) -> Chart:
    """The picture alone, for beside the words."""
    height = _height(answer)
    chart = Chart("reading", headline(answer.reading), alt(answer), BESIDE_IN, height + 0.1)
    _draw(Page(chart, BESIDE_IN, 0.05, height), answer)
    return chart


@styled()
def whole(answer: Answer) -> Chart:
    """The picture on a page: the number as its title, the settings under it, the source at its foot."""
    m = answer.reading.measurement
    title = f"{m.kernel} at {m.problem}: {headline(answer.reading)}"
    subtitle = f"{say(answer.settings)}: {truth(answer)}" if answer.changed else truth(answer)
    sheet = page("reading", title, subtitle, [answer.reading.measurement.label], alt(answer), _height(answer))
    _draw(sheet, answer)
    return sheet.figure


def alt(answer: Answer) -> str:
    """The picture in words."""
    m = answer.reading.measurement
    steps = "; ".join(": ".join(step_words(step)) for step in answer.steps)
    way = f" Lie by lie: {steps}." if steps else ""
    what = f"{m.kernel} at {m.problem}, {say(answer.settings)}: {headline(answer.reading)}"
    return f"{what}. {truth(answer)}.{way} {answer.reading.measurement.label}."


def _height(answer: Answer) -> float:
    rows = (len(answer.steps) + 2) * ROW_IN + GAP_IN + CAPTION_IN if answer.steps else 0.0
    return CAPTION_IN + STRIP_IN + rows


def _draw(sheet: Page, answer: Answer) -> None:
    """The strip on top; under it, where there are lies, the way from the honest reading to this one."""
    bottom = sheet.body_top - CAPTION_IN - STRIP_IN
    told = "samples in the order of the launches" + ("; the honest ones in grey" if answer.changed else "")
    sheet.text(MARGIN_IN, sheet.body_top, told, SMALL_PT, color=MUTED, va="top")
    _strip(sheet.axes(LEFT_IN, bottom, sheet.width - LEFT_IN - MARGIN_IN, STRIP_IN), answer)
    if answer.steps:
        top = bottom - GAP_IN
        sheet.text(
            MARGIN_IN, top, "what each lie adds to the time, one after the other", SMALL_PT, color=MUTED, va="top"
        )
        rows = (len(answer.steps) + 2) * ROW_IN
        width = sheet.width - LEFT_IN - RIGHT_IN
        _way(sheet.axes(LEFT_IN, top - CAPTION_IN - rows, width, rows), sheet, answer)


def _strip(axes: Axes, answer: Answer) -> None:
    """Every sample that counts as a dot; a line at what the harness made of them."""
    shown = (
        [(answer.unbiased, GREY), (answer.reading, _colour(answer))] if answer.changed else [(answer.reading, ACCENT)]
    )
    for reading, colour in shown:
        axes.plot(range(1, len(reading.samples) + 1), reading.samples, "o", color=colour, markersize=3, alpha=0.85)
        axes.axhline(reading.time.value, color=colour, linewidth=1)
    times = [us for reading, _ in shown for us in reading.samples]
    limits = _limits(times + [reading.time.value for reading, _ in shown], 1.25)
    _scale(axes, "y", limits)
    axes.set_xlim(0, max(len(reading.samples) for reading, _ in shown) + 1)
    axes.set_xticks([])
    axes.grid(True, axis="y")


def _colour(answer: Answer) -> str:
    """Vermillion for a time that flatters, blue for any other."""
    return LIE if answer.biased and answer.off < 0 else ACCENT


def _way(axes: Axes, sheet: Page, answer: Answer) -> None:
    """One bar a lie, from the time before it to the time after."""
    names = ["honest", *(step_words(step)[0] for step in answer.steps), "this reading"]
    names = [shorten(name, BODY_PT, LEFT_IN - MARGIN_IN) for name in names]
    steps = [step_words(step)[1] for step in answer.steps]
    amounts = [duration(answer.unbiased.time.value), *steps, duration(answer.reading.time.value)]
    ends = [answer.unbiased.time.value, *(step.after.time.value for step in answer.steps)]
    for row, step in enumerate(answer.steps, start=1):
        before, after = step.before.time.value, step.after.time.value
        colour = (LIE if after < before else ACCENT) if step.visible else GREY
        axes.plot([before, before], [row - 1, row], color=MUTED, linewidth=0.6, zorder=1)
        axes.plot([before, after], [row, row], color=colour, linewidth=BAR_PT, solid_capstyle="butt", zorder=2)
    last = len(names) - 1
    axes.plot([ends[-1]] * 2, [last - 1, last], color=MUTED, linewidth=0.6, zorder=1)
    axes.plot([ends[0], ends[-1]], [0, last], "o", color=INK, markersize=4.5, zorder=3)
    axes.set_ylim(last + 0.5, -0.5)
    axes.set_xscale("log" if max(ends) > WIDE * min(ends) else "linear")
    axes.set_xlim(*_limits(ends, 1.15))
    axes.minorticks_off()
    axes.set_xticks([])
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    for row, words in enumerate(amounts):
        axes.axhline(row, color=FAINT, linewidth=0.5, zorder=0)
        axes.text(1.02, row, words, transform=axes.get_yaxis_transform(), va="center", color=INK)


def _limits(values: Sequence[float], air: float) -> tuple[float, float]:
    """The values with some air, and at least 2 % around them, so that noise is not drawn as a cliff."""
    low, high = min(values), max(values)
    if low > 0 and high > WIDE * low:
        return low / air, high * air
    room = max((high - low) * 0.12, 0.02 * abs(high))
    return low - room, high + room


def _scale(axes: Axes, which: str, limits: tuple[float, float]) -> None:
    """A few round times with their units."""
    low, high = limits
    logarithmic = low > 0 and high > WIDE * low
    axes.set_yscale("log" if logarithmic else "linear")
    axes.minorticks_off()
    axes.set_ylim(low, high)
    ticks = _round_values(low, high) if logarithmic else _even_values(low, high)
    axes.set_yticks(ticks, [duration(tick) for tick in ticks])


def _round_values(low: float, high: float) -> list[float]:
    """Two to four of 1, 2, 5 times a power of ten within the limits."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1,), (1, 3), (1, 2, 5)):
        ticks = [m * 10.0**e for e in exponents for m in mantissas if low < m * 10.0**e < high]
        if len(ticks) >= 2:
            break
    return ticks[:: math.ceil(len(ticks) / 4)] or [low]


def _even_values(low: float, high: float) -> list[float]:
    """Two to five multiples of a round step within the limits."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first = math.ceil(low / step)
    return [n * step for n in range(first, math.floor(high / step) + 1)]
