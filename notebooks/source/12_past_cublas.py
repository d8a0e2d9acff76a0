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
# **Goal:** this page explains rungs 13 to 19, which follow the last rung of the article's ladder, each by its
# difference to the one before, and the rung `best`, which takes any shape. Each step has a prediction, counts and the
# measured time.
#
# **New concepts:** lane maps, asynchronous copies, stages, mbarriers, copying warps, bulk copies, a last wave that
# fills no GPU, equal shares.
#
# Counts come from the emulator, which runs the compiled kernels without a GPU. Times are measured, here or on the
# machine of the recording. A count is never shown as a time.

# %%
import numpy as np
import pandas as pd

import worklog
from worklog import lab, plots
from worklog.analysis.counters import counters
from worklog.analysis.counts import access_pattern
from worklog.analysis.prediction import bound
from worklog.emulator import EmulatedDevice, total
from worklog.kernel import resources
from worklog.kernel.best import table
from worklog.kernel.nvrtc import compile_cuda
from worklog.lab.ladder_page import diff
from worklog.plots.selection import labels
from worklog.problem import Shape, drawn
from worklog.runner import tuned

NAMES = ("warptiled", "lane_map", "async_copies", "barriers", "specialized", "bulk_copies")
SIZES = (2048, 4096, 8192)
run = worklog.results([*NAMES, "equal_shares", "ragged", "best"], SIZES)
timed = {m.kernel: m for m in run.select(shape=Shape.of(4096)) if m.us is not None}
floor = bound(worklog.rung("warptiled"), Shape.of(4096))
print(f"times: {run.label}\nfloor: {floor}")

# %% [markdown]
# The multiply-adds are the floor of `warptiled`, and no rung here has fewer of them. So the floor predicts no step.
# What is left is the time in which an SM issues something else, or nothing.


# %%
def measured(name, before=None):
    """The time of a rung at 4096, and its speed against cuBLAS and the rung before, where the run has them."""
    if name not in timed:
        return f"not in this recording: `worklog run {name} --size 4096` measures it"
    found = timed[name]
    words = [f"{found.us / 1e3:.2f} ms", f"{found.ratio:.1%} of cuBLAS", f"{found.us / 1e3 / floor.ms:.2f} floors"]
    words += [f"{timed[before].us / found.us:.3f} times as fast as {before}"] if before in timed else []
    return "; ".join([*words, run.origin if found.label == run.label else found.label])


def steps(before, after):
    """Print how many times as fast a rung is as the one before, at each size, from one recording where one has both."""
    both = run if run.origin == "live" else worklog.results([before, after], SIZES)
    us = {(m.kernel, m.shape[0]): m.us for m in both.measurements}
    found = ", ".join(f"{us[before, size] / us[after, size]:.3f} at {size}" for size in SIZES)
    print(f"{after} is {found} times as fast as {before}")
    print(*dict.fromkeys(m.label for m in both.measurements if m.kernel in (before, after)), sep="\n")


for name in (*NAMES, "equal_shares", "ragged", "best"):
    print(f"{name:12} {measured(name)}")

# %% [markdown]
# The next table counts each rung on the emulator, for one block and K = 128. The columns are per multiply-add of a
# warp: wavefronts of shared-memory reads, and sectors of 32 bytes read from global memory. Registers are those of the
# launch: in `specialized`, `setmaxnreg` changes them. With a disassembler, the last columns are of the main loop's
# machine code: the share of multiply-adds, the registers that each one reads from the register file, and how many
# multiply-adds read two of them from one bank.


# %%
def launched(kernel, k=128):
    """Counts, and findings of all detectors, of one block on the emulator; the multiply-adds of its warps."""
    shape, device = Shape(kernel.template["BM"], kernel.template["BN"], k), EmulatedDevice(count=True)
    rng = np.random.default_rng(12)
    a, b = (rng.uniform(-1, 1, size).astype(np.float32) for size in ((shape.m, k), (k, shape.n)))
    given = [device.upload(x) for x in (a, b, np.zeros((shape.m, shape.n), np.float32))]
    kernel.load(device).enqueue(shape, 1.0, *given[:2], 0.0, given[2])
    return total(device.last.lines), device.last.findings, shape.m * shape.n * k / 32


# %%
rows, tool = {}, resources.disassembler()
for name in NAMES:
    rung = worklog.rung(name)
    counts, _, multiply_adds = launched(rung)
    compiled = compile_cuda(rung.program)
    rows[name] = {
        "wavefronts": round(counts.shared_load.wavefronts / multiply_adds, 3),
        "sectors": round(counts.global_load.sectors / multiply_adds, 3),
        "registers": compiled.registers,
        "spills B": compiled.spill_store_bytes,
    }
    if tool is not None:
        code = resources.disassemble(compiled.cubin, tool)
        loop = resources.main_loop(code, compiled.symbol)
        rows[name]["FFMA"] = round(loop["FFMA"] / sum(loop.values()), 3)
        rows[name]["reads"] = round(resources.register_reads(code, compiled.symbol), 2)
        rows[name]["in conflict"] = f"{resources.bank_conflicts(code, compiled.symbol):.0%}"
print("emulated · sm_90 PTX" + ("" if tool else f"\n{resources.no_sass()}"))
pd.DataFrame.from_dict(rows, orient="index")

# %% [markdown]
# ## 13. Lane map
#
# Only which lane takes which quads changes. In `warptiled`, lanes l and l ^ 1 read the same quad of B. Here, four
# neighbouring lanes read four different quads. Before you look: the table has more wavefronts than before. Is the rung
# slower? **What we believed:** wavefronts are not the limit, so the step shows a cost of loads that the floor doesn't
# have: how long a load that lanes share keeps the multiply-adds waiting. But the table shows a second change: ptxas
# allocates other registers, and the share of multiply-adds that read two of them from one bank falls from 23 to 1 %.

# %%
diff("warptiled", "lane_map")

# %%
plots.ownership(access_pattern(worklog.rung("lane_map")))

# %%
print(f"measured: {measured('lane_map', 'warptiled')}")
steps("warptiled", "lane_map")

# %% [markdown]
# **What came:** on the H200, about half a percent at each size, and not always in the same direction. Two things change
# at once, so the step does not isolate the lane map: neither its effect nor that of the register banks can be read from
# it.

# %% [markdown]
# ## 14. Asynchronous copies
#
# `cp.async` copies from global to shared memory without a register in between. Several tiles, called stages, are under
# way at once. A is transposed on the way, which needs copies of 4 bytes. **Prediction:** the same wavefronts of reads
# and the same sectors, and a tile may arrive several tiles' time after it was requested. The table also shows the
# price: every 4 bytes of A need an instruction and an address, so the share of multiply-adds in the loop falls.

# %%
diff("lane_map", "async_copies")

# %%
print(f"measured: {measured('async_copies', 'lane_map')}")
steps("lane_map", "async_copies")

# %% [markdown]
# The rung alone is slower, by 6 to 7 %. The price is in the table. Its tile changes, too, to 8 deep and one block per
# SM, so the step does not isolate the copies.

# %% [markdown]
# ## 15. Full and empty
#
# `__syncthreads` stops all warps of a block once per tile. Now each stage has two mbarriers: copies arrive at `full`,
# and warps that have left the stage arrive at `empty`. **Prediction:** the same wavefronts and sectors, and no warp
# waits for a slower one, as long as that one is less than the stages behind. But the mbarriers and their addresses take
# instructions, so the share of multiply-adds falls again.

# %%
diff("async_copies", "barriers")

# %%
print(f"measured: {measured('barriers', 'async_copies')}")
steps("async_copies", "barriers")

# %% [markdown]
# ## 16. Copying warps
#
# Four warps copy and eight multiply. `setmaxnreg` moves registers from the former to the latter. The block's tile is
# 128 x 256, which needs fewer sectors per multiply-add. **Prediction:** addresses and copies leave the loop of the
# multiplying warps, so the share of multiply-adds in it rises.

# %%
diff("barriers", "specialized")

# %%
print(f"measured: {measured('specialized', 'barriers')}")

# %% [markdown]
# A stage may be released only when no lane reads it any more. A mistake here gives a wrong result once in many
# launches. The emulator follows what each thread knows to be complete, so it finds the mistake in one launch. Here is
# the kernel as it is, and without one line at a time:

# %%
rung = worklog.rung("specialized")
for line in ("", "__syncwarp();", "wait(empty[stage], tile / STAGES % 2 ^ 1);"):
    _, findings, _ = launched(rung.with_text(rung.source.replace(line, "")))
    print(
        f"without {line}" if line else "as it is",
        *([findings[0].at(rung.file)] if findings else ["no finding"]),
        sep="\n  ",
    )

# %% [markdown]
# ## 17. Bulk copies
#
# In rung 16, a copying thread issues 12 copies per tile. Now one instruction copies a row of B's tile, and A passes
# through registers, which transposes it. **Prediction:** the loop of the multiplying warps stays as it is, and copying
# warps take fewer of their issue slots.

# %%
diff("specialized", "bulk_copies")

# %%
print(f"measured: {measured('bulk_copies', 'specialized')}")
steps("specialized", "bulk_copies")

# %% [markdown]
# ## The last wave
#
# One block of `specialized` occupies an SM. If the number of blocks isn't a multiple of the number of SMs, some SMs
# have no block in the last wave. How much of the SMs' time is used, if all blocks take the same time?

# %%
sms = run.gpu.multiprocessors
used = {}
for size in (1024, 2048, 4096, 8192):
    blocks = int(np.prod(rung.blocks(Shape.of(size))))
    used[size] = {"blocks": blocks, "waves": -(-blocks // sms), "used": f"{blocks / sms / -(-blocks // sms):.0%}"}
print(f"{sms} SMs: {run.gpu.name}")
pd.DataFrame.from_dict(used, orient="index")

# %% [markdown]
# ## 18. Equal shares
#
# Each block takes an equal share of the steps along K of all tiles, so it computes parts of tiles, too. A second launch
# adds the parts. **Prediction:** at most the factor that the graded exercise asks for, less what the parts cost: they
# are written and read once. The rung also walks the tiles in bands of 8 rows (rasterisation), so that the blocks at
# work share rows of A and columns of B in L2.

# %%
diff("bulk_copies", "equal_shares")

# %%
print(f"measured: {measured('equal_shares', 'bulk_copies')}")
steps("bulk_copies", "equal_shares")

# %% [markdown]
# **What came:** no gain at 8192, and a loss at the other two sizes. The SMs are used at 97 % at all three, so there was
# at most 3 % to gain. The prediction left open what the parts cost. At 2048, where every tile is in parts, 11 % is
# lost. At a size with an emptier last wave there is more to gain, but no recording has one.

# %% [markdown]
# ## 19. Ragged edges
#
# Only the copying warps know about edges: they read the last row of A instead of rows beyond it, copy the columns of B
# that exist, and store zeros for what is beyond K. Where rows don't begin at multiples of 16 bytes, a first launch
# copies the matrix. **What we believed:** it takes the time of `equal_shares` at sizes of whole tiles, since the source
# of the main loop is the same. At others, a tile at the edge takes as long as a whole one.

# %%
diff("equal_shares", "ragged")

# %%
print(f"measured: {measured('ragged', 'equal_shares')}")
steps("equal_shares", "ragged")

# %% [markdown]
# **What came:** the same time at 2048, and 4 % more at 4096 and 8192. The recordings don't show why.
#
# So look at three sizes before you choose a rung. These are speeds against cuBLAS:

# %%
print(*labels(run, run.measurements), sep="\n")
speeds = run.frame().pivot(index="kernel", columns="n", values="ratio")
speeds.loc[[*timed]].map("{:.1%}".format)

# %% [markdown]
# ## Every shape
#
# Rungs 13 to 18 take whole tiles only. `best` takes any M, N and K. It chooses a tile, and a number of parts of K, by a
# table of measured times per tile; on compute capability 9.0, `bulk_copies` is among them. A small product
# has one block per multiprocessor or fewer, so no other block works while it waits for a copy: the kernel has 2 to 8
# stages of K under way, as rung 14. A is copied float by float, so its rows may begin anywhere. Where rows of B and C
# begin anywhere, B is copied float by float, too, and C passes through shared memory, so that neighbouring lanes store
# neighbouring floats. The next cell shows it at 24 shapes that are drawn by a seed. The table was not tuned at them.

# %%
kinds = drawn(24, 7, tuned.SHAPES)
worklog.results("best", [*kinds]).shares(kinds)

# %% [markdown]
# These are the choices at six of the shapes, and what the table was made from:

# %%
chosen = {}
for shape in [*kinds][:6]:
    kernel = worklog.rung("best").at(shape, "sm_90")
    tile = " x ".join(str(kernel.template[size]) for size in ("BM", "BN", "BK"))
    chosen[str(shape)] = {"tile": tile, "blocks": kernel.blocks(shape), "launches": len(kernel.passes)}
print(table().label)
pd.DataFrame.from_dict(chosen, orient="index")

# %% [markdown]
# ## What bounds each rung
#
# Nsight Compute counts how busy each unit is during a launch, as a share of its peak rate. Multiply-adds have one issue
# slot each, and the FP32 cores of an SM take as many per clock as there are slots. So issue slots are the busiest unit
# in each rung. We believed that the rungs raise the share of them that goes to multiply-adds. The next lines divide
# the two columns: the share is largest in `warptiled` and `lane_map`. What rises is how many slots are used at all.

# %%
busy = counters([*NAMES, "equal_shares", "ragged"])
fp32, slots = (busy.columns.index(unit) for unit in ("FP32 cores", "issue slots"))
for row in busy.rows:
    print(f"{row[0]:12} multiply-adds take {row[fp32].share / row[slots].share:.1%} of the issue slots that are used")
busy

# %% [markdown]
# ## Graded exercise
#
# If the blocks of the last wave could share their work with the idle SMs, as in rung 18, all SMs would be busy until
# the end. How many times as fast would `specialized` be at 4096, if nothing else changed?

# %%
answer = None  # a speedup, 1.5 for 1.5 times as fast
lab.check_answer("12", answer)

# %% tags=["solution"]
answer = used[4096]["waves"] * sms / used[4096]["blocks"]
lab.check_answer("12", answer)

# %% [markdown]
# ## Exercises
#
# 1. Why does only one lane of a warp arrive at `empty`, after `__syncwarp`?
# 2. Why is A copied 4 bytes at a time, and B 16?
#
# <details><summary>Answers</summary>
#
# 1. `__syncwarp` makes the reads of all lanes come before the arrival, so one arrival speaks for the warp. 32 arrivals
#    would need 32 times as many operations on the mbarrier.
# 2. A copy keeps the order of its bytes. Neighbours in a row of A are in different rows of its transposed tile, and
#    neighbours in a row of B stay neighbours.
#
# </details>
#
# **Where next:** [13_fp32_on_tensor_cores](13_fp32_on_tensor_cores.ipynb) leaves the FP32 lanes.
