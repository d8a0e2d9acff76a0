"""Rules for PTX instructions that are not one expression over their operands: memory accesses, which become calls of
the machine, and moves of vectors.

A rule gets the writer and the instruction. It returns False for a form (modifier, type) that it does not support, which
becomes an error that names the instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from worklog.emulator.async_rules import bulk, cluster, fence, mbarrier
from worklog.emulator.forms import BITS
from worklog.emulator.ptx import DTYPES, Imm, Instruction, Mem, Operand, Reg, Vec, elements
from worklog.emulator.tensor_rules import TENSOR_RULES, items

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

Rule = Callable[["Writer", Instruction], bool]

_MODIFIERS = {
    "weak", "relaxed", "volatile", "acquire", "release", "cta", "gpu", "sys",
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified",
    "L1::evict_normal", "L1::evict_last", "L1::evict_first", "L1::no_allocate", "L1::evict_unchanged",
    "L2::64B", "L2::128B", "L2::256B", "L2::evict_last", "L2::evict_first", "L2::evict_normal", "L2::cache_hint",
    "global", "shared", "local", "param", "const", "shared::cta", "shared::cluster", "cluster", "v2", "v4",
}  # fmt: skip
_ATOMIC_TYPES = ("u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64")
_ATOMICS = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}
_WITHOUT_EFFECT = (
    "prefetch", "prefetchu", "nanosleep", "griddepcontrol", "taken", "pmevent", "applypriority",
)  # fmt: skip
_COPIES = {"async", "ca", "cg", "shared", "shared::cta", "global", "L2::128B", "L2::64B", "L2::256B", "L2::cache_hint"}


def _operands(i: Instruction) -> tuple[Operand, ...]:
    """Without the policy of a cache hint."""
    return i.operands[: -1 if "L2::cache_hint" in i.parts else None]


def _ld(w: Writer, i: Instruction) -> bool:
    if set(i.parts[1:-1]) - _MODIFIERS or len(_operands(i)) != 2:
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
    if set(i.parts[1:-1]) - _MODIFIERS or "const" in i.parts or "param" in i.parts:
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
    operations = [part for part in i.parts if part in _ATOMICS]
    known = not set(i.parts[1:-1]) - _MODIFIERS - _ATOMICS - {"acq_rel"}
    if not known or len(operations) != 1 or type_ not in _ATOMIC_TYPES:
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
    """cp.async and its groups; the data arrive at the wait."""
    if i.parts[1] != "async" or i.parts[2] in ("bulk", "mbarrier"):
        return i.parts[1] == "async" and bulk(w, i)
    if "commit_group" in i.parts:
        w.lines.append(f"S.copies.commit({w.mask})")
    elif "wait_all" in i.parts:
        w.lines.append(f"S.copies.wait({w.mask}, -1)")
    elif "wait_group" in i.parts:
        count = i.operands[0]
        if not isinstance(count, Imm):
            return False
        w.lines.append(f"S.copies.wait({w.mask}, {int(count.value)})")
    else:
        target, source, _, *further = _operands(i)
        ignores_source = further and isinstance(further[0], Reg) and further[0].type == "pred"
        if set(i.parts[1:]) - _COPIES or ignores_source:
            return False
        size = w.source(further[0], "u32") if further else "None"
        w.lines.append(f"S.copies.issue({w.site()}, {w.address(target)}, {w.address(source)}, {size}, {w.mask})")
    return True


def _barrier(w: Writer, i: Instruction) -> bool:
    """Of a block, at the end of a block of code; or of a warp, whose lanes have met already."""
    kind, *rest = [part for part in i.parts[1:] if part not in ("cta", "aligned")] or [""]
    operands, predicate = list(i.operands), "None"
    if kind == "warp":
        return i.parts == ("bar", "warp", "sync") and len(operands) == 1
    if kind == "cluster":
        # The cluster is the block: arrivals are counted with the waits, of which there is one each.
        w.leaving = str(w.follow) if rest[0] == "arrive" else f"S.block.sync(m, {i.pc}, {w.follow})"
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
    if kind == "sync" and i.guard is None and operands == [Imm(0, 0, "int")]:
        w.leaving = f"S.block.sync(m, {i.pc}, {w.follow})"
        return True
    number, *count = (w.source(operand, "u32") for operand in operands)
    given = f"{w.mask}, {i.pc}, {w.follow}, {number}, {count[0] if count else None}, {predicate}"
    w.leaving = f"S.block.arrive(m, {given})"
    return True


def _printf(w: Writer, i: Instruction) -> bool:
    """A call of vprintf: the result, the format's address and the address of the arguments."""
    if i.parts != ("call", "vprintf") or len(i.operands) != 3:
        return False
    result, *addresses = i.operands
    call = f"S.printf({w.mask}, {', '.join(w.source(each, 'u64') for each in addresses)})"
    if isinstance(result, Reg):
        w.result(result, call, "u4")
    else:
        w.lines.append(call)
    return True


def _trap(w: Writer, i: Instruction) -> bool:
    """trap, brkpt, or a call of __assertfail: message, file, line, function, size of a character."""
    arguments = ", ".join(w.source(each, "u64") for each in i.operands[:1])
    w.lines.append(f"S.abort({i.pc}, {w.mask}, {arguments})")
    return i.parts in (("trap",), ("trap", "assert"), ("brkpt",))


def _nothing(w: Writer, i: Instruction) -> bool:
    """Prefetches and naps change no value."""
    return True


def _setmaxnreg(w: Writer, i: Instruction) -> bool:
    w.lines.append(f"S.set_registers({i.pc}, {w.mask}, {w.source(i.operands[0], 'u32')})")
    return True


def _createpolicy(w: Writer, i: Instruction) -> bool:
    """A cache policy only reaches cache hints, which the emulator ignores, so any number is right."""
    w.result(i.operands[0], w.constant(0, "u8"), "u8")
    return i.parts[-1] == "b64"


def _mov(w: Writer, i: Instruction) -> bool:
    """Packs two halves into a word, or unpacks them."""
    type_, (target, value) = i.parts[-1], i.operands
    half = f"b{int(type_[1:]) // 2}" if type_ in BITS else ""
    if len(i.parts) != 2 or half not in BITS:
        return False
    if isinstance(value, Vec) and len(value.items) == 2:
        low, high = (w.source(item, half) for item in value.items)
        w.result(target, f"joined({low}, {high})", DTYPES[type_])
    elif isinstance(target, Vec) and len(target.items) == 2:
        w.results(target.items, f"halves({w.source(value, type_)})", [DTYPES[half]] * 2)
    else:
        return False
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
    "mov": _mov,
    "call": _printf,
    **dict.fromkeys(("trap", "brkpt"), _trap),
    "mbarrier": mbarrier,
    **dict.fromkeys(("fence", "membar"), fence),
    **dict.fromkeys(("mapa", "getctarank"), cluster),
    **TENSOR_RULES,
    **dict.fromkeys(_WITHOUT_EFFECT, _nothing),
    "setmaxnreg": _setmaxnreg,
}
