"""The answers of the panel: a reading for some settings, compared with the unbiased reading.

This is all that the panel shows, without a page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from worklog.errors import BadSetting, NotRecorded, meant
from worklog.lab.readings import (
    SPOKEN,
    Reading,
    RunReadings,
    Settings,
    changes,
    in_words,
    three_digits,
    unbiased_settings,
)
from worklog.problem import Shape
from worklog.runner.job import ABLATION_RUNGS, GRID_SIZES
from worklog.runs import Measurement, Run
from worklog.runs.statistics import CLOCK_OFF, HOST_HALF, Difference, is_visible
from worklog.runs.text import change_in_percent, duration, format_estimate  # fmt: skip
from worklog.settings import PITFALLS, Harness, Pitfall, Value

TIME = "TFLOP/s"  # `corrupts` of a pitfall that changes the time
SCATTER = f"by a host clock, which scatters by ±{100 * HOST_HALF:.0f} % between processes"
WIDE = 3.0  # an axis is logarithmic if its times differ by more than this factor
GATES: dict[Value, str] = {
    False: "with the gate off, a result is not checked",
    "article": "by the article's rule alone, TF32, FP16, BF16 and missing terms would pass",
}
# Name, colour by role, microseconds before and after, and the label of the change.
PanelRow = tuple[str, str, float, float, str]


@dataclass(frozen=True)
class SettingEffect:
    """The readings before and after some settings were changed."""

    pitfalls: tuple[Pitfall, ...]
    before: Reading
    after: Reading

    @cached_property
    def difference(self) -> Difference:
        """The relative difference of the times, at the clock of the reading before.

        A negative difference inflates the result.
        """
        return self.after.difference(self.before)

    @cached_property
    def role(self) -> str:
        """The role of the step's colour.

        Orange ("alert") inflates the result, blue ("accent") deflates it, grey is noise.
        """
        if not self.difference.visible:
            return "grey"
        return "alert" if self.difference.off < 0 else "accent"

    @cached_property
    def row(self) -> PanelRow:
        """The step's row in the panel's chart.

        It is named by the settings that change the time, after the article's number.
        """
        number = next((f"{pitfall.article} " for pitfall in self.pitfalls if pitfall.article), "")
        settings = [pitfall.setting for pitfall in self.pitfalls if pitfall.corrupts == TIME]
        before_us = self.before.timed.time.value
        after_us = self.after.timed.time.value
        added_us = before_us * self.difference.off
        label = "within noise"
        if self.difference.visible:
            label = f"{'+' if added_us > 0 else '−'}{duration(abs(added_us))}"
        return number + " + ".join(settings), self.role, before_us, after_us, label


@dataclass(frozen=True)
class Answer:
    """The reading for some settings, compared with the unbiased one."""

    settings: dict[str, Value]
    whole: SettingEffect  # from the unbiased reading to this one at once
    steps: tuple[
        SettingEffect, ...
    ]  # a biased setting each; several if they were only measured together

    @property
    def same(self) -> bool:
        """Whether this is the unbiased time."""
        spoken_only = all(pitfall.setting in SPOKEN for pitfall in self.whole.pitfalls)
        return spoken_only and self.whole.after.measurement is self.whole.before.measurement

    @property
    def comparison(self) -> str:
        """The difference from the unbiased time as a sentence, with the interval."""
        reading = self.whole.after
        statistic = self.settings["statistic"]
        noise = f"{statistic} of {len(reading.samples)} samples"
        if statistic == "median":  # only a median has an interval
            half_width = 100 * reading.timed.time.relative_half_width
            noise = f"±{half_width:.2g} % (95 %) from {len(reading.samples)} samples"
        if reading.timed.by_host:
            noise += f", {SCATTER}"
        if self.same:
            return f"this is the unbiased time · {noise}"
        difference = self.whole.difference
        if not difference.visible:
            return f"the difference is within the noise · {noise}"
        return f"this time is {amount(difference.off, difference.noise)} · {noise}"

    @property
    def notes(self) -> list[str]:
        """Changes besides the time.

        These are the share of cuBLAS, the clock, and the degradations that aren't settings.
        """
        reading = self.whole.after
        unbiased = self.whole.before
        lines = list[str]()
        if reading.share_difference(unbiased).visible:
            share, _, _ = reading.numbers[2].partition(" % ")
            unbiased_share, _, _ = unbiased.numbers[2].partition(" % ")
            lines.append(f"share of cuBLAS: {share} % here, {unbiased_share} % unbiased")
        if abs(self.whole.difference.clock or 0.0) > CLOCK_OFF:
            clocks = f"{reading.measurement.sm_mhz:.0f} MHz here"
            clocks += f", {unbiased.measurement.sm_mhz:.0f} MHz unbiased"
            lines.append(f"SM clock: {clocks}; the difference is at one clock")
        settings = set[str]()
        for pitfall in PITFALLS:
            settings.update(f"{pitfall.setting}: {value}" for value in pitfall.biased)
        for degradation in reading.measurement.degradations:
            if degradation not in settings and not degradation.startswith("gate:"):
                lines.append(degradation)
        return [line for line in lines if line]

    @property
    def spoken(self) -> dict[str, list[str]]:
        """The notes on each value of gate and roof, by setting.

        These settings change nothing else.
        """
        return {
            "gate": [GATES.get(value, "") for value in SPOKEN["gate"].values],
            "roof": [self._share_of_roof(roof) for roof in SPOKEN["roof"].values],
        }

    def _share_of_roof(self, roof: Value) -> str:
        """Describe the share of a roof, if it visibly differs from the unbiased one."""
        share = self.whole.after.of_roof(roof)
        unbiased = self.whole.before.of_roof("fp32")
        if not share or not unbiased:
            return ""
        if not is_visible(math.log(share / unbiased), self.whole.difference.noise):
            return ""
        half_width = self.whole.after.timed.relative_half_width
        percent = format_estimate(100 * share, half_width, three_digits)
        return f"share of the roof: {percent} % here, {three_digits(100 * unbiased)} % unbiased"

    @property
    def text(self) -> list[str]:
        """The answer without its charts in sentences, for a reader without the page."""
        m = self.whole.after.measurement
        choice = in_words(self.settings, self.whole.pitfalls)
        spoken = [
            self.spoken[setting][pitfall.values.index(self.settings[setting])]
            for setting, pitfall in SPOKEN.items()
        ]
        one_by_one = ""
        if len(self.steps) > 1:
            steps = [f"{name} {label}" for name, *_, label in (step.row for step in self.steps)]
            one_by_one = f"one by one: {'; '.join(steps)}"
        return [
            f"{m.kernel} at {m.problem}, {choice}: {' → '.join(self.whole.after.numbers)}",
            f"unbiased: {' → '.join(self.whole.before.numbers)}",
            *filter(None, [self.comparison, one_by_one, *self.notes, *spoken, m.label]),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the answer for panel.js."""
        reading = self.whole.after
        unbiased = self.whole.before
        role = "alert" if self.whole.role == "alert" else "accent"
        by_role = {role: reading} if self.same else {"grey": unbiased, role: reading}
        times_us = list[float]()
        for drawn in by_role.values():
            times_us += [*drawn.samples, drawn.timed.time.value]
        rows = self._rows()
        return {
            "unbiased": unbiased.numbers,
            "reading": reading.numbers,
            "comparison": self.comparison,
            "notes": self.notes,
            "spoken": self.spoken,
            "label": reading.measurement.label,
            "role": "same" if self.same else self.whole.role,
            "estimates": [[role, drawn.timed.time.value] for role, drawn in by_role.items()],
            "samples": [[round(us, 3) for us in drawn.samples] for drawn in by_role.values()],
            "axis": axis(times_us, 1.25),
            "steps": rows,
            "steps_axis": axis([after_us for *_, after_us, _ in rows], 1.15) if rows else None,
        }

    def _rows(self) -> list[PanelRow]:
        """Return rows from the unbiased time over each step to this time; none without a step."""
        if not self.steps:
            return []
        first = _row_of("unbiased", self.whole.before)
        last = _row_of("this reading", self.whole.after)
        return [first, *(step.row for step in self.steps), last]


def _row_of(name: str, reading: Reading) -> PanelRow:
    """Return the row of a reading, a dot at its time."""
    time_us = reading.timed.time.value
    return name, "dot", time_us, time_us, reading.numbers[0]


def axis(values: Sequence[float], air: float) -> dict[str, Any]:
    """Return an axis around times in microseconds, with ticks and their labels.

    It is logarithmic if the times differ by more than WIDE.
    air: the factor of margin of a logarithmic axis.
    The margin of a linear axis is at least 2 %, so that noise isn't drawn as a cliff.
    """
    low = min(values)
    high = max(values)
    is_logarithmic = low > 0 and high > WIDE * low
    locator: Locator
    if is_logarithmic:
        locator = LogLocator(subs=(1, 3), numticks=5)
        low /= air
        high *= air
    else:
        locator = MaxNLocator(4, steps=[1, 2, 5, 10])
        margin = max((high - low) * 0.12, 0.02 * abs(high))
        low -= margin
        high += margin
    ticks = [
        (float(us), duration(us)) for us in locator.tick_values(low, high) if low <= us <= high
    ]
    return {"low": low, "high": high, "log": is_logarithmic, "ticks": ticks}


def amount(difference: float, noise: float = 0.0) -> str:
    """Describe a relative difference, with the digits that its noise allows."""
    if difference >= 2:
        return f"{format_estimate(difference + 1, noise, three_digits)} times too long"
    if difference <= -2 / 3:
        return f"{format_estimate(1 / (difference + 1), noise, three_digits)} times too short"
    direction = "longer" if difference > 0 else "shorter"
    return f"{change_in_percent(difference, noise).lstrip('+−')} {direction}"


class Answers:
    """The runs that answer, and the kernels and shapes to choose from.

    The most trusted run is the first one. Without any run, the kernels and shapes are those that
    the panel measures.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.sources = list[RunReadings]()
        # By the settings' names and the readings: many answers have a step in common.
        self._effects = dict[tuple[Any, ...], SettingEffect]()
        measured = list[Measurement]()
        for run in runs:
            self.sources += [RunReadings(part) for part in run.by_card()]
            measured += [m for m in run.measurements if m.shape]
        self.kernels = list(dict.fromkeys(m.kernel for m in measured)) or list(ABLATION_RUNGS)
        shapes = {m.problem for m in measured} or {Shape.of(n) for n in GRID_SIZES}
        self.shapes = sorted(shapes, key=lambda shape: shape.flops)
        last_run = runs[-1] if runs else None
        self.unbiased = unbiased_settings(last_run)
        unknown = last_run.unknown if last_run else []  # pitfalls that the recording doesn't know
        self.naive = dict(self.unbiased)
        for pitfall in PITFALLS:
            if pitfall.setting not in unknown:
                self.naive[pitfall.setting] = pitfall.biased[0]

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Return whether there is a time for this combination."""
        return any(part.has(kernel, shape, settings) for part in self.sources)

    def settings(self, changed: Settings) -> dict[str, Any]:
        """Return the unbiased settings with these changed.

        Whether they go together is checked by answer().
        Raises BadSetting if no pitfall has this setting or value.
        """
        pitfalls = {pitfall.setting: pitfall for pitfall in PITFALLS}
        for setting, value in changed.items():
            if setting not in pitfalls:
                advice = f"{meant(setting, pitfalls)}: choose from {', '.join(pitfalls)}"
                raise BadSetting(f"{setting} is not the setting of a pitfall{advice}")
            pitfalls[setting].check(value)
        return {**self.unbiased, **changed}

    def answer(self, kernel: str, size: Shape | int, **changed: Value) -> Answer:
        """Return the reading with these settings changed, of the first run that has it.

        Raises NotRecorded or BadSetting with the reason.
        """
        shape = Shape.of(size)
        settings = self.settings(changed)
        Harness().but(**settings)
        if not self.sources:
            raise NotRecorded("nothing has been measured here yet")
        source = self.sources[-1]
        for part in self.sources:
            if part.find(kernel, shape, settings):
                source = part
                break
        reading = source.read(kernel, shape, settings)
        unbiased = source.read(kernel, shape, source.unbiased)
        pitfalls = changes(settings, source.unbiased)
        steps = self._steps(source, kernel, shape, settings)
        return Answer(settings, self._effect(pitfalls, unbiased, reading), tuple(steps))

    def _steps(
        self, source: RunReadings, kernel: str, shape: Shape, settings: Settings
    ) -> list[SettingEffect]:
        """Return a step for each biased setting that changes the time.

        A setting is joined with the next one if there is no time for the combination so far.
        """
        steps = list[SettingEffect]()
        combination = dict(source.unbiased)
        previous = source.read(kernel, shape, source.unbiased)
        joined = list[Pitfall]()
        for pitfall in changes(settings, source.unbiased):
            combination[pitfall.setting] = settings[pitfall.setting]
            if pitfall.setting in SPOKEN:
                continue
            joined.append(pitfall)
            if not source.has(kernel, shape, combination):
                continue
            after = source.read(kernel, shape, combination)
            if any(changed.corrupts == TIME for changed in joined):
                steps.append(self._effect(joined, previous, after))
            previous = after
            joined = []
        return steps

    def _effect(self, pitfalls: Sequence[Pitfall], start: Reading, end: Reading) -> SettingEffect:
        """Return the effect of settings, the same object for the same readings."""
        # A source keeps its readings, so no other reading gets the identity of one.
        key = (*(pitfall.setting for pitfall in pitfalls), id(start), id(end))
        if key not in self._effects:
            self._effects[key] = SettingEffect(tuple(pitfalls), start, end)
        return self._effects[key]
