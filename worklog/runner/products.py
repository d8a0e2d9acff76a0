"""Prepares a matrix product: the gate's verdict, and a loop in buffers of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from worklog.errors import Skipped
from worklog.gate import check_plausible, fp32_roof, timed
from worklog.harness import ONE_PLACEMENT, Harness, LoopResult, cross_check, input_sets
from worklog.kernel import Runnable
from worklog.problem import FLOAT_BYTES, SGEMM, Shape
from worklog.runner.job import Job
from worklog.runner.launches import Loop, elements
from worklog.runner.prepared import Prepared
from worklog.runner.session import Session
from worklog.runs import CUBLAS, Roof, Stage, Work
from worklog.runs.effects import BF16_DATASHEET_TFLOPS

GATES: dict[bool | str, str] = {
    False: "gate: off, the result may be wrong",
    "article": "gate: the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}
LAST_ONLY = (
    "gate: only the last timed launch was checked, on inputs that the host function has seen before"
)


def work_of(shape: Shape) -> Work:
    """Return the work of a matrix product.

    As in NVBench, elements are those of the inputs A and B.
    """
    case = SGEMM.of(shape)
    read, written = SGEMM.get_bytes(case)
    return Work(SGEMM.get_flops(case), read // FLOAT_BYTES, read, written)


def prepare_product(session: Session, job: Job, harness: Harness, notes: Sequence[str]) -> Prepared:
    """Prepare a matrix product.

    A baseline that fails the gate isn't timed, which the result states.

    notes: on the clocks, for the result

    Raises Skipped for a kernel that can't be checked under this harness.
    """
    loaded = session.load(job.kernel)
    shape = job.shape
    _require_checkable(loaded, shape, harness)
    degradations = [*notes, *_biases(session, loaded, harness)]
    baselines = _accepted_baselines(session, job, harness, degradations)
    work = work_of(shape)
    verdict = None
    if harness.gate:
        verdict = session.verdict(job.kernel, shape, harness.gate)
        if not verdict.accepted:
            return Prepared(job, harness, work, degradations, verdict)
    loop = loop_of(session, job, harness, baselines)
    if loop.pool is None and harness.placement == "varied":
        degradations.append(ONE_PLACEMENT.format("the GPU's memory has no room for others"))

    def check(reading: LoopResult) -> list[Stage]:
        us = reading.us(harness.statistic)
        return _check_timed(session, loop, harness, us=us, degradations=degradations)

    options = {
        "size": (shape.flops / 2) ** (1 / 3),
        "move": loop.move if loop.pool else None,
        "offset_us": session.overhead_us(harness),
    }
    return Prepared(
        job,
        harness,
        work,
        degradations,
        verdict,
        loop.launches,
        check,
        context=closing(loop),
        loop_options=options,
        roof=lambda peaks: Roof(_peak_tflops(peaks, harness)),
    )


def _peak_tflops(peaks: Mapping[str, float], harness: Harness) -> float:
    """Return the TFLOP/s that the harness compares with."""
    return peaks["fp32"] if harness.roof == "fp32" else BF16_DATASHEET_TFLOPS


def _biases(session: Session, loaded: Runnable, harness: Harness) -> list[str]:
    """Return what biases a product's result, known before its baselines are checked."""
    biased = harness.biased().items()
    texts = [f"{name}: {value}" for name, value in biased if name != "gate"]
    texts += loaded.remarks
    if loaded.uses_streams and not _checks_each(harness):
        texts.append(LAST_ONLY)
    if harness.gate is not True:
        texts.append(GATES[harness.gate])
    unread = session.timeline.watch.reason
    if unread:
        texts.append(f"clocks: throttle reasons unknown ({unread})")
    return texts


def _check_timed(
    session: Session, loop: Loop, harness: Harness, *, us: float, degradations: list[str]
) -> list[Stage]:
    """Return the gate's stages on a loop that was timed.

    us: the measured microseconds of the kernel
    degradations: get disagreements with the wall clock

    Raises OutOfBoundsWrite.
    """
    kernel = loop.bare[0].kernel
    shape = loop.checker.shape
    offset_us = session.calibration.offset_us
    stages = list[Stage]()
    if loop.checked:
        stages.append(timed(loop.stage))
    if loop.checked and kernel.uses_streams:
        launch = loop.launches[0].launch
        stages.append(timed(lambda: session.idle_after(launch, harness.queues, us)))
        if not harness.biased():
            launch_us = session.calibration.launch_us
            degradations += cross_check(session.timeline, launch, offset_us, launch_us)[1]
    # Kernels of another class may run on units with another peak.
    if harness.gate and not harness.biased() and kernel.claimed == "fp32":
        roof = fp32_roof(kernel.operands(shape), session.peaks)
        stages.append(check_plausible(shape, us - offset_us, *roof))
    return stages


def _accepted_baselines(
    session: Session, job: Job, harness: Harness, degradations: list[str]
) -> list[str]:
    """Return the baselines that pass the gate, and state why the others don't."""
    if not harness.gate:
        return [*job.against]
    names = []
    for name in job.against:
        verdict = session.verdict(name, job.shape, harness.gate)
        if verdict.accepted:
            names.append(name)
        else:
            degradations.append(f"the baseline {name} failed at {verdict.reason}")
    return names


def _require_checkable(loaded: Runnable, shape: Shape, harness: Harness) -> None:
    """Raise Skipped if the kernel can stop computing in a launch that isn't checked.

    Code that keeps state between launches can do so.
    """
    settings = []
    if harness.timer == "graph":
        settings.append("timer = graph")
    if harness.l2 == "rotate":
        settings.append("l2 = rotate")
    if not settings or harness.gate is not True:
        return
    state = loaded.state(shape)
    if state:
        raise Skipped(
            f"with {' and '.join(settings)} only the last launch can be checked, and {state} may "
            "make the others do "
            "less: take l2 = flush and timer = events"
        )


def loop_of(session: Session, job: Job, harness: Harness, names: Sequence[str]) -> Loop:
    """Return a loop of the job's kernel and its baselines, in the checker's buffers.

    If L2 is flushed before each launch, each launch gets new inputs and is checked. Otherwise new
    inputs would warm the L2 that the launch should find cold, and only the output of the last
    launch is checked.

    names: of the baselines
    """
    shape = job.shape
    kernel = session.load(job.kernel)
    library = session.baselines[harness.baseline]
    if harness.warmup == "none" and job.kernel != CUBLAS:  # so that the next launch is its first
        kernel = session.kernel(job.kernel).load(session.device, fresh=True)
    kernels = [kernel, *(library if name == CUBLAS else session.load(name) for name in names)]
    sets = 1
    if harness.l2 == "rotate":
        sets = input_sets(shape.compulsory_bytes, session.timeline.l2_bytes)
    checker = session.checker(shape)
    pool = None
    if harness.placement == "varied":
        pool = session.pool(elements(shape, sets, kernels))
    return Loop(
        checker,
        kernels,
        (job.kernel, *names),
        in_step=harness.order == "interleaved" and harness.timer != "graph",
        sets=sets,
        checked=harness.gate is True and harness.inputs == "random",
        probed=_checks_each(harness),
        inputs=harness.inputs,
        warm=harness.warmup != "none",
        pool=pool,
    )


def _checks_each(harness: Harness) -> bool:
    """Return whether each launch gets new inputs and is checked.

    This is only possible if L2 is flushed after the inputs were written.
    """
    return (
        harness.gate is True
        and harness.inputs == "random"
        and harness.l2 == "flush"
        and harness.timer != "graph"
    )
