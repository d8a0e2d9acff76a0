"""Host functions on a real GPU: the verdicts of the virtual GPU, and PyTorch, CuPy, Triton and a shared library."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.exploits.host_functions import HERE, NO_GAIN, RIGHT, RIGHT_ON_A_GPU, WRONG, WRONG_WHEN_TIMED
from tests.virtual.session import measure
from worklog.bench.session import Session
from worklog.gate import Checker, every_launch, plausible
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement

SEEDS = range(10)
SHAPE = Shape(264, 384, 176)
TIMED = Shape(1024, 1024, 1024)
QUICK = Harness().but(least_samples=8, most_samples=64, precision=0.05, budget_s=1.0)
ALL_RIGHT = RIGHT | RIGHT_ON_A_GPU
# Each of its threads makes a cuBLAS handle, which waits for the GPU.
WAITS = "thread_joined"
Measure = Callable[[Kernel, Shape], Measurement]


@pytest.fixture(scope="module")
def calibrated() -> Session:
    return Session()


@pytest.fixture
def measured(calibrated: Session) -> Iterator[Measure]:
    """One measurement in a session that has never seen the function."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    yield lambda theirs, shape: measure(
        Session({theirs.name: theirs}, calibrated.calibration), theirs.name, shape, QUICK
    )
    stream.use()
    cupy.cuda.runtime.deviceSynchronize()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_host_function_is_refused(name: str, measured: Measure) -> None:
    found = measured(WRONG[name], TIMED)
    assert found.status == "refused", f"it passed with {found.us} µs"
    stage = str(found.reason).removeprefix("refused at ").partition(":")[0]
    if name in WRONG_WHEN_TIMED:
        assert stage == every_launch.NAME, found.reason
    if name == "clears_afterwards":
        assert stage == plausible.IDLE, found.reason


@pytest.mark.parametrize("name", ALL_RIGHT)
def test_a_right_host_function_is_accepted_on_every_seed(name: str, calibrated: Session) -> None:
    theirs = ALL_RIGHT[name]
    subject = theirs.load(calibrated.device)
    for seed in SEEDS:
        verdict = Checker(calibrated.device, SHAPE, seed).check(subject, theirs.claimed)
        assert verdict.accepted, verdict.reason


@pytest.mark.parametrize("name", [name for name in ALL_RIGHT if name != WAITS])
@pytest.mark.parametrize("shape", [SHAPE, TIMED], ids=str)
def test_a_right_host_function_is_timed(name: str, shape: Shape, measured: Measure) -> None:
    found = measured(ALL_RIGHT[name], shape)
    assert found.status == "measured" and found.us is not None and found.us > 0, found.reason
    if name in NO_GAIN and shape == TIMED:  # its own kernel is naive: cuBLAS, right beside it, is faster
        assert found.ratio is not None and found.ratio < 1
    print(name, [s["detail"] for s in (found.verdict or {})["stages"] if s["name"] == plausible.IDLE])


def test_a_function_that_waits_for_the_gpu_cannot_be_queued(measured: Measure) -> None:
    found = measured(RIGHT[WAITS], SHAPE)
    assert found.status == "refused" and "synchronises" in str(found.reason)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    made = tmp_path_factory.mktemp("library") / "libgemm.so"
    subprocess.run(["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", made, HERE / "library.cu"], check=True)
    return made


def test_a_shared_library_is_right_on_the_stream_only(library: Path, calibrated: Session, measured: Measure) -> None:
    theirs = Kernel.from_function(f"{library}:on_the_stream")
    verdict = Checker(calibrated.device, SHAPE, secrets.randbits(63)).check(theirs.load(calibrated.device))
    assert verdict.accepted, verdict.reason
    assert measured(theirs, SHAPE).status == "measured"
    for name in ("on_the_legacy_stream", "on_its_own_stream"):
        found = measured(Kernel.from_function(f"{library}:{name}"), TIMED)
        assert found.status == "refused", f"it passed with {found.us} µs"


@pytest.mark.parametrize(
    ("function", "code"), [("right.py:returns_c", 0), ("on_torch.py:torch_addmm", 0), ("wrong.py:zeros", 1)]
)
def test_worklog_check(function: str, code: int) -> None:
    command = [sys.executable, "-m", "worklog", "check", f"{HERE}/{function}", "--size", "256"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[2], check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "host function" in done.stdout
