"""A page: title (the finding), subtitle (what is plotted) and footer (the source) around a free body, in inches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text

from worklog.plots.figure import Chart
from worklog.plots.style import (
    BODY_PT,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    SUBTITLE_PT,
    TITLE_PT,
    WIDTH_IN,
    line_height,
    wrap,
)


@dataclass(frozen=True)
class Page:
    """A figure with its words in place and a free body. Inches; y counts up from the figure's lower edge."""

    figure: Chart
    width: float
    body_bottom: float
    body_height: float

    @property
    def body_top(self) -> float:
        """Upper edge of the body."""
        return self.body_bottom + self.body_height

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes whose plotting area is exactly this rectangle."""
        whole = self.figure.get_figheight()
        return self.figure.add_axes((left / self.width, bottom / whole, width / self.width, height / whole))

    def text(self, x: float, y: float, words: str, points: float = BODY_PT, **how: Any) -> Text:
        """Text at a place on the page."""
        return self.figure.text(x, y, words, fontsize=points, transform=self.figure.dpi_scale_trans, **how)

    def line(self, start: tuple[float, float], end: tuple[float, float], **how: Any) -> None:
        """A straight line on the page."""
        across, up = zip(start, end, strict=True)
        self.figure.add_artist(Line2D(across, up, transform=self.figure.dpi_scale_trans, **how))


def page(
    name: str, title: str, subtitle: str, footer: list[str], alt: str, body_height: float, width: float = WIDTH_IN
) -> Page:
    """A page for a body of that height; title, subtitle and footer are wrapped to fit."""
    room = 0.98 * (width - 2 * MARGIN_IN)  # drawn at 100 dpi, letters are up to that much wider
    titles = wrap(title, TITLE_PT, room, bold=True)
    subtitles = wrap(subtitle, SUBTITLE_PT, room)
    footers = [line for part in footer for line in wrap(part, SMALL_PT, room)]
    head = MARGIN_IN + line_height(TITLE_PT, len(titles)) + line_height(SUBTITLE_PT, len(subtitles)) + 0.08
    foot = MARGIN_IN + line_height(SMALL_PT, len(footers)) + 0.06
    height = head + body_height + foot
    new = Page(Chart(name, title, alt, width, height), width, foot, body_height)
    top = height - MARGIN_IN
    for line in titles:
        new.text(MARGIN_IN, top, line, TITLE_PT, weight="bold", va="top")
        top -= line_height(TITLE_PT)
    for line in subtitles:
        new.text(MARGIN_IN, top, line, SUBTITLE_PT, color=MUTED, va="top")
        top -= line_height(SUBTITLE_PT)
    for index, line in enumerate(footers):
        y = MARGIN_IN + line_height(SMALL_PT, len(footers) - index)
        new.text(MARGIN_IN, y, line, SMALL_PT, color=MUTED, va="top")
    return new
