"""The emulator's counts against a GPU's hardware counters, which tests/gpu/ncu_counts.py recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.ncu_counts import METRICS, REPLAYED, emulated, read_csv, replays
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Shape

RECORD = Path(__file__).with_name("ncu_h200.json")
NAMES = [r.name for r in LADDER]


@pytest.fixture(scope="module")
def h200() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def test_the_record_is_of_these_kernels(h200: dict[str, Any]) -> None:
    assert h200["device"] == "NVIDIA H200"
    recorded = {name: kernel["sha256"] for name, kernel in h200["kernels"].items()}
    assert recorded == {r.name: r.program.sha256 for r in LADDER}, "a kernel changed: record its counts again"


@pytest.mark.parametrize("name", NAMES)
def test_every_count_is_the_gpus(h200: dict[str, Any], name: str) -> None:
    counted = h200["kernels"][name]["counts"]
    assert len(counted) == len(METRICS)
    here = emulated(rung(name), Shape.of(h200["shape"]), h200["alpha"], h200["beta"], h200["arch"])
    again = replays(here, counted)
    assert again <= 0.2 * counted["shared_store.wavefronts"]
    expected = {what: value + (again if what in REPLAYED else 0) for what, value in here.items()}
    assert expected == counted


def test_reading_what_ncu_prints() -> None:
    rows = [
        f'"{i}","1","python","h","sgemm_{name}","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0","s","{metric}","","1,{i:03}"'
        for name in NAMES
        for i, metric in enumerate(METRICS)
    ]
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
    head += ',"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
    found = read_csv("\n".join(["==PROF== Connected to process 1", head, *rows]))
    assert list(found) == NAMES
    assert found["naive"] == {ours: 1000 + i for i, ours in enumerate(METRICS.values())}
    with pytest.raises(SystemExit, match="no complete counts of warptiled"):
        read_csv("\n".join([head, *rows[:-1]]))
    with pytest.raises(SystemExit, match="no table"):
        read_csv("==ERROR== no permission")
