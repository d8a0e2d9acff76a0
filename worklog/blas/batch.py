"""A batch of matrices: an array of three dimensions, or a matrix for all products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from worklog.blas.layout import MAX_SIZE, Layout, orders
from worklog.errors import BadSetting
from worklog.problem import FLOAT_BYTES


@dataclass(frozen=True)
class Stack:
    """The matrices of a batch."""

    name: str  # A, B or C
    address: int  # of the first matrix
    layout: Layout  # of each matrix
    count: int | None  # of matrices; None if there is one for all products
    step: int  # bytes from a matrix to the next one

    @classmethod
    def from_array(cls, name: str, address: int, layout: Layout) -> Self:
        """Return the stack of an array.

        Raises BadSetting unless it has two or three dimensions, and for gaps in a matrix.
        """
        library, device, shape, strides = layout
        if len(shape) not in (2, 3):
            raise BadSetting(
                f"sgemm: {name} has {len(shape)} dimensions: give a matrix, or a batch of them"
            )
        unit = 1 if library == "torch" else FLOAT_BYTES
        rows, columns = shape[-2:]
        row_stride, column_stride = strides[-2:]
        if 0 in shape:  # the strides of an array without elements are arbitrary
            row_stride = columns * unit
            column_stride = unit
        matrix: Layout = (library, device, (rows, columns), (row_stride, column_stride))
        orders(name, matrix)  # raises
        if len(shape) == 2:
            return cls(name, address, matrix, None, 0)
        step = strides[0] * FLOAT_BYTES // unit
        count = shape[0]
        return cls(name, address, matrix, count, 0 if count == 1 else step)

    @property
    def nbytes(self) -> int:
        """The bytes of a matrix."""
        rows, columns = self.layout[2]
        return FLOAT_BYTES * rows * columns

    @property
    def unit(self) -> int:
        """The largest power of two that divides all addresses, 0 for 256 and more."""
        bits = self.address | abs(self.step)
        return bits & -bits & 255

    @property
    def span(self) -> tuple[int, int]:
        """The first address of the matrices, and the address behind the last one."""
        last = self.address + self.step * max(0, (self.count or 1) - 1)
        return min(self.address, last), max(self.address, last) + self.nbytes

    @property
    def is_joinable(self) -> bool:
        """Whether the rows of all matrices lie behind each other, as in one matrix."""
        is_by_rows, _ = orders(self.name, self.layout)
        has_no_gap = self.count == 1 or self.step == self.nbytes
        return bool(self.count and self.nbytes) and is_by_rows and has_no_gap

    def joined(self) -> Self:
        """Return the rows of all matrices as one matrix."""
        library, device, (rows, columns), _ = self.layout
        unit = 1 if library == "torch" else FLOAT_BYTES
        matrix: Layout = (
            library,
            device,
            (rows * (self.count or 1), columns),
            (columns * unit, unit),
        )
        return replace(self, layout=matrix, count=None, step=0)

    def address_of(self, number: int) -> int:
        """Return the address of a matrix."""
        return self.address + number * self.step

    def matrix(self, array: Any, number: int) -> Any:
        """Return a matrix of the array."""
        return array.reshape(self.layout[2]) if self.count is None else array[number]

    def require_result(self, count: int, size: tuple[int, int]) -> None:
        """Raise BadSetting if the stack has another shape, or its matrices overlap."""
        rows, columns = self.layout[2]
        if (self.count, rows, columns) != (count, *size):
            batch = "" if self.count is None else f"{self.count} x "
            raise BadSetting(
                f"sgemm: C is {batch}{rows} x {columns}, and A B is {count} x {size[0]} x {size[1]}"
            )
        if count > 1 and abs(self.step) < self.nbytes:
            raise BadSetting("sgemm: C's matrices share memory: give each memory of its own")


def batch_count(a: Stack, b: Stack) -> int:
    """Return the number of products.

    Raises BadSetting for batches of different lengths.
    """
    counts = {stack.count for stack in (a, b)} - {None}
    if len(counts) > 1:
        raise BadSetting(
            f"sgemm: A has {a.count} matrices and B {b.count}: give as many, or one matrix for all"
        )
    return counts.pop() or 0 if counts else 1


def are_joinable(a: Stack, b: Stack, c: Stack) -> bool:
    """Return whether a batch is one product: of A's rows, with one B, to C's rows."""
    if b.step != 0 or not (a.is_joinable and c.is_joinable):
        return False
    rows, _ = a.layout[2]
    return rows * (a.count or 1) <= MAX_SIZE


def require_apart(c: Stack, *factors: Stack) -> None:
    """Raise BadSetting if C, from its first to its last matrix, overlaps a factor."""
    begin, end = c.span
    for factor in factors:
        first, last = factor.span
        if c.nbytes and factor.nbytes and first < end and begin < last:
            raise BadSetting(f"sgemm: C shares memory with {factor.name}: give C memory of its own")
