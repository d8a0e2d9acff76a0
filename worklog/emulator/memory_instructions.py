"""The rules for PTX instructions that reach beyond their thread: memory, asynchronous copies, other lanes.

They become calls of the machine, which checks and counts what they do. Rules are as in worklog.emulator.instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worklog.emulator.instructions import DTYPE, FLOATS, Rule
from worklog.emulator.ptx import Imm, Instruction, Mem, Reg, Vec

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

_QUALIFIERS = {
    "weak", "relaxed", "volatile", "acquire", "release", "cta", "gpu", "sys",
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified",
    "L1::evict_normal", "L1::evict_last", "L1::evict_first", "L1::no_allocate", "L1::evict_unchanged",
    "L2::64B", "L2::128B", "L2::256B", "L2::evict_last", "L2::evict_first", "L2::evict_normal", "L2::cache_hint",
}  # fmt: skip
SPACES = ("global", "shared", "local", "param", "const", "shared::cta")


def _modifiers_known(i: Instruction, further: tuple[str, ...] = ()) -> bool:
    text = i.op.split(".")[1:-1]
    return all(part in _QUALIFIERS or part in SPACES or part in further for part in text)


def _ld(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if not _modifiers_known(i, ("v2", "v4")) or len(i.operands) != 2 + ("L2::cache_hint" in i.parts):
        return False
    base, _ = w.address(i.operands[1]) if "param" not in i.parts else ("", 0)
    if "param" in i.parts:
        address = i.operands[1]
        if not isinstance(address, Mem) or isinstance(address.base, Reg):
            return False
        name = address.base.name if address.base else ""
        w.result(i.operands[0], f"S.param({name!r}, {address.offset}, {DTYPE[type_]!r})", DTYPE[type_])
        return True
    if isinstance(i.operands[0], Vec):
        _results(w, i, f"S.load({w.site()}, {base}, {w.mask})", i.operands[0], type_)
        return True
    w.result(i.operands[0], f"S.load({w.site()}, {base}, {w.mask})[0]", DTYPE[type_])
    return True


def _results(w: Writer, i: Instruction, call: str, targets: Vec, type_: str) -> None:
    """Give several registers the arrays that a call returns."""
    locals_ = [f"x{i.pc}_{k}" for k in range(len(targets.items))]
    w.statement(f"{', '.join(locals_)} = {call}")
    for item, local in zip(targets.items, locals_, strict=True):
        if item is not None:
            w.result(item, local, DTYPE[type_])
    w.statement(f"del {', '.join(locals_)}")


def _st(w: Writer, i: Instruction) -> bool:
    type_ = i.parts[-1]
    if not _modifiers_known(i, ("v2", "v4")) or "const" in i.parts or "param" in i.parts:
        return False
    base, _ = w.address(i.operands[0])
    values = i.operands[1].items if isinstance(i.operands[1], Vec) else (i.operands[1],)
    sources = [w.source(value, type_) for value in values]
    w.statement(f"S.store({w.site()}, {base}, {w.mask}, ({', '.join(sources)},))")
    return True


_ATOMIC_TYPES = ("u32", "s32", "b32", "u64", "s64", "b64", *FLOATS)
_ATOMICS = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}


def _atom(w: Writer, i: Instruction) -> bool:
    """atom and red: one lane after the other, in lane order, which is one of the orders that a GPU may take."""
    type_ = i.parts[-1]
    operations = [part for part in i.parts if part in _ATOMICS]
    known = _modifiers_known(i, (*_ATOMICS, "acq_rel", "v2", "v4"))
    if not known or len(operations) != 1 or type_ not in _ATOMIC_TYPES:
        return False
    result = i.parts[0] == "atom"
    base, _ = w.address(i.operands[int(result)])
    further = i.operands[1 + int(result) : -1 if "L2::cache_hint" in i.parts else None]
    items = [item for operand in further for item in (operand.items if isinstance(operand, Vec) else (operand,))]
    values = [w.source(item, type_) for item in items]
    call = f"S.atomic({w.site()}, {base}, {w.mask}, {operations[0]!r}, ({', '.join(values)},))"
    if result and isinstance(i.operands[0], Vec):
        _results(w, i, call, i.operands[0], type_)
    elif result:
        w.result(i.operands[0], f"{call}[0]", DTYPE[type_])
    else:
        w.statement(call)
    return True


def _cp(w: Writer, i: Instruction) -> bool:
    """cp.async with its groups; the copy lands when it is waited for."""
    if i.parts[1] != "async" or "bulk" in i.parts or "mbarrier" in i.parts:
        return False
    if "commit_group" in i.parts:
        w.statement(f"S.commit({w.mask})")
    elif "wait_all" in i.parts:
        w.statement(f"S.wait({w.mask}, -1)")
    elif "wait_group" in i.parts:
        count = i.operands[0]
        if not isinstance(count, Imm):
            return False
        w.statement(f"S.wait({w.mask}, {int(count.value)})")
    else:
        known = {"async", "ca", "cg", "shared", "shared::cta", "global", "L2::128B", "L2::64B", "L2::256B"}
        if set(i.parts[1:]) - known - {"L2::cache_hint"}:
            return False
        target, _ = w.address(i.operands[0])
        source, offset = w.address(i.operands[1])
        further = i.operands[3 : -1 if "L2::cache_hint" in i.parts else None]
        if further and isinstance(further[0], Reg) and further[0].type == "pred":
            return False
        size = w.source(further[0], "u32") if further else "None"
        w.statement(f"S.copy({w.site()}, {target}, {source}, {offset}, {size}, {w.mask})")
    return True


def _has_form(i: Instruction, first: str, second: tuple[str, ...], third: tuple[str, ...]) -> bool:
    return len(i.parts) == 4 and i.parts[1] == first and i.parts[2] in second and i.parts[3] in third


def _shfl(w: Writer, i: Instruction) -> bool:
    if not _has_form(i, "sync", ("up", "down", "bfly", "idx"), ("b32",)):
        return False
    targets = i.operands[0].items if isinstance(i.operands[0], Vec) else (i.operands[0], None)
    a, b, c, members = (w.source(operand, "b32") for operand in i.operands[1:5])
    value, valid = f"x{i.pc}_0", f"x{i.pc}_1"
    w.statement(f"{value}, {valid} = S.shuffle({i.pc}, {i.parts[2]!r}, {a}, {b}, {c}, {members}, {w.mask})")
    for target, local, dtype in zip(targets, (value, valid), ("u4", "?"), strict=True):
        if target is not None:
            w.result(target, local, dtype)
    return True


def _vote(w: Writer, i: Instruction) -> bool:
    if not _has_form(i, "sync", ("any", "all", "uni", "ballot"), ("pred", "b32")):
        return False
    p, members = w.source(i.operands[1], "pred"), w.source(i.operands[2], "b32")
    dtype = "u4" if i.parts[2] == "ballot" else "?"
    w.result(i.operands[0], f"S.vote({i.pc}, {i.parts[2]!r}, {p}, {members}, {w.mask})", dtype)
    return True


def _redux(w: Writer, i: Instruction) -> bool:
    if not _has_form(i, "sync", ("add", "min", "max", "and", "or", "xor"), ("u32", "s32", "b32")):
        return False
    a, members = w.source(i.operands[1], i.parts[3]), w.source(i.operands[2], "b32")
    w.result(i.operands[0], f"S.reduce({i.pc}, {i.parts[2]!r}, {a}, {members}, {w.mask})", DTYPE[i.parts[3]])
    return True


def _match(w: Writer, i: Instruction) -> bool:
    if not _has_form(i, "any", ("sync",), ("b32", "b64")) and not _has_form(i, "all", ("sync",), ("b32", "b64")):
        return False
    targets = i.operands[0].items if isinstance(i.operands[0], Vec) else (i.operands[0], None)
    a, members = w.source(i.operands[1], i.parts[3]), w.source(i.operands[2], "b32")
    mask, same = f"x{i.pc}_0", f"x{i.pc}_1"
    w.statement(f"{mask}, {same} = S.match({i.pc}, {i.parts[1]!r}, {a}, {members}, {w.mask})")
    for target, local, dtype in zip(targets, (mask, same), ("u4", "?"), strict=True):
        if target is not None:
            w.result(target, local, dtype)
    return True


def _elect(w: Writer, i: Instruction) -> bool:
    """The lowest lane of those named, which is one that a GPU may take."""
    if i.parts != ("elect", "sync") or not isinstance(i.operands[0], Vec):
        return False
    leader, chosen = f"x{i.pc}_0", f"x{i.pc}_1"
    w.statement(f"{leader}, {chosen} = S.elect({i.pc}, {w.source(i.operands[1], 'b32')}, {w.mask})")
    for target, local, dtype in zip(i.operands[0].items, (leader, chosen), ("u4", "?"), strict=True):
        if target is not None:
            w.result(target, local, dtype)
    return True


def _createpolicy(w: Writer, i: Instruction) -> bool:
    """Which lines L2 should keep: a number that only cache hints take."""
    w.result(i.operands[0], w.constant(0, "u8"), "u8")
    return i.parts[-1] == "b64"


def _activemask(w: Writer, i: Instruction) -> bool:
    w.result(i.operands[0], f"S.active({w.mask})", "u4")
    return i.parts == ("activemask", "b32")


def _warp_barrier(w: Writer, i: Instruction) -> bool:
    """bar.warp.sync; the block barriers end a block and are emitted there."""
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
    "shfl": _shfl,
    "vote": _vote,
    "redux": _redux,
    "match": _match,
    "elect": _elect,
    "activemask": _activemask,
    "createpolicy": _createpolicy,
    "bar": _warp_barrier,
    **dict.fromkeys(("membar", "fence", "prefetch", "prefetchu", "nanosleep", "griddepcontrol", "taken"), _nothing),
}
