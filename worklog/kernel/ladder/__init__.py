"""The rungs, and what the package records of them: charts and notebooks need no run."""

from worklog.kernel.ladder.addition import new_rung
from worklog.kernel.ladder.counts import (
    LadderCounts,
    MemoryCounts,
    block_traffic_bytes,
    memory_counts,
)
from worklog.kernel.ladder.names import NAMED, RUNGS, rung, source_changed
from worklog.kernel.ladder.recorded import counters, moved_from_l2
from worklog.kernel.ladder.rungs import FP32, LADDER, TENSOR

__all__ = [
    "FP32",
    "LADDER",
    "NAMED",
    "RUNGS",
    "TENSOR",
    "LadderCounts",
    "MemoryCounts",
    "block_traffic_bytes",
    "counters",
    "memory_counts",
    "moved_from_l2",
    "new_rung",
    "rung",
    "source_changed",
]
