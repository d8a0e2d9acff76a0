"""What the emulator does not support: each error names the instruction, its line and what to do instead."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, compiled, kernel, run
from worklog.emulator import BadLaunch, BudgetExceeded, PtxError, TooLarge, UnsupportedInstruction, launch, load


def test_an_endless_loop_runs_out_of_budget() -> None:
    body = "  volatile int* p = out;\n  while (p[0] == 0) {\n    p[1] = threadIdx.x;\n  }"
    message = r"after 1,000 instructions, thread 0 of block .* is still near line [45].*\n.*does not end"
    with pytest.raises(BudgetExceeded, match=message):
        run(kernel(body, "int* out"), [np.zeros(2, np.int32)], budget=1000)


@pytest.mark.parametrize(
    ("body", "name", "advice"),
    [
        ('  asm volatile("fence.proxy.tensormap::generic.release.gpu;");', "fence.proxy", "fences between proxies"),
        ("  out[0] = (reinterpret_cast<float (*)(float)>(out))(1);", "a call through a pointer", "__forceinline__"),
        ("  out[0] = __dadd_rz(out[1], out[2]);", "add.rz.f64", "or write it without this instruction"),
    ],
)
def test_an_unsupported_instruction_is_named_with_its_line_and_advice(body: str, name: str, advice: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"^line 3: ") as caught:
        run(kernel(body, "float* out"), [np.zeros(32, np.float32)], block=64)
    assert name in str(caught.value) and advice in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1}, %rd1, %rd2, %p1;", "warp-group tensor-core"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz {%d1, %d2}, {%d1}, {%d2}, {%d1, %d2};", "tensor-core"),
        ("cvt.rna.satfinite.tf32.f32 %r1, %f1;", "tensor-core"),
        ("barrier.cta.red.xor.pred %p1, 0, %p1;", "a block and of a warp, and no others"),
        ("bar.arrive 1;", "a block and of a warp, and no others"),
        ("mov.u32 %r1, %smid;", "special register %smid"),
        ("fma.rn.oob.f16x2 %r1, %r1, %r1, %r1;", "compute in float"),
        ("mbarrier.arrive.expect_tx.shared.b64 [%r1], 1;", "this form of mbarrier"),
        ("tcgen05.wait::ld.sync.aligned;", "tensor-core"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;", "copies that reduce"),
        ("cp.async.bulk.tensor.3d.im2col.shared::cluster.global [%r1], [%rd1, {%r1}], [%r2];", "asynchronous copy"),
        ("brx.idx %r1, table;", "replace the switch with if and else"),
        ("addc.u32 %r1, %r1, 1;", "doesn't support it"),
        ("rcp.approx.ftz.f64 %d1, %d1;", "doesn't support it"),
        ("frobnicate.b32 %r1, %r1;", "frobnicate.b32.*write it without this instruction"),
    ],
)
def test_unsupported_instructions_written_by_hand(statement: str, hint: str) -> None:
    registers = ".reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .f32 %f<3>; .reg .f64 %d<3>; .reg .pred %p<3>;"
    ptx = HEAD + f".visible .entry k() {{\n{registers}\n{statement}\nret;\n}}\n"
    with pytest.raises(UnsupportedInstruction, match=hint):
        launch(load(ptx, "k"), (1,), 32, [])


def test_text_that_is_not_ptx() -> None:
    with pytest.raises(PtxError, match="not PTX"):
        load("int main() {}", "k")
    with pytest.raises(PtxError, match="truncated"):
        load(HEAD + ".visible .entry k() {\nret;\n", "k")
    with pytest.raises(PtxError, match="there is no kernel j"):
        load(HEAD + ".visible .entry k() {\nret;\n}\n", "j")


SIMPLE = kernel("  if (threadIdx.x < n) out[threadIdx.x] = scale;", "float* out, int n, float scale")


@pytest.mark.parametrize(
    ("arguments", "block", "message"),
    [
        ([1, 2], 32, "takes 3 arguments, got 2"),
        ([np.zeros(4, np.float32), 2.5, 1.0], 32, "argument 1 must be an integer"),
        ([np.zeros(4, np.float32), np.zeros(1, np.int32), 1.0], 32, "must be a number .*, not a buffer"),
        ([np.zeros(4, np.float32), 2**40, 1.0], 32, "does not fit in 32 bits"),
        ([np.zeros((4, 4), np.float32)[:, 0], 2, 1.0], 32, "contiguous"),
        ([np.zeros(4, np.float32), 2, 1.0], 2048, "2048 threads per block are more"),
        ([np.zeros(4, np.float32), 2, 1.0], 96, "allow 64"),
        ([np.zeros(4, np.float32), 2, 1.0], (0, 1), "positive"),
    ],
)
def test_launches_that_no_gpu_accepts(arguments: list[object], block: object, message: str) -> None:
    with pytest.raises(BadLaunch, match=message):
        launch(compiled(SIMPLE.replace("void k", "void __launch_bounds__(64) k"), "k"), (1,), block, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((2**31,), 32, r"the grid \(2147483648, 1, 1\) .* \(2147483647, 65535, 65535\)"),
        ((1, 65_536), 32, "the grid"),
        ((1, 1, 65_536), 32, "the grid"),
        ((10**18,), 32, "the grid"),
        ((1,), (1, 1, 65), r"the block \(1, 1, 65\) exceeds what a GPU allows, \(1024, 1024, 64\)"),
    ],
)
def test_sizes_that_no_gpu_accepts_fail_before_anything_runs(grid: object, block: object, message: str) -> None:
    out = np.zeros(4, np.float32)
    with pytest.raises(BadLaunch, match=f"^invalid configuration argument: {message}"):
        launch(compiled(SIMPLE, "k"), grid, block, [out, 4, 1.0])  # type: ignore[arg-type]
    assert not out.any()


def test_a_grid_that_takes_too_long_fails_before_anything_runs() -> None:
    with pytest.raises(TooLarge, match=r"^140,735,340,806,145 blocks are too many .* use a smaller size$"):
        launch(compiled(SIMPLE, "k"), (2**31 - 1, 65_535), 32, [np.zeros(4, np.float32), 4, 1.0])


@pytest.mark.parametrize(("arch", "most"), [("sm_90", 227), ("sm_80", 163), ("sm_120", 99)])
def test_shared_memory_is_limited_by_the_architecture(arch: str, most: int) -> None:
    source = kernel("  extern __shared__ int tile[];\n  tile[0] = 1;\n  out[0] = tile[0];", "int* out")
    dynamic, out = compiled(source, "k", arch), np.zeros(1, np.int32)
    launch(dynamic, (1,), 1, [out], shared_bytes=1024 * most)
    with pytest.raises(BadLaunch, match=rf"^invalid configuration .* more than {arch} has \({1024 * most}\)$"):
        launch(dynamic, (1,), 1, [out], shared_bytes=1024 * most + 1)


def test_a_launch_larger_than_the_memory_fails_before_it_starts() -> None:
    with pytest.raises(TooLarge, match="run fewer lanes at a time"):
        launch(compiled(SIMPLE, "k"), (2**30,), 1024, [np.zeros(4, np.float32), 2, 1.0], lanes=2**40)
