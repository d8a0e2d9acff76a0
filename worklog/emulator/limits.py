"""The limits of a multiprocessor by architecture, and how many blocks of a kernel fit.

The arithmetic is that of NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA 13.0), and a test
compares the two. Occupancy is a bound on the resident warps, not a prediction of speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

from worklog.errors import WorklogError

WARP = 32
REGISTERS = 65536  # per SM, since compute capability 5.0; also the maximum per block
REGISTER_UNIT = 256  # a warp's registers are allocated in multiples of this
PARTITIONS = 4  # per SM; each has a quarter of the registers
MAX_THREADS = 1024  # per block
MAX_SHARED_UNASKED = 48 * 1024  # bytes per block, dynamic and static, without cudaFuncSetAttribute
SMS = 132  # of the emulated card, an H200; a test compares it with the core's
TOO_MANY_BLOCKS = "too many blocks in cooperative launch: {:,}, of which {:,} run together"


class ChipFacts(Protocol):
    """A GPU, as a run describes it."""

    @property
    def arch(self) -> str: ...  # noqa: D102
    @property
    def multiprocessors(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Chip:
    """What a kernel's code and launches depend on of a GPU."""

    arch: str = ""  # the architecture, such as "sm_90"; "" for any
    multiprocessors: int = SMS  # default: of the emulated card

    @classmethod
    def of_gpu(cls, gpu: ChipFacts) -> Chip:
        """Return the chip of a GPU."""
        return cls(gpu.arch, gpu.multiprocessors)


@dataclass(frozen=True)
class Limits:
    """The limits of an SM."""

    warps: int  # resident at once
    blocks: int  # resident at once
    shared: int  # bytes
    block_shared: int  # maximum bytes per block
    reserved: int = 1024  # bytes per block that the system uses
    unit: int = 128  # shared memory is allocated in multiples of this


KIB = 1024
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (warps, blocks,
# shared memory), and cuda_occupancy.h (blocks, units, the reserved KiB).
LIMITS = {
    "sm_75": Limits(32, 16, 64 * KIB, 64 * KIB, reserved=0, unit=256),
    "sm_80": Limits(64, 32, 164 * KIB, 163 * KIB),
    "sm_86": Limits(48, 16, 100 * KIB, 99 * KIB),
    "sm_89": Limits(48, 24, 100 * KIB, 99 * KIB),
    "sm_90": Limits(64, 32, 228 * KIB, 227 * KIB),
    "sm_100": Limits(64, 32, 228 * KIB, 227 * KIB),
    "sm_120": Limits(48, 24, 100 * KIB, 99 * KIB),
}


@dataclass(frozen=True)
class Occupancy:
    """The blocks and warps of a kernel that are resident on an SM."""

    blocks: int
    warps: int
    share: float  # of the SM's maximum number of warps
    limited_by: tuple[str, ...]  # names of the binding limits


@cache
def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy of a kernel; with zero blocks, the kernel can't be launched.

    threads: per block
    registers: per thread
    shared_bytes: per block, static and dynamic
    Raises WorklogError for an architecture without known limits, or for a block without threads.
    """
    if arch not in LIMITS:
        raise WorklogError(f"the limits of {arch} are unknown: choose from {', '.join(LIMITS)}")
    if threads < 1:
        raise WorklogError(f"a block of {threads} threads: give at least one")
    limits = LIMITS[arch]
    warps = -(-threads // WARP)
    bounds = {
        "warps": limits.warps // warps if threads <= MAX_THREADS else 0,
        "blocks": limits.blocks,
    }
    if registers:
        warp_registers = _round_up(registers * WARP, REGISTER_UNIT)
        # The launch check assigns each partition its share of warps; the allocation assigns whole
        # warps.
        fits = warp_registers * _round_up(warps, PARTITIONS) <= REGISTERS
        partition_warps = REGISTERS // PARTITIONS // warp_registers
        bounds["registers"] = partition_warps * PARTITIONS // warps if fits else 0
    allocated_bytes = _round_up(shared_bytes + limits.reserved, limits.unit)
    if shared_bytes > limits.block_shared:
        bounds["shared memory"] = 0
    elif allocated_bytes:
        bounds["shared memory"] = limits.shared // allocated_bytes
    blocks = min(bounds.values())
    limited_by = tuple(name for name, bound in bounds.items() if bound == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limited_by)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
