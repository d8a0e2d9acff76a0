"""JSON documents: written atomically, and checked against the types of a dataclass when they are read again.

A file may have been cut, edited, or written by another tool. What is checked on opening needs no check later.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from worklog.errors import BadRunFile, BadSetting

T = TypeVar("T")
types_of: Callable[[type], dict[str, Any]] = cache(get_type_hints)  # a run file holds hundreds of measurements


def check(what: str, value: Any, declared: Any) -> None:
    """Raise ValueError, naming the part, where JSON's value isn't as declared: by a type, by {name: declaration}, whose
    names must all be there ("name?" may be missing) and others may, or by [declaration of each item].
    """
    if isinstance(declared, dict) and isinstance(value, dict):
        for word, part in declared.items():
            name = word.removesuffix("?")
            if name in value:
                check(f"{what} {name}".strip(), value[name], part)
            elif name == word:
                raise ValueError(f"{what or 'the document'} lacks {name}")
    elif isinstance(declared, list) and isinstance(value, list):
        for number, item in enumerate(value, 1):
            check(f"{what} {number}", item, declared[0])
    elif isinstance(declared, (dict, list)) or not fits(value, declared):
        raise ValueError(f"{what} is {value!r:.60}")


def check_date(value: str) -> None:
    """Raise ValueError for what isn't a date."""
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f"created is {value!r:.60}: give a date as 2026-11-21T05:20:00") from error


def read_fields(cls: type[T], document: dict[str, Any]) -> T:
    """The object of a dataclass that a document holds; what another version added is ignored. Raises ValueError for a
    field of another type, TypeError for a missing one.
    """
    values = {name: document[name] for name in types_of(cls) if name in document}
    check("", values, {name: types_of(cls)[name] for name in values})
    return cls(**values)


def read_part(cls: type[T], document: dict[str, Any], what: str) -> T:
    """The same for a part of a run. Raises BadRunFile, which names the part."""
    try:
        return read_fields(cls, document)
    except (TypeError, ValueError) as error:
        raise BadRunFile(f"the run's {what} isn't whole ({error}): measure again, or take another run") from error


def fits(value: Any, hint: Any) -> bool:
    """Whether JSON's value is of the declared type; a list will do for a tuple, an integer for a float."""
    if type(value) is hint:
        return True
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is dict:
        if not isinstance(value, dict) or (parts[0] is float and not all(map(_number, value))):  # JSON's are strings
            return False
        return all(fits(item, parts[1]) for item in value.values())
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            return False
        if origin is tuple and Ellipsis not in parts:
            return len(value) == len(parts) and all(map(fits, value, parts))
        if set(map(type, value)) <= set(get_args(parts[0]) or parts) & {int, float, NoneType}:  # 100,000 samples
            return True
        return parts[0] is Any or all(fits(item, parts[0]) for item in value)
    return hint is Any or isinstance(value, hint)


def _number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def not_finite(value: Any) -> str | None:
    """Which part of a document is NaN, infinite, or an integer beyond the floats; None where there isn't one."""
    if isinstance(value, str):
        return None
    items = value.items() if isinstance(value, dict) else enumerate(value, 1) if isinstance(value, list) else ()
    with suppress(TypeError, OverflowError):  # not numbers alone, or one that is too large
        if not isinstance(value, dict) and all(map(math.isfinite, value if items else [value])):
            return None
    for name, item in items:
        if (found := not_finite(item)) is not None:
            return f"{name!s:.60} {found}"
    return "isn't a finite number" if isinstance(value, (int, float)) else None


def without_nan(value: Any) -> Any:
    """NaN and infinities as null, since JSON has neither."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a user's file. Raises OSError and UnicodeDecodeError."""
    require_file(path)
    return path.read_text(encoding=encoding)


def require_file(path: Path) -> None:
    """Raise OSError for a pipe or a device, reading of which may never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def not_writable(folder: Path) -> str | None:
    """Why nothing can be written into a folder, or into the nearest one above it where it is yet to be made; None where
    that works.
    """
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


def write_text(path: Path, document: dict[str, Any] | str) -> None:
    """Write a document, or its text, atomically. Raises BadRunFile if that isn't possible."""
    text = document
    if not isinstance(text, str):
        text = json.dumps(without_nan(document), indent=1, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, text.encode())
    except OSError as error:
        raise BadRunFile(f"cannot write {path}: {error.strerror}; give another place with --out") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one atomic step: it keeps its old content where that fails. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        with suppress(OSError):  # it exists only if it did not become the target
            temporary.unlink()


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


def read_json(path: Path, kind: str | None, schemas: Sequence[int], advice: str) -> dict[str, Any]:
    """The document of a file of this kind (a run states none) and one of these schemas. Raises BadRunFile, ending in
    `advice`.
    """
    try:
        document: Any = json.loads(read_text(path))
        infinite = not_finite(document)
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {advice}") from error
    except (ValueError, RecursionError) as error:
        raise BadRunFile(
            f"{path} is not a whole JSON document: it was cut short or is another format ({error}): {advice}"
        ) from error
    if infinite is not None:
        raise BadRunFile(f"{path}: {infinite}: {advice}")
    if not isinstance(document, dict) or document.get("kind") != kind:
        found = document.get("kind") if isinstance(document, dict) else None
        raise BadRunFile(f"{path} holds {found or 'another document'!s:.60}, not {kind or 'a run'}: {advice}")
    schema = document.get("schema")
    if type(schema) is not int or schema not in schemas:
        newer = isinstance(schema, int) and schema > max(schemas)
        what_to_do = "install a newer gemm-worklog" if newer else advice
        raise BadRunFile(f"{path} has schema {schema!r:.60}; this version reads {max(schemas)}: {what_to_do}")
    return document
