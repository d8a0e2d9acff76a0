"""The loop around the samples.

Subject and baseline in turn, placements, the warm-up, launches in a row, and that it leaves the
queue as found; and the second clock beside the events.
"""

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from pytest import approx

from tests.harness.test_readings import AFTER_WARM_UP, SLOW, two_groups
from tests.virtual.gpu import REFERENCE_MHZ, VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import BASELINE_US, launches_of_warm_up, timed
from worklog.errors import BadSetting, LaunchFailed
from worklog.gpu.clocks import clocks_between
from worklog.harness import Harness, time_in_turn
from worklog.harness.batches import TimedLaunch, cross_check, host_us_of, take_batch, turn_orders
from worklog.harness.rules import Evidence, placements_needed
from worklog.harness.sampling import WINDOW_US
from worklog.runs import Measurement
from worklog.runs.statistics import PILOT, median, paired_ratio, summarize

TRUE_US = 50.0
OFFSET_US = VirtualGpu.offset_us
TRUE_RATIO = BASELINE_US / TRUE_US


@pytest.mark.parametrize("us", [2.0, 50.0, 20_000.0])
def test_all_fixes_on_recover_the_truth(us):
    gpu = VirtualGpu(
        warm_speedup=1.4,
        load_us=40_000.0,
        ramp_us=30_000.0,
        idle_mhz=345.0,
        noise=0.001,
        outlier_every=17,
        outlier_factor=5.0,
        tick_us=0.032,
        fetch_us=1.0,
        placement=two_groups,
    )
    result = timed(gpu, us=us, sensitivity=0.0)
    assert result.time.value == approx(us, rel=1e-3, abs=0.033)
    assert result.ratio.value == approx(
        BASELINE_US / us, rel=1e-3, abs=0.033 / us * BASELINE_US / us
    )
    assert result.reading.converged and result.reading.degradations == []


@pytest.mark.parametrize(
    "raised", [LaunchFailed, KeyboardInterrupt, MemoryError, float("nan"), float("inf"), -5.0]
)
def test_a_launch_or_a_reading_that_fails_releases_the_held_queue(raised, monkeypatch):
    gpu = VirtualGpu()
    launch = gpu.kernel(50.0)

    def bad() -> None:
        if gpu.held:
            raise raised
        launch()

    if isinstance(raised, float):
        monkeypatch.setattr(gpu, "elapsed_us", lambda start, stop: raised)
        with pytest.raises(LaunchFailed, match="timer=host"):
            time_in_turn(gpu, [launch, gpu.kernel(80.0)], Harness())
    else:
        with pytest.raises(raised):
            time_in_turn(gpu, [bad, gpu.kernel(80.0)], Harness())
    assert not gpu.held
    gpu.synchronize()


def test_the_clock_is_exact_with_nanoseconds_since_1970():
    starts = np.full((1, 4, 2), 1_795_363_066_504_041_741, np.uint64)
    stops = starts + np.array([100_000, 197_100], np.uint64)
    assert clocks_between(starts, stops).tolist() == [1971.0]
    stale = np.array([5_000_000, 0], np.uint64)
    starts[0, :3], stops[0, :3] = (
        starts[0, :3] - stale,
        stops[0, :3] - stale + np.array([0, 99], np.uint64),
    )
    assert clocks_between(starts, stops).tolist() == [1971.0], (
        "three SMs have stamps of an earlier sample"
    )
    assert np.isnan(clocks_between(starts, starts)).all()


@pytest.mark.parametrize("queue", [True, False])
def test_persisting_l2_lines_are_flushed_like_the_others(queue):
    gpu = VirtualGpu(warm_speedup=2.0)
    marks = gpu.kernel(50.0, marks=True)
    marks()
    pairs, _ = take_batch(gpu, [TimedLaunch(marks)], 4, Harness().but(queue=queue))
    bubble = 0.0 if queue else gpu.machine.enqueue_us
    assert [pair[0].us for pair in pairs] == approx([50.0 + gpu.offset_us + bubble] * 4)


def test_subject_and_baseline_take_turns_and_turn_about_who_is_first():
    gpu = VirtualGpu()
    gpu.remarks.append("l2: a driver that can't")
    assert gpu.remarks[0] in timed(gpu, Harness().but(hot_ms=0.0, l2="warm")).reading.degradations
    pairs = [tuple(names) for names in zip(*[iter(gpu.log[2:])] * 2, strict=True)]
    assert set(pairs) == {("subject", "baseline"), ("baseline", "subject")}
    assert pairs.count(("subject", "baseline")) == approx(len(pairs) / 2, abs=len(pairs) * 0.1)


@pytest.mark.parametrize("launches", [2, 3, 6])
def test_in_balanced_turns_each_kernel_follows_each_other_one_equally_often(launches):
    orders = turn_orders(launches)
    assert all(sorted(order) == [*range(launches)] for order in orders)
    follows = Counter(pair for order in orders for pair in pairwise(order))
    assert len(follows) == launches * (launches - 1) and len({*follows.values()}) == 1
    places = Counter((launch, place) for order in orders for place, launch in enumerate(order))
    assert len(places) == launches**2 and len({*places.values()}) == 1


@pytest.mark.parametrize(("turns", "reads"), [("balanced", 1.0), ("fixed", 1.1)])
def test_what_ran_before_moves_a_ratio_only_in_a_fixed_order(turns, reads):
    """Subject and its copy are one module: in a fixed order, only the copy follows its own code."""
    gpu = VirtualGpu(cold_code_us=5.0)
    subject, copy = (gpu.kernel(50.0, name, module="both") for name in ("subject", "copy"))
    launches = [copy, subject, gpu.kernel(BASELINE_US, "baseline")]
    reading = time_in_turn(gpu, launches, Harness().but(turns=turns), offset_us=OFFSET_US)
    copies, subjects = (np.mean(reading.samples.counted(side)) - OFFSET_US for side in range(2))
    assert copies / subjects == approx(reads, rel=0.01)


def test_sequential_times_all_of_one_before_the_other_and_counts_pairs_if_only_one_was_throttled():
    first = launches_of_warm_up()
    gpu = VirtualGpu(slow_launches=range(first, first + 5), slow_mhz=SLOW)
    reading = timed(gpu, Harness().but(order="sequential", hot_ms=0.0)).reading
    timed_names = [name for name in gpu.log if name != "flush"][first:]
    assert timed_names == sorted(timed_names, reverse=True)
    ours, theirs = (len(side.us) for side in reading.samples.sides)
    assert ours != theirs or not all(reading.samples.counts)
    assert len(reading.samples.counted()) == len(reading.samples.counted(1)) == reading.samples.n


def test_drift_between_two_kernels_moves_their_ratio_only_when_they_are_timed_in_turn():
    # 10 % per second: slow enough for the warm-up to call it steady.
    drifting = partial(VirtualGpu, clock=lambda now: REFERENCE_MHZ * (1 - 1e-7 * now), noise=1e-4)
    longer = Harness().but(clocks="ignored", least_samples=700)
    assert timed(drifting(), longer).ratio.value == approx(TRUE_RATIO, rel=1e-3)
    sequential = timed(drifting(), longer.but(order="sequential"))
    when_subject, when_baseline = (
        median([mhz for mhz in side.sm_mhz if mhz]).value
        for side in sequential.reading.samples.sides
    )
    assert when_subject / when_baseline > 1.005
    assert sequential.ratio.value == approx(TRUE_RATIO * when_subject / when_baseline, rel=1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_the_interval_of_one_placement_misses_what_the_next_placement_shows(seed):
    """The interval holds the scatter of repeated measurements only if the buffers move.

    They must move within one measurement.
    """
    gpu = VirtualGpu(placement=two_groups, noise=1e-4, seed=seed)
    varied = timed(gpu)
    assert len(set(varied.reading.samples.placements())) == gpu.moves + 1 >= 9
    assert varied.reading.samples.placements() == varied.reading.samples.counted(1, "placement"), (
        "both move in step"
    )
    fixed = timed(gpu, Harness().but(placement="fixed"))
    assert varied.time.low <= TRUE_US <= varied.time.high
    assert varied.ratio.low <= TRUE_RATIO <= varied.ratio.high, (
        "the baseline doesn't depend on it, so the ratio does"
    )
    assert fixed.time.value == approx(TRUE_US * (1 + gpu.slower), rel=1e-3), "one of the two groups"
    assert fixed.time.relative_half_width < 2e-4
    assert not fixed.time.low <= TRUE_US <= fixed.time.high


@pytest.mark.parametrize("seed", range(4))
def test_an_interval_that_is_narrow_by_chance_does_not_end_the_sampling(seed):
    """The first placements decide how many there are at least.

    Each has one launch of a long kernel.
    """
    gpu = VirtualGpu(placement=lambda rng: float(rng.normal(0.0, 0.02)), noise=1e-4, seed=seed)
    reading = timed(gpu, us=5000.0).reading
    places = reading.samples.placements()
    pilot = sum(place < PILOT for place in places)
    first = Evidence(
        [us - OFFSET_US for us in reading.samples.counted()[:pilot]], 0.0, places[:pilot]
    )
    needed = placements_needed(first, Harness().precision)
    assert reading.converged and places[-1] + 1 >= 0.9 * needed > PILOT


@pytest.mark.parametrize("seed", range(3))
def test_the_place_in_the_launch_ring_favours_neither_kernel(seed):
    ring = [3.4, 1.9, 2.1, 1.6, 2.8, 2.0, 2.5, 1.3]  # µs that a launch waits, place by place
    gpu = VirtualGpu(ring_us=ring, noise=0.01, seed=seed)
    harness = Harness().but(most_samples=1000, precision=1e-6)
    found = paired_ratio(
        *time_in_turn(gpu, [gpu.kernel(8.0), gpu.kernel(8.0)], harness).samples.comparisons()
    )
    assert found.low - 0.005 <= 1.0 <= found.high + 0.005


@pytest.mark.parametrize("us", [620.0, 3000.0])
def test_a_warm_up_lasts_as_long_as_its_windows_and_little_longer(us):
    gpu = VirtualGpu(Machine(enqueue_us=0.0))
    turn_us = us + gpu.flush_us
    lasted = time_in_turn(gpu, [gpu.kernel(us)], Harness()).warmup_launches * turn_us
    assert WINDOW_US < lasted < WINDOW_US + 3 * turn_us, (
        "of three windows all but one are samples, in whole turns"
    )


def test_a_warm_up_lasts_as_long_as_its_words_say():
    def after(word: str) -> VirtualGpu:
        timed(gpu := VirtualGpu(), Harness().but(warmup=word))
        return gpu

    times = [after(word).machine.host_now for word in ("time:100", "time:50", "time:25", "time")]
    assert times[0] - times[1] == approx(50_000.0, rel=0.1) and times[2] == times[3]
    prepared = after("tensara")
    assert prepared.log.count("burn") == 10 and prepared.machine.host_now > 0.5e6, (
        "ten products, then a pause"
    )
    for setting in ("warmup", "stopping"):
        with pytest.raises(BadSetting, match=f"{setting} = salykova follows the problem's size"):
            timed(VirtualGpu(), Harness().but(**{setting: "salykova"}))


@pytest.mark.parametrize(
    "harness", [Harness().but(stopping="count:9"), Harness().but(order="sequential")]
)
def test_a_rule_with_a_count_of_its_own_and_a_sequence_take_nothing_from_the_warm_up(harness):
    interleaved = timed(VirtualGpu(), Harness().but(placement="fixed")).reading
    reading = timed(VirtualGpu(), harness.but(placement="fixed")).reading
    assert reading.warmup_launches == interleaved.warmup_launches + len(interleaved.samples.counts)
    assert len(reading.samples.counts) < 40


def test_a_throttled_half_is_seen_and_taken_again():
    throttled = range(AFTER_WARM_UP, AFTER_WARM_UP + 48)
    longer = Harness().but(least_samples=24)  # more than the warm-up's last windows hold
    unbiased = timed(VirtualGpu(slow_launches=throttled, slow_mhz=SLOW), longer, us=2000.0)
    assert unbiased.time.value == approx(2000.0, rel=1e-3)
    assert any("taken again" in said for said in unbiased.reading.degradations)
    samples = unbiased.reading.samples
    marked = [
        us for us, counts in zip(samples.sides[0].us, samples.counts, strict=True) if not counts
    ]
    assert len(marked) >= 12
    assert marked[:12] == approx([2500.0 + OFFSET_US] * 12)
    biased = timed(
        VirtualGpu(slow_launches=throttled, slow_mhz=SLOW), longer.but(clocks="ignored"), us=2000.0
    )
    assert max(biased.reading.samples.counted()) == approx(2500.0 + OFFSET_US)
    assert all(biased.reading.samples.counts)
    # of NVML's reasons
    gpu = VirtualGpu()
    power_cap = 0x4
    timed(gpu, longer.but(hot_ms=0.0), us=2000.0)
    late = VirtualGpu(mask=lambda now: power_cap * (now > 0.8 * gpu.machine.host_now))
    samples = timed(late, longer, us=2000.0).reading.samples
    assert samples.throttle_mask == power_cap, "the reason is kept, also of the last samples"


@pytest.mark.parametrize("us", [2.0, 50.0, 5000.0])
def test_the_hot_time_stands_beside_the_cold_one(us):
    gpu = VirtualGpu(warm_speedup=1.4)
    reading = time_in_turn(
        gpu, [gpu.kernel(us), gpu.kernel(BASELINE_US)], Harness(), offset_us=gpu.offset_us
    )
    m = Measurement("a", samples=reading.samples)
    assert m.hot is not None and m.hot_ratio is not None
    assert m.hot.value == approx(us / 1.4, rel=2e-3)
    assert summarize(m.samples, Harness().as_dict(), gpu.offset_us).time.value == approx(
        us, rel=2e-3
    )
    assert m.hot_ratio.value == approx(BASELINE_US / us, rel=5e-3)


def test_there_is_no_hot_time_where_it_is_not_wanted_or_nothing_is_queued():
    for settings in ({"hot_ms": 0.0}, {"l2": "warm"}, {"queue": False}, {"timer": "host"}):
        assert (
            timed(VirtualGpu(), Harness().but(**settings)).reading.samples.sides[0].hot_us == []
        ), settings
    assert timed(VirtualGpu(), us=200_000.0).reading.samples.sides[0].hot_us == [], (
        "it takes too long"
    )


@pytest.mark.parametrize("kernels", [20, 200])
def test_a_launch_of_many_kernels_fits_into_the_queue(kernels):
    gpu = VirtualGpu()
    each = gpu.kernel(3.0)

    def layer() -> None:
        for _ in range(kernels):
            each()

    reading = time_in_turn(gpu, [layer], Harness())
    hot = reading.samples.sides[0].hot_us
    assert hot and hot == approx([3.0 * kernels] * len(hot), rel=0.1)
    (said,) = cross_check(gpu, layer, gpu.offset_us, gpu.machine.enqueue_us)[1]
    assert f"the host takes {kernels * gpu.machine.enqueue_us:.1f} µs to launch it" in said


@pytest.mark.parametrize("wait", [False, True])
def test_the_host_time_of_a_launch_is_without_that_of_work_before_it(wait):
    gpu = VirtualGpu()
    launch = gpu.kernel(10.0)
    idle = host_us_of(gpu, launch, wait=wait)
    gpu.spin(10**6)
    busy = host_us_of(gpu, launch, wait=wait)
    assert busy == approx(idle)


def test_the_gpu_idles_before_each_sample_where_that_is_asked_for():
    idle = VirtualGpu()
    busy = VirtualGpu()
    few = Harness().but(stopping="count:10", warmup="count:1", placement="fixed", hot_ms=0.0)
    timed(busy, few)
    reading = timed(idle, few.but(sleep_ms=5.0)).reading
    samples = sum(len(side.us) for side in reading.samples.sides) + 2  # the warm-up's
    assert idle.machine.host_now - busy.machine.host_now == approx(5_000.0 * samples, rel=0.02)


def test_what_may_still_be_running_has_its_output_read_before_anything_else():
    gpu = VirtualGpu()
    steps = list[str]()
    for name in ("stamp_clock", "record_event"):
        step = getattr(gpu, name)
        setattr(gpu, name, lambda slot, step=step, name=name: (steps.append(name), step(slot)))
    launch = TimedLaunch(gpu.kernel(50.0), behind=lambda: steps.append("read"))
    time_in_turn(gpu, [launch], Harness().but(stopping="count:1", warmup="count:1", hot_ms=0.0))
    assert steps[-3:] == ["record_event", "read", "stamp_clock"]
