"""The energy of a launch: what NVML's counter gives, and why there is no number."""

import pytest
from pytest import approx

from tests.harness import fake_nvml
from tests.virtual.gpu import VirtualGpu
from tests.virtual.machine import Machine
from worklog.errors import NoEnergy
from worklog.gpu.energy import EnergyCounter
from worklog.harness import Harness, TimedLaunch, check_counter, time_in_turn
from worklog.harness.batches import as_graph
from worklog.harness.energy import LEAST_STEPS, launch_energy
from worklog.runs import Energy

WITH_ENERGY = Harness().but(energy_s=1.0)
WATTS = 500.0  # of the virtual GPU
WRAPS_AT_MJ = 2**18


def energy_of(gpu: VirtualGpu, us: float, seconds: float = 1.0) -> Energy:
    """Return the energy of a kernel of `us` microseconds."""
    return launch_energy(gpu, TimedLaunch(gpu.kernel(us)), us, seconds)


def fails_after(us: float):
    """Return a counter that NVML can't read any more after a time."""

    def counter(now: float) -> int:
        if now > us:
            raise ValueError("GPU is lost")
        return VirtualGpu.counter(now)

    return counter


@pytest.mark.parametrize("us", [20.0, 400.0, 280_000.0])
@pytest.mark.parametrize("step_ms", [1, 20, 100])
def test_a_launch_takes_power_times_time(us, step_ms):
    step_us = 1000 * step_ms
    gpu = VirtualGpu(counter=lambda now: int(now // step_us) * int(WATTS * step_us / 1000))
    energy = energy_of(gpu, us)
    assert energy.reason == ""
    assert energy.us == approx(us, rel=0.01)
    assert energy.joules == approx(WATTS * 1e-6 * us, rel=0.02)
    assert energy.watts == approx(WATTS, rel=0.02)
    assert energy.seconds >= 1.0 and energy.steps >= LEAST_STEPS


def test_the_power_of_the_warm_up_is_not_in_it():
    gpu = VirtualGpu(counter=lambda now: int(min(now, 200e3) * 0.1 + now * WATTS / 1000))
    assert energy_of(gpu, 400.0).watts == approx(WATTS, rel=0.01)


@pytest.mark.parametrize(
    ("counter", "reason"),
    [
        (lambda now: 7, "too coarse: it moved 0 times over 0 s, and 11 times over 1 s are needed"),
        (lambda now: int(now // 600e3), "too coarse: it moved 7 times over 3.6 s"),
        (lambda now: int(now // 20e3) * 10_000 % WRAPS_AT_MJ, "the energy counter went back"),
        (fails_after(600e3), "NVML: GPU is lost"),
        (fails_after(-1.0), "NVML: GPU is lost"),
    ],
    ids=["no steps", "long steps", "wraps", "fails in the loop", "fails at once"],
)
def test_without_a_usable_counter_there_is_a_reason_and_no_number(counter, reason):
    energy = energy_of(VirtualGpu(counter=counter), 400.0)
    assert energy.joules is None and energy.watts is None
    assert reason in energy.reason


def test_a_counter_that_is_read_too_rarely_gives_no_number(monkeypatch):
    """On a host that is so busy that each sleep lasts 0.1 s."""
    gpu = VirtualGpu()
    monkeypatch.setattr(gpu, "pause", lambda seconds: gpu.machine.pass_host(100_000.0))
    energy = energy_of(gpu, 300_000.0)
    assert energy.joules is None and "read too rarely" in energy.reason


@pytest.mark.parametrize(("reading_ms", "waits"), [(8, False), (120, True)])
def test_the_gpu_has_work_while_the_counter_is_read_or_there_is_no_number(
    reading_ms, waits, monkeypatch
):
    """An H200's takes some milliseconds; the GPU had 10 ms of work, and waited for it."""
    gpu = VirtualGpu()
    read = gpu.energy.millijoules

    def slowly() -> int | None:
        gpu.machine.pass_host(1000.0 * reading_ms)
        return read()

    monkeypatch.setattr(gpu.energy, "millijoules", slowly)
    energy = energy_of(gpu, 400.0)
    if waits:
        assert energy.joules is None and "waited for the host" in energy.reason
    else:
        assert energy.us == approx(400.0, rel=0.01)


def test_a_launch_that_is_shorter_than_the_hosts_work_gives_no_number():
    energy = energy_of(VirtualGpu(Machine(enqueue_us=10.0)), 5.0)
    assert energy.joules is None and "the GPU would wait between launches" in energy.reason


def test_a_call_that_times_a_part_of_itself_gives_no_number():
    gpu = VirtualGpu()
    energy = launch_energy(gpu, TimedLaunch(gpu.kernel(400.0), partly=True), 400.0, 1.0)
    assert energy.joules is None and "times a part of itself" in energy.reason


def test_the_energy_of_a_graph_is_that_of_each_of_its_launches():
    gpu = VirtualGpu()
    graph = as_graph(gpu, TimedLaunch(gpu.kernel(400.0)), "warm", 10)
    energy = launch_energy(gpu, graph, 400.0 * graph.count, 1.0)
    assert energy.joules == approx(WATTS * 400e-6, rel=0.02)


def test_it_is_measured_after_the_samples_and_only_if_the_harness_asks_for_it():
    times = []
    for harness in (Harness(), WITH_ENERGY):
        gpu = VirtualGpu()
        reading = time_in_turn(gpu, [gpu.kernel(400.0), gpu.kernel(80.0)], harness)
        times.append(reading.samples.sides[0].us)
        if harness.energy_s:
            assert reading.energy.joules == approx(WATTS * 400e-6, rel=0.02)
        else:
            assert reading.energy is None
    assert times[0] == times[1]


def test_the_counter_agrees_with_the_integral_of_the_power():
    check = check_counter(VirtualGpu(), 0.5)
    assert check.counter_joules == approx(WATTS * check.seconds, rel=0.01)
    assert check.agrees and check.seconds >= 0.5
    assert check.step_ms == approx(20.0, rel=0.1)
    assert "within the tolerance of 5%" in check.text()
    off = check_counter(VirtualGpu(power=lambda now: 450_000), 0.5)
    assert not off.agrees and off.difference == approx(500 / 450 - 1, abs=0.01)
    assert "outside of the tolerance" in off.text()


def test_a_counter_that_cannot_be_read_cannot_be_checked():
    with pytest.raises(NoEnergy, match="no energy can be measured: NVML: GPU is lost"):
        check_counter(VirtualGpu(counter=fails_after(2.2e6)), 0.5)


def test_nvmls_counter_is_read_until_it_fails(tmp_path):
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        # The first reading asks whether the card has a counter.
        fake_nvml.write(energy=[5, 5, 105, "Unknown Error", 205], power=[310_000])
        counter = EnergyCounter()
        assert counter.reason is None
        assert [counter.millijoules(), counter.millijoules()] == [5, 105]
        assert counter.milliwatts() == 310_000
        assert counter.millijoules() is None and counter.reason == "NVML: Unknown Error"
        assert counter.millijoules() is None, "after an error, nothing is read"


def test_a_card_without_a_counter_says_so(tmp_path):
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        fake_nvml.write(energy=["Not Supported"])
        assert EnergyCounter().reason == "NVML: Not Supported"


@pytest.mark.parametrize("wraps_at", [2**64, WRAPS_AT_MJ])
def test_steps_and_a_wrap_of_nvmls_counter_reach_the_loop(tmp_path, wraps_at):
    gpu = VirtualGpu()
    with fake_nvml.pretended(tmp_path / "nvml.json"):
        fake_nvml.write(energy=fake_nvml.stepped(10_000, 8, 1000, wraps_at))
        gpu.energy = EnergyCounter()
        energy = energy_of(gpu, 400.0, seconds=0.2)
    if wraps_at == WRAPS_AT_MJ:
        assert "went back" in energy.reason
    else:
        assert energy.joules is not None and energy.reason == ""
