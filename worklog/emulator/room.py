"""Is there memory for it? Asked before anything large is allocated, so that nothing is killed for it."""

from __future__ import annotations

import os

from worklog.emulator.errors import TooLarge
from worklog.problem.gemm import Shape


def free_memory() -> int | None:
    """Bytes that the system can still give, None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = [line for line in file if line.startswith("MemAvailable")]
        return int(found[0].split()[1]) * 1024
    except (OSError, IndexError):
        names = getattr(os, "sysconf_names", {})
        if "SC_AVPHYS_PAGES" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None


def require_room(needed: int, what: str, advice: str) -> None:
    """Raise TooLarge if `needed` bytes are not free; where the system does not say how many are, let it try."""
    free = free_memory()
    if free is not None and needed > free:
        raise TooLarge(f"{what} needs about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are free: {advice}")


def require_matrices(shape: Shape, copies: int) -> None:
    """Raise TooLarge where A, B and C in float32, so many times over, are more than there is."""
    needed = 4 * copies * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n)
    require_room(needed, f"size {shape} on the emulator", "take a smaller size")
