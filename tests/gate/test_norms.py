"""The class fp32-norm: right kernels keep its bound, and mistakes in Winograd's form fail."""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest

from tests.gate.kernels import cut, epilogue, sequential, strassen, summed, tf32
from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from worklog.gate import SgemmChecker
from worklog.gate.norms import check_norms, winograd_bound
from worklog.gate.precision import (
    BY_NORM,
    HARD_DATA,
    NORM_LEVELS,
    UNIT_ROUNDOFF,
    beyond_norms,
    max_limit,
    rms_limit,
)
from worklog.problem import Domain, Float32, Shape, random_inputs
from worklog.runs import Stage, Verdict

SHAPE = Shape(192, 160, 144)
DEVICE = NumpyDevice()
SIGNS = 15  # additions and subtractions of a level
Product = Callable[[Float32, Float32], Float32]


def quadrants(matrix: Float32) -> tuple[Float32, ...]:
    """Return the quadrants 11, 12, 21 and 22 of a matrix."""
    rows = matrix.shape[0] // 2
    columns = matrix.shape[1] // 2
    return (
        matrix[:rows, :columns],
        matrix[:rows, columns:],
        matrix[rows:, :columns],
        matrix[rows:, columns:],
    )


def winograds(
    a: Float32, b: Float32, levels: int = 1, product: Product = summed, wrong: int = -1
) -> Float32:
    """Return A B by Winograd's form.

    wrong: the number of an addition with the other sign
    """
    if levels == 0:
        return product(a, b)
    signs = [-1.0 if number == wrong else 1.0 for number in range(SIGNS)]
    turned = np.array(signs, np.float32)
    multiply = partial(winograds, levels=levels - 1, product=product)
    a11, a12, a21, a22 = quadrants(a)
    b11, b12, b21, b22 = quadrants(b)
    s1 = a21 + turned[0] * a22
    s2 = s1 - turned[1] * a11
    s3 = a11 - turned[2] * a21
    s4 = a12 - turned[3] * s2
    t1 = b12 - turned[4] * b11
    t2 = b22 - turned[5] * t1
    t3 = b22 - turned[6] * b12
    t4 = t2 - turned[7] * b21
    p1 = multiply(a11, b11)
    p5 = multiply(s1, t1)
    c11 = p1 + turned[8] * multiply(a12, b21)
    u2 = p1 + turned[9] * multiply(s2, t2)
    u3 = u2 + turned[10] * multiply(s3, t3)
    u4 = u2 + turned[11] * p5
    c12 = u4 + turned[12] * multiply(s4, b22)
    c21 = u3 - turned[13] * multiply(a22, t4)
    c22 = u3 + turned[14] * p5
    return np.block([[c11, c12], [c21, c22]]).astype(np.float32)


def of_short_numbers(shorten: Callable[[Float32], Float32]) -> Product:
    """Return a product of shortened factors."""
    return lambda a, b: summed(shorten(a), shorten(b))


def halves(values: Float32) -> Float32:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def kernel(multiply: Product, levels: int = 1, wrong: int = -1) -> NumpySubject:
    """Return a kernel of Winograd's form that claims fp32-norm."""

    def function(p: Problem) -> None:
        epilogue(p, winograds(p.a, p.b, levels, multiply, wrong))

    sides = 2**levels
    return NumpySubject(DEVICE, function, Domain(sides, sides, sides), claimed=BY_NORM)


@cache
def checker() -> SgemmChecker:
    return SgemmChecker(DEVICE, SHAPE, seed=0)


def verdict_on(subject: NumpySubject) -> Verdict:
    return checker().check(subject)


def hard_data(subject: NumpySubject) -> Stage:
    return check_norms(subject, checker().buffers.memory, SHAPE)


@pytest.mark.parametrize("levels", range(1, NORM_LEVELS + 1))
def test_winograds_form_passes(levels):
    verdict = verdict_on(kernel(summed, levels))
    assert verdict.accepted, verdict.reason
    assert verdict.precision == BY_NORM and verdict.notes == ()
    [stage] = (stage for stage in verdict.stages if stage.name == HARD_DATA)
    assert "infinities and NaN" in stage.clause


def test_more_levels_than_the_class_admits_fail():
    assert not verdict_on(kernel(summed, NORM_LEVELS + 1)).accepted


@pytest.mark.parametrize("number", range(SIGNS))
def test_a_wrong_sign_of_any_addition_fails(number):
    verdict = verdict_on(kernel(summed, wrong=number))
    assert not verdict.accepted and verdict.stages[-1].name == "exact on edge shapes"


def without_last_term(a: Float32, b: Float32) -> Float32:
    return summed(a[:, :-1], b[:-1])


def without_last_row(a: Float32, b: Float32) -> Float32:
    product = summed(a, b)
    product[-1] = 0
    return product


@pytest.mark.parametrize("multiply", [without_last_term, without_last_row])
def test_a_product_without_a_term_or_a_row_fails(multiply):
    assert not verdict_on(kernel(multiply)).accepted


@pytest.mark.parametrize(
    "shorten", [tf32, halves, partial(cut, bits=16), partial(cut, bits=13), partial(cut, bits=12)]
)
def test_products_of_shorter_sums_fail(shorten):
    verdict = verdict_on(kernel(of_short_numbers(shorten)))
    assert not verdict.accepted


@pytest.mark.parametrize("shorten", [tf32, halves])
def test_shorter_sums_are_far_from_the_class_without_integers_that_lose_bits(shorten):
    a, b = random_inputs(SHAPE, np.random.default_rng(1))
    product = winograds(a, b, product=of_short_numbers(shorten))
    gauge = np.sqrt(np.square(a.astype(float)) @ np.square(b.astype(float)))
    error = np.abs(product - a.astype(float) @ b) / (UNIT_ROUNDOFF * gauge)
    assert np.sqrt(np.mean(np.square(error))) > 20 * rms_limit(SHAPE.k)


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (kernel(of_short_numbers(tf32)), "exceed the bound by norms"),
        (kernel(lambda a, b: np.nan_to_num(summed(a, b), posinf=0, neginf=0)), "finite elements"),
        (
            NumpySubject(
                DEVICE,
                lambda p: epilogue(p, summed(p.a, p.b) + (0 * p.a).sum()),
                claimed=BY_NORM,
            ),
            "rows of C, and fp32-norm allows 4",
        ),
        (
            NumpySubject(DEVICE, sequential, Domain(any_data=True), claimed=BY_NORM),
            "omit one of them",
        ),
    ],
    ids=["short numbers", "NaN that vanishes", "NaN everywhere", "any data"],
)
def test_hard_data_finds_what_the_class_excludes(subject, reason):
    stage = hard_data(subject)
    assert not stage.passed and reason in stage.detail, stage.detail


@pytest.mark.parametrize("function", [sequential, strassen])
def test_other_products_are_also_within_the_class(function):
    assert hard_data(NumpySubject(DEVICE, function, claimed=BY_NORM)).passed


@pytest.mark.parametrize("levels", range(4))
def test_the_theorem_solves_the_recurrence_of_its_18_products(levels):
    """The sums of a level add 48 K."""
    k = 64
    bound = winograd_bound(k, levels)
    if levels:
        assert bound == 18 * winograd_bound(k // 2, levels - 1) + 48 * k
    else:
        assert bound == k**2


@pytest.mark.parametrize("k", [16, 64, 256, 1024])
@pytest.mark.parametrize("levels", range(NORM_LEVELS + 1))
def test_float32_stays_within_the_gates_bound_which_is_below_the_worst_case(k, levels):
    a, b = random_inputs(Shape(48, 48, k), np.random.default_rng(k))
    exact = a.astype(float) @ b
    error = winograds(a, b, levels) - exact
    norms = float(np.abs(a).max()) * float(np.abs(b).max())
    assert np.abs(error).max() < winograd_bound(k, levels) * UNIT_ROUNDOFF * norms
    assert beyond_norms(error, a, b).max() < 1
    gauge = UNIT_ROUNDOFF * np.sqrt(np.square(a.astype(float)) @ np.square(b.astype(float)))
    assert np.sqrt(np.mean(np.square(error / gauge))) < 2 * rms_limit(k)
    assert np.abs(error / gauge).max() < 2 * max_limit(k)


@pytest.mark.parametrize("k", [4, 64, 4096])
def test_the_gates_bound_is_below_the_worst_case_of_the_class(k):
    ones = np.ones((1, k), np.float32)
    [[unit]] = beyond_norms(np.ones((1, 1)), ones, ones.T)
    assert 1 / unit / UNIT_ROUNDOFF < winograd_bound(k, NORM_LEVELS)
