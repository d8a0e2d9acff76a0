"""The memories of a GPU: their sizes, their peaks, and what was measured of each.

Sizes and peaks follow from the GPU and its architecture. A run's calibration has measured L2 and
DRAM. `python -m tests.record.memory` measures all of them, in a recording for each GPU model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from worklog.emulator.limits import LIMITS, REGISTERS
from worklog.errors import WorklogError
from worklog.problem import FLOAT_BYTES
from worklog.runs import Gpu, Run, recordings
from worklog.runs.files import Count, Positive, read_json

PART = "memory"  # of the package's recordings
KIND = "memories"
SCHEMA = 1
LINE = 128  # bytes that L1 and shared memory deliver per clock: a line, or a word of each bank
OPERANDS = 3  # that a multiply-add reads from registers
SM = "per SM"
GPU = "per GPU"
# What the next step of a latency's measurement waits for, by memory.
CHASED = {
    "registers": "fma",
    "shared memory": "ld.shared",
    "L1": "ld.global.ca",
    "L2": "ld.global.cg",
    "DRAM": "ld.global.cg",
}


@dataclass(frozen=True)
class MemoryLevel:
    """A memory of a GPU."""

    name: str
    owner: str  # SM or GPU: what it is per
    size_bytes: int | None = None  # of one owner; None if it shares another memory's
    peak_gbs: float | None = None  # of all owners, from widths and clocks; None if it isn't known
    measured_gbs: float | None = None  # of all owners
    latency_cycles: float | None = None


@dataclass(frozen=True)
class Memories:
    """The memories of a GPU, nearest to the multiply-adds first."""

    levels: tuple[MemoryLevel, ...]
    labels: tuple[str, ...]  # the sources of what was measured


@dataclass(frozen=True)
class Latency:
    """The latency of one kind of access, in a chain of some size."""

    chased: str  # one of CHASED
    bytes: Count  # from the first to the last byte of the chain
    cycles: Positive


@dataclass(frozen=True)
class Recorded:
    """The memories of a GPU, as tests/record/memory.py measured them."""

    device: str
    label: str
    latencies: list[Latency]
    read_gbs: dict[str, Positive]  # by memory, read by all multiprocessors together

    def latency(self, memory: str) -> float | None:
        """Return the latency of a memory in cycles; None if it wasn't measured.

        It is that of the smallest chain, and for DRAM that of the largest chain.
        """
        chains = [chain for chain in self.latencies if chain.chased == CHASED[memory]]
        by_size = sorted(chains, key=lambda chain: chain.bytes)
        if not by_size:
            return None
        return by_size[-1 if memory == "DRAM" else 0].cycles


def memories(run: Run) -> Memories:
    """Return the memories of a run's GPU.

    Raises WorklogError for an architecture without known limits, and BadRunFile if a recording
    can't be read.
    """
    gpu = run.gpu
    if gpu.arch not in LIMITS:
        raise WorklogError(
            f"the memories of {gpu.arch} are unknown: choose a run on {', '.join(LIMITS)}"
        )
    levels = _calibrated(run)
    recorded = recorded_of(gpu)
    if recorded is None:
        return Memories(levels, (run.label,))
    return Memories(
        tuple(_as_recorded(level, recorded) for level in levels), (run.label, recorded.label)
    )


def recorded_of(gpu: Gpu) -> Recorded | None:
    """Return the recording of a GPU's memories; None if its model has none."""
    for path in recordings(PART).values():
        _, recorded = read_json(
            path, Recorded, kind=KIND, schema=SCHEMA, advice="install gemm-worklog again"
        )
        if recorded.device == gpu.name:
            return recorded
    return None


def _calibrated(run: Run) -> tuple[MemoryLevel, ...]:
    """Return the memories of a run's GPU, with what the run's calibration measured."""
    gpu = run.gpu
    measured = run.calibration
    line_gbs = LINE * gpu.multiprocessors * gpu.sm_clock_mhz / 1e3
    # A multiply-add is two operations.
    operand_gbs_per_tflops = OPERANDS * FLOAT_BYTES / 2 * 1e3
    return (
        MemoryLevel(
            "registers",
            SM,
            size_bytes=FLOAT_BYTES * REGISTERS,
            peak_gbs=operand_gbs_per_tflops * gpu.fp32_peak_tflops,
            measured_gbs=operand_gbs_per_tflops * measured.fp32_tflops,
        ),
        MemoryLevel("shared memory", SM, size_bytes=LIMITS[gpu.arch].shared, peak_gbs=line_gbs),
        MemoryLevel("L1", SM, peak_gbs=line_gbs),
        MemoryLevel(
            "L2",
            GPU,
            size_bytes=gpu.l2_bytes,
            measured_gbs=measured.l2_gbs,
            latency_cycles=measured.warm_cycles,
        ),
        MemoryLevel(
            "DRAM",
            GPU,
            size_bytes=gpu.memory_bytes,
            peak_gbs=gpu.memory_peak_gbs,
            measured_gbs=measured.copy_gbs,
            latency_cycles=measured.cold_cycles,
        ),
    )


def _as_recorded(level: MemoryLevel, recorded: Recorded) -> MemoryLevel:
    """Return a memory with what a recording has of it instead of what a calibration has."""
    return replace(
        level,
        measured_gbs=recorded.read_gbs.get(level.name, level.measured_gbs),
        latency_cycles=recorded.latency(level.name) or level.latency_cycles,
    )
