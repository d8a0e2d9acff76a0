"""Static analysis of a kernel: basic blocks, live registers, which array an address belongs to, and whether addresses
depend on loaded data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from worklog.emulator.ptx import (
    TIMES,
    Instruction,
    Kernel,
    Mem,
    PtxError,
    Reg,
    Special,
    Sym,
    Variable,
    registers,
)

LOADED = "loaded values"
NAN = "0f7FC00000"  # as LLVM writes a number that depends on an undefined one


@dataclass(frozen=True)
class Block:
    """A basic block: instructions start … stop - 1; successors: indices of the blocks that may follow."""

    index: int
    start: int
    stop: int
    successors: tuple[int, ...]


def basic_blocks(kernel: Kernel, assembled: bool = False) -> tuple[Block, ...]:
    """In the order of the code; one also starts at each instruction at which lanes of a warp wait. assembled: as the
    assembler joins accesses: also across these, and across the copies of an unrolled loop's body.

    Raises PtxError for a branch to an unknown label.
    """
    out = []
    code = kernel.instructions
    if not code:
        raise PtxError(f"the kernel {kernel.name} has no instructions")
    jumps = {
        i.pc
        for i in code
        if i.parts[0] in ("bra", "ret", "exit") and not (assembled and "unrolled" in i.parts)
    }
    ends = {i.pc + 1 for i in code if i.pc in jumps or i.row.barrier or i.op == "call.function"}
    starts = {0, *kernel.labels.values(), *ends}
    starts |= {i.pc for i in code if i.row.meeting and not assembled}
    order = sorted(starts - {len(code)})
    number = {pc: index for index, pc in enumerate(order)}
    for index, (start, stop) in enumerate(zip(order, [*order[1:], len(code)], strict=True)):
        last = code[stop - 1]
        successors = (
            [index + 1] if stop < len(code) and (last.pc not in jumps or last.guard) else []
        )
        if last.parts[0] == "bra" and (target := branch_target(kernel, last)) < len(code):
            successors = [number[target], *successors]
        out.append(Block(index, start, stop, tuple(successors)))
    return tuple(out)


def branch_target(kernel: Kernel, instruction: Instruction) -> int:
    """The pc that a bra goes to; the length of the code for a label at its end."""
    target = instruction.operands[0] if instruction.operands else None
    if not isinstance(target, Sym) or target.name not in kernel.labels:
        raise PtxError(f"{instruction.text!r} branches to a label that the kernel doesn't have")
    return kernel.labels[target.name]


def origins(
    code: Iterable[Instruction], own: Callable[[Instruction], tuple[set[str], bool]]
) -> dict[str, set[str]]:
    """By register, where its values may come from. own: what an instruction adds to its results, and whether these also
    come from its operands.
    """
    out: dict[str, set[str]] = defaultdict(set)
    given = [(*own(i), i.used, i.defined) for i in code]
    changed = True
    while changed:
        changed = False
        for found, passes, taken, results in given:
            found = found.union(*(out[register.name] for register in taken)) if passes else found
            for register in results:
                changed |= not found <= out[register.name]
                out[register.name] |= found
    return out


@dataclass(frozen=True, eq=False)
class Flow:
    """What is known of a kernel before it runs."""

    kernel: Kernel

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of code that run as one. Raises PtxError for a branch to an unknown label."""
        return basic_blocks(self.kernel)

    @cached_property
    def live_in(self) -> list[set[str]]:
        """By block, the names of the registers that are live before it."""
        before = list[set[str]]()
        kill = [set[str]() for _ in self.blocks]
        out = [set[str]() for _ in self.blocks]
        for block in self.blocks:
            for i in self.kernel.instructions[block.start : block.stop]:
                out[block.index] |= {r.name for r in i.used} - kill[block.index]
                kill[block.index] |= {r.name for r in i.defined}
        while out != before:
            before, out = out, [*out]
            for block in reversed(self.blocks):
                after = set().union(*(out[s] for s in block.successors))
                out[block.index] = out[block.index] | (after - kill[block.index])
        return out

    @cached_property
    def live_out(self) -> list[set[str]]:
        """By block, the names of the registers that are live after it."""
        return [set().union(*(self.live_in[s] for s in block.successors)) for block in self.blocks]

    @cached_property
    def unset(self) -> int | None:
        """The first line that may read a value which was never set: a register that no instruction sets before, or the
        NaN that the compiler writes for it. A right kernel may have such registers, on paths that never use them.
        """
        for i in self.kernel.instructions:
            if i.line and (NAN in i.text or any(r.name in self.live_in[0] for r in i.used)):
                return i.line
        return None

    @cached_property
    def specials(self) -> set[str]:
        """Names of the special registers that the kernel reads."""
        return {
            x.name for i in self.kernel.instructions for x in i.operands if isinstance(x, Special)
        }

    @cached_property
    def fences(self) -> bool:
        """Whether the kernel has fences, releases or acquires."""
        return any(i.row.fence for i in self.kernel.instructions)

    @cached_property
    def notes(self) -> list[tuple[int, Instruction, str, str]]:
        """The instructions whose last bits may differ on a GPU, and reads of a clock: block, kind and message."""
        out = []
        for block in self.blocks:
            for i in self.kernel.instructions[block.start : block.stop]:
                for x in i.operands:
                    if isinstance(x, Special) and x.name in TIMES:
                        clock = f"{x.name} only grows by 1000 at each read here: the emulator has no time"
                        out.append((block.index, i, "no-time", clock))
                if i.parts[-1] != "f64" and not {"approx", "full"}.isdisjoint(i.parts):
                    bits = f"{i.op} gives the nearest float32 here; a GPU's last bits may differ"
                    out.append((block.index, i, "approximation", bits))
        return out

    @cached_property
    def loops(self) -> tuple[tuple[int, int, int], ...]:
        """Of each loop: its head, and the first and the last pc, plus 1."""
        pairs = (
            (head, block)
            for block in self.blocks
            for head in block.successors
            if head <= block.index
        )
        return tuple((head, self.blocks[head].start, block.stop) for head, block in pairs)

    @cached_property
    def may_wait(self) -> bool:
        """Whether some loop reads global memory that other blocks may write in the meantime: with an atomic, a
        volatile, relaxed or acquire load, or beside a fence.
        """
        code = (i for _, start, stop in self.loops for i in self.kernel.instructions[start:stop])
        elsewhere = {"mbarrier", "cp", "shared", "proxy", "mbarrier_init"}
        return any(elsewhere.isdisjoint(i.parts) and (i.row.strong or i.row.fence) for i in code)

    @cached_property
    def polling(self) -> set[int]:
        """The heads of loops in which a branch depends on what an atomic or an ordered load reads."""
        return self._polling("")

    def _polling(self, without: str) -> set[int]:
        """Of loads from other than this memory."""

        def own(i: Instruction) -> tuple[set[str], bool]:
            strong = i.row.strong and bool(i.defined) and i.row.loads and without not in i.parts
            return {"read"} if strong else set(), True

        out = set()
        for head, start, stop in self.loops:
            code = self.kernel.instructions[start:stop]
            known = origins(code, own) if any(own(i)[0] for i in code) else defaultdict(set)
            out |= {
                head for i in code if i.parts[0] == "bra" and i.guard and known[i.guard[0].name]
            }
        return out

    @cached_property
    def orders_more_than_barriers(self) -> bool:
        """Whether more than barriers of blocks and warps may order accesses to shared memory."""
        by_copies = any(
            i.parts[0] in ("mbarrier", "wgmma") or "bulk" in i.parts
            for i in self.kernel.instructions
        )
        return by_copies or bool(self._polling("global"))

    @cached_property
    def guesses(self) -> set[int]:
        """The pcs of plain loads whose value a compare-and-swap compares: if another thread changes it in between, the
        compare-and-swap fails, and its loop takes the new value.
        """

        def own(i: Instruction) -> tuple[set[str], bool]:
            return {str(i.pc)} if i.parts[0] == "ld" and not i.row.strong else set(), i.parts[
                0
            ] == "mov"

        code = self.kernel.instructions
        compared = [i.operands[-2] for i in code if i.parts[0] == "atom" and "cas" in i.parts]
        known = origins(code, own) if compared else {}
        return {
            int(pc) for operand in compared for reg in registers(operand) for pc in known[reg.name]
        }

    @cached_property
    def written(self) -> set[str] | None:
        """The parameters and variables through which it may write to global memory; None: through any."""

        def own(i: Instruction) -> tuple[set[str], bool]:
            if i.row.loads:
                return {LOADED} if i.parts[-1][1:] == "64" else set(), False
            named = (
                operand.base if isinstance(operand, Mem) else operand for operand in i.operands
            )
            return {symbol.name for symbol in named if isinstance(symbol, Sym)}, True

        code = self.kernel.instructions
        params = self.kernel.params
        known = origins(code, own)
        out = set[str]()
        pointers = {v.name for v in self.kernel.variables} | {
            param.name for param in params if param.size == 8
        }
        for i in code:
            elsewhere = {"shared", "local", "param", "sync"}
            if i.row.memory not in ("st", "atom") or not elsewhere.isdisjoint(i.parts):
                continue
            for base in (operand.base for operand in i.operands if isinstance(operand, Mem)):
                through = (
                    known.get(base.name, set())
                    if isinstance(base, Reg)
                    else {base.name}
                    if base
                    else set()
                )
                if LOADED in through or through.isdisjoint(pointers):
                    return None
                out |= through & pointers
        return out

    @cached_property
    def _origins(self) -> dict[str, set[str]]:
        """By register, the shared variables that its value comes from, and LOADED if it depends on loaded values."""
        shared = {variable.name for variable in self.kernel.variables if variable.space == "shared"}

        def own(i: Instruction) -> tuple[set[str], bool]:
            if i.row.loads:
                return {LOADED}, False
            return {
                operand.name for operand in i.operands if isinstance(operand, Sym)
            } & shared, True

        return origins(self.kernel.instructions, own)

    @cached_property
    def arrays(self) -> dict[int, Variable]:
        """By pc of a shared access, the static array that its address comes from; absent if that is not exactly one.

        An extern array has one end: that of the block's memory. Where a kernel divides it into parts, PTX has no names
        for them, and the offset of an access doesn't tell its part: the compiler adds the constants of the index to it,
        so that element t - 32 of a part at byte 4096 is [4 * t + 3968]. Sizes of parts from the user would not help: a
        check by offsets reports this right access, and the address alone is always inside of some part. A kernel whose
        parts have constant sizes can declare each as a __shared__ array of its own: their ends are checked.
        """
        shared = {v.name: v for v in self.kernel.variables if v.space == "shared"}
        out = {}
        for i in self.kernel.instructions:
            for x in i.operands:
                if isinstance(x, Mem) and x.base and "shared" in i.op:
                    names = self._origins.get(x.base.name, {x.base.name}) & shared.keys()
                    if len(names) == 1 and not shared[name := names.pop()].extern:
                        out[i.pc] = shared[name]
        return out

    @cached_property
    def data_dependent(self) -> int | None:
        """The line of the first address or branch that depends on loaded values, or None."""
        for i in self.kernel.instructions:
            deciding = [
                *registers(*(x for x in i.operands if isinstance(x, Mem))),
                *(i.guard or ())[:1],
            ]
            if any(isinstance(reg, Reg) and LOADED in self._origins[reg.name] for reg in deciding):
                return i.line
        return None
