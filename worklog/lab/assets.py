"""The JavaScript, the style sheets and the colours that the widgets and the web site share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def asset(name: str) -> str:
    """Return the text of a file next to this module, such as panel.js."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def palette(selector: str, roles: Mapping[str, str], scheme: str) -> str:
    """Return a CSS rule that defines the charts' colours.

    roles: colours by role
    scheme: light or dark
    """
    colours = "".join(f"--worklog-{role}:{colour};" for role, colour in roles.items())
    return f"{selector}{{{colours}color-scheme:{scheme}}}\n"
