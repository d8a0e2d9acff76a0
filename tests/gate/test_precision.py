"""The classes.

What is measured in u·D separates FP32 from every shorter format, whatever the size.
"""

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.gate.kernels import bf16, cut, fp16, in_127_steps, summed, tf32
from worklog.gate.guarded_buffer import LaunchResult
from worklog.gate.precision import UNIT_ROUNDOFF, PrecisionReference, classify, max_limit, rms_limit
from worklog.problem import Float32, Shape, random_inputs
from worklog.runs import Stage

Change = Callable[[Float32], Float32]


def unchanged(values: Float32) -> Float32:
    return values


def errors(k: int, change: Change = unchanged) -> tuple[float, float]:
    """(rms, largest) of a sequential product of changed inputs."""
    a, b = random_inputs(Shape(66, 48, k), np.random.default_rng(0))
    return PrecisionReference(a, b, np.random.default_rng(0)).errors(summed(change(a), change(b)))


@pytest.mark.parametrize("k", [16, 64, 256, 1024, 4096])
@pytest.mark.parametrize(
    ("change", "found"), [(unchanged, "fp32"), (tf32, "tf32"), (fp16, "tf32"), (bf16, "bf16")]
)
def test_formats_are_far_apart(k, change, found):
    rms, largest = errors(k, change)
    assert classify(rms, largest, k) == found
    if found == "fp32":
        assert 2 < rms_limit(k) / rms < 20 and 2 < max_limit(k) / largest < 50
        assert k < 256 or rms == pytest.approx(0.30 * np.sqrt(k), rel=0.1)
        assert rms_limit(k) > 4 * 0.30 * np.sqrt(k)
    else:
        assert rms > 10 * rms_limit(k)
        assert classify(rms, 61 * rms, k) == "wrong", "a wild element in a short format"


@pytest.mark.parametrize("value", [np.nan, np.inf, -3e30])
def test_one_wild_element_is_wrong_and_not_a_format(value):
    a, b = random_inputs(Shape(64, 64, 64), np.random.default_rng(0))
    c = summed(a, b)
    c[13, 17] = value
    rms, largest = PrecisionReference(a, b, np.random.default_rng(0)).errors(c)
    assert classify(rms, largest, 64) == "wrong"
    assert not np.isnan([rms, largest]).any(), "a margin can be compared and written down"


@pytest.mark.parametrize("rms", [200.0, 999.0, 1.3e5, 1e9, float("inf")])
def test_an_error_of_no_format_is_wrong(rms):
    assert classify(rms, rms, 256) == "wrong"


def test_errors_are_in_units_of_the_gauge():
    a, b = random_inputs(Shape(8, 8, 32), np.random.default_rng(0))
    reference = PrecisionReference(a, b, np.random.default_rng(0))
    shifted = reference.reference.astype(np.float32) + (
        100 * UNIT_ROUNDOFF * reference.gauge
    ).astype(np.float32)
    rms, largest = reference.errors(shifted)
    assert rms == pytest.approx(100, abs=2) and largest == pytest.approx(100, abs=4)


def test_first_and_last_row_are_always_sampled():
    a, b = random_inputs(Shape(500, 4, 4), np.random.default_rng(0))
    for seed in range(5):
        rows = PrecisionReference(a, b, np.random.default_rng(seed)).rows
        assert rows[0] == 0 and rows[-1] == 499 and 64 <= len(rows) <= 66


# ------------------------------------------------------------------------- a factor is not a format


def truncated(bits: int) -> Change:
    return lambda values: cut(values, bits)


def ten_bits(values: Float32) -> Float32:
    return cut(values, 14, half=True)


DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Float32]] = {
    "uniform": lambda rng, size: (2 * rng.random(size) - 1).astype(np.float32),
    "normal": lambda rng, size: rng.standard_normal(size).astype(np.float32),
    "hundredths": lambda rng, size: (rng.integers(-404, 405, size) / 100).astype(np.float32),
}
everywhere = pytest.mark.parametrize(
    ("draw", "k"), [(draw, k) for draw in DRAWS for k in (16, 256, 4096)]
)


def judged(
    draw: str, k: int, change_a: Change, change_b: Change, factor: float = 1.0
) -> tuple[str, Stage]:
    """Return the gate's verdict on a product of changed operands.

    The product is rounded once and multiplied with the factor.
    """
    rng = np.random.default_rng(k)
    a = DRAWS[draw](rng, (40, k))
    b = DRAWS[draw](rng, (k, 24))
    reference = PrecisionReference(a, b, rng)
    c = np.float32(factor) * (change_a(a).astype(np.float64) @ change_b(b)).astype(np.float32)
    return reference.judge("precision", LaunchResult(c, np.float32(0), ""), "bf16")


@everywhere
@pytest.mark.parametrize(
    ("change_a", "change_b", "found"),
    [
        (tf32, tf32, "tf32"),
        (truncated(13), truncated(13), "tf32"),
        (truncated(13), tf32, "tf32"),
        (truncated(13), unchanged, "tf32"),
        (ten_bits, ten_bits, "bf16"),
        (bf16, bf16, "bf16"),
        (truncated(16), truncated(16), "bf16"),
        (unchanged, truncated(16), "bf16"),
        (in_127_steps, in_127_steps, "wrong"),
    ],
)
def test_a_truncated_format_is_not_a_factor(draw, k, change_a, change_b, found):
    """Truncation makes products smaller, but it is not a factor.

    127 steps have as large an error and don't.
    """
    assert judged(draw, k, change_a, change_b)[0] == found


@everywhere
@pytest.mark.parametrize("change", [unchanged, tf32], ids=["fp32", "tf32"])
@pytest.mark.parametrize("factor", [1.001, 0.997, -1.0])
def test_a_factor_is_not_a_format(draw, k, change, factor):
    found, stage = judged(draw, k, change, change, factor)
    assert found == "wrong" and not stage.passed
    words = re.search(r"times (-?[\d.]+), which no rounding is", stage.detail)
    assert words and float(words[1]) == pytest.approx(factor, abs=2e-4)


def test_the_smallest_factor_that_shows():
    assert judged("normal", 1024, unchanged, unchanged, 1 + 1e-5)[0] == "wrong"
    assert judged("normal", 1024, unchanged, unchanged, 1 + 1e-6)[0] == "fp32"


def test_too_few_elements_show_no_factor():
    rng = np.random.default_rng(0)
    a = DRAWS["normal"](rng, (1, 64))
    b = DRAWS["normal"](rng, (64, 7))
    result = LaunchResult(np.float32(1.001) * (a @ b), np.float32(0), "")
    assert (
        "no rounding"
        not in PrecisionReference(a, b, rng).judge("precision", result, "bf16")[1].detail
    )
