"""Try every kernel in folders of CUDA sources: `python -m tests.corpus FOLDER…` prints a table."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import click

from tests.corpus.sources import kernels
from tests.corpus.trial import Tried, tried
from worklog.runs.tables import Table


def summary(results: Mapping[str, Sequence[Tried]]) -> Table:
    """One line per folder and one for all."""
    rows = [_row(name, list(tries)) for name, tries in results.items()]
    if len(rows) > 1:
        rows.append(_row("all", [one for tries in results.values() for one in tries]))
    missing = Counter(form for tries in results.values() for one in tries for form in one.missing)
    lacking = ", ".join(f"{form} ({number})" for form, number in missing.most_common(20))
    notes = [f"forms missing, by kernels that have them: {lacking}"] if missing else []
    return Table.of("", rows) if not notes else Table("", [*rows[0]], [[*row.values()] for row in rows], notes=notes)


def _row(name: str, tries: Sequence[Tried]) -> dict[str, str]:
    counted = [one for one in tries if one.counted]
    covered, checked = sum(one.covered for one in counted), [one for one in tries if one.checked]
    share = f"{covered} ({100 * covered / len(counted):.0f} %)" if counted else "0"
    return {
        "kernels of": name,
        "tried": str(len(tries)),
        "textures": str(sum(one.apart == "textures" for one in tries)),
        "device launches": str(sum(one.apart == "dynamic parallelism" for one in tries)),
        "not for sm_90": str(sum(one.apart in ("removed intrinsics", "left out by #if") for one in tries)),
        "don't compile": str(sum(bool(one.error) for one in tries)),
        "compile": str(len(counted)),
        "covered": share,
        "GEMM checked": str(len(checked)),
        "right": str(sum(one.verdict.startswith("passed") for one in checked)),
        "with findings": str(sum(bool(one.findings) for one in checked)),
    }


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-I", "--include", multiple=True, metavar="DIR", help="A folder of headers, below each FOLDER.")
@click.option("-D", "--define", multiple=True, metavar="NAME=VALUE", help="A macro; repeat for more.")
@click.option("--only", default="", metavar="PATTERN", help="Only files whose path contains this regular expression.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A CSV file with a line per kernel.")
def main(folders: Sequence[Path], include: Sequence[str], define: Sequence[str], only: str, out: Path | None) -> None:
    """Compile each kernel below FOLDERs, see whether the emulator covers it, and check the GEMMs among them."""
    results: dict[str, list[Tried]] = {}
    for folder in folders:
        done = results.setdefault(folder.name, [])
        for found in kernels(folder, only):
            done.append(tried(found, [folder / one for one in include], define))
            print(f"\r{folder.name}: {len(done)} kernels", end="", file=sys.stderr)
        print(file=sys.stderr)
    if out is not None:
        with out.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(("folder", *(field.name for field in fields(Tried))))
            for name, tries in results.items():
                for one in tries:
                    table.writerow((name, *(" ".join(v) if isinstance(v, tuple) else v for v in vars(one).values())))
    print(summary(results))


if __name__ == "__main__":
    main()
