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

# %%
import worklog
from worklog import lab, plots

run = worklog.results(["tiles_2d", "vectorized", "warptiled", "cuBLAS"], [4096])
plots.DIAGRAMS["diagram_5_conversion"](run)

# %% [markdown]
# ## 1. The work over the time
#
# C has M·N elements. Each is a sum of K products: K multiplications and K additions. So the work is 2·M·N·K operations,
# whatever a kernel does. (Some rungs do a multiply-add more per element of C in the epilogue, 1/K of the work.) The
# rate is the work divided by the time. Three of these formulas have a mistake that doesn't change the time:

# %%
m = next(m for m in run.measurements if m.kernel == "warptiled")
size, seconds = m.shape[0], m.us / 1e6
wrong = {
    "2·M·N·K over the time: right": 2 * size**3 / seconds / 1e12,
    "M·N·K, a multiply-add counted once": size**3 / seconds / 1e12,
    "milliseconds taken for seconds": 2 * size**3 / (1e3 * seconds) / 1e12,
    "tera taken for 2^40": 2 * size**3 / seconds / 2**40,
}
title = f"Four formulas for {1e3 * seconds:.3f} ms: only the first one is right"
plots.bars(
    title, {"TFLOP/s": wrong}, f"{m.kernel} at {size}, {run.label}", accented=list(wrong)[:1]
)

# %% [markdown]
# The last mistake is hard to notice: the rate is 9 % too low, and still plausible. GB and GiB differ by 7 %.
#
# ## 2. Share of which peak?
#
# A rate needs a reference: what can the hardware do? Several numbers are called the peak. (The data sheet's rows are
# NVIDIA's for the H200, also if your GPU is another one.)

# %%
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
low, high = min(shares.values()), max(shares.values())
title = f"{m.kernel} makes {m.tflops:.1f} TFLOP/s: {low:.1f} % to {high:.0f} % of a peak"
plots.bars(title, {"peak, TFLOP/s": roofs, f"share that {m.kernel} reaches, %": shares}, run.label)

# %% [markdown]
# - The *measured ceiling*, of a kernel that only does independent multiply-adds, is the reference that we report.
# - The *computed peak* is multiprocessors × lanes × 2 × clock. The harness reads the clock with every sample.
# - *Triton's formula*, `get_max_simd_tflops` of `triton.testing` (version 3.9), counts 64 lanes per multiprocessor, but
#   since compute capability 8.6 there are 128. A share above 100 % shows that this peak is wrong.
# - tritonbench calls the *TF32* row "fp32" on an H100, and the article divides an FP32 rate by the *BF16* peak. Both
#   belong to the tensor cores, another datapath.
#
# ## 3. A number from another machine
#
# The article's example is an FP32 kernel with two-dimensional tiles: 8.6 ms at 4096, 68.7 % of cuBLAS, "about 24 % of
# the roofline" of an H100. Compare its numbers with each other, and with those of this machine:

# %%
article = worklog.Shape.of(4096).flops / 8.6e-3 / 1e12
here = {m.kernel: m for m in run.measurements}
print(
    f"8.6 ms are {article:.1f} TFLOP/s, so cuBLAS reached {article / 0.687:.1f} there; here {here['cuBLAS'].tflops:.1f}"
)
print(
    f"that is {article / 67:.0%} of an H100's peak, 67, and {article / 38.7:.0%} of an A6000's, 38.7"
)
print(
    f"tiles_2d here: {here['tiles_2d'].tflops:.1f} TFLOP/s, {here['tiles_2d'].ratio:.1%} of cuBLAS (there: 68.7%)"
)

# %% [markdown]
# cuBLAS doesn't reach so low a rate on an H100. The article's eight percentages are those of the table in the README
# of siboehm's SGEMM_CUDA, digit by digit, and that table was measured on an RTX A6000. So the 24 % divide the rate of
# one GPU by the peak of another. Shares of cuBLAS don't carry over either. State the machine, the size and the harness
# with every share.
#
# ## 4. Of cuBLAS, in the same loop and on the same datapath
#
# cuBLAS runs in the same harness, alternating with the kernel, and the share is the middle of the ratios launch by
# launch: it has an interval, and drift cancels ([12_the_harness](12_the_harness.ipynb), lesson 2). Now only one side
# has a warm L2, as happens if the baseline's number comes from another script. Four shares of cuBLAS for one kernel at
# one size:

# %%
unbiased, warm = (
    worklog.results(["vectorized"], [1024], **how).measurements[0] for how in ({}, {"l2": "warm"})
)
cublas, cublas_warm = (m.us * m.ratio for m in (unbiased, warm))
shares = {"both cold, as measured": unbiased.ratio, "both warm, as measured": warm.ratio}
shares |= {"only cuBLAS warm": cublas_warm / unbiased.us, "only the kernel warm": cublas / warm.us}
title = f"One kernel, {min(shares.values()):.1%} to {max(shares.values()):.1%} of cuBLAS".replace(
    "%", " %"
)
subtitle = f"{unbiased.kernel} at {unbiased.problem}. Blue: both sides with the same L2. Grey: one side with a warm L2."
percent = {"share of cuBLAS, %": {name: 100 * share for name, share in shares.items()}}
plots.bars(
    title, percent, unbiased.label, subtitle=subtitle, accented=list(shares)[:2], written="{:.1f}"
)

# %% [markdown]
# If cuBLAS is asked for FP32 and may use TF32, the baseline runs on the tensor cores. Every time is right, and the
# share is meaningless. The error tells which datapath ran. Below, it is the largest difference over the largest result,
# for sums of 4096 products in FP32, and with operands rounded to 11 bits (TF32) and 8 (BF16).

# %%
import numpy as np

from worklog.kernel.tensor_products import in_order, rounded

other = worklog.results(["warptiled"], [4096], baseline="tf32").measurements[0]
print(f"warptiled: {m.ratio:.1%} of cuBLAS in FP32, {other.ratio:.1%} of cuBLAS in TF32")
print(f"its time next to each of them: {m.us:.0f} µs and {other.us:.0f} µs")
rng = np.random.default_rng(0)
A, B = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((64, 4096), (4096, 64)))
exact = in_order(A, B, np.float64)
for name, bits in {"FP32": 24, "TF32": 11, "BF16": 8}.items():
    C = in_order(rounded(A, bits), rounded(B, bits))
    print(f"{name} {abs(C - exact).max() / abs(exact).max():.0e}")

# %% [markdown]
# The article calls 1e-3 normal for FP32 and passes everything below 1e-2: it passes both tensor-core formats
# ([14_the_gate](14_the_gate.ipynb)).
#
# ## 5. The complete number
#
# A time with its interval, a rate, the measured ceiling, the baseline in the same loop, the verdict, and the label:

# %%
half = 50 * (m.us_high - m.us_low) / m.us
print(f"{m.kernel} at {m.problem}: {m.us / 1e3:.3f} ms ±{half:.2f} %, {m.tflops:.1f} TFLOP/s,")
print(f"{m.of_ceiling:.1%} of the measured ceiling of {run.calibration.fp32_tflops:.1f} TFLOP/s,")
print(f"{m.ratio:.1%} of FP32 cuBLAS, timed in the same loop; gate: {m.verdict.precision} passed")
print(run.label)

# %% [markdown]
# ## Graded exercise
#
# A kernel multiplies a matrix of 1024 x 512 by one of 512 x 4096 in 150 µs. What is its rate? The harness's own formula
# grades the answer, and recognises the mistakes of section 1.

# %%
answer = None  # TFLOP/s
lab.check_answer("13", answer)

# %% tags=["solution"]
answer = 2 * 1024 * 4096 * 512 / 150e-6 / 1e12
lab.check_answer("13", answer)

# %% [markdown]
# ## Exercises
#
# 1. A GPU is throttled to three quarters of its highest clock while a kernel runs at 60 % of the peak at that highest
#    clock. How good is the kernel?
# 2. A report states 104 % of the "FP32 peak". Name three mistakes that can cause this, and one right way to get there.
#
# <details><summary>Answers</summary>
#
# 1. It reaches 80 % of the peak at that moment (0.6 / 0.75). Both numbers are right. Only the second describes the
#    code.
# 2. A peak with 64 lanes; a base clock instead of the actual clock; a host clock that times only the launch. A right
#    way: an FP32 matrix product with fewer than 2·M·N·K operations (Strassen's). Then the *work* is a convention, and
#    the report must state it.
#
# </details>
#
# **Where next:** [14_the_gate](14_the_gate.ipynb) shows how a kernel is checked before it is timed.
