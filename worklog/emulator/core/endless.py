"""What is said of a launch that does not end."""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.emulator.core.records import enum
from worklog.emulator.findings import Batch, BudgetExceeded
from worklog.emulator.program import Program
from worklog.emulator.ptx import Array
from worklog.kernel.source import loop_line

STATUS = enum("status")
TOO_LONG = (
    "Most likely a loop that does not end. If it does, use a smaller size, or allow more instructions: worklog check "
    "with --budget, or worklog.emulator.launch with a larger budget"
)
IN_VAIN = "Nothing changes in its loop, and the other threads of the blocks that run together have exited or wait, too"
AT_BARRIER = "{} threads wait at barrier {}, and no other thread of the block will arrive there"


def end(program: Program, batch: Batch, launch: Any, status: int, executed: Array, half: Array, more: str) -> None:
    """Raises BudgetExceeded, unless a mistake was found before, which is the likely cause: then the launch ends with
    its findings. executed: of each block of code, in warps and threads; half: the same when half of the budget was
    over. more: of what its threads wait for.
    """
    code, thread, number = program.kernel.instructions, int(launch.stuck_thread), int(launch.stuck_block)
    block = next(block for block in program.flow.blocks if block.start <= launch.stuck_pc < block.stop)
    what, why = {
        STATUS["BUDGET_OVER"]: (f"after {launch.budget:,} instructions, ", TOO_LONG),
        STATUS["ENDLESS"]: ("deadlock or endless loop: ", IN_VAIN + more),
        STATUS["DEADLOCK"]: ("deadlock: ", AT_BARRIER.format(launch.stuck_count, launch.stuck_number)),
    }[status]
    if any(finding.is_error for finding in batch.found.values()):
        batch.tell("deadlock", code[block.stop - 1], number, [thread], "waits forever: " + why.replace("\n", "; "))
        return
    # Of the loops around the block and all that ran in the second half of the budget, the smallest: an inner loop that
    # ends isn't the one that doesn't.
    later = np.flatnonzero(executed[:, 0] > half[:, 0]) if launch.halved else ()
    ran = [block, *(program.flow.blocks[number] for number in later)]
    first, last = min(other.start for other in ran), max(other.stop for other in ran)
    around = [(start, stop) for _, start, stop in program.flow.loops if start <= first and last <= stop]
    start, stop = min(around, key=lambda loop: loop[1] - loop[0], default=(block.start, block.stop))
    lines = [i.line for i in code[start:stop] if i.line and not i.caller and i.parts[0] != "mov"]  # constants' are odd
    at = f"near instruction {block.stop}"
    if lines:
        loop = loop_line(batch.source, min(lines), max(lines))
        at = f"{'in the loop of' if loop else 'near'} line {loop or lines[-1]}: {batch.text(loop or lines[-1])}"
    raise BudgetExceeded(f"{what}thread {thread} of block {batch.place(number)} is still {at}\n{why}")
