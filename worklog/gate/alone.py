"""Stage: nothing else was at work on the GPU when the clock of a launch was started.

Host code may leave something behind that runs beside the harness: a kernel that stays on a few SMs and watches A, a
host thread that launches, a stream that waits for a word in memory to change, a copy engine. New inputs are written
before the flush of L2, so whoever sees them arrive has the flush's time, tens of microseconds, to compute ahead of the
start event, or to read A and B back into the L2 that was just emptied. The answer is right, and new, and in time: only
the clock is wrong. Device source that this package launches cannot leave anything behind, and is not asked.

Three things together:

One kernel, the fence, writes the inputs and flushes L2, of what was marked to stay there too, while it fills every
thread slot of every SM: two blocks of half the slots each, as many as the GPU says it has. It writes nothing before all
its blocks are resident at the same time, which they cannot be while a single warp of anybody else is; and its blocks
leave together. So no foreign thread runs from before the inputs exist until L2 is flushed, and what wants to start in
between has to wait. Whoever holds a slot for longer than PATIENCE_NS is found by that; how long it waits costs nobody
anything, for there is nothing to watch until it is gone. The wait is bounded: the fence then does its work without the
guarantee, and counts the launch. A share of 1 in TOLERATED may be lost like that, to another process's slice of time; a
median does not feel it.

What moves data without a thread (a copy engine, behind a stream that waits for a value) is not held up. It is found by
what it leaves: in one launch of LOOK_EVERY, chosen by the key that nobody knows, some lines of A and B that nobody
knows either are read at the very end of the flush, twice. A line that takes as long the first time as the second was in
L2 already. It is a few lines in few launches, so what looking warms does not show in the median.

After the loop, once the harness's stream is empty, nothing of a right subject is left, since it joins what it starts.
A wait for the whole context then returns at once, and is given IDLE_S: a stream that waits for inputs that never come,
and a kernel that watches for them, are still there.

The second clock of worklog.gate.plausible goes on from there: a fence that had to wait shows in what it leaves for all
but the launch, unless the baseline's had to wait as long.

What remains unseen. From the fence's end to the start of the launch pass some microseconds (tests/gpu/test_gpu_alone.py
prints how many); what was held up starts then, and may use them. Lines that are prefetched in that moment are not read
by the look, which was before it. Where launches are not queued, timed by the host or without a queue, the gap is as
long as the host takes. A second process or context takes turns with this one in slices of time and is not beside it,
unless the driver's multi-process service runs; with that, a stranger's load is refused like the subject's own, and it
would spoil the time as well. And host code can change what this stage believes, as it can everything else in its
process: see worklog.gate.integrity.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from worklog.errors import NoGpu
from worklog.gate.every_launch import HASH
from worklog.gate.verdict import Stage, passed, refused
from worklog.kernel.kernel import COMPILE_OPTIONS, Device, Program

NAME = "alone on the GPU"
UNSEEN = "what starts in the few microseconds between the flush and the launch is not seen"
BLOCKS_A_PROCESSOR = 2
PATIENCE_NS = 100_000  # a grid is resident within a few thousand
TOLERATED = 50  # launches, of which one may be lost
PARTIES = 2  # whose inputs are written: the subject and the baseline
LOOK_EVERY = 8  # launches
LINES = 8  # that are read in such a launch, half of A and half of B
APART = 1024  # elements: a line that far off is read first, so that the page's translation is there
WARMTH = 2 / 3  # second reading over first: 0.43 on an H200 from memory, 1 from L2
IDLE_S = 1.0

SOURCE = (
    HASH
    + """
__device__ u64 now_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Whether all blocks have come to this point, in time. Each comes, also where nobody waits any more.
__device__ bool meet(unsigned* came, unsigned expected, bool wait) {
  __syncthreads();
  bool all = true;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(came, 1u);
    const u64 start = now_ns();
    do {
      all = (int)(*(volatile unsigned*)came - expected) >= 0;
    } while (wait && !all && now_ns() - start < PATIENCE_NS);
  }
  return __syncthreads_and(all);
}

// Cycles until a read past L1 is there.
__device__ unsigned reading(const float* at, volatile float* sink) {
  float value;
  const unsigned start = clock();
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(at) : "memory");
  *sink = value;  // the clock below is read after this store, and the store waits for the read
  return (unsigned)clock() - start;
}

// A line of A or B that the subject has marked to stay in L2 is marked no more.
__device__ void demote(const float* at) {
#if __CUDA_ARCH__ >= 800
  asm volatile("applypriority.global.L2::evict_normal [%0], 128;" : : "l"((u64)at & ~127ull) : "memory");
#endif
}

// found: blocks that came to a meeting, the last launch with company, launches with company, launches that ended, the
// longest wait for the first meeting; of each party's launches from word 5 + 3 party on: lines read, cycles of their
// first and of their second reading; then room for what was read.
__global__ void __launch_bounds__(THREADS, BLOCKS_A_PROCESSOR)
fence(u64 key, const u64* words, long long in_a, float* A, long long in_b, float* B, long long in_c, float* C,
      float sentinel, long long in_scratch, unsigned* scratch, unsigned launch, unsigned party,
      unsigned* found) {
  const unsigned before = 4 * (launch - 1) * gridDim.x;
  const long long first = blockIdx.x * (long long)THREADS + threadIdx.x, step = gridDim.x * (long long)THREADS;
  const u64 began = now_ns();
  bool alone = meet(found, before + gridDim.x, true);
  if (threadIdx.x == 0) atomicMax(found + 4, (unsigned)(now_ns() - began));
  key ^= words[0];
  const long long most = in_a > in_b ? (in_a > in_c ? in_a : in_c) : (in_b > in_c ? in_b : in_c);
#pragma unroll 1
  for (long long i = first; i < most; i += step) {
    if (i < in_a) A[i] = content(key, i);
    if (i < in_b) B[i] = content(~key, i);
    if (i < in_c) C[i] = sentinel;
    if (i % 32 == 0) {
      if (i < in_a) demote(A + i);
      if (i < in_b) demote(B + i);
    }
  }
  alone = meet(found, before + 2 * gridDim.x, alone) && alone;
#pragma unroll 1
  for (long long i = first; i < in_scratch; i += step) scratch[i] = (unsigned)i * 2654435761u + launch;
  alone = meet(found, before + 3 * gridDim.x, alone) && alone;
  const unsigned number = threadIdx.x / 32;
  if (blockIdx.x == 0 && number < LINES && threadIdx.x % 32 == 0 && hashed(key, ~0ull) % LOOK_EVERY == 0) {
    const float* matrix = number % 2 ? B : A;
    const long long size = number % 2 ? in_b : in_a;
    if (size >= 4 * APART) {
      const long long i = hashed(key, ~1ull - number) * (u64)size >> 32;
      volatile float* sink = (volatile float*)found + 5 + 3 * PARTIES + number;
      reading(matrix + (i + APART < size ? i + APART : i - APART), sink);
      const unsigned cycles = reading(matrix + i, sink), again = reading(matrix + i, sink);
      unsigned* read = found + 5 + 3 * party;
      atomicAdd(read, 1u);
      atomicAdd(read + 1, cycles < 4 * again ? cycles : 4 * again);
      atomicAdd(read + 2, again);
    }
  }
  alone = meet(found, before + 4 * gridDim.x, alone) && alone;
  if (threadIdx.x != 0) return;
  if (!alone && atomicExch(found + 1, launch) != launch) atomicAdd(found + 2, 1u);
  if (blockIdx.x == 0) atomicAdd(found + 3, 1u);
}
"""
)


@runtime_checkable
class Fillable(Protocol):
    """A device of which one grid can take every thread slot."""

    def extent(self) -> tuple[int, int, int]:
        """Multiprocessors, threads that one of them holds at once, bytes of L2."""

    def idle(self, within_s: float) -> bool:
        """Whether all work of this process, on whatever stream, ends within so many seconds."""


def program(threads: int) -> Program:
    """The fence, in blocks of so many threads."""
    numbers = {
        "THREADS": threads,
        "BLOCKS_A_PROCESSOR": BLOCKS_A_PROCESSOR,
        "PATIENCE_NS": PATIENCE_NS,
        "LOOK_EVERY": LOOK_EVERY,
        "LINES": LINES,
        "APART": APART,
        "PARTIES": PARTIES,
    }
    return Program("fence.cu", SOURCE, "fence", (*COMPILE_OPTIONS, *(f"-D{name}={n}" for name, n in numbers.items())))


class Fence:
    """Writes the inputs of each launch of one timed loop, and flushes L2, on a GPU that nobody else is on. Nothing here
    waits for the device before `stage`. Raises NoGpu for a device that cannot be filled, CompileFailed, OutOfMemory.
    """

    def __init__(self, device: Device) -> None:
        if not isinstance(device, Fillable):
            raise NoGpu(
                f"host code is timed on a GPU of which every slot can be taken: {device.source} has no such thing"
            )
        processors, slots, l2_bytes = device.extent()
        self.device, self.fillable = device, device
        self.blocks, self.threads = BLOCKS_A_PROCESSOR * processors, slots // BLOCKS_A_PROCESSOR
        self.launches = 0
        self._kernel = device.compile(program(self.threads))
        self._scratch = device.upload(np.zeros(2 * l2_bytes // 4, np.float32))
        self._found = device.upload(np.zeros(5 + 3 * PARTIES + LINES, np.float32))

    def write(self, party: int, *filling: Any) -> None:
        """Enqueue it. party: 0 or 1, whose launch comes next. filling: as every_launch.Witness.filling gives it."""
        self.launches += 1
        scratch = np.int64(self._scratch.size), self._scratch
        arguments = (*filling, *scratch, np.uint32(self.launches), np.uint32(party), self._found)
        self.device.launch(self._kernel, (self.blocks, 1), self.threads, arguments)

    def stage(self) -> Stage:
        """The verdict on all launches since the start, subject's and baseline's. Raises LaunchFailed."""
        words = self.device.download(self._found).view(np.uint32)
        company, ended, waited_ns = (int(word) for word in words[2:5])
        allowed = self.launches // TOLERATED
        if ended != self.launches:
            return refused(NAME, f"{ended} of {self.launches} launches were fenced: not all of them")
        if company > allowed:
            found = f"in {company} of {self.launches} launches something else was running on the GPU"
            return Stage(NAME, False, company, allowed, f"{found} when their inputs were to be written, and stayed")
        if not self.fillable.idle(IDLE_S):
            found = "something that it had started and not joined was left on the GPU"
            return refused(NAME, f"{found} {IDLE_S:g} s after its last launch")
        read = [(int(n), first / n, again / n) for n, first, again in words[5:][: 3 * PARTIES].reshape(-1, 3) if n]
        lines, first, again = max(read, key=lambda one: one[2] / one[1], default=(0, 1.0, 0.0))
        cycles = f"{lines} lines of A and B took {first:.0f} cycles to read, and {again:.0f} from L2"
        if again / first > WARMTH:
            return Stage(NAME, False, again / first, WARMTH, f"{cycles}: they were there before the clock started")
        lost = f", but for {company} that were lost" if company else ""
        filled = f"it took at most {waited_ns / 1e3:.1f} µs to fill the GPU"
        detail = (
            f"nobody else ran while the inputs of {self.launches} launches were written and L2 was flushed{lost} "
            f"({filled}); {cycles if lines else 'no line of A and B was read'}; {UNSEEN}"
        )
        return passed(NAME, detail, company, allowed)
