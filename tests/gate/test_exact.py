"""The questions with one right answer: that no order of operations can round them, and that one wrong element shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.right import summed
from tests.gate.wrong import bf16, tf32
from worklog.gate.exact import EXACT_LIMIT, FAMILIES, Projection, family, ragged_shapes
from worklog.gemm import Shape
from worklog.ladder import LADDER, Domain

shapes = st.builds(Shape, st.integers(1, 40), st.integers(1, 40), st.integers(1, 300))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("k", [1, 2, 3, 64, 1000, 4095, 4096, 4097, 8192, 65536])
def test_no_sum_leaves_what_float32_holds_exactly(name: str, k: int) -> None:
    a, b = family(name, Shape(3, 5, k), np.random.default_rng(k))
    assert a.dtype == b.dtype == np.float32
    assert (a == np.rint(a)).all() and (b == np.rint(b)).all()
    assert (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))).max() <= EXACT_LIMIT


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
        assert len(np.unique(matrix)) == 2 * (2**9 - 1)


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
    found = ragged_shapes(domain)
    assert len(found) >= 3
    assert all(shape in domain for shape in found)
    assert all(shape.m != shape.n for shape in found)
    assert any(shape.m > shape.n for shape in found) and any(shape.m < shape.n for shape in found)
    assert len({shape.k for shape in found}) >= 3
    assert len({shape.m for shape in found}) >= 3 and len({shape.n for shape in found}) >= 3


def test_a_kernel_that_takes_anything_is_asked_around_warps_and_tiles() -> None:
    found = ragged_shapes(Domain())
    edges = {1, 31, 33, 64, 65, 127, 129}
    assert edges <= {s.m for s in found} | {s.n for s in found}
    assert {1, 2} <= {s.k for s in found}
    assert any(s.m == 1 for s in found) and any(s.n == 1 for s in found)
