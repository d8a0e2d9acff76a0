"""The ladder's memory counts at 4096, as the emulator counted them, in a small file of the package, so that charts and
notebooks have them without a run.

The counts belong to the PTX beside the file and are made with it (`make ptx`); a test counts again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.errors import WorklogError
from worklog.problem import Shape

if TYPE_CHECKING:
    from worklog.emulator import Counts
    from worklog.kernel import Program

FILE = Path(__file__).parents[1] / "kernel" / "ptx" / "traffic.json"
WARP, SECTOR = 32, 32  # threads, bytes


@dataclass(frozen=True)
class MemoryCounts:
    """Counts of one launch. sha256: of the program. requests: memory instructions of a warp. sectors: of 32 bytes.
    load_bytes: the sum of what each thread loads. load_lines: of 128 bytes, each looked up in L1 once per request.
    wavefronts: passes through shared memory, loads and stores; conflicts: those that bank conflicts add. thread_fma:
    multiply-adds of all threads.
    """

    sha256: str
    load_requests: int
    load_sectors: int
    load_bytes: int
    load_lines: int
    store_requests: int
    store_sectors: int
    wavefronts: int
    conflicts: int
    thread_fma: int

    @classmethod
    def of(cls, program: Program, counts: Counts) -> MemoryCounts:
        """The emulator's counts of a launch."""
        loads, stores, shared = counts.global_load, counts.global_store, counts.shared_load + counts.shared_store
        of_loads = loads.requests, loads.sectors, loads.bytes, loads.cache_lines
        of_others = stores.requests, stores.sectors, shared.wavefronts, shared.conflicts, counts.thread_fma
        return cls(program.sha256, *of_loads, *of_others)

    def __add__(self, other: MemoryCounts) -> MemoryCounts:
        sums: dict[str, Any] = {name: count + other.numbers[name] for name, count in self.numbers.items()}
        return replace(self, **sums)

    @property
    def numbers(self) -> dict[str, int]:
        """Every count by its name."""
        return {name: value for name, value in asdict(self).items() if name != "sha256"}

    def at(self, shape: Shape, counted: Shape) -> MemoryCounts:
        """The counts at another shape than the counted one, for a kernel on whole tiles at both: per block, those of
        loads and multiply-adds grow with K, and those of stores do not.
        """
        scaled: dict[str, Any] = {}
        for name, count in self.numbers.items():
            if name.startswith("store"):
                scaled[name] = count * shape.m * shape.n // (counted.m * counted.n)
            else:
                scaled[name] = count * shape.flops // counted.flops
        return replace(self, **scaled)

    @property
    def sectors_per_request(self) -> float:
        """Of global loads."""
        return self.load_sectors / self.load_requests

    @property
    def load_width(self) -> float:
        """Bytes per thread and global load, on average."""
        return self.load_bytes / self.load_requests / WARP

    @property
    def sectors_per_fma(self) -> float:
        """Sectors of global loads and stores per multiply-add of a warp."""
        return (self.load_sectors + self.store_sectors) * WARP / self.thread_fma

    @property
    def wavefronts_per_fma(self) -> float:
        """Wavefronts per multiply-add of a warp."""
        return self.wavefronts * WARP / self.thread_fma

    @property
    def conflict_share(self) -> float:
        """Share of the wavefronts that bank conflicts add."""
        return self.conflicts / self.wavefronts if self.wavefronts else 0.0


@dataclass(frozen=True)
class LadderCounts:
    """rungs: counts by name, in the ladder's order. shape: of the problem. label: the source of the counts."""

    label: str
    shape: Shape
    rungs: Mapping[str, MemoryCounts]


@lru_cache(maxsize=1)
def memory_counts() -> LadderCounts:
    """The counts in the package. Raises WorklogError if the file is missing or cannot be read."""
    try:
        document = json.loads(FILE.read_text(encoding="utf-8"))
        rungs = {name: MemoryCounts(**counts) for name, counts in document["rungs"].items()}
        return LadderCounts(document["label"], Shape.of(document["shape"]), rungs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(f"the counts in {FILE} cannot be read ({error}); install gemm-worklog again") from error
