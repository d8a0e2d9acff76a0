"""The orchestrator: gate, then harness, then a Run. The only module that knows them all."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import worklog
from worklog.bench.launches import alternating, rotating, witnessed
from worklog.bench.measurement import conclude
from worklog.bench.session import Session
from worklog.bench.tasks import ABLATION_SIZES, BASELINE, Size, Task, ablation_tasks, each, tasks_of
from worklog.errors import BadRunFile, BadSetting, Interrupted, LaunchFailed, NoGpu, OutsideDomain
from worklog.gate import Stage, Verdict, plausible
from worklog.gate.checker import timed
from worklog.gpu.clock_lock import clocks_as_asked
from worklog.gpu.device import gpu, gpu_reason, software, source_revision
from worklog.harness import Harness, Reading, time_pair
from worklog.harness.launchers import timed_part
from worklog.harness.timeline import Launch
from worklog.kernel.kernel import RungSubject
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Float32, Shape, random_inputs
from worklog.runs.run import Measurement, Run, forced_source, new_path, open_run
from worklog.runs.statistics import summarise

if TYPE_CHECKING:
    from worklog.kernel.user_kernel import Brought

PATIENCE_S = 20.0
IDLE_LAUNCHES = 5
GATE_LIES: dict[bool | str, str] = {
    False: "gate: off, the result may be wrong",
    "article": "gate: the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}


class Progress(Protocol):
    """Told before each step how far the work is; may raise KeyboardInterrupt to stop it."""

    def __call__(self, done: int, total: int, doing: str) -> None: ...  # noqa: D102


def _silent(done: int, total: int, doing: str) -> None:
    """No progress shown."""


def measure(
    kernels: Iterable[str | Brought] | Brought | None = None,
    sizes: Iterable[Size] | int = (4096,),
    *,
    harness: Harness | None = None,
    progress: Progress = _silent,
    out: Path | None = None,
) -> Run:
    """Gate, then time, each kernel at each size, interleaved with cuBLAS. The run is saved after every measurement.

    kernels: names of rungs, "cuBLAS" for the baseline against itself, and what you bring (worklog.kernel.user_kernel); None for
    the whole ladder and cuBLAS. One kernel or one size needs no list around it. A kernel that the gate refuses is in
    the run with its verdict and without a time. out: the run's file (default: a new one among this machine's runs).
    Raises NoGpu where there is no CUDA device, UnknownRung, OutsideDomain, BadShape.
    """
    tasks, brought = tasks_of(kernels, sizes)
    return carry_out(tasks, harness or Harness(), brought=brought, progress=progress, out=out)


def ablate(
    kernel: str,
    sizes: Iterable[Size] | int = ABLATION_SIZES,
    *,
    progress: Progress = _silent,
    out: Path | None = None,
) -> Run:
    """One kernel under the honest harness, then with each gremlin let loose alone, with the article's four, and with
    all.

    Live where there is a GPU, recorded where there is none, like results(); out is for a live run only.
    """
    tasks = ablation_tasks(kernel, [Shape.of(size) for size in each(sizes)])
    return carry_out(tasks, Harness(), progress=progress, out=out) if live_wanted() else _recorded(tasks)


def results(
    kernels: Iterable[str] | None = None,
    sizes: Iterable[Size] | int = (4096,),
    *,
    progress: Progress = _silent,
    **settings: Any,
) -> Run:
    """Live where there is a GPU, recorded where there is none: the same call everywhere; the run's label says which
    it was.

    settings: gremlins let loose, such as l2="warm". Raises BadRunFile, naming what there is, for what was never
    recorded.
    """
    tasks, _ = tasks_of(kernels, sizes, settings)
    Harness().but(**settings)
    return carry_out(tasks, Harness(), progress=progress) if live_wanted() else _recorded(tasks)


def _recorded(tasks: Sequence[Task]) -> Run:
    """The tasks' measurements from the run to look at. Raises BadRunFile, naming what there is, if one is missing."""
    for task in tasks:
        if task.kernel != BASELINE:
            rung(task.kernel).check(task.shape)
    run = open_run()
    found = [run.select(task.kernel, task.shape, task.pitfalls) for task in tasks]
    for task, there in zip(tasks, found, strict=True):
        if not there:
            same = sorted(
                {m.problem for m in run.measurements if (m.kernel, m.changed) == (task.kernel, task.pitfalls)}
            )
            known = f" (it holds sizes {', '.join(map(str, same))}): ask for those, or" if same else " at any size:"
            raise BadRunFile(f"{task} is not in the {run.origin} run{known} measure on a GPU")
    run.measurements = [measurement for there in found for measurement in there]
    return run


def live_wanted() -> bool:
    """Whether to measure: WORKLOG_SOURCE if it is set, else whether there is a GPU. Raises NoGpu if live is forced
    without one.
    """
    source = forced_source()
    if source == "live" and gpu_reason() is not None:
        raise NoGpu(
            f"WORKLOG_SOURCE=live, but there is no GPU to measure on: {gpu_reason()}; unset it to take the recording"
        )
    return source != "recorded" and gpu_reason() is None


def carry_out(
    tasks: Sequence[Task],
    harness: Harness,
    *,
    brought: Iterable[Brought] = (),
    progress: Progress = _silent,
    out: Path | None = None,
) -> Run:
    """Make each measurement in order and save the run after each. An interrupt keeps what is finished, marks the run
    and is raised again. brought: kernels of the user's own, which tasks call by their names.
    """
    own = require_measurable(tasks, harness, brought)
    with clocks_as_asked(harness.clocks) as (clocks, notes):
        return _carry_out(tasks, harness.but(clocks=clocks), own, notes, progress, out)


def require_measurable(tasks: Sequence[Task], harness: Harness, brought: Iterable[Brought] = ()) -> dict[str, Brought]:
    """Find every mistake in what was asked before anything is measured. Returns what users brought by name; raises
    BadSetting, UnknownRung, OutsideDomain.
    """
    if not tasks:
        raise BadSetting("nothing to measure: name at least one kernel and one size")
    own = _by_name(brought)
    for task in tasks:
        _require_domain(task, own)
        harness.but(**dict(task.changed))
    return own


def _by_name(brought: Iterable[Brought]) -> dict[str, Brought]:
    """Raises BadSetting for a name that is taken."""
    own: dict[str, Brought] = {}
    taken = {BASELINE, *(r.name for r in LADDER)}
    for one in brought:
        if one.name in taken:
            raise BadSetting(f"a kernel of yours is called {one.name}, as another one is: give it another name")
        taken.add(one.name)
        own[one.name] = one
    return own


def _require_domain(task: Task, own: Mapping[str, Brought]) -> None:
    """Raise UnknownRung or OutsideDomain for what cannot be measured."""
    if task.kernel in own:
        domain = own[task.kernel].domain
        if task.shape not in domain:
            raise OutsideDomain(
                f"size {task.shape} is outside the domain stated for {task.kernel} ({domain}): "
                f"pad to {domain.padded(task.shape)}"
            )
    elif task.kernel != BASELINE:
        rung(task.kernel).check(task.shape)


def _carry_out(
    tasks: Sequence[Task],
    harness: Harness,
    own: Mapping[str, Brought],
    notes: list[str],
    progress: Progress,
    out: Path | None,
) -> Run:
    """The tasks, under clocks that are as the harness says."""
    session = Session(own)
    for shape in {task.shape for task in tasks}:
        session.require_memory(shape)
    run = Run(
        device=gpu().as_dict(),
        harness=harness.as_dict(),
        tool=tool(),
        software={**software(), "cublas": session.baselines["fp32"].version},  # type: ignore[attr-defined]
        calibration=session.calibration.as_dict(),
        notes=[*notes, *session.calibration.remarks],
    )
    path = out or new_path(run.device["name"], run.created, secrets.token_hex(2))
    try:
        for index, task in enumerate(tasks):
            progress(index, len(tasks), str(task))
            measurement = attempt(session, task, harness, run)
            run.add(measurement)
            _describe(run, session, task.kernel)
            run.complete = index == len(tasks) - 1
            run.save(path)
    except KeyboardInterrupt as interrupt:
        if not run.measurements:
            raise Interrupted("interrupted before the first measurement: nothing is saved") from interrupt
        kept = f"{len(run.measurements)} of {len(tasks)} measurements are kept in {run.save(path)}"
        raise Interrupted(f"interrupted: {kept}") from interrupt
    progress(len(tasks), len(tasks), "done")
    return run


def tool() -> dict[str, Any]:
    """Name, version and source revision of this package."""
    return {"name": "gemm-worklog", "version": worklog.__version__, **source_revision()}


def _describe(run: Run, session: Session, name: str) -> None:
    """Note a kernel's source, tile and resources in the run, once."""
    if name in run.kernels:
        return
    subject = session.subject(name)
    if name in session.brought:
        run.kernels[name] = session.brought[name].describe(subject)
    elif isinstance(subject, RungSubject):
        resources, program = subject.kernel.resources, subject.program
        run.kernels[name] = {
            "file": program.name,
            "sha256": program.sha256,
            "entry": program.entry,
            "options": list(program.options),
            "tile": dict(subject.rung.tile),
            "block": subject.rung.block,
            "domain": str(subject.domain),
            "idea": subject.rung.idea,
            "registers": resources.registers,
            "local_bytes": resources.local_bytes,
            "shared_bytes": resources.shared_bytes,
        }
    else:
        run.kernels[name] = {"library": "cuBLAS", "domain": str(subject.domain)}


def attempt(session: Session, task: Task, harness: Harness, run: Run) -> Measurement:
    """One measurement, as each of a run is made. A launch that fails refuses its kernel, and ends the run if it took
    the GPU's context along.
    """
    shape = (task.shape.m, task.shape.n, task.shape.k)
    try:
        return _measurement(session, task, harness, run)
    except LaunchFailed as error:
        session.device.synchronize()  # raises again where the context is lost: nothing after it could be measured
        return Measurement(task.kernel, shape, "refused", reason=f"launch: {error}", changed=task.pitfalls)


def _measurement(session: Session, task: Task, harness: Harness, run: Run) -> Measurement:
    """Gate and time one task; a refusal or a skip is a result too."""
    used = harness.but(**dict(task.changed))
    shape = (task.shape.m, task.shape.n, task.shape.k)
    common: dict[str, Any] = {"kernel": task.kernel, "shape": shape, "changed": task.pitfalls}
    too_slow = _too_slow(task, used, run)
    if too_slow:
        return Measurement(**common, status="skipped", reason=too_slow)
    verdict: Verdict | None = None
    if used.gate:
        for name in dict.fromkeys((BASELINE, task.kernel)):
            verdict = session.verdict(name, task.shape, used.gate)
            if not verdict.accepted:
                return _refused(common, verdict, "" if name == task.kernel else f"the baseline {name} was ")
    reading, timed = _time(session, task, used)
    if verdict is not None:
        verdict = replace(verdict, stages=(*verdict.stages, *timed))
    if verdict is not None and not verdict.accepted:
        return _refused(common, verdict)
    if summarise(reading.counted("subject"), used.statistic).value <= used.taken_off(session.calibration.offset_us):
        return Measurement(**common, status="refused", reason="refused at plausible: the time is not above zero")
    degradations = _degradations(session, task, used, looked_at_each=_looks_at_each(used))
    concluded = conclude(common, used, reading, session.calibration, verdict, degradations)
    if verdict is None or concluded.us is None or used.biased():
        return concluded
    if session.claimed(task.kernel) == "fp32":  # the others may run where the peak is another
        verdict = verdict.and_then(plausible.judge(task.shape, concluded.us, gpu().fp32_peak_tflops))
    ours, theirs = reading.clocks("subject"), reading.clocks("baseline")
    if ours and theirs and used.l2 == "flush":
        verdict = verdict.and_then(
            plausible.second_clock(ours, theirs, own_streams=session.is_host_function(task.kernel))
        )
    return replace(concluded, verdict=verdict.as_dict()) if verdict.accepted else _refused(common, verdict)


def _degradations(session: Session, task: Task, used: Harness, looked_at_each: bool) -> list[str]:
    """What must be said of a reading, apart from what happened while it was taken."""
    said = [f"{name}: {value}" for name, value in used.biased().items() if name != "gate"]
    remarks = getattr(session.brought.get(task.kernel), "remarks", ())
    said += remarks
    if remarks and not looked_at_each:
        said.append("gate: only the last timed launch was checked, on inputs that the host function has seen before")
    if used.gate is not True:
        said.append(GATE_LIES[used.gate])
    if not session.timeline.watch.available:
        said.append(f"clocks: throttle reasons unknown ({session.timeline.watch.reason})")
    return said


def _looks_at_each(used: Harness) -> bool:
    """Whether each launch is timed on inputs of its own: where L2 is flushed after they were written."""
    judged = used.gate is True and used.inputs == "random"
    return judged and used.l2 == "flush" and used.timer != "graph"


def _refused(common: dict[str, Any], verdict: Verdict, whose: str = "") -> Measurement:
    reason = f"{whose}refused at {verdict.reason}"
    return Measurement(**common, status="refused", reason=reason, verdict=verdict.as_dict())


def _time(session: Session, task: Task, used: Harness) -> tuple[Reading, list[Stage]]:
    """Time the task's kernel against the baseline in the exam's buffers; also the gate's stages on what was timed.

    Where L2 is flushed before each launch, each gets inputs of its own and is looked at. Otherwise new inputs would
    warm what it should find cold, and the gate looks at what the last launch left.
    """
    exam = session.exam(task.shape)
    easy, judged = used.inputs != "random", used.gate is True and used.inputs == "random"
    if easy:
        _load(session, exam.buffers[:2], random_inputs(task.shape, np.random.default_rng(0), used.inputs))
    exam.poison()
    subject = session.subject(task.kernel) if used.warmup != "none" else session.never_launched(task.kernel)
    reference = session.baselines[used.baseline]
    in_step = used.order == "interleaved" and used.timer != "graph"
    each = _looks_at_each(used)
    if each:
        classes = session.claimed(task.kernel), used.baseline
        loop = witnessed(exam, subject, reference, in_step, classes, warm=used.warmup != "none")
    elif used.l2 == "rotate":
        loop = rotating(exam, subject, reference, in_step, session.device, session.timeline.l2_bytes)
    else:
        loop = alternating(exam, subject, reference, in_step)
    try:
        size = (task.shape.flops / 2) ** (1 / 3)
        offset = used.taken_off(session.calibration.offset_us)
        reading = time_pair(session.timeline, loop.subject, loop.baseline, used, size=size, offset_us=offset)
        stages = [timed(ask) for ask in loop.stages] if judged else []
        if judged and session.is_host_function(task.kernel):
            us = summarise(reading.counted("subject"), used.statistic).value
            stages.append(timed(lambda: plausible.idle(_waits_us(session, timed_part(loop.subject)), us)))
        return reading, stages
    finally:
        if each or easy:
            exam.restore()


def _waits_us(session: Session, launch: Launch) -> list[float]:
    """Of some launches, microseconds from the end of the harness's stream to the end of all work on the GPU."""
    waits = []
    for _ in range(IDLE_LAUNCHES):
        launch()
        session.device.synchronize()
        ended = session.timeline.host_us()
        session.device.synchronize_all()
        waits.append(session.timeline.host_us() - ended)
    return waits


def _load(session: Session, buffers: Iterable[Any], hosts: Iterable[Float32]) -> None:
    for buffer, host in zip(buffers, hosts, strict=True):
        session.device.overwrite(buffer, host)


def _too_slow(task: Task, harness: Harness, run: Run) -> str | None:
    """Why this would take too long, judged from the same kernel at a smaller size in this run, or None."""
    smaller = [m for m in run.select(task.kernel) if m.us is not None and m.problem.flops < task.shape.flops]
    if not smaller:
        return None
    largest = max(smaller, key=lambda m: m.problem.flops)
    expected_s = (largest.us or 0.0) / 1e6 * task.shape.flops / largest.problem.flops
    if expected_s * harness.least_samples <= PATIENCE_S:
        return None
    return (
        f"too slow: at the rate of size {largest.problem}, one launch takes {expected_s:.1f} s and "
        f"{harness.least_samples} samples {expected_s * harness.least_samples:.0f} s, more than {PATIENCE_S:.0f} s"
    )
