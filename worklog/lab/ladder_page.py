"""The ladder page: choose a rung and a size; see what changed against the rung before, its costs and its speed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from worklog.analysis.memory_counts import memory_counts
from worklog.kernel import LADDER, LIMITS, RUNGS, Kernel, occupancy, rung
from worklog.kernel.ladder import source_changed
from worklog.lab.choice import Size
from worklog.lab.page import Page
from worklog.plots.selection import CUBLAS, measured, rows
from worklog.problem import Shape
from worklog.runner.job import ARTICLE_SIZES
from worklog.runs import Measurement, Run, Table, percent
from worklog.runs.measurement import cells

HIDDEN = re.compile(r"template <.*?\) \{\n|static_assert\(.*?\);\n", re.DOTALL)
# Tag and background by a line's first character; translucent, so that text stays readable on light and dark pages.
LOOKS = {"+": ("ins", "#3b93d055"), "-": ("del", "#e0702455")}


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
        looks = [(*LOOKS.get(line[:1], ("span", "transparent")), escape(line)) for line in self.lines]
        return "".join(
            f'<{tag} style="display:block;text-decoration:none;background:{tint}">{line}</{tag}>'
            for tag, tint, line in looks
        )

    @property
    def counts(self) -> str:
        """ "+19 −9 lines" of a diff."""
        marks = [line[:1] for line in self.lines]
        return f"+{marks.count('+')} −{marks.count('-')} lines"


def source(name: str, *, comments: bool = False) -> Code:
    """A rung's body without comments, signature, assertions and final brace; with comments, the whole file. Raises
    BadSetting.
    """
    text = rung(name).source
    if comments:
        return Code(tuple(text.splitlines()))
    bare = HIDDEN.sub("", re.sub(r"//.*", "", text))
    kept = [line for line in bare.splitlines() if line.strip()]
    return Code(tuple(line.removeprefix("  ").rstrip() for line in kept[:-1]))


def diff(before: str | None, after: str, *, comments: bool = False, around: int = 0) -> Code:
    """The lines in which two rungs differ, with `around` unchanged lines above and below each change; "..." stands for
    the lines in between. before: None compares with an empty file. Raises BadSetting.
    """
    earlier = () if before is None else source(before, comments=comments).lines
    later = source(after, comments=comments).lines
    changes = list(difflib.unified_diff(earlier, later, n=around, lineterm=""))[3:]
    return Code(tuple("  ..." if line.startswith("@@") else line for line in changes))


NONE = "–"
TIMES = ("time", "±95 %", "TFLOP/s", "of cuBLAS", "of ceiling")  # columns of cells()


class Climb:
    """The chosen rung and shape on the ladder, compared with the rung before. comments: whether the changed lines are
    those of the whole file, with comments. runs: the most trusted one first. Raises BadSetting.
    """

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Size = None) -> None:
        self.runs, self.counted, self.comments = runs, memory_counts(), False
        self.names = [record.name for record in LADDER]
        self.kernel = self.names[-1] if kernel is None else rung(kernel).name
        held = {m.problem for run in runs for m in run.select() if m.kernel in self.names}
        known = sorted(held or {Shape.of(n) for n in ARTICLE_SIZES}, key=lambda shape: shape.flops)
        article = Shape.of(4096) if Shape.of(4096) in known else known[-1]
        self.shape = article if size is None else Shape.of(size)
        self.shapes = sorted({*known, self.shape}, key=lambda shape: shape.flops)

    @property
    def rungs(self) -> Sequence[Kernel]:
        """The chosen rung and, if it isn't the first, the one before."""
        return RUNGS[RUNGS.index(rung(self.kernel)) :: -1][:2]

    @property
    def run(self) -> Run:
        """The first run that holds the chosen rung at the chosen shape, else the last one."""
        return next((run for run in self.runs if run.select(self.kernel, self.shape)), self.runs[-1])

    @property
    def sentences(self) -> list[str]:
        """The rung's number or why there is none, its idea, how many lines of code differ from the rung before, how
        much faster it is, and what belongs to other code than the source that is shown.
        """
        chosen, *before = self.rungs
        changed, gain = f"{len(source(chosen.name).lines)} lines", "the first rung: the others are compared with it"
        for earlier in before:
            changed = f"{diff(earlier.name, chosen.name).counts} against {earlier.name}"
            gain = self._gain(chosen, earlier)
        notes = []
        for record in self.rungs:
            counts = self.counted.rungs.get(record.name)
            if source_changed(record.name, self.run.kernels):
                notes.append(f"{record.name} was timed with different code than the source shown here")
            if counts is not None and counts.sha256 != record.program.sha256:
                notes.append(f"the memory counts of {record.name} belong to different code than the source shown here")
        return [text for text in (self._headline(), chosen.idea, changed, gain, *notes) if text]

    def _headline(self) -> str:
        run, place, m = self.run, f"{self.kernel} at {self.shape}", self._measurement(self.rungs[0])
        if m is None:
            held = ", ".join(str(m.problem) for m in run.select(self.kernel)) or "no size"
            return f"{place} is not in this {run.origin} run, which holds it at {held}"
        if m.status != "measured":
            return f"{place}: {m.status}: {m.reason}"
        row = cells(m)
        return f"{place}: {row['time']} → {row['TFLOP/s']} TFLOP/s → {row['of cuBLAS']} of cuBLAS"

    def _gain(self, chosen: Kernel, earlier: Kernel) -> str:
        """The rung's time against the time of the one before, at one clock; "" without a time."""
        name, now, before = earlier.name, self._measurement(chosen), self._measurement(earlier)
        if now is None or not now.us:
            return ""
        if before is None or not before.us:
            return f"{name} has no time at {self.shape} to compare with"
        difference = self.run.difference(now, before)
        factor = 1 + difference.off
        if not difference.visible:
            return f"as fast as {name}, within the noise of both"
        return f"{factor:.3g} times as fast as {name}" if factor > 1 else f"{1 / factor:.3g} times as slow as {name}"

    @property
    def tables(self) -> list[Table]:
        """What this rung and the one before cost: from the run, then from the emulator."""
        label, tables = f"{self.counted.label} · {self.counted.shape}, per warp", []
        for title, facts in ((self.run.full_label, self._timed), (label, self._counted)):
            columns = [facts(record) for record in self.rungs]
            lines = [(name, *(column[name] for column in columns)) for name in columns[0]]
            tables.append(Table(title, ("", *(record.name for record in self.rungs)), lines))
        return tables

    def changed_lines(self) -> str:
        """The diff against the rung before in a box that the keyboard can scroll."""
        files = escape(" against ".join(record.file for record in self.rungs))
        earlier = self.rungs[1].name if self.rungs[1:] else None
        code = diff(earlier, self.kernel, comments=self.comments, around=2)
        lines = f'<span style="display:inline-block;min-width:100%">{code.html()}</span>'  # as wide as its longest line
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

    def as_json(self) -> dict[str, Any]:
        """For panel.js, which shows sentences, bars, and costs and code as HTML."""
        costs = "".join(table.html() for table in self.tables)
        return {"sentences": self.sentences, "costs": costs, "code": self.changed_lines(), "bars": self.bars,
                "source": self.run.full_label}  # fmt: skip

    def _measurement(self, of: Kernel) -> Measurement | None:
        return next(iter(self.run.select(of.name, self.shape)[-1:]), None)

    def _timed(self, of: Kernel) -> dict[str, str]:
        """Time, rates, registers and occupancy; a dash for what the run doesn't hold."""
        m, record = self._measurement(of), self.run.kernels.get(of.name, {})
        row = {} if m is None else cells(m)
        facts = {
            name.replace("of ceiling", "of the measured FP32 ceiling"): str(row.get(name) or NONE) for name in TIMES
        }
        registers, shared = record.get("registers"), record.get("shared_bytes")
        resident = limited = NONE
        arch = self.run.gpu.arch
        if arch in LIMITS and registers is not None and shared is not None:
            fits = occupancy(arch, record.get("block", of.thread_count), registers, shared)
            resident = f"{fits.blocks} × {of.thread_count} threads, {100 * fits.share:.0f} %"
            limited = " and ".join(fits.limited_by)
        return facts | {
            "registers per thread": NONE if registers is None else str(registers),
            "shared memory per block": NONE if shared is None else f"{shared / 1024:g} KiB",
            "resident on an SM": resident,
            "resident blocks limited by": limited,
        }

    def _counted(self, of: Kernel) -> dict[str, str]:
        """Memory counts; dashes where the rung was not counted."""
        counts = self.counted.rungs.get(of.name)
        return {
            "sectors per global load": f"{counts.sectors_per_request:.1f}" if counts else NONE,
            "global sectors per multiply-add": f"{counts.sectors_per_fma:.3g}" if counts else NONE,
            "shared wavefronts per multiply-add": f"{counts.wavefronts_per_fma:.3g}" if counts else NONE,
            "of which bank conflicts": f"{100 * counts.conflict_share:.0f} %" if counts and counts.wavefronts else NONE,
        }


class Ladder(Page):
    """The page as a notebook shows it."""

    def __init__(self, climb: Climb) -> None:
        self.climb = climb
        if climb.kernel not in climb.names:  # a rung beside the ladder
            climb.names.append(climb.kernel)
        chosen = {"rung": climb.names.index(climb.kernel), "size": climb.shapes.index(climb.shape), "comments": False}
        super().__init__("ladder", {"rungs": climb.names, "sizes": list(map(str, climb.shapes))}, chosen)

    def answered(self) -> dict[str, Any]:
        """The rung at the size."""
        climb, chosen = self.climb, self.chosen
        climb.kernel, climb.shape = climb.names[chosen["rung"]], climb.shapes[chosen["size"]]
        climb.comments = chosen["comments"]
        return climb.as_json()

    def text(self) -> list[str]:
        """The sentences and the tables."""
        return [*self.climb.sentences, *(table.text() for table in self.climb.tables)]
