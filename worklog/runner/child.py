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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

from worklog.errors import LaunchFailed, OutOfMemory, WorklogError, memory_is_full
from worklog.gate import failed
from worklog.gpu.device import visible_to_a_child
from worklog.runner.job import Progress
from worklog.runs.verdict import Stage

if TYPE_CHECKING:
    from worklog.kernel import Kernel

COMMAND = (sys.executable, "-P", "-m", "worklog.runner.child")
ACTS = {"measure": "worklog.runner.worker", "check": "worklog.runner.check"}  # what can be ordered: answer() of these
START_TIMEOUT_S = 120.0  # until the first answer: libraries are loaded and compiled, the harness is calibrated
TICK_S = 0.5
STUCK_S = 10.0  # after SIGKILL, before the process counts as stuck
PRINTED = 4000  # bytes of its output that are kept
Answer = dict[str, Any]
Say = Callable[..., None]  # send an answer: what it `is`, and its words


def run_child(
    order: Mapping[str, Any],
    take: Callable[[Answer], None],
    progress: Progress,
    *,
    timeout_s: float,
    first: int = 0,
    total: int = 0,
    stop: threading.Event | None = None,
    command: Sequence[str] | None = None,
) -> Ended:
    """Run one child to its end. Here Ctrl-C is handled for everything that runs in a child.

    take: gets each answer but "progress", after an interrupt the one that was being taken again. progress: is called
    with `first` plus the steps done, and `total`, for each "progress" and twice a second in between. timeout_s: seconds
    between two answers after which the child counts as hung and is ended, once it has given one. stop: ends the child
    when another thread sets it. command: what to start (default: COMMAND).

    Raises KeyboardInterrupt then or after Ctrl-C, once the child has gone and take() has got what it had answered; what
    take() and progress() raise; OSError if it can't be started; WorklogError for one that stays.
    """
    done, doing, limit_s, printed = 0, "starting", max(timeout_s, START_TIMEOUT_S), b""
    progress(first, total, doing)
    heard, answered = Pipe(duplex=False)
    answers, last, hung, interrupted = list[Answer](), Answer(), False, False
    with heard, answered:
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
            since, shown, running = time.monotonic(), 0.0, True
            pipes: list[Any] = [heard, process.stdout]
            while running or answers or wait(pipes, 0):
                try:
                    if running and process.poll() is not None:
                        running = False
                        end(process)  # what it has started
                    for pipe in wait(pipes, TICK_S if running and not answers else 0):
                        if pipe is not heard:
                            chunk = os.read(process.stdout.fileno(), 65536)
                            printed = (printed + chunk)[-PRINTED:]
                            pipes = pipes if chunk else [heard]
                            continue
                        try:
                            answers.append(heard.recv())
                        except Exception:  # its end, or noise that a kernel's process wrote there
                            pipes.remove(heard)
                    for answer in answers[:]:
                        last = answer
                        if answer["is"] == "progress":
                            done, doing, shown = answer["done"], answer["doing"], 0.0
                        else:
                            take(answer)
                            limit_s = timeout_s
                        answers.remove(answer)
                        since = time.monotonic()
                    if running and stop is not None and stop.is_set():
                        raise KeyboardInterrupt
                    if (now := time.monotonic()) - shown >= TICK_S:
                        shown = now
                        progress(first + done, total, doing)
                    if running and now - since > limit_s:
                        hung = True
                        end(process)
                except KeyboardInterrupt:
                    interrupted = True
                    end(process)
        finally:
            end(process)
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
    if interrupted:
        raise KeyboardInterrupt
    words = printed.decode(errors="replace").strip()
    if words:
        print(words, file=sys.stderr)
    return Ended(last, process.returncode, words, timeout_s if hung else None)


def end(process: subprocess.Popen[bytes]) -> None:
    """Make sure that a child and what it started are gone. Raises WorklogError if it stays."""
    with suppress(ProcessLookupError, PermissionError):  # gone; macOS gives the latter for one not yet waited for
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(STUCK_S)
    except subprocess.TimeoutExpired as error:
        raise WorklogError(
            f"process {process.pid} was killed and is still there after {STUCK_S:.0f} s: the GPU's driver holds it; "
            "look with nvidia-smi, and restart the machine if it stays"
        ) from error


@dataclass(frozen=True)
class Ended:
    """How a child ended. last: its last answer, {} if there was none. printed: the last of its output. hung_s: the
    seconds without an answer after which it was ended, if it was.
    """

    last: Answer
    code: int
    printed: str = ""
    hung_s: float | None = None

    def __str__(self) -> str:
        """How it ended."""
        if self.hung_s is not None:
            return f"hung: no progress for {self.hung_s:.0f} s, so its process was ended"
        if self.code < 0:
            name, words = signal.Signals(-self.code).name, signal.strsignal(-self.code)
            return f"crashed: its process ended with {name} ({words})"
        printed = f", and last printed {self.printed.splitlines()[-1].strip()!r}" if self.printed else ""
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

    def stage(self, kernel: Kernel | None) -> Stage:
        """The stage at which the kernel failed that ended the process. kernel: None for one of the package. Raises what
        says nothing about a kernel: a user's mistake, and a mistake of this package.
        """
        if self.kind not in ("error", "raised"):
            return failed("process", f"{self}; {advice(kernel)}")
        if self.kind == "raised" and kernel is not None:
            return failed("process", f"raised {self.last['what']}; {advice(kernel)}")
        error = self.error()
        if isinstance(error, OutOfMemory):
            return failed("memory", str(error))
        if isinstance(error, LaunchFailed):
            return failed("launch", f"{error}; {advice(kernel)}")
        raise error


def environment() -> dict[str, str]:
    """For a child: this process's, with its import path, and the one GPU that it has chosen."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    visible = visible_to_a_child()
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": visible}


def advice(kernel: Kernel | None) -> str:
    """What to do about a kernel that ended its process."""
    is_source = kernel is None or kernel.host is None
    return "run it with `worklog check --emulate`: it names the line" if is_source else "call it alone in Python"


# ----------------------------------------------------------------------------------------------- in the child


def main(acts: Mapping[str, Callable[[Mapping[str, Any], Say], None]] | None = None) -> None:
    """Read an order, carry it out, and exit immediately, skipping atexit handlers and CUDA teardown. acts: what can be
    ordered (default: ACTS). An exception becomes the last answer.
    """
    order, say = started()
    try:
        act = acts[order["do"]] if acts else importlib.import_module(ACTS[order["do"]]).answer
        act(order, say)
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
    os.set_inheritable(order["answers"], False)
    answers, lifeline = Connection(order["answers"], readable=False), os.dup(0)
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
    main()
