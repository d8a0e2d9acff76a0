"""JSON documents: written atomically, and checked against declared types when they are read again.

A file may have been cut, edited, or written by another tool. What is checked on opening needs no check later.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from worklog.errors import BadRunFile, BadSetting

T = TypeVar("T")
# Numbers with limits. Don't declare `Positive | tuple[int, int]`: msgspec 0.22 crashes on a union of such a number with
# a tuple of fixed length.
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(gt=0, le=2**62)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d")]


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a user's file. Raises OSError and UnicodeDecodeError."""
    require_file(path)
    return path.read_text(encoding=encoding)


def require_file(path: Path) -> None:
    """Raise OSError for a pipe or a device, reading of which may never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def git(*words: str, folder: Path = Path()) -> bytes:
    """What a git command prints. Raises BadSetting with git's own first line."""
    try:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True).stdout
    except OSError as error:
        raise BadSetting(f"cannot run git: {error.strerror}; install it, or name files") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines() or ["it failed"]
        raise BadSetting(f"git {words[0]}: {said[0]}; give a revision and a path that it holds") from error


def read_json(path: Path, to: type[T], kind: str | None, schemas: Sequence[int], advice: str) -> tuple[Any, T]:
    """The document of a file of this kind (a run states none) and one of these schemas: as JSON gives it, and as a type
    whose fields it must hold; others are ignored. Raises BadRunFile, ending in `advice`.
    """
    try:
        document: Any = msgspec.json.decode(read_text(path))
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {advice}") from error
    except (ValueError, RecursionError) as error:
        what = f"is not a whole JSON document: it was cut short or is another format ({error})"
        raise BadRunFile(f"{path} {what}: {advice}") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        holds = document.get("kind") if isinstance(document, dict) else None
        raise BadRunFile(f"{path} holds {holds or 'another document'!s:.60}, not {kind or 'a run'}: {advice}")
    require_schema(path, document.get("schema"), schemas, advice)
    try:
        return document, msgspec.convert(document, to, str_keys=True)
    except ValueError as error:
        raise BadRunFile(f"{path} isn't a whole document of {kind or 'a run'} ({error}): {advice}") from error


def require_schema(path: Path, schema: object, known: Sequence[int], advice: str) -> None:
    """Raise BadRunFile, saying what to do, for a document of a schema that this version doesn't know."""
    if type(schema) is not int or schema not in known:
        newer = isinstance(schema, int) and schema > max(known)
        what_to_do = "install a newer gemm-worklog" if newer else advice
        raise BadRunFile(f"{path} has schema {schema!r:.60}; this version reads {max(known)}: {what_to_do}")


def write_text(path: Path, document: dict[str, Any] | str) -> None:
    """Write a text, or a document as JSON (NaN as null), atomically. Raises BadRunFile if that isn't possible."""
    if isinstance(document, str):
        write_bytes(path, document.encode())
    else:  # enc_hook: NumPy's numbers
        write_bytes(path, msgspec.json.format(msgspec.json.encode(document, enc_hook=float), indent=1) + b"\n")


def write_bytes(path: Path, content: bytes, advice: str = "give another place with --out") -> None:
    """Write a file in one atomic step, and its folder. Raises BadRunFile, ending in `advice`: the old content stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)  # it exists only if it did not become the target
    except OSError as error:
        raise BadRunFile(f"cannot write {path}: {error.strerror}; {advice}") from error


def not_writable(folder: Path) -> str | None:
    """Why nothing can be written into a folder, or the nearest one above that exists; None where that works."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return f"{there}: {error.strerror}"


def require_writable(folder: Path, what: str, advice: str) -> None:
    """Raise BadSetting, ending in `advice`, where nothing can be written into a folder."""
    if why := not_writable(folder):
        raise BadSetting(f"cannot write {what}: {why}; {advice}")


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Create the file of a command's results before its work starts, so that no other process writes there. It is
    removed where nothing was written. Raises BadRunFile for a file that exists, or that cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        if path.exists():
            raise BadRunFile(f"{path} exists already: give --out another name, or remove it first") from error
        advice = "give another place with --out, or set WORKLOG_HOME"
        raise BadRunFile(f"cannot write {path}: {error.strerror}; {advice}") from error
    try:
        yield
    finally:
        if not path.stat().st_size:
            path.unlink()
