"""The memory counts of every rung at 4096, which the emulator counted.

They belong to the PTX beside their file and are made with it (`make ptx`); a test counts again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from worklog.emulator.limits import WARP
from worklog.errors import WorklogError
from worklog.problem import Shape

TRAFFIC = Path(__file__).parents[1] / "ptx" / "traffic.json"


@dataclass(frozen=True)
class MemoryCounts:
    """The memory counts of one launch."""

    sha256: str  # of the program
    load_requests: int  # memory instructions of a warp
    load_sectors: int  # of 32 bytes
    load_bytes: int  # the sum of the bytes that each thread loads
    load_lines: int  # of 128 bytes, each looked up in L1 once per request
    store_requests: int  # memory instructions of a warp
    store_sectors: int  # of 32 bytes
    wavefronts: int  # passes through shared memory, loads and stores
    conflicts: int  # wavefronts that bank conflicts add
    thread_fma: int  # multiply-adds of all threads

    def __add__(self, other: MemoryCounts) -> MemoryCounts:
        sums: dict[str, Any] = {
            name: count + other.numbers[name] for name, count in self.numbers.items()
        }
        return replace(self, **sums)

    @property
    def numbers(self) -> dict[str, int]:
        """Every count by name."""
        return {name: value for name, value in asdict(self).items() if name != "sha256"}

    def at(self, shape: Shape, counted: Shape) -> MemoryCounts:
        """Return the counts at another shape.

        The kernel must be on whole tiles at both shapes. Per block, the counts of loads and
        multiply-adds grow with K, and those of stores don't.

        counted: the shape of these counts
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
        """The sectors per request of global loads."""
        return self.load_sectors / self.load_requests

    @property
    def load_width(self) -> float:
        """The average bytes per thread and global load."""
        return self.load_bytes / self.load_requests / WARP

    @property
    def sectors_per_fma(self) -> float:
        """The sectors of global loads and stores per multiply-add of a warp."""
        return (self.load_sectors + self.store_sectors) * WARP / self.thread_fma

    @property
    def wavefronts_per_fma(self) -> float:
        """The wavefronts per multiply-add of a warp."""
        return self.wavefronts * WARP / self.thread_fma

    @property
    def conflict_share(self) -> float:
        """The share of the wavefronts that bank conflicts add."""
        return self.conflicts / self.wavefronts if self.wavefronts else 0.0


@dataclass(frozen=True)
class LadderCounts:
    """The memory counts of every rung."""

    label: str  # the source of the counts
    shape: Shape  # of the problem
    rungs: Mapping[str, MemoryCounts]  # by name, in the ladder's order


@lru_cache(maxsize=1)
def memory_counts() -> LadderCounts:
    """Return the counts in the package. Raises WorklogError if the file can't be read."""
    try:
        document = json.loads(TRAFFIC.read_text(encoding="utf-8"))
        rungs = {name: MemoryCounts(**counts) for name, counts in document["rungs"].items()}
        return LadderCounts(document["label"], Shape.of(document["shape"]), rungs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(
            f"the counts in {TRAFFIC} cannot be read ({error}); install gemm-worklog again"
        ) from error


def block_traffic_bytes(tile: Mapping[str, int], shape: Shape) -> int:
    """Return the bytes that blocks fetch from L2, plus the bytes of C.

    Each block reads its BM rows of A and BN columns of B once, and C is written once.

    tile: BM and BN
    """
    blocks = math.ceil(shape.m / tile["BM"]) * math.ceil(shape.n / tile["BN"])
    fetched = blocks * (tile["BM"] + tile["BN"]) * shape.k
    return 4 * shape.batch * (fetched + shape.m * shape.n)
