"""A solution of a problem: CUDA source with an extern "C" function `solution` that launches kernels, a single kernel,
or a Python function. It gets a case's inputs, outputs and extra parameters, in the order of the problem's signature.

CUDA source with `solution` is compiled with nvcc on a machine with a GPU, where nvcc is. Elsewhere NVRTC compiles its
kernels, and its launches are read (worklog.kernel.host_code), so that it runs on the emulator. A single __global__
kernel states its grid and block in a comment, in the names of its own integer parameters, or by options.

A Python function `f(x, y, n)` takes the same as `solution`: CuPy arrays, or with `ARRAYS = "torch"` in its file PyTorch
tensors on the same memory, and writes the outputs in place. One that has as many parameters as the problem has inputs
returns the outputs instead, as a torch function does.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter as Kind
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from worklog.errors import BadSetting, CompileFailed, LaunchFailed
from worklog.kernel import signature
from worklog.kernel.device import COMPILE_OPTIONS, Buffer, Device, Program
from worklog.kernel.device_code import prepared
from worklog.kernel.host_code import Launched, launched, launches
from worklog.kernel.host_function import HostFunction, calling, loan_of, signature_of
from worklog.kernel.kernel import Kernel
from worklog.kernel.source import Call, Definition, definition, kernel_names, parts, read_source
from worklog.problem import Parameter, Problem, ctype_of, dtype_of

FUNCTION = "solution"
WAITS = re.compile(r"\bcuda(?:\w*Synchronize|Mem(?:cpy|set)|Malloc|Free)\b")  # calls that wait for the GPU
_LAUNCH = re.compile(r"<\s*<\s*<(.*?)>\s*>\s*>", re.DOTALL)
STREAM = "worklog_stream"  # of the harness, in a library that nvcc makes


@dataclass(frozen=True)
class Passed:
    """One argument of a solution. buffer: of an array, on the device; its elements as 32-bit words. value: a number, or
    the host's array, whose shape and type the buffer has.
    """

    parameter: Parameter
    value: Any
    buffer: Buffer | None = None

    @property
    def form(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of an array."""
        return tuple(self.value.shape), dtype_of(self.value)


class Ready:
    """A solution that is loaded on a device. waits: whether a call waits for the GPU, so that no queue can be held."""

    waits = False

    def enqueue(self, arguments: Sequence[Passed], written: range) -> None:
        """Enqueue its work on the device's stream. written: the places of the outputs. Raises LaunchFailed."""
        raise NotImplementedError

    def collect(self, arguments: Sequence[Passed], written: range) -> None:
        """Copy what a Python function returned into the outputs. Raises LaunchFailed."""


@dataclass(frozen=True)
class Solution(Kernel):
    """A solution of a problem, as a kernel whose `function` is the host function or the single kernel, and `text` the
    whole CUDA source. folders: of headers. define: macros. problem, dtype: what it is measured on, as
    worklog.runner.problems.find_problem takes them.
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
        entry: str | None = None,
        grid: str | None = None,
        block: str | None = None,
        include: Sequence[str | Path] = (),
        define: Sequence[str] = (),
        arrays: str = "",
    ) -> Solution:
        """A .cu file, or a Python function as file.py:function, module:function, or itself. Raises WorklogError for a
        file that can't be read, and BadSetting.
        """
        if callable(what) or not str(what).endswith(".cu"):
            if entry or grid or block:
                raise BadSetting("--entry, --grid and --block are for a .cu file: a Python function launches itself")
            if str(what).endswith((".py", ".so")):
                what = f"{what}:{FUNCTION}"
            host = HostFunction.of(what if callable(what) else str(what), arrays)
            return cls(host.function, host.file, host.function, host=host)
        path = Path(what)
        source = read_source(path)
        folders = tuple(str(Path(one).resolve()) for one in (*include, path.parent))
        found = cls(path.stem, path.name, FUNCTION, text=source, folders=folders, define=tuple(define))
        if entry in (None, FUNCTION) and definition(source, FUNCTION, of_host=True) is not None:
            if grid or block:
                raise BadSetting(
                    f"--grid and --block are for a single kernel: {FUNCTION} in {path.name} launches its own"
                )
            return found
        names = kernel_names(source)
        if entry is None and len(names) != 1:
            has = f"has {len(names)} kernels ({', '.join(names)})" if names else "has no kernel"
            raise BadSetting(f'{path.name} {has}: write extern "C" void {FUNCTION}(…), which launches them')
        return replace(found, function=entry or names[0], grid=grid or "", block=block or "")

    def ready(self, device: Device, problem: Problem) -> Ready:
        """Load it on a device. Raises BadSetting for a signature that isn't the problem's, CompileFailed, and NoGpu for
        a Python function without a GPU.
        """
        declared = problem.signature
        if self.host is not None:
            return _Python(self, self.host, device)
        own = self._definition()
        self._require_signature(own, declared, problem.name)
        if self.function == FUNCTION and device.source == "live" and shutil.which("nvcc"):
            return _Library(self, device, declared)
        return _Kernels(self, device, own)

    def describe(self, subject: object = None) -> dict[str, Any]:
        """For a run's `kernels`."""
        sha256 = self.host.sha256 if self.host is not None else hashlib.sha256(self.source.encode()).hexdigest()
        solves = {"problem": self.problem, "dtype": self.dtype, "user": "solution"}
        return {"file": self.file, "sha256": sha256, "entry": self.function, **solves}

    def _definition(self) -> Definition:
        of_host = self.function == FUNCTION
        found = definition(self.source, self.function.partition("<")[0].strip(), of_host=of_host)
        if found is None and of_host:
            raise BadSetting(f'{self.file} has no host function {FUNCTION}: write extern "C" void {FUNCTION}(…)')
        if found is None:
            raise BadSetting(f"{self.file} has no kernel {self.function}: its kernels are {kernel_names(self.source)}")
        return found

    def _require_signature(self, own: Definition, declared: Sequence[Parameter], problem: str) -> None:
        """Raise BadSetting unless the parameters take what the problem passes."""
        wanted = ", ".join(parameter.declaration for parameter in declared)
        if len(own.parameters) != len(declared):
            raise BadSetting(
                f"{self.file}: {self.function} takes {len(own.parameters)} parameters, and {problem} passes "
                f"{len(declared)}: declare {self.function}({wanted})"
            )
        for mine, theirs in zip(own.parameters, declared, strict=True):
            same = mine.dtype in ("", theirs.dtype)
            if mine.pointer != theirs.pointer or not same:
                raise BadSetting(
                    f"{self.file}: {self.function} takes {mine.type}{'*' * mine.pointer} {mine.name}, and {problem} "
                    f"passes {theirs.declaration}: declare {self.function}({wanted})"
                )

    def launches(self, own: Definition, values: dict[str, Any]) -> list[Launched]:
        """Its launches, in order. own: its definition. values: of its parameters. Raises BadSetting."""
        if self.function == FUNCTION:
            return launches(self.source, own, values, self.file)
        stated = []
        for option, given in (("grid", self.grid), ("block", self.block)):
            words = {given} if given else signature.stated(self.source, option)
            if len(words) != 1:
                known = ", ".join(name for name, value in values.items() if type(value) is int)
                raise BadSetting(
                    f"{self.file} doesn't state the {option} of {self.function}: write // {option}: … above it, in the "
                    f"names of its integer parameters ({known or 'it has none'}), or give --{option}"
                )
            stated.append(f"dim3({words.pop()})")
        try:
            return [launched(Call(self.function, (), tuple(stated), tuple(values), 0), {}, values)]
        except BadSetting as error:
            raise BadSetting(f"{self.file}: {error}") from error

    def one(self, entry: str, shared: int, arguments: Sequence[str]) -> Program:
        """One of its kernels, to compile."""
        text, options, headers = prepared(self.source, self.folders, self.define)
        return Program(self.file, text, entry, options, tuple(arguments), shared, headers)


class _Kernels(Ready):
    """Kernels that a device compiles, launched as the source states."""

    def __init__(self, solution: Solution, device: Device, own: Definition) -> None:
        self.solution, self.device, self.own = solution, device, own
        self._compiled: dict[tuple[str, int], Any] = {}
        self._read: dict[tuple[Any, ...], list[Launched]] = {}

    def enqueue(self, arguments: Sequence[Passed], written: range) -> None:
        """As Ready.enqueue."""
        names = [parameter.name for parameter in self.own.parameters]
        given = dict(zip(names, arguments, strict=True))
        values = {name: None if one.buffer is not None else _number(one) for name, one in given.items()}
        key = tuple(values.values())
        if key not in self._read:  # once, so that a timed launch parses nothing
            self._read[key] = self.solution.launches(self.own, values)
        for launch in self._read[key]:
            self._launch(launch, given)

    def _launch(self, launch: Launched, given: dict[str, Passed]) -> None:
        source, file = self.solution.source, self.solution.file
        found = definition(source, launch.entry.partition("<")[0])
        place = f"{file}:{launch.line}" if launch.line else file
        if found is None:
            raise BadSetting(f"{place}: {launch.entry} is no kernel of this file: define it as __global__ void")
        if len(found.parameters) != len(launch.arguments):
            raise BadSetting(
                f"{place}: {launch.entry} takes {len(found.parameters)} parameters, and the launch passes "
                f"{len(launch.arguments)}"
            )
        bound = [_bound(p, one, given, place) for p, one in zip(found.parameters, launch.arguments, strict=True)]
        key = launch.entry, launch.shared
        if key not in self._compiled:
            names = [parameter.name for parameter in found.parameters]
            self._compiled[key] = self.device.compile(self.solution.one(launch.entry, launch.shared, names))
        self.device.launch(self._compiled[key], launch.grid, launch.block, bound)


def _number(passed: Passed) -> Any:
    value = passed.value.item() if hasattr(passed.value, "item") else passed.value
    return int(value) if passed.parameter.dtype.startswith(("int", "uint")) else value


def _bound(parameter: Parameter, argument: Any, given: dict[str, Passed], place: str) -> Any:
    """What a kernel's parameter gets: a buffer, or a number of the parameter's type. Raises BadSetting."""
    passed = given.get(argument) if isinstance(argument, str) else None
    buffer = passed.buffer if passed is not None else None
    if parameter.pointer != (buffer is not None):
        kind = "an address" if parameter.pointer else "a number"
        raise BadSetting(f"{place}: {parameter.name} takes {kind}: pass a parameter of {FUNCTION} as it is")
    if buffer is not None:
        return buffer
    if parameter.dtype in ("", "bfloat16"):
        raise BadSetting(
            f"{place}: a number of type {parameter.type} can't be passed to {parameter.name}: take a float"
        )
    return np.dtype(parameter.dtype).type(argument if passed is None else _number(passed))


class _Library(Ready):
    """CUDA source that nvcc has compiled to a shared library, whose launches go to the harness's stream."""

    def __init__(self, solution: Solution, device: Device, declared: Sequence[Parameter]) -> None:
        self.solution, self.device = solution, device
        self.loan: Any = device.loan("pointers")  # type: ignore[attr-defined]
        with TemporaryDirectory(prefix="worklog-") as folder:
            library = ctypes.CDLL(str(compiled_library(solution, Path(folder))))
        self.function, self.waits = getattr(library, FUNCTION), bool(WAITS.search(solution.source))
        self.function.argtypes, self.function.restype = [ctype_of(parameter) for parameter in declared], None
        ctypes.c_void_p.in_dll(library, STREAM).value = self.loan.handle

    def enqueue(self, arguments: Sequence[Passed], written: range) -> None:
        """As Ready.enqueue."""
        self.function(
            *(_number(one) if one.buffer is None else self.loan.array(one.buffer, *one.form) for one in arguments)
        )


def on_the_stream(source: str) -> str:
    """CUDA source whose launches go to the stream `worklog_stream`, where they name no stream of their own."""

    def with_stream(found: re.Match[str]) -> str:
        configuration = parts(found[1])
        if len(configuration) > 3:
            return found[0]
        return f"<<<{', '.join([*configuration, *['0'] * (3 - len(configuration)), STREAM])}>>>"

    return f'extern "C" {{ cudaStream_t {STREAM} = 0; }}\n#line 1\n{_LAUNCH.sub(with_stream, source)}'


def compiled_library(solution: Solution, folder: Path, arch: str = "native") -> Path:
    """Compile a solution with nvcc to a shared library in a folder. Raises CompileFailed with nvcc's message."""
    file, library = folder / solution.file, folder / "solution.so"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(on_the_stream(solution.source), encoding="utf-8")
    options = [*(f"-I{one}" for one in solution.folders), *(f"-D{one}" for one in solution.define)]
    command = ["nvcc", *COMPILE_OPTIONS, "-O3", "-shared", "-Xcompiler", "-fPIC", f"-arch={arch}", *options]
    done = subprocess.run([*command, "-o", str(library), str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).replace(f"{folder}/", "").strip()
        raise CompileFailed(f"{file.name} does not compile with nvcc:\n{said}")
    return library


class _Python(Ready):
    """A Python function on a GPU's arrays, which doesn't wait."""

    def __init__(self, solution: Solution, host: HostFunction, device: Device) -> None:
        loan = loan_of(device, f"{solution.name} is a Python function")
        self.name = solution.name
        self.returned: Any = None
        self.function, arrays = host.loaded()
        self.loan = loan(arrays)
        taken = signature_of(self.function)
        kinds = [one.kind for one in taken.parameters.values()] if taken else []
        self.takes = sum(kind in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD) for kind in kinds)

    def enqueue(self, arguments: Sequence[Passed], written: range) -> None:
        """As Ready.enqueue."""
        given = [one.value if one.buffer is None else self.loan.array(one.buffer, *one.form) for one in arguments]
        returns = self.takes == written.start
        with calling(self.name, self.loan):
            self.returned = self.function(*(given[: written.start] if returns else given))

    def collect(self, arguments: Sequence[Passed], written: range) -> None:
        """As Ready.collect."""
        if self.takes != written.start:
            return
        results = self.returned if isinstance(self.returned, tuple | list) else (self.returned,)
        if len(results) != len(written) or not all(hasattr(one, "shape") for one in results):
            raise LaunchFailed(f"{self.name} takes the inputs only: return the outputs, or take all parameters")
        with self.loan.current():
            for place, value in zip(written, results, strict=True):
                output = self.loan.array(arguments[place].buffer, *arguments[place].form)
                if tuple(value.shape) != tuple(output.shape):
                    raise LaunchFailed(
                        f"{self.name} returned shape {tuple(value.shape)}: {tuple(output.shape)} is right"
                    )
                output[...] = value
