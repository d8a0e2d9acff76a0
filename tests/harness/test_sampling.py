"""The loop around the samples: when it stops, what it keeps, what it says, and that it leaves the queue as found; and
the second clock beside the events.
"""

from __future__ import annotations

import re

import pytest
from pytest import approx

from tests.virtual.gpu import REFERENCE_MHZ, VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import launches_of_warm_up, timed
from worklog.errors import LaunchFailed
from worklog.gate import Stage
from worklog.gate.after_timing import second_clock
from worklog.gpu.device import THROTTLING
from worklog.harness import Harness, time_pair
from worklog.harness.batches import take_batch
from worklog.harness.rules import WINDOW_US
from worklog.harness.sampling import WARMUP_LIMIT_US
from worklog.runs.samples import paired_ratio


def kernels_only(log: list[str]) -> list[str]:
    return [name for name in log if name != "flush"]


def test_when_most_samples_are_off_the_clock_all_are_kept_and_it_is_said() -> None:
    gpu = VirtualGpu(slow_launches=range(launches_of_warm_up(us=2000.0), 10**9), slow_mhz=REFERENCE_MHZ / 1.25)
    result = timed(gpu, Harness().but(least_samples=40, placement="fixed"), us=2000.0)
    assert result.time.value == approx(1.25 * 2000.0, rel=1e-3)
    assert all(sample.counts for sample in result.reading.subject)
    assert any("all were kept" in said and "not throttled" in said for said in result.reading.degradations)


@pytest.mark.parametrize(("mask", "said"), [(0x4, "(software power cap)"), (0x1 | 0x2, "")])
def test_throttling_is_named_and_idle_and_application_clocks_are_not_throttling(mask: int, said: str) -> None:
    result = timed(VirtualGpu(mask=lambda now: mask))
    assert result.time.value == approx(50.0)
    assert [said in words for words in result.reading.degradations] == [True] * bool(said)


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_a_handful_of_samples_has_no_95_percent_interval(samples: int) -> None:
    few = Harness().but(least_samples=1, most_samples=samples, warmup="count:1")
    result = timed(VirtualGpu(noise=0.0), few)
    assert len(result.reading.subject) == samples and not result.reading.converged
    assert any("not converged" in said for said in result.reading.degradations)
    assert timed(VirtualGpu(noise=0.0), few.but(most_samples=6)).reading.converged


def test_sampling_ends_after_its_budget() -> None:
    gpu = VirtualGpu(noise=0.3)
    result = timed(gpu, Harness().but(precision=1e-4, budget_s=0.5, most_samples=10**6), us=20_000.0)
    assert not result.reading.converged
    assert 3 <= len(result.reading.subject) <= 30
    assert gpu.machine.host_now < WARMUP_LIMIT_US + 1e6


def test_a_warm_up_that_never_gets_steady_ends_and_is_said() -> None:
    result = timed(
        VirtualGpu(clock=lambda now: REFERENCE_MHZ * 0.8 ** (now / 1e5)), Harness().but(clocks="ignored", hot_ms=0.0)
    )
    assert any("not steady" in said for said in result.reading.degradations)


@pytest.mark.parametrize("least", [1, 7, 60])
def test_a_quiet_kernel_takes_no_fewer_samples_than_the_least(least: int) -> None:
    taken = len(timed(VirtualGpu(), Harness().but(least_samples=least), us=20_000.0).reading.subject)
    assert least <= taken < least + 16


def test_a_noisy_kernel_takes_more_samples_until_its_interval_is_narrow() -> None:
    quiet, noisy = (timed(VirtualGpu(noise=noise), us=2000.0).reading for noise in (0.001, 0.03))
    assert noisy.converged
    assert len(noisy.subject) > 4 * len(quiet.subject)


def test_subject_and_baseline_take_turns_and_turn_about_who_is_first() -> None:
    gpu = VirtualGpu()
    timed(gpu, Harness().but(hot_ms=0.0))
    pairs = [tuple(names) for names in zip(*[iter(kernels_only(gpu.log)[2:])] * 2, strict=True)]
    assert set(pairs) == {("subject", "baseline"), ("baseline", "subject")}
    assert pairs.count(("subject", "baseline")) == approx(len(pairs) / 2, abs=len(pairs) * 0.1)


def test_sequential_times_all_of_one_before_the_other_and_counts_pairs_though_only_one_was_throttled() -> None:
    first = launches_of_warm_up()
    gpu = VirtualGpu(slow_launches=range(first, first + 5), slow_mhz=REFERENCE_MHZ / 1.25)
    reading = timed(gpu, Harness().but(order="sequential", hot_ms=0.0)).reading
    timed_names = kernels_only(gpu.log)[first:]
    assert timed_names == sorted(timed_names, reverse=True)
    assert len(reading.subject) != len(reading.baseline) or not all(s.counts for s in reading.baseline)
    for subject, baseline in zip(reading.subject, reading.baseline, strict=False):
        assert subject.counts == baseline.counts
    assert len(reading.counted("subject")) == len(reading.counted("baseline"))


@pytest.mark.parametrize("queue", [True, False])
def test_persisting_l2_lines_are_flushed_like_the_others(queue: bool) -> None:
    gpu = VirtualGpu(warm_speedup=2.0)
    marks = gpu.kernel(50.0, marks=True)
    marks()
    pairs, _ = take_batch(gpu, [marks], 4, Harness().but(queue=queue))
    bubble = 0.0 if queue else gpu.machine.enqueue_us
    assert [pair[0].us for pair in pairs] == approx([50.0 + gpu.offset_us + bubble] * 4)


RING = [3.4, 1.9, 2.1, 1.6, 2.8, 2.0, 2.5, 1.3]  # µs that a launch waits, place by place


@pytest.mark.parametrize("seed", range(3))
def test_the_place_in_the_launch_ring_favours_neither_kernel(seed: int) -> None:
    gpu, harness = VirtualGpu(ring_us=RING, noise=0.01, seed=seed), Harness().but(most_samples=1000, precision=1e-6)
    found = paired_ratio(*time_pair(gpu, gpu.kernel(8.0), gpu.kernel(8.0), harness).comparisons())
    assert found.value == approx(1.0, abs=0.01)
    assert found.low - 0.005 <= 1.0 <= found.high + 0.005


@pytest.mark.parametrize("raised", [LaunchFailed, KeyboardInterrupt, MemoryError])
def test_any_exception_inside_a_held_queue_releases_it(raised: type[BaseException]) -> None:
    gpu = VirtualGpu()

    def bad() -> None:
        if gpu.held:
            raise raised

    with pytest.raises(raised):
        time_pair(gpu, bad, gpu.kernel(50.0), Harness())
    assert not gpu.held
    gpu.synchronize()


@pytest.mark.parametrize("us", [350.0, 550.0, 620.0, 3000.0])
def test_a_warm_up_lasts_as_long_as_its_windows_and_little_longer(us: float) -> None:
    gpu = VirtualGpu(Machine(enqueue_us=0.0))
    pair_us = us + gpu.flush_us
    lasted = time_pair(gpu, gpu.kernel(us), None, Harness()).warmup_launches * pair_us
    assert WINDOW_US < lasted < WINDOW_US + 3 * pair_us, "of three windows all but one are samples, in whole turns"


def test_what_a_warm_up_saw_while_throttled_does_not_count() -> None:
    reading = timed(VirtualGpu(mask=lambda now: THROTTLING & 0x4 if now < 25_000.0 else 0)).reading
    assert reading.throttle_mask == 0x4
    assert not all(sample.counts for sample in reading.subject)
    assert len(reading.counted("subject")) >= Harness().least_samples
    assert any("taken again" in said for said in reading.degradations)


@pytest.mark.parametrize("harness", [Harness().but(stopping="count:9"), Harness().but(order="sequential")])
def test_a_rule_with_a_count_of_its_own_and_a_sequence_take_nothing_from_the_warm_up(harness: Harness) -> None:
    interleaved = timed(VirtualGpu(), Harness().but(placement="fixed")).reading
    reading = timed(VirtualGpu(), harness.but(placement="fixed")).reading
    assert reading.warmup_launches == interleaved.warmup_launches + len(interleaved.subject)
    assert len(reading.subject) < 40


def test_the_interval_is_judged_of_what_is_left_without_the_offset() -> None:
    offset = 2000.0

    def samples(result: float) -> int:
        gpu = VirtualGpu(offset_us=offset, noise=0.05)
        reading = time_pair(gpu, gpu.kernel(2000.0), None, Harness(), offset_us=result)
        assert reading.converged
        return len(reading.subject)

    assert samples(offset) > 2 * samples(0.0)


@pytest.mark.parametrize("us", [float("nan"), float("inf"), -5.0])
def test_events_that_read_no_time_are_an_error(monkeypatch: pytest.MonkeyPatch, us: float) -> None:
    gpu = VirtualGpu()
    monkeypatch.setattr(gpu, "elapsed_us", lambda start, stop: us)
    with pytest.raises(LaunchFailed, match="timer=cupti"):
        time_pair(gpu, gpu.kernel(50.0), gpu.kernel(80.0), Harness())
    assert not gpu.held
    gpu.synchronize()


# -------------------------------------------------- the global timer, with which the gate compares the events


class Tampered(VirtualGpu):
    """Events that read a part of every second launch, as a patched library would."""

    def elapsed_us(self, start: int, stop: int) -> float:
        elapsed = super().elapsed_us(start, stop)
        return elapsed / 2 if elapsed < 70.0 else elapsed


def judged(gpu: VirtualGpu, us: float = 50.0) -> Stage:
    reading = time_pair(gpu, gpu.kernel(us), gpu.kernel(80.0), Harness())
    return second_clock(reading.clocks("subject"), reading.clocks("baseline"), own_streams=False)


@pytest.mark.parametrize("us", [2.0, 50.0, 5000.0])
def test_both_clocks_agree_on_an_unbiased_reading(us: float) -> None:
    stage = judged(VirtualGpu(noise=0.01, flush_us=31.0), us)
    assert stage.passed, stage.detail
    assert re.search(r"27\.[56] µs beside", stage.detail)  # the flush, less the event pair's own 3.45
    for timer in ("host", "cupti"):
        reading = time_pair(gpu := VirtualGpu(), gpu.kernel(us), None, Harness().but(timer=timer))
        assert reading.clocks("subject") == [], "other timers have no second clock"


def test_a_reading_that_misses_a_part_is_refused() -> None:
    stage = judged(Tampered())
    assert not stage.passed
    assert stage.measured == approx(0.5 * 53.45)
    assert stage.detail.endswith("the events miss a part")


@pytest.mark.parametrize(("own_streams", "left"), [(False, 2.0), (True, 5.0)])
def test_some_microseconds_are_allowed_and_more_where_there_may_be_streams(own_streams: bool, left: float) -> None:
    unbiased, share = [(50.0, 80.0)] * 9, 0.02 * 50.0
    for missed, passes in ((left + share - 0.1, True), (left + share + 0.1, False)):
        assert second_clock([(50.0, 80.0 + missed)] * 9, unbiased, own_streams=own_streams).passed is passes
    assert second_clock([(50.0, 80.0)] * 8 + [(50.0, 900.0)], unbiased, own_streams=own_streams).passed, "one outlier"
