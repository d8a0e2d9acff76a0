"""What the harness reads and says on a GPU whose truth is known: with the fixes the true time comes out, without one
the number is off by what the GPU was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.virtual.gpu import REFERENCE_MHZ, VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import launches_of_warm_up, timed
from worklog.gpu.device import THROTTLING
from worklog.harness import Harness
from worklog.harness.sampling import WARMUP_LIMIT_US

TRUE_US = 50.0
FAST, SLOW = REFERENCE_MHZ, REFERENCE_MHZ / 1.25
AFTER_WARM_UP = launches_of_warm_up(us=2000.0)
ONE_PLACE = {"placement": "fixed"}


def two_groups(rng: np.random.Generator) -> float:
    """Placements in two groups, 2 % apart, as cuBLAS's at 2048."""
    return float(rng.choice([-0.01, 0.01]))


@dataclass(frozen=True)
class Case:
    """A kernel of `us` on a GPU, timed with some settings changed. reads: what comes out (default: us). n: the fewest
    and the most samples. says: one word or more of each degradation, in order. device_s: the most that the GPU is busy.
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
    return Case({}, {"warmup": word}, warm_up=launches, says=(f"warm-up: {word}, which doesn't check",))


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
    "the event overhead may be kept": Case({"offset_us": 2.5}, {"offset": "kept"}, reads=TRUE_US + 2.5),
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
    "throttling is named": Case({"mask": lambda now: 0x4}, says=("(software power cap); all were kept",)),
    "and seen without a queue": Case(
        {"mask": lambda now: 0x20}, {"queue": False}, reads=TRUE_US + 4.0, says=("thermal slowdown); all were kept",)
    ),
    "idle and application clocks are not throttling": Case({"mask": lambda now: 0x1 | 0x2}),
    "what a warm-up saw while throttled doesn't count": Case(
        {"mask": lambda now: THROTTLING & 0x4 if now < 25_000.0 else 0}, says=("taken again",)
    ),
    "a clock that falls for ever": Case(
        {"clock": lambda now: FAST * 0.8 ** (now / 1e5)},
        {"clocks": "ignored", "hot_ms": 0.0},
        reads=float("nan"),
        says=("not steady", "placement: 5", "not converged"),
    ),
    # stopping
    **{f"{samples} samples": few(samples) for samples in (1, 2, 5, 6)},
    **{
        f"no fewer than {least} samples": Case({}, {"least_samples": least}, us=20_000.0, n=(least, least + 15))
        for least in (1, 7, 60)
    },
    "a quiet kernel takes few samples": Case({"noise": 0.001}, us=2000.0, n=(10, 60)),
    "a noisy kernel takes more": Case({"noise": 0.03}, us=2000.0, n=(250, 1500), reads=float("nan")),
    "sampling ends after its budget": Case(
        {"noise": 0.3},
        {"precision": 1e-4, "budget_s": 0.5, "most_samples": 10**6},
        us=20_000.0,
        reads=float("nan"),
        n=(3, 30),
        says=("not steady", "not converged"),
        device_s=WARMUP_LIMIT_US / 1e6 + 1.0,
    ),
    "a host clock keeps to the budget of a long kernel, after the pause before a cold start": Case(
        {},
        {"timer": "host", "budget_s": 1.0, "warmup": "none"},
        us=300_000.0,
        reads=4.0,
        says=("placement: ", "not converged"),
        device_s=2.5,
    ),
    "stopping=count:7": Case({}, {"stopping": "count:7"} | ONE_PLACE, us=1000.0, n=(7, 7), says=("not converged",)),
    "stopping=count": Case({}, {"stopping": "count"}, us=1000.0, n=(10, 10)),
    "stopping=time:3": Case({}, {"stopping": "time:3"}, us=1000.0, n=(1, 40)),
    "stopping=salykova": Case({}, {"stopping": "salykova"}, us=1000.0, n=(185, 185)),
    "stopping=tensara": Case(
        {}, {"stopping": "tensara"}, us=1000.0, n=(5, 5), says=("placement: 5 instead of 9", "not converged")
    ),
    "stopping=nvbench": Case({}, {"stopping": "nvbench", "most_samples": 1000}, us=1000.0, n=(499, 520)),
    "stopping=interval": Case({}, {"stopping": "interval"}, us=1000.0, n=(10, 40)),
    "a criterion that isn't met": Case(
        {"noise": 0.05},
        {"stopping": "nvbench", "most_samples": 100},
        reads=float("nan"),
        n=(100, 100),
        says=("nvbench was not met in 100 samples", "not converged"),
    ),
    # warm-up
    "warmup=count:13": warm_up_of("count:13", 13),
    "warmup=count": warm_up_of("count", 10),
    "warmup=salykova": warm_up_of("salykova", 185),
    "warmup=tensara": warm_up_of("tensara", 0),
    "a warm-up that comes to no end": Case(
        {}, {"warmup": "count:1000", "budget_s": 1.0}, us=100_000.0, says=("warm-up: count:1000 not done after 3.",)
    ),
    # placements: of short kernels too, whose warm-up ends with more than 40 samples, all in one placement
    **{
        f"40 samples of {us:g} µs see nine placements": Case(
            {"placement": two_groups, "noise": 1e-3},
            {"most_samples": 40, "precision": 0.05},
            us=us,
            n=(9, 40),
            placements=9,
            reads=float("nan"),
        )
        for us in (5.0, 50.0, 500.0)
    },
    "few samples see few placements": Case(
        {},
        {"most_samples": 6, "least_samples": 2, "warmup": "count:1"},
        n=(6, 6),
        placements=6,
        says=("warm-up: count:1", "placement: 6 instead of 9"),
    ),
    # cooling and energy
    "a GPU cools down": Case({"temperature": lambda now: 80.0 - now / 1e6}, {"cool_c": 60.0}),
    "a GPU that stays hot": Case(
        {"temperature": lambda now: 80.0},
        {"cool_c": 60.0},
        says=("cool_c: 80 °C after 120 s instead of 60 °C",),
        device_s=130.0,
    ),
    "a GPU without an energy counter or a temperature": Case(
        {"watts": None, "temperature": lambda now: None},
        {"energy_s": 0.1, "cool_c": 50.0},
        says=("cool_c: ", "energy: "),
    ),
    "which matter only where they are asked for": Case({"watts": None, "temperature": lambda now: None}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_reading_is_what_the_gpu_was_given_and_says_what_was_not_right(name: str) -> None:
    case = CASES[name]
    gpu = VirtualGpu(**case.gpu)
    result = timed(gpu, Harness().but(**case.changes), us=case.us, size=4096)
    reading = result.reading
    said = reading.degradations
    assert len(said) == len(case.says) and all(map(str.__contains__, said, case.says)), said
    expected = case.us if case.reads is None else case.reads
    assert np.isnan(expected) or result.time.value == approx(expected, rel=1e-3)
    assert case.n[0] <= len(reading.subject) <= case.n[1]
    assert reading.converged is not any("not converged" in words for words in case.says)
    assert case.warm_up in (None, reading.warmup_launches)
    assert len(set(reading.placements("subject"))) >= case.placements
    assert all(sample.counts for sample in reading.subject) is not any("taken again" in words for words in case.says)
    assert len(reading.counted("subject")) >= min(24, len(reading.subject))
    assert gpu.machine.device_now < 1e6 * case.device_s
