"""The panel's widgets: generated from the table, in step with the choices both ways, and a button that measures."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WHY
from tests.lab.grid import small_grid
from tests.lab.waiting import until
from worklog import lab
from worklog.lab import panel_page
from worklog.lab.panel_answer import PanelChoice
from worklog.lab.panel_page import Panel, Row
from worklog.plots.figure import styled
from worklog.settings import PITFALLS

GRID = small_grid()
UNBIASED = "this is the unbiased reading"
DIMMED, UNAVAILABLE = "worklog-dimmed", "worklog-unavailable"


@pytest.fixture
def panel() -> Panel:
    return lab.panel("warptiled", 1024, run=GRID)


def row(panel: Panel, setting: str) -> Any:
    return next(row for row in panel.rows if row.pitfall.setting == setting)


def options(panel: Panel, setting: str) -> list[str]:
    return [word for word, _ in row(panel, setting).value.options]


def biased(panel: Panel) -> set[str]:
    return {g.setting for g in PITFALLS if g.is_biased(panel.choice.settings[g.setting])}


def test_each_pitfall_of_the_table_is_a_row_and_a_biased_one_is_never_hidden(panel: Panel) -> None:
    assert [row.box.description for row in panel.rows][:4] == ["1 clocks", "2 timer", "3 l2", "4 warmup"]
    for pitfall, shown in zip(PITFALLS, panel.rows, strict=True):
        assert [value for _, value in shown.value.options] == list(pitfall.values)
    assert panel.rest.layout.display == "none"
    panel.more.value = True
    assert panel.rest.layout.display == "" and panel.more.icon == "caret-down"
    panel.more.value = False
    panel.naive.click()
    assert panel.rest.layout.display == "" and not any(row.box.value for row in panel.rows)
    assert [row.value.value for row in panel.rows] == [pitfall.biased[0] for pitfall in PITFALLS]
    assert (row(panel, "queue").value.label, row(panel, "gate").value.label) == ("off", "off")
    panel.unbiased.click()
    assert all(row.box.value for row in panel.rows)
    assert [row.value.value for row in panel.rows] == [pitfall.unbiased for pitfall in PITFALLS]


def test_a_box_unticked_moves_the_reading_and_marks_its_row(panel: Panel) -> None:
    assert "140 µs" in panel.words.value and GRID.label in panel.details.value
    assert 'alt="warptiled at 1024, unbiased: 140 µs' in panel.picture.value
    row(panel, "l2").box.value = False
    assert "112 µs" in panel.words.value and "20.0&nbsp;% lower" in panel.words.value
    assert "--worklog-alert" in panel.words.value, "the colour of an inflated result"
    assert row(panel, "l2").value.value == "warm" and "←" in row(panel, "l2").what.value
    row(panel, "l2").box.value = True
    assert UNBIASED in panel.words.value and "--worklog-alert" not in panel.words.value
    assert row(panel, "l2").value.value == "flush" and "←" not in row(panel, "l2").what.value
    row(panel, "statistic").value.value = "first"
    assert row(panel, "statistic").box.value is False and panel.choice.settings["statistic"] == "first"
    row(panel, "timer").value.value = "graph"
    assert row(panel, "timer").box.value and panel.choice.settings["timer"] == "graph", "unbiased too"


def test_where_nothing_was_recorded_the_last_reading_stays_dimmed_and_one_click_takes_the_nearest(panel: Panel) -> None:
    assert options(panel, "l2") == ["flush", "rotate (not recorded)", "warm"]
    assert not any("*" in shown.box.description for shown in panel.rows), "each alone was recorded"
    assert panel.legend.layout.display == "none"
    row(panel, "l2").box.value = False
    picture, details = panel.picture.value, panel.details.value
    assert panel.nearest.layout.display == "none" and DIMMED not in panel.picture._dom_classes
    row(panel, "inputs").value.value = "zeros"
    assert row(panel, "order").box.description == "order *" and panel.legend.layout.display == ""
    row(panel, "order").value.value = "sequential"
    named = "not recorded: warptiled at 1024, l2 = warm, order = sequential, inputs = zeros; nearest: without l2 = warm"
    assert named in panel.words.value
    assert "dimmed below: warptiled at 1024, l2 = warm, inputs = zeros: 100.8 µs" in panel.words.value
    assert panel.picture.value != picture and panel.details.value == details
    assert DIMMED in panel.picture._dom_classes and DIMMED in panel.details._dom_classes
    assert panel.nearest.layout.display == ""
    panel.nearest.click()
    assert biased(panel) == {"order", "inputs"}
    assert "126 µs" in panel.words.value and panel.nearest.layout.display == "none"
    assert DIMMED not in panel.picture._dom_classes and row(panel, "l2").box.value
    assert options(panel, "timer") == ["events", *(f"{word} (not recorded)" for word in ("graph", "host"))]
    assert options(panel, "statistic") == ["median", "mean", "min", "first"], "computed from the same samples"
    assert row(panel, "l2").box.description == "3 l2 *" and UNAVAILABLE in row(panel, "l2").box._dom_classes
    assert row(panel, "inputs").box.description == "inputs" and UNAVAILABLE not in row(panel, "inputs").box._dom_classes
    row(panel, "timer").value.value = "host"
    assert "not recorded:" in panel.words.value
    assert options(panel, "timer")[-1] == "host", "what is chosen is not marked: the sentence names it"


def test_a_panel_that_opens_where_nothing_was_recorded_shows_the_nearest_dimmed() -> None:
    opened = lab.panel("warptiled", 512, run=GRID, l2="rotate")
    assert "nearest: at 256 without l2 = rotate" in opened.words.value
    assert "40 µs" in opened.picture.value and DIMMED in opened.picture._dom_classes
    assert opened.choice.shape.m == 512 and opened.choice.settings["l2"] == "rotate", "nothing is changed unasked"
    opened.nearest.click()
    assert opened.size.words[opened.size.index] == "256" and "40 µs" in opened.words.value
    empty = Panel(PanelChoice([]))
    assert "nothing has been measured" in empty.words.value and empty.nearest.layout.display == "none"


def test_a_size_and_a_rung_that_were_not_recorded_are_marked() -> None:
    run = replace(GRID, measurements=[m for m in GRID.measurements if m.shape[0] > 256 or m.kernel == "warptiled"])
    panel = lab.panel("warptiled", 1024, run=run)
    assert panel.size.words == ["256", "1024"]
    panel.kernel.value = "naive"
    assert panel.size.words == ["256 (not recorded)", "1024"] and "4 ms" in panel.words.value
    panel.kernel.value = "warptiled"
    panel.size.index = 0
    assert set(panel.kernel.options) == {("naive (not recorded)", "naive"), ("warptiled", "warptiled")}


# ------------------------------------------------------------------------------------------------------- two threads


def test_an_event_that_arrives_while_a_choice_is_being_shown_is_handled_afterwards(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterLab gives the events of one page to two threads. A widget that the user and the page set at the same time
    would report the page's value only.
    """
    showing, go_on, show = threading.Event(), threading.Event(), Row.show
    box, value, size = row(panel, "l2").box, row(panel, "statistic").value, panel.size
    events = [(box, {"value": False}), (value, {"index": 1}), (size, {"index": 0})]

    def slowly(row: Row) -> bool:
        showing.set()
        assert go_on.wait(30)
        return show(row)

    monkeypatch.setattr(Row, "show", slowly)
    first = threading.Thread(target=row(panel, "queue").box.set_state, args=({"value": False},))
    others = [threading.Thread(target=widget.set_state, args=(event,)) for widget, event in events]
    first.start()
    assert showing.wait(30)
    for thread in others:
        thread.start()
        thread.join(0.1)  # time to be handled too early
    assert (box.value, value.index, size.index) == (True, 0, 1)
    go_on.set()
    for thread in (first, *others):
        thread.join(30)
    assert (box.value, value.index, size.index) == (False, 1, 0)
    assert biased(panel) == {"queue", "l2", "statistic"}


def test_a_second_thread_draws_after_the_first() -> None:
    """Matplotlib's settings belong to the process: two charts drawn at once would mix their font sizes."""
    drawn = threading.Event()

    def draw() -> None:
        with styled():
            drawn.set()

    other = threading.Thread(target=draw)
    with styled():
        other.start()
        assert not drawn.wait(0.2)
    other.join(30)
    assert drawn.is_set()


# ----------------------------------------------------------------------------------------------------------- measuring

JOB = str(Path(__file__).with_name("stand_in_job.py"))


def live_panel(monkeypatch: pytest.MonkeyPatch, *job: str) -> Panel:
    monkeypatch.setattr(panel_page, "why_not_live", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    panel = Panel(PanelChoice([GRID], "warptiled", 1024, l2="warm"), (sys.executable, *job))
    panel._loop = None  # a browser test in the same session leaves a loop that nothing runs
    return panel


def test_without_a_gpu_measure_is_disabled_with_the_reason(panel: Panel) -> None:
    assert panel.measure_button.disabled and panel.cancel_button.disabled
    assert panel.measure_button.tooltip == WHY and WHY in panel.status.value


def test_cancel_keeps_what_is_finished_and_a_second_measurement_shows_the_live_reading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    panel = live_panel(monkeypatch, JOB, "60")
    panel.measure_button.click()
    stop = panel._stop
    panel.measure()
    assert stop is not None and panel._stop is stop, "a second click starts nothing"
    assert panel.measure_button.disabled and not panel.cancel_button.disabled
    until(lambda: re.fullmatch(r"warptiled at 1024 with l2=warm · \d+ s, about \d+ s left", panel.status.value))
    assert (panel.bar.value, panel.bar.max) == (1, 2) and len(list(tmp_path.glob("runs/panel/*.json"))) == 1
    panel.cancel_button.click()
    until(lambda: "cancelled" in panel.status.value)
    assert panel.choice.runs[0].origin == "live" and not panel.choice.runs[0].complete
    assert "recorded" in panel.details.value, "the biased reading was not finished"
    panel._job = (sys.executable, JOB, "0")
    shown: dict[str, str] = {}
    panel.status.observe(lambda change: shown.update({change["new"]: panel.details.value}), "value")
    panel.measure()
    until(lambda: "measured; " in panel.status.value)
    assert "live · NVIDIA H200" in shown[panel.status.value], "the answer is shown before the status changes"
    assert not panel.measure_button.disabled and panel.cancel_button.disabled


CRASHES = """
from tests.lab.stand_in_job import *
order, say = started()
say("ready", head=head_of(small_grid()))
os.abort()
"""


@pytest.mark.parametrize(
    ("job", "status", "words"),
    [
        ("import sys; sys.exit('no such thing')", r"failed: .*no such thing", "112 µs"),
        (CRASHES, "measured; ", "SIGABRT"),  # the signal stands in place of the time
    ],
)
def test_a_job_that_fails_is_reported_and_the_panel_stays_usable(
    job: str, status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = live_panel(monkeypatch, "-c", job)
    panel.measure()
    until(lambda: re.search(status, panel.status.value))
    assert words in panel.words.value and not panel.measure_button.disabled
