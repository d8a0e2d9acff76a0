"""Describes the core's events, and a launch that doesn't end.

One table has a sentence for each kind of event. A few kinds aren't in it: they need more than a
sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from worklog.emulator.core import enum
from worklog.emulator.flow import Block
from worklog.emulator.memory import PLACES, GlobalMemory
from worklog.emulator.program import LoadedProgram, Site
from worklog.emulator.ptx import Array, Instruction, UnsupportedInstruction, plain_name
from worklog.emulator.reports import CALLER, WARNINGS, Batch, BudgetExceeded, caller_text
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
    ", with nothing that orders the blocks: line {line} is no atomic operation. What it writes, such as 0, must be in "
    "memory before the launch, as by cudaMemset, or it must be atomic, too"
)
CLUSTER = ", with no barrier of the cluster (cluster.sync()) between them"
CAS_READ = ": harmless where the compare-and-swap is repeated until it succeeds; a volatile read states that"
READ_ONLY_LOAD = ", with a load (const __restrict__ or __ldg) that needs memory that no thread writes during the launch"
LEAVE = "all must pass the cluster's barrier (cluster.sync()) after such accesses"
WAITING = "\n{0} threads wait at barrier {1} in line {line}"
FOR_COUNT = ", which is for {2} threads"
AND_BYTES = " and {5} bytes"
LACKS = f"\nphase {{1}} of {AT} lacks {{3}} of {{4}} arrivals"
# By event, or event and variant: the kind of the finding, and what the thread does. {0} to {7}: the
# event's numbers; {line}: of the other place, with its caller. The other fields are those of
# _fields().
REPORT = {
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
    "PART_OF_GROUP": ("divergent-warp", "executes {op}, which needs 4 whole warps from a multiple of 4 on"),
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
    "LOAD_UNWAITED": (
        "copy-at-exit", "exits while its copy to shared memory may be in flight: wait for the copy's mbarrier, or don't "
        "copy more than is used",
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
AT_BARRIER = (
    "{count} threads wait at barrier {number}, and no other thread of the block will arrive there"
)
# Of a launch that doesn't end, by status: how its error begins, and the reason.
SUMMARIES = {
    "BUDGET_OVER": "after {budget:,} instructions, ",
    "ENDLESS": "deadlock or endless loop: ",
    "DEADLOCK": "deadlock: ",
}
CAUSES = {"BUDGET_OVER": TOO_LONG, "ENDLESS": IN_VAIN, "DEADLOCK": AT_BARRIER}
STILL = "{summary}thread {thread} of block {block} is still {location}\n{reason}"
FOREVER = "thread {thread} of block {block} waits forever: {reason}"
LOCATIONS = {
    "loop": "in the loop of line {line}{caller}: {text}",
    "line": "near line {line}{caller}: {text}",
    "instruction": "near instruction {stop}",
}
ACTION = "thread {thread} of block {block} {action}{caller}"
RACE = "thread {first_thread} of block {first_block} {first} and thread {thread}{of_block} {second} {bytes}{reason}"
SAME_BYTES = "the same bytes of {name}"
ACCESSING = "{verb} (line {line}{caller})"
ELSEWHERE = ", in block {number} of its cluster, which has {blocks}"
REASONS = {
    "read-only": READ_ONLY_LOAD,
    "cluster": CLUSTER,
    "one atomic": ONE_ATOMIC,
    "blocks": BLOCKS,
    "one store": ", different values with one store",
    "warp": ", with no __syncwarp() between them",
    "neither": ", with neither an mbarrier nor __syncthreads() between them",
    "barrier": ", with no __syncthreads() between them",
    "guess": CAS_READ,
}
RACES = {"SHARED_RACE": "shared-race", "GLOBAL_RACE": "global-race", "STALE_READ": "read-only-load"}
UNSUPPORTED = {
    "BASE_OFFSET": "the emulator doesn't support a matrix descriptor with a base offset: align the pattern to 8 of its "
    "lines",
    "NO_TENSOR_MAP": "there is no tensor map of this many dimensions that "
    "worklog.emulator.memory.tensor_map has made at this address: declare a parameter as const "
    "__grid_constant__ CUtensorMap, else the address is that of a copy in local memory",
}


def texts() -> dict[str, Any]:
    """Return the texts of findings, for the same findings in another language."""
    return {
        "report": REPORT,
        "races": RACES,
        "unsupported": UNSUPPORTED,
        "reasons": REASONS,
        "action": ACTION,
        "race": RACE,
        "accessing": ACCESSING,
        "caller": CALLER,
        "bytes": SAME_BYTES,
        "elsewhere": ELSEWHERE,
        "places": PLACES,
        "warnings": WARNINGS,
        "summaries": SUMMARIES,
        "causes": CAUSES,
        "still": STILL,
        "forever": FOREVER,
        "locations": LOCATIONS,
        "lacks": LACKS,
        "and_bytes": AND_BYTES,
        "waiting": WAITING,
        "for_count": FOR_COUNT,
    }


def report(program: LoadedProgram, memory: GlobalMemory, event: Any, shared: int) -> None:
    """Add the finding of an event to the batch.

    shared: bytes per block
    Raises UnsupportedInstruction.
    """
    name = EVENTS[event["kind"]]
    if name in RACES:
        _race(program, memory, event, RACES[name])
        return
    if name in ("PHASE_LACKS", "BARRIER_LACKS"):
        return
    code = program.kernel.instructions
    instruction = code[int(event["pc"])]
    if name in UNSUPPORTED:
        raise UnsupportedInstruction(
            f"line {instruction.line}: {instruction.text}: {UNSUPPORTED[name]}"
        )
    place = _place(program, event, instruction)
    variant = _variant(name, event, place, instruction)
    if variant is None:
        return
    batch = memory.batch
    kind, text = REPORT.get(f"{name} {variant}", REPORT[name])
    other_block = _make_local(batch, event, shared, in_shared=_is_in_shared(name, place))
    other = code[int(event["other_pc"])] if event["other_pc"] >= 0 else None
    fields = _fields(program, memory, event, name=name, place=place, other=other, shared=shared)
    if f"{name} {variant}" == "UNINITIALISED wgmma":
        place = other
    if name in ("UNINITIALISED", "UNDEFINED_SHUFFLE"):
        other = None
    threads = _threads(event)
    block = batch.place(int(event["block"]))
    action = text.format(*event["numbers"].tolist(), **fields) + other_block
    message = ACTION.format(
        thread=threads[0], block=block, action=action, caller=caller_text(place)
    )
    batch.report(
        kind.format(**fields),
        message,
        place,
        other,
        block=block,
        threads=threads,
        count=int(event["count"]),
    )


def _place(program: LoadedProgram, event: Any, instruction: Instruction) -> Any:
    """Return the access site of an event, or the instruction if it isn't an access."""
    site = program.sites.get(instruction.pc)
    if site is None:
        return instruction
    space = int(event["space"])
    side = site.source if space == 3 else site
    assert side is not None
    return side.at(("global", "shared", "local", "")[space])


def _variant(name: str, event: Any, place: Any, instruction: Instruction) -> str | None:
    """Return the variant of an event in REPORT, or ""; None if the event isn't reported."""
    if name == "DIVERGENT_BARRIER":
        if event["warps_differ"]:
            return "by warp"
        is_aligned = instruction.parts[0] == "bar" or "aligned" in instruction.parts
        return "" if is_aligned else None
    if name == "TRAPPED":
        return "assert" if instruction.operands else ""
    if place is instruction:
        return ""
    if place.op == "wgmma":
        return "wgmma"
    space: str = place.space
    return space.replace("const", "global")


def _threads(event: Any) -> list[int]:
    """Return the threads of an event: its lanes of a warp, or its thread."""
    first = int(event["thread"])
    lanes = int(event["lanes"]) or 1 << first % 32
    return [first // 32 * 32 + lane for lane in range(32) if lanes >> lane & 1]


def _is_in_shared(name: str, place: Any) -> bool:
    """Return whether an event is an access to shared memory that has one address."""
    return isinstance(place, Site) and place.space == "shared" and name != "MATRIX_OUTSIDE"


def _make_local(batch: Batch, event: Any, shared: int, *, in_shared: bool) -> str:
    """Replace an event's addresses by bytes of a block, and return _byte's note, or "".

    in_shared: the event's value is an address of shared memory
    """
    event["numbers"][0], note = _byte(batch, int(event["numbers"][0]), shared)
    if in_shared:
        event["value"], note_of_value = _byte(batch, int(event["value"]), shared)
        note = note or note_of_value
    return note


def _byte(batch: Batch, address: int, shared: int) -> tuple[int, str]:
    """Return a byte of a block's shared memory, and a note about another block than the thread's.

    address: as the core has it: a byte of the cluster's, or what its `located` makes of an address
        that is nowhere
    """
    blocks = math.prod(batch.cluster)
    byte = address & 0xFFFFFFFF
    if address >> 40 != 1:
        return address % batch.stride(shared) if blocks > 1 else address, ""
    number = (byte + (1 << 23) & 0xFFFFFFFF) >> 24
    if not 0x80 <= number < 0xC0:
        return byte - (byte >> 31 << 32), ""
    return byte - (number << 24), ELSEWHERE.format(number=number - 0x80, blocks=blocks)


def _fields(
    program: LoadedProgram,
    memory: GlobalMemory,
    event: Any,
    *,
    name: str,
    place: Any,
    other: Any,
    shared: int,
) -> dict[str, object]:
    """Return the fields that the texts of REPORT name.

    place: an access site or an instruction
    other: an instruction, or None
    """
    batch = memory.batch
    value = int(event["value"])
    instruction = program.kernel.instructions[int(event["pc"])]
    is_wgmma = instruction.parts[0] == "wgmma"
    is_group = other is not None and other.parts[0] == "wgmma"
    fields: dict[str, object] = {
        "value": value,
        "more": int(event["other_block"]),
        "op": instruction.parts[0],
        "own": place.line,
        "line": f"{other.line}{caller_text(other)}" if other else "",
        "number": value >> 32,
        "threads": value & 0xFFFFFFFF,
        "lanes": batch.block_lanes,
        "have": registers_of(batch),
        "uses": "multiplies" if is_wgmma else "copies",
        "verb": "uses",
        "reader": "wgmma" if is_group else "copy",
        "wait": "wgmma.wait_group" if is_group else "cp.async.bulk.wait_group.read",
        "overwrites": "reads",
    }
    if place is not instruction:
        fields |= site_fields(program, place, shared) | {"name": memory.name(value)}
    if name == "CROOKED_MATRIX":
        fields["align"] = fragment(instruction).align
    if name == "TRAPPED" and instruction.operands:
        fields["text"] = memory.text(value)
    if name.startswith(("BULK", "BOX")):
        address, *corner = event["numbers"].tolist()[2:]
        dimensions = _dimensions(instruction)
        fields["box"] = memory.name(address)
        if dimensions:
            fields["box"] = f"{fields['box']}, the box at {tuple(corner[:dimensions])}"
        fields["unit"] = 128 if dimensions else 16
    return fields


def registers_of(batch: Batch) -> int:
    """Return the registers that a block can have."""
    return REGISTERS // batch.threads // 8 * 8 * batch.threads


def site_fields(program: LoadedProgram, site: Site, shared: int) -> dict[str, object]:
    """Return the fields of REPORT that an access site gives.

    shared: bytes per block
    """
    is_local = site.space == "local"
    return {
        "space": site.space,
        "width": site.width,
        "verb": site.verb,
        "owner": "thread" if is_local else "block",
        "size": program.local if is_local else shared,
        "array": plain_name(site.array.name) if site.array else "shared memory",
        "array_size": site.array.size if site.array else 0,
        "overwrites": "overwrites" if site.writes else "reads",
    }


def _dimensions(instruction: Instruction) -> int:
    """Return the dimensions of a bulk copy's box; 0 if it copies bytes in a row."""
    for part in instruction.parts:
        if part in ("1d", "2d", "3d", "4d", "5d"):
            return int(part[0])
    return 0


def _race(program: LoadedProgram, memory: GlobalMemory, event: Any, kind: str) -> None:
    """Add the finding of two accesses of one address. The event's own is the second one."""
    batch = memory.batch
    first = program.sites[int(event["other_pc"])]
    second = program.sites[int(event["pc"])]
    first_block = batch.place(int(event["other_block"]))
    first_thread = int(event["other_thread"])
    block = batch.place(int(event["block"]))
    thread = int(event["thread"])
    bytes_raced = first.place
    if kind != "shared-race":
        bytes_raced = _bytes_at(memory, int(event["value"]))
        first = first.source or first
        second = second.source or second
    is_same_block = first_block == block
    kind, reason = _reason(program, event, kind, sites=(first, second), is_same_block=is_same_block)
    if kind in ("shared-race", "missing-syncwarp") and _lacks_wait(batch, first, second):
        return  # the wait orders them
    if (first.guess and second.op == "atom") or (second.guess and first.op == "atom"):
        kind = "cas-read"
        reason = REASONS["guess"]
    message = RACE.format(
        first_thread=first_thread,
        first_block=first_block,
        first=_accessing(first),
        thread=thread,
        of_block="" if is_same_block else f" of block {block}",
        second=_accessing(second),
        bytes=bytes_raced,
        reason=reason,
    )
    threads = (first_thread, thread) if is_same_block else (thread,)
    batch.report(
        kind, message, second, first, block=block, threads=threads, count=int(event["count"])
    )


def _bytes_at(memory: GlobalMemory, address: int) -> str:
    """Return the bytes of a race in global memory, for messages."""
    buffer = memory.at(address)
    return SAME_BYTES.format(name=plain_name(buffer.name if buffer else ""))


def _lacks_wait(batch: Batch, first: Site, second: Site) -> bool:
    """Return whether a missing wait between two accesses was found."""
    callers = tuple(filter(None, (second.caller, first.caller)))
    return ("missing-wait", second.line, first.line, callers) in batch.found


def _accessing(site: Site) -> str:
    """Return the verb and the line of an access, for messages."""
    return ACCESSING.format(verb=site.verb, line=site.line, caller=caller_text(site))


def _reason(
    program: LoadedProgram, event: Any, kind: str, *, sites: tuple[Site, Site], is_same_block: bool
) -> tuple[str, str]:
    """Return the kind of the finding of a race, and the end of its message: what is missing between the accesses."""
    is_shared = kind == "shared-race"
    if kind == "read-only-load":
        return kind, REASONS["read-only"]
    if not is_same_block:
        if is_shared:
            return kind, REASONS["cluster"]
        plain = [site for site in sites if site.op != "atom"]
        if len(plain) == 1 and plain[0].writes:
            return kind, REASONS["one atomic"].format(line=plain[0].line)
        return kind, REASONS["blocks"]
    if sites[0] is sites[1] and not (event["warps_differ"] and program.flow.polling):
        return kind, REASONS["one store"]
    if is_shared and not event["warps_differ"]:
        return "missing-syncwarp", REASONS["warp"]
    if is_shared and program.flow.orders_more_than_barriers:
        return kind, REASONS["neither"]
    return kind, REASONS["barrier"]


def reported(events: Array) -> Array:
    """Return the events to report, so that those of one mistake agree.

    A __syncthreads() that one pair of accesses to shared memory needs also orders the other pairs.
    Reads of unwritten memory are left out if they only precede the write because they race with it.
    A copy without a wait comes first: it is also a race, which is a less precise finding.
    """
    if not len(events):  # the rest takes 2 ms
        return events
    kinds = enum("event_kind")
    races = events["kind"] == kinds["SHARED_RACE"]
    events["warps_differ"][races] = events["warps_differ"][races].any()
    early = events[races & (events["numbers"][:, 0] == 1)]
    is_explained = np.isin(events["pc"], [*early["pc"], *early["other_pc"]])
    remaining: Array = events[~(is_explained & (events["kind"] == kinds["UNINITIALISED"]))]
    return remaining[np.argsort(remaining["kind"] != kinds["IN_FLIGHT"], kind="stable")]


def missing_arrivals(program: LoadedProgram, events: Array) -> str:
    """Return what is missing at the mbarriers and barriers that threads wait for."""
    lines = []
    for event in events[events["kind"] == enum("event_kind")["PHASE_LACKS"]]:
        numbers = event["numbers"].tolist()
        bytes_missing = AND_BYTES.format(*numbers) if numbers[5] else ""
        lines.append(LACKS.format(*numbers) + bytes_missing)
    for event in events[events["kind"] == enum("event_kind")["BARRIER_LACKS"]]:
        numbers = event["numbers"].tolist()
        instruction = program.kernel.instructions[int(event["pc"])]
        line = f"{instruction.line}{caller_text(instruction)}"
        for_count = FOR_COUNT.format(*numbers) if numbers[2] else ""
        lines.append(WAITING.format(*numbers, line=line) + for_count)
    return "".join(dict.fromkeys(lines))


def report_endless(
    program: LoadedProgram,
    batch: Batch,
    launch: Any,
    *,
    status: int,
    executed: Array,
    half: Array,
    missing: str,
) -> None:
    """Raise BudgetExceeded for a launch that doesn't end, or report a deadlock.

    A mistake that was found before is the likely cause: then the launch ends with its findings.

    executed: of each block of code, in warps and threads
    half: the same when half of the budget was over
    missing: what the mbarriers lack that threads wait for
    """
    thread = int(launch.stuck_thread)
    place = batch.place(int(launch.stuck_block))
    block = _block_at(program, launch.stuck_pc)
    name = next(name for name in SUMMARIES if STATUS[name] == status)
    summary = SUMMARIES[name].format(budget=int(launch.budget))
    reason = CAUSES[name].format(count=launch.stuck_count, number=launch.stuck_number)
    if name == "ENDLESS":
        reason += missing
    if any(finding.is_error for finding in batch.found.values()):
        reason = reason.replace("\n", "; ")
        message = FOREVER.format(thread=thread, block=place, reason=reason)
        last = program.kernel.instructions[block.stop - 1]
        batch.report("deadlock", message, last, None, block=place, threads=[thread])
        return
    later = np.flatnonzero(executed[:, 0] > half[:, 0]) if launch.halved else ()
    ran = [block, *(program.flow.blocks[number] for number in later)]
    location = _location(program, batch, block, ran)
    raise BudgetExceeded(
        STILL.format(summary=summary, thread=thread, block=place, location=location, reason=reason)
    )


def _block_at(program: LoadedProgram, pc: int) -> Block:
    for block in program.flow.blocks:
        if block.start <= pc < block.stop:
            return block
    raise LookupError(pc)


def _location(program: LoadedProgram, batch: Batch, block: Block, ran: Sequence[Block]) -> str:
    """Return where a thread that doesn't end is: near a line, or in a loop.

    block: that the thread is in
    ran: that block, and those that ran in the second half of the budget
    """
    # Of the loops around all that ran, the smallest: an inner loop that ends isn't the one that
    # doesn't.
    first = min(other.start for other in ran)
    last = max(other.stop for other in ran)
    loops = []
    for _, start, stop in program.flow.loops:
        if start <= first and last <= stop:
            loops.append((start, stop))
    start, stop = min(loops, key=lambda loop: loop[1] - loop[0], default=(block.start, block.stop))
    # Compilers state odd lines for constants.
    instructions = [
        instruction
        for instruction in program.kernel.instructions[start:stop]
        if instruction.line and instruction.parts[0] != "mov"
    ]
    of_kernel = [instruction for instruction in instructions if not instruction.caller]
    if not instructions:
        return LOCATIONS["instruction"].format(stop=block.stop)
    last_instruction = (of_kernel or instructions)[-1]
    lines = [instruction.line for instruction in of_kernel or instructions]
    if loop := _loop_line(batch.source, min(lines)) if loops else 0:
        text = batch.text(loop)
        caller = caller_text(last_instruction)
        return LOCATIONS["loop"].format(line=loop, caller=caller, text=text)
    line = last_instruction.line
    text = batch.text(line)
    return LOCATIONS["line"].format(line=line, caller=caller_text(last_instruction), text=text)


def _loop_line(source: str, first: int) -> int:
    """Return the line where a loop begins; 0 if the source doesn't show it.

    first: the first line of the loop's instructions
    """
    lines = source.splitlines()[:first]
    for number in range(len(lines), 0, -1):
        code = lines[number - 1].partition("//")[0]
        if re.search(r"\b(?:for|do)\b|(?<!\}) *\bwhile\b", code):
            return number
    return 0
