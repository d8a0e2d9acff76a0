"""What a run of a kernel can be blamed for: one record per kind of mistake and place, with the first culprits and
how many more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

KINDS = {
    "shared-race": "two threads use the same shared memory without a barrier between them",
    "missing-syncwarp": "two threads of a warp use the same shared memory without __syncwarp() between them",
    "missing-wait": "shared memory is used before the cp.async that fills it was waited for",
    "global-out-of-bounds": "an address outside every buffer",
    "shared-out-of-bounds": "an address outside the shared array, or the block's shared memory",
    "local-out-of-bounds": "an address outside the thread's local memory",
    "misaligned": "an address that is not a multiple of the access's width",
    "uninitialised-shared": "shared memory is read before anything was written to it, and the value is used",
    "divergent-barrier": "threads of a block wait at different barriers",
    "barrier-after-exit": "threads have left the kernel before a barrier that the others reach",
    "divergent-warp": "a warp instruction names lanes that are not there",
    "read-only": "a store to constant or read-only memory",
    "approximation": "an instruction whose last bits only the hardware knows: here it gives the nearest float",
}
WARNINGS = ("barrier-after-exit", "approximation")


@dataclass(frozen=True)
class Place:
    """Blocks and threads of a launch: numbers to coordinates. Lanes fill whole warps, so a block may have idle ones."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def lanes(self) -> int:
        """Lanes a block: threads, filled up to whole warps."""
        return -(-self.threads // 32) * 32

    def block_at(self, number: int) -> tuple[int, int, int]:
        """(x, y, z) of a block's number."""
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)


@dataclass(frozen=True)
class Finding:
    """One mistake at one place.

    line: of the .cu file (0: unknown, compiled without -lineinfo); other_line: of the other access, or None. text:
    that source line. block: (x, y, z) of the first culprit; threads: its threads' numbers in the block. count: how
    often it was seen. callers: where `line` and `other_line` are in functions, the lines that called these.
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
        """False for what works on GPUs since sm_70 but is seldom meant."""
        return self.kind not in WARNINGS

    def __str__(self) -> str:
        more = f" ({self.count} times)" if self.count > 1 else ""
        return f"line {self.line}: {self.kind}: {self.message}{more}\n    {self.text}"


class Recorder:
    """Collects findings; the same kind at the same lines is one finding with a count."""

    def __init__(self, source: str | None) -> None:
        self.lines = source.splitlines() if source else []
        self.found: dict[tuple[str, int, int | None, tuple[int, ...]], Finding] = {}

    def text(self, line: int) -> str:
        """The source line, empty where the source is not known."""
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""

    def has(self, kind: str, line: int, other_line: int, callers: tuple[int, ...]) -> bool:
        """It was recorded already."""
        return (kind, line, other_line, tuple(filter(None, callers))) in self.found

    def add(
        self,
        kind: str,
        line: int,
        message: str,
        block: tuple[int, int, int],
        threads: Sequence[int],
        other_line: int | None = None,
        count: int = 1,
        callers: tuple[int, ...] = (),
    ) -> None:
        """Record one; only the first of its kind and place keeps its words."""
        callers = tuple(filter(None, callers))
        key = (kind, line, other_line, callers)
        known = self.found.get(key)
        if known:
            self.found[key] = replace(known, count=known.count + count)
        else:
            who = tuple(int(thread) for thread in threads)
            self.found[key] = Finding(kind, line, self.text(line), message, block, who, other_line, count, callers)

    def findings(self) -> tuple[Finding, ...]:
        """All of them, by line."""
        return tuple(sorted(self.found.values(), key=lambda f: (f.line, f.kind, f.other_line or 0, f.callers)))


def plain_name(symbol: str) -> str:
    """A variable's own name out of a mangled local one, such as As out of _ZZ3fooE2As."""
    for match in re.finditer(r"(?=E(\d+)(\D\w*)$)", symbol):
        if len(match[2]) == int(match[1]):
            return match[2]
    return symbol
