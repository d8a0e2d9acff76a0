"""Declared benchmarks: `@worklog.bench` makes a function a named benchmark with axes, which is measured at each point
like everything else: in a child process, by the harness, into a run.

The words are NVBench's. Its generator is the decorated function, its launcher what that returns; state.exec is
State.run, add_element_count is State.elements, add_global_memory_reads is State.reads.
"""

from __future__ import annotations

import fnmatch
import inspect
import linecache
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from worklog.errors import BadSetting, listed, meant
from worklog.kernel import HostFunction, Kernel
from worklog.problem import Axis, Space
from worklog.runner.measure import Job, Skipped, carry_out
from worklog.runs import Gpu, Progress, Run, Shown, Table, silent
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.gpu.clocks import Datapath
    from worklog.runner.timing import Call, CrossCheck

SHOWN = 8  # values of an axis that are shown; of more, the first ones and the last
Function = Callable[["State"], object]
Values = Mapping[str, Any] | Sequence[Any]


class State:
    """One point of a declared benchmark, as the decorated function gets it.

    `state["N"]` or `state.N`: the value of an axis, as int, float, str, or the object that the axis names. stream: the
    harness's CUDA stream as an integer handle; it is the current one of CuPy and PyTorch. device: the GPU
    (worklog.runs.Gpu). Example: `x = torch.rand(state.N, device="cuda"); state.reads(x.nbytes)`.
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
        """Skip this point: the run states the reason, and the other points go on."""
        raise Skipped(reason)

    def elements(self, count: float) -> None:
        """Add elements that one call processes, for items/s."""
        self.work["elements"] += count

    def reads(self, count: float) -> None:
        """Add bytes that one call reads from memory, for GB/s and the share of the measured copy."""
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
        """Time `fn(*args, **kwargs)` once the decorated function has returned, alone or alternating with `against` on
        the same arguments. sync, timer, datapath, cross_check: as of worklog.time. Raises BadSetting for a second call.

        Example: `state.run(torch.softmax, x, dim=1)`.
        """
        if self.call is not None:
            raise BadSetting(
                "state.run was called before: a benchmark times one call; declare another benchmark"
            )
        from worklog.runner.timing import Call  # here: to declare a benchmark needs no gate

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
class Benchmark(Shown):
    """A declared benchmark, which shows its axes and points. name: in runs, tables and charts. objects: for an axis
    whose values are names, the object that each name stands for. state: what the function gets.
    """

    name: str
    function: Function
    space: Space
    objects: Mapping[str, Mapping[str, Any]]
    state: type[State] = State

    def __call__(self, state: State) -> object:
        """The decorated function, for another benchmark that goes on from it."""
        return self.function(state)

    def values(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """A point's values, with the objects for their names."""
        return {
            axis: self.objects[axis][name] if axis in self.objects else name
            for axis, name in names.items()
        }

    def jobs(self, *against: str) -> list[Job]:
        """A job for each point. against: baselines that take turns with it there."""
        return [
            Job(self.name, None, axes=tuple(p.values.items()), against=against)
            for p in self.space.points()
        ]

    @cached_property
    def kernel(self) -> Kernel:
        """For a child process, by file and hash; a cell becomes a file. Raises BadSetting without source."""
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
        return Kernel(self.name, HostFunction.of(f"{path}:{self.function.__name__}"))

    def table(self) -> Table:
        """Its axes with their values, and how many points they make."""
        rows = []
        for axis in self.space.axes:
            is_power = axis.kind == "pow2"
            shown = [
                f"2^{int(value).bit_length() - 1}" if is_power else str(value)
                for value in axis.values
            ]
            if len(shown) > SHOWN:
                shown = [*shown[: SHOWN - 2], "…", shown[-1]]
            rows.append((axis.name, axis.kind, str(len(axis.values)), ", ".join(shown)))
        return Table(self.space.preview(), ("axis", "kind", "values", ""), rows, left=4)


def bench(
    *axes: str | Axis,
    skip: Callable[[Mapping[str, Any]], str | bool | None] | None = None,
    together: Sequence[str] | Sequence[Sequence[str]] = (),
    name: str = "",
    **named: Values,
) -> Callable[[Function], Benchmark]:
    """A decorator that declares a benchmark: the function gets a `State` at each combination of the axes' values.

    axes: as "N[pow2]=20:26", "dtype[str]=float32,float16", or Axis. named: axes whose values are given in Python: a
    list of numbers or strings, or a mapping from names to any objects, such as functions and types. together: names of
    axes (or several groups of names) that go together instead of in all combinations. skip: gets the values of a point
    before anything else is done there, and returns why it is skipped, or None. name: default, the function's.

    The function returns a launcher, which takes nothing, or a required parameter `stream` (the handle); or it calls
    state.run; or it enqueues the work itself, and then is what is timed. Work goes to the current stream. What raises
    CompileFailed or has no memory is skipped with the reason, and the other points go on. Results aren't checked.
    `worklog bench FILE.py` measures all benchmarks of a file. Raises BadSetting. Example:

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
    if (
        any(type(axis) not in (str, Axis) for axis in axes)
        or isinstance(together, str)
        or isinstance(skip, str)
    ):
        raise BadSetting(
            "worklog.bench: give axes as texts, together as a list of names, skip as a function of values"
        )
    declared = [axis if isinstance(axis, Axis) else Axis.parse(axis) for axis in axes]
    declared += [_axis(axis, values) for axis, values in named.items()]
    objects = {axis: values for axis, values in named.items() if isinstance(values, Mapping)}
    groups: Any = [together] if together and isinstance(together[0], str) else together

    def declare(function: Function) -> Benchmark:
        called = name or function.__name__
        space = Space(called, tuple(declared), together=tuple(map(tuple, groups)))
        made = Benchmark(called, function, space, objects)

        def why(names: Mapping[str, Any]) -> str | None:
            reason = skip(made.values(names)) if skip else None
            return (
                (reason if isinstance(reason, str) else "its skip function says so")
                if reason
                else None
            )

        return replace(made, space=replace(space, skip=why))

    return declare


def _axis(name: str, values: Values) -> Axis:
    """An axis from Python's values. Raises BadSetting."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise BadSetting(
            f"axis {name}: {values!r} is one value: give a list, or a mapping from names to objects"
        )
    given = tuple(values)
    kinds = set(map(type, values))
    if kinds <= {int}:
        return Axis(name, given)
    if kinds == {str}:
        return Axis(name, given, "str")
    if kinds <= {int, float}:
        return Axis(name, tuple(map(float, given)), "float")
    raise BadSetting(
        f"axis {name}: give numbers, strings, or a mapping from names to objects, not {given!r:.60}"
    )


@cache
def benchmarks_of(host: HostFunction) -> dict[str, Benchmark]:
    """The benchmarks in its module by name, in order. Raises BadSetting for two of one name or no such module."""
    by_name: dict[str, Benchmark] = {}
    for value in vars(host.module()).values():
        if isinstance(value, Benchmark) and by_name.setdefault(value.name, value) is not value:
            raise BadSetting(
                f"{host.file} declares two benchmarks {value.name}: give one another name="
            )
    return by_name


def declared(path: Path, filters: Sequence[str] = (), axes: Sequence[str] = ()) -> list[Benchmark]:
    """The benchmarks of a file. filters: names or patterns such as "soft*"; default all. axes: as for `at`. Raises
    BadSetting, also where nothing is left, and WorklogError for a file that can't be read.
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
        if not (names := fnmatch.filter(by_name, pattern)):
            has = ", ".join(by_name)
            raise BadSetting(
                f"no benchmark matches {pattern!r}{meant(pattern, by_name)}: it has {has}"
            )
        matching |= {*names}
    return at(axes, [benchmark for name, benchmark in by_name.items() if name in matching])


def at(axes: Iterable[str], benchmarks: Sequence[Benchmark]) -> list[Benchmark]:
    """Benchmarks with other values of some axes, as "N[pow2]=10:12". Raises BadSetting for an axis of none, and for
    values of another kind; int and pow2 are one.
    """
    texts = {
        text.partition("=")[0].partition("[")[0].strip(): text for text in listed("axes", axes)
    }
    names = {axis.name for benchmark in benchmarks for axis in benchmark.space.axes}
    for name, text in texts.items():
        if name not in names:
            raise BadSetting(f"--axis {text}: no benchmark has an axis {name}{meant(name, names)}")
    changed = []
    for benchmark in benchmarks:
        new = list[Axis]()
        for axis in benchmark.space.axes:
            if axis.name not in texts:
                new.append(axis)
                continue
            other = Axis.parse(texts[axis.name], axis.kind.replace("pow2", "int"))
            objects = benchmark.objects
            if other.kind != axis.kind and {other.kind, axis.kind} != {"int", "pow2"}:
                raise BadSetting(
                    f"--axis {axis.name}: its values are of kind {axis.kind}, not {other.kind}"
                )
            for value in other.values if axis.name in objects else ():
                if value not in objects[axis.name]:
                    known = ", ".join(objects[axis.name])
                    raise BadSetting(
                        f"--axis {axis.name}: there is no {value!r}: choose from {known}"
                    )
            new.append(other)
        changed.append(replace(benchmark, space=replace(benchmark.space, axes=tuple(new))))
    return changed


def measure(
    benchmarks: Sequence[Benchmark],
    against: Benchmark | Sequence[Benchmark] | None = None,
    *,
    harness: Harness | None = None,
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """Time each benchmark at each of its points into one run. against: timed in the same loop at the same values, each
    of several too. harness, out: as for worklog.measure.

    Raises what worklog.measure raises, and BadSetting for a baseline that lacks an axis.
    """
    baselines = [] if against is None else listed("against", against)
    for baseline in baselines:
        if not isinstance(baseline, Benchmark):
            raise BadSetting(
                f"against: give benchmarks, as @worklog.bench declares them, not {baseline!r:.60}"
            )
    names = [baseline.name for baseline in baselines]
    others = [benchmark for benchmark in benchmarks if benchmark.name not in names]
    if not others:
        raise BadSetting(f"nothing to compare: {', '.join(names)} is the baseline of itself")
    for benchmark, baseline in product(others, baselines):
        lacking = {axis.name for axis in benchmark.space.axes} ^ {
            axis.name for axis in baseline.space.axes
        }
        if lacking:
            only = f"only one has an axis {', '.join(sorted(lacking))}"
            raise BadSetting(f"{benchmark.name} against {baseline.name}: {only}")
    jobs = [job for benchmark in others for job in benchmark.jobs(*names)]
    kernels = [benchmark.kernel for benchmark in (*others, *baselines)]
    return carry_out(jobs, harness or Harness(), user_kernels=kernels, progress=progress, out=out)
