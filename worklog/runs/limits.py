"""What a multiprocessor holds: its limits by architecture, and how many blocks of a kernel fit.

The arithmetic is that of NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA 13.0); a test compares the two. It is
a bound on what can be resident, not a prediction of speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from worklog.errors import WorklogError

WARP = 32
REGISTERS = 65536  # per SM, since compute capability 5.0; also the maximum per block
REGISTER_UNIT = 256  # a warp's registers are allocated in multiples of this
PARTITIONS = 4  # per SM; each has a quarter of the registers
MAX_THREADS = 1024  # per block
MAX_SHARED_UNASKED = 48 * 1024  # bytes per block, dynamic and static, without cudaFuncSetAttribute
TOO_MANY_BLOCKS = "too many blocks in cooperative launch: {:,}, of which {:,} run together"


@dataclass(frozen=True)
class Limits:
    """Of one SM. warps, blocks: resident at once. shared: bytes. block_shared: the maximum per block. reserved: bytes
    per block that the system uses. unit: shared memory is allocated in multiples of it.
    """

    warps: int
    blocks: int
    shared: int
    block_shared: int
    reserved: int = 1024
    unit: int = 128


KIB = 1024
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (warps, blocks, shared memory), and
# cuda_occupancy.h (blocks, units, the reserved KiB).
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
    """blocks, warps: resident on one SM. share: of its most warps. limited_by: names of what binds."""

    blocks: int
    warps: int
    share: float
    limited_by: tuple[str, ...]


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Of a kernel with `threads` and `shared_bytes` (static and dynamic) per block, and `registers` per thread.

    Zero blocks: the block cannot be launched. Raises WorklogError for an architecture without known limits or a block
    without threads.
    """
    if arch not in LIMITS:
        raise WorklogError(f"the limits of {arch} are unknown: choose from {', '.join(LIMITS)}")
    if threads < 1:
        raise WorklogError(f"a block of {threads} threads: give at least one")

    def up(value: int, unit: int) -> int:
        return -(-value // unit) * unit

    limits = LIMITS[arch]
    warps = -(-threads // WARP)
    bounds = {
        "warps": limits.warps // warps if threads <= MAX_THREADS else 0,
        "blocks": limits.blocks,
    }
    if registers:
        of_warp = up(registers * WARP, REGISTER_UNIT)
        # The launch check gives each partition its share of warps; the allocation gives each one whole warps.
        fits = of_warp * up(warps, PARTITIONS) <= REGISTERS
        bounds["registers"] = (
            REGISTERS // PARTITIONS // of_warp * PARTITIONS // warps if fits else 0
        )
    if shared_bytes > limits.block_shared:
        bounds["shared memory"] = 0
    elif taken := up(shared_bytes + limits.reserved, limits.unit):
        bounds["shared memory"] = limits.shared // taken
    blocks = min(bounds.values())
    limited_by = tuple(name for name, bound in bounds.items() if bound == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limited_by)
