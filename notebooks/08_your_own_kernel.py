# ---
# jupyter:
#   jupytext:
#     custom_cell_magics: rung
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own kernel
#
# **Goal:** write a kernel in a cell, be told what is wrong with it in the cell's own lines, mend it, see it on the
# ladder, and know what it costs before you make it faster.
#
# **New concepts:** `%%rung`, the contract, the domain, a refusal with a line, counts beside the rungs'.
#
# With a GPU, a kernel that passes is timed beside cuBLAS and the rungs. Without one it runs on the emulator: right or
# wrong, races and all, but never a time.

# %%
# %load_ext worklog
import tempfile
from pathlib import Path

import worklog
from worklog.analysis import annotated
from worklog.analysis.inspection import inspect_file
from worklog.analysis.traffic import traffic
from worklog.bench.check import SIGNATURE

rungs = worklog.results(["shared", "tiles_1d"], [1024])
print(rungs.label)
print(SIGNATURE)

# %% [markdown]
# ## 1. The contract
#
# Every kernel here has this one signature: row-major C = alpha·A·B + beta·C, A is M x K and B is K x N. You choose the
# name, the block and the grid. Without a grid, there is one thread for each element of C.
#
# A first try, shared-memory tiles of 16 x 16. It takes only whole tiles, so it says so: outside its domain nobody will
# ask it anything.

# %% tags=["varies"] magic_args="mine --block 16,16 --domain 'M % 16 == 0, N % 16 == 0, K % 16 == 0'" language="rung"
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[16][16], Bs[16][16];
#   const int y = threadIdx.y, x = threadIdx.x;
#   const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 16) {
#     As[y][x] = A[row * K + k0 + x];
#     Bs[y][x] = B[(k0 + y) * N + col];
#     __syncthreads();
#     for (int k = 0; k < 16; ++k) acc += As[y][k] * Bs[k][x];
#   }
#   C[row * N + col] = alpha * acc + beta * C[row * N + col];
# }

# %% [markdown]
# Refused, with two lines of the cell: one thread reads the tile in the inner loop while a faster one overwrites it for
# the next turn. A second barrier is missing. A race can leave the result right in most launches, so a comparison may
# not see it; the emulator looks at the addresses.
#
# So the barrier goes in. And the domain goes out, to see what that asks for:

# %% tags=["varies"] magic_args="mine --block 16,16" language="rung"
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[16][16], Bs[16][16];
#   const int y = threadIdx.y, x = threadIdx.x;
#   const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 16) {
#     As[y][x] = A[row * K + k0 + x];
#     Bs[y][x] = B[(k0 + y) * N + col];
#     __syncthreads();
#     for (int k = 0; k < 16; ++k) acc += As[y][k] * Bs[k][x];
#     __syncthreads();
#   }
#   C[row * N + col] = alpha * acc + beta * C[row * N + col];
# }

# %% [markdown]
# A kernel for any size must not read or write outside its matrices. The inputs lie between guards, so that it is seen.
# Mended: zeros where there is nothing to read, no write where there is nothing to write, and C is left unread where
# beta is 0, since it may hold anything then.

# %% tags=["varies"] magic_args="mine --block 16,16" language="rung"
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[16][16], Bs[16][16];
#   const int y = threadIdx.y, x = threadIdx.x;
#   const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 16) {
#     As[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f;
#     Bs[y][x] = k0 + y < K && col < N ? B[(k0 + y) * N + col] : 0.0f;
#     __syncthreads();
#     for (int k = 0; k < 16; ++k) acc += As[y][k] * Bs[k][x];
#     __syncthreads();
#   }
#   if (row >= M || col >= N) return;
#   float* c = &C[row * N + col];
#   *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
# }

# %% [markdown]
# Accepted, stage by stage ([04_the_gate](04_the_gate.ipynb) has what each asks), and it has its row among the rungs.
# With a GPU that row holds a time, measured just now in one loop with cuBLAS; without one it says why it does not.
#
# ## 2. What does it cost?
#
# The ladder's next idea is that a thread computes several elements. Before that, a kernel may live in a string or in a
# `.cu` file as well as in a cell. Here is one that computes four:

# %%
FOUR = """\
__global__ void four(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[64][16], Bs[16][16];
  const int y = threadIdx.y, x = threadIdx.x;
  const int row = blockIdx.y * 64 + y, col = blockIdx.x * 16 + x;
  float acc[4] = {};
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = 0; i < 64; i += 16) {
      As[y + i][x] = row + i < M && k0 + x < K ? A[(row + i) * K + k0 + x] : 0.0f;
    }
    Bs[y][x] = k0 + y < K && col < N ? B[(k0 + y) * N + col] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 16; ++k) {
      const float b = Bs[k][x];
      for (int i = 0; i < 4; ++i) acc[i] += As[y + 16 * i][k] * b;
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    if (row + 16 * i >= M || col >= N) continue;
    float* c = &C[(row + 16 * i) * N + col];
    *c = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * *c;
  }
}
"""
LAUNCH = {"grid": "(N + 15) // 16, (M + 63) // 64", "block": "16,16"}

# %% [markdown]
# What the compiler made of it, and what the emulator counts, line by line:

# %%
file = Path(tempfile.mkdtemp()) / "four.cu"
file.write_text(FOUR, encoding="utf-8")
inspected = inspect_file(file, **LAUNCH)
print(annotated.report(inspected))

# %% [markdown]
# Beside each line: its share of all instructions, sectors of each global request, wavefronts of each shared one. The
# same with `worklog inspect four.cu --grid … --block …`. What a multiply-add costs, beside the rungs on either
# side of this idea:


# %%
def line(name, sectors, wavefronts):
    print(f"{name:10} {sectors:.3f} global sectors, {wavefronts:.3f} shared wavefronts")


counts, counted = inspected.counts, traffic()
fma = counts.instructions["fma"]
waves = counts.shared_load.wavefronts + counts.shared_store.wavefronts
print(f"{inspected.label}; rungs: {counted.label}; for each multiply-add of a warp")
line("shared", counted.rungs["shared"].sectors_per_fma, counted.rungs["shared"].wavefronts_per_fma)
line("four", counts.global_sectors / fma, waves / fma)
line("tiles_1d", counted.rungs["tiles_1d"].sectors_per_fma, counted.rungs["tiles_1d"].wavefronts_per_fma)

# %% [markdown]
# Fewer wavefronts than `shared`, more than `tiles_1d`. By the rule of
# [05_climbing_the_ladder](05_climbing_the_ladder.ipynb), its time should lie between theirs as well:

# %%
for m in rungs.measurements:
    print(f"{m.kernel:10} {m.us:6.1f} µs at {m.problem}, {rungs.label}")

# %% [markdown]
# That is a prediction, and here is its test. `worklog.try_kernel` is what `%%rung` calls; with a GPU it measures.

# %% tags=["varies"]
worklog.try_kernel(FOUR, **LAUNCH, beside=["shared", "tiles_1d"])

# %% [markdown]
# ## 3. Elsewhere
#
# In a terminal the same kernel goes the same way:
#
# ```
# worklog check four.cu --grid '(N + 15) // 16, (M + 63) // 64' --block 16,16
# worklog inspect four.cu --grid … --block …
# worklog run four.cu shared tiles_1d --grid … --block … --size 1024,4096
# ```
#
# The first puts it to the gate, the second says what it costs, the third measures it beside cuBLAS and two rungs.
#
# And what launches itself, a Triton kernel, a PyTorch operator or a shared library, comes as a function instead. It is
# handed the matrices and writes C:
#
# ```python
# # mine.py
# def product(alpha, A, B, beta, C):
#     ...
# ```
#
# `worklog run mine.py:product` checks it with the same gate and times it with the same harness, in a child process. A
# host function is trusted not to tamper with that process. Mistakes and the known ways to fool a benchmark are caught:
# each timed launch gets new inputs, each output is checked, and the GPU must be idle when the launch is over. Code that
# rewrites the harness, the gate or a clock is not detected, so its numbers say "host function".

# %% [markdown]
# ## Exercises
#
# 1. Leave the semicolon away after `acc = 0.0f` in a cell above. Where does the message point?
# 2. Claim less: let `mine` round A to TF32, with `--class tf32`. Is it accepted? And without the claim?
# 3. Let a thread compute eight elements, 128 x 16 for a block. Predict the wavefronts for a multiply-add, then inspect.
#
# <details><summary>Answers</summary>
#
# 1. At the line of the cell, with its text, as the compiler saw it.
# 2. With the claim it is, as TF32, and its row says so. Without it, the exact stages refuse it: an operand lost its low
#    bits.
# 3. Fewer, but not by half: only the read of `Bs` is shared by more multiply-adds, each still has its own element of
#    `As`. A patch in both directions shares those too, which is rung 5.
#
# </details>
#
# **Where next:** [09_rulers_compared](09_rulers_compared.ipynb): what other rulers say of kernels of known length.
