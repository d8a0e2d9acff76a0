"""The ablation chart: every pitfall has a row, cells show the effect, and the waterfall leads to the naive reading."""

from __future__ import annotations

import math

import pytest

from tests.plots.conftest import NAIVE_READING
from tests.plots.test_charts import collisions, drawn, said
from worklog.errors import NothingToDraw
from worklog.plots import Chart, ablation
from worklog.plots.ablation import REMAINDER, Fall, falls
from worklog.problem.gemm import Shape
from worklog.runs.ablation import effects
from worklog.runs.run import Run
from worklog.settings import PITFALLS


def every_fall(run: Run) -> dict[Shape, Fall]:
    return falls(effects(run, "warptiled"))


def words(chart: Chart) -> list[str]:
    return [text.get_text() for text in chart.axes[0].texts]


def test_every_measured_pitfall_has_a_row_the_articles_four_first_and_the_combined_ones_last(h200: Run) -> None:
    visible = {e.setting for e in effects(h200, "warptiled") if e.visible}
    rows = words(drawn("ablation"))
    shown = [pitfall for pitfall in PITFALLS if pitfall.setting in visible]
    places = [rows.index(f"{p.article} {p.title}" if p.article else p.title) for p in shown]
    assert len(places) >= 9 and places == sorted(places)
    assert [title[0] for title in rows if title[0] in "1234" and title[1] == " "] == ["2", "3", "4", "4"]
    assert places[-1] < rows.index("the article's four together") < len(rows) - 2


def test_settings_without_a_visible_effect_are_named_in_one_line() -> None:
    assert "No visible effect at any size: 1 clocks drift, wrong answers are fast." in said(drawn("ablation"))
    assert "1 clocks drift" not in words(drawn("ablation")) and "1 clocks drift" in drawn("ablation").alt


def test_an_effect_that_is_the_same_at_every_size_is_pale() -> None:
    axes = drawn("ablation").axes[0]
    cells = [(text.get_text(), text.get_position()) for text in axes.texts]

    def strength(effect: str) -> float:
        [x, y] = next(at for text, at in cells if text == effect)
        return next(p.get_alpha() or p.get_facecolor()[3] for p in axes.patches if p.get_bbox().contains(x, y))

    assert strength("÷ 14.8") < 0.3 < strength("+31.0 %") < strength("× 609") == 1


def test_cells_show_the_effect_and_their_colour_its_sign() -> None:
    axes = drawn("ablation").axes[0]
    cells = {text.get_text(): text.get_position() for text in axes.texts}
    assert "× 609" in cells

    def red_less_blue(effect: str) -> float:
        x, y = cells[effect]
        [cell] = [p for p in axes.patches if p.get_fill() and p.get_bbox().contains(x, y)]
        red, _, blue, _ = cell.get_facecolor()
        return red - blue

    assert red_less_blue("+31.0 %") > 0 > red_less_blue("÷ 14.8")


def test_the_title_names_the_largest_gremlin_without_an_exponent(h200: Run) -> None:
    headline = drawn("ablation").headline.replace("\u00a0", " ")
    assert headline == "The largest gremlin in warptiled's TFLOP/s: the launch is asynchronous, × 609 at 4096"
    assert "× 63 600 at 4096" in ablation(h200, "naive").headline.replace("\u00a0", " ")


def test_a_size_without_an_ablation_is_an_error_that_names_the_others(h200: Run) -> None:
    assert "at 512" in ablation(h200, "warptiled", 512).headline.replace("\u00a0", " ")
    with pytest.raises(NothingToDraw, match=r"warptiled at 100, only at 256, "):
        ablation(h200, "warptiled", 100)
    with pytest.raises(NothingToDraw, match="no ablation of shared"):
        ablation(h200, "shared")


def test_an_ablation_without_a_combined_reading_has_no_waterfall(h200: Run) -> None:
    h200.measurements = [m for m in h200.measurements if len(m.changed) < 2]
    chart = ablation(h200)
    assert len(chart.axes) == 1 and collisions(chart) == [] and "no combined reading" in said(chart)


def test_the_steps_lead_from_the_unbiased_to_the_naive_reading(h200: Run) -> None:
    every = every_fall(h200)
    assert list(every) == [Shape.of(n) for n in (256, 512, 1024, 2048, 4096)]
    for fall in every.values():
        assert fall.combined.unbiased * math.prod(fall.steps.values()) == pytest.approx(fall.combined.biased)
        assert fall.remainder.factor == pytest.approx(fall.steps[REMAINDER])


def test_the_steps_are_the_combined_settings_that_move_the_rate_and_invisible_ones_are_1(h200: Run) -> None:
    fall = every_fall(h200)[Shape.of(512)]
    rates = {pitfall.setting for pitfall in PITFALLS if pitfall.corrupts == "TFLOP/s"}
    assert set(fall.steps) == (rates & NAIVE_READING.keys()) | {"statistic", REMAINDER}
    assert {"queue", "placement"} < set(fall.steps)
    assert fall.steps["clocks"] == 1 and fall.steps["l2"] == pytest.approx(1.31)
    h200.measurements = [m for m in h200.measurements if len(m.changed) < 5]
    assert set(every_fall(h200)[Shape.of(512)].steps) == {"clocks", "timer", "l2", "warmup", REMAINDER}


def test_the_waterfall_is_at_4096_else_at_the_largest_size(h200: Run) -> None:
    assert "reading at 4096;" in said(ablation(h200, "naive")).replace("\n", " ")
    h200.measurements = [m for m in h200.measurements if m.shape[0] < 2048]
    assert "reading at 1024;" in said(ablation(h200, "naive")).replace("\n", " ")
