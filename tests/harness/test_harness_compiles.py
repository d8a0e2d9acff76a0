"""The harness's own kernels, as the compiler sees them on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import worklog
from worklog.kernel.nvrtc import ARCHITECTURES, compile_cuda

SOURCE = (Path(worklog.__file__).parent / "harness" / "harness.cu").read_text(encoding="utf-8")
ENTRIES = ("hold", "stamp", "flush", "spin", "ffma", "read", "probe")


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_kernel_of_the_harness_compiles_without_spills(entry: str) -> None:
    kernel = compile_cuda(SOURCE, f"harness_{entry}", name="harness.cu")
    assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0


@pytest.mark.parametrize("arch", [ARCHITECTURES[0], ARCHITECTURES[-1]])
def test_they_compile_for_the_oldest_and_the_newest_gpu(arch: str) -> None:
    assert compile_cuda(SOURCE, "harness_probe", name="harness.cu", arch=arch).arch == arch


def test_the_ceiling_is_multiply_adds_and_the_chain_is_read_past_l1() -> None:
    assert compile_cuda(SOURCE, "harness_ffma", name="harness.cu").ptx.count("fma.rn.f32") >= 256
    assert "ld.global.cg" in compile_cuda(SOURCE, "harness_probe", name="harness.cu").ptx
