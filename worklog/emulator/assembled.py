"""Shared-memory accesses as the assembler emits them: it joins neighbours into accesses of 8 or 16 bytes, and unrolls
loops so that more of them are neighbours.

PTX does not show either, and both decide how many wavefronts an access costs. The joining rules were found by
assembling small kernels for sm_75 to sm_120 and reading the machine code. The unrolling is not guessed: the least one
is taken that gives the machine code's shared accesses by number and width (worklog.kernel.nvrtc).
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from worklog.emulator.flow import Block, basic_blocks, branch_target, defined
from worklog.emulator.ptx import Imm, Instruction, Kernel, Mem, Reg, elements, size_of
from worklog.kernel.nvrtc import Widths

WIDE, HALF, WORD = 16, 8, 4
PARTING = ("st", "atom", "red", "cp", "bar", "barrier", "membar", "fence")
PLAIN = {"ld", "st", "shared", "shared::cta", "weak", "v2"}
MOST_TURNS = 1024
MOST_INSTRUCTIONS = 20_000
MOST_TRIES = 64
MOST_STEPS = 10_000
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
        bases = _Bases()
        loads: dict[str, list[_Part]] = defaultdict(list)
        stores: dict[str, list[_Part]] = defaultdict(list)
        for instruction in kernel.instructions[block.start : block.stop]:
            name, part = instruction.parts[0], bases.part(instruction)
            shared = name in ("ld", *PARTING) and "global" not in instruction.parts and "local" not in instruction.parts
            if shared and (name != "st" or part is None or part[0] not in stores):
                out.update(_joined(stores.values(), 4))
                stores.clear()
            if shared and name in PARTING:
                out.update(_joined(loads.values(), 3))
                loads.clear()
            if part is not None:
                (loads if name == "ld" else stores)[part[0]].append(part[1])
            bases.step(instruction)
        out.update(_joined(stores.values(), 4))
        out.update(_joined(loads.values(), 3))
    return out


class _Bases:
    """Registers as another register's earlier value plus a number, through one block."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[str, int]] = {}
        self.versions: Counter[str] = Counter()

    def of(self, name: str) -> tuple[str, int]:
        return self.values.get(name, (f"{name} {self.versions[name]}", 0))

    def part(self, instruction: Instruction) -> tuple[str, _Part] | None:
        """A plain access of 4 or 8 bytes per lane, and the name of the value that its base comes from."""
        parts = set(instruction.op.split(".")[:-1])
        if instruction.parts[0] not in ("ld", "st") or "shared" not in instruction.parts or parts - PLAIN:
            return None
        width = size_of(instruction.parts[-1]) * (2 if "v2" in parts else 1)
        address = next((operand for operand in instruction.operands if isinstance(operand, Mem)), None)
        if instruction.guard or address is None or width not in (WORD, HALF) or size_of(instruction.parts[-1]) < WORD:
            return None
        root, base = self.of(address.base.name) if address.base else ("", 0)
        return root, _Part(instruction.pc, base + address.offset, width, base)

    def step(self, instruction: Instruction) -> None:
        """Update the register that the instruction writes."""
        target = instruction.operands[0] if instruction.operands else None
        if not isinstance(target, Reg) or instruction.parts[0] in ("st", "red", "bra"):
            return
        value = None
        if instruction.parts[0] in ("add", "sub") and not instruction.guard:
            _, base, number = instruction.operands
            if isinstance(base, Reg) and isinstance(number, Imm) and number.kind == "int":
                root, before = self.of(base.name)
                sign = 1 if instruction.parts[0] == "add" else -1
                value = root, before + sign * int(number.value)
        self.versions[target.name] += 1
        self.values.pop(target.name, None)
        if value is not None:
            self.values[target.name] = value


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
    worklog.kernel.nvrtc.shared_widths.
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
            width = size_of(instruction.parts[-1]) * elements(instruction)
        if width:
            found[f"{name.upper()}S.{8 * width if width >= WORD else 'narrow'}"] += 1
    return found


@dataclass(frozen=True)
class Loop:
    """A block that branches to its own start, and its number of iterations."""

    block: Block
    turns: int


def as_assembled(kernel: Kernel, found: Widths) -> Kernel:
    """The kernel unrolled so that its shared accesses are those of the machine code, with `assembled` True; the
    unchanged kernel, with False, if no unrolling gives them.
    """
    loops = [loop for loop in counted_loops(kernel) if _accesses_shared(kernel, loop.block)]
    factors = [[n for n in range(1, loop.turns + 1) if loop.turns % n == 0] for loop in loops]
    for choice in islice(product(*factors), MOST_TRIES):
        size = sum(n * (loop.block.stop - loop.block.start) for n, loop in zip(choice, loops, strict=True) if n > 1)
        if size > MOST_INSTRUCTIONS:
            continue
        candidate = kernel
        # From the last one, so that the positions of those before stay.
        for loop, factor in sorted(zip(loops, choice, strict=True), key=lambda pair: -pair[0].block.start):
            candidate = unrolled(candidate, loop.block, factor)
        if _explains(candidate, found):
            return replace(candidate, assembled=True)
    return replace(kernel, assembled=False)


def _explains(kernel: Kernel, found: Widths) -> bool:
    """Whether the machine code's accesses are those of the kernel's blocks, each block once or more: the assembler
    repeats the body of a loop that it unrolls, which changes nothing else if no accesses of two iterations join.
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
    """Whether the parts, each any number of times, add up to `wanted`. steps: left before giving up."""
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
    """Loops of one block whose counter starts, steps and ends at literals of the PTX."""
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
    """Iterations of a block whose predicate compares a register, which a literal is added to, with a literal."""
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
    value, end = start, _wrapped(int(bound.value), type_)
    for turn in range(1, MOST_TURNS + 1):
        tested = value if late else value + int(step.value)
        if COMPARE[how](_wrapped(tested, type_), end) == negated:
            return turn
        value += int(step.value)
    return None


def _wrapped(value: int, type_: str) -> int:
    """The value that a register of the type holds."""
    bits = int(type_[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if type_[0] == "s" and value >> bits - 1 else value


def _on_entry(kernel: Kernel, blocks: Sequence[Block], loop: Block, counter: Reg) -> int | None:
    """The one literal that a register holds on every path from the kernel's start into the loop, or None."""
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
    """The literal that a mov gives, directly or as the literal that every definition of its source moves."""
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
