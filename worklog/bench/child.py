"""A process that somebody else's code may ruin: started, listened to, and ended with everything that it started.

Nothing here knows what the process does. It gets one line of JSON on its standard input, which stays open: its end is
the parent's end. It answers in lines of JSON on a pipe of its own, since a kernel or a library may print anything on standard output;
the last of what is printed is kept, and never read as an answer.

The standard library does this with little code, and no library fits better. loky and concurrent.futures end no single
task that runs, only a pool with all its workers (the latter from Python 3.14 on). pebble and billiard do, but results
come back as pickles, so that what cheats there could run code here, and a spawned process runs the caller's __main__
again. None of them ends what the process has started itself: psutil would find that by walking the process table, but a
session of their own holds it together, and one signal ends all. What leaves that session is beyond us.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from worklog.errors import WorklogError

TICK_S = 0.5
GRACE_S = 0.5  # between asking a process to end and making it
STUCK_S = 10.0  # after which a process that was killed will not go
LEFTOVERS_S = 1.0  # for pipes that something outside the session still holds open
WORDS = 4000  # characters of what it printed that are kept
LONGEST = 2**26  # bytes of an answer


class ProcessStuck(WorklogError):
    """A process was killed and is still there."""

    exit_code = 1


@dataclass(frozen=True)
class End:
    """How it ended. code: its exit code, or minus the signal that ended it. words: the last that it printed. hung: it
    was ended after `patience_s` seconds without an answer. cancelled: it was ended by cancel().
    """

    code: int
    words: str
    patience_s: float
    hung: bool
    cancelled: bool

    def __str__(self) -> str:
        """What happened, for a sentence about a kernel."""
        if self.hung:
            return f"hung: no progress for {self.patience_s:.0f} s, so its process was ended"
        if self.code < 0:
            return f"crashed: its process ended with {_signal_name(-self.code)}"
        said = self.words.strip().splitlines()
        last = f", and last printed {said[-1].strip()!r}" if said else ""
        return f"its process left without an answer (exit code {self.code}){last}"


class Child:
    """A running process, and a context that ends it. order: what it is told, beside the number of the pipe for
    its answers. patience_s: seconds without an answer after which wait() ends it.
    """

    def __init__(
        self, command: Sequence[str], order: Mapping[str, Any], patience_s: float, env: Mapping[str, str] | None = None
    ) -> None:
        self.patience_s = patience_s
        self._hung = self._cancelled = False
        self._gone, self._silent, self._news = threading.Event(), threading.Event(), threading.Event()
        self._answers: list[dict[str, Any]] = []
        self._passed_on = 0  # of the answers; one counts when whoever hears it is done with it
        self._words = b""
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
        told = json.dumps({**order, "answers": theirs}) + "\n"
        talks = threading.Thread(target=self._talk, args=(told.encode(), answers), daemon=True)
        prints = threading.Thread(target=self._keep_words, daemon=True)
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

    def wait(self, hear: Callable[[dict[str, Any]], None], tick: Callable[[], None]) -> End:
        """Pass on each answer until the process has gone; tick is called twice a second while none comes."""
        last = time.monotonic()
        while True:
            silent = self._silent.is_set()  # asked first: nothing is answered after it
            if self._passed_on < len(self._answers):
                hear(self._answers[self._passed_on])
                self._passed_on += 1
                last = time.monotonic()
            elif silent:
                words = self._words.decode(errors="replace")
                return End(self._process.returncode, words, self.patience_s, self._hung, self._cancelled)
            elif self._news.wait(TICK_S):
                self._news.clear()
            else:
                if time.monotonic() - last > self.patience_s:
                    self._hung = True
                    self.end()
                tick()

    def unheard(self) -> list[dict[str, Any]]:
        """What it answered before it was ended, and wait() was left before whoever hears it was done with it."""
        self._silent.wait(STUCK_S)
        return self._answers[self._passed_on :]

    def cancel(self) -> None:
        """End the process, whatever it is doing, and say so in its End; from any thread. Raises ProcessStuck."""
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
            answer = _answer(line)
            if answer is not None:
                self._answers.append(answer)
                self._news.set()

    def _keep_words(self) -> None:
        pipe: Any = self._process.stdout
        while chunk := pipe.read1(65536):
            self._words = (self._words + chunk)[-WORDS:]


def _answer(line: bytes) -> dict[str, Any] | None:
    """What a line says, None for one that is no answer."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _signal_session(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone; macOS says the latter of one that nobody waited for
        os.killpg(pid, number)


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"
