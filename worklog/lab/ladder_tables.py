"""The tables of the story: predicted and measured steps of the ladder, counts, and experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Unpack

from worklog.errors import BadSetting
from worklog.gpu.device import gpu_here
from worklog.kernel import Kernel, rung
from worklog.kernel.inspection import inspect
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.prediction import bound, rung_bounds, spread, table
from worklog.kernel.resources import MainLoop, loop_of, no_sass
from worklog.lab.rung_pages import NONE, SIZE
from worklog.problem import Shape, Sizes
from worklog.runner.measure import pairs, results
from worklog.runs import Measurement, Run, same_card
from worklog.runs.text import Cell, Table, change_in_percent, duration, percent
from worklog.settings import PitfallSettings

STEP_SIZES = [2048, 4096, 8192]
LOOPS = "the main loop in machine code of sm_90"


def ladder_summary() -> Table:
    """Return all rungs of the ladder with counts, floors and times at 4096.

    Notes compare what the floors predict for each step with what was measured.
    """
    run = results(shapes=[SIZE])
    bounds = rung_bounds(run, SIZE)
    low, high = spread({name: bound for name, bound in bounds.items() if name != "naive"})
    notes = [f"all but naive take {low:.2f} to {high:.2f} times their floor"]
    for first, last in pairwise(bounds):
        old = bounds[first]
        new = bounds[last]
        if old.measured_ms and new.measured_ms:
            predicted = f"{old.ms / new.ms:.2f} times as fast predicted"
            measured = f"{old.measured_ms / new.measured_ms:.2f} measured"
            notes.append(f"{first} to {last}: {predicted}, {measured}")
    return replace(table(bounds.values(), run.label), notes=notes)


@lru_cache(maxsize=64)
def per_multiply_add(kernel: Kernel) -> dict[str, float]:
    """Return the emulator's counts per multiply-add of a warp.

    The product has a size of 128, or the smallest one above in the kernel's domain.
    """
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
    """Return counts per multiply-add of a warp, and the floor, of kernels or rungs.

    The counts are global sectors, shared wavefronts, wavefronts due to conflicts, and barriers.
    The floor is for 4096.
    Raises what worklog.kernel.prediction.bound raises.
    """
    rows = list[dict[str, Cell]]()
    label = ""
    for kernel_or_name in kernels:
        kernel = rung(kernel_or_name) if isinstance(kernel_or_name, str) else kernel_or_name
        floor = bound(kernel, gpu=gpu_here())
        row: dict[str, Cell] = {"kernel": kernel.name}
        for name, number in per_multiply_add(kernel).items():
            row[name] = f"{number:.3f}"
        row["at least"] = duration(1e3 * floor.ms)
        row["bound by"] = floor.limit
        rows.append(row)
        label = floor.label
    return Table.of(f"per multiply-add of a warp, and a bound at {SIZE}: {label}", rows)


def register_reads(*kernels: Kernel | str) -> Table:
    """Return how the main loop of each kernel's or rung's machine code reads registers.

    Columns: the share of multiply-adds in the main loop, the registers that each reads, and the
    share that reads two from one bank. Without NVIDIA's disassembler, a note says so.
    """
    rows = []
    for name, loop in main_loops(kernels).items():
        row = {"kernel": name}
        row["multiply-adds"] = percent(loop.counts["FFMA"] / sum(loop.counts.values()))
        row["registers read by each"] = f"{loop.register_reads:.2f}"
        row["in a bank conflict"] = percent(loop.bank_conflicts)
        rows.append(row)
    return Table.of(LOOPS if rows else no_sass(), rows)


def main_loops(kernels: Sequence[Kernel | str]) -> dict[str, MainLoop]:
    """Return the main loop of each kernel's or rung's machine code, by its name.

    There is none without NVIDIA's disassembler.
    """
    loops = {}
    for kernel_or_name in kernels:
        kernel = rung(kernel_or_name) if isinstance(kernel_or_name, str) else kernel_or_name
        output = compile_cuda(kernel.program)
        loop = loop_of(output.cubin, output.symbol)
        if loop:
            loops[kernel.name] = loop
    return loops


def steps(*names: str, sizes: Sizes = STEP_SIZES) -> Table:
    """Return each rung's speedup over the rung before it, and its share of cuBLAS.

    The rung before it is the previous one in `names`. There is a column for each size. Both times
    are from one recording if there is one with both.
    Raises BadSetting, and BadRunFile for what isn't recorded.
    """
    rows = []
    labels = dict[str, None]()
    for earlier, later in pairwise(names):
        run = results([earlier, later], sizes)
        measured = {(m.kernel, m.problem): m for m in run.measurements if m.shape}
        row = {"rung": later, "against": earlier}
        for shape in Shape.list_of(sizes):
            old = measured[earlier, shape]
            new = measured[later, shape]
            speedup = NONE
            if old.us and new.us:
                speedup = f"{old.us / new.us:.3f}" if same_card(old, new) else "two cards"
            row[f"at {shape}, of cuBLAS"] = f"{speedup}, {percent(new.ratio)}"
        rows.append(row)
        labels |= dict.fromkeys(m.label for m in run.measurements if m.kernel in (earlier, later))
    return Table.of("times as fast as the rung before: " + "; ".join(labels), rows, left=2)


def setting_effect(kernel: str, sizes: Sizes, **setting: Unpack[PitfallSettings]) -> Table:
    """Return the effect of settings on a kernel's time, a row for each size.

    Columns: the unbiased time, the time with these settings, and their difference at one clock. A
    dash stands for a missing time. Both times of a row are of one run, so of one card.
    Raises BadSetting, and BadRunFile for what isn't recorded.
    """
    if not setting:
        raise BadSetting(
            "lab.setting_effect compares a setting with the unbiased one: name it, as in l2='warm'"
        )
    title = f"{len(setting)} settings"
    if len(setting) == 1:
        [(name, value)] = setting.items()
        title = f"{name} = {value}"
    rows = []
    labels = dict[str, None]()
    for run, unbiased, biased in pairs(kernel, sizes, setting):
        row = {"kernel": kernel, "at": str(unbiased.problem)}
        row["unbiased"] = _padded_time(unbiased)
        row[title] = _padded_time(biased)
        row["difference"] = _difference(run, unbiased, biased)
        row["clocks"] = f"{_clock(unbiased)} and {_clock(biased)} MHz"
        rows.append(row)
        labels |= dict.fromkeys((unbiased.label, biased.label))
    return Table.of("; ".join(labels), rows)


def _padded_time(m: Measurement) -> str:
    return NONE if m.us is None else duration(m.us, padded=True)


def _clock(m: Measurement) -> str:
    return NONE if m.sm_mhz is None else f"{m.sm_mhz:.0f}"


def _difference(run: Run, unbiased: Measurement, biased: Measurement) -> str:
    """Return the difference of two times at one clock in percent, if it is visible."""
    if unbiased.us is None or biased.us is None:
        return NONE
    difference = run.difference(unbiased, biased)
    if not difference.visible:
        return "within noise"
    return change_in_percent(difference.off, difference.noise)
