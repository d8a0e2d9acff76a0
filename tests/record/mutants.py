"""Put mutants of right kernels through the gate on the emulator: `python -m tests.record.mutants [KERNEL…]` (an hour).

A mutant is a kernel of the ladder, or a small right kernel of the tests, with one edit (edits.py). The table
counts what became of them: a row per kernel. A survivor passes the gate. It is wrong, and the gate has a hole, unless
explained.json, beside the recorded tables, says why its results are the original's.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zlib import crc32

import click

from tests.record import recording
from tests.record.edits import chosen, edits
from tests.record.mutant_trial import EQUAL, NOT_COMPILED, SURVIVED, TOO_SLOW, Outcome, kernels, tried
from worklog.runs import documents
from worklog.runs.table import Table

KIND = "mutants"
FOLDER = Path(__file__).parents[2] / "worklog" / "recordings" / KIND
EXPLAINED = "explained.json"


def record(outcomes: Sequence[Outcome], explained: Mapping[str, str]) -> dict[str, Any]:
    """The table as a document: a row per kernel with the number of mutants of each result, and each survivor."""
    results: dict[str, Counter[str]] = {}
    for mutant in outcomes:
        results.setdefault(mutant.kernel, Counter())[mutant.result] += 1
    return recording.document(
        KIND,
        [{"kernel": name, "mutants": of.total(), "results": dict(of.most_common())} for name, of in results.items()],
        kinds=dict(Counter(mutant.kind for mutant in outcomes).most_common()),
        survivors=[
            {"mutant": mutant.name, "found": mutant.detail, "explained": explained.get(mutant.name, "")}
            for mutant in outcomes
            if mutant.result == SURVIVED
        ],
    )


def table(document: Mapping[str, Any]) -> Table:
    """A row per kernel and one for all of them, a column per result."""
    every: Counter[str] = Counter()
    for row in document["rows"]:
        every.update(row["results"])
    ends = (NOT_COMPILED, EQUAL, TOO_SLOW, SURVIVED)
    columns = [NOT_COMPILED, EQUAL, *(name for name, _ in every.most_common() if name not in ends), TOO_SLOW, SURVIVED]
    total = {"kernel": "all", "mutants": sum(row["mutants"] for row in document["rows"]), "results": every}
    rows = [
        [row["kernel"], str(row["mutants"]), *(str(row["results"].get(name, 0)) for name in columns)]
        for row in (*document["rows"], total)
    ]
    unexplained = [survivor["mutant"] for survivor in document["survivors"] if not survivor["explained"]]
    notes = [f"not explained: {name}" for name in unexplained]
    return Table(document["label"], ["mutants of", "number", *columns], rows, notes=notes)


@click.command()
@click.argument("names", nargs=-1, metavar="[KERNEL]...")
@click.option("--count", default=24, show_default=True, help="Mutants of each kernel, at most.")
@click.option("--seed", default=0, show_default=True, help="Chooses the edits.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A CSV file with a line per mutant.")
def main(names: Sequence[str], count: int, seed: int, jobs: int, out: Path | None) -> None:
    """Check mutants of each KERNEL (default: of all, and record them). Exits with 1 for a survivor without a reason."""
    known = kernels()
    if unknown := sorted(set(names) - known.keys()):
        raise click.UsageError(f"there is no kernel {', '.join(unknown)}: choose from {', '.join(known)}")
    edits_of = {name: chosen(edits(known[name].source), count, seed + crc32(name.encode())) for name in names or known}
    wanted = [(name, edit) for name, chosen_edits in edits_of.items() for edit in chosen_edits]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        outcomes = list(pool.map(tried, *zip(*wanted, strict=True)))
    if out is not None:
        recording.write_csv(out, outcomes)
    document = record(outcomes, json.loads((FOLDER / EXPLAINED).read_text(encoding="utf-8")))
    if not names:
        (recorded,) = FOLDER.glob("2*.json")
        documents.write_text(recorded, document)
    print(table(document))
    sys.exit(any(not survivor["explained"] for survivor in document["survivors"]))


if __name__ == "__main__":
    main()
