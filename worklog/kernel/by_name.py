"""Kernels by the command line's names and options, as they are or as of a git revision."""

from __future__ import annotations

import io
import os
import re
import shlex
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from worklog.errors import BadSetting
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import rung
from worklog.kernel.ladder.names import NAMED
from worklog.kernel.launch import header
from worklog.kernel.nvrtc import own_headers
from worklog.kernel.product import takes_workspace
from worklog.kernel.source import kernels_dir, read_source
from worklog.runs.files import git

# Named on the command line, and no rungs: the arguments of `worklog run` that time them
BASELINES = {"cublas": "{}", "torch": "{}", "cublaslt": "warptiled --against {}"}


class Option(NamedTuple):
    """An option of a user kernel, on the command line and of `%%rung`."""

    flags: tuple[str, ...]
    default: Any  # a tuple if the option may be repeated
    metavar: str
    help: str


OPTIONS = {
    "grid": Option(("--grid",), None, "X[,Y[,Z]]", "Blocks: '(N + 31) / 32, (M + 31) / 32'. SMS is "
                                                   "the number of multiprocessors (default: the "
                                                   "source's)."),
    "block": Option(("--block",), None, "X[,Y[,Z]]", "Threads per block: 256, or 32,8 (default: "
                                                     "the source's)."),
    "entry": Option(("--entry",), None, "NAME",
                    "Name of the kernel, with template arguments (default: the only one in the "
                    "file)."),
    "args": Option(("--args",), None, "NAMES",
                   "Meaning of each parameter: 'M,N,K,alpha,A,B,beta,C', or a number (default: "
                   "from its name, or by "
                   "trial)."),
    "by_columns": Option(("--by-columns",), None, "MATRICES",
                         "Factors that lie in memory by columns: B, or A,B (default: a comment's, "
                         "or none)."),
    "epilogue": Option(("--epilogue",), None, "NAME",
                       "Activation of the result: relu, gelu or gelu_tanh (default: a comment's, "
                       "or none)."),
    "include": Option(("-I", "--include"), (), "DIR", "A folder of headers; repeat for more."),
    "define": Option(("-D", "--define"), (), "NAME=VALUE", "A macro; repeat for more."),
    "shared": Option(("--shared",), 0, "BYTES", "Dynamic shared memory per block."),
    "domain": Option(("--domain",), None, "SHAPES",
                     "Shapes that the kernel accepts: 'M % 64 == 0, K % 8 == 0', or any (default: "
                     "a comment's, or the "
                     "grid's)."),
    "claimed": Option(("--class",), "", "CLASS",
                      "Class to reach: fp32, fp32-norm, fp32-emulated, tf32, fp16 or bf16 "
                      "(default: fp32; for matrices of 16 bits, fp32-emulated)."),
    "arrays": Option(("--arrays",), "", "cupy|torch", "A host function's arrays (default: its "
                                                      "file's, or cupy)."),
}  # fmt: skip
Words = Mapping[str, Any]  # options of a launch, as in OPTIONS
DEFAULTS: Words = {name: option.default for name, option in OPTIONS.items()}
OF_A_FILE = tuple(OPTIONS)[:9]  # a host function takes the others


def kernel_of(name: str, options: Words) -> Kernel:
    """Return a rung, the kernel of a .cu file or a host function.

    The kernel is as far as the file states it. worklog.kernel.trial finds the rest.

    name: a rung's name, a .cu file's path, or module:function, file.py:function or lib.so:function
    options: of a user kernel, as in OPTIONS
    Raises BadSetting, and WorklogError for a file that can't be read.
    """
    stated = _stated_options(options)
    is_file = name.endswith(".cu")
    if not is_file and name not in NAMED:
        is_file = Path(name).exists()
    if ":" in name and not is_file:
        _require_none(OF_A_FILE, stated, "a .cu file: a host function launches itself")
        return Kernel.from_function(name, **stated)
    _require_none(
        ["arrays"], stated, "a host function, such as file.py:function: a kernel takes pointers"
    )
    if Path(name).suffix in (".py", ".so"):
        raise BadSetting(
            f"cannot run {name}: name its function too, as {shlex.quote(f'{name}:function')}"
            + _in_a_string(Path(name))
        )
    if not is_file:
        _require_none(DEFAULTS, stated, "a .cu file: a rung has its own")
        if name.lower() in BASELINES:
            arguments = BASELINES[name.lower()].format(name)
            raise BadSetting(
                f"{name} has no CUDA source here: `worklog run {arguments}` times it; name a rung "
                "or a .cu file"
            )
        return rung(name, "name a .cu file, or ")
    if not stated.keys() - {"entry", "claimed"}:
        as_rung = rung_of_file(Path(name))
        if as_rung is not None and stated.get("entry", as_rung.function) == as_rung.function:
            return replace(as_rung, claimed=stated.get("claimed", as_rung.claimed))
    return Kernel.from_file(name, **stated)


def _stated_options(options: Words) -> dict[str, Any]:
    """Return the options that differ from their defaults. Raises BadSetting for empty text."""
    stated = {}
    for name, value in options.items():
        if value is not None and value != DEFAULTS[name]:
            stated[name] = value
    for name, value in stated.items():
        if isinstance(value, str) and not value.strip():
            option = OPTIONS[name]
            raise BadSetting(f"{option.flags[-1]} is empty: give {option.metavar}, or omit it")
    return stated


def _require_none(names: Iterable[str], options: Words, owner: str) -> None:
    """Raise BadSetting if one of these options is stated.

    names: of the options
    options: the stated ones
    owner: what they are for, with the reason
    """
    for name in names:
        if name in options:
            raise BadSetting(f"{OPTIONS[name].flags[-1]} is for {owner}")


def product_of_rung(path: Path) -> str:
    """Return the name of the kernel that computes a rung's product; "" for other files.

    The rung has several launches.

    path: of a file with the rung's kernels
    """
    rungs = _several_launches(path)
    if rungs is None:
        return ""
    packaged, _ = rungs
    return packaged.function


def rung_of_file(path: Path) -> Kernel | None:
    """Return a rung of several launches with a file's text; None for other files.

    path: of a file with the rung's kernels
    Raises BadSetting for a file with other kernels than the rung's, another tile or another launch.
    """
    rungs = _several_launches(path)
    if rungs is None:
        return None
    packaged, edited = rungs
    if _passes(packaged) != _passes(edited):
        place = Path(os.path.relpath(kernels_dir() / packaged.file))
        raise BadSetting(
            f"{edited.function} is rung {packaged.name} with other kernels, another tile or "
            "another launch: "
            "its launches share a workspace, so its passes can't be checked one by one. "
            f"Make the change in {place} and type: worklog check {packaged.name}"
        )
    return edited


def _several_launches(path: Path) -> tuple[Kernel, Kernel] | None:
    """Return the rung of several launches that a file holds, and the rung with its text."""
    source = read_source(path)
    for packaged in NAMED.values():
        is_named = re.search(rf"\b{packaged.function}\b", source) is not None
        if not is_named or not _takes_several_launches(packaged):
            continue
        headers = tuple(own_headers(source, [str(path.parent), str(kernels_dir())]).items())
        code = replace(packaged.program, source=source, headers=headers)
        edited = replace(packaged, name=path.stem, code=code, number=None, idea="")
        defined = edited.unit.definition(packaged.function)
        if defined is not None and defined.is_own and takes_workspace(defined):
            return packaged, edited
    return None


def _takes_several_launches(kernel: Kernel) -> bool:
    """Return whether a kernel takes several launches at some shape."""
    return kernel.follows_shape or len(kernel.launches) > 1


def _passes(kernel: Kernel) -> dict[str, Any]:
    """Return what a rung's launches rely on: its kernels' parameters, and its header."""
    kernels = [function for function in kernel.unit.functions if function.is_kernel]
    declared = {function.name: ([*function.template], function.parameters) for function in kernels}
    return {**declared, "": header(kernel.source)}


def _in_a_string(file: Path) -> str:
    """Return how to check a kernel that a Python file has as a string, or ""."""
    if file.suffix != ".py" or not file.is_file():
        return ""
    text = file.read_text(encoding="utf-8", errors="replace")
    place = text.find("__global__")
    if place < 0:
        return ""
    line = text.count("\n", 0, place) + 1
    return (
        f". For the kernel in the string of line {line}, as of a RawKernel: write its source to a "
        ".cu file and check that, or call worklog.try_kernel(source, grid=…, block=…)"
    )


def at_revision(name: str, revision: str, options: Mapping[str, Any]) -> Kernel:
    """Return a rung of one launch, or the kernel of a .cu file, as of a git revision.

    The file and the headers beside it are the revision's. The kernel's name ends in "@" and the
    revision.

    name: a rung's name or a .cu file's path
    options: of a user kernel's launch
    Raises BadSetting and WorklogError.
    """
    if ":" in name or Path(name).suffix in (".py", ".so"):
        raise BadSetting(f"{name} is a host function: --against-revision takes rungs and .cu files")
    kernel = NAMED.get(name)
    if kernel is not None and _takes_several_launches(kernel):
        raise BadSetting(
            f"{name} takes several launches: compare two saved runs of it with `worklog compare`"
        )
    path = Path(name) if kernel is None else kernels_dir() / kernel.file
    with tempfile.TemporaryDirectory() as copy:
        with tarfile.open(
            fileobj=io.BytesIO(git("archive", revision, ".", folder=path.parent))
        ) as archive:
            archive.extractall(copy, filter="data")
        if not Path(copy, path.name).exists():
            raise BadSetting(f"{path} isn't in {revision}: give a revision that holds it")
        former = kernel_of(str(Path(copy, path.name)), options)
    if _takes_several_launches(former):
        raise BadSetting(
            f"{name} takes several launches: compare two saved runs of it with `worklog compare`"
        )
    return replace(former, name=f"{path.stem if kernel is None else name}@{revision}")
