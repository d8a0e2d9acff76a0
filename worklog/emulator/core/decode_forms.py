"""Decodes instructions that are values of a lane: one C expression of ops.TABLE, or the steps of a row of ops.COMPOSED,
which the core runs as one instruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.emulator.core.ops import OPS, Form, bytes_of, composed
from worklog.emulator.core.records import enum
from worklog.emulator.isa import MODIFIERS, elements, register_dtype, unsupported
from worklog.emulator.ptx import (
    CONSTANT,
    DTYPES,
    TIMES,
    Imm,
    Instruction,
    Mem,
    Operand,
    Reg,
    Special,
    Sym,
    Vec,
    size_of,
)

ALU, SERIES = enum("kind")["ALU"], enum("kind")["SERIES"]
PASSES = {"mov": 1, "and.pred": 2, "or.pred": 3, "selp": 4}  # as in core.h
MODES = ("rn", "rz", "rm", "rp")
CLOCK = enum("kind")["CLOCK"]
LANES = np.arange(32)
# Special registers that are the same in all launches: one value, or one by lane.
FIXED = {
    "WARP_SZ": 32, "%is_explicit_cluster": 0, "%cluster_ctarank": 0, "%cluster_nctarank": 1, "%laneid": LANES,
    **{f"%cluster_{name}.{axis}": "ncta" in name for name in ("ctaid", "nctaid") for axis in "xyz"},
    "%lanemask_eq": 1 << LANES, "%lanemask_lt": (1 << LANES) - 1, "%lanemask_le": (2 << LANES) - 1,
    "%lanemask_gt": -(2 << LANES), "%lanemask_ge": -(1 << LANES),
}  # fmt: skip
LAUNCHED = ("%ntid", "%nctaid", "%nwarpid")  # with those in CONSTANT: the same for all threads of a launch


def special(decoder: Any, name: str) -> Any:
    """The place of a special register of 32 bits. A cluster has one block."""
    name = name.replace("%clusterid", "%ctaid").replace("%nclusterid", "%nctaid")
    if name in FIXED:
        value = np.broadcast_to(np.asarray(FIXED[name]).astype(np.uint32), (32,))
        return decoder.constants.setdefault(name, decoder.lanes(value))
    if name in CONSTANT or name.startswith(LAUNCHED):
        return decoder.param(name, 0, "u4", 4)
    return decoder.special(name)


def parameter(decoder: Any, i: Instruction) -> dict[str, Any]:
    """ld.param of a parameter by its name."""
    target, address = i.operands
    targets = target.items if isinstance(target, Vec) else (target,)
    dtype, size = DTYPES[i.parts[-1]], size_of(i.parts[-1])
    name = address.base.name if isinstance(address, Mem) and isinstance(address.base, Sym) else ""
    whole = next((param.size for param in decoder.program.kernel.params if param.name == name), 0)
    known = not {*i.parts[1:-1]} - MODIFIERS and len(targets) == elements(i) and isinstance(address, Mem)
    if not known or not isinstance(address, Mem) or not 0 <= address.offset <= whole - len(targets) * size:
        raise unsupported(i)
    composer = _Composer(decoder, i)
    for k, register in enumerate(targets):
        if isinstance(register, Reg):
            composer.require(register, i.parts[-1])
            width = bytes_of(register.type)
            place = decoder.param(name, address.offset + k * size, dtype, width)
            composer.move((place, f"b{8 * width}"), f"b{8 * width}", decoder.registers[register.name])
        elif register is not None:
            raise unsupported(i, "the destination is not a register")
    return composer.record()


def form_of(i: Instruction) -> Form | None:
    """Types and steps of an instruction, if it computes a value."""
    count, op = len(i.operands) - 1, OPS.get(i.op)
    form = None if op and not isinstance(i.operands[0], Vec) else composed(i.op, count)
    if op and len(op.sources) == count and form is None:
        sources = tuple({"f16": "b16", "bf16": "b16"}.get(type_, type_) for type_ in op.sources)
        return Form(sources, (*"abce"[:count], i.op), (op.result,))
    return form or composed(i.op, count)


def row(decoder: Any, i: Instruction) -> dict[str, Any] | None:
    """The record of an instruction; None if it computes no value. Raises UnsupportedInstruction."""
    scalar = i.op.replace("x2", "")
    if (form := form_of(i)) is None and scalar != i.op:
        # What takes pairs takes the steps of one number for each half.
        scalar = scalar.replace(".u32.", ".u16.").replace(".s32.", ".s16.").replace(".b32.", ".u16.")
        form = composed(scalar, len(i.operands) - 1) or form_of(Instruction(i.pc, scalar, i.operands, None, 0, ""))
        return None if form is None else _Composer(decoder, i).pairs(form, scalar)
    return None if form is None else _Composer(decoder, i).alone(form)


class _Composer:
    """Makes the steps of an instruction. A value is its place and its type."""

    def __init__(self, decoder: Any, i: Instruction) -> None:
        self.decoder, self.i, self.words = decoder, i, i.parts
        self.ftz, self.half = "ftz" in i.parts, ""
        self.steps: list[dict[str, Any]] = []

    def alone(self, form: Form) -> dict[str, Any]:
        """Of an instruction on one number."""
        return self._stored(self._run(form), form.results)

    def pairs(self, form: Form, scalar: str) -> dict[str, Any]:
        """Of two numbers in a word."""
        self.words = tuple(scalar.split("."))
        self.half = "low"
        low = self._run(form)
        self.half = "high"
        high = self._run(form)
        if self.words[0] == "setp":
            return self._stored([low[0], high[0]], ("pred", "pred"))
        return self._stored([self._step("pack.b32", [low[0], high[0]])], ("b32",))

    # Values.

    def _step(self, opcode: str, values: list[tuple[Any, str]]) -> tuple[Any, str]:
        """The result of an operation."""
        if opcode not in OPS:
            raise unsupported(self.i)
        op = OPS[opcode]
        places = [self._literal(*value, type_) for value, type_ in zip(values, op.sources, strict=True)]
        name = opcode if opcode in PASSES else opcode.split(".")[0]
        target = self.decoder.temporary(len(self.steps))
        step = dict(zip(("a", "b", "c", "site"), places, strict=False))
        self.steps.append({"kind": ALU, "op": op.number, "d": target, "copies": PASSES.get(name, 0), **step})
        return target, op.result

    def _literal(self, place: Any, held: str, type_: str) -> Any:
        """The place of a value; held "": it is a number."""
        if held:
            return place
        return self.decoder.source(Imm(place, place, "bits"), type_.replace("f", "b"))

    def _read(self, operand: Operand | None, type_: str) -> tuple[Any, str]:
        """An operand. A wider register is truncated, as in PTX."""
        width, have = bytes_of(type_), bytes_of(type_)
        if isinstance(operand, Vec) and len(operand.items) == 2 and type_ in ("b32", "b64"):
            return self._step(f"pack.{type_}", [self._read(x, f"b{4 * width}") for x in operand.items])
        if isinstance(operand, Reg):
            self.require(operand, type_)
            place, have = self.decoder.registers[operand.name], bytes_of(operand.type)
        elif isinstance(operand, Special) and operand.name in TIMES:
            place, have = self.decoder.temporary(len(self.steps)), 8
            self.steps.append({"kind": CLOCK, "op": TIMES[operand.name], "d": place})
        elif isinstance(operand, Special):
            place, have = special(self.decoder, operand.name), 4
        elif isinstance(operand, Imm) or (isinstance(operand, Sym) and operand.name in self.decoder.program.addresses):
            place = self.decoder.source(operand, type_)
        else:
            raise unsupported(self.i, "an operand is missing or of the wrong kind")
        if have == width:
            return place, type_
        return self._step(f"cvt.u{8 * width}.u{8 * have}", [(place, f"u{8 * have}")])[0], type_

    def require(self, register: Reg, type_: str) -> None:
        """A register must be as wide as the type, or hold it as its low part."""
        held, want = register_dtype(register.type), bytes_of(type_)
        have, floating = int(held[1:] or 0), held[0] == "f" or type_ in ("f32", "f64")
        if (held == "?") != (type_ == "pred") or have < want or (have > want and floating):
            raise unsupported(self.i, f"{register.name} is .{register.type}: too narrow, or of the wrong kind")

    def _operand(self, operand: Operand | None, type_: str, raw: bool) -> tuple[Any, str]:
        """An operand as the steps take it. type_: as in Form."""
        type_, _, wanted = type_.partition(" ")
        if type_ in ("f16", "bf16", "u16", "s16") and self.half:
            value = self._step(f"{self.half}.b32", [self._read(operand, "b32")])
        else:
            value = self._read(operand, {"f16": "b16", "bf16": "b16"}.get(type_, type_))
        if type_ in ("f16", "bf16"):
            value, wanted = self._step(f"cvt.f64.{type_}", [value]), ""
        if self.ftz and not raw and type_ in ("f32", "f16"):
            value = self._step(f"flush.{type_}", [value])
        return self._step(f"cvt.{wanted}.{type_}", [value]) if wanted else value

    def _finished(self, value: tuple[Any, str], type_: str) -> tuple[Any, str]:
        """What the modifiers after the operation make of a result of a type."""
        held, floating = value[1], value[1][0] == "f"
        ftz = ".ftz" if self.ftz and (type_ == "f32" or (type_ == "f16" and self.words[0] != "cvt")) else ""
        mode = next((word for word in self.words if word in MODES), "rn")
        if type_ == "f32" and held == "f64":
            value = self._step(f"cvt.{mode}{ftz}.f32.f64", [value])
        elif type_ == "f32" and held == "f32" and ftz:
            value = self._step("flush.f32", [value])
        if "sat" in self.words and floating:
            value = self._step(f"sat.{value[1]}", [value])
        if "relu" in self.words and (floating or held in ("s16", "s32")):
            value = self._step(f"relu.{value[1]}", [value])
        if type_ in ("f16", "bf16", "e4m3", "e5m2") and held == "f64":
            value = self._step(f"cvt.{mode}{ftz}.{type_}.f64", [value])
        return value

    def _run(self, form: Form) -> list[tuple[Any, str]]:
        """The results of a form's steps."""
        stack, kept = list[tuple[Any, str]](), dict[str, tuple[Any, str]]()
        carry = self.decoder.carry(self.i) if "carry" in form.steps else None
        for token in form.steps:
            if token.lower() in "abcef":
                index = "abcef".index(token.lower())
                stack.append(self._operand(self.i.operands[index + 1], form.sources[index], token.isupper()))
            elif token.isdigit():
                stack.append((int(token), ""))
            elif token in ("no", "carry"):
                stack.append((self.decoder.source(Imm(0, 0, "int"), "pred") if token == "no" else carry, "pred"))
            elif token[0] == "=":
                kept[token[1:]] = stack.pop()
            elif token in kept:
                stack.append(kept[token])
            elif token.startswith("finish."):
                stack.append(self._finished(stack.pop(), token[7:]))
            elif token not in ("cvt.f64.f64", "cvt.f32.f32"):
                count = len(OPS[token].sources) if token in OPS else 1
                stack[-count:] = [self._step(token, stack[-count:])]
        return [self._finished(stack[0], form.results[0]), *stack[1:]]

    # Results.

    def _stored(self, values: list[tuple[Any, str]], types: tuple[str, ...]) -> dict[str, Any]:
        """The record, after steps that give the instruction's destinations these values."""
        target = self.i.operands[0]
        targets = target.items if isinstance(target, Vec) else (target,)
        if isinstance(target, Vec) and len(targets) == 2 and types in (("b32",), ("b64",)):
            values = [self._step(f"{half}.{types[0]}", values) for half in ("low", "high")]
        if len(targets) > len(values):
            raise unsupported(self.i, "the destination is not a register")
        if types[-1] == "carry":
            if self.i.guard:
                raise unsupported(self.i)
            self.move(values[1], "pred", self.decoder.carry(self.i, True))
        for register, value in zip(targets, values, strict=False):
            if isinstance(register, Reg):
                self._store(value, register)
            elif register is not None and register != Sym("_"):
                raise unsupported(self.i, "the destination is not a register")
        return self.record()

    def record(self) -> dict[str, Any]:
        """Of the steps."""
        if len(self.steps) == 1:
            return self.steps[0]
        return {"kind": SERIES, "op": len(self.steps), "target": self.decoder.series(self.steps)}

    def _store(self, value: tuple[Any, str], register: Reg) -> None:
        """A narrower value is extended by its own sign."""
        type_ = value[1]
        self.require(register, type_)
        width, have = bytes_of(type_), bytes_of(register.type)
        if width != have:
            sign = "s" if type_[0] == "s" else "u"
            value = self._step(f"cvt.{sign}{8 * have}.{sign}{8 * width}", [value])
        self.move(value, "pred" if type_ == "pred" else f"b{8 * have}", self.decoder.registers[register.name])

    def move(self, value: tuple[Any, str], type_: str, place: Any) -> None:
        """The last step writes its place, if it gave the value."""
        if self.steps and self.steps[-1]["d"] is value[0]:
            self.steps[-1]["d"] = place
        else:
            self._step(f"mov.{type_}", [value])
            self.steps[-1]["d"] = place
