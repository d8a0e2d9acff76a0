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
# # Start here
#
# We make a matrix multiplication a hundred times as fast, one idea at a time, and write down what we believed before
# each step and what happened. This page goes once all the way: from the source of a kernel to a number that you can
# defend.
#
# Every cell runs with and without a GPU. With one, it measures. Without, it takes recordings of an NVIDIA H200 and an
# H100 that ship with the package. A label at each table and chart says which.
#
# **New concepts:** the ladder, what a warp touches, the gate, the harness, a run and its label.
#
# You need a few words of CUDA, which [03_the_ground](03_the_ground.ipynb) draws. A *kernel* is a function that runs on
# the GPU, and to start it is a *launch*. Many *threads* run its code, each with its own index. 32 threads are a *warp*,
# which executes each instruction for all of them at once: they are its *lanes*. Up to 32 warps are a *block*, and all
# blocks of a launch are the *grid*. A block computes a rectangle of C, its *tile*. It runs on one of the GPU's
# multiprocessors (*SMs*), whose *shared memory* its threads share. A thread computes in its *registers*. What it loads
# comes from the card's memory (*DRAM*) through two caches: *L2*, which all SMs share, and *L1* in each SM.
#
# ## 1. One idea
#
# Our kernels all compute the product of two matrices, C = A·B, in *FP32*: the `float` of C. Each adds one idea to the
# kernel before it, a *rung* of the ladder. In the first rung, `naive`, the 32 threads of a warp compute neighbouring
# rows of C. In the second, `coalesced`, neighbouring columns. This is the whole difference:

# %%
import worklog
from worklog import lab, plots

lab.diff("naive", "coalesced")

# %% [markdown]
# What does it change? Here is every access to memory of a block of `naive`, from the addresses that the compiled kernel
# executed. Hover or tap a lane, or use the arrow keys. In `naive`, the 32 lanes read 32 rows of A, and each row lies in
# another part of memory.

# %% tags=["still:access_naive"]
lab.access("naive")

# %% [markdown]
# Memory moves in *sectors* of 32 bytes, and L1 looks up one *line* of 128 bytes at a time. A warp needs 33 such
# *lookups* for a multiply-add (one `acc += a * b` of each lane), and 2 after the change. How many times as fast is
# `coalesced`? Bet before you look. (The answer also names the *floors*. A floor is the least time that the counts of a
# kernel allow.)

# %%
lab.bet("coalesced")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 16.5, and it was 11.5 times as fast.
#
# </details>
#
# The floors are known without a GPU, and for the first steps they give the direction and most of the size. What is
# missing is the question of [04_one_idea_a_picture](04_one_idea_a_picture.ipynb).
#
# ## 2. Gate, then time
#
# A kernel must pass the *gate* before it is timed. The gate checks the result exactly on integer inputs, on edge shapes
# and at the size that is measured, and then checks the precision on the data that is timed. After that, the *harness*,
# the code that times, launches the kernel and cuBLAS (NVIDIA's library) alternately, with a cold L2 and a watched
# clock, until the interval of the median is narrow. A multiply-add counts as two operations (FLOP), and a TFLOP/s is
# 10¹² of them in a second.

# %%
run = worklog.results(shapes=[1024, 4096])
run

# %% [markdown]
# Every time has a 95 % interval (`±95 %`): without one, you can't tell whether two kernels differ. The last row
# measures cuBLAS against itself, and shows how much two identical kernels differ in this harness. This is the whole
# ladder at 4096:

# %%
plots.ladder(run, 4096)

# %% [markdown]
# Hollow circles are the shares of cuBLAS that the article “Benchmarking without lying to yourself” states, on the scale
# at the top. It names an H100, but siboehm measured them on an RTX A6000 (see the README of SGEMM_CUDA): the same idea
# gains different amounts on different GPUs.
#
# ## 3. A number that looks right
#
# The same kernel, the same GPU, the same matrices, and two mistakes of the benchmark:

# %%
plots.headline()

# %% [markdown]
# **What we believed** when we saw such a time: it is within 5 %, so it is fine. **What happened:** the kernel's share
# of cuBLAS doubled, since the second mistake adds more to cuBLAS's time than to the kernel's. The harness has a switch
# for each mistake. We turn one off: without the L2 flush, each launch finds its inputs in the cache, where a single
# call would not find them.

# %%
lab.setting_effect("vectorized", [256, 1024, 4096], l2="warm")

# %% [markdown]
# The effect depends on the size, so one size doesn't test a harness. These are all switches. Those with a number are
# the article's four mistakes, its *gremlins*; the article doesn't name the others. (`tf32` and `bf16` are shorter
# number formats, for products on the GPU's tensor cores.)

# %%
import pandas as pd

switches = []
for pitfall in worklog.settings.PITFALLS:
    biased = ", ".join(map(str, pitfall.biased))
    switches.append(
        (pitfall.setting, pitfall.article or "", pitfall.unbiased, biased, pitfall.title)
    )
columns = ["setting", "gremlin", "unbiased", "biased", "pitfall"]
pd.DataFrame(switches, columns=columns).set_index("setting")

# %% [markdown]
# ## 4. How far is up?
#
# The roofline shows the limits of the hardware: the rate that memory allows, by how many operations a kernel does per
# byte (FLOP per byte), and the rate of the multiply-adds. Solid lines were measured on this GPU. The dashed line is the
# peak of FP32 by its data sheet.

# %%
plots.roofline(run, 4096)

# %% [markdown]
# ## 5. A later rung isn't always faster
#
# **What we believed:** the best kernel at 4096 is the best kernel. `tiles_1d` has a smaller tile than all later rungs.

# %%
later = [rung.name for rung in worklog.LADDER if rung.number > worklog.rung("tiles_1d").number]
for size in (1024, 4096):
    rates = {m.kernel: m.tflops for m in run.select(shape=worklog.Shape.of(size)) if m.tflops}
    faster = [name for name in later if rates.get(name, 0) > rates["tiles_1d"]]
    names = "all later rungs" if faster == later else ", ".join(faster)
    print(f"{size}: tiles_1d {rates['tiles_1d']:.1f} TFLOP/s; faster: {names or 'no later rung'}")

# %% [markdown]
# **What happened:** at 4096 all later rungs are faster, and at 1024 only two of them. Exercise 1 asks why.
#
# ## Graded exercise
#
# Which rung is the fastest at 256? Guess before you look: the sizes above are 1024 and 4096. Then set `answer` and run
# the cell. The answer is graded against the times of the harness. Your first answer to each exercise is kept beside the
# measurement: `worklog journal` writes these predictions as a Markdown page of your own.

# %%
answer = None  # the name of a rung
lab.check_answer("00", answer)

# %% tags=["solution"]
run = worklog.results(shapes=[256])
answer = min(
    (m for m in run.measurements if m.us and m.kernel != "cuBLAS"), key=lambda m: m.us
).kernel
lab.check_answer("00", answer)

# %% [markdown]
# ## Exercises
#
# 1. Why can `tiles_1d` be faster than later rungs at 1024, and not at 4096?
# 2. Predict what `timer="host"` shows for `warptiled` at 256 and at 4096, then look.
#
# <details><summary>Answers</summary>
#
# 1. Its tile is 64 × 64, the tile of later rungs at least 128 × 128. At 1024, tiles of 128 × 128 make 8 × 8 = 64 blocks
#    for the 132 multiprocessors of an H200, so half of them have no work, and each of the others has a single block.
#    The blocks of `tiles_1d` keep all of them busy. At 4096 there are enough blocks for the larger tile to pay off.
#    ([07_roofline](07_roofline.ipynb), section 5, separates the two effects.)
# 2. `lab.setting_effect("warptiled", [256, 4096], timer="host")`. The host's clock stops when the launch is queued, so
#    it reads about the same time at both sizes. At 4096 that is far too short. At 256 the kernel is about as short as
#    its launch. A kernel that is shorter than its launch looks slow: the next page shows this of cuBLAS.
#
# </details>
#
# **Where next:** the story, in this order:
#
# 1. [01_four_gremlins](01_four_gremlins.ipynb): two mistakes that cancel, taken apart.
# 2. [02_your_own_kernel](02_your_own_kernel.ipynb): a kernel of your own, its bugs and its costs.
# 3. [03_the_ground](03_the_ground.ipynb): what a warp, a sector and a floor are, drawn.
# 4. [04_one_idea_a_picture](04_one_idea_a_picture.ipynb): the first steps of the ladder. You bet on each of them.
# 5. [05_work_per_thread](05_work_per_thread.ipynb): registers instead of shared memory.
# 6. [06_the_last_30_percent](06_the_last_30_percent.ipynb): what waits, up to cuBLAS.
# 7. [07_roofline](07_roofline.ipynb): what limits a kernel.
# 8. [08_autotuning_and_beyond](08_autotuning_and_beyond.ipynb): the tile that fits a size.
# 9. [09_past_cublas](09_past_cublas.ipynb): what is left to gain on FP32 cores.
# 10. [10_fp32_on_tensor_cores](10_fp32_on_tensor_cores.ipynb): 3.6 to 4.2 times cuBLAS.
# 11. [11_keep_and_compare](11_keep_and_compare.ipynb): whether a kernel became slower.
#
# The reference: [12](12_the_harness.ipynb) the harness, [13](13_from_milliseconds_to_tflops.ipynb) TFLOP/s,
# [14](14_the_gate.ipynb) the gate, [15](15_harnesses_compared.ipynb) other harnesses, [16](16_time_anything.ipynb) any
# function, [17](17_bugs_in_famous_kernels.ipynb) bugs in famous kernels,
# [18](18_halves_on_tensor_cores.ipynb) halves on tensor cores. `worklog article` in a terminal draws every figure, and
# each Python file in `notebooks/examples/` does one task in at most 30 lines.
