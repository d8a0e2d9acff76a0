"""What is found in short kernels over int *c, *d and *flag, which hold zeros: the body's first line is line 4."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import kernel, run
from tests.emulator.launches import launched
from worklog.emulator import BadLaunch, BudgetExceeded, EmulatedDevice, Result
from worklog.kernel.device import Program

HEAD = "  const int t = threadIdx.x, b = blockIdx.x, n = blockDim.x;\n"


def result_of(body: str, blocks: int = 1, block: int = 64, **options: Any) -> Result:
    buffers = [np.zeros(4 * blocks * block, np.int32) for _ in range(3)]
    source = kernel(HEAD + body, "int* c, int* d, int* flag")
    return run(source, buffers, grid=(blocks,), block=block, **options)


def check(result: Result, found: Sequence[str]) -> None:
    """A pattern for each finding, in order."""
    ours = [finding.at("k") for finding in result.findings]
    assert len(ours) == len(found) and all(map(re.match, found, ours)), ours


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("c[t] = t;", "d[t] = c[t ^ 32];", "thread 32 .* writes .line 4. and thread 0 reads"),
        ("d[t] = c[t ^ 32];", "c[t] = t + 1;", "thread 32 .* reads .line 4. and thread 0 writes"),
        ("c[t] = t + 1;", "c[t ^ 1] = 2 * t;", "thread 1 .* writes .line 4. and thread 0 writes"),
        ("atomicAdd(c, 1);", "if (t == 40) *c = 7;", "thread 63 .* writes .line 4. and thread 40 writes"),
    ],
)
def test_threads_of_a_block_race_without_a_barrier(first: str, second: str, says: str) -> None:
    found = f"k:5: global-race: {says} .line 5. the same bytes of argument 0, with no __syncthreads"
    check(result_of(f"  {first}\n  {second}"), [found])
    check(result_of(f"  {first}\n  __syncthreads();\n  {second}"), [])


@pytest.mark.parametrize("lanes", [None, 64], ids=["side by side", "one after the other"])
@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("  c[t] += b + 1;", "4"),
        ("  c[b * n + t] += b + 1;", ""),
        ("  atomicAdd(&c[t], b + 1);", ""),
        ("  if (b == 2) c[t] = 0;\n  atomicAdd(&c[t], b + 1);", "[45]"),
        ("  *flag = 1;\n  c[b * n + t] = *flag;", ""),
        ("  d[t + b * n] = c[t];\n  __syncthreads();\n  if (b == 1) c[t] = 5;", "[46]"),
        ("  ((char*)c)[b * n + t] = t;", ""),
    ],
    ids=["add", "own elements", "atomics", "clear", "the same value", "overwrite an input", "bytes"],
)
def test_blocks_race(body: str, lines: str, lanes: int | None) -> None:
    findings = result_of(body, 3, lanes=lanes, count=False).findings
    assert bool(findings) == bool(lines)
    says = rf"k:{lines}: global-race: .* of block \([01], 0, 0\).* with nothing that orders the blocks"
    assert all(re.match(says, finding.at("k")) for finding in findings)


MASKS = {
    "0xffffu": "k:4: member-mask: thread 16 .*is not in its own member mask .16 times.",
    "t < 16 ? 0xffffffffu : 0xffff0000u": "k:4: member-mask: thread 16 .* with another one .16 times.",
    "0u": "k:4: member-mask: thread 0 .*is not in its own member mask .32 times.",
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "call", ["__any_sync(M, t == 3)", "__reduce_add_sync(M, t)", "__match_any_sync(M, t)", "__shfl_xor_sync(M, t, 1)"]
)
def test_a_mask_that_does_not_fit_the_lanes_is_found(call: str, mask: str) -> None:
    result = result_of(f"  c[t] = {call.replace('M', mask)};", block=32)
    assert re.match(MASKS[mask], result.findings[0].at("k"))
    assert {finding.kind for finding in result.findings[1:]} <= {"undefined-shuffle"} and not result.ok


USE = "  if (t >= 8) return;\n  int x = __shfl_xor_sync(0xffu, t, DISTANCE + flag[0]);\n  "
VOTE = "  if (t < 16) c[1 + t] = __any_sync(~0u, t == 3);\n  else { ELSEWHERE }\n  atomicExch(c, 1);\n  c[1 + t] += 1;"
DIVERGED = "divergent-warp: thread 16 .* but does not execute the instruction .16 times."
UNDEFINED = "k:5: undefined-shuffle: .*line 6 uses the value .8 times"
ABSENT = ["k:5: exited-in-mask: .*16 times", "k:5: undefined-shuffle: .*16 times"]
ENDS = "\n  __syncthreads();\n  c[t + 1000] = 1;"
TWICE = """  __shared__ float tile[64];
  float sum = 0.0f;
  tile[t] = 1.0f;
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < 500; ++i) {
    tile[t] = tile[t] + 1.0f;
    sum += tile[63 - t];
  }
  c[t] = sum;"""
APART = """  __shared__ int tile[64];
  tile[t] = 1;
  if (t < 40) {
    __syncthreads();
    tile[t] += c[0];
  } else {
    __syncthreads();
    tile[t] -= c[1];
  }
  d[t] = tile[t];"""
CLOCKS = """  long long start = clock64(); unsigned before = clock();
  while (clock64() - start < 200000) __nanosleep(10);
  unsigned long long now; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (!(clock64() > start && clock() > before && now > 0)) __trap();"""
SHUFFLE = "__shfl_xor_sync(0xfu << t / 4 * 4, t, {})"
WAITS = """  if (t == 0) while (atomicAdd(c, 0) == 0) {}
  if (t == 1) while (atomicAdd(c, 0) != 2) {}
  __syncwarp();
  atomicExch(c, 1);"""
BY_WARP = """  __shared__ int tile[64];
  tile[t] = t;
  asm volatile("bar.sync 1, 32;");
  c[t] = tile[t ^ OTHER];"""
MAXIMUM = """  int old = *c, assumed;
  do {
    if ((assumed = old) >= d[t] + t) break;
    old = atomicCAS(c, assumed, d[t] + t);
  } while (old != assumed);"""
# Threads, body, and the findings.
FOUND: list[tuple[int, str, list[str]]] = [
    (64, "  c[t / 2] = t;", ["k:4: global-race: thread 0 .* thread 1 .*different values with one store"]),
    (64, "  c[t] = t;\n  __syncwarp();\n  d[t] = c[t ^ 1];\n  flag[t] = c[t ^ 32];", ["k:7: global-race: .*line 4"]),
    (64, TWICE, [r"k:11: shared-race: .*\(line 10\)"]),
    # Each warp completes the barrier for 32 threads on its own.
    (64, BY_WARP.replace("OTHER", "31"), []),
    (64, BY_WARP.replace("OTHER", "32"), [r"k:7: shared-race: .*\(line 5\)"]),
    (64, MAXIMUM, ["k:7: cas-read: .*harmless where the compare-and-swap is repeated"]),
    (64, MAXIMUM.replace("old = *c", "old = *c + flag[0]"), ["k:7: global-race: "]),
    (
        64,
        "  c[t] = t;\n  __syncthreads();\n  d[t] = __ldg(&c[63 - t]);",
        ["k:6: read-only-load: .*needs memory that no"],
    ),
    (64, APART, ["k:7: divergent-barrier: .*while 24 threads of its block wait at line 10"]),
    *(
        (
            64,
            f'  asm volatile("bar.sync %0, %1;" ::"r"({number} + *c), "r"({count} + *c));',
            [f"k:4: barrier-count: {says}"],
        )
        for number, count in ((16, 64), (1, 48), (1, 0), (1, 128))
        for says in [f".*names barrier {number} for {count} threads"]
    ),
    (32, f"  if (t < 16)\n    c[t] = {SHUFFLE.replace('0xfu << t / 4 * 4', '~0u').format(16)};", ABSENT),
    *(
        (32, USE.replace("DISTANCE", str(distance)) + use, [UNDEFINED] * (distance == 8))
        for use in ("c[x & 31] = 1;", "c[t] = d[x & 31];", "if (x > 7) c[t] = 1;", "atomicAdd(c, x);")
        for distance in (1, 8)
    ),
    # Both tiles execute the instruction, so that a GPU may well give the value that was meant.
    (32, f"  c[t] = {SHUFFLE.format(4)};", ["k:4: undefined-shuffle: .*32 times"]),
    (32, f"  c[t] = {SHUFFLE.format(3)};", []),
    (32, "  if (t < 16)\n    c[t] = __any_sync(~0u, t == 3);\n  c[t] += c[t];", [f"k:5: {DIVERGED}"]),
    (
        64,
        "  __shared__ int tile[32];\n  tile[t] = 1;\n  __syncthreads();\n  c[t] = tile[t & 31];",
        [r"k:5: shared-out-of-bounds: "],
    ),
    (32, "  __shared__ int4 tile[40];\n  *(int4*)((int*)tile + 4 * t + 1) = int4{};", ["k:5: misaligned: thread 0 "]),
    (32, "  *(int4*)(c + 4 * t + 1) = int4{};", ["k:4: misaligned: thread 0 "]),
    # A GPU would wait forever.
    (32, VOTE.replace("ELSEWHERE", "__syncthreads();"), [f"k:4: {DIVERGED}", "k:5: barrier-after-exit"]),
    (32, VOTE.replace("ELSEWHERE", "while (*(volatile int*)c == 0) {}"), [f"k:4: {DIVERGED}"]),
    (32, WAITS, ["k:5: deadlock: thread 1 ", "k:6: divergent-warp", "k:6: exited-in-mask"]),
    (32, f"  assert(t < 20);{ENDS}", [r"k:4: assertion: thread 20 .* fails assert\(t < 20\)"]),
    (32, f"  if (t == 9) __trap();{ENDS}", ["k:4: trap: thread 9 .* executes a trap instruction"]),
    (32, f"  if (t == 9) __brkpt();{ENDS}", ["k:4: trap: thread 9 .* executes a brkpt instruction"]),
    (1, CLOCKS, [f"k:{line}: no-time: .*the emulator has no time" for line in (4, 5, 6, 7)]),
]


@pytest.mark.parametrize(("block", "body", "found"), FOUND)
def test_what_is_found(block: int, body: str, found: list[str]) -> None:
    result = result_of(body, block=block)
    check(result, found)
    assert result.ok == (not found or body in (CLOCKS, MAXIMUM))


def test_shared_memory_of_the_block_before_is_not_initialised() -> None:
    body = "  __shared__ int tile[32];\n  if (b == 0) tile[t] = 5;\n  __syncthreads();\n  c[32 * b + t] = tile[31 - t];"
    check(result_of(body, 2, 32, lanes=32), [r"k:7: uninitialised-shared: thread 0 of block \(1, 0, 0\)"])


TOO_FEW = '  if (t < 32) asm volatile("bar.sync 1, 64;");\n  c[t] = 1;'
NEVER_FREED = "  while (atomicCAS(c, 0, 1) != 0) {}\n  *d += 1;"
NEVER_STARTS = """  extern __shared__ int s[];
  if (t == 0) while (*(volatile int*)c != gridDim.x - 1 - b) {}
  if (t == 0) atomicAdd(c, 1);"""
ENDLESS = "  volatile int* p = c;\n  while (p[0] == 0) {\n    p[1] = t;\n  }"


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        (TOO_FEW, {}, r"^deadlock: thread 0 .* near line 4:(.|\n)*32 threads wait at barrier 1, and no other thread"),
        (
            NEVER_FREED,
            {},
            r"^deadlock or endless loop: thread 1 of block \(0, 0, 0\) is still in the loop of line 4: while",
        ),
        # An H200 runs 132 such blocks: the first ones wait for the last ones, which never start.
        (NEVER_STARTS, {"blocks": 133, "shared_bytes": 120_000, "races": False}, "^deadlock"),
        (
            ENDLESS,
            {"budget": 1000},
            r"after 1,000 instructions, thread 0 .* in the loop of line 5: while.*\n.*does not end",
        ),
    ],
    ids=["too few threads at a barrier", "a lock that is never freed", "blocks that never start", "an endless loop"],
)
def test_a_kernel_that_does_not_end(body: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BudgetExceeded, match=message):
        result_of(body, **options)


def test_a_cooperative_launch_of_too_many_blocks() -> None:
    with pytest.raises(BadLaunch, match=r"^too many blocks in cooperative launch: 5,000, of which 4,224 run together$"):
        launched("grid_barrier", grid=(5000,))
    with pytest.raises(BadLaunch, match="133, of which 132 run together"):
        launched("grid_barrier", grid=(133,), registers=255, block=256)


def test_launches_in_order_are_no_race() -> None:
    """The second one reads and overwrites what other blocks of the first one wrote."""
    body = "  float* c = C + (blockIdx.x ^ last) * 32 + threadIdx.x;\n  *c = 2 * *c + last;"
    c = np.ones(64, np.float32)
    for last in (0, 1):
        assert run(kernel(body, "float* C, int last"), [c, last], grid=(2,)).findings == ()
    assert set(c.tolist()) == {5.0}


def test_repeated_launches_take_the_blocks_in_other_orders() -> None:
    """No access of this kernel races, but what it computes depends on which block comes last."""
    body = "  atomicExch(c, (float)blockIdx.x);"
    found = {}
    for _ in range(2):
        device = EmulatedDevice()
        kernel_, c = device.compile(Program("k.cu", kernel(body, "float* c"), "k")), device.upload(np.zeros(1))
        for number in range(5):
            device.launch(kernel_, (8, 1), (32, 1, 1), [c])
            assert device.last is not None and device.last.ok
            order = f" · blocks in order {number}" if number else ""
            assert device.last.label == f"emulated · sm_90 PTX{order}"
            assert found.setdefault(number, device.download(c)[0]) == device.download(c)[0]
    assert found[0] == 7 and len(set(found.values())) > 1
