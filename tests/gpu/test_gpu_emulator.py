"""The emulator against the GPU: the same PTX on the same data leaves the same bits, for every rung."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from worklog.emulator import launch
from worklog.emulator import load as emulated
from worklog.gpu.device import gpu_reason
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Shape

if gpu_reason() is None:
    from tests.gpu import same_ptx

NAMES = [r.name for r in LADDER]
SCALARS = [(1.0, 0.0), (1.5, -0.75)]


def shapes(record: Kernel) -> list[Shape]:
    """A square, and one whose sides all differ: ragged where the rung takes that."""
    return [Shape.of(256), Shape(384, 512, 160) if record.rules != "any" else Shape(333, 190, 77)]


@pytest.fixture(scope="module")
def device() -> Iterator[object]:
    yield same_ptx.CudaDevice()


@pytest.mark.parametrize("image", ["cubin", "ptx"])
@pytest.mark.parametrize("which", [0, 1], ids=["square", "oblong"])
@pytest.mark.parametrize("name", NAMES)
def test_every_bit_is_the_gpus(device: same_ptx.CudaDevice, name: str, which: int, image: str) -> None:
    """image: the cubin that NVRTC's assembler made of the PTX, or the driver's own of it."""
    record, out = rung(name), same_ptx.compiled(rung(name), same_ptx.architecture())
    try:
        on_gpu = same_ptx.load(out, out.cubin if image == "cubin" else out.ptx.encode())
    except same_ptx.cupy.cuda.driver.CUDADriverError as error:
        if image == "ptx" and same_ptx.is_too_new(error):
            pytest.skip("NVRTC is newer than the driver, which does not assemble its PTX")
        raise
    shape = shapes(record)[which]
    for seed, (alpha, beta) in enumerate(SCALARS):
        a, b, c = same_ptx.matrices(shape, seed)
        there = same_ptx.run_on_gpu(device, record, on_gpu, shape, alpha, beta, (a, b, c))
        result = launch(
            emulated(out.ptx, out.symbol, out.shared_accesses),
            record.blocks(shape),
            record.threads,
            same_ptx.arguments(shape, alpha, beta, (a, b, c)),
            exact=True,
            source=record.source,
        )
        assert result.findings == ()
        differing = int((there.view(np.uint32) != c.view(np.uint32)).sum())
        assert differing == 0, f"{differing} of {c.size} elements differ with alpha = {alpha}, beta = {beta}"
