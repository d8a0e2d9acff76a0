"""One PTX instruction on many difficult operands, as the emulator runs it."""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from worklog.emulator import Result, launch, load

KINDS = {
    "count": "u32",
    "number": "f32",
    "number64": "f64",
    "half": "f32",
}  # of operands with another name than a type
BITS = {"pred": 32, "tf32": 32, "bf16": 16, "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16}


# Bits of the fraction and of the exponent.
FORMATS = {
    "f64": (52, 11),
    "f32": (23, 8),
    "tf32": (23, 8),
    "f16": (10, 5),
    "bf16": (7, 8),
    "e5m2": (2, 5),
    "e4m3": (3, 4),
}
ROWS = 1024


class Case(NamedTuple):
    """An instruction: $d is the destination, $0, $1 … are the operands.

    crcs: of the right results, 128 rows each.
    """

    text: str
    result: str
    kinds: tuple[str, ...]
    crcs: str

    def __str__(self) -> str:
        return f"{self.text} {' '.join(self.kinds)}"

    @property
    def types(self) -> list[str]:
        """The operands'."""
        return [KINDS.get(kind, kind) for kind in self.kinds]

    def columns(self) -> list[np.ndarray]:
        """Patterns of difficult operands."""
        rng = np.random.default_rng(7)
        return [operands(kind, ROWS, rng) for kind in self.kinds]


def cases() -> tuple[list[Case], list[Case]]:
    """Of instructions.txt: those whose results are a GPU's, and the others."""
    parts = Path(__file__).with_name("instructions.txt").read_text(encoding="utf-8").split("\n\n")
    rows = [
        [line.split(" | ") for line in part.splitlines() if not line.startswith("#")]
        for part in parts
    ]
    of_gpu, others = (
        [Case(text, result, tuple(kinds.split()), crcs) for crcs, result, kinds, text in part]
        for part in rows
    )
    return of_gpu, others


def crcs(results: np.ndarray, type_: str) -> str:
    """As in a Case."""
    same_nan = with_one_nan(results, type_).astype("<u8")
    return " ".join(f"{zlib.crc32(part.tobytes()):08x}" for part in np.split(same_nan, 8))


def with_one_nan(words: np.ndarray, type_: str) -> np.ndarray:
    """Return the patterns, with every NaN as the pattern of ones."""
    if type_.endswith("x2"):
        half = np.uint64(BITS[type_] // 2)
        low, high = (
            with_one_nan(words >> k & np.uint64(2**half - 1), type_[:-2])
            for k in (np.uint64(0), half)
        )
        return low | high << half
    if type_ not in FORMATS:
        return words
    fraction, exponent = FORMATS[type_]
    size = words & np.uint64(2 ** (fraction + exponent) - 1)
    if type_ == "tf32":  # the register's low bits don't count
        size = size >> np.uint64(13) << np.uint64(13)
    largest = (
        2**7 - 2 if type_ == "e4m3" else (2**exponent - 1) << fraction
    )  # e4m3 has one NaN and no infinity
    return np.where(size > np.uint64(largest), np.uint64(2**64 - 1), words)


def evaluate(
    text: str,
    results: Sequence[str],
    types: Sequence[str],
    columns: Sequence[np.ndarray],
    *,
    races: bool = False,
) -> tuple[np.ndarray, Result]:
    """Return the patterns (results, threads) of the results.

    $d or $d0, $d1 … are destinations, $0, $1 … operands.

    columns: the operands' patterns, one per thread
    """
    stacked = np.stack(columns).astype(np.uint64)
    out = np.zeros((len(results), stacked.shape[1]), np.uint64)
    kernel = load(ptx_of(text, results, types), "k")
    return out, launch(kernel, (1,), stacked.shape[1], [stacked, out], races=races)


def ptx_of(text: str, results: Sequence[str], types: Sequence[str]) -> str:
    """Return a kernel that reads operands from one array and writes results to another.

    Each operand is a row of the first array, and each result a row of the second. An element has
    64 bits, of which the low ones count. %t0 is the number of the thread.
    """
    lines = [
        (
            ".reg .b32 %t<2>, %q; .reg .b64 %a<3>; mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x; "
            "mul.wide.u32 %a2, %t1, 8;"
        )
    ]
    lines += [f"ld.param.u64 %a{k}, [p{k}]; mad.wide.u32 %a{k}, %t0, 8, %a{k};" for k in (0, 1)]
    for name, each in (("v", types), ("d", results)):
        lines += [
            f".reg .{'pred' if t == 'pred' else f'b{size_of(t)}'} %{name}{k};"
            for k, t in enumerate(each)
        ]
    for k, t in enumerate(types):
        is_pred = t == "pred"
        lines.append(
            f"ld.global.b{size_of(t)} {'%q' if is_pred else f'%v{k}'}, [%a0]; "
            "add.u64 %a0, %a0, %a2;"
        )
        lines += [f"setp.ne.u32 %v{k}, %q, 0;"] * is_pred
    lines.append(re.sub(r"\$(\d)", r"%v\1", re.sub(r"\$d\b", "%d0", text)).replace("$", "%"))
    for k, t in enumerate(results):
        is_pred = t == "pred"
        lines += [f"selp.u32 %q, 1, 0, %d{k};"] * is_pred
        lines.append(
            f"st.global.b{size_of(t)} [%a1], {'%q' if is_pred else f'%d{k}'}; "
            "add.u64 %a1, %a1, %a2;"
        )
    body = "\n".join(lines)
    arch = "sm_90a" if "wgmma" in text else "sm_90"
    # mma has 8-bit floats from 8.4 on, and with m16n8k16 and sums of f16 from 8.7 on.
    version = "8.7" if re.search(r"mma\.sync.*\.e[45]m[23]\.", text) else "8.2"
    head = f".version {version}\n.target {arch}\n.address_size 64\n"
    return f"{head}.visible .entry k(.param .u64 p0, .param .u64 p1) {{\n{body}\nret;\n}}\n"


def size_of(type_: str) -> int:
    """In bits, of a register."""
    return BITS.get(type_) or int(type_[1:])


def operands(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Patterns of difficult operands of a kind.

    count: of bits; number: below 2^33; half: below 2^16.
    """
    if kind == "pred":
        return rng.integers(0, 2, rows, np.uint64)
    if kind == "count":
        return mixed(
            rng, rng.integers(0, 70, rows), rng.integers(0, 300, rows), rng.integers(0, 2**32, rows)
        )
    if kind.endswith("x2"):
        low, high = (floats(kind[:-2], rows, rng) for _ in range(2))
        return low | high << np.uint64(16)
    type_ = KINDS.get(kind, kind)
    if kind in KINDS:
        digits = rng.integers(8, 25, rows)
        exponents = rng.integers(-14, 17 if kind == "half" else 34, rows)
        some = np.ldexp(np.round(rng.uniform(-1, 1, rows) * np.exp2(digits)), exponents - digits)
        both = (
            x.astype(f"f{size_of(type_) // 8}").view(f"u{size_of(type_) // 8}")
            for x in (some, np.round(some * 2) / 2)
        )
        return mixed(rng, *both, floats(type_, rows, rng))
    return floats(kind, rows, rng) if kind in FORMATS else integers(int(kind[1:]), rows, rng)


def integers(bits: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Any value, the limits of signed and unsigned numbers and their neighbours, small numbers."""
    top = 2**bits - 1
    edges = np.array(
        [0, 1, 2, top, top - 1, top // 2, top // 2 + 1, top // 2 + 2, top // 4], np.uint64
    )
    anything = rng.integers(0, top, rows, np.uint64, endpoint=True)
    small = rng.integers(-70, 71, rows)
    return mixed(rng, anything, rng.choice(edges, rows), small) & np.uint64(top)


def floats(format_: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return random patterns of floats, many of which are hard cases.

    Any pattern, few digits and near equal exponents, subnormal numbers, and neighbours of zero,
    of the least and the greatest normal number, of infinity, and of numbers whose product is as
    small as the least one.
    """
    fraction, width = FORMATS[format_]
    bias = 2 ** (width - 1) - 1
    ones = np.uint64(1)
    few = mixed(
        rng,
        rng.integers(0, 2**fraction, rows),
        1 << rng.integers(0, fraction, rows),
        np.zeros(rows, np.int64),
    )
    near = (rng.integers(bias - 4, bias + 5, rows) << fraction) + few
    anything = rng.integers(0, 2 ** (fraction + width), rows)
    tiny = rng.integers(0, 2 ** (fraction + 3), rows)
    exponents = rng.choice(
        [0, 1, bias - (bias + fraction) // 2, bias, 2 * bias, 2 * bias + 1], rows
    )
    edges = np.maximum((exponents << fraction) + rng.integers(-1, 2, rows), 0)
    return mixed(rng, near, anything, tiny, edges) | rng.integers(0, 2, rows, np.uint64) << (
        ones * (fraction + width)
    )


def mixed(rng: np.random.Generator, *choices: np.ndarray) -> np.ndarray:
    """Each element from one of the arrays."""
    return np.choose(
        rng.integers(0, len(choices), len(choices[0])), [one.astype(np.uint64) for one in choices]
    )
