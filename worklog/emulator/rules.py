"""Rules for PTX instructions that are not one expression over their operands: memory accesses, which become calls of
the machine.

A rule gets the writer and the instruction. It returns False for a form (modifier, type) that it does not support, which
becomes an error that names the instruction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from worklog.emulator.isa import ATOMIC_TYPES, ATOMICS, MODIFIERS, ROWS, elements
from worklog.emulator.ptx import DTYPES, Imm, Instruction, Mem, Operand, Reg, Vec
from worklog.emulator.tensor import BITS as WIDTHS
from worklog.emulator.tensor import SHAPES, Form, blocks_of, fragment, sizes_of
from worklog.emulator.writer import Writer

Rule = Callable[[Writer, Instruction], bool]

_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
_BULK = {
    "cp", "async", "bulk", "shared::cluster", "shared::cta", "global", "L2::cache_hint", "multicast::cluster",
    "cta_group::1",
}  # fmt: skip
_COPIES = {"async", "ca", "cg", "shared", "shared::cta", "global", "L2::128B", "L2::64B", "L2::256B", "L2::cache_hint"}


def _operands(i: Instruction) -> tuple[Operand, ...]:
    """Without the policy of a cache hint."""
    return i.operands[: -1 if "L2::cache_hint" in i.parts else None]


def _ld(w: Writer, i: Instruction) -> bool:
    if set(i.parts[1:-1]) - MODIFIERS or len(_operands(i)) != 2:
        return False
    (target, address), dtype = _operands(i), DTYPES[i.parts[-1]]
    targets = items(target)
    if len(targets) != elements(i):
        return False
    if "param" in i.parts and isinstance(address, Mem) and not isinstance(address.base, Reg):
        name, size = address.base.name if address.base else "", np.dtype(dtype).itemsize
        whole = next((param.size for param in w.program.kernel.params if param.name == name), 0)
        if not 0 <= address.offset <= whole - len(targets) * size:
            return False
        parts = [f"S.param({name!r}, {address.offset + k * size}, {dtype!r})" for k in range(len(targets))]
        w.results(targets, f"({', '.join(parts)},)", [dtype] * len(targets))
    else:
        w.results(targets, f"S.load({w.site()}, {w.address(address)}, {w.mask})", [dtype] * len(targets))
    return True


def _st(w: Writer, i: Instruction) -> bool:
    if set(i.parts[1:-1]) - MODIFIERS or "const" in i.parts or "param" in i.parts:
        return False
    address, values = _operands(i)
    sources = [w.source(value, i.parts[-1]) for value in items(values)]
    if len(sources) != elements(i):
        return False
    w.lines.append(f"S.store({w.site()}, {w.address(address)}, {w.mask}, ({', '.join(sources)},))")
    return True


def _atom(w: Writer, i: Instruction) -> bool:
    """atom and red: one lane after the other, in lane order, which is one of the orders that a GPU may take."""
    type_ = i.parts[-1]
    operations = [part for part in i.parts if part in ATOMICS]
    known = not set(i.parts[1:-1]) - MODIFIERS - ATOMICS - {"acq_rel"}
    if not known or len(operations) != 1 or type_ not in ATOMIC_TYPES:
        return False
    *targets, address = _operands(i)[: 2 if i.parts[0] == "atom" else 1]
    values = [w.source(x, type_) for operand in _operands(i)[len(targets) + 1 :] for x in items(operand)]
    if len(values) != (2 if operations == ["cas"] else elements(i)):
        return False
    call = f"S.atomic({w.site()}, {w.address(address)}, {w.mask}, {operations[0]!r}, ({', '.join(values)},))"
    if targets:
        w.results(items(targets[0]), call, [DTYPES[type_]] * len(items(targets[0])))
    else:
        w.lines.append(call)
    return True


def _cp(w: Writer, i: Instruction) -> bool:
    """A copy; the data arrive at the wait."""
    if len(i.operands) < 2 or "bulk" in i.parts:
        return len(i.operands) > 1 and _bulk(w, i)
    target, source, _, *further = _operands(i)
    ignores_source = further and isinstance(further[0], Reg) and further[0].type == "pred"
    if set(i.parts[1:]) - _COPIES or ignores_source:
        return False
    size = w.source(further[0], "u32") if further else "None"
    w.lines.append(f"S.copies.issue({w.site()}, {w.address(target)}, {w.address(source)}, {size}, {w.mask})")
    return True


def _bulk(w: Writer, i: Instruction) -> bool:
    """A bulk copy between global memory, or a tensor map with coordinates, and shared memory."""
    words, dimensions = {*i.parts} - _BULK, [part for part in i.parts if part in _DIMENSIONS]
    tensor = bool(dimensions)
    if words - {*_DIMENSIONS, "tensor", "tile"} == {"prefetch", "L2"}:
        return "global" in i.parts
    spaces = [part.split("::")[0] for part in i.parts if part.split("::")[0] in ("global", "shared")]
    words -= {"tensor", "tile", *dimensions}
    load = spaces == ["shared", "global"] and words == {"mbarrier::complete_tx::bytes"}
    if not load and (spaces != ["global", "shared"] or words != {"bulk_group"}):
        return False
    # Of a tensor map, the coordinates follow its address.
    near, far, which = i.operands[:3] if load else (i.operands[2 if tensor else 1], *i.operands[:2])
    if not load and not tensor:
        which = i.operands[2]
    counts = which.items if isinstance(which, Vec) else (which,)
    if not isinstance(far, Mem) or (tensor and len(counts) != int(dimensions[0][0])):
        return False
    places = [w.place(near), f"({w.address(far)} + np.uint64({far.offset % 2**64}))"]
    places += [w.place(i.operands[3])] if load else []
    numbers = [w.source(each, "u32") for each in counts]
    call = "load" if load else "store"
    w.lines.append(f"S.bulk.{call}({', '.join((w.site(), w.mask, str(tensor), *places, *numbers))})")
    # A multicast must go to the only block of the cluster.
    mask = i.operands[-2 if "L2::cache_hint" in i.parts else -1]
    return "multicast::cluster" not in i.parts or (isinstance(mask, Imm) and mask.value == 1)


def _barrier(w: Writer, i: Instruction) -> bool:
    """Of a block, at the end of a block of code; or of a warp, whose lanes have met already."""
    kind, *rest = [part for part in i.parts[1:] if part not in ("cta", "aligned")] or [""]
    operands, predicate = list(i.operands), "None"
    if kind == "cluster":
        # The cluster is the block: arrivals are counted with the waits, of which there is one each.
        number = w.constant(0, "u4")
        w.leaving = str(w.follow) if rest[0] == "arrive" else f"S.block.arrive(m, m, {i.pc}, {w.follow}, {number})"
        return i.guard is None and w.follow >= 0 and rest[0] in ("arrive", "wait")
    if kind == "red":
        target, *operands = operands
        wanted = ("pred",) if rest[-1] == "pred" else ("u32", "s32", "b32")
        if not isinstance(target, Reg) or target.type not in wanted:
            return False
        predicate = w.source(operands.pop(), "pred")
    forms = (["popc", "u32"], ["and", "pred"], ["or", "pred"]) if kind == "red" else ([],)
    if kind not in ("sync", "arrive", "red") or rest not in forms or not (kind == "arrive") < len(operands) < 3:
        return False
    number, *count = (w.source(operand, "u32") for operand in operands)
    given = f"{w.mask}, {i.pc}, {w.follow}, {number}, {count[0] if count else None}, {predicate}"
    w.leaving = f"S.block.arrive(m, {given})"
    return True


def _createpolicy(w: Writer, i: Instruction) -> bool:
    """A cache policy only reaches cache hints, which the emulator ignores, so any number is right."""
    w.result(i.operands[0], w.constant(0, "u8"), "u8")
    return i.parts[-1] == "b64"


_SHARED = {"shared", "shared::cta"}


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """The elements of a vector, or the operand alone."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def _register(type_: str) -> str:
    """NumPy's name of the dtype of a fragment's registers."""
    return "u8" if type_ == "f64" else "u4"


def _words(w: Writer, operands: tuple[Operand | None, ...], type_: str = "f32") -> str:
    return "".join(f"{w.source(each, 'b64' if type_ == 'f64' else 'b32')}, " for each in operands)


def _counts(shape: str, type_: str, matrix: str, old: bool) -> tuple[int, int]:
    """Registers of a fragment, and how often it holds each: wmma has 8 for A and B of f16 in every shape."""
    lines, more = blocks_of(shape, type_, matrix)
    count = lines * more * (2 if matrix in "cd" and WIDTHS[type_] > 16 else 1)
    return count, 8 // count if old and type_ == "f16" and matrix in "ab" else 1


def mma(w: Writer, i: Instruction) -> bool:
    """mma.sync and wmma.mma; wmma of f16 names the types of C and D only."""
    old, how = i.parts[0] == "wmma", {*i.parts} & {"satfinite", "rn", "and", "xor", "popc"}
    named = {"wmma", "mma", "sync", "aligned", "row", "col", *how}
    shape, *types = [part for part in i.parts if part not in named]
    types = [types[0], "f16", "f16", types[1]] if old and len(types) == 2 else types
    d, *kinds = types
    a, b, c = kinds
    shapes, sums = SHAPES[a][old].split(), SHAPES[a][2].split()
    if shape not in shapes or c not in sums or d != c:
        return False
    target, *sources = map(items, i.operands)
    counts = [_counts(shape, type_, matrix, old) for type_, matrix in zip(kinds, "abc", strict=True)]
    m, n, k = sizes_of(shape)
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
    line = f"{w.source(stride, 'u32')}.astype('i8') * {WIDTHS[type_]} // 8"
    given = f"{i.pc}, {w.site()}, {w.address(address)}, {w.mask}, {line}, {w.named(form)}"
    if what == "load":
        call = f"S.tensor.load_fragment({given}) * {copies}"
        w.results(items(registers), call, [_register(type_)] * len(items(registers)))
    else:
        w.lines.append(f"S.tensor.store_fragment({given}, ({_words(w, items(registers), type_)}))")
    return what in ("load", "store")


def _warp_group(w: Writer, i: Instruction) -> bool:
    """wgmma.mma_async. What ptxas refuses is not checked."""
    if i.parts[1] != "mma_async":
        return False
    shape, sum_type, *types = i.parts[4:]
    target, a, b, scaled, *numbers = i.operands
    _, n, k = sizes_of(shape)
    known = {*types[:2]} <= {"s8", "u8"} if sum_type == "s32" else types in (["tf32"] * 2, ["f16"] * 2, ["bf16"] * 2)
    if not known or len(items(target)) != n // (4 if sum_type == "f16" else 2):
        return False
    # Integers have no signs, and only 16-bit numbers can be transposed, in shared memory.
    values = [int(each.value) for each in numbers if isinstance(each, Imm)]
    signs, (first, second) = values[:2] or [1, 1], [0, 0, *values[2:]][-2:]
    how = (types[0], types[1], sum_type, 16, n, k, "".join(types[2:]), (signs[0], signs[1]), (first == 1, second == 1))
    left = f"({_words(w, items(a))})" if isinstance(a, Vec) else w.source(a, "b64")
    given = f"{w.site()}, {w.named(Form(*how))}, {w.mask}, {left}, {w.source(b, 'b64')}, {w.source(scaled, 'pred')}"
    w.results(items(target), f"S.wgmma.mma({given}, ({_words(w, items(target))}))", ["u4"] * len(items(target)))
    return True


# By the first part of the opcode. What a rule does not support may still have a row in the table of forms.
RULES: dict[str, Rule] = {
    "ld": _ld,
    "st": _st,
    "atom": _atom,
    "red": _atom,
    "cp": _cp,
    **dict.fromkeys(("bar", "barrier"), _barrier),
    "createpolicy": _createpolicy,
    **dict.fromkeys(("ldmatrix", "stmatrix"), _matrices),
    "mma": mma,
    "wgmma": _warp_group,
    "wmma": _wmma,
    **{name: lambda w, i: True for name, row in ROWS.items() if "none" in row.effects},
}
