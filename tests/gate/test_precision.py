"""The classes: what is measured in u·D separates FP32 from every shorter format, whatever the size."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.gate.right import summed
from tests.gate.wrong_values import bf16, cut, tf32
from worklog.gate.guarded_buffer import Result
from worklog.gate.precision import UNIT_ROUNDOFF, PrecisionReference, classify, max_limit, rms_limit
from worklog.gate.verdict import Stage
from worklog.problem.gemm import Float32, Shape, random_inputs

Change = Callable[[Float32], Float32]

SIZES = (16, 64, 256, 1024, 4096)


def judge(k: int, change: object = None, seed: int = 0) -> tuple[float, float]:
    """(rms, largest) of a sequential product of changed inputs."""
    a, b = random_inputs(Shape(66, 48, k), np.random.default_rng(seed))
    question = PrecisionReference.of(a, b, np.random.default_rng(seed))
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
    question = PrecisionReference.of(a, b, np.random.default_rng(0))
    c = summed(a, b)
    c[13, 17] = value
    rms, largest = question.errors(c)
    assert classify(rms, largest, 64) == "wrong"
    assert not np.isnan([rms, largest]).any(), "a margin can be compared and written down"


def test_a_wild_element_among_tf32_is_wrong() -> None:
    rms, _ = judge(1024, tf32)
    assert classify(rms, 61 * rms, 1024) == "wrong"


@pytest.mark.parametrize("rms", [200.0, 999.0, 1.3e5, 1e9, float("inf")])
def test_what_is_no_formats_error_is_wrong(rms: float) -> None:
    assert classify(rms, rms, 256) == "wrong"


def test_errors_are_in_units_of_the_gauge() -> None:
    a, b = random_inputs(Shape(8, 8, 32), np.random.default_rng(0))
    question = PrecisionReference.of(a, b, np.random.default_rng(0))
    assert question.rows.tolist() == list(range(8))
    exact = np.zeros((8, 8), np.float32)
    exact[:] = question.reference
    shifted = exact + (100 * UNIT_ROUNDOFF * question.gauge).astype(np.float32)
    rms, largest = question.errors(shifted)
    assert rms == pytest.approx(100, abs=2) and largest == pytest.approx(100, abs=4)


def test_first_and_last_row_are_always_among_the_sampled() -> None:
    a, b = random_inputs(Shape(500, 4, 4), np.random.default_rng(0))
    for seed in range(5):
        rows = PrecisionReference.of(a, b, np.random.default_rng(seed)).rows
        assert rows[0] == 0 and rows[-1] == 499 and 64 <= len(rows) <= 66


# ------------------------------------------------------------------------------------------------ a factor is no format


def truncated(bits: int) -> Callable[[Float32], Float32]:
    return lambda values: cut(np.ascontiguousarray(values), bits, half=False)


def unchanged(values: Float32) -> Float32:
    return values


DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Float32]] = {
    "uniform": lambda rng, size: (2 * rng.random(size) - 1).astype(np.float32),
    "normal": lambda rng, size: rng.standard_normal(size).astype(np.float32),
    "hundredths": lambda rng, size: (rng.integers(-404, 405, size) / 100).astype(np.float32),
}


def judged(draw: str, k: int, change_a: Change, change_b: Change, factor: float = 1.0) -> tuple[str, Stage]:
    """A product of changed operands, rounded once and multiplied with the factor, as the gate judges it."""
    rng = np.random.default_rng(k)
    a, b = DRAWS[draw](rng, (40, k)), DRAWS[draw](rng, (k, 24))
    question = PrecisionReference.of(a, b, rng)
    c = np.float32(factor) * (change_a(a).astype(np.float64) @ change_b(b)).astype(np.float32)
    return question.judge("precision", Result(c, np.float32(0), None), "bf16")


@pytest.mark.parametrize("k", [16, 256, 4096])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    ("change_a", "change_b", "found"),
    [
        (tf32, tf32, "tf32"),
        (truncated(13), truncated(13), "tf32"),
        (truncated(13), tf32, "tf32"),
        (truncated(13), unchanged, "tf32"),
        (bf16, bf16, "bf16"),
        (truncated(16), truncated(16), "bf16"),
        (unchanged, truncated(16), "bf16"),
    ],
)
def test_a_truncated_format_is_no_factor(draw: str, k: int, change_a: Change, change_b: Change, found: str) -> None:
    """Truncation has a bias of its own, and must not be taken for a factor."""
    assert judged(draw, k, change_a, change_b)[0] == found


@pytest.mark.parametrize("k", [16, 256, 4096])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("change", [unchanged, tf32], ids=["fp32", "tf32"])
@pytest.mark.parametrize("factor", [1.001, 0.997, 1.01, -1.0])
def test_a_factor_is_no_format(draw: str, k: int, change: Change, factor: float) -> None:
    found, stage = judged(draw, k, change, change, factor)
    assert found == "wrong" and not stage.passed
    told = re.search(r"times (-?[\d.]+), which no rounding is", stage.detail)
    assert told and float(told[1]) == pytest.approx(factor, abs=2e-4)


def test_the_smallest_factor_that_shows() -> None:
    assert judged("normal", 1024, unchanged, unchanged, 1 + 1e-5)[0] == "wrong"
    assert judged("normal", 1024, unchanged, unchanged, 1 + 1e-6)[0] == "fp32"


def test_a_few_elements_are_too_few_for_a_factor() -> None:
    rng = np.random.default_rng(0)
    a, b = DRAWS["normal"](rng, (1, 64)), DRAWS["normal"](rng, (64, 7))
    question = PrecisionReference.of(a, b, rng)
    assert question.factor(np.float32(1.001) * (a @ b)) is None


def in_steps(levels: int) -> Change:
    """Integers of one scale for a whole matrix."""

    def stepped(values: Float32) -> Float32:
        scale = np.float32(levels / np.abs(values).max())
        return (np.rint(values * scale) / scale).astype(np.float32)

    return stepped


@pytest.mark.parametrize("k", [16, 256, 4096])
@pytest.mark.parametrize("draw", DRAWS)
def test_eight_bit_integers_are_no_bf16(draw: str, k: int) -> None:
    """Their error is as large as that of operands truncated to BF16, which makes products smaller; theirs does not."""
    found, stage = judged(draw, k, in_steps(127), in_steps(127))
    assert found == "wrong" and not stage.passed


def test_ten_bits_are_no_tf32() -> None:
    def ten(values: Float32) -> Float32:
        return cut(np.ascontiguousarray(values), 14, half=True)

    assert judged("uniform", 256, ten, ten)[0] == "bf16"
