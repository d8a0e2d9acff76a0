"""Each arithmetic instruction of the emulator's tests on the GPU and on the emulator, on the same operands."""

from __future__ import annotations

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


# Exact results just below the least normal number: with as many digits as the format has, and with more.
EDGES = {
    "f32": [(2.0**-126, 1 - 2.0**-24), (2.0**-126 * (1 + 2.0**-23), 1 - 2.0**-23), (-(2.0**-126), 1 - 2.0**-24)],
    "f16": [(2.0**-14, 1 - 2.0**-11), (2.0**-14 * (1 + 2.0**-10), 1 - 2.0**-10), (-(2.0**-14), 1 - 2.0**-11)],
}


@pytest.mark.parametrize(
    ("instruction", "third"),
    [
        (f"{name}.{type_} $d, $0, $1{end}", end)
        for type_ in EDGES
        for name, end in (("mul.ftz", ";"), ("fma.rn.ftz", ", $2;"))
    ],
)
def test_what_is_subnormal_before_it_is_rounded_is_flushed_as_on_the_gpu(instruction: str, third: str) -> None:
    type_ = instruction.split()[0].split(".")[-1]
    rows = [(*row, 0.0) if third != ";" else row for row in EDGES[type_]]
    columns = np.array(rows, f"f{int(type_[1:]) // 8}").T.copy().view(DTYPES[type_])
    there = on_gpu(ptx_of(instruction, type_, [type_] * len(columns)), type_, [np.resize(x, COUNT) for x in columns])
    here = evaluate(instruction, type_, [type_] * len(columns), [*zip(*columns, strict=True)])
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


@pytest.mark.xfail(strict=False, reason="not measured yet: whether .ftz looks at the product before it is rounded")
@pytest.mark.parametrize("digits", [24, 26, 11, 12])
def test_what_ftz_makes_of_a_product_just_below_the_least_normal_number(digits: int) -> None:
    """2^-126 (1 - 2^-digits) or, of f16, 2^-14 (1 - 2^-digits). An H200 makes 0 of the one with 11 digits."""
    type_, dtype, least = ("f32", "f4", 2.0**-126) if digits > 12 else ("f16", "f2", 2.0**-14)
    part = 2.0 ** -(digits // 2)
    factors = (1 - 2.0**-digits, least) if digits in (24, 11) else (1 - part, least * (1 + part))
    arrays = [np.full(COUNT, factor, dtype).view(DTYPES[type_]) for factor in factors]
    instruction, types = f"mul.ftz.{type_} $d, $0, $1;", (type_, type_)
    there = on_gpu(ptx_of(instruction, type_, types), type_, arrays)
    here = evaluate(instruction, type_, types, list(zip(*arrays, strict=True)))
    assert there[0] == here[0], f"{there[0]}, emulated {here[0]}"
