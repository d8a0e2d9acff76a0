"""The report of a launch: its mistakes, its counts by source line, and its errors.

Mistakes have one record per kind and place. Counts are requests, sectors, wavefronts, bank
conflicts and instructions, never a time.

Global: L1 fetches 32-byte sectors; a request costs the distinct sectors that its lanes access.
Shared: 32 banks of 4 bytes; a wavefront delivers one word per bank, to any number of lanes. Both
rules agree with Nsight Compute's counters on an H200 for every rung.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from worklog.emulator.ptx import PtxKernel
from worklog.errors import LaunchFailed, OutOfMemory, WorklogError

# Where every rung's counts were compared with a GPU's counters: tests/emulator/ncu_*.json.
COMPARED = "sm_90"
Triple = tuple[int, int, int]
INVALID = "invalid configuration argument"  # cudaErrorInvalidConfiguration, in CUDA's words
# Kinds of findings that do not fail a launch: threads that exit before a barrier that others of
# their block reach, whole warps at different instructions of one barrier, member masks that name
# lanes that have exited (PTX waits only for the others), instructions whose last bits only the
# hardware defines, reads of a clock, the plain first read of a loop of compare-and-swap, and copies
# to shared memory that nobody has waited for.
WARNINGS = (
    "barrier-after-exit", "barrier-by-warp", "exited-in-mask", "approximation", "no-time", "cas-read", "copy-at-exit",
)  # fmt: skip
CALLER = ", called in line {line}"


class BadLaunch(LaunchFailed):
    """A launch that no GPU accepts: wrong arguments, too many threads, too much shared memory."""


class BudgetExceeded(LaunchFailed):
    """The kernel executed more instructions than the budget: most likely an endless loop."""


class TooLarge(OutOfMemory):
    """The launch needs more memory than is free, or has too many blocks for the emulator."""


class NotPredictable(WorklogError):
    """Traffic can't be predicted: an address or a branch depends on loaded values."""


@dataclass(frozen=True)
class Finding:
    """One mistake at one place.

    kind: "shared-race", "missing-syncwarp", "missing-wait", "uninitialised-shared",
        "divergent-barrier", "barrier-count", "divergent-warp", "member-mask", "undefined-shuffle",
        "misaligned", "read-only", "assertion", "trap", "registers", "global-race",
        "read-only-load", "global-", "shared-" or "local-out-of-bounds"; of asynchronous copies
        "early-overwrite", "missing-fence", "unfenced-init", "mbarrier-misuse", "wrong-phase" and
        "byte-count"; of wgmma "descriptor"; "deadlock", if it follows other errors; or one of
        WARNINGS
    line: of the .cu file (0: unknown, compiled without -lineinfo)
    text: that source line
    block: (x, y, z) of the first block concerned
    threads: numbers of its threads concerned
    other_line: of the other access, or None
    count: how often it occurred
    callers: if `line` and `other_line` are in functions, the lines that called these functions
    """

    kind: str
    line: int
    text: str
    message: str
    block: tuple[int, int, int]
    threads: tuple[int, ...]
    other_line: int | None = None
    count: int = 1
    callers: tuple[int, ...] = ()

    @property
    def is_error(self) -> bool:
        """False for a kind that works on GPUs since sm_70 but is rarely intended."""
        return self.kind not in WARNINGS

    def at(self, file: str) -> str:
        """Return the finding with its place, as in mine.cu:12."""
        count = f" ({self.count} times)" if self.count > 1 else ""
        return f"{file}:{self.line}: {self.kind}: {self.message}{count}\n    {self.text}"


def caller_text(place: Any) -> str:
    """Return where the function that contains the line was called, for messages.

    Empty for the kernel itself.
    """
    return CALLER.format(line=place.caller) if place.caller else ""


@dataclass
class Batch:
    """The blocks of a launch, and the mistakes that were found.

    source, counting, races, traced, progress: as for launch()
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    source: str = ""
    counting: bool = True
    races: bool = True
    traced: bool = False
    progress: Callable[[int, int], None] = lambda _ended, _blocks: None
    cluster: tuple[int, int, int] = (1, 1, 1)
    # By kind, line, other line and callers: mistakes of one kind at the same lines are one finding
    # with a count.
    found: dict[tuple[str, int, int | None, tuple[int, ...]], Finding] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """The threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def block_lanes(self) -> int:
        """The lanes per block: its threads, rounded up to whole warps."""
        return -(-self.threads // 32) * 32

    def stride(self, shared: int) -> int:
        """Return the bytes between the shared memories of a cluster's blocks.

        shared: bytes of shared memory per block
        """
        return 1 << (shared + 127).bit_length()

    def place(self, number: int) -> tuple[int, int, int]:
        """Return (x, y, z) of a block of the launch."""
        columns, rows, _ = self.grid
        return number % columns, number // columns % rows, number // (columns * rows)

    def text(self, line: int) -> str:
        """Return the source line; empty if the source isn't known."""
        lines = self.source.splitlines()
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def add(self, finding: Finding) -> None:
        """Record a finding, or count it if its kind and place have been recorded."""
        key = (finding.kind, finding.line, finding.other_line, finding.callers)
        earlier = self.found.get(key)
        if earlier:
            finding = replace(earlier, count=earlier.count + finding.count)
        self.found[key] = finding

    def report(
        self,
        kind: str,
        message: str,
        place: Any,
        other: Any,
        *,
        block: Triple,
        threads: Sequence[int],
        count: int = 1,
    ) -> None:
        """Record a finding.

        place: an instruction or an access site
        other: the other place concerned, or None
        """
        callers = tuple(filter(None, (place.caller, other.caller if other else 0)))
        line = other.line if other else None
        text = self.text(place.line)
        self.add(
            Finding(kind, place.line, text, message, block, tuple(threads), line, count, callers)
        )

    def findings(self) -> tuple[Finding, ...]:
        """Return all findings, by line."""

        def order(finding: Finding) -> tuple[int, str, int, tuple[int, ...]]:
            return finding.line, finding.kind, finding.other_line or 0, finding.callers

        return tuple(sorted(self.found.values(), key=order))


@dataclass(frozen=True)
class Access:
    """The counts of one kind of access."""

    requests: int = 0  # warp instructions
    sectors: int = 0  # 32-byte pieces of global memory
    wavefronts: int = 0  # passes through shared memory
    conflicts: int = 0  # wavefronts that bank conflicts add
    bytes: int = 0  # requested by the active threads
    cache_lines: int = 0  # 128-byte lines of global memory, each of which a request looks up in L1

    def __add__(self, other: Access) -> Access:
        out: Access = combined(1, self, 1, other)
        return out

    @property
    def sectors_per_request(self) -> float:
        """The sectors per request; NaN without requests.

        4 for a warp that reads 32 adjacent floats, 32 for one sector per lane.
        """
        return self.sectors / self.requests if self.requests else float("nan")


@dataclass(frozen=True)
class Counts:
    """All counts of a kernel or of one of its lines.

    A cp.async is a global load.

    instructions: executed warp instructions by class: "fma", "tensor", "float", "integer", "load",
        "store", "control", "barrier", "other"
    thread_fma: multiply-adds of all threads, two floating-point operations each, without those of
        tensor cores
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
        """The sectors of loads and stores, as in Nsight Compute's global sectors."""
        return self.global_load.sectors + self.global_store.sectors

    @property
    def all_instructions(self) -> int:
        """The warp instructions of every class."""
        return sum(self.instructions.values())


def combined(factor: int, first: Any, other_factor: int, other: Any) -> Any:
    """Return factor * first + other_factor * other, count by count.

    A count that a mapping doesn't have is zero.
    """
    if isinstance(first, Access | Counts):
        pairs = (
            (part.name, getattr(first, part.name), getattr(other, part.name))
            for part in fields(first)
        )
        return type(first)(**{name: combined(factor, a, other_factor, b) for name, a, b in pairs})
    if isinstance(first, Mapping):
        zeros = {name: type(value)() for name, value in (*first.items(), *other.items())}
        pairs = (
            (name, first.get(name, zeros[name]), other.get(name, zeros[name]))
            for name in sorted(zeros)
        )
        return {name: combined(factor, a, other_factor, b) for name, a, b in pairs}
    return factor * first + other_factor * other


def total(lines: Mapping[int, Counts]) -> Counts:
    """Return the counts of all lines together."""
    return sum(lines.values(), Counts())


def caveats(kernel: PtxKernel) -> tuple[str, ...]:
    """Return notes for a kernel's counts: where a GPU's may differ."""
    out = []
    if kernel.arch.rstrip("af") != COMPARED:
        out.append(
            f"the counting rules were compared with hardware counters on {COMPARED} alone; on "
            f"{kernel.arch} the same "
            "rules are applied to this architecture's PTX and machine code"
        )
    if kernel.assembled is False:
        out.append(
            "shared-memory wavefronts are those of the PTX: the assembler joined its shared loads "
            "and stores in a way "
            "that the emulator cannot reproduce, so a GPU's count differs and is usually lower"
        )
    return tuple(out)
