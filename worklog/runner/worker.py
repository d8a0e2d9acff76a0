"""The jobs of a run in a child process: each job is checked, and timed if it passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection

from worklog.errors import (
    CompileFailed,
    LaunchFailed,
    OutOfMemory,
    Skipped,
    WorklogError,
    memory_is_full,
    message_and_place,
)
from worklog.gpu.clocks import Clocks
from worklog.harness import Harness
from worklog.runner.job import Job
from worklog.runner.messages import (
    Done,
    Measured,
    MeasureOrder,
    NextJob,
    Progressed,
    Started,
    Waiting,
)
from worklog.runner.prepare import prepare
from worklog.runner.prepared import measure_prepared
from worklog.runner.session import Session, alone_on_the_gpu
from worklog.runs import Measurement, Run, line

# CuPy, Triton and Numba raise these if a combination of values doesn't compile, or needs too much
# of an SM.
NOT_COMPILED = (
    "CompileException",
    "NVRTCError",
    "CompilationError",
    "OutOfResources",
    "PTXASError",
    "TypingError",
)


def answer(
    order: MeasureOrder, pipe: Connection, make_session: Callable[..., Session] = Session
) -> None:
    """Check and time each job of the order.

    Answers Started, then Measured for each job. If the order has no jobs, answers Waiting, and
    receives a NextJob.

    make_session: gets the user kernels by name
    """
    harness = order.harness
    with alone_on_the_gpu(), Clocks() as gpu_clocks:
        clocks, notes = gpu_clocks.hold(harness.clocks)
        session = make_session(order.user_kernels)
        harness = harness.but(clocks=clocks)
        known_jobs = order.jobs or []
        for point in {job.point for job in known_jobs}:
            session.require_memory(point)
        pipe.send(Started(Run(**session.head(harness, notes)).head_lines()))
        session.compile_ahead(known_jobs)
        jobs = _received(session, pipe) if order.jobs is None else known_jobs
        for finished, job in enumerate(jobs):
            pipe.send(Progressed(finished, str(job)))
            requested = dict(job.changed).get("clocks", harness.clocks)
            clocks, notes = gpu_clocks.hold(requested)
            m = measure_job(
                session,
                _with_clocks(job, clocks, harness),
                harness,
                [] if requested == harness.clocks else notes,
            )
            # Raises LaunchFailed if the GPU's context is lost: nothing can be measured after it.
            session.require_idle()
            pipe.send(Measured(line("measurement", m), session.describe(job.kernel)))
    pipe.send(Done())


def _with_clocks(job: Job, clocks: str, harness: Harness) -> Job:
    """Return the job with the setting of the clocks that is in effect, which its result states."""
    changed = {**dict(job.changed), "clocks": clocks}
    if clocks == harness.clocks:
        del changed["clocks"]
    return replace(job, changed=tuple(changed.items()))


def _received(session: Session, pipe: Connection) -> Iterator[Job]:
    """Yield jobs as the parent sends them.

    A kernel's name must always be of the same kernel. Raises OutOfMemory.
    """
    while True:
        pipe.send(Waiting())
        message: NextJob = pipe.recv()
        session.user_kernels.update(message.user_kernels)
        session.require_memory(message.job.point)
        yield message.job


def measure_job(
    session: Session, job: Job, harness: Harness, notes: Sequence[str] = ()
) -> Measurement:
    """Check and time a job.

    A failed check, a failed launch and a skip are also results.

    notes: on the clocks, for the result

    Raises LaunchFailed if the GPU's context is lost, and what only a mistake of this package
    raises.
    """
    try:
        prepared = prepare(session, job, harness, notes)
        job = prepared.job  # which names the baselines that a benchmark itself has
        return measure_prepared(session, prepared)
    except LaunchFailed as error:
        session.device.synchronize()  # raises again if the context is lost
        return job.without_time("failed", f"launch: {error}")
    except Skipped as skipped:
        return job.without_time("skipped", str(skipped).partition("\n")[0])
    except (Exception, SystemExit) as error:
        if job.point.is_product:
            raise
        return _without_time(job, error)  # a benchmark or a Python function may raise anything


def _without_time(job: Job, error: BaseException) -> Measurement:
    """Return the measurement of a benchmark or a solution that raised an error."""
    missing = error if isinstance(error, (CompileFailed, OutOfMemory)) else memory_is_full(error)
    if missing is not None:
        return job.without_time("skipped", str(missing).partition("\n")[0])
    if type(error).__name__ in NOT_COMPILED:
        return job.without_time("skipped", f"it does not compile: {message_and_place(error)}")
    reason = str(error) if isinstance(error, WorklogError) else f"raised {message_and_place(error)}"
    return job.without_time("failed", reason)
