"""A child process, which a kernel may crash or hang: it is ended together with every process that it started.

It gets one line of JSON on its standard input, which stays open until the parent ends. It answers in lines of JSON on a
pipe of its own, since a kernel or a library may print anything on standard output. Every answer says what it `is`:
"progress", "error", "raised", "lost", or what worklog.bench.job names.

No library does this: loky and concurrent.futures can't end a single running task, pebble and billiard run the caller's
__main__ again, and none of them ends what the process has started. Here a session of its own holds all of it together.
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
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

from worklog.bench.tasks import Progress
from worklog.errors import ChildFailed, LaunchFailed, OutOfMemory, WorklogError
from worklog.gate.verdict import Stage, failed
from worklog.gpu.device import visible_to_a_child

if TYPE_CHECKING:
    from worklog.kernel import Kernel

COMMAND = (sys.executable, "-P", "-m", "worklog.bench.job")
START_TIMEOUT_S = 120.0  # until the first answer: libraries are loaded and compiled, the harness is calibrated
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
    hung: it was ended after `timeout_s` seconds without an answer. cancelled: it was ended by Stop or cancel(). last:
    its last answer, {} if there was none.
    """

    code: int
    printed: str
    timeout_s: float
    hung: bool
    cancelled: bool
    last: Answer = field(default_factory=dict)

    def __str__(self) -> str:
        if self.hung:
            return f"hung: no progress for {self.timeout_s:.0f} s, so its process was ended"
        if self.code < 0:
            return f"crashed: its process ended with {_signal_name(-self.code)}"
        lines = self.printed.strip().splitlines()
        printed = f", and last printed {lines[-1].strip()!r}" if lines else ""
        return f"its process exited without an answer (exit code {self.code}){printed}"

    @property
    def kind(self) -> str:
        """What the last answer `is`, "" if there was none."""
        return str(self.last.get("is", ""))

    def error(self) -> WorklogError:
        """For a process that ended before it launched a kernel."""
        if self.kind == "error":
            found: Any = getattr(importlib.import_module(self.last["module"]), self.last["type"])
            error: WorklogError = found.__new__(found, self.last["message"])  # past the arguments of its own __init__
            return error
        if self.kind == "raised":
            what, traceback = self.last["what"], self.last["traceback"]
            return ChildFailed(f"{what}: a mistake in worklog or in a library that it uses\n{traceback}")
        return ChildFailed(f"no kernel was launched: {self.last.get('fault') or self}")

    def stage(self, kernel: Kernel | None) -> Stage:
        """The stage at which the kernel failed that ended the process. kernel: None for one of the package. Raises what
        says nothing about a kernel: a user's mistake, and a mistake of this package.
        """
        todo = advice(kernel)
        if self.kind == "lost":
            return failed("launch", f"{self.last['fault']}; {todo}")
        if self.kind == "raised" and kernel is not None:
            return failed("process", f"raised {self.last['what']}; {todo}")
        if self.kind not in ("error", "raised"):
            return failed("process", f"{self}; {todo}")
        error = self.error()
        if isinstance(error, OutOfMemory):
            return failed("memory", str(error))
        if isinstance(error, LaunchFailed):
            return failed("launch", f"{error}; {todo}")
        raise error


def advice(kernel: Kernel | None) -> str:
    """What to do about a kernel that ended its process."""
    is_source = kernel is None or kernel.host is None
    return "run it with `worklog check --emulate`: it names the line" if is_source else "call it alone in Python"


class Child:
    """A running process, and a context that ends it. order: what it gets, beside the number of the pipe for its
    answers. timeout_s: seconds without an answer after which wait() ends it. Raises OSError if it can't be started.
    """

    def __init__(
        self, command: Sequence[str], order: Mapping[str, Any], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> None:
        self.timeout_s = timeout_s
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
                return End(self._process.returncode, printed, self.timeout_s, self._hung, self._cancelled)
            elif self._news.wait(TICK_S):
                self._news.clear()
            else:
                if time.monotonic() - last > self.timeout_s:
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
    """Ends a run from another thread, as Ctrl-C does from its own. `child`: the process that works now, if any."""

    def __init__(self) -> None:
        self.pressed = False
        self._lock = threading.Lock()
        self.child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that works now."""
        return None if self.child is None else self.child.pid

    def press(self) -> None:
        """Returns when the process has gone. Raises ProcessStuck."""
        with self._lock:
            self.pressed = True
        if self.child is not None:
            self.child.cancel()

    def watch(self, child: Child) -> None:
        """End this process when pressed, or now if it was."""
        with self._lock:
            self.child = child
        if self.pressed:
            child.cancel()


def run_child(
    order: Mapping[str, Any],
    take: Callable[[Answer], None],
    progress: Progress,
    *,
    timeout_s: float,
    first: int = 0,
    total: int = 0,
    stop: Stop | None = None,
    command: Sequence[str] | None = None,
) -> End:
    """Run one child to its end. This is where Ctrl-C is handled for everything that runs in a child.

    take: gets each answer but "progress". progress: is called with `first` plus the steps done, and `total`, for each
    "progress" and twice a second in between; whatever it raises ends the child. timeout_s: seconds between two answers
    after which the child is ended, once it has given one. command: what to start (default: COMMAND).

    Raises KeyboardInterrupt after Ctrl-C, or where `stop` was pressed, once the child has gone and take() has got what
    it had answered.
    """
    state: tuple[int, str] = (0, "starting")
    last: Answer = {}

    def show() -> None:
        progress(first + state[0], total, state[1])

    def hear(answer: Answer) -> None:
        nonlocal state, last
        last = answer
        if answer.get("is") == "progress":
            state = answer["done"], answer["doing"]
            show()
        else:
            child.timeout_s = timeout_s
            take(answer)

    show()
    with Child(command or COMMAND, order, max(timeout_s, START_TIMEOUT_S), _environment()) as child:
        if stop is not None:
            stop.watch(child)
        try:
            end = child.wait(hear, show)
        except KeyboardInterrupt:
            child.end()
            for answer in child.unheard():
                if answer.get("is") != "progress":
                    take(answer)
            raise
    if end.cancelled and last.get("is") != "done":
        raise KeyboardInterrupt
    if end.printed.strip():
        print(end.printed.rstrip(), file=sys.stderr)
    return replace(end, last=last)


def _environment() -> dict[str, str]:
    """For a child: this process's, with its import path, and the one GPU that it has chosen."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    visible = visible_to_a_child()
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": visible}


def _signal_session(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone; macOS gives the latter for one that nobody waited for
        os.killpg(pid, number)


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"
