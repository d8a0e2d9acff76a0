"""The barriers of a block: named ones, those that only count, reduce, or are reached at several instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.helpers import cuda, edited, kernel, run
from worklog.emulator import BudgetExceeded

T = np.arange(128)


def buffers(values: np.ndarray) -> np.ndarray:
    out = np.zeros(128, np.int64)
    tiles = [values[:64], *(values[64:] + i for i in range(4))]
    for i in range(4):
        out[:64] = (out[:64] + tiles[i][::-1]) * 3
        out[64:] -= tiles[i + 1][::-1]
    return out


def consumed(values: np.ndarray) -> np.ndarray:
    """Of six stages, each weighs twice the one after it."""
    weight = sum((i + 1) * 2 ** (5 - i) for i in range(6))
    return np.concatenate([0 * values[:64], weight * values[63::-1]])


def paired(values: np.ndarray) -> np.ndarray:
    pairs = values.reshape(2, 64)
    once = pairs + pairs[:, ::-1]
    return np.concatenate([once[0], once[1] + once[1][::-1]])


def reduced(values: np.ndarray) -> np.ndarray:
    most = values[:64] > 4
    half = most.sum() + 100 * most.all() + 10000 * (32 + (T[64:] % 3 == 0).sum())
    both = (values > 3).sum() + 1000 * (values < 9).all() + 2000 * (values == 8).any()
    return np.concatenate([np.full(128, both), np.full(64, half), np.full(64, -(half // 10000))])


# By file of kernels/barriers, launched with 128 threads: the start of its output, and the findings, which are warnings.
KERNELS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], set[str]]] = {
    "two_in_branches": (buffers, {"barrier-by-warp"}),
    "producers_and_consumers": (consumed, set()),
    "pairs_of_warps": (paired, set()),
    "reductions": (reduced, {"barrier-by-warp"}),
    "lanes_apart": (lambda values: np.where(T % 3 == 0, values[::-1], -values[::-1]), set()),
    "half_warps": (lambda values: values.reshape(8, 16).sum(axis=1)[np.arange(8) ^ 1].repeat(16), set()),
}


# Races are found in another way in a kernel with mbarriers.
MBARRIER = """
  __shared__ long long mbarrier;
  asm volatile("{.reg .pred %p; setp.eq.u32 %p, %1, 0; @%p mbarrier.init.shared.b64 [%0], 1;}"
               ::"r"((unsigned)__cvta_generic_to_shared(&mbarrier)), "r"(threadIdx.x));
"""
EACH_WAY = pytest.mark.parametrize("more", ["", MBARRIER], ids=["without mbarrier", "with mbarrier"])


def source(name: str, more: str) -> str:
    return edited(cuda(f"barriers/{name}"), "int* out) {\n", f"int* out) {{{more}\n")[0]


@EACH_WAY
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_barrier_waits_for_its_threads_and_orders_them(name: str, blocks: int, more: str) -> None:
    values, out = np.random.default_rng(1).integers(0, 9, 128, np.int32), np.zeros(256, np.int32)
    result = run(source(name, more), [values, out], grid=(blocks,), block=128)
    expected, kinds = KERNELS[name]
    wanted = expected(values)
    np.testing.assert_array_equal(out[: len(wanted)], wanted)
    assert result.ok and {finding.kind for finding in result.findings} == kinds


@EACH_WAY
@pytest.mark.parametrize(
    ("name", "old", "new", "kind"),
    [
        ("two_in_branches", "      sum *= 3;\n      __syncthreads();\n", "      sum *= 3;\n", "shared-race"),
        ("producers_and_consumers", "if (i >= 2) sync(3 + i % 2);", "", "deadlock"),
        ("producers_and_consumers", "stage[i % 2][127 - t];", "stage[1 - i % 2][127 - t];", "shared-race"),
        ("pairs_of_warps", "tile[t ^ 63]", "tile[t ^ 127]", "shared-race"),
        ("pairs_of_warps", '"r"(pair + 7) : "memory"', '"r"(7) : "memory"', "barrier-count"),
        ("lanes_apart", ".cta.sync 0;", ".cta.sync 0, 128;", "barrier-count"),
        ("half_warps", "tile[t ^ i]", "tile[t ^ (i * 2)]", "missing-syncwarp"),
        ("half_warps", "  __syncwarp();\n", "  __syncwarp(half);\n", "missing-syncwarp"),
    ],
)
def test_a_barrier_that_does_not_hold_its_threads_is_found(name: str, old: str, new: str, kind: str, more: str) -> None:
    changed, _ = edited(source(name, more), old, new)
    result = run(changed, [np.ones(128, np.int32), np.zeros(256, np.int32)], block=128)
    assert kind in {finding.kind for finding in result.findings} and not result.ok


def test_a_barrier_that_too_few_reach_is_a_deadlock() -> None:
    body = '  if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");\n  out[threadIdx.x] = 1;'
    with pytest.raises(BudgetExceeded) as caught:
        run(kernel(body, "int* out"), [np.zeros(64, np.int32)], block=64)
    assert str(caught.value).startswith("deadlock: thread 0 of block (0, 0, 0) is still near line 3:")
    assert "32 threads wait at barrier 1, and no other thread" in str(caught.value)


@pytest.mark.parametrize(("number", "count"), [(16, 64), (1, 48), (1, 0), (1, 128)])
def test_barriers_that_do_not_exist_end_the_launch(number: int, count: int) -> None:
    body = '  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count));'
    (finding,) = run(kernel(body, "int number, int count"), [number, count], block=64).findings
    assert (finding.kind, finding.line) == ("barrier-count", 3)
    assert f"names barrier {number} for {count} threads" in finding.message


def test_a_predicated_barrier_waits_for_the_threads_that_execute_it() -> None:
    """Warp 2 does not; the warps 0 and 1 wait for each other."""
    body = """  __shared__ int tile[64];
  int t = threadIdx.x;
  if (t < 64) tile[t] = in[t];
  asm volatile("{.reg .pred %p; setp.lt.s32 %p, %0, 64; @%p bar.sync 3, 64;}" ::"r"(t) : "memory");
  out[t] = t < 64 ? tile[63 - t] : 5;
"""
    values, out = np.arange(64, dtype=np.int32) + 7, np.zeros(96, np.int32)
    assert run(kernel(body, "const int* in, int* out"), [values, out], block=96).findings == ()
    assert out.tolist() == [*values[::-1], *[5] * 32]
