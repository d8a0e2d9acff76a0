"""NVML's energy counter on a real GPU, against its power readings and between kernels."""

import pytest
from pytest import approx

from tests.gpu.conftest import QUICK
from worklog.harness import check_counter
from worklog.problem import Shape
from worklog.runs import CUBLAS, CounterCheck

WITH_ENERGY = QUICK.but(energy_s=1.0)


@pytest.fixture(scope="module")
def counter(session):
    """Skip on a card without a counter."""
    if session.timeline.energy.reason is not None:
        pytest.skip(session.timeline.energy.reason)
    return session.timeline.energy


def test_the_counter_is_the_integral_of_the_power(session, counter):
    check = check_counter(session.timeline, 10.0)
    assert check.difference == approx(0.0, abs=CounterCheck.TOLERANCE), check.text()
    assert check.seconds >= 10.0


def test_a_launch_takes_less_than_the_board_may_draw(measured, counter):
    import pynvml

    from worklog.gpu.device import nvml_handle

    with nvml_handle() as handle:
        limit_watts = 1e-3 * pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
    m = measured(CUBLAS, Shape.of(4096), WITH_ENERGY)
    assert m.no_energy == ""
    assert 0.1 * limit_watts < m.watts < 1.1 * limit_watts
    assert m.energy.us == approx(m.hot.value if m.hot else m.us, rel=0.3)


def test_the_energy_of_a_launch_is_the_same_twice(measured, counter):
    joules = [measured("warptiled", Shape.of(4096), WITH_ENERGY).joules for _ in range(2)]
    assert joules[0] == approx(joules[1], rel=0.05)


def test_a_slow_kernel_takes_more_energy_than_a_fast_one_at_the_same_work(measured, counter):
    slow, fast = (measured(name, Shape.of(4096), WITH_ENERGY) for name in ("shared", "warptiled"))
    assert slow.joules > 2 * fast.joules
    assert slow.gflop_per_joule < fast.gflop_per_joule / 2
