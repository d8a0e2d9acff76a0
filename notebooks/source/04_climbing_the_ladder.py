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
# # Climbing the ladder
#
# We climb from a kernel that reaches 1 % of cuBLAS to one that reaches cuBLAS, one idea per rung, and you write most
# of the steps. Each of the eight puzzles starts with the kernel before the step. Change it where it says so and run
# the cell: in a few seconds the gate says whether it is right, with the lines of a race if there is one. Then every
# count that shows the idea is compared with our rung's and with the step before. A hint is about the count that
# differs. Our solution is below each puzzle, folded; yours may look different.
#
# No GPU is needed: the kernels are compiled, and the emulator runs them and counts. Times are measured, here or on
# the machine of the recording, and stand beside what the counts predict.
#
# **New concepts:** access pattern, sectors, banks and wavefronts, a lower bound of the time, a prediction that can
# fail.

# %%
# %load_ext worklog
from IPython.display import display

import worklog
from worklog import lab, plots

plots.ladder(worklog.results(shapes=[4096]), 4096)

# %% [markdown]
# ## 1. Naive
#
# One thread computes one element of C. Every rung has the same parameters, and its tile as template parameters. The
# picture shows which thread computes which elements, and the memory that a warp's first request of each kind touches.

# %%
from worklog.viewer.accesses import access

display(lab.source("naive"))
plots.ownership(access("naive"))

# %% [markdown]
# And here is every access, step by step. `lab.access` takes your kernel, too, and so does `worklog inspect mine.cu
# --html out.html`.

# %%
lab.access("naive")

# %% [markdown]
# `threadIdx.x` counts rows, so the 32 threads of a warp are in one column of C and read 32 rows of A. Memory moves in
# sectors of 32 bytes, and the warp uses 4 bytes of each.
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
# **What we believed:** the threads of a warp are in one row of C now. A warp reads one line of B, and one float of A
# for all threads, so 33 lookups in L1 per multiply-add become two, and the kernel is 16 times as fast.

# %%
display(lab.diff("naive", "coalesced"))
display(plots.ownership(access("coalesced")))
lab.step("coalesced")

# %% [markdown]
# The *floor* is a lower bound of the time: that of the slowest of four units, if every multiprocessor (SM) is busy
# with it without a gap. These are multiply-adds at the peak of the data sheet; lookups of 128-byte lines in L1, one
# per clock; wavefronts of shared memory, one per clock (a 4-byte word from each of its 32 banks); and A and B from
# DRAM once. The floor ignores latencies and barriers, so it is no prediction by itself. But if two rungs are above
# their floors by the same factor, then the ratio of the floors predicts the ratio of the times.
#
# **What happened:** 11.5 times as fast, not 16. `naive` needs 1.01 times its floor, `coalesced` 1.45 times: something
# that the floor doesn't count takes time now. What do its warps wait for? Nsight Compute samples them:

# %%
from story.tables import waits

waits("naive", "coalesced")

# %% [markdown]
# The warps of `naive` stand in the queue to L1, where lookups are the limit: the floor. Those of `coalesced` wait for
# half of their cycles until a load arrives. Each multiply-add needs its two loads first: that is latency, which no floor
# counts.
#
# ### Puzzle 3: tiles
#
# Each float is still loaded by many threads of the block. Let the block copy 32 x 32 tiles of A and B into `As` and
# `Bs`, and read them from there. You need two copies, one for each tile, and two barriers (`__syncthreads()`).

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
# This one has the tiles, and gives the right result in most launches. What does the gate find, and why? Mend it.

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
# emulator compares the addresses and what orders them, so it finds the race in any launch.
#
# ## 3. Shared memory
#
# **What we believed:** each float is fetched once and serves 32 threads. So global memory has a twentieth of the work,
# and the kernel is faster by as much as shared memory allows.

# %%
display(lab.diff("coalesced", "shared", hunks=[1]))
display(plots.ownership(access("shared")))
lab.step("shared")

# %% [markdown]
# **What happened:** 1.5 times as fast, and not one byte less came from L2: 15.4 GB before, 16.1 GB after, as Nsight
# Compute counted them at 4096.

# %%
from worklog.kernel.ladder import memory_counts, moved_from_l2

counts = memory_counts()
moved, label = moved_from_l2(counts.shape)
for name in ("naive", "coalesced", "shared", "tiles_1d", "tiles_2d"):
    asked = 32 * (counts.rungs[name].load_sectors + counts.rungs[name].store_sectors)
    print(f"{name:10} asks L1 for {asked / 1e9:6.1f} GB, and L2 moves {moved[name] / 1e9:4.1f} GB")
print(label)

# %% [markdown]
# L1 had been catching the repeats all along. What shared memory saves are the lookups: two for each multiply-add before,
# 0.06 now. In their place, each multiply-add reads one element of `As` and one of `Bs`. The largest count is the
# wavefronts of shared memory now, and the next steps reduce them. (The compiler helps: four iterations read four
# neighbours in a row of `As`, and it joins them to one 16-byte read.)
#
# ### Puzzle 5: columns
#
# One float of `Bs` in a register can serve several multiply-adds, if a thread computes several rows of its column.
# Start from the kernel with tiles. Take blocks of 64 x 64 with 8 deep tiles: 512 threads, each with eight rows.

# %% magic_args="columns" language="puzzle"
# // Change the tile: BM = BN = 64, BK = 8, TM = 8 rows per thread, and state the launch and the domain for it.
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

# %% tags=["solution"] magic_args="columns" language="puzzle"
# // grid: N / 64, M / 64
# // block: 512
# // domain: M % 64 == 0, N % 64 == 0, K % 8 == 0
# constexpr int BM = 64, BN = 64, BK = 8, TM = 8;
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[BM][BK], Bs[BK][BN];
#   const int y = threadIdx.x / BN, x = threadIdx.x % BN;
#   const int row = blockIdx.y * BM, col = blockIdx.x * BN;
#   float acc[TM] = {};
#   for (int k0 = 0; k0 < K; k0 += BK) {
#     for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
#       As[i / BK][i % BK] = A[(size_t)(row + i / BK) * K + k0 + i % BK];
#     }
#     for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
#       Bs[i / BN][i % BN] = B[(size_t)(k0 + i / BN) * N + col + i % BN];
#     }
#     __syncthreads();
#     for (int k = 0; k < BK; ++k) {
#       for (int i = 0; i < TM; ++i) acc[i] += As[y * TM + i][k] * Bs[k][x];
#     }
#     __syncthreads();
#   }
#   for (int i = 0; i < TM; ++i) {
#     const size_t c = (size_t)(row + y * TM + i) * N + col + x;
#     C[c] = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * C[c];
#   }
# }

# %% [markdown]
# ## 4. Thread tiles, 1D
#
# **What we believe:** reads of shared memory per multiply-add fall from 2 to (TM + 1) / TM.

# %%
display(lab.diff("shared", "tiles_1d", hunks=[3]))
display(plots.ownership(access("tiles_1d")))
lab.step("tiles_1d")

# %% [markdown]
# **What happened:** as the floors predict, within a tenth. (The block's tile grows at the same step, from 32 x 32 to
# 64 x 64, so L2 moves half the bytes. They aren't what takes the time: L2 is 7 % busy before and after.)
#
# ### Puzzle 6: squares
#
# The same idea in both directions: TM + TN floats serve TM·TN multiply-adds. Give each thread TN columns too. There
# is a trap: with blocks of 64 x 64 and this layout of `As`, the wavefronts rise. Larger blocks or another layout avoid
# it. Why?

# %% magic_args="squares" language="puzzle"
# // grid: N / 64, M / 64
# // block: 512
# // domain: M % 64 == 0, N % 64 == 0, K % 8 == 0
# // Add TN, change the launch, and let acc, the inner loop and the last loop have TN columns.
# constexpr int BM = 64, BN = 64, BK = 8, TM = 8;
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[BM][BK], Bs[BK][BN];
#   const int y = threadIdx.x / BN, x = threadIdx.x % BN;
#   const int row = blockIdx.y * BM, col = blockIdx.x * BN;
#   float acc[TM] = {};
#   for (int k0 = 0; k0 < K; k0 += BK) {
#     for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
#       As[i / BK][i % BK] = A[(size_t)(row + i / BK) * K + k0 + i % BK];
#     }
#     for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
#       Bs[i / BN][i % BN] = B[(size_t)(k0 + i / BN) * N + col + i % BN];
#     }
#     __syncthreads();
#     for (int k = 0; k < BK; ++k) {
#       for (int i = 0; i < TM; ++i) acc[i] += As[y * TM + i][k] * Bs[k][x];
#     }
#     __syncthreads();
#   }
#   for (int i = 0; i < TM; ++i) {
#     const size_t c = (size_t)(row + y * TM + i) * N + col + x;
#     C[c] = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * C[c];
#   }
# }

# %% tags=["solution"] magic_args="squares" language="puzzle"
# // grid: N / 128, M / 128
# // block: 256
# // domain: M % 128 == 0, N % 128 == 0, K % 8 == 0
# constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[BM][BK], Bs[BK][BN];
#   const int y = threadIdx.x / (BN / TN), x = threadIdx.x % (BN / TN);
#   const int row = blockIdx.y * BM, col = blockIdx.x * BN;
#   float acc[TM][TN] = {};
#   for (int k0 = 0; k0 < K; k0 += BK) {
#     for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
#       As[i / BK][i % BK] = A[(size_t)(row + i / BK) * K + k0 + i % BK];
#     }
#     for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
#       Bs[i / BN][i % BN] = B[(size_t)(k0 + i / BN) * N + col + i % BN];
#     }
#     __syncthreads();
#     for (int k = 0; k < BK; ++k) {
#       for (int i = 0; i < TM; ++i) {
#         for (int j = 0; j < TN; ++j) acc[i][j] += As[y * TM + i][k] * Bs[k][x * TN + j];
#       }
#     }
#     __syncthreads();
#   }
#   for (int i = 0; i < TM; ++i) {
#     for (int j = 0; j < TN; ++j) {
#       const size_t c = (size_t)(row + y * TM + i) * N + col + x * TN + j;
#       C[c] = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * C[c];
#     }
#   }
# }

# %% [markdown]
# ## 5. Thread tiles, 2D
#
# **What we believed:** 9 floats per 8 multiply-adds become 16 per 64, so shared memory is four times less of a limit.

# %%
display(lab.diff("tiles_1d", "tiles_2d", hunks=[4, 5]))
display(plots.ownership(access("tiles_2d")))
lab.step("tiles_2d")

# %% [markdown]
# **What happened:** wavefronts fall much less than floats, from 0.66 to 0.52, and the kernel is 1.35 times as fast.
# The picture shows why in orange: threads with neighbouring 8 x 8 tiles read `Bs` eight floats apart, so the requests of a warp
# use only some of the 32 banks. This is a bank conflict: the result is right, and the request takes several wavefronts.
#
# And two things changed at once: the thread's tile, and with it the block's, from 64 x 64 to 128 x 128. Which of them
# pays? We measured `tiles_2d` with the block tile of `tiles_1d`, too:

# %%
lab.steps("tiles_1d", "tiles_2d BM=64 BN=64", "tiles_2d", sizes=[1024, 4096])

# %% [markdown]
# All of it is the block's tile! With blocks of 64 x 64, thread tiles gain nothing at 4096, since the conflicts eat what
# they save. They make the large block possible: 256 threads are enough for it. At 1024, 64 such blocks leave half of the
# GPU empty, and the step loses.
#
# ## 6. Vectorized
#
# **What we believed:** with 16 bytes per access there are a quarter of the instructions, and A stored transposed in
# shared memory makes a thread's eight elements of it neighbours.

# %%
display(lab.diff("tiles_2d", "vectorized", hunks=[3, 5]))
display(plots.ownership(access("vectorized")))
lab.step("vectorized")

# %%
lab.access("vectorized")

# %% [markdown]
# **What happened:** reads of `As` are wide now. But two conflicts are orange in the picture: a new one in the
# transposed write, and still the one in the reads of `Bs`.
#
# ## A dead end: padding
#
# The textbook fix of bank conflicts is padding: rows a little longer, so that the next row starts in another bank.
# Which of the two conflicts does it remove? We count `vectorized` with changes in its source.

# %%
from dataclasses import replace

rung, changed = worklog.rung("vectorized"), ["vectorized"]
for words, old, new in (
    ("rows of Bs padded", "Bs[BK][BN];", "Bs[BK][BN + 4];"),
    ("rows of As padded", "As[BK][BM];", "As[BK][BM + 4];"),
    ("a thread tile in quads that lie apart", "col * TN + j]", "col * 4 + j * (BN / TN)]"),
):
    changed.append(replace(rung.with_text(rung.source.replace(old, new)), name=words))
lab.counts(*changed)

# %% [markdown]
# Padding `Bs` has no effect: the lanes with the conflict read the same row. Padding `As` removes the conflict of the
# write, whose lanes are in different rows. The fix of the read is to give a thread other elements: two quads, four
# floats each, half a tile apart, so that neighbouring threads read neighbouring quads.
#
# siboehm's SGEMM_CUDA, the ladder behind the article, has this dead end twice. Its kernels 7 and 8 (RTX A6000) store
# `Bs` in another order, or with rows longer by five floats, so that 16-byte accesses are no longer aligned. Both were
# slower than its kernel 6: 69.7 % and 70.8 % of cuBLAS instead of 78.4 %. The article omits them.
#
# ### Puzzle 7: conflicts
#
# Apply both fixes to this kernel, in three places. A row of `As` padded by 4 floats stays aligned.

# %% magic_args="conflicts" language="puzzle"
# // grid: N / 64, M / 64
# // block: 64
# // domain: M % 64 == 0, N % 64 == 0, K % 8 == 0
# constexpr int BM = 64, BN = 64, BK = 8, TM = 8, TN = 8;
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   // Pad As here, and give the thread other columns below, in the sum and in the result.
#   __shared__ float As[BK][BM], Bs[BK][BN];
#   const int y = threadIdx.x / (BN / TN), x = threadIdx.x % (BN / TN);
#   const int row = blockIdx.y * BM, col = blockIdx.x * BN;
#   float acc[TM][TN] = {};
#   for (int k0 = 0; k0 < K; k0 += BK) {
#     for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
#       As[i % BK][i / BK] = A[(size_t)(row + i / BK) * K + k0 + i % BK];
#     }
#     for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
#       Bs[i / BN][i % BN] = B[(size_t)(k0 + i / BN) * N + col + i % BN];
#     }
#     __syncthreads();
#     for (int k = 0; k < BK; ++k) {
#       for (int i = 0; i < TM; ++i) {
#         for (int j = 0; j < TN; ++j) acc[i][j] += As[k][y * TM + i] * Bs[k][x * TN + j];
#       }
#     }
#     __syncthreads();
#   }
#   for (int i = 0; i < TM; ++i) {
#     for (int j = 0; j < TN; ++j) {
#       const size_t c = (size_t)(row + y * TM + i) * N + col + x * TN + j;
#       C[c] = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * C[c];
#     }
#   }
# }

# %% tags=["solution"] magic_args="conflicts" language="puzzle"
# // grid: N / 64, M / 64
# // block: 64
# // domain: M % 64 == 0, N % 64 == 0, K % 8 == 0
# constexpr int BM = 64, BN = 64, BK = 8, TM = 8, TN = 8;
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[BK][BM + 4], Bs[BK][BN];
#   const int y = threadIdx.x / (BN / TN), x = threadIdx.x % (BN / TN);
#   const int row = blockIdx.y * BM, col = blockIdx.x * BN;
#   float acc[TM][TN] = {};
#   for (int k0 = 0; k0 < K; k0 += BK) {
#     for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
#       As[i % BK][i / BK] = A[(size_t)(row + i / BK) * K + k0 + i % BK];
#     }
#     for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
#       Bs[i / BN][i % BN] = B[(size_t)(k0 + i / BN) * N + col + i % BN];
#     }
#     __syncthreads();
#     for (int k = 0; k < BK; ++k) {
#       for (int i = 0; i < TM; ++i) {
#         for (int j = 0; j < TN; ++j) acc[i][j] += As[k][y * TM + i] * Bs[k][x * 4 + j / 4 * (BN / 2) + j % 4];
#       }
#     }
#     __syncthreads();
#   }
#   for (int i = 0; i < TM; ++i) {
#     for (int j = 0; j < TN; ++j) {
#       const size_t c = (size_t)(row + y * TM + i) * N + col + x * 4 + j / 4 * (BN / 2) + j % 4;
#       C[c] = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * C[c];
#     }
#   }
# }

# %% [markdown]
# ## 7. Conflict-free shared memory
#
# **What we believed:** with no conflict left, multiply-adds are the largest count, and a kernel that is limited by
# them is a third faster.

# %%
display(lab.diff("vectorized", "conflict_free", hunks=[1, 3]))
display(plots.ownership(access("conflict_free")))
lab.step("conflict_free")

# %% [markdown]
# **What happened:** 5 % faster, not a third. There is no conflict left, and nothing got busy: at 2048, the FP32 cores
# work 58 % of the time, shared memory 56 %. So something *waits*. The floor stays the same from here on, so it predicts
# no change in any of the next five steps: a wait is no count of work. Where would you look?
#
# ### Puzzle 8: one barrier per tile
#
# A barrier is a wait, too. With two buffers in turn, one barrier per tile is enough. Why is it safe?

# %% magic_args="one_barrier" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   // Two of each tile, in turn: then which of the two barriers can go?
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

# %% tags=["solution"] magic_args="one_barrier" language="puzzle"
# // grid: N / 32, M / 32
# // block: 1024
# // domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
# __global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
#   __shared__ float As[2][32][32], Bs[2][32][32];
#   const int y = threadIdx.x / 32, x = threadIdx.x % 32;
#   const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
#   float acc = 0.0f;
#   for (int k0 = 0; k0 < K; k0 += 32) {
#     const int b = k0 / 32 % 2;
#     As[b][y][x] = A[(size_t)row * K + k0 + x];
#     Bs[b][y][x] = B[(size_t)(k0 + y) * N + col];
#     __syncthreads();
#     for (int k = 0; k < 32; ++k) acc += As[b][y][k] * Bs[b][k][x];
#   }
#   const size_t c = (size_t)row * N + col;
#   C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
# }

# %% [markdown]
# It is safe, because no warp can be two tiles ahead: each waits for all at the barrier of the tile in between.
#
# ## 8. Double buffering
#
# **What we believe:** the block loads the next tile to registers before it computes this one, and stores it to a
# second buffer afterwards. The wait for global memory disappears, and one barrier per tile is left. Both rungs, in the
# order in which the emulator executed them:

# %%
display(lab.source("double_buffered", "for (int k0 = 0, buffer", 15))
display(lab.timeline("conflict_free"), lab.timeline("double_buffered"))
lab.step("double_buffered")

# %% [markdown]
# **What happened:** 29 % faster. The loads start a tile early, and one of two barriers per tile is gone. Both are waits,
# and this step changes both. Here is the rung with the second barrier put back, and what the warps wait for:

# %%
display(lab.steps("double_buffered, two barriers", "double_buffered", sizes=[1024, 4096]))
waits("conflict_free", "double_buffered")

# %% [markdown]
# The barrier is 1 % of the 29. The rest is the load: a warp of `conflict_free` spends 14 % of its cycles waiting for
# global memory, one of `double_buffered` less than 1 %.
#
# ## 9. Autotuned
#
# The code has one parameter more: MIN_BLOCKS tells the compiler how many blocks must fit in an SM. A search chose the
# tile ([08_autotuning_and_beyond](08_autotuning_and_beyond.ipynb) shows how). **What we believed:** 8 x 16 elements
# per thread are faster than 8 x 8, since a thread reads 24 floats for 128 multiply-adds instead of 16 for 64.

# %%
display(plots.ownership(access("autotuned")))
lab.step("autotuned")

# %% [markdown]
# **What happened:** in the sweep, 8 x 16 is faster in blocks of 64 x 64 and 128 x 64 (by 10 and 7 %), and slower in
# blocks of 64 x 128 and 128 x 128 (by 9 and 7 %). It needs 1.7 times the registers or more, so fewer warps fit on an
# SM. The ratio alone doesn't decide; notebook 08 shows what else differs.
#
# ## 10. Pipelined fragments
#
# **What we believed:** the multiply-adds of step k wait until their operands arrive from shared memory. If the
# operands of step k+1 are read before them, also across the barrier between two tiles, then this latency is hidden.
# That takes up to 24 more registers, so the block is 128 x 128 instead of 128 x 256: two things change at once.

# %%
display(lab.diff("autotuned", "pipelined", hunks=[3]))
display(lab.timeline("pipelined"))
display(lab.step("pipelined"))
display(lab.steps("autotuned BN=128 MIN_BLOCKS=2", "pipelined", sizes=[1024, 2048, 4096]))
display(lab.steps("autotuned", "pipelined BN=256 MIN_BLOCKS=1", sizes=[1024, 2048, 4096]))
narrow_autotuned = worklog.rung("autotuned").with_tile(BN=128, MIN_BLOCKS=2)
wide_pipelined = worklog.rung("pipelined").with_tile(BN=256, MIN_BLOCKS=1)
lab.register_reads(narrow_autotuned, "pipelined", "autotuned", wide_pipelined, "warptiled")

# %% [markdown]
# **What happened:** the rung is slower than `autotuned`, and whether its idea pays depends on the tile. At 128 x 128, reading ahead makes the kernel 7.6 % faster. At 128 x 256,
# the tile of `autotuned`, it makes it 9.6 % slower (both at 4096). Nothing spills. One number goes with it both times:
# multiply-adds that read two operands from one register bank fall from 17 to 14 % in the first case, and rise from 15 to
# 19 % in the second. Is that the cause? Not by itself: `warptiled` has 23 %, and is faster than any of them. (For a long
# time this page said that these conflicts are *not* it. We had compared two different tiles.)
#
# And what does the rung as it stands wait for?

# %%
waits("autotuned", "pipelined", "register_banks")

# %% [markdown]
# For global memory, which `double_buffered` had dealt with! 17 % of its warps' cycles, and 1 % in `autotuned`. The
# source fetches the next tile early in both. But at 128 x 128, the assembler moved the fetch down to the store: one
# multiply-add lies between them, and 260 in `autotuned` ([notebook 07](07_roofline.ipynb), section 4).
#
# ## 11. Register banks
#
# A multiply-add has three register operands, and the register file has two banks
# ([Jia et al.](https://arxiv.org/abs/1804.06826) found them in Volta). An operand that is still in the operand-reuse
# cache needn't be read. In a 2 x 2 zigzag each multiply-add shares an operand with the
# one before. (A name in the kernel's symbol keeps the assembler from reordering them: `kernels/11_register_banks.cu`
# says how, and how fragile that is.) **What we believe:** the same instructions, fewer operands from the register
# file.

# %%
display(lab.diff("pipelined", "register_banks", hunks=[1]))
display(lab.step("register_banks"))
lab.register_reads("pipelined", "register_banks")

# %% [markdown]
# **What happened:** each multiply-add reads 1.53 registers instead of 2.12, and the rung is 13 % faster. The order
# isn't all that changes: the assembler fetches a tile 243 multiply-adds before its store, not 1 (see notebook 07). Both
# hang on a word: with another one than "cutlass" in the symbol, the assembler takes its own order again, in the next
# rung too.

# %%
display(lab.steps("register_banks, order not kept", "register_banks", sizes=[1024, 4096]))
lab.steps("warptiled, order not kept", "warptiled", sizes=[1024, 4096])

# %% [markdown]
# So 10 % of `register_banks` and 23 % of `warptiled` at 4096 rest on an undocumented rule of one assembler.
#
# ## 12. Warp tiles
#
# So far, the lanes of a warp are neighbours in the block, so a warp computes a wide part of C, 32 x 128 elements. For
# each k it reads 32 floats of A and 128 of B. Now each warp computes a square tile, 64 x 64, and reads 64 floats of
# each. **What we believed:** fewer different floats per step take fewer wavefronts, no longer the limit.

# %%
display(lab.diff("register_banks", "warptiled"))
display(plots.ownership(access("warptiled")))
lab.step("warptiled")

# %% [markdown]
# **What happened:** wavefronts fall by a third, and the rung is only a little faster. The tile changes, too, so even
# that is not the warp tile's alone. There is a small conflict again, because the tile is 16 deep now and the transposed
# write has a conflict: 7 % of the wavefronts. Shared memory is 43 % busy in this rung.
#
# ## The whole climb
#
# The last column tests the model: the time of each rung, divided by its floor, which stands under "at least". If the
# floor explained all of the time, every factor would be 1.

# %%
lab.ladder_summary()

# %% [markdown]
# Three counts, all known without a GPU, predict four of the steps from `coalesced` to `vectorized` within 15 %: 1.28
# and measured 1.48, then 2.33 and 2.14, 1.27 and 1.35, 1.54 and 1.44. They don't predict the first step (16.5, measured
# 11.5), nor the next (1.34, measured 1.05). And they say nothing about the five steps after it: there the model predicts
# no change five times, and the rungs are faster four times and slower once. This is the lesson of the last five rungs:
# once the largest count is the multiply-adds, a count of work says how much there is to gain, and no longer which change
# gains it. What does rise is how busy the FP32 cores are, and the issue slots, as Nsight Compute counted them at 2048.

# %%
from worklog.kernel.ladder import counters

counters([rung.name for rung in worklog.LADDER])

# %%
plots.traffic()

# %% [markdown]
# The circles in the first picture were measured on an RTX A6000, where the same ideas gain other amounts. State the
# machine with the percentages of a ladder.
#
# ## Any rung, any size
#
# Choose a rung and a size to see the source diff, the memory counts and the time.

# %%
lab.ladder("tiles_2d", 4096)

# %% [markdown]
# ## Graded exercise
#
# Subtract the bank conflicts from the shared wavefronts of `vectorized` (`worklog.kernel.ladder.memory_counts` has both).
# How long do the others take at 4096, if every SM serves one per clock? Compare the result with the time of the
# multiply-adds.

# %%
answer = None  # a time in ms
lab.check_answer("04", answer)

# %% tags=["solution"]
from worklog.kernel.ladder import memory_counts

counts, gpu = memory_counts().rungs["vectorized"], worklog.open_run().gpu
answer = (counts.wavefronts - counts.conflicts) / (gpu.multiprocessors * gpu.sm_clock_mhz * 1e3)
lab.check_answer("04", answer)

# %% [markdown]
# **Where next:** [07_roofline](07_roofline.ipynb) shows which roof of the machine limits each rung.
