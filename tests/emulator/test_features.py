"""CUDA features beyond the rungs: warps, atomics, local and dynamic memory, divergence, asynchronous copies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import HEAD, compiled, cuda, kernel, run
from worklog.emulator import launch, load


def test_a_warp_adds_up_with_each_kind_of_shuffle() -> None:
    values = np.arange(64, dtype=np.int32) ** 2
    out = np.zeros(256, np.int32)
    result = run(cuda("shuffles"), [values, out], block=64)
    sums = values.reshape(2, 32).sum(axis=1).repeat(32)
    np.testing.assert_array_equal(out[:64], sums)
    np.testing.assert_array_equal(out[64:128], sums)
    np.testing.assert_array_equal(out[128:192], values.reshape(2, 32).cumsum(axis=1).ravel())
    segments = values.reshape(8, 8)
    np.testing.assert_array_equal(out[192:], np.hstack([segments[:, 3:], segments[:, 5:]]).ravel())
    assert result.ok


def test_match_and_elect() -> None:
    values, out = np.arange(32, dtype=np.int32) ** 2, np.zeros(128, np.uint32)
    assert run(cuda("match"), [values, out]).ok
    rests = values % 5
    assert out[:32].tolist() == [sum(1 << k for k in range(32) if rests[k] == rest) for rest in rests]
    assert set(out[32:64]) == {0} and set(out[64:96]) == {0}  # 0xffffffff + 1, and nothing
    assert out[96:].tolist() == [0] * 7 + [701] + [700] * 24


def test_cache_hints_nanosleep_and_prefetches_change_nothing() -> None:
    values, out = np.arange(33, dtype=np.float32), np.zeros(32, np.float32)
    assert run(cuda("cache_hints"), [values, out]).findings == ()
    assert out.tolist() == (values[:-1] + values[1:]).tolist()


def test_a_shuffle_that_names_absent_lanes_is_found() -> None:
    body = "  if (threadIdx.x < 16)\n    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 16);"
    result = run(kernel(body, "unsigned* out"), [np.zeros(32, np.uint32)])
    found = [(f.kind, f.line, f.count) for f in result.findings]
    assert found == [("exited-in-mask", 4, 16), ("undefined-shuffle", 4, 16)]
    assert not result.ok


def test_atomics_on_global_and_shared_memory() -> None:
    seen, total, out = np.zeros(128, np.int32), np.zeros(1, np.float32), np.zeros(6, np.float32)
    last, flag = np.zeros(1, np.int32), np.zeros(1, np.int32)
    result = run(cuda("atomics"), [seen, total, last, flag, out], grid=(2,), block=64)
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
    values = np.arange(32, dtype=np.int32) * 3
    out = np.zeros(32, np.int32)
    result = run(cuda("memories"), [values, out], shared_bytes=128)
    t = np.arange(32)
    dynamic = values + (values & 7) ** 2
    weights, offsets = np.array([1, 10, 100, 1000]), np.array([7, -7])
    np.testing.assert_array_equal(out, dynamic[31 - t] * weights[t & 3] + offsets[t & 1] + 1)
    assert result.findings == ()


def test_generic_pointers_find_their_memory() -> None:
    for which in (0, 2):
        out = np.zeros(33, np.float32)
        run(cuda("generic_pointers"), [np.full(32, 10, np.float32), out, which])
        assert set(out[1:]) == {10.0}, which


def test_diverged_threads_converge() -> None:
    """Each thread does its own number of steps, with branches inside; a GPU's answer is each thread's own."""

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
        return count

    out = np.zeros(150, np.uint32)
    result = run(cuda("diverged"), [out, 150], grid=(4,), block=40)
    assert out.tolist() == [steps(n) for n in range(1, 151)]
    assert result.findings == ()


def test_blocks_and_threads_in_three_dimensions() -> None:
    out = np.zeros(24 * 30, np.int32)
    run(cuda("three_dimensions"), [out], grid=(2, 3, 4), block=(5, 3, 2))
    b, z, y, x = np.indices((24, 2, 3, 5))
    np.testing.assert_array_equal(out, (1000 * b + 100 * z + 10 * y + x).ravel())


def test_blocks_of_one_batch_wait_only_for_themselves() -> None:
    """A different number of iterations per block, each with two barriers."""
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
COPY = kernel("  out[threadIdx.x] = in[threadIdx.x];", "const float* in, float* out")


def test_findings_outside_of_buffers() -> None:
    """A load there gives zero."""
    kernel = compiled(SIMPLE, "k")
    (nowhere,) = launch(kernel, (1,), 32, [0, 3, 1.0], source=SIMPLE).findings
    assert (nowhere.kind, nowhere.count) == ("global-out-of-bounds", 3) and "in no buffer" in nowhere.message
    (behind,) = launch(kernel, (1,), 32, [np.zeros(4, np.float32), 6, 1.0], source=SIMPLE).findings
    assert behind.threads == (4, 5)
    assert behind.at("k.cu") == (
        "k.cu:3: global-out-of-bounds: thread 4 of block (0, 0, 0) writes 4 bytes just past the end of argument 0 "
        "(16 bytes) (2 times)\n    if (threadIdx.x < n) out[threadIdx.x] = scale;"
    )
    out = np.ones(32, np.float32)
    run(COPY, [np.arange(1, 5, dtype=np.float32), out])
    assert out.tolist() == [1, 2, 3, 4] + [0] * 28


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


@pytest.mark.parametrize(
    "body",
    [
        "float x; for (int i = 0; i < n; ++i) x += i; *out = x;",
        "float x[9]; for (int i = 0; i < n; ++i) x[(i * 5 + n) % 9] += i; *out = x[n % 9];",
    ],
    ids=["a sum that starts from nothing", "an array that is never written"],
)
def test_unwritten_registers_and_local_arrays_are_nan(body: str) -> None:
    out = np.zeros(1, np.float32)
    run(kernel(body, "float* out, int n"), [out, 20], block=1)
    assert np.isnan(out).all()


def test_a_kernel_prints_what_c_would() -> None:
    body = """  if (threadIdx.x % 16 == 3)
    out[0] = printf("%d %5.2f|%-4s|%c %x %lld %% %p\\n", -7, x[threadIdx.x], "ab", 'q', 255, 1ll << 40, (void*)0);
  if (threadIdx.x == 0) printf("%*d %u\\n", 4, 5, 4294967295u);"""
    out, x = np.zeros(1, np.int32), np.arange(32, dtype=np.float32)
    result = run(kernel(body, "int* out, const float* x"), [out, x])
    rest = "|ab  |q ff 1099511627776 % 0x0"
    assert result.printed == (f"-7  3.00{rest}", f"-7 19.00{rest}", "   5 4294967295")
    assert result.ok and out[0] == 7


def test_most_lines_of_a_loop_are_counted_and_not_kept() -> None:
    result = run(kernel('  for (int i = 0; i < 10; i++) printf("%d\\n", i);', "float* out"), [np.zeros(1, np.float32)])
    assert result.printed == ("0",) * 20 + ("… and 300 more calls of printf",)


@pytest.mark.parametrize(
    ("statement", "kind", "says"),
    [
        ("assert(threadIdx.x < 20);", "assertion", "thread 20 of block (0, 0, 0) fails assert(threadIdx.x < 20)"),
        ("if (threadIdx.x == 9) __trap();", "trap", "thread 9 of block (0, 0, 0) executes a trap instruction"),
        ("if (threadIdx.x == 9) __brkpt();", "trap", "thread 9 of block (0, 0, 0) executes a brkpt instruction"),
    ],
)
def test_a_failed_assertion_and_a_trap_end_the_launch(statement: str, kind: str, says: str) -> None:
    out = np.zeros(64, np.float32)
    result = run(
        kernel(f"  {statement}\n  __syncthreads();\n  out[threadIdx.x + 1000] = 1;", "float* out"), [out], block=32
    )
    (finding,) = result.findings
    assert (finding.kind, finding.line) == (kind, 3) and says in finding.message and not result.ok


def test_only_the_kernel_that_is_asked_for_must_be_supported() -> None:
    other = 'extern "C" __global__ void other(long long* out) { *out = clock64(); }'
    source = kernel("  out[0] = 5;", "float* out", before=other)
    out = np.zeros(1, np.float32)
    assert launch(compiled(source, "k"), (1,), 1, [out]).ok and out[0] == 5


def test_a_clock_only_grows_and_is_reported() -> None:
    """A loop that waits for a time ends; the finding says that the values are no time."""
    body = """
  long long start = clock64(); unsigned before = clock();
  while (clock64() - start < 20000) __nanosleep(10);
  unsigned long long now; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  out[0] = clock64() > start && clock() > before && now > 0;
"""
    out = np.zeros(1, np.int32)
    result = run(kernel(body, "int* out"), [out], block=1)
    assert out[0] == 1 and result.ok
    assert {f.kind for f in result.findings} == {"no-time"} and {f.line for f in result.findings} == {4, 5, 6, 7}
    assert "the emulator has no time" in result.findings[0].message


def test_a_generic_address_tells_its_memory() -> None:
    body = """
  __shared__ int tile[1];
  int own[2] = {n, n + 1};
  out[0] = __isShared(tile) + 2 * __isShared(out) + 4 * __isLocal(own + n) + 8 * __isLocal(tile);
"""
    out = np.zeros(1, np.int32)
    run(kernel(body, "int* out, int n"), [out, 0], block=1)
    assert out[0] == 1 + 4


def test_a_vector_of_parameters() -> None:
    text = """.visible .entry k(.param .u64 out, .param .align 16 .b8 four[16]) {
.reg .b64 %a; .reg .b32 %x, %y, %z, %w;
ld.param.u64 %a, [out];
ld.param.v2.u32 {%x, %y}, [four];
ld.param.v2.u32 {%z, _}, [four+8];
ld.param.v4.u32 {_, _, _, %w}, [four];
st.global.v4.u32 [%a], {%x, %y, %z, %w};
ret;\n}\n"""
    out = np.zeros(4, np.uint32)
    launch(load(HEAD + text), (1,), 1, [out, sum((k + 5) << 32 * k for k in range(4))])
    assert out.tolist() == [5, 6, 7, 8]


def test_a_parameter_is_read_at_an_address_that_a_register_holds() -> None:
    body = "out[threadIdx.x] = table.numbers[threadIdx.x ^ 3];"
    out = np.zeros(32, np.int32)
    source = kernel(body, "int* out, const __grid_constant__ Table table", "struct Table { int numbers[32]; };")
    numbers = np.arange(32, dtype=np.int32) ** 2
    result = run(source, [out, int.from_bytes(numbers.tobytes(), "little")])
    assert out.tolist() == numbers[np.arange(32) ^ 3].tolist() and result.counts.global_load.requests == 0


def test_variables_that_hold_addresses_of_others() -> None:
    before = "__device__ float table[4] = {1, 2, 3, 4};\n__device__ float* cursor = table + 2;"
    before += "\n__constant__ const float* both[2] = {table + 1, table};"
    out = np.zeros(3, np.float32)
    body = "out[0] = *cursor; out[1] = *both[n]; out[2] = cursor[1];"
    assert run(kernel(body, "float* out, int n", before), [out, 0], block=1).ok
    assert out.tolist() == [3, 2, 4]


def test_registers_may_be_declared_without_a_space() -> None:
    ptx = HEAD + ".visible .entry k(.param .u64 p) {.reg.b64 %a; .reg.u32 %b; "
    ptx += "ld.param.u64 %a, [p]; mov.u32 %b, 7; st.global.u32 [%a], %b; ret; }"
    out = np.zeros(1, np.uint32)
    launch(load(ptx, "k"), (1,), 1, [out])
    assert out[0] == 7


def test_special_registers_tell_the_sizes_of_shared_memory() -> None:
    """PTX ISA: in units of 128 bytes, without and with the 1024 that are reserved for each block."""
    body = """  extern __shared__ int dynamic[];
  __shared__ int tile[10];
  unsigned begin, end, place, seven;
  dynamic[0] = tile[3] = 1;
  asm("mov.u32 %0, %%total_smem_size;" : "=r"(out[0]));
  asm("mov.u32 %0, %%aggr_smem_size;" : "=r"(out[1]));
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(out[2]));
  asm("mov.u32 %0, %%reserved_smem_offset_cap;" : "=r"(out[3]));
  asm("mov.u32 %0, %%reserved_smem_offset_begin;" : "=r"(begin));
  asm("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(end));
  asm("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(place));
  asm volatile("st.shared.u32 [%1+284], 7; ld.shared.u32 %0, [%1+284];" : "=r"(seven) : "r"(place));
  out[4] = end - begin;
  out[5] = seven + (begin <= place && place + 288 <= end);
"""
    out = np.zeros(6, np.uint32)
    assert run(kernel(body, "unsigned* out"), [out], shared_bytes=300, block=1).findings == ()
    assert out.tolist() == [384, 384 + 1024, 300, 1024, 1024, 8]
