"""What a launch on the core gives besides values, findings and counts: its accesses, and which code ran."""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.emulator.findings import Batch
from worklog.emulator.program import Program
from worklog.emulator.ptx import Array

WATCHED = np.dtype([("pc", "i4"), ("warp", "i4"), ("block", "i8"), ("mask", "u8"), ("address", "i8", 32)])
Coverage = tuple[tuple[int, ...], dict[int, tuple[int, int]]]
SLICE = 4096  # instructions until accesses are handed on


def watch(program: Program, batch: Batch, records: Array) -> None:
    """Hand accesses of warps to a launch's `watch`. Accesses to shared memory that ptxas joins are one."""
    for record in records:
        site, lanes = program.sites[int(record["pc"])], slice(32 * int(record["warp"]), 32 * int(record["warp"]) + 32)
        address, active = np.zeros(batch.block_lanes, np.int64), np.zeros(batch.block_lanes, bool)
        address[lanes], active[lanes] = record["address"], int(record["mask"]) >> np.arange(32) & 1
        width = site.width
        for group in site.groups if site.space == "shared" else ():
            wide = address + (group.offset - site.offset)
            if not (wide[active] % group.width).any():
                width, address = group.width * bool(group.leads), wide
                break
        if width and batch.watch is not None:
            batch.blocks = (int(record["block"]),)
            batch.watch(site, address, active, width)


def coverage(program: Program, executed: Any, taken: Any) -> Coverage:
    """By instruction, the threads that reached it; by guarded branch, those that took it and those that did not."""
    counts, branches = list[int](), dict[int, tuple[int, int]]()
    for block, (_, threads), jumped in zip(program.flow.blocks, executed, taken, strict=True):
        counts += [int(threads)] * (block.stop - block.start)
        last = program.kernel.instructions[block.stop - 1]
        if last.parts[0] == "bra" and last.guard:
            branches[last.pc] = int(jumped), int(threads) - int(jumped)
    return tuple(counts), branches
