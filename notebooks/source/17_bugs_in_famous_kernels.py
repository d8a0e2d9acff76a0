# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bugs in famous kernels
#
# **Goal:** this page shows seven bugs that the gate and the emulator find in public CUDA kernels that many people learn
# from. Each bug is shown in a small kernel of our own, with the message that you get, and with its fix.

# %%
import json

from worklog import lab, plots
from worklog.runs import recordings

corpus = json.loads(recordings("corpus")["public_kernels"].read_text(encoding="utf-8"))
total, tried, covered = (
    sum(row[name] for row in corpus["rows"]) for name in ("kernels", "tried", "covered")
)
title = f"{total} public kernels: {tried} tried, {covered / tried:.0%} of these run on the emulator".replace(
    "%", " %"
)
columns = {
    name: {row["repository"]: row[name] for row in corpus["rows"]}
    for name in ("tried", "covered", "GEMMs")
}
plots.bars(title, columns, f"{corpus['label']} · {corpus['utc'][:10]}", written="{:.0f}")

# %% [markdown]
# The projects are good, and we learned from them. Their own checks use square matrices or constant data, or compare
# results, which a race needn't change. Each is named with its commit, so that you can read the lines. No
# cell needs a GPU, and nothing here is a time.
#
# ## 1. The kernels tried
#
# `python -m tests.record.corpus`, in a checkout of this project, clones these repositories and tries each kernel: it
# compiles the kernel for sm_90, looks whether the emulator has each of its instructions, and checks the matrix products
# as `worklog check FILE` does, and again with the order and the domain that its message names. With folders, as in
# `python -m tests.record.corpus FOLDER`, it tries the kernels below these. The matrix products were checked again at a
# later date than the other kernels; the recording has each of them with its verdict and its reason.
#
# Not tried are kernels with textures or with launches from the device, those that use intrinsics which CUDA has removed
# or libraries whose headers aren't installed, and templates whose arguments aren't known. A matrix product that does
# not pass isn't always a bug: its parameters may say M where the gate expects N, or its matrices may be stored by
# columns. Every bug below was checked by hand.
#
# Of the kernels tried, those that don't run on the emulator don't compile alone, or need what it lacks:

# %%
uncompiled = sum(row["don't compile"] for row in corpus["rows"])
print(f"{uncompiled:2} don't compile")
for what, number in corpus["missing"].items():
    print(f"{number:2} {what}")

# %% [markdown]
# ## 2. Constant data hides a wrong index
#
# *NVIDIA/cuda-samples, commit c94ff36, `globalToShmemAsyncCopy.cu`:* four of its eight kernels, those named
# `LargeChunk`, read the tile of B at the offset of the tile of A (lines 137, 223, 312 and 709). The sample fills A with
# 1.0 and B with 2.1, so every tile of B holds the same numbers, and its own check passes. A kernel with this bug:

# %%
import numpy as np

from worklog.emulator import launch, load
from worklog.kernel import Kernel
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import compile_cuda
from worklog.runner.check import check

WRONG_OFFSET = """
__global__ void product(float* C, const float* A, const float* B, int wA, int wB) {
  __shared__ float As[16][16], Bs[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0.0f;
  for (int k0 = 0; k0 < wA; k0 += 16) {
    As[y][x] = A[row * wA + k0 + x];
    Bs[y][x] = B[row * wA + k0 + x];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  C[row * wB + col] = sum;
}
"""
TILES = "M % 16 == 0, N % 16 == 0, K % 16 == 0"


def checked(source, args, grid, block, domain, **words):
    """What the gate says, in one line."""
    kernel = Kernel.from_source(source, args=args, grid=grid, block=block, domain=domain, **words)
    verdict = check(kernel, on="emulated", seed=0).verdict
    return f"passed as {verdict.precision}" if verdict.accepted else f"failed at {verdict.reason}"


# %%
print(checked(WRONG_OFFSET, "C,A,B,K,N", "N / 16, M / 16", "16,16", TILES))

# %% [markdown]
# The same kernel on the sample's data:


# %%
def run(source, arguments, grid, block, shared=0):
    """Launch the kernel k on the emulator; its findings."""
    built = compile_cuda(Program("kernel.cu", source, "k"))
    entry = load(built.ptx, built.symbol)
    return launch(
        entry, grid, block, arguments, source=source, shared_bytes=shared, count=False
    ).findings


a, b, c = (
    np.ones((32, 64), np.float32),
    np.full((64, 32), 2.1, np.float32),
    np.zeros((32, 32), np.float32),
)
run(WRONG_OFFSET.replace("void product", 'void k').replace("__global__", 'extern "C" __global__'),
    [c, a, b, 64, 32], (2, 2), (16, 16))  # fmt: skip
print(f"largest relative error: {np.abs(c / (64 * 2.1) - 1).max():.0e}")

# %% [markdown]
# The fix takes the rows of B from k0 and its columns from the block. Then the gate passes it:

# %%
RIGHT_OFFSET = WRONG_OFFSET.replace("B[row * wA + k0 + x]", "B[(k0 + y) * wB + col]")
print(checked(RIGHT_OFFSET, "C,A,B,K,N", "N / 16, M / 16", "16,16", TILES))

# %% [markdown]
# ## 3. Square matrices hide a swapped grid
#
# *wangzyon/NVIDIA_SGEMM_PRACTICE, commit d6068b1, `src/utils.cu`, lines 121 to 163*, and *AyakaGEMM/Hands-on-GEMM,
# commit 378e63f, nine kernels such as `src/cuda/better_shared_mem_gemm.cu`, line 141:* the kernels walk the columns of
# C with `blockIdx.x`, and the host launches a grid of `(M / tile, N / tile)`. For M = N that is right. For other
# shapes, some blocks lie outside of C, and others are missing.

# %%
NAIVE = """
__global__ void product(int M, int N, int K, const float* A, const float* B, float* C) {
  const int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
}
"""
for grid, domain in (
    ("M / 8, N / 8", "M % 8 == 0, M == N == K"),
    ("M / 8, N / 8", "M % 8 == 0, N % 8 == 0"),
    ("N / 8, M / 8", "M % 8 == 0, N % 8 == 0"),
):
    print(f"grid {grid}; {domain}: {checked(NAIVE, 'M,N,K,A,B,C', grid, '8,8', domain)}")

# %% [markdown]
# The gate tests rectangles unless the kernel says that it takes squares only, and its shapes differ in M, N and K. The
# fix is to swap the two numbers of the grid.
#
# ## 4. Square matrices hide a wrong row length
#
# *PacktPublishing/Learn-CUDA-Programming, commit 10bd9b5, `sgemm.cu` of chapters 2, 3, 5 and 7:* the kernels read
# `B[i * K + col]`, as if the rows of B had length K. They have length N. The examples use M = N = K.

# %%
WRONG_ROWS = NAIVE.replace("B[k * N + col]", "B[k * K + col]")
print(
    checked(WRONG_ROWS, "M,N,K,A,B,C", "N / 8, M / 8", "8,8", "M % 8 == 0, N % 8 == 0, K % 8 == 0")
)

# %% [markdown]
# The fix is one letter: `B[k * N + col]`, as in section 3.
#
# ## 5. Shared memory is reused too early
#
# *karpathy/llm.c, commit f1e2ace, `dev/cuda/softmax_forward.cu`, lines 268 and 288*, and *lzyrapx/LeetGPU, commit
# 6f17c2a, `Softmax.cu`, lines 46 and 74, and `Batch Normalization.cu`, lines 31 and 39:* every thread reads the row's
# maximum from a shared array, and the warps then write their sums into the same array. A warp that is behind may read a
# sum in place of the maximum: no barrier is between the read and the write.

# %%
SOFTMAX = """
extern "C" __global__ void k(const float* x, float* out, int n) {
  __shared__ float parts[8];
  const int t = threadIdx.x, warp = t / 32;
  float most = -1e30f;
  for (int i = t; i < n; i += 256) most = fmaxf(most, x[i]);
  for (int lane = 16; lane > 0; lane /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, lane));
  if (t % 32 == 0) parts[warp] = most;
  __syncthreads();
  for (int i = 0; i < 8; ++i) most = fmaxf(most, parts[i]);
  float sum = 0.0f;
  for (int i = t; i < n; i += 256) sum += expf(x[i] - most);
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  if (t % 32 == 0) parts[warp] = sum;
  __syncthreads();
  for (int i = sum = 0; i < 8; ++i) sum += parts[i];
  for (int i = t; i < n; i += 256) out[i] = expf(x[i] - most) / sum;
}
"""


# %%
def said(findings):
    """Each finding's kind, line and words; `none` if the kernel has none that is an error."""
    lines = [
        f"line {finding.line}: {finding.kind}: {finding.message}\n    {finding.text}"
        for finding in findings
        if finding.is_error
    ]
    return "\n".join(lines) or "none"


x, out = np.random.default_rng(1).normal(size=1000).astype(np.float32), np.zeros(1000, np.float32)
print(said(run(SOFTMAX, [x, out, 1000], (1,), 256)))

# %% [markdown]
# The emulator runs a warp up to a barrier and then the next one, so here the race also makes the result wrong. On a
# GPU, where warps run side by side, it may be right: then a comparison doesn't find this bug. The fix is one barrier,
# before the array is written again:

# %%
wanted = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
print(f"right to 1e-5, with the race: {np.abs(out / wanted - 1).max() < 1e-5}")
SUM = "  if (t % 32 == 0) parts[warp] = sum;"
print(said(run(SOFTMAX.replace(SUM, f"  __syncthreads();\n{SUM}"), [x, out, 1000], (1,), 256)))

# %% [markdown]
# ## 6. The next iteration writes too early
#
# *karpathy/llm.c, commit f1e2ace, `train_gpt2_fp32.cu`, lines 463 and 478, and `llmc/attention.cuh`, line 176:* in both
# kernels, a loop writes a shared array, waits, and reads it. In the next iteration it writes again, while slower warps
# may still read. The comment at `blockReduce`, which the second kernel calls, warns of this and names its parameter
# `final_sync`. In the first kernel, warp 0 also sets the array to zero, without a barrier before the others write.

# %%
ROWS = """
extern "C" __global__ void k(const float* x, float* sums, int n) {
  __shared__ float parts[32];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp == 0) parts[lane] = 0.0f;
  for (int row = 0; row < 4; ++row) {
    float sum = 0.0f;
    for (int i = t; i < n; i += 256) sum += x[row * n + i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    parts[warp] = sum;
    __syncthreads();
    sum = parts[lane];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (t == 0) sums[row] = sum;
  }
}
"""
x, sums = np.arange(4000, dtype=np.float32) % 7, np.zeros(4, np.float32)
print(said(run(ROWS, [x, sums, 1000], (1,), 256)))

# %% [markdown]
# The fix is two barriers, one after the zeros and one at the end of the loop; and one lane per warp writes the sum:

# %%
FIXED = ROWS.replace("parts[lane] = 0.0f;", "parts[lane] = 0.0f;\n  __syncthreads();")
FIXED = FIXED.replace("    parts[warp] = sum;", "    if (lane == 0) parts[warp] = sum;")
FIXED = FIXED.replace("sum = parts[lane];", "sum = parts[lane];\n    __syncthreads();")
print(said(run(FIXED, [x, sums, 1000], (1,), 256)), sums, x.reshape(4, 1000).sum(axis=1))

# %% [markdown]
# ## 7. Five stages in four buffers
#
# *NVIDIA/cuda-samples, commit c94ff36, `globalToShmemAsyncCopy.cu`, lines 131 and 460:* the kernels `MultiStage` and
# `MultiStageLargeChunk` have four buffers and fill them ahead: `for (; stage <= current + 4 * step; …)`. That loop
# starts five copies. The fifth one goes into the buffer of the first one, which is still to be read. A ring of two
# buffers with this bug:

# %%
RING = """
__device__ void copy(float* to, const float* from) {
  const unsigned place = __cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from));
}
extern "C" __global__ void k(const float* x, float* out, int tiles) {
  __shared__ float ring[2][64];
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int tile = 0, stage = 0; tile < tiles; ++tile) {
    for (; stage <= tile + 2; ++stage) {
      if (stage < tiles) copy(&ring[stage % 2][t], &x[64 * stage + t]);
      asm volatile("cp.async.commit_group;");
    }
    asm volatile("cp.async.wait_group 2;");
    __syncthreads();
    sum += ring[tile % 2][63 - t];
  }
  out[t] = sum;
}
"""
x, out = np.arange(64 * 6, dtype=np.float32), np.zeros(64, np.float32)
print(said(run(RING, [x, out, 6], (1,), 64)))
print("right:", (out == x.reshape(6, 64).sum(axis=0)[::-1]).all())

# %% [markdown]
# With `<`, the loop fills no more buffers than there are. A second barrier keeps a fast warp from filling the buffer
# that a slow one still reads:

# %%
FIXED = RING.replace("stage <= tile + 2", "stage < tile + 2").replace(
    "wait_group 2", "wait_group 1"
)
FIXED = FIXED.replace("[63 - t];", "[63 - t];\n    __syncthreads();")
print(said(run(FIXED, [x, out, 6], (1,), 64)))
print("right:", (out == x.reshape(6, 64).sum(axis=0)[::-1]).all())

# %% [markdown]
# ## 8. A mask that names absent lanes
#
# *Albresky/leetgpu, commit 65c69cc, `CUDA/07-softmax/softmax.cu`, line 130, called in `global_reduce_kernel`:* only the
# first eight threads of the block enter `if (tid < blockDim.x / 32)`, and there they shuffle with the mask of a whole
# warp. The result of a shuffle from a lane that doesn't take part is undefined.

# %%
ABSENT = """
extern "C" __global__ void k(const float* x, float* out) {
  const int t = threadIdx.x;
  if (t < 8) {
    float sum = x[t];
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lane);
    if (t == 0) out[0] = sum;
  }
}
"""
x, out = np.ones(32, np.float32), np.zeros(1, np.float32)
print(said(run(ABSENT, [x, out], (1,), 32)))

# %% [markdown]
# The fix lets the whole warp shuffle, with a neutral value in the lanes that have none:

# %%
PRESENT = ABSENT.replace("if (t < 8) {", "if (t < 32) {").replace(
    "sum = x[t]", "sum = t < 8 ? x[t] : 0.0f"
)
print(said(run(PRESENT, [x, out], (1,), 32)), out)

# %% [markdown]
# ## Exercise: variance without a race
#
# This kernel computes the mean and the variance of n numbers with one block of 256 threads, as a batch normalisation
# does. It has the bug of section 5. Mend it with one line more: the grader launches your kernel on the emulator, with
# its checks for races.

# %%
VARIANCE = """
extern "C" __global__ void k(const float* x, float* out, int n) {
  __shared__ float parts[256];
  const int t = threadIdx.x;
  float sum = 0.0f, squares = 0.0f;
  for (int i = t; i < n; i += 256) sum += x[i];
  parts[t] = sum;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) parts[t] += parts[t + half];
  }
  __syncthreads();
  const float mean = parts[0] / n;
  for (int i = t; i < n; i += 256) squares += (x[i] - mean) * (x[i] - mean);
  parts[t] = squares;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) parts[t] += parts[t + half];
  }
  if (t == 0) out[0] = mean, out[1] = parts[0] / n;
}
"""
answer = None  # the source, with one line more
lab.check_answer("17", answer)

# %% tags=["solution"]
answer = VARIANCE.replace("  parts[t] = squares;", "  __syncthreads();\n  parts[t] = squares;")
lab.check_answer("17", answer)

# %% [markdown]
# ## Exercises
#
# 1. Which test data would have shown the bug of section 2 in the sample's own check?
# 2. In section 6, one barrier at another place does the work of the two. Where?
# 3. Which of these bugs can a comparison of results not find on a GPU, however good its data are?
#
# <details><summary>Answers</summary>
#
# 1. Any data in which two tiles of B differ. Random integers are best: each wrong index then changes the result, and
#    the right one is exact.
# 2. Before the write in the loop. There it separates the zeros from the first write, and each iteration's reads from
#    the next one's writes.
# 3. Those of sections 5, 6 and 8, and the race of section 7, wherever the timing of the warps or the content of the
#    absent lanes happens to be harmless.
#
# </details>
#
# **Where next:** try your own folder of kernels; [14_the_gate](14_the_gate.ipynb) explains the checks behind these
# messages. [09_past_cublas](09_past_cublas.ipynb) goes on with the ladder.
