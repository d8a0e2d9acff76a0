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
# **Goal:** this page builds a product with FP32's error from tensor-core instructions that take numbers of 11 bits. It
# explains each of the rungs 21 to 26 by its difference to the one before, and shows the error that each one has.
#
# **New concepts:** TF32, splitting a number, scaling by powers of two, an accumulator that truncates, promotion, warp
# groups, splitting passes.
#
# The errors are emulated: a test on an H200 compares the emulator's tensor core with a real one bit by bit. Times are
# measured, here or on the machine of the recording. An error is never shown as a time.

# %%
import numpy as np
import pandas as pd

import worklog
from worklog import lab, plots
from worklog.analysis.counters import counters
from worklog.analysis.tensor_products import (
    error_growth,
    in_order,
    multiply_add,
    parts,
    rms_error,
    tensor_product,
    truncated,
)
from worklog.emulator import EmulatedDevice
from worklog.errors import WorklogError
from worklog.gate.precision import rms_limit
from worklog.gpu.peaks import TENSOR
from worklog.kernel import RUNGS
from worklog.kernel.best import table
from worklog.lab.ladder_page import diff, source
from worklog.plots.selection import labels
from worklog.problem import Shape, drawn
from worklog.runner import tuned
from worklog.runs import Run, recordings

second = [rung for rung in RUNGS if 20 < rung.number < 30]
run = worklog.results([*(rung.name for rung in second), "cuBLAS"], 4096)
cublas = next(m for m in run.measurements if m.kernel == "cuBLAS")
print(f"cuBLAS in FP32 at 4096: {cublas.tflops:.1f} TFLOP/s, {run.label}")

# %% [markdown]
# ## What there is to gain
#
# The peaks of the GPU above at its highest clock, in TFLOP/s. The last line is what remains if each FP32 product costs
# three products of a shorter format. NVIDIA's data sheet states less for the tensor cores, 494.7 and 989.4 TFLOP/s: it
# computes them at 1830 MHz, and FP32's at 1980 MHz.

# %%
gpu = run.gpu
print(f"{gpu.name}, {gpu.sm_clock_mhz} MHz")
per_sm = {"FP32": 128} | {name.upper(): TENSOR[9, 0][name] for name in ("tf32", "fp16")}
rate = 2e-6 * gpu.multiprocessors * gpu.sm_clock_mhz
peak = pd.DataFrame({name: {"peak": n * rate, "a third": n * rate / 3} for name, n in per_sm.items()}).round(0)
peak.astype(int)

# %% [markdown]
# ## 21. One product in TF32
#
# A warp multiplies 16 x 8 by 8 x 8 numbers with one instruction. Its operands are TF32: floats with 11 instead of 24
# bits. Here is the kernel. The loop over k has three parts: fetch, read and round the fragments, multiply.

# %%
source("tf32")

# %% [markdown]
# The gate's unit of error is u·D: u = 2⁻²⁴, and D is the 2-norm of the K products of an element. FP32 sums have a few
# u·D, and their error grows with the root of K. Before you look: TF32 has 13 bits fewer. What error do you expect?

# %%
rng = np.random.default_rng(13)


def inputs(k, n=32):
    """A (n x k) and B (k x n), uniform in -1 to 1."""
    return rng.uniform(-1, 1, (n, k)).astype(np.float32), rng.uniform(-1, 1, (k, n)).astype(np.float32)


a, b = inputs(1024)
rungs = {
    "FP32 multiply-adds": in_order(a, b),
    "tf32": tensor_product(a, b, "tf32", products=1, promote=None),
}
print("rms errors at K = 1024 in u·D, emulated · sm_90 PTX")
for name, c in rungs.items():
    print(f"{name:18} {rms_error(c, a, b):7.1f}   (class fp32: up to {rms_limit(1024):.1f})")

# %% [markdown]
# That is the error of rounded operands: about 2¹² units, whatever K is. A tolerance of 10⁻² passes it, which is why
# "TF32 is on by default" goes unnoticed. The gate names the class: tf32.

# %% [markdown]
# ## 22. Three products
#
# Write each factor as hi + lo, two numbers of TF32. The difference of a number and its hi is exact, so hi + lo keeps 22
# bits or more.

# %%
x = np.float32([np.pi])
hi, lo = parts(x, "tf32")
print(f"{x[0]:.9f} = {hi[0]:.9f} + {lo[0]:.9f}, off by {abs(float(x[0]) - float(hi[0]) - float(lo[0])) / x[0]:.1e}")
diff("tf32", "tf32x3")

# %% [markdown]
# Three of the four products matter: lo · lo is below 2⁻²² of the result. Before you look: is this FP32?

# %%
for k in (128, 1024, 4096):
    a, b = inputs(k)
    error = rms_error(tensor_product(a, b, "tf32", promote=None), a, b)
    print(f"K = {k:4}: rms {error:5.1f} u·D, and FP32's class has up to {rms_limit(k):.1f}")

# %% [markdown]
# It is 9 to 300 times more precise than TF32, and the error grows with K, not with its root. Splitting isn't the
# reason. The tensor core is:

# %%
for last in (2.0**-24, 1.9 * 2.0**-24):
    term = np.array([[last]]), np.array([[1.0]])
    tensor = truncated(multiply_add(*term, np.array([[1.0]]), "f16", "f32"))[0, 0]
    print(f"1 + {last / 2.0**-24:.1f} u: tensor core {float(tensor):.8f}, FP32 {float(np.float32(1.0 + last)):.8f}")

# %% [markdown]
# An FP32 addition rounds to the nearest number. A tensor core truncates toward zero, at each step. Errors of rounding
# have both signs and grow like a random walk. Errors of truncation all make the sum smaller.

# %% [markdown]
# ## 23. Scaled halves
#
# FP16 has the 11 bits of TF32, and twice the rate. But its exponents end at 2¹⁵ and 2⁻²⁴. So each row of A and each
# column of B is multiplied by the power of two that takes its largest magnitude to 2¹⁴ to 2¹⁵. That is exact, and so is
# the division of C. Before you look at the times below: in rung 22, the tensor cores are 43 % busy. Is twice their rate
# a gain?

# %%
diff("tf32x3", "fp16x3")

# %% [markdown]
# ## 24. Promotion
#
# The tensor core sums 128 k. Then the kernel adds this sum to another one in FP32 registers, which rounds, and the
# tensor core begins again at zero. The next cell computes errors for promotion after 64, 128 and 256 k and for none.
# Before you look: which of them have FP32's class at K = 4096?

# %%
sizes = [128, 256, 512, 1024, 2048, 4096]
curves = error_growth(sizes, 32)
limit = {k: rms_limit(k) for k in sizes}
finding = "Promotion decides the class: without it, the error of FP16x3 grows with K"
plots.error_growth(finding, curves, limit, "emulated · sm_90 PTX; U(-1, 1), 32 x 32 elements of C")

# %%
pd.DataFrame(curves).round(1)

# %% [markdown]
# Every 128 k is enough: beyond K = 1024 the error is below that of FP32 multiply-adds in the order of k. A promotion
# costs one addition per element and 128 k, which is 1/384 of the multiply-adds of three products.

# %%
diff("fp16x3", "promoted")

# %% [markdown]
# ## 25. Warp groups
#
# In rung 24, the tensor cores are 18 % busy, and each number is split once per warp that needs it. `wgmma` is issued by
# a group of four warps, and reads both operands from shared memory. So splitting becomes a job of its own, once per
# block. Three warp groups split what `cp.async` brings, two multiply, and mbarriers hand stages of 32 k from one to the
# other. This is what a multiplying group does with a stage:

# %%
lines = worklog.rung("wgmma").source.splitlines()
first = next(n for n, line in enumerate(lines) if "const int slot = s % STAGES;" in line)
print("\n".join(lines[first : first + 14]))

# %% [markdown]
# Such a hand-over is easy to get wrong in a way that shows once in a thousand launches. The emulator follows what each
# thread knows to be complete, so it finds the mistake in one launch. Here is the kernel as it is, and without one
# line at a time:


# %%
def product(kernel, a, b):
    """C = A B of one launch on the emulator; raises WorklogError for its findings."""
    device, shape = EmulatedDevice(), Shape(len(a), b.shape[1], a.shape[1])
    given = [device.upload(x) for x in (a, b, np.zeros((shape.m, shape.n), np.float32))]
    kernel.load(device).enqueue(shape, 1.0, *given[:2], 0.0, given[2])
    return device.download(given[2]).reshape(shape.m, shape.n)


rung = worklog.rung("wgmma")
a, b = inputs(128, 128)
for line in (
    "",
    'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
    'asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");',
):
    assert line in rung.source
    try:
        error = rms_error(product(rung.with_text(rung.source.replace(line, "")), a, b), a, b)
        print(f"as it is: no finding, rms {error:.1f} u·D")
    except WorklogError as found:
        print(f"without {line}\n  {str(found).splitlines()[0]}")

# %% [markdown]
# Registers can be short, too. The launch gives its 640 threads 96 registers each, and `setmaxnreg` only moves these
# from the splitting groups to the multiplying ones. With 8 more for every thread, the multiplying groups wait for
# registers that no warp releases. One form of this rung did so, and on an H200 its launch did not end:

# %%
greedy = rung.source.replace("aligned.u32 56;", "aligned.u32 64;").replace("aligned.u32 152;", "aligned.u32 160;")
assert greedy != rung.source
try:
    product(rung.with_text(greedy), a, b)
except WorklogError as found:
    print(str(found).splitlines()[0])

# %% [markdown]
# ## 26. Splitting passes
#
# In rung 25, each block splits its rows and columns, as all the other blocks in its row and column do. Now a first
# kernel splits each number once. It writes the halves to a workspace, in the order in which the product needs them, so
# one bulk copy brings a stage of an operand. 132 blocks stay on their multiprocessors, and take one tile after another.
# A tile has 64, 128 or 192 columns: narrow ones occupy more multiprocessors, and wide ones need less shared memory per
# multiply-add. If even narrow tiles are too few for all multiprocessors, they share out K: each part of K is a product
# with scales of its own, and a third kernel adds these in the order of K. These are the kernels of 4096:

# %%
split = worklog.rung("split").at(Shape.of(4096))
print(f"workspace: {split.workspace_bytes(Shape.of(4096)) / 2**20:.0f} MiB at 4096; A and B have 128")
for one in split.passes:
    resources = EmulatedDevice().compile(one.program).compiled
    blocks = " x ".join(map(str, one.blocks(Shape.of(4096))))
    print(f"{one.function:20} {blocks} blocks of {one.threads} threads, {resources.registers} registers per thread")

# %% [markdown]
# ## FP32's range
#
# Halves have 5 bits of exponent, and floats have 8. Scales handle rows and columns of any magnitude. Within a row, a
# number below 2⁻¹⁷ of the largest one loses bits. Usually that doesn't matter, since its products are small, too. To be
# sure, pass 1 counts such numbers for each row and column. From the counts, pass 2 has a bound of what an element of C
# may have lost. Where the bound isn't far below the element, and where the element isn't finite, pass 2 sums it again
# with FFMAs. The host decides nothing.

# %%
a, b = inputs(64, 128)
rows = {"any magnitude": 0, "one number hides the others": 1, "subnormal numbers": 2, "an infinity": 3, "a NaN": 4}
a[0] *= np.float32(2.0**90)
a[1, 0], b[0] = 2.0**60, 0
a[2] *= np.float32(2.0**-140)
a[3, 5], a[4, 5] = np.inf, np.nan
with np.errstate(invalid="ignore"):
    right = in_order(a, b)
for name, promoted in (("split", split.with_launch(grid="1")), ("promoted", worklog.rung("promoted"))):
    c = product(promoted, a, b)
    for row, at in rows.items():
        same = np.allclose(c[at], right[at], rtol=1e-4, atol=2.0**-140, equal_nan=True)
        print(f"{name:9} {row:28} {'as FP32' if same else 'not as FP32'}")

# %% [markdown]
# ## Error and speed
#
# The chart shows the largest error that the gate found in each kernel, beside its rate. Filled points have FP32's
# class, which limits the rms error, too: `fp16x3` fails that limit.

# %%
plots.accuracy(run, 4096)

# %% [markdown]
# How much of the first table's rates is that? `tf32` computes one product in TF32, `tf32x3` three, and the others three
# in FP16, whose limit is a third of the peak. These limits hold at the highest clock. The last column is the share at
# the SM clock of the measurement.

# %%
bounds = {"tf32": peak["TF32"]["peak"], "tf32x3": peak["TF32"]["a third"]}
shares = {}
for m in run.measurements:
    bound = bounds.get(m.kernel, peak["FP32"]["peak"] if m.kernel == "cuBLAS" else peak["FP16"]["a third"])
    clock = {"SM MHz": f"{m.sm_mhz:.0f}", "at its clock": f"{m.tflops / bound * gpu.sm_clock_mhz / m.sm_mhz:.0%}"}
    rates = {"TFLOP/s": f"{m.tflops:.1f}", "of cuBLAS": f"{m.ratio:.1%}", "of the limit": f"{m.tflops / bound:.0%}"}
    shares[m.kernel] = rates | clock
print(*labels(run, run.measurements), sep="\n")
pd.DataFrame.from_dict(shares, orient="index")

# %% [markdown]
# Twice the rate was no gain: `fp16x3` is 8 % slower than `tf32x3`, and its tensor cores are only 20 % busy. It reads
# its rows and columns twice, and the recordings don't show what else it waits for.
#
# The data sheet allows the card 700 W. On the H200, `tf32` takes the most, 724 W, and `split` takes 713 W at the lowest
# clock in the table above. A launch of `split` needs the least energy all the same, since it takes at most 1.25 times
# the power of any other kernel, for 0.57 times its time or less:

# %%
power = Run.load(recordings("settings")["h200_power"], "recorded")
energies = {m.kernel: m.work for m in power.select() if m.work.joules}
joules = {name: energy.joules for name, energy in energies.items()}
columns = {
    "mJ per launch": {name: 1e3 * energy for name, energy in joules.items()},
    "W": {name: energy.watts for name, energy in energies.items()},
    "GFLOP per joule": {name: 2 * 4.096**3 / energy for name, energy in joules.items()},
}
least = min(joules, key=joules.get)
title = f"{least} needs the least energy at 4096: {1e3 * joules[least]:.3g} mJ per launch"
subtitle = "Launches in a row with a warm L2, by NVML's counter of the whole card."
plots.bars(title, columns, power.full_label, subtitle=subtitle, accented=[least])

# %% [markdown]
# `worklog.sgemm(A, B, mode="split")` takes this rung where the table of `best` expects it to be faster, and `best`
# elsewhere. Here are both at 24 shapes that are drawn by a seed.

# %%
kinds = drawn(24, 7, tuned.SHAPES)
pays = [shape for shape in kinds if table().split_pays(shape)]
print(f"the table expects split to be faster at {len(pays)} of {len(kinds)}; it is {table().label.partition(':')[0]}")
both = worklog.results(["best", "split"], [*kinds])
for m in both.measurements:
    if m.ratio is None:
        print(f"{m.title}: {m.reason}")
ratios = {(m.kernel, m.problem): m.ratio for m in both.measurements}
taken = [ratio for shape in kinds if (ratio := ratios["split" if shape in pays else "best", shape])]
mean = np.exp(np.mean(np.log(taken)))
print(f"mode='split' at {len(taken)} shapes: geometric mean {mean:.1%} of cuBLAS, lowest {min(taken):.1%}")
both.shares(kinds)

# %% [markdown]
# ## What bounds each rung
#
# Nsight Compute counts how busy each unit is during a launch, as a share of its peak rate. In `wgmma`, every block
# splits its own rows and columns, and the tensor cores are 28 % busy. In `split`, a pass before has done it, and they
# are 75 % busy.

# %%
counters([rung.name for rung in second])

# %% [markdown]
# The times above are with an empty L2, launch by launch. Here are the same kernels with what the launch before left in
# L2, and as launches in a CUDA graph, each on other buffers:

# %%
names, sizes = ["best", "split", "cuBLAS"], [2048, 4096]
ways = {
    "L2 empty": worklog.results(names, sizes),
    "L2 warm": worklog.results(names, sizes, l2="warm"),
    "CUDA graph": Run.load(recordings("settings")["h200_graph"], "recorded"),
}
print(*(label for way in ways.values() for label in labels(way, way.measurements)), sep="\n")
shares = {name: {f"{m.kernel} at {m.problem}": m.ratio for m in way.measurements} for name, way in ways.items()}
pd.DataFrame(shares).map("{:.1%}".format)

# %% [markdown]
# ## Graded exercise
#
# The splitting pass of rung 26 is pure traffic. What is a lower bound of its time at 4096, in µs, if it reads each
# element of A and B from DRAM once and writes its halves once? `run.gpu.memory_peak_gbs` is the data sheet's
# rate of DRAM.

# %%
answer = None  # a time in µs
lab.check_answer("13", answer)

# %% tags=["solution"]
answer = 2 * 4096**2 * (4 + 2 * 2) / gpu.memory_peak_gbs / 1e3
lab.check_answer("13", answer)

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
# `kernels/26_split.cu`.
