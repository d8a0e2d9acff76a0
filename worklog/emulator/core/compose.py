"""Places of values in a warp's registers, and the instructions that compute values.

Such an instruction is a C expression of ops.TABLE, or the steps of a row of ops.COMPOSED, which the
core runs as one instruction.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import Any

import numpy as np

from worklog.emulator.core import enum
from worklog.emulator.ops import OPS, Form, composed
from worklog.emulator.program import LoadedProgram
from worklog.emulator.ptx import (
    TIMES,
    Array,
    Imm,
    Instruction,
    Operand,
    Reg,
    Special,
    Sym,
    Vec,
    items,
    size_of,
)

KIND = enum("kind")
# By opcode, how an instruction passes its operand on, as in core.h.
PASSES = {
    "mov": 1,
    "and.pred": 2,
    "or.pred": 3,
    "selp": 4,
    "and.b32": 5,
    "and.b64": 6,
    "shr.b32": 7,
    "shr.u32": 7,
    "shr.s32": 7,
    "shr.b64": 8,
    "shr.u64": 8,
    "shr.s64": 8,
    "min.u32": 5,
    "min.s32": 5,
    "max.u32": 5,
    "max.s32": 5,
    "min.u64": 6,
    "min.s64": 6,
    "max.u64": 6,
    "max.s64": 6,
}
MODES = ("rn", "rz", "rm", "rp")
BITS = {"f16": "b16", "bf16": "b16"}
Value = tuple[int, str]  # place and type
LANES = 32
SLOT = 128
# As in turns.h: special registers that differ between blocks or threads of a launch.
SPECIALS = (
    "%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z",
    "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%clusterid.x", "%clusterid.y", "%clusterid.z",
    "%warpid", "%cluster_ctarank", "%smid",
)  # fmt: skip
# Special registers that are the same in all launches: one value, or one value per lane.
LANE = np.arange(LANES)
FIXED = {
    "WARP_SZ": 32, "%laneid": LANE, "%lanemask_eq": 1 << LANE, "%lanemask_lt": (1 << LANE) - 1,
    "%lanemask_le": (2 << LANE) - 1, "%lanemask_gt": -(2 << LANE), "%lanemask_ge": -(1 << LANE),
}  # fmt: skip


class RegisterFile:
    """Offsets in a warp's register file.

    specials: offsets of special registers that depend on the block and the thread. The core writes
        these registers.
    launched: offsets of special registers that are the same for all threads of a launch
    """

    def __init__(self, program: LoadedProgram) -> None:
        self.program = program
        self.size = 0
        self.constants: dict[bytes, int] = {}
        self.launched: dict[str, int] = {}
        self.specials: dict[str, int] = {}
        self.temporaries: list[int] = []
        self.types: dict[str, str] = {}
        self.registers = self.allocate()

    def started(self) -> Array:
        """Return the file's bytes before the first instruction."""
        out = np.full(self.size, 0xFF, np.uint8)
        out[: self.predicates] = 0
        for data, offset in self.constants.items():
            out[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        return out

    def room(self, size: int) -> int:
        """Return the offset of new bytes."""
        offset = self.size
        self.size += -(-size // SLOT) * SLOT
        return offset

    def allocate(self) -> dict[str, int]:
        """Return a place for each register.

        Registers that are never live at once may share a place.
        """
        spans = self._spans()
        predicates = [name for name in spans if self.types[name] == "pred"]
        places = {name: SLOT * number for number, name in enumerate(predicates)}
        self.room(SLOT * len(predicates))
        self.predicates = self.size
        # By width: a lane must not share its bytes with another lane's of a wider or narrower
        # register.
        free: dict[int, list[int]] = defaultdict(list)
        active: list[tuple[int, int, int]] = []
        for name in sorted(spans.keys() - places.keys(), key=lambda name: (spans[name], name)):
            start, stop = spans[name]
            while active and active[0][0] < start:
                _, width, place = heappop(active)
                free[width].append(place)
            width = size_of(self.types[name])
            places[name] = free[width].pop() if free[width] else self.room(LANES * width)
            heappush(active, (stop, width, places[name]))
        return places

    def _spans(self) -> dict[str, list[int]]:
        """Return the first and the last pc at which each register is live.

        Collects the registers' types.
        """
        spans: dict[str, list[int]] = {}

        def extend(name: str, pc: int) -> None:
            span = spans.setdefault(name, [pc, pc])
            span[0] = min(span[0], pc)
            span[1] = max(span[1], pc)

        flow = self.program.flow
        for block in flow.blocks:
            for name in flow.live_in[block.index]:
                extend(name, block.start)
            for name in flow.live_out[block.index]:
                extend(name, block.stop)
        for instruction in self.program.kernel.instructions:
            for register in (*instruction.used, *instruction.defined):
                extend(register.name, instruction.pc)
                self.types[register.name] = register.type
        return spans

    def constant(self, lane: bytes, lanes: int = LANES) -> int:
        """Return the place of bytes that each lane has."""
        data = lane * lanes
        if data not in self.constants:
            self.constants[data] = self.room(len(data))
        return self.constants[data]

    def special(self, name: str) -> int:
        """Return the place of a special register of 32 bits."""
        if name in FIXED:
            values = np.asarray(FIXED[name]).astype(np.uint32)
            return self.constant(np.broadcast_to(values, LANES).tobytes(), 1)
        offsets = self.specials if name in SPECIALS else self.launched
        if name not in offsets:
            offsets[name] = self.room(SLOT)
        return offsets[name]

    def temporary(self, number: int) -> int:
        """Return a register for a step of an instruction."""
        if number == len(self.temporaries):
            self.temporaries.append(self.room(2 * SLOT))
        return self.temporaries[number]

    def source(self, operand: Operand | None, type_: str) -> int:
        """Return the place of an operand as a value of a type. Raises LookupError."""
        width = size_of(type_)
        if isinstance(operand, Reg) and size_of(operand.type) == width:
            return self.registers[operand.name]
        if isinstance(operand, Special) and width == 4 and operand.name not in TIMES:
            return self.special(operand.name)
        if isinstance(operand, Sym):
            operand = Imm(self.program.addresses[operand.name], 0, "int")
        if not isinstance(operand, Imm):
            raise LookupError(operand)
        if type_ in ("f32", "f64"):
            return self.constant(np.array(float(operand.value), f"f{width}").tobytes())
        bits = int(operand.value) if operand.kind == "int" else operand.bits
        if type_ == "pred":
            return self.constant(bytes(4) if bits == 0 else b"\xff" * 4, 1)
        return self.constant((bits % 2 ** (8 * width)).to_bytes(width, "little"))


def form_of(instruction: Instruction) -> Form | None:
    """Return the types and steps of an instruction; None if it computes no value."""
    count = len(instruction.operands) - 1
    op = OPS.get(instruction.op)
    if op is None or isinstance(instruction.operands[0], Vec):
        form = composed(instruction.op, count)
        if form:
            return form
    if op and len(op.sources) == count:
        sources = tuple(BITS.get(type_, type_) for type_ in op.sources)
        return Form(sources, (*"abce"[:count], instruction.op), (op.result,))
    return composed(instruction.op, count)


def row(decoder: Any, instruction: Instruction) -> dict[str, int] | None:
    """Return the record of an instruction; None if it computes no value.

    Raises UnsupportedInstruction.
    """
    form = form_of(instruction)
    if form:
        composer = Composer(decoder, instruction)
        return composer.stored(composer.run(form), form.results)
    if "x2" not in instruction.op:
        return None
    # An instruction on pairs takes the steps of one number for each half.
    scalar = instruction.op.replace("x2", "")
    for pair_type, type_ in ((".u32.", ".u16."), (".s32.", ".s16."), (".b32.", ".u16.")):
        scalar = scalar.replace(pair_type, type_)
    form = composed(scalar, len(instruction.operands) - 1)
    if form is None:
        of_half = Instruction(instruction.pc, scalar, instruction.operands, None, 0, "")
        form = form_of(of_half)
    return Composer(decoder, instruction).pairs(form, scalar) if form else None


class Composer:
    """Makes the steps of an instruction."""

    def __init__(self, decoder: Any, instruction: Instruction) -> None:
        self.decoder = decoder
        self.instruction = instruction
        self.modifiers = instruction.parts
        self.ftz = "ftz" in instruction.parts
        self.half = ""  # "low" or "high", while the steps of a half of a pair are made
        self.steps: list[dict[str, int]] = []

    def pairs(self, form: Form, scalar: str) -> dict[str, int]:
        """Return the record of an instruction on two numbers in a word.

        scalar: the opcode for one number
        """
        self.modifiers = tuple(scalar.split("."))
        self.half = "low"
        low = self.run(form)
        self.half = "high"
        high = self.run(form)
        if self.modifiers[0] == "setp":
            return self.stored([low[0], high[0]], ("pred", "pred"))
        return self.stored([self.step("pack.b32", [low[0], high[0]])], ("b32",))

    def step(self, opcode: str, values: list[Value]) -> Value:
        """Add an operation, and return its result. A value of type "" is a number."""
        if opcode not in OPS:
            raise self.instruction.unsupported()
        op = OPS[opcode]
        target = self.decoder.temporary(len(self.steps))
        places = []
        for (place, type_of_value), type_ in zip(values, op.sources, strict=True):
            if type_of_value:
                places.append(place)
            else:
                number = Imm(place, place, "bits")
                places.append(self.decoder.source(number, type_.replace("f", "b")))
        name = opcode if opcode in PASSES else opcode.split(".")[0]
        record = {
            "kind": KIND["ALU"],
            "op": op.number,
            "d": target,
            "copies": PASSES.get(name, 0),
        }
        record |= zip(("a", "b", "c", "site"), places, strict=False)
        self.steps.append(record)
        return target, op.result

    def read(self, operand: Operand | None, type_: str) -> Value:
        """Return an operand as a value of a type.

        A wider register is truncated, as in PTX.
        """
        width = size_of(type_)
        if isinstance(operand, Vec) and len(operand.items) == 2 and type_ in ("b32", "b64"):
            halves = [self.read(item, f"b{4 * width}") for item in operand.items]
            return self.step(f"pack.{type_}", halves)
        place, source_width = self._place(operand, type_)
        if source_width != width:
            source_type = f"u{8 * source_width}"
            place = self.step(f"cvt.u{8 * width}.{source_type}", [(place, source_type)])[0]
        return place, type_

    def _place(self, operand: Operand | None, type_: str) -> tuple[int, int]:
        """Return an operand's place, and its width in bytes."""
        if isinstance(operand, Reg):
            self.require(operand, type_)
            return self.decoder.registers[operand.name], size_of(operand.type)
        if isinstance(operand, Special) and operand.name in TIMES:
            place = self.decoder.temporary(len(self.steps))
            self.steps.append({"kind": KIND["CLOCK"], "op": TIMES[operand.name], "d": place})
            return place, 8
        if isinstance(operand, Special):
            return self.decoder.special(operand.name), 4
        is_address = isinstance(operand, Sym) and operand.name in self.decoder.program.addresses
        if not isinstance(operand, Imm) and not is_address:
            raise self.instruction.unsupported("an operand is missing or of the wrong kind")
        return self.decoder.source(operand, type_), size_of(type_)

    def require(self, register: Reg, type_: str) -> None:
        """Raise UnsupportedInstruction if a register can't hold a value of a type.

        It must be as wide as the type, or hold the value as its low part.
        """
        width = size_of(type_)
        register_width = size_of(register.type)
        is_float = not {"f32", "f64"}.isdisjoint((register.type, type_))
        is_wrong_kind = (register.type == "pred") != (type_ == "pred")
        if is_wrong_kind or register_width < width or (register_width > width and is_float):
            raise self.instruction.unsupported(
                f"{register.name} is .{register.type}: too narrow, or of the wrong kind"
            )

    def operand(self, operand: Operand | None, type_: str, raw: bool) -> Value:
        """Return an operand as the steps take it.

        type_: as in Form
        raw: without .ftz
        """
        type_, _, converted_type = type_.partition(" ")
        if type_ in ("f16", "bf16", "u16", "s16") and self.half:
            value = self.step(f"{self.half}.b32", [self.read(operand, "b32")])
        else:
            value = self.read(operand, BITS.get(type_, type_))
        if type_ in BITS:
            value = self.step(f"cvt.f64.{type_}", [value])
            converted_type = ""
        if self.ftz and not raw and type_ in ("f32", "f16"):
            value = self.step(f"flush.{type_}", [value])
        if converted_type:
            value = self.step(f"cvt.{converted_type}.{type_}", [value])
        return value

    def finished(self, value: Value, type_: str) -> Value:
        """Return a result of a type after the modifiers behind the operation."""
        value_type = value[1]
        is_float = value_type[0] == "f"
        flushes = type_ == "f32" or (type_ == "f16" and self.modifiers[0] != "cvt")
        ftz = ".ftz" if self.ftz and flushes else ""
        mode = next((part for part in self.modifiers if part in MODES), "rn")
        if type_ == "f32" and value_type == "f64":
            value = self.step(f"cvt.{mode}{ftz}.f32.f64", [value])
        elif type_ == "f32" and value_type == "f32" and ftz:
            value = self.step("flush.f32", [value])
        if "sat" in self.modifiers and is_float:
            value = self.step(f"sat.{value[1]}", [value])
        if "relu" in self.modifiers and (is_float or value_type in ("s16", "s32")):
            value = self.step(f"relu.{value[1]}", [value])
        if type_ in ("f16", "bf16", "e4m3", "e5m2") and value_type == "f64":
            value = self.step(f"cvt.{mode}{ftz}.{type_}.f64", [value])
        return value

    def run(self, form: Form) -> list[Value]:
        """Add a form's steps, and return their results."""
        stack = list[Value]()
        variables = dict[str, Value]()
        if "carry" in form.steps:
            variables["carry"] = self.decoder.carry(self.instruction), "pred"
        for token in form.steps:
            if token.lower() in "abcef":
                index = "abcef".index(token.lower())
                operand = self.instruction.operands[index + 1]
                stack.append(self.operand(operand, form.sources[index], raw=token.isupper()))
            elif token.isdigit():
                stack.append((int(token), ""))
            elif token == "no":
                stack.append((self.decoder.source(Imm(0, 0, "int"), "pred"), "pred"))
            elif token[0] == "=":
                variables[token[1:]] = stack.pop()
            elif token in variables:
                stack.append(variables[token])
            elif token.startswith("finish."):
                stack.append(self.finished(stack.pop(), token.removeprefix("finish.")))
            elif token not in ("cvt.f64.f64", "cvt.f32.f32"):
                count = len(OPS[token].sources) if token in OPS else 1
                stack[-count:] = [self.step(token, stack[-count:])]
        return [self.finished(stack[0], form.results[0]), *stack[1:]]

    def stored(self, values: list[Value], types: tuple[str, ...]) -> dict[str, int]:
        """Store values in the instruction's destinations, and return the record.

        A narrower value is extended by its own sign.
        """
        target = self.instruction.operands[0]
        targets = items(target)
        if isinstance(target, Vec) and len(targets) == 2 and types in (("b32",), ("b64",)):
            values = [self.step(f"{half}.{types[0]}", values) for half in ("low", "high")]
        if len(targets) > len(values):
            raise self.instruction.unsupported("the destination is not a register")
        if types[-1] == "carry":
            if self.instruction.guard:
                raise self.instruction.unsupported()
            self.move(values[1], "pred", self.decoder.carry(self.instruction, sets=True))
        for register, value in zip(targets, values, strict=False):
            if register is not None and register != Sym("_"):
                self._store(register, value)
        return self.record()

    def _store(self, register: Operand, value: Value) -> None:
        """Add steps that extend a value and store it in a register."""
        if not isinstance(register, Reg):
            raise self.instruction.unsupported("the destination is not a register")
        type_ = value[1]
        self.require(register, type_)
        width = size_of(type_)
        register_width = size_of(register.type)
        if width != register_width:
            sign = "s" if type_[0] == "s" else "u"
            value = self.step(f"cvt.{sign}{8 * register_width}.{sign}{8 * width}", [value])
        moved_type = "pred" if type_ == "pred" else f"b{8 * register_width}"
        self.move(value, moved_type, self.decoder.registers[register.name])

    def move(self, value: Value, type_: str, place: int) -> None:
        """Let the last step write to a place.

        If it doesn't compute the value, add a step that copies the value there.
        """
        is_computed = (
            self.steps and self.steps[-1]["d"] == value[0] and value[0] in self.decoder.temporaries
        )
        if not is_computed:
            self.step(f"mov.{type_}", [value])
        self.steps[-1]["d"] = place

    def record(self) -> dict[str, int]:
        """Return the only step, or a series of them."""
        if len(self.steps) == 1:
            return self.steps[0]
        return {
            "kind": KIND["SERIES"],
            "op": len(self.steps),
            "target": self.decoder.series(self.steps),
        }
