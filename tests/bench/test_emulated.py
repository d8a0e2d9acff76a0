"""Rungs executed without a GPU, as `worklog article` does it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worklog.bench import check
from worklog.bench.check import execute, text
from worklog.kernel.ladder import rung
from worklog.problem.gemm import Shape


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "SMALL", Shape.of(64))


def test_rungs_are_executed_with_their_memory_counts() -> None:
    steps: list[tuple[int, int, str]] = []
    naive, tiles = executed = execute(lambda *step: steps.append(step), [rung("naive"), rung("tiles_2d")])
    assert [(row["rung"], row["precision"], row["reason"], row["findings"]) for row in executed] == [
        ("naive", "fp32", None, 0),
        ("tiles_2d", "fp32", None, 0),
    ]
    assert steps[0] == (0, 2, "naive, emulated") and steps[-1] == (2, 2, "done")
    assert naive["sectors_per_request"] == pytest.approx(16.5, abs=0.1)
    assert naive["sectors_per_fma"] > 30 and tiles["sectors_per_fma"] < 1
    assert tiles["conflict_share"] > 0.1 and naive["conflict_share"] == 0
    assert (naive["shape"], tiles["shape"]) == ([64, 64, 64], [128, 128, 64])
    assert text([naive, {**tiles, "caveats": ("mostly fewer",)}]).splitlines()[-1] == "  tiles_2d: mostly fewer"


def test_a_rung_without_a_barrier_fails_and_its_races_are_counted() -> None:
    record = rung("tiles_1d")
    broken = replace(record, text=record.source.replace("__syncthreads();", "", 1))
    (row,) = execute(lambda *step: None, [broken])
    assert "race" in row["reason"] and row["findings"] >= 1
    assert "failed at launch: 04_tiles_1d.cu:" in text([row])
