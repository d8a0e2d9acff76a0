"""Rules that turn PTX instructions on values into expressions over NumPy arrays, where a row of worklog.emulator.forms
is not enough: modifiers, immediates, carries, moves and conversions.

A rule gets the writer and the instruction. It returns False for a form (modifier, type, rounding) that it does not
support, which becomes an error that names the instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from worklog.emulator.floats import APPROXIMATED
from worklog.emulator.forms import BITS, FLOATS, INTEGERS
from worklog.emulator.ptx import DTYPES, Imm, Instruction, Vec

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

Rule = Callable[["Writer", Instruction], bool]

DIRECTED = {"rz", "rm", "rp"}
# Opcode: expression of its operands, {one} is 1.0; whether .rn is required.
_FLOAT_FORMS = {
    "add": ("{0} + {1}", False),
    "sub": ("{0} - {1}", False),
    "mul": ("float_mul({0}, {1})", False),
    "div": ("float_div({0}, {1})", True),
    "rcp": ("float_div({one}, {0})", True),
    "sqrt": ("np.sqrt({0})", True),
    "abs": ("np.abs({0})", False),
    "neg": ("-{0}", False),
}


def is_approximate(instruction: Instruction) -> bool:
    """Whether the result's last bits are the hardware's own."""
    return instruction.parts[0] in APPROXIMATED and bool({"approx", "full"} & set(instruction.parts))


def _sources(w: Writer, i: Instruction, type_: str) -> list[str]:
    """The operands as floats; subnormals become zero under .ftz."""
    texts = [w.source(operand, type_) for operand in i.operands[1:]]
    return [f"flush({text})" for text in texts] if "ftz" in i.parts else texts


def _result(w: Writer, i: Instruction, expression: str, further: tuple[str, ...] = ()) -> bool:
    """Store a float result under .ftz and .sat; any modifier besides these, .rn and `further` is not supported."""
    modifiers, type_ = set(i.parts[1:-1]), i.parts[-1]
    if modifiers - {"rn", "ftz", "sat", *further} or ("ftz" in modifiers and type_ != "f32"):
        return False
    expression = f"flush({expression})" if "ftz" in modifiers else expression
    expression = f"saturate({expression})" if "sat" in modifiers else expression
    w.result(i.operands[0], expression, DTYPES[type_])
    return True


def _float(w: Writer, i: Instruction) -> bool:
    """Arithmetic on float32 and float64."""
    name, type_ = i.parts[0], i.parts[-1]
    if type_ not in FLOATS:
        return False
    if type_ == "f32" and DIRECTED & set(i.parts) and name in ("add", "sub", "mul"):
        return _directed(w, i)
    expression, needs_rn = _FLOAT_FORMS[name]
    if needs_rn and "rn" not in i.parts:
        return False
    operands = _sources(w, i, type_)
    return _result(w, i, expression.format(*operands, one=w.constant(1.0, DTYPES[type_])))


def _directed(w: Writer, i: Instruction) -> bool:
    """add, sub, mul and fma of float32 with .rz, .rm or .rp."""
    doubles = [f"{source}.astype('f8')" for source in _sources(w, i, "f32")]
    if i.parts[0] == "sub":
        doubles[1] = f"-{doubles[1]}"
    (mode,) = DIRECTED & set(i.parts)
    # The product of two float32 values is exact in float64.
    exact = doubles if i.parts[0] in ("add", "sub") else [f"{doubles[0]} * {doubles[1]}", *doubles[2:]]
    name = "directed" if len(exact) == 1 else "add_directed"
    return _result(w, i, f"{name}({', '.join(exact)}, {mode!r})", (mode,))


def _fma(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if type_ == "f32" and DIRECTED & set(i.parts):
        return _directed(w, i)
    if type_ not in FLOATS or "rn" not in i.parts:
        return False
    if type_ == "f64" or not w.program.exact:
        return _result(w, i, f"fma_{'f64' if type_ == 'f64' else 'fast_f32'}({', '.join(_sources(w, i, type_))})")
    if "ftz" in i.parts:
        doubles = [f"{source}.astype('f8')" for source in _sources(w, i, type_)]
    else:
        doubles = [w.exact_double(operand) for operand in i.operands[1:4]]
    return _result(w, i, f"fma_f32({', '.join(doubles)})")


def _min_max(w: Writer, i: Instruction) -> bool:
    if i.parts[-1] not in FLOATS or len(i.operands) < 3:
        return False
    first, *others = _sources(w, i, i.parts[-1])
    for other in others:
        least = f"float_{i.parts[0]}({first}, {other})"
        first = f"or_nan({first}, {other}, {least})" if "NaN" in i.parts else least
    return _result(w, i, first, ("NaN",))


def _approximate(w: Writer, i: Instruction) -> bool:
    """.approx and .full on float32, .ftz or not."""
    if i.parts[-1] != "f32" or set(i.parts[1:-1]) - {"approx", "full", "ftz"} or not is_approximate(i):
        return False
    expression = f"nearest({i.parts[0]!r}, {', '.join(_sources(w, i, 'f32'))})"
    w.result(i.operands[0], f"flush({expression})" if "ftz" in i.parts else expression, "f4")
    return True


def _carry(w: Writer, i: Instruction) -> bool:
    """add.cc, addc, sub.cc, subc: the carry is a local of the generated block, so a chain must be in one block."""
    type_ = i.parts[-1]
    takes, gives, minus = i.parts[0].endswith("c"), "cc" in i.parts, i.parts[0].startswith("sub")
    if set(i.parts[1:-1]) - {"cc"} or not (takes or gives) or (takes and not w.carry):
        return False
    if i.guard or type_ not in ("u32", "s32", "u64", "s64", "b32"):
        return False
    unsigned = DTYPES[type_].replace("i", "u")
    sources = [w.source(operand, type_) for operand in i.operands[1:]]
    a, b = (w.fresh(f"{x}.view({unsigned!r})") for x in sources)
    before = f"{w.carry}.astype({unsigned!r})" if takes else ""
    symbol = "-" if minus else "+"
    total = w.fresh(f"{a} {symbol} {b}" + (f" {symbol} {before}" if takes else ""))
    if gives:
        over = f"({a} < {b})" if minus else f"({total} < {a})"
        edge = f"({a} == {b})" if minus else f"({total} == {a})"
        w.carry = w.fresh(f"{over} | ({edge} & {w.carry})" if takes else over)
    w.result(i.operands[0], total, unsigned)
    return True


def _shift(w: Writer, i: Instruction) -> bool:
    type_, name = i.parts[-1], i.parts[0]
    if len(i.parts) != 2 or type_ not in (*BITS, *INTEGERS):
        return False
    count = i.operands[2]
    a = w.source(i.operands[1], type_)
    if isinstance(count, Imm) and 0 <= int(count.value) < int(type_[1:]):
        expression = f"{a} {'<<' if name == 'shl' else '>>'} {w.constant(int(count.value), DTYPES[type_])}"
    else:
        expression = f"{name}({a}, {w.source(count, 'u32')})"
    w.result(i.operands[0], expression, DTYPES[type_])
    return True


def _lop3(w: Writer, i: Instruction) -> bool:
    table = i.operands[4]
    if i.op != "lop3.b32" or not isinstance(table, Imm):
        return False
    a, b, c = (w.source(operand, "b32") for operand in i.operands[1:4])
    w.result(i.operands[0], f"lop3({a}, {b}, {c}, {int(table.value)})", "u4")
    return True


_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
            "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_COMBINE = {"and": "&", "or": "|", "xor": "^"}


def _setp(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    compare, *combine = [part for part in i.parts[1:-1] if part != "ftz"]
    if len(combine) > 1 or (combine and combine[0] not in _COMBINE) or type_ not in (*FLOATS, *INTEGERS, *BITS):
        return False
    a, b = (w.source(operand, type_) for operand in i.operands[1:3])
    if type_ in FLOATS and "ftz" in i.parts:
        a, b = f"flush({a})", f"flush({b})"
    expression = _comparison(compare, a, b, type_)
    if not expression:
        return False
    test = w.fresh(expression)
    targets = i.operands[0].items if isinstance(i.operands[0], Vec) else (i.operands[0],)
    other = w.source(i.operands[3], "pred") if combine else ""
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


def _mov(w: Writer, i: Instruction) -> bool:
    """Also packs two halves into a word and unpacks them."""
    type_, (target, value) = i.parts[-1], i.operands
    if len(i.parts) != 2:
        return False
    if not isinstance(value, Vec) and not isinstance(target, Vec):
        w.result(target, w.source(value, type_), DTYPES[type_])
        return True
    half, dtype = f"b{int(type_[1:]) // 2}", DTYPES[type_]
    items = value.items if isinstance(value, Vec) else target.items if isinstance(target, Vec) else ()
    if type_ not in BITS or half not in BITS or len(items) != 2:
        return False
    bits = int(half[1:])
    if isinstance(value, Vec):
        low, high = (f"{w.source(item, half)}.astype({dtype!r})" for item in items)
        w.result(target, f"({high} << {w.constant(bits, dtype)}) | {low}", dtype)
        return True
    whole = w.source(value, type_)
    for k, item in enumerate(items):
        if item is not None:
            w.result(item, f"({whole} >> {w.constant(k * bits, dtype)}).astype({DTYPES[half]!r})", DTYPES[half])
    return True


_INTEGRAL = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}
_NARROW, _WIDE = {"f16": "to_half", "bf16": "to_bfloat"}, {"f16": "from_half", "bf16": "from_bfloat"}


def _cvt_half(w: Writer, i: Instruction) -> bool:
    """Between float32 and the 16-bit formats, to the nearest; two of them make a word, the first operand on top."""
    to, source = i.parts[-2:]
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
    if {to, source} & {"f16", "bf16", "f16x2", "bf16x2"}:
        return _cvt_half(w, i)
    modifiers = set(i.parts[1:-2])
    rounding = modifiers & {"rn", "rni", "rzi", "rmi", "rpi"}
    if len(rounding) > 1 or modifiers - rounding - {"ftz", "sat"}:
        return False
    a = w.source(i.operands[1], source)
    a = f"flush({a})" if source == "f32" and "ftz" in modifiers else a
    how, sat, dtype = next(iter(rounding), ""), "sat" in modifiers, DTYPES[to]
    if source in FLOATS and to not in FLOATS:
        expression = f"to_integer({a}, np.dtype({dtype!r}), {_INTEGRAL[how]})" if how in _INTEGRAL else ""
    elif to in FLOATS:
        expression = _to_float(a, source, to, how)
        expression = f"saturate({expression})" if expression and sat else expression
        expression = f"flush({expression})" if expression and "ftz" in modifiers and to == "f32" else expression
    else:
        expression = f"clamp_integer({a}, np.dtype({dtype!r}))" if sat else f"{a}.astype({dtype!r})"
    if expression:
        w.result(i.operands[0], expression, dtype)
    return bool(expression)


def _to_float(a: str, source: str, to: str, how: str) -> str:
    if source not in FLOATS:
        return f"{a}.astype({DTYPES[to]!r})" if how == "rn" else ""
    if source == to:
        return f"{_INTEGRAL[how]}({a})" if how in _INTEGRAL else a
    if to == "f64":
        return f"{a}.astype('f8')" if not how else ""
    return f"round_f32({a})" if how == "rn" else ""


def _cvta(w: Writer, i: Instruction) -> bool:
    """Shared and local memory have windows in the generic address space; global and const addresses are generic."""
    space = next((part for part in ("shared", "local", "global", "const", "param") if part in i.parts), "")
    if i.parts[-1] != "u64" or not space:
        return False
    a = w.source(i.operands[1], "u64")
    window = w.fresh(f"S.window({space!r})")
    w.result(i.operands[0], f"{a} {'-' if 'to' in i.parts else '+'} {window}", "u8")
    return True


def _createpolicy(w: Writer, i: Instruction) -> bool:
    """A cache policy only reaches cache hints, which the emulator ignores: any number will do."""
    w.result(i.operands[0], w.constant(0, "u8"), "u8")
    return i.parts[-1] == "b64"


def _either(first: Rule, second: Rule) -> Rule:
    """The first rule, and for forms that it does not support the second."""
    return lambda w, i: first(w, i) or second(w, i)


VALUE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "sub"), _either(_carry, _float)),
    **dict.fromkeys(("addc", "subc"), _carry),
    **dict.fromkeys(("mul", "abs", "neg"), _float),
    **dict.fromkeys(("fma", "mad"), _fma),
    **dict.fromkeys(("min", "max"), _min_max),
    **dict.fromkeys(APPROXIMATED, _approximate),
    **dict.fromkeys(("div", "sqrt", "rcp"), _either(_approximate, _float)),
    **dict.fromkeys(("shl", "shr"), _shift),
    "lop3": _lop3,
    "setp": _setp,
    "mov": _mov,
    "cvt": _cvt,
    "cvta": _cvta,
    "createpolicy": _createpolicy,
}
