"""The widgets: made from the table, in step with the model both ways, and with a button that measures beside them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from tests.lab.grid import small_grid
from tests.lab.waiting import until
from tests.plots.conftest import full_run
from worklog import lab
from worklog.lab import sources, view
from worklog.lab.controls import Status
from worklog.lab.model import Model
from worklog.lab.view import Panel
from worklog.plots.style import styled
from worklog.settings import PITFALLS

GRID = small_grid()
WHY = "this test has no GPU"


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))
    monkeypatch.setattr(sources, "gpu_reason", lambda: WHY)


@pytest.fixture
def panel() -> Panel:
    return lab.panel("warptiled", 1024, run=GRID)


def row(panel: Panel, setting: str) -> Any:
    return next(row for row in panel.rows if row.pitfall.setting == setting)


def descendants(widget: Any) -> list[Any]:
    return [widget, *(found for child in getattr(widget, "children", ()) for found in descendants(child))]


def test_there_is_one_row_for_each_gremlin_the_articles_first(panel: Panel) -> None:
    boxes = [w for w in descendants(panel.box) if isinstance(w, widgets.Checkbox)]
    assert [box.description for box in boxes][:4] == ["1 clocks", "2 timer", "3 l2", "4 warmup"]
    assert len(boxes) == len(PITFALLS)
    for pitfall in PITFALLS:
        assert [value for _, value in row(panel, pitfall.setting).value.options] == list(pitfall.values)


def test_everything_that_takes_a_click_says_what_it_is(panel: Panel) -> None:
    kinds = (widgets.Checkbox, widgets.Dropdown, widgets.Button)
    assert all(w.description or w.tooltip for w in descendants(panel.box) if isinstance(w, kinds))
    assert all(row.box.tooltip and row.value.description for row in panel.rows)


def test_a_box_unticked_moves_the_reading_and_says_so(panel: Panel) -> None:
    assert "140 µs" in panel.reading.value
    row(panel, "l2").box.value = False
    assert "112 µs" in panel.reading.value and "lies by −20.0&nbsp;%" in panel.reading.value
    assert row(panel, "l2").value.value == "warm"
    assert "← L2 stays warm" in row(panel, "l2").what.value
    row(panel, "l2").box.value = True
    assert "this is the honest reading" in panel.reading.value
    assert row(panel, "l2").value.value == "flush"


def test_what_changes_is_announced(panel: Panel) -> None:
    ladder, ablation = lab.ladder(run=full_run()), lab.ablation(run=full_run())
    assert all(isinstance(w, Status) for w in (panel.reading, panel.status, ladder.words, ablation.words))


def test_a_value_chosen_ticks_or_unticks_its_box(panel: Panel) -> None:
    row(panel, "statistic").value.value = "first"
    assert row(panel, "statistic").box.value is False and panel.model.settings["statistic"] == "first"
    row(panel, "statistic").value.value = "median"
    assert row(panel, "statistic").box.value is True


def test_the_other_gremlins_unfold(panel: Panel) -> None:
    assert panel.rest.layout.display == "none"
    panel.more.value = True
    assert panel.rest.layout.display == "" and panel.more.icon == "caret-down"


def test_no_lie_is_told_behind_a_fold(panel: Panel) -> None:
    panel.all_naive()
    assert panel.rest.layout.display == ""


def test_rung_and_size(panel: Panel) -> None:
    panel.kernel.value = "naive"
    assert "4 ms" in panel.reading.value
    panel.size.index = 0
    assert "100 µs" in panel.reading.value


def test_the_source_stands_under_the_picture_and_the_picture_has_words(panel: Panel) -> None:
    assert GRID.label in panel.source.value
    assert 'alt="warptiled at 1024, honest: 140 µs' in panel.picture.value


def test_a_reading_with_ignored_clocks_does_not_say_that_they_were_watched(panel: Panel) -> None:
    row(panel, "clocks").box.value = False
    assert "clocks ignored" in panel.source.value and "clocks ignored" in panel.picture.value


def test_all_naive_and_all_honest(panel: Panel) -> None:
    panel.naive.click()
    assert not any(row.box.value for row in panel.rows)
    assert "honest: 140 µs; this reading" in panel.reading.value
    assert "is not in this" not in panel.reading.value
    panel.unbiased.click()
    assert all(row.box.value for row in panel.rows)


def test_what_is_not_recorded_is_said_and_nothing_old_stays(panel: Panel) -> None:
    row(panel, "l2").value.value = "rotate"
    assert "is not in this recorded run" in panel.reading.value
    assert panel.picture.value == panel.source.value == ""
    row(panel, "timer").value.value = "graph"
    assert panel.picture.value == ""
    panel.all_honest()
    assert "140 µs" in panel.reading.value


def test_two_panels_do_not_share_their_choices() -> None:
    one, other = lab.panel(run=GRID), lab.panel(run=GRID)
    row(one, "l2").box.value = False
    assert row(other, "l2").box.value is True and other.model.lying == []


def test_a_page_without_a_kernel_gets_the_answer_in_words(panel: Panel) -> None:
    shown = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"].startswith("warptiled at 1024, honest: 140 µs")


def test_a_choice_that_comes_while_another_one_is_being_shown_is_not_lost(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JupyterLab gives the events of one page to two threads."""
    showing, go_on, shown = threading.Event(), threading.Event(), view.Row.show

    def slowly(row: view.Row, value: Any, lying: bool) -> None:
        showing.set()
        assert go_on.wait(30)
        shown(row, value, lying)

    monkeypatch.setattr(view.Row, "show", slowly)
    first = threading.Thread(target=lambda: setattr(row(panel, "queue").box, "value", False))
    second = threading.Thread(target=lambda: setattr(row(panel, "l2").box, "value", False))
    first.start()
    assert showing.wait(30)
    second.start()
    second.join(0.2)  # time to be dropped
    go_on.set()
    for thread in (first, second):
        thread.join(30)
    assert [pitfall.setting for pitfall in panel.model.lying] == ["l2", "queue"]
    assert not row(panel, "l2").box.value and not row(panel, "queue").box.value
    assert "132 µs" in panel.reading.value


@pytest.mark.parametrize("control", ["box", "value", "size"])
def test_what_the_page_says_while_a_choice_is_being_shown_is_taken_afterwards(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, control: str
) -> None:
    """A widget that is set by a user and by the page at once may tell of the page's value alone."""
    showing, go_on, shown = threading.Event(), threading.Event(), view.Row.show
    widget, said = {
        "box": (row(panel, "l2").box, {"value": False}),
        "value": (row(panel, "l2").value, {"index": 1}),
        "size": (panel.size, {"index": 0}),
    }[control]
    before = {name: getattr(widget, name) for name in said}
    assert before != said

    def slowly(row: view.Row, value: Any, lying: bool) -> None:
        showing.set()
        assert go_on.wait(30)
        shown(row, value, lying)

    monkeypatch.setattr(view.Row, "show", slowly)
    first = threading.Thread(target=row(panel, "queue").box.set_state, args=({"value": False},))
    second = threading.Thread(target=widget.set_state, args=(said,))
    first.start()
    assert showing.wait(30)
    second.start()
    second.join(0.2)  # time to be taken at once
    assert {name: getattr(widget, name) for name in said} == before
    go_on.set()
    for thread in (first, second):
        thread.join(30)
    assert {name: getattr(widget, name) for name in said} == said
    assert "queue" in [pitfall.setting for pitfall in panel.model.lying]


def test_a_second_thread_draws_when_the_first_has_drawn() -> None:
    """Matplotlib's settings are the process's: drawn at once, letters get the size of another picture."""
    begun = threading.Event()

    def draw() -> None:
        begun.set()
        with styled():
            pass

    with styled():
        other = threading.Thread(target=draw)
        other.start()
        assert begun.wait(30)
        other.join(0.2)
        assert other.is_alive()
    other.join(30)
    assert not other.is_alive()


# ----------------------------------------------------------------------------------------------------------- measuring

JOB = str(Path(__file__).with_name("stand_in_job.py"))


def live_panel(monkeypatch: pytest.MonkeyPatch, *job: str) -> Panel:
    monkeypatch.setattr(view, "why_not_live", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    panel = Panel(Model([GRID], "warptiled", 1024, l2="warm"), (sys.executable, *job))
    panel._loop = None  # a browser's test in the same session leaves a loop that nobody turns
    return panel


def test_without_a_gpu_measure_is_off_and_says_why(panel: Panel) -> None:
    assert panel.measure_button.disabled and panel.cancel_button.disabled
    assert panel.measure_button.tooltip == WHY
    assert WHY in panel.status.value


def test_measuring_shows_progress_and_then_the_live_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = live_panel(monkeypatch, JOB, "0")
    assert "recorded" in panel.source.value
    panel.measure_button.click()
    assert panel.measure_button.disabled and not panel.cancel_button.disabled
    until(lambda: "live · NVIDIA H200" in panel.source.value)
    assert panel.status.value.count("measured; what was finished is in") == 1
    assert not panel.measure_button.disabled and panel.cancel_button.disabled


def test_cancel_keeps_what_is_finished_and_a_second_run_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    panel = live_panel(monkeypatch, JOB, "60")
    panel.measure()
    until(lambda: len(list(tmp_path.glob("runs/panel/*.json"))) == 1)
    panel.cancel_button.click()
    until(lambda: "cancelled" in panel.status.value)
    assert panel.model.runs[0].origin == "live" and not panel.model.runs[0].complete
    assert "recorded" in panel.source.value  # the lying reading was not finished
    panel._job = (sys.executable, JOB, "0")
    panel.measure()
    until(lambda: "live" in panel.source.value)


def test_a_second_click_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = live_panel(monkeypatch, JOB, "60")
    panel.measure()
    stop = panel._stop
    panel.measure()
    assert stop is not None and panel._stop is stop
    panel.cancel()
    until(lambda: "cancelled" in panel.status.value)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ("import sys; sys.exit('no such thing')", "last printed &#x27;no such thing&#x27;; nothing was finished"),
        (
            "from worklog.bench.job import started\norder, say = started()\nsay('ready', run='{')",
            "failed: nothing was measured: its process answered with something that is no run",
        ),
    ],
)
def test_a_job_that_fails_is_said_and_leaves_the_panel_usable(
    monkeypatch: pytest.MonkeyPatch, job: str, says: str
) -> None:
    panel = live_panel(monkeypatch, "-c", job)
    panel.measure()
    until(lambda: says in panel.status.value)
    assert not panel.measure_button.disabled
    assert "112 µs" in panel.reading.value


# As worklog.bench.job does it, which lets one measurement at a time on a GPU.
ALONE = """
import sys
from pathlib import Path
from tests.lab import stand_in_job
from worklog.bench import job

def measure(order, say):
    with job.locked(Path(sys.argv[1])):
        stand_in_job.work(order, say, "60")

job.main({"measure": measure})
"""


def test_a_second_panel_that_measures_at_the_same_time_is_told_who_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = str(tmp_path / "lock")
    one, other = (live_panel(monkeypatch, "-c", ALONE, lock) for _ in range(2))
    one.measure()
    until(lambda: "with l2=warm" in one.status.value)
    assert one._stop is not None
    other.measure()
    until(lambda: f"failed: process {one._stop.pid} is measuring on this GPU" in other.status.value)  # type: ignore[union-attr]
    assert not other.measure_button.disabled and "with l2=warm" in one.status.value
    one.cancel()
    until(lambda: "cancelled" in one.status.value)


CRASHES = """
from tests.lab.stand_in_job import *
order, say = started()
say("ready", run=document(replace(small_grid(), measurements=[])))
os.abort()
"""


def test_a_crash_is_a_refusal_with_its_signal_where_the_time_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = live_panel(monkeypatch, "-c", CRASHES)
    panel.measure()
    until(lambda: "SIGABRT" in panel.reading.value)
    assert "warptiled at 1024 was refused: refused at process: crashed" in panel.reading.value
    assert "measured; " in panel.status.value and not panel.measure_button.disabled


def test_time_left_is_judged_from_the_steps_done(panel: Panel) -> None:
    panel._progress(0, 3, "warptiled at 1024", 4.0)
    assert "warptiled at 1024 · 4 s<" in panel.status.value
    panel._progress(1, 3, "warptiled at 1024", 4.0)
    assert "warptiled at 1024 · 4 s, about 8 s left" in panel.status.value
    assert (panel.bar.value, panel.bar.max) == (1, 3)
