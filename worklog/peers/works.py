"""The work that all harnesses time: kernels of known length, FP32 cuBLAS, and points of declared benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.errors import BadSetting
from worklog.kernel import Kernel
from worklog.problem import Shape, random_inputs
from worklog.runner.declare import Benchmark
from worklog.runner.job import Skipped
from worklog.runner.launches import ALIGNED, Pool
from worklog.runner.prepare import called
from worklog.runner.timing import Call
from worklog.runs import KNOWN

if TYPE_CHECKING:
    from worklog.runner.session import Session


@dataclass(frozen=True)
class Work:
    """kind: KNOWN, "cuBLAS", a rung, or a declared benchmark. of: the length in microseconds, the size N, or the value
    of the benchmark's last axis of numbers above 0. enqueue takes a CuPy stream. move: moves the buffers to a new
    random placement; settle: back to their own; None for work without buffers.
    """

    kind: str
    of: float
    enqueue: Callable[[Any], None]
    move: Callable[[], None] | None = None
    settle: Callable[[], None] | None = None

    def enqueue_on(self, handle: int) -> None:
        """Enqueue on the CUDA stream of this handle."""
        from worklog.gpu.cuda import stream_of

        self.enqueue(stream_of(handle))


def works_on(session: Session, known_us: Sequence[int], sizes: Sequence[int]) -> list[Work]:
    """Kernels of known length in microseconds and FP32 cuBLAS at some sizes, each launched once, so that nothing is
    loaded later. Raises LaunchFailed, OutOfMemory.
    """
    works = [_spin(session, us) for us in known_us] + [product(size) for size in sizes]
    for work in works:
        work.enqueue(session.device.stream)
    session.device.synchronize()
    return works


def _spin(session: Session, us: int) -> Work:
    def enqueue(stream: Any) -> None:  # cupyx's benchmark reads __name__, which a partial doesn't have
        session.timeline.spin(1000 * us, stream)

    return Work(KNOWN, us, enqueue)


def product(size: int, kernel: Kernel | None = None) -> Work:
    """FP32 cuBLAS, or a kernel, at a size, in buffers that can move in a pool of its own, if the GPU's memory has room
    for one.
    """
    from worklog.gpu.cuda import Cublas, CudaDevice

    shape, device = Shape(size, size, size), CudaDevice()
    subject = kernel.load(device) if kernel else Cublas(device)
    a, b = (device.upload(matrix) for matrix in random_inputs(shape, np.random.default_rng(0)))
    home = [a, b, device.allocate(size * size)]
    now = list(home)
    sizes = [size * size] * 3 + [subject.workspace_elements(shape)]
    pool = Pool.to_hold(device, sum(sizes) + len(sizes) * ALIGNED)

    def enqueue(stream: Any) -> None:
        device.stream = stream
        subject.enqueue(shape, 1.0, now[0], now[1], 0.0, now[2])

    def move() -> None:
        assert pool is not None
        *now[:], workspace = pool.place(sizes)
        subject.use_workspace(workspace)
        device.copy(now[0], a)
        device.copy(now[1], b)

    def settle() -> None:
        now[:] = home
        subject.use_workspace(None)

    device.synchronize()
    enqueue(device.stream)
    device.synchronize()
    return Work(subject.name, size, enqueue, None if pool is None else move, settle)


def declared_works(session: Session, benchmarks: Sequence[Benchmark]) -> list[Work]:
    """Every point of declared benchmarks that isn't skipped, each launched once. Raises BadSetting for one that the
    other harnesses can't time, and what its function raises.
    """
    session.user_kernels = {benchmark.name: benchmark.kernel for benchmark in benchmarks}
    works: list[Work] = []
    for benchmark in benchmarks:
        for point in benchmark.points():
            if point.skipped:
                continue
            try:
                made = called(session, benchmark.name, point.values)
            except Skipped:
                continue
            if made.sync or made.timer:
                tag = "sync" if made.sync else "timer"
                raise BadSetting(f"{benchmark.name} has {tag}=True, which other harnesses don't know: choose others")
            kind, of = _named(benchmark.name, point.values)
            works.append(Work(kind, of, _on_any_stream(session, made)))
            works[-1].enqueue(session.device.stream)
    if not works:
        raise BadSetting("nothing to time: every point is skipped")
    session.device.synchronize()
    return works


def _named(name: str, axes: Mapping[str, Any]) -> tuple[str, float]:
    """The kind of a benchmark's point, such as "scaled · beta=0 · N", and the value of its last number above 0."""
    last, of = "", 1.0
    for axis, value in axes.items():
        if not isinstance(value, str) and value > 0:
            last, of = axis, value
    others = ", ".join(f"{axis}={value}" for axis, value in axes.items() if axis != last)
    return " · ".join(filter(None, (name, others, last))), of


def _on_any_stream(session: Session, made: Call) -> Callable[[Any], None]:
    """The call of a declared benchmark on a stream: the current one of CuPy and PyTorch, or what it gets as one."""
    loans: dict[int, Any] = {}
    given = dict(made.kwargs or {})
    takes_stream = given.get("stream") == session.device.loan("cupy").handle

    def enqueue(stream: Any) -> None:
        if stream.ptr not in loans:
            device = copy(session.device)
            device.stream = stream
            loans[stream.ptr] = device.loan("cupy")
        loan = loans[stream.ptr]
        kwargs = given | ({"stream": loan.handle} if takes_stream else {})
        with loan.current():
            made.fn(*made.args, **kwargs)

    return enqueue
