"""The style of every figure: palettes and sizes of style.toml by role, and the size of text."""

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

from worklog.errors import BadSetting, check_keywords
from worklog.runs import Run

Draw = TypeVar("Draw", bound=Callable[..., Any])
_FILE: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("style.toml").read_text(encoding="utf-8")
)

# By role, as "#rrggbb". Figures are drawn in the light palette; for a dark page, each colour is
# replaced.
LIGHT: Mapping[str, str] = _FILE["light"]
DARK: Mapping[str, str] = _FILE["dark"]

PAPER = LIGHT["paper"]
INK = LIGHT["ink"]
MUTED = LIGHT["muted"]
GREY = LIGHT["grey"]
BASELINE = LIGHT["baseline"]
FAINT = LIGHT["faint"]
PALE = LIGHT["pale"]
TINT = LIGHT["tint"]
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


# A context: the article's style on top of matplotlib's defaults, whatever the user's own settings
# are.
styled = partial(matplotlib.style.context, ["default", SETTINGS], after_reset=True)

# The parameters of charts whose type is checked, each with its type and the advice in the message.
CHECKED: tuple[tuple[str, type, str], ...] = (
    ("run", Run, "a run, such as worklog.open_run()"),
    ("kernel", str, "a kernel's name"),
)


def chart(draw: Draw) -> Draw:
    """Decorate a function that draws: set this style, and check its arguments.

    The decorated function raises BadSetting for a `run` or a `kernel` of another type.
    """

    parameters = signature(draw)

    @wraps(draw)
    def drawn(*positional: Any, **options: Any) -> Any:
        check_keywords(f"{draw.__name__} has no argument", options, parameters.parameters)
        arguments = parameters.bind(*positional, **options).arguments
        for name, kind, advice in CHECKED:
            if name in arguments and not isinstance(arguments[name], kind):
                raise BadSetting(
                    f"{draw.__name__}: {name}: give {advice}, not {arguments[name]!r:.60}"
                )
        with styled():
            return draw(*positional, **options)

    return cast("Draw", drawn)


@lru_cache(maxsize=4096)
def text_width(text: str, points: float, bold: bool = False) -> float:
    """Return the width of one line of text in inches.

    Kerning isn't included. It only moves letters closer.
    """
    font = get_font(FONT_FILES[bold])
    glyphs = [font.get_char_index(ord(letter)) for letter in text]  # 0: a box, for a missing one
    advances = [font.load_glyph(glyph, flags=LoadFlags.NO_SCALE).horiAdvance for glyph in glyphs]
    return float(sum(advances)) / font.units_per_EM * points / 72


def line_height(points: float, lines: int = 1) -> float:
    """Return the height of that many lines of text in inches."""
    return lines * LINE * points / 72


def wrap(
    text: str, points: float, width: float, *, bold: bool = False, max_lines: int = 99
) -> list[str]:
    """Return the text in lines of at most `width` inches.

    max_lines: beyond these, the last line ends in an ellipsis
    """
    # Not at a no-break space, nor before a "%".
    first, *parts = re.split("[ \n]+(?!%)", text.strip(" \n"))
    lines = [first]
    for part in parts:
        longer = f"{lines[-1]} {part}"
        if text_width(longer, points, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    if len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], " ".join(lines[max_lines - 1 :])]
    return [shorten(line, points, width, bold=bold) for line in lines]


def shorten(text: str, points: float, width: float, *, bold: bool = False) -> str:
    """Return the text, cut with an ellipsis if it is wider than `width` inches."""
    if text_width(text, points, bold) <= width:
        return text
    start = text[:-1]
    while start and text_width(f"{start}…", points, bold) > width:
        start = start[:-1]
    return f"{start.rstrip()}…"
