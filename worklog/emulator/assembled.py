"""Shared-memory accesses as the assembler emits them: it joins neighbours into accesses of 8 or 16 bytes, and unrolls
loops so that more of them are neighbours.

PTX does not show either, and both decide how many wavefronts an access costs. The joining rules were found by
assembling small kernels for sm_75 to sm_120 and reading the machine code. The unrolling is not guessed: the least one
is taken that gives the machine code's shared accesses by number and width (worklog.kernel.nvrtc).
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from worklog.emulator.flow import Block, basic_blocks, branch_target
from worklog.emulator.ptx import DTYPES, Imm, Instruction, Kernel, Mem, Reg, size_of
from worklog.kernel.resources import Widths

WIDE, HALF, WORD = 16, 8, 4
PLAIN = {"ld", "st", "shared", "shared::cta", "weak", "v2"}
MOST_TURNS = 1024
MOST_INSTRUCTIONS = 20_000
MOST_TRIES = 64
MOST_SUMS = 10_000
FOLLOWED = ("mov", "add", "setp")  # instructions whose literal results are known
COMPARE = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


@dataclass(frozen=True)
class Group:
    """A wide access that an access is part of. leads: the one access of the group that is counted. offset: of the
    group's start, from the access's own base register. width: bytes. It applies only if the start is a multiple of the
    width at run time.
    """

    leads: bool
    offset: int
    width: int


Groups = dict[int, tuple[Group, ...]]


class _Part(NamedTuple):
    """One access of `width` bytes at `start`, relative to the register that its base comes from. base: the number added
    to that register before.
    """

    pc: int
    start: int
    width: int
    base: int


def merged_accesses(kernel: Kernel, blocks: Iterable[Block]) -> Groups:
    """The groups of each shared access by pc, the widest first.

    Loads off one base are joined unless a store to shared memory or a barrier is between them: an aligned group of 16
    bytes of which three or four words are read, else an aligned pair of words. Stores are joined when all four words,
    or two, are written with no other access to shared memory between them.
    """
    out: Groups = {}
    for block in blocks:
        bases: dict[str, tuple[str, int]] = {}  # registers as another register's earlier value plus a number
        loads: dict[str, list[_Part]] = defaultdict(list)
        stores: dict[str, list[_Part]] = defaultdict(list)
        for i in kernel.instructions[block.start : block.stop]:
            loading, parts = i.parts[0] == "ld", "parts" in i.row.effects
            address = i.operands[loading] if len(i.operands) == 2 else None
            plain = i.parts[0] in ("ld", "st") and "shared" in i.parts and not {*i.parts[:-1]} - PLAIN and not i.guard
            root = part = None
            if plain and isinstance(address, Mem) and WORD <= (word := size_of(i.parts[-1])) <= HALF // i.row.elements:
                name = address.base.name if address.base else ""
                root, base = bases.get(name, (name, 0))
                part = _Part(i.pc, base + address.offset, word * i.row.elements, base)
            shared = (loading or parts) and {"global", "local"}.isdisjoint(i.parts)
            if shared and (i.parts[0] != "st" or root not in stores):
                out.update(_joined(stores.values(), 4))
                stores.clear()
            if shared and parts:
                out.update(_joined(loads.values(), 3))
                loads.clear()
            if root is not None and part is not None:
                (loads if loading else stores)[root].append(part)
            moved = None
            if i.parts[0] in ("add", "sub") and not i.guard and len(i.operands) == 3:  # a literal to a register
                _, x, number = i.operands
                if isinstance(x, Reg) and isinstance(number, Imm) and number.kind == "int":
                    start, before = bases.get(x.name, (x.name, 0))
                    moved = start, before + int(number.value) * (1 if i.parts[0] == "add" else -1)
            for register in i.defined:
                bases[register.name] = moved or (f"{register.name} {i.pc}", 0)
        out.update(_joined(stores.values(), 4))
        out.update(_joined(loads.values(), 3))
    return out


def _joined(accesses: Iterable[list[_Part]], enough: int) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """enough: how many words of an aligned group of four make it one access."""
    for parts in accesses:
        groups: dict[int, list[Group]] = defaultdict(list)
        for width, least in ((WIDE, enough), (HALF, 2)):
            by_start: dict[int, list[_Part]] = defaultdict(list)
            for part in parts:
                by_start[part.start // width * width].append(part)
            for start, members in by_start.items():
                words = {word for part in members for word in range(part.start, part.start + part.width, WORD)}
                if len(words) >= least and len(members) > 1:
                    for part in members:
                        groups[part.pc].append(Group(part is members[0], start - part.base, width))
        yield from ((pc, tuple(several)) for pc, several in groups.items())


def widths(code: Sequence[Instruction], groups: Groups) -> Counter[str]:
    """Number of shared loads and stores that the assembler makes of some instructions, by the names of
    worklog.kernel.resources.shared_widths.
    """
    found: Counter[str] = Counter()
    for instruction in code:
        name = instruction.parts[0]
        if name not in ("ld", "st") or "shared" not in instruction.parts:
            continue
        if groups.get(instruction.pc):
            group = groups[instruction.pc][0]
            width = group.width if group.leads else 0
        else:
            width = size_of(instruction.parts[-1]) * instruction.row.elements
        if width:
            found[f"{name.upper()}S.{8 * width if width >= WORD else 'narrow'}"] += 1
    return found


def as_assembled(kernel: Kernel, found: Widths) -> Kernel:
    """The kernel unrolled so that its shared accesses are those of the machine code, with `assembled` True; the
    unchanged kernel, with False, if no unrolling gives them.
    """
    code = kernel.instructions
    loops = [(block, turns) for block, turns in counted_loops(kernel) if widths(code[block.start : block.stop], {})]
    factors = [[n for n in range(1, turns + 1) if turns % n == 0] for _, turns in loops]
    for choice in islice(product(*factors), MOST_TRIES):
        chosen = [(block, factor) for (block, _), factor in zip(loops, choice, strict=True) if factor > 1]
        if sum(factor * (block.stop - block.start) for block, factor in chosen) > MOST_INSTRUCTIONS:
            continue
        candidate = kernel
        # From the last one, so that the positions of those before stay.
        for block, factor in reversed(chosen):
            candidate = unrolled(candidate, block, factor)
        if _explains(candidate, found):
            return replace(candidate, assembled=True)
    return replace(kernel, assembled=False)


def _explains(kernel: Kernel, found: Widths) -> bool:
    """Whether the machine code's accesses are those of the kernel's blocks, each block once or more: the assembler
    repeats the body of a loop that it unrolls, which changes nothing else if no accesses of two iterations join.
    """
    blocks = basic_blocks(kernel)
    groups = merged_accesses(kernel, blocks)
    counted = [widths(kernel.instructions[b.start : b.stop], groups) for b in blocks]
    names = sorted({*dict(found), *(name for part in counted for name in part)})
    parts = [tuple(part[name] for name in names) for part in counted]
    left = tuple(dict(found).get(name, 0) - sum(part[name] for part in counted) for name in names)
    # What may be left after some blocks have been repeated.
    sums = {left}
    for part in {part for part in parts if any(part)}:
        for rest in list(sums):
            while min(rest := tuple(map(operator.sub, rest, part))) >= 0 and len(sums) <= MOST_SUMS:
                sums.add(rest)
    return (0,) * len(names) in sums


def counted_loops(kernel: Kernel) -> list[tuple[Block, int]]:
    """Loops of one block whose counter starts, steps and ends at literals of the PTX, with their iterations."""
    blocks, code, out = basic_blocks(kernel), kernel.instructions, []
    times = Counter(register.name for i in code for register in i.defined)
    for block in blocks:
        last = code[block.stop - 1]
        if last.parts[0] == "bra" and last.guard and branch_target(kernel, last) == block.start:
            before = [_held(code, b, times) for b in blocks if block.index in b.successors and b != block]
            turns = _turns(code[block.start : block.stop], _common(before), *last.guard)
            out += [(block, turns)] * (turns > 1)
    return out


def _turns(code: Sequence[Instruction], start: Mapping[str, int], predicate: Reg, negated: bool) -> int:
    """Iterations of a block that ends with a guarded branch to itself, 0 if unknown. start: the registers that are
    literals before the loop.
    """
    other = {register.name for i in code if i.parts[0] not in FOLLOWED or i.guard for register in i.defined}
    held = {name: value for name, value in start.items() if name not in other}
    followed = [i for i in code if i.parts[0] in FOLLOWED and other.isdisjoint(r.name for r in i.defined)]
    for turn in range(1, MOST_TURNS + 1):
        for instruction in followed:
            _follow(instruction, held)
        if predicate.name not in held:
            return 0
        if bool(held[predicate.name]) == negated:
            return turn
    return 0


def _held(code: Sequence[Instruction], block: Block, times: Mapping[str, int]) -> dict[str, int]:
    """The registers that hold a literal at the end of a block: what nothing else sets, and what the block sets. times:
    how often each register is set.
    """
    held = dict[str, int]()
    for i in code:
        if block.start <= i.pc < block.stop or all(times[register.name] == 1 for register in i.defined):
            _follow(i, held)
    return held


def _follow(i: Instruction, held: dict[str, int]) -> None:
    """The registers that are literals after an instruction, from those before."""
    given = list[int | None]()
    for x in i.operands[1:]:
        literal = int(x.value) % 2**64 if isinstance(x, Imm) and x.kind == "int" else None
        given.append(held.get(x.name) if isinstance(x, Reg) else literal)
    for register in i.defined:
        held.pop(register.name, None)
    if i.parts[0] not in FOLLOWED or i.guard or None in given:
        return
    name, type_ = i.defined[0].name, DTYPES.get(i.parts[-1], "f4")
    values = np.array(given if type_[0] in "ui" else [], np.uint64).astype(type_)
    if i.parts[0] == "mov" and len(values) == 1:
        held[name] = int(values[0]) % 2**64
    elif i.parts[0] == "add" and len(values) == 2:
        held[name] = int(values[0] + values[1]) % 2**64
    elif len(values) == 2 and len(i.parts) == 3 and i.parts[1] in COMPARE:
        held[name] = int(COMPARE[i.parts[1]](*values))


def _common(states: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """What all of them have."""
    return dict(set.intersection(*(set(state.items()) for state in states))) if states else {}


def unrolled(kernel: Kernel, block: Block, factor: int) -> Kernel:
    """The kernel with a loop's body `factor` times in a row. The branches between the copies become "taken", which
    counts as a branch and falls through.
    """
    code = kernel.instructions
    body, last = code[block.start : block.stop - 1], code[block.stop - 1]
    taken = replace(last, op="taken", operands=(), guard=None)
    copies = (*((*body, taken) * (factor - 1)), *body, last)
    whole = (*code[: block.start], *copies, *code[block.stop :])
    more = len(whole) - len(code)
    return replace(
        kernel,
        instructions=tuple(replace(i, pc=pc) for pc, i in enumerate(whole)),
        labels={name: pc + (more if pc >= block.stop else 0) for name, pc in kernel.labels.items()},
    )
