"""Rungs executed without a GPU, as `worklog article` does it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worklog.bench.check import as_dict, execute, text
from worklog.kernel.ladder import rung


def test_rungs_are_executed_with_their_memory_counts() -> None:
    steps: list[tuple[int, int, str]] = []
    rungs = [rung(name) for name in ("naive", "tiles_2d", "warptiled")]
    executed = execute(lambda *step: steps.append(step), rungs)
    assert [row.rung for row in executed] == ["naive", "tiles_2d", "warptiled"]
    assert [(row.precision, row.reason, row.findings) for row in executed] == [("fp32", None, 0)] * 3
    assert steps[0] == (0, 3, "naive, emulated") and steps[-1] == (3, 3, "done")
    naive, tiles, warptiled = executed
    assert naive.sectors_per_request == pytest.approx(16.5, abs=0.1)
    assert naive.sectors_per_fma > 30 and warptiled.sectors_per_fma < 0.1
    assert tiles.conflict_share > 0.1 > warptiled.conflict_share
    assert as_dict(executed)["rungs"][0]["shape"] == [256, 256, 256]
    marked = [replace(row, caveats=("mostly fewer",)) if row is not naive else row for row in executed]
    assert text(marked).splitlines()[-1] == "  tiles_2d, warptiled: mostly fewer"


def test_a_rung_without_a_barrier_fails_and_its_races_are_counted() -> None:
    record = rung("tiles_1d")
    broken = replace(record, text=record.source.replace("__syncthreads();", "", 1))
    (row,) = execute(lambda *step: None, [broken])
    assert row.reason is not None and "race" in row.reason
    assert row.findings >= 1
    assert "failed at launch: 04_tiles_1d.cu:" in text([row])
