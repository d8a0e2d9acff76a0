"""The panel without widgets: what is chosen, how far the reading is from the truth, and which lie added what."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pytest import approx

from tests.lab.grid import BUBBLE, HOST, OFFSET, small_grid
from worklog import lab
from worklog.bench.tasks import Task
from worklog.errors import BadRunFile, BadSetting, BadShape, UnknownRung
from worklog.lab import sources
from worklog.lab.model import Model, Step
from worklog.lab.picture import alt, body, whole
from worklog.lab.readings import NotRecorded
from worklog.lab.theme import colour
from worklog.lab.words import amount, headline, html, others, step_words, truth
from worklog.runs.run import recordings
from worklog.runs.statistics import Estimate
from worklog.settings import PITFALLS, Harness

GRID = small_grid()


def model(kernel: str = "warptiled", size: int = 1024, **biased: Any) -> Model:
    return Model([GRID], kernel, size, **biased)


def steps(chosen: Model) -> dict[str, float]:
    return {step_words(step)[0]: round(step.us, 1) for step in chosen.answer().steps}


def pitfall(setting: str) -> Any:
    return next(g for g in PITFALLS if g.setting == setting)


# ------------------------------------------------------------------------------------------------------------ choosing


def test_at_first_the_last_rung_at_the_middle_size_is_honest() -> None:
    first = Model([GRID])
    assert (first.kernel, str(first.shape), first.lying) == ("warptiled", "1024", [])
    assert first.kernels == ["naive", "warptiled"] and [str(s) for s in first.shapes] == ["256", "1024"]


def test_a_fix_turned_off_is_the_first_lie_and_on_again_the_honest_value() -> None:
    chosen = model()
    chosen.fix(pitfall("statistic"), False)
    assert chosen.settings["statistic"] == "mean"
    chosen.fix(pitfall("statistic"), True)
    assert chosen.settings["statistic"] == "median"


def test_a_fix_that_is_off_already_keeps_its_lie_and_an_honest_choice_stays() -> None:
    chosen = model(statistic="first", l2="rotate")
    chosen.fix(pitfall("statistic"), False)
    chosen.fix(pitfall("l2"), True)
    assert (chosen.settings["statistic"], chosen.settings["l2"]) == ("first", "rotate")


def test_all_naive_and_all_honest() -> None:
    chosen = model()
    chosen.all_naive()
    assert chosen.lying == list(PITFALLS)
    chosen.all_honest()
    assert chosen.lying == []


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("l2", "lukewarm", "l2 = 'lukewarm' is not a setting"),
        ("luck", True, "luck fixes no gremlin: choose from clocks"),
        ("budget_s", 1.0, "budget_s fixes no gremlin"),
    ],
)
def test_a_choice_that_is_none_changes_nothing(setting: str, value: Any, says: str) -> None:
    chosen = model()
    before = dict(chosen.settings)
    with pytest.raises(BadSetting, match=says):
        chosen.choose(setting, value)
    assert chosen.settings == before


def test_a_rung_or_size_that_is_none() -> None:
    with pytest.raises(UnknownRung):
        model("wraptiled")
    with pytest.raises(BadShape):
        model(size=0)


def test_settings_that_contradict_each_other_are_said_when_asked() -> None:
    with pytest.raises(BadSetting, match="graph"):
        model(timer="graph").answer()


# ----------------------------------------------------------------------------------------------------------- answering


def test_an_honest_answer_has_no_steps_and_does_not_lie() -> None:
    answer = model().answer()
    assert (answer.off, answer.biased, answer.steps, answer.changed) == (0.0, False, (), [])
    assert truth(answer).startswith("this is the honest reading, ±")


def test_how_far_off_a_reading_is() -> None:
    answer = model(l2="warm").answer()
    assert answer.off == approx(-0.2, abs=1e-3)
    told = r"honest: 140 µs; this reading lies by −20\.0 %, itself ±0\.0\d+ % \(95 %\) from 9 samples"
    assert re.fullmatch(told, truth(answer))


def test_each_lie_adds_its_step_in_the_tables_order_and_they_end_at_the_reading() -> None:
    chosen = model(queue=False, l2="warm", offset="kept")
    assert steps(chosen) == {"3 l2": -28.0, "queue": approx(BUBBLE, abs=0.1), "offset": OFFSET}
    answer = chosen.answer()
    assert answer.steps[-1].after == answer.reading and answer.steps[0].before == answer.unbiased


def test_a_host_clock_hides_what_the_other_lies_did() -> None:
    chosen = model(timer="host", l2="warm", queue=False)
    assert steps(chosen) == {"2 timer": HOST - 140.0, "3 l2": 0.0, "queue": 0.0}
    assert [step.visible for step in chosen.answer().steps] == [True, False, False]


def test_lies_that_were_measured_only_together_are_one_step() -> None:
    run = small_grid(without=({"l2": "warm"},))
    found = Model([run], "warptiled", 1024, l2="warm", queue=False).answer().steps
    assert [step_words(step)[0] for step in found] == ["3 l2 + queue"]


def test_what_does_not_change_the_time_is_no_step() -> None:
    answer = model(baseline="tf32", roof="bf16_datasheet").answer()
    assert answer.steps == () and len(answer.changed) == 2 and not answer.biased
    assert [line.split(":")[0] for line in others(answer)] == ["of cuBLAS", "of the roof"]


def test_a_gate_that_is_off_is_said() -> None:
    answer = model(gate=False).answer()
    assert "the gate is off: nobody asked whether the result is right" in others(answer)


def test_a_gate_that_asks_too_little_is_said() -> None:
    [line] = others(model(gate="article").answer())
    assert line.startswith("the gate asked only the article's rule")


def test_a_statistic_that_changes_nothing_that_is_printed_does_not_lie() -> None:
    answer = model(statistic="mean").answer()
    assert not answer.biased and [step.visible for step in answer.steps] == [False]
    assert "by less than its noise" in truth(answer)


@pytest.mark.parametrize("statistic", ["first", "min", "mean"])
def test_only_a_median_has_an_interval(statistic: str) -> None:
    told = truth(model(statistic=statistic, l2="warm").answer())
    assert told.endswith(f" %, itself the {statistic} of 9 samples")


def test_the_first_run_that_holds_a_combination_answers_and_is_compared_with_itself() -> None:
    live = small_grid()
    live.origin, live.measurements = "live", [m for m in live.measurements if m.changed in ({}, {"l2": "warm"})]
    chosen = model(l2="warm")
    chosen.add(live)
    answer = chosen.answer()
    assert answer.reading.run is live and answer.unbiased.run is live
    chosen.choose("queue", False)
    assert chosen.answer().reading.run is GRID


def test_without_any_run_there_is_something_to_measure_and_nothing_to_show() -> None:
    empty = Model([])
    assert len(empty.kernels) == len(empty.shapes) == 3
    with pytest.raises(NotRecorded, match="nothing has been measured"):
        empty.answer()


def test_what_is_measured_is_the_honest_reading_and_the_chosen_launches() -> None:
    tasks = model(l2="warm", gate=False, statistic="min").tasks()
    assert [task.pitfalls for task in tasks] == [{}, {"l2": "warm", "gate": False}]
    assert all(isinstance(task, Task) and Harness().but(**dict(task.changed)) for task in tasks)
    assert len(model(statistic="min").tasks()) == 1


# ------------------------------------------------------------------------------------------------ words and pictures


@pytest.mark.parametrize(
    ("off", "says"),
    [
        (-0.083, "lies by −8.3 %"),
        (0.5, "lies by +50.0 %"),
        (9.0, "is 10 times too long"),
        (-0.99, "is 100 times too short"),
    ],
)
def test_an_amount_in_words(off: float, says: str) -> None:
    assert amount(off) == says


def test_the_headline_is_time_rate_and_share() -> None:
    assert headline(model().answer().reading) == "140 µs → 15.3 TFLOP/s → 35.7 % of cuBLAS"


def test_a_rate_that_cannot_be_is_still_a_number_that_one_can_read() -> None:
    unbiased = model().answer().reading
    absurd = replace(unbiased, time=Estimate(1.0, 1.0, 1.0))
    assert headline(absurd).startswith("1 µs → 2147 TFLOP/s → ")


def test_a_lie_is_in_the_colour_of_lies() -> None:
    assert colour("lie") in html(model(l2="warm").answer()) and colour("lie") not in html(model().answer())


def test_the_picture_says_in_words_what_it_shows() -> None:
    answer = model(l2="warm", queue=False).answer()
    for chart in (body(answer), whole(answer)):
        assert chart.alt == alt(answer)
        for part in ("warptiled at 1024, l2 = warm, queue = off", "3 l2: −28 µs; queue: +20", GRID.label):
            assert part in chart.alt
        assert 'role="img"' in chart.svg()


def test_the_picture_of_a_step_that_is_not_visible() -> None:
    answer = model(clocks="ignored").answer()
    assert isinstance(answer.steps[0], Step) and step_words(answer.steps[0]) == ("1 clocks", "not visible")
    assert body(answer).png()


@pytest.mark.parametrize("size", [256, 1024])
def test_the_static_twin_shows_the_source(size: int) -> None:
    naive = {g.setting: g.biased[0] for g in PITFALLS}
    chart = lab.panel_static("naive", size, run=GRID, **naive)
    assert GRID.label.replace("as found", "ignored") in [text.get_text() for text in chart.texts]


def test_the_same_answer_gives_the_same_bytes() -> None:
    assert whole(model(l2="warm").answer()).svg() == whole(model(l2="warm").answer()).svg()


# -------------------------------------------------------------------------------------------------------------- sources


def test_a_missing_grid_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "recordings", dict)
    with pytest.raises(BadRunFile, match="worklog grid --out"):
        lab.panel_static()


def test_the_recording_that_is_looked_at_first_is_the_ladders() -> None:
    assert next(iter(recordings())) == "h200"


def test_live_only_starts_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert sources.runs() == []


def test_measuring_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "gpu_reason", lambda: None)
    assert sources.why_not_live() is None
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    assert sources.why_not_live() == "WORKLOG_SOURCE=recorded"


def test_the_panels_runs_are_not_among_those_looked_at_by_default() -> None:
    path = sources.new_file()
    assert path.parent.name == "panel" and path.suffix == ".json"
