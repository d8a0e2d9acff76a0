"""Try every kernel in folders of CUDA sources: `python -m tests.record.corpus FOLDER…` (no GPU).

Without a folder, it clones the public repositories of repositories.txt, each at its commit, and records the table of
them, in an hour. A kernel is compiled for sm_90 and translated for the emulator. If its name and its parameters are
those of a matrix product, the gate checks it. The table has one line per folder; the forms that the emulator lacks are
below it.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click

from tests.record import recording
from tests.record.corpus_trial import Tried, tried
from tests.record.public_kernels import kernels
from worklog.runs import documents
from worklog.runs.table import Table

MOST_FORMS = 20
REPOSITORIES = Path(__file__).with_name("repositories.txt")
RECORDED = Path(__file__).parents[2] / "worklog" / "recordings" / "corpus" / "public_kernels.json"


def tries_of(folder: Path, include: Sequence[str]) -> list[Tried]:
    """What becomes of each kernel below a folder. include: folders of headers in it."""
    done = [tried(kernel, [folder / name for name in include]) for kernel in kernels(folder)]
    print(f"{folder}: {len(done)} kernels", file=sys.stderr, flush=True)
    return done


def record(results: Mapping[Path, Sequence[Tried]]) -> dict[str, Any]:
    """The table as a recording: a row per folder with its commit, and the number of kernels with each missing form."""
    missing = Counter(form for tries in results.values() for kernel in tries for form in kernel.missing)
    rows = []
    for folder, tries in results.items():
        commit = recording.git("-C", str(folder), "rev-parse", "HEAD") if (folder / ".git").exists() else ""
        name = "/".join(folder.resolve().parts[-2:])
        rows.append({"repository": name, "commit": commit, **counts(tries)})
    return recording.document("corpus", rows, missing=dict(missing.most_common(MOST_FORMS)))


def counts(tries: Sequence[Tried]) -> dict[str, int]:
    """Kernels by what became of them."""
    apart = Counter(kernel.apart for kernel in tries if kernel.apart)
    checked = [kernel for kernel in tries if kernel.checked]
    return {
        "kernels": len(tries),
        "textures": apart["textures"],
        "device launches": apart["dynamic parallelism"],
        "left out": apart.total() - apart["textures"] - apart["dynamic parallelism"],
        "tried": len(tries) - apart.total(),
        "don't compile": sum(bool(kernel.error) for kernel in tries),
        "covered": sum(kernel.covered for kernel in tries),
        "GEMMs": len(checked),
        "passed": sum(kernel.verdict.startswith("passed") for kernel in checked),
        "with findings": sum(bool(kernel.findings) for kernel in checked),
    }


def table(document: Mapping[str, Any]) -> Table:
    """A recording with a line for all folders, and the share that is covered."""
    total: Counter[str] = Counter()
    for row in document["rows"]:
        total.update({name: count for name, count in row.items() if name not in ("repository", "commit")})
    lines = []
    for row in (*document["rows"], {"repository": "all", **total}):
        share = f"{row['covered']} ({row['covered'] / max(row['tried'], 1):.0%})"
        lines.append({"kernels of": row["repository"], **{name: str(row[name]) for name in total}, "covered": share})
    lacking = ", ".join(f"{form} ({number})" for form, number in document["missing"].items())
    notes = [f"forms missing, by kernels that have them: {lacking}"] if lacking else []
    return Table.of(document["label"], lines, notes=notes)


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A CSV file with a line per kernel.")
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
        recording.write_csv(out, [kernel for tries in results.values() for kernel in tries])
    if not folders:
        documents.write_text(RECORDED, document)
    print(table(document))


if __name__ == "__main__":
    main()
