"""What a page shows, without widgets: a kernel, a size, settings, and the reading that a run has for them.

Samples are read, never modelled: for a combination that was not measured there is an error.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from worklog.errors import BadRunFile, WorklogError
from worklog.gpu.device import gpu_reason
from worklog.kernel.ladder import rung
from worklog.problem.gemm import Shape
from worklog.runs.ablation import PRECISION
from worklog.runs.run import Measurement, Run, forced_source, new_path, open_run, recordings
from worklog.runs.samples import Estimate, event_overhead_us, summarize
from worklog.runs.samples import Reading as Samples
from worklog.runs.tables import SHOWN
from worklog.settings import PITFALLS, Pitfall, Value, rule

GRID = "h200_grid"


class Choice:
    """The chosen kernel and shape, and the runs, the most trusted one first. Raises UnknownRung or BadShape."""

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None) -> None:
        self.runs = list(runs)
        self.kernel = self.known_kernels()[-1]
        if kernel is not None:
            self.choose_kernel(kernel)
        self.shape = self.first_shape(sorted(self.known_shapes(), key=_by_work)) if size is None else Shape.of(size)

    def known_kernels(self) -> list[str]:
        """The kernels that there is something to show for, in the order of the drop-down list; at least one."""
        raise NotImplementedError

    def known_shapes(self) -> set[Shape]:
        """The shapes that there is something to show for, of the chosen kernel where that matters."""
        raise NotImplementedError

    def first_shape(self, known: list[Shape]) -> Shape:
        """The shape to begin with: the middle one."""
        return known[len(known) // 2] if known else Shape.of(1024)

    @property
    def kernels(self) -> list[str]:
        """The known kernels and the chosen one."""
        return list(dict.fromkeys([*self.known_kernels(), self.kernel]))

    @property
    def shapes(self) -> list[Shape]:
        """The known shapes and the chosen one, smallest first."""
        return sorted(self.known_shapes() | {self.shape}, key=_by_work)

    def choose_kernel(self, kernel: str) -> None:
        """Choose another kernel. Raises UnknownRung where it is neither known nor a rung."""
        self.kernel = kernel if kernel in self.known_kernels() else rung(kernel).name

    def choose_shape(self, size: Shape | int) -> None:
        """Choose another shape; a number means a square one. Raises BadShape."""
        self.shape = Shape.of(size)


def _by_work(shape: Shape) -> tuple[int, Shape]:
    return shape.flops, shape


def grid_runs(given: Run | Path | None = None) -> list[Run]:
    """The panel's runs: the given one, else the recorded grid; none with WORKLOG_SOURCE=live. Raises BadRunFile."""
    if given is None and forced_source() == "live":
        return []
    if given is None and GRID not in recordings():
        raise BadRunFile(
            f"this installation has no recording {GRID}: reinstall gemm-worklog, or make one on a GPU with "
            f"`worklog grid --out {GRID}.json` and pass it as run="
        )
    return [given if isinstance(given, Run) else open_run(given or recordings()[GRID])]


def ladder_runs(given: Run | Path | None = None) -> list[Run]:
    """The ladder's and the ablation's runs: the given one, else the default run and, if that was measured here, the
    recording after it (not with WORKLOG_SOURCE=live). Raises BadRunFile where there is no run.
    """
    found = given if isinstance(given, Run) else open_run(given)
    if given is not None or found.origin == "recorded" or forced_source() == "live":
        return [found]
    return [found, *(open_run(path) for path in list(recordings().values())[:1])]


def why_not_live() -> str | None:
    """Why nothing can be measured here, or None."""
    if forced_source() == "recorded":
        return "WORKLOG_SOURCE=recorded"
    return gpu_reason()


def new_file() -> Path:
    """Where the panel's next run is saved: in a folder of its own, so that no command opens it by default."""
    path = new_path("panel", datetime.now(UTC).isoformat(), secrets.token_hex(2))
    return path.parent / "panel" / path.name


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
    return {g.setting: g.unbiased for g in PITFALLS} | run.harness | m.changed


def _apart(run: Run, m: Measurement, settings: Settings) -> list[Pitfall]:
    """The pitfalls in whose setting a measurement's launches differ from these settings."""
    made = _made(run, m)
    if rule(made["clocks"]) == settings["clocks"]:  # locked clocks, at any frequency
        made["clocks"] = settings["clocks"]
    alike = ("gate", "queue") if "host" in (made["timer"], settings["timer"]) else ("gate",)  # then no queue builds up
    apart = {g.setting for g in changes(made, run) + changes(settings, run) if made[g.setting] != settings[g.setting]}
    return [g for g in PITFALLS if g.setting in apart and g.resampled and g.setting not in alike]


def _what_there_is(run: Run, kernel: str, shape: Shape, settings: Settings) -> str:
    missing = f"{kernel} at {shape} with {in_words(settings)} is not in this {run.origin} run"
    here = [m for m in run.measurements if m.kernel == kernel and m.problem == shape and m.status == "measured"]
    if not here:
        there = ", ".join(dict.fromkeys(f"{m.kernel} at {m.problem}" for m in run.measurements)) or "nothing"
        return f"{missing}, which holds {there}"
    nearest = min((_apart(run, m, settings) for m in here), key=len)
    return f"{missing}; without {in_words(settings, nearest)} it is"
