"""Host functions: functions that launch GPU work themselves.

Examples: a Python function, a torch op, a Triton kernel or a C function of a shared library.

The contract. `function(alpha, A, B, beta, C)` computes C = alpha A B + beta C. A (M x K),
B (K x N) and C (M x N) are row-major float32 matrices of the harness: CuPy arrays, or with
`ARRAYS = "torch"` in the file PyTorch tensors on the same memory. The function writes C in
place, leaves A and B unchanged, doesn't read C when beta is 0, and returns None or C itself.
It launches on the current stream, which is set for CuPy and PyTorch; a parameter named
`stream` gets the stream's handle as an integer. It joins work on other streams into that
stream before it returns. To be timed it must not wait for the GPU. It compiles and allocates
at its first call.

In a shared library it is an extern "C" function `void f(int M, int N, int K, float alpha,
const float* A, const float* B, float beta, float* C, cudaStream_t stream)`.

A child process loads the code. A host function is trusted not to tamper with that process:
mistakes and the known ways to fool a benchmark are caught. Code that rewrites the harness, the
gate or a clock in the same interpreter isn't caught.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import inspect
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from worklog.errors import BadSetting, LaunchFailed, NoGpu, WorklogError, message_and_place
from worklog.kernel.device import Buffer, Device, Program, Runnable
from worklog.problem import SGEMM, Shape, ctype_of
from worklog.runs.files import require_file

LABEL = "host function"
REMARK = f"{LABEL}: trusted not to tamper with its own process"
CONTRACT = "function(alpha, A, B, beta, C), which writes C in place"
ARRAYS = ("cupy", "torch", "pointers")
LIBRARY = ".so"
C_SIGNATURE = (*map(ctype_of, SGEMM.signature), ctypes.c_void_p)  # the last one is the stream


@dataclass(frozen=True)
class HostFunction:
    """A reference to a host function."""

    origin: str  # an importable module, or the absolute path of a .py file or a shared library
    function: str
    arrays: str = ""  # an element of ARRAYS; "" for the file's choice
    sha256: str = ""  # of the file when the record was made, "" for a module

    @classmethod
    def of(cls, function: str | Callable[..., object], arrays: str = "") -> HostFunction:
        """Return the reference to a function.

        function, arrays: as for worklog.kernel.Kernel.from_function, which states the errors
        """
        if isinstance(function, str):
            origin, _, name = function.rpartition(":")
        else:
            origin, name = _reference(function)
        if not origin or not name.isidentifier():
            names = f"module:function, file.py:function or lib{LIBRARY}:function"
            advice = f"give {names}; for SGEMM, a {CONTRACT}"
            raise BadSetting(f"cannot read {function!r}: {advice}")
        if arrays and arrays not in ARRAYS:
            raise BadSetting(f"there are no arrays {arrays!r}: choose from {', '.join(ARRAYS)}")
        if not (origin.endswith((".py", LIBRARY)) or os.sep in origin):
            if origin.endswith(".cu") or not all(part.isidentifier() for part in origin.split(".")):
                expected = (
                    f"a module's name, a .py file or a {LIBRARY} file; "
                    "of a .cu file, name the kernel with --entry"
                )
                raise BadSetting(f"cannot read {function!r}: {origin!r} isn't {expected}")
            return cls(origin, name, arrays)
        if origin.endswith(LIBRARY) and arrays not in ("", "pointers"):
            raise BadSetting(f"a shared library takes pointers, not {arrays} arrays")
        path = Path(origin).resolve()
        return cls(str(path), name, arrays, _sha256(path))

    @property
    def file(self) -> str:
        """The name of the function's file or module."""
        return Path(self.origin).name if self.sha256 else self.origin

    @property
    def program(self) -> Program:
        """The program of a kernel that has no CUDA source."""
        return Program(self.file, "", "")

    def loaded(self, fresh: bool = False) -> tuple[Callable[..., object], str]:
        """Load the function. Return it and the arrays that it takes.

        fresh: whether to load a copy of a library

        A file is loaded anew each time, a module once. Raises BadSetting.
        """
        if self.origin.endswith(LIBRARY):
            return self._load_from_library(fresh), "pointers"
        module = self.module()
        function = getattr(module, self.function, None)
        if not callable(function):
            raise BadSetting(
                f"{self.origin} has no function {self.function}: it has {_functions_of(module)}"
            )
        arrays = self.arrays or str(getattr(module, "ARRAYS", "cupy"))
        if arrays not in ARRAYS:
            raise BadSetting(
                f"{self.origin}: ARRAYS is {arrays!r}: choose from {', '.join(ARRAYS)}"
            )
        return function, arrays

    def _load_from_library(self, fresh: bool) -> Any:
        """Load the function of a shared library, or of a fresh copy. Raises BadSetting."""
        path = self._unchanged_file()
        try:
            with tempfile.TemporaryDirectory(prefix="worklog-") as folder:
                library: Any = ctypes.CDLL(str(shutil.copy(path, folder) if fresh else path))
                function = getattr(library, self.function)
        except (OSError, AttributeError) as error:
            advice = 'it must be an extern "C" function'
            raise BadSetting(
                f"cannot load {self.function} from {path}: {error}; {advice}"
            ) from error
        function.argtypes = C_SIGNATURE
        function.restype = None
        return function

    def describe(self) -> dict[str, Any]:
        """Return the description for a run, as worklog.kernel.Kernel.describe does."""
        return {"file": self.file, "sha256": self.sha256, "entry": self.function}

    def module(self) -> ModuleType:
        """Load the file as a new module, or the importable module.

        Raises BadSetting with the module's error and line.
        """
        path = self._unchanged_file() if self.sha256 else None
        folders = [os.getcwd()] if path is None else [str(path.parent), os.getcwd()]
        for folder in folders:
            if folder not in sys.path:
                # At the end, so that no file there replaces a module of the harness.
                sys.path.append(folder)
        try:
            if path is None:
                return importlib.import_module(self.origin)
            name = f"{path.stem}_{secrets.token_hex(4)}"
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses and Triton look for a function's module here
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise BadSetting(f"cannot load {self.origin}: {message_and_place(error)}") from error
        return module

    def _unchanged_file(self) -> Path:
        """Return the path of the file. Raises BadSetting if the file has changed."""
        path = Path(self.origin)
        if _sha256(path) != self.sha256:
            raise BadSetting(f"{path} has changed since the kernel was made: make it again")
        return path


def _functions_of(module: ModuleType) -> str:
    """Return the names of a module's public functions and classes, for a message."""
    names = []
    for name, value in vars(module).items():
        if callable(value) and not name.startswith("_"):
            names.append(name)
    return ", ".join(names) or "none"


class HostSubject(Runnable):
    """A host function on a device. Its kernels aren't counted, and its code isn't known."""

    uses_streams = True

    def __init__(self, kernel: Any, device: Device, fresh: bool) -> None:
        self.device = device
        self.name = kernel.name
        self.domain = kernel.domain
        self.kernel = kernel
        self.claimed = kernel.claimed
        self.remarks = kernel.remarks
        loan = loan_of(device, f"{kernel.name} is a host function")
        self.function, self.arrays = kernel.host.loaded(fresh)
        self.loan = loan(self.arrays)
        self.is_library = kernel.host.origin.endswith(LIBRARY)
        signature = None if self.is_library else signature_of(self.function)
        takes_stream = signature is not None and "stream" in signature.parameters
        self.stream = {"stream": self.loan.handle} if takes_stream else {}
        try:
            if signature is not None:
                signature.bind(1.0, None, None, 0.0, None, **self.stream)
        except TypeError as error:
            declaration = f"{kernel.host.origin}:{kernel.host.function}{signature}"
            raise BadSetting(f"{declaration} cannot be called as {CONTRACT}: {error}") from error

    def state(self, shape: Shape) -> str:
        """Return the kind of code: it may keep anything."""
        return f"a {LABEL}"

    def rehearse(self, launches: Sequence[Callable[[], None]]) -> None:
        """Call the function, which may record a graph for new addresses."""
        for launch in launches:
            launch()
        self.device.synchronize()

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return {
            **self.kernel.describe(),
            "arrays": self.arrays,
            "user": LABEL,
            "label": LABEL,
            "domain": str(self.domain),
            "claimed": self.claimed,
        }

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        """Call the function once. The arrays of a batch have the products first.

        Raises BadSetting, and LaunchFailed for the function's errors and a broken contract.
        """
        self.kernel.check(shape)
        products = (shape.batch,) if shape.batch > 1 else ()
        array_a = self.loan.array(a, (*products, shape.m, shape.k), "float32")
        array_b = self.loan.array(b, (*products, shape.k, shape.n), "float32")
        array_c = self.loan.array(c, (*products, shape.m, shape.n), "float32")
        arguments = [alpha, array_a, array_b, beta, array_c]
        if self.is_library:
            arguments = [shape.m, shape.n, shape.k, *arguments, self.loan.handle]
        with calling(self.name, self.loan):
            returned = self.function(*arguments, **self.stream)
        if returned is not None and returned is not array_c:
            advice = "write the result into C, and return None or C itself"
            raise LaunchFailed(
                f"{self.name} returned a value of type {type(returned).__name__}: {advice}"
            )


def loan_of(device: Device, reason: str) -> Callable[[str], Any]:
    """Return the function that makes a loan of a GPU's memory and stream.

    The function returns a CudaLoan for a kind of arrays.

    reason: why a GPU is needed, for the message

    Raises NoGpu.
    """
    loan: Callable[[str], Any] | None = getattr(device, "loan", None)
    if loan is None:
        raise NoGpu(f"{reason}: it needs a GPU, and this device is {device.source}")
    return loan


@contextmanager
def calling(name: str, loan: Any) -> Iterator[None]:
    """Set the loan's stream while a host function is called.

    name: the function's name for messages

    Raises LaunchFailed for the function's errors.
    """
    try:
        with loan.current():
            yield
    except WorklogError as error:
        raise LaunchFailed(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:
        raise LaunchFailed(f"{name} raised {message_and_place(error)}") from error


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """Return a function's signature; None if it has none, like some compiled code."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _reference(function: Callable[..., object]) -> tuple[str, str]:
    """Return the module or file of a live function, and its name.

    Raises BadSetting if a child process can't load it.
    """
    name = str(getattr(function, "__qualname__", ""))
    origin = str(getattr(function, "__module__", ""))
    if origin == "__main__":
        origin = getattr(sys.modules.get("__main__"), "__file__", "")
    if not name.isidentifier() or not origin:
        advice = "define a function at the top level of a file, and give file.py:function"
        raise BadSetting(f"a child process cannot load {name or function!r}: {advice}")
    return origin, name


def _sha256(path: Path) -> str:
    """Return the hash of a file. Raises WorklogError if it can't be read."""
    try:
        require_file(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise WorklogError(f"cannot read {path}: {error.strerror}") from error
