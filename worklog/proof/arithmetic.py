"""What integer instructions of PTX compute, in polynomials.

A register of 32 or 64 bits is a polynomial modulo 2**bits. Where an instruction reads it as a
number, the number is the polynomial if the facts prove that it is in range. If they don't, the
number is the polynomial minus an unknown multiple of 2**bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from worklog.emulator.ptx import Instruction
from worklog.proof.polynomial import ONE, ZERO, Atom, Polynomial, Scope
from worklog.proof.prover import Facts, Prover
from worklog.proof.values import Value, runs_of_ones

BITS = {"16": 16, "32": 32, "64": 64}


@dataclass
class Arithmetic:
    """Computes values. It makes atoms for what isn't linear, and defines them for the prover.

    An atom of the same parts has the same name, so that x / 4 and x % 4 belong together.
    """

    prover: Prover
    # A first look at a loop, which assumes that no number leaves its range. It proves nothing.
    is_trial: bool = False
    line: int = 0  # of the instruction that is computed
    _quotients: dict[tuple[Polynomial, int], Polynomial] = field(default_factory=dict)
    _count: int = 0

    def opaque(self, reason: str) -> Polynomial:
        """Return a new unknown.

        reason: why its value isn't computed
        """
        return Polynomial.atom(self._unknown("unknown", reason))

    def read(self, facts: Facts, value: Value, *, is_signed: bool) -> Polynomial:
        """Return a register as a number."""
        lowest = -(1 << value.bits - 1) if is_signed else 0
        highest = lowest + (1 << value.bits) - 1
        polynomial = value.polynomial
        if self.is_trial or self.prover.is_between(facts, polynomial, lowest, highest):
            return polynomial
        wraps = self._unknown("wraps", f"a value of {value.bits} bits may wrap around")
        number = polynomial - (1 << value.bits) * Polynomial.atom(wraps)
        self.prover.define(wraps, number - lowest, -number + highest)
        return number

    def divided(self, facts: Facts, number: Polynomial, divisor: int) -> Polynomial:
        """Return a number divided by a constant and rounded down."""
        return self._split(facts, number, divisor)[0]

    def modulo(self, facts: Facts, number: Polynomial, divisor: int) -> Polynomial:
        """Return the remainder of that division, from 0 to divisor - 1."""
        return self._split(facts, number, divisor)[1]

    def _split(
        self, facts: Facts, number: Polynomial, divisor: int
    ) -> tuple[Polynomial, Polynomial]:
        """Return the quotient and the remainder."""
        quotient, remainder = number.split(divisor)
        if self.prover.is_between(facts, remainder, 0, divisor - 1):
            return quotient, remainder
        key = (remainder, divisor)
        if key not in self._quotients:
            self._quotients[key] = self._new_quotient(remainder, divisor)
        varying = self._quotients[key]
        return quotient + varying, remainder - varying * divisor

    def _new_quotient(self, number: Polynomial, divisor: int) -> Polynomial:
        """Return a new unknown for a number divided by a constant."""
        self._count += 1
        opaque = next((atom for atom in sorted(number.atoms) if atom.opaque), None)
        lowest, highest = number.range
        atom = Atom(
            f"quotient{self._count}",
            None if math.isinf(lowest) else int(lowest) // divisor,
            None if math.isinf(highest) else int(highest) // divisor,
            scope=number.scope,
            opaque=opaque.opaque if opaque else "",
            line=opaque.line if opaque else 0,
        )
        quotient = Polynomial.atom(atom)
        remainder = number - quotient * divisor
        self.prover.define(atom, remainder, -remainder + (divisor - 1))
        return quotient

    def _unknown(self, name: str, reason: str) -> Atom:
        """Return a new atom that may differ between threads."""
        self._count += 1
        return Atom(f"{name}{self._count}", scope=Scope.THREAD, opaque=reason, line=self.line)

    def masked(self, facts: Facts, value: Value, mask: int) -> Polynomial:
        """Return the bits of a value that a mask keeps."""
        number = value.polynomial
        result = ZERO
        for first, stop in runs_of_ones(mask, value.bits):
            high = self.divided(facts, number, 1 << first) if first else number
            if stop < value.bits:
                high = self.modulo(facts, high, 1 << stop - first)
            result = result + high * (1 << first)
        return result

    def joined(self, facts: Facts, left: Value, right: Value) -> Polynomial | None:
        """Return the sum of two values without a common bit; None if that isn't proved."""
        first = left.polynomial
        second = right.polynomial
        if ZERO in (first, second) or _have_separate_bits(first, second):
            return first + second
        for high, low in ((first, second), (second, first)):
            unit = high.divisor & -high.divisor
            if unit and self.prover.is_between(facts, low, 0, unit - 1):
                return first + second
        return None

    def exclusive(self, facts: Facts, left: Value, right: Value) -> Polynomial | None:
        """Return left xor right; None if it isn't affine."""
        for value, other in (
            (left.polynomial, right.polynomial),
            (right.polynomial, left.polynomial),
        ):
            is_bit = self.is_trial or self.prover.is_between(facts, value, 0, 1)
            if other == ONE and is_bit:
                return -value + 1
        return self.joined(facts, left, right)


def _have_separate_bits(left: Polynomial, right: Polynomial) -> bool:
    """Return whether two values are sums of different bits."""
    places = list[int]()
    for monomial, coefficient in (*left.terms, *right.terms):
        is_bit = len(monomial) == 1 and monomial[0].lowest == 0 and monomial[0].highest == 1
        is_power = coefficient.bit_count() == 1
        if coefficient < 0 or (monomial and not (is_bit and is_power)):
            return False
        places += [place for place in range(coefficient.bit_length()) if coefficient >> place & 1]
    return len(places) == len(set(places))


def bits_of(instruction: Instruction) -> int:
    """Return the bits of an instruction's type."""
    return int(instruction.parts[-1][1:])


def is_signed(instruction: Instruction) -> bool:
    """Return whether an instruction's type has a sign."""
    return instruction.parts[-1].startswith("s")


def computed(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    """Return the result of an integer instruction; None if it isn't affine."""
    name = instruction.parts[0]
    if name not in RULES:
        return None
    if name not in ("mov", "cvta", "cvt"):
        if instruction.parts[-1][0] not in "bsu":
            return None
        wide = name == "mad" and "wide" in instruction.parts
        sizes = [bits_of(instruction)] * len(operands)
        if wide:
            sizes[2] *= 2
        if any(value.bits < size for value, size in zip(operands, sizes, strict=True)):
            return None
    return RULES[name](arithmetic, facts, instruction, operands)


def _added(
    _arithmetic: Arithmetic, _facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    first, second = (operand.polynomial for operand in operands)
    if len(instruction.parts) != 2:  # with a carry, or saturated
        return None
    result = first + second if instruction.parts[0] == "add" else first - second
    return Value(result, bits_of(instruction))


def _multiplied(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    bits = bits_of(instruction)
    form = instruction.parts[1]
    if form == "wide":
        first, second = (
            arithmetic.read(
                facts, Value(operand.polynomial, bits), is_signed=is_signed(instruction)
            )
            for operand in operands[:2]
        )
        bits *= 2
    elif form == "lo" and len(instruction.parts) == 3:
        first, second = (operand.polynomial for operand in operands[:2])
    else:
        return None
    product = first * second
    if instruction.parts[0] == "mad":
        product = product + operands[2].polynomial
    return Value(product, bits)


def _converted(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    target, source = instruction.parts[-2:]
    if len(instruction.parts) != 3 or target[0] == "f" or source[0] == "f":
        return None
    value = operands[0]
    from_bits = int(source[1:])
    bits = int(target[1:])
    if value.bits < from_bits:
        return None
    if bits <= from_bits:
        return Value(value.polynomial, bits)
    narrow = Value(value.polynomial, from_bits)
    return Value(arithmetic.read(facts, narrow, is_signed=source[0] == "s"), bits)


def _shifted(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    places = operands[1].polynomial.value
    bits = bits_of(instruction)
    if places is None or not 0 <= places < bits:
        return None
    value = Value(operands[0].polynomial, bits)
    if instruction.parts[0] == "shl":
        return Value(value.polynomial * (1 << places), bits)
    number = arithmetic.read(facts, value, is_signed=is_signed(instruction))
    return Value(arithmetic.divided(facts, number, 1 << places), bits)


def _masked(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    bits = bits_of(instruction)
    for value, mask in (operands, operands[::-1]):
        constant = mask.polynomial.value
        if constant is not None:
            base_bits = constant % (1 << bits)
            return Value(arithmetic.masked(facts, Value(value.polynomial, bits), base_bits), bits)
    return None


def _joined(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    is_or = instruction.parts[0] == "or"
    combine = arithmetic.joined if is_or else arithmetic.exclusive
    result = combine(facts, operands[0], operands[1])
    return None if result is None else Value(result, bits_of(instruction))


def _inserted(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    """Return the result of bfi: bits of the second operand, replaced by those of the first."""
    bits = bits_of(instruction)
    first = operands[2].polynomial.value
    length = operands[3].polynomial.value
    if first is None or length is None or not 0 < first < first + length <= bits:
        return None
    inserted = Value(operands[0].polynomial, bits)
    base = Value(operands[1].polynomial, bits)
    all_ones = (1 << bits) - 1
    if first + length < bits:
        base_bits = arithmetic.masked(facts, base, all_ones ^ ((1 << length) - 1 << first))
        new = arithmetic.masked(facts, inserted, (1 << length) - 1)
    else:
        base_bits = arithmetic.masked(facts, base, (1 << first) - 1)
        new = inserted.polynomial  # its upper bits leave the register
    return Value(base_bits + new * (1 << first), bits)


def _divided(
    arithmetic: Arithmetic, facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    bits = bits_of(instruction)
    divisor = operands[1].polynomial.value
    number = arithmetic.read(
        facts, Value(operands[0].polynomial, bits), is_signed=is_signed(instruction)
    )
    # A negative number is rounded towards 0.
    if divisor is None or divisor <= 0 or not arithmetic.prover.proves(facts, number):
        return None
    divide = arithmetic.divided if instruction.parts[0] == "div" else arithmetic.modulo
    return Value(divide(facts, number, divisor), bits)


def _negated(
    _arithmetic: Arithmetic, _facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    result = -operands[0].polynomial
    if instruction.parts[0] == "not":
        result = result - 1
    return Value(result, bits_of(instruction))


def _copied(
    _arithmetic: Arithmetic, _facts: Facts, instruction: Instruction, operands: Sequence[Value]
) -> Value | None:
    bits = bits_of(instruction)  # a literal has more
    return Value(operands[0].polynomial, bits) if operands[0].bits >= bits else None


Rule = Callable[[Arithmetic, Facts, Instruction, Sequence[Value]], Value | None]
RULES: dict[str, Rule] = {
    "mov": _copied,
    "cvta": _copied,
    "add": _added,
    "sub": _added,
    "mul": _multiplied,
    "mad": _multiplied,
    "cvt": _converted,
    "shl": _shifted,
    "shr": _shifted,
    "and": _masked,
    "or": _joined,
    "xor": _joined,
    "bfi": _inserted,
    "div": _divided,
    "rem": _divided,
    "neg": _negated,
    "not": _negated,
}
