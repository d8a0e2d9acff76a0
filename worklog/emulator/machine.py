"""Runs one batch of blocks: which lanes are where, which wait at a barrier, and what is loaded and stored for them.

Of the groups of lanes that diverged, the one at the lowest block of code runs first, so that it catches up and joins
the others where the branches meet. Lanes wait for each other at barriers and warp instructions, in whatever order they
come, as threads of GPUs do since sm_70. A lane that exited stays in the arrays and is masked out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from worklog.emulator.async_copies import BulkCopies
from worklog.emulator.block_barriers import BlockBarriers
from worklog.emulator.codegen import failed
from worklog.emulator.copies import Copies
from worklog.emulator.core.tell_blocks import TOO_LONG
from worklog.emulator.exchange import Exchange
from worklog.emulator.findings import Aborted, TooLarge
from worklog.emulator.globalmem import GlobalMemory
from worklog.emulator.mbarrier import Barriers
from worklog.emulator.printed import Printed
from worklog.emulator.program import Program
from worklog.emulator.ptx import UNEXPECTED, Array, Mask
from worklog.emulator.running import Running
from worklog.emulator.shared import LocalMemory, Marks, SharedMemory
from worklog.emulator.waiting import Waiting, deadlock
from worklog.emulator.wgmma import Tensor, Wgmma

REGISTERS = 65536  # of a multiprocessor
REPORT = 1000  # instructions from one report of the progress to the next


class Machine(Running):
    """Everything of one launch that generated code calls, as `S`."""

    def __init__(
        self, program: Program, memory: GlobalMemory, params: dict[str, bytes], shared: int, local: int, budget: int
    ) -> None:
        """shared, local: bytes per block, and per thread."""
        grain = min([4, *(site.size for site in program.sites.values() if site.space in ("shared", "generic"))])
        super().__init__(program, memory, SharedMemory(memory.batch, shared, grain), LocalMemory(memory.batch, local))
        self.params, self.budget = params, budget
        self.printed, self.tensor = Printed(memory, self.local_memory), Tensor(self)

    # Running.

    def run(self, blocks: Sequence[int]) -> None:
        """Run these blocks, by number, from start to end. Raises BudgetExceeded."""
        batch = self.batch
        batch.blocks = blocks
        self.live = np.tile(np.arange(batch.block_lanes) < batch.threads, len(blocks))
        self.started = self.live
        self.specials: dict[str, Array] = {}
        self.groups, self.steps, self.due, self.half = {0: self.live}, 0, REPORT, list[int]()
        if self.memory.checks is not None:
            self.memory.checks.start()
        self.shared.start(self.program)
        self.local_memory.start(self.program)
        self.copies, self.exchange, self.wgmma = Copies(self), Exchange(self), Wgmma(self, self.tensor)
        self.barriers, self.block = Barriers(self, self.copies), BlockBarriers(self)
        self.bulk, self.spinning = BulkCopies(self, self.barriers), Waiting(self, self.barriers, self.exchange)
        self.shared.marks = self.marks = Marks(self.program, batch)
        self.held: dict[int, Array] = {}
        with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="raise"):
            self.registers = dict(self.program.initial_registers)
            self._loop(self.registers)
        self.bulk.finish()
        self._check_registers()
        if self.shared.order is not None:
            self.shared.order.synchronise_all(None)

    def _loop(self, registers: dict[str, Array]) -> None:
        last, exchange, meetings = 0, self.exchange, self.program.flow.meetings
        while True:
            met = exchange.meeting(min(self.groups, default=math.inf))
            if len(met) > 1:
                exchange.collect(met, registers)
                for number, lanes in met.items():
                    self.push(self._step(number, lanes, registers), lanes)
                continue
            if met or self.groups:
                number = min(met or self.groups)
                lanes = met[number] if met else self.groups.pop(number)
            elif self.spinning.wake() or exchange.force():
                continue
            else:
                break
            while True:
                if number <= last and self.spinning.only_waits(number, lanes, registers):
                    break
                if number in meetings and not met and not exchange.passes(number, lanes, registers):
                    break
                last, met = number, {}
                follow = self._step(number, lanes, registers)
                if follow < 0 or (self.groups and min(self.groups) <= follow):
                    self.push(follow, lanes)
                    break
                number = follow
        self.spinning.end()
        self.block.end()

    def _step(self, number: int, lanes: Array, registers: dict[str, Array]) -> int:
        """Run a block of code; the next one, as its function returns it."""
        warps, threads = self.census(lanes)
        mask = None if threads == self.batch.lanes else lanes
        others = threads != np.count_nonzero(self.live)
        self.executed[number][0] += warps
        self.executed[number][1] += threads
        block = self.program.flow.blocks[number]
        self.steps += block.stop - block.start
        if self.steps > self.due:
            self.due += REPORT
            self.batch.progress(self.steps, self.budget)
        if not self.half and self.steps > self.budget / 2:
            self.half = [executed for executed, _ in self.executed]
        if self.steps > self.budget:
            raise deadlock(self, number, lanes, f"after {self.budget:,} instructions, ", TOO_LONG)
        try:
            follow = self.program.function(number, others)(self, registers, mask)
        except MemoryError as error:
            raise TooLarge("no memory for the launch: run fewer lanes at a time") from error
        except UNEXPECTED as error:
            raise failed(self.program.kernel, block, error) from error
        if self.marks.marked or self.marks.fresh:
            self.marks.follow(block, lanes)
        return follow

    # Called by generated code: control.

    def branch(self, predicate: Array, mask: Mask, yes: int, no: int) -> int:
        """The next block of code for all lanes, EXIT, or -1 after diverging."""
        if len(predicate) == 1:
            return yes if predicate[0] else no
        lanes = self.lanes_of(mask)
        taken = lanes & predicate
        count, total = int(np.count_nonzero(taken)), self.census(lanes)[1]
        if count in (0, total):
            return yes if count else no
        for number, part in ((no, lanes & ~predicate), (yes, taken)):
            self.push(number, part)
        return -1

    def guard(self, mask: Mask, predicate: Array) -> Mask:
        """The lanes of the mask for which the predicate holds; False for none."""
        if len(predicate) == 1:
            return mask if predicate[0] else False
        lanes = predicate if mask is None else mask & predicate
        if not lanes.any():
            return False
        return None if mask is None and lanes.all() else lanes

    def set_registers(self, pc: int, mask: Mask, count: Array) -> None:
        """setmaxnreg."""
        before = self.held.get(-1, np.zeros(self.batch.lanes, np.int64))
        lanes = self.lanes_of(mask)
        self.held |= {-1: np.where(lanes, count.astype(np.int64), before), pc: lanes}

    def _check_registers(self) -> None:
        """PTX ISA, setmaxnreg: an increase waits until the block's other warps have released as many registers. The
        block has what a launch gives to all of its threads: registers are allocated in units of 8 per thread.
        """
        if not self.held:
            return
        batch, set_to = self.batch, self.held.pop(-1)
        each = REGISTERS // batch.threads // 8 * 8
        wanted = (np.where(set_to, set_to, each) * self.started).reshape(-1, batch.block_lanes).sum(axis=1)
        if (wanted > each * batch.threads).any():
            pc, lanes = max(self.held.items(), key=lambda item: int(set_to[item[1]].max(initial=0)))
            what = f"waits for ever: the block's warps want {wanted.max()} registers, of {each * batch.threads}"
            self.batch.tell("registers", self.program.kernel.instructions[pc], lanes, what)

    def abort(self, pc: int, mask: Mask, *arguments: Array) -> None:
        """trap, and a failed assertion with the arguments of __assertfail: a finding, and the end of the launch."""
        lanes = self.lanes_of(mask)
        if not lanes.any() or not self.batch.values:
            return
        name = self.program.kernel.instructions[pc].op
        kind, what = "trap", f"executes a {name} instruction, as of __{name}()"
        if arguments:
            first = np.broadcast_to(arguments[0], lanes.shape)[int(lanes.argmax())]
            kind, what = "assertion", f"fails assert({self.printed.text(int(first), b'')})"
        self.batch.tell(kind, self.program.kernel.instructions[pc], lanes, what)
        raise Aborted

    # Called by generated code: values.

    def special(self, name: str) -> Array:
        """A special register as uint32: one element per lane, or a single one where all lanes agree."""
        if name in self.params:
            return self.param(name, 0, "u4")
        if name not in self.specials:
            self.specials[name] = self._special(name)
        return self.specials[name]

    def _special(self, name: str) -> Array:
        batch, lane = self.batch, np.arange(self.batch.lanes) % self.batch.block_lanes
        base, _, axis = name.partition(".")
        # The cluster of each block is the block alone.
        base = {"%clusterid": "%ctaid", "%nclusterid": "%nctaid"}.get(base, base)
        if base.startswith("%cluster_"):
            return np.array(["ncta" in base], np.uint32)
        if axis:
            sizes = batch.block if base in ("%tid", "%ntid") else batch.grid
            number = "xyz".index(axis)
            if base in ("%ntid", "%nctaid"):
                return np.array([sizes[number]], np.uint32)
            place = lane if base == "%tid" else np.repeat(np.asarray(batch.blocks, np.int64), batch.block_lanes)
            value = place // int(np.prod(sizes[:number], dtype=np.int64)) % sizes[number]
            return (value[:1] if (value == value[0]).all() else value).astype(np.uint32)
        own = np.uint64(1) << (lane % 32).astype(np.uint64)
        below = own - np.uint64(1)
        values: dict[str, Any] = {
            "%laneid": lane % 32,
            "%warpid": lane // 32,
            "%nwarpid": [batch.block_lanes // 32],
            "WARP_SZ": [32],
            "%is_explicit_cluster": [0],
            "%lanemask_eq": own,
            "%lanemask_lt": below,
            "%lanemask_le": below | own,
            "%lanemask_gt": ~(below | own),
            "%lanemask_ge": ~below,
        }
        return np.asarray(values[name]).astype(np.uint32)

    def clock(self, shift: int) -> Array:
        """A count from bit `shift` on, in place of a time: 1000 more at each read, so that a loop that waits for a time
        ends.
        """
        self.ticks += 1000
        return np.array([self.ticks >> shift], np.uint64)

    def fence(self, mask: Mask, wide: bool) -> None:
        """A fence between threads. wide: of more than the block."""
        lanes = self.lanes_of(mask)
        if self.shared.order is not None:
            self.shared.order.between_threads(lanes)
        if self.memory.checks is not None:
            self.memory.checks.fence(lanes, wide)

    def param(self, name: str, offset: int, dtype: str) -> Array:
        """A kernel argument's bytes as one element."""
        size = np.dtype(dtype).itemsize
        return np.frombuffer(self.params[name][offset : offset + size], dtype)
