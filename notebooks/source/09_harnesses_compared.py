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
# # Harnesses compared
#
# **Goal:** this page compares what nine common ways to time a kernel measure for the same work. You see why they
# differ, and where our harness is not ahead.
#
# **New concepts:** an event overhead that is not removed, throughput instead of a time, warm and cold measurements,
# coverage of an interval.
#
# This notebook uses a *recording*, with and without a GPU, because a new comparison needs other packages and some
# minutes. To make your own on a GPU, run `worklog peers --out mine.json`, and open it with
# `open_comparison("mine.json")`. If a package is missing, the comparison gives the command that installs it.

# %%
import numpy as np

import worklog
from worklog import plots
from worklog.runs.comparison import CUBLAS, KNOWN, open_comparison

compared = open_comparison()
compared.label

# %% [markdown]
# ## 1. The harnesses
#
# | harness | one number is … | L2 |
# |---|---|---|
# | worklog | the median of event pairs behind a blocking kernel, without the event overhead | cold |
# | worklog, offset kept | the same, with the event overhead | cold |
# | worklog, CUPTI | the median of the times of the GPU's tracer | cold |
# | NVBench cold | the mean of event pairs behind a blocking kernel | cold |
# | NVBench batch | one event pair around many launches, divided by their number | warm |
# | `do_bench` (Triton) | the median of event pairs, all queued behind flushes | cold |
# | `do_bench_cudagraph` | the median of replays of a graph of launches, divided by their number | warm |
# | `torch.utils.benchmark.Timer` | a host clock around a block of launches, divided by their number | warm |
# | `cupyx.profiler.benchmark` | the median of event pairs, launch by launch | warm |
#
# Each is used as its documentation says, in one process, on the same kernels. (`do_bench` returns the mean by default.
# Here it returns the median.)
#
# ## 2. Kernels of known length

# %%
plots.peers(compared)

# %% [markdown]
# A constant error is a horizontal line. A line that rises to the left has a lower limit instead: below some length, the
# harness no longer measures the kernel.

# %%
errors = compared.errors()
first = {name: points[0] for name, points in errors.items()}
least, most = (pick(first, key=lambda name: abs(first[name][1])) for pick in (min, max))
for name in (least, most):
    print(f"{name} reads the kernel of {first[name][0]:g} µs {first[name][1] / first[name][0]:+.0%} off")

# %% [markdown]
# Where does the lower limit come from? A host clock around a block of launches, or one event pair around many launches,
# measures throughput. If the GPU finishes before the next launch arrives, this is the throughput of the *launches*.

# %%
for name in ("torch Timer", "NVBench batch", "NVBench cold"):
    read = [f"{length:g} as {length + error:5.2f}" for length, error in errors[name][:4]]
    print(f"{name:14} measures", ", ".join(read), "µs")

# %% [markdown]
# ## 3. An event overhead that is not removed
#
# Is our timer better than the others? Subtract the typical error of each harness, and compare what remains.

# %%
wrong = {name: np.array([error for _, error in points]) for name, points in errors.items()}
typical = {name: np.median(each) for name, each in wrong.items()}
left = {name: np.abs(each - typical[name]).max() for name, each in wrong.items()}
title = f"Without its typical error, NVBench cold is within {left['NVBench cold']:.2f} µs"
columns = {"typical error, µs": {name: abs(each) for name, each in typical.items()}, "what remains at most, µs": left}
plots.bars(title, columns, compared.label, accented=["worklog", "NVBench cold"], written="{:.2f}")

# %% [markdown]
# The timer is not the difference. An event pair has a small resolution and a constant overhead, so NVBench cold would
# have errors like ours if it were calibrated. The difference is the kernel of known length at the start of each run.
# (Our harness is calibrated and compared with the same kind of kernel, in different measurements.)
#
# Our harness promises an error of at most 0.1 µs or 0.2 %. Does it keep the promise?

# %%
broken = {length: error for length, error in errors["worklog"] if abs(error) > max(0.1, 0.002 * length)}
print(f"kept at {len(errors['worklog']) - len(broken)} of {len(errors['worklog'])} lengths")
for length, error in broken.items():
    print(f"NOT KEPT at {length:g} µs: {error:+.3f} µs")

# %% [markdown]
# A NOT KEPT is possible: the calibration is a median over a fixed, larger number of samples, and a single measurement
# stops as soon as its interval is ±0.5 %, so it may be wrong by as much.
#
# ## 4. cuBLAS: the true time is unknown

# %%
sizes = compared.works(CUBLAS)
warm = {"NVBench batch", "do_bench_cudagraph", "torch Timer", "CuPy benchmark"}


def by_size(title, column, written="{:#.4g}"):
    """A chart of numbers for cuBLAS: a row for each harness, a column for each size."""
    columns = {f"N = {size:g}": column(CUBLAS, size) for size in sizes}
    cold = [name for name in compared.harnesses if name not in warm]
    subtitle = "Blue: harnesses that measure with a cold L2. Grey: with a warm one."
    return plots.bars(title, columns, compared.label, subtitle=subtitle, accented=cold, written=written)


by_size("cuBLAS as each harness measures it, µs", compared.us)

# %% [markdown]
# The smaller the size, the more the harnesses differ. In the middle there are two groups, which measure different
# things: with a warm and with a cold L2. At 1024:

# %%
at = compared.us(CUBLAS, 1024)
for group, which in (("warm, launched back to back", warm - {"CuPy benchmark"}), ("cold", at.keys() - warm)):
    times = [at[name] for name in which]
    print(f"{group:26} {min(times):.1f} to {max(times):.1f} µs")

# %% [markdown]
# Launched back to back, cuBLAS finds its matrices in L2. Without the flush, our harness measures a warm time too. Here
# is cuBLAS as the baseline of a rung, with and without the flush:

# %%
for l2 in ("flush", "warm"):
    run = worklog.results(["vectorized"], [1024], **({} if l2 == "flush" else {"l2": l2}))
    us = np.median(run.measurements[0].samples.sides[1].us) - run.calibration.offset_us
    print(f"l2 = {l2:5}  cuBLAS {us:6.2f} µs   {run.label}")

# %% [markdown]
# Both are right. A layer that runs once per step finds its weights in memory. A loop over one small product finds them
# in the cache. But a warm time must not be compared with a cold one. (At 2048 both groups read the same, although the
# matrices fit into L2: [06_roofline](06_roofline.ipynb), section 5.) CuPy's benchmark has a warm L2, but no blocking
# kernel, so the launch bubble lengthens its times, and it keeps the event overhead. Both are constants:

# %%
for size in sizes:
    read = compared.us(CUBLAS, size)
    longer = read["CuPy benchmark"] - read["do_bench_cudagraph"]
    print(f"{size:4g}: CuPy benchmark reads {longer:4.1f} µs more than do_bench_cudagraph")

# %% [markdown]
# ## 5. Seconds per measurement

# %%
by_size("Seconds that each harness takes for cuBLAS", compared.wall_s, "{:.2f}")

# %% [markdown]
# NVBench spends at least 0.5 s of GPU time on each measurement, and short kernels need many launches for that. Our
# harness stops when the median is known to ±0.5 %. In this recording it left the buffers in one place. Now it moves
# them ([02_the_harness](02_the_harness.ipynb), section 7), and needs more samples, the more a time varies between
# launches and places. So its bars are too short for the present harness. Here are its seconds per measurement in a
# newer recording, on another GPU:

# %%
newer = open_comparison(part="intervals")
print(newer.label)
repeated = newer.document["promises"]["coverage"]
for point in repeated:
    print(f"{point['work']} at {point['of']}: {point['wall_s']:.2f} s")

# %% [markdown]
# At small sizes, harnesses with a fixed number of launches or a fixed time are quicker, and do not check how well their
# number is known. For a quick look, that may be enough.
#
# ## 6. The same kernel twice
#
# An interval must be tested: measure one kernel repeatedly, and count how often the interval contains the true value.

# %%
same = compared.document["promises"]["aa"]
readings = np.array(same["intervals_us"]).reshape(-1, 3) - compared.document["calibration"]["offset_us"]
low, middle, high = readings.T
common = np.median(middle)
held, half = (low <= common) & (common <= high), (high - low) / 2 / middle
print(f"{compared.label} · placement {compared.document['harness'].get('placement', 'fixed')}")
print(f"{same['work']} at {same['of']}: the intervals of {same['agree']} of {same['pairs']} pairs overlap")
print(f"{held.mean():.0%} of the intervals contain the common median")
print(f"their half-width is {half.mean():.2%}, the measurements scatter by {middle.std() / common:.2%}")

# %% [markdown]
# The newer recording of section 5 measured five kernels 16 times in each of 25 processes. The interval of the
# difference of two measurements contains 0 in 93.0 to 98.5 % of the pairs in one process, and in 93.8 to 97.9 % of the
# pairs across processes. (`tests/record/intervals.py` in the repository makes this recording and counts the pairs.)
#
# 95 % of the intervals should contain the true value, and the interval of the difference of two equal kernels should
# contain 0 in 95 to 96.5 % of the pairs: the width of an interval comes from 9 placements, so it has 8 degrees of
# freedom, and the difference of two has more. A few more or fewer pairs are chance. If there are many fewer, the
# intervals are too narrow: an effect that is constant within one measurement and changes between measurements widens
# the scatter, and the samples can't show it. Three such effects are known:
#
# - The placement of the buffers ([02_the_harness](02_the_harness.ipynb), section 7). Our harness varies it, so the
#   interval contains it.
# - The SM clock. It differs by a few tenths of a percent between measurements, even if it is steady in each. So an
#   interval is valid at the clock beside it, and the pairs are compared at one clock. How much a time depends on the
#   clock is fitted to the same measurements: at a clock 1 % lower, a kernel takes from 0.1 % (cuBLAS at 256) to 1.0 %
#   (cuBLAS at 2048) longer.
# - The process. The event overhead drifts, and differs between processes; where one call launches several kernels, the
#   gaps between them differ, too: at 256, cuBLAS launches two. More samples in one process can't show that, so our
#   harness adds to the interval what the processes of the newer recording showed at 256. So the pairs at 256 show how
#   well that fits, and are not an independent test.
#
# ## 7. Where our harness is not ahead
#
# More numbers from the first recording:

# %%
longest = max(compared.works(KNOWN))
off = max(abs(us / longest - 1) for us in compared.us(KNOWN, longest).values())
print(f"every harness here measures {longest:g} µs within {off:.1%}")
for point in compared.document["promises"]["beside_cupti"]:
    print(
        f"cuBLAS at {point['of']}, alternating: events {point['events_us']:.2f} µs, tracer {point['tracer_us']:.2f} µs"
    )
short, short_run = compared.us(CUBLAS, 256)["worklog"], worklog.results(["cuBLAS"], [256]).measurements[0]
print(f"cuBLAS at 256: {short:.2f} µs in section 4, {short_run.us:.2f} µs in a run with the gate")
here, there = compared.document["calibration"]["offset_us"], run.calibration.offset_us
print(f"event overhead: {here:.2f} µs in this comparison, {there:.2f} µs in the run above")
for kernel in ("vectorized", "warptiled"):
    for gate in (True, False):
        m = worklog.results([kernel], [256], gate=gate).measurements[0]
        cublas = np.median(m.samples.sides[1].us) - there
        how = "with the gate" if gate else "without it"
        print(f"at 256 {how:13}: {kernel} {m.us:.2f} µs, cuBLAS beside it {cublas:.2f} µs, ratio {m.ratio:.1%}")

# %% [markdown]
# - For long kernels, all harnesses give nearly the same time.
# - A harness with a fixed number of launches can be quicker where the launches are short.
# - Our events and our tracer differ too, and neither is the true time. A tracer starts when the GPU starts the kernel,
#   an event when the command before the kernel is done. That alone would make the events' times the longer ones. With
#   the event overhead removed, most of them are shorter.
# - The event overhead is not a constant of nature. It must be measured for each run, so no number in a source file is
#   right.
# - No harness on this page checks the output of a launch. A run of worklog does, for every timed launch. The new inputs
#   and the check run between the launches, and lengthen cuBLAS at 256 by more than half a microsecond (the last lines).
#   The rungs in the same loop do not take longer, so this moves their share of cuBLAS. We believed that the check
#   pushes a kernel's code out of the instruction caches. No measurement here tests that. Compare short kernels by the
#   same gate.
# - This page compares errors and seconds only. NVBench's axes and its comparison tool, FlashInfer's choice of back ends
#   and Nsight's counters are good reasons to use these tools.

# %% [markdown]
# ## Graded exercise
#
# One kernel takes 1 µs and another one 2 µs, so the second takes twice as long. Which speedup do the readings of
# `do_bench` give? `compared.us(KNOWN, 1)` has the readings of the kernel of 1 µs by harness. The recording grades the
# answer.

# %%
from worklog import lab

answer = None  # times as fast
lab.check_answer("09", answer)

# %% tags=["solution"]
answer = compared.us(KNOWN, 2)["do_bench"] / compared.us(KNOWN, 1)["do_bench"]
lab.check_answer("09", answer)

# %% [markdown]
# ## Exercises
#
# 1. Your kernel takes 40 µs, your colleague's 38 µs. You used `do_bench`, she used `do_bench_cudagraph`. Which kernel
#    is faster?
# 2. A harness with a constant error of +3 µs compares two kernels of 6 and 5 µs. Which speedup does it report?
# 3. You have 100 pairs of 95 % intervals of the same kernel. Is something wrong if all of them overlap? If 90 do?
#
# <details><summary>Answers</summary>
#
# 1. That is unknown. One adds an event overhead of some microseconds and flushes L2, the other does neither. Measure
#    both with the same harness, alternating.
# 2. 9 / 8, which is 12.5 %. The true speedup is 20 %. A constant error makes short kernels look alike.
# 3. No, if all overlap: two intervals overlap far more often than each contains the true value. Yes, at 90: either the
#    intervals are too narrow, or the samples within them are not independent.
#
# </details>
#
# **Where next:** [10_time_anything](10_time_anything.ipynb) times functions that are no matrix product; `worklog peers`
# in a terminal makes a comparison of your own.
