"""The CUDA sources in a folder, each of which is read by itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

from worklog.errors import BadSetting, WorklogError
from worklog.kernel.source import included, read_source

MOST_FILES = 200


def sources_in(folder: Path) -> list[Path]:
    """Return the .cu files in a folder and its subfolders, and the .cuh files that none of them includes, sorted.

    Raises BadSetting for a folder without sources, and for more than MOST_FILES.
    """
    found = list[Path]()
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith((".cu", ".cuh")) and not name.startswith("."):
                found.append(Path(place, name))
        if len(found) > MOST_FILES:
            raise BadSetting(
                f"{folder} has more than {MOST_FILES} .cu and .cuh files: name a folder in it"
            )
    if not found:
        raise BadSetting(f"{folder} has no .cu file: name another folder, or a file")
    headers = {path for path in found if path.suffix == ".cuh"}
    waiting = [path for path in found if path.suffix == ".cu"]
    while waiting:
        for name in _included(waiting.pop()):
            ending = "/" + re.sub(r"^(?:\.\.?/)+", "", name)
            for header in sorted(headers):
                if f"/{header.as_posix()}".endswith(ending):
                    headers.remove(header)  # it is checked with the file that includes it
                    found.remove(header)
                    waiting.append(header)
    return sorted(found)


def _included(path: Path) -> list[str]:
    try:
        return included(read_source(path))
    except WorklogError:  # which the check of this file raises again
        return []
