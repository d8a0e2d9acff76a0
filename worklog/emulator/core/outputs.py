"""What a launch on the core gives besides values, findings and counts: its accesses, and which code ran."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from worklog.emulator.findings import Batch
from worklog.emulator.program import Program

Coverage = tuple[tuple[int, ...], dict[int, tuple[int, int]]]
WATCH = ctypes.CFUNCTYPE(
    None, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.POINTER(ctypes.c_int64)
)


def watched(
    program: Program, batch: Batch, errors: list[BaseException], pc: int, warp: int, block: int, mask: int, given: Any
) -> None:
    """Hand an access of a warp to the launch's `watch`. Accesses to shared memory that ptxas joins are one."""
    site, lanes = program.sites[pc], slice(32 * warp, 32 * warp + 32)
    address, active = np.zeros(batch.block_lanes, np.int64), np.zeros(batch.block_lanes, bool)
    address[lanes], active[lanes] = np.ctypeslib.as_array(given, (32,)), mask >> np.arange(32) & 1
    width = site.width
    for group in site.groups if site.space == "shared" else ():
        wide = address + (group.offset - site.offset)
        if not (wide[active] % group.width).any():
            width, address = group.width * bool(group.leads), wide
            break
    batch.blocks = (block,)
    try:
        if width and batch.watch is not None:
            batch.watch(site, address, active, width)
    except BaseException as error:  # no exception passes through C
        errors.append(error)


def coverage(program: Program, executed: Any, taken: Any) -> Coverage:
    """By instruction, the threads that reached it; by guarded branch, those that took it and those that did not."""
    counts, branches = list[int](), dict[int, tuple[int, int]]()
    for block, (_, threads), jumped in zip(program.flow.blocks, executed, taken, strict=True):
        counts += [int(threads)] * (block.stop - block.start)
        last = program.kernel.instructions[block.stop - 1]
        if last.parts[0] == "bra" and last.guard:
            branches[last.pc] = int(jumped), int(threads) - int(jumped)
    return tuple(counts), branches
