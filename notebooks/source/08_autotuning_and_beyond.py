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
# # Autotuning, and beyond
#
# A rung has one tile. We make it a set of axes, ask the compiler what it knows of each tile, and believe that one of
# its numbers tells us which is fastest. Then we measure all of them:

# %%
import worklog
from worklog import plots, problem
from worklog.tune import sweep as tuning

rung = worklog.rung("autotuned")
sides = {"BM": (64, 128), "BN": (64, 128, 256), "TN": (8, 16), "MIN_BLOCKS": (1, 2)}
axes = [problem.Axis(name, values) for name, values in sides.items()]
found = tuning.variants(rung, axes)
measured = tuning.results(found)
plots.sweep(found, measured)

# %% [markdown]
# A tile without a time was not measured. A label with *source changed since* means that the rung's source is not the
# measured one, but compiles to as many registers and as much shared memory.
#
# **New concepts:** axes and skipped points with reasons, compiler resources, occupancy, spills, a best tile that holds
# for one size.
#
# ## 1. Axes
#
# The rung's source has the tile as template parameters: BM x BN of C per block, BK deep, TM x TN per thread. MIN_BLOCKS
# tells the compiler how many blocks must fit on an SM. Four axes, and every combination of their values:

# %%
print(rung.name, dict(rung.template))
print(found.preview().replace("; ", "\n"))

# %% [markdown]
# Some combinations don't compile. The reason is the message of the kernel's own `static_assert`. Other tiles can't be
# launched: a block may have too many threads, too much shared memory or too many registers.

# %%
for name, value in (("TN", 1), ("BK", 32), ("BM", 96)):
    for point in tuning.variants(rung, [problem.Axis(name, (value,))]).skipped:
        print(f"{point!s:8} {point.skipped}")

# %% [markdown]
# ## 2. What is known without running anything
#
# The compiler reports the registers per thread, and the bytes that it spilled to memory. Together with the threads and
# the shared memory per block, this gives the number of blocks per SM. The tile alone gives the bytes that all blocks
# fetch from L2, and the multiply-adds per float read from shared memory.

# %%
found.frame()  # "spilled B" and "shared B" are bytes

# %% [markdown]
# **What we believed:**
#
# - **TN = 16** does more multiply-adds per float that it reads, but it needs more registers, so there are fewer warps
#   to hide latencies.
# - **Larger blocks** fetch less from L2.
# - **MIN_BLOCKS = 2** has no effect where two blocks fit anyway. Where only one block fits, the compiler must save
#   registers. This can have two results:

# %%
squeezed = [(128, 128, 8, 1), (128, 128, 8, 2), (128, 256, 16, 1), (128, 256, 16, 2)]
table = found.frame().set_index([axis.name for axis in axes])
table.loc[squeezed, ["registers", "spilled B", "blocks/SM"]]

# %% [markdown]
# The 8 x 8 tile needs only a few registers too many for two blocks. With MIN_BLOCKS = 2 the compiler saves them without
# a spill, and the number of warps doubles. The 8 x 16 tile needs many registers too many, so the compiler spills
# accumulators to memory. Occupancy is the same in both cases, so it doesn't measure speed.
#
# The emulator counts the wavefronts, here of the tile that gained warps and of the rung's own tile:

# %%
from worklog.kernel.inspection import inspect
from worklog.kernel.ladder import memory_counts

gpu = worklog.open_run().gpu
gained = next(v for v in found.kept if v.name == "BM=128 BN=128 TN=8 MIN_BLOCKS=2")
inspected, own = inspect(gained.kernel), memory_counts().rungs[rung.name]
shared = inspected.counts.shared_load.wavefronts + inspected.counts.shared_store.wavefronts
clocks = gpu.multiprocessors * gpu.sm_clock_mhz * 1e3  # of all SMs, per millisecond
print(f"{inspected.label}\n{gained.name}: {shared / clocks:.2f} ms at least in shared memory")
print(f"{rung.name}, its own tile: {own.wavefronts / clocks:.2f} ms at least in shared memory")
print(
    f"either: {inspected.shape.flops / gpu.fp32_peak_tflops / 1e9:.2f} ms at least in multiply-adds"
)

# %% [markdown]
# Both are below the time of the multiply-adds, so these counts don't decide between them. A measurement must.

# %% [markdown]
# ## 3. What was measured
#
# Like every kernel, each tile must pass the gate before it is timed next to cuBLAS. In a terminal, the command is
# `worklog sweep autotuned --axis BM=64,128 --axis …`. With `--preview`, it only lists the tiles.
#
# Four questions to the picture. Does the order follow the registers, the warps or the L2 traffic? What does a spill
# cost? Does the 8 x 8 tile gain from twice the warps, and does it overtake the rung's own tile? How large a difference
# means nothing? (+1 is the same order, -1 the reverse.)

# %%
rates = {m.kernel: m.tflops for m in measured.measurements if m.tflops} if measured else {}
timed = (
    found.frame()
    .assign(rate=[rates.get(variant.name, float("nan")) for variant in found.kept])
    .dropna()
)
follows = {
    known: timed["rate"].rank().corr(timed[known].rank())
    for known in ("registers", "warps/SM", "L2 GB")
}
if len(timed) == len(found.kept):
    print(measured.measurements[0].label)
    print("order: " + ", ".join(f"{known} {how:+.2f}" for known, how in follows.items()))
    by = timed.set_index([axis.name for axis in axes])["rate"]
    same = timed.groupby(["BM", "BN", "TN", "registers"])["rate"]
    apart = (same.max() / same.min() - 1)[same.count() > 1]
    print(
        f"spill: {by[128, 256, 16, 1]:.1f} TFLOP/s without, {by[128, 256, 16, 2]:.1f} TFLOP/s with"
    )
    print(
        f"8 x 8: {by[128, 128, 8, 1]:.1f} TFLOP/s with 8 warps, {by[128, 128, 8, 2]:.1f} TFLOP/s with 16"
    )
    best = (
        timed.groupby(["BM", "BN", "TN"])["rate"].max().unstack().dropna()
    )  # by the faster MIN_BLOCKS
    for (bm, bn), of_tile in best.iterrows():
        print(
            f"block {bm} x {bn}: 8 x 8 {of_tile[8]:.1f} TFLOP/s, 8 x 16 {of_tile[16]:.1f} TFLOP/s"
        )
    print(
        f"noise: {len(apart)} pairs of tiles have the same registers, and are at most {apart.max():.2%} apart"
    )
    print(
        "best:  "
        + ", ".join(f"{axis.name} = {value}" for axis, value in zip(axes, by.idxmax(), strict=True))
    )
else:
    print("not all of these tiles have a time: sweep them on a GPU")

# %% [markdown]
# **What happened:**
#
# - **Order:** it follows none of the three numbers, so a search needs measurements.
# - **Spill:** a tile that spills its accumulators is several times slower, although it has as many warps as any.
# - **Warps:** at the same tile and without a spill, twice the warps are 16 % faster. Still, the rung's own tile has
#   half of these warps and stays ahead. We believed that this is because 8 x 16 does more multiply-adds per float. But
#   in the same block tile, 8 x 16 is faster at two of the four block tiles and slower at the other two. So the thread
#   tile alone doesn't decide. One thing goes with it: where 8 x 16 wins, both fetch a tile 1 multiply-add before its
#   store; where it loses, 8 x 8 fetches it 236 and 250 ahead, and 8 x 16 still 1 ([07_roofline](07_roofline.ipynb),
#   section 4).
# - **Noise:** two tiles with the same machine code differ by 0.1 % in most pairs, and by 0.4 % at most. A smaller
#   difference between other tiles means nothing.

# %% [markdown]
# ## 4. The best tile of one size
#
# The rung's own tile was chosen at 4096. At 1024, C has few tiles of 128 x 256, and an SM without a block has no work:


# %%
import math

import pandas as pd

run = worklog.results(["tiles_1d", "autotuned", "warptiled"], [1024, 4096])
rows = []
for m in run.measurements:
    blocks = math.prod(worklog.rung(m.kernel).blocks(m.problem)) / run.gpu.multiprocessors
    row = {"blocks/SM": blocks, "TFLOP/s": m.tflops, "of cuBLAS": m.ratio}
    rows.append({"kernel": m.kernel, "size": m.shape[0], **row})
print(run.label)
pd.DataFrame(rows).pivot(index="kernel", columns="size").round(2)

# %% [markdown]
# A tile is tuned for a size, a machine and a compiler. The article's percentages come from tiles tuned for an RTX
# A6000. Libraries have dozens of tiles and choose by size. Run the sweep on the machine and for the sizes that you will
# use.

# %% [markdown]
# ## 5. Dead ends
#
# Some ideas don't help. In [05_work_per_thread](05_work_per_thread.ipynb) we pad the wrong matrix. Here are
# two ideas about the compiler. **What we believed:** if we unroll the inner loop of `tiles_1d`, four neighbours in a
# row of `As` become one load of 16 bytes.


# %%
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import compile_cuda


def compiled(name, old, new):
    """Compile a rung as it is and with a change; print registers and shared-memory instructions."""
    program = worklog.rung(name).program
    for which, source in (
        ("as it is", program.source),
        ("changed", program.source.replace(old, new)),
    ):
        out = compile_cuda(Program(program.name, source, program.entry, program.options))
        print(f"{name:10} {which:9} {out.registers} registers, {dict(out.shared_accesses)}")


loop = "    for (int k = 0; k < BK; ++k) {"
compiled("tiles_1d", loop, f"#pragma unroll\n{loop}")

# %% [markdown]
# **What happened:** the compiler had done this already, with the same wide loads and fewer registers, so the rung does
# not have this line.
# Read the machine code before you optimise the source.
#
# The second is a word in the names of rungs 11 to 19, and no dead end: rungs 11 and 12 gain 10 and 23 % by it at 4096
# ([06_the_last_30_percent](06_the_last_30_percent.ipynb)). The assembler keeps multiply-adds in the order of the source
# if the kernel's symbol contains "cutlass". With any other name it may reorder them, and the machine code is different:

# %%
compiled("warptiled", "cutlass", "another")

# %% [markdown]
# CUDA's documentation doesn't mention this ([a pull request to
# Triton](https://github.com/triton-lang/triton/pull/7298) does), and a later assembler may behave differently. So run
# the benchmark again after an update of CUDA.

# %% [markdown]
# ## Graded exercise
#
# Find a tile of `autotuned` other than its own that fetches no more from L2 at 4096 and doesn't spill. Axes that you
# don't name keep the rung's values. The compiler grades the answer.

# %%
from worklog import lab

answer = None  # a dict of tile parameters, such as {'BM': 64}
lab.check_answer("08", answer)

# %% tags=["solution"]
answer = dict(BM=256, BN=128, TM=16, TN=8)
lab.check_answer("08", answer)

# %% [markdown]
# ## Exercises
#
# 1. How many floats does a thread with 8 x 16 elements keep in accumulators? Why does 16 x 16 spill?
# 2. Why does a 64 x 64 tile fetch more than twice as much from L2 as one of 128 x 256?
# 3. Sweep `vectorized` over TM and TN of 4, 8 and 16. Which combinations does it reject, and why?
#
# <details><summary>Answers</summary>
#
# 1. 128, and a thread has at most 255 registers. 16 x 16 needs 256 for the accumulators alone.
# 2. Each float of A is fetched N / BN times, once per block column, and each float of B M / BM times. So the traffic is
#    proportional to 1 / BM + 1 / BN.
# 3. 4 x 4, 4 x 8 and 8 x 4. They need 512 or 1024 threads per block, and a tile of 128 x 8 has only 256 float4 to copy.
#    `tuning.variants(worklog.rung("vectorized"), [problem.Axis(side, (4, 8, 16)) for side in ("TM", "TN")]).skipped`
#    lists them.
#
# </details>
#
# **Where next:** [09_past_cublas](09_past_cublas.ipynb) goes on where `warptiled` ends.
