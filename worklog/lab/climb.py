"""The tables of the story: steps up the ladder, predicted beside measured, and the experiments beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from worklog.analysis.counters import busiest
from worklog.analysis.inspection import inspect
from worklog.analysis.prediction import bound, rung_bounds, spread, table
from worklog.errors import BadSetting
from worklog.kernel import LADDER, Kernel, resources, rung
from worklog.kernel.nvrtc import compile_cuda
from worklog.lab.rungs import Code
from worklog.problem import Shape
from worklog.runner.measure import results
from worklog.runs import Calibration, Cell, Table, duration, percent, recordings

SIZE = Shape.of(4096)
ALIKE = 1e-3  # floors that differ by less predict no change
LOOPS = "the main loop in machine code of sm_90"


def step(after: str) -> Code:
    """The step to a rung from the one before it, at 4096, by this machine's latest times, else the recording: what
    Nsight Compute counted of the rung before, the floors, and the time that they predict beside the measured one.
    Raises BadSetting for a name without a step.
    """
    names = [record.name for record in LADDER]
    if after not in names[1:]:
        raise BadSetting(f"there is no step to {after!r} on the ladder: choose from {', '.join(names[1:])}")
    before = names[names.index(after) - 1]
    run = results([before, after], [SIZE])
    old, new = (rung_bounds(run, SIZE)[name] for name in (before, after))
    floors = f"{duration(1e3 * old.ms)} ({old.limit}), now {duration(1e3 * new.ms)} ({new.limit})"
    lines = [f"{before}: {busiest(before)}", f"floor:     {floors}"]
    if old.measured_ms is None or new.measured_ms is None:
        return Code((*lines, f"{before} or {after} is not in this run: {run.label}"))
    said = "no change"
    if abs(new.ms / old.ms - 1) > ALIKE:
        said = f"{duration(1e3 * old.measured_ms * new.ms / old.ms)}, {old.ms / new.ms:.2f} times as fast"
    share = run.select(after, SIZE)[0].ratio
    of_cublas = "" if share is None else f"; {percent(share)} of cuBLAS"
    speedup = f"{old.measured_ms / new.measured_ms:.2f} times as fast{of_cublas}"
    lines += [f"predicted: {said}", f"measured:  {duration(1e3 * new.measured_ms)}, {speedup}"]
    wavefronts = [f"{2 * 32 * b.counts.wavefronts / b.shape.flops:.3f}" for b in (old, new)]
    if wavefronts != ["0.000", "0.000"]:
        lines.append(f"shared wavefronts per multiply-add of a warp: {wavefronts[0]}, now {wavefronts[1]}")
    return Code((*lines, f"{run.label}; counts: {new.source}"))


def climb() -> Table:
    """All rungs of the ladder with counts, floors and times at 4096, and what the floors predict of the two halves."""
    run = results(shapes=[SIZE])
    bounds = rung_bounds(run, SIZE)
    least, most = spread({name: bound for name, bound in bounds.items() if name != "naive"})
    notes = [f"all but naive take {least:.2f} to {most:.2f} times their floor"]
    for first, last in (("coalesced", "conflict_free"), ("conflict_free", "warptiled")):
        there, here = bounds[first], bounds[last]
        if there.measured_ms and here.measured_ms:
            speedup = there.measured_ms / here.measured_ms
            notes.append(f"{first} to {last}: {there.ms / here.ms:.2f} times as fast predicted, {speedup:.2f} measured")
    return replace(table(bounds.values(), run.label), notes=notes)


@lru_cache(maxsize=64)
def per_multiply_add(kernel: Kernel) -> dict[str, float]:
    """What the emulator counts per multiply-add of a warp, for a product of 128 or the least above that it takes."""
    counted = inspect(kernel, kernel.domain.padded(Shape.of(128))).counts
    totals = {
        "sectors": counted.global_sectors,
        "wavefronts": counted.shared_load.wavefronts + counted.shared_store.wavefronts,
        "conflicts of reads": counted.shared_load.conflicts,
        "of writes": counted.shared_store.conflicts,
        "barriers": counted.instructions.get("barrier", 0),
    }
    return {name: number / counted.instructions["fma"] for name, number in totals.items()}


def counts(*kernels: Kernel | str) -> Table:
    """A row for each kernel or rung: global sectors, shared wavefronts, those due to conflicts, and barriers per
    multiply-add of a warp, and the floor at 4096. Raises what worklog.analysis.prediction.bound raises.
    """
    rows, label = list[dict[str, Cell]](), ""
    for kernel in (rung(kernel) if isinstance(kernel, str) else kernel for kernel in kernels):
        least = bound(kernel)
        row = {name: f"{number:.3f}" for name, number in per_multiply_add(kernel).items()}
        rows.append({"kernel": kernel.name, **row, "at least": duration(1e3 * least.ms), "bound by": least.limit})
        label = least.label
    return Table.of(f"per multiply-add of a warp, and a bound at {SIZE}: {label}", rows)


def register_reads(*names: str) -> Table:
    """Of each rung's machine code, the share of multiply-adds in the main loop, the registers that each reads, and the
    share that reads two from one bank. Without NVIDIA's disassembler, a note says so.
    """
    rows = []
    for name, loop in main_loops(names).items():
        share = percent(loop.counts["FFMA"] / sum(loop.counts.values()))
        row = {"rung": name, "multiply-adds": share, "registers read by each": f"{loop.register_reads:.2f}"}
        rows.append(row | {"in a bank conflict": f"{loop.bank_conflicts:.1%}"})
    return Table.of(LOOPS if rows else resources.no_sass(), rows)


def fetched_ahead(known: Calibration, *names: str) -> Table:
    """Of each rung's machine code, the multiply-adds from the last fetch of a tile to its first store, the clocks that
    these take in all warps of a quarter of a multiprocessor that has one block, and what a warm L2 saves per tile if a
    read waits for the rest of its latency only. Without NVIDIA's disassembler, a note says so.
    """
    rows = []
    for name, loop in main_loops(names).items():
        hidden = loop.ahead * rung(name).thread_count // 128
        cold, warm = (max(0.0, cycles - hidden) for cycles in (known.cold_cycles, known.warm_cycles))
        row = {"kernel": name, "multiply-adds ahead": f"{loop.ahead}", "clocks ahead": f"{hidden}"}
        rows.append(row | {"a warm L2 saves": f"{cold - warm:.0f}"})
    return Table.of(LOOPS if rows else resources.no_sass(), rows)


def main_loops(names: Sequence[str]) -> dict[str, resources.MainLoop]:
    """Of each rung's machine code; empty without NVIDIA's disassembler."""
    loops, tool = dict[str, resources.MainLoop](), resources.disassembler()
    if tool is None:
        return loops
    for name in names:
        compiled = compile_cuda(rung(name).program)
        loops[name] = resources.main_loop(resources.disassemble(compiled.cubin, tool), compiled.symbol)
    return loops


def steps(*names: str, sizes: Sequence[int] = (2048, 4096, 8192)) -> Table:
    """How many times as fast each rung is as the one named before it, and its share of cuBLAS, at each size; from one
    recording where one has both. Raises BadSetting, and BadRunFile for what isn't recorded.
    """
    rows, labels = [], dict[str, None]()
    for before, after in pairwise(names):
        run = results([before, after], sizes)
        us = {(m.kernel, m.shape[0]): m for m in run.measurements if m.shape}
        row = {"rung": after, "against": before}
        for size in sizes:
            old, new = us[before, size], us[after, size]
            speedup = f"{old.us / new.us:.3f}" if old.us and new.us else "–"
            row[f"at {size}, of cuBLAS"] = f"{speedup}, {percent(new.ratio)}"
        rows.append(row)
        labels |= dict.fromkeys(m.label for m in run.measurements if m.kernel in (before, after))
    return Table.of("times as fast as the rung before: " + "; ".join(labels), rows, left=2)


def power_cap() -> Table:
    """cuBLAS's products in INT8, FP16 and FP32, launched in a row on a card at its power limit; and how much of FP32's
    time the 6 and the 3 take that come near FP32's error.
    """
    document = json.loads(recordings("int8")["h200"].read_text(encoding="utf-8"))
    rows, needed = [], {"INT8": 6, "FP16": 3, "FP32": 1}
    us = {(made["format"], made["size"]): made["in_a_row"]["us"] for made in document["rows"]}
    for made in document["rows"]:
        name, size, launched = made["format"], made["size"], made["in_a_row"]
        row = {"product": f"{name} at {size}", "time": duration(launched["us"], padded=True)}
        row["T(FL)OP/s"] = f"{2e-6 * size**3 / launched['us']:.0f}"
        row["W"] = f"{launched['watts']:.0f}"
        rows.append(row | {"of FP32's time, x 6, 3, 1": percent(needed[name] * us[name, size] / us["FP32", size])})
    return Table.of(f"{document['label']}, power limit {document['limit_watts']:.0f} W", rows)


def effect(kernel: str, sizes: Sequence[Shape | int], **setting: Any) -> Table:
    """A row for each size: the unbiased time, the time with these settings, and their difference at one clock; "–" for
    one without a time. Raises BadSetting, and BadRunFile for what isn't recorded.
    """
    run, other = (results([kernel], [*sizes], **how) for how in ({}, setting))
    [(name, value), *more] = setting.items()
    changed, rows = f"{len(setting)} settings" if more else f"{name} = {value}", []
    for true, read in zip(run.measurements, other.measurements, strict=True):
        row = {"kernel": kernel, "at": str(true.problem)}
        row["unbiased"], row[changed] = ("–" if m.us is None else duration(m.us, padded=True) for m in (true, read))
        both = true.us is not None and read.us is not None
        row["difference"] = f"{round(run.difference(true, read).off, 3) + 0.0:+.1%}" if both else "–"
        row["clocks"] = " and ".join("–" if m.sm_mhz is None else f"{m.sm_mhz:.0f}" for m in (true, read)) + " MHz"
        rows.append(row)
    return Table.of(run.label if run.label == other.label else f"{run.label}; {other.label}", rows)
