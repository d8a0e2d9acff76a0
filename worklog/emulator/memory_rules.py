"""Rules for PTX instructions that access memory: they become calls of the machine, which checks and counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worklog.emulator.forms import FLOATS
from worklog.emulator.ptx import DTYPES, Imm, Instruction, Mem, Reg, Vec
from worklog.emulator.rules import Rule

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

_MODIFIERS = {
    "weak", "relaxed", "volatile", "acquire", "release", "cta", "gpu", "sys",
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified",
    "L1::evict_normal", "L1::evict_last", "L1::evict_first", "L1::no_allocate", "L1::evict_unchanged",
    "L2::64B", "L2::128B", "L2::256B", "L2::evict_last", "L2::evict_first", "L2::evict_normal", "L2::cache_hint",
    "global", "shared", "local", "param", "const", "shared::cta", "v2", "v4",
}  # fmt: skip
_ATOMIC_TYPES = ("u32", "s32", "b32", "u64", "s64", "b64", *FLOATS)
_ATOMICS = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}
_COPIES = {"async", "ca", "cg", "shared", "shared::cta", "global", "L2::128B", "L2::64B", "L2::256B", "L2::cache_hint"}


def _ld(w: Writer, i: Instruction) -> bool:
    type_, (target, address) = i.parts[-1], i.operands[:2]
    if set(i.parts[1:-1]) - _MODIFIERS or len(i.operands) != 2 + ("L2::cache_hint" in i.parts):
        return False
    if "param" in i.parts:
        if not isinstance(address, Mem) or isinstance(address.base, Reg):
            return False
        name = address.base.name if address.base else ""
        w.result(target, f"S.param({name!r}, {address.offset}, {DTYPES[type_]!r})", DTYPES[type_])
        return True
    base, _ = w.address(address)
    call = f"S.load({w.site()}, {base}, {w.mask})"
    if isinstance(target, Vec):
        w.results(target.items, call, [DTYPES[type_]] * len(target.items))
    else:
        w.result(target, f"{call}[0]", DTYPES[type_])
    return True


def _st(w: Writer, i: Instruction) -> bool:
    if set(i.parts[1:-1]) - _MODIFIERS or "const" in i.parts or "param" in i.parts:
        return False
    base, _ = w.address(i.operands[0])
    values = i.operands[1].items if isinstance(i.operands[1], Vec) else (i.operands[1],)
    sources = [w.source(value, i.parts[-1]) for value in values]
    w.statement(f"S.store({w.site()}, {base}, {w.mask}, ({', '.join(sources)},))")
    return True


def _atom(w: Writer, i: Instruction) -> bool:
    """atom and red: one lane after the other, in lane order, which is one of the orders that a GPU may take."""
    type_ = i.parts[-1]
    operations = [part for part in i.parts if part in _ATOMICS]
    known = not set(i.parts[1:-1]) - _MODIFIERS - _ATOMICS - {"acq_rel"}
    if not known or len(operations) != 1 or type_ not in _ATOMIC_TYPES:
        return False
    result = i.parts[0] == "atom"
    base, _ = w.address(i.operands[int(result)])
    further = i.operands[1 + int(result) : -1 if "L2::cache_hint" in i.parts else None]
    items = [item for operand in further for item in (operand.items if isinstance(operand, Vec) else (operand,))]
    values = [w.source(item, type_) for item in items]
    call = f"S.atomic({w.site()}, {base}, {w.mask}, {operations[0]!r}, ({', '.join(values)},))"
    if not result:
        w.statement(call)
    elif isinstance(i.operands[0], Vec):
        w.results(i.operands[0].items, call, [DTYPES[type_]] * len(i.operands[0].items))
    else:
        w.result(i.operands[0], f"{call}[0]", DTYPES[type_])
    return True


def _cp(w: Writer, i: Instruction) -> bool:
    """cp.async and its groups; the data arrive at the wait."""
    if i.parts[1] != "async" or "bulk" in i.parts or "mbarrier" in i.parts:
        return False
    if "commit_group" in i.parts:
        w.statement(f"S.copies.commit({w.mask})")
    elif "wait_all" in i.parts:
        w.statement(f"S.copies.wait({w.mask}, -1)")
    elif "wait_group" in i.parts:
        count = i.operands[0]
        if not isinstance(count, Imm):
            return False
        w.statement(f"S.copies.wait({w.mask}, {int(count.value)})")
    else:
        if set(i.parts[1:]) - _COPIES:
            return False
        target, _ = w.address(i.operands[0])
        source, offset = w.address(i.operands[1])
        further = i.operands[3 : -1 if "L2::cache_hint" in i.parts else None]
        if further and isinstance(further[0], Reg) and further[0].type == "pred":
            return False
        size = w.source(further[0], "u32") if further else "None"
        w.statement(f"S.copies.issue({w.site()}, {target}, {source}, {offset}, {size}, {w.mask})")
    return True


def _warp_barrier(w: Writer, i: Instruction) -> bool:
    """bar.warp.sync; block barriers end a block of code and are written there."""
    if i.parts != ("bar", "warp", "sync"):
        return False
    w.statement(f"S.warp_barrier({i.pc}, {w.source(i.operands[0], 'b32')}, {w.mask})")
    return True


def _nothing(w: Writer, i: Instruction) -> bool:
    """Fences order memory between threads, which lockstep lanes do not need; prefetches and naps change no value."""
    return i.parts[0] != "fence" or "proxy" not in i.parts


MEMORY_RULES: dict[str, Rule] = {
    "ld": _ld,
    "st": _st,
    "atom": _atom,
    "red": _atom,
    "cp": _cp,
    "bar": _warp_barrier,
    **dict.fromkeys(("membar", "fence", "prefetch", "prefetchu", "nanosleep", "griddepcontrol", "taken"), _nothing),
}
