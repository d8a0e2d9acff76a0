"""The core: an interpreter of decoded PTX in C, and the Python that fills its records.

decode.py makes records of a program: a register is 32 lanes in the warp's file, a predicate a mask
of 32 bits, and each operand an offset. compose.py has the offsets, and the steps of what computes a
value. ops.py is the table of instructions that compute a value of a lane, and writes the C code of
these; isa.py has the other instructions. build.py compiles one unit:

- core.h has the records that Python shares; state.h those of blocks and warps.
- core.c runs instructions; turns.h starts blocks and lets them and their warps take turns; blocks.h
  has barriers, warp.h lanes that meet, calls.h frames of functions.
- access.h accesses every memory: it resolves, checks, orders, counts (count.h) and moves. order.h
  finds races, with the vector clocks of vector_clock.h and the copies of flight.h; poison.h follows
  values that nobody wrote.
- mbarrier.h has cp.async and mbarriers, async.h bulk copies; tensor.h, wgmma.h and multiply.h
  tensor cores.

Memory of a block is freed together when it ends. A warp has registers from its first turn until its
lanes have exited, and the next warp gets them. A view has the times up to which others' accesses
are ordered: each thread has views, as have barriers, mbarriers and flags. What orders accesses
joins views.

Warps run one after the other until they wait. Which order they run in means nothing, so of two
accesses without order the first is that which a thread reaches earlier after the last barrier. Each
block has one clock, which ticks at what orders threads. If more than barriers orders them, each
thread has a vector clock. The blocks of a cluster are one Block, whose warps follow each other: one
clock, and one shared memory with a part of each.

native.py runs a launch. The core returns every few million instructions for progress and Ctrl-C,
and to print. It reports events, each kind and place once. findings.py describes these, and a launch
that doesn't end.

The same files are compiled to WebAssembly for browsers. worklog.emulator.portable describes decoded
kernels and their launches for that, and worklog/site/core.js runs these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    """Return the number of each value of an enumeration, by name."""
    listed = re.search(rf"enum {name} \{{(.*?)\}}", _header(), re.DOTALL)
    assert listed is not None, name
    out: dict[str, int] = {}
    for value, number in re.findall(r"(\w+)(?:\s*=\s*(\d+))?", listed[1]):
        out[value] = int(number) if number else max(out.values(), default=-1) + 1
    return out


@cache
def record(name: str, pointer: str = "u8") -> np.dtype[Any]:
    """Return the dtype of a struct.

    pointer: the type of a pointer: a number of 64 bits, or of 32 bits in WebAssembly
    """
    fields: list[Any] = []
    for type_, is_pointer, field, shape in _fields(name):
        number = pointer if is_pointer else TYPES.get(type_) or record(type_, pointer)
        fields.append((field, number, shape))
    return np.dtype(fields, align=True)


def pointers(name: str) -> tuple[str, ...]:
    """Return the fields of a struct that are pointers."""
    return tuple(field for _, is_pointer, field, _ in _fields(name) if is_pointer)


def _fields(name: str) -> Iterator[tuple[str, bool, str, tuple[int, ...]]]:
    """Yield the fields of a struct: the type, whether it is a pointer, the name and the shape."""
    body = re.search(rf"typedef struct \{{([^}}]*)\}} {name};", _header())
    assert body is not None, name
    for type_, names in re.findall(r"(?:const )?(\w+)\s+([^;]+);", body[1]):
        for stars, field, sizes in re.findall(r"(\**)(\w+)((?:\[\w+\])*)(?:,|$)", names):
            shape = tuple(
                32 if size == "LANES" else int(size) for size in re.findall(r"\w+", sizes)
            )
            yield type_, bool(stars), field, shape


STEP = record("Step")
