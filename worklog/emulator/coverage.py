"""What all launches of a kernel on the emulator have run, and what others would choose, computed for thousands at once.

The instructions that a kernel's guards and selections depend on make a kernel of their own, with its branches and
loops. Each of its threads stands for one thread of another launch: it takes M, N, K and the rest from a row of a table,
and notes what it chose. So no idiom of the compiler (a remainder by a multiplication, two conditions in one mask) need
be recognised.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from worklog.emulator.core.compose import PASSES
from worklog.emulator.flow import LOADED, Flow, branch_target, origins
from worklog.emulator.launching import Result, launch
from worklog.emulator.ptx import (
    Array,
    Imm,
    Instruction,
    Kernel,
    Mem,
    Operand,
    Param,
    Reg,
    Special,
    Sym,
)

ROWS = 1024  # of one launch: one block
SLOT = 8  # bytes of a value in the table
TURNS = (
    128  # of a loop, after which it ends: so each launch does, however many instructions that takes
)
ENOUGH = 2**60  # instructions
IN = Reg("%in", "b64")
OUT = Reg("%out", "b64")
GAPS = Reg("%gaps", "b64")
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
# what a kernel loads; whether a wait ended
UNKNOWN = "unknown"
UNKNOWN_FLOAT = "unknown float"
WAITED = "waited"
VOTED = "votes"
# The pc of a guarded instruction or a selection, and whether its predicate held; or of an instruction that joins two
# predicates, and whether the first one held alone or the other did; or of a minimum, a maximum or a mask, and whether
# its result was another than its first operand; or of a shift to the right, and whether its result was not 0.
Choice = tuple[int, bool]
LIMITS = ("min", "max", "and", "shr")
EQUALITIES = ("setp", "eq"), ("setp", "ne")


@dataclass(frozen=True)
class Judge:
    """A kernel that computes choices. places: the number of each choice's note, of as many notes. equal: of each
    equality of 32 or 64 bits, the note that it holds. compared: by pc of each comparison, the note that it holds.
    """

    kernel: Kernel
    places: dict[Choice, int]
    notes: int
    equal: list[int]
    compared: dict[int, int]


@dataclass(eq=False)
class Coverage:
    """Of one kernel with one block. names: of what its parameters take, as "M", "alpha" or "A", and ""
    for anything else. seen: its choices in
    all launches, as a Result has them; told: in those that show that a scalar is wrong, or that A or B is shortened.
    ran: whether a thread reached each instruction. instructions: of warps, that judging took so far.
    """

    kernel: Kernel
    names: tuple[str, ...]
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        self._flow = Flow(self.kernel)
        self.instructions = 0
        self.seen, self._latest, self.ran, *self.told = np.zeros(
            (6, len(self.kernel.instructions)), np.uint8
        )

    def add(self, result: Result) -> None:
        """One more launch."""
        self.seen |= result.choices
        self._latest |= result.choices
        self.ran |= np.array(result.executed, np.int64) > 0

    def tell(self, *kinds: bool) -> None:
        """Which mistakes the launches since the last call show, whose result was right."""
        for told, shows in zip(self.told, kinds, strict=False):
            told |= self._latest * shows
        self._latest[:] = 0

    def lacks(self, choice: Choice) -> bool:
        """Whether no launch has chosen this."""
        pc, held = choice
        return not self.seen[pc] & (1 if held else 2)

    def lacking(self, choice: Choice) -> list[bool]:
        """Of each kind of mistake, whether no launch that shows it has chosen this."""
        pc, held = choice
        return [not told[pc] & (1 if held else 2) for told in self.told]

    @property
    def lines(self) -> set[int]:
        """The source lines that ran."""
        return {i.line for i in self.kernel.instructions if self.ran[i.pc]}

    def behind(self, choice: Choice) -> set[int]:
        """The source lines that no launch ran and that only this choice of a branch leads to, as far as it is known."""
        code = self.kernel.instructions
        blocks = self._flow.blocks
        (pc, held) = choice
        if code[pc].parts[0] != "bra":
            return set()
        branch = next(block for block in blocks if block.start <= pc < block.stop)
        waiting = [branch.successors[0 if held else -1]]
        reached = set[int]()
        while waiting:
            number = waiting.pop()
            if number not in reached and not self.ran[blocks[number].start]:
                reached.add(number)
                waiting += blocks[number].successors
        lines = {
            i.line for number in reached for i in code[blocks[number].start : blocks[number].stop]
        }
        return lines - self.lines - {0}

    def divides(self, choice: Choice) -> bool:
        """Whether this choice of a branch leads to a division of 64 bits, for which the compiler has a shorter way on
        the same line where both numbers have 32: either gives the same quotient.
        """
        code = self.kernel.instructions
        blocks = self._flow.blocks
        (pc, held) = choice
        branch = next(block for block in blocks if block.start <= pc < block.stop)
        if code[pc].parts[0] != "bra" or len(branch.successors) < 2:
            return False
        way = blocks[branch.successors[0 if held else -1]]
        lengths = ("b64", "u64", "s64")
        return any(
            i.parts[0] in ("div", "rem") and i.parts[-1] in lengths
            for i in code[way.start : way.stop]
        )

    @cached_property
    def deciding(self) -> dict[int, tuple[Reg, bool]]:
        """By pc of each guarded instruction and each selection, its predicate, and whether that is negated."""
        code = self.kernel.instructions
        out = {
            i.pc: (register, False)
            for i in code
            if i.parts[0] == "selp"
            for register in i.reads[-1:]
        }
        return out | {i.pc: i.guard for i in code if i.guard}

    def comparisons(self, choice: Choice) -> set[int]:
        """The pcs of the comparisons that are joined to the predicate of a choice; none where it is made otherwise."""
        waiting = [self.deciding[choice[0]][0]]
        done = set[str]()
        out = set[int]()
        while waiting:
            register = waiting.pop()
            for i in self._definitions[register.name] if register.name not in done else ():
                if i.parts[0] == "setp":
                    out.add(i.pc)
                elif i.parts[-1] == "pred":
                    waiting += i.reads
                else:
                    return set()
            done.add(register.name)
        return out

    @cached_property
    def _definitions(self) -> dict[str, list[Instruction]]:
        out = defaultdict[str, list[Instruction]](list)
        for i in self.kernel.instructions:
            for register in i.defined:
                out[register.name].append(i)
        return out

    @cached_property
    def voted(self) -> set[int]:
        """The pcs of guarded instructions and selections whose predicate depends on votes of a warp, and on no loaded
        value: which votes are possible isn't known.
        """

        def own(i: Instruction) -> tuple[set[str], bool]:
            return {LOADED} if i.row.loads else {VOTED} if i.parts[
                0
            ] == "vote" else set(), not i.row.loads

        known = origins(self.kernel.instructions, own)
        return {
            pc for pc, (predicate, _) in self.deciding.items() if known[predicate.name] == {VOTED}
        }

    @cached_property
    def _limits(self) -> dict[int, Operand]:
        """By pc of each minimum, maximum, mask and shift to the right of known numbers, with what its result is
        compared.
        """

        def own(i: Instruction) -> tuple[set[str], bool]:
            name = self._input(i)
            return {name} & {UNKNOWN, UNKNOWN_FLOAT, WAITED}, not name

        code = [i for i in self.kernel.instructions if i.defined]
        out = dict[int, Operand]()
        limits = [i for i in code if i.parts[0] in LIMITS and i.op in PASSES and not i.guard]
        unknown = origins(code, own) if limits else {}
        for i in limits:
            mask = i.parts[0] == "and" and not (
                isinstance(i.operands[-1], Imm) and i.operands[-1].value > 0
            )
            if not mask and not any(unknown[register.name] for register in i.reads):
                out[i.pc] = Imm(0, 0, "int") if i.parts[0] == "shr" else i.operands[1]
        return out

    @cached_property
    def _wanted(self) -> dict[int, str]:
        """By pc of what the predicates depend on, the name of the input that it gives; "" if it computes."""
        definitions = dict(self._definitions)
        out = dict[int, str]()
        waiting = [register.name for register, _ in self.deciding.values()]
        waiting += [
            register.name
            for pc in self._limits
            for register in self.kernel.instructions[pc].defined
        ]
        while waiting:
            for i in definitions.pop(waiting.pop(), ()):
                out[i.pc] = self._input(i)
                given = [i.guard[0]] if i.guard else []
                waiting += [register.name for register in (given if out[i.pc] else i.reads)]
        return out

    def _input(self, i: Instruction) -> str:
        first = i.operands[0]
        last = i.operands[-1]
        row = i.row
        if isinstance(last, Special):
            return (
                last.name
                if last.name in PLACES
                else ""
                if last.name.startswith("%ntid")
                else UNKNOWN
            )
        if (
            i.op.startswith("ld.param")
            and isinstance(last, Mem)
            and isinstance(last.base, Sym)
            and last.offset == 0
        ):
            place = [param.name for param in self.kernel.params].index(last.base.name)
            name = self.names[place]
            return name or UNKNOWN
        if (
            row.memory
            or row.effects
            or row.forms
            or isinstance(last, Sym)
            or not isinstance(first, Reg)
        ):
            unknown = (
                UNKNOWN_FLOAT if any(register.type == "f32" for register in i.defined) else UNKNOWN
            )
            return WAITED if i.parts[0] == "mbarrier" else unknown
        return ""

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values on which choices depend."""
        return tuple(dict.fromkeys(name for _, name in sorted(self._wanted.items()) if name))

    @cached_property
    def constants(self) -> list[float]:
        """Numbers that occur in what decides, without their signs."""
        code = [self.kernel.instructions[pc] for pc in self._wanted]
        numbers = {
            abs(operand.value) for i in code for operand in i.operands if isinstance(operand, Imm)
        }
        return sorted(number for number in numbers if number < 2**31)

    @cached_property
    def judge(self) -> Judge:
        """The kernel that computes choices."""
        code = list[tuple[str, tuple[Operand, ...], tuple[Reg, bool] | None]]()
        labels = dict[str, int]()
        notes = dict[tuple[int, str, int], int]()
        places = dict[Choice, int]()
        times = Counter[str]()
        equal = list[int]()
        compared = dict[int, int]()

        def emit(op: str, *operands: Operand, guard: tuple[Reg, bool] | None = None) -> None:
            code.append((op, operands, guard))

        def number(value: int) -> Imm:
            return Imm(value, value, "int")

        def note(predicate: Reg) -> int:
            """Where it is noted that a predicate holds here; behind it, that it does not."""
            key = block.index, predicate.name, times[predicate.name]
            if key not in notes:
                notes[key] = 2 * len(notes)
                for fails in (False, True):
                    emit(
                        "st.global.u8",
                        Mem(OUT, ROWS * (notes[key] + fails)),
                        ONE,
                        guard=(predicate, fails),
                    )
            return notes[key]

        emit("mov.u32", LANE, Special("%tid.x"))
        emit("mov.u32", ONE, number(1))
        for base, param, width in ((IN, "in", SLOT), (OUT, "out", 1), (GAPS, "gaps", SLOT)):
            emit("ld.param.u64", base, Mem(Sym(param), 0))
            emit("mad.wide.u32", base, LANE, number(width), base)
        targets = {
            i.pc: branch_target(self.kernel, i)
            for i in self.kernel.instructions
            if i.parts[0] == "bra"
        }
        for pc in targets:
            emit("mov.u32", Reg(f"%turns_{pc}", "b32"), number(0))
        for block in self._flow.blocks:
            labels[f"at_{block.start}"] = len(code)
            for i in self.kernel.instructions[block.start : block.stop]:
                name = self._wanted.get(i.pc)
                if i.pc in self.deciding:
                    predicate, negated = self.deciding[i.pc]
                    place = note(predicate)
                    places |= {(i.pc, True): place + negated, (i.pc, False): place + (not negated)}
                if i.pc in targets:
                    turns = Reg(f"%turns_{i.pc}", "b32")
                    full = Reg(f"%full_{i.pc}", "pred")
                    if targets[i.pc] <= i.pc:  # out of the loop after some turns
                        emit("add.s32", turns, turns, ONE)
                        emit("setp.ge.s32", full, turns, number(TURNS))
                        emit("bra", Sym(f"at_{i.pc + 1}"), guard=(full, False))
                    emit(i.op, Sym(f"at_{targets[i.pc]}"), guard=i.guard)
                elif i.parts[0] in ("ret", "exit"):
                    emit(i.op, guard=i.guard)
                elif name is not None:
                    times.update(register.name for register in i.defined)
                    if not name:
                        emit(i.op, *i.operands, guard=i.guard)
                    for register in i.defined:
                        taken = (
                            Reg(f"{register.name}_in", "b32")
                            if register.type == "pred"
                            else register
                        )
                        if name:
                            address = Mem(IN, SLOT * ROWS * self.inputs.index(name))
                            emit(f"ld.global.{taken.type}", taken, address, guard=i.guard)
                        if name and taken != register:
                            emit("setp.ne.s32", register, taken, number(0), guard=i.guard)
                        if taken != register:  # a part of a condition
                            place = note(register)
                            compared |= {i.pc: place} if i.parts[0] == "setp" else {}
                            if (
                                not name
                                and i.parts[:2] in EQUALITIES
                                and i.parts[-1][1:] in ("32", "64")
                            ):
                                x, y = i.operands[1:3]
                                gap = Reg(f"%gap_{i.pc}", f"b{i.parts[-1][1:]}")
                                emit(f"sub.s{gap.type[1:]}", gap, x, y, guard=i.guard)
                                if gap.type == "b32":
                                    emit(
                                        "cvt.s64.s32",
                                        wide := Reg(f"%wide_{i.pc}", "b64"),
                                        gap,
                                        guard=i.guard,
                                    )
                                    gap = wide
                                emit(
                                    "st.global.u64",
                                    Mem(GAPS, SLOT * ROWS * len(equal)),
                                    gap,
                                    guard=i.guard,
                                )
                                equal.append(place + (i.parts[1] == "ne"))
                    if i.op in ("and.pred", "or.pred"):
                        for held, (x, y) in enumerate((i.operands[1:], i.operands[:0:-1])):
                            emit("not.pred", alone := Reg(f"%alone_{held}_{i.pc}", "pred"), y)
                            emit("and.pred", alone, alone, x)
                            places[i.pc, not held] = note(alone)
                    elif i.pc in self._limits:
                        differs = Reg(f"%differs_{i.pc}", "pred")
                        emit(f"setp.ne.{i.parts[-1]}", differs, i.operands[0], self._limits[i.pc])
                        place = note(differs)
                        places |= {(i.pc, True): place, (i.pc, False): place + 1}
        labels[f"at_{len(self.kernel.instructions)}"] = len(code)
        emit("ret")
        instructions = tuple(
            Instruction(pc, op, given, guard, 0, op) for pc, (op, given, guard) in enumerate(code)
        )
        params = tuple(Param(name, "u64", 8) for name in ("in", "out", "gaps"))
        kernel = Kernel("judge", self.kernel.arch, params, instructions, labels, (), None)
        return Judge(kernel, places, 2 * len(notes), equal, compared)

    def judged(self, rows: Mapping[str, Array]) -> tuple[Array, Array]:
        """By note and row, whether it is made; and by equality and row, by how much its sides differ, with their bits
        taken as integers (0 where it isn't reached). rows: by name of an input, its value in each row (default: 0).
        """
        judge = self.judge
        count = len(next(iter(rows.values())))
        out = np.zeros((judge.notes, count), bool)
        gaps = np.zeros((len(judge.equal), count), np.int64)
        for start in range(0, count, ROWS):
            given = np.zeros((len(self.inputs), ROWS, SLOT), np.uint8)
            noted = np.zeros((judge.notes, ROWS), np.uint8)
            apart = np.zeros((len(gaps), ROWS), np.int64)
            for place, name in enumerate(self.inputs):
                values = np.ascontiguousarray(rows.get(name, out[0, :0])[start : start + ROWS])
                given[place, : len(values), : values.itemsize] = values.view(np.uint8).reshape(
                    -1, values.itemsize
                )
            arguments = [given.reshape(-1), noted.reshape(-1), apart.reshape(-1)]
            run = launch(
                judge.kernel, (1,), ROWS, arguments, races=False, count=False, budget=ENOUGH
            )
            self.instructions += run.instructions
            out[:, start : start + ROWS] = noted[:, : count - start]
            gaps[:, start : start + ROWS] = apart[:, : count - start]
        return out, gaps
