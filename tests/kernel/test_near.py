"""Headers near a file, and the files that include it.

Which are found, which are taken, and what is said.
"""

from pathlib import Path

import pytest

from worklog.errors import CompileFailed
from worklog.kernel import Kernel
from worklog.kernel.emulated import build
from worklog.kernel.near import MAX_BYTES

PARAMETERS = "const float* A, const float* B, float* C, int M, int N, int K"
BODY = """
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < M && col < N) C[row * N + col] = A[row * K] * B[col];
"""
GEMM = f"__global__ void gemm({PARAMETERS}) {{ {BODY} }}"
LAUNCH = """void f(float* a, int M, int N, int K) {{
  gemm<<<dim3(N / {n}, M / {n}), dim3({n}, {n})>>>(a, a, a, M, N, K);
}}"""


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def write(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


def test_headers_and_their_headers_are_found_by_either_kind_of_include():
    write(
        {
            "src/kernels/mine.cu": (
                f'#include "tile.cuh"\n#include <cmath>\n#include <own.h>\n{GEMM}'
            ),
            "include/tile.cuh": '#include "deep/side.cuh"\n#define M_TILE SIDE\n',
            "third/lib/deep/side.cuh": "#define SIDE 16\n",
            "common/own.h": "__device__ float own;\n",
        }
    )
    kernel = Kernel.from_file("src/kernels/mine.cu")
    assert build(kernel.program)[0].symbol
    assert {*dict(kernel.program.headers)} == {"tile.cuh", "deep/side.cuh", "own.h"}
    said = "; ".join(kernel.adapted)
    for header, folder in (
        ("tile.cuh", "include"),
        ("deep/side.cuh", "third/lib"),
        ("own.h", "common"),
    ):
        assert f"{header}: from {folder}, as by -I {folder}" in said


def test_the_nearest_header_is_taken_and_of_two_at_one_distance_none():
    write(
        {
            "a/mine.cu": f'#include "side.h"\n{GEMM.replace("row < M", "row < M * SIDE")}',
            "include/side.h": "#define SIDE 1\n",
            "far/away/side.h": "#define SIDE 2\n",
        }
    )
    assert "#define SIDE 1" in Kernel.from_file("a/mine.cu").program.whole
    write({"inc/side.h": "#define SIDE 3\n"})
    kernel = Kernel.from_file("a/mine.cu")
    remark = (
        "side.h is in inc and in include, and is left out: "
        "give one of them, as in -I inc, if the kernel needs it"
    )
    assert [line for line in kernel.adapted if "side.h" in line] == [remark]
    assert not kernel.program.headers
    advice = "side.h is in inc and in include: give one of them, as in -I inc"
    with pytest.raises(CompileFailed) as failure:
        build(kernel.program)
    assert str(failure.value).count("side.h") == 1 and advice in str(failure.value)
    assert "#define SIDE 3" in Kernel.from_file("a/mine.cu", include="inc").program.whole


def test_a_launch_is_read_from_a_file_that_includes_this_one_and_from_no_other():
    write(
        {
            "src/kernels/mine.cuh": GEMM,
            "src/kernels/other.cuh": GEMM,
            "src/kernels/all.cuh": '#pragma once\n#include "mine.cuh"\n',
            "src/another.cu": f'#include "kernels/other.cuh"\n{LAUNCH.format(n=8)}',
            "src/declared.cu": f"__global__ void gemm({PARAMETERS});\n{LAUNCH.format(n=4)}",
        }
    )
    assert not any("host" in said for said in Kernel.from_file("src/kernels/mine.cuh").adapted)
    write({"src/runner.cu": f'#include "kernels/all.cuh"\n{LAUNCH.format(n=16)}'})
    kernel = Kernel.from_file("src/kernels/mine.cuh")
    assert (kernel.grid, kernel.block) == ("N / 16, M / 16", "16, 16")
    assert any("from the host code of runner.cu" in said for said in kernel.adapted)
    write({"src/kernels/mine.cuh": f"{GEMM}\n{LAUNCH.format(n=32)}"})
    assert Kernel.from_file("src/kernels/mine.cuh").block == "32, 32"
    write(
        {
            "src/kernels/mine.cuh": GEMM,
            "src/runner.cu": Path("src/runner.cu").read_text() + " " * MAX_BYTES,
        }
    )
    assert not Kernel.from_file("src/kernels/mine.cuh").block


def test_a_launch_in_another_file_that_is_not_read_is_named_with_the_file():
    write({"mine.cuh": GEMM, "run.cu": f'#include "mine.cuh"\n{LAUNCH.format(n="unknown()")}'})
    kernel = Kernel.from_file("mine.cuh")
    assert any("run.cu, line 3: a launch isn't read" in said for said in kernel.adapted)


def test_an_instance_and_what_stands_in_front_of_the_include_are_the_programs():
    launch = LAUNCH.format(n=16).replace("gemm<<<", "gemm<16><<<")
    body = BODY.replace(
        "if (", "float4 v = make_float4(0, 0, 0, 0) * 2.0f; if (SIDE == T && v.x == OTHER && "
    )
    write(
        {
            "mine.cuh": f"template <int T> __global__ void gemm({PARAMETERS}) {{ {body} }}",
            "float4.h": "__device__ float4 operator*(float4 a, float b) { return a; }\n",
            "run.cu": '#ifndef RUN\n#define RUN\n#include <vector>\n#include "float4.h"\n#define '
            "SIDE 16\n"
            'constexpr float OTHER = 0;\nstd::vector<float> host;\n#include "mine.cuh"\n'
            f"#define row wrong\n{launch}\n#endif\n",
        }
    )
    kernel = Kernel.from_file("mine.cuh")
    assert kernel.entry == "gemm<16>" and build(kernel.program)[0].symbol
    assert "compiled behind the code of run.cu, which includes mine.cuh" in kernel.adapted
    write(
        {
            "mine.cuh": f"template <int T> __global__ void gemm({PARAMETERS}) {{ {BODY} }}",
            "float4.h": "",
        }
    )
    assert not Kernel.from_file("mine.cuh").program.headers


def test_files_that_include_each_other_are_read_once():
    write(
        {
            "a.cuh": f'#pragma once\n#include "b.cuh"\n{GEMM}',
            "b.cuh": '#pragma once\n#include "a.cuh"\n#define SIDE 16\n',
        }
    )
    assert build(Kernel.from_file("a.cuh").program)[0].symbol


def test_a_header_that_nothing_has_stops_only_a_kernel_that_needs_it():
    write({"mine.cu": f'#include "timer.hpp"\n{GEMM}'})
    kernel = Kernel.from_file("mine.cu")
    assert build(kernel.program)[0].symbol
    assert any("timer.hpp isn't found, and is left out" in said for said in kernel.adapted)
    write({"mine.cu": f'#include "side.h"\n{GEMM.replace("row < M", "row < SIDE")}'})
    with pytest.raises(CompileFailed, match=r"^mine.cu:4: .*undefined; side.h isn't found: give"):
        build(Kernel.from_file("mine.cu").program)
