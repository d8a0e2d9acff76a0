"""Tensor-core instructions on the GPU and on the emulator: random bit patterns, and whole kernels from the same PTX.

The rule is in worklog/emulator/tensor.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.evaluate import evaluate
from tests.emulator.launches import KERNELS, launched
from tests.emulator.tensor_reference import KINDS, MMAS, Mma, random_words
from tests.emulator.test_tensor import kinds
from tests.emulator.wgmma_reference import CASES, Case, wgmma
from tests.gpu.test_gpu_instructions import on_gpu
from worklog.errors import CompileFailed
from worklog.gpu.device import gpu, gpu_reason

if gpu_reason() is None:
    from tests.gpu import same_ptx

LANES, ROUNDS = 1024, 8


@pytest.fixture(autouse=True)
def hopper() -> None:
    if gpu().compute_capability != (9, 0):
        pytest.skip(f"the emulator has the arithmetic of sm_90; this GPU is {gpu().compute_capability}")


def compare(text: str, registers: np.ndarray, results: int, type_: str = "b32") -> None:
    """Every bit, that of NaN and of -0 too."""
    types = [type_] * len(registers)
    there, (here, _) = (device(text, types[:results], types, registers) for device in (on_gpu, evaluate))
    differing = np.argwhere(there != here)
    shown = "".join(f"\n{there[r, lane]:08x}, emulated {here[r, lane]:08x}" for r, lane in differing[:8])
    assert not len(differing), f"{len(differing)} of {there.size} registers differ:{shown}"


@pytest.mark.parametrize(("case", "kind"), [(case, kind) for case in MMAS for kind in kinds(case)], ids=str)
def test_an_mma_gives_the_gpus_bits(case: Mma, kind: str) -> None:
    rng = np.random.default_rng(11)
    for _ in range(ROUNDS):
        warps = [case.registers(*case.operands(rng, kind)) for _ in range(LANES // 32)]
        compare(case.text(), np.concatenate(warps, axis=1), case.counts[2], f"b{case.word}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_wgmma_gives_the_gpus_bits(case: Case, kind: str) -> None:
    rng = np.random.default_rng(12)
    for scaled in (True, False):
        matrices = [random_words(rng, t, shape, kind) for t, shape in zip(case.types, case.shapes, strict=True)]
        compare(*wgmma(case, *matrices, scaled))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, "") for name in ("mma_tf32", "mma_f16", "wmma", "wmma_types", "wgmma_tf32 uniform")),
        ("mma_tf32", ("#define PARTS 1", "#define PARTS 3")),
    ],
)
def test_a_kernel_gives_the_gpus_bits(name: str, change: str | tuple[str, str]) -> None:
    try:
        here, _, source = launched(name, change, arch=same_ptx.architecture())
    except CompileFailed as error:
        if "cannot open source file" not in str(error):
            raise
        pytest.skip(f"without the wheels of [headers]: {error.args[0].splitlines()[0]}")
    one = KERNELS[name]
    there = same_ptx.launched(source, one.arguments, one.grid, (one.block,))
    for mine, theirs in zip(here, there, strict=True):
        if isinstance(mine, np.ndarray):
            bits = f"u{mine.itemsize}"
            np.testing.assert_array_equal(mine.view(bits), theirs.view(bits))
