"""Rules for mbarriers, for the copies that complete on them or in bulk groups, and for clusters of one block.

PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier" and "Data Movement and Conversion
Instructions: Asynchronous copy".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worklog.emulator.forms import SHARED_WINDOW
from worklog.emulator.ptx import DTYPES, Imm, Instruction, Mem, Operand, Reg, Vec

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

_MODIFIERS = {
    "release", "acquire", "relaxed", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64",
}  # fmt: skip
# By mbarrier instruction: what each operand is (s a state that it gives, p a predicate, r a number that it gives, a the
# address, n a number, t a state that it takes, h a time), and the call, in which {n} stands for t, too.
_ARRIVE = "S.barriers.arrive({pc}, {a}, {mask}, {n}, None, {how})"
_EXPECT = "S.barriers.arrive({pc}, {a}, {mask}, {one}, {n}, {how})"
_WAIT = "S.barriers.wait({pc}, {a}, {mask}, {n}, {how})"
_MBARRIER: dict[str, tuple[tuple[str, ...], str]] = {
    "init": (("an",), "S.barriers.init({pc}, {a}, {mask}, {n})"),
    "inval": (("a",), "S.barriers.inval({pc}, {a}, {mask})"),
    "expect_tx": (("an",), "S.barriers.expect({pc}, {a}, {mask}, {n}, 1)"),
    "complete_tx": (("an",), "S.barriers.expect({pc}, {a}, {mask}, {n}, -1)"),
    "arrive": (("sa", "san"), _ARRIVE),
    "arrive.noComplete": (("san",), _ARRIVE),
    "arrive.expect_tx": (("san",), _EXPECT),
    "arrive_drop": (("sa", "san"), _ARRIVE),
    "arrive_drop.noComplete": (("san",), _ARRIVE),
    "arrive_drop.expect_tx": (("san",), _EXPECT),
    "test_wait": (("pat",), _WAIT),
    "test_wait.parity": (("pan",), _WAIT),
    "try_wait": (("pat", "path"), _WAIT),
    "try_wait.parity": (("pan", "panh"), _WAIT),
    "pending_count": (("rt",), "({n} & np.uint64(0xFFFFF)).astype('u4')"),
}
_RESULTS = {"s": "u8", "p": "?", "r": "u4"}
_TAKEN = {"n": "u32", "h": "u32", "t": "b64"}
_HINTS = {"L2::cache_hint", "multicast::cluster"}
_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
_BULK = {"cp", "async", "bulk", "shared::cluster", "shared::cta", "global", *_HINTS}


def _place(w: Writer, operand: Operand, *, generic: bool) -> str:
    """An address in shared memory as int64; a generic one outside of it becomes one that no block has."""
    address = w.address(operand)
    assert isinstance(operand, Mem)
    if generic and isinstance(operand.base, Reg):
        address = f"({address} ^ np.uint64({SHARED_WINDOW}))"
    elif isinstance(operand.base, Reg) and operand.base.type[1:] == "32":
        address = f"{address}.view('i4')"
    return f"({address}.astype('i8') + {operand.offset})"


def mbarrier(w: Writer, i: Instruction) -> bool:
    """mbarrier, in each form of the table."""
    words = [part for part in i.parts[1:] if part not in _MODIFIERS]
    forms, call = _MBARRIER.get(".".join(words), ((), ""))
    form = next((form for form in forms if len(form) == len(i.operands)), None)
    if form is None or i.parts[-1] != "b64":
        return False
    generic = not any(part.startswith("shared") for part in i.parts)
    how = {"relaxed", "parity", "noComplete"} & {*i.parts} | ({"drop"} if words[0] == "arrive_drop" else set())
    given = {"a": "", "n": w.constant(1, "u4"), "one": w.constant(1, "u4")}
    for kind, operand in zip(form, i.operands, strict=True):
        if kind == "a":
            given["a"] = _place(w, operand, generic=generic)
        elif kind in "nt":
            given["n"] = w.source(operand, _TAKEN[kind])
    text = call.format(pc=i.pc, mask=w.mask, how=f"frozenset({sorted(how)!r})", **given)
    if form[0] in _RESULTS and isinstance(i.operands[0], Reg):
        w.result(i.operands[0], text, _RESULTS[form[0]])
    else:
        w.lines.append(text)
    return True


def bulk(w: Writer, i: Instruction) -> bool:
    """cp.async.bulk, its groups, and cp.async.mbarrier.arrive."""
    words = {*i.parts} - _BULK
    if i.parts[2] == "mbarrier":
        if {*i.parts[3:]} - {"arrive", "noinc", "shared", "shared::cta", "b64"} or len(i.operands) != 1:
            return False
        address = _place(w, i.operands[0], generic=not any(part.startswith("shared") for part in i.parts))
        w.lines.append(f"S.barriers.track({i.pc}, {address}, {w.mask}, {'noinc' in i.parts})")
    elif words == {"commit_group"}:
        w.lines.append(f"S.bulk.commit({w.mask})")
    elif words in ({"wait_group"}, {"wait_group", "read"}) and isinstance(i.operands[0], Imm):
        w.lines.append(f"S.bulk.wait({w.mask}, {int(i.operands[0].value)})")
    elif words - {*_DIMENSIONS, "tensor", "tile"} == {"prefetch", "L2"} and "global" in i.parts:
        pass
    else:
        return _copy(w, i, words - {"cta_group::1"})
    return True


def _copy(w: Writer, i: Instruction, words: set[str]) -> bool:
    """A bulk copy between global memory, or a tensor map with coordinates, and shared memory."""
    tensor = i.parts[4] in _DIMENSIONS
    spaces = [part.split("::")[0] for part in i.parts if part.split("::")[0] in ("global", "shared")]
    if tensor:
        words = words - {"tensor", "tile", i.parts[4]}
    load = spaces == ["shared", "global"] and words == {"mbarrier::complete_tx::bytes"}
    if not load and (spaces != ["global", "shared"] or words != {"bulk_group"}):
        return False
    # Of a tensor map, the coordinates follow its address.
    near, far, which = i.operands[:3] if load else (i.operands[2 if tensor else 1], *i.operands[:2])
    if not load and not tensor:
        which = i.operands[2]
    counts = which.items if isinstance(which, Vec) else (which,)
    if not isinstance(far, Mem) or (tensor and len(counts) != int(i.parts[4][0])):
        return False
    places = [_place(w, near, generic=False), f"({w.address(far)} + np.uint64({far.offset % 2**64}))"]
    places += [_place(w, i.operands[3], generic=False)] if load else []
    numbers = [w.source(each, "u32") for each in counts]
    call = "load" if load else "store"
    w.lines.append(f"S.bulk.{call}({', '.join((w.site(), w.mask, str(tensor), *places, *numbers))})")
    # A multicast must go to the only block of the cluster.
    mask = i.operands[-2 if "L2::cache_hint" in i.parts else -1]
    return "multicast::cluster" not in i.parts or (isinstance(mask, Imm) and mask.value == 1)


def fence(w: Writer, i: Instruction) -> bool:
    """Fences change no value: lanes run in lockstep. What they order is checked."""
    if i.parts[1] != "proxy":
        w.lines.append(f"S.fence({w.mask}, {'cta' not in i.parts})")
    if i.op == "fence.mbarrier_init.release.cluster":
        w.lines.append(f"S.barriers.fence({w.mask}, True)")
    elif i.parts[1:3] == ("proxy", "async"):
        w.lines.append(f"S.barriers.fence({w.mask}, False)")
    return i.parts[1] != "proxy" or i.parts[2] in ("async", "alias")


def cluster(w: Writer, i: Instruction) -> bool:
    """mapa, the address of a variable in a block of the cluster: the same one, as the cluster has one block; and
    getctarank, the number of the block that an address belongs to.
    """
    if i.parts[0] == "mapa":
        w.lines.append(f"S.barriers.rank({i.pc}, {w.source(i.operands[2], 'u32')}, {w.mask})")
        w.result(i.operands[0], w.source(i.operands[1], i.parts[-1]), DTYPES[i.parts[-1]])
    else:
        w.result(i.operands[0], w.constant(0, "u4"), "u4")
    return i.parts[-1] in ("u32", "u64")
