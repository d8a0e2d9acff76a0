"""Benchmarks in NVBench's Python interface are declared and timed like those of @worklog.bench."""

import pytest
from pytest import approx

from tests.benchmarks.conftest import at_point
from tests.virtual.machine import Machine
from tests.virtual.session import true_us
from worklog.benchmarks.declare import declared
from worklog.problem import Shape
from worklog.problem.axes import Axis

FILE = """
import worklog.benchmarks.nvbench as bench
from tests.exploits.arrays import xp

@bench.register()
@bench.axis.string("mode", ["exec", "sync", "timer", "skip", "stream", "foreign"])
@bench.axis.int64("N", range(64, 129, 64))
@bench.axis.int64_power_of_two("M", [6, 7])
@bench.axis.float64("alpha", [1, 0.5])
def product(state: bench.State):
    n, m, mode = state.get_int64("N"), state.get_int64("M"), state.get_string("mode")
    a, b, c = xp.empty(m, n), xp.empty(n, n), xp.empty(m, n)
    state.add_element_count(m * n, column_name="Elements")
    state.add_element_count(m * n, "more")
    state.add_global_memory_reads(4 * n * (m + n))
    state.add_global_memory_writes(4 * m * n)
    assert state.get_float64_or_default("gamma", 2.5) == 2.5
    if mode == "skip":
        state.skip("not today")
        raise AssertionError
    if mode == "stream":
        state.set_stream(state.get_stream())
    if mode == "foreign":
        state.set_stream(bench.CudaStream(7))

    def launcher(launch: bench.Launch, timer: bench.Timer | None = None):
        assert launch.get_stream().addressof() == state.get_stream().__cuda_stream__()[1]
        if timer:
            xp.fill(c, 0.0)
            timer.start()
        xp.gemm(state.get_float64("alpha"), a, b, 0.0, c)
        if timer:
            timer.stop()
        if mode == "sync":
            xp.machine.synchronize()

    state.exec(launcher, sync=mode == "sync", timer=mode == "timer", batched=False)
"""


def test_its_axes_have_its_order_and_kinds(file):
    mode, n, m, alpha = declared(file, ["product"])[0].space.axes
    assert (mode.name, mode.kind, len(mode.values)) == ("mode", "str", 6)
    assert (n, m) == (Axis("N", (64, 128)), Axis("M", (64, 128), "pow2")) and alpha.values == (
        1.0,
        0.5,
    )


@pytest.mark.parametrize("mode", ["exec", "sync", "timer", "stream"])
def test_its_launcher_is_timed_whole_synchronising_or_in_part(mode, file):
    m = at_point(file, "product", axes=(f"mode={mode}", "N=64", "M[pow2]=7", "alpha=0.5"))
    assert m.us == approx(
        true_us(Machine(), Shape(64, 64, 128)), rel=0.25 if mode == "sync" else 0.01
    ), m.reason
    assert (m.work.elements, m.work.bytes_read, m.work.bytes_written) == (
        2 * 128 * 64,
        4 * 64 * 192,
        4 * 128 * 64,
    )
    assert any("the launcher waits" in said for said in m.degradations) == (mode == "sync")
    assert any("which part of it is timed" in said for said in m.degradations) == (mode == "timer")


@pytest.mark.parametrize(
    ("mode", "status", "reason"),
    [
        ("skip", "skipped", "not today"),
        ("foreign", "failed", "state.set_stream: the harness times its own stream"),
    ],
)
def test_a_point_that_it_skips_and_a_stream_of_its_own_are_stated(mode, status, reason, file):
    m = at_point(file, "product", axes=(f"mode={mode}", "N=64"))
    assert m.status == status and str(m.reason).startswith(reason)
