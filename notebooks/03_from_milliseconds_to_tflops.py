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
# # From milliseconds to TFLOP/s
#
# **Goal:** turn an honest time into a rate and into two shares, of the hardware and of cuBLAS, without a lie in the
# conversion.
#
# **New concepts:** work, rate, roof, datapath, the same harness for both sides.
#
# Every cell runs with and without a GPU; the label says where its numbers are from.

# %%
import numpy as np

import worklog
from worklog import plots

run = worklog.results(["tiles_2d", "vectorized", "warptiled", "cuBLAS"], [4096])
run

# %% [markdown]
# ## 1. Count the work
#
# C has M·N elements, each a sum of K products: K multiplications and K additions. So 2·M·N·K operations, from the
# definition, whatever a kernel does. The emulator has executed every rung and counted what they really do: each
# multiply-add instruction of a thread is two of these operations.

# %%
from worklog.analysis.traffic import traffic

counted = traffic()
shape = counted.shape
print(f"{counted.label}, {shape}: 2·M·N·K = {shape.flops:,}")
for name, rung in counted.rungs.items():
    done = 2 * rung.thread_fma
    print(f"{name:12} {done:,} operations in multiply-adds: {done / shape.flops - 1:+.3%}")

# %% [markdown]
# The few that some rungs do more are the epilogue, one for each element of C: 1/K of the work. Everybody leaves it out
# of the formula, and so do we. The rate is then one division.

# %%
plots.DIAGRAMS["diagram_5_conversion"](run)

# %% [markdown]
# ## 2. Out of what?
#
# A rate alone is no answer. What could the hardware do? There is more than one number that calls itself a peak. (The
# datasheet's rows are NVIDIA's for the H200, whatever GPU you are on.)

# %%
m = next(m for m in run.measurements if m.kernel == "warptiled")
gpu, highest = run.device, run.device["sm_clock_mhz"]
roofs = {
    "multiply-adds alone, measured": run.calibration["fp32_tflops"],
    "computed, clock of these samples": gpu["fp32_peak_tflops"] * m.sm_mhz / highest,
    "computed, highest clock": gpu["fp32_peak_tflops"],
    "Triton's formula, highest clock": gpu["multiprocessors"] * 4 * 32 * highest / 1e6,
    "H200 datasheet, FP32": 67,
    "H200 datasheet, TF32": 494.5,
    "H200 datasheet, BF16": 989,
    "H200 datasheet, BF16, sparse": 1979,
}
for name, roof in roofs.items():
    print(f"{name:34} {roof:7.1f} TFLOP/s  {m.kernel} is at {m.tflops / roof:6.1%}")

# %% [markdown]
# From the top:
#
# - The *measured* ceiling is a kernel that does nothing but independent multiply-adds. It is what this GPU can really
#   do, so it is the roof that we report.
# - The *computed* peak is multiprocessors × lanes × 2 × clock, and needs a clock. The highest is a bound that the chip
#   reaches only while it boosts; the harness stamps the clock beside every sample, and so knows the peak of that
#   moment.
# - *Triton's formula* is `get_max_simd_tflops` of `triton.testing`, which counts 64 lanes for each multiprocessor (in
#   version 3.9). Since compute capability 8.6 it is 128. You need not know the hardware to see that half a roof is
#   wrong: a share above 100 % is impossible.
# - The *TF32* row is what tritonbench's table of roofs calls "fp32" on an H100. It is another datapath: tensor cores.
# - *BF16* is the cross-datapath sin of the article, and the sparse number is that one doubled for matrices half of
#   which are zeros.

# %% [markdown]
# ## 3. The formula, got wrong
#
# All but the first are slips of a pen. None of them touches the time.

# %%
size, ms = m.shape[0], m.us / 1e3
wrong = {
    "2·M·N·K over the time: right": 2 * size**3 / (ms * 1e-3) / 1e12,
    "M·N·K, a multiply-add counted once": size**3 / (ms * 1e-3) / 1e12,
    "milliseconds taken for seconds": 2 * size**3 / ms / 1e12,
    "tera taken for 2^40": 2 * size**3 / (ms * 1e-3) / 2**40,
}
for name, value in wrong.items():
    print(f"{name:36} {value:8.3f} TFLOP/s  {value / m.tflops:8.3f} of the truth")

# %% [markdown]
# The last one is the quiet one: nine percent, and plausible. With bytes it is the same, GB against GiB, seven percent.
# Bytes have a second trap. These are the *compulsory* bytes, A and B read once and C written once. What really moves is
# more, and which memory it moves through is a question for [06_roofline](06_roofline.ipynb).

# %%
moved, seconds = m.problem.compulsory_bytes, m.us / 1e6
gbs, gibs = moved / seconds / 1e9, moved / seconds / 2**30
share = gbs / run.calibration["copy_gbs"]
print(f"{moved / 1e6:.0f} MB in {ms:.3f} ms: {gbs:.1f} GB/s, or {gibs:.1f} GiB/s")
print(f"that is {share:.1%} of what a copy reaches: not what this kernel waits for")

# %% [markdown]
# ## 4. A number that crossed machines
#
# The article's example is an FP32 kernel with two-dimensional tiles, 8.6 ms at 4096, 68.7 % of cuBLAS, "about 24 % of
# the roofline" of an H100. Check it, with its own numbers and with those of this machine:

# %%
article = worklog.Shape.of(4096).flops / 8.6e-3 / 1e12
there = article / 0.687
here = {m.kernel: m.tflops for m in run.measurements}
(ours,) = run.select("tiles_2d")
print(f"8.6 ms are {article:.1f} TFLOP/s, so its cuBLAS makes {there:.1f}")
print(f"cuBLAS here makes {here['cuBLAS']:.1f}: {here['cuBLAS'] / there:.1f} times as much")
print(f"{article:.1f} are {article / 67:.0%} of an H100's 67, {article / 38.7:.0%} of an A6000's 38.7")
print(f"tiles_2d here: {ours.tflops:.1f}, {ours.ratio:.1%} of cuBLAS, pair by pair")

# %% [markdown]
# A cuBLAS at that rate is no H100's or H200's. It is an RTX A6000's: the article's eight percentages are, digit by
# digit, those of the table in the README of siboehm's SGEMM_CUDA, which was measured on that card. So the 24 % divide
# one card's rate by another card's peak. Shares do not travel either: on this machine the same idea earns another share
# of cuBLAS. A share belongs to a machine, a size and a harness, or it belongs nowhere.

# %% [markdown]
# ## 5. Of cuBLAS, in the same loop
#
# cuBLAS runs through the identical harness, turn about with the kernel. That leaves two ways to a share: divide the two
# medians, or take the median of the ratios of each two turns. The second is what we report: it has an interval, and
# drift cancels in it.

# %%
offset = run.calibration["offset_us"]
for r in run.measurements:
    medians = (np.median(r.samples["baseline_us"]) - offset) / r.us
    half = (r.ratio_high - r.ratio_low) / 2
    print(f"{r.kernel:10} paired {r.ratio:7.2%} ±{half:.2%}   of medians {medians:7.2%}")

# %% [markdown]
# Where both agree, the machine was calm. The row of cuBLAS against itself tells you what a difference is worth.
#
# Now one side gets a warm cache and the other does not, as happens when the baseline's number comes from another
# script. The four shares of cuBLAS that one kernel at one size can be given:

# %%
unbiased = worklog.results(["vectorized"], [1024]).measurements[0]
warm = worklog.results(["vectorized"], [1024], l2="warm").measurements[0]
cublas, cublas_warm = (np.median(r.samples["baseline_us"]) - offset for r in (unbiased, warm))
print(f"{unbiased.kernel} at {unbiased.problem}")
print(f"both cold, as measured: {unbiased.ratio:.1%}")
print(f"both warm, as measured: {warm.ratio:.1%}")
print(f"only cuBLAS warm:       {cublas_warm / unbiased.us:.1%}")
print(f"only the kernel warm:   {cublas / warm.us:.1%}")

# %% [markdown]
# ## 6. The same datapath, proved
#
# Ask cuBLAS for FP32, allow TF32, and the baseline moves to the tensor cores. Every time stays right, and the share
# becomes meaningless.

# %%
other = worklog.results(["warptiled"], [4096], baseline="tf32").measurements[0]
print(f"warptiled of FP32 cuBLAS {m.ratio:.1%}, of TF32 cuBLAS {other.ratio:.1%}")

# %% [markdown]
# How can you know which one you got? By its error. TF32 keeps 10 bits of the mantissa and BF16 7, FP32 has 23. Below,
# sums of K = 4096 random products, once in FP32 one after the other, and once with nothing but the inputs rounded,
# which is the least that such a datapath does to them. The error is the article's: largest difference over largest
# result.

# %%
rng, K = np.random.default_rng(0), 4096
A, B = (rng.uniform(-1, 1, size).astype(np.float32) for size in ((64, K), (K, 64)))


def rounded(x, bits):
    mantissa, exponent = np.frexp(x.astype(float))
    return np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)


exact, fp32 = A.astype(float) @ B.astype(float), np.zeros((64, 64), np.float32)
for k in range(K):
    fp32 += A[:, k, None] * B[k]
tf32, bf16 = (rounded(A, bits) @ rounded(B, bits) for bits in (10, 7))
for name, C in {"FP32": fp32, "TF32": tf32, "BF16": bf16}.items():
    print(f"{name} {abs(C - exact).max() / abs(exact).max():.0e}")

# %% [markdown]
# (Computed here with NumPy, no GPU involved.) The article calls an error of about 1e-3 normal for FP32 and accepts
# everything below 1e-2. FP32 is hundreds of times better than that, and both tensor-core formats pass. So the gate
# measures the error against a scale that fits the problem, and says which class it is:

# %%
stages = {stage["name"]: stage["detail"] for stage in m.verdict["stages"]}
print(stages["precision"])

# %% [markdown]
# ## 7. The number to defend
#
# A time with its interval, a rate, the roof that it is measured against, the baseline and where it ran, and the label.

# %%
half = 50 * (m.us_high - m.us_low) / m.us
print(f"{m.kernel} at {m.problem}: {ms:.3f} ms ±{half:.2f} %, {m.tflops:.1f} TFLOP/s,")
print(f"{m.of_ceiling:.1%} of the measured ceiling of {run.calibration['fp32_tflops']:.1f} TFLOP/s,")
print(f"{m.ratio:.1%} of FP32 cuBLAS, timed in the same loop; gate: {m.verdict['precision']} ok")
print(run.label)

# %% [markdown]
# ## Exercises
#
# 1. A GPU is throttled to three quarters of its highest clock while a kernel runs at 60 % of the peak at that highest
#    clock. How good is the kernel?
# 2. Somebody reports 104 % of "FP32 peak". Name three mistakes that would do it, and one thing that would not be a
#    mistake at all.
# 3. Why does the share of cuBLAS of an interleaved pair stay honest when the clock drifts, while the share of the peak
#    does not?
#
# <details><summary>Answers</summary>
#
# 1. It reaches 80 % of what the machine could do at that moment (0.6 / 0.75). Both numbers are true; only one is about
#    the code.
# 2. A roof of 64 lanes; a base clock instead of the clock that was held; the launch alone timed. And an FP32 matrix
#    product with fewer operations than 2·M·N·K (Strassen's) may honestly be faster than the count allows: then the
#    *count* is a convention, and has to be stated.
# 3. Both sides of the ratio are taken at the same clock, a moment apart. The peak is a constant, unless the clock of
#    each sample is known.
#
# </details>
#
# **Where next:** [04_the_gate](04_the_gate.ipynb) asks whether the kernel may be timed at all: what the article's rule
# lets through, and how a wrong kernel is found without any tolerance.
