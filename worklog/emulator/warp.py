"""Instructions in which the lanes of a warp exchange values, and the arithmetic of atomics. Lanes lie 32 to a warp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from worklog.emulator.floats import float_max, float_min

Array = Any  # an NDArray: NumPy types the results of its operators as Any
LANES = np.arange(32)
BITS = np.uint32(1) << LANES.astype(np.uint32)
REDUCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum}
REDUCTIONS |= {name: getattr(np, f"bitwise_{name}") for name in ("and", "or", "xor")}
EVERYONE = np.uint32(0xFFFFFFFF)
_MASK = "the instruction's member mask"


def groups(members: Array, active: Array) -> Iterator[Array]:
    """The active lanes by member mask: in each item, those of each warp that share one mask. At least one item."""
    if len(members) == 1:
        yield active
        return
    left, first_lanes = active, np.arange(0, len(active), 32)
    while True:
        leaders = first_lanes + left.reshape(-1, 32).argmax(axis=1)
        group = left & (members == np.repeat(members[leaders], 32))
        yield group
        left = left & ~group
        if not left.any():
            return


def misused(members: Array, active: Array, live: Array) -> Iterator[tuple[str, Array, str]]:
    """Kind, lanes and text of each misuse of the member masks of active lanes.

    PTX ISA, vote.sync, match.sync, redux.sync, shfl.sync and bar.warp.sync: the executing thread must be in its mask,
    and all non-exited threads of the mask must execute the instruction with the same mask.
    """
    if len(members) == 1 and members[0] == EVERYONE and active.all():
        return
    members = np.broadcast_to(members, active.shape)
    outside = active & (members & np.tile(BITS, len(active) // 32) == 0)
    absent = np.zeros(len(active), bool)
    for group in groups(members, active):
        named = np.bitwise_or.reduce(np.where(group, members, np.uint32(0)).reshape(-1, 32), axis=1)
        absent |= ((named[:, None] & BITS) != 0).ravel() & ~group
    yield "member-mask", outside, "executes the instruction, but is not in its own member mask"
    yield "member-mask", absent & active, "is in a lane's member mask, but executes the instruction with another one"
    yield "divergent-warp", absent & live & ~active, f"is in {_MASK}, but does not execute the instruction"
    yield "exited-in-mask", absent & ~live, f"is in {_MASK}, but has exited or does not exist"


def source_lanes(mode: str, b: Array, c: Array, count: int) -> tuple[Array, Array]:
    """The lane that each of `count` lanes reads in a shfl.sync (its own if that lane is out of its segment), and
    whether it is in range.

    b: the distance or lane. c: the clamp in bits 0 to 4, the segment mask in bits 8 to 12.
    """
    everyone = np.arange(count)
    lane = everyone & 31
    b, clamp, segment = b.astype(np.int64) & 31, c.astype(np.int64) & 31, c.astype(np.int64) >> 8 & 31
    low, high = lane & segment, (lane & segment) | (clamp & ~segment)
    if mode == "up":
        source, valid = lane - b, lane - b >= high
    elif mode == "down":
        source, valid = lane + b, lane + b <= high
    else:
        source = lane ^ b if mode == "bfly" else low | (b & ~segment)
        valid = source <= high
    return np.where(valid, everyone - lane + source, everyone), valid


def undefined(source: Array, members: Array, active: Array) -> Array:
    """The active lanes whose source lane is not in their member mask, or does not execute the instruction."""
    return active & ~(active[source] & (members & BITS[source & 31] != 0))


def and_origin(a: Array, b: Array, origin_a: Array, origin_b: Array) -> Array:
    """The origin of a and b (Exchange.used): a defined operand that is False decides alone."""
    decided = (~a & (origin_a == 0)) | (~b & (origin_b == 0))
    return np.where(decided, np.uint32(0), np.maximum(origin_a, origin_b))


def or_origin(a: Array, b: Array, origin_a: Array, origin_b: Array) -> Array:
    """The origin of a or b: a defined operand that is True decides alone."""
    return and_origin(~a, ~b, origin_a, origin_b)


def selp_origin(chooser: Array, origin_a: Array, origin_b: Array, origin: Array) -> Array:
    """The origin of the selected operand, and of the one that selects."""
    return np.maximum(np.where(chooser, origin_a, origin_b), origin)


def vote(mode: str, predicate: Array, active: Array) -> Array:
    """vote.sync over the active lanes of each warp: any, all and uni as bool, ballot as uint32; one value per lane."""
    yes = (predicate & active).reshape(-1, 32)
    count, total = yes.sum(axis=1), active.reshape(-1, 32).sum(axis=1)
    if mode == "ballot":
        return np.repeat(np.where(yes, BITS, np.uint32(0)).sum(axis=1, dtype=np.uint32), 32)
    return np.repeat({"any": count > 0, "all": count == total, "uni": (count == total) | (count == 0)}[mode], 32)


def reduce(operation: str, a: Array, active: Array) -> Array:
    """redux.sync: one value for all active lanes of a warp."""
    info = np.iinfo(a.dtype)
    neutral = {"and": -1 if info.min < 0 else info.max, "min": info.max, "max": info.min}.get(operation, 0)
    values = np.where(active, a, a.dtype.type(neutral)).reshape(-1, 32)
    return np.repeat(REDUCTIONS[operation].reduce(values, axis=1, dtype=a.dtype), 32)


def match(mode: str, a: Array, active: Array) -> tuple[Array, Array]:
    """match.sync: the active lanes of the warp that hold the lane's value (any), or all of them if all hold the same,
    else none (all); and whether all hold the same.
    """
    values, lanes = np.broadcast_to(a, active.shape).reshape(-1, 32), active.reshape(-1, 32)
    same = (values[:, :, None] == values[:, None, :]) & lanes[:, None, :]
    masks = np.where(same, BITS, np.uint32(0)).sum(axis=2, dtype=np.uint32)
    everyone = np.where(lanes, BITS, np.uint32(0)).sum(axis=1, dtype=np.uint32)[:, None]
    agreed = masks == everyone
    return (masks if mode == "any" else np.where(agreed, everyone, np.uint32(0))).ravel(), agreed.ravel()


def elect(active: Array) -> tuple[Array, Array]:
    """elect.sync: the lowest active lane of each warp, and whether a lane is the elected one."""
    leader = np.repeat(active.reshape(-1, 32).argmax(axis=1).astype(np.uint32), 32)
    return leader, leader == np.tile(LANES, len(active) // 32)


def turns(index: Array, lanes: Array) -> list[Array]:
    """The lanes in groups without a common index, those that share one in lane order."""
    lanes = lanes[np.argsort(index[lanes], kind="stable")]
    fresh = np.flatnonzero(np.diff(index[lanes], prepend=-1))
    turn = np.arange(len(lanes)) - np.repeat(fresh, np.diff(fresh, append=len(lanes)))
    order = np.argsort(turn, kind="stable")
    return np.split(lanes[order], np.flatnonzero(np.diff(turn[order])) + 1)


# The new value from the old one and the operands, arrays of one element.
ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value,
    "min": lambda old, value: float_min(old, value) if old.dtype.kind == "f" else np.minimum(old, value),
    "max": lambda old, value: float_max(old, value) if old.dtype.kind == "f" else np.maximum(old, value),
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "exch": lambda old, value: value,
    "cas": lambda old, compare, value: np.where(old == compare, value, old),
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), np.add(old, old.dtype.type(1))),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}
