"""Compiles CUDA C++ to PTX with clang, which the wheel `ziglang` contains: on any machine.

NVRTC's optimiser removes an access past the end of an array whose size is known, and what depends
on it, so no run shows the mistake. clang can check such accesses in the compiled code. It is also
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
from dataclasses import dataclass
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
# Of results of code that clang has compiled because NVRTC is missing.
NOTE = "compiled by clang, because NVRTC is missing: no registers, no SASS, no cuda_fp16.h"
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
def compile_with_clang(program: Program, arch: str, *, bounds: bool = False) -> Compiled:
    """Compile a program for an architecture, as worklog.kernel.nvrtc.compile_cuda does.

    bounds: whether the code checks its accesses to arrays, and prints and traps at a mistake

    The result has no machine code, and its resources are 0. Equal arguments compile once per
    machine (worklog.kernel.disk_cache).

    Raises CompileFailed with clang's message, and ClangMissing.
    """
    suffix = "a" if arch == "sm_90" and needs_sm_90a(program.whole) else ""
    options = (f"--cuda-gpu-arch={arch}{suffix}", *FIXED_OPTIONS, *_options(program, bounds))
    text = HEADER.read_text(encoding="utf-8")
    order = (options, program.name, program.source, program.entry, program.headers, text)
    tool = executable()
    run = partial(_ptx, tool, program, options)
    ptx = cached(tool, json.dumps(order).encode(), run).decode()
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


def _options(program: Program, bounds: bool) -> tuple[str, ...]:
    """Return the options of a program, in clang's terms."""
    options = [option for option in program.options if option.startswith(("-std=", "-D", "-I"))]
    return (*options, *(BOUNDS if bounds else FAST))


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
    index: int
    array: str  # its type, as "float[4]"
    text: str  # that source line

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}: index {self.index} is out of bounds of {self.array}\n    {self.text}"


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
            return Outside(file, number, int(match[3]), match[4], _line(program, file, number))
    return None


def _line(program: Program, file: str, number: int) -> str:
    """Return a line of a program's source or of one of its headers; "" if it isn't known."""
    texts = {Path(name).name: text for name, text in program.headers}
    texts[program.name] = program.source
    lines = texts.get(file, "").splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
