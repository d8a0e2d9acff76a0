"""Compile CUDA C++ without a GPU: PTX, cubin and resources from one run of NVRTC.

NVRTC comes as a wheel and needs neither driver nor device, so any laptop has resources
and PTX for every architecture. Each compilation runs in a separate process
(worklog.kernel.nvrtc_process), so that it has a time limit and can be interrupted.
NVRTC rejects host code and the host's headers, so both are left out of a user's source,
and what device code uses of these headers is defined.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting, CompileFailed, NvrtcMissing, install_command
from worklog.kernel.device import COMPILE_OPTIONS, Program
from worklog.kernel.disk_cache import cached
from worklog.kernel.preprocessor import without_line_directives
from worklog.kernel.resources import Compiled, shared_widths
from worklog.kernel.source import INCLUDE, LINE, blank, included, needs_sm_90a, uncommented
from worklog.kernel.unit import FOR_NVRTC, Spans, Unit, read

FIXED_OPTIONS = ("-lineinfo", "--ptxas-options=-v")
CACHES_SINCE = (12, 9)  # earlier versions keep nothing, and don't know the option
LIMIT_S = 100.0  # the slowest rung takes 1 s
PROCESS = Path(__file__).with_name("nvrtc_process.py")
_HOST_HEADERS = (
    r"(?:cuda|device_launch|helper_|assert|cublas|curand|float|limits|math"
    r"|(?:nvtx3/)?nvTools|std|string|time)\w*\.h"
)
STANDARD = Path(__file__).with_name("std.cuh")
HOST = Path(__file__).with_name("host.cuh")
# With this option, host code that wasn't recognised, such as member functions, isn't an error.
HOST_AS_DEVICE = "-default-device"
# The headers of types that NVIDIA's headers for the host include.
_TYPE_HEADERS = {
    "cuda_fp16.h": r"(?:__)?half2?",
    "cuda_bf16.h": r"__nv_bfloat162?|nv_bfloat162?",
    "cuda_fp8.h": r"__nv_fp8(?:x[24])?_e[45]m[23]",
}
# Headers that hold something for the device; NVRTC knows the others' part of the language already.
_DEVICE_HEADERS = re.compile(
    r"cuda_(?:fp|bf)\d|cuda_pipeline|cuda_awbarrier|mma|cooperative_groups|"
    r"cuda/|nv/|cub/(?!cub\.cuh)|cute/|cutlass|nvfunctional|math_constants"
)
_MISSING = "// not found: "  # before the name of a header
# The headers of std that libcu++ has.
_STD_HEADERS = (
    "array",
    "complex",
    "functional",
    "numeric",
    "optional",
    "span",
    "tuple",
    "variant",
)
# In place of cub/cub.cuh, which has code for the host.
_CUB = tuple(
    f"cub/block/block_{operation}.cuh"
    for operation in ("load", "store", "reduce", "scan", "exchange", "radix_sort")
)
_CUB += tuple(f"cub/warp/warp_{operation}.cuh" for operation in ("reduce", "scan"))


@lru_cache(maxsize=128)
def compile_cuda(program: Program, arch: str = "sm_90") -> Compiled:
    """Compile a program for an architecture, in another process.

    program: the source, headers, entry and options
    arch: the architecture, as "sm_90"; a source that needs sm_90's own features is
        compiled for sm_90a

    Equal arguments compile once per process, and once per machine if the program reads no
    file (worklog.kernel.disk_cache). Line information and ptxas' report are always on.

    Raises CompileFailed with NVRTC's message, file, line and the source line, after LIMIT_S
    seconds, and if the source has no such kernel; NvrtcMissing.
    """
    # A trial tries several orders of a kernel's parameters, and the order isn't compiled.
    return replace(_build(replace(program, arguments=(), shared=0), arch), program=program)


@lru_cache(maxsize=128)
def _build(program: Program, arch: str) -> Compiled:
    """Compile a program without what only a launch needs, as compile_cuda does."""
    library = Path(_nvrtc()._name)
    options = _nvrtc_options(program, arch)
    arguments = (
        library,
        program.name,
        program.source,
        program.entry,
        options,
        dict(program.headers),
    )
    order = json.dumps(arguments, default=str).encode()
    compile_order = partial(_compile_order, program, library, order)
    if _may_read_files(program):
        answer = json.loads(compile_order())
    else:
        answer = json.loads(cached(library, order, compile_order))
    symbol = answer["symbol"]
    log = answer["log"]
    cubin = bytes.fromhex(answer["cubin"])
    stack, stores, loads, registers, shared = _ptxas_numbers(symbol, log)
    return Compiled(
        program,
        symbol,
        arch,
        ptx=answer["ptx"],
        cubin=cubin,
        registers=registers,
        stack_bytes=stack,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        shared_bytes=shared,
        shared_accesses=shared_widths(cubin, symbol),
        log=log,
    )


def _nvrtc_options(program: Program, arch: str) -> tuple[str, ...]:
    """Return all options for NVRTC."""
    suffix = "a" if arch == "sm_90" and needs_sm_90a(program.whole) else ""
    # If there is a driver, NVRTC caches compiled code on disk, and returns it without the report
    # of ptxas.
    uncached = ("--no-cache",) if nvrtc_version() >= CACHES_SINCE else ()
    return (
        f"-arch={arch}{suffix}",
        *FIXED_OPTIONS,
        *uncached,
        *program.options,
        *of_nvidia(program),
    )


def _may_read_files(program: Program) -> bool:
    """Return whether NVRTC may read a file: there are more includes than of the headers.

    An include in a comment also counts.
    """
    names = dict(program.headers)
    from_headers = sum(name in names for name in included(program.whole))
    return program.whole.count("include") > from_headers


def _ptxas_numbers(symbol: str, log: str) -> tuple[int, ...]:
    """Return what ptxas reports.

    Bytes of stack, spill stores and spill loads; registers; shared bytes.

    Raises CompileFailed if the log doesn't describe the kernel.
    """
    report = re.search(
        rf"Function properties for {re.escape(symbol)}\n\D*(\d+) bytes stack frame, (\d+) bytes "
        r"spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers(?:[^\n]*?(\d+)(?:\+\d+)? bytes smem)?",
        log,
        re.DOTALL,
    )
    if report is None:
        from worklog.emulator.symbols import demangled  # here: only messages need the emulator

        raise CompileFailed(f"ptxas' report does not describe {demangled(symbol)}:\n{log.strip()}")
    return tuple(int(number or 0) for number in report.groups())


def _compile_order(program: Program, library: Path, order: bytes) -> bytes:
    """Return the output of nvrtc_process for the arguments in `order`.

    Raises CompileFailed and NvrtcMissing, as compile_cuda does.
    """
    output, failure = in_a_process(library, order)
    if failure:
        raise CompileFailed(
            f"{program.name}: compiling {program.entry} {failure}: reduce templates or recursion"
        )
    answer = json.loads(output)
    if answer["failed"]:
        raise compile_error(program, answer["log"] or answer["failed"])
    if not answer["symbol"]:
        raise _no_entry(program)
    return output


def in_a_process(library: Path, order: bytes) -> tuple[bytes, str]:
    """Return what nvrtc_process writes, and why it was ended or "".

    library: the path of NVRTC
    order: the arguments of nvrtc_process.compiled(), in JSON
    """
    paths = os.pathsep.join(
        [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": paths}  # NVRTC loads another library from there
    command = (sys.executable, "-I", "-S", PROCESS)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            output, _ = process.communicate(order, LIMIT_S)
        # subprocess.run() doesn't wait for its process after an interrupt.
        except BaseException as error:
            process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return b"", f"took more than {LIMIT_S:g} s"
            raise
    return output, "ended the compiler" if process.returncode else ""


def of_nvidia(program: Program) -> tuple[str, ...]:
    """Return the options for the folders of NVIDIA's headers.

    The folders are of wheels or of a toolkit. Empty for a program that includes nothing.
    """
    if not included(program.whole):
        return ()
    from cuda.pathfinder import find_nvidia_header_directory  # it caches what it finds

    folders = [find_nvidia_header_directory(library) for library in ("cudart", "cccl")]
    return tuple(f"-I{folder}" for folder in folders if folder)


def nvrtc_version() -> tuple[int, int]:
    """Return NVRTC's major and minor version. Raises NvrtcMissing."""
    major = ctypes.c_int()
    minor = ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def newer_than_the_driver() -> str | None:
    """Return why the driver is too old for what NVRTC compiles, and what to do.

    None if it isn't too old. Raises NvrtcMissing.
    """
    driver = _driver_major()
    compiler = nvrtc_version()[0]
    if driver is None or compiler <= driver:
        return None
    advice = f"pip install nvidia-cuda-nvrtc-cu{driver}, or update the driver"
    return f"the driver runs CUDA {driver} and can't load what NVRTC {compiler} compiles: {advice}"


@cache
def _driver_major() -> int | None:
    """Return CUDA's major version of the driver; None without a driver."""
    version = ctypes.c_int()
    try:
        nvidia_library("cuda").cuDriverGetVersion(ctypes.byref(version))
    except (ImportError, RuntimeError):
        return None
    return version.value // 1000


@cache
def nvidia_library(name: str) -> ctypes.CDLL:
    """Load a library of NVIDIA's wheels, of a toolkit or, as "cuda", the driver.

    Raises ImportError or RuntimeError.
    """
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)


def _nvrtc() -> ctypes.CDLL:
    """Load NVRTC: the driver's major version if its wheel is installed, else the newest.

    Raises NvrtcMissing.
    """
    wheels = find_spec("nvidia")
    for folder in wheels.submodule_search_locations or () if wheels else ():
        for path in Path(folder).glob(f"*/lib/libnvrtc.so.{_driver_major()}"):
            return ctypes.CDLL(str(path))
    try:
        return nvidia_library("nvrtc")
    except (ImportError, RuntimeError) as error:  # DynamicLibNotFoundError is a RuntimeError
        reason = str(error).strip().splitlines()[0]
        raise NvrtcMissing(
            f"cannot load NVRTC: {reason}; install it with: {install_command()}"
        ) from error


def compile_error(program: Program, log: str) -> CompileFailed:
    """Return the compiler's first error, then the other errors without warnings.

    The first error has the caller's file name, line and source text. NVRTC compiles the entry's
    name on an extra line after the source; an error there is about the entry.
    """
    from worklog.emulator.symbols import demangled  # here: only messages need the emulator

    log = demangled(log).strip()
    error = re.search(
        r"^(?P<file>.+?)\((?P<line>\d+)\)\s*:\s*(?:catastrophic )?error[^:]*:\s*(?P<text>.+)$",
        log,
        re.MULTILINE,
    )
    if error is None:
        return _ptxas_error(program, log)
    if error["file"] == "__nv_name_map":
        return _no_entry(program, log)
    file = error["file"]
    number = int(error["line"])
    text = error["text"].strip()
    if header := re.search(r'open source file "(.+?)"', text):
        text = _missing_header_text(header[1], text)
    for absent in missing(program):
        text += f"; {absent.where}: {absent.advice}"
    lines = program.source.splitlines() if file == program.name else []
    line = f"    {lines[number - 1].strip()}\n" if 0 < number <= len(lines) else ""
    excerpt, _, other_errors = log[error.end() :].partition("\n\n")
    # Each of these ends at an empty line.
    unneeded = r"1 error detected |Remark: |\S+\(\d+\): (?:warning|remark) "
    other_errors = re.sub(
        rf"(?ms)^(?:{unneeded}).*?(?:\n\n|\Z)", "", log[: error.start()] + other_errors
    ).strip()
    context = excerpt.partition("^")[2].strip("\n")  # after the source line, which contains it
    message = f"{file}:{number}: {text}\n{line}".strip()
    return CompileFailed("\n".join(filter(None, (message, context, other_errors))))


def _ptxas_error(program: Program, log: str) -> CompileFailed:
    """Return the error for a log that names no source line, as ptxas' messages don't."""
    subject = f"{program.name}: {program.entry}"
    if large := re.search(r"shared data \((0x\w+) bytes, (0x\w+) max", log):
        size, limit = (int(number, 16) for number in large.groups())
        reason = f"{size:,} bytes of static shared memory are more than {limit:,}"
        return CompileFailed(
            f"{subject}: {reason}: declare extern __shared__, and give its bytes with --shared"
        )
    if unsupported := re.search(r"error\s*:\s*(.+ (?:requires|not supported on) \.target .+)", log):
        reason = f"{unsupported[1].strip()}; the rung best runs on all"
        return CompileFailed(f"{subject} can't be compiled for this architecture: {reason}\n{log}")
    return CompileFailed(f"{subject} does not compile; the compiler printed:\n{log}")


def _missing_header_text(header: str, text: str) -> str:
    """Return the text of the error for a header that NVRTC didn't find, with what to do.

    header: the name in #include
    text: NVRTC's message
    """
    if not is_of_nvidia(header) or header.startswith(("cute/", "cutlass")):
        return f"{text}; give its folder with -I"
    wheels = "nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl"
    install = install_command("headers")
    return f"{header} is missing: it is in the wheels {wheels}; install them with: {install}"


def _no_entry(program: Program, log: str = "") -> CompileFailed:
    """Return the error for a source that doesn't have the entry."""
    is_bare = "template" in program.source and "<" not in program.entry
    advice = ": a template needs its arguments, as in name<32, 32>" if is_bare else ""
    return CompileFailed(
        f"{program.name}: there is no kernel {program.entry}{advice}\n{log}".strip()
    )


Front = tuple[str, str]  # the name and the text of code in front of a source


def read_unit(
    source: str, include: Sequence[Any], define: Sequence[str], front: Front = ("", "")
) -> Unit:
    """Return what a source and its headers define.

    include: folders of headers
    define: macros
    front: code in front of the source, which has "" for a name if there is none

    Raises BadSetting for a folder that doesn't exist, and for what is no macro.
    """
    for macro in define:
        if not re.match(r"[A-Za-z_]\w*(?:=|$)", str(macro)):
            raise BadSetting(f"cannot read -D {macro!r}: write NAME or NAME=VALUE")
    for folder in include:
        if not Path(folder).is_dir():
            raise BadSetting(f"cannot read -I {folder}: there is no such folder")
    texts = _headers(source, _resolved(include), front)
    return read(source, tuple(define), tuple(texts.items()))


def prepared(
    file: str,
    source: str,
    entry: str,
    *,
    include: Sequence[Any],
    define: Sequence[str],
    front: Front = ("", ""),
) -> Program:
    """Return what NVRTC compiles for a kernel.

    entry: the kernel, with its template arguments
    include, define, front: as for read_unit, which raises BadSetting

    The program has the kernel, and what it needs of the source and its headers.
    """
    unit = read_unit(source, include, define, front)
    folders = _resolved(include)
    texts = _headers(source, folders, front)
    *unneeded_in_headers, unneeded_in_source = unit.unneeded(entry)
    headers = {}
    for (name, header), unneeded in zip(texts.items(), unneeded_in_headers, strict=True):
        headers[name] = header if FOR_NVRTC in header else _without_host(header, unneeded, texts)
    text = _without_host(source, unneeded_in_source, texts)
    device = "\n".join((text, *headers.values()))
    if re.search(r"\bstd\s*::", uncommented(device)):
        headers[STANDARD.name] = STANDARD.read_text(encoding="utf-8")
    options = (
        *COMPILE_OPTIONS,
        *(f"-D{macro}" for macro in define),
        *(f"-I{folder}" for folder in folders),
    )
    if prelude := _prelude(device, included(source), unit, STANDARD.name in headers):
        headers[HOST.name] = prelude
        options += (f"-include={HOST.name}",)
    if front[0]:
        options += (f"-include={front[0]}",)
    if "int128" in device:
        options += ("-device-int128",)
    if text != source:
        options += (HOST_AS_DEVICE,)
    numbered = {name: without_line_directives(header) for name, header in headers.items()}
    return Program(
        file, without_line_directives(text), entry, options, headers=tuple(numbered.items())
    )


def _resolved(folders: Sequence[Any]) -> list[str]:
    """Return folders as absolute paths."""
    return [str(Path(folder).resolve()) for folder in folders]


def _headers(source: str, folders: Sequence[str], front: Front) -> dict[str, str]:
    """Return the texts of a source's headers, by name; the code in front of it comes first."""
    name, code = front
    texts = {**own_headers(code, folders), name: code} if name else {}
    texts |= own_headers(source, folders)
    # A header may include the source in turn.
    return {header: "" if text == source else text for header, text in texts.items()}


def own_headers(source: str, folders: Sequence[str]) -> dict[str, str]:
    """Return the texts of the headers that a source includes, by the names in #include.

    folders: where to look for them; other headers are left out

    A header comes after the headers that it includes in turn.
    """
    texts: dict[str, str] = {}
    begun = set[str]()

    def visit(text: str, places: Sequence[str]) -> None:
        for name in included(text):
            path = _first_file(name, places)
            if path is not None and name not in begun:
                begun.add(name)
                header = path.read_text(encoding="utf-8-sig", errors="replace")
                visit(header, [str(path.parent), *folders])
                texts[name] = header

    visit(source, folders)
    return texts


def _first_file(name: str, folders: Sequence[str]) -> Path | None:
    """Return the file of this name in the first folder that has it; None if none has."""
    for folder in folders:
        path = Path(folder, name)
        if path.is_file():
            return path
    return None


def _without_host(source: str, unneeded: Spans, headers: Mapping[str, str]) -> str:
    """Return a source with spaces in place of what isn't needed.

    unneeded: places, and what is there instead
    headers: texts by name, of the headers that stay

    The rest keeps its line numbers.
    """
    out = list(source)
    for match in INCLUDE.finditer(uncommented(source)):
        name = match[1]
        if headers.get(name) or (name not in headers and _DEVICE_HEADERS.match(name)):
            continue  # an empty text is the source itself
        line = blank(match[0])
        if match[0].endswith('"') and name not in headers and not is_of_a_library(name):
            line = f"{_MISSING}{name}"
        out[match.start() : match.end()] = [line, *[""] * (len(match[0]) - 1)]
    for start, end, replacement in unneeded:
        for match in LINE.finditer(source, start, end):
            if not match["directive"]:
                out[match.start() : match.end()] = blank(match[0])
        if replacement:
            out[start] = replacement
    return "".join(out)


def host_header(text: str, unit: Unit) -> str:
    """Return a header for host code that is compiled for the device.

    text: the code, in which macros are expanded
    """
    return _prelude(text, (), unit, standard=False)


@dataclass(frozen=True)
class Missing:
    """A header that a program is compiled without."""

    name: str  # in #include
    folders: tuple[str, ...] = ()  # that have it, if it isn't clear which of them is meant

    @property
    def where(self) -> str:
        """The folders that have the header, or that it isn't found."""
        if self.folders:
            return f"{self.name} is in {' and in '.join(self.folders)}"
        return f"{self.name} isn't found"

    @property
    def advice(self) -> str:
        """The option that gives its folder."""
        if self.folders:
            return f"give one of them, as in -I {shlex.quote(self.folders[0])}"
        return "give its folder with -I"


def missing(program: Program) -> list[Missing]:
    """Return the headers that a program was compiled without.

    No folder has them, or several do.
    """
    lines = re.findall(rf"^[ \t]*{_MISSING}(.+)$", program.whole, re.MULTILINE)
    headers = list[Missing]()
    for line in dict.fromkeys(lines):
        name, *folders = line.split("\t")
        headers.append(Missing(name, tuple(folders)))
    return headers


def with_folders(program: Program, ambiguous: Sequence[Missing]) -> Program:
    """Return a program whose messages name the folders of the ambiguous headers.

    ambiguous: headers that several folders have
    """
    if not ambiguous:
        return program
    headers = tuple((name, _with_folders(text, ambiguous)) for name, text in program.headers)
    return replace(program, source=_with_folders(program.source, ambiguous), headers=headers)


def _with_folders(text: str, ambiguous: Sequence[Missing]) -> str:
    """Return a text with the folders behind the names of missing headers."""
    headers = {_MISSING + header.name: header for header in ambiguous}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        header = headers.get(line.strip())
        if header is not None:
            lines[number] = "\t".join((line, *header.folders))
    return "\n".join(lines)


def is_of_nvidia(header: str) -> bool:
    """Return whether this is one of NVIDIA's headers for device code, or includes one."""
    return bool(_DEVICE_HEADERS.match(header)) or header in ("cub/cub.cuh", STANDARD.name)


def is_of_a_library(header: str) -> bool:
    """Return whether this is one of NVIDIA's headers, or of C's library."""
    return is_of_nvidia(header) or re.fullmatch(_HOST_HEADERS, header) is not None


def _prelude(device: str, names: Sequence[str], unit: Unit, standard: bool) -> str:
    """Return a header to begin with: what code for the device uses and doesn't define.

    device: code that uses headers that NVRTC rejects
    names: the headers that the source includes
    standard: whether to include std.cuh and libcu++'s headers
    """
    names = [*names, *included(device)]
    undefined = {*re.findall(r"\w+", uncommented(device))} - unit.defined
    headers = list[str]()
    for header, pattern in _TYPE_HEADERS.items():
        is_type = re.compile(pattern).fullmatch
        if header not in names and any(map(is_type, undefined)):
            headers.append(header)
    if "cub/cub.cuh" in names:
        headers += _CUB
    if standard:
        headers.append(STANDARD.name)
        headers += [f"cuda/std/{name}" for name in _STD_HEADERS if name in names]
    has_nvidia_header = any(map(is_of_nvidia, [*names, *headers]))
    lines = [f"#include <{header}>" for header in headers]
    for line in HOST.read_text(encoding="utf-8").splitlines():
        kind, name, *_ = line.split()
        if kind not in ("using", "#define") or name not in undefined:
            continue
        # NVIDIA's headers define the types whose names end in _t.
        is_defined = name.endswith("_t") and has_nvidia_header
        lines.append("#include <cuda/std/cstdint>" if is_defined else line)
    return "\n".join(dict.fromkeys(lines))
