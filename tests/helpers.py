"""What tests of several rooms share: a small run, made by hand, with a measured, a refused and a skipped kernel; two
kernels of a user; a command that is typed.
"""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from worklog.cli.commands import main
from worklog.problem.gemm import Shape, tflops
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run
from worklog.settings import Harness

# The second one lacks a barrier.
SIGNATURE = "int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C"
PLAIN = f"""\
__global__ void mine({SIGNATURE}) {{
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}}
"""
# No texture instruction is supported by the emulator.
TEXTURE = 'asm volatile("{.reg .b32 w; txq.width.b32 w, [%0];}" :: "l"(A));'
RACY = f"""\
__global__ void mine({SIGNATURE}) {{
  __shared__ float As[8][8], Bs[8][8];
  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 8) {{
    As[y][x] = A[row * K + k0 + x];
    Bs[y][x] = B[(k0 + y) * N + col];
    for (int k = 0; k < 8; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();
  }}
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}}
"""


def measured(kernel: str, n: int = 512, us: float = 100.0, ratio: float = 0.5, **changed: Any) -> Measurement:
    """A measurement with three samples, one of which does not count."""
    return Measurement(
        kernel,
        (n, n, n),
        "measured",
        changed=changed,
        verdict=None if changed.get("gate") is False else {"accepted": True, "precision": "fp32", "stages": []},
        us=us,
        us_low=us * 0.99,
        us_high=us * 1.01,
        tflops=tflops(Shape.of(n), us),
        ratio=ratio,
        ratio_low=ratio - 0.01,
        ratio_high=ratio + 0.01,
        of_ceiling=ratio * 0.9,
        of_roof=ratio * 0.8,
        sm_mhz=1980.0,
        converged=True,
        degradations=tuple(f"{name}: {value}" for name, value in changed.items()),
        samples={
            "us": [us, us * 1.01, us * 9],
            "sm_mhz": [1980.0, 1980.0, 900.0],
            "baseline_us": [us * ratio] * 3,
            "baseline_sm_mhz": [1980.0] * 3,
            "counts": [1, 1, 0],
        },
    )


def small_run(**changes: Any) -> Run:
    """naive and cuBLAS at 512, naive refused at 1024 and skipped at 2048, and naive at 512 with a warm L2."""
    values: dict[str, Any] = dict(
        device={"name": "NVIDIA H200", "compute_capability": [9, 0], "l2_bytes": 62914560},
        harness=Harness().as_dict(),
        tool={"name": "gemm-worklog", "version": "0.1.0"},
        created="2026-11-21T03:12:44+00:00",
        calibration={"offset_us": 3.45, "fp32_tflops": 60.0},
        kernels={"naive": {"file": "01_naive.cu", "registers": 40, "idea": "one thread, one element"}},
        measurements=[
            measured("naive"),
            measured("cuBLAS", us=50.0, ratio=1.0),
            Measurement("naive", (1024, 1024, 1024), "refused", reason="refused at precision: class wrong"),
            Measurement("naive", (2048, 2048, 2048), "skipped", reason="too slow: one launch takes 9.0 s"),
            measured("naive", us=70.0, l2="warm"),
        ],
        complete=True,
    )
    return Run(**(values | changes))


def typed(*words: object) -> Result:
    """Type a command after `worklog`. An exception that is not an exit would be a traceback."""
    result = CliRunner().invoke(main, [*map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
