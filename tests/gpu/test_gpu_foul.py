"""On a real GPU, a launch finds NaN in the memory that the gate fouled before it."""

from __future__ import annotations

import numpy as np
import pytest

from worklog.gate.guarded_buffer import Memory
from worklog.kernel.device import Program

BLOCKS, THREADS = 2048, 128
FOUND = {
    "shared": "__shared__ volatile float slots[64]; const float found = slots[threadIdx.x % 64];",
    "local": "volatile float slots[64]; const float found = slots[(threadIdx.x + blockIdx.x) % 64];",
}


@pytest.mark.parametrize("memory", FOUND)
def test_a_launch_finds_no_number_in_memory_that_it_did_not_write(memory: str) -> None:
    from worklog.gpu.cuda import CudaDevice

    device = CudaDevice()
    body = f"{FOUND[memory]} out[blockIdx.x * blockDim.x + threadIdx.x] = found;"
    source = f"__global__ void finds(float* out) {{ {body} }}"
    kernel = device.compile(Program("finds.cu", source, "finds"))
    gate, out = Memory(device, np.random.default_rng(0)), device.upload(np.zeros(BLOCKS * THREADS, np.float32))
    device.launch(kernel, (BLOCKS, 1), THREADS, (out,))  # what a module's first launch allocates is clean
    gate.foul()
    device.launch(kernel, (BLOCKS, 1), THREADS, (out,))
    assert np.isnan(device.download(out)).mean() > 0.5
