"""What the panel shows, without widgets: the reading, its picture, and its distance from the unbiased one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape

from worklog.errors import BadSetting, WorklogError
from worklog.lab.choice import Choice, Shown, Size
from worklog.lab.panel_picture import Row, picture
from worklog.lab.readings import Held, Nearest, NotRecorded, Reading, Settings, changes, in_words, unbiased_settings
from worklog.plots import Chart
from worklog.problem import Shape, tflops
from worklog.runner.tasks import ABLATION_RUNGS, ABLATION_SAMPLING, GRID_SIZES, Task
from worklog.runs import CLOCK_OFF, Difference, Run, about, duration
from worklog.settings import PITFALLS, Harness, Pitfall, Value

TIME = "TFLOP/s"  # what a pitfall corrupts that changes the time
MOVED = 0.005  # smaller relative changes of a share are not worth a line
GATES = {
    False: "the gate is off: the result was not checked",
    "article": "the gate checked only the article's rule, which passes TF32, FP16, BF16 and missing terms",
}


@dataclass(frozen=True)
class Step:
    """The readings before and after some settings were changed."""

    pitfalls: tuple[Pitfall, ...]
    before: Reading
    after: Reading

    @cached_property
    def difference(self) -> Difference:
        """Of the times, at the clock of the reading before."""
        return self.after.difference(self.before)

    @property
    def us(self) -> float:
        """Microseconds that the step adds; negative where it makes the time shorter."""
        return self.before.time.value * self.off

    @property
    def off(self) -> float:
        """Relative difference of the times; negative inflates the result."""
        return self.difference.off

    @property
    def visible(self) -> bool:
        """Whether that is more than the noise of the two readings."""
        return self.difference.visible

    @property
    def role(self) -> str:
        """Its colour by role: orange inflates the result, blue deflates it."""
        return ("alert" if self.us < 0 else "accent") if self.visible else "grey"

    @property
    def row(self) -> Row:
        """The settings that change the time, with the article's number before them, and the change."""
        number = next((f"{g.article} " for g in self.pitfalls if g.article), "")
        name = number + " + ".join(g.setting for g in self.pitfalls if g.corrupts == TIME)
        change = f"{'+' if self.us > 0 else '−'}{duration(abs(self.us))}" if self.visible else "within noise"
        return name, self.role, self.before.time.value, self.after.time.value, change


@dataclass(frozen=True)
class Answer:
    """The reading for some settings beside the unbiased one; steps: from that one to this, a biased setting after the
    other, or several where only all of them together were measured.
    """

    settings: dict[str, Value]
    reading: Reading
    unbiased: Reading
    steps: tuple[Step, ...]

    @cached_property
    def changed(self) -> list[Pitfall]:
        """The pitfalls whose setting is not the unbiased one."""
        return changes(self.settings, self.reading.run)

    @cached_property
    def whole(self) -> Step:
        """From the unbiased reading to this one at once."""
        return Step(tuple(self.changed), self.unbiased, self.reading)

    @property
    def shown(self) -> list[tuple[str, Reading]]:
        """The readings whose samples the picture shows, each with its colour by role."""
        own = ("alert" if self.whole.role == "alert" else "accent", self.reading)
        return [("grey", self.unbiased), own] if self.changed else [own]

    @property
    def rows(self) -> list[Row]:
        """The picture's rows from the unbiased time over each step to this one; none where nothing changes the time."""
        if not self.steps:
            return []
        ends = {"unbiased": self.unbiased.time, "this reading": self.reading.time}
        first, last = (
            (name, "dot", time.value, time.value, about(time.value, time.relative_half_width, duration))
            for name, time in ends.items()
        )
        return [first, *(step.row for step in self.steps), last]

    @property
    def headline(self) -> str:
        """The number that one would publish: time, rate, share of cuBLAS."""
        time, ratio, half = self.reading.time, self.reading.ratio, self.reading.time.relative_half_width
        rate = tflops(self.reading.measurement.problem, time.value)
        speed = about(rate, half, lambda rate: f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}")
        share = about(ratio.value, ratio.relative_half_width, _percent)
        return f"{about(time.value, half, duration)} → {speed} TFLOP/s → {share} of cuBLAS"

    @property
    def comparison(self) -> str:
        """The unbiased time, how far off this one is, and its interval."""
        statistic, count = self.settings["statistic"], len(self.reading.samples)
        half = f"±{100 * self.reading.time.relative_half_width:.2g} % (95 %) from {count} samples"
        if not self.changed:
            return f"this is the unbiased reading · {half}"
        noise = half if statistic == "median" else f"{statistic} of {count} samples"  # only a median has an interval
        within = "the difference is within the noise"
        off = f"this reading is {amount(self.whole.off, self.whole.difference.noise)}" if self.whole.visible else within
        return f"unbiased {duration(self.unbiased.time.value)} · {off} · {noise}"

    @property
    def others(self) -> list[str]:
        """What changed besides the time: the shares of cuBLAS and of the roof, whether the result was checked, and the
        degradations that are not settings.
        """
        here, unbiased = self.reading, self.unbiased
        shares = [("cuBLAS", here.ratio.value, unbiased.ratio.value), ("the roof", here.of_roof, unbiased.of_roof)]
        lines = [
            f"share of {name}: {_percent(share)} here, {_percent(true)} unbiased"
            for name, share, true in shares
            if share and true and abs(share / true - 1) > MOVED
        ]
        if abs(self.whole.difference.clock or 0.0) > CLOCK_OFF:
            clocks = (f"{one.measurement.sm_mhz:.0f} MHz" for one in (here, unbiased))
            lines.append("SM clock: {} here, {} unbiased; the difference is at one clock".format(*clocks))
        lines += [words for value, words in GATES.items() if self.settings["gate"] == value]
        known = {f"{g.setting}: {value}" for g in PITFALLS for value in g.biased}
        degraded = [d for d in here.measurement.degradations if d not in known and not d.startswith("gate:")]
        return lines + degraded

    @property
    def sentences(self) -> list[str]:
        """All of it, for a reader without the controls and the picture."""
        m, steps = self.reading.measurement, "; ".join(f"{name}: {change}" for name, *_, change in self.rows[1:-1])
        first = f"{m.kernel} at {m.problem}, {in_words(self.settings)}: {self.headline}"
        return [first, self.comparison, *([f"Step by step: {steps}"] if steps else []), *self.others, m.label]


def amount(off: float, noise: float = 0.0) -> str:
    """A relative difference in words that suit its size and its noise."""
    if off >= 2:
        return f"{about(off + 1, noise, '{:.3g}'.format)} times too long"
    if off <= -2 / 3:
        return f"{about(1 / (off + 1), noise, '{:.3g}'.format)} times too short"
    return f"{abs(100 * off):.1f} % {'higher' if off > 0 else 'lower'}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 10 else f"{100 * share:.0f} %"


class PanelChoice(Choice):
    """The chosen kernel, shape and settings. Without any run, the kernels and shapes that the panel measures can be
    chosen. Raises BadSetting.
    """

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Size = None, **biased: Value) -> None:
        self.held = [Held(run) for run in runs]
        self.last: Shown | None = None  # what was shown last for a combination that there is a reading for
        super().__init__(runs, kernel, size)
        self.all_unbiased()
        for setting, value in biased.items():
            self.choose(setting, value)

    def add(self, run: Run) -> None:
        """Answer from this run first."""
        self.runs.insert(0, run)
        self.held.insert(0, Held(run))

    def known_kernels(self) -> list[str]:
        """The kernels that the runs hold, in their order."""
        return list(dict.fromkeys(m.kernel for run in self.runs for m in run.measurements)) or list(ABLATION_RUNGS)

    def known_shapes(self) -> set[Shape]:
        """The shapes that the runs hold."""
        return {m.problem for run in self.runs for m in run.measurements} or {Shape.of(n) for n in GRID_SIZES}

    def choose(self, setting: str, value: Value) -> None:
        """Choose the value of one setting; whether it goes with the others is checked by answer(). Raises BadSetting,
        and changes nothing, where no pitfall has this setting or value.
        """
        pitfall = next((g for g in PITFALLS if g.setting == setting), None)
        if pitfall is None:
            raise BadSetting(f"{setting} is not the setting of a pitfall: choose from {', '.join(self.settings)}")
        pitfall.check(value)
        self.settings[setting] = value

    def toggled(self, pitfall: Pitfall) -> Value:
        """The value that avoids a pitfall where the chosen one doesn't, else its first biased one."""
        return pitfall.unbiased if pitfall.is_biased(self.settings[pitfall.setting]) else pitfall.biased[0]

    def all_unbiased(self) -> None:
        """Avoid every pitfall."""
        self.settings = unbiased_settings(self.runs[-1] if self.runs else None)

    def all_naive(self) -> None:
        """Avoid none."""
        self.settings = Harness.naive().biased()

    def tasks(self) -> list[Task]:
        """What to measure for an answer: the unbiased reading, and this one if its launches differ."""
        biased = {g.setting: self.settings[g.setting] for g in changes(self.settings) if g.resampled}
        chosen = [{}, biased] if biased else [{}]
        return [Task(self.kernel, self.shape, tuple(changed.items()) + ABLATION_SAMPLING) for changed in chosen]

    def answer(self) -> Answer:
        """The reading in the first run that holds the combination. Raises NotRecorded or BadSetting with the reason."""
        Harness().but(**self.settings)
        if not self.runs:
            raise NotRecorded("nothing has been measured here yet")
        held = next((h for h in self.held if h.find(self.kernel, self.shape, self.settings)), self.held[-1])
        reading = held.read(self.kernel, self.shape, self.settings)
        unbiased = held.read(self.kernel, self.shape, held.unbiased)
        return Answer(dict(self.settings), reading, unbiased, self._steps(held, unbiased))

    def result(self) -> Shown:
        """The reading, its picture and its source; the comparison is orange where the result is inflated and blue where
        it is deflated.
        """
        answer = self.answer()
        return Shown(
            [answer.headline, answer.comparison, *answer.others],
            picture=picture(answer),
            details=f"<small>{escape(answer.reading.measurement.label)}</small>",
            stored=answer.sentences,
            colour=f"var(--worklog-{answer.whole.role})" if answer.whole.visible else "inherit",
        )

    def shown(self) -> Shown:
        """The result; or why there is none, and dimmed the last one, at first the nearest."""
        try:
            self.last = self.result()
            return self.last
        except WorklogError as error:
            nearest, last, why = self.nearest(), self.last, str(error)
        if last is None and nearest is not None:
            other = copy(self)
            other.take(nearest)
            with suppress(WorklogError):
                last = other.result()
        if last is None:
            return Shown([why])
        sentences = [why, f"dimmed below: {last.stored[0]}"]
        return replace(last, sentences=sentences, stored=(), colour="var(--worklog-muted)", dimmed=True)

    def available(self, kernel: str | None = None, shape: Shape | None = None, changed: Settings | None = None) -> bool:
        """Whether there is a time for what is chosen with these changes."""
        where, settings = (kernel or self.kernel, shape or self.shape), {**self.settings, **(changed or {})}
        return any(held.has(*where, settings) for held in self.held)

    def nearest(self) -> Nearest | None:
        """The measured combination that is nearest to what is chosen (see Held.nearest), or None."""
        found = [held.nearest(self.kernel, self.shape, self.settings) for held in self.held]
        return min(filter(None, found), key=lambda one: one.distance, default=None)

    def take(self, nearest: Nearest) -> None:
        """Choose this combination."""
        self.kernel, self.shape, self.settings = nearest.kernel, nearest.shape, dict(nearest.settings)

    def chart(self) -> Chart:
        """The answer's picture with title and source. Raises like answer()."""
        answer = self.answer()
        words = f"{in_words(self.settings)}: {answer.comparison}" if answer.changed else answer.comparison
        return picture(answer, f"{self.kernel} at {self.shape}: {answer.headline}", words)

    def _steps(self, held: Held, unbiased: Reading) -> tuple[Step, ...]:
        """One biased setting after the other, in the table's order; a combination that was not measured is joined with
        the next one.
        """
        so_far, last = dict(held.unbiased), unbiased
        steps: list[Step] = []
        waiting: list[Pitfall] = []
        for pitfall in changes(self.settings, held.run):
            so_far[pitfall.setting] = self.settings[pitfall.setting]
            waiting.append(pitfall)
            if held.find(self.kernel, self.shape, so_far) is None:
                continue
            with suppress(NotRecorded):
                after = held.read(self.kernel, self.shape, so_far)
                if any(g.corrupts == TIME for g in waiting):
                    steps.append(Step(tuple(waiting), last, after))
                last, waiting = after, []
        return tuple(steps)
