"""Every timed launch is checked.

The gate's own kernels on the emulator, and its verdicts on a NumPy device.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gate.kernels import cut, epilogue, in_127_steps, product, without_a_term
from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem, contents
from worklog.gate import SgemmChecker
from worklog.gate.checker import LaunchProbe, programs_for
from worklog.gate.checker import check_plausible as plausible
from worklog.gate.sgemm import BLOCK, LEAST, REPEATED, differ_for
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder import rung
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Float32, Shape
from worklog.problem.formats import FLOAT32, SINGLE
from worklog.runner.check import check
from worklog.runs import Stage

SHAPE = Shape(33, 40, 17)


class Loop:
    """A probed loop on buffers of its own."""

    def __init__(
        self, device: Any, shape: Shape = SHAPE, claimed: str = "fp32", alpha: float = 1.0
    ) -> None:
        self.device = device
        self.shape = shape
        self.alpha = alpha
        self.probe = LaunchProbe(
            device,
            tuple(map(device.compile, programs_for(SINGLE))),
            shape,
            claimed=claimed,
            alpha=alpha,
        )
        sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n
        self.buffers = [device.upload(np.zeros(size, np.float32)) for size in sizes]

    def launch(
        self, subject: Any, spoil: Callable[[Float32], Any] | None = None, which: int = 2
    ) -> None:
        """One, with A, B or C spoiled before the check."""
        a, b, c = self.buffers
        self.probe.prepare(a, b, c)
        subject.enqueue(self.shape, self.alpha, a, b, 0.0, c)
        if spoil is not None:
            host = self.device.download(self.buffers[which]).copy()
            spoil(host)
            self.device.overwrite(self.buffers[which], host)
        self.probe.observe(c)
        self.probe.check(a, b)


def right(p: Problem) -> None:
    epilogue(p, p.a @ p.b)


def checked(
    function: Function, launches: int = 5, shape: Shape = SHAPE, claimed: str = "fp32"
) -> Stage:
    """Return the stage after some launches of a kernel on a NumPy device."""
    device = NumpyDevice()
    loop = Loop(device, shape, claimed)
    for _ in range(launches):
        loop.launch(NumpySubject(device, function))
    return loop.probe.stage()


@pytest.fixture(params=["emulated", "numpy"])
def device(request):
    return EmulatedDevice() if request.param == "emulated" else NumpyDevice()


def right_on(device: Any) -> Any:
    return (
        NumpySubject(device, right)
        if isinstance(device, NumpyDevice)
        else rung("coalesced").load(device)
    )


@pytest.mark.parametrize("alpha", [1.0, -1.0])
def test_a_right_kernel_passes_with_its_margin_and_on_new_uniform_contents(device, alpha):
    loop = Loop(device, alpha=alpha)
    subject = right_on(device)
    keys = set()
    for _ in range(3):
        loop.launch(subject)
        keys.add(loop.probe._key)
        for buffer, key in zip(loop.buffers[:2], (loop.probe._key, ~loop.probe._key), strict=True):
            assert np.array_equal(device.download(buffer), contents(key, buffer.size))
    stage = loop.probe.stage()
    assert stage.passed and stage.detail.startswith("3 launches") and len(keys) == 3, stage.detail
    assert 0 < stage.measured < stage.limit / 5
    many = contents(keys.pop(), 200_000)
    assert abs(many.mean()) < 0.01 and abs(np.square(many).mean() - 1 / 3) < 0.01
    assert many.min() >= -1 and many.max() <= 1 and (many != 0).all()


@pytest.mark.parametrize(
    ("which", "change", "words"),
    [
        (
            2,
            lambda c: c.put(203, c[203] + 0.01),
            "1 rows off by more than rounding, first in launch 2 of 2",
        ),
        (2, lambda c: c.put(0, np.nan), "1 rows off"),
        (0, lambda a: a.put([0, 1], 0), "it changed 2 elements of its inputs"),
        (1, lambda b: b.put([0, 1], 0), "it changed 2 elements of its inputs"),
    ],
    ids=["one element", "NaN", "A", "B"],
)
def test_what_is_wrong_after_one_launch_is_found(device, which, change, words):
    """Changed inputs too, although the result fits the old ones."""
    loop = Loop(device)
    subject = right_on(device)
    loop.launch(subject)
    loop.launch(subject, change, which)
    stage = loop.probe.stage()
    assert not stage.passed and words in stage.detail


def replay() -> Function:
    """Return a kernel that copies its first result."""
    known: list[Float32] = []

    def replays(p: Problem) -> None:
        known.append(p.alpha * (p.a @ p.b))
        p.c[:] = known[0]

    return replays


def of_bits(bits: int, only: int = 0) -> Function:
    """Return a kernel that truncates operands in every launch, or in only one."""
    launches = 0

    def short(p: Problem) -> None:
        nonlocal launches
        launches += 1
        if only in (0, launches):
            epilogue(p, cut(p.a, 24 - bits) @ cut(p.b, 24 - bits))
        else:
            right(p)

    return short


LONG = Shape(1024, 64, 2048)


@pytest.mark.parametrize(
    ("claimed", "function", "shape", "said"),
    [
        ("fp32", replay(), SHAPE, "first in launch 2 of 3"),
        (
            "tf32",
            product(without_a_term(np.s_[5:25], np.s_[3:4], 0)),
            SHAPE,
            "rows off by more than rounding",
        ),
        ("fp32", of_bits(17), LONG, "an rms of"),
        ("fp32-emulated", of_bits(14), LONG, "an rms of"),
        ("fp32-emulated", of_bits(14, only=2), LONG, "an rms of"),
        ("tf32", of_bits(10), LONG, "an rms of"),
        ("bf16", of_bits(7), LONG, "an rms of"),
        ("bf16", product(lambda p: in_127_steps(p.a) @ in_127_steps(p.b)), LONG, "an rms of"),
        ("bf16", of_bits(8), LONG, ""),
    ],
)
def test_what_a_kernel_could_do_once_the_check_before_timing_is_over(
    claimed, function, shape, said
):
    """A format shorter than the class fails although no row is far off."""
    stage = checked(function, 3, shape, claimed)
    assert stage.passed is (not said) and said in stage.detail
    if said == "an rms of":
        assert stage.measured > stage.limit and f"of {stage.measured:.4g} u·D" in stage.detail
        assert claimed in stage.detail


@pytest.mark.parametrize(
    "shape", [Shape(1, 1, 1), Shape(1, 64, 40), Shape(300, 2, 1), Shape(3, 50, 300)], ids=str
)
def test_chance_fails_no_right_kernel(shape):
    stage = checked(right, 300, shape)
    assert stage.passed, stage.detail


def test_a_check_that_did_not_run_fails_and_so_does_a_launch_after_the_end_event():
    device = NumpyDevice()
    unchecked = Loop(device)
    loop = Loop(device)
    unchecked.probe.prepare(*unchecked.buffers)
    assert "only 0 rows of 1 launches" in unchecked.probe.stage().detail
    a, b, c = loop.buffers
    loop.probe.prepare(a, b, c)
    loop.probe.observe(c)
    right_on(device).enqueue(SHAPE, 1.0, a, b, 0.0, c)
    loop.probe.check(a, b)
    assert f"{SHAPE.m} rows off" in loop.probe.stage().detail


def test_the_checker_finds_a_write_outside_c_and_restores_its_inputs():
    def spills(p: Problem) -> None:
        right(p)
        p.c_buffer.beyond(0, 1)[-1] = 1.0

    device = NumpyDevice()
    checker = SgemmChecker(device, SHAPE, 0)
    loop = Loop(device)
    loop.buffers = list(checker.buffers.abc)
    for function, words in ((right, "1 launches"), (spills, "it wrote outside C")):
        checker.buffers.poison()
        loop.probe = checker.probe()
        loop.launch(NumpySubject(device, function))
        assert checker.check_timed_launches(loop.probe).detail.startswith(words)
    checker.buffers.restore()
    assert checker.check(NumpySubject(device, right)).accepted


def test_the_kernel_that_runs_before_a_launch_is_short():
    """It evicts the subject's code from the instruction caches."""
    made = compile_cuda(programs_for(SINGLE)[0])
    body = made.ptx[made.ptx.index(".entry") :].partition("ret;")[0]
    assert 20 < body.count(";\n") < 150
    assert made.stack_bytes == 0


@pytest.mark.parametrize("wrong_at", [None, 0, 299])
def test_repeated_launches_are_compared_bit_by_bit(wrong_at):
    """NaN is equal to the same NaN, and 0 is not -0."""
    device = EmulatedDevice()
    first = np.zeros(300, np.float32)
    first[5] = np.nan
    second = first.copy()
    if wrong_at is not None:
        second[wrong_at] = -0.0
    a = device.upload(first)
    b = device.upload(second)
    differs = device.upload(np.zeros(4, np.float32))
    device.launch(
        device.compile(differ_for(FLOAT32)),
        (2, 1),
        BLOCK,
        (np.int32(300), a, b, np.int32(2), differs),
    )
    assert device.download(differs).tolist() == [0, 0, 0 if wrong_at is None else 1, 0]


def test_the_emulator_which_runs_in_one_order_repeats_a_launch_no_oftener_than_it_must():
    stages = {
        stage.name: stage.detail for stage in check(rung("naive"), on="emulated").verdict.stages
    }
    assert stages[REPEATED] == f"{LEAST} launches on the same integers"


@pytest.mark.parametrize(
    ("share", "passed", "words"),
    [
        (0.949, True, "94.9 % of the 60.0 TFLOP/s that are possible"),
        (0.97, True, "suspiciously close"),
        (1.03, False, "work or time is missing"),
        (np.inf, False, "work or time is missing"),
    ],
)
def test_a_time_that_the_peak_excludes_fails(share, passed, words):
    stage = plausible(Shape.of(1024), Shape.of(1024).flops / 60e6 / share, 60.0)
    assert stage.passed is passed and words in stage.detail
    assert stage.measured == pytest.approx(share) and stage.limit == 1.02
