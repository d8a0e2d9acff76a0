"""A rung of the ladder: what changed against the rung before, its costs and its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from worklog.emulator.limits import LIMITS, occupancy
from worklog.kernel import RUNGS, Kernel, rung
from worklog.kernel.ladder import memory_counts, source_changed
from worklog.lab.listings import diff, source
from worklog.problem import Shape
from worklog.runs import Measurement, Run, cells, same_card
from worklog.runs.text import Table

SIZE = Shape.of(4096)
NONE = "–"  # in a table
TIMES = ("time", "±95 %", "TFLOP/s", "of cuBLAS", "of FP32 ceiling")  # columns of cells()


@dataclass(frozen=True, repr=False)
class RungPage:
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
        box = f'<pre tabindex="0" role="region" aria-label="{files}" style="overflow-x:auto">'
        return f"{sentences}{tables}<p>{files}</p>{box}{lines}</pre>"

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
