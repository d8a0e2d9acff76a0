"""The timer `cupti`: NVIDIA's tracer, which reads when a launch's kernels started and ended.

It depends on neither events nor launch times. It reads kernels of known length slightly long (`worklog peers` says by
how much), needs NVIDIA's cupti-python package, and a process can have only one tracer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from worklog.errors import BadSetting, LaunchFailed
from worklog.harness.launch import Launch

# From a launch to the microseconds that its kernels took; the other launches, of one kernel each, go right before it.
Tracer = Callable[[Launch, Sequence[Launch]], float]
BLOCKING = "harness_hold"  # the blocking kernel's name
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
    """Records start and end, in nanoseconds, of every kernel while it traces. CUPTI takes one pair of callbacks per
    process, so get it from the_tracer.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._records: list[tuple[int, int]] = []
        with self._as_bad_setting():
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)

    @contextmanager
    def tracing(
        self, synchronize: Callable[[], None], blocked: Callable[[], AbstractContextManager[object]]
    ) -> Iterator[Tracer]:
        """Trace while the context is open.

        A launch may enqueue several kernels: its time is from the first start to the last end. blocked: a context in
        which work waits behind a blocking kernel, so that the GPU doesn't wait for the host between two kernels; a
        launch that waits for the GPU needs nullcontext. Raises BadSetting where CUPTI can't trace (another tracer in
        the process, no permission).
        """
        kind = self._cupti.ActivityKind.CONCURRENT_KERNEL

        def span_us(launch: Launch, before: Sequence[Launch]) -> float:
            synchronize()
            self._cupti.activity_flush_all(FORCED)
            self._records.clear()
            with blocked():
                for one in (*before, launch):
                    one()
            synchronize()
            self._cupti.activity_flush_all(FORCED)
            spans = sorted(self._records)[len(before) :]
            if not spans:
                raise LaunchFailed("timer = cupti: the tracer saw no kernel for this launch: take timer = events")
            return (max(end for _, end in spans) - spans[0][0]) / 1e3

        with self._as_bad_setting():
            self._cupti.activity_enable(kind)
        try:
            yield span_us
        finally:
            self._cupti.activity_disable(kind)

    def _completed(self, activities: list[Any]) -> None:
        self._records.extend((each.start, each.end) for each in activities if str(each.name) != BLOCKING)

    @contextmanager
    def _as_bad_setting(self) -> Iterator[None]:
        try:
            yield
        except self._cupti.cuptiError as error:
            raise BadSetting(f"timer = cupti: CUPTI can't trace here ({error}): take timer = events") from error


the_tracer = cache(KernelTracer)  # the process's one tracer
