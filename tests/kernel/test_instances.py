"""Axes that stand for template arguments: each point is a kernel of its own, compiled, gated and named as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from worklog.bench.check import check
from worklog.cli.commands import main
from worklog.errors import BadSetting, CompileFailed, WorklogError
from worklog.kernel.instances import instances
from worklog.problem.axes import Axis
from worklog.problem.gemm import Shape

TEMPLATE = """\
template <typename Sum, int TILE>
__global__ void gemm(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || col >= N) return;
  Sum acc = 0;
  for (int k = 0; k < K; ++k) acc += (Sum)A[row * K + k] * (Sum)B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * (float)acc : alpha * (float)acc + beta * C[row * N + col];
}
"""
LAUNCH: dict[str, Any] = {
    "entry": "gemm<Sum, TILE>",
    "grid": "(N + TILE - 1) // TILE, (M + TILE - 1) // TILE",
    "block": "TILE, TILE",
    "domain": "K % TILE == 0",
    "claimed": "fp32",
}
SUM, TILE = Axis.parse("Sum[type]=float,double"), Axis.parse("TILE=8,16")


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.cu"
    path.write_text(TEMPLATE)
    return str(path)


def test_each_point_is_a_kernel_of_its_own(mine: str) -> None:
    found = instances(mine, [SUM, TILE], **LAUNCH)
    assert [kernel.name for kernel in found] == [
        "mine Sum=float TILE=8",
        "mine Sum=float TILE=16",
        "mine Sum=double TILE=8",
        "mine Sum=double TILE=16",
    ]
    last = found[-1]
    assert last.program.entry == "gemm<double, 16>" and last.block == (16, 16)
    assert last.grid == ("(N + 16 - 1) // 16", "(M + 16 - 1) // 16") and str(last.domain) == "K % 16 == 0"


@pytest.mark.parametrize("number", range(4))
def test_each_is_what_it_says(mine: str, number: int) -> None:
    kernel = instances(mine, [SUM, TILE], **LAUNCH)[number]
    found = check(kernel, Shape(32, 24, 16), on="emulated")
    assert found.verdict.accepted and found.verdict.precision == "fp32", found.verdict.reason


def test_a_name_is_a_whole_word(mine: str) -> None:
    launch = {**LAUNCH, "entry": "gemm<float, T>", "grid": "(N + T - 1) // T, (M + T - 1) // T", "block": "T,T"}
    (kernel,) = instances(mine, [Axis.parse("T=4")], **{**launch, "domain": "any"})
    assert kernel.program.entry == "gemm<float, 4>" and kernel.grid[0] == "(N + 4 - 1) // 4"


def test_an_axis_that_nothing_names_is_told(mine: str) -> None:
    with pytest.raises(BadSetting, match="names no STAGES: write it where the value belongs"):
        instances(mine, [TILE, Axis.parse("STAGES=2,3")], **LAUNCH)


def test_host_code_has_no_template(tmp_path: Path) -> None:
    (tmp_path / "host.py").write_text("def mine(alpha, A, B, beta, C): ...\n")
    with pytest.raises(BadSetting, match="host code, which has no template"):
        instances(f"{tmp_path}/host.py:mine", [TILE], **{**LAUNCH, "grid": None, "block": None, "entry": None})


@pytest.mark.parametrize("values", ["TILE=0", "TILE=4096", "TILE[str]=a b", "TILE[float]=0.5"])
def test_a_value_that_makes_no_kernel_is_an_error_of_this_package(mine: str, values: str) -> None:
    with pytest.raises((BadSetting, CompileFailed, WorklogError)):
        for kernel in instances(mine, [SUM, Axis.parse(values)], **LAUNCH):
            verdict = check(kernel, Shape(32, 24, 16), on="emulated").verdict
            assert not verdict.accepted
            raise BadSetting(str(verdict.reason))


def test_the_command_line_takes_them_beside_sizes(mine: str) -> None:
    launch = [word for option in ("entry", "grid", "block") for word in (f"--{option}", LAUNCH[option])]
    axes = ["--axis", "TILE[pow2]=3:4", "--axis", "Sum[type]=float,double", "--axis", "N=256,512"]
    done = CliRunner().invoke(main, ["run", "--preview", "--json", mine, *launch, *axes])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["points"] == 2 * (4 + 1), "cuBLAS is measured beside them"
    assert "mine TILE=8 Sum=float" in done.output and "mine TILE=16 Sum=double" in done.output
