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
# # The roofline
#
# **Goal:** this page shows for each rung which limit of the hardware it is under, and why the ladder climbs as it does.
#
# **New concepts:** arithmetic intensity and the level at which it is taken, ridge, counted bytes, the limit of shared
# memory.
#
# Every cell runs with and without a GPU. Times come from the run whose label is shown. Counts come from the emulator,
# which needs no GPU and has no times.

# %%
import worklog
from worklog import plots

run = worklog.results(shapes=[4096])
rates = {m.kernel: m.tflops for m in run.measurements if m.tflops}
run.label

# %% [markdown]
# ## 1. Three measured roofs
#
# A roof is the rate of the machine if it does only one thing: multiply-adds on registers, reads from L2, or a copy
# through memory. The harness measures all three at the start of a run, because a data sheet states what the hardware
# was designed for. A memory roof and the FP32 roof meet at a *ridge*. Below this number of FLOP per byte, memory is the
# lower roof.

# %%
known, paper = run.calibration, run.gpu
fp32, l2, copy = known.fp32_tflops, known.l2_gbs / 1e3, known.copy_gbs / 1e3
print(f"FP32    {fp32:5.1f} TFLOP/s, {fp32 / paper.fp32_peak_tflops:.1%} of lanes times clock")
print(f"memory  {copy:5.2f} TB/s, {1e3 * copy / paper.memory_peak_gbs:.1%} of bus times clock")
print(f"L2      {l2:5.2f} TB/s")
print(f"ridges: {fp32 / l2:.1f} FLOP per byte of L2, {fp32 / copy:.1f} per byte of memory")

# %%
plots.roofline(run, 4096)

# %% [markdown]
# The rungs move up, then right, then up again. What moves a rung along each axis? The horizontal axis is FLOP per byte,
# so first: which bytes?
#
# ## 2. Which bytes?
#
# Bytes can be counted at several levels of memory. The same kernel has an intensity at each of them:
#
# - *compulsory:* A and B are read once, C is written once. No kernel can do better. This intensity grows with the size.
# - *blocks:* each block reads its rows of A and its columns of B once. This follows from the tile, and is the
#   horizontal axis of the chart above.
# - *sectors:* memory is moved in sectors of 32 bytes. The emulator executes the kernel and counts the sectors that its
#   loads and stores touch. On a GPU, a test compares these counts with Nsight Compute's.
# - *threads:* the bytes that each thread requests, as if it were alone.

# %%
plots.levels(run)

# %% [markdown]
# The compulsory intensity is far to the right of both ridges: this problem is *not* memory-bound, if each byte is
# reused often enough. The first rungs move from the left of this picture to the right.
#
# `naive` touches one sector for each float of A that a thread reads, so its sectors are left even of what its threads
# request. In `coalesced`, the lanes of a warp share sectors. From `shared` on, a block moves only the bytes that it
# needs: the diamond is on the dot. After that, the tile grows.
#
# Divide the sectors by the measured time and compare the result with the roof of L2: which level served them?

# %%
from worklog.analysis.memory_counts import memory_counts

counted = memory_counts()
for name, rung in counted.rungs.items():
    if name in rates:
        moved = 32 * (rung.load_sectors + rung.store_sectors) / 1e12
        rate = moved * rates[name] * 1e12 / counted.shape.flops
        level = "more than L2 delivers" if rate > l2 else f"{rate / l2:.0%} of L2's roof"
        print(f"{name:16} {1e3 * moved:8.1f} GB in sectors  {rate:6.2f} TB/s, {level}")

# %% [markdown]
# If the rate is above the roof of L2, then L1 served at least the difference. (A rate of `naive` near the roof of L2 is
# a coincidence: exercise 2 finds its limit, and the counters of section 4 show its L2 idle.) From `shared` on, L2 is
# not the limit. But these kernels are still far below the FP32 roof, so there must be another limit.
#
# ## 3. Right, and up
#
# How far is each rung to the right of the rung before it (blocks fetch less), and how far above it (less time)?

# %%
from itertools import pairwise

at = plots.levels_of(run)
for one, two in pairwise(at):
    right, up = at[two].blocks / at[one].blocks, rates[two] / rates[one]
    print(f"{one:15} to {two:15} {right:5.2f} times to the right, {up:6.2f} times up")

# %% [markdown]
# A larger tile moves a rung to the right. To the right of the ridge no memory roof limits it, so this alone need not
# move it up. But with a larger tile, each thread also keeps more values in registers. The steps that go up and not
# right keep the tile and change how the multiprocessor gets its operands. `pipelined` has a smaller tile than the
# rung before it, so it is further left.
#
# ## 4. The limit that is not on the chart
#
# The shared memory of a multiprocessor serves one wavefront per cycle. Each of its four quarters can start one
# multiply-add of a warp per cycle. So a kernel with w wavefronts per multiply-add uses at most 1 / (4 w) of the FP32
# lanes, whatever its intensity. The emulator counts w, bank conflicts included.

# %%
lanes = paper.fp32_peak_tflops * 1e6 / paper.multiprocessors / 2 / paper.sm_clock_mhz
for name, rung in counted.rungs.items():
    if rung.wavefronts and name in rates:
        w = rung.wavefronts_per_fma
        roof = paper.fp32_peak_tflops / (lanes / 32 * w)
        limit = f"{roof:6.1f}" if roof < fp32 else f"{fp32:6.1f} (FP32)"
        print(f"{name:16} w = {w:.3f}  limit {limit:14} measured {rates[name]:5.1f} TFLOP/s")

# %% [markdown]
# This is the limit of the rungs from `shared` to `vectorized`. Each idea raises it: a column per thread, then a tile
# per thread, then loads of 16 bytes. Is it also what they wait for? Nsight Compute's counters, recorded at 2048, show
# how busy each unit was:

# %%
from worklog.analysis.counters import counters

counters([name for name in counted.rungs if name in rates])

# %% [markdown]
# From `shared` to `vectorized`, the pipe of L1 and shared memory is the busiest unit. After them, the FP32 roof is the
# lowest limit that we can count. We believed that it limits these rungs, too. The counters refute that for
# `conflict_free`: no unit is busy for more than 70 % of the time. The next rung has the same tile and the same w. It
# only fetches the next tile during this one, which hides the latency of memory and saves one barrier per tile:

# %%
for size in (2048, 4096):
    waits, hides = (worklog.results([name], [size]).measurements[0] for name in ("conflict_free", "double_buffered"))
    faster = waits.us / hides.us - 1
    print(f"{size}: conflict_free {waits.us:.0f} µs, double_buffered {hides.us:.0f} µs, {faster:+.0%}")

# %% [markdown]
# So `conflict_free` waits for latencies, which no roofline shows. In the rungs from `double_buffered` to `warptiled`,
# the FP32 cores are busy for about two thirds to three quarters of the time. That is nearer to their roof, and still
# not at it. These counters do not tell what is between. [05_climbing_the_ladder](05_climbing_the_ladder.ipynb) shows
# what each rung changes.
#
# ## 5. The effect of a flush
#
# The article's example has size 4096, and it warns of a warm L2. How long do the compulsory bytes take if all of them
# come from memory? We believed that a warm L2 saves at most this time. Two kernels, compared in clock cycles, since the
# clocks of two measurements differ:

# %%
extra = known.cold_cycles - known.warm_cycles
print(f"calibration: a read takes {extra:.0f} cycles longer from memory than from L2")
for name in ("vectorized", "warptiled"):
    for size in (256, 512, 1024, 2048, 4096):
        flushed, warm = (worklog.results([name], [size], l2=l2).measurements[0] for l2 in ("flush", "warm"))
        bytes_us = flushed.problem.compulsory_bytes / copy / 1e6
        cycles = flushed.us * flushed.sm_mhz - warm.us * warm.sm_mhz
        saved = f"{cycles / flushed.sm_mhz:5.1f} of {flushed.us:6.1f} µs, {cycles:6.0f} cycles"
        per_tile = cycles / size * run.kernels[name]["tile"]["BK"]
        print(f"{name:10} {size:4}: all bytes {bytes_us:4.1f} µs; a warm L2 saves {saved}, {per_tile:4.0f} per K tile")

# %% [markdown]
# At 4096 the matrices do not fit into L2, and a warm L2 saves less than the time of all bytes. (The article expects an
# inflated number at this size.) At the small sizes, `vectorized` saves a multiple of it, so the belief was wrong: it
# holds for a kernel that keeps memory busy. `vectorized` copies a K tile, waits for it, and only then computes. So it
# waits for the latency of memory once per tile, and what it saves per tile is somewhat more than the calibration's
# difference for one read. `warptiled` fetches the next tile during this one, and saves about as many cycles once per
# launch.
#
# "The matrices fit" does not explain it either. At 2048, A, B and C take 48 MiB and fit into the 60 MiB of an H200's
# L2, and neither kernel saves a visible time. The cause is not in the recording. (At 2048 there are more blocks than
# multiprocessors. One block could compute while another one waits, but no measurement here separates this from other
# causes.) A flush is still right: you do not know in advance which kernels and sizes need it.
#
# ## 6. The size
#
# A roofline does not contain the amount of work. The same kernels at other sizes, as a share of the ceiling of the
# whole GPU, and of those multiprocessors that have a block:

# %%
from worklog.kernel import occupancy

sizes = (256, 512, 1024, 2048, 4096, 8192)
by_size = worklog.results(["tiles_1d", "autotuned", "warptiled", "cuBLAS"], sizes)
arch = paper.arch
for name in ("tiles_1d", "autotuned", "warptiled"):
    built = by_size.kernels[name]
    at_once = occupancy(arch, built["block"], built["registers"], built["shared_bytes"]).blocks
    print(f"{name}: at most {at_once} on a multiprocessor")
    for m in by_size.select(name):
        x, y = worklog.rung(name).blocks(m.problem)
        part = m.of_ceiling / min(1, x * y / paper.multiprocessors)
        print(f"  {m.problem.m:4}: {x * y:5} blocks, {m.of_ceiling:5.1%} of the GPU, {part:5.1%} of the busy part")
print("cuBLAS", *(f"{m.problem.m}: {m.of_ceiling:.1%}" for m in by_size.select("cuBLAS")))
for shape in map(worklog.Shape.of, (sizes[0], sizes[-1])):
    print(f"{shape}: {shape.flops / shape.compulsory_bytes:.0f} FLOP per compulsory byte")

# %% [markdown]
# Even at the smallest size, the compulsory intensity is to the right of both ridges, but no kernel is near a roof
# there. With a large tile there are fewer blocks than multiprocessors. A multiprocessor without a block has no work,
# and cannot take over a part of another block's K loop. This is the largest part of the loss, but not all of it: at
# 256, the busy part of `tiles_1d` and `warptiled` is slower than at 4096, too. There, a block is alone on its
# multiprocessor, and no second one computes while it waits. `autotuned` is the test: of its blocks, a multiprocessor
# holds one at any size, and its busy part is nearly as fast at 256 as at 4096. No single rung is the fastest at all
# sizes. The whole ladder at 1024:

# %%
plots.roofline(worklog.results(shapes=[1024]), 1024)

# %% [markdown]
# The points have the same horizontal positions as at 4096, and most are lower. A roofline is an upper bound; a kernel
# need not reach it.

# %% [markdown]
# ## Graded exercise
#
# Blocks with square tiles of C fetch A and B from L2. What is the side of the smallest tile, a multiple of 8, for which
# FP32 is the lower roof and not L2? Take a large K, so that C does not count. The measured roofs of section 1 grade the
# answer.

# %%
from worklog import lab

answer = None  # the side of a tile
lab.check_answer("06", answer)

# %% tags=["solution"]
answer = next(side for side in range(8, 512, 8) if 2 * side**2 / (4 * 2 * side) > fp32 / l2)
lab.check_answer("06", answer)

# %% [markdown]
# ## Exercises
#
# 1. A block computes BM × BN elements of C. Derive its FLOP per byte for large K, and compare with the chart for 32 ×
#    32 and 128 × 128. Which tile of the same area is best?
# 2. In `naive`, the lanes of a warp load A from 32 different lines. Assume that L1 looks up one line per cycle. Which
#    rate follows? Compare it with the measured one.
# 3. At 1024, `warptiled` has blocks for about half of an H200's multiprocessors. Which share of the roof can it reach
#    at most, and does it?
#
# <details><summary>Answers</summary>
#
# 1. For each k, it fetches 4 (BM + BN) bytes and does 2 BM BN operations: BM BN / (2 (BM + BN)). That is 8 for 32 × 32
#    and 32 for 128 × 128. The chart shows a little less, because C is written too. For a given area, a square is best.
# 2. 33 lookups per multiply-add of a warp (32 lines of A, one of B), against four multiply-adds per cycle: 1 / 132 of
#    the FP32 peak. On the H200 that is half a TFLOP/s, near the measured rate. (That it also has 132 multiprocessors is
#    a coincidence.)
# 3. 64 blocks on 132 multiprocessors: 48 % of the roof. It reaches less than half of that (section 6). A block that is
#    alone on its multiprocessor cannot hide its latencies behind another block, as at 4096. We believed that the first
#    and the last tile of a block, which are not overlapped, are a second cause. They are in `autotuned`, too, and its
#    busy part loses nothing at 1024.
#
# </details>
#
# **Where next:** [07_autotuning_and_beyond](07_autotuning_and_beyond.ipynb) searches for the tile that fits a size.
