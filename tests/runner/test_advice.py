"""A verdict outlives what follows it.

Its advice is right when followed; and a seed repeats a report.
"""

import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import PLAIN, typed
from worklog.errors import Interrupted, apart
from worklog.gate import advice, edges, exact, search
from worklog.kernel import Kernel, prediction
from worklog.kernel.nvrtc import compile_cuda
from worklog.runner.check import MOST_LINES, Checked, check

pytestmark = pytest.mark.usefixtures("laptop", "few_shapes")

SQUARES = """__global__ void squares(const float *A, const float *B, float *C, int N) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < N; ++k) sum += A[row * N + k] * B[k * N + col];
  C[row * N + col] = sum;
}"""
SQUARE_LAUNCH = ("--grid", "(N + 15) / 16, (N + 15) / 16", "--block", "16,16")
SLABS = """__global__ void slabs(const float *A, const float *B, float *C, int M, int N, int K) {
  __shared__ float a[16][12], b[12][16];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0;
  for (int first = 0; first < K; first += 12) {
    if (x < 12) a[y][x] = A[row * K + first + x];
    if (y < 12) b[y][x] = B[(first + y) * N + col];
    __syncthreads();
    for (int k = 0; k < 12; ++k) sum += a[y][k] * b[k][x];
    __syncthreads();
  }
  C[row * N + col] = sum;
}"""
SLAB_LAUNCH = ("--grid", "N / 16, M / 16", "--block", "16,16")
COUNTER = """__device__ unsigned next_row;
__global__ void taken(const float *A, const float *B, float *C, int M, int N, int K) {
  __shared__ unsigned row;
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) row = atomicAdd(&next_row, 1);
    __syncthreads();
    if (row >= M) return;
    for (int col = threadIdx.x; col < N; col += 64) {
      float sum = 0;
      for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
      C[row * N + col] = sum;
    }
  }
}"""
ADDED = PLAIN.replace("C[row * N + col] =", "C[row * N + col] +=", 1)
LAUNCH = ("--grid", "(N + 15) / 16, (M + 7) / 8", "--block", "16,8")
UNGUARDED = PLAIN.replace("if (row >= M || col >= N) return;", "")


def worklog(source: str, *words: str) -> Any:
    Path("mine.cu").write_text(source, encoding="utf-8")
    return typed("check", "mine.cu", "--emulate", "--quick", "--seed", "1", *words)


def fails(*_: Any, **__: Any) -> Any:
    raise KeyError("broken")


def test_what_fails_apart_says_so_in_one_line_and_lets_an_interrupt_through():
    notes: list[str] = []
    assert apart("the advice", fails, 3, notes) == 3
    assert notes == ["the advice failed, which doesn't change the verdict: KeyError: 'broken'"]

    def interrupted() -> None:
        raise Interrupted("enough")

    with pytest.raises(Interrupted):
        apart("the advice", interrupted, None, notes)


@pytest.mark.parametrize(
    ("source", "module", "name"),
    [
        (UNGUARDED, advice, "_advice"),
        (UNGUARDED, advice, "_with_unset"),
        (ADDED, edges, "_cause"),
        (PLAIN.replace("col >= N", "col >= N - 1"), exact, "_guess"),
    ],
)
def test_no_error_behind_a_verdict_replaces_it(source, module, name, monkeypatch):
    monkeypatch.setattr(module, name, fails)
    result = worklog(source, *LAUNCH)
    assert result.exit_code == 1, result.output
    stage = "launch" if source == UNGUARDED else "exact on edge shapes"
    assert result.stdout.startswith(f"failed at {stage} (seed 1)\n"), result.output
    said = re.findall(
        r"the search for .*, which doesn't change the verdict: KeyError: 'broken'", result.stdout
    )
    assert len(said) == 1, result.output


@pytest.mark.parametrize("name", ["bound", "recorded_run", "rung_bounds"])
def test_a_prediction_that_fails_says_so(name, monkeypatch):
    monkeypatch.setattr(prediction, name, fails)
    kernel = Kernel.from_source(PLAIN, file="mine.cu", grid=LAUNCH[1], block=LAUNCH[3])
    [said] = prediction.predicted(kernel).sentences
    assert said == "no lower bound of the time: the prediction failed: KeyError: 'broken'"


def test_a_pass_outlives_the_search_for_code_that_never_ran(monkeypatch):
    monkeypatch.setattr(search, "_never_ran", fails)
    monkeypatch.setattr(prediction, "bound", fails)
    result = worklog(PLAIN, *LAUNCH)
    assert result.exit_code == 0 and result.stdout.startswith("passed as fp32 for M"), result.output
    assert "· no lower bound of the time: the prediction failed: KeyError" in result.stdout
    assert (
        "· rare paths: the search for code that never ran failed, which doesn't change"
        in result.stdout
    )


def test_a_kernel_that_passed_is_not_called_endless(monkeypatch):
    rows = """__global__ void rows(const float *A, const float *B, float *C, int M, int N, int K) {
  int row = blockIdx.x * 64 + threadIdx.x;
  for (int col = 0; row < M && col < N; ++col) {
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = sum;
  }
}"""
    result = worklog(rows, "--grid", "(M + 63) / 64", "--block", "64")
    assert result.exit_code == 0 and "does not end" not in result.stdout, result.output
    assert "at 4096, rows takes more than 1,000,000 instructions per warp" in result.stdout


def advised(result: Any) -> str:
    found = re.search(r"--domain '([^']+)'", result.stdout)
    assert found is not None, result.output
    return found[1]


@pytest.mark.parametrize(
    ("source", "launch", "stated", "domain"),
    [
        (SQUARES, SQUARE_LAUNCH, (), "N % 16 == 0"),
        (
            SLABS,
            SLAB_LAUNCH,
            ("--domain", "M % 16 == 0, N % 16 == 0, K % 4 == 0"),
            "M % 16 == 0, N % 16 == 0, K % 12 == 0",
        ),
        (PLAIN.replace("k < K", "k < K / 4 * 4"), LAUNCH, (), "K % 4 == 0"),
    ],
)
def test_the_advised_domain_has_the_least_multiples_and_the_kernel_passes_in_it(
    source, launch, stated, domain
):
    wrong = worklog(source, *launch, *stated)
    assert wrong.exit_code == 1 and advised(wrong) == domain, wrong.output
    assert "outside" not in wrong.stderr and "in place of another" not in wrong.stdout
    right = worklog(source, *launch, "--domain", domain)
    assert right.exit_code == 0, right.output


def test_a_domain_in_which_a_larger_shape_is_wrong_is_not_advised():
    """Whole tiles make it right at the small shapes that advice is searched at.

    But not at all edge shapes.
    """
    both = UNGUARDED.replace("C[row * N + col] =", "C[row * N + col] = M > 96 ? 0.0f :", 1)
    result = worklog(both, *LAUNCH)
    assert result.exit_code == 1 and "--domain '" not in result.stdout, result.output
    assert "--domain '" in worklog(UNGUARDED, *LAUNCH).stdout


@pytest.mark.parametrize(
    ("source", "launch", "said"),
    [
        (
            COUNTER,
            ("--grid", "8", "--block", "64"),
            "first launch after loading, .* next_row keeps",
        ),
        (ADDED, LAUNCH, r"sets C to 0 before the launch, .*worklog new sgemm"),
    ],
)
def test_the_cause_is_named_and_what_to_do(source, launch, said):
    result = worklog(source, *launch)
    assert result.exit_code == 1 and re.search(said, result.stdout), result.output
    assert "doesn't depend on M, N or K" not in result.stdout


def test_terms_that_are_added_in_place_of_the_last_ones_are_named():
    stale = PLAIN.replace(
        "acc += A[row * K + k] * B[k * N + col]",
        "{ int from = K >= 8 && k >= K - 4 ? k - 4 : k; acc += A[row * K + from] * B[from * N + "
        "col]; }",
    )
    assert stale != PLAIN
    result = worklog(stale, *LAUNCH)
    said = (
        r"The last 4 terms, from k = \d+, are missing in every wrong element, and the 4 before "
        r"them are added twice"
    )
    assert re.search(said, result.stdout), result.output


def test_findings_of_launches_for_advice_are_not_the_kernels():
    shifted = UNGUARDED.replace("A[row * K", "A[1 + row * K")
    result = worklog(shifted, *LAUNCH, "--domain", "M % 8 == 0, N % 16 == 0")
    assert "past the end of A" in result.stdout and "of C" not in result.stdout, result.output


def test_a_report_is_the_verdict_the_findings_and_a_few_lines():
    wrong = worklog(UNGUARDED, *LAUNCH).stdout.splitlines()
    assert wrong[0] == "failed at launch (seed 1)" and wrong[1].startswith("✗ launch: mine.cu:")
    about = next(n for n, line in enumerate(wrong) if line.startswith("mine.cu: mine at"))
    assert len(wrong) - about <= MOST_LINES and not any("✗" in line for line in wrong[about:])
    right = worklog(PLAIN, *LAUNCH).stdout.splitlines()
    assert len(right) <= 1 + MOST_LINES and "measured" not in "".join(right)
    kernel = Kernel.from_source(PLAIN, file="mine.cu", grid=LAUNCH[1], block=LAUNCH[3])
    many = replace(
        check(kernel, on="emulated", seed=1, quick=True), notes=tuple(map(str, range(20)))
    )
    lines = str(many).splitlines()
    assert len(lines) == 1 + MOST_LINES == 13 and re.fullmatch(
        r"… and \d+ more lines, .*", lines[-1]
    )


BRANCHES = PLAIN.replace(
    "  float acc",
    "  if (M > 1500 && N > 1300 && K == 77) alpha = -alpha;\n  if (M % 97 == 41) beta = beta;\n  "
    "float acc",
)


def test_no_clock_decides_in_a_check_but_counted_effort(monkeypatch):
    kernel = Kernel.from_source(BRANCHES, file="mine.cu", grid=LAUNCH[1], block=LAUNCH[3])

    def report() -> Checked:
        found = check(kernel, on="emulated", seed=5, quick=True)
        stages = tuple(replace(stage, seconds=0.0) for stage in found.verdict.stages)
        return replace(found, verdict=replace(found.verdict, stages=stages))

    here = report()
    ticks = itertools.count()
    for clock in ("thread_time", "process_time", "monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, clock, lambda: 1000.0 * next(ticks))
    there = report()
    assert (json.dumps(there.as_dict()), str(there)) == (json.dumps(here.as_dict()), str(here))
    monkeypatch.setattr(search, "QUICK_EFFORT", 1e3)
    assert report().verdict != here.verdict


NEIGHBOURS = """#include <cuda_fp16.h>
__device__ unsigned counter, only_loaded = 1;
__device__ __noinline__ float helper(float x) { return x; }
__device__ __noinline__ float other(float x) { counter++; return __half2float(__float2half(x)); }
__global__ void plain(const float *A, const float *B, float *C, int M, int N, int K) {
  int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = helper(sum) * only_loaded;
}
__global__ void neighbour(const float *A, const float *B, float *C, int M, int N, int K) {
  extern __shared__ float pool[];
  pool[threadIdx.x] = other(A[0]);
  atomicAdd(&counter, 1);
  only_loaded = 2;
  __syncthreads();
  asm volatile("griddepcontrol.wait;");
  C[0] = pool[1] + __activemask();
}"""


def test_a_kernel_is_judged_by_what_it_reaches_and_not_by_its_neighbour():
    result = worklog(NEIGHBOURS, "--entry", "plain", *LAUNCH)
    assert result.exit_code == 0 and "passed as fp32" in result.stdout, result.output
    assert "keeps" not in result.stdout and "in the PTX" not in result.stdout
    program = Kernel.from_source(NEIGHBOURS, entry="plain", file="mine.cu").program
    assert "neighbour" not in program.source and "helper" in program.source
    plain = compile_cuda(replace(program, source=NEIGHBOURS))  # with its neighbour
    neighbour = replace(plain, symbol=plain.symbol.replace("5plain", "9neighbour"))
    assert (plain.variables, plain.takes_dynamic_shared) == ([], False)
    assert (neighbour.variables, neighbour.takes_dynamic_shared) == (
        ["counter", "only_loaded"],
        True,
    )
    assert "dynamic shared memory" in worklog(NEIGHBOURS, "--entry", "neighbour", *LAUNCH).stderr


def test_a_header_in_a_folder_near_the_file_is_found_and_named(tmp_path, monkeypatch):
    for folder in ("near/src", "near/include"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "near/include/sides.h").write_text("#define SIDE 16\n", encoding="utf-8")
    source = f'#include "sides.h"\n{PLAIN}'.replace("float acc = 0", "float acc = 16 - SIDE")
    file = tmp_path / "near/src/mine.cu"
    file.write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    kernel = Kernel.from_file("near/src/mine.cu", grid=LAUNCH[1], block=LAUNCH[3])
    assert "sides.h: from near/include, as by -I near/include" in kernel.adapted
    (tmp_path / "near/other").mkdir()
    (tmp_path / "near/other/sides.h").write_text("#define SIDE 8\n", encoding="utf-8")
    several = Kernel.from_file("near/src/mine.cu", grid=LAUNCH[1], block=LAUNCH[3])
    assert (
        "sides.h is in near/include and in near/other, and is left out: give one of them, "
        "as in -I near/include, if the kernel needs it" in several.adapted
    )


def test_a_kernel_in_a_python_string_is_checked_from_a_file_or_by_try_kernel():
    Path("mine.py").write_text(f"import cupy\nkernel = cupy.RawKernel('''{PLAIN}''', 'mine')\n")
    result = typed("check", "mine.py")
    assert result.exit_code == 2
    assert re.search(r"string of line \d+, .*\.cu file.* worklog\.try_kernel", result.stderr)
