"""Lanes of a warp that wait for each other at warp instructions, and warps that wait for each other's writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.helpers import cuda, edited, kernel, run

T = np.arange(64)


def warps(values: object) -> np.ndarray:
    return np.array(values).reshape(2, 32)


def turns(left: int) -> int:
    """Of a lane in any_loop.cu."""
    count = 0
    while left > 0:
        left, count = left - (2 if left % 3 == 0 else 1), count + 1
    return count


def served(values: np.ndarray) -> np.ndarray:
    busy = (warps(values) > 0).sum(axis=1)
    return (busy * (busy + 1) // 2).repeat(32)


def switched(values: np.ndarray) -> np.ndarray:
    rest = values % 5
    return warps(np.select([rest == 2, rest == 3], [7, 2 * values], values)).sum(axis=1).repeat(32)


def swapped(values: np.ndarray) -> np.ndarray:
    rows = warps(values)
    return np.hstack([3 * rows[:, 16:], -(rows[:, :16] + 1)]).ravel()


def loops(values: np.ndarray) -> np.ndarray:
    v, own, total = values.copy(), np.zeros(64, np.int64), np.zeros(64, np.int64)
    for number in range(3):
        own += [sum(i for i in range(n + number) if not (i ^ t) & 1) for t, n in enumerate(v)]
        total += own[np.where(T % 32 < 31, T + 1, T)]
        v = v[T ^ 5]
    return total


# By file of kernels/converging: the first 64 elements of its output.
KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "any_loop": lambda values: warps([turns(v) for v in values]).max(axis=1).repeat(32),
    "ballot_loop": served,
    "redux_after_switch": switched,
    "shuffle_in_two_branches": swapped,
    "loop_trips": loops,
    "locks_between_warps": lambda values: np.full(64, values[::32].sum() + 80),
    "turns_of_warps": lambda values: values + 1,
    "flags_between_warps": lambda values: np.concatenate([2 * values[31::-1], values[:32]]),
    "reserved_memory": lambda values: 3 * values[::-1] + 3,
}


@pytest.mark.parametrize("name", KERNELS)
def test_threads_meet_as_on_a_gpu_since_sm_70(name: str) -> None:
    values, out = np.random.default_rng(1).integers(0, 9, 64, np.int32), np.zeros(192, np.int32)
    assert run(cuda(f"converging/{name}"), [values, out], block=64).findings == ()
    np.testing.assert_array_equal(out[:64], KERNELS[name](values))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("locks_between_warps", "    __threadfence_block();  // taken\n", ""),
        ("locks_between_warps", "    __threadfence_block();  // given back\n", ""),
        ("flags_between_warps", "st.release.cta", "st.volatile"),
        ("flags_between_warps", "ld.acquire.cta", "ld.volatile"),
        ("flags_between_warps", "    __syncwarp();\n  }", "  }"),
        ("reserved_memory", "atom.or.acq_rel.cta", "atom.or.relaxed.cta"),
        ("reserved_memory", "ld.acquire.cta", "ld.relaxed.cta"),
    ],
)
def test_a_flag_without_its_fence_is_a_race(name: str, old: str, new: str) -> None:
    source, _ = edited(cuda(f"converging/{name}"), old, new)
    findings = run(source, [np.ones(64, np.int32), np.zeros(192, np.int32)], block=64).findings
    assert "shared-race" in {finding.kind for finding in findings}


@pytest.mark.parametrize("elsewhere", ["__syncthreads();", "while (*(volatile int*)out == 0) {}"])
def test_a_mask_that_names_lanes_that_wait_elsewhere_is_found(elsewhere: str) -> None:
    """A GPU would wait forever."""
    body = f"""  int t = threadIdx.x;
  if (t < 16) out[1 + t] = __any_sync(~0u, t == 3);
  else {{ {elsewhere} }}
  atomicExch(out, 1);
  out[1 + t] += 1;
"""
    findings = run(kernel(body, "int* out"), [np.zeros(33, np.int32)]).findings
    (error,) = [finding for finding in findings if finding.is_error]
    assert (error.kind, error.line, error.count, error.threads[0]) == ("divergent-warp", 4, 16, 16)


def test_lanes_with_other_masks_at_another_place_do_not_answer() -> None:
    """Each half votes alone before both vote together, at different places of the code."""
    body = """  int t = threadIdx.x;
  if (t < 16) {
    out[t] = __ballot_sync(~0u, t % 3 == 0);
  } else {
    out[32 + t] = __ballot_sync(0xffff0000u, t % 2);
    out[t] = __ballot_sync(~0u, t % 3 == 1);
  }
"""
    out = np.zeros(64, np.uint32)
    assert run(kernel(body, "unsigned* out"), [out]).findings == ()
    assert set(out[:32]) == {sum(1 << t for t in range(32) if t % 3 == t // 16)}
    assert set(out[48:]) == {0xAAAA0000}


def test_blocks_that_count_their_attempts_take_turns() -> None:
    """No two iterations of such a loop are the same."""
    body = """  int tries = 0;
  if (threadIdx.x == 0)
    while (atomicAdd(turn, 0) != gridDim.x - 1 - blockIdx.x) ++tries;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = *(volatile int*)turn + (tries < 0);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(turn, 1);
"""
    out, turn = np.zeros(32 * 20, np.int32), np.zeros(1, np.int32)
    assert run(kernel(body, "int* out, int* turn"), [out, turn], grid=(20,)).findings == ()
    np.testing.assert_array_equal(out.reshape(20, 32)[:, 0], np.arange(20)[::-1])


def test_a_lane_that_waits_for_another_lane_of_its_vote_is_a_deadlock() -> None:
    body = """  int t = threadIdx.x;
  if (t == 0) while (atomicAdd(out, 0) == 0) {}
  if (t == 1) while (atomicAdd(out, 0) != 2) {}
  __syncwarp();
  atomicExch(out, 1);
"""
    findings = run(kernel(body, "int* out"), [np.zeros(1, np.int32)]).findings
    assert {(f.kind, f.line) for f in findings if f.is_error} == {("divergent-warp", 6), ("deadlock", 5)}
