"""A kernel ready to run, and the places in its code that access memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from worklog.emulator.assembled import Group
from worklog.emulator.flow import Flow
from worklog.emulator.ptx import ORDERED, Array, Kernel, Variable, plain_name


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
    memories: dict[str, Site] = field(default_factory=dict)  # of a generic site, its accesses to each memory

    def at(self, space: str) -> Site:
        """The site that counts the accesses to a memory: a generic address may be in several."""
        if self.space != "generic":
            return self
        if space not in self.memories:
            self.memories[space] = replace(self, space=space, costs=np.zeros(6, np.int64), memories={})
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


def called(place: Any) -> str:
    """For messages: where the function that contains the line was called; empty for the kernel itself."""
    return f", called in line {place.caller}" if place.caller else ""


@dataclass(eq=False)
class Program:
    """A kernel ready to run. addresses: of variables. sites: of memory accesses, by pc."""

    kernel: Kernel
    flow: Flow
    addresses: dict[str, int]
    sites: dict[int, Site]
    # The counters of the access sites belong to the program: one launch at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)
