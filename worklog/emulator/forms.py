"""The table of PTX instruction forms that are one expression over NumPy arrays.

To support another instruction, add a row. A word in capitals, in an opcode or an expression, is a class of CLASSES: the
row stands for each of the class's members. So is a list such as (lo=0|hi=16) in an opcode; the first one's meaning
(the word itself where none is given) takes the place of each @ in the expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

from worklog.emulator.ptx import DTYPES

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
BITS = ("b16", "b32", "b64")
# Types of two 16-bit numbers in a word have a dimension of length two.
SIXTEEN = {"f16": "half", "f16x2": "half", "bf16": "bfloat", "bf16x2": "bfloat"}
# Types of operands that are not as a register holds them: the register's type, and what the operand becomes.
UNPACKED = {
    "double": ("f32", "{}.astype('f8')"),
    **{t: ("b16", f"from_{name}({{}}, 'f8')") for t, name in SIXTEEN.items() if "x" not in t},
    **{t: ("b32", f"from_{name}(pairs({{}}), 'f8')") for t, name in SIXTEEN.items() if "x" in t},
    "u16x2": ("b32", "pairs({})"),
    "s16x2": ("b32", "pairs({}).view('i2')"),
}
# What becomes of a result of such a type.
PACKED = {
    **{t: f"to_{name}({{}})" if "x" not in t else f"paired(to_{name}({{}}))" for t, name in SIXTEEN.items()},
    "u16x2": "paired({})",
    "s16x2": "paired({})",
}
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
# Where the memories of a block and of a thread start in the generic address space; global addresses are generic.
SHARED_WINDOW, LOCAL_WINDOW = 1 << 60, 1 << 61

_ORDER = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
YES_INTEGER = {"u32": "np.uint32(0xFFFFFFFF)", "s32": "np.int32(-1)"}
_INTEGRAL = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# Each class: parts of an opcode, with what they become in the expression.
CLASSES: dict[str, dict[str, str]] = {
    "INTEGER": _same(*INTEGERS),
    "CARRIED": {name: name.replace("s", "u") for name in (*INTEGERS[2:], "b32")},
    "NARROW": _same(*WIDER),
    "SHIFTED": _same(*BITS, *INTEGERS),
    "LOGIC": _same(*BITS, "pred"),
    "BITS32": _same("b32", "b64", *INTEGERS[2:]),
    "PAIR": _same("u16x2", "s16x2"),
    "REDUCED": _same("u32", "s32", "b32"),
    "FLOAT": _same(*FLOATS),
    "SHORT": _same("f32", *SIXTEEN),
    "NUMBER": _same(*FLOATS, *SIXTEEN),
    "THIRTYTWO": _same("u32", "s32"),
    "MIXED": _same("u32.s32", "s32.u32", "s32.s32"),
    "SIXTEEN": _same(*SIXTEEN),
    "SINGLE": _same("f16", "bf16"),
    "DOUBLE": _same("f16x2", "bf16x2"),
    "ANY": _same(*DTYPES),
    "TO": _same("u8", "s8", *INTEGERS),
    "FROM": _same("u8", "s8", *INTEGERS),
    "SAME_SIXTEEN": _same(*(f"{name}.{name}" for name in SIXTEEN)),
    # Modifiers of float instructions; "" is without. FTZ also flushes the operands, and the result of a function that
    # doesn't take it; it exists for f32 and f16 only.
    "RN": {"": "", "rn": ""},
    "FTZ": {"": "", "ftz": ", ftz=True"},
    "SAT": {"": "", "sat": "saturate"},
    "RELU": {"": "", "relu": "relu"},
    "DIRECTED": _same("rz", "rm", "rp"),
    "MODE": _same("rn", "rz", "rm", "rp"),
    "ROUNDING": {"": "rn", **_same("rn", "rz", "rm", "rp")},
    "MODE2": _same("rn", "rz"),
    "INTEGRAL": _INTEGRAL,
    "ROUNDED": {"": "", **_INTEGRAL},
    # Operations.
    "FMA": _same("fma", "mad"),
    "MIN": {"min": "float_min", "max": "float_max"},
    "LEAST": {"min": "np.minimum", "max": "np.maximum"},
    "PLUS": {"add": "add_carry", "sub": "sub_borrow"},
    "SIGN": {"add": "", "sub": "-"},
    "SUM": {"add": "+", "sub": "-"},
    "BITWISE": {"and": "&", "or": "|", "xor": "^"},
    # The carry that a multiply-add takes, and the half of the product.
    "PART": {"lo": "{0} * {1}", "hi": "mul_hi({0}, {1})"},
    "MIDDLE": {"lo": "0", "hi": "16"},
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
    "COMBINE": {"": "", **{name: f", np.logical_{name}, {{2}}" for name in ("and", "or", "xor")}},
    "APPROXIMATE": {
        **{name: f"np.{name}" for name in ("sin", "cos", "tanh", "sqrt")},
        "ex2": "np.exp2",
        "lg2": "np.log2",
        "rcp": "np.reciprocal",
        "rsqrt": "lambda x: 1 / np.sqrt(x)",
    },
    "NARROWED": {"f16": "to_half", "bf16": "to_bfloat"},
    "EIGHT": {"e4m3x2": "3", "e5m2x2": "2"},  # digits of the fraction
    # What set gives where the comparison holds.
    "YES": {
        **YES_INTEGER,
        **dict.fromkeys(("f16", "bf16"), "np.float64(1)"),
        "f32": "np.float32(1)",
    },
    "YES_SINGLE": {"u16": "np.uint16(0xFFFF)", "s16": "np.int16(-1)", **YES_INTEGER},
    "TESTED": {
        "finite": "np.isfinite({0})",
        "infinite": "np.isinf({0})",
        "number": "{0} == {0}",
        "notanumber": "{0} != {0}",
        "normal": "np.isfinite({0}) & ((np.abs({0}) >= np.finfo(DTYPE).tiny) | ({0} == 0))",  # PTX ISA, testp: also 0
        "subnormal": "({0} != 0) & (np.abs({0}) < np.finfo(DTYPE).tiny)",
    },
    # prmt's modes: the selector by the low two bits of its operand.
    "PERMUTED": {
        "f4e": "(0x3210, 0x4321, 0x5432, 0x6543)",
        "b4e": "(0x5670, 0x6701, 0x7012, 0x0123)",
        "rc8": "(0x0000, 0x1111, 0x2222, 0x3333)",
        "ecl": "(0x3210, 0x3211, 0x3222, 0x3333)",
        "ecr": "(0x0000, 0x1110, 0x2210, 0x3210)",
        "rc16": "(0x1010, 0x3232, 0x1010, 0x3232)",
    },
    "CLAMPED": {"clamp": "True", "wrap": "False"},
    # Of barriers, fences and copies. A scope: whether it is wider than the block.
    "PLACE": {"": "generic", **dict.fromkeys(("shared", "shared::cta", "shared::cluster"), "shared")},
    "ORDER": {"": "", **_same("sc", "acq_rel", "acquire", "release", "relaxed")},
    "NEAR": {"": "", **_same("cta", "cluster")},
    "CLUSTER": {"": "", **_same("shared::cluster")},
    "ARRIVE": {"arrive": "", "arrive_drop": "drop"},
    "WAIT": _same("test_wait", "try_wait"),
    "WINDOW": {"shared": str(SHARED_WINDOW), "local": str(LOCAL_WINDOW), "global": "0", "const": "0", "param": "0"},
}


@dataclass(frozen=True)
class Form:
    """One form. sources: the operands' types; number: a literal; shared, generic: an address in shared memory.
    expression: of the operands {0}, {1}, …, the instruction's place {pc} and the active lanes {mask}. results: the
    destinations' types; the expression of two results is a tuple, that of none a statement.
    """

    sources: tuple[str, ...]
    expression: str
    results: tuple[str, ...]


# Opcode, operand types, expression, result types. t and s: the first and the last type in the opcode; w: twice t's
# width; pred?: only with COMBINE; double: a float32 as the float64 that holds it exactly; carry: the carry, as a second
# result. DTYPE: t's NumPy dtype.
_TABLE = (
    ("SUM.INTEGER", "t t", "{0} SUM {1}", "t"),
    ("PLUS.cc.CARRIED", "CARRIED CARRIED", "PLUS({0}, {1}, False)", "CARRIED carry"),
    ("PLUSc.cc.CARRIED", "CARRIED CARRIED", "PLUS({0}, {1}, {carry})", "CARRIED carry"),
    ("PLUSc.CARRIED", "CARRIED CARRIED", "PLUS({0}, {1}, {carry})[0]", "CARRIED"),
    ("mul.PART.INTEGER", "t t", "PART", "t"),
    ("mul.wide.NARROW", "t t", "mul_wide({0}, {1})", "w"),
    ("mad.PART.INTEGER", "t t t", "PART + {2}", "t"),
    ("mad.wide.NARROW", "t t w", "mul_wide({0}, {1}) + {2}", "w"),
    ("(div=0|rem=1).INTEGER", "t t", "divide({0}, {1})[@]", "t"),
    ("LEAST.INTEGER", "t t", "LEAST({0}, {1})", "t"),
    ("(abs=np.abs|neg=-).(s16|s32|s64)", "t", "@({0})", "t"),
    ("sad.INTEGER", "t t t", "{2} + np.where({0} < {1}, {1} - {0}, {0} - {1})", "t"),
    ("dp4a.u32.u32", "u32 u32 u32", "dot({0}, {1}, {2}, 8)", "u32"),
    ("dp4a.MIXED", "t s s32", "dot({0}, {1}, {2}, 8)", "s32"),
    ("dp2a.(lo=0|hi=2).u32.u32", "u32 u32 u32", "dot({0}, {1}, {2}, 16, @)", "u32"),
    ("dp2a.(lo=0|hi=2).MIXED", "t s s32", "dot({0}, {1}, {2}, 16, @)", "s32"),
    ("SUM.sat.s32", "t t", "clamp_integer({0}.astype('i8') SUM {1}, np.dtype('i4'))", "t"),
    ("mad.hi.sat.s32", "t t t", "clamp_integer(mul_hi({0}, {1}).astype('i8') + {2}, np.dtype('i4'))", "t"),
    ("(mad=False|madc={carry}).PART.cc.CARRIED", "t t CARRIED", "add_carry((PART).view({2}.dtype), {2}, @)",
     "CARRIED carry"),
    ("madc.PART.CARRIED", "t t CARRIED", "add_carry((PART).view({2}.dtype), {2}, {carry})[0]", "CARRIED"),
    ("mul24.MIDDLE.THIRTYTWO", "t t", "mul24({0}, {1}, MIDDLE)", "t"),
    ("mad24.MIDDLE.THIRTYTWO", "t t t", "mul24({0}, {1}, MIDDLE) + {2}", "t"),
    ("mad24.hi.sat.s32", "t t t", "clamp_integer(mul24({0}, {1}, 16).astype('i8') + {2}, np.dtype('i4'))", "t"),
    ("add.PAIR", "t t", "{0} + {1}", "t"),
    ("LEAST.PAIR", "t t", "LEAST({0}, {1})", "t"),
    ("LEAST.relu.(s16x2|s32)", "t t", "relu(LEAST({0}, {1}))", "t"),
    # Bits.
    ("BITWISE.LOGIC", "t t", "{0} BITWISE {1}", "t"),
    ("not.LOGIC", "t", "~{0}", "t"),
    ("lop3.b32", "t t t t", "lop3({0}, {1}, {2}, {3})", "t"),
    ("(shl|shr).SHIFTED", "t u32", "@({0}, {1})", "t"),
    ("shf.l.CLAMPED.b32", "t t t", "(joined({0}, {1}) << limited({2}, CLAMPED) >> np.uint64(32)).astype('u4')", "t"),
    ("shf.r.CLAMPED.b32", "t t t", "(joined({0}, {1}) >> limited({2}, CLAMPED)).astype('u4')", "t"),
    ("bfe.BITS32", "t u32 u32", "bfe({0}, {1}, {2})", "t"),
    ("bfi.BITS32", "t t u32 u32", "bfi({0}, {1}, {2}, {3})", "t"),
    ("brev.BITS32", "t", "brev({0})", "t"),
    ("popc.BITS32", "t", "np.bitwise_count({0}).astype('u4')", "u32"),
    ("clz.BITS32", "t", "clz({0})", "u32"),
    ("bfind.(=False|shiftamt=True).(u32|s32|u64|s64)", "t", "bfind({0}, @)", "u32"),
    ("prmt.b32", "t t t", "prmt({0}, {1}, {2})", "t"),
    ("prmt.b32.PERMUTED", "t t t", "prmt({0}, {1}, np.array(PERMUTED, 'u4')[{2} & np.uint32(3)])", "t"),
    ("lop3.(and|or).b32", "t t t t pred", "tested(lop3({0}, {1}, {2}, {3}), np.logical_@, {4})", "t pred"),
    ("cnot.(b16|b32|b64)", "t", "({0} == 0).astype(DTYPE)", "t"),
    ("bmsk.CLAMPED.b32", "u32 u32", "shl(mask(limited({1}, CLAMPED), np.dtype('u4')), limited({0}, CLAMPED))", "u32"),
    ("szext.CLAMPED.THIRTYTWO", "t u32", "bfe({0}, np.uint32([0]), limited({1}, CLAMPED))", "t"),
    # Moves, selections, comparisons.
    ("mov.ANY", "t", "{0}", "t"),
    ("selp.ANY", "t t pred", "np.where({2}, {0}, {1})", "t"),
    ("slct.ANY.(s32|f32)", "t t s", "np.where({2} >= 0, {0}, {1})", "t"),
    ("slct.ftz.ANY.f32", "t t f32", "np.where(flush({2}) >= 0, {0}, {1})", "t"),
    ("setp.COMPARE.COMBINE.SHIFTED", "t t pred?", "both({0} COMPARE {1} COMBINE)", "pred pred"),
    ("setp.COMPAREF.COMBINE.FTZ.(f32|f64|f16|bf16)", "t t pred?", "both(COMPAREF COMBINE)", "pred pred"),
    ("setp.COMPAREF.COMBINE.FTZ.DOUBLE", "t t pred?", "combined(COMPAREF COMBINE).T", "pred pred"),
    ("set.COMPARE.COMBINE.YES.SHIFTED", "s s pred?", "np.where(combined({0} COMPARE {1} COMBINE), YES, YES * 0)", "t"),
    ("set.COMPAREF.COMBINE.FTZ.YES.FLOAT", "s s pred?", "np.where(combined(COMPAREF COMBINE), YES, YES * 0)", "t"),
    ("set.COMPAREF.COMBINE.FTZ.YES_SINGLE.SINGLE", "s s pred?",
     "np.where(combined(COMPAREF COMBINE), YES_SINGLE, YES_SINGLE * 0)", "t"),
    ("set.COMPAREF.COMBINE.FTZ.SAME_SIXTEEN", "t t pred?", "np.where(combined(COMPAREF COMBINE), 1.0, 0.0)", "t"),
    ("set.COMPAREF.COMBINE.FTZ.REDUCED.DOUBLE", "s s pred?",
     "paired(combined(COMPAREF COMBINE) * np.uint16(0xFFFF))", "u32"),
    ("testp.TESTED.FLOAT", "t", "TESTED", "pred"),
    ("cvta.(=+|to=-).WINDOW.u64", "t", "{0} @ np.uint64(WINDOW)", "t"),
    (f"isspacep.(shared={SHARED_WINDOW >> 60}|local={LOCAL_WINDOW >> 60})", "b64", "{0} >> np.uint64(60) == @", "pred"),
    # Floats.
    ("SUM.RN.FTZ.SAT.FLOAT", "t t", "{0} SUM {1}", "t"),
    # In float64, the product of two float32 values is exact, and a quotient or a root is near enough to be rounded
    # again. The rows below take the place of those without .ftz.
    ("mul.ROUNDING.FTZ.SAT.f32", "double double", "rounded({0} * {1}, 'ROUNDING'FTZ)", "t"),
    ("div.MODE.FTZ.f32", "double double", "rounded(quiet(np.divide, {0}, {1}), 'MODE'FTZ)", "t"),
    ("(rcp=np.reciprocal|sqrt=np.sqrt).MODE.FTZ.f32", "double", "rounded(quiet(@, {0}), 'MODE'FTZ)", "t"),
    ("mul.RN.SAT.FLOAT", "t t", "quiet(np.multiply, {0}, {1})", "t"),
    ("div.rn.FLOAT", "t t", "quiet(np.divide, {0}, {1})", "t"),
    ("(rcp=np.reciprocal|sqrt=np.sqrt).rn.FLOAT", "t", "quiet(@, {0})", "t"),
    ("(abs=np.abs|neg=-).FTZ.NUMBER", "t", "@({0})", "t"),
    ("copysign.FLOAT", "t t", "np.copysign({1}, {0})", "t"),
    ("FMA.rn.FTZ.SAT.f32", "double double double", "fma_f32({0}, {1}, {2}FTZ)", "t"),
    ("FMA.rn.FTZ.SAT.f64", "t t t", "fma_f64({0}, {1}, {2})", "t"),
    ("SIGN.DIRECTED.FTZ.SAT.f32", "double double", "add_directed({0}, SIGN{1}, 'DIRECTED')", "t"),
    ("FMA.DIRECTED.FTZ.SAT.f32", "double double double", "add_directed({0} * {1}, {2}, 'DIRECTED'FTZ)", "t"),
    ("MIN.FTZ.NUMBER", "t t", "MIN({0}, {1})", "t"),
    ("MIN.FTZ.FLOAT", "t t t", "MIN(MIN({0}, {1}), {2})", "t"),
    ("MIN.FTZ.NaN.NUMBER", "t t", "or_nan(MIN({0}, {1}), {0}, {1})", "t"),
    ("MIN.FTZ.NaN.FLOAT", "t t t", "or_nan(MIN(MIN({0}, {1}), {2}), {0}, {1}, {2})", "t"),
    ("MIN.FTZ.xorsign.abs.SHORT", "t t", "xor_signed(MIN(np.abs({0}), np.abs({1})), {0}, {1})", "t"),
    ("MIN.FTZ.NaN.xorsign.abs.SHORT", "t t",
     "or_nan(xor_signed(MIN(np.abs({0}), np.abs({1})), {0}, {1}), {0}, {1})", "t"),
    # Numbers of 16 bits, in float64: a product is exact, a sum is rounded to odd, and the result is rounded once.
    ("SIGN.RN.FTZ.SAT.SIXTEEN", "t t", "quiet(round_to_odd, {0}, SIGN{1})", "t"),
    ("mul.RN.FTZ.SAT.SIXTEEN", "t t", "{0} * {1}", "t"),
    ("fma.rn.FTZ.SAT.SIXTEEN", "t t t", "quiet(round_to_odd, {0} * {1}, {2})", "t"),
    ("fma.rn.FTZ.relu.SIXTEEN", "t t t", "relu(quiet(round_to_odd, {0} * {1}, {2}))", "t"),
    ("APPROXIMATE.approx.FTZ.f32", "t", "nearest(APPROXIMATE, {0})", "t"),
    ("div.(approx|full).FTZ.f32", "t t", "nearest(np.divide, {0}, {1})", "t"),
    # Conversions.
    ("cvt.TO.FROM", "s", "{0}.astype(DTYPE)", "t"),
    ("cvt.sat.TO.FROM", "s", "clamp_integer({0}, np.dtype(DTYPE))", "t"),
    ("cvt.INTEGRAL.FTZ.SAT.TO.FLOAT", "s", "to_integer({0}, np.dtype(DTYPE), INTEGRAL)", "t"),
    ("cvt.rn.FTZ.SAT.FLOAT.FROM", "s", "{0}.astype(DTYPE)", "t"),
    ("cvt.ROUNDED.FTZ.SAT.(f32.f32|f64.f64)", "t", "ROUNDED({0})", "t"),
    ("cvt.FTZ.SAT.f64.f32", "s", "{0}.astype(DTYPE)", "t"),
    ("cvt.MODE.FTZ.SAT.f32.f64", "s", "rounded({0}, 'MODE'FTZ)", "t"),
    ("cvt.DIRECTED.SAT.f32.FROM", "s", "rounded(from_integer({0}), 'DIRECTED')", "t"),
    ("cvt.f32.(f16=half|bf16=bfloat)", "b16", "from_@({0})", "f32"),
    ("cvt.ftz.f32.SINGLE", "s", "flush({0}.astype('f4'))", "f32"),
    ("cvt.FTZ.sat.f32.f16", "s", "saturate({0}.astype('f4'))", "f32"),
    ("cvt.SAT.f64.SINGLE", "s", "{0}", "f64"),
    ("cvt.MODE.RELU.NARROWED.f32", "f32", "NARROWED(RELU({0}.astype('f8')), 'MODE')", "b16"),
    # For sm_90, ptxas makes F2F.FTZ of .ftz with bf16. With f16 an H200 flushes neither the operand nor the result.
    ("cvt.MODE.ftz.bf16.f32", "f32", "to_bfloat(flush({0}), 'MODE')", "b16"),
    ("cvt.MODE.ftz.f16.f32", "f32", "to_half({0}.astype('f8'), 'MODE')", "b16"),
    ("cvt.MODE.(|ftz).sat.f16.f32", "f32", "to_half(saturate({0}.astype('f8')), 'MODE')", "b16"),
    ("cvt.MODE.NARROWED.f64", "f64", "NARROWED({0}, 'MODE')", "b16"),
    ("cvt.MODE.sat.NARROWED.f64", "f64", "NARROWED(saturate({0}), 'MODE')", "b16"),
    ("cvt.MODE2.RELU.(f16x2=to_half|bf16x2=to_bfloat).f32", "double double",
     "joined(@(RELU({1}), 'MODE2'), @(RELU({0}), 'MODE2'))", "b32"),
    ("cvt.rn.RELU.f16x2.EIGHT", "u16", "RELU(from_eight({0}, EIGHT))", "f16x2"),
    ("cvt.rn.RELU.satfinite.EIGHT.f32", "double double",
     "to_eight(RELU(np.stack(np.broadcast_arrays({1}, {0}), -1)), EIGHT)", "b16"),
    ("cvt.rn.RELU.satfinite.EIGHT.f16x2", "f16x2", "to_eight(RELU({0}), EIGHT)", "b16"),
    ("cvt.MODE.NARROWED.FROM", "s", "NARROWED(from_integer({0}), 'MODE')", "b16"),
    ("cvt.INTEGRAL.SAT.TO.SINGLE", "s", "to_integer({0}.astype('f4'), np.dtype(DTYPE), INTEGRAL)", "t"),
    ("cvt.ROUNDED.SAT.(f16.f16|bf16.bf16)", "t", "ROUNDED({0})", "t"),
    ("cvt.MODE.NARROWED.SINGLE", "s", "NARROWED({0}, 'MODE')", "b16"),
    ("cvt.(rna|rn|rz).tf32.f32", "f32", "to_tf32({0}, '@')", "b32"),
    ("cvt.MODE2.relu.tf32.f32", "f32", "to_tf32(relu({0}), 'MODE2')", "b32"),
    ("cvt.pack.sat.(s16|u16).s32", "s s", "cvt_pack({0}, {1}, DTYPE)", "b32"),
    ("cvt.pack.sat.(s8|u8).s32.b32", "s32 s32 b32", "cvt_pack({0}, {1}, DTYPE) | {2} << np.uint32(16)", "b32"),
    # Warps.
    ("activemask.b32", "", "vote('ballot', S.lanes_of({mask}), S.lanes_of({mask}))", "u32"),
    ("vote.sync.(any|all|uni).pred", "pred b32", "S.exchange.between(vote, ('@',), {0})", "pred"),
    ("vote.sync.ballot.b32", "pred b32", "S.exchange.between(vote, ('ballot',), {0})", "u32"),
    ("redux.sync.(add|min|max|and|or|xor).REDUCED", "t b32", "S.exchange.between(reduced, ('@',), {0})", "t"),
    ("shfl.sync.(up|down|bfly|idx).b32", "b32 b32 b32 b32", "S.exchange.shuffle({pc}, '@', {0}, {1}, {2})", "u32 pred"),
    ("match.(any|all).sync.(b32|b64)", "t b32", "S.exchange.between(match, ('@',), {0})", "u32 pred"),
    ("elect.sync", "b32", "S.exchange.between(elect, ())", "u32 pred"),
    ("bar.warp.sync", "b32", "None", ""),
    ("movmatrix.sync.aligned.m8n8.trans.b16", "b32", "S.tensor.transpose({pc}, {mask}, {0})", "b32"),
    ("wgmma.fence.sync.aligned", "", "S.wgmma.fence({mask})", ""),
    ("wgmma.commit_group.sync.aligned", "", "S.wgmma.commit({mask})", ""),
    ("wgmma.wait_group.sync.aligned", "number", "S.wgmma.wait({mask}, {0})", ""),
    ("setmaxnreg.(inc|dec).sync.aligned.u32", "u32", "S.set_registers({pc}, {mask}, {0})", ""),
    # Fences change no value: lanes run in lockstep. What they order is checked.
    ("fence.ORDER.(cta=False|cluster=True|gpu=True|sys=True)", "", "S.fence({mask}, @)", ""),
    ("membar.(cta=False|gl=True|sys=True)", "", "S.fence({mask}, @)", ""),
    ("(fence|membar).proxy.alias", "", "None", ""),
    ("(fence|membar).proxy.async.(|global|shared::cta|shared::cluster)", "", "S.barriers.fence({mask}, False)", ""),
    ("fence.mbarrier_init.release.cluster", "", "S.fence({mask}, True), S.barriers.fence({mask}, True)", ""),
    # Copies and mbarriers. PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy" and "Parallel
    # Synchronization and Communication Instructions: mbarrier".
    ("cp.async.commit_group", "", "S.copies.commit({mask})", ""),
    ("cp.async.wait_all", "", "S.barriers.wait_copies({mask}, -1)", ""),
    ("cp.async.wait_group", "number", "S.barriers.wait_copies({mask}, {0})", ""),
    ("cp.async.bulk.commit_group", "", "S.bulk.commit({mask})", ""),
    ("cp.async.bulk.wait_group.(|read)", "number", "S.bulk.wait({mask}, {0})", ""),
    ("cp.async.mbarrier.arrive.(=False|noinc=True).PLACE.b64", "PLACE", "S.barriers.track({pc}, {0}, {mask}, @)", ""),
    ("mbarrier.init.PLACE.b64", "PLACE u32", "S.barriers.init({pc}, {0}, {mask}, {1})", ""),
    ("mbarrier.inval.PLACE.b64", "PLACE", "S.barriers.inval({pc}, {0}, {mask})", ""),
    ("mbarrier.(expect_tx=1|complete_tx=-1).ORDER.NEAR.PLACE.b64", "PLACE u32",
     "S.barriers.expect({pc}, {0}, {mask}, {1}, @)", ""),
    ("mbarrier.ARRIVE.ORDER.NEAR.PLACE.b64", "PLACE",
     "S.barriers.arrive({pc}, {0}, {mask}, np.ones(1, 'u4'), None, 'ARRIVE ORDER')", "b64"),
    ("mbarrier.ARRIVE.(|noComplete).ORDER.NEAR.PLACE.b64", "PLACE u32",
     "S.barriers.arrive({pc}, {0}, {mask}, {1}, None, 'ARRIVE @ ORDER')", "b64"),
    ("mbarrier.ARRIVE.expect_tx.ORDER.NEAR.PLACE.b64", "PLACE u32",
     "S.barriers.arrive({pc}, {0}, {mask}, np.ones(1, 'u4'), {1}, 'ARRIVE ORDER')", "b64"),
    *((f"mbarrier.WAIT.{parity}.ORDER.NEAR.PLACE.b64", f"PLACE {type_}{hint}",
       f"S.barriers.wait({{pc}}, {{0}}, {{mask}}, {{1}}, '{parity} ORDER')", "pred")
      for parity, type_ in (("", "b64"), ("parity", "u32")) for hint in ("", " u32")),
    ("mbarrier.pending_count.b64", "b64", "({0} & np.uint64(0xFFFFF)).astype('u4')", "u32"),
    # A cluster has one block, which has each of its addresses.
    ("mapa.CLUSTER.(u32|u64)", "t u32", "S.barriers.rank({pc}, {0}, {1}, {mask})", "t"),
    ("getctarank.CLUSTER.(u32|u64)", "t", "np.zeros(1, 'u4')", "u32"),
    # Calls: vprintf has the addresses of the format and of the arguments; __assertfail has message, file, line,
    # function and size of a character.
    ("call.vprintf", "u64 u64", "S.printed.call(S.lanes_of({mask}), {0}, {1})", "u32"),
    ("(trap|brkpt)", "", "S.abort({pc}, {mask})", ""),
    ("trap.assert", "u64 u64 u32 u64 u64", "S.abort({pc}, {mask}, {0})", ""),
)  # fmt: skip
_CLASS = rf"(?<![A-Za-z0-9])(?:{'|'.join(sorted(CLASSES, key=len, reverse=True))})(?![A-Z0-9_])"

_NAME, _MEANING = re.compile(rf"{_CLASS}|\([^)]*\)"), re.compile(rf"{_CLASS}|@")


def _members(name: str) -> dict[str, str]:
    """Of a class or of a list: the words, with what they become in the expression."""
    if name in CLASSES:
        return CLASSES[name]
    pairs = (word.partition("=") for word in name[1:-1].split("|"))
    return {word: meaning if sign else word for word, sign, meaning in pairs}


def _replaced(pattern: re.Pattern[str], words: dict[str, str], text: str) -> str:
    return pattern.sub(lambda name: words[name[0]], text)


# Arguments of the flush of an operand of a type that .ftz applies to.
_FLUSHED = {"f32": "", "double": "", "f16": ", 2.0**-14", "f16x2": ", 2.0**-14"}


def _forms(*row: str) -> dict[tuple[str, int], Form]:
    """The forms of one row, by opcode and number of operands."""
    names = _NAME.findall(row[0])
    out = {}
    for members in product(*(_members(name).items() for name in names)):
        parts, words = ({n: member[k] for n, member in zip(names, members, strict=True)} for k in (0, 1))
        words["@"] = next((words[name] for name in names if name[0] == "("), "")
        opcode = re.sub(r"\.+", ".", _replaced(_NAME, parts, row[0])).strip(".")
        if words.get("FTZ") and {"f32", "f16", "f16x2"}.isdisjoint(opcode.split(".")):
            continue
        sources, text, results = (_replaced(_MEANING, words, cell) for cell in row[1:])
        types = [part for part in opcode.split(".") if part in DTYPES or part in UNPACKED] or [""]
        meant = {"t": types[0], "s": types[-1], "w": WIDER.get(types[0], "")}
        cells = (sources.replace("pred?", "pred" if words.get("COMBINE") else ""), results)
        taken, given = (tuple(meant.get(name, name) for name in cell.split()) for cell in cells)
        text = text.replace("DTYPE", repr(DTYPES.get(types[0])))
        if words.get("FTZ"):
            for k, type_ in enumerate(taken):
                if type_ in _FLUSHED:
                    text = text.replace(f"{{{k}}}", f"flush({{{k}}}{_FLUSHED[type_]})")
            text = f"flush({text})" if given == ("f32",) and "ftz" not in text else text
        if words.get("SAT") and (given[0] in FLOATS or given[0] in SIXTEEN):
            text = f"saturate({text})"
        if given and given[0] in PACKED:
            text = PACKED[given[0]].replace("{}", text + words.get("FTZ", "") * ("b" not in given[0]))
            given = ("b32" if "x" in given[0] else "b16",)
        out[opcode, len(taken) + bool(given)] = Form(taken, text, given)
    return out


# By opcode and number of operands, the result included; two results are one operand.
FORMS = {key: form for row in _TABLE for key, form in _forms(*row).items()}
