"""Follows values that were loaded from shared memory which nobody had written, until one is used.

Loading such a value and dropping it is harmless, and prefetching loops do it on their last turn. So a load only
marks its registers; the finding comes when a marked one is an operand of anything but a copy between registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from worklog.emulator.codegen import Context
from worklog.emulator.findings import Place, Recorder, plain_name
from worklog.emulator.flow import Block, defined, reads
from worklog.emulator.sites import Site

Array = NDArray[Any]


class Unwritten:
    """Marked registers of the running batch: by name, the site that loaded them and the lanes."""

    def __init__(self, context: Context, recorder: Recorder, place: Place) -> None:
        self.context, self.recorder, self.place = context, recorder, place
        self.blocks: Sequence[int] = ()
        self.marked: dict[str, tuple[Site, Array]] = {}
        self.fresh: dict[int, tuple[Site, Array]] = {}

    def start(self, blocks: Sequence[int]) -> None:
        """A new batch: nothing marked."""
        self.blocks = blocks
        self.marked, self.fresh = {}, {}

    @property
    def busy(self) -> bool:
        """There is something to follow through the block that just ran."""
        return bool(self.marked or self.fresh)

    def loaded(self, site: Site, lanes: Array) -> None:
        """A site read unwritten words in these lanes, in the block that is running."""
        self.fresh[site.pc] = (site, lanes)

    def follow(self, block: Block, lanes: Array) -> None:
        """Go through the block that just ran."""
        for instruction in self.context.kernel.instructions[block.start : block.stop]:
            results = [register.name for register in defined(instruction)]
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
            for name in results:
                old = self.marked.pop(name, None)
                left = old[1] & ~lanes if old is not None else None
                new = mark or (carried and (carried[0], carried[1] & lanes))
                if new is not None:
                    self.marked[name] = (new[0], new[1] if left is None else new[1] | left)
                elif old is not None and left is not None and left.any():
                    self.marked[name] = (old[0], left)
        self.fresh = {}
        live = self.context.flow.live_out[block.index]
        self.marked = {name: known for name, known in self.marked.items() if name in live or (known[1] & ~lanes).any()}

    def _report(self, site: Site, lanes: Array, line: int) -> None:
        first = int(lanes.argmax())
        block = self.place.block_at(self.blocks[first // self.place.lanes])
        thread = first % self.place.lanes
        array = f"{plain_name(site.array.name)}" if site.array else "shared memory"
        message = (
            f"thread {thread} of block {block} reads {array} where nothing was written yet, "
            f"and line {line} uses the value{site.called}"
        )
        count = int(lanes.sum())
        self.recorder.add(
            "uninitialised-shared", site.line, message, block, [thread], count=count, callers=(site.caller,)
        )
