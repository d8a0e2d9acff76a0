"""What 02_the_harness says in prose is true of the recording that it shows, and of the harness."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import worklog
from worklog.harness.batches import take_batch
from worklog.harness.launchers import Witnessed
from worklog.harness.rules import Evidence, Warmth, Window, stopping_rule, warm_up_rule
from worklog.plots.calibration import errors_left, promised
from worklog.plots.samples import closing
from worklog.runs.ablation import effects
from worklog.runs.run import Measurement
from worklog.runs.statistics import median, paired_ratio, summarise

NERVOUS = ("cuBLAS", 512)


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")


def measured(kernel: str, size: int, **lie: Any) -> Measurement:
    return worklog.results([kernel], [size], **lie).measurements[0]


def raw(m: Measurement) -> list[float]:
    """As read, the offset included, of the samples that count."""
    return [us for us, counts in zip(m.samples["us"], m.samples["counts"], strict=True) if counts]


def test_the_certificate_keeps_its_promise_and_the_flush_empties_l2() -> None:
    found = worklog.open_run().calibration
    assert all(abs(error) <= promised(length) for length, error in errors_left(found).items())
    assert found["offset_us"] > 1, "a kernel of a microsecond is read as more than twice as long"
    assert found["tick_us"] < 0.1 * 0.5, "much finer than the article's half a microsecond"
    assert found["cold_cycles"] > 1.5 * found["warm_cycles"] and found["still_cached"] < 0.02


class Logbook:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))

    def __getattr__(self, name: str) -> Any:
        return lambda *slots: self.write(name, *slots) or 0.0


def test_each_launch_is_queued_behind_a_hold_alone_with_the_flush_outside_the_events() -> None:
    gpu = Logbook()
    take_batch(gpu, [partial(gpu.write, "kernel"), partial(gpu.write, "cuBLAS")], 1, worklog.Harness())
    around = "hold", "release", "synchronize"
    assert [line for line in gpu.lines if line in around] == 2 * [*around], "nothing waits behind what is being timed"
    for launch, event in (("kernel", 0), ("cuBLAS", 2)):
        at = gpu.lines.index(launch)
        assert gpu.lines[at - 1 : at + 2] == [f"record_event {event}", launch, f"record_event {event + 1}"]
        assert gpu.lines[at - 4 : at - 1] == ["hold", f"stamp_clock {event}", "flush_l2"]
        assert gpu.lines[at + 2 : at + 5] == [f"stamp_clock {event + 1}", "release", "synchronize"]


def test_what_the_gate_asks_of_each_launch_lies_outside_its_events() -> None:
    gpu = Logbook()
    around = [[f"{side} {what}" for what in ("itself", "inputs", "look", "check")] for side in ("kernel", "cuBLAS")]
    take_batch(gpu, [Witnessed(*(partial(gpu.write, w) for w in words)) for words in around], 1, worklog.Harness())
    for event, (launch, inputs, look, check) in zip((0, 2), around, strict=True):
        at = gpu.lines.index(launch)
        assert gpu.lines[at - 1 : at + 3] == [f"record_event {event}", launch, f"record_event {event + 1}", look]
        assert gpu.lines.index(inputs) < at - 1
        done = gpu.lines.index("synchronize", at)
        assert gpu.lines.index(check) == done + 1, "what can wait is not queued behind the launch"


def test_without_a_flush_all_samples_are_wrong_and_without_a_warm_up_the_first() -> None:
    unbiased, warm = measured("vectorized", 1024), measured("vectorized", 1024, l2="warm")
    cold = measured("vectorized", 1024, warmup="none")
    assert unbiased.us and warm.us and cold.us
    assert max(raw(warm)) < min(raw(unbiased))
    assert raw(cold)[0] > 1.2 * unbiased.us and abs(cold.us / unbiased.us - 1) < 0.02


def test_a_warm_up_ends_when_windows_agree_and_no_ramp_is_left() -> None:
    def ends(*us: float) -> bool:
        windows = [Window(time, 0.0, 1980.0) for time in us]
        return warm_up_rule("steady").enough(Warmth(windows, 100, 1e5))

    assert ends(100, 100.4, 100) and not ends(110, 101, 100), "within half a percent"
    assert not ends(100, 100) and not ends(100.6, 100.3, 100), "a ramp over the last three"


def test_the_noise_stays_and_the_interval_closes() -> None:
    steps = closing(raw(measured(*NERVOUS)))
    assert steps[-1].noise > 0.02 and steps[-1].noise > 3 * steps[-1].half_width
    assert steps[-1].half_width < 0.3 * steps[2].half_width


def test_one_bad_sample_moves_the_mean_and_not_the_median() -> None:
    us = raw(measured(*NERVOUS))
    bad = [*us, 100 * us[0]]
    assert summarise(bad, "mean").value / summarise(us, "mean").value > 1.05
    assert summarise(bad, "median").value / summarise(us, "median").value < 1.01


def test_ranks_hold_the_median_of_skewed_noise_and_the_bell_curve_misses_its_mean() -> None:
    rng = np.random.default_rng(0)
    for n in (24, 100):
        draws = [rng.lognormal(0.0, 1.0, n) for _ in range(1000)]
        assert np.mean([e.low <= 1.0 <= e.high for e in map(median, draws)]) >= 0.95
        assert np.mean([abs(d.mean() - np.exp(0.5)) <= 1.96 * d.std(ddof=1) / n**0.5 for d in draws]) < 0.94


def test_counts_stop_too_early_and_the_noise_rule_does_not_stop() -> None:
    offset = worklog.open_run().calibration["offset_us"]
    us = [us - offset for us in raw(measured(*NERVOUS))]

    def stops(word: str) -> int | None:
        rule = stopping_rule(word, 0.005, 24)
        asked = ((n, rule.ask(Evidence(us[:n], sum(us[:n])))) for n in range(1, len(us) + 1))
        return next((n for n, answer in asked if answer is not None), None)

    assert stopping_rule("salykova", 0.005, 24, size=512).most == round(500 * np.exp(512 / 3100))
    for word in ("count:10", "tensara"):
        n = stops(word)
        assert n is not None and median(us[:n]).relative_half_width > 0.01
    assert stops("nvbench") is None
    assert (stops("interval") or 0) > 100


def test_a_drift_cancels_in_the_paired_ratio_only() -> None:
    m = measured("vectorized", 1024)
    ours, theirs = np.array(m.samples["us"]), np.array(m.samples["baseline_us"])
    weather, n = np.linspace(1.0, 1.1, 2 * len(ours)), len(ours)
    calm = paired_ratio(theirs.tolist(), ours.tolist()).value
    drifting = paired_ratio((theirs * weather[::2]).tolist(), (ours * weather[::2]).tolist()).value
    apart = median((theirs * weather[n:]).tolist()).value / median((ours * weather[:n]).tolist()).value
    assert drifting == pytest.approx(calm, rel=1e-9)
    assert apart > 1.03 * calm


def test_the_unnamed_gremlins_do_what_is_said() -> None:
    found = effects(worklog.ablate("warptiled", [256, 1024, 4096]), "warptiled")
    factors = {name: [e.factor for e in found if e.setting == name] for name in ("queue", "offset", "baseline", "roof")}
    for name in ("queue", "offset"):
        assert factors[name] == sorted(factors[name]) and factors[name][0] < 0.95, "the shorter, the larger"
    assert all(factor < 0.7 for factor in factors["baseline"])
    assert all(factor < 0.1 for factor in factors["roof"])


def test_the_exercise_on_few_samples() -> None:
    five, six = (median(list(map(float, range(n)))) for n in (5, 6))
    assert (five.low, five.high) == (0, 4) and (six.low, six.high) == (0, 5)
    assert 1 - 2 * 0.5**5 == 0.9375 and 1 - 2 * 0.5**6 > 0.95


def test_a_flush_in_the_events_would_cost_tens_of_microseconds() -> None:
    run = worklog.open_run()
    us = 2 * run.device["l2_bytes"] / run.calibration["copy_gbs"] / 1e3
    assert 10 < us < 100
