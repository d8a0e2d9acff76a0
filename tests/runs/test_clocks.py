"""Two measurements compared at one SM clock: over the recording, by a host clock, and on a GPU whose clock drifts."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.helpers import measured, small_run
from tests.virtual.gpu import VirtualGpu
from tests.virtual.session import timed
from worklog.lab.panel_answer import Answers
from worklog.plots import headline
from worklog.problem import Shape
from worklog.runs import Estimate, Measurement, Run, Samples, Side, about, duration, recordings
from worklog.runs.ablation import effects, effects_text
from worklog.runs.clocks import CLOCK_OFF, HOST_SD, PRECISION, SLOPE, SLOPE_HALF, Timed, compare, fitted_slope
from worklog.settings import Harness

# The time doesn't depend on these: watching the clock only repeats samples, the gate runs before and after the timing,
# cuBLAS's place in the loop is the baseline's, zeros take as many multiply-adds, and a placement is one of those that
# the unbiased measurement averages.
NOTHING = "clocks", "gate", "order", "inputs", "placement"
# These change what is timed: the launch instead of the kernel, the misses, the first launch, the gap before the kernel.
SOMETHING = "timer", "l2", "warmup", "queue"
SEED = 20261126


@cache
def recorded(name: str) -> Run:
    part, _, name = name.rpartition("/")
    return Run.load(recordings(part)[name], "recorded")


def pairs(run: Run) -> dict[str, list[tuple[Measurement, Measurement]]]:
    """By the setting that alone was changed: the unbiased measurement of a kernel at a size, and the changed one."""
    unbiased = {(m.kernel, m.shape): m for m in run.measurements if not m.changed}
    found = defaultdict(list)
    for m in run.measurements:
        if len(m.changed) == 1 and (m.kernel, m.shape) in unbiased:
            found[next(iter(m.changed))].append((unbiased[m.kernel, m.shape], m))
    return found


def as_read(first: Measurement, second: Measurement) -> bool:
    """Whether the effect is visible if both times are compared as they were read, as it was done before."""
    halves = [((m.us_high or 0.0) - (m.us_low or 0.0)) / 2 / (m.us or 1.0) for m in (first, second)]
    return abs((second.us or 0.0) / (first.us or 1.0) - 1) > PRECISION + sum(halves)


@pytest.mark.parametrize(
    ("name", "settings", "cells", "before", "now"),
    [
        ("h200", NOTHING, 75, 4, 0),
        ("h200", SOMETHING, 60, 30, 30),
        ("grid/h100", ("clocks", "order", "turns", "inputs", "placement"), 45, 2, 0),
        ("grid/h100", SOMETHING, 36, 21, 20),
    ],
)
def test_at_one_clock_settings_that_do_nothing_have_no_effect_and_the_others_keep_theirs(
    name: str, settings: tuple[str, ...], cells: int, before: int, now: int
) -> None:
    run = recorded(name)
    compared = [pair for setting in settings for pair in pairs(run)[setting]]
    visible = [run.difference(*pair).visible for pair in compared]
    assert (len(compared), sum(as_read(*pair) for pair in compared), sum(visible)) == (cells, before, now)
    if settings is SOMETHING:
        lost = [pair for pair, seen in zip(compared, visible, strict=True) if as_read(*pair) and not seen]
        assert all(abs(run.difference(*pair).clock or 0.0) > CLOCK_OFF for pair in lost), "it was the clock"


def test_the_measurement_that_fooled_the_comparison_says_that_its_clock_was_off() -> None:
    run = recorded("h200")
    [off] = [m for m in run.select("warptiled") if m.shape == (2048,) * 3]
    assert run.clock_off(off) == approx(1950 / 1976 - 1, abs=3e-4)
    assert "warptiled at 2048: 1950, -1.3%" in run.text()
    named = run.frame().dropna(subset="clock_off")
    assert set(named.clock_off.abs() > CLOCK_OFF) == {True} and "warptiled" in set(named.kernel)
    assert small_run(measurements=[measured("a"), measured("b")]).clock_off(measured("a")) is None


def test_the_clocks_difference_is_a_column_of_the_effects() -> None:
    at_2048 = {e.setting: e for e in effects(recorded("h200"), "warptiled") if e.shape[0] == 2048}
    assert at_2048["inputs"].clock == approx(0.0144, abs=1e-4) and not at_2048["inputs"].visible
    assert at_2048["offset"].clock == 0.0, "the same samples"
    [line] = [line for line in effects_text(recorded("h200"), "warptiled").splitlines() if "inputs=zeros" in line]
    assert line.endswith("+1.44 %")


# ------------------------------------------------------------------------------------------------- the rule itself


def with_clock(us: float, mhz: float, slope: float = -1.0, known: bool = True) -> Measurement:
    """40 samples whose clock drifts by 0.5 % around `mhz`, and a time that follows it; 2 that don't count; and 30 µs of
    event overhead in each.
    """
    drift = 1 + 0.0025 * np.sin(np.arange(40))
    times, clocks = [*(30 + us * drift**slope), 9 * us, 9 * us], [*(mhz * drift), mhz / 2, mhz / 2]
    samples = Samples([Side("a", times, clocks if known else [None] * 42)], [1] * 40 + [0, 0])
    return replace(measured("a", us=us), time=Estimate(us, us, us), samples=samples, overhead_us=30.0)


@pytest.mark.parametrize(("slope", "fitted"), [(-1.0, -1.0), (-0.6, -0.6), (0.0, 0.0), (-1.5, -1.0), (0.3, 0.0)])
def test_the_slope_is_fitted_to_the_samples_of_both_and_clamped(slope: float, fitted: float) -> None:
    first, second = with_clock(100.0, 1980.0, slope), with_clock(101.0, 1960.0, slope)
    found = small_run(measurements=[first, second]).difference(first, second)
    assert found.log == approx(math.log(1.01) - fitted * math.log(1960 / 1980), abs=2e-5)
    assert found.clock == approx(1960 / 1980 - 1, abs=1e-5) and found.noise == approx(PRECISION, abs=1e-5)
    by_host = small_run(measurements=[first, second], harness=Harness().but(timer="host").as_dict())
    assert by_host.difference(first, second).noise > HOST_SD


def with_times(m: Measurement, us: list[float]) -> Measurement:
    return replace(m, samples=replace(m.samples, sides=[replace(m.samples.sides[0], us=us)]))


def test_a_slope_that_the_samples_leave_open_is_assumed_and_its_doubt_is_in_the_noise() -> None:
    rng = np.random.default_rng(1)
    first, second = (with_clock(us, mhz) for us, mhz in ((100.0, 1980.0), (101.0, 1960.0)))
    noisy = [with_times(m, rng.normal(m.us, 3.0, 42).tolist()) for m in (first, second)]
    run = small_run(measurements=noisy)
    found, same = run.difference(*noisy), run.difference(noisy[0], noisy[0])
    assert found.log == approx(math.log(1.01) + 0.8 * math.log(1960 / 1980), abs=1e-5)
    assert found.noise == approx(PRECISION + 0.2 * 20 / 1980, abs=1e-5) and same.noise == approx(PRECISION)
    unknown = [with_clock(us, 1980.0, known=False) for us in (100.0, 101.0)]
    assert run.difference(*unknown)[::2] == (approx(math.log(1.01)), None), "as read"


def test_the_assumed_slope_and_its_doubt_are_those_of_the_pairs_that_determine_theirs() -> None:
    slopes = list[float]()
    for run in (recorded("h200"), recorded("grid/h100")):
        for first, second in (pair for found in pairs(run).values() for pair in found):
            difference = run.difference(first, second)
            if abs(difference.clock or 0.0) > 1e-5:
                read = math.log((second.us or 0.0) / (first.us or 0.0))
                slopes.append((read - difference.log) / math.log1p(difference.clock or 0.0))
    fitted = [slope for slope in slopes if slope != approx(SLOPE, abs=1e-6)]
    assert (len(fitted), len(slopes)) == (31, 233)
    assert [min(fitted), max(fitted)] == approx([-1.0, -0.66], abs=0.005)
    assert abs(np.array(fitted) - SLOPE).max() <= SLOPE_HALF + 1e-6
    line = ([np.array([0.0, 0.01]), np.zeros(1)], [np.array([0.0, -0.007]), np.zeros(1)])
    assert fitted_slope(*line) == (approx(-0.7), math.inf), "two samples of one group give a slope without a half-width"


def test_on_a_gpu_whose_clock_drifts_no_false_effect_is_found_and_a_true_one_of_1_percent_is() -> None:
    """100 draws: the clock's level differs by up to 1.2 % between measurements, as in the recording of the H200, and it
    swings by up to 0.3 % within one. Kernels are in cycles, and their samples scatter by 0.2 %.
    """
    harness, rng = Harness().but(hot_ms=0.0, warmup="count:2", most_samples=45), np.random.default_rng(SEED)
    print(f"seed {SEED}")

    def drawn(us: float, seed: int) -> Timed:
        level, swing = 1980 * (1 - rng.uniform(0, 0.012)), rng.uniform(0, 0.003)
        period, phase = rng.uniform(2e3, 2e4), rng.uniform(0, 2 * math.pi)

        def mhz(now: float) -> float:
            return level * (1 + swing * math.sin(2 * math.pi * now / period + phase))

        gpu = VirtualGpu(clock=mhz, noise=0.002, seed=seed)
        found = timed(gpu, harness, us=us)
        return Timed(found.time, found.reading.samples, gpu.offset_us, by_host=False)

    false, found, before = 0, 0, 0
    for draw in range(100):
        first, same, slower = (drawn(us, 3 * draw + n) for n, us in enumerate((50.0, 50.0, 50.5)))
        false += compare(first, same).visible
        found += compare(first, slower).visible
        halves = first.time.relative_half_width + same.time.relative_half_width
        before += abs(same.time.value / first.time.value - 1) > PRECISION + halves
    assert false == 0 and found >= 95
    assert before > 3, "as they were read, equal times differed"


# ------------------------------------------------------------------------------------------------- the host clock


def test_what_a_host_clock_reads_scatters_between_measurements_as_recorded() -> None:
    groups = defaultdict(list)
    for m in recorded("grid/h100").measurements:
        if m.changed.get("timer") == "host" and m.us:
            groups[m.kernel, m.shape].append(math.log(m.us))
    squares = sum(float(np.var(logs)) * len(logs) for logs in groups.values())
    assert math.sqrt(squares / sum(len(logs) - 1 for logs in groups.values())) == approx(HOST_SD, rel=0.02)


@pytest.mark.parametrize("kernel", ["naive", "vectorized", "warptiled"])
@pytest.mark.parametrize("size", [256, 1024, 4096])
def test_once_the_timer_is_a_host_clock_no_step_has_a_sign(kernel: str, size: int) -> None:
    answers = Answers([recorded("grid/h100")])
    steps = {step.row[0]: step for step in answers.answer(kernel, size, **answers.naive).steps}
    after = [name for name in steps if name not in ("1 clocks", "2 timer")]
    assert {(steps[name].role, steps[name].row[-1]) for name in after} == {("grey", "within noise")}
    assert steps["2 timer"].difference.visible and not steps["1 clocks"].difference.visible


def test_alone_a_warm_l2_shortens_the_time_and_no_warm_up_does_not_change_it() -> None:
    """`vectorized` at 1024: the waterfall of all settings showed +10.8 and -14 µs in an earlier recording."""
    answer = partial(Answers([recorded("grid/h100")]).answer, "vectorized", 1024)
    warm, cold = answer(l2="warm").whole, answer(warmup="none").whole
    assert warm.us == approx(-34, abs=1) and warm.difference.visible
    assert abs(cold.us) < 8 and not cold.difference.visible


# ------------------------------------------------------------------------------------------------- digits


@pytest.mark.parametrize(
    ("us", "half", "words"),
    [
        (40.37, 0.52, "about 40 µs"),
        (40.37, 0.02, "40.37 µs"),
        (2654.8, 0.03, "about 2.65 ms"),
        (7.5, 3.0, "about 8 µs"),
    ],
)
def test_a_number_with_a_wide_interval_has_the_digits_that_it_knows(us: float, half: float, words: str) -> None:
    assert about(us, half, duration) == words


def test_the_first_figure_shows_a_time_that_hardly_moves_and_a_share_that_does() -> None:
    run, alt = recorded("grid/h100"), headline().alt.replace("\u00a0", " ")
    changes: list[dict[str, Any]] = [{}, {"l2": "warm"}, {"l2": "warm", "queue": False}]
    found = [run.select("vectorized", Shape.of(1024), changed)[0] for changed in changes]
    times, ratios = np.array([m.us for m in found], float), np.array([m.ratio for m in found], float)
    assert times[::2] == approx([198.7, 207.6], abs=0.05) and np.diff(times) == approx([-34, 43], abs=0.6)
    assert ratios[::2] == approx([0.302, 0.644], abs=5e-4)
    assert (times * ratios)[::2] == approx([60.0, 133.7], abs=0.05)
    assert np.diff(times * ratios)[1] > np.diff(times)[1], "the launch bubble lengthens cuBLAS more"
    for words in ("198.7 µs", "207.6 µs", "60.0 µs", "133.7 µs", "30.2 %", "64.4 %", "−34 µs", "+43 µs", "+80 µs"):
        assert words in alt
