"""FOREIGN: a child that does what a kernel's name says (tests.foreign_job)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from worklog.gpu import device
from worklog.kernel import Kernel
from worklog.runner import check, measure

FOREIGN = (sys.executable, "-m", "tests.foreign_job")
JOB = (sys.executable, "-m", "tests.virtual.job")


def mine(name: str) -> Kernel:
    """What the name says happens to the process of FOREIGN."""
    return Kernel(name, "x.cu", "x", grid="1, 1", block="1", text="")


@pytest.fixture(autouse=True)
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FOREIGN_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU, whatever machine this is, and an empty folder."""
    for module in (check, measure, device):
        monkeypatch.setattr(module, "gpu_reason", lambda: "this test has no GPU")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[], list[int]]:
    """Ids of the processes that wrote them down."""

    def read() -> list[int]:
        file = tmp_path / "pids"
        return list(map(int, file.read_text().split())) if file.exists() else []

    return read
