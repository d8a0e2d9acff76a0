"""JSON documents: written atomically, and checked against the types of a dataclass when they are read again.

A file may have been cut, edited, or written by another tool. What is checked on opening needs no check later.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from worklog.errors import BadRunFile


def check_types(cls: type, values: dict[str, Any]) -> None:
    """Raise TypeError for a value that is not what the dataclass's field of that name is declared as. Other names
    are ignored: a later tool may have added them.
    """
    hints = get_type_hints(cls)
    for name, value in values.items():
        if name in hints and not fits(value, hints[name]):
            raise TypeError(f"{name} is {value!r:.60}")


def fits(value: Any, hint: Any) -> bool:
    """Whether JSON's value is of the declared type; a list will do for a tuple, an integer for a float."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, parts[1]) for item in value.values())
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            return False
        if origin is tuple and Ellipsis not in parts:
            return len(value) == len(parts) and all(map(fits, value, parts))
        return parts[0] is Any or all(fits(item, parts[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return hint is Any or isinstance(value, hint)


def without_nan(value: Any) -> Any:
    """NaN and infinities as null: JSON has neither."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def finite(text: str) -> float:
    """A number of the file, for json.loads. Raises ValueError for NaN and infinities: they could not be saved again."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is no finite number")
    return number


def write_text(path: Path, document: dict[str, Any] | str) -> None:
    """Write a document, or its text, in one atomic step. Raises BadRunFile where that is not possible."""
    text = (
        document if isinstance(document, str) else json.dumps(without_nan(document), indent=1, allow_nan=False) + "\n"
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise BadRunFile(f"cannot write {path}: {error.strerror}; give another place with --out") from error
    finally:
        with suppress(OSError):  # it exists only if it did not become the target
            temporary.unlink()


def read_json(path: Path, kind: str, schemas: Sequence[int], advice: str) -> dict[str, Any]:
    """The document of a file of this kind and one of these schemas. Raises BadRunFile, ending in `advice`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_float=finite, parse_constant=finite)
    except (OSError, ValueError, RecursionError) as error:
        raise BadRunFile(f"cannot read {path} ({error}): {advice}") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise BadRunFile(f"{path} is not a document of {kind}: {advice}")
    if document.get("schema") not in schemas:
        found = document.get("schema")
        raise BadRunFile(
            f"{path} has schema {found!r}; this version reads {max(schemas)}: install a newer gemm-worklog"
        )
    return document
