"""card.png: the picture that other sites show next to a link to a page."""

from __future__ import annotations

from html import escape
from typing import Any

import resvg_py

from worklog.plots import style
from worklog.plots.style import ACCENT, ALERT, INK, MUTED, PAPER

WIDTH = 1200
HEIGHT = 630
LEFT = 80
TITLE_PX = 44
TEXT_PX = 26
WORD = 20  # pixels of a word of memory
LINE_PX = 58


def card(title: str, loads: list[tuple[str, str]]) -> bytes:
    """Return the picture as PNG: a title, and what the loads of two rungs touch.

    loads: a sentence about each load, and its squares as SVG (front_page.squares)
    """
    parts = []
    top = 110
    for line in style.wrap(title, TITLE_PX * 0.75, (WIDTH - 2 * LEFT) / 96, bold=True):
        parts.append(_text(line, top, TITLE_PX, INK, bold=True))
        top += LINE_PX
    for (about, squares), colour in zip(loads, (ALERT, ACCENT), strict=True):
        top += TEXT_PX
        parts.append(_text(about, top, TEXT_PX, MUTED))
        place = f"translate({LEFT} {top + 18}) scale({WORD})"
        parts.append(f'<g transform="{place}" fill="{colour}">{squares}</g>')
        top += 250
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}"><rect width="100%" height="100%" fill="{PAPER}"/>'
        f"{''.join(parts)}</svg>"
    )
    options: dict[str, Any] = {
        "font_family": "DejaVu Sans",
        "font_files": [str(path) for path in style.FONT_FILES.values()],
    }
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, skip_system_fonts=True, **options))


def _text(text: str, top: float, size: float, colour: str, *, bold: bool = False) -> str:
    """Return a line of text."""
    weight = "bold" if bold else "normal"
    return (
        f'<text x="{LEFT}" y="{top}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}">{escape(text)}</text>'
    )
