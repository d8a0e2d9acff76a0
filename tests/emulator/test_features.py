"""What CUDA kernels do beyond the rungs: warps, atomics, local and dynamic memory, divergence, asynchronous copies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import compiled, run
from worklog.emulator import BadLaunch, BudgetExceeded, PtxError, TooLarge, UnsupportedInstruction, launch, load

EVERYONE = 0xFFFFFFFF


def kernel(body: str, parameters: str, before: str = "") -> str:
    return f'{before}\nextern "C" __global__ void k({parameters}) {{\n{body}\n}}\n'


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


def test_threads_that_part_meet_again() -> None:
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


COPY = """
#define SHARED(p) (unsigned)__cvta_generic_to_shared(p)
#define COPY(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(SHARED(to)), "l"(from))
#define COMMIT asm volatile("cp.async.commit_group;")
#define WAIT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
"""
PIPELINE = """
  __shared__ __align__(16) float tile[2][128];
  int t = threadIdx.x;
  float sum = 0.0f;
  COPY(&tile[0][4 * t], in + 4 * t);
  COMMIT;
  for (int i = 0; i < n; ++i) {
    if (i + 1 < n) COPY(&tile[(i + 1) % 2][4 * t], in + 128 * (i + 1) + 4 * t);
    COMMIT;
    WAIT(1);  // the copy
    __syncthreads();  // for all
    sum += tile[i % 2][4 * (31 - t)];
    __syncthreads();  // before it is overwritten
  }
  out[t] = sum;
"""


def pipeline(source: str) -> tuple[np.ndarray, np.ndarray, object]:
    rng = np.random.default_rng(3)
    values = rng.integers(-9, 9, 5 * 128).astype(np.float32)
    out = np.zeros(32, np.float32)
    result = run(kernel(source, "const float* in, float* out, int n", COPY), [values, out, 5])
    return out, values.reshape(5, 32, 4)[:, ::-1, 0].sum(axis=0), result


def test_a_pipeline_of_asynchronous_copies_is_right_and_clean() -> None:
    got, wanted, result = pipeline(PIPELINE)
    np.testing.assert_array_equal(got, wanted)
    assert result.findings == ()
    loads = result.counts.global_load
    assert (loads.requests, loads.sectors, loads.bytes) == (5, 5 * 16, 5 * 512)
    assert result.counts.shared_load.requests == 5


@pytest.mark.parametrize(
    ("old", "new", "kind", "text"),
    [
        ("    WAIT(1);  // the copy\n", "", "missing-wait", "sum += tile"),
        ("WAIT(1);", "WAIT(2);", "missing-wait", "sum += tile"),
        ("    __syncthreads();  // for all\n", "", "missing-syncwarp", "sum += tile"),
        ("    __syncthreads();  // before it is overwritten\n", "", "missing-syncwarp", "if (i + 1 < n) COPY"),
    ],
)
def test_a_pipeline_with_a_piece_missing(old: str, new: str, kind: str, text: str) -> None:
    assert PIPELINE.count(old) == 1
    source = PIPELINE.replace(old, new)
    got, wanted, result = pipeline(source)
    assert kind in {f.kind for f in result.findings}, [str(f) for f in result.findings]
    named = {f.text for f in result.findings if f.kind == kind}
    assert any(text in line for line in named), named
    if "WAIT" in old:
        assert (got != wanted).any()


def test_a_copy_fills_up_with_zeros() -> None:
    body = """
  __shared__ __align__(16) float tile[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(&tile[4 * threadIdx.x]);
  const float* from = in + 4 * threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(threadIdx.x % 5 * 4));
  asm volatile("cp.async.wait_all;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = tile[4 * threadIdx.x + i];
"""
    out = np.full(128, 9, np.float32)
    assert run(kernel(body, "const float* in, float* out"), [np.ones(128, np.float32), out]).findings == ()
    assert out.reshape(32, 4).sum(axis=1).tolist() == [t % 5 for t in range(32)]


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


@pytest.mark.parametrize("missing", [None, 0, 1, 2])
def test_syncwarp_orders_a_warp(missing: int | None) -> None:
    parts = EXCHANGE.split("  __syncwarp();\n")
    source = parts[0]
    for number, part in enumerate(parts[1:]):
        source += ("\n" if number == missing else "  __syncwarp();\n") + part
    out = np.zeros(64, np.int32)
    result = run(kernel(source, "const int* in, int* out"), [np.arange(64, dtype=np.int32), out], block=64)
    if missing is None:
        assert result.findings == ()
        np.testing.assert_array_equal(out, np.arange(64) ^ 3)
    else:
        assert {f.kind for f in result.findings} == {"missing-syncwarp"}
        assert [f.line for f in result.findings] == [[7], [9], [11]][missing]


def test_writing_the_same_value_twice_is_no_race() -> None:
    body = "  __shared__ int flag;\n  flag = 1;\n  __syncthreads();\n  out[threadIdx.x] = flag;"
    assert run(kernel(body, "int* out"), [np.zeros(64, np.int32)], block=64).findings == ()
    result = run(kernel(body.replace("flag = 1", "flag = threadIdx.x"), "int* out"), [np.zeros(64, np.int32)], block=64)
    assert [(f.kind, f.line) for f in result.findings] == [("shared-race", 4)]


def test_a_barrier_that_not_all_reach_together() -> None:
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
    assert "40 threads" in finding.message
    assert "24 wait" in finding.message
    assert not result.ok


def test_leaving_before_a_barrier_is_only_a_warning() -> None:
    body = "  if (threadIdx.x >= 48) return;\n  __syncthreads();\n  out[threadIdx.x] = 1;"
    out = np.zeros(48, np.int32)
    result = run(kernel(body, "int* out"), [out], block=64)
    assert [f.kind for f in result.findings] == ["barrier-after-exit"]
    assert result.ok
    assert (out == 1).all()


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


def test_an_endless_loop_runs_out_of_budget() -> None:
    body = "  volatile int* p = out;\n  while (p[0] == 0) {\n    p[1] = threadIdx.x;\n  }"
    with pytest.raises(BudgetExceeded, match=r"more than 1000 instructions and is near line [45].*\n.*does not end"):
        run(kernel(body, "int* out"), [np.zeros(2, np.int32)], budget=1000)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('  float x; asm volatile("sin.approx.f32 %0, %1;" : "=f"(x) : "f"(out[0])); out[1] = x;', "sin.approx.f32"),
        ("  out[0] = __expf(out[1]);", "ex2.approx"),
        (
            "  float d[4] = {}; unsigned a[4] = {}, b[2] = {};"
            ' asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "'
            ' "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"'
            ' : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])'
            ' : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));'
            " out[0] = d[0];",
            "mma.sync",
        ),
        ('  asm volatile("bar.sync 1, 64;");', "bar.sync"),
    ],
)
def test_what_is_not_covered_is_named_with_its_line(body: str, name: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"^line 3: ") as caught:
        run(kernel(body, "float* out"), [np.zeros(32, np.float32)], block=64)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("wgmma.fence.sync.aligned;", "on a GPU of its architecture"),
        ("cp.async.bulk.commit_group;", "TMA"),
        ("add.cc.u32 %r1, %r1, 1;", "does not cover"),
        ("add.rz.f32 %f1, %f1, %f1;", "does not cover"),
        ("frobnicate.b32 %r1, %r1;", "frobnicate.b32"),
        ("mov.u32 %r1, %clock;", "%clock"),
    ],
)
def test_instructions_that_no_compiler_gave_us(statement: str, hint: str) -> None:
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    ptx = head + f".visible .entry k() {{\n.reg .b32 %r<3>; .reg .f32 %f<3>;\n{statement}\nret;\n}}\n"
    with pytest.raises(UnsupportedInstruction, match=hint):
        launch(load(ptx, "k"), (1,), 32, [])


def test_text_that_is_not_ptx() -> None:
    with pytest.raises(PtxError, match="not PTX"):
        load("int main() {}", "k")
    with pytest.raises(PtxError, match="cut short"):
        load(".version 8.0\n.target sm_90\n.visible .entry k() {\nret;\n", "k")
    with pytest.raises(PtxError, match="there is no kernel j"):
        load(".version 8.0\n.target sm_90\n.visible .entry k() {\nret;\n}\n", "j")


SIMPLE = kernel("  if (threadIdx.x < n) out[threadIdx.x] = scale;", "float* out, int n, float scale")


@pytest.mark.parametrize(
    ("arguments", "block", "message"),
    [
        ([1, 2], 32, "takes 3 arguments, got 2"),
        ([np.zeros(4, np.float32), 2.5, 1.0], 32, "argument 1 is a whole number"),
        ([np.zeros(4, np.float32), np.zeros(1, np.int32), 1.0], 32, "is a number .*, not a buffer"),
        ([np.zeros(4, np.float32), 2**40, 1.0], 32, "does not fit 32 bits"),
        ([np.zeros((4, 4), np.float32)[:, 0], 2, 1.0], 32, "contiguous"),
        ([np.zeros(4, np.float32), 2, 1.0], 2048, "2048 threads a block are more"),
        ([np.zeros(4, np.float32), 2, 1.0], (0, 1), "positive"),
    ],
)
def test_launches_that_no_gpu_would_take(arguments: list[object], block: object, message: str) -> None:
    with pytest.raises(BadLaunch, match=message):
        launch(compiled(SIMPLE, "k"), (1,), block, arguments)  # type: ignore[arg-type]


def test_a_launch_larger_than_the_memory_is_refused_before_it_starts() -> None:
    with pytest.raises(TooLarge, match="run fewer lanes at a time"):
        launch(compiled(SIMPLE, "k"), (2**30,), 1024, [np.zeros(4, np.float32), 2, 1.0], lanes=2**40)


def test_launch_bounds_are_kept() -> None:
    source = SIMPLE.replace("void k", "void __launch_bounds__(64) k")
    with pytest.raises(BadLaunch, match="allow 64"):
        launch(compiled(source, "k"), (1,), 96, [np.zeros(4, np.float32), 2, 1.0])


def test_a_pointer_to_nowhere() -> None:
    result = launch(compiled(SIMPLE, "k"), (1,), 32, [0, 3, 1.0], source=SIMPLE)
    (finding,) = result.findings
    assert finding.kind == "global-out-of-bounds"
    assert "in no buffer" in finding.message
    assert finding.count == 3


def test_findings_read_well() -> None:
    result = launch(compiled(SIMPLE, "k"), (1,), 32, [np.zeros(4, np.float32), 6, 1.0], source=SIMPLE)
    assert str(result.findings[0]) == (
        "line 3: global-out-of-bounds: thread 4 of block (0, 0, 0) writes 4 bytes, just behind the end of argument 0 "
        "(16 bytes) (2 times)\n    if (threadIdx.x < n) out[threadIdx.x] = scale;"
    )
    assert result.findings[0].threads == (4, 5)


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
