"""What is claimed of accesses: that they are in bounds, and that no two of them race."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from worklog.emulator.ptx import plain_name
from worklog.proof.execution import SymbolicAccess
from worklog.proof.launch import BoundedArray, SymbolicLaunch
from worklog.proof.polynomial import Atom, Monomial, Polynomial, Scope
from worklog.proof.prover import Choices, Conjunction, Facts, Prover, multiplied_sizes

BOUNDS = "bounds"
RACES = "race freedom"


@dataclass(frozen=True)
class Claim:
    """A claim about the accesses of a line, or of two lines."""

    kind: str  # BOUNDS or RACES
    lines: tuple[int, ...]  # of the source
    subject: str  # such as "reads of A"
    reason: str = ""  # why it isn't proved; "" if it is

    @property
    def is_proved(self) -> bool:
        """True if the claim is proved."""
        return not self.reason

    def __str__(self) -> str:
        lines = " and ".join(map(str, dict.fromkeys(self.lines)))
        plural = "s" if len(set(self.lines)) > 1 else ""
        text = f"{self.kind} of {self.subject} at line{plural} {lines}"
        return f"{text}: {self.reason}" if self.reason else text


def bounds(
    prover: Prover, launch: SymbolicLaunch, accesses: Iterable[SymbolicAccess]
) -> list[Claim]:
    """Return the claims that accesses are in bounds and aligned, by line."""
    reasons = dict[tuple[int, str], str]()
    for access in accesses:
        buffer = buffer_of(launch, access)
        name = plain_name(buffer.name) if buffer else f"{access.space} memory"
        key = (access.instruction.line, f"{'writes' if access.is_store else 'reads'} of {name}")
        if not reasons.get(key):
            reasons[key] = _misplaced(prover, buffer, access)
    return [Claim(BOUNDS, (line,), text, reason) for (line, text), reason in reasons.items()]


def buffer_of(launch: SymbolicLaunch, access: SymbolicAccess) -> BoundedArray | None:
    """Return the array of an access; None if its address isn't that of one array."""
    symbols = [atom for atom in access.address.atoms if atom.is_symbol]
    if len(symbols) != 1:
        return None
    [symbol] = symbols
    if symbol in (access.address - Polynomial.atom(symbol)).atoms:
        return None
    buffer = launch.buffers.get(symbol)
    if buffer is None or access.space not in (buffer.space, "generic"):
        return None
    return buffer


def _misplaced(prover: Prover, buffer: BoundedArray | None, access: SymbolicAccess) -> str:
    """Return why an access isn't proved to be in bounds and aligned; "" if it is."""
    opaque = [atom for atom in sorted(access.address.atoms) if atom.opaque]
    cause = f"line {opaque[0].line}: {opaque[0].opaque}" if opaque else ""
    if buffer is None:
        return cause or "the address isn't that of one array"
    offset = access.address - Polynomial.atom(buffer.symbol)
    if offset.divisor % access.width or buffer.align % access.width:
        return cause or f"the address may not be a multiple of {access.width} bytes"
    if not prover.proves(access.facts, offset):
        return cause or "the address may be below the array"
    if not prover.proves(access.facts, buffer.size - access.width - offset):
        return cause or "the address may be past the end of the array"
    return ""


@dataclass(frozen=True)
class _AccessGroup:
    """Accesses of a line whose addresses differ by constants."""

    line: int
    is_store: bool
    varying: Polynomial  # the address without its constant
    facts: Facts
    extents: set[tuple[int, int]] = field(default_factory=set)  # the constants and the widths


def races(
    prover: Prover, launch: SymbolicLaunch, accesses: Sequence[SymbolicAccess]
) -> list[Claim]:
    """Return the claims that accesses don't race, a claim for each two lines and array.

    Two threads race if they may touch the same byte and one of them writes: in shared memory, two
    threads of a block between the same barriers, in global memory any two threads of the grid.
    An access whose array isn't proved is in no claim: its bounds aren't proved.
    """
    reasons = dict[tuple[int, int, str], str]()
    for (buffer, barrier), group in _groups(launch, accesses).items():
        scope = Scope.LAUNCH if barrier is None else Scope.BLOCK
        for first, second in _pairs(_places(group, is_weak=barrier is None)):
            lines = sorted((first.line, second.line))
            key = (lines[0], lines[1], plain_name(buffer.name))
            if not reasons.get(key):
                reasons[key] = _race(prover, launch, first, second, scope)
    claims = []
    for (first_line, second_line, name), reason in sorted(reasons.items()):
        claims.append(Claim(RACES, (first_line, second_line), name, reason))
    return claims


def _groups(
    launch: SymbolicLaunch, accesses: Iterable[SymbolicAccess]
) -> Mapping[tuple[BoundedArray, int | None], Sequence[SymbolicAccess]]:
    """Return the accesses to each array: to a shared array, those behind each barrier."""
    groups = defaultdict[tuple[BoundedArray, int | None], list[SymbolicAccess]](list)
    for access in accesses:
        buffer = buffer_of(launch, access)
        if buffer is None:
            continue
        if buffer.space == "global":
            groups[buffer, None].append(access)
        elif access.barrier is not None:
            groups[buffer, access.barrier].append(access)
    return groups


def _places(accesses: Sequence[SymbolicAccess], *, is_weak: bool) -> Sequence[_AccessGroup]:
    """Return accesses with equal lines and facts, and addresses that differ by constants.

    is_weak: use only the facts that all accesses share, so that there are fewer places
    """
    shared = set(accesses[0].facts.conjunction)
    for access in accesses:
        shared &= set(access.facts.conjunction)
    common = Facts(tuple(fact for fact in accesses[0].facts.conjunction if fact in shared))
    places = dict[tuple[object, ...], _AccessGroup]()
    for access in accesses:
        facts = common if is_weak else access.facts
        varying = access.address - access.address.offset
        place = _AccessGroup(access.instruction.line, access.is_store, varying, facts)
        key = (place.line, place.is_store, varying, facts)
        places.setdefault(key, place).extents.add((access.address.offset, access.width))
    return [*places.values()]


def _pairs(places: Sequence[_AccessGroup]) -> Iterator[tuple[_AccessGroup, _AccessGroup]]:
    """Yield each two places of which one writes, also a place with itself."""
    for number, first in enumerate(places):
        for second in places[number:]:
            if first.is_store or second.is_store:
                yield first, second


def _race(
    prover: Prover, launch: SymbolicLaunch, first: _AccessGroup, second: _AccessGroup, scope: Scope
) -> str:
    """Return why two threads may race; "" if they don't.

    scope: what the threads share: the block, or only the launch
    """
    other = Renaming(prover, scope)
    difference = first.varying - other.renamed(second.varying)
    facts = first.facts & other.renamed_facts(second.facts)
    indices = [launch.thread, *(launch.blocks if scope is Scope.LAUNCH else ())]
    distinct = list[tuple[Polynomial]]()
    for index in indices:
        distance = index - other.renamed(index)
        distinct += [(distance - 1,), (-distance - 1,)]
    facts = facts.and_any(tuple(distinct))
    overlaps = _touching(difference, _overlaps(first.extents, second.extents))
    if not overlaps:
        return ""
    facts = facts.and_any(overlaps)
    if all(prover.contradicts(facts.and_all(case)) for case in _cases(difference)):
        return ""
    opaque = [atom for atom in sorted(difference.atoms) if atom.opaque]
    if opaque:
        return f"line {opaque[0].line}: {opaque[0].opaque}"
    return "two threads may access the same byte" + (
        " between two barriers" if scope is Scope.BLOCK else ""
    )


def _touching(difference: Polynomial, ranges: Iterable[tuple[int, int]]) -> Choices:
    """Return the conditions that a difference of addresses is in one of the ranges."""
    unit = difference.divisor
    choices = []
    for lowest, highest in ranges:
        if unit == 0 and not lowest <= 0 <= highest:
            continue
        if unit and -(-lowest // unit) > highest // unit:
            continue  # no multiple of the unit is between them
        choices.append((difference - lowest, -difference + highest))
    return tuple(choices)


def _cases(difference: Polynomial) -> Iterator[Conjunction]:
    """Yield cases of which one always holds: by the sign of what a size is multiplied by.

    Of addresses row * N + column, they are: a row below, the same row, a row above.
    """
    factors = list[Polynomial]()
    for size in multiplied_sizes([difference]):
        terms = dict[Monomial, int]()
        for monomial, coefficient in difference.terms:
            if size in monomial:
                cofactor = list(monomial)
                cofactor.remove(size)
                terms[tuple(cofactor)] = coefficient
        factors.append(Polynomial.from_terms(terms))
    for signs in product((-1, 0, 1), repeat=len(factors)):
        case = list[Polynomial]()
        for factor, sign in zip(factors, signs, strict=True):
            case += [factor * sign - 1] if sign else [factor, -factor]
        yield tuple(case)


def _overlaps(
    first: Iterable[tuple[int, int]], second: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the ranges of a difference of addresses at which accesses overlap, merged."""
    ranges = []
    for offset, width in first:
        for other_offset, other_width in second:
            start = other_offset - offset
            ranges.append((start - width + 1, start + other_width - 1))
    merged = list[tuple[int, int]]()
    for lowest, highest in sorted(ranges):
        if merged and lowest <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], highest))
        else:
            merged.append((lowest, highest))
    return merged


class Renaming:
    """Gives atoms other names for a second thread, if it may have other values."""

    def __init__(self, prover: Prover, shared: Scope) -> None:
        self.prover = prover
        self.shared = shared  # atoms of this scope are the same for both threads
        self.atoms: dict[Atom, Polynomial] = {}

    def renamed(self, polynomial: Polynomial) -> Polynomial:
        """Return a polynomial of the second thread."""
        for atom in sorted(polynomial.atoms):
            self._rename(atom)
        return polynomial.substituted(self.atoms)

    def renamed_facts(self, facts: Facts) -> Facts:
        """Return the facts of the second thread."""
        conjunction = tuple(self.renamed(polynomial) for polynomial in facts.conjunction)
        choices = []
        for alternatives in facts.choices:
            choices.append(
                tuple(tuple(map(self.renamed, conjunction)) for conjunction in alternatives)
            )
        return Facts(conjunction, tuple(choices))

    def _rename(self, atom: Atom) -> None:
        """Give an atom another name if it may differ, and the new atom the same definition."""
        if atom.scope <= self.shared or atom in self.atoms:
            return
        mark = "'" if self.shared is Scope.BLOCK else '"'
        other = replace(atom, name=f"{atom.name}{mark}")
        self.atoms[atom] = Polynomial.atom(other)
        if other not in self.prover.definitions:
            definition = self.prover.definitions.get(atom, ())
            self.prover.definitions[other] = tuple(self.renamed(fact) for fact in definition)
