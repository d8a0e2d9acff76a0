"""Entries of constant tables that no launch of a check read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from worklog.emulator.coverage import Coverage
from worklog.emulator.ptx import plain_name
from worklog.gate.words import Values
from worklog.runs import NeverRan

MOST_RANGES = 8  # of entries that are named
# By the last word of a type in C++.
ENTRY_BYTES = {"char": 1, "short": 2, "int": 4, "unsigned": 4, "float": 4, "long": 8, "double": 8}
ENTRY_BYTES |= {"half": 2, "__half": 2, "int2": 8, "int4": 16, "float2": 8, "float4": 16}


def unread_entries(
    subject: Any, coverages: Mapping[tuple[str, tuple[int, ...]], Coverage]
) -> tuple[NeverRan, ...]:
    """Return the entries of a kernel's tables that no launch read.

    A table is an initialised array that the source declares and that nothing writes. Of kernels
    among which the shape chooses, these are the entries that none of them read.

    subject: a worklog.kernel.device.Loaded
    coverages: of each kernel, by the hash of its program and its block
    """
    source = subject.kernel.source
    # Whether a launch read each byte, by the name and the size of a table: templates have copies.
    is_read = dict[tuple[str, int], Values]()
    for (key, _), coverage in coverages.items():
        if key not in subject.programs:
            continue
        for table in coverage.tables:
            name = plain_name(table.variable.name)
            nothing = np.zeros(table.variable.size, np.uint8)
            by_kernel = coverage.read.get(table.variable.name, nothing)
            key_of_table = name, table.variable.size
            is_read[key_of_table] = is_read.get(key_of_table, nothing) | by_kernel
    parts = list[NeverRan]()
    for (name, _), bytes_read in is_read.items():
        line, count, entry_bytes = _declaration(name, source)
        if not line:  # the compiler's own, or a header's
            continue
        text = _unread(bytes_read, count, entry_bytes)
        if text:
            untried = f"no launch read {text} of table {name}"
            parts.append(NeverRan(line, line, untried=untried))
    parts.sort(key=lambda part: part.first)
    return tuple(parts)


def _declaration(name: str, source: str) -> tuple[int, int, int]:
    """Return the line that declares an array, its entries, and the bytes of one.

    0 for what isn't known.
    """
    declared = re.search(rf"(\w+)\s+{re.escape(name)}\s*((?:\[[^\]]*\]\s*)+)", source)
    if declared is None:
        return 0, 0, 0
    sizes = [size.strip() for size in re.findall(r"\[([^\]]*)\]", declared[2])]
    count = math.prod(int(size) if size.isdecimal() else 0 for size in sizes)
    line = source.count("\n", 0, declared.start(2)) + 1
    return line, count, ENTRY_BYTES.get(declared[1], 0)


def _unread(is_read: Values, count: int, entry_bytes: int) -> str:
    """Return the entries that no launch read, as text; "" if all were read.

    Bytes are named if neither the number of entries nor the bytes of one are known.

    is_read: whether a launch read each byte
    """
    nbytes = len(is_read)
    unit = "entries"
    if not count or nbytes % count:
        is_known = entry_bytes > 0 and nbytes % entry_bytes == 0
        unit = "entries" if is_known else "bytes"
        count = nbytes // entry_bytes if is_known else nbytes
    is_entry_read = is_read.reshape(count, nbytes // count).any(axis=1)
    if is_entry_read.all():
        return ""
    if not is_entry_read.any():
        return f"any of {count:,} {unit}"
    changes = np.diff(np.concatenate([[0], (~is_entry_read).astype(np.int8), [0]]))
    firsts = np.flatnonzero(changes == 1)
    lasts = np.flatnonzero(changes == -1) - 1
    ranges = list[str]()
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        ranges.append(str(first) if first == last else f"{first} to {last}")
    if len(ranges) > MOST_RANGES:
        return f"{int((~is_entry_read).sum()):,} of {count:,} {unit}, such as {ranges[0]},"
    if len(ranges) == 1 and firsts[0] == lasts[0]:
        unit = {"entries": "entry", "bytes": "byte"}[unit]
    *first_ranges, last_range = ranges
    listed = f"{', '.join(first_ranges)} and {last_range}" if first_ranges else last_range
    return f"{unit} {listed}"
