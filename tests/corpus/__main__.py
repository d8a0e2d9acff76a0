"""Try every kernel in folders of CUDA sources, such as clones of public repositories: `python -m tests.corpus FOLDER…`.

A kernel is compiled for sm_90 and translated for the emulator. If its name and its parameters are those of a matrix
product, the gate checks it. The table has one line per folder; the forms that the emulator lacks are below it.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tests.corpus.sources import kernels
from tests.corpus.trial import Tried, tried
from worklog.emulator.device import ARCH, label
from worklog.kernel.nvrtc import nvrtc_version
from worklog.runs import documents
from worklog.runs.tables import Table

KIND, SCHEMA, MOST_FORMS = "corpus", 1, 20


def record(results: Mapping[Path, Sequence[Tried]]) -> dict[str, Any]:
    """The table as a document: a row per folder with its commit, and the number of kernels with each missing form."""
    missing = Counter(form for tries in results.values() for one in tries for form in one.missing)
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "label": f"{label(ARCH, '')} · NVRTC {'.'.join(map(str, nvrtc_version()))}",
        "rows": [{"repository": _name(one), "commit": _commit(one), **_counts(results[one])} for one in results],
        "missing": dict(missing.most_common(MOST_FORMS)),
    }


def _name(folder: Path) -> str:
    """Owner and name, as in a clone at owner/name."""
    return "/".join(folder.resolve().parts[-2:])


def _commit(folder: Path) -> str:
    """The commit of a clone, "" for another folder."""
    command = ("git", "-C", str(folder), "rev-parse", "HEAD")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if (folder / ".git").exists() else ""


def _counts(tries: Sequence[Tried]) -> dict[str, int]:
    apart, checked = [one.apart for one in tries if one.apart], [one for one in tries if one.checked]
    return {
        "kernels": len(tries),
        "textures": apart.count("textures"),
        "device launches": apart.count("dynamic parallelism"),
        "left out": sum(one not in ("textures", "dynamic parallelism") for one in apart),
        "tried": len(tries) - len(apart),
        "don't compile": sum(bool(one.error) for one in tries),
        "covered": sum(one.covered for one in tries),
        "GEMMs": len(checked),
        "passed": sum(one.verdict.startswith("passed") for one in checked),
        "with findings": sum(bool(one.findings) for one in checked),
    }


def table(document: Mapping[str, Any]) -> Table:
    """A record with a line for all folders, and the share that is covered."""
    numbers = [{name: value for name, value in row.items() if isinstance(value, int)} for row in document["rows"]]
    total = {name: sum(row[name] for row in numbers) for name in numbers[0]}
    rows = []
    for name, row in (*zip((one["repository"] for one in document["rows"]), numbers, strict=True), ("all", total)):
        share = f"{row['covered']} ({row['covered'] / max(row['tried'], 1):.0%})"
        rows.append({"kernels of": name, **{key: str(value) for key, value in row.items()}, "covered": share})
    lacking = ", ".join(f"{form} ({number})" for form, number in document["missing"].items())
    notes = [f"forms missing, by kernels that have them: {lacking}"] if lacking else []
    return Table(document["label"], [*rows[0]], [[*row.values()] for row in rows], notes=notes)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-I", "--include", multiple=True, metavar="DIR", help="A folder of headers, below each FOLDER.")
@click.option("-D", "--define", multiple=True, metavar="NAME=VALUE", help="A macro; repeat for more.")
@click.option("--only", default="", metavar="PATTERN", help="Only files whose path contains this regular expression.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A CSV file with a line per kernel.")
@click.option("--record", "recorded", type=click.Path(dir_okay=False, path_type=Path), help="The table as JSON.")
def main(
    folders: Sequence[Path],
    include: Sequence[str],
    define: Sequence[str],
    only: str,
    out: Path | None,
    recorded: Path | None,
) -> None:
    """Compile each kernel below FOLDERs, see whether the emulator covers it, and check the GEMMs among them."""
    results: dict[Path, list[Tried]] = {}
    for folder in folders:
        done = results.setdefault(folder, [])
        for found in kernels(folder, only):
            done.append(tried(found, [folder / one for one in include], define))
            print(f"\r{_name(folder)}: {len(done)} kernels", end="", file=sys.stderr)
        print(file=sys.stderr)
    document = record(results)
    if out is not None:
        with out.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(("folder", *(field.name for field in fields(Tried))))
            for folder, tries in results.items():
                for one in tries:
                    words = (" ".join(v) if isinstance(v, tuple) else v for v in vars(one).values())
                    lines.writerow((_name(folder), *words))
    if recorded is not None:
        documents.write_text(recorded, document)
    print(table(document))


if __name__ == "__main__":
    main()
