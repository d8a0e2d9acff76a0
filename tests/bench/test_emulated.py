"""Every rung executed without a GPU, as `worklog article` does it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worklog.bench import emulated
from worklog.bench.emulated import as_dict, execute
from worklog.kernel.ladder import LADDER, rung

printed = emulated.text


def test_every_rung_is_executed_and_right() -> None:
    told: list[tuple[int, int, str]] = []
    executed = execute(lambda *step: told.append(step))
    assert [row.rung for row in executed] == [r.name for r in LADDER]
    assert [(row.precision, row.reason, row.findings) for row in executed] == [("fp32", None, 0)] * len(LADDER)
    assert told[0] == (0, len(LADDER), "naive, emulated") and told[-1] == (len(LADDER), len(LADDER), "done")
    by_name = {row.rung: row for row in executed}
    assert by_name["naive"].sectors_per_request == pytest.approx(16.5, abs=0.1)
    sectors = [row.sectors_per_fma for row in executed]
    assert sectors[0] > 30 and sectors[-1] < 0.1
    assert [row.rung for row in executed if row.conflict_share > 0.1] == ["tiles_2d", "vectorized"]
    assert len(printed(executed).splitlines()) == len(LADDER) + 2
    marked = [
        replace(row, caveats=("mostly fewer",)) if row.rung in ("shared", "tiles_1d") else row for row in executed
    ]
    assert printed(marked).splitlines()[-1] == "  shared, tiles_1d: mostly fewer"
    assert as_dict(executed)["rungs"][0]["shape"] == [256, 256, 256]


def test_a_rung_without_a_barrier_is_refused_and_its_races_are_counted() -> None:
    record = rung("tiles_1d")
    broken = replace(record, text=record.source.replace("__syncthreads();", "", 1))
    (row,) = execute(lambda *step: None, [broken])
    assert row.reason is not None and "race" in row.reason
    assert row.findings >= 1
    text = printed([row])
    assert "failed at launch: 04_tiles_1d.cu:" in text
