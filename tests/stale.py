"""Which generated files are out of date.

`python -m tests.stale` lists them with the command for each (2 s, no GPU).

`python -m tests.stale --make NAME`, repeated for more, runs the command, and notes what it depends
on in tests/made/: the functions of the checkout that ran, the constants and classes that they name,
and the files that were read (tests/reads.py sees them), each with a digest, and the files that it
made. Files are out of date if one of these differs now. A function that didn't run, a class that no
function names, a comment and a docstring don't count.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

from tests.definitions import STATEMENTS, Definitions

ROOT = Path(__file__).parents[1]
MADE = Path(__file__).with_name("made")


class Target(NamedTuple):
    """Files that a command makes, or several joined by &&."""

    command: str
    files: tuple[str, ...]  # glob patterns; of README.md only the parts between markers count
    versions: bool = True  # whether they depend on the libraries' versions


# What others read comes first.
TARGETS = {
    "ptx": Target("python -m tests.record.ptx", ("worklog/kernel/ptx/*",), versions=False),
    "seeds": Target("python -m tests.seeds", ("notebooks/seeds.md",), versions=False),
    "draws": Target("python -m tests.gate.test_draws", ("tests/gate/draws/*",)),
    "looks": Target("python -m tests.plots.test_charts", ("tests/plots/looks/*",)),
    "figures": Target(
        "python -m worklog article && python -m tests.record.readme",
        ("figures/*.svg", "figures/*.png", "figures/README.md", "README.md"),
    ),
    "screens": Target(
        "python -m tests.browser.stills",
        ("figures/screens/*.png",),
        versions=False,
    ),
    "notebooks": Target("python -m tests.record.notebooks", ("notebooks/*.ipynb",)),
}
VERSIONS = "constraints.txt"
COMPILED = ("", ".so", ".pyc")  # and folders, which have no suffix


# Of some files only parts count.
COUNTS = {
    "README.md": r"(?s)<!-- worklog \w+:.*?-->(.*?)<!--",
    "pyproject.toml": r"(?m)^urls = .*",
}


class Line(NamedTuple):
    """A line of a target's record: a file, a folder that was listed, or parts of a Python file."""

    path: str  # below the checkout; of a folder with "/" at its end
    digest: str
    names: tuple[str, ...] = ()  # the parts of a Python file that count

    @classmethod
    def now(cls, path: str, names: tuple[str, ...] = ()) -> "Line":
        """Return the line of what is there now; of a path that is gone, without a digest."""
        there = ROOT / path
        if not there.exists():
            return cls(path, "gone", names)
        if names:
            return cls(path, definitions(path).digest(names), names)
        text = listing(there) if path.endswith("/") else content(there)
        return cls(path, hashlib.sha256(text).hexdigest()[:12])

    @classmethod
    def parse(cls, text: str) -> "Line":
        """Return a line of a record."""
        path, digest, *names = text.split()
        return cls(path, digest, tuple(names))

    def __str__(self) -> str:
        return " ".join((self.path, self.digest, *self.names))


@cache
def _definitions(path: Path, changed_ns: int) -> Definitions:
    return Definitions(path)


def definitions(path: str) -> Definitions:
    """Return the parts of a Python file, which is parsed once."""
    file = ROOT / path
    return _definitions(file, file.stat().st_mtime_ns)


def listing(folder: Path) -> bytes:
    """Return the names of the files in a folder, without what compilers leave there."""
    names = (path.name for path in folder.iterdir() if path.suffix not in COMPILED)
    return "\n".join(sorted(name for name in names if not name.startswith("."))).encode()


def content(path: Path) -> bytes:
    """Return what counts of a file."""
    pattern = COUNTS.get(path.relative_to(ROOT).as_posix())
    if pattern is None:
        return path.read_bytes()
    return "\n".join(re.findall(pattern, path.read_text(encoding="utf-8"))).encode()


def tracked() -> set[str]:
    """Return the files that git tracks, or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {*done.stdout.splitlines()}


def parts_that_count(ran: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Return by file the functions that ran, with the constants and classes in use.

    Those that the functions name, and what these name.

    ran: file and qualified name of each function, as Python states it
    """
    files = {path: definitions(path) for path, _ in ran}
    constants = defaultdict[str, list[str]](list)
    for path, of_file in files.items():
        for name in of_file.constants:
            constants[name].append(path)
    parts = defaultdict[str, set[str]](set)
    waiting = list[tuple[str, str]]()

    def add(path: str, name: str) -> None:
        is_there = name in files[path].parts or name == STATEMENTS
        if is_there and name not in parts[path]:
            parts[path].add(name)
            waiting.append((path, name))

    def add_variable(path: str, name: str) -> None:
        """Add what a variable of a module stands for, unless it is a function.

        Those that count ran.
        """
        followed = set[tuple[str, str]]()
        while name in files[path].imported and (path, name) not in followed:
            followed.add((path, name))
            module, name, dots = files[path].imported[name]
            origin = file_of(module, path, dots)
            if origin not in files:
                return
            path = origin
        if name in files[path].constants:
            add(path, name)
        elif followed:  # a package that loads its names when they are used
            add_attribute(name)

    def add_attribute(name: str) -> None:
        """Add each constant and class of this name, as nothing says whose attribute it is."""
        for path in constants.get(name, ()):
            add(path, name)

    for path, qualified in ran:
        add(path, STATEMENTS)
        name = qualified.partition(".<")[0]
        if files[path].is_function(name):
            add(path, name)
            add(path, name.rpartition(".")[0])
    while waiting:
        path, part = waiting.pop()
        for name, is_variable in files[path].names(part):
            if is_variable:
                add_variable(path, name)
            else:
                add_attribute(name)
    return parts


def file_of(module: str, importing: str, dots: int) -> str:
    """Return the file of an imported module.

    importing: the file that imports it
    dots: those before the module's name, if it is relative
    """
    folder = Path(*Path(importing).parts[:-dots]) if dots else Path()
    path = folder.joinpath(*module.split(".")) if module else folder
    if (ROOT / path).is_dir():
        return (path / "__init__.py").as_posix()
    return path.with_suffix(".py").as_posix()


def lines(target: Target, reads: str) -> Iterator[Line]:
    """Yield the lines of a target's record.

    reads: what tests/reads.py noted while the files were made
    """
    noted = {tuple(line.split("\t")) for line in reads.splitlines()}
    files = tracked()
    made = {path.relative_to(ROOT).as_posix() for path in files_of(target)}
    read = {path for kind, path, _ in noted if kind == "read"} & files
    if target.versions:
        read.add(VERSIONS)
    for path in made | read:
        yield Line.now(path)
    folders = {path for kind, path, _ in noted if kind == "list"}
    for folder in folders:
        if any(path.startswith(f"{folder}/") for path in files):
            yield Line.now(f"{folder}/")
    ran = {(path, name) for kind, path, name in noted if kind == "run" and path in files}
    for path, names in parts_that_count(ran).items():
        yield Line.now(path, tuple(sorted(names)))


def files_of(target: Target) -> list[Path]:
    """Return the files that a target makes."""
    paths = (path for pattern in target.files for path in ROOT.glob(pattern))
    return sorted(path for path in paths if path.is_file())


def record(name: str) -> Path:
    """Return the file that states what a target was made from."""
    return MADE / f"{name}.txt"


def changes(name: str) -> list[str]:
    """Return the paths for which a target is out of date."""
    if not record(name).exists():
        return [record(name).relative_to(ROOT).as_posix()]
    noted = map(Line.parse, record(name).read_text(encoding="utf-8").splitlines())
    return [line.path for line in noted if line != Line.now(line.path, line.names)]


def make(name: str) -> None:
    """Make a target's files, and write its record."""
    target = TARGETS[name]
    started = time.monotonic()
    before = {path: path.read_bytes() for path in files_of(target)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        reads = Path(temporary, "reads.txt")
        shutil.copy(Path(__file__).with_name("reads.py"), folder / "sitecustomize.py")
        # An empty cache: what is compiled again is noted, too.
        environment = {
            "WORKLOG_SOURCE": "recorded",
            "WORKLOG_HOME": str(folder / "home"),
            "WORKLOG_CACHE": str(folder / "cache"),
            "WORKLOG_ROOT": str(ROOT),
            "WORKLOG_READS": str(reads),
            "PYTHONPATH": os.pathsep.join([temporary, os.environ.get("PYTHONPATH", "")]).strip(":"),
        }
        for command in target.command.split(" && "):
            print(f"{name}: {command}", flush=True)
            words = [sys.executable, *command.split()[1:]]
            done = subprocess.run(words, cwd=ROOT, env=os.environ | environment, check=False)
            if done.returncode:
                raise click.ClickException(
                    f"`{command}` exited with {done.returncode}, and the record of {name} stays "
                    "as it was: "
                    f"mend it, then run python -m tests.stale --make {name}"
                )
        found = sorted({*lines(target, reads.read_text(encoding="utf-8"))})
    record(name).parent.mkdir(exist_ok=True)
    record(name).write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    paths = files_of(target)
    count = sum(before.get(path) != path.read_bytes() for path in paths)
    seconds = time.monotonic() - started
    print(f"{name}: {count} of {len(paths)} files changed, in {seconds:.0f} s", flush=True)


@click.command()
@click.option(
    "--make",
    "names",
    multiple=True,
    type=click.Choice([*TARGETS, "all"]),
    help="Make these files again; all: those that are out of date.",
)
def main(names: tuple[str, ...]) -> None:
    """List the generated files that are out of date, or make files again."""
    for name in TARGETS:
        if name in names or ("all" in names and changes(name)):
            make(name)
        elif not names and (paths := changes(name)):
            files = ", ".join(TARGETS[name].files)
            more = f" and {len(paths) - 1} more" if paths[1:] else ""
            print(f"{files} ({paths[0]}{more} changed): python -m tests.stale --make {name}")


if __name__ == "__main__":
    main()
