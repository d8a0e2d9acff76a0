"""Try every kernel in folders of CUDA sources: `python -m tests.record.corpus FOLDER…` (no GPU).

Without a folder, it clones the public repositories of repositories.txt, each at its commit, and records the table that
notebook 11 shows, in an hour. A kernel is compiled for sm_90 and translated for the emulator. If its name and its
parameters are those of a matrix product, the gate checks it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import pandas as pd

from tests.record import recording
from worklog.emulator import UnsupportedInstruction, load
from worklog.emulator.core import enum
from worklog.emulator.core.decode import decoded
from worklog.emulator.program import program_of
from worklog.errors import BadSetting, CompileFailed, WorklogError
from worklog.kernel import Compiled, Kernel
from worklog.kernel.device import Program
from worklog.kernel.emulated import build
from worklog.kernel.source import UNCLEAR, reduced, uncommented
from worklog.kernel.unit import read
from worklog.runner.check import check
from worklog.runs import documents

MOST_FORMS = 20
REPOSITORIES = Path(__file__).with_name("repositories.txt")
RECORDED = Path(__file__).parents[2] / "worklog" / "recordings" / "corpus" / "public_kernels.json"
MOST_TILE, TILE_K = 256, 64
# What the compiler misses for a kernel that is counted apart, or for another one in its file.
LEFT_OUT = {
    "(?:there is|has) no kernel": "left out by #if",
    r'function "(?:tex|surf)[123C]\w*" matches': "textures",
    r'identifier "__(?:shfl|any|all|ballot)\w*" is undefined': "removed intrinsics",
    r'device-side kernel launch|identifier "cuda(?:Graph|Device|Malloc)\w*" is undefined': "dynamic parallelism",
    r'open source file|is missing|identifier "(?:GL[a-z]|(?:EGL|PFN|XM|cu[a-z]+|nvtx|nccl)[A-Z])': "no headers",
}
COMPILED: dict[Program, Compiled] = {}  # files, with all their kernels but templates


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


def tried(public: PublicKernel, include: Sequence[Path] = ()) -> Tried:
    """Compile a kernel, translate each of its blocks, and check it if its name and its parameters are a GEMM's."""
    name = str(public.path), public.entry
    if public.unknown:
        return Tried(*name, "unknown template arguments")
    try:
        kernel, compiled = built(public, tuple(include))
    except (BadSetting, CompileFailed) as error:
        why = next((why for pattern, why in LEFT_OUT.items() if re.search(pattern, str(error))), "")
        return Tried(*name, why, "" if why else str(error).split("\n")[0])
    missing = forms_missing(compiled.ptx, compiled.symbol)
    if any(re.match(r"tex|tld4|su[lsr]|txq", form) for form in missing):
        return Tried(*name, "textures")
    if missing or not GEMM.search(f"{public.path.stem}/{public.entry}"):
        return Tried(*name, missing=missing)
    return checked(kernel, name)


def built(public: PublicKernel, include: tuple[Path, ...]) -> tuple[Kernel, Compiled]:
    """Compile with -I and -D for what the compiler's message asks for and the folder has. Raises CompileFailed."""
    define: tuple[str, ...] = ()
    own, source = public.folder / public.path, f"{public.text}\n{public.host}"
    while True:
        how: dict[str, Any] = {"include": (*include, own.parent), "define": define}
        kernel = Kernel.from_source(source, entry=public.entry, file=str(public.path), **how)
        file = replace(kernel.program, entry="", arguments=())
        known = COMPILED.get(file)
        symbol = (
            re.search(rf"\.entry\s+(_Z\d+{public.entry}\w*|{public.entry})\b", known.ptx)
            if known
            else None
        )
        if known and symbol:
            return kernel, replace(known, symbol=symbol[1])
        try:
            COMPILED[file] = compiled = build(kernel.program)[0]
            return kernel, compiled
        except CompileFailed as error:
            pattern = r"""(?:open source file "|; )([^./][^"\s]*)(?:"| isn't found)"""
            header = re.search(pattern, str(error))
            places = public.folder.rglob(header[1]) if header else ()
            near = sorted(places, key=lambda place: len(os.path.commonpath((place, own))))
            folder = Path(str(near[-1])[: -len(header[1])]) if header and near else None
            name = re.search(r'identifier "(\w+)" is undefined', str(error))
            macro = (
                f"{name[1]}={public.constants[name[1]]}"
                if name and name[1] in public.constants
                else ""
            )
            if folder and folder not in include:
                include = (*include, folder)
            elif macro and macro not in define:
                define = (*define, macro)
            else:
                raise


def forms_missing(ptx: str, symbol: str) -> tuple[str, ...]:
    """The instruction forms of a kernel that the emulator lacks: the first one of each block."""
    try:
        form = decoded(program_of(load(ptx, symbol), 0))
    except UnsupportedInstruction as error:
        return (form_of(str(error)),)
    first: dict[int, str] = {}
    block = -1
    for pc, record in enumerate(form.records):
        block = max(block, record["block"])
        if record["kind"] == enum("kind")["REFUSED"]:
            first.setdefault(block, form_of(form.refused[pc]))
    return tuple(dict.fromkeys(first.values()))


def form_of(error: str) -> str:
    """The opcode of "line 3: fns.b32 (fns.b32 …): …", else the message."""
    text = re.sub(r"^(?:line|instruction) \d+: ", "", error.split("\n")[0])
    opcode = re.match(r"([a-z]\w*(?:(?:\.|::)\w+)+|[a-z]+) \(", text)
    return opcode[1] if opcode else re.sub(r"[%\w$]*\d[\w$]*", "#", text)


def checked(kernel: Kernel, name: tuple[str, str]) -> Tried:
    """The gate's verdict, for whole tiles where the kernel states no domain and other sizes fail."""
    try:
        kernel.require_launch()
        done = check(kernel, on="emulated", seed=0)
        if (
            not done.verdict.accepted
            and done.verdict.stages[-1].name == "launch"
            and "K" not in kernel.rules
        ):
            sizes = [int(number) for number in re.findall(r"\b\d+\b", kernel.grid)]
            tile = max(
                (size for size in sizes if size <= MOST_TILE and size.bit_count() == 1),
                default=MOST_TILE,
            )
            kernel = replace(kernel, rules=f"M % {tile} == 0, N % {tile} == 0, K % {TILE_K} == 0")
            done = check(kernel, on="emulated", seed=0)
    except WorklogError as error:
        return Tried(*name, verdict=f"not checked: {str(error).splitlines()[0]}")
    verdict = done.verdict
    words = f"passed as {verdict.precision}" if verdict.accepted else f"failed at {verdict.reason}"
    kinds = dict.fromkeys(finding.kind for finding in done.findings if finding.is_error)
    return Tried(*name, verdict=words, findings=tuple(kinds), domain=str(kernel.domain))


def tries_of(folder: Path, include: Sequence[str]) -> list[Tried]:
    """What becomes of each kernel below a folder. include: folders of headers in it."""
    done = [tried(kernel, [folder / name for name in include]) for kernel in kernels(folder)]
    print(f"{folder}: {len(done)} kernels", file=sys.stderr, flush=True)
    return done


def record(results: Mapping[Path, Sequence[Tried]]) -> dict[str, Any]:
    """The table as a recording: a row per folder with its commit, and the number of kernels with each missing form."""
    rows = []
    for folder, tries in results.items():
        commit = (
            recording.git("-C", str(folder), "rev-parse", "HEAD")
            if (folder / ".git").exists()
            else ""
        )
        apart, gemms = Counter(kernel.apart for kernel in tries if kernel.apart), Counter[bool]()
        gemms.update(
            kernel.verdict.startswith("passed")
            for kernel in tries
            if kernel.verdict[:6] in ("passed", "failed")
        )
        row = {
            "repository": "/".join(folder.resolve().parts[-2:]),
            "commit": commit,
            "kernels": len(tries),
            "textures": apart["textures"],
            "device launches": apart["dynamic parallelism"],
            "left out": apart.total() - apart["textures"] - apart["dynamic parallelism"],
            "tried": len(tries) - apart.total(),
            "don't compile": sum(bool(kernel.error) for kernel in tries),
            "covered": sum(
                not (kernel.apart or kernel.error or kernel.missing) for kernel in tries
            ),
            "GEMMs": gemms.total(),
            "passed": gemms[True],
            "with findings": sum(bool(kernel.findings) for kernel in tries),
        }
        rows.append(row)
    missing = Counter(
        form for tries in results.values() for kernel in tries for form in kernel.missing
    )
    return recording.document("corpus", rows, missing=dict(missing.most_common(MOST_FORMS)))


SUFFIXES = (".cu", ".cuh", ".h", ".hpp")
GEMM = re.compile(r"gemm|mat(?:rix)?[\W_]*mul|mmul|\bmm_", re.IGNORECASE)
TYPE = re.compile(
    r"(?:const |unsigned )*(?:float[24]?|double|int[24]?|char|bool|half2?|__half2?|__nv_bfloat162?|true|false|-?\d+)"
)


@dataclass(frozen=True)
class PublicKernel:
    """path, text: of its file, which is below the folder. entry: with template arguments. host: text of the function
    that launches it, if that is in another file. unknown: whether no launch gives its template arguments. constants: of
    all files of the folder.
    """

    folder: Path
    path: Path
    entry: str
    text: str
    host: str = ""
    unknown: bool = False
    constants: Mapping[str, str] = field(default_factory=dict, repr=False)


def kernels(folder: Path) -> Iterator[PublicKernel]:
    """The kernels of a folder's files, in order."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    texts = {
        path.relative_to(folder): path.read_text(encoding="utf-8-sig", errors="replace")
        for path in files
    }
    units = {path: read(text) for path, text in texts.items()}
    constants: dict[str, str] = {}
    for unit in units.values():
        for constant, value in unit.constants.items():
            constants[constant] = value if constants.get(constant, value) == value else UNCLEAR
    constants = {name: value for name, value in constants.items() if value != UNCLEAR}
    for path, own in units.items():
        near = sorted(units, key=lambda other: (other != path, other.parent != path.parent))
        for name in own.kernels:
            declared = own.definition(name)
            launches = [
                (other, call)
                for other in near
                for calls in launches_of(units[other])
                for call in calls
                if f"::{name}".endswith(f"::{call.function}")
            ]
            instance = host = ""
            for other, launch in launches[:1]:
                bare = uncommented(texts[other])
                before = bare.splitlines(keepends=True)[: launch.line - 1]
                host = function_around(bare, len("".join(before))) if other != path else ""
            for other, launch in launches:
                names = units[other].names(launch)
                instance = instance or arguments(
                    reduced(part, names).strip("() ") for part in launch.template
                )
            # Types of elements are taken for floats (Kernel.from_source).
            elements = (
                {parameter.type for parameter in declared.parameters if parameter.pointer}
                if declared
                else set()
            )
            template = bool(declared and {*declared.template} - elements and not instance)
            yield PublicKernel(
                folder, path, name + instance, texts[path], host, template, constants
            )


def function_around(bare: str, place: int) -> str:
    """The function around a place, up to the end of the place's statement."""
    text = bare[bare.rfind("\n}", 0, place) + 1 : bare.find(";", place) + 1].removeprefix("}")
    text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)
    return text + "}" * (text.count("{") - text.count("}"))


def arguments(values: Iterator[str]) -> str:
    """Template arguments as C++ writes them; "" if there are none, or one isn't a type or a number."""
    listed = list(values)
    return f"<{', '.join(listed)}>" if listed and all(map(TYPE.fullmatch, listed)) else ""


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A CSV file with a line per kernel.",
)
def main(folders: Sequence[Path], out: Path | None) -> None:
    """Compile each kernel below FOLDERS, see whether the emulator covers it, and check the GEMMs among them."""
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(2) as pool:
        include: dict[Path, list[str]] = {folder: [] for folder in folders}
        for line in [] if folders else REPOSITORIES.read_text(encoding="utf-8").splitlines():
            repository, commit, *headers = line.split()
            include[recording.cloned(repository, commit, Path(temporary))] = headers
        results = dict(zip(include, pool.map(tries_of, include, include.values()), strict=True))
        document = record(results)
    if out is not None:
        pd.DataFrame(kernel for tries in results.values() for kernel in tries).to_csv(
            out, index=False
        )
    if not folders:
        documents.write_text(RECORDED, document)
    frame = pd.DataFrame(document["rows"]).drop(columns="commit").set_index("repository")
    frame.loc["all"] = frame.sum()
    print(document["label"], frame.to_string(), sep="\n")
    print(
        *(f"{number} kernels lack {form}" for form, number in document["missing"].items()), sep="\n"
    )


if __name__ == "__main__":
    main()
