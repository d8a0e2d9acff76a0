"""Which random changes of worklog's code no test notices: `python -m tests.record.mutants_of_code [--seed N]`.

Each mutant has one change outside the emulator and outside what only a GPU runs: another operator, constant or flag, or
a statement that is gone. All tests run once, without a change, which tells the tests that run a mutant's statement
(lines_run.py). These run first, cheapest first, then those of its room, as a test may use what an earlier one left in a
cache; all others only if the statement runs while modules are imported. equivalents.txt names, one a line, the mutants
that nothing can notice; those are not drawn. Exits with 1 if fewer than 85 % are noticed.
"""

import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
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
CHEAP_S = 20  # tests of a mutant that run before the others of them
FAILED = re.compile("^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
SECONDS = re.compile(r"^\s*([\d.]+)s (?:setup|call|teardown) +(.+)$", re.MULTILINE)
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A changed file. lines: of its statement, up to the change; code: the last one's text."""

    path: str
    lines: range
    change: str
    code: str
    text: str

    @property
    def name(self) -> str:
        """Stays when lines above the mutant come or go."""
        return f"{self.path}: {self.change}: {self.code}"


def places(source: str) -> Iterator[tuple[Any, ast.stmt, str, str]]:
    """Nodes that can change, in functions: each with its statement, what becomes of it in words, and as source."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    statements: dict[Any, ast.stmt] = {}
    for node in (node for function in functions for statement in function.body for node in ast.walk(statement)):
        if isinstance(node, ast.stmt):
            statements.update(dict.fromkeys(ast.walk(node), node))  # the innermost is the last
    for node, statement in statements.items():
        compares = isinstance(node, ast.Compare)  # of which the first operator changes
        operator = node.ops[0] if compares else node.op if isinstance(node, ast.BinOp | ast.BoolOp) else None
        if type(operator) in SWAPS:
            swapped, swap = copy.copy(node), SWAPS[type(operator)]()
            vars(swapped).update({"ops": [swap, *node.ops[1:]]} if compares else {"op": swap})
            yield node, statement, f"{type(operator).__name__} → {type(swap).__name__}", f"({ast.unparse(swapped)})"
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            other = not node.value if isinstance(node.value, bool) else node.value + 1
            yield node, statement, f"{node.value} → {other}", repr(other)
        elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(node, ast.AugAssign):
            yield node, statement, f"without {ast.unparse(node)[:60]}", "pass"


def changed(source: str, node: Any, new: str) -> str:
    """The source with other text for one node; every other line stays as it is."""
    lines = source.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    return (source.encode()[:start] + new.encode() + source.encode()[end:]).decode()


def draw(rng: random.Random, count: int) -> list[Mutant]:
    """Mutants of random places, without equivalents."""
    known = {line.partition("  # ")[0] for line in EQUIVALENTS.read_text(encoding="utf-8").splitlines()}
    files = [path for path in sorted((ROOT / "worklog").rglob("*.py")) if "emulator" not in path.parts]
    texts = {path: path.read_text(encoding="utf-8") for path in files if not path.stem.startswith("cuda")}
    every = [(path, *place) for path, text in texts.items() for place in places(text)]
    mutants: dict[str, Mutant] = {}
    for path, node, statement, change, new in rng.sample(every, len(every)):
        code, lines = texts[path].splitlines()[node.lineno - 1].strip(), range(statement.lineno, node.end_lineno + 1)
        text = changed(texts[path], node, new)
        mutant = Mutant(path.relative_to(ROOT).as_posix(), lines, change, code, text)
        if mutant.name not in known:
            mutants[mutant.name] = mutant
        if len(mutants) == count:
            break
    return list(mutants.values())


def tested(folder: Path, *words: str) -> tuple[list[str], str]:
    """Names of the tests that fail in a copy of the checkout, and what pytest prints. A test that hangs fails."""
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=no", "--timeout=120", *words)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    return FAILED.findall(printed) or ["the tests do not start"] * (done.returncode not in (0, 5)), printed


def failing(folder: Path, names: list[str]) -> str:
    """The first of these tests that fails, "" if none does."""
    Path(folder, "names").write_text("\n".join(names), encoding="utf-8")
    failed, printed = tested(folder, "-q", "-x", "@names")
    if "ERROR: not found:" in printed:  # a name has a value that the mutant changes
        failed, _ = tested(folder, "-q", "-x", *dict.fromkeys(name.partition("::")[0] for name in names))
    return failed[0] if failed else ""


class Tests:
    """Of a copy without a change: their seconds, those that fail, and the tests that run each line of mutants."""

    def __init__(self, folder: Path, mutants: list[Mutant], jobs: int) -> None:
        lines = defaultdict[str, set[int]](set)
        for mutant in mutants:
            lines[mutant.path].update(mutant.lines)
        noted = [Path(shutil.copy(Path(__file__).with_name("lines_run.py"), folder / "sitecustomize.py"))]
        noted += [folder / "lines.json", folder / "ran.jsonl"]
        noted[1].write_text(json.dumps({path: sorted(lines[path]) for path in lines}), encoding="utf-8")
        without = [f"--ignore=tests/{room}" for room in ("gpu", "browser")]
        self.failed, printed = tested(folder, f"-n{jobs}", "--durations=0", "-vv", "--timeout=300", *without)
        self.seconds = defaultdict[str, float](float)
        for seconds, name in SECONDS.findall(printed):
            self.seconds[name] += float(seconds)
        self.of_line = defaultdict[tuple[str, int], set[str]](set)
        for test, path, line in map(json.loads, noted[2].read_text(encoding="utf-8").splitlines()):
            self.of_line[path, line].add(test)
        for file in noted:
            file.unlink()

    def run_by(self, mutant: Mutant) -> set[str]:
        """Tests that run its statement."""
        return set[str]().union(*(self.of_line[mutant.path, line] for line in mutant.lines))

    def of(self, mutant: Mutant) -> list[list[str]]:
        """Names in the order in which they run: the cheap ones and the others that run it, its room's, all others."""
        cheapest = sorted(self.seconds.keys() - self.failed, key=lambda name: self.seconds[name])
        run = self.run_by(mutant)
        room = f"tests/{mutant.path.split('/')[1].removesuffix('.py')}/"
        parts: list[list[str]] = [[], [], [], []]
        spent = 0.0
        for name in cheapest:
            spent += (name in run) * self.seconds[name]
            part = int(spent > CHEAP_S) if name in run else 2 if name.startswith(room) else 3
            parts[part].append(name)
        return [part for part in parts[: 3 + ("" in run)] if part]


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
            folders.put(Path(shutil.copytree(ROOT, Path(temporary, str(number)), ignore=ignored)))
        folder = folders.get()
        tests = Tests(folder, mutants, jobs)
        folders.put(folder)
        without = "tests that fail in a copy without a change"
        print(f"seed {seed}: {count} mutants; {without}: {', '.join(tests.failed) or 'none'}", flush=True)

        def noticed(mutant: Mutant) -> str:
            """A test that fails with a mutant, "" if none does."""
            folder = folders.get()
            try:
                (folder / mutant.path).write_text(mutant.text, encoding="utf-8")
                return next(filter(None, (failing(folder, names) for names in tests.of(mutant))), "")
            finally:
                shutil.copy(ROOT / mutant.path, folder / mutant.path)
                folders.put(folder)

        for mutant, test in zip(mutants, pool.map(noticed, mutants), strict=True):
            missed += not test
            survives = f"NOT NOTICED by {len(tests.run_by(mutant))} tests that run it"
            print(f"{mutant.name} (line {mutant.lines[-1]}): {test or survives}", flush=True)
    print(f"{count - missed} of {count} noticed, {1 - missed / count:.0%} (seed {seed})")
    sys.exit(missed > (1 - LEAST_SHARE) * count)


if __name__ == "__main__":
    main()
