"""Right kernels pass on every seed; wrong ones fail at the stage that is meant to find them."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from tests.gate.right import RIGHT, epilogue, sequential, summed
from tests.gate.wrong import WRONG
from tests.gate.wrong_places import clobbers_a_on_real_data
from tests.gate.wrong_stages import BENCHMARK, LAUNCH, PRECISION, RAGGED, REPEAT, TIMED
from tests.gate.wrong_values import tf32_rounded
from worklog.errors import LaunchFailed
from worklog.gate import Checker, Verdict
from worklog.kernel.device import Buffer
from worklog.problem.gemm import Domain, Shape

SHAPE = Shape(192, 160, 144)
SEEDS = range(2)
DEVICE = NumpyDevice()

every_seed = pytest.mark.parametrize("seed", SEEDS)


@cache
def checker(seed: int) -> Checker:
    """The problems of one seed, for every kernel."""
    return Checker(DEVICE, SHAPE, seed)


def verdict_on(function: Function, seed: int = 0, domain: Domain | None = None) -> Verdict:
    return checker(seed).check(NumpySubject(DEVICE, function, domain))


@every_seed
@pytest.mark.parametrize(("function", "domain"), RIGHT, ids=[f"{f.__name__}-{d}" for f, d in RIGHT])
def test_a_right_kernel_passes(function: Function, domain: Domain, seed: int) -> None:
    verdict = verdict_on(function, seed, domain)
    assert verdict.accepted, verdict.reason
    assert verdict.precision == "fp32" and verdict.reason is None
    assert str(verdict) == "fp32 ok"
    assert all(stage.measured <= stage.limit for stage in verdict.stages)


@every_seed
@pytest.mark.parametrize(("function", "stage"), WRONG, ids=[f.__name__ for f, _ in WRONG])
def test_a_wrong_kernel_fails_at_the_stage_that_finds_it(function: Function, stage: str, seed: int) -> None:
    verdict = verdict_on(function, seed)
    assert not verdict.accepted
    assert verdict.stages[-1].name == stage and not verdict.stages[-1].passed
    assert all(earlier.passed for earlier in verdict.stages[:-1])
    assert verdict.reason == f"{stage}: {verdict.stages[-1].detail}"


def test_there_are_wrong_kernels_for_every_stage() -> None:
    assert len(WRONG) >= 30
    assert {stage for _, stage in WRONG} == {RAGGED, BENCHMARK, REPEAT, PRECISION, LAUNCH}


# ---------------------------------------------------------------------------------------------------------- in words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("does_nothing", "C was never written"),
        ("last_row_unwritten", "These elements were never written"),
        ("last_k_dropped", "The terms from k = 69 to the end are missing in every wrong element (K = 70)"),
        ("k_tail_dropped", "The terms from k = 64 to the end are missing in every wrong element (K = 70)"),
        ("first_k_twice", "The term k = 0 is added twice"),
        ("grid_rounded_down", "380 of 24700 elements are wrong: rows 128 to 129; all 190 columns. These"),
        ("transposed_c", "C is written transposed"),
        ("b_read_transposed", "B is read transposed"),
        ("adds_to_c", "The old C is added although beta is 0"),
        ("beta_ignored", " (and at 1x7x2): 24"),
        ("beta_ignored", "This is the result if beta is ignored."),
        ("alpha_ignored", "beta = 0 (and at 1x7x2): "),
        ("alpha_ignored", "This is the result if alpha is ignored."),
        ("scaled_by_1_001", "1.001 times the right one"),
        ("not_a_number", "an input was read out of bounds"),
        ("writes_past_c", "it wrote outside C"),
        ("writes_before_c", "it wrote outside C"),
        ("clobbers_a", "it changed its inputs"),
        ("clobbers_a_on_real_data", "it changed its inputs"),
        ("one_element_misses_a_k", "1 of 30720 elements are wrong: row 77; column 55."),
        ("one_warp_tile_misses_a_k", "rows 32 to 63; columns 64 to 95. The term k = 9 is missing in every"),
        ("races", "number 3 differs from the first"),
        ("tf32_when_big", "An operand lost its low bits"),
        ("tf32_unless_integers", "class tf32"),
        ("bf16_unless_integers", "class bf16"),
        ("one_row_off_unless_integers", "class wrong"),
        ("one_row_of_many_off_unless_integers", "row 100 off by more than rounding"),
        ("truncates", "class fp32-emulated"),
        ("writes_past_c_on_real_data", "it wrote outside C"),
        ("faults", "an illegal memory access"),
    ],
)
def test_the_reason_says_what_was_found(name: str, words: str) -> None:
    (function,) = [f for f, _ in WRONG if f.__name__ == name]
    assert words in str(verdict_on(function).reason)


def test_a_verdict_goes_into_a_run_file() -> None:
    for function in (sequential, tf32_rounded):
        verdict = verdict_on(function)
        document = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
        assert document["accepted"] == verdict.accepted
        assert document["reason"] == verdict.reason
        assert [stage["name"] for stage in document["stages"]] == [stage.name for stage in verdict.stages]
        assert [stage["measured"] for stage in document["stages"]] == [stage.measured for stage in verdict.stages]


def test_a_verdict_tells_what_it_cost() -> None:
    verdict = verdict_on(sequential)
    assert all(stage.seconds > 0 for stage in verdict.stages)
    assert verdict.seconds == pytest.approx(sum(stage.seconds for stage in verdict.stages))


def test_margins_are_shown() -> None:
    precision = verdict_on(sequential).stages[-1]
    # Sequential sums have an rms of 0.3 sqrt(K) u·D, and a largest error of a few times that.
    assert 0 < precision.measured < precision.limit / 4


# ----------------------------------------------------------------------------------------------------------- launches


def test_a_shape_outside_the_domain_is_refused() -> None:
    verdict = verdict_on(sequential, domain=Domain(m=128))
    assert verdict.reason == "domain: size 192x160x144 is outside the kernel's domain (M % 128 == 0)"


def test_a_launch_that_the_device_does_not_take_is_a_verdict() -> None:
    verdict = checker(0).check(NumpySubject(DEVICE, sequential, block=2048))
    assert verdict.reason == "launch: launching a kernel: invalid configuration argument"


class OnAnotherStream(NumpySubject):
    """Starts its work when it is called again: too late for who asked."""

    waiting: tuple[Shape, float, Buffer, Buffer, float, Buffer] | None = None

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        before, self.waiting = self.waiting, (shape, alpha, a, b, beta, c)
        if before is not None:
            super().enqueue(*before)


class SkipsCalls(NumpySubject):
    """Works honestly for some calls and then does nothing."""

    unbiased = 40

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        self.unbiased -= 1
        if self.unbiased >= 0:
            super().enqueue(shape, alpha, a, b, beta, c)


def test_work_that_comes_later_is_no_work() -> None:
    verdict = checker(0).check(OnAnotherStream(DEVICE, sequential))
    assert "never written" in str(verdict.reason)


@pytest.mark.parametrize(("source", "accepted"), [("live", False), ("emulated", True)])
def test_what_a_launch_inherits_is_no_zero(source: str, accepted: bool) -> None:
    """Shared memory outlives a kernel: on a live device the gate fills it first."""
    device = NumpyDevice(source=source)

    def tail_not_zeroed(p: Problem) -> None:
        epilogue(p, summed(p.a, p.b) + device.inherited[0])

    verdict = Checker(device, Shape(40, 24, 16), 0).check(NumpySubject(device, tail_not_zeroed))
    assert verdict.accepted is accepted
    assert Checker(device, Shape(40, 24, 16), 0).check(NumpySubject(device, sequential)).accepted


def test_errors_of_the_package_do_not_hide_in_a_verdict() -> None:
    def buggy(p: Problem) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        verdict_on(buggy)


def test_after_a_fault_the_next_kernel_is_judged_by_itself() -> None:
    def faulty(p: Problem) -> None:
        raise LaunchFailed("running a kernel: an illegal instruction was encountered")

    assert not verdict_on(faulty).accepted
    assert verdict_on(sequential).accepted


# -------------------------------------------------------------------------------------------------- what is timed


def launch(subject: NumpySubject, which: Checker, alpha: float = 1.0, spare: bool = False) -> Buffer:
    """One launch as the ruler makes it; what it wrote to."""
    a, b, c = which.buffers
    into = which.spare if spare else c
    subject.enqueue(which.shape, alpha, a, b, 0.0, into)
    return into


@pytest.mark.parametrize("spare", [False, True])
def test_an_honest_timed_output_passes(spare: bool) -> None:
    subject = NumpySubject(DEVICE, sequential)
    checker(0).poison()
    stage = checker(0).check_timed_output(launch(subject, checker(0), spare=spare))
    assert stage.passed and stage.name == TIMED and stage.measured <= stage.limit


def test_an_output_of_somebody_elses_is_judged_as_it_is() -> None:
    """Timing with a cold L2 goes round copies of C."""
    subject, (a, b, c) = NumpySubject(DEVICE, sequential), checker(0).buffers
    checker(0).poison()
    copy = DEVICE.upload(DEVICE.download(c))
    assert not checker(0).check_timed_output(copy).passed
    subject.enqueue(SHAPE, 1.0, a, b, 0.0, copy)
    assert checker(0).check_timed_output(copy).passed


def test_the_inputs_that_are_timed_are_those_that_were_judged() -> None:
    examined = Checker(DEVICE, SHAPE, 7)
    for function in (sequential, tf32_rounded, clobbers_a_on_real_data):
        examined.check(NumpySubject(DEVICE, function))
        a, b, _ = (DEVICE.download(buffer) for buffer in examined.buffers)
        assert np.array_equal(a, examined.a.ravel()) and np.array_equal(b, examined.b.ravel())


def test_a_kernel_that_stops_working_once_it_is_timed_is_refused() -> None:
    subject = SkipsCalls(DEVICE, sequential)
    subject.unbiased = 10_000
    assert checker(0).check(subject).accepted
    subject.unbiased = 0
    checker(0).poison()
    stage = checker(0).check_timed_output(launch(subject, checker(0)))
    assert not stage.passed and stage.name == TIMED


def test_the_answer_of_the_check_does_not_serve_as_the_timed_one() -> None:
    """Poison lies over it."""
    assert verdict_on(sequential).accepted
    checker(0).poison()
    assert not checker(0).check_timed_output(checker(0).buffers[2]).passed


def test_the_baselines_answer_does_not_serve_either() -> None:
    baseline = NumpySubject(DEVICE, sequential)
    checker(0).poison()
    assert not checker(0).check_timed_output(launch(baseline, checker(0), alpha=-1.0)).passed


def test_a_timed_kernel_that_writes_outside_c_is_refused() -> None:
    def spills(p: Problem) -> None:
        epilogue(p, summed(p.a, p.b))
        p.c_buffer.beyond(5, 0)[0] = 1

    checker(0).poison()
    stage = checker(0).check_timed_output(launch(NumpySubject(DEVICE, spills), checker(0)))
    assert not stage.passed and "outside C" in stage.detail


# ------------------------------------------------------------------------------------------------------------ seeds


def test_a_seed_gives_the_same_questions_and_another_gives_others() -> None:
    small = Shape(40, 24, 16)
    first, again, other = (Checker(NumpyDevice(), small, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.a, again.a) and np.array_equal(first.b, again.b)
    assert not np.array_equal(first.a, other.a)


def test_poison_is_never_the_same_twice() -> None:
    seen = set()
    for _ in range(5):
        checker(0).poison()
        values = np.unique(DEVICE.download(checker(0).buffers[2]))
        assert len(values) == 1 and np.isfinite(values).all() and values[0] < -1e30
        seen.add(float(values[0]))
    assert len(seen) == 5
