"""What the panel shows, without a page: the reading for the chosen settings, and its distance from the unbiased one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from worklog.errors import BadSetting
from worklog.lab.readings import Held, NotRecorded, Reading, Settings, changes, in_words, unbiased_settings
from worklog.problem import Shape, tflops
from worklog.runner.job import ABLATION_RUNGS, GRID_SIZES
from worklog.runs import Difference, Run, about, duration
from worklog.runs.estimates import CLOCK_OFF
from worklog.settings import PITFALLS, Harness, Pitfall, Value

TIME = "TFLOP/s"  # what a pitfall corrupts that changes the time
MOVED = 0.005  # smaller relative changes of a share are not worth a line
WIDE = 3.0  # from this ratio between times on, an axis is logarithmic
SPOKEN = {g.setting: g for g in PITFALLS if g.setting in ("gate", "roof")}  # each changes one sentence and no time
GATES: dict[Value, str] = {
    False: "with the gate off, a result is not checked",
    "article": "by the article's rule alone, TF32, FP16, BF16 and missing terms would pass",
}
Row = tuple[str, str, float, float, str]  # name, colour by role, microseconds before and after, words


@dataclass(frozen=True)
class Step:
    """The readings before and after some settings were changed."""

    pitfalls: tuple[Pitfall, ...]
    before: Reading
    after: Reading

    @cached_property
    def difference(self) -> Difference:
        """Of the times, at the clock of the reading before; negative inflates the result."""
        return self.after.difference(self.before)

    @property
    def us(self) -> float:
        """Microseconds that the step adds; negative where it makes the time shorter."""
        return self.before.time.value * self.difference.off

    @property
    def role(self) -> str:
        """Its colour by role: orange inflates the result, blue deflates it, grey is noise."""
        if not self.difference.visible:
            return "grey"
        return "alert" if self.us < 0 else "accent"

    @property
    def row(self) -> Row:
        """Named by the settings that change the time, with the article's number before them."""
        number = next((f"{g.article} " for g in self.pitfalls if g.article), "")
        name = number + " + ".join(g.setting for g in self.pitfalls if g.corrupts == TIME)
        words = "within noise"
        if self.difference.visible:
            words = f"{'+' if self.us > 0 else '−'}{duration(abs(self.us))}"
        return name, self.role, self.before.time.value, self.after.time.value, words


@dataclass(frozen=True)
class Answer:
    """The reading for some settings beside the unbiased one. whole: from that one to this at once; steps: a biased
    setting after the other, or several where only all of them together were measured.
    """

    settings: dict[str, Value]
    whole: Step
    steps: tuple[Step, ...]

    @property
    def reading(self) -> Reading:
        """For the settings."""
        return self.whole.after

    @property
    def unbiased(self) -> Reading:
        """Of the same run."""
        return self.whole.before

    @property
    def same(self) -> bool:
        """Whether this is the unbiased time."""
        spoken_only = all(g.setting in SPOKEN for g in self.whole.pitfalls)
        return spoken_only and self.reading.measurement is self.unbiased.measurement

    @property
    def comparison(self) -> str:
        """How far off this time is, and its interval."""
        statistic, count = self.settings["statistic"], len(self.reading.samples)
        noise = f"±{100 * self.reading.time.relative_half_width:.2g} % (95 %) from {count} samples"
        if statistic != "median":  # only a median has an interval
            noise = f"{statistic} of {count} samples"
        if self.same:
            return f"this is the unbiased time · {noise}"
        difference = self.whole.difference
        if not difference.visible:
            return f"the difference is within the noise · {noise}"
        return f"this reading is {amount(difference.off, difference.noise)} · {noise}"

    @property
    def notes(self) -> list[str]:
        """What changed besides the time: the share of cuBLAS, the clock, and the degradations that are not settings."""
        here, unbiased = self.reading, self.unbiased
        lines = [_share("cuBLAS", here.ratio.value, unbiased.ratio.value)]
        if abs(self.whole.difference.clock or 0.0) > CLOCK_OFF:
            clocks = (f"{reading.measurement.sm_mhz:.0f} MHz" for reading in (here, unbiased))
            lines.append("SM clock: {} here, {} unbiased; the difference is at one clock".format(*clocks))
        known = {f"{g.setting}: {value}" for g in PITFALLS for value in g.biased}
        lines += [d for d in here.measurement.degradations if d not in known and not d.startswith("gate:")]
        return [line for line in lines if line]

    @property
    def spoken(self) -> dict[str, list[str]]:
        """What each value of gate and roof adds to the notes, by setting. They change nothing else."""
        shares = [(self.reading.of_roof(roof), self.unbiased.of_roof("fp32")) for roof in SPOKEN["roof"].values]
        return {
            "gate": [GATES.get(value, "") for value in SPOKEN["gate"].values],
            "roof": [_share("the roof", *pair) for pair in shares],
        }

    @property
    def text(self) -> list[str]:
        """All of it but the pictures in sentences, for a reader without the page."""
        m, chosen = self.reading.measurement, in_words(self.settings, self.whole.pitfalls)
        spoken = [self.spoken[name][g.values.index(self.settings[name])] for name, g in SPOKEN.items()]
        steps = "; ".join(f"{name} {words}" for name, *_, words in (step.row for step in self.steps))
        one_by_one = f"one by one: {steps}" if len(self.steps) > 1 else ""
        return [
            f"{m.kernel} at {m.problem}, {chosen}: {' → '.join(numbers(self.reading))}",
            f"unbiased: {' → '.join(numbers(self.unbiased))}",
            *filter(None, [self.comparison, one_by_one, *self.notes, *spoken, m.label]),
        ]

    def as_json(self) -> dict[str, Any]:
        """For panel.js. steps: from the unbiased time over each step to this one; none where nothing changes it."""
        role = "alert" if self.whole.role == "alert" else "accent"
        shown = {role: self.reading} if self.same else {"grey": self.unbiased, role: self.reading}
        times = [us for reading in shown.values() for us in (*reading.samples, reading.time.value)]
        rows: list[Row] = [step.row for step in self.steps]
        if rows:
            ends = []
            for name, reading in (("unbiased", self.unbiased), ("this reading", self.reading)):
                ends.append((name, "dot", reading.time.value, reading.time.value, numbers(reading)[0]))
            rows = [ends[0], *rows, ends[1]]
        return {
            "unbiased": numbers(self.unbiased),
            "reading": numbers(self.reading),
            "comparison": self.comparison,
            "notes": self.notes,
            "spoken": self.spoken,
            "label": self.reading.measurement.label,
            "role": self.whole.role,
            "estimates": [[role, reading.time.value] for role, reading in shown.items()],
            "samples": [[round(us, 3) for us in reading.samples] for reading in shown.values()],
            "axis": axis(times, 1.25),
            "steps": rows,
            "steps_axis": axis([after for _, _, _, after, _ in rows], 1.15) if rows else None,
        }


def numbers(reading: Reading) -> tuple[str, str, str]:
    """What one would publish: time, rate, share of cuBLAS."""
    time, ratio, half = reading.time, reading.ratio, reading.time.relative_half_width
    rate = tflops(reading.measurement.problem, time.value)
    speed = about(rate, half, lambda rate: f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}")
    share = about(ratio.value, ratio.relative_half_width, _percent)
    return about(time.value, half, duration), f"{speed} TFLOP/s", f"{share} of cuBLAS"


def axis(values: Sequence[float], air: float) -> dict[str, Any]:
    """An axis of microseconds around the values, logarithmic where they differ much, with ticks and their words. air:
    the factor of margin if logarithmic; else it is at least 2 %, so that noise isn't drawn as a cliff.
    """
    low, high = min(values), max(values)
    logarithmic = low > 0 and high > WIDE * low
    locator: Locator = LogLocator(subs=(1, 3), numticks=5)
    if logarithmic:
        low, high = low / air, high * air
    else:
        room = max((high - low) * 0.12, 0.02 * abs(high))
        low, high = low - room, high + room
        locator = MaxNLocator(4, steps=[1, 2, 5, 10])
    ticks = [(float(us), duration(us)) for us in locator.tick_values(low, high) if low <= us <= high]
    return {"low": low, "high": high, "log": logarithmic, "ticks": ticks}


def amount(off: float, noise: float = 0.0) -> str:
    """A relative difference in words that suit its size and its noise."""
    if off >= 2:
        return f"{about(off + 1, noise, '{:.3g}'.format)} times too long"
    if off <= -2 / 3:
        return f"{about(1 / (off + 1), noise, '{:.3g}'.format)} times too short"
    return f"{abs(100 * off):.1f} % {'higher' if off > 0 else 'lower'}"


def _share(name: str, here: float | None, unbiased: float | None) -> str:
    if not here or not unbiased or abs(here / unbiased - 1) <= MOVED:
        return ""
    return f"share of {name}: {_percent(here)} here, {_percent(unbiased)} unbiased"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 10 else f"{100 * share:.0f} %"


class Answers:
    """The runs that answer, the most trusted one first; and the kernels and shapes that can be chosen: without any run,
    those that the panel measures.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.held = [Held(run) for run in runs]
        measured = [m for run in runs for m in run.measurements]
        self.kernels = list(dict.fromkeys(m.kernel for m in measured)) or list(ABLATION_RUNGS)
        shapes = {m.problem for m in measured} or {Shape.of(n) for n in GRID_SIZES}
        self.shapes = sorted(shapes, key=lambda shape: shape.flops)
        run = runs[-1] if runs else None
        self.unbiased = unbiased_settings(run)
        unknown = run.unknown if run else []  # no pitfall that the recording doesn't know
        self.naive = self.unbiased | {g.setting: g.biased[0] for g in PITFALLS if g.setting not in unknown}

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Whether there is a time for this combination."""
        return any(held.has(kernel, shape, settings) for held in self.held)

    def add(self, run: Run) -> None:
        """Answer from this run first."""
        self.held.insert(0, Held(run))

    def settings(self, changed: Settings) -> dict[str, Value]:
        """The unbiased settings with these changed; whether they go together is checked by answer(). Raises BadSetting
        where no pitfall has this setting or value.
        """
        for setting, value in changed.items():
            pitfall = next((g for g in PITFALLS if g.setting == setting), None)
            if pitfall is None:
                raise BadSetting(f"{setting} is not the setting of a pitfall: choose from {', '.join(self.unbiased)}")
            pitfall.check(value)
        return {**self.unbiased, **changed}

    def answer(self, kernel: str, size: Shape | int, **changed: Value) -> Answer:
        """The reading with these settings changed, of the first run that holds the combination. Raises NotRecorded or
        BadSetting with the reason.
        """
        shape, settings = Shape.of(size), self.settings(changed)
        Harness().but(**settings)
        if not self.held:
            raise NotRecorded("nothing has been measured here yet")
        held = next((held for held in self.held if held.find(kernel, shape, settings)), self.held[-1])
        reading, unbiased = held.read(kernel, shape, settings), held.read(kernel, shape, held.unbiased)
        # One biased setting after the other; a combination that was not measured is joined with the next one.
        steps, so_far, last, waiting = list[Step](), dict(held.unbiased), unbiased, list[Pitfall]()
        chosen = changes(settings, held.unbiased)
        for pitfall in chosen:
            so_far[pitfall.setting] = settings[pitfall.setting]
            if pitfall.setting in SPOKEN:
                continue
            waiting.append(pitfall)
            if held.has(kernel, shape, so_far):
                after = held.read(kernel, shape, so_far)
                if any(g.corrupts == TIME for g in waiting):
                    steps.append(Step(tuple(waiting), last, after))
                last, waiting = after, []
        return Answer(settings, Step(tuple(chosen), unbiased, reading), tuple(steps))
