"""A bet on a step: what it shows before and after, what the journal keeps, and what it refuses."""

import json
import math
from dataclasses import replace

import pytest
from pytest import approx

from tests.helpers import measured, small_run
from worklog import lab
from worklog.errors import BadSetting, NothingToDraw
from worklog.kernel import RUNGS
from worklog.kernel.prediction import bound
from worklog.lab import bets
from worklog.lab.bets import BetView, step_to
from worklog.lab.journal import journal
from worklog.problem import Shape
from worklog.runs.sources import runs_dir

TIMES = {"naive": 900.0, "coalesced": 100.0, "wgmma": 60.0, "split": 30.0}


@pytest.fixture(autouse=True)
def _timed_by_hand(monkeypatch):
    """Let each kernel of TIMES have its time, whatever was recorded."""

    def results(names, shapes):
        [shape] = shapes
        timed = [measured(name, shape.n, us=TIMES[name]) for name in names]
        return small_run(measurements=timed)

    monkeypatch.setattr(bets, "results", results)


def bars_of(chart):
    """Return the numbers of a chart by the name of their bars."""
    rows = (row.partition(": ") for row in chart.rows)
    return {name: float(text.rpartition(" ")[2]) for name, _, text in rows}


def kept():
    lines = (runs_dir().parent / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_bet_is_drawn_beside_the_floors_and_the_measured_factor():
    floors = [bound(record, Shape.of(4096)).ms for record in RUNGS[:2]]
    chart = lab.bet("coalesced", 4)
    assert bars_of(chart) == {
        "the floors": approx(floors[0] / floors[1], rel=5e-3),
        "your bet": 4,
        "measured": 9,
    }
    for text in ("you said 4", "the floors say 16.5", "it was 9 times as fast"):
        assert text in chart.headline
    assert small_run().label in chart.alt
    assert [*bars_of(lab.step("coalesced"))] == ["the floors", "measured"]


def test_no_answer_reaches_the_page_before_the_bet():
    view = lab.bet("coalesced")
    state = json.dumps({name: value for name, value in view.get_state().items() if name[0] != "_"})
    bundle, _ = view._repr_mimebundle_()
    for shown in (state, bundle["text/plain"], bundle["text/html"]):
        assert "coalesced" in shown
        assert not any(answer in shown for answer in ("16.5", 'times as fast"', "measured", "900"))
    assert not (runs_dir().parent / "journal.jsonl").exists()
    view.set_state({"bet": 3.0})
    assert "your bet" in view.reveal
    assert "you said 3" in view.reveal
    assert view.text()[0] == lab.bet("coalesced", 3).alt
    assert view.html() == view.reveal


def test_the_journal_keeps_the_first_bet_on_each_step_and_size():
    lab.bet("coalesced", 4.5)
    lab.bet("coalesced", 9)
    lab.bet("coalesced", 9, shape=1024)
    lab.bet("split", earlier="naive").set_state({"bet": 15.0})
    assert [entry["exercise"] for entry in kept()][1:] == [
        "coalesced at 4096",
        "coalesced at 1024",
        "split at 4096",
    ]
    [row] = [line for line in journal().splitlines() if line.startswith("| coalesced at 4096")]
    asked, predicted, factor, gap, answers = [cell.strip() for cell in row.split("|")][3:8]
    assert (predicted, factor, gap, answers) == ("4.5", "9", "−50 %", "2")
    assert "naive" in asked
    assert kept()[-1]["measured"] == 30
    (runs_dir().parent / "journal.jsonl").unlink()
    (runs_dir().parent / "journal.jsonl").mkdir()
    view = lab.bet("coalesced")
    view.bet = 2.0
    assert "not kept in" in view.verdict
    assert "your bet" in view.reveal


def test_a_step_on_tensor_cores_has_no_floors_and_says_why():
    chart = lab.bet("split", 3)
    assert bars_of(chart) == {"your bet": 3, "measured": 2}
    assert "no floors: wgmma computes on tensor cores" in chart.alt
    assert step_to("split").floors is None
    assert (
        step_to("split").earlier == RUNGS[[record.name for record in RUNGS].index("split") - 1].name
    )


@pytest.mark.parametrize("factor", [0, -2.0, math.nan, math.inf, "four", True])
def test_a_bet_is_a_positive_number(factor):
    with pytest.raises(BadSetting, match="out of range"):
        lab.bet("coalesced", factor)
    assert not (runs_dir().parent / "journal.jsonl").exists()


def test_a_rung_without_a_step_or_a_time_has_no_bet(monkeypatch):
    with pytest.raises(BadSetting, match="there is no step to 'naive' on the ladder"):
        lab.bet("naive")
    assert isinstance(lab.bet("naive", earlier="coalesced"), BetView)
    with pytest.raises(BadSetting, match="nave"):
        lab.bet("nave", 2)
    untimed = replace(measured("naive", 4096), status="skipped", time=None, reason="too slow")
    timed = measured("coalesced", 4096, us=100.0)
    run = small_run(measurements=[untimed, timed])
    monkeypatch.setattr(bets, "results", lambda *_: run)
    with pytest.raises(NothingToDraw, match="naive has no time"):
        lab.bet("coalesced", 2)
    monkeypatch.setattr(bets, "same_card", lambda *_: False)
    run.measurements[0] = measured("naive", 4096, us=900.0)
    with pytest.raises(NothingToDraw, match="two cards"):
        lab.bet("coalesced", 2)
