# ---
# jupyter:
#   jupytext:
#     custom_cell_magics: puzzle
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One idea a picture
#
# The first kernel of the ladder, `naive`, multiplies two 4096 x 4096 matrices in 276 ms. cuBLAS needs 2.7 ms. Both do
# the same multiply-adds. So where do 99 % of the time go? To memory, and three pictures show how.
#
# Every step has the same order. You write the change, you bet how many times as fast it makes the kernel, and only then
# do you see what was measured. A puzzle starts with the kernel before the step: change it where it says so and run the
# cell. In a few seconds the gate says whether it is right, with the lines of a race if there is one. Then every count
# that shows the idea is compared with our rung's. (*Local* accesses are those to an array that isn't in registers.) A hint is about the count that differs. Our solution is below each
# puzzle, folded; yours may look different.
#
# No GPU is needed: the emulator runs your kernel and counts. Times are measured here, or on the machine of the recording.
#
# **New concepts:** access pattern, lookups, wavefronts, a bet that can be wrong.

# %%
# %load_ext worklog
from IPython.display import display

from worklog import lab, plots
from worklog.viewer.accesses import access

# %% [markdown]
# ## 1. Naive
#
# One thread computes one element of C. The picture shows which thread computes which elements, and the memory that a
# warp's first request of each kind touches. How much of it does the warp use?

# %%
display(lab.source("naive"))
plots.ownership(access("naive"))

# %% [markdown]
# Here is every access of a block, one after the other. Use the arrow keys, and zoom from the grid to a block, a warp or
# a lane. `lab.access("naive", versus="coalesced")` shows two rungs in step. `lab.access` also takes your kernel, and so
# does `worklog inspect mine.cu --html out.html`.

# %% tags=["still:access_naive"]
lab.access("naive")

# %% [markdown]
# An eighth! `threadIdx.x` counts rows, so the 32 threads of a warp are in one column of C and read 32 rows of A. Memory
# moves in sectors of 32 bytes, and the request uses 4 bytes of each.
#
# ### Puzzle 1: neighbours
#
# A warp's loads touch 33 sectors per multiply-add. Five are enough. Swap two operators.

# %% magic_args="neighbours" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   // Change the next two lines.
#   const int row = blockIdx.y * 32 + threadIdx.x % 32;
#   const int col = blockIdx.x * 32 + threadIdx.x / 32;
#   float acc = 0.0f;
#   for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% tags=["solution"] magic_args="neighbours" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   const int row = blockIdx.y * 32 + threadIdx.x / 32;
#   const int col = blockIdx.x * 32 + threadIdx.x % 32;
#   float acc = 0.0f;
#   for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% [markdown]
# ### Puzzle 2: an accumulator
#
# The same kernel by somebody in a hurry. It compiles without a warning. What is missing?

# %% magic_args="accumulator" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   const int row = blockIdx.y * 32 + threadIdx.x / 32;
#   const int col = blockIdx.x * 32 + threadIdx.x % 32;
#   float acc;
#   for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% tags=["solution"] magic_args="accumulator" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   const int row = blockIdx.y * 32 + threadIdx.x / 32;
#   const int col = blockIdx.x * 32 + threadIdx.x % 32;
#   float acc = 0.0f;
#   for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% [markdown]
# On a GPU, each element is whatever the register held, plus the product. The emulator doesn't guess a value, and the
# message names the first line that reads what was never set.
#
# ## 2. Coalesced
#
# Two operators swapped: that is the whole rung. L1 looks up one line of 128 bytes per clock, on each multiprocessor. A
# warp needed 33 such *lookups* per multiply-add: 32 for A, one for B. Now one of A serves all lanes, and one line holds
# the 32 floats of B: the lanes' accesses are *coalesced*. From 33 to 2: is the kernel 16 times as fast? (Notebook 00
# asked you first. Would you bet the same today?)

# %%
lab.bet("coalesced")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 16.5, and it was 11.5 times as fast.
#
# </details>

# %%
display(lab.diff("naive", "coalesced"))
plots.ownership(access("coalesced"))

# %% tags=["still:access_coalesced"]
lab.access("coalesced")

# %%
lab.step("coalesced")

# %% [markdown]
# “The floors say” is the ratio of two floors. A floor is the time of the slowest of four units if it never pauses:
# multiply-adds, lookups in L1, wavefronts of shared memory (section 3), and A and B from DRAM once. It ignores latency
# and barriers, so the floors' ratio is a bet too. It is right if both kernels are above their floors by the same factor.
#
# They aren't. `naive` takes 1.01 times its floor: it does nothing but look up lines. `coalesced` takes 1.45 times its
# floor. So now something takes time that nobody counts. What do its warps wait for? Nsight Compute, NVIDIA's
# profiler, samples them:

# %%
from story.tables import waits

waits("naive", "coalesced")

# %% [markdown]
# The warps of `naive` stand in the queue to L1 for 94 % of their cycles. Those of `coalesced` wait for half of theirs
# until a load arrives, since each multiply-add needs its two loads first, and for another quarter in the queue. A load's
# latency is in that half, and no floor counts it. (A warp that is *ready* could go on, but another one does.)
#
# ## 3. Shared memory
#
# Neighbouring threads still load the same floats. Can the block load each of them once?
#
# ### Puzzle 3: tiles
#
# Let the block copy 32 x 32 tiles of A and B into `As` and `Bs`, and read them from there. You need two copies, one for
# each tile, and two barriers (`__syncthreads()`).

# %% magic_args="tiles" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[32][32], Bs[32][32];
#   const int y = threadIdx.x / 32, x = threadIdx.x % 32;
#   const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 32) {
#     // Copy one element of each tile per thread, here, and read the tiles below.
#     for (int k = 0; k < 32; ++k) acc += A[(size_t)row * K + k0 + k] * B[(size_t)(k0 + k) * N + col];
#   }
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% tags=["solution"] magic_args="tiles" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[32][32], Bs[32][32];
#   const int y = threadIdx.x / 32, x = threadIdx.x % 32;
#   const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 32) {
#     As[y][x] = A[(size_t)row * K + k0 + x];
#     Bs[y][x] = B[(size_t)(k0 + y) * N + col];
#     __syncthreads();
#     for (int k = 0; k < 32; ++k) acc += As[y][k] * Bs[k][x];
#     __syncthreads();
#   }
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% [markdown]
# ### Puzzle 4: the second barrier
#
# This one has the tiles, and often gives the right result. What does the gate find, and why? Mend it.

# %% magic_args="barrier" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[32][32], Bs[32][32];
#   const int y = threadIdx.x / 32, x = threadIdx.x % 32;
#   const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 32) {
#     As[y][x] = A[(size_t)row * K + k0 + x];
#     Bs[y][x] = B[(size_t)(k0 + y) * N + col];
#     __syncthreads();
#     for (int k = 0; k < 32; ++k) acc += As[y][k] * Bs[k][x];
#   }
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% tags=["solution"] magic_args="barrier" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[32][32], Bs[32][32];
#   const int y = threadIdx.x / 32, x = threadIdx.x % 32;
#   const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 32) {
#     As[y][x] = A[(size_t)row * K + k0 + x];
#     Bs[y][x] = B[(size_t)(k0 + y) * N + col];
#     __syncthreads();
#     for (int k = 0; k < 32; ++k) acc += As[y][k] * Bs[k][x];
#     __syncthreads();
#   }
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% [markdown]
# A comparison of results doesn't find this race reliably: it needs a warp that is ahead of another by one tile. The
# emulator compares the addresses and what orders them, so it finds the race in any launch with two tiles along K.
#
# ### The bet on `shared`
#
# The kernel asks global memory for a twentieth: 0.25 sectors per multiply-add instead of 5. But each multiply-add still reads
# two floats, now from shared memory. It delivers one *wavefront* per clock: 32 words of 4 bytes, one from each of its 32
# banks. We count 1.56 wavefronts per multiply-add of a warp. So is it 20 times as fast, or hardly at all?

# %%
lab.bet("shared")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1.28, and it was 1.48 times as fast.
#
# </details>

# %%
display(lab.diff("coalesced", "shared", hunks=[1]))
plots.ownership(access("shared"))

# %% tags=["still:access_shared"]
lab.access("shared")

# %%
lab.step("shared")

# %% [markdown]
# How much less came from L2? **What we believed:** a twentieth, since each float is fetched once and serves 32 threads.

# %%
from worklog.kernel.ladder import memory_counts, moved_from_l2

counts = memory_counts()
moved, label = moved_from_l2(counts.shape)
for name in ("naive", "coalesced", "shared"):
    asked = 32 * (counts.rungs[name].load_sectors + counts.rungs[name].store_sectors)
    print(f"{name:10} asks L1 for {asked / 1e9:6.1f} GB, and L2 moves {moved[name] / 1e9:4.1f} GB")
print(label)

# %% [markdown]
# **What happened:** not one byte less. It was 15.4 GB before and 16.1 GB after, and DRAM moved twice as much, as Nsight
# Compute counted at 4096. L1 had been catching the repeats all along. What shared memory saves are the lookups: two for
# each multiply-add before, 0.06 now.
#
# In their place come 1.56 wavefronts. (It would be two, but the compiler helps: four iterations read four neighbours in a
# row of `As`, and it joins them to one 16-byte read.) They are the largest count now. How do you read less than two
# floats per multiply-add? That is the next notebook.
#
# ## Graded exercise
#
# How good is L1 really? Of the bytes that `coalesced` asks for, what share did L1 have, so that L2 didn't have to move
# them? `counts` and `moved` above have both.

# %%
answer = None  # a share in percent
lab.check_answer("04", answer)

# %% tags=["solution"]
asked = 32 * (counts.rungs["coalesced"].load_sectors + counts.rungs["coalesced"].store_sectors)
answer = 100 * (1 - moved["coalesced"] / asked)
lab.check_answer("04", answer)

# %% [markdown]
# **Where next:** [05_work_per_thread](05_work_per_thread.ipynb) reads less than two floats per multiply-add.
