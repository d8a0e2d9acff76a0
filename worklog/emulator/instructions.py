"""One rule for each PTX instruction that computes: how it becomes an expression over NumPy arrays.

A rule gets the writer and the instruction, and returns False for a form (modifier, type, rounding) that it does not
cover, which becomes an error that names the instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from worklog.emulator.ptx import Instruction, Vec

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

Rule = Callable[["Writer", Instruction], bool]

DTYPE = {
    "pred": "?", "b8": "u1", "u8": "u1", "s8": "i1", "b16": "u2", "u16": "u2", "s16": "i2",
    "b32": "u4", "u32": "u4", "s32": "i4", "f32": "f4", "b64": "u8", "u64": "u8", "s64": "i8", "f64": "f8",
}  # fmt: skip
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
DIRECTED = {"rz", "rm", "rp"}
WIDER = {"u16": "u4", "s16": "i4", "u32": "u8", "s32": "i8"}
WIDER_TYPE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
BITS = ("b16", "b32", "b64")


def arguments(w: Writer, i: Instruction, type_: str) -> list[str]:
    """All operands but the destination, as one type."""
    return [w.source(operand, type_) for operand in i.operands[1:]]


def float_result(w: Writer, i: Instruction, expression: str, type_: str, further: tuple[str, ...] = ()) -> bool:
    """Store a float result under .ftz and .sat; a modifier beyond these, .rn and `further` makes the form unknown."""
    modifiers = set(i.parts[1:-1])
    if modifiers - {"rn", "ftz", "sat", *further} or ("ftz" in modifiers and type_ != "f32"):
        return False
    expression = f"flush({expression})" if "ftz" in modifiers else expression
    expression = f"saturate({expression})" if "sat" in modifiers else expression
    w.result(i.operands[0], expression, DTYPE[type_])
    return True


def float_source(w: Writer, i: Instruction, k: int, type_: str) -> str:
    """A float operand, subnormals to zero under .ftz."""
    text = w.source(i.operands[k], type_)
    return f"flush({text})" if "ftz" in i.parts else text


def _add_sub_mul(symbol: str) -> Rule:
    def rule(w: Writer, i: Instruction) -> bool:
        type_ = i.parts[-1]
        if type_ == "f32" and DIRECTED & set(i.parts):
            return _directed(w, i, "mul" if symbol == "*" else "add", minus=symbol == "-")
        if type_ in FLOATS:
            a, b = (float_source(w, i, k, type_) for k in (1, 2))
            return float_result(w, i, f"float_mul({a}, {b})" if symbol == "*" else f"{a} {symbol} {b}", type_)
        if type_ not in INTEGERS:
            return False
        a, b = arguments(w, i, type_)
        if symbol != "*":
            if i.parts[1:-1] == ("cc",):
                return carry_chain(w, i, a, b, type_)
            if i.parts[1:-1]:
                return False
            w.result(i.operands[0], f"{a} {symbol} {b}", DTYPE[type_])
            return True
        return _product(w, i, a, b, type_)

    return rule


def _directed(w: Writer, i: Instruction, name: str, minus: bool = False) -> bool:
    """add, sub, mul and fma of float32 with .rz, .rm or .rp."""
    doubles = [f"{float_source(w, i, k, 'f32')}.astype('f8')" for k in range(1, len(i.operands))]
    if minus:
        doubles[1] = f"-{doubles[1]}"
    (mode,) = DIRECTED & set(i.parts)
    return float_result(w, i, f"{name}_directed({', '.join(doubles)}, {mode!r})", "f32", (mode,))


def carry_chain(w: Writer, i: Instruction, a: str, b: str, type_: str) -> bool:
    """add.cc, addc, sub.cc, subc: the carry lives in a local of the block, so a chain must lie in one."""
    takes, gives, minus = i.parts[0].endswith("c"), "cc" in i.parts, i.parts[0].startswith("sub")
    if i.guard or type_ not in ("u32", "s32", "u64", "s64", "b32") or (takes and not w.carry):
        return False
    unsigned = DTYPE[type_].replace("i", "u")
    a, b = (w.fresh(f"{x}.view({unsigned!r})") for x in (a, b))
    before = f"{w.carry}.astype({unsigned!r})" if takes else ""
    symbol = "-" if minus else "+"
    total = w.fresh(f"{a} {symbol} {b}" + (f" {symbol} {before}" if takes else ""))
    if gives:
        over = f"({a} < {b})" if minus else f"({total} < {a})"
        edge = f"({a} == {b})" if minus else f"({total} == {a})"
        w.carry = w.fresh(f"{over} | ({edge} & {w.carry})" if takes else over)
    w.result(i.operands[0], total, unsigned)
    return True


def _with_carry(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if set(i.parts[1:-1]) - {"cc"}:
        return False
    a, b = arguments(w, i, type_)
    return carry_chain(w, i, a, b, type_)


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
    if type_ == "f32" and DIRECTED & set(i.parts):
        return _directed(w, i, "fma")
    if type_ not in FLOATS or "rn" not in i.parts:
        return False
    if type_ == "f64":
        return float_result(w, i, f"fma_f64({', '.join(arguments(w, i, type_))})", type_)
    if not w.context.exact:
        singles = [float_source(w, i, k, type_) for k in (1, 2, 3)]
        return float_result(w, i, f"fma_fast_f32({', '.join(singles)})", type_)
    if "ftz" in i.parts:
        doubles = [f"{float_source(w, i, k, type_)}.astype('f8')" for k in (1, 2, 3)]
    else:
        doubles = [w.exact_double(operand) for operand in i.operands[1:4]]
    return float_result(w, i, f"fma_f32({', '.join(doubles)})", type_)


def _div(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ in INTEGERS and len(i.parts) == 2:
        a, b = arguments(w, i, type_)
        w.result(i.operands[0], f"{i.parts[0]}({a}, {b})", DTYPE[type_])
        return True
    if type_ in FLOATS and i.parts[0] == "div" and "rn" in i.parts:
        a, b = (float_source(w, i, k, type_) for k in (1, 2))
        return float_result(w, i, f"float_div({a}, {b})", type_)
    return False


def _rcp_sqrt(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ not in FLOATS or "rn" not in i.parts:
        return False
    a = float_source(w, i, 1, type_)
    one = w.constant(1.0, DTYPE[type_])
    return float_result(w, i, f"np.sqrt({a})" if i.parts[0] == "sqrt" else f"float_div({one}, {a})", type_)


def _min_max(w: Writer, i: Instruction) -> bool:
    type_, name = i.parts[-1], i.parts[0]
    if type_ in INTEGERS and len(i.parts) == 2:
        a, b = arguments(w, i, type_)
        w.result(i.operands[0], f"np.{name}imum({a}, {b})", DTYPE[type_])
        return True
    if type_ not in FLOATS or len(i.operands) < 3:
        return False
    first, *others = (float_source(w, i, k, type_) for k in range(1, len(i.operands)))
    function = f"nan_{name}" if "NaN" in i.parts else f"float_{name}"
    for other in others:
        first = f"{function}({first}, {other})"
    return float_result(w, i, first, type_, ("NaN",))


def _abs_neg(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ not in (*FLOATS, "s16", "s32", "s64"):
        return False
    a = float_source(w, i, 1, type_) if type_ in FLOATS else w.source(i.operands[1], type_)
    expression = f"np.abs({a})" if i.parts[0] == "abs" else f"-{a}"
    if type_ in FLOATS:
        return float_result(w, i, expression, type_)
    w.result(i.operands[0], expression, DTYPE[type_])
    return len(i.parts) == 2


def _copysign(w: Writer, i: Instruction) -> bool:
    """The second operand with the sign of the first."""
    type_ = i.parts[-1]
    if type_ not in FLOATS or len(i.parts) != 2:
        return False
    sign, size = arguments(w, i, type_)
    w.result(i.operands[0], f"np.copysign({size}, {sign})", DTYPE[type_])
    return True


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
    a, b = (float_source(w, i, k, type_) if flushed else w.source(i.operands[k], type_) for k in (1, 2))
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


def _slct(w: Writer, i: Instruction) -> bool:
    """The first operand where the third is not negative, else (NaN too) the second."""
    type_, tested = i.parts[-2:]
    if tested not in ("s32", "f32") or set(i.parts[1:-2]) - {"ftz"} or type_ not in DTYPE:
        return False
    a, b = (w.source(operand, type_) for operand in i.operands[1:3])
    c, zero = float_source(w, i, 3, tested) if tested == "f32" else w.source(i.operands[3], tested), DTYPE[tested]
    w.result(i.operands[0], f"np.where({c} >= {w.constant(0, zero)}, {a}, {b})", DTYPE[type_])
    return True


ARITHMETIC_RULES: dict[str, Rule] = {
    "add": _add_sub_mul("+"),
    "sub": _add_sub_mul("-"),
    **dict.fromkeys(("addc", "subc"), _with_carry),
    "mul": _add_sub_mul("*"),
    "mad": _mad,
    "fma": _fma,
    **dict.fromkeys(("div", "rem"), _div),
    **dict.fromkeys(("rcp", "sqrt"), _rcp_sqrt),
    **dict.fromkeys(("min", "max"), _min_max),
    **dict.fromkeys(("abs", "neg"), _abs_neg),
    "copysign": _copysign,
    "setp": _setp,
    "selp": _selp,
    "slct": _slct,
}
