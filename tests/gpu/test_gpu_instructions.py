"""Each arithmetic instruction on the GPU and on the emulator, on the same operands: random bits, and those that go
wrong.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.emulator.evaluate import DTYPES, evaluate, ptx_of
from worklog.gpu.device import gpu, gpu_reason

if gpu_reason() is None:
    import cupy

COUNT = 1024
FLOAT_EDGES = [0.0, 1.0, 0.5, 1.5, 2.5, 2.0**-126, 2.0**-149, 2.0**-150, 65504.0, 65520.0, 3.4e38, math.inf, math.nan]


def saturations(source: str, target: str) -> tuple[str, ...]:
    """ptxas takes .sat only where the target does not hold every value of the source."""
    have, want = np.iinfo(DTYPES[source]), np.iinfo(DTYPES[target])
    return ("",) if want.min <= have.min and have.max <= want.max else ("", ".sat")


def forms() -> list[tuple[str, str, tuple[str, ...]]]:
    """(instruction, type of the result, types of the operands)."""
    out: list[tuple[str, str, tuple[str, ...]]] = []
    for type_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
        two = (type_, type_)
        names = ("add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem")
        out += [(f"{name}.{type_} $d, $0, $1;", type_, two) for name in names]
        out += [(f"sad.{type_} $d, $0, $1, $2;", type_, (type_,) * 3)]
        out += [(f"setp.{name}.{type_} $d, $0, $1;", "pred", two) for name in ("eq", "ne", "lt", "le", "gt", "ge")]
        out += [
            (f"shr.{type_} $d, $0, $1;", type_, (type_, "u32")),
            (f"slct.{type_}.s32 $d, $0, $1, $2;", type_, (*two, "s32")),
        ]
        for target in ("u16", "s16", "u32", "s32", "u64", "s64"):
            out += [(f"cvt{sat}.{target}.{type_} $d, $0;", target, (type_,)) for sat in saturations(type_, target)]
        out += [(f"cvt.rn.{target}.{type_} $d, $0;", target, (type_,)) for target in ("f32", "f64")]
    for type_ in ("u32", "s32", "u64", "s64"):
        held = type_.replace("s", "u")
        out += [(f"bfe.{type_} $d, $0, $1, $2;", type_, (type_, "u32", "u32"))]
        out += [(f"bfind{shift}.{type_} $d, $0;", "u32", (type_,)) for shift in ("", ".shiftamt")]
        for plus in ("add", "sub"):
            chain = f"{plus}.cc.{type_} $d, $0, $2; {plus}c.cc.{type_} $d, $1, $3; {plus}c.{type_} $d, 5, 0;"
            out.append((chain, held, (held,) * 4))
    for bits in (32, 64):
        u = f"u{bits}"
        out += [(f"{name}.b{bits} $d, $0;", "u32", (u,)) for name in ("popc", "clz")]
        out += [(f"brev.b{bits} $d, $0;", u, (u,)), (f"bfi.b{bits} $d, $0, $1, $2, $3;", u, (u, u, "u32", "u32"))]
    out += [
        (f"shf.{side}.{how}.b32 $d, $0, $1, $2;", "u32", ("u32",) * 3) for side in "lr" for how in ("wrap", "clamp")
    ]
    out += [("prmt.b32 $d, $0, $1, $2;", "u32", ("u32",) * 3), ("lop3.b32 $d, $0, $1, $2, 0xe8;", "u32", ("u32",) * 3)]
    out += [
        (
            f"dp4a.{a}.{b} $d, $0, $1, $2;",
            "s32" if "s32" in (a, b) else "u32",
            (a, b, "s32" if "s32" in (a, b) else "u32"),
        )
        for a in ("u32", "s32")
        for b in ("u32", "s32")
    ]
    for type_ in ("f32", "f64"):
        two = (type_, type_)
        out += [(f"{name}.{type_} $d, $0, $1;", type_, two) for name in ("add", "sub", "mul", "div.rn", "min", "max")]
        out += [(f"{name}.{type_} $d, $0;", type_, (type_,)) for name in ("sqrt.rn", "rcp.rn", "abs", "neg")]
        out += [(f"fma.rn.{type_} $d, $0, $1, $2;", type_, (type_,) * 3)]
        out += [(f"setp.{name}.{type_} $d, $0, $1;", "pred", two) for name in ("eq", "ltu", "ge", "nan", "num")]
        for target in ("u16", "s16", "u32", "s32", "u64", "s64"):
            out += [(f"cvt.{how}.{target}.{type_} $d, $0;", target, (type_,)) for how in ("rni", "rzi", "rmi", "rpi")]
    for mode in ("rz", "rm", "rp"):
        out += [(f"{name}.{mode}.f32 $d, $0, $1;", "f32", ("f32",) * 2) for name in ("add", "sub", "mul")]
        out += [(f"fma.{mode}.f32 $d, $0, $1, $2;", "f32", ("f32",) * 3)]
    out += [(f"{name}.NaN.f32 $d, $0, $1;", "f32", ("f32",) * 2) for name in ("min", "max")]
    out += [("fma.rn.ftz.f32 $d, $0, $1, $2;", "f32", ("f32",) * 3), ("add.sat.f32 $d, $0, $1;", "f32", ("f32",) * 2)]
    out += [("slct.f32.f32 $d, $0, $1, $2;", "f32", ("f32",) * 3), ("cvt.rn.f32.f64 $d, $0;", "f32", ("f64",))]
    for half in ("f16", "bf16"):
        out += [(f"cvt.rn.{half}.f32 $d, $0;", "u16", ("f32",)), (f"cvt.f32.{half} $d, $0;", "f32", ("u16",))]
        out += [(f"cvt.rn.{half}x2.f32 $d, $0, $1;", "u32", ("f32",) * 2)]
    return out


APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp")


def operands(types: tuple[str, ...], seed: int) -> list[np.ndarray]:
    """Random bit patterns; small numbers and edges among them."""
    rng, out = np.random.default_rng(seed), []
    for type_ in types:
        dtype = np.dtype(DTYPES[type_])
        values = np.frombuffer(rng.bytes(COUNT * dtype.itemsize), dtype).copy()
        if dtype.kind == "f":
            edges = np.array([*FLOAT_EDGES, *(-x for x in FLOAT_EDGES)], dtype)
            near = rng.standard_normal(COUNT // 4).astype(dtype) * dtype.type(2.0) ** rng.integers(-3, 4, COUNT // 4)
        else:
            info = np.iinfo(dtype)
            edges = np.array([info.min, info.max, info.max // 2, 0, 1, 2], dtype)
            near = rng.integers(0 if dtype.kind == "u" else -70, 70, COUNT // 4).astype(dtype)
        values[: COUNT // 4] = near
        values[COUNT // 4 : COUNT // 2] = rng.choice(edges, COUNT // 4)
        out.append(rng.permutation(values))
    return out


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


@pytest.mark.parametrize(("instruction", "result", "types"), forms(), ids=[form[0] for form in forms()])
def test_an_instruction_gives_the_gpus_bits(instruction: str, result: str, types: tuple[str, ...]) -> None:
    """NaN counts as NaN, whatever its other bits."""
    text, arrays = ptx_of(instruction, result, types), operands(types, 7)
    there, here = on_gpu(text, result, arrays), evaluate(instruction, result, types, list(zip(*arrays, strict=True)))
    same = there.view(f"u{there.itemsize}") == here.view(f"u{here.itemsize}")
    if there.dtype.kind == "f":
        same |= np.isnan(there) & np.isnan(here)
    first = int((~same).argmax())
    assert same.all(), (
        f"{(~same).sum()} differ: {[x[first] for x in arrays]} gives {there[first]}, emulated {here[first]}"
    )


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
