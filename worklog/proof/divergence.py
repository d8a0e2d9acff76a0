"""Find where the threads of a block may take different ways.

A register varies if it may differ between the threads of a block at one place of the code: it
depends on the thread's index or on loaded data, or it is written where only some threads get to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from worklog.emulator.flow import Block, basic_blocks, branch_target
from worklog.emulator.ptx import Instruction, PtxKernel, Special
from worklog.proof.stop import ProofStopped

# Special registers that are the same for every thread of a block.
UNIFORM = {f"{name}.{axis}" for name, axis in product(("%ctaid", "%nctaid", "%ntid"), "xyz")}
# Instructions with a result that depends only on their operands. All others vary.
COMPUTED = {
    "mov", "add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "abs", "neg", "and", "or",
    "xor", "not", "shl", "shr", "bfi", "bfe", "cvt", "cvta", "setp", "selp",
    "rcp", "sqrt", "ex2", "lg2",
}  # fmt: skip


@dataclass(frozen=True)
class Graph:
    """The control flow of a kernel. The last place is its end, at which no block is."""

    blocks: Sequence[Block]
    successors: Sequence[tuple[int, ...]]  # of each block, and of the end
    dominators: Sequence[frozenset[int]]  # of each block: the blocks on every way to it
    postdominators: Sequence[frozenset[int]]  # of each block: the blocks on every way to the end

    @staticmethod
    def from_kernel(kernel: PtxKernel) -> Graph:
        """Return the graph of a kernel. Raises ProofStopped for an endless loop."""
        blocks = basic_blocks(kernel)
        end = len(blocks)
        successors = [_successors(kernel, block, end) for block in blocks]
        successors.append(())
        predecessors = [set[int]() for _ in successors]
        for index, targets in enumerate(successors):
            for target in targets:
                predecessors[target].add(index)
        finite = _reached(predecessors, end)
        for index in _reached(successors, 0):
            if index not in finite:
                line = kernel.instructions[blocks[index].start].line
                raise ProofStopped(line, "the loop has no end")
        after = [set(targets) for targets in successors]
        return Graph(blocks, successors, _dominators(predecessors, 0), _dominators(after, end))

    @cached_property
    def loops(self) -> dict[int, frozenset[int]]:
        """The blocks of each loop, by the block of its head."""
        loops = dict[int, frozenset[int]]()
        predecessors = [set[int]() for _ in self.successors]
        for index, targets in enumerate(self.successors):
            for target in targets:
                predecessors[target].add(index)
        for index, targets in enumerate(self.successors):
            for head in targets:
                if head in self.dominators[index]:
                    body = _reached(predecessors, index, barred=head)
                    loops[head] = loops.get(head, frozenset()) | body | {head}
        return loops

    def influenced(self, branch: int) -> set[int]:
        """Return the blocks that threads may skip or repeat by the branch of a block."""
        joins = self.postdominators[branch] - {branch}
        blocks = set[int]()
        for target in self.successors[branch]:
            if target not in joins:
                blocks |= _reached(self.successors, target, barred_all=joins)
        return blocks


def _successors(kernel: PtxKernel, block: Block, end: int) -> tuple[int, ...]:
    """Return the blocks that may follow a block, and the end if the kernel may end there."""
    last = kernel.instructions[block.stop - 1]
    is_exit = last.parts[0] in ("ret", "exit")
    if last.parts[0] == "bra" and branch_target(kernel, last) == len(kernel.instructions):
        is_exit = True
    if is_exit or not block.successors:
        return (*block.successors, end)
    return block.successors


def _reached(
    successors: Sequence[set[int]] | Sequence[tuple[int, ...]],
    start: int,
    *,
    barred: int | None = None,
    barred_all: frozenset[int] = frozenset(),
) -> frozenset[int]:
    """Return the blocks on ways from a block, itself included, that pass no barred block."""
    reached = set[int]()
    pending = [start]
    while pending:
        index = pending.pop()
        if index in reached or index == barred or index in barred_all:
            continue
        reached.add(index)
        pending += successors[index]
    return frozenset(reached)


def _dominators(predecessors: Sequence[set[int]], root: int) -> list[frozenset[int]]:
    """Return the dominators of each block, itself included.

    predecessors: the blocks that come directly before each block
    root: where every way begins
    """
    all_blocks = frozenset(range(len(predecessors)))
    result = [all_blocks] * len(predecessors)
    result[root] = frozenset({root})
    has_changed = True
    while has_changed:
        has_changed = False
        for index in all_blocks - {root}:
            shared = all_blocks
            for other in predecessors[index]:
                shared &= result[other]
            dominators = shared | {index}
            if dominators != result[index]:
                result[index] = dominators
                has_changed = True
    return result


@dataclass(frozen=True)
class Divergence:
    """What varies between the threads of a block."""

    varying: frozenset[str]  # registers
    branches: dict[int, Instruction]  # by a block that only some threads reach: the branch

    def deciding(self, graph: Graph, barrier: Instruction) -> Instruction | None:
        """Return the branch by which only some threads reach a barrier; None if all do."""
        if barrier.guard is not None:
            return barrier
        for block in graph.blocks:
            if block.start <= barrier.pc < block.stop:
                return self.branches.get(block.index)
        raise LookupError(barrier)


def divergence(kernel: PtxKernel, graph: Graph) -> Divergence:
    """Return what varies between the threads of a block."""
    varying = set[str]()
    branches = dict[int, Instruction]()
    count = -1
    while count != len(varying) + len(branches):
        count = len(varying) + len(branches)
        for block in graph.blocks:
            for instruction in kernel.instructions[block.start : block.stop]:
                if block.index in branches or _varies(instruction, varying):
                    varying.update(register.name for register in instruction.defined)
            last = kernel.instructions[block.stop - 1]
            if last.guard is not None and last.guard[0].name in varying:
                for index in graph.influenced(block.index):
                    branches.setdefault(index, last)
    return Divergence(frozenset(varying), branches)


def _varies(instruction: Instruction, varying: set[str]) -> bool:
    """Return whether an instruction's result may differ between threads."""
    if any(register.name in varying for register in instruction.used):
        return True
    if instruction.parts[:2] == ("ld", "param"):
        return False
    for operand in instruction.operands:
        if isinstance(operand, Special) and operand.name not in UNIFORM:
            return True
    return instruction.parts[0] not in COMPUTED
