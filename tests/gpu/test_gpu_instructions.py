"""Each arithmetic instruction of the emulator's tests on the GPU and on the emulator, on the same operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator import reference as ref
from tests.emulator import test_floats, test_halves, test_integers
from tests.emulator.evaluate import DTYPES, INTEGER_TYPES, TYPES, Case, evaluate, operands, ptx_of
from worklog.gpu.device import gpu, gpu_reason

if gpu_reason() is None:
    import cupy

COUNT = 1024
APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp")


def has_the_gpus_bits(case: Case) -> bool:
    """Not for an approximation, and not for what ptxas rejects for sm_90: three operands of min and max, and .sat where
    the target holds every value of the source.
    """
    text, _, kinds, _ = case
    if text.startswith("cvt.sat.") and text.split()[0].split(".")[3] in INTEGER_TYPES:
        target, source = (np.iinfo(DTYPES[word]) for word in text.split()[0].split(".")[2:])
        return bool(source.min < target.min or source.max > target.max)
    return not ((text.startswith(("min.", "max.")) and len(kinds) == 3) or text.startswith(("div.approx", "div.full")))


FORMS: list[tuple[str, str, tuple[str, ...]]] = [
    *(case[:3] for case in (*test_integers.CASES, *test_floats.CASES, *test_halves.CASES) if has_the_gpus_bits(case)),
    *((f"setp.num.{type_} $d, $0, $1;", "pred", (type_, type_)) for type_ in ("f32", "f64")),
    *((f"cvt.f32.{half} $d, $0;", "f32", ("u16",)) for half in ("f16", "bf16")),
]


def on_gpu(text: str, result: str, arrays: list[np.ndarray]) -> np.ndarray:
    module = cupy.cuda.function.Module()
    module.load(text.encode())
    out = cupy.zeros(COUNT, DTYPES[result])
    module.get_function("k")((1,), (COUNT,), (*(cupy.asarray(array) for array in arrays), out))
    return cupy.asnumpy(out)


@pytest.fixture(autouse=True)
def hopper() -> None:
    if gpu().compute_capability < (9, 0):
        pytest.skip(f"the PTX of these tests is for sm_90 and later; this GPU is {gpu().compute_capability}")


@pytest.mark.parametrize(
    ("instruction", "result", "kinds"), FORMS, ids=[f"{form[0]} {' '.join(form[2])}" for form in FORMS]
)
def test_an_instruction_gives_the_gpus_bits(instruction: str, result: str, kinds: tuple[str, ...]) -> None:
    """NaN counts as NaN, whatever its other bits."""
    rng = np.random.default_rng(7)
    types, columns = [TYPES.get(kind, kind) for kind in kinds], [operands(kind, COUNT, rng) for kind in kinds]
    arrays = [np.array(column, DTYPES[type_]) for column, type_ in zip(columns, types, strict=True)]
    there = on_gpu(ptx_of(instruction, result, types), result, arrays)
    here = evaluate(instruction, result, types, list(zip(*arrays, strict=True)))
    same = there.view(f"u{there.itemsize}") == here.view(f"u{here.itemsize}")
    if there.dtype.kind == "f":
        same |= np.isnan(there) & np.isnan(here)
    elif "f16" in result:
        same |= [ref.sixteens(x, result) == ref.sixteens(y, result) for x, y in zip(there, here, strict=True)]
    first = int((~same).argmax())
    assert same.all(), (
        f"{(~same).sum()} differ: {[x[first] for x in arrays]} gives {there[first]}, emulated {here[first]}"
    )


@pytest.mark.parametrize("case", test_floats.NEAR_LEAST, ids=[case[0] for case in test_floats.NEAR_LEAST])
def test_results_just_below_the_least_normal_number_are_flushed_as_on_the_gpu(case: Any) -> None:
    instruction, types, result, rows, _ = case
    values = test_floats.held(rows, types)
    columns = [np.array(column, DTYPES[type_]) for column, type_ in zip(zip(*values, strict=True), types, strict=True)]
    there = on_gpu(ptx_of(instruction, result, types), result, [np.resize(column, COUNT) for column in columns])
    here = evaluate(instruction, result, types, values)
    bits = f"u{here.itemsize}"
    assert there[: len(rows)].view(bits).tolist() == here.view(bits).tolist(), rows


@pytest.mark.parametrize("name", APPROXIMATE)
def test_an_approximation_is_near_the_emulators_nearest_float(name: str) -> None:
    """The bound is loose on purpose: it is a GPU's own, and what the finding says is only that bits may differ."""
    values = np.random.default_rng(3).uniform(0.01, 3.0, COUNT).astype(np.float32)
    instruction = f"{name}.approx.f32 $d, $0;"
    there = on_gpu(ptx_of(instruction, "f32", ("f32",)), "f32", [values])
    here = evaluate(instruction, "f32", ["f32"], [(value,) for value in values])
    error = np.abs(there.astype(np.float64) - here)
    bound = 2.0**-10 if name == "tanh" else 2.0**-20
    assert (error <= bound * np.maximum(np.abs(here), 1)).all(), float(error.max())
    print(f"{name}.approx: {int((there != here).sum())} of {COUNT} differ, by at most {error.max():.3g}")
