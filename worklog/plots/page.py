"""The page of a chart: its title, subtitle and sources around a body with axes.

Lengths are inches on the page.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from worklog.plots import style
from worklog.plots.drawing import SCREEN_DPI, Drawing
from worklog.plots.style import MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The result of a chart that accepts `ax`: the axes, or a Chart if there are none.
    OnAxes = TypeVar("OnAxes", bound="Axes | Chart", default="Chart")


@dataclass(frozen=True)
class Texts:
    """The texts of a chart."""

    name: str  # the stem of the chart's file
    finding: str  # the title
    subtitle: str
    footer: Sequence[str]  # the sources
    # The kind of chart, then a text for each of its rows. The alt text ends with the footer.
    alt: Sequence[str]


@dataclass(frozen=True)
class Margins:
    """The space around a chart's axes, in inches."""

    left: float  # from the page's edge
    right: float = MARGIN_IN  # from the page's edge
    above: float = 0.1  # from the body's edge
    below: float = 0.42  # from the body's edge


class Chart(Drawing, Figure):
    """A matplotlib figure as a Drawing, drawn in the light palette.

    Lengths are inches; y counts up from the lower edge.
    """

    # The part that is free of title and footer.
    body_bottom: float
    body_top: float

    def axes_at(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Add axes whose plotting area is exactly this rectangle."""
        page_width, page_height = self.get_size_inches()
        return self.add_axes(
            (left / page_width, bottom / page_height, width / page_width, height / page_height)
        )

    def write(
        self,
        corner: tuple[float, float],
        lines: Iterable[str],
        points: float = SMALL_PT,
        **properties: Any,
    ) -> float:
        """Write lines of text below each other; return the top of the next line.

        corner: the upper left corner of the first line
        properties: of matplotlib's text
        """
        left, top = corner
        for line in lines:
            placement: dict[str, Any] = {"transform": self.dpi_scale_trans, "va": "top"}
            self.text(left, top, line, fontsize=points, **(placement | properties))
            top -= style.line_height(points)
        return top

    def drawn(self) -> str:
        """Return matplotlib's SVG, with role, title and description added."""
        buffer = io.StringIO()
        with style.styled():
            self.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        head, opening, content = re.split("<svg ([^>]*>)", buffer.getvalue(), maxsplit=1)
        roles, descriptions = self.spoken()
        return f"{head}<svg {roles} {opening}\n {descriptions}{content}"


def page(texts: Texts, body_height: float, width: float = WIDTH_IN) -> Chart:
    """Return a chart with its texts in place and a free body of that height.

    Title, subtitle and footer are wrapped to fit.
    """
    line_width = 0.98 * (width - 2 * MARGIN_IN)  # at 100 dpi, letters are up to 2 % wider
    title = style.wrap(texts.finding, style.TITLE_PT, line_width, bold=True)
    subtitle = style.wrap(texts.subtitle, style.SUBTITLE_PT, line_width)
    footer = list[str]()
    for part in texts.footer:
        footer += style.wrap(part, SMALL_PT, line_width)
    head = style.line_height(style.TITLE_PT, len(title))
    head += style.line_height(style.SUBTITLE_PT, len(subtitle))
    foot = MARGIN_IN + style.line_height(SMALL_PT, len(footer)) + 0.06
    pixels = SCREEN_DPI * (MARGIN_IN + head + 0.08 + body_height + foot)
    height = math.ceil(pixels) / SCREEN_DPI  # a part of a pixel would be drawn dark
    chart = Chart(figsize=(width, height))
    chart.name = texts.name
    chart.headline = texts.finding
    chart.alt = _alt_text(texts)
    chart.rows = texts.alt[1:]
    chart.body_bottom = foot
    chart.body_top = foot + body_height
    top = chart.write((MARGIN_IN, height - MARGIN_IN), title, style.TITLE_PT, weight="bold")
    chart.write((MARGIN_IN, top), subtitle, style.SUBTITLE_PT, color=MUTED)
    chart.write((MARGIN_IN, foot - 0.06), footer, color=MUTED)
    return chart


def _alt_text(texts: Texts) -> str:
    """Return the kind of chart, its rows and its source, a sentence each."""
    kind, *rows = texts.alt
    sentences = [f"{kind.rstrip('.')}."]
    if rows:
        sentences.append(f"{'; '.join(rows)}.")
    if texts.footer:
        sentences.append(f"Source: {'; '.join(texts.footer)}.")
    return " ".join(sentences)


def on_axes(
    ax: OnAxes | None,
    draw: Callable[[Axes], None],
    texts: Texts,
    *,
    height: float,
    margins: Margins,
) -> OnAxes:
    """Draw a chart on one pair of axes: on the user's `ax`, or on a new page.

    As in seaborn, `ax` is returned if it is passed; then there is no title and no source, which
    are the user's. Otherwise the result is a Chart, which shows itself.

    draw: draws on these axes
    height: of the axes, in inches
    """
    if ax is not None:
        draw(cast("Axes", ax))
        return ax
    chart = page(texts, margins.above + height + margins.below)
    width = WIDTH_IN - margins.left - margins.right
    draw(chart.axes_at(margins.left, chart.body_bottom + margins.below, width, height))
    return cast("OnAxes", chart)
