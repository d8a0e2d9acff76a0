"""What a launch did wrong: one record per kind of mistake and place; and the errors before or during emulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from worklog.errors import LaunchFailed, OutOfMemory, WorklogError

Triple = tuple[int, int, int]
INVALID = "invalid configuration argument"  # cudaErrorInvalidConfiguration, in CUDA's words
# Kinds of findings that do not fail a launch: threads that exit before a barrier that others of their block reach,
# whole warps at different instructions of one barrier, member masks that name lanes that have exited (PTX waits only
# for the others), instructions whose last bits only the hardware defines, reads of a clock, and the plain first read of
# a loop of compare-and-swap.
WARNINGS = (
    "barrier-after-exit", "barrier-by-warp", "exited-in-mask", "approximation", "no-time", "unfenced-init", "cas-read",
)  # fmt: skip


class BadLaunch(LaunchFailed):
    """A launch that no GPU accepts: wrong arguments, too many threads, too much shared memory."""


class BudgetExceeded(LaunchFailed):
    """The kernel executed more instructions than the budget: most likely an endless loop."""


class TooLarge(OutOfMemory):
    """The launch needs more host memory than is free, or has more blocks than the emulator can run."""


class NotPredictable(WorklogError):
    """Traffic cannot be predicted without the data: an address or a branch depends on loaded values."""


@dataclass(frozen=True)
class Finding:
    """One mistake at one place.

    kind: "shared-race", "missing-syncwarp", "missing-wait", "uninitialised-shared", "divergent-barrier",
    "barrier-count", "divergent-warp", "member-mask", "undefined-shuffle", "misaligned", "read-only", "assertion",
    "trap", "registers", "global-race", "read-only-load", "global-", "shared-" or "local-out-of-bounds"; of asynchronous
    copies "early-overwrite", "missing-fence", "mbarrier-misuse", "wrong-phase" and "byte-count"; of wgmma "descriptor";
    "deadlock", where it follows other errors; or one of WARNINGS. line: of the .cu file (0: unknown, compiled without
    -lineinfo); other_line: of the other access, or None. text: that source line. block: (x, y, z) of the first block
    concerned; threads: numbers of its threads concerned. count: how often it occurred. callers: where `line` and
    `other_line` are in functions, the lines that called these.
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
        """False for what works on GPUs since sm_70 but is rarely intended."""
        return self.kind not in WARNINGS

    def at(self, file: str) -> str:
        """The finding with its place, as in mine.cu:12."""
        more = f" ({self.count} times)" if self.count > 1 else ""
        return f"{file}:{self.line}: {self.kind}: {self.message}{more}\n    {self.text}"


def called(place: Any) -> str:
    """For messages: where the function that contains the line was called; empty for the kernel itself."""
    return f", called in line {place.caller}" if place.caller else ""


@dataclass
class Batch:
    """What a launch runs, and what it did wrong. source, counting, races, traced, progress: as for launch()."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    source: str = ""
    counting: bool = True
    races: bool = True
    traced: bool = False
    progress: Callable[[int, int], None] = lambda steps, budget: None
    cluster: tuple[int, int, int] = (1, 1, 1)
    # By kind, line, other line and callers: mistakes of one kind at the same lines are one finding with a count.
    found: dict[tuple[str, int, int | None, tuple[int, ...]], Finding] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def block_lanes(self) -> int:
        """Lanes per block: its threads, rounded up to whole warps."""
        return -(-self.threads // 32) * 32

    def stride(self, shared: int) -> int:
        """Bytes from a block's shared memory of some bytes to the next one's of its cluster."""
        return 1 << (shared + 127).bit_length()

    def place(self, number: int) -> tuple[int, int, int]:
        """(x, y, z) of a block of the launch."""
        x, y = self.grid[:2]
        return number % x, number // x % y, number // (x * y)

    def text(self, line: int) -> str:
        """The source line, empty where the source is not known."""
        lines = self.source.splitlines()
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def add(self, finding: Finding) -> None:
        """Record a finding, or count it where one of its kind and place has been recorded."""
        key = (finding.kind, finding.line, finding.other_line, finding.callers)
        known = self.found.get(key)
        self.found[key] = replace(known, count=known.count + finding.count) if known else finding

    def report(
        self, kind: str, message: str, place: Any, other: Any, block: Triple, threads: Sequence[int], count: int = 1
    ) -> None:
        """Record a finding. place, and other, the other place concerned: instructions or access sites."""
        callers = tuple(filter(None, (place.caller, other.caller if other else 0)))
        line, text = other.line if other else None, self.text(place.line)
        self.add(Finding(kind, place.line, text, message, block, tuple(threads), line, count, callers))

    def findings(self) -> tuple[Finding, ...]:
        """All of them, by line."""
        return tuple(sorted(self.found.values(), key=lambda f: (f.line, f.kind, f.other_line or 0, f.callers)))
