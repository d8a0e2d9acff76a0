"""What a tensor core computes, in Python's integers and fractions, and PTX that runs one instruction on a warp."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.emulator.reference import fma
from worklog.emulator import launch, load

# Bits of fraction and of the exponent, and the shift that leaves them of a pattern.
INTEGERS = {"s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
BITS = {"f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, **INTEGERS}
FORMATS = {"f64": (52, 11, 0), "tf32": (10, 8, 13), "f32": (23, 8, 0), "f16": (10, 5, 0), "bf16": (7, 8, 0)}


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
    unit = Fraction(2) ** (max(-133, *(exponent for _, exponent in terms)) - 25)
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
    "tiny": (0.2, 0.5, 0),
}


def random_words(rng: np.random.Generator, type_: str, count: int, kind: str) -> np.ndarray:
    """Patterns of a type. kind: as in KINDS, of floats; "near": normal numbers of like size; "tiny": numbers whose
    products are about as small as the least normal float32, and an accumulator that is zero or below it.
    """
    if type_ in INTEGERS:
        return rng.integers(0, 2 ** BITS[type_], count).astype(f"u{BITS[type_] // 8}")
    fraction, width, ignored = FORMATS[type_]
    top, bias, (low, zero, high) = 2**width - 1, 2 ** (width - 1) - 1, KINDS[kind]
    lowest, highest = {"near": (bias - 3, bias + 4), "tiny": (bias // 2 - 12, bias // 2 + 3)}.get(kind, (1, top))
    exponent = np.maximum(rng.integers(lowest, highest, count), 0) * (kind != "tiny" or type_ != "f32")
    chosen = rng.random(count)
    exponent = np.where(chosen < low, 0, np.where(chosen >= 1 - high, top, exponent))
    rest = np.where(rng.random(count) < zero, 0, rng.integers(0, 2 ** (fraction + ignored), count))
    out = rng.integers(0, 2, count) << (width + fraction + ignored) | exponent << (fraction + ignored) | rest
    return out.astype(f"u{BITS[type_] // 8}")


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


@dataclass(frozen=True)
class Mma:
    """An mma.sync. types: of A, B and C."""

    op: str

    def __str__(self) -> str:
        return self.op.removeprefix("mma.sync.aligned.").replace(".row.col", "")

    @property
    def shape(self) -> tuple[int, int, int]:
        m, n, k = map(int, re.search(r"m(\d+)n(\d+)k(\d+)", self.op).groups())
        return m, n, k

    @property
    def types(self) -> tuple[str, str, str]:
        _, a, b, c = [part for part in self.op.split(".") if part in BITS]
        return a, b, c

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Rows of A, of B transposed and of C, and their numbers."""
        m, n, k = self.shape
        return (m, k), (n, k), (m, n)

    @property
    def counts(self) -> list[int]:
        """32-bit registers of A, B and C."""
        return [rows * numbers * BITS[t] // 1024 for (rows, numbers), t in zip(self.sizes, self.types, strict=True)]

    def registers(self, *matrices: np.ndarray) -> list[np.ndarray]:
        """Of the words of the rows of A, of B transposed and of C."""
        factors, sums = max(BITS[self.types[0]] // 32, 1), max(BITS[self.types[2]] // 16, 1)
        each = (factors, factors, sums)
        return [word for matrix, n in zip(matrices, each, strict=True) for word in lanes_of(matrix, n)]

    def operands(self, rng: np.random.Generator, kind: str) -> list[np.ndarray]:
        """Random A, B transposed and C, as the words of their rows. kind: as in KINDS, of floats."""
        return [
            rng.integers(0, 2**32, (rows, numbers * BITS[t] // 32), np.uint32)
            if t in INTEGERS and t != "s32"
            else rng.integers(2**31 - 999, 2**31 + 999, (rows, numbers)).astype(np.uint32)  # both ends of s32
            if t == "s32"
            else random_words(rng, t, rows * numbers, kind).reshape(rows, numbers).view(np.uint32)
            for (rows, numbers), t in zip(self.sizes, self.types, strict=True)
        ]

    def text(self) -> str:
        """PTX, on $r…; 64-bit registers are joined before it and parted behind it."""
        given = [f"$r{k}" for k in range(sum(self.counts))]
        places = [f"$d{k}" for k in range(self.counts[2])]
        counts, around = self.counts, ["", ""]
        if self.types[2] == "f64":
            wide = [[f"e{k}" for k in range(len(given) // 2)], [f"f{k}" for k in range(len(places) // 2)]]
            halves = [
                dict(zip(names, zip(words[::2], words[1::2], strict=True), strict=True))
                for names, words in zip(wide, (given, places), strict=True)
            ]
            around = [f".reg .f64 {', '.join(wide[0] + wide[1])};\n", ""]
            around[0] += "".join(f"mov.b64 {name}, {{{low}, {high}}};\n" for name, (low, high) in halves[0].items())
            around[1] += "".join(f"mov.b64 {{{low}, {high}}}, {name};\n" for name, (low, high) in halves[1].items())
            (given, places), counts = wide, [count // 2 for count in counts]
        a, b, _ = counts
        groups = (places, given[:a], given[a : a + b], given[a + b :])
        listed = ", ".join("{" + ", ".join(group) + "}" for group in groups)
        return f"{{ {around[0]}{self.op} {listed};\n{around[1]} }}"

    def wanted(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """D as the words of its rows."""
        types = self.types
        if types[2] != "s32":
            x, y, z = (each.view(f"u{BITS[t] // 8}").tolist() for each, t in zip((a, b, c), types, strict=True))
            one = chain if types[2] == "f64" else lambda u, v, w: dot(u, v, w, types[0], types[2])
            out = [[one(u, v, w) for v, w in zip(y, old, strict=True)] for u, old in zip(x, z, strict=True)]
            return np.array(out, f"u{BITS[types[2]] // 8}").view(np.uint32)
        x, y = (unpacked(each, t) for each, t in zip((a, b), types[:2], strict=True))
        pairs = [[np.bitwise_xor(u, v) if ".xor" in self.op else u * v for v in y] for u in x]
        total = np.array(pairs).sum(axis=-1) + c.view(np.int32)
        ends = np.iinfo(np.int32)
        return (np.clip(total, ends.min, ends.max) if "satfinite" in self.op else total).astype(np.uint32)


def unpacked(words: np.ndarray, type_: str) -> np.ndarray:
    """The integers of a row of words, the low bits first."""
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").reshape(len(words), -1, INTEGERS[type_])
    weights = 1 << np.arange(INTEGERS[type_])
    weights[-1] *= -1 if type_[0] == "s" else 1
    return (bits * weights).sum(axis=-1)


def chain(a: Sequence[int], b: Sequence[int], c: int) -> int:
    """One multiply-add after the other, each rounded once, of float64 bits."""
    for factors in zip(a, b, strict=True):
        x, y, z = np.array([*factors, c], np.uint64).view(np.float64).tolist()
        first_nan = [bits for bits, value in ((factors[1], y), (c, z), (factors[0], x)) if math.isnan(value)][:1]
        total = fma(x, y, z, "f64")
        default = 0xFFF8 << 48 if math.isnan(total) else int(np.float64(total).view(np.uint64))
        c = first_nan[0] | 1 << 51 if first_nan else default
    return c


MMAS = [
    Mma(f"mma.sync.aligned.{shape}.row.col.{c}.{a}.{b}.{c}{end}")
    for shapes, a, b, c, end in (
        ("m16n8k4 m16n8k8", "tf32", "tf32", "f32", ""),
        ("m16n8k8 m16n8k16", "f16", "f16", "f32", ""),
        ("m16n8k8 m16n8k16", "f16", "f16", "f16", ""),
        ("m16n8k8 m16n8k16", "bf16", "bf16", "f32", ""),
        ("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "f64", "f64", "f64", ""),
        ("m8n8k16 m16n8k16 m16n8k32", "s8", "u8", "s32", ""),
        ("m8n8k32 m16n8k32 m16n8k64", "u4", "s4", "s32", ""),
        ("m8n8k128 m16n8k128 m16n8k256", "b1", "b1", "s32", ".and.popc"),
        ("m8n8k128 m16n8k256", "b1", "b1", "s32", ".xor.popc"),
    )
    for shape in shapes.split()
] + [
    Mma("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"),
    Mma("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.u8.s32"),
    Mma("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.s4.s4.s32"),
]


def fragments(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    """Registers of a warp, as PTX ISA's figures give them. a: (16, K), b: (K, 8), c: (16, 8)."""
    rows = [np.ascontiguousarray(matrix).view(np.uint32) for matrix in (a, b.T, c)]
    return [
        word
        for matrix, each in zip(rows, (1, 1, max(c.itemsize // 2, 1)), strict=True)
        for word in lanes_of(matrix, each)
    ]


def lanes_of(rows: np.ndarray, each: int) -> list[np.ndarray]:
    """Registers from the words of a matrix's rows. each: words side by side in a lane."""
    words = [[] for _ in range(rows.size // 32)]
    for lane in range(32):
        g, t, number = lane // 4, lane % 4, 0
        for block in range(0, rows.shape[1], 4 * each):
            for row in range(g, len(rows), 8):
                for word in rows[row, block + t * each :][:each]:
                    words[number].append(word)
                    number += 1
    return [np.array(word, np.uint32) for word in words]
