"""What a tensor core computes, in Python's integers and fractions, and where a warp's lanes hold its matrices."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.emulator.evaluate import evaluate
from tests.emulator.reference import FORMATS, decode, encode, fma, two_to

INTEGERS = {"s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
BITS = {"f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, **INTEGERS}


def exponent(x: float, format_: str) -> int:
    """Of the pattern; that of zero is far below all others."""
    return max(math.frexp(x)[1] - 1, 2 - 2 ** (FORMATS[format_][1] - 1)) if x else -(10**6)


def dot(a: Sequence[int], b: Sequence[int], c: int, type_: str, sum_type: str) -> int:
    """The bits of one element of D. The rule: worklog/emulator/tensor.py."""
    pairs = [(decode(x, type_), decode(y, type_)) for x, y in zip(a, b, strict=True)]
    added = decode(c, sum_type)
    total: float | Fraction = sum(x * y for x, y in pairs) + added
    if math.isfinite(total):
        exponents = [exponent(x, type_) + exponent(y, type_) for x, y in pairs] + [exponent(added, sum_type)]
        unit = two_to(max(-133, *exponents) - 25)
        terms = [*(Fraction(x) * Fraction(y) for x, y in pairs), Fraction(added)]
        total = sum(math.trunc(term / unit) for term in terms) * unit
        total = total if abs(total) < two_to(128) else math.copysign(math.inf, total)
    bits = encode(total, sum_type, "rz" if sum_type == "f32" else "rn")
    return bits if decode(bits, sum_type) else 0


def chain(a: Sequence[int], b: Sequence[int], c: int) -> int:
    """One multiply-add after the other, each rounded once, of float64 bits. Of several NaN, B's goes before C's."""
    for factors in zip(a, b, strict=True):
        held = factors[1], c, factors[0]
        y, z, x = (decode(bits, "f64") for bits in held)
        first_nan = [bits for bits, value in zip(held, (y, z, x), strict=True) if math.isnan(value)][:1]
        total = encode(fma(x, y, z), "f64")
        default = 0xFFF8 << 48 if math.isnan(decode(total, "f64")) else total
        c = first_nan[0] | 1 << 51 if first_nan else default
    return c


# Of random words by kind: the probabilities of a subnormal number or zero, of a zero fraction, and of NaN or infinity.
KINDS = {
    "near": (0, 0, 0),
    "any": (0, 0, 0),
    "special": (0.2, 0.2, 0.01),
    "subnormal": (0.7, 0, 0),
    "zeros": (0.6, 1, 0),
    "tiny": (0.2, 0.5, 0),
}


def random_words(rng: np.random.Generator, type_: str, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Patterns of a type. kind: as in KINDS, of floats; "near": normal numbers of like size; "tiny": numbers whose
    products are about as small as the least normal float32, and an accumulator that is zero or below it.
    """
    if type_ in INTEGERS:
        return rng.integers(0, 2 ** BITS[type_], shape).astype(f"u{BITS[type_] // 8}")
    fraction, width, ignored = FORMATS[type_]
    top, bias, (low, zero, high) = 2**width - 1, 2 ** (width - 1) - 1, KINDS[kind]
    lowest, highest = {"near": (bias - 3, bias + 4), "tiny": (bias // 2 - 12, bias // 2 + 3)}.get(kind, (1, top))
    exponents = np.maximum(rng.integers(lowest, highest, shape), 0) * (kind != "tiny" or type_ != "f32")
    chosen = rng.random(shape)
    exponents = np.where(chosen < low, 0, np.where(chosen >= 1 - high, top, exponents))
    rest = np.where(rng.random(shape) < zero, 0, rng.integers(0, 2 ** (fraction + ignored), shape))
    out = rng.integers(0, 2, shape) << (width + fraction + ignored) | exponents << (fraction + ignored) | rest
    return out.astype(f"u{BITS[type_] // 8}")


def lanes_of(matrix: np.ndarray, each: int = 1, warps: int = 1) -> np.ndarray:
    """The registers (registers, lanes) that hold a matrix of words, as PTX ISA's figures give them: in 8 rows and 4
    columns of `each` words, lane 4 r + c holds those of row r and column c. Each warp holds as many rows.
    """
    blocks = matrix.reshape(warps, -1, 8, matrix.shape[1] // (4 * each), 4, each)
    return blocks.transpose(3, 1, 5, 0, 2, 4).reshape(-1, 32 * warps)


def matrix_of(registers: np.ndarray, columns: int, each: int = 1, warps: int = 1) -> np.ndarray:
    """The matrix whose `lanes_of` these are."""
    blocks = registers.reshape(columns // (4 * each), -1, each, warps, 8, 4)
    return blocks.transpose(3, 1, 4, 0, 5, 2).reshape(-1, columns)


@dataclass(frozen=True)
class Mma:
    """An mma.sync. A, B transposed and C are given as patterns by row, those below 32 bits packed into words."""

    op: str

    def __str__(self) -> str:
        return self.op.removeprefix("mma.sync.aligned.").replace(".row.col", "")

    @property
    def types(self) -> list[str]:
        """Of A, B and C."""
        return [part for part in self.op.split(".") if part in BITS][1:]

    @property
    def word(self) -> int:
        """Bits of a register."""
        return 64 if self.types[2] == "f64" else 32

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Rows of A, of B transposed and of C, and words in each."""
        m, n, k = map(int, re.search(r"m(\d+)n(\d+)k(\d+)", self.op).groups())
        return [(r, c * BITS[t] // self.word) for (r, c), t in zip(((m, k), (n, k), (m, n)), self.types, strict=True)]

    @property
    def counts(self) -> list[int]:
        """Registers of A, B and C."""
        return [rows * words // 32 for rows, words in self.sizes]

    @property
    def each(self) -> int:
        """Words of C side by side in a lane."""
        return 1 if self.types[2] == "f16" else 2

    def registers(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return np.concatenate([lanes_of(a), lanes_of(b), lanes_of(c, self.each)])

    def run(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """D from the emulator."""
        registers = self.registers(a, b, c)
        got, _ = evaluate(self.text(), self.held[: self.counts[2]], self.held, registers)
        return matrix_of(got, c.shape[1], self.each).astype(c.dtype)

    @property
    def held(self) -> list[str]:
        """The registers' types."""
        return [f"b{self.word}"] * sum(self.counts)

    def operands(self, rng: np.random.Generator, kind: str) -> list[np.ndarray]:
        """Random A, B transposed and C. kind: as in KINDS, of floats."""
        out = []
        for t, (rows, words) in zip(self.types, self.sizes, strict=True):
            if t == "s32":  # both ends
                out.append(rng.integers(2**31 - 999, 2**31 + 999, (rows, words)).astype(np.uint32))
            elif t in INTEGERS:
                out.append(rng.integers(0, 2**32, (rows, words), np.uint32))
            else:
                numbers = random_words(rng, t, (rows, words * self.word // BITS[t]), kind)
                out.append(numbers.view(f"u{self.word // 8}"))
        return out

    def text(self) -> str:
        places, (a, b, c) = [f"${k}" for k in range(sum(self.counts))], self.counts
        groups = ([f"$d{k}" for k in range(c)], places[:a], places[a : a + b], places[a + b :])
        return f"{self.op} {', '.join('{' + ', '.join(group) + '}' for group in groups)};"

    def wanted(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """D by the reference."""
        types = self.types
        if types[2] != "s32":
            x, y, z = (each.view(f"u{BITS[t] // 8}").tolist() for each, t in zip((a, b, c), types, strict=True))
            one = chain if types[2] == "f64" else lambda u, v, w: dot(u, v, w, types[0], types[2])
            out = [[one(u, v, w) for v, w in zip(y, old, strict=True)] for u, old in zip(x, z, strict=True)]
            return np.array(out, f"u{BITS[types[2]] // 8}").view(c.dtype)
        x, y = (unpacked(each, t) for each, t in zip((a, b), types[:2], strict=True))
        pairs = x[:, None] ^ y if ".xor" in self.op else x[:, None] * y
        total, ends = pairs.sum(axis=-1) + c.view(np.int32), np.iinfo(np.int32)
        return (np.clip(total, ends.min, ends.max) if "satfinite" in self.op else total).astype(np.uint32)


def unpacked(words: np.ndarray, type_: str) -> np.ndarray:
    """The integers of a row of words, the low bits first."""
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").reshape(len(words), -1, INTEGERS[type_])
    weights = 1 << np.arange(INTEGERS[type_])
    weights[-1] *= -1 if type_[0] == "s" else 1
    return (bits * weights).sum(axis=-1)


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
