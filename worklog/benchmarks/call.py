"""A call to time: a function with its arguments, its baselines and its work."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypedDict

from worklog.errors import BadSetting
from worklog.gpu.clocks import DATAPATHS, Datapath
from worklog.settings import WALL_CLOCK, Harness

WORK = ("flops", "elements", "reads", "writes")
RUN_NOTHING = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
CrossCheck = Literal["wall clock", "none"]


@dataclass(frozen=True)
class Call:
    """The arguments of worklog.time, which describes them and takes its keywords from here.

    Raises BadSetting for wrong arguments.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    against: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None
    flops: float | None = None
    reads: float | None = None
    writes: float | None = None
    elements: float | None = None
    grad_to_none: Sequence[Any] = ()
    cross_check: str = WALL_CLOCK
    cross_check_limit: float | None = None
    sync: bool = False
    timer: bool = False
    name: str | None = None
    datapath: str | None = None

    def __post_init__(self) -> None:
        self._require_callables()
        # A tensor would be split into its rows.
        if not isinstance(self.grad_to_none, list | tuple):
            raise BadSetting(
                f"worklog.time: grad_to_none: give a list, not {type(self.grad_to_none).__name__}"
            )
        advice = dict.fromkeys(WORK, "give the work of one call, a positive number, or nothing")
        advice["cross_check_limit"] = "give a share above 0, such as 0.05"
        for name, correction in advice.items():
            number = getattr(self, name)
            is_number = isinstance(number, Real) and not isinstance(number, bool)
            if number is not None and not (is_number and 0 < float(number) < math.inf):
                raise BadSetting(f"worklog.time: {name} = {number!r}: {correction}")
        choices: dict[str, tuple[str | None, ...]] = {
            "cross_check": (WALL_CLOCK, "none"),
            "datapath": (*DATAPATHS, None),
        }
        for name, values in choices.items():
            value = getattr(self, name)
            if value not in values:
                names = ", ".join(filter(None, values))
                raise BadSetting(f"worklog.time: {name} = {value!r}: take one of {names}")

    def _require_callables(self) -> None:
        """Raise BadSetting if fn or a baseline can't be called, or runs nothing when called."""
        calls = [("fn", self.fn), *(("against", baseline) for baseline in self.baselines)]
        for name, call in calls:
            if not callable(call):
                raise BadSetting(
                    f"worklog.time: {name} is {type(call).__name__}, which cannot be called"
                )
            for runs_nothing in RUN_NOTHING:
                if runs_nothing(call) or runs_nothing(type(call).__call__):
                    raise BadSetting(
                        f"worklog.time: {name} is a coroutine or generator: calling it runs nothing"
                    )

    def require_timeable(self, harness: Harness) -> None:
        """Raise BadSetting if the call can't be timed under this harness."""
        if not isinstance(harness, Harness):
            raise BadSetting(
                f"worklog.time: harness is {type(harness).__name__}: give one such as "
                "worklog.Harness().but(l2='warm')"
            )
        if self.timer and (harness.l2 == "rotate" or harness.timer != "events"):
            raise BadSetting(
                "worklog.time: timer=True needs the harness's timer = events, and no l2 = rotate"
            )

    @property
    def names(self) -> list[str]:
        """The names of fn and the baselines, with a number if a name repeats."""
        names = [
            str(getattr(call, "__name__", type(call).__name__))
            for call in (self.fn, *self.baselines)
        ]
        names[0] = self.name or names[0]
        numbered = []
        for index, name in enumerate(names):
            repetitions = names[:index].count(name)
            numbered.append(f"{name} ({repetitions + 1})" if repetitions else name)
        return numbered

    @property
    def baselines(self) -> list[Callable[..., Any]]:
        """The callables that alternate with fn."""
        if self.against is None:
            return []
        return [*self.against] if isinstance(self.against, list | tuple) else [self.against]  # type: ignore[list-item]

    def alone(self, *_: Any, **__: Any) -> None:
        """Call fn on the arguments of this record, and ignore others."""
        self.fn(*self.args, **(self.kwargs or {}))


class CallOptions(TypedDict, total=False):
    """The fields of a Call as keywords of worklog.time, for type checkers."""

    kwargs: Mapping[str, Any] | None
    against: Callable[..., Any] | Sequence[Callable[..., Any]] | None
    flops: float | None
    reads: float | None
    writes: float | None
    elements: float | None
    grad_to_none: Sequence[Any]
    cross_check: CrossCheck
    cross_check_limit: float | None
    sync: bool
    timer: bool
    name: str | None
    datapath: Datapath | None
