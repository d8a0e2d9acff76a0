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

from worklog.runs import BadRunFile, own_folder, write_atomically

ENTRIES = 512  # kept after a clearance, which comes at twice as many; most take 10 to 50 KB
SUFFIX = ".z"


def cache_folder() -> Path:
    """WORKLOG_CACHE if set, else the user's cache folder."""
    return own_folder("WORKLOG_CACHE", "cache")


def cached_files() -> list[Path]:
    """All entries."""
    return [*cache_folder().glob(f"*{SUFFIX}")]


def cached(tool: Path, given: bytes, make: Callable[[], bytes]) -> bytes:
    """What `make` returns for a tool's file and what the tool is given, from the disk where it is there. An entry that
    can't be read is made again; one that can't be written is not kept. A new version of the tool begins anew. Raises
    what `make` raises, and OSError for a tool that is not there.
    """
    version = tool.stat()
    key = hashlib.sha256(
        f"{tool}\0{version.st_size}\0{version.st_mtime_ns}\0".encode() + given
    ).hexdigest()
    path = cache_folder() / (key + SUFFIX)
    with suppress(OSError, zlib.error):
        content = zlib.decompress(path.read_bytes())
        os.utime(path)  # a clearance takes those that were not used for longest
        return content
    made = make()
    with suppress(OSError, BadRunFile):
        write_atomically(path, zlib.compress(made, 1), "set WORKLOG_CACHE to another folder")
        kept = cached_files()
        if len(kept) > 2 * ENTRIES:
            for unused in sorted(kept, key=lambda entry: entry.stat().st_mtime)[:-ENTRIES]:
                unused.unlink(missing_ok=True)  # another process may have removed it, too
    return made
