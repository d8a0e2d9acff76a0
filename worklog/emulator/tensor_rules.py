"""Rules for tensor-core instructions of a warp. PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from worklog.emulator.ptx import Imm, Instruction, Operand, Reg, Vec
from worklog.emulator.wgmma import Form

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

# By shape and type of A and B: the K of one sum. In the machine code of sm_90, wmma with TF32 is two instructions.
_STEPS = {
    ("m16n8k4", "tf32"): 4, ("m16n8k8", "tf32"): 8, ("m16n16k8", "tf32"): 4,
    ("m16n8k8", "f16"): 8, ("m16n8k16", "f16"): 16, ("m16n16k16", "f16"): 16,
    ("m16n8k8", "bf16"): 8, ("m16n8k16", "bf16"): 16, ("m16n16k16", "bf16"): 16,
}  # fmt: skip
_SHARED = {"shared", "shared::cta"}


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """The elements of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def _words(w: Writer, operands: tuple[Operand | None, ...]) -> str:
    return "".join(f"{w.source(each, 'b32')}, " for each in operands)


def _count(shape: str, type_: str, matrix: str) -> int:
    """Registers of a fragment."""
    m, n, k = (int(number) for number in shape[1:].replace("n", " ").replace("k", " ").split())
    size = 4 if type_ in ("f32", "tf32") else 2
    return {"a": m * k, "b": k * n, "c": m * n}[matrix] * size // 128


def mma(w: Writer, i: Instruction) -> bool:
    """mma.sync and wmma.mma; wmma of f16 names the types of C and D only, and its A and B have each word twice."""
    old = i.parts[0] == "wmma"
    shape, types = (i.parts[6], i.parts[7:]) if old else (i.parts[3], i.parts[6:])
    types = (types[0], "f16", "f16", types[1]) if old and len(types) == 2 else types
    d, a, b, c = types
    layouts = i.parts[4:6] if old else ("row", "col")
    head = ("wmma", "mma", "sync", "aligned", *layouts, shape) if old else ("mma", "sync", "aligned", shape, *layouts)
    if (shape, a) not in _STEPS or a != b or d != c or c not in (("f32", "f16") if a == "f16" else ("f32",)):
        return False
    target, *sources = map(items, i.operands)
    doubled = 2 if old and a == "f16" else 1
    counts = [_count(shape, type_, matrix) for type_, matrix in ((a, "a"), (a, "b"), (c, "c"))]
    given = [len(sources[0]) // doubled, len(sources[1]) // doubled, len(sources[2])]
    if i.parts[: len(head)] != head or given != counts or len(target) != counts[2] or not {*layouts} <= {"row", "col"}:
        return False
    form = (a, c, _STEPS[shape, a], 16 if old else 8)
    words = ", ".join(f"({_words(w, source[:n])})" for source, n in zip(sources, counts, strict=True))
    w.results(target, f"S.tensor.mma({i.pc}, {form}, {w.mask}, {words})", ["u4"] * len(target))
    return True


def _matrices(w: Writer, i: Instruction) -> bool:
    """ldmatrix and stmatrix of 8 x 8 matrices of 16-bit elements."""
    words = {*i.parts[3:]} - _SHARED
    number = {"x1": 1, "x2": 2, "x4": 4}[next(iter(words & {"x1", "x2", "x4"}))]
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


def _wmma(w: Writer, i: Instruction) -> bool:
    """wmma.load, wmma.store and wmma.mma."""
    if i.parts[1] == "mma":
        return mma(w, i)
    (what, matrix), (layout, shape), type_ = i.parts[1:3], i.parts[5:7], i.parts[-1]
    sums = type_ == "f32" or (shape, type_) == ("m16n16k16", "f16")
    known = shape[:6] == "m16n16" and (sums if matrix in "cd" else (shape, type_) in _STEPS)
    further = {*i.parts[7:-1]} - _SHARED - {"global"}
    if not known or further or i.parts[3:5] != ("sync", "aligned") or layout not in ("row", "col"):
        return False
    registers, address, stride = i.operands if what == "load" else (i.operands[1], i.operands[0], i.operands[2])
    doubled = 2 if type_ == "f16" and matrix in "ab" else 1
    if len(items(registers)) != doubled * _count(shape, type_, "c" if matrix == "d" else matrix):
        return False
    size = 4 if type_ in ("f32", "tf32") else 2
    given = f"{i.pc}, {w.site()}, {w.address(address)}, {w.mask}, {w.source(stride, 'u32')}.astype('i8') * {size}, "
    given += f"places_of({matrix!r}, {layout!r}, {type_!r})"
    if what == "load":
        w.results(items(registers), f"S.tensor.load_fragment({given}) * {doubled}", ["u4"] * len(items(registers)))
    else:
        w.lines.append(f"S.tensor.store_fragment({given}, ({_words(w, items(registers))}))")
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
    shape, sum_type, type_, other = i.parts[4:]
    target, a, b, scaled, *numbers = i.operands
    found = re.fullmatch(r"m64n(\d+)k(8|16)", shape)
    if found is None or i.parts[2:4] != ("sync", "aligned") or type_ != other or type_ not in ("tf32", "f16", "bf16"):
        return False
    columns, in_registers = int(found[1]), isinstance(a, Vec)
    wanted = 2 + (0 if type_ == "tf32" else 1 if in_registers else 2)
    values = [int(each.value) for each in numbers if isinstance(each, Imm)]
    signs, trans = values[:2], [False] * (4 - wanted) + [each == 1 for each in values[2:]]
    if sum_type not in (("f32", "f16") if type_ == "f16" else ("f32",)) or (found[2] == "8") != (type_ == "tf32"):
        return False
    count = columns // (2 if sum_type == "f32" else 4)
    if columns % 8 or not 8 <= columns <= 256 or len(values) != wanted or {*signs} - {1, -1} or {*values[2:]} - {0, 1}:
        return False
    if len(items(target)) != count or not isinstance(scaled, Reg | Imm) or (in_registers and len(items(a)) != 4):
        return False
    form = f"form{i.pc}"
    w.constants[form] = Form(type_, sum_type, columns, (signs[0], signs[1]), (trans[0], trans[1]))
    first = f"({_words(w, items(a))})" if in_registers else w.source(a, "b64")
    given = f"{w.site()}, {form}, {w.mask}, {first}, {w.source(b, 'b64')}, {w.source(scaled, 'pred')}"
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
