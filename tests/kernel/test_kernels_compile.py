"""The rungs as the compiler sees them, on any machine: they compile, nothing spills, and a mistake shows its line."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from worklog.errors import CompileFailed, WorklogError
from worklog.kernel import kernel as kernels
from worklog.kernel.kernel import Program, compile_error, kernels_dir
from worklog.kernel.ladder import LADDER, Rung, rung
from worklog.kernel.nvrtc import Compiled, compile_cuda

NAMES = [r.name for r in LADDER]
H200_SHARED_BYTES, STATIC_SHARED_BYTES, REGISTERS_OF_AN_SM = 228 * 1024, 48 * 1024, 64 * 1024
each_rung = pytest.mark.parametrize("record", LADDER, ids=NAMES)


def compiled(record: Rung, arch: str = "sm_90") -> Compiled:
    program = Program.of(record)
    return compile_cuda(program.source, program.entry, name=program.name, arch=arch, options=program.options)


def test_in_a_checkout_the_kernels_lie_beside_the_package() -> None:
    assert kernels_dir() == Path(kernels.__file__).resolve().parents[2] / "kernels"


def test_missing_kernels_are_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "site" / "worklog"
    package.mkdir(parents=True)
    monkeypatch.setattr(kernels, "__file__", str(package / "kernels.py"))
    with pytest.raises(WorklogError, match=r"the kernels are missing: .* install gemm-worklog again"):
        kernels_dir()
    shutil.copytree(Path(__file__).parents[2] / "kernels", package / "_kernels")
    assert kernels_dir() == package / "_kernels"


@each_rung
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_rung_compiles_and_fits(record: Rung, arch: str) -> None:
    out = compiled(record, arch)
    assert f".target {arch}" in out.ptx
    assert "warning" not in out.log.lower(), out.log
    assert out.shared_bytes <= STATIC_SHARED_BYTES
    assert 0 < out.registers <= 255
    assert out.registers * record.block <= REGISTERS_OF_AN_SM


@each_rung
def test_nothing_spills_on_hopper(record: Rung) -> None:
    out = compiled(record)
    assert (out.spill_store_bytes, out.spill_load_bytes, out.stack_bytes) == (0, 0, 0)


@each_rung
def test_shared_memory_is_the_tiles(record: Rung) -> None:
    """Two buffers from double_buffered on; the rows of As are padded by 4 floats from conflict_free on."""
    tile = record.tile
    bm, bn, bk = tile["BM"], tile["BN"], tile.get("BK", 0)
    buffers = 2 if NAMES.index(record.name) >= NAMES.index("double_buffered") else 1
    padding = 4 if NAMES.index(record.name) >= NAMES.index("conflict_free") else 0
    assert compiled(record).shared_bytes == 4 * buffers * bk * (bm + padding + bn)


@each_rung
def test_the_promised_blocks_fit_an_sm(record: Rung) -> None:
    blocks = record.tile.get("MIN_BLOCKS", 1)
    out = compiled(record)
    assert blocks * record.block * out.registers <= REGISTERS_OF_AN_SM
    assert blocks * out.shared_bytes <= H200_SHARED_BYTES


@each_rung
def test_fp32_stays_fp32(record: Rung) -> None:
    """Only FP32 multiply-adds do the work: no tensor cores, no flushed denormals, no FP64 or FP16 detour."""
    words = Counter(line.split()[0] for line in compiled(record).ptx.splitlines() if line.split())
    assert words["fma.rn.f32"] > 0
    forbidden = ("mma.", "wgmma.", "fma.rn.ftz", "fma.rn.f64", "fma.rn.f16", "cvt.rna.tf32", "atom.", "red.")
    assert [word for word in words if word.startswith(forbidden)] == []


def test_a_hash_belongs_to_source_entry_and_options() -> None:
    program = Program.of(rung("naive"))
    others = [
        replace(program, source=program.source + " "),
        replace(program, entry="sgemm_naive<16, 16>"),
        replace(program, options=()),
    ]
    assert replace(program, name="elsewhere.cu").sha256 == program.sha256
    assert len({program.sha256, *(other.sha256 for other in others)}) == 4


BROKEN = """\
template <int N>
__global__ void broken(float* C) {
  C[threadIdx.x] = undeclared + N;
}
"""


def test_a_compile_error_shows_file_line_and_source() -> None:
    with pytest.raises(CompileFailed) as caught:
        compile_cuda(BROKEN, "broken<1>", name="broken.cu")
    first, second, *_ = str(caught.value).splitlines()
    assert first.startswith("broken.cu:3: ") and "undeclared" in first
    assert second.strip() == "C[threadIdx.x] = undeclared + N;"


def test_a_gpus_compile_error_shows_them_too() -> None:
    """CuPy compiles a copy under a name of its own, so the log's file is not the reader's."""
    program = Program("broken.cu", BROKEN, "broken<1>")
    log = '/tmp/tmpx/c0ffee.cubin.cu(3): error: identifier "undeclared" is undefined\n1 error detected'
    first, second, *rest = str(compile_error(program, log)).splitlines()
    assert first == 'broken.cu:3: identifier "undeclared" is undefined'
    assert second == "    C[threadIdx.x] = undeclared + N;"
    assert "1 error detected" in rest


def test_a_log_without_a_line_is_shown_whole() -> None:
    message = str(compile_error(Program("broken.cu", BROKEN, "broken<1>"), "nvrtc: error: invalid value\n"))
    assert message == "broken.cu: broken<1> does not compile; the compiler says:\nnvrtc: error: invalid value"


def test_a_tile_that_the_source_cannot_take_does_not_compile() -> None:
    record = replace(rung("tiles_2d"), tile=dict(BM=128, BN=128, BK=8, TM=8, TN=7))
    with pytest.raises(CompileFailed, match=r"05_tiles_2d\.cu:\d+: static assertion failed"):
        compiled(record)
