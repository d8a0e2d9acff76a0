"""What a run says about one combination of settings: a measurement that was made, with the arithmetic that was chosen.

The panel answers from here. Samples are read, never modelled: a combination that nobody measured is said to be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from worklog.errors import WorklogError
from worklog.harness.sampling import Reading as Samples
from worklog.harness.sampling import Sample
from worklog.problem.gemm import Shape, tflops
from worklog.runs.ablation import PRECISION
from worklog.runs.run import Measurement, Run
from worklog.runs.statistics import Estimate, paired_ratio, summarise
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS, Pitfall, Value

Settings = Mapping[str, Value]
PRINTED = 5e-4  # a smaller share is 0.0 %


class NotRecorded(WorklogError):
    """A run does not hold the combination that was asked for; the message names what it does hold."""


@dataclass(frozen=True)
class Reading:
    """One number as one harness states it. Times in microseconds with their 95 % interval; ratio: cuBLAS's time over
    the kernel's. samples: what the time was made of, in the order of the launches, those that count.
    """

    run: Run
    measurement: Measurement
    time: Estimate
    ratio: Estimate
    of_roof: float | None
    samples: tuple[float, ...]

    @property
    def tflops(self) -> float:
        """The rate that goes with the time."""
        return tflops(self.measurement.problem, self.time.value)

    def differs(self, other: Reading) -> bool:
        """Whether the two times differ by more than their noise; arithmetic on the same samples has none, and is told
        from where it would be printed as something else than 0.
        """
        same = self.measurement is other.measurement
        noise = PRINTED if same else self.time.relative_half_width + other.time.relative_half_width + PRECISION
        return abs(self.time.value / other.time.value - 1) > noise


def honest_settings(run: Run | None = None) -> dict[str, Value]:
    """The honest value of every setting; of two honest ones, the run's own."""
    own = {} if run is None else run.harness
    return {g.setting: own[g.setting] if own.get(g.setting) in g.also else g.unbiased for g in PITFALLS}


def naive_settings() -> dict[str, Value]:
    """The first lie of every setting."""
    return {g.setting: g.biased[0] for g in PITFALLS}


def changes(settings: Settings, run: Run | None = None) -> Iterator[Pitfall]:
    """The gremlins whose setting is not the honest one, in the table's order."""
    unbiased = honest_settings(run)
    return (g for g in PITFALLS if settings[g.setting] not in (unbiased[g.setting], g.unbiased))


def say(settings: Settings, which: Iterator[Pitfall] | None = None) -> str:
    """Settings in words: "l2 = warm, queue = off"; "honest" where nothing is changed."""
    chosen = changes(settings) if which is None else which
    return ", ".join(f"{g.setting} = {word(settings[g.setting])}" for g in chosen) or "honest"


def word(value: Value) -> str:
    """A value as a person reads it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def read(run: Run, kernel: str, shape: Shape, settings: Settings) -> Reading:
    """The reading of one combination. Raises NotRecorded, naming the nearest there is, or why there is no time."""
    found = find(run, kernel, shape, settings)
    if found is None:
        raise NotRecorded(_what_there_is(run, kernel, shape, settings))
    if found.status != "measured":
        raise NotRecorded(f"{kernel} at {shape} was {found.status}: {found.reason}")
    return _take(run, found, settings)


def find(run: Run, kernel: str, shape: Shape, settings: Settings) -> Measurement | None:
    """The measurement whose launches were made as the settings say, or None. What settings make of samples is not asked
    for, nor the gate, since a gate that is off times the same launches; one that agrees on the gate is preferred.
    """
    here = [m for m in run.measurements if m.kernel == kernel and m.problem == shape and _fits(run, m, settings)]
    return min(here, key=lambda m: _effective(run, m)["gate"] != settings["gate"], default=None)


def _effective(run: Run, m: Measurement) -> dict[str, Value]:
    return {g.setting: m.changed.get(g.setting, run.harness.get(g.setting, g.unbiased)) for g in PITFALLS}


def _fits(run: Run, m: Measurement, settings: Settings) -> bool:
    return not _apart(run, m, settings)


def _apart(run: Run, m: Measurement, settings: Settings) -> list[Pitfall]:
    """The gremlins on which a measurement's launches were made otherwise than the settings say."""
    made = _effective(run, m)
    by_host = "host" in (made["timer"], settings["timer"])  # then launches never queue up
    asked = [g for g in PITFALLS if g.resampled and g.setting != "gate" and not (by_host and g.setting == "queue")]
    return [g for g in asked if made[g.setting] not in _alike(run, m, g, settings[g.setting])]


def _alike(run: Run, m: Measurement, pitfall: Pitfall, asked: Value) -> tuple[Value, ...]:
    """What is as good as the value asked for: a run whose clocks could be locked locks them where watching is asked."""
    own = run.harness.get(pitfall.setting)
    if pitfall.setting not in m.changed and asked == pitfall.unbiased and own in pitfall.also:
        return asked, own
    return (asked,)


def _what_there_is(run: Run, kernel: str, shape: Shape, settings: Settings) -> str:
    asked = f"{kernel} at {shape} with {say(settings)} is not in this {run.origin} run"
    here = [m for m in run.measurements if m.kernel == kernel and m.problem == shape and m.status == "measured"]
    if not here:
        there = ", ".join(dict.fromkeys(f"{m.kernel} at {m.problem}" for m in run.measurements)) or "nothing"
        return f"{asked}, which holds {there}"
    nearest = min(here, key=lambda m: len(_apart(run, m, settings)))
    return f"{asked}; without {say(settings, iter(_apart(run, nearest, settings)))} it is"


def _take(run: Run, m: Measurement, settings: Settings) -> Reading:
    """The settings' arithmetic on a measurement's samples, the same as the harness's own."""
    samples, statistic = _samples(m), str(settings["statistic"])
    offset = _offset(run) if (settings["offset"], settings["timer"]) == ("removed", "events") else 0.0
    counted = samples.counted("subject")
    time = _shifted(summarise(counted, statistic), -offset)
    if statistic == "median":
        ours, theirs = ([us - offset for us in side] for side in samples.comparisons())
        ratio = paired_ratio(theirs, ours)
    else:
        value = (summarise(samples.counted("baseline"), statistic).value - offset) / time.value
        ratio = Estimate(value, value, value)
    roof = _of_roof(m, tflops(m.problem, time.value), str(settings["roof"]), _effective(run, m)["roof"])
    return Reading(run, m, time, ratio, roof, tuple(us - offset for us in counted))


def _samples(m: Measurement) -> Samples:
    """Stored samples as the harness had them. Of more samples on one side, the last have no partner to count with."""
    nan = float("nan")
    ours, theirs, counts = m.samples["us"], m.samples["baseline_us"], m.samples["counts"]
    subject = [Sample(us, nan, bool(c)) for us, c in zip(ours, counts, strict=True)]
    baseline = [Sample(us, nan, bool(c)) for us, c in zip_longest(theirs, counts[: len(theirs)], fillvalue=0)]
    return Samples(subject, baseline)


def _offset(run: Run) -> float:
    if "offset_us" not in run.calibration:
        raise NotRecorded(f"this {run.origin} run has no calibrated offset to remove: set offset = kept")
    return float(run.calibration["offset_us"])


def _of_roof(m: Measurement, rate: float, asked: str, made: Value) -> float | None:
    """The share of the roof asked for. The FP32 roof is the one that the measurement was compared with, if it was."""
    if asked != "fp32":
        return rate / BF16_DATASHEET_TFLOPS
    return m.of_roof * rate / m.tflops if m.of_roof and m.tflops and made == "fp32" else None


def _shifted(estimate: Estimate, by: float) -> Estimate:
    return Estimate(estimate.value + by, estimate.low + by, estimate.high + by)
