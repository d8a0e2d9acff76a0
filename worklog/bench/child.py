"""A child process that a kernel may ruin: started, heard and ended together with everything that it started.

It gets one line of JSON on its standard input, which stays open: its end is the parent's end. It answers in lines of
JSON on a pipe of its own, since a kernel or a library may print anything on standard output. Every answer says what it
`is`: "progress", "error", "raised", "lost", or what worklog.bench.job names.

The standard library does this with little code, and no library fits better. loky and concurrent.futures end no single
task that runs, only a pool with all its workers. pebble and billiard run the caller's __main__ again. None of them ends
what the process has started itself: a session of its own holds it together, and one signal ends all.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from worklog.errors import ChildFailed, LaunchFailed, OutOfMemory, WorklogError
from worklog.gate.verdict import Stage, failed
from worklog.gpu.device import visible_to_a_child

if TYPE_CHECKING:
    from worklog.kernel import Kernel

COMMAND = (sys.executable, "-P", "-m", "worklog.bench.job")
START_PATIENCE_S = 120.0  # until the first answer: libraries are loaded and compiled, the harness is calibrated
TICK_S = 0.5
GRACE_S = 0.5  # between SIGTERM and SIGKILL
STUCK_S = 10.0  # after SIGKILL, before the process counts as stuck
LEFTOVERS_S = 1.0  # for pipes that a process outside the session still holds open
PRINTED = 4000  # characters of its output that are kept
LONGEST = 2**26  # bytes of an answer
Answer = dict[str, Any]


class ProcessStuck(WorklogError):
    """A process was killed and is still there."""

    exit_code = 1


@dataclass(frozen=True)
class End:
    """How a process ended. code: its exit code, or minus the signal that ended it. printed: the last of its output.
    hung: it was ended after `patience_s` seconds without an answer. cancelled: it was ended by Stop or cancel().
    """

    code: int
    printed: str
    patience_s: float
    hung: bool
    cancelled: bool

    def __str__(self) -> str:
        if self.hung:
            return f"hung: no progress for {self.patience_s:.0f} s, so its process was ended"
        if self.code < 0:
            return f"crashed: its process ended with {_signal_name(-self.code)}"
        lines = self.printed.strip().splitlines()
        last = f", and last printed {lines[-1].strip()!r}" if lines else ""
        return f"its process exited without an answer (exit code {self.code}){last}"


class Child:
    """A running process, and a context that ends it. order: what it gets, beside the number of the pipe for its
    answers. patience_s: seconds without an answer after which wait() ends it.
    """

    def __init__(
        self, command: Sequence[str], order: Mapping[str, Any], patience_s: float, env: Mapping[str, str] | None = None
    ) -> None:
        self.patience_s = patience_s
        self._hung = self._cancelled = False
        self._gone, self._silent, self._news = threading.Event(), threading.Event(), threading.Event()
        self._answers: list[Answer] = []
        self._heard = 0  # answers that wait() has passed on
        self._printed = b""
        ours, theirs = os.pipe()
        answers = os.fdopen(ours, "rb")
        pipe = subprocess.PIPE
        streams: dict[str, Any] = dict(stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
        try:
            self._process = subprocess.Popen(command, **streams, pass_fds=(theirs,), start_new_session=True, env=env)
        except OSError:
            answers.close()
            raise
        finally:
            os.close(theirs)
        atexit.register(self.end)
        line = json.dumps({**order, "answers": theirs}) + "\n"
        talks = threading.Thread(target=self._talk, args=(line.encode(), answers), daemon=True)
        prints = threading.Thread(target=self._keep_printed, daemon=True)
        for thread in (talks, prints):
            thread.start()
        threading.Thread(target=self._watch, args=((talks, prints), answers), daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id, and that of its session."""
        return self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait(self, hear: Callable[[Answer], None], tick: Callable[[], None]) -> End:
        """Pass on each answer until the process has gone; tick is called twice a second while none comes."""
        last = time.monotonic()
        while True:
            silent = self._silent.is_set()  # read first: no answer comes after it
            if self._heard < len(self._answers):
                hear(self._answers[self._heard])
                self._heard += 1
                last = time.monotonic()
            elif silent:
                printed = self._printed.decode(errors="replace")
                return End(self._process.returncode, printed, self.patience_s, self._hung, self._cancelled)
            elif self._news.wait(TICK_S):
                self._news.clear()
            else:
                if time.monotonic() - last > self.patience_s:
                    self._hung = True
                    self.end()
                tick()

    def unheard(self) -> list[Answer]:
        """Answers that came before the process was ended and that wait() has not passed on."""
        self._silent.wait(STUCK_S)
        return self._answers[self._heard :]

    def cancel(self) -> None:
        """End the process, whatever it is doing, from any thread. Raises ProcessStuck."""
        self._cancelled = True
        self.end()

    def end(self) -> None:
        """Make sure that the process and what it started are gone. Raises ProcessStuck."""
        try:
            for number, seconds in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, STUCK_S)):
                if not self._gone.is_set():
                    _signal_session(self.pid, number)
                if self._gone.wait(seconds):
                    return
        except KeyboardInterrupt:  # a second one: no more grace
            _signal_session(self.pid, signal.SIGKILL)
            raise
        raise ProcessStuck(
            f"process {self.pid} was killed and is still there after {STUCK_S:.0f} s: the GPU's driver holds it; look "
            "with nvidia-smi, and restart the machine if it stays"
        )

    def _watch(self, threads: Sequence[threading.Thread], answers: IO[bytes]) -> None:
        """Wait for the end, then end what is left of the session, and read what is left in the pipes."""
        self._process.wait()
        _signal_session(self.pid, signal.SIGKILL)
        self._gone.set()
        atexit.unregister(self.end)
        for thread in threads:
            thread.join(LEFTOVERS_S)
        if not any(thread.is_alive() for thread in threads):  # a file cannot be closed under its reader
            for pipe in (self._process.stdin, self._process.stdout, answers):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()
        self._silent.set()
        self._news.set()

    def _talk(self, order: bytes, answers: IO[bytes]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already; the watcher says how
            self._process.stdin.write(order)
            self._process.stdin.flush()
        while line := answers.readline(LONGEST):
            with suppress(ValueError, RecursionError):  # noise that a kernel's process wrote there
                answer = json.loads(line)
                if isinstance(answer, dict):
                    self._answers.append(answer)
                    self._news.set()

    def _keep_printed(self) -> None:
        pipe: Any = self._process.stdout
        while chunk := pipe.read1(65536):
            self._printed = (self._printed + chunk)[-PRINTED:]


class Stop:
    """Ends a run from another thread, as Ctrl-C does from its own. `pid`: of the process that works now, if any."""

    def __init__(self) -> None:
        self.pressed = False
        self._lock = threading.Lock()
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """See the class."""
        return None if self._child is None else self._child.pid

    def press(self) -> None:
        """Returns when the process has gone. Raises ProcessStuck."""
        with self._lock:
            self.pressed = True
        if self._child is not None:
            self._child.cancel()

    def watch(self, child: Child) -> None:
        """End this one when pressed, or now."""
        with self._lock:
            self._child = child
        if self.pressed:
            child.cancel()


def run_child(
    order: Mapping[str, Any],
    hear: Callable[[Answer], float | None],
    progress: Callable[[int, str], None],
    *,
    patience_s: float,
    stop: Stop | None = None,
    command: Sequence[str] | None = None,
) -> tuple[Answer, End]:
    """Run one child to its end; its last answer, and how it ended.

    hear: gets each answer but "progress", and may return the patience from then on. progress: gets the steps done and
    what is being done, for each such answer and twice a second in between; whatever it raises ends the child. After a
    KeyboardInterrupt, hear gets what the child had already answered. command: what to start (default: COMMAND).
    """
    state: tuple[int, str] = (0, "starting")
    last: Answer = {}

    def take(answer: Answer) -> None:
        nonlocal state, last
        last = answer
        if answer.get("is") == "progress":
            state = answer["done"], answer["doing"]
            progress(*state)
        else:
            child.patience_s = hear(answer) or child.patience_s

    progress(*state)
    with Child(command or COMMAND, order, max(patience_s, START_PATIENCE_S), environment()) as child:
        if stop is not None:
            stop.watch(child)
        try:
            end = child.wait(take, lambda: progress(*state))
        except KeyboardInterrupt:
            child.end()
            for answer in child.unheard():
                if answer.get("is") != "progress":
                    hear(answer)
            raise
    if end.printed.strip():
        print(end.printed.rstrip(), file=sys.stderr)
    return last, end


def environment() -> dict[str, str]:
    """A child's: this process's, with its import path, and the one GPU that it has chosen."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    visible = visible_to_a_child()
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": visible}


def failed_stage(last: Answer, end: End, kernel: Kernel | None) -> Stage:
    """The stage at which a kernel failed that ended its process. kernel: None for one of the package. Raises what is no
    verdict on a kernel: a user's mistake, and a mistake of this package.
    """
    todo = advice(kernel)
    if last.get("is") == "error":
        error = error_of(last)
        if isinstance(error, OutOfMemory):
            return failed("memory", str(error))
        if isinstance(error, LaunchFailed):
            return failed("launch", f"{error}; {todo}")
        raise error
    if last.get("is") == "lost":
        return failed("launch", f"{last['fault']}; {todo}")
    if last.get("is") == "raised":
        if kernel is None:
            raise failure(last, end)
        return failed("process", f"raised {last['what']}; {todo}")
    return failed("process", f"{end}; {todo}")


def advice(kernel: Kernel | None) -> str:
    """What to do about a kernel that ruins its process."""
    is_source = kernel is None or kernel.host is None
    return "run it with `worklog check --emulate`: it names the line" if is_source else "call it alone in Python"


def failure(last: Answer, end: End) -> WorklogError:
    """What ended a process before it came to a kernel."""
    if last.get("is") == "error":
        return error_of(last)
    if last.get("is") == "raised":
        return ChildFailed(f"{last['what']}: a mistake in worklog or in a library that it uses\n{last['traceback']}")
    return ChildFailed(f"no kernel was launched: {last.get('fault') or end}")


def error_of(answer: Answer) -> WorklogError:
    """The error that was raised in the child: the same type, the same message."""
    found: Any = getattr(importlib.import_module(answer["module"]), answer["type"])
    error: WorklogError = found.__new__(found, answer["message"])  # past the arguments of its own __init__
    return error


def _signal_session(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone; macOS says the latter of one that nobody waited for
        os.killpg(pid, number)


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"
