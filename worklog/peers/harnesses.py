"""The other harnesses, each used as its documentation says, and the work that all harnesses time: kernels of known
length, FP32 cuBLAS, and points of declared benchmarks.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, install_command
from worklog.harness import blocked, nothing
from worklog.kernel import Kernel
from worklog.problem import Shape, random_inputs
from worklog.runner.declare import Benchmark
from worklog.runner.launches import ALIGNED, Pool
from worklog.runner.measure import Skipped
from worklog.runner.timing import Call
from worklog.runner.worker import called
from worklog.runs import CUBLAS, KNOWN, Row, median
from worklog.runs.changes import nvbench_states

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline
    from worklog.runner.session import Session

Timer = Callable[["Work"], float]  # microseconds of one launch
Reader = Callable[
    [Sequence["Work"]], Iterator[Row]
]  # the reading of each work, in turn; it may raise anything
# and launches in one placement, as the harness has
TRACED_LAUNCHES = 200
TRACED_TURNS = 4
BLOCKING = "harness_hold"  # the blocking kernel's name
TRACE_BYTES = 2**20
FORCED = (
    1  # cupti_activity.h, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: hand over buffers that are not full
)
SHORT_TIMEOUT_S = (
    6.0  # 0.5 s of GPU time in launches of a microsecond would take longer than all the others
)


@dataclass(frozen=True)
class Work:
    """kind: KNOWN, "cuBLAS", a rung, or a declared benchmark. of: the length in microseconds, the size N, or the value
    of the benchmark's last axis of numbers above 0. enqueue takes a CuPy stream. move: moves the buffers to a new
    random placement, None for work without buffers; settle: back to their own.
    """

    kind: str
    of: float
    enqueue: Callable[[Any], None]
    move: Callable[[], None] | None = None
    settle: Callable[[], None] = nothing

    def enqueue_on(self, handle: int) -> None:
        """Enqueue on the CUDA stream of this handle."""
        from worklog.gpu.cuda import stream_of

        self.enqueue(stream_of(handle))


def works_on(session: Session, known_us: Sequence[int], sizes: Sequence[int]) -> list[Work]:
    """Kernels of known length in microseconds and FP32 cuBLAS at some sizes, each launched once, so that nothing is
    loaded later. Raises LaunchFailed, OutOfMemory.
    """

    def spin(us: int) -> Work:
        def enqueue(
            stream: Any,
        ) -> None:  # cupyx's benchmark reads __name__, which a partial doesn't have
            session.timeline.spin(1000 * us, stream)

        return Work(KNOWN, us, enqueue)

    works = [*map(spin, known_us), *map(product, sizes)]
    for work in works:
        work.enqueue(session.device.stream)
    session.device.synchronize()
    return works


def product(size: int, kernel: Kernel | None = None) -> Work:
    """FP32 cuBLAS, or a kernel, at a size, in buffers that move in a pool of its own, if there is memory for one."""
    from worklog.gpu.cuda import Cublas, CudaDevice

    shape = Shape(size, size, size)
    device = CudaDevice()
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
    """Every point that isn't skipped, launched once. Raises BadSetting for one that other harnesses can't time."""
    session.user_kernels = {benchmark.name: benchmark.kernel for benchmark in benchmarks}
    works: list[Work] = []
    for benchmark, point in (
        (declared, point) for declared in benchmarks for point in declared.space.points()
    ):
        if point.skipped:
            continue
        try:
            made = called(session, benchmark.name, point.values)
        except Skipped:
            continue
        if made.sync or made.timer:
            tag = "sync" if made.sync else "timer"
            raise BadSetting(
                f"{benchmark.name} has {tag}=True, which other harnesses don't know: choose others"
            )
        # Such as "scaled · beta=0 · N", and the value of N, the last axis with a number above 0.
        numbers = [
            axis for axis, value in point.values.items() if not isinstance(value, str) and value > 0
        ]
        last = numbers[-1] if numbers else ""
        others = ", ".join(
            f"{axis}={value}" for axis, value in point.values.items() if axis != last
        )
        kind = " · ".join(filter(None, (benchmark.name, others, last)))
        works.append(Work(kind, float(point.values.get(last, 1.0)), _on_any_stream(session, made)))
        works[-1].enqueue(session.device.stream)
    if not works:
        raise BadSetting("nothing to time: every point is skipped")
    session.device.synchronize()
    return works


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
        with loan.current():
            made.fn(*made.args, **given | ({"stream": loan.handle} if takes_stream else {}))

    return enqueue


def by_timer(name: str, setup: Callable[[], Timer]) -> Reader:
    """A harness that times each work with the function that `setup` imports."""

    def read(works: Sequence[Work]) -> Iterator[Row]:
        timer = setup()
        for work in works:
            started = time.perf_counter()
            us = timer(work)
            yield Row(name, work.kind, work.of, us, time.perf_counter() - started)

    return read


def rows_of(name: str, read: Reader, extra: str, works: Sequence[Work]) -> list[Row]:
    """What a harness reads; for an error in it, rows with the reason. extra: what brings the harness."""
    rows: list[Row] = []
    try:
        for row in read(works):
            if row.us is not None and not isfinite(row.us):
                row = replace(row, us=None, reason=f"it read {row.us} µs")
            rows.append(row)
    # Foreign code may raise anything, at import or at any launch; none of it may end the comparison.
    except Exception as error:
        why = in_words(error) + (
            f"; to get it: {install_command(extra)}" if isinstance(error, ImportError) else ""
        )
        done = {(row.work, row.of) for row in rows}
        rows += [Row(name, w.kind, w.of, reason=why) for w in works if (w.kind, w.of) not in done]
    return rows


def in_words(error: BaseException) -> str:
    """The class of a foreign error and the first line of its message."""
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def _on_torch(work: Work) -> Callable[[], None]:
    """The work on PyTorch's current stream, whichever that is when it is called."""
    import torch

    return lambda: work.enqueue_on(torch.cuda.current_stream().cuda_stream)


def _do_bench(name: str) -> Timer:
    bench = getattr(importlib.import_module("triton.testing"), name)
    return lambda work: 1e3 * float(bench(_on_torch(work), return_mode="median"))


def _torch_timer() -> Timer:
    from torch.utils.benchmark import Timer as TorchTimer

    def timed(work: Work) -> float:
        timer = TorchTimer(stmt="launch()", globals={"launch": _on_torch(work)})
        return 1e6 * float(timer.blocked_autorange(min_run_time=0.2).median)

    return timed


def _cupy() -> Timer:
    import cupy
    from cupyx.profiler import benchmark

    def timed(work: Work) -> float:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            timings = benchmark(
                work.enqueue, (stream,), n_repeat=1000, n_warmup=10, max_duration=0.5
            )
        return 1e6 * float(cupy.median(cupy.asarray(timings.gpu_times)))

    return timed


def cupti_timer(timeline: CudaTimeline, stream: Any) -> Timer:
    """The GPU's own tracer (CUPTI) with a cold L2: from the start of a launch's first kernel to the end of its last,
    which depends on neither events nor launch times. A process can have only one tracer.
    """
    from cupti import cupti

    records = _traced_kernels(cupti)
    kind = cupti.ActivityKind.CONCURRENT_KERNEL

    def flushed() -> list[tuple[int, int]]:
        """What was traced since the last call."""
        timeline.synchronize()
        cupti.activity_flush_all(FORCED)
        kernels = sorted(records)
        records.clear()
        return kernels

    def timed(work: Work) -> float:
        work.enqueue(
            stream
        )  # a first launch may load a module, which can't be behind the blocking kernel
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
    """Start and end of each traced kernel but the blocking one, in nanoseconds. CUPTI takes callbacks once."""
    records: list[tuple[int, int]] = []

    def completed(activities: list[Any]) -> None:
        records.extend(
            (kernel.start, kernel.end) for kernel in activities if str(kernel.name) != BLOCKING
        )

    cupti.activity_register_callbacks(lambda: (TRACE_BYTES, 0), completed)
    return records


def _nvbench(works: Sequence[Work]) -> Iterator[Row]:
    """All works in one call: NVBench runs once per process. The wall times are its own."""
    import cuda.bench as bench

    def benchmark_of(work: Work) -> Callable[[Any], None]:
        return lambda state: state.exec(
            lambda launch: work.enqueue_on(launch.get_stream().addressof())
        )

    names = {f"work{number}": work for number, work in enumerate(works)}
    for name, work in names.items():
        benchmark = benchmark_of(work)
        benchmark.__name__ = name
        registered = bench.register(benchmark)
        registered.set_name(name)
        if work.kind != CUBLAS:
            registered.set_timeout(SHORT_TIMEOUT_S)
    # Its native code prints tables to standard output, where ours may be JSON.
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "nvbench.json"
            bench.run_all_benchmarks([sys.argv[0], "--devices", "0", "--json", str(path)])
            document = json.loads(path.read_text(encoding="utf-8"))
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    for name, _, numbers in nvbench_states(document):
        for title, tag in (("NVBench cold", "nv/cold/"), ("NVBench batch", "nv/batch/")):
            if (mean := numbers.get(f"{tag}time/gpu/mean")) is not None:
                yield Row(
                    title,
                    names[name].kind,
                    names[name].of,
                    1e6 * mean,
                    numbers.get(f"{tag}walltime"),
                )


# By name: how it reads, and the extra that brings it.
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
