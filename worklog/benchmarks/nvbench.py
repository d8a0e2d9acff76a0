"""NVBench's Python interface (cuda.bench) for declared benchmarks: a file whose `import cuda.bench as bench` becomes
`import worklog.runner.nvbench as bench` is measured by `worklog bench FILE.py`.

Sampling is set with --set instead of bench.option, and --set hot_ms=0 is what batched=False means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from worklog.errors import BadSetting
from worklog.problem import Axis
from worklog.runner import declare
from worklog.runner.declare import Benchmark

Generator = Callable[[Any], object]
AXES = "__worklog_axes__"  # of a function that axis decorates


@dataclass(frozen=True)
class CudaStream:
    """A CUDA stream, by its handle; CuPy and cuda.core take it, too."""

    handle: int

    def addressof(self) -> int:
        """The handle."""
        return self.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class State(declare.State):
    """A declared benchmark's state with NVBench's names."""

    def get_int64(self, name: str) -> Any:
        """The value of an axis, of any kind. Raises BadSetting for an unknown one."""
        return self[name]

    def get_int64_or_default(self, name: str, default: Any) -> Any:
        """The value of an axis, or a default where there is no such axis."""
        return self.axes.get(name, default)

    get_float64 = get_string = get_int64
    get_float64_or_default = get_string_or_default = get_int64_or_default

    def get_device(self) -> int:
        """The number of the current CUDA device."""
        import cupy

        return int(cupy.cuda.runtime.getDevice())

    def get_stream(self) -> CudaStream:
        """The harness's stream."""
        return CudaStream(self.stream)

    def set_stream(self, stream: Any) -> None:
        """Accept the harness's stream, which is the current one of CuPy and PyTorch. Raises BadSetting for another."""
        handle = (
            stream.ptr if hasattr(stream, "ptr") else stream.__cuda_stream__()[1]
        )  # CuPy's has ptr
        if handle != self.stream:
            raise BadSetting(
                "state.set_stream: the harness times its own stream, which is the current one: use that"
            )

    def add_element_count(self, count: int, column_name: str = "") -> None:
        """State.elements; columns have their own names here. The next two are State.reads and State.writes."""
        self.elements(count)

    def add_global_memory_reads(self, nbytes: int, column_name: str = "") -> None:  # noqa: D102
        self.reads(nbytes)

    def add_global_memory_writes(self, nbytes: int, column_name: str = "") -> None:  # noqa: D102
        self.writes(nbytes)

    def exec(
        self,
        launcher: Callable[..., Any],
        *,
        batched: bool = True,
        sync: bool = False,
        timer: bool = False,
    ) -> None:
        """Time `launcher(launch)`, or with timer=True `launcher(launch, timer)`, as State.run."""
        timed = (lambda stopwatch: launcher(self, stopwatch)) if timer else partial(launcher, self)
        self.run(timed, sync=sync, timer=timer)


Launch = State  # what a launcher gets: its get_stream() is the stream that the work belongs on
Timer = Any  # and with timer=True: worklog's stopwatch has its start() and stop()


def register() -> Callable[[Generator], Benchmark]:
    """A decorator that declares a benchmark with the axes below it."""
    return lambda function: replace(
        declare.bench(*reversed(getattr(function, AXES, ())))(function), state=State
    )


def _axis(
    kind: str, convert: Callable[[Any], Any], name: str, values: Iterable[Any]
) -> Callable[[Any], Any]:
    made = Axis(name, tuple(map(convert, values)), kind)

    def add(function: Any) -> Any:
        setattr(function, AXES, [*getattr(function, AXES, ()), made])
        return function

    return add


axis = SimpleNamespace(
    int64=partial(_axis, "int", int),
    int64_power_of_two=partial(_axis, "pow2", lambda exponent: 2 ** int(exponent)),
    float64=partial(_axis, "float", float),
    string=partial(_axis, "str", str),
)
