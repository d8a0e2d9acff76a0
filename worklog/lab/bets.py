"""Steps from one rung to a later one: a bet on the factor in time, then what was measured.

A bet is a slider if a kernel runs, and a number otherwise. The answer isn't sent to the page before
the bet. `worklog journal` prints the first bet on each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import traitlets

from worklog import plots
from worklog.errors import BadSetting, NothingToDraw, WorklogError
from worklog.kernel import RUNGS, Kernel
from worklog.kernel import rung as rung_of
from worklog.kernel.prediction import Bound, bound
from worklog.lab.assets import BET_SCRIPTS, assets, widget_module
from worklog.lab.exercises import is_number
from worklog.lab.journal import add_to_journal
from worklog.lab.rung_pages import SIZE
from worklog.lab.widgets import COLOURS, Widget
from worklog.plots import Chart
from worklog.plots.selection import ON_TENSOR_CORES
from worklog.problem import Shape, Size
from worklog.runner.job import jobs_of
from worklog.runner.measure import results
from worklog.runner.sources import recorded
from worklog.runs import Gpu, Measurement, Run, recorded_run, same_card

# Factors at the ends of the slider.
LOWEST = 0.25
HIGHEST = 32.0


@dataclass(frozen=True)
class LadderStep:
    """A step from one rung to a later one, at a shape."""

    earlier: str
    later: str
    shape: Shape
    floors: float | None  # the earlier rung's floor over the later rung's; None if one is unknown
    floors_label: str  # the source of the floors, or the reason why there are none
    measured: float  # the earlier rung's time over the later rung's
    label: str  # of the times

    @property
    def question(self) -> str:
        """The question of a bet."""
        return f"How many times as fast as {self.earlier} is {self.later}, at {self.shape}?"

    def sentence(self, bet: float | None = None) -> str:
        """Return what was bet, if anything, what the floors say, and what was measured."""
        predictions = []
        if bet is not None:
            predictions.append(f"you said {bet:.3g}, ")
        if self.floors is not None:
            predictions.append(f"the floors say {self.floors:.3g}, ")
        if predictions:
            predictions.append("and ")
        return f"{self.later}: {''.join(predictions)}it was {self.measured:.3g} times as fast"

    def chart(self, bet: float | None = None) -> Chart:
        """Draw what the floors say, the bet if there is one, and what was measured."""
        factors = {}
        if self.floors is not None:
            factors["the floors"] = self.floors
        if bet is not None:
            factors["your bet"] = bet
        factors["measured"] = self.measured
        return plots.bars(
            self.sentence(bet),
            {f"times as fast as {self.earlier}, at {self.shape}": factors},
            f"measured: {self.label}; {self.floors_label}",
            written="{:.3g}",
            accented=["measured"],
        )


class BetView(Widget):
    """A slider for the factor of a step. bet.js draws it, and its chart after the bet."""

    _esm = widget_module(*BET_SCRIPTS)
    _css = COLOURS + assets("panel.css")
    question = traitlets.Unicode().tag(sync=True)
    ends = traitlets.List([LOWEST, HIGHEST]).tag(sync=True)  # factors at the ends of the slider
    bet = traitlets.Float(None, allow_none=True).tag(sync=True)
    reveal = traitlets.Unicode().tag(sync=True)  # the chart as HTML, after the bet
    verdict = traitlets.Unicode().tag(sync=True)  # the chart in a sentence

    def __init__(self, step: LadderStep) -> None:
        self.step = step
        super().__init__(question=step.question)
        self.observe(self.show, "bet")

    def show(self, _: object = None) -> None:
        """Keep the bet in the journal and show what was measured."""
        if self.bet is None:
            return
        journal_note = _keep(self.step, self.bet)
        self.verdict = f"{self.step.sentence(self.bet)}. {journal_note}"
        self.reveal = _html(self.step.chart(self.bet))

    def text(self) -> list[str]:
        """Return the question, or what was bet and measured."""
        if self.bet is None:
            call = f'lab.bet("{self.step.later}", 4)'
            return [self.question, f"Bet first: run this cell for a slider, or call {call}."]
        return [self.step.chart(self.bet).alt, self.verdict]

    def html(self) -> str:
        """Return the question as HTML, or the chart."""
        return str(self.reveal) or super().html()


def bet(
    rung: str, factor: float | None = None, *, earlier: str | None = None, shape: Size = SIZE
) -> BetView | Chart:
    """Bet on how many times as fast a rung is as the rung before it.

    It is for the last line of a cell. Shows a slider, and after the bet a chart of what the floors
    say, the bet, and what was measured: this machine's latest times, else the recording's. The
    journal keeps the bet.

    factor: the bet, without a slider
    earlier: the rung to compare with (default: the rung before on the ladder)
    Raises BadSetting for a rung without a step or a factor that isn't positive, BadRunFile, and
    NothingToDraw without a time.
    """
    if factor is not None and not (is_number(factor) and factor > 0):
        raise BadSetting(f"factor = {factor!r} is out of range: bet a positive number, such as 2")
    compared = step_to(rung, earlier, shape)
    if factor is None:
        return BetView(compared)
    _keep(compared, factor)
    return compared.chart(factor)


def step(rung: str, *, earlier: str | None = None, shape: Size = SIZE) -> Chart:
    """Draw the step to a rung: the factor that the floors say, and the factor measured.

    The arguments and errors are those of bet().
    """
    return step_to(rung, earlier, shape).chart()


def step_to(rung: str, earlier: str | None = None, shape: Size = SIZE) -> LadderStep:
    """Return the step to a rung: this machine's latest times, else the recording's.

    earlier: the rung to compare with (default: the rung before on the ladder)
    Raises BadSetting for a rung without a step, BadRunFile, and NothingToDraw without a time.
    """
    pair = _pair(rung, earlier)
    at_shape = Shape.of(shape)
    run = results([kernel.name for kernel in pair], [at_shape])
    floors, floors_label = _floors(*pair, at_shape, run.gpu)
    return replace(_timed_step(run, *pair, at_shape), floors=floors, floors_label=floors_label)


def recorded_step(rung: str, earlier: str | None = None, shape: Size = SIZE) -> LadderStep:
    """Return the step to a rung as the package's recordings have it, without floors.

    Its arguments and errors are those of step_to(). With a GPU, nothing is measured.
    """
    pair = _pair(rung, earlier)
    at_shape = Shape.of(shape)
    jobs, _ = jobs_of(pair, [at_shape])
    return _timed_step(recorded(jobs, recorded_run()), *pair, at_shape)


def _pair(rung: str, earlier: str | None) -> tuple[Kernel, Kernel]:
    """Return the rungs of a step, the earlier one first."""
    later_rung = rung_of(rung)
    if earlier is not None:
        return rung_of(earlier), later_rung
    if later_rung == RUNGS[0]:
        names = ", ".join(record.name for record in RUNGS[1:])
        raise BadSetting(f"there is no step to {rung!r} on the ladder: choose from {names}")
    return RUNGS[RUNGS.index(later_rung) - 1], later_rung


def _timed_step(run: Run, earlier: Kernel, later: Kernel, shape: Shape) -> LadderStep:
    """Return a step without floors. Raises NothingToDraw without a time on one card."""
    old = _timed(run, earlier.name)
    new = _timed(run, later.name)
    if not same_card(old, new):
        raise NothingToDraw(f"{old.kernel} and {new.kernel} were timed on two cards: {run.label}")
    return LadderStep(
        old.kernel,
        new.kernel,
        shape,
        floors=None,
        floors_label="no floors",
        measured=(old.us or math.nan) / (new.us or math.nan),
        label=run.label,
    )


def _timed(run: Run, kernel: str) -> Measurement:
    """Return the last measurement of a kernel. Raises NothingToDraw without a time."""
    for m in reversed(run.select(kernel)):
        if m.us:
            return m
    raise NothingToDraw(f"{kernel} has no time in this run: {run.label}")


def _floors(earlier: Kernel, later: Kernel, shape: Shape, gpu: Gpu) -> tuple[float | None, str]:
    """Return a step's floors_label, after its floors or None if there are none."""
    try:
        old_floor = _floor(earlier, shape, gpu)
        new_floor = _floor(later, shape, gpu)
    except WorklogError as error:
        return None, f"no floors: {error}"
    return old_floor.ms / new_floor.ms, f"floors: {new_floor.label}"


def _floor(kernel: Kernel, shape: Shape, gpu: Gpu) -> Bound:
    """Return the floor of a rung. Raises what bound() raises, and BadSetting on tensor cores."""
    if kernel.name in ON_TENSOR_CORES:
        raise BadSetting(f"{kernel.name} computes on tensor cores, which no floor counts")
    return bound(kernel, shape, gpu)


def _keep(step: LadderStep, factor: float) -> str:
    """Add a bet to the journal, and return a sentence about it."""
    problem = add_to_journal(
        f"{step.later} at {step.shape}",
        f"times as fast as {step.earlier}",
        factor,
        step.measured,
        right=True,  # the journal prints what was measured
        label=step.label,
    )
    return problem or "In a terminal, worklog journal prints your bets."


def _html(chart: Chart) -> str:
    """Return a chart as HTML."""
    data, _ = chart._repr_mimebundle_()
    return data["text/html"]
