"""Launches in a row, beside the samples: the hot time, as NVBench's batch measurement, and the energy of one launch.

The hot time is that of launches which follow each other without a flush, so that they find in L2 what the one before
left, and the end of one overlaps with the start of the next. NVML's energy counter is read before and after launches
that last long enough for it, since it advances only every few tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from worklog.harness.launch import Launch, Partly, blocked, bracketed, witnessed
from worklog.runs import Energy
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

ROUNDS = 8  # batches of each launch that count, after one that doesn't
MOST_IN_A_BATCH = 64
# Host time for what is enqueued behind a blocking kernel. The stream's queue holds about 1000 kernels, each of which
# takes the host 2 µs or more; a launch of a library or of PyTorch may be hundreds, and a full queue would never drain.
QUEUED_US = 1000.0
LONGEST_US = 1e6  # of all rounds together; a launch that is so long isn't made faster by what L2 holds
COOL_LIMIT_S, COOL_STEP_S = 120.0, 0.5
BETWEEN_READS_US = 20_000.0


def hot(
    timeline: CudaTimeline, launches: Sequence[Launch], us: Sequence[float], harness: Harness, offset_us: float
) -> list[list[float]]:
    """Microseconds of one launch in each batch, for each of the launches in turn; [] where the harness or a launch
    doesn't allow it. us: the time of each. offset_us: the event overhead, which a batch has once.
    """
    cold = harness.timer == "events" and harness.queue and harness.l2 != "warm"
    bare = [witnessed(launch).launch for launch in launches]
    if not (harness.hot_ms and cold) or any(isinstance(launch, Partly) for launch in bare):
        return []
    if ROUNDS * sum(us) > LONGEST_US:
        return []
    counts = [
        int(
            np.clip(
                min(1e3 * harness.hot_ms / max(one, 1.0), QUEUED_US / _host_us(timeline, launch)), 1, MOST_IN_A_BATCH
            )
        )
        for launch, one in zip(bare, us, strict=True)
    ]
    found: list[list[float]] = [[] for _ in launches]
    for number in range(ROUNDS + 1):
        for index in range(len(bare))[:: 1 if number % 2 else -1]:

            def batch(launch: Launch = bare[index], count: int = counts[index]) -> None:
                for _ in range(count):
                    launch()

            with blocked(timeline):
                bracketed(timeline, batch, 0)
            timeline.synchronize()
            if number:
                found[index].append((timeline.elapsed_us(0, 1) - offset_us) / counts[index])
    return found


def _host_us(timeline: CudaTimeline, launch: Launch) -> float:
    """Host time of one launch."""
    timeline.synchronize()
    started = timeline.host_us()
    launch()
    host_us = timeline.host_us() - started
    timeline.synchronize()
    return max(host_us, 1.0)


def energy(timeline: CudaTimeline, launch: Launch, us: float, harness: Harness, remarks: list[str]) -> Energy | None:
    """Launch in a row for energy_s seconds, and read the counter before and after. None if energy_s is 0, and, with a
    remark, where NVML has no counter.
    """
    if not harness.energy_s:
        return None
    bare, count, launched = witnessed(launch).launch, max(1, round(BETWEEN_READS_US / max(us, 1.0))), 0
    timeline.synchronize()
    before, started = timeline.energy_j(), timeline.host_us()
    while timeline.host_us() - started < 1e6 * harness.energy_s:
        for _ in range(count):
            bare()
        launched += count
        timeline.synchronize()
    after, seconds = timeline.energy_j(), (timeline.host_us() - started) / 1e6
    if before is None or after is None:
        remarks.append("energy: NVML has no energy counter for this GPU")
        return None
    return Energy((after - before) / launched, (after - before) / seconds, timeline.celsius())


def cool_down(timeline: CudaTimeline, harness: Harness, remarks: list[str]) -> None:
    """Wait until the GPU is as cool as the harness asks; a remark says where it didn't become so."""
    if not harness.cool_c:
        return
    waited = 0.0
    while (now := timeline.celsius()) is not None and now > harness.cool_c:
        if waited >= COOL_LIMIT_S:
            remarks.append(f"cool_c: {now:.0f} °C after {COOL_LIMIT_S:.0f} s instead of {harness.cool_c:g} °C")
            return
        timeline.pause(COOL_STEP_S)
        waited += COOL_STEP_S
    if now is None:
        remarks.append("cool_c: NVML reads no temperature of this GPU")
