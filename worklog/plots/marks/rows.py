"""Named rows of horizontal bars, from the top down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from worklog.plots import style
from worklog.plots.marks.text import ON_PAPER, annotate, widest
from worklog.plots.style import ACCENT, INK, MARGIN_IN, MUTED, PAPER, SMALL_PT


@dataclass(frozen=True)
class RowBar:
    """A bar with whiskers and a text. Lengths are in the unit of the x axis."""

    length: float
    text: str = ""
    colour: str = ACCENT  # PAPER: hollow
    start: float = 0.0
    interval: tuple[float, float] | None = None  # the ends of the whiskers
    outline_pt: float = 0.0


@dataclass(frozen=True)
class Rows:
    """Named rows of bars. Lengths are inches; a row's y counts down from the axes' top."""

    names: Sequence[str]
    pitch: float  # the height of a row
    thickness: float = 0.15  # of a bar
    head: float = 0.0  # from the axes' top to the first row
    middle: float = 0.5  # where in a row its name and bar are, from 0 at the top to 1
    text_pt: float = SMALL_PT
    text_gap_pt: float = 3.0  # from a bar to its text

    @property
    def height(self) -> float:
        """The height of the axes."""
        return self.head + self.pitch * len(self.names)

    @property
    def left(self) -> float:
        """The left edge of the axes. The names start at the page's left margin."""
        return MARGIN_IN + widest(self.names) + 0.12

    @property
    def ys(self) -> list[float]:
        """The y of each row's name and bar."""
        return [self.head + self.pitch * (index + self.middle) for index in range(len(self.names))]

    def draw(self, axes: Axes, bars: Sequence[RowBar], *, hidden: bool = False) -> None:
        """Draw the names, and a bar in each row.

        hidden: as of draw_names
        """
        self.draw_names(axes, hidden=hidden)
        for row_y, bar in zip(self.ys, bars, strict=True):
            self.draw_bar(axes, row_y, bar)

    def draw_names(self, axes: Axes, *, hidden: bool = False) -> None:
        """Prepare the y axis.

        hidden: True for axes right of the axes that have the names
        """
        axes.set_ylim(self.height, 0)
        axes.set_yticks(self.ys, [""] * len(self.names) if hidden else self.names)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)

    def draw_bar(self, axes: Axes, row_y: float, bar: RowBar) -> None:
        """Draw a bar with its text right of it."""
        self._draw_body(axes, row_y, bar)
        if bar.text:
            point = (bar.start + bar.length, row_y)
            annotate(axes, bar.text, point, gap=self.text_gap_pt, fontsize=self.text_pt)

    def draw_bar_off_line(self, axes: Axes, row_y: float, bar: RowBar, line: float) -> None:
        """Draw a bar with its text inside it if the text fits, else next to it.

        line: the x of a vertical line that the text doesn't cross
        """
        self._draw_body(axes, row_y, bar)
        middle = bar.start + bar.length
        low, high = bar.interval or (middle, middle)
        text_length = (style.text_width(bar.text, self.text_pt) + 0.2) * inch(axes)
        end = min(middle, low)
        if end > text_length:
            if max(end - text_length, text_length) < line < end:
                end = line
            colour = PAPER if bar.colour == ACCENT else INK
            annotate(axes, bar.text, (end, row_y), gap=-5, fontsize=self.text_pt, color=colour)
            return
        start = max(middle, high)
        if start < line < start + text_length:
            start = line
        annotate(axes, bar.text, (start, row_y), fontsize=self.text_pt, bbox=ON_PAPER)

    def _draw_body(self, axes: Axes, row_y: float, bar: RowBar) -> None:
        """Draw a bar and its whiskers."""
        axes.barh(
            row_y,
            bar.length,
            self.thickness,
            bar.start,
            color=bar.colour,
            edgecolor=ACCENT,
            linewidth=bar.outline_pt,
        )
        if bar.interval is None:
            return
        middle = bar.start + bar.length
        low, high = bar.interval
        axes.errorbar(
            middle,
            row_y,
            xerr=[[max(middle - low, 0.0)], [max(high - middle, 0.0)]],
            color=INK,
            elinewidth=1.0,
            capsize=10 * self.thickness,
            capthick=1.0,
        )


def inch(axes: Axes) -> float:
    """Return the length of an inch in the unit of an x axis that starts at 0."""
    return axes.get_xlim()[1] * axes.figure.dpi / axes.bbox.width


def reference_line(axes: Axes, position: float, text: str, top: float) -> None:
    """Draw a vertical line through rows, from `top` down.

    The text is next to the line's upper end, on the side with more space.

    position: the line's x
    """
    axes.plot(
        [position, position],
        [top - 0.06, axes.get_ylim()[0]],
        color=MUTED,
        linewidth=0.9,
        zorder=0.5,
        clip_on=False,
    )
    gap = 4 if position < axes.get_xlim()[1] / 3 else -4
    annotate(axes, text, (position, top), gap=gap, va="center", color=MUTED, annotation_clip=False)
