"""One compilation for both machines.

What the emulator interprets is the PTX that the GPU's code was assembled from.

CuPy would compile the source once more, and two compilers may contract alpha * acc + beta * c
differently; then the last bits differ for a reason that is not the emulator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from worklog.emulator.limits import LIMITS
from worklog.gpu.cuda import CudaKernel
from worklog.gpu.device import gpu
from worklog.kernel.device import Program


def architecture() -> str:
    """Return this GPU's architecture, as NVRTC names it."""
    arch = "sm_{}{}".format(*gpu().compute_capability)
    assert arch in LIMITS, f"{gpu().name} is {arch}, which the package does not compile for"
    return arch


def launched(
    source: str, arguments: Sequence[Any], grid: Any = (1,), block: Any = (32,), shared: int = 0
) -> list[Any]:
    """Return the arguments after a launch of a source's kernel k, arrays as NumPy's."""
    own = [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
    kernel = CudaKernel(Program("k.cu", source, "k"), architecture())
    kernel.launch(grid, block, tuple(own), shared_mem=shared)
    return [cupy.asnumpy(x) if isinstance(x, cupy.ndarray) else x for x in own]
