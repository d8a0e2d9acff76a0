"""Try one kernel: whether it compiles, the emulator covers it, and, for a GEMM, whether the gate passes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.record.public_kernels import Found
from worklog.emulator import UnsupportedInstruction, load
from worklog.emulator.device import build
from worklog.emulator.launch import _program
from worklog.errors import BadSetting, CompileFailed, WorklogError
from worklog.kernel import Kernel
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import Compiled
from worklog.runner.check import check

MOST_TILE, TILE_K = 256, 64
LIMIT_S = 30.0  # estimated, of the gate's launches of one kernel


# What the compiler misses for a kernel that is counted apart, or for another one in its file.
LEFT_OUT = {
    r'identifier "__(?:shfl|any|all|ballot)\w*" is undefined': "removed intrinsics",
    r'device-side kernel launch|identifier "cuda(?:Graph|Device|Malloc)\w*" is undefined': "dynamic parallelism",
    r'open source file|is missing|identifier "(?:GL[a-z]|(?:EGL|PFN|XM|cu[a-z]+|nvtx|nccl)[A-Z])': "no headers",
}
# Libraries whose headers are not among NVIDIA's for the compiler.
LIBRARIES = re.compile(r'#[ \t]*include[ \t]*[<"](?:curand|cufft|GL|EGL|nvtx|nvToolsExt|nccl|mpi)', re.IGNORECASE)
COMPILED: dict[Program, Compiled] = {}
FAILED: dict[Program, CompileFailed] = {}


@dataclass(frozen=True)
class Tried:
    """What became of one kernel. apart: why it is not tried: textures, dynamic parallelism, intrinsics that CUDA has no
    longer, kernels that #if leaves out, templates whose arguments aren't known, and headers of libraries that are not
    installed. error: why it does not compile. missing: instruction forms that the emulator lacks. verdict: of a GEMM:
    "passed as fp32", the gate's reason, or why it wasn't checked; "" for other kernels. findings: kinds of the
    emulator's error findings. domain: of the verdict: whole tiles for a kernel without one whose launches fail at other
    sizes.
    """

    path: str
    entry: str
    apart: str = ""
    error: str = ""
    missing: tuple[str, ...] = ()
    verdict: str = ""
    findings: tuple[str, ...] = ()
    domain: str = ""

    @property
    def covered(self) -> bool:
        """Whether the emulator has every instruction of it."""
        return not (self.apart or self.error or self.missing)

    @property
    def checked(self) -> bool:
        """Whether it is a GEMM that the gate passed or failed."""
        return self.verdict.startswith(("passed", "failed"))


def tried(found: Found, include: Sequence[Path] = ()) -> Tried:
    """Compile a kernel, translate each of its blocks, and check it if its name and its parameters are a GEMM's."""
    name = str(found.path), found.entry
    if found.apart:
        return Tried(*name, found.apart)
    try:
        kernel, compiled = _compiled(found, tuple(include))
    except (BadSetting, CompileFailed) as error:
        if "there is no kernel" in str(error) and "<" not in found.entry:
            return Tried(*name, "left out by #if")
        for pattern, why in LEFT_OUT.items():
            if re.search(pattern, str(error)):
                return Tried(*name, why)
        if LIBRARIES.search(found.text):
            return Tried(*name, "no headers")
        if found.guessed:
            return Tried(*name, "unknown template arguments")
        return Tried(*name, error=str(error).split("\n")[0])
    if missing := forms_missing(compiled.ptx, compiled.symbol):
        return Tried(*name, missing=missing)
    return Tried(*name) if found.guessed or not found.is_gemm else _checked(kernel, name)


def _compiled(found: Found, include: tuple[Path, ...]) -> tuple[Kernel, Compiled]:
    """Compile with -I and -D for what the compiler's message asks for and the folder has. Raises CompileFailed."""
    define: tuple[str, ...] = ()
    while True:
        kernel = found.kernel(include, define)
        file = replace(kernel.program, entry="", arguments=())  # compiled for all but templates
        try:
            if failed := FAILED.get(file):
                raise failed
            if (known := COMPILED.get(file)) and (symbol := found.symbol(known.ptx)):
                return kernel, replace(known, symbol=symbol)
            COMPILED[file] = build(kernel.program)[0]
            return kernel, COMPILED[file]
        except CompileFailed as error:
            if "<" not in found.entry and "there is no kernel" not in str(error):
                FAILED[file] = error
            more = found.header_folder(str(error)), found.macro(str(error))
            if not any(more) or more[0] in include or more[1] in define:
                raise
            include, define = (*include, *filter(None, more[:1])), (*define, *filter(None, more[1:]))


def forms_missing(ptx: str, symbol: str) -> tuple[str, ...]:
    """The instruction forms of a kernel that the emulator lacks: the first one of each block."""
    missing: dict[str, None] = {}
    try:
        program = _program(load(ptx, symbol), 0)
    except UnsupportedInstruction as error:
        return (_form(error),)
    for block in range(len(program.flow.blocks)):
        try:
            program.function(block, True)
        except UnsupportedInstruction as error:
            missing[_form(error)] = None
    return tuple(missing)


def _form(error: UnsupportedInstruction) -> str:
    """The opcode of "line 3: fns.b32 (fns.b32 …): …", else the message."""
    text = re.sub(r"^(?:line|instruction) \d+: ", "", str(error).split("\n")[0])
    found = re.match(r"([a-z]\w*(?:(?:\.|::)\w+)+|[a-z]+) \(", text)
    return found[1] if found else re.sub(r"[%\w$]*\d[\w$]*", "#", text)


def _checked(kernel: Kernel, name: tuple[str, str]) -> Tried:
    try:
        kernel.require_launch()
    except BadSetting as error:
        return Tried(*name, verdict=f"not checked: {error}")
    try:
        done = check(kernel, on="emulated", seed=0, limit_s=LIMIT_S)
        if not done.verdict.accepted and done.verdict.stages[-1].name == "launch" and "K" not in kernel.rules:
            kernel = replace(kernel, rules=whole_tiles(kernel))
            done = check(kernel, on="emulated", seed=0, limit_s=LIMIT_S)
    except WorklogError as error:
        return Tried(*name, verdict=f"not checked: {str(error).splitlines()[0]}")
    verdict = done.verdict
    words = f"passed as {verdict.precision}" if verdict.accepted else f"failed at {verdict.reason}"
    kinds = dict.fromkeys(finding.kind for finding in done.findings if finding.is_error)
    return Tried(*name, verdict=words, findings=tuple(kinds), domain=str(kernel.domain))


def whole_tiles(kernel: Kernel) -> str:
    """A domain without partial tiles, for a kernel that doesn't state that it takes whole tiles only."""
    sizes = [int(number) for number in re.findall(r"\b\d+\b", kernel.grid)]
    tile = max((size for size in sizes if size <= MOST_TILE and size.bit_count() == 1), default=MOST_TILE)
    return f"M % {tile} == 0, N % {tile} == 0, K % {TILE_K} == 0"
