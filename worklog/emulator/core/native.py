"""Runs a decoded kernel on the core, and describes its events.

The core is compiled if that hasn't been done.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from worklog.emulator.core import STEP, findings, record
from worklog.emulator.core.build import load
from worklog.emulator.core.compose import SLOT, SPECIALS
from worklog.emulator.core.decode import NONE, Decoder, decoded
from worklog.emulator.memory import LAYOUT, LAYOUTS, GlobalMemory, zeros
from worklog.emulator.program import LoadedProgram, Site
from worklog.emulator.ptx import Array, UnsupportedInstruction
from worklog.emulator.reports import Batch, TooLarge
from worklog.errors import WorklogError, install_command, own_folder

SLICE = 4_000_000  # instructions until the core returns, for Ctrl-C and progress
MOST_FRAMES = 1 << 30  # bytes of the frames of calls in the blocks that run together
MOST_STEPS = 100_000  # of a trace; each has 0.8 kB
# Python passes the core no function to call: Ctrl-C would raise there, and ctypes drops the
# exception.
GOES_ON = findings.STATUS["SLICE_OVER"], findings.STATUS["PRINTING"]
ENDLESS = [findings.STATUS[name] for name in ("BUDGET_OVER", "DEADLOCK", "ENDLESS")]


@cache
def library() -> Any:
    """Load the core for this CPU, compiled if that hasn't been done.

    Raises WorklogError.
    """
    try:
        return load(own_folder("WORKLOG_CACHE", "cache"), install_command())
    except (OSError, RuntimeError, ValueError) as error:
        raise WorklogError(str(error)) from error


@dataclass(frozen=True)
class CoreLaunch:
    """What a launch runs, and within which limits."""

    specials: Mapping[str, int]  # the registers that are the same for all threads
    shared: int  # bytes of shared memory per block
    numbers: Sequence[int]  # of the blocks to run
    budget: int  # instructions that a warp may take
    reserved: int  # bytes at the end of shared memory that hold zeros when a block starts
    together: int  # how many blocks may wait for each other
    seed: int  # of the order in which warps and blocks take turns


def run(
    program: LoadedProgram, memory: GlobalMemory, launch: CoreLaunch
) -> tuple[list[list[int]], list[tuple[Site, list[int]]], tuple[int, ...], Array, Array]:
    """Run blocks of a decoded program. Findings go to the batch.

    Return how often each basic block ran, in warps and threads; the costs of access sites; how many
    threads reached each instruction, and its choices (see core.h); and the trace, if the batch is
    traced.
    """
    decoder = decoded(program)
    grain = min([4, *(site.size for site in decoder.owners)])
    cells = _cells(program, memory, grain)
    executed = np.zeros((len(program.flow.blocks), 2), np.int64)
    arrays = {
        **_arrays(decoder, launch.specials),
        "buffers": _buffers(memory, cells),
        "numbers": np.asarray(launch.numbers, np.int64),
        "executed": executed,
        "half": np.zeros_like(executed),
    }
    fields = {"grain": grain, "buffers_count": len(arrays["buffers"])}
    record_of_launch = _launch(decoder, arrays, fields | _fields(program, memory.batch, launch))
    status, events, trace = _run(program, memory, record_of_launch, len(launch.numbers))
    reported = findings.reported(events)
    for event in reported:
        findings.report(program, memory, event, launch.shared)
    _require_finished(decoder, record_of_launch, status, len(trace))
    if status in ENDLESS:
        findings.report_endless(
            program,
            memory.batch,
            record_of_launch,
            status=status,
            executed=executed,
            half=arrays["half"],
            missing=findings.missing_arrivals(program, reported),
        )
    lengths = [block.stop - block.start for block in program.flow.blocks]
    threads = np.repeat(executed[:, 1], lengths)
    costs = [*zip(decoder.owners, arrays["sites"]["costs"].tolist(), strict=True)]
    choices = arrays["choices"][: len(threads)]
    return executed.tolist(), costs, tuple(threads.tolist()), choices, trace


def _fields(program: LoadedProgram, batch: Batch, launch: CoreLaunch) -> dict[str, Any]:
    """Return the core's numbers of a launch."""
    blocks = math.prod(batch.cluster)
    stride = max(1, launch.shared) if blocks == 1 else batch.stride(launch.shared)
    return {
        "clusters_count": len(launch.numbers) // blocks,
        "basic_blocks": len(program.flow.blocks),
        "grid": batch.grid,
        "block": batch.block,
        "cluster": batch.cluster,
        "blocks": blocks,
        "own_size": launch.shared,
        "shared_stride": stride,
        "shared_size": launch.shared if blocks == 1 else stride * blocks,
        "local_size": program.local,
        "reserved": launch.reserved,
        "budget": launch.budget,
        "slice": SLICE,
        "seed": launch.seed,
        "together": -(-launch.together // blocks),
        "most_steps": MOST_STEPS if batch.traced else 0,
        "most_frames": MOST_FRAMES,
        "counting": batch.counting,
        "checking": batch.races,
        "fences": program.flow.fences,
        "orders_more": program.flow.orders_more_than_barriers,
        "waits": bool(program.flow.polling or program.flow.may_wait),
    }


def _cells(program: LoadedProgram, memory: GlobalMemory, grain: int) -> dict[int, Array]:
    """Return the cells that record who accesses a buffer, by the buffer's base.

    grain: bytes of a cell
    """
    cells = {}
    for buffer in memory.buffers:
        if buffer.base in memory.checked:
            count = -(-buffer.size // grain) + 1
            purpose = f"recording who accesses {buffer.name} in {program.kernel.name}"
            advice = "use a smaller size, or races=False"
            cells[buffer.base] = zeros(count, record("Cell"), purpose, advice)
    return cells


def _buffers(memory: GlobalMemory, cells: Mapping[int, Array]) -> Array:
    """Return the records of the buffers.

    They have the cells' addresses, so the cells must stay alive.
    """
    records = np.zeros(len(memory.buffers), record("Buffer"))
    records["base"] = [buffer.base for buffer in memory.buffers]
    records["size"] = [buffer.size for buffer in memory.buffers]
    records["writable"] = [buffer.writable for buffer in memory.buffers]
    records["data"] = [
        0 if buffer.data is None else _address(buffer.data) for buffer in memory.buffers
    ]
    for number, buffer in enumerate(memory.buffers):
        if buffer.base in cells:
            records["cells"][number] = _address(cells[buffer.base])
    return records


def _address(array: Array) -> int:
    """Return where an array's elements lie."""
    # Of an array of records the interface takes longer: it describes each field.
    if array.dtype.names:
        return int(array.ctypes.data)
    address: int = array.__array_interface__["data"][0]
    return address


def _arrays(decoder: Decoder, specials: Mapping[str, int]) -> dict[str, Array]:
    """Return the arrays of a decoded program that the core reads and writes."""
    image = decoder.image.copy()
    for name, offset in decoder.launched.items():
        image[offset : offset + SLOT].view(np.uint32)[:] = specials[name]
    sites = decoder.sites.copy()
    sites["buffer"] = NONE
    places = [(SPECIALS.index(name), offset) for name, offset in decoder.specials.items()]
    return {
        "code": decoder.records,
        "sites": sites,
        "image": image,
        "choices": np.zeros(len(decoder.records), np.uint8),
        "specials": np.array(places, np.int32),
        "lists": np.array(decoder.lists, np.int32),
        "layouts": np.frombuffer(b"".join(LAYOUTS), LAYOUT),
    }


def _launch(decoder: Decoder, arrays: Mapping[str, Array], fields: Mapping[str, Any]) -> Any:
    """Return the core's record of a launch.

    It has the arrays' addresses, so the arrays must stay alive.
    """
    launch: Any = np.zeros(1, record("Launch")).view(np.recarray)[0]
    for name, array in arrays.items():
        launch[name] = _address(array)
    for name, value in fields.items():
        launch[name] = value
    launch["code_count"] = len(arrays["code"])
    launch["sites_count"] = len(arrays["sites"])
    launch["layouts_count"] = len(arrays["layouts"])
    launch["special_count"] = len(arrays["specials"])
    launch["file_size"] = arrays["image"].nbytes
    launch["scratch"] = decoder.scratch
    return launch


def _run(
    program: LoadedProgram, memory: GlobalMemory, launch: Any, blocks: int
) -> tuple[int, Array, Array]:
    """Run a launch to its end, print what it prints, and report its progress.

    Return its status, its events and its trace.
    """
    core = library()
    start = ctypes.c_void_p(launch.base.ctypes.data)
    cluster_blocks = math.prod(memory.batch.cluster)
    try:
        while (status := core.launch_run(start)) in GOES_ON:
            for text, arguments, local, count in launch.prints[: launch.prints_count].tolist():
                number = memory.vprintf(text, arguments, ctypes.string_at(local, program.local))
                if count:
                    ctypes.c_uint32.from_address(count).value = number
            ended = int(launch.next) - int(launch.resident_count)
            memory.batch.progress(ended * cluster_blocks, blocks)
        events = _copied(launch.events, launch.events_count, record("Event"))
        trace = _copied(launch.traced, launch.traced_count, STEP)
    finally:
        core.launch_free(start)
    return status, events, trace


def _require_finished(decoder: Decoder, launch: Any, status: int, steps: int) -> None:
    """Raise TooLarge or UnsupportedInstruction for a launch that the emulator couldn't run.

    steps: of the trace
    """
    if steps == MOST_STEPS:
        raise TooLarge(
            f"the warps do more than {MOST_STEPS:,} accesses: run fewer blocks, or a smaller "
            "problem"
        )
    if status == findings.STATUS["NO_MEMORY"]:
        raise TooLarge("no memory for the launch: run fewer blocks at a time")
    if status == findings.STATUS["FRAMES_TOO_LARGE"]:
        line = decoder.code[int(launch.stuck_pc)].line
        raise TooLarge(findings.FRAMES.format(line, MOST_FRAMES >> 20))
    if status == findings.STATUS["UNSUPPORTED"]:
        raise UnsupportedInstruction(decoder.refused[int(launch.stuck_pc)])


def _copied(start: int, count: int, dtype: np.dtype[Any]) -> Array:
    """Return a copy of a list of the core's."""
    return np.frombuffer(
        bytearray(ctypes.string_at(int(start), dtype.itemsize * int(count))), dtype
    )
