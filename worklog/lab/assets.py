"""The JavaScript, the style sheets and the colours that the widgets and the web site share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# A widget's scripts are one module: the last one uses the names of the files before it.
PANEL_SCRIPTS = ("dom.js", "panel.js")
RUNG_SCRIPTS = ("dom.js", "rung.js")
BET_SCRIPTS = ("dom.js", "bet.js")
ACCESS_SCRIPTS = (
    "dom.js",
    "accesses.js",
    "access_drawings.js",
    "access_texts.js",
    "access_levels.js",
    "access_pair.js",
    "access.js",
)


def assets(*names: str) -> str:
    """Return the texts of files next to this module, one after the other."""
    folder = Path(__file__).parent
    return "\n\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names)


def palette(selector: str, roles: Mapping[str, str], scheme: str) -> str:
    """Return a CSS rule that defines the charts' colours.

    roles: colours by role
    scheme: light or dark
    """
    colours = "".join(f"--worklog-{role}:{colour};" for role, colour in roles.items())
    return f"{selector}{{{colours}color-scheme:{scheme}}}\n"
