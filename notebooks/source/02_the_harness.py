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
# **Goal:** this page shows what the harness does around one launch, why it stops when it does, and how you can check
# that its times are right.
#
# **New concepts:** a kernel of known length, the event overhead, one sample call by call, an interval without a normal
# distribution, a stopping criterion, the paired ratio, and the pitfalls that the article does not name.
#
# Every cell runs with and without a GPU. The label says where the numbers come from.

# %%
import numpy as np

import worklog
from worklog import plots
from worklog.runs.estimates import estimate_of, median, paired_ratio, process_half_us, process_label

run = worklog.results(["cuBLAS"], [512])
run.label

# %% [markdown]
# ## 1. A kernel whose length is known
#
# You cannot check a harness with another harness: both may be wrong. But you can write a kernel that spins until the
# GPU's own timer has advanced by a given time, so its length is known before it is measured. The harness measures such
# kernels at the start of every run. The chart shows the result.

# %%
plots.calibration(run)

# %% [markdown]
# A pair of events measures too long a time, by a constant that does not depend on the length: recording an event takes
# time too. The harness removes this *event overhead*, and the chart shows the error that remains. Below the chart are
# three more checks: the resolution of the events, how much a kernel differs from itself, and whether the flush empties
# L2 (after it, every read takes longer than from a warm L2).
#
# The article says that an event pair "brackets exactly the kernel's execution", with a resolution of roughly half a
# microsecond. The calibration contradicts both:

# %%
overhead = run.calibration.offset_us
print(f"resolution {run.calibration.tick_us:.3f} µs, event overhead {overhead:.2f} µs")
for length in (1, 10, 100, 1000):
    us = length + overhead
    print(f"a kernel of {length:4} µs measures {us:7.2f} µs: {us / length - 1:+8.2%}")

# %% [markdown]
# ## 2. One sample, call by call
#
# This is the real timed loop of the harness. Only the GPU is replaced, by an object that logs each call.

# %%
from functools import partial

from worklog.harness.batches import Timed, take_batch


class Logbook:
    def __init__(self):
        self.lines = []
        self.watch = self  # of the clock

    def write(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def __getattr__(self, name):
        return lambda *slots: self.write(name, *slots) or 0.0


# %% [markdown]
# One sample of the kernel and one of cuBLAS. The gate checks the output of every timed launch, so each launch comes
# with new inputs before it and a check after it:

# %%
gpu = Logbook()


def checked(name):
    """A launch with new inputs before it, a projection of its output after it, and the check of that projection."""
    steps = {"launch": name, "before": "new A and B", "behind": "project C", "after": "check the projection"}
    return Timed(**{when: partial(gpu.write, "   ", step) for when, step in steps.items()})


take_batch(gpu, [checked("the kernel"), checked("cuBLAS")], 1, worklog.Harness())
print(*gpu.lines, sep="\n")

# %% [markdown]
# From the top:
#
# - `draw_place`: launches are described to the GPU in a ring buffer. On the H200 on which the harness was built, a
#   short kernel took longer from some entries than from others (no recording here holds this). This loop is so regular
#   that one kernel would always get the good entries. So the harness enqueues a random number of empty kernels.
# - `lift_marks`: a kernel may mark L2 lines as persisting. The harness resets them so that the flush evicts them.
# - `hold` enqueues a blocking kernel, so that everything up to `release` is queued before any of it runs. This removes
#   the launch bubble.
# - Two clock stamps give the sample's SM clock. The flush writes twice the size of L2.
# - Between the two events is only the launch. The flush, the new inputs and the projection are *outside*.
# - The host waits, so that nothing is queued behind the sample. A GPU fetches its commands a few at a time, and a fetch
#   could fall between the events.
#
# The same follows for cuBLAS, at nearly the same clock and temperature. At the end, the harness reads the reason for
# throttling, if there was any, the pairs of events, and the clock between each pair of stamps.
#
# The same as a picture, with the samples that this loop gave for one rung:

# %%
plots.DIAGRAMS["diagram_4_full_loop"](worklog.results(["warptiled"], [4096]))

# %% [markdown]
# ## 3. Warm-up and flush are different jobs
#
# The warm-up makes clock and temperature steady. The flush makes every launch start with a cold L2. Without the flush,
# all samples are wrong. Without the warm-up, the first ones are. `first` is the first sample.

# %%
ways = {
    "warm-up and flush": {},
    "warm-up, no flush": {"l2": "warm"},
    "flush, no warm-up": {"warmup": "none"},
}
for name, settings in ways.items():
    m = worklog.results(["vectorized"], [1024], **settings).measurements[0]
    us = np.array(m.samples.sides[0].us) - overhead
    print(f"{name:18} first {us[0]:7.1f} µs   median {np.median(us):7.1f} µs")

# %% [markdown]
# How long should a warm-up take? A fixed number of launches may be too small on the next machine. So the harness takes
# short windows of samples, and stops when two successive windows agree in clock and time within 0.5 %, or within their
# noise, and the last three windows show no trend. If that never happens, the result says so.

# %% [markdown]
# ## 4. A median, and how well it is known
#
# A short kernel with much noise: cuBLAS at 512. The chart shows its samples, and the interval of their median as
# samples come in:

# %%
plots.samples(run, "cuBLAS", 512)

# %% [markdown]
# Do not confuse noise and interval. The *noise* is the scatter of single samples. It is a property of the kernel and
# the machine, and more samples do not reduce it. The *interval* is the uncertainty of the median. It narrows as samples
# come in.
#
# Why the median? Add one interrupted sample that takes 100 times as long.

# %%
m = run.measurements[0]
us = np.array(m.samples.sides[0].us)[np.array(m.samples.counts, bool)] - overhead
bad = np.append(us, 100 * us[0])
for statistic in ("median", "mean", "min", "first"):
    calm, hit = (estimate_of(list(values), statistic).value for values in (us, bad))
    print(f"{statistic:7} {calm:6.2f} µs, with a bad sample {hit:6.2f} µs  {hit / calm - 1:+6.1%}")

# %% [markdown]
# The minimum and the first sample did not change either, but only because each of them uses a single sample.
#
# The interval assumes no normal distribution. Each sample is below the true median with probability 1/2, so the
# binomial distribution gives the ranks between which the median lies; where 95 % falls between two ranks, the interval
# is interpolated. The usual interval, mean ± 1.96 σ/√n, assumes a normal distribution. We believed that a GPU's noise
# is far from normal. The samples above are nearly symmetric. So here is a test with noise that is far more skewed: how
# many intervals of 1000 simulated measurements contain the true value?

# %%
skewness = np.mean(((us - us.mean()) / us.std()) ** 3)
print(f"skewness: {skewness:.1f} in the chart, {(np.e + 2) * np.sqrt(np.e - 1):.1f} in the simulation, 0 if normal")
rng, true_median, true_mean = np.random.default_rng(0), np.exp(0.0), np.exp(0.5)
for n in (24, 100):
    draws = [rng.lognormal(0.0, 1.0, n) for _ in range(1000)]
    ranks = [e.low <= true_median <= e.high for e in map(median, draws)]
    curve = [abs(d.mean() - true_mean) <= 1.96 * d.std(ddof=1) / n**0.5 for d in draws]
    print(f"{n:3} samples: by ranks {np.mean(ranks):.0%}, by σ {np.mean(curve):.0%}, nominal 95%")

# %% [markdown]
# (Simulated here, no GPU involved.) One assumption remains: the samples are independent. If the dots in the chart come
# in waves, they are not, and the interval can be too narrow. This is why the harness also measures a kernel against
# itself, and why [09_harnesses_compared](09_harnesses_compared.ipynb) counts how often two measurements of the same
# kernel agree.

# %% [markdown]
# ## 5. When to stop
#
# Apply different stopping criteria to the samples above, in the order in which they came and without the event
# overhead. Where does each one stop? The last column is the interval of the median at that point.

# %%
from worklog.harness.rules import Evidence, Stopping

counts = np.array(m.samples.counts, bool)
times, places = us.tolist(), np.array(m.samples.sides[0].placement or 0 * counts)[counts].tolist()
for name in ("count:10", "tensara", "salykova", "nvbench", "interval"):
    rule = Stopping(name, run.harness["precision"], run.harness["least_samples"], size=512)
    asked = ((n, rule.check(Evidence(times[:n], sum(times[:n]), places[:n]))) for n in range(1, len(times) + 1))
    n = next((n for n, answer in asked if answer is not None), None)
    known = f"stops after {n:4}: ±{median(times[:n], places[:n]).relative_half_width:.2%}" if n else "goes on"
    print(f"{name:9}", known)

# %% [markdown]
# A fixed count ignores the noise. Tensara's rule stops after a few samples. salykova's rule, which the article
# describes, is a count that depends on the size. NVBench's rule requires a small *noise* and at least 0.5 s of GPU
# time. More samples do not reduce noise, so on a kernel with much noise it continues until a second rule, which is not
# applied here, finds the noise steady, or the time is up. The interval rule asks what you want to know: is the median
# known well enough? (The harness asks after each batch, not after each sample, so it may take a few more.)

# %% [markdown]
# ## 6. A ratio that does not drift
#
# Real samples with a simulated drift: during the measurement the clock falls until everything takes 10 % longer. What
# happens to the share of cuBLAS if the two kernels alternate, and if one is measured after the other?

# %%
turns = worklog.results(["vectorized"], [1024]).measurements[0]
ours, theirs = (np.array(side.us) - overhead for side in turns.samples.sides)
n = len(ours)
for name, slowdown in {"steady": np.ones(2 * n), "drift": np.linspace(1.0, 1.1, 2 * n)}.items():
    turn, first, then = slowdown[::2], slowdown[:n], slowdown[n:]
    paired = paired_ratio(theirs * turn, ours * turn).value
    medians = median(theirs * turn).value / median(ours * turn).value
    apart = median(theirs * then).value / median(ours * first).value
    print(f"{name:6} paired {paired:.2%}, medians {medians:.2%}, one after the other {apart:.2%}")

# %% [markdown]
# In the paired ratio, drift affects both kernels and cancels. If they are measured one after the other, drift looks
# like a difference between the kernels.
#
# The mean of many ratios has an error of its own. Here is a simulated kernel against itself, with samples that scatter
# by 9 %. **Predict:** what is the mean of the ratios?

# %%
one, again = np.random.default_rng(1).lognormal(0.0, 0.09, (2, 100_000))
for name, ratios in {"forward": one / again, "backward": again / one}.items():
    print(f"{name:8} mean {np.mean(ratios):.2%}, geometric mean {np.exp(np.mean(np.log(ratios))):.2%}")

# %% [markdown]
# A kernel can't be faster than itself in both directions. A ratio of 2 and a ratio of ½ should cancel, but their mean
# is 1.25. So the harness takes the geometric mean over the placements of the next section. In our recordings, an
# unbiased share of cuBLAS by the arithmetic one would be up to 0.2 % larger.

# %% [markdown]
# ## 7. Where the buffers are
#
# The time also depends on the addresses of A, B and C. The interval over launches in one place does not include that,
# so a second measurement in another place can fall outside it. No other tool that we know names this pitfall,
# `placement`.
#
# So the harness moves the buffers of both kernels together, every few launches, to a new random place in a large memory
# pool (`placement="varied"`). The value is the mean over at least nine placements, and the interval includes the
# variation between them. With `placement="fixed"`, it includes the launches alone.
#
# How large is it? The medians of placements also differ because each has a few noisy launches. So compare their spread
# with the spread of the same samples in shuffled groups, where the placement cannot matter:


# %%
def spread(us, groups):
    """The standard deviation of the medians of groups of samples."""
    return np.std([np.median(us[groups == group]) for group in np.unique(groups)])


rng = np.random.default_rng(0)
for kernel in ("vectorized", "cuBLAS"):
    m = worklog.results([kernel], [256]).measurements[0]
    counts = np.array(m.samples.counts, bool)
    us, place = np.array(m.samples.sides[0].us)[counts], np.array(m.samples.sides[0].placement or 0 * counts)[counts]
    chance = [spread(us, rng.permutation(place)) for _ in range(1000)]
    more = np.mean(np.array(chance) >= spread(us, place))
    print(f"{kernel}, {len(us)} samples in {len(set(place))} placements: {spread(us, place) / m.us:.2%}", end="; ")
    print(f"shuffled {np.mean(chance) / m.us:.2%}, and as large in {more:.1%} of draws")

# %% [markdown]
# For `vectorized`, the placement shows: shuffling does not give its spread. For cuBLAS at 256, we took the distance of
# its placements for an effect of the buffers. Most of it is the noise of its launches: shuffling gives nearly as much.
#
# A third part can't be seen within one process: the event overhead, and the gap between two kernels of one launch,
# differ between processes. For long launches that is negligible. The harness adds it from a recording
# ([09_harnesses_compared](09_harnesses_compared.ipynb), section 6), and a measurement shows all parts of its interval:
# of launches, of placement and of process. (Older runs lack the last one.) In a ratio, what both kernels share cancels.
# cuBLAS at 256:

# %%
included = "with" if m.time.process else "without"
print(f"{m.us:.2f} µs, interval {m.us_low:.2f} to {m.us_high:.2f} µs, {included} the part of process")
for kernels in (1, 2):
    half = process_half_us(kernels)
    print(f"of {process_label(kernels)}: ±{half:.2f} µs, {half / m.us:.1%} of it")

# %% [markdown]
# ### Where the code is, and what ran before
#
# In one loop with cuBLAS, we measured copies of a rung that differ only in a comment. They should read the same. At
# 256, one copy of `best` (5 µs) read up to 1 % faster than another. **What we believed:** the place in the turn
# decides, by what ran just before. Then we swapped the roles: the subject became the baseline.
#
# **Predict:** if the role decides, which copy is faster after the swap? And if the copy decides?

# %%
import json

from worklog.runs import recordings

name, path = next(iter(recordings("turns").items()))
recorded = json.loads(path.read_text())
print(f"recorded · {recorded['device']['name']} · {recorded['created'][:10]}")


def ratios(rung, placement, subject, baseline, size=256):
    """In the recording: by how much the subject is faster than the baseline, its copy."""
    keys = {"rung": rung, "placement": placement, "subject": subject, "baseline": baseline, "size": size}
    return [row["ratio"] for row in recorded["roles"] if keys.items() <= row.items()]


def roles(placement):
    print(f"\nplacement {placement:6}  first against second   second against first")
    for rung in ("best", "shared", "warptiled"):
        pair = [ratios(rung, placement, *names) for names in (("first", "second"), ("second", "first"))]
        print(f"{rung:17}  {np.mean(pair[0]):12.4f} {np.mean(pair[1]):22.4f}")


roles("fixed")

# %% [markdown]
# **What came:** the same copy of `best` is slower in both roles. So it isn't the order. It is where the code lies in
# memory, which is decided when it is loaded. That effect is constant within a process, and an interval over launches
# can't see it. So the harness loads short kernels again whenever it moves the buffers: the code lies elsewhere in each
# placement, and the interval includes what that changes. cuBLAS, host functions and kernels whose code keeps variables
# stay where they are.

# %%
roles("varied")
rows = [row for row in recorded["roles"] if row["placement"] == "varied"]
held = np.mean([row["low"] <= 1 <= row["high"] for row in rows])
print(f"\n1 is in {held:.1%} of the {len(rows)} intervals, at 256 and 1024, in every role")

# %% [markdown]
# Does what ran before matter at all? Here each launch follows its own code or cuBLAS, at random:

# %%
print(f"{'µs at 256':12}" + "".join(f"{row['state']:>24}" for row in recorded["after"][:4]))
for rung in ("best", "shared", "warptiled"):
    states = [row["us"] for row in recorded["after"] if row["rung"] == rung]
    cells = [f"{us['its own code']:.2f}, after cuBLAS {us['cuBLAS']:.2f}" for us in states]
    print(f"{rung:12}" + "".join(f"{cell:>24}" for cell in cells))

# %% [markdown]
# As found, `best` is several percent faster after its own code. With a warm L2 the difference stays, so L2 doesn't
# carry it. If a kernel of 20,000 instructions runs in between, it is gone: the instruction caches carry it. The harness
# launches each rung once before the timed inputs are written, which brings its code back; then what ran before makes
# no difference. It can't do that for your functions (`worklog.time`). So the launches of a turn are in a balanced order
# (Williams 1949): each follows each other one equally often. `turns="fixed"` leaves that out.
#
# ## 8. Pitfalls that the article does not name: the time
#
# Here one rung is measured with one fix switched off at a time. First the pitfalls that change the time:
#
# - **The launch bubble.** Between two events on an empty stream, the GPU waits for the host.
# - **The event pair has a length.** This is the event overhead of section 1; here it is not removed.
# - **One place.** The buffers stay where they are, as in section 7.
# - **Easy data.** Zeros draw less power (not measured in this recording). If power limits the clock, zeros are faster.
#   Otherwise the time does not change, and zeros still hide wrong results.

# %%
from worklog.runs.ablation import effect_in_words, effects

ablation = worklog.ablate("warptiled", [256, 1024, 4096])
found = effects(ablation, "warptiled")


def show(*settings):
    for pitfall in (p for p in worklog.settings.PITFALLS if p.setting in settings):
        cells = [f"{e.shape[0]}: {effect_in_words(e):8}" for e in found if e.setting == pitfall.setting]
        print(f"{pitfall.title:38} {pitfall.corrupts:11}", *(cells or ["not in this run"]))


show("queue", "offset", "placement", "inputs")

# %% [markdown]
# The first two are larger for shorter kernels. `0` means that the effect, at one clock, is smaller than the noise of
# both measurements. That holds for this machine only.
#
# ## 9. Pitfalls that the article does not name: the comparison
#
# These pitfalls do not change the time of the kernel. They change what it is compared with.
#
# - **Drift between two kernels.** They are timed one after the other, as in section 6. On a well cooled GPU the effect
#   may not show.
# - **What ran before.** All turns have one order, as in section 7. For a rung, whose code is brought back, no effect is
#   expected.
# - **The wrong baseline.** cuBLAS is asked for FP32 and may use TF32: tensor cores, with a mantissa of 10 bits.
# - **The wrong peak.** The share of the BF16 peak on the data sheet.

# %%
show("order", "turns", "baseline", "roof")

# %% [markdown]
# You cannot find the last two in the samples, because every time is right. The harness checks the datapath of its
# baseline by the size of its error. The next notebook does the same step by step.
#
# ## 10. Every pitfall alone
#
# Each row shows the effect on the result that the pitfall changes, by size. Change the rung, and see which effects
# grow.

# %%
from worklog import lab
from worklog.runs.ablation import effects_text

print(effects_text(ablation, "warptiled"))

# %%
plots.ablation(ablation, "warptiled", 1024)

# %% [markdown]
# ## Graded exercise
#
# The 95 % interval of a median leaves out samples at both ends of the sorted samples. Of six samples, it is a little
# narrower than their whole range; where 95 % falls between two samples, it is interpolated. What is the smallest number
# of samples at which it begins at the second sample or later? `median()` of the harness grades the answer.

# %%
answer = None  # a number of samples
lab.check_answer("02", answer)

# %% tags=["solution"]
answer = next(n for n in range(6, 100) if 2 * (1 + n) / 2**n < 0.05)
lab.check_answer("02", answer)

# %% [markdown]
# ## Exercises
#
# 1. The noise of a kernel doubles. About how many more samples does the same interval take?
# 2. `median()` of five samples gives the range of all five as its interval. Why can't it be narrower?
# 3. In the log of section 2, move `flush_l2` after the first event. Which number changes, by how much, and for which
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
# **Where next:** [03_from_milliseconds_to_tflops](03_from_milliseconds_to_tflops.ipynb) turns a time into a rate and
# into shares of a peak and of cuBLAS.
