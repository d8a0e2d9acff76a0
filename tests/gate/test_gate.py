"""Right kernels pass on every seed.

Wrong ones fail at the stage that is meant to find them, whatever they claim.
"""

import json
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.gate.kernels import RIGHT, WRONG, epilogue, sequential, strassen, summed, wrong
from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from worklog.gate import SgemmChecker
from worklog.gate.precision import HARD_DATA, NORMS, SCALARS
from worklog.kernel.device import Buffer
from worklog.problem import CLASSES, Domain, Shape
from worklog.runs import Verdict

SHAPE = Shape(192, 160, 144)
DEVICE = NumpyDevice()


@cache
def checker(seed: int = 0) -> SgemmChecker:
    """Return the problems of one seed, for every kernel."""
    return SgemmChecker(DEVICE, SHAPE, seed)


def verdict_on(
    function: Function, claimed: str = "fp32", seed: int = 0, domain: Domain | None = None
) -> Verdict:
    return checker(seed).check(NumpySubject(DEVICE, function, domain, claimed=claimed))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("function", "domain"), RIGHT, ids=[f"{f.__name__}-{d}" for f, d in RIGHT])
def test_a_right_kernel_passes(function, domain, seed):
    claimed = "fp32-norm" if function is strassen else "fp32"
    verdict = verdict_on(function, claimed, seed=seed, domain=domain)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == claimed and str(verdict) == f"{claimed} ok"
    assert SCALARS in [stage.name for stage in verdict.stages]
    assert all(stage.measured <= stage.limit and stage.seconds > 0 for stage in verdict.stages)
    assert verdict.seconds == pytest.approx(sum(stage.seconds for stage in verdict.stages))
    assert verdict.notes == ()


@pytest.mark.parametrize("claimed", ["fp32", "fp32-emulated"])
def test_an_error_bounded_by_norms_is_refused_and_the_reason_names_data_and_class(claimed):
    verdict = verdict_on(strassen, claimed)
    assert not verdict.accepted and verdict.stages[-1].name == HARD_DATA
    assert "rows and columns times 2^-" in str(verdict.reason)
    assert NORMS in str(verdict.reason) and "claim fp32-norm" in NORMS


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_fails_at_the_stage_that_finds_it_and_the_reason_says_what_was_found(name):
    stage, function, words = WRONG[name]
    seed = 0 if words else len(name) % 2
    verdict = verdict_on(function, seed=seed)
    assert not verdict.accepted and verdict.stages[-1].name == stage
    assert all(said in str(verdict.reason) for said in words.split("|")), verdict.reason
    assert all(earlier.passed for earlier in verdict.stages[:-1])
    assert verdict.reason == f"{stage}: {verdict.stages[-1].detail}"
    for buffer, host in zip(
        checker(seed).buffers.abc, (checker(seed).a, checker(seed).b), strict=False
    ):
        assert np.array_equal(DEVICE.download(buffer), host.ravel()), "the timed inputs are intact"


@pytest.mark.parametrize("function", [sequential, strassen, wrong("tf32_rounded"), wrong("faults")])
def test_a_verdict_comes_back_from_a_run_file_as_it_was(function):
    for verdict in (
        verdict_on(function),
        checker().check_by_article(NumpySubject(DEVICE, function)),
    ):
        document = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
        assert document["accepted"] == verdict.accepted and document["reason"] == verdict.reason
        assert msgspec.convert(document, Verdict) == verdict


@pytest.mark.parametrize(
    ("name", "claimed", "reached"),
    [
        ("tf32_rounded", "tf32", "tf32"),
        ("fp16_inputs", "fp16", "tf32"),
        ("tf32_rounded", "bf16", "tf32"),
        ("bf16_inputs", "bf16", "bf16"),
        ("truncates", "fp32-emulated", "fp32-emulated"),
        ("right", "fp32-emulated", "fp32"),
        ("right", "bf16", "fp32"),
        ("tf32_rounded", "fp32-emulated", None),
        ("bf16_inputs", "tf32", None),
        ("bf16_inputs", "fp16", None),
        *(
            (name, claimed, None)
            for name in ("k_tail_dropped", "writes_past_c")
            for claimed in CLASSES[1:]
        ),
    ],
)
def test_a_claim_excuses_a_short_format_but_neither_a_shorter_one_nor_a_mistake(
    name, claimed, reached
):
    verdict = verdict_on(sequential if name == "right" else wrong(name), claimed)
    assert verdict.accepted is (reached is not None), verdict.reason
    assert reached is None or (verdict.precision == reached and verdict.notes == ())


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        *((function, True) for function in (sequential, strassen)),
        *(
            (wrong(name), True)
            for name in ("tf32_rounded", "fp16_inputs", "bf16_inputs", "truncates")
        ),
        (wrong("scaled_by_1_001"), True),
        *(
            (wrong(name), False)
            for name in ("does_nothing", "zeros", "not_a_number", "column_major", "faults")
        ),
    ],
)
def test_the_articles_rule_passes_right_kernels_and_many_wrong_ones(function, passes):
    verdict = checker().check_by_article(NumpySubject(DEVICE, function))
    assert verdict.accepted is passes
    assert verdict.precision == "fp32" or function not in (sequential, strassen)
    assert not any(np.isnan(stage.measured) for stage in verdict.stages)


# ----------------------------------------------------------------------------------------- launches


class OnAnotherStream(NumpySubject):
    """Starts its work when it is called again: too late."""

    waiting: tuple[Shape, float, Buffer, Buffer, float, Buffer] | None = None

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        before, self.waiting = self.waiting, (shape, alpha, a, b, beta, c)
        if before is not None:
            super().enqueue(*before)


class SpillsItsWorkspace(NumpySubject):
    """Writes one element more than it asks for."""

    def workspace_elements(self, shape: Shape) -> int:
        return 8

    def enqueue(self, *launch: Any) -> None:
        super().enqueue(*launch)
        spilled = self.workspace.beyond(0, 1)
        self.device.enqueue(lambda: spilled.fill(0))


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (
            NumpySubject(DEVICE, sequential, Domain(m=128)),
            "size 192x160x144 is outside the kernel's domain (M % 128",
        ),
        (
            NumpySubject(DEVICE, sequential, block=2048),
            "launch: launching a kernel: invalid configuration argument",
        ),
        (OnAnotherStream(DEVICE, sequential), "never written"),
        (SpillsItsWorkspace(DEVICE, sequential), "it wrote outside its workspace"),
    ],
    ids=[
        "outside the domain",
        "a launch that the device doesn't take",
        "work that comes later",
        "workspace",
    ],
)
def test_a_launch_that_cannot_be_or_is_late_is_a_verdict(subject, reason):
    assert reason in str(SgemmChecker(DEVICE, SHAPE, 0).check(subject).reason)


def test_an_error_of_the_package_is_not_a_verdict():
    def buggy(p: Problem) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        verdict_on(buggy)


def timed(
    function: Function, alpha: float = 1.0, claimed: str = "fp32", into: Buffer | None = None
) -> str | None:
    """One launch as the harness makes it, and why the gate fails its output."""
    buffers = checker().buffers
    buffers.restore()
    buffers.poison()
    a, b, c = buffers.abc
    subject = NumpySubject(DEVICE, function)
    subject.claimed = claimed
    subject.enqueue(SHAPE, alpha, a, b, 0.0, into or c)
    stage = checker().check_timed_output(subject, into)
    assert stage.name == "timed output" and stage.passed is (stage.measured <= stage.limit)
    return None if stage.passed else stage.detail


def test_a_right_timed_output_passes_in_each_c_and_a_wrong_one_fails():
    """Also what was there before: the poison, not the result of the check.

    And the baseline's output, -A B.
    """
    elsewhere = DEVICE.upload(np.zeros((SHAPE.m, SHAPE.n), np.float32))
    for into in (None, checker().buffers.spare, elsewhere):
        assert timed(sequential, into=into) is None
    assert "class wrong" in str(timed(wrong("does_nothing")))
    assert "class wrong" in str(timed(sequential, alpha=-1.0))
    assert timed(wrong("writes_before_c")) == "it wrote outside C"
    assert timed(wrong("clobbers_a_on_real_data")) == "it changed its input A"
    assert timed(wrong("tf32_rounded"), claimed="tf32") is None
    assert "tf32" in str(timed(wrong("tf32_rounded")))
    checker().buffers.restore()


def test_a_seed_gives_the_same_inputs_and_another_seed_gives_others():
    first, again, other = (
        SgemmChecker(NumpyDevice(), Shape(40, 24, 16), seed) for seed in (3, 3, 4)
    )
    assert np.array_equal(first.a, again.a) and np.array_equal(first.b, again.b)
    assert not np.array_equal(first.a, other.a)


def test_the_sentinel_is_finite_in_every_format_and_changes():
    seen = set()
    for _ in range(5):
        checker().buffers.poison()
        values = DEVICE.download(checker().buffers.abc[2])
        assert np.isfinite(values).all() and np.isfinite(values.view(np.float16)).all()
        assert len(set(values)) == 1 and values[0] < -1e30
        seen.add(float(values[0]))
    assert len(seen) == 5


def test_a_slot_of_shared_memory_that_was_never_written_holds_nan():
    """It held zero, until another kernel had run in between."""
    device = NumpyDevice(source="live")

    def inherits(p: Problem) -> None:
        epilogue(p, summed(p.a, p.b) + device.inherited[0])

    assert (
        not SgemmChecker(device, Shape(40, 24, 16), 0)
        .check(NumpySubject(device, inherits))
        .accepted
    )
