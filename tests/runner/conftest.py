"""FOREIGN: a child that does what a kernel's name says (tests.foreign_job).

JOB: the real one, on the virtual GPU.
"""

import sys
from pathlib import Path

import pytest

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import QUICK, VirtualSession
from worklog.benchmarks.declare import declared
from worklog.kernel import Kernel, Program
from worklog.kernel.launch import Launch
from worklog.runner.job import Job
from worklog.runner.worker import measure_job
from worklog.runs import Measurement

FOREIGN = (sys.executable, "-m", "tests.foreign_job")
JOB = (sys.executable, "-m", "tests.virtual.job")


def mine(name: str) -> Kernel:
    """Return a user kernel; what the name says happens to the process of FOREIGN."""
    return Kernel(name, Program("x.cu", "", ""), (Launch("x", "1, 1", "1"),))


def at_point(file: Path, name: str, *against: str, axes: tuple[str, ...]) -> Measurement:
    """Return the first point of a file's benchmark, against others of it.

    Measured in this process on a virtual GPU.
    """
    xp.machine = Machine()
    chosen = declared(file, [name, *against], axes)
    benchmark = next(benchmark for benchmark in chosen if benchmark.name == name)
    job = Job(name, benchmark.points()[0], against=against)
    return measure_job(
        VirtualSession(xp.machine, *(benchmark.kernel for benchmark in chosen)), job, QUICK
    )


@pytest.fixture(autouse=True)
def foreign(monkeypatch, tmp_path):
    monkeypatch.setenv("FOREIGN_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path))


@pytest.fixture
def file(request, tmp_path):
    """Return the test module's FILE."""
    path = tmp_path / "own.py"
    path.write_text(request.module.FILE)
    return path


@pytest.fixture
def pids(tmp_path):
    """Ids of the processes that wrote them down."""

    def read() -> list[int]:
        file = tmp_path / "pids"
        return list(map(int, file.read_text().split())) if file.exists() else []

    return read
