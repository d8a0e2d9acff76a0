"""Entries of constant tables that no launch of a check read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from worklog.emulator.coverage import Coverage
from worklog.emulator.ptx import plain_name
from worklog.gate.words import Values
from worklog.runs import NeverRan

MOST_RANGES = 8  # of entries that are named


@dataclass
class _Reads:
    """What launches read of a table.

    align: the bytes of a number in it
    widths: the bytes that loads read at once
    is_read: whether a launch read each byte
    """

    align: int
    widths: set[int]
    is_read: Values


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
    by_table = dict[tuple[int, str], _Reads]()
    for (key, _), coverage in coverages.items():
        if key not in subject.programs:
            continue
        for table in coverage.tables:
            name = plain_name(table.variable.name)
            line, _ = _declaration(name, source)
            if not line:  # the compiler's own, or a header's
                continue
            nothing = np.zeros(table.variable.size, np.uint8)
            reads = by_table.setdefault((line, name), _Reads(table.variable.align, set(), nothing))
            reads.widths |= set(table.widths)
            reads.is_read = reads.is_read | coverage.read.get(table.variable.name, nothing)
    parts = list[NeverRan]()
    for (line, name), reads in sorted(by_table.items()):
        _, count = _declaration(name, source)
        text = _unread(reads, count)
        if text:
            parts.append(NeverRan(line, line, untried=f"no launch read {text} of table {name}"))
    return tuple(parts)


def _declaration(name: str, source: str) -> tuple[int, int]:
    """Return the line that declares an array, and its entries; 0 for what isn't known."""
    declared = re.search(rf"\b{re.escape(name)}\s*((?:\[[^\]]*\]\s*)+)", source)
    if declared is None:
        return 0, 0
    sizes = re.findall(r"\[\s*(\w*)\s*\]", declared[1])
    count = math.prod(int(size) if size.isdecimal() else 0 for size in sizes)
    return source.count("\n", 0, declared.start()) + 1, count


def _unread(reads: _Reads, count: int) -> str:
    """Return the entries that no launch read, as text; "" if all were read.

    count: of the entries; 0 if it isn't known. Then an entry is a number, if loads read single
    numbers, and else bytes are named.
    """
    nbytes = len(reads.is_read)
    unit = "entries"
    if not count or nbytes % count:
        is_of_numbers = reads.widths == {reads.align}
        count = nbytes // reads.align if is_of_numbers else nbytes
        unit = "entries" if is_of_numbers else "bytes"
    is_read = reads.is_read.reshape(count, nbytes // count).any(axis=1)
    if is_read.all():
        return ""
    if not is_read.any():
        return f"any of {count:,} {unit}"
    changes = np.diff(np.concatenate([[0], (~is_read).astype(np.int8), [0]]))
    firsts = np.flatnonzero(changes == 1)
    lasts = np.flatnonzero(changes == -1) - 1
    ranges = list[str]()
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        ranges.append(str(first) if first == last else f"{first} to {last}")
    if len(ranges) > MOST_RANGES:
        return f"{int((~is_read).sum()):,} of {count:,} {unit}, such as {ranges[0]},"
    if len(ranges) == 1 and firsts[0] == lasts[0]:
        unit = {"entries": "entry", "bytes": "byte"}[unit]
    *first_ranges, last_range = ranges
    listed = f"{', '.join(first_ranges)} and {last_range}" if first_ranges else last_range
    return f"{unit} {listed}"
