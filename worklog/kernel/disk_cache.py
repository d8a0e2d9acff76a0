"""Outputs of NVRTC and nvdisasm on disk: a program is compiled and disassembled once on a machine.

Delete the folder to empty the cache.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from worklog.errors import BadRunFile, own_folder
from worklog.runs.files import write_atomically

ENTRIES = 512  # kept after a clearance, which comes at twice as many; most take 10 to 50 KB
SUFFIX = ".z"


def cache_folder() -> Path:
    """Return WORKLOG_CACHE if set, else the user's cache folder."""
    return own_folder("WORKLOG_CACHE", "cache")


def cached_files() -> list[Path]:
    """Return the files of all entries."""
    return [*cache_folder().glob(f"*{SUFFIX}")]


def cached(tool: Path, arguments: bytes, make: Callable[[], bytes]) -> bytes:
    """Return a tool's output, from the disk if it is there.

    An entry that can't be read is made again. An entry that can't be written isn't kept. A new
    version of the tool begins anew.

    tool: the tool's file
    arguments: everything that the output depends on besides the tool
    make: runs the tool and returns its output
    Raises what `make` raises, and OSError for a tool that doesn't exist.
    """
    version = tool.stat()
    tool_key = f"{tool}\0{version.st_size}\0{version.st_mtime_ns}\0".encode()
    key = hashlib.sha256(tool_key + arguments).hexdigest()
    path = cache_folder() / (key + SUFFIX)
    with suppress(OSError, zlib.error):
        content = zlib.decompress(path.read_bytes())
        os.utime(path)  # a clearance removes the entries that were not used for longest
        return content
    output = make()
    with suppress(OSError, BadRunFile):
        write_atomically(path, zlib.compress(output, 1), "set WORKLOG_CACHE to another folder")
        entries = cached_files()
        if len(entries) > 2 * ENTRIES:
            for unused in sorted(entries, key=lambda entry: entry.stat().st_mtime)[:-ENTRIES]:
                unused.unlink(missing_ok=True)  # another process may have removed it, too
    return output
