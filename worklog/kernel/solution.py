"""A solution of a problem: CUDA source with an extern "C" function `solution` that launches kernels, or a Python
function. It gets a case's inputs, outputs and extra parameters, in the order of the problem's signature.

Of `solution`, declarations of integers and dim3 are read, launches `kernel<<<grid, block, shared>>>(arguments);`, and
calls that only wait; expressions are evaluated, never executed, and every other statement is an error that names its
line. NVRTC compiles the kernels, so that a solution runs without nvcc, and on the emulator.

A Python function `f(x, y, n)` takes the same as `solution`: CuPy arrays, or with `ARRAYS = "torch"` in its file PyTorch
tensors on the same memory, and writes the outputs in place. One that has as many parameters as the problem has inputs
returns the outputs instead, as a torch function does.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter as Kind
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, meant
from worklog.kernel.device import Buffer, Device, Program, Runnable
from worklog.kernel.device_code import prepared
from worklog.kernel.host_function import HostFunction, calling, loan_of, signature_of
from worklog.kernel.kernel import Kernel
from worklog.kernel.signature import Launch
from worklog.kernel.source import evaluate, plain, read_source, reduced, sizes, text_of
from worklog.kernel.unit import Call, Definition, Unit, read
from worklog.problem import PROBLEMS, Parameter, Problem, dtype_of

FUNCTION = "solution"
_WAITS = re.compile(r"(?:\w+\s*=\s*)?cuda(?:DeviceSynchronize|GetLastError|PeekAtLastError)\s*\(\s*\)|return|")
_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eEfF]))(?:[eE][+-]?\d+)?[fF]?")
ADVICE = "declare integers and dim3, and launch kernels: kernel<<<grid, block>>>(…)"


def find_problem(what: str, dtype: str = "") -> Problem:
    """A problem by its name, or of a file as file.py:Class or file.py. dtype: one of its own. Raises BadSetting."""
    if what in PROBLEMS:
        return PROBLEMS[what]().under(dtype)
    where, _, name = (what, "", "") if what.endswith(".py") else what.rpartition(":")
    if not where or not (name.isidentifier() or what.endswith(".py")):
        known = f"choose from {', '.join(PROBLEMS)}, or name a class of yours, as file.py:Class"
        raise BadSetting(f"there is no problem {what!r}{meant(what, PROBLEMS)}: {known}")
    module = HostFunction.of(f"{where}:{name or 'Problem'}").module()
    defined = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    classes = {key: value for key, value in defined.items() if issubclass(value, Problem)}
    own = [key for key, value in classes.items() if value.__module__ == module.__name__]
    kind = classes.get(own[0] if not name and len(own) == 1 else name)
    if kind is None:
        has = f"{where} has {', '.join(own) or 'no problem: derive a class from worklog.Problem'}"
        raise BadSetting(
            f"{what} names no problem: {has}" + (f"; name one, as {shlex.quote(where)}:Class" if own else "")
        )
    try:
        made: Problem = kind()
    except Exception as error:
        raise BadSetting(f"{what}() raised {type(error).__name__}: {error}: correct its __init__") from error
    if not getattr(made, "name", ""):
        raise BadSetting(f"{what}: its __init__ must call super().__init__()")
    return made.under(dtype)


@dataclass(frozen=True)
class Launched:
    """One launch of a host function. entry: the kernel, with its template arguments. grid, block: along x, y and z.
    arguments: numbers, or names of the function's parameters. place: its file and line.
    """

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: tuple[Any, ...]
    place: str


def launches(unit: Unit, own: Definition, values: Mapping[str, Any], file: str) -> list[Launched]:
    """The launches of a host function in their order. own: its definition. values: of its parameters, None for a
    pointer. Raises BadSetting, with the line, for a statement that isn't read.
    """
    names = {name: text for name, text in unit.names(own).items() if name not in values}
    names |= {name: str(value) for name, value in values.items() if type(value) is int}
    result = []
    for statement in own.body.named_children:
        shown = text_of(statement)
        if statement.type == "declaration" or _WAITS.fullmatch(shown.rstrip("; ")):
            continue
        place = f"{file}:{own.line(statement)}"
        try:
            call = next((call for call in own.calls if call.node.parent == statement), None)
            result.append(_launched(call, names, values, place))
        except BadSetting as error:
            raise BadSetting(f"{place}: cannot read {shown:.70}: {error}; {ADVICE}") from error
    if not result:
        raise BadSetting(f"{file}: the host function launches no kernel: {ADVICE}")
    return result


def _launched(call: Call | None, names: Mapping[str, str], values: Mapping[str, Any], place: str) -> Launched:
    """A launch with numbers for its expressions. names: expressions of names."""

    def blocks(words: str) -> tuple[int, ...]:
        counts = [evaluate(size, {}) for size in sizes(words, names)]
        if len(counts) > 3 or min(counts) < 1:
            raise BadSetting(f"{words} is {counts}: a grid and a block have one to three sizes of at least 1")
        return (*counts, 1, 1)[:3]

    def argument(text: str) -> Any:
        """A number, or the name of a parameter that isn't an integer."""
        bare = re.sub(r"^\((\s*\w+\s*)\)$", r"\1", plain(text)).strip()
        if bare in values and bare not in names:
            return bare
        return float(bare.rstrip("fF")) if _FLOAT.fullmatch(bare) else evaluate(reduced(bare, names), {})

    if call is None:
        raise BadSetting("it is none of the statements that are read")
    if not 2 <= len(call.configuration) <= 4:
        raise BadSetting("a launch has a grid and a block")
    grid, block, shared, *_ = *call.configuration, "0"
    template = ", ".join(reduced(word, names) for word in call.template)
    entry = f"{call.function}<{template}>" if template else call.function
    shared_bytes = evaluate(reduced(shared, names), {})
    return Launched(entry, blocks(grid), blocks(block), shared_bytes, tuple(map(argument, call.arguments)), place)


@dataclass(frozen=True)
class Passed:
    """One argument of a solution. buffer: of an array, on the device; its elements as 32-bit words. value: a number, or
    the host's array, whose shape and type the buffer has. role: "input", "output" or "extra".
    """

    parameter: Parameter
    value: Any
    buffer: Buffer | None = None
    role: str = "input"

    @property
    def form(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of an array."""
        return tuple(self.value.shape), dtype_of(self.value)

    @property
    def number(self) -> Any:
        """A number in Python."""
        value = self.value.item() if hasattr(self.value, "item") else self.value
        return int(value) if self.parameter.dtype.startswith(("int", "uint")) else value


@dataclass(frozen=True, repr=False)
class Solution(Kernel):
    """A solution of a problem, as a kernel whose `function` is the host function, and `source` the whole CUDA source.
    folders: of headers. define: macros. problem, dtype: what it solves, as find_problem takes them.
    """

    folders: tuple[str, ...] = ()
    define: tuple[str, ...] = ()
    problem: str = ""
    dtype: str = ""

    @classmethod
    def of(
        cls,
        what: str | Path | Callable[..., object],
        *,
        include: Sequence[str | Path] = (),
        define: Sequence[str] = (),
        arrays: str = "",
        **of: Any,
    ) -> Solution:
        """A .cu file, or a Python function by its name or itself. of: problem, dtype. Raises WorklogError."""
        if callable(what) or not str(what).endswith(".cu"):
            if str(what).endswith(".py"):
                what = f"{what}:{FUNCTION}"
            host = HostFunction.of(what if callable(what) else str(what), arrays)
            return cls(host.function, host, **of)
        path = Path(what)
        program = Program(path.name, read_source(path), "")
        folders = tuple(str(Path(folder).resolve()) for folder in (*include, path.parent))
        return cls(path.stem, program, (Launch(FUNCTION),), folders=folders, define=tuple(define), **of)

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:
        """As Kernel has it; BadSetting also for a signature that isn't the problem's."""
        problem = find_problem(self.problem, self.dtype)
        if self.host is not None:
            return _Python(self, problem, device)
        declared = problem.signature
        signature = f"{FUNCTION}({', '.join(parameter.declaration for parameter in declared)})"
        own = self.unit.definition(FUNCTION, of_host=True)
        if own is None:
            kernels = ", ".join(self.unit.kernels) or "none"
            advice = f'write extern "C" void {signature}, which launches its kernels ({kernels})'
            raise BadSetting(f"{self.file} has no host function {FUNCTION}: {advice}")
        for taken, passed in zip_longest(own.parameters, declared):
            takes, passes = f"{len(own.parameters)} parameters", str(len(declared))
            if taken is not None and passed is not None:
                if taken.pointer == passed.pointer and taken.dtype in ("", passed.dtype):
                    continue
                takes, passes = taken.declaration, passed.declaration
            why = f"{FUNCTION} takes {takes}, and {problem.name} passes {passes}"
            raise BadSetting(f"{self.file}: {why}: declare {signature}")
        return _Kernels(self, problem, device, own)

    @property
    def unit(self) -> Unit:
        """What its source defines."""
        return read(self.source, self.define)

    def describe(self) -> dict[str, Any]:
        """For a run's `kernels`."""
        sha256 = self.host.sha256 if self.host is not None else hashlib.sha256(self.source.encode()).hexdigest()
        about = {"file": self.file, "sha256": sha256, "entry": self.entry}
        return {**about, "problem": self.problem, "dtype": self.dtype, "user": "solution"}


class Solver(Runnable):
    """A solution on a device. problem: that it solves."""

    def __init__(self, solution: Solution, problem: Problem) -> None:
        self.name, self.solution, self.problem = solution.name, solution, problem

    def describe(self) -> dict[str, Any]:
        """As Runnable has it."""
        return self.solution.describe()


class _Kernels(Solver):
    """Kernels that a device compiles, launched as the source states."""

    def __init__(self, solution: Solution, problem: Problem, device: Device, own: Definition) -> None:
        super().__init__(solution, problem)
        self.device, self.own = device, own
        self._compiled: dict[tuple[str, int], Any] = {}
        self._read: dict[tuple[Any, ...], list[Launched]] = {}

    def enqueue(self, *arguments: Passed) -> None:
        """As Runnable has it."""
        names = [parameter.name for parameter in self.own.parameters]
        given = dict(zip(names, arguments, strict=True))
        values = {name: passed.number if passed.buffer is None else None for name, passed in given.items()}
        key = tuple(values.values())
        if key not in self._read:  # once, so that a timed launch parses nothing
            solution = self.solution
            self._read[key] = launches(solution.unit, self.own, values, solution.file)
        for launch in self._read[key]:
            self._launch(launch, given)

    def _launch(self, launch: Launched, given: dict[str, Passed]) -> None:
        solution, place = self.solution, launch.place
        defined = solution.unit.definition(launch.entry.partition("<")[0])
        if defined is None:
            raise BadSetting(f"{place}: {launch.entry} is no kernel of this file: define it as __global__ void")
        takes, passes = len(defined.parameters), len(launch.arguments)
        if takes != passes:
            raise BadSetting(f"{place}: {launch.entry} takes {takes} parameters, and the launch passes {passes}")
        bound = [_bound(*pair, given, place) for pair in zip(defined.parameters, launch.arguments, strict=True)]
        key = launch.entry, launch.shared
        if key not in self._compiled:
            code, _ = prepared(solution.file, solution.source, solution.folders, solution.define)
            names = tuple(parameter.name for parameter in defined.parameters)
            program = replace(code, entry=launch.entry, arguments=names, shared=launch.shared)
            self._compiled[key] = self.device.compile(program)
        self.device.launch(self._compiled[key], launch.grid, launch.block, bound)


def _bound(parameter: Parameter, argument: Any, given: dict[str, Passed], place: str) -> Any:
    """What a kernel's parameter gets: a buffer, or a number of the parameter's type. Raises BadSetting."""
    passed = given.get(argument) if isinstance(argument, str) else None
    buffer = passed.buffer if passed is not None else None
    if parameter.pointer != (buffer is not None):
        kind = "an address" if parameter.pointer else "a number"
        raise BadSetting(f"{place}: {parameter.name} takes {kind}: pass a parameter of {FUNCTION} as it is")
    if buffer is None and parameter.dtype in ("", "bfloat16"):
        raise BadSetting(f"{place}: {parameter.name} is a {parameter.type}, which can't be passed: take a float")
    if buffer is None:
        return np.dtype(parameter.dtype).type(argument if passed is None else passed.number)
    return buffer


class _Python(Solver):
    """A Python function on a GPU's arrays, which doesn't wait."""

    is_host = True

    def __init__(self, solution: Solution, problem: Problem, device: Device) -> None:
        super().__init__(solution, problem)
        assert solution.host is not None
        loan = loan_of(device, f"{self.name} is a Python function")
        self.returned: Any = None
        self.function, arrays = solution.host.loaded()
        self.loan = loan(arrays)
        taken = signature_of(self.function)
        kinds = [parameter.kind for parameter in taken.parameters.values()] if taken else []
        self.takes = sum(kind in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD) for kind in kinds)

    def _array(self, passed: Passed) -> Any:
        return passed.value if passed.buffer is None else self.loan.array(passed.buffer, *passed.form)

    def enqueue(self, *arguments: Passed) -> None:
        """As Runnable has it."""
        inputs = [passed for passed in arguments if passed.role == "input"]
        arrays = [self._array(passed) for passed in (inputs if self.takes == len(inputs) else arguments)]
        with calling(self.name, self.loan):
            self.returned = self.function(*arrays)

    def collect(self, *arguments: Passed) -> None:
        """As Runnable has it."""
        if self.takes != sum(passed.role == "input" for passed in arguments):
            return
        outputs = [self._array(passed) for passed in arguments if passed.role == "output"]
        results = self.returned if isinstance(self.returned, tuple | list) else (self.returned,)
        if len(results) != len(outputs) or not all(hasattr(result, "shape") for result in results):
            raise LaunchFailed(f"{self.name} takes the inputs only: return the outputs, or take all parameters")
        with self.loan.current():
            for output, result in zip(outputs, results, strict=True):
                shape, right = tuple(result.shape), tuple(output.shape)
                if shape != right:
                    raise LaunchFailed(f"{self.name} returned shape {shape}: {right} is right")
                output[...] = result
