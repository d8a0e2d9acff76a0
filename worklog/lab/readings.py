"""The reading that a run has for one combination of settings: a recorded measurement, with the chosen arithmetic.

Samples are read, never modelled: for a combination that was not measured there is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from worklog.errors import WorklogError
from worklog.problem.gemm import Shape
from worklog.runs.ablation import PRECISION
from worklog.runs.report import SHOWN
from worklog.runs.run import Measurement, Run
from worklog.runs.samples import Reading as Samples
from worklog.runs.statistics import Estimate
from worklog.runs.summarize import event_overhead_us, summarize
from worklog.settings import PITFALLS, Pitfall, Value, rule

Settings = Mapping[str, Value]
PRINTED = 5e-4  # a smaller share is 0.0 %


class NotRecorded(WorklogError):
    """A run does not hold a combination of kernel, shape and settings; the message names what it holds."""


@dataclass(frozen=True)
class Reading:
    """One result. Times in microseconds with their 95 % interval; ratio: cuBLAS's time over the kernel's. samples: the
    times that count, in launch order.
    """

    run: Run
    measurement: Measurement
    time: Estimate
    ratio: Estimate
    of_roof: float | None
    samples: tuple[float, ...]

    def differs(self, other: Reading) -> bool:
        """Whether the two times differ by more than their noise. Two results from the same samples have no noise: they
        differ where the difference isn't printed as 0.0 %.
        """
        same = self.measurement is other.measurement
        noise = PRINTED if same else self.time.relative_half_width + other.time.relative_half_width + PRECISION
        return abs(self.time.value / other.time.value - 1) > noise


def unbiased_settings(run: Run | None = None) -> dict[str, Value]:
    """The unbiased value of every setting; the run's own where it is another one that isn't biased."""
    own = {} if run is None else run.harness
    kept = {g.setting for g in PITFALLS if rule(own.get(g.setting, "")) in g.also}
    if own.get("placement") == "fixed":  # a run from before this setting has no other
        kept.add("placement")
    return {g.setting: own[g.setting] if g.setting in kept else g.unbiased for g in PITFALLS}


def changes(settings: Settings, run: Run | None = None) -> list[Pitfall]:
    """The pitfalls whose setting is not the unbiased one, in the table's order."""
    unbiased = unbiased_settings(run)
    return [g for g in PITFALLS if settings[g.setting] not in (unbiased[g.setting], g.unbiased)]


def in_words(settings: Settings, which: Iterable[Pitfall] | None = None) -> str:
    """Settings in words: "l2 = warm, queue = off", or "unbiased"."""
    chosen = changes(settings) if which is None else which
    return ", ".join(f"{g.setting} = {word(settings[g.setting])}" for g in chosen) or "unbiased"


def word(value: Value) -> str:
    """A value in words: on and off for True and False."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def read(run: Run, kernel: str, shape: Shape, settings: Settings) -> Reading:
    """The reading of one combination. Raises NotRecorded, naming the nearest there is, or why there is no time."""
    m = find(run, kernel, shape, settings)
    if m is None:
        raise NotRecorded(_what_there_is(run, kernel, shape, settings))
    if m.status != "measured":
        raise NotRecorded(f"{kernel} at {shape}: {SHOWN.get(m.status, m.status)}: {m.reason}")
    try:
        overhead = event_overhead_us(settings, run.calibration)
    except KeyError:
        raise NotRecorded(
            f"this {run.origin} run has no calibrated event overhead to remove: set offset = kept"
        ) from None
    samples = Samples.of_columns(m.samples)
    peak = m.tflops / m.of_roof if m.of_roof and m.tflops and _made(run, m)["roof"] == "fp32" else None
    found = summarize(samples, settings, run.calibration, shape.flops, peak)
    assert found.ratio is not None
    counted = tuple(us - overhead for us in samples.counted("subject"))
    return Reading(run, m, found.time, found.ratio, found.of_peak, counted)


def find(run: Run, kernel: str, shape: Shape, settings: Settings) -> Measurement | None:
    """The measurement whose launches were made with these settings, or None. Settings that only change the arithmetic
    are ignored, and so is the gate, because the same launches are timed without it; one with the same gate comes first.
    """
    here = [m for m in run.measurements if m.kernel == kernel and m.problem == shape and not _apart(run, m, settings)]
    return min(here, key=lambda m: _made(run, m)["gate"] != settings["gate"], default=None)


def _made(run: Run, m: Measurement) -> dict[str, Value]:
    """The settings that a measurement was made with."""
    return {g.setting: m.changed.get(g.setting, run.harness.get(g.setting, g.unbiased)) for g in PITFALLS}


def _apart(run: Run, m: Measurement, settings: Settings) -> list[Pitfall]:
    """The pitfalls in whose setting a measurement's launches differ from these settings."""
    made = _made(run, m)
    by_host = "host" in (made["timer"], settings["timer"])  # then the queue is always empty
    wanted = [g for g in PITFALLS if g.resampled and g.setting != "gate" and not (by_host and g.setting == "queue")]
    return [g for g in wanted if made[g.setting] not in _alike(run, m, g, settings[g.setting])]


def _alike(run: Run, m: Measurement, pitfall: Pitfall, value: Value) -> tuple[Value, ...]:
    """The values that count as this one: a run with locked clocks answers for watched clocks too."""
    own = run.harness.get(pitfall.setting, "")
    if pitfall.setting not in m.changed and value == pitfall.unbiased and rule(own) in pitfall.also:
        return value, own
    made = m.changed.get(pitfall.setting, own)
    return (value, made) if pitfall.setting == "clocks" and rule(made) == value else (value,)


def _what_there_is(run: Run, kernel: str, shape: Shape, settings: Settings) -> str:
    missing = f"{kernel} at {shape} with {in_words(settings)} is not in this {run.origin} run"
    here = [m for m in run.measurements if m.kernel == kernel and m.problem == shape and m.status == "measured"]
    if not here:
        there = ", ".join(dict.fromkeys(f"{m.kernel} at {m.problem}" for m in run.measurements)) or "nothing"
        return f"{missing}, which holds {there}"
    nearest = min((_apart(run, m, settings) for m in here), key=len)
    return f"{missing}; without {in_words(settings, nearest)} it is"
