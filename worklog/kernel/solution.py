"""A solution of a problem: CUDA source with an extern "C" function `solution` that launches kernels, or a Python
function. It gets a case's inputs, outputs and extra parameters, in the order of the problem's signature.

`solution` is run on the emulator, once for each case, and its launches are then enqueued on the device
(worklog.kernel.host_launches). It can compute and decide what to launch; what it can't do is an error that names its
line: it has no other memory, and sees no data. NVRTC compiles the kernels, so that a solution runs without nvcc.

A Python function `f(x, y, n)` takes the same as `solution`: CuPy arrays, or with `ARRAYS = "torch"` in its file PyTorch
tensors on the same memory, and writes the outputs in place. One that has as many parameters as the problem has inputs
returns the outputs instead, as a torch function does.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, meant
from worklog.kernel.device import Buffer, Device, Program, Runnable
from worklog.kernel.host_function import HostFunction, calling, loan_of, signature_of
from worklog.kernel.host_launches import Launched, launched_by
from worklog.kernel.host_program import SPACING, STAND_INS, stand_in
from worklog.kernel.kernel import Kernel
from worklog.kernel.launch import Launch
from worklog.kernel.nvrtc import prepared
from worklog.kernel.source import read_source
from worklog.kernel.unit import Definition, Unit, read
from worklog.problem import PROBLEMS, Parameter, Problem, dtype_of

FUNCTION = "solution"
ADVICE = (
    "compute grids and launch kernels, as kernel<<<grid, block>>>(…), on the memory that it gets"
)
ROLES = ("input", "output", "extra")
HEADERS = {"__half": "cuda_fp16.h", "half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
# A compiled kernel, its grid and block, and the values of its parameters: numbers, and names of buffers.
_Launch = tuple[Any, tuple[int, ...], tuple[int, ...], list[Any]]


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
        advice = f"; name one, as {shlex.quote(where)}:Class" if own else ""
        raise BadSetting(f"{what} names no problem: {has}{advice}")
    try:
        return kind().under(dtype)
    except BadSetting:
        raise
    except Exception as error:
        raise BadSetting(
            f"{what}() raised {type(error).__name__}: {error}: correct its __init__"
        ) from error


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
        return cls(
            path.stem, program, (Launch(FUNCTION),), folders=folders, define=tuple(define), **of
        )

    def load(self, device: Device, *, fresh: bool = False) -> Runnable:
        """As Kernel has it; BadSetting also for a signature that isn't the problem's."""
        problem = find_problem(self.problem, self.dtype)
        if self.host is not None:
            return _Python(self, problem, device, self.host)
        declared = problem.signature
        signature = f"{FUNCTION}({', '.join(parameter.declaration for parameter in declared)})"
        own = self.unit.definition(FUNCTION, of_host=True)
        if own is None:
            kernels = ", ".join(self.unit.kernels) or "none"
            advice = f'write extern "C" void {signature}, which launches its kernels ({kernels})'
            raise BadSetting(f"{self.file} has no host function {FUNCTION}: {advice}")
        for taken, passed in zip_longest(own.parameters, declared):
            takes = f"{len(own.parameters)} parameters"
            passes = str(len(declared))
            if taken is not None and passed is not None:
                if taken.pointer == passed.pointer and taken.dtype in ("", passed.dtype):
                    continue
                takes = taken.declaration
                passes = passed.declaration
            why = f"{FUNCTION} takes {takes}, and {problem.name} passes {passes}"
            raise BadSetting(f"{self.file}: {why}: declare {signature}")
        return _Kernels(self, problem, device, own)

    @property
    def unit(self) -> Unit:
        """What its source defines."""
        return read(self.source, self.define)

    def describe(self) -> dict[str, Any]:
        """For a run's `kernels`."""
        sha256 = (
            self.host.sha256
            if self.host is not None
            else hashlib.sha256(self.source.encode()).hexdigest()
        )
        about = {"file": self.file, "sha256": sha256, "entry": self.entry}
        return {**about, "problem": self.problem, "dtype": self.dtype, "user": "solution"}


class Solver(Runnable):
    """A solution on a device. problem: that it solves."""

    def __init__(self, solution: Solution, problem: Problem, device: Device) -> None:
        self.name = solution.name
        self.solution = solution
        self.problem = problem
        self.device = device

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return self.solution.describe()


class _Kernels(Solver):
    """Kernels that a device compiles, launched as the source states. own: the host function's definition."""

    def __init__(
        self, solution: Solution, problem: Problem, device: Device, own: Definition
    ) -> None:
        super().__init__(solution, problem, device)
        self.own = own
        self._compiled = dict[tuple[str, int], Any]()
        self._launches: dict[tuple[Any, ...], list[_Launch]] = {}

    def enqueue(self, *arguments: Passed) -> None:
        given = dict(
            zip((parameter.name for parameter in self.own.parameters), arguments, strict=True)
        )
        key = tuple(passed.number if passed.buffer is None else None for passed in arguments)
        if key not in self._launches:  # once, so that a timed launch parses nothing
            self._launches[key] = self._read(given)
        for compiled, grid, block, values in self._launches[key]:
            bound = [given[value].buffer if isinstance(value, str) else value for value in values]
            self.device.launch(compiled, grid, block, bound)

    def _read(self, given: Mapping[str, Passed]) -> list[_Launch]:
        """The launches in their order. Raises BadSetting, with the line where it is known, for what can't be run."""
        file = self.solution.file
        inputs = [_input(passed, place) for place, passed in enumerate(given.values())]
        try:
            launched = launched_by(self.solution.unit, self.own, inputs)
        except BadSetting as error:
            raise BadSetting(self._explained(str(error))) from error
        if not launched:
            raise BadSetting(f"{file}: the host function launches no kernel: {ADVICE}")
        return [self._launch(launch, [*given]) for launch in launched]

    def _explained(self, error: str) -> str:
        """Return an error of the host function, with the statement that it is about."""
        file = self.solution.file
        line, _, message = error.partition(": ")
        if not line.isdigit():
            return f"{file}: {FUNCTION} can't be run: {error}: {ADVICE}"
        statement = self.solution.source.splitlines()[int(line) - 1].strip()
        return f"{file}:{line}: cannot run {statement:.70}: {message}: {ADVICE}"

    def _launch(self, launch: Launched, names: Sequence[str]) -> _Launch:
        """A launch, compiled. names: of the host function's parameters."""
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
            taken = tuple(parameter.name for parameter in defined.parameters)
            self._compiled[key] = self._code(entry, taken, launch.shared)
        return self._compiled[key], launch.grid, launch.block, values

    def _code(self, entry: str, taken: tuple[str, ...], shared: int) -> Any:
        """A kernel, compiled. taken: names of its parameters."""
        solution = self.solution
        code = prepared(solution.file, solution.source, entry, solution.folders, solution.define)
        compiled = self.device.compile(replace(code, arguments=taken, shared=shared))
        for (other, _), known in self._compiled.items():
            if shared_by_both := {*known.compiled.variables} & {*compiled.compiled.variables}:
                variable = (
                    f"{other} and {entry} use {min(shared_by_both)}, of which each has its own"
                )
                raise BadSetting(
                    f"{solution.file}: {variable}: pass data in a parameter of {FUNCTION}, or write one kernel"
                )
        return compiled

    def _bound(self, entry: str, parameter: Parameter, bits: int, names: Sequence[str]) -> Any:
        """What a kernel's parameter gets: the name of a buffer, or a number of the parameter's type."""
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
    """The number that stands for an argument: as for worklog.kernel.host_program.whole_program."""
    if passed.buffer is not None:
        return stand_in(place)
    number = passed.number
    if isinstance(number, float):
        return int(np.float64(number).view(np.int64))
    return int(number)


class _Python(Solver):
    """A Python function on a GPU's arrays, which doesn't wait."""

    is_host = True

    def __init__(
        self, solution: Solution, problem: Problem, device: Device, host: HostFunction
    ) -> None:
        super().__init__(solution, problem, device)
        loan = loan_of(device, f"{self.name} is a Python function")
        self.returned: Any = None
        self.function, arrays = host.loaded()
        self.loan = loan(arrays)
        taken = signature_of(self.function)
        kinds = [parameter.kind for parameter in taken.parameters.values()] if taken else []
        positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.takes = sum(kind in positional for kind in kinds)

    def _arrays(self, arguments: Sequence[Passed], *roles: str) -> list[Any]:
        taken = [passed for passed in arguments if passed.role in roles]
        return [p.value if p.buffer is None else self.loan.array(p.buffer, *p.form) for p in taken]

    def enqueue(self, *arguments: Passed) -> None:
        inputs = self._arrays(arguments, "input")
        returns = self.takes == len(inputs)
        with calling(self.name, self.loan):
            self.returned = self.function(*(inputs if returns else self._arrays(arguments, *ROLES)))

    def collect(self, *arguments: Passed) -> None:
        if self.takes != sum(passed.role == "input" for passed in arguments):
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
                right = tuple(output.shape)
                if shape != right:
                    raise LaunchFailed(f"{self.name} returned shape {shape}: {right} is right")
                output[...] = result


def starters(problem: Problem, called: str, folder: Path) -> dict[Path, str]:
    """Starter code by file, in CUDA and Python. called: the problem as one types it. Raises BadSetting."""
    declared = problem.signature
    written = [
        parameter.name for parameter in declared if parameter.pointer and not parameter.const
    ]
    needed = {HEADERS[parameter.type] for parameter in declared if parameter.type in HEADERS}
    values = {
        "ABOUT": " ".join((inspect.getdoc(problem) or "a problem").partition("\n\n")[0].split()),
        "CALLED": called,
        "INCLUDES": "".join(f"#include <{header}>\n" for header in sorted(needed)),
        "PROBLEM": problem.name,
        "ENTRY": re.sub(r"\W", "_", problem.name) + "_kernel",
        "PASSED": ", ".join(parameter.name for parameter in declared),
        "WRITTEN": " and ".join(written or ["the output"]),
        "DECLARED": ",\n    ".join(parameter.declaration for parameter in declared),
    }
    files = {}
    for name, template in (("solution.cu", "solution.cu"), ("solution.py", "solution.py.txt")):
        text = Path(__file__).with_name(template).read_text(encoding="utf-8")
        words = values | {"FILE": shlex.quote(str(folder / name))}
        files[folder / name] = re.sub("|".join(words), lambda match: words[match[0]], text)  # noqa: B023
    return files
