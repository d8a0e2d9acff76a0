"""The instructions that are one C expression over the operands of a lane, and the C code that the core includes.

Of the standard library alone, since a build has nothing else: `python ops.py` writes the code. A word in braces in an
opcode stands for each of its alternatives; T is the last type of the opcode, S the one before, W twice T's width.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

C_TYPES = {
    "pred": "uint32_t", "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t",
    "s16": "int16_t", "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "f32": "float", "b64": "uint64_t",
    "u64": "uint64_t", "s64": "int64_t", "f64": "double",
}  # fmt: skip
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
INT, INT2 = "{u16,s16,u32,s32,u64,s64}", "{u32,s32,u64,s64}"
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNSIGNED_COMPARE = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
# Opcode, types of the operands, expression of a, b, c; {op} is the first alternative's meaning. Integers wrap: U and
# are T without a sign.
TABLE = (
    ("mov.{pred,b16,b32,u32,s32,f32,b64,u64,s64,f64,u16,s16}", "T", "a"),
    ("{add:+,sub:-}." + INT, "T T", "(T)((U)a {op} (U)b)"),
    ("mul.lo." + INT, "T T", "(T)((W64)a * (W64)b)"),
    ("mad.lo." + INT, "T T T", "(T)((W64)a * (W64)b + (W64)c)"),
    ("mul.wide.{u16,s16,u32,s32}", "T T", "(W)a * (W)b"),
    ("mad.wide.{u16,s16,u32,s32}", "T T W", "(W)((UW)((W)a * (W)b) + (UW)c)"),
    ("mul.hi.{u32,s32}", "T T", "(T)(((W)a * (W)b) >> 32)"),
    ("{min:<,max:>}." + INT, "T T", "a {op} b ? a : b"),
    ("neg.{s32,s64}", "T", "(T)(0 - (U)a)"),
    ("abs.{s32,s64}", "T", "a < 0 ? (T)(0 - (U)a) : a"),
    ("{and:&,or:|,xor:^}.{b16,b32,b64,pred}", "T T", "a {op} b"),
    ("not.{b16,b32,b64,pred}", "T", "~a"),
    ("shl.{b16,b32,b64}", "T u32", "b < BITS ? (T)(a << b) : 0"),
    ("shr.{b16,b32,b64,u16,u32,u64}", "T u32", "b < BITS ? (T)(a >> b) : 0"),
    ("shr.{s16,s32,s64}", "T u32", "(T)(a >> (b < BITS ? b : BITS - 1))"),
    ("bfi.b32", "b32 b32 u32 u32", "bfi(a, b, c, e)"),
    ("selp.{b16,b32,u32,s32,f32,b64,u64,s64,f64}", "T T pred", "c >> k & 1 ? a : b"),
    ("{add:+,sub:-}.{f32,f64,rn.f32,rn.f64}", "T T", "a {op} b"),
    ("mul.{f32,f64,rn.f32,rn.f64}", "T T", "a * b"),
    ("fma.rn.f32", "T T T", "fmaf(a, b, c)"),
    ("fma.rn.f64", "T T T", "fma(a, b, c)"),
    ("sqrt.rn.f32", "T", "sqrtf(a)"),
    ("sqrt.rn.f64", "T", "sqrt(a)"),
    ("abs.{f32,f64}", "T", "fabs(a)"),
    ("min.{f32,f64}", "T T", "least(a, b)"),
    ("max.{f32,f64}", "T T", "-least(-a, -b)"),
    ("cvt.f64.f32", "T", "a"),
    ("cvt.rn.f32.f64", "T", "(float)a"),
    ("cvt.rn.f64.{u32,s32,u64,s64}", "T", "(double)a"),
    ("div.{u16,s16,u32,s32,u64,s64}", "T T", "b ? SIGNED && b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b) : (T)-1"),
    ("rem.{u16,s16,u32,s32,u64,s64}", "T T", "b ? SIGNED && b == (T)-1 ? (T)0 : (T)(a % b) : (T)-1"),
    ("popc.b32", "T", "(uint32_t)__builtin_popcount(a)"),
    ("clz.b32", "T", "a ? (uint32_t)__builtin_clz(a) : 32"),
    ("sad.{u32,s32}", "T T T", "(T)((U)c + (a < b ? (U)b - (U)a : (U)a - (U)b))"),
    ("div.rn.{f32,f64}", "T T", "a / b"),
    ("neg.{f32,f64}", "T", "-a"),
    ("cvt.{u16,s16,u32,s32,u64,s64}.{u8,s8,u16,s16,u32,s32,u64,s64}", "T", "(R)a"),
    ("cvta.to.global.u64", "u64", "a"),
    ("cvta.global.u64", "u64", "a"),
    ("cvt.rn.f32.{u32,s32,u64,s64}", "T", "(float)a"),
    *((f"setp.{name}.{INT}", "T T", f"a {sign} b") for name, sign in COMPARE.items()),
    *((f"setp.{name}.{{u16,u32,u64}}", "T T", f"a {sign} b") for name, sign in UNSIGNED_COMPARE.items()),
    *((f"setp.{name}.{{b16,b32,b64}}", "T T", f"a {sign} b") for name, sign in [*COMPARE.items()][:2]),
    *((f"setp.{name}.{{f32,f64}}", "T T", f"a {sign} b") for name, sign in COMPARE.items() if name != "ne"),
    ("setp.ne.{f32,f64}", "T T", "a < b || a > b"),
    ("setp.{ltu:>=,leu:>,gtu:<=,geu:<}.{f32,f64}", "T T", "!(a {op} b)"),
    ("setp.equ.{f32,f64}", "T T", "!(a < b || a > b)"),
    ("setp.neu.{f32,f64}", "T T", "a != b"),
    ("setp.num.{f32,f64}", "T T", "a == a && b == b"),
    ("setp.nan.{f32,f64}", "T T", "a != a || b != b"),
)  # fmt: skip


class Op(NamedTuple):
    """number: of the C code. result, sources: PTX types."""

    number: int
    result: str
    sources: tuple[str, ...]
    expression: str


def _rows() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    for pattern, sources, expression in TABLE:
        lists = re.findall(r"\{([^}]*)\}", pattern)
        for chosen in product(*(words.split(",") for words in lists)):
            opcode = pattern
            for word in chosen:
                opcode = re.sub(r"\{[^}]*\}", word.partition(":")[0], opcode, count=1)
            meanings = [word.partition(":")[2] for word in chosen if ":" in word]
            types = [part for part in opcode.split(".") if part in C_TYPES]
            last = types[-1]
            names = {"T": last, "W": WIDER.get(last, last)}
            result = names["W"] if ".wide." in opcode else types[0]
            result = "pred" if opcode.startswith("setp") else result
            taken = tuple(names.get(name, name) for name in sources.split())
            yield opcode, result, taken, _in_c(expression, last, result, meanings)


def _in_c(expression: str, last: str, result: str, meanings: list[str]) -> str:
    """T, R, U, W, UW, W64 and BITS as C."""
    wide = WIDER.get(last, last)
    unsigned = {name: C_TYPES[name].replace("int", "uint").replace("uuint", "uint") for name in (last, wide)}
    words = {"T": C_TYPES[last], "R": C_TYPES[result], "U": unsigned[last], "W": C_TYPES[wide], "UW": unsigned[wide]}
    words |= {"W64": "uint64_t", "BITS": re.sub(r"\D", "", last), "SIGNED": str(int(last[0] == "s"))}
    text = expression.replace("{op}", meanings[0]) if meanings else expression
    return re.sub(r"\b(?:T|R|U|W|UW|W64|BITS|SIGNED)\b", lambda word: words[word[0]], text)


# By opcode; number 0 does nothing.
OPS = {
    opcode: Op(number, result, sources, expression)
    for number, (opcode, result, sources, expression) in enumerate({row[0]: row for row in _rows()}.values(), 1)
}


def code() -> str:
    """The cases of the core's switch."""
    out = ["case 0: break;"]
    for opcode, op in OPS.items():
        lanes = op.expression
        declared = []
        for name, type_ in zip("abce", op.sources, strict=False):
            field = "site" if name == "e" else name
            if type_ == "pred":
                declared.append(f"uint32_t {name}_ = *AT(uint32_t, i->{field});")
                lanes = re.sub(rf"\b{name}\b", f"{name}_", lanes)
            else:
                declared.append(f"const {C_TYPES[type_]} *{name}_ = AT({C_TYPES[type_]}, i->{field});")
                lanes = re.sub(rf"\b{name}\b", f"{name}_[k]", lanes)
        if op.result != "pred":
            act = f"EACH({C_TYPES[op.result]}, {lanes});"
        elif opcode.startswith("setp"):
            act = f"TEST({lanes});"
        else:
            act = f"*AT(uint32_t, i->d) = (*AT(uint32_t, i->d) & ~mask) | (({lanes}) & mask);"
        out.append(f"case {op.number}: {{ /* {opcode} */ {' '.join(declared)} {act} break; }}")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(code())
