"""Shared-memory accesses as the assembler emits them: it joins neighbours into accesses of 8 or 16 bytes, and unrolls
loops so that more of them are neighbours.

PTX does not show either, and both decide how many wavefronts an access costs. The joining rules were found by
assembling small kernels for sm_75 to sm_120 and reading the machine code. The unrolling is not guessed: the least one
is taken that gives the machine code's shared accesses by number and width (worklog.kernel.nvrtc).
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from worklog.emulator.flow import Block, basic_blocks, branch_target
from worklog.emulator.ptx import Imm, Instruction, Kernel, Mem, Reg, Sym, size_of

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
        bases: dict[
            str, tuple[str, int]
        ] = {}  # registers as another register's earlier value plus a number
        loads: dict[str, list[_Part]] = defaultdict(list)
        stores: dict[str, list[_Part]] = defaultdict(list)
        for i in kernel.instructions[block.start : block.stop]:
            loading = i.parts[0] == "ld"
            parts = "parts" in i.row.effects
            address = i.operands[loading] if len(i.operands) == 2 else None
            plain = (
                i.parts[0] in ("ld", "st")
                and "shared" in i.parts
                and not {*i.parts[:-1]} - PLAIN
                and not i.guard
            )
            root = part = None
            if (
                plain
                and isinstance(address, Mem)
                and WORD <= (word := size_of(i.parts[-1])) <= HALF // i.row.elements
            ):
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
            if (
                i.parts[0] in ("add", "sub") and not i.guard and len(i.operands) == 3
            ):  # a literal to a register
                _, x, number = i.operands
                if isinstance(x, Reg) and isinstance(number, Imm) and number.kind == "int":
                    start, before = bases.get(x.name, (x.name, 0))
                    moved = start, before + int(number.value) * (1 if i.parts[0] == "add" else -1)
            for register in i.defined:
                bases[register.name] = moved or (f"{register.name} {i.pc}", 0)
        out.update(_joined(stores.values(), 4))
        out.update(_joined(loads.values(), 3))
    return out


def _joined(
    accesses: Iterable[list[_Part]], enough: int
) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """enough: how many words of an aligned group of four make it one access."""
    for parts in accesses:
        groups: dict[int, list[Group]] = defaultdict(list)
        for width, least in ((WIDE, enough), (HALF, 2)):
            by_start: dict[int, list[_Part]] = defaultdict(list)
            for part in parts:
                by_start[part.start // width * width].append(part)
            for start, members in by_start.items():
                words = {
                    word
                    for part in members
                    for word in range(part.start, part.start + part.width, WORD)
                }
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
    loops = inner_loops(kernel)[:MOST_LOOPS]
    tried = 0
    for factors in sorted(product(FACTORS, repeat=len(loops)), key=math.prod):
        candidate = kernel
        # From the last one, so that the positions of those before stay.
        for block, factor in reversed([*zip(loops, factors, strict=True)]):
            candidate = unrolled(candidate, block, factor) if factor > 1 else candidate
        tried += len(candidate.instructions)
        if tried > MOST_INSTRUCTIONS:
            break
        if _explains(candidate, found):
            return replace(candidate, assembled=True)
    return replace(kernel, assembled=False)


def _explains(kernel: Kernel, found: Widths) -> bool:
    """Whether the machine code's accesses are those of the kernel's blocks, each block once or more: the assembler
    repeats the body of a loop that it unrolls, which changes nothing else if no accesses of two iterations join.
    """
    blocks = basic_blocks(kernel, assembled=True)
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


def inner_loops(kernel: Kernel) -> list[Block]:
    """Loops of one block that access shared memory."""
    out = []
    code = kernel.instructions
    for block in basic_blocks(kernel, assembled=True):
        last = code[block.stop - 1]
        again = last.parts[0] == "bra" and last.guard and branch_target(kernel, last) == block.start
        if again and widths(code[block.start : block.stop], {}):
            out.append(block)
    return out


def unrolled(kernel: Kernel, block: Block, factor: int) -> Kernel:
    """The kernel with a loop's body `factor` times in a row. The branches between the copies leave the loop."""
    code = kernel.instructions
    body = code[block.start : block.stop - 1]
    last = code[block.stop - 1]
    assert last.guard is not None
    predicate, negated = last.guard
    behind = f"$behind {block.start}"
    leave = replace(
        last, op="bra.unrolled", operands=(Sym(behind),), guard=(predicate, not negated)
    )
    whole = (
        *code[: block.start],
        *((*body, leave) * (factor - 1)),
        *body,
        last,
        *code[block.stop :],
    )
    more = len(whole) - len(code)
    labels = {name: pc + (more if pc >= block.stop else 0) for name, pc in kernel.labels.items()}
    return replace(
        kernel,
        instructions=tuple(replace(i, pc=pc) for pc, i in enumerate(whole)),
        labels={**labels, behind: block.stop + more},
    )
