"""Products of libraries as host functions, to compare kernels with: `worklog run RUNG --against torch,cublaslt`.

Each is gated like a user's. Libraries are imported in the child process that measures.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.kernel import Kernel
from worklog.kernel.solution import nvcc

ARRAYS = "torch"
NAMES = ("torch", "cublaslt")
CUTLASS = "cutlass_simt"
HEADER = "cutlass/gemm/device/gemm.h"


def libraries() -> dict[str, Kernel]:
    """A record of each library's product, by name."""
    return {name: Kernel.from_function(f"{__name__}:{name}") for name in NAMES}


def cutlass_simt() -> Kernel:
    """CUTLASS's SGEMM on CUDA cores, compiled with nvcc for this GPU. Its headers are those of CUTLASS_PATH, a
    checkout, or of the package nvidia-cutlass. Raises BadSetting without nvcc or the headers, and CompileFailed.
    """
    spec = find_spec("cutlass_library")
    packaged = [Path(spec.origin).parent / "source"] if spec is not None and spec.origin else []
    roots = [Path(os.environ.get("CUTLASS_PATH", "")), *packaged]
    folders = [root / "include" for root in roots if (root / "include" / HEADER).is_file()]
    if not folders:
        raise BadSetting(f"{CUTLASS} needs CUTLASS's headers: pip install nvidia-cutlass, or set CUTLASS_PATH")
    if not shutil.which("nvcc"):
        raise BadSetting(f"{CUTLASS} needs nvcc, which isn't on PATH: install the CUDA toolkit")
    source = Path(__file__).with_name(f"{CUTLASS}.cu")
    library = Path(tempfile.mkdtemp(prefix="worklog-")) / f"{CUTLASS}.so"
    nvcc(source, library, "-arch=native", "-w", f"-I{folders[0]}")
    return Kernel.from_function(f"{library}:{CUTLASS}", name=CUTLASS)


def torch(alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
    """PyTorch's product with its own choice of library, without TF32."""
    _product("default", alpha, a, b, beta, c)


def cublaslt(alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
    """The product by cuBLASLt, whose heuristics choose the kernel, as PyTorch calls it, without TF32."""
    _product("cublaslt", alpha, a, b, beta, c)


def _product(library: str, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.preferred_blas_library(library)
    torch.addmm(c, a, b, beta=beta, alpha=alpha, out=c)
