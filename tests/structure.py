"""Counts of lines, names, layers, imports and avoided words, from the sources: `python -m tests.structure`."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from grimp import build_graph

ROOT = Path(__file__).parents[1]
AVOIDED = re.compile(r"\btold\b|\bwhoever\b|let loose|\blies\b", re.IGNORECASE)


def sources(folder: str, suffix: str = ".py") -> list[Path]:
    """Source files below a folder of the repository."""
    return sorted(path for path in (ROOT / folder).rglob(f"*{suffix}") if "__pycache__" not in path.parts)


def lines(folder: str) -> int:
    """Lines of Python below a folder."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources(folder))


def names() -> list[str]:
    """What a newcomer sees in `worklog/`."""
    return sorted(path.name for path in (ROOT / "worklog").iterdir() if path.name not in ("__pycache__", "_kernels"))


def room(module: str) -> str:
    """The room of a module: the name below `worklog`."""
    return [*module.split("."), "__init__"][1]


def imports() -> set[tuple[str, str]]:
    """Pairs of modules (importing, imported) at run time; what only a type checker imports does not count."""
    graph = build_graph("worklog", exclude_type_checking_imports=True, cache_dir=None)
    return {(module, target) for module in graph.modules for target in graph.find_modules_directly_imported_by(module)}


def opened_by_run() -> list[str]:
    """Our files that `worklog run RUNG` opens: in the command's process and in the child that measures."""
    code = """
import sys
import worklog.cli.commands, worklog.cli.run, worklog.cli.selection
import worklog.runner.job, worklog.runner.measure, worklog.runner.session
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "worklog" and sys.modules[name].__file__))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def table() -> list[tuple[str, int]]:
    """What is counted, in the order of the project's goals."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    arrows = imports()
    words = sum(
        AVOIDED.search(line) is not None
        for path in sources("worklog")
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    return [
        ("product lines (Python)", lines("worklog")),
        ("test lines (Python)", lines("tests")),
        ("names in worklog/", len(names())),
        ("import layers", len(layers[0]["layers"])),
        ("imports between modules", len(arrows)),
        ("imports between rooms", len({(a, b) for a, b in arrows if room(a) != room(b)})),
        ("longest file", max(len(path.read_text(encoding="utf-8").splitlines()) for path in sources("worklog"))),
        ("files that `worklog run` opens", len(opened_by_run())),
        ("lines with avoided words", words),
    ]


if __name__ == "__main__":
    for what, count in table():
        print(f"{what:32}{count:8,}")
