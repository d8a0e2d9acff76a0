"""Warp instructions of a running batch: which lanes wait for each other, which exchange values, and findings where
member masks are wrong.

PTX ISA, vote.sync, match.sync, redux.sync and shfl.sync: a thread waits until all non-exited threads of its member mask
have executed the same instruction with the same mask. That may be at several places of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from worklog.emulator.floats import Array
from worklog.emulator.ptx import Imm, Mask, Reg
from worklog.emulator.running import Running

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


def reduced(operation: str, a: Array, active: Array) -> Array:
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


class Collected(Exception):
    """The operands of lanes that meet others at another place of the code."""


class Exchange:
    """What generated code calls, as `S.exchange`, and the lanes that wait at warp instructions."""

    def __init__(self, machine: Running) -> None:
        self.machine, self.code, self.at = machine, machine.program, machine.program.flow.meetings
        # Of a shuffle: the origins (see `used`) of its operand, and of its result.
        self.origin = self.origins = np.zeros(1, np.uint32)
        lanes = machine.batch.lanes
        self.held: dict[int, Array] = {}  # lanes that wait, by block of code
        self.forced: tuple[Any, ...] | None = None
        # By lane: the member mask of its instruction, whether its guard lets it execute, and whether it lived when
        # another lane of its warp began to wait.
        self.members = np.zeros(lanes, np.uint32)
        self.executing = self.lived = np.zeros(lanes, bool)
        # Of the lanes that execute an instruction together: their masks, one group per mask, and the operands of those
        # at other places.
        self.named, self.parts = np.array([EVERYONE]), [np.zeros(lanes, bool)]
        self.elsewhere: list[tuple[Array, tuple[Array, ...]]] = []
        self.collecting = False

    # Waiting.

    def passes(self, number: int, lanes: Array, registers: dict[str, Array]) -> bool:
        """Whether lanes that reach a warp instruction, the first one of a block of code, can execute it at once. If not
        they are held.
        """
        machine, instruction, executing = self.machine, self.at[number], lanes
        if instruction.guard:
            register, negated = instruction.guard
            executing = lanes & (registers[register.name] ^ negated)
        mask = instruction.operands[-1] if instruction.operands and "aligned" not in instruction.parts else None
        named = registers[mask.name].astype(np.uint32) if isinstance(mask, Reg) else np.array([EVERYONE])
        if isinstance(mask, Imm):
            named = np.array([mask.bits & 0xFFFFFFFF], np.uint32)
        warps, threads = machine.census(lanes)
        if executing is lanes and len(named) == 1 and named[0] == EVERYONE and threads == 32 * warps:
            self._open({number: lanes}, lanes, named)
            return True
        self.executing = np.where(lanes, executing, self.executing)
        self.members = np.where(lanes, named, self.members)
        alive = machine.live
        for block in machine.groups.keys() & self.code.returns:
            alive = alive & ~machine.groups[block]
        self.lived = self.lived | (_warps(lanes) & alive)
        self.held[number] = self.held[number] | lanes if number in self.held else lanes
        if self.held[number] is not lanes or not (self._complete([number])[0] | ~lanes).all():
            return False
        return bool(self._take({number: lanes}))

    def meeting(self, before: float) -> dict[int, Array]:
        """Lanes that have all met at instructions of one kind, by block of code; they execute these next. Empty if
        other lanes, which are at block `before`, come first.
        """
        if not self.held or min(self.held) >= before:
            return {}
        kinds: dict[tuple[Any, ...], list[int]] = {}
        for number in sorted(self.held):
            kinds.setdefault(self._kind(number), []).append(number)
        for kind, numbers in kinds.items():
            complete = [True] * len(numbers) if kind == self.forced else self._complete(numbers)
            met = {number: self.held[number] & own for number, own in zip(numbers, complete, strict=True)}
            if met := {number: lanes for number, lanes in met.items() if lanes.any()}:
                return self._take(met)
        return {}

    def force(self) -> bool:
        """Where no other lane can run: the lanes that wait first do so no longer. False if there are none."""
        self.forced = self._kind(min(self.held)) if self.held else None
        return self.forced is not None

    def _kind(self, number: int) -> tuple[Any, ...]:
        """Equal for instructions that lanes of one warp can meet at. PTX ISA: with .aligned, only the same one."""
        instruction = self.at[number]
        return instruction.op, instruction.pc if "aligned" in instruction.parts else None

    def _complete(self, numbers: Sequence[int]) -> list[Array]:
        """Of blocks of code with instructions of one kind: the lanes that need not wait there (longer)."""
        live, here = _bits(self.machine.live), [self.held[number] & self.executing for number in numbers]
        same = np.zeros(len(self.members), np.uint32)
        if len(numbers) > 1:
            for group in groups(self.members, reduce(np.bitwise_or, here)):
                same = np.where(group, _bits(group), same)
        return [~self.executing | (self.members & live & ~(same | _bits(lanes)) == 0) for lanes in here]

    def _take(self, met: dict[int, Array]) -> dict[int, Array]:
        """Let lanes that were held go on."""
        for number, lanes in met.items():
            self.held[number] = self.held[number] & ~lanes
            if not self.held[number].any():
                del self.held[number]
        self.forced, together = None, reduce(np.bitwise_or, met.values())
        self._open(met, together & self.executing, self.members)
        self.lived = self.lived & ~_warps(together)
        return met

    def _open(self, met: dict[int, Array], active: Array, named: Array) -> None:
        """The lanes that execute the next instruction, with misuses of their member masks reported."""
        self.named, self.active, self.elsewhere = named, active, []
        self.parts = list(groups(named, active))
        first, place = next(iter(met)), {number: self.at[number] for number in met}
        for kind, wrong, what in misused(named, active, self.machine.live | self.lived):
            for number, lanes in met.items():
                own = wrong & (lanes | ~active) if number == first else wrong & lanes
                if own.any():
                    self.machine.batch.tell(kind, place[number], own, what)
        if place[first].parts[0] == "bar" and (order := self.machine.shared.order) is not None:
            for group in self.parts:
                order.synchronise_warps(group)
                if self.machine.memory.checks is not None:
                    self.machine.memory.checks.synchronise_warps(group)

    def collect(self, met: dict[int, Array], registers: dict[str, Array]) -> None:
        """Before lanes at several places exchange values: the operands that each place gives."""
        if self.at[min(met)].parts[0] == "bar":
            return
        found, self.collecting = [], True
        for number, lanes in met.items():
            try:
                self.code.function(number, True)(self.machine, dict(registers), lanes)
            except Collected as collected:
                found.append((lanes, collected.args[0]))
        self.elsewhere, self.collecting = found, False

    def _operands(self, own: tuple[Array, ...]) -> tuple[Array, ...]:
        """The operands of all lanes that meet."""
        if self.collecting:
            raise Collected(own)
        for lanes, theirs in self.elsewhere:
            own = tuple(np.where(lanes, their, mine) for their, mine in zip(theirs, own, strict=True))
        return own

    # Called by generated code.

    def between(self, function: Callable[..., Any], modes: tuple[str, ...], *own: Array) -> Any:
        """An instruction in which the lanes of a member mask exchange values: one of the functions above."""
        operands = self._operands(own)
        first, *others = self.parts
        out = function(*modes, *operands, first)
        for group in others:
            new = function(*modes, *operands, group)
            pairs = zip(new, out, strict=True) if isinstance(new, tuple) else ((new, out),)
            merged = tuple(np.where(group, one, other) for one, other in pairs)
            out = merged if isinstance(new, tuple) else merged[0]
        return out

    def shuffle(self, pc: int, mode: str, *operands: Array) -> Any:
        """shfl.sync: the values, and whether each source lane is in range. The value of a lane outside of the member
        mask, or one that does not execute the instruction, is undefined; here it is its last one.
        """
        a, b, c, origin = self._operands((*operands, self.origin))
        lanes = self.active
        source, valid = source_lanes(mode, b, c, len(lanes))
        lost = lanes & ~(lanes[source] & (self.named & BITS[source & 31] != 0))
        own = np.where(lost, np.uint32(pc + 1), np.uint32(0))
        self.origins = np.maximum(own, np.broadcast_to(origin, lanes.shape)[source])
        return np.broadcast_to(a, lanes.shape)[source], valid & lanes

    def used(self, pc: int, origin: Array, mask: Mask) -> None:
        """Report lanes in which an instruction uses an undefined value. origin: the pc of the shuffle that gave each
        lane's value, plus 1; 0 for a defined value.
        """
        if self.collecting or not origin.any():
            return
        origin, code = np.where(self.machine.lanes_of(mask), origin, np.uint32(0)), self.code.kernel.instructions
        for number in np.unique(origin[origin > 0]):
            what = "shuffles from a lane that is not in its member mask or does not execute the shuffle, and "
            what += f"line {code[pc].line} uses the value"
            self.machine.batch.tell("undefined-shuffle", code[number - 1], origin == number, what)


def _bits(lanes: Array) -> Array:
    """By lane, the lanes of its warp that are among these, as a mask."""
    return np.repeat(np.where(lanes.reshape(-1, 32), BITS, np.uint32(0)).sum(axis=1, dtype=np.uint32), 32)


def _warps(lanes: Array) -> Array:
    """All lanes of the warps that these lanes are in."""
    return np.repeat(lanes.reshape(-1, 32).any(axis=1), 32)
