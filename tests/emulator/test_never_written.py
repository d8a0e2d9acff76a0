"""What a kernel reads without having written it is no number: not a zero, which would make a slip right by luck."""

from __future__ import annotations

import numpy as np
import pytest

from worklog.emulator.device import EmulatedDevice
from worklog.kernel.kernel import Program

READS = {
    "a sum that starts from nothing": "float x; for (int i = 0; i < n; ++i) x += i; *out = x;",
    "an array that nobody filled": "float x[9]; for (int i = 0; i < n; ++i) x[(i * 5 + n) % 9] += i; *out = x[n % 9];",
}


@pytest.mark.parametrize("body", READS.values(), ids=READS)
def test_what_was_never_written_is_no_number(body: str) -> None:
    device = EmulatedDevice()
    out = device.upload(np.zeros(1, np.float32))
    kernel = device.compile(Program("reads.cu", f"__global__ void reads(float* out, int n) {{ {body} }}", "reads"))
    device.launch(kernel, (1, 1), 1, (out, np.int32(20)))
    assert np.isnan(device.download(out)).all()
