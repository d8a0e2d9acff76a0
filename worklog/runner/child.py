"""A child process, which a kernel may crash or hang.

It is ended together with every process that it started. `python -m worklog.runner.child` unpickles its
order from its standard input. It answers on another pipe, since a kernel or a library may print anything
on standard output. Every answer states what it `is`: "progress", "error", "raised", or a name of the act
(ACTS).

No library does this: loky and concurrent.futures can't end a single running task, pebble and billiard
run the caller's __main__ again, and none of them ends the processes that the task has started. Here they
all belong to a new session.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from worklog.errors import LaunchFailed, OutOfMemory, WorklogError, memory_is_full
from worklog.gpu.device import environment
from worklog.runs import Stage, failed
from worklog.runs.text import Progress, silent

if TYPE_CHECKING:
    from worklog.kernel import Kernel

COMMAND = (sys.executable, "-P", "-m", "worklog.runner.child")
# What can be ordered: answer() of these modules.
ACTS = {
    "measure": "worklog.runner.worker",
    "check": "worklog.runner.check",
}
# Until the first answer: libraries are loaded and compiled, and the harness is calibrated.
START_TIMEOUT_S = 120.0
TICK_S = 0.5
STUCK_S = 10.0  # after SIGKILL, before the process counts as stuck
PRINTED = 4000  # bytes of the child's output that are kept
Answer = dict[str, Any]
Say = Callable[..., None]  # sends an answer: what it `is`, and its contents


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    last: Answer  # {} for none
    code: int  # of the process's exit
    printed: str = ""  # the last output
    hung_s: float | None = None  # seconds without an answer

    def __str__(self) -> str:
        """Describe how the child ended."""
        if self.hung_s is not None:
            return f"hung: no progress for {self.hung_s:.0f} s, so its process was ended"
        if self.code < 0:
            name = signal.Signals(-self.code).name
            description = signal.strsignal(-self.code)
            return f"crashed: its process ended with {name} ({description})"
        printed = ""
        if self.printed:
            printed = f", and last printed {self.printed.splitlines()[-1].strip()!r}"
        return f"its process exited without an answer (exit code {self.code}){printed}"

    @property
    def kind(self) -> str:
        """The kind of the last answer, "" if there was none."""
        return str(self.last.get("is", ""))

    def error(self) -> WorklogError:
        """Return the error of a process that ended before it launched a kernel."""
        if self.kind == "error":
            error: WorklogError = self.last["type"].__new__(self.last["type"], self.last["message"])
            return error
        if self.kind == "raised":
            message = f"{self.last['what']}: a mistake in worklog or in a library that it uses"
            return WorklogError(f"{message}\n{self.last['traceback']}")
        return WorklogError(f"no kernel was launched: {self}")

    def stage(self, kernel: Kernel | None, emulated: bool = False) -> Stage:
        """Return the failed stage of the kernel that ended the process.

        kernel: None for a kernel of the package
        emulated: whether the emulator also runs the kernel

        Raises the child's error if it isn't the kernel's: a user's mistake, or a mistake of this package.
        """
        advice = "" if emulated else "; run it with `worklog check --emulate`: it names the line"
        if kernel is not None and kernel.host is not None:
            advice = "; call it alone in Python"
        if self.kind not in ("error", "raised"):
            return failed("process", f"{self}{advice}")
        if self.kind == "raised" and kernel is not None:
            return failed("process", f"raised {self.last['what']}{advice}")
        error = self.error()
        if isinstance(error, OutOfMemory):
            return failed("memory", str(error))
        if isinstance(error, LaunchFailed):
            return failed("launch", f"{error}{advice}")
        raise error


def run_child(
    order: Mapping[str, Any],
    progress: Progress = silent,
    *,
    timeout_s: float,
    first: int = 0,
    total: int = 0,
    stop: threading.Event | None = None,
    command: Sequence[str] | None = None,
) -> Generator[Any, Any]:
    """Run a child to its end. Yield its answers but "progress", and last how it Ended.

    Close the generator if it isn't exhausted. What is sent to the generator goes to the child, whose order
    has receive() to get it.

    progress: called with `first` plus the finished steps, and `total`, for each "progress" and twice a
        second in between
    timeout_s: seconds between two answers after which the child counts as hung and is ended, once it has
        answered
    stop: ends the child when another thread, or Ctrl-C, sets it
    command: what to start (default: COMMAND)

    Raises KeyboardInterrupt if the child was stopped, once it has ended and its answers were used; OSError
    if it can't be started; WorklogError if it can't be ended.
    """
    steps = 0
    title = "starting"
    limit_s = max(timeout_s, START_TIMEOUT_S)
    stop = stop or threading.Event()
    last = Answer()
    hung = False
    printed = b""
    answers, child_answers = Pipe()
    with answers, child_answers, _set_by_ctrl_c(stop):
        progress(first, total, title)
        process = subprocess.Popen(
            command or COMMAND,
            stdin=subprocess.PIPE,  # the child ends when this is closed, also by the end of this process
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[child_answers.fileno()],
            start_new_session=True,
            env=environment(),
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it has ended
                pickle.dump({**order, "answers": child_answers.fileno()}, process.stdin)
                process.stdin.flush()
            child_answers.close()
            answered_s = time.monotonic()
            shown_s = 0.0
            pipes = list[Any]([answers, process.stdout])
            while (running := process.poll() is None) or wait(pipes, 0):
                if stop.is_set() or hung or not running:
                    end(process)  # and what it has started
                for pipe in wait(pipes, TICK_S):
                    if pipe is not answers:
                        chunk = os.read(process.stdout.fileno(), 65536)
                        printed = (printed + chunk)[-PRINTED:]
                        if not chunk:
                            pipes = [other for other in pipes if other is answers]
                        continue
                    try:
                        last = answers.recv()
                    except Exception:  # its end, or noise that a kernel's process wrote there
                        pipes.remove(answers)
                        continue
                    if last["is"] == "progress":
                        steps = last["done"]
                        title = last["doing"]
                        shown_s = 0.0
                    else:
                        reply = yield last
                        if reply is not None:
                            answers.send(reply)
                        limit_s = timeout_s
                    answered_s = time.monotonic()
                now_s = time.monotonic()
                if now_s - shown_s >= TICK_S:
                    shown_s = now_s
                    progress(first + steps, total, title)
                hung = hung or now_s - answered_s > limit_s
        finally:
            end(process)
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
    if stop.is_set():
        raise KeyboardInterrupt
    output = printed.decode(errors="replace").strip()
    if output:
        print(output, file=sys.stderr)
    yield Ended(last, process.returncode, output, timeout_s if hung else None)


@contextmanager
def _set_by_ctrl_c(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C in the main thread set `stop`, instead of raising at any statement."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield
    finally:
        # A handler of code that isn't Python's is None.
        signal.signal(signal.SIGINT, previous or signal.default_int_handler)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a child and the processes that it started.

    Raises WorklogError if the child can't be ended.
    """
    # It has ended; macOS raises PermissionError for a process that wasn't yet waited for.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(STUCK_S)
    except subprocess.TimeoutExpired as error:
        raise WorklogError(
            f"process {process.pid} was killed and is still there after {STUCK_S:.0f} s: the GPU's driver holds it; "
            "look with nvidia-smi, and restart the machine if it stays"
        ) from error


# ----------------------------------------------------------------------------------------------- in the child


@contextmanager
def answering() -> Iterator[tuple[dict[str, Any], Say]]:
    """Yield the order, and a function that answers while the context is open.

    An error that leaves the context is also an answer. Then the process exits immediately, without atexit
    handlers and CUDA teardown.
    """
    order, say = started()
    try:
        yield order, say
    except (Exception, SystemExit) as error:  # a host function may raise anything
        user_error = error if isinstance(error, WorklogError) else memory_is_full(error)
        if user_error is not None:
            say("error", type=type(user_error), message=str(user_error))
        else:
            summary = traceback.format_exception_only(error)[-1].strip()
            say("raised", what=summary, traceback="".join(traceback.format_exception(error)))
    ctypes.CDLL(None).fflush(None)  # what kernels and native code have printed
    os._exit(0)


def started() -> tuple[dict[str, Any], Say]:
    """Return the order, and a function that answers.

    From now on Linux ends this process and its session as soon as the parent has ended, with a signal that
    no code can catch. On other systems they end by themselves, since there is no GPU to hold.
    """
    order: dict[str, Any] = pickle.load(sys.stdin.buffer)
    answers = Connection(order["answers"])
    lifeline = os.dup(0)
    order["receive"] = answers.recv
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # a kernel's process that reads its input doesn't wait for it
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([lifeline], [], [], 0)[0]:  # the parent had already gone
            os.killpg(0, signal.SIGKILL)
    return order, lambda kind, **contents: answers.send({"is": kind, **contents})


if __name__ == "__main__":
    with answering() as (order, say):
        importlib.import_module(ACTS[order["do"]]).answer(order, say)
