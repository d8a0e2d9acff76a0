"""The effect of each pitfall, from a run whose numbers are chosen by the test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pytest import approx

from tests.helpers import CALIBRATION, GPU
from worklog.errors import NothingToDraw
from worklog.problem.gemm import Shape, tflops
from worklog.runner.job import ablation_jobs, work_of
from worklog.runs import Estimate, Measurement, Roof, Run, Samples, Side, Work
from worklog.runs.ablation import effect_in_words, effects, effects_text
from worklog.runs.samples import PRECISION
from worklog.settings import BF16_DATASHEET_TFLOPS, HOW_ONE_MEASURES, PITFALLS, Harness

SIZE = Shape.of(1024)
OFFSET = 3.0
UNBIASED_US = 60.0


def measurement(us: float, changed: dict[str, Any] | None = None, **more: Any) -> Measurement:
    samples = Samples([Side("warptiled", [us + OFFSET] * 9 + [10 * us + OFFSET])], [1] * 10)
    values: dict[str, Any] = {
        "time": Estimate(us, us * 0.999, us * 1.001),
        "against": {"cuBLAS": Estimate(48.0 / us, 48.0 / us, 48.0 / us)},
        "work": work_of(SIZE),
        "roof": Roof(2 * tflops(SIZE, UNBIASED_US)),
        "samples": samples,
    }
    return Measurement("warptiled", (SIZE.m, SIZE.n, SIZE.k), changed=changed or {}, **(values | more))


def run(*biased: Measurement) -> Run:
    calibration = replace(CALIBRATION, offset_us=OFFSET)
    return Run({}, GPU, calibration, measurements=[measurement(UNBIASED_US), *biased])


def effect_of(setting: str, *biased: Measurement) -> Any:
    return next(effect for effect in effects(run(*biased), "warptiled") if effect.setting == setting)


def test_a_measured_effect_is_the_biased_number_over_the_unbiased_one() -> None:
    effect = effect_of("l2", measurement(UNBIASED_US / 1.4, {"l2": "warm"}))
    assert effect.factor == approx(1.4)
    assert (effect.value, effect.corrupts, effect.article, effect_in_words(effect)) == ("warm", "TFLOP/s", 3, "+40.0 %")
    other_baseline = measurement(UNBIASED_US, {"baseline": "tf32"}, against={"cuBLAS": Estimate(0.1, 0.099, 0.101)})
    unbiased = measurement(UNBIASED_US, against={"cuBLAS": Estimate(0.8, 0.78, 0.82)})
    both = Run({}, GPU, CALIBRATION, measurements=[unbiased, other_baseline])
    [effect] = [effect for effect in effects(both, "warptiled") if effect.setting == "baseline"]
    assert effect.noise == approx(PRECISION + 0.025 + 0.01)
    assert effect.corrupts == "of cuBLAS" and effect.factor == approx(0.1 / (48.0 / UNBIASED_US))


def test_an_effect_of_the_arithmetic_is_computed_from_the_unbiased_samples() -> None:
    warm = measurement(UNBIASED_US, {"l2": "warm"})
    kept, mean, roof = (effect_of(setting, warm) for setting in ("offset", "statistic", "roof"))
    assert kept.factor == approx(UNBIASED_US / (UNBIASED_US + OFFSET)) and kept.noise == 0.0
    assert mean.factor == approx(UNBIASED_US / (UNBIASED_US * 1.9))
    assert roof.biased == approx(tflops(SIZE, UNBIASED_US) / BF16_DATASHEET_TFLOPS) and roof.unbiased == 0.5


def test_a_cold_start_has_a_row_for_its_first_launch_too() -> None:
    cold = measurement(
        UNBIASED_US, {"warmup": "none"}, samples=Samples([Side("warptiled", [600.0 + OFFSET, 60.0])], [1, 1])
    )
    assert effect_of("first_launch", cold).factor == approx(0.1)
    assert effect_of("warmup", cold).factor == approx(1.0)


def test_biased_settings_that_were_measured_together_have_a_row() -> None:
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    assert effect_of("article", measurement(10.0, four)).factor == approx(6.0)
    every = {g.setting: g.biased[0] for g in PITFALLS if g.setting in HOW_ONE_MEASURES}
    assert effect_of("all", measurement(5.0, every)).factor == approx(12.0)
    warm = run(measurement(10.0, {name: value for name, value in four.items() if name != "l2"}))
    warm.harness = Harness().but(l2="warm").as_dict()
    assert "article" in [effect.setting for effect in effects(warm, "warptiled")], "the run's own bias is in both"


@pytest.mark.parametrize(("factor", "words"), [(200.0, "× 200"), (0.005, "÷ 200"), (0.9, "-10.0 %"), (1.004, "0")])
def test_an_effect_in_words(factor: float, words: str) -> None:
    effect = effect_of("l2", measurement(UNBIASED_US / factor, {"l2": "warm"}))
    assert effect_in_words(effect) == words and effect.visible == (words != "0")


def test_another_combination_and_an_impossible_reading_are_no_effect_and_no_ablation_is_an_error() -> None:
    combination = measurement(5.0, {"l2": "warm", "queue": False})
    for biased in (combination, measurement(UNBIASED_US, {"l2": "warm"}, work=Work())):
        found = {effect.setting for effect in effects(run(biased), "warptiled")}
        assert found == {"offset", "statistic", "roof"}, "those that are computed"
    with pytest.raises(NothingToDraw, match="worklog ablate warptiled"):
        effects(run(), "warptiled")


def test_the_jobs_measure_every_pitfall_that_needs_launches_and_the_table_shows_them() -> None:
    jobs = ablation_jobs("warptiled", [SIZE])
    shown = effects_text(run(*[measurement(50.0, job.pitfalls) for job in jobs if job.pitfalls]), "warptiled")
    assert all(pitfall.title[:40] in shown for pitfall in PITFALLS)
