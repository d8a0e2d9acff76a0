"""Declared benchmarks: `@worklog.bench` makes a function a named benchmark with axes.

It is measured at each configuration of its axes like everything else: in a child process, by the
harness, into a run. The words are NVBench's. Its generator is the decorated function, and its
launcher is what the function returns. state.exec is State.run, add_element_count is State.elements,
and add_global_memory_reads is State.reads.
"""

from __future__ import annotations

import fnmatch
import inspect
import linecache
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from worklog.benchmarks.call import Call, CrossCheck
from worklog.errors import BadSetting, Skipped, listed, meant
from worklog.gpu.clocks import Datapath
from worklog.kernel import Device, HostFunction, HostKernel, Runnable, loan_of, signature_of
from worklog.problem import Point
from worklog.problem.axes import Axis, Space
from worklog.runs import Gpu
from worklog.runs.text import Displayable, Table

MOST_SHOWN = 8  # values of an axis; of more, the first ones and the last
Function = Callable[["State"], object]
Values = Mapping[str, Any] | Sequence[Any]
Skip = Callable[[Mapping[str, Any]], str | bool | None]


class State:
    """One configuration of a declared benchmark, as the decorated function gets it.

    `state["N"]` or `state.N` is the value of an axis: an int, a float, a str, or the object that
    the axis names.

    stream: the harness's CUDA stream as an integer handle; the current one of CuPy and PyTorch
    device: the GPU (worklog.runs.Gpu)

    Example: `x = torch.rand(state.N, device="cuda"); state.reads(x.nbytes)`.
    """

    def __init__(self, values: Mapping[str, Any], stream: int, device: Gpu) -> None:
        self.axes = MappingProxyType(dict(values))
        self.stream = stream
        self.device = device
        self.work = defaultdict[str, Any](float)
        self.call: Call | None = None

    def __getitem__(self, axis: str) -> Any:
        if axis not in self.axes:
            raise BadSetting(
                f"there is no axis {axis!r}{meant(axis, self.axes)}: it has {', '.join(self.axes)}"
            )
        return self.axes[axis]

    def __getattr__(self, axis: str) -> Any:
        if axis.startswith("__") or axis not in self.axes:
            raise AttributeError(
                f"the state has neither an axis nor an attribute {axis!r}{meant(axis, self.axes)}"
            )
        return self.axes[axis]

    def skip(self, reason: str) -> NoReturn:
        """Skip this configuration: the run states the reason, and the others go on."""
        raise Skipped(reason)

    def elements(self, count: float) -> None:
        """Add elements that one call processes, for items/s."""
        self.work["elements"] += count

    def reads(self, count: float) -> None:
        """Add bytes that one call reads from memory, for GB/s and its share of a copy."""
        self.work["reads"] += count

    def writes(self, count: float) -> None:
        """Add bytes that one call writes to memory."""
        self.work["writes"] += count

    def flops(self, count: float) -> None:
        """Add floating-point operations of one call, for TFLOP/s."""
        self.work["flops"] += count

    def run(
        self,
        fn: Callable[..., Any],
        *args: Any,
        sync: bool = False,
        timer: bool = False,
        against: Callable[..., Any] | None = None,
        datapath: Datapath | None = None,
        cross_check: CrossCheck = "wall clock",
        **kwargs: Any,
    ) -> None:
        """Time `fn(*args, **kwargs)` once the decorated function has returned.

        It is timed alone, or alternates with `against` on the same arguments.

        sync, timer, datapath, cross_check: as of worklog.time

        Raises BadSetting for a second call.

        Example: `state.run(torch.softmax, x, dim=1)`.
        """
        if self.call is not None:
            raise BadSetting(
                "state.run was called before: a benchmark times one call; declare another benchmark"
            )
        self.call = Call(
            fn,
            args,
            kwargs,
            against,
            sync=sync,
            timer=timer,
            datapath=datapath,
            cross_check=cross_check,
        )


@dataclass(frozen=True, repr=False)
class Benchmark(Displayable):
    """A declared benchmark, displayed as its axes with the number of configurations."""

    name: str  # in runs, tables and charts
    function: Function
    space: Space
    # For an axis whose values are names: the object that each name stands for.
    objects: Mapping[str, Mapping[str, Any]]
    state: type[State] = State  # what the function gets

    def __call__(self, state: State) -> object:
        """Call the decorated function, for another benchmark that continues from it."""
        return self.function(state)

    def values(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration's values, with the objects in place of their names."""
        values = {}
        for axis, name in names.items():
            values[axis] = self.objects[axis][name] if axis in self.objects else name
        return values

    def points(self) -> list[Point]:
        """Return the point of each configuration, also of those that are skipped."""
        configurations = self.space.configurations()
        return [Point(axes=tuple(configuration.values.items())) for configuration in configurations]

    @cached_property
    def kernel(self) -> BenchmarkKernel:
        """The function as a kernel, which a child process loads by its file and hash.

        The source of a notebook's cell is written to a file. Raises BadSetting without source.
        """
        file = inspect.unwrap(self.function).__code__.co_filename
        path = Path(file)
        if not path.is_file():
            source = "".join(linecache.getlines(file))
            if not source:
                raise BadSetting(
                    f"{self.name}: a child process cannot load it: define it in a file or a cell"
                )
            path = Path(tempfile.mkdtemp(prefix="worklog-")) / "cell.py"
            path.write_text(source, encoding="utf-8")
        return BenchmarkKernel.of_place(
            HostFunction.of(f"{path}:{self.function.__name__}"), self.name
        )

    def table(self) -> Table:
        """Return the axes with their values, under the number of configurations."""
        rows = []
        for axis in self.space.axes:
            texts = [_value_text(axis, value) for value in axis.values]
            if len(texts) > MOST_SHOWN:
                texts = [*texts[: MOST_SHOWN - 2], "…", texts[-1]]
            rows.append((axis.name, axis.kind, str(len(axis.values)), ", ".join(texts)))
        return Table(self.space.preview(), ("axis", "kind", "values", ""), rows, left=4)


class BenchmarkKernel(HostKernel):
    """A declared benchmark as a kernel, which a child process loads by its file and name."""

    def load(self, device: Device, *, fresh: bool = False) -> LoadedBenchmark:
        """Return the benchmark on a GPU.

        Raises NoGpu, and BadSetting for a file that can't be loaded.
        """
        return LoadedBenchmark(self, device)


class LoadedBenchmark(Runnable):
    """A declared benchmark on a GPU. Its function states what is timed at a point."""

    def __init__(self, kernel: BenchmarkKernel, device: Device) -> None:
        assert kernel.host is not None
        self.name = kernel.name
        self.kernel = kernel
        self.benchmark = benchmarks_of(kernel.host)[kernel.name]
        self.loan = loan_of(device, f"{kernel.name} is a declared benchmark")("cupy")

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return self.kernel.describe()

    def call(self, point: Point, gpu: Gpu) -> Call:
        """Return what the benchmark times: its launcher, its state.run, or itself.

        Raises Skipped if the benchmark skips the point, and what its function raises.
        """
        benchmark = self.benchmark
        axes = dict(point.axes)
        reason = benchmark.space.skip(axes)
        if reason:
            raise Skipped(reason)
        new_state = partial(benchmark.state, benchmark.values(axes), self.loan.handle, gpu)
        state = new_state()
        with self.loan.current():
            returned = benchmark(state)
        if state.call is not None:
            call = state.call
        elif callable(returned):
            call = Call(returned)
        else:
            call = Call(lambda: benchmark(new_state()))
        kwargs = dict(call.kwargs or {})
        if _requires_stream(call.fn):
            kwargs.setdefault("stream", self.loan.handle)
        work: dict[str, Any] = dict(state.work)
        return replace(call, kwargs=kwargs, **work)


def _requires_stream(fn: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter `stream` without a default."""
    signature = signature_of(fn)
    if signature is None:
        return False
    stream = signature.parameters.get("stream")
    return stream is not None and stream.default is stream.empty


def _value_text(axis: Axis, value: Any) -> str:
    """Return a value as the axis's kind writes it: a power of two as 2^10."""
    if axis.kind == "pow2":
        return f"2^{int(value).bit_length() - 1}"
    return str(value)


def bench(
    *axes: str | Axis,
    skip: Skip | None = None,
    together: Sequence[str] | Sequence[Sequence[str]] = (),
    name: str = "",
    **named: Values,
) -> Callable[[Function], Benchmark]:
    """Return a decorator that declares a benchmark.

    The function gets a `State` at each combination of the axes' values. It returns a launcher,
    which takes nothing, or a required parameter `stream` (the handle); or it calls state.run; or it
    enqueues the work itself, and then is what is timed. Work goes to the current stream. What
    raises CompileFailed or has no memory is skipped with the reason, and the other configurations
    go on. Results aren't checked. `worklog bench FILE.py` measures all benchmarks of a file.

    axes: as "N[pow2]=20:26", "dtype[str]=float32,float16", or Axis
    named: axes whose values are given in Python: a list of numbers or strings, or a mapping from
        names to any objects, such as functions and types
    together: names of axes, or several groups of names, that go together instead of in all
        combinations
    skip: gets the values of a configuration before anything else is done, and returns why it is
        skipped, or None
    name: of the benchmark (default: the function's)

    Raises BadSetting. Example:

        @worklog.bench("N[pow2]=10:14")
        def softmax(state):
            x = torch.rand(state.N, state.N, device="cuda")
            state.reads(x.nbytes)
            return lambda: torch.softmax(x, 1)
    """
    if any(map(callable, axes)):
        raise BadSetting(
            "@worklog.bench needs parentheses: write @worklog.bench() above a function without axes"
        )
    are_axes = all(type(axis) in (str, Axis) for axis in axes)
    if not are_axes or isinstance(together, str) or isinstance(skip, str):
        raise BadSetting(
            "worklog.bench: give axes as texts, together as a list of names, skip as a function "
            "of values"
        )
    space_axes = [axis if isinstance(axis, Axis) else Axis.parse(axis) for axis in axes]
    for axis, values in named.items():
        _require_not_misspelt(axis, values, [*named, *(axis.name for axis in space_axes)])
        space_axes.append(_axis(axis, values))
    objects = {axis: values for axis, values in named.items() if isinstance(values, Mapping)}
    groups: Any = [together] if together and isinstance(together[0], str) else together

    def declare(function: Function) -> Benchmark:
        benchmark_name = name or function.__name__
        space = Space(benchmark_name, tuple(space_axes), together=tuple(map(tuple, groups)))
        benchmark = Benchmark(benchmark_name, function, space, objects)

        def skip_reason(names: Mapping[str, Any]) -> str | None:
            reason = skip(benchmark.values(names)) if skip else None
            if not reason:
                return None
            return reason if isinstance(reason, str) else "its skip function says so"

        return replace(benchmark, space=replace(space, skip=skip_reason))

    return declare


def _require_not_misspelt(keyword: str, value: Any, axes: Iterable[str]) -> None:
    """Raise BadSetting for a misspelt argument of bench, which would be taken for an axis.

    value: an axis has values; the arguments are a function, a text and names of axes
    axes: the names of all axes
    """
    hint = meant(keyword, ("skip", "together", "name"))
    if not hint or isinstance(value, Mapping):
        return
    names = set[Any]()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for part in value:
            names.update(listed("together", part))
    if names <= {*axes}:
        raise BadSetting(f"worklog.bench has no argument {keyword!r}{hint}")


def _axis(name: str, values: Values) -> Axis:
    """Return an axis of Python's values. Raises BadSetting."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise BadSetting(
            f"axis {name}: {values!r} is one value: give a list, or a mapping from names to objects"
        )
    listed_values = tuple(values)
    kinds = set(map(type, listed_values))
    if kinds <= {int}:
        return Axis(name, listed_values)
    if kinds == {str}:
        return Axis(name, listed_values, "str")
    if kinds <= {int, float}:
        return Axis(name, tuple(map(float, listed_values)), "float")
    raise BadSetting(
        f"axis {name}: give numbers, strings, or a mapping from names to objects, "
        f"not {listed_values!r:.60}"
    )


@cache
def benchmarks_of(host: HostFunction) -> dict[str, Benchmark]:
    """Return the benchmarks in a function's module by name, in order.

    Raises BadSetting for two benchmarks of one name, and if there is no such module.
    """
    by_name: dict[str, Benchmark] = {}
    for value in vars(host.module()).values():
        if not isinstance(value, Benchmark):
            continue
        if by_name.setdefault(value.name, value) is not value:
            raise BadSetting(
                f"{host.file} declares two benchmarks {value.name}: give one another name="
            )
    return by_name


def declared(path: Path, filters: Sequence[str] = (), axes: Sequence[str] = ()) -> list[Benchmark]:
    """Return the benchmarks of a file.

    filters: names or patterns such as "soft*" (default: all)
    axes: as for `at`

    Raises BadSetting, also if nothing is left, and WorklogError for a file that can't be read.
    """
    if path.suffix != ".py":
        raise BadSetting(
            f"{path} isn't a Python file: give one that declares benchmarks with @worklog.bench"
        )
    by_name = benchmarks_of(HostFunction.of(f"{path}:benchmarks"))
    if not by_name:
        raise BadSetting(
            f"{path} declares no benchmark: write @worklog.bench() above a function of a state"
        )
    matching = set[str]()
    for pattern in filters or ["*"]:
        names = fnmatch.filter(by_name, pattern)
        if not names:
            raise BadSetting(
                f"no benchmark matches {pattern!r}{meant(pattern, by_name)}: "
                f"it has {', '.join(by_name)}"
            )
        matching.update(names)
    return at(axes, [benchmark for name, benchmark in by_name.items() if name in matching])


def at(axes: Iterable[str], benchmarks: Sequence[Benchmark]) -> list[Benchmark]:
    """Return benchmarks with other values of some axes.

    axes: as "N[pow2]=10:12"

    Raises BadSetting for an axis that no benchmark has, and for values of another kind; int and
    pow2 are one kind.
    """
    texts = {}
    for text in listed("axes", axes):
        axis_name = text.partition("=")[0].partition("[")[0].strip()
        texts[axis_name] = text
    names = {axis.name for benchmark in benchmarks for axis in benchmark.space.axes}
    for name, text in texts.items():
        if name not in names:
            raise BadSetting(f"--axis {text}: no benchmark has an axis {name}{meant(name, names)}")
    changed = []
    for benchmark in benchmarks:
        new_axes = tuple(
            _changed_axis(axis, texts[axis.name], benchmark) if axis.name in texts else axis
            for axis in benchmark.space.axes
        )
        changed.append(replace(benchmark, space=replace(benchmark.space, axes=new_axes)))
    return changed


def _changed_axis(axis: Axis, text: str, benchmark: Benchmark) -> Axis:
    """Return a benchmark's axis with the values of a text. Raises BadSetting."""
    changed = Axis.parse(text, axis.kind.replace("pow2", "int"))
    if changed.kind != axis.kind and {changed.kind, axis.kind} != {"int", "pow2"}:
        raise BadSetting(
            f"--axis {axis.name}: its values are of kind {axis.kind}, not {changed.kind}"
        )
    objects = benchmark.objects.get(axis.name)
    if objects is not None:
        for value in changed.values:
            if value not in objects:
                names = ", ".join(objects)
                raise BadSetting(f"--axis {axis.name}: there is no {value!r}: choose from {names}")
    return changed
