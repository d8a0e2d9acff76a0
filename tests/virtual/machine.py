"""A host and a GPU in simulated time.

Streams that run beside each other, events, graphs, threads, and a held queue.

Nothing here looks at a real clock, so what a cheat gains by being late or elsewhere is exact and
repeatable. Work is enqueued as `(microseconds, begin)`: `begin` runs when the work starts on the
device, reads what it reads, and returns what writes its results when it ends. Streams follow CUDA's
rules: in order within one; the legacy stream waits for all blocking ones and they for it;
    non-blocking ones wait only for what `wait` names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from worklog.errors import LaunchFailed

HOLD_LIMIT_US = 20e6
QUEUE_LENGTH = 1000  # operations that a held stream takes, on a real GPU about 1024
NEVER = float("inf")
Commit = Callable[[], None]
Begin = Callable[[], Commit | None]


@dataclass(frozen=True)
class Work:
    """What is put into a stream.

    us: how long it takes, known when it starts; NEVER until it is released
    alone: it fills the device, so that no other such thing runs beside it
    """

    us: Callable[[], float]
    begin: Begin
    alone: bool = False


@dataclass(eq=False)
class Operation:
    """Work in a stream. us: how long it takes, once it has begun."""

    work: Work
    after: list[Operation]
    enqueued: float
    us: float = NEVER
    began: float | None = None
    ended: float | None = None
    released: float | None = None
    commit: Commit | None = None

    @property
    def done(self) -> bool:
        return self.ended is not None

    @property
    def end(self) -> float:
        """When it will end, once it has begun."""
        assert self.began is not None
        return self.began + self.us if self.released is None else max(self.began, self.released)


@dataclass(eq=False)
class Stream:
    """kind: "legacy", "blocking" or "non-blocking"."""

    kind: str
    queue: deque[Operation] = field(default_factory=deque)
    last: Operation | None = None
    waits_for: list[Operation] = field(default_factory=list)
    recording: list[Work] | None = None

    @property
    def ptr(self) -> int:
        return id(self)


@dataclass(eq=False)
class Thread:
    """A host thread that does one thing at a time of its own."""

    at: float
    function: Callable[[], object]
    ended: float | None = None


class Machine:
    """A host, and a device with streams.

    enqueue_us: what a call of the driver costs the host
    flops_per_us: of a product from a cold L2
    warm_speedup: how much faster one is whose inputs are in L2
    bytes_per_us: of a copy
    """

    def __init__(
        self,
        enqueue_us: float = 4.0,
        flops_per_us: float = 4096.0,
        bytes_per_us: float = 16384.0,
        warm_speedup: float = 1.25,
        l2_bytes: int = 64 * 2**20,
        host_now: float = 0.0,
    ) -> None:
        self.enqueue_us = enqueue_us
        self.flops_per_us = flops_per_us
        self.bytes_per_us = bytes_per_us
        self.warm_speedup = warm_speedup
        self.l2_bytes = l2_bytes
        self.host_now = host_now
        self.device_now = 0.0
        self.legacy = Stream("legacy")
        self.streams = [self.legacy]
        self.current = self.legacy
        self.l2: dict[Any, int] = {}
        self.gave_up = False
        self.threads: list[Thread] = []
        self.held: Operation | None = None
        self._alone: Operation | None = None

    def stream(self, kind: str = "non-blocking") -> Stream:
        """Return a new stream."""
        self.streams.append(Stream(kind))
        return self.streams[-1]

    def touch(self, data: Any, size: int = 1) -> bool:
        """Whether the data were still in L2.

        Then they are, and what was used longest ago makes room.
        """
        warm = self.l2.pop(data, None) is not None
        self.l2[data] = size
        while sum(self.l2.values()) > self.l2_bytes:
            del self.l2[next(iter(self.l2))]
        return warm

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Make a stream the current one for a while."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def enqueue(
        self,
        us: float | Callable[[], float],
        begin: Begin = lambda: None,
        stream: Stream | None = None,
        alone: bool = False,
    ) -> Operation | None:
        """Put work into a stream (default: the current one). None while it is recorded."""
        stream = stream or self.current
        work = Work(us if callable(us) else lambda: us, begin, alone)
        if stream.recording is not None:
            stream.recording.append(work)
            return None
        if self.held is not None and len(stream.queue) > QUEUE_LENGTH:
            raise LaunchFailed(
                "the stream's queue is full while it is held: on a real GPU this waits for ever"
            )
        self.pass_host(self.enqueue_us)
        return self._put(stream, work)

    def _put(self, stream: Stream, work: Work) -> Operation:
        before = [stream.last, *stream.waits_for]
        if stream.kind == "legacy":
            before += [other.last for other in self.streams if other.kind == "blocking"]
        if stream.kind == "blocking":
            before.append(self.legacy.last)
        operation = Operation(work, [other for other in before if other is not None], self.host_now)
        stream.waits_for.clear()
        stream.queue.append(operation)
        stream.last = operation
        return operation

    def wait(self, waiting: Stream, on: Stream) -> None:
        """Make a stream wait for all that is in another by now.

        An event recorded and waited for.
        """
        self.pass_host(self.enqueue_us)
        if on.last is not None:
            waiting.waits_for.append(on.last)

    def record(self, stream: Stream, function: Callable[[], object]) -> list[Work]:
        """Return what a function enqueues on a stream, as a graph."""
        stream.recording = []
        try:
            with self.on(stream):
                function()
        finally:
            nodes, stream.recording = stream.recording, None
        return nodes

    def replay(self, graph: list[Work]) -> None:
        """Enqueue a graph on the current stream by one call."""
        if self.current.recording is not None:
            self.current.recording += graph
            return
        self.pass_host(self.enqueue_us)
        for node in graph:
            self._put(self.current, node)

    def thread(self, function: Callable[[], object], in_us: float = 0.0) -> Thread:
        """Start a host thread that wakes in so many microseconds and does one thing.

        The legacy stream is current then.
        """
        self.threads.append(Thread(self.host_now + in_us, function))
        return self.threads[-1]

    def join(self, thread: Thread) -> None:
        """Wait for a host thread."""
        self.pass_host(max(0.0, thread.at - self.host_now))
        assert thread.ended is not None
        self.host_now = max(self.host_now, thread.ended)

    def pass_host(self, us: float) -> None:
        """Keep the host busy for so long; threads whose time has come do theirs."""
        self.host_now += us
        for thread in sorted(self.threads, key=lambda one: one.at):
            if thread.ended is None and thread.at <= self.host_now:
                self._run(thread)

    def _run(self, thread: Thread) -> None:
        thread.ended = thread.at  # so that it is not run again from within
        kept = self.host_now, self.current
        self.host_now = thread.at
        self.current = self.legacy
        try:
            thread.function()
        finally:
            thread.ended = self.host_now
            self.threads.remove(thread)
            self.host_now, self.current = kept

    def synchronize(self, stream: Stream | None = None) -> None:
        """Wait for a stream (default: the current one).

        Raises LaunchFailed where it is being recorded.
        """
        stream = stream or self.current
        if stream.recording is not None:
            raise LaunchFailed("operation not permitted when stream is capturing")
        for operation in [one for one in (stream.last, *stream.waits_for) if one is not None]:
            self._advance(lambda operation=operation: operation.done)
            self.host_now = max(self.host_now, operation.ended or 0.0)
        self._advance_to(self.host_now)

    def busy(self, stream: Stream) -> bool:
        """Whether anything in it is not done yet, without waiting."""
        self._advance_to(self.host_now)
        return stream.last is not None and not stream.last.done

    def hold(self, stream: Stream) -> None:
        """Block a stream until `release`."""
        self.synchronize(stream)
        self.held = self.enqueue(NEVER, stream=stream)

    def release(self) -> None:
        """Let the held stream run."""
        if self.held is not None:
            self.held.released = self.host_now
            self.held = None

    def _advance_to(self, now: float) -> None:
        when, what = self._next()
        while when <= now:
            what()
            when, what = self._next()

    def _advance(self, enough: Callable[[], bool]) -> None:
        """Let the device run, in the order of time, until it is enough."""
        while not enough():
            when, what = self._next()
            if (
                when == NEVER and self.held is not None
            ):  # the host waits for what waits for the host
                self.host_now += HOLD_LIMIT_US
                self.gave_up = True
                self.release()
                continue
            assert when != NEVER, "a stream waits for what is never done"
            what()

    def _next(self) -> tuple[float, Callable[[], None]]:
        """Return what happens next anywhere: an end before a start at the same time."""
        first = (NEVER, 2)
        what = partial[None](lambda: None)
        for stream in self.streams:
            if stream.queue:
                head = stream.queue[0]
                at = (self._start(head), 1) if head.began is None else (head.end, 0)
                if at < first:
                    first = at
                    what = (
                        partial(self._begin, stream, at[0]) if at[1] else partial(self._end, stream)
                    )
        for thread in self.threads:
            if thread.ended is None and (thread.at, 1) < first:
                first = (thread.at, 1)
                what = partial(self._run, thread)
        return first[0], what

    def _start(self, head: Operation) -> float:
        """When the head of a stream can start; NEVER while that is not known."""
        after = [*head.after, self._alone] if head.work.alone and self._alone else head.after
        return max(
            [head.enqueued, *(NEVER if other.ended is None else other.ended for other in after)]
        )

    def _begin(self, stream: Stream, at: float) -> None:
        self.device_now = at
        head = stream.queue[0]
        self._alone = head if head.work.alone else self._alone
        head.us = head.work.us()
        head.began = at
        head.commit = head.work.begin()

    def _end(self, stream: Stream) -> None:
        head = stream.queue.popleft()
        self.device_now = head.ended = head.end
        head.after.clear()  # the past may be forgotten
        if head.commit is not None:
            head.commit()
