"""The waterfall leads from the honest to the naive reading, whatever the lies do to each other."""

from __future__ import annotations

import math

import pytest

from worklog.plots.waterfall import REMAINDER, clearest, factor, falls
from worklog.problem.gemm import Shape
from worklog.runs.ablation import effects
from worklog.runs.run import Run


def test_the_steps_lead_from_the_honest_to_the_naive_reading(h200: Run) -> None:
    every = falls(h200, effects(h200, "warptiled"))
    assert list(every) == [Shape.of(n) for n in (256, 512, 1024, 2048, 4096)]
    for fall in every.values():
        assert fall.unbiased * math.prod(fall.steps.values()) == pytest.approx(fall.naive)
        assert list(fall.steps)[-1] == REMAINDER


def test_only_lies_of_the_combined_reading_about_the_rate_are_steps(h200: Run) -> None:
    fall = falls(h200, effects(h200, "warptiled"))[Shape.of(512)]
    assert set(fall.steps) == {"clocks", "timer", "l2", "warmup", "queue", "offset", "statistic", REMAINDER}


def test_an_invisible_lie_is_no_step(h200: Run) -> None:
    fall = falls(h200, effects(h200, "warptiled"))[Shape.of(512)]
    assert fall.steps["clocks"] == 1
    assert fall.steps["l2"] == pytest.approx(1.31)


def test_the_remainder_is_what_single_lies_do_not_explain(h200: Run) -> None:
    fall = falls(h200, effects(h200, "warptiled"))[Shape.of(512)]
    alone = math.prod(step for setting, step in fall.steps.items() if setting != REMAINDER)
    assert fall.remainder.factor == pytest.approx(fall.naive / fall.unbiased / alone)
    assert fall.remainder.lying == fall.naive


def test_the_size_with_the_smallest_large_step_is_chosen(h200: Run) -> None:
    every = falls(h200, effects(h200, "naive"))
    assert clearest(every) is every[Shape.of(256)]
    assert clearest({}) is None


def test_without_all_lies_the_articles_four_make_the_waterfall(h200: Run) -> None:
    h200.measurements = [m for m in h200.measurements if len(m.changed) < 5]
    fall = falls(h200, effects(h200, "warptiled"))[Shape.of(512)]
    assert set(fall.steps) == {"clocks", "timer", "l2", "warmup", REMAINDER}


@pytest.mark.parametrize(("unbiased", "lying"), [(0.0, 1.0), (1.0, 0.0), (1.0, -2.0), (1.0, math.inf), (1.0, math.nan)])
def test_an_impossible_reading_has_no_factor(h200: Run, unbiased: float, lying: float) -> None:
    from dataclasses import replace

    assert factor(replace(effects(h200, "naive")[0], unbiased=unbiased, lying=lying)) is None
