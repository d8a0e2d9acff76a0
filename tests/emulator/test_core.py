"""The core in C gives the values, findings and counts of NumPy, launch by launch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import compiled as compiled_source
from tests.emulator.helpers import edited, gemm, rung_kernel, smallest
from worklog.emulator.core.decode import decoded
from worklog.emulator.launch import _program
from worklog.kernel.ladder import LADDER, rung

RUNGS = [*(record.name for record in LADDER), "lane_map"]


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_rung_gives_what_it_gives_on_numpy(name: str, beta: float) -> None:
    record, kernel, source = rung_kernel(name)
    assert decoded(_program(kernel, 0)) is not None
    shape = smallest(record)
    ours, _, result = gemm(record, kernel, shape, beta=beta, alpha=1.5, source=source, core=True)
    theirs, right, expected = gemm(record, kernel, shape, beta=beta, alpha=1.5, source=source, core=False)
    assert ours.tobytes() == theirs.tobytes() and np.array_equal(ours, right)
    assert result.findings == expected.findings == () and result.lines == expected.lines


def test_a_missing_barrier_is_found_at_the_same_lines() -> None:
    record = rung("shared")
    source, _ = edited(record.source, "__syncthreads();  // wait: faster", "// wait: faster")
    kernel = compiled_source(source, record.program.entry)
    found = [
        {(finding.kind, finding.line, finding.other_line) for finding in result.findings}
        for core in (True, False)
        for result in [gemm(record, kernel, smallest(record), source=source, core=core)[2]]
    ]
    assert found[0] == found[1] != set()
