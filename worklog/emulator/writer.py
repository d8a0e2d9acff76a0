"""Writes the Python statements of one block of PTX: operands become expressions, results become registers.

A register is an array of its declared width, or of length 1 where all threads hold one value (NumPy broadcasts it).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from worklog.emulator.forms import SHARED_WINDOW, UNPACKED
from worklog.emulator.isa import register_dtype, unsupported
from worklog.emulator.program import EXIT, Program
from worklog.emulator.ptx import DTYPES, TIMES, Imm, Instruction, Mem, Operand, Reg, Special, Sym, Vec


class Writer:
    """Collects the statements of one block. Every value gets a fresh local name, so that it can be freed after its last
    use.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.registers: dict[str, str] = {}  # the local that holds each register now
        self.known: dict[str, str] = {}  # the local that holds each expression
        self.carry: dict[str, str] = {}  # "carry": the local of the carry, once an instruction has set it
        self.count = 0
        self.instruction: Instruction = program.kernel.instructions[0]
        self.mask = "m"
        self.predicate = ""  # of the instruction's guard
        self.follow, self.leaving = EXIT, ""  # of a barrier: the next block, and the call that returns it

    def local(self) -> str:
        """A new name."""
        self.count += 1
        return f"v{self.count}"

    def fresh(self, expression: str) -> str:
        """A new local holding the expression."""
        name = self.local()
        self.lines.append(f"{name} = {expression}")
        return name

    def once(self, expression: str) -> str:
        """A local holding an expression without effects, which is computed once per block of code."""
        if expression not in self.known:
            self.known[expression] = self.fresh(expression)
        return self.known[expression]

    # Reading operands.

    def register(self, reg: Reg) -> str:
        """The local that holds a register, read from the register file at its first use."""
        if reg.name not in self.registers:
            self.registers[reg.name] = self.fresh(f"R[{reg.name!r}]")
        return self.registers[reg.name]

    def constant(self, value: Any, dtype: str) -> str:
        """The name of an array with one element that holds a literal."""
        array = np.array([value] if dtype[0] in "f?" else [np.uint64(int(value) % 2**64)]).astype(dtype)
        name = f"k_{dtype.replace('?', 'b')}_{array.tobytes().hex()}"
        self.constants[name] = array
        return name

    def source(self, operand: Operand | None, type_: str) -> str:
        """An expression for an operand as an array of `type_`, or as Form.sources says; a wider register is truncated,
        as in PTX.
        """
        if type_ == "number" and isinstance(operand, Imm):
            return str(int(operand.value))
        if type_ in ("shared", "generic") and isinstance(operand, Mem):
            return self.place(operand, generic=type_ == "generic")
        if isinstance(operand, Vec):
            low, high = (self.source(item, {"b32": "b16", "b64": "b32"}[type_]) for item in operand.items)
            return self.once(f"joined({low}, {high})")
        if type_ in UNPACKED:
            held, expression = UNPACKED[type_]
            return self.once(expression.format(self.source(operand, held)))
        if type_ not in DTYPES:
            raise unsupported(self.instruction, f"the emulator doesn't support type .{type_}")
        dtype = DTYPES[type_]
        if isinstance(operand, Reg):
            own = self._fitting(operand, dtype)
            text = self.register(operand)
            return text if own == dtype else self.once(_converted(text, own, dtype))
        if isinstance(operand, Imm):
            if dtype[0] == "f":
                return self.constant(float(operand.value), dtype)
            return self.constant(operand.value if operand.kind == "int" else operand.bits, dtype)
        if isinstance(operand, Special) and operand.name in TIMES:
            return self.fresh(f"S.clock({TIMES[operand.name]}).astype({dtype!r})")
        if isinstance(operand, Special):
            text = self.once(f"S.special({operand.name!r})")
            return text if dtype == "u4" else self.once(_converted(text, "u4", dtype))
        if isinstance(operand, Sym):
            return self.constant(self._address_of(operand), dtype)
        raise unsupported(self.instruction, "an operand is missing or of the wrong kind")

    def _fitting(self, reg: Reg, dtype: str) -> str:
        """The register's own dtype, which must hold one of `dtype`: in the same width, or as the low part."""
        own = register_dtype(reg.type)
        have, want = np.dtype(own).itemsize, np.dtype(dtype).itemsize
        if (own == "?") != (dtype == "?") or have < want or (have > want and "f" in own[0] + dtype[0]):
            raise unsupported(self.instruction, f"{reg.name} is .{reg.type}: too narrow, or of the wrong kind")
        return own

    def _address_of(self, symbol: Sym) -> int:
        if symbol.name not in self.program.addresses:
            raise unsupported(self.instruction, f"{symbol.name} is not a variable or a register")
        return self.program.addresses[symbol.name]

    def address(self, operand: Operand) -> str:
        """The base of a memory operand, as an array of uint32 or uint64, as held; the offset is in the access site."""
        if not isinstance(operand, Mem):
            raise unsupported(self.instruction, "an address was expected")
        if isinstance(operand.base, Reg):
            if register_dtype(operand.base.type) not in ("u4", "u8"):
                raise unsupported(self.instruction, f"{operand.base.name} is .{operand.base.type}: no address")
            return self.register(operand.base)
        return self.constant(self._address_of(operand.base) if operand.base else 0, "u8")

    def place(self, operand: Operand, *, generic: bool = False) -> str:
        """An address in shared memory as int64; a generic one outside of it becomes one that no block has."""
        address = self.address(operand)
        assert isinstance(operand, Mem)
        if generic and isinstance(operand.base, Reg):
            address = f"({address} ^ np.uint64({SHARED_WINDOW}))"
        elif isinstance(operand.base, Reg) and operand.base.type[1:] == "32":
            address = f"{address}.view('i4')"
        return f"({address}.astype('i8') + {operand.offset})"

    def named(self, value: Any, name: str = "form") -> str:
        """The name that the generated code has for an object of the current instruction."""
        self.constants[f"{name}{self.instruction.pc}"] = value
        return f"{name}{self.instruction.pc}"

    def site(self) -> str:
        """The name of the current instruction's access site."""
        return self.named(self.program.sites[self.instruction.pc], "site")

    # Writing results.

    def result(self, reg: Operand | None, expression: str, dtype: str) -> None:
        """Give a register, or two registers half as wide, a value of `dtype`; a narrower value is extended by its own
        sign, as in ld and cvt.
        """
        if isinstance(reg, Vec):
            self.results(reg.items, f"halves({expression})", [{"u4": "u2", "u8": "u4"}[dtype]] * 2)
            return
        if not isinstance(reg, Reg):
            raise unsupported(self.instruction, "the destination is not a register")
        own = self._fitting(reg, dtype)
        expression = expression if own == dtype else _converted(f"({expression})", dtype, own)
        if self.predicate:
            expression = f"merge({expression}, {self.register(reg)}, {self.predicate})"
        self.registers[reg.name] = self.fresh(expression)

    def results(self, targets: Sequence[Operand | None], call: str, dtypes: Sequence[str]) -> list[str]:
        """Give several registers the arrays that a call returns; None ignores one. Returns the arrays' locals."""
        names = [self.local() for _ in dtypes]
        self.lines.append(f"{', '.join(names)}, = {call}")
        for target, name, dtype in zip_longest(targets, names, dtypes):
            if target is not None:
                self.result(target, name, dtype)
        return names


def _converted(text: str, dtype: str, wanted: str) -> str:
    """An array as another dtype: the same bits where the width agrees."""
    same_width = np.dtype(dtype).itemsize == np.dtype(wanted).itemsize
    return f"{text}.{'view' if same_width else 'astype'}({wanted!r})"
