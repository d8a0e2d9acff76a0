"""Examples that NVBench, Tensara and FlashInfer publish: fetched at their commits, not committed here, and ported by
the replacements of examples.toml.
"""

from __future__ import annotations

import difflib
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
MOST_LINES = 10
Text = Callable[[str, str], str]  # the text of a file: a project and a path


@dataclass(frozen=True)
class Example:
    """One published file. replace: text and its replacement. needs: modules that it imports. measured: its points, as
    examples.toml says for each project. solution: of ours, below this folder.
    """

    project: str
    path: str
    replace: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
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


def examples(data: Path = HERE / "examples.toml") -> list[Example]:
    """All examples."""
    document = tomllib.loads(data.read_text(encoding="utf-8"))
    return [
        Example(project, **{name: tuple(value) if isinstance(value, list) else value for name, value in one.items()})
        for project in repositories(data)
        for one in document.get(project, ())
    ]


def repositories(data: Path = HERE / "examples.toml") -> dict[str, tuple[str, str]]:
    """Owner/name and commit by project."""
    return {
        name: (one[0], one[1]) for name, one in tomllib.loads(data.read_text(encoding="utf-8"))["repository"].items()
    }


def needed(every: list[Example], data: Path = HERE / "examples.toml") -> Iterator[tuple[str, str]]:
    """Each project and path of a file that is fetched."""
    yield from ((one.project, one.path) for one in every)
    yield from ((one.project, str(Path(one.path).with_name("torch.py"))) for one in every if one.solution)
    unchanged = tomllib.loads(data.read_text(encoding="utf-8")).get("unchanged", {})
    yield from ((project, path) for project, paths in unchanged.items() for path in paths)


def changed_lines(before: str, after: str) -> int:
    """Lines that were changed, added or deleted."""
    pieces = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in pieces if kind != "equal")


def prepare(folder: Path, clones: Path, every: list[Example], data: Path = HERE / "examples.toml") -> dict[str, int]:
    """Write FOLDER/theirs and FOLDER/ours, the published files and the ported ones, unless they are there; the changed
    lines by path. clones: folders owner/name of repositories, which are cloned where they are missing. Raises
    ValueError for more than MOST_LINES changed lines.
    """
    for project, path in needed(every, data):
        theirs = folder / "theirs" / project / path
        if not theirs.exists():
            theirs.parent.mkdir(parents=True, exist_ok=True)
            theirs.write_text(_text(clones, *repositories(data)[project], path), encoding="utf-8")
    lines = {}
    for one in every:
        before = (folder / "theirs" / one.project / one.path).read_text(encoding="utf-8")
        after = one.ported(before)
        lines[one.path] = changed_lines(before, after)
        if lines[one.path] > MOST_LINES:
            raise ValueError(f"{one.path}: {lines[one.path]} lines are changed, more than {MOST_LINES}")
        ours = folder / "ours" / one.project / one.path
        ours.parent.mkdir(parents=True, exist_ok=True)
        ours.write_text(after, encoding="utf-8")
    return lines


def _text(clones: Path, repository: str, commit: str, path: str) -> str:
    """A file at a commit, from a clone. Raises CalledProcessError."""
    clone = clones / repository
    if not clone.exists():
        address = f"https://github.com/{repository}"
        _git("clone", "--quiet", "--filter=blob:none", "--no-checkout", address, str(clone))
    return _git("-C", str(clone), "show", f"{commit}:{path}")


def _git(*words: str) -> str:
    return subprocess.run(("git", *words), check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
