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
# **Goal:** this page takes apart the check that every kernel passes before it is timed. You see why the usual tolerance
# passes wrong kernels, and what a check must do to fail every wrong kernel and no right one.

# %%
import worklog
from worklog import lab, plots

plots.DIAGRAMS["diagram_7_gate"](worklog.results(["warptiled", "cuBLAS"], [4096]))

# %% [markdown]
# Sections 1 to 3 explain the stages of this picture. No cell needs a GPU; with one, the kernels of section 4 run on it.
#
# ## 1. The usual rule passes wrong results
#
# The article's rule is one line: the largest error, divided by the largest element of the reference, must be below
# 1e-2. (Five other rules of section 5 also allow 1e-2, as an absolute error or relative to each element.) Here is a
# sequential FP32 sum at K = 4096, and four mistakes: operands in two shorter formats, a wrong factor, and a missing
# term. (`in_order` adds one product after the other, so that it gives the same bits on every CPU, which NumPy's `@`
# doesn't.)

# %%
import numpy as np
import pandas as pd

from worklog.gate import exact, precision
from worklog.kernel.tensor_products import in_order, rounded
from worklog.problem import random_inputs

rng, K = np.random.default_rng(4), 4096
a, b = random_inputs(worklog.Shape(64, 2048, K), rng)
reference, fp32 = in_order(a, b, np.float64), in_order(a, b)
typical = np.argsort(np.abs(a[:32]).max(0) * np.abs(b[:, 32:64]).max(1))[
    K // 2
]  # the median of the K terms
term = np.outer(a[:, typical], b[typical])
mistakes = {
    "FP32, nothing wrong": fp32,
    "TF32 or FP16 operands": in_order(rounded(a, 11), rounded(b, 11)),
    "BF16 operands": in_order(rounded(a, 8), rounded(b, 8)),
    "everything x 1.001": fp32 * np.float32(1.001),
    "a raced warp tile lacks one term": fp32 - np.pad(term[:32, 32:64], ((0, 32), (32, 1984))),
}
for name, c in mistakes.items():
    error = np.abs(c - reference).max() / np.abs(reference).max()
    print(f"{name:34} {error:.1e}  {'passes' if error < 1e-2 else 'fails'}")

# %% [markdown]
# All of them pass, even a warp tile with a race. The error of FP32 is hundreds of times smaller than the 1e-3 that the
# article calls normal; 1e-3 lies between the errors of TF32 and BF16.
#
# ## 2. The right unit
#
# Each of the K steps of a sum rounds by up to u = 2⁻²⁴ of the partial sum. Rounding errors go up and down, and so do
# random terms: both are random walks. So the natural unit for the error of an element is u·D, where D is the square
# root of the sum of its squared terms. Unlike `max|reference|`, D belongs to one element, and it doesn't vanish where
# positive and negative terms cancel. In this unit, the root mean square of the error is:

# %%
rows = {}
for k in (64, 256, 1024, 4096):
    x, y = a[:16, :k], b[:k, :512]
    unit = precision.UNIT_ROUNDOFF * np.sqrt(in_order(x * x, y * y, np.float64))
    errors = [
        (in_order(rounded(x, n), rounded(y, n)) - in_order(x, y, np.float64)) / unit
        for n in (24, 11, 8)
    ]
    rms = [np.sqrt(np.mean(error**2)) for error in errors]
    rows[k] = [rms[0] / k**0.5, precision.rms_limit(k), *rms]
pd.DataFrame(rows, ["FP32 / √K", "limit", "FP32", "TF32", "BF16"]).T.round(2)

# %% [markdown]
# The formats separate. A sequential FP32 sum of zero-mean data has an rms error of about 0.30·√K. The errors of TF32
# and BF16 are constants, 54 and 436 times the limit even at the largest K. The limit is 4 more than four times the
# error of the sequential sum, so that neither an unlucky draw nor another order of additions fails. This is the stage
# `precision`.
#
# ## 3. Inputs with one right result
#
# Precision needs statistics. Structure doesn't: no tolerance should pass a missing term, a stale tile or a wrong
# index. Choose A and B as integers so small that the sum of |a·b| is at most 2²⁴ for every element. Then every partial
# sum, in every order, is an integer that FP32 holds exactly. So any order of additions gives the same bits,
# and the gate compares bit by bit. (On the random data above, another order changes nearly every element.)
#
# The dense family of such inputs, E1, has too few bits to show a format that keeps 8 or 11. So two more families have
# odd numbers of 12 bits on one side and ±1 on the other: A in E2, B in E3. How many elements does a mistake change?

# %%
for family in exact.FAMILIES:
    x, y = exact.family(family, worklog.Shape(64, 128, K), rng)
    ways = {
        "TF32 for A": rounded(x, 11) @ y,
        "TF32 for B": x @ rounded(y, 11),
        "last term missing": x[:, :-1] @ y[:-1],
    }
    print(family, {name: int(np.sum(c != x @ y)) for name, c in ways.items()})

# %% [markdown]
# A zero means that this family can't show this mistake. The gate uses all three, and small edge shapes with alpha and
# beta other than 1 and 0: many an index error gives the right result on squares of a power of two.
#
# At 4096 an FP64 product takes long, and a kernel could copy a reference that lies in the GPU's memory. So there the
# gate uses projections. For a vector x of integers, C·x must equal A·(B·x), and in FP64 both sides are exact. A wrong
# row of C passes two random vectors with a probability of 2⁻³²; in the same way, y·C finds wrong columns. Here one
# element of 32,768 is wrong by 1:

# %%
ia, ib = exact.family("E1", worklog.Shape(64, 512, K), rng)
projection, bad = exact.Projection(exact.ExactProblem("E1", ia, ib), rng), ia @ ib
print("right product: wrong rows", projection.wrong_rows(bad))
bad[21, 300] += 1
print(
    "spoiled product: wrong rows",
    projection.wrong_rows(bad),
    "wrong columns",
    projection.wrong_columns(bad),
)

# %% [markdown]
# A check has these stages, and names those that passed in one line:
#
# | stage | what must hold |
# |---|---|
# | exact on edge shapes | bit-equal integers at shapes that tiles don't divide, with several alpha and beta |
# | kept state | (variables that launches keep) right in the first and in up to 4,097 launches after loading |
# | changed inputs at the same addresses | (the same kernels, host functions) no kept result is returned for other inputs |
# | alpha, beta and C of 24 bits | none of the three is rounded to a shorter format |
# | exact at the benchmark shape | bit-equal integers of E1, E2 and E3, by projections, at the shape that is timed |
# | bit-equal when repeated | more launches on the same integers give the same bits; a race may not |
# | products | each single product keeps its 24 bits; else a note |
# | precision | the error on random data is within the limits of the class, in u·D |
# | hard data | large beside small numbers, cancellation, infinities and NaN give what FP32 gives |
# | just below the benchmark shape | the last rows and columns are right where the shape ends inside a tile |
# | C of NaN, beta = 0 | the old C doesn't reach the result |
# | A and B of NaN, alpha = 0 | beta C, or NaN as in FP32, which the verdict's line names |
# | alignment | right for matrices that don't begin at an allocation's start |
# | leading dimensions | (lda, ldb, ldc) right with longer rows and NaN behind them |
# | approximations one ulp off | (emulator) right with div.approx and others one ulp above and below |
# | corners | right where one of M, N and K is at its least and the others at their most; at the least K with NaN and shifted matrices |
# | each size | (not with --quick) right at every stated size of one axis, beside tiny sizes of the others; at random pairs of M and N |
# | far blocks | (emulator) blocks at the corners of C are as precise with M, N and K at their largest, and for some K |
# | limits | (emulator) none: a note names the sizes beyond which the kernel can't be right |
# | rare paths | (emulator) right in launches that take branches which no other launch took |
# | values of sizes | (emulator) right for the values that several sizes decide together, such as M * N / 630000 |
# | array bounds | (with the extra `[bounds]`) no access leaves an array in local or shared memory |
#
# On the emulator, every launch of every stage is also checked for races, accesses out of bounds and uninitialized
# reads; the last line with a mark says so, or what was found.
#
# ## 4. Five wrong kernels
#
# This kernel is right: shared-memory tiles with a check of every bound. Each of the five has one small, common mistake.

# %%
RIGHT = """\
// grid: (N + 15) / 16, (M + 15) / 16
// block: 16, 16
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

slips = {
    "the second barrier is missing": ("__syncthreads();  // read", ""),
    "the last K tile is missing": ("k0 < K; k0", "k0 + 16 <= K; k0"),
    "the last column is not written": ("col >= N)", "col >= N - 1)"),
    "it reads past A": (
        "row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f",
        "A[row * K + k0 + x]",
    ),
    "TF32 operands": (
        "As[y][k] *",
        "__uint_as_float((__float_as_uint(As[y][k]) + 0x1000u) & 0xffffe000u) *",
    ),
}

# %%
import textwrap

from worklog.runner.check import check

checks = {}
for name, slip in {"right": ("", ""), **slips}.items():
    kernel = worklog.Kernel.from_source(RIGHT.replace(*slip), file="tiles.cu")
    checks[name] = check(
        kernel, worklog.Shape(144, 72, 37), seed=4
    )  # by default, a seed is drawn at random
    print(name, *textwrap.wrap(str(checks[name].verdict).splitlines()[0], 78), sep="\n    ")

# %% [markdown]
# Each verdict names the stage, and most name the bug. The emulator finds a race from the addresses, even if no result
# is wrong. On a GPU a race must change a result: in the exact stages, or in one of 20 launches on the same integers
# that must give the same bits. `worklog check --emulate` always looks for races on the emulator. A failed verdict also
# has a map of the errors in C. The pattern points to the bug:

# %%
plots.tile_map(checks["the last column is not written"].verdict.where, checks["right"].label)

# %% [markdown]
# ## 5. Which other checks find them
#
# The package has a collection of wrong kernels, with mistakes like these and known ways to fool a benchmark, and of
# right kernels that other checks fail. `worklog exploits` runs all of them through this gate and through the
# comparisons of other harnesses and leaderboards, each on inputs of its own kind:

# %%
from worklog.peers.exploits import open_exploits

exploits = open_exploits()
print(f"{exploits.label} · {len(exploits.seeds)} seeds each\n{exploits.summary}")
scores = {peer["name"]: exploits.score(peer["name"]) for peer in exploits.peers}
pd.DataFrame(scores, ["wrong kernels that it passes", "right kernels that it fails"]).T

# %% [markdown]
# A loose tolerance passes many wrong kernels, and the strictest checks fail nearly every right one: most elements that
# fail `allclose(rtol=1e-5, atol=1e-8)` are near zero, where terms cancel and keep the rounding errors of large terms.
# The article says that its rule catches a race instantly. Of the two kernels here that lack a barrier it fails one and
# passes the other: it sees a race only where a result is wrong by more than one hundredth of the largest element.
#
# ## 6. Every shape at once
#
# A launch tests one shape, and the verdict states which shapes were launched. `worklog check FILE.cu --prove` also
# reasons about all others. It executes the compiled PTX once, with unknown sizes, block and thread. A register is then
# a polynomial such as row * K + k, and the solver z3 decides whether it can leave its matrix, and whether two threads
# can meet at one address between two barriers. A loop isn't unrolled: its registers grow by a constant step, and its
# condition bounds the number of iterations. The verdict keeps "tested" and "proved" apart. The extra `[proof]` installs
# z3. `python -m tests.record.proofs`, in a checkout, makes this table:

# %%
import json

from worklog.runs import recordings

proofs = json.loads([*recordings("proofs").values()][-1].read_text(encoding="utf-8"))
print(f"{proofs['utc'][:10]} · {proofs['label']}")
table = pd.DataFrame(proofs["rows"]).set_index("rung")
table["claims"] = table["claims_proved"].astype(str) + " of " + table["claims"].astype(str)
table[["proved", "claims", "seconds", "reason"]]

# %% [markdown]
# The table covers the sizes in each rung's domain up to 2^30, with a grid that a GPU accepts. It stops at
# `async_copies`: an asynchronous copy writes shared memory later, when its group is waited for, and the proof has no
# model of that. The three rungs after it also order their copies by mbarriers. A proof says nothing of the values in C:
# the launches test those.
#
# ## 7. Every time has its verdict
#
# A kernel could behave differently while it is timed. So each *timed* launch gets new inputs, and the gate checks its
# output with projections, behind the event that ends it ([12_the_harness](12_the_harness.ipynb) shows where). A last
# stage checks the time itself: is it above the least time that the hardware allows? Each measurement keeps its verdict,
# with the margins of the picture above.
#
# `products` fails no kernel. It reports whether each FP32 product was composed of several shorter ones. `hard data`, on
# the emulator and in newer runs, gives each row and column a scale of its own, from 2^-60 to 2^60, and fails a kernel
# on tensor cores with one scale for several rows.
#
# A *host function* is a Python function or a library that launches GPU work itself. It is trusted not to tamper with
# the process that times it. The gate catches mistakes and the known ways to fool a benchmark, but not code that
# rewrites the harness.

# %% [markdown]
# ## Graded exercise
#
# Write a wrong kernel that the article's rule passes and the gate fails. Start from `RIGHT` and change as little as you
# can. The emulator runs both checks. The article's rule gets the results alone, as on a GPU, and none of the findings.

# %%
answer = None  # the source of a kernel, such as RIGHT.replace(…)
lab.check_answer("14", answer)

# %% tags=["solution"]
answer = RIGHT.replace(
    "alpha * acc :", "1.001f * alpha * acc :"
)  # or one term of many that is missing
lab.check_answer("14", answer)

# %% [markdown]
# ## Exercises
#
# 1. The A of E3 holds only ±1, so half of the products of two rows agree by chance. Why would E3 still find that
#    two rows are swapped?
# 2. Find a mistake in `RIGHT` that gives the right result for every square size that is a multiple of 16. Which stage
#    finds it?
# 3. A kernel detects integer inputs and computes exactly then, and in TF32 otherwise. Which stage fails it?
# 4. Leave out one barrier of `RIGHT`. Why does the article's rule fail it in the graded exercise, and what may it do on
#    a GPU?
#
# <details><summary>Answers</summary>
#
# 1. An element is a sum of thousands of products. Two different sums rarely agree, even if half of their products do.
# 2. Two are in the list above: the last K tile and the missing bound. Edge shapes show both, by a wrong element or by
#    an access outside a matrix at the launch.
# 3. `precision`, which uses the random data that is timed, and `every timed launch`, which checks each timed output.
# 4. The emulator runs one warp up to a barrier, then the next one. So a warp multiplies before the others have stored
#    their parts of the tile, or after the next tile is there. On a GPU, warps run side by side, and few results or none
#    are wrong: section 5 has one such kernel that the rule passes and one that it fails.
#
# </details>

# %% [markdown]
# ## Appendix: mutants
#
# A collection holds only the mistakes that somebody thought of. `python -m tests.record.mutants`, in a checkout of this
# project, makes mistakes at random. It edits one place of a rung: an operator, an index, a bound, a barrier, a stride,
# the trips of a loop, a type, the buffer that is read. Then it puts the mutant through the gate on the emulator.
#
# Each mutant is tried at two tiles, a small one and the rung's own, because some edits change nothing at one of them:
# where BM equals BN, either name is right. The mutant is killed if the gate fails it at one tile. It is equivalent if
# its machine code is the original's at both. The inputs and the effort are those of `worklog check --quick`. The full
# check then looks at survivors: the table says at how many. `finding` is a race, an access out of bounds or another
# mistake that the emulator reports. The rungs are also checked without an edit, at both tiles: none may fail.

# %%
mutants = json.loads(recordings("mutants")["ladder"].read_text(encoding="utf-8"))
results = pd.DataFrame([row["results"] for row in mutants["rows"]]).sum().astype(int)
killed, survivors = mutants["killed"], mutants["survivors"]
in_full = sum(mutant["effort"] == "full" for mutant in survivors)
print(f"{mutants['utc'][:10]} · {mutants['label']} · seed {mutants['seed']}")
print(f"{results.sum()} mutants of {len(mutants['rows'])} kernels, {killed['all']} killed")
print(f"  at the rung's own tile only: {killed['at the own tile only']}")
print(f"  by the full check only: {killed['by the full check only']}")
print(f"{len(survivors)} survived, {in_full} of them checked in full")
unedited = mutants["unedited"]
print(f"{unedited['checks']} checks without an edit, {len(unedited['refused'])} failed")
print(results.sort_values(ascending=False).to_string())

# %% [markdown]
# A mutant that survives shows a hole in the gate, unless its results are the original's. Each survivor was looked at.
# These are the reasons, with the number of mutants that each one explains. A hole would be named as such. The last
# line leaves out the mutants that don't compile, and the equivalent ones:

# %%
reasons = pd.Series([mutant["explained"] for mutant in survivors], dtype=str).value_counts()
for reason, number in reasons.items():
    print(f"{number:3} {reason}")
holes = sum(number for reason, number in reasons.items() if reason.startswith("hole: "))
print(f"killed: {killed['all']} of {killed['all'] + holes}, ", end="")
print(f"{killed['all'] / (killed['all'] + holes):.1%}")

# %% [markdown]
# A gate that fails every kernel kills every mutant, too. So right kernels in the styles of textbooks, blogs, libraries
# and contests get the full check: `python -m tests.record.right_kernels`. None of them is a rung.

# %%
right = json.loads(recordings("right_kernels")["verdicts"].read_text(encoding="utf-8"))
verdicts = pd.Series([row["verdict"] for row in right["rows"]]).value_counts()
print(f"{right['utc'][:10]} · {right['label']} · seed {right['seed']}")
print(f"{len(right['rows'])} right kernels, {verdicts.get('refused', 0)} refused")

# %% [markdown]
# Others also plant bugs. The suite [Indigo3](https://github.com/burtscher/Indigo3Suite) generates graph programs with
# and without them. `python -m tests.record.indigo` launches its breadth-first searches (BFS) and connected components
# (CC) on the emulator. The suite marks the line of each bug. A program without a planted bug may have a real error,
# which was looked at: a flag in shared memory is reset while another thread may still read it.

# %%
indigo = json.loads(recordings("indigo")["bfs_and_cc"].read_text(encoding="utf-8"))
print(f"{indigo['utc'][:10]} · {indigo['label']} · {indigo['repository']} {indigo['commit'][:8]}")
planted = pd.DataFrame(indigo["rows"]).replace({"bug": {"": "none"}})
planted = planted.set_index(["algorithm", "bug"])
planted[["programs", "with errors", "at the marked line", "real errors"]]

# %% [markdown]
# The same by kind of edit:

# %%
by_kind = {}
for row in mutants["kinds"]:
    others = {
        name: row["results"].get(name, 0) for name in ("survived", "same code", "does not compile")
    }
    rest = sum(row["results"].get(name, 0) for name in ("time limit", "original failed"))
    not_killed = sum(others.values()) + rest
    by_kind[row["kind"]] = {"mutants": row["mutants"], "killed": row["mutants"] - not_killed}
    by_kind[row["kind"]] |= others
pd.DataFrame(by_kind).T.sort_index()

# %% [markdown]
# An earlier run tried 24 edits of each rung and of small right kernels, at one tile and with fewer rules. These are
# its results for the kernels that the table above leaves out:

# %%
earlier = json.loads(recordings("mutants")["2026-11-27"].read_text(encoding="utf-8"))
names = {row["kernel"] for row in mutants["rows"]}
others = [row for row in earlier["rows"] if row["kernel"] not in names]
counts = pd.DataFrame([row["results"] for row in others]).sum().astype(int)
print(
    f"{earlier['utc'][:10]} · {earlier['label']}: {counts.sum()} mutants of {len(others)} kernels"
)
print(counts.sort_values(ascending=False).to_string())

# %% [markdown]
# **Where next:** [04_one_idea_a_picture](04_one_idea_a_picture.ipynb) shows kernels that pass, one idea after the
# other.
