"""The messages between a process and the child that it has started.

They are pickled: a kernel and an error are Python's objects. The parent sends an order first, and
the child answers with the other messages until its last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from worklog.errors import WorklogError
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.runner.job import Job
from worklog.settings import Harness


class MeasureOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order to check and time jobs."""

    jobs: Sequence[Job] | None  # None: they are sent one by one, as NextJob
    harness: Harness
    user_kernels: Mapping[str, Kernel]  # by name


class NextJob(msgspec.Struct, frozen=True):
    """A job for a child that waits, with the user kernels that it names."""

    job: Job
    user_kernels: Mapping[str, Kernel] = {}


class CheckOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order to check a kernel or a solution; the fields are those of runner.check.check."""

    kernel: Kernel
    shape: Shape | None = None
    on: str | None = None
    seed: int | None = None
    budget: int
    quick: bool = False
    sweep: bool = False


class Progressed(msgspec.Struct, frozen=True):
    """The child is at work."""

    finished: int  # steps
    title: str  # of the present step


class Started(msgspec.Struct, frozen=True):
    """The child is ready to measure."""

    head: Sequence[str]  # the lines of its run's head


class Waiting(msgspec.Struct, frozen=True):
    """The child waits for the next job."""


class Measured(msgspec.Struct, frozen=True):
    """A job has ended."""

    line: str  # of the measurement in a run file
    description: Mapping[str, Any]  # of the kernel


class CheckBegun(msgspec.Struct, frozen=True):
    """A check begins."""

    checked: Any  # a runner.check.Checked without stages


class CheckEnded(msgspec.Struct, frozen=True):
    """A check has ended."""

    checked: Any  # the runner.check.Checked


class Done(msgspec.Struct, frozen=True):
    """The child has carried out its order."""


class Mistake(msgspec.Struct, frozen=True):
    """An error that the user can act on has ended the child."""

    kind: type[WorklogError]
    message: str


class Raised(msgspec.Struct, frozen=True):
    """Any other error has ended the child."""

    summary: str  # the error's type and message
    traceback: str


Order = MeasureOrder | CheckOrder
Message = (
    Progressed | Started | Waiting | Measured | CheckBegun | CheckEnded | Done | Mistake | Raised
)
