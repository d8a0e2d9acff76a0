"""Member masks of vote, redux, match, shfl and __syncwarp: the lanes they name, and the mistakes with them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import kernel, run

T = np.arange(64)
# As cooperative groups' tiled_partition<size> and CUB's WarpReduce<int, size> build their masks.
TILE = "  unsigned t = threadIdx.x, lane = t % 32, mask = (0xffffffffu >> (32 - size)) << (lane / size * size);\n"


def tiled(values: np.ndarray, size: int) -> np.ndarray:
    """One row per tile."""
    return values.reshape(-1, size)


def ballots(predicate: np.ndarray, size: int) -> np.ndarray:
    """Each lane's tile as a mask of its warp's lanes, where the predicate holds."""
    bits = np.where(predicate, 1 << (T % 32), 0)
    return tiled(bits, size).sum(axis=1).repeat(size)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_each_tile_of_a_warp_exchanges_its_own_values(size: int) -> None:
    body = """
  int v = in[t], sum = v, down = v;
  out[t] = __ballot_sync(mask, v & 1);
  out[64 + t] = __any_sync(mask, v > 90) + 2 * __all_sync(mask, v > 9);
  out[64 + t] += 4 * (__match_all_sync(mask, v > 50, &sum) == mask);
  out[128 + t] = __reduce_add_sync(mask, v);
  out[192 + t] = __reduce_min_sync(mask, v - 50) + 50;
  out[256 + t] = __match_any_sync(mask, v % 3);
  sum = v;
  for (int d = size / 2; d; d /= 2) sum += __shfl_xor_sync(mask, sum, d, size);
  for (int d = size / 2; d; d /= 2) {  // CUB's clamp is the last lane of the tile
    int x = __shfl_down_sync(mask, down, d);
    if (lane % size + d < size) down += x;
  }
  out[320 + t] = sum;
  out[384 + t] = __shfl_sync(mask, down, 0, size);
"""
    values, out = np.random.default_rng(size).integers(0, 100, 64, np.int32), np.zeros(448, np.uint32)
    result = run(kernel(TILE + body, "const int* in, unsigned* out, int size"), [values, out, size], block=64)
    assert result.findings == ()
    ballot, flags, total, least, match, butterfly, down = out.reshape(7, 64)
    tiles = tiled(values, size)
    np.testing.assert_array_equal(ballot, ballots(values & 1 == 1, size))
    large = tiles > 50
    wanted = (tiles > 90).any(axis=1) + 2 * (tiles > 9).all(axis=1) + 4 * (large.all(axis=1) | ~large.any(axis=1))
    np.testing.assert_array_equal(flags, wanted.repeat(size))
    for sums in (total, butterfly, down):
        np.testing.assert_array_equal(sums, tiles.sum(axis=1).repeat(size))
    np.testing.assert_array_equal(least, tiles.min(axis=1).repeat(size))
    rests = values % 3
    np.testing.assert_array_equal(match, np.choose(rests, [ballots(rests == rest, size) for rest in range(3)]))


def test_lanes_of_one_instruction_may_have_any_disjoint_masks() -> None:
    """Three masks that are no tiles, in an order of their own: even lanes below 20, odd lanes, and the others."""
    body = """
  unsigned t = threadIdx.x, even = 0x55555u, odd = 0xaaaaaaaau;
  unsigned mask = t % 2 ? odd : t < 20 ? even : ~(odd | even);
  out[t] = __ballot_sync(mask, t % 3 == 0);
  out[32 + t] = __reduce_max_sync(mask, t * 7 % 32);
  if (t % 2) out[64 + t] = __activemask(); else out[64 + t] = __popc(__activemask());
"""
    out = np.zeros(96, np.uint32)
    assert run(kernel(body, "unsigned* out"), [out]).findings == ()
    t = np.arange(32)
    group = np.where(t % 2, 0, np.where(t < 20, 1, 2))
    for lane in t:
        mine = t[group == group[lane]]
        assert out[lane] == sum(1 << k for k in mine if k % 3 == 0)
        assert out[32 + lane] == max(mine * 7 % 32)
        assert out[64 + lane] == (0xAAAAAAAA if lane % 2 else 16)


@pytest.mark.parametrize(
    "call",
    ["__any_sync(M, t == 3)", "__reduce_add_sync(M, t)", "__match_any_sync(M, t)", "__shfl_xor_sync(M, t, 1)"],
)
@pytest.mark.parametrize(
    ("mask", "kind", "count"),
    [
        ("0xffffu", "member-mask", 16),  # lanes 16 to 31 are not in it
        ("t < 16 ? 0xffffffffu : 0xffff0000u", "member-mask", 16),  # they execute the instruction with another mask
        ("0u", "member-mask", 32),
    ],
)
def test_masks_that_do_not_fit_the_lanes_are_found(call: str, mask: str, kind: str, count: int) -> None:
    body = f"  unsigned t = threadIdx.x;\n  out[t] = {call.replace('M', mask)};"
    findings = run(kernel(body, "unsigned* out"), [np.zeros(32, np.uint32)]).findings
    assert (kind, 4, count) in [(f.kind, f.line, f.count) for f in findings]


def test_a_mask_that_names_diverged_lanes_is_found() -> None:
    body = "  int t = threadIdx.x;\n  if (t < 16)\n    out[t] = __any_sync(~0u, t == 3);\n  out[t] += out[t];"
    result = run(kernel(body, "unsigned* out"), [np.zeros(64, np.uint32)])
    assert [(f.kind, f.line, f.count) for f in result.findings] == [("divergent-warp", 5, 16)]
    assert not result.ok


@pytest.mark.parametrize(("block", "early"), [(32, "  if (t >= 20) return;"), (20, "")])
def test_exited_and_missing_lanes_of_a_mask_do_not_take_part(block: int, early: str) -> None:
    """PTX waits for the non-exited threads of a mask and reduces over these, so that this is a warning."""
    body = f"""  unsigned t = threadIdx.x;
{early}
  out[t] = __ballot_sync(0xffffffffu, t % 2);
  out[32 + t] = __reduce_and_sync(0xffffffffu, t + 64) + __all_sync(0xffffffffu, t < 20);
"""
    out = np.zeros(64, np.uint32)
    result = run(kernel(body, "unsigned* out"), [out], block=block)
    assert {(f.kind, f.line) for f in result.findings} == {("exited-in-mask", 5), ("exited-in-mask", 6)}
    assert result.ok
    assert set(out[:20]) == {0xAAAAA}
    assert set(out[32:52]) == {65}


# A partial warp's sum: lanes 12 to 19 read from outside of the mask, and only lane 0's sum is used.
PARTIAL = """  unsigned t = threadIdx.x;
  if (t >= 20) return;
  float v = in[t];
  for (int d = 16; d; d /= 2) {
    float x = __shfl_down_sync(0xfffffu, v, d);
    ADD
  }
  if (WHO) out[t] = v;
"""
BOUND, UNBOUND = "if (t + d < 20) v += x;", "v += x;"


@pytest.mark.parametrize(
    ("add", "who", "found"),
    [
        (BOUND, "t == 0", False),
        (BOUND, "t < 20", False),
        ("v = t + d < 20 ? v + x : v;", "t < 20", False),
        ("v += t + d < 20 && x > 0 ? x : 0;", "t < 20", False),
        (UNBOUND, "t == 0", True),  # lane 4's first addend is from lane 20
        (UNBOUND, "t == 19", True),
        ("if (x > 0 && t + d < 20) v += x;", "t == 0", False),
    ],
)
def test_a_value_shuffled_from_outside_of_the_mask_is_found_where_it_is_used(add: str, who: str, found: bool) -> None:
    values, out = np.arange(1, 33, dtype=np.float32), np.zeros(32, np.float32)
    source = kernel(PARTIAL.replace("ADD", add).replace("WHO", who), "const float* in, float* out")
    result = run(source, [values, out])
    assert {(f.kind, f.line) for f in result.findings} == ({("undefined-shuffle", 7)} if found else set())
    if found:
        assert "line 10 uses the value" in result.findings[0].message
    else:
        assert out[0] == values[:20].sum()


@pytest.mark.parametrize(
    "use",
    ["out[x & 31] = 1;", "out[t] = in[x & 31];", "if (x > 7) out[t] = 1;", "atomicAdd(out, x);"],
    ids=["address of a store", "address of a load", "branch", "operand of an atomic"],
)
def test_each_kind_of_use_of_an_undefined_value_is_found(use: str) -> None:
    body = f"  int t = threadIdx.x;\n  if (t >= 8) return;\n  int x = __shfl_xor_sync(0xffu, t, in[0]);\n  {use}"
    for distance, kinds in ((1, set()), (8, {"undefined-shuffle"})):
        values = np.full(32, distance, np.int32)
        result = run(kernel(body, "const int* in, int* out"), [values, np.zeros(32, np.int32)])
        assert {f.kind for f in result.findings} == kinds


def test_a_value_from_another_tile_is_found() -> None:
    """Both tiles execute the instruction, so that a GPU may well give the value that was meant."""
    body = "  out[t] = __shfl_xor_sync(mask, t, distance);"
    for distance, lanes in ((3, 0), (4, 32)):
        arguments = [np.zeros(32, np.uint32), 4, distance]
        findings = run(kernel(TILE + body, "unsigned* out, int size, int distance"), arguments).findings
        assert [(f.kind, f.count) for f in findings] == [("undefined-shuffle", lanes)] * (lanes > 0)
