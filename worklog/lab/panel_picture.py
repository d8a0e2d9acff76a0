"""The panel's picture: samples beside the unbiased ones, and the steps from the unbiased time to this one."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator

from worklog.lab.panel_answer import Answer
from worklog.lab.readings import in_words
from worklog.plots.figure import Chart
from worklog.plots.page import Page, page
from worklog.plots.style import (
    ACCENT,
    ALERT,
    BODY_PT,
    FAINT,
    GREY,
    INK,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    shorten,
    styled,
)
from worklog.runs.table import duration

BESIDE_IN = 5.4  # width beside the controls
STRIP_IN = 1.15  # height of the samples
CAPTION_IN = 0.24
GAP_IN = 0.12
ROW_IN = 0.2  # height of one step
LEFT_IN, RIGHT_IN = 1.25, 0.95  # for the names and the amounts of the steps
WIDE = 3.0  # from this ratio between times on, the axis is logarithmic
BAR_PT = 7


@styled()
def picture(answer: Answer, *, beside: bool = False) -> Chart:
    """The samples of this reading and of the unbiased one; below them, the steps from one to the other. beside: without
    title and source, for a page that shows them beside it.
    """
    m, alt = answer.reading.measurement, ". ".join(answer.sentences)
    rows = (len(answer.steps) + 2) * ROW_IN if answer.steps else 0.0
    height = CAPTION_IN + STRIP_IN + (GAP_IN + CAPTION_IN + rows if answer.steps else 0.0)
    if beside:
        sheet = Page(Chart("reading", answer.headline, alt, BESIDE_IN, height + 0.1), BESIDE_IN, 0.05, height)
    else:
        title = f"{m.kernel} at {m.problem}: {answer.headline}"
        subtitle = f"{in_words(answer.settings)}: {answer.comparison}" if answer.changed else answer.comparison
        sheet = page("reading", title, subtitle, [m.label], [alt], height)
    bottom = sheet.body_top - CAPTION_IN - STRIP_IN
    caption = "samples in launch order" + (", unbiased ones in grey" if answer.changed else "")
    sheet.text(MARGIN_IN, sheet.body_top, caption, SMALL_PT, color=MUTED, va="top")
    _strip(sheet.axes(LEFT_IN, bottom, sheet.width - LEFT_IN - MARGIN_IN, STRIP_IN), answer)
    if answer.steps:
        top = bottom - GAP_IN
        caption = "what each setting adds to the time: orange inflates the result, blue deflates it"
        sheet.text(MARGIN_IN, top, caption, SMALL_PT, color=MUTED, va="top")
        _steps(sheet.axes(LEFT_IN, top - CAPTION_IN - rows, sheet.width - LEFT_IN - RIGHT_IN, rows), answer)
    return sheet.figure


def _strip(axes: Axes, answer: Answer) -> None:
    """Every sample that counts as a dot, and their estimate as a line."""
    colour = ALERT if answer.biased and answer.off < 0 else ACCENT  # orange inflates the result
    shown = [(answer.unbiased, GREY)] * bool(answer.changed) + [(answer.reading, colour)]
    for reading, colour in shown:
        axes.plot(range(1, len(reading.samples) + 1), reading.samples, "o", color=colour, markersize=3, alpha=0.85)
        axes.axhline(reading.time.value, color=colour, linewidth=1)
    low, high = _limits([us for reading, _ in shown for us in (*reading.samples, reading.time.value)], 1.25)
    logarithmic = low > 0 and high > WIDE * low
    axes.set_yscale("log" if logarithmic else "linear")
    axes.set_ylim(low, high)
    axes.minorticks_off()
    ticks = LogLocator(subs=(1, 3), numticks=5) if logarithmic else MaxNLocator(4, steps=[1, 2, 5, 10])
    axes.yaxis.set_major_locator(ticks)
    axes.yaxis.set_major_formatter(lambda us, _: duration(us))
    axes.set_xlim(0, max(len(reading.samples) for reading, _ in shown) + 1)
    axes.set_xticks([])
    axes.grid(True, axis="y")


def _steps(axes: Axes, answer: Answer) -> None:
    """A bar for each step, from the time before it to the time after."""
    names = ["unbiased", *(step.name for step in answer.steps), "this reading"]
    names = [shorten(name, BODY_PT, LEFT_IN - MARGIN_IN) for name in names]
    ends = [answer.unbiased.time.value, *(step.after.time.value for step in answer.steps)]
    amounts = [duration(ends[0]), *(step.amount for step in answer.steps), duration(answer.reading.time.value)]
    for row, step in enumerate(answer.steps, start=1):
        before, after = step.before.time.value, step.after.time.value
        colour = (ALERT if after < before else ACCENT) if step.visible else GREY
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
    """The values with a margin of at least 2 %, so that noise doesn't look like a cliff."""
    low, high = min(values), max(values)
    if low > 0 and high > WIDE * low:
        return low / air, high * air
    room = max((high - low) * 0.12, 0.02 * abs(high))
    return low - room, high + room
