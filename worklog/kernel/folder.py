"""The CUDA sources in a folder. Each source is read by itself."""

from __future__ import annotations

import os
from pathlib import Path

from worklog.errors import BadSetting

MAX_FILES = 200
HEADERS = (".h", ".hh", ".hpp", ".hxx", ".inl")  # which rarely have a kernel


def sources_in(folder: Path) -> list[Path]:
    """Return the CUDA sources in a folder and its subfolders, sorted.

    These are the .cu and .cuh files, and the headers with a kernel.

    Raises BadSetting for a folder without sources, and for more than MAX_FILES.
    """
    sources = list[Path]()
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place, name)
            if not name.startswith(".") and _is_source(path):
                sources.append(path)
        if len(sources) > MAX_FILES:
            raise BadSetting(
                f"{folder} has more than {MAX_FILES} .cu and .cuh files: name a folder in it"
            )
    if not sources:
        raise BadSetting(f"{folder} has no .cu file: name another folder, or a file")
    return sorted(sources)


def _is_source(path: Path) -> bool:
    """Return whether a file may have a kernel."""
    if path.suffix in HEADERS:
        return "__global__" in text_of_header(path)
    return path.suffix in (".cu", ".cuh")


def text_of_header(path: Path) -> str:
    """Return the text of a header; "" if a user may not read it."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""
