"""Decodes a kernel for the core: records of its instructions and access sites, and the register file that a warp starts
with. What the core does not have is refused where it would run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from worklog.emulator import tensor
from worklog.emulator.core import compose, enum, record
from worklog.emulator.core.compose import SLOT, RegisterFile
from worklog.emulator.flow import branch_target
from worklog.emulator.isa import record_of
from worklog.emulator.ops import OPS
from worklog.emulator.program import Program, Site
from worklog.emulator.ptx import (
    UNEXPECTED,
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
KIND = enum("kind")
SPACES = {"global": 0, "shared": 1, "local": 2, "const": 3, "generic": 4}
MEMORIES = ("global", "shared", "local")  # that a generic address may be in
# Bits as in the core: of an address; of the words of an asynchronous instruction; of an access that orders others.
WIDE = 1
GENERIC = 2
FLAGS = {
    "arrive_drop": 1, "relaxed": 2, "noComplete": 4, "parity": 8, "noinc": 16, "complete_tx": 32, "mbarrier_init": 64,
}  # fmt: skip
ORDER = {"release": 1, "acq_rel": 3, "acquire": 2, "cta": 4, "cg": 8, "cv": 8}
LOCAL = "the emulator doesn't support atomics on local memory"


def number_of(operation: str) -> int:
    """The number of an operation in a form of isa.Row."""
    kind, _, name = operation.partition("/")
    name, _, opcode = name.partition("+")
    if kind in ("ALU", "ACCESS") and name:
        name, opcode = "", name
    start = int(name or 0) if name.isdigit() or not name else enum(kind.lower())[name]
    return start + (OPS[opcode].number if opcode else 0)


class Decoder(RegisterFile):
    """A program for the core. records: of its instructions. sites: of `owners`. image: see RegisterFile. lists:
    what instructions have beyond their records. scratch: the place of registers of no instruction. refused: by pc, what
    is said where an instruction runs.

    numbers: by pc, that of an access's site, behind which the other side of a copy is, or those of a generic access by
    memory.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.code = program.kernel.instructions
        self.numbers = dict[int, int]()
        self.owners = list[Site]()
        for site in program.sites.values():
            self.numbers[site.pc] = len(self.owners)
            self.owners += [site, *([site.source] if site.source else [])]
            self.owners += [site.at(space) for space in MEMORIES if site.space == "generic"]
        self.sites = np.zeros(len(self.owners), record("Site"))
        self.lists: list[int] = []
        self.steps: list[dict[str, int]] = []  # of instructions that are several
        self.refused: dict[int, str] = {}
        # The block of code that set the carry, and its place.
        self.carried = (-1, self.room(SLOT)) if any("cc" in i.parts for i in self.code) else None
        blocks = self.program.flow.blocks
        rows = [self.row(i) for i in self.code]
        meetings: dict[str, int] = {}
        for block in blocks:
            rows[block.start]["block"] = block.index
            for pc in range(block.start, block.stop):
                if (i := self.code[pc]).row.meeting and pc not in self.refused:
                    rows[pc]["meets"] = (
                        -1 if "aligned" in i.parts else meetings.setdefault(i.op, len(meetings) + 1)
                    )
        rows.append({"kind": KIND["EXIT"]})  # for code that has no end
        default = dict.fromkeys(record("Instruction").fields or (), NONE) | dict.fromkeys(
            ("op", "negated", "copies", "meets"), 0
        )
        self.records = np.array(
            [tuple({**default, **row}.values()) for row in [*rows, *self.steps]],
            record("Instruction"),
        )
        for number in (
            self.numbers[site.pc] for site in program.sites.values() if site.space == "generic"
        ):
            self.sites[number + 1 : number + 4] = self.sites[number]
            self.sites[number + 1 : number + 4]["space"] = range(len(MEMORIES))
            self.sites[number]["array_start"] = number + 1
        self.scratch = self.room(SCRATCH * SLOT)
        self.image = self.started()

    # Operands.

    def carry(self, i: Instruction, sets: bool = False) -> int:
        """The place of the carry. Raises UnsupportedInstruction where no instruction before has set it."""
        start = max(block.start for block in self.program.flow.blocks if block.start <= i.pc)
        if sets and self.carried:
            self.carried = start, self.carried[1]
        if self.carried is None or self.carried[0] != start:
            raise i.unsupported()
        return self.carried[1]

    def series(self, steps: Sequence[dict[str, int]]) -> int:
        """Where these steps are, after the program's instructions and its end."""
        self.steps += steps
        return len(self.code) + 1 + len(self.steps) - len(steps)

    def target(self, i: Instruction, operand: Operand | None, type_: str) -> int:
        """The place of a result."""
        if operand is None or operand == Sym("_"):
            return NONE
        if not isinstance(operand, Reg) or size_of(operand.type) != size_of(type_):
            raise i.unsupported()
        return self.registers[operand.name]

    def address(self, i: Instruction, operand: Operand | None) -> tuple[int, int, int]:
        """The place of an address without its offset, WIDE if it has 64 bits, and the offset."""
        if not isinstance(operand, Mem):
            raise i.unsupported("an address was expected")
        if not isinstance(operand.base, Reg):
            return self.source(operand.base or Imm(0, 0, "int"), "b64"), WIDE, operand.offset
        type_ = operand.base.type
        size = size_of(operand.base.type)
        if type_ in ("f32", "f64") or size not in (4, 8):
            raise i.unsupported(f"{operand.base.name} is .{type_}: no address")
        return self.registers[operand.base.name], WIDE * (size == 8), operand.offset

    # Instructions.

    def row(self, i: Instruction) -> dict[str, int]:
        """The record of an instruction, or one that says that it isn't supported."""
        try:
            try:
                row = self.instruction(i)
                return (
                    {**row, "guard": self.registers[i.guard[0].name], "negated": i.guard[1]}
                    if i.guard
                    else row
                )
            except UNEXPECTED as error:
                raise i.unsupported() from error
        except UnsupportedInstruction as error:
            self.refused[i.pc] = str(error)
            return {"kind": KIND["REFUSED"]}

    def instruction(self, i: Instruction) -> dict[str, int]:
        """The record of an instruction by its row in the table."""
        if form := record_of(i.op):
            kind = form.partition("/")[0]
            handler = HANDLERS.get(form, HANDLERS.get(kind))
            return {"kind": KIND[kind], **handler(self, i)} if handler else self.record(i, form)
        if row := compose.row(self, i):
            return row
        if "none" in i.row.effects:
            return {"kind": KIND["ALU"], "op": 0}
        raise i.unsupported()

    def record(self, i: Instruction, form: str) -> dict[str, int]:
        """The record that a form of isa.Row says."""
        operation, *fields = form.split()
        operands = [*i.operands]
        places = dict[str, tuple[int, int, int]]()
        coordinates = list[int]()
        out = {"kind": KIND[operation.partition("/")[0]], "op": number_of(operation)}
        if "L2::cache_hint" in i.parts:
            operands.pop()
        for number, field in enumerate(fields):
            name, _, type_ = field.rstrip("?").partition(":")
            needed = sum(
                "=" not in later and later[-1] not in "?." for later in fields[number + 1 :]
            )
            if field == "...":
                operands.clear()
            elif "=" in field:
                value, type_ = field.partition("=")[2], type_.partition("=")[0]
                out[name] = self.source(
                    Special(value) if value[0] == "%" else Imm(int(value), 0, "int"), type_
                )
            elif field[-1] != "?" or (len(operands) > needed and not isinstance(operands[0], Mem)):
                operand = operands.pop(0)
                if name in ("near", "far", "barrier"):
                    place, wide, offset = self.address(i, operand)
                    generic = name == "near" and not any(
                        part.startswith("shared") for part in i.parts
                    )
                    places[name] = place, wide | GENERIC * generic, offset
                elif name == "coordinates":
                    coordinates = [self.source(x, type_) for x in items(operand)]
                elif name == "d":
                    first, second = (*items(operand), None)[:2]
                    out |= {
                        "d": self.target(i, first, type_),
                        "target": self.target(i, second, "pred"),
                    }
                elif name[-1] == "#" and isinstance(operand, Imm):
                    out[name[:-1]] = int(operand.value)
                elif name != "_":
                    out[name] = self.source(operand, type_)
        if operands:
            raise i.unsupported()
        return (
            self.asynchronous(i, out, places, coordinates) if out["kind"] == KIND["ASYNC"] else out
        )

    def asynchronous(
        self,
        i: Instruction,
        out: dict[str, int],
        places: dict[str, tuple[int, int, int]],
        coordinates: list[int],
    ) -> dict[str, int]:
        """A record with what async.h's Given has in the lists."""
        if (
            out["op"] == enum("async")["ARRIVE_AT"]
            and "d" not in out
            and "shared::cluster" not in i.parts
        ):
            raise i.unsupported()  # PTX ISA: only an mbarrier of another block gives no state
        if "tensor" in i.parts and f"{len(coordinates)}d" not in i.parts:
            raise i.unsupported()
        nowhere = (NONE, 0, 0)
        values = [
            number for name in ("near", "far", "barrier") for number in places.get(name, nowhere)
        ]
        number = self.numbers.get(i.pc, NONE)
        site = self.program.sites.get(i.pc)
        values += [number + 1, sum(bit for word, bit in FLAGS.items() if word in i.parts)]
        values += [
            out.get("number", NONE),
            len(coordinates) if "tensor" in i.parts else 0,
            out.get("size", NONE),
        ]
        fields = {"site": number, "target": self.listed([*values, *coordinates, *[NONE] * 5][:19])}
        fields |= {"a": out.get("a", places.get("near", nowhere)[0]), "b": out.get("value", NONE)}
        for side in (site, site.source) if site and site.source else ():
            self.fill(number + (side is not site), side, int(side.op == "cp"), side.size)[
                "wide"
            ] = 1
        return {"kind": KIND["ASYNC"], "op": out["op"], "d": out.get("d", NONE), **fields}

    def listed(self, values: Sequence[int]) -> int:
        """Where these are in the lists."""
        self.lists += values
        return len(self.lists) - len(values)

    def fill(self, number: int, site: Site, op: int, width: int) -> Any:
        """The record of an access site, whose registers have a width."""
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

    def branch(self, i: Instruction) -> dict[str, int]:
        """bra. Its site says whether its loop may wait."""
        head = branch_target(self.program.kernel, i)
        blocks = self.program.flow.blocks
        polls = any(blocks[block].start == head for block in self.program.flow.polling)
        return {"target": head, "site": int(polls)}

    def call(self, i: Instruction) -> dict[str, int]:
        """call.function. Listed: the registers that the caller keeps, and where functions begin."""
        results, target, _ = i.operands
        block = next(
            block for block in self.program.flow.blocks if block.start <= i.pc < block.stop
        )
        kept = sorted(
            self.program.flow.live_out[block.index]
            - {x.name for x in items(results) if isinstance(x, Reg)}
        )
        places = [
            number for name in kept for number in (self.registers[name], size_of(self.types[name]))
        ]
        functions = self.program.kernel.functions
        listed = self.listed([len(kept), *places, len(functions), *functions.values()])
        if isinstance(target, Sym):
            if target.name not in functions:
                raise i.unsupported(f"there is no code of {target.name}")
            return {"target": listed, "site": functions[target.name]}
        return {"target": listed, "a": self.source(target, "b64")}

    def access(self, i: Instruction) -> dict[str, int]:
        """ld, st, atom and red."""
        site = self.program.sites[i.pc]
        number = self.numbers[i.pc]
        is_float = i.parts[-1] in ("f32", "f64")
        operands = [*i.operands[: -1 if "L2::cache_hint" in i.parts else None]]
        atomic = site.op == "atom"
        if atomic and site.space in ("local", "generic"):
            self.refused[i.pc] = str(i.unsupported(LOCAL))
        results = items(operands.pop(0)) if i.parts[0] == "atom" else ()
        address, *given = operands[::-1] if site.op == "ld" else operands
        start, wide, _ = self.address(i, address)
        moved = [x for operand in given for x in items(operand)]
        widths = {size_of(x.type) for x in moved if isinstance(x, Reg)}
        width = widths.pop() if widths else site.size if atomic else max(site.size, 4)
        fits = width == site.size or (width > site.size and not is_float and not atomic)
        if widths or not fits or len(moved) != (2 if "cas" in i.parts else site.count):
            raise i.unsupported()
        type_ = f"{'f' if is_float else 'b'}{8 * width}"
        values = [NONE if x is None and site.op == "ld" else self.source(x, type_) for x in moved]
        record = self.fill(number, site, ("ld", "st", "atom").index(site.op), width)
        record["values"][: len(values)] = values
        record["results"][: len(results)] = [
            self.registers[x.name] if isinstance(x, Reg) else NONE for x in results
        ]
        record["atomic"] = number_of(record_of(i.op))
        record["strong"] = site.strong
        record["is_signed"] = i.parts[-1][0] == "s"
        record["wide"] = wide
        record["offset"] = site.offset
        for word in i.parts:
            record["order"] |= ORDER.get(word, 0)
        record["groups_count"] = len(site.groups)
        record["read_only"] = "nc" in i.parts
        for k, group in enumerate(site.groups):
            record["groups"][k] = (group.leads, group.width, group.offset)
        return {"site": number, "a": start}


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
def decoded(program: Program) -> Decoder:
    """The program for the core."""
    return Decoder(program)
