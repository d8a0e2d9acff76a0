"""What the child process does: `python -m worklog.runner.worker` carries out one order, and answers as it goes.

The order is pickled on standard input, and the answers leave on a pipe of their own (worklog.runner.child). The process
ends when its parent does, together with every process that it has started.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import json
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from worklog.errors import CompileFailed, LaunchFailed, NoGpu, OutOfMemory, WorklogError, memory_is_full
from worklog.gpu import bus_id, gpu_reason
from worklog.gpu.clock_lock import switchable_clocks
from worklog.kernel import words_of
from worklog.runner.job import Skipped

if TYPE_CHECKING:
    from worklog.runner.check import Checked
    from worklog.runner.job import Job
    from worklog.runner.session import Prepared, Session
    from worklog.runs import Measurement
    from worklog.settings import Harness

# What CuPy, Triton and Numba raise where one combination of values can't be compiled, or needs too much of an SM.
NOT_COMPILED = ("CompileException", "NVRTCError", "CompilationError", "OutOfResources", "PTXASError", "TypingError")
TOO_SLOW_S = 20.0  # expected seconds of one measurement's samples, above which it is skipped


class ContextLost(Exception):
    """The last measurement lost the GPU's context: nothing can be measured after it in this process."""


Hold = Callable[[str], tuple[str, list[str]]]
Say = Callable[..., None]  # send an answer: what it `is`, and its words


def main(acts: Mapping[str, Callable[[Mapping[str, Any], Say], None]] | None = None) -> None:
    """Read an order, carry it out, and exit immediately, skipping atexit handlers and CUDA teardown. acts: what can be
    ordered (default: "measure" and "check"). An exception becomes the last answer.
    """
    order, say = started()
    try:
        (acts or {"measure": measure, "check": check})[order["do"]](order, say)
    except ContextLost as lost:
        say("lost", fault=str(lost))
    except (Exception, SystemExit) as error:  # a host function may raise anything
        known = error if isinstance(error, WorklogError) else memory_is_full(error)
        if known is not None:
            say("error", module=type(known).__module__, type=type(known).__qualname__, message=str(known))
        else:
            what = traceback.format_exception_only(error)[-1].strip()
            say("raised", what=what, traceback="".join(traceback.format_exception(error)))
    ctypes.CDLL(None).fflush(None)  # what kernels and native code have printed
    os._exit(0)


def started() -> tuple[dict[str, Any], Say]:
    """The order, and how to answer. From now on this process and its session end as soon as its parent does.

    Linux ends them with a signal that no code can catch. Elsewhere a thread does it, unless a kernel's code holds the
    interpreter's lock.
    """
    order: dict[str, Any] = pickle.load(sys.stdin.buffer)
    answers, lifeline = order["answers"], order["lifeline"]
    for pipe in (answers, lifeline):
        os.set_inheritable(pipe, False)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([lifeline], [], [], 0)[0]:  # the parent had already gone
            os.killpg(0, signal.SIGKILL)
    else:
        threading.Thread(target=wait_for_the_end, args=(lifeline,), daemon=True).start()

    def say(kind: str, **words: Any) -> None:
        with os.fdopen(answers, "wb", closefd=False) as pipe:
            pipe.write(json.dumps({"is": kind, **words}).encode() + b"\n")

    return order, say


def wait_for_the_end(lifeline: int) -> None:
    """Wait until the parent has gone, then end this process and its session."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def measure(order: Mapping[str, Any], say: Say, make_session: Callable[..., Session] | None = None) -> None:
    """Gate and time each of the order's jobs. Answers: "ready" with the head of a run; then for each job "measured"
    with the line of its measurement and its kernel's description. make_session: gets the user kernels by name (default:
    Session).
    """
    from worklog.runner.session import Session
    from worklog.runs.run import Run
    from worklog.runs.run_file import head_lines, line

    jobs, harness = order["jobs"], order["harness"]
    with alone_on_the_gpu(), switchable_clocks() as hold:
        clocks, notes = hold(harness.clocks)
        session = (make_session or Session)(order["user_kernels"])
        harness = harness.but(clocks=clocks)
        for shape in {job.shape for job in jobs if job.shape}:
            session.require_memory(shape)
        say("ready", head=head_lines(Run(**session.head(harness, notes))))
        session.compile_ahead(jobs)
        finished: list[Measurement] = []
        for done, job in enumerate(jobs):
            say("progress", done=done, doing=str(job))
            try:
                finished.append(attempt(session, job, harness, finished, hold))
                description = session.describe(job.kernel) if job.shape else session.kernel(job.kernel).describe(None)
                session.require_idle()
            except LaunchFailed as error:
                raise ContextLost(str(error)) from error
            say("measured", number=done + 1, line=line("measurement", finished[-1]), description=description)
    say("done")


def attempt(
    session: Session,
    job: Job,
    harness: Harness,
    earlier: Sequence[Measurement] = (),
    hold: Hold = lambda clocks: (clocks, []),
) -> Measurement:
    """Gate and time one job. A failed check, a failed launch and a skip are results too.

    earlier: measurements of this run, which show how long a large size would take. hold: holds the clocks as the job's
    setting says (worklog.gpu.clock_lock.switchable_clocks); the measurement states what was held. Raises LaunchFailed
    if the GPU's context is lost: nothing can be measured after that in this process.
    """
    used = harness.but(**dict(job.changed))
    clocks, notes = hold(used.clocks)
    if used.clocks == harness.clocks:  # the run states the notes
        notes = []
    changed = {**dict(job.changed), "clocks": clocks}
    if clocks == harness.clocks:
        del changed["clocks"]
    used, job = used.but(clocks=clocks), replace(job, changed=tuple(changed.items()))
    if job.shape is not None and (why := _too_slow(job, used, earlier)):
        return job.without_time("skipped", why)
    from worklog.runner.session import Prepared, time_prepared

    try:
        prepared = _prepare(session, job, used)
        if not isinstance(prepared, Prepared):
            return prepared
        prepared.stated[:0] = notes
        return time_prepared(session, job, prepared)
    except LaunchFailed as error:
        session.device.synchronize()  # raises again if the context is lost
        return job.without_time("failed", f"launch: {error}")
    except (Exception, SystemExit) as error:
        if job.shape is not None:
            raise
        return job.without_time(*outcome(error))


def _prepare(session: Session, job: Job, used: Harness) -> Prepared | Measurement:
    """By its kind; what a kind doesn't need isn't imported."""
    if job.shape is not None:
        from worklog.runner import product

        return product.prepare(session, job, used)
    from worklog.kernel.solution import Solution
    from worklog.runner import benchmark, solved

    if isinstance(session.kernel(job.kernel), Solution):
        return solved.prepare(session, job, used)
    return benchmark.prepare(session, job, used)


def outcome(error: BaseException) -> tuple[Literal["failed", "skipped"], str]:
    """Status and reason of a benchmark or a solution that raised this."""
    words = str(error) if isinstance(error, WorklogError) else f"raised {words_of(error)}"
    if isinstance(error, (Skipped, CompileFailed, OutOfMemory)):
        return "skipped", str(error).partition("\n")[0]
    if full := memory_is_full(error):
        return "skipped", str(full)
    if type(error).__name__ in NOT_COMPILED:
        return "skipped", f"it does not compile: {words_of(error)}"
    return "failed", words


def _too_slow(job: Job, harness: Harness, earlier: Sequence[Measurement]) -> str | None:
    """Why this would take too long, judging by the same kernel at a smaller size in this run, or None."""
    flops = job.problem.flops
    same = [m for m in earlier if m.kernel == job.kernel and not m.changed and m.us is not None]
    smaller = [m for m in same if m.problem.flops < flops]
    if not smaller:
        return None
    largest = max(smaller, key=lambda m: m.problem.flops)
    expected_s = (largest.us or 0.0) / 1e6 * flops / largest.problem.flops
    if expected_s * harness.least_samples <= TOO_SLOW_S:
        return None
    return (
        f"too slow: at the rate of size {largest.problem}, one launch takes {expected_s:.1f} s and "
        f"{harness.least_samples} samples {expected_s * harness.least_samples:.0f} s, more than {TOO_SLOW_S:.0f} s"
    )


def alone_on_the_gpu() -> AbstractContextManager[object]:
    """Lock the GPU, if there is one, so that no other run of the same user disturbs this one. Raises NoGpu."""
    if gpu_reason() is not None:
        return nullcontext()
    return locked(Path(tempfile.gettempdir()) / f"worklog-{os.getuid()}-{bus_id()}.lock")


def locked(path: Path) -> IO[str]:
    """A lock file, locked until it is closed or the process ends. Raises NoGpu, naming the process that holds it."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise WorklogError(f"cannot open {path}: {error.strerror}; remove it") from error
    file = os.fdopen(lock, "r+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        with file:
            raise NoGpu(
                f"process {file.read().strip() or '?'} is measuring on this GPU, and two at once would disturb each "
                "other: wait for it, or cancel it"
            ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def check(order: Mapping[str, Any], say: Say) -> None:
    """Check a kernel or a solution. Answers: "begun" with what is known before a launch, then "checked" with all."""
    from worklog.runner import check as checks

    checked = checks.check(
        order["what"],
        **order["how"],
        progress=lambda done, _, doing: say("progress", done=done, doing=doing),
        begun=lambda begun: say("begun", checked=packed(begun)),
    )
    say("checked", checked=packed(checked))


def packed(checked: Checked) -> str:
    """A result as a string."""
    return base64.b64encode(pickle.dumps(checked)).decode()


if __name__ == "__main__":
    main()
