"""Races in global memory: between the threads of a block, between blocks, and what orders them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.helpers import gemm, kernel, run, rung_kernel
from worklog.emulator import EmulatedDevice, Finding
from worklog.kernel.device import Program


def found(body: str, *, blocks: int = 1, block: int = 64, lanes: int | None = None) -> tuple[Finding, ...]:
    """Of a kernel over int* c, d and flag."""
    buffers = [np.zeros(4 * blocks * block, np.int32) for _ in range(3)]
    source = kernel(body, "int* c, int* d, int* flag")
    return run(source, buffers, grid=(blocks,), block=block, lanes=lanes, count=False).findings


T = "  const int t = threadIdx.x, b = blockIdx.x, n = blockDim.x;\n"


@pytest.mark.parametrize(
    ("body", "lines", "threads"),
    [
        ("  c[t] = t;\n  d[t] = c[t ^ 32];", (5, 4), (32, 0)),
        ("  d[t] = c[t ^ 32];\n  c[t] = t + 1;", (5, 4), (32, 0)),
        ("  c[t] = t + 1;\n  c[t ^ 1] = 2 * t;", (5, 4), (1, 0)),
        ("  c[t / 2] = t;", (4, 4), (0, 1)),
        ("  atomicAdd(c, 1);\n  if (t == 40) *c = 7;", (5, 4), (63, 40)),
    ],
    ids=["read after write", "write after read", "write after write", "one store", "beside an atomic"],
)
def test_threads_of_a_block(body: str, lines: tuple[int, int], threads: tuple[int, int]) -> None:
    """Each is a finding at its lines, and none with a barrier between, where there can be one."""
    (finding,) = found(T + body)
    assert (finding.kind, finding.line, finding.other_line) == ("global-race", *lines)
    assert finding.threads == threads
    if "\n" in body:
        assert "of argument 0, with no __syncthreads() between them" in finding.message
        assert found(T + body.replace("\n", "\n  __syncthreads();\n")) == ()


def test_syncwarp_orders_a_warp_and_no_more() -> None:
    body = T + "  c[t] = t;\n  __syncwarp();\n  d[t] = c[t ^ 1];\n  flag[t] = c[t ^ 32];"
    assert [(f.kind, f.line, f.other_line) for f in found(body)] == [("global-race", 7, 4)]


ADD = T + "  c[t] += b + 1;"


@pytest.mark.parametrize("lanes", [None, 64], ids=["side by side", "one after the other"])
@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (ADD, {"global-race"}),
        (ADD.replace("c[t] +=", "c[b * n + t] +="), set()),
        (T + "  atomicAdd(&c[t], b + 1);", set()),
        (T + "  if (b == 2) c[t] = 0;\n  atomicAdd(&c[t], b + 1);", {"global-race"}),
        (T + "  *flag = 1;\n  c[b * n + t] = *flag;", set()),
        (T + "  d[t + b * n] = c[t];\n  __syncthreads();\n  if (b == 1) c[t] = 5;", {"global-race"}),
        (T + "  ((char*)c)[b * n + t] = t;", set()),
    ],
    ids=["add", "own elements", "atomics", "clear", "the same value", "overwrite an input", "bytes"],
)
def test_blocks(body: str, kinds: set[str], lanes: int | None) -> None:
    findings = found(body, blocks=3, lanes=lanes)
    assert {f.kind for f in findings} == kinds
    assert all("of block (0, 0, 0)" in f.message or "of block (1, 0, 0)" in f.message for f in findings)


LAST_BLOCK = T + (
    """  __shared__ int last;
  c[b * n + t] = t + b;
  __threadfence();
  __syncthreads();
  if (t == 0) last = atomicAdd(flag, 1) == gridDim.x - 1;
  __threadfence();
  __syncthreads();
  for (int i = 0; last && i < gridDim.x; ++i) d[t] += c[i * n + t ^ 1];
"""
)
ONE_FENCE = T + (
    """  c[b * n + t] = t + b;
  __syncthreads();
  if (t == 0 && b == 0) {
    __threadfence();
    asm volatile("st.global.relaxed.gpu.b32 [%0], 1;" :: "l"(flag));
  }
  if (t == 5 && b == 1) {
    int seen = 0;
    while (!seen) asm volatile("ld.global.relaxed.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(flag));
    __threadfence();
  }
  __syncthreads();
  if (b == 1) d[t] = c[t ^ 1];
"""
)
BY_WARP = T + (
    """  c[b * n + t] = t + b;
  __syncwarp();
  if (t == 0 && b == 0) asm volatile("st.global.release.gpu.b32 [%0], 1;" :: "l"(flag));
  if (t == 0 && b == 1) {
    int seen = 0;
    while (!seen) asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(flag));
  }
  __syncwarp();
  if (b == 1 && t < 32) d[t] = c[t ^ 1];
"""
)
PASSED_ON = T + (
    """  volatile int* turn = flag;
  if (t == 0) while (*turn != b) {}
  __threadfence();
  __syncthreads();
  c[t ^ b] += b;
  __threadfence();
  __syncthreads();
  if (t == 0) *turn = b + 1;
"""
)
TURNS = T + (
    """  volatile int* turn = flag + b % 2;
  if (t == 0) while (*turn < b / 2) {}
  __threadfence();
  __syncthreads();
  c[b % 2 * n + t] += b;
  __threadfence();
  __syncthreads();
  if (t == 0) *turn = b / 2 + 1;
"""
)
SHARED_LOCK = T + (
    """  __shared__ int lock;
  if (t == 0) lock = 0;
  __syncthreads();
  if (t % 32 == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    __threadfence_block();
    c[b] += t;
    __threadfence_block();
    atomicExch(&lock, 0);
  }
"""
)
BY_GUARD = BY_WARP.replace(
    'if (t == 0 && b == 0) asm volatile("st.global.release.gpu.b32 [%0], 1;" :: "l"(flag));',
    """asm volatile("{ .reg .pred p; setp.eq.u32 p, %1, 0; @p st.global.release.gpu.b32 [%0], 1; }"
    :: "l"(flag), "r"(t + b));""",
)
HANDED_OVER = {
    "shared lock": SHARED_LOCK,
    "ticket": LAST_BLOCK,
    "one fence": ONE_FENCE,
    "by warp": BY_WARP,
    "by an instruction with a guard": BY_GUARD,
    "passed on": PASSED_ON,
    "two chains of turns": TURNS,
}


@pytest.mark.parametrize("lanes", [None, 192, 64])
@pytest.mark.parametrize("body", HANDED_OVER.values(), ids=HANDED_OVER)
def test_a_hand_over_with_fences_is_clean(body: str, lanes: int | None) -> None:
    assert found(body, blocks=5, lanes=lanes) == ()


@pytest.mark.parametrize(
    ("body", "number", "old", "new"),
    [
        (LAST_BLOCK, 0, "__threadfence();", ""),
        (LAST_BLOCK, 1, "__threadfence();", ""),
        (LAST_BLOCK, 0, "__threadfence();", "if (t == 0) __threadfence();"),
        (LAST_BLOCK, 0, "__threadfence();", "__threadfence_block();"),
        (LAST_BLOCK, 0, "__syncthreads();", ""),
        (ONE_FENCE, 0, "__syncthreads();", ""),
        (ONE_FENCE, 0, "__threadfence();", ""),
        (ONE_FENCE, 1, "__threadfence();", ""),
        (BY_WARP, 0, "release", "relaxed"),
        (BY_WARP, 0, "acquire", "relaxed"),
        (BY_WARP, 0, "release.gpu", "release.cta"),
        (BY_WARP, 0, "__syncwarp();", ""),
        (PASSED_ON, 0, "__threadfence();", ""),
        (TURNS, 0, "flag + b % 2", "flag"),
        (SHARED_LOCK, 1, "__threadfence_block();", ""),
        (SHARED_LOCK, 0, "c[b] +=", "c[0] +="),
        (PASSED_ON, 1, "__threadfence();", ""),
        (PASSED_ON, 1, "__syncthreads();", ""),
    ],
)
def test_each_part_of_a_hand_over_is_needed(body: str, number: int, old: str, new: str) -> None:
    parts = body.split(old)
    wrong = old.join(parts[: number + 1]) + new + old.join(parts[number + 1 :])
    kinds = {f.kind for f in found(wrong, blocks=5)}
    assert "global-race" in kinds


def test_a_volatile_read_of_what_was_handed_over_needs_no_fence() -> None:
    """As in the CUDA C++ Programming Guide, "Memory Fence Functions"."""
    start, end = LAST_BLOCK.rsplit("  __threadfence();\n", 1)
    assert found((start + end).replace("+= c[", "+= ((volatile int*)c)["), blocks=5) == ()


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


def test_a_rung_computes_the_same_in_any_order() -> None:
    record, code, _ = rung_kernel("tiles_1d")
    (c, _, result), (again, _, shuffled) = (gemm(record, code, (256, 192, 32), order=order) for order in (0, 7))
    np.testing.assert_array_equal(c, again)
    assert shuffled.findings == () and result.counts == shuffled.counts


EXPLOIT = Path(__file__).parents[1] / "exploits" / "wrong" / "handover_without_fence.cu"


def test_with_its_fences_the_hand_over_of_the_exploit_is_right() -> None:
    source = EXPLOIT.read_text(encoding="utf-8").replace("// missing: __threadfence(),", "__threadfence();  //")
    a, b, c = np.ones((20, 9), np.float32), np.ones((9, 40), np.float32), np.zeros((20, 40), np.float32)
    for _ in range(2):
        result = run(source, [20, 40, 9, 1.0, a, b, 0.0, c], entry="handover_without_fence", grid=(9, 3), block=(16, 8))
        assert result.findings == ()
        assert (c == 9).all()
