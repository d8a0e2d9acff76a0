"""The comparisons with which other harnesses accept an SGEMM's C.

Each is a pure function of C and `Expected`, and its docstring says where it was read: repository, commit and file, as
of November 2026. The inputs, sizes and old contents of C that belong to them are in worklog.peers.checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from worklog.problem.gemm import Float32, Float64

EPS32 = 2.0**-23


@dataclass(frozen=True)
class Expected:
    """What belongs into C. product: alpha A B + beta C in FP64, (M, N). inputs: A, B and the old C as they were.
    behind: whether the room behind C is as it was.
    """

    product: Float64
    inputs: tuple[Float32, Float32, Float32]
    alpha: float = 1.0
    beta: float = 0.0
    behind: bool = True


Rule = Callable[[Float32, Expected], bool]


def allclose(c: Float32, expected: Expected, rtol: float, atol: float) -> bool:
    """|C - reference| <= atol + rtol |reference| in every element, as torch.allclose: NaN is equal to nothing."""
    return bool((np.abs(c - expected.product) <= atol + rtol * np.abs(expected.product)).all())


def largest_share(c: Float32, expected: Expected) -> bool:
    """Vizuara, the article: max|C - reference| / max|reference| < 1e-2."""
    return bool(np.abs(c - expected.product).max() / np.abs(expected.product).max() < 1e-2)


def loose(c: Float32, expected: Expected) -> bool:
    """KernelBench v0 and v0.1, src/eval.py: torch.allclose with atol = rtol = 1e-2."""
    return allclose(c, expected, 1e-2, 1e-2)


def tighter(c: Float32, expected: Expected) -> bool:
    """KernelBench 423217d, src/kernelbench/eval.py: torch.allclose with atol = rtol = 1e-4 for FP32."""
    return allclose(c, expected, 1e-4, 1e-4)


def numpys_default(c: Float32, expected: Expected) -> bool:
    """gpu-mode/reference-kernels f83cb92, problems/*/utils.py: rtol 1e-5 and atol 1e-8 unless a problem says else."""
    return allclose(c, expected, 1e-5, 1e-8)


def absolute_floor(c: Float32, expected: Expected) -> bool:
    """tensara fae9661, engine: rtol 2e-4, atol 5e-3 for its matrix-multiplication in FP32."""
    return allclose(c, expected, 2e-4, 5e-3)


def most_of_them(c: Float32, expected: Expected) -> bool:
    """NVIDIA/SOL-ExecBench 8d2237d: |C - reference| <= 1e-2 + 1e-2 |reference| for 99 % of the elements; NaN, infinity
    and nothing but zeros are refused.
    """
    if not np.isfinite(c).all() or not c.any():
        return False
    near = np.abs(c - expected.product) <= 1e-2 + 1e-2 * np.abs(expected.product)
    return bool(near.mean() >= 0.99)


def either(c: Float32, expected: Expected) -> bool:
    """flashinfer-ai/flashinfer-bench 40e6ca7, bench/evaluators/default.py: refused where the absolute error exceeds
    1e-2 and the relative one does so too; NaN and infinity are refused.
    """
    if not np.isfinite(c).all():
        return False
    error = np.abs(c - expected.product)
    return not bool(((error > 1e-2) & (error > 1e-2 * np.abs(expected.product))).any())


def after_the_subject(c: Float32, expected: Expected) -> bool:
    """SakanaAI/robust-kbench 078f5ba: torch.allclose with atol = rtol = 1e-5, against a reference that is computed from
    the same input tensors after the subject has run.
    """
    return allclose(c, expected, 1e-5, 1e-5)


def equal_nan(c: Float32, expected: Expected) -> bool:
    """meta-pytorch/BackendBench 66e0dbc: assert_close with atol = rtol = 1e-2, where NaN equals NaN."""
    return bool(np.allclose(c, expected.product, rtol=1e-2, atol=1e-2, equal_nan=True))


def half_of_it(c: Float32, expected: Expected) -> bool:
    """meta-pytorch/tritonbench 0efdc53, the gemm operator: atol 1e-5, rtol 0.5 (later versions: 1e-3 in FP32)."""
    return allclose(c, expected, 0.5, 1e-5)


def no_difference_above(c: Float32, expected: Expected) -> bool:
    """siboehm/SGEMM_CUDA 60cba6f, src/runner.cu: refused where |C - reference| > 0.01, which is false for NaN."""
    with np.errstate(invalid="ignore"):
        return not bool((np.abs(c - expected.product) > 0.01).any())


def relative(c: Float32, expected: Expected) -> bool:
    """salykova/sgemm.cu a94d769, common/helper_matrix.h: |C - reference| / |reference| <= 1e-4 in every element; NaN
    and infinity are refused.
    """
    if not np.isfinite(c).all():
        return False
    with np.errstate(divide="ignore", invalid="ignore"):
        return not bool((np.abs(c - expected.product) / np.abs(expected.product) > 1e-4).any())


def exact_up_to_2047(c: Float32, expected: Expected) -> bool:
    """deepreinforce-ai/CUDA-L2 dbe0177, zero_one_correctness_check.py: equal, where the reference is not above 2047;
    memory beside the matrices is as it was.
    """
    same = (c == expected.product) | (np.abs(expected.product) > 2047)
    return expected.behind and bool(same.all()) and not bool(np.isnan(c).any())


def in_eps_of_its_terms(c: Float32, expected: Expected) -> bool:
    """netlib BLAS tester (Dongarra et al. 1990), SMMCH: |C - reference| < 16 eps (|alpha| |A||B| + |beta||C|) in every
    element; memory beside C is as it was.
    """
    a, b, old = (np.abs(matrix.astype(np.float64)) for matrix in expected.inputs)
    gauge = abs(expected.alpha) * (a @ b) + abs(expected.beta) * old
    return expected.behind and bool((np.abs(c - expected.product) <= 16 * EPS32 * gauge).all())
