"""One rung beside the one before it: what its source changes, what it costs, and how fast a run saw it. The model of
the ladder's page, without widgets.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from worklog.analysis.traffic import RungTraffic, Traffic
from worklog.bench.tasks import ARTICLE_SIZES
from worklog.errors import BadShape
from worklog.kernel.kernel import Program
from worklog.kernel.ladder import LADDER, Rung, rung
from worklog.kernel.occupancy import LIMITS, Occupancy, occupancy
from worklog.lab.diff import source as body
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run

AROUND = 2  # lines that stay, shown above and below a change


@dataclass(frozen=True)
class Side:
    """What is known about one rung. registers of a thread and shared_bytes of a block are None where the run does not
    say; so is the measurement where there is none at the shape. traffic: None where the counts are of other code.
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
    """A rung, the one before it (None for the first), and the run that timed both, at one shape. notes: what of it does
    not belong together.
    """

    shape: Shape
    run: Run
    counted: Traffic
    now: Side
    before: Side | None
    notes: tuple[str, ...]

    @property
    def lines(self) -> tuple[int, int]:
        """Lines of the body that came and went, without comments."""
        diff = self.diff(comments=False)
        return sum(mark == "+" for mark, _ in diff), sum(mark == "-" for mark, _ in diff)

    def diff(self, *, comments: bool) -> list[tuple[str, str]]:
        """What changed in the source against the rung before: ("+", came), ("-", went), (" ", stayed, for a look
        around), ("…", "") where unchanged lines are left out. All of it came with the first rung.
        """
        earlier = [] if self.before is None else source(self.before.rung, comments=comments)
        return _diff(earlier, source(self.now.rung, comments=comments))

    def missing(self) -> str | None:
        """Why there is no time, or None."""
        m = self.now.measurement
        if m is None:
            there = ", ".join(str(shape) for shape in _shapes([self.run])) or "none"
            return (
                f"{self.now.rung.name} at {self.shape} is not in this {self.run.origin} run, which holds sizes {there}"
            )
        return None if self.now.measured else f"{m.kernel} at {m.problem} was {m.status}: {m.reason}"


class Climb:
    """What is chosen, and the runs to answer from, the one to be believed first coming first. Raises UnknownRung or
    BadShape for what there is not.
    """

    def __init__(
        self, runs: Sequence[Run], counted: Traffic, name: str | None = None, size: Shape | int | None = None
    ) -> None:
        self.runs, self.counted = list(runs), counted
        self.rung = LADDER[-1] if name is None else rung(name)
        known = _shapes(self.runs) or [Shape.of(n) for n in ARTICLE_SIZES]
        self.shape = Shape.of(size) if size is not None else next((s for s in known if s == Shape.of(4096)), known[-1])

    @property
    def names(self) -> list[str]:
        """All rungs."""
        return [each.name for each in LADDER]

    @property
    def shapes(self) -> list[Shape]:
        """The shapes that the runs hold, and the one that is chosen, smallest first."""
        return sorted({*_shapes(self.runs), self.shape}, key=lambda shape: (shape.flops, shape))

    @property
    def place(self) -> int:
        """Which rung is chosen, from 0."""
        return LADDER.index(self.rung)

    def choose(self, name: str) -> None:
        """Take another rung. Raises UnknownRung."""
        self.rung = rung(name)

    def climb(self, by: int) -> None:
        """Go up, or down where `by` is negative, as far as there are rungs."""
        self.rung = LADDER[min(max(self.place + by, 0), len(LADDER) - 1)]

    def choose_shape(self, shape: Shape | int) -> None:
        """Take another size. Raises BadShape."""
        self.shape = Shape.of(shape)

    def step(self) -> Step:
        """The chosen rung and the one before, as the first run that has the chosen one says. Raises BadShape where
        there is no run at all.
        """
        if not self.runs:
            raise BadShape("there is no run to look at: measure one with `worklog run`")
        run = next((r for r in self.runs if r.select(self.rung.name, self.shape)), self.runs[-1])
        earlier = LADDER[self.place - 1] if self.place else None
        sides = [_side(run, self.counted, each, self.shape) for each in (self.rung, earlier) if each]
        before = sides[1] if earlier else None
        return Step(self.shape, run, self.counted, sides[0], before, tuple(_notes(run, self.counted, sides)))


def source(of: Rung, *, comments: bool) -> list[str]:
    """A rung's lines: the whole file, or its body without comments, signature and assertions."""
    return Program.of(of).source.splitlines() if comments else list(body(of.name).lines)


def _diff(earlier: list[str], later: list[str]) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for group in difflib.SequenceMatcher(None, earlier, later, autojunk=False).get_grouped_opcodes(AROUND):
        lines += [("…", "")] if lines else []
        for tag, a0, a1, b0, b1 in group:
            if tag == "equal":
                lines += [(" ", line) for line in later[b0:b1]]
            else:
                lines += [("-", line) for line in earlier[a0:a1]] + [("+", line) for line in later[b0:b1]]
    return lines


def _side(run: Run, counted: Traffic, of: Rung, shape: Shape) -> Side:
    spent = run.kernels.get(of.name, {})
    registers, shared = spent.get("registers"), spent.get("shared_bytes")
    arch = "sm_" + "".join(map(str, run.device.get("compute_capability") or ()))
    at_once = None
    if arch in LIMITS and registers is not None and shared is not None:
        at_once = occupancy(arch, spent.get("block", of.block), registers, shared)
    found = run.select(of.name, shape)
    traffic = counted.rungs.get(of.name)
    return Side(of, found[-1] if found else None, registers, shared, at_once, traffic)


def _notes(run: Run, counted: Traffic, sides: Sequence[Side]) -> list[str]:
    """Where numbers are of other code than the one shown."""
    notes = []
    for side in sides:
        name, now = side.rung.name, Program.of(side.rung).sha256
        if run.kernels.get(name, {}).get("sha256", now) != now:
            notes.append(f"{name} was timed with other code than the one shown here")
        if side.traffic is not None and side.traffic.sha256 != now:
            notes.append(f"{name}'s traffic was counted on other code than the one shown here")
    return notes


def _shapes(runs: Sequence[Run]) -> list[Shape]:
    names = {each.name for each in LADDER}
    found = {m.problem for run in runs for m in run.select() if m.kernel in names}
    return sorted(found, key=lambda shape: (shape.flops, shape))
