"""One compilation for both machines: what the emulator interprets is the PTX that the GPU's code was assembled from.

CuPy would compile the source once more, and two compilers may contract alpha * acc + beta * c differently; then the
last bits differ for a reason that is not the emulator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from worklog.gpu.cuda import CudaDevice, CudaKernel
from worklog.gpu.device import gpu
from worklog.kernel.device import Program
from worklog.kernel.kernel import Kernel
from worklog.kernel.nvrtc import ARCHITECTURES, Compiled
from worklog.problem.gemm import Shape

UNSUPPORTED_PTX = 222  # cuda.h, CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the PTX is newer than the driver


def architecture() -> str:
    """This GPU's, as NVRTC names it."""
    arch = "sm_{}{}".format(*gpu().compute_capability)
    assert arch in ARCHITECTURES, f"{gpu().name} is {arch}, which the package does not compile for"
    return arch


def load(out: Compiled, image: bytes) -> CudaKernel:
    """Load a cubin, or PTX that the driver then assembles itself."""
    return CudaKernel.of_image(out.program, out.symbol, image)


def launched(source: str, arguments: Sequence[Any], grid: Any = (1,), block: Any = (32,), shared: int = 0) -> list[Any]:
    """The arguments after a launch of a source's kernel k, arrays as NumPy's."""
    own = [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
    kernel = CudaKernel.by_nvrtc(Program("k.cu", source, "k"), architecture())
    kernel.launch(grid, block, tuple(own), shared_mem=shared)
    return [cupy.asnumpy(x) if isinstance(x, cupy.ndarray) else x for x in own]


def arguments(shape: Shape, alpha: float, beta: float, buffers: Sequence[Any]) -> list[Any]:
    a, b, c = buffers
    i32, f32 = np.int32, np.float32
    return [i32(shape.m), i32(shape.n), i32(shape.k), f32(alpha), a, b, f32(beta), c]


def matrices(shape: Shape, seed: int) -> list[np.ndarray]:
    """A, B and C of U(-1, 1) with full mantissas."""
    rng = np.random.default_rng([seed, shape.m, shape.n, shape.k])
    sizes = ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))
    return [rng.random(size, dtype=np.float32) * np.float32(2) - np.float32(1) for size in sizes]


def run_on_gpu(
    device: CudaDevice,
    record: Kernel,
    kernel: CudaKernel,
    shape: Shape,
    alpha: float,
    beta: float,
    host: Sequence[np.ndarray],
) -> np.ndarray:
    """What the GPU leaves in C."""
    buffers = [device.upload(matrix) for matrix in host]
    device.launch(kernel, record.blocks(shape), record.threads, arguments(shape, alpha, beta, buffers))
    return device.download(buffers[2]).reshape(shape.m, shape.n)
