"""Where values are in a warp's registers, and instructions that compute them: by a C expression of ops.TABLE, or by the
steps of a row of ops.COMPOSED, which the core runs as one instruction.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import Any

import numpy as np

from worklog.emulator.core import enum
from worklog.emulator.ops import OPS, Form, composed
from worklog.emulator.program import Program
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
PASSES = {"mov": 1, "and.pred": 2, "or.pred": 3, "selp": 4}  # as in core.h
PASSES |= {
    f"{name}.{type_}{bits}": 4 + bits // 32
    for name in ("min", "max")
    for type_ in "us"
    for bits in (32, 64)
}
PASSES |= {"and.b32": 5, "and.b64": 6} | {
    f"shr.{type_}{bits}": 6 + bits // 32 for type_ in "bus" for bits in (32, 64)
}
MODES = ("rn", "rz", "rm", "rp")
BITS = {"f16": "b16", "bf16": "b16"}
Value = tuple[int, str]  # its place and its type
LANES = 32
SLOT = 128
# As in turns.h: special registers that differ between blocks or threads of a launch.
SPECIALS = (
    *(f"%{name}.{axis}" for name in ("tid", "ctaid", "cluster_ctaid", "clusterid") for axis in "xyz"),
    "%warpid", "%cluster_ctarank", "%smid",
)  # fmt: skip
# Those that are the same in all launches: one value, or one by lane.
LANE = np.arange(LANES)
FIXED = {
    "WARP_SZ": 32, "%laneid": LANE, "%lanemask_eq": 1 << LANE, "%lanemask_lt": (1 << LANE) - 1,
    "%lanemask_le": (2 << LANE) - 1, "%lanemask_gt": -(2 << LANE), "%lanemask_ge": -(1 << LANE),
}  # fmt: skip


class RegisterFile:
    """Offsets in a warp's register file. The core writes special registers that depend on the block and the thread
    (specials); those of the launch (launched) are the same for all.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.size = 0
        self.constants: dict[bytes, int] = {}
        self.launched: dict[str, int] = {}
        self.specials: dict[str, int] = {}
        self.temporaries: list[int] = []
        self.registers = self.allocate()

    def started(self) -> Array:
        """Its bytes before the first instruction."""
        out = np.full(self.size, 0xFF, np.uint8)
        out[: self.predicates] = 0
        for data, offset in self.constants.items():
            out[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        return out

    def room(self, size: int) -> int:
        """The offset of new bytes."""
        at, self.size = self.size, self.size + -(-size // SLOT) * SLOT
        return at

    def allocate(self) -> dict[str, int]:
        """A place for each register, which others may have where it is not live."""
        spans: dict[str, list[int]] = {}
        self.types: dict[str, str] = {}
        types = self.types

        def touch(name: str, pc: int) -> None:
            span = spans.setdefault(name, [pc, pc])
            span[0], span[1] = min(span[0], pc), max(span[1], pc)

        flow = self.program.flow
        for block in flow.blocks:
            for name in flow.live_in[block.index]:
                touch(name, block.start)
            for name in flow.live_out[block.index]:
                touch(name, block.stop)
        for i in self.program.kernel.instructions:
            for reg in (*i.used, *i.defined):
                touch(reg.name, i.pc)
                types[reg.name] = reg.type
        predicates = [name for name in spans if types[name] == "pred"]
        places = {name: SLOT * number for number, name in enumerate(predicates)}
        self.room(SLOT * len(predicates))
        self.predicates = self.size
        # By width: a lane must not share its bytes with another lane's of a wider or narrower register.
        free: dict[int, list[int]] = defaultdict(list)
        active: list[tuple[int, int, int]] = []
        for name in sorted(spans.keys() - places.keys(), key=lambda name: (spans[name], name)):
            start, stop = spans[name]
            while active and active[0][0] < start:
                _, width, place = heappop(active)
                free[width].append(place)
            width = size_of(types[name])
            places[name] = free[width].pop() if free[width] else self.room(LANES * width)
            heappush(active, (stop, width, places[name]))
        return places

    def constant(self, lane: bytes, lanes: int = LANES) -> int:
        """The place of bytes that each lane has."""
        data = lane * lanes
        if data not in self.constants:
            self.constants[data] = self.room(len(data))
        return self.constants[data]

    def special(self, name: str) -> int:
        """The place of a special register of 32 bits."""
        if name in FIXED:
            return self.constant(
                np.broadcast_to(np.asarray(FIXED[name]).astype(np.uint32), LANES).tobytes(), 1
            )
        known = self.specials if name in SPECIALS else self.launched
        if name not in known:
            known[name] = self.room(SLOT)
        return known[name]

    def temporary(self, number: int) -> int:
        """A register for a step of an instruction."""
        if number == len(self.temporaries):
            self.temporaries.append(self.room(2 * SLOT))
        return self.temporaries[number]

    def source(self, operand: Operand | None, type_: str) -> int:
        """The place of an operand as a value of a type. Raises LookupError."""
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


def form_of(i: Instruction) -> Form | None:
    """Types and steps of an instruction, if it computes a value."""
    count = len(i.operands) - 1
    op = OPS.get(i.op)
    form = None if op and not isinstance(i.operands[0], Vec) else composed(i.op, count)
    if op and len(op.sources) == count and form is None:
        return Form(
            tuple(BITS.get(type_, type_) for type_ in op.sources),
            (*"abce"[:count], i.op),
            (op.result,),
        )
    return form or composed(i.op, count)


def row(decoder: Any, i: Instruction) -> dict[str, int] | None:
    """The record of an instruction; None if it computes no value. Raises UnsupportedInstruction."""
    if form := form_of(i):
        composer = Composer(decoder, i)
        return composer.stored(composer.run(form), form.results)
    # What takes pairs takes the steps of one number for each half.
    scalar = (
        i.op.replace("x2", "")
        .replace(".u32.", ".u16.")
        .replace(".s32.", ".s16.")
        .replace(".b32.", ".u16.")
    )
    if "x2" not in i.op:
        return None
    form = composed(scalar, len(i.operands) - 1) or form_of(
        Instruction(i.pc, scalar, i.operands, None, 0, "")
    )
    return Composer(decoder, i).pairs(form, scalar) if form else None


class Composer:
    """Makes the steps of an instruction."""

    def __init__(self, decoder: Any, i: Instruction) -> None:
        self.decoder = decoder
        self.i = i
        self.words = i.parts
        self.ftz = "ftz" in i.parts
        self.half = ""
        self.steps: list[dict[str, int]] = []

    def pairs(self, form: Form, scalar: str) -> dict[str, int]:
        """The record of an instruction on two numbers in a word."""
        self.words = tuple(scalar.split("."))
        self.half = "low"
        low = self.run(form)
        self.half = "high"
        high = self.run(form)
        if self.words[0] == "setp":
            return self.stored([low[0], high[0]], ("pred", "pred"))
        return self.stored([self.step("pack.b32", [low[0], high[0]])], ("b32",))

    def step(self, opcode: str, values: list[Value]) -> Value:
        """The result of an operation. A value of type "" is a number."""
        if opcode not in OPS:
            raise self.i.unsupported()
        op = OPS[opcode]
        target = self.decoder.temporary(len(self.steps))
        places = [
            place
            if held
            else self.decoder.source(Imm(place, place, "bits"), type_.replace("f", "b"))
            for (place, held), type_ in zip(values, op.sources, strict=True)
        ]
        name = opcode if opcode in PASSES else opcode.split(".")[0]
        given = dict(zip(("a", "b", "c", "site"), places, strict=False))
        self.steps.append(
            {
                "kind": KIND["ALU"],
                "op": op.number,
                "d": target,
                "copies": PASSES.get(name, 0),
                **given,
            }
        )
        return target, op.result

    def read(self, operand: Operand | None, type_: str) -> Value:
        """An operand. A wider register is truncated, as in PTX."""
        width = size_of(type_)
        have = size_of(type_)
        if isinstance(operand, Vec) and len(operand.items) == 2 and type_ in ("b32", "b64"):
            return self.step(
                f"pack.{type_}", [self.read(x, f"b{4 * width}") for x in operand.items]
            )
        if isinstance(operand, Reg):
            self.require(operand, type_)
            place = self.decoder.registers[operand.name]
            have = size_of(operand.type)
        elif isinstance(operand, Special) and operand.name in TIMES:
            place = self.decoder.temporary(len(self.steps))
            have = 8
            self.steps.append({"kind": KIND["CLOCK"], "op": TIMES[operand.name], "d": place})
        elif isinstance(operand, Special):
            place = self.decoder.special(operand.name)
            have = 4
        elif isinstance(operand, Imm) or (
            isinstance(operand, Sym) and operand.name in self.decoder.program.addresses
        ):
            place = self.decoder.source(operand, type_)
        else:
            raise self.i.unsupported("an operand is missing or of the wrong kind")
        if have == width:
            return place, type_
        return self.step(f"cvt.u{8 * width}.u{8 * have}", [(place, f"u{8 * have}")])[0], type_

    def require(self, register: Reg, type_: str) -> None:
        """A register must be as wide as the type, or hold it as its low part."""
        want = size_of(type_)
        have = size_of(register.type)
        floating = not {"f32", "f64"}.isdisjoint((register.type, type_))
        if (
            (register.type == "pred") != (type_ == "pred")
            or have < want
            or (have > want and floating)
        ):
            raise self.i.unsupported(
                f"{register.name} is .{register.type}: too narrow, or of the wrong kind"
            )

    def operand(self, operand: Operand | None, type_: str, raw: bool) -> Value:
        """An operand as the steps take it. type_: as in Form. raw: without .ftz."""
        type_, _, wanted = type_.partition(" ")
        if type_ in ("f16", "bf16", "u16", "s16") and self.half:
            value = self.step(f"{self.half}.b32", [self.read(operand, "b32")])
        else:
            value = self.read(operand, BITS.get(type_, type_))
        if type_ in BITS:
            value, wanted = self.step(f"cvt.f64.{type_}", [value]), ""
        if self.ftz and not raw and type_ in ("f32", "f16"):
            value = self.step(f"flush.{type_}", [value])
        return self.step(f"cvt.{wanted}.{type_}", [value]) if wanted else value

    def finished(self, value: Value, type_: str) -> Value:
        """What the modifiers after the operation make of a result of a type."""
        held = value[1]
        floating = value[1][0] == "f"
        ftz = (
            ".ftz"
            if self.ftz and (type_ == "f32" or (type_ == "f16" and self.words[0] != "cvt"))
            else ""
        )
        mode = next((word for word in self.words if word in MODES), "rn")
        if type_ == "f32" and held == "f64":
            value = self.step(f"cvt.{mode}{ftz}.f32.f64", [value])
        elif type_ == "f32" and held == "f32" and ftz:
            value = self.step("flush.f32", [value])
        if "sat" in self.words and floating:
            value = self.step(f"sat.{value[1]}", [value])
        if "relu" in self.words and (floating or held in ("s16", "s32")):
            value = self.step(f"relu.{value[1]}", [value])
        if type_ in ("f16", "bf16", "e4m3", "e5m2") and held == "f64":
            value = self.step(f"cvt.{mode}{ftz}.{type_}.f64", [value])
        return value

    def run(self, form: Form) -> list[Value]:
        """The results of a form's steps."""
        stack = list[Value]()
        kept = dict[str, Value]()
        if "carry" in form.steps:
            kept["carry"] = self.decoder.carry(self.i), "pred"
        for token in form.steps:
            if token.lower() in "abcef":
                index = "abcef".index(token.lower())
                stack.append(
                    self.operand(self.i.operands[index + 1], form.sources[index], token.isupper())
                )
            elif token.isdigit():
                stack.append((int(token), ""))
            elif token == "no":
                stack.append((self.decoder.source(Imm(0, 0, "int"), "pred"), "pred"))
            elif token[0] == "=":
                kept[token[1:]] = stack.pop()
            elif token in kept:
                stack.append(kept[token])
            elif token.startswith("finish."):
                stack.append(self.finished(stack.pop(), token[7:]))
            elif token not in ("cvt.f64.f64", "cvt.f32.f32"):
                count = len(OPS[token].sources) if token in OPS else 1
                stack[-count:] = [self.step(token, stack[-count:])]
        return [self.finished(stack[0], form.results[0]), *stack[1:]]

    def stored(self, values: list[Value], types: tuple[str, ...]) -> dict[str, int]:
        """The record, after steps that give the instruction's destinations these values. A narrower value is extended
        by its own sign.
        """
        target = self.i.operands[0]
        targets = items(target)
        if isinstance(target, Vec) and len(targets) == 2 and types in (("b32",), ("b64",)):
            values = [self.step(f"{half}.{types[0]}", values) for half in ("low", "high")]
        if len(targets) > len(values):
            raise self.i.unsupported("the destination is not a register")
        if types[-1] == "carry":
            if self.i.guard:
                raise self.i.unsupported()
            self.move(values[1], "pred", self.decoder.carry(self.i, True))
        for register, value in zip(targets, values, strict=False):
            if register is None or register == Sym("_"):
                continue
            if not isinstance(register, Reg):
                raise self.i.unsupported("the destination is not a register")
            type_ = value[1]
            self.require(register, type_)
            width = size_of(type_)
            have = size_of(register.type)
            if width != have:
                sign = "s" if type_[0] == "s" else "u"
                value = self.step(f"cvt.{sign}{8 * have}.{sign}{8 * width}", [value])
            self.move(
                value,
                "pred" if type_ == "pred" else f"b{8 * have}",
                self.decoder.registers[register.name],
            )
        return self.record()

    def move(self, value: Value, type_: str, place: int) -> None:
        """The last step writes its place, if it gave the value."""
        if (
            not self.steps
            or self.steps[-1]["d"] != value[0]
            or value[0] not in self.decoder.temporaries
        ):
            self.step(f"mov.{type_}", [value])
        self.steps[-1]["d"] = place

    def record(self) -> dict[str, int]:
        """The only step, or a series of them."""
        if len(self.steps) == 1:
            return self.steps[0]
        return {
            "kind": KIND["SERIES"],
            "op": len(self.steps),
            "target": self.decoder.series(self.steps),
        }
