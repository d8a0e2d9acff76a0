"""The harness on a real GPU.

Known lengths are read right, all timers and both cold caches agree, any callable can be timed,
and after a call that can't be the next one reads the same time.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx

import worklog
from tests.gpu.conftest import QUICK
from worklog.errors import LaunchFailed
from worklog.gpu.device import gpu
from worklog.harness import Harness, time_in_turn
from worklog.harness.calibration import calibrate
from worklog.problem import Shape
from worklog.runner.session import Session
from worklog.runs import CUBLAS
from worklog.runs.statistics import median
from worklog.settings import RULES

# Of the GPU's clock: all times that events read on an H200 are multiples of it.
CLOCK_STEP_US = 0.032
MARKS = Path(__file__).with_name("marks.cu").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plain_us():
    """Return the time of cuBLAS by the default settings, by size, once it is measured."""
    return {}


def spin_us(session: Session, us: float, harness: Harness = QUICK) -> float:
    """Return the time read for a kernel of known length, event overhead included."""
    launch = partial(session.timeline.spin, round(1000 * us))
    return median(time_in_turn(session.timeline, [launch, launch], harness).samples.counted()).value


def spin_on_the_current_stream(session: Session, us: float) -> None:
    import cupy

    session.timeline.spin(round(1000 * us), cupy.cuda.get_current_stream())


def test_the_calibration_is_within_its_limits(session):
    found = session.calibration
    assert found.remarks == []
    assert found.slope == approx(1.0, abs=1e-3)
    again = [found, *(calibrate(session.timeline) for _ in range(4))]
    held = sum(calibration.aa_low <= 1.0 <= calibration.aa_high for calibration in again)
    assert held >= 3, "of 20 intervals, one misses 1 by design"
    assert found.aa_high - found.aa_low < 0.01
    assert 0.5 < found.launch_us < 100
    assert found.cold_cycles > 1.5 * found.warm_cycles


@pytest.mark.parametrize("us", [1.5, 17, 700])
def test_lengths_between_the_calibrated_ones_are_read_right(session, us):
    fine = QUICK.but(precision=0.0005, budget_s=0.5, most_samples=1000)
    read = [
        spin_us(session, us, fine) for _ in range(5)
    ]  # one also has the drift and scatter within its interval
    lengths = [length - session.calibration.offset_us for length in read]
    print(f"{us:g} µs is read as", *(f"{length:.3f}" for length in lengths))
    # The spin ends at a step of the GPU's clock, and so do both events and the offset's.
    steps = 4 * CLOCK_STEP_US
    assert np.median(lengths) == approx(us, abs=max(steps, 0.002 * us))


def test_the_kernels_of_a_launch_of_cublas_are_counted_and_it_stays_right(session):
    cublas = session.baselines["fp32"]
    shape = Shape.of(256)
    assert 1 <= cublas.kernels(shape) <= 3 and cublas.kernels(Shape.of(4096)) == 1
    assert session.checker(shape).check(cublas).accepted


@pytest.mark.parametrize("size", [256, 1024])
def test_a_kernel_is_as_fast_as_itself(size, measured):
    fine = Harness().but(budget_s=6.0, most_samples=10_000, precision=0.003)
    ratios = []
    holds = []
    while holds.count(True) < 2 and holds.count(False) < 2:
        found = measured(CUBLAS, Shape.of(size), fine)
        assert found.ratio_low is not None and found.ratio_high is not None, found.reason
        print(f"{size}: {found.ratio:.4f}, from {found.ratio_low:.4f} to {found.ratio_high:.4f}")
        ratios.append(found.ratio)
        holds.append(found.ratio_low - 0.003 <= 1.0 <= found.ratio_high + 0.003)
        assert found.ratio_high - found.ratio_low < 0.02
    assert holds.count(True) == 2, "of 20 intervals, one misses 1 by design"
    assert np.mean(np.log(ratios)) == approx(0.0, abs=0.006)


def test_the_flush_evicts_lines_that_a_kernel_marked_to_stay(session):
    import cupy

    timeline = session.timeline
    found = session.calibration
    marks = cupy.RawKernel(MARKS, "marks")
    out = cupy.zeros(1, cupy.uint32)
    halfway = (found.warm_cycles + found.cold_cycles) / 2
    warm = {}
    for lifted in (False, True):
        with session.device.stream:
            marks((132,), (1024,), (timeline._chain, np.int32(timeline._chain.size), out))
        session.device.synchronize()
        if lifted:
            timeline.lift_marks()
        timeline.flush_l2()
        warm[lifted] = float(np.mean(np.asarray(timeline.probe_l2()) < halfway))
    print(
        f"lines still in L2 after a flush: {warm[False]:.0%} of the marked ones, {warm[True]:.0%} "
        "once reset"
    )
    assert warm[True] <= 0.02 < warm[False]
    assert timeline.remarks == []


@pytest.mark.parametrize(
    ("size", "changes", "tolerance"),
    [
        (256, {"l2": "rotate"}, 0.15),
        (2048, {"l2": "rotate"}, 0.15),
        (1024, {"l2": "rotate", "timer": "graph"}, 0.1),
        *(
            (512, {rule: word}, 0.1)
            for rule in ("warmup", "stopping")
            for word in [*RULES[rule]][1:]
        ),
    ],
    ids=str,
)
def test_the_time_of_cublas_is_the_same_by_other_unbiased_settings(
    size, changes, tolerance, measured, plain_us
):
    if size not in plain_us:
        plain_us[size] = measured(CUBLAS, Shape.of(size)).us or 0.0
    other = measured(CUBLAS, Shape.of(size), QUICK.but(**changes))
    assert other.status == "measured" and other.verdict is not None, other.reason
    assert other.us == approx(plain_us[size], rel=tolerance)


def test_a_cupy_kernel_is_timed_with_flushed_and_with_rotated_inputs():
    """Rotation is never slower than a flush, and never faster than device memory.

    Only the input rotates: it comes from device memory, and the output stays in L2. After a
    flush, L2 is full of lines to write back, and the output misses it too. (Each with a tenth of
    slack: a few lines outlive three times the L2.)
    """
    import cupy

    x = cupy.ones(2**22, cupy.float32)
    add = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x + 1", "add_one")
    out = cupy.empty_like(x)
    flushed = worklog.time(lambda a: add(a, out), x, reads=x.nbytes, writes=x.nbytes, harness=QUICK)
    rotated = worklog.time(lambda a: add(a, out), x, harness=QUICK.but(l2="rotate"))
    assert flushed.gbs is not None and 500 < flushed.gbs < 8000
    input_us = x.nbytes / gpu().memory_peak_gbs / 1e3
    print(
        f"{flushed.us:.2f} µs flushed, {rotated.us:.2f} µs rotated, {input_us:.2f} µs for the "
        "input at the peak"
    )
    assert 0.9 * input_us < rotated.us < 1.1 * flushed.us


def test_part_of_a_call_is_timed_and_a_waiting_call_states_its_cost(session):
    def launch(watch: Any) -> None:
        spin_on_the_current_stream(session, 200.0)
        watch.start()
        spin_on_the_current_stream(session, 50.0)
        watch.stop()

    def waiting() -> None:
        import cupy

        spin_on_the_current_stream(session, 50.0)
        cupy.cuda.get_current_stream().synchronize()

    assert worklog.time(launch, timer=True, harness=QUICK).us == approx(50.0, abs=0.3)
    found, by_host = (
        worklog.time(waiting, sync=True, harness=QUICK.but(timer=t)) for t in ("events", "host")
    )
    print(
        f"a call that waits: {found.us:.1f} µs by events, {by_host.us:.1f} µs by the host's clock"
    )
    assert 50.0 < found.us < min(500.0, 1.5 * by_host.us)
    assert any("waits for the GPU" in degradation for degradation in found.degradations)


N = 2**20


@pytest.fixture(scope="module")
def add():
    import cupy

    kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x + 1", "add_one")
    x = cupy.ones(N, cupy.float32)
    y = cupy.empty(N, cupy.float32)
    return lambda: kernel(x, y)


@pytest.fixture
def as_found(add):
    """Require that a good call reads the same before and after a bad one."""
    before = worklog.time(add, harness=QUICK).us
    yield
    assert worklog.time(add, harness=QUICK).us == approx(before, rel=0.05)


@pytest.mark.usefixtures("as_found")
def test_a_call_that_enqueues_nothing_or_elsewhere(add):
    """The time read is that of an event pair, within the harness's own error."""
    import cupy

    elsewhere = cupy.cuda.Stream(non_blocking=True)

    def other_stream() -> None:
        with elsewhere:
            add()

    for call in (lambda: None, other_stream):
        try:
            found = worklog.time(call, harness=QUICK)
        except LaunchFailed as error:
            assert "the current stream" in str(error)
        else:
            assert any(
                "on the current stream" in degradation for degradation in found.degradations
            ), str(found)
    elsewhere.synchronize()


@pytest.mark.usefixtures("as_found")
def test_work_on_a_stream_that_is_not_joined_has_no_time(add):
    """Some milliseconds of it on one SM, beside a little on the current stream.

    Joined, the same work is timed.
    """
    import cupy

    code = (
        'extern "C" __global__ void spins() { for (const auto start = clock64(); clock64() - '
        "start < 4000000;); }"
    )
    elsewhere = cupy.cuda.Stream(non_blocking=True)
    spins = cupy.RawKernel(code, "spins")
    spins((1,), (1,), ())  # compiled before it is timed

    def call(joined: bool) -> None:
        add()
        if joined:
            elsewhere.wait_event(cupy.cuda.get_current_stream().record())
        with elsewhere:
            spins((1,), (1,), ())
        if joined:
            cupy.cuda.get_current_stream().wait_event(elsewhere.record())

    with pytest.raises(LaunchFailed, match="leaves work on a stream"):
        worklog.time(call, False, harness=QUICK)
    elsewhere.synchronize()
    assert worklog.time(call, True, harness=QUICK, cross_check="none").us > 500


@pytest.mark.usefixtures("gives_up_soon", "as_found")
def test_a_call_that_waits_for_the_gpu(add):
    import cupy

    def waits() -> None:
        add()
        cupy.cuda.get_current_stream().synchronize()

    with pytest.raises(LaunchFailed, match="synchronises"):
        worklog.time(waits, harness=QUICK)
    assert worklog.time(waits, sync=True, harness=QUICK).us > 0
    with pytest.raises(LaunchFailed, match="cannot be recorded"):
        worklog.time(waits, harness=QUICK.but(timer="graph", l2="warm"))
