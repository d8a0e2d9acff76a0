"""The ladder as a reader meets it.

Headers, resources, sources whose differences are the lesson, and main.cu.
"""

import difflib
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worklog.emulator.limits import occupancy
from worklog.errors import WorklogError
from worklog.kernel import LADDER, RUNGS, Kernel
from worklog.kernel import source as sources
from worklog.kernel.ladder import FP32, TENSOR
from worklog.kernel.ladder.rungs import equal_shares, ragged, ragged_at, split
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.source import evaluate, kernels_dir
from worklog.problem import Domain, Shape

SIGNATURE = (
    "(\n    int M, int N, int K, float alpha, const float* A, const float* B, float beta, "
    "float* C) {"
)
MAX_CHANGED_LINES = 55
IN_ORDER = (
    *LADDER,
    *(record for record in FP32 if (record.number or 0) <= 17),
)  # the others start anew


def of(*records: Kernel) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("record", records, ids=lambda record: record.entry)


def code(record: Kernel) -> list[str]:
    """Return a rung's source without comments, blank lines and the kernel's own name."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", "", record.source, flags=re.DOTALL).replace(
        record.function, "sgemm"
    )
    return [line.strip() for line in bare.splitlines() if line.strip()]


def test_every_source_is_a_rung():
    assert sorted(path.name for path in kernels_dir().glob("[0-9]*.cu")) == sorted(
        r.file for r in RUNGS
    )


def test_missing_kernels_are_a_clear_error(monkeypatch, tmp_path):
    assert kernels_dir() == Path(sources.__file__).resolve().parents[2] / "kernels"
    package = tmp_path / "site" / "worklog"
    package.mkdir(parents=True)
    monkeypatch.setattr(sources, "__file__", str(package / "kernel" / "source.py"))
    with pytest.raises(
        WorklogError, match=r"the folder kernels is missing: .* install gemm-worklog again"
    ):
        kernels_dir()
    shutil.copytree(Path(__file__).parents[2] / "kernels", package / "_kernels")
    assert kernels_dir() == package / "_kernels"


@of(*LADDER, *FP32[:5], *TENSOR[:4])
def test_a_rung_loads_like_a_users_file_and_states_the_launch_that_its_code_is_compiled_for(record):
    read = Kernel.from_file(kernels_dir() / record.file)
    assert (read.program, read.launches) == (record.program, record.launches)
    assert (read.domain, read.claimed) == (record.domain, record.claimed)
    bounds = re.search(r"__launch_bounds__\((.+?)(?:, 1|, MIN_BLOCKS)?\)\s+sgemm", record.source)
    assert (
        bounds is not None
        and evaluate(bounds[1], {**record.template, "COPIERS": 128}) == record.threads
    )
    assert repr(record) == f"<{record.number:02} {record.name}: {record.idea}>"


@of(*LADDER)
def test_a_rung_has_one_signature_and_blocks_that_walk_columns_along_x(record):
    source = record.source
    assert source.count("__global__") == 1 and "#include" not in source
    assert f"sgemm_{record.name}{SIGNATURE}" in source
    assert (record.domain == Domain()) == ("row >= M" in source)
    for axis, along in (("x", "BN"), ("y", "BM")):
        assert set(re.findall(rf"blockIdx\.{axis} \* (\w+)", source)) == {along}
    # Two buffers from double_buffered on; the rows of As are padded by 4 floats from conflict_free
    # on.
    tile = record.template
    number = int(record.file[:2])
    buffers = 2 if number >= 8 else 1
    padding = 4 if number >= 7 else 0
    shared = 4 * buffers * tile.get("BK", 0) * (tile["BM"] + padding + tile["BN"])
    assert compile_cuda(record.program).shared_bytes == shared


@given(record=st.sampled_from(LADDER), shape=st.builds(Shape, *[st.integers(1, 10_000)] * 3))
def test_the_grid_covers_c_and_no_more(record, shape):
    padded = record.domain.padded(shape)
    columns, rows = record.blocks(padded)
    assert (columns - 1) * record.template["BN"] < padded.n <= columns * record.template["BN"]
    assert (rows - 1) * record.template["BM"] < padded.m <= rows * record.template["BM"]


@of(*RUNGS)
def test_the_header_says_what_changed_why_what_it_costs_and_how_it_is_launched(record):
    header = list(
        itertools.takewhile(lambda line: line.startswith("//"), record.source.splitlines())
    )
    assert re.fullmatch(rf"// {record.file[:2]} · \S.*", header[0])
    run = f"// Run:     worklog run {record.name}"
    compiled = f"-DRUNG={record.number} main.cu && ./a.out 4096"
    if "workspace" in record.arguments:
        assert header[1] == run and header[2].startswith("//          main.cu launches one kernel")
    elif "setmaxnreg" in record.source:
        assert header[1:3] == [
            run,
            f"//          or: nvcc -gencode arch=compute_90a,code=sm_90a {compiled}",
        ]
    else:
        assert header[1] == f"{run}     or: nvcc -arch=native {compiled}"
    words = re.findall(
        r"^// (Before|Now|Why|Costs|Domain|Tile|Launch):", record.source, re.MULTILINE
    )
    assert (
        words
        == ["Before", "Now", "Why", "Costs", "Domain", "Tile", "Launch"][record is LADDER[0] :]
    )


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.pairwise(IN_ORDER)), ids=lambda record: record.name
)
def test_a_rung_is_one_idea_away_from_the_one_before(before, after):
    diff = list(difflib.ndiff(code(before), code(after)))
    changed = max(sum(line.startswith(mark) for line in diff) for mark in ("+ ", "- "))
    assert 2 <= changed <= MAX_CHANGED_LINES


@of(
    *LADDER,
    *FP32,
    *(record for record in TENSOR if not record.follows_shape),
    split(192),
    split(128, 8),
)
def test_a_rung_compiles_without_a_warning_and_in_registers_and_fits_an_sm(record):
    """ptxas remarks on wgmma that it had to serialise."""
    for one in record.passes:
        out = compile_cuda(one.program)
        assert not re.search("warning|serialized", out.log.lower()), out.log
        assert (out.spill_store_bytes, out.spill_load_bytes, out.stack_bytes) == (0, 0, 0)
        fitting = occupancy(
            "sm_90", one.thread_count, out.registers, out.shared_bytes + one.program.shared
        ).blocks
        assert fitting >= one.template.get("MIN_BLOCKS", 1)


@pytest.mark.parametrize(
    ("record", "launches", "workspace"),
    [
        (equal_shares(7), ["sgemm_equal_shares", "add_parts"], 14 * 128 * 256 * 4),
        (ragged(), ["sgemm_ragged", "add_parts"], 4 * (4 + 264 * 128 * 256)),
        (ragged(whole=True), ["sgemm_ragged"], 0),
        (ragged(blocks=1), ["sgemm_ragged"], 4 * (4 + 2 * 128 * 256)),
        (
            ragged(True, True, whole=True),
            ["copy_rows", "sgemm_ragged"],
            4 * (4 + 256 * 512 + 512 * 512),
        ),
        (ragged_at(Shape(9, 4, 4)), ["sgemm_ragged", "add_parts"], 4 * (4 + 264 * 128 * 256)),
        (
            ragged_at(Shape(9, 4, 5)),
            ["copy_rows", "sgemm_ragged", "add_parts"],
            4 * (4 + 256 * 512 + 264 * 128 * 256),
        ),
        (
            ragged_at(Shape(9, 5, 4)),
            ["copy_rows", "sgemm_ragged", "add_parts"],
            4 * (4 + 512 * 512 + 264 * 128 * 256),
        ),
        (ragged_at(Shape(1500, 2800, 4)), ["sgemm_ragged"], 0),
        (
            ragged_at(Shape(1500, 2800, 4), aligned=False),
            ["copy_rows", "sgemm_ragged"],
            4 * (4 + 256 * 512 + 512 * 512),
        ),
        (split(), ["split_lines", "sgemm_split"], (256 + 512) * (16 * 128 + 16)),
        (
            split(64, 2),
            ["split_lines", "sgemm_split", "add_parts"],
            8 * 256 * 512 + (256 + 512) * (16 * 128 + 32),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else "",
)
def test_a_rung_of_several_launches_names_them_and_its_workspace(record, launches, workspace):
    assert [part.function for part in record.passes] == launches
    assert (
        record.function == f"sgemm_{record.name}"
        and record.passes[record.main].entry == record.entry
    )
    assert record.workspace_bytes(Shape(256, 512, 512)) == workspace


ROOT = Path(__file__).parents[2]
MAIN = ROOT / "kernels" / "main.cu"
MAX_COLUMNS = 100
LAST = 17  # of the rungs on FP32 lanes that main.cu has

ALONE = [r for r in RUNGS if "workspace" not in r.arguments]  # main.cu launches one kernel
needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not on PATH: install the CUDA toolkit"
)


def test_no_cuda_line_is_wider_than_a_page():
    paths = [
        path
        for room in ("kernels", "worklog", "tests/exploits")
        for path in (ROOT / room).rglob("*.cu*")
    ]
    files = {path: path.read_text(encoding="utf-8").splitlines() for path in paths}
    assert [path for path, lines in files.items() if max(map(len, lines)) > MAX_COLUMNS] == []


@of(*ALONE)
def test_main_has_every_rung_as_the_ladder_has_it(record):
    rung = re.search(
        rf'if RUNG == {record.number}\n#include "(.+)"\n'
        r"const Rung rung = \{(.+>), (\d+), (\d+), (\d+), (\d+)(?:, (\d+))?\};",
        MAIN.with_name("rungs.cuh").read_text(encoding="utf-8"),
    )
    file, entry, *numbers = rung.groups(default="0")
    assert (file, entry) == (record.file, record.entry)
    assert [int(n) for n in numbers] == [
        *(record.template.get(axis, 1) for axis in ("BM", "BN", "BK")),
        record.threads,
        record.program.shared,
    ]


@needs_nvcc
@of(*ALONE[::8])
def test_nvcc_compiles_a_rung_with_its_host_code(record, tmp_path):
    """To PTX for Hopper, which takes a fraction of the time of a program.

    NVRTC compiles the others' kernels.
    """
    program = nvcc(
        f"-DRUNG={record.number}", "--ptx", "-arch=sm_90a", "-o", str(tmp_path / "rung.ptx")
    )
    assert program.returncode == 0, program.stderr
    assert f"sgemm_{record.name}" in (tmp_path / "rung.ptx").read_text()


@needs_nvcc
def test_the_program_names_the_domain_of_its_rung_and_takes_no_other(tmp_path):
    """It stops before it needs a GPU."""
    built = nvcc("-DRUNG=4", "-arch=sm_80", "-o", str(tmp_path / "rung"))
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "rung", "100"], capture_output=True, text=True)
    assert ran.returncode == 2 and "64, 64, 8" in ran.stderr
    missing = nvcc(f"-DRUNG={LAST + 1}", "--ptx", "-o", "/dev/null")
    assert missing.returncode != 0 and f"-DRUNG={LAST}" in missing.stderr


def nvcc(*options: str) -> subprocess.CompletedProcess[str]:
    command = ["nvcc", "-Wno-deprecated-gpu-targets", *options, str(MAIN)]
    return subprocess.run(command, capture_output=True, text=True)
