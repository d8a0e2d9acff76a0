"""Loops: what registers are in any iteration, and what holds there.

A first execution of the body shows which registers grow by a constant step, or alternate, and which
conditions keep the loop running. Both are guesses. They count only if an iteration that assumes
them ends with the same for the next iteration, and if they hold in the first iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from worklog.proof.execution import Executor, NaturalLoop, Outcome, SymbolicState
from worklog.proof.polynomial import ONE, ZERO, Atom, Polynomial, Scope
from worklog.proof.prover import Conjunction, Facts, tightened
from worklog.proof.stop import ProofStopped
from worklog.proof.values import UNKNOWN, Condition, Value

Register = Value | Condition


@dataclass(frozen=True)
class Iteration:
    """The number of an iteration, from 0: twice `half_number` plus `parity`."""

    number: Atom
    half_number: Atom
    parity: Atom

    @staticmethod
    def of_loop(head: int, *, copy: int, scope: Scope) -> Iteration:
        """Return the unknowns of a loop.

        copy: 0 if every way has the same unknowns
        scope: BLOCK if the threads of a block are in the same iteration
        """
        end = f"{head}" + (f"#{copy}" if copy else "")
        return Iteration(
            Atom(f"i@{end}", 0, scope=scope),
            Atom(f"half_number@{end}", 0, scope=scope),
            Atom(f"parity@{end}", 0, 1, scope=scope),
        )

    @property
    def definition(self) -> Conjunction:
        """The relation of the three, as polynomials that are at least 0."""
        difference = (
            Polynomial.atom(self.number)
            - 2 * Polynomial.atom(self.half_number)
            - Polynomial.atom(self.parity)
        )
        return difference, -difference

    @property
    def following(self) -> dict[Atom, Polynomial]:
        """The unknowns in the next iteration."""
        parity = Polynomial.atom(self.parity)
        return {
            self.number: Polynomial.atom(self.number) + 1,
            self.half_number: Polynomial.atom(self.half_number) + parity,
            self.parity: ONE - parity,
        }

    @property
    def preceding(self) -> dict[Atom, Polynomial]:
        """The unknowns in the iteration before."""
        parity = Polynomial.atom(self.parity)
        return {
            self.number: Polynomial.atom(self.number) - 1,
            self.half_number: Polynomial.atom(self.half_number) + parity - 1,
            self.parity: ONE - parity,
        }

    @property
    def first(self) -> dict[Atom, Polynomial]:
        """The unknowns in the first iteration."""
        return dict.fromkeys((self.number, self.half_number, self.parity), ZERO)


@dataclass
class Invariant:
    """What is assumed in any iteration."""

    registers: dict[str, Value]  # any other register that the loop writes is unknown
    facts: list[Polynomial] = field(default_factory=list)  # each is at least 0


def execute_loop(
    executor: Executor, loop: NaturalLoop, entry: SymbolicState
) -> list[SymbolicState]:
    """Execute any iteration of a loop. Return the states behind the loop.

    entry: the state before the loop
    """
    is_recorded = entry.barrier is not None and not executor.arithmetic.is_trial
    if loop.has_barrier and is_recorded:
        # The first iteration belongs to the barrier before the loop, up to its own first barrier.
        executor.execute(replace(entry, to_barrier=True))
    iteration = _iteration(executor, loop, entry)
    for atom in (iteration.number, iteration.half_number, iteration.parity):
        executor.prover.definitions[atom] = iteration.definition
    invariant = _guessed(executor, loop, entry, iteration)
    outcome = _confirmed(executor, loop, entry, iteration, invariant)
    if executor.arithmetic.is_trial or not loop.has_barrier:
        return outcome.leaving
    for state in outcome.repeating:
        if state.barrier is None:
            # The way from the barrier before was executed as far as this iteration: see _passed.
            continue
        facts = [fact.substituted(iteration.following) for fact in invariant.facts]
        facts.append(Polynomial.atom(iteration.number))
        following = replace(
            state, facts=state.facts.and_all(facts), to_barrier=True, heads=frozenset()
        )
        executor.execute(following)
    return outcome.leaving


def _iteration(executor: Executor, loop: NaturalLoop, entry: SymbolicState) -> Iteration:
    """Return the unknowns of the loop's iteration."""
    if loop.has_barrier:
        # The threads of a block pass its barriers together, on whatever way they came here.
        iteration = Iteration.of_loop(loop.head, copy=0, scope=Scope.BLOCK)
        is_used = iteration.number in entry.facts.atoms
        for value in entry.registers.values():
            is_used |= isinstance(value, Value) and iteration.number in value.polynomial.atoms
        if is_used:
            line = executor.kernel.instructions[loop.head].line
            raise ProofStopped(line, "proofs don't model a loop that runs again on the same way")
        return iteration
    executor.copies += 1
    return Iteration.of_loop(loop.head, copy=executor.copies, scope=Scope.THREAD)


def _start(
    loop: NaturalLoop, entry: SymbolicState, registers: Mapping[str, Value], facts: Facts
) -> SymbolicState:
    """Return the state at the head of any iteration."""
    inherited: dict[str, Register] = {}
    for name, value in entry.registers.items():
        if name not in loop.written:
            inherited[name] = value
        elif isinstance(value, Condition):
            inherited[name] = UNKNOWN
    barrier = None if loop.has_barrier else entry.barrier
    return replace(
        entry, pc=loop.head, registers={**inherited, **registers}, facts=facts, barrier=barrier
    )


def _integers(loop: NaturalLoop, entry: SymbolicState) -> dict[str, Value]:
    """Return the values before a loop of the integer registers that it writes."""
    integers = {}
    for name, value in entry.registers.items():
        if name in loop.written and isinstance(value, Value):
            integers[name] = value
    return integers


def _guessed(
    executor: Executor, loop: NaturalLoop, entry: SymbolicState, iteration: Iteration
) -> Invariant:
    """Guess what registers are in any iteration, and what holds there."""
    initial = _integers(loop, entry)
    unknown = dict[str, Atom]()
    for name in initial:
        unknown[name] = Atom(f"{name}@{loop.head}", scope=Scope.THREAD)
    start = {
        name: Value(Polynomial.atom(atom), initial[name].bits) for name, atom in unknown.items()
    }
    was_trial = executor.arithmetic.is_trial
    executor.arithmetic.is_trial = True
    outcome = executor.execute(
        replace(_start(loop, entry, start, entry.facts), to_barrier=False), loop
    )
    executor.arithmetic.is_trial = was_trial
    registers = dict[str, Value]()
    for name, atom in unknown.items():
        afters = _afters(name, outcome)
        if len(afters) != 1:
            continue
        guess = _progress(afters.pop(), atom, initial[name].polynomial, iteration)
        if guess is not None and not guess.atoms.isdisjoint(unknown.values()):
            guess = None
        if guess is not None:
            registers[name] = Value(guess, initial[name].bits)
    solved = {
        atom: registers[name].polynomial for name, atom in unknown.items() if name in registers
    }
    unsolved = {atom for name, atom in unknown.items() if name not in registers}
    facts = dict[Polynomial, None]()
    for condition in _conditions(outcome, entry.facts):
        if condition.atoms & unsolved:
            continue
        solution = condition.substituted(solved)
        if iteration.number in solution.atoms:
            facts[tightened(solution.substituted(iteration.preceding))] = None
    return Invariant(registers, [*facts])


def _afters(name: str, outcome: Outcome) -> set[Polynomial]:
    """Return the values of a register at the end of an iteration; none if one is unknown."""
    afters = set[Polynomial]()
    for state in outcome.repeating:
        value = state.registers.get(name)
        if not isinstance(value, Value):
            return set()
        afters.add(value.polynomial)
    return afters


def _progress(
    after: Polynomial, atom: Atom, initial: Polynomial, iteration: Iteration
) -> Polynomial | None:
    """Return a register in any iteration; None if it neither grows steadily nor alternates.

    after: its value at the end of an iteration that it begins with the value `atom`
    initial: its value before the loop
    """
    step = after - Polynomial.atom(atom)
    if atom not in step.atoms:
        return initial + step * Polynomial.atom(iteration.number)
    sum_of_both = after + Polynomial.atom(atom)
    if atom not in sum_of_both.atoms:
        return initial + Polynomial.atom(iteration.parity) * (sum_of_both - 2 * initial)
    return None


def _conditions(outcome: Outcome, initial: Facts) -> list[Polynomial]:
    """Return the conditions under which another iteration begins, each of them alone."""
    conditions = dict[Polynomial, None]()
    for state in outcome.repeating:
        conditions.update(dict.fromkeys(state.facts.conjunction))
        for choices in state.facts.choices:
            for conjunction in choices:
                conditions.update(dict.fromkeys(conjunction))
    return [condition for condition in conditions if condition not in initial.conjunction]


def _confirmed(
    executor: Executor,
    loop: NaturalLoop,
    entry: SymbolicState,
    iteration: Iteration,
    invariant: Invariant,
) -> Outcome:
    """Execute an iteration that assumes the invariant, without the guesses that don't hold.

    The accesses are those of the last execution, in which every guess holds.
    """
    prover = executor.prover
    first = []
    for fact in invariant.facts:
        if prover.proves(entry.facts, fact.substituted(iteration.first)):
            first.append(fact)
    invariant.facts = first
    accesses = len(executor.accesses)
    while True:
        del executor.accesses[accesses:]
        registers = _registers(executor, loop, entry, invariant)
        facts = entry.facts.and_all([*invariant.facts, Polynomial.atom(iteration.number)])
        outcome = executor.execute(_start(loop, entry, registers, facts), loop)
        wrong = set[str]()
        for name, value in invariant.registers.items():
            expected = value.polynomial.substituted(iteration.following)
            if not all(_equals(state.registers.get(name), expected) for state in outcome.repeating):
                wrong.add(name)
        for name in wrong:
            del invariant.registers[name]
        inductive = []
        for fact in invariant.facts:
            following = fact.substituted(iteration.following)
            if all(prover.proves(state.facts, following) for state in outcome.repeating):
                inductive.append(fact)
        if not wrong and len(inductive) == len(invariant.facts):
            return outcome
        invariant.facts = inductive


def _registers(
    executor: Executor, loop: NaturalLoop, entry: SymbolicState, invariant: Invariant
) -> dict[str, Value]:
    """Return the registers that the loop writes, in any iteration."""
    registers = {}
    executor.arithmetic.line = executor.kernel.instructions[loop.head].line
    for name, value in _integers(loop, entry).items():
        if name in invariant.registers:
            registers[name] = invariant.registers[name]
        else:
            reason = "a value doesn't change by the same step in each iteration of a loop"
            registers[name] = Value(executor.arithmetic.opaque(reason), value.bits)
    return registers


def _equals(register: Register | None, expected: Polynomial) -> bool:
    """Return whether a register has a value."""
    if not isinstance(register, Value):
        return False
    difference = register.polynomial - expected
    return difference.divisor % (1 << register.bits) == 0
