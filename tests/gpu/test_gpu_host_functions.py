"""Host functions on a real GPU: the verdicts of the virtual GPU, and PyTorch, CuPy, Triton and a shared library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.exploits.host_functions import HERE, NO_GAIN, RIGHT, RIGHT_ON_A_GPU, WRONG, WRONG_WHEN_TIMED
from tests.gpu.conftest import QUICK, Measured
from worklog.gate import SgemmChecker, after_timing
from worklog.kernel import Kernel
from worklog.problem.gemm import Shape
from worklog.runner.session import Session

SHAPE = Shape(264, 384, 176)
TIMED = Shape(1024, 1024, 1024)
SHORT = QUICK.but(least_samples=8, most_samples=64)
ALL_RIGHT = RIGHT | RIGHT_ON_A_GPU
# Each of its threads makes a cuBLAS handle, which waits for the GPU.
WAITS = "thread_joined"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_host_function_fails(name: str, measured: Measured, request: pytest.FixtureRequest) -> None:
    if name == "the_host_computes":
        request.getfixturevalue("gives_up_soon")
    found = measured(WRONG[name], TIMED, SHORT)
    assert found.status == "failed", f"it passed with {found.us} µs"
    if name in WRONG_WHEN_TIMED:
        assert after_timing.EVERY_LAUNCH in str(found.reason)
    if name == "clears_afterwards":
        assert after_timing.IDLE in str(found.reason)


@pytest.mark.parametrize("name", [name for name in ALL_RIGHT if name != WAITS])
def test_a_right_host_function_is_checked_and_timed(name: str, measured: Measured) -> None:
    for shape in (SHAPE, TIMED):
        found = measured(ALL_RIGHT[name], shape, SHORT)
        assert found.status == "measured" and found.us is not None and found.us > 0, found.reason
    if name in NO_GAIN:  # its own kernel is naive: cuBLAS, measured beside it, is faster
        assert found.ratio is not None and found.ratio < 1


@pytest.mark.usefixtures("gives_up_soon")
def test_a_right_function_that_waits_for_the_gpu_passes_the_gate_and_cannot_be_timed(
    session: Session, measured: Measured
) -> None:
    verdict = SgemmChecker(session.device, SHAPE, seed=1).check(RIGHT[WAITS].load(session.device))
    assert verdict.accepted, verdict.reason
    found = measured(RIGHT[WAITS], SHAPE, SHORT)
    assert found.status == "failed" and "synchronises" in str(found.reason)


def test_a_shared_library_is_right_on_the_harness_stream_only(tmp_path: Path, measured: Measured) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    library = tmp_path / "libgemm.so"
    subprocess.run(["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", library, HERE / "library.cu"], check=True)
    for name, status in (
        ("on_the_stream", "measured"),
        ("on_the_legacy_stream", "failed"),
        ("on_its_own_stream", "failed"),
    ):
        assert measured(Kernel.from_function(f"{library}:{name}"), TIMED, SHORT).status == status, name
