"""The shape of C(M x N) = alpha * A(M x K) * B(K x N) + beta * C in row-major FP32, which the ladder's kernels compute;
the shapes that a kernel takes; inputs, a reference in higher precision for a few rows, and SGEMM as a Problem. Beside
it, the package's other problem: row softmax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting
from worklog.problem.problem import Problem, Words

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Array = NDArray[Any]

FLOAT_BYTES = 4
ALIGNMENTS = [FLOAT_BYTES << power for power in range(7)]  # of addresses: an allocation's is 256
MOST_DIGITS = 9  # of a size in words: more is a mistake, and Python reads no thousands
CLASSES = ("fp32", "fp32-emulated", "tf32", "fp16", "bf16")  # precision classes, most precise first
ADVICE = "give one such as 4096, or M x N x K such as 512x1024x256"


@dataclass(frozen=True)
class Domain:
    """M, N and K must be multiples of these. square: and equal. alpha, beta: whether the kernel takes them; one that
    doesn't computes with alpha = 1 or beta = 0. any_data: whether it states that subnormal numbers, infinities, NaN and
    numbers of any size give what FP32 gives. bytes_of: of which the addresses of A, B and C are multiples.
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
        whole = shape.m % self.m == 0 and shape.n % self.n == 0 and shape.k % self.k == 0
        return whole and (shape.square or not self.square)

    def padded(self, shape: Shape) -> Shape:
        """The smallest shape in the domain that holds this one."""
        sizes = [shape.m, shape.n, shape.k]
        steps = [self.m, self.n, self.k]
        if self.square:
            sizes, steps = [max(sizes)] * 3, [math.lcm(*steps)] * 3
        return Shape(
            *(math.ceil(size / step) * step for size, step in zip(sizes, steps, strict=True))
        )

    @staticmethod
    @lru_cache(maxsize=256)  # a check asks for a kernel's domain dozens of times
    def of(rules: str, names: tuple[tuple[str, int], ...] = ()) -> Domain:
        """Read "M % 128 == 0, K % BK == 0", "M = N = K" or "M = N, N = K", or "any" for every shape; "A, B % 16 bytes"
        for addresses; and "any data". names: names such as BK, with their values. Raises BadSetting.
        """
        steps = {"M": 1, "N": 1, "K": 1}
        any_data = False
        bytes_of = dict.fromkeys("ABC", FLOAT_BYTES)

        def aligned(match: re.Match[str]) -> str:
            bytes_of.update(dict.fromkeys(re.findall("[ABC]", match[1]), int(match[2])))
            return "any" if int(match[2]) in ALIGNMENTS else match[0]

        addresses = r"\b([ABC](?:\s*(?:,|and)\s*[ABC])*)\s*%\s*([0-9]{1,3}) bytes"
        sizes = re.sub(addresses, aligned, rules.replace("any M, N, K", "any"))
        pairs = re.findall(r"\b([MNK])\s*==?\s*(?=((?!\1)[MNK])\b)", sizes)
        square = {name for pair in pairs for name in pair} == {*"MNK"}
        for rule in map(str.strip, re.split(r",|;|&&|\band\b", sizes)):
            step = 1
            if match := re.fullmatch(
                r"([MNK])\s*%\s*(?:([0-9]{1,9})|([A-Za-z_]\w*))\s*==\s*0", rule
            ):
                step = int(match[2]) if match[2] else dict(names).get(match[3], 0)
                steps[match[1]] = math.lcm(steps[match[1]], step)
            elif rule == "any data":
                any_data = True
            elif rule != "any" and not (square and re.fullmatch(r"[MNK](?:\s*==?\s*[MNK])+", rule)):
                step = 0
            if step < 1:
                advice = "give rules such as 'M % 64 == 0, K % 8 == 0, A, B % 16 bytes', M = N = K, or any"
                raise BadSetting(f"cannot read the domain {rules!r}: {advice}")
        m, n, k, a, b, c = *steps.values(), *bytes_of.values()
        return Domain(m, n, k, square=square, any_data=any_data, bytes_of=(a, b, c))

    def __str__(self) -> str:
        rules = ["M = N = K"] if self.square else []
        rules += [
            f"{name} % {step} == 0"
            for name, step in (("M", self.m), ("N", self.n), ("K", self.k))
            if step > 1
        ]
        rules = rules or ["any M, N, K"]
        for size in sorted({*self.bytes_of} - {FLOAT_BYTES}, reverse=True):
            names = [
                name
                for name, multiple in zip("ABC", self.bytes_of, strict=True)
                if multiple == size
            ]
            rules.append(f"{', '.join(names)} % {size} bytes")
        return ", ".join(rules) + (", any data" if self.any_data else "")


@dataclass(frozen=True, order=True)
class Shape:
    """M, N and K of a product, each at least 1. Raises BadSetting otherwise."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if isinstance(value, np.integer):
                value = int(value)
                object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadSetting(
                    f"size {name.upper()} = {value!r} is not a positive integer: {ADVICE}"
                )

    @classmethod
    def of(cls, size: Shape | int | str | Iterable[int]) -> Shape:
        """Read 4096, "4096", "512x1024x256" or (M, N, K); NumPy's integers too. Raises BadSetting for anything else."""
        if isinstance(size, Shape):
            return size
        values: Any = size
        if isinstance(size, str):
            parts = re.split(r"\s*[x×]\s*", size.strip())
            if not all(re.fullmatch(r"[+-]?[0-9]+", part) for part in parts):
                raise BadSetting(f"size {size!r} is not a number: {ADVICE}")
            if max(map(len, parts)) > MOST_DIGITS:
                raise BadSetting(f"size {size!r} has more digits than any matrix needs: {ADVICE}")
            values = map(int, parts)
        values = tuple(values) if isinstance(values, Iterable) else (values,)
        if len(values) not in (1, 3):
            raise BadSetting(f"size {size!r} has {len(values)} parts: {ADVICE}")
        return cls(*values * (3 // len(values)))

    @property
    def flops(self) -> int:
        """2 M N K: one multiply and one add per term. The M N of an epilogue is left out, as is usual."""
        return 2 * self.m * self.n * self.k

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any algorithm must move with beta = 0: A and B read once, C written once."""
        return FLOAT_BYTES * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def square(self) -> bool:
        """Whether M = N = K."""
        return self.m == self.n == self.k

    def __str__(self) -> str:
        return str(self.m) if self.square else f"{self.m}x{self.n}x{self.k}"


def tflops(shape: Shape, microseconds: float) -> float:
    """TFLOP/s of one launch."""
    return shape.flops / microseconds / 1e6


def random_inputs(
    shape: Shape, rng: np.random.Generator, kind: str = "random"
) -> tuple[Float32, Float32]:
    """A (M x K) and B (K x N), float32: "random" is U(-1, 1); "zeros" and "ones" are easy data, a pitfall."""

    sizes = (shape.m, shape.k), (shape.k, shape.n)
    if kind == "random":
        a, b = (
            rng.random(size, dtype=np.float32) * np.float32(2) - np.float32(1) for size in sizes
        )
    else:
        a, b = (np.full(size, {"zeros": 0.0, "ones": 1.0}[kind], np.float32) for size in sizes)
    return a, b


def sampled_reference(a: Float32, b: Float32, rows: NDArray[np.intp]) -> tuple[Float64, Float64]:
    """FP64 product for some rows, and the 2-norm gauge D = sqrt((A∘A)(B∘B)) of the same elements, each (len(rows), N).

    D is the scale of the rounding error of one element: a random walk of K steps of the size of its terms.
    """
    a_rows = a[rows].astype(np.float64)
    reference = np.empty((len(rows), b.shape[1]))
    gauge = np.empty_like(reference)
    for start in range(
        0, b.shape[1], 1024
    ):  # B in slabs: a float64 copy of all of it would double the memory
        slab = b[:, start : start + 1024].astype(np.float64)
        reference[:, start : start + 1024] = a_rows @ slab
        gauge[:, start : start + 1024] = np.sqrt(np.square(a_rows) @ np.square(slab))
    return reference, gauge


class Sgemm(Problem):
    """C (M x N) = alpha A (M x K) B (K x N) + beta C, row-major, in FP32, as the ladder's kernels do; beta is 0."""

    name = "sgemm"
    parameters = "int M, int N, int K, float alpha, const T* A, const T* B, float beta, T* C"
    dtypes: ClassVar = {"float32": (1e-4, 2e-4)}

    def of(self, shape: Shape, alpha: float = 1.0) -> Words:
        """The case of a shape, with inputs U(-1, 1)."""
        name = f"{shape}, alpha = {alpha:g}" if alpha != 1 else str(shape)
        sizes = shape.m, shape.n, shape.k
        return self.case(
            name, lambda rng: (*sizes, alpha, *random_inputs(shape, rng), 0.0), shape=shape
        )

    def reference_solution(
        self, m: int, n: int, k: int, alpha: float, a: Array, b: Array, beta: float
    ) -> Array:
        """In float64, rounded once."""
        return np.asarray(alpha * (a.astype(np.float64) @ b.astype(np.float64)), np.float32)

    def baseline(
        self, m: int, n: int, k: int, alpha: float, a: Array, b: Array, beta: float
    ) -> Any:
        """The library's product in FP32."""
        return a @ b if alpha == 1 else alpha * (a @ b)

    def generate_sample(self) -> list[Words]:
        """Sizes that tiles don't divide, and an alpha."""
        return [
            self.of(Shape(1, 7, 2)),
            self.of(Shape(33, 65, 17)),
            self.of(Shape(65, 31, 40), -1.5),
        ]

    def generate_test_cases(self) -> list[Words]:
        """The sizes of the article's figures, from 256 to 4096."""
        return [self.of(Shape.of(size)) for size in (256, 512, 1024, 2048, 4096)]

    def get_flops(self, test_case: Words) -> int:
        """2 M N K."""
        return int(test_case["shape"].flops)

    def get_bytes(self, test_case: Words) -> tuple[int, int]:
        """A and B read once, C written once: beta is 0, so C isn't read."""
        shape: Shape = test_case["shape"]
        written = FLOAT_BYTES * shape.m * shape.n
        return shape.compulsory_bytes - written, written


class Softmax(Problem):
    """Each row of output (rows x columns, row-major) is exp(x) / sum(exp(x)) of the same row of input."""

    name = "softmax"
    parameters = "const T* input, T* output, int rows, int columns"
    dtypes: ClassVar = {
        "float32": (2e-4, 1e-12),
        "float16": (4e-3, 1e-7),
        "float64": (1e-11, 1e-20),
    }  # long sums

    def of(self, rows: int, columns: int, center: float = 0.0) -> Words:
        """The case of a size, with inputs around a center."""
        name = f"{rows} x {columns}, around {center:g}" if center else f"{rows} x {columns}"

        def inputs(rng: np.random.Generator) -> Array:
            return (2 * rng.standard_normal((rows, columns)) + center).astype(self.dtype)

        return self.case(name, inputs, rows=rows, columns=columns)

    def reference_solution(self, x: Array) -> Array:
        """In float64, rounded once."""
        return np.asarray(self.baseline(x.astype(np.float64)), x.dtype)

    def baseline(self, x: Array) -> Any:
        """Operation by operation, in the dtype."""
        powers = np.exp(x - x.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def generate_sample(self) -> list[Words]:
        """Odd sizes, rows longer than a block, and inputs whose exp overflows unless the maximum is subtracted."""
        return [
            self.of(1, 1),
            self.of(7, 33),
            self.of(3, 1100),
            self.of(130, 5),
            self.of(9, 64, 100.0),
        ]

    def generate_test_cases(self) -> list[Words]:
        """Short, middle and long rows."""
        return [
            self.of(*size)
            for size in ((65536, 64), (4096, 1000), (4096, 4096), (1024, 16384), (64, 262144))
        ]

    def get_flops(self, test_case: Words) -> int:
        """Per element: one maximum, subtraction, exp, addition and division."""
        return 5 * int(test_case["rows"]) * int(test_case["columns"])

    def get_extra_params(self, test_case: Words) -> list[Any]:
        """Rows and columns."""
        return [test_case["rows"], test_case["columns"]]


SGEMM = Sgemm()
PROBLEMS: dict[str, type[Problem]] = {kind.name: kind for kind in (Sgemm, Softmax)}
