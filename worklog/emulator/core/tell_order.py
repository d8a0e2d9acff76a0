"""Findings of accesses that nothing orders, from events of the core."""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.emulator.core.records import enum
from worklog.emulator.findings import ONE_STORE
from worklog.emulator.memory import GlobalMemory
from worklog.emulator.program import Program
from worklog.emulator.ptx import Array, plain_name

BLOCKS = (
    "with nothing that orders the blocks: an index, such as a row length, is wrong if one of them alone should reach "
    "these; else it takes atomics, or a flag with __threadfence() before it is set and after it is seen"
)
READ_ONLY_LOAD = "with a load (const __restrict__ or __ldg) that needs memory that no thread writes during the launch"
SHARED = ("shared-race", "missing-syncwarp")
KINDS = {"SHARED_RACE": "shared-race", "GLOBAL_RACE": "global-race", "STALE_READ": "read-only-load"}


def together(events: Array) -> Array:
    """Make shared races agree: a __syncthreads() that one pair needs orders the other pairs, too. Without reads of what
    was not written only since they race with the write.
    """
    kinds = enum("event_kind")
    races = events["kind"] == kinds["SHARED_RACE"]
    events["warps_differ"][races] = events["warps_differ"][races].any()
    early = events[races & (events["numbers"][:, 0] == 1)]
    explained = np.isin(events["pc"], [*early["pc"], *early["other_pc"]])
    left: Array = events[~(explained & (events["kind"] == kinds["UNINITIALISED"]))]
    return left


def race(program: Program, memory: GlobalMemory, event: Any) -> None:
    """Two accesses of one address; the event's own is the second one."""
    batch, kind = memory.batch, KINDS[tuple(enum("event_kind"))[event["kind"]]]
    sites = program.sites[int(event["other_pc"])], program.sites[int(event["pc"])]
    threads = [
        (batch.place(int(event["other_block"])), int(event["other_thread"])),
        (batch.place(batch.number), int(event["thread"])),
    ]
    what = sites[0].place
    if kind != "shared-race":
        buffer = memory.at(int(event["value"]))
        what = f"the same bytes of {plain_name(buffer.name if buffer else '')}"
        sites = sites[0].source or sites[0], sites[1].source or sites[1]
    if kind == "read-only-load":
        fix = READ_ONLY_LOAD
    elif threads[0][0] != threads[1][0]:
        fix = BLOCKS
    elif sites[0] is sites[1] and not (event["warps_differ"] and program.flow.polling):
        fix = ONE_STORE
    elif kind == "shared-race" and not event["warps_differ"]:
        kind, fix = "missing-syncwarp", "with no __syncwarp() between them"
    elif kind == "shared-race" and program.flow.orders_more_than_barriers:
        fix = "with neither an mbarrier nor __syncthreads() between them"
    else:
        fix = "with no __syncthreads() between them"
    callers = tuple(filter(None, (sites[1].caller, sites[0].caller)))
    if ("missing-wait", sites[1].line, sites[0].line, callers) in batch.found and kind in SHARED:
        return  # the wait orders them
    batch.tell_race(kind, sites, threads, f"{what}, {fix}", int(event["count"]))


TELL = dict.fromkeys(KINDS, race)
