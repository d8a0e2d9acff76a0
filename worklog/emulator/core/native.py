"""Runs a decoded kernel on the core, and describes its events.

The core is compiled if that hasn't been done.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from worklog.emulator.core import STEP, findings, record
from worklog.emulator.core.build import load
from worklog.emulator.core.compose import SLOT, SPECIALS
from worklog.emulator.core.decode import NONE, Decoder, decoded
from worklog.emulator.memory import LAYOUTS, GlobalMemory, address_of, zeros
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
    meeting: int  # how many of them start at once, if there is a schedule
    neighbours: int  # how many of them share a multiprocessor then
    ulps: int  # by which approximations are above the nearest float32: -1, 0 or 1


@dataclass(frozen=True, eq=False)
class Common:
    """What all launches of a decoded program have in common."""

    grain: int  # bytes of a cell
    lengths: Array  # instructions of each basic block
    sites: Array  # the bytes of the access sites' records before a run
    specials: Array  # pairs: the number of a special register, and its offset
    arrays: tuple[Array, ...]  # that the record has the addresses of: they must stay alive
    record: bytes  # of a launch, without what differs between launches


@lru_cache(maxsize=64)
def _common(decoder: Decoder) -> Common:
    """Return what all launches of a decoded program have in common."""
    program = decoder.program
    # As bytes: NumPy leaves the bytes between the fields of a copied record as memory was.
    sites = decoder.sites.view(np.uint8).copy().view(record("Site"))
    sites["buffer"] = NONE
    places = [(SPECIALS.index(name), offset) for name, offset in decoder.specials.items()]
    arrays = {
        "code": decoder.records,
        "specials": np.array(places, np.int32),
        "lists": np.array(decoder.lists, np.int32),
    }
    grain = min([4, *(site.size for site in decoder.owners)])
    fields = {
        "grain": grain,
        "basic_blocks": len(program.flow.blocks),
        "local_size": program.local,
        "fences": program.flow.fences,
        "orders_more": program.flow.orders_more_than_barriers,
        "waits": bool(program.flow.polling or program.flow.may_wait),
        "code_count": len(decoder.records),
        "sites_count": len(sites),
        "special_count": len(places),
        "file_size": decoder.image.nbytes,
        "scratch": decoder.scratch,
    }
    launch = np.zeros(1, record("Launch"))
    for name, array in arrays.items():
        launch[name] = address_of(array)
    for name, value in fields.items():
        launch[name] = value
    return Common(
        grain=grain,
        lengths=np.array([block.stop - block.start for block in program.flow.blocks], np.int64),
        sites=sites.view(np.uint8),
        specials=arrays["specials"],
        arrays=tuple(arrays.values()),
        record=launch.tobytes(),
    )


class PreparedRun:
    """A decoded program that runs on the same memory and arguments, as often as needed."""

    def __init__(self, program: LoadedProgram, memory: GlobalMemory, launch: CoreLaunch) -> None:
        self.program = program
        self.memory = memory
        self.launch = launch
        self.decoder = decoded(program)
        self.common = _common(self.decoder)
        self.executed = np.empty((len(self.common.lengths), 2), np.int64)
        self.in_half_time = np.empty_like(self.executed)
        self.choices = np.empty(len(self.decoder.records), np.uint8)
        self._site_bytes = np.empty_like(self.common.sites)
        self.buffers = _buffers(memory)
        self.numbers = np.empty(launch.blocks, np.int64)
        self._arrays = {
            "image": _image(self.decoder, launch.specials),
            "layouts": np.frombuffer(b"".join(LAYOUTS), np.uint8),
            "sites": self._site_bytes,
            "choices": self.choices,
            "buffers": self.buffers.view(np.uint8),
            "numbers": self.numbers,
            "executed": self.executed,
            "half": self.in_half_time,
        }
        record_bytes = bytearray(self.common.record)
        fields = np.frombuffer(record_bytes, record("Launch"))
        for name, array in self._arrays.items():
            fields[name] = address_of(array)
        for name, value in _fields(memory.batch, launch).items():
            fields[name] = value
        fields["buffers_count"] = len(memory.buffers)
        fields["layouts_count"] = len(LAYOUTS)
        self.record = bytes(record_bytes)

    def run(
        self, numbers: Array, seed: int
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
        launch, status, events, trace = self.execute(numbers, seed)
        reported = findings.reported(events)
        for event in reported:
            findings.report(self.program, memory, event, self.launch.shared)
        _require_finished(decoder, launch, status, len(trace))
        if status in ENDLESS:
            findings.report_endless(
                self.program,
                memory.batch,
                launch.view(np.recarray)[0],
                status=status,
                executed=self.executed,
                half=self.in_half_time,
                missing=findings.missing_arrivals(self.program, reported),
            )
        threads = self.executed[:, 1].repeat(self.common.lengths)
        costs = list[tuple[Site, list[int]]]()
        if memory.batch.counting:
            costs = [*zip(decoder.owners, self.costs.tolist(), strict=True)]
        choices = self.choices[: len(threads)].copy()
        return self.executed.tolist(), costs, tuple(threads.tolist()), choices, trace

    def execute(self, numbers: Array, seed: int) -> tuple[Any, int, Array, Array]:
        """Run blocks on the core.

        Return the launch's record, its status, its events and its trace.

        numbers, seed: as for run()
        """
        cells = self._reset(numbers)
        launch = np.frombuffer(bytearray(self.record), record("Launch"))
        launch["seed"] = seed
        status, events, trace = _run(self.program, self.memory, launch, len(numbers))
        cells.clear()
        return launch, status, events, trace

    @property
    def costs(self) -> Array:
        """The costs of each access site in the last run."""
        costs: Array = self._site_bytes.view(record("Site"))["costs"]
        return costs

    def _reset(self, numbers: Array) -> dict[int, Array]:
        """Reset what a run changes. Return the cells, which must stay alive during the run."""
        self.numbers[:] = numbers
        self.executed[:] = 0
        self.in_half_time[:] = 0
        self.choices[:] = 0
        self._site_bytes[:] = self.common.sites
        cells = _cells(self.program, self.memory, self.common.grain)
        for place, buffer in enumerate(self.memory.buffers):
            if buffer.base in cells:
                self.buffers["cells"][place] = cells[buffer.base].ctypes.data
        return cells


def _fields(batch: Batch, launch: CoreLaunch) -> dict[str, Any]:
    """Return the numbers of a launch that are the same in each run, and not in each launch."""
    blocks = math.prod(batch.cluster)
    stride = max(1, launch.shared) if blocks == 1 else batch.stride(launch.shared)
    return {
        "clusters_count": launch.blocks // blocks,
        "grid": batch.grid,
        "block": batch.block,
        "cluster": batch.cluster,
        "blocks": blocks,
        "own_size": launch.shared,
        "shared_stride": stride,
        "shared_size": launch.shared if blocks == 1 else stride * blocks,
        "reserved": launch.reserved,
        "budget": launch.budget,
        "ulps": launch.ulps,
        "together": -(-launch.together // blocks),
        "meeting": -(-launch.meeting // blocks),
        "neighbours": launch.neighbours,
        "slice": SLICE,
        "most_frames": MOST_FRAMES,
        "most_steps": MOST_STEPS if batch.traced else 0,
        "counting": batch.counting,
        "checking": batch.races,
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
    rows = []
    for buffer in memory.buffers:
        data = 0 if buffer.data is None else address_of(buffer.data)
        read = 0 if buffer.read is None else address_of(buffer.read)
        rows.append((buffer.base, buffer.size, data, 0, 0, read, buffer.writable, 0))
    return np.array(rows, record("Buffer"))


def _image(decoder: Decoder, specials: Mapping[str, int]) -> Array:
    """Return the register file that a warp starts with.

    specials: the registers that are the same for all threads
    """
    image = decoder.image.copy()
    lanes = image.view(np.uint32)
    for name, offset in decoder.launched.items():
        lanes[offset // 4 : (offset + SLOT) // 4] = specials[name]
    return image


def _run(
    program: LoadedProgram, memory: GlobalMemory, launch: Any, blocks: int
) -> tuple[int, Array, Array]:
    """Run a launch to its end, print what it prints, and report its progress.

    Return its status, its events and its trace.

    launch: an array with its record
    """
    core = library()
    start = ctypes.c_void_p(launch.ctypes.data)
    cluster_blocks = math.prod(memory.batch.cluster)
    try:
        while (status := core.launch_run(start)) in GOES_ON:
            prints = launch["prints"][0, : int(launch["prints_count"][0])]
            for text, arguments, local, count in prints.tolist():
                number = memory.vprintf(text, arguments, ctypes.string_at(local, program.local))
                if count:
                    ctypes.c_uint32.from_address(count).value = number
            ended = int(launch["next"][0]) - int(launch["resident_count"][0])
            memory.batch.progress(ended * cluster_blocks, blocks)
        events = _copied(launch, "events", record("Event"))
        trace = _copied(launch, "traced", STEP)
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
        line = decoder.code[int(launch["stuck_pc"][0])].line
        raise TooLarge(findings.FRAMES.format(line, MOST_FRAMES >> 20))
    if status == findings.STATUS["UNSUPPORTED"]:
        raise UnsupportedInstruction(decoder.refused[int(launch["stuck_pc"][0])])


def _copied(launch: Any, name: str, dtype: np.dtype[Any]) -> Array:
    """Return a copy of a list of the core's, by its name in the record of a launch."""
    count = int(launch[f"{name}_count"][0])
    if not count:
        return np.zeros(0, dtype)
    start = int(launch[name][0])
    return np.frombuffer(bytearray(ctypes.string_at(start, dtype.itemsize * count)), dtype)
