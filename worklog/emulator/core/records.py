"""What Python shares with the core, read from core.h: its records, and the numbers of its enumerations."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"int32_t": "i4", "uint32_t": "u4", "int64_t": "i8", "uint64_t": "u8"}


@cache
def _header() -> str:
    text = Path(__file__).with_name("core.h").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


@cache
def enum(name: str) -> dict[str, int]:
    """By name, the number of each value of an enumeration."""
    listed = re.search(rf"enum {name} \{{(.*?)\}}", _header(), re.DOTALL)
    assert listed is not None, name
    out: dict[str, int] = {}
    for value, number in re.findall(r"(\w+)(?:\s*=\s*(\d+))?", listed[1]):
        out[value] = int(number) if number else max(out.values(), default=-1) + 1
    return out


@cache
def record(name: str) -> np.dtype[Any]:
    """The dtype of a struct. A pointer is a number of 64 bits."""
    body = re.search(rf"typedef struct \{{([^}}]*)\}} {name};", _header())
    assert body is not None, name
    fields: list[Any] = []
    for type_, names in re.findall(r"(?:const )?(\w+)\s+([^;]+);", body[1]):
        if pointed := re.match(r"\(\*(\w+)\)", names):
            fields.append((pointed[1], "u8"))
            continue
        for star, field, sizes in re.findall(r"(\*?)(\w+)((?:\[\w+\])*)(?:,|$)", names):
            shape = tuple(32 if size == "LANES" else int(size) for size in re.findall(r"\w+", sizes))
            fields.append((field, "u8" if star else TYPES.get(type_) or record(type_), shape))
    return np.dtype(fields, align=True)


STEP = record("Step")
