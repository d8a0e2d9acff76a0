"""Values of registers: polynomials modulo 2**bits, and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product, starmap
from operator import add

from worklog.proof.polynomial import Polynomial
from worklog.proof.prover import Choices


@dataclass(frozen=True)
class Value:
    """An integer register: it equals the polynomial modulo 2**bits."""

    polynomial: Polynomial
    bits: int


@dataclass(frozen=True)
class Condition:
    """A predicate: the conjunctions of which one holds if it is true, and if it is false."""

    if_true: Choices
    if_false: Choices

    def negated(self) -> Condition:
        """Return the condition that is true if this one is false."""
        return Condition(self.if_false, self.if_true)

    def and_also(self, other: Condition) -> Condition:
        """Return the condition that this one and another are true."""
        pairs = tuple(starmap(add, product(self.if_true, other.if_true)))
        return Condition(pairs, self.if_false + other.if_false)

    def or_else(self, other: Condition) -> Condition:
        """Return the condition that this one or another is true."""
        return self.negated().and_also(other.negated()).negated()


UNKNOWN = Condition(((),), ((),))  # nothing is known on either side


def compared(operator: str, left: Polynomial, right: Polynomial) -> Condition:
    """Return a comparison of two integers.

    operator: as in setp: eq, ne, lt, le, gt, ge, or lo, ls, hi, hs without a sign
    """
    difference = left - right
    if operator in ("eq", "ne"):
        unequal = ((difference - 1,), (-difference - 1,))
        equal = Condition(((difference, -difference),), unequal)
        return equal if operator == "eq" else equal.negated()
    if operator in ("lt", "lo"):
        return _at_least(difference).negated()
    if operator in ("ge", "hs"):
        return _at_least(difference)
    if operator in ("gt", "hi"):
        return _at_least(-difference).negated()
    if operator in ("le", "ls"):
        return _at_least(-difference)
    return UNKNOWN


def _at_least(polynomial: Polynomial) -> Condition:
    """Return the condition that a polynomial is at least 0."""
    return Condition(((polynomial,),), ((-polynomial - 1,),))


def runs_of_ones(mask: int, bits: int) -> Iterator[tuple[int, int]]:
    """Yield the first bit and the end of each run of ones in a mask, lowest first."""
    first = None
    for place in range(bits + 1):
        is_one = place < bits and mask >> place & 1
        if is_one and first is None:
            first = place
        elif not is_one and first is not None:
            yield first, place
            first = None
