"""Runs a decoded kernel on the core, which is compiled where that has not been done, and puts its events into words."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from worklog.emulator.core import STEP, record, tell
from worklog.emulator.core.build import load
from worklog.emulator.core.compose import SLOT, SPECIALS
from worklog.emulator.core.decode import NONE, decoded
from worklog.emulator.memory import LAYOUT, LAYOUTS, GlobalMemory, zeros
from worklog.emulator.program import Program, Site
from worklog.emulator.ptx import Array, UnsupportedInstruction
from worklog.emulator.reports import TooLarge
from worklog.errors import WorklogError, install_command
from worklog.runs import own_folder

SLICE = 4_000_000  # instructions until the core returns, for Ctrl-C and progress
MOST_FRAMES = 1 << 30  # bytes of the frames of calls in the blocks that run together
MOST_STEPS = 100_000  # of a trace, of which each has 0.8 kB
# Python gives the core no function to call: Ctrl-C would raise there, and ctypes drops what is raised.
GOES_ON = tell.STATUS["SLICE_OVER"], tell.STATUS["PRINTING"]


@cache
def library() -> Any:
    """Load the core for this CPU, compiled if that hasn't been done. Raises WorklogError."""
    try:
        return load(own_folder("WORKLOG_CACHE", "cache"), install_command())
    except (OSError, RuntimeError, ValueError) as error:
        raise WorklogError(str(error)) from error


def run(
    program: Program,
    memory: GlobalMemory,
    specials: Mapping[str, int],
    shared: int,
    numbers: Sequence[int],
    budget: int,
    reserved: int,
    together: int,
    seed: int,
) -> tuple[list[list[int]], list[tuple[Site, list[int]]], tuple[int, ...], Array, Array]:
    """Run blocks of a decoded program; how often each basic block ran, in warps and threads; the costs of access sites;
    how many threads reached each instruction, and its choices (see core.h); and the trace, if the batch is traced.
    Findings go to the batch. specials: the registers that are the same for all threads. reserved: bytes at the end of
    shared memory that hold zeros when a block starts. together: how many blocks may wait for each other. seed: of the
    order in which warps and blocks take turns.
    """
    batch = memory.batch
    form = decoded(program)
    image = form.image.copy()
    sites = form.sites.copy()
    blocks = math.prod(batch.cluster)
    stride = max(1, shared) if blocks == 1 else batch.stride(shared)
    for name, at in form.launched.items():
        image[at : at + SLOT].view(np.uint32)[:] = specials[name]
    grain = min([4, *(site.size for site in form.owners)])
    buffers = np.zeros(len(memory.buffers), record("Buffer"))
    cells = []
    for own, buffer in zip(buffers, memory.buffers, strict=True):
        own["base"] = buffer.base
        own["size"] = buffer.size
        own["writable"] = buffer.writable
        own["data"] = 0 if buffer.data is None else buffer.data.ctypes.data
        if buffer.base in memory.checked:
            count = -(-buffer.size // grain) + 1
            what = f"recording who accesses {buffer.name} in {program.kernel.name}"
            cells.append(zeros(count, record("Cell"), what, "use a smaller size, or races=False"))
            own["cells"] = cells[-1].ctypes.data
    sites["buffer"] = NONE
    executed = np.zeros((len(program.flow.blocks), 2), np.int64)
    which = np.asarray(numbers, np.int64)
    half = np.zeros_like(executed)
    choices = np.zeros(len(form.records), np.uint8)
    layouts = np.frombuffer(b"".join(LAYOUTS), LAYOUT)
    launch: Any = np.zeros(1, record("Launch")).view(np.recarray)[0]
    own_specials = np.array(
        [(SPECIALS.index(name), at) for name, at in form.specials.items()], np.int32
    )
    arrays = {
        "code": form.records, "sites": sites, "buffers": buffers, "image": image, "numbers": which,
        "executed": executed, "choices": choices, "specials": own_specials,
        "lists": np.array(form.lists, np.int32), "half": half, "layouts": layouts,
    }  # fmt: skip
    fields: dict[str, Any] = {name: array.ctypes.data for name, array in arrays.items()} | {
        "clusters_count": len(which) // blocks, "code_count": len(form.records), "sites_count": len(sites),
        "buffers_count": len(buffers), "layouts_count": len(layouts), "special_count": len(own_specials),
        "basic_blocks": len(executed), "file_size": image.nbytes, "scratch": form.scratch,
        "grid": batch.grid, "block": batch.block, "cluster": batch.cluster, "blocks": blocks, "own_size": shared,
        "shared_stride": stride, "shared_size": shared if blocks == 1 else stride * blocks, "local_size": program.local,
        "reserved": reserved, "budget": budget, "slice": SLICE, "seed": seed, "together": -(-together // blocks),
        "grain": grain, "most_steps": MOST_STEPS * batch.traced, "most_frames": MOST_FRAMES,
        "counting": batch.counting, "checking": batch.races,
        "fences": program.flow.fences, "orders_more": program.flow.orders_more_than_barriers,
        "waits": bool(program.flow.polling or program.flow.may_wait),
    }  # fmt: skip
    for name, value in fields.items():
        launch[name] = value
    core = library()
    start = ctypes.c_void_p(launch.base.ctypes.data)
    try:
        while (status := core.launch_run(start)) in GOES_ON:
            for text, arguments, local, count in launch.prints[: launch.prints_count].tolist():
                number = memory.vprintf(text, arguments, ctypes.string_at(local, program.local))
                if count:
                    ctypes.c_uint32.from_address(count).value = number
            ended = int(launch.next) - int(launch.resident_count)
            batch.progress(ended * blocks, len(which))
        events = _copied(launch.events, launch.events_count, record("Event"))
        trace = _copied(launch.traced, launch.traced_count, STEP)
    finally:
        core.launch_free(start)
    reported = tell.together(events)
    for event in reported:
        tell.tell(program, memory, event, shared)
    if len(trace) == MOST_STEPS:
        raise TooLarge(
            f"the warps do more than {MOST_STEPS:,} accesses: run fewer blocks, or a smaller problem"
        )
    if status == tell.STATUS["NO_MEMORY"]:
        raise TooLarge("no memory for the launch: run fewer blocks at a time")
    if status == tell.STATUS["FRAMES_TOO_LARGE"]:
        line = program.kernel.instructions[int(launch.stuck_pc)].line
        raise TooLarge(tell.FRAMES.format(line, MOST_FRAMES >> 20))
    if status == tell.STATUS["UNSUPPORTED"]:
        raise UnsupportedInstruction(form.refused[int(launch.stuck_pc)])
    if status in (tell.STATUS["BUDGET_OVER"], tell.STATUS["DEADLOCK"], tell.STATUS["ENDLESS"]):
        tell.end(program, batch, launch, status, executed, half, tell.lacking(reported))
    threads = np.repeat(executed[:, 1], [block.stop - block.start for block in program.flow.blocks])
    costs = [*zip(form.owners, sites["costs"].tolist(), strict=True)]
    return executed.tolist(), costs, tuple(threads.tolist()), choices[: len(threads)], trace


def _copied(start: int, count: int, dtype: np.dtype[Any]) -> Array:
    """A list of the core's."""
    return np.frombuffer(
        bytearray(ctypes.string_at(int(start), dtype.itemsize * int(count))), dtype
    )
