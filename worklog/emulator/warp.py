"""Instructions in which the lanes of a warp exchange values, and the arithmetic of atomics. Lanes lie 32 to a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from worklog.emulator.floats import float_max, float_min

Array = Any  # an NDArray: NumPy types the results of its operators as Any
LANES = np.arange(32)
BITS = np.uint32(1) << LANES.astype(np.uint32)


def lacking(members: Array, active: Array, started: Array) -> Array:
    """Lanes that an active lane's member mask names and that exist, but are not active."""
    idle = started & ~active
    if not idle.any():
        return idle
    named = np.bitwise_or.reduce(np.where(active, members, np.uint32(0)).reshape(-1, 32), axis=1)
    return ((named[:, None] & BITS) != 0).ravel() & idle


def shuffle(mode: str, a: Array, b: Array, c: Array, active: Array) -> tuple[Array, Array]:
    """shfl.sync: each lane's value from another lane of its segment (its own if that lane is out of range), and whether
    it was in range.

    b: the distance or lane. c: the clamp in bits 0 to 4, the segment mask in bits 8 to 12. The value of an inactive
    source lane is undefined; here it is its last one.
    """
    everyone = np.arange(len(active))
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
    source = np.where(valid, everyone - lane + source, everyone)
    return np.broadcast_to(a, active.shape)[source], valid & active


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
    ufunc, neutral = {
        "add": (np.add, 0),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
        "and": (np.bitwise_and, -1 if info.min < 0 else info.max),
        "min": (np.minimum, info.max),
        "max": (np.maximum, info.min),
    }[operation]
    values = np.where(active, a, a.dtype.type(neutral)).reshape(-1, 32)
    return np.repeat(ufunc.reduce(values, axis=1, dtype=a.dtype), 32)


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
