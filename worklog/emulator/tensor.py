"""Tensor-core instructions: where the fragments of wmma lie in memory, as ptxas places them on sm_90, and the records
of tensor.h and wgmma.h: the form of a multiplication, and where a matrix is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from worklog.emulator.ptx import Imm, Instruction, Reg, Vec, items

NONE = -1
MULTIPLY, MOVE_MATRICES, TURN, MOVE_FRAGMENT = range(4)
MMA_ASYNC = 3
HOW = {"": 0, "and": 0, "satfinite": 1, "xor": 2}
SHARED = {"shared", "shared::cta"}
# In the order of multiply.h.
BITS = {
    "f64": 64,
    "f32": 32,
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
    "s32": 32,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
TYPES = (*BITS,)
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
    bits = BITS[type_]
    along = (matrix == "b") != (layout == "row")
    held = 2 if matrix in "cd" else max(1, 32 // bits)  # numbers side by side in a lane
    blocks = [(i, k) for i in range(lines) for k in range(more)]
    blocks = blocks if matrix == "b" else sorted(blocks, key=lambda block: block[1])
    matrices = (
        min(2, lines) * more if matrix in "ab" and (bits == 16 or (bits == 8 and along)) else 0
    )
    if along:
        own = held * bits // 8
        size = 8 if bits == 64 else 4
        places = [(8 * i, 4 * own * k) for i, k in blocks]
        steps = (1, 0, 0, own)
        return Places(
            tuple(places), steps, size, own // size, False, matrices, min(ALIGNED, 4 * own * more)
        )
    align = min(ALIGNED, lines * bits)
    if bits == 16:
        return Places(
            tuple((8 * k, 16 * i) for i, k in blocks), (1, 0, 0, 4), 4, 1, True, matrices, align
        )
    # PTX has no such fragments of less than 8 bits.
    places = [(4 * held * k + e, bits * i) for i, k in blocks for e in range(held)]
    return Places(tuple(places), (0, held, bits // 8, 0), bits // 8, 1, False, 0, align)


# By the type of A: shapes of mma and of wmma, and types of C and D.
SHAPES = {
    "f64": ("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "m8n8k4", "f64"),
    "tf32": ("m16n8k4 m16n8k8", "m16n16k8", "f32"),
    "f16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32 f16"),
    "bf16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32"),
    **dict.fromkeys(
        ("s8", "u8"), ("m8n8k16 m16n8k16 m16n8k32", "m16n16k16 m8n32k16 m32n8k16", "s32")
    ),
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
    return (n if matrix == "b" else m) // 8, n // 8 if matrix in "cd" else k // 4 // max(
        1, 32 // BITS[type_]
    )


def fragment(i: Instruction) -> Places:
    """Of a wmma.load or a wmma.store. Raises LookupError for one that the emulator doesn't have."""
    matrix, layout, shape, type_ = i.parts[2], *i.parts[5:7], i.parts[-1]
    forms = (
        (kind, sums.split())
        for kind, (_, shapes, sums) in SHAPES.items()
        if shape in shapes.split()
    )
    if not any(type_ in sums if matrix in "cd" else type_ == kind for kind, sums in forms):
        raise LookupError(type_)
    return places_of(matrix, layout, type_, *blocks_of(shape, type_, matrix))


def registers(
    decoder: Any, i: Instruction, operands: Any, type_: str, result: bool = False
) -> list[int]:
    """The places of a fragment's registers. result: they are written."""
    bits = "b64" if type_ == "f64" else "b32"
    if any(isinstance(x, Reg) != (x is not None) for x in operands) and result:
        raise i.unsupported()
    return [NONE if x is None and result else decoder.source(x, bits) for x in operands]


def count_of(shape: str, type_: str, matrix: str, old: bool) -> tuple[int, int]:
    """Registers of a fragment, and how often it holds each: wmma has 8 for A and B of f16 in every shape."""
    lines, more = blocks_of(shape, type_, matrix)
    count = lines * more * (2 if matrix in "cd" and BITS[type_] > 16 else 1)
    return count, 8 // count if old and type_ == "f16" and matrix in "ab" else 1


def form(
    types: Any, sizes: Any, step: int, how: str, signs: Any, trans: Any, lists: Any
) -> list[int]:
    """A Form of core/multiply.h. lists: the registers of D, A, B and C."""
    numbers = (
        [TYPES.index(type_) for type_ in types]
        + [*sizes, step, HOW[how]]
        + [int(sign < 0) for sign in signs]
    )
    return [
        *numbers,
        *map(int, trans),
        *map(len, lists),
        *(register for group in lists for register in group),
    ]


def multiply(decoder: Any, i: Instruction) -> dict[str, int]:
    """mma.sync and wmma.mma; wmma of f16 names the types of C and D only."""
    old = i.parts[0] == "wmma"
    how = {*i.parts} & {"satfinite", "rn", "and", "xor", "popc"}
    shape, *types = [
        part
        for part in i.parts
        if part not in {"wmma", "mma", "sync", "aligned", "row", "col", *how}
    ]
    types = [types[0], "f16", "f16", types[1]] if old and len(types) == 2 else types
    d, a, b, c = types
    if shape not in SHAPES[a][old].split() or c not in SHAPES[a][2].split() or d != c:
        raise i.unsupported()
    groups = [items(operand) for operand in i.operands]
    counts = [
        count_of(shape, type_, matrix, old)[0] for type_, matrix in zip(types, "dabc", strict=True)
    ]
    lists = [
        registers(decoder, i, group[:count], type_, result=k == 0)
        for k, (group, count, type_) in enumerate(zip(groups, counts, types, strict=True))
    ]
    if len(groups[0]) != counts[0] or [*map(len, lists)] != counts:
        raise i.unsupported()
    sizes = sizes_of(shape)
    # In the machine code of sm_90, wmma with TF32 is two instructions.
    step = 4 if old and a == "tf32" else sizes[2]
    word = "".join(how - {"popc", "rn"})
    given = form((a, b, c), sizes, step, word, (1, 1), (False, False), lists)
    return {"op": MULTIPLY, "target": decoder.listed(given)}


def record(form: Places, wide: int, bits: int, copies: int, places: list[int]) -> list[int]:
    """A Fragment of core/tensor.h. places: of its registers."""
    head = [
        wide,
        form.trans,
        form.size,
        form.count,
        form.matrices,
        form.align,
        *form.steps,
        bits,
        copies,
    ]
    pairs = [number for place in form.places for number in place]
    return [*map(int, head), len(form.places), len(places), *pairs, *places]


def turn(decoder: Any, i: Instruction) -> dict[str, int]:
    """movmatrix."""
    target, source = i.operands
    given = [
        *registers(decoder, i, (target,), "b16", result=True),
        *registers(decoder, i, (source,), "b16"),
    ]
    listed = decoder.listed(record(Places((), (0, 0, 0, 0), 4, 4, False, 0, 1), 0, 32, 1, given))
    return {"op": TURN, "target": listed}


def matrices(decoder: Any, i: Instruction) -> dict[str, int]:
    """ldmatrix and stmatrix of 8 x 8 matrices of 16-bit elements; wmma.load and wmma.store."""
    old = i.parts[0] == "wmma"
    further = {*i.parts[3:]} - SHARED
    loads = i.parts[0] == "ldmatrix" or i.parts[1] == "load"
    stride = NONE
    held, address, *rest = i.operands if loads else (i.operands[1], i.operands[0], *i.operands[2:])
    if old:
        (what, matrix) = i.parts[1:3]
        (layout, shape) = i.parts[5:7]
        type_ = i.parts[-1]
        where = fragment(i)
        (count, copies) = count_of(shape, type_, matrix, True)
        further = {*i.parts[7:-1]} - SHARED - {"global"}
        known = (
            i.parts[3:5] == ("sync", "aligned")
            and layout in ("row", "col")
            and what in ("load", "store")
        )
        stride = decoder.source(rest[0], "u32")
    else:
        type_ = "b16"
        copies = 1
        where = Places((), (0, 0, 0, 0), 4, 4, "trans" in further, 0, 1)
        count = sum({"x1": 1, "x2": 2, "x4": 4}.get(word, 0) for word in further)
        known = i.parts[1:3] == ("sync", "aligned") and "b16" in further
        further -= {"m8n8", "x1", "x2", "x4", "trans", "b16"}
    if further or not known or len(items(held)) != count * copies:
        raise i.unsupported()
    places = registers(decoder, i, items(held), type_, result=loads)
    start, wide, _ = decoder.address(i, address)
    site = decoder.program.sites[i.pc]
    number = decoder.numbers[i.pc]
    filled = decoder.fill(number, site, ("ld", "st").index(site.op), 8 if type_ == "f64" else 4)
    filled["offset"] = site.offset
    given = decoder.listed(record(where, wide, BITS.get(type_, 16), copies, places))
    out = {"op": MOVE_FRAGMENT if old else MOVE_MATRICES, "a": start, "b": stride}
    return {**out, "site": number, "target": given}


def warp_group(decoder: Any, i: Instruction) -> dict[str, int]:
    """wgmma.mma_async. What ptxas refuses is not checked."""
    shape, sum_type, *types = i.parts[4:]
    target, a, b, scaled, *numbers = i.operands
    _, n, k = sizes_of(shape)
    known = (
        {*types[:2]} <= {"s8", "u8"}
        if sum_type == "s32"
        else types in (["tf32"] * 2, ["f16"] * 2, ["bf16"] * 2)
    )
    if not known or len(items(target)) != n // (4 if sum_type == "f16" else 2):
        raise i.unsupported()
    # Integers have no signs, and only 16-bit numbers can be transposed, in shared memory.
    values = [int(x.value) for x in numbers if isinstance(x, Imm)]
    signs = values[:2] or [1, 1]
    trans = [0, 0, *values[2:]][-2:]
    first = registers(decoder, i, items(a), types[0]) if isinstance(a, Vec) else []
    lists = [registers(decoder, i, items(target), sum_type), first, [], []]
    given = form((*types[:2], sum_type), (16, n, k), k, "".join(types[2:]), signs, trans, lists)
    places = {"b": decoder.source(b, "b64"), "c": decoder.source(scaled, "pred")}
    places |= {} if first else {"a": decoder.source(a, "b64")}
    number = decoder.numbers[i.pc]
    decoder.sites[number]["space"] = 1
    return {"op": MMA_ASYNC, **places, "site": number, "target": decoder.listed(given)}
