"""The classes: what is measured in u·D separates FP32 from every shorter format, whatever the size."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gate.right import summed
from tests.gate.wrong import bf16, tf32
from worklog.gate.precision import UNIT_ROUNDOFF, PrecisionQuestion, classify, max_limit, rms_limit
from worklog.gemm import Float32, Shape, random_inputs

SIZES = (16, 64, 256, 1024, 4096)


def judge(k: int, change: object = None, seed: int = 0) -> tuple[float, float]:
    """(rms, largest) of a sequential product of changed inputs."""
    a, b = random_inputs(Shape(66, 48, k), np.random.default_rng(seed))
    question = PrecisionQuestion.of(a, b, np.random.default_rng(seed))
    x, y = (change(m) for m in (a, b)) if callable(change) else (a, b)
    return question.errors(summed(x, y))


def fp16(values: Float32) -> Float32:
    return values.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("k", SIZES)
def test_sequential_fp32_is_fp32_with_room(k: int) -> None:
    rms, largest = judge(k)
    assert classify(rms, largest, k) == "fp32"
    assert rms < rms_limit(k) / 2 and largest < max_limit(k) / 2


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize(("change", "found"), [(tf32, "tf32"), (fp16, "tf32"), (bf16, "bf16")])
def test_shorter_formats_are_told_apart(k: int, change: object, found: str) -> None:
    rms, largest = judge(k, change)
    assert classify(rms, largest, k) == found
    assert rms > 10 * rms_limit(k)


def test_the_rms_of_a_sequential_sum_is_a_third_of_the_root_of_k() -> None:
    for k in (256, 1024, 4096):
        assert judge(k)[0] == pytest.approx(0.30 * np.sqrt(k), rel=0.1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -3e30])
def test_one_wild_element_is_wrong_and_no_format(value: float) -> None:
    a, b = random_inputs(Shape(64, 64, 64), np.random.default_rng(0))
    question = PrecisionQuestion.of(a, b, np.random.default_rng(0))
    c = summed(a, b)
    c[13, 17] = value
    rms, largest = question.errors(c)
    assert classify(rms, largest, 64) == "wrong"
    assert not np.isnan([rms, largest]).any(), "a margin can be compared and written down"


def test_a_wild_element_among_tf32_is_wrong() -> None:
    rms, _ = judge(1024, tf32)
    assert classify(rms, 61 * rms, 1024) == "wrong"


@pytest.mark.parametrize("rms", [200.0, 999.0, 8.1e4, 1e9, float("inf")])
def test_what_is_no_formats_error_is_wrong(rms: float) -> None:
    assert classify(rms, rms, 256) == "wrong"


def test_errors_are_in_units_of_the_gauge() -> None:
    a, b = random_inputs(Shape(8, 8, 32), np.random.default_rng(0))
    question = PrecisionQuestion.of(a, b, np.random.default_rng(0))
    assert question.rows.tolist() == list(range(8))
    exact = np.zeros((8, 8), np.float32)
    exact[:] = question.reference
    shifted = exact + (100 * UNIT_ROUNDOFF * question.gauge).astype(np.float32)
    rms, largest = question.errors(shifted)
    assert rms == pytest.approx(100, abs=2) and largest == pytest.approx(100, abs=4)


def test_first_and_last_row_are_always_among_the_sampled() -> None:
    a, b = random_inputs(Shape(500, 4, 4), np.random.default_rng(0))
    for seed in range(5):
        rows = PrecisionQuestion.of(a, b, np.random.default_rng(seed)).rows
        assert rows[0] == 0 and rows[-1] == 499 and 64 <= len(rows) <= 66
