"""Every timed launch is checked: the stage's real kernels on the emulator, and its verdicts on a NumPy device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem, contents
from worklog.emulator.device import EmulatedDevice
from worklog.gate import Checker
from worklog.gate.after_timing import PROGRAMS, LaunchProbe, limit
from worklog.kernel.ladder import rung
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem.gemm import Shape

SHAPE = Shape(33, 40, 17)


def buffers(device: Any, shape: Shape) -> tuple[Any, Any, Any]:
    sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n
    a, b, c = (device.upload(np.zeros(size, np.float32)) for size in sizes)
    return a, b, c


def probe_of(device: Any, *more: Any) -> LaunchProbe:
    return LaunchProbe(device, tuple(map(device.compile, PROGRAMS)), *more)


def checked(device: Any, subject: Any, launches: int = 5, alpha: float = 1.0, claimed: str = "fp32") -> Any:
    """The stage after some launches of a kernel."""
    probe = probe_of(device, SHAPE, claimed, alpha)
    a, b, c = buffers(device, SHAPE)
    for _ in range(launches):
        probe.prepare(a, b, c)
        subject.enqueue(SHAPE, alpha, a, b, 0.0, c)
        probe.observe(c)
        probe.check(a, b)
    return probe.stage()


def right(p: Problem) -> None:
    p.c[:] = p.alpha * (p.a @ p.b) + (p.beta * p.c if p.beta else 0)


def of_a_kind(device: Any) -> Any:
    if isinstance(device, EmulatedDevice):
        return rung("coalesced").load(device)
    return NumpySubject(device, right)


@pytest.fixture(params=["emulated", "numpy"])
def device(request: pytest.FixtureRequest) -> Any:
    return EmulatedDevice("sm_90") if request.param == "emulated" else NumpyDevice()


@pytest.mark.parametrize("alpha", [1.0, -1.0])
def test_a_right_kernel_passes_with_its_margin(device: Any, alpha: float) -> None:
    stage = checked(device, of_a_kind(device), alpha=alpha)
    assert stage.passed, stage.detail
    assert 0 < stage.measured < stage.limit / 5
    assert stage.detail.startswith("5 launches")


def test_the_contents_are_the_same_hash_on_both(device: Any) -> None:
    probe = probe_of(device, SHAPE)
    a, b, c = buffers(device, SHAPE)
    probe.prepare(a, b, c)
    key = probe._key
    assert np.array_equal(device.download(a), contents(key, SHAPE.m * SHAPE.k))
    assert np.array_equal(device.download(b), contents(~key, SHAPE.k * SHAPE.n))
    assert len(np.unique(device.download(c))) == 1


def test_contents_are_uniform_and_never_come_back() -> None:
    drawn = contents(np.uint64(7), 200_000)
    assert abs(drawn.mean()) < 0.01 and abs(np.square(drawn).mean() - 1 / 3) < 0.01
    assert drawn.min() >= -1 and drawn.max() <= 1 and (drawn != 0).all()
    assert not np.intersect1d(drawn[:1000], contents(np.uint64(8), 1000)).size > 5


def spoil(device: Any, what: Callable[[np.ndarray[Any, Any]], None], which: int) -> Any:
    """One launch of a right kernel with one of A, B and C spoiled before the check."""
    probe = probe_of(device, SHAPE)
    three = buffers(device, SHAPE)
    probe.prepare(*three)
    of_a_kind(device).enqueue(SHAPE, 1.0, three[0], three[1], 0.0, three[2])
    host = device.download(three[which]).copy()
    what(host)
    device.overwrite(three[which], host)
    probe.observe(three[2])
    probe.check(*three[:2])
    return probe.stage()


def test_one_wrong_element_is_found(device: Any) -> None:
    stage = spoil(device, lambda c: c.__setitem__(5 * SHAPE.n + 3, c[5 * SHAPE.n + 3] + 0.01), which=2)
    assert not stage.passed
    assert "1 rows off by more than rounding, first in launch 1 of 1" in stage.detail


def test_a_nan_is_seen(device: Any) -> None:
    assert "1 rows off" in spoil(device, lambda c: c.__setitem__(0, np.nan), which=2).detail


@pytest.mark.parametrize("which", [0, 1])
def test_changed_inputs_are_seen_although_the_answer_fits_the_old_ones(device: Any, which: int) -> None:
    stage = spoil(device, lambda x: x.__setitem__(slice(2), 0.0), which=which)
    assert not stage.passed and "it changed 2 elements of its inputs" in stage.detail


def remembering() -> Callable[[Problem], None]:
    """Computes once for each pair of addresses."""
    known: dict[tuple[int, int], Any] = {}

    def replays(p: Problem) -> None:
        key = id(p.a_buffer.memory), id(p.b_buffer.memory)
        if key not in known:
            known[key] = p.a @ p.b
        p.c[:] = p.alpha * known[key]

    return replays


def lazy_every_second_time() -> Callable[[Problem], None]:
    launches = 0

    def lazy(p: Problem) -> None:
        nonlocal launches
        launches += 1
        right(p)
        if launches % 2 == 0:
            p.c[: p.m // 2] = 0

    return lazy


@pytest.mark.parametrize("make", [remembering, lazy_every_second_time])
def test_what_answers_from_memory_or_not_every_time_is_seen(make: Callable[[], Callable[[Problem], None]]) -> None:
    device = NumpyDevice()
    stage = checked(device, NumpySubject(device, make()))
    assert not stage.passed and "first in launch 2 of 5" in stage.detail


def test_less_precise_kernels_pass_only_as_what_they_are() -> None:
    def in_bf16(p: Problem) -> None:
        rounded = [(x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for x in (p.a, p.b)]
        p.c[:] = p.alpha * (rounded[0] @ rounded[1])

    device = NumpyDevice()
    subject = NumpySubject(device, in_bf16)
    assert not checked(device, subject).passed
    assert not checked(device, subject, claimed="fp32-emulated").passed
    assert checked(device, subject, claimed="bf16").passed
    assert limit("fp32", 4096) < limit("fp32-emulated", 4096) < limit("tf32", 4096) < limit("bf16", 4096)


def with_bits(bits: int, only: int = 0) -> Callable[[Problem], None]:
    """Operands of so many bits, in every launch or in one only; the others are right."""
    launches, lost = 0, 24 - bits

    def short(p: Problem) -> None:
        nonlocal launches
        launches += 1
        if only and launches != only:
            return right(p)
        cut = [((x.view(np.uint32) >> lost) << lost).view(np.float32) for x in (p.a, p.b)]
        p.c[:] = p.alpha * (cut[0] @ cut[1])

    return short


@pytest.mark.parametrize(
    ("claimed", "bits", "only"),
    [("fp32", 17, 0), ("fp32-emulated", 14, 0), ("fp32-emulated", 14, 2), ("tf32", 10, 0), ("bf16", 7, 0)],
)
def test_a_format_shorter_than_the_class_is_seen_although_no_row_is_far_off(
    claimed: str, bits: int, only: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kernel could use once the check before timing is over."""
    shape = Shape(1024, 64, 2048)
    monkeypatch.setitem(globals(), "SHAPE", shape)
    device = NumpyDevice()
    stage = checked(device, NumpySubject(device, with_bits(bits, only)), launches=3, claimed=claimed)
    assert not stage.passed and stage.measured > stage.limit
    assert f"an rms of {stage.measured:.4g} u·D" in stage.detail and claimed in stage.detail


def test_eight_bit_integers_do_not_pass_as_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their error is as large as that of BF16 cut short, but does not make the product smaller."""
    shape = Shape(256, 96, 512)
    monkeypatch.setitem(globals(), "SHAPE", shape)

    def in_steps(p: Problem) -> None:
        a, b = (np.rint(x * 127) / 127 for x in (p.a, p.b))
        p.c[:] = p.alpha * (a @ b)

    def cut_short(p: Problem) -> None:
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for x in (p.a, p.b))
        p.c[:] = p.alpha * (a @ b)

    device = NumpyDevice()
    assert not checked(device, NumpySubject(device, in_steps), claimed="bf16").passed
    assert checked(device, NumpySubject(device, cut_short), claimed="bf16").passed


@pytest.mark.parametrize("shape", [Shape(1, 1, 1), Shape(1, 64, 40), Shape(300, 2, 1), Shape(3, 50, 300)], ids=str)
def test_chance_fails_no_right_kernel(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SHAPE", shape)
    device = NumpyDevice()
    stage = checked(device, NumpySubject(device, right), launches=300)
    assert stage.passed, stage.detail


def test_a_check_that_did_not_run_fails() -> None:
    device = NumpyDevice()
    probe = probe_of(device, SHAPE)
    probe.prepare(*buffers(device, SHAPE))
    assert not probe.stage().passed and "only 0 rows of 1 launches" in probe.stage().detail


def test_a_write_outside_c_is_found_too() -> None:
    def spills(p: Problem) -> None:
        right(p)
        p.c_buffer.beyond(0, 1)[-1] = 1.0

    device = NumpyDevice()
    checker = Checker(device, SHAPE, 0)
    for function, good in ((right, True), (spills, False)):
        checker.poison()
        probe = checker.probe()
        probe.prepare(*checker.buffers)
        NumpySubject(device, function).enqueue(SHAPE, 1.0, *checker.buffers[:2], 0.0, checker.buffers[2])
        probe.observe(checker.buffers[2])
        probe.check(*checker.buffers[:2])
        stage = checker.check_timed_launches(probe)
        assert stage.passed is good, stage.detail
    assert stage.detail == "it wrote outside C"


def test_after_the_loop_the_timed_inputs_are_back() -> None:
    device = NumpyDevice()
    checker = Checker(device, SHAPE, 0)
    checker.probe().prepare(*checker.buffers)
    checker.restore()
    assert np.array_equal(device.download(checker.buffers[0]), checker.a.ravel())
    assert checker.check(NumpySubject(device, right)).accepted


def test_what_runs_before_a_launch_is_short() -> None:
    """It would push the subject's code out of the instruction caches."""
    program = PROGRAMS[0]
    made = compile_cuda(program.source, program.entry, name=program.name, options=program.options)
    body = made.ptx[made.ptx.index(".entry") :].partition("ret;")[0]
    assert 20 < body.count(";\n") < 150
    assert made.stack_bytes == 0


def test_what_is_written_after_the_end_event_is_too_late() -> None:
    device = NumpyDevice()
    probe = probe_of(device, SHAPE)
    a, b, c = buffers(device, SHAPE)
    probe.prepare(a, b, c)
    probe.observe(c)
    NumpySubject(device, right).enqueue(SHAPE, 1.0, a, b, 0.0, c)
    probe.check(a, b)
    assert f"{SHAPE.m} rows off" in probe.stage().detail
