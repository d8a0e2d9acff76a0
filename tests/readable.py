"""How easy the package is to read, by room: `python -m tests.readable` prints the counts.

`python -m tests.readable --lower` writes them into readable.toml, where they may only fall; a test
compares. Counted are habits that no rule of ruff knows:

tuples: assignments of two unrelated values in one statement
comprehensions: with two `for`, or a `for` and two `if`
conditionals: conditional expressions inside one another
names: stored names that are a bare function word
summaries: public docstrings without a one-line summary of at most 88 columns
moods: public docstrings that begin with a function word
exports: names that a room's `__init__` exports, above MOST_EXPORTS
twice: class names that another module has, too
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
CEILINGS = Path(__file__).with_suffix(".toml")
MOST_EXPORTS = 30
SUMMARY_COLUMNS = 88
# Bare function words: they say nothing about the thing that they name.
FUNCTION_WORDS = """
again ahead all alone also any apart around as asked at away before behind beside between both
by called come doing done each either else enough even every few found from full further given
gone had half has held here how if in inside its itself just keeps kept known lacking least less
like made many met more most much named near never next none now of off on once one only or
others over own past placed put rest said same seen shown since so some such sure taken tells
than that them then there these they thing things this those told too tried under until up used
very wanted way ways what when where which while who whole whose why with within without word
words worth yet
"""
# No docstring begins with one of these: a verb says what a function does.
NO_VERBS = """
what which who whose of as where with in on at by from for that those these it itself its such
so one how when while nothing none each all both as
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Hit:
    """A place at which a habit was found."""

    measure: str
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.measure}: {self.text}"


def hits() -> list[Hit]:
    """Return every place in the package."""
    found = list[Hit]()
    for path in sorted((ROOT / "worklog").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for measure, node, text in _habits(tree):
            found.append(Hit(measure, path, node.lineno, text))
        found += _names(path, tree)
        if path.name == "__init__.py":
            found += _exports(path, tree)
    return found + _classes_of_one_name()


def counts() -> dict[str, dict[str, int]]:
    """Return the number of places by room and measure.

    Rooms and measures without one are left out.
    """
    by_room = dict[str, Counter[str]]()
    for hit in hits():
        by_room.setdefault(_room(hit.path), Counter())[hit.measure] += 1
    return {room: dict(sorted(by_room[room].items())) for room in sorted(by_room)}


def ceilings() -> dict[str, dict[str, int]]:
    """Return the counts that may only fall."""
    return tomllib.loads(CEILINGS.read_text(encoding="utf-8"))


def _room(path: Path) -> str:
    """Return the room of a file: the folder below worklog, or "top"."""
    parts = path.relative_to(ROOT / "worklog").parts
    return parts[0] if len(parts) > 1 else "top"


def _habits(tree: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield measure, node and text of statements, expressions and docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_unrelated_tuple(node):
            yield "tuples", node, ast.unparse(node)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            tests = sum(len(generator.ifs) for generator in node.generators)
            if len(node.generators) > 1 or tests > 1:
                yield "comprehensions", node, ast.unparse(node)
        elif isinstance(node, ast.IfExp):
            inner = [part for part in ast.walk(node) if part is not node]
            if any(isinstance(part, ast.IfExp) for part in inner):
                yield "conditionals", node, ast.unparse(node)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            for measure in docstring_faults(ast.get_docstring(node), node.col_offset):
                yield measure, node, node.name


def is_unrelated_tuple(node: ast.Assign) -> bool:
    """Return whether a statement assigns values that need not be assigned together.

    A swap, and a step of a recurrence, need the tuple.
    """
    target = node.targets[0]
    value = node.value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return False
    if len(target.elts) != len(value.elts):
        return False
    if any(isinstance(part, ast.Starred) for part in [*target.elts, *value.elts]):
        return False
    written = {ast.unparse(part) for part in target.elts}
    read = {ast.unparse(part) for part in ast.walk(value) if isinstance(part, ast.expr)}
    return not written & read


def docstring_faults(docstring: str | None, indent: int) -> list[str]:
    """Return "summaries" and "moods" for a docstring that has these faults.

    indent: columns of the function's own line
    """
    if not docstring:
        return []
    faults = []
    first, *rest = docstring.splitlines()
    is_alone = not rest or not rest[0].strip()
    quoted_columns = indent + 4 + len('"""') + len(first)
    if not is_alone or quoted_columns > SUMMARY_COLUMNS:
        faults.append("summaries")
    word = re.match(r"\w+", first)
    if word and word[0].lower() in NO_VERBS.split():
        faults.append("moods")
    return faults


def _names(path: Path, tree: ast.AST) -> list[Hit]:
    """Return the stored names that are a bare function word."""
    function_words = frozenset(FUNCTION_WORDS.split())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, Function):
            name = node.name
        else:
            continue
        if name.strip("_") in function_words and not name.endswith("__"):
            found.append(Hit("names", path, node.lineno, name))
    return found


def _exports(path: Path, tree: ast.Module) -> list[Hit]:
    """Return the names of a face beyond MOST_EXPORTS."""
    for node in tree.body:
        if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != "__all__":
            continue
        if isinstance(node.value, ast.List | ast.Tuple):
            names = [ast.unparse(part) for part in node.value.elts]
            return [Hit("exports", path, node.lineno, name) for name in names[MOST_EXPORTS:]]
    return []


def _classes_of_one_name() -> list[Hit]:
    """Return the classes whose name a class of another module has, too."""
    by_name = dict[str, list[Hit]]()
    for path in sorted((ROOT / "worklog").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                hit = Hit("twice", path, node.lineno, node.name)
                by_name.setdefault(node.name.strip("_"), []).append(hit)
    return [hit for same in by_name.values() if len(same) > 1 for hit in same]


def raised(
    now: Mapping[str, Mapping[str, int]], limit: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Return a line for each count that isn't the ceiling's, with what to do."""
    lines = []
    for room in sorted({*now, *limit}):
        for measure in sorted({*now.get(room, {}), *limit.get(room, {})}):
            count = now.get(room, {}).get(measure, 0)
            ceiling = limit.get(room, {}).get(measure, 0)
            if count > ceiling:
                lines.append(
                    f"{room}: {count} {measure}, at most {ceiling}: python -m tests.readable"
                )
            elif count < ceiling:
                lines.append(
                    f"{room}: {count} {measure}, fewer than {ceiling}: python -m tests.readable "
                    "--lower"
                )
    return lines


def main() -> None:
    """Print the places and the counts, or write lower ceilings."""
    now = counts()
    if "--lower" in sys.argv:
        higher = [line for line in raised(now, ceilings()) if "at most" in line]
        if higher:
            sys.exit("\n".join(higher))
        tables = []
        for room, measures in now.items():
            rows = [f"{measure} = {count}" for measure, count in measures.items()]
            tables.append("\n".join([f"[{room}]", *rows]))
        CEILINGS.write_text("\n\n".join(tables) + "\n", encoding="utf-8")
        return
    print(*hits(), sep="\n")
    for room, measures in now.items():
        print(f"{room:12}", *(f"{count} {measure}" for measure, count in measures.items()))


if __name__ == "__main__":
    main()
