"""What a run has for a kernel, a size and a combination of settings.

Samples are read, never modelled: for a combination that was not measured there is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from worklog.errors import WorklogError
from worklog.problem import Shape, tflops
from worklog.runs import Difference, Estimate, Measurement, Run, Timed, compare, event_overhead_us, summarize
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS, Pitfall, Value, rule

Settings = Mapping[str, Value]
LAUNCHES = tuple(g for g in PITFALLS if g.resampled and g.setting != "gate")  # these change how samples are taken
COMPUTED = tuple(g for g in PITFALLS if g not in LAUNCHES)  # with any value of these, the launches are the same
PRINTED = 5e-4  # a smaller share is 0.0 %


class NotRecorded(WorklogError):
    """A run does not hold a combination of kernel, shape and settings."""


@dataclass(frozen=True)
class Reading:
    """One result. Times in microseconds with their 95 % interval; ratio: cuBLAS's time over the kernel's. peak: in
    TFLOP/s, FP32. samples: the times that count, in launch order. timed: the time with all samples.
    """

    run: Run
    measurement: Measurement
    time: Estimate
    ratio: Estimate
    peak: float | None
    samples: tuple[float, ...]
    timed: Timed

    def of_roof(self, roof: Value) -> float | None:
        """The share of a roof, a value of the setting `roof`."""
        peak = self.peak if roof == "fp32" else BF16_DATASHEET_TFLOPS
        return None if peak is None else tflops(self.measurement.problem, self.time.value) / peak

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
        if run is not None and g.setting in run.harness:
            own = run.harness[g.setting]
            if g.setting == "placement" or not g.is_biased(own):
                settings[g.setting] = own
    return settings


def changes(settings: Settings, run: Run | None = None) -> list[Pitfall]:
    """The pitfalls whose setting is not the unbiased one, in the table's order."""
    unbiased = unbiased_settings(run)
    return [g for g in PITFALLS if settings[g.setting] not in (unbiased[g.setting], g.unbiased)]


def in_words(settings: Settings, which: Iterable[Pitfall]) -> str:
    """Settings in words: "l2 = warm, queue = off", or "unbiased"."""
    return ", ".join(f"{g.setting} = {word(settings[g.setting])}" for g in which) or "unbiased"


def word(value: Value) -> str:
    """A value in words: on and off for True and False."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


class Held:
    """What a run holds, by kernel, shape and the settings of the launches that aren't unbiased."""

    def __init__(self, run: Run) -> None:
        self.run, self.unbiased = run, unbiased_settings(run)
        self._measurements: dict[tuple[Any, ...], dict[Value, Measurement]] = {}  # by key, then by gate
        self._readings: dict[tuple[Any, ...], Reading] = {}
        for m in run.measurements:
            made = made_with(run, m)
            for settings in (made, made | {"clocks": rule(made["clocks"])}):  # "locked" means at any frequency
                by_gate = self._measurements.setdefault(self._key(m.kernel, m.problem, settings), {})
                by_gate.setdefault(made["gate"], m)

    def _key(self, kernel: str, shape: Shape, settings: Settings) -> tuple[Any, ...]:
        changed = []
        for g in LAUNCHES:
            value = settings[g.setting]
            needless = g.setting == "queue" and settings["timer"] == "host"  # with a host clock no queue builds up
            if not needless and value not in (g.unbiased, self.unbiased[g.setting]):
                changed.append((g.setting, value))
        return kernel, shape, *changed

    def find(self, kernel: str, shape: Shape, settings: Settings) -> Measurement | None:
        """The measurement whose launches were made with these settings, or None. Settings that only change the
        arithmetic are ignored, and so is the gate; a measurement with the same gate comes first.
        """
        by_gate = self._measurements.get(self._key(kernel, shape, settings), {})
        return by_gate.get(settings["gate"]) or next(iter(by_gate.values()), None)

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Whether there is a time for this combination."""
        m = self.find(kernel, shape, settings)
        return m is not None and m.status == "measured"

    def read(self, kernel: str, shape: Shape, settings: Settings) -> Reading:
        """The reading of one combination. Raises NotRecorded, also where it was measured without a time."""
        m = self.find(kernel, shape, settings)
        if m is None:
            launches = [g for g in changes(settings, self.run) if g in LAUNCHES]
            raise NotRecorded(f"not recorded: {kernel} at {shape}, {in_words(settings, launches)}")
        key = (id(m), *(settings[name] for name in ("offset", "timer", "statistic")))
        if key not in self._readings:
            self._readings[key] = _summarized(self.run, m, settings)
        return self._readings[key]


def made_with(run: Run, m: Measurement) -> dict[str, Value]:
    """The settings that a measurement was made with. What its run is older than counts as unbiased."""
    return {g.setting: g.unbiased for g in PITFALLS} | run.harness | m.changed


def _summarized(run: Run, m: Measurement, settings: Settings) -> Reading:
    if m.status != "measured":
        raise NotRecorded(f"{m.kernel} at {m.problem}: {m.status}: {m.reason}")
    overhead, samples = event_overhead_us(settings, run.calibration.offset_us), m.samples
    peak = None
    if m.of_roof and m.tflops and made_with(run, m)["roof"] == "fp32":
        peak = m.tflops / m.of_roof
    summary = summarize(samples, settings, run.calibration.offset_us)
    assert summary.ratio is not None
    counted = tuple(us - overhead for us in samples.counted())
    timed = Timed(summary.time, samples, overhead, settings["timer"] == "host")
    return Reading(run, m, summary.time, summary.ratio, peak, counted, timed)
