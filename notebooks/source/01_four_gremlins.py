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
# # Four gremlins
#
# We time one kernel as a first benchmark might, and get a number that looks right. Two mistakes are in it.
# They cancel in the time, and double the kernel's share of cuBLAS.

# %%
import worklog
from worklog import lab, plots

plots.headline()

# %% [markdown]
# The kernel, the GPU and the matrices are the same in both measurements. The time differs by less than 5 %: nobody
# would look twice. But the first mistake took 34 µs off, the second put 43 µs on, and cuBLAS, which is faster, got
# nearly twice the second one. So a kernel at 30 % of cuBLAS is published at 64 %.
#
# This page takes the article's four mistakes apart, its *gremlins*. The kernels never change in this notebook, only
# the harness does. Every cell runs with and without a GPU, and the label says where its numbers come from.
#
# **New concepts:** the event pair, the blocking kernel, the L2 flush, the first launch, a comparison at one clock.

# %%
ablation = worklog.ablate("vectorized", [256, 1024, 2048, 4096])
plots.DIAGRAMS["diagram_1_mental_model"](ablation)

# %% [markdown]
# ## Try it: the panel
#
# Switch fixes off and on, and watch the number. Without a GPU the panel shows what was recorded, and disables what
# was not. With a GPU, every choice is open, and *measure* measures it in a child process. Before you read on: which
# single fix of the two above would you leave off, if you wanted to flatter the kernel?

# %% tags=["still:panel_two_off"]
lab.panel("vectorized", 1024, l2="warm", queue=False)

# %% [markdown]
# ## Gremlin 1: the clock drifts
#
# A GPU changes its clock with load, temperature and power, and every time changes with it. The article locks the
# clock. This harness locks it too, if it has the permission (`clocks="locked"`). Without it, the harness watches: it
# reads the SM clock with every sample, compares it with the clock after the warm-up, and takes the sample again if
# they differ by more than 1 %.
#
# Is watching enough? Here are four settings of the harness, at one size:

# %%
biases = {"clocks": "ignored", "inputs": "zeros", "placement": "fixed", "gate": False}
for setting, value in biases.items():
    print(lab.setting_effect("warptiled", [2048], **{setting: value}).text())

# %% [markdown]
# **What we believed:** not watching the clock makes this kernel 1 % faster, and we drew that in a figure. But zeros
# as inputs made it 1 % faster, too, and one placement, and even a gate that was off. That can't all be true.
#
# **What happened:** look at the clocks. The *unbiased* measurement, the one that all others are compared with, ran at
# 1950 MHz, and the others at 1968 MHz or more. Each sample was within the tolerance of its own warm-up: the whole
# measurement was slow. At one clock, which is what the column *difference* states, nothing is left.
#
# So this project states the effect of a setting at one clock: by the slope of time against clock in the samples, with
# its uncertainty in the interval. (A step of the ladder is the ratio of two times as they are.) The clocks have a
# column of their own, and a measurement whose clock is off its run's says so. Within one measurement, that slope is
# what we expect of a kernel that waits for nothing else:

# %%
import numpy as np

[ignored] = worklog.results(["warptiled"], [4096], clocks="ignored").measurements
mhz, us = ignored.samples.clocked()
slope = np.polyfit(np.log(mhz), np.log(us), 1)[0]
print(
    f"{len(mhz)} samples, {min(mhz):.0f} to {max(mhz):.0f} MHz; at a clock 1 % lower, {-slope:.1f} % longer"
)

# %% [markdown]
# So on this card, in these runs, watching was enough: at one clock, the four settings agree within the noise. None of
# these runs locked the clock, so they don't show what a lock would do. And don't conclude that clocks don't matter!
# Nothing pulled them down here. Power does: `split`, which multiplies on tensor cores (units for small matrix products),
# runs into the limit of the card. Its clock is 1670 MHz, 16 % below the 1978 MHz of cuBLAS
# ([notebook 10](10_fp32_on_tensor_cores.ipynb)). No lock keeps a clock that the power doesn't allow. What remains is to
# read it with each sample, and to say it beside the number.
#
# Not all kernels are like that: section 5 of [15_harnesses_compared](15_harnesses_compared.ipynb) has others.
#
# ## Gremlin 2: the launch is asynchronous
#
# A launch puts the kernel into a queue and returns. A host clock around it measures the queueing:

# %%
host = lab.setting_effect("warptiled", [256, 1024, 4096], timer="host")
host

# %% [markdown]
# There are two signs of this mistake. The time hardly depends on the size, although the work from the first row to
# the last grows by a factor of 4096. And at the last size the rate is above what the hardware can do:

# %%
[biased] = worklog.results(["warptiled"], [4096], timer="host").measurements
peak = ablation.gpu.fp32_peak_tflops
print(
    f"{biased.tflops:.0f} TFLOP/s is {biased.tflops / peak:.1f} times the peak of {peak:.0f} TFLOP/s"
)

# %% [markdown]
# If a launch takes longer than its kernel, the same mistake makes the kernel look slow. This happens to cuBLAS, which
# was timed alternately with `warptiled` at 256: a kernel can win a comparison because the baseline is short.

# %%
for timer in ("events", "host"):
    [m] = worklog.results(["warptiled"], [256], timer=timer).measurements
    print(f"cuBLAS at 256, timer = {timer}: {m.us * m.ratio:.1f} µs")

# %% [markdown]
# The fix is a pair of events around the kernel, in the same queue (a *stream*): the GPU itself records their times.
# Events have a pitfall
# that the article doesn't name. If the queue is empty, the GPU records the first event at once and then waits for the
# host to launch the kernel. This launch bubble is the second mistake of the first picture. A blocking kernel in front
# removes it: everything is queued before the first event is recorded.

# %%
lab.setting_effect("warptiled", [256, 1024, 4096], queue=False)

# %% [markdown]
# ## Gremlin 3: L2 stays warm
#
# A benchmark that launches a kernel repeatedly on the same matrices finds them in L2. A single call doesn't. The
# harness flushes L2 before each launch, outside the event pair, by writing twice the size of L2. **What we
# believed**, with the article: a warm L2 shortens the time at 4096, too, and the effect ends where the matrices no
# longer fit.

# %%
lab.setting_effect("vectorized", [256, 1024, 2048, 4096], l2="warm")

# %%
plots.DIAGRAMS["diagram_2_memory_hierarchy"](ablation)

# %% [markdown]
# **What happened:** the effect ends before. At 2048 the matrices fit into the 60 MiB of an H200's L2, and this kernel
# gains nothing. What it gains below is not *bandwidth* (bytes per second) either, but *latency* (how long a load takes): it
# waits for each tile along K ([07_roofline](07_roofline.ipynb), section 4, counts the cycles). If you test a harness
# only at 2048 or 4096, you don't see that it needs a flush. (The picture calls DRAM HBM, its type, and states rates:
# where a time falls by a percentage, the rate rises by a
# larger one.)
#
# ## Gremlin 4: the cold start
#
# The first launch of a kernel has costs that later ones don't have, such as loading its machine code. **What we
# believed:** the clock is still rising then, too.

# %%
[unbiased] = worklog.results(["warptiled"], [1024]).measurements
[cold] = worklog.results(["warptiled"], [1024], warmup="none").measurements
first, *later = cold.samples.sides[0].us
middle = np.median([first, *later]) - worklog.open_run().calibration.offset_us
print(f"the first launch: {first:.0f} µs, {first / unbiased.us:.1f} times the unbiased time")
print(f"the median of all {1 + len(later)}: {middle:.1f} µs, {middle / unbiased.us - 1:+.1%}")
began, *after = cold.samples.sides[0].sm_mhz
print(
    f"SM clock: {began:.0f} MHz in the first launch, {np.median(after):.0f} MHz in the later ones"
)

# %% [markdown]
# **What happened:** the clock was up, since the calibration of the harness ran before. What remains is a cost of 0.1 to
# 0.3 ms per first launch, for a kernel of 35 µs as for one of 4 ms. The recording doesn't split it up. The median of
# many launches ignores it, which is one reason to use a median. A mean includes it, and a single launch is nothing
# else. The fix is to warm up *until time and clock are steady*: a fixed number of launches may be enough on one
# machine and too few on the next.
#
# ## All four
#
# The effects don't add up. The host doesn't wait for the kernel, so with a host clock the kernel's time isn't in the
# number, and neither is what a warm L2 saves of it. All four at once, and each alone:

# %%
four = {
    pitfall.setting: pitfall.biased[0] for pitfall in worklog.settings.PITFALLS if pitfall.article
}
lab.setting_effect("vectorized", [256, 1024, 4096], **four)

# %%
plots.ablation(ablation, "vectorized")

# %% [markdown]
# ## Graded exercise
#
# In the panel above, choose `vectorized` at 1024 and switch off `4 warmup` only. The result changes little, although
# the first launch was slow. With which settings does the reading show the cold start? The recorded samples grade the
# answer.

# %%
answer = None  # a dict of settings, such as {'l2': 'warm'}
lab.check_answer("01", answer)

# %% tags=["solution"]
answer = dict(warmup="none", statistic="first")
lab.check_answer("01", answer)

# %% [markdown]
# ## Exercises
#
# 1. In the panel, choose `naive` at 4096 and switch off all of the article's fixes except `2 timer`. How large is the
#    effect, and why?
# 2. The pair of the first picture at 256: does it still cancel?
#
# <details><summary>Answers</summary>
#
# 1. Almost none. The kernel takes so long that a launch bubble and a first launch are negligible. A warm cache saves
#    this kernel nothing at any size, not even at 256. A harness that is tested with such kernels only doesn't show
#    its gremlins.
# 2. No. The warm L2 takes 10 µs off, the empty queue puts 40 µs on, and 52 µs become about 82. The share of cuBLAS is
#    about 103 % instead of 17: a kernel that takes six times as long as cuBLAS is published as faster.
#
# </details>
#
# **Where next:** [02_your_own_kernel](02_your_own_kernel.ipynb) puts a kernel of yours in front of gate and harness.
# [12_the_harness](12_the_harness.ipynb) explains the harness and how it is calibrated with kernels of known length.
