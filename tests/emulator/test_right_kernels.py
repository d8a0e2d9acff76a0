"""Correct kernels in common styles: right results and no findings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.helpers import integers
from worklog.emulator import launch, load
from worklog.kernel.nvrtc import compile_cuda

KERNELS = sorted((Path(__file__).parent / "kernels" / "right").glob("*.cu"))


@pytest.mark.parametrize(
    ("file", "arch"),
    [(file, arch) for k, file in enumerate(KERNELS) for arch in ("sm_90", ("sm_80", "sm_120")[k % 2])],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_right_kernel_is_right_and_clean(file: Path, arch: str) -> None:
    out = compile_cuda(file.read_text(), "k", arch=arch)
    kernel = load(out.ptx, out.symbol, out.shared_accesses)
    m, n, k = 32, 48, 96
    rng = np.random.default_rng(0)
    a, b, c = integers(rng, m, k), integers(rng, k, n), np.zeros((m, n), np.float32)
    dynamic = 2048 if "dynamic" in file.stem else 0
    result = launch(kernel, (n // 16, m // 16), (16, 16), [m, n, k, a, b, c], shared_bytes=dynamic)
    np.testing.assert_array_equal(c, a @ b)
    assert result.findings == ()
    assert kernel.assembled
