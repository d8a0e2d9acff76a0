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
# # From milliseconds to TFLOP/s
#
# **Goal:** this page turns a time into a rate and into two shares, of the hardware's peak and of cuBLAS. You see which
# mistakes in this conversion give a wrong number from a right time.
#
# **New concepts:** work, rate, peak and measured ceiling, datapath, the same harness for both sides.
#
# Every cell runs with and without a GPU. The label says where the numbers come from.

# %%
import numpy as np
import pandas as pd

import worklog
from worklog import plots

run = worklog.results(["tiles_2d", "vectorized", "warptiled", "cuBLAS"], [4096])
run

# %% [markdown]
# ## 1. Count the work
#
# C has M·N elements. Each is a sum of K products: K multiplications and K additions. So the work is 2·M·N·K operations,
# whatever a kernel does. The emulator has executed every rung and counted its multiply-add instructions. Each of them,
# per thread, is two operations.

# %%
from worklog.analysis.memory_counts import memory_counts

counted = memory_counts()
shape = counted.shape
done = pd.Series({name: 2 * rung.thread_fma / shape.flops - 1 for name, rung in counted.rungs.items()})
print(f"{counted.label}, {shape}: 2·M·N·K = {shape.flops:,}")
for more, names in done.groupby(done):
    print(f"{more:+.3%} operations in multiply-adds: {', '.join(names.index)}")

# %% [markdown]
# Some rungs do a few more in the epilogue, one multiply-add for each element of C: 1/K of the work. The usual formula
# does not count it, and neither do we. The rate is the work divided by the time.

# %%
plots.DIAGRAMS["diagram_5_conversion"](run)

# %% [markdown]
# ## 2. Share of which peak?
#
# A rate needs a reference: what can the hardware do? Several numbers are called the peak. (The data sheet's rows are
# NVIDIA's for the H200, also if your GPU is another one.)

# %%
m = next(m for m in run.measurements if m.kernel == "warptiled")
gpu, highest = run.gpu, run.gpu.sm_clock_mhz
roofs = {
    "multiply-adds alone, measured": run.calibration.fp32_tflops,
    "computed, clock of these samples": gpu.fp32_peak_tflops * m.sm_mhz / highest,
    "computed, highest clock": gpu.fp32_peak_tflops,
    "Triton's formula, highest clock": gpu.multiprocessors * 4 * 32 * highest / 1e6,
    "H200 datasheet, FP32": 67,
    "H200 datasheet, TF32": 494.5,
    "H200 datasheet, BF16": 989,
    "H200 datasheet, BF16, sparse": 1979,
}
shares = {name: 100 * m.tflops / roof for name, roof in roofs.items()}
least, most = min(shares.values()), max(shares.values())
title = f"{m.kernel} makes {m.tflops:.1f} TFLOP/s: {least:.1f} % to {most:.0f} % of a peak"
plots.bars(title, {"peak, TFLOP/s": roofs, f"share that {m.kernel} reaches, %": shares}, run.label)

# %% [markdown]
# From the top:
#
# - The *measured ceiling* is the rate of a kernel that only does independent multiply-adds. This GPU reaches it, so it
#   is the reference that we report.
# - The *computed peak* is multiprocessors × lanes × 2 × clock, so it depends on a clock. The GPU runs at the highest
#   clock only while it boosts. The harness reads the clock with every sample, so it knows the peak at that moment.
# - *Triton's formula* is `get_max_simd_tflops` of `triton.testing` (version 3.9). It counts 64 lanes per
#   multiprocessor, but since compute capability 8.6 there are 128. A share above 100 % shows that this peak is wrong.
# - tritonbench calls the *TF32* row "fp32" on an H100. It belongs to another datapath, the tensor cores.
# - The article divides an FP32 rate by the *BF16* peak, which is another datapath too. The sparse peak is twice that,
#   for matrices of which half the elements are zero.

# %% [markdown]
# ## 3. Mistakes in the formula
#
# All rows except the first have a mistake. None of the mistakes changes the time.

# %%
size, ms = m.shape[0], m.us / 1e3
wrong = {
    "2·M·N·K over the time: right": 2 * size**3 / (ms * 1e-3) / 1e12,
    "M·N·K, a multiply-add counted once": size**3 / (ms * 1e-3) / 1e12,
    "milliseconds taken for seconds": 2 * size**3 / ms / 1e12,
    "tera taken for 2^40": 2 * size**3 / (ms * 1e-3) / 2**40,
}
title = f"Four formulas for {ms:.3f} ms: only the first one is right"
plots.bars(title, {"TFLOP/s": wrong}, f"{m.kernel} at {size}, {run.label}", accented=list(wrong)[:1])

# %% [markdown]
# The last mistake is hard to notice: the rate is 9 % too low, and still plausible. GB and GiB differ by 7 %. With
# bytes, there is a second mistake to avoid. The *compulsory* bytes count A and B read once and C written once. A kernel
# moves more bytes, through several levels of memory; [06_roofline](06_roofline.ipynb) counts them.

# %%
moved, seconds = m.problem.compulsory_bytes, m.us / 1e6
gbs, gibs = moved / seconds / 1e9, moved / seconds / 2**30
share = gbs / run.calibration.copy_gbs
print(f"{moved / 1e6:.0f} MB in {ms:.3f} ms: {gbs:.1f} GB/s, or {gibs:.1f} GiB/s")
limit = "limits" if share > 0.5 else "does not limit"
print(f"that is {share:.1%} of the rate of a copy: memory {limit} this kernel")

# %% [markdown]
# ## 4. A number from another machine
#
# The article's example is an FP32 kernel with two-dimensional tiles: 8.6 ms at 4096, 68.7 % of cuBLAS, "about 24 % of
# the roofline" of an H100. Compare its numbers with each other, and with those of this machine:

# %%
article = worklog.Shape.of(4096).flops / 8.6e-3 / 1e12
there = article / 0.687
here = {m.kernel: m.tflops for m in run.measurements}
(ours,) = run.select("tiles_2d")
print(f"8.6 ms are {article:.1f} TFLOP/s, so cuBLAS reached {there:.1f} TFLOP/s there")
print(f"cuBLAS here reaches {here['cuBLAS']:.1f} TFLOP/s: {here['cuBLAS'] / there:.1f} times as much")
print(
    f"{article:.1f} TFLOP/s are {article / 67:.0%} of an H100's peak, 67, and {article / 38.7:.0%} of an A6000's, 38.7"
)
print(f"tiles_2d here: {ours.tflops:.1f} TFLOP/s, {ours.ratio:.1%} of cuBLAS (there: 68.7%)")

# %% [markdown]
# cuBLAS does not reach so low a rate on an H100. The article's eight percentages are those of the table in the README
# of siboehm's SGEMM_CUDA, digit by digit, and that table was measured on an RTX A6000. So the 24 % divide the rate of
# one GPU by the peak of another. Shares of cuBLAS do not carry over either: the same idea reaches another share here.
# State the machine, the size and the harness with every share.

# %% [markdown]
# ## 5. Of cuBLAS, in the same loop
#
# cuBLAS runs in the same harness, alternating with the kernel. There are two ways to compute the share: divide the two
# medians, or divide launch by launch and take the middle of the ratios. We report the second one: it has an interval,
# and drift cancels.

# %%
overhead = run.calibration.offset_us
paired = {r.kernel: 100 * r.ratio for r in run.measurements}
medians = {r.kernel: 100 * (np.median(r.samples.sides[1].us) - overhead) / r.us for r in run.measurements}
half = {r.kernel: 50 * (r.ratio_high - r.ratio_low) for r in run.measurements}
apart = max(abs(medians[name] - share) for name, share in paired.items())
title = f"Paired or of medians, the shares differ by at most {apart:.2f} points"
columns = {"paired, % of cuBLAS": paired, "of medians, %": medians, "half of the paired interval, %": half}
plots.bars(title, columns, run.label, written="{:.2f}")

# %% [markdown]
# If both agree, there was little drift. The row of cuBLAS against itself shows how large a difference must be to count.
#
# Now only one side has a warm L2, as happens if the baseline's number comes from another script. Four shares of cuBLAS
# for one kernel at one size:

# %%
unbiased = worklog.results(["vectorized"], [1024]).measurements[0]
warm = worklog.results(["vectorized"], [1024], l2="warm").measurements[0]
cublas, cublas_warm = (np.median(r.samples.sides[1].us) - overhead for r in (unbiased, warm))
shares = {"both cold, as measured": unbiased.ratio, "both warm, as measured": warm.ratio}
shares |= {"only cuBLAS warm": cublas_warm / unbiased.us, "only the kernel warm": cublas / warm.us}
low, high = (100 * found(shares.values()) for found in (min, max))
title = f"One kernel, {low:.1f} % to {high:.1f} % of cuBLAS"
subtitle = f"{unbiased.kernel} at {unbiased.problem}. Blue: both sides with the same L2. Grey: one side with a warm L2."
percent = {"share of cuBLAS, %": {name: 100 * share for name, share in shares.items()}}
plots.bars(title, percent, unbiased.label, subtitle=subtitle, accented=list(shares)[:2], written="{:.1f}")

# %% [markdown]
# ## 6. The same datapath, checked
#
# If cuBLAS is asked for FP32 and may use TF32, the baseline runs on the tensor cores. Every time is right, and the
# share is meaningless.

# %%
other = worklog.results(["warptiled"], [4096], baseline="tf32").measurements[0]
print(f"warptiled: {m.ratio:.1%} of cuBLAS in FP32, {other.ratio:.1%} of cuBLAS in TF32")
print(f"its time next to each of them: {m.us:.0f} µs and {other.us:.0f} µs")

# %% [markdown]
# The error tells you which datapath ran. FP32 has a mantissa of 23 bits, TF32 of 10 and BF16 of 7. Below are sums of
# K = 4096 random products: once added one after the other in FP32, and once with only the inputs rounded, which is the
# smallest error of such a datapath. The error is the article's: the largest difference, divided by the largest result.

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
# (Computed here with NumPy, no GPU involved.) The article calls an error of about 1e-3 normal for FP32 and passes
# everything below 1e-2. The error of FP32 is hundreds of times smaller, and both tensor-core formats pass. So the gate
# uses a unit of error that fits the problem, and states the precision class:

# %%
stages = {stage.name: stage.detail for stage in m.verdict.stages}
print(stages["precision"])

# %% [markdown]
# ## 7. The complete number
#
# A time with its interval, a rate, the measured ceiling, the baseline in the same loop, the verdict, and the label:

# %%
half = 50 * (m.us_high - m.us_low) / m.us
print(f"{m.kernel} at {m.problem}: {ms:.3f} ms ±{half:.2f} %, {m.tflops:.1f} TFLOP/s,")
print(f"{m.of_ceiling:.1%} of the measured ceiling of {run.calibration.fp32_tflops:.1f} TFLOP/s,")
print(f"{m.ratio:.1%} of FP32 cuBLAS, timed in the same loop; gate: {m.verdict.precision} passed")
print(run.label)

# %% [markdown]
# ## Graded exercise
#
# A kernel multiplies a matrix of 1024 x 512 by one of 512 x 4096 in 150 µs. What is its rate? The harness's own formula
# grades the answer, and recognises the mistakes of section 3.

# %%
from worklog import lab

answer = None  # TFLOP/s
lab.check_answer("03", answer)

# %% tags=["solution"]
answer = 2 * 1024 * 4096 * 512 / 150e-6 / 1e12
lab.check_answer("03", answer)

# %% [markdown]
# ## Exercises
#
# 1. A GPU is throttled to three quarters of its highest clock while a kernel runs at 60 % of the peak at that highest
#    clock. How good is the kernel?
# 2. A report states 104 % of the "FP32 peak". Name three mistakes that can cause this, and one right way to get there.
# 3. The clock drifts. Why is the share of cuBLAS of interleaved pairs still right, and the share of the peak not? When
#    do the two sides of a pair not run at the same clock?
#
# <details><summary>Answers</summary>
#
# 1. It reaches 80 % of the peak at that moment (0.6 / 0.75). Both numbers are right. Only the second describes the
#    code.
# 2. A peak with 64 lanes; a base clock instead of the actual clock; a host clock that times only the launch. A right
#    way: an FP32 matrix product with fewer than 2·M·N·K operations (Strassen's). Then the *work* is a convention, and
#    the report must state it.
# 3. A drift is slower than a pair, so it changes both sides alike, and the ratio stays. The peak is a constant, unless
#    the clock of each sample is known. But each side has a clock of its own. In the recording, `warptiled` and cuBLAS
#    beside it both run at 1973 MHz. `split`, on tensor cores, runs at 1670 MHz, and cuBLAS beside it at 1978 MHz.
#
# </details>
#
# **Where next:** [04_the_gate](04_the_gate.ipynb) shows how a kernel is checked before it is timed: which wrong kernels
# the article's rule passes, and how to find them without a tolerance.
