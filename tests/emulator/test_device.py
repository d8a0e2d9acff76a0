"""EmulatedDevice behaves as the gate expects of any device."""

from __future__ import annotations

import numpy as np
import pytest

from worklog.emulator.device import EmulatedDevice, EmulatedFault
from worklog.emulator.errors import BadLaunch
from worklog.errors import CompileFailed
from worklog.kernel.device import Device, Program
from worklog.kernel.ladder import rung
from worklog.problem.gemm import Shape

SHIFT = """extern "C" __global__ void k(float* out, int n, int by) {
  out[threadIdx.x + by] = n;
}
"""


def test_a_rung_runs_on_it_and_matches_numpy() -> None:
    device: Device = EmulatedDevice()
    assert device.source == "emulated"
    subject = rung("tiles_1d").load(device)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 64)).astype(np.float32) for _ in range(2))
    buffers = [device.upload(x) for x in (a, b, np.full((64, 64), np.nan, np.float32))]
    subject.enqueue(Shape(64, 64, 64), 1.0, buffers[0], buffers[1], 0.0, buffers[2])
    device.synchronize()
    np.testing.assert_array_equal(device.download(buffers[2]).reshape(64, 64), a @ b)
    assert subject.compiled.resources.shared_bytes == 4096
    assert subject.compiled.resources.registers > 16
    assert subject.compiled.resources.local_bytes == 0


def test_buffers() -> None:
    device = EmulatedDevice()
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
    with pytest.raises(BadLaunch, match="cannot copy 3 elements"):
        device.overwrite(part, np.zeros(3, np.float32))
    with pytest.raises(BadLaunch, match="cannot be a view"):
        device.view(buffer, 2, 8)
    with pytest.raises(BadLaunch, match="cannot be a view"):
        device.view(buffer, 32, 64)


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


def test_a_source_that_does_not_compile() -> None:
    with pytest.raises(CompileFailed, match=r"bad\.cu:1"):
        EmulatedDevice().compile(Program("bad.cu", "__global__ void k() { x; }", "k"))
