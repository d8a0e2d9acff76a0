"""What a kernel claims to be decides what it is asked; what it is found to be stands beside its number."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject
from tests.gate.right import sequential, split_k, strassen
from tests.gate.wrong import WRONG
from tests.gate.wrong_places import writes_past_c
from tests.gate.wrong_values import (
    bf16_inputs,
    fp16_inputs,
    k_tail_dropped,
    last_k_dropped,
    one_element_misses_a_k,
    scaled_by_1_001,
    tf32_rounded,
    tf32_truncated,
    truncates,
)
from worklog.gate import Checker, Stage
from worklog.gate.after_timing import judge as plausible
from worklog.gate.exact import OPERAND_BITS, families, family
from worklog.problem.gemm import CLASSES, Shape

DEVICE = NumpyDevice()


@cache
def checker(seed: int) -> Checker:
    return Checker(DEVICE, Shape(160, 128, 256), seed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("function", "claimed", "found"),
    [
        (tf32_rounded, "tf32", "tf32"),
        (tf32_truncated, "tf32", "tf32"),
        (fp16_inputs, "fp16", "tf32"),
        (tf32_rounded, "bf16", "tf32"),
        (bf16_inputs, "bf16", "bf16"),
        (truncates, "fp32-emulated", "fp32-emulated"),
        (sequential, "fp32-emulated", "fp32"),
        (sequential, "bf16", "fp32"),
    ],
)
def test_a_class_that_is_claimed_or_better_is_accepted(function: Function, claimed: str, found: str, seed: int) -> None:
    verdict = checker(seed).check(NumpySubject(DEVICE, function), claimed)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == found
    assert str(verdict) == f"{found} ok"


@pytest.mark.parametrize(
    ("function", "claimed"),
    [(tf32_rounded, "fp32"), (tf32_rounded, "fp32-emulated"), (bf16_inputs, "tf32"), (bf16_inputs, "fp16")],
)
def test_a_worse_class_is_refused(function: Function, claimed: str) -> None:
    assert not checker(0).check(NumpySubject(DEVICE, function), claimed).accepted


@pytest.mark.parametrize("claimed", CLASSES)
@pytest.mark.parametrize("function", [last_k_dropped, k_tail_dropped, one_element_misses_a_k, writes_past_c])
def test_no_claim_excuses_a_mistake(function: Function, claimed: str) -> None:
    assert not checker(0).check(NumpySubject(DEVICE, function), claimed).accepted


@pytest.mark.parametrize("claimed", list(OPERAND_BITS))
def test_a_short_formats_integers_fit_it(claimed: str) -> None:
    assert families(claimed) == ("E1",)
    a, b = family("E1", Shape(50, 50, 4), np.random.default_rng(0), claimed)
    for matrix in (a, b):
        largest = 2 ** OPERAND_BITS[claimed] - 1
        assert 0.9 * largest < np.abs(matrix).max() <= largest


def test_timed_output_is_judged_by_the_claim_too() -> None:
    which = checker(0)
    a, b, c = which.buffers
    which.poison()
    NumpySubject(DEVICE, tf32_rounded).enqueue(which.shape, 1.0, a, b, 0.0, c)
    assert which.check_timed_output(c, "tf32").passed
    assert not which.check_timed_output(c).passed


# ------------------------------------------------------------------------------------------------- the article's rule


@pytest.mark.parametrize("function", [sequential, split_k, strassen])
def test_the_articles_rule_accepts_what_is_right(function: Function) -> None:
    verdict = checker(0).check_by_article(NumpySubject(DEVICE, function))
    assert verdict.accepted and verdict.precision == "fp32"


@pytest.mark.parametrize(
    "function",
    [tf32_rounded, tf32_truncated, fp16_inputs, bf16_inputs, truncates, one_element_misses_a_k, scaled_by_1_001],
)
def test_what_slips_through_the_articles_rule(function: Function) -> None:
    subject = NumpySubject(DEVICE, function)
    assert checker(0).check_by_article(subject).accepted
    assert not checker(0).check(subject).accepted


@pytest.mark.parametrize("name", ["does_nothing", "zeros", "not_a_number", "stale_tile", "transposed_c", "faults"])
def test_what_even_the_articles_rule_refuses(name: str) -> None:
    (function,) = [f for f, _ in WRONG if f.__name__ == name]
    verdict = checker(0).check_by_article(NumpySubject(DEVICE, function))
    assert not verdict.accepted
    assert not any(np.isnan(stage.measured) for stage in verdict.stages)


# --------------------------------------------------------------------------------------------------------- plausible


@pytest.mark.parametrize(
    ("share", "passed", "words"),
    [
        (0.5, True, "50.0 % of the 60.0 TFLOP/s that are possible"),
        (0.949, True, "94.9 %"),
        (0.97, True, "suspiciously close"),
        (1.01, True, "suspiciously close"),
        (1.03, False, "work or time is missing"),
        (40.0, False, "work or time is missing"),
    ],
)
def test_a_time_below_the_peaks_is_refused(share: float, passed: bool, words: str) -> None:
    shape, peak = Shape.of(1024), 60.0
    stage = plausible(shape, shape.flops / (peak * 1e6) / share, peak)
    assert stage.passed is passed and words in stage.detail
    assert stage.measured == pytest.approx(share) and stage.limit == 1.02


@pytest.mark.parametrize("microseconds", [0.0, -3.0])
def test_no_time_at_all_is_refused(microseconds: float) -> None:
    stage: Stage = plausible(Shape.of(64), microseconds, 60.0)
    assert not stage.passed
