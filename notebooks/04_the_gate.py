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
# # The gate
#
# **Goal:** know what makes an SGEMM right, why the usual test does not, and what a gate must ask instead, so that it
# lets no wrong kernel pass and no right one fail.
#
# **New concepts:** the gauge u·D, exact integers, projections, a refusal that names the bug.
#
# A wrong kernel can be as fast as it likes. So nothing in this package is timed before it has passed what this notebook
# takes apart. No cell needs a GPU; with one, the kernels of sections 5 to 8 run on it.

# %%
import textwrap

import numpy as np
import pandas as pd

import worklog
from worklog import plots
from worklog.bench.check import check
from worklog.gate import exact, precision
from worklog.kernel import Kernel
from worklog.problem.gemm import random_inputs

run = worklog.results(["warptiled"], [1024])
print(run.label)

# %% [markdown]
# ## 1. The usual rule
#
# The article's gate, and many a leaderboard's, is one line: the largest error, over the largest element of the
# reference, must be below 1e-2. It says that about 1e-3 is normal for FP32 at K = 4096. Here is a plain FP32 sum at
# that K, on 64 rows of a product like the timed ones.

# %%
rng = np.random.default_rng(4)
m, n, k = 64, 4096, 4096
a, b = random_inputs(worklog.Shape(m, n, k), rng)
reference = a.astype(np.float64) @ b.astype(np.float64)


# %%
def summed(a, b):
    """One product after the other, in FP32, as the naive kernel does it."""
    c, products = np.zeros((2, len(a), b.shape[1]), np.float32)
    for column, row in zip(a.T, b, strict=True):
        c += np.multiply.outer(column, row, out=products)
    return c


def by_article(c):
    """The rule's number."""
    return np.abs(c - reference).max() / np.abs(reference).max()


unbiased = summed(a, b)
times = 1e-2 / by_article(unbiased)
print(f"FP32, K = {k}: {by_article(unbiased):.1e}; the rule allows 1e-02, {times:.0f} times as much")

# %% [markdown]
# So 1e-3 is not the error of FP32, by a factor of hundreds. What is there room for below 1e-2?


# %%
def rounded(x, bits):
    """x with a significand of so many bits, as a shorter format would hold it."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits).astype(np.float32)


def spoiled(c, rows, columns, by):
    """A copy of c with a part of it changed."""
    out = c.copy()
    out[rows, columns] += by
    return out


# %% [markdown]
# Five mistakes: shorter formats, a wrong factor, and two that forget a term. The forgotten one of the raced tile is a
# typical one, with the median of all terms' largest products.

# %%
tile = slice(0, 32), slice(32, 64)
largest = np.abs(a[:32]).max(axis=0) * np.abs(b[:, 32:64]).max(axis=1)
typical = np.argsort(largest)[k // 2]
mistakes = {
    "FP32, nothing wrong": unbiased,
    "TF32 or FP16 operands": rounded(a, 11) @ rounded(b, 11),
    "BF16 operands": rounded(a, 8) @ rounded(b, 8),
    "everything x 1.001": unbiased * np.float32(1.001),
    "a raced warp tile lacks one term": spoiled(unbiased, *tile, -np.outer(a[:32, typical], b[typical, 32:64])),
    "one element lacks one term": spoiled(unbiased, 3, 5, -a[3, 100] * b[100, 5]),
}
for name, c in mistakes.items():
    print(f"{name:34} {by_article(c):.1e}  {'passes' if by_article(c) < 1e-2 else 'refused'}")

# %% [markdown]
# All of them pass, the tile of a raced warp among them. 1e-3, which the article calls normal for FP32, lies between
# TF32's error and BF16's. And "one bad element dominates the maximum" is true only of an element that is very bad:
# wrong by more than a hundredth of the largest one. A missing term is less than that.

# %% [markdown]
# ## 2. The right unit
#
# How wrong may an honest sum be? Every one of its K steps rounds, by up to u = 2⁻²⁴ of the sum so far. The roundings
# go up and down, and so do random terms: both are random walks. So the natural unit for an element's error is u·D,
# where D is the root of the sum of its squared terms. Unlike `max|reference|`, each element has its own D, and it does
# not vanish where positive and negative terms cancel.


# %%
def in_units(c, a, b):
    """rms of the error of a @ b in u·D."""
    d = np.sqrt(np.square(a.astype(np.float64)) @ np.square(b.astype(np.float64)))
    error = (c - a.astype(np.float64) @ b.astype(np.float64)) / (precision.UNIT_ROUNDOFF * d)
    return np.sqrt(np.mean(np.square(error)))


rows = []
for terms in (64, 256, 1024, 4096):
    few, many = a[:16, :terms], b[:terms, :512]
    fp32 = in_units(summed(few, many), few, many)
    tf32 = in_units(summed(rounded(few, 11), rounded(many, 11)), few, many)
    bf16 = in_units(summed(rounded(few, 8), rounded(many, 8)), few, many)
    limit = precision.rms_limit(terms)
    law = fp32 / terms**0.5
    rows.append({"K": terms, "FP32": fp32, "FP32 / √K": law, "limit": limit, "TF32": tf32, "BF16": bf16})
pd.DataFrame(rows).set_index("K").round(2)

# %% [markdown]
# In this unit formats separate. A sequential FP32 sum has an rms error of about 0.30·√K on zero-mean data; TF32 and
# BF16 have constants, and even at the largest K they stand at dozens of times the limit. The limit is four times what
# the plain sum has, so that an unlucky draw, or another honest order of additions, is not refused. This is the gate's
# stage `precision`.

# %% [markdown]
# ## 3. Questions with one right answer
#
# Precision is a matter of statistics. Structure is not: a missing term, a stale tile or a wrong index should not be
# within any tolerance. Articles say never to test for equality, since FP32 additions round and their order changes the
# result. But integers do not round while they are small. Choose A and B so that the sum of |a·b| is at most 2²⁴ for
# every element: then each partial sum, in every order, is an integer that FP32 holds exactly.

# %%
shape = worklog.Shape(m, 512, k)
ia, ib = exact.family("E1", shape, rng)
largest = (np.abs(ia) @ np.abs(ib)).max()
print(f"K = {k}: integers up to {np.abs(ia).max():.0f}; largest sum of |a·b| {largest:.0f}, 2^24 = {2**24}")

# %% [markdown]
# The same product in five orders, on these integers and on the real data from above. How many elements differ from the
# plain order?

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
    integers, floats = multiply(ia, ib) != plain, multiply(a, real) != unbiased[:, :512]
    print(f"{name:14} integers: {integers.sum()} of {plain.size} differ, real data: {floats.mean():4.0%}")

# %% [markdown]
# On integers they agree in every element, at the size that is timed, without any tolerance. The dense family, E1, has
# too few bits to notice a format that keeps eight or eleven. So two others have long operands on one side and ±1 on the
# other: long A in E2, long B in E3. Which family sees what?


# %%
def wrong(family, mistake):
    """How many elements are wrong, for one family and one way to be wrong."""
    x, y = exact.family(family, worklog.Shape(m, 128, k), np.random.default_rng(1))
    right = x.astype(np.float64) @ y.astype(np.float64)
    return np.count_nonzero(mistake(x, y) != right)


def short_accumulator(x, y):
    """Partial sums of 512 terms, kept in FP16."""
    total = np.zeros((len(x), y.shape[1]), np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, k, 512):
            total += (x[:, start : start + 512] @ y[start : start + 512]).astype(np.float16)
    return total


# %%
ways = {
    "TF32 operands": lambda x, y: rounded(x, 11) @ rounded(y, 11),
    "TF32 for B only": lambda x, y: x @ rounded(y, 11),
    "BF16 operands": lambda x, y: rounded(x, 8) @ rounded(y, 8),
    "FP16 accumulator": short_accumulator,
    "last term missing": lambda x, y: x[:, :-1] @ y[:-1],
    "first term twice": lambda x, y: x @ y + np.outer(x[:, 0], y[0]),
    "rows 0 and 1 swapped": lambda x, y: (x @ y)[[1, 0, *range(2, m)]],
}
pd.DataFrame({family: {name: wrong(family, way) for name, way in ways.items()} for family in exact.FAMILIES})

# %% [markdown]
# Zero in a cell means that this family cannot see this mistake; no row is all zeros. The gate asks all three, and on
# small ragged shapes too, with alpha and beta other than 1 and 0: most slips of an index are right on squares of a
# power of two.

# %% [markdown]
# ## 4. No product to compare with
#
# At 4096 the FP64 product is work, and a reference in the GPU's memory is something to steal. Neither is needed. For a
# vector x of integers, C·x must equal A·(B·x), and that is exact in FP64 as well. A wrong row of C survives two random
# vectors with a chance of one in 2³². From the other side, y·C finds the columns.

# %%
projection = exact.Projection.of(ia, ib, rng)
bad = spoiled(plain, 21, 300, 1)
print("right product, rows that cannot be right:", projection.wrong_rows(plain))
print("spoiled, rows:", projection.wrong_rows(bad), "columns:", projection.wrong_columns(bad))
saved = 2 * 4096**3 / (2 * 3 * 2 * 4096**2)
print(f"operations of a product at 4096, over those of two projections: {saved:.0f}")

# %% [markdown]
# One element of all is wrong, by 1, and the gate knows which.

# %% [markdown]
# ## 5. The zoo
#
# Now kernels. This one is right: shared-memory tiles with every bound checked.

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
    """The gate's word. The seed is fixed so that this page can be checked; leave it out, and nobody knows it."""
    kernel = Kernel.from_source(source, file="tiles.cu", grid="(N + 15) // 16, (M + 15) // 16", block="16,16")
    return check(kernel, worklog.Shape(144, 72, 37), seed=4)


accepted = gate(RIGHT)
print(accepted.label)
for stage in accepted.verdict.stages:
    print("passed" if stage.passed else "failed", stage.name)

# %% [markdown]
# Two of the stages are new. Launches on the same integers must agree *bit by bit*, or the kernel races. And `products`
# refuses nothing: it tells whether FP32's products were put together from several shorter ones, as some libraries do.
#
# The next kernels are wrong. Each has one small slip, of the kind that everybody has made.

# %%
TF32 = "__uint_as_float((__float_as_uint({}) + 0x1000u) & 0xffffe000u)"
slips = {
    "the first barrier is missing": ("__syncthreads();  // complete", ""),
    "the second barrier is missing": ("__syncthreads();  // read", ""),
    "the last term is missing": ("k0 + x < K", "k0 + x < K - 1"),
    "the last K tile is missing": ("k0 < K; k0", "k0 + 16 <= K; k0"),
    "the last column is not written": ("col >= N)", "col >= N - 1)"),
    "it writes behind C": ("if (row >= M || col >= N) return;", ""),
    "it reads behind A": ("row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f", "A[row * K + k0 + x]"),
    "M and N are mixed up": ("row >= M || col >= N", "row >= N || col >= M"),
    "beta is ignored": ("beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col]", "alpha * acc"),
    "C is added to": ("= beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col]", "+= alpha * acc"),
    "TF32 operands": ("As[y][k] * Bs[k][x]", f"{TF32.format('As[y][k]')} * {TF32.format('Bs[k][x]')}"),
}

# %%
refused = {name: gate(RIGHT.replace(*slip)) for name, slip in slips.items()}
for name, checked in refused.items():
    word = str(checked.verdict).splitlines()[0]
    print(name, *textwrap.wrap(word, 78), sep="\n    ")

# %% [markdown]
# Each refusal says at which stage, and most say what the bug is. On the emulator a race is found in the addresses,
# before it has spoiled any result. On a GPU it must show: in the exact stages, or when twenty launches do not agree bit
# by bit. `worklog check --emulate` looks for it in any case.

# %% [markdown]
# ## 6. The whole zoo, and who else would notice
#
# The package keeps a collection of wrong kernels, of slips like these and of cheats, and some right ones that a gate is
# tempted to refuse. `worklog gate --exploits` puts all of them to this gate, and to the comparisons that other
# harnesses and leaderboards make, each on inputs of its own kind. Its table comes with the package:

# %%
from worklog.peers.exploits import open_exploits

zoo = open_exploits()
print(f"{zoo.label} · {len(zoo.seeds)} seeds each\n{zoo.summary}")
bad, good = zoo.of(wrong=True), zoo.of(wrong=False)
scores = {
    (peer["name"], peer["words"]): {
        f"passes, of {len(bad)} wrong": sum(peer["name"] in row.passed_by for row in bad),
        f"refuses, of {len(good)} right": sum(peer["name"] in row.refused_by for row in good),
    }
    for peer in zoo.peers
}
pd.DataFrame(scores).T.rename_axis(["who", "what is compared"])

# %% [markdown]
# A loose tolerance passes many wrong ones. The strictest pass none, and refuse nearly every right one: section 8 says
# why. None of them gets both columns to zero. Those that fool the most, and what stops them here:

# %%
for row in sorted(bad, key=lambda row: -len(row.passed_by))[:6]:
    told = f"{len(row.passed_by)} of {len(zoo.peers)} pass “{row.title}”: {row.how}"
    print(*textwrap.wrap(told, 78), f"here {row.verdict}", sep="\n    ")

# %% [markdown]
# How many each stage caught; what one stage catches on one seed and another on the next counts at both. A kernel that
# dies at its launch is never asked for its precision, so the order matters. A stage that is not named had nothing left
# to catch here: it stands behind another. A test of this package takes each stage away in turn, and then something gets
# through.

# %%
for kind in dict.fromkeys(row.kind for row in zoo.rows):
    caught = pd.Series([stage for row in zoo.rows if row.kind == kind for stage in row.stages]).value_counts()
    told = f"{kind}s: " + ", ".join(f"{stage} {count}" for stage, count in caught.items())
    print(*textwrap.wrap(told, 78), sep="\n    ")

# %% [markdown]
# ## 7. Where, which is what
#
# A refusal carries a map of C. Only a column, only a tile, every sixteenth row: the shape of the hole is the bug.

# %%
column = refused["the last column is not written"]
plots.tile_map(column.verdict.where, column.label)

# %% [markdown]
# A slip that happens only at the size that is timed, in one warp's tile, so that no ragged shape sees it:

# %%
late = "if (row / 32 == 1 && col / 32 == 1 && M == 144) acc -= A[row * K + 9] * B[9 * N + col];\n  C[row"
tile = gate(RIGHT.replace("C[row", late, 1))
print(*textwrap.wrap(str(tile.verdict), 80), sep="\n")
plots.tile_map(tile.verdict.where, tile.label)

# %% [markdown]
# ## 8. What a gate must never refuse
#
# A gate that cries wolf is switched off. The tolerance that looks strict is the worst: `allclose(rtol=1e-5,
# atol=1e-8)` is the default of more than one harness, and honest FP32 does not pass it, because an element near zero
# has no relative accuracy.

# %%
close = np.isclose(unbiased, reference, rtol=1e-5, atol=1e-8)
print(f"honest FP32 at K = {k}: {np.count_nonzero(~close)} of {close.size} elements fail allclose(1e-5, 1e-8)")

# %% [markdown]
# And these kernels are right, though one adds in another order and the other multiplies an old C by a beta of 0:

# %%
others = {
    "backwards": ("k = 0; k < 16; ++k", "k = 15; k >= 0; --k"),
    "0 times C": ("beta == 0.0f ? alpha * acc : ", ""),
}
for name, change in others.items():
    print(f"{name:12} {gate(RIGHT.replace(*change)).verdict}")

# %% [markdown]
# On integers even atomics give the same bits in every launch. So the gate may ask for equal bits there, and nowhere
# else: on real data it would refuse right kernels.

# %% [markdown]
# ## 9. Every time has its verdict
#
# Passing an exam is not enough either: a kernel might know when it is examined. So each *timed* launch gets inputs that
# were never there before, and its output is looked at, by projections as in section 4, right behind the event that ends
# it ([02_the_ruler](02_the_ruler.ipynb) shows where in the loop). After that come two questions about the time itself:
# is it possible at all, and does a second clock of the GPU, read around the events, leave the kernel as much time for
# what is not timed as it leaves cuBLAS? After a host function, a library or a Python function that launches for itself,
# the whole GPU must be idle when the launch is over: work on a stream that it doesn't join is found. A host function is
# trusted not to tamper with the process that times it. Mistakes and the known ways to fool a benchmark are caught; code
# that rewrites the harness is not. What the gate found is kept with each measurement, margins included:

# %%
print(run.label)
for stage in run.measurements[0].verdict["stages"]:
    print(stage["name"], *textwrap.wrap(stage["detail"], 78), sep="\n    ")

# %% [markdown]
# And as a picture, at the article's size, with what its rule would let through:

# %%
plots.DIAGRAMS["diagram_7_gate"](worklog.results(["warptiled", "cuBLAS"], [4096]))

# %% [markdown]
# ## Exercises
#
# 1. Why does E3 not notice "rows 0 and 1 swapped" less often than E1 and E2? Its A holds nothing but ±1, so half of the
#    products of two rows agree by chance.
# 2. Find a slip in `RIGHT` that is right for every square size that is a multiple of 16. Which stage sees it?
# 3. A kernel notices that its inputs are integers and computes exactly then, in TF32 otherwise. Which stage refuses it?
#
# <details><summary>Answers</summary>
#
# 1. An element is a sum of thousands of products. That two different sums agree is rare, whatever the chance that two
#    products do.
# 2. They are in the list above: the last K tile, M and N mixed up, and the missing bounds. Ragged shapes betray them
#    all: by a wrong element, or already at the launch, by an address outside.
# 3. `precision`, which looks at the real data that is timed, and `every timed launch`, which looks at each of them.
#
# </details>
#
# **Where next:** [05_climbing_the_ladder](05_climbing_the_ladder.ipynb): kernels that pass, one idea after the other.
