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

import numpy as np

from worklog.emulator.flow import Block, basic_blocks, branch_target
from worklog.emulator.ptx import DTYPES, Imm, Instruction, Kernel, Mem, Operand, Reg, size_of
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
# Registers as another register's earlier value plus a number.
Bases = dict[str, tuple[str, int]]


@dataclass(frozen=True)
class _Part:
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
        bases: Bases = {}
        loads: dict[str, list[_Part]] = defaultdict(list)
        stores: dict[str, list[_Part]] = defaultdict(list)
        for instruction in kernel.instructions[block.start : block.stop]:
            name, part = instruction.parts[0], _part(instruction, bases)
            parts = "parts" in instruction.row.effects
            shared = (name == "ld" or parts) and {"global", "local"}.isdisjoint(instruction.parts)
            if shared and (name != "st" or part is None or part[0] not in stores):
                out.update(_joined(stores.values(), 4))
                stores.clear()
            if shared and parts:
                out.update(_joined(loads.values(), 3))
                loads.clear()
            if part is not None:
                (loads if name == "ld" else stores)[part[0]].append(part[1])
            moved = _moved(instruction, bases)
            for register in instruction.defined:
                bases[register.name] = moved or (f"{register.name} {instruction.pc}", 0)
        out.update(_joined(stores.values(), 4))
        out.update(_joined(loads.values(), 3))
    return out


def _part(instruction: Instruction, bases: Bases) -> tuple[str, _Part] | None:
    """A plain access of 4 or 8 bytes per lane, and the name of the value that its base comes from."""
    parts = set(instruction.op.split(".")[:-1])
    if instruction.parts[0] not in ("ld", "st") or "shared" not in parts or parts - PLAIN or instruction.guard:
        return None
    if len(instruction.operands) != 2:
        return None
    word, address = size_of(instruction.parts[-1]), instruction.operands[instruction.parts[0] == "ld"]
    width = word * instruction.elements
    if not isinstance(address, Mem) or word < WORD or width > HALF:
        return None
    root, base = bases.get(address.base.name, (address.base.name, 0)) if address.base else ("", 0)
    return root, _Part(instruction.pc, base + address.offset, width, base)


def _moved(instruction: Instruction, bases: Bases) -> tuple[str, int] | None:
    """What an instruction that adds a literal to a register gives."""
    if instruction.parts[0] not in ("add", "sub") or instruction.guard or len(instruction.operands) != 3:
        return None
    _, base, number = instruction.operands
    if not isinstance(base, Reg) or not isinstance(number, Imm) or number.kind != "int":
        return None
    root, before = bases.get(base.name, (base.name, 0))
    return root, before + int(number.value) * (1 if instruction.parts[0] == "add" else -1)


def _joined(accesses: Iterable[list[_Part]], enough: int) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """enough: how many words of an aligned group of four make it one access."""
    for parts in accesses:
        by_start: dict[int, list[_Part]] = defaultdict(list)
        for part in parts:
            by_start[part.start // WIDE].append(part)
        for number, members in by_start.items():
            wide = _group(members, number * WIDE, WIDE, enough)
            pairs = [
                _group([p for p in members if p.start // HALF == half], half * HALF, HALF, 2)
                for half in (2 * number, 2 * number + 1)
            ]
            for part in members:
                found = [group[part.pc] for group in (wide, *pairs) if part.pc in group]
                if found:
                    yield part.pc, tuple(found)


def _group(members: list[_Part], start: int, width: int, enough: int) -> dict[int, Group]:
    """Each member's view of one wide access; nothing where too few words are accessed, or by one access."""
    words = {start_ for part in members for start_ in range(part.start, part.start + part.width, WORD)}
    if len(words) < enough or len(members) < 2:
        return {}
    return {p.pc: Group(p.pc == members[0].pc, start - p.base, width) for p in members}


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
            width = size_of(instruction.parts[-1]) * instruction.elements
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
    blocks = basic_blocks(kernel)
    literals = _literals(kernel, blocks)
    out = []
    for block in blocks:
        last = kernel.instructions[block.stop - 1]
        if last.parts[0] == "bra" and last.guard and branch_target(kernel, last) == block.start:
            before = [literals[b.index] for b in blocks if block.index in b.successors and b != block]
            turns = _turns(kernel, block, _common(before), *last.guard)
            if turns is not None and turns > 1:
                out.append((block, turns))
    return out


def _turns(kernel: Kernel, block: Block, start: Mapping[str, int], predicate: Reg, negated: bool) -> int | None:
    """Iterations of a block that ends with a guarded branch to itself. start: the registers that are literals before
    the loop.
    """
    code = kernel.instructions[block.start : block.stop]
    other = {register.name for i in code if i.parts[0] not in FOLLOWED or i.guard for register in i.defined}
    held = {name: value for name, value in start.items() if name not in other}
    followed = [i for i in code if i.parts[0] in FOLLOWED and other.isdisjoint(r.name for r in i.defined)]
    for turn in range(1, MOST_TURNS + 1):
        for instruction in followed:
            _follow(instruction, held)
        if predicate.name not in held:
            return None
        if bool(held[predicate.name]) == negated:
            return turn
    return None


def _literals(kernel: Kernel, blocks: Sequence[Block]) -> list[Mapping[str, int]]:
    """The registers that hold a literal at the end of each block, on every path from the kernel's start."""
    out: list[dict[str, int] | None] = [None] * len(blocks)
    waiting = [blocks[0]]
    while waiting:
        block = waiting.pop()
        before = [out[b.index] for b in blocks if block.index in b.successors]
        held = _common([{}] * (block.index == 0) + [known for known in before if known is not None])
        for instruction in kernel.instructions[block.start : block.stop]:
            _follow(instruction, held)
        if held != out[block.index]:
            out[block.index] = held
            waiting += [blocks[follower] for follower in block.successors]
    return [held or {} for held in out]


def _follow(instruction: Instruction, held: dict[str, int]) -> None:
    """The registers that are literals after an instruction, from those before."""
    given = [held.get(x.name) if isinstance(x, Reg) else _number(x) for x in instruction.operands[1:]]
    for register in instruction.defined:
        held.pop(register.name, None)
    if instruction.parts[0] not in FOLLOWED or instruction.guard or None in given:
        return
    register, type_ = instruction.defined[0], DTYPES.get(instruction.parts[-1], "f4")
    values = np.array(given if type_[0] in "ui" else [], np.uint64).astype(type_)
    if instruction.parts[0] == "mov" and len(values) == 1:
        held[register.name] = int(values[0]) % 2**64
    elif instruction.parts[0] == "add" and len(values) == 2:
        held[register.name] = int(values[0] + values[1]) % 2**64
    elif len(values) == 2 and len(instruction.parts) == 3 and instruction.parts[1] in COMPARE:
        held[register.name] = int(COMPARE[instruction.parts[1]](*values))


def _number(operand: Operand) -> int | None:
    return int(operand.value) % 2**64 if isinstance(operand, Imm) and operand.kind == "int" else None


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
