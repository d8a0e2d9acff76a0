"""What the harness reads and reports on a GPU whose truth is known.

With the fixes the true time comes out, without one the number is off by what the GPU was given.
Warm-up and stopping rules do what the harness they are named after does. The other timers and the
other way to a cold cache: what each reads, what is an error, and whether they agree.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.virtual.gpu import REFERENCE_MHZ, VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import launches_of_warm_up, timed
from worklog.errors import BadSetting
from worklog.harness import Harness, LoopResult, time_in_turn
from worklog.harness.batches import TimedLaunch, as_graph, cross_check, input_sets
from worklog.harness.batches import rotating as in_rotation
from worklog.harness.rules import Evidence, Stopping, salykova_replays
from worklog.harness.sampling import WARMUP_LIMIT_US, Window, is_steady
from worklog.runs.statistics import median

TRUE_US = 50.0
FAST = REFERENCE_MHZ
SLOW = REFERENCE_MHZ / 1.25
AFTER_WARM_UP = launches_of_warm_up(us=2000.0)
ONE_PLACE = {"placement": "fixed"}


def two_groups(rng: np.random.Generator) -> float:
    """Placements in two groups, 2 % apart, as cuBLAS's at 2048."""
    return float(rng.choice([-0.01, 0.01]))


@dataclass(frozen=True)
class Case:
    """A kernel of `us` on a GPU, timed with some settings changed.

    reads: what comes out (default: us)
    n: the fewest and the most samples
    says: one word or more of each degradation, in order
    device_s: the most that the GPU is busy
    """

    gpu: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    us: float = TRUE_US
    reads: float | None = None
    n: tuple[int, int] = (1, 4000)
    says: tuple[str, ...] = ()
    warm_up: int | None = None
    placements: int = 1
    device_s: float = 200.0


def warm_up_of(word: str, launches: int) -> Case:
    return Case(
        {}, {"warmup": word}, warm_up=launches, says=(f"warm-up: {word}, which doesn't check",)
    )


def few(samples: int) -> Case:
    changes = {"least_samples": 1, "most_samples": samples, "warmup": "count:1"} | ONE_PLACE
    says = "warm-up: count:1", "not converged"
    return Case({}, changes, n=(samples, samples), says=says[: 1 + (samples < 6)])


CASES = {
    # settings, each biased alone, on a GPU that has what it is for
    "a host clock reads the host's cost of a launch": Case(
        {"machine": Machine(enqueue_us=6.5)}, {"timer": "host"}, reads=6.5
    ),
    "without a queue the launch bubble is read": Case(
        {"machine": Machine(enqueue_us=9.0)}, {"queue": False}, reads=TRUE_US + 9.0
    ),
    "the event overhead may be kept": Case(
        {"offset_us": 2.5}, {"offset": "kept"}, reads=TRUE_US + 2.5
    ),
    "a warm L2 is faster": Case({"warm_speedup": 1.4}, {"l2": "warm"}, reads=TRUE_US / 1.4),
    "without a warm-up a module is loaded on an idle GPU": Case(
        {"machine": Machine(host_now=1e8), "load_us": 1000.0, "ramp_us": 1e9, "idle_mhz": 500.0},
        {"warmup": "none", "statistic": "first"},
        reads=1000.0 + TRUE_US * FAST / 500.0 + 4.0,
    ),
    # clocks
    "most samples are off the clock, and all are kept": Case(
        {"slow_launches": range(AFTER_WARM_UP, 10**9), "slow_mhz": SLOW},
        {"least_samples": 40} | ONE_PLACE,
        us=2000.0,
        reads=2500.0,
        says=("MHz (not throttled); all were kept",),
    ),
    "throttling is named": Case(
        {"mask": lambda now: 0x4}, says=("(software power cap); all were kept",)
    ),
    "a clock that spikes now and then moves no plateau": Case(
        {"clock": lambda now: FAST * (1.03 if int(now / 500.0) % 16 == 0 else 1.0)},
        {"least_samples": 40} | ONE_PLACE,
        n=(40, 4000),
        says=("taken again",),
    ),
    "idle and application clocks are not throttling": Case({"mask": lambda now: 0x1 | 0x2}),
    "what a warm-up saw while throttled doesn't count": Case(
        {"mask": lambda now: 0x4 if now < 25_000.0 else 0}, says=("taken again",)
    ),
    "a clock that falls for ever": Case(
        {"clock": lambda now: FAST * 0.8 ** (now / 2e5)},
        {"clocks": "ignored", "hot_ms": 0.0},
        reads=float("nan"),
        says=("not steady", "not converged"),
    ),
    # stopping
    **{f"{samples} samples": few(samples) for samples in (1, 5, 6)},
    **{
        f"no fewer than {least} samples": Case(
            {}, {"least_samples": least}, us=20_000.0, n=(least, least + 15)
        )
        for least in (1, 60)
    },
    "a quiet kernel takes few samples": Case({"noise": 0.001}, us=2000.0, n=(10, 60)),
    "a noisy kernel takes more": Case(
        {"noise": 0.03}, us=2000.0, n=(250, 1500), reads=float("nan")
    ),
    "sampling ends after its budget": Case(
        {"noise": 0.3},
        {"precision": 1e-4, "budget_s": 0.5, "most_samples": 10**6},
        us=20_000.0,
        reads=float("nan"),
        n=(3, 30),
        says=("not steady", "not converged"),
        device_s=WARMUP_LIMIT_US / 1e6 + 1.0,
    ),
    "the last of several batches fits into the budget, too": Case(
        {},
        {"timer": "host", "budget_s": 8.0, "warmup": "none", "precision": 1e-5},
        us=300_000.0,
        reads=4.0,
        n=(24, 30),
        device_s=9.5,
    ),
    "a host clock keeps to the budget of a long kernel, after the pause before a cold start": Case(
        {},
        {"timer": "host", "budget_s": 1.0, "warmup": "none"},
        us=300_000.0,
        reads=4.0,
        says=("placement: ", "not converged"),
        device_s=2.5,
    ),
    "stopping=count:7": Case(
        {}, {"stopping": "count:7"} | ONE_PLACE, us=1000.0, n=(7, 7), says=("not converged",)
    ),
    "stopping=time:3": Case({}, {"stopping": "time:3"}, us=1000.0, n=(1, 40)),
    "stopping=salykova": Case({}, {"stopping": "salykova"}, us=1000.0, n=(185, 185)),
    "stopping=tensara": Case(
        {},
        {"stopping": "tensara"},
        us=1000.0,
        n=(5, 5),
        says=("placement: 5 instead of 9", "not converged"),
    ),
    "stopping=nvbench": Case(
        {}, {"stopping": "nvbench", "most_samples": 1000}, us=1000.0, n=(499, 520)
    ),
    "a criterion that isn't met": Case(
        {"noise": 0.05},
        {"stopping": "nvbench", "most_samples": 100},
        reads=float("nan"),
        n=(100, 100),
        says=("nvbench was not met in 100 samples", "not converged"),
    ),
    # warm-up
    "warmup=count:13": warm_up_of("count:13", 13),
    "warmup=salykova": warm_up_of("salykova", 185),
    "warmup=tensara": warm_up_of("tensara", 0),
    "a warm-up that comes to no end": Case(
        {},
        {"warmup": "count:1000", "budget_s": 1.0},
        us=100_000.0,
        says=("warm-up: count:1000 not done after 3.",),
    ),
    # placements: of short kernels too, whose warm-up ends with more than 40 samples, all in one
    # placement
    **{
        f"40 samples of {us:g} µs see nine placements": Case(
            {"placement": two_groups, "noise": 1e-3},
            {"most_samples": 40, "precision": 0.05},
            us=us,
            n=(9, 40),
            placements=9,
            reads=float("nan"),
        )
        for us in (5.0, 500.0)
    },
    "few samples see few placements": Case(
        {},
        {"most_samples": 6, "least_samples": 2, "warmup": "count:1"},
        n=(6, 6),
        placements=6,
        says=("warm-up: count:1", "placement: 6 instead of 9"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_reading_is_what_the_gpu_was_given_and_says_what_was_not_right(name):
    case = CASES[name]
    gpu = VirtualGpu(**case.gpu)
    result = timed(gpu, Harness().but(**case.changes), us=case.us, size=4096)
    reading = result.reading
    said = reading.degradations
    assert len(said) == len(case.says) and all(map(str.__contains__, said, case.says)), said
    expected = case.us if case.reads is None else case.reads
    assert np.isnan(expected) or result.time.value == approx(expected, rel=1e-3)
    assert case.n[0] <= len(reading.samples.counts) <= case.n[1]
    assert reading.converged is not any("not converged" in words for words in case.says)
    assert case.warm_up in (None, reading.warmup_launches)
    assert len(set(reading.samples.placements())) >= case.placements
    assert bool(all(reading.samples.counts)) is not any(
        "taken again" in words for words in case.says
    )
    assert len(reading.samples.counted()) >= min(24, len(reading.samples.counts))
    assert gpu.machine.device_now < 1e6 * case.device_s


def noisy(relative: float, n: int, us: float = 100.0) -> list[float]:
    return (us * (1 + relative * np.random.default_rng(n).standard_normal(n))).tolist()


def test_the_salykova_schedule_replays_small_problems_more_often():
    replays = {1024: 1000, 4096: 371, 128: 1335, 8192: 99, 100_000: 2}
    assert {n: salykova_replays("warmup", n) for n in replays} == replays


@pytest.mark.parametrize(
    ("steady", "us", "half_width", "mhz", "why"),
    [
        (False, (50.0, 50.0), 0.0, (1980, 1980), "two windows can't show a ramp"),
        (True, (90.0, 50.0, 50.1), 0.0, (900, 1980, 1979), "time and clock of the last two agree"),
        (False, (90.0, 50.0, 50.4), 0.0, (900, 1980, 1980), "the times differ by 0.8 %"),
        (False, (90.0, 50.0, 50.0), 0.0, (900, 1980, 1965), "the clocks differ by 0.8 %"),
        (True, (50.0, 50.0, 50.0), 0.0, (np.nan, np.nan, np.nan), "the clock can't be read"),
        (
            True,
            (10.0, 10.0, 10.15),
            0.1,
            (1980, 1980, 1980),
            "the times agree within their intervals",
        ),
        (
            False,
            (10.0, 10.0, 10.15),
            0.05,
            (1980, 1980, 1980),
            "the intervals are too narrow for that",
        ),
        (False, (10.0, 10.0, 10.5), 5.0, (1980, 1980, 1980), "no interval allows more than 2 %"),
        (
            False,
            (10.0, 10.0, 10.0),
            5.0,
            (1980, 1980, 1940),
            "the interval is the time's, not the clock's",
        ),
        (
            False,
            (50.4, 50.2, 50.1),
            0.0,
            (1960, 1960, 1960),
            "each window is faster, though each two agree",
        ),
        (
            False,
            (50.0, 50.0, 50.0),
            0.0,
            (1970, 1975, 1979),
            "the clock climbs, though each two agree",
        ),
        (True, (50.02, 50.01, 50.0), 0.0, (1980, 1980, 1980), "a tenth of a percent is noise"),
        (True, (50.0, 50.0, 50.0), 0.0, (1979, 1980, 1980.5), "as it is of the clock"),
        (
            True,
            (50.0, 50.0, 50.0),
            0.0,
            (3015, 3000, 3015),
            "half a percent of the clock is one step of 15 MHz",
        ),
        (
            True,
            (50.0, 50.1, 50.2),
            0.0,
            (1980, 1980, 1980),
            "waiting doesn't help a kernel that gets slower",
        ),
    ],
)
def test_steady_is_a_time_and_a_clock_that_agree_and_do_not_ramp(steady, us, half_width, mhz, why):
    windows = [Window(time, half_width, clock) for time, clock in zip(us, mhz, strict=True)]
    assert is_steady(windows) is steady, why


@pytest.mark.parametrize(
    ("word", "times", "done"),
    [
        ("interval", noisy(0.002, 100), True),
        ("interval", noisy(0.002, 15), None),  # fewer than the least
        ("nvbench", noisy(0.003, 100, us=4000.0), None),  # not half a second yet
        ("nvbench", noisy(0.003, 150, us=4000.0), True),
        (
            "nvbench",
            noisy(0.02, 5000, us=4000.0),
            None,
        ),  # more samples do not make the noise smaller
        ("tensara", [100.0] * 4, None),
        ("tensara", [100.0] * 5, True),
        ("tensara:1:1", [100.0], None),  # of which there is no variation
        ("tensara:1:1", [100.0] * 2, True),
        ("nvbench:1:0.1:1", [100.0], None),
        ("nvbench:1:0.1:1", [100.0] * 2, True),
        ("tensara", noisy(0.2, 20), False),
        ("tensara", [1.2e6] * 11, None),  # twelve of a kernel that lasts a second
        ("tensara", [1.2e6] * 12, True),
    ],
)
def test_a_criterion_is_met_as_by_the_harness_that_it_is_named_after(word, times, done):
    assert Stopping(word, 0.005, 24).check(Evidence(times, 0.0)) is done


MIB = 2**20
ROTATE = Harness().but(l2="rotate")
GRAPH = Harness().but(timer="graph", l2="warm")


def rotating(gpu: VirtualGpu, us: float, sets: int, start: int = 0) -> TimedLaunch:
    order = [*range(start, sets), *range(start)]
    kernels = [gpu.kernel(us, data=f"set {n}", data_bytes=16 * MIB, module=f"{us}") for n in order]
    return in_rotation(kernels, 16 * MIB)


def read(gpu: VirtualGpu, harness: Harness, us: float = 50.0, sets: int = 12) -> LoopResult:
    start = 0 if harness.timer == "graph" else sets // 2
    return time_in_turn(gpu, [rotating(gpu, us, sets), rotating(gpu, 80.0, sets, start)], harness)


def middle(reading: LoopResult, side: int = 0) -> float:
    return median(reading.samples.counted(side)).value


def test_the_sets_are_three_times_the_cache_and_at_least_two():
    sets = {16 * MIB: 12, 64 * MIB: 3, 200 * MIB: 2, 65 * MIB: 3, MIB: 192}
    assert {set_bytes: input_sets(set_bytes, 64 * MIB) for set_bytes in sets} == sets
    with pytest.raises(BadSetting, match="without a byte"):
        input_sets(0, 64 * MIB)


def test_inputs_that_rotate_are_as_cold_as_after_a_flush_and_what_cannot_rotate_is_refused():
    gpu = VirtualGpu(warm_speedup=1.4, offset_us=0.0)
    reading = read(gpu, ROTATE)
    assert (middle(reading), middle(reading, 1)) == (approx(50.0), approx(80.0))
    assert "flush" not in gpu.log
    with pytest.raises(
        BadSetting, match=r"3 set\(s\) of 16\.00 MiB .* L2 of 64 MiB: take l2 = flush"
    ):
        read(gpu, ROTATE, sets=3)
    warm = middle(read(gpu, Harness().but(l2="warm"), sets=3))
    assert warm == approx(50.0 / 1.4, abs=1e-3), "3 sets would have been warm"
    with pytest.raises(BadSetting, match="take l2 = flush"):
        time_in_turn(gpu, [gpu.kernel(50.0), gpu.kernel(80.0)], ROTATE)


def test_a_graph_divides_its_time_by_its_launches_and_reads_the_gaps_between_its_nodes():
    gpu = VirtualGpu(offset_us=3.6, node_us=1.0, machine=Machine(enqueue_us=9.0))
    assert middle(read(gpu, GRAPH)) == approx(50.0 + 0.36 + 1.0)
    cached = VirtualGpu(offset_us=0.0, warm_speedup=1.4)
    assert middle(read(cached, GRAPH.but(l2="rotate"))) == approx(50.0), "cold in every node"
    assert middle(read(cached, GRAPH, sets=1)) == approx(50.0 / 1.4, abs=1e-3)
    slow = VirtualGpu()
    assert middle(read(slow, GRAPH, us=300_000.0)) == approx(300_000.0, rel=1e-3)
    assert slow.machine.host_now < 40e6, "a graph of slow kernels is short"
    alone = VirtualGpu(offset_us=0.0, machine=Machine(enqueue_us=9.0))
    assert 50.0 < middle(read(alone, GRAPH.but(queue=False))) < 60.0, (
        "on an idle stream, with the launch bubble"
    )


def test_a_graph_goes_whole_rounds():
    launches = {12: 12, 4: 12, 25: 25, 1: 10}
    gpu = VirtualGpu()
    graphs = {sets: as_graph(gpu, rotating(gpu, 50.0, sets), "rotate", 10) for sets in launches}
    assert {sets: graph.count for sets, graph in graphs.items()} == launches


def test_a_graph_is_recorded_again_after_each_move_of_the_buffers(monkeypatch):
    gpu = VirtualGpu()
    recorded = []
    capture = gpu.capture
    monkeypatch.setattr(
        gpu, "capture", lambda launches: (recorded.append(gpu.moves), capture(launches))[1]
    )
    time_in_turn(gpu, [gpu.kernel(50.0), gpu.kernel(80.0)], GRAPH, move=gpu.move)
    assert recorded == [move for move in range(gpu.moves + 1) for _ in range(2)] and gpu.moves >= 8


@pytest.mark.parametrize(
    ("given", "us", "host_us", "reads", "disagreements"),
    [
        *(({"noise": 1e-3}, us, 0.0, approx(us, rel=2e-3), 0) for us in (20.0, 500.0, 30_000.0)),
        ({}, 50.0, 51.5, approx(51.5), 0),
        ({}, 50.0, 52.5, approx(52.5), 1),  # it may differ by 2 µs
        ({"offset_us": 9.0}, 50.0, 0.0, approx(50.0), 1),
        (
            {"machine": Machine(enqueue_us=5.0)},
            8.0,
            0.0,
            "a kernel of 8.0 µs is hidden by its launch of 5.0 µs",
            0,
        ),
    ],
)
def test_the_wall_clock_may_differ_by_2_us_and_reads_no_kernel_that_is_shorter_than_its_launch(
    given, us, host_us, reads, disagreements
):
    gpu = VirtualGpu(**given)
    kernel = gpu.kernel(us)

    def launch() -> None:
        kernel()
        gpu.machine.pass_host(max(0.0, host_us - gpu.machine.enqueue_us))

    launch()
    wall_us, said = cross_check(gpu, launch, 3.45, gpu.machine.enqueue_us)
    assert (wall_us, len(said)) == (reads, disagreements)
    assert gpu.launches * us < 1e5 or gpu.launches < 12, (
        "it costs a tenth of a second, or a dozen launches"
    )
