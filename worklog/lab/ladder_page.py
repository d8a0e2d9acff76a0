"""The ladder page: choose a rung and a size; see what changed against the rung before, its costs and its speed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from worklog.analysis.memory_counts import memory_counts
from worklog.errors import NothingToDraw
from worklog.kernel import LADDER, LIMITS, RUNGS, Kernel, occupancy, rung
from worklog.kernel.ladder import source_changed
from worklog.lab.choice import Choice, Shown, Size
from worklog.lab.controls import Page, button
from worklog.plots import Chart, ladder
from worklog.problem import Shape
from worklog.runner.job import ARTICLE_SIZES
from worklog.runs import Measurement, Run, Table, cells

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


class Climb(Choice):
    """The chosen rung and shape on the ladder, compared with the rung before. comments: whether the changed lines are
    those of the whole file, with comments.
    """

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Size = None) -> None:
        self.counted, self.comments = memory_counts(), False
        super().__init__(runs, kernel, size)

    def known_kernels(self) -> list[str]:
        """All rungs."""
        return [each.name for each in LADDER]

    def known_shapes(self) -> set[Shape]:
        """The shapes at which the runs hold a rung."""
        names = self.known_kernels()
        found = {m.problem for run in self.runs for m in run.select() if m.kernel in names}
        return found or {Shape.of(n) for n in ARTICLE_SIZES}

    def first_shape(self, known: list[Shape]) -> Shape:
        """The article's size, else the largest."""
        return Shape.of(4096) if Shape.of(4096) in known else known[-1]

    def climb(self, by: int) -> None:
        """Go up by this many rungs, or down where it is negative, and stop at the ladder's end."""
        place = RUNGS.index(rung(self.kernel)) + by
        self.kernel = LADDER[min(max(place, 0), len(LADDER) - 1)].name

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
        if before:
            [other] = before
            changed, gain = f"{diff(other.name, chosen.name).counts} against {other.name}", self._gain(chosen, other)
        else:
            changed, gain = f"{len(source(chosen.name).lines)} lines", "the first rung: the others are compared with it"
        notes = []
        for each in self.rungs:
            counted = self.counted.rungs.get(each.name)
            if source_changed(each.name, self.run.kernels):
                notes.append(f"{each.name} was timed with different code than the source shown here")
            if counted is not None and counted.sha256 != each.program.sha256:
                notes.append(f"the memory counts of {each.name} belong to different code than the source shown here")
        return [text for text in (self._headline(), chosen.idea, changed, gain, *notes) if text]

    def _headline(self) -> str:
        run, place, m = self.run, f"{self.kernel} at {self.shape}", self._measurement(self.rungs[0])
        if m is None:
            held = ", ".join(str(one.problem) for one in run.select(self.kernel)) or "no size"
            return f"{place} is not in this {run.origin} run, which holds it at {held}"
        if m.status != "measured":
            return f"{place}: {m.outcome}: {m.reason}"
        row = cells(run, m)
        return f"{place}: {row['time']} → {row['TFLOP/s']} TFLOP/s → {row['of cuBLAS']} of cuBLAS"

    def _gain(self, chosen: Kernel, other: Kernel) -> str:
        """The rung's time against the time of the one before, at one clock; "" without a time."""
        name, now, before = other.name, self._measurement(chosen), self._measurement(other)
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
            columns = [facts(each) for each in self.rungs]
            rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
            tables.append(Table(title, ("", *(each.name for each in self.rungs)), rows))
        return tables

    def changed_lines(self) -> str:
        """The diff against the rung before in a box that the keyboard can scroll."""
        files = escape(" against ".join(each.file for each in self.rungs))
        earlier = self.rungs[1].name if self.rungs[1:] else None
        code = diff(earlier, self.kernel, comments=self.comments, around=2)
        lines = f'<span style="display:inline-block;min-width:100%">{code.html()}</span>'  # as wide as its longest line
        return (
            f'<div style="font-weight:600;line-height:1.4">{files}</div>'
            f'<pre tabindex="0" role="region" aria-label="{files}" style="{CODE}">{lines}</pre>'
        )

    def result(self) -> Shown:
        """The step in words, its costs in tables, the ladder as a chart, and the changed lines."""
        picture = None
        with suppress(NothingToDraw):
            picture = self.chart()
        return Shown(self.sentences, self.tables, picture, self.changed_lines())

    def chart(self) -> Chart:
        """The ladder at the chosen size with the rung in the accent colour; a notebook shows its costs in tables below.
        Raises NothingToDraw where nothing was timed at the size.
        """
        drawn = ladder(self.run, self.shape, rung=self.kernel)
        drawn.alt, drawn.tables = ". ".join([*self.sentences, drawn.alt]), self.tables
        return drawn

    def _measurement(self, of: Kernel) -> Measurement | None:
        return next(iter(self.run.select(of.name, self.shape)[-1:]), None)

    def _timed(self, of: Kernel) -> dict[str, str]:
        """Time, rates, registers and occupancy; a dash for what the run doesn't hold."""
        m, record = self._measurement(of), self.run.kernels.get(of.name, {})
        row = dict.fromkeys(TIMES, "not measured") if m is None else cells(self.run, m)
        if m is not None and m.status != "measured":
            row = dict.fromkeys(TIMES, row["gate"])
        found = {name.replace("of ceiling", "of the measured FP32 ceiling"): row[name] or NONE for name in TIMES}
        registers, shared = record.get("registers"), record.get("shared_bytes")
        resident = limited = NONE
        arch = "sm_" + "".join(map(str, self.run.device.get("compute_capability") or ()))
        if arch in LIMITS and registers is not None and shared is not None:
            fits = occupancy(arch, record.get("block", of.thread_count), registers, shared)
            resident = f"{fits.blocks} × {of.thread_count} threads, {100 * fits.share:.0f} %"
            limited = " and ".join(fits.limited_by)
        return found | {
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


FONT = "0.9em/1.35 var(--jp-code-font-family,monospace)"
CODE = f"max-height:32em;overflow:auto;white-space:pre;font:{FONT};margin:0.3em 2px"


class Ladder(Page[Climb]):
    """The page as a notebook shows it."""

    def __init__(self, climb: Climb) -> None:
        super().__init__(climb)
        self.down = button("rung before", lambda: self.take(lambda: climb.climb(-1)), icon="arrow-left")
        self.up = button("next rung", lambda: self.take(lambda: climb.climb(1)), icon="arrow-right")
        self.comments = widgets.Checkbox(description="whole file, with comments", indent=False)
        self.on(self.comments, "value", lambda chosen: setattr(climb, "comments", chosen))
        left = [self.kernel, self.size, widgets.HBox([self.down, self.up]), self.words, self.table]
        # Long sentences are wrapped, so that the picture fits beside them.
        self.fill(left, self.picture, self.comments, self.details, flex="0 1 33em")

    def set_controls(self) -> None:
        """Set every control to what is chosen; at an end of the ladder, one button is disabled."""
        super().set_controls()
        self.down.disabled, self.up.disabled = (self.choice.kernel == LADDER[end].name for end in (0, -1))
