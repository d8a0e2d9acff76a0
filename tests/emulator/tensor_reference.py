"""What a tensor core computes, in Python's integers and fractions, and PTX that runs one instruction on a warp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from worklog.emulator import launch, load

# Bits of fraction and of the exponent, and the shift that leaves them of a pattern.
FORMATS = {"tf32": (10, 8, 13), "f32": (23, 8, 0), "f16": (10, 5, 0), "bf16": (7, 8, 0)}


def parts(bits: int, format_: str) -> tuple[Fraction | float, int]:
    """A pattern's number, and its exponent; that of zero is None's stand-in, far below all others."""
    fraction, width, ignored = FORMATS[format_]
    bits >>= ignored
    bias = 2 ** (width - 1) - 1
    sign, exponent, rest = bits >> (fraction + width), bits >> fraction & (2**width - 1), bits & (2**fraction - 1)
    if exponent == 2**width - 1:
        return (math.nan if rest else math.inf) * (-1) ** sign, 0
    whole = rest + (2**fraction if exponent else 0)
    exponent = max(exponent, 1) - bias
    return (-1) ** sign * Fraction(whole) * Fraction(2) ** (exponent - fraction), exponent if whole else -(10**6)


def dot(a: Sequence[int], b: Sequence[int], c: int, type_: str, sum_type: str) -> int:
    """The bits of one element of D. The rule: worklog/emulator/tensor.py."""
    terms = [
        (x * y, ex + ey) for (x, ex), (y, ey) in zip(*([parts(v, type_) for v in vs] for vs in (a, b)), strict=True)
    ]
    terms.append(parts(c, sum_type))
    if not all(math.isfinite(value) for value, _ in terms) or any(value != value for value, _ in terms):
        total = sum(float(value) if math.isfinite(value) else value for value, _ in terms)
        nan, infinity = (0x7FFFFFFF, 0x7F800000) if sum_type == "f32" else (0x7FFF, 0x7C00)
        sign = (0x80000000 if sum_type == "f32" else 0x8000) if total < 0 else 0
        return nan if total != total else infinity | sign
    unit = Fraction(2) ** (max(-126, *(exponent for _, exponent in terms)) - 25)
    return encode(sum(math.trunc(value / unit) for value, _ in terms) * unit, sum_type)


def encode(x: Fraction, sum_type: str) -> int:
    """Toward zero for f32, to the nearest even for f16; beyond the largest number infinity."""
    fraction, width, _ = FORMATS[sum_type]
    bias, size = 2 ** (width - 1) - 1, abs(x)
    exponent = 1 - bias
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    count = size / Fraction(2) ** (exponent - fraction)
    whole = math.trunc(count) if sum_type == "f32" else round(count)
    pattern = min(whole + (exponent + bias - 1 << fraction), 2**width - 1 << fraction)
    return pattern | (1 << (fraction + width) if x < 0 and whole else 0)


# Of random words by kind: the probabilities of a subnormal number or zero, of a zero fraction, and of NaN or infinity.
KINDS = {
    "near": (0, 0, 0),
    "any": (0, 0, 0),
    "special": (0.2, 0.2, 0.01),
    "subnormal": (0.7, 0, 0),
    "zeros": (0.6, 1, 0),
}


def random_words(rng: np.random.Generator, type_: str, count: int, kind: str) -> np.ndarray:
    """Patterns of a type. kind: as in KINDS; "near": normal numbers of like size."""
    fraction, width, ignored = FORMATS[type_]
    top, bias, (low, zero, high) = 2**width - 1, 2 ** (width - 1) - 1, KINDS[kind]
    exponent = rng.integers(bias - 3, bias + 4, count) if kind == "near" else rng.integers(1, top, count)
    chosen = rng.random(count)
    exponent = np.where(chosen < low, 0, np.where(chosen >= 1 - high, top, exponent))
    rest = np.where(rng.random(count) < zero, 0, rng.integers(0, 2 ** (fraction + ignored), count))
    out = rng.integers(0, 2, count) << (width + fraction + ignored) | exponent << (fraction + ignored) | rest
    return out.astype(np.uint32 if type_ in ("f32", "tf32") else np.uint16)


def run_on_a_warp(text: str, registers: Sequence[np.ndarray], results: int) -> np.ndarray:
    """The results (results, lanes) of an instruction on $r0, $r1 … (lanes each), with $d0, $d1 … as destinations."""
    stacked = np.stack(registers).astype(np.uint32)
    out = np.zeros((results, stacked.shape[1]), np.uint32)
    launch(load(ptx_of(text, len(stacked), results), "k"), (1,), stacked.shape[1], [stacked, out], races=False)
    return out


def ptx_of(text: str, count: int, results: int) -> str:
    """A kernel that reads each register from a row of its first array and writes each result to one of its second."""
    head = ".version 8.2\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p0, .param .u64 p1) {\n"
    head += f".reg .b32 %r<{count}>; .reg .b32 %d<{results}>; .reg .b32 %t<3>; .reg .b64 %p<5>;\n"
    head += "mov.u32 %t0, %tid.x; mov.u32 %t1, %ntid.x;\n"
    head += "ld.param.u64 %p0, [p0]; mad.wide.u32 %p0, %t0, 4, %p0; ld.param.u64 %p1, [p1];\n"
    head += "mad.wide.u32 %p1, %t0, 4, %p1; mul.wide.u32 %p2, %t1, 4;\n"
    loads = "".join(f"ld.global.b32 %r{k}, [%p0]; add.u64 %p0, %p0, %p2;\n" for k in range(count))
    stores = "".join(f"st.global.b32 [%p1], %d{k}; add.u64 %p1, %p1, %p2;\n" for k in range(results))
    return f"{head}{loads}{text.replace('$', '%')}\n{stores}ret;\n}}\n"


def mma(shape: str, type_: str, sum_type: str) -> tuple[str, int, int, int]:
    """PTX of an mma.sync on $r…, and its numbers of registers of A, B and C."""
    k = int(shape[4:].partition("k")[2])
    a, c = 16 * k * (4 if type_ == "tf32" else 2) // 128, 4 if sum_type == "f32" else 2
    names = [f"$r{n}" for n in range(a + a // 2 + c)]
    groups = (names[:a], names[a : a + a // 2], names[a + a // 2 :])
    given = ", ".join(f"{{{', '.join(group)}}}" for group in ([f"$d{n}" for n in range(c)], *groups))
    return f"mma.sync.aligned.{shape}.row.col.{sum_type}.{type_}.{type_}.{sum_type} {given};", a, a // 2, c


SHAPES = [("m16n8k4", "tf32"), ("m16n8k8", "tf32"), *((s, t) for t in ("f16", "bf16") for s in ("m16n8k8", "m16n8k16"))]
MMAS = [(s, t, c) for s, t in SHAPES for c in (("f32", "f16") if t == "f16" else ("f32",))]


def fragments(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    """Registers of a warp, element by element as PTX ISA's figures give them. a: (16, K), b: (K, 8), c: (16, 8)."""
    out = []
    for matrix in (a, b.T, c):
        per_word = 4 // matrix.itemsize
        is_sum = matrix is c
        columns = 4 * (2 if is_sum and per_word == 1 else per_word)
        words = [[] for _ in range(matrix.size // per_word // 32)]
        for lane in range(32):
            g, t, number = lane // 4, lane % 4, 0
            for block in range(matrix.shape[1] // columns):
                for row in range(g, matrix.shape[0], 8):
                    own = matrix[row, columns * block :][t * columns // 4 : (t + 1) * columns // 4]
                    for word in np.ascontiguousarray(own).view(np.uint32):
                        words[number].append(word)
                        number += 1
        out += [np.array(word, np.uint32) for word in words]
    return out
