"""Threads that wait in a loop for other threads of their warp, their block and other blocks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import cuda, kernel, run
from worklog.emulator import BadLaunch, BudgetExceeded, EmulatedDevice
from worklog.gate import Checker
from worklog.kernel import Kernel
from worklog.peers.exploits import named
from worklog.problem.gemm import Shape

IN_TURN = """
  WAIT
  __threadfence();
  __syncthreads();
  out[threadIdx.x] = out[threadIdx.x] * 3 + blockIdx.x;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(turn, 1);
"""
WAITS = {
    "atomic": "if (threadIdx.x == 0) while (atomicAdd(turn, 0) != MINE) {}",
    "volatile": "if (threadIdx.x == 0) while (*(volatile int*)turn != MINE) {}",
    "back-off": """unsigned ns = 8;
  if (threadIdx.x == 0)
    while (*(volatile int*)turn != MINE) {
      __nanosleep(ns);
      if (ns < 256) ns *= 2;
    }""",
    "acquire": """int seen = -1;
  while (threadIdx.x == 0 && seen != MINE)
    asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(turn));""",
    "whole block": """__shared__ int seen;
  for (;;) {
    if (threadIdx.x == 0) seen = *(volatile int*)turn;
    __syncthreads();
    if (seen == MINE) break;
    __syncthreads();
  }""",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_blocks_take_turns(wait: str) -> None:
    """In falling order, and more of them than usually run together."""
    blocks, mine = 34, "gridDim.x - 1 - blockIdx.x"
    source = kernel(IN_TURN.replace("WAIT", wait.replace("MINE", f"(int)({mine})")), "int* out, int* turn")
    out, turn, expected = np.zeros(256, np.uint32), np.zeros(1, np.int32), 0
    assert run(source, [out, turn], grid=(blocks,), block=256, count=False).findings == ()
    for block in reversed(range(blocks)):
        expected = (expected * 3 + block) % 2**32
    assert set(out.tolist()) == {expected} and turn[0] == blocks


def test_no_more_blocks_run_together_than_shared_memory_allows() -> None:
    """132 on an H200: the first ones wait for the last ones, which never start."""
    body = """  extern __shared__ int s[];
  if (threadIdx.x == 0) while (*(volatile int*)turn != gridDim.x - 1 - blockIdx.x) {}
  if (threadIdx.x == 0) atomicAdd(turn, 1);
"""
    with pytest.raises(BudgetExceeded, match=r"^deadlock"):
        run(kernel(body, "int* turn"), [np.zeros(1, np.int32)], grid=(133,), shared_bytes=120_000, races=False)


def test_a_barrier_of_the_whole_grid() -> None:
    body = """
  int t = blockIdx.x * 64 + threadIdx.x;
  out[t] = 1 + t;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (*(volatile int*)arrived < gridDim.x) {}
  }
  __syncthreads();
  sums[t] = out[t] + ((volatile int*)out)[gridDim.x * 64 - 1 - t];
"""
    out, sums, arrived = np.zeros((3, 64 * 200), np.int32)
    run(kernel(body, "int* out, int* sums, int* arrived"), [out, sums, arrived], grid=(200,), block=64)
    assert set(sums.tolist()) == {64 * 200 + 1}


def test_a_cooperative_launch_synchronises_its_grid() -> None:
    values, out = np.arange(64 * 40, dtype=np.int32) ** 2, np.zeros((2, 64 * 40), np.int32)
    assert run(cuda("grid_barrier"), [values, out], grid=(40,), block=64).findings == ()
    np.testing.assert_array_equal(out[1], np.roll(values, 5) + 10)
    np.testing.assert_array_equal(out[0], np.roll(values, 4) + 6)
    with pytest.raises(BadLaunch, match=r"^too many blocks in cooperative launch: 5000, of which 4224 run together$"):
        run(cuda("grid_barrier"), [values, out], grid=(5000,), block=64)


@pytest.mark.parametrize("where", ["global", "shared"])
def test_every_thread_takes_a_lock(where: str) -> None:
    body = """
  __shared__ int locks[1], counts[1];
  if (threadIdx.x == 0) locks[0] = counts[0] = 0;
  __syncthreads();
  int *l = WHERE ? lock : locks, *n = WHERE ? count : counts;
  while (atomicCAS(l, 0, 1) != 0) {}
  atomicExch(n, atomicAdd(n, 0) + 1);
  __threadfence();
  atomicExch(l, 0);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(n, 0);
"""
    lock, count, out = np.zeros((3, 2), np.int32)
    source = kernel(body.replace("WHERE", str(int(where == "global"))), "int* lock, int* count, int* out")
    assert run(source, [lock, count, out], grid=(2,), block=24).ok
    assert max(out) == (48 if where == "global" else 24)


def test_a_lock_that_is_never_freed_is_a_deadlock() -> None:
    body = "  while (atomicCAS(lock, 0, 1) != 0) {}\n  *out += 1;"
    with pytest.raises(
        BudgetExceeded, match=r"^deadlock or endless loop: thread 1 of block \(0, 0, 0\) is still near line 3: while"
    ):
        run(kernel(body, "int* out, int* lock"), [np.zeros(1, np.int32), np.zeros(1, np.int32)])


def test_a_semaphore_that_stands_still_fails_the_gate() -> None:
    (right,) = named(["split_k_by_semaphore"])
    assert right.kernel.source.count("part + 1") == 1
    stuck, device = Kernel.from_source(right.kernel.source.replace("part + 1", "part")), EmulatedDevice()
    verdict = Checker(device, Shape(40, 24, 12), 0).check(stuck.load(device))
    assert str(verdict.reason).startswith("launch: deadlock or endless loop: thread 0 of block (1, 0, 0)"), (
        verdict.reason
    )
