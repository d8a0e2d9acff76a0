"""The exact problems: no order of operations can round them, and one wrong element shows."""

import math
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.kernels import bf16, fp16, strassens, summed, tf32
from worklog.gate.edges import RANGES, drawn_shapes, edge_shapes
from worklog.gate.exact import (
    ALONE,
    FAMILIES,
    FARTHEST,
    HEADROOM,
    MIXED,
    OPERAND_BITS,
    RANGE,
    STRUCTURES,
    ExactProblem,
    Projection,
    exponents,
    families,
    family,
    stretch,
    structured,
)
from worklog.gate.sgemm import exact_problems, ragged_shapes
from worklog.kernel.ladder import LADDER
from worklog.problem import Domain, Float32, Shape
from worklog.problem.formats import FLOAT16, FORMATS, OF_C, SINGLE, ClaimedResult, Types

SHAPES = st.builds(Shape, st.integers(1, 40), st.integers(1, 40), st.integers(1, 300))
DOMAINS = (
    Domain(),
    *{r.domain for r in LADDER},
    Domain(n=4),
    Domain(16, 2),
    Domain(k=256),
    Domain(256, 64, 16),
)


HALF_TYPES = [
    Types(FORMATS[factor], FORMATS[factor], result)
    for factor in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    for result in OF_C
]


@pytest.mark.parametrize("claimed", ["fp32", *OPERAND_BITS])
@pytest.mark.parametrize("types", [SINGLE, *HALF_TYPES], ids=str)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 64, 1000, 4097, 65536])
def test_no_sum_leaves_what_c_holds_and_operands_fit_their_format(claimed, types, k):
    """With headroom, alpha of 3.5 fits on the way in or out."""
    claim = ClaimedResult(claimed, types)
    limit = 2**types.c.significand
    assert families(claim) == (FAMILIES if claimed == "fp32" else ("E1",))
    for name in (*families(claim), MIXED, *ALONE):
        for headroom, factor in ((0, 1), (HEADROOM, 7)):
            a, b = family(name, Shape(3, 5, k), np.random.default_rng(k), claim, headroom=headroom)
            assert np.array_equal(types.a.rounded(a), a) and np.array_equal(types.b.rounded(b), b)
            assert (
                a.dtype == b.dtype == np.float32
                and (a == np.rint(a)).all()
                and (b == np.rint(b)).all()
            )
            assert factor * (np.abs(a.astype(np.float64)) @ np.abs(b)).max() <= limit
            if name in families(claim):
                largest = 2 ** OPERAND_BITS.get(claimed, 24)
                assert factor * max(np.abs(a).max(), np.abs(b).max()) <= largest


@pytest.mark.parametrize("types", HALF_TYPES, ids=str)
def test_long_operands_of_16_bits_lose_their_last_bit_in_any_shorter_format(types):
    claim = ClaimedResult("fp32", types)
    for name, operand in (("E2", 0), ("E3", 1)):
        matrix = family(name, Shape.of(64), np.random.default_rng(0), claim)[operand]
        format_ = types.formats[operand]
        bits = min(format_.significand, types.c.significand)
        assert (matrix % 2 == 1).all() and np.abs(matrix).max() > 2 ** (bits - 1)


@pytest.mark.parametrize("claimed", OPERAND_BITS)
def test_integers_of_a_short_format_use_all_of_its_bits(claimed):
    largest = 2 ** OPERAND_BITS[claimed] - 1
    for matrix in family("E1", Shape(50, 50, 4), np.random.default_rng(0), ClaimedResult(claimed)):
        assert 0.9 * largest < np.abs(matrix).max() <= largest


def test_a_stretched_problem_is_as_exact_and_out_of_fp16s_range():
    rng = np.random.default_rng(0)
    seen = set()
    decks = (exponents(np.random.default_rng(1)), cycle([0]))
    for _ in range(2 * RANGES):
        a, b = family("E2", Shape(5, 6, 40), rng)
        before = summed(a, b)
        factors = stretch(a, b, decks)
        assert np.array_equal(summed(a, b), before.astype(np.float64) * factors[0] * factors[1])
        assert factors[1] == 1
        problem = ExactProblem("E2", a, b, factors, initial_c=5 * factors[0])
        assert np.array_equal(summed(problem.around_1.a, problem.around_1.b), before)
        assert (problem.around_1.initial_c, problem.around_1.stretched) == (5, (1, 1))
        seen.add(int(np.log2(factors[0])))
    assert (
        max(np.diff(sorted(seen))) < 2 * RANGE
        and min(seen) < -FARTHEST + RANGE
        and max(seen) > FARTHEST - RANGE
    )
    for claim in (ClaimedResult("fp16"), ClaimedResult("fp32", Types(c=FLOAT16))):
        assert stretch(a, b, decks, claim) == (1.0, 1.0)


@settings(max_examples=30)
@given(name=st.sampled_from(FAMILIES), shape=SHAPES, seed=st.integers(0, 2**32))
def test_any_order_gives_the_same_sum(name, shape, seed):
    rng = np.random.default_rng(seed)
    a, b = family(name, shape, rng)
    right = a.astype(np.float64) @ b.astype(np.float64)
    shuffled = rng.permutation(shape.k)
    for product in (summed(a, b), summed(a[:, shuffled], b[shuffled]), a @ b, strassens(a, b)):
        assert np.array_equal(product, right)


def test_dense_integers_have_no_zeros_and_many_values_and_room_for_strassens_sums():
    for matrix in family("E1", Shape(200, 100, 64), np.random.default_rng(0)):
        assert (matrix != 0).all() and 2 * (2**9 - 1) * 0.99 < len(np.unique(matrix)) <= 2 * (
            2**9 - 1
        )
    for k in range(1, 9):
        a, b = family("E1", Shape(300, 300, k), np.random.default_rng(k))
        assert np.array_equal(strassens(a, b), a.astype(np.float64) @ b)


@pytest.mark.parametrize(("name", "operand"), [("E2", 0), ("E3", 1)])
def test_the_precision_families_need_all_of_12_bits_and_as_many_signs_as_fit(name, operand):
    wide = family(name, Shape(64, 64, 64), np.random.default_rng(0))[operand]
    large = np.abs(wide) > 2048
    assert (wide % 2 == 1).all() and np.abs(wide).max() == 4095 and large.any()
    assert all((cut(wide)[large] != wide[large]).all() for cut in (tf32, bf16, fp16))
    for k in (4096, 8192):
        signs = family(name, Shape(2, 2, k), np.random.default_rng(0))[1 - operand]
        assert set(np.unique(signs)) <= {-1.0, 0.0, 1.0} and (signs != 0).sum() == 2 * 4096


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (33, 33), (33, 47)])
def test_special_data_stay_as_small_and_special(kind, size):
    rng = np.random.default_rng(0)
    (matrix, _) = family("E1", Shape(*size, size[1]), rng)
    before = matrix.copy()
    structured(kind, matrix, rng)
    assert np.abs(matrix).max() <= np.abs(before).max()
    if size == (33, 33):
        same = {"sparse": 0, STRUCTURES[-1]: matrix.T} | dict.fromkeys(
            ("the identity", "nearly the identity", "diagonal"), np.eye(33)
        )
        lines = before[:, :1] if kind == "constant rows" else before[:1]
        share = (matrix == same.get(kind, lines)).mean()
        assert share == 1 if kind in ("the identity", STRUCTURES[-1]) else 0.5 < share < 1
        assert kind != "nearly the identity" or matrix[np.eye(33) == 0].any()


# -------------------------------------------------------------------------------------- projections


def projected(shape: Shape, seed: int = 0) -> tuple[Float32, Projection]:
    """Return a right product, and its projection."""
    rng = np.random.default_rng(seed)
    a, b = family("E1", shape, rng)
    return (a.astype(np.float64) @ b).astype(np.float32), Projection(ExactProblem("E1", a, b), rng)


@settings(max_examples=30)
@given(shape=SHAPES, seed=st.integers(0, 2**32), data=st.data())
def test_one_wrong_element_is_found_in_its_row(shape, seed, data):
    c, projection = projected(shape, seed)
    assert len(projection.wrong_rows(c)) == 0
    row = data.draw(st.integers(0, shape.m - 1))
    column = data.draw(st.integers(0, shape.n - 1))
    c[row, column] += 1
    assert projection.wrong_rows(c).tolist() == [row]


def test_a_projection_is_exact_at_a_large_shape():
    a = np.full((4, 1), 4095, np.float32)
    b = np.full((1, 2**20), 4097, np.float32)
    c = a @ b
    projection = Projection(ExactProblem("E1", a, b), np.random.default_rng(0))
    assert len(projection.wrong_rows(c)) == 0
    c[2, 5000:5002] += 1, -1
    assert projection.wrong_rows(c).tolist() == [2]


def test_values_that_are_no_integers_small_fractions_and_swapped_columns_are_wrong():
    """Swapped columns leave the sums of rows as they are.

    A fraction could hide in the rounding of a long sum.
    """
    right, projection = projected(Shape(20, 30, 40))
    for value in (np.nan, np.inf, -np.inf, -3e30, 3.4e38):
        c = right.copy()
        c[7, 3] = c[9, 4] = value
        assert projection.wrong_rows(c).tolist() == [7, 9]
    right[:, [3, 4]] = right[:, [4, 3]]
    assert len(projection.wrong_rows(right)) == 20
    rng = np.random.default_rng(0)
    a, b = family("E1", Shape(20, 512, 64), rng)
    b[:, 7] = 0
    c = summed(a, b)
    projection = Projection(ExactProblem("E1", a, b), rng)
    c[3, 7] = 1e-12
    assert projection.wrong_rows(c).tolist() == [3] and projection.wrong_columns(c).tolist() == [7]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-0.25, 0.0), (4.0, -0.5), (-2.0, 4.0)])
def test_a_projection_with_alpha_beta_and_powers_of_two(alpha, beta):
    rng = np.random.default_rng(1)
    a, b = family("E3", Shape(20, 30, 40), rng)
    stretched = stretch(a, b, (exponents(rng), exponents(rng)))
    unit = stretched[0] * stretched[1]
    c = (alpha * (a.astype(np.float64) @ b) + beta * 64 * unit).astype(np.float32)
    projection = Projection(ExactProblem("E3", a, b, stretched, alpha, beta, 64 * unit), rng)
    assert len(projection.wrong_rows(c)) == len(projection.wrong_columns(c)) == 0
    for error in (alpha * unit, unit / 1024):
        wrong = c.copy()
        wrong[7, 3] = 0
        wrong[7, 4] += np.float32(error)
        assert projection.wrong_rows(wrong).tolist() == [7] and set(
            projection.wrong_columns(wrong)
        ) <= {3, 4}


def test_the_benchmarks_problems_have_alpha_and_beta_of_either_sign_where_the_kernel_takes_them():
    for takes in (True, False):
        drawn = [
            exact_problems(Shape(3, 4, 5), np.random.default_rng(n), alpha=takes, beta=takes)
            for n in range(20)
        ]
        usual, *_ = zip(*drawn, strict=True)
        assert all(projection.problem.usual for projection in usual)
        for scalar, wanted in (
            ("alpha", {-1.0, 1.0} if takes else {1.0}),
            ("beta", {-1.0, 0.0, 1.0} if takes else {0.0}),
        ):
            assert {
                np.sign(getattr(projection.problem, scalar))
                for three in drawn
                for projection in three
            } == wanted
        betas = [
            abs(projection.problem.beta)
            for three in drawn
            for projection in three
            if projection.problem.beta
        ]
        assert all(
            beta % 2 == 1 and beta.is_integer() and 2**11 < beta < 2**12 for beta in betas
        ), "12 bits, none of them 0"


# ------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_edge_shapes_lie_in_the_domain_and_vary(domain):
    listed = edge_shapes(domain)
    assert all(shape in domain and shape.m != shape.n for shape in listed)
    assert any(shape.m > shape.n for shape in listed) and any(shape.m < shape.n for shape in listed)
    assert all(len({getattr(shape, name) for shape in listed}) >= 3 for name in "mnk")
    drawn = [drawn_shapes(domain, np.random.default_rng(seed)) for seed in range(50)]
    for shapes in drawn:
        assert all(shape in domain for shape in shapes)
        tall, wide = shapes[-2:]
        assert tall.m >= 1100 > tall.n and wide.n >= 1100 > wide.m
        assert min(tall.n, wide.m) > 3 * 16, "one column of tiles has no order to get wrong"
        assert any(shape.square for shape in shapes) or math.lcm(domain.m, domain.n, domain.k) > 200
    assert max(domain.m, domain.n) > 64 or len({str(shapes) for shapes in drawn}) > 5


def test_a_kernel_that_takes_any_size_runs_around_warps_and_tiles_and_with_more_than_a_few_terms():
    listed = edge_shapes(Domain())
    assert {1, 31, 33, 64, 65, 127, 129} <= {s.m for s in listed} | {s.n for s in listed}
    assert {1, 2} <= {s.k for s in listed}
    assert any(s.m == 1 for s in listed) and any(s.n == 1 for s in listed)
    terms = {shape.k for shape in edge_shapes(Domain(64, 128))}
    assert 1 in terms and max(terms) > 64 and any(k % 2 and k > 16 for k in terms)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("size", [1, 4, 5, 37, 1024, 4096])
def test_ragged_shapes_lie_just_below_in_the_domain(domain, size):
    shape = domain.padded(Shape.of(size))
    ragged = ragged_shapes(shape, domain, np.random.default_rng(size))
    steps = {"m": domain.m, "n": domain.n, "k": domain.k}
    for smaller in ragged:
        assert smaller in domain and smaller != shape
        for name, step in steps.items():
            most = getattr(shape, name)
            cut = max(8, 4 + size // 32, 2 * max(steps.values()) * domain.square, step)
            assert most - cut <= getattr(smaller, name) <= most
    for name, step in steps.items() if not domain.square else ():
        below = getattr(shape, name) - step
        assert step == 1 or below == 0 or below in {getattr(smaller, name) for smaller in ragged}
    if domain == Domain() and size > 8:
        odd, fours, behind_tiles, beside_tiles = ragged
        assert (
            odd.m % 2 == odd.n % 2 == odd.k % 2 == 1
            and fours.m % 8 == fours.n % 8 == fours.k % 8 == 4
        )
        assert (behind_tiles.m, behind_tiles.n) == (shape.m, shape.n) and behind_tiles.k % 2 == 1
        assert (beside_tiles.m, beside_tiles.k) == (shape.m, shape.k) and beside_tiles.n % 2 == 1
