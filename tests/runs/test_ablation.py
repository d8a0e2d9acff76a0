"""The effect of each pitfall, and two measurements compared at one SM clock."""

import math
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.helpers import CALIBRATION, GPU, measured, small_run
from worklog.errors import NothingToDraw
from worklog.lab.answers import Answers
from worklog.problem import Point, Shape, tflops
from worklog.runner.job import ablation_jobs
from worklog.runner.products import work_of
from worklog.runs import Measurement, Roof, Run, Work, recordings
from worklog.runs.effects import (
    BF16_DATASHEET_TFLOPS,
    effect_in_words,
    effects,
    effects_text,
    factor_cell,
)
from worklog.runs.statistics import (
    CLOCK_OFF,
    HOST_HALF,
    HOST_SD,
    PRECISION,
    SLOPE,
    SLOPE_HALF,
    Difference,
    Estimate,
    LaunchSeries,
    Samples,
    fitted_slope,
    is_visible,
)
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness

SIZE = Shape.of(1024)
OFFSET = 3.0
UNBIASED_US = 60.0


def measurement(us: float, changed: dict[str, Any] | None = None, **fields: Any) -> Measurement:
    samples = Samples([LaunchSeries("warptiled", [us + OFFSET] * 9 + [10 * us + OFFSET])], [1] * 10)
    values: dict[str, Any] = {
        "time": Estimate(us, us * 0.999, us * 1.001),
        "against": {"cuBLAS": Estimate(48.0 / us, 48.0 / us, 48.0 / us)},
        "work": work_of(SIZE),
        "roof": Roof(2 * tflops(SIZE, UNBIASED_US)),
        "samples": samples,
    }
    return Measurement(
        "warptiled", Point.of_product(SIZE), changed=changed or {}, **(values | fields)
    )


def run(*biased: Measurement) -> Run:
    calibration = replace(CALIBRATION, offset_us=OFFSET)
    return Run({}, GPU, calibration, measurements=[measurement(UNBIASED_US), *biased])


def effect_of(setting: str, *biased: Measurement) -> Any:
    return next(
        effect for effect in effects(run(*biased), "warptiled") if effect.setting == setting
    )


def test_a_measured_effect_is_the_biased_number_over_the_unbiased_one():
    effect = effect_of("l2", measurement(UNBIASED_US / 1.4, {"l2": "warm"}))
    assert effect.factor == approx(1.4)
    assert (effect.value, effect.corrupts, effect.article, effect_in_words(effect)) == (
        "warm",
        "TFLOP/s",
        3,
        "+40.0 %",
    )
    other_baseline = measurement(
        UNBIASED_US, {"baseline": "tf32"}, against={"cuBLAS": Estimate(0.1, 0.099, 0.101)}
    )
    unbiased = measurement(UNBIASED_US, against={"cuBLAS": Estimate(0.8, 0.78, 0.82)})
    run_of_both = Run({}, GPU, CALIBRATION, measurements=[unbiased, other_baseline])
    [effect] = [
        effect for effect in effects(run_of_both, "warptiled") if effect.setting == "baseline"
    ]
    assert effect.noise == approx(PRECISION + 0.025 + 0.01)
    assert effect.corrupts == "of cuBLAS" and effect.factor == approx(0.1 / (48.0 / UNBIASED_US))


def test_an_effect_of_the_arithmetic_is_computed_from_the_unbiased_samples():
    warm = measurement(UNBIASED_US, {"l2": "warm"})
    offset, mean, roof = (effect_of(setting, warm) for setting in ("offset", "statistic", "roof"))
    assert offset.factor == approx(UNBIASED_US / (UNBIASED_US + OFFSET)) and offset.noise == 0.0
    assert mean.factor == approx(UNBIASED_US / (UNBIASED_US * 1.9))
    assert (
        roof.biased == approx(tflops(SIZE, UNBIASED_US) / BF16_DATASHEET_TFLOPS)
        and roof.unbiased == 0.5
    )


def test_a_cold_start_has_a_row_for_its_first_launch_too():
    cold = measurement(
        UNBIASED_US,
        {"warmup": "none"},
        samples=Samples([LaunchSeries("warptiled", [600.0 + OFFSET, 60.0])], [1, 1]),
    )
    assert effect_of("first_launch", cold).factor == approx(0.1)
    assert effect_of("warmup", cold).factor == approx(1.0)


def test_biased_settings_that_were_measured_together_have_a_row():
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    assert effect_of("article", measurement(10.0, four)).factor == approx(6.0)
    biased_settings = {g.setting: g.biased[0] for g in PITFALLS if g.setting in HOW_ONE_MEASURES}
    assert effect_of("all", measurement(5.0, biased_settings)).factor == approx(12.0)
    warm = run(measurement(10.0, {name: value for name, value in four.items() if name != "l2"}))
    warm.harness = Harness().but(l2="warm").as_dict()
    assert "article" in [effect.setting for effect in effects(warm, "warptiled")], (
        "the run's own bias is in both"
    )


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (200.0, "× 200"),
        (3.5, "× 3.50"),
        (2.5, "+150.0 %"),
        (0.005, "÷ 200"),
        (0.9, "−10.0 %"),
        (1.004, "0"),
    ],
)
def test_an_effect_in_words(factor, text):
    effect = effect_of("l2", measurement(UNBIASED_US / factor, {"l2": "warm"}))
    assert effect_in_words(effect) == text and effect.visible == (text != "0")


@pytest.mark.parametrize(
    ("factor", "cell"),
    [
        (11_000.0, "11 000"),
        (43.0, "43.0"),
        (3.5, "3.500"),
        (1.9, "1.900"),
        (0.9, "0.900"),
        (0.02, "0.02"),
        (1.004, "1"),
    ],
)
def test_a_factor_in_a_cell(factor, cell):
    effect = effect_of("l2", measurement(UNBIASED_US / factor, {"l2": "warm"}))
    assert factor_cell(effect) == cell
    small = [replace(effect, biased=effect.unbiased * by, noise=0.0) for by in (1.002, 1.00007)]
    assert [*map(factor_cell, small)] == ["1.002", "1"]


def test_a_table_of_effects_has_one_unit_a_column_and_fits_80_columns():
    for width in (160, 80):
        lines = effects_text(recorded("h200"), "vectorized", width).splitlines()
        rows = [line for line in lines if re.match(r"^ [1-4 ] \w+=", line)]
        numbers = [re.split(r"TFLOP/s|of cuBLAS|of the roof", row)[0] for row in rows]
        assert len(rows) > 10 and not any(re.search("[×÷%]", row) for row in numbers)
        assert max(map(len, lines[2:])) <= width
    assert lines[-2] == "  in a wider terminal: number, SM clock, pitfall"


def test_another_combination_and_an_impossible_reading_are_no_effect_and_no_ablation_is_an_error():
    combination = measurement(5.0, {"l2": "warm", "queue": False})
    for biased in (combination, measurement(UNBIASED_US, {"l2": "warm"}, work=Work())):
        settings_with_effects = {effect.setting for effect in effects(run(biased), "warptiled")}
        assert settings_with_effects == {"offset", "statistic", "roof"}, "those that are computed"
    with pytest.raises(NothingToDraw, match="worklog ablate warptiled"):
        effects(run(), "warptiled")


def test_the_jobs_measure_every_pitfall_that_needs_launches_and_the_table_shows_them():
    jobs = ablation_jobs("warptiled", [SIZE])
    lines = effects_text(
        run(*[measurement(50.0, job.pitfalls) for job in jobs if job.pitfalls]), "warptiled"
    )
    assert all(pitfall.title[:40] in lines for pitfall in PITFALLS)


# The time doesn't depend on these: watching the clock only repeats samples, the gate runs before
# and after the timing, cuBLAS's place in the loop is the baseline's, zeros take as many
# multiply-adds, and a placement is one of those that the unbiased measurement averages.
NOTHING = "clocks", "gate", "order", "inputs", "placement"
# These change what is timed: the launch instead of the kernel, the misses, the first launch, the
# gap before the kernel.
SOMETHING = "timer", "l2", "warmup", "queue"


@cache
def recorded(name: str) -> Run:
    part, _, name = name.rpartition("/")
    return Run.load(recordings(part)[name], "recorded")


def pairs(run: Run) -> dict[str, list[tuple[Measurement, Measurement]]]:
    """By the setting that alone was changed.

    The unbiased measurement of a kernel at a size, and the changed one.
    """
    unbiased = {(m.kernel, m.shape): m for m in run.measurements if not m.changed}
    pairs_of = defaultdict(list)
    for m in run.measurements:
        if len(m.changed) == 1 and (m.kernel, m.shape) in unbiased:
            pairs_of[next(iter(m.changed))].append((unbiased[m.kernel, m.shape], m))
    return pairs_of


def as_read(first: Estimate | None, second: Estimate | None) -> bool:
    """Return whether the effect is visible if both times are compared as read.

    That was done before.
    """
    assert first is not None and second is not None
    return (
        abs(second.value / first.value - 1)
        > PRECISION + first.relative_half_width + second.relative_half_width
    )


@pytest.mark.parametrize(
    ("name", "settings", "cells", "old_factors", "new_factors"),
    [
        ("h200", NOTHING, 75, 4, 0),
        ("h200", SOMETHING, 60, 30, 29),
        ("grid/h100", ("clocks", "order", "turns", "inputs", "placement"), 45, 2, 0),
        ("grid/h100", SOMETHING, 36, 21, 18),
    ],
)
def test_at_one_clock_settings_that_do_nothing_have_no_effect_and_the_others_keep_theirs(
    name, settings, cells, old_factors, new_factors
):
    run = recorded(name)
    compared = [pair for setting in settings for pair in pairs(run)[setting]]
    factors = [as_read(first.time, second.time) for first, second in compared]
    differences = [run.difference(*pair) for pair in compared]
    assert (len(compared), sum(factors), sum(difference.visible for difference in differences)) == (
        cells,
        old_factors,
        new_factors,
    )
    if settings is SOMETHING:
        for (_, second), difference, visible in zip(compared, differences, factors, strict=True):
            if visible and not difference.visible:
                was_off = abs(difference.clock or 0.0) > CLOCK_OFF
                assert was_off or abs(difference.log) < HOST_HALF, "the SM clock, or the host's"
                assert was_off or run.by_host(second)


def test_the_measurement_that_fooled_the_comparison_says_that_its_clock_was_off():
    run = recorded("h200")
    [off] = [m for m in run.select("warptiled") if m.shape == (2048,) * 3]
    assert run.clock_off(off) == approx(1950 / 1976 - 1, abs=3e-4)
    assert "warptiled at 2048: 1950, −1.3 %" in run.text()
    assert "warptiled" in set(run.frame().dropna(subset="clock_off").kernel)
    assert small_run(measurements=[measured("a"), measured("b")]).clock_off(measured("a")) is None
    at_2048 = {e.setting: e for e in effects(run, "warptiled") if e.shape[0] == 2048}
    assert at_2048["inputs"].clock == approx(0.0144, abs=1e-4) and not at_2048["inputs"].visible
    assert at_2048["offset"].clock == 0.0, "the same samples"
    lines = effects_text(run, "warptiled").splitlines()
    [line] = [line for line in lines if "inputs=zeros" in line]
    assert " +1.44 %  " in line
    assert {line.count(" to ") for line in lines if " % " in line} == {0, 1}, (
        "lowest and highest clock"
    )


def with_clock(us: float, mhz: float, slope: float = -1.0, noise: float = 0.0) -> Measurement:
    """Return 40 samples whose clock drifts by 0.5 % around `mhz`, and 2 that don't count.

    The time follows the clock. Each sample has 30 µs of event overhead.
    """
    drift = 1 + 0.0025 * np.sin(np.arange(40))
    scatter = np.random.default_rng(1).normal(0.0, noise, 40)
    times = [*(30 + us * drift**slope + scatter), 9 * us, 9 * us]
    clocks = [*(mhz * drift), mhz / 2, mhz / 2]
    samples = Samples(
        [LaunchSeries("a", times, clocks if mhz else [None] * 42)], [1] * 40 + [0, 0], 30.0
    )
    return replace(measured("a", us=us), time=Estimate(us, us, us), samples=samples)


@pytest.mark.parametrize(
    ("slope", "fitted"), [(-1.0, -1.0), (-0.6, -0.6), (0.0, 0.0), (-1.5, -1.0), (0.3, 0.0)]
)
def test_the_slope_is_fitted_to_the_samples_of_both_and_clamped(slope, fitted):
    first = with_clock(100.0, 1980.0, slope)
    second = with_clock(101.0, 1960.0, slope)
    found = small_run().difference(first, second)
    assert found.log == approx(math.log(1.01) - fitted * math.log(1960 / 1980), abs=2e-5)
    assert found.clock == approx(1960 / 1980 - 1, abs=1e-5) and found.noise == approx(
        PRECISION, abs=1e-5
    )
    by_host = small_run(harness=Harness().but(timer="host").as_dict())
    assert by_host.difference(first, second).noise > HOST_SD


def test_a_slope_that_the_samples_leave_open_is_assumed_and_its_doubt_is_in_the_noise():
    noisy = [with_clock(us, mhz, noise=3.0) for us, mhz in ((100.0, 1980.0), (101.0, 1960.0))]
    run = small_run()
    found = run.difference(*noisy)
    no_difference = run.difference(noisy[0], noisy[0])
    assert found.log == approx(math.log(1.01) + 0.8 * math.log(1960 / 1980), abs=1e-5)
    assert found.noise == approx(
        PRECISION + 0.2 * 20 / 1980, abs=1e-5
    ) and no_difference.noise == approx(PRECISION)
    unknown = [with_clock(us, 0.0) for us in (100.0, 101.0)]
    for pair in (unknown, (noisy[0], unknown[1]), (unknown[0], noisy[1])):
        assert run.difference(*pair)[::2] == (approx(math.log(1.01)), None), "as read"
    line = ([np.array([0.0, 0.01]), np.zeros(1)], [np.array([0.0, -0.007]), np.zeros(1)])
    assert fitted_slope(*line) == (approx(-0.7), math.inf), (
        "two samples of one group give a slope without a half-width"
    )


@pytest.mark.parametrize(("timers", "readings"), [(("host", "host"), 2), (("events", "host"), 1)])
def test_each_reading_of_a_host_clock_adds_its_scatter_to_the_noise(timers, readings):
    """Two readings of one kernel may differ by it between processes.

    So may a reading from an event's.
    """
    pair = [measured("a", us=us, timer=timer) for us, timer in zip((100, 130), timers, strict=True)]
    found = small_run().difference(*pair)
    assert found.noise > math.sqrt(readings) * HOST_HALF and not found.visible
    far = small_run().difference(pair[0], measured("a", us=300.0, timer="host"))
    assert far.visible, "more than the scatter"


@pytest.mark.parametrize(
    ("log", "noise", "visible"),
    [
        (0.01, 0.0, True),
        (0.01, 0.02, False),
        (-0.01, 0.0, True),
        (7e-5, 0.0, False),
        (-4e-4, 0.0, False),
        (0.0, 0.0, False),
    ],
)
def test_an_effect_is_visible_above_the_noise_and_if_it_does_not_print_as_0(log, noise, visible):
    statistic = effect_of("statistic", measurement(50.0, {"l2": "warm"}))
    effect = replace(statistic, biased=statistic.unbiased * math.exp(log), noise=noise)
    assert is_visible(log, noise) is visible is effect.visible
    assert Difference(log, noise, None).visible is visible
    assert {effect_in_words(effect, factors) == "0" for factors in (None, True, False)} == {
        not visible
    }
    assert (effect.step == 1.0) is not visible


def test_an_effect_of_a_row_in_factors_is_not_written_as_no_effect():
    statistic = effect_of("statistic", measurement(50.0, {"l2": "warm"}))
    for factor, text in ((1.0007, "× 1.0007"), (1 / 1.004, "÷ 1.0040"), (1.04, "× 1.04")):
        effect = replace(statistic, biased=statistic.unbiased * factor, noise=0.0)
        assert effect_in_words(effect, factors=True) == text


def test_the_assumed_constants_are_those_of_the_recordings():
    """The slope and its doubt, of the pairs that determine theirs.

    What a host clock reads in several measurements.
    """
    slopes = list[float]()
    for run in (recorded("h200"), recorded("grid/h100")):
        for first, second in (
            pair for pairs_of_setting in pairs(run).values() for pair in pairs_of_setting
        ):
            difference = run.difference(first, second)
            if abs(difference.clock or 0.0) > 1e-5:
                read = math.log((second.us or 0.0) / (first.us or 0.0))
                slopes.append((read - difference.log) / math.log1p(difference.clock or 0.0))
    fitted = [slope for slope in slopes if slope != approx(SLOPE, abs=1e-6)]
    assert (len(fitted), len(slopes)) == (31, 233)
    assert [min(fitted), max(fitted)] == approx([-1.0, -0.66], abs=0.005)
    assert abs(np.array(fitted) - SLOPE).max() <= SLOPE_HALF + 1e-6
    groups = defaultdict(list)
    for m in recorded("grid/h100").measurements:
        if m.changed.get("timer") == "host" and m.us:
            groups[m.kernel, m.shape].append(math.log(m.us))
    squares = sum(float(np.var(logs)) * len(logs) for logs in groups.values())
    assert math.sqrt(squares / sum(len(logs) - 1 for logs in groups.values())) == approx(
        HOST_SD, rel=0.02
    )


@pytest.mark.parametrize(("kernel", "size"), [("naive", 4096), ("vectorized", 1024)])
def test_once_the_timer_is_a_host_clock_no_step_has_a_sign(kernel, size):
    answers = Answers([recorded("grid/h100")])
    steps = {step.row[0]: step for step in answers.answer(kernel, size, **answers.naive).steps}
    after = [name for name in steps if name not in ("1 clocks", "2 timer")]
    assert {(steps[name].role, steps[name].row[-1]) for name in after} == {("grey", "within noise")}
    assert steps["2 timer"].difference.visible and not steps["1 clocks"].difference.visible
