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
    """What launches run, and within which limits."""

    specials: Mapping[str, int]  # the registers that are the same for all threads
    shared: int  # bytes of shared memory per block
    blocks: int  # the number of blocks to run
    budget: int  # instructions that a warp may take
    reserved: int  # bytes at the end of shared memory that hold zeros when a block starts
    together: int  # how many blocks may wait for each other
    ulps: int  # by which approximations are above the nearest float32: -1, 0 or 1


class PreparedRun:
    """A decoded program that runs on the same memory and arguments, as often as needed."""

    def __init__(self, program: LoadedProgram, memory: GlobalMemory, launch: CoreLaunch) -> None:
        self.program = program
        self.memory = memory
        self.launch = launch
        self.decoder = decoded(program)
        self.grain = min([4, *(site.size for site in self.decoder.owners)])
        self.lengths = [block.stop - block.start for block in program.flow.blocks]
        self.executed = np.zeros((len(self.lengths), 2), np.int64)
        self.in_half_time = np.zeros_like(self.executed)
        self.choices = np.zeros(len(self.decoder.records), np.uint8)
        self._new_sites = _new_sites(self.decoder)
        self.sites = self._new_sites.copy()
        self.buffers = _buffers(memory)
        self.numbers = np.zeros(launch.blocks, np.int64)
        self._arrays = {
            **_constants(self.decoder, launch.specials),
            "sites": self.sites,
            "choices": self.choices,
            "buffers": self.buffers,
            "numbers": self.numbers,
            "executed": self.executed,
            "half": self.in_half_time,
        }
        fields = {"grain": self.grain} | _fields(program, memory.batch, launch)
        self._record = _record(self.decoder, self._arrays, fields)

    def run(
        self, numbers: Sequence[int], seed: int
    ) -> tuple[list[list[int]], list[tuple[Site, list[int]]], tuple[int, ...], Array, Array]:
        """Run blocks. Findings go to the batch.

        Return how often each basic block ran, in warps and threads; the costs of access sites, if
        the batch counts; how many threads reached each instruction, and its choices (see core.h);
        and the trace, if the batch is traced.

        numbers: of the blocks to run
        seed: of the order in which warps and blocks take turns
        """
        decoder = self.decoder
        memory = self.memory
        cells = self._reset(numbers)
        launch: Any = self._record.copy().view(record("Launch")).view(np.recarray)[0]
        launch["seed"] = seed
        status, events, trace = _run(self.program, memory, launch, len(numbers))
        cells.clear()
        reported = findings.reported(events)
        for event in reported:
            findings.report(self.program, memory, event, self.launch.shared)
        _require_finished(decoder, launch, status, len(trace))
        if status in ENDLESS:
            findings.report_endless(
                self.program,
                memory.batch,
                launch,
                status=status,
                executed=self.executed,
                half=self.in_half_time,
                missing=findings.missing_arrivals(self.program, reported),
            )
        threads = np.repeat(self.executed[:, 1], self.lengths)
        costs = list[tuple[Site, list[int]]]()
        if memory.batch.counting:
            costs = [*zip(decoder.owners, self.sites["costs"].tolist(), strict=True)]
        choices = self.choices[: len(threads)].copy()
        return self.executed.tolist(), costs, tuple(threads.tolist()), choices, trace

    def _reset(self, numbers: Sequence[int]) -> dict[int, Array]:
        """Reset what a run changes. Return the cells, which must stay alive during the run."""
        self.numbers[:] = numbers
        self.executed[:] = 0
        self.in_half_time[:] = 0
        self.choices[:] = 0
        self.sites.view(np.uint8)[:] = self._new_sites.view(np.uint8)
        cells = _cells(self.program, self.memory, self.grain)
        for place, buffer in enumerate(self.memory.buffers):
            if buffer.base in cells:
                self.buffers[place]["cells"] = cells[buffer.base].ctypes.data
        return cells


def _fields(program: LoadedProgram, batch: Batch, launch: CoreLaunch) -> dict[str, Any]:
    """Return the numbers of a launch that are the same in each run."""
    blocks = math.prod(batch.cluster)
    stride = max(1, launch.shared) if blocks == 1 else batch.stride(launch.shared)
    return {
        "clusters_count": launch.blocks // blocks,
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
        "ulps": launch.ulps,
        "slice": SLICE,
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


def _buffers(memory: GlobalMemory) -> Array:
    """Return the records of the buffers, without the cells' addresses."""
    records = np.zeros(len(memory.buffers), record("Buffer"))
    for of_buffer, buffer in zip(records, memory.buffers, strict=True):
        of_buffer["base"] = buffer.base
        of_buffer["size"] = buffer.size
        of_buffer["writable"] = buffer.writable
        of_buffer["data"] = 0 if buffer.data is None else _address(buffer.data)
        of_buffer["read"] = 0 if buffer.read is None else _address(buffer.read)
    return records


def _address(array: Array) -> int:
    """Return where an array's elements lie."""
    # Of an array of records the interface takes longer: it describes each field.
    if array.dtype.names:
        return int(array.ctypes.data)
    address: int = array.__array_interface__["data"][0]
    return address


def _new_sites(decoder: Decoder) -> Array:
    """Return the records of the access sites before a run."""
    sites: Array = decoder.sites.copy()
    sites["buffer"] = NONE
    return sites


def _constants(decoder: Decoder, specials: Mapping[str, int]) -> dict[str, Array]:
    """Return the arrays of a decoded program that the core only reads.

    specials: the registers that are the same for all threads
    """
    image = decoder.image.copy()
    for name, offset in decoder.launched.items():
        image[offset : offset + SLOT].view(np.uint32)[:] = specials[name]
    places = [(SPECIALS.index(name), offset) for name, offset in decoder.specials.items()]
    return {
        "code": decoder.records,
        "image": image,
        "specials": np.array(places, np.int32),
        "lists": np.array(decoder.lists, np.int32),
        "layouts": np.frombuffer(b"".join(LAYOUTS), LAYOUT),
    }


def _record(decoder: Decoder, arrays: Mapping[str, Array], fields: Mapping[str, Any]) -> Array:
    """Return the bytes of the core's record of a launch.

    It has the arrays' addresses, so the arrays must stay alive.
    """
    launch: Any = np.zeros(1, record("Launch"))
    for name, array in arrays.items():
        launch[name] = _address(array)
    for name, value in fields.items():
        launch[name] = value
    launch["buffers_count"] = len(arrays["buffers"])
    launch["code_count"] = len(arrays["code"])
    launch["sites_count"] = len(arrays["sites"])
    launch["layouts_count"] = len(arrays["layouts"])
    launch["special_count"] = len(arrays["specials"])
    launch["file_size"] = arrays["image"].nbytes
    launch["scratch"] = decoder.scratch
    record_bytes: Array = launch.view(np.uint8)
    return record_bytes


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
        events = _copied(launch["events"], launch["events_count"], record("Event"))
        trace = _copied(launch["traced"], launch["traced_count"], STEP)
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
    if not count:
        return np.zeros(0, dtype)
    return np.frombuffer(
        bytearray(ctypes.string_at(int(start), dtype.itemsize * int(count))), dtype
    )
