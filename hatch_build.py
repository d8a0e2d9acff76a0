"""The README as a package index shows it: there, a relative link or picture leads nowhere.

With `urls.Repository` in pyproject.toml, links and pictures become absolute. Without it, a link becomes its words, and
a picture becomes a sentence.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE = r"(?P<code>```.*?```|`[^`\n]*`)"
RELATIVE = r"(?!https?:)[^)\s\"]+"
LINK = rf"(?P<mark>!?)\[(?P<words>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<to>{RELATIVE})\)"
PICTURE = r"<picture>.*?</picture>|<img [^>]*>"
TAG = rf"(?P<name>href|src|srcset)=\"(?P<address>{RELATIVE})\""


class Readme(MetadataHookInterface):
    """Fills in the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the text for the index, with the address that the project's urls give."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, repository)}


def for_index(text: str, repository: str = "") -> str:
    """The README's text without relative addresses; code stays. repository: its public address, or nothing."""

    def link(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        words = for_index(found["words"], repository)
        if repository:
            return f"{found['mark']}[{words}]({_absolute(found['to'], repository, picture=bool(found['mark']))})"
        return _sentence(words) if found["mark"] else words

    def tag(found: re.Match[str]) -> str:
        picture = found["name"] != "href"
        return f'{found["name"]}="{_absolute(found["address"], repository, picture=picture)}"'

    if repository:
        text = re.sub(TAG, tag, text)
    else:
        text = re.sub(PICTURE, lambda found: _shown(found[0]), text, flags=re.DOTALL)
        text = re.sub(rf'<a href="{RELATIVE}"[^>]*>(.*?)</a>', r"\1", text, flags=re.DOTALL)
    return re.sub(f"{CODE}|{LINK}", link, text, flags=re.DOTALL)


def _absolute(path: str, repository: str, *, picture: bool) -> str:
    if path.startswith("#"):
        return f"{repository}{path}"
    return f"{repository}/{'raw' if picture else 'blob'}/HEAD/{path}"


def _shown(element: str) -> str:
    alt = re.search(r'alt="([^"]*)"', element)
    absolute = re.search(r'src="https?:', element)
    return element if absolute else _sentence(alt[1] if alt else "")


def _sentence(alt: str) -> str:
    return f"*Picture in the repository: {alt.rstrip('.')}.*" if alt else ""
