"""Proofs of inequalities between polynomials of integers, by z3.

z3 decides linear integer arithmetic over monomials: M*K is an unknown of its own. Products of a
linear fact with a size are added as facts, so that row < M also bounds row*K. This leaves solutions
that no integers have, so a proof is sound, and a goal that isn't proved may still be true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from worklog.errors import ProverMissing
from worklog.proof.polynomial import Atom, Monomial, Polynomial
from worklog.proof.stop import ProofStopped

RLIMIT = 3_000_000  # z3's own unit of work, for one query: about a second
MAX_EXHAUSTED = 5  # queries that reach it, beyond which a proof stops
MISSING = "proofs need z3: pip install 'gemm-worklog[proof]'"

Conjunction = tuple[Polynomial, ...]  # each is at least 0
Choices = tuple[Conjunction, ...]  # one of them holds


@cache
def z3() -> Any:
    """Return z3's module, which has no types. Raises ProverMissing."""
    try:
        return import_module("z3")
    except ImportError as error:
        raise ProverMissing(MISSING) from error


def require_z3() -> None:
    """Raise ProverMissing unless z3 is installed."""
    z3()


@dataclass(frozen=True)
class Facts:
    """What holds at a place of the code."""

    conjunction: Conjunction = ()
    choices: tuple[Choices, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.conjunction, self.choices))

    def and_all(self, polynomials: Iterable[Polynomial]) -> Facts:
        """Return the facts and that these polynomials are at least 0."""
        merged = dict.fromkeys((*self.conjunction, *map(tightened, polynomials)))
        return Facts(tuple(merged), self.choices)

    def and_any(self, choices: Choices) -> Facts:
        """Return the facts and that one of the conjunctions holds."""
        if len(choices) == 1:
            return self.and_all(choices[0])
        return Facts(self.conjunction, tuple(dict.fromkeys((*self.choices, choices))))

    @property
    def polynomials(self) -> Iterator[Polynomial]:
        """The polynomials of all facts."""
        yield from self.conjunction
        for choices in self.choices:
            for conjunction in choices:
                yield from conjunction

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """The atoms of all facts."""
        return frozenset[Atom]().union(*(polynomial.atoms for polynomial in self.polynomials))

    def __and__(self, other: Facts) -> Facts:
        conjunction = dict.fromkeys((*self.conjunction, *other.conjunction))
        choices = dict.fromkeys((*self.choices, *other.choices))
        return Facts(tuple(conjunction), tuple(choices))


@dataclass
class Prover:
    """Proves inequalities. It counts its queries."""

    rlimit: int = RLIMIT
    # What holds of an atom wherever it appears, such as that a block index is below the grid.
    definitions: dict[Atom, Conjunction] = field(default_factory=dict)
    queries: int = 0
    exhausted: int = 0  # queries that reached the limit
    _answers: dict[tuple[Facts, Polynomial | None], bool] = field(default_factory=dict)
    _terms: dict[Monomial, Any] = field(default_factory=dict)
    _inequalities: dict[Polynomial, Any] = field(default_factory=dict)

    def define(self, atom: Atom, *polynomials: Polynomial) -> None:
        """State that polynomials are at least 0 wherever an atom appears."""
        self.definitions[atom] = (*self.definitions.get(atom, ()), *map(tightened, polynomials))

    def proves(self, facts: Facts, goal: Polynomial) -> bool:
        """Return whether the facts prove that a polynomial is at least 0."""
        goal = tightened(goal)
        if goal.range[0] >= 0:
            return True
        if goal.range[1] < 0:
            return self.contradicts(facts)
        key = (facts, goal)
        if key not in self._answers:
            self._answers[key] = goal in facts.conjunction or self._is_unsat(facts, -goal - 1)
        return self._answers[key]

    def is_between(self, facts: Facts, value: Polynomial, lowest: int, highest: int) -> bool:
        """Return whether the facts prove that a value is in a range with both ends."""
        return self.proves(facts, value - lowest) and self.proves(facts, -value + highest)

    def contradicts(self, facts: Facts) -> bool:
        """Return whether the facts contradict each other, so that no thread gets there."""
        key = (facts, None)
        if key not in self._answers:
            self._answers[key] = self._is_unsat(facts)
        return self._answers[key]

    def _is_unsat(self, facts: Facts, *extra: Polynomial) -> bool:
        """Return whether z3 finds that facts can't hold together."""
        facts = facts.and_all(extra)
        solver = z3().SolverFor("QF_LIA")
        solver.set("rlimit", self.rlimit)
        linear = self._with_definitions(facts)
        for polynomial in (*linear, *_products(linear, facts)):
            solver.add(self._inequality(polynomial))
        for choices in facts.choices:
            alternatives = []
            for conjunction in choices:
                alternatives.append(z3().And([self._inequality(part) for part in conjunction]))
            solver.add(z3().Or(alternatives))
        self.queries += 1
        answer = solver.check()
        if answer == z3().unknown:
            self.exhausted += 1
        if self.exhausted > MAX_EXHAUSTED:
            raise ProofStopped(0, f"{self.exhausted} questions exceeded the limit of z3's work")
        return bool(answer == z3().unsat)

    def _with_definitions(self, facts: Facts) -> list[Polynomial]:
        """Return the facts, and the ranges and definitions of their atoms."""
        polynomials = dict.fromkeys(facts.conjunction)
        open_atoms = sorted(facts.atoms)
        visited = set[Atom]()
        while open_atoms:
            atom = open_atoms.pop()
            if atom in visited:
                continue
            visited.add(atom)
            for polynomial in (*_ends(atom), *self.definitions.get(atom, ())):
                polynomials[polynomial] = None
                open_atoms += sorted(polynomial.atoms - visited)
        return [*polynomials]

    def _inequality(self, polynomial: Polynomial) -> Any:
        """Return z3's expression that a polynomial is at least 0."""
        if polynomial not in self._inequalities:
            parts = []
            for monomial, coefficient in polynomial.terms:
                parts.append(coefficient * self._term(monomial) if monomial else coefficient)
            self._inequalities[polynomial] = z3().Sum(parts) >= 0 if parts else z3().BoolVal(True)
        return self._inequalities[polynomial]

    def _term(self, monomial: Monomial) -> Any:
        if monomial not in self._terms:
            self._terms[monomial] = z3().Int("*".join(atom.name for atom in monomial))
        return self._terms[monomial]


def tightened(polynomial: Polynomial) -> Polynomial:
    """Return the strongest inequality of integers that equals `polynomial >= 0`."""
    varying = polynomial - polynomial.offset
    divisor = varying.divisor
    if divisor <= 1:
        return polynomial
    quotient, _ = varying.split(divisor)
    return quotient + polynomial.offset // divisor


def _ends(atom: Atom) -> list[Polynomial]:
    """Return the range of an atom as inequalities."""
    ends = []
    if atom.lowest is not None:
        ends.append(Polynomial.atom(atom) - atom.lowest)
    if atom.highest is not None:
        ends.append(-Polynomial.atom(atom) + atom.highest)
    return ends


def multiplied_sizes(polynomials: Iterable[Polynomial]) -> list[Atom]:
    """Return the sizes that other atoms are multiplied by."""
    sizes = set[Atom]()
    for polynomial in polynomials:
        for monomial, _ in polynomial.terms:
            if len(monomial) > 1:
                sizes.update(atom for atom in monomial if atom.is_size)
    return sorted(sizes)


def _products(linear: Sequence[Polynomial], facts: Facts) -> list[Polynomial]:
    """Return the products of linear facts with the sizes that other atoms are multiplied by."""
    products = []
    for size in multiplied_sizes(facts.polynomials):
        factor = Polynomial.atom(size) - (size.lowest or 0)
        for polynomial in linear:
            if all(len(monomial) < 2 for monomial, _ in polynomial.terms):
                products.append(polynomial * factor)
    return products
