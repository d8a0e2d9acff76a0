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
# # Start here
#
# **Goal:** see the whole path once, from a kernel's source to a number that you would defend to a skeptic.
#
# **New concepts:** the ladder, the gate, the harness, a run and its label.
#
# Every cell runs with and without a GPU. With one, numbers are measured here and now; without one, they come from the
# recording of an NVIDIA H200 that ships with the package. The label under each table and chart says which.

# %%
import worklog
from worklog import plots

worklog.open_run().label

# %% [markdown]
# ## 1. The ladder
#
# The kernels of the ladder compute the same product, C = A·B in FP32. Each one changes one idea of the one before. The
# notebook that walks through them line by line comes later; here they are only named.

# %%
for rung in worklog.LADDER:
    print(f"{rung.name:15} {rung.file:21} {rung.idea}")

# %% [markdown]
# ## 2. What one idea looks like
#
# The second rung differs from the first in two lines: neighbouring threads take neighbouring columns instead of
# neighbouring rows. This is the whole difference between the two bodies.

# %%
from worklog.lab.diff import diff

diff("naive", "coalesced")

# %% [markdown]
# ## 3. Gate, then time
#
# Nothing is timed before it has passed the gate: exact integer problems that leave no room for tolerance, on ragged
# shapes and at the size that is measured, and a check of the precision on the data that is timed. Then kernel and
# cuBLAS take turns in one loop, with a cold L2 and a watched clock, until the interval is narrow.

# %%
run = worklog.results(sizes=[1024, 4096])
run

# %% [markdown]
# Two things to notice. `±95 %` stands beside every time: a number without an interval cannot be compared with
# another. And cuBLAS is measured against itself in the last row, which shows how far two identical things can differ
# in this harness.

# %% [markdown]
# ## 4. The picture
#
# Bars are this run. Circles are the shares of cuBLAS that the article states. It speaks of an H100, but its numbers
# are those that siboehm measured on an RTX A6000 (the README of SGEMM_CUDA), so they are drawn hollow and belong to the
# scale above only. The same ideas climb different ladders on different machines.

# %%
plots.ladder(run, 4096)

# %% [markdown]
# ## 5. How far is up?
#
# The roofline says what the hardware could do: solid lines were measured on this GPU, dashed ones computed from its
# data sheet.

# %%
plots.roofline(run, 4096)

# %% [markdown]
# ## 6. One lie
#
# Now the same kernel with one fix of the harness switched off. Launched again and again without an L2 flush, it finds
# its inputs in the cache, where a single call would not find them. Compare the times.

# %%
lying = worklog.results(["vectorized"], [1024], l2="warm")
for reading in (*run.select("vectorized", worklog.Shape.of(1024)), *lying.measurements):
    how = ", ".join(f"{setting} = {value}" for setting, value in reading.changed.items())
    print(f"{reading.us:8.1f} µs  {reading.tflops:6.2f} TFLOP/s  {how or 'unbiased'}")
print(lying.label)

# %% [markdown]
# Every such switch is one row of one table. Four of them are the article's gremlins; the others it does not name.

# %%
for pitfall in worklog.Harness.fixes():
    biased = ", ".join(map(str, pitfall.biased))
    print(
        f"{pitfall.article or ' '} {pitfall.setting:10} honest: {pitfall.unbiased!s:12} lies: {biased:16} {pitfall.title}"
    )

# %% [markdown]
# ## 7. All lies, all sizes
#
# What each lie does depends on the size, which is why a harness checked at one size is not checked. `0` means that
# the effect is smaller than the noise of the two readings. The numbered rows are the article's; under each name
# stands the number that the lie moves. The next notebook takes them one by one.

# %%
plots.ablation(worklog.ablate("vectorized", [256, 1024]), "vectorized")

# %% [markdown]
# ## Exercises
#
# 1. On the H200, `tiles_1d` beats every later rung at 1024, and is far behind them at 4096. Why?
# 2. Predict what `timer="host"` reads for `warptiled` at 256 and at 4096, then look.
#
# <details><summary>Answers</summary>
#
# 1. Its tile is 64 × 64, theirs at least 128 × 128. At 1024, tiles of 128 × 128 make 8 × 8 = 64 blocks for the 132
#    multiprocessors of an H200: half of them have nothing to do. At 4096 there are blocks enough, and the larger tile
#    pays.
# 2. `worklog.results(["warptiled"], [256, 4096], timer="host")`. The host's clock stops when the launch has been
#    queued, so it reads about the same at both sizes. At 4096 that flatters by far. At 256 the kernel is about as short
#    as its launch, and the same mistake can even make it look slow.
#
# </details>
#
# **Where next:** [01_four_gremlins](01_four_gremlins.ipynb) reproduces the article's four lies and kills them.
# `worklog article` in a terminal measures everything (with a GPU) and draws every figure; `worklog run --help` has the
# rest.
