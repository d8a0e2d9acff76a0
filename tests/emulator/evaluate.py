"""One PTX instruction on many operands, as the emulator runs it, and strategies for difficult operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from tests.emulator import reference as ref
from worklog.emulator import launch, load

DTYPES = {
    "u16": "u2", "s16": "i2", "b16": "u2", "u32": "u4", "s32": "i4", "b32": "u4", "u64": "u8", "s64": "i8", "b64": "u8",
    "f32": "f4", "f64": "f8", "pred": "u4",
}  # fmt: skip
INTEGER_TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
SETTINGS = settings(max_examples=25, deadline=None)


def evaluate(instruction: str, result: str, operands: Sequence[str], values: Sequence[Sequence[Any]]) -> np.ndarray:
    """The results of `instruction`: $d is the destination, $0, $1 … the operands; values: a row an element."""
    arrays = [np.array([row[k] for row in values], DTYPES[type_]) for k, type_ in enumerate(operands)]
    return evaluate_arrays(instruction, result, operands, arrays)


def evaluate_arrays(instruction: str, result: str, operands: Sequence[str], arrays: Sequence[np.ndarray]) -> np.ndarray:
    out = np.zeros(len(arrays[0]), DTYPES[result])
    launch(load(ptx_of(instruction, result, tuple(operands)), "k"), (1,), len(out), [*arrays, out], races=False)
    return out


def ptx_of(instruction: str, result: str, operands: tuple[str, ...]) -> str:
    kinds = {
        name: name.replace("s", "b").replace("u", "b") if name[0] in "su" else name for name in (*operands, result)
    }
    registers = [f".reg .{kinds[type_]} %v{k}_;" for k, type_ in enumerate(operands) if type_ != "pred"]
    registers += [f".reg .pred %v{k}_; .reg .b32 %q{k}_;" for k, type_ in enumerate(operands) if type_ == "pred"]
    registers.append(f".reg .{kinds[result]} %d_;" if result != "pred" else ".reg .pred %d_; .reg .b32 %dq_;")
    loads, text = [], instruction.replace("$d", "%d_")
    for k, type_ in enumerate(operands):
        size = np.dtype(DTYPES[type_]).itemsize
        held = f"%q{k}_" if type_ == "pred" else f"%v{k}_"
        stored = "b32" if type_ == "pred" else type_
        loads.append(
            f"ld.param.u64 %rd1, [p{k}]; mad.wide.u32 %rd2, %r1, {size}, %rd1; ld.global.{stored} {held}, [%rd2];"
        )
        if type_ == "pred":
            loads.append(f"setp.ne.u32 %v{k}_, {held}, 0;")
        text = text.replace(f"${k}", f"%v{k}_")
    if result == "pred":
        text += " selp.u32 %dq_, 1, 0, %d_;"
    stored = "b32" if result == "pred" else result
    size = np.dtype(DTYPES[result]).itemsize
    params = ", ".join(f".param .u64 p{k}" for k in range(len(operands) + 1))
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k({params}) {{
.reg .b32 %r<3>; .reg .b64 %rd<5>; {" ".join(registers)}
mov.u32 %r1, %tid.x;
{" ".join(loads)}
{text}
ld.param.u64 %rd3, [p{len(operands)}];
mad.wide.u32 %rd4, %r1, {size}, %rd3;
st.global.{stored} [%rd4], {"%dq_" if result == "pred" else "%d_"};
ret;
}}
"""


def integers(type_: str) -> st.SearchStrategy[int]:
    bits = int(type_[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type_[0] == "s" else (0, 2**bits - 1)
    edges = [value for value in (low, low + 1, -1, 0, 1, 2, high - 1, high, high // 2) if low <= value <= high]
    return st.one_of(st.integers(low, high), st.sampled_from(edges), st.integers(max(low, -70), 70))


def floats(type_: str) -> st.SearchStrategy[float]:
    """All bit patterns, with more difficult ones: specials, subnormals, few digits, near equal exponents."""
    bits = int(type_[1:])
    mantissa = 23 if bits == 32 else 52
    bias = 127 if bits == 32 else 1023
    near = st.builds(
        lambda sign, e, m: ref.from_bits(sign << (bits - 1) | (bias + e) << mantissa | m, type_),
        st.integers(0, 1),
        st.integers(-4, 4),
        st.one_of(
            st.integers(0, 2**mantissa - 1), st.builds(lambda k: 1 << k, st.integers(0, mantissa - 1)), st.just(0)
        ),
    )
    anything = st.integers(0, 2**bits - 1).map(lambda b: ref.from_bits(b, type_))
    tiny = st.integers(0, 2 ** (mantissa + 3)).map(lambda b: ref.from_bits(b, type_))
    special = st.sampled_from(
        [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.0**-75, 2.0**-74, -(2.0**-76)]
    )
    return st.one_of(near, anything, tiny, special)


def rows(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*strategies), min_size=1, max_size=40)


def assert_same_floats(got: np.ndarray, wanted: Sequence[float], type_: str, values: Sequence[Any]) -> None:
    for g, w, row in zip(got.tolist(), wanted, values, strict=True):
        same = math.isnan(g) if math.isnan(w) else ref.to_bits(g, type_) == ref.to_bits(w, type_)
        assert same, f"{row}: got {g!r}, should be {w!r}"
