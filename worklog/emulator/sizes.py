"""The values of a kernel that sizes alone decide, and the tables that its loads read.

A factor M * N / 630000 has no branch, so no choice shows that it is 2 at 900 x 700 alone. It is
known before a launch, like each value that comes from M, N, K and the grid only. The values that
matter here reach a number that is stored, or choose an entry of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worklog.emulator.flow import Flow, origins
from worklog.emulator.ptx import (
    Instruction,
    Mem,
    Operand,
    Reg,
    Sym,
    Variable,
    registers,
    size_of,
)

SIZES = frozenset({"M", "N", "K", "%nctaid.x", "%nctaid.y"})
TABLE_SPACES = ("const", "global")
WIDEST = 8  # bytes of a value

Names = dict[str, set[str]]  # of what a register's value comes from, by the register's name


@dataclass(frozen=True)
class ConstantTable:
    """An initialised array that a kernel only reads.

    widths: the bytes that its loads read at once
    """

    variable: Variable
    widths: tuple[int, ...]


@dataclass(frozen=True)
class SizeValue:
    """A value that sizes alone decide.

    register: it has the value where an instruction reads it
    readers: the pcs of these instructions
    inputs: the names of the sizes, and of the grid, that decide it
    arrays: the names of the arrays whose entry it chooses, if it does nothing else
    """

    register: Reg
    readers: tuple[int, ...]
    inputs: frozenset[str]
    arrays: frozenset[str]


def size_values(
    code: Sequence[Instruction], input_of: Callable[[Instruction], str]
) -> list[SizeValue]:
    """Return the values that sizes alone decide and that matter.

    They reach a stored number or choose an entry of a table. A size that is only a bound, a
    predicate or the address of a matrix isn't one.

    input_of: the name of the input that an instruction's result is; "" if it computes the result
    """

    def sources(instruction: Instruction) -> tuple[set[str], bool]:
        name = input_of(instruction)
        return {name} - {""}, not name

    inputs = origins([instruction for instruction in code if instruction.defined], sources)
    symbols = _symbols(code)

    def is_size(register: Reg) -> bool:
        names = inputs[register.name]
        return bool(names) and names <= SIZES and 0 < size_of(register.type) <= WIDEST

    readers = dict[Reg, list[Instruction]]()
    for instruction in _reaching_stores(code, symbols):
        if any(map(is_size, instruction.defined)):
            continue
        for register in dict.fromkeys(_passed_on(instruction, symbols)):
            if is_size(register):
                readers.setdefault(register, []).append(instruction)
    values = list[SizeValue]()
    for register, instructions in readers.items():
        arrays = [_arrays_of(instruction, symbols) for instruction in instructions]
        only_arrays = frozenset[str]().union(*arrays) if all(arrays) else frozenset[str]()
        pcs = tuple(instruction.pc for instruction in instructions)
        values.append(SizeValue(register, pcs, frozenset(inputs[register.name]), only_arrays))
    return values


def _arrays_of(instruction: Instruction, symbols: Names) -> set[str]:
    """Return the names of the arrays of an address that an instruction computes or loads from."""
    names = set[str]()
    for operand in instruction.operands:
        names |= _names_behind(operand, symbols)
    for register in instruction.defined:
        names |= symbols[register.name]
    return names


def _reaching_stores(code: Sequence[Instruction], symbols: Names) -> list[Instruction]:
    """Return the stores, and the instructions whose results reach a stored number."""
    definitions = dict[str, list[Instruction]]()
    for instruction in code:
        for register in instruction.defined:
            definitions.setdefault(register.name, []).append(instruction)
    waiting = [
        instruction for instruction in code if instruction.opcode.memory not in ("", "ld", "cp")
    ]
    reached = dict[int, Instruction]()
    while waiting:
        instruction = waiting.pop()
        if instruction.pc in reached:
            continue
        reached[instruction.pc] = instruction
        for register in _passed_on(instruction, symbols):
            waiting += definitions.pop(register.name, ())
    return [reached[pc] for pc in sorted(reached)]


def _passed_on(instruction: Instruction, symbols: Names) -> list[Reg]:
    """Return the registers whose values an instruction passes on.

    These are its operands, without predicates: what they choose is a choice. Of a load, it is the
    address in a table or in an array of the kernel's own.
    """
    operands = instruction.operands
    if instruction.opcode.memory == "ld":
        is_table = any(_names_behind(operand, symbols) for operand in operands)
        return [*registers(*operands[1:])] if is_table else []
    if instruction.defined and instruction.opcode.memory != "wgmma":
        operands = operands[1:]
    passed_on = registers(*operands, addresses=False)
    return [register for register in passed_on if register.type != "pred"]


def _symbols(code: Sequence[Instruction]) -> Names:
    """Return the names of the variables whose addresses each register's value comes from."""

    def sources(instruction: Instruction) -> tuple[set[str], bool]:
        if instruction.opcode.memory or instruction.parts[0] == "bra":
            return set(), False
        return {operand.name for operand in instruction.operands if isinstance(operand, Sym)}, True

    return origins(code, sources)


def _names_behind(operand: Operand, symbols: Names) -> set[str]:
    """Return the names of the variables that an address may be in; none if it isn't an address."""
    if not isinstance(operand, Mem) or operand.base is None:
        return set()
    if isinstance(operand.base, Sym):
        return {operand.base.name}
    return symbols[operand.base.name]


def tables(flow: Flow) -> list[ConstantTable]:
    """Return the initialised arrays that a kernel only reads, with plain loads.

    An array whose address is stored, or passed to a copy or an atomic, isn't one: it isn't known
    what reads it.
    """
    initialised = [variable for variable in flow.kernel.variables if _is_initialised(variable)]
    if not initialised:
        return []
    symbols = _symbols(flow.kernel.instructions)
    widths = dict[str, set[int]]()
    escaped = set[str]()  # what other instructions may access
    for instruction in flow.kernel.instructions:
        if not instruction.opcode.memory:
            continue
        names = set[str]()
        for operand in instruction.operands:
            names |= _names_behind(operand, symbols)
        if instruction.opcode.memory == "ld":
            width = size_of(instruction.parts[-1]) * instruction.opcode.elements
            for name in names:
                widths.setdefault(name, set()).add(width)
            continue
        escaped |= names
        for register in registers(*instruction.operands):
            escaped |= symbols[register.name]
    constant_tables = list[ConstantTable]()
    for variable in initialised:
        name = variable.name
        is_only_read = variable.space == "const" or (
            flow.written is not None and name not in flow.written
        )
        if name in widths and name not in escaped and is_only_read:
            constant_tables.append(ConstantTable(variable, tuple(sorted(widths[name]))))
    return constant_tables


def _is_initialised(variable: Variable) -> bool:
    """Return whether a variable has an initial value of numbers."""
    return variable.space in TABLE_SPACES and bool(variable.data) and not variable.symbols
