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
# # Climbing the ladder
#
# **Goal:** this page explains each kernel of the ladder by its difference to the one before. For each step you get a
# prediction from counts, and the measured time to compare it with.
#
# **New concepts:** access pattern, sectors, banks and wavefronts, a lower bound of the time, a prediction that can
# fail.
#
# Counts come from the emulator, which runs the compiled kernels without a GPU. Times are measured, here or on the
# machine of the recording. A count is never shown as a time. On another GPU, another of the three counts below may
# limit a rung.

# %%
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
from IPython.display import display

import worklog
from worklog import plots
from worklog.analysis.counters import counters
from worklog.analysis.counts import access_pattern
from worklog.analysis.inspection import inspect
from worklog.analysis.memory_counts import memory_counts
from worklog.analysis.prediction import rung_bounds, spread, table
from worklog.kernel import resources
from worklog.kernel.nvrtc import compile_cuda
from worklog.lab.ladder_page import diff, source
from worklog.problem import Axis
from worklog.runner import sweep as tuning
from worklog.runs import Run, recordings

run = worklog.results(shapes=[4096])
timed = {m.kernel: m for m in run.measurements if m.us is not None}
counted = memory_counts()
print(f"times:  {run.label}\ncounts: {counted.label}")

# %% [markdown]
# A rung's floor is a lower bound of its time. It is the time of the slowest of these, if every multiprocessor (SM) does
# it without a gap:
#
# - multiply-adds, at the peak from the data sheet's clock and lanes;
# - lookups in L1, one line of 128 bytes per clock: an assumption, which the first two rungs test;
# - wavefronts in shared memory, one per clock;
# - reading A and B from DRAM once, at the peak of the data sheet.
#
# A block stays on its SM. So for the first three, the floor counts the SM with the most blocks: 1024 blocks on 132 SMs
# are 8 on most of them. `worklog check` and `worklog inspect` print the same bound for your kernel.
#
# The floor ignores latencies, barriers and other instructions, so it is not a prediction of the time. But if two rungs
# are above their floors by the same factor, then the ratio of the floors predicts the ratio of the times.

# %%
patterns = {rung.name: access_pattern(rung) for rung in worklog.LADDER}
floors = rung_bounds(run, counted.shape)


# %%
def predict(before, after):
    """Print a rung's time as predicted from the time of the rung before, and as measured."""
    old, new = floors[before], floors[after]
    print(f"counted:   floor of {before} {old.ms:.2f} ms ({old.limit}), of {after} {new.ms:.2f} ms ({new.limit})")
    if abs(new.ms / old.ms - 1) < 1e-3:
        print("predicted: no change")
    elif (ms := old.measured_ms) is not None:
        print(f"predicted: {ms:.2f} ms x {new.ms:.2f} / {old.ms:.2f} = {ms * new.ms / old.ms:.2f} ms")
    else:
        print(f"predicted: {new.ms / old.ms:.2f} times the time of {before}, which is not in this recording")
    print(f"measured:  {measured(after)}")


def measured(name):
    """The time of a rung and its share of cuBLAS, where the run has them."""
    if name not in timed:
        return "not in this recording"
    found, ratio = floors[name], timed[name].ratio
    return f"{found.measured_ms:.2f} ms, {run.origin}; {ratio:.1%} of cuBLAS; {found.factor:.2f} times its floor"


def in_conflict(name, **tile):
    """Share of the main loop's multiply-adds that read two operands from one register bank, where it can be read."""
    rung = worklog.rung(name)
    compiled = compile_cuda(replace(rung, template={**rung.template, **tile}).program)
    if (tool := resources.disassembler()) is None:
        return "an unknown share"
    return f"{resources.bank_conflicts(resources.disassemble(compiled.cubin, tool), compiled.symbol):.1%}"


# %% [markdown]
# ## 1. Naive
#
# One thread computes one element of C. Here is the body of the kernel. Every rung has the same parameters,
# `(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)`, and the tile as template
# parameters. The picture shows which thread computes which elements, and the memory that a warp's first request of each
# kind touches. It is drawn from the addresses of the compiled code. Every rung has this picture.

# %%
display(source("naive"))
plots.ownership(patterns["naive"])

# %% [markdown]
# `threadIdx.x` counts rows, so the 32 threads of a warp are in one column of C and read 32 rows of A. Memory is moved
# in sectors of 32 bytes, and the warp uses 4 bytes of each.

# %%
first = floors["naive"]
sectors = counted.rungs["naive"].sectors_per_request
print(f"counted:  {sectors:.1f} sectors per load, floor {first.ms:.0f} ms ({first.limit})")
print(f"measured: {measured('naive')}")

# %% [markdown]
# ## 2. Coalesced
#
# Swap two words, and the threads of a warp are in one row of C. A warp reads one line of B, and one float of A for all
# threads. Before you look: 33 lookups per multiply-add become two. How many times faster is the kernel?

# %%
display(diff("naive", "coalesced"))
plots.ownership(patterns["coalesced"])

# %%
predict("naive", "coalesced")

# %% [markdown]
# Compare how far both are above their floors. `naive` is limited by L1 lookups. `coalesced` is further above: something
# that the floor does not count takes time, too. Nsight Compute found no unit of the H200 busier than L1, with 78 % (the
# table below "The whole climb"). Our guess is latency, since each load must arrive before its multiply-add can start.
# The recordings don't show it.

# %% [markdown]
# ## 3. Shared memory
#
# The block copies a tile of A and a tile of B into shared memory, and all its threads read them there. Each float is
# fetched once and serves 32 threads.

# %%
display(diff("coalesced", "shared"))
plots.ownership(patterns["shared"])

# %%
predict("coalesced", "shared")
before, after = counted.rungs["coalesced"], counted.rungs["shared"]
print(f"global sectors per multiply-add of a warp: {before.sectors_per_fma:.2f}, now {after.sectors_per_fma:.2f}")
if "shared" in timed:
    print(f"speedup: {timed['coalesced'].us / timed['shared'].us:.2f}")

# %% [markdown]
# The global traffic falls to a twentieth, and the time by much less. The picture shows the reason: each multiply-add
# still reads one element of `As` and one of `Bs`. Shared memory is the limit now, not L1. The next steps reduce the
# reads from shared memory.
#
# The compiler helps: four iterations of the loop read four neighbours in a row of `As`, and it combines them into one
# 16-byte read.

# %% [markdown]
# ## 4. Thread tiles, 1D
#
# A thread computes a column of TM elements. One float of `Bs` in a register then serves TM multiply-adds.

# %%
display(diff("shared", "tiles_1d"))
plots.ownership(patterns["tiles_1d"])

# %%
predict("shared", "tiles_1d")

# %% [markdown]
# ## 5. Thread tiles, 2D
#
# The same idea in both directions: TM + TN floats from shared memory serve TM·TN multiply-adds. By the formula:

# %%
one, two = worklog.rung("tiles_1d").template, worklog.rung("tiles_2d").template
print(f"1D: ({one['TM']} + 1) / {one['TM']} = {(one['TM'] + 1) / one['TM']:.3f} floats per multiply-add")
tile = two["TM"] * two["TN"]
print(f"2D: ({two['TM']} + {two['TN']}) / {tile} = {(two['TM'] + two['TN']) / tile:.3f}")

# %%
display(diff("tiles_1d", "tiles_2d"))
plots.ownership(patterns["tiles_2d"])

# %%
predict("tiles_1d", "tiles_2d")

# %% [markdown]
# By the formula there are several times fewer floats. But the number of wavefronts falls much less, and the time falls
# like the wavefronts. The picture shows the reason in orange: threads with neighbouring 8 x 8 tiles read `Bs` eight
# floats apart, so the requests of a warp use only some of the 32 banks. This is a bank conflict: the result is right,
# and the request takes several wavefronts.

# %% [markdown]
# ## 6. Vectorized
#
# Each access moves 16 bytes. A is stored transposed in shared memory, so that a thread's eight elements of it are
# adjacent.

# %%
display(diff("tiles_2d", "vectorized"))
plots.ownership(patterns["vectorized"])

# %%
predict("tiles_2d", "vectorized")

# %% [markdown]
# Reads of `As` are wide now. The picture shows two bank conflicts in orange: a new one in the transposed write, and
# still the one in the reads of `Bs`.

# %% [markdown]
# ## A dead end: padding
#
# The textbook fix of bank conflicts is padding: rows a little longer, so that the next row starts in another bank.
# Before you look: which of the two conflicts does it remove? The emulator can count a kernel without timing it, so here
# is `vectorized` with changes in its source.


# %%
def changed(old, new):
    """Shared wavefronts per multiply-add of a warp in `vectorized` with a change, and those due to conflicts."""
    rung = worklog.rung("vectorized")
    tile = ", ".join(f"{name} = {value}" for name, value in rung.template.items())
    file = Path(tempfile.mkdtemp()) / "changed.cu"
    code = re.sub(r"template <.*>", f"constexpr int {tile};", rung.source)
    file.write_text(code.replace(old, new), encoding="utf-8")
    counts = inspect(worklog.Kernel.from_file(file, grid="N // 128, M // 128", block="256")).counts
    read, write = counts.shared_load, counts.shared_store
    found = {"reads": read.wavefronts, "conflicts": read.conflicts, "writes": write.wavefronts}
    return {name: n / counts.instructions["fma"] for name, n in (found | {"conflicts ": write.conflicts}).items()}


# %%
changes = {
    "as it is": ("", ""),
    "rows of Bs padded": ("Bs[BK][BN];", "Bs[BK][BN + 4];"),
    "rows of As padded": ("As[BK][BM];", "As[BK][BM + 4];"),
    "a thread tile in quads that lie apart": ("col * TN + j]", "col * 4 + j * (BN / TN)]"),
}
print(f"{counted.label}, a product of 128")
pd.DataFrame({name: changed(*change) for name, change in changes.items()}).T.round(3)

# %% [markdown]
# Padding `Bs` has no effect: the lanes with the conflict read the same row. Padding `As` removes the conflict of the
# write, whose lanes are in different rows. The fix of the read is to assign other elements to a thread: two quads half
# a tile apart, so that neighbouring threads read neighbouring quads.
#
# siboehm's SGEMM_CUDA, the ladder behind the article, has this dead end twice. Its kernels 7 and 8 (RTX A6000) store
# `Bs` in another order, or with rows longer by five floats, so that 16-byte accesses are no longer aligned. Both were
# slower than its kernel 6: 69.7 % and 70.8 % of cuBLAS instead of 78.4 %. The article omits them.

# %% [markdown]
# ## 7. Conflict-free shared memory
#
# Both fixes together: a thread's tile consists of quads half a tile apart, and the rows of `As` are padded. The tile,
# the loads and the stores are the same. Before you look: the table above has the wavefronts that remain. What limits
# the kernel then?

# %%
display(diff("vectorized", "conflict_free"))
plots.ownership(patterns["conflict_free"])

# %%
predict("vectorized", "conflict_free")
before, after = counted.rungs["vectorized"], counted.rungs["conflict_free"]
print(f"conflicts: {before.conflict_share:.0%} of the wavefronts, now {after.conflict_share:.0%}")

# %% [markdown]
# There is no conflict left, and the multiply-adds are the largest count now. But they are not the limit: the floor
# falls by a quarter and the time by a twentieth. On the H200, the FP32 cores are 58 % busy, and shared memory 56 %. The
# floor stays the same from here on, so it predicts no change in any of the next five steps. What there is to gain is
# the time in which the multiply-adds wait, which this floor does not count. So for each step, the prediction names what
# should change.

# %% [markdown]
# ## 8. Double buffering
#
# So far, the block loads a tile, waits for it, and then computes. Now it loads the next tile to registers before it
# computes this one, and then stores it to a second buffer in shared memory. **Prediction:** the counts stay the same,
# the wait for global memory disappears, and one barrier per tile is left instead of two.

# %%
display(diff("conflict_free", "double_buffered"))

# %%
predict("conflict_free", "double_buffered")

# %% [markdown]
# ## 9. Autotuned
#
# The code has one parameter more: MIN_BLOCKS tells the compiler how many blocks must fit in an SM. A search chose the
# tile ([07_autotuning_and_beyond](07_autotuning_and_beyond.ipynb) shows how). **What we believed:** 8 x 16 elements per
# thread are faster than 8 x 8, since a thread reads 24 floats for 128 multiply-adds instead of 16 for 64. Exercise 2
# tests this at four block tiles. Before you look: at how many of them is 8 x 16 faster?

# %%
display(diff("double_buffered", "autotuned"))
print({name: worklog.rung(name).template for name in ("double_buffered", "autotuned")})
plots.ownership(patterns["autotuned"])

# %%
predict("double_buffered", "autotuned")

# %% [markdown]
# ## 10. Pipelined fragments
#
# So far, the multiply-adds of step k wait until their operands arrive from shared memory. Now the operands of step k+1
# are read before them, also across the barrier between two tiles. A thread needs TM + TN = 24 registers more at most,
# so the block is 128 x 128, and two of them fit on an SM. **Prediction:** the latency of shared memory, about 30
# clocks, is hidden, so the rung is faster. But two things change at once, the order of the reads and the tile.

# %%
display(diff("autotuned", "pipelined"))
print({name: worklog.rung(name).template for name in ("autotuned", "pipelined")})

# %%
predict("autotuned", "pipelined")
before, after = counted.rungs["autotuned"], counted.rungs["pipelined"]
print(f"shared wavefronts per multiply-add: {before.wavefronts_per_fma:.3f}, now {after.wavefronts_per_fma:.3f}")

# %% [markdown]
# To see the new order of reads alone, compare `pipelined` with `autotuned` at the same tile, 128 x 128:

# %%
SAME = "autotuned BN=128 MIN_BLOCKS=2"
beside = {(name, 4096): timed[name] for name in ("autotuned", "pipelined") if name in timed}
one_run = [path for name, path in recordings("chapters").items() if name.endswith("_tiles")]
if run.origin == "recorded" and one_run:
    beside = {(m.kernel, m.shape[0]): m for m in Run.load(one_run[0], "recorded").measurements}
else:
    swept = tuning.results(tuning.variants(worklog.rung("autotuned"), [Axis("BN", (128,)), Axis("MIN_BLOCKS", (2,))]))
    beside[SAME, 4096] = swept.select("BN=128 MIN_BLOCKS=2")[0]
steps = [(SAME, "pipelined"), ("autotuned", "pipelined"), ("autotuned", "pipelined BN=256 MIN_BLOCKS=1")]
for size in sorted({size for _, size in beside}):
    for before, after in steps:
        if (old := beside.get((before, size))) and (new := beside.get((after, size))):
            print(f"{size}: {after} is {old.us / new.us:.3f} times as fast as {before},", end=" ")
            print(f"by the shares of cuBLAS {new.ratio / old.ratio:.3f} times")
print(*dict.fromkeys(m.label for m in beside.values()), sep="\n")
for tile in (dict(BN=256, MIN_BLOCKS=1), dict(BN=128, MIN_BLOCKS=2)):
    print(f"autotuned at BN = {tile['BN']}: {in_conflict('autotuned', **tile)} of the multiply-adds in conflict")
print(", ".join(f"{name} {in_conflict(name)}" for name in ("pipelined", "register_banks", "warptiled")))

# %% [markdown]
# At 128 x 128 the new order gains 7.5 %. At 128 x 256, the tile of `autotuned`, it loses 10.7 % (both at 4096). **What
# we believed:** `pipelined` is slower because more of its multiply-adds read two operands from one register bank.
# **What came:** it has no more of them than `autotuned` at either tile, and `warptiled`, the fastest rung, has the most
# of these. Nor do registers spill (229 per thread at the large tile). What decides there isn't in our recordings.

# %% [markdown]
# ## 11. Register banks
#
# A multiply-add has three register operands, but the register file delivers two per clock, one from each of its two
# banks. The third must be in the operand-reuse cache, which keeps operands of the instructions before. In a 2 x 2
# zigzag each multiply-add shares an operand with the one before. A name in the kernel's symbol keeps the assembler from
# reordering them (`kernels/11_register_banks.cu` says how, and how fragile that is). **Prediction:** the same
# instructions, fewer operands from the register file. The next lines count both in the machine code.

# %%
display(diff("pipelined", "register_banks"))

# %%
predict("pipelined", "register_banks")
for name in ("pipelined", "register_banks"):
    rung = worklog.rung(name)
    compiled = compile_cuda(rung.program)
    if (tool := resources.disassembler()) is None:
        print(resources.no_sass())
        break
    code = resources.disassemble(compiled.cubin, tool)
    loop, reads = resources.main_loop(code, compiled.symbol), resources.register_reads(code, compiled.symbol)
    share = loop["FFMA"] / sum(loop.values())
    print(f"{name:15} {share:.0%} of the main loop are multiply-adds; each reads {reads:.2f} registers")

# %% [markdown]
# ## 12. Warp tiles
#
# So far, the lanes of a warp are neighbours in the block, so a warp computes a wide part of C, 32 x 128 elements. For
# each k it reads 32 floats of A and 128 of B. Now each warp computes a square tile, 64 x 64, and reads 64 floats of
# each. **Prediction:** fewer different floats per step, so no more wavefronts than before, although they are not the
# limit any more.

# %%
display(diff("register_banks", "warptiled"))
plots.ownership(patterns["warptiled"])

# %%
predict("register_banks", "warptiled")
before, after = counted.rungs["register_banks"], counted.rungs["warptiled"]
print(f"shared wavefronts per multiply-add: {before.wavefronts_per_fma:.3f}, now {after.wavefronts_per_fma:.3f}")

# %% [markdown]
# Wavefronts fall by a third, and the rung is only a little faster. The tile changes, too, so even that is not the warp
# tile's alone. There is a small conflict again, because the tile is 16 deep now and the transposed write has a
# conflict: 7 % of the wavefronts. On the H200, shared memory is 43 % busy in this rung.

# %% [markdown]
# ## The whole climb
#
# The last column tests the model: the time of each rung, divided by its floor, which stands under "at least". If the
# floor explained all of the time, every factor would be 1.

# %%
least, most = spread({name: found for name, found in floors.items() if name != "naive"})
print(f"from coalesced to warptiled: {timed['coalesced'].us / timed['warptiled'].us:.1f} times as fast,")
print(f"and {least:.2f} to {most:.2f} times the floor")
for first, last in (("coalesced", "conflict_free"), ("conflict_free", "warptiled")):
    there, here = floors[first], floors[last]
    speedup = there.measured_ms / here.measured_ms
    print(f"{first} to {last}: {there.ms / here.ms:.2f} times as fast predicted, {speedup:.2f} measured")
table(floors.values(), run.label)

# %% [markdown]
# Three counts, all known without a GPU, explain the steps from `coalesced` to `conflict_free`: the floors predict their
# product, 20 % too high. They explain none of the five steps after it. There the model predicts no change five times,
# and the rungs are faster four times and slower once. This is the lesson of the last five rungs: once the largest count
# is the multiply-adds, a count of work says how much there is to gain, and no longer which change gains it. The next
# table shows what does rise, as Nsight Compute counted it at 2048: how busy the FP32 cores are, and the issue slots.

# %%
counters([rung.name for rung in worklog.LADDER])

# %%
plots.traffic()

# %%
plots.ladder(run, 4096)

# %% [markdown]
# The circles are the article's percentages, measured on an RTX A6000. The same ideas gain other amounts there. Many
# things differ between the two, the baseline cuBLAS too, and no recording isolates one of them. State the machine with
# the percentages of a ladder.

# %% [markdown]
# ## Any rung, any size
#
# Choose a rung and a size to see the source diff, the memory counts and the time.

# %%
from worklog import lab

lab.ladder("tiles_2d", 4096)

# %% [markdown]
# ## Graded exercise
#
# Subtract the bank conflicts from the shared wavefronts of `vectorized` (`counted.rungs["vectorized"]` has both). How
# long do the others take at 4096, if every SM serves one per clock? Compare the result with the time of the
# multiply-adds. The emulator's counts grade the answer.

# %%
answer = None  # a time in ms
lab.check_answer("05", answer)

# %% tags=["solution"]
counts, gpu = counted.rungs["vectorized"], run.gpu
answer = (counts.wavefronts - counts.conflicts) / (gpu.multiprocessors * gpu.sm_clock_mhz * 1e3)
lab.check_answer("05", answer)

# %% [markdown]
# ## Exercises
#
# 1. `coalesced` requests 1 + 4 sectors where `naive` requests 32 + 1. Why does the floor count lines and not sectors?
# 2. `tuning.recorded(tuning.variants(worklog.rung("autotuned"), [Axis("BM", (64, 128)), Axis("BN", (64, 128)),
#    Axis("TN", (8, 16)), Axis("MIN_BLOCKS", (1, 2))]))` has the times of 8 x 8 and 8 x 16 elements per thread. Take the
#    faster MIN_BLOCKS of each. Where is 8 x 16 faster? What do the floats per multiply-add predict?
#
# <details><summary>Answers</summary>
#
# 1. With four sectors per clock, the floor of `naive` would be about a quarter of its time. Its 32 sectors are in 32
#    lines, and a lookup finds one line, whether it takes one sector of it or four.
# 2. A thread reads 8 + 16 floats for 128 multiply-adds instead of 8 + 8 for 64: 0.19 per multiply-add instead of 0.25.
#    So this ratio predicts 8 x 16 everywhere. On the H200, it is faster in blocks of 64 x 64 and 128 x 64 (by 10 and
#    7 %), and slower in blocks of 64 x 128 and 128 x 128 (by 9 and 7 %). 8 x 16 needs 1.7 times the registers or more,
#    so fewer warps fit on an SM. The ratio alone does not decide, and the sweep doesn't show what does.
#
# </details>
#
# **Where next:** [06_roofline](06_roofline.ipynb) shows which roof of the machine limits each rung.
