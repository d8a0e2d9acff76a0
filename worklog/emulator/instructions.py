"""One rule for each PTX instruction that computes: how it becomes an expression over NumPy arrays.

A rule gets the writer and the instruction, and returns False for a form (modifier, type, rounding) that it does not
cover, which becomes an error that names the instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from worklog.emulator.ptx import Imm, Instruction, Vec

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

Rule = Callable[["Writer", Instruction], bool]

DTYPE = {
    "pred": "?", "b8": "u1", "u8": "u1", "s8": "i1", "b16": "u2", "u16": "u2", "s16": "i2",
    "b32": "u4", "u32": "u4", "s32": "i4", "f32": "f4", "b64": "u8", "u64": "u8", "s64": "i8", "f64": "f8",
}  # fmt: skip
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
WIDER = {"u16": "u4", "s16": "i4", "u32": "u8", "s32": "i8"}
WIDER_TYPE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
BITS = ("b16", "b32", "b64")


def _arguments(w: Writer, i: Instruction, type_: str) -> list[str]:
    return [w.source(operand, type_) for operand in i.operands[1:]]


def _float_result(w: Writer, i: Instruction, expression: str, type_: str) -> bool:
    """Store a float result under .ftz and .sat; any other modifier than .rn makes the form unknown."""
    modifiers = set(i.parts[1:-1])
    if modifiers - {"rn", "ftz", "sat"} or ("ftz" in modifiers and type_ != "f32"):
        return False
    expression = f"flush({expression})" if "ftz" in modifiers else expression
    expression = f"saturate({expression})" if "sat" in modifiers else expression
    w.result(i.operands[0], expression, DTYPE[type_])
    return True


def _float_source(w: Writer, i: Instruction, k: int, type_: str) -> str:
    text = w.source(i.operands[k], type_)
    return f"flush({text})" if "ftz" in i.parts else text


def _add_sub_mul(symbol: str) -> Rule:
    def rule(w: Writer, i: Instruction) -> bool:
        type_ = i.parts[-1]
        if type_ in FLOATS:
            a, b = (_float_source(w, i, k, type_) for k in (1, 2))
            return _float_result(w, i, f"float_mul({a}, {b})" if symbol == "*" else f"{a} {symbol} {b}", type_)
        if type_ not in INTEGERS:
            return False
        a, b = _arguments(w, i, type_)
        if symbol != "*":
            if i.parts[1:-1]:
                return False
            w.result(i.operands[0], f"{a} {symbol} {b}", DTYPE[type_])
            return True
        return _product(w, i, a, b, type_)

    return rule


def _product(w: Writer, i: Instruction, a: str, b: str, type_: str, plus: str = "") -> bool:
    form = i.parts[1]
    if len(i.parts) != 3 or form not in ("lo", "hi", "wide") or (form == "wide" and type_ not in WIDER):
        return False
    product = {"lo": f"{a} * {b}", "hi": f"mul_hi({a}, {b})", "wide": f"mul_wide({a}, {b})"}[form]
    w.result(i.operands[0], f"{product}{plus}", WIDER[type_] if form == "wide" else DTYPE[type_])
    return True


def _mad(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ in FLOATS:
        return _fma(w, i)
    if type_ not in INTEGERS:
        return False
    a, b = (w.source(operand, type_) for operand in i.operands[1:3])
    addend = w.source(i.operands[3], WIDER_TYPE[type_] if i.parts[1] == "wide" else type_)
    return _product(w, i, a, b, type_, f" + {addend}")


def _fma(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ not in FLOATS or "rn" not in i.parts:
        return False
    if type_ == "f64":
        return _float_result(w, i, f"fma_f64({', '.join(_arguments(w, i, type_))})", type_)
    if not w.context.exact:
        singles = [_float_source(w, i, k, type_) for k in (1, 2, 3)]
        return _float_result(w, i, f"fma_fast_f32({', '.join(singles)})", type_)
    if "ftz" in i.parts:
        doubles = [f"{_float_source(w, i, k, type_)}.astype('f8')" for k in (1, 2, 3)]
    else:
        doubles = [w.exact_double(operand) for operand in i.operands[1:4]]
    return _float_result(w, i, f"fma_f32({', '.join(doubles)})", type_)


def _div(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ in INTEGERS and len(i.parts) == 2:
        a, b = _arguments(w, i, type_)
        w.result(i.operands[0], f"{i.parts[0]}({a}, {b})", DTYPE[type_])
        return True
    if type_ in FLOATS and i.parts[0] == "div" and "rn" in i.parts:
        a, b = (_float_source(w, i, k, type_) for k in (1, 2))
        return _float_result(w, i, f"float_div({a}, {b})", type_)
    return False


def _rcp_sqrt(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ not in FLOATS or "rn" not in i.parts:
        return False
    a = _float_source(w, i, 1, type_)
    one = w.constant(1.0, DTYPE[type_])
    return _float_result(w, i, f"np.sqrt({a})" if i.parts[0] == "sqrt" else f"float_div({one}, {a})", type_)


def _min_max(w: Writer, i: Instruction) -> bool:
    type_, name = i.parts[-1], i.parts[0]
    if type_ in INTEGERS and len(i.parts) == 2:
        a, b = _arguments(w, i, type_)
        w.result(i.operands[0], f"np.{name}imum({a}, {b})", DTYPE[type_])
        return True
    if type_ in FLOATS and len(i.operands) == 3:
        a, b = (_float_source(w, i, k, type_) for k in (1, 2))
        return _float_result(w, i, f"float_{name}({a}, {b})", type_)
    return False


def _abs_neg(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ not in (*FLOATS, "s16", "s32", "s64"):
        return False
    a = _float_source(w, i, 1, type_) if type_ in FLOATS else w.source(i.operands[1], type_)
    expression = f"np.abs({a})" if i.parts[0] == "abs" else f"-{a}"
    if type_ in FLOATS:
        return _float_result(w, i, expression, type_)
    w.result(i.operands[0], expression, DTYPE[type_])
    return len(i.parts) == 2


def _copysign(w: Writer, i: Instruction) -> bool:
    """The second operand with the sign of the first."""
    type_ = i.parts[-1]
    if type_ not in FLOATS or len(i.parts) != 2:
        return False
    sign, size = _arguments(w, i, type_)
    w.result(i.operands[0], f"np.copysign({size}, {sign})", DTYPE[type_])
    return True


def _logic(symbol: str) -> Rule:
    def rule(w: Writer, i: Instruction) -> bool:
        type_ = i.parts[-1]
        if type_ not in (*BITS, "pred") or len(i.parts) != 2:
            return False
        arguments = _arguments(w, i, type_)
        expression = f"~{arguments[0]}" if symbol == "~" else f" {symbol} ".join(arguments)
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
    low, high, count = _arguments(w, i, "u32")
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
        w.result(i.operands[0], f"{name}({', '.join(_arguments(w, i, type_))})", DTYPE[type_])
    return name != "prmt" or type_ == "b32"


_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
            "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_COMBINE = {"and": "&", "or": "|", "xor": "^"}


def _setp(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    modifiers = [part for part in i.parts[1:-1] if part != "ftz"]
    compare, combine = modifiers[0], modifiers[1:]
    if len(combine) > 1 or (combine and combine[0] not in _COMBINE) or type_ not in (*FLOATS, *INTEGERS, *BITS):
        return False
    flushed = type_ in FLOATS and "ftz" in i.parts
    a, b = (_float_source(w, i, k, type_) if flushed else w.source(i.operands[k], type_) for k in (1, 2))
    expression = _comparison(compare, a, b, type_)
    if not expression:
        return False
    test = w.fresh(expression)
    targets = i.operands[0].items if isinstance(i.operands[0], Vec) else (i.operands[0],)
    third = i.operands[3] if combine else None
    other = w.source(third, "pred") if combine else ""
    for target, value in zip(targets, (test, f"~{test}"), strict=False):
        if target is not None:
            w.result(target, f"({value}) {_COMBINE[combine[0]]} {other}" if combine else value, "?")
    return True


def _comparison(compare: str, a: str, b: str, type_: str) -> str:
    if type_ in FLOATS:
        nan = f"(np.isnan({a}) | np.isnan({b}))"
        if compare in _UNORDERED:
            return f"({a} {_UNORDERED[compare]} {b}) | {nan}"
        if compare in ("num", "nan"):
            return nan if compare == "nan" else f"~{nan}"
        if compare == "ne":
            return f"({a} != {b}) & ~{nan}"
        if compare in ("lo", "ls", "hi", "hs"):
            return ""
    return f"{a} {_COMPARE[compare]} {b}" if compare in _COMPARE else ""


def _selp(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if len(i.parts) != 2:
        return False
    a, b = (w.source(operand, type_) for operand in i.operands[1:3])
    w.result(i.operands[0], f"np.where({w.source(i.operands[3], 'pred')}, {a}, {b})", DTYPE[type_])
    return True


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


def _cvt(w: Writer, i: Instruction) -> bool:
    to, source = i.parts[-2:]
    modifiers = set(i.parts[1:-2])
    rounding = modifiers & {"rn", "rni", "rzi", "rmi", "rpi"}
    if len(rounding) > 1 or modifiers - rounding - {"ftz", "sat"} or "f16" in (to, source):
        return False
    a = _float_source(w, i, 1, source) if source == "f32" else w.source(i.operands[1], source)
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


RULES: dict[str, Rule] = {
    "add": _add_sub_mul("+"),
    "sub": _add_sub_mul("-"),
    "mul": _add_sub_mul("*"),
    "mad": _mad,
    "fma": _fma,
    **dict.fromkeys(("div", "rem"), _div),
    **dict.fromkeys(("rcp", "sqrt"), _rcp_sqrt),
    **dict.fromkeys(("min", "max"), _min_max),
    **dict.fromkeys(("abs", "neg"), _abs_neg),
    "copysign": _copysign,
    "and": _logic("&"),
    "or": _logic("|"),
    "xor": _logic("^"),
    "not": _logic("~"),
    **dict.fromkeys(("shl", "shr"), _shift),
    "shf": _funnel,
    **dict.fromkeys(("bfe", "bfi", "brev", "popc", "clz", "prmt", "lop3"), _bits),
    "setp": _setp,
    "selp": _selp,
    "mov": _mov,
    "cvt": _cvt,
    "cvta": _cvta,
}
