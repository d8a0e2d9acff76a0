"""What orders the accesses of two threads, and the findings where it is missing: async copies, warps, barriers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import kernel, run


@pytest.mark.parametrize(("held", "lines"), [(121, []), (120, [7])])
def test_a_copy_reads_no_more_than_its_size_and_fills_up_with_zeros(held: int, lines: list[int]) -> None:
    body = """
  __shared__ __align__(16) float tile[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(&tile[4 * threadIdx.x]), bytes = (31 - threadIdx.x) % 5 * 4;
  const float* from = in + 4 * threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes));
  asm volatile("cp.async.wait_all;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = tile[4 * threadIdx.x + i];
"""
    out = np.full(128, 9, np.float32)
    result = run(kernel(body, "const float* in, float* out"), [np.ones(held, np.float32), out])
    assert [(f.kind, f.line) for f in result.findings] == [("global-out-of-bounds", line) for line in lines]
    if not lines:
        assert out.reshape(32, 4).sum(axis=1).tolist() == [(31 - t) % 5 for t in range(32)]


EXCHANGE = """
  __shared__ int tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncwarp();
  int other = tile[threadIdx.x ^ 1];
  __syncwarp();
  tile[threadIdx.x] = other;
  __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x ^ 2];
"""


@pytest.mark.parametrize(("missing", "line"), [(None, None), (0, 7), (1, 9), (2, 11)])
def test_syncwarp_orders_a_warp(missing: int | None, line: int | None) -> None:
    first, *parts = EXCHANGE.split("  __syncwarp();\n")
    source = first + "".join(("\n" if k == missing else "  __syncwarp();\n") + part for k, part in enumerate(parts))
    out = np.zeros(64, np.int32)
    result = run(kernel(source, "const int* in, int* out"), [np.arange(64, dtype=np.int32), out], block=64)
    if missing is None:
        np.testing.assert_array_equal(out, np.arange(64) ^ 3)
    wanted = [] if missing is None else [("missing-syncwarp", line)]
    assert [(f.kind, f.line) for f in result.findings] == wanted


def test_writing_the_same_value_twice_is_no_race() -> None:
    body = "  __shared__ int flag;\n  flag = 1;\n  __syncthreads();\n  out[threadIdx.x] = flag;"
    assert run(kernel(body, "int* out"), [np.zeros(64, np.int32)], block=64).findings == ()
    result = run(kernel(body.replace("flag = 1", "flag = threadIdx.x"), "int* out"), [np.zeros(64, np.int32)], block=64)
    assert [(f.kind, f.line) for f in result.findings] == [("shared-race", 4)]


def test_threads_of_a_block_at_different_barriers() -> None:
    body = """  __shared__ int tile[64];
  tile[threadIdx.x] = 1;
  if (threadIdx.x < 40) {
    __syncthreads();
    tile[threadIdx.x] += in[0];
  } else {
    __syncthreads();
    tile[threadIdx.x] -= in[1];
  }
  out[threadIdx.x] = tile[threadIdx.x];
"""
    result = run(kernel(body, "const int* in, int* out"), [np.zeros(2, np.int32), np.zeros(64, np.int32)], block=64)
    (finding,) = result.findings
    assert (finding.kind, finding.line, finding.other_line) == ("divergent-barrier", 6, 9)
    assert "24 threads" in finding.message
    assert not result.ok


@pytest.mark.parametrize(("barrier", "kind"), [("__syncthreads();", "barrier-after-exit"), ("", "shared-race")])
def test_the_next_barrier_orders_the_reads_of_a_warp_that_has_exited(barrier: str, kind: str) -> None:
    body = f"""  __shared__ int tile[32];
  tile[threadIdx.x % 32] = 7;
  __syncthreads();
  if (threadIdx.x >= 32) {{
    out[threadIdx.x] = tile[63 - threadIdx.x];
    return;
  }}
  {barrier}
  tile[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = tile[threadIdx.x];
"""
    for blocks in (1, 3):
        out = np.zeros(64, np.int32)
        result = run(kernel(body, "int* out"), [out], grid=(blocks,), block=64)
        assert [f.kind for f in result.findings] == [kind]
        assert result.ok == (kind == "barrier-after-exit")
        assert out.tolist() == [*range(32), *[7] * 32]
