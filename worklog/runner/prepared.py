"""A job that is prepared, and the measurement that its timed loop gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from worklog.gate import EVERY_LAUNCH
from worklog.gpu.clocks import Peaks
from worklog.harness import Harness, LoopResult, TimedLaunch, off_the_lock, time_in_turn
from worklog.runner.job import Job
from worklog.runner.launches import OutOfBoundsWrite
from worklog.runner.session import Session
from worklog.runs import Choice, Measurement, Roof, Stage, Verdict, Work, failed
from worklog.runs.statistics import summarize


@dataclass(frozen=True)
class Prepared:
    """A job that is ready to be timed: the launches of its kernel and of its baselines."""

    job: Job
    harness: Harness  # as it is in effect for this job
    work: Work
    degradations: list[str]  # known before the loop; `check` may add some
    verdict: Verdict | None = None  # of the gate; None without one
    launches: Sequence[TimedLaunch] = ()  # none if the gate has failed the kernel
    # Returns the gate's stages on what was timed.
    check: Callable[[LoopResult], list[Stage]] = lambda _reading: []
    context: AbstractContextManager[object] = field(default_factory=nullcontext)  # of the loop
    loop_options: Mapping[str, Any] = field(default_factory=dict)  # of time_in_turn
    # Returns the whole of which the rate is a share, for the peaks at the measured clock.
    roof: Callable[[Peaks], Roof | None] = lambda _peaks: None
    witnesses: dict[str, float | str] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)  # of algorithms, by baseline
    beyond: tuple[str, ...] = ()  # what the kernel does beyond a product


def measure_prepared(session: Session, prepared: Prepared) -> Measurement:
    """Time a prepared job, check what was timed, and return the measurement.

    A kernel that the gate has failed isn't timed.
    """
    verdict = prepared.verdict
    if verdict and not verdict.accepted:
        return prepared.job.failed(verdict)
    try:
        with prepared.context:
            reading = time_in_turn(
                session.timeline, prepared.launches, prepared.harness, **prepared.loop_options
            )
            stages = prepared.check(reading)
    except OutOfBoundsWrite as error:
        assert verdict is not None  # only a loop that is checked looks at the guard bands
        return prepared.job.failed(verdict.with_stage(failed(EVERY_LAUNCH, str(error))))
    if verdict:
        verdict = verdict.with_stage(*stages)
    return measurement(session, prepared, reading, verdict)


def measurement(
    session: Session, prepared: Prepared, reading: LoopResult, verdict: Verdict | None
) -> Measurement:
    """Return the measurement of a loop, or a failed one if what was timed is wrong.

    verdict: of the gate, with its stages on what was timed
    """
    job = prepared.job
    harness = prepared.harness
    if verdict and not verdict.accepted:
        return job.failed(verdict)
    if reading.us(harness.statistic) <= session.overhead_us(harness):
        reason = "failed at plausible: the time is not above zero"
        return job.without_time("failed", reason, verdict)
    summary = summarize(reading.samples, harness.as_dict(), session.calibration.offset_us)
    changed = job.pitfalls
    degradations = [*prepared.degradations, *reading.degradations]
    remark = off_the_lock(harness.clocks, reading.samples.sm_mhz)
    if remark:
        changed = changed | {"clocks": "watched"}
        degradations.append(remark)
    degradations += session.peaks.impossible(summary.time.value, prepared.work)
    return Measurement(
        job.kernel,
        job.point,
        changed=changed,
        verdict=verdict,
        time=summary.time,
        against=dict.fromkeys(job.against) | summary.ratios,
        work=prepared.work,
        roof=prepared.roof(Peaks(session.gpu, reading.samples.sm_mhz or session.gpu.sm_clock_mhz)),
        samples=summary.samples,
        degradations=tuple(degradations),
        witnesses=prepared.witnesses,
        choices=prepared.choices,
        beyond=prepared.beyond,
        energy=reading.energy,
    )
