"""How every figure looks, is shown and is saved.

Matplotlib writes dates, versions and random ids into its files and no description for screen readers; this module
leaves out the former and adds the latter, so that the same run gives the same bytes.
"""

from __future__ import annotations

import base64
import io
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import resvg_py
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font
from matplotlib.ft2font import LoadFlags
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from worklog.errors import WorklogError
from worklog.runs import write_bytes

_FILE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("style.toml").read_text(encoding="utf-8"))

# By role, as "#rrggbb". Figures are drawn in the light palette; for a dark page, each colour is replaced.
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
SCREEN_DPI, DPI = 100, 200
# The typeface, in the copy that comes with matplotlib: by whether it is bold.
FONT_FILES = {
    bold: Path(matplotlib.get_data_path(), "fonts", "ttf", name)
    for bold, name in ((False, "DejaVuSans.ttf"), (True, "DejaVuSans-Bold.ttf"))
}


@contextmanager
def styled() -> Iterator[None]:
    """The article's style on top of matplotlib's defaults, whatever the user's own settings are. Also a decorator."""
    with matplotlib.style.context(["default", SETTINGS], after_reset=True):
        yield


@lru_cache(maxsize=4096)
def text_width(text: str, points: float, bold: bool = False) -> float:
    """Width of one line of text in inches, without kerning, which only moves letters closer."""
    font = get_font(FONT_FILES[bold])
    advances = [font.load_char(ord(letter), flags=LoadFlags.NO_SCALE).horiAdvance for letter in text]
    return float(sum(advances)) / font.units_per_EM * points / 72


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
        small, words, fonts = io.BytesIO(), PngInfo(), [str(path) for path in FONT_FILES.values()]
        words.add_text("Title", self.headline)
        words.add_text("Description", self.alt)
        how: dict[str, Any] = {"dpi": SCREEN_DPI, "zoom": DPI / SCREEN_DPI, "font_family": "DejaVu Sans"}
        large = resvg_py.svg_to_bytes(svg_string=svg, skip_system_fonts=True, font_files=fonts, **how)
        with Image.open(io.BytesIO(large)) as image:
            few = image.convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(small, "png", compress_level=7, pnginfo=words, dpi=(DPI, DPI))
        return small.getvalue()

    def spoken(self) -> tuple[str, str]:
        """For screen readers: the attributes of an <svg> that name its title and description, and these two."""
        title = f'<title id="{self.name}-title">{escape(self.headline)}</title>'
        description = f'<desc id="{self.name}-desc">{escape(self.alt)}</desc>'
        return f'role="img" aria-labelledby="{self.name}-title {self.name}-desc"', f"{title}\n {description}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        """HTML that follows the notebook's theme, PNG in the light palette, twice as large as on screen, and alt text.

        The HTML holds images, so two figures' ids can't clash. GitHub drops its styles, and our notebooks are stored
        without it: the PNG has a ground of its own and can be read on both themes.
        """
        svg = self.svg()
        pixels = self.encoded(svg)
        with Image.open(io.BytesIO(pixels)) as image:
            width, height = (round(SCREEN_DPI * side / DPI) for side in image.size)
        png, dark = (base64.b64encode(data).decode("ascii") for data in (pixels, in_the_dark(svg).encode()))
        box = f"display:inline-block;max-width:100%;line-height:0;--dark:url(data:image/svg+xml;base64,{dark})"
        size = f'width="{width}" style="max-width:100%;height:auto"'
        image_tag = f'<img src="data:image/png;base64,{png}" {size} alt="{escape(self.alt)}">'
        html = f'<style>{FOLLOW}</style><span class="worklog-chart" style="{box}">{image_tag}</span>'
        metadata = {"image/png": {"width": width, "height": height, "alt": self.alt}}
        return {"text/html": html, "text/plain": self.alt, "image/png": png}, metadata


class Chart(Drawing, Figure):
    """A matplotlib figure as a Drawing, drawn in the light palette. Inches; y counts up from its lower edge.

    body_bottom, body_top: the part that is free of title and footer.
    """

    body_bottom: float
    body_top: float

    def __init__(self, name: str, headline: str, alt: str, width: float, height: float) -> None:
        super().__init__(figsize=(width, height))
        self.name, self.headline, self.alt = name, headline, alt

    def axes_at(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes whose plotting area is exactly this rectangle."""
        wide, high = self.get_size_inches()
        return self.add_axes((left / wide, bottom / high, width / wide, height / high))

    def write(self, x: float, top: float, lines: Iterable[str], points: float = SMALL_PT, **how: Any) -> float:
        """Lines of text, one below another from `top` on; return where the next one starts."""
        for line in lines:
            self.text(x, top, line, fontsize=points, **{"transform": self.dpi_scale_trans, "va": "top", **how})
            top -= line_height(points)
        return top

    def drawn(self) -> str:
        """Matplotlib's SVG, to which role, title and description are added."""
        buffer = io.StringIO()
        with styled():
            self.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        head, opening, rest = re.split("<svg ([^>]*>)", buffer.getvalue(), maxsplit=1)
        roles, words = self.spoken()
        return f"{head}<svg {roles} {opening}\n {words}{rest}"


def in_the_dark(svg: str) -> str:
    """A figure's SVG in the dark palette: every colour of the light one replaced by its counterpart."""
    return re.sub("#[0-9a-f]{6}\\b", lambda colour: IN_THE_DARK.get(colour[0], colour[0]), svg)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise WorklogError where a file of the figures cannot be written."""
    try:
        yield
    except OSError as error:
        raise WorklogError(f"cannot write {what}: {error.strerror}; give another folder with --out") from error


def save(figure: Drawing, path_stem: Path | str) -> list[Path]:
    """Write the figure as SVG and PNG, for a light page (`<path_stem>.svg`) and for a dark one
    (`<path_stem>_dark.svg`), each in one atomic step; return the four paths. Raises WorklogError if it cannot, and for
    the suffix of a picture, which `chart.savefig(path)` writes alone.
    """
    stem, light, files = Path(path_stem), figure.svg(), dict[Path, bytes]()
    if stem.suffix[1:] in FigureCanvasBase.filetypes:
        raise WorklogError(f"cannot write {stem}: give a name without a suffix, or use chart.savefig()")
    for name, svg in ((stem.name, light), (f"{stem.name}_dark", in_the_dark(light))):
        files[stem.with_name(f"{name}.svg")] = svg.encode()
        files[stem.with_name(f"{name}.png")] = figure.encoded(svg)
    with writing(f"the figure {stem}"):
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_bytes(path, content)
    return [*files]
