"""Shared memory filled with NaN before a subject is launched.

Shared memory is not cleared between launches: a block finds what the block before it left, often zeros or its own
last tile. A kernel that reads a slot which nobody wrote (a tail that is not zeroed, a copy that is one element short)
can be right for that reason alone, until another kernel runs in between. So another kernel runs in between: it fills
as much of every multiprocessor as static shared memory allows with NaN, which no sum survives. The emulator has no
shared memory to inherit and reports such reads itself, so this is for a live device.
"""

from __future__ import annotations

from worklog.kernels import Device, Kernel, Program

BLOCK = 256
BLOCKS = 4096  # several waves on any GPU: each multiprocessor gets as many as fit it, several times
SOURCE = """\
__global__ void foul() {
  __shared__ volatile unsigned words[12288];  // 48 KiB, the most without asking; four blocks fill a multiprocessor
  for (int i = threadIdx.x; i < 12288; i += blockDim.x) words[i] = 0x7fc00000u;
}
"""


class Dirt:
    """Fouls the shared memory of a live device; does nothing on another. Raises CompileFailed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        live = device.source == "live"
        self._kernel: Kernel | None = device.compile(Program("foul.cu", SOURCE, "foul")) if live else None

    def spread(self) -> None:
        """Enqueue it. Raises LaunchFailed."""
        if self._kernel is not None:
            self.device.launch(self._kernel, (BLOCKS, 1), BLOCK, ())
