"""Prepares a matrix product: the gate's verdict, and a loop in buffers of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from worklog.errors import Skipped
from worklog.gate import BY_NORM, beyond_product, check_plausible, fp32_roof, timed
from worklog.harness import ONE_PLACEMENT, Harness, LoopResult, cross_check
from worklog.kernel import Runnable
from worklog.kernel.operands import RESIDUAL
from worklog.problem import Shape
from worklog.problem.epilogues import NONE
from worklog.problem.formats import SINGLE, Types
from worklog.runner.algorithms import choose
from worklog.runner.job import Job, algorithms_of
from worklog.runner.launches import Loop, checks_each, loop_on
from worklog.runner.prepared import Prepared
from worklog.runner.session import Session
from worklog.runs import CUBLAS, Choice, Roof, Stage, Work
from worklog.runs.effects import BF16_DATASHEET_TFLOPS

GATES: dict[bool | str, str] = {
    False: "gate: off, the result may be wrong",
    "article": "gate: the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}
LAST_ONLY = (
    "gate: only the last timed launch was checked, on inputs that the host function has seen before"
)
RESIDUAL_STAYS = (
    "with l2 = rotate, launches alternate between copies of A, B and C, and the residual isn't "
    "copied: take l2 = flush"
)
ONE_RESIDUAL = "each product of a batch needs a residual, and there is one: omit the batch"


def work_of(shape: Shape, types: Types = SINGLE) -> Work:
    """Return the work of a matrix product, or of all of a batch, with beta = 0.

    As in NVBench, elements are those of the inputs A and B.
    """
    a_bytes, b_bytes, c_bytes = types.nbytes(shape.elements)
    return Work(shape.flops, sum(shape.elements[:2]), a_bytes + b_bytes, c_bytes)


def prepare_product(session: Session, job: Job, harness: Harness, notes: Sequence[str]) -> Prepared:
    """Prepare a matrix product.

    A baseline that fails the gate isn't timed, which the result states. Libraries compute the
    product alone: what a kernel does beyond it, they don't.

    notes: on the clocks, for the result

    Raises Skipped for a kernel that can't be checked under this harness.
    """
    session.types = types_for(job.kernel, job.types)
    loaded = session.load(job.kernel)
    shape = job.shape
    _require_checkable(loaded, shape, harness)
    degradations = [*notes, *_biases(session, loaded, harness)]
    work = work_of(shape, job.types)
    verdict = None
    if harness.gate:
        verdict = session.verdict(job.kernel, shape, harness.gate)
        if not verdict.accepted:
            return Prepared(job, harness, work, degradations, verdict)
    session.types = product_types(job.types)
    choices = _chosen_algorithms(session, job, harness, degradations)
    baselines = _accepted_baselines(session, job, harness, choices, degradations)
    loop = loop_of(session, job, harness, baselines)
    operands = loop.operands.get(loop.bare[0].kernel)
    if operands is not None:
        work = replace(work, bytes_read=(work.bytes_read or 0) + operands.nbytes)
    if loop.pool is None and harness.placement == "varied":
        degradations.append(ONE_PLACEMENT.format("the GPU's memory has no room for others"))

    def check(reading: LoopResult) -> list[Stage]:
        us = reading.us(harness.statistic)
        return _check_timed(session, loop, harness, us=us, degradations=degradations)

    return Prepared(
        job,
        harness,
        work,
        degradations,
        verdict,
        loop.launches,
        check,
        context=closing(loop),
        loop_options=loop.options(session.overhead_us(harness)),
        roof=lambda peaks: _roof(peaks, harness, job.types),
        choices=choices,
        beyond=beyond_product(loaded),
    )


def product_types(types: Types) -> Types:
    """Return the formats of the product alone, without an activation."""
    return replace(types, epilogue=NONE)


def types_for(name: str, types: Types) -> Types:
    """Return the formats of a kernel in a job of these formats.

    A library computes the product alone.
    """
    is_library = name == CUBLAS or algorithms_of(name) is not None
    return product_types(types) if is_library else types


def _roof(peaks: Mapping[str, float], harness: Harness, types: Types) -> Roof:
    """Return the peak that the harness compares with.

    Matrices of 16 bits have that of tensor cores, where it is known.
    """
    if harness.roof != "fp32":
        return Roof(BF16_DATASHEET_TFLOPS)
    datapath = datapath_of(types)
    if datapath in peaks:
        return Roof(peaks[datapath], datapath)
    return Roof(peaks["fp32"])


def datapath_of(types: Types) -> str:
    """Return the tensor cores' datapath for 16 bits and int8; "" for other factors.

    int8 has the rate of FP8 (data sheets of L40S, H100 and HGX B200, dense).
    """
    datapaths = {"float16": "fp16", "bfloat16": "bf16", "int8": "fp8"}
    return datapaths.get(types.a.name, "") if types.a == types.b else ""


def _biases(session: Session, loaded: Runnable, harness: Harness) -> list[str]:
    """Return what biases a product's result, known before its baselines are checked."""
    biased = harness.biased().items()
    texts = [f"{name}: {value}" for name, value in biased if name != "gate"]
    texts += loaded.remarks
    if loaded.uses_streams and not checks_each(harness):
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
    datapath = datapath_of(session.types)
    if harness.gate and not harness.biased() and datapath in session.peaks:
        in_words = f"{datapath} on tensor cores"
        peak = session.peaks[datapath]
        stages.append(check_plausible(shape, us - offset_us, peak, in_words))
    elif session.types.has_integers:
        return stages  # a GPU whose rate of integers isn't known
    elif harness.gate and not harness.biased() and kernel.claimed in ("fp32", BY_NORM):
        peak, in_words = fp32_roof(kernel.operands(shape), session.peaks, kernel.claimed)
        stages.append(check_plausible(shape, us - offset_us, peak, in_words))
    return stages


def _chosen_algorithms(
    session: Session, job: Job, harness: Harness, degradations: list[str]
) -> dict[str, Choice]:
    """Return the algorithms of the baselines that have several, and state which are left out."""
    choices = {}
    for name in job.against:
        if algorithms_of(name) is None:
            continue
        choice, remarks = choose(session, name, job.shape, harness)
        degradations += [f"the baseline {name}: {remark}" for remark in remarks]
        if choice is not None:
            choices[name] = choice
    return choices


def _accepted_baselines(
    session: Session,
    job: Job,
    harness: Harness,
    choices: Mapping[str, Choice],
    degradations: list[str],
) -> list[str]:
    """Return the baselines that pass the gate, and state why the others don't.

    choices: the algorithms that were chosen; a baseline without one can't be timed
    """
    timeable = [name for name in job.against if name in choices or algorithms_of(name) is None]
    if not harness.gate:
        return timeable
    names = []
    for name in timeable:
        session.types = types_for(name, job.types)
        verdict = session.verdict(name, job.shape, harness.gate)
        if verdict.accepted:
            names.append(name)
        else:
            degradations.append(f"the baseline {name} failed at {verdict.reason}")
    session.types = product_types(job.types)
    return names


def _require_checkable(loaded: Runnable, shape: Shape, harness: Harness) -> None:
    """Raise Skipped for a kernel that can't be timed as this harness does.

    Code that keeps state between launches can stop computing in a launch that isn't checked. A
    residual is one matrix.
    """
    if RESIDUAL in beyond_product(loaded):
        if shape.batch > 1:
            raise Skipped(ONE_RESIDUAL)
        if harness.l2 == "rotate":
            raise Skipped(RESIDUAL_STAYS)
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
    """Return a loop of the job's kernel and its baselines.

    names: of the baselines
    """
    kernel = session.load(job.kernel)
    library = session.baseline(harness.baseline)
    if harness.warmup == "none" and job.kernel != CUBLAS:  # so that the next launch is its first
        kernel = session.kernel(job.kernel).load(session.device, fresh=True)
    kernels = [kernel, *(library if name == CUBLAS else session.load(name) for name in names)]
    return loop_on(session, job.shape, harness, kernels=kernels, names=(job.kernel, *names))
