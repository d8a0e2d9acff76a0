"""GPU arrays among the arguments of a call, also inside lists, tuples, dicts and dataclasses, and copies of them."""

from __future__ import annotations

from collections.abc import Callable, Container
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from worklog.errors import BadSetting
from worklog.harness import input_sets

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
DATAPATHS = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}
ArgumentSet = tuple[Arguments, dict[int, Any]]  # with the copy of each original, by the original's id


def on_gpu(value: Any) -> bool:
    """A CuPy array or a PyTorch tensor on a GPU."""
    return hasattr(value, "__cuda_array_interface__") or bool(getattr(value, "is_cuda", False))


def arrays(value: Any) -> list[Any]:
    """The GPU arrays in a value, each once. Attributes of objects that aren't dataclasses are not searched."""
    by_id: dict[int, Any] = {}
    _replaced(value, lambda array: by_id.setdefault(id(array), array))
    return list(by_id.values())


def datapath_of(value: Any, peaks: Container[str]) -> str | None:
    """The datapath (worklog.gpu.peaks), one of peaks, of the floating-point dtype that all GPU arrays in a value share;
    else None.
    """
    names = {str(getattr(array, "dtype", "")).rpartition(".")[2] for array in arrays(value)}
    paths = {DATAPATHS.get(name, "fp8" if name.startswith("float8") else "") for name in names if "float" in name}
    if len(paths) != 1:
        return None
    (path,) = paths
    path = "fp64_tensor" if path == "fp64" and "fp64_tensor" in peaks else path
    return path if path in peaks else None


def bytes_of(value: Any) -> int:
    """Bytes of these arrays."""
    return sum(int(array.nbytes) for array in arrays(value))


def rotation(given: Arguments, l2_bytes: int) -> list[ArgumentSet]:
    """The arguments and copies of them, as many as evict each other from L2; what isn't an array is shared. Raises
    BadSetting if there is no array: those in a closure or in an object's attributes can't be found.
    """
    if not (size := bytes_of(given)):
        raise BadSetting("l2 = rotate: no GPU array among the arguments to copy; pass the arrays as arguments")
    sets: list[ArgumentSet] = [(given, {})]
    for _ in range(input_sets(size, l2_bytes) - 1):
        copies = {id(array): _copy(array) for array in arrays(given)}
        sets.append((_replaced(given, lambda array, copies=copies: copies[id(array)]), copies))  # type: ignore[misc]
    return sets


def _replaced(value: Any, new: Callable[[Any], Any], inside: tuple[int, ...] = ()) -> Any:
    """The value with `new` of each GPU array in it; containers without one stay the same objects."""
    if on_gpu(value):
        return new(value)
    if id(value) in inside:
        raise BadSetting(f"l2 = rotate: a {type(value).__name__} among the arguments contains itself")
    if isinstance(value, dict):
        parts = dict(value)
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if hasattr(value, field.name)}
    else:
        return value
    others = {key: _replaced(part, new, (*inside, id(value))) for key, part in parts.items()}
    changed = {key: other for key, other in others.items() if other is not parts[key]}
    if changed and isinstance(value, tuple):
        return value._make(others.values()) if hasattr(value, "_make") else type(value)(others.values())
    same = copy(value) if changed else value
    for key, other in changed.items():
        if isinstance(same, (dict, list)):
            same[key] = other
        else:
            object.__setattr__(same, key, other)  # frozen ones too
    return same


def _copy(array: Any) -> Any:
    """With the same strides, since another order of the elements may run another kernel."""
    if hasattr(array, "detach"):
        return array.detach().clone().requires_grad_(array.requires_grad)
    if not hasattr(array, "copy"):
        kind = type(array).__name__
        raise BadSetting(f"l2 = rotate: a {kind} can't be copied: pass a CuPy array or a PyTorch tensor")
    return array.copy(order="K")
