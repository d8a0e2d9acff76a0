"""Readings of a run: the time and the share of cuBLAS of a kernel, a size and settings.

Samples are read, never modelled: a combination that wasn't measured is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile, NotRecorded
from worklog.problem import Shape, tflops
from worklog.runs import Measurement, Run, open_run, recordings
from worklog.runs.effects import BF16_DATASHEET_TFLOPS
from worklog.runs.sources import forced_source
from worklog.runs.statistics import (
    HOST_HALF,
    Difference,
    Estimate,
    Summary,
    compare_shares,
    compare_times,
    summarize,
)
from worklog.runs.text import duration, format_estimate
from worklog.settings import PITFALLS, Pitfall, Value, rule

Settings = Mapping[str, Value]
# Pitfalls that change how samples are taken.
LAUNCHES = tuple(pitfall for pitfall in PITFALLS if pitfall.resampled and pitfall.setting != "gate")
# Pitfalls that change one sentence each, and no time.
SPOKEN = {pitfall.setting: pitfall for pitfall in PITFALLS if pitfall.setting in ("gate", "roof")}


def grid_runs(run: Run | Path | None = None) -> list[Run]:
    """Return the panel's runs: `run`, else the recorded grid.

    There is none with WORKLOG_SOURCE=live.
    Raises BadRunFile.
    """
    if isinstance(run, Run):
        return [run]
    if run is not None:
        return [open_run(run)]
    if forced_source() == "live":
        return []
    grids = [*recordings("grid").values()]
    if not grids:
        raise BadRunFile(
            "no recording for the panel: pass one as run=, from `python -m tests.record.grid "
            "grid.jsonl`"
        )
    return [open_run(grids[-1])]


@dataclass(frozen=True)
class Reading:
    """A result of a run."""

    run: Run
    measurement: Measurement
    timed: Summary  # the time in microseconds, with all samples
    ratio: Estimate  # cuBLAS's time over the kernel's

    @cached_property
    def samples(self) -> list[float]:
        """The times that count, in launch order."""
        return [us - self.timed.samples.overhead_us for us in self.timed.samples.counted()]

    @cached_property
    def numbers(self) -> tuple[str, str, str]:
        """Time, rate and share of cuBLAS, as an author would publish them."""
        time = self.timed.time
        half_width = self.timed.relative_half_width
        share_half_width = self.ratio.relative_half_width
        if self.timed.by_host:
            share_half_width = math.hypot(share_half_width, HOST_HALF)
        speed = format_estimate(
            tflops(self.measurement.problem, time.value), half_width, three_digits
        )
        share = format_estimate(100 * self.ratio.value, share_half_width, three_digits)
        return (
            format_estimate(time.value, half_width, duration),
            f"{speed} TFLOP/s",
            f"{share} % of cuBLAS",
        )

    def of_roof(self, roof: Value) -> float | None:
        """Return the share of a roof; None if it is unknown.

        roof: a value of the setting `roof`
        """
        m = self.measurement
        peak = BF16_DATASHEET_TFLOPS
        if roof == "fp32":
            if not (m.of_roof and m.tflops) or made_with(self.run, m)["roof"] != "fp32":
                return None
            peak = m.tflops / m.of_roof
        return tflops(m.problem, self.timed.time.value) / peak

    def difference(self, other: Reading) -> Difference:
        """Compare the other reading's time with this one, at the other's clock.

        Two readings of the same samples by events have no noise.
        """
        if self.measurement is other.measurement and not self.timed.by_host:
            log = math.log(self.timed.time.value / other.timed.time.value)
            return Difference(log, noise=0.0, clock=0.0)
        return compare_times(other.timed, self.timed)

    def share_difference(self, other: Reading) -> Difference:
        """Compare the other reading's share of cuBLAS with this one.

        The noise is as in difference().
        """
        if self.measurement is other.measurement and not self.timed.by_host:
            return Difference(math.log(self.ratio.value / other.ratio.value), noise=0.0, clock=0.0)
        by_host = self.timed.by_host or other.timed.by_host
        return compare_shares(other.ratio, self.ratio, by_host)


def unbiased_settings(run: Run | None = None) -> dict[str, Value]:
    """Return the unbiased settings, or the run's if they aren't biased either.

    A run from before `placement` has only the biased value of `placement`.
    """
    settings = {pitfall.setting: pitfall.unbiased for pitfall in PITFALLS}
    for pitfall in PITFALLS:
        value = pitfall.unbiased
        if run is not None:
            value = run.harness.get(pitfall.setting, pitfall.unbiased)
        if pitfall.setting == "placement" or not pitfall.is_biased(value):
            settings[pitfall.setting] = value
    return settings


def made_with(run: Run, m: Measurement) -> dict[str, Value]:
    """Return the settings that a measurement was made with.

    A setting that is newer than the run counts as unbiased.
    """
    return {pitfall.setting: pitfall.unbiased for pitfall in PITFALLS} | run.harness | m.changed


def changes(settings: Settings, unbiased: Settings) -> list[Pitfall]:
    """Return the pitfalls whose setting is neither unbiased nor the run's.

    They are in the table's order.
    """
    changed = []
    for pitfall in PITFALLS:
        if settings[pitfall.setting] not in (unbiased[pitfall.setting], pitfall.unbiased):
            changed.append(pitfall)
    return changed


def in_words(settings: Settings, pitfalls: Iterable[Pitfall]) -> str:
    """Return the settings of pitfalls as text: "l2 = warm, queue = off", or "unbiased"."""
    parts = [
        f"{pitfall.setting} = {format_value(settings[pitfall.setting])}" for pitfall in pitfalls
    ]
    return ", ".join(parts) or "unbiased"


def format_value(value: Value) -> str:
    """Return a value as text: on and off for True and False."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


class RunReadings:
    """The measurements of a run by kernel, shape and biased settings of the launches.

    Settings that only change the arithmetic on samples are ignored, and so is the gate.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.unbiased = unbiased_settings(run)
        self._unbiased_values = [
            (pitfall.setting, (pitfall.unbiased, self.unbiased[pitfall.setting]))
            for pitfall in LAUNCHES
        ]
        self._measurements: dict[tuple[Any, ...], Measurement] = {}
        self._readings: dict[tuple[Any, ...], Reading] = {}
        for m in run.measurements:
            if m.shape is None:
                continue
            settings = made_with(run, m)
            # "locked" means at any frequency
            for clocks in (settings["clocks"], rule(settings["clocks"])):
                key = self._key(m.kernel, m.problem, settings | {"clocks": clocks})
                self._measurements.setdefault(key, m)

    def _key(self, kernel: str, shape: Shape, settings: Settings) -> tuple[Any, ...]:
        """Return the kernel, the shape and the biased settings of the launches."""
        if settings["timer"] == "host":  # no queue builds up
            settings = {**settings, "queue": True}
        biased = []
        for name, unbiased in self._unbiased_values:
            if settings[name] not in unbiased:
                biased.append((name, settings[name]))
        return (kernel, shape, *biased)

    def find(self, kernel: str, shape: Shape, settings: Settings) -> Measurement | None:
        """Return the measurement of this combination, with a time or without."""
        return self._measurements.get(self._key(kernel, shape, settings))

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Return whether there is a time for this combination."""
        m = self.find(kernel, shape, settings)
        return m is not None and m.status == "measured"

    def read(self, kernel: str, shape: Shape, settings: Settings) -> Reading:
        """Return the reading of a combination.

        Raises NotRecorded, also if it was measured without a time.
        """
        m = self.find(kernel, shape, settings)
        if m is None:
            launches = [
                pitfall for pitfall in changes(settings, self.unbiased) if pitfall in LAUNCHES
            ]
            message = f"not recorded: {kernel} at {shape}, {in_words(settings, launches)}"
            raise NotRecorded(message + self._other_sizes(kernel, shape))
        if m.status != "measured":
            raise NotRecorded(f"{kernel} at {shape}: {m.status}: {m.reason}")
        key = (id(m), *(settings[name] for name in ("offset", "timer", "statistic")))
        if key not in self._readings:
            summary = summarize(m.samples, settings, self.run.calibration.offset_us)
            ratio = next(iter(summary.ratios.values()))
            if min(summary.time.value, ratio.value) <= 0:
                statistic = f"the {settings['statistic']} of its samples"
                raise NotRecorded(
                    f"{kernel} at {shape}: {statistic} isn't above the event overhead: choose the "
                    "median"
                )
            self._readings[key] = Reading(self.run, m, summary, ratio)
        return self._readings[key]

    def _other_sizes(self, kernel: str, shape: Shape) -> str:
        """Return advice with the kernel's recorded sizes, or "" if the shape is one of them."""
        shapes = sorted({m.problem for m in self.run if m.kernel == kernel and m.shape})
        if shape in shapes or not shapes:
            return ""
        return f"; choose from the sizes {', '.join(map(str, shapes))}"


def three_digits(number: float) -> str:
    """Return a number with three digits or more, without an exponent."""
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"
