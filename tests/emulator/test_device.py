"""EmulatedDevice behaves as the gate expects of any device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import cuda
from worklog.emulator.device import EmulatedDevice, EmulatedFault
from worklog.emulator.findings import BadLaunch
from worklog.gate import Checker
from worklog.kernel import Kernel
from worklog.kernel.device import Device, Program
from worklog.problem.gemm import Shape

SHIFT = """extern "C" __global__ void k(float* out, int n, int by) {
  out[threadIdx.x + by] = n;
}
"""


def test_buffers() -> None:
    device: Device = EmulatedDevice()
    host = np.arange(64, dtype=np.float32)
    buffer = device.upload(host)
    host[0] = 99
    assert device.download(buffer)[0] == 0
    part = device.view(buffer, 16, 32)
    device.fill(part, 7.0)
    assert device.download(buffer)[15:17].tolist() == [15, 7]
    assert part.skew == 64
    device.overwrite(part, np.zeros(32, np.float32))
    assert device.download(buffer)[16:48].sum() == 0
    with pytest.raises(BadLaunch, match="cannot be a view"):
        device.view(buffer, 2, 8)
    with pytest.raises(BadLaunch, match="cannot be a view"):
        device.view(buffer, 32, 64)


def test_device_variables_keep_their_values_until_the_module_is_loaded_again() -> None:
    """As in CUDA: loading a module initialises them, a launch does not."""
    device = EmulatedDevice()
    program = Program("count.cu", "__device__ float count = 5;\n" + SHIFT.replace("= n;", "= count += n;"), "k")
    first, second = device.compile(program), device.compile(program)
    out = device.upload(np.zeros(8, np.float32))
    for at, loaded in enumerate((first, first, second, first, device.compile(program))):
        device.launch(loaded, (1, 1), 1, [out, np.int32(1), np.int32(at)])
    assert device.download(out).tolist() == [6, 7, 6, 8, 6, 0, 0, 0]


@pytest.mark.parametrize(("right", "stage"), [(1, "exact on edge shapes"), (4, "bit-equal when repeated"), (99, None)])
def test_the_gate_fails_a_kernel_that_is_wrong_from_some_launch_on(
    right: int, stage: str | None, few_shapes: None
) -> None:
    """The gate launches each size three times, and the last one at least three times more."""
    device, source = EmulatedDevice(), cuda("counts_launches").replace("RIGHT = 1", f"RIGHT = {right}")
    verdict = Checker(device, Shape(40, 24, 12), 0).check(Kernel.from_source(source).load(device))
    assert [s.name for s in verdict.stages if not s.passed] == ([stage] if stage else []), verdict.reason


def test_an_access_outside_a_view_is_a_fault() -> None:
    device = EmulatedDevice()
    kernel = device.compile(Program("shift.cu", SHIFT, "k"))
    whole = device.upload(np.zeros(96, np.float32))
    middle = device.view(whole, 32, 32)
    device.launch(kernel, (1, 1), 32, [middle, np.int32(5), np.int32(0)])
    device.synchronize()
    device.launch(kernel, (1, 1), 32, [middle, np.int32(6), np.int32(4)])
    with pytest.raises(EmulatedFault, match=r"shift\.cu:2: global-out-of-bounds: thread 28 .* past the end") as caught:
        device.synchronize()
    assert caught.value.findings[0].count == 4
    assert "out[threadIdx.x + by] = n;" in str(caught.value)
    device.synchronize()
    assert device.download(whole).tolist() == [0] * 32 + [5] * 4 + [6] * 28 + [0] * 32


def test_registers_that_no_warp_releases_are_an_endless_wait() -> None:
    source = """extern "C" __global__ void __launch_bounds__(384, 1) k(float* out, int n, int by) {
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
  out[threadIdx.x + by] = n;
}
"""
    device = EmulatedDevice()
    launch = (1, 1), 384, (device.upload(np.zeros(384, np.float32)), np.int32(1), np.int32(0))
    device.launch(device.compile(Program("k.cu", source, "k")), *launch)
    device.synchronize()
    for old, new in (('asm volatile("setmaxnreg.dec.sync.aligned.u32 104;")', "by += 0"), ("32 200;", "32 208;")):
        device.launch(device.compile(Program("k.cu", source.replace(old, new), "k")), *launch)
        with pytest.raises(EmulatedFault, match=r"k\.cu:3: registers: thread 128 .* of 64512"):
            device.synchronize()
