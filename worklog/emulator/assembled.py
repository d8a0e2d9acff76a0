"""Shared-memory accesses as the assembler emits them.

It joins neighbours into accesses of 8 or 16 bytes, and unrolls loops so that more of them are
neighbours.

PTX shows neither, and both decide how many wavefronts an access costs. The joining rules were found
by assembling small kernels for sm_75 to sm_120 and reading the machine code. The unrolling isn't
guessed: it is the smallest one that yields the machine code's shared accesses by number and width
(worklog.kernel.resources).
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from worklog.emulator.flow import Block, basic_blocks, branch_target
from worklog.emulator.ptx import Imm, Instruction, Mem, PtxKernel, Reg, Sym, size_of

Widths = tuple[tuple[str, int], ...]  # number of shared accesses by name and width
WIDE = 16
HALF = 8
WORD = 4
PLAIN = {"ld", "st", "shared", "shared::cta", "weak", "v2"}
MOST_INSTRUCTIONS = 100_000  # of all unrolled kernels that are tried: half a second
MOST_SUMS = 10_000
MOST_LOOPS = 3
FACTORS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32)  # by which a loop may be unrolled


@dataclass(frozen=True)
class Group:
    """A wide access that an access is part of.

    It applies only if its start is a multiple of its width at run time.
    """

    leads: bool  # whether the access is the one of the group that is counted
    offset: int  # of the group's start, from the access's own base register
    width: int  # bytes


Groups = dict[int, tuple[Group, ...]]


class _JoinedAccess(NamedTuple):
    """An access to shared memory that may be joined with others."""

    pc: int
    start: int  # the first byte, relative to the register that its base comes from
    width: int  # bytes
    base: int  # the number added to that register before


class _Joiner:
    """Joins the shared accesses of a basic block, which come in the order of the code."""

    def __init__(self) -> None:
        self.groups: Groups = {}
        # registers as another register's earlier value plus a number
        self.bases: dict[str, tuple[str, int]] = {}
        self.loads: dict[str, list[_JoinedAccess]] = defaultdict(list)
        self.stores: dict[str, list[_JoinedAccess]] = defaultdict(list)

    def add(self, instruction: Instruction) -> None:
        """Add the next instruction."""
        name = instruction.parts[0]
        is_load = name == "ld"
        separates = "parts" in instruction.opcode.effects
        access = self._access(instruction)
        if (is_load or separates) and {"global", "local"}.isdisjoint(instruction.parts):
            if name != "st" or access is None or access[0] not in self.stores:
                self.join_stores()
            if separates:
                self.join_loads()
        if access:
            root, part = access
            accesses = self.loads if is_load else self.stores
            accesses[root].append(part)
        moved = self._moved(instruction)
        for register in instruction.defined:
            self.bases[register.name] = moved or (f"{register.name} {instruction.pc}", 0)

    def join_stores(self) -> None:
        """Join the stores so far, which later ones can't join."""
        self.groups.update(_joined(self.stores.values(), words_of_four=4))
        self.stores.clear()

    def join_loads(self) -> None:
        """Join the loads so far, which later ones can't join."""
        self.groups.update(_joined(self.loads.values(), words_of_four=3))
        self.loads.clear()

    def _access(self, instruction: Instruction) -> tuple[str, _JoinedAccess] | None:
        """Return the register that the address comes from, and the access.

        None if it can't be joined.
        """
        parts = instruction.parts
        is_plain = parts[0] in ("ld", "st") and "shared" in parts and not {*parts[:-1]} - PLAIN
        if not is_plain or instruction.guard or len(instruction.operands) != 2:
            return None
        address = instruction.operands[1 if parts[0] == "ld" else 0]
        if not isinstance(address, Mem):
            return None
        size = size_of(parts[-1])
        elements = instruction.opcode.elements
        if not WORD <= size <= HALF // elements:
            return None
        name = address.base.name if address.base else ""
        root, base = self.bases.get(name, (name, 0))
        return root, _JoinedAccess(instruction.pc, base + address.offset, size * elements, base)

    def _moved(self, instruction: Instruction) -> tuple[str, int] | None:
        """Return a register and the number that the instruction adds to it.

        None for anything else.
        """
        name = instruction.parts[0]
        if name not in ("add", "sub") or instruction.guard or len(instruction.operands) != 3:
            return None
        _, register, number = instruction.operands
        if not (isinstance(register, Reg) and isinstance(number, Imm) and number.kind == "int"):
            return None
        root, base = self.bases.get(register.name, (register.name, 0))
        added = int(number.value)
        return root, base + (added if name == "add" else -added)


def merged_accesses(kernel: PtxKernel, blocks: Iterable[Block]) -> Groups:
    """Return the groups of each shared access by pc, the widest first.

    Loads off one base are joined unless a store to shared memory or a barrier is between them: an
    aligned group of 16 bytes of which three or four words are read, else an aligned pair of words.
    Stores are joined when all four words, or two, are written with no other access to shared memory
    between them.
    """
    groups: Groups = {}
    for block in blocks:
        joiner = _Joiner()
        for instruction in kernel.instructions[block.start : block.stop]:
            joiner.add(instruction)
        joiner.join_stores()
        joiner.join_loads()
        groups.update(joiner.groups)
    return groups


def _joined(
    accesses: Iterable[list[_JoinedAccess]], words_of_four: int
) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """Yield the pc and the groups of each access that is joined.

    accesses: those off one base each
    words_of_four: how many words of an aligned group of four make it one access
    """
    for parts in accesses:
        groups: dict[int, list[Group]] = defaultdict(list)
        for width, min_words in ((WIDE, words_of_four), (HALF, 2)):
            by_start: dict[int, list[_JoinedAccess]] = defaultdict(list)
            for part in parts:
                by_start[part.start // width * width].append(part)
            for start, members in by_start.items():
                covered = set[int]()
                for part in members:
                    covered.update(range(part.start, part.start + part.width, WORD))
                if len(covered) >= min_words and len(members) > 1:
                    for part in members:
                        groups[part.pc].append(Group(part is members[0], start - part.base, width))
        for pc, of_access in groups.items():
            yield pc, tuple(of_access)


def widths(code: Sequence[Instruction], groups: Groups) -> Counter[str]:
    """Count the shared loads and stores that the assembler makes of instructions.

    By the names of worklog.kernel.resources.shared_widths.
    """
    counts: Counter[str] = Counter()
    for instruction in code:
        name = instruction.parts[0]
        if name not in ("ld", "st") or "shared" not in instruction.parts:
            continue
        if groups.get(instruction.pc):
            group = groups[instruction.pc][0]
            width = group.width if group.leads else 0
        else:
            width = size_of(instruction.parts[-1]) * instruction.opcode.elements
        if width:
            counts[f"{name.upper()}S.{8 * width if width >= WORD else 'narrow'}"] += 1
    return counts


def as_assembled(kernel: PtxKernel, machine_code: Widths) -> PtxKernel:
    """Return the kernel, unrolled to the shared accesses of the machine code.

    Its field `assembled` is True then. If no unrolling yields them, it is the unchanged kernel,
    with False.

    machine_code: the number of shared accesses by name and width
    """
    loops = inner_loops(kernel)[:MOST_LOOPS]
    instructions = 0  # of all kernels that were tried
    for factors in sorted(product(FACTORS, repeat=len(loops)), key=math.prod):
        candidate = kernel
        # From the last loop on, so that the positions of those before stay.
        for block, factor in reversed([*zip(loops, factors, strict=True)]):
            if factor > 1:
                candidate = unrolled(candidate, block, factor)
        instructions += len(candidate.instructions)
        if instructions > MOST_INSTRUCTIONS:
            break
        if _explains(candidate, dict(machine_code)):
            return replace(candidate, assembled=True)
    return replace(kernel, assembled=False)


def _explains(kernel: PtxKernel, machine_code: Mapping[str, int]) -> bool:
    """Return whether the machine code's accesses are those of the kernel's blocks.

    Each block occurs once or more.

    The assembler repeats the body of a loop that it unrolls, which changes nothing else if no
    accesses of two iterations join.
    """
    blocks = basic_blocks(kernel, assembled=True)
    groups = merged_accesses(kernel, blocks)
    counts = [widths(kernel.instructions[block.start : block.stop], groups) for block in blocks]
    names = sorted({*machine_code}.union(*counts))
    single = [tuple(count[name] for name in names) for count in counts]
    target = tuple(machine_code.get(name, 0) for name in names)
    return _is_reached(target, single)


def _is_reached(target: tuple[int, ...], single: Sequence[tuple[int, ...]]) -> bool:
    """Return whether these counts, each once or more, add up to a target.

    At most about MOST_SUMS sums are tried.
    """
    remainder = target
    for counts in single:
        remainder = tuple(map(operator.sub, remainder, counts))
    remainders = {remainder}  # after some blocks have been repeated
    for counts in {counts for counts in single if any(counts)}:
        for start in list(remainders):
            remainder = tuple(map(operator.sub, start, counts))
            while min(remainder) >= 0 and len(remainders) <= MOST_SUMS:
                remainders.add(remainder)
                remainder = tuple(map(operator.sub, remainder, counts))
    return (0,) * len(target) in remainders


def inner_loops(kernel: PtxKernel) -> list[Block]:
    """Return the loops of one block that access shared memory."""
    loops = []
    code = kernel.instructions
    for block in basic_blocks(kernel, assembled=True):
        last = code[block.stop - 1]
        if last.parts[0] != "bra" or not last.guard or branch_target(kernel, last) != block.start:
            continue
        if widths(code[block.start : block.stop], {}):
            loops.append(block)
    return loops


def unrolled(kernel: PtxKernel, block: Block, factor: int) -> PtxKernel:
    """Return the kernel with a loop's body `factor` times in a row.

    The branches between the copies leave the loop.
    """
    code = kernel.instructions
    body = code[block.start : block.stop - 1]
    last = code[block.stop - 1]
    assert last.guard is not None
    predicate, is_negated = last.guard
    exit_label = f"$behind {block.start}"
    leave = replace(
        last, op="bra.unrolled", operands=(Sym(exit_label),), guard=(predicate, not is_negated)
    )
    instructions = (
        *code[: block.start],
        *((*body, leave) * (factor - 1)),
        *body,
        last,
        *code[block.stop :],
    )
    added = len(instructions) - len(code)
    labels = {}
    for name, pc in kernel.labels.items():
        labels[name] = pc + added if pc >= block.stop else pc
    labels[exit_label] = block.stop + added
    return replace(
        kernel,
        instructions=tuple(
            replace(instruction, pc=pc) for pc, instruction in enumerate(instructions)
        ),
        labels=labels,
    )
