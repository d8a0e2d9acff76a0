"""The panel without its widgets: what is chosen, what the runs say about it, and how far that is from the truth.

Everything the panel shows is decided here, so that it can be tested without a browser and drawn without a notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worklog.bench.tasks import ABLATION_PATIENCE, ABLATION_RUNGS, GRID_SIZES, Task
from worklog.errors import BadSetting
from worklog.kernel.ladder import rung
from worklog.lab.readings import NotRecorded, Reading, Settings, changes, find, honest_settings, naive_settings, read
from worklog.problem.gemm import Shape
from worklog.runs.run import Run
from worklog.settings import PITFALLS, Harness, Pitfall, Value

TIME = "TFLOP/s"  # what a gremlin corrupts that changes the time


@dataclass(frozen=True)
class Step:
    """The time before and after one more lie about the time; several where only all of them together were measured."""

    pitfalls: tuple[Pitfall, ...]
    before: Reading
    after: Reading

    @property
    def us(self) -> float:
        """Microseconds that the lie adds, negative where it takes them away."""
        return self.after.time.value - self.before.time.value

    @property
    def visible(self) -> bool:
        """Whether that is more than the noise of the two readings."""
        return self.after.differs(self.before)


@dataclass(frozen=True)
class Answer:
    """A reading under some settings, the honest one of the same run beside it, and the lies that lead from there to
    here one by one.
    """

    settings: Settings
    reading: Reading
    unbiased: Reading
    steps: tuple[Step, ...]

    @property
    def changed(self) -> list[Pitfall]:
        """The gremlins whose setting is not the honest one."""
        return list(changes(self.settings, self.reading.run))

    @property
    def off(self) -> float:
        """By what share of the honest time this reading is too long; negative flatters."""
        return self.reading.time.value / self.unbiased.time.value - 1

    @property
    def biased(self) -> bool:
        """Whether the reading's time differs from the honest one by more than the noise of both."""
        return self.reading.differs(self.unbiased)


class Model:
    """What is chosen, and the runs to answer from, the one to be believed first coming first. Without any, the panel's
    own rungs and sizes can be chosen, and measured. Raises BadSetting, UnknownRung or BadShape for what there is not.
    """

    def __init__(
        self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None, **biased: Value
    ) -> None:
        self.runs = list(runs)
        self.settings = self._honest()
        self.kernel = self._known_kernels()[-1]
        shapes = sorted(self._known_shapes(), key=_by_work)
        self.shape = shapes[len(shapes) // 2]
        if kernel is not None:
            self.choose_kernel(kernel)
        if size is not None:
            self.choose_shape(size)
        for setting, value in biased.items():
            self.choose(setting, value)

    @property
    def kernels(self) -> list[str]:
        """The kernels that the runs hold, in their order, and the one that is chosen."""
        return list(dict.fromkeys([*self._known_kernels(), self.kernel]))

    @property
    def shapes(self) -> list[Shape]:
        """The shapes that the runs hold, and the one that is chosen, smallest first."""
        return sorted(self._known_shapes() | {self.shape}, key=_by_work)

    @property
    def lying(self) -> list[Pitfall]:
        """The gremlins at large, in the table's order."""
        return [g for g in PITFALLS if self.is_lying(g)]

    def choose_kernel(self, kernel: str) -> None:
        """Take another kernel."""
        if kernel not in self.kernels:
            rung(kernel)
        self.kernel = kernel

    def choose_shape(self, shape: Shape | int) -> None:
        """Take another shape, square where it is a number."""
        self.shape = Shape.of(shape)

    def choose(self, setting: str, value: Value) -> None:
        """Set one setting. Raises BadSetting, and changes nothing, where no gremlin has such a setting or value.
        Whether it goes together with the others is asked with the answer.
        """
        pitfall = next((g for g in PITFALLS if g.setting == setting), None)
        if pitfall is None:
            raise BadSetting(f"{setting} fixes no gremlin: choose from {', '.join(self.settings)}")
        if not pitfall.takes(value):
            values = ", ".join(map(str, pitfall.values))
            raise BadSetting(f"{setting} = {value!r} is not a setting: choose from {values}")
        self.settings[setting] = value

    def fix(self, pitfall: Pitfall, fixed: bool) -> None:
        """Turn one fix on (its honest value) or off (its first lie); a value that already is so stays."""
        if fixed == self.is_lying(pitfall):
            self.settings[pitfall.setting] = pitfall.unbiased if fixed else pitfall.biased[0]

    def is_lying(self, pitfall: Pitfall) -> bool:
        """Whether a gremlin is at large."""
        return pitfall.is_biased(self.settings[pitfall.setting])

    def all_honest(self) -> None:
        """Every fix on."""
        self.settings = self._honest()

    def all_naive(self) -> None:
        """Every gremlin at large."""
        self.settings = naive_settings()

    def add(self, run: Run) -> None:
        """Another run to answer from, before all others."""
        self.runs.insert(0, run)

    def tasks(self) -> list[Task]:
        """What has to be measured for an answer: the honest reading, and this one if its launches differ."""
        biased = {g.setting: self.settings[g.setting] for g in changes(self.settings) if g.resampled}
        chosen = [{}, biased] if biased else [{}]
        return [Task(self.kernel, self.shape, tuple(lie.items()) + ABLATION_PATIENCE) for lie in chosen]

    def _known_kernels(self) -> list[str]:
        return list(dict.fromkeys(m.kernel for run in self.runs for m in run.measurements)) or list(ABLATION_RUNGS)

    def _known_shapes(self) -> set[Shape]:
        return {m.problem for run in self.runs for m in run.measurements} or {Shape.of(n) for n in GRID_SIZES}

    def _honest(self) -> dict[str, Value]:
        return honest_settings(self.runs[-1] if self.runs else None)

    def answer(self) -> Answer:
        """What the first run that holds the combination says. Raises NotRecorded or BadSetting with the reason."""
        Harness().but(**self.settings)
        if not self.runs:
            raise NotRecorded("nothing has been measured here yet")
        run = next((r for r in self.runs if find(r, self.kernel, self.shape, self.settings)), self.runs[-1])
        reading = read(run, self.kernel, self.shape, self.settings)
        unbiased = read(run, self.kernel, self.shape, honest_settings(run))
        return Answer(dict(self.settings), reading, unbiased, self._steps(run, unbiased))

    def _steps(self, run: Run, unbiased: Reading) -> tuple[Step, ...]:
        """One lie after the other, in the table's order; those in between that were not measured wait for the next."""
        so_far, last = honest_settings(run), unbiased
        steps: list[Step] = []
        waiting: list[Pitfall] = []
        for pitfall in changes(self.settings, run):
            so_far[pitfall.setting] = self.settings[pitfall.setting]
            waiting.append(pitfall)
            found = find(run, self.kernel, self.shape, so_far)
            if found is not None and found.status == "measured":
                after = read(run, self.kernel, self.shape, so_far)
                if any(g.corrupts == TIME for g in waiting):
                    steps.append(Step(tuple(waiting), last, after))
                last, waiting = after, []
        return tuple(steps)


def _by_work(shape: Shape) -> tuple[int, Shape]:
    return shape.flops, shape
