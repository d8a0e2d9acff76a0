"""What a run has for a kernel, a size and a combination of settings, and its distance from the unbiased reading: all
that the panel shows, without a page.

Samples are read, never modelled: for a combination that was not measured there is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from worklog.errors import BadSetting, WorklogError
from worklog.problem import Shape, tflops
from worklog.runner.measure import ABLATION_RUNGS, GRID_SIZES
from worklog.runs import (
    BF16_DATASHEET_TFLOPS,
    CLOCK_OFF,
    HOST_HALF,
    BadRunFile,
    Difference,
    Estimate,
    Measurement,
    Run,
    Summary,
    about,
    change_in_percent,
    compare,
    compare_shares,
    duration,
    forced_source,
    is_visible,
    open_run,
    recordings,
    summarize,
)  # fmt: skip
from worklog.settings import PITFALLS, Harness, Pitfall, Value, rule

Size = Shape | int | None
Settings = Mapping[str, Value]
LAUNCHES = tuple(
    g for g in PITFALLS if g.resampled and g.setting != "gate"
)  # these change how samples are taken
SPOKEN = {
    g.setting: g for g in PITFALLS if g.setting in ("gate", "roof")
}  # each changes one sentence and no time
TIME = "TFLOP/s"  # what a pitfall corrupts that changes the time
SCATTER = f"by a host clock, which scatters by ±{100 * HOST_HALF:.0f} % between processes"
WIDE = 3.0  # from this ratio between times on, an axis is logarithmic
GATES: dict[Value, str] = {
    False: "with the gate off, a result is not checked",
    "article": "by the article's rule alone, TF32, FP16, BF16 and missing terms would pass",
}
Row = tuple[
    str, str, float, float, str
]  # name, colour by role, microseconds before and after, words


class NotRecorded(WorklogError):
    """A run does not hold a combination of kernel, shape and settings."""


def grid_runs(given: Run | Path | None = None) -> list[Run]:
    """The panel's runs: the given one, else the recorded grid; none with WORKLOG_SOURCE=live. Raises BadRunFile."""
    if given is None and forced_source() == "live":
        return []
    if given is None and not recordings("grid"):
        raise BadRunFile(
            "no recording for the panel: pass one as run=, from `python -m tests.record.grid grid.jsonl`"
        )
    return [
        given if isinstance(given, Run) else open_run(given or [*recordings("grid").values()][-1])
    ]


@dataclass(frozen=True)
class Reading:
    """One result of a run. timed: its time in microseconds with all samples. ratio: cuBLAS's time over the kernel's."""

    run: Run
    measurement: Measurement
    timed: Summary
    ratio: Estimate

    @property
    def samples(self) -> list[float]:
        """The times that count, in launch order."""
        return [us - self.timed.samples.overhead_us for us in self.timed.samples.counted()]

    @property
    def numbers(self) -> tuple[str, str, str]:
        """What one would publish: time, rate, share of cuBLAS."""
        time = self.timed.time
        ratio = self.ratio
        half = self.timed.relative_half_width
        half_of_share = ratio.relative_half_width
        if self.timed.by_host:
            half_of_share = math.hypot(half_of_share, HOST_HALF)
        speed = about(tflops(self.measurement.problem, time.value), half, _digits)
        share = about(100 * ratio.value, half_of_share, _digits)
        return about(time.value, half, duration), f"{speed} TFLOP/s", f"{share} % of cuBLAS"

    def of_roof(self, roof: Value) -> float | None:
        """The share of a roof, a value of the setting `roof`."""
        m = self.measurement
        peak = BF16_DATASHEET_TFLOPS
        if roof == "fp32":
            if not (m.of_roof and m.tflops) or made_with(self.run, m)["roof"] != "fp32":
                return None
            peak = m.tflops / m.of_roof
        return tflops(m.problem, self.timed.time.value) / peak

    def difference(self, other: Reading) -> Difference:
        """Compare the other's time with this one, at the other's clock. Two results from the same samples by events
        have no noise.
        """
        if self.measurement is other.measurement and not self.timed.by_host:
            log = math.log(self.timed.time.value / other.timed.time.value)
            return Difference(log, noise=0.0, clock=0.0)
        return compare(other.timed, self.timed)

    def share_difference(self, other: Reading) -> Difference:
        """Compare the other's share of cuBLAS with this one, with noise as in difference()."""
        if self.measurement is other.measurement and not self.timed.by_host:
            return Difference(math.log(self.ratio.value / other.ratio.value), noise=0.0, clock=0.0)
        by_host = self.timed.by_host or other.timed.by_host
        return compare_shares(other.ratio, self.ratio, by_host)


def unbiased_settings(run: Run | None = None) -> dict[str, Value]:
    """The unbiased value of every setting; the run's own where it is another one that isn't biased. A run from before
    `placement` has only its biased value.
    """
    settings = {g.setting: g.unbiased for g in PITFALLS}
    for g in PITFALLS:
        own = g.unbiased if run is None else run.harness.get(g.setting, g.unbiased)
        if g.setting == "placement" or not g.is_biased(own):
            settings[g.setting] = own
    return settings


def made_with(run: Run, m: Measurement) -> dict[str, Value]:
    """The settings that a measurement was made with. What its run is older than counts as unbiased."""
    return {g.setting: g.unbiased for g in PITFALLS} | run.harness | m.changed


def changes(settings: Settings, unbiased: Settings) -> list[Pitfall]:
    """The pitfalls whose setting is neither the unbiased one nor the run's own, in the table's order."""
    return [g for g in PITFALLS if settings[g.setting] not in (unbiased[g.setting], g.unbiased)]


def in_words(settings: Settings, which: Iterable[Pitfall]) -> str:
    """Settings in words: "l2 = warm, queue = off", or "unbiased"."""
    return ", ".join(f"{g.setting} = {word(settings[g.setting])}" for g in which) or "unbiased"


def word(value: Value) -> str:
    """A value in words: on and off for True and False."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


class Held:
    """What a run holds, by kernel, shape and the settings of the launches that aren't unbiased. Settings that only
    change the arithmetic on samples are ignored, and so is the gate.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.unbiased = unbiased_settings(run)
        self._same = [(g.setting, (g.unbiased, self.unbiased[g.setting])) for g in LAUNCHES]
        self._measurements: dict[tuple[Any, ...], Measurement] = {}
        self._readings: dict[tuple[Any, ...], Reading] = {}
        for m in run.measurements:
            if m.shape is None:
                continue
            made = made_with(run, m)
            for clocks in (made["clocks"], rule(made["clocks"])):  # "locked" means at any frequency
                self._measurements.setdefault(
                    self._key(m.kernel, m.problem, made | {"clocks": clocks}), m
                )

    def _key(self, kernel: str, shape: Shape, settings: Settings) -> tuple[Any, ...]:
        if settings["timer"] == "host":  # no queue builds up
            settings = {**settings, "queue": True}
        return (
            kernel,
            shape,
            *((name, settings[name]) for name, same in self._same if settings[name] not in same),
        )

    def find(self, kernel: str, shape: Shape, settings: Settings) -> Measurement | None:
        """The measurement of this combination, with a time or without."""
        return self._measurements.get(self._key(kernel, shape, settings))

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Whether there is a time for this combination."""
        m = self.find(kernel, shape, settings)
        return m is not None and m.status == "measured"

    def read(self, kernel: str, shape: Shape, settings: Settings) -> Reading:
        """The reading of one combination. Raises NotRecorded, also where it was measured without a time."""
        m = self.find(kernel, shape, settings)
        if m is None:
            launches = [g for g in changes(settings, self.unbiased) if g in LAUNCHES]
            raise NotRecorded(f"not recorded: {kernel} at {shape}, {in_words(settings, launches)}")
        if m.status != "measured":
            raise NotRecorded(f"{kernel} at {shape}: {m.status}: {m.reason}")
        key = (id(m), *(settings[name] for name in ("offset", "timer", "statistic")))
        if key not in self._readings:
            summary = summarize(m.samples, settings, self.run.calibration.offset_us)
            ratio = next(iter(summary.ratios.values()))
            if min(summary.time.value, ratio.value) <= 0:
                statistic = f"the {settings['statistic']} of its samples"
                raise NotRecorded(
                    f"{kernel} at {shape}: {statistic} isn't above the event overhead: choose the median"
                )
            self._readings[key] = Reading(self.run, m, summary, ratio)
        return self._readings[key]


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
    def role(self) -> str:
        """Its colour by role: orange inflates the result, blue deflates it, grey is noise."""
        return (
            ("alert" if self.difference.off < 0 else "accent")
            if self.difference.visible
            else "grey"
        )

    @property
    def row(self) -> Row:
        """Named by the settings that change the time, with the article's number before them."""
        number = next((f"{g.article} " for g in self.pitfalls if g.article), "")
        name = number + " + ".join(g.setting for g in self.pitfalls if g.corrupts == TIME)
        before = self.before.timed.time.value
        after = self.after.timed.time.value
        us = before * self.difference.off
        words = "within noise"
        if self.difference.visible:
            words = f"{'+' if us > 0 else '−'}{duration(abs(us))}"
        return name, self.role, before, after, words


@dataclass(frozen=True)
class Answer:
    """The reading for some settings beside the unbiased one. whole: from that one to this at once; steps: a biased
    setting after the other, or several where only all of them together were measured.
    """

    settings: dict[str, Value]
    whole: Step
    steps: tuple[Step, ...]

    @property
    def same(self) -> bool:
        """Whether this is the unbiased time."""
        spoken_only = all(g.setting in SPOKEN for g in self.whole.pitfalls)
        return spoken_only and self.whole.after.measurement is self.whole.before.measurement

    @property
    def comparison(self) -> str:
        """How far off this time is, and its interval."""
        reading = self.whole.after
        statistic = self.settings["statistic"]
        noise = f"{statistic} of {len(reading.samples)} samples"
        if statistic == "median":  # only a median has an interval
            half = 100 * reading.timed.time.relative_half_width
            noise = f"±{half:.2g} % (95 %) from {len(reading.samples)} samples"
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
        """What changed besides the time: the share of cuBLAS, the clock, and the degradations that are not settings."""
        here = self.whole.after
        unbiased = self.whole.before
        lines = list[str]()
        if here.share_difference(unbiased).visible:
            shares = (reading.numbers[2].partition(" % ")[0] for reading in (here, unbiased))
            lines.append("share of cuBLAS: {} % here, {} % unbiased".format(*shares))
        if abs(self.whole.difference.clock or 0.0) > CLOCK_OFF:
            clocks = (f"{reading.measurement.sm_mhz:.0f} MHz" for reading in (here, unbiased))
            lines.append(
                "SM clock: {} here, {} unbiased; the difference is at one clock".format(*clocks)
            )
        known = {f"{g.setting}: {value}" for g in PITFALLS for value in g.biased}
        lines += [
            d for d in here.measurement.degradations if d not in known and not d.startswith("gate:")
        ]
        return [line for line in lines if line]

    @property
    def spoken(self) -> dict[str, list[str]]:
        """What each value of gate and roof adds to the notes, by setting. They change nothing else."""
        return {
            "gate": [GATES.get(value, "") for value in SPOKEN["gate"].values],
            "roof": [self._share_of_roof(roof) for roof in SPOKEN["roof"].values],
        }

    def _share_of_roof(self, roof: Value) -> str:
        """Describe the share of a roof, if it visibly differs from the unbiased one."""
        here = self.whole.after.of_roof(roof)
        unbiased = self.whole.before.of_roof("fp32")
        if not here or not unbiased:
            return ""
        if not is_visible(math.log(here / unbiased), self.whole.difference.noise):
            return ""
        half = self.whole.after.timed.relative_half_width
        shares = about(100 * here, half, _digits), _digits(100 * unbiased)
        return "share of the roof: {} % here, {} % unbiased".format(*shares)

    @property
    def text(self) -> list[str]:
        """All of it but the pictures in sentences, for a reader without the page."""
        m = self.whole.after.measurement
        chosen = in_words(self.settings, self.whole.pitfalls)
        spoken = [
            self.spoken[name][g.values.index(self.settings[name])] for name, g in SPOKEN.items()
        ]
        steps = "; ".join(
            f"{name} {words}" for name, *_, words in (step.row for step in self.steps)
        )
        one_by_one = f"one by one: {steps}" if len(self.steps) > 1 else ""
        return [
            f"{m.kernel} at {m.problem}, {chosen}: {' → '.join(self.whole.after.numbers)}",
            f"unbiased: {' → '.join(self.whole.before.numbers)}",
            *filter(None, [self.comparison, one_by_one, *self.notes, *spoken, m.label]),
        ]

    def as_json(self) -> dict[str, Any]:
        """For panel.js. steps: from the unbiased time over each step to this one; none where nothing changes it."""
        here = self.whole.after
        unbiased = self.whole.before
        role = "alert" if self.whole.role == "alert" else "accent"
        shown = {role: here} if self.same else {"grey": unbiased, role: here}
        times = [
            us for reading in shown.values() for us in (*reading.samples, reading.timed.time.value)
        ]
        rows: list[Row] = [step.row for step in self.steps]
        if rows:
            first, last = (
                (
                    name,
                    "dot",
                    reading.timed.time.value,
                    reading.timed.time.value,
                    reading.numbers[0],
                )
                for name, reading in (("unbiased", unbiased), ("this reading", here))
            )
            rows = [first, *rows, last]
        return {
            "unbiased": unbiased.numbers,
            "reading": here.numbers,
            "comparison": self.comparison,
            "notes": self.notes,
            "spoken": self.spoken,
            "label": here.measurement.label,
            "role": "same" if self.same else self.whole.role,
            "estimates": [[role, reading.timed.time.value] for role, reading in shown.items()],
            "samples": [[round(us, 3) for us in reading.samples] for reading in shown.values()],
            "axis": axis(times, 1.25),
            "steps": rows,
            "steps_axis": axis([after for _, _, _, after, _ in rows], 1.15) if rows else None,
        }


def axis(values: Sequence[float], air: float) -> dict[str, Any]:
    """An axis of microseconds around the values, logarithmic where they differ much, with ticks and their words. air:
    the factor of margin if logarithmic; else it is at least 2 %, so that noise isn't drawn as a cliff.
    """
    low = min(values)
    high = max(values)
    logarithmic = low > 0 and high > WIDE * low
    locator: Locator = LogLocator(subs=(1, 3), numticks=5)
    if logarithmic:
        low, high = low / air, high * air
    else:
        room = max((high - low) * 0.12, 0.02 * abs(high))
        low, high, locator = low - room, high + room, MaxNLocator(4, steps=[1, 2, 5, 10])
    ticks = [
        (float(us), duration(us)) for us in locator.tick_values(low, high) if low <= us <= high
    ]
    return {"low": low, "high": high, "log": logarithmic, "ticks": ticks}


def amount(off: float, noise: float = 0.0) -> str:
    """A relative difference in words that suit its size and its noise."""
    if off >= 2:
        return f"{about(off + 1, noise, _digits)} times too long"
    if off <= -2 / 3:
        return f"{about(1 / (off + 1), noise, _digits)} times too short"
    return f"{change_in_percent(off, noise).lstrip('+−')} {'longer' if off > 0 else 'shorter'}"


def _digits(number: float) -> str:
    """Three digits or more, without an exponent."""
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


class Answers:
    """The runs that answer, the most trusted one first; and the kernels and shapes that can be chosen: without any run,
    those that the panel measures.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.held = [Held(part) for run in runs for part in run.by_card()]
        measured = [m for run in runs for m in run.measurements if m.shape]
        self.kernels = list(dict.fromkeys(m.kernel for m in measured)) or list(ABLATION_RUNGS)
        shapes = {m.problem for m in measured} or {Shape.of(n) for n in GRID_SIZES}
        self.shapes = sorted(shapes, key=lambda shape: shape.flops)
        run = runs[-1] if runs else None
        self.unbiased = unbiased_settings(run)
        unknown = run.unknown if run else []  # no pitfall that the recording doesn't know
        self.naive = self.unbiased | {
            g.setting: g.biased[0] for g in PITFALLS if g.setting not in unknown
        }

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Whether there is a time for this combination."""
        return any(held.has(kernel, shape, settings) for held in self.held)

    def settings(self, changed: Settings) -> dict[str, Value]:
        """The unbiased settings with these changed; whether they go together is checked by answer(). Raises BadSetting
        where no pitfall has this setting or value.
        """
        pitfalls = {g.setting: g for g in PITFALLS}
        for setting, value in changed.items():
            if setting not in pitfalls:
                raise BadSetting(
                    f"{setting} is not the setting of a pitfall: choose from {', '.join(pitfalls)}"
                )
            pitfalls[setting].check(value)
        return {**self.unbiased, **changed}

    def answer(self, kernel: str, size: Shape | int, **changed: Value) -> Answer:
        """The reading with these settings changed, of the first run that holds the combination. Raises NotRecorded or
        BadSetting with the reason.
        """
        shape = Shape.of(size)
        settings = self.settings(changed)
        Harness().but(**settings)
        if not self.held:
            raise NotRecorded("nothing has been measured here yet")
        held = next(
            (held for held in self.held if held.find(kernel, shape, settings)), self.held[-1]
        )
        reading = held.read(kernel, shape, settings)
        unbiased = held.read(kernel, shape, held.unbiased)
        # One biased setting after the other; a combination that was not measured is joined with the next one.
        steps = list[Step]()
        so_far = dict(held.unbiased)
        last = unbiased
        waiting = list[Pitfall]()
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
                last = after
                waiting = []
        return Answer(settings, Step(tuple(chosen), unbiased, reading), tuple(steps))
