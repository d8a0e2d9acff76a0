"""Blocks that access memory as another block does, at other addresses.

A block of a rung does what the first block does, further along A, B and C. So a page needs the
steps of one block, and for each other block the distance of each matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.limits import WARP
from worklog.emulator.memory import FIRST_ADDRESS, SPACING
from worklog.kernel import Kernel
from worklog.viewer.trace import FLOAT, Executed, Lanes, buffer_names

# A grid of at most so many blocks is compared as a whole, and a larger grid at SAMPLED_BLOCKS: each
# block has to run.
MOST_BLOCKS = 64
SAMPLED_BLOCKS = 16
FIXED_OF_BULK_COPY = [0, 2, 3, 4]  # its place in shared memory, its strips, their size and distance
GLOBAL_OF_BULK_COPY = 1  # its place in global memory
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class BlockTrace:
    """What a block did, warp by warp."""

    trace: NDArray[Any]
    # (records, 32, 4): of A, then B, in the words of shared memory; -1: unknown
    elements: Lanes

    def by_warp(self) -> BlockTrace:
        """Return the records of warp 0 in order, then those of warp 1, and so on."""
        order = np.argsort(self.trace["warp"], kind="stable")
        return BlockTrace(self.trace[order], self.elements[order])


def compared_blocks(count: int) -> list[int]:
    """Return the blocks of a grid to compare: all, or some from the first to the last."""
    if count <= MOST_BLOCKS:
        return [*range(count)]
    return [int(place) for place in np.linspace(0, count - 1, SAMPLED_BLOCKS)]


def block_distances(
    kernel: Kernel, run: Executed, first: BlockTrace, other: BlockTrace, of_a: int
) -> dict[str, int] | None:
    """Return the distance in bytes of another block's accesses to each matrix.

    None if the other block doesn't do the same.

    run: of the first block
    of_a: the number of elements of A
    """
    ours = first.by_warp()
    theirs = other.by_warp()
    if not _has_same_steps(ours.trace, theirs.trace):
        return None
    is_global, is_fixed = _addresses(run, ours.trace)
    our_bytes = ours.trace["address"].astype(np.int64)
    their_bytes = theirs.trace["address"].astype(np.int64)
    if not np.array_equal(our_bytes[is_fixed], their_bytes[is_fixed]):
        return None
    buffers = (our_bytes[is_global] - FIRST_ADDRESS) // SPACING
    moved = their_bytes[is_global] - our_bytes[is_global]
    found = dict[str, int]()
    names = buffer_names(kernel)
    for number in np.unique(buffers):
        different = np.unique(moved[buffers == number])
        is_known = 0 <= number < len(names)
        if len(different) > 1 or (different.any() and not is_known):
            return None
        if is_known:
            found[names[number]] = int(different[0])
    if not _has_same_elements(ours.elements, theirs.elements, found, of_a):
        return None
    return found


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


def _has_same_elements(ours: Lanes, theirs: Lanes, moved: dict[str, int], of_a: int) -> bool:
    """Return whether shared memory has the same elements, at the matrices' distances.

    Words with an unknown element aren't compared: a sum can look like an element.

    moved: the distance of each matrix in bytes
    """
    is_known = (ours >= 0) & (theirs >= 0)
    first = ours[is_known]
    of_matrix = np.where(first < of_a, moved.get("A", 0), moved.get("B", 0))
    return bool((theirs[is_known] - first == of_matrix // FLOAT).all())
