"""How every figure looks: the palette, matplotlib's settings, and the size of a text before it is drawn.

Charts are laid out in inches with measured text, not by an automatic layout, so that nothing overlaps at any number of
rungs and the same run gives the same bytes.
"""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.font_manager import get_font
from matplotlib.ft2font import FT2Font, LoadFlags

_FILE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("style.toml").read_text(encoding="utf-8"))

# By role, as "#rrggbb". Charts are drawn in the light palette; Chart replaces its colours for the dark one.
LIGHT: Mapping[str, str] = _FILE["light"]
DARK: Mapping[str, str] = _FILE["dark"]

PAPER, INK, MUTED, GREY = LIGHT["paper"], LIGHT["ink"], LIGHT["muted"], LIGHT["grey"]
BASELINE, FAINT = LIGHT["baseline"], LIGHT["faint"]
ACCENT, ALERT = LIGHT["accent"], LIGHT["alert"]
INFLATES, DEFLATES = LIGHT["inflates"], LIGHT["deflates"]

SETTINGS = {name: LIGHT.get(value, value) for name, value in _FILE["matplotlib"].items()}

# Font size in pt and whether it is bold, by a text's class.
TEXT: Mapping[str, tuple[float, bool]] = {name: (float(pt), bold) for name, (pt, bold) in _FILE["text"].items()}
TITLE_PT, SUBTITLE_PT, BODY_PT, SMALL_PT = (TEXT[name][0] for name in ("title", "subtitle", "body", "small"))
LINE = 1.3  # distance of two lines of text, in font sizes
WIDTH_IN = 7.0
MARGIN_IN = 0.14

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
    return sum(_advance(letter, bold) for letter in text) * points / 72


@lru_cache(maxsize=1024)
def _advance(letter: str, bold: bool) -> float:
    """Distance from one letter to the next, in font sizes."""
    font = face(bold)
    glyph = font.load_char(ord(letter), flags=LoadFlags.NO_SCALE)
    return float(glyph.horiAdvance) / font.units_per_EM


def line_height(points: float, lines: int = 1) -> float:
    """Height of that many lines of text in inches."""
    return lines * LINE * points / 72


def block_size(text: str, points: float) -> tuple[float, float]:
    """Width and height in inches of text that may have several lines."""
    lines = text.split("\n")
    return max(text_width(line, points) for line in lines), line_height(points, len(lines))


def wrap(text: str, points: float, width: float, *, bold: bool = False, most: int = 99) -> list[str]:
    """The text in lines of at most `width` inches; beyond `most` lines, the last one ends in an ellipsis."""
    lines, current = [], ""
    for word in re.split("[ \n]+", text.strip(" \n")):  # not at a no-break space
        longer = f"{current} {word}".strip()
        if not current or text_width(longer, points, bold) <= width:
            current = longer
        else:
            lines.append(current)
            current = word
    lines.append(current)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [shorten(line, points, width, bold=bold) for line in lines]


def shorten(text: str, points: float, width: float, *, bold: bool = False) -> str:
    """The text, cut with an ellipsis where it is wider than `width` inches."""
    if text_width(text, points, bold) <= width:
        return text
    kept = text
    while kept and text_width(kept + "…", points, bold) > width:
        kept = kept[:-1]
    return kept.rstrip() + "…"
