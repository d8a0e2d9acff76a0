"""Counts of a launch by source line: requests, sectors, wavefronts, bank conflicts and instructions. Never a time.

Global: L1 fetches 32-byte sectors; a request costs the distinct sectors that its lanes access. Shared: 32 banks of 4
bytes; a wavefront delivers one word per bank, to any number of lanes. Both rules agree with Nsight Compute's counters
on an H200 for every rung.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from worklog.emulator.assembled import Group, merged_accesses
from worklog.emulator.flow import Block, Flow, basic_blocks
from worklog.emulator.program import Site
from worklog.emulator.ptx import DTYPES, UNEXPECTED, Imm, Instruction, Kernel, Mem, Variable, size_of
from worklog.emulator.tensor import fragment

WARP = 32


def build_sites(kernel: Kernel, flow: Flow, addresses: Mapping[str, int]) -> dict[int, Site]:
    """The site of each instruction that accesses memory, by pc. addresses: of variables."""
    groups, out = merged_accesses(kernel, basic_blocks(kernel)), dict[int, Site]()
    for i in kernel.instructions:
        if i.accesses:
            try:
                out[i.pc] = _site(i, flow.arrays.get(i.pc), addresses, groups.get(i.pc, ()))
            except UNEXPECTED as error:
                raise i.unsupported() from error
    for pc in flow.guesses & out.keys():
        out[pc].guess = True
    return out


def with_sources(sites: Iterable[Site]) -> list[Site]:
    """The sites, the global sides of asynchronous copies, and the memories of generic accesses."""
    return [side for site in sites for side in (site, site.source, *site.memories.values()) if side]


def _site(i: Instruction, array: Variable | None, addresses: Mapping[str, int], groups: tuple[Group, ...]) -> Site:
    places = [operand.offset for operand in i.operands if isinstance(operand, Mem)]
    site, start = partial(Site, i.pc, i.line, i.text, i.parts, caller=i.caller), addresses[array.name] if array else 0
    if "bulk" in i.parts:
        own, other = ("ld", "st") if "bulk_group" in i.parts else ("cp", "ld")
        source = site(other, "global", "u4", 4, 4, 0)
        return site(own, "shared", "u4", 4, 4, 0, source=source)
    if i.parts[0] == "cp":
        bytes_ = i.operands[2]
        count = bytes_.value // 4 if isinstance(bytes_, Imm) and isinstance(bytes_.value, int) else 0
        if count not in (1, 2, 4) or len(places) != 2:
            raise i.unsupported("cp.async copies 4, 8 or 16 bytes")
        source = site("ld", "global", "u4", 4, count, places[1])
        return site("cp", "shared", "u4", 4, count, places[0], array, start, source=source)
    if i.parts[0] == "wgmma":
        return site("wgmma", "shared", "u4", 4, 4, 0)
    if not places:
        raise i.unsupported("it has no address")
    op, memory = i.row.memory, i.space
    if i.parts[0] in ("ldmatrix", "stmatrix", "wmma"):
        size, count = 4, 4
        if i.parts[0] == "wmma" and not ((form := fragment(i)).matrices and memory == "shared"):
            size, count = form.size, form.count
        return site(op, memory, f"u{size}", size, count, places[0], array, start)
    type_ = i.parts[-1]
    if type_ not in DTYPES or type_ == "pred":
        raise i.unsupported(f"the emulator doesn't support accesses of type .{type_}")
    size, count = size_of(type_), i.elements
    return site(op, memory, DTYPES[type_], size, count, places[0], array, start, groups)


COMPARED = "sm_90"  # where every rung's counts equal a GPU's hardware counters: tests/emulator/ncu_h200.json


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


def combined(factor: int, one: Any, other_factor: int, other: Any) -> Any:
    """factor * one + other_factor * other, count by count; what a mapping lacks is zero."""
    if isinstance(one, Access | Counts):
        pairs = ((part.name, getattr(one, part.name), getattr(other, part.name)) for part in fields(one))
        return type(one)(**{name: combined(factor, a, other_factor, b) for name, a, b in pairs})
    if isinstance(one, Mapping):
        zeros = {name: type(value)() for name, value in (*one.items(), *other.items())}
        pairs = ((name, one.get(name, zeros[name]), other.get(name, zeros[name])) for name in sorted(zeros))
        return {name: combined(factor, a, other_factor, b) for name, a, b in pairs}
    return factor * one + other_factor * other


def tally(
    kernel: Kernel, blocks: Iterable[Block], executed: Iterable[Sequence[int]], sites: Iterable[Site]
) -> dict[int, Counts]:
    """Counts by source line. executed: (warps, threads) of each block."""
    instructions: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    fma: dict[int, int] = defaultdict(int)
    for block, (warps, threads) in zip(blocks, executed, strict=True):
        for instruction in kernel.instructions[block.start : block.stop]:
            kind = instruction.counted
            instructions[instruction.line][kind] += warps
            fma[instruction.line] += threads if kind == "fma" else 0
    accesses: dict[int, dict[str, Access]] = defaultdict(lambda: defaultdict(Access))
    for site in with_sources(sites):
        name, costs = _kind(site), accesses[site.line]
        if name is not None:
            costs[name] = combined(1, costs[name], 1, Access(*site.costs.tolist()))
    lines = sorted({line for line, kinds in instructions.items() if any(kinds.values())} | accesses.keys())
    return {
        line: Counts(
            **accesses[line],
            instructions={kind: n for kind, n in sorted(instructions[line].items()) if n},
            thread_fma=fma[line],
        )
        for line in lines
    }


def _kind(site: Site) -> str | None:
    """The field of Counts that a site's costs go to. Constant loads, the shared side of a cp.async, and a generic site,
    whose costs Site.at keeps apart by memory, have none.
    """
    if site.op == "cp" or site.space == "generic" or (site.space == "const" and site.op != "atom"):
        return None
    if site.op == "atom":
        return "atomic"
    if site.space == "local":
        return "local"
    return f"{site.space}_{'store' if site.op == 'st' else 'load'}"


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
