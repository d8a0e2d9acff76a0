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
# **Goal:** this page reproduces the four mistakes of most first benchmarks, the article's four gremlins, and fixes each
# of them. You see what each mistake does to the number at three sizes.
#
# **New concepts:** the event pair, the blocking kernel, the L2 flush, the first launch, a biased number next to the
# unbiased one.
#
# The kernels never change in this notebook, only the harness does. Every cell runs with and without a GPU. The label
# says where the numbers come from.

# %%
import numpy as np

import worklog
from worklog import lab, plots
from worklog.harness.sampling import CLOCK_TOLERANCE

ablation = worklog.ablate("vectorized", [256, 1024, 2048, 4096])
ablation.label

# %% [markdown]
# One picture first: the time that we want to measure, and what the four gremlins do to it on this machine.

# %%
plots.DIAGRAMS["diagram_1_mental_model"](ablation)

# %% [markdown]
# One function compares measurements of the same kernel: unbiased, and with one fix switched off.


# %%
def compare(kernel, sizes, **setting):
    """Print both times and their difference at one clock for each size; returns both measurements at the last one."""
    run, other = (worklog.results([kernel], sizes, **how) for how in ({}, setting))
    unbiased, biased = run.measurements, other.measurements
    [(name, value), *more] = setting.items()
    changed = f"{len(setting)} settings" if more else f"{name} = {value}"
    for size, true, read in zip(sizes, unbiased, biased, strict=True):
        off = f"{round(run.difference(true, read).off, 3) + 0.0:+8.1%}"
        print(f"{kernel:>10} at {size}: {true.us:10.1f} µs, with {changed} {read.us:10.1f} µs  {off}")
    return unbiased[-1], biased[-1]


# %% [markdown]
# ## Gremlin 1: the clock drifts
#
# A GPU changes its clock with load, temperature and power, and every time changes with it. The article locks the clock.
# This harness locks it too, if it has the permission (`clocks="locked"`). Without the permission, it watches the clock:
# it reads the SM clock with every sample, compares it with the clock after the warm-up, and takes the sample again if
# they differ by more than the tolerance.

# %%
unbiased, biased = compare("warptiled", [4096], clocks="ignored")
side = unbiased.samples.sides[0]
us, mhz = np.array(side.us), np.array(side.sm_mhz, float)
print(f"SM clock of {len(mhz)} samples: {min(mhz):.0f} to {max(mhz):.0f} MHz, {np.ptp(mhz) / np.median(mhz):.1%} apart")

# %% [markdown]
# The clock of a well cooled GPU without other users hardly drifts, and then this pitfall has no effect. But only
# watching the clock shows that. So here the article's drift is *simulated*: the samples above, as if the clock had
# fallen by 20 % during the measurement.

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
print(f"tolerance of the watched clock: {CLOCK_TOLERANCE:.0%}")
slope = np.polyfit(np.log(mhz), np.log(us), 1)[0]
print(f"the recorded samples: at a clock 1 % lower, the kernel takes {-slope:.1f} % longer")

# %% [markdown]
# If the clock is ignored, the drift is in the number. If it is watched, samples beyond the tolerance do not count and
# are taken again. If most samples are beyond it, as here, the result says that the clock has shifted. The simulation
# assumes that the time is inversely proportional to the clock, so in clock cycles the kernel takes as long as before.
# The last line tests this on the samples themselves. Not all kernels are like that: section 6 of
# [09_harnesses_compared](09_harnesses_compared.ipynb) has others.
#
# Watching the clock within one measurement is not enough: two measurements can run at two steady clocks. **What we
# believed:** in our recording, not watching the clock made `warptiled` at 2048 one percent faster, and we drew that in
# a figure. So did zeros as inputs, one placement and even a gate that was off, which can't all be true.

# %%
settings = {"clocks": "ignored", "inputs": "zeros", "placement": "fixed", "gate": False}
run = worklog.results(["warptiled"], [2048])
[unbiased] = run.measurements
print(f"unbiased: {unbiased.us:.1f} µs at {unbiased.sm_mhz:.0f} MHz")
for name, value in settings.items():
    [other] = worklog.results(["warptiled"], [2048], **{name: value}).measurements
    at_one_clock, read = run.difference(unbiased, other), other.us / unbiased.us - 1
    print(f"{name:9} = {value!s:7} {other.sm_mhz:.0f} MHz, as read {read:+.1%}, at one clock {at_one_clock.off:+.1%}")

# %% [markdown]
# **What came:** the unbiased measurement itself had run at a lower clock than the others. At one clock, nothing is
# left. So every comparison in this project is made at one clock: by the slope of time against clock in the samples,
# with its uncertainty in the interval. The tables show the difference of the clocks in a column of its own, and a
# measurement whose clock is off its run's says so.

# %% [markdown]
# ## Gremlin 2: the launch is asynchronous
#
# A launch puts the kernel into a queue and returns. A host clock around the launch measures the queueing. There are two
# signs of this mistake. The first: the time hardly depends on the size, although the work from the first row to the
# last grows by a factor of 4096. At a small size, the launch can even take longer than the kernel, and the same mistake
# makes the kernel look slow, as cuBLAS in the last line.

# %%
unbiased, biased = compare("warptiled", [256, 1024, 4096], timer="host")
host = np.median(worklog.results(["warptiled"], [256], timer="host").measurements[0].samples.sides[1].us)
events = worklog.results(["cuBLAS"], [256]).measurements[0].us
print(f"    cuBLAS at 256: {events:10.1f} µs, with timer = host {host:10.1f} µs  {host / events - 1:+8.1%}")

# %% [markdown]
# The second sign: the rate at the last size is above the peak of the hardware.

# %%
peak = ablation.gpu.fp32_peak_tflops
print(f"{biased.tflops:.0f} TFLOP/s is {biased.tflops / peak:.1f} times the peak of {peak:.0f} TFLOP/s")

# %% [markdown]
# The fix is a pair of events in the stream of the kernel: the GPU itself records their times. Events have a pitfall
# that the article does not name. If the queue is empty, the GPU records the first event at once and then waits for the
# host to launch the kernel. This launch bubble is a larger share of a shorter kernel. A blocking kernel in front
# removes it: everything is queued before the first event is recorded.

# %%
unbiased, biased = compare("warptiled", [256, 1024, 4096], queue=False)

# %% [markdown]
# ## Gremlin 3: L2 stays warm
#
# A benchmark that launches a kernel repeatedly on the same matrices finds them in L2. A single call does not. The
# harness flushes L2 before each launch, outside the event pair, by writing twice the size of L2.

# %%
unbiased, biased = compare("vectorized", [256, 1024, 2048, 4096], l2="warm")
visible = abs(biased.us / unbiased.us - 1) > 0.01
print(f"at 4096, the article's example, a warm L2 changes the time by {'more' if visible else 'less'} than 1 %")

# %% [markdown]
# The effect depends on the size. The article expects a warm L2 to shorten the time at 4096, too. The picture shows how
# much of the matrices fits into L2 at each size, and the effect beside it. (It states rates: where a time falls by a
# percentage, the rate rises by a larger one.)

# %%
plots.DIAGRAMS["diagram_2_memory_hierarchy"](ablation)

# %% [markdown]
# We believed that the effect ends where the matrices no longer fit. It ends before: at 2048, the matrices fit into the
# 60 MiB of an H200's L2, and this kernel gains nothing. What it gains below is not bandwidth either, but latency: it
# waits for each K tile ([06_roofline](06_roofline.ipynb), section 5, counts the cycles). At 4096 the matrices do not
# fit, and all their bytes from memory take about 1 % of the time. If you test a harness only at 2048 or 4096, you do
# not see that it needs a flush.

# %% [markdown]
# ## Gremlin 4: the cold start
#
# The first launch of a kernel has costs that later ones do not have, such as loading its module. (The kernel is
# compiled and the CUDA context exists by then. If you time a whole program, they are included too.) We believed that
# the clock is still rising then, too. The last line shows whether it was.

# %%
unbiased, biased = compare("warptiled", [1024], warmup="none")
first, middle = (
    biased.samples.sides[0].us[0],
    np.median(biased.samples.sides[0].us) - worklog.open_run().calibration.offset_us,
)
print(f"its first launch: {first:.0f} µs, {first / unbiased.us:.1f} times the unbiased time")
print(f"the median of all {len(biased.samples.sides[0].us)} launches: {middle:.1f} µs, {middle / unbiased.us - 1:+.1%}")
began, *later = biased.samples.sides[0].sm_mhz
print(f"SM clock: {began:.0f} MHz in the first launch, {np.median(later):.0f} MHz in the later ones")

# %% [markdown]
# In the recording, the clock was up: the calibration of the harness ran before. What remains is a cost of 0.1 to 0.3 ms
# per first launch, for a kernel of 35 µs as for one of 4 ms. The recording does not split it up.
#
# The median of many launches ignores the first one, which is one reason to use a median. A mean includes it, and a
# single launch is nothing else. So does the harness's own value in the first line, with a wide interval: it is the mean
# over the placements of the buffers ([02_the_harness](02_the_harness.ipynb), section 7), and the first launch is alone
# in the first placement. The fix is to warm up *until time and clock are steady*. A fixed number of warm-up
# launches may be enough on one machine and too small on the next.

# %% [markdown]
# ## All four
#
# The effects do not add up. The host does not wait for the kernel, so with a host clock the kernel's time is not in the
# number, and neither is what a warm L2 saves of it. The measured time is the host's own, and it differs from one
# measurement to the next: compare with `timer` alone in the picture below. All four at once:

# %%
four = {pitfall.setting: pitfall.biased[0] for pitfall in worklog.settings.PITFALLS if pitfall.article}
unbiased, biased = compare("vectorized", [256, 1024, 4096], **four)

# %%
plots.ablation(ablation, "vectorized")

# %% [markdown]
# ## The panel
#
# Switch the fixes off and on yourself. Without a GPU, the panel shows what was recorded. This is not the recording of
# the cells above, so its unbiased time can differ by 1 or 2 %. Choices that lead to a combination that was not recorded
# are disabled. With a GPU, every choice is open, and the button *measure* measures it in a child process.

# %%
lab.panel("vectorized", 1024, l2="warm", queue=False)

# %% [markdown]
# ## Graded exercise
#
# In the panel, choose `vectorized` at 1024 and switch off `4 warmup` only. The result changes little, although the
# first launch was slow. With which settings does the reading show the cold start? The recorded samples grade the
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
# 2. Find two pitfalls that partly cancel each other. Would you notice it in a report?
#
# <details><summary>Answers</summary>
#
# 1. Almost none. The kernel takes so long that a launch bubble and a first launch are negligible. A warm cache saves
#    this kernel nothing at any size, not even at 256. A harness that is tested with such kernels only does not show its
#    gremlins.
# 2. The panel above and the first figure of the README show a pair. For `vectorized` at 1024, the warm L2 shortens the
#    time and the empty queue lengthens it, so the sum looks plausible although both parts are wrong. The share of
#    cuBLAS is further off than either alone makes it: the launch bubble lengthens cuBLAS more. Try the same pair at
#    256.
#
# </details>
#
# **Where next:** [02_the_harness](02_the_harness.ipynb) explains the harness and how it is calibrated with kernels of
# known length.
