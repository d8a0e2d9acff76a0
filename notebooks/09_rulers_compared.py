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
# # Rulers compared
#
# **Goal:** see what the harnesses that people use read on the same work, why they differ, and where ours is not ahead.
#
# **New concepts:** a constant that nobody takes off, throughput taken for a time, warm and cold readers, coverage.
#
# This notebook is about a *recording*, with and without a GPU: it takes foreign packages and some minutes to make one.
# On a GPU, `pip install 'gemm-worklog[peers]'` and then `worklog peers --out mine.json` make yours, and
# `open_comparison("mine.json")` opens it instead.

# %%
import numpy as np

import worklog
from worklog import plots
from worklog.runs.comparison import CUBLAS, KNOWN, open_comparison

rulers = open_comparison()
rulers.label

# %% [markdown]
# ## 1. Who is here
#
# | ruler | one number is … | L2 |
# |---|---|---|
# | worklog | the median of event pairs behind a blocking kernel, calibrated offset off | cold |
# | worklog, offset kept | the same readings as the events gave them | cold |
# | worklog, CUPTI | the median of what the GPU's own tracer saw | cold |
# | NVBench cold | the mean of event pairs behind a blocking kernel | cold |
# | NVBench batch | one event pair around many launches, divided by their number | warm |
# | `do_bench` (Triton) | the median of event pairs, all queued behind flushes | cold |
# | `do_bench_cudagraph` | the median of replays of a graph of launches, divided by their number | warm |
# | `torch.utils.benchmark.Timer` | a host clock around a block of launches, divided by their number | warm |
# | `cupyx.profiler.benchmark` | the median of event pairs, launch by launch | warm |
#
# Each is used as its documentation says, in one process, on the same kernels. (By default `do_bench` gives the mean; it
# was asked for its median.)
#
# ## 2. Kernels of known length

# %%
plots.peers(rulers)

# %% [markdown]
# A ruler that is wrong by a constant draws a level line. Those that climb to the left have a floor instead: below some
# length they do not measure the kernel any more.

# %%
errors = rulers.errors()
for name, points in errors.items():
    (shortest, first), worst = points[0], max(abs(error) for _, error in points)
    print(f"{name:22} worst {worst:5.2f} µs, at {shortest:g} µs {first / shortest:+5.0%}")

# %% [markdown]
# Where does the floor come from? A host clock around a block, or one event pair around many launches, measures
# throughput. If the GPU is done before the next launch arrives, that is the throughput of the *launcher*.

# %%
for name in ("torch Timer", "NVBench batch", "NVBench cold"):
    reads = [f"{length:g} as {length + error:5.2f}" for length, error in errors[name][:4]]
    print(f"{name:14} reads", ", ".join(reads), "µs")

# %% [markdown]
# ## 3. A constant that nobody takes off
#
# Is our timer better than the others? Take from each ruler its own typical error, and look at what is left.

# %%
for name, points in errors.items():
    wrong = np.array([error for _, error in points])
    left = np.abs(wrong - np.median(wrong)).max()
    print(f"{name:22} typical {np.median(wrong):+5.2f} µs, with that off {left:5.2f} µs")

# %% [markdown]
# No: NVBench cold, and the tracer, would be as good as ours or better, if somebody calibrated them. An event pair is a
# fine instrument with a wrong zero. What sets a ruler apart here is not the timer. It is a kernel of known length in
# front of each run. (To be fair, ours was judged by the same kind of kernel that it was calibrated on, in another
# reading.)
#
# And did ours keep its promise, 0.1 µs or 0.2 %?

# %%
for length, error in errors["worklog"]:
    promised = max(0.1, 0.002 * length)
    print(f"{length:5g} µs {error:+.3f}  {'kept' if abs(error) <= promised else 'NOT KEPT'}")

# %% [markdown]
# A NOT KEPT would stand here, and stay. It can happen: the calibration is a median over a fixed, larger number of
# samples, while a single reading stops as soon as ±0.5 % is reached, and may be off by as much.
#
# ## 4. cuBLAS: nobody knows the truth

# %%
sizes = rulers.works(CUBLAS)


def table(column, digits):
    print(f"{'N':22}" + "".join(f"{size:10g}" for size in sizes))
    for name in rulers.rulers:
        cells = [column(CUBLAS, size).get(name, np.nan) for size in sizes]
        print(f"{name:22}" + "".join(f"{cell:10.{digits}f}" for cell in cells))


table(rulers.us, 2)

# %% [markdown]
# For the largest size it hardly matters whom you ask. For the smallest, the answers differ by factors. In between there
# are two camps, and they do not disagree about time but about the question. At 1024:

# %%
warm = {"NVBench batch", "do_bench_cudagraph", "torch Timer", "CuPy benchmark"}
for name, us in sorted(rulers.us(CUBLAS, 1024).items(), key=lambda item: item[1]):
    print(f"{us:7.2f} µs  {'warm' if name in warm else 'cold'}  {name}")

# %% [markdown]
# Launched back to back, cuBLAS finds its matrices in L2. Ask our own ruler the other question and it joins the other
# camp: here cuBLAS as it ran beside a rung, with and without the flush.

# %%
for l2 in ("flush", "warm"):
    run = worklog.results(["vectorized"], [1024], **({} if l2 == "flush" else {"l2": l2}))
    us = np.median(run.measurements[0].samples["baseline_us"]) - run.calibration["offset_us"]
    print(f"l2 = {l2:5}  cuBLAS {us:6.2f} µs   {run.label}")

# %% [markdown]
# Neither camp is wrong. A layer that runs once a step finds its weights in memory, a loop over one small product finds
# them in cache. What is wrong is to compare a number of one camp with a number of the other. CuPy's benchmark is warm
# *and* slow: its launches are not queued, so the bubble hides what the cache gained.
#
# ## 5. Seconds to an answer

# %%
table(rulers.wall_s, 2)
for point in rulers.document["promises"]["wall_s"]:
    ours, theirs = point["worklog_s"], point["nvbench_s"] or np.nan
    short_of_it = ", fewer than the ten that we set out for" if theirs < 10 * ours else ""
    count = 1 + sum(reading["of"] == point["of"] for reading in rulers.document["promises"].get("again", ()))
    print(
        f"{point['of']}: NVBench cold takes {theirs / ours:.1f} times as long as we do{short_of_it} (median of {count})"
    )

# %% [markdown]
# NVBench gives each point half a second of GPU time at least, and short kernels need many launches for that. We stop
# when the median is known to ±0.5 %, and most of what we spend goes into waiting until the clock is steady. That wait
# is longer on one day than on another, so take these factors for their size and not for their digits. And look at the
# first columns: there, others are about as quick. They fix beforehand how many launches or how much time to spend, and
# do not ask how well their number is known; if all you want is a quick look, that is a fair trade.
#
# ## 6. The same kernel twice
#
# Nobody's interval should be believed without a test. Here are pairs of readings of one kernel.

# %%
same = rulers.document["promises"]["aa"]
readings = np.array(same["intervals_us"]).reshape(-1, 3) - rulers.document["calibration"]["offset_us"]
low, middle, high = readings.T
common = np.median(middle)
held, half = (low <= common) & (common <= high), (high - low) / 2 / middle
print(f"{same['work']} at {same['of']}: {same['agree']} of {same['pairs']} pairs meet")
print(f"{held.mean():.0%} of the intervals hold the common median")
print(f"half-widths are {half.mean():.2%}, the readings scatter by {middle.std() / common:.2%}")

# %% [markdown]
# The intervals claim 95 %. Of a hundred, a few more or less than 95 are chance; fewer than about nine in ten are not.
# Then the intervals are too narrow: what stays as it is through one reading and is different in the next widens the
# scatter and no interval, and the recording does not say what it was. So ask for pairs that meet, and take a difference
# of one half-width for no difference. It proves little about other days and other machines: these readings follow each
# other within a minute.
#
# ## 7. Where ours is not ahead
#
# The same recording, asked the other way round:

# %%
longest = max(rulers.works(KNOWN))
off = max(abs(us / longest - 1) for us in rulers.us(KNOWN, longest).values())
print(f"every ruler here reads {longest:g} µs within {off:.1%}")
for size in sizes:
    wall = {name: s for name, s in rulers.wall_s(CUBLAS, size).items() if "worklog, " not in name}
    quicker = [name for name in wall if wall[name] < 0.9 * wall["worklog"]]
    print(f"quicker answers at {size:g}: {', '.join(quicker) or 'nobody'}")
for point in rulers.document["promises"]["beside_cupti"]:
    print(f"cuBLAS at {point['of']}, in turn: events {point['events_us']:.2f} µs, tracer {point['tracer_us']:.2f} µs")
short, short_run = rulers.us(CUBLAS, 256)["worklog"], worklog.results(["cuBLAS"], [256]).measurements[0]
print(f"cuBLAS at 256: {short:.2f} µs in section 4, {short_run.us:.2f} µs in a run with the gate")
here, there = (found["offset_us"] for found in (rulers.document["calibration"], run.calibration))
print(f"the offset is {here:.2f} µs in this comparison, {there:.2f} µs in the run above")

# %% [markdown]
# - On long kernels all this care changes nothing that you would notice.
# - A fixed number of launches can be as quick as an interval, or quicker, where the launches are short.
# - Our events and our tracer are two opinions as well, and neither is the truth: a tracer begins when the GPU does, an
#   event when the command before the kernel is done.
# - The offset is not a constant of nature. It is measured anew for each run, and it has to be: no number typed into a
#   source file would do.
# - No ruler of this page looks at what a launch has computed. A run does, at every launch, and new inputs, a look and a
#   comparison between two launches push the kernel's code out of the instruction caches. A kernel of some microseconds
#   pays for that, the baseline beside it too: compare short kernels within one run, not across.
# - This page measures errors and seconds. NVBench's axes and its comparison tool, FlashInfer's choice of back ends and
#   Nsight's counters are not in it, and are reasons to use them.
#
# ## Exercises
#
# 1. Your kernel takes 40 µs, your colleague's 38 µs. You used `do_bench`, she used `do_bench_cudagraph`. Who is faster?
# 2. A ruler with a constant error of +3 µs compares two kernels of 6 and 5 µs. What speed-up does it report?
# 3. A hundred pairs of 95 % intervals of the same kernel: would you be worried if all of them met? If 90 did?
#
# <details><summary>Answers</summary>
#
# 1. Nobody knows. The one adds an event pair's own length, some three microseconds, and flushes L2; the other does
#    neither. Measure both with the same ruler, in turns.
# 2. 9 / 8, so 12.5 %, where the truth is 20 %. A constant error makes all short kernels look alike, and hides what you
#    have won.
# 3. Not if all meet: two intervals meet far more often than each holds the truth. At 90 yes: either they are too
#    narrow, or the samples within them depend on each other.
#
# </details>
#
# **Where next:** this was the last one. [00_start_here](00_start_here.ipynb) has the whole path again; `worklog peers`
# in a terminal makes a comparison of your own.
