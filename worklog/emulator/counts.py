"""What a run cost, a source line and in all: requests, sectors, wavefronts, bank conflicts and instructions. Never
a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from worklog.emulator.flow import Block
from worklog.emulator.ptx import Instruction, Kernel
from worklog.emulator.sites import Site

COMPARED = "sm_90"  # tests/emulator/ncu_h200.json: every rung's counts against a GPU's hardware counters


@dataclass(frozen=True)
class Access:
    """One kind of access.

    requests: instructions, one a warp. sectors: 32-byte pieces of global memory. wavefronts: passes through shared
    memory, conflicts: those of them that the widths alone would not need. bytes: what the active threads asked for.
    """

    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    bytes: int = 0

    def __add__(self, other: Access) -> Access:
        return Access(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Access)))

    def scaled(self, factor: int) -> Access:
        """Every count times `factor`."""
        return Access(*(factor * getattr(self, f.name) for f in fields(Access)))

    @property
    def sectors_per_request(self) -> float:
        """32 bytes each: 4 is a whole warp reading floats side by side, 32 one sector a lane. NaN without requests."""
        return self.sectors / self.requests if self.requests else float("nan")


@dataclass(frozen=True)
class Counts:
    """All counts of a kernel or of one of its lines.

    instructions: executed, one a warp, by class: "fma", "float", "integer", "load", "store", "control", "barrier",
    "other". thread_fma: multiply-adds that threads did, two floating-point operations each. A cp.async is a global
    load.
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
        accesses = {name: getattr(self, name) + getattr(other, name) for name in ACCESSES}
        names = self.instructions.keys() | other.instructions.keys()
        merged = {name: self.instructions.get(name, 0) + other.instructions.get(name, 0) for name in sorted(names)}
        return _counts(accesses, merged, self.thread_fma + other.thread_fma)

    def combined(self, factor: int, other: Counts, other_factor: int) -> Counts:
        """factor * self + other_factor * other: how predictions are put together."""
        return self._scaled(factor) + other._scaled(other_factor)

    def _scaled(self, factor: int) -> Counts:
        accesses = {name: getattr(self, name).scaled(factor) for name in ACCESSES}
        return _counts(accesses, {name: factor * n for name, n in self.instructions.items()}, factor * self.thread_fma)

    @property
    def global_requests(self) -> int:
        """Loads and stores, as Nsight Compute's global requests."""
        return self.global_load.requests + self.global_store.requests

    @property
    def global_sectors(self) -> int:
        """Loads and stores, as Nsight Compute's global sectors."""
        return self.global_load.sectors + self.global_store.sectors

    @property
    def all_instructions(self) -> int:
        """Warp instructions of every class."""
        return sum(self.instructions.values())


ACCESSES = ("global_load", "global_store", "shared_load", "shared_store", "local", "atomic")


def _counts(accesses: Mapping[str, Access], instructions: Mapping[str, int], thread_fma: int) -> Counts:
    loads, stores, shared_loads, shared_stores, local, atomic = (accesses[name] for name in ACCESSES)
    return Counts(loads, stores, shared_loads, shared_stores, local, atomic, instructions, thread_fma)


_CONTROL = ("bra", "ret", "exit", "taken")
_INTEGER = ("and", "or", "xor", "not", "shl", "shr", "shf", "bfe", "bfi", "brev", "popc", "clz", "prmt", "lop3")


def instruction_class(instruction: Instruction) -> str:
    """Which class of Counts.instructions an instruction belongs to."""
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
    kernel: Kernel, blocks: Iterable[Block], executed: Iterable[tuple[int, int]], sites: Iterable[Site]
) -> dict[int, Counts]:
    """Counts by source line. executed: (warps, threads) that ran each block."""
    instructions: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    fma: dict[int, int] = defaultdict(int)
    for block, (warps, threads) in zip(blocks, executed, strict=True):
        for instruction in kernel.instructions[block.start : block.stop]:
            kind = instruction_class(instruction)
            instructions[instruction.line][kind] += warps
            fma[instruction.line] += threads if kind == "fma" else 0
    accesses: dict[int, dict[str, Access]] = defaultdict(lambda: defaultdict(Access))
    for site in sites:
        field_name = _kind(site)
        if field_name:
            cost = Access(site.requests, site.sectors, site.waves, site.conflicts, site.bytes)
            accesses[site.line][field_name] = accesses[site.line][field_name] + cost
        source = site.memo.get("source")
        if source is not None:
            cost = Access(source.requests, source.sectors, bytes=source.bytes)
            accesses[site.line]["global_load"] = accesses[site.line]["global_load"] + cost
    lines = sorted({line for line, kinds in instructions.items() if any(kinds.values())} | accesses.keys())
    return {
        line: _counts(accesses[line], {k: n for k, n in sorted(instructions[line].items()) if n}, fma[line])
        for line in lines
    }


def _kind(site: Site) -> str | None:
    """The field of Counts that a site's costs go to; the shared side of a cp.async has none."""
    if site.op == "cp":
        return None
    if site.op == "atom":
        return "atomic"
    if site.space in ("local", "generic"):
        return "local"
    if site.space == "const":
        return None
    return f"{site.space}_{'store' if site.op == 'st' else 'load'}"


def total(lines: Mapping[int, Counts]) -> Counts:
    """All lines together."""
    return sum(lines.values(), Counts())


def caveats(kernel: Kernel) -> tuple[str, ...]:
    """What to say beside a kernel's counts: where a GPU may count otherwise."""
    out = []
    if kernel.arch.rstrip("af") != COMPARED:
        out.append(
            f"the counting rules were compared with hardware counters on {COMPARED} alone; on {kernel.arch} the "
            "numbers follow from the same rules and this architecture's PTX and machine code"
        )
    if kernel.assembled is False:
        out.append(
            "shared-memory wavefronts are those of the PTX: the assembler joined its shared loads and stores in a way "
            "that is not known here, so a GPU counts others, mostly fewer"
        )
    return tuple(out)
