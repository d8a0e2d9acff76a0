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
# # The last 30 %
#
# `conflict_free` reaches 73 % of cuBLAS, and no unit of the GPU is busy for more than 69 % of the time. The largest count,
# the multiply-adds, stays the same from here on. So the floors say 1 at every step of this notebook: no change. What is
# left is waiting: for memory, for a barrier, for a register. Here are five ideas. Bet on each of them.
#
# **New concepts:** double buffering, pipelined fragments, register banks, warp tiles.

# %%
# %load_ext worklog
from IPython.display import display

import worklog
from worklog import lab, plots
from worklog.viewer.accesses import access

# %% [markdown]
# ## 1. Double buffering
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
# <details><summary>Why it is safe</summary>
#
# No warp can be two tiles ahead: each waits for all at the barrier of the tile in between.
#
# </details>
#
# ### The bet on `double_buffered`
#
# `double_buffered` goes further. The block loads the next tile to registers before it computes this one, and stores it to
# a second buffer afterwards. So the load has a whole tile's time to arrive, and one barrier per tile is left. Which of
# the two is worth more? Bet on both together.

# %%
lab.bet("double_buffered")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 1.29 times as fast.
#
# </details>

# %%
display(lab.source("double_buffered", "for (int k0 = 0, buffer", 15))
display(lab.timeline("conflict_free"), lab.timeline("double_buffered"))

# %% jupyter={"outputs_hidden": true}
lab.step("double_buffered")

# %% [markdown]
# No count of the floor changed, and the kernel is 29 % faster! The timelines show the order in which the emulator
# executed both rungs; they aren't times. But the step changes both waits at once. (It also takes 7 % fewer instructions
# per tile.) Here is the rung with the second barrier put back, and what the warps wait for:

# %%
from story.tables import waits

display(lab.steps("double_buffered, two barriers", "double_buffered", sizes=[1024, 4096]))
waits("conflict_free", "double_buffered")

# %% [markdown]
# The second barrier is 1 % of the 29. A warp of `conflict_free` spends 14 % of its cycles waiting for global memory, one
# of `double_buffered` less than 1 %: that is more than half of the cycles that a warp saves per multiply-add.
#
# ## 2. Autotuned
#
# The code has one parameter more: MIN_BLOCKS tells the compiler how many blocks must fit in an SM. A search chose the
# tile ([08_autotuning_and_beyond](08_autotuning_and_beyond.ipynb) shows how): 128 x 256, with 8 x 16 elements per thread.
# A thread now reads 24 floats for 128 multiply-adds instead of 16 for 64. Is that faster?

# %%
lab.bet("autotuned")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 1.03 times as fast.
#
# </details>

# %%
plots.ownership(access("autotuned"))

# %%
lab.access("autotuned")

# %%
lab.step("autotuned")

# %% [markdown]
# 3 %, and the idea isn't even what decides. In the search of notebook 08, 8 x 16 is faster in blocks of 64 x 64 and 128 x 64 (by 10 and
# 7 %), and slower in blocks of 64 x 128 and 128 x 128 (by 9 and 7 %). It needs about 1.7 times the registers, so fewer
# warps fit on an SM. Notebook 08 shows what else differs.
#
# ## 3. Pipelined fragments
#
# The multiply-adds of step k wait until their operands, a thread's *fragments* of A and B, arrive from shared memory.
# `pipelined` reads those of step k+1 before them, also across the barrier between two tiles, so this latency should be
# hidden. That takes up to 24 more
# registers, and we took a block of 128 x 128 for it instead of 128 x 256: two things change at once. Would you ship it?

# %%
lab.bet("pipelined")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 0.901 times as fast: 10 % slower.
#
# </details>

# %%
display(lab.diff("autotuned", "pipelined", hunks=[3]))
lab.timeline("pipelined")

# %% jupyter={"outputs_hidden": true}
lab.step("pipelined")

# %% [markdown]
# The textbook idea loses 10 %. Is it the idea, or the tile? Here are both kernels at both tiles:

# %%
display(lab.steps("autotuned BN=128 MIN_BLOCKS=2", "pipelined", sizes=[1024, 2048, 4096]))
display(lab.steps("autotuned", "pipelined BN=256 MIN_BLOCKS=1", sizes=[1024, 2048, 4096]))
narrow_autotuned = worklog.rung("autotuned").with_tile(BN=128, MIN_BLOCKS=2)
wide_pipelined = worklog.rung("pipelined").with_tile(BN=256, MIN_BLOCKS=1)
lab.register_reads(narrow_autotuned, "pipelined", "autotuned", wide_pipelined, "warptiled")

# %% [markdown]
# It depends on the tile. At 128 x 128, reading ahead makes the kernel 7.6 % faster. At 128 x 256, the tile of
# `autotuned`, it makes it 9.6 % slower (both at 4096, on an H100). No register spills to memory. One number goes with it both times: multiply-adds
# that read two operands from one register bank fall from 16.7 to 14.5 % in the first case, and rise from 14.7 to
# 18.8 % in the second. Is that the cause? Not by itself: `warptiled` has 23 %, and is faster than any of them.
#
# **What we believed,** and what this page said for a long time: these conflicts are *not* it. **What happened:** we had
# compared two different tiles.
#
# And what does the rung as it stands wait for?

# %%
waits("autotuned", "pipelined")

# %% [markdown]
# For global memory, which `double_buffered` had dealt with! 17 % of its warps' cycles, and 1 % in `autotuned`. The
# source fetches the next tile early in both. But at 128 x 128, the assembler moved the fetch down to the store: one
# multiply-add lies between them, and 260 in `autotuned` ([notebook 07](07_roofline.ipynb), section 4). Is that why it
# loses? Not by itself: with the wide tile it fetches 320 multiply-adds ahead, and takes as long at 4096. (There, more
# of its multiply-adds have a bank conflict, as the table above shows.)
#
# ## 4. Register banks
#
# A multiply-add has three register operands, and the register file has two banks
# ([Jia et al.](https://arxiv.org/abs/1804.06826) found them in Volta). An operand that is still in the operand-reuse
# cache needn't be read. In a 2 x 2 zigzag each multiply-add shares an operand with the one before. (A name in the
# kernel's symbol keeps the assembler from reordering them: `kernels/11_register_banks.cu` says how, and how fragile that
# is.) The same instructions, in another order: can that matter?

# %%
lab.bet("register_banks")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 1.13 times as fast.
#
# </details>

# %%
display(lab.diff("pipelined", "register_banks", hunks=[1]))
lab.register_reads("pipelined", "register_banks")

# %% jupyter={"outputs_hidden": true}
lab.step("register_banks")

# %% [markdown]
# Each multiply-add reads 1.53 registers instead of 2.12, and the rung is 13 % faster. The order isn't all that changes:
# the assembler fetches a tile 243 multiply-adds before its store, not 1 (see notebook 07). Both hang on a word in
# the kernel's symbol, its name in the machine code. With another one than "cutlass", the assembler takes its own order
# again:

# %%
lab.steps("register_banks, order not kept", "register_banks", sizes=[1024, 4096])

# %% [markdown]
# So 10 % at 4096 rest on an undocumented rule of one assembler. We'd rather not have found that out.
#
# ## 5. Warp tiles
#
# So far, the lanes of a warp are neighbours in the block, so a warp computes a wide part of C, 32 x 128 elements. For
# each k it reads 32 floats of A and 128 of B. Now each warp computes a square tile, 64 x 64, and reads 64 floats of
# each. Fewer different floats per step take fewer wavefronts: a third less. What do you get for a third of something
# that isn't the limit?

# %%
lab.bet("warptiled")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 1.02 times as fast.
#
# </details>

# %%
display(lab.diff("register_banks", "warptiled"))
plots.ownership(access("warptiled"))

# %% tags=["still:access_warptiled"]
lab.access("warptiled")

# %%
lab.step("warptiled")

# %% [markdown]
# Wavefronts fall by a third, and the rung is 2 % faster. It's enough to pass cuBLAS, by 0.8 to 1.5 % in the recordings
# of the H200. The tile changes, too, so even that is not the warp tile's alone. There is a small conflict again,
# because the tile is 16 deep now and the transposed write has a conflict: 7 % of the wavefronts. Shared memory is 43 %
# busy in this rung. And what if its symbol has another word?

# %%
lab.steps("warptiled, order not kept", "warptiled", sizes=[1024, 4096])

# %% [markdown]
# 23 % at 4096 rest on the word, in the kernel that passes cuBLAS by 1.1 in this recording.
#
# ## The whole climb
#
# The last column tests the floors: the time of each rung, divided by its floor, which stands under "at least". If the
# floor explained all of the time, every factor would be 1.

# %%
lab.ladder_summary()

# %% [markdown]
# How good a gambler is the floor? Three counts, all known without a GPU, predict four of the steps from `coalesced` to
# `vectorized` within 15 %: 1.28 and measured 1.48, then 2.33 and 2.14, 1.27 and 1.35, 1.53 and 1.44. They don't predict
# the first step (16.5, measured 11.5), nor `conflict_free` (1.34, measured 1.05). And they say nothing about your last
# five bets: there the model predicts no change five times, and the rungs are faster four times and slower once. Once
# the largest count is the multiply-adds, the floor says how much there is to gain. It can't say any longer by what.
# At 2048, what rises and falls with the speed of these rungs is how many issue slots they use, as Nsight Compute
# counted. (At 4096, `autotuned` gains 3 % with as many.)

# %%
from worklog.kernel.ladder import counters

counters([rung.name for rung in worklog.LADDER])

# %%
plots.ladder(worklog.results(shapes=[4096]), 4096)

# %% [markdown]
# The hollow circles were measured on an RTX A6000, where the same ideas gain other amounts. State the machine with the
# percentages of a ladder.

# %%
plots.traffic()

# %% [markdown]
# ## Any rung, any size
#
# Choose a rung and a size to see the source diff, the memory counts and the time. And `worklog journal` prints your bets
# beside what was measured.

# %%
lab.ladder("tiles_2d", 4096)

# %% [markdown]
# ## Graded exercise
#
# `warptiled` passes cuBLAS, and it still takes 1.25 times its floor. What share of cuBLAS would a kernel
# reach at 4096 that takes no longer than this floor? `worklog.results` has the times and the share, and
# `worklog.kernel.prediction.bound` the floor.

# %%
answer = None  # a share of cuBLAS in percent
lab.check_answer("06", answer)

# %% tags=["solution"]
from worklog.kernel.prediction import bound

[measured] = worklog.results("warptiled", 4096).select("warptiled")
floor_us = 1e3 * bound(worklog.rung("warptiled")).ms
answer = 100 * measured.ratio * measured.us / floor_us
lab.check_answer("06", answer)

# %% [markdown]
# **Where next:** [07_roofline](07_roofline.ipynb) shows how far each rung is from the roofs of the machine, and what it
# waits for.
