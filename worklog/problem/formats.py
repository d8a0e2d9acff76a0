"""The formats in which a product's matrices lie in memory, and what a kernel claims of its result.

The gate computes with float32 values. A matrix of 16 bits has values that its format holds, and
memory encodes and decodes them. Rounding, limits and bits are those of the package ml_dtypes, which
gives NumPy the formats that it lacks. Sums of integers beyond float32's have a stage that compares
them as integers (worklog.gate.integers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from worklog.problem.epilogues import GELU, GELU_TANH, NONE

Values = NDArray[np.float32]
WORD_BYTES = 4  # memory is filled and compared in words of 32 bits


@dataclass(frozen=True)
class Format:
    """A format of binary floating-point numbers, or of signed integers, of at most 32 bits.

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
    def is_integer(self) -> bool:
        """Whether the numbers are integers."""
        return self.dtype.kind == "i"

    @property
    def _limits(self) -> Any:
        """The limits of the format, as `numpy.finfo` or `numpy.iinfo` has them."""
        if self.is_integer:
            return np.iinfo(self.dtype)
        finfo: Any = ml_dtypes.finfo  # without types
        return finfo(self.dtype)

    @cached_property
    def significand(self) -> int:
        """The bits of a significand, with the leading one.

        Integers up to 2^bits are exact. Those of int32 are also exact in float32.
        """
        if self.is_integer:
            return min(8 * self.itemsize - 1, 24)
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
        """The smallest normal number, or 1."""
        if self.is_integer:
            return 1.0
        return float(self._limits.smallest_normal)

    @property
    def usual_size(self) -> float:
        """The size up to which random inputs are drawn: 1, or more for integers.

        Products of int32 have fewer bits than sums may have.
        """
        if not self.is_integer:
            return 1.0
        return min(self.largest, 2047.0)

    @property
    def poison(self) -> float:
        """The number around inputs: NaN, or an integer of nearly the largest size."""
        if not self.is_integer:
            return np.nan
        lost_bits = max(0, 8 * self.itemsize - 1 - self.significand)  # in float32
        return -float(int(self._limits.max) >> lost_bits << lost_bits)

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
        if self.is_integer:
            return np.rint(values)
        with np.errstate(over="ignore"):
            return values.astype(self.dtype).astype(np.float32)

    def half_units(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how much rounding to the format may change each value.

        0 for float32: the bounds of an FP32 result have room for its own rounding. 0 for integers.
        """
        if self == FLOAT32 or self.is_integer:
            return np.zeros_like(values)
        _, exponents = np.frexp(np.maximum(np.abs(values), self.tiny))
        half_units: NDArray[np.float64] = np.ldexp(1.0, exponents - self.significand - 1)
        return half_units

    def passed(self, value: float) -> np.generic:
        """Return a number as a kernel's argument: formats of 16 bits by their bits."""
        number: Any = np.float32(value).astype(self.dtype)
        if self.itemsize < WORD_BYTES:
            number = number.view(f"u{self.itemsize}")
        return number  # type: ignore[no-any-return]

    def repeated(self, value: float | np.float32) -> np.float32:
        """Return the 32 bits of memory that repeats a value, as a float32.

        For integers, a value that is below their range is half of the smallest one: the word of the
        smallest int32 is a float32's -0, which a memory fill takes for 0.
        """
        count = WORD_BYTES // self.itemsize
        if self.is_integer:
            limits = np.iinfo(self.dtype)
            number = limits.min // 2
            if value >= limits.min:
                number = min(int(value), limits.max)
            values = np.full(count, number, self.dtype)
        else:
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
INT8 = Format("int8", "int8_t")
INT32 = Format("int32", "int")
FORMATS: Mapping[str, Format] = {
    format_.name: format_ for format_ in (FLOAT32, FLOAT16, BFLOAT16, E4M3, E5M2, INT8, INT32)
}
OF_C = (FLOAT32, FLOAT16, BFLOAT16)  # formats of a result of floating-point factors
OF_INTEGERS = (INT32, FLOAT32)  # formats of a result of integers
OF_SCALARS = (FLOAT32, FLOAT16, BFLOAT16, INT32)  # formats of alpha and beta


MOST_INTEGER_SCALAR = 7


@dataclass(frozen=True)
class Types:
    """The formats of A, B and C, and which factors lie in memory by columns: "", "A", "B" or "AB".

    The other matrices lie by rows.

    scalar: the format of alpha and beta
    epilogue: one of worklog.problem.epilogues, or ""
    """

    a: Format = FLOAT32
    b: Format = FLOAT32
    c: Format = FLOAT32
    by_columns: str = ""
    scalar: Format = FLOAT32
    epilogue: str = NONE

    @property
    def formats(self) -> tuple[Format, Format, Format]:
        """The formats in order."""
        return self.a, self.b, self.c

    @property
    def default_precision(self) -> str:
        """The precision class of a kernel that claims none.

        Matrices of 16 bits are for tensor cores, whose sums are truncated. Sums of 8-bit factors
        have fewer bits there. Sums of integers are exact.
        """
        if self.has_eight_bits:
            return "tf32"
        is_single = {*self.formats} == {FLOAT32}
        return "fp32" if is_single or self.has_integers else "fp32-emulated"

    @property
    def has_integers(self) -> bool:
        """Whether the factors are integers."""
        return self.a.is_integer

    @property
    def has_short_factors(self) -> bool:
        """Whether A and B have 16 or 8 bits."""
        return max(self.a.itemsize, self.b.itemsize) < FLOAT32.itemsize

    @property
    def has_gelu(self) -> bool:
        """Whether the epilogue is a form of gelu."""
        return self.epilogue in (GELU, GELU_TANH)

    @property
    def has_integer_scalars(self) -> bool:
        """Whether alpha and beta are integers, as for a C of integers."""
        return self.scalar.is_integer or self.c.is_integer

    def scalars(self, values: Iterable[float]) -> tuple[float, ...]:
        """Return those of the values that alpha and beta can have."""
        return tuple(value for value in values if self.rounded_scalars(np.float32(value)) == value)

    def rounded_scalars(self, values: Any) -> Any:
        """Return the nearest numbers that alpha and beta can have.

        Integers are small, so that sums stay in range. Sums before a gelu have few bits.
        """
        if self.has_integer_scalars:
            return np.clip(np.rint(values), -MOST_INTEGER_SCALAR, MOST_INTEGER_SCALAR)
        if self.has_gelu:
            return np.clip(np.rint(4 * values) / 4, -MOST_INTEGER_SCALAR, MOST_INTEGER_SCALAR)
        return self.scalar.rounded(values)

    @property
    def has_eight_bits(self) -> bool:
        """Whether a factor is a float of 8 bits."""
        return not self.has_integers and 1 in (self.a.itemsize, self.b.itemsize)

    @property
    def has_short_formats(self) -> bool:
        """Whether a matrix has numbers of fewer than 32 bits."""
        return any(format_.itemsize < WORD_BYTES for format_ in self.formats)

    def nbytes(self, elements: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the bytes of so many elements of A, of B and of C."""
        a, b, c = elements
        return self.a.nbytes(a), self.b.nbytes(b), self.c.nbytes(c)

    def rounded(self, a: Values, b: Values) -> tuple[Values, Values]:
        """Return A and B, rounded to their formats."""
        return self.a.rounded(a), self.b.rounded(b)

    def laid_out(self, a: Values, b: Values) -> tuple[Values, Values]:
        """Return A and B as they lie in memory: a factor by columns is transposed.

        Those of a batch have the products first.
        """
        if "A" in self.by_columns:
            a = np.ascontiguousarray(np.swapaxes(a, -1, -2))
        if "B" in self.by_columns:
            b = np.ascontiguousarray(np.swapaxes(b, -1, -2))
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
        if self.by_columns:
            text += f", {' and '.join(self.by_columns)} by columns"
        return f"{text}, with {self.epilogue}" if self.epilogue else text


SINGLE = Types()


@dataclass(frozen=True)
class ClaimedResult:
    """What a kernel claims of its result: the formats, and a precision class in them.

    With formats of 16 bits, the class is that of the sums: C is their result, rounded once.
    """

    precision: str = "fp32"
    types: Types = SINGLE
