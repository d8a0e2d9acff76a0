"""What a run has for a combination of settings: measured numbers with the chosen arithmetic, or an error."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from pytest import approx

from tests.lab.grid import CUBLAS, HOST, OFFSET, PEAK, small_grid, true_us
from worklog.lab.choice import Held, NotRecorded, Reading, unbiased_settings
from worklog.problem.gemm import Shape, tflops
from worklog.runner.tasks import grid_tasks
from worklog.runs.run import Run, recordings
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS, Harness

GRID = small_grid()
SIZE = Shape.of(1024)


def reading(run: Run = GRID, kernel: str = "warptiled", **biased: Any) -> Reading:
    return Held(run).read(kernel, SIZE, unbiased_settings() | biased)


def test_every_combination_of_the_grid_is_read_as_it_was_made() -> None:
    for task in grid_tasks():
        if (task.kernel, task.shape) == ("warptiled", SIZE):
            found = reading(**task.pitfalls)
            assert found.measurement.changed == task.pitfalls, str(task)
            assert found.time.value == approx(true_us("warptiled", 1024, task.pitfalls), rel=1e-3), str(task)


def test_only_samples_that_count_are_used_and_the_overhead_is_subtracted() -> None:
    found = reading()
    assert len(found.samples) == 9 and found.time.value == approx(140.0)
    assert found.ratio.value == approx(CUBLAS / 140.0, rel=1e-3)
    assert found.of_roof == approx(tflops(SIZE, 140.0) / PEAK)


@pytest.mark.parametrize(
    ("biased", "us"),
    [
        ({"offset": "kept"}, 140.0 + OFFSET),
        ({"timer": "host", "offset": "kept"}, HOST),
        ({"warmup": "none", "statistic": "first"}, 1140.0),
        ({"warmup": "none", "statistic": "mean"}, 140.0 + 1000 / 9),
    ],
)
def test_overhead_and_statistic_are_applied_to_the_samples(biased: dict[str, Any], us: float) -> None:
    held, launches = Held(GRID), {name: value for name, value in biased.items() if name in ("timer", "warmup")}
    held.read("warptiled", SIZE, unbiased_settings() | launches)  # the same samples with another arithmetic
    assert held.read("warptiled", SIZE, unbiased_settings() | biased).time.value == approx(us, rel=1e-3)


def test_a_setting_that_changes_no_launch_reads_the_same_measurement() -> None:
    assert reading(timer="host", queue=False).measurement is reading(timer="host").measurement
    assert reading(gate=False).measurement is reading().measurement
    unchecked = replace(reading().measurement, changed={"gate": False})
    run = replace(GRID, measurements=[*GRID.measurements, unchecked])
    assert reading(run, gate=False).measurement is unchecked, "preferred where there is one"
    assert reading(run).measurement is not unchecked
    assert reading(roof="bf16_datasheet").of_roof == approx(tflops(SIZE, 140.0) / BF16_DATASHEET_TFLOPS)


def test_a_run_with_one_biased_setting_answers_for_that_setting() -> None:
    mine = [m for m in GRID.measurements if m.changed == {"l2": "warm"}]
    run = replace(GRID, harness=GRID.harness | {"l2": "warm"}, measurements=[replace(m, changed={}) for m in mine])
    assert reading(run, l2="warm").time.value == approx(112.0)
    with pytest.raises(NotRecorded):
        reading(run)


def test_locked_clocks_answer_for_watched_ones() -> None:
    run = replace(GRID, harness=GRID.harness | {"clocks": "locked:1395"})
    assert unbiased_settings(run)["clocks"] == "locked:1395"
    assert reading(run).time.value == reading(run, clocks="locked").time.value == approx(140.0)
    with pytest.raises(NotRecorded, match="clocks = locked"):
        reading(clocks="locked")


def test_what_is_missing_is_named_with_what_there_is() -> None:
    with pytest.raises(NotRecorded, match="not recorded: shared at 1024, unbiased; nearest: naive"):
        reading(kernel="shared")
    failed = replace(reading().measurement, status="refused", reason="precision: wrong")
    with pytest.raises(NotRecorded, match=r"warptiled at 1024: failed: .*precision: wrong"):
        reading(replace(GRID, measurements=[failed]))
    uncalibrated = replace(GRID, calibration={})
    with pytest.raises(NotRecorded, match="no calibrated event overhead"):
        reading(uncalibrated)
    assert reading(uncalibrated, offset="kept").time.value == approx(140.0 + OFFSET)


@pytest.mark.parametrize(
    ("kernel", "size", "biased", "words"),
    [
        (
            "warptiled",
            1024,
            {"order": "sequential", "inputs": "zeros", "placement": "fixed"},
            "without order = sequential",
        ),
        (
            "warptiled",
            1024,
            {"l2": "rotate", "timer": "graph", "statistic": "min"},
            "without timer = graph, l2 = rotate",
        ),
        ("warptiled", 512, {"l2": "rotate"}, "at 256 without l2 = rotate"),
        ("warptiled", 2048, {"l2": "warm"}, "at 1024"),
        ("shared", 256, {"l2": "warm"}, "naive"),
        ("warptiled", 1024, {"timer": "host", "queue": False, "inputs": "ones"}, "without inputs = ones"),
    ],
)
def test_the_nearest_combination_has_the_fewest_settings_changed(
    kernel: str, size: int, biased: dict[str, Any], words: str
) -> None:
    """Of this kernel at this size if there is one; of equally near ones, the table's first setting is changed."""
    chosen, held = unbiased_settings() | biased, Held(GRID)
    assert not held.has(kernel, Shape.of(size), chosen)
    found = held.nearest(kernel, Shape.of(size), chosen)
    assert found is not None and found.words == words
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


def test_the_shipped_grid_answers_every_combination_of_what_the_panel_promises() -> None:
    """The article's four fixes, timer, queue, offset, statistic and gate, at three sizes and for three rungs."""
    run = Run.load(recordings()["h200_grid"], origin="recorded")
    held = Held(run)
    promised = [g for g in PITFALLS if g.article or g.setting in ("queue", "offset", "statistic", "gate")]
    resampled, computed = ([g for g in promised if g.resampled is again] for again in (True, False))
    assert len(promised) == 8
    rungs, shapes = {m.kernel for m in run.measurements}, {m.problem for m in run.measurements}
    assert len(rungs) >= 3 and len(shapes) >= 3
    for biased in product(*((g.unbiased, g.biased[0]) for g in resampled)):
        settings = unbiased_settings(run) | {g.setting: value for g, value in zip(resampled, biased, strict=True)}
        for kernel, shape in product(rungs, shapes):
            found = held.find(kernel, shape, settings)
            assert found is not None and found.status == "measured", (kernel, str(shape), settings)
    naive = Harness.naive().biased()
    for kernel, shape, values in product(rungs, shapes, product(*(g.values for g in computed))):
        settings = unbiased_settings(run) | {g.setting: value for g, value in zip(computed, values, strict=True)}
        assert held.read(kernel, shape, settings).time.value > 0
        assert held.has(kernel, shape, settings | {g.setting: naive[g.setting] for g in resampled})


def test_the_shipped_grid_is_read_as_its_harness_read_it() -> None:
    run = Run.load(recordings()["h200_grid"], origin="recorded")
    held = Held(run)
    for m in run.measurements:
        found = held.read(m.kernel, m.problem, held.unbiased | m.changed)
        assert found.measurement is m
        assert (found.time.value, found.ratio.value) == (approx(m.us, abs=2e-3), approx(m.ratio, rel=2e-3))
        assert found.of_roof == approx(m.of_roof, rel=1e-3)
