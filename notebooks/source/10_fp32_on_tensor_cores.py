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
# # FP32 on tensor cores
#
# A tensor core multiplies numbers of 11 bits, and FP32 has 24. We build FP32's result from such products anyway, in six
# rungs, and end at four times cuBLAS in turns with it, and 3.6 times in a row. Three of the six steps make the kernel
# slower. Bet on each of them, in speed and in precision.

# %%
import worklog
from worklog import lab, plots

SECOND = ("tf32", "tf32x3", "fp16x3", "promoted", "wgmma", "split")
run = worklog.results([*SECOND, "best", "cuBLAS"], 4096)
plots.accuracy(worklog.results(["best", "cuBLAS"], 4096), 4096)

# %% [markdown]
# This is where we start: up is faster, and left is more precise, by the largest error that the gate found in each
# kernel. At the end of the page, this picture has six points more.
#
# **New concepts:** TF32, splitting a number, an accumulator that truncates, scaling by powers of two, promotion, warp
# groups, splitting passes.
#
# The rms errors on this page are emulated: a test on an H200 compares the emulator's tensor core with a real one bit by
# bit. Times, and the largest errors in the pictures, are measured, here or on the machine of the recording.
#
# ## What there is to gain
#
# The peaks of the GPU above at its highest clock, in TFLOP/s, and what remains if each FP32 product costs three
# products of a shorter format:

# %%
import pandas as pd

from worklog.gpu.clocks import TENSOR

gpu = run.gpu
lanes = {"FP32": 128, "TF32": TENSOR[9, 0]["tf32"], "FP16": TENSOR[9, 0]["fp16"]}
peak = {name: 2e-6 * gpu.multiprocessors * gpu.sm_clock_mhz * n for name, n in lanes.items()}
print(f"{gpu.name}, {gpu.sm_clock_mhz:.0f} MHz")
pd.DataFrame(
    {name: {"peak": round(rate), "a third": round(rate / 3)} for name, rate in peak.items()}
)

# %% [markdown]
# (NVIDIA's data sheet states less for the tensor cores, 494.7 and 989.4 TFLOP/s: it computes them at 1830 MHz, and
# FP32's at 1980 MHz.) So three products of TF32 could be 2.7 times as fast as FP32, and three of FP16 5.3 times.
#
# ## 21. One product in TF32
#
# A warp multiplies 16 x 8 by 8 x 8 numbers with one instruction. Its operands are floats that were rounded to 11 bits.
# The kernel fetches, reads and rounds the fragments, and multiplies:

# %%
lab.source("tf32", "for (int k = 0; k < BK; k += 8) {", 15)

# %% [markdown]
# The peak is 8 times that of FP32. How much of it does a kernel of one product reach, compared with `best`?

# %%
lab.bet("tf32", earlier="best")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor counts tensor cores, and it was 2.13 times as fast.
#
# </details>

# %% [markdown]
# And what does it cost? The gate's unit of error is u·D: u is 2⁻²⁴, and D is the 2-norm of the K products of an
# element. How many times as large is the error with 13 bits fewer?

# %%
import numpy as np

from worklog.gate.precision import rms_limit
from worklog.kernel import tensor_products as tensor

rng = np.random.default_rng(13)


def inputs(k, n=32):
    """A (n x k) and B (k x n), uniform in -1 to 1."""
    return rng.uniform(-1, 1, (n, k)).astype(np.float32), rng.uniform(-1, 1, (k, n)).astype(
        np.float32
    )


a, b = inputs(1024)
print("rms errors at K = 1024 in u·D, emulated · sm_90 PTX")
print(
    f"FP32 multiply-adds {tensor.rms_error(tensor.in_order(a, b), a, b):7.1f}   (class: up to {rms_limit(1024):.1f})"
)
rounded = tensor.tensor_product(a, b, "tf32", products=1, promote=None)
print(f"tf32               {tensor.rms_error(rounded, a, b):7.1f}")

# %% [markdown]
# **What we believed:** 2¹³ times as large. **What happened:** about 2¹² units, at any K: this is the error of rounded
# operands, and FP32's sum has 2 to 19 units itself (at K = 64 to 4096). A tolerance of 10⁻² passes it, so such a check
# doesn't notice a TF32 that is on by default. The gate names the class: tf32.
#
# ## 22. Three products
#
# Write each factor as hi + lo, two numbers of TF32. The difference of a number and its hi is exact, so hi + lo keeps 22
# bits or more. Three of the four products matter, since lo · lo is below 2⁻²² of the result. Three products instead of
# one, and a few subtractions to split the numbers: how many times as fast is that? (Below 1 is slower.)

# %%
lab.bet("tf32x3")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor counts tensor cores, and it was 0.401 times as fast: slower.
#
# </details>

# %%
lab.diff("tf32", "tf32x3", hunks=[1, 5])

# %% [markdown]
# The three products keep 22 bits, so is this FP32? Bet on the error: does it grow with K, with its root, or not at all?

# %%
for k in (128, 1024, 4096):
    a, b = inputs(k)
    one, three = (
        tensor.rms_error(tensor.tensor_product(a, b, "tf32", n, promote=None), a, b) for n in (1, 3)
    )
    print(
        f"K = {k:4}: rms {three:5.1f} u·D, {one / three:3.0f} times less than tf32; class fp32: {rms_limit(k):.1f}"
    )

# %% [markdown]
# **What we believed:** so this is FP32. **What happened:** the error grows with K, not with its root, and leaves FP32's
# class. Splitting isn't the reason. The tensor core is:

# %%
for last in (2.0**-24, 1.9 * 2.0**-24):
    term = np.array([[last]]), np.array([[1.0]])
    core = tensor.truncated(tensor.multiply_add(*term, np.array([[1.0]]), "f16", sum_type="f32"))[
        0, 0
    ]
    print(
        f"1 + {last / 2.0**-24:.1f} u: tensor core {float(core):.8f}, FP32 {float(np.float32(1.0 + last)):.8f}"
    )

# %% [markdown]
# An FP32 addition rounds to the nearest number. A tensor core truncates toward zero, at each step. Errors of rounding
# have both signs and grow like a random walk. Errors of truncation all make the sum smaller.
#
# ## 23. Scaled halves
#
# FP16 has the 11 bits of TF32, and twice the rate. But its exponents end at 2¹⁵ and 2⁻²⁴. So each row of A and each
# column of B is multiplied by the power of two that takes its largest magnitude to 2¹⁴ to 2¹⁵. That is exact, and so is
# the division of C. What was busy in rung 22?

# %%
from worklog.kernel.ladder import counters

counters(["tf32", "tf32x3"])

# %% [markdown]
# The tensor cores are the unit that is second busiest, with 43 %. Now they have twice the rate. What is that worth?

# %%
lab.bet("fp16x3")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor counts tensor cores, and it was 0.923 times as fast: slower.
#
# </details>

# %%
lab.diff("tf32x3", "fp16x3", hunks=[7, 8])

# %% [markdown]
# **What we believed:** twice the rate is a gain. **What happened:** 8 % slower at 4096, and the tensor cores are 20 %
# busy. They weren't the limit. The rung reads its rows and columns twice, once for their largest magnitude. What do its
# warps wait for?

# %%
from story.tables import waits

waits("tf32", "tf32x3", "fp16x3")

# %% [markdown]
# For global memory: 27 % of their cycles, and less than 1 % in `tf32x3`. So twice the rate met twice the reads.
#
# ## 24. Promotion
#
# The tensor core sums 128 k. Then the kernel adds this sum to another one in FP32 registers, which rounds, and the
# tensor core begins again at zero. So the error of truncation grows within 128 k only. That is one addition for 384
# multiply-adds. Does it cost anything?

# %%
lab.bet("promoted")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor counts tensor cores, and it was 0.952 times as fast: slower.
#
# </details>

# %%
lab.diff("fp16x3", "promoted", hunks=[3])

# %%
sizes = [128, 256, 512, 1024, 2048, 4096]
curves, limit = tensor.error_growth(sizes, 32), {k: rms_limit(k) for k in sizes}
finding = "Promotion decides the class: without it, the error of FP16x3 grows with K"
label = "emulated · sm_90 PTX; U(-1, 1), 32 x 32 elements of C; dashed: the limit of class fp32"
plots.curves(finding, curves, label, x="K", y="rms error, u·D", limit=limit)

# %%
waits("fp16x3", "promoted")

# %% [markdown]
# **What we believed:** FP32's class, for nothing. **What happened:** FP32's class, and from K = 1024 on an error below
# that of FP32 multiply-adds in the order of k. But the rung is 5 % slower. Its warps wait for the same as those of rung
# 23, each share within 3 points. What grows is what they issue: about 11 % more, by the used issue slots (37 and 35 %)
# and the times. The additions themselves are a seventh of that.
#
# ## 25. Warp groups
#
# In rung 24, each number is split once per warp that needs it. `wgmma` is issued by a group of four warps, and reads
# both operands from shared memory. So splitting becomes a job of its own, once per block. Three warp groups split what
# `cp.async` brings, two multiply, and mbarriers hand stages of 32 k from one to the other. The tensor cores of rung 24 are
# 18 % busy. How many times as fast is a kernel whose multiplying warps only multiply?

# %%
lab.bet("wgmma")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor counts tensor cores, and it was 2.26 times as fast.
#
# </details>

# %% [markdown]
# This is what a multiplying group does with a stage:

# %%
lab.source("wgmma", "const int slot = s % STAGES;", 13)

# %% [markdown]
# **What happened:** 2.2 to 2.3 times as fast, and the tensor cores are 28 % busy instead of 18 %. Every block still
# splits its own rows and columns.
#
# Such a hand-over is easy to get wrong in a way that few launches show, or none. The emulator follows what each
# thread knows to be complete, so it finds the mistake in one launch. And registers can be short: the launch gives its
# 640 threads 96 registers each, and `setmaxnreg` only moves these from the splitting groups to the multiplying ones. We
# once asked for 8 more per thread, and on an H200 that launch did not end. Here is the kernel without one line at a
# time, and with these registers:

# %%
from worklog.runner.check import check

wgmma = worklog.rung("wgmma")
for old, new in {
    'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");': "",
    'asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");': "",
    "aligned.u32 152;": "aligned.u32 160;",
}.items():
    assert old in wgmma.source
    text = wgmma.source.replace(old, new).replace(
        "aligned.u32 56;", "aligned.u32 64;" if new else "aligned.u32 56;"
    )
    print(
        f"{new or f'without {old}'}\n  {check(wgmma.with_text(text), on='emulated', seed=1).verdict.reason}"
    )

# %% [markdown]
# ## 26. Splitting passes
#
# Now a first kernel splits each number once. It writes the halves to a workspace, in the order in which the product
# needs them, so one bulk copy brings a stage of an operand. 132 blocks stay on their multiprocessors, and take one tile
# after another. A tile has 64, 128 or 192 columns: narrow ones occupy more multiprocessors, and wide ones need less
# shared memory per multiply-add. If even narrow tiles are too few, blocks share out K, and a third kernel adds the
# parts. No block splits any more. But the halves cross DRAM once more. Is that a trade?

# %%
lab.bet("split")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor counts tensor cores, and it was 2.29 times as fast.
#
# </details>

# %%
size = worklog.Shape.of(4096)
split = worklog.rung("split").at(size)
print(f"workspace: {split.workspace_bytes(size) / 2**20:.0f} MiB at 4096; A and B have 128")
for part in split.passes:
    print(
        f"{part.function:20} {' x '.join(map(str, part.blocks(size)))} blocks of {part.threads} threads"
    )

# %% [markdown]
# **What we believed:** the tensor cores become the limit. **What happened:** 1.9 times as fast at 2048, 2.3 at 4096 and
# 2.5 at 8192. The tensor cores are 75 % busy in the product's launch at 2048, and its busiest unit; with the splitting
# pass, 51 %, by time and clock. Here are all six steps, what Nsight Compute found busy, and what the warps wait for:

# %%
lab.steps(*SECOND)

# %%
counters(SECOND)

# %%
waits(*SECOND)

# %% [markdown]
# And this is the picture from the start, with all kernels. Filled points have the class of FP32, which limits the rms
# error, too: `fp16x3` fails that limit.

# %%
plots.accuracy(run, 4096)

# %% [markdown]
# How much of the first table's peaks is that at 4096? `tf32` computes one product in TF32, `tf32x3` three, and the
# others three in FP16. The last column is the share at the SM clock of the measurement. (The peak is the data sheet's
# for any instruction. Rungs 21 to 24 use `mma.sync`, which may reach less of it than `wgmma` does.)

# %%
third, shares = peak["FP16"] / 3, {}
bounds = {
    "tf32": peak["TF32"],
    "tf32x3": peak["TF32"] / 3,
    "cuBLAS": peak["FP32"],
    "best": peak["FP32"],
}
for m in run.measurements:
    of_limit = m.tflops / bounds.get(m.kernel, third)
    row = {
        "TFLOP/s": f"{m.tflops:.1f}",
        "of cuBLAS": f"{m.ratio:.1%}",
        "of the limit": f"{of_limit:.0%}",
    }
    at_clock = of_limit * gpu.sm_clock_mhz / m.sm_mhz
    shares[m.kernel] = row | {"SM MHz": f"{m.sm_mhz:.0f}", "at its clock": f"{at_clock:.0%}"}
print(*dict.fromkeys(m.label for m in run.measurements), sep="; ")
pd.DataFrame.from_dict(shares, orient="index")

# %% [markdown]
# ## The power cap, and INT8
#
# `split` runs at 1670 MHz, the other rungs on tensor cores at 1810 MHz or more, and cuBLAS at 1978 MHz. The data sheet
# allows the card 700 W. Launched in a row, `tf32`, `wgmma` and `split` take 690 to 693 W, and `split` has the lowest
# clock. A launch of `split` needs the least energy all the same, since it takes at most 1.26 times the power of any
# other kernel on tensor cores, for 0.61 times its time or less. These times are of launches in a row: 0.75 ms for
# `split`, which takes 0.64 ms in turns with cuBLAS in this recording. So in a row it is 3.6 times as fast as cuBLAS,
# not 4.2 times. `worklog run split --energy` measures the joules of a launch, and `run.plot.energy()` draws them as
# work per joule, in which a longer bar needs less energy for the same product:

# %%
from worklog.runs import Run, recordings

Run.load(recordings("settings")["h200_energy"], "recorded").plot.energy()

# %% [markdown]
# On FP32's own units, from `naive` to `bulk_copies`, each kernel of the chart needs less energy than the one before.
# `best` takes 3.4 times the power of `naive`, for less than a hundredth of its time. Winograd's form, of
# [09](09_past_cublas.ipynb), takes 0.87 of the energy of `best`, for 7/8 of the products.
#
# **What we believed:** INT8 has twice the peak of FP16 (1979 and 989.4 T(FL)OP/s on the data sheet), and six products
# of digits of 8 bits come near FP32's error, so they have the same limit as three products of halves, without scales
# that can lose bits. The last column is how much of FP32's time six of cuBLAS's products of INT8 take, and three of
# FP16:

# %%
from story.tables import power_cap, six_products

power_cap()

# %% [markdown]
# At 4096, the card takes 692 of its 700 W with either format, and INT8 is 1.3 times as fast; at 8192, 1.4 times. So six
# of these products take about 1.5 times as long as three of halves, and for a while this page called INT8 a dead end.
# But INT8 runs at 1905 MHz and FP16 at 1470 (at 8192: 1800 and 1410). Clock for clock, cuBLAS's product of INT8 reaches
# 40 to 45 % of the peak, and that of FP16 80 to 84 %. So it was this one product of INT8 that is slow. We built
# another: `kernels/digits.cu` has the warp groups and the ring of stages of `split`. A pass writes three digits of each
# number, and one kernel sums the six products in three sums of INT32, without a rounding until its end.
#
# Is it faster than `split`? Bet before you run the next cell.

# %%
six_products()

# %% [markdown]
# **What happened:** it is: 1.05 times as fast as `split` at 4096, and 1.10 times at 8192, with 0.90 of its energy. The
# reason is the power cap: it needs 4 and 2 % more clocks than `split`, but it runs at a clock that is 10 and 13 %
# higher. Nsight Compute counts 79 % of the peak of the tensor cores for it at 4096, and 83 % for `split`, and it moves
# 0.67 of the bytes through L2. The rms error on the gate's random numbers at 4096 is 0.87 of `split`'s. At 8192, the
# products are 1,539 TOP/s, with the first pass in the time. (arXiv 2606.25453 states 1,639 TOP/s for a kernel of this
# kind on the same generation of GPUs.)
#
# So why isn't it a rung? The digits count in units of the largest number of a row or column. They are fixed-point
# numbers, and lose what floats are for: a number far below the largest one keeps few bits. `split` bounds what it may
# have lost by the sum itself, and sums elements of C again where that matters. The bound for digits needs |A| |B| for
# each element of C, which is another product. Until somebody finds a cheaper one, `digits` is for matrices whose rows
# and columns have numbers of like magnitude, and the gate's verdict says so. The next section shows it.
#
# ## FP32's range
#
# Halves have 5 bits of exponent, and floats have 8. Scales handle rows and columns of any magnitude. Within a row, a
# number below 2⁻¹⁷ of the largest one loses bits. Usually that doesn't matter, since its products are small, too. To be
# sure, pass 1 counts such numbers for each row and column. From the counts, pass 2 has a bound of what an element of C
# may have lost. Where the bound isn't far below the element, and where the element isn't finite, pass 2 sums it again
# with FP32 multiply-adds.

# %%
a, b = inputs(64, 128)
rows = {
    "any magnitude": 0,
    "one number hides the others": 1,
    "subnormal numbers": 2,
    "an infinity": 3,
    "a NaN": 4,
}
a[0] *= np.float32(2.0**90)
a[1, 0], b[0] = 2.0**60, 0
a[2] *= np.float32(2.0**-140)
a[3, 5], a[4, 5] = np.inf, np.nan
with np.errstate(invalid="ignore"):
    right = tensor.in_order(a, b)
for name in ("split", "promoted", "digits"):
    c = worklog.rung(name)(a, b)
    for row, at in rows.items():
        same = np.allclose(c[at], right[at], rtol=1e-4, atol=2.0**-140, equal_nan=True)
        print(f"{name:9} {row:28} {'as FP32' if same else 'not as FP32'}")

# %% [markdown]
# ## Every shape
#
# `worklog.sgemm(A, B, mode="split")` takes this rung where the table of `best` expects it to be faster, and `best`
# elsewhere, and below K = 700, where `split` can be less accurate. Here are both at 48 shapes that are drawn by a seed,
# each size from 1 to 8193. Most have little work or a small K, and at few of them `split` is taken:

# %%
from statistics import geometric_mean

from worklog.emulator.limits import Chip
from worklog.kernel.ladder.best import LEAST_SPLIT_K, choose, table
from worklog.problem import Shape
from worklog.problem.drawn_shapes import drawn

kinds = drawn(48, 42, table().shapes)
deep = [shape for shape in kinds if shape.k >= LEAST_SPLIT_K]
pays = [shape for shape in deep if choose(shape, chip=Chip("sm_90"), split=True).name == "split"]
both = worklog.results(["best", "split"], pays)
others = worklog.results("best", [shape for shape in kinds if shape not in pays])
ratios = [m.ratio for m in (*both.select("split"), *others.measurements)]
print(f"split is taken at {len(pays)} of {len(kinds)} shapes")
print(
    f"mode='split' at all: geometric mean {geometric_mean(ratios):.1%} of cuBLAS, lowest {min(ratios):.1%}"
)
both.shares({shape: kinds[shape] for shape in pays})

# %% [markdown]
# `worklog.sgemm(A, B, max_error=1e-4)` takes the fastest kernel whose error is at most that share of |A| |B|, in each
# element and for any numbers in range, by bounds that count roundings. An FP32 sum rounds K times. `split` rounds about
# 20 times in 128 k, where a tensor core truncates, and once more where registers add that to the rest: from K = 256 on
# its bound is the lower one. A third kernel sums in double precision. For equal numbers, all roundings may go the same
# way: the last line is on the emulator.

# %%
from worklog.kernel.ladder.best import exact_bound, fp32_bound, split_bound

for k in (64, 256, 1024, 4096, 16384):
    print(
        f"K = {k:5}: FP32 {fp32_bound(k):.1e}, split {split_bound(Shape(1, 1, k), 1):.1e}, exact {exact_bound(k):.1e}"
    )
a, b = np.full((1, 128), 1 / 3, np.float32), np.full((128, 1), 0.1, np.float32)
exact = a.astype(float) @ b
print(
    f"equal numbers: split is {(abs(worklog.rung('split')(a, b) - exact) / exact).item():.1e} off"
)

# %% [markdown]
# These times are with an empty L2, launch by launch. Here are the same kernels with what the launch before left in L2,
# and as launches in a CUDA graph, each on other buffers:

# %%
names, sizes = ["best", "split", "cuBLAS"], [2048, 4096]
ways = {
    "L2 empty": worklog.results(names, sizes),
    "L2 warm": worklog.results(names, sizes, l2="warm"),
    "CUDA graph": Run.load(recordings("settings")["h200_graph"], "recorded"),
}
print(*(f"{name}: {way.label}" for name, way in ways.items()), sep="\n")
shares = {
    name: {f"{m.kernel} at {m.problem}": m.ratio for m in way.measurements}
    for name, way in ways.items()
}
pd.DataFrame(shares).map("{:.1%}".format)

# %% [markdown]
# ## Graded exercise
#
# The splitting pass of rung 26 is pure traffic. What is a lower bound of its time at 4096, in µs, if it reads each
# element of A and B from DRAM once and writes its halves once? `run.gpu.memory_peak_gbs` is the data sheet's
# rate of DRAM.

# %%
answer = None  # a time in µs
lab.check_answer("10", answer)

# %% tags=["solution"]
answer = 2 * 4096**2 * (4 + 2 * 2) / gpu.memory_peak_gbs / 1e3
lab.check_answer("10", answer)

# %% [markdown]
# The pass alone, beside the whole call, on another card:

# %%
from worklog.gpu import profile

bounds = Run.load(recordings("bounds")["h100"], "recorded")
print(bounds.label)
for size in ("4096", "8192"):
    [whole] = bounds.select("split", Shape.of(size))
    [first] = bounds.select(f"first pass at {size}", changed={"gate": False})
    moved = 16 * Shape.of(size).k ** 2 / first.us / 1e3
    print(
        f"{size}: {first.us:.0f} of {whole.us:.0f} µs, at {moved / bounds.gpu.memory_peak_gbs:.0%} of DRAM's peak rate"
    )
    print(f"      {first.sm_mhz:.0f} MHz in the pass, {whole.sm_mhz:.0f} in the call")
[counted] = (counted for counted in bounds.counters if counted.kernel == "split")
print(profile.limit(counted, bounds.gpu.arch))

# %% [markdown]
# The pass is bound by DRAM. At 8192, a row is longer than what the registers of its threads hold, and half of it is
# read twice, which the 63 % leave out. The product is bound by the tensor cores. The clock during the whole call is
# 14 % lower than during the pass at 4096, and 17 % at 8192. If the product hid the pass without a loss, the call would
# be 1.18 and 1.12 times as fast.

# %% [markdown]
# ## Exercises
#
# 1. Why are the small products added before hi · hi, and not after it?
# 2. BF16 has 8 bits and FP32's exponents. How many parts, and how many products, does FP32's class need?
#
# <details><summary>Answers</summary>
#
# 1. Each instruction truncates at the last bit of the sum. A promotion sets the sum to zero, so the small products that
#    come next lose nothing. Behind hi · hi, they would be truncated at its last bit.
# 2. Three parts have 24 bits. Of the nine products, the six with the largest magnitudes matter: the other three are
#    below 2⁻²⁴ of the result. So BF16 needs no scales, and twice as many products as FP16.
#
# </details>
#
# **Where next:** `worklog check split` puts rung 26 to the gate, on a GPU or on the emulator; its source is
# `kernels/26_split.cu`. [11_keep_and_compare](11_keep_and_compare.ipynb) keeps such numbers, and finds what became
# slower.
