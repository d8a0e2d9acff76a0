"""What decides which code of a kernel runs: its branches and selects as functions of the arguments of a launch, of the
block and of the thread.

They are computed by the emulator itself. The instructions that lead to a kernel's predicates make a kernel of their
own, without loops, whose threads each compute all of them for other arguments. So thousands of launches can be judged
in some milliseconds, and no idiom of the compiler (a remainder by a multiplication, two conditions in one mask) need be
recognised.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from worklog.emulator.flow import Flow, origins
from worklog.emulator.launch import launch
from worklog.emulator.ptx import Array, Imm, Instruction, Kernel, Mem, Operand, Param, Reg, Special, Sym

ROWS, THREADS = 4096, 256  # assignments that one launch judges
SLOT = 8  # bytes of one value
IN, OUT = Reg("%conditions_in", "b64"), Reg("%conditions_out", "b64")
PLACES = ("%ctaid.x", "%ctaid.y", "%ctaid.z", "%tid.x", "%tid.y", "%laneid", "%warpid", "%nctaid.x", "%nctaid.y")
BITWISE = ("and", "or", "xor", "min", "max")
Outcome = tuple[int, bool]  # the pc of a branch or a select, and whether its predicate held there


@dataclass(frozen=True, eq=False)
class Conditions:
    """Of one kernel. names: of what its parameters take, as "M", "alpha" or "A"."""

    kernel: Kernel
    names: tuple[str, ...]

    @cached_property
    def flow(self) -> Flow:  # noqa: D102
        return Flow(self.kernel)

    @cached_property
    def unsure(self) -> dict[str, set[str]]:
        """Registers that depend on values that are "loaded", or "looped": that differ in each turn of a loop."""
        looped = {pc for _, start, stop in self.flow.loops for pc in range(start, stop)}
        times = Counter(register.name for i in self.kernel.instructions for register in i.defined)

        def own(i: Instruction) -> tuple[set[str], bool]:
            several = i.pc in looped and any(times[register.name] > 1 for register in i.defined)
            return {"loaded"} if self._source(i) == "unknown" else {"looped"} if several else set(), True

        known = origins([i for i in self.kernel.instructions if i.defined], own)
        return {name: why for name, why in known.items() if why}

    @cached_property
    def deciding(self) -> dict[int, Instruction]:
        """By pc, guarded branches; and selects and other guarded instructions, where the predicate is sure."""
        code = self.kernel.instructions
        return {
            i.pc: i
            for i in code
            if (i.guard and i.parts[0] == "bra")
            or ((i.guard or i.parts[0] == "selp") and _predicate(i)[0].name not in self.unsure)
        }

    def is_unsure(self, pc: int) -> bool:
        """Whether what is decided there depends on loaded values, or on the turn of a loop."""
        return _predicate(self.deciding[pc])[0].name in self.unsure

    @cached_property
    def block_of(self) -> dict[int, int]:
        """The basic block of each instruction."""
        return {pc: block.index for block in self.flow.blocks for pc in range(block.start, block.stop)}

    @cached_property
    def _definitions(self) -> dict[str, list[Instruction]]:
        """Of the registers that the predicates depend on."""
        every, out = defaultdict[str, list[Instruction]](list), dict[str, list[Instruction]]()
        for i in self.kernel.instructions:
            for register in i.defined:
                every[register.name].append(i)
        wanted = [_predicate(i)[0].name for i in self.deciding.values()]
        while wanted:
            if (name := wanted.pop()) not in out:
                out[name] = every[name]
                wanted += [reg.name for i in every[name] if self._given(i) == "" for reg in i.reads]
        return out

    def _source(self, i: Instruction) -> str:
        """The name of the value that an instruction gives: "" if it computes one, "unknown" for what it loads."""
        first, last = i.operands[0], i.operands[-1]
        if isinstance(last, Special):
            return last.name if last.name in PLACES else "" if last.name.startswith("%ntid") else "unknown"
        if i.op.startswith("ld.param") and isinstance(last, Mem) and isinstance(last.base, Sym) and last.offset == 0:
            place = [param.name for param in self.kernel.params].index(last.base.name)
            return self.names[place].removeprefix("long ")
        row = i.row
        loaded = row.memory or row.effects or row.forms or isinstance(last, Sym) or not isinstance(first, Reg)
        return "unknown" if loaded else ""

    def _given(self, i: Instruction) -> str:
        """The name of the input that an instruction's result is; "" if it computes one. A predicate of loaded values is
        unknown, and so are values of other types, as other numbers.
        """
        register = next(iter(i.defined), None)
        if register is not None and register.type == "pred" and "loaded" in self.unsure.get(register.name, ()):
            return "unknown"
        name = self._source(i)
        return "unknown float" if name == "unknown" and register is not None and register.type == "f32" else name

    @cached_property
    def constants(self) -> list[float]:
        """Numbers that occur in what decides."""
        code = (i for definitions in self._definitions.values() for i in definitions)
        numbers = {operand.value for i in code for operand in i.operands if isinstance(operand, Imm)}
        return sorted(number for number in numbers if abs(number) < 2**31)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values on which they depend."""
        code = {i.pc: i for definitions in self._definitions.values() for i in definitions}
        sources = (self._given(i) for _, i in sorted(code.items()))
        return tuple(dict.fromkeys(name for name in sources if name))

    @cached_property
    def _order(self) -> list[int]:
        """Blocks so that each follows those that lead to it, but for the ends of loops."""
        out, state = list[int](), dict[int, bool]()
        stack = [(0, iter(self.flow.blocks[0].successors))]
        state[0] = True
        while stack:
            following_block = next((s for s in stack[-1][1] if s not in state), None)
            if following_block is None:
                out.append(stack.pop()[0])
            else:
                state[following_block] = True
                stack.append((following_block, iter(self.flow.blocks[following_block].successors)))
        return out[::-1]

    @cached_property
    def _probes(self) -> list[Reg]:
        """What is joined into one condition: predicates, and integers that are masks of several conditions."""
        out = dict[str, Reg]()
        for definitions in self._definitions.values():
            for i in definitions:
                if i.parts[0] in BITWISE:
                    out |= {reg.name: reg for reg in i.reads if reg.name in self._definitions}
        return list(out.values())

    @cached_property
    def _skeleton(self) -> Kernel:
        """The kernel that computes them: block by block, under the block's own predicate."""
        code = list[tuple[str, tuple[Operand, ...], tuple[Reg, bool] | None]]()
        reached = {number: Reg(f"%reached_{number}", "pred") for number in self._order}
        registers = [Reg(f"%conditions_{n}", "b32") for n in range(4)]
        for register, special in zip(registers, ("%ctaid.x", "%ntid.x", "%tid.x"), strict=False):
            code.append(("mov.u32", (register, Special(special)), None))
        lane, one = registers[3], Reg("%conditions_one", "b32")
        code.append(("mad.lo.s32", (lane, registers[0], registers[1], registers[2]), None))
        code.append(("mov.u32", (one, Imm(1, 1, "int")), None))
        for base, name, width in ((IN, "in", SLOT), (OUT, "out", 1)):
            code.append(("ld.param.u64", (base, Mem(Sym(name), 0)), None))
            offset = Reg(f"{base.name}_offset", "b64")
            code.append(("mul.wide.u32", (offset, lane, Imm(width, width, "int")), None))
            code.append(("add.s64", (base, base, offset), None))
        for number, predicate in reached.items():
            number_is_first = Imm(int(number == 0), int(number == 0), "int")
            code.append(("setp.eq.s32", (predicate, one, number_is_first), None))
        wanted = {i.pc for definitions in self._definitions.values() for i in definitions}
        fresh = iter(Reg(f"%conditions_p{n}", "pred") for n in range(10**6))
        results, emitted = list[Reg](), set[int]()

        def both(first: Reg, second: Reg, negated: bool) -> Reg:
            if negated:
                inverse = next(fresh)
                code.append(("not.pred", (inverse, second), None))
                second = inverse
            code.append(("and.pred", (out := next(fresh), first, second), None))
            return out

        def keep(predicate: Reg) -> None:
            kept = next(fresh)
            code.append(("and.pred", (kept, predicate, predicate), None))
            results.append(kept)

        for number in self._order:
            block, here = self.flow.blocks[number], reached[number]
            emitted.add(number)
            for i in self.kernel.instructions[block.start : block.stop]:
                if i.pc in self.deciding:
                    register, negated = _predicate(i)
                    held = both(here, register, negated)
                    missed = both(here, register, not negated)
                    keep(held)
                    keep(missed)
                if i.pc in wanted:
                    several = any(len(self._definitions.get(reg.name, ())) > 1 for reg in i.defined)
                    guard = (both(here, *i.guard), False) if i.guard else (here, False) if several else None
                    if name := self._given(i):
                        for register in i.defined:
                            kind = register.type if register.type != "pred" else "b32"
                            address = Mem(IN, SLOT * ROWS * self.inputs.index(name))
                            if register.type == "pred":
                                loaded = Reg(f"{register.name}_loaded", "b32")
                                code.append(("ld.global.b32", (loaded, address), None))
                                code.append(("setp.ne.s32", (register, loaded, Imm(0, 0, "int")), guard))
                            else:
                                code.append((f"ld.global.{kind}", (register, address), guard))
                    else:
                        code.append((i.op, i.operands, guard))
            last = self.kernel.instructions[block.stop - 1]
            jumps = last.parts[0] in ("bra", "ret", "exit")
            ends = any(s in emitted for s in block.successors)  # of a loop, which is left at some time
            for place, successor in enumerate(block.successors):
                if successor in emitted:
                    continue
                way = here
                left = ends or any(
                    n == number and not start <= self.flow.blocks[successor].start < stop
                    for n, start, stop in self.flow.loops
                )
                if jumps and last.guard and not left:
                    taken = last.parts[0] == "bra" and place == 0
                    way = both(here, last.guard[0], last.guard[1] == taken)
                code.append(("or.pred", (reached[successor], reached[successor], way), None))
        value = Reg("%conditions_value", "b32")
        results += [predicate for _, predicate in sorted(reached.items())]
        for probe in self._probes:
            if probe.type == "pred":
                results.append(probe)
                continue
            kind = {"b64": "s64", "b16": "s16"}.get(probe.type, probe.type.replace("b", "s").replace("u", "s"))
            code.append((f"setp.eq.{kind}", (zero := next(fresh), probe, Imm(0, 0, "int")), None))
            results.append(zero)
        for place, predicate in enumerate(results):
            code.append(("selp.b32", (value, Imm(1, 1, "int"), Imm(0, 0, "int"), predicate), None))
            code.append(("st.global.u8", (Mem(OUT, ROWS * place), value), None))
        code.append(("ret", (), None))
        instructions = tuple(
            Instruction(pc, op, operands, guard, 0, op) for pc, (op, operands, guard) in enumerate(code)
        )
        params = Param("in", "u64", 8), Param("out", "u64", 8)
        return Kernel("conditions", self.kernel.arch, params, instructions, {}, (), None)

    def of(self, rows: Mapping[str, Array]) -> Decided:
        """Judge assignments: by name of an input, an array with its value in each row."""
        count = len(next(iter(rows.values())))
        outcomes = [(pc, held) for number in self._order for pc in self._pcs(number) for held in (True, False)]
        names = len(outcomes) + len(self._order) + len(self._probes)
        out = np.zeros((names, count), bool)
        for start in range(0, count, ROWS):
            stop = min(count, start + ROWS)
            given = np.zeros((len(self.inputs), ROWS, SLOT), np.uint8)
            for place, name in enumerate(self.inputs):
                values = rows.get(name)
                if values is not None:
                    data = np.ascontiguousarray(values[start:stop])
                    given[place, : stop - start, : data.itemsize] = data.view(np.uint8).reshape(stop - start, -1)
            found = np.zeros((names, ROWS), np.uint8)
            blocks = -(-(stop - start) // THREADS)
            launch(self._skeleton, (blocks,), THREADS, [given.reshape(-1), found.reshape(-1)], races=False, count=False)
            out[:, start:stop] = found[:, : stop - start]
        return Decided(dict(zip(outcomes, out, strict=False)), out)

    def _pcs(self, number: int) -> Iterator[int]:
        block = self.flow.blocks[number]
        return (pc for pc in range(block.start, block.stop) if pc in self.deciding)


@dataclass(frozen=True)
class Decided:
    """By row: outcomes: whether the instruction is reached and its predicate holds, or not. all: these, which blocks
    are reached, and which masks are zero.
    """

    outcomes: dict[Outcome, Array]
    all: Array


def _predicate(i: Instruction) -> tuple[Reg, bool]:
    """What decides it, and whether it is negated."""
    if i.guard:
        return i.guard
    last: Any = i.operands[-1]
    return last, False
