"""Blocks that access memory as another block does, at other addresses.

A block of a rung does what the first block does, further along A, B and C. So a page needs the
steps of one block, and for each other block the distance of each matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.limits import WARP
from worklog.emulator.memory import FIRST_ADDRESS, SPACING
from worklog.kernel import Kernel
from worklog.viewer.elements import code
from worklog.viewer.trace import FLOAT, Executed, Lanes, buffer_names

# A grid of at most so many blocks is compared as a whole, and a larger grid at SAMPLED_BLOCKS: each
# block has to run.
MOST_BLOCKS = 64
SAMPLED_BLOCKS = 16
FIXED_OF_BULK_COPY = [0, 2, 3, 4]  # its place in shared memory, its strips, their size and distance
GLOBAL_OF_BULK_COPY = 1  # its place in global memory
Mask = NDArray[np.bool_]


def compared_blocks(count: int) -> list[int]:
    """Return the blocks of a grid to compare: all, or some from the first to the last."""
    if count <= MOST_BLOCKS:
        return [*range(count)]
    return [int(place) for place in np.linspace(0, count - 1, SAMPLED_BLOCKS)]


class ReferenceBlock:
    """A block that ran, with which other blocks are compared."""

    def __init__(self, kernel: Kernel, run: Executed, elements: Lanes, of_a: int) -> None:
        """Prepare the comparison.

        elements: of A, then B, in the words of shared memory; -1: unknown
        of_a: the number of elements of A
        """
        self.names = buffer_names(kernel)
        order = _by_warp(run.trace)
        self.trace = run.trace[order]
        self.bytes = self.trace["address"].astype(np.int64)
        self.is_global, self.is_fixed = _addresses(run, self.trace)
        self.buffers = (self.bytes[self.is_global] - FIRST_ADDRESS) // SPACING
        in_order = elements[order].ravel()
        self.known_words = np.flatnonzero(in_order >= 0)
        self.elements = in_order[self.known_words]
        self.is_of_a = self.elements < of_a

    def distances(self, trace: NDArray[Any]) -> dict[str, int] | None:
        """Return the distance in bytes of another block's accesses to each matrix.

        None if the other block doesn't do the same.
        """
        other = trace[_by_warp(trace)]
        if not _has_same_steps(self.trace, other):
            return None
        other_bytes = other["address"].astype(np.int64)
        if not np.array_equal(self.bytes[self.is_fixed], other_bytes[self.is_fixed]):
            return None
        moved = other_bytes[self.is_global] - self.bytes[self.is_global]
        distances = dict[str, int]()
        for number in np.unique(self.buffers):
            different = np.unique(moved[self.buffers == number])
            is_known = 0 <= number < len(self.names)
            if len(different) > 1 or (different.any() and not is_known):
                return None
            if is_known:
                distances[self.names[number]] = int(different[0])
        return distances if self._has_same_elements(other["words"], distances) else None

    def _has_same_elements(self, bits: NDArray[np.uint32], moved: dict[str, int]) -> bool:
        """Return whether shared memory has the same elements, at the matrices' distances.

        moved: the distance of each matrix in bytes
        """
        distance = np.where(self.is_of_a, moved.get("A", 0), moved.get("B", 0)) // FLOAT
        return np.array_equal(bits.ravel()[self.known_words], code(self.elements + distance))


def _by_warp(trace: NDArray[Any]) -> Lanes:
    """Return the places of the records of warp 0 in order, then those of warp 1, and so on."""
    return np.argsort(trace["warp"], kind="stable")


def _has_same_steps(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Return whether two traces differ at most in their addresses."""
    if len(ours) != len(theirs):
        return False
    names = ("pc", "warp", "space", "mask", "costs")
    return all(np.array_equal(ours[name], theirs[name]) for name in names)


def _addresses(run: Executed, trace: NDArray[Any]) -> tuple[Mask, Mask]:
    """Return which numbers of each record are global addresses, and which are fixed.

    The fixed numbers are the same in each block: addresses in shared memory, and the size of a bulk
    copy.
    """
    is_active = (trace["mask"][:, None] >> np.arange(WARP, dtype=np.uint32) & 1).astype(bool)
    in_global = (trace["space"] == 0)[:, None]
    is_global = is_active & in_global
    is_fixed = is_active & ~in_global
    bulk = [pc for pc, site in run.result.sites.items() if "bulk" in site.parts]
    is_bulk = np.isin(trace["pc"], bulk) & (trace["space"] == 0)
    is_global[is_bulk] = False
    is_global[is_bulk, GLOBAL_OF_BULK_COPY] = True
    for place in FIXED_OF_BULK_COPY:
        is_fixed[is_bulk, place] = True
    return is_global, is_fixed
