"""Polynomials with integer coefficients over atoms: sizes, block and thread indices, iterations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import chain, product, starmap


class Scope(IntEnum):
    """Where an unknown has one value."""

    LAUNCH = 0
    BLOCK = 1
    THREAD = 2  # at one place of the code


@dataclass(frozen=True, order=True)
class Atom:
    """An integer unknown. Its name is its identity."""

    name: str
    lowest: int | None = None  # its range, if it is bounded by constants
    highest: int | None = None
    is_size: bool = False  # M, N or K, divided by the step of its domain
    scope: Scope = Scope.LAUNCH
    is_symbol: bool = False  # an address: of an argument or of a shared array
    opaque: str = ""  # why nothing more is known of it; "" for an index
    line: int = 0  # of the source that made it opaque

    def __hash__(self) -> int:
        return hash(self.name)


Monomial = tuple[Atom, ...]  # sorted; () is the constant


@dataclass(frozen=True)
class Polynomial:
    """A sum of monomials. It supports + - * with integers and polynomials."""

    terms: tuple[tuple[Monomial, int], ...]  # sorted, without zeros

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @staticmethod
    def from_terms(terms: Mapping[Monomial, int]) -> Polynomial:
        """Return the polynomial with these coefficients."""
        return Polynomial(tuple(sorted((key, value) for key, value in terms.items() if value)))

    @staticmethod
    def constant(value: int) -> Polynomial:
        """Return a constant."""
        return Polynomial.from_terms({(): value})

    @staticmethod
    def atom(atom: Atom) -> Polynomial:
        """Return an atom."""
        return Polynomial.from_terms({(atom,): 1})

    def __add__(self, other: Polynomial | int) -> Polynomial:
        terms = defaultdict[Monomial, int](int, self.terms)
        for monomial, coefficient in _polynomial(other).terms:
            terms[monomial] += coefficient
        return Polynomial.from_terms(terms)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        terms = defaultdict[Monomial, int](int)
        for first, first_factor in self.terms:
            for second, second_factor in _polynomial(other).terms:
                terms[tuple(sorted(first + second))] += first_factor * second_factor
        return Polynomial.from_terms(terms)

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -_polynomial(other)

    def __rsub__(self, other: int) -> Polynomial:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """The atoms of all monomials."""
        return frozenset(chain.from_iterable(monomial for monomial, _ in self.terms))

    @cached_property
    def scope(self) -> Scope:
        """The scope of the value."""
        return max((atom.scope for atom in self.atoms), default=Scope.LAUNCH)

    @cached_property
    def value(self) -> int | None:
        """The value of a constant; None for any other polynomial."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @cached_property
    def offset(self) -> int:
        """The constant term."""
        return dict(self.terms).get((), 0)

    @cached_property
    def divisor(self) -> int:
        """The largest integer that divides every coefficient; 0 for zero."""
        return math.gcd(*(coefficient for _, coefficient in self.terms))

    @cached_property
    def range(self) -> tuple[float, float]:
        """The least and the largest value by the atoms' ranges; infinite if unbounded."""
        lowest: float = 0
        highest: float = 0
        for monomial, coefficient in self.terms:
            low, high = _range(monomial)
            ends = (coefficient * low, coefficient * high)
            lowest += min(ends)
            highest += max(ends)
        return lowest, highest

    def split(self, divisor: int) -> tuple[Polynomial, Polynomial]:
        """Return the terms that a number divides, divided by it, and the other terms.

        A constant is divided with a remainder from 0 to divisor - 1.
        """
        quotient = {}
        remainder = {}
        for monomial, coefficient in self.terms:
            if not monomial:
                quotient[monomial], remainder[monomial] = divmod(coefficient, divisor)
            elif coefficient % divisor == 0:
                quotient[monomial] = coefficient // divisor
            else:
                remainder[monomial] = coefficient
        return Polynomial.from_terms(quotient), Polynomial.from_terms(remainder)

    def substituted(self, values: Mapping[Atom, Polynomial]) -> Polynomial:
        """Return the polynomial with values for some of its atoms."""
        if self.atoms.isdisjoint(values):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            term = Polynomial.constant(coefficient)
            for atom in monomial:
                term = term * values.get(atom, Polynomial.atom(atom))
            total = total + term
        return total

    def __str__(self) -> str:
        parts = []
        for monomial, coefficient in reversed(self.terms):
            factors = [atom.name for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+"
            parts.append(f"{sign} {' '.join(factors)}")
        return " ".join(parts).removeprefix("+ ") or "0"


ZERO = Polynomial(())
ONE = Polynomial.constant(1)


def _polynomial(value: Polynomial | int) -> Polynomial:
    return value if isinstance(value, Polynomial) else Polynomial.constant(value)


def _range(monomial: Monomial) -> tuple[float, float]:
    """Return the range of a product of atoms."""
    lowest: float = 1
    highest: float = 1
    for atom in monomial:
        low = -math.inf if atom.lowest is None else atom.lowest
        high = math.inf if atom.highest is None else atom.highest
        ends = list(starmap(_product, product((lowest, highest), (low, high))))
        lowest = min(ends)
        highest = max(ends)
    return lowest, highest


def _product(left: float, right: float) -> float:
    """Return a product in which 0 times infinity is 0."""
    return left * right if left and right else 0
