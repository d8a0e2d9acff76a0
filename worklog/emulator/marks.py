"""Marks of registers whose values must not be used yet, or at all, followed through the code that runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from worklog.emulator.codegen import Program
from worklog.emulator.counts import Site
from worklog.emulator.findings import Array, Recorder, plain_name
from worklog.emulator.flow import Block, defined, reads
from worklog.emulator.ptx import Instruction

Mark = tuple[Any, Array]  # what marked a register, and a number for each lane, 0 for none


def follow(
    code: Iterable[Instruction],
    marks: dict[str, Mark],
    lanes: Array,
    given: Callable[[Instruction], tuple[Mark | None, Collection[str]]],
    used: Callable[[Instruction, Any, Array], None],
) -> None:
    """Follow marks through code that these lanes ran. given: the mark of an instruction's results, and the registers
    whose marks it leaves alone. used: called where an instruction uses a marked register, which then loses its mark; a
    copy of one is marked, too.
    """
    for instruction in code:
        mark, kept = given(instruction)
        for register in reads(instruction):
            known = marks.get(register.name)
            if known is None or register.name in kept or not known[1][lanes].any():
                continue
            if instruction.parts[0] == "mov":
                mark = known
            else:
                used(instruction, known[0], lanes & (known[1] > 0))
                del marks[register.name]
        for register in defined(instruction):
            if register.name not in kept and (mark or register.name in marks):
                cause, old = marks.pop(register.name, (None, np.zeros(1, np.int32)))
                new = np.where(lanes, mark[1] if mark else 0, old)
                if new.any():
                    marks[register.name] = mark[0] if mark else cause, new


class Unwritten:
    """Registers of the running batch that were loaded from shared memory before it was written.

    Loading such a value and discarding it is harmless, and prefetching loops do so in their last iteration. So a load
    only marks its registers; it is a finding when a marked one is an operand of anything but a register copy.
    """

    def __init__(self, program: Program, recorder: Recorder) -> None:
        self.program, self.recorder = program, recorder
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self.marked: dict[str, Mark] = {}  # by register: the load's site
        self.fresh: dict[int, Mark] = {}  # by pc: loads of the block that is running

    def loaded(self, site: Site, lanes: Array) -> None:
        """Record that a load of the running block read unwritten words in these lanes."""
        self.fresh[site.pc] = (site, lanes.astype(np.int32))

    def follow(self, block: Block, lanes: Array) -> None:
        """Follow marked registers through the block that just ran."""
        code = self.program.kernel.instructions[block.start : block.stop]
        follow(code, self.marked, lanes, lambda i: (self.fresh.get(i.pc), ()), self._report)
        self.fresh = {}
        live = self.program.flow.live_out[block.index]
        self.marked = {name: known for name, known in self.marked.items() if name in live or known[1][~lanes].any()}

    def _report(self, instruction: Instruction, site: Site, lanes: Array) -> None:
        array = plain_name(site.array.name) if site.array else "shared memory"
        what = f"reads {array} before any thread writes there, and line {instruction.line} uses the value"
        self.recorder.add_lanes("uninitialised-shared", site, lanes, what)
