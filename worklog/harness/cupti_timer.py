"""The timer `cupti`: when the GPU's own tracer says that a launch's kernels started and ended.

It knows nothing of events or launches, which makes it the best cross-check of them. It reads kernels of known length a
little long (`worklog peers` says how much), needs NVIDIA's cupti-python package, and only one tracer can be in a
process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from worklog.errors import BadSetting, LaunchFailed
from worklog.harness.launchers import Waiting
from worklog.harness.timeline import Launch, Tracer

HOLDING = "ruler_hold"  # the kernel that holds the queue
BUFFER_BYTES = 2**20
FORCED = 1  # cupti_activity.h, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: hand over buffers that are not full


def load_cupti() -> Any:
    """The module cupti.cupti. Raises BadSetting, with the remedy, where it cannot be imported."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise BadSetting(
            f"timer = cupti needs NVIDIA's tracer, which cannot be imported ({error}): pip install cupti-python "
            "(CUDA 13), or take timer = events"
        ) from error
    return cupti


class KernelTracer:
    """Notes start and end, in nanoseconds, of every kernel while it traces. CUPTI takes one pair of callbacks a
    process, so make one of these (the_tracer).
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._records: list[tuple[int, int]] = []
        with self._refusals():
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)

    @contextmanager
    def tracing(
        self, synchronize: Callable[[], None], held: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Iterator[Tracer]:
        """Trace while the context is open; it yields a function from a launch to microseconds.

        A launch may enqueue several kernels: its time is from the first start to the last end. held: a context in which
        what is enqueued waits, so that the GPU need not wait for the host between two of them, nor between the kernels
        that go before and the launch. Raises BadSetting where CUPTI refuses to trace (another tracer in the process, no
        permission).
        """
        kind = self._cupti.ActivityKind.CONCURRENT_KERNEL
        with self._refusals():
            self._cupti.activity_enable(kind)
        try:
            yield lambda launch, before=(): self._span_us(launch, before, synchronize, held)
        finally:
            self._cupti.activity_disable(kind)

    def _span_us(
        self,
        launch: Launch,
        before: Sequence[Launch],
        synchronize: Callable[[], None],
        held: Callable[[], AbstractContextManager[object]],
    ) -> float:
        synchronize()
        self._cupti.activity_flush_all(FORCED)
        self._records.clear()
        with nullcontext() if isinstance(launch, Waiting) else held():
            for one in (*before, launch):
                one()
        synchronize()
        self._cupti.activity_flush_all(FORCED)
        return span(sorted(self._records)[len(before) :])

    def _completed(self, activities: list[Any]) -> None:
        self._records.extend((each.start, each.end) for each in activities if str(each.name) != HOLDING)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except self._cupti.cuptiError as error:
            raise BadSetting(f"timer = cupti: CUPTI refuses to trace ({error}): take timer = events") from error


@cache
def the_tracer(cupti: Any) -> KernelTracer:
    """The process's one tracer."""
    return KernelTracer(cupti)


def span(records: list[tuple[int, int]]) -> float:
    """Microseconds from the first start to the last end of some kernels, from nanoseconds. Raises LaunchFailed for
    none.
    """
    if not records:
        raise LaunchFailed("timer = cupti: the tracer saw no kernel for this launch: take timer = events")
    return (max(end for _, end in records) - min(start for start, _ in records)) / 1e3
