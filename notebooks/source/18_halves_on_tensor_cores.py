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
# # Halves on tensor cores
#
# FP16 in, FP32 sums: the product that neural networks are made of. Four kernels take us from half of cuBLAS's speed to
# its whole speed, beside the fastest algorithm that cuBLASLt's heuristic has. One idea gained almost nothing, another
# one nothing, and one word of PTX cost 31 %
# of the speed. Bet before you open an answer.

# %%
import pandas as pd
from story import halves

import worklog
from worklog import lab, plots
from worklog.kernel.source import kernels_dir

run = halves.recorded()
folder = kernels_dir() / "hgemm"
ends = ("hgemm_mma", "hgemm_cluster")
plots.bars(
    "FP16 with FP32 sums reaches cuBLAS's speed at 4096",
    {
        "times cuBLAS": halves.shares(4096, "cuBLAS", *ends),
        "times cuBLASLt's fastest": halves.shares(4096, "cuBLASLt", *ends),
    },
    run.full_label,
    accented=ends[1:],
)

# %% [markdown]
# **New concepts:** `ldmatrix`, warp groups, tensor maps, multicast, the scope of an mbarrier's arrival.
#
# cuBLAS chooses an algorithm by itself. cuBLASLt's heuristic lists several; here each of them was checked and timed,
# and the fastest one is the second baseline. The gate checks a kernel of halves as it checks FP32: exactly, on integers
# that FP16 holds, and then by the class of its sums. All times at 4096 are of kernels that passed it in the same run.
#
# ## mma.sync
#
# A warp multiplies 16 x 16 by 16 x 8 halves with one instruction. `ldmatrix` fetches an operand of 16 x 16 from shared
# memory with one instruction, too. Each warp reads its own operands, so a tile is read several times:

# %%
source = (folder / "hgemm_mma.cu").read_text()
print(source[source.index("// Four 8 x 8") : source.index("template <int BM")])

# %% [markdown]
# How much of the tensor cores' time does that use?
#
# <details><summary>Your bet is placed? What was counted</summary>
#
# They are 58 % busy, and the kernel has 0.48 of cuBLAS's speed.
#
# </details>

# %%
halves.counted("hgemm_mma")

# %% [markdown]
# ## Warp groups
#
# `wgmma` is issued by four warps together. It reads both operands from shared memory, and goes on while its warps do
# something else. Two warp groups multiply 64 x 256 each, and a third one copies. What is the gain?
#
# <details><summary>Your bet is placed? What was measured</summary>
#
# Twice as fast, at a clock that is lower: the tensor cores are 87 % busy.
#
# </details>

# %%
halves.table(4096, "hgemm_mma", "hgemm_wgmma")

# %%
halves.counted("hgemm_mma", "hgemm_wgmma")

# %% [markdown]
# ## Tensor maps
#
# In `hgemm_wgmma`, 128 threads issue 24 copies each per stage. A tensor map describes a matrix to the hardware, so one
# thread issues a copy per box of it, and the other 127 have nothing to do. The table above
# has the share of the issue slots that `hgemm_wgmma` uses. How much faster is a kernel whose copies need none?
#
# <details><summary>Your bet is placed? What was measured</summary>
#
# Half of the issued instructions are gone, and its share of cuBLAS's speed grows by 0.5 points at 4096. The copying warps
# weren't what the tensor cores waited for. But the kernel now takes any number of rows, since boxes beyond the edges
# bring zeros.
#
# </details>

# %%
halves.table(4096, "hgemm_wgmma", "hgemm_tma")

# %%
halves.counted("hgemm_wgmma", "hgemm_tma")

# %% [markdown]
# This is the thread that copies:

# %%
source = (folder / "hgemm_tma.cu").read_text()
print(source[source.index("if (warp > 0") : source.index("    return;\n  }\n\n")])

# %% [markdown]
# ## A cluster shares a tile
#
# Two blocks with neighbouring rows need the same tile of B. In a cluster, each fetches half of it and sends it to both.
# Blocks also stay on their multiprocessors, and fetch the next tile's first stages while they store. Our first version
# passed the gate, and had 0.72 times the speed of `hgemm_tma`. Here is what its warps waited for, beside the version that
# we have now:

# %%
halves.waits("hgemm_tma", "hgemm_cluster, with a scope", "hgemm_cluster")

# %% [markdown]
# They waited for memory barriers in 58 % of their cycles, and the loop of the source has none. What is different
# between the two versions? One
# instruction, with which a warp tells the other block that a slot may be filled again. The first version states the
# scope. This is what ptxas makes of both:

# %%
halves.arrivals()

# %% [markdown]
# With the scope of a cluster, ptxas puts `MEMBAR.ALL.GPU` before the arrival, which waits for all of the thread's
# memory operations. So at each stage the multiplying warps waited until the GPU's memory had seen them. Without a
# scope, as CUTLASS writes it (`ClusterBarrier::arrive` in include/cutlass/arch/barrier.h), the arrival is one
# instruction. The warps have read the slot with `wgmma`, and waited for that, so there is nothing left to order. The
# gate passes both versions.
#
# <details><summary>What is that worth? Bet first</summary>
#
# 1.45 times as fast at 4096 (100.4 and 69.4 % of cuBLAS), and 1.51 times at 8192 (102.5 and 68.0 %), by the shares of
# cuBLAS.
#
# </details>

# %%
later = ("hgemm_tma", "hgemm_cluster, with a scope", "hgemm_cluster")
pd.DataFrame(
    {
        f"{size}, {name}": halves.shares(size, name, *later)
        for size in (4096, 8192)
        for name in ("cuBLAS", "cuBLASLt")
    }
).map("{:.1%}".format)

# %% [markdown]
# At 8192, these were timed without the check at that size, which takes half a minute. `hgemm_cluster` passed it in
# another run, beside the fastest of cuBLASLt, which it equals:

# %%
halves.table_of(halves.checked_at_8192())

# %% [markdown]
#
# ## What gained nothing
#
# When both warp groups of a block store their parts of C, the tensor cores have nothing to do. If one of them is a stage
# behind, they work for it while the other one stores. So the second warp group of `hgemm_cluster` begins a stage later
# than the first one; in `hgemm_cluster, in step` both begin together. **What we believed:** the store is hidden, and the
# kernel is faster. **What happened:** beside cuBLAS, there is no difference beyond the intervals at either size. (Beside
# cuBLASLt at 8192, `in step` is 0.6 points lower.)

# %%
both = ("hgemm_cluster", "hgemm_cluster, in step")
halves.table(4096, *both)

# %%
halves.table(8192, *both)

# %% [markdown]
# ## What is the limit now?
#
# The tensor cores are 90 % busy. `hgemm_cluster` moves 1069 MB through L2 at 4096, where `hgemm_tma` moves 1402:

# %%
halves.counted("hgemm_tma", "hgemm_cluster")

# %% [markdown]
# And the clock is low: 1682 MHz, where `hgemm_mma`, with half the speed, runs at 1802. The card allows 700 W, of which
# cuBLAS's product of halves takes 692 where its launches follow each other (notebook 10). The watts of these four kernels
# weren't measured. Here are all of them; at equal clocks `hgemm_cluster` is ahead of `hgemm_tma`, too, by 85.7 to 83.4 %
# of the peak:

# %%
halves.table(4096)

# %% [markdown]
# At 4096 the tiles are a limit, too: 512 tiles take four rounds of 132 multiprocessors, and the last one is 88 % full. So at most 97 % of the
# peak can be reached.
#
# ## Break it
#
# A kernel with this many hand-overs is easy to break in a way that most launches don't show. Change a line, and let the
# gate see it on the emulator. Here, the block doesn't wait until the other one has arrived for the last time:

# %%
from worklog.runner.check import check

path = folder / "hgemm_cluster.cu"
kernel = worklog.Kernel.from_file(path, grid=4)
broken = kernel.with_text(kernel.source.replace("end = step + STAGES", "end = step"))
print(check(broken, on="emulated", seed=1, quick=True).verdict.reason)

# %% [markdown]
# ## Graded exercise
#
# A stage of a block is 128 x 64 halves of A and 64 x 256 of B. With four blocks in a cluster instead of two, all with
# the same columns of B, how many kB (1024 bytes) does a block fetch from L2 per stage?

# %%
answer = None  # kB
lab.check_answer("18", answer)

# %% tags=["solution"]
answer = (128 * 64 + 64 * 256 / 4) * 2 / 1024
lab.check_answer("18", answer)

# %% [markdown]
# ## Exercises
#
# 1. Why is the cluster along the rows, and not along the columns?
# 2. A slot is refilled when all warps of both blocks have released it. What does a slow block do to the other one?
#
# <details><summary>Answers</summary>
#
# 1. A tile of B has 32 kB per stage, and one of A 16 kB. Sharing B saves 16 kB per block, sharing A 8 kB.
# 2. It has STAGES slots, and waits when all of them are full. So a cluster is as slow as its slower block.
#
# </details>
#
# **Where next:** `worklog run kernels/hgemm/hgemm_cluster.cu --against cublaslt` times it on your card, and
# `worklog new sgemm DIR --dtype float16` begins a kernel of your own.
