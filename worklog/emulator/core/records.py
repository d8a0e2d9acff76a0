"""What parts of the core share: core.h's records and the numbers of its enumerations, and the lanes of an event."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from worklog.emulator.findings import Batch
from worklog.emulator.ptx import Array

# As in core.h.
FIELDS = ("kind", "op", "guard", "negated", "d", "a", "b", "c", "site", "target", "block", "copies", "meets")
INSTRUCTION = np.dtype([(name, "i4") for name in FIELDS])
GROUP = np.dtype([("leads", "i4"), ("width", "i4"), ("offset", "i8")])
PATTERN = np.dtype([("relative", "u8", 32), ("places", "u8", 4), ("marks", "u4", 4), ("costs", "i8", 6)])
SITE = np.dtype([
    *((name, "i4") for name in ("op", "space", "size", "count")), ("values", "i4", 4),
    *((name, "i4") for name in ("width", "is_signed", "wide", "groups_count")),
    *((name, "i4") for name in ("read_only", "strong", "atomic", "is_float")), ("results", "i4", 4),
    ("order", "i4"), ("", "i4"),
    *((name, "i8") for name in ("offset", "array_start", "array_size")), ("groups", GROUP, 4),
    ("costs", "i8", 6), ("last", PATTERN), ("buffer", "i8"),
])  # fmt: skip

STEP = np.dtype([
    *((name, "i4") for name in ("pc", "warp", "space")), ("mask", "u4"), ("block", "i8"), ("costs", "i8", 6),
    ("address", "u8", 32), ("words", "u4", (32, 4)),
])  # fmt: skip


@cache
def enum(name: str) -> dict[str, int]:
    """By name, the number of each value of an enumeration."""
    text = Path(__file__).with_name("core.h").read_text(encoding="utf-8")
    listed = re.search(rf"enum {name} \{{(.*?)\}}", text, re.DOTALL)
    assert listed is not None, name
    out: dict[str, int] = {}
    for value, number in re.findall(r"(\w+)(?:\s*=\s*(\d+))?", listed[1]):
        out[value] = int(number) if number else max(out.values(), default=-1) + 1
    return out


def lanes_of(batch: Batch, event: Any) -> Array:
    """The lanes of an event, of its block."""
    lanes, first = np.zeros(batch.block_lanes, bool), int(event["thread"]) // 32 * 32
    lanes[first : first + 32] = [int(event["lanes"]) >> k & 1 for k in range(32)]
    return lanes
