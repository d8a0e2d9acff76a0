"""Counts of a launch by source line: requests, sectors, wavefronts, bank conflicts and instructions. Never a time.

Global: L1 fetches 32-byte sectors; a request costs the distinct sectors that its lanes access. Shared: 32 banks of 4
bytes; a wavefront delivers one word per bank, to any number of lanes. Both rules agree with Nsight Compute's counters
on an H200 for every rung.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from worklog.emulator.program import Program, Site
from worklog.emulator.ptx import Kernel

WARP = 32
COMPARED = "sm_90"  # where every rung's counts were compared with a GPU's counters: tests/emulator/ncu_*.json


@dataclass(frozen=True)
class Access:
    """One kind of access.

    requests: warp instructions. sectors: 32-byte pieces of global memory. cache_lines: 128-byte lines of it, each of
    which a request looks up in L1. wavefronts: passes through shared memory; conflicts: those of them that bank
    conflicts add. bytes: requested by the active threads.
    """

    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    bytes: int = 0
    cache_lines: int = 0

    def __add__(self, other: Access) -> Access:
        out: Access = combined(1, self, 1, other)
        return out

    @property
    def sectors_per_request(self) -> float:
        """4 for a warp that reads 32 adjacent floats, 32 for one sector per lane. NaN without requests."""
        return self.sectors / self.requests if self.requests else float("nan")


@dataclass(frozen=True)
class Counts:
    """All counts of a kernel or of one of its lines.

    instructions: executed warp instructions by class: "fma", "tensor", "float", "integer", "load", "store", "control",
    "barrier", "other". thread_fma: multiply-adds of all threads, two floating-point operations each, without those of
    tensor cores. A cp.async is a global load.
    """

    global_load: Access = Access()
    global_store: Access = Access()
    shared_load: Access = Access()
    shared_store: Access = Access()
    local: Access = Access()
    atomic: Access = Access()
    instructions: Mapping[str, int] = field(default_factory=dict)
    thread_fma: int = 0

    def __add__(self, other: Counts) -> Counts:
        out: Counts = combined(1, self, 1, other)
        return out

    @property
    def global_sectors(self) -> int:
        """Loads and stores, as in Nsight Compute's global sectors."""
        return self.global_load.sectors + self.global_store.sectors

    @property
    def all_instructions(self) -> int:
        """Warp instructions of every class."""
        return sum(self.instructions.values())


def combined(factor: int, first: Any, other_factor: int, other: Any) -> Any:
    """factor * first + other_factor * other, count by count; what a mapping lacks is zero."""
    if isinstance(first, Access | Counts):
        pairs = ((part.name, getattr(first, part.name), getattr(other, part.name)) for part in fields(first))
        return type(first)(**{name: combined(factor, a, other_factor, b) for name, a, b in pairs})
    if isinstance(first, Mapping):
        zeros = {name: type(value)() for name, value in (*first.items(), *other.items())}
        pairs = ((name, first.get(name, zeros[name]), other.get(name, zeros[name])) for name in sorted(zeros))
        return {name: combined(factor, a, other_factor, b) for name, a, b in pairs}
    return factor * first + other_factor * other


def tally(
    program: Program, executed: Iterable[Sequence[int]], costs: Iterable[tuple[Site, Sequence[int]]]
) -> dict[int, Counts]:
    """Counts by source line. executed: (warps, threads) of each block. costs: of access sites, the fields of Access."""
    lines: dict[int, dict[str, Any]] = defaultdict(lambda: {"instructions": Counter(), "thread_fma": 0})
    for block, (warps, threads) in zip(program.flow.blocks, executed, strict=True):
        for instruction in program.kernel.instructions[block.start : block.stop] if warps else ():
            line = lines[instruction.line]
            line["instructions"][instruction.row.counted] += warps
            line["thread_fma"] += threads if instruction.row.counted == "fma" else 0
    for site, numbers in costs:
        if name := _kind(site):
            line = lines[site.line]
            line[name] = line.get(name, Access()) + Access(*numbers)
    for line in lines.values():
        line["instructions"] = dict(sorted(line["instructions"].items()))
    return {number: Counts(**line) for number, line in sorted(lines.items())}


def _kind(site: Site) -> str:
    """The field of Counts that a site's costs go to; none of constant loads, the shared side of a cp.async, and a
    generic site, whose costs Site.at keeps apart by memory.
    """
    if site.op == "atom":
        return "atomic" if site.space != "generic" else ""
    if site.op == "cp" or site.space in ("generic", "const"):
        return ""
    return "local" if site.space == "local" else f"{site.space}_{'store' if site.op == 'st' else 'load'}"


def total(lines: Mapping[int, Counts]) -> Counts:
    """All lines together."""
    return sum(lines.values(), Counts())


def caveats(kernel: Kernel) -> tuple[str, ...]:
    """Notes for a kernel's counts: where a GPU's may differ."""
    out = []
    if kernel.arch.rstrip("af") != COMPARED:
        out.append(
            f"the counting rules were compared with hardware counters on {COMPARED} alone; on {kernel.arch} the same "
            "rules are applied to this architecture's PTX and machine code"
        )
    if kernel.assembled is False:
        out.append(
            "shared-memory wavefronts are those of the PTX: the assembler joined its shared loads and stores in a way "
            "that the emulator cannot reproduce, so a GPU's count differs and is usually lower"
        )
    return tuple(out)
