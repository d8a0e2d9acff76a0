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
# # Climbing the ladder
#
# **Goal:** understand each kernel from its difference to the one before, predict from counts what the
# difference is worth, and hold the prediction against the clock.
#
# **New concepts:** who owns what, sectors, banks and wavefronts, a floor, a prediction that can fail.
#
# Counts come from the emulator, which runs the compiled kernels without a GPU; times are measured, here or on the
# machine of the recording. The two are never mixed up: a count is no time. What the text says of times, it says of the
# recorded H200; on another GPU the balance of the three counts below may be another, and that is worth seeing.

# %%
import re
import tempfile
from pathlib import Path

import pandas as pd
from IPython.display import display

import worklog
from worklog import plots
from worklog.analysis.access_pattern import touches
from worklog.analysis.inspection import inspect_file
from worklog.analysis.traffic import traffic
from worklog.kernel import sass
from worklog.kernel.nvrtc import compile_cuda
from worklog.lab.diff import diff, source

run = worklog.results(sizes=[4096])
timed = {m.kernel: m for m in run.measurements if m.us is not None}
counted = traffic()
print(f"times:  {run.label}\ncounts: {counted.label}")

# %% [markdown]
# `floor` is the least time that a rung's counts allow, if every multiprocessor (SM) did nothing but the busiest of
# three things, without a gap:
#
# - multiply-adds, at the peak that the data sheet's clock and lanes give;
# - lookups in L1, one line of 128 bytes a clock: an assumption, which the first two rungs put to the test;
# - passes through shared memory (wavefronts), one a clock.
#
# It knows nothing of latency, barriers or instructions. So it is a floor and no prediction. But if two rungs are
# equally far above their floors, then the ratio of the floors predicts the ratio of the times.

# %%
touched = {rung.name: touches(rung) for rung in worklog.LADDER}


def floor(name):
    """(milliseconds, what takes them) at 4096."""
    counts, gpu = counted.rungs[name], run.device
    loads = [r for r in touched[name].requests if not r.in_shared and not r.is_store]
    lines = sum(len(set((r.floats // 32).flat)) for r in loads) / len(loads)
    clocks = gpu["multiprocessors"] * gpu["sm_clock_mhz"] * 1e3  # of all SMs, in a millisecond
    needs = {
        "multiply-adds": counted.shape.flops / gpu["fp32_peak_tflops"] / 1e9,
        "L1 lines": counts.load_requests * lines / clocks,
        "shared wavefronts": counts.wavefronts / clocks,
    }
    busiest = max(needs, key=needs.get)
    return needs[busiest], busiest


# %%
def predict(before, after):
    """The time of a rung from the time of the one before, and what was measured."""
    (old, what), (new, now) = floor(before), floor(after)
    print(f"counted:   floor of {before} {old:.2f} ms ({what}), of {after} {new:.2f} ms ({now})")
    if before in timed:
        ms = timed[before].us / 1e3
        print(f"predicted: {ms:.2f} ms x {new:.2f} / {old:.2f} = {ms * new / old:.2f} ms")
    else:
        print(f"predicted: {new / old:.2f} times the time of {before}, which is not in this recording")
    print(f"measured:  {measured(after)}")


def measured(name):
    """The time of a rung and its share of cuBLAS, where the run has them."""
    if name not in timed:
        return "not in this recording"
    return f"{timed[name].us / 1e3:.2f} ms, {run.origin}; {timed[name].ratio:.1%} of cuBLAS"


# %% [markdown]
# ## 1. Naive
#
# One thread computes one element of C. Here is the body of the kernel. Its head is the same in every rung,
# `(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)`, with the tile as template
# parameters. Below it a picture that every rung gets: which thread owns what, and what a warp's first access of each
# kind asks of memory. It is drawn from the addresses of the compiled code.

# %%
display(source("naive"))
plots.ownership(touched["naive"])

# %% [markdown]
# `threadIdx.x` walks down the rows, so the 32 threads of a warp sit in one column: 32 rows of A, and of each fetched
# sector of 32 bytes they use 4. A sector is the least that memory hands out.

# %%
ms, what = floor("naive")
print(f"counted:  {counted.rungs['naive'].sectors_per_request:.1f} sectors a load, floor {ms:.0f} ms ({what})")
print(f"measured: {timed['naive'].us / 1e3:.0f} ms, {run.origin}; {timed['naive'].ratio:.1%} of cuBLAS")

# %% [markdown]
# ## 2. Coalesced
#
# Swap two words, and the warp lies along a row. Its read of B is one line, its read of A one float for all. Before you
# look: two lookups where there were 33 makes how many times faster?

# %%
display(diff("naive", "coalesced"))
plots.ownership(touched["coalesced"])

# %%
predict("naive", "coalesced")

# %% [markdown]
# The direction is right and the size is not quite: `naive` sits right on its floor, `coalesced` does not reach its own.
# It now waits for something that we did not count. Every thread still fetches two floats through L1 for each
# multiply-add, and each load must come back before its multiply-add can start.

# %% [markdown]
# ## 3. Shared memory
#
# The block copies a tile of A and one of B into shared memory, which all its threads then read. A float fetched once
# serves 32 threads.

# %%
display(diff("coalesced", "shared"))
plots.ownership(touched["shared"])

# %%
predict("coalesced", "shared")
before, after = counted.rungs["coalesced"], counted.rungs["shared"]
print(f"global sectors for a warp's multiply-add: {before.sectors_per_fma:.2f}, now {after.sectors_per_fma:.2f}")

# %% [markdown]
# A twentieth of the global traffic, and not even twice as fast. The picture says why: each multiply-add still reads an
# element of `As` and one of `Bs`. The bottleneck has moved, from L1 to shared memory. From here on the ladder is about
# reading shared memory less.
#
# The compiler helps: four turns of the loop read four neighbours of a row of `As`, and it makes one 16-byte read of
# them.

# %% [markdown]
# ## 4. Thread tiles, 1D
#
# Let a thread compute a column of TM elements. Then one float of `Bs`, kept in a register, serves TM multiply-adds.

# %%
display(diff("shared", "tiles_1d"))
plots.ownership(touched["tiles_1d"])

# %%
predict("shared", "tiles_1d")

# %% [markdown]
# ## 5. Thread tiles, 2D
#
# The same idea in both directions: TM + TN floats from shared memory serve TM·TN multiply-adds. On paper:

# %%
one, two = worklog.rung("tiles_1d").template, worklog.rung("tiles_2d").template
print(f"1D: ({one['TM']} + 1) / {one['TM']} = {(one['TM'] + 1) / one['TM']:.3f} floats a multiply-add")
patch = two["TM"] * two["TN"]
print(f"2D: ({two['TM']} + {two['TN']}) / {patch} = {(two['TM'] + two['TN']) / patch:.3f}")

# %%
display(diff("tiles_1d", "tiles_2d"))
plots.ownership(touched["tiles_2d"])

# %%
predict("tiles_1d", "tiles_2d")

# %% [markdown]
# The paper promised several times fewer floats; the count of wavefronts fell by much less, and the time followed the
# count. Orange in the picture is why: threads that own neighbouring 8 x 8 tiles read `Bs` eight floats apart, so the
# warp crowds into half of the 32 banks and leaves the other half idle. That is a bank conflict: correct, and slow.

# %% [markdown]
# ## 6. Vectorized
#
# Move 16 bytes at a time, and store A transposed, so that a thread's eight elements of it lie side by side.

# %%
display(diff("tiles_2d", "vectorized"))
plots.ownership(touched["vectorized"])

# %%
predict("tiles_2d", "vectorized")

# %% [markdown]
# Reads of `As` are now wide. The price stands beside it in orange: the transposing write has a conflict of its own, and
# the reads of `Bs` still have theirs.

# %% [markdown]
# ## A dead end: pad it
#
# Bank conflicts have a textbook cure: make the rows a little longer, so that the next row begins in another bank.
# Before you look: which of the two conflicts does it cure? The emulator can count a kernel that nobody has timed, so
# here is `vectorized` with its source changed.


# %%
def changed(old, new):
    """Shared wavefronts for a warp's multiply-add of `vectorized` with a change, and how many are conflicts."""
    rung = worklog.rung("vectorized")
    tile = ", ".join(f"{name} = {value}" for name, value in rung.template.items())
    file = Path(tempfile.mkdtemp()) / "changed.cu"
    code = re.sub(r"template <.*>", f"constexpr int {tile};", rung.source)
    file.write_text(code.replace(old, new), encoding="utf-8")
    counts = inspect_file(file, grid="N // 128, M // 128", block="256").counts
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
# Padding `Bs` does nothing at all: the lanes that collide there read one and the same row. Padding `As` cures the
# write, whose lanes stand in different rows. What cures the read is another owner for the same data: a thread takes two
# quads half a tile apart, so that neighbours read neighbouring quads.
#
# The ladder that the article retells met this dead end twice. Its kernels 7 and 8 (siboehm's SGEMM_CUDA, RTX A6000)
# store `Bs` in another order, or with rows longer by five floats, after which 16-byte accesses are no longer aligned.
# Both were slower than its kernel 6: 69.7 % and 70.8 % of cuBLAS, down from 78.4 %. The article leaves them out.

# %% [markdown]
# ## 7. Conflict-free shared memory
#
# The two cures that worked, together: a thread tile is cut into quads that lie apart, and the rows of `As` are padded.
# The tile is the same and so are the loads and stores. Before you look: the table above has the wavefronts that remain.
# What is the busiest thing then?

# %%
display(diff("vectorized", "conflict_free"))
plots.ownership(touched["conflict_free"])

# %%
predict("vectorized", "conflict_free")
before, after = counted.rungs["vectorized"], counted.rungs["conflict_free"]
print(f"conflicts: {before.conflict_share:.0%} of the wavefronts, now {after.conflict_share:.0%}")

# %% [markdown]
# No orange is left. The busiest thing is now the multiply-adds themselves. From here on the floor hardly moves: what is
# left to gain is the time in which the multiply-adds wait, and this floor doesn't count waiting. So each of the next
# steps states what should change instead of a time.

# %% [markdown]
# ## 8. Double buffering
#
# The block loads a tile, waits for it, and only then computes. Now the loads of the next tile go to registers before
# this tile is computed, and then to a second buffer in shared memory. **Prediction:** the counts stay the same, the
# wait for global memory disappears, and one barrier per tile is left instead of two.

# %%
display(diff("conflict_free", "double_buffered"))

# %%
predict("conflict_free", "double_buffered")

# %% [markdown]
# ## 9. Autotuned
#
# The code is the same except for one parameter more: MIN_BLOCKS tells the compiler how many blocks must fit in an SM. A
# search chose the tile (the next notebooks show how). **Prediction:** with 8 x 16 elements per thread, a warp reads 24
# floats for 128 multiply-adds instead of 16 for 64, so fewer instructions stand between the multiply-adds.

# %%
display(diff("double_buffered", "autotuned"))
print({name: worklog.rung(name).template for name in ("double_buffered", "autotuned")})
plots.ownership(touched["autotuned"])

# %%
predict("double_buffered", "autotuned")

# %% [markdown]
# ## 10. Pipelined fragments
#
# The multiply-adds of step k used to wait until the fragments of step k had arrived from shared memory. Now the
# fragments of step k + 1 are read first, also across the barrier between two tiles. **Prediction:** all counts stay the
# same, and a thread needs TM + TN = 24 registers more at most. The gain is the latency of shared memory, about 30
# clocks, where the compiler had not hidden it.

# %%
display(diff("autotuned", "pipelined"))

# %%
predict("autotuned", "pipelined")

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
    compiled = compile_cuda(rung.source, rung.entry, options=rung.options)
    code = sass.disassemble(compiled.cubin, sass.disassembler())
    loop, reads = sass.main_loop(code, compiled.symbol), sass.register_reads(code, compiled.symbol)
    share = loop["FFMA"] / sum(loop.values())
    print(f"{name:15} {share:.0%} of the main loop are multiply-adds; each reads {reads:.2f} registers")

# %% [markdown]
# ## 12. Warp tiles
#
# A warp's 32 threads were 2 x 16 neighbours, whose quads need few floats of A and many of B. Now each warp owns a
# square tile of C. **Prediction:** fewer different floats per step, so fewer wavefronts, though they are not the
# busiest thing any more.

# %%
display(diff("register_banks", "warptiled"))
plots.ownership(touched["warptiled"])

# %%
predict("register_banks", "warptiled")
before, after = counted.rungs["register_banks"], counted.rungs["warptiled"]
print(f"shared wavefronts per multiply-add: {before.wavefronts_per_fma:.3f}, now {after.wavefronts_per_fma:.3f}")

# %% [markdown]
# Both floors are the same: the model has nothing more to say. A little orange is back, since the tile is 16 deep now
# and the transposing write collides again. It adds to a count that is not the busiest thing, so a cure would gain
# little.

# %% [markdown]
# ## The whole climb
#
# The last column is the test of the model: how far above its floor each rung runs. If it were a theory of speed, all
# would be equal.

# %%
rows = []
for rung in worklog.LADDER:
    counts, (ms, what) = counted.rungs[rung.name], floor(rung.name)
    rows.append(
        {
            "rung": rung.name,
            "sectors/FMA": round(counts.sectors_per_fma, 3),
            "wavefronts/FMA": round(counts.wavefronts_per_fma, 3),
            "conflicts": f"{counts.conflict_share:.0%}",
            "floor ms": round(ms, 2),
            "busiest": what,
            "measured ms": round(timed[rung.name].us / 1e3, 2) if rung.name in timed else "not in this recording",
            "measured / floor": round(timed[rung.name].us / 1e3 / ms, 2) if rung.name in timed else "",
        }
    )
print(f"counts: {counted.label}; times: {run.label}")
print(f"from coalesced to warptiled: {timed['coalesced'].us / timed['warptiled'].us:.1f} times as fast")
pd.DataFrame(rows).set_index("rung")

# %% [markdown]
# From `coalesced` on it is a nearly constant factor, while the times fall to a small part. So three counts, all of them
# known without a GPU, explain most of the ladder. Everything else together is what is left between the last rung and
# its floor.

# %%
plots.traffic()

# %%
plots.ladder(run, 4096)

# %% [markdown]
# The circles are the article's percentages. They were measured on an RTX A6000, whose shared memory and multiply-adds
# are balanced otherwise; on this machine the same ideas are worth something else. A ladder's percentages belong to a
# machine.

# %% [markdown]
# ## Any rung, any size
#
# Choose a rung and a size: what changed, what it asks of memory, what it takes. The picture below it is the same page
# for readers without a kernel.

# %%
from worklog import lab

lab.ladder("tiles_2d", 4096)

# %%
lab.ladder_static("tiles_2d", 4096)

# %% [markdown]
# ## Exercises
#
# 1. `coalesced` asks for 1 + 4 sectors where `naive` asked for 32 + 1. Why does the floor count lines and not sectors?
# 2. Take the conflicts out of `vectorized`'s wavefronts on paper. What would its floor be, and what takes it then?
# 3. Why does 8 x 16 elements a thread beat 8 x 8, if both are free of conflicts?
#
# <details><summary>Answers</summary>
#
# 1. Try it: with four sectors a clock, the floor of `naive` is a quarter of its time. Its 32 sectors lie in 32 lines,
#    and a lookup finds one line, whether it takes one sector of it or four.
# 2. `counted.rungs["vectorized"]` has `wavefronts` and `conflicts`. What remains needs less time than the multiply-adds
#    do. So without conflicts, the multiply-adds would be the floor already here.
# 3. It reads 8 + 16 floats for 128 multiply-adds, not 8 + 8 for 64: 0.19 a multiply-add, not 0.25. The next notebooks
#    search for more such tiles.
#
# </details>
#
# **Where next:** [06_roofline](06_roofline.ipynb) puts the rungs under the roofs of the machine.
