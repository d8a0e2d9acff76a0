"""Texts that are kept to notice a change.

A folder of small files, in which a line is a thing that may change.
"""

import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

import pytest

MOST_LINES = 40  # of a difference


def file_of(folder: Path, name: str) -> Path:
    """Return the file in which the text of this name is kept."""
    words = re.sub(r"[^\w.+-]+", "_", name).strip("_")
    return folder / f"{words}.txt"


def require_as_noted(folder: Path, name: str, text: str, advice: str) -> None:
    """Fail with the lines that differ if a text isn't as it was kept.

    advice: what the difference is, and the command that keeps the text anew
    """
    file = file_of(folder, name)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    pair = (before.splitlines(), text.splitlines())
    lines = list(unified_diff(*pair, "as it was kept", "now", lineterm="", n=1))
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"… and {len(lines) - MOST_LINES} lines more"]
    if lines:
        pytest.fail("\n".join([f"{name}: {advice}", *lines]), pytrace=False)


def keep(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Write the texts, and nothing else, into the folder.

    Return the names of those that changed.
    """
    folder.mkdir(exist_ok=True)
    files = {file_of(folder, name): name for name in texts}
    for file in {*folder.iterdir()} - files.keys():
        file.unlink()
    changed = list[str]()
    for file, name in files.items():
        if not file.exists() or file.read_text(encoding="utf-8") != texts[name]:
            file.write_text(texts[name], encoding="utf-8")
            changed.append(name)
    return changed
