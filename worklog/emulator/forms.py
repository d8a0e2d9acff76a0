"""The table of PTX instruction forms that are one expression over NumPy arrays: integers, bits and warps."""

from __future__ import annotations

from dataclasses import dataclass

from worklog.emulator.ptx import DTYPES

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
BITS = ("b16", "b32", "b64")
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
CLASSES = {
    "INTEGER": INTEGERS,
    "INTEGER32": INTEGERS[2:],  # of 32 and 64 bits
    "SIGNED": ("s16", "s32", "s64"),
    "NARROW": tuple(WIDER),
    "LOGIC": (*BITS, "pred"),
    "BITS32": ("b32", "b64", *INTEGERS[2:]),
    "WORD": ("b32", "b64"),
    "REDUCED": ("u32", "s32", "b32"),
    "ANY": tuple(DTYPES),
}


@dataclass(frozen=True)
class Form:
    """One form. sources: the operands' types. expression: of the operands {0}, {1}, …, the instruction's place {pc} and
    the active lanes {mask}. results: the destinations' types; the expression of two results is a tuple.
    """

    sources: tuple[str, ...]
    expression: str
    results: tuple[str, ...]


# Opcode with a class of types, operand types, expression, result types. t: the instruction's type; w: twice its width.
_TABLE = (
    ("add.INTEGER", "t t", "{0} + {1}", "t"),
    ("sub.INTEGER", "t t", "{0} - {1}", "t"),
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
    ("and.LOGIC", "t t", "{0} & {1}", "t"),
    ("or.LOGIC", "t t", "{0} | {1}", "t"),
    ("xor.LOGIC", "t t", "{0} ^ {1}", "t"),
    ("not.LOGIC", "t", "~{0}", "t"),
    ("shf.l.wrap.b32", "u32 u32 u32", "funnel({0}, {1}, {2}, True, False)", "u32"),
    ("shf.l.clamp.b32", "u32 u32 u32", "funnel({0}, {1}, {2}, True, True)", "u32"),
    ("shf.r.wrap.b32", "u32 u32 u32", "funnel({0}, {1}, {2}, False, False)", "u32"),
    ("shf.r.clamp.b32", "u32 u32 u32", "funnel({0}, {1}, {2}, False, True)", "u32"),
    ("bfe.BITS32", "t u32 u32", "bfe({0}, {1}, {2})", "t"),
    ("bfi.BITS32", "t t u32 u32", "bfi({0}, {1}, {2}, {3})", "t"),
    ("brev.BITS32", "t", "brev({0})", "t"),
    ("popc.BITS32", "t", "np.bitwise_count({0}).astype(np.uint32)", "u32"),
    ("clz.BITS32", "t", "clz({0})", "u32"),
    ("bfind.INTEGER32", "t", "bfind({0}, False)", "u32"),
    ("bfind.shiftamt.INTEGER32", "t", "bfind({0}, True)", "u32"),
    ("prmt.b32", "t t t", "prmt({0}, {1}, {2})", "t"),
    ("selp.ANY", "t t pred", "np.where({2}, {0}, {1})", "t"),
    ("slct.ANY.s32", "t t s32", "np.where({2} >= 0, {0}, {1})", "t"),
    ("slct.ANY.f32", "t t f32", "np.where({2} >= 0, {0}, {1})", "t"),
    ("slct.ftz.ANY.f32", "t t f32", "np.where(flush({2}) >= 0, {0}, {1})", "t"),
    ("copysign.f32", "t t", "np.copysign({1}, {0})", "t"),
    ("copysign.f64", "t t", "np.copysign({1}, {0})", "t"),
    ("activemask.b32", "", "S.active({mask})", "u32"),
    ("vote.sync.any.pred", "pred b32", "S.warp({pc}, vote, {1}, {mask}, 'any', {0})", "pred"),
    ("vote.sync.all.pred", "pred b32", "S.warp({pc}, vote, {1}, {mask}, 'all', {0})", "pred"),
    ("vote.sync.uni.pred", "pred b32", "S.warp({pc}, vote, {1}, {mask}, 'uni', {0})", "pred"),
    ("vote.sync.ballot.b32", "pred b32", "S.warp({pc}, vote, {1}, {mask}, 'ballot', {0})", "u32"),
    *(
        (f"redux.sync.{name}.REDUCED", "t b32", f"S.warp({{pc}}, reduce, {{1}}, {{mask}}, {name!r}, {{0}})", "t")
        for name in ("add", "min", "max", "and", "or", "xor")
    ),
    *(
        (
            f"shfl.sync.{name}.b32",
            "b32 b32 b32 b32",
            f"S.warp({{pc}}, shuffle, {{3}}, {{mask}}, {name!r}, {{0}}, {{1}}, {{2}})",
            "u32 pred",
        )
        for name in ("up", "down", "bfly", "idx")
    ),
    ("match.any.sync.WORD", "t b32", "S.warp({pc}, match, {1}, {mask}, 'any', {0})", "u32 pred"),
    ("match.all.sync.WORD", "t b32", "S.warp({pc}, match, {1}, {mask}, 'all', {0})", "u32 pred"),
    ("elect.sync", "b32", "S.warp({pc}, elect, {0}, {mask})", "u32 pred"),
)


def _expanded() -> dict[str, Form]:
    """The form of each opcode with its types."""
    out = {}
    for pattern, sources, expression, results in _TABLE:
        parts = pattern.split(".")
        names = next((part for part in parts if part in CLASSES), "")
        for type_ in CLASSES.get(names, (parts[-1],)):
            meant = {"t": type_, "w": WIDER.get(type_, "")}
            taken, given = (tuple(meant.get(name, name) for name in types.split()) for types in (sources, results))
            out[pattern.replace(names, type_) if names else pattern] = Form(taken, expression, given)
    return out


FORMS = _expanded()
