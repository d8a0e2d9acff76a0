"""The panel's picture: the samples of a reading and of the unbiased one, and the steps from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from worklog.plots import figure
from worklog.plots.figure import BODY_PT, INK, MARGIN_IN, MUTED, SMALL_PT, Chart
from worklog.plots.page import Page, page
from worklog.runs import duration

if TYPE_CHECKING:
    from worklog.lab.panel_answer import Answer

Row = tuple[str, str, float, float, str]  # of the steps: name, role ("dot": one time only), from, to, and words
# Inches: widths beside the controls, left and right of the steps; heights of the samples, a caption, a gap, a step.
BESIDE_IN, LEFT_IN, RIGHT_IN, STRIP_IN, CAPTION_IN, GAP_IN, ROW_IN = 5.4, 1.7, 0.95, 1.15, 0.24, 0.12, 0.2
BAR_PT = 7
WIDE = 3.0  # from this ratio between times on, the axis is logarithmic


@dataclass(frozen=True)
class Axis:
    """An axis of microseconds from low to high, logarithmic where the values differ much."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def around(cls, values: Sequence[float], air: float) -> Axis:
        """With a margin: the factor `air` if logarithmic, else at least 2 %, so that noise isn't drawn as a cliff."""
        low, high = min(values), max(values)
        if low > 0 and high > WIDE * low:
            return cls(low / air, high * air, True)
        room = max((high - low) * 0.12, 0.02 * abs(high))
        return cls(low - room, high + room, False)

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Axis:
        """The axis of the steps."""
        return cls.around([after for _, _, _, after, _ in rows], 1.15)

    @property
    def scale(self) -> str:
        """As matplotlib names it."""
        return "log" if self.logarithmic else "linear"

    @property
    def ticks(self) -> Locator:
        """Where the axis has ticks."""
        return LogLocator(subs=(1, 3), numticks=5) if self.logarithmic else MaxNLocator(4, steps=[1, 2, 5, 10])


@figure.styled()
def picture(answer: Answer, title: str = "", subtitle: str = "") -> Chart:
    """The samples of this reading and of the unbiased one; below them, the steps from one to the other. Without a
    title, for a page that shows title and source beside it.
    """
    m, alt, rows = answer.reading.measurement, ". ".join(answer.sentences), answer.rows
    high = len(rows) * ROW_IN
    height = CAPTION_IN + STRIP_IN + (GAP_IN + CAPTION_IN + high if rows else 0.0)
    if title:
        sheet = page("reading", title, subtitle, [m.label], [alt], height)
    else:
        sheet = Page(Chart("reading", answer.headline, alt, BESIDE_IN, height + 0.1), 0.05, 0.05 + height)
    bottom, wide = sheet.body_top - CAPTION_IN - STRIP_IN, sheet.figure.get_figwidth() - LEFT_IN
    caption = "samples in launch order" + (", unbiased ones in grey" if answer.changed else "")
    sheet.text(MARGIN_IN, sheet.body_top, caption, SMALL_PT, color=MUTED, va="top")
    _samples(sheet.axes(LEFT_IN, bottom, wide - MARGIN_IN, STRIP_IN), answer)
    if rows:
        top = bottom - GAP_IN
        caption = "what each setting adds to the time: orange inflates the result, blue deflates it, grey is noise"
        sheet.text(MARGIN_IN, top, caption, SMALL_PT, color=MUTED, va="top")
        names = [figure.shorten(name, BODY_PT, LEFT_IN - MARGIN_IN) for name, *_ in rows]
        _steps(sheet.rows(LEFT_IN, top - CAPTION_IN - high, wide - RIGHT_IN, ROW_IN, names), rows)
    return sheet.figure


def _samples(axes: Axes, answer: Answer) -> None:
    """Every sample that counts as a dot, and their estimate as a line."""
    for role, reading in answer.shown:
        colour, numbers = figure.LIGHT[role], range(1, len(reading.samples) + 1)
        axes.plot(numbers, reading.samples, "o", color=colour, markersize=3, alpha=0.85)
        axes.axhline(reading.time.value, color=colour, linewidth=1)
    us = Axis.around([us for _, reading in answer.shown for us in (*reading.samples, reading.time.value)], 1.25)
    axes.set_yscale(us.scale)
    axes.set_ylim(us.low, us.high)
    axes.minorticks_off()
    axes.yaxis.set_major_locator(us.ticks)
    axes.yaxis.set_major_formatter(lambda us, _: duration(us))
    axes.set_xlim(0, max(len(reading.samples) for _, reading in answer.shown) + 1)
    axes.set_xticks([])
    axes.grid(True, axis="y")


def _steps(axes: Axes, rows: list[Row]) -> None:
    """A bar for each step, in a row of its own, from the time before it to the time after."""
    us, places = Axis.of_rows(rows), list(axes.get_yticks())
    axes.set_xscale(us.scale)
    axes.set_xlim(us.low, us.high)
    axes.minorticks_off()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    for y, previous, (_, role, before, after, words) in zip(places, [rows[0], *rows[:-1]], rows, strict=True):
        axes.axhline(y, color=figure.FAINT, linewidth=0.5, zorder=0)
        axes.text(1.02, y, words, transform=axes.get_yaxis_transform(), va="center", color=INK)
        if role == "dot":
            axes.plot(before, y, "o", color=INK, markersize=4.5, zorder=3)
        else:
            colour = figure.LIGHT[role]
            axes.plot([before, after], [y, y], color=colour, linewidth=BAR_PT, solid_capstyle="butt", zorder=2)
        if y > places[0]:
            axes.plot([previous[3], before], [y - places[1] + places[0], y], color=MUTED, linewidth=0.6, zorder=1)
