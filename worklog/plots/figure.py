"""A figure that shows itself in a notebook, has an alt text, and is always saved to the same bytes, for a light page or
a dark one.

Matplotlib writes dates, versions and random ids into its files and no description for screen readers; this module
leaves out the former and adds the latter.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import resvg_py
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from worklog.errors import WorklogError
from worklog.plots.style import DARK, LIGHT, styled
from worklog.runs.table import Table

IN_THE_DARK = {LIGHT[role]: DARK[role] for role in LIGHT}
SCREEN_DPI, DPI = 100, 200
CODE = np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)  # of red, green, blue in a colour as one number


class Drawing:
    """A figure with a name (its file's stem), a headline (its finding) and an alt text, in a light and a dark palette.

    A subclass draws the SVG; the PNG is made from it, without any font, since the words are outlines. tables: what a
    notebook shows below it.
    """

    name: str
    headline: str
    alt: str
    tables: Sequence[Table] = ()

    def svg(self, *, dark: bool = False) -> str:
        """The figure as SVG with role, title and description for screen readers."""
        raise NotImplementedError

    def png(self, *, dark: bool = False) -> bytes:
        """The figure as PNG, twice as large as on screen, with title and description inside."""
        return self.encoded(self.svg(dark=dark))

    def encoded(self, svg: str) -> bytes:
        """This figure's SVG as PNG. 256 colours take a third of the bytes; surfaces keep their colour, only edges of
        letters move to the nearest. Compressed at level 7, since level 9 saves another 6 % in eight times as long.
        """
        small, words = io.BytesIO(), PngInfo()
        words.add_text("Title", self.headline)
        words.add_text("Description", self.alt)
        few_colours(rendered(svg)).save(small, "png", compress_level=7, pnginfo=words, dpi=(DPI, DPI))
        return small.getvalue()

    def _ipython_display_(self) -> None:
        """The figure and its tables as two outputs; without tables IPython shows the figure alone, as a result."""
        if not self.tables:
            raise NotImplementedError  # IPython goes on with _repr_mimebundle_
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        text, html = "\n".join(t.text() for t in self.tables), "".join(t.html() for t in self.tables)
        display({"text/plain": text, "text/html": html}, raw=True)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        """PNG in the light palette, twice as large as on screen, and the alt text.

        An SVG that follows its page's scheme would follow JupyterLab's theme, but GitHub prefers SVG and HTML to PNG
        and does not draw such SVGs completely (https://github.com/Cantera/cantera-jupyter/issues/37); both together
        would double what a notebook stores. The lab's pages are not stored and do follow the theme.
        """
        png = self.png()
        with Image.open(io.BytesIO(png)) as image:
            width, height = (round(SCREEN_DPI * pixels / DPI) for pixels in image.size)
        data = {"image/png": base64.b64encode(png).decode("ascii"), "text/plain": self.alt}
        return data, {"image/png": {"width": width, "height": height, "alt": self.alt}}


class Chart(Drawing, Figure):
    """A matplotlib figure as a Drawing, drawn in the light palette. Sizes in inches."""

    def __init__(self, name: str, headline: str, alt: str, width: float, height: float) -> None:
        super().__init__(figsize=(width, height))
        self.name, self.headline, self.alt = name, headline, alt

    def svg(self, *, dark: bool = False) -> str:
        """The figure as SVG with role, title and description for screen readers."""
        buffer = io.StringIO()
        with styled():
            self.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        title = f'<title id="{self.name}-title">{escape(self.headline)}</title>'
        description = f'<desc id="{self.name}-desc">{escape(self.alt)}</desc>'
        roles = f'role="img" aria-labelledby="{self.name}-title {self.name}-desc"'
        before, opening, after = buffer.getvalue().partition("<svg ")
        attributes, end, drawing = after.partition(">")
        svg = f"{before}{opening}{roles} {attributes}{end}\n {title}\n {description}{drawing}"
        return in_the_dark(svg) if dark else svg


def rendered(svg: str) -> Image.Image:
    """An SVG as pixels, twice as large as on screen."""
    png = resvg_py.svg_to_bytes(svg_string=svg, dpi=SCREEN_DPI, zoom=DPI / SCREEN_DPI, skip_system_fonts=True)
    return Image.open(io.BytesIO(png)).convert("RGB")


def in_the_dark(svg: str) -> str:
    """A chart's SVG in the dark palette: every colour of the light one replaced by its counterpart."""
    return re.sub("#[0-9a-f]{6}\\b", lambda found: IN_THE_DARK.get(found[0], found[0]), svg)


def few_colours(image: Image.Image, most: int = 256) -> Image.Image:
    """The image in its most frequent colours, which stay as they are; each rarer one becomes the nearest of them."""
    counted: Any = image.getcolors(image.width * image.height)
    colours = np.array([colour for _, colour in sorted(counted, key=lambda one: (-one[0], one[1]))], dtype=np.int64)
    kept = colours[:most]
    nearest = np.zeros(1 << 24, dtype=np.uint8)  # by colour as a number; only those that occur are filled
    nearest[colours @ CODE] = np.square(colours[:, None, :] - kept[None, :, :]).sum(axis=2).argmin(axis=1)
    indexed = Image.fromarray(nearest[np.asarray(image) @ CODE])
    indexed.putpalette(kept.astype(np.uint8).tobytes())
    return indexed


def save(figure: Drawing, path_stem: Path | str) -> list[Path]:
    """Write the figure as SVG and PNG, for a light page (`<path_stem>.svg`) and for a dark one
    (`<path_stem>_dark.svg`); return the four paths. Raises WorklogError if it cannot.
    """
    stem = Path(path_stem)
    paths = []
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        drawn = figure.svg()
        for name, text in ((stem.name, drawn), (f"{stem.name}_dark", in_the_dark(drawn))):
            svg, png = (stem.with_name(f"{name}.{kind}") for kind in ("svg", "png"))
            svg.write_text(text, encoding="utf-8", newline="\n")
            png.write_bytes(figure.encoded(text))
            paths += [svg, png]
    except OSError as error:
        what = f"cannot write the figure {stem}: {error.strerror}"
        raise WorklogError(f"{what}; give another folder with --out") from error
    return paths
