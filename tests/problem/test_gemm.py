"""The problem itself.

How sizes are read, what is counted, and the reference that precision is judged by.
"""

from contextlib import suppress
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worklog.errors import BadSetting
from worklog.problem import SGEMM, Shape, random_inputs, sampled_reference, tflops
from worklog.runner.job import ablation_jobs, jobs_of
from worklog.runner.products import work_of

sizes = st.integers(1, 100_000)


@given(m=sizes, n=sizes, k=sizes, times=st.sampled_from(["x", "×", " x ", " ×"]))
def test_one_number_is_a_square_and_three_are_m_n_k(m, n, k, times):
    for size in (n, str(n), f" {n} ", (n,), [n], np.int64(n), Shape(n, n, n)):
        assert Shape.of(size) == Shape(n, n, n)
    shape = Shape(m, n, k)
    for size in (f"{m}{times}{n}{times}{k}", (m, n, k), [m, n, k], np.array([m, n, k]), str(shape)):
        parsed = Shape.of(size)
        assert parsed == shape and type(parsed.m) is int
    assert shape.square == (m == n == k) and str(Shape(n, n, n)) == str(n)
    assert Shape.of("9" * 9).m == 10**9 - 1


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "size M = 0 is not a positive integer"),
        ("512x0x256", "size N = 0 is not a positive integer"),
        ((512, 256, 2.5), "size K = 2.5 is not a positive integer"),
        (True, "size M = True is not a positive integer"),
        ("abc", "size 'abc' is not a number"),
        ((1, 2, 3, 4), "size (1, 2, 3, 4) has 4 parts"),
        ("9" * 10, "size '9999999999' has more digits than any matrix needs"),
    ],
)
def test_what_is_not_a_size(size, message):
    with pytest.raises(BadSetting) as caught:
        Shape.of(size)
    assert str(caught.value).startswith(message) and "give one" in str(caught.value)


@given(st.text(max_size=20))
def test_any_text_is_a_shape_or_a_clear_error(text):
    with suppress(BadSetting):
        assert str(Shape.of(str(Shape.of(text)))) == str(Shape.of(text))


@pytest.mark.parametrize(
    ("sizes", "shapes"),
    [
        (256, ["256"]),
        ("512x256x128", ["512x256x128"]),
        (Shape(1, 2, 3), ["1x2x3"]),
        ((256, 512, 1024), ["256x512x1024"]),
        ((np.int64(256), 512, 1024), ["256x512x1024"]),
        ([256, 512, 1024], ["256", "512", "1024"]),
        ([(256, 512, 1024), 64], ["256x512x1024", "64"]),
        (("256", "512", "1024"), ["256", "512", "1024"]),
        ((256, 512), ["256", "512"]),
        (range(1, 4), ["1", "2", "3"]),
        ([], []),
    ],
)
def test_a_tuple_of_three_numbers_is_one_shape_and_a_list_is_several(sizes, shapes):
    assert [str(shape) for shape in Shape.list_of(sizes)] == shapes


def test_a_tuple_of_three_numbers_is_one_shape_in_a_call():
    jobs, _ = jobs_of("naive", (256, 512, 1024))
    assert [str(job.shape) for job in jobs] == ["256x512x1024"]
    jobs = ablation_jobs("naive", (256, 512, 1024))
    assert {str(job.shape) for job in jobs} == {"256x512x1024"}
    with pytest.raises(BadSetting, match=r"1\.5 is not a positive integer"):
        Shape.list_of((1.5, 512, 1024))


def test_flops_bytes_and_rate():
    shape = Shape(64, 32, 16)
    assert shape.flops == 2 * 64 * 32 * 16
    assert tflops(shape, 1e3) == pytest.approx(shape.flops / 1e9)
    elements = 64 * 16 + 16 * 32
    written = 4 * 64 * 32
    work = {
        "flops": shape.flops,
        "elements": elements,
        "bytes_read": 4 * elements,
        "bytes_written": written,
    }
    assert (
        asdict(work_of(shape)).items() >= work.items()
        and shape.compulsory_bytes == 4 * elements + written
    )
    assert SGEMM.work(SGEMM.prepared(SGEMM.of(shape))) == work


def test_random_inputs_fill_minus_one_to_one_with_full_mantissas():
    a, b = random_inputs(Shape(200, 300, 100), np.random.default_rng(0))
    assert a.shape == (200, 100) and b.shape == (100, 300)
    for matrix in (a, b):
        assert matrix.dtype == np.float32
        assert -1 <= matrix.min() < -0.99 and 0.99 < matrix.max() <= 1
        assert abs(matrix.mean()) < 0.02
    # More bits than TF32 keeps: cutting 13 bits changes nearly every element.
    cut = (a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    assert np.mean(cut != a) > 0.99
    for kind, value in (("zeros", 0), ("ones", 1)):
        assert all(
            (matrix == value).all()
            for matrix in random_inputs(Shape(2, 3, 4), np.random.default_rng(0), kind)
        )


@pytest.mark.parametrize("columns", [1, 1024, 1500])
def test_the_sampled_reference_is_the_float64_product(columns):
    a, b = random_inputs(Shape(37, columns, 53), np.random.default_rng(1))
    rows = np.array([0, 5, 36])
    reference, gauge = sampled_reference(a, b, rows)
    a64 = a.astype(np.float64)
    b64 = b.astype(np.float64)
    np.testing.assert_allclose(reference, (a64 @ b64)[rows], rtol=0, atol=1e-13)
    np.testing.assert_allclose(gauge, np.sqrt((a64**2) @ (b64**2))[rows], rtol=1e-13)
