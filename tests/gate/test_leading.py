"""Leading dimensions that a kernel takes and ignores, with and without a host that passes them."""

from typing import Any

import numpy as np
import pytest

from worklog.gate import Memory
from worklog.gate.leading import check_leading_dimensions
from worklog.kernel import Kernel, Loaded
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.trial import completed
from worklog.runs import Stage

GRID = "(N + 15) / 16, (M + 15) / 16"
SOURCE = """extern "C" __global__ void mine(int M, int N, int K, %s alpha, const float* A, %s lda,
    const float* B, %s ldb, float beta, float* C, %s ldc) {
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * LDA + k] * B[k * LDB + col];
  C[row * LDC + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * LDC + col];
}
"""
HOST = """void f(int M, int N, int K, const float* A, const float* B, float* C) {
  mine<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(M, N, K, 1.0f, A, K, B, N, 0.0f, C, N);
}
"""
ALL = {"LDA": "lda", "LDB": "ldb", "LDC": "ldc"}


def stage_of(strides: dict[str, str], host: str = "", kind: str = "int", **options: Any) -> Stage:
    """Return the stage of a kernel with these strides."""
    text = SOURCE % ("float", kind, kind, kind)
    for name, stride in (ALL | strides).items():
        text = text.replace(name, stride)
    kernel = Kernel.from_source(text + host, grid=GRID, block="16, 16", **options)
    subject = kernel.load(EmulatedDevice())
    assert isinstance(subject, Loaded)
    assert kernel.leading_dimensions == {5: "A", 7: "B", 10: "C"}
    return check_leading_dimensions(subject, Memory(subject.device, np.random.default_rng(0)))


@pytest.mark.parametrize("kind", ["int", "long long"])
@pytest.mark.parametrize("host", ["", HOST])
def test_a_kernel_that_takes_its_leading_dimensions_is_right_with_larger_ones(kind, host):
    stage = stage_of({}, host, kind)
    assert stage.passed and not stage.clause, stage.detail


@pytest.mark.parametrize(
    ("strides", "reason"),
    [
        ({"LDA": "K"}, "lda above the rows' length: at 33x47x33: 15"),
        ({"LDB": "N"}, "ldb above the rows' length: at 33x47x33: 15"),
        ({"LDC": "N"}, "ldc above the rows' length: at 33x47x33: 15"),
        ({"LDA": "K", "LDB": "N"}, "lda and ldb above"),
    ],
)
def test_one_that_is_ignored_fails(strides, reason):
    stage = stage_of(strides)
    assert not stage.passed and reason in stage.detail


@pytest.mark.parametrize(
    ("host", "options"),
    [(HOST, {}), ("", {"args": "M,N,K,alpha,A,K,B,N,beta,C,N"})],
    ids=["by the host", "by --args"],
)
def test_one_that_is_launched_as_the_rows_length_alone_is_named(host, options):
    stage = stage_of({"LDA": "K"}, host, **options)
    assert stage.passed and stage.clause == "right only where lda is the rows' length"


def test_the_matrix_is_the_one_that_is_passed_and_another_size_is_no_length_of_rows():
    text = SOURCE % ("float", "int", "int", "int")
    for order, matrices in (
        ("N,M,K,alpha,B,N,A,K,beta,C,N", {5: "B", 7: "A", 10: "C"}),
        ("M,N,K,alpha,A,M,B,N,beta,C,N", {7: "B", 10: "C"}),
    ):
        kernel = Kernel.from_source(text, grid=GRID, block="16, 16", args=order)
        assert kernel.leading_dimensions == matrices


COLUMN_MAJOR = """__global__ void mine(int m, int n, int k, const float* A, int lda, const float* B,
    int ldb, float* C, int ldc) {
  int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
  if (i >= m || j >= n) return;
  float acc = 0.0f;
  for (int p = 0; p < k; ++p) acc += A[p * lda + i] * B[j * LDB + p];
  C[j * LDC + i] = acc;
}
void gemm(int m, int n, int k, const float* A, int lda, const float* B, int ldb, float* C,
          int ldc) {
  mine<<<dim3((m + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(m, n, k, A, lda, B, ldb, C, ldc);
}
"""


@pytest.mark.parametrize(
    ("ldb", "ldc", "ignored"), [("ldb", "ldc", ""), ("k", "ldc", "ldb"), ("ldb", "m", "ldc")]
)
def test_an_order_by_trial_is_no_statement_of_leading_dimensions(ldb, ldc, ignored):
    source = COLUMN_MAJOR.replace("LDB", ldb).replace("LDC", ldc)
    kernel = completed(Kernel.from_source(source))
    assert kernel.found["order"] == "by trial"
    subject = kernel.load(EmulatedDevice())
    assert isinstance(subject, Loaded)
    stage = check_leading_dimensions(subject, Memory(subject.device, np.random.default_rng(0)))
    assert stage.passed == (not ignored), stage
    assert stage.detail.startswith(ignored)
