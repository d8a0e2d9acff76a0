"""One PTX instruction on many difficult operands, as the emulator runs it, next to its reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.emulator import reference as ref
from worklog.emulator import Result, launch, load

KINDS = {"count": "u32", "number": "f32", "number64": "f64", "half": "f32"}  # of operands with another name than a type
BITS = {"pred": 32, "tf32": 32, "bf16": 16, "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16}


class Case(NamedTuple):
    """An instruction: $d is the destination, $0, $1 … are the operands. function: of the operands as numbers, or as
    pairs of them; the opcode says how its exact result is rounded, flushed and limited. Its None stands for any result.
    """

    text: str
    result: str
    kinds: tuple[str, ...]
    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.text} {' '.join(self.kinds)}"


def op(opcode: str, result: str, kinds: str, function: Callable[..., Any]) -> Case:
    """An instruction with its destination and its operands in order."""
    operands = "".join(f", ${k}" for k in range(len(kinds.split())))
    return Case(f"{opcode} $d{operands};", result, tuple(kinds.split()), function)


def check(case: Case, columns: Sequence[np.ndarray] | None = None, rows: int = 512) -> None:
    """Compare the instruction with its reference, bit by bit, on the operands' patterns: by default, random ones."""
    rng, types = np.random.default_rng(0), [KINDS.get(kind, kind) for kind in case.kinds]
    columns = [operands(kind, rows, rng) for kind in case.kinds] if columns is None else columns
    (got,), _ = evaluate(case.text, [case.result], types, columns)
    for bits, row in zip(got.tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True):
        right = wanted(case, [numbers(x, type_) for x, type_ in zip(row, types, strict=True)], types)
        same = right is None or numerals(bits, case.result) == numerals(right, case.result)
        assert same, f"{[*map(hex, row)]}: got {bits:#x}, should be {right:#x}"


def numbers(bits: int, type_: str) -> Any:
    """What a pattern stands for; for two numbers in a word a pair, the low one first."""
    if type_.endswith("x2"):
        half = BITS[type_] // 2
        return tuple(numbers(bits >> k & 2**half - 1, type_[:-2]) for k in (0, half))
    if type_ in ref.FORMATS:
        return ref.decode(bits, type_)
    return bits if type_ == "pred" else ref.wrap(bits, type_)


def numerals(bits: int, type_: str) -> list[Any]:
    """To compare patterns: every bit counts, and any NaN equals any other."""
    if type_.endswith("x2"):
        half = BITS[type_] // 2
        return [one for k in (0, half) for one in numerals(bits >> k & 2**half - 1, type_[:-2])]
    is_nan = type_ in ref.FORMATS and np.isnan(ref.decode(bits, type_))
    return ["nan" if is_nan else bits]


def wanted(case: Case, row: Sequence[Any], types: Sequence[str]) -> int | None:
    """The reference's pattern."""
    words = case.text.split()[0].split(".")
    mode = next((word for word in words if word in ("rz", "rm", "rp", "rna")), "rn")
    # On an H200, cvt.ftz.f16.f32 does not flush.
    flush = "ftz" in words and not (words[0] == "cvt" and case.result == "f16")

    def rounded(result: Any, type_: str) -> int:
        if type_.endswith("x2"):
            low, high = (rounded(one, type_[:-2]) for one in result)
            return low | high << BITS[type_] // 2
        if type_ not in ref.FORMATS:
            value = ref.clamped(result, type_) if "sat" in words else int(result)
            return value & 2 ** BITS.get(type_, 64) - 1 if type_ == "pred" else ref.wrap(value, f"u{type_[1:]}")
        if "sat" in words:
            result = min(result, 1.0) if result > 0 else 0.0
        if "relu" in words and result <= 0:
            result = 0.0
        return ref.encode(result, type_, mode, flush=flush, finite="satfinite" in words)

    if flush:
        row = [ref.flushed(x, type_) if type_ in ref.FORMATS else x for x, type_ in zip(row, types, strict=True)]
    if {case.result, *types} == {case.result} and case.result.endswith("x2"):
        if flush:
            row = [tuple(ref.flushed(x, types[0][:-2]) for x in pair) for pair in row]
        return rounded([case.function(*lane) for lane in zip(*row, strict=True)], case.result)
    result = case.function(*row)
    return None if result is None else rounded(result, case.result)


def evaluate(
    text: str, results: Sequence[str], types: Sequence[str], columns: Sequence[np.ndarray], *, races: bool = False
) -> tuple[np.ndarray, Result]:
    """The patterns (results, threads) of the results. $d or $d0, $d1 … are destinations, $0, $1 … operands.
    columns: the operands' patterns, one per thread.
    """
    stacked = np.stack(columns).astype(np.uint64)
    out = np.zeros((len(results), stacked.shape[1]), np.uint64)
    kernel = load(ptx_of(text, results, types), "k")
    return out, launch(kernel, (1,), stacked.shape[1], [stacked, out], races=races)


def ptx_of(text: str, results: Sequence[str], types: Sequence[str]) -> str:
    """A kernel that reads each operand from a row of its first array and writes each result to one of its second. An
    element has 64 bits, of which the low ones count. %t0 is the number of the thread.
    """
    lines = [
        ".reg .b32 %t<2>, %q; .reg .b64 %a<3>; mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x; mul.wide.u32 %a2, %t1, 8;"
    ]
    lines += [f"ld.param.u64 %a{k}, [p{k}]; mad.wide.u32 %a{k}, %t0, 8, %a{k};" for k in (0, 1)]
    for name, each in (("v", types), ("d", results)):
        lines += [f".reg .{'pred' if t == 'pred' else f'b{size_of(t)}'} %{name}{k};" for k, t in enumerate(each)]
    for k, t in enumerate(types):
        is_pred = t == "pred"
        lines.append(f"ld.global.b{size_of(t)} {'%q' if is_pred else f'%v{k}'}, [%a0]; add.u64 %a0, %a0, %a2;")
        lines += [f"setp.ne.u32 %v{k}, %q, 0;"] * is_pred
    lines.append(re.sub(r"\$(\d)", r"%v\1", re.sub(r"\$d\b", "%d0", text)).replace("$", "%"))
    for k, t in enumerate(results):
        is_pred = t == "pred"
        lines += [f"selp.u32 %q, 1, 0, %d{k};"] * is_pred
        lines.append(f"st.global.b{size_of(t)} [%a1], {'%q' if is_pred else f'%d{k}'}; add.u64 %a1, %a1, %a2;")
    body, arch = "\n".join(lines), "sm_90a" if "wgmma" in text else "sm_90"
    head = f".version 8.2\n.target {arch}\n.address_size 64\n"
    return f"{head}.visible .entry k(.param .u64 p0, .param .u64 p1) {{\n{body}\nret;\n}}\n"


def size_of(type_: str) -> int:
    """In bits, of a register."""
    return BITS.get(type_) or int(type_[1:])


def patterns(values: Sequence[float], type_: str) -> np.ndarray:
    """Of numbers that the type holds."""
    return np.array([ref.encode(x, type_) if type_ in ref.FORMATS else x for x in values], np.uint64)


def operands(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Patterns of difficult operands of a kind. count: of bits; number: below 2^33; half: below 2^16."""
    if kind == "pred":
        return rng.integers(0, 2, rows, np.uint64)
    if kind == "count":
        return mixed(rng, rng.integers(0, 70, rows), rng.integers(0, 300, rows), rng.integers(0, 2**32, rows))
    if kind.endswith("x2"):
        low, high = (floats(kind[:-2], rows, rng) for _ in range(2))
        return low | high << np.uint64(16)
    type_ = KINDS.get(kind, kind)
    if kind in KINDS:
        digits, exponents = rng.integers(8, 25, rows), rng.integers(-14, 17 if kind == "half" else 34, rows)
        some = np.ldexp(np.round(rng.uniform(-1, 1, rows) * np.exp2(digits)), exponents - digits)
        both = (
            x.astype(f"f{size_of(type_) // 8}").view(f"u{size_of(type_) // 8}") for x in (some, np.round(some * 2) / 2)
        )
        return mixed(rng, *both, floats(type_, rows, rng))
    return floats(kind, rows, rng) if kind in ref.FORMATS else integers(int(kind[1:]), rows, rng)


def integers(bits: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Any value, the limits of signed and unsigned numbers and their neighbours, small numbers."""
    top = 2**bits - 1
    edges = np.array([0, 1, 2, top, top - 1, top // 2, top // 2 + 1, top // 2 + 2, top // 4], np.uint64)
    anything, small = rng.integers(0, top, rows, np.uint64, endpoint=True), rng.integers(-70, 71, rows)
    return mixed(rng, anything, rng.choice(edges, rows), small) & np.uint64(top)


def floats(format_: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Any pattern, few digits and near equal exponents, subnormal numbers, and neighbours of zero, of the least and the
    greatest normal number, of infinity, and of numbers whose product is as small as the least one.
    """
    fraction, width, _ = ref.FORMATS[format_]
    bias, ones = 2 ** (width - 1) - 1, np.uint64(1)
    few = mixed(rng, rng.integers(0, 2**fraction, rows), 1 << rng.integers(0, fraction, rows), np.zeros(rows, np.int64))
    near = (rng.integers(bias - 4, bias + 5, rows) << fraction) + few
    anything = rng.integers(0, 2 ** (fraction + width), rows)
    tiny = rng.integers(0, 2 ** (fraction + 3), rows)
    exponents = rng.choice([0, 1, bias - (bias + fraction) // 2, bias, 2 * bias, 2 * bias + 1], rows)
    edges = np.maximum((exponents << fraction) + rng.integers(-1, 2, rows), 0)
    return mixed(rng, near, anything, tiny, edges) | rng.integers(0, 2, rows, np.uint64) << (ones * (fraction + width))


def mixed(rng: np.random.Generator, *choices: np.ndarray) -> np.ndarray:
    """Each element from one of the arrays."""
    return np.choose(rng.integers(0, len(choices), len(choices[0])), [one.astype(np.uint64) for one in choices])
