"""What the prover proves is true, and it doesn't prove what isn't."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worklog import errors
from worklog.proof import prover as module
from worklog.proof import require_z3
from worklog.proof.polynomial import Atom, Polynomial
from worklog.proof.prover import Facts, Prover, tightened
from worklog.proof.stop import ProofStopped

ROWS = Atom("rows", 1, 4, is_size=True)
COLUMNS = Atom("columns", 1, 4, is_size=True)
ROW = Atom("row", 0, 5)
COLUMN = Atom("column", 0, 5)
ATOMS = (ROWS, COLUMNS, ROW, COLUMN)
INSIDE = Facts().and_all(
    [
        Polynomial.atom(ROWS) - Polynomial.atom(ROW) - 1,
        Polynomial.atom(COLUMNS) - Polynomial.atom(COLUMN) - 1,
    ]
)
INDEX = Polynomial.atom(ROW) * Polynomial.atom(COLUMNS) + Polynomial.atom(COLUMN)
SIZE = Polynomial.atom(ROWS) * Polynomial.atom(COLUMNS)

linear = st.builds(
    lambda factors, constant: (
        sum((Polynomial.atom(atom) * n for atom, n in zip(ATOMS, factors, strict=True)),
            Polynomial.constant(constant))
    ),
    st.tuples(*[st.integers(-3, 3)] * len(ATOMS)),
    st.integers(-6, 6),
)  # fmt: skip


def values_of(polynomial: Polynomial, point: tuple[int, ...]) -> int:
    """Return a polynomial's value at a point."""
    values = {atom: Polynomial.constant(n) for atom, n in zip(ATOMS, point, strict=True)}
    value = polynomial.substituted(values).value
    assert value is not None
    return value


def points(facts: Facts) -> list[tuple[int, ...]]:
    """Return the points in the ranges of the atoms at which facts hold."""
    ranges = [range(atom.lowest, atom.highest + 1) for atom in ATOMS]
    found = []
    for point in product(*ranges):
        holds = all(values_of(fact, point) >= 0 for fact in facts.conjunction)
        for choices in facts.choices:
            holds &= any(
                all(values_of(fact, point) >= 0 for fact in conjunction) for conjunction in choices
            )
        if holds:
            found.append(point)
    return found


def test_an_element_of_a_matrix_is_below_its_end():
    prover = Prover()
    assert prover.proves(INSIDE, SIZE - INDEX - 1)
    assert prover.proves(INSIDE, INDEX)
    assert not prover.proves(INSIDE, SIZE - INDEX - 2)
    assert not prover.proves(Facts(INSIDE.conjunction[:1]), SIZE - INDEX - 1)
    assert prover.exhausted == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(linear, max_size=3), st.lists(linear, min_size=2, max_size=2), linear, linear)
def test_what_is_proved_holds_at_each_point(conjunction, choices, goal, factor):
    facts = Facts().and_all(conjunction).and_any(tuple((choice,) for choice in choices))
    goal = goal + factor * Polynomial.atom(COLUMNS)
    prover = Prover()
    places = points(facts)
    if prover.proves(facts, goal):
        assert all(values_of(goal, point) >= 0 for point in places)
    if prover.contradicts(facts):
        assert not places


@given(linear)
def test_a_tightened_inequality_has_the_same_points(polynomial):
    stronger = tightened(polynomial)
    for point in product((0, 1, 5), repeat=len(ATOMS)):
        assert (values_of(polynomial, point) >= 0) == (values_of(stronger, point) >= 0)


def test_a_query_ends_at_its_limit_of_work():
    prover = Prover(rlimit=10)
    assert not prover.proves(INSIDE, SIZE - INDEX - 1)
    assert prover.exhausted == 1


def test_many_queries_at_the_limit_stop_the_proof():
    prover = Prover(rlimit=10)
    with pytest.raises(ProofStopped, match="limit"):
        for excess in range(2, 2 + 2 * module.MAX_EXHAUSTED):
            prover.proves(INSIDE, SIZE - INDEX + excess)
    assert prover.exhausted == module.MAX_EXHAUSTED + 1


def test_without_z3_the_error_names_the_extra(monkeypatch):
    def missing(_name):
        raise ImportError

    module.z3.cache_clear()
    monkeypatch.setattr(module, "import_module", missing)
    with pytest.raises(errors.ProverMissing, match=r"gemm-worklog\[proof\]"):
        require_z3()
