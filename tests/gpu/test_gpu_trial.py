"""A kernel in a few lines, on a GPU: timed beside the rungs and cuBLAS, from Python, from a cell and from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import PLAIN
from worklog import open_run, try_kernel
from worklog.gpu.device import gpu
from worklog.kernel.ladder import rung
from worklog.lab import magic

BESIDE = ["naive", "shared"]


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(magic, "_ladders", {})
    monkeypatch.chdir(tmp_path)


def test_a_kernel_is_timed_between_its_neighbours_and_the_ladder_once_for_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(magic, "LADDER", tuple(map(rung, BESIDE)))
    first = try_kernel(PLAIN, "one", shapes=[512])
    assert first.passed and first.checked.label == f"live · {gpu().name}"
    assert first.run is not None and [m.kernel for m in first.run.measurements] == ["one", *BESIDE, "cuBLAS"]
    rate = {m.kernel: m.tflops or 0.0 for m in first.shown.measurements}
    assert list(rate) == ["naive", "shared", "one", "cuBLAS"]
    assert rate["naive"] < rate["one"] < rate["cuBLAS"]
    assert first.ladder().headline.startswith("one reaches ")
    assert open_run().kernels["one"]["user"] == "kernel"
    second = try_kernel(PLAIN, "two", shapes=[512])
    assert second.run is not None and [m.kernel for m in second.run.measurements] == ["two", "cuBLAS"]
    assert [m.kernel for m in second.shown.measurements] == [*BESIDE, "two", "cuBLAS"]
