"""Calls that cannot be timed, on a real GPU: the error gives the reason, and the next call reads the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest import approx

import worklog
from tests.gpu.conftest import QUICK
from worklog.errors import LaunchFailed

N = 2**20


@pytest.fixture(scope="module")
def add() -> Callable[[], None]:
    import cupy

    kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x + 1", "add_one")
    x, y = cupy.ones(N, cupy.float32), cupy.empty(N, cupy.float32)
    return lambda: kernel(x, y)


@pytest.fixture(autouse=True)
def as_found(add: Callable[[], None]) -> Any:
    """A good call reads the same before and after a bad one."""
    before = worklog.time(add, harness=QUICK).us
    yield
    assert worklog.time(add, harness=QUICK).us == approx(before, rel=0.05)


def test_a_call_that_enqueues_nothing_or_elsewhere(add: Callable[[], None]) -> None:
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
            assert any("on the current stream" in degradation for degradation in found.degradations), str(found)
    elsewhere.synchronize()


def test_work_on_a_stream_that_is_not_joined_has_no_time(add: Callable[[], None]) -> None:
    """Some milliseconds of it on one SM, beside a little on the current stream; joined, the same work is timed."""
    import cupy

    code = 'extern "C" __global__ void spins() { for (const auto start = clock64(); clock64() - start < 4000000;); }'
    elsewhere, spins = cupy.cuda.Stream(non_blocking=True), cupy.RawKernel(code, "spins")
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


@pytest.mark.usefixtures("gives_up_soon")
def test_a_call_that_waits_for_the_gpu(add: Callable[[], None]) -> None:
    import cupy

    def waits() -> None:
        add()
        cupy.cuda.get_current_stream().synchronize()

    with pytest.raises(LaunchFailed, match="synchronises"):
        worklog.time(waits, harness=QUICK)
    assert worklog.time(waits, sync=True, harness=QUICK).us > 0
    with pytest.raises(LaunchFailed, match="cannot be recorded"):
        worklog.time(waits, harness=QUICK.but(timer="graph", l2="warm"))
