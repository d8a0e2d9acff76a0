"""Loops of a known number of turns, unrolled as the assembler unrolled them.

Unrolled, neighbouring shared accesses of different turns become one wide access. How far the assembler goes is its own
secret, so nothing is guessed: the least unrolling is taken under which the kernel's shared accesses are, by number and
width, those of the machine code (worklog.kernel.cubin). What runs and what instructions are counted stays the same.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from worklog.emulator.flow import Block, basic_blocks, branch_target, defined, merged_accesses
from worklog.emulator.merging import widths
from worklog.emulator.ptx import Imm, Instruction, Kernel, Reg
from worklog.kernel.cubin import Widths

MOST_TURNS = 1024
MOST_INSTRUCTIONS = 20_000
MOST_TRIES = 64
MOST_STEPS = 10_000
UNSIGNED = ("lo", "ls", "hi", "hs")
COMPARE = {"ne": operator.ne, "eq": operator.eq, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
           "ge": operator.ge, "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}  # fmt: skip


@dataclass(frozen=True)
class Loop:
    """A block that branches to its own start, and how often it runs in a row."""

    block: Block
    turns: int


def as_assembled(kernel: Kernel, found: Widths) -> Kernel:
    """The kernel unrolled so that its shared accesses are those that were found in the machine code, with `assembled`
    True; the kernel as it is, with False, where no unrolling gives that.
    """
    loops = [loop for loop in counted_loops(kernel) if _accesses_shared(kernel, loop.block)]
    factors = [[n for n in range(1, loop.turns + 1) if loop.turns % n == 0] for loop in loops]
    for choice in islice(product(*factors), MOST_TRIES):
        size = sum(n * (loop.block.stop - loop.block.start) for n, loop in zip(choice, loops, strict=True) if n > 1)
        if size > MOST_INSTRUCTIONS:
            continue
        candidate = kernel
        # From the last one, so that the places of those before stay.
        for loop, factor in sorted(zip(loops, choice, strict=True), key=lambda pair: -pair[0].block.start):
            candidate = unrolled(candidate, loop.block, factor)
        if _explains(candidate, found):
            return replace(candidate, assembled=True)
    return replace(kernel, assembled=False)


def _explains(kernel: Kernel, found: Widths) -> bool:
    """Whether the machine code's accesses are those of the kernel's blocks, each block once or a few times: the
    assembler repeats the body of a loop that it unrolls, and where no turn's accesses join another's that is all.
    """
    blocks = basic_blocks(kernel)
    groups = merged_accesses(kernel, blocks)
    parts = Counter(tuple(widths(kernel.instructions[b.start : b.stop], groups).items()) for b in blocks)
    parts.pop((), None)
    left = Counter(dict(found))
    for part, times in parts.items():
        once = Counter({name: times * count for name, count in part})
        if not once <= left:
            return False
        left -= once
    return _adds_up(left, [Counter(dict(part)) for part in parts], [MOST_STEPS])


def _adds_up(wanted: Counter[str], parts: Sequence[Counter[str]], steps: list[int]) -> bool:
    """Whether each of the parts, so many times or not at all, gives what is wanted. steps: left before giving up."""
    if not +wanted:
        return True
    if not parts:
        return False
    first, *others = parts
    while steps[0] > 0:
        steps[0] -= 1
        if _adds_up(wanted, others, steps):
            return True
        if not first <= wanted:
            return False
        wanted = wanted - first
    return False


def _accesses_shared(kernel: Kernel, block: Block) -> bool:
    code = kernel.instructions[block.start : block.stop]
    return any(i.parts[0] in ("ld", "st") and "shared" in i.parts for i in code)


def counted_loops(kernel: Kernel) -> list[Loop]:
    """Loops of one block whose counter starts, steps and ends at numbers that the PTX has as literals."""
    blocks = basic_blocks(kernel)
    out = []
    for block in blocks:
        last = kernel.instructions[block.stop - 1]
        if last.parts[0] == "bra" and last.guard and branch_target(kernel, last) == block.start:
            turns = _turns(kernel, blocks, block, *last.guard)
            if turns is not None and turns > 1:
                out.append(Loop(block, turns))
    return out


def _turns(kernel: Kernel, blocks: Sequence[Block], block: Block, predicate: Reg, negated: bool) -> int | None:
    """How often the block runs: its predicate compares a register, which a literal is added to, with a literal."""
    tests = _definitions(kernel, block, predicate)
    if len(tests) != 1 or tests[0].parts[0] != "setp" or len(tests[0].parts) != 3 or tests[0].guard:
        return None
    _, counter, bound = tests[0].operands
    how, type_ = tests[0].parts[1:]
    if not isinstance(counter, Reg) or not isinstance(bound, Imm) or how not in COMPARE or type_[0] not in "bsu":
        return None
    steps = _definitions(kernel, block, counter)
    if len(steps) != 1 or steps[0].parts[0] != "add" or steps[0].guard or steps[0].operands[1] != counter:
        return None
    step, start = steps[0].operands[2], _on_entry(kernel, blocks, block, counter)
    if not isinstance(step, Imm) or start is None:
        return None
    late = steps[0].pc > tests[0].pc
    signed = type_[0] == "s" and how not in UNSIGNED
    value, end = start, _wrapped(int(bound.value), type_, signed)
    for turn in range(1, MOST_TURNS + 1):
        tested = value if late else value + int(step.value)
        if COMPARE[how](_wrapped(tested, type_, signed), end) == negated:
            return turn
        value += int(step.value)
    return None


def _wrapped(value: int, type_: str, signed: bool) -> int:
    """As a register of the type's width holds it."""
    bits = int(type_[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def _on_entry(kernel: Kernel, blocks: Sequence[Block], loop: Block, counter: Reg) -> int | None:
    """The one literal that a register holds whenever the loop is entered, on every way from the kernel's start."""
    before: dict[int, list[Block]] = {block.index: [] for block in blocks}
    for block in blocks:
        for follower in block.successors:
            before[follower].append(block)
    values: set[int | None] = set()
    waiting, seen = [block for block in before[loop.index] if block != loop], set[int]()
    while waiting:
        block = waiting.pop()
        if block.index in seen:
            continue
        seen.add(block.index)
        own = _definitions(kernel, block, counter)
        if own:
            values.add(_literal(kernel, own[-1]))
        elif block.index == 0:
            values.add(None)
        waiting += [] if own else before[block.index]
    return values.pop() if len(values) == 1 else None


def _literal(kernel: Kernel, instruction: Instruction, depth: int = 3) -> int | None:
    """What a mov gives: a literal, or the literal that every definition of the register moves."""
    if instruction.parts[0] != "mov" or instruction.guard or not depth:
        return None
    source = instruction.operands[1]
    if isinstance(source, Imm):
        return int(source.value) if source.kind == "int" else None
    if not isinstance(source, Reg):
        return None
    everywhere = [i for i in kernel.instructions if source.name in (r.name for r in defined(i))]
    values = {_literal(kernel, i, depth - 1) for i in everywhere}
    return values.pop() if len(values) == 1 else None


def _definitions(kernel: Kernel, block: Block, register: Reg) -> list[Instruction]:
    """Instructions of a block that write a register."""
    code = kernel.instructions[block.start : block.stop]
    return [i for i in code if register.name in (r.name for r in defined(i))]


def unrolled(kernel: Kernel, block: Block, factor: int) -> Kernel:
    """The kernel with a loop's body `factor` times in a row; the branches between the copies become "taken", which
    counts as a branch and goes nowhere.
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
