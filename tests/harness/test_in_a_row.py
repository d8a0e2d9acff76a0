"""Launches in a row beside the samples, on a GPU whose truth is known: the hot time, energy, pauses and cooling."""

from __future__ import annotations

from typing import Any

import pytest
from pytest import approx

from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import BASELINE_US, timed
from worklog.harness import Harness, time_pair
from worklog.harness.crosscheck import cross_check
from worklog.harness.launch import Partly, Stopwatch
from worklog.runs.samples import Reading, summarize


@pytest.mark.parametrize("us", [2.0, 50.0, 5000.0])
def test_the_hot_time_stands_beside_the_cold_one(us: float) -> None:
    gpu = VirtualGpu(warm_speedup=1.4)
    kernels = gpu.kernel(us), gpu.kernel(BASELINE_US)
    reading = time_pair(gpu, *kernels, Harness(), offset_us=gpu.offset_us)  # type: ignore[arg-type]
    found = summarize(Reading.of_columns(reading.columns()), Harness().as_dict(), {"offset_us": gpu.offset_us})
    assert found.hot is not None and found.hot_ratio is not None, "the run file keeps the batches"
    assert found.hot.value == approx(us / 1.4, rel=2e-3)
    assert found.time.value == approx(us, rel=2e-3)
    assert found.hot_ratio.value == approx(BASELINE_US / us, rel=5e-3)


@pytest.mark.parametrize(
    "settings", [{"hot_ms": 0.0}, {"l2": "warm"}, {"queue": False}, {"timer": "host"}, {"timer": "cupti"}], ids=str
)
def test_there_is_no_hot_time_where_it_is_not_wanted_or_nothing_is_queued(settings: dict[str, Any]) -> None:
    assert timed(VirtualGpu(), Harness().but(**settings)).reading.hot == []


def test_a_launch_that_takes_long_or_times_a_part_of_itself_has_no_hot_time() -> None:
    gpu = VirtualGpu()
    assert timed(gpu, us=200_000.0).reading.hot == []
    part = gpu.kernel(50.0)

    def call(watch: Stopwatch) -> None:
        watch.start()
        part()
        watch.stop()

    assert time_pair(gpu, Partly(call), None, Harness()).hot == []  # type: ignore[arg-type]


@pytest.mark.parametrize("kernels", [20, 200])
def test_a_launch_of_many_kernels_fits_into_the_queue(kernels: int) -> None:
    gpu = VirtualGpu()
    each = gpu.kernel(3.0)

    def layer() -> None:
        for _ in range(kernels):
            each()

    reading = time_pair(gpu, layer, None, Harness())  # type: ignore[arg-type]
    assert reading.hot[0] == approx([3.0 * kernels] * len(reading.hot[0]), rel=0.1)
    found = cross_check(gpu, layer, gpu.offset_us, gpu.machine.enqueue_us, every_timer=False)  # type: ignore[arg-type]
    assert found.host_us == approx(kernels * gpu.machine.enqueue_us)


def test_the_energy_of_a_launch_is_the_power_over_its_time() -> None:
    gpu = VirtualGpu(watts=500.0, temperature=lambda now: 61.0, warm_speedup=1.0, machine=Machine(enqueue_us=0.0))
    reading = timed(gpu, Harness().but(energy_s=1.0), us=100.0).reading
    assert reading.energy is not None
    assert reading.energy.watts == approx(500.0, rel=1e-2)
    assert reading.energy.joules == approx(500.0 * 100e-6, rel=1e-2)
    assert reading.energy.celsius == 61.0
    assert timed(VirtualGpu()).reading.energy is None, "it takes a second, so it is asked for"


def test_a_gpu_without_an_energy_counter_or_a_temperature_is_named() -> None:
    reading = timed(
        VirtualGpu(watts=None, temperature=lambda now: None), Harness().but(energy_s=0.1, cool_c=50.0)
    ).reading
    assert reading.energy is None
    assert [said.partition(":")[0] for said in reading.degradations] == ["cool_c", "energy"]
    assert timed(VirtualGpu(watts=None)).reading.degradations == [], "only of a measurement that asks for it"


def test_it_waits_until_the_gpu_is_cool_but_not_for_ever() -> None:
    gpu = VirtualGpu(temperature=lambda now: 80.0 - now / 1e6)
    assert timed(gpu, Harness().but(cool_c=60.0)).reading.degradations == []
    assert gpu.machine.host_now > 20e6
    hot = timed(VirtualGpu(temperature=lambda now: 80.0), Harness().but(cool_c=60.0)).reading
    assert any("cool_c: 80 °C after 120 s instead of 60 °C" in said for said in hot.degradations)


def test_the_gpu_idles_before_each_sample_where_that_is_asked_for() -> None:
    idle, busy = VirtualGpu(), VirtualGpu()
    few = Harness().but(stopping="count:10", warmup="count:1", placement="fixed", hot_ms=0.0)
    timed(busy, few)
    reading = timed(idle, few.but(sleep_ms=5.0)).reading
    samples = len(reading.subject) + len(reading.baseline) + 2  # the warm-up's
    assert idle.machine.host_now - busy.machine.host_now == approx(5_000.0 * samples, rel=0.02)
