"""Right kernels pass on every seed; wrong ones fail at the stage that is meant to find them, whatever they claim."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from tests.gate.right import RIGHT, in_double, sequential, split_k, strassen, summed
from tests.gate.wrong import (
    BENCHMARK,
    EDGE,
    HARD,
    LAUNCH,
    PRECISION,
    RAGGED,
    REPEAT,
    SCALARS,
    WRONG,
    is_big,
    product,
    tf32,
    wrong,
)
from worklog.gate import Checker, Verdict
from worklog.gate.hard_data import NORMS
from worklog.gate.precision import NAME, SHORT
from worklog.kernel.device import Buffer
from worklog.problem.gemm import CLASSES, Domain, Float32, Shape

SHAPE = Shape(192, 160, 144)
SEEDS = range(2)
DEVICE = NumpyDevice()


@cache
def checker(seed: int) -> Checker:
    """The problems of one seed, for every kernel."""
    return Checker(DEVICE, SHAPE, seed)


def verdict_on(function: Function, claimed: str = "fp32", seed: int = 0, domain: Domain | None = None) -> Verdict:
    return checker(seed).check(NumpySubject(DEVICE, function, domain), claimed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("function", "domain"), RIGHT, ids=[f"{f.__name__}-{d}" for f, d in RIGHT])
def test_a_right_kernel_passes(function: Function, domain: Domain, seed: int) -> None:
    verdict = verdict_on(function, seed=seed, domain=domain)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == "fp32" and verdict.reason is None and str(verdict) == "fp32 ok"
    assert all(stage.measured <= stage.limit and stage.seconds > 0 for stage in verdict.stages)
    assert verdict.seconds == pytest.approx(sum(stage.seconds for stage in verdict.stages))
    shown = (f"products are {SHORT}", NORMS) if function is strassen else ()
    assert len(verdict.notes) == len(shown) and all(map(str.startswith, verdict.notes, shown))


# What the reason says, on seed 0.
REASONS = {
    "last_row_unwritten": "never written: they hold what was there before. Only the last row: a bound is off",
    "last_k_dropped": "The terms from k = 69 to the end are missing in every wrong element (K = 70)",
    "grid_rounded_down": "380 of 24700 elements are wrong: rows 128 to 129; all 190 columns. These",
    "transposed_c": "C is written transposed",
    "b_read_transposed": "B is read transposed",
    "adds_to_c": "The old C is added although beta is 0",
    "beta_ignored": " (and at 1x7x2): 24|This is the result if beta is ignored.",
    "alpha_ignored": "beta = 0 (and at 1x7x2): |This is the result if alpha is ignored.",
    "scaled_by_1_001": "1.001 times the right one",
    "two_halves": "Right for numbers around 1, wrong for large or small ones",
    "writes_past_c": "it wrote outside C",
    "clobbers_a": "it changed its inputs",
    "one_element_misses_a_k": "1 of 30720 elements are wrong: row 77; column 55.",
    "one_warp_tile_misses_a_k": "rows 32 to 63; columns 64 to 95. The term k = 9 is missing in every",
    "races": "number 3 differs from the first",
    "tf32_when_big": "An operand lost its low bits",
    "tf32_on_real_data": "class tf32",
    "bf16_on_real_data": "class bf16",
    "row_100_misses_a_k_on_real_data": "row 100 off by more than rounding",
    "truncates": "class fp32-emulated",
    "faults": "an illegal memory access",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_fails_at_the_stage_that_finds_it_and_the_reason_says_what_was_found(name: str) -> None:
    (stage, function), seed = WRONG[name], 0 if name in REASONS else len(name) % 2
    verdict = verdict_on(function, seed=seed)
    assert not verdict.accepted and verdict.stages[-1].name == stage
    assert all(words in str(verdict.reason) for words in REASONS.get(name, "").split("|")), verdict.reason
    assert all(earlier.passed for earlier in verdict.stages[:-1])
    assert verdict.reason == f"{stage}: {verdict.stages[-1].detail}"
    which = checker(seed)
    for buffer, host in zip(which.buffers.abc, (which.a, which.b), strict=False):
        assert np.array_equal(DEVICE.download(buffer), host.ravel()), "the timed inputs are intact"


def test_there_are_wrong_kernels_for_every_stage() -> None:
    assert {stage for stage, _ in WRONG.values()} == {
        *(EDGE, SCALARS, BENCHMARK, REPEAT, HARD, NAME, PRECISION, RAGGED, LAUNCH)
    }


@pytest.mark.parametrize("scalar", ["alpha", "beta"])
def test_a_scalar_that_is_ignored_at_the_benchmark_shape_is_named(scalar: str) -> None:
    def when_big(p: Problem) -> None:
        (wrong(f"{scalar}_ignored") if is_big(p) else sequential)(p)

    reason = str(verdict_on(when_big).reason)
    assert reason.startswith(BENCHMARK) and f"This is the result if {scalar} is ignored." in reason


@pytest.mark.parametrize("function", [sequential, strassen, wrong("tf32_rounded"), wrong("faults")])
def test_a_verdict_comes_back_from_a_run_file_as_it_was(function: Function) -> None:
    for verdict in (verdict_on(function), checker(0).check_by_article(NumpySubject(DEVICE, function))):
        document = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
        assert document["accepted"] == verdict.accepted and document["reason"] == verdict.reason
        assert Verdict.from_dict(document) == verdict


# ------------------------------------------------------------------------------------------------------------- classes


@pytest.mark.parametrize(
    ("function", "claimed", "found"),
    [
        (wrong("tf32_rounded"), "tf32", "tf32"),
        (wrong("tf32_truncated"), "tf32", "tf32"),
        (wrong("fp16_inputs"), "fp16", "tf32"),
        (wrong("tf32_rounded"), "bf16", "tf32"),
        (wrong("bf16_inputs"), "bf16", "bf16"),
        (wrong("truncates"), "fp32-emulated", "fp32-emulated"),
        (sequential, "fp32-emulated", "fp32"),
        (sequential, "bf16", "fp32"),
    ],
)
def test_a_kernel_of_the_claimed_class_or_a_better_one_passes(function: Function, claimed: str, found: str) -> None:
    verdict = verdict_on(function, claimed)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == found and str(verdict) == f"{found} ok" and verdict.notes == ()


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        ("tf32_rounded", "fp32-emulated"),
        ("bf16_inputs", "tf32"),
        ("bf16_inputs", "fp16"),
        *((name, claimed) for name in ("k_tail_dropped", "one_element_misses_a_k") for claimed in CLASSES[1:]),
        *(("writes_past_c", claimed) for claimed in CLASSES[1:]),
    ],
)
def test_a_claim_excuses_neither_a_worse_class_nor_a_mistake(name: str, claimed: str) -> None:
    assert not verdict_on(wrong(name), claimed).accepted


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        *((function, True) for function in (sequential, split_k, strassen)),
        *((wrong(name), True) for name in ("tf32_rounded", "tf32_truncated", "fp16_inputs", "bf16_inputs")),
        *((wrong(name), True) for name in ("truncates", "one_element_misses_a_k", "scaled_by_1_001")),
        *((wrong(name), False) for name in ("does_nothing", "zeros", "not_a_number", "stale_tile", "faults")),
    ],
)
def test_the_articles_rule_passes_right_kernels_and_many_wrong_ones(function: Function, passes: bool) -> None:
    verdict = checker(0).check_by_article(NumpySubject(DEVICE, function))
    assert verdict.accepted is passes
    assert verdict.precision == "fp32" or function not in (sequential, split_k, strassen)
    assert not any(np.isnan(stage.measured) for stage in verdict.stages)


# ------------------------------------------------------------------------------------------------------------ products


def three_tf32(p: Problem) -> Float32:
    """Three products of 11-bit parts for one: the product of the low parts is left out."""
    a, b = tf32(p.a), tf32(p.b)
    return (summed(tf32(p.a - a), b) + summed(a, tf32(p.b - b))) + summed(a, b)


def four_tf32(p: Problem) -> Float32:
    """All four."""
    return summed(tf32(p.a - tf32(p.a)), tf32(p.b - tf32(p.b))) + three_tf32(p)


@pytest.mark.parametrize(
    ("function", "claimed", "noted"),
    [
        (product(three_tf32), "fp32", True),
        (strassen, "fp32", True),
        (product(four_tf32), "fp32", False),
        (in_double, "fp32", False),
        (wrong("truncates"), "fp32-emulated", False),
    ],
    ids=["three TF32", "Strassen", "four TF32", "FP64", "truncates"],
)
def test_products_that_are_not_kept_to_24_bits_give_a_note(function: Function, claimed: str, noted: bool) -> None:
    verdict = verdict_on(function, claimed)
    assert verdict.accepted
    stage = verdict.stages[-4]
    assert stage.name == NAME and stage.measured <= stage.limit
    assert ("differ at 192x160x144, in 192 of 192 rows" in stage.detail) is (stage.measured > 0) is noted
    assert (f"products are {SHORT}" in verdict.notes) is noted


# ------------------------------------------------------------------------------------------------------------ launches


class OnAnotherStream(NumpySubject):
    """Starts its work when it is called again: too late."""

    waiting: tuple[Shape, float, Buffer, Buffer, float, Buffer] | None = None

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        before, self.waiting = self.waiting, (shape, alpha, a, b, beta, c)
        if before is not None:
            super().enqueue(*before)


class SpillsItsWorkspace(NumpySubject):
    """Writes one element more than it asks for."""

    def workspace_elements(self, shape: Shape) -> int:
        return 8

    def enqueue(self, *launch: Any) -> None:
        super().enqueue(*launch)
        assert self.workspace is not None
        spilled = self.workspace.beyond(0, 1)
        self.device.enqueue(lambda: spilled.fill(0))


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (
            NumpySubject(DEVICE, sequential, Domain(m=128)),
            "domain: size 192x160x144 is outside the kernel's domain (M %",
        ),
        (NumpySubject(DEVICE, sequential, block=2048), "launch: launching a kernel: invalid configuration argument"),
        (OnAnotherStream(DEVICE, sequential), "never written"),
        (SpillsItsWorkspace(DEVICE, sequential), "it wrote outside its workspace"),
    ],
    ids=["outside the domain", "a launch that the device doesn't take", "work that comes later", "workspace"],
)
def test_a_launch_that_cannot_be_or_is_late_is_a_verdict(subject: NumpySubject, reason: str) -> None:
    assert reason in str(checker(0).check(subject).reason)


def test_an_error_of_the_package_is_not_a_verdict() -> None:
    def buggy(p: Problem) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        verdict_on(buggy)


# ------------------------------------------------------------------------------------------------------ what is timed


def timed(function: Function, alpha: float = 1.0, claimed: str = "fp32", into: Buffer | None = None) -> str | None:
    """One launch as the harness makes it, and why the gate fails its output."""
    which = checker(0)
    a, b, c = which.buffers.abc
    which.buffers.poison()
    NumpySubject(DEVICE, function).enqueue(which.shape, alpha, a, b, 0.0, into or c)
    stage = which.check_timed_output(into or c, claimed)
    assert stage.name == "timed output" and stage.passed is (stage.measured <= stage.limit)
    return None if stage.passed else stage.detail


def test_a_right_timed_output_passes_in_each_c() -> None:
    elsewhere = DEVICE.upload(np.zeros((SHAPE.m, SHAPE.n), np.float32))
    for into in (None, checker(0).buffers.spare, elsewhere):
        assert timed(sequential, into=into) is None


def test_a_wrong_timed_output_fails() -> None:
    """Also what was there before: the poison, not the result of the check; and the baseline's output, -A B."""
    assert verdict_on(sequential).accepted
    assert "class wrong" in str(timed(wrong("does_nothing")))
    assert "class wrong" in str(timed(sequential, alpha=-1.0))
    assert timed(wrong("writes_before_c")) == "it wrote outside C"
    assert timed(wrong("clobbers_a_on_real_data")) == "it changed its inputs"
    checker(0).buffers.restore()
    assert timed(wrong("tf32_rounded"), claimed="tf32") is None
    assert "tf32" in str(timed(wrong("tf32_rounded")))


def test_a_seed_gives_the_same_inputs_and_another_seed_gives_others() -> None:
    first, again, other = (Checker(NumpyDevice(), Shape(40, 24, 16), seed) for seed in (3, 3, 4))
    assert np.array_equal(first.a, again.a) and np.array_equal(first.b, again.b)
    assert not np.array_equal(first.a, other.a)


def test_the_sentinel_is_finite_and_never_the_same_twice() -> None:
    seen = set()
    for _ in range(5):
        checker(0).buffers.poison()
        values = np.unique(DEVICE.download(checker(0).buffers.abc[2]))
        assert len(values) == 1 and np.isfinite(values).all() and values[0] < -1e30
        seen.add(float(values[0]))
    assert len(seen) == 5
