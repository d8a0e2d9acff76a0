"""The timer `cupti`: when the GPU's own tracer says that a launch's kernels started and ended.

It knows nothing of events or launches, which makes it the best cross-check of them. It reads 0.6 µs long on an H200,
needs NVIDIA's cupti-python package, and only one tracer can be in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from worklog.errors import BadSetting, LaunchFailed
from worklog.harness.timeline import Launch

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


@contextmanager
def kernel_tracer(cupti: Any, synchronize: Callable[[], None]) -> Iterator[Callable[[Launch], float]]:
    """Trace kernels while the context is open; it yields a function from a launch to microseconds.

    A launch may enqueue several kernels: its time is from the first start to the last end. Raises BadSetting where
    CUPTI refuses to trace (another tracer in the process, no permission).
    """
    records: list[tuple[int, int]] = []

    def completed(activities: list[Any]) -> None:
        records.extend((activity.start, activity.end) for activity in activities)

    def span_us(launch: Launch) -> float:
        synchronize()
        cupti.activity_flush_all(FORCED)
        records.clear()
        launch()
        synchronize()
        cupti.activity_flush_all(FORCED)
        return span(records)

    kind = cupti.ActivityKind.CONCURRENT_KERNEL
    try:
        cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), completed)
        cupti.activity_enable(kind)
    except cupti.cuptiError as error:
        raise BadSetting(f"timer = cupti: CUPTI refuses to trace ({error}): take timer = events") from error
    try:
        yield span_us
    finally:
        cupti.activity_disable(kind)


def span(records: list[tuple[int, int]]) -> float:
    """Microseconds from the first start to the last end of some kernels, from nanoseconds. Raises LaunchFailed for
    none.
    """
    if not records:
        raise LaunchFailed("timer = cupti: the tracer saw no kernel for this launch: take timer = events")
    return (max(end for _, end in records) - min(start for start, _ in records)) / 1e3
