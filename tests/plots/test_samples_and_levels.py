"""The charts of one measurement's samples and of the bytes at each level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.plots.conftest import empty_run, measurement
from tests.plots.test_charts import collisions, said
from worklog.analysis.traffic import RungTraffic, Traffic
from worklog.errors import NothingToDraw
from worklog.plots.levels import levels, levels_of
from worklog.plots.samples import closing, samples
from worklog.problem.gemm import Shape
from worklog.runs.run import Run, open_run, recordings


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")
    return open_run()


def noisy(count: int, spread: float) -> list[float]:
    return (100 * (1 + spread * np.random.default_rng(0).standard_normal(count))).tolist()


def test_the_interval_closes_and_the_noise_stays() -> None:
    steps = closing(noisy(900, 0.05))
    assert [step.n for step in steps] == sorted({step.n for step in steps}) and steps[-1].n == 900
    early = next(step for step in steps if step.n >= 50)
    assert steps[-1].half_width < 0.4 * early.half_width
    assert steps[-1].noise == pytest.approx(early.noise, rel=0.25) == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("count", [1, 2, 9, 24, 2000])
def test_any_number_of_samples_is_drawn(count: int) -> None:
    us = noisy(count, 0.01)
    counts = [1] * (count - count // 10) + [0] * (count // 10)
    run = empty_run()
    run.measurements = [measurement("naive", 512, 100.0, 0.5, samples={"us": us, "counts": counts})]
    chart = samples(run, "naive", 512)
    assert collisions(chart) == []
    assert f"the median of {sum(counts)} is known" in chart.headline
    assert f"{count} of which {sum(counts)} count" in chart.alt and run.label in said(chart)


def test_samples_of_the_recordings_are_drawn_without_overlaps() -> None:
    for path in recordings().values():
        run = Run.load(path, origin="recorded")
        for shape in run.shapes():
            kernels = [m.kernel for m in run.select(shape=shape) if m.status == "measured"]
            assert collisions(samples(run, kernels[-1], shape)) == []


def test_what_has_no_samples_is_not_drawn(recorded: Run) -> None:
    with pytest.raises(NothingToDraw, match="no samples of unheard_of"):
        samples(recorded, "unheard_of", recorded.shapes()[-1])


def test_the_levels_are_the_bytes_that_they_say(recorded: Run) -> None:
    shape = Shape(64, 64, 64)
    counts = RungTraffic("", 1, 512, 32768, 1, 512, 0, 0, 64**3)
    run = replace(empty_run(), kernels={"one": {"tile": {"BM": 32, "BN": 32}}})
    found = levels_of(run, Traffic("emulated", shape, {"one": counts, "no tile": counts}))
    assert found.keys() == {"one"}
    assert found["one"].threads == 2 * 64**3 / (32768 + 4 * 64 * 64)
    assert found["one"].sectors == 2 * 64**3 / (32 * 1024)
    assert found["one"].blocks == 2 * 64**3 / (4 * (4 * 64 * 64 + 64 * 64))
    assert found["one"].compulsory == 2 * 64**3 / (3 * 4 * 64 * 64)


def test_no_level_of_a_shipped_rung_beats_the_one_above_it(recorded: Run) -> None:
    """Blocks fetch no less than A, B and C once; that a load takes whole sectors can only add to it."""
    for name, at in levels_of(recorded).items():
        assert at.blocks < at.compulsory, name
        assert at.sectors < 1.01 * at.blocks, name


def test_the_levels_are_drawn_with_both_labels(recorded: Run) -> None:
    chart = levels(recorded)
    assert collisions(chart) == []
    assert recorded.label in said(chart) and "emulated · sm_90 PTX" in said(chart)
    assert all(name in said(chart) for name in levels_of(recorded))
    with pytest.raises(NothingToDraw, match="measured roofs"):
        levels(replace(recorded, calibration={}))
