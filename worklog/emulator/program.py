"""A kernel ready to run: the places in its code that access memory, and the functions that its code becomes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from worklog.emulator.assembled import Group
from worklog.emulator.flow import Flow
from worklog.emulator.isa import EXITS, ORDERED, defined, register_dtype, used
from worklog.emulator.ptx import Array, Kernel, Mask, Reg, Variable, plain_name


@dataclass
class Site:
    """op: "ld", "st", "atom", "cp" (a cp.async's shared side) or "wgmma". A lane accesses `count` elements of `size`
    bytes.

    array: the shared array that the address belongs to, if known; start: its address. groups: the wide accesses that
    ptxas may make it part of. source: the global side of a cp.async, a load of 32-bit words that counts as one access
    of the whole width. guess: a plain read of what a compare-and-swap compares. text, parts, caller: as an
    instruction's. costs: requests, sectors, wavefronts, conflicts and bytes, summed over the launch, and lines of L1.
    """

    pc: int
    line: int
    text: str
    parts: tuple[str, ...]
    op: str
    space: str
    dtype: str
    size: int
    count: int
    offset: int
    array: Variable | None = None
    start: int = 0
    groups: tuple[Group, ...] = ()
    caller: int = 0
    source: Site | None = None
    guess: bool = False
    costs: Array = field(default_factory=lambda: np.zeros(6, np.int64))
    last: Any = None  # what the global memory knows of the last access
    memories: dict[str, Site] = field(default_factory=dict)  # of a generic site, its accesses to each memory

    def at(self, space: str) -> Site:
        """The site that counts the accesses to a memory: a generic address may be in several."""
        if self.space != "generic":
            return self
        if space not in self.memories:
            self.memories[space] = replace(self, space=space, costs=np.zeros(6, np.int64), last=None, memories={})
        return self.memories[space]

    @property
    def width(self) -> int:
        """Bytes that one lane accesses."""
        return self.size * self.count

    @property
    def writes(self) -> bool:
        """Whether it changes memory."""
        return self.op not in ("ld", "wgmma")

    @property
    def strong(self) -> bool:
        """Whether it races with no other strong access. PTX ISA, "Memory Consistency Model": volatile is relaxed."""
        return self.op == "atom" or not ORDERED.isdisjoint(self.parts)

    @property
    def verb(self) -> str:
        """For messages."""
        return "writes" if self.writes else "reads"

    @property
    def place(self) -> str:
        """The bytes of an access to shared memory, for messages of races."""
        return f"the same bytes of {plain_name(self.array.name)}" if self.array else "the same shared bytes"


Watch = Callable[[Site, Array, Array, int], None]  # site, address and activity of each lane, bytes per lane


@dataclass(frozen=True)
class Places:
    """One set of addresses: int64, one per lane, without a site's offset. active: bool, one per lane."""

    address: Array
    active: Array
    mask: Mask
    indices: dict[tuple[int, int], Array] = field(hash=False)
    visits: dict[int, Visit] = field(hash=False)


@dataclass
class Visit:
    """A site at one set of addresses. mask: its lanes with valid addresses, None for all. windows: one view into the
    batch's memory per element, each from byte `shift` on. grain: bytes of a cell, the least that any site accesses.

    costs: of one execution, as a site's. ready: all its words have been written. twice:
    two lanes share a cell.
    """

    site: Site
    places: Places
    mask: Mask
    index: Array
    windows: tuple[Array, ...]
    shift: int
    grain: int
    costs: tuple[int, ...] = (0,) * 6
    hits: int = 0
    ready: bool = False
    twice: bool | None = None

    def cells(self, mask: Mask) -> list[tuple[Array, Array]]:
        """Cells, by their bytes in the batch's memory, and lanes that access them: one pair per cell of the width."""
        start, lane = self.index * self.site.size + self.shift, np.arange(len(self.index))
        if mask is not None:
            start, lane = start[mask], lane[mask]
        return [(start + offset, lane) for offset in range(0, self.site.width, self.grain)]


def called(place: Any) -> str:
    """For messages: where the function that contains the line was called; empty for the kernel itself."""
    return f", called in line {place.caller}" if place.caller else ""


BlockFunction = Callable[[Any, dict[str, Any], Any], int]
EXIT = -2  # in place of a block of code


def origin_of(name: str) -> Reg:
    """The register beside a register of Flow.shuffled: which shuffle gave its undefined value (Exchange.used)."""
    return Reg(f"{name} origin", "b32")


@dataclass(eq=False)
class Program:
    """A kernel ready to run. Its code is generated block by block when first needed, and kept between launches.

    addresses: of variables. sites: of memory accesses, by pc. generate: makes the function of a block of code, by its
    index and `merge`.
    """

    kernel: Kernel
    flow: Flow
    addresses: dict[str, int]
    sites: dict[int, Site]
    generate: Callable[[Program, int, bool], BlockFunction]
    # The counters of the access sites belong to the program: one launch at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.function = cache(partial(self.generate, self))

    @cached_property
    def returns(self) -> set[int]:
        """The blocks in which a lane only exits."""
        code = self.kernel.instructions
        ends = (block for block in self.flow.blocks if block.stop == block.start + 1)
        return {block.index for block in ends if code[block.start].parts[0] in EXITS and not code[block.start].guard}

    @cached_property
    def initial_registers(self) -> dict[str, Any]:
        """What registers hold before they are written: NaN and all bits set, where a GPU has arbitrary contents."""
        out = {}
        named = {r.name: r.type for i in self.kernel.instructions for r in (*used(i), *defined(i))}
        for name, type_ in named.items():
            dtype = np.dtype(register_dtype(type_))
            bits = np.full(dtype.itemsize, 0 if dtype.kind == "b" else 0xFF, np.uint8)
            out[name] = bits.view(dtype)
        return {**out, **{origin_of(name).name: np.zeros(1, np.uint32) for name in self.flow.shuffled}}
