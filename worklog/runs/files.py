"""Files of results: read with checks, and written atomically.

A file may have been cut, edited, or written by another tool. So documents are checked against
declared types when they are opened, and later code needs no checks.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from worklog import __version__
from worklog.errors import BadRunFile, BadSetting

T = TypeVar("T")
# Numbers with limits. Don't declare `Positive | tuple[int, int]`: msgspec 0.22 crashes on a union
# of such a number with a tuple of fixed length.
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(gt=0, le=2**62)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d")]
WRITTEN: dict[Path, None] = {}  # files that this process has written for its user, in order


def read_text(path: Path) -> str:
    """Return the text of a user's file. Raises OSError and UnicodeDecodeError."""
    require_file(path)
    return path.read_text(encoding="utf-8")


def require_file(path: Path) -> None:
    """Raise OSError for a pipe or a device: reading from it may never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def git(*arguments: str, folder: Path = Path()) -> bytes:
    """Return the output of a git command. Raises BadSetting with git's own first line."""
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadSetting(f"cannot run git: {error}; install it, or name files") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        first_line = lines[0] if lines else "it failed"
        advice = "give a revision and a path that it holds"
        if "not a git repository" in first_line:
            advice = "run it in a git repository, or name files"
        raise BadSetting(f"git {arguments[0]}: {first_line}; {advice}") from error


# The files that decide how a launch is timed: if they change, a time may differ.
TIMING = ("harness/*.py", "harness/*.cu", "runner/launches.py", "runs/statistics.py")


def tool() -> dict[str, Any]:
    """Return this package's name, version and commit, for a file of results.

    commit: of the checkout that the package runs from. For a copy without .git, WORKLOG_COMMIT
        names it. An installed wheel has none.
    dirty: whether the checkout has changed since
    harness: a hash of the files that decide how a launch is timed
    """
    package = Path(__file__).resolve().parents[1]
    description = {"name": "gemm-worklog", "version": __version__, "harness": _timing_hash(package)}
    root = package.parent
    if not (root / ".git").exists():
        commit = os.environ.get("WORKLOG_COMMIT")
        return {**description, "commit": commit} if commit else description
    try:
        is_dirty = bool(git("status", "--porcelain", "--untracked-files=no", folder=root))
        commit = git("rev-parse", "HEAD", folder=root).decode().strip()
    except BadSetting:
        return description
    return {**description, "commit": commit, "dirty": is_dirty}


def _timing_hash(package: Path) -> str:
    """Return a hash of the files that decide how a launch is timed."""
    paths = list[Path]()
    for pattern in TIMING:
        paths += package.glob(pattern)
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def read_json(path: Path, to: type[T], *, kind: str, schema: int, advice: str) -> tuple[Any, T]:
    """Return a document as JSON decodes it, and converted to a type.

    to: a type whose fields the document must have; other fields are ignored
    kind: of the document
    schema: the one that is accepted
    Raises BadRunFile, ending in `advice`, for any other file.
    """
    try:
        document: Any = msgspec.json.decode(read_text(path))
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {advice}") from error
    except (ValueError, RecursionError) as error:
        fault = f"is not a whole JSON document: it was cut short or is another format ({error})"
        raise BadRunFile(f"{path} {fault}: {advice}") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        content = document.get("kind") if isinstance(document, dict) else None
        raise BadRunFile(
            f"{path} holds {content or 'another document'!s:.60}, not {kind}: {advice}"
        )
    require_schema(path, document.get("schema"), schema, advice)
    try:
        return document, msgspec.convert(document, to, str_keys=True)
    except ValueError as error:
        raise BadRunFile(f"{path} isn't a whole document of {kind} ({error}): {advice}") from error


def require_schema(path: Path, stated: object, known: int, advice: str) -> None:
    """Raise BadRunFile, with advice, unless a document states the known schema."""
    if type(stated) is int and stated == known:
        return
    if isinstance(stated, int) and stated > known:
        advice = "install a newer gemm-worklog"
    text = "no schema" if stated is None else f"schema {stated!r:.60}"
    raise BadRunFile(f"{path} has {text}; this version reads {known}: {advice}")


def write_text(path: Path, document: dict[str, Any] | str) -> None:
    """Write a text, or a document as JSON (NaN as null), atomically.

    Raises BadRunFile if that isn't possible.
    """
    if isinstance(document, str):
        write_bytes(path, document.encode())
        return
    json = msgspec.json.encode(document, enc_hook=float)  # enc_hook converts NumPy's numbers
    write_bytes(path, msgspec.json.format(json, indent=1) + b"\n")


def write_bytes(path: Path, content: bytes, advice: str = "give another place with --out") -> None:
    """Write a user's file in one atomic step, and create its folder.

    Raises BadRunFile, ending in `advice`, if that isn't possible; the old content stays.
    """
    write_atomically(path, content, advice)
    WRITTEN[path] = None


def write_atomically(path: Path, content: bytes, advice: str) -> None:
    """Write a file that users don't ask for, such as a cache entry.

    Works like write_bytes()."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if not path.parent.exists():  # if it's a file, the write fails
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)  # exists only if it didn't become the target
    except OSError as error:
        raise BadRunFile(f"cannot write {path}: {error.strerror}; {advice}") from error


def written_so_far() -> str:
    """Describe the files written by this process, for the message of an interrupt."""
    match len(WRITTEN):
        case 0:
            return "nothing was saved"
        case 1:
            return f"saved: {next(iter(WRITTEN))}"
        case number:
            return f"{number} files were saved, the last one is {next(reversed(WRITTEN))}"


def not_writable(folder: Path) -> str | None:
    """Return the reason why a folder isn't writable; None if it is.

    Tests the nearest parent if the folder doesn't exist.
    """
    parents = (parent for parent in (folder, *folder.parents) if parent.exists())
    existing = next(parents, folder)
    try:
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return f"{existing}: {error.strerror}"


def require_writable(folder: Path, subject: str, advice: str) -> None:
    """Raise BadSetting, ending in `advice`, unless a folder is writable.

    subject: the files for the folder, for the message
    """
    if reason := not_writable(folder):
        raise BadSetting(f"cannot write {subject}: {reason}; {advice}")


@contextmanager
def reserve(path: Path) -> Iterator[None]:
    """Reserve the file of a command's results before the command's work starts.

    So no other process writes there. The file is deleted if it stays empty.
    Raises BadRunFile for a file that exists or isn't writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        if path.exists():
            raise BadRunFile(
                f"{path} exists already: give --out another name, or remove it first"
            ) from error
        advice = "give another place with --out, or set WORKLOG_HOME"
        raise BadRunFile(f"cannot write {path}: {error.strerror}; {advice}") from error
    try:
        yield
    finally:
        if not path.stat().st_size:
            path.unlink()
