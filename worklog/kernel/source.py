"""CUDA source text: where the ladder's files are, and which kernels a text defines."""

from __future__ import annotations

import re
from pathlib import Path

from worklog.errors import WorklogError


def kernels_dir() -> Path:
    """The folder of the ladder's .cu files: in an installed package, else in the checkout."""
    packaged = Path(__file__).parents[1] / "_kernels"
    folder = packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "kernels"
    if not folder.is_dir():
        raise WorklogError(
            f"the kernels are missing: neither {packaged} nor {folder} exists; install gemm-worklog again"
        )
    return folder


def kernel_names(source: str) -> list[str]:
    """Names of the __global__ functions that a source defines, in order."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    bare = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", " ", bare)
    return list(dict.fromkeys(re.findall(r"__global__\s+(?:\w+\s+)*?void\s+(\w+)\s*\(", bare)))
