"""The JavaScript, the style sheets and the colours that the widgets and the web site share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

# A widget's scripts are one module: the last one uses the names of the files before it, and defines
# `render`.
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

JSDOC = re.compile(r"^ */\*\*.*?\*/$", re.MULTILINE | re.DOTALL)  # types, on their own lines


def widget_module(*names: str) -> str:
    """Return the module of a notebook's widget.

    names: of its scripts
    """
    return f"{assets(*names)}\n\nexport default {{ render }};"


def assets(*names: str) -> str:
    """Return the texts of files next to this module, one after the other.

    Scripts are without their comments and indentation, which are a quarter of a page.
    """
    folder = Path(__file__).parent
    texts = [(folder / name).read_text(encoding="utf-8").strip() for name in names]
    return "\n\n".join(
        without_comments(text) if name.endswith(".js") else text
        for name, text in zip(names, texts, strict=True)
    )


def without_comments(script: str) -> str:
    """Return a script without its indentation and the lines that are comments or types."""
    code = JSDOC.sub("", script)
    lines = [line.strip() for line in code.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def palette(selector: str, roles: Mapping[str, str], scheme: str) -> str:
    """Return a CSS rule that defines the charts' colours.

    roles: colours by role
    scheme: light or dark
    """
    colours = "".join(f"--worklog-{role}:{colour};" for role, colour in roles.items())
    return f"{selector}{{{colours}color-scheme:{scheme}}}\n"
