"""Compile CUDA C++ without a GPU: PTX, cubin and resources from one run of NVRTC.

NVRTC comes as a wheel and needs neither driver nor device, so any laptop has resources and PTX for every architecture.
Each compilation is a process of its own (worklog.kernel.nvrtc_process), so that it has a time limit and can be
interrupted. NVRTC rejects host code and the host's headers, so both are left out of a user's source, and what device
code uses of these headers is defined.
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
STANDARD, HOST = (Path(__file__).with_name(name) for name in ("std.cuh", "host.cuh"))
HOST_AS_DEVICE = "-default-device"  # host code that wasn't recognised, such as member functions, is no error then
# The headers of types that the host's headers of NVIDIA bring along.
_TYPE_HEADERS = {"cuda_fp16.h": r"(?:__)?half2?", "cuda_bf16.h": r"__nv_bfloat162?|nv_bfloat162?"}
# Headers that hold something for the device; NVRTC knows the others' part of the language already.
_DEVICE_HEADERS = re.compile(
    r"cuda_(?:fp|bf)\d|cuda_pipeline|cuda_awbarrier|mma|cooperative_groups|"
    r"cuda/|nv/|cub/(?!cub\.cuh)|cute/|cutlass|nvfunctional|math_constants"
)
_MISSING = "// not found: "  # before the name of a header
_OF_STD = (
    "array",
    "complex",
    "functional",
    "numeric",
    "optional",
    "span",
    "tuple",
    "variant",
)  # that libcu++ has
# In place of cub/cub.cuh, which has code for the host.
_CUB = tuple(
    f"cub/block/block_{what}.cuh"
    for what in ("load", "store", "reduce", "scan", "exchange", "radix_sort")
)
_CUB += tuple(f"cub/warp/warp_{what}.cuh" for what in ("reduce", "scan"))


@lru_cache(maxsize=128)
def compile_cuda(program: Program, arch: str = "sm_90") -> Compiled:
    """Compile a program for `arch`, in another process; equal arguments compile once per process, and once per machine
    where the program reads no file (worklog.kernel.disk_cache). Line information and ptxas' report are always on. A
    source that needs sm_90's own features is compiled for sm_90a.

    Raises CompileFailed with NVRTC's message, file, line and the source line, after LIMIT_S seconds, and where the
    source has no such kernel; NvrtcMissing.
    """
    # The order of a kernel's parameters, of which a trial makes several, is not compiled.
    return replace(_built(replace(program, arguments=(), shared=0), arch), program=program)


@lru_cache(maxsize=128)
def _built(program: Program, arch: str) -> Compiled:
    """As compile_cuda, of a program without what only a launch needs."""
    library = Path(_nvrtc()._name)
    own = "a" if arch == "sm_90" and needs_sm_90a(program.whole) else ""
    # Where there is a driver, NVRTC keeps compiled code on disk, and returns it without ptxas' report.
    uncached = ("--no-cache",) if nvrtc_version() >= CACHES_SINCE else ()
    options = (
        f"-arch={arch}{own}",
        *FIXED_OPTIONS,
        *uncached,
        *program.options,
        *of_nvidia(program),
    )
    given = library, program.name, program.source, program.entry, options, dict(program.headers)
    order = json.dumps(given, default=str).encode()

    make = partial(_compiled, program, library, order)
    names = dict(program.headers)
    # NVRTC may read a file where there are more includes than of these. One in a comment counts, too.
    reads_files = program.whole.count("include") > sum(
        name in names for name in included(program.whole)
    )
    compiled = json.loads(make() if reads_files else cached(library, order, make))
    symbol = compiled["symbol"]
    log = compiled["log"]
    cubin = bytes.fromhex(compiled["cubin"])
    report = re.search(  # of ptxas
        rf"Function properties for {re.escape(symbol)}\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers(?:[^\n]*?(\d+)(?:\+\d+)? bytes smem)?",
        log,
        re.DOTALL,
    )
    if report is None:
        from worklog.emulator.symbols import demangled  # here: only messages need the emulator

        raise CompileFailed(f"ptxas' report does not describe {demangled(symbol)}:\n{log.strip()}")
    stack, stores, loads, registers, shared = (int(number or 0) for number in report.groups())
    used = (registers, stack, stores, loads, shared)
    widths = shared_widths(cubin, symbol)
    return Compiled(program, symbol, arch, compiled["ptx"], cubin, *used, widths, log)


def _compiled(program: Program, library: Path, order: bytes) -> bytes:
    """The output of nvrtc_process for an order of it. Raises as compile_cuda()."""
    made, why = in_a_process(library, order)
    if why:
        raise CompileFailed(
            f"{program.name}: compiling {program.entry} {why}: reduce templates or recursion"
        )
    answer = json.loads(made)
    if answer["failed"]:
        raise compile_error(program, answer["log"] or answer["failed"])
    if not answer["symbol"]:
        raise _no_entry(program)
    return made


def in_a_process(library: Path, order: bytes) -> tuple[bytes, str]:
    """What nvrtc_process writes, and why it was ended or ""."""
    paths = os.pathsep.join(
        [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": paths}  # of NVRTC's other library
    command = (sys.executable, "-I", "-S", PROCESS)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            made, _ = process.communicate(order, LIMIT_S)
        except (
            BaseException
        ) as error:  # subprocess.run() doesn't wait for its process after an interrupt
            process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return b"", f"took more than {LIMIT_S:g} s"
            raise
    return made, "ended the compiler" if process.returncode else ""


def of_nvidia(program: Program) -> tuple[str, ...]:
    """Options with the folders of NVIDIA's headers, of wheels or of a toolkit, for a program that includes any."""
    if not included(program.whole):
        return ()
    from cuda.pathfinder import find_nvidia_header_directory  # which keeps what it finds

    folders = [find_nvidia_header_directory(library) for library in ("cudart", "cccl")]
    return tuple(f"-I{folder}" for folder in folders if folder)


def nvrtc_version() -> tuple[int, int]:
    """NVRTC's major and minor version. Raises NvrtcMissing."""
    major = ctypes.c_int()
    minor = ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def newer_than_the_driver() -> str | None:
    """Why the driver is too old for what NVRTC compiles, and what to do; None where it isn't. Raises NvrtcMissing."""
    driver = _driver_major()
    compiler = nvrtc_version()[0]
    if driver is None or compiler <= driver:
        return None
    advice = f"pip install nvidia-cuda-nvrtc-cu{driver}, or update the driver"
    return f"the driver runs CUDA {driver} and can't load what NVRTC {compiler} compiles: {advice}"


@cache
def _driver_major() -> int | None:
    """CUDA's major version of the driver; None without a driver."""
    version = ctypes.c_int()
    try:
        nvidia_library("cuda").cuDriverGetVersion(ctypes.byref(version))
    except (ImportError, RuntimeError):
        return None
    return version.value // 1000


@cache
def nvidia_library(name: str) -> ctypes.CDLL:
    """A library of NVIDIA's wheels, of a toolkit or, as "cuda", the driver. Raises ImportError or RuntimeError."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)


def _nvrtc() -> ctypes.CDLL:
    """Of the driver's major version where its wheel is installed, else the newest. Raises NvrtcMissing."""
    wheels = find_spec("nvidia")
    for folder in wheels.submodule_search_locations or () if wheels else ():
        for path in Path(folder).glob(f"*/lib/libnvrtc.so.{_driver_major()}"):
            return ctypes.CDLL(str(path))
    try:
        return nvidia_library("nvrtc")
    except (ImportError, RuntimeError) as error:  # DynamicLibNotFoundError is a RuntimeError
        why = str(error).strip().splitlines()[0]
        raise NvrtcMissing(
            f"cannot load NVRTC: {why}; install it with: {install_command()}"
        ) from error


def compile_error(program: Program, log: str) -> CompileFailed:
    """The compiler's first error with the caller's file name, line and source text, then the others without warnings.

    NVRTC compiles the entry's name on an extra line after the source; an error there is about the entry.
    """
    from worklog.emulator.symbols import demangled  # here: only messages need the emulator

    name = program.name
    entry = program.entry
    log = demangled(log).strip()
    error = re.search(
        r"^(?P<file>.+?)\((?P<line>\d+)\)\s*:\s*(?:catastrophic )?error[^:]*:\s*(?P<text>.+)$",
        log,
        re.MULTILINE,
    )
    if error is None:
        said = f"{name}: {entry} does not compile; the compiler printed:"
        if large := re.search(r"shared data \((0x\w+) bytes, (0x\w+) max", log):
            size, most = (int(number, 16) for number in large.groups())
            why = f"{size:,} bytes of static shared memory are more than {most:,}"
            return CompileFailed(
                f"{name}: {entry}: {why}: declare extern __shared__, and give its bytes with --shared"
            )
        if lacking := re.search(r"error\s*:\s*(.+ (?:requires|not supported on) \.target .+)", log):
            why = f"{lacking[1].strip()}; the rung best runs on all"
            said = f"{name}: {entry} can't be compiled for this architecture: {why}"
        return CompileFailed(f"{said}\n{log}")
    if error["file"] == "__nv_name_map":
        return _no_entry(program, log)
    file = error["file"]
    number = int(error["line"])
    text = error["text"].strip()
    if header := re.search(r'open source file "(.+?)"', text):
        text += "; give its folder with -I"
        if is_of_nvidia(header[1]) and not header[1].startswith(("cute/", "cutlass")):
            wheels = "nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl"
            install = install_command("headers")
            text = f"{header[1]} is missing: it is in the wheels {wheels}; install them with: {install}"
    for absent in missing(program):
        text += f"; {absent.where}: {absent.advice}"
    lines = program.source.splitlines() if file == name else []
    line = f"    {lines[number - 1].strip()}\n" if 0 < number <= len(lines) else ""
    shown, _, rest = log[error.end() :].partition("\n\n")
    unneeded = (
        r"1 error detected |Remark: |\S+\(\d+\): (?:warning|remark) "  # each up to an empty line
    )
    rest = re.sub(rf"(?ms)^(?:{unneeded}).*?(?:\n\n|\Z)", "", log[: error.start()] + rest).strip()
    context = shown.partition("^")[2].strip("\n")  # behind the source line, of which it is a part
    return CompileFailed(
        "\n".join(filter(None, (f"{file}:{number}: {text}\n{line}".strip(), context, rest)))
    )


def _no_entry(program: Program, log: str = "") -> CompileFailed:
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
    include: Sequence[Any],
    define: Sequence[str],
    front: Front = ("", ""),
) -> Program:
    """Return what NVRTC compiles for a kernel: the kernel and what it needs of the source and its headers.

    entry: the kernel, with its template arguments
    include, define, front: as for read_unit, which raises BadSetting
    """
    unit = read_unit(source, include, define, front)
    folders = _resolved(include)
    texts = _headers(source, folders, front)
    *of_headers, of_source = unit.unneeded(entry)
    headers = {
        name: header if FOR_NVRTC in header else _without_host(header, unneeded, texts)
        for (name, header), unneeded in zip(texts.items(), of_headers, strict=True)
    }
    text = _without_host(source, of_source, texts)
    device = "\n".join((text, *headers.values()))
    if re.search(r"\bstd\s*::", uncommented(device)):
        headers[STANDARD.name] = STANDARD.read_text(encoding="utf-8")
    options = (
        *COMPILE_OPTIONS,
        *(f"-D{macro}" for macro in define),
        *(f"-I{folder}" for folder in folders),
    )
    if added := _prelude(device, included(source), unit, STANDARD.name in headers):
        headers[HOST.name] = added
        options += (f"-include={HOST.name}",)
    if front[0]:
        options += (f"-include={front[0]}",)
    if "int128" in device:
        options += ("-device-int128",)
    if text != source:
        options += (HOST_AS_DEVICE,)
    return Program(file, text, entry, options, headers=tuple(headers.items()))


def _resolved(folders: Sequence[Any]) -> list[str]:
    """Folders as absolute paths."""
    return [str(Path(folder).resolve()) for folder in folders]


def _headers(source: str, folders: Sequence[str], front: Front) -> dict[str, str]:
    """Headers of a source, behind the code in front of it."""
    name, code = front
    texts = {**own_headers(code, folders), name: code} if name else {}
    texts |= own_headers(source, folders)
    # A header may include the source in turn.
    return {header: "" if text == source else text for header, text in texts.items()}


def own_headers(source: str, folders: Sequence[str]) -> dict[str, str]:
    """Texts by the names in #include: of headers in the folders that a source includes, behind those that they include
    in turn.
    """
    texts: dict[str, str] = {}
    begun = set[str]()

    def visit(text: str, places: Sequence[str]) -> None:
        for name in included(text):
            path = next((path for place in places if (path := Path(place, name)).is_file()), None)
            if path is not None and name not in begun:
                begun.add(name)
                header = path.read_text(encoding="utf-8-sig", errors="replace")
                visit(header, [str(path.parent), *folders])
                texts[name] = header

    visit(source, folders)
    return texts


def _without_host(source: str, unneeded: Spans, own: Mapping[str, str]) -> str:
    """Return a source with spaces in place of what isn't needed, so that the rest keeps its line numbers.

    unneeded: places, and what is there instead
    own: headers that stay
    """
    out = list(source)
    for match in INCLUDE.finditer(uncommented(source)):
        name = match[1]
        is_of_the_source = name in own and not own[name]
        if is_of_the_source or (name not in own and not _DEVICE_HEADERS.match(name)):
            is_missing = match[0].endswith('"') and name not in own and not is_of_a_library(name)
            line = f"{_MISSING}{name}" if is_missing else blank(match[0])
            out[match.start() : match.end()] = [line, *[""] * (len(match[0]) - 1)]
    for start, end, kept in unneeded:
        for match in LINE.finditer(source, start, end):
            if not match["directive"]:
                out[match.start() : match.end()] = blank(match[0])
        out[start] = kept or out[start]
    return "".join(out)


def host_header(text: str, unit: Unit) -> str:
    """Return a header for host code that is compiled for the device, in which macros are expanded."""
    return _prelude(text, (), unit, standard=False)


@dataclass(frozen=True)
class Missing:
    """A header that a program is compiled without."""

    name: str  # in #include
    folders: tuple[str, ...] = ()  # that have it, if it isn't clear which of them is meant

    @property
    def where(self) -> str:
        """Where it is."""
        if self.folders:
            return f"{self.name} is in {' and in '.join(self.folders)}"
        return f"{self.name} isn't found"

    @property
    def advice(self) -> str:
        """What to give."""
        if self.folders:
            return f"give one of them, as in -I {shlex.quote(self.folders[0])}"
        return "give its folder with -I"


def missing(program: Program) -> list[Missing]:
    """Return the headers that a program was compiled without, because no folder has them, or several do."""
    lines = re.findall(rf"^[ \t]*{_MISSING}(.+)$", program.whole, re.MULTILINE)
    found = list[Missing]()
    for line in dict.fromkeys(lines):
        name, *folders = line.split("\t")
        found.append(Missing(name, tuple(folders)))
    return found


def with_folders(program: Program, ambiguous: Sequence[Missing]) -> Program:
    """Return a program whose messages name the folders of headers that several folders have."""
    if not ambiguous:
        return program
    headers = tuple((name, _with_folders(text, ambiguous)) for name, text in program.headers)
    return replace(program, source=_with_folders(program.source, ambiguous), headers=headers)


def _with_folders(text: str, ambiguous: Sequence[Missing]) -> str:
    """Return a text with the folders behind the names of missing headers."""
    known = {_MISSING + header.name: header for header in ambiguous}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        header = known.get(line.strip())
        if header is not None:
            lines[number] = "\t".join((line, *header.folders))
    return "\n".join(lines)


def is_of_nvidia(header: str) -> bool:
    """Whether it is one of NVIDIA's headers for device code, or includes one."""
    return bool(_DEVICE_HEADERS.match(header)) or header in ("cub/cub.cuh", STANDARD.name)


def is_of_a_library(header: str) -> bool:
    """Whether it is one of NVIDIA's headers, or of C's library."""
    return is_of_nvidia(header) or re.fullmatch(_HOST_HEADERS, header) is not None


def _prelude(device: str, names: Sequence[str], unit: Unit, standard: bool) -> str:
    """A header to begin with: what code for the device uses of headers that NVRTC rejects, and doesn't define. names:
    of headers that the source includes.
    """
    names = [*names, *included(device)]
    used = {*re.findall(r"\w+", uncommented(device))} - unit.defined
    types = {
        header: re.compile(pattern)
        for header, pattern in _TYPE_HEADERS.items()
        if header not in names
    }
    needed = [header for header, pattern in types.items() if any(map(pattern.fullmatch, used))]
    needed += _CUB if "cub/cub.cuh" in names else ()
    needed += (
        [STANDARD.name, *(f"cuda/std/{name}" for name in _OF_STD if name in names)]
        if standard
        else []
    )
    lines = [f"#include <{header}>" for header in needed]
    for line in HOST.read_text(encoding="utf-8").splitlines():
        kind, name, *_ = line.split()
        if kind in ("using", "#define") and name in used:
            of_nvidia = name.endswith("_t") and any(
                map(is_of_nvidia, [*names, *needed])
            )  # whose headers define these
            lines.append("#include <cuda/std/cstdint>" if of_nvidia else line)
    return "\n".join(dict.fromkeys(lines))
