# ---
# jupyter:
#   jupytext:
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
# # The roofline
#
# **Goal:** say for each rung which roof it stands under, and why the ladder climbs the way it does.
#
# **New concepts:** arithmetic intensity and the level at which it is taken, ridge, counted bytes, the roof of shared
# memory.
#
# Every cell runs with and without a GPU. Times come from the run whose label is shown, counts from the emulator, which
# needs no GPU and knows no times.

# %%
import worklog
from worklog import plots

run = worklog.results(sizes=[4096])
rates = {m.kernel: m.tflops for m in run.measurements if m.tflops}
run.label

# %% [markdown]
# ## 1. Three measured roofs
#
# A roof is what the machine does if it does nothing else: multiply-adds on registers, reads that stay in L2, a copy
# through memory. The ruler measures all three at the start of a run, since a data sheet states what was designed, not
# what arrives. A memory roof and the FP32 roof meet at a *ridge*: below so many FLOP for each byte, the memory is the
# lower of the two.

# %%
known, paper = run.calibration, run.device
fp32, l2, copy = known["fp32_tflops"], known["l2_gbs"] / 1e3, known["copy_gbs"] / 1e3
print(f"FP32    {fp32:5.1f} TFLOP/s, {fp32 / paper['fp32_peak_tflops']:.1%} of lanes times clock")
print(f"memory  {copy:5.2f} TB/s, {1e3 * copy / paper['memory_peak_gbs']:.1%} of bus times clock")
print(f"L2      {l2:5.2f} TB/s")
print(f"ridges: {fp32 / l2:.1f} FLOP per byte of L2, {fp32 / copy:.1f} per byte of memory")

# %%
plots.roofline(run, 4096)

# %% [markdown]
# The shape of the climb: up, then right, then up again. What moves a rung along each axis? Before we can say that, one
# question about the horizontal one: FLOP per byte, but which bytes?
#
# ## 2. Which bytes?
#
# A byte is counted at the level where it passes. The same kernel has an intensity at each:
#
# - *compulsory:* A and B come once, C goes once. No kernel can do better, and it grows with the size.
# - *blocks:* each block brings its rows of A and its columns of B once. This follows from the tile, and is the axis of
#   the chart above.
# - *sectors:* memory is moved in sectors of 32 bytes. The emulator executes the kernel and counts those that its loads
#   and stores touch; on a GPU, a test holds the counts to those of Nsight Compute.
# - *threads:* what each thread asks for, as if it were alone.

# %%
plots.levels(run)

# %% [markdown]
# Compulsory bytes lie far to the right of both ridges: this problem is *not* memory-bound, if only each byte is used
# often enough once it is there. Everything that the first rungs do is to get from the left of this picture to the
# right.
#
# `naive` touches a sector for each float of A that a thread reads, and so stands left even of what its threads ask for.
# `coalesced` lets the lanes of a warp share sectors. From `shared` on, what moves is what the block needs: the diamond
# sits on the dot. Then the tile grows.
#
# Divide the sectors by the measured time, hold that against what L2 can do, and you see who must have served them.

# %%
from worklog.analysis.traffic import traffic

counted = traffic()
for name, rung in counted.rungs.items():
    moved = 32 * (rung.load_sectors + rung.store_sectors) / 1e12
    seconds = counted.shape.flops / rates[name] / 1e12
    print(f"{name:12} {1e3 * moved:8.1f} GB in sectors  {moved / seconds:6.2f} TB/s of {l2:.2f}")

# %% [markdown]
# A rate above what L2 can deliver was never L2's: for `coalesced`, L1 answered at least the rest. (That `naive` comes
# out near L2's own rate is an accident; exercise 2 finds what it waits for.) From `shared` on, L2 has nothing to
# complain about. And still these kernels are far below the FP32 roof, so there must be another one.
#
# ## 3. Right, and up
#
# Step by step: how much further right (blocks fetch less) and how much further up (time goes down) is each rung than
# the one before?

# %%
from itertools import pairwise

from worklog.plots.levels import levels_of

at = levels_of(run)
for one, two in pairwise(at):
    right, up = at[two].blocks / at[one].blocks, rates[two] / rates[one]
    print(f"{one:11} to {two:11} {right:5.2f} times to the right, {up:6.2f} times up")

# %% [markdown]
# Larger tiles go right. They would not have to go up for that: right of the ridge, no memory roof is in the way. But a
# larger tile also lets each thread keep more in registers. The steps that go up without going right keep the tile and
# change how the multiprocessor is fed. The last one even goes left, to a smaller tile, and still up.
#
# ## 4. The roof that is not on the chart
#
# A multiprocessor passes one wavefront a cycle through its shared memory, and starts one multiply-add of a warp a cycle
# on each of its four quarters. So a kernel with w wavefronts for each multiply-add cannot use more than 1 / (4 w) of
# the FP32 lanes, however right it stands. The emulator counts w, bank conflicts included.

# %%
lanes = paper["fp32_peak_tflops"] * 1e6 / paper["multiprocessors"] / 2 / paper["sm_clock_mhz"]
for name, rung in counted.rungs.items():
    if rung.wavefronts:
        w = rung.wavefronts_per_fma
        roof = paper["fp32_peak_tflops"] / (lanes / 32 * w)
        limit = f"{roof:6.1f}" if roof < fp32 else f"{fp32:6.1f} (FP32)"
        print(f"{name:12} w = {w:.3f}  roof {limit:14} measured {rates[name]:5.1f} TFLOP/s")

# %% [markdown]
# There it is. Each rung from `shared` to `vectorized` stands under its own roof of shared memory, not far below it, and
# each idea lifts that roof: a column for each thread, then a patch, then loads of 16 bytes. The rungs after them are
# the first whose roof is FP32's own. What is left is a matter of issue slots and register banks, which no roofline
# shows. [05_climbing_the_ladder](05_climbing_the_ladder.ipynb) has what each rung changed.
#
# ## 5. What a flush can do at 4096
#
# The article's example is this size, and its warning is about L2. But how long do the compulsory bytes take, even if
# all of them come from memory?

# %%
m = run.select("vectorized")[0]
moved = m.problem.compulsory_bytes / 1e6
warm = worklog.results(["vectorized"], [4096], l2="warm").measurements[0]
print(f"{moved:.0f} MB at {copy:.2f} TB/s: {moved / copy:.0f} of {m.us:.0f} µs")
print(f"flushed {m.us:.0f} µs, warm {warm.us:.0f} µs: {round(warm.us / m.us - 1, 3) + 0.0:+.1%}")

# %% [markdown]
# A few percent at most, and they are hidden behind arithmetic. The article expects an inflated number here; at this
# size there is none. It is still right to flush: you do not know beforehand which kernel and which size will need it.
#
# ## 6. The size
#
# The roofline knows nothing of how much work there is. Take the same kernels to other sizes:

# %%
sizes = (256, 512, 1024, 2048, 4096, 8192)
by_size = worklog.results(["tiles_1d", "warptiled", "cuBLAS"], sizes)
for size in sizes:
    shape, cells = worklog.Shape.of(size), []
    for m in by_size.select(shape=shape):
        tile = by_size.kernels[m.kernel].get("tile")
        blocks = f"{(size // tile['BM']) * (size // tile['BN']):6} blocks" if tile else ""
        cells.append(f"{m.kernel} {m.of_ceiling:5.1%} {blocks}")
    print(f"{size:5}: {shape.flops / shape.compulsory_bytes:6.0f} FLOP/B  ", "  ".join(cells))

# %% [markdown]
# The compulsory intensity of even the smallest size is right of both ridges, and yet nobody gets near a roof there. The
# column of blocks says why: with a large tile there are fewer blocks than multiprocessors. Those without a block have
# nothing to do, and cannot take over a part of another's K loop. Small sizes want small tiles, large sizes large ones,
# and no single rung wins everywhere. The whole ladder at 1024:

# %%
plots.roofline(worklog.results(sizes=[1024]), 1024)

# %% [markdown]
# The points have kept their place from left to right, and most have sunk. A roofline bounds a kernel from above; it
# does not promise that anybody gets there.
#
# ## Exercises
#
# 1. A block computes BM × BN of C. Derive its FLOP per byte for large K, and check it against the chart for 32 × 32 and
#    128 × 128. Which tile of the same area is best?
# 2. `naive`: in its load of A, the lanes of a warp lie in 32 different lines. Assume that L1 looks up one line a cycle.
#    What rate follows? Compare.
# 3. At 1024, `warptiled` has blocks for about half of this GPU's multiprocessors. What is the most that it can reach
#    there, and does it?
#
# <details><summary>Answers</summary>
#
# 1. For each k it fetches 4 (BM + BN) bytes and does 2 BM BN operations: BM BN / (2 (BM + BN)). That is 8 for 32 × 32
#    and 32 for 128 × 128; the chart shows a little less, because C is written too. For a given area a square is best.
# 2. 33 lookups for each multiply-add of a warp (32 lines of A, one of B) against four multiply-adds a cycle: 1 / 132 of
#    the FP32 peak. On the H200 that is half a TFLOP/s, which is what was measured. (That it also has 132
#    multiprocessors is a coincidence.)
# 3. 64 blocks on 132 multiprocessors: 48 % of the roof. It reaches about half of that. A block alone on its
#    multiprocessor has nobody to hide its waiting behind, and every block's first and last tile is paid in full.
#
# </details>
#
# **Where next:** [07_autotuning_and_beyond](07_autotuning_and_beyond.ipynb) looks for the tile that fits a size.
