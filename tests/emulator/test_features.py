"""CUDA features beyond the rungs: warps, atomics, local and dynamic memory, divergence, asynchronous copies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import compiled, kernel, run
from worklog.emulator import EmulatedDevice, launch
from worklog.kernel.device import Program


def test_a_warp_adds_up_with_each_kind_of_shuffle() -> None:
    body = """
  int t = threadIdx.x, v = in[t];
  int down = v, butterfly = v, up = v;
  for (int d = 16; d; d /= 2) down += __shfl_down_sync(0xffffffffu, down, d);
  for (int d = 16; d; d /= 2) butterfly += __shfl_xor_sync(0xffffffffu, butterfly, d);
  for (int d = 1; d < 32; d *= 2) { int x = __shfl_up_sync(0xffffffffu, up, d); if (t % 32 >= d) up += x; }
  out[t] = __shfl_sync(0xffffffffu, down, 0);
  out[64 + t] = butterfly;
  out[128 + t] = up;
  out[192 + t] = __shfl_down_sync(0xffffffffu, v, 3, 8);
"""
    values = np.arange(64, dtype=np.int32) ** 2
    out = np.zeros(256, np.int32)
    result = run(kernel(body, "const int* in, int* out"), [values, out], block=64)
    sums = values.reshape(2, 32).sum(axis=1).repeat(32)
    np.testing.assert_array_equal(out[:64], sums)
    np.testing.assert_array_equal(out[64:128], sums)
    np.testing.assert_array_equal(out[128:192], values.reshape(2, 32).cumsum(axis=1).ravel())
    segments = values.reshape(8, 8)
    np.testing.assert_array_equal(out[192:], np.hstack([segments[:, 3:], segments[:, 5:]]).ravel())
    assert result.ok


def test_votes_and_reductions() -> None:
    body = """
  unsigned t = threadIdx.x;
  out[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
  out[32 + t] = __any_sync(0xffffffffu, t == 5) + 2 * __all_sync(0xffffffffu, t < 32);
  out[32 + t] += 4 * __any_sync(0xffffffffu, t > 31);
  out[64 + t] = __reduce_add_sync(0xffffffffu, t * t);
  out[96 + t] = __reduce_max_sync(0xffffffffu, (int)t - 40);
  if (t % 2) out[128 + t] = __activemask(); else out[128 + t] = __popc(__activemask());
"""
    out = np.zeros(160, np.uint32)
    assert run(kernel(body, "unsigned* out"), [out]).ok
    assert set(out[:32]) == {sum(1 << t for t in range(0, 32, 3))}
    assert set(out[32:64]) == {3}
    assert set(out[64:96]) == {sum(t * t for t in range(32))}
    assert set(out[96:128].view(np.int32)) == {-9}
    assert set(out[129:160:2]) == {0xAAAAAAAA}
    assert set(out[128:160:2]) == {16}


def test_match_and_elect() -> None:
    body = """
  unsigned t = threadIdx.x, leader, chosen;
  int same;
  out[t] = __match_any_sync(0xffffffffu, in[t] % 5);
  out[32 + t] = __match_all_sync(0xffffffffu, in[t] > -1, &same) + same;
  out[64 + t] = __match_all_sync(0xffffffffu, in[t], &same) + same;
  if (t >= 7) {
    asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffff80; selp.u32 %1, 1, 0, p; }" : "=r"(leader), "=r"(chosen));
    out[96 + t] = 100 * leader + chosen;
  }
"""
    values, out = np.arange(32, dtype=np.int32) ** 2, np.zeros(128, np.uint32)
    assert run(kernel(body, "const int* in, unsigned* out"), [values, out]).ok
    rests = values % 5
    assert out[:32].tolist() == [sum(1 << k for k in range(32) if rests[k] == rest) for rest in rests]
    assert set(out[32:64]) == {0} and set(out[64:96]) == {0}  # 0xffffffff + 1, and nothing
    assert out[96:].tolist() == [0] * 7 + [701] + [700] * 24


def test_cache_hints_naps_and_prefetches_change_nothing() -> None:
    body = """
  unsigned long long policy;
  float x, y;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.f32 %0, [%1], %2;"
               : "=f"(x) : "l"(in + threadIdx.x), "l"(policy));
  asm volatile("ld.global.nc.L2::256B.f32 %0, [%1];" : "=f"(y) : "l"(in + threadIdx.x + 1));
  asm volatile("prefetch.global.L2 [%0]; prefetchu.L1 [%0];" :: "l"(in));
  asm volatile("griddepcontrol.wait;");
  __nanosleep(100);
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" :: "l"(out + threadIdx.x), "f"(x + y), "l"(policy));
"""
    values, out = np.arange(33, dtype=np.float32), np.zeros(32, np.float32)
    assert run(kernel(body, "const float* in, float* out"), [values, out]).findings == ()
    assert out.tolist() == (values[:-1] + values[1:]).tolist()


def test_an_epilogue_with_an_activation() -> None:
    """expf compiles to an approximate exponential: the result is near, with a finding."""
    out, values = np.zeros(32, np.float32), np.linspace(-8, 8, 32).astype(np.float32)
    source = kernel(
        "  float x = in[threadIdx.x];\n  out[threadIdx.x] = x / (1.0f + expf(-x));", "float* in, float* out"
    )
    result = run(source, [values, out])
    np.testing.assert_allclose(out, values / (1 + np.exp(-values.astype(np.float64))), rtol=1e-6)
    assert result.ok
    assert [(f.kind, f.line, f.text) for f in result.findings] == [
        ("approximation", 4, "out[threadIdx.x] = x / (1.0f + expf(-x));")
    ]


def test_a_shuffle_that_names_absent_lanes_is_found() -> None:
    body = "  if (threadIdx.x < 16)\n    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 16);"
    result = run(kernel(body, "unsigned* out"), [np.zeros(32, np.uint32)])
    assert [(f.kind, f.line) for f in result.findings] == [("divergent-warp", 4)]
    assert result.findings[0].count == 16


def test_atomics_on_global_and_shared_memory() -> None:
    body = """
  __shared__ int counter, highest;
  __shared__ float sum;
  if (threadIdx.x == 0) { counter = 0; highest = -1000; sum = 0.0f; }
  __syncthreads();
  int mine = atomicAdd(&counter, 1);
  atomicMax(&highest, (int)(threadIdx.x * 7 % 64));
  atomicAdd(&sum, 0.5f);
  seen[blockIdx.x * 64 + mine] = 1;
  atomicAdd(total, 1.0f);
  atomicExch(last, 5);
  atomicCAS(flag, 0, blockIdx.x + 1);
  __syncthreads();
  float* mine_out = out + blockIdx.x * 3;
  if (threadIdx.x == 0) { mine_out[0] = counter; mine_out[1] = highest; mine_out[2] = sum; }
"""
    seen, total, out = np.zeros(128, np.int32), np.zeros(1, np.float32), np.zeros(6, np.float32)
    last, flag = np.zeros(1, np.int32), np.zeros(1, np.int32)
    parameters = "int* seen, float* total, int* last, int* flag, float* out"
    result = run(kernel(body, parameters), [seen, total, last, flag, out], grid=(2,), block=64)
    assert result.findings == ()
    assert (seen == 1).all()
    assert (total[0], last[0], flag[0]) == (128, 5, 1)
    assert out.tolist() == [64, 63, 32] * 2
    assert result.counts.atomic.requests == 2 * 2 * 6


def test_atomics_on_four_floats_at_once() -> None:
    body = """
  float4 old = atomicAdd((float4*)sums + threadIdx.x % 2, make_float4(1, 2, threadIdx.x, blockIdx.x));
  if (threadIdx.x == 31) out[blockIdx.x] = old.y;
"""
    sums, out = np.zeros(8, np.float32), np.zeros(2, np.float32)
    result = run(kernel(body, "float* sums, float* out"), [sums, out], grid=(2,))
    assert result.findings == ()
    assert sums.tolist() == [32, 64, 2 * sum(range(0, 32, 2)), 16, 32, 64, 2 * sum(range(1, 32, 2)), 16]
    assert out.tolist() == [30, 62]  # the last of 16 odd threads of each block sees those before
    assert result.counts.atomic.bytes == 2 * 32 * 16


def test_local_arrays_dynamic_shared_memory_constants_and_globals() -> None:
    before = "__constant__ int weights[4] = {1, 10, 100, 1000};\n__device__ int offsets[2] = {7, -7};"
    body = """
  extern __shared__ int dynamic[];
  __shared__ int fixed[32];
  int local[8];
  for (int i = 0; i < 8; ++i) local[i] = in[threadIdx.x] + i * i;
  dynamic[threadIdx.x] = local[in[threadIdx.x] & 7];
  fixed[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = dynamic[31 - threadIdx.x] * weights[threadIdx.x & 3] + offsets[threadIdx.x & 1] + fixed[0];
"""
    values = np.arange(32, dtype=np.int32) * 3
    out = np.zeros(32, np.int32)
    result = run(kernel(body, "const int* in, int* out", before), [values, out], shared_bytes=128)
    t = np.arange(32)
    dynamic = values + (values & 7) ** 2
    weights, offsets = np.array([1, 10, 100, 1000]), np.array([7, -7])
    np.testing.assert_array_equal(out, dynamic[31 - t] * weights[t & 3] + offsets[t & 1] + 1)
    assert result.findings == ()


def test_generic_pointers_find_their_memory() -> None:
    body = """
  __shared__ float tile[32];
  float local[2] = {in[threadIdx.x], 2.0f};
  tile[threadIdx.x] = -1.0f;
  __syncthreads();
  float* where = which == 0 ? tile + threadIdx.x : which == 1 ? out : local;
  asm volatile("{ .reg .f32 x; ld.f32 x, [%0]; add.f32 x, x, 0f3F800000; st.f32 [%0], x; }" :: "l"(where) : "memory");
  out[threadIdx.x + 1] = tile[threadIdx.x] + local[0];
"""
    for which, wanted in ((0, 10.0), (2, 10.0)):
        out = np.zeros(33, np.float32)
        run(kernel(body, "const float* in, float* out, int which"), [np.full(32, 10, np.float32), out, which])
        assert set(out[1:]) == {wanted}, which


def test_diverged_threads_converge() -> None:
    """Each thread does its own number of steps, with branches inside; a GPU's answer is each thread's own."""
    body = """
  unsigned n = blockIdx.x * blockDim.x + threadIdx.x + 1, steps = 0;
  while (n != 1 && steps < 200) {
    if (n % 2) n = 3 * n + 1;
    else if (n % 4) n /= 2;
    else { n /= 4; ++steps; }
    ++steps;
  }
  if (blockIdx.x * blockDim.x + threadIdx.x < count) out[blockIdx.x * blockDim.x + threadIdx.x] = steps;
"""

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
        return count

    out = np.zeros(150, np.uint32)
    result = run(kernel(body, "unsigned* out, unsigned count"), [out, 150], grid=(4,), block=40)
    assert out.tolist() == [steps(n) for n in range(1, 151)]
    assert result.findings == ()


def test_blocks_and_threads_in_three_dimensions() -> None:
    body = """
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int place = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[place] = 1000 * block + 100 * threadIdx.z + 10 * threadIdx.y + threadIdx.x;
"""
    out = np.zeros(24 * 30, np.int32)
    run(kernel(body, "int* out"), [out], grid=(2, 3, 4), block=(5, 3, 2))
    b, z, y, x = np.indices((24, 2, 3, 5))
    np.testing.assert_array_equal(out, (1000 * b + 100 * z + 10 * y + x).ravel())


def test_blocks_of_one_batch_wait_only_for_themselves() -> None:
    """Different numbers of turns a block, each with two barriers."""
    body = """
  __shared__ int tile[64];
  int sum = 0;
  for (int i = 0; i <= blockIdx.x; ++i) {
    tile[threadIdx.x] = i + threadIdx.x;
    __syncthreads();
    sum += tile[63 - threadIdx.x];
    __syncthreads();
  }
  out[blockIdx.x * 64 + threadIdx.x] = sum;
"""
    out = np.zeros(5 * 64, np.int32)
    result = run(kernel(body, "int* out"), [out], grid=(5,), block=64)
    b, t = np.indices((5, 64))
    np.testing.assert_array_equal(out.reshape(5, 64), (b + 1) * (63 - t) + b * (b + 1) // 2)
    assert result.findings == ()
    broken = body.replace("    __syncthreads();\n  }", "  }")
    result = run(kernel(broken, "int* out"), [out], grid=(5,), block=64)
    assert {f.kind for f in result.findings} == {"shared-race"}


SIMPLE = kernel("  if (threadIdx.x < n) out[threadIdx.x] = scale;", "float* out, int n, float scale")


def test_findings_outside_of_buffers() -> None:
    kernel = compiled(SIMPLE, "k")
    (nowhere,) = launch(kernel, (1,), 32, [0, 3, 1.0], source=SIMPLE).findings
    assert (nowhere.kind, nowhere.count) == ("global-out-of-bounds", 3) and "in no buffer" in nowhere.message
    (behind,) = launch(kernel, (1,), 32, [np.zeros(4, np.float32), 6, 1.0], source=SIMPLE).findings
    assert behind.threads == (4, 5)
    assert str(behind) == (
        "line 3: global-out-of-bounds: thread 4 of block (0, 0, 0) writes 4 bytes just past the end of argument 0 "
        "(16 bytes) (2 times)\n    if (threadIdx.x < n) out[threadIdx.x] = scale;"
    )


def test_every_batch_of_blocks_starts_with_fresh_shared_memory() -> None:
    body = """
  __shared__ int tile[32];
  if (blockIdx.x == 0) tile[threadIdx.x] = 5;
  __syncthreads();
  out[32 * blockIdx.x + threadIdx.x] = tile[31 - threadIdx.x];
"""
    out = np.zeros(64, np.int32)
    result = run(kernel(body, "int* out"), [out], grid=(2,), lanes=32)
    (finding,) = result.findings
    assert (finding.kind, finding.line, finding.block) == ("uninitialised-shared", 7, (1, 0, 0))
    assert out.tolist() == [5] * 32 + [0] * 32


def test_repeated_accesses_between_barriers_are_compared_once_and_still_found() -> None:
    body = """
  __shared__ float tile[64];
  float sum = 0.0f;
  tile[threadIdx.x] = 1.0f;
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < 500; ++i) {
    tile[threadIdx.x] = tile[threadIdx.x] + 1.0f;
    sum += tile[63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
"""
    result = run(kernel(body, "float* out"), [np.zeros(64, np.float32)], block=64)
    assert {(f.kind, f.line, f.other_line) for f in result.findings} == {("shared-race", 11, 10)}


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_shared_addresses_that_start_below_zero(arch: str) -> None:
    """Read backwards, the base register is minus the lane and the offset brings it back; 32-bit addresses wrap."""
    body = """
  __shared__ float tile[64];
  tile[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
"""
    out = np.arange(64, dtype=np.float32)
    result = launch(compiled(kernel(body, "float* out"), "k", arch), (1,), 64, [out])
    assert result.findings == ()
    assert out.tolist() == list(range(63, -1, -1))


READS = {
    "a sum that starts from nothing": "float x; for (int i = 0; i < n; ++i) x += i; *out = x;",
    "an array that nobody filled": "float x[9]; for (int i = 0; i < n; ++i) x[(i * 5 + n) % 9] += i; *out = x[n % 9];",
}


@pytest.mark.parametrize("body", READS.values(), ids=READS)
def test_unwritten_registers_and_local_arrays_are_nan(body: str) -> None:
    device = EmulatedDevice()
    out = device.upload(np.zeros(1, np.float32))
    kernel = device.compile(Program("reads.cu", f"__global__ void reads(float* out, int n) {{ {body} }}", "reads"))
    device.launch(kernel, (1, 1), 1, (out, np.int32(20)))
    assert np.isnan(device.download(out)).all()
