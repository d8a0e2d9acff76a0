"""The ladder rung by rung: what changed against the rung before, its costs and its speed; and the tables of the story:
steps predicted beside measured, and the experiments beside them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Any

from worklog.errors import BadSetting
from worklog.gpu.device import gpu_here
from worklog.kernel import (
    LADDER,
    RUNGS,
    Kernel,
    MainLoop,
    busiest,
    compile_cuda,
    loop_of,
    memory_counts,
    no_sass,
    rung,
    source_changed,
)
from worklog.kernel.inspection import inspect
from worklog.kernel.prediction import bound, rung_bounds, spread, table
from worklog.problem import Shape
from worklog.runner.measure import pairs, results
from worklog.runs import (
    Calibration,
    Cell,
    Measurement,
    Run,
    Table,
    cells,
    change_in_percent,
    duration,
    percent,
    recordings,
    same_card,
)
from worklog.runs.limits import LIMITS, occupancy

SIGNATURE = re.compile(
    r"template <(?P<tile>[^>]*)>\s*__global__[^;{}]*?(?P<name>sgemm_\w+)\((?P<arguments>[^)]*)\) \{\n"
)
HIDDEN = re.compile(r"^ *static_assert\(.*?\);\n", re.DOTALL | re.MULTILINE)
# Tag and background by a line's first character; translucent, so that text stays readable on light and dark pages.
LOOKS = {"+": ("ins", "#3b93d055"), "-": ("del", "#e0702455")}
NONE = "–"
TIMES = ("time", "±95 %", "TFLOP/s", "of cuBLAS", "of FP32 ceiling")  # columns of cells()
SIZE = Shape.of(4096)
ALIKE = 1e-3  # floors that differ by less predict no change
LOOPS = "the main loop in machine code of sm_90"


@dataclass(frozen=True, repr=False)
class Code:
    """Source lines, shown as text and as HTML. In a diff, "+" begins an added line and "-" a removed one."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace;line-height:1.35;word-break:normal">{self.html()}</pre>'

    def html(self) -> str:
        """The lines without a box around them; <ins> and <del> tell a screen reader what changed."""
        html = ""
        for line in self.lines:
            tag, tint = LOOKS.get(line[:1], ("span", "transparent"))
            html += f'<{tag} style="display:block;text-decoration:none;background:{tint}">{escape(line)}</{tag}>'
        return html


def source(name: str, begin: str = "", most: int | None = None) -> Code:
    """A rung's short signature, and its body without comments, assertions and final brace. begin, most: of the body,
    only so many lines from the first one that holds these words. Raises BadSetting.
    """
    bare = HIDDEN.sub("", re.sub(r"//.*", "", rung(name).source))
    before, body = SIGNATURE.split(bare, 1)[::4]
    signature = SIGNATURE.search(bare)
    assert signature is not None  # a test holds every rung's
    tile, arguments = (
        re.findall(r"(\w+)(?:,|$)", signature[part]) for part in ("tile", "arguments")
    )
    first = f"{signature['name']}<{', '.join(tile)}>({', '.join(arguments)})"
    kept = [
        line.removeprefix("  ").rstrip() for line in f"{before}{body}".splitlines() if line.strip()
    ][:-1]
    start = next((number for number, line in enumerate(kept) if begin in line), 0)
    return Code((first, *kept[start:][:most]))


def diff(before: str | None, after: str, *, around: int = 0, hunks: Sequence[int] = ()) -> Code:
    """The lines in which two rungs differ, with `around` unchanged lines above and below each change; "..." stands for
    the lines in between. before: None compares with an empty file. hunks: which changes to show, counted from 0
    (default: all), below the signature. Raises BadSetting.
    """
    earlier = () if before is None else source(before).lines
    shown = list[str]()
    number = -1
    wanted = set(hunks)
    for line in list(difflib.unified_diff(earlier, source(after).lines, n=around, lineterm=""))[2:]:
        number += line.startswith("@@")
        if line.startswith("@@"):
            line = "  ..."
        if not wanted or number in wanted:
            shown.append(line)
    return Code((f"  {source(after).lines[0]}", *shown) if wanted else tuple(shown[1:]))


@dataclass(frozen=True, repr=False)
class Climb:
    """A rung at a shape, compared with the rung before. Raises BadSetting."""

    run: Run
    kernel: str
    shape: Shape

    def __repr__(self) -> str:
        return "\n".join([*self.sentences, *(table.text() for table in self.tables)])

    def _repr_html_(self) -> str:
        """Sentences, tables, and the diff in a box that the keyboard can scroll."""
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        files = escape(" against ".join(record.file for record in self.rungs))
        code = diff(self.rungs[1].name if self.rungs[1:] else None, self.kernel, around=2).html()
        lines = f'<span style="display:inline-block;min-width:100%">{code}</span>'  # as wide as its longest line
        box = f'<pre tabindex="0" role="region" aria-label="{files}" style="overflow-x:auto">{lines}</pre>'
        return said + "".join(table.html() for table in self.tables) + f"<p>{files}</p>{box}"

    @property
    def rungs(self) -> Sequence[Kernel]:
        """The rung and, if it isn't the first, the one before."""
        return RUNGS[RUNGS.index(rung(self.kernel)) :: -1][:2]

    @property
    def sentences(self) -> list[str]:
        """The rung's number or why there is none, its idea, how many lines of code differ from the rung before, how
        much faster it is, and what was timed with other code than the source that is shown.
        """
        run = self.run
        place = f"{self.kernel} at {self.shape}"
        (chosen, *before) = self.rungs
        m, earlier = (self._measurement(of) for of in (chosen, before[0] if before else chosen))
        if m is None:
            held = ", ".join(str(m.problem) for m in run.select(self.kernel)) or "no size"
            headline = f"{place} is not in this {run.origin} run, which holds it at {held}"
        elif m.status != "measured":
            headline = f"{place}: {m.status}: {m.reason}"
        else:
            row = cells(m)
            headline = (
                f"{place}: {row['time']} → {row['TFLOP/s']} TFLOP/s → {row['of cuBLAS']} of cuBLAS"
            )
        lines = [headline, chosen.idea]
        if before:
            name = before[0].name
            marks = [line[:1] for line in diff(before[0].name, chosen.name).lines]
            lines.append(f"+{marks.count('+')} −{marks.count('-')} lines against {name}")
        else:
            lines += [
                f"{len(source(chosen.name).lines)} lines",
                "the first rung: the others are compared with it",
            ]
        if before and m and m.us and earlier and earlier.us and not same_card(m, earlier):
            lines.append(f"{name} was timed on another card: {earlier.label}")
        elif before and m and m.us and earlier and earlier.us:
            difference = run.difference(m, earlier)
            factor = 1 + difference.off
            gain = (
                f"{factor:.3g} times as fast" if factor > 1 else f"{1 / factor:.3g} times as slow"
            )
            lines.append(
                f"{gain} as {name}"
                if difference.visible
                else f"as fast as {name}, within the noise of both"
            )
        stale = [record.name for record in self.rungs if source_changed(record.name, run.kernels)]
        return lines + [
            f"{name} was timed with different code than the source shown here" for name in stale
        ]

    @property
    def tables(self) -> list[Table]:
        """What this rung and the one before cost: from the run, then from the emulator. A dash for what neither has."""
        timed = list[dict[str, str]]()
        counted = list[dict[str, str]]()
        known = memory_counts()
        for of in self.rungs:
            m = self._measurement(of)
            record = self.run.kernels.get(of.name, {})
            counts = known.rungs.get(of.name)
            row = {} if m is None else cells(m)
            registers = record.get("registers")
            shared = record.get("shared_bytes")
            fits = None
            resident = ""
            if self.run.gpu.arch in LIMITS and registers is not None and shared is not None:
                fits = occupancy(
                    self.run.gpu.arch, record.get("block", of.thread_count), registers, shared
                )
                resident = f"{fits.blocks} × {of.thread_count} threads, {100 * fits.share:.0f} %"
            timed.append({name: str(row.get(name) or NONE) for name in TIMES})
            timed[-1] |= {
                "registers per thread": NONE if registers is None else str(registers),
                "shared memory per block": NONE if shared is None else f"{shared / 1024:g} KiB",
                "resident on an SM": resident if fits else NONE,
                "resident blocks limited by": " and ".join(fits.limited_by) if fits else NONE,
            }
            conflicts = (
                f"{100 * counts.conflict_share:.0f} %" if counts and counts.wavefronts else NONE
            )
            counted.append({
                "sectors per global load": f"{counts.sectors_per_request:.1f}" if counts else NONE,
                "global sectors per multiply-add": f"{counts.sectors_per_fma:.3g}" if counts else NONE,
                "shared wavefronts per multiply-add": f"{counts.wavefronts_per_fma:.3g}" if counts else NONE,
                "of which bank conflicts": conflicts,
            })  # fmt: skip
        label = f"{known.label} · {known.shape}, per warp"
        names = [record.name for record in self.rungs]
        return [
            Table(
                title,
                ("", *names),
                [(name, *(column[name] for column in columns)) for name in columns[0]],
            )
            for title, columns in ((self.run.full_label, timed), (label, counted))
        ]

    def _measurement(self, of: Kernel) -> Measurement | None:
        return next(iter(self.run.select(of.name, self.shape)[-1:]), None)


def step(after: str) -> Code:
    """The step to a rung from the one before it, at 4096, by this machine's latest times, else the recording: what
    Nsight Compute counted of the rung before, the floors, and the time that they predict beside the measured one.
    Raises BadSetting for a name without a step.
    """
    names = [record.name for record in LADDER]
    if after not in names[1:]:
        raise BadSetting(
            f"there is no step to {after!r} on the ladder: choose from {', '.join(names[1:])}"
        )
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
        lines.append(
            f"shared wavefronts per multiply-add of a warp: {wavefronts[0]}, now {wavefronts[1]}"
        )
    return Code((*lines, run.label, f"counts: {new.source}"))


def climb() -> Table:
    """All rungs of the ladder with counts, floors and times at 4096, and what the floors predict of the two halves."""
    run = results(shapes=[SIZE])
    bounds = rung_bounds(run, SIZE)
    least, most = spread({name: bound for name, bound in bounds.items() if name != "naive"})
    notes = [f"all but naive take {least:.2f} to {most:.2f} times their floor"]
    for first, last in (("coalesced", "conflict_free"), ("conflict_free", "warptiled")):
        there = bounds[first]
        here = bounds[last]
        if there.measured_ms and here.measured_ms:
            speedup = there.measured_ms / here.measured_ms
            notes.append(
                f"{first} to {last}: {there.ms / here.ms:.2f} times as fast predicted, {speedup:.2f} measured"
            )
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
    multiply-add of a warp, and the floor at 4096. Raises what worklog.kernel.prediction.bound raises.
    """
    rows = list[dict[str, Cell]]()
    label = ""
    for kernel in (rung(kernel) if isinstance(kernel, str) else kernel for kernel in kernels):
        least = bound(kernel, gpu=gpu_here())
        row = {name: f"{number:.3f}" for name, number in per_multiply_add(kernel).items()}
        rows.append(
            {
                "kernel": kernel.name,
                **row,
                "at least": duration(1e3 * least.ms),
                "bound by": least.limit,
            }
        )
        label = least.label
    return Table.of(f"per multiply-add of a warp, and a bound at {SIZE}: {label}", rows)


def register_reads(*names: str) -> Table:
    """Of each rung's machine code, the share of multiply-adds in the main loop, the registers that each reads, and the
    share that reads two from one bank. Without NVIDIA's disassembler, a note says so.
    """
    rows = []
    for name, loop in main_loops(names).items():
        share = percent(loop.counts["FFMA"] / sum(loop.counts.values()))
        row = {
            "rung": name,
            "multiply-adds": share,
            "registers read by each": f"{loop.register_reads:.2f}",
        }
        rows.append(row | {"in a bank conflict": percent(loop.bank_conflicts)})
    return Table.of(LOOPS if rows else no_sass(), rows)


def fetched_ahead(known: Calibration, *names: str) -> Table:
    """Of each rung's machine code, the multiply-adds from the last fetch of a tile to its first store, the clocks that
    these take in all warps of a quarter of a multiprocessor that has one block, and what a warm L2 saves per tile if a
    read waits for the rest of its latency only. Without NVIDIA's disassembler, a note says so.
    """
    rows = []
    for name, loop in main_loops(names).items():
        hidden = loop.ahead * rung(name).thread_count // 128
        cold, warm = (
            max(0.0, cycles - hidden) for cycles in (known.cold_cycles, known.warm_cycles)
        )
        row = {"kernel": name, "multiply-adds ahead": f"{loop.ahead}", "clocks ahead": f"{hidden}"}
        rows.append(row | {"a warm L2 saves": f"{cold - warm:.0f}"})
    return Table.of(LOOPS if rows else no_sass(), rows)


def main_loops(names: Sequence[str]) -> dict[str, MainLoop]:
    """Of each rung's machine code; empty without NVIDIA's disassembler."""
    built = {name: compile_cuda(rung(name).program) for name in names}
    return {name: loop for name, out in built.items() if (loop := loop_of(out.cubin, out.symbol))}


def steps(*names: str, sizes: Sequence[int] = (2048, 4096, 8192)) -> Table:
    """How many times as fast each rung is as the one named before it, and its share of cuBLAS, at each size; from one
    recording where one has both. Raises BadSetting, and BadRunFile for what isn't recorded.
    """
    rows = []
    labels = dict[str, None]()
    for before, after in pairwise(names):
        run = results([before, after], sizes)
        us = {(m.kernel, m.shape[0]): m for m in run.measurements if m.shape}
        row = {"rung": after, "against": before}
        for size in sizes:
            old = us[before, size]
            new = us[after, size]
            speedup = "–"
            if old.us and new.us:
                speedup = f"{old.us / new.us:.3f}" if same_card(old, new) else "two cards"
            row[f"at {size}, of cuBLAS"] = f"{speedup}, {percent(new.ratio)}"
        rows.append(row)
        labels |= dict.fromkeys(m.label for m in run.measurements if m.kernel in (before, after))
    return Table.of("times as fast as the rung before: " + "; ".join(labels), rows, left=2)


def power_cap() -> Table:
    """cuBLAS's products in INT8, FP16 and FP32, launched in a row on a card at its power limit; and how much of FP32's
    time the 6 and the 3 take that come near FP32's error.
    """
    document = json.loads(recordings("int8")["h200"].read_text(encoding="utf-8"))
    rows = []
    needed = {"INT8": 6, "FP16": 3, "FP32": 1}
    us = {(made["format"], made["size"]): made["in_a_row"]["us"] for made in document["rows"]}
    for made in document["rows"]:
        name = made["format"]
        size = made["size"]
        launched = made["in_a_row"]
        row = {"product": f"{name} at {size}", "time": duration(launched["us"], padded=True)}
        row["T(FL)OP/s"] = f"{2e-6 * size**3 / launched['us']:.0f}"
        row["W"] = f"{launched['watts']:.0f}"
        rows.append(
            row
            | {
                "of FP32's time, x 6, 3, 1": percent(
                    needed[name] * us[name, size] / us["FP32", size]
                )
            }
        )
    return Table.of(f"{document['label']}, power limit {document['limit_watts']:.0f} W", rows)


def effect(kernel: str, sizes: Sequence[Shape | int], **setting: Any) -> Table:
    """A row for each size: the unbiased time, the time with these settings, and their difference at one clock; "–" for
    one without a time. Both times of a row are of one run, so of one card. Raises BadSetting, and BadRunFile for what
    isn't recorded.
    """
    if not setting:
        raise BadSetting(
            "lab.effect compares a setting with the unbiased one: name it, as in l2='warm'"
        )
    [(name, value), *more] = setting.items()
    changed = f"{len(setting)} settings" if more else f"{name} = {value}"
    rows = []
    labels = dict[str, None]()
    for run, true, read in pairs(kernel, sizes, setting):
        row = {"kernel": kernel, "at": str(true.problem)}
        row["unbiased"], row[changed] = (
            "–" if m.us is None else duration(m.us, padded=True) for m in (true, read)
        )
        row["difference"] = "–"
        if true.us is not None and read.us is not None:
            difference = run.difference(true, read)
            words = change_in_percent(difference.off, difference.noise)
            row["difference"] = words if difference.visible else "within noise"
        row["clocks"] = (
            " and ".join("–" if m.sm_mhz is None else f"{m.sm_mhz:.0f}" for m in (true, read))
            + " MHz"
        )
        rows.append(row)
        labels |= dict.fromkeys((true.label, read.label))
    return Table.of("; ".join(labels), rows)
