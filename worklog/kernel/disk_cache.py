"""Outputs of NVRTC and nvdisasm on disk: the same program is compiled and disassembled once on a machine.

An entry's name is the SHA-256 of everything its content depends on: the tool's file, with its size and time, and what
the tool is given. So an entry is never out of date, and a new version of the tool begins anew. Delete the folder to
empty the cache.
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
    """What `make` returns for a tool and what it is given, from the disk where it is there. An entry that can't be read
    is made again; what can't be written is not kept, and `worklog doctor` says why. Raises what `make` raises, and
    OSError for a tool that is not there.
    """
    of_tool = tool.stat()
    key = hashlib.sha256(f"{tool}\0{of_tool.st_size}\0{of_tool.st_mtime_ns}\0".encode() + given).hexdigest()
    path = folder() / (key + SUFFIX)
    with suppress(OSError, zlib.error):
        found = zlib.decompress(path.read_bytes())
        os.utime(path)  # a clearance takes those that were not used for longest
        return found
    made = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, zlib.compress(made, 1))
        _clear(path.parent)
    return made


def entries(place: Path) -> list[tuple[float, int, Path]]:
    """When each entry was last used, its size in bytes and its file; first the one that was not used for longest."""
    found = []
    for path in place.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):  # another process has removed it
            found.append((path.stat().st_mtime, path.stat().st_size, path))
    return sorted(found)


def _clear(place: Path) -> None:
    """Keep the newest entries, once there are twice as many."""
    found = entries(place)
    if len(found) > 2 * ENTRIES:
        for _, _, path in found[:-ENTRIES]:
            path.unlink(missing_ok=True)
