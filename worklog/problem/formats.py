"""The formats in which a product's matrices lie in memory, and what a kernel claims of its result.

The gate computes with float32 values. A matrix of 16 bits has values that its format holds, and
memory encodes and decodes them. Rounding, limits and bits are those of the package ml_dtypes, which
gives NumPy the formats that it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]
WORD_BYTES = 4  # memory is filled and compared in words of 32 bits


@dataclass(frozen=True)
class Format:
    """A format of binary floating-point numbers of at most 32 bits.

    name: as the dtype of a Parameter
    cuda: the type in CUDA C++
    """

    name: str
    cuda: str

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type for NumPy."""
        return np.dtype(self.name)

    @property
    def _limits(self) -> Any:
        """The limits of the format, as `numpy.finfo` has them."""
        finfo: Any = ml_dtypes.finfo  # without types
        return finfo(self.dtype)

    @cached_property
    def significand(self) -> int:
        """The bits of a significand, with the leading one.

        Integers up to 2^bits are exact.
        """
        return int(self._limits.nmant) + 1

    @cached_property
    def largest(self) -> float:
        """The largest finite number."""
        return float(self._limits.max)

    @cached_property
    def largest_exponent(self) -> int:
        """The exponent of the largest finite number."""
        return int(np.frexp(self.largest)[1]) - 1

    @cached_property
    def tiny(self) -> float:
        """The smallest normal number."""
        return float(self._limits.smallest_normal)

    @property
    def itemsize(self) -> int:
        """The bytes of a number."""
        return self.dtype.itemsize

    def nbytes(self, elements: int) -> int:
        """Return the bytes of so many numbers."""
        return elements * self.itemsize

    def rounded(self, values: Values) -> Values:
        """Return the nearest numbers of the format, ties to even, in float32."""
        if self == FLOAT32:
            return values
        with np.errstate(over="ignore"):
            return values.astype(self.dtype).astype(np.float32)

    def half_units(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much rounding to the format may change each value.

        0 for float32: the bounds of an FP32 result have room for its own rounding.
        """
        if self == FLOAT32:
            return np.zeros_like(values)
        _, exponents = np.frexp(np.maximum(np.abs(values), self.tiny))
        half_units: NDArray[np.float64] = np.ldexp(1.0, exponents - self.significand - 1)
        return half_units

    def repeated(self, value: float | np.float32) -> np.float32:
        """Return the 32 bits of memory that repeats a value, as a float32."""
        count = WORD_BYTES // self.itemsize
        with np.errstate(over="ignore"):
            values = np.full(count, value, np.float32).astype(self.dtype)
        return np.float32(values.view(np.float32)[0])

    def first_of(self, bits: np.float32) -> np.float32:
        """Return the first value in 32 bits of memory. The reverse of `repeated`."""
        values = np.array([bits], np.float32).view(self.dtype)
        return np.float32(values[0])


FLOAT32 = Format("float32", "float")
FLOAT16 = Format("float16", "__half")
BFLOAT16 = Format("bfloat16", "__nv_bfloat16")
E4M3 = Format("float8_e4m3fn", "__nv_fp8_e4m3")
E5M2 = Format("float8_e5m2", "__nv_fp8_e5m2")
FORMATS: Mapping[str, Format] = {
    format_.name: format_ for format_ in (FLOAT32, FLOAT16, BFLOAT16, E4M3, E5M2)
}
OF_C = (FLOAT32, FLOAT16, BFLOAT16)  # formats of a result


@dataclass(frozen=True)
class Types:
    """The formats of A, B and C, and which factors lie in memory by columns: "", "A", "B" or "AB".

    The other matrices lie by rows.
    """

    a: Format = FLOAT32
    b: Format = FLOAT32
    c: Format = FLOAT32
    by_columns: str = ""

    @property
    def formats(self) -> tuple[Format, Format, Format]:
        """The formats in order."""
        return self.a, self.b, self.c

    @property
    def default_precision(self) -> str:
        """The precision class of a kernel that claims none.

        Matrices of 16 bits are for tensor cores, whose sums are truncated; sums of 8-bit factors
        keep about 14 bits there.
        """
        if self.has_eight_bits:
            return "tf32"
        is_single = {*self.formats} == {FLOAT32}
        return "fp32" if is_single else "fp32-emulated"

    @property
    def has_eight_bits(self) -> bool:
        """Whether a factor has 8 bits."""
        return 1 in (self.a.itemsize, self.b.itemsize)

    def nbytes(self, sizes: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the bytes of A, B and C at these M, N and K."""
        m, n, k = sizes
        return self.a.nbytes(m * k), self.b.nbytes(k * n), self.c.nbytes(m * n)

    def rounded(self, a: Values, b: Values) -> tuple[Values, Values]:
        """Return A and B, rounded to their formats."""
        return self.a.rounded(a), self.b.rounded(b)

    def laid_out(self, a: Values, b: Values) -> tuple[Values, Values]:
        """Return A and B as they lie in memory: a factor by columns is transposed."""
        if "A" in self.by_columns:
            a = np.ascontiguousarray(a.T)
        if "B" in self.by_columns:
            b = np.ascontiguousarray(b.T)
        return a, b

    @property
    def is_narrow(self) -> bool:
        """Whether some format has fewer exponents than float32, which bfloat16 hasn't."""
        return any(format_.largest_exponent < FLOAT32.largest_exponent for format_ in self.formats)

    def row_length(self, matrix: str) -> str:
        """Return M, N or K: the elements of a matrix between two rows of it in memory."""
        lengths = {"A": "KM", "B": "NK", "C": "NN"}
        return lengths[matrix][matrix in self.by_columns]

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of the formats in order."""
        return self.a.name, self.b.name, self.c.name

    def __str__(self) -> str:
        names = self.names
        text = f"A {names[0]}, B {names[1]}, C {names[2]}"
        if len(set(names)) == 1:
            text = names[0]
        elif names[0] == names[1]:
            text = f"{names[0]}, C {names[2]}"
        return f"{text}, {' and '.join(self.by_columns)} by columns" if self.by_columns else text


SINGLE = Types()


@dataclass(frozen=True)
class Claims:
    """What a kernel claims of its result: the formats, and a precision class in them.

    With formats of 16 bits, the class is that of the sums: C is their result, rounded once.
    """

    precision: str = "fp32"
    types: Types = SINGLE
