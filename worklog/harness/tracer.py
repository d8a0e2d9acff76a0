"""The timer `cupti`: NVIDIA's tracer, which reads when a launch's kernels started and ended.

It depends on neither events nor launch times. It reads kernels of known length slightly long (`worklog peers` says by
how much), needs NVIDIA's cupti-python package, and a process can have only one tracer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting, LaunchFailed, install_command
from worklog.harness.launch import Launch, blocked

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

Spans = list[tuple[int, int]]  # start and end of each kernel in nanoseconds, the first start first
# From a launch to the spans of its kernels; the other launches, of one kernel each, go right before it.
Tracer = Callable[[Launch, Sequence[Launch]], Spans]
BLOCKING = "harness_hold"  # the blocking kernel's name
BUFFER_BYTES = 2**20
FORCED = 1  # cupti_activity.h, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: hand over buffers that are not full


def load_cupti() -> Any:
    """The module cupti.cupti. Raises BadSetting, with the remedy, where it cannot be imported."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise BadSetting(
            f"timer = cupti needs NVIDIA's tracer, which cannot be imported ({error}): "
            f"{install_command('peers')} (CUDA 13), or take timer = events"
        ) from error
    return cupti


@cache
def _records(cupti: Any) -> Spans:
    """Every traced kernel: CUPTI takes one pair of callbacks per process."""
    records: Spans = []

    def completed(activities: list[Any]) -> None:
        records.extend((each.start, each.end) for each in activities if str(each.name) != BLOCKING)

    cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), completed)
    return records


@contextmanager
def tracing(cupti: Any, timeline: CudaTimeline, queued: bool) -> Iterator[Tracer]:
    """Trace while the context is open. cupti: from load_cupti(). A launch may enqueue several kernels.

    queued: whether they wait behind a blocking kernel, so that the GPU doesn't wait for the host between two kernels.
    Raises BadSetting where CUPTI can't trace (another tracer in the process, no permission).
    """

    def traced(launch: Launch, before: Sequence[Launch]) -> Spans:
        timeline.synchronize()
        cupti.activity_flush_all(FORCED)
        records.clear()
        with blocked(timeline) if queued else nullcontext():
            for one in (*before, launch):
                one()
        timeline.synchronize()
        cupti.activity_flush_all(FORCED)
        spans = sorted(records)[len(before) :]
        if not spans:
            raise LaunchFailed("timer = cupti: the tracer saw no kernel for this launch: take timer = events")
        return spans

    kind = cupti.ActivityKind.CONCURRENT_KERNEL
    try:
        records = _records(cupti)
        cupti.activity_enable(kind)
    except cupti.cuptiError as error:
        raise BadSetting(f"timer = cupti: CUPTI can't trace here ({error}): take timer = events") from error
    try:
        yield traced
    finally:
        cupti.activity_disable(kind)
