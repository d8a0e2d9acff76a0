"""The problem itself: how sizes are read, what is counted, and the reference that precision is judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worklog.errors import BadShape
from worklog.problem.gemm import Shape, random_inputs, sampled_reference, tflops

sizes = st.integers(1, 100_000)


@given(n=sizes)
def test_one_number_is_a_square(n: int) -> None:
    for size in (n, str(n), f" {n} ", (n,), [n], Shape(n, n, n)):
        assert Shape.of(size) == Shape(n, n, n)
    assert Shape.of(n).square


@given(m=sizes, n=sizes, k=sizes, times=st.sampled_from(["x", "×", " x ", " ×"]))
def test_three_numbers_are_m_n_k(m: int, n: int, k: int, times: str) -> None:
    shape = Shape(m, n, k)
    for size in (f"{m}{times}{n}{times}{k}", (m, n, k), [m, n, k]):
        assert Shape.of(size) == shape
    assert shape.square == (m == n == k)


@given(m=sizes, n=sizes, k=sizes)
def test_what_a_shape_says_reads_back(m: int, n: int, k: int) -> None:
    shape = Shape(m, n, k)
    assert Shape.of(str(shape)) == shape


def test_a_shape_in_words() -> None:
    assert str(Shape.of(4096)) == "4096"
    assert str(Shape(512, 1024, 256)) == "512x1024x256"


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "size M = 0 is not a positive integer"),
        (-5, "size M = -5 is not a positive integer"),
        ("-5", "size M = -5 is not a positive integer"),
        ("512x0x256", "size N = 0 is not a positive integer"),
        ((512, 256, -1), "size K = -1 is not a positive integer"),
        ((512, 256, 2.5), "size K = 2.5 is not a positive integer"),
        (True, "size M = True is not a positive integer"),
        ("abc", "size 'abc' is not a number"),
        ("", "size '' is not a number"),
        ("4096.0", "size '4096.0' is not a number"),
        ("1e3", "size '1e3' is not a number"),
        ("512x", "size '512x' is not a number"),
        ("512x256", "size (512, 256) has 2 parts"),
        ((1, 2, 3, 4), "size (1, 2, 3, 4) has 4 parts"),
        ((), "size () has 0 parts"),
        ("9" * 10, "size '9999999999' has more digits than any matrix needs"),
        ("9" * 5000, "size '999"),
    ],
)
def test_what_is_no_size(size: Any, message: str) -> None:
    with pytest.raises(BadShape) as caught:
        Shape.of(size)
    assert str(caught.value).startswith(message)
    assert "give one" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("size", [None, 1.5, object(), {"m": 1}, ("a", "b", "c")])
def test_what_is_not_even_a_number_is_no_size(size: Any) -> None:
    with pytest.raises(BadShape):
        Shape.of(size)


@given(st.text(max_size=20))
def test_any_text_is_a_shape_or_a_clear_error(text: str) -> None:
    try:
        shape = Shape.of(text)
    except BadShape as error:
        assert "size" in str(error)
    else:
        assert min(shape.m, shape.n, shape.k) >= 1


def test_numpy_integers_are_integers() -> None:
    assert Shape.of(np.int64(64)) == Shape.of(64)  # type: ignore[arg-type]
    shape = Shape.of(np.array([64, 32, 16]))
    assert shape == Shape(64, 32, 16)
    assert type(shape.m) is int


def test_flops_and_bytes() -> None:
    assert Shape(2, 3, 5).flops == 60
    assert Shape(2, 3, 5).compulsory_bytes == 4 * (10 + 15 + 6)
    assert Shape.of(4096).flops == 137_438_953_472


def test_tflops_of_a_known_time() -> None:
    # 2 * 1000^3 operations in 1000 µs are 2e12 a second.
    assert tflops(Shape.of(1000), 1000.0) == pytest.approx(2.0)


def test_random_inputs_fill_minus_one_to_one_with_full_mantissas() -> None:
    a, b = random_inputs(Shape(200, 300, 100), np.random.default_rng(0))
    assert a.shape == (200, 100) and b.shape == (100, 300)
    for matrix in (a, b):
        assert matrix.dtype == np.float32
        assert -1 <= matrix.min() < -0.99 and 0.99 < matrix.max() <= 1
        assert abs(matrix.mean()) < 0.02
    # More bits than TF32 keeps: cutting 13 bits changes nearly every element.
    cut = (a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    assert np.mean(cut != a) > 0.99


def test_easy_data_is_what_it_says() -> None:
    rng = np.random.default_rng(0)
    for kind, value in (("zeros", 0), ("ones", 1)):
        a, b = random_inputs(Shape(2, 3, 4), rng, kind)
        assert a.shape == (2, 4) and b.shape == (4, 3)
        assert (a == value).all() and (b == value).all()


@pytest.mark.parametrize("columns", [1, 1024, 1500])
def test_the_sampled_reference_is_the_float64_product(columns: int) -> None:
    a, b = random_inputs(Shape(37, columns, 53), np.random.default_rng(1))
    rows = np.array([0, 5, 36])
    reference, gauge = sampled_reference(a, b, rows)
    assert reference.dtype == gauge.dtype == np.float64
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(reference, (a64 @ b64)[rows], rtol=0, atol=1e-13)
    np.testing.assert_allclose(gauge, np.sqrt((a64**2) @ (b64**2))[rows], rtol=1e-13)
    # Better than FP32 by far: the same product in FP32 is off by more than the reference may be.
    assert np.abs((a @ b)[rows] - reference).max() > 1e-9
