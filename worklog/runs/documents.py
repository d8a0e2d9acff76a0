"""Whether what a JSON document holds is what a dataclass declares: for every file that this package reads again.

A file may have been cut, edited, or written by another tool. What is checked when it is opened needs no check later.
"""

from __future__ import annotations

import math
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def check_types(cls: type, values: dict[str, Any]) -> None:
    """Raise TypeError for a value that is not what the dataclass's field of that name is declared as. A name that is no
    field's is left alone: a later tool may have added it.
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
