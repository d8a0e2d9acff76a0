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
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from worklog.errors import NoGpu, WorklogError, memory_is_full
from worklog.gpu.clock_lock import switchable_clocks
from worklog.gpu.device import bus_id, gpu_reason

if TYPE_CHECKING:
    from worklog.runner.check import Checked
    from worklog.runner.session import Session
    from worklog.runs import Measurement


Say = Callable[..., None]  # send an answer: what it `is`, and its words


def main(acts: Mapping[str, Callable[[Mapping[str, Any], Say], None]] | None = None) -> None:
    """Read an order, carry it out, and exit immediately, skipping atexit handlers and CUDA teardown. acts: what can be
    ordered (default: "measure" and "check"). An exception becomes the last answer.
    """
    order, say = started()
    try:
        (acts or {"measure": measure, "check": check})[order["do"]](order, say)
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
    """The order, and how to answer. From now on Linux ends this process and its session as soon as its parent has gone,
    with a signal that no code can catch. Elsewhere they end by themselves: there is no GPU to hold.
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

    def say(kind: str, **words: Any) -> None:
        with os.fdopen(answers, "wb", closefd=False) as pipe:
            pipe.write(json.dumps({"is": kind, **words}).encode() + b"\n")

    return order, say


def measure(order: Mapping[str, Any], say: Say, make_session: Callable[..., Session] | None = None) -> None:
    """Gate and time each of the order's jobs. Answers: "ready" with the head of a run; then for each job "measured"
    with the line of its measurement and its kernel's description. make_session: gets the user kernels by name (default:
    Session).
    """
    from worklog.runner.prepare import measure_job
    from worklog.runner.session import Session
    from worklog.runs.record import line
    from worklog.runs.run import Run

    jobs, harness = order["jobs"], order["harness"]
    with alone_on_the_gpu(), switchable_clocks() as hold:
        clocks, notes = hold(harness.clocks)
        session = (make_session or Session)(order["user_kernels"])
        harness = harness.but(clocks=clocks)
        for shape in {job.shape for job in jobs if job.shape}:
            session.require_memory(shape)
        say("ready", head=Run(**session.head(harness, notes)).head_lines())
        session.compile_ahead(jobs)
        finished: list[Measurement] = []
        for done, job in enumerate(jobs):
            say("progress", done=done, doing=str(job))
            finished.append(measure_job(session, job, harness, finished, hold))
            session.require_idle()  # LaunchFailed: the GPU's context is lost, and nothing can be measured after it
            words = {"line": line("measurement", finished[-1]), "description": session.describe(job.kernel)}
            say("measured", number=done + 1, **words)
    say("done")


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
