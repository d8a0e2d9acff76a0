"""NVBench's Python interface (cuda.bench) for declared benchmarks.

A file whose `import cuda.bench as bench` becomes `import worklog.benchmarks.nvbench as bench` is
measured by `worklog bench FILE.py`. Sampling is set with --set instead of bench.option, and --set
hot_ms=0 is what batched=False means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from worklog.benchmarks import declare
from worklog.benchmarks.declare import Benchmark
from worklog.errors import BadSetting
from worklog.problem.axes import Axis

Generator = Callable[[Any], object]
AXES = "__worklog_axes__"  # of a function that axis decorates


@dataclass(frozen=True)
class CudaStream:
    """A CUDA stream, by its handle; CuPy and cuda.core accept it, too."""

    handle: int

    def addressof(self) -> int:
        """Return the handle."""
        return self.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class NvbenchState(declare.State):
    """A declared benchmark's state with NVBench's names."""

    def get_int64(self, name: str) -> Any:
        """Return the value of an axis, of any kind.

        Raises BadSetting for an unknown one.
        """
        return self[name]

    def get_int64_or_default(self, name: str, default: Any) -> Any:
        """Return the value of an axis, or a default if there is no such axis."""
        return self.axes.get(name, default)

    get_float64 = get_string = get_int64
    get_float64_or_default = get_string_or_default = get_int64_or_default

    def get_device(self) -> int:
        """Return the number of the current CUDA device."""
        import cupy

        return int(cupy.cuda.runtime.getDevice())

    def get_stream(self) -> CudaStream:
        """Return the harness's stream."""
        return CudaStream(self.stream)

    def set_stream(self, stream: Any) -> None:
        """Accept the harness's stream, which is the current one of CuPy and PyTorch.

        Raises BadSetting for another stream.
        """
        handle = stream.ptr if hasattr(stream, "ptr") else stream.__cuda_stream__()[1]  # CuPy: ptr
        if handle != self.stream:
            raise BadSetting(
                "state.set_stream: the harness times its own stream, which is the current one: "
                "use that"
            )

    def add_element_count(self, count: int, column_name: str = "") -> None:
        """Add elements, as State.elements. Columns have their own names here."""
        self.elements(count)

    def add_global_memory_reads(self, nbytes: int, column_name: str = "") -> None:
        """Add bytes that are read, as State.reads."""
        self.reads(nbytes)

    def add_global_memory_writes(self, nbytes: int, column_name: str = "") -> None:
        """Add bytes that are written, as State.writes."""
        self.writes(nbytes)

    def exec(
        self,
        launcher: Callable[..., Any],
        *,
        batched: bool = True,
        sync: bool = False,
        timer: bool = False,
    ) -> None:
        """Time `launcher(launch)`, as State.run.

        With timer=True `launcher(launch, timer)`.
        """
        if timer:
            self.run(lambda stopwatch: launcher(self, stopwatch), sync=sync, timer=True)
        else:
            self.run(partial(launcher, self), sync=sync)


State = NvbenchState  # NVBench's name
Launch = NvbenchState  # what a launcher gets: get_stream() is the stream that the work belongs on
Timer = Any  # and with timer=True: worklog's stopwatch has its start() and stop()


def register() -> Callable[[Generator], Benchmark]:
    """Return a decorator that declares a benchmark with the axes below it."""

    def declare_benchmark(function: Generator) -> Benchmark:
        axes = reversed(getattr(function, AXES, ()))
        return replace(declare.bench(*axes)(function), state=NvbenchState)

    return declare_benchmark


def _axis(
    kind: str, convert: Callable[[Any], Any], name: str, values: Iterable[Any]
) -> Callable[[Any], Any]:
    """Return a decorator that adds an axis to a function."""
    new_axis = Axis(name, tuple(map(convert, values)), kind)

    def add(function: Any) -> Any:
        setattr(function, AXES, [*getattr(function, AXES, ()), new_axis])
        return function

    return add


axis = SimpleNamespace(
    int64=partial(_axis, "int", int),
    int64_power_of_two=partial(_axis, "pow2", lambda exponent: 2 ** int(exponent)),
    float64=partial(_axis, "float", float),
    string=partial(_axis, "str", str),
)
