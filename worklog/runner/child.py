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


class Child:
    """A process that carries out an order, and a context that ends it. timeout_s: seconds between two answers after
    which it counts as hung and is ended, once it has given one. command: what to start (default: COMMAND). Raises
    OSError if it can't be started.

    hung: whether it was. last: the last answer, {} before the first. printed: the last of its output.
    """

    def __init__(self, order: Mapping[str, Any], timeout_s: float, command: Sequence[str] | None = None) -> None:
        self.timeout_s, self.hung, self.last, self.printed = timeout_s, False, Answer(), ""
        self._heard, answers = Pipe(duplex=False)
        with answers:
            self._process = subprocess.Popen(
                command or COMMAND,
                stdin=subprocess.PIPE,  # it ends when this is closed, also by the end of this process
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[answers.fileno()],
                start_new_session=True,
                env=environment(),
            )
            assert self._process.stdin is not None
            try:
                with suppress(BrokenPipeError):  # it has ended
                    pickle.dump({**order, "answers": answers.fileno()}, self._process.stdin)
                    self._process.stdin.flush()
            except BaseException:  # an interrupt too
                self.__exit__()
                raise

    @property
    def pid(self) -> int:
        """The process's id, and that of its session."""
        return self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for pipe in (self._heard, self._process.stdout, self._process.stdin):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]

    def run(
        self,
        take: Callable[[Answer], None],
        progress: Progress,
        first: int = 0,
        total: int = 0,
        stop: threading.Event | None = None,
    ) -> None:
        """Wait until the process has gone. Here Ctrl-C is handled for everything that runs in a child.

        take: gets each answer but "progress", after an interrupt the one that was being taken again. progress: is
        called with `first` plus the steps done, and `total`, for each "progress" and twice a second in between. stop:
        ends the process when another thread sets it. Raises KeyboardInterrupt then or after Ctrl-C, once it has gone
        and take() has got what it had answered; what take() and progress() raise; WorklogError for one that stays.
        """
        done, doing, limit_s, printed = 0, "starting", max(self.timeout_s, START_TIMEOUT_S), b""
        heard, shown, interrupt = time.monotonic(), 0.0, False
        answers, pipes, running = list[Answer](), [self._heard, self._process.stdout], True
        while running or answers or wait(pipes, 0):  # type: ignore[arg-type]
            try:
                if running and self._process.poll() is not None:
                    running = False
                    self.end()  # what it has started
                for pipe in wait(pipes, TICK_S if running and not answers else 0):  # type: ignore[arg-type]
                    if pipe is not self._heard:
                        chunk = os.read(pipe.fileno(), 65536)  # type: ignore[union-attr]
                        printed = (printed + chunk)[-PRINTED:]
                        pipes = pipes if chunk else [self._heard]
                        continue
                    try:
                        answers.append(self._heard.recv())
                    except Exception:  # its end, or noise that a kernel's process wrote there
                        pipes.remove(self._heard)
                for answer in answers[:]:
                    self.last = answer
                    if answer["is"] == "progress":
                        done, doing, shown = answer["done"], answer["doing"], 0.0
                    else:
                        take(answer)
                        limit_s = self.timeout_s
                    answers.remove(answer)
                    heard = time.monotonic()
                if running and stop is not None and stop.is_set():
                    raise KeyboardInterrupt
                if (now := time.monotonic()) - shown >= TICK_S:
                    shown = now
                    progress(first + done, total, doing)
                if running and now - heard > limit_s:
                    self.hung = True
                    self.end()
            except KeyboardInterrupt:
                interrupt = True
                self.end()
        if interrupt:
            raise KeyboardInterrupt
        self.printed = printed.decode(errors="replace").strip()
        if self.printed:
            print(self.printed, file=sys.stderr)

    def end(self) -> None:
        """Make sure that the process and what it started are gone. Raises WorklogError if it stays."""
        with suppress(ProcessLookupError, PermissionError):  # gone; macOS gives the latter for one not yet waited for
            os.killpg(self.pid, signal.SIGKILL)
        try:
            self._process.wait(STUCK_S)
        except subprocess.TimeoutExpired as error:
            raise WorklogError(
                f"process {self.pid} was killed and is still there after {STUCK_S:.0f} s: the GPU's driver holds it; "
                "look with nvidia-smi, and restart the machine if it stays"
            ) from error

    def __str__(self) -> str:
        """How it ended."""
        code = self._process.returncode
        if self.hung:
            return f"hung: no progress for {self.timeout_s:.0f} s, so its process was ended"
        if code < 0:
            return f"crashed: its process ended with {signal.Signals(-code).name} ({signal.strsignal(-code)})"
        printed = f", and last printed {self.printed.splitlines()[-1].strip()!r}" if self.printed else ""
        return f"its process exited without an answer (exit code {code}){printed}"

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
