"""Figures: how they are shown and saved, the page around them, and the placement of texts.

Texts are placed so that no two overlap at any number of rows. Lengths are inches on the page.

Matplotlib writes dates, versions and random ids into its files and no description for screen
readers; this module leaves out the former and adds the latter, so that the same run gives the same
bytes.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import resvg_py
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.scale import LogScale
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from worklog.plots import style
from worklog.plots.style import BASELINE, BODY_PT, INK, MARGIN_IN, MUTED, PAPER, SMALL_PT, WIDTH_IN
from worklog.runs import scrolling, write_bytes

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The result of a chart that accepts `ax`: the axes, or a Chart if there are none.
    OnAxes = TypeVar("OnAxes", bound="Axes | Chart", default="Chart")

Point = tuple[float, float]
SCREEN_DPI = 100
DPI = 200
READABLE_PX = 560  # a narrower page scrolls
LANE = 0.15  # between two names of points
# between points whose names stand in one column, and to that column
COLUMN = 0.5
GAP = 0.14
ON_PAPER = {"facecolor": PAPER, "pad": 1.0}  # a box that puts a text in front of lines
# How JupyterLab and Notebook, Visual Studio Code, and Colab mark a dark page. There, the dark
# picture is the background of the light one, which is transparent. A page that drops styles, as
# GitHub does, shows the light one.
DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", "html[theme=dark]")
FOLLOW = "".join(
    f"{page} .worklog-chart{{background:var(--dark) 0 0/100% 100%}}{page} .worklog-chart img{{opacity:0}}"
    for page in DARK_PAGES
)


class Drawing:
    """A figure with a name, a headline and an alt text, in a light and a dark palette.

    The PNG is made from the SVG.
    """

    name: str  # the stem of its file
    headline: str  # its finding
    alt: str  # everything that the picture shows, in words
    rows: Sequence[str] = ()  # the part of `alt` that is a list: a text for each bar or line

    @property
    def summary(self) -> str:
        """The kind of picture and its finding, as the alt text next to a table of the rows."""
        kind = self.alt.partition(". ")[0].rstrip(".")
        return f"{kind}: {self.headline}"

    def table(self) -> str:
        """Return the rows as a Markdown table, then the rest of the alt text."""
        if not self.rows:
            return escape(self.alt, False)
        kind, _, _ = self.alt.partition(". ")
        _, _, source = self.alt.rpartition("Source: ")
        lines = [f"{kind}.", "", "| row | value |", "|---|---|"]
        for row in self.rows:
            text = row.replace("|", "/")
            name, _, value = text.partition(": " if ": " in text else " ")
            lines.append(f"| {name} | {value} |")
        return escape("\n".join([*lines, "", f"Source: {source}"]), False)

    def drawn(self) -> str:
        """Return the SVG in the light palette, with role, title and description.

        Screen readers use these three.
        """
        raise NotImplementedError

    def svg(self, *, dark: bool = False) -> str:
        """Return the figure as SVG."""
        return in_the_dark(self.drawn()) if dark else self.drawn()

    def png(self, *, dark: bool = False) -> bytes:
        """Return the figure as PNG, twice as large as on screen.

        It has the title and the description inside.
        """
        return self.encoded(self.svg(dark=dark))

    def encoded(self, svg: str) -> bytes:
        """Return this figure's SVG as PNG, in the fonts that come with matplotlib.

        256 colours need half of the bytes. Level 9 would save 6 % in eight times as long.
        """
        metadata = PngInfo()
        metadata.add_text("Title", self.headline)
        metadata.add_text("Description", self.alt)
        options: dict[str, Any] = {
            "dpi": SCREEN_DPI,
            "zoom": DPI / SCREEN_DPI,
            "font_family": "DejaVu Sans",
            "font_files": [str(path) for path in style.FONT_FILES.values()],
        }
        full_colour = resvg_py.svg_to_bytes(svg_string=svg, skip_system_fonts=True, **options)
        with Image.open(io.BytesIO(full_colour)) as image:
            quantized = image.convert("RGB").quantize(
                256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
            )
        buffer = io.BytesIO()
        quantized.save(buffer, "png", compress_level=7, pnginfo=metadata, dpi=(DPI, DPI))
        return buffer.getvalue()

    def spoken(self) -> tuple[str, str]:
        """Return attributes of an <svg> for screen readers, and its first elements.

        The attributes name these elements, the title and the description.
        """
        attributes = f'role="img" aria-labelledby="{self.name}-title {self.name}-desc"'
        title = f'<title id="{self.name}-title">{escape(self.headline)}</title>'
        description = f'<desc id="{self.name}-desc">{escape(self.alt)}</desc>'
        return attributes, f"{title}\n {description}"

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return HTML that follows the notebook's theme, a PNG, and alt text.

        The PNG is in the light palette, and twice as large as on screen. The HTML holds images, so
        two figures' ids can't clash. GitHub drops its styles, and our notebooks are stored without
        it: the PNG has a ground of its own and can be read on both themes.
        """
        svg = self.svg()
        pixels = self.encoded(svg)
        with Image.open(io.BytesIO(pixels)) as image:
            width, height = (round(SCREEN_DPI * side / DPI) for side in image.size)
        png = base64.b64encode(pixels).decode("ascii")
        dark = base64.b64encode(in_the_dark(svg).encode()).decode("ascii")
        box = f"display:inline-block;max-width:100%;min-width:{min(width, READABLE_PX)}px;line-height:0"
        box += f";--dark:url(data:image/svg+xml;base64,{dark})"
        size = f'width="{width}" style="max-width:100%;height:auto"'
        image_tag = f'<img src="data:image/png;base64,{png}" {size} alt="{escape(self.alt)}">'
        html = scrolling(
            f'<span class="worklog-chart" style="{box}">{image_tag}</span>', self.headline
        )
        metadata = {"image/png": {"width": width, "height": height, "alt": self.alt}}
        return {
            "text/html": f"<style>{FOLLOW}</style>{html}",
            "text/plain": self.alt,
            "image/png": png,
        }, metadata


def in_the_dark(svg: str) -> str:
    """Return a figure's SVG in the dark palette.

    Every colour of the light palette is replaced by its counterpart.
    """
    dark = {style.LIGHT[role]: style.DARK[role] for role in style.LIGHT}
    return re.sub("#[0-9a-f]{6}\\b", lambda colour: dark.get(colour[0], colour[0]), svg)


def rendered(figure: Drawing) -> dict[str, bytes]:
    """Return the files of a figure by the end of their names.

    They are SVG and PNG, for a light page and for a dark page.
    """
    light = figure.svg()
    files = dict[str, bytes]()
    for end, svg in (("", light), ("_dark", in_the_dark(light))):
        files[f"{end}.svg"] = svg.encode()
        files[f"{end}.png"] = figure.encoded(svg)
    return files


def write_figure(files: Mapping[str, bytes], path_stem: Path) -> list[Path]:
    """Write the files of `rendered`, each in one atomic step, and return their paths.

    Raises BadRunFile if a file can't be written.
    """
    paths = [path_stem.with_name(f"{path_stem.name}{end}") for end in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_bytes(path, content)
    return paths


def save(figure: Drawing, path_stem: Path | str) -> list[Path]:
    """Write the figure as SVG and PNG, for a light and for a dark page.

    Returns the four paths: `<path_stem>` and `<path_stem>_dark`, with .svg and with .png. Raises
    BadRunFile if a file can't be written.
    """
    return write_figure(rendered(figure), Path(path_stem))


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
        left: float,
        top: float,
        lines: Iterable[str],
        points: float = SMALL_PT,
        **properties: Any,
    ) -> float:
        """Write lines of text from `top` down; return the top of the next line.

        properties: of matplotlib's text
        """
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


def page(
    name: str,
    finding: str,
    subtitle: str,
    footer: Sequence[str],
    alt: Iterable[str],
    body_height: float,
    width: float = WIDTH_IN,
) -> Chart:
    """Return a chart with its texts in place and a free body of that height.

    Title, subtitle and footer are wrapped to fit.

    name: the stem of the chart's file
    finding: the title
    footer: the sources
    alt: the kind of chart, then a text for each of its rows; the alt text ends with the footer
        as the source
    """
    kind, *rows = alt
    line_width = 0.98 * (
        width - 2 * MARGIN_IN
    )  # drawn at 100 dpi, letters are up to that much wider
    title_lines = style.wrap(finding, style.TITLE_PT, line_width, bold=True)
    subtitle_lines = style.wrap(subtitle, style.SUBTITLE_PT, line_width)
    footer_lines = list[str]()
    for part in footer:
        footer_lines += style.wrap(part, SMALL_PT, line_width)
    title_height = style.line_height(style.TITLE_PT, len(title_lines))
    head = title_height + style.line_height(style.SUBTITLE_PT, len(subtitle_lines))
    foot = MARGIN_IN + style.line_height(SMALL_PT, len(footer_lines)) + 0.06
    pixels = SCREEN_DPI * (MARGIN_IN + head + 0.08 + body_height + foot)
    height = math.ceil(pixels) / SCREEN_DPI  # a part of a pixel would be drawn dark
    chart = Chart(figsize=(width, height))
    chart.name = name
    chart.headline = finding
    chart.alt = _alt_text(kind, rows, footer)
    chart.rows = rows
    chart.body_bottom = foot
    chart.body_top = foot + body_height
    top = chart.write(MARGIN_IN, height - MARGIN_IN, title_lines, style.TITLE_PT, weight="bold")
    chart.write(MARGIN_IN, top, subtitle_lines, style.SUBTITLE_PT, color=MUTED)
    chart.write(MARGIN_IN, foot - 0.06, footer_lines, color=MUTED)
    return chart


def _alt_text(kind: str, rows: Sequence[str], footer: Sequence[str]) -> str:
    """Return the kind of chart, its rows and its source, a sentence each."""
    sentences = [f"{kind.rstrip('.')}."]
    if rows:
        sentences.append(f"{'; '.join(rows)}.")
    if footer:
        sentences.append(f"Source: {'; '.join(footer)}.")
    return " ".join(sentences)


def on_axes(
    ax: OnAxes | None,
    draw: Callable[[Axes], None],
    *texts: Any,
    height: float,
    left: float,
    right: float = MARGIN_IN,
    above: float = 0.1,
    below: float = 0.42,
) -> OnAxes:
    """Draw a chart on one pair of axes: on the user's `ax`, or on a new page.

    As in seaborn, `ax` is returned if it is passed; then there is no title and no source, which
    are the user's. Otherwise the result is a Chart, which shows itself.

    draw: draws on these axes
    texts: name, finding, subtitle, footer and alt, as for page()
    height: of the axes, in the middle of the body
    left, right: from the page's edges to the axes
    above, below: from the body's edges to the axes
    """
    if ax is not None:
        draw(cast("Axes", ax))
        return ax
    name, finding, subtitle, footer, alt = texts
    chart = page(name, finding, subtitle, footer, alt, above + height + below)
    draw(chart.axes_at(left, chart.body_bottom + below, WIDTH_IN - left - right, height))
    return cast("OnAxes", chart)


def widest(lines: Iterable[str], points: float = BODY_PT) -> float:
    """Return the width of the longest of these lines of text in inches."""
    return max(style.text_width(line, points) for line in lines)


def right_of(names: Iterable[str]) -> float:
    """Return the left edge of axes right of row names, in inches.

    The row names start at the left margin.
    """
    return MARGIN_IN + widest(names) + 0.12


def name_rows(
    axes: Axes, names: Sequence[str], pitch: float, head: float = 0.0, middle: float = 0.5
) -> list[float]:
    """Name the rows of axes; return where the names are, in inches down from the top.

    pitch: the height of a row, in inches
    head: from the axes' top to the first row, in inches
    middle: where in a row its name is, from 0 at the top to 1 at the bottom
    """
    places = [head + pitch * (index + middle) for index in range(len(names))]
    axes.set_ylim(head + pitch * len(names), 0)
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return places


def annotate(
    axes: Axes, text: str, point: Point, gap: float = 5.0, lift: float = 0.0, **properties: Any
) -> None:
    """Write a text next to a data point.

    gap: in points; positive: the text starts that far right of the point; negative: it ends
        left of the point; 0: it is centred
    lift: how far the text is above the point, in points
    properties: of matplotlib's text, other than a small one in ink
    """
    side = "center"
    if gap > 0:
        side = "left"
    elif gap < 0:
        side = "right"
    defaults: dict[str, Any] = {
        "ha": side,
        "va": "center_baseline",
        "fontsize": SMALL_PT,
        "color": INK,
    }
    axes.annotate(text, point, (gap, lift), textcoords="offset points", **(defaults | properties))


def leave_room(axes: Axes, names: Iterable[str], points: float = SMALL_PT) -> None:
    """Make axes narrower, so that names right of their points fit (name_points).

    Call it before drawing.

    names: of points at the axes' right edge
    points: the size of the names
    """
    place = axes.get_position()
    room = (GAP + widest(names, points)) * axes.figure.dpi / axes.bbox.width * place.width
    axes.set_position(
        (place.x0, place.y0, max(place.width - room, 0.2 * place.width), place.height)
    )


def name_points(
    axes: Axes, names: Mapping[str, Point], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write names right of data points, with a thin line from each point to its name.

    The names of points that are near each other stand in one column, as high as their points or
    lower, and at least LANE apart.

    names: the data points by name
    looks: by name, properties of its text other than a small one in ink
    """
    axes.autoscale_view()  # matplotlib finds limits that follow the data only when it draws
    inches = axes.transData - axes.figure.dpi_scale_trans
    places = {name: inches.transform(point) for name, point in names.items()}
    top, bottom = (edge / axes.figure.dpi for edge in (axes.bbox.y1, axes.bbox.y0))
    arrow = {
        "arrowstyle": "-",
        "color": BASELINE,
        "linewidth": 0.6,
        "shrinkA": 1,
        "relpos": (0, 0.5),
    }
    for column in _columns(places):
        order = sorted(column, key=lambda name: (places[name][1], name))
        left = places[column[-1]][0] + GAP
        heights = _name_heights([places[name][1] for name in order], bottom, top)
        for name, height in zip(order, heights, strict=True):
            properties: dict[str, Any] = {
                "va": "center",
                "fontsize": SMALL_PT,
                "color": INK,
                "bbox": ON_PAPER,
                "textcoords": "offset points",
                "arrowprops": arrow,
                "annotation_clip": False,
                **looks.get(name, {}),
            }
            to_name = 72 * (np.array([left, height]) - places[name])
            axes.annotate(name, names[name], to_name, **properties)


def _columns(places: Mapping[str, Any]) -> list[list[str]]:
    """Return names in columns: a column has points within COLUMN of its first point.

    places: x and y of each point, in inches
    """
    columns = list[list[str]]()
    for name in sorted(places, key=lambda name: (places[name][0], name)):
        if not columns or places[name][0] - places[columns[-1][0]][0] > COLUMN:
            columns.append([])
        columns[-1].append(name)
    return columns


def _name_heights(heights: Sequence[float], bottom: float, top: float) -> Any:
    """Return the heights of a column's names, from those of its points, the lowest first."""
    lanes = LANE * np.arange(len(heights))
    # From the top down, no name is higher than its point or than LANE below the name above it.
    lowered = np.minimum.accumulate((np.array(heights) - lanes)[::-1])[::-1]
    return np.clip(lowered, bottom, top - lanes[-1]) + lanes


def scale(
    axis: Axis,
    locator: Locator | Sequence[float],
    label: str = "",
    limits: Point | None = None,
    *,
    log: float = 0,
    written: str = "{x:g}",
) -> None:
    """Set an axis's scale, label and ticks, without minor ticks.

    locator: places the ticks; or their values
    limits: default, those of what is drawn
    log: the base of a logarithmic scale
    written: the format of a tick's value
    """
    name = "x" if isinstance(axis, XAxis) else "y"
    if log:
        axis.axes.set(**{f"{name}scale": LogScale(axis, base=log)})
    if limits:
        axis.axes.set(**{f"{name}lim": limits})
    axis.set_label_text(label)
    if isinstance(locator, Locator):
        axis.set_major_locator(locator)
    else:
        axis.set_ticks(locator)
    axis.set_major_formatter(StrMethodFormatter(written))
    axis.set_minor_locator(NullLocator())


def tick_locator(low: float, high: float) -> Locator:
    """Return a locator of two to five round values between these on a log scale."""
    decades = math.log10(high / low)
    if decades < 0.9:
        return MaxNLocator(4, steps=[1, 2, 5, 10])
    return LogLocator(subs=(1, 3) if decades < 2 else (1,), numticks=4)
