"""Loops: what registers are in any iteration, and what holds there.

A first execution of the body shows which registers grow by a constant step, or alternate, and which
conditions keep the loop running. Both are guesses. They count only if an iteration that assumes
them ends with the same for the next iteration, and if they hold in the first iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from worklog.proof.execution import Executor, Loop, Outcome, State
from worklog.proof.polynomial import ONE, ZERO, Atom, Polynomial, Scope
from worklog.proof.prover import Conjunction, Facts, tightened
from worklog.proof.stop import ProofStopped
from worklog.proof.values import UNKNOWN, Condition, Value

Register = Value | Condition


@dataclass(frozen=True)
class Iteration:
    """The number of an iteration, from 0: twice `half` plus `parity`."""

    number: Atom
    half: Atom
    parity: Atom

    @staticmethod
    def of(head: int, *, copy: int, scope: Scope) -> Iteration:
        """Return the unknowns of a loop.

        copy: 0 if every way has the same unknowns
        scope: BLOCK if the threads of a block are in the same iteration
        """
        end = f"{head}" + (f"#{copy}" if copy else "")
        return Iteration(
            Atom(f"i@{end}", 0, scope=scope),
            Atom(f"half@{end}", 0, scope=scope),
            Atom(f"parity@{end}", 0, 1, scope=scope),
        )

    @property
    def definition(self) -> Conjunction:
        """How the three belong together."""
        difference = (
            Polynomial.atom(self.number)
            - 2 * Polynomial.atom(self.half)
            - Polynomial.atom(self.parity)
        )
        return difference, -difference

    @property
    def following(self) -> dict[Atom, Polynomial]:
        """The unknowns in the next iteration."""
        parity = Polynomial.atom(self.parity)
        return {
            self.number: Polynomial.atom(self.number) + 1,
            self.half: Polynomial.atom(self.half) + parity,
            self.parity: ONE - parity,
        }

    @property
    def preceding(self) -> dict[Atom, Polynomial]:
        """The unknowns in the iteration before."""
        parity = Polynomial.atom(self.parity)
        return {
            self.number: Polynomial.atom(self.number) - 1,
            self.half: Polynomial.atom(self.half) + parity - 1,
            self.parity: ONE - parity,
        }

    @property
    def first(self) -> dict[Atom, Polynomial]:
        """The unknowns in the first iteration."""
        return dict.fromkeys((self.number, self.half, self.parity), ZERO)


@dataclass
class Invariant:
    """What is assumed in any iteration."""

    registers: dict[str, Value]  # those of the others are unknown
    facts: list[Polynomial] = field(default_factory=list)  # each is at least 0


def execute_loop(executor: Executor, loop: Loop, entry: State) -> list[State]:
    """Execute any iteration of a loop from the state before it. Return the states behind it."""
    is_recorded = entry.barrier is not None and not executor.arithmetic.is_trial
    if loop.has_barrier and is_recorded:
        # The first iteration belongs to the barrier before the loop, up to its own first barrier.
        executor.execute(replace(entry, to_barrier=True))
    iteration = _iteration(executor, loop, entry)
    for atom in (iteration.number, iteration.half, iteration.parity):
        executor.prover.definitions[atom] = iteration.definition
    invariant = _guessed(executor, loop, entry, iteration)
    outcome = _confirmed(executor, loop, entry, iteration, invariant)
    if executor.arithmetic.is_trial or not loop.has_barrier:
        return outcome.after
    for state in outcome.again:
        if state.barrier is None:
            # The way from the barrier before was executed as far as this iteration: see _passed.
            continue
        facts = [one.substituted(iteration.following) for one in invariant.facts]
        facts.append(Polynomial.atom(iteration.number))
        following = replace(
            state, facts=state.facts.and_all(facts), to_barrier=True, heads=frozenset()
        )
        executor.execute(following)
    return outcome.after


def _iteration(executor: Executor, loop: Loop, entry: State) -> Iteration:
    """Return the unknowns of the loop's iteration."""
    if loop.has_barrier:
        # The threads of a block pass its barriers together, on whatever way they came here.
        iteration = Iteration.of(loop.head, copy=0, scope=Scope.BLOCK)
        is_used = iteration.number in entry.facts.atoms
        for value in entry.registers.values():
            is_used |= isinstance(value, Value) and iteration.number in value.polynomial.atoms
        if is_used:
            line = executor.kernel.instructions[loop.head].line
            raise ProofStopped(line, "proofs don't model a loop that runs again on the same way")
        return iteration
    executor.copies += 1
    return Iteration.of(loop.head, copy=executor.copies, scope=Scope.THREAD)


def _start(loop: Loop, entry: State, registers: Mapping[str, Value], facts: Facts) -> State:
    """Return the state at the head of any iteration."""
    kept: dict[str, Register] = {}
    for name, value in entry.registers.items():
        if name not in loop.written:
            kept[name] = value
        elif isinstance(value, Condition):
            kept[name] = UNKNOWN
    barrier = None if loop.has_barrier else entry.barrier
    return replace(
        entry, pc=loop.head, registers={**kept, **registers}, facts=facts, barrier=barrier
    )


def _integers(loop: Loop, entry: State) -> dict[str, Value]:
    """Return the integer registers that the loop writes, with their values before it."""
    integers = {}
    for name, value in entry.registers.items():
        if name in loop.written and isinstance(value, Value):
            integers[name] = value
    return integers


def _guessed(executor: Executor, loop: Loop, entry: State, iteration: Iteration) -> Invariant:
    """Guess what registers are in any iteration, and what holds there."""
    before = _integers(loop, entry)
    unknown = dict[str, Atom]()
    for name in before:
        unknown[name] = Atom(f"{name}@{loop.head}", scope=Scope.THREAD)
    start = {
        name: Value(Polynomial.atom(atom), before[name].bits) for name, atom in unknown.items()
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
        guess = _progress(afters.pop(), atom, before[name].polynomial, iteration)
        if guess is not None and not guess.atoms.isdisjoint(unknown.values()):
            guess = None
        if guess is not None:
            registers[name] = Value(guess, before[name].bits)
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
    for state in outcome.again:
        value = state.registers.get(name)
        if not isinstance(value, Value):
            return set()
        afters.add(value.polynomial)
    return afters


def _progress(
    after: Polynomial, atom: Atom, before: Polynomial, iteration: Iteration
) -> Polynomial | None:
    """Return a register in any iteration; None if it neither grows steadily nor alternates.

    after: its value at the end of an iteration that it begins with the value `atom`
    before: its value before the loop
    """
    step = after - Polynomial.atom(atom)
    if atom not in step.atoms:
        return before + step * Polynomial.atom(iteration.number)
    both = after + Polynomial.atom(atom)
    if atom not in both.atoms:
        return before + Polynomial.atom(iteration.parity) * (both - 2 * before)
    return None


def _conditions(outcome: Outcome, before: Facts) -> list[Polynomial]:
    """Return the conditions under which another iteration begins, each of them alone."""
    conditions = dict[Polynomial, None]()
    for state in outcome.again:
        conditions.update(dict.fromkeys(state.facts.conjunction))
        for choices in state.facts.choices:
            for conjunction in choices:
                conditions.update(dict.fromkeys(conjunction))
    return [condition for condition in conditions if condition not in before.conjunction]


def _confirmed(
    executor: Executor, loop: Loop, entry: State, iteration: Iteration, invariant: Invariant
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
            if not all(_equals(state.registers.get(name), expected) for state in outcome.again):
                wrong.add(name)
        for name in wrong:
            del invariant.registers[name]
        kept = []
        for fact in invariant.facts:
            following = fact.substituted(iteration.following)
            if all(prover.proves(state.facts, following) for state in outcome.again):
                kept.append(fact)
        if not wrong and len(kept) == len(invariant.facts):
            return outcome
        invariant.facts = kept


def _registers(
    executor: Executor, loop: Loop, entry: State, invariant: Invariant
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
