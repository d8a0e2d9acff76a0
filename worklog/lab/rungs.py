"""The ladder rung by rung: what changed against the rung before, its costs and its speed.

Also the tables of the story: predicted and measured steps, and the experiments.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Unpack

from worklog.emulator.limits import LIMITS, occupancy
from worklog.errors import BadSetting
from worklog.gpu.device import gpu_here
from worklog.kernel import (
    LADDER,
    RUNGS,
    Kernel,
    MainLoop,
    busiest,
    loop_of,
    memory_counts,
    no_sass,
    rung,
    source_changed,
)
from worklog.kernel.inspection import inspect
from worklog.kernel.nvrtc import compile_cuda
from worklog.kernel.prediction import bound, rung_bounds, spread, table
from worklog.problem import Shape, Sizes
from worklog.runner.measure import pairs, results
from worklog.runs import Measurement, Run, cells, same_card
from worklog.runs.text import Cell, Table, change_in_percent, duration, percent
from worklog.settings import PitfallSettings

SIGNATURE = re.compile(
    r"template <(?P<tile>[^>]*)>\s*__global__[^;{}]*?(?P<name>sgemm_\w+)\((?P<arguments>[^)]*)\) \{\n"
)
HIDDEN = re.compile(r"^ *static_assert\(.*?\);\n", re.DOTALL | re.MULTILINE)
# Tag and background by a line's first character. The background is translucent, so that text stays
# readable on light and dark pages.
LOOKS = {"+": ("ins", "#3b93d055"), "-": ("del", "#e0702455")}
NONE = "–"
TIMES = ("time", "±95 %", "TFLOP/s", "of cuBLAS", "of FP32 ceiling")  # columns of cells()
STEP_SIZES = [2048, 4096, 8192]
SIZE = Shape.of(4096)
ALIKE = 1e-3  # floors that differ by less predict no change
LOOPS = "the main loop in machine code of sm_90"


@dataclass(frozen=True, repr=False)
class Code:
    """Source lines, shown as text and as HTML.

    In a diff, "+" begins an added line and "-" a removed one.
    """

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace;line-height:1.35;word-break:normal">{self.html()}</pre>'

    def html(self) -> str:
        """Return the lines without a box around them.

        <ins> and <del> tell a screen reader what changed.
        """
        html = ""
        for line in self.lines:
            tag, tint = LOOKS.get(line[:1], ("span", "transparent"))
            html += f'<{tag} style="display:block;text-decoration:none;background:{tint}">{escape(line)}</{tag}>'
        return html


def source(name: str, begin: str = "", limit: int | None = None) -> Code:
    """Return a rung's short signature and its body.

    The body has no comments, no assertions and no final brace.
    begin: the body starts at the first line with this text (default: all of it)
    limit: at most this many lines of the body
    Raises BadSetting.
    """
    code = HIDDEN.sub("", re.sub(r"//.*", "", rung(name).source))
    signature = SIGNATURE.search(code)
    assert signature is not None  # a test checks every rung's
    tile = re.findall(r"(\w+)(?:,|$)", signature["tile"])
    arguments = re.findall(r"(\w+)(?:,|$)", signature["arguments"])
    short_signature = f"{signature['name']}<{', '.join(tile)}>({', '.join(arguments)})"
    text = code[: signature.start()] + code[signature.end() :]
    body = [line.removeprefix("  ").rstrip() for line in text.splitlines() if line.strip()][:-1]
    start = next((number for number, line in enumerate(body) if begin in line), 0)
    return Code((short_signature, *body[start:][:limit]))


def diff(earlier: str | None, later: str, *, around: int = 0, hunks: Sequence[int] = ()) -> Code:
    """Return the lines in which two rungs differ.

    "..." stands for the lines between two changes.
    earlier: the rung to compare with; None for an empty file
    around: the unchanged lines to show above and below each change
    hunks: the changes to show below the signature, counted from 0 (default: all)
    Raises BadSetting.
    """
    earlier_lines = () if earlier is None else source(earlier).lines
    later_lines = source(later).lines
    lines = difflib.unified_diff(earlier_lines, later_lines, n=around, lineterm="")
    chosen_hunks = set(hunks)
    changes = list[str]()
    hunk = -1
    for line in list(lines)[2:]:  # without the names of the files
        is_head = line.startswith("@@")
        if is_head:
            hunk += 1
        if not chosen_hunks or hunk in chosen_hunks:
            changes.append("  ..." if is_head else line)
    if chosen_hunks:
        return Code((f"  {later_lines[0]}", *changes))
    return Code(tuple(changes[1:]))


@dataclass(frozen=True, repr=False)
class Climb:
    """A rung at a shape, compared with the rung before. Raises BadSetting."""

    run: Run
    kernel: str
    shape: Shape

    def __repr__(self) -> str:
        return "\n".join([*self.sentences, *(table.text() for table in self.tables)])

    def _repr_html_(self) -> str:
        """Return sentences, tables, and the diff in a box that the keyboard can scroll."""
        sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        tables = "".join(table.html() for table in self.tables)
        files = escape(" against ".join(record.file for record in self.rungs))
        earlier = self.rungs[1].name if self.rungs[1:] else None
        code = diff(earlier, self.kernel, around=2).html()
        # as wide as the longest line
        lines = f'<span style="display:inline-block;min-width:100%">{code}</span>'
        box = f'<pre tabindex="0" role="region" aria-label="{files}" style="overflow-x:auto">{lines}</pre>'
        return f"{sentences}{tables}<p>{files}</p>{box}"

    @property
    def rungs(self) -> Sequence[Kernel]:
        """The rung and, if it isn't the first, the one before."""
        return RUNGS[RUNGS.index(rung(self.kernel)) :: -1][:2]

    @property
    def sentences(self) -> list[str]:
        """Sentences about the rung.

        They are the measured rate or the reason why there is none, the idea, how many lines of code
        differ from the rung before, how much faster the rung is, and the rungs that were timed with
        other code than the source that is shown.
        """
        (record, *previous) = self.rungs
        lines = [self._headline(), record.idea]
        if previous:
            marks = [line[:1] for line in diff(previous[0].name, record.name).lines]
            changes = f"+{marks.count('+')} −{marks.count('-')} lines"
            lines.append(f"{changes} against {previous[0].name}")
            lines += self._gain(record, previous[0])
        else:
            lines.append(f"{len(source(record.name).lines)} lines")
            lines.append("the first rung: the others are compared with it")
        for compared in self.rungs:
            if source_changed(compared.name, self.run.kernels):
                lines.append(
                    f"{compared.name} was timed with different code than the source shown here"
                )
        return lines

    def _headline(self) -> str:
        """Return the rung's time, rate and share of cuBLAS, or the reason why there is none."""
        subject = f"{self.kernel} at {self.shape}"
        m = self._measurement(rung(self.kernel))
        if m is None:
            sizes = ", ".join(str(m.problem) for m in self.run.select(self.kernel)) or "no size"
            return f"{subject} is not in this {self.run.origin} run, which holds it at {sizes}"
        if m.status != "measured":
            return f"{subject}: {m.status}: {m.reason}"
        row = cells(m)
        return f"{subject}: {row['time']} → {row['TFLOP/s']} TFLOP/s → {row['of cuBLAS']} of cuBLAS"

    def _gain(self, record: Kernel, previous: Kernel) -> list[str]:
        """Return a sentence on how much faster the rung is; none if one of the two has no time."""
        m = self._measurement(record)
        earlier = self._measurement(previous)
        if m is None or earlier is None or not m.us or not earlier.us:
            return []
        if not same_card(m, earlier):
            return [f"{previous.name} was timed on another card: {earlier.label}"]
        difference = self.run.difference(m, earlier)
        if not difference.visible:
            return [f"as fast as {previous.name}, within the noise of both"]
        factor = 1 + difference.off
        if factor > 1:
            return [f"{factor:.3g} times as fast as {previous.name}"]
        return [f"{1 / factor:.3g} times as slow as {previous.name}"]

    @property
    def tables(self) -> list[Table]:
        """The costs of this rung and of the rung before.

        The first table is from the run, the second one from the emulator. A dash stands for what
        neither has.
        """
        counts = memory_counts()
        timed = [self._timed_column(record) for record in self.rungs]
        counted = [_counted_column(record) for record in self.rungs]
        names = [record.name for record in self.rungs]
        return [
            _side_by_side(self.run.full_label, names, timed),
            _side_by_side(f"{counts.label} · {counts.shape}, per warp", names, counted),
        ]

    def _timed_column(self, record: Kernel) -> dict[str, str]:
        """Return the run's times, registers, shared memory and occupancy of a rung."""
        m = self._measurement(record)
        row = {} if m is None else cells(m)
        facts = self.run.kernels.get(record.name, {})
        registers = facts.get("registers")
        shared_bytes = facts.get("shared_bytes")
        column = {name: str(row.get(name) or NONE) for name in TIMES}
        column["registers per thread"] = NONE if registers is None else str(registers)
        column["shared memory per block"] = (
            NONE if shared_bytes is None else f"{shared_bytes / 1024:g} KiB"
        )
        column["resident on an SM"] = NONE
        column["resident blocks limited by"] = NONE
        arch = self.run.gpu.arch
        if arch in LIMITS and registers is not None and shared_bytes is not None:
            block = facts.get("block", record.thread_count)
            resident = occupancy(arch, block, registers, shared_bytes)
            threads = f"{resident.blocks} × {record.thread_count} threads"
            column["resident on an SM"] = f"{threads}, {100 * resident.share:.0f} %"
            column["resident blocks limited by"] = " and ".join(resident.limited_by)
        return column

    def _measurement(self, record: Kernel) -> Measurement | None:
        """Return the last measurement of a rung at the shape; None if there is none."""
        return next(iter(self.run.select(record.name, self.shape)[-1:]), None)


def _counted_column(record: Kernel) -> dict[str, str]:
    """Return the emulator's memory counts of a rung."""
    counts = memory_counts().rungs.get(record.name)
    column = {
        "sectors per global load": NONE,
        "global sectors per multiply-add": NONE,
        "shared wavefronts per multiply-add": NONE,
        "of which bank conflicts": NONE,
    }
    if counts is None:
        return column
    column["sectors per global load"] = f"{counts.sectors_per_request:.1f}"
    column["global sectors per multiply-add"] = f"{counts.sectors_per_fma:.3g}"
    column["shared wavefronts per multiply-add"] = f"{counts.wavefronts_per_fma:.3g}"
    if counts.wavefronts:
        column["of which bank conflicts"] = f"{100 * counts.conflict_share:.0f} %"
    return column


def _side_by_side(title: str, names: Sequence[str], columns: Sequence[Mapping[str, str]]) -> Table:
    """Return a table with a column for each rung."""
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    return Table(title, ("", *names), rows)


def step(after: str) -> Code:
    """Return the step to a rung from the rung before it, at 4096.

    It has what Nsight Compute counted of the rung before, the floors, the time that they predict,
    and the measured time: this machine's latest, else the recording's.
    Raises BadSetting for a name without a step.
    """
    names = [record.name for record in LADDER]
    if after not in names[1:]:
        raise BadSetting(
            f"there is no step to {after!r} on the ladder: choose from {', '.join(names[1:])}"
        )
    earlier = names[names.index(after) - 1]
    run = results([earlier, after], [SIZE])
    bounds = rung_bounds(run, SIZE)
    old = bounds[earlier]
    new = bounds[after]
    floors = f"{duration(1e3 * old.ms)} ({old.limit}), now {duration(1e3 * new.ms)} ({new.limit})"
    lines = [f"{earlier}: {busiest(earlier)}", f"floor:     {floors}"]
    if old.measured_ms is None or new.measured_ms is None:
        return Code((*lines, f"{earlier} or {after} is not in this run: {run.label}"))
    predicted = "no change"
    if abs(new.ms / old.ms - 1) > ALIKE:
        predicted = duration(1e3 * old.measured_ms * new.ms / old.ms)
        predicted += f", {old.ms / new.ms:.2f} times as fast"
    speedup = f"{old.measured_ms / new.measured_ms:.2f} times as fast"
    share = run.select(after, SIZE)[0].ratio
    if share is not None:
        speedup += f"; {percent(share)} of cuBLAS"
    lines += [f"predicted: {predicted}", f"measured:  {duration(1e3 * new.measured_ms)}, {speedup}"]
    wavefronts = [
        f"{2 * 32 * bound.counts.wavefronts / bound.shape.flops:.3f}" for bound in (old, new)
    ]
    if wavefronts != ["0.000", "0.000"]:
        lines.append(
            f"shared wavefronts per multiply-add of a warp: {wavefronts[0]}, now {wavefronts[1]}"
        )
    return Code((*lines, run.label, f"counts: {new.source}"))


def climb() -> Table:
    """Return all rungs of the ladder with counts, floors and times at 4096.

    Notes compare what the floors predict for the two halves of the ladder with what was measured.
    """
    run = results(shapes=[SIZE])
    bounds = rung_bounds(run, SIZE)
    low, high = spread({name: bound for name, bound in bounds.items() if name != "naive"})
    notes = [f"all but naive take {low:.2f} to {high:.2f} times their floor"]
    for first, last in (("coalesced", "conflict_free"), ("conflict_free", "warptiled")):
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
    for kernel in kernels:
        if isinstance(kernel, str):
            kernel = rung(kernel)
        floor = bound(kernel, gpu=gpu_here())
        row: dict[str, Cell] = {"kernel": kernel.name}
        for name, number in per_multiply_add(kernel).items():
            row[name] = f"{number:.3f}"
        row["at least"] = duration(1e3 * floor.ms)
        row["bound by"] = floor.limit
        rows.append(row)
        label = floor.label
    return Table.of(f"per multiply-add of a warp, and a bound at {SIZE}: {label}", rows)


def register_reads(*names: str) -> Table:
    """Return how the main loop of each rung's machine code reads registers.

    Columns: the share of multiply-adds in the main loop, the registers that each reads, and the
    share that reads two from one bank. Without NVIDIA's disassembler, a note says so.
    """
    rows = []
    for name, loop in main_loops(names).items():
        row = {"rung": name}
        row["multiply-adds"] = percent(loop.counts["FFMA"] / sum(loop.counts.values()))
        row["registers read by each"] = f"{loop.register_reads:.2f}"
        row["in a bank conflict"] = percent(loop.bank_conflicts)
        rows.append(row)
    return Table.of(LOOPS if rows else no_sass(), rows)


def main_loops(names: Sequence[str]) -> dict[str, MainLoop]:
    """Return the main loop of each rung's machine code.

    There is none without NVIDIA's disassembler.
    """
    compiled = {name: compile_cuda(rung(name).program) for name in names}
    loops = {}
    for name, output in compiled.items():
        loop = loop_of(output.cubin, output.symbol)
        if loop:
            loops[name] = loop
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


def effect(kernel: str, sizes: Sizes, **setting: Unpack[PitfallSettings]) -> Table:
    """Return the effect of settings on a kernel's time, a row for each size.

    Columns: the unbiased time, the time with these settings, and their difference at one clock. A
    dash stands for a missing time. Both times of a row are of one run, so of one card.
    Raises BadSetting, and BadRunFile for what isn't recorded.
    """
    if not setting:
        raise BadSetting(
            "lab.effect compares a setting with the unbiased one: name it, as in l2='warm'"
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
