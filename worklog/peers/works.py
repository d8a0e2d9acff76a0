"""What the peers time: work that can be enqueued on any stream, since each harness brings its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.bench.placement import ALIGNED, Pool
from worklog.harness import Harness, time_pair
from worklog.peers.harnesses import Work
from worklog.problem.gemm import Shape, random_inputs
from worklog.runs.statistics import Estimate, median

if TYPE_CHECKING:
    from worklog.bench.session import Session
    from worklog.harness.timeline import Launch, Timeline


SAMPLING = Harness().but(budget_s=3.0)


@dataclass(frozen=True)
class Movable:
    """A launch whose buffers can move to a new placement, and back to their own."""

    enqueue: Launch
    move: Callable[[], None] | None = None
    settle: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        """Enqueue it."""
        self.enqueue()


def read_work(
    timeline: Timeline, launch: Launch, harness: Harness = SAMPLING, offset_us: float = 0.0
) -> tuple[Estimate, bool, float]:
    """Median with its interval, event overhead included; whether it converged without it; seconds, with the warm-up."""
    started = time.perf_counter()
    move = launch.move if isinstance(launch, Movable) else None
    reading = time_pair(timeline, launch, None, harness, offset_us=offset_us, move=move)
    took = time.perf_counter() - started
    if isinstance(launch, Movable):
        launch.settle()
    return median(reading.counted("subject"), reading.placements("subject")), reading.converged, took


def works_on(session: Session, known_us: Sequence[int], sizes: Sequence[int]) -> list[Work]:
    """Kernels of known length in microseconds and FP32 cuBLAS at some sizes, each launched once, so that nothing is
    loaded later. Raises LaunchFailed, OutOfMemory.
    """
    works = [*(_spin(session, us) for us in known_us), *map(product, sizes)]
    for work in works:
        work.enqueue(session.device.stream)
    session.device.synchronize()
    return works


def _spin(session: Session, us: int) -> Work:
    def enqueue(stream: Any) -> None:
        session.timeline.spin(1000 * us, stream)

    return Work("spin", us, enqueue)


def product(size: int) -> Work:
    """FP32 cuBLAS at a size, in buffers that can move in a pool of its own, if the GPU's memory has room for one."""
    from worklog.gpu.cuda import Cublas, CudaDevice

    shape, device = Shape(size, size, size), CudaDevice()
    cublas = Cublas(device)
    home = (*map(device.upload, random_inputs(shape, np.random.default_rng(0))), device.allocate(size * size))
    now, pool = list(home), Pool.to_hold(device, 3 * (size * size + ALIGNED))
    device.synchronize()

    def enqueue(stream: Any) -> None:
        device.stream = stream
        if stream.is_capturing():
            cublas.follow(stream)
        cublas.enqueue(shape, 1.0, now[0], now[1], 0.0, now[2])

    def move() -> None:
        assert pool is not None
        now[:] = pool.place([size * size] * 3)
        device.copy(now[0], home[0])
        device.copy(now[1], home[1])

    def settle() -> None:
        now[:] = home

    enqueue(device.stream)
    device.synchronize()
    return Work("cuBLAS", size, enqueue, None if pool is None else (move, settle))
