"""The panel without a browser.

What a run has for the chosen settings, how far that is from the unbiased reading, what a page is
sent, and a button that measures.
"""

import re
import sys
import threading
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from tests.conftest import WHY
from tests.lab import grid
from tests.lab.grid import BUBBLE, CUBLAS, HOST, OFFSET, PEAK, small_grid, true_us
from tests.lab.waiting import until
from tests.record.grid import grid_jobs
from worklog import lab
from worklog.errors import BadRunFile, BadSetting, NotRecorded
from worklog.lab import readings
from worklog.lab.answers import Answer, Answers, amount, axis
from worklog.lab.readings import LAUNCHES, Reading, RunReadings, unbiased_settings
from worklog.lab.widgets import Panel, places
from worklog.problem import Shape, tflops
from worklog.runner.sources import why_not_live
from worklog.runs import Run, recordings
from worklog.runs.effects import BF16_DATASHEET_TFLOPS
from worklog.runs.statistics import Estimate
from worklog.settings import PITFALLS, Harness

GRID = small_grid()
[SHIPPED] = readings.grid_runs()
SIZE = Shape.of(1024)


def reading(run: Run = GRID, kernel: str = "warptiled", **biased: Any) -> Reading:
    return RunReadings(run).read(kernel, SIZE, unbiased_settings() | biased)


def answer(run: Run = GRID, **biased: Any) -> Answer:
    return Answers([run]).answer("warptiled", 1024, **biased)


def test_every_combination_of_the_grid_is_read_as_it_was_made():
    for task in grid_jobs():
        if (task.kernel, task.shape) == ("warptiled", SIZE):
            grid_reading = reading(**task.pitfalls)
            us = true_us("warptiled", 1024, task.pitfalls)
            assert grid_reading.measurement.changed == task.pitfalls, str(task)
            assert grid_reading.timed.time.value == approx(us, rel=1e-3), str(task)


@pytest.mark.parametrize(
    ("biased", "us", "first"),
    [
        ({"offset": "kept"}, 140.0 + OFFSET, 140.0 + OFFSET),
        ({"timer": "host", "offset": "kept"}, HOST, HOST),
        ({"warmup": "none", "statistic": "mean"}, 140.0 + 1000 / 9, 1140.0),
    ],
)
def test_samples_and_time_have_the_chosen_overhead_and_statistic(biased, us, first):
    biased_reading = reading(**biased)
    assert biased_reading.timed.time.value == approx(us, rel=1e-3)
    assert len(biased_reading.samples) == 9 and biased_reading.samples[0] == approx(
        first, rel=1e-3
    ), "the tenth doesn't count"
    assert biased_reading.samples[-1] == approx(
        HOST if "timer" in biased else 140 + OFFSET * ("offset" in biased), rel=1e-3
    )


def test_shares_follow_the_roof_and_a_setting_that_changes_no_launch_reads_the_same_measurement():
    unbiased = reading()
    assert unbiased.ratio.value == approx(CUBLAS / 140.0, rel=1e-3)
    assert unbiased.of_roof("fp32") == approx(tflops(SIZE, 140.0) / PEAK)
    assert unbiased.of_roof("bf16_datasheet") == approx(tflops(SIZE, 140.0) / BF16_DATASHEET_TFLOPS)
    for changed in ({"roof": None}, {"changed": {"roof": "bf16_datasheet"}}):
        unknown = replace(GRID, measurements=[replace(unbiased.measurement, **changed)])
        assert reading(unknown).of_roof("fp32") is None, changed
    assert reading(timer="host", queue=False).measurement is reading(timer="host").measurement
    assert reading(gate=False).measurement is unbiased.measurement


def test_a_run_of_another_harness_answers_for_its_own_settings():
    mine = [m for m in GRID.measurements if m.changed == {"l2": "warm"}]
    warm = replace(
        GRID,
        harness=GRID.harness | {"l2": "warm"},
        measurements=[replace(m, changed={}) for m in mine],
    )
    assert reading(warm, l2="warm").timed.time.value == approx(112.0)
    locked = replace(GRID, harness=GRID.harness | {"clocks": "locked:1395"})
    assert unbiased_settings(locked)["clocks"] == "locked:1395"
    assert (
        reading(locked).timed.time.value
        == reading(locked, clocks="locked").timed.time.value
        == approx(140.0)
    )
    panel = lab.panel("warptiled", 1024, run=locked)
    choose(panel, l2="warm")
    assert panel.selection()[2]["clocks"] == "locked:1395", "the page knows only locked"
    failed = replace(reading().measurement, status="failed", reason="precision: wrong")
    for run, chosen, message in (
        (warm, {}, "not recorded: warptiled at 1024, unbiased$"),
        (
            GRID,
            {"clocks": "locked", "l2": "rotate"},
            "not recorded: .* clocks = locked, l2 = rotate$",
        ),
        (
            replace(GRID, measurements=[failed]),
            {},
            r"warptiled at 1024: failed: .*precision: wrong",
        ),
    ):
        with pytest.raises(NotRecorded, match=message):
            reading(run, **chosen)


def test_what_a_recording_is_older_than_counts_as_unbiased_and_is_not_recorded():
    harness = {name: value for name, value in GRID.harness.items() if name != "turns"}
    older = replace(
        GRID,
        harness=harness,
        measurements=[m for m in GRID.measurements if "turns" not in m.changed],
    )
    panel = lab.panel("warptiled", 1024, run=older)
    turns = next(i for i, g in enumerate(PITFALLS) if g.setting == "turns")
    assert panel.answer["reading"][0] == "140 µs" and panel.answer["absent"]["values"][turns] == [1]
    panel.chosen = panel.chosen | {"values": panel.table["naive"]}
    assert "reading" in panel.answer and panel.chosen["values"][turns] == 0
    fixed = replace(
        GRID, harness=GRID.harness | {"placement": "fixed"}
    )  # a file from before this setting
    assert answer(fixed, l2="warm").comparison.startswith("this time is 20.0 % shorter")


def test_the_shipped_grid_is_read_as_its_harness_read_it_and_answers_what_can_be_chosen_at_once():
    source = RunReadings(SHIPPED)
    answers = Answers([SHIPPED])
    for m in SHIPPED.measurements:
        shipped_reading = source.read(m.kernel, m.problem, source.unbiased | m.changed)
        assert shipped_reading.measurement is m
        assert (shipped_reading.timed.time.value, shipped_reading.ratio.value) == (
            approx(m.us, abs=2e-3),
            approx(m.ratio, rel=2e-3),
        )
        assert shipped_reading.of_roof(m.changed.get("roof", "fp32")) == approx(m.of_roof, rel=1e-3)
    fixes = [g for g in LAUNCHES if g.article or g.setting == "queue"]
    for place in {(m.kernel, m.problem) for m in SHIPPED.measurements}:
        assert source.has(*place, answers.naive)
        for values in product(*((g.unbiased, g.biased[0]) for g in fixes)):
            chosen = dict(zip((g.setting for g in fixes), values, strict=True))
            assert source.has(*place, source.unbiased | chosen), chosen


def test_where_the_panels_runs_come_from(monkeypatch):
    assert next(iter(recordings())) == "h200", "the default recording is the ladder's"
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert readings.grid_runs() == [] and readings.grid_runs(SHIPPED) == [SHIPPED]
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    monkeypatch.setattr("worklog.runner.sources.gpu_reason", lambda: None)
    assert why_not_live() == "WORKLOG_SOURCE=recorded"
    monkeypatch.delenv("WORKLOG_SOURCE")
    assert why_not_live() is None
    monkeypatch.setattr(readings, "recordings", lambda part: {})
    with pytest.raises(BadRunFile, match="no recording for the panel: pass one"):
        lab.panel()


def test_the_panel_begins_unbiased_with_the_last_rung_at_the_middle_size():
    first = lab.panel(run=GRID)
    assert first.selection() == ("warptiled", SIZE, unbiased_settings())
    assert first.table["kernels"] == ["naive", "warptiled"] and first.table["sizes"] == [
        "256",
        "1024",
    ]


@pytest.mark.parametrize(
    ("kernel", "size", "biased", "message"),
    [
        ("wraptiled", 1024, {}, "wraptiled"),
        ("naive", 0, {}, "0"),
        ("naive", 1024, {"l2": "lukewarm"}, "l2"),
        ("naive", 1024, {"budget_s": 1.0}, "budget_s"),
    ],
)
def test_what_does_not_exist_is_an_error(kernel, size, biased, message):
    with pytest.raises(BadSetting, match=message):
        lab.panel(kernel, size, run=GRID, **biased)


def test_what_is_measured_is_the_unbiased_reading_and_the_chosen_launches():
    def pitfalls_of(**biased: Any) -> list[dict[str, Any]]:
        jobs = lab.panel("warptiled", 1024, run=GRID, **biased).jobs()
        assert all(Harness().but(**dict(job.changed)) for job in jobs)
        return [job.pitfalls for job in jobs]

    assert pitfalls_of(l2="warm", gate=False, statistic="min") == [{}, {"l2": "warm"}]
    assert pitfalls_of(statistic="min") == [{}]
    assert "timer = graph" in lab.panel(run=GRID, timer="graph").answer["missing"]
    empty = Answers([])
    assert len(empty.kernels) == len(empty.shapes) == 3, "there is something to measure"
    with pytest.raises(NotRecorded, match="nothing has been measured"):
        empty.answer("naive", 1024)


def test_a_reading_is_compared_with_the_unbiased_one():
    unbiased = answer()
    warm = answer(l2="warm")
    assert (unbiased.whole.difference.off, unbiased.steps, unbiased.same) == (0.0, (), True)
    assert unbiased.whole.after.numbers == ("140 µs", "15.3 TFLOP/s", "35.7 % of cuBLAS")
    assert unbiased.comparison.startswith("this is the unbiased time · ±")
    assert warm.whole.difference.off == approx(-0.2, abs=1e-3)
    assert re.fullmatch(
        r"this time is 20.0 % shorter · ±\S+ % \(95 %\) from 9 samples", warm.comparison
    )
    assert "share of cuBLAS: 44.6 % here, 35.7 % unbiased" in warm.text and GRID.label in warm.text
    timed = replace(unbiased.whole.after.timed, time=Estimate(2.1483, 2.1483, 2.1483))
    faster = replace(unbiased.whole.after, timed=timed, ratio=Estimate(12.346, 12.346, 12.346))
    assert faster.numbers[1:] == ("1000 TFLOP/s", "1235 % of cuBLAS")
    assert [amount(difference) for difference in (1.9, 2.0, 9.0)] == [
        "190.0 % longer",
        "3 times too long",
        "10 times too long",
    ]
    assert [amount(difference) for difference in (-0.6, -0.7)] == [
        "60.0 % shorter",
        "3.33 times too short",
    ]
    assert [amount(4999.0), amount(-0.99975, 0.2)] == [
        "5000 times too long",
        "about 4000 times too short",
    ]


@pytest.mark.parametrize(
    ("biased", "steps"),
    [
        (
            {"queue": False, "l2": "warm", "offset": "kept"},
            {"3 l2": -28.0, "queue": BUBBLE, "offset": OFFSET},
        ),
        (
            {"timer": "host", "l2": "warm", "queue": False},
            {"2 timer": HOST - 140.0, "3 l2": 0.0, "queue": 0.0},
        ),
        ({"clocks": "ignored"}, {"1 clocks": 0.0}),
    ],
)
def test_each_setting_adds_a_step_in_the_tables_order(biased, steps):
    steps_of = answer(**biased).steps
    assert [step.row[0] for step in steps_of] == list(steps)
    added = [step.before.timed.time.value * step.difference.off for step in steps_of]
    assert added == approx(list(steps.values()), abs=0.1)
    roles = ["grey" if us == 0 else "alert" if us < 0 else "accent" for us in steps.values()]
    assert [step.role for step in steps_of] == roles
    signs = ["" if us == 0 else "−" if us < 0 else "+" for us in steps.values()]
    assert [step.row[-1][: len(sign)] for step, sign in zip(steps_of, signs, strict=True)] == signs
    rows = answer(**biased).as_json()["steps"]
    assert [row[0] for row in rows] == ["unbiased", *steps, "this reading"]
    assert [row[2] for row in rows[1:]] == [row[3] for row in rows[:-1]], (
        "each begins where the last one ends"
    )
    step_lines = [
        line.split("; ") for line in answer(**biased).text if line.startswith("one by one: ")
    ]
    assert [len(labels) for labels in step_lines] == ([len(steps)] if len(steps) > 1 else []), (
        "the text has them too"
    )


@pytest.mark.parametrize(("n", "visible"), [(256, False), (1024, True)])
def test_a_host_clock_is_compared_only_beyond_its_scatter(n, visible, monkeypatch):
    """Between processes. It reads 25 % less than warptiled takes at 256, and 79 % less at 1024."""
    monkeypatch.setattr(grid, "HOST", 30.0)
    answers = Answers([small_grid()])
    host = answers.answer("warptiled", n, timer="host")
    assert host.whole.after.numbers[0] == "about 30 µs"
    assert all(number.startswith("about ") for number in host.whole.after.numbers)
    assert "by a host clock, which scatters by ±39 % between processes" in host.comparison
    assert host.comparison.startswith("this time is about 5 times too short") is visible
    assert host.comparison.startswith("the difference is within the noise") is not visible
    assert any(line.startswith("share of the roof: about") for line in host.text) is visible
    document = host.as_json()
    assert document["role"] == ("alert" if visible else "grey")
    assert answer().as_json()["role"] == "same", "the unbiased reading isn't noise"
    for setting, value in (("order", "sequential"), ("turns", "fixed"), ("queue", False)):
        changed = answers.answer("warptiled", n, **{"timer": "host", setting: value})
        assert (
            changed.comparison == host.comparison
            and changed.whole.after.numbers[0] == "about 30 µs"
        )


def test_settings_that_were_measured_only_together_are_one_step():
    [step] = answer(small_grid(without=({"l2": "warm"},)), l2="warm", queue=False).steps
    assert step.row[0] == "3 l2 + queue"


def test_a_degradation_that_is_no_setting_and_another_clock_are_notes():
    degraded = ("gate: none", "l2: warm", "not converged after 400 samples")
    run = replace(GRID, measurements=[replace(m, degradations=degraded) for m in GRID.measurements])
    assert answer(run).notes == ["not converged after 400 samples"]
    run = small_grid()
    [warm] = GRID.select("warptiled", SIZE, {"l2": "warm"})
    kernel, cublas = warm.samples.sides
    slowed = replace(warm.samples, sides=[replace(kernel, sm_mhz=[1900.0] * 10), cublas])
    run.measurements[run.measurements.index(warm)] = replace(warm, samples=slowed)
    notes = answer(run, l2="warm").notes
    assert notes[1:] == [
        "SM clock: 1900 MHz here, 1980 MHz unbiased; the difference is at one clock"
    ]
    assert not any("clock" in note for note in answer(l2="warm").notes)


def test_what_moves_no_time_is_said_in_words():
    shares = answer(baseline="tf32")
    assert shares.steps == () and not shares.whole.difference.visible
    assert [line.partition(":")[0] for line in shares.notes] == ["share of cuBLAS"]
    assert [note.partition(":")[0] for note in shares.spoken["roof"]] == ["", "share of the roof"]
    mean = answer(statistic="mean")
    assert [step.role for step in mean.steps] == ["grey"], "printed as zero"
    assert "within the noise" in mean.comparison
    gates = next(g.values for g in PITFALLS if g.setting == "gate")
    for gate, note in ((True, ""), (False, "not checked"), ("article", "the article's rule")):
        checked = answer(gate=gate)
        assert checked.same and note in checked.spoken["gate"][gates.index(gate)]
        assert any(note in line for line in checked.text)
    for statistic in ("first", "min", "mean"):
        assert answer(statistic=statistic, l2="warm").comparison.endswith(
            f" · {statistic} of 9 samples"
        ), "no interval"


def test_an_axis_holds_the_values_and_is_logarithmic_where_they_differ_much():
    linear = axis([100.0, 101.0], 1.25)
    logarithmic = axis([0.5, 1000.0], 1.25)
    assert (linear["low"], linear["high"], linear["log"]) == (approx(97.98), approx(103.02), False)
    assert (logarithmic["low"], logarithmic["high"], logarithmic["log"]) == (0.4, 1250.0, True)
    assert [label for _, label in logarithmic["ticks"]] == [
        "1 µs",
        "3 µs",
        "10 µs",
        "30 µs",
        "100 µs",
        "300 µs",
        "1 ms",
    ]


def test_the_first_run_that_holds_a_combination_answers_and_is_compared_with_itself():
    live = small_grid()
    live.origin, live.measurements = (
        "live",
        [m for m in live.measurements if m.changed in ({}, {"l2": "warm"})],
    )
    answers = Answers([live, GRID])
    warm = answers.answer("warptiled", 1024, l2="warm")
    assert warm.whole.after.run is warm.whole.before.run is live
    assert answers.answer("warptiled", 1024, l2="warm", queue=False).whole.after.run is GRID


@pytest.fixture
def panel():
    return lab.panel("warptiled", 1024, run=GRID)


def choose(panel: Panel, **settings: Any) -> None:
    """As the page does it."""
    panel.chosen = panel.chosen | {"values": places(panel.selection()[2] | settings)}


def absent(panel: Panel) -> dict[str, list[Any]]:
    """Return the values that can't be chosen, by setting."""
    values = zip(PITFALLS, panel.answer["absent"]["values"], strict=True)
    return {
        g.setting: [g.values[place] for place in absent_places]
        for g, absent_places in values
        if absent_places
    }


def test_the_page_is_sent_the_samples_and_times_of_the_answer(panel):
    [samples] = panel.answer["samples"]
    assert panel.answer["estimates"] == [["accent", approx(140.0)]]
    assert samples[4] == approx(140.0) and len(samples) == 9
    choose(panel, l2="warm")
    assert panel.answer["samples"][0] == samples and panel.answer["samples"][1][4] == approx(112.0)
    assert panel.answer["estimates"] == [["grey", approx(140.0)], ["alert", approx(112.0)]]
    assert panel.answer["reading"][0] == "112 µs" and panel.answer["unbiased"][0] == "140 µs"
    panel.chosen = panel.chosen | {"kernel": 0, "size": 0}
    assert panel.answer["reading"][0] == "80 µs"
    data = panel._repr_mimebundle_()[0]
    assert "application/vnd.jupyter.widget-view+json" in data
    for kind in ("text/plain", "text/html"):
        assert "naive at 256, l2 = warm: 80 µs" in data[kind] and GRID.label in data[kind]


def test_what_was_not_recorded_cannot_be_chosen_without_a_gpu(panel):
    assert absent(panel)["l2"] == ["rotate"] and "statistic" not in absent(panel)
    choose(panel, l2="warm", inputs="zeros")
    assert absent(panel)["order"] == ["sequential"] and "gate" not in absent(panel)
    gap = lab.panel("warptiled", 512, run=GRID, l2="rotate")
    missing = "not recorded: warptiled at 512, l2 = rotate; choose from the sizes 256, 1024"
    assert gap.answer["missing"] == missing == gap.text()[0]
    assert gap.table["sizes"] == ["256", "512", "1024"] and gap.chosen["size"] == 1


def test_events_that_arrive_together_are_answered_one_after_the_other(panel, monkeypatch):
    """JupyterLab gives the events of one page to two threads."""
    answering = threading.Event()
    go_on = threading.Event()
    answered = panel.answered

    def slowly() -> dict[str, Any]:
        answering.set()
        assert go_on.wait(30)
        return answered()

    monkeypatch.setattr(panel, "answered", slowly)
    events = [panel.chosen | {"size": 0}, panel.chosen | {"values": panel.table["naive"]}]
    threads = [
        threading.Thread(target=panel.set_state, args=({"chosen": event},)) for event in events
    ]
    threads[0].start()
    assert answering.wait(30)
    threads[1].start()
    threads[1].join(0.1)  # time to be handled too early
    assert panel.chosen == events[0]
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert panel.chosen == events[1] and panel.answer["reading"][0] == "about 140 µs"


JOB = str(Path(__file__).with_name("stand_in_job.py"))


def live_panel(monkeypatch: pytest.MonkeyPatch, *job: str) -> Panel:
    monkeypatch.setattr("worklog.runner.sources.gpu_reason", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return Panel(Answers([GRID]), "warptiled", 1024, {"l2": "warm"}, job=(sys.executable, *job))


def test_without_a_gpu_nothing_is_measured_and_the_reason_is_said(panel):
    panel.measure()
    assert (
        panel.progress == {"running": False, "share": 0.0, "words": f"measure: {WHY}"}
        and not panel.table["live"]
    )


def test_cancel_keeps_what_is_finished_and_a_second_measurement_shows_the_live_reading(
    monkeypatch, tmp_path
):
    panel = live_panel(monkeypatch, JOB, "60")
    choose(panel, l2="rotate")
    assert panel.answer == {
        "missing": "not recorded: warptiled at 1024, l2 = rotate; press measure"
    }
    choose(panel, l2="warm")
    panel._handle_custom_msg("measure", [])
    stop = panel._stop
    panel.measure()
    assert stop is not None and panel._stop is stop, "a second click starts nothing"
    pattern = r"warptiled at 1024 with l2=warm · \d+ s, about \d+ s left"
    until(lambda: re.fullmatch(pattern, panel.progress["words"]))
    assert panel.progress["running"] and panel.progress["share"] == 0.5
    assert len(list(tmp_path.glob("runs/panel/*.jsonl"))) == 1
    panel._handle_custom_msg("cancel", [])
    until(lambda: "cancelled; finished measurements are in" in panel.progress["words"])
    assert (
        panel.answers.sources[0].run.origin == "live" and not panel.answers.sources[0].run.complete
    )
    assert panel.answer["label"].startswith("recorded"), "the biased reading was not finished"
    panel.job = (sys.executable, JOB, "0")
    label_by_status: dict[str, str] = {}
    panel.observe(
        lambda change: label_by_status.update({change["new"]["words"]: panel.answer["label"]}),
        "progress",
    )
    panel.measure()
    until(lambda: "measured; " in panel.progress["words"])
    assert "live · NVIDIA H200" in label_by_status[panel.progress["words"]], (
        "the answer is shown before the words change"
    )
    assert not panel.progress["running"] and panel._stop is None


CRASHES = """
from tests.lab.stand_in_job import *
order, pipe = started()
pipe.send(Started(small_grid().head_lines()))
os.abort()
"""


@pytest.mark.parametrize(
    ("job", "status", "message"),
    [
        ("import sys; sys.exit('no such thing')", r"failed: .*no such thing", "112 µs"),
        (CRASHES, "measured; ", "SIGABRT"),  # the signal stands in place of the time
    ],
)
def test_a_job_that_fails_is_reported_and_the_panel_stays_usable(job, status, message, monkeypatch):
    panel = live_panel(monkeypatch, "-c", job)
    panel.measure()
    until(lambda: re.search(status, panel.progress["words"]))
    assert message in panel.text()[0] and not panel.progress["running"]
