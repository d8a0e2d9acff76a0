"""Symbolic execution of one thread, for every shape and every thread at once.

Each way through the code is executed apart. A loop is executed once, in any of its iterations: its
registers are start + step * i, as far as that is true (worklog.proof.loops).

Accesses are kept with the barrier that the thread passed before them. Two accesses behind the same
barrier may happen in any order, so they must not race. At a loop with barriers, the way from the
last barrier of an iteration to the first barrier of the next one is executed as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from worklog.emulator.ptx import Imm, Instruction, Mem, PtxKernel, Reg, Special, Sym, Vec
from worklog.proof.arithmetic import Arithmetic, computed
from worklog.proof.divergence import Graph
from worklog.proof.polynomial import Polynomial
from worklog.proof.prover import Choices, Facts
from worklog.proof.stop import ProofStopped
from worklog.proof.values import UNKNOWN, Condition, Value, compared

MAX_BLOCKS_EXECUTED = 2000  # on all ways, beyond which a proof stops
ENTRY = -1  # the barrier that all threads pass at the beginning
NOT_MODELLED = {
    "atom", "red", "cp", "mbarrier", "wgmma", "ldmatrix", "stmatrix", "wmma", "tcgen05",
    "call", "brx", "tex", "sust", "suld", "trap", "ldu", "elect",
}  # fmt: skip


REMOTE = {"async", "bulk", "shared::cluster"}  # words of accesses that aren't the thread's own


@dataclass(frozen=True)
class SymbolicAccess:
    """A load or a store, by any thread that gets there."""

    instruction: Instruction
    is_store: bool
    space: str  # as the instruction names it
    address: Polynomial
    width: int  # bytes
    facts: Facts
    barrier: int | None  # the pc of the barrier before it; None: it is recorded elsewhere, too


@dataclass(frozen=True)
class SymbolicState:
    """A place of the code on a way through it."""

    pc: int
    facts: Facts = field(default_factory=Facts)
    registers: Mapping[str, Value | Condition] = field(default_factory=dict)
    barrier: int | None = ENTRY
    to_barrier: bool = False  # the way ends at the next barrier
    heads: frozenset[int] = frozenset()  # of loops with barriers that it passed on its way there

    def with_register(self, register: Reg, value: Value | Condition) -> SymbolicState:
        """Return the state after a register was written."""
        return replace(self, registers={**self.registers, register.name: value})


@dataclass
class Outcome:
    """Where the ways through a part of the code end."""

    repeating: list[SymbolicState] = field(default_factory=list)  # at the head of the loop
    leaving: list[SymbolicState] = field(
        default_factory=list
    )  # at the first instruction outside of it


@dataclass(frozen=True)
class NaturalLoop:
    """A loop of the code."""

    head: int  # the pc of its first instruction
    blocks: frozenset[int]
    has_barrier: bool
    written: frozenset[str]  # registers


ExecuteLoop = Callable[["Executor", NaturalLoop, SymbolicState], list[SymbolicState]]


class Executor:
    """Executes a kernel and keeps its accesses.

    arguments: by the name of the parameter: the value of each integer
    specials: by the name of the special register
    symbols: the addresses of variables, by name
    execute_loop: executes a loop from the state before it, and returns the states behind it
    """

    def __init__(
        self,
        kernel: PtxKernel,
        graph: Graph,
        arithmetic: Arithmetic,
        *,
        arguments: Mapping[str, Polynomial],
        specials: Mapping[str, Polynomial],
        symbols: Mapping[str, Polynomial],
        execute_loop: ExecuteLoop,
    ) -> None:
        self.kernel = kernel
        self.graph = graph
        self.arithmetic = arithmetic
        self.prover = arithmetic.prover
        self.arguments = arguments
        self.specials = specials
        self.symbols = symbols
        self.execute_loop = execute_loop
        self.accesses: list[SymbolicAccess] = []
        self.blocks_executed = 0
        self.block_at = {block.start: block.index for block in graph.blocks}
        self.loops = {loop.head: loop for loop in self._loops()}
        self.copies = 0  # of loops without barriers, each with its own iterations

    def _loops(self) -> Iterator[NaturalLoop]:
        for head, blocks in self.graph.loops.items():
            code = list[Instruction]()
            for index in blocks:
                block = self.graph.blocks[index]
                code += self.kernel.instructions[block.start : block.stop]
            yield NaturalLoop(
                head=self.graph.blocks[head].start,
                blocks=blocks,
                has_barrier=any(instruction.opcode.barrier for instruction in code),
                written=frozenset(register.name for register in _defined(code)),
            )

    def execute(self, state: SymbolicState, loop: NaturalLoop | None = None) -> Outcome:
        """Execute every way from a state, to the end of the kernel or of an iteration.

        loop: whose iteration is executed (default: none, so the ways end with the kernel)
        """
        outcome = Outcome()
        pending = self._next_states(state, loop)
        while pending:
            state = pending.pop()
            block = self.block_at[state.pc]
            if loop is not None and state.pc == loop.head:
                outcome.repeating.append(state)
            elif loop is not None and block not in loop.blocks:
                outcome.leaving.append(state)
            else:
                pending += self._next_states(state, loop)
        return outcome

    def _next_states(
        self, state: SymbolicState, current: NaturalLoop | None
    ) -> list[SymbolicState]:
        """Return the states behind the loop, or else the block, that begins at a state.

        current: the loop whose iteration is executed
        """
        loop = self.loops.get(state.pc)
        if loop is None or loop is current:
            return self._block(state)
        if state.to_barrier and loop.has_barrier:
            return self._block(self._passed(state))
        return self.execute_loop(self, loop, state)

    def _passed(self, state: SymbolicState) -> SymbolicState:
        """Return the state at the head of a loop with barriers, on the way to the first one."""
        if state.pc in state.heads:
            line = self.kernel.instructions[state.pc].line
            raise ProofStopped(line, "an iteration of the loop may pass no barrier")
        return replace(state, heads=state.heads | {state.pc})

    def _block(self, state: SymbolicState) -> list[SymbolicState]:
        """Execute a basic block. Return the states behind it that threads can get to."""
        self.blocks_executed += 1
        if self.blocks_executed > MAX_BLOCKS_EXECUTED:
            line = self.kernel.instructions[state.pc].line
            raise ProofStopped(line, "there are too many ways through the code")
        block = self.graph.blocks[self.block_at[state.pc]]
        states = [state]
        for instruction in self.kernel.instructions[block.start : block.stop]:
            successors = list[SymbolicState]()
            for state in states:
                successors += self.step(state, instruction)
            states = successors
        return [state for state in states if state.pc < len(self.kernel.instructions)]

    def step(self, state: SymbolicState, instruction: Instruction) -> list[SymbolicState]:
        """Execute an instruction. Return the states after it, none at an end."""
        self.arithmetic.line = instruction.line
        if instruction.guard is None:
            return self._run(state, instruction)
        register, is_negated = instruction.guard
        condition = self._condition(state, register)
        if is_negated:
            condition = condition.negated()
        states = []
        reached = self.assumed(state, condition.if_true)
        if reached is not None:
            states += self._run(reached, instruction)
        skipped = self.assumed(state, condition.if_false)
        if skipped is not None:
            states.append(replace(skipped, pc=state.pc + 1))
        return states

    def assumed(self, state: SymbolicState, choices: Choices) -> SymbolicState | None:
        """Return the state with more facts; None if no thread can get there."""
        if choices == ((),):
            return state
        possible = []
        for conjunction in choices:
            facts = state.facts.and_all(conjunction)
            if self.arithmetic.is_trial or not self.prover.contradicts(facts):
                possible.append(conjunction)
        if not possible:
            return None
        return replace(state, facts=state.facts.and_any(tuple(possible)))

    def _run(self, state: SymbolicState, instruction: Instruction) -> list[SymbolicState]:
        """Execute an instruction without its guard."""
        name = instruction.parts[0]
        after = replace(state, pc=state.pc + 1)
        if name in ("ret", "exit"):
            return []
        if name == "bra":
            target = instruction.operands[0]
            assert isinstance(target, Sym)
            return [replace(state, pc=self.kernel.labels[target.name])]
        if instruction.opcode.barrier:
            return self._at_barrier(after, instruction)
        if _is_not_modelled(instruction):
            raise ProofStopped(instruction.line, f"proofs don't model {instruction.op}")
        if name in ("ld", "st") and "param" not in instruction.parts:
            return [self._accessed(after, instruction)]
        if name == "selp":
            return self._selected(after, instruction)
        return [self._computed(after, instruction)]

    def _at_barrier(self, after: SymbolicState, instruction: Instruction) -> list[SymbolicState]:
        """Pass a barrier of the block."""
        operands = [getattr(operand, "value", None) for operand in instruction.operands]
        is_plain = instruction.parts[0] in ("bar", "barrier") and "sync" in instruction.parts
        if not is_plain or operands != [0]:
            raise ProofStopped(
                instruction.line, f"proofs don't model {instruction.op}: use __syncthreads()"
            )
        if after.to_barrier:
            return []
        return [replace(after, barrier=instruction.pc)]

    def _selected(self, after: SymbolicState, instruction: Instruction) -> list[SymbolicState]:
        """Return a state for each value that a selp may choose."""
        target, if_true, if_false, register = instruction.operands
        assert isinstance(target, Reg)
        if target.type.startswith("f"):
            return [after]
        assert isinstance(register, Reg)
        condition = self._condition(after, register)
        states = []
        for operand, choices in ((if_true, condition.if_true), (if_false, condition.if_false)):
            state = self.assumed(after, choices)
            if state is not None:
                states.append(state.with_register(target, self._chosen(state, target, operand)))
        return states

    def _chosen(self, state: SymbolicState, target: Reg, operand: object) -> Value | Condition:
        """Return an operand of a selp as the register that it becomes."""
        value = self._value(state, operand)
        if value is None or target.type == "pred":
            return self._opaque(target, "selp")
        return Value(value.polynomial, int(target.type[1:]))

    def _computed(self, after: SymbolicState, instruction: Instruction) -> SymbolicState:
        """Return the state with an instruction's results."""
        results = [reg for reg in instruction.defined if not reg.type.startswith("f")]
        if not results:
            return after
        if len(results) > 1 or len(instruction.defined) > 1:
            for register in results:
                after = after.with_register(register, self._opaque(register, instruction.op))
            return after
        [target] = results
        result: Value | Condition | None
        if instruction.parts[:2] == ("ld", "param"):
            result = self._argument(instruction)
        elif instruction.parts[0] == "setp":
            result = self._comparison(after, instruction)
        elif target.type == "pred":
            result = self._logic(after, instruction)
        else:
            result = self._integer(after, instruction)
        return after.with_register(target, result or self._opaque(target, instruction.op))

    def _integer(self, state: SymbolicState, instruction: Instruction) -> Value | None:
        """Return the result of an integer instruction; None if it isn't affine."""
        operands = []
        for operand in instruction.operands[1:]:
            value = self._value(state, operand)
            if value is None:
                return None
            operands.append(value)
        return computed(self.arithmetic, state.facts, instruction, operands)

    def _opaque(self, register: Reg, operation: str) -> Value | Condition:
        """Return an unknown value, or an unknown condition."""
        if register.type == "pred":
            return UNKNOWN
        reason = f"{operation} isn't affine"
        return Value(self.arithmetic.opaque(reason), int(register.type[1:]))

    def _argument(self, instruction: Instruction) -> Value | None:
        """Return a parameter; None if it isn't an integer that is modelled."""
        source = instruction.operands[1]
        assert isinstance(source, Mem)
        is_whole = isinstance(source.base, Sym) and source.offset == 0
        if not is_whole or not isinstance(source.base, Sym):
            return None
        polynomial = self.arguments.get(source.base.name)
        [target] = instruction.defined
        if polynomial is None:
            return None
        loaded = int(instruction.parts[-1][1:])
        sizes = {parameter.name: parameter.size for parameter in self.kernel.params}
        if loaded != 8 * sizes[source.base.name]:
            return None
        bits = int(target.type[1:])
        if bits > loaded:
            number = Value(polynomial, loaded)
            is_signed = instruction.parts[-1].startswith("s")
            polynomial = self.arithmetic.read(Facts(), number, is_signed=is_signed)
        return Value(polynomial, bits)

    def _comparison(self, state: SymbolicState, instruction: Instruction) -> Condition:
        """Return the condition of a setp."""
        # A second result, a combined predicate and floats aren't modelled.
        kind = instruction.parts[-1]
        if len(instruction.parts) != 3 or len(instruction.operands) != 3 or kind[0] not in "sub":
            return UNKNOWN
        numbers = []
        for operand in instruction.operands[1:]:
            value = self._value(state, operand)
            if value is None or value.bits < int(kind[1:]):
                return UNKNOWN
            narrow = Value(value.polynomial, int(kind[1:]))
            numbers.append(self.arithmetic.read(state.facts, narrow, is_signed=kind[0] == "s"))
        return compared(instruction.parts[1], numbers[0], numbers[1])

    def _logic(self, state: SymbolicState, instruction: Instruction) -> Condition | None:
        """Return the result of an instruction on predicates; None if it isn't modelled."""
        conditions = []
        for operand in instruction.operands[1:]:
            if isinstance(operand, Imm):
                possible: Condition = (
                    Condition(((),), ()) if operand.value else Condition((), ((),))
                )
                conditions.append(possible)
            elif isinstance(operand, Reg) and operand.type == "pred":
                conditions.append(self._condition(state, operand))
            else:
                return None
        name = instruction.parts[0]
        if name == "mov":
            return conditions[0]
        if name == "not":
            return conditions[0].negated()
        if name == "and":
            return conditions[0].and_also(conditions[1])
        if name == "or":
            return conditions[0].or_else(conditions[1])
        return None

    def _condition(self, state: SymbolicState, register: Reg) -> Condition:
        """Return the condition that a predicate register has."""
        value = state.registers.get(register.name, UNKNOWN)
        assert isinstance(value, Condition)
        return value

    def _value(self, state: SymbolicState, operand: object) -> Value | None:
        """Return an integer operand; None if it isn't modelled."""
        if isinstance(operand, Reg):
            value = state.registers.get(operand.name)
            return value if isinstance(value, Value) else None
        if isinstance(operand, Imm) and operand.kind == "int":
            return Value(Polynomial.constant(int(operand.value)), 64)
        if isinstance(operand, Special) and operand.name in self.specials:
            return Value(self.specials[operand.name], 32)
        if isinstance(operand, Sym) and operand.name in self.symbols:
            return Value(self.symbols[operand.name], 64)
        return None

    def _accessed(self, after: SymbolicState, instruction: Instruction) -> SymbolicState:
        """Keep a load or a store, and return the state after it."""
        is_store = instruction.parts[0] == "st"
        place = instruction.operands[0 if is_store else 1]
        assert isinstance(place, Mem)
        address = self._address(after, place, instruction)
        elements = instruction.opcode.elements
        width = elements * int(instruction.parts[-1][1:]) // 8
        if not self.arithmetic.is_trial:
            space = instruction.opcode.space
            self.accesses.append(
                SymbolicAccess(
                    instruction, is_store, space, address, width, after.facts, after.barrier
                )
            )
        if is_store:
            return after
        for register in _targets(instruction.operands[0]):
            if not register.type.startswith("f"):
                loaded = self.arithmetic.opaque("the address depends on loaded data")
                after = after.with_register(register, Value(loaded, int(register.type[1:])))
        return after

    def _address(self, state: SymbolicState, place: Mem, instruction: Instruction) -> Polynomial:
        """Return the address of an access."""
        if place.base is None:
            return Polynomial.constant(place.offset)
        value = self._value(state, place.base)
        if value is None:
            return self.arithmetic.opaque(f"the address of {instruction.op} isn't computed")
        return value.polynomial + place.offset


def _is_not_modelled(instruction: Instruction) -> bool:
    """Return whether an instruction has an effect that proofs don't model.

    An access to memory is a plain load or store of the block's own memory, or a prefetch.
    """
    name = instruction.parts[0]
    if name in NOT_MODELLED:
        return True
    if name in ("ld", "st"):
        return not REMOTE.isdisjoint(instruction.parts)
    has_address = any(isinstance(operand, Mem) for operand in instruction.operands)
    return has_address and name not in ("prefetch", "prefetchu")


def _defined(code: Sequence[Instruction]) -> Iterator[Reg]:
    """Yield the registers that instructions write."""
    for instruction in code:
        yield from instruction.defined


def _targets(operand: object) -> Sequence[Reg]:
    """Return the registers that a load writes."""
    if isinstance(operand, Reg):
        return [operand]
    if isinstance(operand, Vec):
        return [item for item in operand.items if isinstance(item, Reg)]
    return []
