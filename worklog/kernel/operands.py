"""The operands of a kernel beyond those of a product: a bias, a residual and scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worklog.problem import Float32, Shape
from worklog.problem.formats import Format

# The address of a vector that is added to each row of C, of N elements, or to each column, of M.
BIAS = "bias"
ROW_BIAS = "row bias"
BIASES = (BIAS, ROW_BIAS)
# The address of a matrix of C's shape that is added.
RESIDUAL = "residual"
# Factors of A and of B, or of their product, as 8-bit formats need them: a float, or its address.
SCALE_OF_A = "scale of A"
SCALE_OF_B = "scale of B"
# The addresses of a factor for each row of A, and for each column of B.
ROW_SCALE = "row scale"
COLUMN_SCALE = "column scale"
SCALES = (SCALE_OF_A, SCALE_OF_B, "scale", ROW_SCALE, COLUMN_SCALE)
OPERANDS = (*BIASES, RESIDUAL, *SCALES)  # beyond those of a product
# The scale of each row or column, by the scale of a whole matrix.
VECTOR_OF_SCALE = {SCALE_OF_A: ROW_SCALE, SCALE_OF_B: COLUMN_SCALE}


@dataclass(frozen=True)
class Operand:
    """An operand beyond those of a product.

    name: one of OPERANDS
    format: behind an address; None for a float
    """

    name: str
    format: Format | None

    @property
    def is_added(self) -> bool:
        """Whether it is added, and not a factor."""
        return self.name not in SCALES

    @property
    def is_vector(self) -> bool:
        """Whether it has a number for each row or for each column."""
        return self.name in (*BIASES, ROW_SCALE, COLUMN_SCALE)

    def length(self, shape: Shape) -> int:
        """Return the number of elements at a shape."""
        lengths = {
            BIAS: shape.n,
            ROW_BIAS: shape.m,
            RESIDUAL: shape.m * shape.n,
            ROW_SCALE: shape.m,
            COLUMN_SCALE: shape.n,
        }
        return lengths.get(self.name, 1)

    def neutral(self, shape: Shape) -> Float32:
        """Return values that change nothing: zeros, or a one."""
        return np.full(self.length(shape), 0 if self.is_added else 1, np.float32)
