"""Figures as SVG, PNG and HTML, in a light and a dark palette, and as files.

Matplotlib writes dates, versions and random ids into its files and no description for screen
readers; this module leaves out the former and adds the latter, so that the same run gives the same
bytes.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import resvg_py
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from worklog.plots import style
from worklog.runs.files import write_bytes
from worklog.runs.text import scrolling

SCREEN_DPI = 100
DPI = 200
READABLE_PX = 560  # a narrower page scrolls
# How JupyterLab and Notebook, Visual Studio Code, and Colab mark a dark page. There, the dark
# picture is the background of the light one, which is transparent. A page that drops styles, as
# GitHub does, shows the light one.
DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", "html[theme=dark]")
FOLLOW = "".join(
    f"{page} .worklog-chart{{background:var(--dark) 0 0/100% 100%}}"
    f"{page} .worklog-chart img{{opacity:0}}"
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

        A reader says the title as the picture's name; the description, which holds every value, can
        be left out.
        """
        attributes = (
            f'role="img" aria-labelledby="{self.name}-title" aria-describedby="{self.name}-desc"'
        )
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
        box = f"display:inline-block;max-width:100%;min-width:{min(width, READABLE_PX)}px"
        box += f";line-height:0;--dark:url(data:image/svg+xml;base64,{dark})"
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
