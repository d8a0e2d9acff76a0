"""The process that compute-sanitizer inspects (worklog.bench.sanitizer): it launches the kernel of a JSON file once at
each of a few small shapes, on exact integers.

CuPy's memory pool is off and there are no guard bands, so each matrix is an allocation whose end the tool knows.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import cupy
import numpy as np

from worklog.gate.exact import family
from worklog.gate.shapes import edge_shapes
from worklog.gpu.cuda import CudaDevice
from worklog.gpu.device import gpu
from worklog.kernel import Kernel
from worklog.kernel.device import Device, Program
from worklog.kernel.nvrtc import compile_cuda

SHAPES = 3  # the largest edge shapes only: the tools slow a kernel down a hundredfold


class WithLines:
    """A GPU whose kernels have line numbers: compiled from the caller's file name, unlike CuPy's own compilation."""

    def __init__(self) -> None:
        self._device = CudaDevice()
        self.source = self._device.source

    def compile(self, program: Program) -> SimpleNamespace:
        """As worklog.gpu.cuda.CudaDevice.compile, with only what a launch needs."""
        arch = "sm_" + "".join(map(str, gpu().compute_capability))
        built = compile_cuda(program.source, program.entry, name=program.name, arch=arch, options=program.options)
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "kernel.cubin"
            cubin.write_bytes(built.cubin)
            return SimpleNamespace(function=cupy.RawModule(path=str(cubin)).get_function(built.symbol))

    def __getattr__(self, name: str) -> object:
        return getattr(self._device, name)


def main() -> None:
    """Launch the kernel. A fault ends the process; the tool has reported it by then."""
    kernel = Kernel.from_dict(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    cupy.cuda.set_allocator(None)
    device: Device = WithLines()  # type: ignore[assignment]
    subject, rng = kernel.load(device), np.random.default_rng(0)
    for shape in edge_shapes(kernel.domain)[-SHAPES:]:
        a, b = (device.upload(matrix) for matrix in family("E1", shape, rng))
        c = device.upload(np.zeros((shape.m, shape.n), np.float32))
        subject.enqueue(shape, 1.0, a, b, 0.0, c)
        device.synchronize()


if __name__ == "__main__":
    main()
