"""PTX's special registers: who a thread is, in which block, in which launch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.findings import Place

Array = NDArray[Any]


def special(name: str, place: Place, blocks: Array, dynamic_bytes: int) -> Array:
    """A special register as uint32: one element a lane, or a single one where all lanes agree.

    blocks: numbers of the running blocks; dynamic_bytes: dynamic shared memory of the launch.
    """
    lane = np.arange(len(blocks) * place.lanes) % place.lanes
    base, _, axis = name.partition(".")
    if axis:
        return _coordinate(base, "xyz".index(axis), place, lane, np.repeat(blocks, place.lanes))
    uniform = {"%nwarpid": place.lanes // 32, "WARP_SZ": 32, "%dynamic_smem_size": dynamic_bytes}
    if name in uniform:
        return np.array([uniform[name]], np.uint32)
    if name in ("%laneid", "%warpid"):
        return (lane % 32 if name == "%laneid" else lane // 32).astype(np.uint32)
    own = np.uint64(1) << (lane % 32).astype(np.uint64)
    below = own - np.uint64(1)
    masks = {"eq": own, "lt": below, "le": below | own, "gt": ~(below | own), "ge": ~below}
    return masks[name.removeprefix("%lanemask_")].astype(np.uint32)


def _coordinate(base: str, axis: int, place: Place, lane: Array, block: Array) -> Array:
    """%tid, %ntid, %ctaid or %nctaid along one axis."""
    if base in ("%ntid", "%nctaid"):
        return np.array([(place.block if base == "%ntid" else place.grid)[axis]], np.uint32)
    sizes, numbers = (place.block, lane) if base == "%tid" else (place.grid, block)
    value = numbers // int(np.prod(sizes[:axis], dtype=np.int64)) % sizes[axis]
    uniform = bool((value == value[0]).all())
    return (value[:1] if uniform else value).astype(np.uint32)
