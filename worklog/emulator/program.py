"""A kernel made ready to run: its generated code, block by block, and one slot a register. Kept between launches."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.codegen import BlockFunction, Context, generate, register_dtype
from worklog.emulator.flow import Block, defined, used
from worklog.emulator.ptx import Reg


@dataclass
class Program:
    """Generated code of one kernel, made block by block when first needed and kept for further launches."""

    context: Context
    registers: dict[str, str]
    functions: dict[tuple[int, bool], BlockFunction] = field(default_factory=dict)
    # Counters of the access sites are the program's, so one launch at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def function(self, block: int, merge: bool) -> BlockFunction:
        """The code of a block; merge: other lanes need their registers kept."""
        key = (block, merge)
        if key not in self.functions:
            self.functions[key] = generate(self.context, block, merge)
        return self.functions[key]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The kernel's basic blocks."""
        return self.context.flow.blocks


def make_program(context: Context) -> Program:
    """An empty program with one slot a register."""
    names: dict[str, Reg] = {}
    for instruction in context.kernel.instructions:
        for register in (*used(instruction), *defined(instruction)):
            names.setdefault(register.name, register)
    context.numbers.update({name: number for number, name in enumerate(names)})
    return Program(context, {name: register_dtype(register.type) for name, register in names.items()})


def unwritten(dtype: str) -> NDArray[Any]:
    """What a register holds before anybody writes it: bits that are no number, where a GPU has whatever was left."""
    kept = np.dtype(dtype)
    return np.zeros(1, kept) if kept.kind == "b" else np.full(kept.itemsize, 0xFF, np.uint8).view(kept)
