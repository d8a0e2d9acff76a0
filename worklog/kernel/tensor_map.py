"""Tensor maps (CUtensorMap): what a kernel's parameter says of a matrix, and of a copy's box.

A source states them in a comment, or its host code makes them with cuTensorMapEncodeTiled
(worklog.kernel.host.tensor_maps). For each launch a map is bound to the matrix' address and to the
sizes: the emulator has its own encoding, and a GPU gets the driver's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.launch import stated
from worklog.kernel.signature import (
    ADDRESS_OF_MAP,
    MAP_OF,
    MATRICES,
    SIZE_NAMES,
    is_map,
    mapped_matrix,
)
from worklog.kernel.source import evaluate, filled, reduced, split_list
from worklog.problem import TYPES
from worklog.problem.formats import FLOAT32, FORMATS, Format, Types

LABEL = "tensor maps?"  # in comments
EXAMPLE = "// tensor maps: tma_a = A, box 64 x 32 of float, swizzle 128B; tma_b = B, box 32 x 64"
# Of a row-major matrix, the innermost dimension first.
SIZES = {"A": ("K", "M"), "B": ("N", "K"), "C": ("N", "M")}
SWIZZLES = (0, 32, 64, 128)  # bytes
PROMOTIONS = (0, 64, 128, 256)  # bytes
DRIVER_TYPES = {"float16": 6, "float32": 7, "bfloat16": 9}  # of cuda.h's CUtensorMapDataType
MOST_DIMENSIONS = 5
MOST_IN_A_BOX = 256  # elements along a dimension
GRAIN = 16  # bytes, of addresses, strides and the box's innermost dimension
STEPS = (1, 2, 4, 8, 16)  # of a size in the domain


@dataclass(frozen=True)
class MatrixMap:
    """A tensor map, in terms of M, N and K and of the template's parameters.

    All sequences of dimensions begin with the innermost one, as for the driver.
    """

    parameter: str  # of the kernel
    box: tuple[str, ...]  # elements along each dimension
    format: Format = FLOAT32  # of the elements
    sizes: tuple[str, ...] = ()  # of the tensor; empty for the matrix'
    strides: tuple[str, ...] = ()  # bytes, of dimensions 1 and up; empty without gaps
    steps: tuple[str, ...] = ()  # element strides; empty for 1
    swizzle: int = 0  # bytes
    promotion: int = 0  # bytes that a copy fetches into the L2 cache
    has_nan: bool = False  # whether elements outside of the tensor are NaN, not 0

    def __str__(self) -> str:
        text = f"box {' x '.join(reversed(self.box))} of {self.format.cuda}"
        if self.sizes:
            text += f" in {' x '.join(reversed(self.sizes))}"
        if self.swizzle:
            text += f", swizzle {self.swizzle}B"
        if self.promotion:
            text += f", L2 {self.promotion}B"
        return f"{text}, fill NaN" if self.has_nan else text

    def sizes_of(self, matrix: str) -> tuple[str, ...]:
        """Return the sizes of the tensor, the innermost first."""
        return self.sizes or SIZES[matrix]

    def layout(self, matrix: str, names: tuple[tuple[str, int], ...]) -> MapLayout:
        """Return the map of a matrix at some sizes.

        names: M, N, K and the template's parameters, with their values
        Raises BadSetting for a map that the driver doesn't make.
        """
        return _layout(self, matrix, names)


@dataclass(frozen=True)
class MapLayout:
    """A tensor map without its address. Its fields are as in MatrixMap."""

    format: Format
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int
    promotion: int
    has_nan: bool

    @property
    def row_bytes(self) -> int:
        """The bytes of a box along its innermost dimension."""
        return self.box[0] * self.format.itemsize

    def mistake(self) -> str:
        """Describe why cuTensorMapEncodeTiled doesn't make the map; "" if it does."""
        dimensions = len(self.sizes)
        if not 1 <= dimensions <= MOST_DIMENSIONS or len(self.box) != dimensions:
            return f"the box has {len(self.box)} dimensions, and the tensor has {dimensions}"
        if not all(1 <= size <= MOST_IN_A_BOX for size in self.box):
            return f"a box has 1 to {MOST_IN_A_BOX} elements along each dimension"
        row = f"a row of the box has {self.row_bytes} bytes"
        if self.row_bytes % GRAIN:
            return f"{row}, which is no multiple of {GRAIN}"
        if self.swizzle and self.row_bytes > self.swizzle:
            return f"{row}, more than the swizzle's {self.swizzle}"
        for stride in self.strides:
            if stride % GRAIN:
                return f"its rows are {stride} bytes apart, which is no multiple of {GRAIN}"
        return ""


@dataclass(frozen=True)
class BoundMap:
    """A tensor map of a matrix in memory: the argument of a launch."""

    buffer: Any  # of the device, with the matrix
    matrix: str
    layout: MapLayout
    is_pointer: bool  # whether the kernel takes the address of the map, in global memory


@lru_cache(maxsize=1024)  # a timed launch parses nothing
def _layout(tensor_map: MatrixMap, matrix: str, names: tuple[tuple[str, int], ...]) -> MapLayout:
    """Return the map of a matrix at some sizes, as MatrixMap.layout."""
    values = dict(names)

    def numbers(texts: Sequence[str]) -> tuple[int, ...]:
        return tuple(int(evaluate(text, values)) for text in texts)

    sizes = numbers(tensor_map.sizes_of(matrix))
    strides = numbers(tensor_map.strides)
    if not strides:
        itemsize = tensor_map.format.itemsize
        strides = tuple(itemsize * prod(sizes[:count]) for count in range(1, len(sizes)))
    layout = MapLayout(
        format=tensor_map.format,
        sizes=sizes,
        strides=strides,
        box=numbers(tensor_map.box),
        steps=numbers(tensor_map.steps) or (1,) * len(sizes),
        swizzle=tensor_map.swizzle,
        promotion=tensor_map.promotion,
        has_nan=tensor_map.has_nan,
    )
    mistake = layout.mistake()
    if mistake:
        raise BadSetting(
            f"the driver makes no tensor map {tensor_map.parameter} of {matrix} with {tensor_map}: "
            f"{mistake}"
        )
    return layout


def bound_maps(
    maps: Sequence[MatrixMap],
    arguments: Sequence[str],
    buffers: Mapping[str, Any],
    names: Mapping[str, int],
) -> Iterator[BoundMap]:
    """Yield the bound map of each argument that is a map.

    maps: of the arguments that are maps, in order
    buffers: A, B and C
    names: values of M, N, K and of the template's parameters
    Raises BadSetting, as MatrixMap.layout.
    """
    for tensor_map, argument in _mapped(maps, arguments):
        matrix = mapped_matrix(argument)
        layout = tensor_map.layout(matrix, tuple(names.items()))
        is_pointer = argument.startswith(ADDRESS_OF_MAP)
        yield BoundMap(buffers[matrix], matrix, layout, is_pointer)


def is_map_by_value(argument: str) -> bool:
    """Return whether an argument is a tensor map itself, not its address."""
    return argument.startswith(MAP_OF)


def _mapped(maps: Sequence[MatrixMap], arguments: Sequence[str]) -> Iterator[tuple[MatrixMap, str]]:
    """Yield each map with the argument that it is for."""
    yield from zip(maps, filter(is_map, arguments), strict=True)


def transposed(maps: Sequence[MatrixMap], arguments: Sequence[str]) -> Iterator[str]:
    """Yield a line for each map of a column-major matrix.

    The gate passes row-major matrices.
    """
    for tensor_map, argument in _mapped(maps, arguments):
        matrix = mapped_matrix(argument)
        columns, rows = SIZES[matrix]
        sizes = [{*re.findall(r"\b[MNK]\b", size)} for size in tensor_map.sizes_of(matrix)]
        if sizes == [{rows}, {columns}]:
            yield (
                f"{tensor_map.parameter} maps {matrix} as {columns} x {rows}, and the gate passes "
                f"it row-major, {rows} x {columns}"
            )


def from_comments(
    text: str, names: Mapping[str, str], template: Mapping[str, int]
) -> tuple[dict[str, MatrixMap], str]:
    """Return the maps that comments state, by parameter.

    Also return why others aren't read, or "". Maps are as in EXAMPLE: rows by columns. "= A" is
    for a parameter whose name doesn't say it.

    text: the lines whose comments may be about the kernel
    names: expressions of constants
    template: values of the template's parameters
    """
    maps = dict[str, MatrixMap]()
    unread = ""
    for statement in stated(text, LABEL):
        for part in statement.split(";"):
            try:
                tensor_map = _of_text(part.strip(), names)
                for size in tensor_map.box:
                    evaluate(size, template)
            except BadSetting as error:
                unread = f"the tensor map {part.strip()!r} in a comment isn't read: {error}"
            else:
                maps[tensor_map.parameter] = tensor_map
    return maps, unread


def matrices_in_comments(text: str) -> dict[str, str]:
    """Return the matrix of each parameter for which comments state it."""
    matrices = dict[str, str]()
    for statement in stated(text, LABEL):
        for name, matrix in re.findall(r"(?:^|;)\s*(\w+)\s*=\s*([ABC])\b", statement):
            matrices[name] = matrix
    return matrices


def _of_text(text: str, names: Mapping[str, str]) -> MatrixMap:
    """Return the map that a part of a comment states. Raises BadSetting."""
    first, *fields = split_list(text)
    head = re.fullmatch(r"(\w+)(?:\s*=\s*[ABC])?", first)
    if head is None:
        raise BadSetting(f"{first!r} is no parameter: write it as in {EXAMPLE}")
    tensor_map = MatrixMap(head[1], ())
    for field in fields:
        tensor_map = _with_field(tensor_map, field, names)
    if not tensor_map.box:
        raise BadSetting(f"it states no box: write it as in {EXAMPLE}")
    return tensor_map


def _with_field(tensor_map: MatrixMap, field: str, names: Mapping[str, str]) -> MatrixMap:
    """Return a map with a field of a comment, such as "swizzle 128B". Raises BadSetting."""
    kind, _, value = field.partition(" ")
    number = int(value.removesuffix("B")) if re.fullmatch(r"\d+B?", value) else -1
    match kind.lower():
        case "box":
            box, _, element = value.partition(" of ")
            sizes = [reduced(size, names) for size in re.split(r"\s+x\s+|(?<=\d)x(?=\d)", box)]
            name = TYPES.get(element.strip() or "float", "")
            if name not in FORMATS:
                raise BadSetting(f"the gate has no matrices of {element}: {_ELEMENTS}")
            return replace(tensor_map, box=tuple(reversed(sizes)), format=FORMATS[name])
        case "swizzle" if number in SWIZZLES:
            return replace(tensor_map, swizzle=number)
        case "l2" if number in PROMOTIONS:
            return replace(tensor_map, promotion=number)
        case "fill" if value.lower() == "nan":
            return replace(tensor_map, has_nan=True)
    raise BadSetting(f"{field!r} is unknown: {_FIELDS}")


_ELEMENTS = "choose from float, half and __nv_bfloat16"
_FIELDS = (
    "a map has box ROWS x COLUMNS of TYPE, swizzle 32B, 64B or 128B, L2 64B, 128B or 256B, and "
    "fill NaN"
)


def types_of_maps(maps: Sequence[MatrixMap], arguments: Sequence[str], types: Types) -> Types:
    """Return the formats of A, B and C, with those of matrices that have maps.

    types: of the other matrices
    Raises BadSetting for a matrix with two formats.
    """
    formats = dict(zip(MATRICES, types.formats, strict=True))
    passed = {matrix: formats[matrix] for matrix in MATRICES if matrix in arguments}
    for tensor_map, argument in _mapped(maps, arguments):
        matrix = mapped_matrix(argument)
        former = passed.setdefault(matrix, tensor_map.format)
        if former != tensor_map.format:
            raise BadSetting(
                f"{tensor_map.parameter}: the map is of {tensor_map.format.cuda}, and {matrix} of "
                f"{former.cuda}: state its elements, as in box 64 x 32 of half"
            )
    a, b, c = (passed.get(matrix, formats[matrix]) for matrix in MATRICES)
    return replace(types, a=a, b=b, c=c)


def rules_of_maps(
    maps: Sequence[MatrixMap], arguments: Sequence[str], template: Mapping[str, int]
) -> list[str]:
    """Return the rules of the domain that the driver has for maps.

    Strides and addresses are multiples of 16 bytes.

    template: values of the template's parameters
    """
    rules = list[str]()
    for tensor_map, argument in _mapped(maps, arguments):
        matrix = mapped_matrix(argument)
        itemsize = tensor_map.format.itemsize
        strides = tensor_map.strides
        if not strides:
            sizes = tensor_map.sizes_of(matrix)
            texts = [" * ".join(f"({size})" for size in sizes[:n]) for n in range(1, len(sizes))]
            strides = tuple(f"{itemsize} * {text}" for text in texts)
        for stride in strides:
            rules += _rules_of_stride(stride, template)
        rules.append(f"{matrix} % {GRAIN} bytes")
    return list(dict.fromkeys(rules))


def _rules_of_stride(stride: str, template: Mapping[str, int]) -> Iterator[str]:
    """Yield the rule of each size in a stride, so that the stride is a multiple of GRAIN."""
    for size in SIZE_NAMES:
        if not re.search(rf"\b{size}\b", stride):
            continue
        for step in STEPS:
            # Of the other sizes, an odd multiple could only help.
            names = {**dict.fromkeys(SIZE_NAMES, 1), **template}
            values = [evaluate(stride, {**names, size: step * count}) for count in (1, 3)]
            if all(value % GRAIN == 0 for value in values):
                if step > 1:
                    yield f"{size} % {step} == 0"
                break


def labelled(tensor_map: MatrixMap, names: Mapping[str, str]) -> MatrixMap:
    """Return a map of host code in terms of M, N and K.

    names: the label of each variable in its texts
    """

    def texts(values: Sequence[str]) -> tuple[str, ...]:
        return tuple(filled(value, names) for value in values)

    return replace(
        tensor_map,
        box=texts(tensor_map.box),
        sizes=texts(tensor_map.sizes),
        strides=texts(tensor_map.strides),
        steps=texts(tensor_map.steps),
    )
