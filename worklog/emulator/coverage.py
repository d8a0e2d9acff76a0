"""What all launches of a kernel on the emulator have run, and what none has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from worklog.emulator.conditions import Choice, Conditions
from worklog.emulator.launch import Result
from worklog.emulator.ptx import Kernel


@dataclass(eq=False)
class Coverage:
    """Of one kernel with one block. names: of what its parameters take. seen: its choices in all launches, as a Result
    has them; told: in those whose result shows that alpha or beta is wrong. ran: whether a thread reached each
    instruction.
    """

    kernel: Kernel
    names: tuple[str, ...]
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        self.seen, self.told, self.ran = np.zeros((3, len(self.kernel.instructions)), np.uint8)

    @cached_property
    def conditions(self) -> Conditions:
        """What decides."""
        return Conditions(self.kernel, self.names)

    def add(self, result: Result, arguments: Mapping[str, Any]) -> None:
        """One more launch."""
        self.seen |= result.choices
        self.ran |= np.array(result.executed, np.int64) > 0
        if arguments.get("alpha", 2) not in (0, 1) and arguments.get("beta", 1) != 0:
            self.told |= result.choices

    def lacks(self, choice: Choice, told: bool = False) -> bool:
        """Whether no launch has chosen this."""
        pc, held = choice
        return not (self.told if told else self.seen)[pc] & (1 if held else 2)

    def behind(self, choice: Choice) -> set[int]:
        """The source lines that no launch ran and that only this choice of a branch leads to, as far as it is known."""
        code, (pc, held) = self.kernel.instructions, choice
        if code[pc].parts[0] != "bra":
            return set()
        blocks = self.conditions.flow.blocks
        branch = next(block for block in blocks if block.start <= pc < block.stop)
        waiting, reached = [branch.successors[0 if held else -1]], set[int]()
        while waiting:
            number = waiting.pop()
            if number not in reached and not self.ran[blocks[number].start]:
                reached.add(number)
                waiting += blocks[number].successors
        lines = {i.line for number in reached for i in code[blocks[number].start : blocks[number].stop]}
        return lines - self.lines - {0}

    @property
    def lines(self) -> set[int]:
        """The source lines that ran."""
        return {i.line for i in self.kernel.instructions if self.ran[i.pc]}

    @property
    def chosen(self) -> set[tuple[int, str, bool]]:
        """By line and opcode, what some launch chose."""
        code = [self.kernel.instructions[pc] for pc in self.conditions.deciding]
        return {(i.line, i.op, held) for i in code for held in (True, False) if not self.lacks((i.pc, held))}
