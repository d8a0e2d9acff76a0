"""The choices of all launches of a kernel, and those that thousands of others would make.

The instructions that a kernel's guards and selections depend on make a kernel of their own, with
its branches and loops. Each of its threads stands for one thread of another launch: it takes M, N,
K and the rest from a row of a table, and notes what it chose. So the compiler's idioms (a remainder
by a multiplication, two conditions in one mask) needn't be recognised.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from worklog.emulator.core.compose import PASSES
from worklog.emulator.flow import LOADED, Block, Flow, branch_target, origins
from worklog.emulator.launching import Result, launch
from worklog.emulator.ptx import (
    Array,
    Imm,
    Instruction,
    Mem,
    Operand,
    Param,
    PtxKernel,
    Reg,
    Special,
    Sym,
    size_of,
)
from worklog.emulator.sizes import ConstantTable, SizeValue, size_values, tables

ROWS = 1024  # of one launch: one block
SLOT = 8  # bytes of a value in the table
# Of a loop, after which the judge leaves it: so each launch ends, whatever instructions that takes.
# What depends on the loop isn't known then.
TURNS = 128
ENOUGH = 2**60  # instructions
IN = Reg("%in", "b64")
OUT = Reg("%out", "b64")
GAPS = Reg("%gaps", "b64")
VALUES = Reg("%values", "b64")
LANE = Reg("%lane", "b32")
ONE = Reg("%one", "b32")
PLACES = (
    "%ctaid.x",
    "%ctaid.y",
    "%tid.x",
    "%tid.y",
    "%laneid",
    "%warpid",
    "%nctaid.x",
    "%nctaid.y",
)
THREAD_PLACES = {"%tid.x", "%tid.y"}
# what a kernel loads; whether a wait ended
UNKNOWN = "unknown"
UNKNOWN_FLOAT = "unknown float"
WAITED = "waited"
VOTED = "votes"
# The pc of an instruction, and a truth about it:
# - a guarded instruction or a selection: whether its predicate held
# - one that joins two predicates: whether the first one held alone, or the second one did
# - a minimum, a maximum or a mask: whether its result differed from its first operand
# - a shift to the right: whether its result wasn't 0
Choice = tuple[int, bool]
LIMITS = ("min", "max", "and", "shr")
EQUALITIES = ("setp", "eq"), ("setp", "ne")


@dataclass(frozen=True)
class Judge:
    """A kernel that computes choices.

    It writes notes, bytes that say whether a choice is made, gaps, by how much the sides of an
    equality differ, and the values that sizes decide, each with whether it was computed.
    """

    kernel: PtxKernel
    places: dict[Choice, int]  # the number of each choice's note
    notes: int  # their number
    equal: list[int]  # for each equality of 32 or 64 bits, the note that it holds
    compared: dict[int, int]  # for each comparison, by pc, the note that it holds
    # For each note that depends on loops before it, the notes that such a loop was left too early.
    left_before: dict[int, set[int]]
    left_before_value: list[set[int]]  # the same, for each value that sizes decide

    @staticmethod
    def unknown(notes: Array, left: set[int] | None) -> Array:
        """Return the rows in which one of these loops was left too early.

        notes: a note a line and a row a column
        """
        return np.asarray(notes[sorted(left or ())].any(axis=0))


@dataclass(eq=False)
class Coverage:
    """The choices that all launches of one kernel with one block size have made.

    chosen: the choices in all launches, coded as in Result.choices
    revealing: for each kind of mistake, the choices in the launches that would show it. The kinds
        are a wrong scalar, a shortened A, and a shortened B.
    ran: whether a thread reached each instruction
    read: whether a launch read each byte of the variables that have an initial value, by name
    instructions: warp instructions that judging has executed so far
    """

    kernel: PtxKernel
    names: tuple[
        str, ...
    ]  # what the parameters take: "M", "alpha", "A" …, and "" for anything else
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        self._flow = Flow(self.kernel)
        self.instructions = 0
        self.chosen, self._latest, self.ran, *self.revealing = np.zeros(
            (6, len(self.kernel.instructions)), np.uint8
        )
        self.read = dict[str, Array]()

    def add(self, result: Result) -> None:
        """Add the choices of a launch."""
        self.chosen |= result.choices
        self._latest |= result.choices
        self.ran |= np.array(result.executed, np.int64) > 0
        for name, is_read in result.read.items():
            self.read[name] = self.read.get(name, np.zeros_like(is_read)) | is_read

    def tell(self, *kinds: bool) -> None:
        """Note which mistakes the launches since the last call show.

        Their result was right.

        kinds: for each kind of mistake, whether these launches would show it
        """
        for choices, shows in zip(self.revealing, kinds, strict=False):
            if shows:
                np.bitwise_or(choices, self._latest, out=choices)
        self._latest[:] = 0

    def lacks(self, choice: Choice) -> bool:
        """Return whether no launch has made this choice."""
        pc, holds = choice
        return not self.chosen[pc] & (1 if holds else 2)

    def lacking(self, choice: Choice) -> list[bool]:
        """Return, for each kind of mistake, whether a choice is missing.

        It is missing if no launch that shows the mistake has made it.
        """
        pc, holds = choice
        return [not choices[pc] & (1 if holds else 2) for choices in self.revealing]

    @property
    def lines(self) -> set[int]:
        """The source lines that ran."""
        return {
            instruction.line for instruction in self.kernel.instructions if self.ran[instruction.pc]
        }

    def _block_of(self, pc: int) -> Block:
        for block in self._flow.blocks:
            if block.start <= pc < block.stop:
                return block
        raise LookupError(pc)

    def behind(self, choice: Choice) -> set[int]:
        """Return the source lines that only this choice of a branch leads to.

        Without lines that a launch ran. As far as it is known: none for a choice that isn't a
        branch.
        """
        code = self.kernel.instructions
        blocks = self._flow.blocks
        pc, holds = choice
        if code[pc].parts[0] != "bra":
            return set()
        waiting = [self._block_of(pc).successors[0 if holds else -1]]
        reached = set[int]()
        lines = set[int]()
        while waiting:
            number = waiting.pop()
            block = blocks[number]
            if number not in reached and not self.ran[block.start]:
                reached.add(number)
                waiting += block.successors
                lines |= {instruction.line for instruction in code[block.start : block.stop]}
        return lines - self.lines - {0}

    def divides(self, choice: Choice) -> bool:
        """Return whether this choice of a branch leads to a division of 64 bits.

        The compiler has a shorter path on the same line for two numbers of 32 bits: both give the
        same quotient.
        """
        code = self.kernel.instructions
        pc, holds = choice
        branch = self._block_of(pc)
        if code[pc].parts[0] != "bra" or len(branch.successors) < 2:
            return False
        successor = self._flow.blocks[branch.successors[0 if holds else -1]]
        lengths = ("b64", "u64", "s64")
        return any(
            instruction.parts[0] in ("div", "rem") and instruction.parts[-1] in lengths
            for instruction in code[successor.start : successor.stop]
        )

    @cached_property
    def deciding(self) -> dict[int, tuple[Reg, bool]]:
        """The predicate of each guarded instruction and selection, by pc.

        With each, whether it is negated.
        """
        code = self.kernel.instructions
        predicates = dict[int, tuple[Reg, bool]]()
        for instruction in code:
            if instruction.parts[0] == "selp" and instruction.reads:
                predicates[instruction.pc] = (instruction.reads[-1], False)
        for instruction in code:
            if instruction.guard:
                predicates[instruction.pc] = instruction.guard
        return predicates

    def comparisons(self, choice: Choice) -> set[int]:
        """Return the pcs of the comparisons that make the predicate of a choice.

        None if the predicate is computed in any other way.
        """
        waiting = [self.deciding[choice[0]][0]]
        visited = set[str]()
        pcs = set[int]()
        while waiting:
            register = waiting.pop()
            if register.name in visited:
                continue
            for instruction in self._definitions[register.name]:
                if instruction.parts[0] == "setp":
                    pcs.add(instruction.pc)
                elif instruction.parts[-1] == "pred":
                    waiting += instruction.reads
                else:
                    return set()
            visited.add(register.name)
        return pcs

    @cached_property
    def _definitions(self) -> dict[str, list[Instruction]]:
        definitions = defaultdict[str, list[Instruction]](list)
        for instruction in self.kernel.instructions:
            for register in instruction.defined:
                definitions[register.name].append(instruction)
        return definitions

    @cached_property
    def by_thread(self) -> set[int]:
        """The pcs of guarded instructions and selections that only the thread decides.

        That is, its place in its block.
        """

        def sources(instruction: Instruction) -> tuple[set[str], bool]:
            name = self._input(instruction)
            return {name} - {""}, not name

        code = [instruction for instruction in self.kernel.instructions if instruction.defined]
        by_register = origins(code, sources)
        pcs = set[int]()
        for pc, (predicate, _) in self.deciding.items():
            names = by_register[predicate.name]
            if names and names <= THREAD_PLACES:
                pcs.add(pc)
        return pcs

    @cached_property
    def voted(self) -> set[int]:
        """The pcs of guarded instructions and selections that depend on votes.

        They depend on votes of a warp, and on no loaded value. It isn't known which votes are
        possible.
        """

        def sources(instruction: Instruction) -> tuple[set[str], bool]:
            if instruction.opcode.loads:
                return {LOADED}, False
            return {VOTED} if instruction.parts[0] == "vote" else set(), True

        by_register = origins(self.kernel.instructions, sources)
        return {
            pc
            for pc, (predicate, _) in self.deciding.items()
            if by_register[predicate.name] == {VOTED}
        }

    @cached_property
    def _limits(self) -> dict[int, Operand]:
        """The operand that the result of each minimum, maximum, mask and shift is compared with.

        By pc. Shifts are to the right, and only instructions whose operands are known count.
        """

        def unknown_sources(instruction: Instruction) -> tuple[set[str], bool]:
            name = self._input(instruction)
            return {name} & {UNKNOWN, UNKNOWN_FLOAT, WAITED}, not name

        code = [instruction for instruction in self.kernel.instructions if instruction.defined]
        limits = [instruction for instruction in code if _is_limit(instruction)]
        unknown = origins(code, unknown_sources) if limits else {}
        compared_with = dict[int, Operand]()
        for instruction in limits:
            if any(unknown[register.name] for register in instruction.reads):
                continue
            is_shift = instruction.parts[0] == "shr"
            operand = Imm(0, 0, "int") if is_shift else instruction.operands[1]
            compared_with[instruction.pc] = operand
        return compared_with

    @cached_property
    def size_values(self) -> list[SizeValue]:
        """The values that sizes decide, and that reach a stored number or a table."""
        return size_values(self.kernel.instructions, self._input)

    @cached_property
    def tables(self) -> list[ConstantTable]:
        """The initialised arrays that the kernel only reads."""
        return tables(self._flow)

    @cached_property
    def _input_names(self) -> dict[int, str]:
        """The input that each instruction gives, by pc, for those that predicates depend on.

        "" if it computes.
        """
        definitions = dict(self._definitions)
        names = dict[int, str]()
        waiting = [register.name for register, _ in self.deciding.values()]
        for pc in self._limits:
            waiting += [register.name for register in self.kernel.instructions[pc].defined]
        waiting += [value.register.name for value in self.size_values]
        while waiting:
            for instruction in definitions.pop(waiting.pop(), ()):
                name = self._input(instruction)
                names[instruction.pc] = name
                if not name:
                    waiting += [register.name for register in instruction.reads]
                elif instruction.guard:
                    waiting.append(instruction.guard[0].name)
        return names

    def _input(self, instruction: Instruction) -> str:
        """Return the name of the input that an instruction's result is.

        "" if it computes the result.
        """
        row = instruction.opcode
        source = instruction.operands[-1]
        if isinstance(source, Special):
            if source.name in PLACES:
                return source.name
            return "" if source.name.startswith("%ntid") else UNKNOWN
        if (
            instruction.op.startswith("ld.param")
            and isinstance(source, Mem)
            and isinstance(source.base, Sym)
            and source.offset == 0
        ):
            params = [param.name for param in self.kernel.params]
            return self.names[params.index(source.base.name)] or UNKNOWN
        computes = not (row.memory or row.effects or row.forms or isinstance(source, Sym))
        if computes and isinstance(instruction.operands[0], Reg):
            return ""
        if instruction.parts[0] == "mbarrier":
            return WAITED
        is_float = any(register.type == "f32" for register in instruction.defined)
        return UNKNOWN_FLOAT if is_float else UNKNOWN

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the values that choices depend on."""
        return tuple(dict.fromkeys(name for _, name in sorted(self._input_names.items()) if name))

    @cached_property
    def constants(self) -> list[float]:
        """The numbers in the instructions that choices depend on, without their signs."""
        numbers = set[int | float]()
        for pc in self._input_names:
            for operand in self.kernel.instructions[pc].operands:
                if isinstance(operand, Imm):
                    numbers.add(abs(operand.value))
        return sorted(number for number in numbers if number < 2**31)

    @cached_property
    def judge(self) -> Judge:
        """The kernel that computes choices."""
        return _JudgeWriter(
            self.kernel,
            self._flow,
            deciding=self.deciding,
            limits=self._limits,
            input_names=self._input_names,
            inputs=self.inputs,
            block=self.block,
            size_values=self.size_values,
        ).judge()

    def judged(self, rows: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return which choices rows make, and the gaps between the sides of equalities.

        rows: the values of each input by name, one a row (default: 0)
        The first array has a note a line and a row a column. The second has an equality a line and
        a row a column: the difference of its sides, with their bits taken as integers, and 0 if the
        equality isn't reached.
        """
        notes, gaps, _ = self._judged(rows)
        return notes, gaps

    def sized(self, rows: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return the values that sizes decide, and whether each row computes them.

        rows: as for judged()
        Both have a value a line, as its bits, and a row a column.
        """
        _, _, values = self._judged(rows)
        return values[0::2], values[1::2] > 0

    def _judged(self, rows: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        """Return the notes, the gaps, and the values, each before whether it was computed."""
        judge = self.judge
        count = len(next(iter(rows.values())))
        notes = np.zeros((judge.notes, count), bool)
        gaps = np.zeros((len(judge.equal), count), np.int64)
        values_of_sizes = np.zeros((2 * len(self.size_values), count), np.int64)
        for start in range(0, count, ROWS):
            inputs = np.zeros((len(self.inputs), ROWS, SLOT), np.uint8)
            noted = np.zeros((judge.notes, ROWS), np.uint8)
            measured = np.zeros((len(gaps), ROWS), np.int64)
            computed = np.zeros((len(values_of_sizes), ROWS), np.int64)
            for number, name in enumerate(self.inputs):
                values = np.ascontiguousarray(rows.get(name, notes[0, :0])[start : start + ROWS])
                bytes_of_values = values.view(np.uint8).reshape(-1, values.itemsize)
                inputs[number, : len(values), : values.itemsize] = bytes_of_values
            outputs = (noted.reshape(-1), measured.reshape(-1), computed.reshape(-1))
            arguments = [inputs.reshape(-1), *outputs]
            result = launch(
                judge.kernel, (1,), ROWS, arguments, races=False, count=False, budget=ENOUGH
            )
            self.instructions += result.instructions
            notes[:, start : start + ROWS] = noted[:, : count - start]
            gaps[:, start : start + ROWS] = measured[:, : count - start]
            values_of_sizes[:, start : start + ROWS] = computed[:, : count - start]
        for number, equality in enumerate(judge.equal):
            gaps[number, judge.unknown(notes, judge.left_before.get(equality // 2 * 2))] = 0
        for number, left in enumerate(judge.left_before_value):
            values_of_sizes[2 * number + 1, judge.unknown(notes, left)] = 0
        for note, left in judge.left_before.items():
            notes[note : note + 2, judge.unknown(notes, left)] = False
        return notes, gaps, values_of_sizes


def _is_limit(instruction: Instruction) -> bool:
    """Return whether the choices of a minimum, maximum, mask or shift are recorded.

    A mask counts if it is a positive number."""
    name = instruction.parts[0]
    if name not in LIMITS or instruction.op not in PASSES or instruction.guard:
        return False
    if name != "and":
        return True
    mask = instruction.operands[-1]
    return isinstance(mask, Imm) and mask.value > 0


def _number(value: int) -> Imm:
    return Imm(value, value, "int")


class _JudgeWriter:
    """Writes the code of a Judge.

    kernel: whose choices it computes
    deciding, limits, input_names, inputs, block, size_values: as in Coverage
    """

    def __init__(
        self,
        kernel: PtxKernel,
        flow: Flow,
        *,
        deciding: Mapping[int, tuple[Reg, bool]],
        limits: Mapping[int, Operand],
        input_names: Mapping[int, str],
        inputs: tuple[str, ...],
        block: tuple[int, ...],
        size_values: Sequence[SizeValue],
    ) -> None:
        self.kernel = kernel
        self.flow = flow
        self.deciding = deciding
        self.limits = limits
        self.input_names = input_names
        self.inputs = inputs
        self.threads = dict(zip(("%ntid.x", "%ntid.y", "%ntid.z"), (*block, 1, 1), strict=False))
        self.values_read = defaultdict[int, list[tuple[int, Reg]]](list)  # with numbers, by pc
        for number, value in enumerate(size_values):
            for pc in value.readers:
                self.values_read[pc].append((number, value.register))
        self.block_index = 0  # of the block that is being written
        self.code = list[tuple[str, tuple[Operand, ...], tuple[Reg, bool] | None]]()
        self.notes = dict[tuple[int, str, int], int]()  # by block, predicate, and its assignments
        self.assignments = Counter[str]()  # of each register, so far
        self.places = dict[Choice, int]()
        self.equal = list[int]()
        self.compared = dict[int, int]()
        self.targets = {
            instruction.pc: branch_target(kernel, instruction)
            for instruction in kernel.instructions
            if instruction.parts[0] == "bra"
        }
        self.loops = {pc: target for pc, target in self.targets.items() if target <= pc}
        self.left = dict[int, int]()  # for each loop, the note that it was left too early
        self.loops_of = self._loops_of_registers()
        self.size_values = size_values

    def judge(self) -> Judge:
        """Write the code, and return the kernel."""
        labels = dict[str, int]()
        self._start()
        for block in self.flow.blocks:
            self.block_index = block.index
            labels[f"at_{block.start}"] = len(self.code)
            for instruction in self.kernel.instructions[block.start : block.stop]:
                self._note_decision(instruction)
                self._note_values(instruction)
                self._copy(instruction)
        labels[f"at_{len(self.kernel.instructions)}"] = len(self.code)
        self._emit("ret")
        instructions = tuple(
            Instruction(pc, op, operands, guard, 0, op)
            for pc, (op, operands, guard) in enumerate(self.code)
        )
        params = tuple(Param(name, "u64", 8) for name in ("in", "out", "gaps", "values"))
        kernel = PtxKernel("judge", self.kernel.arch, params, instructions, labels, (), None)
        left_before = dict[int, set[int]]()
        for (block_index, predicate, _), note in self.notes.items():
            if left := self._left_before(block_index, predicate):
                left_before[note] = left
        left_before_value = []
        for value in self.size_values:
            places = {self._block_index(pc) for pc in value.readers}
            name = value.register.name
            left_before_value.append(
                set[int]().union(*(self._left_before(place, name) for place in places))
            )
        return Judge(
            kernel,
            self.places,
            2 * (len(self.notes) + len(self.left)),
            self.equal,
            self.compared,
            left_before,
            left_before_value,
        )

    def _loops_of_registers(self) -> dict[str, set[str]]:
        """Return the loops in which each register's value may come about, by their branches."""

        def sources(instruction: Instruction) -> tuple[set[str], bool]:
            pc = instruction.pc
            return {str(last) for last, first in self.loops.items() if first <= pc <= last}, True

        return origins(self.kernel.instructions, sources) if self.loops else {}

    def _left_before(self, block_index: int, register_name: str) -> set[int]:
        """Return the notes that a loop was left too early that a register in a block comes from.

        Without loops around the block.
        """
        start = self.flow.blocks[block_index].start
        notes = set[int]()
        for last in map(int, self.loops_of.get(register_name, ())):
            if last in self.left and not self.loops[last] <= start <= last:
                notes.add(self.left[last])
        return notes

    def _block_index(self, pc: int) -> int:
        """Return the number of an instruction's block."""
        return next(block.index for block in self.flow.blocks if block.start <= pc < block.stop)

    def _emit(self, op: str, *operands: Operand, guard: tuple[Reg, bool] | None = None) -> None:
        self.code.append((op, operands, guard))

    def _start(self) -> None:
        """Compute the thread's addresses in the tables, and set the counters of turns to 0."""
        self._emit("mov.u32", LANE, Special("%tid.x"))
        self._emit("mov.u32", ONE, _number(1))
        for base, param, width in (
            (IN, "in", SLOT),
            (OUT, "out", 1),
            (GAPS, "gaps", SLOT),
            (VALUES, "values", SLOT),
        ):
            self._emit("ld.param.u64", base, Mem(Sym(param), 0))
            self._emit("mad.wide.u32", base, LANE, _number(width), base)
        for pc in self.targets:
            self._emit("mov.u32", Reg(f"%turns_{pc}", "b32"), _number(0))

    def _note(self, predicate: Reg) -> int:
        """Return the number of the note that a predicate holds here.

        The note behind it says that it doesn't.
        """
        key = self.block_index, predicate.name, self.assignments[predicate.name]
        if key not in self.notes:
            number = 2 * (len(self.notes) + len(self.left))
            self.notes[key] = number
            for negated in (False, True):
                address = Mem(OUT, ROWS * (number + negated))
                self._emit("st.global.u8", address, ONE, guard=(predicate, negated))
        return self.notes[key]

    def _note_decision(self, instruction: Instruction) -> None:
        """Note the predicate of a guarded instruction or a selection."""
        pc = instruction.pc
        if pc in self.deciding:
            predicate, negated = self.deciding[pc]
            number = self._note(predicate)
            self.places[pc, True] = number + negated
            self.places[pc, False] = number + (not negated)

    def _note_values(self, instruction: Instruction) -> None:
        """Note the values that sizes decide and that an instruction reads."""
        guard = instruction.guard
        for number, register in self.values_read[instruction.pc]:
            bits = 8 * size_of(register.type)
            address = Mem(VALUES, 2 * SLOT * ROWS * number)
            self._emit(f"st.global.b{bits}", address, register, guard=guard)
            is_computed = Mem(VALUES, SLOT * ROWS * (2 * number + 1))
            self._emit("st.global.b32", is_computed, ONE, guard=guard)

    def _copy(self, instruction: Instruction) -> None:
        """Write what the judge needs of an instruction."""
        pc = instruction.pc
        if pc in self.targets:
            self._branch(instruction)
        elif instruction.parts[0] in ("ret", "exit"):
            self._emit(instruction.op, guard=instruction.guard)
        elif pc in self.input_names:
            self.assignments.update(register.name for register in instruction.defined)
            if self.input_names[pc]:
                self._load(instruction)
            else:
                operands = map(self._of_launch, instruction.operands)
                self._emit(instruction.op, *operands, guard=instruction.guard)
                for register in instruction.defined:
                    if register.type == "pred":  # a part of a condition
                        self._note_condition(instruction, register)
            if instruction.op in ("and.pred", "or.pred"):
                self._note_alone(instruction)
            elif pc in self.limits:
                self._note_limit(instruction)

    def _of_launch(self, operand: Operand) -> Operand:
        """Return an operand as launches of the kernel have it, whose blocks aren't the judge's."""
        if isinstance(operand, Special) and operand.name in self.threads:
            return _number(self.threads[operand.name])
        return operand

    def _branch(self, instruction: Instruction) -> None:
        """Write a branch; it leaves a loop after TURNS turns."""
        pc = instruction.pc
        target = self.targets[pc]
        if target <= pc:
            turns = Reg(f"%turns_{pc}", "b32")
            is_over = Reg(f"%full_{pc}", "pred")
            self._emit("add.s32", turns, turns, ONE)
            self._emit("setp.ge.s32", is_over, turns, _number(TURNS))
            self.left[pc] = 2 * (len(self.notes) + len(self.left))
            self._emit("st.global.u8", Mem(OUT, ROWS * self.left[pc]), ONE, guard=(is_over, False))
            self._emit("bra", Sym(f"at_{pc + 1}"), guard=(is_over, False))
        self._emit(instruction.op, Sym(f"at_{target}"), guard=instruction.guard)

    def _load(self, instruction: Instruction) -> None:
        """Load the results of an instruction that gives an input."""
        guard = instruction.guard
        row = self.inputs.index(self.input_names[instruction.pc])
        address = Mem(IN, SLOT * ROWS * row)
        for register in instruction.defined:
            if register.type != "pred":
                self._emit(f"ld.global.{register.type}", register, address, guard=guard)
                continue
            loaded = Reg(f"{register.name}_in", "b32")
            self._emit("ld.global.b32", loaded, address, guard=guard)
            self._emit("setp.ne.s32", register, loaded, _number(0), guard=guard)
            self._note_condition(instruction, register)

    def _note_condition(self, instruction: Instruction, predicate: Reg) -> None:
        """Note a predicate that is set, and by how much the sides of an equality differ."""
        parts = instruction.parts
        number = self._note(predicate)
        if parts[0] == "setp":
            self.compared[instruction.pc] = number
        computes = not self.input_names[instruction.pc]
        if computes and parts[:2] in EQUALITIES and parts[-1][1:] in ("32", "64"):
            self._store_gap(instruction)
            self.equal.append(number + (parts[1] == "ne"))

    def _store_gap(self, instruction: Instruction) -> None:
        """Write the difference of the two sides of an equality, as 64 bits."""
        guard = instruction.guard
        bits = instruction.parts[-1][1:]
        gap = Reg(f"%gap_{instruction.pc}", f"b{bits}")
        self._emit(f"sub.s{bits}", gap, *instruction.operands[1:3], guard=guard)
        if bits == "32":
            wide = Reg(f"%wide_{instruction.pc}", "b64")
            self._emit("cvt.s64.s32", wide, gap, guard=guard)
            gap = wide
        address = Mem(GAPS, SLOT * ROWS * len(self.equal))
        self._emit("st.global.u64", address, gap, guard=guard)

    def _note_alone(self, instruction: Instruction) -> None:
        """Note whether each of two joined predicates holds alone."""
        _, first, second = instruction.operands
        for number, (holding, failing) in enumerate([(first, second), (second, first)]):
            alone = Reg(f"%alone_{number}_{instruction.pc}", "pred")
            self._emit("not.pred", alone, failing)
            self._emit("and.pred", alone, alone, holding)
            self.places[instruction.pc, number == 0] = self._note(alone)

    def _note_limit(self, instruction: Instruction) -> None:
        """Note whether a minimum, maximum, mask or shift differs from its operand."""
        pc = instruction.pc
        differs = Reg(f"%differs_{pc}", "pred")
        result = instruction.operands[0]
        self._emit(f"setp.ne.{instruction.parts[-1]}", differs, result, self.limits[pc])
        number = self._note(differs)
        self.places[pc, True] = number
        self.places[pc, False] = number + 1
