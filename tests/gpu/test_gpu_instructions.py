"""Instructions on the GPU and on the emulator, on the same operands.

Each arithmetic and tensor-core instruction of the emulator's tests, and whole kernels from the
same PTX.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.emulator.evaluate import ROWS, cases, evaluate, ptx_of, with_one_nan
from tests.emulator.launches import KERNELS, launched
from tests.emulator.tensor import TENSOR, results_of
from worklog.errors import CompileFailed
from worklog.gpu.device import gpu, gpu_reason

if gpu_reason() is None:
    import cupy

    from tests.gpu import same_ptx

APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp")


def on_gpu(
    text: str, results: Sequence[str], types: Sequence[str], columns: Sequence[np.ndarray]
) -> tuple[np.ndarray, None]:
    """As `evaluate`."""
    module = cupy.cuda.function.Module()
    threads = len(columns[0])
    module.load(ptx_of(text, results, types).encode())
    out = cupy.zeros((len(results), threads), np.uint64)
    module.get_function("k")(
        (1,), (threads,), (cupy.asarray(np.stack(columns).astype(np.uint64)), out)
    )
    return cupy.asnumpy(out), None


@pytest.fixture(autouse=True)
def hopper():
    if gpu().compute_capability != (9, 0):
        pytest.skip(
            f"the emulator has the arithmetic of sm_90; this GPU is {gpu().compute_capability}"
        )


@pytest.mark.parametrize("case", cases()[0], ids=str)
def test_an_instruction_gives_the_gpus_bits(case):
    """NaN counts as NaN, whatever its other bits."""
    columns = case.columns()
    there, here = (
        with_one_nan(device(case.text, [case.result], case.types, columns)[0][0], case.result)
        for device in (on_gpu, evaluate)
    )
    rows = np.flatnonzero(there != here)[:8]
    shown = [
        f"{[hex(column[k]) for column in columns]}: {there[k]:#x}, emulated {here[k]:#x}"
        for k in rows
    ]
    assert not shown, "\n".join(shown)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_an_approximation_is_near_the_emulators_nearest_float(name):
    """The bound is loose on purpose.

    It is a GPU's own, and what the finding says is only that bits may differ.
    """
    values = np.random.default_rng(3).uniform(0.01, 3.0, ROWS).astype(np.float32)
    given = f"{name}.approx.f32 $d, $0;", ["f32"], ["f32"], [values.view(np.uint32)]
    there, here = (
        device(*given)[0].astype(np.uint32).view(np.float32) for device in (on_gpu, evaluate)
    )
    error = np.abs(there.astype(np.float64) - here)
    bound = 2.0**-10 if name == "tanh" else 2.0**-20
    assert (error <= bound * np.maximum(np.abs(here), 1)).all(), float(error.max())
    print(
        f"{name}.approx: {int((there != here).sum())} of {ROWS} differ, by at most "
        f"{error.max():.3g}"
    )


@pytest.mark.parametrize(
    ("case", "kind"), [(case, kind) for case in TENSOR for kind in case.kinds], ids=str
)
def test_a_tensor_core_gives_the_emulators_bits(case, kind):
    """Every bit, that of NaN and of -0 too."""
    for launch in case.launches(kind, rounds=8):
        (there, _), (here, _) = (results_of(launch, device) for device in (on_gpu, evaluate))
        differing = np.argwhere(there != here)
        shown = "".join(
            f"\n{there[r, lane]:08x}, emulated {here[r, lane]:08x}" for r, lane in differing[:8]
        )
        assert not len(differing), f"{len(differing)} of {there.size} registers differ:{shown}"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(
            (name, "")
            for name in ("mma_tf32", "mma_f16", "wmma", "wmma_types", "wgmma_tf32 uniform")
        ),
        ("mma_tf32", ("#define PARTS 1", "#define PARTS 3")),
    ],
)
def test_a_kernel_gives_the_gpus_bits(name, change):
    try:
        emulated, _, source = launched(name, change, arch=same_ptx.architecture())
    except CompileFailed as error:
        if "cannot open source file" not in str(error):
            raise
        pytest.skip(f"without the wheels of [headers]: {error.args[0].splitlines()[0]}")
    given = KERNELS[name]
    for here, there in zip(
        emulated,
        same_ptx.launched(source, given.arguments, given.grid, (given.block,)),
        strict=True,
    ):
        if isinstance(here, np.ndarray):
            bits = f"u{here.itemsize}"
            np.testing.assert_array_equal(here.view(bits), there.view(bits))
