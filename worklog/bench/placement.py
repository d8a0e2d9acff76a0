"""Random placements of a timed loop's buffers in one pool of device memory: the pitfall `placement`.

The pool is allocated once and is much larger than the buffers, so placements differ in their offsets and in the
physical pages below them. A new placement allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.kernel.device import Buffer

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice

ALIGNED = 128  # elements: 512 bytes, the alignment of a caching allocator
POOL_BYTES, TIMES_BUFFERS = 2**32, 3.0  # a pool's size: the larger of 4 GiB and three times what is placed in it,
LEAST_TIMES_BUFFERS = 1.25  # or less where the GPU's memory is short, down to this
LEFT_FREE_BYTES = 2**28


class Pool:
    """`elements` float32 of device memory. Raises OutOfMemory."""

    def __init__(self, device: CudaDevice, elements: int, seed: int | None = None) -> None:
        self.device, self.elements = device, elements - elements % ALIGNED
        self.whole: Any = device.allocate(self.elements)
        self._rng = np.random.default_rng(seed)

    @classmethod
    def to_hold(cls, device: CudaDevice, elements: int) -> Pool | None:
        """A pool for buffers of so many elements in total, None where the GPU's memory is too short."""
        free = (device.free_bytes() - LEFT_FREE_BYTES) // 4
        size = min(free, max(POOL_BYTES // 4, round(TIMES_BUFFERS * elements)))
        return cls(device, size) if size >= LEAST_TIMES_BUFFERS * elements else None

    def place(self, sizes: Sequence[int]) -> list[Buffer]:
        """Buffers of so many elements each, at random multiples of 512 bytes, in random order, without overlap."""
        units = np.array([-(-size // ALIGNED) for size in sizes])
        order = self._rng.permutation(len(sizes))
        gaps = np.sort(self._rng.integers(0, self.elements // ALIGNED - int(units.sum()) + 1, len(sizes)))
        starts = np.empty(len(sizes), np.int64)
        starts[order] = ALIGNED * (gaps + np.cumsum(units[order]) - units[order])
        return [self.device.view(self.whole, int(start), size) for start, size in zip(starts, sizes, strict=True)]

    def fill(self, value: float) -> None:
        """Set every element."""
        self.device.fill(self.whole, value)
