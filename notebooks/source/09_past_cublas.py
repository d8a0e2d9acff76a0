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
# # Past cuBLAS on FP32 lanes
#
# `warptiled` does as well as cuBLAS. Here are seven more ideas. Not all of them pay. One costs 7 % and makes the
# next ideas possible. Which one? Bet on each step before you see what was measured.

# %%
from IPython.display import display

import worklog
from worklog import lab, plots

NAMES = ("warptiled", "lane_map", "async_copies", "barriers", "specialized", "bulk_copies")
lab.timeline("warptiled")

# %% [markdown]
# This is where we start: a timeline of what the warps of one block copy, multiply and wait for, as the emulator
# executed it. It is an order, not a time. Each rung has one, since the floors are no help here: no rung has fewer
# multiply-adds than `warptiled`, and they are its floor, so the floors say 1 at each step. What is left to gain is the
# time in which an SM issues something else, or nothing.
#
# All four warps do the same. Each fetches the next tile to registers as it begins to multiply, and stores it to shared
# memory at the end, before the one wait per tile. The next tables say what the emulator counts per multiply-add of a
# warp, and what the disassembler finds in the main loop: the share of multiply-adds, the registers that each reads from
# the register file, and how many of them read two from one bank.
#
# **New concepts:** lane maps, asynchronous copies, stages, mbarriers, copying warps, bulk copies, a last wave that
# fills no GPU, equal shares.

# %%
lab.counts(*NAMES)

# %%
lab.register_reads(*NAMES)

# %% [markdown]
# ## 13. Lane map
#
# Only which lane takes which quads changes. In `warptiled`, lanes l and l ^ 1 read the same quad of B. Here, four
# neighbouring lanes read four different ones, which takes more wavefronts. Wavefronts aren't the limit, so does the
# kernel notice?

# %%
lab.bet("lane_map")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 0.996 times as fast: no difference that counts.
#
# </details>

# %%
from worklog.viewer.accesses import access

display(lab.diff("warptiled", "lane_map", hunks=[1]))
plots.ownership(access("lane_map"))

# %%
lab.timeline("lane_map")

# %% [markdown]
# The order is that of `warptiled`: only addresses differ.

# %%
from story.tables import waits

display(lab.steps("warptiled", "lane_map"))
waits("warptiled", "lane_map")

# %% [markdown]
# **What we believed:** the step shows a cost of loads that the floor doesn't have, how long a load that lanes share
# keeps the multiply-adds waiting. **What happened:** at most 0.6 % at each size, and not always in the same direction.
# And the table of registers above shows a second change: ptxas allocates other registers, and the share of
# multiply-adds that read two of them from one bank falls from 23 to 1 %. The warps show both effects, and they have
# opposite signs: shared memory and its queue take 11 % of their cycles instead of 2, and register operands 3.5 %
# instead of 7.5. So the step has the cost of loads. A gain of registers hides half of it, and the other warps, which
# are ready less long, the rest.
#
# ## 14. Asynchronous copies
#
# `cp.async` copies from global to shared memory without a register in between. Several tiles, called stages, are
# under way at once. A is transposed on the way, which needs copies of 4 bytes. A tile may arrive several tiles' time
# after it was requested, so nobody should wait for it. What is that worth?

# %%
lab.bet("async_copies")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 0.929 times as fast: slower.
#
# </details>

# %%
lab.diff("lane_map", "async_copies", hunks=[5, 6, 9])

# %%
lab.timeline("async_copies")

# %% [markdown]
# Four tiles are requested before the first one is multiplied, and no store from registers is left. There is still one
# wait per tile, for the copies and for all warps.

# %%
lab.steps("lane_map", "async_copies")

# %% [markdown]
# **What we believed:** nobody waits any more, so it is faster. **What happened:** 6 to 7 % slower. Every 4 bytes of A
# need an instruction and an address, so the share of multiply-adds in the loop falls from 92 to 88 %. And warps wait
# more for shared memory: 13 % of their cycles instead of 8, which leaves more issue slots empty (81 % used instead of
# 84, at 4096). (The tile changes, too: it is 8 deep now. Two blocks still fit on an SM.)
#
# ## 15. Full and empty
#
# `__syncthreads` stops all warps of a block once per tile. Now each stage has two mbarriers: copies arrive at `full`,
# and warps that have left the stage arrive at `empty`. A warp waits for a slower one only if that one is more than a
# tile behind. Does that make up for the copies?

# %%
lab.bet("barriers")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 1.02 times as fast.
#
# </details>

# %%
lab.diff("async_copies", "barriers", hunks=[2, 4, 5])

# %%
lab.timeline("barriers")

# %% [markdown]
# Now there are two waits per tile: for `full` before it is multiplied, and for `empty` before a copy. The request is
# one tile less ahead, so that `empty` is about a tile that was left a whole tile ago.

# %%
lab.steps("async_copies", "barriers")

# %% [markdown]
# **What happened:** 2 % faster at the smaller sizes, 1 % slower at 8192. The mbarriers and their addresses take
# instructions, and the share of multiply-adds falls again, to 82 %.
#
# ## 16. Copying warps
#
# So we move the copies out of the loop. Four warps copy and eight multiply. `setmaxnreg` moves registers from the
# former to the latter. The block's tile is 128 x 256, which needs fewer sectors per multiply-add: two ideas in one
# rung. Addresses and copies leave the loop of the multiplying warps. Four of twelve warps multiply nothing, though. Is
# it worth it?

# %%
lab.bet("specialized")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 1.1 times as fast.
#
# </details>

# %%
lab.source("specialized", "if (threadIdx.x < COPIERS) {", 15)

# %%
lab.timeline("specialized")

# %% [markdown]
# The rows of a block differ for the first time. Warps 4 to 11 multiply and wait once per tile, and nothing of theirs
# lies between two multiplications but that wait.

# %%
lab.steps("barriers", "specialized")

# %% [markdown]
# **What we believed:** the share of multiply-adds rises, and the speed with it. **What happened:** 10 % faster from
# 2048 on, and 93 % of the loop are multiply-adds. But which of the two ideas is it? Here is the rung with the tile of
# the one before:

# %%
lab.steps("barriers", "specialized BN=128", "specialized", sizes=[1024, 4096])

# %% [markdown]
# With 128 x 128, copying warps are 1 % *slower* at 4096. But only one such block fits on a multiprocessor, so four warps
# multiply there, where `barriers` has eight: half as many warps do 99 % of the work. The larger tile brings eight again.
# At 1024, where a multiprocessor has one block of either at most, copying warps pay by 13 %. There the larger tile halves
# the blocks, and loses more than that.
#
# A stage may be released only when no lane reads it any more. A mistake here may give a wrong result in few
# launches or none. The emulator follows what each thread knows to be complete, so it finds the mistake in one launch. Here is
# the kernel without one line at a time:

# %%
from worklog.runner.check import check

rung = worklog.rung("specialized")
for line in ("__syncwarp();", "wait(empty[stage], tile / STAGES % 2 ^ 1);"):
    print(f"without {line}")
    print(
        check(rung.with_text(rung.source.replace(line, "")), on="emulated", seed=1).verdict.reason
    )

# %% [markdown]
# ## 17. Bulk copies
#
# In rung 16, a copying thread issues 12 copies per tile. Now one instruction copies a row of B's tile, and A passes
# through registers, which transposes it. The loop of the multiplying warps stays as it is, and the copying warps take
# fewer of their issue slots. What is that worth?

# %%
lab.bet("bulk_copies")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# The floors say 1, and it was 1.03 times as fast.
#
# </details>

# %%
lab.diff("specialized", "bulk_copies", hunks=[9])

# %%
lab.timeline("bulk_copies")

# %% [markdown]
# The multiplying warps do what they did. Of the copying ones, each pair takes every other tile: it stores A's part,
# requests that of its next tile, and then copies B's.

# %%
lab.steps("specialized", "bulk_copies")

# %% [markdown]
# **What happened:** 3 % faster. At 2048 and 4096 this is the fastest FP32 rung, 10 and 8 % ahead of cuBLAS. At 4096,
# more than a third of that is the order of multiply-adds, which a word in the symbol keeps (rung 11). Without it:

# %%
lab.steps("bulk_copies, order not kept", "bulk_copies", sizes=[1024, 4096])

# %% [markdown]
# ## The last wave
#
# One block of `specialized` occupies an SM. If the number of blocks isn't a multiple of the number of SMs, some SMs
# have no block in the last wave. How much of the SMs' time is used, if all blocks take the same time?

# %%
import math

import pandas as pd

gpu, used = worklog.open_run().gpu, {}
sms = gpu.multiprocessors
for size in (1024, 2048, 4096, 8192):
    blocks = math.prod(rung.blocks(worklog.Shape.of(size)))
    used[size] = {
        "blocks": blocks,
        "waves": -(-blocks // sms),
        "used": f"{blocks / sms / -(-blocks // sms):.0%}",
    }
print(f"{sms} SMs: {gpu.name}")
pd.DataFrame.from_dict(used, orient="index")

# %% [markdown]
# ## 18. Equal shares
#
# `equal_shares` lets each block take an equal share of the steps along K of all tiles, so it computes parts of tiles,
# too. A second launch adds the parts. No SM is idle in the last wave any more: at 4096, that is up to 3 %. How much of
# it is left?

# %%
lab.bet("equal_shares")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor is known for it, and it was 0.99 times as fast.
#
# </details>

# %% [markdown]
# This is the third block of 132, in a product with few tiles along K:

# %%
few = worklog.Shape(768, 2560, 104)
lab.timeline("equal_shares", few, block=2)

# %% [markdown]
# The block ends a tile of C that another one began, and begins the next one while its copies go on. Both parts go to a
# workspace, since neither is a whole tile.

# %%
lab.steps("bulk_copies", "equal_shares")

# %% [markdown]
# **What we believed:** it gains what the last wave loses. **What happened:** 0.3 % faster at 8192, and slower at the
# other two sizes. At 2048, where every tile is in parts, 11 % is lost, but not in the product's launch. That does the
# multiply-adds of `bulk_copies` with FP32 cores that are as busy (83 and 82 %, below), so it takes as long. What is
# left of the time is the launch that adds the parts, and the gap before it. At 4096 it is the same: the product's
# launch takes no longer than `bulk_copies`. It moves 1.67 GB from and to DRAM, and `bulk_copies` 0.39 (Nsight Compute,
# 2026-11-27); the parts are at most 0.07 of the 1.67 GB. This rung also walks its tiles in bands of rows, which
# `bulk_copies` doesn't, so the step has two changes. At 2048, DRAM is 4 % busy.
#
# ## 19. Any shape
#
# `ragged` takes any shape: only its copying warps know about edges, and where rows don't begin at multiples of 16
# bytes, a first launch copies the matrix. At sizes of whole tiles, the source of its main loop is that of
# `equal_shares`. So what do edges cost where there are none?

# %%
lab.bet("ragged")

# %% [markdown]
# <details><summary>Your bet is placed? What was measured</summary>
#
# No floor is known for it, and it was 0.961 times as fast.
#
# </details>

# %%
lab.timeline("ragged", few, block=2)

# %% [markdown]
# The order is that of `equal_shares`, one step later: the shares are cut at other places.

# %%
lab.steps("equal_shares", "ragged")

# %% [markdown]
# **What we believed:** it takes the same time, since the loop is the same. **What happened:** the same
# time at 2048, and 4 % more at 4096 and 8192. At 4096 its FP32 cores are 81 % busy, and those of `equal_shares` 85 %:
# fewer issue slots are used (91 instead of 94 %), and fewer of them for multiply-adds.

# %%
waits("barriers", "specialized", "bulk_copies", "equal_shares", "ragged")

# %% [markdown]
# The warps of `equal_shares` wait for global memory in 14 % of their cycles, those of `bulk_copies` in 3 %. Its FP32
# cores are no less busy for that (85 and 84 %), since other warps issue meanwhile.
#
# What they taught: the SMs are used at 97 % at these sizes, so equal shares had 3 % to gain. They stay because rung 26
# is made of both: its blocks stay on their SMs, share out K only where tiles are few, and take any shape, and it is 1.9
# to 2.5 times as fast as the rung before.
#
# ## Every shape
#
# `best` takes any M, N and K. It chooses a tile, and a number of parts of K, by a table of measured times per tile;
# on compute capability 9.0, `bulk_copies` is among them. A small product has one block per multiprocessor or fewer,
# so no other block works while it waits for a copy: the kernel has 2 to 7 tiles of K under way, as rung 14 has 4. A is
# copied float by float, so its rows may begin anywhere. Where rows of B and C begin anywhere, B is copied float by
# float, too, and C passes through shared memory, so that neighbouring lanes store neighbouring floats. Where C is thin
# or small, a kernel of its own shares out K among the threads of a block, in one launch (`kernels/sliced.cu`). The
# table's times are of an H200 and an H100: cuBLAS and four rungs are recorded on both, and take 0.97 to 1.00 of the
# time on the H100 at 1024, 2048 and 4096. Here it is at 48 shapes that are drawn by a seed, each size from 1 to 8193.
# The table was not tuned at them. Most are small, and there cuBLAS is easy to beat. The rows below are of the long
# ones; `worklog run best --shapes 48` prints all:

# %%
from statistics import geometric_mean, median

from worklog.kernel.ladder.best import table
from worklog.problem import Shape
from worklog.problem.drawn_shapes import drawn

kinds = drawn(48, 42, table().shapes)
anywhere = worklog.results("best", [*kinds])
for name, least, most in (
    ("less than 5", 0, 5),
    ("5 to 20", 5, 20),
    ("20 or more", 20, float("inf")),
):
    group = [m for m in anywhere.measurements if least <= m.us * m.ratio < most]
    if ratios := [m.ratio for m in group]:
        shares = f"geometric mean {geometric_mean(ratios):.0%} of it, median {median(ratios):.0%}"
        print(f"cuBLAS takes {name} µs: {len(group)} shapes, {shares}, lowest {min(ratios):.0%}")
anywhere.shares({m.problem: kinds[m.problem] for m in group})

# %% [markdown]
# Here are eleven shapes at which an earlier `best` was slower than cuBLAS. It still is at four of them:

# %%
before = (
    "1x4096x4096 1x8192x8192 1x8192x512 1x4095x4095 1x513x8193 4096x1x4096 33x4096x8192 769x255x1279 2049x1021x640 "
    "1000x1536x3072 769x1000x4095"
)
worklog.results("best", [Shape.of(size) for size in before.split()]).shares()

# %% [markdown]
# cuBLAS chooses an algorithm by itself. cuBLASLt's heuristic lists several, so here is `best` beside the fastest of
# these, too. Each that computes the right product was timed in one loop. Is cuBLAS's own choice the fastest one?
#
# <details><summary>Your bet is placed? What was measured</summary>
#
# Not at 1024. An algorithm with K in four parts is faster there, and 3 % faster than `best`. From 2048 on, the fastest
# one takes as long as cuBLAS's own choice.
#
# </details>

# %%
import pandas as pd

from worklog.runs import Run, recordings

beside = Run.load(recordings("settings")["h200_cublaslt"], "recorded")
print(beside.full_label)
pd.DataFrame(
    {
        f"{m.problem}": {f"of {name}": f"{ratio.value:.1%}" for name, ratio in m.against.items()}
        for m in beside.measurements
    }
)

# %% [markdown]
# One row multiplies each number of B once, and the fewer columns a tile has, the more blocks share the work. **What we
# believed:** DRAM delivers at one rate, whatever the tile, and the table took 8 columns at 1x4096x4096. Here are two
# tiles, by their columns and their k, each with plain loads and with loads that say that they read once (`__ldcs`):

# %%
bounds = Run.load(recordings("bounds")["h100"], "recorded")
print(bounds.label)
rows = map(Shape.of, ("1x4096x4096", "1x8192x512", "1x512x8192"))
times = {f"µs at {row}": {m.kernel: m.us for m in bounds.select(shape=row)} for row in rows}
pd.DataFrame(times).round(1)

# %% [markdown]
# **What happened:** at 1x4096x4096, 8 columns take 1.24 times as long as 32, and plain loads of 32 columns 1.17 times
# as long as marked ones. At 1x512x8192, where 32 columns give 16 blocks for 132 multiprocessors, 8 win. The loads are
# marked now, and the table has a cost for each row of B in a tile. Why the mark helps, the recording doesn't show.
#
# How far is one row from its floor? B has to be read, so a kernel that only reads B bounds the time (tests/record/rows.cu).
# It was timed in one loop with `worklog.sgemm` and cuBLAS, at sizes of language models that generate one token for each row:

# %%
from story.tables import beside_reading

beside_reading()

# %% [markdown]
# At one row, `worklog.sgemm` reaches 95 to 104 % of the reading kernel's speed, and cuBLAS 93 to 98 %. (Above 100 %: that
# kernel isn't the fastest possible, either.) At two and four rows, B is still read once, and each number is multiplied more often: 84
# to 94 %, where cuBLAS has 29 to 51 %.
#
# Nsight Compute counted three of the four shapes, and a size of whole tiles. This is what `worklog profile` concludes
# from the counts: it names the busiest unit, and if none is 80 % busy, what is missing or waited for. cuBLAS isn't
# counted:

# %%
from worklog.gpu.profile import limit

for counted in bounds.counters:
    if counted.kernel == "best":
        print(Shape(*counted.shape), limit(counted, bounds.gpu.arch), sep=": ")

# %% [markdown]
# ## A batch
#
# Attention multiplies a batch: for each head, Q by Kᵀ (QK), and what softmax made of that by V (PV). `worklog.sgemm`
# takes a batch of matrices that lie behind each other in one launch of `best`, by a table of its own. Here it is beside
# `torch.bmm`, in shares of its speed, at the shapes of `notebooks/examples/11_attention.py`, where `size` is that of a
# head. (A benchmark doesn't check results. A test on a GPU compares each tile, in each order of A and B, with exact sums.)

# %%
attention = Run.load(recordings("settings")["h200_attention"], "recorded")
print(attention.label)
shares = {}
for m in attention.measurements:
    product, heads, length, size = (
        m.point.value(name) for name in ("product", "heads", "length", "size")
    )
    shares.setdefault((product, heads, size), {})[f"length {length}"] = m.ratio
of_all = [share for row in shares.values() for share in row.values()]
print(f"geometric mean {geometric_mean(of_all):.2f}, lowest {min(of_all):.2f}")
table_of_shares = pd.DataFrame.from_dict(shares, orient="index").map("{:.2f}".format)
table_of_shares.rename_axis(["product", "heads", "size"])

# %% [markdown]
# The short ones gain most. With heads of 128 numbers, the longest are as fast as cuBLAS within 2 %, and three of the
# others are 2 to 4 % slower.
#
# ## Fewer multiplications
#
# The FP32 units limit every kernel above: 2MNK FLOP, at their rate. Winograd's form of Strassen's algorithm needs fewer.
# A, B and C are split into quadrants, and seven products of sums of quadrants replace eight. `kernels/winograd.cu` does
# that once, or twice (49 products replace 64). A first launch forms the sums, and writes them in the order in which the
# second one needs them. There, a block computes all products of its place in the quadrants. Several quadrants of C need
# the same sums of products, so the block keeps these in its registers while it goes on. How many times as fast as
# `best` is that at 8192, with one level and with two? The multiplications alone say 8/7 and 64/49, 1.14 and 1.31.
#
# <details><summary>Your bet is placed? What was measured</summary>
#
# 1.11 and 1.23 times as fast as `best`, so 1.21 and 1.33 times cuBLAS. At 16384, two levels are 1.26 times as fast as
# `best`.
#
# </details>

# %%
fewer = Run.load(recordings("chapters")["h200_winograd"], "recorded")
print(fewer.full_label)
rows = {}
for m in fewer.measurements:
    row = {"TFLOP/s by 2MNK": f"{m.tflops:.1f}", "of cuBLAS": f"{m.ratio:.1%}"}
    row["of the FP32 peak"] = f"{m.tflops / fewer.gpu.fp32_peak_tflops:.1%}"
    rows[m.kernel, m.problem] = row | {"gate": "passed" if m.verdict else "not run at this size"}
pd.DataFrame.from_dict(rows, orient="index")

# %% [markdown]
# With two levels, the rate is above the card's FP32 peak at 8192 and 16384, without a tensor core. It isn't 64/49 times
# that of `best`, since the sums take time, too: the first launch writes 49/16 times as many numbers as A and B have, and
# the second one stores 53 tiles where C has 16. At 4096, two levels have a third of cuBLAS's speed: C has 32 places for
# blocks then, and the card 132 multiprocessors. So the kernel called `winograd` takes one level there, and two from 8192
# on.
#
# Is it the same result? Look at the error first on U(-1, 1), and then where rows of A and columns of B differ in size.
# In FP32, an element's error is small beside the magnitudes of its own row and column. Here, sums of quadrants mix rows:
# what a large row loses to rounding is large beside a small one.

# %%
from dataclasses import replace

from worklog.kernel.ladder.rungs import winograd
from worklog.runner.check import check

claimed = replace(winograd(1), claimed="fp32")
print(check(claimed, on="emulated", seed=1, quick=True).verdict.reason)

# %% [markdown]
# So the gate refuses it as FP32. It passes as `fp32-norm`, whose bound has the largest numbers of A and B in place of an
# element's row and column (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., chapter 23). Whether that
# is enough depends on your matrices, so `worklog.sgemm(A, B, mode="winograd")` takes it only where you ask for it.
#
# ## What bounds each rung
#
# Nsight Compute counts how busy each unit is during the product's launch, as a share of its peak rate. Multiply-adds
# have one issue slot each, and the FP32 cores of an SM take as many per clock as there are slots. So issue slots are
# the busiest unit in each rung. **What we believed:** the rungs raise the share of them that goes to multiply-adds. The
# next lines divide the two columns, an upper limit: FP32 cores multiply integers for addresses, too.

# %%
from worklog.kernel.ladder import counters

busy = counters([*NAMES, "equal_shares", "ragged"])
fp32, slots = (busy.columns.index(unit) for unit in ("FP32 cores", "issue slots"))
for row in busy.rows:
    print(
        f"{row[0]:12} multiply-adds take up to {row[fp32].share / row[slots].share:.1%} of the used issue slots"
    )
busy

# %% [markdown]
# **What happened:** these upper limits hardly order the rungs. What rises, from `async_copies` to `equal_shares`, is
# how many slots are used at all. That isn't speed by itself: `barriers` uses more than `warptiled`, for its waits and
# addresses, and is slower.
#
# ## Graded exercise
#
# If the blocks of the last wave could share their work with the idle SMs, as in rung 18, all SMs would be busy until
# the end. How many times as fast would `specialized` be at 4096, if nothing else changed?

# %%
answer = None  # a speedup, 1.5 for 1.5 times as fast
lab.check_answer("09", answer)

# %% tags=["solution"]
answer = used[4096]["waves"] * sms / used[4096]["blocks"]
lab.check_answer("09", answer)

# %% [markdown]
# ## Exercises
#
# 1. Why does only one lane of a warp arrive at `empty`, after `__syncwarp`?
# 2. Why is A copied 4 bytes at a time, and B 16?
#
# <details><summary>Answers</summary>
#
# 1. `__syncwarp` makes the reads of all lanes come before the arrival, so one arrival speaks for the warp. 32
#    arrivals would need 32 times as many operations on the mbarrier.
# 2. A copy keeps the order of its bytes. Neighbours in a row of A are in different rows of its transposed tile, and
#    neighbours in a row of B stay neighbours.
#
# </details>
#
# **Where next:** [10_fp32_on_tensor_cores](10_fp32_on_tensor_cores.ipynb) leaves the FP32 lanes.
