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
# # Autotuning, and beyond
#
# **Goal:** turn the tile of a rung into axes, know what each tile costs before it has run, and let the clock decide
# only what nothing else can.
#
# **New concepts:** a space with reasons, what the compiler tells, occupancy, spills, a winner that holds at one size.
#
# Compiling needs no GPU, so all of the predictions are made here. The times are measured, here or on the machine of the
# recording; where nobody has measured a tile, its row says so.

# %%
import pandas as pd

import worklog
from worklog import plots
from worklog.analysis.inspection import inspect_rung
from worklog.analysis.traffic import traffic
from worklog.bench import sweep as tuning
from worklog.kernel.nvrtc import compile_cuda
from worklog.problem.axes import Axis

rung = worklog.rung("autotuned")
run = worklog.results(["tiles_1d", "autotuned", "warptiled"], [1024, 4096])
print(run.label)
print(rung.name, dict(rung.template))

# %% [markdown]
# ## 1. Axes
#
# The rung's body takes any tile: BM x BN of C for a block, BK deep, TM x TN for a thread. MIN_BLOCKS asks the compiler
# to leave room for so many blocks on an SM at once. Four axes, and every combination of their values:

# %%
axes = [Axis("BM", (64, 128)), Axis("BN", (64, 128, 256)), Axis("TN", (8, 16)), Axis("MIN_BLOCKS", (1, 2))]
found = tuning.variants(rung, axes)
print(found.preview().replace("; ", "\n"))

# %% [markdown]
# Some cannot be built. The reason is not written down in a table of rules: it is the kernel's own `static_assert` that
# refuses, and its words that are shown. What else could be in the way: more threads than a block may have, more shared
# memory than it may have, or no register left for a single block.

# %%
for axis in (Axis("TN", (1,)), Axis("BK", (128,)), Axis("BM", (96,))):
    for point in tuning.variants(rung, [axis]).skipped:
        print(f"{point!s:8} {point.skipped}")

# %% [markdown]
# ## 2. What is known without running anything
#
# The compiler says how many registers a thread takes and whether some had to be spilled to memory. With the threads of
# a block and its shared memory that gives how many blocks an SM holds. The tile alone gives how much all blocks
# together fetch from L2, and how many multiply-adds a float from shared memory is good for.

# %%
found.frame()  # "spilled B" and "shared B" are bytes

# %% [markdown]
# Read it as a list of predictions:
#
# - **TN = 16** does more multiply-adds for each float that it reads, and pays with registers: fewer warps are there to
#   hide a wait.
# - **Larger blocks** fetch less from L2.
# - **MIN_BLOCKS = 2** changes nothing where two blocks fit anyway. Where only one does, the compiler must save
#   registers, and there are two ways that this can end.

# %%
squeezed = [(128, 128, 8, 1), (128, 128, 8, 2), (128, 256, 16, 1), (128, 256, 16, 2)]
table = found.frame().set_index([axis.name for axis in axes])
table.loc[squeezed, ["registers", "spilled B", "blocks/SM"]]

# %% [markdown]
# Two registers too many cost the 8 x 8 tile half of its warps: asked for two blocks, the compiler finds the two
# registers, and nothing is lost. From the 8 x 16 tile it must take many more, and accumulators go to memory and back.
# Occupancy is the same in both cases. It is not a measure of speed.
#
# The emulator counts what no table says, here for the tile that gained and for the rung's own:

# %%
gained = next(v for v in found.kept if v.name == "BM=128 BN=128 TN=8 MIN_BLOCKS=2")
inspected, own = inspect_rung(gained.record), traffic().rungs[rung.name]
shared = inspected.counts.shared_load.wavefronts + inspected.counts.shared_store.wavefronts
clocks = run.device["multiprocessors"] * run.device["sm_clock_mhz"] * 1e3  # of all SMs, in a millisecond
print(f"{inspected.label}\n{gained.name}: {shared / clocks:.2f} ms in shared memory at least")
print(f"{rung.name} as it is: {own.wavefronts / clocks:.2f} ms in shared memory at least")
print(f"either: {inspected.shape.flops / run.device['fp32_peak_tflops'] / 1e9:.2f} ms in multiply-adds at least")

# %% [markdown]
# Both stay below what the multiply-adds need, so these counts cannot choose between them. Now the clock may.

# %% [markdown]
# ## 3. What was measured
#
# Each tile passes the whole gate before it is timed, beside cuBLAS in the same loop, like every other kernel here. In
# a terminal it is `worklog sweep autotuned --axis BM=64,128 --axis …`, and with `--preview` it only says what it would
# do.

# %%
measured = tuning.results(found)
plots.sweep(found, measured)

# %% [markdown]
# A tile without a time was not measured: a run that was cut short says so at the foot. Section 4 has the rung's own
# tile, from the ladder's run.
#
# Look for three things in the chart, or predict them where it has no times yet. Is the order that of the registers, of
# the warps, or of the L2 traffic? Where does the tile that spills stand? And how far apart are rows that differ only
# in a MIN_BLOCKS that changes nothing: the same machine code under two names? That distance is what a difference must
# exceed before it means anything. In numbers, where +1 is the same order and -1 the reverse:

# %%
rates = {m.kernel: m.tflops for m in measured.measurements if m.tflops} if measured else {}
timed = found.frame().assign(rate=[rates.get(variant.name, float("nan")) for variant in found.kept]).dropna()
pairs = timed.groupby(["BM", "BN", "TN", "registers"])["rate"].agg(["min", "max", "count"])
apart = (pairs["max"] / pairs["min"] - 1)[pairs["count"] > 1]
if apart.empty:
    print("too few of these tiles have a time to compare them")
else:
    for known in ("registers", "warps/SM", "L2 GB"):
        print(f"{known:9} and TFLOP/s, rank by rank: {timed['rate'].rank().corr(timed[known].rank()):+.2f}")
    print(f"{len(apart)} pairs with the same registers differ in MIN_BLOCKS alone: at most {apart.max():.2%} apart")

# %% [markdown]
# ## 4. A winner at one size
#
# The rung's own tile was chosen at 4096. At 1024, C has few tiles of 128 x 256, and an SM without a block does nothing:


# %%
def blocks(name, size):
    """Blocks of the grid, for each SM of this machine."""
    x, y = worklog.rung(name).blocks(worklog.Shape.of(size))
    return x * y / run.device["multiprocessors"]


rows = []
for m in run.measurements:
    size = m.shape[0]
    row = {"blocks/SM": blocks(m.kernel, size), "TFLOP/s": m.tflops, "of cuBLAS": m.ratio}
    rows.append({"kernel": m.kernel, "size": size, **row})
print(run.label)
pd.DataFrame(rows).pivot(index="kernel", columns="size").round(2)

# %% [markdown]
# A tile is tuned for a size, a machine and a compiler. The article's percentages come from tiles tuned for an RTX
# A6000; libraries carry dozens of tiles and choose by size. Sweep where you will run.

# %% [markdown]
# ## 5. Dead ends
#
# Not every good idea is one. [05_climbing_the_ladder](05_climbing_the_ladder.ipynb) padded the wrong matrix; here are
# two about the compiler. Unroll the inner loop of `tiles_1d` by hand, so that four neighbours in a row of `As` become
# one load of 16 bytes:


# %%
def compiled(name, old, new):
    """A rung as it is and with a change, compiled: registers and shared-memory instructions."""
    program = worklog.rung(name).program
    for word, source in (("as it is", program.source), ("changed", program.source.replace(old, new))):
        out = compile_cuda(source, program.entry, name=program.name, options=program.options)
        print(f"{name:10} {word:9} {out.registers} registers, {dict(out.shared_accesses)}")


loop = "    for (int k = 0; k < BK; ++k) {"
compiled("tiles_1d", loop, f"#pragma unroll\n{loop}")

# %% [markdown]
# The assembler had done it already, with the same wide loads and fewer registers, and the line came out again. Look at
# what is made of your code before you improve it.
#
# A stranger one: the name of the last two rungs. The assembler leaves multiply-adds in the order of the source if the
# kernel's symbol contains "cutlass". Under any other name it may reorder them, and other machine code comes out:

# %%
compiled("warptiled", "cutlass", "another")

# %% [markdown]
# CUDA's documentation says nothing of it ([a pull request of
# Triton's](https://github.com/triton-lang/triton/pull/7298) does), and a later assembler may drop it without a word. A
# benchmark that is run again would notice; a number in an article would not.

# %% [markdown]
# ## Exercises
#
# 1. How many floats does a thread with 8 x 16 elements keep in accumulators? Why can no kernel have 16 x 16?
# 2. Why does a 64 x 64 tile fetch more than twice as much from L2 as one of 128 x 256?
# 3. Sweep `vectorized` over TM and TN. Which combinations does it refuse that `autotuned` takes?
#
# <details><summary>Answers</summary>
#
# 1. 128, and a thread has at most 255 registers. 16 x 16 would take 256 for the accumulators alone.
# 2. Each float of A is fetched once for each block column, N / BN times, and each of B M / BM times: the traffic goes
#    with 1 / BM + 1 / BN.
# 3. `tuning.variants(worklog.rung("vectorized"), [Axis("TM", (4, 8, 16)), Axis("TN", (4, 8, 16))])`, and then
#    `.skipped` and `.frame()` of both.
#
# </details>
#
# **Where next:** [08_your_own_kernel](08_your_own_kernel.ipynb): a rung of your own, from its first mistake on.
