"""Try every kernel in folders of CUDA sources: `python -m tests.record.corpus FOLDER…` (no GPU).

Without a folder, it clones the public repositories of repositories.txt, each at its commit, and
records the table that notebook 17 shows, in an hour. --clones names a folder with clones as
OWNER/NAME, which needs no network. With --only-products, it takes minutes.

A kernel is compiled for sm_90 and translated for the emulator. If its name and its parameters are
those of a matrix product, it is checked as `worklog check FILE` does it, and again with the options
that its message names.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import pandas as pd

from tests.record import recording
from worklog.cli.several import ADVISED, FAILED, LEFT_OUT, NOT_CHECKED, PASSED
from worklog.emulator import load
from worklog.emulator.core import enum
from worklog.emulator.core.decode import decoded
from worklog.emulator.program import program_of
from worklog.emulator.ptx import UnsupportedInstruction
from worklog.errors import BadSetting, CompileFailed, WorklogError
from worklog.kernel import Compiled, Kernel
from worklog.kernel.device import Program
from worklog.kernel.emulated import build
from worklog.kernel.host.calls import launches_in
from worklog.kernel.listing import kernels_in, own_kernels
from worklog.kernel.source import declare, nodes, reduced, split_list, text_of, uncommented
from worklog.kernel.trial import kernel_of
from worklog.kernel.unit import read
from worklog.runner.check import check
from worklog.runs.files import write_text

MOST_FORMS = 20
REPOSITORIES = Path(__file__).with_name("repositories.txt")
RECORDED = Path(__file__).parents[2] / "worklog" / "recordings" / "corpus" / "public_kernels.json"
MOST_S = 40  # CPU time of a check
MOST_MESSAGES = 2
# By verdict, the options of a message that are no examples, and that repair no bug.
FOLLOWED = {NOT_CHECKED: ("entry",), FAILED: ("args", "domain")}
OTHER_NUMBERS = re.compile(r"takes (?:\d+ pointers?|[^:]*[*&][^:]*): the gate passes")
# What the compiler misses for a kernel that is counted apart, or for another one in its file.
LEFT_OUT_BY = {
    "(?:there is|has) no kernel": "left out by #if",
    r'function "(?:tex|surf)[123C]\w*" matches': "textures",
    r'identifier "__(?:shfl|any|all|ballot)\w*" is undefined': "removed intrinsics",
    (
        r'device-side kernel launch|identifier "cuda(?:Graph|Device|Malloc)\w*" is '
        r"undefined"
    ): "dynamic parallelism",
    (
        r"open source file|is missing|identifier "
        r'"(?:GL[a-z]|(?:EGL|PFN|XM|cu[a-z]+|nvtx|nccl)[A-Z])'
    ): "no headers",
}
COMPILED: dict[Program, Compiled] = {}  # files, with all their kernels but templates


@dataclass(frozen=True)
class Checked:
    """The verdict on one matrix product."""

    verdict: str = ""  # one of several.MARKS; "" for a kernel without a product's name
    reason: str = ""
    options: tuple[tuple[str, str], ...] = ()  # that a message named, and that the verdict is with
    advice: tuple[tuple[str, str], ...] = ()  # options that its message names
    findings: tuple[str, ...] = ()  # kinds of the emulator's error findings


class TookLong(Exception):
    """A check takes longer than MOST_S."""


@dataclass(frozen=True)
class Tried:
    """What became of one kernel.

    apart: why it is not tried: textures, dynamic parallelism, intrinsics that CUDA has no longer,
        kernels that #if leaves out, templates whose arguments aren't known, and headers of
        libraries that are not installed
    error: why it does not compile
    missing: instruction forms that the emulator lacks
    product: the verdict on a matrix product
    """

    path: str
    entry: str
    apart: str = ""
    error: str = ""
    missing: tuple[str, ...] = ()
    product: Checked = Checked()

    @property
    def is_product(self) -> bool:
        """Whether its name and its parameters are those of a product of float matrices."""
        return self.product.verdict in (PASSED, FAILED, NOT_CHECKED)


def tried(public: PublicKernel, include: Sequence[Path], *, only_products: bool = False) -> Tried:
    """Compile a kernel and translate each of its blocks.

    And check it if its name is that of a matrix product.
    """
    done = Tried(str(public.path), public.entry)
    if not only_products:
        done = translated(public, include)
    if public.is_named_product and done.apart != "textures":
        done = replace(done, product=checked(public))
        print(done.product.verdict, public.folder / public.path, public.entry, file=sys.stderr)
    return done


def translated(public: PublicKernel, include: Sequence[Path]) -> Tried:
    """Compile a kernel and translate each of its blocks for the emulator."""
    name = str(public.path), public.entry
    if public.unknown:
        return Tried(*name, "unknown template arguments")
    try:
        compiled = built(public, tuple(include))
    except (BadSetting, CompileFailed) as error:
        why = next(
            (why for pattern, why in LEFT_OUT_BY.items() if re.search(pattern, str(error))), ""
        )
        return Tried(*name, why, "" if why else str(error).split("\n")[0])
    missing = forms_missing(compiled.ptx, compiled.symbol)
    if any(re.match(r"tex|tld4|su[lsr]|txq", form) for form in missing):
        return Tried(*name, "textures")
    return Tried(*name, missing=missing)


def built(public: PublicKernel, include: tuple[Path, ...]) -> Compiled:
    """Compile with -I and -D for what the compiler's message asks for and the folder has.

    Raises CompileFailed.
    """
    define: tuple[str, ...] = ()
    own = public.folder / public.path
    source = f"{public.text}\n{public.host}"
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
            return replace(known, symbol=symbol[1])
        try:
            COMPILED[file] = compiled = build(kernel.program)[0]
            return compiled
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
    """Return the instruction forms of a kernel that the emulator lacks.

    The first form of each block.
    """
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
    """Return the opcode of "line 3: fns.b32 (fns.b32 …): …", else the message."""
    text = re.sub(r"^(?:line|instruction) \d+: ", "", error.split("\n")[0])
    opcode = re.match(r"([a-z]\w*(?:(?:\.|::)\w+)+|[a-z]+) \(", text)
    return opcode[1] if opcode else re.sub(r"[%\w$]*\d[\w$]*", "#", text)


def checked(public: PublicKernel) -> Checked:
    """Return the verdict on a matrix product that a user gets.

    With the options that a first message names.
    """
    path = public.folder / public.path
    name = public.entry.partition("<")[0]
    entries = {kernel.name: kernel.why_no_product for kernel in own_kernels(kernels_in(path))}
    whys = [why for entry, why in entries.items() if entry.partition("<")[0] == name]
    if not whys or all(whys):
        return Checked(LEFT_OUT, whys[0] if whys else "no such kernel")
    if "half" in public.entry.partition("<")[2]:
        return Checked(LEFT_OUT, "launched for half")
    stated = {} if len(entries) == 1 else {"entry": name}
    if name not in entries and len(entries) > 1:
        launched = next(entry for entry in entries if entry.partition("<")[0] == name)
        stated = {"entry": public.entry if "<" in public.entry else launched}
    options: dict[str, str] = {}
    done = verdict_of(path, stated)
    for _ in range(MOST_MESSAGES):
        named = {
            name: value for name, value in done.advice if name in FOLLOWED.get(done.verdict, ())
        }
        if "entry" in named and "<" in public.entry:
            named["entry"] = public.entry  # the message's is an example
        if named.keys() <= options.keys():
            break
        options |= named
        done = verdict_of(path, {**stated, **options})
    if done.verdict == NOT_CHECKED and OTHER_NUMBERS.search(done.reason):
        return Checked(LEFT_OUT, done.reason)
    return replace(done, options=tuple(options.items()))


def verdict_of(path: Path, stated: Mapping[str, str]) -> Checked:
    """Return the verdict of one check of a kernel, with these options."""

    def stop(*_: object) -> None:
        raise TookLong(f"took longer than {MOST_S} s")

    # In CPU time, so that a verdict doesn't depend on what else runs.
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    try:
        done = check(kernel_of(str(path), stated), on="emulated", seed=0, quick=True)
    except (TookLong, WorklogError) as error:
        return Checked(NOT_CHECKED, str(error), advice=advice_in(str(error)))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    verdict = done.verdict
    kinds = dict.fromkeys(finding.kind for finding in done.findings if finding.is_error)
    text = "\n".join([*done.notes, *verdict.notes])
    reason = verdict.result
    if not verdict.accepted:
        of_instructions = done.compiled.mix.notes if done.compiled else ()
        causes = [note for note in done.notes if note not in of_instructions]
        reason = "; ".join([str(verdict.reason).split("\n")[0], *causes])
    result = PASSED if verdict.accepted else FAILED
    return Checked(result, reason, advice=advice_in(text), findings=tuple(kinds))


def advice_in(text: str) -> tuple[tuple[str, str], ...]:
    """Return the options that a message names, with their values."""
    return tuple((option, value.strip("'")) for option, value in ADVISED.findall(text))


def tries_of(
    kernels: Sequence[PublicKernel], include: Sequence[str], *, only_products: bool = False
) -> list[Tried]:
    """Return what becomes of each kernel of a file.

    include: folders of headers below the kernels' folder.
    """
    folders = [kernels[0].folder / name for name in include]
    return [tried(kernel, folders, only_products=only_products) for kernel in kernels]


def record(results: Mapping[Path, Sequence[Tried]]) -> dict[str, Any]:
    """Return the table as a recording: a row per folder with its commit.

    A row says how many kernels lack each form, and holds each matrix product with its verdict.
    """
    rows = [
        {**coverage_of(folder, tries), **verdicts_of(tries)} for folder, tries in results.items()
    ]
    missing = Counter(
        form for tries in results.values() for kernel in tries for form in kernel.missing
    )
    most = dict(missing.most_common(MOST_FORMS))
    return recording.document("corpus", rows, missing=most, products=products_of(results))


def record_products(results: Mapping[Path, Sequence[Tried]]) -> dict[str, Any]:
    """Return the recording with the verdicts of these matrix products.

    Its other counts stay, with their time.
    """
    before = json.loads(RECORDED.read_text(encoding="utf-8"))
    verdicts = {name_of(folder): verdicts_of(tries) for folder, tries in results.items()}
    rows = [{**row, **verdicts[row["repository"]]} for row in before["rows"]]
    others_of = before.get("others_utc", before["utc"])
    kept = {"others_utc": others_of, "missing": before["missing"]}
    return recording.document("corpus", rows, **kept, products=products_of(results))


def products_of(results: Mapping[Path, Sequence[Tried]]) -> list[dict[str, Any]]:
    """Return the verdict on each matrix product."""
    return [
        {
            "repository": name_of(folder),
            "file": kernel.path,
            "kernel": kernel.entry,
            "verdict": kernel.product.verdict,
            "options": dict(kernel.product.options),
            "reason": kernel.product.reason.split("\n")[0],
        }
        for folder, tries in results.items()
        for kernel in tries
        if kernel.is_product
    ]


def name_of(folder: Path) -> str:
    """Return OWNER/NAME of a clone."""
    return "/".join(folder.resolve().parts[-2:])


def coverage_of(folder: Path, tries: Sequence[Tried]) -> dict[str, Any]:
    """Return how many of a folder's kernels compile, and run on the emulator."""
    has_commit = (folder / ".git").exists()
    apart = Counter(kernel.apart for kernel in tries if kernel.apart)
    covered = [k for k in tries if not (k.apart or k.error or k.missing)]
    return {
        "repository": name_of(folder),
        "commit": recording.git("-C", str(folder), "rev-parse", "HEAD") if has_commit else "",
        "kernels": len(tries),
        "textures": apart["textures"],
        "device launches": apart["dynamic parallelism"],
        "left out": apart.total() - apart["textures"] - apart["dynamic parallelism"],
        "tried": len(tries) - apart.total(),
        "don't compile": sum(bool(kernel.error) for kernel in tries),
        "covered": len(covered),
    }


def verdicts_of(tries: Sequence[Tried]) -> dict[str, int]:
    """Return how many matrix products of a folder have each verdict."""
    products = [kernel.product for kernel in tries if kernel.is_product]
    verdicts = Counter(product.verdict for product in products)
    first = [p for p in products if p.verdict == PASSED and not p.options]
    return {
        "GEMMs": len(products),
        "passed": verdicts[PASSED],
        "passed without options": len(first),
        "failed": verdicts[FAILED],
        "no verdict": verdicts[NOT_CHECKED],
        "with findings": sum(bool(product.findings) for product in products),
    }


SUFFIXES = (".cu", ".cuh", ".h", ".hpp")
GEMM = re.compile(r"gemm|mat(?:rix)?[\W_]*mul|mmul|\bmm_", re.IGNORECASE)
TYPE = re.compile(
    r"(?:const |unsigned "
    r")*(?:float[24]?|double|int[24]?|char|bool|half2?|__half2?|__nv_bfloat162?|true|false|-?\d+)"
)


@dataclass(frozen=True)
class PublicKernel:
    """A kernel in a file below the folder.

    path, text: of its file
    entry: with template arguments
    host: text of the function that launches it, if that is in another file
    unknown: whether no launch gives its template arguments
    constants: of all files of the folder
    """

    folder: Path
    path: Path
    entry: str
    text: str
    host: str = ""
    unknown: bool = False
    constants: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_named_product(self) -> bool:
        """Whether its name or its file's is that of a matrix product."""
        return GEMM.search(f"{self.path.stem}/{self.entry}") is not None


def files_of(folder: Path) -> list[list[PublicKernel]]:
    """Return the kernels of each file in a folder."""
    return [[*file] for _, file in groupby(kernels(folder), lambda kernel: kernel.path)]


def kernels(folder: Path) -> Iterator[PublicKernel]:
    """Return the kernels of a folder's files, in order."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    texts = {
        path.relative_to(folder): path.read_text(encoding="utf-8-sig", errors="replace")
        for path in files
    }
    units = {path: read(text) for path, text in texts.items()}
    constants: dict[str, str] = {}
    for unit in units.values():
        for constant, value in unit.constants.items():
            constants[constant] = value if constants.get(constant, value) == value else ""
    constants = {name: value for name, value in constants.items() if value}
    launched = {path: launches_in(unit) for path, unit in units.items()}
    for path, own in units.items():
        near = sorted(units, key=lambda other: (other != path, other.parent != path.parent))
        for name in own.kernels:
            declared = own.definition(name)
            launches = [
                (other, call)
                for other in near
                for call in launched[other]
                if f"::{name}".endswith(f"::{call.name}")
            ]
            instance = host = ""
            for other, launch in launches[:1]:
                bare = uncommented(texts[other])
                before = bare.splitlines(keepends=True)[: launch.line - 1]
                host = function_around(bare, len("".join(before))) if other != path else ""
            for other, launch in launches:
                names = {**units[other].constants, **constants}
                for declaration in nodes(launch.function.body, "declaration"):
                    declare(declaration, names)
                _, _, given = text_of(launch.kernel).partition("<")
                instance = instance or arguments(
                    reduced(part, names).strip("() ")
                    for part in split_list(given.rpartition(">")[0])
                    if part
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
    """Return the function around a place, up to the end of the place's statement."""
    text = bare[bare.rfind("\n}", 0, place) + 1 : bare.find(";", place) + 1].removeprefix("}")
    text = re.sub(r"^[ \t]*#.*", "", text, flags=re.MULTILINE)
    return text + "}" * (text.count("{") - text.count("}"))


def arguments(values: Iterator[str]) -> str:
    """Template arguments as C++ writes them.

    "" if there are none, or one isn't a type or a number.
    """
    listed = list(values)
    return f"<{', '.join(listed)}>" if listed and all(map(TYPE.fullmatch, listed)) else ""


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--clones",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with clones of the repositories, as OWNER/NAME (default: clone them).",
)
@click.option(
    "--only-products",
    is_flag=True,
    help="Record the verdicts on matrix products anew, and keep the other counts.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A CSV file with a line per kernel.",
)
def main(
    folders: Sequence[Path], clones: Path | None, only_products: bool, out: Path | None
) -> None:
    """Compile each kernel below FOLDERS, and check the GEMMs among them.

    Reports whether the emulator covers each kernel.
    """
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(2) as pool:
        include: dict[Path, list[str]] = {folder: [] for folder in folders}
        for line in [] if folders else REPOSITORIES.read_text(encoding="utf-8").splitlines():
            repository, commit, *headers = line.split()
            below = clones or Path(temporary)
            include[recording.cloned(repository, commit, below)] = headers
        files = [file for found in pool.map(files_of, include) for file in found]
        if only_products:
            products = [[kernel for kernel in file if kernel.is_named_product] for file in files]
            files = [file for file in products if file]
        headers_of = [include[file[0].folder] for file in files]
        results: dict[Path, list[Tried]] = {folder: [] for folder in include}
        done = pool.map(partial(tries_of, only_products=only_products), files, headers_of)
        for file, tries in zip(files, done, strict=True):
            results[file[0].folder] += tries
    document = record_products(results) if only_products else record(results)
    if out is not None:
        pd.DataFrame(kernel for tries in results.values() for kernel in tries).to_csv(
            out, index=False
        )
    if not folders:
        write_text(RECORDED, document)
    frame = pd.DataFrame(document["rows"]).drop(columns="commit").set_index("repository")
    frame.loc["all"] = frame.sum()
    print(document["label"], frame.to_string(), sep="\n")
    for form, number in document["missing"].items():
        print(f"{number} kernels lack {form}")
    for product in document["products"]:
        if product["verdict"] != PASSED:
            print(*(product[name] for name in ("verdict", "file", "kernel", "reason")), sep=" | ")


if __name__ == "__main__":
    main()
