"""Which random changes of worklog's code no test notices: `python -m tests.record.mutants_of_code [--seed N]`.

Each mutant has one change outside the emulator and outside what only a GPU runs: another operator, constant or flag, or
a statement that is gone. The tests of its room run first, then all others, until one fails. 80 mutants take
about an hour on 2 cores, in copies of the checkout. equivalents.txt names, one a line, the mutants that nothing can
notice; those are not drawn. Exits with 1 if fewer than 85 % are noticed.
"""

import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import click

ROOT = Path(__file__).parents[2]
EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
LEAST_SHARE = 0.85
FAILED = re.compile("FAILED |ERROR ")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A changed file. line: of the statement that changes."""

    path: str
    line: int
    change: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def places(source: str) -> Iterator[tuple[Any, str, str]]:
    """Nodes that can change, in functions: each with what becomes of it in words, and as source."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for node in (node for function in functions for statement in function.body for node in ast.walk(statement)):
        compares = isinstance(node, ast.Compare)  # of which the first operator changes
        operator = node.ops[0] if compares else node.op if isinstance(node, ast.BinOp | ast.BoolOp) else None
        if type(operator) in SWAPS:
            swapped, swap = copy.copy(node), SWAPS[type(operator)]()
            vars(swapped).update({"ops": [swap, *node.ops[1:]]} if compares else {"op": swap})
            yield node, f"{type(operator).__name__} → {type(swap).__name__}", f"({ast.unparse(swapped)})"
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            other = not node.value if isinstance(node.value, bool) else node.value + 1
            yield node, f"{node.value} → {other}", repr(other)
        elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(node, ast.AugAssign):
            yield node, f"without {ast.unparse(node)[:60]}", "pass"


def changed(source: str, node: Any, new: str) -> str:
    """The source with other text for one node; every other line stays as it is."""
    lines = source.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    return (source.encode()[:start] + new.encode() + source.encode()[end:]).decode()


def draw(rng: random.Random, count: int) -> list[Mutant]:
    """Mutants of random places, without equivalents."""
    known = {line.partition("  #")[0] for line in EQUIVALENTS.read_text(encoding="utf-8").splitlines()}
    files = [path for path in sorted((ROOT / "worklog").rglob("*.py")) if "emulator" not in path.parts]
    texts = {path: path.read_text(encoding="utf-8") for path in files if not path.stem.startswith("cuda")}
    every = [(path, *place) for path, text in texts.items() for place in places(text)]
    mutants: dict[str, Mutant] = {}
    for path, node, change, new in rng.sample(every, len(every)):
        mutant = Mutant(path.relative_to(ROOT).as_posix(), node.lineno, change, changed(texts[path], node, new))
        if str(mutant) not in known:
            mutants[str(mutant)] = mutant
        if len(mutants) == count:
            break
    return list(mutants.values())


def in_order(path: str) -> list[list[str]]:
    """Test files that run without a GPU and a browser: those of the module's room, and all others."""
    paths = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if not {"gpu", "browser"} & {*path.parts}]
    files, room = [path.relative_to(ROOT).as_posix() for path in paths], path.split("/")[1].removesuffix(".py")
    own = [file for file in files if file.startswith(f"tests/{room}/")]
    return [own, [file for file in files if file not in own]]


def failing(folder: Path, *words: str) -> list[str]:
    """Names of the tests that fail in a copy of the checkout. A test that hangs fails."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "--timeout=120", *words)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    failed = [line.split(" - ")[0].split(" ", 1)[1] for line in done.stdout.splitlines() if FAILED.match(line)]
    return failed or ["the tests do not start"] * (done.returncode not in (0, 5))


@click.command()
@click.option("--seed", type=int, default=lambda: random.randrange(10**6), help="Of the choice; default: a new one.")
@click.option("--count", default=80, show_default=True)
@click.option("--jobs", default=2, show_default=True)
def main(seed: int, count: int, jobs: int) -> None:
    """Change the code in COUNT places, one at a time, and print the changes that no test notices."""
    mutants, missed = draw(random.Random(seed), count), 0
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        folders: Queue[Path] = Queue()
        for number in range(jobs):
            ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "dist")
            folder = Path(shutil.copytree(ROOT, Path(temporary, str(number)), ignore=ignored))
            folders.put(folder)
        broken = failing(folder, f"-n{jobs}", *in_order("worklog/")[1])
        without = "tests that fail in a copy without a change"
        print(f"seed {seed}: {count} mutants; {without}: {', '.join(broken) or 'none'}", flush=True)

        def noticed(mutant: Mutant) -> str:
            """A test that fails with a mutant, "" if none does."""
            folder = folders.get()
            try:
                (folder / mutant.path).write_text(mutant.text, encoding="utf-8")
                for files in filter(None, in_order(mutant.path)):
                    if failed := failing(folder, "-x", *(f"--deselect={name}" for name in broken), *files):
                        return failed[0]
                return ""
            finally:
                shutil.copy(ROOT / mutant.path, folder / mutant.path)
                folders.put(folder)

        for mutant, test in zip(mutants, pool.map(noticed, mutants), strict=True):
            missed += not test
            print(f"{mutant}: {test or 'NOT NOTICED'}", flush=True)
    print(f"{count - missed} of {count} noticed, {1 - missed / count:.0%} (seed {seed})")
    sys.exit(missed > (1 - LEAST_SHARE) * count)


if __name__ == "__main__":
    main()
