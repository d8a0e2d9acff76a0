"""What a launch inherits from the one before, filled with NaN: shared memory, local memory and registers.

None is cleared between launches: a block finds what the block before it left, often zeros or its own last tile. A
kernel that reads a slot which nobody wrote (a tail that is not zeroed, a copy that is one element short, a sum that
starts from nothing) can be right for that reason alone, until another kernel runs in between. So another kernel runs in
between: it fills as much of every multiprocessor as static shared memory allows, the first bytes of each thread's local
memory and its registers with NaN, which no sum survives. Registers are the weakest part: where the compiler sees that
nobody wrote a value, it may put a zero there itself. The emulator has nothing to inherit, and reports shared memory
that is read before it is written; so this is for a live device.
"""

from __future__ import annotations

from worklog.kernel.kernel import Device, Kernel, Program

BLOCK = 512  # four blocks hold a multiprocessor's threads, and nearly all of its registers
BLOCKS = 2048  # two waves or more on any GPU: each multiprocessor gets as many as fit it, several times
SOURCE = """\
__global__ void foul() {
  __shared__ volatile unsigned words[12288];  // 48 KiB, the most without asking; four blocks fill a multiprocessor
  volatile unsigned local[128];
  for (int i = threadIdx.x; i < 12288; i += blockDim.x) words[i] = 0x7fc00000u;
  for (int i = 0; i < 128; ++i) local[(i + threadIdx.x) & 127] = 0x7fc00000u;
  __syncthreads();
  unsigned held[20];
#pragma unroll
  for (int i = 0; i < 20; ++i) held[i] = words[(threadIdx.x + i) % 12288];
  __syncthreads();  // no load is put off behind it, so all of them are held at once
  if (gridDim.x == 1) {  // never
#pragma unroll
    for (int i = 0; i < 20; ++i) words[held[i] % 12288] = local[(held[i] + i) & 127];
  }
}
"""


class Dirt:
    """Fouls what the next launch on a live device inherits; does nothing on another. Raises CompileFailed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        live = device.source == "live"
        self._kernel: Kernel | None = device.compile(Program("foul.cu", SOURCE, "foul")) if live else None

    def spread(self) -> None:
        """Enqueue it. Raises LaunchFailed."""
        if self._kernel is not None:
            self.device.launch(self._kernel, (BLOCKS, 1), BLOCK, ())
