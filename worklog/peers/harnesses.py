"""The other harnesses that `worklog peers` compares, and the work that all of them time.

Each harness is used as its documentation says. The work is kernels of known length, FP32 cuBLAS,
and points of declared benchmarks.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.benchmarks import Benchmark, Call
from worklog.errors import BadSetting, LaunchFailed, Skipped, install_command
from worklog.harness import blocked, nothing
from worklog.kernel import Kernel
from worklog.problem import Shape, random_inputs
from worklog.runner.launches import ALIGNED, Pool
from worklog.runs import CUBLAS
from worklog.runs.changes import nvbench_states
from worklog.runs.comparison import KNOWN, HarnessReading
from worklog.runs.statistics import median

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline
    from worklog.runner.session import Session

Timer = Callable[["Workload"], float]  # microseconds of one launch
# Yields the reading of each work, in turn. It may raise anything.
Reader = Callable[[Sequence["Workload"]], Iterator[HarnessReading]]
TRACED_LAUNCHES = 200
TRACED_TURNS = 4  # launches in one placement, as the harness has
BLOCKING = "harness_hold"  # the blocking kernel's name
TRACE_BYTES = 2**20
# cupti_activity.h, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: also return buffers that aren't full
FORCED = 1
# 0.5 s of GPU time in launches of a microsecond would take longer than all other works together.
SHORT_TIMEOUT_S = 6.0


@dataclass(frozen=True)
class Workload:
    """Launches that every harness can time."""

    kind: str  # KNOWN, "cuBLAS", a rung, or a declared benchmark
    # The length in microseconds, the size N, or the value of the benchmark's last axis of numbers
    # above 0.
    of: float
    enqueue: Callable[[Any], None]  # on a CuPy stream
    # Moves the buffers to a new random placement. None for work without buffers.
    move: Callable[[], None] | None = None
    settle: Callable[[], None] = nothing  # moves the buffers back to their first placement

    def enqueue_on(self, handle: int) -> None:
        """Enqueue on the CUDA stream with this handle."""
        from worklog.gpu.cuda import stream_of

        self.enqueue(stream_of(handle))


def works_on(session: Session, known_us: Sequence[int], sizes: Sequence[int]) -> list[Workload]:
    """Return kernels of known length in microseconds, and FP32 cuBLAS at some sizes.

    Each is launched once, so that nothing is loaded later.
    Raises LaunchFailed, OutOfMemory.
    """

    def spin(us: int) -> Workload:
        # not a partial: cupyx's benchmark reads __name__, which a partial doesn't have
        def enqueue(stream: Any) -> None:
            session.timeline.spin(1000 * us, stream)

        return Workload(KNOWN, us, enqueue)

    works = [*map(spin, known_us), *map(product, sizes)]
    for work in works:
        work.enqueue(session.device.stream)
    session.device.synchronize()
    return works


def product(size: int, kernel: Kernel | None = None) -> Workload:
    """Return FP32 cuBLAS, or a kernel, at a size.

    Its buffers move in a pool of their own, if there is memory for one.
    """
    from worklog.gpu.cuda import Cublas, CudaDevice

    shape = Shape(size, size, size)
    device = CudaDevice()
    subject = kernel.load(device) if kernel else Cublas(device)
    a, b = (device.upload(matrix) for matrix in random_inputs(shape, np.random.default_rng(0)))
    first_buffers = [a, b, device.allocate(size * size)]
    buffers = list(first_buffers)
    sizes = [size * size] * 3 + [subject.workspace_elements(shape)]
    pool = Pool.to_hold(device, sum(sizes) + len(sizes) * ALIGNED)

    def enqueue(stream: Any) -> None:
        device.stream = stream
        subject.enqueue(shape, 1.0, buffers[0], buffers[1], 0.0, buffers[2])

    def move() -> None:
        assert pool is not None
        *buffers[:], workspace = pool.place(sizes)
        subject.use_workspace(workspace)
        device.copy(buffers[0], a)
        device.copy(buffers[1], b)

    def settle() -> None:
        buffers[:] = first_buffers
        subject.use_workspace(None)

    device.synchronize()
    enqueue(device.stream)
    device.synchronize()
    return Workload(subject.name, size, enqueue, None if pool is None else move, settle)


def declared_works(session: Session, benchmarks: Sequence[Benchmark]) -> list[Workload]:
    """Return every point of benchmarks that isn't skipped, launched once.

    Raises BadSetting for a point that other harnesses can't time.
    """
    works: list[Workload] = []
    for benchmark in benchmarks:
        loaded = benchmark.kernel.load(session.device)
        for point in benchmark.points():
            try:
                call = loaded.call(point, session.gpu)
            except Skipped:
                continue
            _require_timeable(benchmark.name, call)
            kind, value = _described(benchmark.name, dict(point.axes))
            work = Workload(kind, value, _on_any_stream(session, call))
            work.enqueue(session.device.stream)
            works.append(work)
    if not works:
        raise BadSetting("nothing to time: every point is skipped")
    session.device.synchronize()
    return works


def _require_timeable(name: str, call: Call) -> None:
    """Raise BadSetting for a call that other harnesses can't time."""
    if call.sync or call.timer:
        tag = "sync" if call.sync else "timer"
        raise BadSetting(f"{name} has {tag}=True, which other harnesses don't know: choose others")


def _described(name: str, values: Mapping[str, Any]) -> tuple[str, float]:
    """Return a point's kind, such as "scaled · beta=0 · N", and the value of N.

    N is the last axis with a number above 0. Without such an axis, the value is 1.
    """
    last = ""
    for axis, value in values.items():
        if not isinstance(value, str) and value > 0:
            last = axis
    settings = ", ".join(f"{axis}={value}" for axis, value in values.items() if axis != last)
    kind = " · ".join(filter(None, (name, settings, last)))
    return kind, float(values.get(last, 1.0))


def _on_any_stream(session: Session, call: Call) -> Callable[[Any], None]:
    """Return a declared benchmark's call as a function of a stream.

    The stream is the current one of CuPy and PyTorch, or the call's argument `stream`.
    """
    loans: dict[int, Any] = {}
    arguments = dict(call.kwargs or {})
    takes_stream = arguments.get("stream") == session.device.loan("cupy").handle

    def enqueue(stream: Any) -> None:
        if stream.ptr not in loans:
            device = copy(session.device)
            device.stream = stream
            loans[stream.ptr] = device.loan("cupy")
        loan = loans[stream.ptr]
        if takes_stream:
            arguments["stream"] = loan.handle
        with loan.current():
            call.fn(*call.args, **arguments)

    return enqueue


def by_timer(name: str, setup: Callable[[], Timer]) -> Reader:
    """Return a harness that times each work with the function that `setup` imports."""

    def read(works: Sequence[Workload]) -> Iterator[HarnessReading]:
        timer = setup()
        for work in works:
            started = time.perf_counter()
            us = timer(work)
            yield HarnessReading(name, work.kind, work.of, us, time.perf_counter() - started)

    return read


def rows_of(name: str, read: Reader, extra: str, works: Sequence[Workload]) -> list[HarnessReading]:
    """Return a harness's readings. If it fails, the missing rows have the reason.

    extra: the extra of this package that installs the harness
    """
    rows: list[HarnessReading] = []
    try:
        for row in read(works):
            if row.us is None or isfinite(row.us):
                rows.append(row)
            else:
                rows.append(replace(row, us=None, reason=f"it read {row.us} µs"))
    # Foreign code may raise anything, at import or at any launch; none of it may end the
    # comparison.
    except Exception as error:
        reason = in_words(error)
        if isinstance(error, ImportError):
            reason += f"; to get it: {install_command(extra)}"
        finished = {(row.work, row.of) for row in rows}
        for work in works:
            if (work.kind, work.of) not in finished:
                rows.append(HarnessReading(name, work.kind, work.of, reason=reason))
    return rows


def in_words(error: BaseException) -> str:
    """Return the class of a foreign error and the first line of its message."""
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def _on_torch(work: Workload) -> Callable[[], None]:
    """Return a function that enqueues the work on PyTorch's stream.

    It is the stream that is current when the function is called.
    """
    import torch

    return lambda: work.enqueue_on(torch.cuda.current_stream().cuda_stream)


def _do_bench(name: str) -> Timer:
    bench = getattr(importlib.import_module("triton.testing"), name)
    return lambda work: 1e3 * float(bench(_on_torch(work), return_mode="median"))


def _torch_timer() -> Timer:
    from torch.utils.benchmark import Timer as TorchTimer

    def timed(work: Workload) -> float:
        timer = TorchTimer(stmt="launch()", globals={"launch": _on_torch(work)})
        return 1e6 * float(timer.blocked_autorange(min_run_time=0.2).median)

    return timed


def _cupy() -> Timer:
    import cupy
    from cupyx.profiler import benchmark

    def timed(work: Workload) -> float:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            timings = benchmark(
                work.enqueue, (stream,), n_repeat=1000, n_warmup=10, max_duration=0.5
            )
        return 1e6 * float(cupy.median(cupy.asarray(timings.gpu_times)))

    return timed


def cupti_timer(timeline: CudaTimeline, stream: Any) -> Timer:
    """Return a timer by the GPU's own tracer (CUPTI), with a cold L2.

    A time is from the start of a launch's first kernel to the end of its last one. It depends on
    neither events nor launch times. A process can have only one tracer.
    """
    from cupti import cupti

    records = _traced_kernels(cupti)
    kind = cupti.ActivityKind.CONCURRENT_KERNEL

    def flushed() -> list[tuple[int, int]]:
        """Return the start and end of each kernel since the last call."""
        timeline.synchronize()
        cupti.activity_flush_all(FORCED)
        kernels = sorted(records)
        records.clear()
        return kernels

    def timed(work: Workload) -> float:
        # A first launch may load a module, which can't be enqueued behind the blocking kernel.
        work.enqueue(stream)
        cupti.activity_enable(kind)
        times = []
        try:
            for number in range(TRACED_LAUNCHES):
                if work.move is not None and number % TRACED_TURNS == 0:
                    work.move()
                timeline.draw_place()
                flushed()
                with blocked(timeline):
                    timeline.flush_l2()
                    work.enqueue(stream)
                launched = flushed()[1:]  # behind the flush
                if not launched:
                    raise LaunchFailed("the tracer saw no kernel for this launch")
                times.append((max(end for _, end in launched) - launched[0][0]) / 1e3)
        finally:
            cupti.activity_disable(kind)
            work.settle()
        return median(times[TRACED_LAUNCHES // 4 :]).value  # without the first ones, which warm up

    return timed


@cache
def _traced_kernels(cupti: Any) -> list[tuple[int, int]]:
    """Return a list that gets the start and end of each traced kernel, in nanoseconds.

    The blocking kernel isn't in it. It is cached, because CUPTI accepts callbacks only once.
    """
    records: list[tuple[int, int]] = []

    def completed(activities: list[Any]) -> None:
        records.extend(
            (kernel.start, kernel.end) for kernel in activities if str(kernel.name) != BLOCKING
        )

    cupti.activity_register_callbacks(lambda: (TRACE_BYTES, 0), completed)
    return records


def _nvbench(works: Sequence[Workload]) -> Iterator[HarnessReading]:
    """Yield the readings of all works after one call, since NVBench runs once per process.

    The wall times are NVBench's.
    """
    import cuda.bench as bench

    def benchmark_of(work: Workload) -> Callable[[Any], None]:
        def enqueue(launch: Any) -> None:
            work.enqueue_on(launch.get_stream().addressof())

        return lambda state: state.exec(enqueue)

    by_name = {f"work{number}": work for number, work in enumerate(works)}
    for name, work in by_name.items():
        benchmark = benchmark_of(work)
        benchmark.__name__ = name
        registered = bench.register(benchmark)
        registered.set_name(name)
        if work.kind != CUBLAS:
            registered.set_timeout(SHORT_TIMEOUT_S)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        with _stdout_to_stderr():
            bench.run_all_benchmarks([sys.argv[0], "--devices", "0", "--json", str(path)])
        document = json.loads(path.read_text(encoding="utf-8"))
    for name, _, numbers in nvbench_states(document):
        work = by_name[name]
        for title, tag in (("NVBench cold", "nv/cold/"), ("NVBench batch", "nv/batch/")):
            mean_s = numbers.get(f"{tag}time/gpu/mean")
            if mean_s is not None:
                wall_s = numbers.get(f"{tag}walltime")
                yield HarnessReading(title, work.kind, work.of, 1e6 * mean_s, wall_s)


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what native code prints to standard error.

    Standard output may be this program's JSON.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


# By name: the reader, and the extra that installs the harness.
HARNESSES: dict[str, tuple[Reader, str]] = {
    "CuPy benchmark": (by_timer("CuPy benchmark", _cupy), "cuda13"),
    "torch Timer": (by_timer("torch Timer", _torch_timer), "torch"),
    "do_bench": (by_timer("do_bench", partial(_do_bench, "do_bench")), "peers"),
    "do_bench_cudagraph": (
        by_timer("do_bench_cudagraph", partial(_do_bench, "do_bench_cudagraph")),
        "peers",
    ),
    "NVBench cold": (_nvbench, "peers"),
}
