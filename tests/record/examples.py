"""Examples that NVBench, Tensara and FlashInfer publish: fetched at their commits, not committed here, and ported by
the replacements of published/examples.toml.
"""

from __future__ import annotations

import difflib
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.record.recording import cloned

HERE = Path(__file__).parent / "published"
DATA = HERE / "examples.toml"
MOST_LINES = 10


@dataclass(frozen=True)
class Example:
    """One published file. replace: text and its replacement. measured: its points, as examples.toml says for each
    project. solution: of ours, below this folder.
    """

    project: str
    path: str
    replace: Mapping[str, str] = field(default_factory=dict)
    measured: tuple[str, ...] = ()
    solution: str = ""

    @property
    def name(self) -> str:
        """Of the file, or of its folder where all files have one name."""
        path = Path(self.path)
        return path.parent.name if path.stem == "def" else path.stem

    def ported(self, text: str) -> str:
        """The text as this package takes it. Raises ValueError for text that a replacement isn't for."""
        for old, new in self.replace.items():
            if old not in text:
                raise ValueError(f"{self.path} has no {old!r}")
            text = text.replace(old, new)
        return text


def toml() -> dict[str, Any]:
    """examples.toml."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def examples() -> list[Example]:
    """All examples."""
    return [
        Example(project, **{name: tuple(value) if isinstance(value, list) else value for name, value in words.items()})
        for project in repositories()
        for words in toml().get(project, ())
    ]


def repositories() -> dict[str, tuple[str, str]]:
    """Owner/name and commit by project."""
    return {project: (name, commit) for project, (name, commit) in toml()["repository"].items()}


def needed(every: list[Example]) -> Iterator[tuple[str, str]]:
    """Each project and path of a file that is fetched."""
    for example in every:
        yield example.project, example.path
        if example.solution:
            yield example.project, str(Path(example.path).with_name("torch.py"))
    for project, paths in toml().get("unchanged", {}).items():
        yield from ((project, path) for path in paths)


def changed_lines(before: str, after: str) -> int:
    """Lines that were changed, added or deleted."""
    pieces = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in pieces if kind != "equal")


def prepare(folder: Path, every: list[Example]) -> dict[str, int]:
    """Write FOLDER/theirs and FOLDER/ours, the published files and the ported ones, unless they are there; the changed
    lines by path. Repositories are cloned into FOLDER/clones. Raises ValueError for more than MOST_LINES changed lines.
    """
    for project, path in needed(every):
        theirs = folder / "theirs" / project / path
        if not theirs.exists():
            theirs.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(cloned(*repositories()[project], folder / "clones") / path, theirs)
    lines = {}
    for example in every:
        before = (folder / "theirs" / example.project / example.path).read_text(encoding="utf-8")
        after = example.ported(before)
        lines[example.path] = changed_lines(before, after)
        if lines[example.path] > MOST_LINES:
            raise ValueError(f"{example.path}: {lines[example.path]} lines are changed, more than {MOST_LINES}")
        ours = folder / "ours" / example.project / example.path
        ours.parent.mkdir(parents=True, exist_ok=True)
        ours.write_text(after, encoding="utf-8")
    return lines
