"""What a launch on the core gives besides values, findings and counts: its accesses, and which code ran."""

from __future__ import annotations

from typing import Any

from worklog.emulator.program import Program

Coverage = tuple[tuple[int, ...], dict[int, tuple[int, int]]]


def coverage(program: Program, executed: Any, taken: Any) -> Coverage:
    """By instruction, the threads that reached it; by guarded branch, those that took it and those that did not."""
    counts, branches = list[int](), dict[int, tuple[int, int]]()
    for block, (_, threads), jumped in zip(program.flow.blocks, executed, taken, strict=True):
        counts += [int(threads)] * (block.stop - block.start)
        last = program.kernel.instructions[block.stop - 1]
        if last.parts[0] == "bra" and last.guard:
            branches[last.pc] = int(jumped), int(threads) - int(jumped)
    return tuple(counts), branches
