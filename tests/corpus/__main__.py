"""Try every kernel in folders of CUDA sources: `python -m tests.corpus FOLDER…`. Without a folder, the command clones
the public repositories of repositories.txt, each at its commit, and makes the recorded table anew.

A kernel is compiled for sm_90 and translated for the emulator. If its name and its parameters are those of a matrix
product, the gate checks it. The table has one line per folder; the forms that the emulator lacks are below it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd

from tests import surveys
from tests.corpus.sources import kernels
from tests.corpus.trial import Tried, tried
from worklog.runs import documents
from worklog.runs.tables import Table

KIND, MOST_FORMS = "corpus", 20
REPOSITORIES = Path(__file__).with_name("repositories.txt")
RECORDED = Path(__file__).parents[2] / "worklog" / "recordings" / "corpus" / "public_kernels.json"
GITHUB = "https://github.com/{owner}/{name}.git"
SOURCES = ("*.c", "*.cc", "*.cpp", "*.cu", "*.cuh", "*.h", "*.hh", "*.hpp", "*.inc", "*.inl")


def cloned(url: str, below: Path, listed: Path = REPOSITORIES) -> dict[Path, list[str]]:
    """The sources of the listed repositories at their commits, as clones owner/name below a folder, made where absent;
    and the folders of headers that the list names behind the commit. url: with {owner} and {name}.
    """
    below.mkdir(parents=True, exist_ok=True)
    out = {}
    for line in listed.read_text(encoding="utf-8").splitlines():
        name, commit, *include = line.split()
        owner, project = name.split("/")
        commands = [("-C", name, "sparse-checkout", "set", "--no-cone", *SOURCES)]
        commands += [("-C", name, "checkout", "--quiet", "--detach", commit)]
        if not (below / name).exists():
            partly = ("clone", "--quiet", "--no-checkout", "--filter=blob:none")
            commands.insert(0, (*partly, url.format(owner=owner, name=project), name))
        for command in commands:
            done = subprocess.run(("git", *command), cwd=below, capture_output=True, text=True, check=False)
            if done.returncode:
                raise click.ClickException(f"{name}, {commit}: {done.stderr.strip().splitlines()[-1]}")
        out[below / name] = include
    return out


def tries_of(folder: Path, include: Sequence[str], define: Sequence[str], only: str) -> list[Tried]:
    """What becomes of each kernel below a folder."""
    done = [tried(found, [folder / one for one in include], define) for found in kernels(folder, only)]
    print(f"{_name(folder)}: {len(done)} kernels", file=sys.stderr, flush=True)
    return done


def record(results: Mapping[Path, Sequence[Tried]]) -> dict[str, Any]:
    """The table as a document: a row per folder with its commit, and the number of kernels with each missing form."""
    missing = Counter(form for tries in results.values() for one in tries for form in one.missing)
    rows = [{"repository": _name(one), "commit": _commit(one), **_counts(results[one])} for one in results]
    return surveys.document(KIND, rows, missing=dict(missing.most_common(MOST_FORMS)))


def _name(folder: Path) -> str:
    """Owner and name, as in a clone at owner/name."""
    return "/".join(folder.resolve().parts[-2:])


def _commit(folder: Path) -> str:
    """The commit of a clone, "" for another folder."""
    command = ("git", "-C", str(folder), "rev-parse", "HEAD")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if (folder / ".git").exists() else ""


def _counts(tries: Sequence[Tried]) -> dict[str, int]:
    apart, checked = Counter(one.apart for one in tries if one.apart), [one for one in tries if one.checked]
    return {
        "kernels": len(tries),
        "textures": apart["textures"],
        "device launches": apart["dynamic parallelism"],
        "left out": apart.total() - apart["textures"] - apart["dynamic parallelism"],
        "tried": len(tries) - apart.total(),
        "don't compile": sum(bool(one.error) for one in tries),
        "covered": sum(one.covered for one in tries),
        "GEMMs": len(checked),
        "passed": sum(one.verdict.startswith("passed") for one in checked),
        "with findings": sum(bool(one.findings) for one in checked),
    }


def table(document: Mapping[str, Any]) -> Table:
    """A record with a line for all folders, and the share that is covered."""
    rows = [{key: value for key, value in row.items() if key != "commit"} for row in document["rows"]]
    total = pd.DataFrame(rows).sum(numeric_only=True).to_dict()
    lines = []
    for row in (*rows, {"repository": "all", **total}):
        share = f"{row['covered']} ({row['covered'] / max(row['tried'], 1):.0%})"
        counts = {key: str(value) for key, value in row.items() if key != "repository"}
        lines.append({"kernels of": row["repository"], **counts, "covered": share})
    lacking = ", ".join(f"{form} ({number})" for form, number in document["missing"].items())
    notes = [f"forms missing, by kernels that have them: {lacking}"] if lacking else []
    return Table.of(document["label"], lines, notes=notes)


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-I", "--include", multiple=True, metavar="DIR", help="A folder of headers, below each FOLDER.")
@click.option("-D", "--define", multiple=True, metavar="NAME=VALUE", help="A macro; repeat for more.")
@click.option("--only", default="", metavar="PATTERN", help="Only files whose path contains this regular expression.")
@surveys.OUT
@surveys.RECORD
@click.option("--url", default=GITHUB, show_default=True, help="Where the listed repositories are, without FOLDERS.")
@click.option("--clones", type=click.Path(path_type=Path), help="Where the clones stay; default: a temporary folder.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Processes.")
def main(folders: Sequence[Path], include: Sequence[str], url: str, clones: Path | None, **given: Any) -> None:
    """Compile each kernel below FOLDERS, see whether the emulator covers it, and check the GEMMs among them.

    Without FOLDERS, clone the public repositories of tests/corpus/repositories.txt, and record their table.
    """
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(given["jobs"]) as pool:
        listed = dict.fromkeys(folders, include) if folders else cloned(url, clones or Path(temporary))
        attempt = partial(tries_of, define=given["define"], only=given["only"])
        results = dict(zip(listed, pool.map(attempt, listed, listed.values()), strict=True))
        document = record(results)
    if given["out"] is not None:
        frames = {_name(folder): surveys.frame(tries) for folder, tries in results.items()}
        pd.concat(frames, names=["folder", None]).droplevel(1).to_csv(given["out"])
    if recorded := given["recorded"] or (None if folders else RECORDED):
        documents.write_text(recorded, document)
    print(table(document))


if __name__ == "__main__":
    main()
