"""Which random changes of worklog's code no test notices.

`python -m tests.record.mutants_of_code [--seed N]`.

Each mutant has one change outside the emulator and outside what only a GPU runs: another operator,
constant or flag, two arguments in the other order, or a statement that is gone, a `raise` included.
All tests run once on code that notes where mutants would run (mutants_run.py). Tests that run a
mutant's place come first, cheapest first; then those of the same files and of its room, which may
use what an earlier test made; all others only if the place runs while modules are imported. Exits
with 1 if fewer than 85 % are noticed.

Mutants in equivalents.txt are not drawn: nothing can notice them. `--equivalents` judges exactly
those, and exits with 1 if a test notices one. An entry is the mutant's name, which no formatter
changes, and below it the reason.
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
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import click

from tests.record.mutants_fork import ROOT, Answer, Copy, copied, testing

EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
LEAST_SHARE = 0.85
LONGEST_NAME = 100  # characters of source in a mutant's name
FAILED = re.compile("^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
SECONDS = re.compile(r"^\s*([\d.]+)s (?:setup|call|teardown) +(.+)$", re.MULTILINE)
ONLY_ON_A_GPU = {"worklog/gpu/cuda.py", "worklog/gpu/timeline.py"}
NO_SITECUSTOMIZE = {"worklog/kernel/nvrtc_process.py"}  # so it can't note what runs
# Keywords that only assert: nothing changes until there is another mistake.
ASSERTED = ("strict", "frozen")
SYMMETRIC = ("min", "max")  # the order of their arguments doesn't matter
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip


class Node(NamedTuple):
    """A node of a syntax tree with what surrounds it."""

    node: Any
    parent: ast.AST
    scope: str  # the functions and classes around it, joined by dots
    constant: str  # the name that a module or a class assigns here; "" in a function
    depth: int


class Place(NamedTuple):
    """A node that can change."""

    node: Any
    name: str  # scope, change and source, the same in any format; unique in its file
    text: str  # the source that takes the node's place
    constant: str  # as in Node
    depth: int


class Mutant(NamedTuple):
    """A changed file."""

    path: str
    place: Place
    text: str

    @property
    def name(self) -> str:
        """The mutant's name in equivalents.txt."""
        return f"{self.path}: {self.place.name}"


def nodes(node: ast.AST, scope: str = "", constant: str = "", depth: int = 0) -> Iterator[Node]:
    """Yield all nodes below this one, without annotations and keywords that only assert."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.keyword) and child.arg in ASSERTED:
                continue
            inner = scope
            name = constant
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{scope}.{child.name}".lstrip(".")
                name = ""
            elif isinstance(node, ast.Module | ast.ClassDef):
                name = assigned(child)
            yield Node(child, node, inner, name, depth)
            yield from nodes(child, inner, name, depth + 1)


def assigned(statement: ast.AST) -> str:
    """Return the first name that a statement assigns, "" for other statements."""
    if isinstance(statement, ast.Assign):
        targets = [*ast.walk(statement.targets[0])]
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    else:
        return ""
    return next((target.id for target in targets if isinstance(target, ast.Name)), "")


def change_of(node: Any) -> tuple[str, Any] | None:
    """Return a node's change in words with the node that replaces it, None if it can't change."""
    if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp):
        operator = node.ops[0] if isinstance(node, ast.Compare) else node.op
        if type(operator) not in SWAPS:
            return None
        swap = SWAPS[type(operator)]()
        swapped = copy.copy(node)
        if isinstance(node, ast.Compare):
            swapped.ops = [swap, *node.ops[1:]]
        else:
            swapped.op = swap
        return f"{type(operator).__name__} → {type(swap).__name__}", swapped
    if isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        other = not node.value if isinstance(node.value, bool) else node.value + 1
        return f"{node.value} → {other}", ast.Constant(other)
    if isinstance(node, ast.Call) and len(node.args) > 1:
        first, second, *others = node.args
        symmetric = isinstance(node.func, ast.Name) and node.func.id in SYMMETRIC
        if symmetric or isinstance(first, ast.Starred) or isinstance(second, ast.Starred):
            return None
        if ast.dump(first) == ast.dump(second):
            return None
        swapped = copy.copy(node)
        swapped.args = [second, first, *others]
        return "swapped arguments", swapped
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if is_call or isinstance(node, ast.AugAssign | ast.Raise):
        return "without", ast.Pass()
    return None


def shown(node: Any, parent: ast.AST, new: Any) -> str:
    """Return the source around a change.

    The parent with it, or only the changed node if that is too long.
    """
    if isinstance(new, ast.Pass):
        return ast.unparse(node)[:LONGEST_NAME]
    if isinstance(parent, ast.expr | ast.keyword) and not isinstance(
        parent, ast.JoinedStr | ast.FormattedValue | ast.Lambda
    ):
        around = copy.copy(parent)
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(around, field, new)
            elif isinstance(value, list):
                setattr(around, field, [new if item is node else item for item in value])
        text = " ".join(ast.unparse(around).split())
        if len(text) <= LONGEST_NAME:
            return text
    return " ".join(ast.unparse(new).split())[:LONGEST_NAME]


def places(source: str) -> list[Place]:
    """Return what can change in a file."""
    found = list[Place]()
    names = Counter[str]()
    for node, parent, scope, constant, depth in nodes(ast.parse(source)):
        if (change := change_of(node)) is None:
            continue
        words, new = change
        name = f"{scope or 'module'}: {words}: {shown(node, parent, new)}"
        names[name] += 1
        if names[name] > 1:
            name += f" #{names[name]}"
        text = ast.unparse(new) if isinstance(new, ast.Pass) else f"({ast.unparse(new)})"
        found.append(Place(node, name, text, constant, depth))
    return found


def span(source: str, node: Any) -> tuple[int, int]:
    """Return the offsets of a node's first byte and of the byte after it."""
    lines = source.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    return start, end


def changed(source: str, node: Any, new: str) -> str:
    """Return the source with other text for one node."""
    start, end = span(source, node)
    return (source.encode()[:start] + new.encode() + source.encode()[end:]).decode()


def is_possible(source: str, place: Place, text: str) -> bool:
    """Check that a change is what its name says: Python 3.11 misplaces nodes of some f-strings."""
    start, end = span(source, place.node)
    try:
        part = ast.parse(f"({source.encode()[start:end].decode()}\n)", mode="eval").body
        compile(text, "", "exec")
    except SyntaxError:
        return isinstance(place.node, ast.stmt)
    return ast.dump(part) == ast.dump(place.node) or isinstance(place.node, ast.stmt)


def noting(source: str, noted: list[tuple[int, Any, int]]) -> str:
    """Return the source with a call of mutant_runs() where nodes run; every line stays where it is.

    noted: for each node its mutant's number, the node, and its depth in the syntax tree
    """
    pieces = list[tuple[int, int, int, int, str]]()
    for number, node, depth in noted:
        start, end = span(source, node)
        is_statement = isinstance(node, ast.stmt)
        call = f"mutant_runs({number})"
        # At one offset, ends come before beginnings; outer nodes begin first and end last.
        pieces.append((start, 1, -end, depth, f"{call}; " if is_statement else f"({call}, "))
        pieces.append((end, 0, -start, -depth, "" if is_statement else ")[1]"))
    text = source.encode()
    for offset, *_, piece in sorted(pieces, reverse=True):
        text = text[:offset] + piece.encode() + text[offset:]
    return text.decode()


def sources() -> dict[str, str]:
    """Return the files that can change with their text."""
    paths = sorted((ROOT / "worklog").rglob("*.py"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {
        path: text
        for path, text in texts.items()
        if "/emulator/" not in path and path not in ONLY_ON_A_GPU
    }


def equivalents() -> dict[str, str]:
    """Return the names of mutants that nothing can notice, each with the reason."""
    lines = EQUIVALENTS.read_text(encoding="utf-8").splitlines()
    return {name: reason.strip() for name, reason in zip(lines[::2], lines[1::2], strict=True)}


def draw(rng: random.Random, count: int) -> list[Mutant]:
    """Return mutants of random places, without equivalents."""
    known = equivalents()
    texts = sources()
    every = [(path, place) for path, text in texts.items() for place in places(text)]
    mutants = list[Mutant]()
    for path, place in rng.sample(every, len(every)):
        mutant = Mutant(path, place, changed(texts[path], place.node, place.text))
        if mutant.name not in known and is_possible(texts[path], place, mutant.text):
            mutants.append(mutant)
        if len(mutants) == count:
            break
    return mutants


def stated() -> list[Mutant]:
    """Return the mutants of equivalents.txt.

    Print entries that name no place, as of code that is gone.
    """
    texts = sources()
    names = equivalents()
    mutants = list[Mutant]()
    for path in sorted({name.partition(": ")[0] for name in names} & texts.keys()):
        for place in places(texts[path]):
            mutant = Mutant(path, place, changed(texts[path], place.node, place.text))
            if mutant.name in names:
                mutants.append(mutant)
    for name in names.keys() - {mutant.name for mutant in mutants}:
        print(f"{name}: NO SUCH PLACE: delete the entry, or name the place anew", flush=True)
    return mutants


class Tests:
    """The tests of code without a change.

    Seconds, failures, and which of them run which mutant's place.
    """

    def __init__(self, folder: Path, mutants: list[Mutant], jobs: int) -> None:
        shutil.copy(Path(__file__).with_name("mutants_run.py"), folder / "sitecustomize.py")
        for path, noted in self.noted(mutants).items():
            source = (ROOT / path).read_text(encoding="utf-8")
            (folder / path).write_text(noting(source, noted), encoding="utf-8")
        words = f"-n{jobs}", "--dist=worksteal", "--durations=0", "-vv"
        printed, _ = testing(folder, *words, stdout=subprocess.PIPE).communicate()
        self.failed = FAILED.findall(printed)
        self.seconds = defaultdict[str, float](float)
        for seconds, name in SECONDS.findall(printed):
            self.seconds[name] += float(seconds)
        if not self.seconds:
            sys.exit(f"no test ran without a change: {printed[-2000:]}")
        self.run = defaultdict[str, set[str]](set)
        for line in (folder / "ran.jsonl").read_text(encoding="utf-8").splitlines():
            test, number = json.loads(line)
            self.run[mutants[number].name].add(test)

    @staticmethod
    def noted(mutants: list[Mutant]) -> dict[str, list[tuple[int, Any, int]]]:
        """Return by file what notes a run.

        Each mutant's node, and in functions the names of its constant.
        """
        noted = defaultdict[str, list[tuple[int, Any, int]]](list)
        for number, mutant in enumerate(mutants):
            noted[mutant.path].append((number, mutant.place.node, mutant.place.depth))
        constants = defaultdict[str, list[int]](list)
        for number, mutant in enumerate(mutants):
            constants[mutant.place.constant].append(number)
        del constants[""]
        for path in (ROOT / "worklog").rglob("*.py") if constants else ():
            text = path.read_text(encoding="utf-8")
            if not any(name in text for name in constants):
                continue
            for node, _, scope, constant, depth in nodes(ast.parse(text)):
                if not scope or constant or not isinstance(getattr(node, "ctx", None), ast.Load):
                    continue
                name = getattr(node, "id", "") or getattr(node, "attr", "")
                for number in constants.get(name, ()):
                    noted[path.relative_to(ROOT).as_posix()].append((number, node, depth))
        return {path: noted[path] for path in noted.keys() - NO_SITECUSTOMIZE}

    def of(self, mutant: Mutant, only_covering: bool) -> list[str]:
        """Return the tests in the order in which they run.

        First those that run the mutant's place, cheapest first, then others of their files, which
        share fixtures, and its room's; all others if the place runs during imports.
        """
        covering = self.run[mutant.name]
        near = {name.partition("::")[0] for name in covering} - {""}
        near.add(f"tests/{mutant.path.split('/')[1].removesuffix('.py')}/")
        first = list[str]()
        second = list[str]()
        others = list[str]()
        for name in sorted(self.seconds.keys() - self.failed, key=lambda name: self.seconds[name]):
            if name in covering:
                first.append(name)
            elif name.startswith((*near,)):
                second.append(name)
            else:
                others.append(name)
        if only_covering:
            return first
        return [*first, *second, *(others if self.imported(mutant) else [])]

    def imported(self, mutant: Mutant) -> bool:
        """Return whether a mutant's place runs while modules are imported."""
        return "" in self.run[mutant.name]


def judged(
    mutants: list[Mutant], jobs: int, only_covering: bool
) -> Iterator[tuple[Mutant, Answer, int]]:
    """Yield each mutant with the tests' answer and the number of tests that ran."""
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        tests = Tests(copied(Path(temporary, "noting")), mutants, jobs)
        print(f"failing without a change: {', '.join(tests.failed) or 'no test'}", flush=True)
        copies = Queue[Copy]()
        for number in range(jobs):
            copies.put(copy_ := Copy(Path(temporary, str(number))))
        passing = min(tests.seconds.keys() - tests.failed, key=lambda name: tests.seconds[name])
        path = mutants[0].path
        unchanged = (ROOT / path).read_text(encoding="utf-8")
        answer = copy_.failing(path, unchanged, [passing], imported=False)
        if answer != Answer():
            sys.exit(f"{passing} fails without a change: {answer}")

        def judge(mutant: Mutant) -> tuple[Answer, int]:
            names = tests.of(mutant, only_covering)
            copy_ = copies.get()
            try:
                imported = tests.imported(mutant)
                return copy_.failing(mutant.path, mutant.text, names, imported), len(names)
            finally:
                copies.put(copy_)

        futures = {pool.submit(judge, mutant): mutant for mutant in mutants}
        for future in as_completed(futures):
            yield futures[future], *future.result()
        for _ in range(jobs):
            copies.get().stop()


@click.command()
@click.option("--seed", type=int, help="Seed of the choice (default: random).")
@click.option("--count", default=80, show_default=True, help="Number of mutants.")
@click.option("--jobs", default=2, show_default=True, help="Processes that test.")
@click.option("--equivalents", "proves", is_flag=True, help="Judge the mutants of equivalents.txt.")
@click.option("--only-covering", is_flag=True, help="Run only tests that run a mutant's place.")
def main(seed: int | None, count: int, jobs: int, proves: bool, only_covering: bool) -> None:
    """Change the code in COUNT places, and print the changes that no test notices.

    One change at a time.
    """
    if seed is None:
        seed = random.randrange(10**6)
    mutants = stated() if proves else draw(random.Random(seed), count)
    print(f"{len(mutants)} mutants" + ("" if proves else f" (seed {seed})"), flush=True)
    noticed = missed = 0
    for mutant, answer, ran in judged(mutants, jobs, only_covering):
        if answer.test:
            noticed += 1
            words = f"noticed by {answer.test}"
            if proves:
                words = f"NOT AN EQUIVALENT, {words}: delete the entry"
        elif answer.why or not ran:
            words = f"NOT JUDGED: {answer.why or 'no test runs it'}"
        else:
            missed += 1
            words = f"not noticed by {ran} tests"
            words = f"still equivalent, {words}" if proves else words.upper()
        print(f"{mutant.name}: {words}", flush=True)
    if proves:
        print(f"{missed} of {len(equivalents())} entries are equivalents")
        sys.exit(missed < len(equivalents()))
    share = noticed / len(mutants)
    print(f"{noticed} of {len(mutants)} noticed, {share:.0%} (seed {seed})")
    sys.exit(share < LEAST_SHARE)


if __name__ == "__main__":
    main()
