"""A matrix product made ready: the gate's verdicts, and a loop of the kernel and its baselines in checked buffers."""

from __future__ import annotations

import numpy as np

from worklog.gate import after_timing, timed
from worklog.gpu.peaks import Peaks
from worklog.harness import ONE_PLACEMENT, Harness, Reading, input_sets
from worklog.harness.crosscheck import cross_check
from worklog.problem import random_inputs
from worklog.runner.job import BASELINE, Job, work_of
from worklog.runner.launches import Loop, elements
from worklog.runner.session import Prepared, Session, idle_after
from worklog.runs import Measurement, Stage

UNCHECKED: dict[bool | str, str] = {
    False: "gate: off, the result may be wrong",
    "article": "gate: the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}
LAST_ONLY = "gate: only the last timed launch was checked, on inputs that the host function has seen before"


def prepare(session: Session, job: Job, used: Harness) -> Prepared | Measurement:
    """Check the kernel and its baselines, and make their loop ready; a measurement without a time where the kernel is
    skipped or fails. A baseline that fails isn't timed, which the result states.
    """
    if reason := _skipped(session, job, used):
        return job.without_time("skipped", reason)
    stated, right, verdict = _degradations(session, job, used), [*job.baselines], None
    if used.gate:
        for name in job.baselines:
            of_baseline = session.verdict(name, job.problem, used.gate)
            if not of_baseline.accepted:
                right.remove(name)
                stated.append(f"the baseline {name} failed at {of_baseline.reason}")
        verdict = session.verdict(job.kernel, job.problem, used.gate)
        if not verdict.accepted:
            return job.failed(verdict)
    prepared = loop_of(session, job, used, right)
    prepared.verdict = verdict
    prepared.stated[:0] = stated
    return prepared


def loop_of(session: Session, job: Job, used: Harness, names: list[str]) -> Prepared:
    """The job's kernel and the baselines of these names, in the checker's buffers.

    If L2 is flushed before each launch, each launch gets inputs of its own and is checked. Otherwise new inputs would
    warm the L2 that the launch should find cold, and only the output of the last launch is checked.
    """
    shape, checker = job.problem, session.checker(job.problem)
    easy, checked = used.inputs != "random", used.gate is True and used.inputs == "random"
    if easy:
        hosts = random_inputs(shape, np.random.default_rng(0), used.inputs)
        for buffer, host in zip(checker.buffers.abc[:2], hosts, strict=True):
            session.device.overwrite(buffer, host)
    checker.buffers.poison()
    subject = session.subject(job.kernel)
    if used.warmup == "none" and job.kernel != BASELINE:  # so that the next launch is its first
        subject = session.kernel(job.kernel).load(session.device, fresh=True)
    library = session.baselines[used.baseline]
    subjects = [subject, *(library if name == BASELINE else session.subject(name) for name in names)]
    classes = [used.baseline if name == BASELINE else session.claimed(name) for name in names]
    every_launch = _checks_each(used)
    sets = input_sets(shape.compulsory_bytes, session.timeline.l2_bytes) if used.l2 == "rotate" else 1
    pool = session.pool(elements(shape, sets, subjects)) if used.placement == "varied" else None
    both = zip((job.kernel, *names), subjects, strict=True)
    loop = Loop(
        checker,
        subjects,
        names=(job.kernel, *names),
        in_step=used.order == "interleaved" and used.timer != "graph",
        sets=sets,
        classes=(session.claimed(job.kernel), *classes) if every_launch else None,
        warm=used.warmup != "none",
        pool=pool,
        staying=[loaded for name, loaded in both if session.variables(name, shape)],
    )

    def after(reading: Reading, us: float) -> list[Stage]:
        stages = [timed(loop.stage)] if checked else []
        if checked and session.is_host_function(job.kernel):  # which may launch on streams of its own
            stages.append(timed(lambda: idle_after(session, loop.bare[0], used.queues, us)))
            if not used.biased():
                constants = session.calibration.offset_us, session.calibration.launch_us
                prepared.stated += cross_check(session.timeline, loop.bare[0], *constants)[1]
        # Other classes may run where the peak is another.
        if used.gate and not used.biased() and session.claimed(job.kernel) == "fp32":
            peaks = Peaks(session.gpu, session.gpu.sm_clock_mhz)
            roof = after_timing.fp32_roof(session.operands(job.kernel), peaks)
            stages.append(after_timing.judge(shape, us - session.calibration.offset_us, *roof))
        return stages

    def close() -> None:
        loop.leave_pool()
        if every_launch or easy:
            checker.buffers.restore()

    stated: list[str] = []
    if pool is None and used.placement == "varied":
        stated.append(ONE_PLACEMENT.format("the GPU's memory has no room for others"))
    prepared = Prepared(
        launches=loop.launches,
        harness=used,
        stated=stated,
        work=work_of(shape),
        move=None if pool is None else loop.move,
        size=(shape.flops / 2) ** (1 / 3),
        after=after,
        close=close,
    )
    return prepared


def _degradations(session: Session, job: Job, used: Harness) -> list[str]:
    """What a result must state, apart from what happened while it was measured."""
    stated = [f"{name}: {value}" for name, value in used.biased().items() if name != "gate"]
    if job.kernel != BASELINE:
        stated += session.kernel(job.kernel).remarks
    if session.is_host_function(job.kernel) and not _checks_each(used):
        stated.append(LAST_ONLY)
    if used.gate is not True:
        stated.append(UNCHECKED[used.gate])
    if unread := session.timeline.watch.reason:
        stated.append(f"clocks: throttle reasons unknown ({unread})")
    return stated


def _checks_each(used: Harness) -> bool:
    """Whether each launch gets inputs of its own and is checked: only if L2 is flushed after they were written."""
    return used.gate is True and used.inputs == "random" and used.l2 == "flush" and used.timer != "graph"


def _skipped(session: Session, job: Job, used: Harness) -> str:
    """Why the kernel can't be measured here, or only so that its launches must not be reported: where just the last
    one is checked, code that keeps something from one launch to the next can stop to compute at any launch. "" for
    none.
    """
    if job.kernel == BASELINE:
        return ""
    kernel = session.kernel(job.kernel)
    if reason := kernel.skipped or kernel.missing_on(session.gpu.arch):
        return reason
    settings = [("timer", "graph"), ("l2", "rotate")]
    here = " and ".join(f"{name} = {value}" for name, value in settings if getattr(used, name) == value)
    if not here or used.gate is not True:
        return ""
    variables = session.variables(job.kernel, job.problem)
    if not kernel.host and not variables:
        return ""
    keeps = ", ".join(variables) or "a host function"
    return (
        f"with {here} only the last launch can be checked, and {keeps} may make the others do less: take l2 = flush "
        "and timer = events"
    )
