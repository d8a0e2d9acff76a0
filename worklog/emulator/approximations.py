"""Instructions whose bits are the hardware's own approximation: ex2.approx, rcp.approx, div.full and their like.

Nobody outside NVIDIA knows their tables. Here each gives the float32 nearest to the true value, and every launch that
runs one says so in a finding: a GPU's last bits may differ. Rules are as in worklog.emulator.instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.instructions import Rule, float_source
from worklog.emulator.ptx import Instruction

if TYPE_CHECKING:
    from worklog.emulator.codegen import Writer

Array = NDArray[Any]
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "div": np.divide,
}


def is_approximate(instruction: Instruction) -> bool:
    """Its result is not defined to the last bit."""
    return instruction.parts[0] in FUNCTIONS and bool({"approx", "full"} & set(instruction.parts))


def nearest(name: str, *operands: Array) -> Array:
    """The float32 nearest to the function's value, through float64."""
    with np.errstate(all="ignore"):
        out: Array = FUNCTIONS[name](*(operand.astype(np.float64) for operand in operands)).astype(np.float32)
        return out


def approximate(w: Writer, i: Instruction) -> bool:
    """.approx and .full on float32, .ftz or not."""
    if i.parts[-1] != "f32" or set(i.parts[1:-1]) - {"approx", "full", "ftz"} or not is_approximate(i):
        return False
    operands = [float_source(w, i, k, "f32") for k in range(1, len(i.operands))]
    expression = f"nearest({i.parts[0]!r}, {', '.join(operands)})"
    w.result(i.operands[0], f"flush({expression})" if "ftz" in i.parts else expression, "f4")
    return True


APPROXIMATE_RULES: dict[str, Rule] = dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rsqrt"), approximate)
