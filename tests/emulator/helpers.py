"""What the emulator's tests share.

Compile a rung or a snippet, launch it, small edits of a rung's source.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator import sanitized
from worklog.emulator import PtxKernel, Result, launch, load
from worklog.emulator.core import native
from worklog.kernel import Compiled
from worklog.kernel import Kernel as Record
from worklog.kernel.device import Program, Runnable
from worklog.kernel.ladder import rung
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem import Shape

if sanitized.VARIABLE in os.environ:
    native.library = cache(lambda: ctypes.CDLL(os.environ[sanitized.VARIABLE]))

HEAD = ".version 8.2\n.target sm_90\n.address_size 64\n"  # of PTX


@lru_cache(maxsize=64)
def compiled(source: str, entry: str, arch: str = "sm_90") -> PtxKernel:
    out = compile_cuda(Program("test.cu", source, entry), arch)
    return load(out.ptx, out.symbol, out.shared_accesses)


@lru_cache(maxsize=64)
def compile_rung(name: str, arch: str = "sm_90") -> Compiled:
    return compile_cuda(rung(name).program, arch)


def rung_kernel(name: str, arch: str = "sm_90") -> tuple[Record, PtxKernel, str]:
    out = compile_rung(name, arch)
    record = rung(name)
    return record, load(out.ptx, out.symbol, out.shared_accesses), record.source


def cuda(name: str) -> str:
    """Return a file of tests/emulator/kernels; its entry is k."""
    return (Path(__file__).parent / "kernels" / f"{name}.cu").read_text(encoding="utf-8")


def ptx(name: str) -> str:
    """PTX of a kernel k behind HEAD."""
    return (Path(__file__).parent / "kernels" / f"{name}.ptx").read_text(encoding="utf-8")


def kernel(body: str, parameters: str, before: str = "") -> str:
    """Source of a kernel k; the body starts in line 3."""
    return f'{before}\nextern "C" __global__ void k({parameters}) {{\n{body}\n}}\n'


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small whole numbers: every product and sum of them is exact in float32, in any order."""
    return rng.integers(-8, 9, shape).astype(np.float32)


def gemm(
    record: Record,
    kernel: PtxKernel,
    shape: tuple[int, int, int],
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray, Result]:
    """Run on whole numbers; (C from the kernel, the expected C, the result).

    With beta 0, C holds NaN before.
    """
    m, n, k = shape
    rng = np.random.default_rng(0)
    a = integers(rng, m, k)
    b = integers(rng, k, n)
    c = integers(rng, m, n) if beta else np.full((m, n), np.nan, np.float32)
    right = alpha * (a.astype(np.float64) @ b) + (beta * c.astype(np.float64) if beta else 0.0)
    result = launch(
        kernel,
        record.blocks(Shape(m, n, k)),
        record.threads,
        [m, n, k, alpha, a, b, beta, c],
        **options,
    )
    return c, right.astype(np.float32), result


def product(
    device: Any,
    subject: Runnable,
    a: Any,
    b: Any,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
) -> np.ndarray:
    """C of one launch on a device. c: what it holds before; None: NaN."""
    shape = Shape(a.shape[0], b.shape[1], a.shape[1])
    old = np.full((shape.m, shape.n), np.nan, np.float32) if c is None else c
    of_a, of_b, of_c = (device.upload(x) for x in (a, b, old))
    subject.enqueue(shape, alpha, of_a, of_b, beta, of_c)
    return device.download(of_c).reshape(shape.m, shape.n)


def run(
    source: str,
    arguments: Sequence[Any],
    *,
    entry: str = "k",
    grid: Any = (1,),
    block: Any = 32,
    **options: Any,
) -> Result:
    """Compile and launch a snippet."""
    return launch(compiled(source, entry), grid, block, arguments, source=source, **options)


def edited(source: str, old: str, new: str) -> tuple[str, int]:
    """Return the source with a text that occurs once replaced, and the number of its line."""
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
    return source.replace(old, new), source[: source.index(old)].count("\n") + 1


def smallest(record: Record, k_tiles: int = 4) -> tuple[int, int, int]:
    """Two blocks and a few tiles of K."""
    domain = record.domain
    tile = Shape(
        max(domain.m, record.template["BM"]), max(domain.n, record.template["BN"]), max(domain.k, 8)
    )
    return 2 * tile.m, tile.n, k_tiles * tile.k
