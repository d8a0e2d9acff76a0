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
# # Work per thread
#
# `shared` reads two floats from shared memory for each multiply-add, and that is its floor: 12.9 ms of the 16.2 ms that
# it takes. There is memory that is nearer: registers. A float in a register takes no wavefront to read again, if the
# thread has more than one use for it. So give the thread more work. How much is that worth? Four steps, four bets.
#
# **New concepts:** thread tiles, bank conflicts, 16-byte accesses, padding.

# %%
# %load_ext worklog
from IPython.display import display

import worklog
from worklog import lab, plots
from worklog.viewer.accesses import access

# %% [markdown]
# ## 1. A column per thread
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
# ### The bet on `tiles_1d`
#
# Reads of shared memory per multiply-add fall from 2 floats to (TM + 1) / TM, which is 1.125 for the eight rows of
# `tiles_1d`. What does that do to the time?

# %%
lab.bet("tiles_1d")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 2.33, and it was 2.14 times as fast.
#
# </details>

# %%
display(lab.diff("shared", "tiles_1d", hunks=[3]))
plots.ownership(access("tiles_1d"))

# %% tags=["still:access_tiles_1d"]
lab.access("tiles_1d")

# %%
lab.step("tiles_1d")

# %% [markdown]
# More than the floats say, since 2 / 1.125 is only 1.78. The viewer shows why. Elements of `As` were cheap before: one
# 16-byte read brings four of them, in two wavefronts. An element of `Bs` took a wavefront of its own, and it is this one
# that now serves eight multiply-adds. So wavefronts fall from 1.56 to 0.66 per multiply-add of a warp. The floors know
# that, and they are right within a tenth.
#
# Was it only that? The block's tile grows at the same step, from 32 x 32 to 64 x 64, so L2 moves half the bytes. They
# aren't what takes the time: L2 is 8 to 9 % busy before and after.
#
# ## 2. A square per thread
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
# ### The bet on `tiles_2d`
#
# With 8 x 8 elements per thread, 9 floats per 8 multiply-adds become 16 per 64. That is 4.5 times less to read. Is
# `tiles_2d` four times as fast?

# %%
lab.bet("tiles_2d")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1.27, and it was 1.35 times as fast.
#
# </details>

# %%
display(lab.diff("tiles_1d", "tiles_2d", hunks=[4, 5]))
plots.ownership(access("tiles_2d"))

# %% tags=["still:access_tiles_2d"]
lab.access("tiles_2d")

# %%
lab.step("tiles_2d")

# %% [markdown]
# Floats fell by 4.5, and wavefronts only from 0.66 to 0.52. Look at the orange in the picture: threads with neighbouring
# 8 x 8 tiles read `Bs` eight floats apart, so the requests of a warp use only some of the 32 banks. This is a *bank
# conflict*: the result is right, and the request takes several wavefronts.
#
# And again two things changed at once: the thread's tile, and with it the block's, from 64 x 64 to 128 x 128. Which of
# them pays? We measured `tiles_2d` with the block tile of `tiles_1d`:

# %%
lab.steps("tiles_1d", "tiles_2d BM=64 BN=64", "tiles_2d", sizes=[1024, 4096])

# %% [markdown]
# All of it is the block's tile! With blocks of 64 x 64, thread tiles gain nothing at 4096, since the conflicts eat more
# than they save: wavefronts rise from 0.66 to 0.78. What they do is make the large block possible: 256 threads are
# enough for it. There a warp covers two rows of threads instead of four, and the conflicts halve. At 1024 both changes
# lose: the thread tile 24 %, and the large block another 30 %. There are 64 large blocks for 132 SMs, so half
# of the SMs have none. One that has does 1.4 times as much as an SM with two small blocks, though its warps spend 23 %
# of their cycles on global memory, and 9 % at 4096.
#
# ## 3. Four floats at a time
#
# `vectorized` loads 16 bytes at a time from global memory, so it needs a quarter of these loads. And it stores A
# transposed in shared memory, so that a thread's eight elements of it are neighbours. What is that worth, with the conflicts still there?

# %%
lab.bet("vectorized")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1.53, and it was 1.44 times as fast.
#
# </details>

# %%
display(lab.diff("tiles_2d", "vectorized", hunks=[3, 5]))
plots.ownership(access("vectorized"))

# %% tags=["still:access_vectorized"]
lab.access("vectorized")

# %%
lab.step("vectorized")

# %% [markdown]
# Reads of `As` are wide now, and wavefronts fall from 0.52 to 0.34. But two conflicts are orange in the picture: a new
# one in the transposed write, and still the one in the reads of `Bs`.
#
# ## A dead end: padding
#
# The textbook fix of bank conflicts is padding: rows a little longer, so that the next row starts in another bank.
# Which of the two conflicts does it remove: that of the write, that of the reads, or both? Decide before you look at the
# table. It counts `vectorized` with changes in its source.

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
# Padding `Bs` has no effect at all: the lanes with the conflict read the same row. Padding `As` removes the conflict of
# the write, whose lanes are in different rows. The fix of the read is to give a thread other elements: two quads, four
# floats each, half a tile apart, so that neighbouring threads read neighbouring quads.
#
# We weren't the first to get lost here. siboehm's SGEMM_CUDA, the ladder behind the article, has this dead end twice.
# Its kernels 7 and 8 (RTX A6000) store `Bs` in another order, or with rows longer by five floats, so that 16-byte
# accesses are no longer aligned. Both were slower than its kernel 6: 69.7 % and 70.8 % of cuBLAS instead of 78.4 %. The
# article omits them.
#
# ## 4. No conflict left
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
# ### The bet on `conflict_free`
#
# Without conflicts, `conflict_free` needs 40 % fewer wavefronts. For the first time, the largest count is the one that we
# came for: multiply-adds. What is it worth?

# %%
lab.bet("conflict_free")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1.34, and it was 1.05 times as fast.
#
# </details>

# %%
display(lab.diff("vectorized", "conflict_free", hunks=[1, 3]))
plots.ownership(access("conflict_free"))

# %% tags=["still:access_conflict_free"]
lab.access("conflict_free")

# %%
lab.step("conflict_free")

# %% [markdown]
# 5 %, not a third. All that work, and nothing got busy. Nsight Compute counted at 2048:

# %%
from worklog.kernel.ladder import counters

counters(["vectorized", "conflict_free"])

# %% [markdown]
# The FP32 cores work 58 % of the time and shared memory 56 %, and no unit more than 69 % (of *issue
# slots*, in which instructions start). So something *waits*. The floor can't help from here on: it is the time of the
# multiply-adds, the same for the next five rungs, and it counts no wait. Where would you look?
#
# ## Graded exercise
#
# Subtract the bank conflicts from the shared wavefronts of `vectorized` (`worklog.kernel.ladder.memory_counts` has both).
# How long do the others take at 4096, if every SM serves one per clock? Compare the result with the time of the
# multiply-adds.

# %%
answer = None  # a time in ms
lab.check_answer("05", answer)

# %% tags=["solution"]
from worklog.kernel.ladder import memory_counts

counts, gpu = memory_counts().rungs["vectorized"], worklog.open_run().gpu
answer = (counts.wavefronts - counts.conflicts) / (gpu.multiprocessors * gpu.sm_clock_mhz * 1e3)
lab.check_answer("05", answer)

# %% [markdown]
# **Where next:** [06_the_last_30_percent](06_the_last_30_percent.ipynb) looks for what waits.
