"""Host functions: functions that launch GPU work themselves, such as a Python function, a torch op, a Triton kernel or
a C function of a shared library.

The contract. `function(alpha, A, B, beta, C)` computes C = alpha A B + beta C. A (M x K), B (K x N) and C (M x N) are
row-major float32 matrices of the harness: CuPy arrays, or with `ARRAYS = "torch"` in the file PyTorch tensors on the
same memory. The function writes C in place, leaves A and B unchanged, does not read C when beta is 0, and returns None
or C itself. It launches on the current stream, which is set for CuPy and PyTorch; a parameter named `stream` gets its
handle as an integer. It joins work on other streams into that stream before it returns. To be timed it must not wait
for the GPU. It compiles and allocates at its first call.

In a shared library it is an extern "C" function `void f(int M, int N, int K, float alpha, const float* A, const float*
B, float beta, float* C, cudaStream_t stream)`.

A child process loads the code. A host function is trusted not to tamper with that process: mistakes and the known ways
to fool a benchmark are caught, code that rewrites the harness, the gate or a clock in the same interpreter is not.
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
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from worklog.errors import BadSetting, LaunchFailed, NoGpu, WorklogError
from worklog.kernel.device import Buffer, Device, Runnable
from worklog.problem import SGEMM, Shape, ctype_of
from worklog.runs import require_file

PACKAGE = str(Path(__file__).parents[1]) + os.sep
LABEL = "host function"
REMARK = f"{LABEL}: trusted not to tamper with its own process"
CONTRACT = "function(alpha, A, B, beta, C), which writes C in place"
ARRAYS = ("cupy", "torch", "pointers")
LIBRARY = ".so"
C_SIGNATURE = (*map(ctype_of, SGEMM.signature), ctypes.c_void_p)  # the last one is the stream


@dataclass(frozen=True)
class HostFunction:
    """A reference to a host function. where: an importable module, or the absolute path of a .py file or a shared
    library. arrays: one of ARRAYS; "" takes the file's choice. sha256: of the file when the record was made, "" for a
    module.
    """

    where: str
    function: str
    arrays: str = ""
    sha256: str = ""

    @classmethod
    def of(cls, function: str | Callable[..., object], arrays: str = "") -> HostFunction:
        """As worklog.kernel.Kernel.from_function."""
        where, _, name = (
            function.rpartition(":") if isinstance(function, str) else _reference(function)
        )
        if not where or not name.isidentifier():
            advice = f"give module:function, file.py:function or lib{LIBRARY}:function; for SGEMM, a {CONTRACT}"
            raise BadSetting(f"cannot read {function!r}: {advice}")
        if arrays and arrays not in ARRAYS:
            raise BadSetting(f"there are no arrays {arrays!r}: choose from {', '.join(ARRAYS)}")
        if not (where.endswith((".py", LIBRARY)) or os.sep in where):
            if where.endswith(".cu") or not all(part.isidentifier() for part in where.split(".")):
                what = f"a module's name, a .py file or a {LIBRARY} file; of a .cu file, name the kernel with --entry"
                raise BadSetting(f"cannot read {function!r}: {where!r} isn't {what}")
            return cls(where, name, arrays)
        if where.endswith(LIBRARY) and arrays not in ("", "pointers"):
            raise BadSetting(f"a shared library takes pointers, not {arrays} arrays")
        path = Path(where).resolve()
        return cls(str(path), name, arrays, _sha256(path))

    @property
    def file(self) -> str:
        """The name of its file, or its module."""
        return Path(self.where).name if self.sha256 else self.where

    def loaded(self, fresh: bool = False) -> tuple[Callable[..., object], str]:
        """The function, and the arrays that it takes. A file is loaded anew each time, a module once. fresh: from a
        copy of a library. Raises BadSetting.
        """
        if self.where.endswith(LIBRARY):
            path = self._unchanged()
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
            return function, "pointers"
        module = self.module()
        function = getattr(module, self.function, None)
        if not callable(function):
            names = [
                name
                for name, value in vars(module).items()
                if callable(value) and not name.startswith("_")
            ]
            raise BadSetting(
                f"{self.where} has no function {self.function}: it has {', '.join(names) or 'none'}"
            )
        arrays = self.arrays or str(getattr(module, "ARRAYS", "cupy"))
        if arrays not in ARRAYS:
            raise BadSetting(f"{self.where}: ARRAYS is {arrays!r}: choose from {', '.join(ARRAYS)}")
        return function, arrays

    def describe(self) -> dict[str, Any]:
        """As worklog.kernel.Kernel.describe."""
        return {"file": self.file, "sha256": self.sha256, "entry": self.function}

    def module(self) -> ModuleType:
        """The file as a new module, or the importable module. Raises BadSetting with the module's error and line."""
        path = self._unchanged() if self.sha256 else None
        for folder in [os.getcwd()] if path is None else [str(path.parent), os.getcwd()]:
            if folder not in sys.path:
                sys.path.append(
                    folder
                )  # at the end, so that no file there replaces a module of the harness
        try:
            if path is None:
                return importlib.import_module(self.where)
            name = f"{path.stem}_{secrets.token_hex(4)}"
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses and Triton look for a function's module here
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise BadSetting(f"cannot load {self.where}: {words_of(error)}") from error
        return module

    def _unchanged(self) -> Path:
        path = Path(self.where)
        if _sha256(path) != self.sha256:
            raise BadSetting(f"{path} has changed since the kernel was made: make it again")
        return path


class HostSubject(Runnable):
    """A host function on a device. Its kernels aren't counted, and its code isn't known."""

    is_host = True

    def __init__(self, kernel: Any, device: Device, fresh: bool) -> None:
        self.name = kernel.name
        self.domain = kernel.domain
        self.kernel = kernel
        self.claimed = kernel.claimed
        self.remarks = kernel.remarks
        loan = loan_of(device, f"{kernel.name} is a host function")
        self.function, self.arrays = kernel.host.loaded(fresh)
        self.loan = loan(self.arrays)
        self.is_library = kernel.host.where.endswith(LIBRARY)
        signature = None if self.is_library else signature_of(self.function)
        takes_stream = signature is not None and "stream" in signature.parameters
        self.stream = {"stream": self.loan.handle} if takes_stream else {}
        try:
            if signature is not None:
                signature.bind(1.0, None, None, 0.0, None, **self.stream)
        except TypeError as error:
            named = f"{kernel.host.where}:{kernel.host.function}{signature}"
            raise BadSetting(f"{named} cannot be called as {CONTRACT}: {error}") from error

    def describe(self) -> dict[str, Any]:  # noqa: D102
        loaded = {"arrays": self.arrays, "user": LABEL, "label": LABEL}
        return {
            **self.kernel.describe(),
            **loaded,
            "domain": str(self.domain),
            "claimed": self.claimed,
        }

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        """Call it once. Raises BadSetting, and LaunchFailed for its own errors and a broken contract."""
        self.kernel.check(shape)
        sizes = (a, shape.m, shape.k), (b, shape.k, shape.n), (c, shape.m, shape.n)
        of_a, of_b, of_c = (
            self.loan.array(buffer, (rows, columns), "float32") for buffer, rows, columns in sizes
        )
        before = (shape.m, shape.n, shape.k) if self.is_library else ()
        behind = (self.loan.handle,) if self.is_library else ()
        with calling(self.name, self.loan):
            returned = self.function(*before, alpha, of_a, of_b, beta, of_c, *behind, **self.stream)
        if returned is not None and returned is not of_c:
            advice = "write the result into C, and return None or C itself"
            raise LaunchFailed(
                f"{self.name} returned a value of type {type(returned).__name__}: {advice}"
            )


def loan_of(device: Device, what: str) -> Callable[[str], Any]:
    """A GPU's memory and stream as host functions use them, by their arrays, as CudaLoan. Raises NoGpu."""
    loan: Callable[[str], Any] | None = getattr(device, "loan", None)
    if loan is None:
        raise NoGpu(f"{what}: it needs a GPU, and this device is {device.source}")
    return loan


@contextmanager
def calling(name: str, loan: Any) -> Iterator[None]:
    """While a host function is called. Raises LaunchFailed for its errors."""
    try:
        with loan.current():
            yield
    except WorklogError as error:
        raise LaunchFailed(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:
        raise LaunchFailed(f"{name} raised {words_of(error)}") from error


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """Its parameters; compiled code may state none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _reference(function: Callable[..., object]) -> tuple[str, str, str]:
    """Where a live function is, and its name. Raises BadSetting if a child process cannot load it."""
    name = str(getattr(function, "__qualname__", ""))
    module = str(getattr(function, "__module__", ""))
    where = getattr(sys.modules.get("__main__"), "__file__", "") if module == "__main__" else module
    if not name.isidentifier() or not where:
        advice = "define a function at the top level of a file, and give file.py:function"
        raise BadSetting(f"a child process cannot load {name or function!r}: {advice}")
    return where, ":", name


def _sha256(path: Path) -> str:
    try:
        require_file(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise WorklogError(f"cannot read {path}: {error.strerror}") from error


def words_of(error: BaseException) -> str:
    """The first line of an error, with the file and line of the innermost frame that isn't of this package."""
    frames = traceback.extract_tb(error.__traceback__)
    last = ([frame for frame in frames if not frame.filename.startswith(PACKAGE)] or frames)[-1]
    file, line = (
        (error.filename, error.lineno)
        if isinstance(error, SyntaxError)
        else (last.filename, last.lineno)
    )
    first = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
    return f"{first} ({Path(file or '?').name}:{line})"
