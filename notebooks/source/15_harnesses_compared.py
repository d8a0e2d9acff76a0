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
# **Goal:** this page compares what nine ways to time a kernel measure for the same work. You see why they
# differ, and where our harness is not ahead.

# %%
from worklog import lab, plots
from worklog.runs import CUBLAS
from worklog.runs.comparison import KNOWN, open_comparison

compared = open_comparison()
plots.peers(compared)

# %% [markdown]
# Kernels of known length. A constant error is a horizontal line. A line that rises to the left has a lower limit
# instead: below some length, the harness no longer measures the kernel.
#
# This notebook uses a *recording*, with and without a GPU, because a new comparison needs other packages and some
# minutes. To make your own, run `worklog peers --out mine.json`, and open it with `open_comparison("mine.json")`.
#
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
# ## 2. Why they differ
#
# A host clock around a block of launches, or one event pair around many launches, measures throughput. If the GPU
# finishes before the next launch arrives, this is the throughput of the *launches*:

# %%
errors = compared.errors()
for name in ("torch Timer", "NVBench batch", "NVBench cold"):
    read = [f"{length:g} as {length + error:5.2f}" for length, error in errors[name][:4]]
    print(f"{name:14} measures", ", ".join(read), "µs")

# %% [markdown]
# Is our timer better than the others? Subtract the typical error of each harness, and compare what remains.

# %%
import numpy as np

wrong = {name: np.array([error for _, error in points]) for name, points in errors.items()}
typical = {name: np.median(values) for name, values in wrong.items()}
left = {name: np.abs(values - typical[name]).max() for name, values in wrong.items()}
title = f"Without its typical error, NVBench cold is within {left['NVBench cold']:.2f} µs"
columns = {
    "typical error, µs": {name: abs(us) for name, us in typical.items()},
    "what remains at most, µs": left,
}
plots.bars(title, columns, compared.label, accented=["worklog", "NVBench cold"], written="{:.2f}")

# %% [markdown]
# The timer is not the difference. NVBench cold would have smaller errors than ours if it were calibrated: 0.04 µs at
# most, and not 0.10. The difference is the kernel of known length at the start of each run. (Our harness is calibrated
# and compared with the same kind of kernel, in different measurements.) It promises an error of at most 0.1 µs or 0.2
# %. Does it keep the promise?

# %%
kept = [abs(error) <= max(0.1, 0.002 * length) for length, error in errors["worklog"]]
print(f"kept at {sum(kept)} of {len(kept)} lengths")

# %% [markdown]
# ## 3. cuBLAS: the true time is unknown

# %%
sizes, warm = (
    compared.works(CUBLAS),
    {"NVBench batch", "do_bench_cudagraph", "torch Timer", "CuPy benchmark"},
)
columns = {f"N = {size:g}": compared.us(CUBLAS, size) for size in sizes}
how = {"subtitle": "Blue: harnesses with a cold L2. Grey: with a warm one.", "written": "{:#.4g}"}
how["accented"] = [name for name in compared.harnesses if name not in warm]
plots.bars("cuBLAS as each harness measures it, µs", columns, compared.label, **how)

# %% [markdown]
# The smaller the size, the more the harnesses differ. In the middle there are two groups, which measure different
# things: with a warm and with a cold L2. At 1024, beside our harness with a warm L2:

# %%
import worklog

at = compared.us(CUBLAS, 1024)
for group, which in (
    ("warm, launched back to back", warm - {"CuPy benchmark"}),
    ("cold", at.keys() - warm),
):
    times = [at[name] for name in which]
    print(f"{group:28} {min(times):.1f} to {max(times):.1f} µs")
m = worklog.results(["vectorized"], [1024], l2="warm").measurements[0]
print(f"worklog with l2 = warm       {m.us * m.ratio:.1f} µs   {m.label}")

# %% [markdown]
# Both are right. A layer that runs once per step finds its weights in memory. A loop over one small product finds them
# in the cache. But a warm time must not be compared with a cold one. (At 2048 both groups read the same, although the
# matrices fit into L2: [07_roofline](07_roofline.ipynb), section 4.) CuPy's benchmark has a warm L2, but no blocking
# kernel, so the launch bubble lengthens its times, and it keeps the event overhead: 13 to 17 µs more than
# `do_bench_cudagraph` at every size.
#
# ## 4. Seconds per measurement

# %%
columns = {f"N = {size:g}": compared.wall_s(CUBLAS, size) for size in sizes}
plots.bars(
    "Seconds that each harness takes for cuBLAS",
    columns,
    compared.label,
    **how | {"written": "{:.2f}"},
)

# %% [markdown]
# NVBench spends at least 0.5 s of GPU time on each measurement. Our harness stops when the median is known to ±0.5 %.
# In this recording it left the buffers in one place. Now it moves them ([12_the_harness](12_the_harness.ipynb), lesson
# 3), and needs more samples, the more a time varies between launches and places. In a newer recording, on another GPU:

# %%
newer = open_comparison(part="intervals")
print(newer.label)
for point in newer.document["promises"]["coverage"]:
    print(f"{point['work']} at {point['of']}: {point['wall_s']:.2f} s")

# %% [markdown]
# For cuBLAS at 256, harnesses with a fixed number of launches or a fixed time are quicker, and don't check how well their
# number is known. For a quick look, that may be enough.
#
# ## 5. The same kernel twice
#
# An interval must be tested: measure one kernel repeatedly, and count how often the interval contains the true value.

# %%
same = compared.document["promises"]["aa"]
low, middle, high = (
    np.array(same["intervals_us"]).reshape(-1, 3).T - compared.document["calibration"]["offset_us"]
)
common = np.median(middle)
held, half = (low <= common) & (common <= high), (high - low) / 2 / middle
print(f"{compared.label} · placement {compared.document['harness'].get('placement', 'fixed')}")
print(
    f"{same['work']} at {same['of']}: the intervals of {same['agree']} of {same['pairs']} pairs overlap"
)
print(f"{held.mean():.0%} of the intervals contain the common median")
print(
    f"their half-width is {half.mean():.2%}, the measurements scatter by {middle.std() / common:.2%}"
)

# %% [markdown]
# 95 % should contain it. The newer recording of section 4 measured five kernels 16 times in each of 25 processes. The
# interval of the difference of two measurements contains 0 in 93.0 to 98.5 % of the pairs in one process, and in 93.8
# to 97.9 % of the pairs across processes; 95 to 96.5 % are expected, since the width of an interval comes from 9
# placements. An effect that is constant within one measurement and changes between measurements widens the scatter, and
# the samples can't show it. Three such effects are known:
#
# - The placement of the buffers ([12_the_harness](12_the_harness.ipynb), lesson 3). Our harness varies it, so the
#   interval contains it.
# - The SM clock. It differs by a few tenths of a percent between measurements, even if it is steady in each. So the
#   pairs are compared at one clock. At a clock 1 % lower, a kernel takes from 0.1 % (cuBLAS at 256) to 1.0 % (cuBLAS at
#   2048) longer, which is fitted to the same measurements.
# - The process. The event overhead differs between processes, and where one call launches several kernels, as cuBLAS at
#   256, the gaps between them do, too. Our harness adds to the interval what the processes of the newer recording
#   showed at 256, so the pairs at 256 show how well that fits, and are not an independent test.
#
# ## 6. Where our harness is not ahead

# %%
longest = max(compared.works(KNOWN))
off = max(abs(us / longest - 1) for us in compared.us(KNOWN, longest).values())
print(f"every harness here measures {longest:g} µs within {off:.1%}")
for point in compared.document["promises"]["beside_cupti"]:
    events, tracer = point["events_us"], point["tracer_us"]
    print(f"cuBLAS at {point['of']}, alternating: events {events:.2f} µs, tracer {tracer:.2f} µs")
for gate in (True, False):
    m = worklog.results(["warptiled"], [256], gate=gate).measurements[0]
    print(
        f"at 256, gate {gate!s:5}: warptiled {m.us:.2f} µs, cuBLAS beside it {m.us * m.ratio:.2f} µs"
    )

# %% [markdown]
# - For long kernels, all harnesses give nearly the same time, and one with a fixed number of launches can be quicker
#   where the launches are short.
# - Our events and our tracer differ too, and neither is the true time. A tracer starts when the GPU starts the kernel,
#   an event when the command before the kernel is done. That alone would make the events' times the longer ones. With
#   the event overhead removed, most of them are shorter.
# - No harness on this page checks the output of a launch. A run of worklog does, for every timed launch. The new inputs
#   and the check run between the launches, and lengthen cuBLAS at 256 by more than half a microsecond. The rungs in the
#   same loop don't take longer, so this moves their share of cuBLAS. We believed that the check pushes a kernel's code
#   out of the instruction caches, as cuBLAS does with a rung's ([12_the_harness](12_the_harness.ipynb), lesson 3). No
#   measurement tests that for cuBLAS. Compare short kernels by the same gate.
# - This page compares errors and seconds only. NVBench's axes and its comparison tool, FlashInfer's choice of back ends
#   and Nsight's counters are good reasons to use these tools.

# %% [markdown]
# ## Graded exercise
#
# One kernel takes 1 µs and another one 2 µs, so the second takes twice as long. Which speedup do the readings of
# `do_bench` give? `compared.us(KNOWN, 1)` has the readings of the kernel of 1 µs by harness. The recording grades the
# answer.

# %%
answer = None  # times as fast
lab.check_answer("15", answer)

# %% tags=["solution"]
answer = compared.us(KNOWN, 2)["do_bench"] / compared.us(KNOWN, 1)["do_bench"]
lab.check_answer("15", answer)

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
# **Where next:** [16_time_anything](16_time_anything.ipynb) times functions that are no matrix product; `worklog peers`
# in a terminal makes a comparison of your own.
