"""Gate, then time, a matrix product on one GPU. A `Session` holds what is made once and used for a whole run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.errors import LaunchFailed, OutOfMemory
from worklog.gate import SEED_BITS, SgemmChecker, Stage, Verdict, after_timing
from worklog.gate import timed as timed_stage
from worklog.gpu import Peaks, clocks_as_requested, gpu, require_gpu, software, tool
from worklog.harness import ONE_PLACEMENT, Harness, Launch, Reading, input_sets, off_the_lock, time_in_turn
from worklog.harness.launch import blocked
from worklog.kernel import RUNGS, Kernel, Subject, rung, tensor_operands
from worklog.kernel.nvrtc import compile_cuda, nvrtc_version
from worklog.problem import Shape, random_inputs
from worklog.runner.launches import LEAST_TIMES_BUFFERS, Loop, Pool, elements
from worklog.runner.tasks import BASELINE, Task, judged, timed, work_of
from worklog.runs import Measurement, estimate_of, event_overhead_us, source_label

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice
    from worklog.harness.calibration import Calibration
    from worklog.harness.cuda_timeline import CudaTimeline

LEFT_S = 10.0  # for work that a kernel left on the GPU
IDLE_LAUNCHES = 9
UNCHECKED: dict[bool | str, str] = {
    False: "gate: off, the result may be wrong",
    "article": "gate: the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}
LAST_ONLY = "gate: only the last timed launch was checked, on inputs that the host function has seen before"


class Session:
    """A GPU made ready: the device, the calibrated harness, compiled kernels, and the checker of the present shape.

    user_kernels: by name, host functions too. calibration: of the harness on this GPU (default: calibrate now). Raises
    NoGpu.
    """

    def __init__(
        self, user_kernels: Mapping[str, Kernel] | None = None, calibration: Calibration | None = None
    ) -> None:
        require_gpu()  # first: without a driver, CuPy's libraries do not even import
        from worklog.gpu.cuda import Cublas, CudaDevice
        from worklog.harness.calibration import calibrate
        from worklog.harness.cuda_timeline import CudaTimeline

        self.gpu = gpu()
        self.device: CudaDevice = CudaDevice()
        self.timeline: CudaTimeline = CudaTimeline(self.device)
        self.calibration: Calibration = calibration or calibrate(self.timeline)
        self.baselines: dict[str, Subject] = {math: Cublas(self.device, math) for math in ("fp32", "tf32")}
        self.user_kernels = {} if user_kernels is None else user_kernels  # the caller may add to it
        self._subjects: dict[str, Subject] = {BASELINE: self.baselines["fp32"]}
        self._checkers: dict[Shape, SgemmChecker] = {}
        self._verdicts: dict[tuple[str, Shape, bool | str], Verdict] = {}

    def kernel(self, name: str) -> Kernel:
        """The record of that name. Raises BadSetting."""
        return self.user_kernels.get(name) or rung(name)

    def subject(self, name: str) -> Subject:
        """The kernel of that name, compiled once. Raises BadSetting or CompileFailed."""
        if name not in self._subjects:
            self._subjects[name] = self.kernel(name).load(self.device)
        return self._subjects[name]

    def compile_ahead(self, tasks: Sequence[Task]) -> None:
        """Compile the tasks' rungs at once, each in its own process. An error is reported where a rung is measured."""
        named = [(rung(task.kernel), task.problem) for task in tasks if task.kernel in (known.name for known in RUNGS)]
        programs = {one.program for kernel, shape in named for one in kernel.at(shape, self.gpu.arch).passes}
        with ThreadPoolExecutor() as pool:
            for program in programs:
                pool.submit(compile_cuda, program, self.gpu.arch)

    _pool: Pool | None = None

    def pool(self, elements: int) -> Pool | None:
        """A pool for buffers of `elements` float32 in total, kept for the next loop; None where memory is too short."""
        if self._pool is None or self._pool.elements < elements * LEAST_TIMES_BUFFERS:
            self._pool = None  # first, so that its memory is free
            self._pool = Pool.to_hold(self.device, elements)
        return self._pool

    def checker(self, shape: Shape) -> SgemmChecker:
        """The checker of a shape; the last shape's is dropped, since its matrices fill memory. Raises OutOfMemory."""
        if shape not in self._checkers:
            self._checkers.clear()
            self._pool = None  # the checker of a large shape may need its memory,
            self.device.empty_cache()  # and CuPy can't give back a block after it has given a part of it away
            try:
                self._checkers[shape] = SgemmChecker(self.device, shape, secrets.randbits(SEED_BITS))
            except MemoryError as error:
                raise OutOfMemory(f"size {shape} does not fit the host's memory: take a smaller one") from error
        return self._checkers[shape]

    def require_memory(self, shape: Shape) -> None:
        """Raise OutOfMemory, before anything is measured, for a shape that cannot fit the GPU."""
        needed = shape.compulsory_bytes + 4 * shape.m * shape.n  # A, B and C, and a C of the baseline's own
        free = self.device.free_bytes()
        if needed > free:
            raise OutOfMemory(
                f"size {shape} needs {needed / 1e9:.1f} GB on the GPU, which has {free / 1e9:.1f} GB free: "
                "take a smaller size"
            )

    def claimed(self, name: str) -> str:
        """The precision class that the kernel must have at least."""
        return "fp32" if name == BASELINE else self.kernel(name).claimed

    def verdict(self, name: str, shape: Shape, gate: bool | str = True) -> Verdict:
        """The gate's verdict on a kernel at a shape, found once; with gate "article", by the article's rule."""
        if (name, shape, gate) not in self._verdicts:
            subject, checker = self.subject(name), self.checker(shape)
            if gate == "article":
                found = checker.check_by_article(subject)
            else:
                tensor = None if self.is_host_function(name) else bool(_operands(self, name))
                found = checker.check(subject, self.claimed(name), tensor)
            self._verdicts[name, shape, gate] = found
        return self._verdicts[name, shape, gate]

    def is_host_function(self, name: str) -> bool:
        """Whether the kernel launches its work itself, maybe on streams of its own."""
        return name in self.user_kernels and self.user_kernels[name].host is not None

    def head(self, harness: Harness, notes: Sequence[str]) -> dict[str, Any]:
        """The head of a run file. notes: what could not be done as the harness says."""
        cublas: str = self.baselines["fp32"].version  # type: ignore[attr-defined]
        return {
            "device": self.gpu.as_dict(),
            "harness": harness.as_dict(),
            "tool": tool(),
            "software": {**software(), "nvrtc": ".".join(map(str, nvrtc_version())), "cublas": cublas},
            "calibration": self.calibration.as_dict(),
            "notes": [*notes, *self.calibration.remarks],
        }

    def describe(self, name: str) -> dict[str, Any]:
        """A kernel's source, tile and resources, for a run file."""
        if name == BASELINE:
            return {"library": "cuBLAS", "domain": str(self.subject(name).domain)}
        kernel = self.kernel(name)
        return kernel.describe(None if kernel.skipped else self.subject(name))

    def require_idle(self) -> None:
        """Wait for all work on the GPU. Raises LaunchFailed, also for work that does not end."""
        if not self.device.idle(LEFT_S):
            raise LaunchFailed(f"work that it started is still on the GPU after {LEFT_S:.0f} s")


def calibrated(clocks: str) -> tuple[Calibration, str, list[str]]:
    """The harness's calibration on this GPU under a `clocks` setting; its label and remarks. Raises NoGpu."""
    with clocks_as_requested(clocks) as (held, notes):
        found = Session().calibration
    if off := off_the_lock(held, found.sm_mhz):
        held, notes = "watched", [*notes, off]
    return found, source_label("live", gpu().name, held, datetime.now(UTC).isoformat()), notes


def measurements(session: Session, task: Task, used: Harness, notes: Sequence[str]) -> list[Measurement]:
    """Gate and time a kernel at a shape. A baseline that fails the gate has no time; the others have."""
    if reason := _skipped(session, task, used):
        return task.without_time("skipped", reason)
    found = dict(zip(task.baselines, task.without_time("measured"), strict=True))
    right, verdict = [*task.baselines], None
    if used.gate:
        verdicts = {name: session.verdict(name, task.problem, used.gate) for name in task.baselines}
        right = [name for name in right if verdicts[name].accepted]
        found = {name: judged(one, verdicts[name], f"the baseline {name} ") for name, one in found.items()}
        verdict = session.verdict(task.kernel, task.problem, used.gate)
        if not verdict.accepted:
            return task.refused(verdict)
    if right:
        reading, stages = read(session, task, used, right)
        if verdict is not None:
            verdict = replace(verdict, stages=(*verdict.stages, *stages))
            if not verdict.accepted:
                return task.refused(verdict)
        read_us = estimate_of(reading.counted("subject"), used.statistic).value
        if read_us <= event_overhead_us(used.as_dict(), session.calibration.as_dict()):
            return task.without_time("refused", "failed at plausible: the time is not above zero")
        blanks, stated = [found[name] for name in right], [*notes, *_degradations(session, task, used)]
        measured = timed(blanks, reading, used, session, stated, **work_of(task.problem))
        for name, one in zip(right, measured, strict=True):
            found[name] = one if verdict is None else judged(one, _after(session, used, one, verdict))
    return [*found.values()]


def _after(session: Session, used: Harness, found: Measurement, verdict: Verdict) -> Verdict:
    """The verdict with the stage on the time: against one baseline, by an unbiased harness."""
    if used.biased():
        return verdict
    # Other classes may run where the peak is another.
    if session.claimed(found.kernel) == "fp32" and found.us is not None:
        roof = after_timing.fp32_roof(_operands(session, found.kernel), Peaks(session.gpu, session.gpu.sm_clock_mhz))
        verdict = verdict.and_then(after_timing.judge(found.problem, found.us, *roof))
    return verdict


def _operands(session: Session, name: str) -> tuple[str, ...]:
    """Types that the kernel's code gives to tensor cores. A host function's code isn't known: each type."""
    if name == BASELINE:  # in FP32, without tensor cores
        return ()
    if session.is_host_function(name):
        return tuple(after_timing.SIGNIFICANT_BITS)
    return tensor_operands(compile_cuda(one.program, session.gpu.arch) for one in session.kernel(name).passes)


def _degradations(session: Session, task: Task, used: Harness) -> list[str]:
    """What a result must state, apart from what happened while it was measured."""
    stated = [f"{name}: {value}" for name, value in used.biased().items() if name != "gate"]
    if task.kernel != BASELINE:
        stated += session.kernel(task.kernel).remarks
    if session.is_host_function(task.kernel) and not _checks_each(used):
        stated.append(LAST_ONLY)
    if used.gate is not True:
        stated.append(UNCHECKED[used.gate])
    if unread := session.timeline.watch.reason:
        stated.append(f"clocks: throttle reasons unknown ({unread})")
    return stated


def _checks_each(used: Harness) -> bool:
    """Whether each launch gets inputs of its own and is checked: only if L2 is flushed after they were written."""
    return used.gate is True and used.inputs == "random" and used.l2 == "flush" and used.timer != "graph"


def _skipped(session: Session, task: Task, used: Harness) -> str | None:
    """Why the kernel can't be measured here, or only so that its launches must not be reported: where just the last
    one is checked, code that keeps something from one launch to the next can stop to compute at any launch.
    """
    if task.kernel == BASELINE:
        return None
    kernel = session.kernel(task.kernel)
    if reason := kernel.skipped or kernel.missing_on(session.gpu.arch):
        return reason
    settings = [("timer", "graph"), ("l2", "rotate")]
    here = " and ".join(f"{name} = {value}" for name, value in settings if getattr(used, name) == value)
    if not here or used.gate is not True:
        return None
    variables = _variables(session, task.kernel, task.problem)
    if not kernel.host and not variables:
        return None
    keeps = ", ".join(variables) or "a host function"
    return (
        f"with {here} only the last launch can be checked, and {keeps} may make the others do less: take l2 = flush "
        "and timer = events"
    )


def _variables(session: Session, name: str, shape: Shape) -> list[str]:
    """What a kernel's code can keep from one launch to the next; [] for cuBLAS and host functions: it isn't known."""
    if name == BASELINE or session.is_host_function(name):
        return []
    kernel, arch = session.kernel(name).at(shape, session.gpu.arch), session.gpu.arch
    return [*dict.fromkeys(known for part in kernel.passes for known in compile_cuda(part.program, arch).variables)]


def read(
    session: Session, task: Task, used: Harness, names: Sequence[str] = (BASELINE,)
) -> tuple[Reading, list[Stage]]:
    """Time the task's kernel against the baselines of these names in the checker's buffers; also the gate's stages on
    what was timed.

    If L2 is flushed before each launch, each launch gets inputs of its own and is checked. Otherwise new inputs would
    warm the L2 that the launch should find cold, and only the output of the last launch is checked.
    """
    checker = session.checker(task.problem)
    easy, checked = used.inputs != "random", used.gate is True and used.inputs == "random"
    if easy:
        hosts = random_inputs(task.problem, np.random.default_rng(0), used.inputs)
        for buffer, host in zip(checker.buffers.abc[:2], hosts, strict=True):
            session.device.overwrite(buffer, host)
    checker.buffers.poison()
    subject = session.subject(task.kernel)
    if used.warmup == "none" and task.kernel != BASELINE:  # so that the next launch is its first
        subject = session.kernel(task.kernel).load(session.device, fresh=True)
    library = session.baselines[used.baseline]
    baselines = [library if name == BASELINE else session.subject(name) for name in names]
    classes = [used.baseline if name == BASELINE else session.claimed(name) for name in names]
    each = _checks_each(used)
    sets = input_sets(task.problem.compulsory_bytes, session.timeline.l2_bytes) if used.l2 == "rotate" else 1
    pool = session.pool(elements(task.problem, sets, (subject, *baselines))) if used.placement == "varied" else None
    sides = zip((task.kernel, *names), (subject, *baselines), strict=True)
    staying = [loaded for name, loaded in sides if _variables(session, name, task.problem)]
    loop = Loop(
        checker,
        (subject, *baselines),
        in_step=used.order == "interleaved" and used.timer != "graph",
        sets=sets,
        classes=(session.claimed(task.kernel), *classes) if each else None,
        warm=used.warmup != "none",
        pool=pool,
        staying=staying,
    )
    try:
        size = (task.problem.flops / 2) ** (1 / 3)
        offset = event_overhead_us(used.as_dict(), session.calibration.as_dict())
        move = None if pool is None else loop.move
        reading = time_in_turn(session.timeline, loop.launches, used, size=size, offset_us=offset, move=move)
        reading.kernels = [one.kernels(task.problem) for one in (subject, *baselines)]
        if pool is None and used.placement == "varied":
            reading.degradations.append(ONE_PLACEMENT.format("the GPU's memory has no room for others"))
        stages = [timed_stage(loop.stage)] if checked else []
        if checked and session.is_host_function(task.kernel):
            us = estimate_of(reading.counted("subject"), used.statistic).value
            stages.append(timed_stage(lambda: idle_after(session, loop.bare[0], used.queues, us)))
        return reading, stages
    finally:
        loop.leave_pool()
        if each or easy:
            checker.buffers.restore()


def idle_after(session: Session, launch: Launch, queued: bool, us: float) -> Stage:
    """Whether the whole GPU is idle when a launch of `us` microseconds has ended on the harness's stream. queued:
    whether it may be enqueued behind a blocking kernel. Without one, a fast GPU may finish unjoined work before the
    wait begins. On a busy host every wait is long, so it is compared with the wait after an empty kernel.
    """

    def wait_us(one: Launch) -> float:
        with blocked(session.timeline) if queued else nullcontext():
            one()
        session.timeline.synchronize()
        ended = session.timeline.host_us()
        session.device.synchronize_all()
        return session.timeline.host_us() - ended

    empty = partial(session.timeline.spin, 0)
    return after_timing.idle([wait_us(launch) - wait_us(empty) for _ in range(IDLE_LAUNCHES)], us)
