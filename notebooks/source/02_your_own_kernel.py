# ---
# jupyter:
#   jupytext:
#     custom_cell_magics: rung
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
# We write a kernel in a notebook cell, in a hurry, and are wrong twice. The gate says so in about a second, with the
# lines of the cell. Then the kernel is right, and we ask what it costs before we optimise it. Put your own kernel into
# any of these cells.
#
# With a GPU, a kernel that passes is timed next to cuBLAS and the rungs. Without one, it runs on the emulator, which
# finds wrong results and races, and has no times.

# %%
# %load_ext worklog
import worklog
from worklog import lab

# %% [markdown]
# Every kernel here has the parameters `(M, N, K, alpha, A, B, beta, C)`, as the rungs do. It computes
# C = alpha·A·B + beta·C, where A is M x K and B is K x N, each stored row after row (*row-major*). Other orders, such
# as `(A, B, C, M, N, K)`, are recognised.
# You choose the name, the block and the grid. By default, there is one thread per element of C.
#
# **New concepts:** `%%rung`, the signature, the domain, a verdict with a line number, counts next to those of the
# rungs.
#
# ## 1. One barrier
#
# Each block copies tiles of 16 x 16 to shared memory and multiplies them. It takes whole tiles only, and says so: the
# gate launches a kernel only inside its *domain*, the sizes that it takes. **What we believed:** a *barrier* between
# the copy and the products is enough. That is `__syncthreads()`, where the threads of a block wait for each other.

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
# **What happened:** a race, with its two lines of the cell (Shift+L shows line numbers). One thread reads the tile in
# the inner loop while a faster
# one overwrites it for the next iteration. The result of a kernel with a race can be right in most launches, so a
# comparison of results may not find it. The emulator compares the addresses instead.
#
# ## 2. Any size
#
# So we add the second barrier. **What we believed:** the tiles are independent of the size, so the kernel takes any
# size, and we leave the domain out.

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
# **What happened:** it reads past the end of A and B and writes past that of C, which need not stop a launch on a GPU.
# The gate puts the matrices into guarded buffers to find these accesses. The third version reads zeros outside A and B,
# writes no element outside C, and doesn't read C if beta is 0, because C may hold anything then.

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
# It passes every stage ([14_the_gate](14_the_gate.ipynb) explains them), and has a row among the rungs. With a GPU, the
# row has a time, measured in one loop with cuBLAS. Without one, it states why there is no time.
#
# ## 3. What does it cost?
#
# The ladder's next idea is that a thread computes several elements. A kernel can also be a string or a `.cu` file. In
# this one, a thread computes four elements of a column:

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
# What a warp of it touches, step by step. For global memory (A, B and C), the viewer counts sectors. For shared memory,
# it counts *wavefronts*: what this memory delivers to a warp in one clock. A *conflict* is a wavefront that another
# layout would save.

# %%
four = worklog.Kernel.from_source(FOUR, file="four.cu", **LAUNCH)
lab.access(four)

# %% [markdown]
# **What we believed:** a float of `Bs` serves four multiply-adds instead of one, so shared memory is a quarter as busy
# as in `shared`. Here are the counts per multiply-add of a warp, beside the rungs before and after this idea:

# %%
lab.counts("shared", four, "tiles_1d")

# %% [markdown]
# **What happened:** half as busy, not a quarter. Of the 0.83 wavefronts, reads of `Bs` are a quarter of one. But each
# multiply-add still needs its own element of `As`, and that takes half a wavefront: in the viewer, four reads along k
# that the assembler joins to one take 2. By the floors, `four` is between the two rungs in time, too. These are theirs:

# %%
rungs = worklog.results(["shared", "tiles_1d"], [1024])
for m in rungs.measurements:
    print(f"{m.kernel:10} {m.us:6.1f} µs at {m.problem}, {rungs.label}")

# %% [markdown]
# The time of `four` needs a GPU. With one, the next cell tests the prediction. Without one, it waits for the whole gate
# on the emulator.
# `worklog.try_kernel` is the function that `%%rung` calls.

# %% tags=["varies"]
worklog.try_kernel(FOUR, **LAUNCH, beside=["shared", "tiles_1d"])

# %% [markdown]
# Which line costs what? Next to each line are its share of all instructions, the sectors per global request, and the
# wavefronts per shared request. A *request* is a load or store of a warp. Above that are counts of the machine code
# (SASS), whose multiply-add is FFMA, and the *occupancy*: how many warps an SM holds, as a share of the most that it
# can.

# %%
from worklog.kernel.inspection import inspect

inspect(four)

# %% [markdown]
# ## 4. In a terminal, and for host functions
#
# ```
# worklog check four.cu --grid '(N + 15) // 16, (M + 63) // 64' --block 16,16
# worklog inspect four.cu --grid … --block …
# worklog run four.cu shared tiles_1d --grid … --block … --size 1024,4096
# ```
#
# The first command checks the kernel (with `--watch`, at each save), the second shows what it costs (with `--html
# out.html`, also what a warp touches), and the third times it next to cuBLAS and two rungs.
#
# A Triton kernel, a PyTorch operator or a shared library launches GPU work itself. Write a function for it that gets
# the matrices and writes C, a *host function*:
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
# rewrites the harness, the gate or a clock is not detected, so the label of its numbers says "host function".

# %% [markdown]
# ## Graded exercise
#
# Change `FOUR` so that each thread computes eight elements, in blocks of 16 x 16 threads with a 128 x 16 tile of C. The
# gate must pass it on the emulator, with at most 0.75 shared wavefronts per multiply-add.

# %%
answer = None  # the source of a kernel
lab.check_answer("02", answer)

# %% tags=["solution"]
answer = FOUR.replace("64", "128").replace("acc[4]", "acc[8]").replace("i < 4;", "i < 8;")
lab.check_answer("02", answer)

# %% [markdown]
# ## Exercises
#
# 1. Delete the semicolon after `acc = 0.0f` in a cell above. Which line does the message name?
# 2. Claim a lower precision: let `mine` round A to TF32, with `--class tf32`. Does it pass? And without the claim?
# 3. In the graded exercise, why are the wavefronts per multiply-add more than half of those of `FOUR`?
#
# <details><summary>Answers</summary>
#
# 1. The next line of the cell, with its text: there the compiler misses the semicolon.
# 2. With the claim it passes as TF32, and its row says so. Without it, it fails the exact stages: an operand lost its
#    low bits.
# 3. Only the read of `Bs` is shared by more multiply-adds. Each multiply-add still reads its own element of `As`. A
#    tile in both directions shares those reads too; that is rung 5.
#
# </details>
#
# **Where next:** [03_the_ground](03_the_ground.ipynb) has the ground under all of it: threads, warps, blocks, and the
# memory that they share.
