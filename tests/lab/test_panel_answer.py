"""The panel without widgets: the choices, the distance from the unbiased reading, and what each setting adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pytest import approx

from tests.lab.grid import BUBBLE, HOST, OFFSET, small_grid
from worklog import lab
from worklog.errors import BadRunFile, BadSetting, BadShape, UnknownRung
from worklog.lab import choice
from worklog.lab.choice import NotRecorded
from worklog.lab.panel_answer import PanelChoice, amount, picture
from worklog.runs.run import recordings
from worklog.runs.samples import Estimate
from worklog.settings import PITFALLS, Harness

GRID = small_grid()


def chosen(kernel: str = "warptiled", size: int = 1024, **biased: Any) -> PanelChoice:
    return PanelChoice([GRID], kernel, size, **biased)


def test_the_panel_begins_unbiased_with_the_last_rung_at_the_middle_size() -> None:
    first = PanelChoice([GRID])
    assert (first.kernel, str(first.shape), first.biased) == ("warptiled", "1024", [])
    assert first.kernels == ["naive", "warptiled"] and [str(s) for s in first.shapes] == ["256", "1024"]
    first.all_naive()
    assert first.biased == list(PITFALLS)
    first.all_unbiased()
    assert first.biased == []


def test_what_cannot_be_answered_is_an_error() -> None:
    with pytest.raises(UnknownRung):
        chosen("wraptiled")
    with pytest.raises(BadShape):
        chosen(size=0)
    for setting, value in (("l2", "lukewarm"), ("luck", True), ("budget_s", 1.0)):
        with pytest.raises(BadSetting, match=setting):
            chosen(**{setting: value})
    with pytest.raises(BadSetting, match="graph"):
        chosen(timer="graph").answer()
    empty = PanelChoice([])
    assert len(empty.kernels) == len(empty.shapes) == 3, "there is something to measure"
    with pytest.raises(NotRecorded, match="nothing has been measured"):
        empty.answer()


def test_the_tasks_are_the_unbiased_reading_and_the_chosen_launches() -> None:
    tasks = chosen(l2="warm", gate=False, statistic="min").tasks()
    assert [task.pitfalls for task in tasks] == [{}, {"l2": "warm", "gate": False}]
    assert all(Harness().but(**dict(task.changed)) for task in tasks)
    assert len(chosen(statistic="min").tasks()) == 1


def test_a_reading_is_compared_with_the_unbiased_one() -> None:
    answer = chosen().answer()
    assert (answer.off, answer.biased, answer.steps, answer.changed) == (0.0, False, (), [])
    assert "unbiased reading · ±" in answer.comparison
    assert answer.headline == "140 µs → 15.3 TFLOP/s → 35.7 % of cuBLAS"
    answer = chosen(l2="warm").answer()
    assert answer.off == approx(-0.2, abs=1e-3)
    assert "unbiased 140 µs · this reading is 20.0 % lower · ±" in answer.comparison
    assert "(95 %) from 9 samples" in answer.comparison


@pytest.mark.parametrize(
    ("biased", "steps"),
    [
        ({"queue": False, "l2": "warm", "offset": "kept"}, {"3 l2": -28.0, "queue": BUBBLE, "offset": OFFSET}),
        ({"timer": "host", "l2": "warm", "queue": False}, {"2 timer": HOST - 140.0, "3 l2": 0.0, "queue": 0.0}),
        ({"clocks": "ignored"}, {"1 clocks": 0.0}),
    ],
)
def test_each_setting_adds_a_step_in_the_tables_order(biased: dict[str, Any], steps: dict[str, float]) -> None:
    answer = chosen(**biased).answer()
    assert [step.name for step in answer.steps] == list(steps)
    assert [step.us for step in answer.steps] == approx(list(steps.values()), abs=0.1)
    assert [step.visible for step in answer.steps] == [us != 0 for us in steps.values()]
    assert (answer.steps[0].before, answer.steps[-1].after) == (answer.unbiased, answer.reading)
    assert picture(answer, beside=True).png()


def test_settings_that_were_measured_only_together_are_one_step() -> None:
    run = small_grid(without=({"l2": "warm"},))
    found = PanelChoice([run], "warptiled", 1024, l2="warm", queue=False).answer().steps
    assert [step.name for step in found] == ["3 l2 + queue"]


def test_what_moves_only_shares_or_is_printed_as_zero_is_not_biased() -> None:
    answer = chosen(baseline="tf32", roof="bf16_datasheet").answer()
    assert answer.steps == () and len(answer.changed) == 2 and not answer.biased
    assert [line.partition(":")[0] for line in answer.others] == ["share of cuBLAS", "share of the roof"]
    answer = chosen(statistic="mean").answer()
    assert not answer.biased and [step.visible for step in answer.steps] == [False]
    assert "within the noise" in answer.comparison


def test_a_gate_that_checks_too_little_and_a_statistic_without_an_interval_are_shown() -> None:
    for gate, words in ((False, "not checked"), ("article", "the article's rule")):
        [line] = chosen(gate=gate).answer().others
        assert words in line
    for statistic in ("first", "min", "mean"):
        assert chosen(statistic=statistic, l2="warm").answer().comparison.endswith(f" · {statistic} of 9 samples")


def test_the_first_run_that_holds_a_combination_answers_and_is_compared_with_itself() -> None:
    live = small_grid()
    live.origin, live.measurements = "live", [m for m in live.measurements if m.changed in ({}, {"l2": "warm"})]
    found = PanelChoice([live, GRID], "warptiled", 1024, l2="warm")
    answer = found.answer()
    assert answer.reading.run is live and answer.unbiased.run is live
    found.choose("queue", False)
    assert found.answer().reading.run is GRID


def test_numbers_are_written_in_words_that_suit_their_size() -> None:
    amounts = {-0.083: "8.3 % lower", 0.5: "50.0 % higher", 9.0: "10 times too long", -0.99: "100 times too short"}
    assert {off: amount(off) for off in amounts} == amounts
    answer = chosen().answer()
    impossible = replace(answer, reading=replace(answer.reading, time=Estimate(1.0, 1.0, 1.0)))
    assert " 2147 TFLOP/s" in impossible.headline


def test_the_picture_has_the_answer_as_text_and_its_source() -> None:
    answer = chosen(l2="warm", queue=False).answer()
    chart = picture(answer)
    assert chart.alt.startswith(". ".join(answer.sentences)) and 'role="img"' in chart.svg()
    for part in ("warptiled at 1024, l2 = warm, queue = off", "3 l2: −28 µs; queue: +20", GRID.label):
        assert part in chart.alt
    assert chart.svg() == picture(answer).svg()
    naive = lab.panel_static("naive", 256, run=GRID, **Harness.naive().biased())
    assert GRID.label.replace("as found", "ignored") in [text.get_text() for text in naive.texts]


def test_where_the_panels_runs_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(iter(recordings())) == "h200", "the default recording is the ladder's"
    path = choice.new_file()
    assert path.parent.name == "panel" and path.suffix == ".json", "in a folder that no command opens by default"
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert choice.grid_runs() == []
    monkeypatch.delenv("WORKLOG_SOURCE")
    monkeypatch.setattr(choice, "recordings", dict)
    with pytest.raises(BadRunFile, match="worklog grid --out"):
        lab.panel_static()


def test_what_was_recorded_is_computed_from_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = dict(lab.recorded(GRID).rows)
    assert (facts["rungs"], facts["sizes"]) == ("naive, warptiled", "256, 1024")
    assert facts["one setting changed"].startswith("clocks = ignored, timer = host, l2 = warm, warmup = none, queue")
    assert facts["two of these"] == "36 of 36 pairs"
    assert facts["three or more of these"] == (
        "every combination of clocks, timer, l2, warmup, queue; and all of these settings together"
    )
    assert "l2 = rotate" in facts["not recorded"] and "l2 = warm" not in facts["not recorded"]
    fewer = dict(lab.recorded(small_grid(without=({"l2": "warm", "queue": False}, {"inputs": "zeros"}))).rows)
    assert fewer["two of these"] == "27 of 28 pairs" and "inputs = zeros" in fewer["not recorded"]
    assert fewer["three or more of these"] == "every combination of clocks, timer, l2, warmup"
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert "measurements of at most" in str(lab.recorded())


def test_with_a_gpu_recorded_only_is_the_reason_not_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "gpu_reason", lambda: None)
    assert choice.why_not_live() is None
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    assert choice.why_not_live() == "WORKLOG_SOURCE=recorded"
