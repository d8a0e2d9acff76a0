"""What a kernel does beyond a product: C = f(alpha A B + beta C + bias + residual).

Each activation f is x g(x) with g(x) + g(-x) = 1, so that f(x) - f(-x) = x.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

RELU = "relu"
GELU = "gelu"  # x (1 + erf(x / sqrt(2))) / 2
GELU_TANH = "gelu tanh"  # x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
EPILOGUES = (RELU, GELU, GELU_TANH)
NONE = ""


def activated(epilogue: str, values: Float64) -> Float64:
    """Return the activation of values; the values themselves for NONE.

    NaN stays.
    """
    if epilogue == RELU:
        positive: Float64 = np.maximum(values, 0)
        return positive
    if epilogue == GELU:
        inner = (values / math.sqrt(2)).ravel().tolist()
        erf = np.array([math.erf(value) for value in inner]).reshape(values.shape)
        with_erf: Float64 = 0.5 * values * (1 + erf)
        return with_erf
    if epilogue == GELU_TANH:
        argument = math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)
        with_tanh: Float64 = 0.5 * values * (1 + np.tanh(argument))
        return with_tanh
    return values
