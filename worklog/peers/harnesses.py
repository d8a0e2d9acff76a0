"""The other harnesses, each used as its documentation says, and the work that they time."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from worklog.errors import BadSetting
from worklog.harness import Harness, time_in_turn
from worklog.kernel import Kernel
from worklog.problem import Shape, random_inputs
from worklog.runner.declare import Benchmark, Skipped
from worklog.runner.launches import ALIGNED, Pool
from worklog.runner.point import called
from worklog.runner.timing import Call
from worklog.runs import Estimate, event_overhead_us, median

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice
    from worklog.harness.cuda_timeline import CudaTimeline
    from worklog.runner.session import Session

SAMPLING = Harness().but(budget_s=3.0, hot_ms=0.0)


@dataclass(frozen=True)
class Work:
    """Something to time: "spin" of a length in microseconds, "cuBLAS" or a rung of a size N, or a declared benchmark
    with the value of its last axis of numbers above 0. enqueue takes a CuPy stream. move: moves its buffers to a new
    random placement; settle: back to their own; None for work without buffers. kernels: of one call, if known.
    """

    kind: str
    of: float
    enqueue: Callable[[Any], None]
    move: Callable[[], None] | None = None
    settle: Callable[[], None] | None = None
    kernels: int | None = None


class Read(NamedTuple):
    """One measurement. interval: the median with its interval, in microseconds, event overhead included. converged:
    whether it reached its precision without it. wall_s: seconds, warm-up included. sm_mhz: the median SM clock. hot:
    of launches in a row, without the overhead; None unless the harness takes it.
    """

    interval: Estimate
    converged: bool
    wall_s: float
    sm_mhz: float | None
    hot: Estimate | None = None


@dataclass(frozen=True)
class OurHarness:
    """This harness on a device's stream. offset_us: the event overhead."""

    timeline: CudaTimeline
    device: CudaDevice
    offset_us: float
    sampling: Harness = SAMPLING

    def read(self, work: Work, timer: str = "events") -> Read:
        """timer: "events", or "cupti", which has no event overhead."""
        started = time.perf_counter()
        harness = self.sampling.but(timer=timer)
        reading = time_in_turn(
            self.timeline,
            [lambda: work.enqueue(self.device.stream)],
            harness,
            offset_us=event_overhead_us(harness.as_dict(), {"offset_us": self.offset_us}),
            move=work.move,
        )
        took = time.perf_counter() - started
        if work.settle is not None:
            work.settle()
        found = median(reading.counted("subject"), reading.placements("subject"))
        hot = median(reading.hot[0]) if reading.hot else None
        return Read(found, reading.converged, took, reading.sm_mhz, hot)


def works_on(session: Session, known_us: Sequence[int], sizes: Sequence[int]) -> list[Work]:
    """Kernels of known length in microseconds and FP32 cuBLAS at some sizes, each launched once, so that nothing is
    loaded later. Raises LaunchFailed, OutOfMemory.
    """
    spin = session.timeline.spin
    # Functions, since cupyx's benchmark reads __name__, which a partial does not have.
    spins = [Work("spin", us, lambda stream, ns=1000 * us: spin(ns, stream)) for us in known_us]  # type: ignore[misc]
    works = [*spins, *map(product, sizes)]
    for work in works:
        work.enqueue(session.device.stream)
    session.device.synchronize()
    return works


def product(size: int, kernel: Kernel | None = None) -> Work:
    """FP32 cuBLAS, or a kernel, at a size, in buffers that can move in a pool of its own, if the GPU's memory has room
    for one.
    """
    from worklog.gpu.cuda import Cublas, CudaDevice

    shape, device = Shape(size, size, size), CudaDevice()
    subject = kernel.load(device) if kernel else Cublas(device)
    home = (*map(device.upload, random_inputs(shape, np.random.default_rng(0))), device.allocate(size * size))
    sizes = [size * size] * 3 + [subject.workspace_elements(shape)]
    now, pool = list(home), Pool.to_hold(device, sum(sizes) + len(sizes) * ALIGNED)
    device.synchronize()

    def enqueue(stream: Any) -> None:
        if stream is not device.stream:
            device.stream = stream
            if isinstance(subject, Cublas):
                subject.follow(stream)
        subject.enqueue(shape, 1.0, now[0], now[1], 0.0, now[2])

    def move() -> None:
        assert pool is not None
        *now[:], workspace = pool.place(sizes)
        subject.use_workspace(workspace)
        device.copy(now[0], home[0])
        device.copy(now[1], home[1])

    def settle() -> None:
        now[:] = home
        subject.use_workspace(None)

    enqueue(device.stream)
    device.synchronize()
    return Work(subject.name, size, enqueue, None if pool is None else move, settle, subject.kernels(shape))


def declared_works(session: Session, benchmarks: Sequence[Benchmark]) -> list[Work]:
    """Every point of declared benchmarks that isn't skipped, each launched once. Raises BadSetting for one that the
    other harnesses can't time, and what its function raises.
    """
    session.user_kernels = {one.name: one.kernel for one in benchmarks}
    works: list[Work] = []
    for name, axes in ((one.name, point.values) for one in benchmarks for point in one.points() if not point.skipped):
        numbers = [(axis, value) for axis, value in axes.items() if not isinstance(value, str) and value > 0]
        last, of = numbers[-1] if numbers else ("", 1)
        others = ", ".join(f"{axis}={value}" for axis, value in axes.items() if axis != last)
        kind = " · ".join(filter(None, (name, others, last)))
        try:
            made = called(session, name, axes)
        except Skipped:
            continue
        if given := [tag for tag in ("sync", "timer") if getattr(made, tag)]:
            raise BadSetting(f"{name} has {given[0]}=True, which other harnesses don't know: choose others")
        works.append(Work(kind, of, _enqueued(session, made)))
        works[-1].enqueue(session.device.stream)
    if not works:
        raise BadSetting("nothing to time: every point is skipped")
    session.device.synchronize()
    return works


def _enqueued(session: Session, made: Call) -> Callable[[Any], None]:
    """The call of a declared benchmark on any stream: the current one of CuPy and PyTorch, or what it gets as one."""
    home, loans = session.device.loan("cupy"), dict[int, Any]()
    given = dict(made.kwargs or {})
    takes_stream = given.get("stream") == home.handle

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


COLD, BATCH = "nv/cold/", "nv/batch/"
SHORT_TIMEOUT_S = 6.0  # 0.5 s of GPU time in launches of a microsecond would take longer than all the others


Found = tuple[str, Work, float, float | None]  # the harness's name, the work, microseconds, seconds that it took


@dataclass(frozen=True)
class OtherHarness:
    """read: from works to the reading of each, in turn; it may raise anything. extra: what brings it."""

    name: str
    read: Callable[[Sequence[Work]], Iterator[Found]]
    extra: str = "peers"


def _each(name: str, setup: Callable[[], Callable[[Work], float]], works: Sequence[Work]) -> Iterator[Found]:
    """Time each work in turn with the function that `setup` imports: from a work to microseconds."""
    timed = setup()
    for work in works:
        started = time.perf_counter()
        us = timed(work)
        yield name, work, us, time.perf_counter() - started


def _on_torch(work: Work) -> Callable[[], None]:
    """The work on PyTorch's current stream, whichever that is when it is called."""
    import torch

    from worklog.gpu.cuda import stream_of

    def launch() -> None:
        work.enqueue(stream_of(torch.cuda.current_stream().cuda_stream))

    return launch


def _do_bench(name: str) -> Callable[[Work], float]:
    bench = getattr(importlib.import_module("triton.testing"), name)
    return lambda work: 1e3 * float(bench(_on_torch(work), return_mode="median"))


def _torch_timer() -> Callable[[Work], float]:
    from torch.utils.benchmark import Timer

    def timed(work: Work) -> float:
        timer = Timer(stmt="launch()", globals={"launch": _on_torch(work)})
        return 1e6 * float(timer.blocked_autorange(min_run_time=0.2).median)

    return timed


def _cupy() -> Callable[[Work], float]:
    import cupy
    from cupyx.profiler import benchmark

    def timed(work: Work) -> float:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            found = benchmark(work.enqueue, (stream,), n_repeat=1000, n_warmup=10, max_duration=0.5)
        return 1e6 * float(cupy.median(cupy.asarray(found.gpu_times)))

    return timed


def _nvbench(works: Sequence[Work]) -> Iterator[Found]:
    """All works in one call: NVBench runs once per process. The wall times are its own."""
    import cuda.bench as bench

    names = {f"work{number}": work for number, work in enumerate(works)}
    for name, work in names.items():
        registered = bench.register(_benchmark(name, work))
        registered.set_name(name)
        if work.kind != "cuBLAS":
            registered.set_timeout(SHORT_TIMEOUT_S)
    with tempfile.TemporaryDirectory() as folder, _stdout_to_stderr():
        path = Path(folder) / "nvbench.json"
        bench.run_all_benchmarks([sys.argv[0], "--devices", "0", "--json", str(path)])
        document = json.loads(path.read_text(encoding="utf-8"))
    for name, summaries in nvbench_summaries(document).items():
        for title, tag in (("NVBench cold", COLD), ("NVBench batch", BATCH)):
            mean = summaries.get(f"{tag}time/gpu/mean")
            if mean is not None:
                yield title, names[name], 1e6 * mean, summaries.get(f"{tag}walltime")


def _benchmark(name: str, work: Work) -> Callable[[Any], None]:
    from worklog.gpu.cuda import stream_of

    def benchmark(state: Any) -> None:
        state.exec(lambda launch: work.enqueue(stream_of(launch.get_stream().addressof())))

    benchmark.__name__ = name
    return benchmark


def nvbench_summaries(document: dict[str, Any]) -> dict[str, dict[str, float]]:
    """From NVBench's JSON: the numbers of each benchmark's first state by their tags; times are in seconds."""
    return {
        benchmark["name"]: {
            summary["tag"]: float(datum["value"])
            for state in benchmark["states"][:1]
            for summary in state.get("summaries") or ()
            for datum in summary.get("data") or ()
            if datum["name"] == "value" and datum["type"] in ("float64", "int64")
        }
        for benchmark in document["benchmarks"]
    }


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """NVBench's native code prints its tables to standard output, where ours may be JSON."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


HARNESSES = (
    OtherHarness("CuPy benchmark", partial(_each, "CuPy benchmark", _cupy), "cuda13"),
    OtherHarness("torch Timer", partial(_each, "torch Timer", _torch_timer), "torch"),
    OtherHarness("do_bench", partial(_each, "do_bench", partial(_do_bench, "do_bench"))),
    OtherHarness("do_bench_cudagraph", partial(_each, "do_bench_cudagraph", partial(_do_bench, "do_bench_cudagraph"))),
    OtherHarness("NVBench cold", _nvbench),
)
