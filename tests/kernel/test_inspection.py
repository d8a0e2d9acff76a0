"""`worklog inspect`: resources, memory counts by line, machine code, and mistakes."""

import json
import re
from html import escape
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from tests.helpers import RACY, SIGNATURE, typed
from worklog.emulator import launch
from worklog.emulator.limits import LIMITS
from worklog.errors import CompileFailed
from worklog.kernel import Kernel, inspection, prediction, resources
from worklog.kernel.device import Program
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.inspection import inspect, report
from worklog.kernel.ladder import rung
from worklog.kernel.resources import main_loop, no_sass
from worklog.problem import Shape

LAUNCH = (
    "--block",
    "8,8",
    "--grid",
    "N // 8, M // 8",
    "--domain",
    "M % 8 == 0, N % 8 == 0, K % 8 == 0",
)


def run(*words: str) -> Result:
    return typed("inspect", *words)


@pytest.fixture
def racy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.cu").write_text(RACY, encoding="utf-8")
    return "mine.cu"


def test_a_rung_has_a_report_without_a_time_and_each_line_shows_the_cost_of_its_requests():
    record = rung("vectorized")
    inspected = inspect(record)
    assert inspected.threads == record.threads and inspected.counts.thread_fma >= 4096**3
    assert inspected.label.startswith("emulated · sm_90 PTX · predicted from ")
    text = report(inspected)
    source = record.source.splitlines()
    assert record.entry in text and "sectors/request" in text
    assert not any(word in text for word in (" ms", " µs", "TFLOP", "note:", "// Before:"))
    # Sectors per request of A; wavefronts per request of B, with conflicts.
    for read, cost in (
        ("&A[(size_t)(a_row + r) * K + k0 + a_col];", "16"),
        ("&Bs[k][col * TN + j];", "8!"),
    ):
        (number,) = [at for at, line in enumerate(source, 1) if line.endswith(read)]
        (shown,) = [line.split() for line in text.splitlines() if line.endswith(read)]
        assert shown[2:4] == [cost, str(number)]
    assert repr(inspected) == text
    html = inspected._repr_html_()
    for line in source[-3:]:
        assert f">{escape(line)}</td></tr>" in html
    for name in ("registers", "sectors/request", "wavefronts per shared request"):
        assert f">{name}</th>" in html


def test_a_file_is_run_in_full_and_its_findings_are_shown(racy):
    done = run(racy, *LAUNCH)
    race = (
        "mine.cu:8: shared-race: thread 0 of block (0, 0, 0) writes (line 6) and thread 1 "
        "reads (line 8)"
    )
    assert done.exit_code == 0 and race in done.stdout
    assert "emulated · sm_90 PTX · 128 with alpha = 1, beta = 0" in done.stdout
    document = json.loads(run(racy, *LAUNCH, "--size", "32x64x16", "--json").stdout)
    assert document["shape"] == [32, 64, 16] and document["counts"]["thread_fma"] >= 32 * 64 * 16
    assert {finding["other_line"] for finding in document["findings"]} == {6, 7}
    bound = document["prediction"]["bound"]
    assert (
        bound["shape"] == [32, 64, 16]
        and bound["counts"]["wavefronts"] > 0
        and bound["limit"] in bound["limits"]
    )
    assert (
        "at least " in done.stdout
        and " at 4096 on an NVIDIA H200, bound by shared-memory wavefronts" in done.stdout
    )
    products = next(line for line in document["lines"] if line["line"] == 8)
    assert products["shared_load"]["requests"] > 0 and products["text"].startswith(
        "    for (int k = 0"
    )


def without_a_launch(file: str) -> None:
    """Let nothing in the kernel say how many threads a block has."""
    Path(file).write_text(
        Path(file).read_text().replace("blockIdx.y * 8", "blockIdx.y * blockDim.y")
    )


def test_without_a_launch_only_resources_are_shown(racy):
    without_a_launch(racy)
    printed = run(racy).stdout
    assert (
        "give --block" in printed
        and "give --grid and --block" in printed
        and "at least" not in printed
    )
    document = json.loads(run(racy, "--json").stdout)
    assert (document["counts"], document["threads"], document["prediction"]) == (None, None, None)


def test_a_large_size_of_a_file_is_predicted_once_a_small_one_was_right(racy, monkeypatch):
    monkeypatch.setattr(inspection, "TRIAL", Shape(96, 96, 64))
    document = json.loads(run(racy, *LAUNCH, "--size", "2048", "--json").stdout)
    assert document["label"].endswith(
        "predicted from 9 blocks, as a full run confirmed at 96x96x64"
    )
    tiles = 2048**3 // 8**3
    assert document["counts"]["global_load"]["bytes"] == tiles * 64 * 2 * 4
    assert document["shape"] == [2048] * 3 and {f["line"] for f in document["findings"]} >= {8}
    uneven = RACY.replace("K; k0", "K - blockIdx.x % 4 * 8; k0")
    Path(racy).write_text(uneven, encoding="utf-8")
    done = run(racy, *LAUNCH, "--size", "2048")
    assert (
        done.exit_code == 2
        and "cannot be predicted" in done.stderr
        and "a size of up to 512" in done.stderr
    )


def test_blocks_that_share_the_work_are_all_run_or_the_counts_are_said_not_to_be_predictable(
    monkeypatch,
):
    shape = Shape(256, 512, 96)
    kernel = rung("ragged")
    sizes = 256 * 96, 96 * 512, 256 * 512, kernel.workspace_bytes(shape) // 4
    a, b, c, workspace = (np.ones(size, np.float32) for size in sizes)
    code = EmulatedDevice().compile(kernel.program).kernel
    arguments = kernel.bind(shape, 1.0, a, b, 0.0, c, workspace)
    result = launch(
        code, kernel.blocks(shape), kernel.threads, arguments, shared_bytes=kernel.program.shared
    )
    assert inspect(kernel, shape).lines == result.lines
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(prediction, "WHOLE", shape)
        assert inspect(kernel, shape).caveats == ()
    (caveat,) = inspect(kernel).caveats
    assert (
        "its grid does not follow the shape, and shares differ: take a size of up to 512" in caveat
    )


def test_a_grid_that_follows_m_only_is_predicted_where_m_is_not_a_multiple_of_its_block(
    monkeypatch,
):
    source = f"""extern "C" __global__ void rows({SIGNATURE}) {{
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M) return;
  for (int col = 0; col < N; ++col) {{
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + beta * C[row * N + col];
  }}
}}"""
    kernel = Kernel.from_source(source, grid="(M + 63) / 64", block="64")
    monkeypatch.setattr(prediction, "WHOLE", Shape.of(16))
    code = EmulatedDevice().compile(kernel.program).kernel
    assert prediction.predict(code, kernel, Shape(100, 4, 512)).label.endswith(
        "predicted from 2 blocks"
    )


def test_out_writes_ptx_and_cubins_of_every_architecture_into_a_folder(racy):
    """The extra dev brings the disassembler."""
    document = json.loads(
        run(racy, "--block", "256", "--arch", "all", "--json", "--out", "built/here").stdout
    )
    assert [out["arch"] for out in document["resources"]] == list(LIMITS)
    assert all(0 < out["occupancy"]["share"] <= 1 for out in document["resources"])
    loops = document["sass_main_loop"]
    assert list(loops) == list(LIMITS) and all(mix["FFMA"] >= 16 for mix in loops.values())
    names = {f"mine.mine.{arch}.{kind}" for arch in LIMITS for kind in ("cubin", "ptx")}
    assert (
        {path.name for path in Path("built/here").iterdir()}
        == names
        == {Path(f).name for f in document["files"]}
    )
    assert ".target sm_80" in Path("built/here/mine.mine.sm_80.ptx").read_text(encoding="utf-8")
    assert Path("built/here/mine.mine.sm_120.cubin").read_bytes()[:4] == b"\x7fELF"
    Path("taken").write_text("", encoding="utf-8")
    assert "Directory 'taken' is a file" in run(racy, "--out", "taken").stderr
    shown = [*LAUNCH, "--size", "16", "--html"]
    assert run(racy, *shown, "page.html").stdout.endswith("\nwritten: page.html\n")
    page = Path("page.html").read_text(encoding="utf-8")
    assert re.search("<title>.*mine.*</title>", page)
    assert (
        "cannot write taken/page.html: taken: Not a directory; give --html another"
        in run(racy, *shown, "taken/page.html").stderr
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["mine.cu", "--grid", "1"], "--grid needs --block"),
        (["mine.cu", *LAUNCH, "--size", "100"], "pad to 104"),
        (["naive", "--arch", "sm_1"], "cannot compile for 'sm_1'"),
        (["json:dumps"], "dumps is a host function"),
    ],
)
def test_mistakes(racy, words, complaint):
    without_a_launch(racy)
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "") and complaint in done.stderr


def test_without_nvrtc_the_shipped_ptx_is_taken_and_without_a_disassembler_it_says_how_to_get_one(
    monkeypatch, request
):
    monkeypatch.setattr(resources, "disassembler", lambda: None)
    inspected = inspect(rung("naive"), Shape.of(64))
    assert (inspected.sass.loops, inspected.sass.note) == ({}, no_sass()) and "[sass]" in report(
        inspected
    )
    request.getfixturevalue("no_nvrtc")
    monkeypatch.setattr("worklog.kernel.clang.find_spec", lambda _name: None)
    inspected = inspect(rung("shared"), Shape.of(256))
    assert inspected.label.startswith("emulated · sm_90 PTX from the package (NVRTC ")
    assert inspected.main.registers == 32 and "needs NVRTC" in inspected.sass.note
    assert run("shared", "--arch", "all").exit_code == 2


LISTING = """
//--------------------- .text.f --------------------------
\t.section\t.text.f,"ax",@progbits
.text.f:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_1:
        /*0010*/              @!PT LDS RZ, [RZ] ;
        /*0020*/                   LDS.128 R8, [R3] ;
.L_x_2:
        /*0030*/                   FFMA R0, R1.reuse, R2, R0 ;
        /*0040*/                   FFMA R0, R1, R2, R0 ;
        /*0050*/              @P0 BRA `(.L_x_2) ;
        /*0060*/                   STS [R3+0x4], R0 ;
        /*0070*/             @!UP0 BRA `(.L_x_1) ;
.L_x_3:
        /*0080*/                   BRA `(.L_x_3);
\t.section\t.text.g,"ax",@progbits
.text.g:
        /*0000*/                   FFMA R0, R1, R2, R0 ;
        /*0010*/                   EXIT ;
"""


MORE = LISTING.replace("STS [R3+0x4], R0", "FFMA R5, R5, R5, R5")
AT = "\n        /*{}*/                   "
# ptxas puts the second attempt of a wait on an mbarrier behind the end, and jumps back into the
# loop from there.
ATTEMPT = f"FFMA R6, R1, R2, R6 ;{AT.format('0090')}{{}} ;{AT.format('00a0')}BRA `(.L_x_1)"
BEHIND = LISTING.replace("BRA `(.L_x_3)", ATTEMPT)
CACHED = LISTING.replace("R0, R1, R2, R0", "R0, R1, R2, R3")


@pytest.mark.parametrize(
    ("listing", "symbol", "loop", "conflicts"),
    [
        (LISTING, "f", {"FFMA": 2, "BRA": 1}, 1),
        (LISTING, "g", {}, 0),
        (MORE, "f", {"FFMA": 3, "BRA": 2, "LDS.128": 1}, 2 / 3),
        (BEHIND.format("NOP"), "f", {"FFMA": 3, "BRA": 3, "LDS.128": 1, "STS.32": 1, "NOP": 1}, 1),
        (
            CACHED,
            "f",
            {"FFMA": 2, "BRA": 1},
            1 / 2,
        ),  # R0 and R2 are in one bank, R1 and R3 in the other
        (
            CACHED.replace("R0, R1, R2, R3", "R0, R2, R1, R3"),
            "f",
            {"FFMA": 2, "BRA": 1},
            1,
        ),  # another slot
    ],
)
def test_the_main_loop_is_the_innermost_with_most_multiply_adds_and_a_reused_operand_is_not_read(
    listing, symbol, loop, conflicts
):
    found = main_loop(listing, symbol)
    assert (found.counts, found.bank_conflicts) == (loop, conflicts)


def test_the_report_has_a_column_for_each_main_loop():
    printed = run("tiles_2d", "--size", "128", "--arch", "sm_80,sm_120").stdout
    assert (
        "note: the counting rules were compared with hardware counters on sm_90 alone; on sm_80 the"
        in printed
    )
    lines = printed.partition("main loop, SASS")[2].partition("\n\n")[0].splitlines()
    assert lines[0].split() == ["sm_80", "sm_120"] and lines[1].split()[0] == "FFMA"
    assert re.fullmatch(
        r" FFMAs with a register-bank conflict +[1-9]\d\.\d % +[1-9]\d\.\d %", lines[-1]
    )
    rows = {line.split()[0]: np.array(line.split()[1:], int) for line in lines[1:-1]}
    assert rows["LDS.128"].any() and (sum(rows.values()) == 2 * rows["all"]).all()


def test_branches_that_depend_on_data_and_instructions_that_are_not_covered_leave_the_resources(
    racy, monkeypatch
):
    monkeypatch.setattr(resources, "disassembler", lambda: None)  # which takes long
    refused = '    __syncthreads(); asm volatile("{ .reg .f64 d; add.rz.f64 d, d, d; }");'
    launched = RACY.replace("    __syncthreads();", refused) + "\n// grid: 4, 4, block: 32, 32\n"
    Path(racy).write_text(launched, encoding="utf-8")
    reasons = {"split": "26_split.cu:", "mine.cu": "mine.cu:9: add.rz.f64 (add.rz.f64 d, d, d): "}
    for kernel, why in reasons.items():
        done = run(kernel)
        assert done.exit_code == 0 and "registers" in done.stdout
        assert f"memory requests not counted: {why}" in done.stdout


def test_a_rung_that_chooses_is_inspected_as_the_architecture_launches_it(monkeypatch):
    def build(program: Program, arch: str) -> None:
        raise CompileFailed(program.entry)

    monkeypatch.setattr(inspection, "build", build)
    for archs, entry in ((["sm_90"], "sgemm_bulk_copies<"), (["sm_80", "sm_90"], "sgemm_best<")):
        with pytest.raises(CompileFailed, match=entry):
            inspect(rung("best"), Shape(4096, 4096, 4096), archs)
