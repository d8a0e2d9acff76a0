"""Every timed launch is checked, on a real GPU: a kernel that is right only while the gate runs fails after the timed
loop, and the checks add little to the time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu.conftest import QUICK, Measured
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.ladder import rung
from worklog.problem.gemm import Shape
from worklog.runner.job import BASELINE
from worklog.runs.measurement import Measurement

ENOUGH = Harness().but(least_samples=300, most_samples=300, budget_s=20.0)  # more launches than each cheat waits for
# Microseconds that the checks may add by N: between two launches other kernels evict this one's code. cuBLAS at 256
# takes 0.4 to 0.8 µs more, and 1.1 µs more after two of them.
ADDED_US = {256: 1.5, 1024: 0.15}
CHEATS = {
    "stops_after_250": "if (seen > 250 && row % 7 == 3) return;",
    # Two launches in a row: each second launch of a short kernel only brings its code back, and isn't timed.
    "skips_two_of_16": "if (seen > 200 && seen % 16 / 2 == 2) return;",
    "changes_one_element": "if (seen > 250 && row == 11 && column == 13) acc -= A[row * K] * B[column];",
}


def cheat(folder: Path, name: str, line: str) -> Kernel:
    """A right kernel that counts its launches with M = 256, by the blocks that have finished, with one line more."""
    path = folder / f"{name}.cu"
    path.write_text(f"""
__device__ unsigned finished;

extern "C" __global__ void {name}(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                                  float* C) {{
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  const unsigned seen = M == 256 ? *(volatile unsigned*)&finished / (gridDim.x * gridDim.y) : 0;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) atomicAdd(&finished, 1u);
  if (row >= M || column >= N) return;
  float acc = 0;
  for (int k = 0; k < K; ++k) acc = fmaf(A[row * K + k], B[k * N + column], acc);
  {line}
  C[row * N + column] = alpha * acc + (beta == 0 ? 0 : beta * C[row * N + column]);
}}
""")
    return Kernel.from_file(path, grid="(N + 31) // 32, (M + 7) // 8", block="32,8")


def checked_launches(failed: Measurement) -> int:
    """Timed launches that were checked, from the reason."""
    found = re.search(r"launch(?: \d+)? of (\d+)", str(failed.reason))
    assert found is not None, failed.reason
    return int(found[1])


@pytest.mark.parametrize("name", CHEATS)
def test_a_kernel_that_goes_wrong_in_the_timed_loop_fails_after_it(
    tmp_path: Path, name: str, measured: Measured
) -> None:
    found = measured(cheat(tmp_path, name, CHEATS[name]), Shape.of(256), ENOUGH)
    assert found.status == "failed", f"measured with {found.n} samples"
    assert "every timed launch" in str(found.reason) and checked_launches(found) >= 300


@pytest.mark.parametrize(("claimed", "lost"), [("fp32", 8), ("fp32-emulated", 13)])
def test_a_kernel_that_shortens_its_operands_in_the_timed_loop_fails(
    tmp_path: Path, claimed: str, lost: int, measured: Measured
) -> None:
    """By less than a largest error shows: to 16 bits for FP32, to TF32 for several products in place of one."""
    a, b = (
        f"__uint_as_float((__float_as_uint({x}) + {1 << lost - 1}u) >> {lost} << {lost})"
        for x in ("A[row * K + k]", "B[k * N + column]")
    )
    line = f"if (seen > 100) acc = 0; for (int k = 0; seen > 100 && k < K; ++k) acc = fmaf({a}, {b}, acc);"
    kernel = replace(cheat(tmp_path, "shortens", line), claimed=claimed)
    found = measured(kernel, Shape(256, 256, 4096), ENOUGH)
    assert found.status == "failed", f"measured with {found.n} samples"
    assert "every timed launch" in str(found.reason) and checked_launches(found) >= 300, found.reason


def test_the_same_kernel_without_a_cheat_is_measured(tmp_path: Path, measured: Measured) -> None:
    found = measured(cheat(tmp_path, "right", ""), Shape.of(256))
    assert found.status == "measured", found.reason


@pytest.mark.parametrize(("name", "size"), [(BASELINE, 256), ("warptiled", 1024)])
def test_the_checks_add_little_to_the_time_and_never_shorten_it(name: str, size: int, measured: Measured) -> None:
    shape, us = rung("warptiled").domain.padded(Shape.of(size)), dict[bool, list[float]]()
    for gate in (True, False) * 3:
        us.setdefault(gate, []).append(measured(name, shape, QUICK.but(precision=0.005, gate=gate)).us or 0.0)
    with_checks, without = (sorted(us[gate])[1] for gate in (True, False))
    print(f"{name} at {size}: {with_checks:.3f} µs with each launch checked, {without:.3f} µs without")
    assert -max(0.02 * without, 0.15) < with_checks - without < max(0.02 * without, ADDED_US[size])
