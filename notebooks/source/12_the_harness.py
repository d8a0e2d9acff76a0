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
# # The harness
#
# **Goal:** this page shows what the harness does around one launch, how well it knows a time, and what no interval over
# launches can see.
#
# Every cell runs with and without a GPU. The label says where the numbers come from.

# %%
import worklog
from worklog import lab, plots

plots.DIAGRAMS["diagram_4_full_loop"](worklog.results(["warptiled"], [4096]))

# %% [markdown]
# ## Lesson 1: what is in a sample
#
# This is the real timed loop of the harness for one sample of a kernel and one of cuBLAS. Only the GPU is replaced, by
# an object that logs each call. The gate checks the output of every timed launch, so each comes with new inputs before
# it and a check after it:

# %%
from functools import partial

from worklog.harness.batches import TimedLaunch, take_batch


class Logbook:
    def __init__(self):
        self.lines, self.watch = [], self  # of the clock

    def write(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def __getattr__(self, name):
        return lambda *slots: self.write(name, *slots) or 0.0


gpu, around = (
    Logbook(),
    {"before": "new A and B", "behind": "project C", "after": "check the projection"},
)
launches = [{"launch": name, **around} for name in ("the kernel", "cuBLAS")]
checked = [
    TimedLaunch(**{when: partial(gpu.write, "   ", step) for when, step in steps.items()})
    for steps in launches
]
take_batch(gpu, checked, 1, worklog.Harness())
second = gpu.lines.index("draw_place", 2)
for line, other in zip(gpu.lines[1:second], gpu.lines[second:], strict=False):
    print(f"{line:28}{other}")

# %% [markdown]
# - `draw_place`: launches are described to the GPU in a ring buffer. A time shouldn't depend on the entry, so the
#   harness enqueues a random number of empty kernels first.
# - `lift_marks`: a kernel may mark L2 lines as persisting. The harness resets them so that the flush evicts them.
# - `hold` enqueues a blocking kernel, so that everything up to `release` is queued before any of it runs. This removes
#   the launch bubble.
# - Two clock stamps give the sample's SM clock. The flush writes twice the size of L2.
# - Between the two events is only the launch.
# - The host waits, so that nothing is queued behind the sample: a GPU fetches its commands a few at a time, and a fetch
#   could fall between the events.
#
# **Are its times right?** You can't check a harness with another harness: both may be wrong. But a kernel that spins
# until the GPU's own timer has advanced by a given time has a known length. The harness measures such kernels at the
# start of every run:

# %%
run = worklog.results(["cuBLAS"], [512])
overhead = run.calibration.offset_us
print(f"resolution {run.calibration.tick_us:.3f} µs, event overhead {overhead:.2f} µs")
print(f"a kernel of 10 µs measures {10 + overhead:.2f} µs: {overhead / 10:+.1%}")
plots.calibration(run)

# %% [markdown]
# Recording an event takes time, a constant. The harness removes this *event overhead*, and the chart shows the error
# that remains. The article says that an event pair "brackets exactly the kernel's execution", with a resolution of
# roughly half a microsecond. The calibration contradicts both.
#
# **Warm-up and flush are different jobs.** Here, all samples are too short without the flush. Without the warm-up, only
# the first one is too long:

# %%
import numpy as np

for how in ({}, {"l2": "warm"}, {"warmup": "none"}):
    m = worklog.results(["vectorized"], [1024], **how).measurements[0]
    us = np.array(m.samples.sides[0].us) - overhead
    print(f"{how or 'unbiased'!s:20} first {us[0]:6.1f} µs   median {np.median(us):6.1f} µs")

# %% [markdown]
# The warm-up takes short windows of samples, and stops when two successive windows agree in clock and time within
# 0.5 %, or within their noise, and the last three show no trend. If that never happens, the result says so.
#
# ## Lesson 2: how well a time is known
#
# A short kernel with much noise, cuBLAS at 512: its samples, and the interval of their median as samples come in.

# %%
plots.samples(run, "cuBLAS", 512)

# %% [markdown]
# The *noise* is the scatter of single samples, a property of the kernel and the machine. More samples don't reduce it.
# The *interval* is the uncertainty of the median. It narrows as samples come in.
#
# **Why the median?** Add one interrupted sample that takes 100 times as long. (The minimum and the first sample don't
# change either: the bad sample is neither of them.)

# %%
from worklog.harness.rules import Evidence, Stopping
from worklog.runs.statistics import estimate_of, median, paired_ratio

m = run.measurements[0]
us, places = np.array(m.samples.counted()) - overhead, m.samples.placements()
for statistic in ("median", "mean", "min", "first"):
    calm, hit = (estimate_of(list(values), statistic).value for values in (us, [*us, 100 * us[0]]))
    print(f"{statistic:7} {calm:6.2f} µs, with a bad sample {hit:6.2f} µs  {hit / calm - 1:+6.1%}")

# %% [markdown]
# **Why ranks?** Each sample is below the true median with probability 1/2, so the binomial distribution gives the ranks
# between which the median lies, without a normal distribution. The usual interval, mean ± 1.96 σ/√n, needs one. We
# believed that a GPU's noise is far from normal; the samples above are nearly symmetric. So here is simulated noise
# that is far more skewed. How many intervals of 1000 measurements contain the true value?

# %%
rng = np.random.default_rng(0)
print(
    f"skewness of the chart {np.mean(((us - us.mean()) / us.std()) ** 3):.1f}, of the simulation 6.2"
)
for n in (24, 100):
    draws = [rng.lognormal(0.0, 1.0, n) for _ in range(1000)]
    ranks = np.mean([e.low <= 1.0 <= e.high for e in map(median, draws)])
    curve = np.mean([abs(d.mean() - np.exp(0.5)) <= 1.96 * d.std(ddof=1) / n**0.5 for d in draws])
    print(f"{n:3} samples: by ranks {ranks:.0%}, by σ {curve:.0%}, nominal 95%")

# %% [markdown]
# **When to stop?** Apply different rules to the samples of the chart, in the order in which they came:

# %%
for name in ("count:10", "tensara", "salykova", "nvbench", "interval"):
    rule = Stopping(name, run.harness["precision"], run.harness["least_samples"], size=512)
    stops = (
        n
        for n in range(1, len(us) + 1)
        if rule.check(Evidence(list(us[:n]), us[:n].sum(), places[:n])) is not None
    )
    n = next(stops, None)
    known = (
        f"stops after {n:4}: ±{median(us[:n], places[:n]).relative_half_width:.2%}"
        if n
        else "goes on"
    )
    print(f"{name:9}", known)

# %% [markdown]
# A fixed count ignores the noise. salykova's rule, which the article describes, is a count that depends on the size.
# NVBench's requires a small *noise* and at least 0.5 s of GPU time, so on a noisy kernel it goes on until a second
# rule, not applied here, finds the noise steady, or the time is up. The interval rule asks what you want to know: is
# the median known well enough?
#
# **A ratio that doesn't drift.** Real samples with a simulated drift: the clock falls until everything takes 10 %
# longer. What happens to the share of cuBLAS?

# %%
turns = worklog.results(["vectorized"], [1024]).measurements[0]
ours, theirs = (np.array(side.us) - overhead for side in turns.samples.sides)
n = len(ours)
for name, slowdown in {"steady": np.ones(2 * n), "drift": np.linspace(1.0, 1.1, 2 * n)}.items():
    paired = paired_ratio(theirs * slowdown[::2], ours * slowdown[::2]).value
    apart = median(theirs * slowdown[n:]).value / median(ours * slowdown[:n]).value
    print(f"{name:6} alternating, paired {paired:.2%}; one after the other {apart:.2%}")

# %% [markdown]
# Ratios are averaged geometrically: 2 and ½ should cancel, but their arithmetic mean is 1.25. In our recordings,
# the arithmetic mean over the placements would make an unbiased share of cuBLAS up to 1.9 % larger, and from 5 µs on up
# to 0.2 %.
#
# ## Lesson 3: what an interval over launches misses
#
# The interval assumes independent samples, and sees only what changes within the measurement. Three effects are
# constant there.
#
# **The place of the buffers.** The time depends on the addresses of A, B and C. No other tool that we know names this
# pitfall, `placement`. So every few launches the harness moves the buffers of both kernels to a random place in a large
# pool. The value is the mean of the medians of at least nine placements. (If most placements have fewer than three
# launches, as for long kernels, it is the median of them.) The interval includes their variation. How large is it?
# Medians of placements also differ by noise, so compare their spread with that of shuffled groups:

# %%
rng = np.random.default_rng(0)
for kernel in ("vectorized", "cuBLAS"):
    m = worklog.results([kernel], [256]).measurements[0]
    us, place = np.array(m.samples.counted()), np.array(m.samples.placements())
    groups = [place, *(rng.permutation(place) for _ in range(1000))]
    medians = [[np.median(us[group == number]) for number in np.unique(group)] for group in groups]
    real, *chance = np.std(medians, axis=1) / m.us
    print(f"{kernel}, {len(us)} samples in {len(set(place))} placements: {real:.2%};", end=" ")
    print(f"shuffled {np.mean(chance):.2%}, and as large in {np.mean(chance >= real):.1%} of draws")

# %% [markdown]
# For `vectorized`, the placement shows. For cuBLAS at 256, we took the distance of its placements for an effect of the
# buffers. Most of it is the noise of its launches: shuffling gives nearly as much.
#
# **The process.** The event overhead, and the gap between two kernels of one launch, differ between processes. The
# harness adds this from a recording ([15_harnesses_compared](15_harnesses_compared.ipynb), section 5). It is a part of
# the interval of each measurement since then; in a ratio, what both kernels share cancels.
#
# **Where the code is.** In one loop, we measured copies of a rung that differ only in a comment. At 256, one copy of
# `best` (5 µs) read up to 1 % faster than another. **What we believed:** the place in the turn decides, by what ran
# just before. Then we swapped the roles. **Predict:** if the role decides, which copy is faster after the swap?

# %%
import json

import pandas as pd

from worklog.runs import recordings

recorded = json.loads(recordings("turns")["h100"].read_text())
roles = pd.DataFrame(recorded["roles"])
pairs = roles.query("size == 256 and subject != 'third' and baseline != 'third'")
faster = pairs.pivot_table("ratio", ["placement", "rung"], "subject").round(4)
print(
    f"recorded · {recorded['device']['name']} · {recorded['created'][:10]}: the baseline's time over the subject's"
)
faster.loc["fixed"]

# %% [markdown]
# **What happened:** the same copy of `best` is slower in both roles. So it isn't the order. It is where the code lies
# in memory, which is decided when it is loaded. So the harness loads short kernels again whenever it moves the buffers:
# the code lies elsewhere in each placement, and the interval includes what that changes. cuBLAS, host functions and
# kernels whose code keeps variables stay where they are.

# %%
varied = roles.query("placement == 'varied'")
held = ((varied["low"] <= 1) & (varied["high"] >= 1)).mean()
print(
    f"1 is in {held:.1%} of the {len(varied)} intervals with moved code, at 256 and 1024, in every role"
)
faster.loc["varied"]

# %% [markdown]
# **What ran before.** Here each launch follows its own code or cuBLAS, at random; µs at 256:

# %%
pd.DataFrame({(row["rung"], row["state"]): row["us"] for row in recorded["after"]}).T.round(2)

# %% [markdown]
# As found, `best` is several percent faster after its own code. With a warm L2 the difference stays, so L2 doesn't
# carry it. If a kernel of 20,000 instructions runs in between, it is gone: the instruction caches carry it. The harness
# launches each rung once before the timed inputs are written, which brings its code back. It can't do that for your
# functions (`worklog.time`), so the launches of a turn are in a balanced order (Williams 1949): each follows each other
# equally often.
#
# ## Every pitfall alone
#
# Each row switches one fix off and shows the effect on the result that the pitfall changes, at one clock. `0` is
# smaller than the noise of both measurements, on this machine. The last rows of the table change no time: they change
# what it is compared with, and you can't find them in the samples. The harness checks the datapath of its baseline by
# the size of its error; the next notebook does the same step by step.

# %%
plots.ablation(worklog.ablate("warptiled", [256, 1024, 4096]), "warptiled", 1024)

# %% [markdown]
# ## Graded exercise
#
# The 95 % interval of a median leaves out samples at both ends of the sorted samples. Of six samples, it is a little
# narrower than their whole range; where 95 % falls between two samples, it is interpolated. What is the smallest number
# of samples at which it begins at the second sample or later? `median()` of the harness grades the answer.

# %%
answer = None  # a number of samples
lab.check_answer("12", answer)

# %% tags=["solution"]
answer = next(n for n in range(6, 100) if 2 * (1 + n) / 2**n < 0.05)
lab.check_answer("12", answer)

# %% [markdown]
# ## Exercises
#
# 1. The noise of a kernel doubles. About how many more samples does the same interval take?
# 2. `median()` of five samples gives the range of all five as its interval. Why can't it be narrower?
# 3. In the log of lesson 1, move `flush_l2` after the first event. Which number changes, by how much, and for which
#    kernels is the relative error largest?
#
# <details><summary>Answers</summary>
#
# 1. Four times as many: the interval narrows with the square root of their number.
# 2. The probability that all five fall on the same side of the median is 2 · (1/2)⁵, 6.25 %. So even the whole range
#    contains the median in 93.75 % of cases only. From six samples on, it is more than 95 %.
# 3. Every time grows by the time of the flush, some tens of microseconds on an H200, for every kernel. The relative
#    error is largest for the shortest kernels, as for the event overhead.
#
# </details>
#
# **Where next:** [13_from_milliseconds_to_tflops](13_from_milliseconds_to_tflops.ipynb) turns a time into a rate and
# into shares of a peak and of cuBLAS.
