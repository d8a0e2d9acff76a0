"""Each arithmetic instruction of the emulator's tests on the GPU and on the emulator, on the same operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.emulator import test_floats, test_integers
from tests.emulator.evaluate import KINDS, Case, evaluate, numerals, op, operands, ptx_of
from tests.emulator.reference import limits
from worklog.gpu.device import gpu, gpu_reason

if gpu_reason() is None:
    import cupy

COUNT = 1024
APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp")


def has_the_gpus_bits(case: Case) -> bool:
    """Not for an approximation, and not for what ptxas rejects for sm_90: three operands of min and max, and .sat where
    the target holds every value of the source.
    """
    words = case.text.split()[0].split(".")
    if words[:2] == ["cvt", "sat"] and words[3] in test_integers.INTEGER_TYPES:
        (low, high), (least, greatest) = limits(words[2]), limits(words[3])
        return least < low or greatest > high
    return not (
        (words[0] in ("min", "max") and len(case.kinds) == 3) or words[:2] in (["div", "approx"], ["div", "full"])
    )


FORMS = [
    *(case for case in (*test_integers.CASES, *test_floats.CASES) if has_the_gpus_bits(case)),
    *(op(f"setp.num.{type_}", "pred", f"{type_} {type_}", bool) for type_ in ("f32", "f64")),
    *(op(f"cvt.f32.{half}", "f32", "u16", float) for half in ("f16", "bf16")),
]


def on_gpu(text: str, results: Sequence[str], types: Sequence[str], columns: Sequence[np.ndarray]) -> np.ndarray:
    """As `evaluate`."""
    module, threads = cupy.cuda.function.Module(), len(columns[0])
    module.load(ptx_of(text, results, types).encode())
    out = cupy.zeros((len(results), threads), np.uint64)
    module.get_function("k")((1,), (threads,), (cupy.asarray(np.stack(columns).astype(np.uint64)), out))
    return cupy.asnumpy(out)


@pytest.fixture(autouse=True)
def hopper() -> None:
    if gpu().compute_capability < (9, 0):
        pytest.skip(f"the PTX of these tests is for sm_90 and later; this GPU is {gpu().compute_capability}")


@pytest.mark.parametrize("case", FORMS, ids=str)
def test_an_instruction_gives_the_gpus_bits(case: Case) -> None:
    """NaN counts as NaN, whatever its other bits."""
    rng = np.random.default_rng(7)
    compare(case, [operands(kind, COUNT, rng) for kind in case.kinds])


@pytest.mark.parametrize(("case", "columns"), test_floats.NEAR_LEAST, ids=[c.text for c, _ in test_floats.NEAR_LEAST])
def test_results_just_below_the_least_normal_number_are_flushed_as_on_the_gpu(
    case: Case, columns: list[np.ndarray]
) -> None:
    compare(case, columns)


def compare(case: Case, columns: list[np.ndarray]) -> None:
    given = case.text, [case.result], [KINDS.get(kind, kind) for kind in case.kinds], columns
    (there,), ((here,), _) = on_gpu(*given), evaluate(*given)
    for x, y, *row in zip(there.tolist(), here.tolist(), *(column.tolist() for column in columns), strict=True):
        same = numerals(x, case.result) == numerals(y, case.result)
        assert same, f"{[*map(hex, row)]} gives {x:#x}, emulated {y:#x}"


@pytest.mark.parametrize("name", APPROXIMATE)
def test_an_approximation_is_near_the_emulators_nearest_float(name: str) -> None:
    """The bound is loose on purpose: it is a GPU's own, and what the finding says is only that bits may differ."""
    values = np.random.default_rng(3).uniform(0.01, 3.0, COUNT).astype(np.float32)
    given = f"{name}.approx.f32 $d, $0;", ["f32"], ["f32"], [values.view(np.uint32)]
    there, here = (out.astype(np.uint32).view(np.float32) for out in (on_gpu(*given), evaluate(*given)[0]))
    error = np.abs(there.astype(np.float64) - here)
    bound = 2.0**-10 if name == "tanh" else 2.0**-20
    assert (error <= bound * np.maximum(np.abs(here), 1)).all(), float(error.max())
    print(f"{name}.approx: {int((there != here).sum())} of {COUNT} differ, by at most {error.max():.3g}")
