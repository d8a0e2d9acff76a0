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
# **Goal:** this page goes once from the source of a kernel to a measured number that you can defend. You get the ladder
# of kernels, the gate, the harness, and a run with its label.
#
# **New concepts:** the ladder, the gate, the harness, a run and its label.
#
# Every cell runs with and without a GPU. With a GPU, it measures. Without one, it takes recordings of an NVIDIA H200
# and an H100 that ship with the package. The label under each table and chart says which.

# %%
import worklog
from worklog import plots

plots.headline()

# %% [markdown]
# The kernel and the GPU are the same in both measurements. Only the harness differs. This page shows how to get the
# right number, and which settings of the harness give the wrong one.

# %% [markdown]
# ## 1. The ladder
#
# All kernels of the ladder compute the same product, C = A·B in FP32. Each one adds one idea to the kernel before it.
# [05_climbing_the_ladder](05_climbing_the_ladder.ipynb) explains them one by one.

# %%
for rung in worklog.LADDER:
    print(f"{rung.name:15} {rung.file:21} {rung.idea}")

# %% [markdown]
# ## 2. What one idea looks like
#
# In the second rung, neighbouring threads compute neighbouring columns instead of neighbouring rows. Here is the whole
# difference between the two kernels:

# %%
from worklog.lab.ladder_page import diff

diff("naive", "coalesced")

# %% [markdown]
# ## 3. Gate, then time
#
# A kernel must pass the gate before it is timed. The gate checks the result exactly on integer inputs, on edge shapes
# and at the size that is measured, and then checks the precision on the data that is timed. After that, the harness
# launches the kernel and cuBLAS alternately, with a cold L2 and a watched clock, until the interval of the median is
# narrow.

# %%
run = worklog.results(shapes=[1024, 4096])
run

# %% [markdown]
# Every time has a 95 % interval (`±95 %`): without one, you cannot tell whether two kernels differ. The last row
# measures cuBLAS against itself, and shows how much two identical kernels differ in this harness.

# %% [markdown]
# ## 4. The run as a picture
#
# Bars show this run. Hollow circles show the shares of cuBLAS that the article states, on the scale at the top. The
# article names an H100, but siboehm measured these shares on an RTX A6000 (see the README of SGEMM_CUDA). The same idea
# gains different amounts on different GPUs.

# %%
plots.ladder(run, 4096)

# %% [markdown]
# ## 5. How far is up?
#
# The roofline shows the limits of the hardware. Solid lines were measured on this GPU. Dashed lines follow from its
# data sheet.

# %%
plots.roofline(run, 4096)

# %% [markdown]
# ## 6. One pitfall
#
# Now measure a kernel with one fix of the harness switched off. Without the L2 flush, each launch finds its inputs in
# the cache, where a single call would not find them.

# %%
warm = worklog.results(["vectorized"], [1024], l2="warm")
for m in (*run.select("vectorized", worklog.Shape.of(1024)), *warm.measurements):
    how = ", ".join(f"{setting} = {value}" for setting, value in m.changed.items())
    print(f"{m.us:8.1f} µs  {m.tflops:6.2f} TFLOP/s  {how or 'unbiased'}")
print(warm.label)

# %% [markdown]
# Each of these settings is one row of the table of pitfalls. Those with a number are the article's four gremlins; the
# article does not name the others.

# %%
for pitfall in worklog.settings.PITFALLS:
    biased = ", ".join(map(str, pitfall.biased))
    settings = f"unbiased: {pitfall.unbiased!s:12} biased: {biased:16}"
    print(f"{pitfall.article or ' '} {pitfall.setting:10} {settings} {pitfall.title}")

# %% [markdown]
# ## 7. All pitfalls, two sizes
#
# The effect of a pitfall depends on the size, so a test of the harness at one size is not enough. `0` means that the
# effect at one clock is smaller than the noise of the two measurements. The numbered rows are the article's. Under each
# name is the result that the pitfall changes. The next notebook explains them one by one.

# %%
plots.ablation(worklog.ablate("vectorized", [256, 1024]), "vectorized")

# %% [markdown]
# ## 8. A small tile at a small size
#
# `tiles_1d` has a smaller tile than all later rungs. At which size does that help?

# %%
later = [rung.name for rung in worklog.LADDER if rung.number > worklog.rung("tiles_1d").number]
for size in (1024, 4096):
    rates = {m.kernel: m.tflops for m in run.select(shape=worklog.Shape.of(size)) if m.tflops}
    faster = [name for name in later if rates.get(name, 0) > rates["tiles_1d"]]
    print(f"{size}: tiles_1d {rates['tiles_1d']:5.1f} TFLOP/s; faster: {', '.join(faster) or 'no later rung'}")

# %% [markdown]
# ## Graded exercise
#
# Which rung is the fastest at 256? Guess before you look: the sizes above are 1024 and 4096. Then set `answer` and run
# the cell. The answer is graded against the times of the harness.

# %%
from worklog import lab

answer = None  # the name of a rung
lab.check_answer("00", answer)

# %% tags=["solution"]
run = worklog.results(shapes=[256])
answer = min((m for m in run.measurements if m.us and m.kernel != "cuBLAS"), key=lambda m: m.us).kernel
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
#    ([06_roofline](06_roofline.ipynb), section 6, separates the two effects.)
# 2. `worklog.results(["warptiled"], [256, 4096], timer="host")`. The host's clock stops when the launch is queued, so
#    it reads about the same time at both sizes. At 4096 that is far too short. At 256 the kernel is about as short as
#    its launch. Of a kernel that is shorter than its launch, the same mistake makes a slow one: the next notebook shows
#    cuBLAS.
#
# </details>
#
# **Where next:** [01_four_gremlins](01_four_gremlins.ipynb) reproduces the article's four gremlins and fixes them.
# `worklog article` in a terminal draws every figure, after measuring everything if there is a GPU. The examples in
# `notebooks/examples/` do one task each in at most 25 lines.
