"""Declared benchmarks are measured in this process, on the virtual GPU."""

from pathlib import Path

import pytest

from tests.exploits.arrays import xp
from tests.virtual.machine import Machine
from tests.virtual.session import QUICK, VirtualSession
from worklog.benchmarks.declare import declared
from worklog.runner.job import Job
from worklog.runner.worker import measure_job
from worklog.runs import Measurement


@pytest.fixture(autouse=True)
def measured_at_home(home):
    """Keep the runs of these tests apart."""


def at_point(file: Path, name: str, *against: str, axes: tuple[str, ...]) -> Measurement:
    """Return the first point of a file's benchmark, against others of it."""
    xp.machine = Machine()
    chosen = declared(file, [name, *against], axes)
    benchmark = next(benchmark for benchmark in chosen if benchmark.name == name)
    job = Job(name, benchmark.points()[0], against=against)
    return measure_job(
        VirtualSession(xp.machine, *(benchmark.kernel for benchmark in chosen)), job, QUICK
    )
