"""Puts the core's events into words, and what is said of a launch that does not end: one table by kind of event, and
the few that are no sentence of it.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from worklog.emulator.core import enum
from worklog.emulator.memory import GlobalMemory
from worklog.emulator.program import Program
from worklog.emulator.ptx import Array, UnsupportedInstruction, plain_name
from worklog.emulator.reports import Batch, BudgetExceeded, called
from worklog.emulator.tensor import fragment

EVENTS = tuple(enum("event_kind"))
STATUS = enum("status")
STACK = enum("stack")
REGISTERS = 65536  # of a multiprocessor
AT = "the mbarrier at shared byte {0}"
PLACE = "uses an mbarrier at byte {0} of the block's {1} bytes of shared memory"
BROUGHT = "that the copy of line {line} brings, before a wait for the copy's mbarrier has succeeded"
ARRIVALS = f"arrives at {AT} although all {{1}} arrivals of its phase {{2}} have been counted"
BOX = "copies {1} bytes between shared byte {0} of {value} and global memory {box}"
USED = ", and line {line} uses the value"
MASK = "the instruction's member mask"
ALL = "all must reach the same __syncthreads()"
BY_WARP = "a barrier counts warps, so this works while no warp is split; let all reach the same __syncthreads()"
WAITS = "waits here, while {value} threads of its block wait at line {line}:"
BLOCKS = (
    ", with nothing that orders the blocks: an index, such as a row length, is wrong if one of them alone should reach "
    "these; else it takes atomics, or a flag with __threadfence() before it is set and after it is seen"
)
ONE_ATOMIC = (
    ", with nothing that orders the blocks: line {} is no atomic operation. What it writes, such as 0, must be in "
    "memory before the launch, as by cudaMemset, or it must be atomic, too"
)
CLUSTER = ", with no barrier of the cluster (cluster.sync()) between them"
CAS_READ = ": harmless where the compare-and-swap is repeated until it succeeds; a volatile read states that"
READ_ONLY_LOAD = ", with a load (const __restrict__ or __ldg) that needs memory that no thread writes during the launch"
LEAVE = "all must pass the cluster's barrier (cluster.sync()) after such accesses"
LACKS = f"\nphase {{1}} of {AT} lacks {{3}} of {{4}} arrivals"
# By event, or event and variant: the kind of the finding, and what the thread does. {0} to {7}: the event's numbers;
# {line}: of the other place, with its caller. The other fields are those of _fields().
WORDS = {
    "OUT_OF_BOUNDS": (
        "{space}-out-of-bounds", "{verb} at byte {value} of the {owner}'s {size} bytes of {space} memory",
    ),
    "OUT_OF_BOUNDS global": ("global-out-of-bounds", "{verb} {width} bytes {name}"),
    "MISALIGNED": ("misaligned", "{verb} {width} bytes at {space} byte {value}, which is not a multiple of {width}"),
    "MISALIGNED global": ("misaligned", "{verb} {width} bytes {name}: the address is not a multiple of {width}"),
    "READ_ONLY": ("read-only", "{verb} {width} bytes {name}, which is read-only"),
    "OUTSIDE_ARRAY": ("{space}-out-of-bounds", "{verb} at byte {value} of {array}, which has {array_size} bytes"),
    "UNINITIALISED": ("uninitialised-shared", f"reads {{array}} before any thread writes a defined value there{USED}"),
    "UNINITIALISED local": ("uninitialised-local", f"reads an element of a local array before it is written{USED}"),
    "UNINITIALISED wgmma": ("missing-wait", "uses a result of the wgmma of line {own} before wgmma.wait_group"),
    "AFTER_EXIT": (
        "barrier-after-exit", "exits the kernel before this barrier, which other threads of its block reach",
    ),
    "DIVERGENT_BARRIER": ("divergent-barrier", f"{WAITS} {ALL}"),
    "DIVERGENT_BARRIER by warp": ("barrier-by-warp", f"{WAITS} {BY_WARP}"),
    "NOT_A_MEMBER": ("member-mask", "executes the instruction, but is not in its own member mask"),
    "OTHER_MASK": ("member-mask", "is in a lane's member mask, but executes the instruction with another one"),
    "NOT_THERE": ("divergent-warp", f"is in {MASK}, but does not execute the instruction"),
    "EXITED": ("exited-in-mask", f"is in {MASK}, but has exited or does not exist"),
    "UNDEFINED_SHUFFLE": (
        "undefined-shuffle",
        "shuffles from a lane that is not in its member mask or does not execute the shuffle" + USED,
    ),
    "PART_OF_WARP": ("divergent-warp", "does not execute {op}, which needs all 32 threads of its warp"),
    "CROOKED_MATRIX": (
        "misaligned", "gives a matrix at byte {value:#x} with {more} bytes from line to line: multiples of {align} and "
        "16 are needed",
    ),
    "CLUSTER_AGAIN": ("barrier-count", "arrives at the cluster's barrier again before it has waited there"),
    "CLUSTER_UNARRIVED": ("barrier-count", "waits at the cluster's barrier, where it has not arrived"),
    "BLOCK_LEFT": ("shared-race", f"{{verb}} shared memory of another block, whose threads have exited: {LEAVE}"),
    "LEFT_EARLY": ("shared-race", f"{{verb}} shared memory of another block, which may have exited before: {LEAVE}"),
    "NOT_STARTED": (
        "shared-race", "{verb} shared memory of another block, which may not run yet: the cluster must meet first",
    ),
    "BARRIER_WRONG": (
        "barrier-count", "names barrier {number} for {threads} threads: there are 0 to 15, for a multiple of 32 "
        "threads up to the block's {lanes}",
    ),
    "BARRIER_AGAIN": ("barrier-count", "arrives at barrier {number} again before that is complete"),
    "BARRIER_MORE": ("barrier-count", "waits at barrier {number} for {threads} threads, but more arrive"),
    "BARRIER_MIXED": (
        "barrier-count", "waits at barrier {number} with a number of threads and others without one, which an H200 "
        "ends with an illegal instruction",
    ),
    "TRAPPED": ("trap", "executes a {op} instruction, as of __{op}()"),
    "TRAPPED assert": ("assertion", "fails assert({text})"),
    "REGISTERS_WANTED": ("registers", "waits for ever: the block's warps want {value} registers, of {have}"),
    "MATRIX_OUTSIDE": ("shared-out-of-bounds", "reads up to byte {value} of the block's {more} bytes of shared memory"),
    "MATRIX_UNWRITTEN": ("uninitialised-shared", "multiplies shared memory that no thread has written"),
    "PART_OF_GROUP": ("divergent-warp", "executes wgmma, which needs 4 whole warps from a multiple of 4 on"),
    "NO_GROUP_FENCE": ("missing-fence", "executes wgmma.mma_async before any wgmma.fence"),
    "DESCRIPTORS": ("descriptor", "gives a matrix descriptor that differs from its warp's others"),
    "MISSING_PROXY_FENCE": (
        "missing-fence", "{uses} shared byte {value} which was written in line {line}, with no fence.proxy.async in "
        "between",
    ),
    "STILL_READ": (
        "early-overwrite", "overwrites shared byte {value} that the {reader} of line {line} may still be reading: use "
        "{wait}, and then a barrier, first",
    ),
    "IN_FLIGHT": (
        "missing-wait", "{overwrites} bytes that the cp.async of line {line} is still writing: wait for the copy first",
    ),
    "READ_EARLY": ("missing-wait", f"reads shared byte {{value}} {BROUGHT}"),
    "OVERWRITTEN_EARLY": ("early-overwrite", f"overwrites shared byte {{value}} {BROUGHT}"),
    "REFILLED": (
        "early-overwrite", "refills shared byte {value} before thread {1} has released what it reads in line {line}: "
        "every reader must arrive first, after its reads",
    ),
    "STORE_UNWAITED": (
        "missing-wait", "exits before its copy from shared memory has been waited for: commit it, and use "
        "wait_group.read",
    ),
    "UNFENCED_INIT": (
        "unfenced-init", f"copies with {AT}, whose mbarrier.init no fence.mbarrier_init or fence.proxy.async follows",
    ),
    "NOT_WAITED": (
        "wrong-phase", f"completes phase {{1}} of {AT} before any thread has waited for phase {{2}}: some wait takes "
        "the wrong parity, or is missing",
    ),
    "ARRIVALS_BEYOND": ("mbarrier-misuse", ARRIVALS),
    "ARRIVALS_BEYOND_BYTES": ("mbarrier-misuse", f"{ARRIVALS}, and {{3}} bytes are still to come"),
    "COMPLETED_ANYWAY": ("mbarrier-misuse", f"completes a phase of {AT} with noComplete"),
    "BYTES_UNEXPECTED": (
        "byte-count", f"copies {{2}} bytes that {AT} has not expected in phase {{1}}, which completed without them",
    ),
    "BYTES_TOO_MANY": ("byte-count", f"expects more than {{1}} bytes at {AT}"),
    "BYTES_MISSING": (
        "byte-count", f"expects {{2}} bytes more than the copies of phase {{1}} bring to {AT}, so that it never "
        "completes",
    ),
    "BYTES_SURPLUS": (
        "byte-count", f"expects {{2}} bytes fewer than the copies of phase {{1}} bring to {AT}, so that it never "
        "completes",
    ),
    "MBARRIER_MISALIGNED": ("misaligned", PLACE),
    "MBARRIER_OUTSIDE": ("shared-out-of-bounds", PLACE),
    "NO_MBARRIER": ("mbarrier-misuse", f"uses {AT}, which no thread has initialised"),
    "MBARRIER_UNSEEN": ("mbarrier-misuse", f"uses {AT} with no __syncthreads() after its mbarrier.init"),
    "MBARRIER_AGAIN": ("mbarrier-misuse", f"initialises {AT} again before mbarrier.inval"),
    "MBARRIER_OVERWRITTEN": (
        "mbarrier-misuse", "writes shared byte {value} of the mbarrier that line {line} initialises: only after its "
        "mbarrier.inval",
    ),
    "MBARRIER_COUNT": ("mbarrier-misuse", f"initialises {AT} with a count of {{1}}"),
    "WRONG_STATE": ("wrong-phase", f"waits with the state of phase {{2}}, and {AT} is in {{1}}"),
    "BULK_MISALIGNED": ("misaligned", f"{BOX}: these must be multiples of {{unit}}, 16 and 16"),
    "BOX_MISALIGNED": ("misaligned", f"{BOX}: boxes must start at multiples of 16 bytes along dimension 0"),
    "BULK_OUTSIDE_SHARED": ("shared-out-of-bounds", BOX),
    "BULK_OUTSIDE": ("global-out-of-bounds", BOX),
    "BULK_READ_ONLY": ("read-only", BOX),
    "BOX_BEFORE": (
        "global-out-of-bounds", f"{BOX}: an H200 ends a store of a box that begins before its tensor with an illegal "
        "instruction",
    ),
    "CALLS_TOO_DEEP": (
        "stack-overflow", f"calls functions in functions more than {STACK['DEEPEST']} deep, or their frames hold more "
        f"than {STACK['STACK'] // 1024} KiB of registers per thread; a GPU's stack has 1 KiB by default",
    ),
    "NO_FUNCTION": ("trap", "calls a function at address {value:#x}, where none is"),
}  # fmt: skip
TOO_LONG = (
    "Most likely a loop that does not end. If it does, use a smaller size, or allow more instructions: worklog check "
    "with --budget, or worklog.emulator.launch with a larger budget"
)
IN_VAIN = "Nothing changes in its loop, and the other threads of the blocks that run together have exited or wait, too"
FRAMES = (
    "line {}: the frames of functions in functions hold more than {:,} MiB in the blocks that run together: run fewer "
    "blocks or threads, or end the recursion earlier"
)
AT_BARRIER = "{} threads wait at barrier {}, and no other thread of the block will arrive there"
RACES = {"SHARED_RACE": "shared-race", "GLOBAL_RACE": "global-race", "STALE_READ": "read-only-load"}
UNSUPPORTED = {
    "BASE_OFFSET": "the emulator doesn't support a matrix descriptor with a base offset: align the pattern to 8 of its "
    "lines",
    "NO_TENSOR_MAP": "there is no tensor map of this many dimensions that worklog.emulator.tensor_map has made at this "
    "address",
}


def tell(program: Program, memory: GlobalMemory, event: Any, shared: int) -> None:
    """Add the finding of an event to the batch. shared: bytes per block. Raises UnsupportedInstruction."""
    batch = memory.batch
    name = EVENTS[event["kind"]]
    code = program.kernel.instructions
    if name in RACES:
        _race(program, memory, event, RACES[name])
        return
    if name == "PHASE_LACKS":
        return
    i = code[int(event["pc"])]
    if name in UNSUPPORTED:
        raise UnsupportedInstruction(f"line {i.line}: {i.text}: {UNSUPPORTED[name]}")
    place: Any = program.sites.get(i.pc) or i
    other = code[int(event["other_pc"])] if event["other_pc"] >= 0 else None
    variant = ""
    if place is not i and event["space"] == 3:
        place = place.source
    if place is not i:
        place = place.at(("global", "shared", "local", "")[int(event["space"])])
        variant = "wgmma" if place.op == "wgmma" else place.space.replace("const", "global")
    if name == "DIVERGENT_BARRIER":
        variant = "by warp" if event["warps_differ"] else ""
        if not variant and i.parts[0] != "bar" and "aligned" not in i.parts:
            return
    elif name == "TRAPPED":
        variant = "assert" if i.operands else ""
    kind, text = WORDS.get(f"{name} {variant}", WORDS[name])
    event["numbers"][0], more = _byte(batch, int(event["numbers"][0]), shared)
    if place is not i and place.space == "shared" and name != "MATRIX_OUTSIDE":
        event["value"], outside = _byte(batch, int(event["value"]), shared)
        more = more or outside
    fields = _fields(program, memory, event, name, place, other, shared)
    first = int(event["thread"])
    lanes = int(event["lanes"]) or 1 << int(event["thread"]) % 32
    threads = [first // 32 * 32 + k for k in range(32) if lanes >> k & 1]
    if f"{name} {variant}" == "UNINITIALISED wgmma":
        place = other
    other = None if name in ("UNINITIALISED", "UNDEFINED_SHUFFLE") else other
    numbers = event["numbers"].tolist()
    count = int(event["count"])
    where = batch.place(int(event["block"]))
    what = text.format(*numbers, **fields) + more
    message = f"thread {threads[0]} of block {where} {what}{called(place)}"
    batch.report(kind.format(**fields), message, place, other, where, threads, count)


def _byte(batch: Batch, address: int, shared: int) -> tuple[int, str]:
    """A byte of a block's shared memory, and what is said of the block where it is none of the thread's own; the core
    gives one of the cluster's, or what its `located` makes of an address that is nowhere.
    """
    blocks = math.prod(batch.cluster)
    own = address & 0xFFFFFFFF
    if address >> 40 != 1:
        return address % batch.stride(shared) if blocks > 1 else address, ""
    number = (own + (1 << 23) & 0xFFFFFFFF) >> 24
    if not 0x80 <= number < 0xC0:
        return own - (own >> 31 << 32), ""
    return own - (number << 24), f", in block {number - 0x80} of its cluster, which has {blocks}"


def _fields(
    program: Program,
    memory: GlobalMemory,
    event: Any,
    name: str,
    place: Any,
    other: Any,
    shared: int,
) -> dict[str, object]:
    """What the texts of WORDS name. place: an access site or an instruction; other: an instruction, or None."""
    batch = memory.batch
    value = int(event["value"])
    i = program.kernel.instructions[int(event["pc"])]
    grouped = other is not None and other.parts[0] == "wgmma"
    out: dict[str, object] = {
        "value": value, "more": int(event["other_block"]), "op": i.parts[0], "own": place.line,
        "line": f"{other.line}{called(other)}" if other else "", "number": value >> 32, "threads": value & 0xFFFFFFFF,
        "lanes": batch.block_lanes, "have": REGISTERS // batch.threads // 8 * 8 * batch.threads,
        "uses": "multiplies" if i.parts[0] == "wgmma" else "copies", "reader": "wgmma" if grouped else "copy",
        "wait": "wgmma.wait_group" if grouped else "cp.async.bulk.wait_group.read", "overwrites": "reads",
    }  # fmt: skip
    if place is not i:
        array = place.array
        owner, size = ("thread", program.local) if place.space == "local" else ("block", shared)
        out |= {
            "space": place.space, "width": place.width, "verb": place.verb, "owner": owner, "size": size,
            "array": plain_name(array.name) if array else "shared memory", "array_size": array.size if array else 0,
            "overwrites": "overwrites" if place.writes else "reads", "name": memory.name(value),
        }  # fmt: skip
    if name == "CROOKED_MATRIX":
        out["align"] = fragment(i).align
    if name == "TRAPPED" and i.operands:
        out["text"] = memory.text(value)
    if name.startswith(("BULK", "BOX")):
        address, *corner = event["numbers"].tolist()[2:]
        count = next(
            (int(part[0]) for part in i.parts if part in ("1d", "2d", "3d", "4d", "5d")), 0
        )
        out["box"] = memory.name(address) + (
            f", the box at {tuple(corner[:count])}" if count else ""
        )
        out["unit"] = 128 if count else 16
    return out


def _race(program: Program, memory: GlobalMemory, event: Any, kind: str) -> None:
    """Two accesses of one address; the event's own is the second one."""
    batch = memory.batch
    sites = program.sites[int(event["other_pc"])], program.sites[int(event["pc"])]
    threads = [
        (batch.place(int(event["other_block"])), int(event["other_thread"])),
        (batch.place(int(event["block"])), int(event["thread"])),
    ]
    what = sites[0].place
    if kind != "shared-race":
        buffer = memory.at(int(event["value"]))
        what = f"the same bytes of {plain_name(buffer.name if buffer else '')}"
        sites = sites[0].source or sites[0], sites[1].source or sites[1]
    if kind == "read-only-load":
        fix = READ_ONLY_LOAD
    elif threads[0][0] != threads[1][0]:
        plain = [site for site in sites if site.op != "atom"]
        is_one_atomic = len(plain) == 1 and plain[0].writes
        fix = ONE_ATOMIC.format(plain[0].line) if is_one_atomic else BLOCKS
        fix = CLUSTER if kind == "shared-race" else fix
    elif sites[0] is sites[1] and not (event["warps_differ"] and program.flow.polling):
        fix = ", different values with one store"
    elif kind == "shared-race" and not event["warps_differ"]:
        kind = "missing-syncwarp"
        fix = ", with no __syncwarp() between them"
    elif kind == "shared-race" and program.flow.orders_more_than_barriers:
        fix = ", with neither an mbarrier nor __syncthreads() between them"
    else:
        fix = ", with no __syncthreads() between them"
    first, second = sites
    callers = tuple(filter(None, (second.caller, first.caller)))
    if ("missing-wait", second.line, first.line, callers) in batch.found and kind in (
        "shared-race",
        "missing-syncwarp",
    ):
        return  # the wait orders them
    if (first.guess and second.op == "atom") or (second.guess and first.op == "atom"):
        kind = "cas-read"
        fix = CAS_READ
    (earlier, one), (block, two) = threads
    text = [f"{site.verb} (line {site.line}{called(site)})" for site in sites]
    owner = "" if block == earlier else f" of block {block}"
    message = (
        f"thread {one} of block {earlier} {text[0]} and thread {two}{owner} {text[1]} {what}{fix}"
    )
    batch.report(
        kind, message, second, first, block, (two,) if owner else (one, two), int(event["count"])
    )


def together(events: Array) -> Array:
    """Make shared races agree: a __syncthreads() that one pair needs orders the other pairs, too. Without reads of what
    was not written only since they race with the write. A copy that was not waited for comes first: it is also a race,
    which says less.
    """
    if not len(events):  # the rest takes 2 ms
        return events
    kinds = enum("event_kind")
    races = events["kind"] == kinds["SHARED_RACE"]
    events["warps_differ"][races] = events["warps_differ"][races].any()
    early = events[races & (events["numbers"][:, 0] == 1)]
    explained = np.isin(events["pc"], [*early["pc"], *early["other_pc"]])
    left: Array = events[~(explained & (events["kind"] == kinds["UNINITIALISED"]))]
    return left[np.argsort(left["kind"] != kinds["IN_FLIGHT"], kind="stable")]


def lacking(events: Array) -> str:
    """What the mbarriers lack that threads wait for."""
    out = ""
    for event in events[events["kind"] == enum("event_kind")["PHASE_LACKS"]]:
        numbers = event["numbers"].tolist()
        out += LACKS.format(*numbers) + (f" and {numbers[5]} bytes" if numbers[5] else "")
    return out


def end(
    program: Program,
    batch: Batch,
    launch: Any,
    status: int,
    executed: Array,
    half: Array,
    more: str,
) -> None:
    """Raises BudgetExceeded, unless a mistake was found before, which is the likely cause: then the launch ends with
    its findings. executed: of each block of code, in warps and threads; half: the same when half of the budget was
    over. more: of what its threads wait for.
    """
    code = program.kernel.instructions
    thread = int(launch.stuck_thread)
    where = batch.place(int(launch.stuck_block))
    block = next(
        block for block in program.flow.blocks if block.start <= launch.stuck_pc < block.stop
    )
    what, why = {
        STATUS["BUDGET_OVER"]: (f"after {launch.budget:,} instructions, ", TOO_LONG),
        STATUS["ENDLESS"]: ("deadlock or endless loop: ", IN_VAIN + more),
        STATUS["DEADLOCK"]: (
            "deadlock: ",
            AT_BARRIER.format(launch.stuck_count, launch.stuck_number),
        ),
    }[status]
    if any(finding.is_error for finding in batch.found.values()):
        message = f"thread {thread} of block {where} waits forever: " + why.replace("\n", "; ")
        batch.report("deadlock", message, code[block.stop - 1], None, where, [thread])
        return
    # Of the loops around the block and all that ran in the second half of the budget, the smallest: an inner loop that
    # ends isn't the one that doesn't.
    later = np.flatnonzero(executed[:, 0] > half[:, 0]) if launch.halved else ()
    ran = [block, *(program.flow.blocks[number] for number in later)]
    first = min(other.start for other in ran)
    last = max(other.stop for other in ran)
    around = [
        (start, stop) for _, start, stop in program.flow.loops if start <= first and last <= stop
    ]
    start, stop = min(around, key=lambda loop: loop[1] - loop[0], default=(block.start, block.stop))
    lines = [
        i.line for i in code[start:stop] if i.line and not i.caller and i.parts[0] != "mov"
    ]  # constants' are odd
    at = f"near instruction {block.stop}"
    if lines:
        loop = _loop_line(batch.source, min(lines)) if around else 0
        at = f"{'in the loop of' if loop else 'near'} line {loop or lines[-1]}: {batch.text(loop or lines[-1])}"
    raise BudgetExceeded(f"{what}thread {thread} of block {where} is still {at}\n{why}")


def _loop_line(source: str, first: int) -> int:
    """The line where a loop begins; 0 if the source doesn't show it.

    first: the first line of the loop's instructions
    """
    lines = source.splitlines()[:first]
    for number in range(len(lines), 0, -1):
        code = lines[number - 1].partition("//")[0]
        if re.search(r"\b(?:for|do)\b|(?<!\}) *\bwhile\b", code):
            return number
    return 0
