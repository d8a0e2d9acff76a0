"""What all launches of a kernel on the emulator have run, and what none has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from worklog.emulator.conditions import Conditions, Outcome
from worklog.emulator.launch import Result
from worklog.emulator.ptx import Array, Kernel


@dataclass(eq=False)
class Coverage:
    """Of one kernel with one block. names: of what its parameters take. calls: its launches: the grid, and by name what
    the parameters took, of a matrix the bytes from a 256-byte boundary. seen: outcomes of branches and selects that
    have occurred; told: those in a launch that is telling.
    """

    kernel: Kernel
    names: tuple[str, ...]
    block: tuple[int, ...]
    calls: list[tuple[tuple[int, ...], Mapping[str, Any]]] = field(default_factory=list)
    seen: set[Outcome] = field(default_factory=set)
    told: set[Outcome] = field(default_factory=set)
    _executed: Array | None = None

    @cached_property
    def conditions(self) -> Conditions:
        """What decides."""
        return Conditions(self.kernel, self.names)

    def add(self, result: Result, grid: tuple[int, ...], arguments: Mapping[str, Any]) -> None:
        """One more launch."""
        self.calls.append((grid, arguments))
        executed = np.array(result.executed, np.int64)
        self._executed = executed if self._executed is None else self._executed + executed
        for pc, (jumped, passed) in result.branches.items():
            had = {(pc, held) for count, held in ((jumped, True), (passed, False)) if count}
            self.seen |= had
            self.told |= had if telling(arguments) else set()

    def ran(self, pc: int) -> bool:
        """Whether any thread has reached an instruction."""
        return self._executed is not None and bool(self._executed[pc])

    def behind(self, outcome: Outcome) -> set[int]:
        """The source lines that only this outcome of a branch leads to, as far as it is known: no launch ran them."""
        flow, (pc, held) = self.conditions.flow, outcome
        if self.kernel.instructions[pc].parts[0] != "bra":
            return set()
        branch = flow.blocks[self.conditions.block_of[pc]]
        wanted, blocks = [branch.successors[0 if held else -1]], set[int]()
        while wanted:
            number = wanted.pop()
            if number not in blocks and not self.ran(flow.blocks[number].start):
                blocks.add(number)
                wanted += flow.blocks[number].successors
        code = self.kernel.instructions
        elsewhere = {i.line for i in code if self.ran(i.pc)}
        lines = {i.line for n in blocks for i in code[flow.blocks[n].start : flow.blocks[n].stop]}
        return lines - elsewhere - {0}


def telling(arguments: Mapping[str, Any]) -> bool:
    """Whether the result shows that alpha or beta is wrong."""
    return arguments.get("alpha", 2) not in (0, 1) and arguments.get("beta", 1) != 0


def ranges(lines: set[int]) -> list[tuple[int, int]]:
    """Lines as first and last of each run."""
    runs = groupby(enumerate(sorted(lines)), lambda pair: pair[1] - pair[0])
    return [(run[0][1], run[-1][1]) for run in (list(members) for _, members in runs)]
