"""What each rung asks of memory, as the emulator counted it: a small file that comes with the package, so that charts
and notebooks have the numbers without running anything.

The counts belong to the PTX in worklog/ptx/ and are made with it (`make ptx`); a test counts again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from worklog.errors import WorklogError
from worklog.problem.gemm import Shape

FILE = Path(__file__).parents[1] / "kernel" / "ptx" / "traffic.json"
WARP, SECTOR = 32, 32  # threads, bytes


@dataclass(frozen=True)
class RungTraffic:
    """Counts of one launch. sha256: of the program. Requests are instructions of a warp, sectors 32 bytes, wavefronts
    passes through shared memory (loads and stores), conflicts those of them that bank conflicts added; bytes what the
    threads asked for, each for itself.
    """

    sha256: str
    load_requests: int
    load_sectors: int
    load_bytes: int
    store_requests: int
    store_sectors: int
    wavefronts: int
    conflicts: int
    thread_fma: int

    @property
    def sectors_per_request(self) -> float:
        """Of global loads."""
        return self.load_sectors / self.load_requests

    @property
    def load_width(self) -> float:
        """Bytes that a thread asks for at once, on average over the global loads."""
        return self.load_bytes / self.load_requests / WARP

    @property
    def sectors_per_fma(self) -> float:
        """Of global loads and stores, for each multiply-add of a warp."""
        return (self.load_sectors + self.store_sectors) * WARP / self.thread_fma

    @property
    def wavefronts_per_fma(self) -> float:
        """For each multiply-add of a warp."""
        return self.wavefronts * WARP / self.thread_fma

    @property
    def conflict_share(self) -> float:
        """Of the wavefronts."""
        return self.conflicts / self.wavefronts if self.wavefronts else 0.0


@dataclass(frozen=True)
class Traffic:
    """All rungs' counts at one shape, by name in the ladder's order. label: where they come from."""

    label: str
    shape: Shape
    rungs: Mapping[str, RungTraffic]


@lru_cache(maxsize=1)
def traffic() -> Traffic:
    """The counts that come with the package. Raises WorklogError if they are missing or broken."""
    try:
        document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
        rungs = {name: RungTraffic(**counts) for name, counts in document["rungs"].items()}
        return Traffic(document["label"], Shape.of(document["shape"]), rungs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(f"the counts in {FILE} cannot be read ({error}); install gemm-worklog again") from error
