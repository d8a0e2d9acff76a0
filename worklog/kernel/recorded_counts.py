"""The ladder's counts that are in the package, so that charts and notebooks have them without a run: memory counts at
4096, which the emulator counted, and how busy the units of a GPU were, by Nsight Compute.

The memory counts belong to the PTX beside their file and are made with it (`make ptx`); a test counts again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from worklog.errors import WorklogError
from worklog.kernel.ladder import source_changed
from worklog.kernel.resources import WARP
from worklog.problem import Shape
from worklog.runs import BadRunFile, Bar, Table, recordings

FILE = Path(__file__).with_name("ptx") / "traffic.json"
SECTOR = 32  # bytes


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


def counters(rungs: Sequence[str]) -> Table:
    """A row per rung with the percentage of each unit's peak rate over the launch of its product, without launches that
    split or add, and the busiest unit. "L1 and shared" is the pipe that serves both. A note names those that were not
    recorded: `python -m tests.record.ncu bounds` records them. Raises BadRunFile where no rung was.
    """
    document = json.loads(recordings("counters")["h200"].read_text(encoding="utf-8"))
    kernels = document["kernels"]
    missing, rungs = [name for name in rungs if name not in kernels], [name for name in rungs if name in kernels]
    if not rungs:
        raise BadRunFile(f"no counters of {', '.join(missing)} are recorded: choose from {', '.join(kernels)}")
    units = [*document["metrics"].values()]
    rows = []
    for name in rungs:
        percent = kernels[name]["percent"]
        shares = {unit: Bar(f"{percent[unit]:.0f} %", percent[unit] / 100) for unit in units}
        rows.append({"rung": name, **shares, "busiest": max(units, key=lambda unit: percent[unit])})
    stale = [name for name in rungs if source_changed(name, kernels)]
    notes = [f"source changed since: {', '.join(stale)}"] if stale else []
    notes += [f"no counters are recorded of: {', '.join(missing)}"] if missing else []
    return Table.of(f"{_label(document)} · at {Shape(*document['shape'])}", rows, notes=notes)


def moved_from_l2(shape: Shape) -> tuple[dict[str, int], str]:
    """Bytes between L2 and L1 in one launch of each rung at a shape, and their label: of rungs whose source is the same
    today. Empty where none is recorded: `python -m tests.record.ncu bytes` records them at 4096.
    """
    path = recordings("bytes").get("h200")
    if path is None:
        return {}, ""
    document = json.loads(path.read_text(encoding="utf-8"))
    if Shape(*document["shape"]) != shape:
        return {}, ""
    kernels = document["kernels"]
    moved = {name: int(kernels[name]["bytes"]["L2"]) for name in kernels if not source_changed(name, kernels)}
    return moved, f"bytes: {_label(document)}"


def _label(document: dict[str, Any]) -> str:
    return f"recorded · {document['device']} · {document['date']} · Nsight Compute {document['ncu'].split()[1]}"


def busiest(rung: str) -> str:
    """The unit of the GPU that was busiest in a rung, in words with its share and the label. Raises BadRunFile."""
    table = counters([rung])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    return f"{row['busiest']} {row[str(row['busiest'])]} busy, the busiest unit ({table.title})"
