"""Warp instructions of a running batch: which lanes exchange values, and findings where member masks are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import warp

if TYPE_CHECKING:
    from worklog.emulator.machine import Machine

Array = NDArray[Any]
Mask = Any


class Exchange:
    """What generated code calls, as `S.exchange`."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.code = machine, machine.program
        # Of the latest shuffle: each lane's source lane, and the origins of undefined values (see `used`).
        self.source = self.undefined = np.zeros(0, np.uint32)

    def lanes_of(self, mask: Mask) -> Array:
        """The lanes of a mask, which is False for none."""
        machine = self.machine
        return np.zeros(machine.batch.lanes, bool) if mask is False else machine.lanes_of(mask)

    def _members(self, pc: int, members: Array, mask: Mask) -> Array:
        """The active lanes; reports where the instruction's member masks and the lanes that execute it don't agree."""
        lanes = self.lanes_of(mask)
        live, groups = self.machine.live, self.machine.groups
        for number in groups.keys() & self.code.returns:
            live = live & ~groups[number]
        for kind, wrong, what in warp.misused(members, lanes, live):
            if wrong.any():
                self.machine.recorder.add_lanes(kind, self.code.kernel.instructions[pc], wrong, what)
        return lanes

    def between(self, pc: int, function: Callable[..., Any], members: Array, mask: Mask, *operands: Any) -> Any:
        """An instruction in which the lanes of a member mask exchange values: a function of worklog.emulator.warp."""
        first, *others = warp.groups(members, self._members(pc, members, mask))
        out = function(*operands, first)
        for group in others:
            new = function(*operands, group)
            pairs = zip(new, out, strict=True) if isinstance(new, tuple) else ((new, out),)
            merged = tuple(np.where(group, one, other) for one, other in pairs)
            out = merged if isinstance(new, tuple) else merged[0]
        return out

    def shuffle(self, pc: int, members: Array, mask: Mask, mode: str, a: Array, b: Array, c: Array) -> Any:
        """shfl.sync: the values, and whether each source lane is in range. The value of a lane outside of the member
        mask, or one that does not execute the instruction, is undefined; here it is its last one.
        """
        lanes = self._members(pc, members, mask)
        self.source, valid = warp.source_lanes(mode, b, c, len(lanes))
        self.undefined = np.where(warp.undefined(self.source, members, lanes), np.uint32(pc + 1), np.uint32(0))
        return np.broadcast_to(a, lanes.shape)[self.source], valid & lanes

    def shuffled(self, origin: Array) -> Array:
        """The origins of the values that the latest shuffle gave; origin: of its operands. See `used`."""
        out: Array = np.maximum(self.undefined, np.broadcast_to(origin, self.undefined.shape)[self.source])
        return out

    def used(self, pc: int, origin: Array, mask: Mask) -> None:
        """Report lanes in which an instruction uses an undefined value. origin: the pc of the shuffle that gave each
        lane's value, plus 1; 0 for a defined value.
        """
        if not origin.any():
            return
        origin, code = np.where(self.lanes_of(mask), origin, np.uint32(0)), self.code.kernel.instructions
        for number in np.unique(origin[origin > 0]):
            what = "shuffles from a lane that is not in its member mask or does not execute the shuffle, and "
            what += f"line {code[pc].line} uses the value"
            self.machine.recorder.add_lanes("undefined-shuffle", code[number - 1], origin == number, what)

    def active(self, mask: Mask) -> Array:
        """activemask."""
        out: Array = warp.vote("ballot", self.lanes_of(mask), self.lanes_of(mask))
        return out

    def barrier(self, pc: int, members: Array, mask: Mask) -> None:
        """bar.warp.sync."""
        lanes = self._members(pc, members, mask)
        if self.machine.shared.checking:
            self.machine.shared.interval.synchronise_warps(lanes)
