"""The panel without its widgets: what is chosen, what the runs say about it, and how far that is from the truth.

Everything the panel shows is decided here, so that it can be tested without a browser and drawn without a notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worklog.errors import BadSetting
from worklog.gemm import Shape
from worklog.gremlins import GREMLINS, Gremlin, Value
from worklog.harness.settings import Harness
from worklog.lab.readings import NotRecorded, Reading, Settings, changes, find, honest_settings, naive_settings, read
from worklog.ladder import rung
from worklog.plans import ABLATION_PATIENCE, ABLATION_RUNGS, GRID_SIZES, Task
from worklog.runs import Run

TIME = "TFLOP/s"  # what a gremlin corrupts that changes the time


@dataclass(frozen=True)
class Step:
    """The time before and after one more lie about the time; several where only all of them together were measured."""

    gremlins: tuple[Gremlin, ...]
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
    honest: Reading
    steps: tuple[Step, ...]

    @property
    def changed(self) -> list[Gremlin]:
        """The gremlins whose setting is not the honest one."""
        return list(changes(self.settings, self.reading.run))

    @property
    def off(self) -> float:
        """By what share of the honest time this reading is too long; negative flatters."""
        return self.reading.time.value / self.honest.time.value - 1

    @property
    def lies(self) -> bool:
        """Whether the reading's time differs from the honest one by more than the noise of both."""
        return self.reading.differs(self.honest)


class Model:
    """What is chosen, and the runs to answer from, the one to be believed first coming first. Without any, the panel's
    own rungs and sizes can be chosen, and measured. Raises BadSetting, UnknownRung or BadShape for what there is not.
    """

    def __init__(
        self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None, **lies: Value
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
        for setting, value in lies.items():
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
    def lying(self) -> list[Gremlin]:
        """The gremlins at large, in the table's order."""
        return [g for g in GREMLINS if self.is_lying(g)]

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
        gremlin = next((g for g in GREMLINS if g.setting == setting), None)
        if gremlin is None:
            raise BadSetting(f"{setting} fixes no gremlin: choose from {', '.join(self.settings)}")
        if not gremlin.takes(value):
            values = ", ".join(map(str, gremlin.values))
            raise BadSetting(f"{setting} = {value!r} is not a setting: choose from {values}")
        self.settings[setting] = value

    def fix(self, gremlin: Gremlin, fixed: bool) -> None:
        """Turn one fix on (its honest value) or off (its first lie); a value that already is so stays."""
        if fixed == self.is_lying(gremlin):
            self.settings[gremlin.setting] = gremlin.honest if fixed else gremlin.lies[0]

    def is_lying(self, gremlin: Gremlin) -> bool:
        """Whether a gremlin is at large."""
        return gremlin.is_lie(self.settings[gremlin.setting])

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
        lies = {g.setting: self.settings[g.setting] for g in changes(self.settings) if g.resampled}
        chosen = [{}, lies] if lies else [{}]
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
        honest = read(run, self.kernel, self.shape, honest_settings(run))
        return Answer(dict(self.settings), reading, honest, self._steps(run, honest))

    def _steps(self, run: Run, honest: Reading) -> tuple[Step, ...]:
        """One lie after the other, in the table's order; those in between that were not measured wait for the next."""
        so_far, last = honest_settings(run), honest
        steps: list[Step] = []
        waiting: list[Gremlin] = []
        for gremlin in changes(self.settings, run):
            so_far[gremlin.setting] = self.settings[gremlin.setting]
            waiting.append(gremlin)
            found = find(run, self.kernel, self.shape, so_far)
            if found is not None and found.status == "measured":
                after = read(run, self.kernel, self.shape, so_far)
                if any(g.corrupts == TIME for g in waiting):
                    steps.append(Step(tuple(waiting), last, after))
                last, waiting = after, []
        return tuple(steps)


def _by_work(shape: Shape) -> tuple[int, Shape]:
    return shape.flops, shape
