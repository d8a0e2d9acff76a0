"""The tensor maps that host code passes, from the recorded calls of cuTensorMapEncodeTiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from worklog.errors import BadSetting
from worklog.kernel.host.fit import Integers, fitted
from worklog.kernel.host.records import MAX_MAPS, Records
from worklog.kernel.signature import MAP_TYPE
from worklog.kernel.source import nodes, text_of
from worklog.kernel.tensor_map import DRIVER_TYPES, PROMOTIONS, SWIZZLES, MatrixMap
from worklog.kernel.unit import Definition, Unit
from worklog.problem.formats import FORMATS

ENCODE = "cuTensorMapEncodeTiled"
ARGUMENTS_OF_ENCODE = 12
FORMAT_NAMES = {number: name for name, number in DRIVER_TYPES.items()}
STATED_ONCE = ("rank", "type", "interleave", "swizzle", "promotion", "fill")


def passed_maps(
    target: Definition, sizes: Integers, records: Records, names: Sequence[str]
) -> tuple[MatrixMap, ...]:
    """Return the tensor maps of a kernel's launches, in the order of its parameters.

    sizes: of each record
    names: of the inputs
    Raises BadSetting for a map that isn't an expression of the sizes.
    """
    parameters = [parameter for parameter in target.parameters if parameter.type == MAP_TYPE]
    if len(parameters) > MAX_MAPS:
        raise BadSetting(f"the kernel takes more than {MAX_MAPS} tensor maps")
    maps = list[MatrixMap]()
    for number, parameter in enumerate(parameters):
        encoded = records["maps"][:, number]
        try:
            maps.append(_read(parameter.name, encoded, sizes, names))
        except BadSetting as error:
            raise BadSetting(f"the tensor map {parameter.name} isn't read: {error}") from error
    return tuple(maps)


def _read(parameter: str, encoded: Any, sizes: Integers, names: Sequence[str]) -> MatrixMap:
    """Return the map that is encoded in records. Raises BadSetting.

    sizes, names: as for passed_maps
    """
    if not encoded["is_encoded"].all():
        raise BadSetting(f"no call of {ENCODE} makes it")
    for field in STATED_ONCE:
        if len(np.unique(encoded[field])) > 1:
            raise BadSetting(f"its {field} depends on the sizes")
    first = encoded[0]
    format_ = FORMATS.get(FORMAT_NAMES.get(int(first["type"]), ""))
    if format_ is None:
        raise BadSetting("its elements aren't float, __half or __nv_bfloat16")
    if first["interleave"]:
        raise BadSetting("it is interleaved")
    if first["swizzle"] >= len(SWIZZLES):
        raise BadSetting("its swizzle isn't 32B, 64B or 128B")

    def texts(field: str, count: int) -> tuple[str, ...]:
        numbers = encoded[field].astype(np.int64)
        try:
            return tuple(fitted(sizes, numbers[:, place], names) for place in range(count))
        except BadSetting as error:
            raise BadSetting(f"no expression of M, N and K gives its {field}") from error

    rank = int(first["rank"])
    steps = texts("steps", rank)
    return MatrixMap(
        parameter=parameter,
        box=texts("box", rank),
        format=format_,
        sizes=texts("sizes", rank),
        strides=texts("strides", rank - 1),
        steps=steps if {*steps} != {"1"} else (),
        swizzle=SWIZZLES[int(first["swizzle"])],
        promotion=PROMOTIONS[int(first["promotion"])],
        has_nan=bool(first["fill"]),
    )


def encoding_lines(unit: Unit) -> list[int]:
    """Return the lines of calls that make a tensor map.

    Such a call has the name of the driver's function or a pointer to it.
    """
    lines = list[int]()
    for function in unit.functions:
        for node in nodes(function.body, "call_expression"):
            arguments = node.child_by_field_name("arguments")
            callee = text_of(node.child_by_field_name("function"))
            is_call = arguments is not None and len(arguments.named_children) == ARGUMENTS_OF_ENCODE
            line = function.line(node.start_byte)
            if line and (is_call or callee.endswith(ENCODE)):
                lines.append(line)
    return sorted({*lines})
