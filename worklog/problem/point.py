"""Points: what a kernel computes, at values of the axes that its problem has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from worklog.errors import BadSetting
from worklog.problem.gemm import FLOAT_BYTES, SGEMM, Shape

BATCH_AXIS = "batch"  # the axis of products that compute several in a launch
CASE = "case"  # the axis of a problem that lists its test cases


@dataclass(frozen=True)
class Point:
    """What is computed: a problem at values of its axes.

    A product of matrices has the axes M, N and K, and a batch of them also "batch". Any other
    problem has the axis "case", the name of a test case. A declared benchmark has its own axes.
    """

    problem: str = ""  # its name; "" for a declared benchmark, which computes anything
    axes: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of_product(cls, shape: Shape) -> Point:
        """Return the product of matrices of a shape; of a batch, with the axis "batch"."""
        axes: tuple[tuple[str, Any], ...] = tuple(zip("MNK", shape.sizes, strict=True))
        if shape.batch > 1:
            axes = (*axes, (BATCH_AXIS, shape.batch))
        return cls(SGEMM.name, axes)

    @classmethod
    def of_case(cls, problem: str, case: str) -> Point:
        """Return a problem at one of its test cases. case: its name"""
        return cls(problem, ((CASE, case),))

    @property
    def is_product(self) -> bool:
        """Whether a product of matrices is computed."""
        names = [name for name, _ in self.axes]
        return self.problem == SGEMM.name and names in ([*"MNK"], [*"MNK", BATCH_AXIS])

    @cached_property
    def shape(self) -> Shape:
        """The shape of a product. Raises BadSetting for anything else."""
        if not self.is_product:
            place = str(self) or "this call"
            raise BadSetting(f"{place} isn't a product of matrices: it has no M, N and K")
        return Shape(*(value for _, value in self.axes))

    @property
    def matrix_bytes(self) -> tuple[int, ...]:
        """The bytes of A, B and C; () for anything else, which allocates its arrays."""
        if not self.is_product:
            return ()
        return tuple(FLOAT_BYTES * count for count in self.shape.elements)

    def value(self, axis: str) -> Any:
        """Return the value of an axis; None if there is no such axis."""
        return dict(self.axes).get(axis)

    def __str__(self) -> str:
        """Return the shape, or the values of the axes: 4096, or "N=1024 dtype=float32"."""
        if self.is_product:
            return str(self.shape)
        return " ".join(f"{name}={value}" for name, value in self.axes)
