"""The plan of the house holds: rooms import only what they may, and none grows too big to read in one sitting."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests import structure

ROOT = Path(__file__).parents[1]
LONGEST = 420


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of pyproject.toml on the package in `folder`."""
    command = (Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache")
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def test_each_room_imports_only_what_it_may() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("room", "line", "contract"),
    [
        ("plots/__init__.py", "import cupy", "Charts, notebook layer and command line never touch CUDA themselves"),
        ("plots/ladder.py", "from worklog.harness import Harness", "What reads runs never reaches what measures"),
        (
            "gate/__init__.py",
            "from worklog.gpu.cuda import CudaDevice",
            "The gate knows a device's interface, not CUDA",
        ),
        (
            "problem/gemm.py",
            "from worklog.kernel.kernel import Kernel",
            "Each room imports only from the rooms below it",
        ),
        ("runs/estimates.py", "from worklog.runs.tables import Bar", "No modules import each other"),
    ],
)
def test_a_forbidden_import_is_caught(tmp_path: Path, room: str, line: str, contract: str) -> None:
    shutil.copytree(ROOT / "worklog", tmp_path / "worklog")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "worklog" / room).open("a", encoding="utf-8") as source:
        source.write(f"\n\ndef _sneak() -> None:\n    {line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contract} BROKEN" in done.stdout


def test_rooms_import_from_each_other_what_they_offer() -> None:
    """A name that a room's __init__ offers is imported from there, so that modules can move within the room."""
    imported = re.compile(r"^ *from worklog\.(\w+)\.\w+ import (\([^)]*\)|.*)", re.MULTILINE)
    past = []
    for path in structure.sources("worklog"):
        own = path.relative_to(ROOT / "worklog").parts[0]
        for room, names in imported.findall(path.read_text(encoding="utf-8")):
            offered = getattr(import_module(f"worklog.{room}"), "__all__", ())
            if own not in (room, "__init__.py") and set(re.findall(r"(\w+)(?: as \w+)?,?", names)) <= {*offered}:
                past.append(f"{path.relative_to(ROOT)}: from worklog.{room} import {names}")
    assert past == []


def test_no_file_is_too_long_to_read() -> None:
    sources = [path for kind in ("*.py", "*.cu") for path in (ROOT / "worklog").rglob(kind)]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_the_structure_keeps_to_its_goals() -> None:
    """Fewer than 20 names, at most 12 layers, hardly a word that the house style avoids."""
    counts = dict(structure.table())
    assert counts["names in worklog/"] < 20
    assert counts["import layers"] <= 12
    assert counts["lines with avoided words"] < 30
