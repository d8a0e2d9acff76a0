"""What the child process does: `python -m worklog.bench.job` carries out one order, and answers as it goes.

The order comes on standard input, and the answers leave on a pipe of their own (worklog.bench.child). The process ends
when its parent does, together with every process that it has started.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.bench.tasks import Task
from worklog.errors import GpuBusy, LaunchFailed, OutOfMemory, WorklogError
from worklog.kernel import Kernel
from worklog.problem.gemm import Shape

if TYPE_CHECKING:
    from worklog.bench.check import Checked
    from worklog.bench.session import Session
    from worklog.runs.run import Measurement
    from worklog.settings import Harness

# In the messages of CUDA, cuBLAS, CuPy and PyTorch.
GPU_IS_FULL = ("MemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "STATUS_ALLOC_FAILED", "OutOfMemoryError")


class ContextLost(Exception):
    """The last measurement lost the GPU's context: nothing can be measured after it in this process."""


class Answers:
    """The pipe to the parent: each answer is a line of JSON that says what it `is`."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        os.set_inheritable(order["answers"], False)
        self._pipe = os.fdopen(order["answers"], "wb")

    def __call__(self, kind: str, **words: Any) -> None:
        """Send one answer."""
        self._pipe.write(json.dumps({"is": kind, **words}).encode() + b"\n")
        self._pipe.flush()


Act = Callable[[Mapping[str, Any], Answers], None]


def main(acts: Mapping[str, Act] | None = None) -> None:
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


def started() -> tuple[dict[str, Any], Answers]:
    """The order, and the pipe for answers. From now on this process and its session end as soon as its parent does.

    Linux ends them with a signal that no code can catch. Elsewhere a thread does it, unless a kernel's code holds the
    interpreter's lock.
    """
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    lifeline, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([lifeline], [], [], 0)[0]:  # the parent had already gone
            os.killpg(0, signal.SIGKILL)
    else:
        threading.Thread(target=wait_for_the_end, args=(lifeline,), daemon=True).start()
    return order, Answers(order)


def wait_for_the_end(lifeline: int) -> None:
    """Wait until the parent has gone, then end this process and its session."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def memory_is_full(error: BaseException) -> OutOfMemory | None:
    """What a library's exception means, if it is about the GPU's or the host's memory."""
    words = f"{type(error).__module__}.{type(error).__name__}: {error}"
    if any(known in words for known in GPU_IS_FULL):
        return OutOfMemory(f"the GPU's memory is full ({error}): free it, or take a smaller size")
    return OutOfMemory("the host's memory is full: take a smaller size") if isinstance(error, MemoryError) else None


# ------------------------------------------------------------------------------------------------------------- measure


def measure_order(tasks: Sequence[Task], harness: Harness, user_kernels: Sequence[Kernel]) -> dict[str, Any]:
    """The order for a run."""
    return {
        "do": "measure",
        "tasks": [[t.kernel, [t.shape.m, t.shape.n, t.shape.k], dict(t.changed)] for t in tasks],
        "harness": harness.as_dict(),
        "user_kernels": [kernel.as_dict() for kernel in user_kernels],
    }


def tasks_of(order: Mapping[str, Any]) -> list[Task]:
    """The tasks of an order."""
    return [Task(kernel, Shape(*shape), tuple(changed.items())) for kernel, shape, changed in order["tasks"]]


def measure(order: Mapping[str, Any], say: Answers, make_session: Callable[..., Session] | None = None) -> None:
    """Gate and time each task. Answers: "ready" with the head of a run; then for each task "measured" with the
    measurement and its kernel's description. make_session: gets the user kernels by name (default: Session).
    """
    from worklog.bench.session import Session, attempt
    from worklog.gpu.clock_lock import switchable_clocks
    from worklog.settings import Harness

    tasks, harness = tasks_of(order), Harness(**order["harness"])
    user_kernels = {kernel.name: kernel for kernel in map(Kernel.from_dict, order["user_kernels"])}
    with alone_on_the_gpu(), switchable_clocks() as hold:
        clocks, notes = hold(harness.clocks)
        session = (make_session or Session)(user_kernels)
        harness = harness.but(clocks=clocks)
        for shape in {task.shape for task in tasks}:
            session.require_memory(shape)
        say("ready", head=session.head(harness, notes))
        finished: list[Measurement] = []
        for task in tasks:
            say("progress", done=len(finished), doing=str(task))
            finished.append(attempt(session, task, harness, finished, hold))
            description = session.describe(task.kernel)
            say("measured", number=len(finished), measurement=asdict(finished[-1]), description=description)
            try:
                session.require_idle()
            except LaunchFailed as error:
                raise ContextLost(str(error)) from error
    say("done")


@contextmanager
def alone_on_the_gpu() -> Iterator[None]:
    """Lock the GPU, if there is one, so that no other run of the same user disturbs this one. The lock goes with the
    process. Raises GpuBusy.
    """
    from worklog.gpu.device import gpu_reason

    if gpu_reason() is not None:
        yield
        return
    import cupy

    which = cupy.cuda.runtime.deviceGetPCIBusId(cupy.cuda.runtime.getDevice())
    with locked(Path(tempfile.gettempdir()) / f"worklog-{os.getuid()}-{which}.lock"):
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file. Raises GpuBusy, naming the process that holds it."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise WorklogError(f"cannot open {path}: {error.strerror}; remove it") from error
    with os.fdopen(lock, "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise GpuBusy(
                f"process {file.read().strip() or '?'} is measuring on this GPU, and two at once would disturb each "
                "other: wait for it, or cancel it"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


# --------------------------------------------------------------------------------------------------------------- check


def check(order: Mapping[str, Any], say: Answers) -> None:
    """Check a kernel. Answers: "begun" with what is known before a launch, then "checked" with the result."""
    from worklog.bench import check as bench

    checked = bench.check(
        Kernel.from_dict(order["kernel"]),
        None if order["shape"] is None else Shape(*order["shape"]),
        on=order["on"],
        seed=order["seed"],
        progress=lambda done, _, doing: say("progress", done=done, doing=doing),
        begun=lambda begun: say("begun", checked=packed(begun)),
    )
    say("checked", checked=packed(checked))


def packed(checked: Checked) -> str:
    """A result as a string."""
    return base64.b64encode(pickle.dumps(checked)).decode()


if __name__ == "__main__":
    main()
