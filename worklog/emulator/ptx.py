"""Records of parsed PTX: kernels, their variables, and instructions, with the source line that each came from and what
the table of worklog.emulator.isa says of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from worklog.emulator.isa import HINTS, Row, row_of
from worklog.emulator.ops import C_TYPES
from worklog.emulator.symbols import demangled
from worklog.errors import WorklogError

Array = NDArray[Any]
# What odd operands can raise when code is generated for them, and when it runs.
UNEXPECTED = (ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError)


class PtxError(WorklogError):
    """PTX text that cannot be parsed."""


class UnsupportedInstruction(WorklogError):
    """An instruction that the emulator does not support; the message names it, its line and what to do instead."""


@dataclass(frozen=True)
class Reg:
    """A virtual register. type: as declared, "f32", "b32", "pred" …"""

    name: str
    type: str


@dataclass(frozen=True)
class Imm:
    """A literal. value: the integer, or the number that a 0f or 0d literal encodes; kind: "int", "f32" or "f64"."""

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
    """One instruction. op: "ld.global.v4.f32". guard: (predicate, negated). line: of the .cu file, 0 where unknown.
    caller: the line that called the function that this one is in, 0 for a line of the kernel itself.
    """

    pc: int
    op: str
    operands: tuple[Operand, ...]
    guard: tuple[Reg, bool] | None
    line: int
    text: str
    caller: int = 0

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The opcode and its modifiers."""
        return tuple(self.op.split("."))

    @cached_property
    def row(self) -> Row:
        """What the table says of it."""
        return row_of(self.op)

    def unsupported(self, why: str = "") -> UnsupportedInstruction:
        """The error for an unsupported instruction, with what to do instead."""
        hint = next((HINTS[part] for part in self.parts if part in HINTS), self.row.hint)
        where = f"line {self.line}" if self.line else f"instruction {self.pc}"
        why = why or f"the emulator doesn't support {hint}"
        return UnsupportedInstruction(f"{where}: {self.op} ({demangled(self.text)}): {why}")

    @cached_property
    def defined(self) -> tuple[Reg, ...]:
        """Registers that it writes: those of its first operand, or none."""
        return (
            ()
            if "void" in self.row.effects
            else tuple(registers(*self.operands[:1], addresses=False))
        )

    @cached_property
    def reads(self) -> tuple[Reg, ...]:
        """Registers that it reads, its guard included."""
        first = int(
            "void" not in self.row.effects and not isinstance((*self.operands, None)[0], Mem)
        )
        accumulates = self.row.memory == "wgmma"
        given = registers(*self.operands[0 if accumulates else first :])
        return (*given, self.guard[0]) if self.guard else tuple(given)

    @property
    def used(self) -> tuple[Reg, ...]:
        """Registers that are live before it. Under a guard the old result stays in some lanes, so it is live too."""
        return (*self.reads, *self.defined) if self.guard else self.reads


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """The elements of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def registers(*operands: Operand | None, addresses: bool = True) -> Iterator[Reg]:
    """Registers in operands."""
    for operand in operands:
        if isinstance(operand, Reg):
            yield operand
        elif isinstance(operand, Mem) and isinstance(operand.base, Reg) and addresses:
            yield operand.base
        elif isinstance(operand, Vec):
            yield from (item for item in operand.items if isinstance(item, Reg))


@dataclass(frozen=True)
class Variable:
    """A shared, global, const or local array. size and align: bytes; size 0 with extern is dynamic shared memory.

    symbols: addresses in its initial value: offset, name of the variable, and what is added.
    """

    name: str
    space: str
    size: int
    align: int
    extern: bool = False
    data: bytes = b""
    symbols: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True)
class Param:
    """A kernel parameter. type: "u32", "f32", "u64" …, or "b8" for a struct of `size` bytes."""

    name: str
    type: str
    size: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """One .entry: instructions in order, labels as indices into them, and the variables in scope. cluster: its blocks
    along x, y and z; None where it states none. assembled: whether
    the shared accesses are those of the machine code by number and width; None: not compared. functions: where those
    begin that it may call. file: the name of the one that its lines are of, "" if that isn't known.

    Two kernels are equal if they are the same object, so that looking up the generated code of one takes no time.
    """

    name: str
    arch: str
    params: tuple[Param, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    variables: tuple[Variable, ...]
    max_threads: int | None
    assembled: bool | None = None
    functions: dict[str, int] = field(default_factory=dict)
    cluster: tuple[int, int, int] | None = None
    file: str = ""


SIZES = {
    name: 8 if c == "double" else int(re.sub(r"\D", "", c) or 32) // 8
    for name, c in C_TYPES.items()
}


def size_of(type_: str) -> int:
    """Bytes of a value, or of a register, of a PTX type such as "f32", "b8" or "f16x2"; 0 of a predicate."""
    if type_ not in SIZES:
        raise UnsupportedInstruction(f"the emulator doesn't support the type .{type_}")
    return SIZES[type_] if type_ != "pred" else 0


def plain_name(symbol: str) -> str:
    """A variable's source name from its mangled name: As from _ZZ3fooE2As."""
    for match in re.finditer(r"(?=E(\d+)(\D\w*)$)", symbol):
        if len(match[2]) == int(match[1]):
            return match[2]
    return symbol
