"""One rung beside the one before it: what its source changes, what it costs, and how fast it is. No widgets here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from worklog.analysis.traffic import RungTraffic, Traffic
from worklog.bench.tasks import ARTICLE_SIZES
from worklog.errors import BadShape
from worklog.kernel.kernel import Program
from worklog.kernel.ladder import LADDER, Rung, rung
from worklog.kernel.occupancy import LIMITS, Occupancy, occupancy
from worklog.lab.choice import Choice
from worklog.lab.diff import diff
from worklog.problem.gemm import Shape
from worklog.runs.report import SHOWN, cells
from worklog.runs.run import Measurement, Run
from worklog.runs.table import Table

NONE = "–"
TIMES = ("time", "±95 %", "TFLOP/s", "of cuBLAS", "of the measured FP32 ceiling")


@dataclass(frozen=True)
class Side:
    """What is known about one rung. registers (per thread) and shared_bytes (per block) are None where the run doesn't
    have them, the measurement where the shape wasn't measured, traffic where the rung wasn't counted.
    """

    rung: Rung
    measurement: Measurement | None
    registers: int | None
    shared_bytes: int | None
    occupancy: Occupancy | None
    traffic: RungTraffic | None

    @property
    def measured(self) -> bool:
        """Whether there is a time."""
        return self.measurement is not None and self.measurement.status == "measured"


@dataclass(frozen=True)
class Step:
    """A rung, the one before it (None for the first), and the run that timed both at one shape. notes: where source,
    times and counts don't belong together.
    """

    shape: Shape
    run: Run
    counted: Traffic
    now: Side
    before: Side | None
    notes: tuple[str, ...]

    @property
    def headline(self) -> str:
        """The rung, the size, and the number or why there is none."""
        name, m = self.now.rung.name, self.now.measurement
        if m is None:
            held = ", ".join(map(str, sorted(_shapes([self.run]), key=lambda s: s.flops))) or "none"
            return f"{name} at {self.shape} is not in this {self.run.origin} run, which holds sizes {held}"
        if not self.now.measured:
            return f"{name} at {self.shape}: {SHOWN.get(m.status, m.status)}: {m.reason}"
        _, _, time, _, rate, share, *_ = cells(self.run, m)
        return f"{name} at {self.shape}: {time} → {rate} TFLOP/s → {share} of cuBLAS"

    @property
    def gain(self) -> str:
        """The rung's time against the time of the one before."""
        if self.before is None:
            return "the first rung: the others are compared with it"
        name, now, before = self.before.rung.name, self.now.measurement, self.before.measurement
        if now is None or not now.us:
            return ""
        if before is None or not before.us:
            return f"{name} has no time at {self.shape} to compare with"
        factor = before.us / now.us
        noise = sum((m.us_high - m.us_low) / 2 / m.us for m in (now, before) if m.us and m.us_high and m.us_low)
        if abs(factor - 1) <= noise:
            return f"as fast as {name}, within the noise of both"
        return f"{factor:.3g} times as fast as {name}" if factor > 1 else f"{1 / factor:.3g} times as slow as {name}"

    @property
    def changed(self) -> str:
        """How many lines of code differ, without comments."""
        if self.before is None:
            return diff(None, self.now.rung.name).counts.partition(" ")[0] + " lines"
        return f"{diff(self.before.rung.name, self.now.rung.name).counts} against {self.before.rung.name}"

    @property
    def tables(self) -> list[Table]:
        """What this rung and the one before cost: from the run, then from the emulator."""
        timed = [
            *(self._row(name, partial(self._cell, column)) for column, name in enumerate(TIMES, start=2)),
            self._row("registers per thread", lambda side: NONE if side.registers is None else str(side.registers)),
            self._row("shared memory per block", _shared),
            self._row("resident on an SM", _resident),
            self._row("limited by", lambda side: " and ".join(side.occupancy.limited_by) if side.occupancy else NONE),
        ]
        counted = [
            self._row("sectors per global load", _counted("sectors_per_request", "{:.1f}")),
            self._row("global sectors per multiply-add", _counted("sectors_per_fma", "{:.3g}")),
            self._row("shared wavefronts per multiply-add", _counted("wavefronts_per_fma", "{:.3g}")),
            self._row("of which bank conflicts", _counted("conflict_share", "{:.0%}", needs="wavefronts")),
        ]
        names = ("", *(side.rung.name for side in (self.now, self.before) if side is not None))
        emulated = f"{self.counted.label} · {self.counted.shape}, per warp"
        return [Table(self.run.full_label, names, timed), Table(emulated, names, counted)]

    @property
    def sentences(self) -> list[str]:
        """Headline, idea, change, gain and notes."""
        return [text for text in (self.headline, self.now.rung.idea, self.changed, self.gain, *self.notes) if text]

    def _row(self, name: str, value: Callable[[Side], str]) -> tuple[str, ...]:
        return (name, *(value(side) for side in (self.now, self.before) if side is not None))

    def _cell(self, column: int, side: Side) -> str:
        if side.measurement is None:
            return "not measured"
        return cells(self.run, side.measurement)[column if side.measured else 1] or NONE


def _shared(side: Side) -> str:
    return NONE if side.shared_bytes is None else f"{side.shared_bytes / 1024:g} KiB"


def _resident(side: Side) -> str:
    if side.occupancy is None:
        return NONE
    return f"{side.occupancy.blocks} × {side.rung.block} threads, {100 * side.occupancy.share:.0f} %"


def _counted(name: str, form: str, needs: str = "") -> Callable[[Side], str]:
    """The cell of one count; a dash where the rung wasn't counted, or where the count that it needs is 0."""

    def value(side: Side) -> str:
        if side.traffic is None or (needs and not getattr(side.traffic, needs)):
            return NONE
        return form.format(getattr(side.traffic, name)).replace("%", " %")

    return value


class Climb(Choice):
    """The chosen rung and shape on the ladder."""

    def __init__(
        self, runs: Sequence[Run], counted: Traffic, kernel: str | None = None, size: Shape | int | None = None
    ) -> None:
        self.counted = counted
        super().__init__(runs, kernel, size)

    def known_kernels(self) -> list[str]:
        """All rungs."""
        return [each.name for each in LADDER]

    def known_shapes(self) -> set[Shape]:
        """The shapes at which the runs hold a rung."""
        return _shapes(self.runs) or {Shape.of(n) for n in ARTICLE_SIZES}

    def first_shape(self, known: list[Shape]) -> Shape:
        """The article's size, else the largest."""
        return Shape.of(4096) if Shape.of(4096) in known else known[-1]

    @property
    def place(self) -> int:
        """Index of the chosen rung in the ladder."""
        return self.known_kernels().index(self.kernel)

    def climb(self, by: int) -> None:
        """Go up by this many rungs, or down where it is negative, and stop at the ladder's end."""
        self.kernel = LADDER[min(max(self.place + by, 0), len(LADDER) - 1)].name

    def step(self) -> Step:
        """The chosen rung and the one before, from the first run that holds the chosen one, else from the last. Raises
        BadShape where there is no run at all.
        """
        if not self.runs:
            raise BadShape("there is no run to look at: measure one with `worklog run`")
        run = next((r for r in self.runs if r.select(self.kernel, self.shape)), self.runs[-1])
        now = self._side(run, rung(self.kernel))
        before = self._side(run, LADDER[self.place - 1]) if self.place else None
        notes = [note for side in (now, before) if side for note in _notes(run, side)]
        return Step(self.shape, run, self.counted, now, before, tuple(notes))

    def _side(self, run: Run, of: Rung) -> Side:
        record = run.kernels.get(of.name, {})
        registers, shared = record.get("registers"), record.get("shared_bytes")
        arch = "sm_" + "".join(map(str, run.device.get("compute_capability") or ()))
        resident = None
        if arch in LIMITS and registers is not None and shared is not None:
            resident = occupancy(arch, record.get("block", of.block), registers, shared)
        found = run.select(of.name, self.shape)
        return Side(of, found[-1] if found else None, registers, shared, resident, self.counted.rungs.get(of.name))


def _notes(run: Run, side: Side) -> list[str]:
    """Where times or counts belong to other code than the source that is shown."""
    name, shown = side.rung.name, Program.of(side.rung).sha256
    notes = []
    if run.kernels.get(name, {}).get("sha256", shown) != shown:
        notes.append(f"{name} was timed with different code than the source shown here")
    if side.traffic is not None and side.traffic.sha256 != shown:
        notes.append(f"the memory counts of {name} belong to different code than the source shown here")
    return notes


def _shapes(runs: Sequence[Run]) -> set[Shape]:
    names = {each.name for each in LADDER}
    return {m.problem for run in runs for m in run.select() if m.kernel in names}
