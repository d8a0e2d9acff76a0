"""The panel without widgets: what a run has for the chosen settings, and how far that is from the unbiased reading."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb
from typing import Any

import pytest
from pytest import approx

from tests.lab.grid import BUBBLE, CUBLAS, HOST, OFFSET, PEAK, small_grid, true_us
from worklog import lab
from worklog.errors import BadRunFile, BadSetting, WorklogError
from worklog.lab import choice
from worklog.lab.panel_answer import Answer, PanelChoice, amount
from worklog.lab.panel_picture import picture
from worklog.lab.readings import COMPUTED, LAUNCHES, Held, NotRecorded, Reading, unbiased_settings
from worklog.problem.gemm import Shape, tflops
from worklog.runner.tasks import grid_tasks
from worklog.runs.estimates import Estimate
from worklog.runs.run import Run, recordings
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS, Harness

GRID = small_grid()
SIZE = Shape.of(1024)


def reading(run: Run = GRID, kernel: str = "warptiled", **biased: Any) -> Reading:
    return Held(run).read(kernel, SIZE, unbiased_settings() | biased)


def answer(run: Run = GRID, **biased: Any) -> Answer:
    return PanelChoice([run], "warptiled", 1024, **biased).answer()


# ------------------------------------------------------------------------------------------------- what a run holds


def test_every_combination_of_the_grid_is_read_as_it_was_made() -> None:
    for task in grid_tasks():
        if (task.kernel, task.shape) == ("warptiled", SIZE):
            found = reading(**task.pitfalls)
            assert found.measurement.changed == task.pitfalls, str(task)
            assert found.time.value == approx(true_us("warptiled", 1024, task.pitfalls), rel=1e-3), str(task)


@pytest.mark.parametrize(
    ("biased", "us"),
    [
        ({}, 140.0),
        ({"offset": "kept"}, 140.0 + OFFSET),
        ({"timer": "host", "offset": "kept"}, HOST),
        ({"warmup": "none", "statistic": "first"}, 1140.0),
        ({"warmup": "none", "statistic": "mean"}, 140.0 + 1000 / 9),
    ],
)
def test_only_samples_that_count_are_used_with_the_chosen_overhead_and_statistic(
    biased: dict[str, Any], us: float
) -> None:
    held, launches = Held(GRID), {name: value for name, value in biased.items() if name in ("timer", "warmup")}
    held.read("warptiled", SIZE, unbiased_settings() | launches)  # the same samples with another arithmetic
    found = held.read("warptiled", SIZE, unbiased_settings() | biased)
    assert len(found.samples) == 9 and found.time.value == approx(us, rel=1e-3)


def test_shares_follow_the_roof_and_a_setting_that_changes_no_launch_reads_the_same_measurement() -> None:
    unbiased = reading()
    assert unbiased.ratio.value == approx(CUBLAS / 140.0, rel=1e-3)
    assert unbiased.of_roof == approx(tflops(SIZE, 140.0) / PEAK)
    assert reading(roof="bf16_datasheet").of_roof == approx(tflops(SIZE, 140.0) / BF16_DATASHEET_TFLOPS)
    assert reading(timer="host", queue=False).measurement is reading(timer="host").measurement
    assert reading(gate=False).measurement is unbiased.measurement
    unchecked = replace(unbiased.measurement, changed={"gate": False})
    run = replace(GRID, measurements=[*GRID.measurements, unchecked])
    assert reading(run, gate=False).measurement is unchecked, "preferred where there is one"
    assert reading(run).measurement is not unchecked


def test_a_run_of_another_harness_answers_for_its_own_settings() -> None:
    mine = [m for m in GRID.measurements if m.changed == {"l2": "warm"}]
    warm = replace(GRID, harness=GRID.harness | {"l2": "warm"}, measurements=[replace(m, changed={}) for m in mine])
    assert reading(warm, l2="warm").time.value == approx(112.0)
    locked = replace(GRID, harness=GRID.harness | {"clocks": "locked:1395"})
    assert unbiased_settings(locked)["clocks"] == "locked:1395"
    assert reading(locked).time.value == reading(locked, clocks="locked").time.value == approx(140.0)
    uncalibrated = replace(GRID, calibration={})
    assert reading(uncalibrated, offset="kept").time.value == approx(140.0 + OFFSET)
    failed = replace(reading().measurement, status="refused", reason="precision: wrong")
    for run, chosen, words in (
        (warm, {}, "nearest: with l2 = warm"),
        (GRID, {"clocks": "locked"}, "clocks = locked"),
        (GRID, {"kernel": "shared"}, "not recorded: shared at 1024, unbiased; nearest: naive"),
        (replace(GRID, measurements=[failed]), {}, r"warptiled at 1024: failed: .*precision: wrong"),
        (uncalibrated, {}, "no calibrated event overhead"),
    ):
        with pytest.raises(NotRecorded, match=words):
            reading(run, **chosen)


@pytest.mark.parametrize(
    ("kernel", "size", "biased", "words"),
    [
        ("warptiled", 1024, {"order": "sequential", "inputs": "zeros", "placement": "fixed"}, "without order = seque"),
        ("warptiled", 1024, {"l2": "rotate", "timer": "graph", "statistic": "min"}, "without timer = graph, l2 = rot"),
        ("warptiled", 512, {"l2": "rotate"}, "at 256 without l2 = rotate"),
        ("warptiled", 2048, {"l2": "warm"}, "at 1024"),
        ("shared", 256, {"l2": "warm"}, "naive"),
        ("warptiled", 1024, {"timer": "host", "queue": False, "inputs": "ones"}, "without inputs = ones"),
        ("warptiled", 1024, {"timer": "host", "queue": False, "inputs": "zeros", "l2": "warm"}, "without l2 = warm"),
    ],
)
def test_the_nearest_combination_was_measured_and_has_the_fewest_settings_changed(
    kernel: str, size: int, biased: dict[str, Any], words: str
) -> None:
    """Of this kernel at this size if there is one; of equally near ones, the table's first setting is changed."""
    chosen, held = unbiased_settings() | biased, Held(GRID)
    assert not held.has(kernel, Shape.of(size), chosen)
    found = held.nearest(kernel, Shape.of(size), chosen)
    assert found is not None and found.words.startswith(words)
    assert held.has(found.kernel, found.shape, found.settings)
    assert all(found.settings[g.setting] == chosen[g.setting] for g in PITFALLS if not g.resampled)
    again = held.nearest(found.kernel, found.shape, found.settings)
    assert again is not None and again.words == ""


def test_a_combination_that_failed_is_never_the_nearest() -> None:
    unbiased, warm = reading().measurement, reading(l2="warm").measurement
    held = Held(replace(GRID, measurements=[replace(unbiased, status="refused", reason="wrong"), warm]))
    found = held.nearest("warptiled", SIZE, unbiased_settings())
    assert found is not None and found.words == "with l2 = warm"
    assert not held.has("warptiled", SIZE, unbiased_settings())
    assert Held(replace(GRID, measurements=[])).nearest("warptiled", SIZE, unbiased_settings()) is None


def test_the_shipped_grid_answers_every_combination_of_what_the_panel_promises_as_its_harness_read_it() -> None:
    """The article's four fixes, timer, queue, offset, statistic and gate, at three sizes and for three rungs."""
    run = Run.load(recordings("grid")["h100"], origin="recorded")
    held = Held(run)
    for m in run.measurements:
        found = held.read(m.kernel, m.problem, held.unbiased | m.changed)
        assert found.measurement is m
        assert (found.time.value, found.ratio.value) == (approx(m.us, abs=2e-3), approx(m.ratio, rel=2e-3))
        assert found.of_roof == approx(m.of_roof, rel=1e-3)
    places = set(product({m.kernel for m in run.measurements}, {m.problem for m in run.measurements}))
    promised = [g for g in PITFALLS if g.article or g.setting in ("queue", "offset", "statistic", "gate")]
    assert len(places) >= 9 and len(promised) == 8
    changes = [g for g in promised if g in LAUNCHES]
    for biased in product(*((g.unbiased, g.biased[0]) for g in changes)):
        settings = held.unbiased | dict(zip((g.setting for g in changes), biased, strict=True))
        assert all(held.has(*place, settings) for place in places), settings
    naive = held.unbiased | {g.setting: g.biased[0] for g in LAUNCHES}
    for place, values in product(places, product(*(g.values for g in COMPUTED))):
        computed = dict(zip((g.setting for g in COMPUTED), values, strict=True))
        assert held.read(*place, held.unbiased | computed).time.value > 0
        assert held.has(*place, naive | computed)


@pytest.mark.parametrize("run", [GRID, choice.grid_run()], ids=["tasks", "shipped"])
def test_each_single_change_of_all_naive_and_of_the_articles_four_has_a_reading(run: Run) -> None:
    """Of the settings that the run's head knows: the first thing that a reader does is to restore one fix."""
    held, known = Held(run), [g for g in LAUNCHES if g.setting in run.harness]
    places = {(m.kernel, m.problem) for m in run.measurements}
    missing = set()
    for whole, changed in product((known, [g for g in known if g.article]), known):
        biased = {g.setting: g.biased[0] for g in known if (g in whole) != (g is changed)}
        if not all(held.has(*place, held.unbiased | biased) for place in places):
            missing.add(tuple(biased))
    assert missing == set()


def test_where_the_panels_runs_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(iter(recordings())) == "h200", "the default recording is the ladder's"
    path = choice.new_file()
    assert path.parent.name == "panel" and path.suffix == ".json", "in a folder that no command opens by default"
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    assert choice.grid_runs() == [] and "measurements of at most" in str(lab.recorded())
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    monkeypatch.setattr(choice, "gpu_reason", lambda: None)
    assert choice.why_not_live() == "WORKLOG_SOURCE=recorded"
    monkeypatch.delenv("WORKLOG_SOURCE")
    assert choice.why_not_live() is None
    monkeypatch.setattr(choice, "recordings", lambda part: {})
    with pytest.raises(BadRunFile, match="worklog ablate --grid --out"):
        lab.panel_static()


def test_what_was_recorded_is_computed_from_the_run() -> None:
    facts = dict(lab.recorded(GRID).rows)
    assert (facts["rungs"], facts["sizes"]) == ("naive, warptiled", "256, 1024")
    assert facts["one setting changed"].startswith("clocks = ignored, timer = host, l2 = warm, warmup = none, queue")
    pairs = comb(len(LAUNCHES), 2)
    assert facts["two of these"] == f"{pairs} of {pairs} pairs"
    assert facts["three or more of these"] == (
        "every combination of clocks, timer, l2, warmup, queue; and all of these settings together"
    )
    assert facts["all of these but one"].startswith("restored: clocks, timer, l2, warmup")
    assert "l2 = rotate" in facts["not recorded"] and "l2 = warm" not in facts["not recorded"]
    fewer = dict(lab.recorded(small_grid(without=({"l2": "warm", "queue": False}, {"inputs": "zeros"}))).rows)
    pairs = comb(len(LAUNCHES) - 1, 2)
    assert fewer["two of these"] == f"{pairs - 1} of {pairs} pairs" and "inputs = zeros" in fewer["not recorded"]
    assert fewer["three or more of these"].startswith("every combination of clocks, timer, l2, warmup;")


# ------------------------------------------------------------------------------------------------------ the answer


def test_the_panel_begins_unbiased_with_the_last_rung_at_the_middle_size() -> None:
    first = PanelChoice([GRID])
    assert (first.kernel, first.shape, first.settings) == ("warptiled", SIZE, unbiased_settings())
    assert first.kernels == ["naive", "warptiled"] and [str(s) for s in first.shapes] == ["256", "1024"]


@pytest.mark.parametrize(
    ("kernel", "size", "biased", "error", "words"),
    [
        ("wraptiled", 1024, {}, BadSetting, "wraptiled"),
        ("naive", 0, {}, BadSetting, "0"),
        ("naive", 1024, {"l2": "lukewarm"}, BadSetting, "l2"),
        ("naive", 1024, {"luck": True}, BadSetting, "luck"),
        ("naive", 1024, {"budget_s": 1.0}, BadSetting, "budget_s"),
        ("naive", 1024, {"timer": "graph"}, BadSetting, "graph"),
    ],
)
def test_what_cannot_be_answered_is_an_error(
    kernel: str, size: int, biased: dict[str, Any], error: type[WorklogError], words: str
) -> None:
    with pytest.raises(error, match=words):
        lab.panel_static(kernel, size, run=GRID, **biased)


def test_the_tasks_are_the_unbiased_reading_and_the_chosen_launches() -> None:
    def asked(**biased: Any) -> list[dict[str, Any]]:
        tasks = PanelChoice([GRID], "warptiled", 1024, **biased).tasks()
        assert all(Harness().but(**dict(task.changed)) for task in tasks)
        return [task.pitfalls for task in tasks]

    assert asked(l2="warm", gate=False, statistic="min") == [{}, {"l2": "warm", "gate": False}]
    assert asked(statistic="min") == [{}]
    empty = PanelChoice([])
    assert len(empty.kernels) == len(empty.shapes) == 3, "there is something to measure"
    with pytest.raises(NotRecorded, match="nothing has been measured"):
        empty.answer()


def test_a_reading_is_compared_with_the_unbiased_one() -> None:
    unbiased, warm = answer(), answer(l2="warm")
    assert (unbiased.whole.off, unbiased.whole.visible, unbiased.steps, unbiased.changed) == (0.0, False, (), [])
    assert unbiased.comparison.startswith("this is the unbiased reading · ±")
    assert unbiased.headline == "140 µs → 15.3 TFLOP/s → 35.7 % of cuBLAS"
    assert warm.whole.off == approx(-0.2, abs=1e-3)
    assert warm.comparison.startswith("unbiased 140 µs · this reading is 20.0 % lower · ±")
    assert warm.comparison.endswith("(95 %) from 9 samples")
    impossible = replace(unbiased, reading=replace(unbiased.reading, time=Estimate(1.0, 1.0, 1.0)))
    assert " 2147 TFLOP/s" in impossible.headline
    amounts = {-0.083: "8.3 % lower", 0.5: "50.0 % higher", 9.0: "10 times too long", -0.99: "100 times too short"}
    assert {off: amount(off) for off in amounts} == amounts


@pytest.mark.parametrize(
    ("biased", "steps"),
    [
        ({"queue": False, "l2": "warm", "offset": "kept"}, {"3 l2": -28.0, "queue": BUBBLE, "offset": OFFSET}),
        ({"timer": "host", "l2": "warm", "queue": False}, {"2 timer": HOST - 140.0, "3 l2": 0.0, "queue": 0.0}),
        ({"clocks": "ignored"}, {"1 clocks": 0.0}),
    ],
)
def test_each_setting_adds_a_step_in_the_tables_order(biased: dict[str, Any], steps: dict[str, float]) -> None:
    found = answer(**biased)
    assert [step.row[0] for step in found.steps] == list(steps)
    assert [step.us for step in found.steps] == approx(list(steps.values()), abs=0.1)
    assert [step.visible for step in found.steps] == [us != 0 for us in steps.values()]
    assert (found.steps[0].before, found.steps[-1].after) == (found.unbiased, found.reading)
    assert picture(found).png()


def test_settings_that_were_measured_only_together_are_one_step() -> None:
    [step] = answer(small_grid(without=({"l2": "warm"},)), l2="warm", queue=False).steps
    assert step.row[0] == "3 l2 + queue"


def test_the_recorded_steps_have_whole_names_and_lines_from_each_to_the_next() -> None:
    fixed = PanelChoice([choice.grid_run()])
    for setting, joined in (("roof", 1), ("l2", 2)):  # as "placement + inputs", and with "+ gate"
        fixed.all_naive()
        fixed.choose(setting, unbiased_settings()[setting])
        rows, steps = fixed.answer().rows, picture(fixed.answer()).axes[1]
        names = [label.get_text() for label in steps.get_yticklabels()]
        assert names == [row[0] for row in rows] and max(name.count(" + ") for name in names) == joined
        starts = [line.get_xdata()[0] for line in steps.lines if line.get_linewidth() == 0.6]
        assert starts == [row[3] for row in rows[:-1]]


def test_what_moves_no_time_is_said_in_words() -> None:
    shares = answer(baseline="tf32", roof="bf16_datasheet")
    assert shares.steps == () and len(shares.changed) == 2 and not shares.whole.visible
    assert [line.partition(":")[0] for line in shares.others] == ["share of cuBLAS", "share of the roof"]
    mean = answer(statistic="mean")
    assert not mean.whole.visible and [step.visible for step in mean.steps] == [False], "printed as zero"
    assert "within the noise" in mean.comparison
    for gate, words in ((False, "not checked"), ("article", "the article's rule")):
        [line] = answer(gate=gate).others
        assert words in line
    for statistic in ("first", "min", "mean"):
        assert answer(statistic=statistic, l2="warm").comparison.endswith(f" · {statistic} of 9 samples"), "no interval"


def test_the_first_run_that_holds_a_combination_answers_and_is_compared_with_itself() -> None:
    live = small_grid()
    live.origin, live.measurements = "live", [m for m in live.measurements if m.changed in ({}, {"l2": "warm"})]
    found = PanelChoice([live, GRID], "warptiled", 1024, l2="warm")
    assert found.answer().reading.run is found.answer().unbiased.run is live
    found.choose("queue", False)
    assert found.answer().reading.run is GRID


def test_the_picture_has_the_answer_as_text_and_its_source() -> None:
    found = PanelChoice([GRID], "warptiled", 1024, l2="warm", queue=False)
    chart = found.chart()
    assert chart.alt.startswith(". ".join(found.answer().sentences)) and 'role="img"' in chart.svg()
    for part in ("warptiled at 1024, l2 = warm, queue = off", "3 l2: −28 µs; queue: +20", GRID.label):
        assert part in chart.alt
    assert chart.svg() == found.chart().svg()
    naive = lab.panel_static("naive", 256, run=GRID, **Harness.naive().biased())
    assert GRID.label.replace("as found", "ignored") in [text.get_text() for text in naive.texts]
