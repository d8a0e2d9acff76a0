"""The rules for PTX instructions that move values and change their type, as in worklog.emulator.instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worklog.emulator.instructions import BITS, DTYPE, FLOATS, Rule, float_source
from worklog.emulator.ptx import Instruction, Vec

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer


def _mov(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    target, value = i.operands
    if len(i.parts) != 2:
        return False
    if isinstance(value, Vec):
        return _pack(w, i, value, type_)
    if isinstance(target, Vec):
        return _unpack(w, i, target, type_)
    w.result(target, w.source(value, type_), DTYPE[type_])
    return True


def _pack(w: Writer, i: Instruction, value: Vec, type_: str) -> bool:
    part = int(type_[1:]) // len(value.items)
    if type_ not in BITS or f"b{part}" not in BITS or len(value.items) != 2:
        return False
    low, high = (f"{w.source(item, f'b{part}')}.astype({DTYPE[type_]!r})" for item in value.items)
    w.result(i.operands[0], f"({high} << {w.constant(part, DTYPE[type_])}) | {low}", DTYPE[type_])
    return True


def _unpack(w: Writer, i: Instruction, target: Vec, type_: str) -> bool:
    part = int(type_[1:]) // len(target.items)
    if type_ not in BITS or f"b{part}" not in BITS or len(target.items) != 2:
        return False
    whole = w.source(i.operands[1], type_)
    for k, item in enumerate(target.items):
        if item is not None:
            narrow = DTYPE[f"b{part}"]
            w.result(item, f"({whole} >> {w.constant(k * part, DTYPE[type_])}).astype({narrow!r})", narrow)
    return True


HALVES = {"f16", "bf16", "f16x2", "bf16x2"}
_NARROW, _WIDE = {"f16": "to_half", "bf16": "to_bfloat"}, {"f16": "from_half", "bf16": "from_bfloat"}


def _cvt_half(w: Writer, i: Instruction, to: str, source: str) -> bool:
    """Between float32 and the 16-bit formats, to the nearest; two of them make a word, the first operand on top."""
    how = i.parts[1:-2]
    if to == "f32" and source in _WIDE and not how:
        w.result(i.operands[0], f"{_WIDE[source]}({w.source(i.operands[1], 'b16')})", "f4")
    elif source == "f32" and to in _NARROW and how == ("rn",):
        w.result(i.operands[0], f"{_NARROW[to]}({w.source(i.operands[1], 'f32')})", "u2")
    elif source == "f32" and to.endswith("x2") and how == ("rn",):
        high, low = (f"{_NARROW[to[:-2]]}({w.source(operand, 'f32')})" for operand in i.operands[1:3])
        w.result(i.operands[0], f"pair({high}, {low})", "u4")
    else:
        return False
    return True


def _cvt(w: Writer, i: Instruction) -> bool:
    to, source = i.parts[-2:]
    if {to, source} & HALVES:
        return _cvt_half(w, i, to, source)
    modifiers = set(i.parts[1:-2])
    rounding = modifiers & {"rn", "rni", "rzi", "rmi", "rpi"}
    if len(rounding) > 1 or modifiers - rounding - {"ftz", "sat"}:
        return False
    a = float_source(w, i, 1, source) if source == "f32" else w.source(i.operands[1], source)
    how = next(iter(rounding), "")
    sat = "sat" in modifiers
    if source in FLOATS and to not in FLOATS:
        if how not in ("rni", "rzi", "rmi", "rpi"):
            return False
        expression = f"to_integer({a}, np.dtype({DTYPE[to]!r}), {how!r})"
    elif to in FLOATS:
        expression = _to_float(a, source, to, how)
        if not expression:
            return False
        expression = f"saturate({expression})" if sat else expression
        expression = f"flush({expression})" if "ftz" in modifiers and to == "f32" else expression
    else:
        expression = f"clamp_integer({a}, np.dtype({DTYPE[to]!r}))" if sat else f"{a}.astype({DTYPE[to]!r})"
    w.result(i.operands[0], expression, DTYPE[to])
    return True


def _to_float(a: str, source: str, to: str, how: str) -> str:
    if source not in FLOATS:
        return f"{a}.astype({DTYPE[to]!r})" if how == "rn" else ""
    if source == to:
        return f"to_integral({a}, {how!r})" if how.endswith("i") else a
    if to == "f64":
        return f"{a}.astype('f8')" if not how else ""
    return f"round_f32({a})" if how == "rn" else ""


def _cvta(w: Writer, i: Instruction) -> bool:
    """Shared and local memory have windows in the generic address space; global and const addresses are generic
    already.
    """
    space = next((part for part in ("shared", "local", "global", "const", "param") if part in i.parts), "")
    if i.parts[-1] != "u64" or not space:
        return False
    a = w.source(i.operands[1], "u64")
    window = w.fresh(f"S.window({space!r})")
    w.result(i.operands[0], f"{a} {'-' if 'to' in i.parts else '+'} {window}", "u8")
    return True


CONVERSION_RULES: dict[str, Rule] = {
    "mov": _mov,
    "cvt": _cvt,
    "cvta": _cvta,
}
