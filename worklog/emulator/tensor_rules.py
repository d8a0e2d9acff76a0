"""Rules for tensor-core instructions of a warp. PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from worklog.emulator.ptx import Imm, Instruction, Operand, Reg, Vec
from worklog.emulator.tensor import BITS, Form, Places, places_of

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

# By the type of A: shapes of mma and of wmma, and types of C and D.
_SHAPES = {
    "f64": ("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "m8n8k4", "f64"),
    "tf32": ("m16n8k4 m16n8k8", "m16n16k8", "f32"),
    "f16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32 f16"),
    "bf16": ("m16n8k8 m16n8k16", "m16n16k16 m8n32k16 m32n8k16", "f32"),
    **dict.fromkeys(("s8", "u8"), ("m8n8k16 m16n8k16 m16n8k32", "m16n16k16 m8n32k16 m32n8k16", "s32")),
    **dict.fromkeys(("s4", "u4"), ("m8n8k32 m16n8k32 m16n8k64", "m8n8k32", "s32")),
    "b1": ("m8n8k128 m16n8k128 m16n8k256", "m8n8k128", "s32"),
}
# What else an mma's opcode may have, by the type of A.
_HOW = {
    "f64": ({"rn"}, set[str]()),
    "b1": ({"and", "popc"}, {"xor", "popc"}),
    **dict.fromkeys(("s8", "u8", "s4", "u4"), ({"satfinite"}, set[str]())),
}
_SHARED = {"shared", "shared::cta"}


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """The elements of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def _register(type_: str) -> str:
    """NumPy's name of the dtype of a fragment's registers."""
    return "u8" if type_ == "f64" else "u4"


def _words(w: Writer, operands: tuple[Operand | None, ...], type_: str = "f32") -> str:
    return "".join(f"{w.source(each, 'b64' if type_ == 'f64' else 'b32')}, " for each in operands)


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = (int(number) for number in re.findall(r"\d+", shape))
    return m, n, k


def _blocks(shape: str, type_: str, matrix: str) -> tuple[int, int]:
    """Of a fragment, as for places_of: blocks of 8 rows, or of 8 columns of B, and blocks in the other direction."""
    m, n, k = _sizes(shape)
    return (n if matrix == "b" else m) // 8, n // 8 if matrix in "cd" else k // 4 // max(1, 32 // BITS[type_])


def _counts(shape: str, type_: str, matrix: str, old: bool) -> tuple[int, int]:
    """Registers of a fragment, and how often it holds each: wmma has 8 for A and B of f16 in every shape."""
    lines, more = _blocks(shape, type_, matrix)
    count = lines * more * (2 if matrix in "cd" and BITS[type_] > 16 else 1)
    return count, 8 // count if old and type_ == "f16" and matrix in "ab" else 1


def mma(w: Writer, i: Instruction) -> bool:
    """mma.sync and wmma.mma; wmma of f16 names the types of C and D only."""
    old, how = i.parts[0] == "wmma", {*i.parts} & {"satfinite", "rn", "and", "xor", "popc"}
    layouts = [part for part in i.parts if part in ("row", "col")]
    named = {"wmma", "mma", "sync", "aligned", "row", "col", *how}
    shape, *types = [part for part in i.parts if part not in named]
    types = [types[0], "f16", "f16", types[1]] if old and len(types) == 2 else types
    d, *kinds = types
    a, b, c = kinds
    free = len(layouts) == 2 and old and BITS[a] > 4  # to lie by rows or by columns
    shapes, sums = _SHAPES[a][old].split(), _SHAPES[a][2].split()
    if shape not in shapes or c not in sums or d != c or how not in _HOW.get(a, (set(),)):
        return False
    if not (free or layouts == ["row", "col"]) or (a != b and {a, b} not in ({"s8", "u8"}, {"s4", "u4"})):
        return False
    target, *sources = map(items, i.operands)
    counts = [_counts(shape, type_, matrix, old) for type_, matrix in zip(kinds, "abc", strict=True)]
    if [*map(len, sources)] != [count * copies for count, copies in counts] or len(target) != counts[2][0]:
        return False
    m, n, k = _sizes(shape)
    # In the machine code of sm_90, wmma with TF32 is two instructions.
    form = w.named(Form(a, b, c, m, n, 4 if old and a == "tf32" else k, "".join(how - {"popc", "rn"})))
    own = (_words(w, source[:n], type_) for source, (n, _), type_ in zip(sources, counts, kinds, strict=True))
    call = f"S.tensor.mma({i.pc}, {form}, {w.mask}, ({'), ('.join(own)}))"
    w.results(target, call, [_register(c)] * len(target))
    return True


def _matrices(w: Writer, i: Instruction) -> bool:
    """ldmatrix and stmatrix of 8 x 8 matrices of 16-bit elements."""
    words = {*i.parts[3:]} - _SHARED
    number = sum({"x1": 1, "x2": 2, "x4": 4}.get(word, 0) for word in words)
    if i.parts[1:3] != ("sync", "aligned") or words - {"m8n8", "x1", "x2", "x4", "trans", "b16"} or "b16" not in words:
        return False
    loads, trans = i.parts[0] == "ldmatrix", "trans" in words
    registers, address = i.operands if loads else i.operands[::-1]
    place = f"{i.pc}, {w.site()}, {w.address(address)}, {w.mask}"
    if len(items(registers)) != number:
        return False
    if loads:
        w.results(items(registers), f"S.tensor.load({place}, {number}, {trans})", ["u4"] * number)
    else:
        w.lines.append(f"S.tensor.store({place}, ({_words(w, items(registers))}), {trans})")
    return True


def _movmatrix(w: Writer, i: Instruction) -> bool:
    w.result(i.operands[0], f"S.tensor.transpose({i.pc}, {w.mask}, {w.source(i.operands[1], 'b32')})", "u4")
    return i.parts == ("movmatrix", "sync", "aligned", "m8n8", "trans", "b16")


def fragment(i: Instruction) -> Places:
    """Of a wmma.load or a wmma.store. Raises LookupError for one that the emulator doesn't have."""
    matrix, layout, shape, type_ = i.parts[2], *i.parts[5:7], i.parts[-1]
    forms = ((kind, sums.split()) for kind, (_, shapes, sums) in _SHAPES.items() if shape in shapes.split())
    if not any(type_ in sums if matrix in "cd" else type_ == kind for kind, sums in forms):
        raise LookupError(type_)
    return places_of(matrix, layout, type_, *_blocks(shape, type_, matrix))


def _wmma(w: Writer, i: Instruction) -> bool:
    """wmma.load, wmma.store and wmma.mma."""
    if i.parts[1] == "mma":
        return mma(w, i)
    (what, matrix), (layout, shape), type_ = i.parts[1:3], i.parts[5:7], i.parts[-1]
    further, form = {*i.parts[7:-1]} - _SHARED - {"global"}, fragment(i)
    if further or i.parts[3:5] != ("sync", "aligned") or layout not in ("row", "col") or not form.size:
        return False
    registers, address, stride = i.operands if what == "load" else (i.operands[1], i.operands[0], i.operands[2])
    count, copies = _counts(shape, type_, matrix, True)
    if len(items(registers)) != count * copies:
        return False
    line = f"{w.source(stride, 'u32')}.astype('i8') * {BITS[type_]} // 8"
    given = f"{i.pc}, {w.site()}, {w.address(address)}, {w.mask}, {line}, {w.named(form)}"
    if what == "load":
        call = f"S.tensor.load_fragment({given}) * {copies}"
        w.results(items(registers), call, [_register(type_)] * len(items(registers)))
    else:
        w.lines.append(f"S.tensor.store_fragment({given}, ({_words(w, items(registers), type_)}))")
    return what in ("load", "store")


def _wgmma(w: Writer, i: Instruction) -> bool:
    """wgmma.mma_async and what orders it."""
    what, *how = i.parts[1:]
    if what == "mma_async":
        return _warp_group(w, i)
    calls = {"fence": "fence({mask})", "commit_group": "commit({mask})", "wait_group": "wait({mask}, {count})"}
    count = [operand.value for operand in i.operands if isinstance(operand, Imm)]
    if how != ["sync", "aligned"] or what not in calls or [len(count), len(i.operands)] != [what == "wait_group"] * 2:
        return False
    w.lines.append(f"S.wgmma.{calls[what].format(mask=w.mask, count=count[0] if count else 0)}")
    return True


def _warp_group(w: Writer, i: Instruction) -> bool:
    shape, sum_type, *types = i.parts[4:]
    target, a, b, scaled, *numbers = i.operands
    _, n, k = _sizes(shape)
    values, in_registers = [int(each.value) for each in numbers if isinstance(each, Imm)], isinstance(a, Vec)
    signs, trans, how = values[:2] or [1, 1], values[2:], "".join(types[2:])
    # Integers have no signs, and only 16-bit numbers can be transposed, in shared memory.
    integers, short = sum_type == "s32", types[0] in ("f16", "bf16")
    wanted = 0 if integers else 2 + (2 - in_registers) * short
    known = {*types[:2]} <= {"s8", "u8"} if integers else types in (["tf32"] * 2, ["f16"] * 2, ["bf16"] * 2)
    if not known or sum_type not in _SHAPES[types[0]][2].split() or how not in ("", "satfinite")[: 1 + integers]:
        return False
    count = n // (4 if sum_type == "f16" else 2)
    least = 16 if integers and n > 32 else 8  # PTX ISA, "wgmma.mma_async", the shapes of each type
    if i.parts[2:4] != ("sync", "aligned") or shape != f"m64n{n}k{256 // BITS[types[0]]}":
        return False
    if n % least or not 8 <= n <= 256:
        return False
    if [len(values), len(numbers)] != [wanted] * 2 or {*signs} - {1, -1} or {*trans} - {0, 1}:
        return False
    if len(items(target)) != count or not isinstance(scaled, Reg | Imm) or (in_registers and len(items(a)) != 4):
        return False
    first, second = [0, 0, *trans][-2:]
    form = w.named(Form(types[0], types[1], sum_type, 16, n, k, how, (signs[0], signs[1]), (first == 1, second == 1)))
    left = f"({_words(w, items(a))})" if in_registers else w.source(a, "b64")
    given = f"{w.site()}, {form}, {w.mask}, {left}, {w.source(b, 'b64')}, {w.source(scaled, 'pred')}"
    w.results(items(target), f"S.wgmma.mma({given}, ({_words(w, items(target))}))", ["u4"] * count)
    return True


# By the first part of the opcode, as worklog.emulator.rules.RULES.
TENSOR_RULES = {
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrices),
    "mma": mma,
    "movmatrix": _movmatrix,
    "wgmma": _wgmma,
    "wmma": _wmma,
}
