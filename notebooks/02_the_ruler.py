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
# # The ruler
#
# **Goal:** know what the harness does around one launch, why it stops when it does, and how you can tell that it is
# right.
#
# **New concepts:** a kernel of known length, the offset, one sample call by call, an interval without a bell curve, a
# stopping rule, the paired ratio, and the gremlins that the article does not name.
#
# Every cell runs with and without a GPU; the label says where its numbers are from.

# %%
import numpy as np

import worklog
from worklog import plots
from worklog.runs.statistics import median, paired_ratio, summarise

run = worklog.results(["cuBLAS"], [512])
run.label

# %% [markdown]
# ## 1. A kernel whose length is known
#
# Who says that a ruler is right? Not another ruler. A kernel that spins until the GPU's own timer has advanced by a
# given time has a length that is known before it is measured. So the ruler starts every run by measuring such kernels,
# and this is its certificate.

# %%
plots.Certificate(run)

# %%
plots.calibration(run)

# %% [markdown]
# An event pair reads too long by a time that is the same at every length: stamping an event takes time too. What is
# constant can be taken off, and the chart shows what is left. Three more proofs stand under it: how fine the events
# tick, how far a kernel differs from itself, and that the flush really empties L2 (a read takes longer after it, and
# none is as quick as before).
#
# The article says of an event pair that it "brackets exactly the kernel's execution", but for a resolution of roughly
# half a microsecond. Here it is the other way round: the events tick much finer than that, and the bracket is too wide.
# On long kernels nobody notices. What it does to short ones:

# %%
offset = run.calibration["offset_us"]
for length in (1, 10, 100, 1000):
    read = length + offset
    print(f"{length:4} µs are read as {read:7.2f} µs: {read / length - 1:+8.2%}")

# %% [markdown]
# ## 2. One sample, call by call
#
# This is the real loop of the harness. Only the GPU is replaced: by one that does nothing but write down what it is
# asked to do.

# %%
from functools import partial

from worklog.harness.batches import take_batch
from worklog.harness.launchers import Witnessed


class Logbook:
    def __init__(self):
        self.lines = []

    def write(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def __getattr__(self, name):
        return lambda *slots: self.write(name, *slots) or 0.0


# %% [markdown]
# One pair of samples, kernel and cuBLAS. The gate looks at every timed launch, so each brings what goes around it:

# %%
gpu = Logbook()


def looked_at(name):
    """A launch with new inputs before it, a look at its output behind it, and what that is held against."""
    return Witnessed(
        *(partial(gpu.write, "   ", what) for what in (name, "new A and B", "look at C", "check the look"))
    )


take_batch(gpu, [looked_at("the kernel"), looked_at("cuBLAS")], 1, worklog.Harness())
print(*gpu.lines, sep="\n")

# %% [markdown]
# Read it from the top.
#
# - `draw_place`: launches are described to the GPU in a ring of a few places, and a short kernel takes longer from some
#   than from others. This loop is so regular that one kernel would get the good places for ever. So chance moves on.
# - `lift_marks`: a kernel may mark lines to stay in L2, and those outlive a flush; so the marks are lifted first.
# - `hold` puts a blocking kernel in front, so that everything up to `release` is queued before any of it runs: no
#   bubble.
# - Two clock stamps give the sample's SM clock. The flush writes over twice the L2.
# - Between two events stands the launch and nothing else: flush, new inputs and the gate's look are *outside*.
# - The host waits, so that nothing is queued behind the sample either: fetching more commands costs the GPU time.
#
# Then cuBLAS the same way, under the same weather. At the end everything is read: why the GPU throttled, if it did;
# each pair of events; the clock between each pair of stamps; and how long the stamps say it took (`stamped_us`), a
# second clock that [04_the_gate](04_the_gate.ipynb) holds against the first.
#
# As a picture, over the samples that this loop gave for one rung:

# %%
plots.DIAGRAMS["diagram_4_full_loop"](worklog.results(["warptiled"], [4096]))

# %% [markdown]
# ## 3. Warm-up and flush are different jobs
#
# The warm-up makes the machine steady, the flush makes every launch start from the same cold memory. Without the flush,
# all samples are wrong alike; without the warm-up, the first ones are. `first` is the first sample.

# %%
ways = {
    "warm-up and flush": {},
    "warm-up, no flush": {"l2": "warm"},
    "flush, no warm-up": {"warmup": "none"},
}
for name, lie in ways.items():
    m = worklog.results(["vectorized"], [1024], **lie).measurements[0]
    first = m.samples["us"][0] - offset
    print(f"{name:18} first {first:7.1f} µs   median {m.us:7.1f} µs")

# %% [markdown]
# How long to warm up? A number of launches is a guess about a machine that you have not met. So the harness takes short
# windows of samples until two in a row agree, in clock and in time, within half a percent or within what so few samples
# can say, and until no ramp is left over the last three. If that never comes, the result says so.

# %% [markdown]
# ## 4. A median, and how well it is known
#
# A small, nervous case: cuBLAS at 512. Its samples, and what is known of their median as they come in:

# %%
plots.samples(run, "cuBLAS", 512)

# %% [markdown]
# Two different things are easily mixed up here. The *noise* is how far single samples scatter. It belongs to the kernel
# and the machine, and does not get smaller however long you measure. The *interval* is how well the median is known. It
# closes as samples come in.
#
# Why the median? Let one sample of all these be interrupted and last a hundred times as long.

# %%
m = run.measurements[0]
us = np.array(m.samples["us"])[np.array(m.samples["counts"], bool)] - offset
bad = np.append(us, 100 * us[0])
for statistic in ("median", "mean", "min", "first"):
    calm, hit = (summarise(list(values), statistic).value for values in (us, bad))
    print(f"{statistic:7} {calm:6.2f} µs, with a bad sample {hit:6.2f} µs  {hit / calm - 1:+6.1%}")

# %% [markdown]
# Minimum and first sample did not move either, for a bad reason: they look at one sample, the luckiest or an arbitrary
# one.
#
# The interval needs no bell curve. Each sample falls below the true median like a coin, so the ranks between which the
# median lies follow from the binomial law alone. The usual interval, mean ± 1.96 σ/√n, needs one. That is worth a test
# on noise as skewed as a GPU's: of many simulated measurements, how many intervals hold what they are meant to hold?

# %%
rng, true_median, true_mean = np.random.default_rng(0), np.exp(0.0), np.exp(0.5)
for n in (24, 100):
    draws = [rng.lognormal(0.0, 1.0, n) for _ in range(1000)]
    ranks = [e.low <= true_median <= e.high for e in map(median, draws)]
    curve = [abs(d.mean() - true_mean) <= 1.96 * d.std(ddof=1) / n**0.5 for d in draws]
    print(f"{n:3} samples: by ranks {np.mean(ranks):.0%}, by σ {np.mean(curve):.0%}, asked for 95%")

# %% [markdown]
# (Simulated here, no GPU involved.) One assumption is left: that samples do not depend on each other. Look at the chart
# again; if the dots come in waves, they do, and the interval may be too narrow. That is why the ruler also measures a
# kernel against itself, and why [09_rulers_compared](09_rulers_compared.ipynb) counts how often two readings of the
# same kernel agree.

# %% [markdown]
# ## 5. When to stop
#
# Let different rules read the samples above in the order in which they came, offset off, and see where each would have
# stopped. The last column is how well the median was known by then.

# %%
from worklog.harness.rules import Evidence, stopping_rule

times = us.tolist()
for word in ("count:10", "tensara", "salykova", "nvbench", "interval"):
    rule = stopping_rule(word, run.harness["precision"], run.harness["least_samples"], size=512)
    asked = ((n, rule.ask(Evidence(times[:n], sum(times[:n])))) for n in range(1, len(times) + 1))
    n = next((n for n, answer in asked if answer is not None), None)
    known = f"stops after {n:4}: ±{median(times[:n]).relative_half_width:.2%}" if n else "goes on"
    print(f"{word:9}", known)

# %% [markdown]
# A fixed count knows nothing about the noise. Tensara's rule gives up after a few samples. salykova's, which the
# article tells of, is a count that follows the size. NVBench's asks for a small *noise*, and half a second of GPU time;
# noise does not shrink, so on a nervous kernel it goes on until a second rule of its own, not replayed here, finds the
# noise at least steady, or the time is up. The interval rule asks the question that you have: is the number known well
# enough? (The harness asks it after each batch, not after each sample, and so may have taken a few more.)

# %% [markdown]
# ## 6. A ratio that survives the weather
#
# Real samples, and a simulated drift: while we measure, the clock sinks until everything takes 10 % longer. What
# happens to the share of cuBLAS, if both take turns, and if one is measured after the other?

# %%
turns = worklog.results(["vectorized"], [1024]).measurements[0]
ours, theirs = (np.array(turns.samples[side]) - offset for side in ("us", "baseline_us"))
n = len(ours)
for name, weather in {"calm": np.ones(2 * n), "drift": np.linspace(1.0, 1.1, 2 * n)}.items():
    turn, first, then = weather[::2], weather[:n], weather[n:]
    paired = paired_ratio(theirs * turn, ours * turn).value
    medians = median(theirs * turn).value / median(ours * turn).value
    apart = median(theirs * then).value / median(ours * first).value
    print(f"{name:6} paired {paired:.2%}, medians {medians:.2%}, one after the other {apart:.2%}")

# %% [markdown]
# In the paired ratio, what drifts, drifts in both, and cancels turn by turn. One after the other, the drift is taken
# for a difference between the kernels.

# %% [markdown]
# ### Where the buffers lie
#
# The time also depends on the addresses of A, B and C. On an H200, the median of cuBLAS at 2048 moves by up to 2.4 %
# when the buffers move by a few hundred bytes, and at 256 by 5 to 7 %, while the interval over launches in one place is
# ±0.02 %. A second measurement, in another place, then falls outside the first one's interval. No other tool names this
# pitfall.
#
# So the harness moves the buffers of both kernels, in step, to a new random place in a large pool of memory every few
# launches (`placement="varied"`). The value is the mean over at least nine placements, and the interval includes what
# varies between them. A measurement shows the two parts: "±0.02 % of launches, ±0.8 % of placement". With
# `placement="fixed"` you get the first part alone.

# %% [markdown]
# ## 7. The gremlins that the article does not name: the time
#
# Here is one rung with one fix switched off at a time. First those that change the time:
#
# - **The launch bubble.** Between two events on an empty stream, the GPU waits for the host.
# - **The event pair has a length.** Section 1; here it is left in.
# - **Easy data.** Zeros draw less power. Where power limits the clock, they are faster; elsewhere you see nothing, and
#   they still hide wrong answers.

# %%
from worklog.runs.ablation import effects, percent

ablation = worklog.ablate("warptiled", [256, 1024, 4096])
found = effects(ablation, "warptiled")


def show(setting):
    cells = [f"{e.shape[0]}: {percent(e):8}" for e in found if e.setting == setting]
    corrupts, title = next((e.corrupts, e.title) for e in found if e.setting == setting)
    print(f"{title:38} {corrupts:11}", *cells)


for setting in ("queue", "offset", "inputs"):
    show(setting)

# %% [markdown]
# The shorter the kernel, the larger the first two. `0` means that the effect is not visible above the noise of both
# readings: a result too, but one about this machine.
#
# ## 8. The gremlins that the article does not name: the comparison
#
# These leave the time alone and corrupt what it is compared with.
#
# - **Drift between two kernels.** Timed one after the other, as in section 6. On a well cooled GPU it may not show.
# - **The wrong baseline.** Ask cuBLAS for FP32 and let it use TF32: tensor cores, with 10 bits of mantissa.
# - **The wrong roof.** A share of the BF16 peak on the datasheet.

# %%
for setting in ("order", "baseline", "roof"):
    show(setting)

# %% [markdown]
# Nobody finds the last two by looking at the samples: every time is right. The harness proves its baseline by the size
# of its error; the next notebook does it by hand.
#
# ## Exercises
#
# 1. The noise of a kernel doubles. About how many more samples does the same interval take?
# 2. `median()` of five samples gives the range of all five as its interval. Why can it not do better?
# 3. In the log of section 2, move `flush_l2` behind the first event. Which number would change, by how much, and which
#    kernels would suffer most?
#
# <details><summary>Answers</summary>
#
# 1. Four times as many: the interval closes with the square root of their number.
# 2. The chance that all five fall on the same side of the median is 2 · (1/2)⁵, 6.25 %. Even the whole range holds the
#    median only in 93.75 % of all cases. From six samples on, it is more than 95 %.
# 3. Every time would grow by the time of the flush, some tens of microseconds on an H200, whatever the kernel: the
#    share of it that is a lie is largest for the shortest kernels. The same arithmetic as for the offset.
#
# </details>
#
# **Where next:** [03_from_milliseconds_to_tflops](03_from_milliseconds_to_tflops.ipynb) turns an honest time into a
# rate and a share, without lying in the conversion.
