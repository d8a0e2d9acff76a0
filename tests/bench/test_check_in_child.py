"""A check in a process of its own: whatever the kernel does to it, a verdict comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.bench.conftest import FOREIGN
from tests.lab.waiting import gone
from worklog.bench.check import check, check_in_child
from worklog.errors import BadSetting, ChildFailed, NoGpu
from worklog.kernel import Kernel
from worklog.kernel.ladder import rung
from worklog.problem.gemm import Shape


def mine(name: str) -> Kernel:
    return Kernel(name, "x.cu", "x", grid="1, 1", block="1", text="")


def test_a_check_comes_back_whole() -> None:
    told: list[str] = []
    checked = check_in_child(
        mine("fine"), Shape.of(64), command=FOREIGN, progress=lambda done, total, doing: told.append(doing)
    )
    assert checked.verdict.accepted and checked.verdict.precision == "fp32"
    assert checked.compiled.registers == 32 and checked.shape == Shape.of(64)
    assert "launch 1 at 64" in told


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("segfaults", "process: crashed: its process ended with SIGSEGV"),
        ("leaves", "process: its process exited without an answer (exit code 0)"),
        ("illegal address", "launch: running a kernel: cudaErrorIllegalAddress"),
        ("fills the memory", "memory: the host's memory is full"),
        ("raises", "process: raised ValueError"),
        ("hangs", "process: hung: no progress for 2 s"),
    ],
)
def test_a_kernel_that_ends_its_process_is_refused(kernel: str, why: str, pids: Callable[[], list[int]]) -> None:
    checked = check_in_child(mine(kernel), Shape.of(64), on="gpu", timeout_s=2.0, command=FOREIGN)
    assert not checked.verdict.accepted
    assert checked.verdict.reason is not None and checked.verdict.reason.startswith(why)
    assert checked.label == "live · NVIDIA H200"
    assert all(map(gone, pids()))


def test_an_error_in_a_check_is_raised_here_too() -> None:
    with pytest.raises(BadSetting, match="the grid has 0 blocks"):
        check_in_child(mine("bad setting"), Shape.of(64), command=FOREIGN)


def test_a_check_that_did_not_begin_is_an_error() -> None:
    with pytest.raises(ChildFailed, match="exit code 5"):
        check_in_child(mine("dies at once"), Shape.of(64), command=FOREIGN)


RIGHT = """\
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
"""


@pytest.mark.parametrize(
    "source",
    [RIGHT, RIGHT.replace("col >= N", "col >= N - 1"), RIGHT.replace("A[row", "A[4000000 + row")],
    ids=["right", "wrong", "out of bounds"],
)
def test_the_emulators_verdict_is_the_same_from_there_as_from_here(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel("mine", "mine.cu", "mine", grid="(N + 15) / 16, (M + 7) / 8", block="16, 8", text=source)
    there = check_in_child(kernel, Shape(40, 24, 8), on="emulated", seed=7, timeout_s=0.0)
    here = check(kernel, Shape(40, 24, 8), on="emulated", seed=7)
    assert [(s.name, s.passed, s.where) for s in there.verdict.stages] == [
        (s.name, s.passed, s.where) for s in here.verdict.stages
    ]
    assert (there.verdict.precision, there.findings) == (here.verdict.precision, here.findings)
    assert (there.label, there.shape, there.compiled.ptx) == (here.label, here.shape, here.compiled.ptx)


def test_a_gpu_that_is_not_there_is_an_error_of_the_same_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(NoGpu, match="no GPU to measure on"):
        check_in_child(rung("naive"), on="gpu")
