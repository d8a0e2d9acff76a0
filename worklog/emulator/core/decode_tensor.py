"""Decodes tensor-core instructions for tensor.h: the form of a multiplication, and where a matrix is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worklog.emulator.core.records import enum
from worklog.emulator.isa import register_dtype, unsupported
from worklog.emulator.program import Site
from worklog.emulator.ptx import UNEXPECTED, Array, Imm, Instruction, Mem, Operand, Reg, Vec
from worklog.emulator.tensor import BITS, SHAPES, Places, blocks_of, fragment, sizes_of

NONE = -1
KIND = enum("kind")
MULTIPLY, LOAD_MATRICES, STORE_MATRICES, TURN, LOAD_FRAGMENT, STORE_FRAGMENT = range(6)
TYPES = ("f64", "f32", "tf32", "f16", "bf16", "s32", "s8", "u8", "s4", "u4", "b1")
HOW = {"": 0, "and": 0, "satfinite": 1, "xor": 2}
NAMES = ("ldmatrix", "stmatrix", "movmatrix", "mma", "wmma", "wgmma")
SPACES = ("global", "shared", "local")  # as in core.h
GROUPS = ("fence", "commit_group", "wait_group", "mma_async")
_SHARED = {"shared", "shared::cta"}
_PLAIN = Places((), (0, 0, 0, 0), 4, 4, False, 0, 1)  # of what has no places


def memories(sites: Sequence[Site], numbers: dict[int, int]) -> list[Site]:
    """Of generic accesses to matrices, those to each memory, which numbers then name, from the end of the sites on."""
    generic = [site for site in sites if site.space == "generic" and site.parts[0] in NAMES]
    for k, site in enumerate(generic):
        numbers[site.pc] = len(sites) + len(SPACES) * k
    return [site.at(space) for site in generic for space in SPACES]


def row(decoder: Any, i: Instruction, number: int, sites: Array) -> dict[str, Any]:
    """The row of a tensor-core instruction. decoder: a core.decode.Decoder. number: of its access site. Raises
    UnsupportedInstruction.
    """
    try:
        if i.parts[0] == "wgmma":
            if number != NONE:
                sites[number]["space"] = SPACES.index("shared")
            return _warp_group(decoder, i, number)
        if "mma" in i.parts[:2]:
            return _multiply(decoder, i)
        return _turn(decoder, i) if i.parts[0] == "movmatrix" else _matrices(decoder, i, number, sites)
    except UNEXPECTED as error:
        raise unsupported(i) from error


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """The elements of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def _registers(decoder: Any, i: Instruction, operands: Any, type_: str, result: bool = False) -> list[Any]:
    """The places of a fragment's registers. result: they are written."""
    bits = "b64" if type_ == "f64" else "b32"
    if any(isinstance(x, Reg) != (x is not None) for x in operands) and result:
        raise unsupported(i)
    return [NONE if x is None and result else decoder.source(x, bits) for x in operands]


def count_of(shape: str, type_: str, matrix: str, old: bool) -> tuple[int, int]:
    """Registers of a fragment, and how often it holds each: wmma has 8 for A and B of f16 in every shape."""
    lines, more = blocks_of(shape, type_, matrix)
    count = lines * more * (2 if matrix in "cd" and BITS[type_] > 16 else 1)
    return count, 8 // count if old and type_ == "f16" and matrix in "ab" else 1


def form(types: Any, sizes: Any, step: int, how: str, signs: Any, trans: Any, lists: Any) -> list[Any]:
    """A Form of core/multiply.h. lists: the registers of D, A, B and C."""
    numbers = [TYPES.index(type_) for type_ in types] + [*sizes, step, HOW[how]] + [int(sign < 0) for sign in signs]
    return [*numbers, *map(int, trans), *map(len, lists), *(register for each in lists for register in each)]


def _multiply(decoder: Any, i: Instruction) -> dict[str, Any]:
    """mma.sync and wmma.mma; wmma of f16 names the types of C and D only."""
    old, how = i.parts[0] == "wmma", {*i.parts} & {"satfinite", "rn", "and", "xor", "popc"}
    shape, *types = [part for part in i.parts if part not in {"wmma", "mma", "sync", "aligned", "row", "col", *how}]
    types = [types[0], "f16", "f16", types[1]] if old and len(types) == 2 else types
    d, a, b, c = types
    if shape not in SHAPES[a][old].split() or c not in SHAPES[a][2].split() or d != c:
        raise unsupported(i)
    groups = [items(operand) for operand in i.operands]
    counts = [count_of(shape, type_, matrix, old)[0] for type_, matrix in zip(types, "dabc", strict=True)]
    lists = [
        _registers(decoder, i, group[:count], type_, result=k == 0)
        for k, (group, count, type_) in enumerate(zip(groups, counts, types, strict=True))
    ]
    if len(groups[0]) != counts[0] or [*map(len, lists)] != counts:
        raise unsupported(i)
    sizes = sizes_of(shape)
    # In the machine code of sm_90, wmma with TF32 is two instructions.
    step, word = 4 if old and a == "tf32" else sizes[2], "".join(how - {"popc", "rn"})
    given = form((a, b, c), sizes, step, word, (1, 1), (False, False), lists)
    return {"kind": KIND["TENSOR"], "op": MULTIPLY, "target": decoder.listed(given)}


def _record(form: Places, wide: bool, generic: bool, bits: int, copies: int, registers: list[Any]) -> list[Any]:
    """A Fragment of core/tensor.h."""
    places = [number for place in form.places for number in place]
    head = [wide, generic, form.trans, form.size, form.count, form.matrices, form.align, *form.steps, bits, copies]
    return [*map(int, head), len(form.places), len(registers), *places, *registers]


def _turn(decoder: Any, i: Instruction) -> dict[str, Any]:
    """movmatrix."""
    if i.op != "movmatrix.sync.aligned.m8n8.trans.b16":
        raise unsupported(i)
    target, source = i.operands
    given = [*_registers(decoder, i, (target,), "b16", result=True), *_registers(decoder, i, (source,), "b16")]
    return {"kind": KIND["TENSOR"], "op": TURN, "target": decoder.listed(_record(_PLAIN, False, False, 32, 1, given))}


def _matrices(decoder: Any, i: Instruction, number: int, sites: Array) -> dict[str, Any]:
    """ldmatrix and stmatrix of 8 x 8 matrices of 16-bit elements; wmma.load and wmma.store."""
    old, further = i.parts[0] == "wmma", {*i.parts[3:]} - _SHARED
    loads, stride = i.parts[0] == "ldmatrix" or i.parts[1] == "load", NONE
    registers, address, *rest = i.operands if loads else (i.operands[1], i.operands[0], *i.operands[2:])
    if old:
        (what, matrix), (layout, shape), type_ = i.parts[1:3], i.parts[5:7], i.parts[-1]
        where, copies = fragment(i), 1
        further = {*i.parts[7:-1]} - _SHARED - {"global"}
        count, copies = count_of(shape, type_, matrix, True)
        known = i.parts[3:5] == ("sync", "aligned") and layout in ("row", "col") and what in ("load", "store")
        stride = decoder.source(rest[0], "u32")
    else:
        type_, copies, where = "b16", 1, Places((), (0, 0, 0, 0), 4, 4, "trans" in further, 0, 1)
        count = sum({"x1": 1, "x2": 2, "x4": 4}.get(word, 0) for word in further)
        known = i.parts[1:3] == ("sync", "aligned") and "b16" in further
        further -= {"m8n8", "x1", "x2", "x4", "trans", "b16"}
    if further or not known or len(items(registers)) != count * copies or not isinstance(address, Mem):
        raise unsupported(i)
    places = _registers(decoder, i, items(registers), type_, result=loads)
    base = address.base
    if isinstance(base, Reg) and register_dtype(base.type) not in ("u4", "u8"):
        raise unsupported(i)
    wide = not isinstance(base, Reg) or register_dtype(base.type) == "u8"
    start = decoder.registers[base.name] if isinstance(base, Reg) else decoder.source(base or Imm(0, 0, "int"), "b64")
    site = decoder.program.sites[i.pc]
    generic = site.space == "generic"
    for k, space in enumerate(SPACES if generic else (site.space,)):
        record = sites[number + k]
        record["op"], record["space"] = ("ld", "st").index(site.op), SPACES.index(space)
        record["size"], record["count"], record["width"] = site.size, site.count, 8 if type_ == "f64" else 4
        record["offset"], record["values"], record["results"] = site.offset, NONE, NONE
        record["array_start"], record["array_size"] = site.start, site.array.size if site.array else NONE
    given = decoder.listed(_record(where, wide, generic, BITS.get(type_, 16), copies, places))
    kinds = (LOAD_FRAGMENT, STORE_FRAGMENT) if old else (LOAD_MATRICES, STORE_MATRICES)
    return {
        "kind": KIND["TENSOR"], "op": kinds[not loads], "a": start, "b": stride, "site": number, "target": given,
    }  # fmt: skip


def _warp_group(decoder: Any, i: Instruction, number: int) -> dict[str, Any]:
    """wgmma. What ptxas refuses is not checked."""
    out = {"kind": KIND["WGMMA"], "op": GROUPS.index(i.parts[1])}
    if i.parts[1] != "mma_async":
        count = i.operands[0] if i.operands else None
        return {**out, "target": int(count.value)} if isinstance(count, Imm) else out
    shape, sum_type, *types = i.parts[4:]
    target, a, b, scaled, *numbers = i.operands
    _, n, k = sizes_of(shape)
    known = {*types[:2]} <= {"s8", "u8"} if sum_type == "s32" else types in (["tf32"] * 2, ["f16"] * 2, ["bf16"] * 2)
    if not known or len(items(target)) != n // (4 if sum_type == "f16" else 2):
        raise unsupported(i)
    # Integers have no signs, and only 16-bit numbers can be transposed, in shared memory.
    values = [int(each.value) for each in numbers if isinstance(each, Imm)]
    signs, trans = values[:2] or [1, 1], [0, 0, *values[2:]][-2:]
    first = _registers(decoder, i, items(a), types[0]) if isinstance(a, Vec) else []
    lists = [_registers(decoder, i, items(target), sum_type), first, [], []]
    given = form((*types[:2], sum_type), (16, n, k), k, "".join(types[2:]), signs, trans, lists)
    places = {"b": decoder.source(b, "b64"), "c": decoder.source(scaled, "pred")}
    places |= {} if first else {"a": decoder.source(a, "b64")}
    return {**out, **places, "site": number, "target": decoder.listed(given)}
