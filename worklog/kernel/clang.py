"""Compiles CUDA C++ to PTX with clang, which the wheel `ziglang` contains: on any machine.

NVRTC's optimiser removes an access past the end of an array whose size is known, and what depends
on it, so no run shows the mistake. clang can check such accesses in the compiled code: their index,
and their width. It is also
the compiler where there is no NVRTC: then there is no machine code, and nobody knows the registers.

clang knows of CUDA what clang.cuh declares; NVIDIA's headers aren't used.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path

from worklog.errors import CompileFailed, WorklogError, install_command
from worklog.kernel.device import Program
from worklog.kernel.disk_cache import cached
from worklog.kernel.nvrtc import HOST_AS_DEVICE, LIMIT_S
from worklog.kernel.resources import Compiled
from worklog.kernel.source import needs_sm_90a

HEADER = Path(__file__).with_name("clang.cuh")
FIXED_OPTIONS = (
    *("-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-S", "-w"),
    "-gline-tables-only",
)
# Unrolls loops over tiles, as NVRTC does, so that the accumulators aren't in local memory.
FAST = ("-O3", "-mllvm", "-unroll-threshold=3000")
# The driver doesn't pass this option on for NVPTX without -fsanitize-trap, and clang.cuh's handler
# reports more than a trap: the index and the array's type.
BOUNDS = (
    "-O1",
    *("-Xclang", "-fsanitize=array-bounds", "-Xclang", "-fsanitize-recover=array-bounds"),
    "-DWORKLOG_BOUNDS",
    "-fstrict-flex-arrays=1",  # an array at the end of a struct is checked, unless it has 1 element
)
# An index may be in bounds, and a wider access there end outside. The code traps at such an access:
# to a scalar by clang's check, to a vector type of CUDA by a check in clang.cuh.
WIDTHS = (
    *("-Xclang", "-fsanitize=local-bounds", "-Xclang", "-fsanitize-trap=local-bounds"),
    "-DWORKLOG_WIDTHS",
)
# Of results of code that clang has compiled because NVRTC is missing.
NOTE = "compiled by clang, because NVRTC is missing: no registers, no SASS, no cuda_fp16.h"
# An array's name, at least one [0], and one more index. A loop may walk all rows by that index.
FLATTENED = re.compile(
    r"(?<![\w.>])((?:\w+(?:\.|->))*[a-zA-Z_]\w*)((?:\[0\])+)(?=(\[[^\[\]]+\])(?!\[))"
)
ENTRY = "worklog_entry"  # a variable with the kernel's address, behind the source


class ClangMissing(WorklogError):
    """The wheel `ziglang` isn't installed."""


def executable() -> Path:
    """Return the program that contains clang. Raises ClangMissing."""
    package = find_spec("ziglang")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for name in ("zig", "zig.exe"):
            path = Path(folder, name)
            if path.is_file():
                return path
    raise ClangMissing(install_command("bounds"))


@lru_cache(maxsize=128)
def compile_with_clang(program: Program, arch: str, checks: tuple[str, ...] = ()) -> Compiled:
    """Compile a program for an architecture, as worklog.kernel.nvrtc.compile_cuda does.

    checks: BOUNDS, if the code checks its accesses to arrays, and prints or traps at a mistake;
        with WIDTHS, if it also checks their widths

    The result has no machine code, and its resources are 0. Equal arguments compile once per
    machine (worklog.kernel.disk_cache).

    Raises CompileFailed with clang's message, and ClangMissing.
    """
    suffix = "a" if arch == "sm_90" and needs_sm_90a(program.whole) else ""
    options = (f"--cuda-gpu-arch={arch}{suffix}", *FIXED_OPTIONS, *_options(program, checks))
    compiled = _flattened(program) if checks else program
    text = HEADER.read_text(encoding="utf-8")
    order = (options, program.name, compiled.source, program.entry, compiled.headers, text)
    tool = executable()
    run = partial(_ptx, tool, compiled, options)
    ptx = cached(tool, json.dumps(order).encode(), run).decode()
    if checks:
        ptx = _at_callers(ptx)
    head, _, tail = ptx.partition(f" {ENTRY} = ")
    symbol, _, code_behind = tail.partition(";")
    code = head[: head.rindex("\n")] + code_behind  # without the variable
    return Compiled(
        program,
        symbol,
        arch,
        ptx=code,
        cubin=b"",
        registers=0,
        stack_bytes=0,
        spill_store_bytes=0,
        spill_load_bytes=0,
        shared_bytes=0,
        shared_accesses=(),
        log="",
    )


def _options(program: Program, checks: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options of a program, in clang's terms."""
    options = [option for option in program.options if option.startswith(("-std=", "-D", "-I"))]
    return (*options, *(checks or FAST))


def _flattened(program: Program) -> Program:
    """Return a program that accesses x[0][0][i] as an element of the whole array x.

    clang checks the last index of what clang.cuh makes of x.
    """

    def flat(match: re.Match[str]) -> str:
        zeros = match[2].count("[")
        return f"__worklog_flat<{zeros}>({match[1]})"

    headers = tuple((name, FLATTENED.sub(flat, text)) for name, text in program.headers)
    return replace(program, source=FLATTENED.sub(flat, program.source), headers=headers)


def _wrapped(program: Program) -> str:
    """Return the program's source behind its includes, with a variable that names the kernel."""
    includes = [f'#include "{HEADER.name}"']
    begin = list[str]()
    end = list[str]()
    if HOST_AS_DEVICE in program.options:
        begin = ["#pragma clang force_cuda_host_device begin"]
        end = ["#pragma clang force_cuda_host_device end"]
    for option in program.options:
        if option.startswith("-include="):
            includes.append(f'#include "{option.partition("=")[2]}"')
    lines = [
        *includes[:1],
        *begin,
        *includes[1:],
        f"#line 1 {json.dumps(program.name)}",
        program.source,
        *end,
        f'#line 1 "{ENTRY}"',
        f"__device__ void *{ENTRY} = (void *)&{program.entry};",
    ]
    return "\n".join(lines) + "\n"


def _ptx(tool: Path, program: Program, options: tuple[str, ...]) -> bytes:
    """Return the PTX of a program, by running clang. Raises CompileFailed."""
    with tempfile.TemporaryDirectory() as temporary:
        # An include may go some folders up.
        folder = Path(temporary, "a", "b", "c", "d")
        folder.mkdir(parents=True)
        headers = {**dict(program.headers), HEADER.name: HEADER.read_text(encoding="utf-8")}
        for name, text in headers.items():
            path = (folder / name).resolve()
            if path.is_relative_to(Path(temporary).resolve()):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        source = folder / "source.cu"
        source.write_text(_wrapped(program), encoding="utf-8")
        out = folder / "source.ptx"
        command = (str(tool), "clang", *options, f"-I{folder}", "-o", str(out), str(source))
        try:
            process = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT_S,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired as error:
            raise CompileFailed(
                f"{program.name}: compiling {program.entry} took more than {LIMIT_S:g} s"
            ) from error
        if process.returncode:
            raise _compile_error(program, process.stderr.decode(errors="replace"))
        # The same source must give the same text everywhere.
        ptx = re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", out.read_text(encoding="utf-8"))
    return ptx.encode()


_LOCATION = re.compile(r"^(\s*\.loc\s+)\d+ \d+ \d+(\s*// .* @\[ .*)$", re.MULTILINE)
_PLACE = re.compile(r"([^\s/:]+):(\d+):(\d+)(?= |$)")
_FILE = re.compile(r'^\s*\.file\s+(\d+) "(?:.*/)?([^/"]+)"', re.MULTILINE)


def _at_callers(ptx: str) -> str:
    """Return PTX in which what is inlined from clang.cuh has the place that it is inlined at.

    clang writes such a place only behind the .loc, as in // clang.cuh:60:1 @[ mine.cu:3:50 ].
    """
    numbers = {name: number for number, name in _FILE.findall(ptx)}
    numbered = len(numbers)

    def at_caller(match: re.Match[str]) -> str:
        for file, line, column in _PLACE.findall(match[2]):
            if file != HEADER.name:
                number = numbers.setdefault(file, str(len(numbers) + 1))
                return f"{match[1]}{number} {line} {column}{match[2]}"
        return match[0]

    moved_ptx = _LOCATION.sub(at_caller, ptx)
    added = [f'\t.file\t{number} "{file}"\n' for file, number in numbers.items()][numbered:]
    return moved_ptx + "".join(added)


def _compile_error(program: Program, log: str) -> CompileFailed:
    """Return clang's first error, with its file, line and source line."""
    error = re.search(
        r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.+)$", log, re.MULTILINE
    )
    if error is None:
        return CompileFailed(f"{program.name}: {log.strip()}")
    file = Path(error["file"]).name
    if file == ENTRY:
        return CompileFailed(f"{program.name}: there is no kernel {program.entry}: {error['text']}")
    number = int(error["line"])
    message = f"{file}:{number}: {error['text']}"
    return CompileFailed(f"{message}\n    {_line(program, file, number)}".rstrip())


@dataclass(frozen=True)
class Outside:
    """An access out of the bounds of an array."""

    file: str
    line: int
    text: str  # that source line
    index: int | None = None  # None: it isn't known, as of a wide access
    array: str = ""  # its type, as "float[4]"

    def __str__(self) -> str:
        mistake = f"index {self.index} is out of bounds of {self.array}"
        if self.index is None:
            mistake = "an access ends outside its array"
        return f"{self.file}:{self.line}: {mistake}\n    {self.text}"


_OUTSIDE = re.compile(r"out of bounds: (.+):(\d+): index (-?\d+) of '(.+)'")


def outside_in(printed: Sequence[str], program: Program) -> Outside | None:
    """Return the first access out of bounds that a program has printed.

    printed: by a launch of code that is compiled with `bounds`
    """
    for line in printed:
        match = _OUTSIDE.fullmatch(line)
        if match:
            file = Path(match[1]).name
            number = int(match[2])
            text = _line(program, file, number)
            return Outside(file, number, text, int(match[3]), match[4])
    return None


def _line(program: Program, file: str, number: int) -> str:
    """Return a line of a program's source or of one of its headers; "" if it isn't known."""
    texts = {Path(name).name: text for name, text in program.headers}
    texts[program.name] = program.source
    lines = texts.get(file, "").splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
