"""How precise is this kernel, on the data that it is timed on?

The natural scale of one element's rounding error is u·D: u = 2^-24, D = sqrt((A∘A)(B∘B)), the 2-norm of its K
products. Measured in that unit, a sequential FP32 sum has an rms of about 0.30 sqrt(K), split or tree sums less, TF32
inputs a constant of 4400 (rounded) to 11500 (truncated), BF16 inputs 35000: two orders of magnitude apart, on any
zero-mean data. The limits leave honest kernels a factor of four on the rms and of more than five on the largest
error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worklog.gemm import Float32, Float64, sampled_reference

UNIT_ROUNDOFF = 2.0**-24
SAMPLED_ROWS = 64


def rms_limit(k: int) -> float:
    """Largest rms error of the class fp32, in u·D."""
    return 4 + 1.2 * float(np.sqrt(k))


def max_limit(k: int) -> float:
    """Largest single error of the class fp32, in u·D."""
    return 16 + 20 * float(np.sqrt(k))


@dataclass(frozen=True)
class PrecisionQuestion:
    """FP64 reference and gauge for some rows of A B, to hold a result against. rows: (R,), the others (R, N)."""

    k: int
    rows: np.ndarray[tuple[int], np.dtype[np.intp]]
    reference: Float64
    gauge: Float64

    @classmethod
    def of(cls, a: Float32, b: Float32, rng: np.random.Generator) -> PrecisionQuestion:
        """Sample rows of A: the first, the last and random ones."""
        m = a.shape[0]
        chosen = rng.permutation(m)[:SAMPLED_ROWS]
        rows = np.unique(np.concatenate([[0, m - 1], chosen])).astype(np.intp)
        reference, gauge = sampled_reference(a, b, rows)
        return cls(a.shape[1], rows, reference, gauge)

    def errors(self, c: Float32) -> tuple[float, float]:
        """(rms, largest) error of C's sampled rows in u·D; infinite where an element is not finite."""
        got = c[self.rows].astype(np.float64)
        if not np.isfinite(got).all():
            return float("inf"), float("inf")
        scaled = np.abs(got - self.reference) / (UNIT_ROUNDOFF * self.gauge)
        return float(np.sqrt(np.mean(np.square(scaled)))), float(scaled.max())


def classify(rms: float, largest: float, k: int) -> str:
    """fp32, tf32 (or fp16: the same 11-bit significand), bf16, or wrong."""
    if rms <= rms_limit(k) and largest <= max_limit(k):
        return "fp32"
    if rms <= 1.5e4:
        # A few wild elements in an otherwise precise result are an error, not a format.
        return "tf32" if rms >= 1e3 and largest <= 60 * rms else "wrong"
    return "bf16" if rms <= 8e4 and largest <= 60 * rms else "wrong"
