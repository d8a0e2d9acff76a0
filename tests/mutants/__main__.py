"""Put mutants of right kernels through the gate on the emulator: `python -m tests.mutants [KERNEL…]`.

A mutant is a kernel of the ladder, or a small right kernel of the tests, with one edit (tests.mutants.edits). The table
counts what became of them: a row per kernel. A survivor passes the gate. It is wrong, and the gate has a hole, unless
explained.json, beside the recorded tables, says why its results are the original's.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zlib import crc32

import click
import pandas as pd

from tests import surveys
from tests.mutants.edits import Edit, chosen, edits
from tests.mutants.trial import EQUAL, NOT_COMPILED, SURVIVED, TOO_SLOW, Outcome, kernels, tried
from worklog.runs import documents
from worklog.runs.tables import Table

KIND = "mutants"
FOLDER = Path(__file__).parents[2] / "worklog" / "recordings" / KIND
EXPLAINED = "explained.json"


def record(outcomes: Sequence[Outcome], explained: Mapping[str, str]) -> dict[str, Any]:
    """The table as a document: a row per kernel with the number of mutants of each result, and each survivor."""
    names = sorted({one.kernel for one in outcomes}, key=[*kernels()].index)
    results = {name: Counter(one.result for one in outcomes if one.kernel == name) for name in names}
    return surveys.document(
        KIND,
        [{"kernel": name, "mutants": of.total(), "results": dict(of.most_common())} for name, of in results.items()],
        kinds=dict(Counter(one.kind for one in outcomes).most_common()),
        survivors=[
            {"mutant": one.name, "found": one.detail, "explained": explained.get(one.name, "")}
            for one in outcomes
            if one.result == SURVIVED
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
    unexplained = [one["mutant"] for one in document["survivors"] if not one["explained"]]
    notes = [f"not explained: {name}" for name in unexplained]
    return Table(document["label"], ["mutants of", "number", *columns], rows, notes=notes)


def _all(wanted: Sequence[tuple[str, Edit]], limit_s: float, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from (tried(name, edit, limit_s) for name, edit in wanted)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(tried, name, edit, limit_s) for name, edit in wanted]):
            yield done.result()


@click.command()
@click.argument("names", nargs=-1, metavar="[KERNEL]...")
@click.option("--each", default=24, show_default=True, help="Mutants of each kernel, at most.")
@click.option("--seed", default=0, show_default=True, help="Chooses the edits.")
@click.option("--kind", "kinds", multiple=True, help="Edits of this kind only; repeat for more.")
@click.option("--limit", default=120.0, show_default=True, help="Seconds for one mutant.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option(
    "--keep", type=click.Path(exists=True, path_type=Path), help="--out of an earlier run: its other kernels."
)
@surveys.OUT
@surveys.RECORD
def main(names: Sequence[str], each: int, seed: int, kinds: Sequence[str], keep: Path | None, **given: Any) -> None:
    """Check mutants of each KERNEL (default: of all). Exits with 1 where one survives that isn't explained."""
    known, out = kernels(), given["out"]
    if unknown := sorted(set(names) - known.keys()):
        raise click.UsageError(f"there is no kernel {', '.join(unknown)}: choose from {', '.join(known)}")
    wanted: list[tuple[str, Edit]] = []
    for name in names or known:
        every = [one for one in edits(known[name].source) if not kinds or one.kind in kinds]
        wanted += [(name, one) for one in chosen(every, each, seed + crc32(name.encode()))]
    outcomes: list[Outcome] = []
    for done in _all(wanted, given["limit"], given["jobs"]):
        outcomes.append(done)
        print(f"\r{len(outcomes)} of {len(wanted)} mutants", end="", file=sys.stderr)
        if out is not None:  # at once, so that they are kept if the command is stopped
            first = len(outcomes) == 1
            surveys.frame([done]).to_csv(out, index=False, mode="w" if first else "a", header=first)
    print(file=sys.stderr)
    if keep is not None:
        rows = pd.read_csv(keep, dtype=str, keep_default_na=False).astype({"seconds": float}).to_dict("records")
        fresh = {one.kernel for one in outcomes}
        outcomes += [Outcome(**row) for row in rows if row["kernel"] not in fresh]
    path = FOLDER / EXPLAINED
    document = record(outcomes, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})
    if given["recorded"] is not None:
        documents.write_text(given["recorded"], document)
    print(table(document))
    sys.exit(any(not one["explained"] for one in document["survivors"]))


if __name__ == "__main__":
    main()
