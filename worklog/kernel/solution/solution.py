"""A solution of a problem: CUDA source with a function `solution`, or a Python function.

`solution` launches kernels. It gets a case's inputs, outputs and extra parameters, in the order of
the problem's signature.

`solution` is run on the emulator, once for each case, and its launches are then enqueued on the
device (worklog.kernel.host). It can compute and decide what to launch; what it can't do is an error
that names its
line: it has no other memory, and sees no data. NVRTC compiles the kernels, so that a solution runs
    without nvcc.

A Python function `f(x, y, n)` takes the same as `solution`: CuPy arrays, or with `ARRAYS = "torch"`
in its file PyTorch tensors on the same memory, and writes the outputs in place. One that has as
many parameters as the problem has inputs returns the outputs instead, as a torch function does.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.kernel.device import Buffer, Device, Program, Runnable
from worklog.kernel.host import SPACING, STAND_INS, Launched, launched_by, stand_in
from worklog.kernel.host_function import HostFunction, calling, loan_of, signature_of
from worklog.kernel.kernel import HostKernel, Kernel
from worklog.kernel.launch import Launch
from worklog.kernel.nvrtc import prepared
from worklog.kernel.solution.problems import find_problem
from worklog.kernel.source import read_source
from worklog.kernel.unit import Definition, Unit, read
from worklog.problem import Parameter, Problem
from worklog.problem.arrays import dtype_of

FUNCTION = "solution"
ADVICE = (
    "compute grids and launch kernels, as kernel<<<grid, block>>>(…), on the memory that it gets"
)
ROLES = ("input", "output", "extra")
# A compiled kernel, its grid and block, and the values of its parameters: numbers, and names of
# buffers.
_Launch = tuple[Any, tuple[int, ...], tuple[int, ...], list[Any]]


@dataclass(frozen=True)
class Passed:
    """One argument of a solution."""

    parameter: Parameter
    value: Any  # a number, or the host's array, whose shape and type the buffer has
    buffer: Buffer | None = None  # of an array, on the device; its elements as 32-bit words
    role: str = "input"  # "input", "output" or "extra"

    @property
    def form(self) -> tuple[tuple[int, ...], str]:
        """The shape and the type of an array."""
        return tuple(self.value.shape), dtype_of(self.value)

    @property
    def number(self) -> Any:
        """The value as a number in Python."""
        value = self.value.item() if hasattr(self.value, "item") else self.value
        return int(value) if self.parameter.dtype.startswith(("int", "uint")) else value


@dataclass(frozen=True, repr=False)
class Solution(Kernel):
    """A solution of a problem, as a kernel whose `source` is the whole CUDA source.

    Its `function` is the host function.
    """

    folders: tuple[str, ...] = ()  # of headers
    define: tuple[str, ...] = ()  # macros
    problem: str = ""  # that it solves, as for find_problem
    dtype: str = ""  # as for find_problem

    @classmethod
    def of(
        cls,
        subject: str | Path | Callable[..., object],
        *,
        include: Sequence[str | Path] = (),
        define: Sequence[str] = (),
        arrays: str = "",
        **options: Any,
    ) -> Solution:
        """Return a solution.

        subject: a .cu file, or a Python function by its name or itself
        include: folders of headers
        define: macros
        arrays: of a Python function
        options: problem and dtype
        Raises WorklogError.
        """
        if callable(subject) or not str(subject).endswith(".cu"):
            if str(subject).endswith(".py"):
                subject = f"{subject}:{FUNCTION}"
            host = HostFunction.of(subject if callable(subject) else str(subject), arrays)
            launches = (Launch(host.function),)
            return PythonSolution(host.function, host.program, launches, place=host, **options)
        path = Path(subject)
        program = Program(path.name, read_source(path), "")
        folders = tuple(str(Path(folder).resolve()) for folder in (*include, path.parent))
        return cls(
            path.stem,
            program,
            (Launch(FUNCTION),),
            folders=folders,
            define=tuple(define),
            **options,
        )

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:
        """Return the solution on a device, as Kernel.load.

        Raises BadSetting also for a signature that isn't the problem's.
        """
        problem = find_problem(self.problem, self.dtype)
        declared = ", ".join(parameter.declaration for parameter in problem.signature)
        signature = f"{FUNCTION}({declared})"
        function = self.unit.definition(FUNCTION, of_host=True)
        if function is None:
            kernels = ", ".join(self.unit.kernels) or "none"
            advice = f'write extern "C" void {signature}, which launches its kernels ({kernels})'
            raise BadSetting(f"{self.file} has no host function {FUNCTION}: {advice}")
        self._require_signature(function, problem, signature)
        return _Kernels(self, problem, device, function)

    def _require_signature(self, function: Definition, problem: Problem, signature: str) -> None:
        """Raise BadSetting if the host function's parameters aren't the problem's.

        signature: the right one, for the message
        """
        for parameter, expected in zip_longest(function.parameters, problem.signature):
            takes = f"{len(function.parameters)} parameters"
            passes = str(len(problem.signature))
            if parameter is not None and expected is not None:
                is_same_type = parameter.dtype in ("", expected.dtype)
                if parameter.pointer == expected.pointer and is_same_type:
                    continue
                takes = parameter.declaration
                passes = expected.declaration
            reason = f"{FUNCTION} takes {takes}, and {problem.name} passes {passes}"
            raise BadSetting(f"{self.file}: {reason}: declare {signature}")

    @property
    def unit(self) -> Unit:
        """The functions and constants that the source defines."""
        return read(self.source, self.define)

    def describe(self) -> dict[str, Any]:
        """Return the entry of a run's `kernels`: source hash, problem and type."""
        return {
            "file": self.file,
            "sha256": self.sha256,
            "entry": self.entry,
            "problem": self.problem,
            "dtype": self.dtype,
            "user": "solution",
        }

    @property
    def sha256(self) -> str:
        """The hash of the source text, or of a host function's file."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True, repr=False)
class PythonSolution(HostKernel, Solution):
    """A Python function that solves a problem."""

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:  # noqa: D102
        return _Python(self, find_problem(self.problem, self.dtype), device, self.place)

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return Solution.describe(self)

    @property
    def sha256(self) -> str:  # noqa: D102
        return self.place.sha256


class Solver(Runnable):
    """A solution on a device, with the problem that it solves."""

    def __init__(self, solution: Solution, problem: Problem, device: Device) -> None:
        self.name = solution.name
        self.solution = solution
        self.problem = problem
        self.device = device

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return self.solution.describe()


class _Kernels(Solver):
    """Kernels that a device compiles, launched as the source states."""

    def __init__(
        self, solution: Solution, problem: Problem, device: Device, function: Definition
    ) -> None:
        super().__init__(solution, problem, device)
        self.function = function  # the host function
        self._compiled = dict[tuple[str, int], Any]()  # by entry and shared memory
        self._launches: dict[tuple[Any, ...], list[_Launch]] = {}  # by the numbers that are passed

    def enqueue(self, *arguments: Passed) -> None:
        names = (parameter.name for parameter in self.function.parameters)
        by_name = dict(zip(names, arguments, strict=True))
        key = tuple(passed.number if passed.buffer is None else None for passed in arguments)
        if key not in self._launches:  # once, so that a timed launch parses nothing
            self._launches[key] = self._read(by_name)
        for compiled, grid, block, values in self._launches[key]:
            bound = [by_name[value].buffer if isinstance(value, str) else value for value in values]
            self.device.launch(compiled, grid, block, bound)

    def _read(self, arguments: Mapping[str, Passed]) -> list[_Launch]:
        """Return the launches in order.

        arguments: by the names of the host function's parameters
        Raises BadSetting, with the line if it is known, if the host function can't be run.
        """
        file = self.solution.file
        inputs = [_input(passed, place) for place, passed in enumerate(arguments.values())]
        try:
            launched = launched_by(self.solution.unit, self.function, inputs)
        except BadSetting as error:
            raise BadSetting(self._explained(str(error))) from error
        if not launched:
            raise BadSetting(f"{file}: the host function launches no kernel: {ADVICE}")
        return [self._launch(launch, [*arguments]) for launch in launched]

    def _explained(self, error: str) -> str:
        """Return an error of the host function, with the statement that it is about."""
        file = self.solution.file
        line, _, message = error.partition(": ")
        if not line.isdigit():
            return f"{file}: {FUNCTION} can't be run: {error}: {ADVICE}"
        statement = self.solution.source.splitlines()[int(line) - 1].strip()
        return f"{file}:{line}: cannot run {statement:.70}: {message}: {ADVICE}"

    def _launch(self, launch: Launched, names: Sequence[str]) -> _Launch:
        """Return a compiled launch.

        names: of the host function's parameters
        """
        defined = self.solution.unit.functions[launch.kernel]
        template = ", ".join(launch.template)
        entry = f"{defined.name}<{template}>" if template else defined.name
        if min(*launch.grid, *launch.block) < 1:
            grid, block = (" x ".join(map(str, sizes)) for sizes in (launch.grid, launch.block))
            raise BadSetting(
                f"{self.solution.file}: {entry} is launched with {grid} blocks of {block} threads: "
                "each has at least 1"
            )
        pairs = zip(defined.parameters, launch.arguments, strict=True)
        values = [self._bound(entry, parameter, bits, names) for parameter, bits in pairs]
        key = entry, launch.shared
        if key not in self._compiled:
            parameters = tuple(parameter.name for parameter in defined.parameters)
            self._compiled[key] = self._code(entry, parameters, launch.shared)
        return self._compiled[key], launch.grid, launch.block, values

    def _code(self, entry: str, parameters: tuple[str, ...], shared: int) -> Any:
        """Return a compiled kernel.

        parameters: names of the kernel's parameters
        shared: bytes of dynamic shared memory
        Raises BadSetting if it uses a variable of another kernel.
        """
        solution = self.solution
        code = prepared(
            solution.file, solution.source, entry, include=solution.folders, define=solution.define
        )
        compiled = self.device.compile(replace(code, arguments=parameters, shared=shared))
        for (other, _), other_compiled in self._compiled.items():
            variables = {*other_compiled.compiled.variables} & {*compiled.compiled.variables}
            if variables:
                raise BadSetting(
                    f"{solution.file}: {other} and {entry} use {min(variables)}, of which each "
                    "has its own: "
                    f"pass data in a parameter of {FUNCTION}, or write one kernel"
                )
        return compiled

    def _bound(self, entry: str, parameter: Parameter, bits: int, names: Sequence[str]) -> Any:
        """Return a kernel's argument: the name of a buffer, or a number of its type.

        bits: of the argument, as the host function passes it
        names: of the host function's parameters
        """
        about = f"{self.solution.file}: {entry}: {parameter.name}"
        if parameter.pointer:
            place, offset = divmod(bits - STAND_INS, SPACING)
            if offset or not 0 <= place < len(names):
                raise BadSetting(
                    f"{about} takes an address: pass a parameter of {FUNCTION} as it is"
                )
            return names[place]
        if parameter.dtype in ("", "bfloat16"):
            raise BadSetting(f"{about} is a {parameter.type}, which can't be passed: take a float")
        dtype = np.dtype(parameter.dtype)
        return np.array([bits], np.uint64).view(np.uint8)[: dtype.itemsize].view(dtype)[0]


def _input(passed: Passed, place: int) -> int:
    """Return the number that stands for an argument, as for worklog.kernel.host.program."""
    if passed.buffer is not None:
        return stand_in(place)
    number = passed.number
    if isinstance(number, float):
        return int(np.float64(number).view(np.int64))
    return int(number)


class _Python(Solver):
    """A Python function on a GPU's arrays, which doesn't wait."""

    def __init__(
        self, solution: Solution, problem: Problem, device: Device, host: HostFunction
    ) -> None:
        super().__init__(solution, problem, device)
        loan = loan_of(device, f"{self.name} is a Python function")
        self.returned: Any = None
        self.function, arrays = host.loaded()
        self.loan = loan(arrays)
        self.parameter_count = _positional_count(self.function)

    def _arrays(self, arguments: Sequence[Passed], *roles: str) -> list[Any]:
        """Return the arguments of these roles: numbers, and arrays on the device."""
        values = []
        for passed in arguments:
            if passed.role not in roles:
                continue
            if passed.buffer is None:
                values.append(passed.value)
            else:
                values.append(self.loan.array(passed.buffer, *passed.form))
        return values

    def enqueue(self, *arguments: Passed) -> None:
        values = self._arrays(arguments, "input")
        returns_outputs = self.parameter_count == len(values)
        with calling(self.name, self.loan):
            if not returns_outputs:
                values = self._arrays(arguments, *ROLES)
            self.returned = self.function(*values)

    def collect(self, *arguments: Passed) -> None:
        inputs = [passed for passed in arguments if passed.role == "input"]
        if self.parameter_count != len(inputs):
            return
        outputs = self._arrays(arguments, "output")
        results = self.returned if isinstance(self.returned, tuple | list) else (self.returned,)
        if len(results) != len(outputs) or not all(hasattr(result, "shape") for result in results):
            raise LaunchFailed(
                f"{self.name} takes the inputs only: return the outputs, or take all parameters"
            )
        with self.loan.current():
            for output, result in zip(outputs, results, strict=True):
                shape = tuple(result.shape)
                expected = tuple(output.shape)
                if shape != expected:
                    raise LaunchFailed(f"{self.name} returned shape {shape}: {expected} is right")
                output[...] = result


def _positional_count(function: Callable[..., object]) -> int:
    """Return the number of positional parameters; 0 if the signature is unknown."""
    signature = signature_of(function)
    if signature is None:
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in signature.parameters.values())
