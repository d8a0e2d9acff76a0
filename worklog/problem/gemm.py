"""The package's two problems, SGEMM and row softmax, in PROBLEMS by name.

SGEMM is C(M x N) = alpha * A(M x K) * B(K x N) + beta * C in row-major FP32, which the ladder's
kernels compute. Here are its shape, the domain of shapes that a kernel takes, inputs, a reference
in higher precision for a few rows, the precision classes, and SGEMM as a Problem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from numbers import Real
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting, listed
from worklog.problem.formats import SINGLE, Types
from worklog.problem.problem import Problem, Words

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Array = NDArray[Any]


class MatrixLike(Protocol):
    """An array of NumPy, CuPy or PyTorch, for type checkers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the array."""


Matrix = TypeVar("Matrix", bound=MatrixLike)

FLOAT_BYTES = 4
ADDRESS_UNITS = [FLOAT_BYTES << power for power in range(7)]  # of addresses: an allocation's is 256
MAX_DIGITS = 9  # of a size in a text: more is a mistake, and Python can't read thousands of digits
# Precision classes, most precise first. The largest numbers of A and B bound an error of fp32-norm,
# and the row and the column of an element bound an error of the others.
PrecisionClass = Literal["fp32", "fp32-norm", "fp32-emulated", "tf32", "fp16", "bf16"]
CLASSES: tuple[PrecisionClass, ...] = get_args(PrecisionClass)
ADVICE = "give one such as 4096, or M x N x K such as 512x1024x256"
BATCHED = r"(.*\S)\s+batch\s+([0-9]{1,6})"  # "512 batch 8"
ADDRESSES = r"\b([ABC](?:\s*(?:,|and)\s*[ABC])*)\s*%\s*([0-9]{1,3}) bytes"  # "A, B % 16 bytes"
EQUAL_SIZES = r"\b([MNK])\s*==?\s*(?=((?!\1)[MNK])\b)"  # pairs of "M = N = K"
DIVISIBLE = r"([MNK])\s*%\s*(?:([0-9]{1,9})|([A-Za-z_]\w*))\s*==\s*0"  # "M % 64 == 0"


@dataclass(frozen=True)
class Domain:
    """The inputs that a kernel accepts: shapes, scalars, data and addresses.

    m, n, k: M, N and K must be multiples of these
    square: whether M, N and K must be equal
    alpha, beta: whether the kernel takes them; if it doesn't, alpha is 1 or beta is 0
    any_data: whether the kernel states that it treats any float as FP32 does:
        subnormal numbers, infinities, NaN, and numbers of any size
    bytes_of: the addresses of A, B and C must be multiples of these
    """

    m: int = 1
    n: int = 1
    k: int = 1
    square: bool = False
    alpha: bool = True
    beta: bool = True
    any_data: bool = False
    bytes_of: tuple[int, int, int] = (FLOAT_BYTES,) * 3

    def __contains__(self, shape: Shape) -> bool:
        if self.square and not shape.square:
            return False
        return shape.m % self.m == 0 and shape.n % self.n == 0 and shape.k % self.k == 0

    def padded(self, shape: Shape) -> Shape:
        """Return the smallest shape in the domain that contains this one."""
        sizes = [shape.m, shape.n, shape.k]
        steps = [self.m, self.n, self.k]
        if self.square:
            sizes = [max(sizes)] * 3
            steps = [math.lcm(*steps)] * 3
        return Shape(
            *(math.ceil(size / step) * step for size, step in zip(sizes, steps, strict=True))
        )

    @staticmethod
    @lru_cache(maxsize=256)  # a check asks for a kernel's domain dozens of times
    def of(rules: str, names: tuple[tuple[str, int], ...] = ()) -> Domain:
        """Return the domain that a list of rules describes.

        rules: "M % 128 == 0, K % BK == 0", "M = N = K" or "M = N, N = K", or "any" for every
            shape; "A, B % 16 bytes" for addresses; and "any data"
        names: names such as BK, with their values
        Raises BadSetting for any other rule.
        """
        steps = {"M": 1, "N": 1, "K": 1}
        any_data = False
        bytes_of = dict.fromkeys("ABC", FLOAT_BYTES)

        def read_addresses(match: re.Match[str]) -> str:
            bytes_of.update(dict.fromkeys(re.findall("[ABC]", match[1]), int(match[2])))
            return "any" if int(match[2]) in ADDRESS_UNITS else match[0]

        sizes = re.sub(ADDRESSES, read_addresses, rules.replace("any M, N, K", "any"))
        square = {*chain(*re.findall(EQUAL_SIZES, sizes))} == {*"MNK"}
        for rule in map(str.strip, re.split(r",|;|&&|\band\b", sizes)):
            if match := re.fullmatch(DIVISIBLE, rule):
                step = int(match[2]) if match[2] else dict(names).get(match[3], 0)
                if step < 1:
                    raise _unknown_domain(rules)
                steps[match[1]] = math.lcm(steps[match[1]], step)
            elif rule == "any data":
                any_data = True
            elif square and re.fullmatch(r"[MNK](?:\s*==?\s*[MNK])+", rule):
                pass  # a part of "M = N = K"
            elif rule != "any":
                raise _unknown_domain(rules)
        m, n, k = steps.values()
        a, b, c = bytes_of.values()
        return Domain(m, n, k, square=square, any_data=any_data, bytes_of=(a, b, c))

    def __str__(self) -> str:
        rules = ["M = N = K"] if self.square else []
        for name, step in (("M", self.m), ("N", self.n), ("K", self.k)):
            if step > 1:
                rules.append(f"{name} % {step} == 0")
        rules = rules or ["any M, N, K"]
        for size in sorted({*self.bytes_of} - {FLOAT_BYTES}, reverse=True):
            multiples = zip("ABC", self.bytes_of, strict=True)
            names = [name for name, multiple in multiples if multiple == size]
            rules.append(f"{', '.join(names)} % {size} bytes")
        if self.any_data:
            rules.append("any data")
        return ", ".join(rules)


def _unknown_domain(rules: str) -> BadSetting:
    advice = "give rules such as 'M % 64 == 0, K % 8 == 0, A, B % 16 bytes', M = N = K, or any"
    return BadSetting(f"cannot read the domain {rules!r}: {advice}")


@dataclass(frozen=True, order=True)
class Shape:
    """M, N and K of a product, and how many products of these sizes a launch computes.

    Raises BadSetting unless each is an integer of at least 1.
    """

    m: int
    n: int
    k: int
    batch: int = 1  # products of a launch, whose matrices lie behind each other

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            value = getattr(self, name)
            if isinstance(value, np.integer):
                value = int(value)
                object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                title = "batch" if name == "batch" else f"size {name.upper()}"
                advice = "give one such as 8" if name == "batch" else ADVICE
                raise BadSetting(f"{title} = {value!r} is not a positive integer: {advice}")

    @classmethod
    def of(cls, size: Shape | int | str | Iterable[int]) -> Shape:
        """Return the shape of 4096, "4096", "512x1024x256", "512 batch 8" or (M, N, K).

        NumPy's integers are also accepted. Raises BadSetting for anything else.
        """
        if isinstance(size, Shape):
            return size
        values: Any = size
        batch = 1
        if isinstance(size, str):
            size, batch = _without_batch(size)
            parts = re.split(r"\s*[x×]\s*", size.strip())
            if not all(re.fullmatch(r"[+-]?[0-9]+", part) for part in parts):
                raise BadSetting(f"size {size!r} is not a number: {ADVICE}")
            if max(map(len, parts)) > MAX_DIGITS:
                raise BadSetting(f"size {size!r} has more digits than any matrix needs: {ADVICE}")
            values = map(int, parts)
        values = tuple(values) if isinstance(values, Iterable) else (values,)
        if len(values) not in (1, 3):
            raise BadSetting(f"size {size!r} has {len(values)} parts: {ADVICE}")
        m, n, k = values * (3 // len(values))
        return cls(m, n, k, batch)

    @classmethod
    def list_of(cls, sizes: Sizes) -> list[Shape]:
        """Return the shapes of a size, or of each size in a list.

        A tuple of three numbers is one shape, (M, N, K). A list of numbers is several squares.
        Raises BadSetting.
        """
        values: Any = sizes
        is_tuple_of_3 = isinstance(values, tuple) and len(values) == 3
        if is_tuple_of_3 and all(isinstance(value, Real) for value in values):
            return [cls.of(values)]
        return [cls.of(value) for value in listed("shapes", values)]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.m, self.n, self.k

    @property
    def single(self) -> Shape:
        """The shape of one product of a batch."""
        return replace(self, batch=1)

    @property
    def elements(self) -> tuple[int, int, int]:
        """The elements of all matrices A, of all B and of all C of a launch."""
        sizes = (self.m * self.k, self.k * self.n, self.m * self.n)
        a, b, c = (self.batch * size for size in sizes)
        return a, b, c

    @property
    def flops(self) -> int:
        """2 M N K for each product: one multiply and one add per term.

        As is usual, the M N operations of an epilogue don't count.
        """
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def compulsory_bytes(self) -> int:
        """The bytes that any algorithm must move with beta = 0.

        A and B are read once, and C is written once.
        """
        return FLOAT_BYTES * sum(self.elements)

    @property
    def square(self) -> bool:
        """Whether M = N = K."""
        return self.m == self.n == self.k

    def __str__(self) -> str:
        sizes = str(self.m) if self.square else f"{self.m}x{self.n}x{self.k}"
        return sizes if self.batch == 1 else f"{sizes} batch {self.batch}"


def _without_batch(text: str) -> tuple[str, int]:
    """Return the sizes in a text such as "512 batch 8", and the products."""
    match = re.fullmatch(BATCHED, text.strip())
    return (match[1], int(match[2])) if match else (text, 1)


Size = Shape | int | str | tuple[int, int, int]
Sizes = Size | Iterable[Size]


def tflops(shape: Shape, microseconds: float) -> float:
    """Return the TFLOP/s of one launch."""
    return shape.flops / microseconds / 1e6


def random_inputs(
    shape: Shape, rng: np.random.Generator, kind: str = "random", types: Types = SINGLE
) -> tuple[Float32, Float32]:
    """Return A (M x K) and B (K x N) in float32.

    Those of a batch have the products first.

    kind: "random" draws from U(-1, 1), and of integers up to their `usual_size`; "zeros" and
        "ones" are easy data, a pitfall
    types: to whose formats the elements are rounded
    """
    products = () if shape.batch == 1 else (shape.batch,)
    sizes = (*products, shape.m, shape.k), (*products, shape.k, shape.n)
    if kind == "random":
        a, b = (
            rng.random(size, dtype=np.float32) * np.float32(2) - np.float32(1) for size in sizes
        )
        if types.has_integers:
            a *= np.float32(types.a.usual_size)
            b *= np.float32(types.b.usual_size)
    else:
        a, b = (np.full(size, {"zeros": 0.0, "ones": 1.0}[kind], np.float32) for size in sizes)
    return types.rounded(a, b)


def sampled_reference(a: Float32, b: Float32, rows: NDArray[np.intp]) -> tuple[Float64, Float64]:
    """Return the FP64 product for some rows, and its gauge.

    Each has the shape (len(rows), N).

    The gauge is the 2-norm D = sqrt((A∘A)(B∘B)) of the same elements. D is the scale of the
    rounding error of one element: a random walk of K steps of the size of its terms.
    """
    a_rows = a[rows].astype(np.float64)
    reference = np.empty((len(rows), b.shape[1]))
    gauge = np.empty_like(reference)
    # B in slabs: a float64 copy of all of B would double the memory.
    for start in range(0, b.shape[1], 1024):
        slab = b[:, start : start + 1024].astype(np.float64)
        reference[:, start : start + 1024] = a_rows @ slab
        gauge[:, start : start + 1024] = np.sqrt(np.square(a_rows) @ np.square(slab))
    return reference, gauge


class Sgemm(Problem):
    """C (M x N) = alpha A (M x K) B (K x N) + beta C, row-major, in FP32 or in float16.

    Its cases have beta = 0. A sum in float16 is rounded once, from FP32.
    """

    name = "sgemm"
    parameters = "int M, int N, int K, float alpha, const T* A, const T* B, float beta, T* C"
    dtypes: ClassVar = {"float32": (1e-4, 2e-4), "float16": (1e-3, 1e-3)}

    def of(self, shape: Shape, alpha: float = 1.0) -> Words:
        """Return the case of a shape, with inputs from U(-1, 1)."""
        name = f"{shape}, alpha = {alpha:g}" if alpha != 1 else str(shape)
        sizes = shape.m, shape.n, shape.k
        return self.case(
            name, lambda rng: (*sizes, alpha, *self._factors(shape, rng), 0.0), shape=shape
        )

    def _factors(self, shape: Shape, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return A and B from U(-1, 1) in the dtype."""
        a, b = random_inputs(shape, rng)
        return a.astype(self.dtype), b.astype(self.dtype)

    def reference_solution(
        self, m: int, n: int, k: int, alpha: float, a: Array, b: Array, beta: float
    ) -> Array:
        """Return alpha A B, computed in float64 and rounded once."""
        return np.asarray(alpha * (a.astype(np.float64) @ b.astype(np.float64)), self.dtype)

    def baseline(
        self, m: int, n: int, k: int, alpha: float, a: Array, b: Array, beta: float
    ) -> Any:
        """Return the library's product."""
        return a @ b if alpha == 1 else alpha * (a @ b)

    def generate_sample(self) -> list[Words]:
        """Return sizes that aren't multiples of a tile, and an alpha that isn't 1."""
        return [
            self.of(Shape(1, 7, 2)),
            self.of(Shape(33, 65, 17)),
            self.of(Shape(65, 31, 40), -1.5),
        ]

    def generate_test_cases(self) -> list[Words]:
        """Return the sizes of the article's figures, from 256 to 4096."""
        return [self.of(Shape.of(size)) for size in (256, 512, 1024, 2048, 4096)]

    def get_flops(self, test_case: Words) -> int:
        """Return 2 M N K."""
        return int(test_case["shape"].flops)

    def get_bytes(self, test_case: Words) -> tuple[int, int]:
        """Return the bytes of A and B, and the bytes of C, which isn't read: beta is 0."""
        shape: Shape = test_case["shape"]
        itemsize = np.dtype(self.dtype).itemsize
        read = shape.m * shape.k + shape.k * shape.n
        return itemsize * read, itemsize * shape.m * shape.n


class Softmax(Problem):
    """Each row of output (rows x columns, row-major) is exp(x) / sum(exp(x)) of its input."""

    name = "softmax"
    parameters = "const T* input, T* output, int rows, int columns"
    dtypes: ClassVar = {
        "float32": (2e-4, 1e-12),
        "float16": (4e-3, 1e-7),
        "float64": (1e-11, 1e-20),
    }  # for long sums

    def of(self, rows: int, columns: int, center: float = 0.0) -> Words:
        """Return the case of a size, with inputs around a center."""
        name = f"{rows} x {columns}, around {center:g}" if center else f"{rows} x {columns}"

        def inputs(rng: np.random.Generator) -> Array:
            return (2 * rng.standard_normal((rows, columns)) + center).astype(self.dtype)

        return self.case(name, inputs, rows=rows, columns=columns)

    def reference_solution(self, rows: Array) -> Array:
        """Return the softmax, computed in float64 and rounded once."""
        return np.asarray(self.baseline(rows.astype(np.float64)), rows.dtype)

    def baseline(self, rows: Array) -> Any:
        """Compute the softmax operation by operation, in the dtype."""
        powers = np.exp(rows - rows.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def generate_sample(self) -> list[Words]:
        """Return odd sizes, rows longer than a block, and large inputs.

        The exp of the large inputs overflows unless the maximum is subtracted.
        """
        return [
            self.of(1, 1),
            self.of(7, 33),
            self.of(3, 1100),
            self.of(130, 5),
            self.of(9, 64, 100.0),
        ]

    def generate_test_cases(self) -> list[Words]:
        """Return short, medium and long rows."""
        sizes = ((65536, 64), (4096, 1000), (4096, 4096), (1024, 16384), (64, 262144))
        return [self.of(*size) for size in sizes]

    def get_flops(self, test_case: Words) -> int:
        """Return the floating-point operations.

        Per element: a maximum, subtraction, exp, addition and division.
        """
        return 5 * int(test_case["rows"]) * int(test_case["columns"])

    def get_extra_params(self, test_case: Words) -> list[Any]:
        """Return the numbers of rows and columns."""
        return [test_case["rows"], test_case["columns"]]


SGEMM = Sgemm()
PROBLEMS: dict[str, type[Problem]] = {kind.name: kind for kind in (Sgemm, Softmax)}
