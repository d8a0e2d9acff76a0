"""What the core's events of tensor-core instructions say, and of asynchronous reads of shared memory."""

from __future__ import annotations

from typing import Any

from worklog.emulator.core.records import enum, lanes_of
from worklog.emulator.findings import called
from worklog.emulator.memory import GlobalMemory
from worklog.emulator.program import Program
from worklog.emulator.ptx import UnsupportedInstruction
from worklog.emulator.tensor import fragment

EVENTS = tuple(enum("event_kind"))
# By event: the finding's kind, and its words.
WORDS = {
    "PART_OF_WARP": ("divergent-warp", "does not execute {name}, which needs all 32 threads of its warp"),
    "CROOKED_MATRIX": ("misaligned", "gives a matrix at byte {value:#x} with {more} bytes from line to line: multiples "
                       "of {align} and 16 are needed"),
    "MATRIX_OUTSIDE": ("shared-out-of-bounds", "reads up to byte {value} of the block's {more} bytes of shared memory"),
    "MATRIX_UNWRITTEN": ("uninitialised-shared", "multiplies shared memory that no thread has written"),
    "PART_OF_GROUP": ("divergent-warp", "executes wgmma, which needs 4 whole warps from a multiple of 4 on"),
    "NO_GROUP_FENCE": ("missing-fence", "executes wgmma.mma_async before any wgmma.fence"),
    "DESCRIPTORS": ("descriptor", "gives a matrix descriptor that differs from its warp's others"),
    "BASE_OFFSET": ("", "a matrix descriptor with a base offset: align the pattern to 8 of its lines"),
    "MISSING_PROXY_FENCE": ("missing-fence", "{verb} shared byte {value} which was written in line {line}{called}, "
                            "with no fence.proxy.async in between"),
    "STILL_READ": ("early-overwrite", "overwrites shared byte {value} that the {by} of line {line} may still be "
                   "reading: use {wait}, and then a barrier, first"),
}  # fmt: skip


def tell(program: Program, memory: GlobalMemory, event: Any) -> None:
    """A finding of an event."""
    batch, kind, words = memory.batch, *WORDS[EVENTS[event["kind"]]]
    i, other = program.kernel.instructions[int(event["pc"])], program.sites.get(int(event["other_pc"]))
    if not kind:
        raise UnsupportedInstruction(f"line {i.line}: the emulator doesn't support {words}")
    grouped = other is not None and other.op == "wgmma"
    what = words.format(
        name=i.parts[0],
        value=int(event["value"]),
        more=int(event["other_block"]),
        align=fragment(i).align if "{align}" in words else 0,
        verb="multiplies" if i.parts[0] == "wgmma" else "copies",
        line=other.line if other else 0,
        called=called(other) if other else "",
        by="wgmma" if grouped else "copy",
        wait="wgmma.wait_group" if grouped else "cp.async.bulk.wait_group.read",
    )
    lanes = lanes_of(batch, event) if event["lanes"] else int(event["thread"])
    batch.tell(kind, i, lanes, what, other, int(event["count"]))


TELL: dict[str, Any] = dict.fromkeys(WORDS, tell)
