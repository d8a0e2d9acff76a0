"""Copies of a call's arguments, as many as evict each other from L2."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from worklog.errors import BadSetting
from worklog.harness import batches

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
# Arguments with the copy of each original, by the original's id.
ArgumentSet = tuple[Arguments, dict[int, Any]]


def on_gpu(value: Any) -> bool:
    """Return whether a value is a CuPy array or a PyTorch tensor on a GPU."""
    return hasattr(value, "__cuda_array_interface__") or bool(getattr(value, "is_cuda", False))


def arrays(value: Any) -> list[Any]:
    """Return the GPU arrays in a value, each once.

    Arrays are also found inside lists, tuples, dicts and dataclasses.
    """
    by_id: dict[int, Any] = {}
    _replaced(value, lambda array: by_id.setdefault(id(array), array))
    return list(by_id.values())


def rotation(arguments: Arguments, l2_bytes: int) -> list[ArgumentSet]:
    """Return the arguments and copies of them, as many as evict each other from L2.

    Values that aren't arrays are shared. Arrays in a closure or in an object's attributes aren't
    found.

    Raises BadSetting if there is no array.
    """
    size_bytes = sum(int(array.nbytes) for array in arrays(arguments))
    if not size_bytes:
        raise BadSetting(
            "l2 = rotate: no GPU array among the arguments to copy; pass the arrays as arguments"
        )
    sets: list[ArgumentSet] = [(arguments, {})]
    for _ in range(batches.input_sets(size_bytes, l2_bytes) - 1):
        copies = {id(array): _copy(array) for array in arrays(arguments)}
        replaced = _replaced(arguments, lambda array, copies=copies: copies[id(array)])  # type: ignore[misc]
        sets.append((replaced, copies))
    return sets


def _replaced(value: Any, new: Callable[[Any], Any], containers: tuple[int, ...] = ()) -> Any:
    """Return the value with each of its GPU arrays replaced.

    Containers without a GPU array stay the same objects.

    new: returns the replacement of an array
    containers: ids of the containers that hold the value
    """
    if on_gpu(value):
        return new(value)
    if id(value) in containers:
        raise BadSetting(
            f"l2 = rotate: a {type(value).__name__} among the arguments contains itself"
        )
    parts = _parts(value)
    if parts is None:
        return value
    containers = (*containers, id(value))
    replaced = {key: _replaced(part, new, containers) for key, part in parts.items()}
    changed = {key: part for key, part in replaced.items() if part is not parts[key]}
    if not changed:
        return value
    if isinstance(value, tuple):
        if hasattr(value, "_make"):
            return value._make(replaced.values())
        return type(value)(replaced.values())
    container = copy(value)
    for key, part in changed.items():
        if isinstance(container, (dict, list)):
            container[key] = part
        else:
            object.__setattr__(container, key, part)  # frozen ones too
    return container


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return the parts of a container by key, index or field.

    None if the value isn't a container.
    """
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if hasattr(value, field.name)]
        return {name: getattr(value, name) for name in names}
    return None


def _copy(array: Any) -> Any:
    """Return a copy with the same strides.

    Another order of the elements may run another kernel.
    """
    if hasattr(array, "detach"):
        return array.detach().clone().requires_grad_(array.requires_grad)
    if not hasattr(array, "copy"):
        kind = type(array).__name__
        raise BadSetting(
            f"l2 = rotate: a {kind} can't be copied: pass a CuPy array or a PyTorch tensor"
        )
    return array.copy(order="K")
