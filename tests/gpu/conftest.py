"""Everything in this folder needs a CUDA GPU.

Without one it is skipped, and the reason is shown.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from worklog.gpu.device import gpu_reason
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.problem.formats import SINGLE
from worklog.runner.job import product_job
from worklog.runs import Measurement

HERE = Path(__file__).parent
QUICK = Harness().but(budget_s=0.3, most_samples=300, precision=0.05)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests `gpu`.

    Without a GPU, skip them and keep one case of each: 1,500 skipped ones take some seconds.
    (Pytest passes all of the session.)
    """
    here = [item for item in items if HERE in item.path.parents]
    reason = gpu_reason() if here else None
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"needs a CUDA GPU: {reason}"))
    if reason:
        kept = {item.nodeid.partition("[")[0]: item for item in reversed(here)}.values()
        items[:] = [item for item in items if HERE not in item.path.parents or item in kept]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Keep the test's runs and its lock of the GPU apart from other tests.

    Tests whose times don't matter then run beside each other.
    """
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # read again from TMPDIR
    return tmp_path / "home"


@pytest.fixture(scope="session")
def own():
    """Return the user kernels of the session, by name."""
    return {}


@pytest.fixture(scope="session")
def session(own):
    """One calibrated session for all tests that need no process of their own."""
    from worklog.runner.session import Session

    return Session(own)


@pytest.fixture
def gives_up_soon(monkeypatch):
    """Let the blocking kernel wait 1 s, not 8, for a host that waits for the GPU."""
    monkeypatch.setattr("worklog.gpu.timeline.HOLD_LIMIT_NS", 1_000_000_000)


@pytest.fixture
def measured(session, own):
    """Return a function that makes one measurement in this process.

    The session has never seen a user's kernel: its name is new.
    """
    import cupy

    from worklog.runner.worker import measure_job

    def measure(kernel: str | Kernel, shape: Shape, harness: Harness = QUICK) -> Measurement:
        name = kernel if isinstance(kernel, str) else f"{kernel.name}_{len(own)}"
        if isinstance(kernel, Kernel):
            own[name] = replace(kernel, name=name)
        types = SINGLE if isinstance(kernel, str) else kernel.types
        return measure_job(session, product_job(name, shape, types=types), harness)

    stream = cupy.cuda.get_current_stream()
    yield measure
    stream.use()  # a host function may have left another one current
    cupy.cuda.runtime.deviceSynchronize()
