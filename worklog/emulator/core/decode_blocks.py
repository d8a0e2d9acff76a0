"""Decodes the instructions that concern a block or the launch: barriers, trap, calls, setmaxnreg."""

from __future__ import annotations

from typing import Any

from worklog.emulator.core.records import enum
from worklog.emulator.isa import unsupported
from worklog.emulator.ptx import Imm, Instruction, Reg

KIND, BARRIER, NONE = enum("kind"), enum("barrier"), -1
REDUCTIONS = {"popc.u32": "POPULATION", "and.pred": "ALL_TRUE", "or.pred": "ANY_TRUE"}


def barrier(decoder: Any, i: Instruction) -> dict[str, Any]:
    """bar and barrier, of a block. Raises UnsupportedInstruction."""
    kind, *rest = [part for part in i.parts[1:] if part not in ("cta", "aligned")] or [""]
    operands, out = [*i.operands], {"kind": KIND["BARRIER"], "op": BARRIER["SYNC"]}
    if kind == "cluster" and i.guard is None and rest[0] in ("arrive", "wait"):
        # The cluster is the block: arrivals are counted with the waits, of which there is one each.
        if rest[0] == "arrive":
            return {"kind": KIND["ALU"], "op": 0}
        return {**out, "a": decoder.source(Imm(0, 0, "int"), "u32")}
    if kind == "red" and ".".join(rest) in REDUCTIONS and isinstance(operands[0], Reg):
        target, *operands = operands
        assert isinstance(target, Reg)
        if target.type not in (("pred",) if rest[-1] == "pred" else ("u32", "s32", "b32")):
            raise unsupported(i)
        out |= {"op": BARRIER[REDUCTIONS[".".join(rest)]], "d": decoder.registers[target.name]}
        out["c"] = decoder.source(operands.pop(), "pred")
    elif kind not in ("sync", "arrive") or rest:
        raise unsupported(i)
    if not (kind == "arrive") < len(operands) < 3:
        raise unsupported(i)
    out |= {"op": BARRIER["ARRIVE"]} if kind == "arrive" else {}
    return {**out, **dict(zip("ab", (decoder.source(operand, "u32") for operand in operands), strict=False))}


def trap(decoder: Any, i: Instruction) -> dict[str, Any]:
    """trap, brkpt, and a failed assertion."""
    out = {"kind": KIND["TRAP"]}
    return {**out, "a": decoder.source(i.operands[0], "u64")} if i.operands else out


def call(decoder: Any, i: Instruction) -> dict[str, Any]:
    """vprintf."""
    target, *sources = i.operands
    if i.op != "call.vprintf" or len(sources) != 2:
        raise unsupported(i)
    result = decoder.registers[target.name] if isinstance(target, Reg) else NONE
    places = {name: decoder.source(x, "u64") for name, x in zip("ab", sources, strict=True)}
    return {"kind": KIND["PRINT"], "d": result, **places}


def set_registers(decoder: Any, i: Instruction) -> dict[str, Any]:
    """setmaxnreg."""
    if i.parts[1] not in ("inc", "dec") or len(i.operands) != 1:
        raise unsupported(i)
    return {"kind": KIND["SET_REGISTERS"], "a": decoder.source(i.operands[0], "u32")}


DECODE = {
    **dict.fromkeys(("bar", "barrier"), barrier),
    **dict.fromkeys(("trap", "brkpt"), trap),
    "call": call,
    "setmaxnreg": set_registers,
}
