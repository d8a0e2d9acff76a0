"""Kernels of several launches, cooperative launches and module variables, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernel.test_passes import TWO, mistaken
from worklog.errors import LaunchFailed
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.kernel.device import Program
from worklog.problem.gemm import Shape, random_inputs

COUNTER = """
__device__ unsigned times = 1;
__global__ void counts(float* out) { out[0] = times++; }
"""
MEETING = """
#include <cooperative_groups.h>
__global__ void meets(float* out, int* arrived) {
  if (threadIdx.x == 0) atomicAdd(arrived, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) out[blockIdx.x] = *(volatile int*)arrived;
}
"""


@pytest.fixture
def device() -> Any:
    from worklog.gpu.cuda import CudaDevice

    return CudaDevice()


def test_each_compilation_of_one_source_has_variables_of_its_own(device: Any) -> None:
    program, out = Program("counts.cu", COUNTER, "counts"), device.upload(np.zeros(4, np.float32))

    def launched(kernel: Any) -> float:
        device.launch(kernel, (1, 1), 1, (out,))
        return float(device.download(out)[0])

    first = device.compile(program)
    assert [launched(first), launched(first)] == [1, 2]
    second = device.compile(program)
    assert [launched(second), launched(first)] == [1, 3]


def test_the_blocks_of_a_cooperative_launch_wait_for_the_grid(device: Any) -> None:
    kernel, blocks = device.compile(Program("meets.cu", MEETING, "meets")), 64
    out, arrived = (device.upload(np.zeros(size, np.float32)) for size in (blocks, 4))
    device.launch(kernel, (blocks, 1), 32, (out, arrived))
    assert (device.download(out) == blocks).all()
    for grid in ((100_000, 1), (50_000, 2)):
        with pytest.raises(LaunchFailed, match=r"cooperative launch: 100,000, of which [\d,]+ run together"):
            device.launch(kernel, grid, 32, (out, arrived))


def test_passes_share_a_guarded_workspace_with_nothing_in_it(device: Any) -> None:
    rng, shape = np.random.default_rng(0), Shape(65, 33, 40)
    a, b = (np.round(8 * matrix) for matrix in random_inputs(shape, rng))
    buffers = Buffers(Memory(device, rng), a, b)

    def difference(kernel: Any) -> tuple[float, str | None]:
        result = buffers.run(kernel.load(device), 2.0, 0.5, 3.0)
        return float(abs(result.c - (2 * (a @ b) + 1.5)).max()), result.trespass

    assert difference(TWO) == (0, None)
    assert difference(mistaken(1))[1] == "it wrote outside its workspace"
    assert not difference(mistaken(2))[0] <= 0
