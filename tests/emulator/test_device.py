"""EmulatedDevice behaves as the gate expects of any device."""

from __future__ import annotations

import numpy as np
import pytest

from worklog.emulator.device import EmulatedDevice, EmulatedFault
from worklog.emulator.findings import BadLaunch
from worklog.kernel.device import Device, Program

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
