"""Sectors and wavefronts of the addresses of one warp instruction.

Global: L1 fetches 32-byte sectors; a request costs the distinct sectors that its lanes access. Shared: 32 banks of 4
bytes; a wavefront delivers one word per bank, to any number of lanes. Both rules agree with Nsight Compute's counters
on an H200 for every rung.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
WARP = 32
SECTOR = 32
BANKS = 32


def sectors(addresses: Array, active: Array, width: int) -> tuple[int, int]:
    """(requests, sectors). addresses: int64 and active: bool, both (warps, 32); width: bytes per lane."""
    busy = active.any(axis=1)
    addresses, active = addresses[busy], active[busy]
    if not len(addresses):
        return 0, 0
    return len(addresses), _distinct(addresses // SECTOR, active) if width <= SECTOR else 0


def _distinct(values: Array, active: Array) -> int:
    """Distinct values among the active lanes of each row, summed over the rows; every row has an active lane."""
    first = np.take_along_axis(values, active.argmax(axis=1)[:, None], axis=1)
    rows = np.sort(np.where(active, values, first), axis=1)
    return int(np.count_nonzero(np.diff(rows, axis=1))) + len(rows)


def wavefronts(addresses: Array, active: Array, width: int) -> tuple[int, int, int]:
    """(requests, wavefronts, bank conflicts) of one shared-memory instruction; arguments as for `sectors`.

    A warp's 64-bit access takes two phases of 16 lanes, a 128-bit access four of 8, each of up to 128 bytes. The number
    of phases is halved if lanes n and n ^ 1 have equal addresses in every such pair of the warp, or lanes n and n ^ 2.
    A phase costs as many wavefronts as the busiest bank has distinct words; all but the first are conflicts.
    """
    busy = active.any(axis=1)
    addresses, active = addresses[busy], active[busy]
    requests = len(addresses)
    if not requests:
        return 0, 0, 0
    phases = max(1, width // 4)
    if phases == 1:
        total, used = _passes(addresses, active, 1, width)
        return requests, total, total - used
    paired = _lanes_paired(addresses, active)
    total = used = 0
    for rows, count in ((~paired, phases), (paired, phases // 2)):
        if rows.any():
            passes, nonempty = _passes(addresses[rows], active[rows], count, width)
            total, used = total + passes, used + nonempty
    return requests, total, total - used


def _lanes_paired(addresses: Array, active: Array) -> Array:
    """Rows in which every lane pair (n, n ^ 1), or every pair (n, n ^ 2), has equal addresses or an idle lane."""
    lanes = np.arange(WARP)
    out = np.zeros(len(addresses), dtype=bool)
    for distance in (1, 2):
        other = lanes ^ distance
        equal = (addresses == addresses[:, other]) | ~active | ~active[:, other]
        out |= equal.all(axis=1)
    return out


def _passes(addresses: Array, active: Array, phases: int, width: int) -> tuple[int, int]:
    """Wavefronts and non-empty phases if each row takes `phases` phases."""
    groups = addresses.reshape(-1, WARP // phases)
    live = active.reshape(-1, WARP // phases)
    words = max(1, width // 4)
    word = (groups // 4)[:, :, None] + np.arange(words)
    live = np.repeat(live, words, axis=1)
    word = word.reshape(len(groups), -1)
    row = np.broadcast_to(np.arange(len(groups))[:, None], word.shape)
    # One number per (phase, word): lanes that share a word cost nothing.
    span = int(word.max()) + 1
    different = np.unique((row * span + word)[live])
    bank = different // span * BANKS + different % span % BANKS
    load = np.bincount(bank, minlength=len(groups) * BANKS).reshape(-1, BANKS).max(axis=1)
    return int(load.sum()), int(np.count_nonzero(load))
