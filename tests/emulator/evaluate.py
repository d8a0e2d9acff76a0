"""One PTX instruction on many difficult operands, as the emulator runs it, next to its reference."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.emulator import reference as ref
from tests.emulator.helpers import HEAD
from worklog.emulator import launch, load, ptx

# Numbers of 16 bits are compared and given as their bits, two of them as a word.
DTYPES = {**ptx.DTYPES, "pred": "u4", "f16": "u2", "bf16": "u2", "f16x2": "u4", "bf16x2": "u4"}
INTEGER_TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.0**-75, 2.0**-74, -(2.0**-76)]
TYPES = {"count": "u32", "number": "f32", "number64": "f64", "half": "f32"}  # of operand kinds with another name
# PTX text, the result's type, the operands' kinds, and the reference: a function of one row of operands.
Case = tuple[str, str, tuple[str, ...], Callable[..., Any]]


def check(case: Case, rows: int = 512) -> None:
    """Compare the instruction with its reference, bit by bit, on rows of seeded operands."""
    text, result, kinds, reference = case
    rng = np.random.default_rng(0)
    values = list(zip(*(operands(kind, rows, rng) for kind in kinds), strict=True))
    got = evaluate(text, result, [TYPES.get(kind, kind) for kind in kinds], values)
    assert_same(got, [reference(*row) for row in values], result, values)


def assert_same(got: np.ndarray, wanted: Sequence[Any], type_: str, values: Sequence[Any]) -> None:
    """Every bit equal; any NaN equals any other."""
    for g, w, row in zip(got.tolist(), wanted, values, strict=True):
        if "f16" in type_:
            same = ref.sixteens(g, type_) == ref.sixteens(w, type_)
        elif type_[0] == "f":
            same = math.isnan(g) if math.isnan(w) else ref.to_bits(g, type_) == ref.to_bits(w, type_)
        else:
            same = g == (w if type_ == "pred" else ref.wrap(w, type_))
        assert same, f"{row}: got {g!r}, should be {w!r}"


def evaluate(instruction: str, result: str, types: Sequence[str], values: Sequence[Sequence[Any]]) -> np.ndarray:
    """The results of `instruction`: $d is the destination, $0, $1 … the operands; values: one row per thread."""
    arrays = [np.array([row[k] for row in values], DTYPES[type_]) for k, type_ in enumerate(types)]
    out = np.zeros(len(values), DTYPES[result])
    launch(load(ptx_of(instruction, result, types), "k"), (1,), len(out), [*arrays, out], races=False)
    return out


def ptx_of(instruction: str, result: str, types: Sequence[str]) -> str:
    """A kernel that reads each operand from an array of its own and writes $d to the last one."""
    lines, text = [], instruction.replace("$d", "%d")
    for k, type_ in enumerate((*types, result)):
        is_result, is_pred = k == len(types), type_ == "pred"
        held = "%d" if is_result else f"%v{k}"
        size = np.dtype(DTYPES[type_]).itemsize
        register = f"b{8 * size}" if type_[0] not in "pf" or "f16" in type_ else type_
        memory, stored = (f"%q{k}", "b32") if is_pred else (held, register if "f16" in type_ else type_)
        address = f".reg .b64 %p{k}; ld.param.u64 %p{k}, [p{k}]; mad.wide.u32 %p{k}, %r1, {size}, %p{k};"
        lines.append(f".reg .{register} {held}; .reg .b32 %q{k}; {address}")
        if is_result:
            lines += [text, *[f"selp.u32 {memory}, 1, 0, %d;"] * is_pred, f"st.global.{stored} [%p{k}], {memory};"]
        else:
            lines += [f"ld.global.{stored} {memory}, [%p{k}];", f"setp.ne.u32 {held}, {memory}, 0;" if is_pred else ""]
            text = text.replace(f"${k}", held)
    params, body = ", ".join(f".param .u64 p{k}" for k in range(len(types) + 1)), "\n".join(lines)
    return f"{HEAD}.visible .entry k({params}) {{\n.reg .b32 %r<3>;\nmov.u32 %r1, %tid.x;\n{body}\nret;\n}}\n"


def operands(kind: str, rows: int, rng: np.random.Generator) -> list[Any]:
    """Difficult operands of a kind. count: of bits; number: below 2^33; half: below 2^16."""
    if kind == "pred":
        return list(rng.integers(0, 2, rows).tolist())
    if kind == "count":
        return mixed(rng, rng.integers(0, 70, rows), rng.integers(0, 300, rows), rng.integers(0, 2**32, rows))
    if "f16" in kind:
        one = [sixteen(kind, rows, rng) for _ in ref.halves(0, kind)]
        return [sum(bits << 16 * k for k, bits in enumerate(row)) for row in zip(*one, strict=True)]
    if kind in ("number", "number64", "half"):
        digits, exponents = rng.integers(8, 25, rows), rng.integers(-14, 17 if kind == "half" else 34, rows)
        some = np.ldexp(np.round(rng.uniform(-1, 1, rows) * np.exp2(digits)), exponents - digits)
        return mixed(rng, some, np.round(some * 2) / 2, np.array(floats(TYPES[kind], rows, rng)))
    return floats(kind, rows, rng) if kind[0] == "f" else integers(kind, rows, rng)


def integers(type_: str, rows: int, rng: np.random.Generator) -> list[int]:
    """Any value, the type's limits and their neighbours, small numbers."""
    top = 2 ** int(type_[1:]) - 1
    anything = rng.integers(0, top, rows, np.uint64, endpoint=True)
    edges = [0, 1, 2, top, top - 1, top // 2, top // 2 + 1, top // 2 + 2, top // 4]
    chosen = rng.choice(np.array(edges, np.uint64), rows)
    return [ref.wrap(x, type_) for x in mixed(rng, anything, chosen, rng.integers(-70, 71, rows))]


def floats(type_: str, rows: int, rng: np.random.Generator) -> list[float]:
    """Any bit pattern, subnormals, few digits and near equal exponents, special values."""
    bits, mantissa, bias = (32, 23, 127) if type_ == "f32" else (64, 52, 1023)
    signs = rng.integers(0, 2, rows, np.uint64) << np.uint64(bits - 1)
    many = rng.integers(0, 2**mantissa, rows, np.uint64)
    one = np.uint64(1) << rng.integers(0, mantissa, rows, np.uint64)
    digits = np.array(mixed(rng, many, one, np.zeros(rows, np.uint64)), np.uint64)
    near = signs | rng.integers(bias - 4, bias + 5, rows, np.uint64) << np.uint64(mantissa) | digits
    anything = rng.integers(0, 2**bits - 1, rows, np.uint64, endpoint=True)
    tiny = signs | rng.integers(0, 2 ** (mantissa + 3), rows, np.uint64)
    special = np.array([ref.to_bits(x, type_) for x in rng.choice(SPECIAL, rows)], np.uint64)
    return [ref.from_bits(x, type_) for x in mixed(rng, near, anything, tiny, special)]


def sixteen(kind: str, rows: int, rng: np.random.Generator) -> list[int]:
    """Bits of 16-bit floats: anything, few digits and near equal exponents, subnormals, special values."""
    mantissa, bias = (7, 127) if kind[0] == "b" else (10, 15)
    signs, digits = rng.integers(0, 2, rows) << 15, rng.integers(0, 2**mantissa, rows)
    few = np.where(rng.integers(0, 2, rows) == 1, digits, 1 << rng.integers(0, mantissa, rows))
    near = signs | rng.integers(bias - 4, bias + 5, rows) << mantissa | few
    # The largest number's, infinity's and the least normal number's bits are neighbours of those of two exponents.
    edges = np.array([0, 1, bias, 2 * bias, 2 * bias + 1]) << mantissa
    special = signs | np.maximum(rng.choice(edges, rows) + rng.integers(-1, 2, rows), 0)
    return mixed(rng, near, rng.integers(0, 2**16, rows), signs | digits, special)


def mixed(rng: np.random.Generator, *choices: np.ndarray) -> list[Any]:
    """Each element from one of the arrays, as a Python number."""
    rows = list(zip(*(array.tolist() for array in choices), strict=True))
    return [row[k] for row, k in zip(rows, rng.integers(0, len(choices), len(rows)), strict=True)]
