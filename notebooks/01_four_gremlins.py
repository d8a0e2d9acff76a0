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
# # Four gremlins
#
# **Goal:** make a benchmark lie in the four ways that everybody's first benchmark does, and take each lie away again.
#
# **New concepts:** the event pair, the queue, the flush, the first launch, one number beside its honest twin.
#
# The kernel never changes in this notebook. Only the ruler does. Every cell runs with and without a GPU; the label says
# where its numbers are from.

# %%
import numpy as np

import worklog
from worklog import lab, plots
from worklog.harness.sampling import CLOCK_TOLERANCE

worklog.open_run().label

# %% [markdown]
# Here is all of it in one picture: the time that we want, and what the four do to it on this machine.

# %%
ablation = worklog.ablate("vectorized", [256, 1024, 4096])
plots.DIAGRAMS["diagram_1_mental_model"](ablation)

# %% [markdown]
# One function is enough to go through them: the same kernel at the same size, honestly and with one fix switched off.


# %%
def beside(kernel, size, **lie):
    """The honest and the lying measurement, and a line that says how they differ."""
    unbiased, lying = (worklog.results([kernel], [size], **how).measurements[0] for how in ({}, lie))
    [(setting, value), *more] = lie.items()
    said = f"{len(lie)} lies" if more else f"{setting} = {value}"
    off = f"{round(lying.us / unbiased.us - 1, 3) + 0.0:+8.1%}"
    print(f"{kernel:>10} at {size}: {unbiased.us:10.1f} µs, with {said} {lying.us:10.1f} µs  {off}")
    return unbiased, lying


# %% [markdown]
# ## Gremlin 1: the clock drifts
#
# A GPU changes its clock with load, heat and power. A kernel timed at another clock is another measurement. The article
# locks the clock; so does this harness where it may (`clocks="locked"`). Where it may not, it watches: it reads the SM
# clock beside every sample, compares it with where the clock had settled, and takes a sample that ran off it again.

# %%
unbiased, lying = beside("warptiled", 4096, clocks="ignored")
us, mhz = (np.array(unbiased.samples[what], float) for what in ("us", "sm_mhz"))
print(f"SM clock of {len(mhz)} samples: {min(mhz):.0f} to {max(mhz):.0f} MHz")

# %% [markdown]
# A cool data-center GPU that nobody shares hardly drifts, and then this lie costs nothing. Without the watch you would
# not know. So here the drift that the article fears is *simulated*: the samples above, as they would have been read if
# the clock had sunk by a fifth meanwhile.

# %%
settled = np.median(mhz)
sinking = settled * np.linspace(1.0, 0.8, len(us))
read = us * settled / sinking
kept = abs(sinking / settled - 1) <= CLOCK_TOLERANCE
for name, samples in {"ignored": read, "watched": read[kept]}.items():
    off = round(np.median(samples) / np.median(us) - 1, 3) + 0.0
    median = f"{np.median(samples):.0f} µs, {off:+.1%}"
    print(f"simulated, clocks {name}: {len(samples):2} of {len(us)} samples count, median {median}")
cycles = read * sinking
print(f"the same samples in clock cycles: {cycles.min() / 1e6:.3f} to {cycles.max() / 1e6:.3f} million")

# %% [markdown]
# Ignored, the weather is in the number. Watched, a sample more than 1 % off the clock does not count and is taken
# again; if most are off, as here, the result says that the clock has moved. Counted in cycles, the kernel is as long as
# ever: it waits for arithmetic, and arithmetic waits for the clock.

# %% [markdown]
# ## Gremlin 2: the launch is asynchronous
#
# A launch only puts the kernel on a queue, and returns. A host clock around it times the queue. The first sign: the
# reading hardly depends on the size of the problem, while the work grows with its cube, four thousandfold from the
# first row to the last. At a small size the host can even take longer to launch than the GPU to compute, and the same
# mistake makes a kernel look slow.

# %%
for size in (256, 1024, 4096):
    unbiased, lying = beside("warptiled", size, timer="host")

# %% [markdown]
# The second sign: it is faster than the hardware can be. No kernel computes at several times the peak.

# %%
peak = worklog.open_run().device["fp32_peak_tflops"]
print(f"{lying.tflops:.0f} TFLOP/s is {lying.tflops / peak:.1f} times the peak of {peak:.0f} TFLOP/s")

# %% [markdown]
# Two events in the same stream as the kernel are stamped by the GPU itself, and time what ran between them. They bring
# a gremlin of their own that the article does not name: if the queue is empty, the GPU stamps the first event at once
# and then waits for the host to launch. The shorter the kernel, the more of its reading is that bubble. Work queued up
# behind a blocking kernel closes it.

# %%
for size in (256, 1024, 4096):
    beside("warptiled", size, queue=False)

# %% [markdown]
# ## Gremlin 3: L2 stays warm
#
# Launched again and again on the same matrices, a kernel finds them in L2. Nobody who calls it once finds them there.
# The harness writes over twice the L2 before each launch, outside the timed pair.

# %%
for size in (256, 1024, 4096):
    beside("vectorized", size, l2="warm")

# %% [markdown]
# What this lie does depends on the size. The largest is the article's own example: it expects a warm L2 to flatter
# there too, and on this machine it does not. Look at what would have to fit. (The picture tells rates: where a time
# falls, its rate rises by more percent.)

# %%
plots.DIAGRAMS["diagram_2_memory_hierarchy"](ablation)

# %% [markdown]
# Where they do not fit, a launch pushes its own inputs out again before it ends, so the next one finds little; and at
# 4096 there is arithmetic enough to hide what comes from memory ([06_roofline](06_roofline.ipynb) counts it). A harness
# that was only checked there looks as if it needed no flush.

# %% [markdown]
# ## Gremlin 4: the cold start
#
# The first launch of a kernel loads its module, and finds clocks that are still rising. (The compiler and the CUDA
# context are done with by then, here. Who times a program from its start pays for them too.)

# %%
unbiased, lying = beside("warptiled", 1024, warmup="none")
first = lying.samples["us"][0]
print(f"its first launch: {first:.0f} µs, {first / unbiased.us:.1f} times the honest time")

# %% [markdown]
# The median of many launches steps over the first one, which is one reason to take a median. A mean does not, and who
# times a single launch has nothing else. Warming up *until time and clock are steady* is the fix; a fixed number of
# launches is a guess about a machine that you have not met.

# %% [markdown]
# ## All four
#
# Lies do not add up. Behind a host clock, a warm or a cold cache matters little, because nobody waits for the kernel.
# What is read is the host's own time, and that is no fixed number either: compare with the host's clock alone in the
# picture below. All four at once:

# %%
four = {pitfall.setting: pitfall.biased[0] for pitfall in worklog.Harness.fixes() if pitfall.article}
for size in (256, 1024, 4096):
    beside("vectorized", size, **four)

# %%
plots.ablation(ablation, "vectorized")

# %% [markdown]
# ## The panel
#
# Turn the fixes off and on yourself. Without a GPU it answers from a recording of every combination of the fixes, and
# says so where a combination was not recorded. (It is another recording than that of the cells above, so its honest
# reading may differ from theirs by a percent or two.) With a GPU, *measure* takes the numbers here, in a process of its
# own.

# %%
lab.panel("vectorized", 1024, l2="warm", queue=False)

# %% [markdown]
# The same picture, for a page on which no kernel runs:

# %%
lab.panel_static("vectorized", 1024, l2="warm", queue=False)

# %% [markdown]
# ## One rung, every lie
#
# The panel turns several fixes off at once. Here each is turned off alone, for one rung at one size: how far each lie
# moves the number that it is about, beside the noise of the two readings. Move the size and watch which lies grow.

# %%
lab.ablation("warptiled", 1024)

# %% [markdown]
# And again as a picture:

# %%
lab.ablation_static("warptiled", 1024)

# %% [markdown]
# ## Exercises
#
# 1. In the panel, take `naive` at 4096 and turn off every fix of the article but `2 timer`. How much of a lie is
#    left, and why?
# 2. Turn off `4 warmup` only. The reading hardly moves. Which second setting makes the cold start visible?
# 3. Find two lies of which one hides most of what the other does. Would you notice in a report?
#
# <details><summary>Answers</summary>
#
# 1. Next to none. The kernel takes so long that a bubble, a cache and a first launch vanish beside it. Which is why the
#    gremlins live on: they are harmless exactly where people check.
# 2. `statistic = first`, or `mean`: both let the first launch in.
# 3. For `vectorized` at 1024, an empty queue adds the better part of what a warm L2 takes away. The sum looks
#    plausible, and both parts are wrong; at 256 it is much further off.
#
# </details>
#
# **Where next:** [02_the_ruler](02_the_ruler.ipynb), and how it is calibrated on kernels whose length is known.
