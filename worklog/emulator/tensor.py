"""Tensor-core instructions of a warp: mma.sync, wmma, ldmatrix, stmatrix and movmatrix, with a Hopper GPU's arithmetic,
which wgmma has, too (worklog.emulator.wgmma).

Sums of integers and of bits are exact, modulo 2^32 or saturated. A sum of f64 is one multiply-add after the other, each
rounded once, from the first k on (MMA-Sim, below). Each other result is a sum of K products and the accumulator,
whatever K the machine code's instruction has:

1. emax is the largest of the sums of two factors' exponents, over products that are not zero and without normalising
   these, and of the accumulator's exponent, and at least -133. The exponent of a subnormal is that of its format's
   least normal number. A zero has none, however large the other factor.
2. Products and accumulator are truncated to multiples of 2^(emax - 25), and added exactly.
3. The sum is truncated to a float32, or rounded to the nearest f16. What becomes zero is +0.

This is as Xie et al., "MMA-Sim" (arXiv 2511.10909), and Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores"
(arXiv 2512.07004), describe Hopper, except for the least emax: theirs is -126. Overflow gives infinity; NaN is
0x7fffffff or 0x7fff, and of f64 as in floats.fma_f64. TF32 ignores the low 13 bits of a word, also of NaN.
tests/gpu/test_gpu_instructions.py compares all of it with a GPU: on an H200, random normal numbers, subnormals, zeros,
infinities and NaN gave these bits in each of its forms of mma.sync and wgmma; with a least emax of -132 or -134 some
differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worklog.emulator.floats import Array, fma_f64, from_bfloat, from_half, to_half
from worklog.emulator.ptx import Instruction

Words = Sequence[Array]
FRACTION = 25  # bits that a term keeps below the largest term's exponent
BITS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
INTEGERS = ("s32", "s8", "u8", "s4", "u4", "b1")
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126}  # exponents of the least normal numbers
LEAST_SUM = -133  # the least emax
NO_EXPONENT = -5000  # of a product that is zero
NAN = np.uint32(0x7FFFFFFF).view(np.float32)
ALIGNED = 32  # CUDA C++ Programming Guide, "Warp Matrix Functions": bytes, of a matrix; of its leading dimension 16


# Arithmetic.


@dataclass(frozen=True)
class Form:
    """One multiplication. type_, other, sum_type: of A, of B, and of C and D. step: the K of one sum. how: satfinite,
    and, xor or "". signs, trans: of A and B of a wgmma; trans: the matrix has its rows or columns together.
    """

    type_: str
    other: str
    sum_type: str
    rows: int
    columns: int
    step: int
    how: str = ""
    signs: tuple[int, int] = (1, 1)
    trans: tuple[bool, bool] = (False, False)

    @np.errstate(all="ignore")
    def sums(self, a: Array, b: Array, c: Array) -> Array:
        """a @ b + c before it is rounded to sum_type. a: (…, M, K), b: (…, K, N), c: (…, M, N), float64 arrays of
        numbers of the form's types, which hold any integer sum exactly, too.
        """
        if self.sum_type == "s32":
            both = a @ b
            return c + (both if self.how != "xor" else a.sum(-1)[..., None] + b.sum(-2)[..., None, :] - 2 * both)
        if self.sum_type == "f64":
            for k in range(a.shape[-1]):
                terms = np.broadcast_arrays(a[..., :, k, None], b[..., None, k, :], c)
                c = fma_f64(*(term.ravel() for term in terms)).reshape(c.shape)
            return c
        return multiply_add(a, b, c, self.type_, self.sum_type)


@np.errstate(all="ignore")
def multiply_add(a: Array, b: Array, c: Array, type_: str, sum_type: str) -> Array:
    """a @ b + c as the sum of step 2, in float64, which holds it exactly. Infinities and NaN as in IEEE arithmetic."""
    ea, eb, steps = _exponents(a, LEAST[type_]), _exponents(b, LEAST[type_]), range(a.shape[-1])
    emax = np.maximum(_exponents(c, LEAST[sum_type]), LEAST_SUM)
    for k in steps:
        np.maximum(emax, ea[..., :, k, None] + eb[..., None, k, :], out=emax)
    scale = np.ldexp(1.0, FRACTION - emax)
    total = np.trunc(c * scale)
    for k in steps:
        term = a[..., :, k, None] * b[..., None, k, :]
        term *= scale
        total += np.trunc(term, out=term)
    exact = total / scale + 0.0
    if np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all():
        return exact
    plain = c + sum(a[..., :, k, None] * b[..., None, k, :] for k in steps)
    return np.where(np.isfinite(plain), exact, plain)


def _exponents(x: Array, least: int) -> Array:
    """Of float64 numbers, at least `least`; NO_EXPONENT for zero."""
    exponents = (x.view(np.int64) >> 52 & 0x7FF).astype(np.int32) - 1023
    return np.where(x == 0, np.int32(NO_EXPONENT), np.maximum(exponents, np.int32(least)))


def truncated(x: Array) -> Array:
    """float64 to float32 toward zero, 2^128 and more to infinity, NaN to the GPU's, -0 to 0."""
    with np.errstate(all="ignore"):
        normal = (x.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
        step = 2.0**-149
        out = np.where(np.abs(x) < 2.0**-126, np.trunc(x / step) * step + 0.0, normal).astype(np.float32)
        return np.where(np.isnan(x), NAN, out)


def to_tf32(x: Array, mode: str) -> Array:
    """cvt to .tf32: the bits of a float32 rounded to 10 bits of fraction. mode: rna (ties away from zero), rn or rz. Of
    NaN, an H200's: 0x7fffe000, and for rna the operand without its low 13 bits.
    """
    bits = x.view(np.uint32)
    added = {"rna": np.uint32(0x1000), "rn": np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))}
    out = (bits + added.get(mode, np.uint32(0))) & np.uint32(0xFFFFE000)
    nan = bits & np.uint32(0xFFFFE000) if mode == "rna" else np.uint32(0x7FFFE000)
    return np.where(np.isnan(x), nan, np.where(np.isinf(x), bits, out))


# Fragments: a lane (g, t) of a warp, g its number div 4 and t mod 4, holds words of h numbers: 1, or as many as 32 bits
# have. PTX ISA, "Matrix Fragments for mma": blocks of 8 rows and 4 words, i and n of 8 rows or columns, j of 4 words
# along K.


def numbers(words: Array, type_: str) -> Array:
    """(…, 4) words as float64 (…, 4, h)."""
    if type_ in INTEGERS:
        bits, sign = BITS[type_], (1 << BITS[type_] - 1) * (type_[0] == "s")
        fields = words.astype(np.int64)[..., None] >> np.arange(0, 32, bits) & (1 << bits) - 1
        return ((fields ^ sign) - sign).astype(np.float64)
    if BITS[type_] > 16:
        words = words & np.uint32(0xFFFFE000) if type_ == "tf32" else words
        with np.errstate(all="ignore"):
            return words.view(f"f{words.itemsize}").astype(np.float64)[..., None]
    halves = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape, 2)
    return (from_half if type_ == "f16" else from_bfloat)(halves, "f8")


def left(words: Array, type_: str, rows: int) -> Array:
    """A, (warps, rows, K), of registers (j, i), each (warps, 8, 4)."""
    x = numbers(words, type_)
    return x.reshape(-1, rows // 8, *x.shape[1:]).transpose(2, 1, 3, 0, 4, 5).reshape(x.shape[1], rows, -1)


def right(words: Array, type_: str, columns: int) -> Array:
    """B, (warps, K, columns), of registers (n, j), each (warps, 8, 4)."""
    x = numbers(words, type_)
    x = x.reshape(columns // 8, -1, *x.shape[1:]).transpose(2, 1, 4, 5, 0, 3)
    return x.reshape(x.shape[0], -1, columns)


def accumulator(words: Array, type_: str, rows: int) -> Array:
    """C, (warps, rows, columns), of registers (n, i) of two halves, or (n, i, column mod 2)."""
    x = numbers(words, type_)
    x = x.reshape(-1, rows // 8, 2 // x.shape[-1], *x.shape[1:]).transpose(3, 1, 4, 0, 5, 2, 6)
    return x.reshape(x.shape[0], rows, -1)


def registers_of(sums: Array, type_: str, how: str = "") -> Array:
    """The registers (count, warps, 32) of D: `accumulator` backwards, with the last step of the sum."""
    if type_ == "s32":
        ends = np.iinfo(np.int32)
        x = (np.clip(sums, ends.min, ends.max) if how == "satfinite" else sums).astype(np.int64).astype(np.uint32)
    elif type_ == "f16":
        x = to_half(np.where(np.abs(sums) <= 2.0**-25, 0.0, sums))  # what rounds to zero is +0
    else:
        x = sums if type_ == "f64" else truncated(sums)
    held = max(1, 4 // x.itemsize)
    x = x.reshape(len(sums), -1, 8, sums.shape[-1] // 8, 4, 2 // held, held).transpose(3, 1, 5, 0, 2, 4, 6)
    words = np.ascontiguousarray(x).view(np.uint64 if x.itemsize == 8 else np.uint32)
    return words.reshape(-1, len(sums), 32)


def transposed(words: Array) -> Array:
    """8 x 8 matrices of 16-bit elements, (…, 8, 4) words: each element goes to the place of its mirror image."""
    halves = np.ascontiguousarray(words).view(np.uint16)
    return np.ascontiguousarray(halves.swapaxes(-1, -2)).view(np.uint32)


@dataclass(frozen=True)
class Places:
    """Where the registers of a wmma fragment lie: line and byte of each block, and the lines per g and per t, and bytes
    per g and per t, that a lane's own numbers are further. A lane accesses `count` elements of `size` bytes at a place.
    trans: blocks are transposed behind a load. matrices: that one ldmatrix reads, where ptxas makes it of a load from
    shared memory; 0 for none. align: of the matrix's address, in bytes.
    """

    places: tuple[tuple[int, int], ...]
    steps: tuple[int, int, int, int]
    size: int
    count: int
    trans: bool
    matrices: int
    align: int


def places_of(matrix: str, layout: str, type_: str, lines: int, more: int) -> Places:
    """As ptxas places them on sm_90. matrix: "a", "b", "c" or "d". lines: blocks of 8 rows, or columns of B; more:
    blocks in the other direction, of 4 lanes with all the numbers that lie side by side in one.
    """
    bits, along = BITS[type_], (matrix == "b") != (layout == "row")
    held = 2 if matrix in "cd" else max(1, 32 // bits)  # numbers side by side in a lane
    blocks = [(i, k) for i in range(lines) for k in range(more)]
    blocks = blocks if matrix == "b" else sorted(blocks, key=lambda block: block[1])
    matrices = min(2, lines) * more if matrix in "ab" and (bits == 16 or (bits == 8 and along)) else 0
    if along:
        own, size = held * bits // 8, 8 if bits == 64 else 4
        places, steps = [(8 * i, 4 * own * k) for i, k in blocks], (1, 0, 0, own)
        return Places(tuple(places), steps, size, own // size, False, matrices, min(ALIGNED, 4 * own * more))
    align = min(ALIGNED, lines * bits)
    if bits == 16:
        return Places(tuple((8 * k, 16 * i) for i, k in blocks), (1, 0, 0, 4), 4, 1, True, matrices, align)
    # PTX has no such fragments of less than 8 bits.
    places = [(4 * held * k + e, bits * i) for i, k in blocks for e in range(held)]
    return Places(tuple(places), (0, held, bits // 8, 0), bits // 8, 1, False, 0, align)


# By the type of A: shapes of mma and of wmma, and types of C and D.
SHAPES = {
    "f64": ("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "m8n8k4", "f64"),
    "tf32": ("m16n8k4 m16n8k8", "m16n16k8", "f32"),
    "f16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32 f16"),
    "bf16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32"),
    **dict.fromkeys(("s8", "u8"), ("m8n8k16 m16n8k16 m16n8k32", "m16n16k16 m8n32k16 m32n8k16", "s32")),
    **dict.fromkeys(("s4", "u4"), ("m8n8k32 m16n8k32 m16n8k64", "m8n8k32", "s32")),
    "b1": ("m8n8k128 m16n8k128 m16n8k256", "m8n8k128", "s32"),
}


def sizes_of(shape: str) -> tuple[int, int, int]:
    """M, N and K of a shape such as "m16n8k8"."""
    m, n, k = (int(number) for number in re.findall(r"\d+", shape))
    return m, n, k


def blocks_of(shape: str, type_: str, matrix: str) -> tuple[int, int]:
    """Of a fragment, as for places_of: blocks of 8 rows, or of 8 columns of B, and blocks in the other direction."""
    m, n, k = sizes_of(shape)
    return (n if matrix == "b" else m) // 8, n // 8 if matrix in "cd" else k // 4 // max(1, 32 // BITS[type_])


def fragment(i: Instruction) -> Places:
    """Of a wmma.load or a wmma.store. Raises LookupError for one that the emulator doesn't have."""
    matrix, layout, shape, type_ = i.parts[2], *i.parts[5:7], i.parts[-1]
    forms = ((kind, sums.split()) for kind, (_, shapes, sums) in SHAPES.items() if shape in shapes.split())
    if not any(type_ in sums if matrix in "cd" else type_ == kind for kind, sums in forms):
        raise LookupError(type_)
    return places_of(matrix, layout, type_, *blocks_of(shape, type_, matrix))
