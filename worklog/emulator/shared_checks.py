"""Values of shared memory that are used although no thread wrote them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from worklog.emulator.codegen import Program
from worklog.emulator.counts import Site
from worklog.emulator.findings import Recorder, plain_name
from worklog.emulator.flow import Block, defined, reads

Array = NDArray[Any]


def what_is_shared(site: Site) -> str:
    """The bytes of an access, for messages."""
    return f"the same bytes of {plain_name(site.array.name)}" if site.array else "the same shared bytes"


class Unwritten:
    """Registers of the running batch that were loaded from shared memory before it was written.

    Loading such a value and discarding it is harmless, and prefetching loops do so in their last iteration. So a load
    only marks its registers; it is a finding when a marked one is an operand of anything but a register copy.
    """

    def __init__(self, program: Program, recorder: Recorder) -> None:
        self.program, self.recorder = program, recorder
        self.marked: dict[str, tuple[Site, Array]] = {}  # by register: the load and the lanes
        self.fresh: dict[int, tuple[Site, Array]] = {}  # by pc: loads of the block that is running

    def start(self) -> None:
        """Begin a new batch."""
        self.marked, self.fresh = {}, {}

    def loaded(self, site: Site, lanes: Array) -> None:
        """Record that a load of the running block read unwritten words in these lanes."""
        self.fresh[site.pc] = (site, lanes)

    def follow(self, block: Block, lanes: Array) -> None:
        """Follow marked registers through the block that just ran."""
        for instruction in self.program.kernel.instructions[block.start : block.stop]:
            mark = self.fresh.get(instruction.pc)
            carried: tuple[Site, Array] | None = None
            for register in reads(instruction):
                known = self.marked.get(register.name)
                if known is None or not (known[1] & lanes).any():
                    continue
                if instruction.parts[0] == "mov":
                    carried = known
                else:
                    self._report(known[0], known[1] & lanes, instruction.line)
                    del self.marked[register.name]
            for register in defined(instruction):
                old = self.marked.pop(register.name, None)
                left = old[1] & ~lanes if old is not None else None
                new = mark or (carried and (carried[0], carried[1] & lanes))
                if new is not None:
                    self.marked[register.name] = (new[0], new[1] if left is None else new[1] | left)
                elif old is not None and left is not None and left.any():
                    self.marked[register.name] = (old[0], left)
        self.fresh = {}
        live = self.program.flow.live_out[block.index]
        self.marked = {name: known for name, known in self.marked.items() if name in live or (known[1] & ~lanes).any()}

    def _report(self, site: Site, lanes: Array, line: int) -> None:
        array = plain_name(site.array.name) if site.array else "shared memory"
        what = f"reads {array} before any thread writes there, and line {line} uses the value"
        self.recorder.add_lanes("uninitialised-shared", site, lanes, what)
