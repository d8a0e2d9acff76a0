"""Entries of constant tables that no launch of a check read."""

from __future__ import annotations

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

    widths: the bytes that loads read at once
    is_read: whether a launch read each byte
    """

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
            line = _line_of(name, source)
            if not line:  # the compiler's own, or a header's
                continue
            nothing = np.zeros(table.variable.size, np.uint8)
            reads = by_table.setdefault((line, name), _Reads(set(), nothing))
            reads.widths |= set(table.widths)
            reads.is_read = reads.is_read | coverage.read.get(table.variable.name, nothing)
    parts = list[NeverRan]()
    for (line, name), reads in sorted(by_table.items()):
        text = _unread(reads)
        if text:
            parts.append(NeverRan(line, line, untried=f"no launch read {text} of table {name}"))
    return tuple(parts)


def _line_of(name: str, source: str) -> int:
    """Return the line that declares an array; 0 if the source doesn't."""
    declared = re.search(rf"\b{re.escape(name)}\s*\[", source)
    return source.count("\n", 0, declared.start()) + 1 if declared else 0


def _unread(reads: _Reads) -> str:
    """Return the entries that no launch read, as text; "" if all were read.

    An entry is what a load reads. If loads have several widths, parts of the least one are named.
    """
    width = min(reads.widths)
    count = len(reads.is_read) // width
    is_read = reads.is_read[: count * width].reshape(count, width).any(axis=1)
    if is_read.all():
        return ""
    unit = "entries" if len(reads.widths) == 1 else f"parts of {width} bytes"
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
        unit = unit.replace("entries", "entry").replace("parts", "part")
    *first_ranges, last_range = ranges
    listed = f"{', '.join(first_ranges)} and {last_range}" if first_ranges else last_range
    return f"{unit} {listed}"
