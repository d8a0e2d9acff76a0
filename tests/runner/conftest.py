"""FOREIGN: a child that does what a kernel's name says (tests.foreign_job).

JOB: the real one, on the virtual GPU.
"""

import sys

import pytest

from worklog.kernel import Kernel, Program
from worklog.kernel.launch import Launch

FOREIGN = (sys.executable, "-m", "tests.foreign_job")
JOB = (sys.executable, "-m", "tests.virtual.job")


def mine(name: str) -> Kernel:
    """Return a user kernel; what the name says happens to the process of FOREIGN."""
    return Kernel(name, Program("x.cu", "", ""), (Launch("x", "1, 1", "1"),))


@pytest.fixture(autouse=True)
def foreign(monkeypatch, tmp_path):
    monkeypatch.setenv("FOREIGN_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))


@pytest.fixture
def pids(tmp_path):
    """Ids of the processes that wrote them down."""

    def read() -> list[int]:
        file = tmp_path / "pids"
        return list(map(int, file.read_text().split())) if file.exists() else []

    return read
