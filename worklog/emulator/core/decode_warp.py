"""Decodes instructions in which the lanes of a warp meet, for warp.h."""

from __future__ import annotations

from typing import Any

from worklog.emulator.ptx import Instruction, Reg, Vec

SHUFFLE, WARP = 7, 8  # kinds
SHUFFLES = ("up", "down", "bfly", "idx")
OPS = (
    "bar.warp.sync", "vote.sync.any.pred", "vote.sync.all.pred", "vote.sync.uni.pred", "vote.sync.ballot.b32",
    "activemask.b32", "elect.sync", *(f"redux.sync.{name}" for name in ("add", "min", "max", "and", "or", "xor")),
    "redux.sync.min.s32", "redux.sync.max.s32",
    "match.any.sync.b32", "match.all.sync.b32", "match.any.sync.b64", "match.all.sync.b64",
)  # fmt: skip


def row(decoder: Any, i: Instruction) -> dict[str, Any]:
    """Raises ValueError for an unknown form."""
    *operands, last = i.operands
    if i.op == "activemask.b32":
        operands, mask = [last], -1
    else:
        mask = decoder.source(last, "b32")
    # d and target: the result and the predicate beside it, or NONE.
    result = operands.pop(0) if i.op != "bar.warp.sync" else None
    results = [*result.items, None][:2] if isinstance(result, Vec) else [result, None]
    places = [decoder.registers[x.name] if isinstance(x, Reg) else -1 for x in results]
    out = {"d": places[0], "target": places[1], "site": mask}
    if i.parts[0] == "shfl":
        mode, type_ = SHUFFLES.index(i.op.removeprefix("shfl.sync.").removesuffix(".b32")), "b32"
        out |= {"kind": SHUFFLE, "op": mode}
    else:
        known = i.op if i.op in OPS else i.op.removesuffix(".u32").removesuffix(".s32").removesuffix(".b32")
        out |= {"kind": WARP, "op": OPS.index(known)}
        type_ = "pred" if i.parts[0] == "vote" else "b64" if i.parts[-1] == "b64" else "b32"
    names = ("a", "b", "c")[: 3 if out["kind"] == SHUFFLE else 1 if i.parts[0] in ("vote", "redux", "match") else 0]
    return out | {name: decoder.source(x, type_) for name, x in zip(names, operands, strict=True)}
