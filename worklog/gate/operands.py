"""The stage for what a kernel does beyond a product: a bias, a residual, scales and an activation.

Elsewhere the gate passes zeros and ones, and takes a part of an activation that is the product
alone (worklog.gate.unfolding). A kernel that ignores a bias, adds it along the other dimension or
behind the activation, or multiplies it by alpha is right there, and so is one that ignores a scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from worklog.gate import exact
from worklog.gate.edges import SPECIAL, small_old_c
from worklog.gate.exact import Which
from worklog.gate.guarded_buffer import Buffers, GuardedBuffers, LaunchResult, Memory
from worklog.kernel import Loaded
from worklog.problem import Float32, Float64, Shape
from worklog.problem.epilogues import EPILOGUES, activated
from worklog.problem.formats import FLOAT32, Format, Types
from worklog.runs import Stage, failed, passed

EPILOGUE = "epilogue"
LARGEST = 8  # of a bias's and a residual's integers
SCALES = {"scale of A": 2.0, "scale of B": 8.0, "scale": 4.0}
# Before an activation, numbers are small: gelu is x or 0 beyond them.
SMALL = 4  # of the integers that are added, and of old C's
SMALL_SCALES = {"scale of A": 2.0, "scale of B": 0.25, "scale": 0.5}
FEW_TERMS = 8  # of a sum
# Several tiles along M and N, for numbers with all bits of their formats.
TILES = Shape(157, 285, SPECIAL[0])
SIGNED_SCALES = {"scale of A": -0.7431, "scale of B": 1.3127, "scale": -0.5819}
ROUNDING = 2.0**-20  # of FP32 sums of a few terms, relative to their magnitudes
# Error of gelu in FP32, relative to the result or to 1. erf's form and tanh's differ by up to 5e-4.
GELU_ERROR = 2.0**-17
NAN_TO_ZERO = "makes NaN 0, as fmaxf does"


@dataclass(frozen=True)
class _Parts:
    """The parts of a result: f(alpha s A B + beta C + bias + residual).

    scales: by operand, s is their product
    added: by operand, as matrices or as vectors along a dimension
    """

    product: Float64
    alpha: float
    old: Float64
    scales: Mapping[str, float] = field(default_factory=dict)
    added: Mapping[str, Float64] = field(default_factory=dict)
    epilogue: str = ""

    @property
    def sums(self) -> Float64:
        """The numbers that the activation gets."""
        total: Float64 = self.alpha * np.prod([*self.scales.values()]) * self.product + self.old
        for values in self.added.values():
            total = total + values
        return total

    @property
    def result(self) -> Float64:
        """C after the launch."""
        return activated(self.epilogue, self.sums)

    def with_added(self, name: str, factor: float) -> _Parts:
        """Return these parts with an added operand times a factor."""
        return replace(self, added={**self.added, name: factor * self.added[name]})

    def with_scale(self, name: str, scale: float) -> _Parts:
        """Return these parts with another scale."""
        return replace(self, scales={**self.scales, name: scale})


def check_operands(subject: Loaded, memory: Memory) -> Stage:
    """Launch with operands between guards, and compare the result. Raises LaunchFailed."""
    types = subject.types
    shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    factors = _factors(subject, shape, memory.rng)
    values = _drawn(subject, shape, memory.rng)
    old = small_old_c(subject, shape, memory.rng)
    if types.epilogue:
        old = np.clip(old, -SMALL, SMALL)
    alpha = 3.0 if subject.domain.alpha else 1.0
    parts = _parts(factors[0].astype(np.float64) @ factors[1], alpha, old, values, types.epilogue)
    names = " and ".join([*values, *filter(None, [types.epilogue])])
    launch = f"at {shape} with alpha = {alpha:g}, and {names}"
    result = _launched(subject, Buffers(memory, *factors), alpha, old, values)
    if result.trespass:
        return failed(EPILOGUE, f"{launch}: {result.trespass}")
    wrong_count = int((~_is_near(result.c, parts.result, types)).sum())
    if wrong_count:
        detail = f"{wrong_count} of {result.c.size} elements are wrong"
        detail += _cause(result.c, parts, types)
        return failed(EPILOGUE, f"{launch}: {detail}", wrong_count)
    clause = ""
    if types.epilogue and not types.has_integers:
        mistake, clause = _nan(subject, memory, factors, values, parts)
        if mistake:
            return failed(EPILOGUE, f"{launch}, and NaN in a row of A: {mistake}")
    failure = None if types.c.is_integer else _check_all_bits(subject, memory)
    return failure or passed(EPILOGUE, f"right at {shape} with {names}", clause=clause)


def _check_all_bits(subject: Loaded, memory: Memory) -> Stage | None:
    """Launch with operands of all bits of their formats, and return the stage if it failed.

    There are several tiles. Scales are negative and have fractions, so that a kernel that rounds an
    operand, cuts a fraction off or takes a magnitude is wrong.
    """
    types = subject.types
    shape = subject.domain.padded(TILES)
    a, b = _small_factors(types, shape, memory.rng)
    values = drawn_operands(subject, shape, memory.rng)
    alpha = 3.0 if subject.domain.alpha else 1.0
    old = np.zeros((shape.m, shape.n), np.float32)
    parts = _parts(a.astype(np.float64) @ b, alpha, old, values, types.epilogue)
    sizes = {name: np.abs(numbers) for name, numbers in values.items()}
    magnitudes = _parts(np.abs(a).astype(np.float64) @ np.abs(b), alpha, old, sizes, "").sums
    result = _launched(subject, Buffers(memory, a, b), alpha, old, values)
    launch = f"at {shape} with {' and '.join(values) or types.epilogue} of all bits"
    if result.trespass:
        return failed(EPILOGUE, f"{launch}: {result.trespass}")
    wrong = ~(np.abs(result.c - parts.result) <= _tolerance(parts, magnitudes, types))
    if not wrong.any():
        return None
    first = np.argwhere(wrong)[0].tolist()
    detail = f"{wrong.sum()} of {wrong.size} elements are wrong, the first one at {first}"
    return failed(EPILOGUE, f"{launch}: {detail}", int(wrong.sum()))


def drawn_operands(subject: Loaded, shape: Shape, rng: np.random.Generator) -> dict[str, Float32]:
    """Return random operands by name, of all bits of their formats."""
    values = dict[str, Float32]()
    for operand in subject.kernel.operands:
        if operand.is_added:
            numbers = rng.uniform(-SMALL, SMALL, operand.length(shape)).astype(np.float32)
        else:
            numbers = np.array([SIGNED_SCALES[operand.name]], np.float32)
        values[operand.name] = (operand.format or FLOAT32).rounded(numbers)
    return values


def _tolerance(parts: _Parts, magnitudes: Float64, types: Types) -> Float64:
    """Return by how much each element may be off with operands of all bits.

    A kernel may round to C's format after each operand.

    magnitudes: the sums of the terms' magnitudes
    """
    roundings = 2 + len(parts.scales) + len(parts.added)
    tolerance: Float64 = ROUNDING * magnitudes
    tolerance = tolerance + roundings * types.c.half_units(magnitudes)
    if types.has_gelu:
        tolerance = tolerance + GELU_ERROR * np.maximum(np.abs(parts.result), 1)
    return tolerance


def _factors(subject: Loaded, shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """Return A and B of integers; before an activation, with few small terms in each sum."""
    if not subject.types.epilogue:
        return exact.family("E1", shape, rng, subject.claim, headroom=exact.HEADROOM)
    return _small_factors(subject.types, shape, rng)


def _small_factors(types: Types, shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """Return A and B with few small terms in each sum."""
    unit = 1.0 if types.has_integers else 0.5
    a = np.zeros((shape.m, shape.k), np.float32)
    terms = rng.permutation(shape.k)[:FEW_TERMS]
    a[:, terms] = unit * rng.choice((-1, 1), (shape.m, len(terms)))
    signs = rng.choice((-1, 1), (shape.k, shape.n))
    b = unit * signs * rng.integers(1, SMALL + 1, (shape.k, shape.n))
    return a, b.astype(np.float32)


def _drawn(subject: Loaded, shape: Shape, rng: np.random.Generator) -> dict[str, Float32]:
    """Return small integers for what is added, and powers of two for scales, by operand."""
    is_small = bool(subject.types.epilogue)
    scales = SMALL_SCALES if is_small else SCALES
    largest = SMALL if is_small else LARGEST
    values = dict[str, Float32]()
    for operand in subject.kernel.operands:
        if operand.is_added:
            sizes = rng.integers(1, largest + 1, operand.length(shape))
            values[operand.name] = (sizes * rng.choice((-1, 1), sizes.shape)).astype(np.float32)
        else:
            values[operand.name] = np.array([scales[operand.name]], np.float32)
    return values


def _parts(
    product: Float64, alpha: float, old: Float32, values: Mapping[str, Float32], epilogue: str
) -> _Parts:
    """Return the parts of a result.

    product: A B
    values: of the operands, as in memory
    """
    scales = dict[str, float]()
    added = dict[str, Float64]()
    for name, numbers in values.items():
        if name in SCALES:
            scales[name] = float(numbers[0])
        elif name == "row bias":
            added[name] = numbers[:, None].astype(np.float64)
        elif name == "residual":
            added[name] = numbers.reshape(product.shape).astype(np.float64)
        else:
            added[name] = numbers.astype(np.float64)
    return _Parts(product, alpha, old.astype(np.float64), scales, added, epilogue)


def _is_near(c: Float32, expected: Float64, types: Types) -> Which:
    """Return which elements of C are a result: exactly, but gelu within its rounding."""
    if not types.has_gelu:
        is_equal: Which = c == types.c.rounded(expected.astype(np.float32))
        return is_equal
    error = np.abs(c - expected)
    is_near: Which = error <= GELU_ERROR * np.maximum(np.abs(expected), 1) + types.c.half_units(
        expected
    )
    return is_near


def _cause(c: Float32, parts: _Parts, types: Types) -> str:
    """Return the usual mistake that gives C, after a colon; "" for another one."""
    for text, expected in _mistakes(parts):
        if _is_near(c, expected, types).all():
            return f": {text}"
    return ""


def _mistakes(parts: _Parts) -> Iterator[tuple[str, Float64]]:
    """Yield usual mistakes, and the result of each."""
    for name in parts.scales:
        yield f"{name} is ignored", parts.with_scale(name, 1.0).result
    for name in parts.added:
        yield f"{name} is ignored", parts.with_added(name, 0.0).result
        yield f"{name} is added twice", parts.with_added(name, 2.0).result
        yield f"alpha multiplies the {name}, too", parts.with_added(name, parts.alpha).result
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


def _late_operands(parts: _Parts) -> Iterator[tuple[str, Float64]]:
    """Yield the results of an activation that is applied before an operand."""
    if parts.scales:
        factor = float(np.prod([*parts.scales.values()]))
        unscaled = replace(parts, scales={}).result
        yield f"{parts.epilogue} is applied before the scales, and not behind", factor * unscaled
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


def _nan(
    subject: Loaded,
    memory: Memory,
    factors: tuple[Float32, Float32],
    values: Mapping[str, Float32],
    parts: _Parts,
) -> tuple[str, str]:
    """Launch with NaN in a row of A, and return a mistake and a clause, or "".

    NaN stays NaN, or becomes 0: fmaxf(NaN, 0) is 0, and NaN > 0 is false.
    """
    a, b = factors
    row = int(memory.rng.integers(len(a)))
    with_nan = a.copy()
    with_nan[row] = np.nan
    buffers = Buffers(memory, with_nan, b)
    result = _launched(subject, buffers, parts.alpha, parts.old.astype(np.float32), values)
    is_other = np.arange(len(a)) != row
    if not _is_near(result.c, parts.result, subject.types)[is_other].all():
        return "another row is wrong", ""
    if np.isnan(result.c[row]).all():
        return "", ""
    if (result.c[row] == 0).all():
        return "", f"{parts.epilogue} {NAN_TO_ZERO}"
    return "its row of C is neither NaN nor 0", ""


def _launched(
    subject: Loaded, buffers: Buffers, alpha: float, old: Float32, values: Mapping[str, Float32]
) -> LaunchResult:
    """Return the result of one launch with operands; those behind addresses have NaN around."""
    memory = buffers.memory
    guarded = list[GuardedBuffers]()  # kept until the launch is over
    arguments = dict[str, Any]()
    for operand in subject.kernel.operands:
        name = operand.name
        arguments[name] = values[name][0]
        if operand.format is not None:
            formats: Mapping[str, Format] = {name: operand.format}
            guarded.append(GuardedBuffers(memory, [(name, values[name])], formats=formats))
            inner = guarded[-1].arrays[0].inner
            arguments[name] = memory.device.view(inner, 0, values[name].size)
    subject.use_operands(arguments)
    has_beta = subject.domain.beta
    try:
        result = buffers.run(
            subject, alpha, 1.0 if has_beta else 0.0, old if has_beta else None, is_raw=True
        )
    finally:
        subject.use_operands({})
    for operand_buffers in guarded:
        if trespass := operand_buffers.trespass():
            return replace(result, trespass=trespass)
    return result
