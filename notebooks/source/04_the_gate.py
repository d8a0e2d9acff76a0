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
# # The gate
#
# **Goal:** this page takes apart the correctness check that every kernel passes before it is timed. You see why the
# usual tolerance passes wrong kernels, and what a check must do instead to fail every wrong kernel and no right one.
#
# **New concepts:** the error unit u·D, exact integers, projections, a verdict that names the bug.
#
# No cell needs a GPU. With one, the kernels of sections 5 to 8 run on it. NumPy's `@` calls a BLAS library, whose order
# of additions depends on the CPU and on the number of threads. So this page uses `@` only where the result is exact.

# %%
import json
import textwrap
from importlib import resources

import numpy as np
import pandas as pd

import worklog
from worklog import plots
from worklog.gate import exact, precision
from worklog.problem.gemm import random_inputs
from worklog.runner.check import check

run = worklog.results(["warptiled"], [1024])
print(run.label)

# %% [markdown]
# ## 1. The usual rule
#
# The article's rule, which many leaderboards share, is one line: the largest error, divided by the largest element of
# the reference, must be below 1e-2. The article says that about 1e-3 is normal for FP32 at K = 4096. Here is a
# sequential FP32 sum at that K, for 64 rows of a product with inputs like the timed ones.


# %%
def summed(a, b, dtype=np.float32):
    """a @ b, one product after the other along K, as the naive kernel adds them: the same bits on every CPU."""
    c, products = np.zeros((2, len(a), b.shape[1]), dtype)
    for column, row in zip(a.T.astype(dtype), b.astype(dtype), strict=True):
        c += np.multiply.outer(column, row, out=products)
    return c


def by_article(c):
    """The number that the article's rule compares with 1e-2."""
    return np.abs(c - reference).max() / np.abs(reference).max()


# %%
rng = np.random.default_rng(4)
m, n, k = 64, 2048, 4096
a, b = random_inputs(worklog.Shape(m, n, k), rng)
reference, fp32 = summed(a, b, np.float64), summed(a, b)
times = 1e-2 / by_article(fp32)
print(f"FP32, K = {k}: {by_article(fp32):.1e}; the rule allows 1e-02, {times:.0f} times as much")

# %% [markdown]
# So the error of FP32 is hundreds of times smaller than 1e-3. Which mistakes stay below 1e-2?


# %%
def rounded(x, bits):
    """x rounded to a significand of `bits` bits, as a shorter format holds it."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits).astype(np.float32)


def spoiled(c, rows, columns, by):
    """A copy of c with `by` added to some elements."""
    out = c.copy()
    out[rows, columns] += by
    return out


# %% [markdown]
# Five mistakes: two shorter formats, a wrong factor, and two missing terms. The term that the raced tile lacks is a
# typical one: its largest product is the median over all K terms.

# %%
tile = slice(0, 32), slice(32, 64)
largest = np.abs(a[:32]).max(axis=0) * np.abs(b[:, 32:64]).max(axis=1)
typical = np.argsort(largest)[k // 2]
mistakes = {
    "FP32, nothing wrong": fp32,
    "TF32 or FP16 operands": summed(rounded(a, 11), rounded(b, 11)),
    "BF16 operands": summed(rounded(a, 8), rounded(b, 8)),
    "everything x 1.001": fp32 * np.float32(1.001),
    "a raced warp tile lacks one term": spoiled(fp32, *tile, -np.outer(a[:32, typical], b[typical, 32:64])),
    "one element lacks one term": spoiled(fp32, 3, 5, -a[3, 100] * b[100, 5]),
}
for name, c in mistakes.items():
    print(f"{name:34} {by_article(c):.1e}  {'passes' if by_article(c) < 1e-2 else 'fails'}")

# %% [markdown]
# All of them pass, even a warp tile with a race. The 1e-3 that the article calls normal for FP32 lies between the
# errors of TF32 and BF16. The article also says that one bad element dominates the maximum. That holds only for an
# error above one hundredth of the largest element, and a missing term is smaller.

# %% [markdown]
# ## 2. The right unit
#
# How large is the rounding error of a correct sum? Each of its K steps rounds by up to u = 2⁻²⁴ of the partial sum.
# Rounding errors go up and down, and so do random terms: both are random walks. So the natural unit for the error of
# an element is u·D, where D is the square root of the sum of its squared terms. Unlike `max|reference|`, D belongs to
# one element, and it does not vanish where positive and negative terms cancel.


# %%
def in_units(c, a, b):
    """Root mean square of the error of c = a @ b, in u·D."""
    d = np.sqrt(summed(np.square(a.astype(np.float64)), np.square(b.astype(np.float64)), np.float64))
    error = (c - summed(a, b, np.float64)) / (precision.UNIT_ROUNDOFF * d)
    return np.sqrt(np.mean(np.square(error)))


rows = []
for terms in (64, 256, 1024, 4096):
    few, many = a[:16, :terms], b[:terms, :512]
    plain = in_units(summed(few, many), few, many)
    tf32 = in_units(summed(rounded(few, 11), rounded(many, 11)), few, many)
    bf16 = in_units(summed(rounded(few, 8), rounded(many, 8)), few, many)
    limit, law = precision.rms_limit(terms), plain / terms**0.5
    rows.append({"K": terms, "FP32": plain, "FP32 / √K": law, "limit": limit, "TF32": tf32, "BF16": bf16})
pd.DataFrame(rows).set_index("K").round(2)

# %% [markdown]
# In this unit, formats separate. A sequential FP32 sum of zero-mean data has an rms error of about 0.30·√K. The errors
# of TF32 and BF16 are constants, dozens of times above the limit even at the largest K. The limit is four times the
# error of the sequential sum, so that neither an unlucky draw nor another order of additions fails. This is the gate's
# stage `precision`.

# %% [markdown]
# ## 3. Inputs with one right result
#
# Precision needs statistics. Structure does not: no tolerance should pass a missing term, a stale tile or a wrong
# index. Articles advise against testing for equality, because FP32 additions round and their order changes the result.
# But small integers do not round. Choose A and B so that the sum of |a·b| is at most 2²⁴ for every element. Then every
# partial sum, in every order, is an integer that FP32 holds exactly.

# %%
shape = worklog.Shape(m, 512, k)
ia, ib = exact.family("E1", shape, rng)
largest = (np.abs(ia) @ np.abs(ib)).max()
print(f"K = {k}: integers up to {np.abs(ia).max():.0f}; largest sum of |a·b| {largest:.0f}, 2^24 = {2**24}")

# %% [markdown]
# The same product in five orders, on these integers and on the random data from above. How many elements differ from
# the sequential sum?

# %%
shuffle, half = rng.permutation(k), k // 2
orders = {
    "in order": summed,
    "backwards": lambda x, y: summed(x[:, ::-1], y[::-1]),
    "shuffled": lambda x, y: summed(x[:, shuffle], y[shuffle]),
    "in two halves": lambda x, y: summed(x[:, :half], y[:half]) + summed(x[:, half:], y[half:]),
    "a library's": lambda x, y: x @ y,
}
plain, real = summed(ia, ib), b[:, :512]
for name, multiply in orders.items():
    integers = np.count_nonzero(multiply(ia, ib) != plain)
    known = f"{(multiply(a, real) != fp32[:, :512]).mean():4.0%}" if name != "a library's" else "depends on the CPU"
    print(f"{name:14} integers: {integers} of {plain.size} differ, random data: {known}")

# %% [markdown]
# On integers, all orders agree in every element, at the K that is timed and without a tolerance. On random data they do
# not, and the library's share is not even the same on two CPUs.
#
# The dense family, E1, has too few bits to show a format that keeps 8 or 11. So two more families have long operands on
# one side and ±1 on the other: long A in E2, long B in E3. Which family finds which mistake?


# %%
def product(x, y):
    """x @ y of integers in FP64: exact in every order, so the same on every CPU."""
    return x.astype(np.float64) @ y.astype(np.float64)


def wrong(family, mistake):
    """The number of wrong elements that a mistake causes on the inputs of a family."""
    x, y = exact.family(family, worklog.Shape(m, 128, k), np.random.default_rng(1))
    return np.count_nonzero(mistake(x, y) != product(x, y))


def short_accumulator(x, y):
    """Partial sums of 512 terms, added up in FP16."""
    total = np.zeros((len(x), y.shape[1]), np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, k, 512):
            total += product(x[:, start : start + 512], y[start : start + 512]).astype(np.float16)
    return total


# %%
ways = {
    "TF32 operands": lambda x, y: product(rounded(x, 11), rounded(y, 11)),
    "TF32 for B only": lambda x, y: product(x, rounded(y, 11)),
    "BF16 operands": lambda x, y: product(rounded(x, 8), rounded(y, 8)),
    "FP16 accumulator": short_accumulator,
    "last term missing": lambda x, y: product(x[:, :-1], y[:-1]),
    "first term twice": lambda x, y: product(x, y) + np.outer(x[:, 0], y[0]),
    "rows 0 and 1 swapped": lambda x, y: product(x, y)[[1, 0, *range(2, m)]],
}
pd.DataFrame({family: {name: wrong(family, way) for name, way in ways.items()} for family in exact.FAMILIES})

# %% [markdown]
# A zero means that this family cannot show this mistake. No row holds only zeros. The gate uses all three families, and
# it also uses small edge shapes with alpha and beta other than 1 and 0: most index errors give the right result on
# squares of a power of two.

# %% [markdown]
# ## 4. No product to compare with
#
# At 4096 an FP64 product takes long, and a kernel could copy a reference that lies in the GPU's memory. The gate needs
# neither. For a vector x of integers, C·x must equal A·(B·x), and in FP64 both sides are exact. A wrong row of C passes
# two random vectors with a probability of 2⁻³². In the same way, y·C finds wrong columns.

# %%
projection = exact.Projection(exact.ExactProblem("E1", ia, ib), rng)
bad = spoiled(plain, 21, 300, 1)
print("right product: wrong rows", projection.wrong_rows(plain))
print("spoiled product: wrong rows", projection.wrong_rows(bad), "wrong columns", projection.wrong_columns(bad))
saved = 2 * 4096**3 / (2 * 3 * 2 * 4096**2)
print(f"a product at 4096 takes {saved:.0f} times the operations of two projections")

# %% [markdown]
# One element is wrong by 1, and the projections find it.

# %% [markdown]
# ## 5. Eleven wrong kernels
#
# Now the gate checks kernels. This one is right: shared-memory tiles with a check of every bound.

# %%
RIGHT = """\
__global__ void tiles(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[16][16], Bs[16][16];
  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 16) {
    As[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f;
    Bs[y][x] = k0 + y < K && col < N ? B[(k0 + y) * N + col] : 0.0f;
    __syncthreads();  // complete
    for (int k = 0; k < 16; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();  // read
  }
  if (row >= M || col >= N) return;
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
"""


# %%
def gate(source):
    """Check a kernel. The seed is fixed so that this page is reproducible; by default it is drawn at random."""
    kernel = worklog.Kernel.from_source(source, file="tiles.cu", grid="(N + 15) // 16, (M + 15) // 16", block="16,16")
    return check(kernel, worklog.Shape(144, 72, 37), seed=4)


checked = gate(RIGHT)
print(checked.label)
for stage in checked.verdict.stages:
    print("passed" if stage.passed else "failed", stage.name)

# %% [markdown]
# Three of the stages are new. `bit-equal when repeated` launches the kernel on the same integers again: if the bits
# differ, the kernel has a race. `products` fails no kernel. It reports whether each FP32 product was composed of
# several shorter ones, as some libraries do. `hard data` gives each row and column a scale of its own, from 2^-60 to
# 2^60. That fails a kernel on tensor cores with one scale for several rows. It also reports whether subnormal numbers,
# infinities and NaN give what they give in FP32, and fails a kernel whose domain states `any data` if they don't.
#
# Each of the next kernels has one small, common mistake.

# %%
TF32 = "__uint_as_float((__float_as_uint({}) + 0x1000u) & 0xffffe000u)"
slips = {
    "the first barrier is missing": ("__syncthreads();  // complete", ""),
    "the second barrier is missing": ("__syncthreads();  // read", ""),
    "the last term is missing": ("k0 + x < K", "k0 + x < K - 1"),
    "the last K tile is missing": ("k0 < K; k0", "k0 + 16 <= K; k0"),
    "the last column is not written": ("col >= N)", "col >= N - 1)"),
    "it writes past C": ("if (row >= M || col >= N) return;", ""),
    "it reads past A": ("row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f", "A[row * K + k0 + x]"),
    "M and N are mixed up": ("row >= M || col >= N", "row >= N || col >= M"),
    "beta is ignored": ("beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col]", "alpha * acc"),
    "C is added to": ("= beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col]", "+= alpha * acc"),
    "TF32 operands": ("As[y][k] * Bs[k][x]", f"{TF32.format('As[y][k]')} * {TF32.format('Bs[k][x]')}"),
}

# %%
found = {name: gate(RIGHT.replace(*slip)) for name, slip in slips.items()}
for name, checked in found.items():
    verdict = str(checked.verdict).splitlines()[0]
    print(name, *textwrap.wrap(verdict, 78), sep="\n    ")

# %% [markdown]
# Each verdict names the stage, and most name the bug. The emulator finds a race from the addresses, even if no result
# is wrong. On a GPU a race must change a result: in the exact stages, or in one of 20 launches that are compared bit
# by bit. `worklog check --emulate` always looks for races on the emulator.

# %% [markdown]
# ## 6. The exploits, and which other checks find them
#
# The package has a collection of wrong kernels, with mistakes like these and known ways to fool a benchmark. It also
# has right kernels that other checks fail. `worklog exploits` runs all of them through this gate and through the
# comparisons of other harnesses and leaderboards, each on inputs of its own kind. The resulting table comes with the
# package:

# %%
from worklog.peers.exploits import open_exploits

exploits = open_exploits()
print(f"{exploits.label} · {len(exploits.seeds)} seeds each\n{exploits.summary}")
bad, good = exploits.of(wrong=True), exploits.of(wrong=False)
scores = {
    (peer["name"], peer["words"]): {
        f"passes, of {len(bad)} wrong": sum(peer["name"] in row.passed_by for row in bad),
        f"fails, of {len(good)} right": sum(peer["name"] in row.refused_by for row in good),
    }
    for peer in exploits.peers
}
pd.DataFrame(scores).T.rename_axis(["check", "what it compares"])

# %% [markdown]
# A loose tolerance passes many wrong kernels. The strictest checks fail nearly every right kernel; section 8 explains
# why. These wrong kernels pass most of the other checks; the last line of each is this gate's verdict:

# %%
for row in sorted(bad, key=lambda row: -len(row.passed_by))[:6]:
    text = f"{len(row.passed_by)} of {len(exploits.peers)} pass “{row.title}”: {row.how}"
    print(*textwrap.wrap(text, 78), f"here {row.verdict}", sep="\n    ")
faultless = [name for (name, _), found_by in scores.items() if not any(found_by.values())]
print(f"checks with zero in both columns: {', '.join(faultless) or 'none'}")

# %% [markdown]
# The article calls a race the classic false pass, and says that the largest error catches it instantly, because the one
# bad element dominates. On the GPU of this table, what did its rule do with the two kernels that lack a barrier?

# %%
for row in bad:
    if "no barrier" in row.how:
        how = "passes" if "Vizuara" in row.passed_by else "fails"
        print(*textwrap.wrap(f"“{row.title}”: the article's rule {how} it; here {row.verdict}", 78), sep="\n    ")

# %% [markdown]
# So the rule catches the race only where a result is wrong by more than one hundredth of the largest element.
#
# How many wrong kernels does each stage find? A kernel that different stages find on different seeds counts at each of
# them. A kernel that crashes at its launch never reaches `precision`, so the order of the stages matters. A stage
# without a count had nothing left to find here. A test of this package removes each stage in turn, and each time a
# wrong kernel passes.

# %%
caught = pd.Series([stage for row in exploits.rows for stage in row.stages]).value_counts()
text = "kernels: " + ", ".join(f"{stage} {count}" for stage, count in caught.items())
print(*textwrap.wrap(text, 78), sep="\n    ")

# %% [markdown]
# ### Mutants
#
# A collection holds only the mistakes that somebody thought of. `python -m tests.record.mutants`, in a checkout of this
# project, makes mistakes at random: it edits one place of a right kernel, such as an operator, an index, a bound or a
# barrier, and puts the mutant through the gate on the emulator. `finding` is a race, an access out of bounds or another
# mistake that the emulator reports. A mutant that survives shows a hole in the gate, unless its results are the
# original's. Each survivor was looked at. One of them is wrong:

# %%
folder = resources.files("worklog") / "recordings" / "mutants"
[path] = [path for path in folder.iterdir() if path.name[0].isdigit()]
mutants = json.loads(path.read_text(encoding="utf-8"))
results = pd.Series([row["results"] for row in mutants["rows"]]).apply(pd.Series).sum().astype(int)
print(f"{mutants['utc'][:10]} · {mutants['label']}")
print(f"{results.sum()} mutants of {len(mutants['rows'])} kernels")
results.sort_values(ascending=False).to_frame("mutants")

# %%
for reason, number in pd.Series([one["explained"] for one in mutants["survivors"]]).value_counts().items():
    print(f"{number:2} {reason}")

# %% [markdown]
# ## 7. Where the errors are
#
# A failed verdict has a map of the errors in C. One column, one tile, every sixteenth row: the pattern points to the
# bug.

# %%
column = found["the last column is not written"]
plots.tile_map(column.verdict.where, column.label)

# %% [markdown]
# This mistake happens only at the size that is timed and only in one warp's tile, so no edge shape shows it:

# %%
late = "if (row / 32 == 1 && col / 32 == 1 && M == 144) acc -= A[row * K + 9] * B[9 * N + col];\n  C[row"
tile = gate(RIGHT.replace("C[row", late, 1))
print(*textwrap.wrap(str(tile.verdict), 80), sep="\n")
plots.tile_map(tile.verdict.where, tile.label)

# %% [markdown]
# ## 8. Right kernels that must pass
#
# Users switch a check off if it fails right kernels. `allclose(rtol=1e-5, atol=1e-8)` is the default of more than one
# harness. It looks strict, and correct FP32 results fail it: most of them are near
# zero. Where terms cancel, an element keeps the rounding error of its large terms, so its relative error is large.

# %%
close = np.isclose(fp32, reference, rtol=1e-5, atol=1e-8)
failing, every = (np.median(np.abs(values)) for values in (reference[~close], reference))
print(f"correct FP32 at K = {k}: {np.count_nonzero(~close)} of {close.size} elements fail allclose(1e-5, 1e-8)")
print(f"median size: {failing:.1f} of those that fail, {every:.1f} of all")

# %% [markdown]
# These two kernels are right as well. One adds in another order, the other multiplies the old C by beta = 0:

# %%
others = {
    "backwards": ("k = 0; k < 16; ++k", "k = 15; k >= 0; --k"),
    "0 times C": ("beta == 0.0f ? alpha * acc : ", ""),
}
for name, change in others.items():
    print(f"{name:12} {gate(RIGHT.replace(*change)).verdict}")

# %% [markdown]
# On integers even atomics give the same bits in every launch. So the gate requires equal bits on integers only: on
# random data it would fail right kernels.

# %% [markdown]
# ## 9. Every time has its verdict
#
# A check before the timing is not enough, because a kernel could behave differently while it is timed. So each *timed*
# launch gets new inputs, and the gate checks its output with projections as in section 4, behind the event that
# ends it ([02_the_harness](02_the_harness.ipynb) shows where in the loop). A last stage checks the time itself: is it
# above the least time that the hardware allows?
#
# A *host function* is a Python function or a library that launches GPU work itself. The whole GPU must be idle when its
# launch is over, so work on another stream is found. A host function is trusted not to tamper with the process that
# times it. The gate catches mistakes and the known ways to fool a benchmark, but not code that rewrites the harness.
#
# Each measurement keeps its verdict, with the margins:

# %%
print(run.label)
for stage in run.measurements[0].verdict.stages:
    print(stage.name, *textwrap.wrap(stage.detail, 78), sep="\n    ")

# %% [markdown]
# The same as a picture, at the article's size, with the errors that the article's rule passes:

# %%
plots.DIAGRAMS["diagram_7_gate"](worklog.results(["warptiled", "cuBLAS"], [4096]))

# %% [markdown]
# ## Graded exercise
#
# Write a wrong kernel that the article's rule passes and the gate fails. Start from `RIGHT` and change as little as you
# can. The emulator runs both checks. The article's rule gets the results alone, as on a GPU, and none of the findings.

# %%
from worklog import lab

answer = None  # the source of a kernel, such as RIGHT.replace(…)
lab.check_answer("04", answer)

# %% tags=["solution"]
answer = RIGHT.replace("alpha * acc :", "1.001f * alpha * acc :")  # or one term of many that is missing
lab.check_answer("04", answer)

# %% [markdown]
# ## Exercises
#
# 1. The A of E3 holds only ±1, so half of the products of two rows agree by chance. Why does E3 still find "rows 0 and
#    1 swapped" as often as E1 and E2?
# 2. Find a mistake in `RIGHT` that gives the right result for every square size that is a multiple of 16. Which stage
#    finds it?
# 3. A kernel detects integer inputs and computes exactly then, and in TF32 otherwise. Which stage fails it?
# 4. Leave out one barrier of `RIGHT`. Why does the article's rule fail it in the graded exercise, and what may it do on
#    a GPU?
#
# <details><summary>Answers</summary>
#
# 1. An element is a sum of thousands of products. Two different sums rarely agree, even if half of their products do.
# 2. Several are in the list above: the last K tile, M and N mixed up, and the missing bounds. Edge shapes show all of
#    them, by a wrong element or by an access outside a matrix at the launch.
# 3. `precision`, which uses the random data that is timed, and `every timed launch`, which checks each timed output.
# 4. The emulator runs one warp up to a barrier, then the next one. So a warp multiplies before the others have stored
#    their parts of the tile, or after the next tile is there. On a GPU, warps run side by side, and few results or none
#    are wrong: section 6 has one such kernel that the rule passes and one that it fails.
#
# </details>
#
# **Where next:** [05_climbing_the_ladder](05_climbing_the_ladder.ipynb) shows kernels that pass, one idea after the
# other.
