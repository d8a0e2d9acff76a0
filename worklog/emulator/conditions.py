"""What decides which code of a kernel runs, computed for thousands of launches at once.

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

from worklog.emulator.flow import Flow, branch_target
from worklog.emulator.launch import launch
from worklog.emulator.ptx import Array, Imm, Instruction, Kernel, Mem, Operand, Param, Reg, Special, Sym

ROWS, THREADS = 4096, 256  # of one launch
SLOT = 8  # bytes of a value in the table
TURNS = 4  # of a loop
IN, OUT, LANE, ONE = Reg("%in", "b64"), Reg("%out", "b64"), Reg("%lane", "b32"), Reg("%one", "b32")
PLACES = ("%ctaid.x", "%ctaid.y", "%ctaid.z", "%tid.x", "%tid.y", "%laneid", "%warpid", "%nctaid.x", "%nctaid.y")
UNKNOWN = "unknown"  # what a kernel loads
BITWISE = ("and", "or", "xor", "min", "max")
Choice = tuple[int, bool]  # the pc of a guarded instruction or a selection, and whether its predicate held


@dataclass(frozen=True, eq=False)
class Conditions:
    """Of one kernel. names: of what its parameters take, as "M", "alpha" or "A"."""

    kernel: Kernel
    names: tuple[str, ...]

    @cached_property
    def flow(self) -> Flow:  # noqa: D102
        return Flow(self.kernel)

    @cached_property
    def deciding(self) -> dict[int, tuple[Reg, bool]]:
        """By pc of each guarded instruction and each selection, its predicate, and whether that is negated."""
        code = self.kernel.instructions
        out = {i.pc: (register, False) for i in code if i.parts[0] == "selp" for register in i.reads[-1:]}
        return out | {i.pc: i.guard for i in code if i.guard}

    @cached_property
    def _wanted(self) -> dict[int, str]:
        """By pc of what the predicates depend on, the name of the input that it gives; "" if it computes."""
        definitions, out = defaultdict[str, list[Instruction]](list), dict[int, str]()
        for i in self.kernel.instructions:
            for register in i.defined:
                definitions[register.name].append(i)
        waiting = [register.name for register, _ in self.deciding.values()]
        while waiting:
            for i in definitions.pop(waiting.pop(), ()):
                out[i.pc] = self._input(i)
                given = [i.guard[0]] if i.guard else []
                waiting += [register.name for register in (given if out[i.pc] else i.reads)]
        return out

    def _input(self, i: Instruction) -> str:
        first, last, row = i.operands[0], i.operands[-1], i.row
        if isinstance(last, Special):
            return last.name if last.name in PLACES else "" if last.name.startswith("%ntid") else UNKNOWN
        if i.op.startswith("ld.param") and isinstance(last, Mem) and isinstance(last.base, Sym) and last.offset == 0:
            place = [param.name for param in self.kernel.params].index(last.base.name)
            return self.names[place].removeprefix("long ")
        loaded = row.memory or row.effects or row.forms or isinstance(last, Sym) or not isinstance(first, Reg)
        return UNKNOWN if loaded else ""

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values on which they depend."""
        return tuple(dict.fromkeys(name for _, name in sorted(self._wanted.items()) if name))

    @cached_property
    def constants(self) -> list[float]:
        """Numbers that occur in what decides, without their signs."""
        code = [self.kernel.instructions[pc] for pc in self._wanted]
        numbers = {abs(operand.value) for i in code for operand in i.operands if isinstance(operand, Imm)}
        return sorted(number for number in numbers if number < 2**31)

    @cached_property
    def _judge(self) -> tuple[Kernel, dict[Choice, int], int]:
        """The kernel that computes them, the number of each choice's note, and how many notes there are."""
        code, labels = list[tuple[str, tuple[Operand, ...], tuple[Reg, bool] | None]](), dict[str, int]()
        notes, places, times = dict[tuple[int, str, int], int](), dict[Choice, int](), Counter[str]()
        end, blocks = len(self.kernel.instructions), self.flow.blocks

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
                    emit("st.global.u8", Mem(OUT, ROWS * (notes[key] + fails)), ONE, guard=(predicate, fails))
            return notes[key]

        def load(register: Reg, name: str, i: Instruction) -> None:
            guard = i.guard
            if i.parts[0] == "mbarrier" and register.type == "pred":  # a wait ends at once
                emit("setp.eq.s32", register, ONE, ONE, guard=guard)
                return
            address, taken = Mem(IN, SLOT * ROWS * self.inputs.index(name)), Reg(f"{register.name}_in", "b32")
            if name != UNKNOWN or register.type[0] != "f":
                kind = "b32" if register.type == "pred" else register.type
                emit(f"ld.global.{kind}", taken if register.type == "pred" else register, address, guard=guard)
            else:
                emit("ld.global.b32", taken, address)
                emit(f"cvt.rn.{register.type}.s32", register, taken, guard=guard)
            if register.type == "pred":
                emit("setp.ne.s32", register, taken, number(0), guard=guard)

        block_of, threads = Reg("%block_of", "b32"), Reg("%threads", "b32")
        for register, name in ((block_of, "%ctaid.x"), (threads, "%ntid.x"), (LANE, "%tid.x")):
            emit("mov.u32", register, Special(name))
        emit("mad.lo.s32", LANE, block_of, threads, LANE)
        emit("mov.u32", ONE, number(1))
        for base, name, width in ((IN, "in", SLOT), (OUT, "out", 1)):
            emit("ld.param.u64", base, Mem(Sym(name), 0))
            emit("mul.wide.u32", offset := Reg(f"{base.name}_offset", "b64"), LANE, number(width))
            emit("add.s64", base, base, offset)
        back = {i.pc for i in self.kernel.instructions if i.parts[0] == "bra" and branch_target(self.kernel, i) <= i.pc}
        for pc in back:
            emit("mov.u32", Reg(f"%turns_{pc}", "b32"), number(0))
        for block in blocks:
            labels[f"at_{block.start}"] = len(code)
            for i in self.kernel.instructions[block.start : block.stop]:
                if i.pc in self.deciding:
                    predicate, negated = self.deciding[i.pc]
                    place = note(predicate)
                    places |= {(i.pc, True): place + negated, (i.pc, False): place + (not negated)}
                if i.parts[0] == "bra":
                    if i.pc in back:  # out of the loop after some turns
                        turns, full = Reg(f"%turns_{i.pc}", "b32"), Reg(f"%full_{i.pc}", "pred")
                        emit("add.s32", turns, turns, ONE)
                        emit("setp.ge.s32", full, turns, number(TURNS))
                        emit("bra", Sym(f"at_{self._behind(i)}"), guard=(full, False))
                    emit(i.op, Sym(f"at_{branch_target(self.kernel, i)}"), guard=i.guard)
                elif i.parts[0] in ("ret", "exit"):
                    emit(i.op, guard=i.guard)
                elif i.pc in self._wanted:
                    for register in i.defined:
                        times[register.name] += 1
                    if name := self._wanted[i.pc]:
                        for register in i.defined:
                            load(register, name, i)
                    else:
                        emit(i.op, *i.operands, guard=i.guard)
                    for register in i.defined if not self._wanted[i.pc] else ():
                        if register.type == "pred":
                            note(register)
                    for register in i.reads if i.parts[0] in BITWISE else ():
                        if register.type != "pred":  # a mask may be several conditions
                            kind = register.type.replace("b", "s").replace("u", "s")
                            emit(f"setp.eq.{kind}", zero := Reg(f"{register.name}_zero", "pred"), register, number(0))
                            times[zero.name] = times[register.name]
                            note(zero)
        labels[f"at_{end}"] = len(code)
        emit("ret")
        instructions = tuple(
            Instruction(pc, op, operands, guard, 0, op) for pc, (op, operands, guard) in enumerate(code)
        )
        params = Param("in", "u64", 8), Param("out", "u64", 8)
        kernel = Kernel("conditions", self.kernel.arch, params, instructions, labels, (), None)
        return kernel, places, 2 * len(notes)

    def _behind(self, i: Instruction) -> int:
        """The pc behind the loop that a branch ends."""
        if i.guard:
            return i.pc + 1
        start = branch_target(self.kernel, i)
        inside = [block for block in self.flow.blocks if start <= block.start <= i.pc]
        exits = [self.flow.blocks[s].start for block in inside for s in block.successors]
        return next((pc for pc in exits if not start <= pc <= i.pc), len(self.kernel.instructions))

    @property
    def places(self) -> dict[Choice, int]:
        """By choice, the number of its note."""
        return self._judge[1]

    def of(self, rows: Mapping[str, Array]) -> Array:
        """By note and row, whether it is made. rows: by name of an input, its value in each row; those that aren't
        there are 0.
        """
        kernel, _, notes = self._judge
        count = len(next(iter(rows.values())))
        out = np.zeros((notes, count), bool)
        for start in range(0, count, ROWS):
            size = min(count - start, ROWS)
            given, noted = np.zeros((len(self.inputs), ROWS, SLOT), np.uint8), np.zeros((notes, ROWS), np.uint8)
            for place, name in enumerate(self.inputs):
                if name in rows:
                    data = np.ascontiguousarray(rows[name][start : start + size])
                    given[place, :size, : data.itemsize] = data.view(np.uint8).reshape(size, -1)
            blocks = -(-size // THREADS)
            launch(kernel, (blocks,), THREADS, [given.reshape(-1), noted.reshape(-1)], races=False, count=False)
            out[:, start : start + size] = noted[:, :size]
        return out
