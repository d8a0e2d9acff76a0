"""Every timed launch is looked at, on a real GPU: what behaves only while the exam lasts is refused after the loop, and
the looking shows little in the number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu.looking import LOOKING_US
from worklog.bench import measure as bench
from worklog.bench.tasks import BASELINE, Task
from worklog.harness import Harness
from worklog.kernel import Kernel
from worklog.kernel.ladder import rung

QUICK = Harness().but(budget_s=1.0, precision=0.05)

CHEATS = {
    "tires": "if (seen > 250 && row % 7 == 3) return;  // honest as long as an exam lasts",
    "skips_at_times": "if (seen > 200 && seen % 16 == 5) return;  // two launches of a batch",
    "tires_of_one_element": "if (seen > 250 && row == 11 && column == 13) acc -= A[row * K] * B[column];",
}


def cheat(folder: Path, name: str, line: str) -> Kernel:
    """A right kernel that counts its launches at the timed size, by blocks that have finished, with one line more."""
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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("name", CHEATS)
def test_what_tires_after_the_exam_is_refused_after_the_loop(tmp_path: Path, name: str) -> None:
    patient = Harness().but(least_samples=300)  # more than it takes to tire
    run = bench.measure([cheat(tmp_path, name, CHEATS[name])], [256], harness=patient)
    (measurement,) = run.measurements
    assert measurement.status == "refused", measurement.us
    assert "refused at every timed launch" in str(measurement.reason), measurement.reason


@pytest.mark.parametrize(("claimed", "lost"), [("fp32", 8), ("fp32-emulated", 13)])
def test_what_shortens_its_operands_after_the_exam_is_refused(tmp_path: Path, claimed: str, lost: int) -> None:
    """By less than a largest error shows: 16 bits for FP32, TF32 for what is put together from several products."""
    a, b = (
        f"__uint_as_float((__float_as_uint({x}) + {1 << lost - 1}u) >> {lost} << {lost})"
        for x in ("A[row * K + k]", "B[k * N + column]")
    )
    line = f"if (seen > 100) acc = 0; for (int k = 0; seen > 100 && k < K; ++k) acc = fmaf({a}, {b}, acc);"
    kernel = cheat(tmp_path, "shortens", line)
    run = bench.measure([replace(kernel, claimed=claimed)], ["256x256x4096"], harness=Harness())
    (measurement,) = run.measurements
    assert measurement.status == "refused", measurement.us
    assert "have an rms of" in str(measurement.reason), measurement.reason


def test_the_honest_one_beside_them_is_measured(tmp_path: Path) -> None:
    run = bench.measure([cheat(tmp_path, "honest", "")], [256], harness=QUICK)
    (measurement,) = run.measurements
    assert measurement.status == "measured", measurement.reason
    assert run.kernels["honest"]["user"] == "kernel"


@pytest.mark.parametrize("size", [256, 1024])
@pytest.mark.parametrize("name", ["warptiled", BASELINE])
def test_looking_shows_little_in_the_number_and_never_flatters(name: str, size: int) -> None:
    shape = rung("warptiled").domain.padded(bench.Shape.of(size))
    tasks = [Task(name, shape), Task(name, shape, (("gate", False),))] * 3
    run = bench.carry_out(tasks, Harness())
    looked, unseen = ([m for m in run.measurements if ("gate" in m.changed) is off] for off in (False, True))
    with_it, without = (sorted(m.us or 0.0 for m in some)[1] for some in (looked, unseen))
    print(f"{name} at {size}: {with_it:.3f} µs with a look at each launch, {without:.3f} without")
    assert -max(0.02 * without, 0.15) < with_it - without < max(0.02 * without, LOOKING_US[size]), (with_it, without)
