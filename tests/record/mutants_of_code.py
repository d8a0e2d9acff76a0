"""Which random changes of worklog's code no test notices: `python -m tests.record.mutants_of_code [--seed N]`.

Each mutant has one change outside the emulator and outside what only a GPU runs: another operator, constant or flag, or
a statement that is gone. All tests run once on code that notes where mutants would run (mutants_run.py). Tests that run
a mutant's place come first, cheapest first, then those of the same files and of its room, which may use what an earlier
one made; all others only if the place runs while modules are imported. Mutants in equivalents.txt, which nothing can
notice, are not drawn. Exits with 1 if fewer than 85 % are noticed.
"""

import ast
import copy
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import click

from tests.record.mutants_fork import ROOT, Copy, copied, testing

EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
LEAST_SHARE = 0.85
FAILED = re.compile("^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
SECONDS = re.compile(r"^\s*([\d.]+)s (?:setup|call|teardown) +(.+)$", re.MULTILINE)
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A changed file. node: what changes. name: without its line, as lines above it come and go."""

    path: str
    node: Any
    name: str
    text: str


def places(source: str) -> Iterator[tuple[Any, str, str]]:
    """Nodes that can change, in functions: each with what becomes of it in words, and as source."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    # zip(strict=True) asserts: without it, nothing changes until there is another mistake.
    asserted = {
        word.value
        for word in ast.walk(tree)
        if isinstance(word, ast.keyword) and word.arg == "strict"
    }
    for node in (
        node
        for function in functions
        for statement in function.body
        for node in ast.walk(statement)
    ):
        compares = isinstance(node, ast.Compare)  # of which the first operator changes
        operator = (
            node.ops[0]
            if compares
            else node.op
            if isinstance(node, ast.BinOp | ast.BoolOp)
            else None
        )
        if type(operator) in SWAPS:
            swapped, swap = copy.copy(node), SWAPS[type(operator)]()
            vars(swapped).update({"ops": [swap, *node.ops[1:]]} if compares else {"op": swap})
            yield (
                node,
                f"{type(operator).__name__} → {type(swap).__name__}",
                f"({ast.unparse(swapped)})",
            )
        elif (
            isinstance(node, ast.Constant)
            and type(node.value) in (bool, int, float)
            and node not in asserted
        ):
            other = not node.value if isinstance(node.value, bool) else node.value + 1
            yield node, f"{node.value} → {other}", repr(other)
        elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(
            node, ast.AugAssign
        ):
            yield node, f"without {ast.unparse(node)[:60]}", "pass"


def span(source: str, node: Any) -> tuple[int, int]:
    """The bytes of a node."""
    lines = source.encode().splitlines(keepends=True)
    before, until = (
        sum(map(len, lines[: number - 1])) for number in (node.lineno, node.end_lineno)
    )
    return before + node.col_offset, until + node.end_col_offset


def changed(source: str, node: Any, new: str) -> str:
    """The source with other text for one node; every other line stays as it is."""
    start, end = span(source, node)
    return (source.encode()[:start] + new.encode() + source.encode()[end:]).decode()


def noting(source: str, nodes: dict[int, Any]) -> str:
    """The source with a call of mutant_runs() where each of these nodes runs; every line stays where it is."""
    pieces: list[
        tuple[int, int, int, str]
    ] = []  # the offset; then those that end before those that begin, inner first
    for number, node in nodes.items():
        start, end = span(source, node)
        of_statement = isinstance(node, ast.stmt)
        pieces.append(
            (
                start,
                1,
                -end,
                f"mutant_runs({number}); " if of_statement else f"(mutant_runs({number}), ",
            )
        )
        pieces.append((end, 0, -start, "" if of_statement else ")[1]"))
    text = source.encode()
    for offset, _, _, piece in sorted(pieces, reverse=True):
        text = text[:offset] + piece.encode() + text[offset:]
    return text.decode()


def draw(rng: random.Random, count: int) -> list[Mutant]:
    """Mutants of random places, without equivalents."""
    known = {
        line.rpartition("  # ")[0] for line in EQUIVALENTS.read_text(encoding="utf-8").splitlines()
    }
    ours = {*(ROOT / "worklog").rglob("*.py")} - {
        ROOT / "worklog/gpu" / name for name in ("cuda.py", "timeline.py")
    }
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(ours)
        if "emulator" not in path.parts
    }
    every = [(path, *place) for path, text in texts.items() for place in places(text)]
    mutants: dict[str, Mutant] = {}
    for path, node, change, new in rng.sample(every, len(every)):
        name = f"{path.relative_to(ROOT)}: {change}: {texts[path].splitlines()[node.lineno - 1].strip()}"
        if name not in known:
            text = changed(texts[path], node, new)
            mutants[name] = Mutant(path.relative_to(ROOT).as_posix(), node, name, text)
        if len(mutants) == count:
            break
    return list(mutants.values())


class Tests:
    """Of code without a change: their seconds, those that fail, and by a mutant's name those that run its place."""

    def __init__(self, folder: Path, mutants: list[Mutant], jobs: int) -> None:
        shutil.copy(Path(__file__).with_name("mutants_run.py"), folder / "sitecustomize.py")
        for path in {mutant.path for mutant in mutants} - {
            "worklog/kernel/nvrtc_process.py"
        }:  # no sitecustomize
            nodes = {
                number: mutant.node for number, mutant in enumerate(mutants) if mutant.path == path
            }
            (folder / path).write_text(
                noting((ROOT / path).read_text(encoding="utf-8"), nodes), encoding="utf-8"
            )
        words = f"-n{jobs}", "--dist=worksteal", "--durations=0", "-vv"
        printed, _ = testing(folder, *words, stdout=subprocess.PIPE).communicate()
        self.failed = FAILED.findall(printed)
        self.seconds = defaultdict[str, float](float)
        for seconds, name in SECONDS.findall(printed):
            self.seconds[name] += float(seconds)
        if not self.seconds:
            sys.exit(f"no test ran without a change: {printed[-2000:]}")
        self.run = defaultdict[str, set[str]](set)
        for test, number in map(
            json.loads, (folder / "ran.jsonl").read_text(encoding="utf-8").splitlines()
        ):
            self.run[mutants[number].name].add(test)

    def of(self, mutant: Mutant) -> list[str]:
        """Names in the order in which they run: those that run its place, cheapest first, others of their files, which
        share fixtures, and its room's, all others.
        """
        near = {name.partition("::")[0] for name in self.run[mutant.name]} - {""}
        near.add(f"tests/{mutant.path.split('/')[1].removesuffix('.py')}/")
        parts = [list[str]() for _ in range(3)]
        for name in sorted(self.seconds.keys() - self.failed, key=lambda name: self.seconds[name]):
            parts[
                0 if name in self.run[mutant.name] else 1 if name.startswith((*near,)) else 2
            ].append(name)
        return [*parts[0], *parts[1], *(parts[2] if self.imported(mutant) else [])]

    def imported(self, mutant: Mutant) -> bool:
        """Whether its place runs while modules are imported."""
        return "" in self.run[mutant.name]


@click.command()
@click.option(
    "--seed",
    type=int,
    default=lambda: random.randrange(10**6),
    help="Of the choice; default: a new one.",
)
@click.option("--count", default=80, show_default=True)
@click.option("--jobs", default=2, show_default=True)
def main(seed: int, count: int, jobs: int) -> None:
    """Change the code in COUNT places, one at a time, and print the changes that no test notices."""
    mutants, missed = draw(random.Random(seed), count), 0
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        tests, copies = Tests(copied(Path(temporary, "noting")), mutants, jobs), Queue[Copy]()
        for number in range(jobs):
            copies.put(copy_ := Copy(Path(temporary, str(number))))
        first, passing = (
            mutants[0],
            min(tests.seconds.keys() - tests.failed, key=lambda name: tests.seconds[name]),
        )
        if answer := copy_.failing(
            first.path, (ROOT / first.path).read_text(encoding="utf-8"), [passing], False
        ):
            sys.exit(f"{passing} fails without a change: {answer}")
        print(
            f"seed {seed}: {count} mutants; failing without one: {', '.join(tests.failed) or 'no test'}",
            flush=True,
        )

        def noticed(mutant: Mutant) -> str:
            """A test that fails with a mutant, "" if none does."""
            copy_ = copies.get()
            try:
                return copy_.failing(
                    mutant.path, mutant.text, tests.of(mutant), tests.imported(mutant)
                )
            finally:
                copies.put(copy_)

        judged = {pool.submit(noticed, mutant): mutant for mutant in mutants}
        for future in as_completed(judged):
            mutant, test = judged[future], future.result()
            missed += not test
            survives = f"NOT NOTICED by {len(tests.run[mutant.name])} tests that run line {mutant.node.lineno}"
            print(f"{mutant.name}: {test or survives}", flush=True)
        for _ in range(jobs):
            copies.get().stop()
    print(f"{count - missed} of {count} noticed, {1 - missed / count:.0%} (seed {seed})")
    sys.exit(missed > (1 - LEAST_SHARE) * count)


if __name__ == "__main__":
    main()
