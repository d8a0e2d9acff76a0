"""A child process, which a kernel may crash or hang: it is ended together with every process that it started.

`python -m worklog.runner.child` unpickles its order from its standard input, and answers on a pipe of its own, since a
kernel or a library may print anything on standard output. Every answer says what it `is`: "progress", "error",
"raised", or what the act names (ACTS).

No library does this: loky and concurrent.futures can't end a single running task, pebble and billiard run the caller's
__main__ again, and none of them ends what the process has started. Here a session of its own holds all of it together.
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
from worklog.runs import Progress, Stage, failed, silent

if TYPE_CHECKING:
    from worklog.kernel import Kernel

COMMAND = (sys.executable, "-P", "-m", "worklog.runner.child")
ACTS = {
    "measure": "worklog.runner.worker",
    "check": "worklog.runner.check",
}  # what can be ordered: answer() of these
START_TIMEOUT_S = (
    120.0  # until the first answer: libraries are loaded and compiled, the harness is calibrated
)
TICK_S = 0.5
STUCK_S = 10.0  # after SIGKILL, before the process counts as stuck
PRINTED = 4000  # bytes of its output that are kept
Answer = dict[str, Any]
Say = Callable[..., None]  # send an answer: what it `is`, and its words


@dataclass(frozen=True)
class Ended:
    """How a child ended. last: answer, {} for none. printed: its last output. hung_s: seconds without an answer."""

    last: Answer
    code: int
    printed: str = ""
    hung_s: float | None = None

    def __str__(self) -> str:
        """How it ended."""
        if self.hung_s is not None:
            return f"hung: no progress for {self.hung_s:.0f} s, so its process was ended"
        if self.code < 0:
            name = signal.Signals(-self.code).name
            words = signal.strsignal(-self.code)
            return f"crashed: its process ended with {name} ({words})"
        printed = (
            f", and last printed {self.printed.splitlines()[-1].strip()!r}" if self.printed else ""
        )
        return f"its process exited without an answer (exit code {self.code}){printed}"

    @property
    def kind(self) -> str:
        """What the last answer `is`, "" if there was none."""
        return str(self.last.get("is", ""))

    def error(self) -> WorklogError:
        """For a process that ended before it launched a kernel."""
        if self.kind == "error":
            error: WorklogError = self.last["type"].__new__(self.last["type"], self.last["message"])
            return error
        if self.kind == "raised":
            what = f"{self.last['what']}: a mistake in worklog or in a library that it uses"
            return WorklogError(f"{what}\n{self.last['traceback']}")
        return WorklogError(f"no kernel was launched: {self}")

    def stage(self, kernel: Kernel | None, emulated: bool = False) -> Stage:
        """The stage at which the kernel failed that ended the process. kernel: None for one of the package. emulated:
        whether the emulator runs it, too. Raises what says nothing about a kernel: a user's mistake, and a mistake of
        this package.
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
    """Run one child to its end: its answers but "progress", and last how it Ended. Close it where it isn't used up.

    progress: is called with `first` plus the steps done, and `total`, for each "progress" and twice a second in
    between. timeout_s: seconds between two answers after which the child counts as hung and is ended, once it has given
    one. stop: ends the child when another thread, or Ctrl-C, sets it. command: what to start (default: COMMAND). What
    is sent to this generator goes to the child, whose order has it as receive().

    Raises KeyboardInterrupt if it was stopped, once the child has gone and what it had answered was used; OSError if it
    can't be started; WorklogError for one that stays.
    """
    done, doing, limit_s, stop = (
        0,
        "starting",
        max(timeout_s, START_TIMEOUT_S),
        stop or threading.Event(),
    )
    last = Answer()
    hung = False
    printed = b""
    heard, answered = Pipe()
    with heard, answered, _set_by_ctrl_c(stop):
        progress(first, total, doing)
        process = subprocess.Popen(
            command or COMMAND,
            stdin=subprocess.PIPE,  # the child ends when this is closed, also by the end of this process
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[answered.fileno()],
            start_new_session=True,
            env=environment(),
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it has ended
                pickle.dump({**order, "answers": answered.fileno()}, process.stdin)
                process.stdin.flush()
            answered.close()
            since = time.monotonic()
            shown = 0.0
            pipes = list[Any]([heard, process.stdout])
            while (running := process.poll() is None) or wait(pipes, 0):
                if stop.is_set() or hung or not running:
                    end(process)  # and what it has started
                for pipe in wait(pipes, TICK_S):
                    if pipe is not heard:
                        chunk = os.read(process.stdout.fileno(), 65536)
                        printed = (printed + chunk)[-PRINTED:]
                        pipes = pipes if chunk else [known for known in pipes if known is heard]
                        continue
                    try:
                        last = heard.recv()
                    except Exception:  # its end, or noise that a kernel's process wrote there
                        pipes.remove(heard)
                        continue
                    if last["is"] == "progress":
                        done = last["done"]
                        doing = last["doing"]
                        shown = 0.0
                    else:
                        reply = yield last
                        if reply is not None:
                            heard.send(reply)
                        limit_s = timeout_s
                    since = time.monotonic()
                if (now := time.monotonic()) - shown >= TICK_S:
                    shown = now
                    progress(first + done, total, doing)
                hung = hung or now - since > limit_s
        finally:
            end(process)
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
    if stop.is_set():
        raise KeyboardInterrupt
    if words := printed.decode(errors="replace").strip():
        print(words, file=sys.stderr)
    yield Ended(last, process.returncode, words, timeout_s if hung else None)


@contextmanager
def _set_by_ctrl_c(stop: threading.Event) -> Iterator[None]:
    """In the main thread, Ctrl-C sets `stop` for a while, instead of raising wherever it comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(
            signal.SIGINT, before or signal.default_int_handler
        )  # None: of code that isn't Python's


def end(process: subprocess.Popen[bytes]) -> None:
    """Make sure that a child and what it started are gone. Raises WorklogError if it stays."""
    with suppress(
        ProcessLookupError, PermissionError
    ):  # gone; macOS gives the latter for one not yet waited for
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
    """The order, and how to answer while the context is open. An error that leaves it is an answer, too. Then the
    process exits at once, without atexit handlers and CUDA teardown.
    """
    order, say = started()
    try:
        yield order, say
    except (Exception, SystemExit) as error:  # a host function may raise anything
        known = error if isinstance(error, WorklogError) else memory_is_full(error)
        if known is not None:
            say("error", type=type(known), message=str(known))
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
    return order, lambda kind, **words: answers.send({"is": kind, **words})


if __name__ == "__main__":
    with answering() as (order, say):
        importlib.import_module(ACTS[order["do"]]).answer(order, say)
