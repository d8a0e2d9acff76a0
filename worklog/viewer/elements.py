"""Values of A and B that identify their elements, so that a word of shared memory names its own.

The elements of A are counted first, then those of B.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worklog.viewer.trace import Lanes

# Each element is a different float: an exponent that depends on its number, and a mantissa that is
# the number, multiplied so that neighbours differ in many bits.
MIX = 0x1E3779B1
UNMIX = pow(0x1E3779B1, -1, 1 << 23)
FIRST_EXPONENT = 112


def code(index: Lanes) -> NDArray[np.uint32]:
    """Return the bits of the floats that identify elements."""
    exponent = FIRST_EXPONENT + (index * 40503 >> 4 & 31)
    return (exponent << 23 | index * MIX & (1 << 23) - 1).astype(np.uint32)


def elements_of(bits: NDArray[np.uint32], count: int) -> Lanes:
    """Return the elements that words identify; -1: none of so many elements."""
    elements = (bits & (1 << 23) - 1).astype(np.int64) * UNMIX & (1 << 23) - 1
    is_element = (elements < count) & (code(elements) == bits)
    return np.where(is_element, elements, -1)
