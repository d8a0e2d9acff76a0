"""Outputs of NVRTC and nvdisasm on disk: the same program is compiled and disassembled once on a machine. Delete the
folder to empty the cache.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from worklog.runs import write_bytes

ENTRIES = 512  # kept after a clearance, which comes at twice as many; most take 10 to 50 KB
SUFFIX = ".z"


def folder() -> Path:
    """WORKLOG_CACHE if set, else the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("WORKLOG_CACHE") or platformdirs.user_cache_dir("worklog", appauthor=False))


def cached(tool: Path, given: bytes, make: Callable[[], bytes]) -> bytes:
    """What `make` returns for a tool's file and what the tool is given, from the disk where it is there. An entry that
    can't be read is made again; one that can't be written is not kept. A new version of the tool begins anew. Raises
    what `make` raises, and OSError for a tool that is not there.
    """
    of_tool = tool.stat()
    key = hashlib.sha256(f"{tool}\0{of_tool.st_size}\0{of_tool.st_mtime_ns}\0".encode() + given).hexdigest()
    path = folder() / (key + SUFFIX)
    with suppress(OSError, zlib.error):
        content = zlib.decompress(path.read_bytes())
        os.utime(path)  # a clearance takes those that were not used for longest
        return content
    made = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, zlib.compress(made, 1))
        oldest = entries(path.parent)
        if len(oldest) > 2 * ENTRIES:
            for _, _, unused in oldest[:-ENTRIES]:
                unused.unlink(missing_ok=True)
    return made


def entries(place: Path) -> list[tuple[float, int, Path]]:
    """When each entry was last used, its size in bytes and its file; first the one that was not used for longest."""
    used = []
    for path in place.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):  # another process has removed it
            used.append((path.stat().st_mtime, path.stat().st_size, path))
    return sorted(used)
