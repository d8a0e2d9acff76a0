"""Runs a decoded kernel on the core, which is compiled where that has not been done, and puts its events into words."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from worklog.emulator.core import tell_async, tell_blocks, tell_order, tell_tensor, tell_warps
from worklog.emulator.core.build import find
from worklog.emulator.core.decode import NONE, decoded
from worklog.emulator.core.records import INSTRUCTION, SITE, STEP, enum, lanes_of
from worklog.emulator.core.register_file import LANES
from worklog.emulator.findings import Finding, TooLarge
from worklog.emulator.memory import LAYOUT, LAYOUTS, GlobalMemory
from worklog.emulator.program import Program
from worklog.emulator.ptx import Array, UnsupportedInstruction, plain_name
from worklog.errors import WorklogError, install_command
from worklog.kernel.disk_cache import folder

SLICE = 4_000_000  # instructions until the core returns, for Ctrl-C and progress
EVENTS = 4096
DONE, SLICE_OVER, BUDGET_OVER, DEADLOCK, NO_MEMORY, ENDLESS, ABORTED, UNSUPPORTED = range(8)
# Of the events that no other module says.
KINDS = (
    "out-of-bounds", "misaligned", "read-only", "outside-array", "uninitialised-shared", "shared-race", "global-race",
    "read-only-load", "", "",
    *tell_warps.KINDS,
)  # fmt: skip
CELL = np.dtype([("stamps", "u4", 9), ("agreed", "u4")])
POINTED = ("base", "size", "data", "cells", "written")
BUFFER = np.dtype([*((name, "u8") for name in POINTED), ("writable", "i4"), ("", "i4")])
EVENT = np.dtype([
    *((name, "i4") for name in ("kind", "pc", "other_pc", "thread", "other_thread", "warps_differ")),
    ("lanes", "u4"), ("space", "u4"), *((name, "i8") for name in ("block", "other_block", "value", "count")),
    ("numbers", "i8", 8),
])  # fmt: skip
POINTERS = ("code", "sites", "buffers", "image", "numbers", "executed", "choices", "events", "specials", "lists")
WIDE = ("blocks_count", "next", "code_count", "budget", "slice", "steps", "ticks")
NARROW = (
    "shared_size", "local_size", "buffers_count", "grain", "counting", "checking", "values", "sites_count",
    "stuck_pc", "stuck_thread", "status", "stuck_count", "scratch", "fences",
)  # fmt: skip
TURNS = ("together", "resident_count", "turn", "ended", "basic_blocks", "halved", "stuck_number", "reserved", "waits")
WATCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MOST_STEPS = 100_000  # of a trace, of which each has 0.8 kB
PRINT = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)


class Launch(ctypes.Structure):
    """As in core.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in WIDE),
        *((name, ctypes.c_int32) for name in ("file_size", "special_count", "events_count", "events_room")),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        *((name, ctypes.c_int32) for name in NARROW),
        ("stuck_block", ctypes.c_int64),
        ("print", PRINT),
        ("watch", WATCH),
        *((name, ctypes.c_void_p) for name in ("half", "resident", "between")),
        *((name, ctypes.c_int64) for name in ("changes", "changes_before", "quiet", "vain", "seed")),
        *((name, ctypes.c_int32) for name in TURNS),
        ("layouts", ctypes.c_void_p),
        ("layouts_count", ctypes.c_int32),
        ("orders_more", ctypes.c_int32),
        ("events_lost", ctypes.c_int32),
        ("space", ctypes.c_uint32),
    )


@cache
def library() -> Any:
    """The core for this CPU, compiled where that has not been done. Raises WorklogError."""
    try:
        target = find(folder(), install_command())
    except (OSError, RuntimeError) as error:
        raise WorklogError(str(error)) from error
    loaded = ctypes.CDLL(str(target))
    known = (ctypes.c_int32 * 7)()
    loaded.sizes(known)
    ours = [dtype.itemsize for dtype in (INSTRUCTION, SITE, BUFFER, EVENT)]
    ours += [ctypes.sizeof(Launch), CELL.itemsize, STEP.itemsize]
    assert [*known] == ours, ([*known], ours)
    return loaded


def costs_of(addresses: Array, active: Array, width: int, *, shared: bool) -> tuple[int, ...]:
    """Requests, sectors, wavefronts, bank conflicts, bytes and L1 lines of one access of a warp. addresses, active: by
    lane. width: bytes per lane.
    """
    out, mask = np.zeros(6, np.int64), sum(1 << int(lane) for lane in np.flatnonzero(active))
    if mask:
        given = np.where(active, addresses, addresses[active.argmax()]).astype(np.uint64)
        library().costs_of(ctypes.c_void_p(given.ctypes.data), mask, width, shared, ctypes.c_void_p(out.ctypes.data))
    return tuple(out.tolist())


def run(
    program: Program,
    memory: GlobalMemory,
    params: Mapping[str, bytes],
    shared: int,
    local: int,
    numbers: Sequence[int],
    budget: int,
    reserved: int = 0,
    together: int = 1,
    seed: int = 0,
) -> tuple[list[list[int]], tuple[tuple[int, ...], Array], Array]:
    """Run blocks of a decoded program; how often each basic block ran, in warps and threads; how many threads reached
    each instruction, and its choices (see core.h); and the trace, if the batch is traced. Findings go to the batch,
    costs to the program's sites. reserved: bytes at the end of shared memory that hold zeros when a block starts.
    together: how many blocks may wait for each other. seed: of the order in which warps and blocks take turns.
    """
    batch, form = memory.batch, decoded(program)
    image, sites, code_ = form.image.copy(), form.sites.copy(), form.code
    sizes = {f"%{name}.{axis}": size for name, three in (("ntid", batch.block), ("nctaid", batch.grid))
             for axis, size in zip("xyz", three, strict=True)}  # fmt: skip
    sizes["%nwarpid"] = batch.block_lanes // LANES
    for at, name, place, dtype, width in form.params:
        given = int(sizes[name]).to_bytes(4, "little") if name in sizes else params[name][place:]
        value = given[: np.dtype(dtype).itemsize]
        sign = 0xFF if dtype[0] == "i" and value[-1] > 127 else 0
        image[at : at + LANES * width] = np.frombuffer(value.ljust(width, bytes([sign])) * LANES, np.uint8)
    grain = min([4, *(site.size for site in form.owners)])
    buffers, cells = np.zeros(len(memory.buffers), BUFFER), []
    for record, buffer in zip(buffers, memory.buffers, strict=True):
        record["base"], record["size"], record["writable"] = buffer.base, buffer.size, buffer.writable
        record["data"] = 0 if buffer.data is None else buffer.data.ctypes.data
        if buffer.base in memory.checked:
            cells.append(np.zeros(-(-buffer.size // grain) + 1, CELL))
            record["cells"] = cells[-1].ctypes.data
    sites["buffer"] = NONE
    events, executed = np.zeros(EVENTS, EVENT), np.zeros((len(program.flow.blocks), 2), np.int64)
    which, choices = np.asarray(numbers, np.int64), np.zeros(len(code_), np.uint8)
    arrays = (code_, sites, buffers, image, which, executed, choices, events, form.specials, form.lists)
    launch = Launch(*(array.ctypes.data for array in arrays))
    launch.blocks_count, launch.code_count, launch.budget, launch.slice = len(which), len(code_), budget, SLICE
    launch.file_size, launch.special_count, launch.events_room = image.nbytes, len(form.specials) // 2, EVENTS
    launch.grid[:], launch.block[:] = batch.grid, batch.block
    launch.shared_size, launch.local_size, launch.buffers_count = shared, local, len(buffers)
    launch.grain, launch.sites_count, launch.scratch = grain, len(sites), form.scratch
    launch.fences = program.flow.fences
    launch.counting, launch.checking, launch.values = batch.counting, batch.races and batch.values, batch.values
    half = np.zeros_like(executed)
    errors: list[BaseException] = []
    launch.print = PRINT(partial(_printed, memory, local, errors))
    steps: list[bytes] = []
    if batch.traced:
        launch.watch = WATCH(
            lambda step: steps.append(ctypes.string_at(step, STEP.itemsize)) if len(steps) < MOST_STEPS else None
        )
    launch.half, launch.basic_blocks, launch.seed = half.ctypes.data, len(executed), seed
    launch.reserved = reserved
    launch.together, launch.waits = together, bool(program.flow.polling or program.flow.may_wait)
    layouts = np.frombuffer(b"".join(LAYOUTS), LAYOUT)
    launch.layouts, launch.layouts_count = layouts.ctypes.data, len(layouts)
    launch.orders_more = program.flow.orders_more_than_barriers
    core = library()
    try:
        while (status := core.launch_run(ctypes.byref(launch))) == SLICE_OVER:
            batch.progress(launch.steps, budget)
    finally:
        core.launch_free(ctypes.byref(launch))
    for error in errors:
        raise error
    for site, record in zip(form.owners, sites, strict=True):
        site.costs += record["costs"]
    reported = tell_order.together(events[: launch.events_count])
    # A copy that was not waited for is also a race, which says less.
    for event in sorted(reported, key=lambda event: event["kind"] != tell_async.IN_FLIGHT):
        _tell(program, memory, event, {"shared": ("block", shared), "local": ("thread", local)})
    if launch.events_lost:
        what = f"{launch.events_lost:,} mistakes at other places are not listed: the emulator keeps {EVENTS:,}"
        batch.add(Finding("not-listed", 0, "", what, (0, 0, 0), (), count=launch.events_lost))
    if len(steps) == MOST_STEPS:
        raise TooLarge(f"the warps do more than {MOST_STEPS:,} accesses: run fewer blocks, or a smaller problem")
    if status == NO_MEMORY:
        raise TooLarge("no memory for the launch: run fewer blocks at a time")
    if status == UNSUPPORTED:
        raise UnsupportedInstruction(form.refused[launch.stuck_pc])
    if status in (BUDGET_OVER, DEADLOCK, ENDLESS):
        tell_blocks.end(program, batch, launch, status, executed, half, tell_async.lacking(reported))
    counts = [[int(warps), int(threads)] for warps, threads in executed]
    threads = np.repeat(executed[:, 1], [block.stop - block.start for block in program.flow.blocks])
    return counts, (tuple(threads.tolist()), choices[: len(threads)]), np.frombuffer(b"".join(steps), STEP)


def _printed(
    memory: GlobalMemory, size: int, errors: list[BaseException], text: int, arguments: int, local: int | None
) -> int:
    """vprintf of one thread, whose local memory is at an address of this process."""
    try:
        return memory.vprintf(text, arguments, ctypes.string_at(local, size) if local else b"")
    except BaseException as error:  # which ctypes would drop
        errors.append(error)
        return 0


TELL = {**tell_async.TELL, **tell_blocks.TELL, **tell_order.TELL, **tell_tensor.TELL}  # by events in core.h


def _tell(program: Program, memory: GlobalMemory, event: Any, sizes: Mapping[str, tuple[str, int]]) -> None:
    """A finding of an event. sizes: of other memories, with what has one."""
    batch, name = memory.batch, tuple(enum("event_kind"))[event["kind"]]
    batch.number = int(event["block"])
    if name in TELL:
        TELL[name](program, memory, event)
        return
    kind = KINDS[event["kind"]]
    code_, pc, other = program.kernel.instructions, int(event["pc"]), int(event["other_pc"])
    site = program.sites.get(pc)
    site = site.source if site and event["space"] == 3 else site
    count, value = int(event["count"]), int(event["value"])
    place = site or code_[pc]
    lanes = lanes_of(batch, event)
    if kind in tell_warps.KINDS:
        kind, what = tell_warps.worded(kind, code_[other])
        batch.tell(kind, place, lanes, what, None, count)
        return
    what = kind
    if kind == "uninitialised-shared" and site is not None and site.op == "wgmma":
        what = f"uses a result of the wgmma of line {site.line} before wgmma.wait_group"
        batch.tell("missing-wait", code_[other], lanes, what, None, count)
        return
    if site is not None:
        if site.space == "generic":
            site = site.at(("global", "shared", "local")[int(event["space"])])
        space, width = site.space, site.width
        if kind == "out-of-bounds" and space == "global":
            what = f"{site.verb} {width} bytes {memory.name(value)}"
        elif kind == "out-of-bounds":
            owner, size = sizes.get(space, ("block", 0))
            what = f"{site.verb} at byte {value} of the {owner}'s {size} bytes of {space} memory"
        elif kind == "outside-array" and site.array is not None:
            name = plain_name(site.array.name)
            what = f"{site.verb} at byte {value} of {name}, which has {site.array.size} bytes"
        elif kind == "misaligned" and space == "global":
            what = f"{site.verb} {width} bytes {memory.name(value)}: the address is not a multiple of {width}"
        elif kind == "misaligned":
            what = f"{site.verb} {width} bytes at {space} byte {value}, which is not a multiple of {width}"
        elif kind == "read-only":
            what = f"{site.verb} {width} bytes {memory.name(value)}, which is read-only"
        elif kind == "uninitialised-shared":
            if space == "local":
                kind, what = "uninitialised-local", "reads an element of a local array before it is written"
            else:
                array = plain_name(site.array.name) if site.array else "shared memory"
                what = f"reads {array} before any thread writes there"
            what += f", and line {code_[other].line} uses the value"
        kind = f"{space}-out-of-bounds" if kind in ("out-of-bounds", "outside-array") else kind
    batch.tell(kind, place, lanes, what, None, count)
