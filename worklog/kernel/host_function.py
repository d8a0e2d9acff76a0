"""Host code that launches something of its own: a Python function, a torch op, a Triton kernel, a shared library.

The contract. `function(alpha, A, B, beta, C)` computes C = alpha A B + beta C. A (M x K), B (K x N) and C (M x N) are
row-major float32 matrices that the harness owns: CuPy arrays, or with `ARRAYS = "torch"` in the file PyTorch tensors on
the same memory. It writes C in place, changes neither A nor B, does not read C when beta is 0, and returns None or C
itself. What it launches, it launches on the current stream, which is set for CuPy and PyTorch; a parameter named
`stream` gets its handle as an integer, for other ways to launch (Triton follows PyTorch's). Work on other streams must
be joined into that stream before the function returns: the gate waits for the whole GPU and fails a function that leaves
work behind (worklog.gate.plausible). It need not wait for the GPU, and to be timed it must not, since launches are queued
before the first of them runs; what it has to compile or to allocate it does at its first call.

Of a shared library it is an extern "C" function `void f(int M, int N, int K, float alpha, const float* A, const float*
B, float beta, float* C, cudaStream_t stream)`.

The code is loaded when `subject` is called, never before: in a run and in a check, that is in a child process. A host
function is trusted not to tamper with its own process. Mistakes and the known ways to fool a benchmark are caught: each
timed launch gets new inputs, each output is checked against signs drawn after the launch, and the GPU must be idle when
the launch is over. Code that rewrites the harness, the gate or a clock in the same interpreter is not detected, so read
the code of a host function before you quote its numbers.
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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from worklog.errors import BadSetting, LaunchFailed, NoGpu, OutsideDomain, WorklogError
from worklog.kernel.kernel import Buffer, Device, Subject
from worklog.kernel.ladder import Domain
from worklog.problem.gemm import CLASSES, Shape

LABEL = "host function"
REMARK = f"{LABEL}: trusted not to tamper with its own process"
CONTRACT = "function(alpha, A, B, beta, C), which writes C in place"
ARRAYS = ("cupy", "torch", "pointers")
LIBRARY = ".so"
C_SIGNATURE = (*3 * [ctypes.c_int], ctypes.c_float, *2 * [ctypes.c_void_p], ctypes.c_float, *2 * [ctypes.c_void_p])
Call = Callable[[Shape, float, Any, Any, float, Any, int], object]  # the last is the stream's handle


class ReturnsSomething(LaunchFailed):
    """A callable returned something else than None or C."""


class Loan(Protocol):
    """A device's memory and stream, as host code uses them."""

    @property
    def handle(self) -> int:
        """The stream, as a cudaStream_t."""

    def matrix(self, buffer: Any, rows: int, columns: int) -> Any:
        """The buffer as a matrix on the same memory, or its address."""

    def current(self) -> AbstractContextManager[Any]:
        """While open, the device's stream is the current one of the libraries that are loaded."""


@runtime_checkable
class Lender(Protocol):
    """A device that host code can work on."""

    def loan(self, arrays: str) -> Loan:
        """arrays: one of ARRAYS."""


@dataclass(frozen=True)
class HostCallable:
    """A function of somebody's own, a worklog.kernel.user_kernel.Brought. where: an importable module's name, or the absolute path
    of a .py file or a shared library. arrays: what it is handed, one of ARRAYS; "" leaves it to the file, else CuPy.
    title: its name in runs (default: the function's). sha256: of the file as it was named, "" for a module.
    """

    where: str
    function: str
    domain: Domain
    claimed: str = "fp32"
    arrays: str = ""
    title: str = ""
    sha256: str = ""

    @classmethod
    def read(
        cls, words: str, *, domain: str = "any", claimed: str = "fp32", arrays: str = "", title: str = ""
    ) -> HostCallable:
        """From "module:function", "file.py:function" or "lib.so:function"; nothing is loaded. Raises WorklogError for a
        file that cannot be read, and BadSetting.
        """
        where, colon, function = words.rpartition(":")
        if not colon or not where or not function.isidentifier():
            raise BadSetting(
                f"cannot read {words!r}: give module:function, file.py:function or lib{LIBRARY}:function, for a "
                f"{CONTRACT}"
            )
        if claimed not in CLASSES:
            raise BadSetting(f"there is no class {claimed!r}: choose from {', '.join(CLASSES)}")
        if arrays and arrays not in ARRAYS:
            raise BadSetting(f"there are no arrays {arrays!r}: choose from {', '.join(ARRAYS)}")
        stated = Domain.of(domain)
        if not _is_file(where):
            if not all(part.isidentifier() for part in where.split(".")):
                raise BadSetting(f"cannot read {where!r}: it is no module's name, no .py file and no {LIBRARY} file")
            return cls(where, function, stated, claimed, arrays, title)
        if where.endswith(LIBRARY) and arrays not in ("", "pointers"):
            raise BadSetting(f"a shared library is handed pointers, not {arrays} arrays")
        path = Path(where).resolve()
        return cls(str(path), function, stated, claimed, arrays, title, _sha256(path))

    @property
    def name(self) -> str:
        """Its title, or its function's name."""
        return self.title or self.function

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must stand beside its numbers."""
        return (REMARK,)

    def subject(self, device: Device, *, fresh: bool = False) -> HostSubject:
        """Load it for a device. fresh: a file is loaded anew, so that its next call is its first; a module cannot be. Raises NoGpu where there is no device to
        work on, and BadSetting for what cannot be loaded.
        """
        if not isinstance(device, Lender):
            raise NoGpu(f"{self.name} is host code: it runs on a GPU, and the {device.source} device cannot run it")
        call, arrays = _library(self, fresh) if self.where.endswith(LIBRARY) else _python(self)
        return HostSubject(self, device.loan(arrays), call, arrays)

    def describe(self, subject: Subject) -> dict[str, Any]:
        """Where the code is, what it is handed, and that it launches itself."""
        assert isinstance(subject, HostSubject)
        return {
            "file": Path(self.where).name if self.sha256 else self.where,
            "sha256": self.sha256,
            "entry": self.function,
            "arrays": subject.arrays,
            "domain": str(self.domain),
            "claimed": self.claimed,
            "brought": "callable",
            "label": LABEL,
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything but the code: it is loaded from where it is, if it is still the same."""
        return {
            "kind": "callable",
            "where": self.where,
            "function": self.function,
            "domain": str(self.domain),
            "claimed": self.claimed,
            "arrays": self.arrays,
            "name": self.title,
            "sha256": self.sha256,
        }

    @classmethod
    def from_dict(cls, words: Mapping[str, Any]) -> HostCallable:
        """What as_dict() gave."""
        stated = Domain.of(words["domain"])
        named = words["arrays"], words["name"], words["sha256"]
        return cls(words["where"], words["function"], stated, words["claimed"], *named)


class HostSubject:
    """A callable on a device, a worklog.kernel.kernel.Subject."""

    def __init__(self, brought: HostCallable, loan: Loan, call: Call, arrays: str) -> None:
        self.name = brought.name
        self.domain = brought.domain
        self.brought = brought
        self.loan = loan
        self.call = call
        self.arrays = arrays

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        """Call it once. Raises OutsideDomain, and LaunchFailed for what it raises and for a contract that it breaks."""
        if shape not in self.domain:
            raise OutsideDomain(f"size {shape} is outside the domain that was stated ({self.domain})")
        lend = self.loan.matrix
        matrices = lend(a, shape.m, shape.k), lend(b, shape.k, shape.n), lend(c, shape.m, shape.n)
        try:
            with self.loan.current():
                returned = self.call(shape, alpha, *matrices[:2], beta, matrices[2], self.loan.handle)
        except WorklogError as error:
            raise LaunchFailed(f"{self.name}: {error}") from error
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
            raise LaunchFailed(f"{self.name} raised {what} ({_line(error)})") from error
        if returned is not None and returned is not matrices[2]:
            raise ReturnsSomething(
                f"{self.name} returned {_article(type(returned).__name__)}: "
                "write the answer into C, and return None or C itself"
            )


def _is_file(where: str) -> bool:
    return where.endswith((".py", LIBRARY)) or os.sep in where


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise WorklogError(f"cannot read {path}: {error.strerror}") from error


def _python(brought: HostCallable) -> tuple[Call, str]:
    """The function as a call, and what it is to be handed. Raises BadSetting."""
    module = _file(brought) if brought.sha256 else _module(brought)
    function = getattr(module, brought.function, None)
    if not callable(function):
        found = ", ".join(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        raise BadSetting(f"{brought.where} has no function {brought.function}: it has {found or 'none'}")
    arrays = brought.arrays or str(getattr(module, "ARRAYS", "cupy"))
    if arrays not in ARRAYS:
        raise BadSetting(f"{brought.where}: ARRAYS is {arrays!r}: choose from {', '.join(ARRAYS)}")
    wants_stream = _wants_stream(brought, function)

    def call(shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any, stream: int) -> object:
        return function(alpha, a, b, beta, c, stream=stream) if wants_stream else function(alpha, a, b, beta, c)

    return call, arrays


def _wants_stream(brought: HostCallable, function: Callable[..., object]) -> bool:
    """Whether it takes a stream. Raises BadSetting for a function that cannot be called as the contract says."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code need not say
        return False
    stream = {"stream": 0} if "stream" in signature.parameters else {}
    try:
        signature.bind(1.0, None, None, 0.0, None, **stream)
    except TypeError as error:
        raise BadSetting(
            f"{brought.where}:{brought.function}{signature} cannot be called as {CONTRACT}: {error}"
        ) from error
    return bool(stream)


def _file(brought: HostCallable) -> ModuleType:
    """The file as a module of its own, which finds others beside it and in the current folder. Raises BadSetting."""
    path = Path(brought.where)
    if _sha256(path) != brought.sha256:
        raise BadSetting(f"{path} has changed since it was named: name it again")
    _on_the_path(str(path.parent), os.getcwd())
    name = f"{path.stem}_{secrets.token_hex(4)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and compilers look for what they are part of
    loader = spec.loader
    _loaded(brought, lambda: loader.exec_module(module))
    return module


def _module(brought: HostCallable) -> ModuleType:
    """An importable module, from the current folder too. Raises BadSetting."""
    _on_the_path(os.getcwd())
    _loaded(brought, lambda: importlib.import_module(brought.where))
    return sys.modules[brought.where]


def _on_the_path(*folders: str) -> None:
    """Last, so that nothing in them stands in for what the ruler imports."""
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in sys.path]


def _loaded(brought: HostCallable, load: Callable[[], object]) -> None:
    """Run somebody's module. Raises BadSetting with its complaint and its line."""
    try:
        load()
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadSetting(f"cannot load {brought.where}: {what} ({_line(error)})") from error


def _library(brought: HostCallable, fresh: bool) -> tuple[Call, str]:
    """A function of a shared library as a call. fresh: from a copy, which is loaded anew. Raises BadSetting."""
    path = Path(brought.where)
    if _sha256(path) != brought.sha256:
        raise BadSetting(f"{path} has changed since it was named: name it again")
    try:
        with tempfile.TemporaryDirectory(prefix="worklog-") as folder:
            loaded = shutil.copy(path, folder) if fresh else path
            function = getattr(ctypes.CDLL(str(loaded)), brought.function)
    except (OSError, AttributeError) as error:
        raise BadSetting(
            f'cannot load {brought.function} from {path}: {error}; it must be an extern "C" function'
        ) from error
    function.argtypes, function.restype = C_SIGNATURE, None

    def call(shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any, stream: int) -> object:
        return function(shape.m, shape.n, shape.k, alpha, a, b, beta, c, stream)

    return call, "pointers"


def _line(error: BaseException) -> str:
    """Where it was raised: file and line of the innermost frame."""
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '?').name}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "no line"


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
