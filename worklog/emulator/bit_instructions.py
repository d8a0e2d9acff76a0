"""The rules for PTX instructions on bits: logic, shifts, fields, counting. Rules are as in
worklog.emulator.instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worklog.emulator.instructions import BITS, DTYPE, INTEGERS, Rule, arguments
from worklog.emulator.ptx import Imm, Instruction

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer


def _logic(symbol: str) -> Rule:
    def rule(w: Writer, i: Instruction) -> bool:
        type_ = i.parts[-1]
        if type_ not in (*BITS, "pred") or len(i.parts) != 2:
            return False
        values = arguments(w, i, type_)
        expression = f"~{values[0]}" if symbol == "~" else f" {symbol} ".join(values)
        w.result(i.operands[0], expression, DTYPE[type_])
        return True

    return rule


def _shift(w: Writer, i: Instruction) -> bool:
    type_, name = i.parts[-1], i.parts[0]
    if len(i.parts) != 2 or type_ not in (*BITS, *INTEGERS):
        return False
    count = i.operands[2]
    bits = int(type_[1:])
    a = w.source(i.operands[1], type_)
    if isinstance(count, Imm) and 0 <= int(count.value) < bits:
        symbol = "<<" if name == "shl" else ">>"
        w.result(i.operands[0], f"{a} {symbol} {w.constant(int(count.value), DTYPE[type_])}", DTYPE[type_])
    else:
        w.result(i.operands[0], f"{name}({a}, {w.source(count, 'u32')})", DTYPE[type_])
    return True


def _funnel(w: Writer, i: Instruction) -> bool:
    if len(i.parts) != 4 or i.parts[1] not in "lr" or i.parts[2] not in ("wrap", "clamp") or i.parts[3] != "b32":
        return False
    low, high, count = arguments(w, i, "u32")
    w.result(i.operands[0], f"funnel({low}, {high}, {count}, {i.parts[1] == 'l'}, {i.parts[2] == 'clamp'})", "u4")
    return True


def _bits(w: Writer, i: Instruction) -> bool:
    """bfe, bfi, brev, popc, clz, prmt, lop3."""
    name, type_ = i.parts[0], i.parts[-1]
    if len(i.parts) != 2 or type_ not in ("b32", "b64", "u32", "s32", "u64", "s64"):
        return False
    if name in ("popc", "clz"):
        w.result(i.operands[0], f"{name}({w.source(i.operands[1], type_)})", "u4")
    elif name == "lop3":
        table = i.operands[4]
        if not isinstance(table, Imm) or type_ != "b32":
            return False
        a, b, c = (w.source(operand, type_) for operand in i.operands[1:4])
        w.result(i.operands[0], f"lop3({a}, {b}, {c}, {int(table.value)})", "u4")
    elif name in ("bfe", "bfi"):
        values = [w.source(operand, type_) for operand in i.operands[1:-2]]
        places = [w.source(operand, "u32") for operand in i.operands[-2:]]
        w.result(i.operands[0], f"{name}({', '.join(values + places)})", DTYPE[type_])
    else:
        w.result(i.operands[0], f"{name}({', '.join(arguments(w, i, type_))})", DTYPE[type_])
    return name != "prmt" or type_ == "b32"


def _bfind(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ not in ("u32", "s32", "u64", "s64") or set(i.parts[1:-1]) - {"shiftamt"}:
        return False
    w.result(i.operands[0], f"bfind({w.source(i.operands[1], type_)}, {'shiftamt' in i.parts})", "u4")
    return True


def _dp4a(w: Writer, i: Instruction) -> bool:
    types = i.parts[1:]
    if len(types) != 2 or set(types) - {"u32", "s32"}:
        return False
    whole = "s32" if "s32" in types else "u32"
    a, b = (w.source(operand, type_) for operand, type_ in zip(i.operands[1:3], types, strict=True))
    w.result(i.operands[0], f"dp4a({a}, {b}, {w.source(i.operands[3], whole)})", DTYPE[whole])
    return True


def _sad(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ not in INTEGERS or len(i.parts) != 2:
        return False
    w.result(i.operands[0], f"sad({', '.join(arguments(w, i, type_))})", DTYPE[type_])
    return True


BIT_RULES: dict[str, Rule] = {
    "and": _logic("&"),
    "or": _logic("|"),
    "xor": _logic("^"),
    "not": _logic("~"),
    **dict.fromkeys(("shl", "shr"), _shift),
    "shf": _funnel,
    **dict.fromkeys(("bfe", "bfi", "brev", "popc", "clz", "prmt", "lop3"), _bits),
    "bfind": _bfind,
    "dp4a": _dp4a,
    "sad": _sad,
}
