"""The process that compute-sanitizer inspects (worklog.runner.sanitizer): it launches the kernel that a file holds,
pickled, once at each of a few small shapes, on exact integers.

CuPy's memory pool is off and there are no guard bands, so each matrix is an allocation whose end the tool knows.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import cupy
import numpy as np

from worklog.gate import edge_shapes, family
from worklog.gpu.cuda import CudaDevice

SHAPES = 3  # the largest edge shapes only: the tools slow a kernel down a hundredfold


def main() -> None:
    """Launch the kernel. A fault ends the process; the tool has reported it by then."""
    kernel = pickle.loads(Path(sys.argv[1]).read_bytes())
    cupy.cuda.set_allocator(None)
    device, rng = CudaDevice(), np.random.default_rng(0)
    subject = kernel.load(device)
    for shape in edge_shapes(kernel.domain)[-SHAPES:]:
        a, b = (device.upload(matrix) for matrix in family("E1", shape, rng))
        c = device.upload(np.zeros((shape.m, shape.n), np.float32))
        subject.enqueue(shape, 1.0, a, b, 0.0, c)
        device.synchronize()


if __name__ == "__main__":
    main()
