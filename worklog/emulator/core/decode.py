"""Decodes a kernel for the core.

It makes records of the instructions and access sites, and a warp's initial register file.

An instruction that the core doesn't have is refused when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from worklog.emulator import tensor
from worklog.emulator.core import compose, enum, record
from worklog.emulator.core.compose import SLOT, RegisterFile
from worklog.emulator.flow import Block, branch_target
from worklog.emulator.isa import record_of
from worklog.emulator.ops import OPS
from worklog.emulator.program import LoadedProgram, Site
from worklog.emulator.ptx import (
    UNEXPECTED,
    Array,
    Imm,
    Instruction,
    Mem,
    Operand,
    Reg,
    Special,
    Sym,
    UnsupportedInstruction,
    items,
    size_of,
)

NONE = -1
SCRATCH = 6
MOST_OPERANDS = 19  # of an asynchronous instruction, in the lists
KIND = enum("kind")
SPACES = {"global": 0, "shared": 1, "local": 2, "const": 3, "generic": 4}
MEMORIES = ("global", "shared", "local")  # that a generic address may be in
# Bits as in the core: of an address; of the words of an asynchronous instruction; of an access that
# orders others.
WIDE = 1
GENERIC = 2
FLAGS = {
    "arrive_drop": 1, "relaxed": 2, "noComplete": 4, "parity": 8, "noinc": 16, "complete_tx": 32, "mbarrier_init": 64,
}  # fmt: skip
ORDER = {"release": 1, "acq_rel": 3, "acquire": 2, "cta": 4, "cg": 8, "cv": 8}
MOVED = 16  # beside them: an ordered load of data
LOCAL = "the emulator doesn't support atomics on local memory"


def number_of(operation: str) -> int:
    """Return the number of an operation in a form of isa.Opcode."""
    kind, _, name = operation.partition("/")
    name, _, opcode = name.partition("+")
    if kind in ("ALU", "ACCESS") and name:
        name, opcode = "", name
    start = 0
    if name.isdigit():
        start = int(name)
    elif name:
        start = enum(kind.lower())[name]
    return start + (OPS[opcode].number if opcode else 0)


class Decoder(RegisterFile):
    """A program for the core.

    records: of its instructions
    sites: the records of `owners`
    image: the register file that a warp starts with
    lists: what instructions have beyond their records
    scratch: the place of registers of no instruction
    refused: by pc, the message if an instruction runs
    numbers: by pc, the number of an access's site. The next site is the other side of a copy; for a
        generic access, the next three are those of its memories.
    """

    def __init__(self, program: LoadedProgram) -> None:
        super().__init__(program)
        self.code = program.kernel.instructions
        self.numbers = dict[int, int]()
        self.owners = list[Site]()
        for site in program.sites.values():
            self.numbers[site.pc] = len(self.owners)
            self.owners.append(site)
            if site.source:
                self.owners.append(site.source)
            if site.space == "generic":
                self.owners += [site.at(space) for space in MEMORIES]
        self.sites = np.zeros(len(self.owners), record("Site"))
        self.lists: list[int] = []
        self.steps: list[dict[str, int]] = []  # of instructions that are several
        self.refused: dict[int, str] = {}
        # The pc of the first instruction of the block that set the carry, and the carry's place.
        self.carry_set: tuple[int, int] | None = None
        if any("cc" in instruction.parts for instruction in self.code):
            self.carry_set = (-1, self.room(SLOT))
        self.records = self._records()
        for site in program.sites.values():
            if site.space == "generic":
                number = self.numbers[site.pc]
                by_memory = slice(number + 1, number + 1 + len(MEMORIES))
                self.sites[by_memory] = self.sites[number]
                self.sites[by_memory]["space"] = range(len(MEMORIES))
                self.sites[number]["array_start"] = number + 1
        self.scratch = self.room(SCRATCH * SLOT)
        self.image = self.started()

    def _records(self) -> Array:
        """Return the records of all instructions, of the code's end, and of the steps."""
        rows = [self.row(instruction) for instruction in self.code]
        meetings: dict[str, int] = {}
        for block in self.program.flow.blocks:
            rows[block.start]["block"] = block.index
            for pc in range(block.start, block.stop):
                instruction = self.code[pc]
                if not instruction.opcode.meeting or pc in self.refused:
                    continue
                if "aligned" in instruction.parts:
                    rows[pc]["meets"] = -1
                else:
                    rows[pc]["meets"] = meetings.setdefault(instruction.op, len(meetings) + 1)
        rows.append({"kind": KIND["EXIT"]})  # for code that has no end
        default = dict.fromkeys(record("Instruction").fields or (), NONE)
        default |= dict.fromkeys(("op", "negated", "copies", "meets"), 0)
        values = [tuple({**default, **row}.values()) for row in [*rows, *self.steps]]
        return np.array(values, record("Instruction"))

    # Operands.

    def carry(self, instruction: Instruction, sets: bool = False) -> int:
        """Return the place of the carry.

        sets: whether the instruction sets it
        Raises UnsupportedInstruction if no instruction before has set it.
        """
        start = self._block_of(instruction).start
        if sets and self.carry_set:
            self.carry_set = start, self.carry_set[1]
        if self.carry_set is None or self.carry_set[0] != start:
            raise instruction.unsupported()
        return self.carry_set[1]

    def _block_of(self, instruction: Instruction) -> Block:
        for block in self.program.flow.blocks:
            if block.start <= instruction.pc < block.stop:
                return block
        raise LookupError(instruction.pc)

    def series(self, steps: Sequence[dict[str, int]]) -> int:
        """Add steps, and return their place.

        It is after the program's instructions and its end.
        """
        self.steps += steps
        return len(self.code) + 1 + len(self.steps) - len(steps)

    def target(self, instruction: Instruction, operand: Operand | None, type_: str) -> int:
        """Return the place of a result."""
        if operand is None or operand == Sym("_"):
            return NONE
        if not isinstance(operand, Reg) or size_of(operand.type) != size_of(type_):
            raise instruction.unsupported()
        return self.registers[operand.name]

    def address(self, instruction: Instruction, operand: Operand | None) -> tuple[int, int, int]:
        """Return the place of an address, its bits and its offset.

        The place is without the offset. The bits are WIDE if it has 64 bits.
        """
        if not isinstance(operand, Mem):
            raise instruction.unsupported("an address was expected")
        base = operand.base
        if not isinstance(base, Reg):
            return self.source(base or Imm(0, 0, "int"), "b64"), WIDE, operand.offset
        size = size_of(base.type)
        if base.type in ("f32", "f64") or size not in (4, 8):
            raise instruction.unsupported(f"{base.name} is .{base.type}: no address")
        return self.registers[base.name], WIDE if size == 8 else 0, operand.offset

    # Instructions.

    def row(self, instruction: Instruction) -> dict[str, int]:
        """Return the record of an instruction; one that says so if it isn't supported."""
        try:
            return self._guarded(instruction)
        except UnsupportedInstruction as error:
            self.refused[instruction.pc] = str(error)
            return {"kind": KIND["REFUSED"]}

    def _guarded(self, instruction: Instruction) -> dict[str, int]:
        """Return the record of an instruction with its guard. Raises UnsupportedInstruction."""
        try:
            row = self.instruction(instruction)
            if not instruction.guard:
                return row
            predicate, is_negated = instruction.guard
            return {**row, "guard": self.registers[predicate.name], "negated": is_negated}
        except UNEXPECTED as error:
            raise instruction.unsupported() from error

    def instruction(self, instruction: Instruction) -> dict[str, int]:
        """Return the record of an instruction by its row in the table."""
        form = record_of(instruction.op)
        if form:
            kind = form.partition("/")[0]
            handler = HANDLERS.get(form, HANDLERS.get(kind))
            if handler:
                return {"kind": KIND[kind], **handler(self, instruction)}
            return self.record(instruction, form)
        row = compose.row(self, instruction)
        if row:
            return row
        if "none" in instruction.opcode.effects:
            return {"kind": KIND["ALU"], "op": 0}
        raise instruction.unsupported()

    def record(self, instruction: Instruction, form: str) -> dict[str, int]:
        """Return the record that a form of isa.Opcode describes."""
        operation, *fields = form.split()
        operands = [*instruction.operands]
        if "L2::cache_hint" in instruction.parts:
            operands.pop()
        parsed = _Operands(
            {"kind": KIND[operation.partition("/")[0]], "op": number_of(operation)}, {}, []
        )
        for number, field in enumerate(fields):
            if field == "...":
                operands.clear()
            elif "=" in field:
                name, value, type_ = _default(field)
                parsed.fields[name] = self.source(value, type_)
            elif field[-1] != "?" or _is_given(operands, fields[number + 1 :]):
                self._operand(instruction, field.rstrip("?"), operands.pop(0), parsed)
        if operands:
            raise instruction.unsupported()
        if parsed.fields["kind"] == KIND["ASYNC"]:
            return self.asynchronous(instruction, parsed)
        return parsed.fields

    def _operand(
        self, instruction: Instruction, field: str, operand: Operand, parsed: _Operands
    ) -> None:
        """Add an operand to what is parsed.

        field: of a form in isa.Opcode
        """
        name, _, type_ = field.partition(":")
        if name in ("shared", "global", "barrier"):
            place, wide, offset = self.address(instruction, operand)
            if name == "shared" and not any(
                part.startswith("shared") for part in instruction.parts
            ):
                wide |= GENERIC
            parsed.places[name] = place, wide, offset
        elif name == "coordinates":
            parsed.coordinates.extend(self.source(item, type_) for item in items(operand))
        elif name == "d":
            first, second = (*items(operand), None)[:2]
            parsed.fields["d"] = self.target(instruction, first, type_)
            parsed.fields["target"] = self.target(instruction, second, "pred")
        elif name[-1] == "#" and isinstance(operand, Imm):
            parsed.fields[name[:-1]] = int(operand.value)
        elif name != "_":
            parsed.fields[name] = self.source(operand, type_)

    def asynchronous(self, instruction: Instruction, parsed: _Operands) -> dict[str, int]:
        """Return a record, and list what mbarrier.h's AsyncOperands has."""
        parts = instruction.parts
        fields = parsed.fields
        coordinates = parsed.coordinates
        is_arrival = fields["op"] == enum("async")["ARRIVE_AT"]
        if is_arrival and "d" not in fields and "shared::cluster" not in parts:
            raise instruction.unsupported()  # PTX ISA: only another block's mbarrier has no state
        if "tensor" in parts and f"{len(coordinates)}d" not in parts:
            raise instruction.unsupported()
        nowhere = (NONE, 0, 0)
        values = list[int]()
        for name in ("shared", "global", "barrier"):
            values += parsed.places.get(name, nowhere)
        number = self.numbers.get(instruction.pc, NONE)
        values += [number + 1, sum(bit for part, bit in FLAGS.items() if part in parts)]
        dimensions = len(coordinates) if "tensor" in parts else 0
        values += [fields.get("number", NONE), dimensions, fields.get("size", NONE)]
        values += [*coordinates, *[NONE] * 5]
        target = self.listed(values[:MOST_OPERANDS])
        site = self.program.sites.get(instruction.pc)
        if site and site.source:
            for offset, side in enumerate((site, site.source)):
                is_copy = int(side.op == "cp")
                self.fill(number + offset, side, is_copy, side.size)["wide"] = 1
        return {
            "kind": KIND["ASYNC"],
            "op": fields["op"],
            "d": fields.get("d", NONE),
            "site": number,
            "target": target,
            "a": fields.get("a", parsed.places.get("shared", nowhere)[0]),
            "b": fields.get("value", NONE),
        }

    def listed(self, values: Sequence[int]) -> int:
        """Add values to the lists, and return their place there."""
        self.lists += values
        return len(self.lists) - len(values)

    def fill(self, number: int, site: Site, op: int, width: int) -> Any:
        """Fill the record of an access site, and return it.

        width: bytes of its registers
        """
        record = self.sites[number]
        record["op"] = op
        record["space"] = SPACES[site.space]
        record["line"] = site.line
        record["size"] = site.size
        record["count"] = site.count
        record["width"] = width
        record["array_start"] = site.start
        record["array_size"] = site.array.size if site.array else NONE
        record["values"] = NONE
        record["results"] = NONE
        return record

    def branch(self, instruction: Instruction) -> dict[str, int]:
        """Decode bra. The site of its record is 1 if its loop may wait."""
        head = branch_target(self.program.kernel, instruction)
        blocks = self.program.flow.blocks
        polls = any(blocks[block].start == head for block in self.program.flow.polling)
        return {"target": head, "site": int(polls)}

    def call(self, instruction: Instruction) -> dict[str, int]:
        """Decode call.function.

        Its list has the registers that the caller keeps, and where functions begin.
        """
        results, target, _ = instruction.operands
        written = {item.name for item in items(results) if isinstance(item, Reg)}
        block = self._block_of(instruction)
        saved = sorted(self.program.flow.live_out[block.index] - written)
        values = [len(saved)]
        for name in saved:
            values += [self.registers[name], size_of(self.types[name])]
        functions = self.program.kernel.functions
        listed = self.listed([*values, len(functions), *functions.values()])
        if not isinstance(target, Sym):
            return {"target": listed, "a": self.source(target, "b64")}
        if target.name not in functions:
            raise instruction.unsupported(f"there is no code of {target.name}")
        return {"target": listed, "site": functions[target.name]}

    def access(self, instruction: Instruction) -> dict[str, int]:
        """Decode ld, st, atom and red."""
        parts = instruction.parts
        site = self.program.sites[instruction.pc]
        number = self.numbers[instruction.pc]
        if site.op == "atom" and site.space in ("local", "generic"):
            self.refused[instruction.pc] = str(instruction.unsupported(LOCAL))
        operands = [*instruction.operands]
        if "L2::cache_hint" in parts:
            operands.pop()
        results = items(operands.pop(0)) if parts[0] == "atom" else ()
        address, *values = reversed(operands) if site.op == "ld" else operands
        start, wide, _ = self.address(instruction, address)
        moved = [*chain.from_iterable(map(items, values))]
        width = self._width(instruction, site, moved)
        type_ = f"{'f' if parts[-1] in ('f32', 'f64') else 'b'}{8 * width}"
        places = self._moved_places(moved, type_, is_load=site.op == "ld")
        record = self.fill(number, site, ("ld", "st", "atom").index(site.op), width)
        record["values"][: len(places)] = places
        record["results"][: len(results)] = [
            self.registers[item.name] if isinstance(item, Reg) else NONE for item in results
        ]
        record["atomic"] = number_of(record_of(instruction.op))
        record["strong"] = site.strong
        record["is_signed"] = parts[-1][0] == "s"
        record["wide"] = wide
        record["offset"] = site.offset
        for part in parts:
            record["order"] |= ORDER.get(part, 0)
        if instruction.pc in self.program.flow.moved:
            record["order"] |= MOVED
        record["groups_count"] = len(site.groups)
        record["read_only"] = "nc" in parts
        for index, group in enumerate(site.groups):
            record["groups"][index] = (group.leads, group.width, group.offset)
        return {"site": number, "a": start}

    def _moved_places(
        self, values: Sequence[Operand | None], type_: str, *, is_load: bool
    ) -> list[int]:
        """Return the places of the values that an access moves; a load may ignore some."""
        places = []
        for value in values:
            is_ignored = value is None and is_load
            places.append(NONE if is_ignored else self.source(value, type_))
        return places

    def _width(self, instruction: Instruction, site: Site, values: Sequence[Operand | None]) -> int:
        """Return the bytes of the registers that an access moves.

        Raises UnsupportedInstruction if they differ, or are too narrow or of the wrong kind.
        """
        widths = {size_of(value.type) for value in values if isinstance(value, Reg)}
        is_atomic = site.op == "atom"
        count = 2 if "cas" in instruction.parts else site.count
        if len(widths) > 1 or len(values) != count:
            raise instruction.unsupported()
        if not widths:
            return site.size if is_atomic else max(site.size, 4)
        width = widths.pop()
        may_be_wider = not is_atomic and instruction.parts[-1] not in ("f32", "f64")
        if width != site.size and not (width > site.size and may_be_wider):
            raise instruction.unsupported()
        return width


class _Operands(NamedTuple):
    """The operands of an instruction, parsed by a form of isa.Opcode."""

    fields: dict[str, int]  # of the record
    places: dict[str, tuple[int, int, int]]  # of addresses, by name: place, bits and offset
    coordinates: list[int]


def _default(field: str) -> tuple[str, Operand, str]:
    """Return the name of a field of a form that has a value, the value, and its type."""
    declared, _, value = field.partition("=")
    name, _, type_ = declared.partition(":")
    if value[0] == "%":
        return name, Special(value), type_
    return name, Imm(int(value), 0, "int"), type_


def _is_given(operands: Sequence[Operand], later_fields: Sequence[str]) -> bool:
    """Return whether an optional operand is there: enough are left for later fields."""
    required = 0
    for field in later_fields:
        if "=" not in field and field[-1] not in "?.":
            required += 1
    return len(operands) > required and not isinstance(operands[0], Mem)


HANDLERS: dict[str, Callable[[Decoder, Instruction], dict[str, int]]] = {
    "ACCESS": Decoder.access,
    "BRANCH": Decoder.branch,
    "CALL": Decoder.call,
    "TENSOR/MATRICES": tensor.matrices,
    "TENSOR/MULTIPLY": tensor.multiply,
    "TENSOR/TURN": tensor.turn,
    "WGMMA/MMA_ASYNC": tensor.warp_group,
}


@lru_cache(maxsize=64)
def decoded(program: LoadedProgram) -> Decoder:
    """Return the program for the core."""
    return Decoder(program)
