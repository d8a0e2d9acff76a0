"""Tensor-core instructions: their fragments in memory, and their records.

wmma's fragments lie where ptxas places them on sm_90. The records are those of tensor.h and
wgmma.h: the form of a multiplication, and where a matrix is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from worklog.emulator.ptx import Imm, Instruction, Reg, Vec, items

NONE = -1
MULTIPLY, MOVE_MATRICES, TURN, MOVE_FRAGMENT = range(4)
MMA_ASYNC = 3
FLAGS = {"": 0, "and": 0, "satfinite": 1, "xor": 2}
MODIFIERS = {"satfinite", "rn", "and", "xor", "popc"}
SHARED = {"shared", "shared::cta"}
# In the order of multiply.h.
BITS = {
    "f64": 64,
    "f32": 32,
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
    "e4m3": 8,
    "e5m2": 8,
    "s32": 32,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
TYPES = (*BITS,)
EIGHTS = ("e4m3", "e5m2")
BITS_OF_STEP = 256  # of a row of A, or a column of B, of one wgmma
# CUDA C++ Programming Guide, "Warp Matrix Functions": bytes, of a matrix; of its leading dimension
# 16.
ALIGNED = 32


@dataclass(frozen=True)
class Places:
    """Where the registers of a wmma fragment lie in memory.

    A line is a row or a column of the matrix, as its layout has it.
    """

    places: tuple[tuple[int, int], ...]  # line and byte of each block
    # A lane's own place: lines per g, lines per t, bytes per g, bytes per t, added to each block's.
    steps: tuple[int, int, int, int]
    size: int  # bytes of an element that a lane accesses at a place
    count: int  # elements that a lane accesses at a place
    trans: bool  # whether blocks are transposed after a load
    matrices: (
        int  # that one ldmatrix reads, if ptxas turns a load from shared memory into it; else 0
    )
    align: int  # of the matrix's address, in bytes


def places_of(matrix: str, layout: str, type_: str, *, lines: int, across: int) -> Places:
    """Return where a fragment lies, as ptxas places it on sm_90.

    matrix: "a", "b", "c" or "d"
    layout: "row" or "col"
    lines: blocks of 8 rows, or of 8 columns of B
    across: blocks in the other direction, of 4 lanes with all the numbers that lie side by side in
        a lane
    """
    bits = BITS[type_]
    is_along = (matrix == "b") != (layout == "row")  # a lane's numbers lie side by side in memory
    numbers = 2 if matrix in "cd" else max(1, 32 // bits)  # side by side in a lane
    blocks = list(product(range(lines), range(across)))
    if matrix != "b":
        blocks.sort(key=lambda block: block[1])
    matrices = 0
    if matrix in "ab" and (bits == 16 or (bits == 8 and is_along)):
        matrices = min(2, lines) * across
    if is_along:
        lane_bytes = numbers * bits // 8
        size = 8 if bits == 64 else 4
        return Places(
            places=tuple((8 * line, 4 * lane_bytes * column) for line, column in blocks),
            steps=(1, 0, 0, lane_bytes),
            size=size,
            count=lane_bytes // size,
            trans=False,
            matrices=matrices,
            align=min(ALIGNED, 4 * lane_bytes * across),
        )
    align = min(ALIGNED, lines * bits)
    if bits == 16:
        return Places(
            places=tuple((8 * column, 16 * line) for line, column in blocks),
            steps=(1, 0, 0, 4),
            size=4,
            count=1,
            trans=True,
            matrices=matrices,
            align=align,
        )
    # PTX has no such fragments of less than 8 bits.
    places = []
    for line, column in blocks:
        for number in range(numbers):
            places.append((4 * numbers * column + number, bits * line))
    return Places(
        places=tuple(places),
        steps=(0, numbers, bits // 8, 0),
        size=bits // 8,
        count=1,
        trans=False,
        matrices=0,
        align=align,
    )


# By the type of A: shapes of mma and of wmma, and types of C and D.
SHAPES = {
    "f64": ("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "m8n8k4", "f64"),
    "tf32": ("m16n8k4 m16n8k8", "m16n16k8", "f32"),
    "f16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32 f16"),
    "bf16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32"),
    **dict.fromkeys(EIGHTS, ("m16n8k16 m16n8k32", "", "f32 f16")),
    **dict.fromkeys(
        ("s8", "u8"), ("m8n8k16 m16n8k16 m16n8k32", "m16n16k16 m8n32k16 m32n8k16", "s32")
    ),
    **dict.fromkeys(("s4", "u4"), ("m8n8k32 m16n8k32 m16n8k64", "m8n8k32", "s32")),
    "b1": ("m8n8k128 m16n8k128 m16n8k256", "m8n8k128", "s32"),
}


def sizes_of(shape: str) -> tuple[int, int, int]:
    """Return M, N and K of a shape such as "m16n8k8"."""
    m, n, k = (int(number) for number in re.findall(r"\d+", shape))
    return m, n, k


def blocks_of(shape: str, type_: str, matrix: str) -> tuple[int, int]:
    """Return the blocks of a fragment in both directions, as places_of takes them.

    Blocks of 8 rows, or of 8 columns of B, and blocks in the other direction.
    """
    m, n, k = sizes_of(shape)
    lines = (n if matrix == "b" else m) // 8
    if matrix in "cd":
        return lines, n // 8
    return lines, k // 4 // max(1, 32 // BITS[type_])


def fragment(instruction: Instruction) -> Places:
    """Return where the fragment of a wmma.load or a wmma.store lies.

    Raises LookupError for a fragment that the emulator doesn't have.
    """
    matrix = instruction.parts[2]
    layout, shape = instruction.parts[5:7]
    type_ = instruction.parts[-1]
    if not any(_has_matrix(kind, shape, matrix, type_) for kind in SHAPES):
        raise LookupError(type_)
    lines, across = blocks_of(shape, type_, matrix)
    return places_of(matrix, layout, type_, lines=lines, across=across)


def _has_matrix(kind: str, shape: str, matrix: str, type_: str) -> bool:
    """Return whether the wmma of a type of A has a matrix of this shape and type."""
    _, shapes, sums = SHAPES[kind]
    if shape not in shapes.split():
        return False
    return type_ in sums.split() if matrix in "cd" else type_ == kind


def registers(
    decoder: Any, instruction: Instruction, operands: Any, type_: str, *, result: bool = False
) -> list[int]:
    """Return the places of a fragment's registers.

    result: whether the registers are written
    """
    bits = "b64" if type_ == "f64" else "b32"
    places = []
    for operand in operands:
        if result and operand is not None and not isinstance(operand, Reg):
            raise instruction.unsupported()
        is_ignored = result and operand is None
        places.append(NONE if is_ignored else decoder.source(operand, bits))
    return places


def count_of(shape: str, type_: str, matrix: str, is_wmma: bool) -> tuple[int, int]:
    """Return the registers of a fragment, and how often it holds each register.

    wmma has 8 for A and B of f16 in every shape.
    """
    lines, across = blocks_of(shape, type_, matrix)
    count = lines * across
    if matrix in "cd" and BITS[type_] > 16:
        count *= 2
    return count, 8 // count if is_wmma and type_ == "f16" and matrix in "ab" else 1


def form(
    types: Any,
    sizes: Any,
    *,
    step: int,
    flag: str,
    signs: Any,
    trans: Any,
    lists: Any,
    halved: bool = False,
) -> list[int]:
    """Return a Form of core/multiply.h.

    flag: a key of FLAGS
    halved: whether 8-bit floats are multiplied as halves
    lists: the registers of D, A, B and C
    """
    numbers = [TYPES.index(type_) for type_ in types]
    numbers += [*sizes, step, FLAGS[flag]]
    numbers += [int(sign < 0) for sign in signs]
    numbers += [*map(int, trans), int(halved)]
    return [*numbers, *map(len, lists), *chain.from_iterable(lists)]


def multiply(decoder: Any, instruction: Instruction) -> dict[str, int]:
    """Decode mma.sync and wmma.mma."""
    is_wmma = instruction.parts[0] == "wmma"
    modifiers = {*instruction.parts} & MODIFIERS
    shape, types = _shape_and_types(instruction)
    _, a, b, c = types
    groups = [items(operand) for operand in instruction.operands]
    counts = [
        count_of(shape, type_, matrix, is_wmma)[0]
        for type_, matrix in zip(types, "dabc", strict=True)
    ]
    lists = [
        registers(decoder, instruction, group[:count], type_, result=number == 0)
        for number, (group, count, type_) in enumerate(zip(groups, counts, types, strict=True))
    ]
    if len(groups[0]) != counts[0] or [*map(len, lists)] != counts:
        raise instruction.unsupported()
    sizes = sizes_of(shape)
    is_halved = a in EIGHTS
    # In the machine code of sm_90, wmma with TF32 and mma with 8-bit floats are two instructions.
    is_in_two = is_halved or (is_wmma and a == "tf32")
    numbers = form(
        (a, b, c),
        sizes,
        step=sizes[2] // 2 if is_in_two else sizes[2],
        flag="".join(modifiers - {"popc", "rn"}),
        signs=(1, 1),
        trans=(False, False),
        lists=lists,
        halved=is_halved,
    )
    return {"op": MULTIPLY, "target": decoder.listed(numbers)}


def _shape_and_types(instruction: Instruction) -> tuple[str, list[str]]:
    """Return the shape of a multiplication, and the types of D, A, B and C.

    wmma of f16 names the types of C and D only. Raises UnsupportedInstruction.
    """
    is_wmma = instruction.parts[0] == "wmma"
    ignored = {"wmma", "mma", "sync", "aligned", "row", "col", *MODIFIERS}
    shape, *types = [part for part in instruction.parts if part not in ignored]
    if is_wmma and len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    d, a, b, c = types
    shapes = SHAPES[a][1 if is_wmma else 0].split()
    is_known = shape in shapes and c in SHAPES[a][2].split() and SHAPES[a] == SHAPES[b]
    if not is_known or d != c:
        raise instruction.unsupported()
    return shape, types


def record(form: Places, *, wide: int, bits: int, copies: int, places: list[int]) -> list[int]:
    """Return a Fragment of core/tensor.h.

    places: of its registers
    """
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
    pairs = chain.from_iterable(form.places)
    return [*map(int, head), len(form.places), len(places), *pairs, *places]


def turn(decoder: Any, instruction: Instruction) -> dict[str, int]:
    """Decode movmatrix."""
    target, source = instruction.operands
    places = [
        *registers(decoder, instruction, (target,), "b16", result=True),
        *registers(decoder, instruction, (source,), "b16"),
    ]
    fragment = Places((), (0, 0, 0, 0), size=4, count=4, trans=False, matrices=0, align=1)
    numbers = record(fragment, wide=0, bits=32, copies=1, places=places)
    return {"op": TURN, "target": decoder.listed(numbers)}


def matrices(decoder: Any, instruction: Instruction) -> dict[str, int]:
    """Decode ldmatrix, stmatrix, wmma.load and wmma.store."""
    is_wmma = instruction.parts[0] == "wmma"
    is_load = instruction.parts[0] == "ldmatrix" or instruction.parts[1] == "load"
    values, address, *strides = instruction.operands
    if not is_load:
        values, address = address, values
    moved = _wmma_fragment(instruction) if is_wmma else _matrix_fragment(instruction)
    stride = decoder.source(strides[0], "u32") if is_wmma else NONE
    if len(items(values)) != moved.count * moved.copies:
        raise instruction.unsupported()
    of_registers = registers(decoder, instruction, items(values), moved.type_, result=is_load)
    start, wide, _ = decoder.address(instruction, address)
    numbers = record(
        moved.places,
        wide=wide,
        bits=BITS.get(moved.type_, 16),
        copies=moved.copies,
        places=of_registers,
    )
    number = decoder.numbers[instruction.pc]
    site = decoder.program.sites[instruction.pc]
    width = 8 if moved.type_ == "f64" else 4
    decoder.fill(number, site, ("ld", "st").index(site.op), width)["offset"] = site.offset
    return {
        "op": MOVE_FRAGMENT if is_wmma else MOVE_MATRICES,
        "a": start,
        "b": stride,
        "site": number,
        "target": decoder.listed(numbers),
    }


@dataclass(frozen=True)
class _Fragment:
    """The registers of ldmatrix, stmatrix, wmma.load or wmma.store."""

    type_: str
    places: Places
    count: int  # registers that differ
    copies: int  # registers that hold the same elements


def _wmma_fragment(instruction: Instruction) -> _Fragment:
    """Return the registers of wmma.load or wmma.store. Raises UnsupportedInstruction."""
    _require_wmma(instruction)
    places = fragment(instruction)
    matrix = instruction.parts[2]
    shape = instruction.parts[6]
    type_ = instruction.parts[-1]
    count, copies = count_of(shape, type_, matrix, is_wmma=True)
    return _Fragment(type_, places, count, copies)


def _matrix_fragment(instruction: Instruction) -> _Fragment:
    """Return the registers of ldmatrix or stmatrix, for 8 x 8 elements of 16 bits each.

    Raises UnsupportedInstruction.
    """
    _require_matrices(instruction)
    parts = {*instruction.parts[3:]}
    places = Places((), (0, 0, 0, 0), size=4, count=4, trans="trans" in parts, matrices=0, align=1)
    count = sum({"x1": 1, "x2": 2, "x4": 4}.get(part, 0) for part in parts)
    return _Fragment("b16", places, count, copies=1)


def _require_wmma(instruction: Instruction) -> None:
    """Raise UnsupportedInstruction for a wmma.load or wmma.store with an unknown part."""
    parts = instruction.parts
    unknown = {*parts[7:-1]} - SHARED - {"global"}
    is_known = (
        parts[1] in ("load", "store")
        and parts[3:5] == ("sync", "aligned")
        and parts[5] in ("row", "col")
    )
    if unknown or not is_known:
        raise instruction.unsupported()


def _require_matrices(instruction: Instruction) -> None:
    """Raise UnsupportedInstruction for an ldmatrix or stmatrix with an unknown part."""
    parts = instruction.parts
    unknown = {*parts[3:]} - SHARED - {"m8n8", "x1", "x2", "x4", "trans", "b16"}
    if unknown or parts[1:3] != ("sync", "aligned") or "b16" not in parts[3:]:
        raise instruction.unsupported()


def warp_group(decoder: Any, instruction: Instruction) -> dict[str, int]:
    """Decode wgmma.mma_async. What ptxas refuses isn't checked."""
    _require_group(instruction)
    _, a, b, scaled, *_ = instruction.operands
    type_of_a = instruction.parts[6]
    of_a = registers(decoder, instruction, items(a), type_of_a) if isinstance(a, Vec) else []
    listed = _group_form(decoder, instruction, of_a)
    places = {"b": decoder.source(b, "b64"), "c": decoder.source(scaled, "pred")}
    if not of_a:
        places["a"] = decoder.source(a, "b64")
    number = decoder.numbers[instruction.pc]
    decoder.sites[number]["space"] = 1
    return {"op": MMA_ASYNC, **places, "site": number, "target": decoder.listed(listed)}


def _group_form(decoder: Any, instruction: Instruction, of_a: list[int]) -> list[int]:
    """Return the Form of a wgmma.

    of_a: the registers of A; none if A is in shared memory
    """
    shape, sum_type, *types = instruction.parts[4:]
    target, _, _, _, *numbers = instruction.operands
    _, n, k = sizes_of(shape)
    # Integers have no signs, and only 16-bit numbers can be transposed, in shared memory.
    values = [int(number.value) for number in numbers if isinstance(number, Imm)]
    signs = values[:2] or [1, 1]
    trans = [0, 0, *values[2:]][-2:]
    lists = [registers(decoder, instruction, items(target), sum_type), of_a, [], []]
    flag = "".join(types[2:])
    return form(
        (*types[:2], sum_type), (16, n, k), step=k, flag=flag, signs=signs, trans=trans, lists=lists
    )


def _require_group(instruction: Instruction) -> None:
    """Raise UnsupportedInstruction for a wgmma with unknown types or another target."""
    shape, sum_type, *types = instruction.parts[4:]
    target = instruction.operands[0]
    _, n, k = sizes_of(shape)
    registers_of_target = n // (4 if sum_type == "f16" else 2)
    if not _is_known_group(types, sum_type) or k * BITS[types[0]] != BITS_OF_STEP:
        raise instruction.unsupported()
    if len(items(target)) != registers_of_target:
        raise instruction.unsupported()


def _is_known_group(types: list[str], sum_type: str) -> bool:
    """Return whether the emulator has a wgmma of these types of A and B, and of sums."""
    if sum_type == "s32":
        return len(types) in (2, 3) and {*types[:2]} <= {"s8", "u8"}
    if len(types) == 2 and {*types} <= {*EIGHTS}:
        return sum_type in ("f32", "f16")
    if sum_type == "f16":
        return types == ["f16", "f16"]
    return sum_type == "f32" and types in (["tf32"] * 2, ["f16"] * 2, ["bf16"] * 2)
