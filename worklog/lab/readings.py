"""What a run has for a kernel, a size and a combination of settings.

Samples are read, never modelled: for a combination that was not measured there is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile, WorklogError
from worklog.problem import Shape, tflops
from worklog.runs import (
    Difference,
    Estimate,
    Measurement,
    Run,
    Summary,
    compare,
    forced_source,
    open_run,
    recordings,
    summarize,
)
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS, Pitfall, Value, rule

Size = Shape | int | None
Settings = Mapping[str, Value]
LAUNCHES = tuple(g for g in PITFALLS if g.resampled and g.setting != "gate")  # these change how samples are taken
PRINTED = 5e-4  # a smaller share is 0.0 %


class NotRecorded(WorklogError):
    """A run does not hold a combination of kernel, shape and settings."""


def grid_runs(given: Run | Path | None = None) -> list[Run]:
    """The panel's runs: the given one, else the recorded grid; none with WORKLOG_SOURCE=live. Raises BadRunFile."""
    if given is None and forced_source() == "live":
        return []
    if given is None and not recordings("grid"):
        raise BadRunFile(
            "this installation has no recording for the panel: reinstall gemm-worklog, or make one on a GPU with "
            "`worklog ablate --grid --out grid.jsonl` and pass it as run="
        )
    return [given if isinstance(given, Run) else open_run(given or [*recordings("grid").values()][-1])]


@dataclass(frozen=True)
class Reading:
    """One result of a run. timed: its time in microseconds with all samples. ratio: cuBLAS's time over the kernel's."""

    run: Run
    measurement: Measurement
    timed: Summary
    ratio: Estimate

    @property
    def time(self) -> Estimate:
        """Microseconds per launch."""
        return self.timed.time

    @property
    def samples(self) -> list[float]:
        """The times that count, in launch order."""
        return [us - self.timed.samples.overhead_us for us in self.timed.samples.counted()]

    def of_roof(self, roof: Value) -> float | None:
        """The share of a roof, a value of the setting `roof`."""
        m, peak = self.measurement, BF16_DATASHEET_TFLOPS
        if roof == "fp32":
            if not (m.of_roof and m.tflops) or made_with(self.run, m)["roof"] != "fp32":
                return None
            peak = m.tflops / m.of_roof
        return tflops(m.problem, self.time.value) / peak

    def difference(self, other: Reading) -> Difference:
        """From the other's time to this one, at the other's clock. Two results from the same samples by events have no
        noise: they differ where the difference isn't printed as 0.0 %.
        """
        if self.measurement is other.measurement and not self.timed.by_host:
            return Difference(math.log(self.time.value / other.time.value), PRINTED, 0.0)
        return compare(other.timed, self.timed)


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
        self.run, self.unbiased = run, unbiased_settings(run)
        self._same = [(g.setting, (g.unbiased, self.unbiased[g.setting])) for g in LAUNCHES]
        self._measurements: dict[tuple[Any, ...], Measurement] = {}
        self._readings: dict[tuple[Any, ...], Reading] = {}
        for m in run.measurements:
            made = made_with(run, m)
            for clocks in (made["clocks"], rule(made["clocks"])):  # "locked" means at any frequency
                self._measurements.setdefault(self._key(m.kernel, m.problem, made | {"clocks": clocks}), m)

    def _key(self, kernel: str, shape: Shape, settings: Settings) -> tuple[Any, ...]:
        if settings["timer"] == "host":  # no queue builds up
            settings = {**settings, "queue": True}
        return kernel, shape, *((name, settings[name]) for name, same in self._same if settings[name] not in same)

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
            self._readings[key] = Reading(self.run, m, summary, next(iter(summary.ratios.values())))
        return self._readings[key]
