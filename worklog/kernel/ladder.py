"""All rungs, and what the package records of them: charts and notebooks need no run.

The records are memory counts at 4096, which the emulator counted, and how busy the units of a GPU
were, by Nsight Compute. This module also finds kernels by the command line's names and options, as
they are or as they were in a git revision, and adds a rung.

The memory counts belong to the PTX beside their file and are made with it (`make ptx`); a test
counts again.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import shlex
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from worklog.emulator.limits import WARP
from worklog.errors import BadRunFile, BadSetting, WorklogError, meant
from worklog.kernel.best import choose
from worklog.kernel.kernel import Kernel
from worklog.kernel.launch import header
from worklog.kernel.nvrtc import own_headers
from worklog.kernel.product import takes_workspace
from worklog.kernel.rungs import ANY_SHAPE, FP32, LADDER, TENSOR, any_shape
from worklog.kernel.source import kernels_dir, read_source
from worklog.problem import Shape
from worklog.runs import recordings
from worklog.runs.files import git
from worklog.runs.text import Bar, Table

# The record itself is the kernel for what is misaligned; it takes any shape in one launch.
BEST = replace(any_shape(ANY_SHAPE.template), choose=choose, rules="A, B, C % 16 bytes")
RUNGS = (*LADDER, *FP32, *TENSOR, BEST)
NAMED = {kernel.name: kernel for kernel in RUNGS}
TRAFFIC = Path(__file__).with_name("ptx") / "traffic.json"
SECTOR = 32  # bytes
BASELINES = ("cublas", "torch")  # named on the command line, and no rungs


def rung(name: str, advice: str = "") -> Kernel:
    """Return the rung of a name.

    advice: an alternative, as the beginning of the error's advice
    Raises BadSetting with the names that exist.
    """
    if name in NAMED:
        return NAMED[name]
    suggestion = meant(str(name), NAMED)
    if Path(f"{name}.cu").is_file():
        suggestion = f" (did you mean {shlex.quote(name + '.cu')}?)"
    raise BadSetting(
        f"there is no rung {name!r}{suggestion}: {advice}choose from {', '.join(NAMED)}"
    )


def source_changed(name: str, kernels: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a rung's code has changed since a run; False without a hash.

    kernels: the run's kernels by name
    """
    about = kernels.get(name, {})
    return "sha256" in about and name in NAMED and not NAMED[name].program.measured_as(about)


@dataclass(frozen=True)
class MemoryCounts:
    """The memory counts of one launch."""

    sha256: str  # of the program
    load_requests: int  # memory instructions of a warp
    load_sectors: int  # of 32 bytes
    load_bytes: int  # the sum of the bytes that each thread loads
    load_lines: int  # of 128 bytes, each looked up in L1 once per request
    store_requests: int  # memory instructions of a warp
    store_sectors: int  # of 32 bytes
    wavefronts: int  # passes through shared memory, loads and stores
    conflicts: int  # wavefronts that bank conflicts add
    thread_fma: int  # multiply-adds of all threads

    def __add__(self, other: MemoryCounts) -> MemoryCounts:
        sums: dict[str, Any] = {
            name: count + other.numbers[name] for name, count in self.numbers.items()
        }
        return replace(self, **sums)

    @property
    def numbers(self) -> dict[str, int]:
        """Every count by name."""
        return {name: value for name, value in asdict(self).items() if name != "sha256"}

    def at(self, shape: Shape, counted: Shape) -> MemoryCounts:
        """Return the counts at another shape.

        The kernel must be on whole tiles at both shapes. Per block, the counts of loads and
        multiply-adds grow with K, and those of stores don't.

        counted: the shape of these counts
        """
        scaled: dict[str, Any] = {}
        for name, count in self.numbers.items():
            if name.startswith("store"):
                scaled[name] = count * shape.m * shape.n // (counted.m * counted.n)
            else:
                scaled[name] = count * shape.flops // counted.flops
        return replace(self, **scaled)

    @property
    def sectors_per_request(self) -> float:
        """The sectors per request of global loads."""
        return self.load_sectors / self.load_requests

    @property
    def load_width(self) -> float:
        """The average bytes per thread and global load."""
        return self.load_bytes / self.load_requests / WARP

    @property
    def sectors_per_fma(self) -> float:
        """The sectors of global loads and stores per multiply-add of a warp."""
        return (self.load_sectors + self.store_sectors) * WARP / self.thread_fma

    @property
    def wavefronts_per_fma(self) -> float:
        """The wavefronts per multiply-add of a warp."""
        return self.wavefronts * WARP / self.thread_fma

    @property
    def conflict_share(self) -> float:
        """The share of the wavefronts that bank conflicts add."""
        return self.conflicts / self.wavefronts if self.wavefronts else 0.0


@dataclass(frozen=True)
class LadderCounts:
    """The memory counts of every rung."""

    label: str  # the source of the counts
    shape: Shape  # of the problem
    rungs: Mapping[str, MemoryCounts]  # by name, in the ladder's order


@lru_cache(maxsize=1)
def memory_counts() -> LadderCounts:
    """Return the counts in the package. Raises WorklogError if the file can't be read."""
    try:
        document = json.loads(TRAFFIC.read_text(encoding="utf-8"))
        rungs = {name: MemoryCounts(**counts) for name, counts in document["rungs"].items()}
        return LadderCounts(document["label"], Shape.of(document["shape"]), rungs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorklogError(
            f"the counts in {TRAFFIC} cannot be read ({error}); install gemm-worklog again"
        ) from error


def counters(rungs: Sequence[str]) -> Table:
    """Return a row per rung with the load of each unit, and the busiest unit.

    The load is a percentage of the unit's peak rate. It is over the launch of the product, without
    launches that split or add. "L1 and shared" is the pipe that serves both. A note names rungs
    that weren't recorded: `python -m tests.record.ncu bounds` records them.

    rungs: names of rungs
    Raises BadRunFile if no rung was recorded.
    """
    document = json.loads(recordings("counters")["h200"].read_text(encoding="utf-8"))
    kernels = document["kernels"]
    missing = [name for name in rungs if name not in kernels]
    recorded = [name for name in rungs if name in kernels]
    if not recorded:
        raise BadRunFile(
            f"no counters of {', '.join(missing)} are recorded: choose from {', '.join(kernels)}"
        )
    units = [*document["metrics"].values()]
    rows = []
    for name in recorded:
        percent = kernels[name]["percent"]
        shares = {unit: Bar(f"{percent[unit]:.0f} %", percent[unit] / 100) for unit in units}
        rows.append({"rung": name, **shares, "busiest": max(units, key=lambda unit: percent[unit])})
    stale = [name for name in recorded if source_changed(name, kernels)]
    notes = []
    if stale:
        notes.append(f"source changed since: {', '.join(stale)}")
    if missing:
        notes.append(f"no counters are recorded of: {', '.join(missing)}")
    return Table.of(f"{_label(document)} · at {Shape(*document['shape'])}", rows, notes=notes)


def block_traffic_bytes(tile: Mapping[str, int], shape: Shape) -> int:
    """Return the bytes that blocks fetch from L2, plus the bytes of C.

    Each block reads its BM rows of A and BN columns of B once, and C is written once.

    tile: BM and BN
    """
    blocks = math.ceil(shape.m / tile["BM"]) * math.ceil(shape.n / tile["BN"])
    return 4 * (blocks * (tile["BM"] + tile["BN"]) * shape.k + shape.m * shape.n)


def moved_from_l2(shape: Shape) -> tuple[dict[str, int], str]:
    """Return the bytes between L2 and L1 in one launch of each rung, and their label.

    Rungs whose source has changed are left out. Empty if none is recorded: `python -m
    tests.record.ncu bytes` records them at 4096.
    """
    path = recordings("bytes").get("h200")
    if path is None:
        return {}, ""
    document = json.loads(path.read_text(encoding="utf-8"))
    if Shape(*document["shape"]) != shape:
        return {}, ""
    kernels = document["kernels"]
    moved = {
        name: int(kernels[name]["bytes"]["L2"])
        for name in kernels
        if not source_changed(name, kernels)
    }
    return moved, f"bytes: {_label(document)}"


def _label(document: dict[str, Any]) -> str:
    """Return the label of a recording by Nsight Compute."""
    return (
        f"recorded · {document['device']} · {document['date']} · Nsight Compute "
        f"{document['ncu'].split()[1]}"
    )


def busiest(rung: str) -> str:
    """Describe the busiest unit of the GPU in a rung, with its share and the label.

    Raises BadRunFile if the rung wasn't recorded.
    """
    table = counters([rung])
    row = dict(zip(table.columns, table.rows[0], strict=True))
    return f"{row['busiest']} {row[str(row['busiest'])]} busy, the busiest unit ({table.title})"


class Option(NamedTuple):
    """An option of a user kernel, on the command line and of `%%rung`."""

    flags: tuple[str, ...]
    default: Any  # a tuple if the option may be repeated
    metavar: str
    help: str


OPTIONS = {
    "grid": Option(("--grid",), None, "X[,Y[,Z]]", "Blocks: '(N + 31) / 32, (M + 31) / 32' "
                                                   "(default: the source's)."),
    "block": Option(("--block",), None, "X[,Y[,Z]]", "Threads per block: 256, or 32,8 (default: "
                                                     "the source's)."),
    "entry": Option(("--entry",), None, "NAME",
                    "Name of the kernel, with template arguments (default: the only one in the "
                    "file)."),
    "args": Option(("--args",), None, "NAMES",
                   "Meaning of each parameter: 'M,N,K,alpha,A,B,beta,C', or a number (default: "
                   "from its name, or by "
                   "trial)."),
    "include": Option(("-I", "--include"), (), "DIR", "A folder of headers; repeat for more."),
    "define": Option(("-D", "--define"), (), "NAME=VALUE", "A macro; repeat for more."),
    "shared": Option(("--shared",), 0, "BYTES", "Dynamic shared memory per block."),
    "domain": Option(("--domain",), None, "SHAPES",
                     "Shapes that the kernel accepts: 'M % 64 == 0, K % 8 == 0', or any (default: "
                     "a comment's, or the "
                     "grid's)."),
    "claimed": Option(("--class",), "fp32", "CLASS", "Class to reach: fp32, fp32-emulated, tf32, "
                                                     "fp16 or bf16."),
    "arrays": Option(("--arrays",), "", "cupy|torch", "A host function's arrays (default: its "
                                                      "file's, or cupy)."),
}  # fmt: skip
Words = Mapping[str, Any]  # options of a launch, as in OPTIONS
DEFAULTS: Words = {name: option.default for name, option in OPTIONS.items()}
OF_A_FILE = tuple(OPTIONS)[:7]  # a host function takes the others


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
            raise BadSetting(
                f"{name} has no CUDA source here: `worklog run {name}` times it; name a rung or a "
                ".cu file"
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
    for packaged in RUNGS:
        is_named = re.search(rf"\b{packaged.function}\b", source) is not None
        if not is_named or (packaged.choose is None and len(packaged.launches) == 1):
            continue
        headers = tuple(own_headers(source, [str(path.parent), str(kernels_dir())]).items())
        code = replace(packaged.program, source=source, headers=headers)
        edited = replace(packaged, name=path.stem, code=code, number=None, idea="")
        defined = edited.unit.definition(packaged.function)
        if defined is not None and defined.is_own and takes_workspace(defined):
            return packaged, edited
    return None


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
    if kernel is not None and (kernel.choose is not None or len(kernel.launches) > 1):
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
    if former.choose is not None or len(former.launches) > 1:
        raise BadSetting(
            f"{name} takes several launches: compare two saved runs of it with `worklog compare`"
        )
    return replace(former, name=f"{path.stem if kernel is None else name}@{revision}")


RECORD = '    numbered({number}, "{name}", "the idea in a few words"),\n'
ENTRY = """\
#elif RUNG == {number}
#include "{number}_{name}.cu"
const Rung rung = {{sgemm_{name}<32, 32>, 32, 32, 1, 1024}};
#else
"""


def new_rung(number: int, name: str) -> list[Path]:
    """Add a rung to a checkout, as a copy of coalesced with another name.

    Writes its source, its record and its entry for main.cu, and returns these files.

    Raises BadSetting in an installed package, and for a number or a name that is taken.
    """
    kernels = kernels_dir()
    if kernels.name != "kernels":
        raise BadSetting(
            "--rung needs a checkout of worklog, and this is an installed package: clone the "
            "repository"
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadSetting(f"cannot name a rung {name!r}: start with a-z, then take a-z, 0-9 and _")
    for other in RUNGS:
        if other.number == number or other.name == name:
            raise BadSetting(
                f"rung {other.number} is {other.name} already: take another number and name"
            )
    code = Path(__file__).with_name("rung.cu").read_text(encoding="utf-8")
    for placeholder, value in (
        ("NUMBER", str(number)),
        ("TITLE", name.replace("_", " ").capitalize()),
        ("NAME", name),
    ):
        code = code.replace(placeholder, value)
    source = kernels / f"{number}_{name}.cu"
    entries = kernels / "rungs.cuh"
    records = Path(__file__).with_name("rungs.py")
    record = RECORD.format(number=number, name=name)
    entry = ENTRY.format(number=number, name=name)
    ladder_name = "FP32" if number <= 20 else "TENSOR"
    ladder = rf"(?ms)^({ladder_name} = \(.*?)^\)$"
    source.write_text(code, encoding="utf-8")
    records.write_text(
        re.sub(ladder, rf"\g<1>{record})", records.read_text(encoding="utf-8")), encoding="utf-8"
    )
    entries.write_text(
        entries.read_text(encoding="utf-8").replace("#else\n", entry), encoding="utf-8"
    )
    return [source, records, entries]
