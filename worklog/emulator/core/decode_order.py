"""Decodes what orders threads beyond barriers, for knowledge.h: fences, and accesses that release or acquire."""

from __future__ import annotations

from typing import Any

from worklog.emulator.core.records import enum
from worklog.emulator.program import Site
from worklog.emulator.ptx import Instruction

FENCE = enum("kind")["FENCE"]
FENCES = ("fence", "membar")
ORDERS = {"", "sc", "acq_rel", "acquire", "release", "relaxed"}
SCOPES = {"cta": 0, "cluster": 1, "gpu": 1, "gl": 1, "sys": 1}  # whether beyond the block
RELEASES, ACQUIRES, WITHIN_BLOCK, UNCACHED = 1, 2, 4, 8


def row(i: Instruction) -> dict[str, Any]:
    """The row of a fence. Raises ValueError for one that the core lacks."""
    *order, scope = i.parts[1:]
    if len(order) > 1 or not {*order} <= ORDERS or scope not in SCOPES:
        raise ValueError(i.text)
    return {"kind": FENCE, "op": SCOPES[scope]}


def bits(site: Site) -> int:
    """How an access takes part in a hand-over."""
    words = {*site.parts}
    out = RELEASES * bool({"release", "acq_rel"} & words) | ACQUIRES * bool({"acquire", "acq_rel"} & words)
    return out | WITHIN_BLOCK * ("cta" in words) | UNCACHED * bool({"cg", "cv"} & words)
