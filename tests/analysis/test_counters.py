"""The recorded counters of Nsight Compute."""

from __future__ import annotations

import pytest

from worklog.analysis.counters import counters
from worklog.errors import BadRunFile
from worklog.kernel.ladder import LADDER, TENSOR
from worklog.kernel.rungs import FP32


def test_recorded_counters_are_of_this_source_and_a_rung_without_is_named() -> None:
    table = counters([rung.name for rung in (*LADDER, *FP32, *TENSOR)])
    assert not any("changed" in note for note in table.notes)
    assert table.title.startswith("recorded · NVIDIA H200 · ") and table.title.endswith("2048")
    busiest = {str(row[0]): str(row[-1]) for row in table.rows}
    assert busiest["naive"] == "L1 and shared" and busiest["split"] == "tensor cores"
    assert all(0 <= float(str(cell).removesuffix(" %")) <= 100 for row in table.rows for cell in row[1:-1])
    fewer = counters(["naive", "best"])
    assert [row[0] for row in fewer.rows] == ["naive"] and fewer.notes == ["no counters are recorded of: best"]
    with pytest.raises(BadRunFile, match=r"no counters of best are recorded: choose from naive, "):
        counters(["best"])
