"""The corpus tool finds kernels in a folder as their authors wrote them, and counts what becomes of each."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest
from click import ClickException
from click.testing import CliRunner

from tests.corpus import forms
from tests.corpus.__main__ import cloned, main, record
from tests.corpus.sources import kernels
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
__global__ void read(cudaTextureObject_t image, float* out) { out[0] = tex2D<float>(image, 0, 0); }
"""
HOST = """#include "tiled.cuh"
void small(float* x) { const int TILE = 32; dim3 grid(1); largest<TILE><<<grid, TILE>>>(x, x, 8); }
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
    files = {"more/common.h": HEADER, "tiled.cuh": TILED, "main.cu": HOST, "apart.cu": APART, "gemm.cu": GEMM}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_template_arguments_are_those_of_the_first_launch_with_the_names_of_its_scope(folder: Path) -> None:
    (largest,) = kernels(folder, "tiled")
    assert largest.entry == "largest<32>" and "unrelated" not in largest.host


def test_textures_and_device_launches_are_counted_apart(folder: Path) -> None:
    assert [one.apart for one in kernels(folder, "apart")] == ["", "dynamic parallelism", "textures"]


@pytest.mark.skipif(not of_nvidia(Program("", "#include <mma.h>", "")), reason="NVIDIA's headers are not installed")
def test_kernels_with_host_code_in_their_headers_are_compiled_checked_and_counted(folder: Path) -> None:
    out = folder / "kernels.csv"
    done = CliRunner().invoke(
        main, [str(folder), "--out", str(out), "--record", str(folder / "table.json")], catch_exceptions=False
    )
    with out.open(encoding="utf-8") as file:
        rows = {row["entry"]: row for row in csv.DictReader(file)}
    assert rows["largest<32>"]["error"] == rows["largest<32>"]["missing"] == ""
    assert rows["matmul"]["verdict"] == "passed as fp32" and "M % 16 == 0" in rows["matmul"]["domain"]
    # NVRTC compiles no launch from a kernel, so nothing else in its file either.
    assert rows["small"]["apart"] == "dynamic parallelism"
    document = json.loads((folder / "table.json").read_text())
    (counts,) = document["rows"]
    assert [counts[name] for name in ("kernels", "textures", "device launches", "tried", "covered", "passed")] == [
        *(5, 1, 2, 2, 2, 1)
    ]
    assert done.stdout.splitlines()[-1].split()[:2] == ["all", "5"] and "2 (100%)" in done.stdout


def test_listed_repositories_are_cloned_at_their_commits(tmp_path: Path) -> None:
    origin, listed = tmp_path / "one+kernels", tmp_path / "list.txt"
    origin.mkdir()

    def git(*words: str) -> str:
        command = ("git", "-c", "user.name=a", "-c", "user.email=a@b", *words)
        return subprocess.run(command, cwd=origin, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (origin / "data.bin").write_text("large", encoding="utf-8")
    for text in (GEMM, APART):
        (origin / "kernel.cu").write_text(text, encoding="utf-8")
        git("add", ".")
        git("commit", "-q", "-m", "a kernel")
    first = git("rev-parse", "HEAD~1")
    listed.write_text(f"one/kernels {first} include\n", encoding="utf-8")
    for _ in range(2):
        ((folder, include),) = cloned(f"{tmp_path}/{{owner}}+{{name}}", tmp_path / "clones", listed).items()
        assert {path.name for path in folder.iterdir()} == {".git", "kernel.cu"} and include == ["include"]
        assert record({folder: []})["rows"][0]["commit"] == first
    assert (folder / "kernel.cu").read_text(encoding="utf-8") == GEMM
    listed.write_text("one/missing 0\n", encoding="utf-8")
    with pytest.raises(ClickException, match="one/missing, 0: fatal: "):
        cloned(f"{tmp_path}/{{owner}}+{{name}}", tmp_path / "clones", listed)


def test_the_emulator_has_most_instruction_forms_of_hopper() -> None:
    name, every, have = forms.table().rows[-1]
    assert name == "all" and int(str(have)) > 0.8 * int(str(every)) > 800
    assert forms.covered("fma.rn.f32 f0,f1,f2,f3;") and not forms.covered("frobnicate.b32 w0,w1;")
