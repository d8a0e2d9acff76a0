"""What the core says of asynchronous copies and mbarriers."""

from __future__ import annotations

from typing import Any

from worklog.emulator.core.records import enum
from worklog.emulator.findings import called
from worklog.emulator.memory import GlobalMemory
from worklog.emulator.program import Program
from worklog.emulator.ptx import UnsupportedInstruction

EVENTS = tuple(enum("event_kind"))
IN_FLIGHT = EVENTS.index("IN_FLIGHT")
AT, UNITS = "the mbarrier at shared byte {0}", {False: 16, True: 128}
CELL, PLACE = "shared byte {value}", "uses an mbarrier at byte {0} of the block's {1} bytes of shared memory"
LATE = (
    "completes phase {1} of {at} before any thread has waited for phase {2}: some wait takes the wrong parity, or is "
)
STORE = "exits before its copy from shared memory has been waited for: commit it, and use wait_group.read"
ARRIVALS = "arrives at {at} although all {1} arrivals of its phase {2} have been counted"
BROUGHT = "that the copy of line {other} brings, before a wait for the copy's mbarrier has succeeded"
# By event: the kind of the finding, and what the thread does, with the event's numbers. {at}: the mbarrier; {other}:
# the line of the other place, and its caller.
PROSE = {
    "IN_FLIGHT": (
        "missing-wait",
        "{verb} bytes that the cp.async of line {other} is still writing: wait for the copy first",
    ),
    "READ_EARLY": ("missing-wait", f"reads {CELL} {BROUGHT}"),
    "OVERWRITTEN_EARLY": ("early-overwrite", f"overwrites {CELL} {BROUGHT}"),
    "REFILLED": (
        "early-overwrite",
        f"refills {CELL} before thread {{1}} has released what it reads in line {{other}}: every reader must arrive "
        "first, after its reads",
    ),
    "STORE_UNWAITED": ("missing-wait", STORE),
    "UNFENCED_INIT": (
        "unfenced-init",
        "copies with {at}, whose mbarrier.init no fence.mbarrier_init or fence.proxy.async follows",
    ),
    "NOT_WAITED": ("wrong-phase", LATE + "missing"),
    "ARRIVALS_BEYOND": ("mbarrier-misuse", ARRIVALS),
    "ARRIVALS_BEYOND_BYTES": ("mbarrier-misuse", ARRIVALS + ", and {3} bytes are still to come"),
    "COMPLETED_ANYWAY": ("mbarrier-misuse", "completes a phase of {at} with noComplete"),
    "BYTES_UNEXPECTED": (
        "byte-count",
        "copies {2} bytes that {at} has not expected in phase {1}, which completed without them",
    ),
    "BYTES_TOO_MANY": ("byte-count", "expects more than {1} bytes at {at}"),
    "BYTES_MISSING": (
        "byte-count",
        "expects {2} bytes more than the copies of phase {1} bring to {at}, so that it never completes",
    ),
    "BYTES_SURPLUS": (
        "byte-count",
        "expects {2} bytes fewer than the copies of phase {1} bring to {at}, so that it never completes",
    ),
    "MBARRIER_MISALIGNED": ("misaligned", PLACE),
    "MBARRIER_OUTSIDE": ("shared-out-of-bounds", PLACE),
    "NO_MBARRIER": ("mbarrier-misuse", "uses {at}, which no thread has initialised"),
    "MBARRIER_UNSEEN": ("mbarrier-misuse", "uses {at} with no __syncthreads() after its mbarrier.init"),
    "MBARRIER_AGAIN": ("mbarrier-misuse", "initialises {at} again before mbarrier.inval"),
    "MBARRIER_COUNT": ("mbarrier-misuse", "initialises {at} with a count of {1}"),
    "WRONG_STATE": ("wrong-phase", "waits with the state of phase {2}, and {at} is in {1}"),
    "CALLS_TOO_DEEP": ("stack-overflow", "calls functions in functions more than 1000 deep"),
    "NO_FUNCTION": ("trap", "calls a function at address {value:#x}, where none is"),
    "WRONG_RANK": ("shared-out-of-bounds", "asks for block {1} of its cluster, which has one block"),
}
# Of bulk copies: what follows the places.
BOXES = {
    "BULK_MISALIGNED": ("misaligned", ": these must be multiples of {unit}, 16 and 16"),
    "BOX_MISALIGNED": ("misaligned", ": boxes must start at multiples of 16 bytes along dimension 0"),
    "BULK_OUTSIDE_SHARED": ("shared-out-of-bounds", ""),
    "BULK_OUTSIDE": ("global-out-of-bounds", ""),
    "BULK_READ_ONLY": ("read-only", ""),
    "BOX_BEFORE": (
        "global-out-of-bounds",
        ": an H200 ends a store of a box that begins before its tensor with an illegal instruction",
    ),
}
LACKS = "\nphase {1} of {at} lacks {3} of {4} arrivals"


def said(program: Program, memory: GlobalMemory, event: Any) -> None:
    """A finding of a copy or an mbarrier."""
    kind, what = PROSE[EVENTS[event["kind"]]]
    code, pc, batch = program.kernel.instructions, int(event["pc"]), memory.batch
    other = code[int(event["other_pc"])] if event["other_pc"] >= 0 else None
    place, numbers = program.sites.get(pc) or code[pc], event["numbers"].tolist()
    text = what.format(
        *numbers,
        at=AT.format(*numbers),
        other=f"{other.line}{called(other)}" if other else "",
        value=int(event["value"]),
        verb="overwrites" if pc in program.sites and program.sites[pc].writes else "reads",
    )
    batch.tell(kind, place, int(event["thread"]), text, other, int(event["count"]))


def box(program: Program, memory: GlobalMemory, event: Any) -> None:
    """A bulk copy whose places are wrong."""
    kind, why = BOXES[EVENTS[event["kind"]]]
    site, (start, size, address, *corner) = program.sites[int(event["pc"])], event["numbers"].tolist()
    count = next((int(part[0]) for part in site.parts if part in ("1d", "2d", "3d", "4d", "5d")), 0)
    what = f"copies {size} bytes between shared byte {start} of {int(event['value'])} and global memory "
    what += memory.name(address) + (f", the box at {tuple(corner[:count])}" if count else "")
    what += why.format(unit=UNITS[count > 0])
    memory.batch.tell(kind, site, int(event["thread"]), what, None, int(event["count"]))


def no_tensor_map(program: Program, memory: GlobalMemory, event: Any) -> None:
    """Raises UnsupportedInstruction."""
    site = program.sites[int(event["pc"])]
    what = "no tensor map of this many dimensions that worklog.emulator.tensor_map has made"
    raise UnsupportedInstruction(f"line {site.line}: {site.text}: there is {what} at this address")


def lacking(events: Any) -> str:
    """What the mbarriers lack that threads wait for."""
    out = ""
    for event in events:
        if EVENTS[event["kind"]] == "PHASE_LACKS":
            numbers = event["numbers"].tolist()
            out += LACKS.format(*numbers, at=AT.format(*numbers)) + (f" and {numbers[5]} bytes" if numbers[5] else "")
    return out


TELL: dict[str, Any] = {
    **dict.fromkeys(PROSE, said),
    **dict.fromkeys(BOXES, box),
    "NO_TENSOR_MAP": no_tensor_map,
    "PHASE_LACKS": lambda *_: None,
}
