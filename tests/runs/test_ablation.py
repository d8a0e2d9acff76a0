"""What each lie did to the number, told from a run whose numbers are chosen by the test."""

from __future__ import annotations

from typing import Any

import pytest
from pytest import approx

from worklog.bench.tasks import ablation_tasks
from worklog.errors import NothingToDraw
from worklog.problem.gemm import Shape, tflops
from worklog.runs.ablation import effects, percent, text
from worklog.runs.run import Measurement, Run
from worklog.settings import BF16_DATASHEET_TFLOPS, HOW_ONE_MEASURES, PITFALLS

SIZE = Shape.of(1024)
OFFSET = 3.0
HONEST_US = 60.0


def measurement(us: float, changed: dict[str, Any] | None = None, **more: Any) -> Measurement:
    values: dict[str, Any] = {
        "us": us,
        "us_low": us * 0.999,
        "us_high": us * 1.001,
        "tflops": tflops(SIZE, us),
        "ratio": 48.0 / us,
        "ratio_low": 48.0 / us,
        "ratio_high": 48.0 / us,
        "of_roof": 0.5,
        "samples": {"us": [us + OFFSET] * 9 + [10 * us + OFFSET], "counts": [1] * 10},
    }
    shape = (SIZE.m, SIZE.n, SIZE.k)
    return Measurement("warptiled", shape, "measured", changed=changed or {}, **(values | more))


def run(*lying: Measurement) -> Run:
    return Run(
        {"name": "Virtual"}, {}, calibration={"offset_us": OFFSET}, measurements=[measurement(HONEST_US), *lying]
    )


def effect_of(setting: str, *lying: Measurement) -> Any:
    return next(effect for effect in effects(run(*lying), "warptiled") if effect.setting == setting)


def test_a_measured_lie_is_its_number_over_the_honest_one() -> None:
    effect = effect_of("l2", measurement(HONEST_US / 1.4, {"l2": "warm"}))
    assert effect.factor == approx(1.4)
    assert (effect.value, effect.corrupts, effect.article, percent(effect)) == ("warm", "TFLOP/s", 3, "+40.0 %")


def test_a_lie_about_the_baseline_moves_the_share_of_cublas_and_not_the_rate() -> None:
    lying = measurement(HONEST_US, {"baseline": "tf32"}, ratio=0.1, ratio_low=0.1, ratio_high=0.1)
    effect = effect_of("baseline", lying)
    assert effect.corrupts == "of cuBLAS"
    assert effect.factor == approx(0.1 / (48.0 / HONEST_US))


def test_an_offset_that_is_kept_is_told_from_the_honest_samples() -> None:
    effect = effect_of("offset", measurement(HONEST_US, {"l2": "warm"}))
    assert effect.factor == approx(HONEST_US / (HONEST_US + OFFSET))
    assert effect.noise == 0.0


def test_a_mean_is_told_from_the_honest_samples() -> None:
    effect = effect_of("statistic", measurement(HONEST_US, {"l2": "warm"}))
    assert effect.factor == approx(HONEST_US / (HONEST_US * 1.9))


def test_the_wrong_roof_shrinks_the_share_of_the_roof() -> None:
    effect = effect_of("roof", measurement(HONEST_US, {"l2": "warm"}))
    assert effect.biased == approx(tflops(SIZE, HONEST_US) / BF16_DATASHEET_TFLOPS)
    assert effect.unbiased == 0.5


def test_a_cold_start_is_also_told_as_the_first_launch_believed() -> None:
    cold = measurement(HONEST_US, {"warmup": "none"}, samples={"us": [600.0 + OFFSET, 60.0], "counts": [1, 1]})
    assert effect_of("first_launch", cold).factor == approx(0.1)
    assert effect_of("warmup", cold).factor == approx(1.0)


def test_lies_let_loose_together_are_named_for_what_they_are() -> None:
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    assert effect_of("article", measurement(10.0, four)).factor == approx(6.0)
    every = {g.setting: g.biased[0] for g in PITFALLS if g.setting in HOW_ONE_MEASURES}
    assert effect_of("all", measurement(5.0, every)).factor == approx(12.0)


def test_a_combination_without_a_name_is_no_row() -> None:
    some = measurement(5.0, {"l2": "warm", "queue": False})
    assert {e.setting for e in effects(run(some), "warptiled")} == {"offset", "statistic", "roof"}  # the computed ones


def test_an_effect_within_the_noise_is_none() -> None:
    effect = effect_of("l2", measurement(HONEST_US * 1.004, {"l2": "warm"}))
    assert not effect.visible
    assert percent(effect) == "0"


@pytest.mark.parametrize(("factor", "says"), [(200.0, "× 200"), (0.005, "÷ 200"), (0.9, "-10.0 %")])
def test_an_effect_in_words(factor: float, says: str) -> None:
    assert percent(effect_of("l2", measurement(HONEST_US / factor, {"l2": "warm"}))) == says


def test_a_run_without_an_ablation_says_how_to_make_one() -> None:
    with pytest.raises(NothingToDraw, match="worklog ablate warptiled"):
        effects(run(), "warptiled")


def test_the_plan_measures_every_lie_that_needs_launches_and_the_table_shows_them() -> None:
    tasks = ablation_tasks("warptiled", [SIZE])
    alone = {next(iter(task.pitfalls)) for task in tasks if len(task.pitfalls) == 1}
    assert alone == {pitfall.setting for pitfall in PITFALLS if pitfall.resampled}
    shown = text(run(*[measurement(50.0, task.pitfalls) for task in tasks if task.pitfalls]), "warptiled")
    assert all(pitfall.title[:40] in shown for pitfall in PITFALLS)
