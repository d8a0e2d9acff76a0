"""Launches that are not simply called between two events: one that times only a part of itself, one that waits for the
GPU, one that is prepared and looked at. What the first two cost stands on the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from worklog.errors import BadSetting
from worklog.harness.timeline import Launch, Timeline
from worklog.settings import Harness

PARTLY = "timer: the call itself says which part of it is timed, the rest is not in the number"


class Stopwatch:
    """What a launch that times a part of itself is given: start it once, stop it once, in stream order."""

    def __init__(self, start: Launch, stop: Launch) -> None:
        self._left = [("start", start), ("stop", stop)]

    def start(self) -> None:
        """The timed part begins here. Raises BadSetting the second time."""
        self._press("start")

    def stop(self) -> None:
        """The timed part ends here. Raises BadSetting before the start, or the second time."""
        self._press("stop")

    def require_both(self) -> None:
        """Raise BadSetting unless the launch did both."""
        if self._left:
            raise BadSetting(f"the launch returned without stopwatch.{self._left[0][0]}(): it has no time")

    def _press(self, button: str) -> None:
        if not self._left or self._left[0][0] != button:
            raise BadSetting(f"stopwatch.{button}() out of turn: call start() once, then stop() once, in each launch")
        self._left.pop(0)[1]()


@dataclass(frozen=True)
class Partly:
    """A launch that times only a part of itself, with the stopwatch that it is given."""

    run: Callable[[Stopwatch], object]

    def __call__(self) -> None:
        """Launch without timing, for a warm-up."""
        self.run(Stopwatch(_nothing, _nothing))


@dataclass(frozen=True)
class Waiting:
    """A launch that waits for the GPU before it returns, so it cannot be queued behind a blocking kernel."""

    launch: Launch

    def __call__(self) -> None:
        """Launch and wait."""
        self.launch()


@dataclass(frozen=True)
class Witnessed:
    """A launch with something enqueued around each of its samples, outside what is timed: new inputs before the flush,
    a look at the output right behind the end event, and after all else what the look is held against.
    """

    launch: Launch
    before: Launch
    behind: Launch
    after: Launch

    def __call__(self) -> None:
        """Launch without timing, for a warm-up; that is looked at too."""
        self.before()
        self.launch()
        self.behind()
        self.after()


def timed_part(launch: Launch) -> Launch:
    """What belongs between the events."""
    return launch.launch if isinstance(launch, Witnessed) else launch


def prepare(launch: Launch) -> None:
    """Enqueue what goes before a sample."""
    if isinstance(launch, Witnessed):
        launch.before()


def look_at(launch: Launch) -> None:
    """Enqueue what goes right behind the end event."""
    if isinstance(launch, Witnessed):
        launch.behind()


def compare(launch: Launch) -> None:
    """Enqueue what goes after a sample."""
    if isinstance(launch, Witnessed):
        launch.after()


def _nothing() -> None:
    """No event."""


def bracketed(timeline: Timeline, launch: Launch, slot: int) -> None:
    """Enqueue a launch with events `slot` and `slot` + 1 around it, or around the part that it names."""
    if isinstance(launch, Partly):
        watch = Stopwatch(partial(timeline.record_event, slot), partial(timeline.record_event, slot + 1))
        launch.run(watch)
        watch.require_both()
        return
    timeline.record_event(slot)
    launch()
    timeline.record_event(slot + 1)


def require_events(launches: Sequence[Launch], harness: Harness) -> None:
    """Raise BadSetting for a timer that cannot time a part of a launch."""
    if harness.timer != "events" and any(isinstance(launch, Partly) for launch in launches):
        raise BadSetting(
            f"timer = {harness.timer} times a whole launch, and this one names a part: take timer = events"
        )


def waits(launches: Sequence[Launch]) -> bool:
    """Whether one of them must not be queued."""
    return any(isinstance(launch, Waiting) for launch in launches)
