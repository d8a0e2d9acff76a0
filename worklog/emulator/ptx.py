"""Records of parsed PTX: kernels, their variables, and instructions.

An instruction has the source line that it came from, and its opcode in the table of
worklog.emulator.isa.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from worklog.emulator.isa import HINTS, Opcode, opcode_of
from worklog.emulator.ops import C_TYPES
from worklog.emulator.symbols import demangled
from worklog.errors import WorklogError

Array = NDArray[Any]
# What odd operands can raise when code is generated for them, and when it runs.
UNEXPECTED = (ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError)


class PtxError(WorklogError):
    """PTX text that can't be parsed."""


class UnsupportedInstruction(WorklogError):
    """An instruction that the emulator doesn't support.

    The message has the instruction, its line and what to do instead.
    """


@dataclass(frozen=True)
class Reg:
    """A virtual register. type: as declared, "f32", "b32", "pred" …"""

    name: str
    type: str


@dataclass(frozen=True)
class Imm:
    """A literal. value: the integer, or the number that a 0f or 0d literal encodes.

    Kind: "int", "f32" or "f64".
    """

    value: int | float
    bits: int
    kind: str


@dataclass(frozen=True)
class Sym:
    """A variable's or a label's name."""

    name: str


@dataclass(frozen=True)
class Special:
    """A read-only register such as %tid.x."""

    name: str


@dataclass(frozen=True)
class Mem:
    """An address: [base + offset]. base None is an absolute address."""

    base: Reg | Sym | None
    offset: int


@dataclass(frozen=True)
class Vec:
    """Several operands in braces, or the two of `%p|%q`; None stands for `_`."""

    items: tuple[Operand | None, ...]


# Clocks, with the bits of the count that they give. The emulator has no time: see Machine.clock.
TIMES = {
    "%clock": 0,
    "%clock64": 0,
    "%clock_hi": 32,
    "%globaltimer": 0,
    "%globaltimer_lo": 0,
    "%globaltimer_hi": 32,
}

VECTORS = (
    "%tid",
    "%ntid",
    "%ctaid",
    "%nctaid",
    "%clusterid",
    "%nclusterid",
    "%cluster_ctaid",
    "%cluster_nctaid",
)
SPECIALS = (
    *(f"{name}.{axis}" for name in VECTORS for axis in "xyz"),
    "%laneid", "%warpid", "%nwarpid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
    "WARP_SZ", "%smid", "%nsmid", "%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster", "%dynamic_smem_size",
    "%total_smem_size", "%aggr_smem_size", "%envreg1", "%envreg2", "%reserved_smem_offset_begin", *TIMES,
    "%reserved_smem_offset_end", "%reserved_smem_offset_cap", "%reserved_smem_offset_0", "%reserved_smem_offset_1",
)  # fmt: skip

Operand = Reg | Imm | Sym | Special | Mem | Vec


@dataclass(frozen=True)
class Instruction:
    """One instruction."""

    pc: int
    op: str  # "ld.global.v4.f32"
    operands: tuple[Operand, ...]
    guard: tuple[Reg, bool] | None  # the predicate, and whether it is negated
    line: int  # of the .cu file, 0 if unknown
    text: str
    caller: int = 0  # the line that called the function that it is in; 0 in the kernel itself

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The opcode and its modifiers."""
        return tuple(self.op.split("."))

    @cached_property
    def opcode(self) -> Opcode:
        """The instruction's row in the table."""
        return opcode_of(self.op)

    def unsupported(self, reason: str = "") -> UnsupportedInstruction:
        """Return the error for an unsupported instruction, with what to do instead."""
        hint = next((HINTS[part] for part in self.parts if part in HINTS), self.opcode.hint)
        place = f"line {self.line}" if self.line else f"instruction {self.pc}"
        reason = reason or f"the emulator doesn't support {hint}"
        return UnsupportedInstruction(f"{place}: {self.op} ({demangled(self.text)}): {reason}")

    @cached_property
    def defined(self) -> tuple[Reg, ...]:
        """The registers that it writes: those of its first operand, or none."""
        if "void" in self.opcode.effects:
            return ()
        return tuple(registers(*self.operands[:1], addresses=False))

    @cached_property
    def reads(self) -> tuple[Reg, ...]:
        """The registers that it reads, its guard included."""
        operands = self.operands
        has_result = "void" not in self.opcode.effects and not isinstance((*operands, None)[0], Mem)
        accumulates = self.opcode.memory == "wgmma"
        if has_result and not accumulates:
            operands = operands[1:]
        read = tuple(registers(*operands))
        return (*read, self.guard[0]) if self.guard else read

    @property
    def used(self) -> tuple[Reg, ...]:
        """The registers that are live before it.

        Under a guard, the old result stays in some lanes, so it is also live.
        """
        return (*self.reads, *self.defined) if self.guard else self.reads


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """Return the elements of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def registers(*operands: Operand | None, addresses: bool = True) -> Iterator[Reg]:
    """Yield the registers in operands."""
    for operand in operands:
        if isinstance(operand, Reg):
            yield operand
        elif isinstance(operand, Mem) and isinstance(operand.base, Reg) and addresses:
            yield operand.base
        elif isinstance(operand, Vec):
            yield from (item for item in operand.items if isinstance(item, Reg))


@dataclass(frozen=True)
class Variable:
    """A shared, global, const or local array."""

    name: str
    space: str
    size: int  # bytes; 0 with extern is dynamic shared memory
    align: int  # bytes
    extern: bool = False
    data: bytes = b""
    # Addresses in its initial value: the offset, the name of the variable, and the number that is
    # added.
    symbols: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True)
class Param:
    """A kernel parameter. type: "u32", "f32", "u64" …, or "b8" for a struct of `size` bytes."""

    name: str
    type: str
    size: int


@dataclass(frozen=True, eq=False)
class PtxKernel:
    """One .entry: instructions in order, and the variables in scope.

    Two kernels are equal if they are the same object, so that looking up the generated code of a
    kernel takes no time.
    """

    name: str
    arch: str
    params: tuple[Param, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]  # indices of instructions
    variables: tuple[Variable, ...]
    max_threads: int | None
    # Whether the shared accesses are those of the machine code by number and width; None: not
    # compared.
    assembled: bool | None = None
    functions: dict[str, int] = field(default_factory=dict)  # where those begin that it may call
    cluster: tuple[int, int, int] | None = (
        None  # its blocks along x, y and z; None if it states none
    )
    file: str = ""  # the name of the file that its lines are of, "" if unknown


SIZES = {
    name: 8 if c == "double" else int(re.sub(r"\D", "", c) or 32) // 8
    for name, c in C_TYPES.items()
}


def size_of(type_: str) -> int:
    """Return the bytes of a value, or of a register, of a PTX type; 0 for a predicate.

    type_: such as "f32", "b8" or "f16x2"
    """
    if type_ not in SIZES:
        raise UnsupportedInstruction(f"the emulator doesn't support the type .{type_}")
    return SIZES[type_] if type_ != "pred" else 0


def plain_name(symbol: str) -> str:
    """Return a variable's source name from its mangled name: As from _ZZ3fooE2As."""
    for match in re.finditer(r"(?=E(\d+)(\D\w*)$)", symbol):
        if len(match[2]) == int(match[1]):
            return match[2]
    return symbol
