"""A child process, which a kernel may crash or hang.

It is ended together with every process that it started. `python -m worklog.runner.child` unpickles
its order from its standard input. It answers on another pipe, since a kernel or a library may print
anything on standard output. worklog.runner.messages has the order and the answers.

No library does this: loky and concurrent.futures can't end a single running task, pebble and
billiard run the caller's __main__ again, and none of them ends the processes that the task has
started. Here they all belong to a new session.
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
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from worklog.errors import LaunchFailed, OutOfMemory, WorklogError, memory_is_full
from worklog.gpu.device import environment
from worklog.runner.messages import (
    CheckOrder,
    Done,
    MeasureOrder,
    Message,
    Mistake,
    Order,
    Progressed,
    Raised,
)
from worklog.runs import Stage, failed
from worklog.runs.text import Progress, silent

if TYPE_CHECKING:
    from worklog.kernel import Kernel

COMMAND = (sys.executable, "-P", "-m", "worklog.runner.child")
# Where answer() carries out an order.
MODULES: dict[type[Order], str] = {
    MeasureOrder: "worklog.runner.worker",
    CheckOrder: "worklog.runner.check",
}
# Until the first answer: libraries are loaded and compiled, and the harness is calibrated.
START_TIMEOUT_S = 120.0
TICK_S = 0.5
STUCK_S = 10.0  # after SIGKILL, before the process counts as stuck
PRINTED = 4000  # bytes of the child's output that are kept


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    last: Message | None  # None: it never answered
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
    def is_done(self) -> bool:
        """Whether it has carried out its order."""
        return isinstance(self.last, Done)

    def error(self) -> WorklogError:
        """Return the error of a process that ended before it launched a kernel."""
        if isinstance(self.last, Mistake):
            # Not by its constructor, which may take other arguments than the message.
            return self.last.kind.__new__(self.last.kind, self.last.message)
        if isinstance(self.last, Raised):
            message = f"{self.last.summary}: a mistake in worklog or in a library that it uses"
            return WorklogError(f"{message}\n{self.last.traceback}")
        return WorklogError(f"no kernel was launched: {self}")

    def stage(self, kernel: Kernel | None, emulated: bool = False) -> Stage:
        """Return the failed stage of the kernel that ended the process.

        kernel: None for a kernel of the package
        emulated: whether the emulator also runs the kernel

        Raises the child's error if it isn't the kernel's: a user's mistake, or a mistake of this
        package.
        """
        advice = "" if emulated else "; run it with `worklog check --emulate`: it names the line"
        if kernel is not None and kernel.host is not None:
            advice = "; call it alone in Python"
        if not isinstance(self.last, Mistake | Raised):
            return failed("process", f"{self}{advice}")
        if isinstance(self.last, Raised) and kernel is not None:
            return failed("process", f"raised {self.last.summary}{advice}")
        error = self.error()
        if isinstance(error, OutOfMemory):
            return failed("memory", str(error))
        if isinstance(error, LaunchFailed):
            return failed("launch", f"{error}{advice}")
        raise error


def run_child(
    order: Order,
    progress: Progress = silent,
    *,
    timeout_s: float,
    first: int = 0,
    total: int = 0,
    stop: threading.Event | None = None,
    command: Sequence[str] | None = None,
) -> Generator[Any, Any]:
    """Run a child to its end. Yield its answers but Progressed, and last how it Ended.

    Close the generator if it isn't exhausted. What is sent to the generator goes to the child.

    progress: called with `first` plus the finished steps, and `total`, for each Progressed and
        twice a second in between
    timeout_s: seconds between two answers after which the child counts as hung and is ended, once
        it has answered
    stop: ends the child when another thread, or Ctrl-C, sets it
    command: what to start (default: COMMAND)

    Raises KeyboardInterrupt if the child was stopped, once it has ended and its answers were used;
    OSError if it can't be started; WorklogError if it can't be ended.
    """
    stop = stop or threading.Event()
    answers, child_answers = Pipe()
    with answers, child_answers, _set_by_ctrl_c(stop):
        progress(first, total, "starting")
        with _process(order, child_answers, command or COMMAND) as process:
            child = _Conversation(process, answers, timeout_s)
            while child.goes_on():
                if stop.is_set() or child.is_hung or process.poll() is not None:
                    end(process)  # and what it has started
                yield from _pass_on(child.received(), answers)
                if child.shows_progress():
                    progress(first + child.steps, total, child.title)
    if stop.is_set():
        raise KeyboardInterrupt
    output = child.printed.decode(errors="replace").strip()
    if output:
        print(output, file=sys.stderr)
    yield Ended(child.last, process.returncode, output, timeout_s if child.is_hung else None)


def _pass_on(messages: Iterable[Any], answers: Connection) -> Generator[Any, Any]:
    """Yield messages but Progressed, and send the child what is sent to the generator."""
    for message in messages:
        if isinstance(message, Progressed):
            continue
        reply = yield message
        if reply is not None:
            answers.send(reply)


@contextmanager
def _process(
    order: Order, child_answers: Connection, command: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child with its order, and end it and what it has started when the context ends.

    child_answers: the child's end of the pipe, which is closed here
    """
    process = subprocess.Popen(
        command,
        # The child ends when this is closed, also by the end of this process.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[child_answers.fileno()],
        start_new_session=True,
        env=environment(),
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it has ended
            pickle.dump((order, child_answers.fileno()), process.stdin)
            process.stdin.flush()
        child_answers.close()
        yield process
    finally:
        end(process)
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()


class _Conversation:
    """What a child answers and prints, and for how long it has been silent."""

    def __init__(
        self, process: subprocess.Popen[bytes], answers: Connection, timeout_s: float
    ) -> None:
        self.steps = 0
        self.title = "starting"
        self.last: Message | None = None
        self.printed = b""
        self.is_hung = False
        self._process = process
        self._answers = answers
        self._output = process.stdout
        self._pipes = list[Any]([answers, process.stdout])
        self._timeout_s = timeout_s
        self._limit_s = max(timeout_s, START_TIMEOUT_S)
        self._answered_s = time.monotonic()
        self._shown_s = 0.0

    def goes_on(self) -> bool:
        """Return whether the child runs, or has left something in a pipe."""
        return self._process.poll() is None or bool(wait(self._pipes, 0))

    def received(self) -> Iterator[Message]:
        """Wait for TICK_S at most, and yield the answers that have come."""
        for pipe in wait(self._pipes, TICK_S):
            if pipe is not self._answers:
                self._read_output()
                continue
            try:
                message = self._answers.recv()
            except Exception:  # its end, or noise that a kernel's process wrote there
                self._pipes.remove(self._answers)
                continue
            self.last = message
            if isinstance(message, Progressed):
                self.steps = message.finished
                self.title = message.title
                self._shown_s = 0.0
            yield message
            if not isinstance(message, Progressed):
                self._limit_s = self._timeout_s
            self._answered_s = time.monotonic()

    def _read_output(self) -> None:
        """Read what the child has printed. At its end, its pipe isn't waited for any longer."""
        assert self._output is not None
        chunk = os.read(self._output.fileno(), 65536)
        self.printed = (self.printed + chunk)[-PRINTED:]
        if not chunk:
            self._pipes.remove(self._output)

    def shows_progress(self) -> bool:
        """Return whether to show the progress now.

        Notice a child that has been silent too long.
        """
        now_s = time.monotonic()
        is_due = now_s - self._shown_s >= TICK_S
        if is_due:
            self._shown_s = now_s
        if now_s - self._answered_s > self._limit_s:
            self.is_hung = True
        return is_due


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
            f"process {process.pid} was killed and is still there after {STUCK_S:.0f} s: the "
            "GPU's driver holds it; "
            "look with nvidia-smi, and restart the machine if it stays"
        ) from error


# ------------------------------------------------------------------------------------- in the child


@contextmanager
def answering() -> Iterator[tuple[Any, Connection]]:
    """Yield the order, and the pipe for answers while the context is open.

    An error that leaves the context is also an answer. Then the process exits immediately, without
    atexit handlers and CUDA teardown.
    """
    order, pipe = started()
    try:
        yield order, pipe
    except (Exception, SystemExit) as error:  # a host function may raise anything
        user_error = error if isinstance(error, WorklogError) else memory_is_full(error)
        if user_error is not None:
            pipe.send(Mistake(type(user_error), str(user_error)))
        else:
            summary = traceback.format_exception_only(error)[-1].strip()
            pipe.send(Raised(summary, "".join(traceback.format_exception(error))))
    ctypes.CDLL(None).fflush(None)  # what kernels and native code have printed
    os._exit(0)


def started() -> tuple[Any, Connection]:
    """Return the order, and the pipe for answers, on which further orders come.

    From now on Linux ends this process and its session as soon as the parent has ended, with a
    signal that no code can catch. On other systems they end by themselves, since there is no GPU to
    hold.
    """
    order, answers = pickle.load(sys.stdin.buffer)
    lifeline = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # a kernel's process that reads its input doesn't wait for it
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([lifeline], [], [], 0)[0]:  # the parent had already gone
            os.killpg(0, signal.SIGKILL)
    return order, Connection(answers)


if __name__ == "__main__":
    with answering() as (order, pipe):
        importlib.import_module(MODULES[type(order)]).answer(order, pipe)
