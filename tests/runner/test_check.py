"""`worklog check`.

A user kernel goes through the ladder's gate, and every mistake in how to launch it is one line.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from tests.helpers import PLAIN, RACY, TEXTURE, typed
from tests.lab.waiting import gone
from tests.runner.conftest import FOREIGN, JOB, mine
from worklog.emulator.symbols import demangled
from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.kernel.emulated import EmulatedDevice, EmulatedFault
from worklog.problem import Shape
from worklog.runner.check import Checked, check, check_in_child
from worklog.runner.child import Ended
from worklog.runner.messages import CheckEnded

SMALL = Shape(24, 40, 16)
LAUNCH = ("--grid", "(N + 15) // 16, (M + 7) // 8", "--block", "16,8")


pytestmark = pytest.mark.usefixtures("laptop", "few_shapes")


def worklog(source: str, *words: str) -> Result:
    Path("mine.cu").write_text(source, encoding="utf-8")
    return typed("check", "mine.cu", *words)


def checked(source: str) -> Checked:
    return check(Kernel.from_source(source, file="mine.cu", grid=LAUNCH[1], block=LAUNCH[3]), SMALL)


TILES = PLAIN.replace(
    "if (row >= M || col >= N) return;", ""
)  # outside its domain, it would write past C
ON_TILES = ("--grid", "N // 16, M // 8", "--block", "16,8", "--domain", "M % 8 == 0, N % 16 == 0")
BY_TILES = """
void run(int M, int N, int K, float alpha, float* A, float* B, float beta, float* C) {
  mine<<<dim3(N / 16, M / 8), dim3(16, 8)>>>(M, N, K, alpha, A, B, beta, C);
}
"""
TURNED = ("--grid", "(M + 7) // 8, (N + 15) // 16", "--block", "16,8")
TEXTURED = PLAIN.replace("  float acc", f"  {TEXTURE}\n  float acc")
BY_COLUMNS = (
    PLAIN.replace("A[row * K + k]", "A[k * M + row]")
    .replace("B[k * N + col]", "B[col * K + k]")
    .replace("C[row * N + col]", "C[col * M + row]")
)
TILES_BY_COLUMNS = BY_COLUMNS.replace("if (row >= M || col >= N) return;", "")
COLUMN_MAJOR = "all matrices are column-major: mine is right with --args 'N,M,K,alpha,B,A,beta,C'"
SEVERAL = f"{PLAIN}\ntemplate <int>\n{PLAIN.replace('mine', 'other')}"


@pytest.mark.parametrize(
    ("source", "words", "exit_code", "said"),
    [
        (
            "\ufeff" + PLAIN.replace("\n", "\r\n"),
            LAUNCH,
            0,
            r"^passed as fp32 for M from 1 to [\d,]+, N from 1 to [\d,]+, K from 1 to [\d,]+ "
            r"\(\d+ of [\d,]+ M, \d+ of [\d,]+ N, \d+ of [\d,]+ K ran\); reads A and B where alpha is 0 \(seed \d+\)\n"
            r"mine\.cu: mine at 130x190x70 · emulated · sm_90 PTX\n(· .*\n)*✓ \d+ stages passed: exact on edge shapes; .*\n"
            r"(✓ .*\n)*✓ no race, .*\n.* registers .*\n"
            r"· at least \S+ ms at 4096, which the verdict doesn't cover, on an NVIDIA H200, "
            r"bound by L1 lookups.*\n"
            r"notebook 14 explains .*\n(time: \d+\.\d s\n)?\Z",
        ),
        (
            PLAIN.replace("col >= N", "col >= N - 1"),
            LAUNCH,
            1,
            r"^failed at exact on edge shapes \(seed \d+\)\n"
            r"✗ exact on edge shapes: .*Only the last column: a bound may be off by one\.\n(    "
            r".*\n)*"
            r"    \.{23}o\nmine\.cu: mine at (.*\n)*notebook 14 explains .*\n(time: \d+\.\d s\n)?\Z",
        ),
        (TILES, ON_TILES, 0, "passed as fp32"),
        (
            TILES,
            LAUNCH,
            1,
            "if mine takes whole tiles only, .* --domain 'M % 8 == 0, N % 16 == 0'$",
        ),
        (
            TILES.replace("B[k * N + col]", "B[col * K + k]"),
            LAUNCH,
            1,
            "mine is right if B lies by columns, in whole tiles: .* --by-columns B "
            "--domain 'M % 8 == 0, N % 16 == 0'$",
        ),
        (
            PLAIN.replace("row >= M", "row > M"),
            LAUNCH,
            1,
            "· it compares with M, so a bound may be wrong; else, if mine takes whole tiles only",
        ),
        (
            f"// Domain: M == N\n{PLAIN.replace('col >= N', 'col >= M')}",
            LAUNCH,
            1,
            r"· the domain in a comment isn't read, so every shape is checked: cannot read the "
            r"domain 'M == N': give "
            r"(.*\n)*· the domain in a comment isn't read: if mine doesn't take every shape, "
            r"state one by --domain",
        ),
        (
            TILES.replace("A[row * K", "A[row * M"),
            LAUNCH,
            1,
            r"✗ launch: mine\.cu:\d+: global-out-of-bounds.* \(at \d+x\d+x\d+\)\n(?!(.|\n)*(whole "
            r"tiles|exchanged))"
            r"(.*\n)*· at a small square shape, mine is right: an index or the grid uses one of "
            r"M, N and K",
        ),
        (
            PLAIN,
            ("--grid", "(M + 31) / 32, (M + 31) / 32", "--block", "32,32"),
            1,
            "· at a small square shape, mine is right",
        ),
        # It takes whole tiles along K, and has a mistake for long K: nothing is in place of
        # another.
        (
            TILES.replace("k < K;", "k < (K + 15) / 16 * 16;").replace("= 0.0f;", "= K > 60;")
            + BY_TILES,
            (),
            1,
            r"^failed at launch(?!(.|\n)*(exchanged|square))",
        ),
        (
            TILES.replace("A[row * K", "A[1 + row * K"),
            LAUNCH,
            1,
            (
                r"✗ launch: mine\.cu:\d+: global-out-of-bounds.*\n(?!(.|\n)*(whole "
                r"tiles|exchanged|square))"
            ),
        ),
        *(
            (source, TURNED, 1, f"exchanged: .* mine is right with --grid '{re.escape(LAUNCH[1])}'")
            for source in (PLAIN, TILES)
        ),
        (
            BY_COLUMNS,
            LAUNCH,
            1,
            rf"{COLUMN_MAJOR} --grid '\(M \+ 15\) // 16, \(N \+ 7\) // 8'$",
        ),
        (
            TILES_BY_COLUMNS,
            LAUNCH,
            1,
            rf"{COLUMN_MAJOR} --grid '.*' --domain 'M % 16 == 0, N % 8 == 0'$",
        ),
        # With another mistake, column-major matrices aren't right either.
        (BY_COLUMNS.replace("acc +=", "acc -="), LAUNCH, 1, r"failed(?!(.|\n)*column-major: mine)"),
        (TILES, (*TURNED, *ON_TILES[4:]), 1, "axes are exchanged: .* mine is right with --grid"),
        (
            PLAIN,
            ("--grid", "1, 1", "--block", "16,8"),
            1,
            "the grid 1, 1 doesn't depend on M, N or K",
        ),
        (
            TILES,
            (*ON_TILES, "--size", "100"),
            2,
            r"mine's domain \(M % 8 == 0, N % 16 == 0\): pad to 112",
        ),
        (
            RACY,
            (
                "--grid",
                "N // 8, M // 8",
                "--block",
                "8,8",
                "--domain",
                "M % 8 == 0, N % 8 == 0, K % 8 == 0",
            ),
            1,
            (
                r"✗ launch: mine\.cu:8: shared-race: thread \d+ of block(.*\n)*✗ mine\.cu:8: "
                r"shared-race: .* of Bs, "
            ),
        ),
        (
            SEVERAL,
            (*LAUNCH, "--entry", "other<3>", "--size", "16"),
            0,
            r"^mine\.cu: other<3> at 16(.*\n)*· at least \S+ µs at 16 on",
        ),
    ],
)
def test_a_verdict_says_what_is_wrong_and_where(source, words, exit_code, said):
    result = worklog(source, *words)
    assert result.exit_code == exit_code, result.output
    assert re.search(said, result.output, re.MULTILINE), result.output


def test_for_machines():
    result = worklog(PLAIN.replace("k < K", "k < K - 1"), *LAUNCH, "--json", "--size", "64x48x40")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    known = {"accepted": False, "prediction": None, "kernel": "mine", "shape": [64, 48, 40]}
    assert document | known == document
    assert document["label"].startswith("emulated") and document["registers"] > 0
    assert "The terms from k = 69 to the end are missing" in document["stages"][0]["where"]["guess"]


@pytest.mark.parametrize(
    ("source", "words", "complaint"),
    [
        (
            f"template <int>\n{PLAIN}",
            (),
            "mine.cu: mine is a template of ",
        ),
        (PLAIN.replace("float beta, ", ""), (), "mine.cu:6: identifier"),
        (
            PLAIN,
            ("--grid", "128, 128", "--block", "16,8"),
            "the grid 128, 128 has 16,384 blocks at 130x190x70, more than a GPU runs",
        ),
        (
            SEVERAL,
            (),
            (
                "mine.cu has 2 kernels (mine, other): name one with --entry, or launch several "
                "in a function as"
            ),
        ),
        (
            PLAIN.replace("float alpha", "double alpha"),
            (),
            "mine.cu: mine takes double alpha: the gate passes float",
        ),
        (
            PLAIN.replace("float alpha", "int alpha"),
            (),
            "alpha and beta are int32 and float32: the gate passes two of one type",
        ),
        (
            PLAIN.replace("{\n", "{\n  extern __shared__ int x[];\n  x[0] = 1;\n", 1),
            (),
            "mine.cu: mine takes dynamic sh",
        ),
        (PLAIN, ("--domain", "M % 0 == 0"), "cannot read the domain"),
        (PLAIN, ("--domain", ""), "--domain is empty: "),
        (PLAIN, ("--args", ""), "--args is empty: "),
        (PLAIN, ("--entry", "yours"), "mine.cu has no kernel yours: its kernels are mine"),
        (PLAIN, ("--emulate", "--size", "500000"), "size 500000 on the emulator needs about"),
        (
            PLAIN,
            ("--emulate", "--size", "1600000"),
            "the grid (N + 15) // 16, (M + 7) // 8 has 200",
        ),
        (TEXTURED, (), "mine.cu:4: txq.width.b32 (txq.width.b32 w, "),
    ],
)
def test_a_mistake_is_one_line(source, words, complaint):
    result = worklog(source, *LAUNCH, *words)
    assert result.exit_code == 2
    assert f"\nworklog: {complaint}" in f"\n{result.stderr}"  # below the progress of a slow machine


def test_each_launch_of_a_check_has_its_number_and_shared_memory_is_the_sum_of_both_kinds():
    heard = dict[int, str]()
    body = "  volatile __shared__ float s[32]; extern __shared__ float x[];\n  s[0] = x[0] = K;"
    source = PLAIN.replace("{\n", f"{{\n{body}\n", 1)
    kernel = Kernel.from_source(source, grid=LAUNCH[1], block=LAUNCH[3], shared=64)
    found = check(kernel, SMALL, progress=lambda done, total, doing: heard.setdefault(done, doing))
    assert [*heard] == [*range(len(heard))] and len(heard) > 5
    assert all(doing.startswith(f"launch {number + 1} at ") for number, doing in heard.items())
    assert " 192 bytes of shared memory per block" in str(found)


def test_an_endless_loop_fails_with_its_line(monkeypatch):
    monkeypatch.setattr("worklog.emulator.core.native.SLICE", 1000)
    inner = "for (int i = 0; i < K + 9; ++i)\n    acc += A[row * K + i % K];"
    heard: list[str] = []
    for body in ("acc", f"{{\n#pragma unroll 1\n  {inner}\n  C[row * N + col] = acc; }} //"):
        source = PLAIN.replace("++k) acc", f"k += k < 3) {body}")
        kernel = Kernel.from_source(source, grid=LAUNCH[1], block=LAUNCH[3])
        found = str(
            check(
                kernel,
                SMALL,
                budget=20_000,
                progress=lambda done, total, doing: heard.append(doing),
            )
        )
        assert "✗ launch: after 20,000 instructions, thread " in found
        assert (
            "is still in the loop of line 5: for (int k = 0;" in found
            and "a loop that does not end" in found
        )
    blocks = [
        said for said in heard if re.search(r" at \S+: 0 of \d+ blocks, about [\d.]+ % of", said)
    ]
    assert len(blocks) >= 38


def test_an_explicit_domain_wins_and_one_that_the_grid_implies_is_a_warning():
    def of(grid: str, rules: str | None = None) -> tuple[Checked, dict[str, Any]]:
        kernel = Kernel.from_source(f"// grid: {grid}   block: 16, 16\n{PLAIN}", domain=rules)
        found = check(kernel, on="emulated", seed=1, quick=True)
        return found, found.as_dict()

    inferred, document = of("N / 16, M / 16")
    assert document["accepted"] and "M % 16 == 0, N % 16 == 0" in document["warnings"][0]
    assert (
        "the domain is inferred" in repr(inferred)
        and "the domain is inferred" in inferred._repr_html_()
    )
    printed = worklog(f"// grid: N / 16, M / 16   block: 16, 16\n{PLAIN}", "--seed", "1").stdout
    assert re.search(
        r"^passed as fp32 for .* \(the domain is inferred .* N % 16 == 0\) \(seed 1\)$",
        printed,
        re.MULTILINE,
    )
    for grid, rules in (("N / 16, M / 16", "any"), ("N / 16, (M + 15) / 16", None)):
        _, document = of(grid, rules)
        assert not document["accepted"] and "has 0 x" in document["reason"]
        assert ("one rounded axis of two" in str(document["warnings"])) == (not rules)
    _, stated = of("N / 16, (M + 15) / 16", "N % 16 == 0")
    assert stated["accepted"] and stated["warnings"] == []


def test_a_launch_that_cannot_be_has_the_sources_names():
    found = worklog(PLAIN, *LAUNCH[:3], "64,64")
    assert found.exit_code == 1 and "than mine allows" in found.stdout and "_Z" not in found.stdout
    assert demangled("call _ZN3lab4gemmEPKf, _Z4mineIfEvv;") == "call lab::gemm, mine;"


def test_a_rung_is_checked_without_nvrtc_and_with_its_own_launch(no_nvrtc):
    result = typed("check", "tiles_1d", "--emulate")
    assert result.exit_code == 0, result.output
    assert "\n04_tiles_1d.cu: sgemm_tiles_1d<64, 64, 8, 8> at " in result.stdout
    assert "· emulated · sm_90 PTX from the package (NVRTC " in result.stdout


# The 256th launch is wrong: one thread counts them.
COUNTS = PLAIN.replace("__global__", "__device__ int launches;\n__global__", 1).replace(
    "C[row * N + col] =",
    "if (row + col == 0 && atomicAdd(&launches, 1) % 256 == 255) return;\n  C[row * N + col] =",
)


# Each block waits for the one behind it, which starts only where all fit.
CHAINED = PLAIN.replace("__global__", "__device__ int done[1 << 16];\n__global__", 1).replace(
    "  float acc",
    "  int id = blockIdx.y * gridDim.x + blockIdx.x, last = gridDim.x * gridDim.y - 1;\n"
    "  if (threadIdx.x + threadIdx.y == 0 && id < last) while (atomicExch(&done[id + 1], 0) == 0) {}\n"
    "  if (threadIdx.x + threadIdx.y == 0 && id) atomicExch(&done[id], 1);\n  float acc",
)


def test_a_kernel_that_keeps_a_variable_is_launched_with_more_blocks_than_run_at_once(few_shapes):
    found = checked(CHAINED)
    assert "deadlock" in str(found.verdict.reason) and re.search(
        r"✗ launch: .* \(at (256|512|1024)x\1x[1-8]\)\n", str(found)
    )


# A block that finds the mark of this launch has nothing to do; the marks of blocks come round after
# 64 launches.
MARKS = PLAIN.replace(
    "__global__",
    "__device__ unsigned char marks[1 << 16];\n__device__ unsigned launches, left;\n__global__",
    1,
).replace(
    "  if (row",
    "  __shared__ bool marked;\n  const int id = blockIdx.y * gridDim.x + blockIdx.x, blocks = "
    "gridDim.x * gridDim.y;\n"
    "  const unsigned char mark = *(volatile unsigned*)&launches % 64 + 1;\n"
    "  if (threadIdx.x + threadIdx.y == 0) marked = marks[id] == mark, marks[id] = mark;\n"
    "  __threadfence();\n  __syncthreads();\n"
    "  if (threadIdx.x + threadIdx.y == 0 && atomicInc(&left, blocks - 1) == blocks - 1) "
    "atomicAdd(&launches, 1);\n"
    "  if (marked) return;\n  if (row",
)


def test_what_blocks_of_a_large_launch_leave_is_found_many_launches_later(few_shapes):
    found = checked(MARKS)
    assert "kept state: in launch 4097, 4096 after the last" in str(found.verdict.reason), str(
        found
    )
    right = checked(MARKS.replace("unsigned char", "unsigned").replace("% 64", ""))
    assert right.verdict.accepted, str(right)


def test_a_kernel_that_keeps_a_variable_is_launched_many_times():
    found = checked(COUNTS)
    assert not found.verdict.accepted and found.verdict.stages[-1].name == "kept state", str(found)
    assert "in launch 256 after loading" in str(found.verdict.reason)
    right = checked(COUNTS.replace("% 256 == 255) return;", "% 256 == 256) return;"))
    assert right.verdict.accepted and "· kept state: keeps launches between launches" in str(right)
    assert "keeps launches" in str(right.as_dict()["notes"])


ON_VECTORS = PLAIN.replace(
    "  float",
    "  float2 v = M * K > 1 ? *reinterpret_cast<const float2*>(A) : float2();\n  float",
    1,
).replace("A[row", "0 * (v.x + v.y) + A[row")
ON_FOURS = ON_VECTORS.replace("float2", "float4").replace("K > 1", "K > 3")
SHIFTED = PLAIN.replace("A[row", "(size_t(A) & 15 ? 2.0f : 1.0f) * A[row")


def test_other_addresses_of_the_matrices_are_tried():
    found = checked(ON_VECTORS)
    assert found.verdict.accepted and not found.findings
    assert "! alignment is inferred: A % 8 bytes; state it, as in --domain 'any M, N, K" in str(
        found
    )
    stated = check(replace(found.kernel, rules="A % 8 bytes"), SMALL)
    (alignment,) = (stage for stage in stated.verdict.stages if stage.name == "alignment")
    assert "inferred" not in str(stated)
    assert alignment.detail.startswith("right with each matrix 4 and 16")
    narrowed = check(replace(found.kernel, rules="A % 8 bytes").with_text(ON_FOURS), SMALL)
    assert "with A at 8 bytes behind an allocation's start, which A % 8 bytes allows: " in str(
        narrowed.verdict.reason
    )
    wrong = checked(SHIFTED)
    assert not wrong.verdict.accepted and "with A at 4 bytes behind an allocation's start" in str(
        wrong.verdict.reason
    )


def test_lines_that_are_left_out_are_a_clause_of_the_verdict():
    found = checked(
        PLAIN.replace("  float", "#if __CUDA_ARCH__ < 900\n  return;\n#endif\n  float", 1)
    )
    assert re.match(r"passed as fp32 for .*; not compiled for sm_90: line \d+ \(seed", str(found))


# ------------------------------------------------------------------------------------------- what the code is made of


def test_code_that_contradicts_its_class_is_a_warning():
    """Code that never runs can't fail a stage."""
    found = checked(
        PLAIN.replace("alpha * acc :", "alpha * acc + (K < 0 ? __fadd_rz(A[0], B[0]) : 0.0f) :")
    )
    assert "· sums or products that truncate: 1 in the PTX" in str(found)
    assert "! fp32 is claimed, and the code truncates" in str(found)
    assert found.as_dict()["accepted"] and len(found.as_dict()["warnings"]) == 1
    assert "!" not in str(checked(PLAIN))


# ------------------------------------------------------------------------------- in a child process


def test_a_kernel_that_ends_its_process_fails(pids):
    found = check_in_child(mine("hangs"), SMALL, on="gpu", timeout_s=0.6, command=FOREIGN)
    assert (
        str(found.verdict.reason).startswith("process: hung: no progress for 1 s")
        and not found.verdict.accepted
    )
    assert found.label == "live · NVIDIA H200"
    assert all(map(gone, pids()))


LONG = PLAIN.replace("k < K; ++k) acc +=", "k < K + 9999; ++k) acc += k >= K ? 0.0f :")
OWN_WRITE = PLAIN.replace(
    "\n}", "\n  C[row * N + col] = __ldg(&C[row * N + col]);\n}"
)  # no GPU shows that it is undefined


@pytest.mark.parametrize(
    ("source", "child", "accepted", "said"),
    [
        (PLAIN, JOB, True, (r"^passed as fp32(.*\n)*✓ precision: (.*\n)*✓ precision \(emulated\): "
                           r"(.*\n)*✓ no race, ")),
        (OWN_WRITE, JOB, False, r"✗ launch \(emulated\): mine\.cu:7: read-only-load: "),
        (PLAIN.replace("alpha * acc :", "acc :"), JOB, False, (r"✗ exact on edge shapes: (.*\n)*✗ "
                                                              r".* \(emulated\): at")),
        (TEXTURED, FOREIGN, True, (r"· not run on the emulator \(mine\.cu:4: txq(.*\n)*✓ 1 stage "
                                  r"passed: all\n")),
        (LONG, FOREIGN, True, r"· not run on the emulator \(after 20,000 instr"),
    ],
)  # fmt: skip
def test_on_a_gpu_the_emulator_runs_small_shapes_beside_it(source, child, accepted, said):
    kernel = Kernel.from_source(source, file="mine.cu", grid=LAUNCH[1], block=LAUNCH[3])
    found = check_in_child(kernel, SMALL, on="gpu", budget=20_000, command=child)
    assert found.verdict.accepted == accepted and re.search(said, str(found)), str(found)
    assert bool(found.as_dict()["findings"]) == (source == OWN_WRITE)
    alone = check_in_child(kernel, SMALL, on="gpu", emulate=False, command=child)
    shown = str(alone)
    assert (
        "(emulated)" not in shown
        and "no race" not in shown
        and "not run on the emulator (--no-emulate)" in shown
    )


def test_the_emulators_verdict_is_the_same_from_there_as_from_here():
    out_of_bounds = PLAIN.replace("A[row", "A[4000000 + row")
    kernel = Kernel.from_source(out_of_bounds, file="mine.cu", grid=LAUNCH[1], block=LAUNCH[3])
    shown: list[str] = []
    steps: dict[str, Any] = {"progress": lambda done, total, doing: shown.append(doing)}
    there = check_in_child(kernel, SMALL, on="emulated", seed=7, timeout_s=0.0, **steps)
    assert "launch 1 at 1x7x2" in shown
    here = check(kernel, SMALL, on="emulated", seed=7)
    stages = [
        [(s.name, s.passed, s.where) for s in found.verdict.stages] for found in (there, here)
    ]
    assert stages[0] == stages[1] and there.findings == here.findings != ()
    assert (there.title, there.verdict.precision) == (here.title, here.verdict.precision)
    assert (
        there.compiled is not None
        and here.compiled is not None
        and there.compiled.ptx == here.compiled.ptx
    )


WITH_OPTIONS = """
#include <mine.cuh>
#include <cstdint>
extern __shared__ float row_of_a[];
__global__ void gemm(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  uint32_t row = blockIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  for (uint32_t k = threadIdx.x; k < K; k += TILE) row_of_a[k] = A[row * K + k];
  __syncthreads();
  float acc = zero();
  if (col < N) {
    for (int k = 0; k < K; ++k) acc += row_of_a[k] * B[k * N + col];
    C[row * N + col] = alpha * acc + (beta == 0 ? 0 : beta * C[row * N + col]);
  }
}
"""


def test_headers_macros_and_dynamic_shared_memory_are_given_as_options(tmp_path):
    (tmp_path / "mine.cuh").write_text("__device__ float zero() { return 0; }")
    words: dict[str, Any] = {
        "grid": "(N + 31) / 32, M",
        "block": 32,
        "include": [tmp_path],
        "define": ["TILE=32"],
    }
    kernel = Kernel.from_source(WITH_OPTIONS, shared=4096, **words)
    ones = np.ones(32 * 32, np.float32)

    def launched(kernel: Kernel) -> Any:
        emulator = EmulatedDevice()
        a, b, c = (emulator.upload(ones) for _ in "ABC")
        kernel.load(emulator).enqueue(Shape.of(32), 1.0, a, b, 0.0, c)
        return set(emulator.download(c))

    assert launched(kernel) == {32}
    with pytest.raises(EmulatedFault, match="64 bytes of shared memory"):
        launched(kernel.with_launch(shared=64))
    with pytest.raises(BadSetting, match="--shared BYTES"):
        check(kernel.with_launch(shared=0), on="emulated")


@pytest.mark.parametrize(
    ("start", "unset"),
    [("float acc;", True), ("float acc = __int_as_float(0x7fffffff);", False)],
)
def test_nan_of_a_value_that_was_never_set_names_its_line_and_no_access(start, unset):
    reason = checked(PLAIN.replace("float acc = 0.0f;", start)).verdict.reason or ""
    lines = re.findall(
        r"NaN or infinity: mine\.cu:([2-9]|\d\d) reads a value that was never set", reason
    )
    assert bool(lines) == unset and not (unset and "out of bounds" in reason)


def test_beside_a_gpu_the_verdict_names_what_never_ran_on_the_emulator(monkeypatch):
    source = PLAIN.replace("float acc = 0.0f;", "float acc = 0.0f; if (M == 50000021) acc = 1.0f;")
    kernel = Kernel.from_source(source, file="mine.cu", grid=LAUNCH[1], block=LAUNCH[3])
    on_gpu = check(kernel, SMALL, on="emulated", seed=5)
    on_gpu = replace(
        on_gpu, label="live · a GPU", verdict=replace(on_gpu.verdict, never_ran=(), seed=5)
    )
    monkeypatch.setattr("worklog.runner.check.runs_live", lambda _kernel, on: on != "emulated")
    monkeypatch.setattr(
        "worklog.runner.child.run_child",
        lambda *_words, **_named: iter([CheckEnded(on_gpu), Ended(None, 0)]),
    )
    both = check_in_child(kernel, SMALL, seed=5)
    assert both.label.startswith("live · a GPU · beside emulated"), both.notes
    assert [part.when for part in both.verdict.never_ran] == ["M == 50000021"]
    clauses = both.verdict.result.split("; ")
    assert len(clauses) == len({*clauses}) and any("alpha is 0" in clause for clause in clauses)
    assert "never ran: M == 50000021" in both.verdict.result
