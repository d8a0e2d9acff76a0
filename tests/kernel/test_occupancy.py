"""Static occupancy, against what NVIDIA's own calculator (cuda_occupancy.h of CUDA 13.0) answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from worklog.errors import WorklogError
from worklog.kernel.nvrtc import ARCHITECTURES
from worklog.kernel.resources import LIMITS, occupancy


def test_it_is_what_nvidias_calculator_says() -> None:
    rows = np.genfromtxt(Path(__file__).with_name("occupancy.csv"), delimiter=",", names=True, dtype=None)
    assert len(rows) == 700 and set(LIMITS) == set(ARCHITECTURES)
    found = [
        occupancy(str(arch), *map(int, words)).blocks
        for arch, *words in rows[["arch", "threads", "registers", "shared_bytes"]]
    ]
    assert found == rows["blocks"].tolist()


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "expected"),
    [
        (1024, 32, 0, (2, 64, 1.0, ("warps", "registers"))),
        (128, 255, 20_480, (2, 8, 0.125, ("registers",))),
        (256, 32, 49_152, (4, 32, 0.5, ("shared memory",))),
        (32, 16, 0, (32, 32, 0.5, ("blocks",))),
        (1024, 128, 0, (0, 0, 0.0, ("registers",))),
        (2048, 16, 0, (0, 0, 0.0, ("warps",))),
        (64, 16, 240_000, (0, 0, 0.0, ("shared memory",))),
        (64, 0, 0, (32, 64, 1.0, ("warps", "blocks"))),
    ],
)
def test_what_limits_an_h200(threads: int, registers: int, shared: int, expected: tuple[object, ...]) -> None:
    found = occupancy("sm_90", threads, registers, shared)
    assert (found.blocks, found.warps, found.share, found.limited_by) == expected


def test_mistakes() -> None:
    with pytest.raises(WorklogError, match="sm_70 are unknown: choose from sm_75"):
        occupancy("sm_70", 128, 32, 0)
    with pytest.raises(WorklogError, match="a block of 0 threads"):
        occupancy("sm_90", 0, 32, 0)
