"""Counts of a launch by source line: requests, sectors, wavefronts, bank conflicts and instructions. Never a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from worklog.emulator.flow import Block
from worklog.emulator.ptx import Instruction, Kernel
from worklog.emulator.sites import Site

COMPARED = "sm_90"  # where every rung's counts equal a GPU's hardware counters: tests/emulator/ncu_h200.json


@dataclass(frozen=True)
class Access:
    """One kind of access.

    requests: warp instructions. sectors: 32-byte pieces of global memory. wavefronts: passes through shared memory;
    conflicts: those of them that bank conflicts add. bytes: requested by the active threads.
    """

    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    bytes: int = 0

    def combined(self, factor: int, other: Access, other_factor: int) -> Access:
        """factor * self + other_factor * other, count by count."""
        names = [f.name for f in fields(Access)]
        return Access(*(factor * getattr(self, name) + other_factor * getattr(other, name) for name in names))

    @property
    def sectors_per_request(self) -> float:
        """4 for a warp that reads 32 adjacent floats, 32 for one sector per lane. NaN without requests."""
        return self.sectors / self.requests if self.requests else float("nan")


@dataclass(frozen=True)
class Counts:
    """All counts of a kernel or of one of its lines.

    instructions: executed warp instructions by class: "fma", "float", "integer", "load", "store", "control", "barrier",
    "other". thread_fma: multiply-adds of all threads, two floating-point operations each. A cp.async is a global load.
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
        return self.combined(1, other, 1)

    def combined(self, factor: int, other: Counts, other_factor: int) -> Counts:
        """factor * self + other_factor * other, count by count."""
        own = {name: getattr(self, name).combined(factor, getattr(other, name), other_factor) for name in ACCESSES}
        names = sorted(self.instructions.keys() | other.instructions.keys())
        mine, others = self.instructions, other.instructions
        instructions = {name: factor * mine.get(name, 0) + other_factor * others.get(name, 0) for name in names}
        thread_fma = factor * self.thread_fma + other_factor * other.thread_fma
        return Counts(**own, instructions=instructions, thread_fma=thread_fma)

    @property
    def global_requests(self) -> int:
        """Loads and stores, as in Nsight Compute's global requests."""
        return self.global_load.requests + self.global_store.requests

    @property
    def global_sectors(self) -> int:
        """Loads and stores, as in Nsight Compute's global sectors."""
        return self.global_load.sectors + self.global_store.sectors

    @property
    def all_instructions(self) -> int:
        """Warp instructions of every class."""
        return sum(self.instructions.values())


ACCESSES = ("global_load", "global_store", "shared_load", "shared_store", "local", "atomic")


_CONTROL = ("bra", "ret", "exit", "taken")
_INTEGER = ("and", "or", "xor", "not", "shl", "shr", "shf", "bfe", "bfi", "brev", "popc", "clz", "prmt", "lop3")


def instruction_class(instruction: Instruction) -> str:
    """The class of Counts.instructions that an instruction belongs to."""
    name, type_ = instruction.parts[0], instruction.parts[-1]
    is_float = type_ in ("f32", "f64", "f16")
    if name == "fma" or (name == "mad" and is_float):
        return "fma"
    if name in ("ld", "cp", "st", "atom", "red"):
        return "store" if name == "st" else "load" if name in ("ld", "cp") else "other"
    if name in _CONTROL:
        return "control"
    if name in ("bar", "barrier"):
        return "barrier"
    if name in ("add", "sub", "mul", "mad", "div", "rem", "min", "max", "abs", "neg", "setp", "sqrt", "rcp"):
        return "float" if is_float else "integer"
    return "integer" if name in _INTEGER else "other"


def tally(
    kernel: Kernel, blocks: Iterable[Block], executed: Iterable[Sequence[int]], sites: Iterable[Site]
) -> dict[int, Counts]:
    """Counts by source line. executed: (warps, threads) of each block."""
    instructions: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    fma: dict[int, int] = defaultdict(int)
    for block, (warps, threads) in zip(blocks, executed, strict=True):
        for instruction in kernel.instructions[block.start : block.stop]:
            kind = instruction_class(instruction)
            instructions[instruction.line][kind] += warps
            fma[instruction.line] += threads if kind == "fma" else 0
    accesses: dict[int, dict[str, Access]] = defaultdict(lambda: defaultdict(Access))
    for site in sites:
        cost = Access(site.requests, site.sectors, site.waves, site.conflicts, site.bytes)
        _add(accesses[site.line], _kind(site), cost)
        source = site.memo.get("source")
        if source is not None:
            _add(accesses[site.line], "global_load", Access(source.requests, source.sectors, bytes=source.bytes))
    lines = sorted({line for line, kinds in instructions.items() if any(kinds.values())} | accesses.keys())
    return {
        line: Counts(
            **accesses[line],
            instructions={kind: n for kind, n in sorted(instructions[line].items()) if n},
            thread_fma=fma[line],
        )
        for line in lines
    }


def _add(accesses: dict[str, Access], name: str | None, cost: Access) -> None:
    if name is not None:
        accesses[name] = accesses[name].combined(1, cost, 1)


def _kind(site: Site) -> str | None:
    """The field of Counts that a site's costs go to; constant loads and the shared side of a cp.async have none."""
    if site.op == "cp" or (site.space == "const" and site.op != "atom"):
        return None
    if site.op == "atom":
        return "atomic"
    if site.space in ("local", "generic"):
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
