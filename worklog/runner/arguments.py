"""GPU arrays among the arguments of a call, also inside lists, tuples, dicts and dataclasses, and copies of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from worklog.errors import BadSetting
from worklog.harness import input_sets

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
ArgumentSet = tuple[Arguments, dict[int, Any]]  # with the copy of each original, by the original's id


def on_gpu(value: Any) -> bool:
    """A CuPy array or a PyTorch tensor on a GPU."""
    return hasattr(value, "__cuda_array_interface__") or bool(getattr(value, "is_cuda", False))


def arrays(value: Any) -> list[Any]:
    """The GPU arrays in a value, each once. Attributes of objects that aren't dataclasses are not searched."""
    found: dict[int, Any] = {}
    _replaced(value, lambda array: found.setdefault(id(array), array))
    return list(found.values())


DATAPATHS = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def datapath_of(value: Any) -> str | None:
    """The datapath (worklog.gpu.peaks) of the floating-point dtype that all GPU arrays in a value share; else None."""
    names = {str(getattr(array, "dtype", "")).rpartition(".")[2] for array in arrays(value)}
    paths = {DATAPATHS.get(name, "fp8" if name.startswith("float8") else None) for name in names if "float" in name}
    return paths.pop() if len(paths) == 1 else None


def bytes_of(value: Any) -> int:
    """Bytes of these arrays."""
    return sum(int(array.nbytes) for array in arrays(value))


def rotation(args: tuple[Any, ...], kwargs: Mapping[str, Any], l2_bytes: int) -> list[ArgumentSet]:
    """The arguments and copies of them, as many as evict each other from L2; what isn't an array is shared. Raises
    BadSetting if there is no array: those in a closure or in an object's attributes can't be found.
    """
    whole = (args, dict(kwargs))
    if not (size := bytes_of(whole)):
        raise BadSetting("l2 = rotate: no GPU array among the arguments to copy; pass the arrays as arguments")
    return [(whole, {}), *(_copied(whole) for _ in range(input_sets(size, l2_bytes) - 1))]


def _copied(whole: Arguments) -> ArgumentSet:
    copies = {id(array): _copy(array) for array in arrays(whole)}
    return _replaced(whole, lambda array: copies[id(array)]), copies


def _replaced(value: Any, new: Callable[[Any], Any], inside: tuple[int, ...] = ()) -> Any:
    """The value with `new` of each GPU array in it; containers without one stay the same objects."""
    if on_gpu(value):
        return new(value)
    if id(value) in inside:
        raise BadSetting(f"l2 = rotate: a {type(value).__name__} among the arguments contains itself")
    if isinstance(value, dict):
        keys, parts = [*value], [*value.values()]
    elif isinstance(value, (list, tuple)):
        keys, parts = [*range(len(value))], [*value]
    elif is_dataclass(value) and not isinstance(value, type):
        keys = [one.name for one in fields(value) if hasattr(value, one.name)]
        parts = [getattr(value, key) for key in keys]
    else:
        return value
    others = [_replaced(part, new, (*inside, id(value))) for part in parts]
    if all(other is part for other, part in zip(others, parts, strict=True)):
        return value
    if isinstance(value, tuple):
        return value._make(others) if hasattr(value, "_make") else type(value)(others)
    found = copy(value)
    for key, other in zip(keys, others, strict=True):
        if isinstance(found, (dict, list)):
            found[key] = other
        else:
            object.__setattr__(found, key, other)  # frozen ones too
    return found


def _copy(array: Any) -> Any:
    """With the same strides, since another order of the elements may run another kernel."""
    if hasattr(array, "detach"):
        return array.detach().clone().requires_grad_(array.requires_grad)
    if not hasattr(array, "copy"):
        raise BadSetting(
            f"l2 = rotate: a {type(array).__name__} can't be copied: pass a CuPy array or a PyTorch tensor"
        )
    return array.copy(order="K")
