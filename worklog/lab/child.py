"""A process that works while the notebook stays free: started, watched from a thread, cancelled at any time.

Nothing here knows what the process does. It is ended with the notebook's kernel, whichever way that ends: by an exit
handler, and by a pipe that closes.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

TICK_S = 0.5
PATIENCE_S = 3.0  # between asking a process to end and making it


@dataclass(frozen=True)
class Progress:
    """How far the work is: steps done of all, what is being done, and the seconds since the start."""

    done: int = 0
    total: int = 1
    doing: str = "starting"
    elapsed_s: float = 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds left, judged from the steps done; None before the first."""
        return self.elapsed_s / self.done * (self.total - self.done) if self.done else None


@dataclass(frozen=True)
class End:
    """How it ended: its exit code, its last words, and whether it was cancelled."""

    code: int
    words: str
    cancelled: bool


class Child:
    """A running process. `tell` gets a Progress twice a second, `end` the End; both are called on a thread of the
    child's own, so they may set widgets' traits and must not draw with pyplot.
    """

    def __init__(
        self,
        command: Sequence[str],
        order: str,
        tell: Callable[[Progress], None],
        end: Callable[[End], None],
    ) -> None:
        self._errors: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed by _finish)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True)
        self._finalizer = weakref.finalize(self, end_process, self._process)
        self._cancelled = threading.Event()
        self._tell, self._end = tell, end
        self._give(order)
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def cancel(self) -> None:
        """End the process, whatever it is doing; `end` is called when it has gone."""
        self._cancelled.set()
        threading.Thread(target=end_process, args=(self._process,), daemon=True).start()

    def _give(self, order: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(order)
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended already; the watcher says how

    def _watch(self) -> None:
        started, progress = time.monotonic(), Progress()
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, lines), daemon=True).start()
        line: str | None = "\n"
        while line is not None and (line or self._process.poll() is None):
            progress = replace(_parsed(line, progress), elapsed_s=time.monotonic() - started)
            self._tell(progress)
            line = _next(lines)
        self._finish()

    def _finish(self) -> None:
        self._process.wait()
        self._finalizer.detach()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._errors.seek(0)
        words = self._errors.read().strip().splitlines()
        self._errors.close()
        self._end(End(self._process.returncode, words[-1] if words else "", self._cancelled.is_set()))


def end_process(process: subprocess.Popen[str]) -> None:
    """Make sure that a process is gone."""
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read(pipe: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in pipe:
        lines.put(line)
    lines.put(None)


def _next(lines: queue.Queue[str | None]) -> str | None:
    """The next line, "" if there is none for a tick, None after the last."""
    try:
        return lines.get(timeout=TICK_S)
    except queue.Empty:
        return ""


def _parsed(line: str, before: Progress) -> Progress:
    """A line of progress; what is none, such as a library's greeting, changes nothing."""
    try:
        values: Any = json.loads(line)
        return Progress(int(values["done"]), int(values["total"]), str(values["doing"]))
    except (ValueError, TypeError, KeyError):
        return before
