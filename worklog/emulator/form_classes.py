"""Classes of words in the table of PTX instruction forms (worklog.emulator.forms), and types of operands."""

from __future__ import annotations

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
    "INTEGER32": _same(*INTEGERS[2:]),  # of 32 and 64 bits
    "CARRIED": {name: name.replace("s", "u") for name in (*INTEGERS[2:], "b32")},
    "SIGNED": _same("s16", "s32", "s64"),
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
