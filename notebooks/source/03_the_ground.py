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
# # The ground
#
# `naive` does 69 billion multiply-adds in 276 ms, and the GPU could do them in 2 ms. To say where the rest of the time
# goes, you need about twenty words. This page introduces each of them with a picture and a number of one card. It takes
# 15 minutes, and no GPU.
#
# Three times, you bet first: guess a number, then open the answer.

# %%
import worklog
from worklog import lab, plots
from worklog.plots import ground
from worklog.viewer.accesses import access

run = worklog.results(["naive", "coalesced"], [4096])
gpu = run.gpu
naive = worklog.rung("naive")
lab.source("naive")

# %% [markdown]
# **New concepts:** thread, warp, lane, block, SM, barrier, tile, grid, row-major, request, line, lookup, sector, bank,
# wavefront, register, bandwidth, latency, ridge, occupancy, floor.
#
# ## 1. Who computes what
#
# A *thread* runs this code once, with its own `threadIdx`. In `naive`, it computes one element of C. Threads don't run
# one by one: 32 of them with neighbouring numbers are a *warp*, and a warp executes each instruction for all 32 at
# once. Its threads are called *lanes*, 0 to 31.
#
# Warps come in blocks. A *block* of `naive` has 1024 threads, which are 32 warps. All of them run on one streaming
# multiprocessor (*SM*), so they can share its shared memory and wait for each other: `__syncthreads()` is a *barrier*,
# which none of them passes before all have reached it. The rectangle of C that a block computes is its *tile*. The *grid*
# is all blocks of a launch: the GPU gives a block to an SM that has room, until none is left.

# %%
rows, columns = naive.blocks(worklog.Shape.of(4096))
print(f"at 4096: {rows} x {columns} blocks of {naive.thread_count} threads")
print(
    f"{gpu.name}: {gpu.multiprocessors} SMs, so {rows * columns / gpu.multiprocessors:.1f} blocks for each"
)
ground.grid(access("naive"))

# %% [markdown]
# Memory is one long row of bytes. C is *row-major*: its first row comes first, then its second one. The C of this
# picture has 64 columns, so [row][column] starts at byte 4 · (64 · row + column). Its right neighbour is 4 bytes
# further, and the float below it is 256 bytes further.
#
# In `naive`, the lane number counts rows. Swap two operators, and it counts columns: that is the next rung.

# %%
ground.grid(access("coalesced"))

# %% [markdown]
# ## 2. What a request costs
#
# When a warp executes a load, its 32 addresses go to the memory together, as one *request*. The memory doesn't work
# with single floats. L1 keeps *lines* of 128 bytes, and each *lookup* finds one line, at one lookup per clock. A line
# has four *sectors* of 32 bytes, and a sector is the least that L1, L2 and DRAM move: ask for 4 bytes of it, and 32
# move.
#
# **Bet:** a warp reads 32 neighbours of a row, and then 32 floats of a column. How many times as many sectors does the
# column need?
#
# <details><summary>Your bet is placed? The answer</summary>
#
# Eight times: 32 sectors, one for each lane, instead of 4. It also needs 32 lookups instead of 1. In the picture below,
# the first request uses all bytes that it moves, and the third one an eighth of them.
#
# </details>

# %% jupyter={"outputs_hidden": true}
requests = {
    "32 neighbours of a row": range(32),
    "every second float": range(0, 64, 2),
    "a column, rows of 32 floats": range(0, 32 * 32, 32),
    "a column, rows of 33 floats": range(0, 33 * 32, 33),
}
ground.touched(requests)

# %% [markdown]
# Shared memory has another price. It has 32 *banks*, the columns of this picture: float number i is in bank i mod 32.
# In one clock, each bank delivers one word. One such delivery to a warp is a *wavefront*. So a request takes as many
# wavefronts as its fullest bank has different words.
#
# Look at the last two pictures. For global memory, where A, B and C are, they cost the same. In shared memory, a column
# of an array with 32 columns takes 32 wavefronts. With one float of padding in each row, it takes one.
#
# ## 3. Five memories
#
# A multiply-add reads its three operands from *registers*, words of 4 bytes that belong to one thread. Whatever a
# kernel computes, it must get there first, from one of four slower memories. How slow a memory is has two answers.
# *Bandwidth* is how many bytes arrive in a second. *Latency* is how long one load waits for its bytes.
#
# Here they are, with what is known of one card. (Latencies are measured with a chain: each load of a thread needs the
# result of the one before. The harness does that to see whether it has emptied L2.)

# %%
ground.memories(run)

# %% [markdown]
# **Bet:** DRAM delivers one float to the GPU. How many multiply-adds can the FP32 lanes do in that time?
#
# <details><summary>Your bet is placed? The answer</summary>
#
# 31. So a float from DRAM must serve 31 multiply-adds, or the lanes wait for DRAM.
#
# </details>
#
# The usual form of this number is the *ridge*: the operations per byte at which computing and moving take the same
# time. A multiply-add counts as two operations (FLOP).

# %% jupyter={"outputs_hidden": true}
known = run.calibration
for name, gbs in (("L2", known.l2_gbs), ("DRAM", known.copy_gbs)):
    ridge = 1e3 * known.fp32_tflops / gbs
    print(
        f"{name:4} {ridge:4.1f} FLOP per byte: a float must serve {4 * ridge / 2:.0f} multiply-adds"
    )

# %% [markdown]
# In `naive`, a thread loads two floats for one multiply-add, so a float serves half of one. If all loads went to DRAM,
# the kernel would be 60 times below its ridge. Caches catch most of them, and the ladder is about the rest.
#
# ## 4. Waiting, and what hides it
#
# A warp that needs the result of a load waits for the latency, hundreds of cycles. Meanwhile its SM executes other
# warps: their registers stay where they are, so changing the warp costs nothing. *Occupancy* is how many warps an SM
# has, as a share of the most that it can hold.

# %%
from worklog.emulator.limits import LIMITS, occupancy

registers = run.kernels["naive"]["registers"]
resident = occupancy(gpu.arch, naive.thread_count, registers, shared_bytes=0)
most = LIMITS[gpu.arch].warps
print(f"naive, {registers} registers per thread: {resident.warps} of {most} warps on an SM")
print(f"occupancy {resident.share:.0%}, limited by {' and '.join(resident.limited_by)}")

# %% [markdown]
# For each multiply-add, a warp of `naive` needs 33 lookups: 32 for a column of A, and one for B. L1 does one per clock.
#
# **Bet:** each warp keeps L1 busy for 33 cycles, then waits for its data. If that takes as long as a load from L2, how
# many warps does an SM need until L1 never idles?
#
# <details><summary>Your bet is placed? The answer</summary>
#
# Ten: from one turn of a warp to its next are 33 + 294 cycles, and that is 9.9 times 33. `naive` has 64 warps, so its
# L1 is always busy. `coalesced` needs only two lookups per multiply-add. It would need 149 warps, and an SM holds 64.
#
# </details>

# %% jupyter={"outputs_hidden": true}
from worklog.kernel.ladder import memory_counts

counted = memory_counts()
lookups = {
    name: 32 * counted.rungs[name].load_lines / counted.rungs[name].thread_fma
    for name in ("naive", "coalesced")
}
source = f"lookups: {counted.label}; latency of L2: {run.label}"
ground.waiting(lookups, known.warm_cycles, source)

# %% [markdown]
# This is a model. It shows why a kernel that asks for less can leave a unit idle. It isn't what `coalesced` does: most
# of its loads find their line in L1, which answers sooner than L2.
#
# ## 5. The floor
#
# How fast could `naive` be at best? Four things need time: multiply-adds, lookups in L1, wavefronts of shared memory,
# and A and B from DRAM once. Take the slowest of the four and pretend that it never pauses. We call that time the
# *floor*: no launch of this kernel can be faster.

# %%
shape = worklog.Shape.of(4096)
warp_fmas = shape.m * shape.n * shape.k / 32
cycles = warp_fmas * lookups["naive"] / gpu.multiprocessors
print(
    f"{warp_fmas:.3g} multiply-adds of a warp · {lookups['naive']:.0f} lookups / {gpu.multiprocessors} SMs"
)
print(
    f"= {cycles:.4g} clocks, {cycles / gpu.sm_clock_mhz / 1e3:.0f} ms at {gpu.sm_clock_mhz:.0f} MHz"
)

# %%
from worklog.kernel.prediction import bound

floor = bound(naive, shape, gpu)
[measured] = run.select("naive")
times = {**floor.limits, "measured": measured.us / 1e3}
plots.bars(
    f"naive takes {measured.us / 1e3 / floor.ms:.2f} times its floor, the {floor.limit}",
    {"ms at 4096": times},
    f"{measured.label}; {floor.label}",
    written="{:.3g}",
    accented=["measured"],
)

# %% [markdown]
# The bar of the lookups is that of the busiest SM. It executes 125 blocks, and an SM has 124.1 on average.
#
# So `naive` isn't slow because it computes: its multiply-adds need 2 ms. L1 is busy with lookups all the time, and 32 of
# 33 find a line of which one lane needs 4 bytes. A kernel at its floor can't be improved by waiting less. It must ask
# for less. A kernel far above its floor has the opposite problem. Which of the two a kernel has is the first
# question of each of the next pages.
#
# ## Graded exercise
#
# Lane i of a warp reads float number 3 · i of an array in global memory. The array starts at the start of a line. How
# many sectors does the request touch?

# %%
answer = None  # a number of sectors
lab.check_answer("03", answer)

# %% tags=["solution"]
answer = len({3 * lane // 8 for lane in range(32)})
lab.check_answer("03", answer)

# %% [markdown]
# ## Exercises
#
# 1. The same request, at float number 3 · i, but in shared memory. How many wavefronts does it take?
# 2. DRAM delivers its bandwidth only if enough loads are under way: its bandwidth times its latency, in bytes. How many
#    lines is that for each SM? Is one load per warp enough?
#
# <details><summary>Answers</summary>
#
# 1. One. 3 · i mod 32 is another bank for each of 32 lanes, as 3 and 32 have no common divisor. Draw it:
#    `ground.touched({"every third float": range(0, 96, 3)})`.
# 2. 4.22 TB/s for 707 cycles at 1980 MHz are 1.5 MB, and 89 lines for each of 132 SMs. An SM holds 64 warps, so one
#    line for each warp isn't enough.
#
# </details>
#
# **Where next:** [04_one_idea_a_picture](04_one_idea_a_picture.ipynb) takes `naive` off its floor: with two operators,
# with tiles in shared memory, and with your bets.
