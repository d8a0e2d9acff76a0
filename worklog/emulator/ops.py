"""The instructions that compute a value of each lane: as one C expression, or in steps.

Of the standard library alone, since a build has nothing else: build.py writes the C code that the
core includes. A word in braces in an opcode stands for each of its alternatives; {0} is the meaning
of the first such list's word, or the word itself. T is the last type of the opcode, R the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

C_TYPES = {
    "pred": "uint32_t", "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t",
    "s16": "int16_t", "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "f32": "float", "b64": "uint64_t",
    "u64": "uint64_t", "s64": "int64_t", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t", "f16x2": "uint32_t",
    "bf16x2": "uint32_t", "e4m3": "uint8_t", "e5m2": "uint8_t", "e4m3x2": "uint16_t", "e5m2x2": "uint16_t",
    "u16x2": "uint32_t", "s16x2": "uint32_t",
}  # fmt: skip
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64", "u64": "u128", "s64": "s128"}
WIDE = {"u128": "unsigned __int128", "s128": "__int128"}
INT = "{u16,s16,u32,s32,u64,s64}"
INT8 = "{u8,s8,u16,s16,u32,s32,u64,s64}"
INTEGRAL = "{rni,rzi,rmi,rpi}"
MODE = "{rn,rz,rm,rp}"
HALF = "{f16,bf16}"
ANY = "{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}"
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNSIGNED_COMPARE = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
TESTS = f"{{{','.join([*COMPARE, *UNSIGNED_COMPARE])},equ,neu,ltu,leu,gtu,geu,num,nan}}"
COMPARED = f"{ANY[:-1]},f16,bf16}}"
# Functions whose calls become vector instructions; the others' code is made for single lanes alone.
QUICK = {
    "fma",
    "fused",
    "sqrt",
    "sqrtf",
    "fabs",
    "fabsf",
    "least",
    "flush_f32",
    "limited",
    "wrapped",
    "joined_words",
}
REDUCING = (
    "add",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "exch",
    "cas",
    "inc",
    "dec",
)  # of atomics and redux
# What set gives where the comparison holds, as bits.
YES = "{u32:4294967295,s32:4294967295,b32:4294967295,f32:1065353216,u16:65535,s16:65535,f16:15360,bf16:16256}"

# Opcode, types of the operands, expression of a, b, c and e, and the result's type where it is not
# R. Integers wrap: U is T without a sign, W twice as wide. A predicate is a mask of lanes: bit k is
# lane k's. Some opcodes are no PTX: they are steps of others. The functions are those of
# arithmetic.h.
TABLE = (
    ("mov.{pred,b16,b32,u32,s32,f32,b64,u64,s64,f64,u16,s16}", "T", "a"),
    ("{add:+,sub:-}." + INT, "T T", "(T)((U)a {0} (U)b)"),
    ("mul.lo." + INT, "T T", "(T)((W64)a * (W64)b)"),
    ("mad.lo." + INT, "T T T", "(T)((W64)a * (W64)b + (W64)c)"),
    ("mul.wide.{u16,s16,u32,s32}", "T T", "(W)a * (W)b", "W"),
    ("mad.wide.{u16,s16,u32,s32}", "T T W", "(W)((UW)((W)a * (W)b) + (UW)c)", "W"),
    ("mul.hi." + INT, "T T", "(T)(((W)a * (W)b) >> BITS)"),
    ("mul24.{lo:0,hi:16}.{u32,s32}", "T T", "(T)(((W)((T)((U)a << 8) >> 8) * (W)((T)((U)b << 8) >> 8)) >> {0})"),
    ("{add:+,sub:-}.sat.s32", "T T", "(T)clamp((W)a {0} (W)b, INT32_MIN, INT32_MAX)"),
    ("{min:<,max:>}." + INT, "T T", "a {0} b ? a : b"),
    ("neg.{s16,s32,s64}", "T", "(T)(0 - (U)a)"),
    ("abs.{s16,s32,s64}", "T", "a < 0 ? (T)(0 - (U)a) : a"),
    ("relu.{s16,s32}", "T", "a < 0 ? 0 : a"),
    ("div." + INT, "T T", "b ? SIGNED && b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b) : (T)-1"),
    ("rem." + INT, "T T", "b ? SIGNED && b == (T)-1 ? (T)0 : (T)(a % b) : (T)-1"),
    ("sad." + INT, "T T T", "(T)((U)c + (a < b ? (U)b - (U)a : (U)a - (U)b))"),
    ("dp4a.{u32:0,s32:1}.{u32:0,s32:1}", "u32 u32 u32", "dot(a, b, c, 8, 0, {0}, {1})", "u32"),
    ("dp2a.{lo:0,hi:2}.{u32:0,s32:1}.{u32:0,s32:1}", "u32 u32 u32", "dot(a, b, c, 16, {0}, {1}, {2})", "u32"),
    ("sum.add.{u32,u64}", "T T pred", "a + b + (c >> k & 1)"),
    ("sum.sub.{u32,u64}", "T T pred", "a - b - (c >> k & 1)"),
    ("carry.add.{u32,u64}", "T T pred", "c >> k & 1 ? (T)(a + b + 1) <= a : (T)(a + b) < a", "pred"),
    ("carry.sub.{u32,u64}", "T T pred", "a < b || (a == b && c >> k & 1)", "pred"),
    # Of atomics: a is in memory.
    ("exch.{b32,b64}", "T T", "b"),
    ("cas.{b16,b32,b64}", "T T T", "a == b ? c : a"),
    ("add.noftz.{f16:half,bf16:bfloat}", "T T", "add_{0}(a, b)"),
    ("add.noftz.{f16x2:half,bf16x2:bfloat}", "T T", "add_{0}(a, b) | (T)add_{0}(a >> 16, b >> 16) << 16"),
    ("inc.u32", "T T", "a >= b ? 0 : a + 1"),
    ("dec.u32", "T T", "a == 0 || a > b ? b : a - 1"),
    # Bits.
    ("{and:&,or:|,xor:^}.{b16,b32,b64,pred}", "T T", "a {0} b"),
    ("not.{b16,b32,b64,pred}", "T", "~a"),
    ("cnot.{b16,b32,b64}", "T", "a == 0"),
    ("shl.{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "T u32", "b < BITS ? (T)((U)a << b) : 0"),
    ("shr.{b16,b32,b64,u16,u32,u64}", "T u32", "b < BITS ? (T)(a >> b) : 0"),
    ("shr.{s16,s32,s64}", "T u32", "(T)(a >> (b < BITS ? b : BITS - 1))"),
    ("shf.l.{clamp:limited,wrap:wrapped}.b32", "T T T", "(uint32_t)(joined_words(a, b) << {0}(c) >> 32)"),
    ("shf.r.{clamp:limited,wrap:wrapped}.b32", "T T T", "(uint32_t)(joined_words(a, b) >> {0}(c))"),
    ("bfi.{b32:255,b64:FULL}", "T T u32 u32", "(T)bfi(a, b, c & {0}, e & {0}, BITS)"),
    ("bfe.{u32:255,s32:255,u64:FULL,s64:FULL}", "T u32 u32", "(T)bfe((U)a, b & {0}, c & {0}, BITS, SIGNED)"),
    ("szext.{clamp:limited,wrap:wrapped}.{u32,s32}", "T u32", "(T)bfe((U)a, 0, {0}(b), 32, SIGNED)"),
    ("bmsk.{clamp:limited,wrap:wrapped}.b32", "u32 u32", "bmsk({0}(a), {0}(b))"),
    ("brev.{b32,b64}", "T", "(T)(reversed(a) >> (64 - BITS))"),
    ("popc.{b32,b64}", "T", "(uint32_t)__builtin_popcountll(a)", "u32"),
    ("clz.{b32,b64}", "T", "leading(a, BITS)", "u32"),
    ("bfind.{,shiftamt}.{u32,u64}", "T", "bfind(a, BITS, sizeof \"{0}\" > 1)", "u32"),
    ("bfind.{,shiftamt}.{s32,s64}", "T", "bfind(a < 0 ? (U)~a : (U)a, BITS, sizeof \"{0}\" > 1)", "u32"),
    ("prmt.b32", "T T T", "prmt(a, b, c)"),
    *((f"prmt.b32.{mode}", "T T T", f"prmt(a, b, (const uint32_t[]){{{selectors}}}[c & 3])") for mode, selectors in (
        ("f4e", "0x3210, 0x4321, 0x5432, 0x6543"), ("b4e", "0x5670, 0x6701, 0x7012, 0x0123"),
        ("rc8", "0x0000, 0x1111, 0x2222, 0x3333"), ("ecl", "0x3210, 0x3211, 0x3222, 0x3333"),
        ("ecr", "0x0000, 0x1110, 0x2210, 0x3210"), ("rc16", "0x1010, 0x3232, 0x1010, 0x3232"))),
    ("lop3.b32", "T T T T", "lop3(a, b, c, e)"),
    ("low.{b64,b32,b16}", "T", "(H)a", "H"),
    ("high.{b64,b32,b16}", "T", "(H)(a >> BITS / 2)", "H"),
    ("pack.{b64,b32,b16}", "H H", "(T)(a | (T)b << BITS / 2)"),
    # Selections and comparisons.
    ("selp.{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}", "T T pred", "c >> k & 1 ? a : b"),
    (f"slct.{ANY}.{{s32,f32}}", "R R T", "c >= 0 ? a : b"),
    *((f"setp.{name}.{INT}", "T T", f"a {sign} b", "pred") for name, sign in COMPARE.items()),
    *((f"setp.{name}.{{u16,u32,u64}}", "T T", f"a {sign} b", "pred") for name, sign in UNSIGNED_COMPARE.items()),
    *((f"setp.{name}.{{b16,b32,b64}}", "T T", f"a {sign} b", "pred") for name, sign in [*COMPARE.items()][:2]),
    *((f"setp.{name}.{{f32,f64}}", "T T", f"a {sign} b", "pred") for name, sign in COMPARE.items() if name != "ne"),
    ("setp.ne.{f32,f64}", "T T", "a < b || a > b", "pred"),
    ("setp.{ltu:>=,leu:>,gtu:<=,geu:<}.{f32,f64}", "T T", "!(a {0} b)", "pred"),
    ("setp.equ.{f32,f64}", "T T", "!(a < b || a > b)", "pred"),
    ("setp.neu.{f32,f64}", "T T", "a != b", "pred"),
    ("setp.num.{f32,f64}", "T T", "a == a && b == b", "pred"),
    ("setp.nan.{f32,f64}", "T T", "a != a || b != b", "pred"),
    ("testp.{finite:isfinite(a),infinite:isinf(a),number:a == a,notanumber:a != a}.{f32,f64}", "T", "{0}", "pred"),
    # PTX ISA, testp: zero is normal, too.
    ("testp.{normal:isnormal(a) || a == 0,subnormal:fpclassify(a) == FP_SUBNORMAL}.{f32,f64}", "T", "{0}", "pred"),
    ("cvta.{global,const,param}.u64", "T", "a"),
    ("cvta.to.{global,const,param}.u64", "T", "a"),
    ("cvta.{shared:1,local:2}.u64", "T", "a + ((uint64_t){0} << 60)"),
    ("cvta.to.{shared:1,local:2}.u64", "T", "a - ((uint64_t){0} << 60)"),
    # See `located` in core/access.h.
    ("mapa.{u32,u64}", "T u32", "(a & ~(T)0xFF000000) | (uint32_t)(0x80 + b) << 24"),
    ("getctarank.{u32,u64}", "T u32", "a >> 31 & 1 ? a >> 24 & 0x7F : b", "u32"),
    ("isspacep.{global:0,shared:1,local:2}", "b64", "a >> 60 == {0}", "pred"),
    # Floats.
    ("{add:+,sub:-}.{,rn}.{f32,f64}", "T T", "a {0} b"),
    ("{add:+,sub:-}.{,rn}.ftz.f32", "T T", "flush_f32(flush_f32(a) {0} flush_f32(b))"),
    ("mul.{,rn}.{f32,f64}", "T T", "a * b"),
    ("mul.{,rn}.ftz.f32", "T T", "flushed_product(a, b)"),
    ("{fma,mad}.rn.f32", "T T T", "fused(a, b, c)"),
    ("{fma,mad}.rn.f64", "T T T", "fma(a, b, c)"),
    ("{fma,mad}.rn.ftz.f32", "T T T", "flushed_fma(a, b, c)"),
    ("div.rn.{f32,f64}", "T T", "a / b"),
    ("rcp.rn.{f32,f64}", "T", "1 / a"),
    # PTX ISA: the upper 32 bits of the result; subnormal numbers are 0.
    ("rcp.approx.ftz.f64", "T", "with_bits(bits_of(fabs(a) < DBL_MIN ? 1 / copysign(0, a) : fabs(a) > 0x1p1022 ? "
     "copysign(0, a) : 1 / a) >> 32 << 32)"),
    ("sqrt.rn.f32", "T", "sqrtf(a)"),
    ("sqrt.rn.f64", "T", "sqrt(a)"),
    ("abs.{f32:fabsf,f64:fabs}", "T", "{0}(a)"),
    ("neg.{f32,f64}", "T", "-a"),
    ("copysign.{f32:copysignf,f64:copysign}", "T T", "{0}(b, a)"),
    ("min.{f32,f64}", "T T", "least(a, b)"),
    ("max.{f32,f64}", "T T", "-least(-a, -b)"),
    ("nan.{f32,f64}", "T T T", "isnan(b) || isnan(c) ? NAN : a"),  # .NaN
    ("xorsign.{f32,f64}", "T T T", "!signbit(b) != !signbit(c) ? -a : a"),
    ("relu.{f32,f64}", "T", "a <= 0 ? 0 : a"),
    ("sat.{f32,f64}", "T", "a > 0 ? a < 1 ? a : 1 : 0"),  # also of NaN
    ("flush.{f32,f16:half}", "V", "flush_{0}(a)", "V"),
    ("odd.{up,down}.f64", "T T", "odd_sum(a, b, sizeof \"{0}\" > 3)"),
    *((f"{name}.approx.f32", "T", f"approximated({expression})") for name, expression in (
        ("sin", "sin(a)"), ("cos", "cos(a)"), ("tanh", "tanh(a)"), ("sqrt", "sqrt((double)a)"), ("ex2", "exp2(a)"),
        ("lg2", "log2(a)"), ("rcp", "1 / (double)a"), ("rsqrt", "1 / sqrt(a)"))),
    ("div.{approx,full}.f32", "T T", "approximated((double)a / (double)b)"),
    # Conversions.
    (f"cvt.{INT8}.{INT8}", "T", "(R)a"),
    (f"cvt.sat.{INT8}.{INT8}", "T", "(R)clamp(a, LOW, HIGH)"),
    ("cvt.f64.f32", "T", "a"),
    ("cvt.rn.f32.f64", "T", "(float)a"),
    (f"cvt.rn.f32.{INT8}", "T", "(float)a"),
    (f"cvt.rn.f64.{INT8}", "T", "(double)a"),
    ("cvt.{rni:rint,rzi:trunc,rmi:floor,rpi:ceil}.f64.f64", "T", "{0}(a)"),
    ("cvt.{rni:rint,rzi:trunc,rmi:floor,rpi:ceil}.f32.f32", "T", "{0}f(a)"),
    (f"whole.{INT8}.f64", "T", "(R)integer(a, LOW, HIGH, (R)((uint64_t)1 << (8 * sizeof(R) - 1)))"),
    (f"whole.{INT8}.f32", "f64", "(R)integer(a, LOW, HIGH, sizeof(R) == 8 ? (R)((uint64_t)1 << 63) : 0)"),
    (f"odd.{INT8}", "T", "odd_integer(a, SIGNED)", "f64"),
    ("cvt.{rn:0,rz:1,rm:2,rp:3}.{,ftz}.f32.f64", "T", "(float)fit(a, 23, -126, FLT_MAX, {0}, sizeof \"{1}\" > 1)"),
    ("cvt.{rn:0,rz:1,rm:2,rp:3}.{,ftz}.f16.f64", "T", "half_bits(fit(a, 10, -14, 65504, {0}, sizeof \"{1}\" > 1))"),
    ("cvt.{rn:0,rz:1,rm:2,rp:3}.bf16.f64", "T", "bfloat_bits(fit(a, 7, -126, 0x1.FEp127, {0}, 0))"),
    ("cvt.rn.e4m3.f64", "T", "eight_bits(fit(a, 3, -6, DBL_MAX, 0, 0), 448, 3)"),
    ("cvt.rn.e5m2.f64", "T", "eight_bits(fit(a, 2, -14, DBL_MAX, 0, 0), 57344, 2)"),
    ("cvt.rn.f16.f32", "T", "half_bits(fit(a, 10, -14, 65504, 0, 0))"),
    ("cvt.rn.bf16.f32", "T", "bfloat_bits(fit(a, 7, -126, 0x1.FEp127, 0, 0))"),
    ("cvt.{f32,f64}.{f16:half,bf16:bfloat,e4m3:eight,e5m2:five}", "T", "(R)from_{1}(a)"),
    ("cvt.{rna:2,rn:1,rz:0}.tf32.f32", "T", "to_tf32(a, {0})", "b32"),
)  # fmt: skip

# Opcode, types of the operands, steps, and the results' types where they are not R. Steps are in
# postfix order: a, b, c, e, f are operands, A is a without .ftz; "no" is false; carry the carry; =x
# keeps a value as x; a step takes as many values as it has operands. D: T as a float64 that holds
# it; V: the type in which T is computed. ".ftz" flushes operands of f32 and f16; what follows of
# the opcode is in Composer.finished. Types of two numbers take the steps of one for each.
COMPOSED = (
    ("{add,sub}.cc.{u32,s32,u64,s64}", "U U", "a b no sum.{0}.U a b no carry.{0}.U", "U carry"),
    ("{add,sub}c.cc.{u32,s32,u64,s64}", "U U", "a b carry sum.{0}.U a b carry carry.{0}.U", "U carry"),
    ("{add,sub}c.{u32,s32,u64,s64}", "U U", "a b carry sum.{0}.U"),
    ("{mad:no,madc:carry}.{lo,hi}.cc.{u32,s32,u64,s64}", "T T U",
     "a b mul.{1}.T =x x c {0} sum.add.U x c {0} carry.add.U", "U carry"),
    ("madc.{lo,hi}.{u32,s32,u64,s64}", "T T U", "a b mul.{0}.T c carry sum.add.U"),
    ("mad.hi." + INT, "T T T", "a b mul.hi.T c add.T"),
    ("mad.hi.sat.s32", "T T T", "a b mul.hi.T c add.sat.T"),
    ("mad24.{lo,hi}.{u32,s32}", "T T T", "a b mul24.{0}.T c add.T"),
    ("mad24.hi.sat.s32", "T T T", "a b mul24.hi.T c add.sat.T"),
    ("{min,max}.relu.{s16,s32}", "T T", "a b {0}.T"),
    ("lop3.{and,or}.b32", "T T T T pred", "a b c e lop3.b32 =x x x 0 setp.ne.b32 f {0}.pred", "T pred"),
    (f"slct.ftz.{ANY}.f32", "R R T", "A B c slct.R.T"),
    (f"setp.{TESTS}.{{,ftz}}.{COMPARED}", "T T", "a b setp.{0}.V =x x x not.pred", "pred pred"),
    (f"setp.{TESTS}.{{and,or,xor}}.{{,ftz}}.{COMPARED}", "T T pred",
     "a b setp.{0}.V =x x c {1}.pred x not.pred c {1}.pred", "pred pred"),
    (f"set.{TESTS}.{{,ftz}}.{YES}.{COMPARED}", "T T", "{2} 0 a b setp.{0}.V selp.bRBITS"),
    (f"set.{TESTS}.{{and,or,xor}}.{{,ftz}}.{YES}.{COMPARED}", "T T pred",
     "{3} 0 a b setp.{0}.V c {1}.pred selp.bRBITS"),
    # Floats.
    ("{add,sub}.{,rn}.{,ftz}.{,sat}.{f32,f64}", "T T", "a b {0}.T"),
    ("{add:,sub:neg.f64}.{rz:up,rm:down,rp:up}.{,ftz}.{,sat}.f32", "D D", "a b {0} odd.{1}.f64"),
    ("{add:,sub:neg.f64}.{,rn}.{,ftz}.{,sat}." + HALF, "T T", "a b {0} odd.up.f64"),
    ("mul.{,rn,rz,rm,rp}.{,ftz}.{,sat}.{f32,f16,bf16}", "D D", "a b mul.f64"),
    ("mul.{,rn}.sat.f64", "T T", "a b mul.f64"),
    ("{fma,mad}.rn.{,ftz}.{,sat}.f32", "T T T", "a b c fma.rn.{1}.f32"),
    ("{fma,mad}.{rz:up,rm:down,rp:up}.{,ftz}.{,sat}.f32", "D D D", "a b mul.f64 c odd.{1}.f64"),
    (f"fma.rn.{{,ftz}}.{{,sat,relu}}.{HALF}", "T T T", "a b mul.f64 c odd.up.f64"),
    (f"div.{MODE}.{{,ftz}}.f32", "D D", "a b div.rn.f64"),
    (f"{{rcp,sqrt}}.{MODE}.{{,ftz}}.f32", "D", "a {0}.rn.f64"),
    ("{abs,neg}.{,ftz}.{f32,f16,bf16}", "T", "a {0}.V"),
    ("{min,max}.{,ftz}.{f32,f64,f16,bf16}", "T T", "a b {0}.V"),
    ("{min,max}.{,ftz}.{f32,f64}", "T T T", "a b {0}.T c {0}.T"),
    ("{min,max}.{,ftz}.NaN.{f32,f64,f16,bf16}", "T T", "a b {0}.V a b nan.V"),
    ("{min,max}.{,ftz}.NaN.{f32,f64}", "T T T", "a b {0}.T a b nan.T =x x c {0}.T x c nan.T"),
    ("{min,max}.{,ftz}.xorsign.abs.{f32,f16,bf16}", "T T", "a abs.V b abs.V {0}.V a b xorsign.V"),
    ("{min,max}.{,ftz}.NaN.xorsign.abs.{f32,f16,bf16}", "T T", "a abs.V b abs.V {0}.V a b xorsign.V a b nan.V"),
    ("{sin,cos,tanh,sqrt,ex2,lg2,rcp,rsqrt}.approx.ftz.f32", "T", "a {0}.approx.f32"),
    ("div.{approx,full}.ftz.f32", "T T", "a b div.full.f32"),
    # Conversions. For sm_90, ptxas makes F2F.FTZ of .ftz with bf16. With f16 an H200 flushes
    # nothing.
    (f"cvt.{INTEGRAL}.{{,ftz}}.{{,sat}}.{INT8}.{{f32:f32,f64:f64,f16:f32,bf16:f32}}", "D",
     "a cvt.{0}.f64.f64 whole.R.{4}"),
    (f"cvt.rn.{{,ftz}}.{{,sat}}.{{f32,f64}}.{INT8}", "T", "a cvt.rn.R.T"),
    (f"cvt.{{rz,rm,rp}}.{{,sat}}.f32.{INT8}", "T", "a odd.T"),
    ("cvt.{,rni,rzi,rmi,rpi}.{,ftz}.{,sat}.{f32.f32,f64.f64,f16.f16,bf16.bf16}", "T", "a cvt.{0}.V.V"),
    ("cvt.{,ftz}.{,sat}.f64.f32", "D", "a"),
    (f"cvt.{MODE}.{{,ftz}}.{{,sat}}.{{f32,f16,bf16}}.f64", "T", "a"),
    (f"cvt.{{,ftz}}.f32.{HALF}", "T", "A"),
    ("cvt.{,ftz}.sat.f32.f16", "T", "a"),
    (f"cvt.{{,sat}}.f64.{HALF}", "T", "a"),
    (f"cvt.{MODE}.{{,relu}}.{HALF}.f32", "D", "a"),
    (f"cvt.{MODE}.ftz.bf16.f32", "D", "a"),
    (f"cvt.{MODE}.{{,ftz}}.{{,sat}}.f16.f32", "D", "A"),
    (f"cvt.{MODE}.{HALF}.{INT8}", "T", "a odd.T"),
    (f"cvt.{MODE}.{HALF}.{HALF}", "T", "a"),
    ("cvt.{rn,rz}.{,relu}.{f16x2:f16,bf16x2:bf16}.f32", "D D", "b finish.{2} a finish.{2} pack.b32", "b32"),
    ("cvt.rn.{,relu}.f16x2.{e4m3x2:e4m3,e5m2x2:e5m2}", "b16",
     "a low.b16 cvt.f64.{1} finish.f16 a high.b16 cvt.f64.{1} finish.f16 pack.b32", "b32"),
    ("cvt.rn.{,relu}.satfinite.{e4m3x2:e4m3,e5m2x2:e5m2}.f32", "D D", "b finish.{1} a finish.{1} pack.b16", "b16"),
    ("cvt.rn.{,relu}.satfinite.{e4m3x2:e4m3,e5m2x2:e5m2}.f16x2", "b32",
     "a low.b32 cvt.f64.f16 finish.{1} a high.b32 cvt.f64.f16 finish.{1} pack.b16", "b16"),
    ("cvt.{rn,rz}.relu.tf32.f32", "f32", "a relu.f32 cvt.{0}.tf32.f32", "b32"),
    ("cvt.pack.sat.{s16,u16}.s32", "T T", "b cvt.sat.R.T a cvt.sat.R.T pack.b32", "b32"),
    ("cvt.pack.sat.{s8,u8}.s32.b32", "s32 s32 T",
     "b cvt.sat.R.s32 a cvt.sat.R.s32 pack.b16 c low.b32 pack.b32", "b32"),
)  # fmt: skip


class Op(NamedTuple):
    """An operation that computes a value."""

    number: int  # of the C code
    result: str  # its PTX type
    sources: tuple[str, ...]  # PTX types of the operands
    expression: str


class Form(NamedTuple):
    """An instruction that is several steps."""

    sources: tuple[str, ...]  # types of operands; "f32 f64" is converted
    steps: tuple[str, ...]
    results: tuple[str, ...]


_LIST = re.compile(r"\{([^}]*)\}")


def _choices(pattern: str) -> list[list[tuple[str, str]]]:
    """Return the alternatives of each list, with their meanings."""
    lists = []
    for text in _LIST.findall(pattern):
        alternatives = []
        for alternative in text.split(","):
            name, sign, meaning = alternative.partition(":")
            alternatives.append((name, meaning if sign else name))
        lists.append(alternatives)
    return lists


def _types(opcode: str) -> dict[str, str]:
    """Return what capital words stand for in a row, by an opcode's types."""
    types = [part for part in opcode.split(".") if part in C_TYPES] or ["b64"]
    first = types[0]
    last = types[-1]
    wide = WIDER.get(last, last)
    return {
        "T": last,
        "R": first,
        "W": wide,
        "U": last.replace("s", "u"),
        "UW": wide.replace("s", "u"),
        "H": {"b64": "b32", "b32": "b16", "b16": "b8"}.get(last, ""),
        "V": "f64" if last in ("f16", "bf16") else last,
        "D": "f32 f64" if last == "f32" else last,
        "RBITS": re.sub(r"\D", "", first),
    }


def _filled(text: str, types: dict[str, str]) -> str:
    return re.sub(r"RBITS|\b[A-Z]+\b", lambda name: types.get(name[0], name[0]), text)


def _meant(text: str, meanings: Sequence[str]) -> str:
    for number, meaning in enumerate(meanings):
        text = text.replace(f"{{{number}}}", meaning)
    return text


def expanded(pattern: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield each opcode of a row, with its text."""
    for alternatives in product(*_choices(pattern)):
        opcode = pattern
        for name, _ in alternatives:
            opcode = _LIST.sub(lambda _, name=name: name, opcode, count=1)  # type: ignore[misc]
        meanings = [meaning for _, meaning in alternatives]
        yield re.sub(r"\.+(?=\.|$)", "", opcode), _meant(text, meanings)


def _in_c(text: str, types: dict[str, str]) -> str:
    """Return an expression with C's names for types and limits."""
    last = types["T"]
    first = types["R"]
    c_names = {name: C_TYPES.get(type_) or WIDE.get(type_, "") for name, type_ in types.items()}
    limits = C_TYPES[first].removesuffix("_t").upper()
    c_names |= {
        "W64": "uint64_t",
        "BITS": re.sub(r"\D", "", last),
        "SIGNED": "1" if last[0] == "s" else "0",
        "LOW": f"{limits}_MIN" if first[0] == "s" else "0",
        "HIGH": f"{limits}_MAX",
    }
    return re.sub(
        r"\b(?:T|R|U|W|H|UW|W64|BITS|SIGNED|LOW|HIGH)\b", lambda name: c_names[name[0]], text
    )


def _ops() -> dict[str, Op]:
    """Return the operations by opcode; of two rows, the first. Number 0 does nothing."""
    ops = dict[str, Op]()
    for pattern, sources, expression, *result in TABLE:
        for opcode, text in expanded(pattern, expression):
            types = _types(opcode)
            source_types = tuple(types.get(name, name) for name in sources.split())
            name_of_result = result[0] if result else "R"
            result_type = types.get(name_of_result, name_of_result)
            op = Op(len(ops) + 1, result_type, source_types, _in_c(text, types))
            ops.setdefault(opcode, op)
    return ops


OPS = _ops()


@cache
def _patterns() -> list[tuple[re.Pattern[str], list[dict[str, str]], tuple[str, ...]]]:
    """Return the rows of COMPOSED: a pattern of opcodes, the meanings of its lists, and the row's other columns."""
    patterns: list[tuple[re.Pattern[str], list[dict[str, str]], tuple[str, ...]]] = []
    for row in COMPOSED:
        lists = [dict(alternatives) for alternatives in _choices(row[0])]
        text = re.sub(r"\.(?=\{,)", "", row[0]).replace(".", r"\.")
        for meanings in lists:
            names = "|".join(re.escape(name) for name in meanings if name)
            group = rf"(?:\.({names}))?" if "" in meanings else f"({names})"
            text = text.replace(_LIST.search(text)[0], group, 1)  # type: ignore[index]
        patterns.append((re.compile(text), lists, row[1:]))
    return patterns


@cache
def composed(opcode: str, count: int) -> Form | None:
    """Return the steps of an instruction, or None.

    count: of operands, without the result
    """
    for pattern, lists, (sources, steps, *results) in _patterns():
        match = pattern.fullmatch(opcode)
        if not match or len(sources.split()) != count:
            continue
        types = _types(opcode)
        meanings = [
            alternatives[name or ""]
            for alternatives, name in zip(lists, match.groups(), strict=True)
        ]
        cells = (" ".join(results) or "R", _meant(steps, meanings))
        result_text, step_text = (
            _filled(re.sub(r"\.+(?=\.|\s|$)", "", cell), types) for cell in cells
        )
        source_types = tuple(_filled(name, types) for name in sources.split())
        return Form(source_types, tuple(step_text.split()), tuple(result_text.split()))
    return None


def code() -> str:
    """Return the cases of the core's switch. Opcodes that do the same share a case."""
    out = ["case 0: break;"]
    cases = dict[str, list[int]]()
    for op in OPS.values():
        lanes = op.expression
        declared = []
        for name, type_ in zip("abce", op.sources, strict=False):
            field = "site" if name == "e" else name
            if type_ == "pred":
                declared.append(f"uint32_t {name}_ = *AT(uint32_t, i->{field});")
                lanes = re.sub(rf"\b{name}\b", f"{name}_", lanes)
            else:
                declared.append(
                    f"const {C_TYPES[type_]} *{name}_ = AT({C_TYPES[type_]}, i->{field});"
                )
                lanes = re.sub(rf"\b{name}\b", f"{name}_[k]", lanes)
        if op.result != "pred":
            functions = {*re.findall(r"\b[a-z]\w+(?=\()", lanes)}
            act = f"{'EACH' if functions <= QUICK else 'SOME'}({C_TYPES[op.result]}, {lanes});"
        elif {*op.sources} - {"pred"}:
            act = f"TEST({lanes});"
        else:
            act = f"*AT(uint32_t, i->d) = (*AT(uint32_t, i->d) & ~mask) | (({lanes}) & mask);"
        cases.setdefault(f"{{ {' '.join(declared)} {act} break; }}", []).append(op.number)
    out += [
        " ".join(f"case {number}:" for number in numbers) + text for text, numbers in cases.items()
    ]
    return "\n".join(out) + "\n"


def reductions() -> str:
    """Return the cases of a switch that reduces values.

    It reduces the first bytes of x, y and maybe z to the first bytes of x.
    """
    out = dict[str, list[int]]()
    for opcode, op in OPS.items():
        if (
            opcode.split(".")[0] in REDUCING
            and {*op.sources} == {op.result}
            and re.fullmatch("[usbf](16|32|64)|b?f16(x2)?", op.result)
        ):
            copied = "".join(
                f"memcpy(&{target}, &{source}, sizeof a); "
                for target, source in zip("abc", "xyz", strict=True)
            )
            text = f"{C_TYPES[op.result]} a, b, c; {copied}(void)c; a = {op.expression}; memcpy(&x, &a, sizeof a);"
            out.setdefault(f"{{ {text} }} return x;", []).append(op.number)
    return "\n".join(
        " ".join(f"case {number}:" for number in numbers) + text for text, numbers in out.items()
    )
