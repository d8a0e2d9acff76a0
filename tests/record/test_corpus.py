"""The corpus tool finds kernels in a folder as their authors wrote them, and counts what becomes of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record import corpus, recording
from tests.record.public_kernels import kernels
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import of_nvidia

HEADER = """#include <stdio.h>
#include <vector>
#define CHECK(call) check((call), __LINE__)
static int launches = 0;
void check(cudaError_t error, int line, float limit = 1.0f) { if (error) printf("%d", line); }
#define BIND(name) void bound_##name(torch::Tensor t) { name(t); }
BIND(check)
template <class T> __device__ T larger(T a, T b) { return std::max(a, b); }
"""
TILED = """#include "more/common.h"
template <int TILE>
__global__ void largest(const float* x, float* out, int n) {
  float most = -INFINITY;
  for (int i = threadIdx.x; i < n; i += TILE) most = larger(most, x[i]);
  out[threadIdx.x] = most * M_SQRT2;
}
"""
APART = """__global__ void small(float* out) { out[0] = 1; }
__global__ void grow(float* out) { small<<<1, 8>>>(out); }
"""
IMAGE = """__global__ void read(cudaTextureObject_t image, float* out) { out[0] = tex2D<float>(image, 0, 0); }
"""
HOST = """#include "tiled.cuh"
void small(float* x) { const int TILE = 32; dim3 grid(1);
  largest<TILE><<<grid, TILE>>>(x, x, 8);
}
void unrelated() { const int TILE = 64; largest<TILE><<<1, TILE>>>(0, 0, 0); }
"""
GEMM = """__global__ void matmul(int M, int N, int K, const float* A, const float* B, float* C) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
}
void run(int M, int N, int K, float* A, float* B, float* C) {
  matmul<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(M, N, K, A, B, C);
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "more").mkdir()
    files = {"more/common.h": HEADER, "tiled.cuh": TILED, "main.cu": HOST, "apart.cu": APART, "read.cu": IMAGE}
    files["gemm.cu"] = GEMM
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_template_arguments_are_those_of_the_first_launch_with_the_names_of_its_scope(folder: Path) -> None:
    (largest,) = (kernel for kernel in kernels(folder) if kernel.path.stem == "tiled")
    assert largest.entry == "largest<32>" and "unrelated" not in largest.host


@pytest.mark.skipif(not of_nvidia(Program("", "#include <mma.h>", "")), reason="NVIDIA's headers are not installed")
def test_kernels_with_host_code_in_their_headers_are_compiled_checked_and_counted(folder: Path) -> None:
    tries = corpus.tries_of(folder, [])
    rows = {kernel.entry: kernel for kernel in tries}
    assert rows["matmul"].verdict == "passed as fp32" and "M % 16 == 0" in rows["matmul"].domain
    # NVRTC compiles no launch from a kernel, so nothing else in its file either.
    assert [rows[name].apart for name in ("small", "grow", "read")] == [*["dynamic parallelism"] * 2, "textures"]
    (counts,) = corpus.record({folder: tries})["rows"]
    assert [counts[name] for name in ("kernels", "textures", "device launches", "tried", "covered", "passed")] == [
        *(5, 1, 2, 2, 2, 1)
    ]


def test_a_repository_is_cloned_at_its_commit_without_its_data(tmp_path: Path) -> None:
    origin = tmp_path / "one" / "kernels"
    origin.mkdir(parents=True)
    git = ("-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b")
    recording.git(*git, "init", "-q")
    (origin / "data.bin").write_text("large", encoding="utf-8")
    for text in (GEMM, APART):
        (origin / "kernel.cu").write_text(text, encoding="utf-8")
        recording.git(*git, "add", ".")
        recording.git(*git, "commit", "-q", "-m", "a kernel")
    first = recording.git(*git, "rev-parse", "HEAD~1")
    for _ in range(2):
        folder = recording.cloned("one/kernels", first, tmp_path / "clones", host=str(tmp_path))
        assert {path.name for path in folder.iterdir()} == {".git", "kernel.cu"}
        assert corpus.record({folder: []})["rows"][0]["commit"] == first
    assert (folder / "kernel.cu").read_text(encoding="utf-8") == GEMM
