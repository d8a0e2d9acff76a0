"""The parts of a result beyond the product, and the results of usual mistakes in them.

The stages for operands (worklog.gate.operands) and for batches (worklog.gate.batch) judge C by
these parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from worklog.gate.exact import Which
from worklog.kernel.operands import BIAS, COLUMN_SCALE, RESIDUAL, ROW_BIAS, ROW_SCALE, SCALES
from worklog.problem import Float32, Float64
from worklog.problem.epilogues import EPILOGUES, activated
from worklog.problem.formats import Types

# Error of gelu in FP32, relative to the result or to 1. erf's form and tanh's differ by up to 5e-4.
GELU_ERROR = 2.0**-17
# Of a vector that a kernel reads along the other dimension.
OTHER_DIMENSION = {
    BIAS: "it is the bias of a row: if that is meant, call it row_bias, with M elements",
    ROW_BIAS: "it is the bias of a column: if that is meant, call it bias, with N elements",
    ROW_SCALE: "the scale of A is taken by column of C: A has one for each row",
    COLUMN_SCALE: "the scale of B is taken by row of C: B has one for each column",
}


@dataclass(frozen=True)
class Parts:
    """The parts of a result: f(alpha s A B + beta C + bias + residual).

    scales: by operand, numbers or vectors along a dimension; s is their product
    added: by operand, as matrices or as vectors along a dimension
    """

    product: Float64
    alpha: float
    old: Float64
    scales: Mapping[str, Float64] = field(default_factory=dict)
    added: Mapping[str, Float64] = field(default_factory=dict)
    epilogue: str = ""

    @property
    def scale(self) -> Float64:
        """The product of all scales, as a number or as a matrix."""
        factor: Float64 = np.ones(())
        for scale in self.scales.values():
            factor = factor * scale
        return factor

    @property
    def sums(self) -> Float64:
        """The numbers that the activation gets."""
        total: Float64 = self.alpha * self.scale * self.product + self.old
        for values in self.added.values():
            total = total + values
        return total

    @property
    def result(self) -> Float64:
        """C after the launch."""
        return activated(self.epilogue, self.sums)

    def with_added(self, name: str, values: Float64) -> Parts:
        """Return these parts with other values of an added operand."""
        return replace(self, added={**self.added, name: values})

    def with_scale(self, name: str, scale: Float64) -> Parts:
        """Return these parts with another scale."""
        return replace(self, scales={**self.scales, name: scale})


def parts_of(
    product: Float64, alpha: float, old: Float32, values: Mapping[str, Float32], epilogue: str
) -> Parts:
    """Return the parts of a result.

    product: A B
    values: of the operands, as in memory
    """
    scales = dict[str, Float64]()
    added = dict[str, Float64]()
    for name, numbers in values.items():
        laid_out = _laid_out(name, numbers.astype(np.float64), product.shape)
        if name in SCALES:
            scales[name] = laid_out
        else:
            added[name] = laid_out
    return Parts(product, alpha, old.astype(np.float64), scales, added, epilogue)


def _laid_out(name: str, numbers: Float64, shape: tuple[int, ...]) -> Float64:
    """Return an operand's numbers in the shape in which they meet C.

    shape: of C
    """
    if name in (ROW_BIAS, ROW_SCALE):
        return numbers[:, None]
    if name == RESIDUAL:
        return numbers.reshape(shape)
    return numbers


def is_near(c: Float32, expected: Float64, types: Types) -> Which:
    """Return which elements of C are a result: exactly, but gelu within its rounding."""
    if not types.has_gelu:
        is_equal: Which = c == types.c.rounded(expected.astype(np.float32))
        return is_equal
    tolerance = GELU_ERROR * np.maximum(np.abs(expected), 1) + types.c.half_units(expected)
    is_close: Which = np.abs(c - expected) <= tolerance
    return is_close


def cause(c: Float32, parts: Parts, types: Types) -> str:
    """Return the usual mistake that gives C, after a colon; "" for another one."""
    for text, expected in _mistakes(parts):
        if is_near(c, expected, types).all():
            return f": {text}"
    return ""


def _mistakes(parts: Parts) -> Iterator[tuple[str, Float64]]:
    """Yield usual mistakes, and the result of each."""
    yield "alpha is ignored", replace(parts, alpha=1.0).result
    for name, scale in parts.scales.items():
        yield f"{name} is ignored", parts.with_scale(name, np.ones(())).result
        if scale.size > 1:
            text = f"the first number of the {name} multiplies all of C"
            yield text, parts.with_scale(name, scale.ravel()[:1]).result
    for name, values in parts.added.items():
        yield f"{name} is ignored", parts.with_added(name, 0 * values).result
        yield f"{name} is added twice", parts.with_added(name, 2 * values).result
        multiplied = parts.with_added(name, parts.alpha * values)
        yield f"alpha multiplies the {name}, too", multiplied.result
    yield from _turned_vectors(parts)
    if not parts.epilogue:
        for epilogue in EPILOGUES:
            text = f"this is the result with {epilogue}; if that is meant, state it: --epilogue"
            yield f"{text} {epilogue.replace(' ', '_')}", activated(epilogue, parts.sums)
        return
    yield f"{parts.epilogue} is left out", parts.sums
    for epilogue in EPILOGUES:
        if epilogue != parts.epilogue:
            text = f"this is the result with {epilogue} in place of {parts.epilogue}"
            yield text, activated(epilogue, parts.sums)
    yield from _late_operands(parts)


def _turned_vectors(parts: Parts) -> Iterator[tuple[str, Float64]]:
    """Yield the results of a bias or a scale along the other dimension.

    Only where the other dimension isn't longer: else the kernel reads behind the vector.
    """
    for name in (*parts.added, *parts.scales):
        vector = parts.added.get(name, parts.scales.get(name, np.ones(())))
        if name not in OTHER_DIMENSION:
            continue
        of_rows = name in (ROW_BIAS, ROW_SCALE)
        length = parts.product.shape[1 if of_rows else 0]
        if length > vector.size:
            continue
        turned = vector[:length, 0] if of_rows else vector[:length, None]
        if name in parts.added:
            yield OTHER_DIMENSION[name], parts.with_added(name, turned).result
        else:
            yield OTHER_DIMENSION[name], parts.with_scale(name, turned).result


def _late_operands(parts: Parts) -> Iterator[tuple[str, Float64]]:
    """Yield the results of an activation that is applied before an operand."""
    if parts.scales:
        unscaled = replace(parts, scales={}).result
        text = f"{parts.epilogue} is applied before the scales, and not behind"
        yield text, parts.scale * unscaled
    terms = dict(parts.added)
    if parts.old.any():
        terms["beta C"] = parts.old
    for count in range(1, len(terms) + 1):
        for names in combinations(terms, count):
            late = np.zeros_like(parts.product)
            for name in names:
                late = late + terms[name]
            text = f"{parts.epilogue} is applied before {' and '.join(names)}"
            yield f"{text}, and not behind", activated(parts.epilogue, parts.sums - late) + late
