"""The questions with one right answer: that no order of operations can round them, and that one wrong element shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.right import summed
from tests.gate.wrong_values import bf16, tf32
from worklog.gate.exact import EXACT_LIMIT, FAMILIES, HEADROOM, OPERAND_BITS, Projection, family, stretch
from worklog.gate.shapes import drawn_shapes, edge_shapes
from worklog.kernel.ladder import LADDER
from worklog.problem.gemm import Domain, Shape

shapes = st.builds(Shape, st.integers(1, 40), st.integers(1, 40), st.integers(1, 300))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("k", [1, 2, 3, 64, 1000, 4095, 4096, 4097, 8192, 65536])
def test_no_sum_leaves_what_float32_holds_exactly(name: str, k: int) -> None:
    a, b = family(name, Shape(3, 5, k), np.random.default_rng(k))
    assert a.dtype == b.dtype == np.float32
    assert (a == np.rint(a)).all() and (b == np.rint(b)).all()
    assert (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))).max() <= EXACT_LIMIT


@pytest.mark.parametrize("claimed", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("k", [1, 3, 64, 700])
def test_headroom_leaves_room_for_alpha_and_beta(claimed: str, k: int) -> None:
    """alpha of 3.5 on the way in or out: halves of integers, and operands that a shorter format still holds."""
    for name in FAMILIES if claimed == "fp32" else FAMILIES[:1]:
        a, b = family(name, Shape(9, 11, k), np.random.default_rng(k), claimed, HEADROOM)
        assert 7 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))).max() <= EXACT_LIMIT
        assert 7 * np.abs(a).max() <= 2 ** OPERAND_BITS.get(claimed, 24)


def test_a_stretched_question_is_as_exact_and_far_from_what_halves_hold() -> None:
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        a, b = family("E2", Shape(5, 6, 40), rng)
        before = summed(a, b)
        factors = stretch(a, b, rng)
        assert np.array_equal(summed(a, b), before.astype(np.float64) * factors[0] * factors[1])
        seen |= set(factors)
        for matrix, factor in zip((a, b), factors, strict=True):
            with np.errstate(over="ignore"):
                assert factor == 1 or (matrix.astype(np.float16) != matrix).any()
    assert 1.0 in seen and min(seen) < 2.0**-25 and max(seen) > 2.0**25
    assert stretch(a, b, rng, "fp16") == (1.0, 1.0)


@settings(max_examples=30)
@given(name=st.sampled_from(FAMILIES), shape=shapes, seed=st.integers(0, 2**32))
def test_any_order_gives_the_same_sum(name: str, shape: Shape, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = family(name, shape, rng)
    right = a.astype(np.float64) @ b.astype(np.float64)
    shuffled = rng.permutation(shape.k)
    for product in (summed(a, b), summed(a[:, shuffled], b[shuffled]), a @ b):
        assert np.array_equal(product, right)


def test_dense_integers_have_no_zeros_and_many_values() -> None:
    a, b = family("E1", Shape(200, 100, 64), np.random.default_rng(0))
    for matrix in (a, b):
        assert (matrix != 0).all()
        assert 2 * (2**9 - 1) * 0.99 < len(np.unique(matrix)) <= 2 * (2**9 - 1)


@pytest.mark.parametrize(("name", "operand"), [("E2", 0), ("E3", 1)])
def test_the_precision_families_need_all_of_12_bits(name: str, operand: int) -> None:
    wide = family(name, Shape(64, 64, 64), np.random.default_rng(0))[operand]
    assert (wide % 2 == 1).all() and np.abs(wide).max() == 4095
    large = np.abs(wide) > 2048
    assert large.any()
    for rounded in (tf32(wide), bf16(wide), wide.astype(np.float16).astype(np.float32)):
        assert (rounded[large] != wide[large]).all()


@pytest.mark.parametrize(("name", "operand"), [("E2", 1), ("E3", 0)])
def test_signs_are_thinned_only_where_they_must_be(name: str, operand: int) -> None:
    for k, nonzeros in ((4096, 4096), (8192, 4096)):
        signs = family(name, Shape(2, 2, k), np.random.default_rng(0))[operand]
        assert set(np.unique(signs)) <= {-1.0, 0.0, 1.0}
        assert (signs != 0).sum() == 2 * nonzeros


def question(shape: Shape, seed: int = 0) -> tuple[np.ndarray, Projection]:
    rng = np.random.default_rng(seed)
    a, b = family("E1", shape, rng)
    return summed(a, b), Projection.of(a, b, rng)


@settings(max_examples=30)
@given(shape=shapes, seed=st.integers(0, 2**32), data=st.data())
def test_one_wrong_element_is_found_in_its_row(shape: Shape, seed: int, data: st.DataObject) -> None:
    c, projection = question(shape, seed)
    assert len(projection.wrong_rows(c)) == 0
    row, column = data.draw(st.integers(0, shape.m - 1)), data.draw(st.integers(0, shape.n - 1))
    c[row, column] += 1
    assert projection.wrong_rows(c).tolist() == [row]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -3e30, 3.4e38])
def test_what_is_no_integer_is_wrong_too(value: float) -> None:
    c, projection = question(Shape(20, 30, 40))
    c[7, 3] = c[9, 4] = value
    assert projection.wrong_rows(c).tolist() == [7, 9]


def test_a_trace_of_a_fraction_does_not_hide_in_a_long_sum() -> None:
    rng = np.random.default_rng(0)
    a, b = family("E1", Shape(20, 512, 64), rng)
    b[:, 7] = 0
    projection = Projection.of(a, b, rng)
    c = summed(a, b)
    c[3, 7] = 1e-12
    assert projection.wrong_rows(c).tolist() == [3] and projection.wrong_columns(c).tolist() == [7]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-0.25, 0.0), (4.0, -0.5), (-2.0, 4.0)])
def test_a_projection_with_alpha_beta_and_powers_of_two(alpha: float, beta: float) -> None:
    rng = np.random.default_rng(1)
    a, b = family("E3", Shape(20, 30, 40), rng)
    of_a, of_b = stretch(a, b, rng)
    unit, old = of_a * of_b, 64 * of_a * of_b
    c = (alpha * (a.astype(np.float64) @ b) + beta * old).astype(np.float32)
    projection = Projection.of(a, b, rng, alpha, beta * old, abs(alpha) * unit)
    assert len(projection.wrong_rows(c)) == len(projection.wrong_columns(c)) == 0
    for error in (alpha * unit, unit / 1024):
        wrong = c.copy()
        wrong[7, 3] = 0
        wrong[7, 4] += np.float32(error)
        assert projection.wrong_rows(wrong).tolist() == [7] and set(projection.wrong_columns(wrong)) <= {3, 4}


def test_swapped_columns_are_found() -> None:
    """Sums of rows stay the same; only random weights tell the columns apart."""
    c, projection = question(Shape(20, 30, 40))
    c[:, [3, 4]] = c[:, [4, 3]]
    assert len(projection.wrong_rows(c)) == 20


def test_a_projection_is_exact_at_a_large_shape() -> None:
    shape = Shape(4, 8192, 4096)
    rng = np.random.default_rng(0)
    for name in FAMILIES:
        a, b = family(name, shape, rng)
        projection = Projection.of(a, b, rng)
        c = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        assert len(projection.wrong_rows(c)) == 0
        c[2, 5000] += 1
        assert projection.wrong_rows(c).tolist() == [2]


@pytest.mark.parametrize(
    "domain",
    [
        Domain(),
        *{r.domain for r in LADDER},
        Domain(n=4),
        Domain(16, 8, 1),
        Domain(k=64),
        Domain(64, 1, 1),
        Domain(32, 256, 16),
    ],
    ids=str,
)
def test_ragged_shapes_lie_in_the_domain_and_are_no_squares(domain: Domain) -> None:
    found = edge_shapes(domain)
    assert len(found) >= 3
    assert all(shape in domain for shape in found)
    assert all(shape.m != shape.n for shape in found)
    assert any(shape.m > shape.n for shape in found) and any(shape.m < shape.n for shape in found)
    assert len({shape.k for shape in found}) >= 3
    assert len({shape.m for shape in found}) >= 3 and len({shape.n for shape in found}) >= 3


def test_a_kernel_that_takes_anything_is_asked_around_warps_and_tiles() -> None:
    found = edge_shapes(Domain())
    edges = {1, 31, 33, 64, 65, 127, 129}
    assert edges <= {s.m for s in found} | {s.n for s in found}
    assert {1, 2} <= {s.k for s in found}
    assert any(s.m == 1 for s in found) and any(s.n == 1 for s in found)


@pytest.mark.parametrize("domain", [Domain(), *{r.domain for r in LADDER}, Domain(n=4), Domain(64, 1, 1)], ids=str)
def test_drawn_shapes_lie_in_the_domain_and_nobody_knows_them(domain: Domain) -> None:
    drawn = [drawn_shapes(domain, np.random.default_rng(seed)) for seed in range(50)]
    for shapes in drawn:
        assert all(shape in domain for shape in shapes)
        tall, wide = shapes[-2:]
        assert tall.m >= 1100 > tall.n and wide.n >= 1100 > wide.m
        assert min(tall.n, wide.m) > 3 * 16, "one column of tiles has no order to get wrong"
    assert max(domain.m, domain.n) > 64 or len({str(shapes) for shapes in drawn}) > 5
