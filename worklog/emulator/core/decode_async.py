"""Decodes asynchronous copies and mbarriers for async.h."""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.emulator.copies import LAYOUTS
from worklog.emulator.core.records import enum
from worklog.emulator.isa import register_dtype, unsupported
from worklog.emulator.ptx import Array, Imm, Instruction, Mem, Operand, Reg, Vec

KIND, OPS, NONE = enum("kind"), enum("async"), -1
WIDE, GENERIC = 1, 2
DROPS, RELAXED, NO_COMPLETE, PARITY, COUNTED, COMPLETES, OF_INIT = (1 << bit for bit in range(7))
NAMES = ("cp", "mbarrier", "mapa", "getctarank")
LAYOUT = np.dtype([
    *((name, "i4") for name in ("dimensions", "item", "swizzle", "nan")),
    *((name, "i8", 5) for name in ("shape", "strides", "counts", "steps")),
])  # fmt: skip
_DIMENSIONS = {"1d": 1, "2d": 2, "3d": 3, "4d": 4, "5d": 5}
_BULK = {
    "cp", "async", "bulk", "shared::cluster", "shared::cta", "global", "L2::cache_hint", "multicast::cluster",
    "cta_group::1", "tensor", "tile", *_DIMENSIONS,
}  # fmt: skip
_COPIES = {
    "cp", "async", "ca", "cg", "shared", "shared::cta", "global", "L2::128B", "L2::64B", "L2::256B", "L2::cache_hint",
}  # fmt: skip
_PLACES = {"shared", "shared::cta", "shared::cluster"}
_FREE = {"b64", "sc", "acq_rel", "acquire", "release", "relaxed", "cta", "cluster", *_PLACES}  # of mbarrier
_VERBS = {
    "init": "INITIALISE", "inval": "INVALIDATE", "expect_tx": "EXPECT", "complete_tx": "EXPECT", "arrive": "ARRIVE_AT",
    "arrive_drop": "ARRIVE_AT", "test_wait": "WAIT_FOR", "try_wait": "WAIT_FOR",
}  # fmt: skip
_CALLS = {
    "cp.async.commit_group": "COPY_COMMIT", "cp.async.wait_all": "COPY_WAIT", "cp.async.wait_group": "COPY_WAIT",
    "cp.async.bulk.commit_group": "BULK_COMMIT", "cp.async.bulk.wait_group": "BULK_WAIT",
    "cp.async.bulk.wait_group.read": "BULK_WAIT",
}  # fmt: skip


def is_own(i: Instruction) -> bool:
    """Whether it is decoded here."""
    return i.parts[0] in NAMES or (
        i.parts[0] in ("fence", "membar") and not {"proxy", "mbarrier_init"}.isdisjoint(i.parts)
    )


def layouts() -> Array:
    """The tensor maps of this process, as in core.h."""
    out = np.zeros(len(LAYOUTS), LAYOUT)
    for record, layout in zip(out, LAYOUTS, strict=True):
        count = len(layout.shape)
        record["dimensions"], record["item"], record["swizzle"] = count, layout.item, layout.swizzle
        record["nan"], record["shape"], record["counts"], record["steps"] = layout.fill, 1, 1, 1
        record["shape"][:count], record["counts"][:count] = layout.shape, layout.counts
        record["steps"][:count], record["strides"][:count] = layout.steps, (layout.item, *layout.strides)
    return out


def row(decoder: Any, i: Instruction, number: int, source: int) -> dict[str, Any]:
    """The row of an instruction. number, source: of its access sites. Raises UnsupportedInstruction."""
    if i.parts[0] in ("fence", "membar"):
        scopes = ("", "global", "shared::cta", "shared::cluster")
        if i.op == "fence.mbarrier_init.release.cluster":
            return _row(decoder, "FENCE_PROXY", how=OF_INIT)
        if i.parts[1:] == ("proxy", "alias"):
            return {"kind": KIND["ALU"], "op": 0}
        if i.parts[1:3] != ("proxy", "async") or ".".join(i.parts[3:]) not in scopes:
            raise unsupported(i)
        return _row(decoder, "FENCE_PROXY")
    if i.op in _CALLS:
        count = i.operands[0].value if i.operands and isinstance(i.operands[0], Imm) else NONE
        return _row(decoder, _CALLS[i.op], number=count)
    if i.parts[0] in ("mapa", "getctarank"):
        return _of_cluster(decoder, i)
    if i.parts[0] == "mbarrier":
        return _mbarrier(decoder, i)
    if i.parts[:4] == ("cp", "async", "mbarrier", "arrive"):
        if {*i.parts[4:]} - {"noinc", "b64"} - _PLACES:
            raise unsupported(i)
        near = _where(decoder, i, i.operands[0], not _PLACES & {*i.parts})
        return _row(decoder, "TRACK", near=near, how=COUNTED * ("noinc" in i.parts))
    return _copy(decoder, i, number, source) if "bulk" not in i.parts else _bulk(decoder, i, number, source)


def _row(decoder: Any, op: str, **given: Any) -> dict[str, Any]:
    """The row of an instruction with what async.h's Given has."""
    nowhere, coordinates = (NONE, 0, 0), [*given.get("coordinates", ())]
    values = [number for name in ("near", "far", "barrier") for number in given.get(name, nowhere)]
    values += [given.get(name, default) for name, default in (("source", NONE), ("how", 0), ("number", NONE))]
    values += [given.get("dimensions", 0), given.get("size", NONE)]
    return {
        "kind": KIND["ASYNC"],
        "op": OPS[op],
        "target": decoder.listed([*values, *coordinates, *[NONE] * (5 - len(coordinates))]),
        "site": given.get("site", NONE),
        "d": given.get("result", NONE),
        "a": given.get("near", nowhere)[0],
        "b": given.get("value", NONE),
    }


def _where(decoder: Any, i: Instruction, operand: Operand | None, generic: bool = False) -> tuple[Any, int, int]:
    """An address as async.h's Where."""
    if not isinstance(operand, Mem):
        raise unsupported(i, "an address was expected")
    if isinstance(operand.base, Reg):
        if (dtype := register_dtype(operand.base.type)) not in ("u4", "u8"):
            raise unsupported(i, f"{operand.base.name} is .{operand.base.type}: no address")
        return decoder.registers[operand.base.name], WIDE * (dtype == "u8") | GENERIC * generic, operand.offset
    return decoder.source(operand.base or Imm(0, 0, "int"), "b64"), WIDE, operand.offset


def _of_cluster(decoder: Any, i: Instruction) -> dict[str, Any]:
    """mapa and getctarank: a cluster has one block, which has each of its addresses."""
    target, address, *rank = i.operands
    assert isinstance(target, Reg)
    type_, result = i.parts[-1], decoder.registers[target.name]
    if type_ not in ("u32", "u64") or {*i.parts[1:-1]} - {"shared::cluster"}:
        raise unsupported(i)
    if not rank:
        zero = decoder.source(Imm(0, 0, "int"), "b64")
        return {**_row(decoder, "PENDING_COUNT", result=result), "a": zero}
    row_ = _row(decoder, "RANK", result=result, number=int(type_[1:]) // 8, value=decoder.source(rank[0], "u32"))
    if isinstance(address, Mem):
        raise unsupported(i)
    return {**row_, "a": decoder.source(address, type_)}


def _mbarrier(decoder: Any, i: Instruction) -> dict[str, Any]:
    verb, words = i.parts[1], {*i.parts[2:]}
    if verb == "pending_count":
        target, state = i.operands
        assert isinstance(target, Reg)
        row_ = _row(decoder, "PENDING_COUNT", result=decoder.registers[target.name])
        return {**row_, "a": decoder.source(state, "b64")}
    own = {"arrive": {"expect_tx", "noComplete"}, "test_wait": {"parity"}, "try_wait": {"parity"}}
    own["arrive_drop"] = own["arrive"]
    if verb not in _VERBS or words - _FREE - own.get(verb, set()):
        raise unsupported(i)
    operands, given = [*i.operands], dict[str, Any]()
    given["how"] = RELAXED * ("relaxed" in words) | NO_COMPLETE * ("noComplete" in words) | PARITY * ("parity" in words)
    given["how"] |= DROPS * (verb == "arrive_drop") | COMPLETES * (verb == "complete_tx")
    if _VERBS[verb] == "ARRIVE_AT" and isinstance(operands[0], Mem) and "shared::cluster" not in words:
        raise unsupported(i)  # PTX ISA: only an mbarrier of another block gives no state
    if _VERBS[verb] in ("ARRIVE_AT", "WAIT_FOR") and not isinstance(operands[0], Mem):
        target = operands.pop(0)
        given["result"] = decoder.registers[target.name] if isinstance(target, Reg) else NONE
    given["near"] = _where(decoder, i, operands.pop(0), not _PLACES & words)
    if _VERBS[verb] == "WAIT_FOR":
        given["value"] = decoder.source(operands[0], "u32" if "parity" in words else "b64")
    elif operands:
        given["size" if "expect_tx" in words else "number"] = decoder.source(operands[0], "u32")
    return _row(decoder, _VERBS[verb], **given)


def _copy(decoder: Any, i: Instruction, number: int, source: int) -> dict[str, Any]:
    """cp.async."""
    target, far, _, *further = i.operands[: -1 if "L2::cache_hint" in i.parts else None]
    ignores_source = further and isinstance(further[0], Reg) and further[0].type == "pred"
    if {*i.parts} - _COPIES or ignores_source:
        raise unsupported(i)
    size = decoder.source(further[0], "u32") if further else NONE
    places = {"near": _where(decoder, i, target), "far": _where(decoder, i, far)}
    return _row(decoder, "COPY", **places, source=source, size=size, site=number)


def _bulk(decoder: Any, i: Instruction, number: int, source: int) -> dict[str, Any]:
    """A bulk copy between global memory, or a tensor map with coordinates, and shared memory."""
    words, dimensions = {*i.parts} - _BULK, next((n for name, n in _DIMENSIONS.items() if name in i.parts), 0)
    spaces = [part.split("::")[0] for part in i.parts if part.split("::")[0] in ("global", "shared")]
    if words == {"prefetch", "L2"} and "global" in i.parts:
        return {"kind": KIND["ALU"], "op": 0}
    load = spaces == ["shared", "global"] and words == {"mbarrier::complete_tx::bytes"}
    # A multicast must go to the only block of the cluster.
    mask = i.operands[-2 if "L2::cache_hint" in i.parts else -1]
    alone = "multicast::cluster" not in i.parts or (isinstance(mask, Imm) and mask.value == 1)
    if not alone or not (load or (spaces == ["global", "shared"] and words == {"bulk_group"})):
        raise unsupported(i)
    # Of a tensor map, the coordinates follow its address.
    near, far, which = i.operands[:3] if load else (i.operands[2 if dimensions else 1], *i.operands[:2])
    which = i.operands[2] if not load and not dimensions else which
    counts = which.items if isinstance(which, Vec) else (which,)
    if dimensions and len(counts) != dimensions:
        raise unsupported(i)
    given = {"near": _where(decoder, i, near), "far": _where(decoder, i, far), "dimensions": dimensions}
    given |= {"barrier": _where(decoder, i, i.operands[3])} if load else {}
    given["coordinates"] = [decoder.source(each, "u32") for each in counts]
    return _row(decoder, "BULK_LOAD" if load else "BULK_STORE", **given, source=source, site=number)


def fill_sites(decoder: Any, sites: Array, numbers: Any, sources: Any) -> None:
    """The records of the sites of copies: of the side in shared memory, and of that in global memory."""
    for site in decoder.program.sites.values():
        if site.source is None:
            continue
        for own, side in ((site, numbers[site.pc]), (site.source, sources[site.pc])):
            record = sites[side]
            record["op"], record["space"] = int(own.op == "cp"), int(own.space == "shared")
            record["size"], record["count"], record["width"] = own.size, own.count, own.size
            record["values"], record["results"], record["wide"] = NONE, NONE, 1
            record["array_start"], record["array_size"] = own.start, own.array.size if own.array else NONE
