"""Counts of lines, names, steps, imports and words, from the sources.

`python -m tests.structure` (10 s, no GPU), after `make check`, which installs import-linter.

Lines are those of all files of a kind, blank ones and comments too. `worklog/emulator/` counts
only where its name is in the row. Imports are pairs of modules. Files in a circle reach each
other by imports in one room; what only a type checker imports counts there, and not in the other
rows.
"""

import ast
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from grimp import build_graph

from tests.steps import ROOT, way

PRODUCT = ("py", "c", "h", "js", "css", "html")
AVOIDED = re.compile(r"\btold\b|\bwhoever\b|let loose|\blies\b", re.IGNORECASE)
EMPTY_NAMES = ("one", "its", "each", "found")
KERNEL = """\
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {}
"""


def sources(folder: str, *suffixes: str) -> list[Path]:
    """Files below a folder of the repository with one of these suffixes."""
    return sorted(
        path
        for suffix in suffixes
        for path in (ROOT / folder).rglob(f"*.{suffix}")
        if not {"__pycache__", "_kernels", "_notebooks"} & {*path.parts}
    )


def lines(folder: str, *suffixes: str) -> int:
    """Lines of these files."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines()) for path in sources(folder, *suffixes)
    )


def names() -> list[str]:
    """Return what a newcomer sees in `worklog/`."""
    return sorted(
        path.name
        for path in (ROOT / "worklog").iterdir()
        if path.name not in ("__pycache__", "_kernels")
    )


def room(module: str) -> str:
    """Return the room of a module: the name below `worklog`."""
    return [*module.split("."), "__init__"][1]


def imports(with_types: bool = False) -> set[tuple[str, str]]:
    """Pairs of modules (importing, imported). with_types: also what only a type checker imports."""
    graph = build_graph("worklog", exclude_type_checking_imports=not with_types, cache_dir=None)
    return {
        (module, target)
        for module in graph.modules
        for target in graph.find_modules_directly_imported_by(module)
    }


def in_circles(pairs: set[tuple[str, str]]) -> set[str]:
    """Modules that reach themselves by imports, or lie between two that do."""
    importing, imported = ({pair[side] for pair in pairs} for side in (0, 1))
    rest = {
        (module, target) for module, target in pairs if module in imported and target in importing
    }
    return importing if rest == pairs else in_circles(rest)


def imported_by_check() -> list[str]:
    """Our modules that `worklog check mine.cu --emulate` imports.

    Where the kernel's process has its own, those too.
    """
    code = """
import sys
from worklog.cli import main
main(["check", sys.argv[1], "--emulate"], standalone_mode=False)
"""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "mine.cu")
        kernel.write_text(KERNEL)
        command = (sys.executable, "-X", "importtime", "-c", code, str(kernel))
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    imported = re.findall(r"^import time:.*\| +(worklog(?:\.\w+)*)$", done.stderr, re.MULTILINE)
    assert "worklog.emulator" in imported, done.stderr[-2000:]
    return sorted({*imported})


def bindings() -> int:
    """How often a variable or a parameter with an empty name is bound in `worklog/`."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources("worklog", "py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    variables = [
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    parameters = [node.arg for node in nodes if isinstance(node, ast.arg)]
    return sum(name in EMPTY_NAMES for name in (*variables, *parameters))


def table() -> list[tuple[str, int]]:
    """Return what is counted, in the order of the project's goals."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]
    pairs = imports()
    of_types = imports(with_types=True)
    in_rooms = {(m, target) for m, target in of_types if room(m) == room(target)}
    emulator = lines("worklog/emulator", *PRODUCT)
    texts = [path.read_text(encoding="utf-8").splitlines() for path in sources("worklog", "py")]
    steps, files = way()
    return [
        ("product lines without emulator", lines("worklog", *PRODUCT) - emulator),
        ("product lines with emulator", lines("worklog", *PRODUCT)),
        ("test lines (Python)", lines("tests", "py")),
        ("steps of one live measurement", len(steps)),
        ("files of one live measurement", len(files)),
        ("modules that check --emulate takes", len(imported_by_check())),
        ("files in import circles", len(in_circles(in_rooms))),
        ("imports between rooms", sum(room(module) != room(target) for module, target in pairs)),
        ("imports between modules", len(pairs)),
        ("names in worklog/", len(names())),
        ("import layers", len(contracts["contracts"][0]["layers"])),
        ("bound to one, its, each, found", bindings()),
        ("longest file (Python)", max(map(len, texts))),
        (
            "lines with avoided words",
            sum(AVOIDED.search(line) is not None for text in texts for line in text),
        ),
    ]


if __name__ == "__main__":
    for what, count in table():
        print(f"{what:36}{count:8,}")
