"""The ladder page: choose a rung and a size; see what changed against the rung before, its costs and its speed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from worklog.analysis.memory_counts import memory_counts
from worklog.kernel import LADDER, LIMITS, RUNGS, Kernel, occupancy, rung
from worklog.kernel.ladder import source_changed
from worklog.lab.page import Page
from worklog.lab.readings import Size
from worklog.plots.selection import CUBLAS, measured, rows
from worklog.problem import Shape
from worklog.runner.job import ARTICLE_SIZES
from worklog.runs import Measurement, Run, Table, forced_source, open_run, percent, recordings
from worklog.runs.measurement import cells

SIGNATURE = re.compile(
    r"template <(?P<tile>[^>]*)>\s*__global__[^;{}]*?(?P<name>sgemm_\w+)\((?P<arguments>[^)]*)\) \{\n"
)
HIDDEN = re.compile(r"^ *static_assert\(.*?\);\n", re.DOTALL | re.MULTILINE)
# Tag and background by a line's first character; translucent, so that text stays readable on light and dark pages.
LOOKS = {"+": ("ins", "#3b93d055"), "-": ("del", "#e0702455")}
NONE = "–"
TIMES = ("time", "±95 %", "TFLOP/s", "of cuBLAS", "of ceiling")  # columns of cells()


@dataclass(frozen=True, repr=False)
class Code:
    """Source lines, shown as text and as HTML. In a diff, "+" begins an added line and "-" a removed one."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace;line-height:1.35">{self.html()}</pre>'

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
    tile, arguments = (re.findall(r"(\w+)(?:,|$)", signature[part]) for part in ("tile", "arguments"))
    first = f"{signature['name']}<{', '.join(tile)}>({', '.join(arguments)})"
    kept = [line.removeprefix("  ").rstrip() for line in f"{before}{body}".splitlines() if line.strip()][:-1]
    start = next((number for number, line in enumerate(kept) if begin in line), 0)
    return Code((first, *kept[start:][:most]))


def diff(before: str | None, after: str, *, around: int = 0, hunks: Sequence[int] = ()) -> Code:
    """The lines in which two rungs differ, with `around` unchanged lines above and below each change; "..." stands for
    the lines in between. before: None compares with an empty file. hunks: which changes to show, counted from 0
    (default: all), below the signature. Raises BadSetting.
    """
    earlier = () if before is None else source(before).lines
    shown, number, wanted = list[str](), -1, set(hunks)
    for line in list(difflib.unified_diff(earlier, source(after).lines, n=around, lineterm=""))[2:]:
        number += line.startswith("@@")
        if line.startswith("@@"):
            line = "  ..."
        if not wanted or number in wanted:
            shown.append(line)
    return Code((f"  {source(after).lines[0]}", *shown) if wanted else tuple(shown[1:]))


def ladder_runs(given: Run | Path | None = None) -> list[Run]:
    """The ladder's runs, the most trusted one first: the given one, else the default run and, if that was measured
    here, the recording after it (not with WORKLOG_SOURCE=live). Raises BadRunFile where there is no run.
    """
    run = given if isinstance(given, Run) else open_run(given)
    if given is not None or run.origin == "recorded" or forced_source() == "live":
        return [run]
    return [run, *(open_run(path) for path in list(recordings().values())[:1])]


@dataclass(frozen=True)
class Climb:
    """A rung at a shape, compared with the rung before. runs: the most trusted one first."""

    runs: Sequence[Run]
    kernel: str
    shape: Shape

    @property
    def rungs(self) -> Sequence[Kernel]:
        """The rung and, if it isn't the first, the one before."""
        return RUNGS[RUNGS.index(rung(self.kernel)) :: -1][:2]

    @property
    def run(self) -> Run:
        """The first run that holds the rung at the shape, else the last one."""
        return next((run for run in self.runs if run.select(self.kernel, self.shape)), self.runs[-1])

    @property
    def sentences(self) -> list[str]:
        """The rung's number or why there is none, its idea, how many lines of code differ from the rung before, how
        much faster it is, and what belongs to other code than the source that is shown.
        """
        run, place, (chosen, *before) = self.run, f"{self.kernel} at {self.shape}", self.rungs
        m = self._measurement(chosen)
        if m is None:
            held = ", ".join(str(m.problem) for m in run.select(self.kernel)) or "no size"
            headline = f"{place} is not in this {run.origin} run, which holds it at {held}"
        elif m.status != "measured":
            headline = f"{place}: {m.status}: {m.reason}"
        else:
            row = cells(m)
            headline = f"{place}: {row['time']} → {row['TFLOP/s']} TFLOP/s → {row['of cuBLAS']} of cuBLAS"
        lines = [headline, chosen.idea]
        if before:
            marks = [line[:1] for line in diff(before[0].name, chosen.name).lines]
            lines.append(f"+{marks.count('+')} −{marks.count('-')} lines against {before[0].name}")
            lines += self._gain(m, before[0])
        else:
            lines += [f"{len(source(chosen.name).lines)} lines", "the first rung: the others are compared with it"]
        for record in self.rungs:
            counts = memory_counts().rungs.get(record.name)
            if source_changed(record.name, run.kernels):
                lines.append(f"{record.name} was timed with different code than the source shown here")
            if counts is not None and counts.sha256 != record.program.sha256:
                lines.append(f"the memory counts of {record.name} belong to different code than the source shown here")
        return lines

    def _gain(self, now: Measurement | None, earlier: Kernel) -> list[str]:
        """The rung's time against the time of the one before, at one clock; nothing without a time."""
        name, before = earlier.name, self._measurement(earlier)
        if now is None or not now.us:
            return []
        if before is None or not before.us:
            return [f"{name} has no time at {self.shape} to compare with"]
        difference = self.run.difference(now, before)
        factor = 1 + difference.off
        if not difference.visible:
            return [f"as fast as {name}, within the noise of both"]
        return [f"{factor:.3g} times as fast as {name}" if factor > 1 else f"{1 / factor:.3g} times as slow as {name}"]

    @property
    def tables(self) -> list[Table]:
        """What this rung and the one before cost: from the run, then from the emulator."""
        counted, tables = memory_counts(), []
        label = f"{counted.label} · {counted.shape}, per warp"
        for title, facts in ((self.run.full_label, self._timed), (label, self._counted)):
            columns = [facts(record) for record in self.rungs]
            lines = [(name, *(column[name] for column in columns)) for name in columns[0]]
            tables.append(Table(title, ("", *(record.name for record in self.rungs)), lines))
        return tables

    @property
    def changed_lines(self) -> str:
        """The diff against the rung before in a box that the keyboard can scroll."""
        files = escape(" against ".join(record.file for record in self.rungs))
        earlier = self.rungs[1].name if self.rungs[1:] else None
        code = diff(earlier, self.kernel, around=2).html()
        lines = f'<span style="display:inline-block;min-width:100%">{code}</span>'  # as wide as its longest line
        return f'<p>{files}</p><pre tabindex="0" role="region" aria-label="{files}">{lines}</pre>'

    @property
    def bars(self) -> list[tuple[str, float, str]]:
        """Everything that was measured at the shape: name, share of the fastest in percent, and words."""
        shown = rows(self.run, self.shape)
        fastest = max((m.tflops or 0.0 for m in shown), default=0.0) or 1.0
        bars = []
        for m in shown:
            words = "not measured"
            if measured(m):
                words = f"{m.tflops:.2f}" + ("" if m.kernel == CUBLAS else f" · {percent(m.ratio)}")
            bars.append((m.kernel, round(100 * (m.tflops or 0.0) / fastest, 2), words))
        return bars

    def _measurement(self, of: Kernel) -> Measurement | None:
        return next(iter(self.run.select(of.name, self.shape)[-1:]), None)

    def _timed(self, of: Kernel) -> dict[str, str]:
        """Time, rates, registers and occupancy; a dash for what the run doesn't hold."""
        m, record, arch = self._measurement(of), self.run.kernels.get(of.name, {}), self.run.gpu.arch
        row = {} if m is None else cells(m)
        facts = {name: str(row.get(name) or NONE) for name in TIMES}
        facts["of the measured FP32 ceiling"] = facts.pop("of ceiling")
        registers, shared = record.get("registers"), record.get("shared_bytes")
        facts["registers per thread"] = NONE if registers is None else str(registers)
        facts["shared memory per block"] = NONE if shared is None else f"{shared / 1024:g} KiB"
        facts |= {"resident on an SM": NONE, "resident blocks limited by": NONE}
        if arch in LIMITS and registers is not None and shared is not None:
            fits = occupancy(arch, record.get("block", of.thread_count), registers, shared)
            facts["resident on an SM"] = f"{fits.blocks} × {of.thread_count} threads, {100 * fits.share:.0f} %"
            facts["resident blocks limited by"] = " and ".join(fits.limited_by)
        return facts

    def _counted(self, of: Kernel) -> dict[str, str]:
        """Memory counts; dashes where the rung was not counted."""
        counts = memory_counts().rungs.get(of.name)
        return {
            "sectors per global load": f"{counts.sectors_per_request:.1f}" if counts else NONE,
            "global sectors per multiply-add": f"{counts.sectors_per_fma:.3g}" if counts else NONE,
            "shared wavefronts per multiply-add": f"{counts.wavefronts_per_fma:.3g}" if counts else NONE,
            "of which bank conflicts": f"{100 * counts.conflict_share:.0f} %" if counts and counts.wavefronts else NONE,
        }


class Ladder(Page):
    """The page as a notebook shows it. At first: the last rung at 4096, or what is given. Raises BadSetting."""

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, shape: Size = None) -> None:
        self.runs, self.names = runs, [record.name for record in LADDER]
        if kernel is not None and rung(kernel).name not in self.names:  # a rung beside the ladder
            self.names.append(kernel)
        held = {m.problem for run in runs for m in run.select() if m.kernel in self.names}
        known = sorted(held or {Shape.of(n) for n in ARTICLE_SIZES}, key=lambda shape: shape.flops)
        first = Shape.of(4096) if Shape.of(4096) in known else known[-1]
        first = first if shape is None else Shape.of(shape)
        self.shapes = sorted({*known, first}, key=lambda shape: shape.flops)
        chosen = {"rung": self.names.index(kernel or self.names[-1]), "size": self.shapes.index(first)}
        table = {"rungs": self.names, "sizes": list(map(str, self.shapes))}
        super().__init__(page="ladder", table=table, chosen=chosen)

    @property
    def climb(self) -> Climb:
        """The chosen rung at the chosen shape."""
        return Climb(self.runs, self.names[self.chosen["rung"]], self.shapes[self.chosen["size"]])

    def answered(self) -> dict[str, Any]:
        """Sentences, bars, and costs and code as HTML."""
        climb, label = self.climb, self.climb.run.full_label
        costs = "".join(table.html() for table in climb.tables)
        shown = {"sentences": climb.sentences, "costs": costs, "code": climb.changed_lines, "bars": climb.bars}
        return {**shown, "source": label}

    def text(self) -> list[str]:
        """The sentences and the tables."""
        return [*self.climb.sentences, *(table.text() for table in self.climb.tables)]
