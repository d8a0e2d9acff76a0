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
# # What limits a kernel?
#
# A roofline shows how fast a kernel could be. It doesn't show what it waits for. We put the twelve rungs of the
# ladder on the roofline, ask the hardware's counters what is busy in each, and then what their warps wait for.

# %%
import worklog
from worklog import plots
from worklog.kernel.ladder import counters

run = worklog.results(shapes=[4096])
plots.roofline(run, 4096)

# %%
counters([rung.name for rung in worklog.LADDER])

# %% [markdown]
# `naive` keeps L1 busy for 96 % of the time, and nothing else. From `shared` on, the same unit serves shared memory,
# up to 90 %. From `conflict_free` on, no unit of memory is the busiest unit any more: it is the slots in which
# instructions start, up to 82 %. At 2048, L2 is at most 10 % busy in any of them, and DRAM 2 %. The counter doesn't separate
# lookups in L1 from wavefronts of shared memory. The emulator's counts do: the first two rungs have no wavefronts.
#
# The rest of this page shows how far you can get without counters, and where you can't.
#
# **New concepts:** arithmetic intensity and the level at which it is taken, ridge, counted bytes, the limit of shared
# memory.
#
# ## 1. Three measured roofs
#
# A roof is the rate of the machine if it does only one thing: multiply-adds on registers, reads from L2, or a copy
# through memory. The harness measures all three at the start of a run, because a data sheet states what the hardware
# was designed for. A memory roof and the FP32 roof meet at a *ridge*. Below this number of FLOP per byte, memory is
# the lower roof.

# %%
known, paper = run.calibration, run.gpu
fp32, l2, copy = known.fp32_tflops, known.l2_gbs / 1e3, known.copy_gbs / 1e3
print(f"FP32    {fp32:5.1f} TFLOP/s, {fp32 / paper.fp32_peak_tflops:.1%} of lanes times clock")
print(f"memory  {copy:5.2f} TB/s, {1e3 * copy / paper.memory_peak_gbs:.1%} of bus times clock")
print(f"L2      {l2:5.2f} TB/s")
print(f"ridges: {fp32 / l2:.1f} FLOP per byte of L2, {fp32 / copy:.1f} per byte of memory")
print(run.label)

# %% [markdown]
# ## 2. Which bytes?
#
# The horizontal axis of a roofline is FLOP per byte. But bytes can be counted at several levels of memory, and the
# same kernel has another intensity at each of them:
#
# - *compulsory:* A and B are read once, C is written once. No kernel can do better. This intensity grows with the
#   size.
#
# - *blocks:* each block reads its rows of A and its columns of B once. This follows from the tile.
#
# - *sectors:* memory moves in sectors of 32 bytes. The emulator executes the kernel and counts the sectors that its
#   loads and stores touch. On a GPU, a test compares these counts with Nsight Compute's.
#
# - *threads:* the bytes that each thread requests, as if it were alone.
#
# - *L2:* the bytes that Nsight Compute counted between L2 and L1. This is the axis of the chart above.

# %%
import pandas as pd

from worklog.kernel.ladder import memory_counts, moved_from_l2

counted = memory_counts()
moved, label = moved_from_l2(counted.shape)
print(f"FLOP per byte at {counted.shape}; sectors and threads: {counted.label}; L2: {label}")
table = pd.DataFrame(plots.levels_of(run)).T
table.assign(L2=[counted.shape.flops / moved[name] for name in table.index]).round(2)

# %% [markdown]
# The compulsory intensity is far above both ridges: this problem is *not* memory-bound, if each byte is reused often
# enough. `naive` touches one sector for each float of A that a thread reads, so it makes fewer FLOP per byte of its
# sectors than of what its threads request. In `coalesced`, the lanes of a warp share sectors. From `shared` on, a block
# loads only the bytes that it needs: sectors and blocks agree, but for the stores of C in `tiles_2d` and `vectorized`.
# After that, a rung whose tile grows moves right in the chart, and `pipelined`, whose tile shrinks, moves left. Right of
# the ridge no memory roof limits them, so moving right alone need not move a rung up.
#
# How many of these sectors come from L2? We believed: all of them. But L1 serves 99 % of those of `naive`, and still
# 29 % of those of `warptiled`, whose blocks have no use for a float twice.
#
# ## 3. The limit that is not on the chart
#
# The shared memory of a multiprocessor serves one wavefront per cycle. Each of its four quarters can start one
# multiply-add of a warp per cycle. So a kernel with w wavefronts per multiply-add uses at most 1 / (4 w) of the FP32
# lanes, whatever its intensity. The emulator counts w, bank conflicts included.

# %%
rates = {m.kernel: m.tflops for m in run.measurements if m.tflops}
limits = {}
for name, rung in counted.rungs.items():
    if rung.wavefronts and name in rates:
        roof = paper.fp32_peak_tflops / (4 * rung.wavefronts_per_fma)
        limits[name] = {
            "w": f"{rung.wavefronts_per_fma:.3f}",
            "limit, TFLOP/s": f"{roof:.1f}" if roof < fp32 else f"{fp32:.1f} (FP32)",
            "measured": f"{rates[name]:.1f}",
        }
pd.DataFrame(limits).T

# %% [markdown]
# Each rung raises this limit: a column per thread, then a larger block with a tile per thread, then loads of 16 bytes.
# The rates follow, and the counters agree. But a unit that is the busiest, at 78 % in `vectorized`, need not be the limit:
# `conflict_free` has 0.6 times the wavefronts, and is only 5 % faster.
#
# **What we believed:** the FP32 roof limits the rungs after them. **What happened:** in `conflict_free`, no unit is
# busy for more than 70 % of the time. The next rung has the same tile and the same w. It fetches the next tile during
# this one, and saves one barrier per tile:

# %%
for size in (2048, 4096):
    waits, hides = (
        worklog.results([name], [size]).measurements[0]
        for name in ("conflict_free", "double_buffered")
    )
    faster = waits.us / hides.us - 1
    print(
        f"{size}: conflict_free {waits.us:.0f} µs, double_buffered {hides.us:.0f} µs, {faster:+.0%}"
    )

# %% [markdown]
# So `conflict_free` waits, which no roofline shows. For what? Nsight Compute samples the state of each warp:

# %%
from story.tables import waits

waits("vectorized", "conflict_free", "double_buffered", "autotuned", "pipelined", "warptiled")

# %% [markdown]
# In `conflict_free`, warps wait for 14 % of their cycles for global memory, in `double_buffered` for less than 1 %. (A
# second barrier, put back, costs 1 % of the time: notebook 06.) What is left for both are shared memory, barriers, and
# operands of registers.
#
# ## 4. Who waits for a tile?
#
# There is a way to see a wait from outside, without counters: leave L2 warm. **What we believed:** a kernel that
# waits for each tile of A and B saves a part of each wait, and a kernel that fetches the next tile during this one
# saves the first wait only. Before we had measured that, we even believed that it is bandwidth, at most the time in
# which memory delivers A, B and C. Here is what a warm L2 saves, in one run on an H100:

# %%
from worklog.runs import Run, recordings

waits = Run.load(recordings("chapters")["h100_waits"], "recorded")
points = []
for name in (
    "register_banks",
    "vectorized",
    "conflict_free",
    "double_buffered",
    "autotuned",
    "warptiled",
):
    for size in (256, 512, 768, 1024):
        shape = worklog.Shape.of(size)
        [cold], [warm] = waits.select(name, shape, {}), waits.select(name, shape, {"l2": "warm"})
        cycles, tiles = (
            cold.us * cold.sm_mhz - warm.us * warm.sm_mhz,
            size // waits.kernels[name]["tile"]["BK"],
        )
        points.append(
            {
                "kernel": name,
                "K tiles": tiles,
                "µs saved": cycles / cold.sm_mhz,
                "per tile": cycles / tiles,
            }
        )
saved = pd.DataFrame(points)
over = {
    name: rows.set_index("K tiles")["µs saved"]
    for name, rows in saved.groupby("kernel", sort=False)
}
finding = "A warm L2 saves register_banks as much as kernels that wait for each tile"
plots.curves(finding, over, waits.label, x="K tiles", y="µs saved")

# %% [markdown]
# **What happened:** it isn't bandwidth: at 1024, all three matrices take 12 MiB, a few µs of memory, and `vectorized`
# saves more than 30. It grows with the number of tiles, so it is a wait for each. `vectorized` and `conflict_free`
# copy a tile, wait for it, and only then compute, and save 412 to 594 cycles per tile. The calibration of that run
# measures 427 for one read:

# %%
known = waits.calibration
print(
    f"a read takes {known.cold_cycles:.0f} cycles from memory, {known.warm_cycles:.0f} from L2 ({waits.label})"
)
saved.groupby("kernel", sort=False)["per tile"].agg(["min", "max"]).round(0)

# %% [markdown]
# But the second half of the belief is wrong. `register_banks` fetches the next tile ahead, as `double_buffered`,
# `autotuned` and `warptiled` do, and saves as much per tile as a kernel that waits. `double_buffered` saves half of
# it, and only `warptiled` next to nothing. That a load stands early in the source doesn't mean that nobody waits for
# it. What goes with it for these rungs is in the machine code: how many multiply-adds the assembler leaves between a
# tile's last fetch and its first store. Each takes a clock for each warp in its quarter of the multiprocessor, if the
# block is alone there:

# %%
from story.tables import fetched_ahead

from worklog import lab

fetched_ahead(known, *saved["kernel"].unique(), "pipelined")

# %% [markdown]
# `register_banks` hides less than a read from L2 takes, so it waits for all that memory takes longer. `double_buffered`
# hides a part of that, and `warptiled` all. `autotuned` saves less than this says. In `pipelined`, which isn't
# in the chart, the assembler moved the fetch down to the store. It must save as much as `vectorized`, and saves 396 to
# 568 cycles per tile. Two rungs aren't in the chart since the rule isn't about them: `shared` and `tiles_1d` have
# several blocks on a multiprocessor, which wait for each other's tiles. They fetch nothing ahead, so the rule says 427
# for both, and they save 409 to 809 and 20 to 572.
#
# Is it enough that the matrices fit? No: at 2048, A, B and C take 48 MiB and fit into the 60 MiB of an H200's L2, and
# neither `vectorized` (notebook 01) nor `warptiled` saves a visible time there. So you can't tell in
# advance which kernels and sizes need a flush, and we always flush.
#
# ## 5. The size
#
# A roofline doesn't contain the amount of work. The same kernels at other sizes, as a share of the ceiling of the
# whole GPU, and of those multiprocessors that have a block:

# %%
from worklog.emulator.limits import occupancy

sizes = (256, 512, 1024, 2048, 4096, 8192)
by_size = worklog.results(["tiles_1d", "autotuned", "warptiled", "cuBLAS"], sizes)
for name in ("tiles_1d", "autotuned", "warptiled"):
    built = by_size.kernels[name]
    at_once = occupancy(
        paper.arch, built["block"], built["registers"], built["shared_bytes"]
    ).blocks
    print(f"{name}: at most {at_once} on a multiprocessor")
    for m in by_size.select(name):
        x, y = worklog.rung(name).blocks(m.problem)
        part = m.of_ceiling / min(1, x * y / paper.multiprocessors)
        print(
            f"  {m.problem.m:4}: {x * y:5} blocks, {m.of_ceiling:5.1%} of the GPU, {part:5.1%} of the busy part"
        )
print("cuBLAS", *(f"{m.problem.m}: {m.of_ceiling:.1%}" for m in by_size.select("cuBLAS")))

# %% [markdown]
# Even at the smallest size, the compulsory intensity is to the right of both ridges, but no kernel is near a roof
# there. With a large tile there are fewer blocks than multiprocessors. A multiprocessor without a block has no work,
# and can't take over a part of another block's K loop. This is the largest part of the loss, but not all of it: at
# 256, the busy part of `tiles_1d` and `warptiled` is slower than at 4096, too. There, a block is alone on its
# multiprocessor, and no second one computes while it waits. `autotuned` is the test: of its blocks, a multiprocessor
# holds one at any size, and its busy part is nearly as fast at 256 as at 4096.
#
# ## Graded exercise
#
# Blocks with square tiles of C fetch A and B from L2. What is the side of the smallest tile, a multiple of 8, for
# which FP32 is the lower roof and not L2? Take a large K, so that C doesn't count. The measured roofs of section 1
# grade the answer.

# %%
answer = None  # the side of a tile
lab.check_answer("07", answer)

# %% tags=["solution"]
answer = next(side for side in range(8, 512, 8) if 2 * side**2 / (4 * 2 * side) > fp32 / l2)
lab.check_answer("07", answer)

# %% [markdown]
# ## Exercises
#
# 1. A block computes BM × BN elements of C. Derive its FLOP per byte for large K, and compare it with the column
#    *blocks* of section 2, for 32 × 32 and 128 × 128. Which tile of the same area is best?
# 2. In `naive`, the lanes of a warp load A from 32 different lines. Assume that L1 looks up one line per cycle. Which
#    rate follows? Compare it with the measured one.
# 3. At 1024, `warptiled` has blocks for about half of an H200's multiprocessors. Which share of the roof can it reach
#    at most, and does it?
#
# <details><summary>Answers</summary>
#
# 1. For each k, it fetches 4 (BM + BN) bytes and does 2 BM BN operations: BM BN / (2 (BM + BN)). That is 8 for 32 ×
#    32 and 32 for 128 × 128. The column shows a little less, 7.97 and 31.51, because C is written too. For a given
#    area, a square is best.
# 2. 33 lookups per multiply-add of a warp (32 lines of A, one of B), against four multiply-adds per cycle: 1 / 132 of
#    the FP32 peak. On the H200 that is half a TFLOP/s, near the measured rate. (That it also has 132 multiprocessors
#    is a coincidence.)
# 3. 64 blocks on 132 multiprocessors: 48 % of the roof. It reaches less than half of that (section 5). A block that is
#    alone on its multiprocessor can't hide its latencies behind another block, as at 4096. It is the latency of
#    instructions that shows: at 1024, the warps of `warptiled` wait for the next instruction in 35 % of their cycles,
#    and at 4096 in 3 %. Its loop has 2228 instructions. That of `register_banks` has half as many, and waits for them
#    in 2 % at 1024. We believed that the first and the last tile of a block, which are not overlapped, are a second
#    cause. They are in `autotuned`, too, and its busy part loses nothing at 1024.
#
# </details>
#
# **Where next:** [08_autotuning_and_beyond](08_autotuning_and_beyond.ipynb) searches for the tile that fits a size.
