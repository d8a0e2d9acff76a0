"""`worklog check`: a user kernel goes through the ladder's gate, and every mistake in how to launch it is one line."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from worklog.bench import check as check_module
from worklog.bench.check import check
from worklog.cli.commands import main
from worklog.emulator import device
from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.kernel.nvrtc import NvrtcMissing
from worklog.peers.exploits import exploits_dir
from worklog.problem.gemm import Domain, Shape

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
LAUNCH = ("--grid", "(N + 15) // 16, (M + 7) // 8", "--block", "16,8")


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU, whatever machine this is."""
    monkeypatch.setattr(check_module, "gpu_reason", lambda: "this test has no GPU")
    monkeypatch.chdir(tmp_path)


def worklog(source: str, *words: str) -> Result:
    Path("mine.cu").write_text(source, encoding="utf-8")
    result = CliRunner().invoke(main, ["check", "mine.cu", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_right_kernel_passes_and_the_result_states_where_it_ran() -> None:
    result = worklog(PLAIN, *LAUNCH)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "mine.cu: mine at 130x190x70 · emulated · sm_90 PTX"
    assert [line[0] for line in lines[1:5]] == ["✓"] * 4
    assert re.fullmatch(r"passed as fp32 in \d+\.\d s", lines[-1])
    assert "registers" in lines[-2]


def test_a_byte_order_mark_and_carriage_returns_do_not_matter() -> None:
    result = worklog("\ufeff" + PLAIN.replace("\n", "\r\n"), *LAUNCH)
    assert result.exit_code == 0, result.stderr


def test_a_wrong_kernel_fails_with_an_error_map_and_exit_code_1() -> None:
    result = worklog(PLAIN.replace("col >= N", "col >= N - 1"), *LAUNCH)
    assert result.exit_code == 1
    assert "✗ exact on edge shapes: " in result.stdout
    assert "Only the last column: a bound is off by one." in result.stdout
    assert "    .......................o\n" in result.stdout
    assert re.search(r"^failed in \d+\.\d s$", result.stdout, re.MULTILINE)


def test_for_machines() -> None:
    result = worklog(PLAIN.replace("k < K", "k < K - 1"), *LAUNCH, "--json", "--size", "64x48x40")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["accepted"] is False and document["kernel"] == "mine" and document["shape"] == [64, 48, 40]
    assert document["label"].startswith("emulated") and document["registers"] > 0
    assert "The terms from k = 69 to the end are missing" in document["stages"][0]["where"]["guess"]


def test_a_kernel_of_whole_tiles_is_checked_inside_its_domain() -> None:
    """Outside, this one would write past C."""
    tiles = PLAIN.replace("if (row >= M || col >= N) return;", "")
    launch = ("--grid", "N // 16, M // 8", "--block", "16,8")
    result = worklog(tiles, *launch, "--domain", "M % 8 == 0, N % 16 == 0")
    assert result.exit_code == 0, result.output
    outside = worklog(tiles, *launch, "--domain", "M % 8 == 0, N % 16 == 0", "--size", "100")
    assert outside.exit_code == 2
    assert "mine's domain (M % 8 == 0, N % 16 == 0): pad to 104x112x100" in outside.stderr


def test_templates_and_several_kernels_need_an_entry() -> None:
    two = PLAIN + PLAIN.replace("mine", "other")
    result = worklog(two, *LAUNCH)
    assert result.exit_code == 2
    assert result.stderr == "worklog: mine.cu has 2 kernels (mine, other): name one with --entry\n"
    assert worklog(two, *LAUNCH, "--entry", "other").exit_code == 0
    template = "template <int UNUSED>\n" + PLAIN
    assert worklog(template, *LAUNCH, "--entry", "mine<3>").exit_code == 0
    assert "template needs its arguments" in worklog(template, *LAUNCH).stderr


def test_a_class_must_be_held() -> None:
    short = PLAIN.replace("A[row * K + k] *", "__uint_as_float(__float_as_uint(A[row * K + k]) & 0xffffe000u) *")
    assert worklog(short, *LAUNCH).exit_code == 1
    result = worklog(short, *LAUNCH, "--class", "tf32")
    assert result.exit_code == 0, result.output
    assert "passed as tf32 in" in result.stdout


@pytest.mark.parametrize(
    ("source", "words", "complaint"),
    [
        (PLAIN, ("--grid", "N", "--block", "16"), ""),
        ("int x;", LAUNCH, "mine.cu has no __global__ function: write one"),
        (PLAIN.replace("float beta, ", ""), LAUNCH, "mine.cu:6: identifier"),
        (PLAIN.replace("int K,", "long long K,"), LAUNCH, "mine.cu: mine takes 8 parameters of 32, 32, 64, f32"),
        (PLAIN.replace("float alpha", "int alpha"), LAUNCH, "mine.cu: mine takes 8 parameters of 32, 32, 32, 32, 64"),
        (
            PLAIN.replace("{\n", "{\n  extern __shared__ int x[];\n  x[0] = 1;\n", 1),
            LAUNCH,
            "mine.cu: mine takes dynamic shared",
        ),
        (f"{PLAIN}\0and the rest", LAUNCH, "mine.cu:8: the source has a NUL character"),
        (PLAIN, ("--grid", "N ** 16", "--block", "16"), "cannot read 'N ** 16'"),
        (PLAIN, ("--grid", "BN // 16", "--block", "16"), "cannot read 'BN'"),
        (PLAIN, ("--grid", "1, 1, 1", "--block", "16"), "cannot read the grid '1, 1, 1'"),
        (PLAIN, ("--grid", "N // 64", "--block", "16"), "the grid N // 64 has 0 x 1 blocks at 1x7x2: round up"),
        (PLAIN, ("--grid", "N", "--block", "x"), "cannot read 'x'"),
        (PLAIN, ("--grid", "N", "--block", "0"), "cannot read the block '0'"),
        (PLAIN, ("--grid", "N", "--block", "1,2,3"), "cannot read the block '1,2,3'"),
        (PLAIN, (*LAUNCH, "--domain", "M > 3"), "cannot read the domain 'M > 3'"),
        (PLAIN, (*LAUNCH, "--domain", "M % 0 == 0"), "cannot read the domain"),
        (PLAIN, (*LAUNCH, "--class", "fp99"), "there is no precision class 'fp99': choose from fp32, fp32-emulated"),
        (PLAIN, (*LAUNCH, "--size", "0"), "size M = 0 is not a positive integer"),
        (PLAIN, (*LAUNCH, "--entry", "yours"), "mine.cu: there is no kernel yours; its kernels are mine"),
        (PLAIN, (*LAUNCH, "--emulate", "--size", "1600000"), "size 1600000 on the emulator needs about"),
        (
            PLAIN.replace("  float acc", '  asm volatile("bar.sync 1, 128;");\n  float acc'),
            (*LAUNCH, "--emulate"),
            "mine.cu: line 4: bar.sync (bar.sync 1, 128): ",
        ),
        (
            PLAIN.replace("float acc = 0.0f;", "float acc = 0.0f * clock();"),
            (*LAUNCH, "--emulate"),
            "mine.cu: line 4: 'mov.u64 %rd21, %clock64' reads %clock64, and the emulator",
        ),
    ],
)
def test_a_mistake_is_one_line(source: str, words: tuple[str, ...], complaint: str) -> None:
    result = worklog(source, *words)
    if not complaint:  # a legal launch that computes the wrong result fails
        assert result.exit_code == 1
        return
    assert result.exit_code == 2
    assert result.stderr.startswith(f"worklog: {complaint}"), result.stderr


def test_a_missing_file() -> None:
    result = CliRunner().invoke(main, ["check", "none.cu", *LAUNCH])
    assert (result.exit_code, result.stderr) == (2, "worklog: cannot read none.cu: No such file or directory\n")


def test_a_launch_that_no_gpu_takes_fails() -> None:
    result = worklog(PLAIN, "--grid", "N, M", "--block", "64,64")
    assert result.exit_code == 1
    assert "✗ launch: " in result.stdout


def test_an_endless_loop_fails_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "launch", partial(device.launch, budget=20_000))  # the whole one takes seconds
    result = worklog(PLAIN.replace("++k) acc", "k += k < 3) acc"), *LAUNCH, "--emulate", "--size", "16")
    assert result.exit_code == 1
    assert "✗ launch: after 20,000 instructions, thread " in result.stdout
    assert "is still near line 5: for (int k = 0;" in result.stdout and "a loop that does not end" in result.stdout


def test_a_race_fails_with_its_line() -> None:
    racy = PLAIN.replace("  float acc", "  __shared__ float s[1];\n  s[0] = threadIdx.x;\n  float acc").replace(
        "alpha * acc :", "alpha * acc + 0.0f * s[0] :"
    )
    result = worklog(racy, *LAUNCH)
    assert result.exit_code == 1
    assert "✗ launch: mine.cu:" in result.stdout and "race" in result.stdout


def test_from_python() -> None:
    path = Path("mine.cu")
    path.write_text(PLAIN)
    kernel = Kernel.from_file(path, grid="(N + 15) // 16, (M + 7) // 8", block="16,8")
    assert check(kernel, Shape(40, 24, 8)).verdict.accepted


@pytest.mark.parametrize(
    ("rules", "domain"),
    [
        ("any", Domain()),
        ("K%8==0 and N % 4 == 0", Domain(n=4, k=8)),
        ("M % 4 == 0, M % 6 == 0", Domain(m=12)),
    ],
)
def test_domains_are_read(rules: str, domain: Domain) -> None:
    assert Domain.of(rules) == domain == Domain.of(str(domain))


@pytest.mark.parametrize("rules", ["", "M % 64", "X % 2 == 0", "M % 64 == 1", "M % -2 == 0", "M % 2 == 0,"])
def test_an_unreadable_domain_is_an_error(rules: str) -> None:
    with pytest.raises(BadSetting, match="cannot read the domain"):
        Domain.of(rules)


def test_every_race_is_reported_with_line_block_and_threads() -> None:
    racy = f"""\
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
    words = ("--grid", "N // 8, M // 8", "--block", "8,8", "--domain", "M % 8 == 0, N % 8 == 0, K % 8 == 0")
    result = worklog(racy, *words, "--emulate")
    assert result.exit_code == 1
    assert re.search(r"✗ launch: mine\.cu:8: shared-race: thread \d+ of block \(0, 0, 0\)", result.stdout)
    assert re.search(r"✗ mine\.cu: line 8: shared-race: thread \d+ of block .* of Bs, ", result.stdout)
    found = json.loads(worklog(racy, *words, "--emulate", "--json").stdout)["findings"]
    assert {(f["kind"], f["line"], f["other_line"]) for f in found} == {("shared-race", 8, 6), ("shared-race", 8, 7)}


def test_a_rung_is_checked_without_nvrtc_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise NvrtcMissing("cannot compile CUDA source")

    monkeypatch.setattr(device, "compile_cuda", missing)
    result = CliRunner().invoke(main, ["check", "shared", "--emulate"])
    assert result.exit_code == 0, result.output
    assert "· emulated · sm_90 PTX from the package (NVRTC " in result.stdout


def test_a_rung_has_its_own_launch() -> None:
    result = CliRunner().invoke(main, ["check", "tiles_1d", "--emulate"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("04_tiles_1d.cu: sgemm_tiles_1d<64, 64, 8, 8> at ")
    for words, complaint in (
        (["tiles_1d", "--grid", "1"], "a rung has its own"),
        (["tiles_9d"], "there is no rung 'tiles_9d'"),
        (["none.cu"], "needs a launch: give --grid"),
    ):
        refused = CliRunner().invoke(main, ["check", *words])
        assert refused.exit_code == 2 and complaint in refused.stderr


# ------------------------------------------------------------------------------------------- what the code is made of


def test_short_products_are_a_note() -> None:
    source = (exploits_dir() / "right" / "three_short_products.cu").read_text(encoding="utf-8")
    result = worklog(source, *LAUNCH)
    assert result.exit_code == 0, result.output
    assert "· products: not kept to 24 bits (Strassen" in result.stdout
    assert re.search(r"^passed as fp32 in", result.stdout, re.MULTILINE)
    document = json.loads(worklog(source, *LAUNCH, "--json").stdout)
    assert document["accepted"] and document["notes"] == [
        "products are not kept to 24 bits (Strassen's algorithm, or several short products for one)"
    ]


def test_code_that_contradicts_its_class_is_a_warning() -> None:
    """Code that never runs can't fail a stage."""
    unused = PLAIN.replace("alpha * acc :", "alpha * acc + (K < 0 ? __fadd_rz(A[0], B[0]) : 0.0f) :")
    result = worklog(unused, *LAUNCH)
    assert result.exit_code == 0, result.output
    assert "· sums or products that truncate: 1 in the PTX" in result.stdout
    assert "! fp32 is claimed, and the code truncates" in result.stdout
    document = json.loads(worklog(unused, *LAUNCH, "--json").stdout)
    assert document["accepted"] and len(document["warnings"]) == 1
    assert "!" not in worklog(PLAIN, *LAUNCH).stdout
