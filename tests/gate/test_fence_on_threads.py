"""The fence's own source on host threads, a block a thread: whom it waits for, how long, and what it counts. Of the GPU
there is only that a block which has no slot starts when another block, or a stranger, has ended.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import contents
from worklog.gate import alone

BLOCKS, SIZE, SCRATCH, WORDS = 8, 5000, 20_000, 16
PATIENCE_NS = 100_000_000  # a host thread may be away for some time
SHIM = """\
#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>
#include <math.h>
#include <string.h>
#define __device__
#define __global__
#define __launch_bounds__(...)
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx;
static Index gridDim;
static void __syncthreads() {}
static int __syncthreads_and(int value) { return value; }
static void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
static unsigned atomicAdd(unsigned* at, unsigned by) { return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST); }
static unsigned atomicExch(unsigned* at, unsigned to) { return __atomic_exchange_n(at, to, __ATOMIC_SEQ_CST); }
static void atomicMax(unsigned* at, unsigned to) {
  unsigned seen = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (seen < to && !__atomic_compare_exchange_n(at, &seen, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
}
static unsigned long long host_ns() {
  std::this_thread::yield();
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}
static unsigned cycles() { return (unsigned)host_ns(); }
#define clock cycles
"""
RUN = """\
// One launch. slots: blocks that are resident at once. stranger_ms: how long a stranger holds one slot more.
extern "C" void run(int blocks, int slots, int stranger_ms, u64 key, const u64* words, long long size, float* A,
                    float* B, float* C, long long in_scratch, unsigned* scratch, unsigned launch, unsigned* found) {
  std::counting_semaphore<64> free(slots);
  gridDim.x = blocks;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(stranger_ms));
    free.release();
  });
  for (int block = 0; block < blocks; ++block) threads.emplace_back([&, block] {
    free.acquire();
    blockIdx.x = block;
    fence(key, words, size, A, size, B, size, C, -3e30f, in_scratch, scratch, launch, 0, found);
    free.release();
  });
  for (auto& thread : threads) thread.join();
}
"""
ON_THE_HOST = {
    'asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));': "now = host_ns();",
    'asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(at) : "memory");': "value = *at;",
    "#pragma unroll 1": "",
}


@pytest.fixture(scope="module")
def fence(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    source = alone.SOURCE
    for theirs, ours in ON_THE_HOST.items():
        assert theirs in source, "the shim stands for it"
        source = source.replace(theirs, ours)
    options = [option for option in alone.program(1).options if option.startswith("-D") and "PATIENCE" not in option]
    folder: Path = tmp_path_factory.mktemp("fence")
    (folder / "fence.cpp").write_text(SHIM + source + RUN)
    command = [compiler, "-std=c++20", "-O1", "-pthread", "-shared", "-fPIC", *options, f"-DPATIENCE_NS={PATIENCE_NS}"]
    subprocess.run([*command, "-o", "libfence.so", "fence.cpp"], cwd=folder, check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "libfence.so"))


class Memory:
    """What the fence reads and writes."""

    def __init__(self, library: Any, found: int = 0) -> None:
        self.library = library
        self.a, self.b, self.c = (np.zeros(SIZE, np.float32) for _ in range(3))
        self.scratch, self.words = np.zeros(SCRATCH, np.uint32), np.array([12345, 0], np.uint64)
        self.found = np.zeros(5 + 3 * alone.PARTIES + alone.LINES, np.uint32)

    def launch(self, number: int, slots: int = BLOCKS, stranger_ms: int = 0, key: int = 77) -> None:
        def at(array: np.ndarray[Any, Any]) -> Any:
            return array.ctypes.data_as(ctypes.c_void_p)

        i64, u64 = ctypes.c_longlong, ctypes.c_ulonglong
        matrices = i64(SIZE), at(self.a), at(self.b), at(self.c)
        numbers = BLOCKS, slots, stranger_ms, u64(key), at(self.words)
        self.library.run(*numbers, *matrices, i64(SCRATCH), at(self.scratch), ctypes.c_uint(number), at(self.found))
        assert np.array_equal(self.a, contents(np.uint64(key ^ 12345), SIZE)), "the inputs are there in any case"
        assert np.array_equal(self.b, contents(~np.uint64(key ^ 12345), SIZE))
        assert (self.c == np.float32(-3e30)).all() and np.count_nonzero(self.scratch) > SCRATCH - 2

    @property
    def company(self) -> int:
        return int(self.found[2])


def test_where_all_are_resident_nobody_else_was(fence: Any) -> None:
    memory = Memory(fence)
    for number in range(1, 6):
        memory.launch(number, key=number)
    assert memory.company == 0 and memory.found[3] == 5
    assert memory.found[0] == 5 * 4 * BLOCKS


def test_a_stranger_who_goes_in_time_is_waited_for(fence: Any) -> None:
    memory = Memory(fence)
    memory.launch(1, slots=BLOCKS - 1, stranger_ms=5)
    assert memory.company == 0 and 3_000_000 < memory.found[4] < PATIENCE_NS


@pytest.mark.parametrize("slots", [1, BLOCKS // 2, BLOCKS - 1])
def test_a_stranger_who_stays_is_counted_once_a_launch_and_nothing_hangs(fence: Any, slots: int) -> None:
    """However few blocks have room: each wait ends, the others come when those have left, and the next launch counts
    from where this one should have ended.
    """
    memory = Memory(fence)
    memory.launch(1, slots=slots, stranger_ms=2 * PATIENCE_NS // 1_000_000)
    assert memory.company == 1 and memory.found[4] >= PATIENCE_NS
    assert memory.found[0] == 4 * BLOCKS
    memory.launch(2)
    memory.launch(3, slots=slots, stranger_ms=2 * PATIENCE_NS // 1_000_000)
    assert memory.company == 2 and memory.found[3] == 3


def test_in_some_launches_lines_are_read_twice(fence: Any) -> None:
    memory = Memory(fence)
    for number in range(1, 60):
        memory.launch(number, key=number * 7919)
    read, first, again = memory.found[5:8]
    assert 1 <= read <= 30, "by the one thread that a block has here, in a launch of eight"
    assert first > 0 and again > 0 and not memory.found[8:11].any()


def test_the_count_may_wrap(fence: Any) -> None:
    """After 2^32 / (4 blocks) launches: the comparison goes round with it."""
    memory = Memory(fence)
    number = 2**32 // (4 * BLOCKS)
    memory.found[0] = (4 * BLOCKS * (number - 1)) % 2**32
    for step in range(3):
        memory.launch(number + step)
    assert memory.company == 0 and memory.found[0] == 8 * BLOCKS
