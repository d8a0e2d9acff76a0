"""What a run says about a combination: measured numbers with the arithmetic asked for, or that it does not hold it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from pytest import approx

from tests.lab.grid import CUBLAS, HOST, OFFSET, PEAK, small_grid, true_us
from worklog.bench.tasks import grid_tasks
from worklog.lab.readings import NotRecorded, Reading, find, in_words, naive_settings, read, unbiased_settings
from worklog.problem.gemm import Shape, tflops
from worklog.runs.run import Run, recordings
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS

GRID = small_grid()
SIZE = Shape.of(1024)


def reading(run: Run = GRID, kernel: str = "warptiled", **biased: Any) -> Reading:
    return read(run, kernel, SIZE, unbiased_settings() | biased)


@pytest.mark.parametrize("task", [t for t in grid_tasks() if (t.kernel, t.shape.m) == ("warptiled", 1024)], ids=str)
def test_every_combination_of_the_grid_is_read_as_it_was_made(task: Any) -> None:
    found = reading(**task.pitfalls)
    assert found.measurement.changed == task.pitfalls
    assert found.time.value == approx(true_us("warptiled", 1024, task.pitfalls), rel=1e-3)


def test_only_samples_that_count_are_used_and_the_offset_is_taken_off() -> None:
    found = reading()
    assert len(found.samples) == 9
    assert found.time.value == approx(140.0)
    assert found.ratio.value == approx(CUBLAS / 140.0, rel=1e-3)
    assert found.of_roof == approx(tflops(SIZE, 140.0) / PEAK)


def test_an_offset_that_is_kept_is_on_every_time() -> None:
    assert reading(offset="kept").time.value == approx(140.0 + OFFSET)


def test_a_host_clock_has_no_event_offset_to_remove() -> None:
    assert reading(timer="host").time.value == reading(timer="host", offset="kept").time.value == approx(HOST)


@pytest.mark.parametrize(("statistic", "us"), [("first", 1140.0), ("min", 140.0), ("mean", 140.0 + 1000 / 9)])
def test_a_statistic_is_taken_of_the_samples(statistic: str, us: float) -> None:
    assert reading(warmup="none", statistic=statistic).time.value == approx(us, rel=1e-3)


def test_the_wrong_roof() -> None:
    assert reading(roof="bf16_datasheet").of_roof == approx(tflops(SIZE, 140.0) / BF16_DATASHEET_TFLOPS)


def test_by_a_host_clock_the_queue_changes_nothing() -> None:
    assert reading(timer="host", queue=False).measurement is reading(timer="host").measurement


def test_a_gate_that_is_off_times_the_same_launches() -> None:
    assert reading(gate=False).measurement is reading().measurement


def test_a_measurement_without_the_gate_is_preferred_where_there_is_one() -> None:
    unasked = replace(reading().measurement, changed={"gate": False})
    run = replace(GRID, measurements=[*GRID.measurements, unasked])
    assert reading(run, gate=False).measurement is unasked
    assert reading(run).measurement is not unasked


def test_a_run_made_under_one_lie_answers_for_that_lie() -> None:
    mine = [m for m in GRID.measurements if m.changed == {"l2": "warm"}]
    run = replace(GRID, harness=GRID.harness | {"l2": "warm"}, measurements=[replace(m, changed={}) for m in mine])
    assert reading(run, l2="warm").time.value == approx(112.0)
    with pytest.raises(NotRecorded):
        reading(run)


def test_locked_clocks_answer_where_watching_is_asked_for() -> None:
    run = replace(GRID, harness=GRID.harness | {"clocks": "locked"})
    assert unbiased_settings(run)["clocks"] == "locked"
    assert reading(run).time.value == reading(run, clocks="locked").time.value == approx(140.0)
    with pytest.raises(NotRecorded, match="clocks = locked"):
        reading(clocks="locked")


def test_the_naive_harness_is_answered() -> None:
    assert read(GRID, "warptiled", SIZE, naive_settings()).measurement.changed["inputs"] == "zeros"


def test_what_is_not_there_is_said_with_the_nearest() -> None:
    with pytest.raises(NotRecorded) as told:
        reading(l2="warm", inputs="zeros")
    asked = "warptiled at 1024 with l2 = warm, inputs = zeros is not in this recorded run; without "
    assert str(told.value) in (f"{asked}{lie} it is" for lie in ("l2 = warm", "inputs = zeros"))
    with pytest.raises(NotRecorded, match="without l2 = rotate it is"):
        reading(l2="rotate", queue=False)


def test_a_rung_that_is_not_there_is_said_with_what_is() -> None:
    with pytest.raises(
        NotRecorded, match="which holds naive at 256, warptiled at 256, naive at 1024, warptiled at 1024"
    ):
        reading(kernel="shared")


def test_a_refusal_is_no_reading() -> None:
    refused = replace(reading().measurement, status="refused", reason="refused at precision: wrong")
    with pytest.raises(NotRecorded, match=r"warptiled at 1024: failed: .*precision: wrong"):
        reading(replace(GRID, measurements=[refused]))


def test_without_a_calibration_nothing_is_taken_off_in_silence() -> None:
    run = replace(GRID, calibration={})
    with pytest.raises(NotRecorded, match="no calibrated event overhead"):
        reading(run)
    assert reading(run, offset="kept").time.value == approx(140.0 + OFFSET)


def test_samples_without_a_partner_do_not_count() -> None:
    m = reading().measurement
    longer = m.samples | {"baseline_us": m.samples["baseline_us"] + [1.0] * 5}
    run = replace(GRID, measurements=[replace(m, samples=longer)])
    assert reading(run).ratio.value == reading().ratio.value


def test_settings_in_words() -> None:
    assert in_words(unbiased_settings()) == "unbiased"
    assert in_words(unbiased_settings() | {"queue": False, "l2": "warm"}) == "l2 = warm, queue = off"
    assert set(naive_settings()) == {g.setting for g in PITFALLS}


def test_the_same_launches_differ_exactly_and_others_beyond_their_noise() -> None:
    assert not reading().differs(reading(clocks="ignored"))
    assert reading().differs(reading(l2="warm"))
    assert reading().differs(reading(offset="kept"))
    assert not reading().differs(reading(roof="bf16_datasheet"))


def test_the_shipped_grid_answers_every_combination_that_is_promised() -> None:
    """The article's four fixes, timer, queue, offset, statistic and gate, at three sizes and for three rungs."""
    run = Run.load(recordings()["h200_grid"], origin="recorded")
    promised = [g for g in PITFALLS if g.article or g.setting in ("queue", "offset", "statistic", "gate")]
    assert len(promised) == 8
    resampled = [g for g in promised if g.resampled]
    rungs, shapes = ({name(m) for m in run.measurements} for name in (lambda m: m.kernel, lambda m: m.problem))
    assert len(rungs) >= 3 and len(shapes) >= 3
    for biased in product(*((g.unbiased, g.biased[0]) for g in resampled)):
        settings = unbiased_settings(run) | {g.setting: value for g, value in zip(resampled, biased, strict=True)}
        for kernel, shape in product(rungs, shapes):
            found = find(run, kernel, shape, settings)
            assert found is not None and found.status == "measured", (kernel, str(shape), settings)
            arithmetic = [g for g in promised if not g.resampled]
            for told in product(*(g.values for g in arithmetic)):
                asked = settings | {g.setting: value for g, value in zip(arithmetic, told, strict=True)}
                assert read(run, kernel, shape, asked).time.value > 0


def test_the_shipped_grid_is_read_as_its_harness_read_it() -> None:
    run = Run.load(recordings()["h200_grid"], origin="recorded")
    assert {(m.kernel, m.shape[0]): 0 for m in run.measurements}
    for m in run.measurements:
        assert find(run, m.kernel, m.problem, unbiased_settings(run) | m.changed) is m
        found = read(run, m.kernel, m.problem, unbiased_settings(run) | m.changed)
        assert (found.time.value, found.ratio.value) == (approx(m.us, abs=2e-3), approx(m.ratio, rel=2e-3))
        assert found.of_roof == approx(m.of_roof, rel=1e-3)
