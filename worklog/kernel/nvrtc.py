"""Compile CUDA C++ without a GPU: PTX, cubin and resources from one run of NVRTC.

NVRTC comes as a wheel and needs neither driver nor device, so any laptop has resources and PTX for every architecture.
It runs in a process of its own, so that a compile has a time limit and can be interrupted. NVRTC is loaded when the
first program is compiled, never by importing this module; ctypes calls it, because NVIDIA's Python bindings are another
30 MB.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from worklog.errors import BadSetting, CompileFailed, NvrtcMissing, UnknownEntry, WorklogError, install_command
from worklog.kernel.device import Program
from worklog.kernel.disk_cache import cached
from worklog.kernel.resources import Widths, shared_widths
from worklog.kernel.source import included, is_of_nvidia, kernel_names

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# Where there is a driver, NVRTC keeps compiled code on disk, and returns it without ptxas' report.
FIXED_OPTIONS = ("-lineinfo", "--ptxas-options=-v", "--no-cache")
# What a source names that needs an architecture's own features: ptxas takes it for sm_90a, and not for sm_90.
OWN = {"sm_90": r"\b(setmaxnreg|wgmma|\w*FEAT_SM90\w*)\b"}
LIMIT_S = 100.0  # the slowest rung takes 1 s
TICK_S = 0.5
# nvrtc.h: the types of the parameters. Each function returns an nvrtcResult, which is 0 where it succeeded.
HANDLE, NAME, TEXTS = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)
INT, SIZE = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_size_t)
OUTPUTS = ("ProgramLog", "PTX", "CUBIN")
FUNCTIONS = {
    "Version": (INT, INT),
    "CreateProgram": (ctypes.POINTER(HANDLE), NAME, NAME, ctypes.c_int, TEXTS, TEXTS),
    "AddNameExpression": (HANDLE, NAME),
    "CompileProgram": (HANDLE, ctypes.c_int, TEXTS),
    "GetLoweredName": (HANDLE, NAME, TEXTS),
    **{f"Get{what}Size": (HANDLE, SIZE) for what in OUTPUTS},
    **{f"Get{what}": (HANDLE, NAME) for what in OUTPUTS},
    "DestroyProgram": (ctypes.POINTER(HANDLE),),
}


VARIABLE = re.compile(r"^(?:\.(?:visible|weak) )?\.global (?:\.attribute\S* )?\.align \d+ \.\w+ ([$\w]+)", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """One kernel, compiled for one architecture.

    symbol: the entry's mangled name in the PTX and the cubin. registers: per thread. stack_bytes, spill_store_bytes,
    spill_load_bytes: local memory per thread, as ptxas reports it. shared_bytes: static, per block. shared_accesses:
    number of shared loads and stores in the machine code, by width. log: the output of NVRTC and ptxas, warnings
    included.
    """

    program: Program
    symbol: str
    arch: str
    ptx: str
    cubin: bytes
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    shared_accesses: Widths
    log: str

    @property
    def variables(self) -> list[str]:
        """Names of the `__device__` variables, which keep their values from one launch to the next; strings of printf,
        and what is constant or only declared, as NVRTC does with `constexpr int N`, aren't among them.
        """
        named = Counter(re.findall(r"[$\w]+", self.ptx))
        return [name for name in VARIABLE.findall(self.ptx) if named[name] > 1 and not name.startswith("$")]


# An option that makes NVRTC read no file.
READS_NOTHING = re.compile(r"-std=|-[DU]|--?(fmad|ftz|prec-div|prec-sqrt|use_fast_math|maxrregcount)\b")
Outputs = tuple[str, str, str, bytes]  # the entry's mangled name, PTX, log, cubin


@lru_cache(maxsize=128)
def compile_cuda(program: Program, arch: str = "sm_90") -> Compiled:
    """Compile a program for `arch`, in another process; equal arguments compile once per process, and once per machine
    where the program reads no file (worklog.kernel.disk_cache). Line information and ptxas' report are always on. A
    source that needs sm_90's own features is compiled for sm_90a.

    Raises CompileFailed with NVRTC's message, file, line and the source line, or after LIMIT_S seconds; UnknownEntry if
    the source has no such kernel; BadSetting for an unknown architecture; NvrtcMissing.
    """
    if arch not in ARCHITECTURES:
        raise BadSetting(f"cannot compile for {arch!r}: choose from {', '.join(ARCHITECTURES)}; --arch all takes all")
    library = _nvrtc()  # what is missing here is missing there
    if _reads_files(program):
        symbol, ptx, log, cubin = COMPILER.compile(program, arch)
    else:
        headers = [word for header in program.headers for word in header]
        given = [program.name, program.source, program.entry, *_options(program, arch), *headers]
        *texts, cubin = cached(Path(library._name), given, lambda: COMPILER.compile(program, arch))
        symbol, ptx, log = (text.decode() for text in texts)
    resources, accesses = _resources(log, symbol), shared_widths(cubin, symbol)
    return Compiled(program, symbol, arch, ptx, cubin, *resources, accesses, log)


def _reads_files(program: Program) -> bool:
    """Whether NVRTC may read a file that is not part of the program. A comment about an #include counts, too."""
    own = {name for name, _ in program.headers}
    known = sum(name in own for name in included(program.whole))
    return program.whole.count("include") > known or not all(map(READS_NOTHING.match, program.options))


class Compiler:
    """A process that compiles one program after another. A call of NVRTC cannot be interrupted, and the source may make
    it endless, so the process is ended instead: by itself after LIMIT_S, and by an interrupt here.
    """

    def __init__(self) -> None:
        self._lock, self._owner = threading.Lock(), 0
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.end)

    def compile(self, program: Program, arch: str) -> Outputs:
        """What NVRTC makes of a program; raises as compile_cuda()."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            try:
                pickle.dump((LIMIT_S, os.getcwd(), program, arch), process.stdin)
                process.stdin.flush()
                while not select.select([process.stdout], [], [], TICK_S)[0]:
                    pass  # a signal that came just before this wait is handled here
                answer: Outputs | WorklogError = pickle.load(process.stdout)
            except (EOFError, OSError) as error:
                why = f"took more than {LIMIT_S:g} s" if process.wait() == -signal.SIGALRM else "ended the compiler"
                raise CompileFailed(
                    f"{program.name}: compiling {program.entry} {why}: reduce its templates, recursion or unrolling"
                ) from error
            finally:
                if process.poll() is not None or sys.exc_info()[0] is not None:
                    self.end()
        if isinstance(answer, WorklogError):
            raise answer
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():  # a fork shares its parent's pipes
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
            self._owner = os.getpid()
        return self._process

    def end(self) -> None:
        """End the process; the next program gets a new one."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            with suppress(OSError), process:  # closes the pipes, and waits
                pass


def serve() -> None:
    """Compile what standard input asks for until it is closed. SIGALRM ends the process where that takes too long."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between the answers
    with suppress(EOFError):
        while True:
            limit_s, folder, program, arch = pickle.load(orders)
            os.chdir(folder)
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            try:
                answer: Outputs | WorklogError = _compile(program, arch)
            except WorklogError as error:
                answer = error
            signal.setitimer(signal.ITIMER_REAL, 0)
            pickle.dump(answer, answers)
            answers.flush()


def needs_own_features(program: Program, arch: str) -> bool:
    """Whether its text names what is compiled for this very architecture only, as for sm_90a."""
    return arch in OWN and re.search(OWN[arch], program.whole) is not None


def _options(program: Program, arch: str) -> list[str]:
    own = "a" if needs_own_features(program, arch) else ""
    return [f"-arch={arch}{own}", *FIXED_OPTIONS, *program.options, *of_nvidia(program)]


def _compile(program: Program, arch: str) -> Outputs:
    """As Compiler.compile(), in this process."""
    nvrtc, handle, entry = _nvrtc(), HANDLE(), program.entry.encode()
    names, texts = (_texts(header[place] for header in program.headers) for place in (0, 1))
    arguments, lowered = _texts(_options(program, arch)), NAME()
    source, name = program.source.encode(), program.name.encode()
    _call(nvrtc, "CreateProgram", handle, source, name, len(texts), texts, names)
    try:
        _call(nvrtc, "AddNameExpression", handle, entry)
        failed = nvrtc.nvrtcCompileProgram(handle, len(arguments), arguments)
        log = _read(nvrtc, handle, "ProgramLog").decode(errors="replace")
        if failed:
            raise compile_error(program, log or _words(nvrtc, failed), file=program.name)
        if nvrtc.nvrtcGetLoweredName(handle, entry, lowered):
            raise _no_entry(program)
        symbol = (lowered.value or b"").decode()
        # NVRTC puts the current directory before the name: the same source must give the same text everywhere.
        ptx = re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", _read(nvrtc, handle, "PTX").decode())
        cubin = _read(nvrtc, handle, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(handle)
    if not re.search(rf"\.entry\s+{re.escape(symbol)}\b", ptx):
        raise _no_entry(program)
    return symbol, ptx, log, cubin


def of_nvidia(program: Program) -> tuple[str, ...]:
    """Options with the folders of NVIDIA's headers, of wheels or of a toolkit, for a program that includes any."""
    return _folders() if included(program.whole) or any("-include" in option for option in program.options) else ()


@cache
def _folders() -> tuple[str, ...]:
    from cuda.pathfinder import find_nvidia_header_directory

    found = [find_nvidia_header_directory(library) for library in ("cudart", "cccl")]
    return tuple(f"-I{folder}" for folder in found if folder)


def nvrtc_version() -> tuple[int, int]:
    """NVRTC's major and minor version. Raises NvrtcMissing."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(_nvrtc(), "Version", major, minor)
    return major.value, minor.value


@cache
def nvidia_library(name: str) -> ctypes.CDLL:
    """A library of NVIDIA's wheels, of a toolkit or, as "cuda", of the driver. Raises ImportError or RuntimeError where
    there is none.
    """
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)


def _nvrtc() -> ctypes.CDLL:
    """NVRTC with the types of its parameters. Raises NvrtcMissing."""
    try:
        nvrtc = nvidia_library("nvrtc")
    except ImportError as error:
        raise NvrtcMissing(f"cannot compile CUDA source: {error}; install it with: {install_command()}") from error
    except RuntimeError as error:  # DynamicLibNotFoundError is one
        first_line = str(error).strip().splitlines()[0]
        raise NvrtcMissing(f"cannot load NVRTC: {first_line}; install it with: {install_command()}") from error
    for name, parameters in FUNCTIONS.items():
        getattr(nvrtc, f"nvrtc{name}").argtypes = parameters
    return nvrtc


COMPILER = Compiler()


def _call(nvrtc: ctypes.CDLL, function: str, *arguments: object) -> None:
    if failed := getattr(nvrtc, f"nvrtc{function}")(*arguments):
        raise CompileFailed(f"NVRTC failed in nvrtc{function}: {_words(nvrtc, failed)}")


def _words(nvrtc: ctypes.CDLL, result: int) -> str:
    """The name of an nvrtcResult, as NVRTC_ERROR_INVALID_INPUT."""
    nvrtc.nvrtcGetErrorString.restype = NAME
    return str(nvrtc.nvrtcGetErrorString(result).decode())


def _texts(of: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    texts = [text.encode() for text in of]
    return (NAME * len(texts))(*texts)


def _read(nvrtc: ctypes.CDLL, handle: ctypes.c_void_p, what: str) -> bytes:
    """One of NVRTC's outputs: its size, then its bytes. Text ends in a NUL, which a cubin must keep."""
    size = ctypes.c_size_t()
    _call(nvrtc, f"Get{what}Size", handle, size)
    data = ctypes.create_string_buffer(size.value)
    _call(nvrtc, f"Get{what}", handle, data)
    return data.raw if what == "CUBIN" else data.raw.rstrip(b"\0 \n")


def compile_error(program: Program, log: str, *, file: str | None = None) -> CompileFailed:
    """The compiler's first error with the caller's file name, line and source text, then the whole log.

    file: the source's name in the log (default: any, since CuPy compiles a copy under another name). NVRTC compiles the
    entry's name on an extra line after the source; an error there is about the entry.
    """
    name, source, entry = program.name, program.source, program.entry
    error = re.search(
        r"^(?P<file>.+?)\((?P<line>\d+)\)\s*:\s*(?:catastrophic )?error[^:]*:\s*(?P<text>.+)$", log, re.MULTILINE
    )
    if error is None:
        if lacking := re.search(r"error\s*:\s*(.+ (?:requires|not supported on) \.target .+)", log):
            why = f"{name}: {entry} can't be compiled for this architecture: {lacking[1].strip()}"
            return CompileFailed(f"{why}; the rung best runs on all\n{log.strip()}")
        return CompileFailed(f"{name}: {entry} does not compile; the compiler printed:\n{log.strip()}")
    if error["file"] == "__nv_name_map":
        return _no_entry(program, log)
    lines, number, text = source.splitlines(), int(error["line"]), error["text"].strip()
    if header := re.search(r'open source file "(.+?)"', text):
        text += "; give its folder with -I"
        if is_of_nvidia(header[1]):
            text = (
                f"{header[1]} is missing: it is in the wheels nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl"
            )
            text += f"; install them with: {install_command('headers')}"
    if file not in (None, error["file"]) or not 0 < number <= len(lines):
        return CompileFailed(f"{error['file']}:{number}: {text}\n{log.strip()}")
    return CompileFailed(f"{name}:{number}: {text}\n    {lines[number - 1].strip()}\n{log.strip()}")


def _no_entry(program: Program, log: str = "") -> UnknownEntry:
    kernels = kernel_names(program.source)
    there = f"its kernels are {', '.join(kernels)}" if kernels else "it has no __global__ function"
    if "template" in program.source and "<" not in program.entry:
        there += ", and a template needs its arguments, as in name<32, 32>"
    return UnknownEntry(f"{program.name}: there is no kernel {program.entry}; {there}\n{log}".strip())


def _resources(log: str, symbol: str) -> tuple[int, int, int, int, int]:
    """Registers, stack, spill stores, spill loads and static shared bytes of one kernel, from ptxas' report. A device
    function that is not inlined has properties of its own; the kernel's come right after its name.
    """
    found = re.search(
        rf"Function properties for {re.escape(symbol)}\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers(?:[^\n]*?(\d+)(?:\+\d+)? bytes smem)?",
        log,
        re.DOTALL,
    )
    if found is None:
        raise CompileFailed(f"ptxas' report does not describe {symbol}:\n{log.strip()}")
    stack, stores, loads, registers, shared = (int(number or 0) for number in found.groups())
    return registers, stack, stores, loads, shared
