"""The gate on a real GPU.

Every wrong kernel and host function fails, also one that is right only while the gate runs. Every
right one passes, and the checks of all timed launches add little to the time.
"""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.exploits.host_functions import (
    HERE,
    NO_GAIN,
    RIGHT,
    RIGHT_ON_A_GPU,
    WRONG,
    WRONG_WHEN_TIMED,
)
from tests.gpu.conftest import QUICK
from worklog.gate import SgemmChecker, checker
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.ladder import rung
from worklog.problem import Shape
from worklog.runs import CUBLAS

ENOUGH = Harness().but(
    least_samples=300, most_samples=300, budget_s=20.0
)  # more launches than each cheat waits for
# Microseconds that the checks may add by N: between two launches other kernels evict this one's
# code. cuBLAS at 256 takes 0.4 to 0.8 µs more, and 1.1 µs more after two of them.
ADDED_US = {256: 1.5, 1024: 0.15}


def shortens(lost: int) -> str:
    """Return a line that computes the product again, from operands with fewer bits."""
    a, b = (
        f"__uint_as_float((__float_as_uint({x}) + {1 << lost - 1}u) >> {lost} << {lost})"
        for x in ("A[row * K + k]", "B[k * N + column]")
    )
    return (
        f"if (seen > 100) acc = 0; for (int k = 0; seen > 100 && k < K; ++k) acc = fmaf({a}, "
        f"{b}, acc);"
    )


CHEATS = {
    "right": "",
    "stops_after_250": "if (seen > 250 && row % 7 == 3) return;",
    # Two launches in a row: each second launch of a short kernel only brings its code back, and
    # isn't timed.
    "skips_two_of_16": "if (seen > 200 && seen % 16 / 2 == 2) return;",
    "changes_one_element": (
        "if (seen > 250 && row == 11 && column == 13) acc -= A[row * K] * B[column];"
    ),
    "takes_16_bits": shortens(8),
    "takes_11_bits_of_tf32": shortens(13),
}
CLAIMED = {"takes_11_bits_of_tf32": "fp32-emulated"}  # several products in place of one


def cheat(folder: Path, name: str, line: str) -> Kernel:
    """cheat.cu with this line."""
    path = folder / f"{name}.cu"
    text = Path(__file__).with_name("cheat.cu").read_text(encoding="utf-8")
    path.write_text(text.replace("NAME", name).replace("LINE", line))
    return Kernel.from_file(path, grid="(N + 31) // 32, (M + 7) // 8", block="32,8")


@pytest.mark.parametrize("name", CHEATS)
def test_a_kernel_that_goes_wrong_in_the_timed_loop_fails_after_it(tmp_path, name, measured):
    """Also one that shortens its operands by less than a largest error shows.

    Without a cheat it is measured.
    """
    shape = Shape(256, 256, 4096) if "bits" in name else Shape.of(256)
    claimed = CLAIMED.get(name, "fp32")
    kernel = replace(cheat(tmp_path, name, CHEATS[name]), claimed=claimed)
    found = measured(kernel, shape, ENOUGH)
    assert found.status == ("failed" if CHEATS[name] else "measured"), (
        f"{found.n} samples, {found.reason}"
    )
    if CHEATS[name]:
        launches = re.search(r"launch(?: \d+)? of (\d+)", str(found.reason))
        assert "every timed launch" in str(found.reason) and launches and int(launches[1]) >= 300, (
            found.reason
        )


@pytest.mark.parametrize(("name", "size"), [(CUBLAS, 256), ("warptiled", 1024)])
def test_the_checks_add_little_to_the_time_and_never_shorten_it(name, size, measured):
    shape = rung("warptiled").domain.padded(Shape.of(size))
    us = dict[bool, list[float]]()
    for gate in (True, False) * 3:
        us.setdefault(gate, []).append(
            measured(name, shape, QUICK.but(precision=0.005, gate=gate)).us or 0.0
        )
    with_checks, without = (sorted(us[gate])[1] for gate in (True, False))
    print(
        f"{name} at {size}: {with_checks:.3f} µs with each launch checked, {without:.3f} µs without"
    )
    assert -max(0.02 * without, 0.15) < with_checks - without < max(0.02 * without, ADDED_US[size])


SHAPE = Shape(264, 384, 176)
TIMED = Shape(1024, 1024, 1024)
SHORT = QUICK.but(least_samples=8, most_samples=64)
ALL_RIGHT = RIGHT | RIGHT_ON_A_GPU
# Each of its threads makes a cuBLAS handle, which waits for the GPU.
WAITS = "thread_joined"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_host_function_fails(name, measured, request):
    if name == "the_host_computes":
        request.getfixturevalue("gives_up_soon")
    found = measured(WRONG[name], TIMED, SHORT)
    assert found.status == "failed", f"it passed with {found.us} µs"
    if name in WRONG_WHEN_TIMED:
        assert checker.EVERY_LAUNCH in str(found.reason)
    if name == "clears_afterwards":
        assert checker.IDLE in str(found.reason)


@pytest.mark.parametrize("name", [name for name in ALL_RIGHT if name != WAITS])
def test_a_right_host_function_is_checked_and_timed(name, measured):
    for shape in (SHAPE, TIMED):
        found = measured(ALL_RIGHT[name], shape, SHORT)
        assert found.status == "measured" and found.us is not None and found.us > 0, found.reason
    if name in NO_GAIN:  # its own kernel is naive: cuBLAS, measured beside it, is faster
        assert found.ratio is not None and found.ratio < 1


@pytest.mark.usefixtures("gives_up_soon")
def test_a_right_function_that_waits_for_the_gpu_passes_the_gate_and_cannot_be_timed(
    session, measured
):
    verdict = SgemmChecker(session.device, SHAPE, seed=1).check(RIGHT[WAITS].load(session.device))
    assert verdict.accepted, verdict.reason
    found = measured(RIGHT[WAITS], SHAPE, SHORT)
    assert found.status == "failed" and "synchronises" in str(found.reason)


def test_a_shared_library_is_right_on_the_harness_stream_only(tmp_path, measured):
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    library = tmp_path / "libgemm.so"
    subprocess.run(
        ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", library, HERE / "library.cu"], check=True
    )
    for name, status in (
        ("on_the_stream", "measured"),
        ("on_the_legacy_stream", "failed"),
        ("on_its_own_stream", "failed"),
    ):
        assert measured(Kernel.from_function(f"{library}:{name}"), TIMED, SHORT).status == status, (
            name
        )
