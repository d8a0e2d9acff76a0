"""The style of every figure: the palettes and sizes of style.toml, by role, and how wide and high text is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache, partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar, cast

import matplotlib
import matplotlib.style
from matplotlib.font_manager import get_font
from matplotlib.ft2font import LoadFlags

from worklog.errors import BadSetting
from worklog.runs import Run

F = TypeVar("F", bound=Callable[..., Any])
_FILE: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("style.toml").read_text(encoding="utf-8")
)

# By role, as "#rrggbb". Figures are drawn in the light palette; for a dark page, each colour is replaced.
LIGHT: Mapping[str, str] = _FILE["light"]
DARK: Mapping[str, str] = _FILE["dark"]

PAPER = LIGHT["paper"]
INK = LIGHT["ink"]
MUTED = LIGHT["muted"]
GREY = LIGHT["grey"]
BASELINE = LIGHT["baseline"]
FAINT = LIGHT["faint"]
ACCENT = LIGHT["accent"]
ALERT = LIGHT["alert"]
OTHER = LIGHT["other"]
INFLATES = LIGHT["inflates"]
DEFLATES = LIGHT["deflates"]

SETTINGS = {name: LIGHT.get(value, value) for name, value in _FILE["matplotlib"].items()}

# Font size in pt and whether it is bold, by a text's class.
TEXT: Mapping[str, tuple[float, bool]] = {
    name: (float(pt), bold) for name, (pt, bold) in _FILE["text"].items()
}
TITLE_PT, SUBTITLE_PT, BODY_PT, SMALL_PT = (
    TEXT[name][0] for name in ("title", "subtitle", "body", "small")
)
LINE = 1.3  # distance of two lines of text, in font sizes
WIDTH_IN = 7.0
MARGIN_IN = 0.14
# The typeface, in the copy that comes with matplotlib: by whether it is bold.
FONT_FILES = {
    bold: Path(matplotlib.get_data_path(), "fonts", "ttf", name)
    for bold, name in ((False, "DejaVuSans.ttf"), (True, "DejaVuSans-Bold.ttf"))
}


# A context: the article's style on top of matplotlib's defaults, whatever the user's own settings are.
styled = partial(matplotlib.style.context, ["default", SETTINGS], after_reset=True)


def chart(draw: F) -> F:
    """A decorator of a function that draws: this style, and BadSetting for a `run` or a `kernel` of another type."""

    @wraps(draw)
    def drawn(*words: Any, **named: Any) -> Any:
        given = signature(draw).bind(*words, **named).arguments
        for name, kind, what in (
            ("run", Run, "a run, such as worklog.open_run()"),
            ("kernel", str, "a kernel's name"),
        ):
            is_frame = "DataFrame" in draw.__annotations__.get(name, "") and hasattr(
                given[name], "columns"
            )
            if name in given and not isinstance(given[name], kind) and not is_frame:
                raise BadSetting(f"{draw.__name__}: {name}: give {what}, not {given[name]!r:.60}")
        with styled():
            return draw(*words, **named)

    return cast("F", drawn)


@lru_cache(maxsize=4096)
def text_width(text: str, points: float, bold: bool = False) -> float:
    """Width of one line of text in inches, without kerning, which only moves letters closer."""
    font = get_font(FONT_FILES[bold])
    glyphs = [font.get_char_index(ord(letter)) for letter in text]  # 0: a box, for a missing one
    advances = [font.load_glyph(glyph, flags=LoadFlags.NO_SCALE).horiAdvance for glyph in glyphs]
    return float(sum(advances)) / font.units_per_EM * points / 72


def line_height(points: float, lines: int = 1) -> float:
    """Height of that many lines of text in inches."""
    return lines * LINE * points / 72


def wrap(
    text: str, points: float, width: float, *, bold: bool = False, most: int = 99
) -> list[str]:
    """The text in lines of at most `width` inches; beyond `most` lines, the last one ends in an ellipsis."""
    first, *words = re.split(
        "[ \n]+(?!%)", text.strip(" \n")
    )  # not at a no-break space, nor before a "%"
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
    kept = text
    end = ""
    while kept and text_width(kept + end, points, bold) > width:
        kept, end = kept[:-1], "…"
    return kept.rstrip() + end if end else text
