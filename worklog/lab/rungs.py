"""A rung of the ladder: what changed against the rung before, its costs and its speed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from worklog.analysis.memory_counts import memory_counts
from worklog.kernel import LIMITS, RUNGS, Kernel, occupancy, rung, source_changed
from worklog.problem import Shape
from worklog.runs import Measurement, Run, Table, cells, forced_source, open_run, recordings

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


def usual_shape(runs: Sequence[Run]) -> Shape:
    """4096 if a run holds it, else the largest shape of the runs."""
    held = {m.problem for run in runs for m in run.select()} or {Shape.of(4096)}
    return Shape.of(4096) if Shape.of(4096) in held else max(held, key=lambda shape: shape.flops)


@dataclass(frozen=True, repr=False)
class Climb:
    """A rung at a shape, compared with the rung before. runs: the most trusted one first. Raises BadSetting."""

    runs: Sequence[Run]
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
    def run(self) -> Run:
        """The first run that holds the rung at the shape, else the last one."""
        return next((run for run in self.runs if run.select(self.kernel, self.shape)), self.runs[-1])

    @property
    def sentences(self) -> list[str]:
        """The rung's number or why there is none, its idea, how many lines of code differ from the rung before, how
        much faster it is, and what was timed with other code than the source that is shown.
        """
        run, place, (chosen, *before) = self.run, f"{self.kernel} at {self.shape}", self.rungs
        m, earlier = (self._measurement(of) for of in (chosen, before[0] if before else chosen))
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
            name, marks = before[0].name, [line[:1] for line in diff(before[0].name, chosen.name).lines]
            lines.append(f"+{marks.count('+')} −{marks.count('-')} lines against {name}")
        else:
            lines += [f"{len(source(chosen.name).lines)} lines", "the first rung: the others are compared with it"]
        if before and m and m.us and earlier and earlier.us:
            difference = run.difference(m, earlier)
            factor = 1 + difference.off
            gain = f"{factor:.3g} times as fast" if factor > 1 else f"{1 / factor:.3g} times as slow"
            lines.append(f"{gain} as {name}" if difference.visible else f"as fast as {name}, within the noise of both")
        stale = [record.name for record in self.rungs if source_changed(record.name, run.kernels)]
        return lines + [f"{name} was timed with different code than the source shown here" for name in stale]

    @property
    def tables(self) -> list[Table]:
        """What this rung and the one before cost: from the run, then from the emulator. A dash for what neither has."""
        timed, counted, known = list[dict[str, str]](), list[dict[str, str]](), memory_counts()
        for of in self.rungs:
            m, record, counts = self._measurement(of), self.run.kernels.get(of.name, {}), known.rungs.get(of.name)
            row = {} if m is None else cells(m)
            registers, shared, fits, resident = record.get("registers"), record.get("shared_bytes"), None, ""
            if self.run.gpu.arch in LIMITS and registers is not None and shared is not None:
                fits = occupancy(self.run.gpu.arch, record.get("block", of.thread_count), registers, shared)
                resident = f"{fits.blocks} × {of.thread_count} threads, {100 * fits.share:.0f} %"
            timed.append({name: str(row.get(name) or NONE) for name in TIMES})
            timed[-1]["of the measured FP32 ceiling"] = timed[-1].pop("of ceiling")
            timed[-1] |= {
                "registers per thread": NONE if registers is None else str(registers),
                "shared memory per block": NONE if shared is None else f"{shared / 1024:g} KiB",
                "resident on an SM": resident if fits else NONE,
                "resident blocks limited by": " and ".join(fits.limited_by) if fits else NONE,
            }
            conflicts = f"{100 * counts.conflict_share:.0f} %" if counts and counts.wavefronts else NONE
            counted.append({
                "sectors per global load": f"{counts.sectors_per_request:.1f}" if counts else NONE,
                "global sectors per multiply-add": f"{counts.sectors_per_fma:.3g}" if counts else NONE,
                "shared wavefronts per multiply-add": f"{counts.wavefronts_per_fma:.3g}" if counts else NONE,
                "of which bank conflicts": conflicts,
            })  # fmt: skip
        label, names = f"{known.label} · {known.shape}, per warp", [record.name for record in self.rungs]
        return [
            Table(title, ("", *names), [(name, *(column[name] for column in columns)) for name in columns[0]])
            for title, columns in ((self.run.full_label, timed), (label, counted))
        ]

    def _measurement(self, of: Kernel) -> Measurement | None:
        return next(iter(self.run.select(of.name, self.shape)[-1:]), None)
