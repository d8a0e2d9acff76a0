"""How every figure looks, is shown and is saved; and the page that shows all of them.

Charts are laid out in inches with measured text, not by an automatic layout, so that nothing overlaps at any number of
rungs and the same run gives the same bytes.

Matplotlib writes dates, versions and random ids into its files and no description for screen readers; this module
leaves out the former and adds the latter. The page of all figures is Markdown named README.md, so that a repository
shows it with the folder.
"""

from __future__ import annotations

import base64
import io
import re
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
import resvg_py
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font
from matplotlib.ft2font import FT2Font, LoadFlags
from matplotlib.path import Path as Outline
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from worklog.errors import WorklogError
from worklog.runs import Table, write_bytes

_FILE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("style.toml").read_text(encoding="utf-8"))

# By role, as "#rrggbb". Charts are drawn in the light palette; Chart replaces its colours for the dark one.
LIGHT: Mapping[str, str] = _FILE["light"]
DARK: Mapping[str, str] = _FILE["dark"]

PAPER, INK, MUTED, GREY = LIGHT["paper"], LIGHT["ink"], LIGHT["muted"], LIGHT["grey"]
BASELINE, FAINT = LIGHT["baseline"], LIGHT["faint"]
ACCENT, ALERT, OTHER = LIGHT["accent"], LIGHT["alert"], LIGHT["other"]
INFLATES, DEFLATES = LIGHT["inflates"], LIGHT["deflates"]

SETTINGS = {name: LIGHT.get(value, value) for name, value in _FILE["matplotlib"].items()}

# Font size in pt and whether it is bold, by a text's class.
TEXT: Mapping[str, tuple[float, bool]] = {name: (float(pt), bold) for name, (pt, bold) in _FILE["text"].items()}
TITLE_PT, SUBTITLE_PT, BODY_PT, SMALL_PT = (TEXT[name][0] for name in ("title", "subtitle", "body", "small"))
LINE = 1.3  # distance of two lines of text, in font sizes
WIDTH_IN = 7.0
MARGIN_IN = 0.14
COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CLOSEPOLY: "Z"}

_DRAWING = threading.RLock()


@contextmanager
def styled() -> Iterator[None]:
    """The article's style on top of matplotlib's defaults, whatever the user's own settings are. Also a decorator.

    Matplotlib's settings belong to the process, so one thread draws at a time: JupyterLab delivers the events of a page
    on several.
    """
    with _DRAWING, matplotlib.style.context(["default", SETTINGS], after_reset=True):
        yield


def face(bold: bool) -> FT2Font:
    """The one typeface, in the copy that comes with matplotlib."""
    return get_font(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"DejaVuSans{'-Bold' if bold else ''}.ttf")


@lru_cache(maxsize=4096)
def text_width(text: str, points: float, bold: bool = False) -> float:
    """Width of one line of text in inches, without kerning, which only moves letters closer."""
    return sum(glyph(letter, bold)[1] for letter in text) / face(bold).units_per_EM * points / 72


@lru_cache(maxsize=1024)
def glyph(letter: str, bold: bool) -> tuple[str, int]:
    """A letter's outline as SVG, and from it to the next letter, both in the font's own units."""
    font = face(bold)
    advance = int(font.load_char(ord(letter), flags=LoadFlags.NO_SCALE).horiAdvance)
    outline = ""
    for points, code in Outline(*font.get_path()).iter_segments(simplify=False):
        outline += COMMANDS[code] + ("" if code == Outline.CLOSEPOLY else " ".join(f"{64 * p:.0f}" for p in points))
    return outline, advance


def line_height(points: float, lines: int = 1) -> float:
    """Height of that many lines of text in inches."""
    return lines * LINE * points / 72


def wrap(text: str, points: float, width: float, *, bold: bool = False, most: int = 99) -> list[str]:
    """The text in lines of at most `width` inches; beyond `most` lines, the last one ends in an ellipsis."""
    first, *words = re.split("[ \n]+", text.strip(" \n"))  # not at a no-break space
    lines = [first]
    for word in words:
        if text_width(longer := f"{lines[-1]} {word}", points, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [shorten(line, points, width, bold=bold) for line in lines]


def shorten(text: str, points: float, width: float, *, bold: bool = False) -> str:
    """The text, cut with an ellipsis where it is wider than `width` inches."""
    kept, end = text, ""
    while kept and text_width(kept + end, points, bold) > width:
        kept, end = kept[:-1], "…"
    return kept.rstrip() + end if end else text


IN_THE_DARK = {LIGHT[role]: DARK[role] for role in LIGHT}
SCREEN_DPI, DPI = 100, 200
# How JupyterLab and Notebook, Visual Studio Code, and Colab mark a dark page. There, the dark picture is the background
# of the light one, which is transparent. A page that drops styles, as GitHub does, shows the light one.
DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", "html[theme=dark]")
FOLLOW = "".join(
    f"{page} .worklog-chart{{background:var(--dark) 0 0/100% 100%}}{page} .worklog-chart img{{opacity:0}}"
    for page in DARK_PAGES
)
CODE = np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)  # of red, green, blue in a colour as one number


class Drawing:
    """A figure with a name (its file's stem), a headline (its finding) and an alt text, in a light and a dark palette.

    A subclass draws the SVG in the light palette; the PNG is made from it, without any font, since the words are
    outlines. tables: what a notebook shows below it.
    """

    name: str
    headline: str
    alt: str
    tables: Sequence[Table] = ()

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
        """This figure's SVG as PNG. 256 colours take a third of the bytes; surfaces keep their colour, only edges of
        letters move to the nearest. Compressed at level 7, since level 9 saves another 6 % in eight times as long.
        """
        small, words = io.BytesIO(), PngInfo()
        words.add_text("Title", self.headline)
        words.add_text("Description", self.alt)
        few_colours(rendered(svg)).save(small, "png", compress_level=7, pnginfo=words, dpi=(DPI, DPI))
        return small.getvalue()

    def html(self, svg: str = "", png: bytes = b"", width: int = 700) -> str:
        """Images, at most `width` pixels wide, in the palette of the notebook's theme: two figures' ids can't clash in
        them. svg: the drawing, if it is drawn already. png: shown on a light page, and where a page drops styles.
        """
        svg = svg or self.svg()
        light = data_uri("png", png) if png else data_uri("svg+xml", svg.encode())
        size = f'width="{width}" style="max-width:100%;height:auto"'
        image = f'<img src="{light}" {size} alt="{escape(self.alt)}">'
        dark = data_uri("svg+xml", in_the_dark(svg).encode())
        box = f"display:inline-block;max-width:100%;line-height:0;--dark:url({dark})"
        return f'<style>{FOLLOW}</style><span class="worklog-chart" style="{box}">{image}</span>'

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
        """HTML that follows the notebook's theme, PNG in the light palette, twice as large as on screen, and alt text.

        GitHub prefers HTML and SVG to PNG, but drops styles and does not draw every SVG
        (https://github.com/Cantera/cantera-jupyter/issues/37). So our notebooks are stored without the HTML: the
        PNG has a ground of its own and can be read on both themes.
        """
        svg = self.svg()
        png = self.encoded(svg)
        with Image.open(io.BytesIO(png)) as image:
            width, height = (round(SCREEN_DPI * pixels / DPI) for pixels in image.size)
        data = {"text/html": self.html(svg, png, width), "text/plain": self.alt}
        data["image/png"] = base64.b64encode(png).decode("ascii")
        return data, {"image/png": {"width": width, "height": height, "alt": self.alt}}


class Chart(Drawing, Figure):
    """A matplotlib figure as a Drawing, drawn in the light palette. Sizes in inches."""

    def __init__(self, name: str, headline: str, alt: str, width: float, height: float) -> None:
        super().__init__(figsize=(width, height))
        self.name, self.headline, self.alt = name, headline, alt

    def drawn(self) -> str:
        """Matplotlib's SVG, to which role, title and description are added."""
        buffer = io.StringIO()
        with styled():
            self.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        roles = f'<svg role="img" aria-labelledby="{self.name}-title {self.name}-desc" '
        title = f'<title id="{self.name}-title">{escape(self.headline)}</title>'
        words = f'{title}\n <desc id="{self.name}-desc">{escape(self.alt)}</desc>'
        head, opening, rest = re.split("<svg ([^>]*>)", buffer.getvalue(), maxsplit=1)
        return f"{head}{roles}{opening}\n {words}{rest}"


def data_uri(kind: str, image: bytes) -> str:
    """An image as an address."""
    return f"data:image/{kind};base64,{base64.b64encode(image).decode('ascii')}"


def rendered(svg: str) -> Image.Image:
    """An SVG as pixels, twice as large as on screen."""
    png = resvg_py.svg_to_bytes(svg_string=svg, dpi=SCREEN_DPI, zoom=DPI / SCREEN_DPI, skip_system_fonts=True)
    return Image.open(io.BytesIO(png)).convert("RGB")


def in_the_dark(svg: str) -> str:
    """A figure's SVG in the dark palette: every colour of the light one replaced by its counterpart."""
    return re.sub("#[0-9a-f]{6}\\b", lambda found: IN_THE_DARK.get(found[0], found[0]), svg)


def few_colours(image: Image.Image, most: int = 256) -> Image.Image:
    """The image in its most frequent colours, which stay as they are; each rarer one becomes the nearest of them."""
    counted: Any = image.getcolors(image.width * image.height)
    colours = np.array([colour for _, colour in sorted(counted, key=lambda one: (-one[0], one[1]))], dtype=np.int64)
    kept = colours[:most]
    nearest = np.zeros(1 << 24, dtype=np.uint8)  # by colour as a number; only those that occur are filled
    # |c - k|² without |c|², which is the same for every k.
    nearest[colours @ CODE] = (np.square(kept).sum(axis=1) - 2 * colours @ kept.T).argmin(axis=1)
    indexed = Image.fromarray(nearest[np.asarray(image) @ CODE])
    indexed.putpalette(kept.astype(np.uint8).tobytes())
    return indexed


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise WorklogError where a file of the figures cannot be written."""
    try:
        yield
    except OSError as error:
        raise WorklogError(f"cannot write {what}: {error.strerror}; give another folder with --out") from error


def save(figure: Drawing, path_stem: Path | str) -> list[Path]:
    """Write the figure as SVG and PNG, for a light page (`<path_stem>.svg`) and for a dark one
    (`<path_stem>_dark.svg`), each in one atomic step; return the four paths. A path that ends in .svg or .png is
    written alone, for a light page. Raises WorklogError if it cannot, and for another format.
    """
    stem, drawn = Path(path_stem), figure.svg()
    written: dict[Path, bytes] = {}
    names = {stem.name: drawn, f"{stem.name}_dark": in_the_dark(drawn)}
    if stem.suffix in (".svg", ".png"):
        names, written = {}, {stem: drawn.encode() if stem.suffix == ".svg" else figure.encoded(drawn)}
    elif stem.suffix[1:] in FigureCanvasBase.filetypes:
        raise WorklogError(f"cannot write {stem}: give a name that ends in .svg or .png, or one without a suffix")
    for name, svg in names.items():
        written |= {stem.with_name(f"{name}.svg"): svg.encode(), stem.with_name(f"{name}.png"): figure.encoded(svg)}
    with writing(f"the figure {stem}"):
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, content in written.items():
            write_bytes(path, content)
    return [*written]


BEGIN = "<!-- written by `worklog figures` and `worklog article`"
PARTS = {True: "## The article's diagrams, with this machine's numbers", False: "## The charts"}
# Heading, picture in the palette of the reader's page, alt text, and links to the SVGs.
FIGURE = """\
### {headline}

<picture><source media="(prefers-color-scheme: dark)" srcset="{name}_dark.png">\
<img src="{name}.png" width="700" alt="{alt}"></picture>

<details><summary>In words · <a href="{name}.svg">SVG</a>, <a href="{name}_dark.svg">dark</a></summary>

{words}

</details>"""


def gallery(charts: Mapping[str, Drawing], missing: Mapping[str, str]) -> str:
    """The page in Markdown: the article's diagrams, then the charts, then why others are missing."""
    page = [f"{BEGIN}, which overwrite it -->", "# The figures"]
    for of_article, heading in PARTS.items():
        shown = {name: one for name, one in charts.items() if name.startswith("diagram_") is of_article}
        page += [heading] * bool(shown)
        for name, one in shown.items():
            headline, words = escape(one.headline, False), escape(one.alt, False)
            page.append(FIGURE.format(name=name, headline=headline, words=words, alt=escape(one.alt)))
    page += [f"Not drawn: `{name}`, {why}" for name, why in missing.items()]
    return "\n\n".join(page) + "\n"


def write_gallery(charts: Mapping[str, Drawing], missing: Mapping[str, str], folder: Path) -> Path | None:
    """Write README.md into the folder of the figures. Returns None and writes nothing if there is no chart, or if the
    folder has a README.md from another source. Raises WorklogError where the file cannot be written.
    """
    path = folder / "README.md"
    with writing(f"the gallery {path}"):
        if not charts or (path.exists() and not path.read_bytes().startswith(BEGIN.encode())):
            return None
        write_bytes(path, gallery(charts, missing).encode())
    return path
