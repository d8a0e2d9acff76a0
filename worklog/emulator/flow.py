"""Static analysis of a kernel.

It finds basic blocks, live registers, which array an address belongs to, and whether addresses
depend on loaded data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from worklog.emulator.ptx import (
    TIMES,
    Instruction,
    Mem,
    PtxError,
    PtxKernel,
    Reg,
    Special,
    Sym,
    Variable,
    registers,
)

LOADED = "loaded values"
COMPARES = ("setp", "set", "slct", "testp", "atom")
NAN = "0f7FC00000"  # as LLVM writes a number that depends on an undefined one


@dataclass(frozen=True)
class Block:
    """A basic block."""

    index: int
    start: int  # the pc of the first instruction
    stop: int  # that of the last one, plus 1
    successors: tuple[int, ...]  # the indices of the blocks that may follow


def basic_blocks(kernel: PtxKernel, assembled: bool = False) -> tuple[Block, ...]:
    """Return the basic blocks in the order of the code.

    A block also starts at each instruction at which lanes of a warp wait.

    assembled: blocks as the assembler joins accesses: also across these instructions, and across
        the copies of an unrolled loop's body
    Raises PtxError for a branch to an unknown label.
    """
    code = kernel.instructions
    if not code:
        raise PtxError(f"the kernel {kernel.name} has no instructions")
    jumps = set[int]()
    starts = {0, *kernel.labels.values()}
    for instruction in code:
        is_joined = assembled and "unrolled" in instruction.parts
        if instruction.parts[0] in ("bra", "ret", "exit") and not is_joined:
            jumps.add(instruction.pc)
            starts.add(instruction.pc + 1)
        elif instruction.opcode.barrier or instruction.op == "call.function":
            starts.add(instruction.pc + 1)
        if instruction.opcode.meeting and not assembled:
            starts.add(instruction.pc)
    order = sorted(starts - {len(code)})
    index_of = {pc: index for index, pc in enumerate(order)}
    blocks = []
    for index, (start, stop) in enumerate(zip(order, [*order[1:], len(code)], strict=True)):
        last = code[stop - 1]
        successors = []
        if last.parts[0] == "bra":
            target = branch_target(kernel, last)
            if target < len(code):
                successors.append(index_of[target])
        if stop < len(code) and (last.pc not in jumps or last.guard):
            successors.append(index + 1)
        blocks.append(Block(index, start, stop, tuple(successors)))
    return tuple(blocks)


def branch_target(kernel: PtxKernel, instruction: Instruction) -> int:
    """Return the pc that a bra goes to; the length of the code for a label at its end."""
    target = instruction.operands[0] if instruction.operands else None
    if not isinstance(target, Sym) or target.name not in kernel.labels:
        raise PtxError(f"{instruction.text!r} branches to a label that the kernel doesn't have")
    return kernel.labels[target.name]


def origins(
    code: Iterable[Instruction], sources: Callable[[Instruction], tuple[set[str], bool]]
) -> dict[str, set[str]]:
    """Return where the values of each register may come from.

    sources: what an instruction adds to its results, and whether they also come from its operands
    """
    by_register: dict[str, set[str]] = defaultdict(set)
    steps = [(*sources(instruction), instruction.used, instruction.defined) for instruction in code]
    has_changed = True
    while has_changed:
        has_changed = False
        for added, passes, operands, results in steps:
            values = set(added)
            if passes:
                values.update(*(by_register[register.name] for register in operands))
            for register in results:
                has_changed |= not values <= by_register[register.name]
                by_register[register.name] |= values
    return by_register


def is_approximate(instruction: Instruction) -> bool:
    """Return whether PTX lets a GPU's result differ from the nearest float32."""
    is_approximation = not {"approx", "full"}.isdisjoint(instruction.parts)
    return is_approximation and instruction.parts[-1] != "f64"


@dataclass(frozen=True, eq=False)
class Flow:
    """What is known of a kernel before it runs."""

    kernel: PtxKernel

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The basic blocks. Raises PtxError for a branch to an unknown label."""
        return basic_blocks(self.kernel)

    @cached_property
    def live_in(self) -> list[set[str]]:
        """The names of the registers that are live before each block."""
        previous = list[set[str]]()
        killed = [set[str]() for _ in self.blocks]
        live = [set[str]() for _ in self.blocks]
        for block in self.blocks:
            for instruction in self.kernel.instructions[block.start : block.stop]:
                used = {register.name for register in instruction.used}
                live[block.index] |= used - killed[block.index]
                killed[block.index] |= {register.name for register in instruction.defined}
        while live != previous:
            previous, live = live, [*live]
            for block in reversed(self.blocks):
                live_out = set().union(*(live[number] for number in block.successors))
                live[block.index] = live[block.index] | (live_out - killed[block.index])
        return live

    @cached_property
    def live_out(self) -> list[set[str]]:
        """The names of the registers that are live after each block."""
        return [
            set().union(*(self.live_in[number] for number in block.successors))
            for block in self.blocks
        ]

    @cached_property
    def unset(self) -> int | None:
        """The first line that may read a value which was never set, or None.

        Such a value is a register that no instruction sets before, or the NaN that the compiler
        writes for it. A right kernel may have such registers, on paths that never use them.
        """
        for instruction in self.kernel.instructions:
            reads_unset = any(register.name in self.live_in[0] for register in instruction.used)
            if instruction.line and (NAN in instruction.text or reads_unset):
                return instruction.line
        return None

    @cached_property
    def specials(self) -> set[str]:
        """The names of the special registers that the kernel reads."""
        names = set[str]()
        for instruction in self.kernel.instructions:
            for operand in instruction.operands:
                if isinstance(operand, Special):
                    names.add(operand.name)
        return names

    @cached_property
    def fences(self) -> bool:
        """True if the kernel has fences, releases or acquires."""
        return any(instruction.opcode.fence for instruction in self.kernel.instructions)

    @cached_property
    def notes(self) -> list[tuple[int, Instruction, str, str]]:
        """The instructions whose last bits may differ on a GPU, and reads of a clock.

        Each with the number of its block, the kind of finding and the message.
        """
        notes = []
        for block in self.blocks:
            for instruction in self.kernel.instructions[block.start : block.stop]:
                for operand in instruction.operands:
                    if isinstance(operand, Special) and operand.name in TIMES:
                        message = (
                            f"{operand.name} only grows by 1000 at each read here: the "
                            "emulator has no time"
                        )
                        notes.append((block.index, instruction, "no-time", message))
                if is_approximate(instruction):
                    message = (
                        f"{instruction.op} gives the nearest float32 here; a GPU's last "
                        "bits may differ"
                    )
                    notes.append((block.index, instruction, "approximation", message))
        return notes

    @cached_property
    def loops(self) -> tuple[tuple[int, int, int], ...]:
        """The head of each loop, its first pc, and its last pc plus 1."""
        loops = []
        for block in self.blocks:
            for head in block.successors:
                if head <= block.index:
                    loops.append((head, self.blocks[head].start, block.stop))
        return tuple(loops)

    @cached_property
    def may_wait(self) -> bool:
        """True if some loop reads global memory that other blocks may write.

        They may write it in the meantime. The loop reads with an atomic, a volatile, relaxed or
        acquire load, or next to a fence.
        """
        elsewhere = {"mbarrier", "cp", "shared", "proxy", "mbarrier_init"}
        for _, start, stop in self.loops:
            for instruction in self.kernel.instructions[start:stop]:
                orders = instruction.opcode.strong or instruction.opcode.fence
                if orders and elsewhere.isdisjoint(instruction.parts):
                    return True
        return False

    @cached_property
    def may_meet(self) -> bool:
        """True if a block may see what others do meanwhile, though it need not wait.

        It has an atomic or an ordered load of global memory, or the number of its multiprocessor.
        """
        elsewhere = {"mbarrier", "shared"}
        for instruction in self.kernel.instructions:
            is_read = instruction.opcode.strong and instruction.opcode.loads
            if is_read and elsewhere.isdisjoint(instruction.parts):
                return True
        return "%smid" in self.specials

    @cached_property
    def polling(self) -> set[int]:
        """The heads of loops that poll.

        A branch in them depends on what an atomic or an ordered load reads.
        """
        return self._polling("")

    def _polling(self, ignored: str) -> set[int]:
        """Return the polling loops.

        ignored: the memory whose loads don't count, or ""
        """

        def sources(instruction: Instruction) -> tuple[set[str], bool]:
            row = instruction.opcode
            is_result = row.strong and row.loads and bool(instruction.defined)
            return {"read"} if is_result and ignored not in instruction.parts else set(), True

        heads = set[int]()
        for head, start, stop in self.loops:
            code = self.kernel.instructions[start:stop]
            if not any(sources(instruction)[0] for instruction in code):
                continue
            by_register = origins(code, sources)
            for instruction in code:
                guard = instruction.guard
                if instruction.parts[0] == "bra" and guard and by_register[guard[0].name]:
                    heads.add(head)
        return heads

    @cached_property
    def orders_more_than_barriers(self) -> bool:
        """True if accesses to shared memory may be ordered by more than barriers.

        Barriers of blocks and warps.
        """
        for instruction in self.kernel.instructions:
            if instruction.parts[0] in ("mbarrier", "wgmma") or "bulk" in instruction.parts:
                return True
        return bool(self._polling("global"))

    @cached_property
    def moved(self) -> set[int]:
        """The pcs of ordered loads of data, which nothing compares as it does flags.

        A value in shared memory may be a flag that one thread has read for all.
        """

        def sources(instruction: Instruction) -> tuple[set[str], bool]:
            is_ordered = instruction.parts[0] == "ld" and instruction.opcode.strong
            return {str(instruction.pc)} if is_ordered else set(), True

        by_register = origins(self.kernel.instructions, sources)
        moved = set[int]()
        compared = set[str]()
        for instruction in self.kernel.instructions:
            if instruction.parts[0] == "ld" and instruction.opcode.strong:
                moved.add(instruction.pc)
            is_shared = instruction.parts[0] == "st" and "global" not in instruction.parts
            if instruction.parts[0] in COMPARES or is_shared:
                for register in instruction.used:
                    compared |= by_register[register.name]
        return moved - set(map(int, compared))

    @cached_property
    def guesses(self) -> set[int]:
        """The pcs of plain loads whose value a compare-and-swap compares.

        If another thread changes the value in between, the compare-and-swap fails, and its loop
        takes the new value.
        """

        def sources(instruction: Instruction) -> tuple[set[str], bool]:
            name = instruction.parts[0]
            is_plain_load = name == "ld" and not instruction.opcode.strong
            return {str(instruction.pc)} if is_plain_load else set(), name == "mov"

        code = self.kernel.instructions
        compared = [
            instruction.operands[-2]
            for instruction in code
            if instruction.parts[0] == "atom" and "cas" in instruction.parts
        ]
        if not compared:
            return set()
        by_register = origins(code, sources)
        pcs = set[int]()
        for register in registers(*compared):
            pcs.update(int(pc) for pc in by_register[register.name])
        return pcs

    @cached_property
    def written(self) -> set[str] | None:
        """The parameters and variables through which it may write to global memory.

        None if it may write through any.
        """
        pointers = {variable.name for variable in self.kernel.variables}
        pointers |= {param.name for param in self.kernel.params if param.size == 8}
        by_register = origins(self.kernel.instructions, _pointer_sources)
        elsewhere = {"shared", "local", "param", "sync"}
        names = set[str]()
        for instruction in self.kernel.instructions:
            writes = instruction.opcode.memory in ("st", "atom")
            if not writes or not elsewhere.isdisjoint(instruction.parts):
                continue
            for operand in instruction.operands:
                if not isinstance(operand, Mem):
                    continue
                through = _names_behind(operand, by_register)
                if LOADED in through or through.isdisjoint(pointers):
                    return None
                names |= through & pointers
        return names

    @cached_property
    def _origins(self) -> dict[str, set[str]]:
        """The shared variables that each register's value comes from.

        LOADED is among them if the value depends on loaded values.
        """
        shared = {variable.name for variable in self.kernel.variables if variable.space == "shared"}

        def sources(instruction: Instruction) -> tuple[set[str], bool]:
            if instruction.opcode.loads:
                return {LOADED}, False
            symbols = (operand for operand in instruction.operands if isinstance(operand, Sym))
            return {symbol.name for symbol in symbols} & shared, True

        return origins(self.kernel.instructions, sources)

    @cached_property
    def arrays(self) -> dict[int, Variable]:
        """The static array that the address of each shared access comes from, by pc.

        An access is absent if its address doesn't come from exactly one array.

        An extern array has one end: that of the block's memory. If a kernel divides it into parts,
        PTX has no names for them, and the offset of an access doesn't show its part: the compiler
        adds the constants of the index to it, so that element t - 32 of a part at byte 4096 is [4 *
        t + 3968]. Sizes of parts from the user wouldn't help: a check by offsets reports this right
        access, and the address alone is always inside of some part. If the parts have constant
        sizes, the kernel can declare each part as a separate __shared__ array: their ends are
        checked.
        """
        shared = {v.name: v for v in self.kernel.variables if v.space == "shared"}
        arrays = {}
        for instruction in self.kernel.instructions:
            if "shared" not in instruction.op:
                continue
            for operand in instruction.operands:
                if isinstance(operand, Mem) and operand.base:
                    base = operand.base.name
                    names = self._origins.get(base, {base}) & shared.keys()
                    if len(names) == 1:
                        array = shared[names.pop()]
                        if not array.extern:
                            arrays[instruction.pc] = array
        return arrays

    @cached_property
    def data_dependent(self) -> int | None:
        """The line of the first address or branch that depends on loaded values.

        None if there is none.
        """
        for instruction in self.kernel.instructions:
            addresses = (operand for operand in instruction.operands if isinstance(operand, Mem))
            deciding = [*registers(*addresses)]
            if instruction.guard:
                deciding.append(instruction.guard[0])
            if any(LOADED in self._origins[register.name] for register in deciding):
                return instruction.line
        return None


def _pointer_sources(instruction: Instruction) -> tuple[set[str], bool]:
    """Return the names that an instruction puts into an address.

    Also whether its operands reach its result.
    """
    if instruction.opcode.loads:
        return {LOADED} if instruction.parts[-1][1:] == "64" else set(), False
    names = set[str]()
    for operand in instruction.operands:
        symbol = operand.base if isinstance(operand, Mem) else operand
        if isinstance(symbol, Sym):
            names.add(symbol.name)
    return names, True


def _names_behind(address: Mem, by_register: Mapping[str, set[str]]) -> set[str]:
    """Return the names that an address comes from."""
    if isinstance(address.base, Reg):
        return by_register.get(address.base.name, set())
    return {address.base.name} if address.base else set()
