"""A child process, which a kernel may crash or hang: it is ended together with every process that it started.

`python -m worklog.runner.child` unpickles its order from its standard input, and answers in lines of JSON on a pipe of
its own, since a kernel or a library may print anything on standard output. Every answer says what it `is`: "progress",
"error", "raised", or what the act names (ACTS).

No library does this: loky and concurrent.futures can't end a single running task, pebble and billiard run the caller's
__main__ again, and none of them ends what the process has started. Here a session of its own holds all of it together.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import json
import os
import pickle
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from worklog.errors import LaunchFailed, OutOfMemory, WorklogError, memory_is_full
from worklog.gate import failed
from worklog.gpu.device import visible_to_a_child
from worklog.runner.job import Progress
from worklog.runs.verdict import Stage

if TYPE_CHECKING:
    from worklog.kernel import Kernel

COMMAND = (sys.executable, "-P", "-m", "worklog.runner.child")
ACTS = {"measure": "worklog.runner.prepare", "check": "worklog.runner.check"}  # what can be ordered: answer() of these
START_TIMEOUT_S = 120.0  # until the first answer: libraries are loaded and compiled, the harness is calibrated
TICK_S = 0.5
STUCK_S = 10.0  # after SIGKILL, before the process counts as stuck
LEFTOVERS_S = 1.0  # for pipes that a process outside the session still holds open
PRINTED = 4000  # bytes of its output that are kept
Answer = dict[str, Any]
Say = Callable[..., None]  # send an answer: what it `is`, and its words


class Child:
    """A process that carries out an order, and a context that ends it. order: gets the numbers of the pipe for answers,
    and of one that is closed when this process ends. timeout_s: seconds without an answer after which the child counts
    as hung and is ended. Raises OSError if it can't be started.

    hung: whether it was. last: the last answer, {} before the first.
    """

    def __init__(self, command: Sequence[str], order: Mapping[str, Any], timeout_s: float) -> None:
        self.timeout_s, self.hung = timeout_s, False
        self.last: Answer = {}
        self._answered, self._printed = bytearray(), b""
        heard, answers = os.pipe()
        lifeline, held = os.pipe()
        self._heard, self._held = os.fdopen(heard, "rb", 0), os.fdopen(held, "wb", 0)
        try:
            with tempfile.TemporaryFile() as stdin, os.fdopen(answers, "wb", 0), os.fdopen(lifeline, "rb", 0):
                pickle.dump({**order, "answers": answers, "lifeline": lifeline}, stdin)
                stdin.seek(0)
                self._process = subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(answers, lifeline),
                    start_new_session=True,
                    env=environment(),
                )
            self._open = selectors.DefaultSelector()
            self._open.register(self._heard, selectors.EVENT_READ)
            self._open.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        except BaseException:  # an interrupt too: a child that has begun ends with its lifeline
            self._heard.close()
            self._held.close()
            raise

    @property
    def pid(self) -> int:
        """The process's id, and that of its session."""
        return self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for held in (self._open, self._heard, self._held, self._process.stdout):
            held.close()  # type: ignore[union-attr]

    def answers(self) -> Iterator[Answer | None]:
        """Each answer until the process has gone, and None twice a second. Called again after an exception, it goes on
        with the answer that was being handled. Raises WorklogError if it stays.
        """
        heard = ticked = time.monotonic()
        while self._process.poll() is None:
            if self._open.get_map():
                self._read(TICK_S)
            else:  # it has closed both pipes, and ends
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(TICK_S)
            for answer in self._whole_answers():
                yield answer
                heard = time.monotonic()
            now = time.monotonic()
            if now - heard > self.timeout_s:
                self.hung = True
                self.end()
            if now - ticked >= TICK_S:
                ticked = now
                yield None
        self.end()  # what it has started
        deadline = time.monotonic() + LEFTOVERS_S
        while self._open.get_map() and time.monotonic() < deadline:
            self._read(LEFTOVERS_S)
        yield from self._whole_answers()

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

    def _read(self, seconds: float) -> None:
        """Read what comes within some seconds."""
        for key, _ in self._open.select(seconds):
            chunk = os.read(key.fd, 65536)
            if not chunk:
                self._open.unregister(key.fileobj)
            elif key.fileobj is self._heard:
                self._answered += chunk
            else:
                self._printed = (self._printed + chunk)[-PRINTED:]

    def _whole_answers(self) -> Iterator[Answer]:
        while (end := self._answered.find(b"\n")) >= 0:
            answer = None
            with suppress(ValueError, RecursionError):  # noise that a kernel's process wrote there
                answer = json.loads(self._answered[:end])
            if isinstance(answer, dict):
                self.last = answer
                yield answer
            del self._answered[: end + 1]

    @property
    def printed(self) -> str:
        """The last of its output."""
        return self._printed.decode(errors="replace").strip()

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
            kind: Any = getattr(importlib.import_module(self.last["module"]), self.last["type"])
            error: WorklogError = kind.__new__(kind, self.last["message"])  # past the arguments of its own __init__
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
) -> Child:
    """Run one child to its end. This is where Ctrl-C is handled for everything that runs in a child.

    take: gets each answer but "progress". progress: is called with `first` plus the steps done, and `total`, for each
    "progress" and twice a second in between; whatever it raises ends the child. timeout_s: seconds between two answers
    after which the child is ended, once it has given one. stop: ends the child when another thread sets it. command:
    what to start (default: COMMAND).

    Raises KeyboardInterrupt after Ctrl-C, or where `stop` was set, once the child has gone and take() has got what it
    had answered.
    """
    done, doing = 0, "starting"
    progress(first, total, doing)
    with Child(command or COMMAND, order, max(timeout_s, START_TIMEOUT_S)) as child:
        try:
            for answer in child.answers():
                if answer is not None and answer.get("is") != "progress":
                    child.timeout_s = timeout_s
                    take(answer)
                    continue
                if stop is not None and stop.is_set():
                    raise KeyboardInterrupt
                if answer is not None:
                    done, doing = answer["done"], answer["doing"]
                progress(first + done, total, doing)
        except KeyboardInterrupt:
            child.end()
            for answer in child.answers():
                if answer is not None and answer.get("is") != "progress":
                    take(answer)
            raise
    if child.printed:
        print(child.printed, file=sys.stderr)
    return child


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


if __name__ == "__main__":
    main()
