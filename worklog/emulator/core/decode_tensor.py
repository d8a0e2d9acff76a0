"""Decodes tensor-core instructions for tensor.h and wgmma.h: the form of a multiplication, and where a matrix is."""

from __future__ import annotations

from typing import Any

from worklog.emulator.core.records import enum
from worklog.emulator.ptx import Imm, Instruction, Operand, Reg, Vec
from worklog.emulator.tensor import BITS, SHAPES, Places, blocks_of, fragment, sizes_of

NONE = -1
KIND = enum("kind")
MULTIPLY, MOVE_MATRICES, TURN, MOVE_FRAGMENT = range(4)
MMA_ASYNC = 3
TYPES = ("f64", "f32", "tf32", "f16", "bf16", "s32", "s8", "u8", "s4", "u4", "b1")
HOW = {"": 0, "and": 0, "satfinite": 1, "xor": 2}
SHARED = {"shared", "shared::cta"}


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """The elements of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def registers(decoder: Any, i: Instruction, operands: Any, type_: str, result: bool = False) -> list[int]:
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


def form(types: Any, sizes: Any, step: int, how: str, signs: Any, trans: Any, lists: Any) -> list[int]:
    """A Form of core/multiply.h. lists: the registers of D, A, B and C."""
    numbers = [TYPES.index(type_) for type_ in types] + [*sizes, step, HOW[how]] + [int(sign < 0) for sign in signs]
    return [*numbers, *map(int, trans), *map(len, lists), *(register for group in lists for register in group)]


def multiply(decoder: Any, i: Instruction) -> dict[str, int]:
    """mma.sync and wmma.mma; wmma of f16 names the types of C and D only."""
    old, how = i.parts[0] == "wmma", {*i.parts} & {"satfinite", "rn", "and", "xor", "popc"}
    shape, *types = [part for part in i.parts if part not in {"wmma", "mma", "sync", "aligned", "row", "col", *how}]
    types = [types[0], "f16", "f16", types[1]] if old and len(types) == 2 else types
    d, a, b, c = types
    if shape not in SHAPES[a][old].split() or c not in SHAPES[a][2].split() or d != c:
        raise i.unsupported()
    groups = [items(operand) for operand in i.operands]
    counts = [count_of(shape, type_, matrix, old)[0] for type_, matrix in zip(types, "dabc", strict=True)]
    lists = [
        registers(decoder, i, group[:count], type_, result=k == 0)
        for k, (group, count, type_) in enumerate(zip(groups, counts, types, strict=True))
    ]
    if len(groups[0]) != counts[0] or [*map(len, lists)] != counts:
        raise i.unsupported()
    sizes = sizes_of(shape)
    # In the machine code of sm_90, wmma with TF32 is two instructions.
    step, word = 4 if old and a == "tf32" else sizes[2], "".join(how - {"popc", "rn"})
    given = form((a, b, c), sizes, step, word, (1, 1), (False, False), lists)
    return {"kind": KIND["TENSOR"], "op": MULTIPLY, "target": decoder.listed(given)}


def record(form: Places, wide: int, bits: int, copies: int, places: list[int]) -> list[int]:
    """A Fragment of core/tensor.h. places: of its registers."""
    head = [wide, form.trans, form.size, form.count, form.matrices, form.align, *form.steps, bits, copies]
    pairs = [number for place in form.places for number in place]
    return [*map(int, head), len(form.places), len(places), *pairs, *places]


def turn(decoder: Any, i: Instruction) -> dict[str, int]:
    """movmatrix."""
    target, source = i.operands
    given = [*registers(decoder, i, (target,), "b16", result=True), *registers(decoder, i, (source,), "b16")]
    listed = decoder.listed(record(Places((), (0, 0, 0, 0), 4, 4, False, 0, 1), 0, 32, 1, given))
    return {"kind": KIND["TENSOR"], "op": TURN, "target": listed}


def matrices(decoder: Any, i: Instruction) -> dict[str, int]:
    """ldmatrix and stmatrix of 8 x 8 matrices of 16-bit elements; wmma.load and wmma.store."""
    old, further = i.parts[0] == "wmma", {*i.parts[3:]} - SHARED
    loads, stride = i.parts[0] == "ldmatrix" or i.parts[1] == "load", NONE
    held, address, *rest = i.operands if loads else (i.operands[1], i.operands[0], *i.operands[2:])
    if old:
        (what, matrix), (layout, shape), type_ = i.parts[1:3], i.parts[5:7], i.parts[-1]
        where, (count, copies) = fragment(i), count_of(shape, type_, matrix, True)
        further = {*i.parts[7:-1]} - SHARED - {"global"}
        known = i.parts[3:5] == ("sync", "aligned") and layout in ("row", "col") and what in ("load", "store")
        stride = decoder.source(rest[0], "u32")
    else:
        type_, copies, where = "b16", 1, Places((), (0, 0, 0, 0), 4, 4, "trans" in further, 0, 1)
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
    out = {"kind": KIND["TENSOR"], "op": MOVE_FRAGMENT if old else MOVE_MATRICES, "a": start, "b": stride}
    return {**out, "site": number, "target": given}


def warp_group(decoder: Any, i: Instruction) -> dict[str, int]:
    """wgmma.mma_async. What ptxas refuses is not checked."""
    shape, sum_type, *types = i.parts[4:]
    target, a, b, scaled, *numbers = i.operands
    _, n, k = sizes_of(shape)
    known = {*types[:2]} <= {"s8", "u8"} if sum_type == "s32" else types in (["tf32"] * 2, ["f16"] * 2, ["bf16"] * 2)
    if not known or len(items(target)) != n // (4 if sum_type == "f16" else 2):
        raise i.unsupported()
    # Integers have no signs, and only 16-bit numbers can be transposed, in shared memory.
    values = [int(x.value) for x in numbers if isinstance(x, Imm)]
    signs, trans = values[:2] or [1, 1], [0, 0, *values[2:]][-2:]
    first = registers(decoder, i, items(a), types[0]) if isinstance(a, Vec) else []
    lists = [registers(decoder, i, items(target), sum_type), first, [], []]
    given = form((*types[:2], sum_type), (16, n, k), k, "".join(types[2:]), signs, trans, lists)
    places = {"b": decoder.source(b, "b64"), "c": decoder.source(scaled, "pred")}
    places |= {} if first else {"a": decoder.source(a, "b64")}
    number = decoder.numbers[i.pc]
    decoder.sites[number]["space"] = 1
    return {"kind": KIND["WGMMA"], "op": MMA_ASYNC, **places, "site": number, "target": decoder.listed(given)}
