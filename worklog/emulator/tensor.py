"""Where the fragments of wmma lie: places in memory of a lane's registers, as ptxas chooses them on sm_90."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worklog.emulator.ptx import Instruction

BITS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
ALIGNED = 32  # CUDA C++ Programming Guide, "Warp Matrix Functions": bytes, of a matrix; of its leading dimension 16


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
