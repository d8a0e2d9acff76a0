"""What the core says of barriers, of what ends a launch, and of threads that wait for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worklog.emulator.core.records import enum, lanes_of
from worklog.emulator.findings import Aborted, Batch, BudgetExceeded
from worklog.emulator.memory import GlobalMemory
from worklog.emulator.program import Program
from worklog.emulator.ptx import Array
from worklog.kernel.source import loop_line

STATUS, EVENTS, REGISTERS = enum("status"), tuple(enum("event_kind")), 65536  # registers of a multiprocessor
TOO_LONG = (
    "Most likely a loop that does not end. If it does, use a smaller size, or allow more instructions: worklog check "
    "with --budget, or worklog.emulator.launch with a larger budget"
)
IN_VAIN = "Nothing changes in its loop, and the other threads of the blocks that run together have exited or wait, too"
BY_WARP = "a barrier counts warps, so this works while no warp is split; let all reach the same __syncthreads()"
TOO_MANY = "there are 0 to 15, for a multiple of 32 threads up to the block's"
MIXED = "with a number of threads and others without one, which an H200 ends with an illegal instruction"


def divergent_barrier(program: Program, memory: GlobalMemory, event: Any) -> None:
    """Threads of a block wait at one barrier in several places."""
    code, other = program.kernel.instructions, program.kernel.instructions[int(event["other_pc"])]
    place, kind, why = code[int(event["pc"])], "divergent-barrier", "all must reach the same __syncthreads()"
    if event["warps_differ"]:
        kind, why = "barrier-by-warp", BY_WARP
    elif place.parts[0] != "bar" and "aligned" not in place.parts:
        return
    what = f"waits here, while {event['value']} threads of its block wait at line {other.line}: {why}"
    memory.batch.tell(kind, place, int(event["thread"]), what, other, int(event["count"]))


def of_barrier(program: Program, memory: GlobalMemory, event: Any) -> None:
    """The other findings at a barrier."""
    place, value, batch = program.kernel.instructions[int(event["pc"])], int(event["value"]), memory.batch
    number, count = value >> 32, value & 0xFFFFFFFF
    finding, what = {
        "AFTER_EXIT": (
            "barrier-after-exit", "exits the kernel before this barrier, which other threads of its block reach",
        ),
        "BARRIER_WRONG": (
            "barrier-count", f"names barrier {number} for {count} threads: {TOO_MANY} {batch.block_lanes}",
        ),
        "BARRIER_AGAIN": ("barrier-count", f"arrives at barrier {number} again before that is complete"),
        "BARRIER_MORE": ("barrier-count", f"waits at barrier {number} for {count} threads, but more arrive"),
        "BARRIER_MIXED": ("barrier-count", f"waits at barrier {number} {MIXED}"),
    }[EVENTS[event["kind"]]]  # fmt: skip
    batch.tell(finding, place, lanes_of(batch, event), what, count=int(event["count"]))


def trap(program: Program, memory: GlobalMemory, event: Any) -> None:
    """A trap, or a failed assertion with the address of its text."""
    place = program.kernel.instructions[int(event["pc"])]
    kind, what = "trap", f"executes a {place.op} instruction, as of __{place.op}()"
    if place.operands:
        kind, what = "assertion", f"fails assert({memory.text(int(event['value']))})"
    memory.batch.tell(kind, place, lanes_of(memory.batch, event), what, count=int(event["count"]))


def registers(program: Program, memory: GlobalMemory, event: Any) -> None:
    """Warps that wait for registers which no other warp releases."""
    batch, place = memory.batch, program.kernel.instructions[int(event["pc"])]
    have = REGISTERS // batch.threads // 8 * 8 * batch.threads
    what = f"waits for ever: the block's warps want {event['value']} registers, of {have}"
    batch.tell("registers", place, lanes_of(batch, event), what, count=int(event["count"]))


BARRIERS = ("AFTER_EXIT", "BARRIER_WRONG", "BARRIER_AGAIN", "BARRIER_MORE", "BARRIER_MIXED")
TELL: dict[str, Any] = {
    **dict.fromkeys(BARRIERS, of_barrier),
    "DIVERGENT_BARRIER": divergent_barrier,
    "TRAPPED": trap,
    "REGISTERS_WANTED": registers,
}


# What does not end.


def end(program: Program, batch: Batch, launch: Any, status: int, executed: Array, half: Array, more: str = "") -> None:
    """Raises BudgetExceeded for a launch that did not end, unless it ends with a finding. more: of what its threads
    wait for.
    """
    pc, number = launch.stuck_pc, launch.stuck_number
    at = next(block.index for block in program.flow.blocks if block.start <= pc < block.stop)
    batch.number = launch.stuck_block
    what, why = {
        STATUS["BUDGET_OVER"]: (f"after {launch.budget:,} instructions, ", TOO_LONG),
        STATUS["ENDLESS"]: ("deadlock or endless loop: ", IN_VAIN + more),
        STATUS["DEADLOCK"]: (
            "deadlock: ",
            f"{launch.stuck_count} threads wait at barrier {number}, and no other thread of the block will arrive "
            "there",
        ),
    }[status]
    before = half[:, 0].tolist() if launch.halved else []
    error = waits_forever(program, batch, executed.tolist(), before, at, launch.stuck_thread, what, why)
    if isinstance(error, BudgetExceeded):
        raise error


def waits_forever(
    program: Program,
    batch: Batch,
    executed: Sequence[Sequence[int]],
    half: Sequence[int],
    number: int,
    lane: int,
    what: str,
    why: str,
) -> BudgetExceeded | Aborted:
    """The error for a lane of the batch that waits forever, at this block of code. executed: of each block, in warps
    and threads; half: in warps, when half of the budget was over, or empty.
    """
    block, code = program.flow.blocks[number], program.kernel.instructions
    where, thread = batch.place(batch.number), lane
    if any(finding.is_error for finding in batch.found.values()):
        # What has been found before is the likely cause, so the launch ends with its findings.
        batch.tell("deadlock", code[block.stop - 1], lane, "waits forever: " + why.replace("\n", "; "))
        return Aborted()
    start, stop = _endless(program, executed, half, number) or (block.start, block.stop)
    lines = [i.line for i in code[start:stop] if i.line and not i.caller and i.parts[0] != "mov"]  # constants' are odd
    at = f"near instruction {block.stop}"
    if lines:
        loop = loop_line(batch.source, min(lines), max(lines))
        at = f"{'in the loop of' if loop else 'near'} line {loop or lines[-1]}: {batch.text(loop or lines[-1])}"
    return BudgetExceeded(f"{what}thread {thread} of block {where} is still {at}\n{why}")


def _endless(
    program: Program, executed: Sequence[Sequence[int]], half: Sequence[int], number: int
) -> tuple[int, int] | None:
    """First and last pc, plus 1, of the smallest loop around a block of code and all that ran in the second half of the
    budget: an inner loop that ends isn't the one that doesn't.
    """
    blocks = program.flow.blocks
    ran = [number, *(n for n, before in enumerate(half) if executed[n][0] > before)]
    first, last = blocks[min(ran)].start, blocks[max(ran)].stop
    around = [(start, stop) for _, start, stop in program.flow.loops if start <= first and last <= stop]
    return min(around, key=lambda loop: loop[1] - loop[0], default=None)
