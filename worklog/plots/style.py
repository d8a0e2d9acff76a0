"""How every figure looks: the palette, the style file, and the size of a text before it is drawn.

Charts are laid out in inches with measured text, not by an automatic layout, so that nothing overlaps at any number of
rungs and the same run gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import matplotlib.style
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

# Okabe and Ito's blue and vermillion keep apart for every kind of colour vision, and from the greys in print.
ACCENT = "#0072B2"  # us
LIE = "#D55E00"  # what flatters
INK = "#222222"
MUTED = "#595959"
BASELINE = "#B8B8B8"
FAINT = "#E3E3E3"

TITLE_PT, SUBTITLE_PT, BODY_PT, SMALL_PT = 11.0, 8.0, 8.0, 7.0
LINE = 1.3  # distance of two lines of text, in font sizes
WIDTH_IN = 7.0
MARGIN_IN = 0.14

STYLE = Path(__file__).with_name("article.mplstyle")


@contextmanager
def styled() -> Iterator[None]:
    """The article's style on top of matplotlib's defaults, whatever the user's own settings are. Also a decorator."""
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        yield


@lru_cache(maxsize=4096)
def text_width(text: str, points: float, bold: bool = False) -> float:
    """Inches that one line of text takes."""
    if not text.strip():
        return 0.0
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    # The font's outlines turn only at vertices, so the largest one is the extent, at an eighth of its cost.
    return float(TextPath((0, 0), text, size=points, prop=font, usetex=False).vertices[:, 0].max()) / 72


def line_height(points: float, lines: int = 1) -> float:
    """Inches that so many lines of text take."""
    return lines * LINE * points / 72


def block_size(text: str, points: float) -> tuple[float, float]:
    """Width and height in inches of text that may have several lines."""
    lines = text.split("\n")
    return max(text_width(line, points) for line in lines), line_height(points, len(lines))


def wrap(text: str, points: float, width: float, *, bold: bool = False, most: int = 99) -> list[str]:
    """The text in lines of at most `width` inches. Beyond `most` lines, the last one ends in an ellipsis."""
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
