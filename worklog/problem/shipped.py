"""The problems of the package: SGEMM and row softmax."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from worklog.problem.gemm import FLOAT_BYTES, Shape, random_inputs
from worklog.problem.problem import Problem, Words

Array = NDArray[Any]


class Sgemm(Problem):
    """C (M x N) = alpha A (M x K) B (K x N) + beta C, row-major, in FP32, as the ladder's kernels do; beta is 0."""

    name = "sgemm"
    parameters = "int M, int N, int K, float alpha, const T* A, const T* B, float beta, T* C"
    dtypes: ClassVar = {"float32": (1e-4, 2e-4)}

    def of(self, shape: Shape, alpha: float = 1.0) -> Words:
        """The case of a shape, with inputs U(-1, 1)."""
        name = f"{shape}, alpha = {alpha:g}" if alpha != 1 else str(shape)
        sizes = shape.m, shape.n, shape.k
        return self.case(name, lambda rng: (*sizes, alpha, *random_inputs(shape, rng), 0.0), shape=shape)

    def reference_solution(self, m: int, n: int, k: int, alpha: float, a: Array, b: Array, beta: float) -> Array:
        """In float64, rounded once."""
        return np.asarray(alpha * (a.astype(np.float64) @ b.astype(np.float64)), np.float32)

    def baseline(self, m: int, n: int, k: int, alpha: float, a: Array, b: Array, beta: float) -> Any:
        """The library's product in FP32."""
        return a @ b if alpha == 1 else alpha * (a @ b)

    def generate_sample(self) -> list[Words]:
        """Sizes that tiles don't divide, and an alpha."""
        return [self.of(Shape(1, 7, 2)), self.of(Shape(33, 65, 17)), self.of(Shape(65, 31, 40), -1.5)]

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
    dtypes: ClassVar = {"float32": (2e-4, 1e-12), "float16": (4e-3, 1e-7), "float64": (1e-11, 1e-20)}  # long sums

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
        return [self.of(1, 1), self.of(7, 33), self.of(3, 1100), self.of(130, 5), self.of(9, 64, 100.0)]

    def generate_test_cases(self) -> list[Words]:
        """Short, middle and long rows."""
        return [self.of(*size) for size in ((65536, 64), (4096, 1000), (4096, 4096), (1024, 16384), (64, 262144))]

    def get_flops(self, test_case: Words) -> int:
        """Per element: one maximum, subtraction, exp, addition and division."""
        return 5 * int(test_case["rows"]) * int(test_case["columns"])

    def get_extra_params(self, test_case: Words) -> list[Any]:
        """Rows and columns."""
        return [test_case["rows"], test_case["columns"]]


SGEMM = Sgemm()
PROBLEMS: dict[str, type[Problem]] = {kind.name: kind for kind in (Sgemm, Softmax)}
