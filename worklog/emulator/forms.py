"""The table of PTX instruction forms that are one expression over NumPy arrays.

To support another instruction, add a row. A word in capitals, in an opcode or an expression, is a class of CLASSES: the
row stands for each of the class's members.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

from worklog.emulator.ptx import DTYPES

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
BITS = ("b16", "b32", "b64")
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
# Where the memories of a block and of a thread start in the generic address space; global addresses are generic.
SHARED_WINDOW, LOCAL_WINDOW = 1 << 60, 1 << 61

_ORDER = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INTEGRAL = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# Each class: parts of an opcode, with what they become in the expression.
CLASSES: dict[str, dict[str, str]] = {
    "INTEGER": _same(*INTEGERS),
    "INTEGER32": _same(*INTEGERS[2:]),  # of 32 and 64 bits
    "CARRIED": {name: name.replace("s", "u") for name in (*INTEGERS[2:], "b32")},
    "SIGNED": _same("s16", "s32", "s64"),
    "NARROW": _same(*WIDER),
    "SHIFTED": _same(*BITS, *INTEGERS),
    "LOGIC": _same(*BITS, "pred"),
    "BITS32": _same("b32", "b64", *INTEGERS[2:]),
    "WORD": _same("b32", "b64"),
    "REDUCED": _same("u32", "s32", "b32"),
    "FLOAT": _same(*FLOATS),
    "ANY": _same(*DTYPES),
    "TO": _same("u8", "s8", *INTEGERS),
    "FROM": _same("u8", "s8", *INTEGERS),
    "ONE": _same("f32.f32", "f64.f64"),  # from a type to itself
    # Modifiers of float instructions; "" is without. FTZ also flushes the operands; it exists for f32 only.
    "RN": {"": "", "rn": ""},
    "FTZ": {"": "", "ftz": "flush"},
    "SAT": {"": "", "sat": "saturate"},
    "DIRECTED": _same("rz", "rm", "rp"),
    "INTEGRAL": _INTEGRAL,
    "ROUNDED": {"": "", **_INTEGRAL},
    # Operations.
    "FMA": _same("fma", "mad"),
    "MIN": {"min": "float_min", "max": "float_max"},
    "PLUS": {"add": "add_carry", "sub": "sub_borrow"},
    "SIGN": {"add": "", "sub": "-"},
    "COMPARE": {**_ORDER, "lo": "<", "ls": "<=", "hi": ">", "hs": ">="},
    "COMPAREF": {
        **{name: f"{{0}} {sign} {{1}}" for name, sign in _ORDER.items() if name != "ne"},
        "ne": "({0} < {1}) | ({0} > {1})",
        # Also true for NaN.
        "equ": "~(({0} < {1}) | ({0} > {1}))",
        "neu": "{0} != {1}",
        "ltu": "~({0} >= {1})",
        "leu": "~({0} > {1})",
        "gtu": "~({0} <= {1})",
        "geu": "~({0} < {1})",
        "num": "({0} == {0}) & ({1} == {1})",
        "nan": "({0} != {0}) | ({1} != {1})",
    },
    "COMBINE": {name: f"np.logical_{name}" for name in ("and", "or", "xor")},
    "COUNT": {"wrap": "{2} & np.uint32(31)", "clamp": "np.minimum({2}, np.uint32(32))"},
    "APPROXIMATE": {
        **{name: f"np.{name}" for name in ("sin", "cos", "tanh", "sqrt")},
        "ex2": "np.exp2",
        "lg2": "np.log2",
        "rcp": "np.reciprocal",
        "rsqrt": "lambda x: 1 / np.sqrt(x)",
    },
    "QUOTIENT": _same("approx", "full"),
    "HALF": {"f16": "from_half", "bf16": "from_bfloat"},
    "TO_HALF": {"f16": "to_half", "bf16": "to_bfloat"},
    "HALVES": {"f16x2": "to_half", "bf16x2": "to_bfloat"},
    "VOTE": _same("any", "all", "uni"),
    "REDUCTION": _same("add", "min", "max", "and", "or", "xor"),
    "SHUFFLE": _same("up", "down", "bfly", "idx"),
    "MATCH": _same("any", "all"),
    "WINDOW": {"shared": str(SHARED_WINDOW), "local": str(LOCAL_WINDOW), "global": "0", "const": "0", "param": "0"},
}


@dataclass(frozen=True)
class Form:
    """One form. sources: the operands' types. expression: of the operands {0}, {1}, …, the instruction's place {pc} and
    the active lanes {mask}. results: the destinations' types; the expression of two results is a tuple.
    """

    sources: tuple[str, ...]
    expression: str
    results: tuple[str, ...]


# Opcode, operand types, expression, result types. t and s: the first and the last type in the opcode; w: twice t's
# width; double: a float32 as the float64 that holds it exactly; carry: the carry, as a second result. DTYPE: t's
# NumPy dtype.
_TABLE = (
    ("add.INTEGER", "t t", "{0} + {1}", "t"),
    ("sub.INTEGER", "t t", "{0} - {1}", "t"),
    ("PLUS.cc.CARRIED", "CARRIED CARRIED", "PLUS({0}, {1}, False)", "CARRIED carry"),
    ("PLUSc.cc.CARRIED", "CARRIED CARRIED", "PLUS({0}, {1}, {carry})", "CARRIED carry"),
    ("PLUSc.CARRIED", "CARRIED CARRIED", "PLUS({0}, {1}, {carry})[0]", "CARRIED"),
    ("mul.lo.INTEGER", "t t", "{0} * {1}", "t"),
    ("mul.hi.INTEGER", "t t", "mul_hi({0}, {1})", "t"),
    ("mul.wide.NARROW", "t t", "mul_wide({0}, {1})", "w"),
    ("mad.lo.INTEGER", "t t t", "{0} * {1} + {2}", "t"),
    ("mad.hi.INTEGER", "t t t", "mul_hi({0}, {1}) + {2}", "t"),
    ("mad.wide.NARROW", "t t w", "mul_wide({0}, {1}) + {2}", "w"),
    ("div.INTEGER", "t t", "divide({0}, {1})[0]", "t"),
    ("rem.INTEGER", "t t", "divide({0}, {1})[1]", "t"),
    ("min.INTEGER", "t t", "np.minimum({0}, {1})", "t"),
    ("max.INTEGER", "t t", "np.maximum({0}, {1})", "t"),
    ("abs.SIGNED", "t", "np.abs({0})", "t"),
    ("neg.SIGNED", "t", "-{0}", "t"),
    ("sad.INTEGER", "t t t", "{2} + np.where({0} < {1}, {1} - {0}, {0} - {1})", "t"),
    ("dp4a.u32.u32", "u32 u32 u32", "dp4a({0}, {1}, {2})", "u32"),
    ("dp4a.u32.s32", "u32 s32 s32", "dp4a({0}, {1}, {2})", "s32"),
    ("dp4a.s32.u32", "s32 u32 s32", "dp4a({0}, {1}, {2})", "s32"),
    ("dp4a.s32.s32", "s32 s32 s32", "dp4a({0}, {1}, {2})", "s32"),
    # Bits.
    ("and.LOGIC", "t t", "{0} & {1}", "t"),
    ("or.LOGIC", "t t", "{0} | {1}", "t"),
    ("xor.LOGIC", "t t", "{0} ^ {1}", "t"),
    ("not.LOGIC", "t", "~{0}", "t"),
    ("lop3.b32", "t t t t", "lop3({0}, {1}, {2}, {3})", "t"),
    ("shl.SHIFTED", "t u32", "shl({0}, {1})", "t"),
    ("shr.SHIFTED", "t u32", "shr({0}, {1})", "t"),
    ("shf.l.COUNT.b32", "t t t", "(joined({0}, {1}) << (COUNT) >> np.uint64(32)).astype('u4')", "t"),
    ("shf.r.COUNT.b32", "t t t", "(joined({0}, {1}) >> (COUNT)).astype('u4')", "t"),
    ("bfe.BITS32", "t u32 u32", "bfe({0}, {1}, {2})", "t"),
    ("bfi.BITS32", "t t u32 u32", "bfi({0}, {1}, {2}, {3})", "t"),
    ("brev.BITS32", "t", "brev({0})", "t"),
    ("popc.BITS32", "t", "np.bitwise_count({0}).astype('u4')", "u32"),
    ("clz.BITS32", "t", "clz({0})", "u32"),
    ("bfind.INTEGER32", "t", "bfind({0}, False)", "u32"),
    ("bfind.shiftamt.INTEGER32", "t", "bfind({0}, True)", "u32"),
    ("prmt.b32", "t t t", "prmt({0}, {1}, {2})", "t"),
    # Moves, selections, comparisons.
    ("mov.ANY", "t", "{0}", "t"),
    ("selp.ANY", "t t pred", "np.where({2}, {0}, {1})", "t"),
    ("slct.ANY.s32", "t t s32", "np.where({2} >= 0, {0}, {1})", "t"),
    ("slct.ANY.f32", "t t f32", "np.where({2} >= 0, {0}, {1})", "t"),
    ("slct.ftz.ANY.f32", "t t f32", "np.where(flush({2}) >= 0, {0}, {1})", "t"),
    ("setp.COMPARE.SHIFTED", "t t", "both({0} COMPARE {1})", "pred pred"),
    ("setp.COMPARE.COMBINE.SHIFTED", "t t pred", "both({0} COMPARE {1}, COMBINE, {2})", "pred pred"),
    ("setp.COMPAREF.FTZ.FLOAT", "t t", "both(COMPAREF)", "pred pred"),
    ("setp.COMPAREF.COMBINE.FTZ.FLOAT", "t t pred", "both(COMPAREF, COMBINE, {2})", "pred pred"),
    ("cvta.WINDOW.u64", "t", "{0} + np.uint64(WINDOW)", "t"),
    ("cvta.to.WINDOW.u64", "t", "{0} - np.uint64(WINDOW)", "t"),
    # Floats.
    ("add.RN.FTZ.SAT.FLOAT", "t t", "{0} + {1}", "t"),
    ("sub.RN.FTZ.SAT.FLOAT", "t t", "{0} - {1}", "t"),
    ("mul.RN.FTZ.SAT.FLOAT", "t t", "quiet(np.multiply, {0}, {1})", "t"),
    ("div.rn.FTZ.FLOAT", "t t", "quiet(np.divide, {0}, {1})", "t"),
    ("rcp.rn.FTZ.FLOAT", "t", "quiet(np.reciprocal, {0})", "t"),
    ("sqrt.rn.FTZ.FLOAT", "t", "np.sqrt({0})", "t"),
    ("abs.FTZ.FLOAT", "t", "np.abs({0})", "t"),
    ("neg.FTZ.FLOAT", "t", "-{0}", "t"),
    ("copysign.FLOAT", "t t", "np.copysign({1}, {0})", "t"),
    ("FMA.rn.FTZ.SAT.f32", "double double double", "fma_f32({0}, {1}, {2})", "t"),
    ("FMA.rn.FTZ.SAT.f64", "t t t", "fma_f64({0}, {1}, {2})", "t"),
    # The product of two float32 values is exact in float64.
    ("SIGN.DIRECTED.FTZ.SAT.f32", "double double", "add_directed({0}, SIGN{1}, 'DIRECTED')", "t"),
    ("mul.DIRECTED.FTZ.SAT.f32", "double double", "directed({0} * {1}, 'DIRECTED')", "t"),
    ("FMA.DIRECTED.FTZ.SAT.f32", "double double double", "add_directed({0} * {1}, {2}, 'DIRECTED')", "t"),
    ("MIN.FTZ.FLOAT", "t t", "MIN({0}, {1})", "t"),
    ("MIN.FTZ.FLOAT", "t t t", "MIN(MIN({0}, {1}), {2})", "t"),
    ("MIN.FTZ.NaN.FLOAT", "t t", "or_nan(MIN({0}, {1}), {0}, {1})", "t"),
    ("MIN.FTZ.NaN.FLOAT", "t t t", "or_nan(MIN(MIN({0}, {1}), {2}), {0}, {1}, {2})", "t"),
    ("APPROXIMATE.approx.FTZ.f32", "t", "nearest(APPROXIMATE, {0})", "t"),
    ("div.QUOTIENT.FTZ.f32", "t t", "nearest(np.divide, {0}, {1})", "t"),
    # Conversions.
    ("cvt.TO.FROM", "s", "{0}.astype(DTYPE)", "t"),
    ("cvt.sat.TO.FROM", "s", "clamp_integer({0}, np.dtype(DTYPE))", "t"),
    ("cvt.INTEGRAL.FTZ.SAT.TO.FLOAT", "s", "to_integer({0}, np.dtype(DTYPE), INTEGRAL)", "t"),
    ("cvt.rn.FTZ.SAT.FLOAT.FROM", "s", "{0}.astype(DTYPE)", "t"),
    ("cvt.ROUNDED.FTZ.SAT.ONE", "t", "ROUNDED({0})", "t"),
    ("cvt.FTZ.SAT.f64.f32", "s", "{0}.astype(DTYPE)", "t"),
    ("cvt.rn.FTZ.SAT.f32.f64", "s", "quiet(np.ndarray.astype, {0}, DTYPE)", "t"),
    ("cvt.f32.HALF", "b16", "HALF({0})", "f32"),
    ("cvt.rn.TO_HALF.f32", "f32", "TO_HALF({0})", "b16"),
    ("cvt.rn.HALVES.f32", "f32 f32", "joined(HALVES({1}), HALVES({0}))", "b32"),
    # Warps.
    ("activemask.b32", "", "S.exchange.active({mask})", "u32"),
    ("vote.sync.VOTE.pred", "pred b32", "S.exchange.between({pc}, vote, {1}, {mask}, 'VOTE', {0})", "pred"),
    ("vote.sync.ballot.b32", "pred b32", "S.exchange.between({pc}, vote, {1}, {mask}, 'ballot', {0})", "u32"),
    ("redux.sync.REDUCTION.REDUCED", "t b32", "S.exchange.between({pc}, reduce, {1}, {mask}, 'REDUCTION', {0})", "t"),
    ("shfl.sync.SHUFFLE.b32", "b32 b32 b32 b32", "S.exchange.shuffle({pc}, {3}, {mask}, 'SHUFFLE', {0}, {1}, {2})",
     "u32 pred"),
    ("match.MATCH.sync.WORD", "t b32", "S.exchange.between({pc}, match, {1}, {mask}, 'MATCH', {0})", "u32 pred"),
    ("elect.sync", "b32", "S.exchange.between({pc}, elect, {0}, {mask})", "u32 pred"),
)  # fmt: skip
_CLASS = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(sorted(CLASSES, key=len, reverse=True))})(?![A-Z0-9_])")


def _with(members: dict[str, str], text: str) -> str:
    """The text with a member in place of each class."""
    return _CLASS.sub(lambda match: members[match[0]], text)


def _forms(*row: str) -> dict[tuple[str, int], Form]:
    """The forms of one row, by opcode and number of operands."""
    names = _CLASS.findall(row[0])
    out = {}
    for members in product(*(CLASSES[name].items() for name in names)):
        parts, words = ({n: member[k] for n, member in zip(names, members, strict=True)} for k in (0, 1))
        opcode = re.sub(r"\.+", ".", _with(parts, row[0]))
        if words.get("FTZ") and "f32" not in opcode:
            continue
        sources, text, results = (_with(words, cell) for cell in row[1:])
        types = [part for part in opcode.split(".") if part in DTYPES] or [""]
        meant = {"t": types[0], "s": types[-1], "w": WIDER.get(types[0], "")}
        taken, given = (tuple(meant.get(name, name) for name in cell.split()) for cell in (sources, results))
        text = text.replace("DTYPE", repr(DTYPES.get(types[0])))
        if words.get("FTZ"):
            for k, type_ in enumerate(taken):
                text = text.replace(f"{{{k}}}", f"flush({{{k}}})") if type_ in ("f32", "double") else text
            text = f"flush({text})" if given == ("f32",) else text
        if words.get("SAT") and given[0] in FLOATS:
            text = f"saturate({text})"
        out[opcode, len(taken)] = Form(taken, text, given)
    return out


# By opcode and number of operands.
FORMS = {key: form for row in _TABLE for key, form in _forms(*row).items()}
