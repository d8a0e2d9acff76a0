"""The harness's own kernels, as the compiler sees them on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import worklog
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import ARCHITECTURES, compile_cuda

SOURCE = (Path(worklog.__file__).parent / "harness" / "harness.cu").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", ["hold", "stamp", "flush", "spin", "ffma", "read", "probe"])
def test_every_kernel_of_the_harness_compiles_for_the_oldest_and_the_newest_gpu_without_spills(entry: str) -> None:
    for arch in (ARCHITECTURES[0], ARCHITECTURES[-1]):
        kernel = compile_cuda(Program("harness.cu", SOURCE, f"harness_{entry}"), arch)
        assert kernel.arch == arch
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
    if entry == "ffma":
        assert kernel.ptx.count("fma.rn.f32") >= 256
    if entry == "probe":
        assert "ld.global.cg" in kernel.ptx, "past L1"
