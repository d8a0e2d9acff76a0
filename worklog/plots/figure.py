"""A figure: how it is shown and saved, the page around it, and where its words go so that no two overlap at any number
of rows. Lengths are inches on the page.

Matplotlib writes dates, versions and random ids into its files and no description for screen readers; this module
leaves out the former and adds the latter, so that the same run gives the same bytes.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

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

Point = tuple[float, float]
SCREEN_DPI = 100
DPI = 200
READABLE_PX = 560  # a narrower page scrolls
LANE = 0.15  # between two names of points
# between points whose names stand in one column, and to that column
COLUMN = 0.5
GAP = 0.14
BEHIND = {"facecolor": PAPER, "pad": 1.0}  # words stand in front of lines
# How JupyterLab and Notebook, Visual Studio Code, and Colab mark a dark page. There, the dark picture is the background
# of the light one, which is transparent. A page that drops styles, as GitHub does, shows the light one.
DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", "html[theme=dark]")
FOLLOW = "".join(
    f"{page} .worklog-chart{{background:var(--dark) 0 0/100% 100%}}{page} .worklog-chart img{{opacity:0}}"
    for page in DARK_PAGES
)


class Drawing:
    """A figure with a name (its file's stem), a headline (its finding) and an alt text, in a light and a dark palette.
    The PNG is made from the SVG.
    """

    name: str
    headline: str
    alt: str

    def drawn(self) -> str:
        """The SVG in the light palette, with role, title and description for screen readers."""
        raise NotImplementedError

    def svg(self, *, dark: bool = False) -> str:
        """The figure as SVG."""
        return in_the_dark(self.drawn()) if dark else self.drawn()

    def png(self, *, dark: bool = False) -> bytes:
        """The figure as PNG, twice as large as on screen, with title and description inside."""
        return self.encoded(self.svg(dark=dark))

    def encoded(self, svg: str) -> bytes:
        """This figure's SVG as PNG, in the fonts that come with matplotlib. 256 colours take half of the bytes; level 9
        saves 6 % in eight times as long.
        """
        small = io.BytesIO()
        words = PngInfo()
        fonts = [str(path) for path in style.FONT_FILES.values()]
        words.add_text("Title", self.headline)
        words.add_text("Description", self.alt)
        how: dict[str, Any] = {
            "dpi": SCREEN_DPI,
            "zoom": DPI / SCREEN_DPI,
            "font_family": "DejaVu Sans",
        }
        large = resvg_py.svg_to_bytes(
            svg_string=svg, skip_system_fonts=True, font_files=fonts, **how
        )
        with Image.open(io.BytesIO(large)) as image:
            few = image.convert("RGB").quantize(
                256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
            )
        few.save(small, "png", compress_level=7, pnginfo=words, dpi=(DPI, DPI))
        return small.getvalue()

    def spoken(self) -> tuple[str, str]:
        """For screen readers: the attributes of an <svg> that name its title and description, and these two."""
        title = f'<title id="{self.name}-title">{escape(self.headline)}</title>'
        description = f'<desc id="{self.name}-desc">{escape(self.alt)}</desc>'
        return (
            f'role="img" aria-labelledby="{self.name}-title {self.name}-desc"',
            f"{title}\n {description}",
        )

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """HTML that follows the notebook's theme, PNG in the light palette, twice as large as on screen, and alt text.

        The HTML holds images, so two figures' ids can't clash. GitHub drops its styles, and our notebooks are stored
        without it: the PNG has a ground of its own and can be read on both themes.
        """
        svg = self.svg()
        pixels = self.encoded(svg)
        with Image.open(io.BytesIO(pixels)) as image:
            width, height = (round(SCREEN_DPI * side / DPI) for side in image.size)
        png, dark = (
            base64.b64encode(data).decode("ascii") for data in (pixels, in_the_dark(svg).encode())
        )
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
    """A figure's SVG in the dark palette: every colour of the light one replaced by its counterpart."""
    dark = {style.LIGHT[role]: style.DARK[role] for role in style.LIGHT}
    return re.sub("#[0-9a-f]{6}\\b", lambda colour: dark.get(colour[0], colour[0]), svg)


def rendered(figure: Drawing) -> dict[str, bytes]:
    """Return the files of a figure by the end of their names: SVG and PNG, for a light page and a dark one."""
    light = figure.svg()
    files = dict[str, bytes]()
    for end, svg in (("", light), ("_dark", in_the_dark(light))):
        files[f"{end}.svg"] = svg.encode()
        files[f"{end}.png"] = figure.encoded(svg)
    return files


def write_figure(files: Mapping[str, bytes], path_stem: Path) -> list[Path]:
    """Write the files of `rendered`, each in one atomic step; return their paths. Raises BadRunFile if it cannot."""
    paths = [path_stem.with_name(f"{path_stem.name}{end}") for end in files]
    for path, content in zip(paths, files.values(), strict=True):
        write_bytes(path, content)
    return paths


def save(figure: Drawing, path_stem: Path | str) -> list[Path]:
    """Write the figure as SVG and PNG, for a light page (`<path_stem>.svg`) and for a dark one
    (`<path_stem>_dark.svg`); return the four paths. Raises BadRunFile if it cannot.
    """
    return write_figure(rendered(figure), Path(path_stem))


class Chart(Drawing, Figure):
    """A matplotlib figure as a Drawing, drawn in the light palette. Inches; y counts up from its lower edge.

    body_bottom, body_top: the part that is free of title and footer.
    """

    body_bottom: float
    body_top: float

    def axes_at(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes whose plotting area is exactly this rectangle."""
        wide, high = self.get_size_inches()
        return self.add_axes((left / wide, bottom / high, width / wide, height / high))

    def write(
        self, x: float, top: float, lines: Iterable[str], points: float = SMALL_PT, **how: Any
    ) -> float:
        """Lines of text, one below another from `top` on; return where the next one starts."""
        for line in lines:
            self.text(
                x,
                top,
                line,
                fontsize=points,
                **{"transform": self.dpi_scale_trans, "va": "top", **how},
            )
            top -= style.line_height(points)
        return top

    def drawn(self) -> str:
        """Matplotlib's SVG, to which role, title and description are added."""
        buffer = io.StringIO()
        with style.styled():
            self.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        head, opening, rest = re.split("<svg ([^>]*>)", buffer.getvalue(), maxsplit=1)
        roles, words = self.spoken()
        return f"{head}<svg {roles} {opening}\n {words}{rest}"


def page(
    name: str,
    finding: str,
    subtitle: str,
    footer: Sequence[str],
    alt: Iterable[str],
    body_height: float,
    width: float = WIDTH_IN,
) -> Chart:
    """A chart with its words in place and a free body of that height; title, subtitle and footer are wrapped to fit.

    alt: what the chart is, then what each of its rows says; the alt text ends with the footer as the source.
    """
    what, *rows = alt
    source = [f"Source: {'; '.join(footer)}."] if footer else []
    room = 0.98 * (width - 2 * MARGIN_IN)  # drawn at 100 dpi, letters are up to that much wider
    title = style.wrap(finding, style.TITLE_PT, room, bold=True)
    below_title = style.wrap(subtitle, style.SUBTITLE_PT, room)
    foot = [line for part in footer for line in style.wrap(part, SMALL_PT, room)]
    head = style.line_height(style.TITLE_PT, len(title)) + style.line_height(
        style.SUBTITLE_PT, len(below_title)
    )
    below = MARGIN_IN + style.line_height(SMALL_PT, len(foot)) + 0.06
    pixels = SCREEN_DPI * (MARGIN_IN + head + 0.08 + body_height + below)
    height = math.ceil(pixels) / SCREEN_DPI  # a part of a pixel would be drawn dark
    new = Chart(figsize=(width, height))
    new.name = name
    new.headline = finding
    new.alt = " ".join(
        [f"{what.rstrip('.')}.", *([f"{'; '.join(rows)}."] if rows else []), *source]
    )
    new.body_bottom = below
    new.body_top = below + body_height
    top = new.write(MARGIN_IN, height - MARGIN_IN, title, style.TITLE_PT, weight="bold")
    new.write(MARGIN_IN, top, below_title, style.SUBTITLE_PT, color=MUTED)
    new.write(MARGIN_IN, below - 0.06, foot, color=MUTED)
    return new


def on_axes(
    ax: Axes | None,
    draw: Callable[[Axes], None],
    *words: Any,
    height: float,
    left: float,
    right: float = MARGIN_IN,
    above: float = 0.1,
    below: float = 0.42,
) -> Any:
    """A chart on one pair of axes. As in seaborn, it is drawn on `ax` and that is returned where one is given: no title
    and no source then, which are the user's. Otherwise it gets a page, a Chart that shows itself.

    words: as page() takes them. left, right: from the page's edges to the axes. above, height, below: of the body, the
    axes in the middle.
    """
    if ax is not None:
        draw(ax)
        return ax
    name, finding, subtitle, footer, alt = words
    new = page(name, finding, subtitle, footer, alt, above + height + below)
    draw(new.axes_at(left, new.body_bottom + below, WIDTH_IN - left - right, height))
    return new


def widest(lines: Iterable[str], points: float = BODY_PT) -> float:
    """Width of the longest of these lines of text in inches."""
    return max(style.text_width(line, points) for line in lines)


def right_of(names: Iterable[str]) -> float:
    """The left edge of axes whose row names start at the left margin, in inches."""
    return MARGIN_IN + widest(names) + 0.12


def name_rows(
    axes: Axes, names: Sequence[str], pitch: float, head: float = 0.0, middle: float = 0.5
) -> list[float]:
    """Name rows that are `pitch` inches high, `head` inches below the axes' top, and return where the names are: at the
    `middle` of the rows, inches down from the top.
    """
    places = [head + pitch * (index + middle) for index in range(len(names))]
    axes.set_ylim(head + pitch * len(names), 0)
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return places


def beside(
    axes: Axes, words: str, at: Point, gap: float = 5.0, up: float = 0.0, **how: Any
) -> None:
    """Words that start `gap` points right of a data point; with a negative gap they end left of it, with 0 they are
    centred."""
    side = "center" if gap == 0 else "left" if gap > 0 else "right"
    usual: dict[str, Any] = {
        "ha": side,
        "va": "center_baseline",
        "fontsize": SMALL_PT,
        "color": INK,
    }
    axes.annotate(words, at, (gap, up), textcoords="offset points", **(usual | how))


def leave_room(axes: Axes, names: Iterable[str], points: float = SMALL_PT) -> None:
    """Make axes narrower, so that the names of points at their right edge fit (name_points). Call it before drawing.
    points: the size of the names.
    """
    place = axes.get_position()
    room = (GAP + widest(names, points)) * axes.figure.dpi / axes.bbox.width * place.width
    axes.set_position(
        (place.x0, place.y0, max(place.width - room, 0.2 * place.width), place.height)
    )


def name_points(
    axes: Axes, names: Mapping[str, Point], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Names right of data points, with a thin line to each. The names of points that are near each other stand in one
    column, as high as their points or lower, and at least LANE apart. looks: what differs from a small name in ink.
    """
    axes.autoscale_view()  # matplotlib finds limits that follow the data only when it draws
    inches = axes.transData - axes.figure.dpi_scale_trans
    at = {name: inches.transform(point) for name, point in names.items()}
    top, bottom = (edge / axes.figure.dpi for edge in (axes.bbox.y1, axes.bbox.y0))
    columns = list[list[str]]()
    for name in sorted(names, key=lambda name: (at[name][0], name)):
        if not columns or at[name][0] - at[columns[-1][0]][0] > COLUMN:
            columns.append([])
        columns[-1].append(name)
    arrow = {
        "arrowstyle": "-",
        "color": BASELINE,
        "linewidth": 0.6,
        "shrinkA": 1,
        "relpos": (0, 0.5),
    }
    for column in columns:
        order = sorted(column, key=lambda name: (at[name][1], name))
        lanes = LANE * np.arange(len(order))
        left = at[column[-1]][0] + GAP
        down = np.minimum.accumulate((np.array([at[name][1] for name in order]) - lanes)[::-1])[
            ::-1
        ]
        for name, height in zip(order, np.clip(down, bottom, top - lanes[-1]) + lanes, strict=True):
            usual: dict[str, Any] = {
                "va": "center",
                "fontsize": SMALL_PT,
                "color": INK,
                "bbox": BEHIND,
            }
            to_name = 72 * (np.array([left, height]) - at[name])
            usual |= {"textcoords": "offset points", "arrowprops": arrow, "annotation_clip": False}
            axes.annotate(name, names[name], to_name, **{**usual, **looks.get(name, {})})


def scale(
    axis: Axis,
    locator: Locator | Sequence[float],
    label: str = "",
    limits: Point | None = None,
    *,
    log: float = 0,
    written: str = "{x:g}",
) -> None:
    """An axis with ticks where the locator puts them, or at these values, with their values written out; no minor ones.
    limits: by default those of what is drawn. log: the base of a logarithmic scale."""
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


def a_few(low: float, high: float) -> Locator:
    """Two to five round values on a log scale between these."""
    decades = math.log10(high / low)
    if decades < 0.9:
        return MaxNLocator(4, steps=[1, 2, 5, 10])
    return LogLocator(subs=(1, 3) if decades < 2 else (1,), numticks=4)
