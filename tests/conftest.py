"""What every test gets: no runs, settings or kernels of the person who runs it, and no window."""

import ctypes
import gc
import json
import os
import re
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import settings

# Before NumPy is loaded: small products of several test processes would wait for each other's BLAS
# threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
gc.set_threshold(
    50_000
)  # collections after each 700 objects, the default, take a tenth of the time
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
# nbformat's validator loads it for a format that no notebook has, and it builds its grammar for 2
# seconds.
sys.modules["rfc3987_syntax"] = None

WHY = "this test has no GPU"
# The files that take longest, longest first.
SLOW = [
    "notebooks/test_notebooks",
    "browser/test_site",
    "exploits/test_exploits",
    "gate/test_rare_paths",
]
SLOW += [
    "browser/test_pages",
    "tune/test_tuner",
    "tests/test_packaging",
    "runner/test_check",
    "plots/test_charts",
]
# By then, mypy's cache is there where `make check` runs beside the tests.
LAST = "tests/test_types"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the slow files to the front, so that all workers end at about the same time."""
    rank = {f"{name}.py": number for number, name in enumerate(SLOW)}
    rank[f"{LAST}.py"] = len(SLOW) + 1
    items.sort(key=lambda item: rank.get("/".join(item.path.parts[-2:]), len(SLOW)))


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay.

    The garbage collector need not visit them again and again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def nobodys_home(tmp_path_factory):
    """Keep runs, Jupyter's and IPython's files in a temporary folder.

    Subprocesses inherit it.
    """
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "WORKLOG_HOME",
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "IPYTHONDIR",
        ):
            patch.setenv(name, str(home / name.lower()))
        shared = (
            home.parents[1] if "PYTEST_XDIST_WORKER" in os.environ else home
        )  # workers compile for each other
        patch.setenv("WORKLOG_CACHE", str(shared / "cache"))
        patch.delenv("WORKLOG_SOURCE", raising=False)
        patch.setenv("MPLBACKEND", "agg")
        patch.setattr(
            "worklog.kernel.nvrtc.in_a_process", compile_here
        )  # a process takes as long as most compilations
        yield


def compile_here(library: Path, order: bytes) -> tuple[bytes, str]:
    """Compile in the test's own process.

    Tests/kernel/test_nvrtc.py and commands in processes start NVRTC's.
    """
    from worklog.kernel.nvrtc_process import compiled

    for builtins in library.parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins))
    return json.dumps(compiled(*json.loads(order))).encode(), ""


@pytest.fixture
def home(monkeypatch, tmp_path):
    """Keep the runs of a test in a folder of its own, which doesn't exist yet."""
    folder = tmp_path / "home"
    monkeypatch.setenv("WORKLOG_HOME", str(folder))
    return folder


@pytest.fixture
def laptop(monkeypatch, tmp_path):
    """Stand in for a machine without a GPU, in an empty folder."""
    for module in ("gpu.device", "runner.check", "runner.sources"):
        monkeypatch.setattr(f"worklog.{module}.gpu_reason", lambda: WHY)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(request, tmp_path):
    """Return the test module's FILE."""
    path = tmp_path / "own.py"
    path.write_text(request.module.FILE)
    return path


@pytest.fixture
def no_nvrtc(monkeypatch):
    """Leave the emulator without a compiler."""
    from worklog.errors import NvrtcMissing

    def missing(*_: object, **__: object) -> None:
        raise NvrtcMissing(
            "cannot compile CUDA source: no module; install it with: pip install nvidia-cuda-nvrtc"
        )

    monkeypatch.setattr("worklog.kernel.emulated.compile_cuda", missing)


@pytest.fixture(autouse=True)
def short_sweeps(request, monkeypatch):
    """Let a check launch the largest size of each axis alone: all take seconds."""
    if request.node.get_closest_marker("sweeps") is None:
        monkeypatch.setattr("worklog.gate.sweeps.EFFORT", 0.0)


@pytest.fixture
def few_shapes(monkeypatch):
    """Let the gate launch little; tests/gate/test_rare_paths.py searches in full."""
    from worklog.gate import search

    take_few_shapes(monkeypatch.setattr)
    monkeypatch.setattr(search, "EFFORT", search.QUICK_EFFORT)


def take_few_shapes(setting: Callable[[object, str, object], None]) -> None:
    """Let the gate run three edge shapes, one ragged shape, four rare problems, none drawn.

    The emulator takes longest there, and tests/gate runs all.

    setting: as setattr
    """
    from worklog.gate import edges, sgemm

    every = edges.edge_shapes
    rare = edges.rare_problems
    ragged = sgemm.ragged_shapes
    setting(edges, "edge_shapes", lambda domain: [*every(domain)[:2], every(domain)[-1]])
    setting(edges, "drawn_shapes", lambda domain, rng, live: [])
    setting(sgemm, "ragged_shapes", lambda *given: ragged(*given)[:1])
    setting(edges, "RANGES", 3)
    setting(edges, "rare_problems", lambda *given: islice(rare(*given), 4))


@pytest.fixture
def drawn_before(monkeypatch):
    """Let the rungs that the stored figures name be those whose source changed since.

    A kernel may be edited before it is measured and drawn again.
    """
    from worklog.runner import sources

    figures = Path(__file__).parents[1] / "figures" / "README.md"
    stated = re.findall(rf"{sources.CHANGED}: ([\w, ]+)", figures.read_text(encoding="utf-8"))
    names = {name for found in stated for name in found.split(", ")}
    monkeypatch.setattr(sources, "source_changed", lambda name, kernels: name in names)


@pytest.fixture
def one_png(monkeypatch):
    """Every SVG, and of the PNGs, which take longest, the ladder.

    All of them are made in the same way.
    """
    from worklog.plots.drawing import Drawing

    encoded = Drawing.encoded
    monkeypatch.setattr(
        Drawing, "encoded", lambda self, svg: encoded(self, svg) if self.name == "ladder" else b""
    )
