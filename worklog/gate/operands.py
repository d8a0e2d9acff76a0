"""The stage for what a kernel does beyond a product: a bias, a residual, scales and an activation.

Elsewhere the gate passes zeros and ones, and takes a part of an activation that is the product
alone (worklog.gate.unfolding). A kernel that ignores a bias, adds it along the other dimension or
behind the activation, or multiplies it by alpha is right there, and so is one that ignores a scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.edges import SPECIAL, small_old_c
from worklog.gate.guarded_buffer import Buffers, GuardedBuffers, LaunchResult, Memory
from worklog.gate.parts import GELU_ERROR, OTHER_DIMENSION, Parts, cause, is_near, parts_of
from worklog.kernel import Loaded
from worklog.kernel.operands import (
    BIAS,
    RESIDUAL,
    ROW_BIAS,
    ROW_SCALE,
    SCALE_OF_A,
    SCALE_OF_B,
    VECTOR_OF_SCALE,
    Operand,
)
from worklog.problem import Float32, Float64, Shape
from worklog.problem.formats import FLOAT32, Format, Types
from worklog.runs import Stage, failed, passed

EPILOGUE = "epilogue"
LARGEST = 8  # of a bias's and a residual's integers
SCALES = {"scale of A": 2.0, "scale of B": 8.0, "scale": 4.0}
# Before an activation, numbers are small: gelu is x or 0 beyond them.
SMALL = 4  # of the integers that are added, and of old C's
SMALL_SCALES = {"scale of A": 2.0, "scale of B": 0.25, "scale": 0.5}
FEW_TERMS = 8  # of a sum
VECTOR_SCALES = (1.0, 2.0, 4.0, 8.0)  # of rows or columns
SMALL_VECTOR_SCALES = (0.5, 1.0, 2.0)
# Several tiles along M and N, for numbers with all bits of their formats. It is wide and has a
# short K, as cheap as a square: a bias and a residual are wrong in a far column, too. What differs
# between rows has a tall shape, too.
WIDE_TILES = Shape(131, 1101, 9)
TALL_TILES = Shape(1101, 131, 9)
OF_EACH_ROW = (ROW_BIAS, ROW_SCALE, RESIDUAL)
SIGNED_SCALES = {"scale of A": -0.7431, "scale of B": 1.3127, "scale": -0.5819}
ROUNDING = 2.0**-20  # of FP32 sums of a few terms, relative to their magnitudes
# Of an operand whose elements a kernel reads in another number.
READINGS = {BIAS: ROW_BIAS, ROW_BIAS: BIAS, **VECTOR_OF_SCALE}
ADVICE = {
    BIAS: OTHER_DIMENSION[BIAS],
    ROW_BIAS: OTHER_DIMENSION[ROW_BIAS],
    SCALE_OF_A: "the scale of A has a number for each row: state // scale of A: per row",
    SCALE_OF_B: "the scale of B has a number for each column: state // scale of B: per column",
}
NAN_TO_ZERO = "makes NaN 0, as fmaxf does"


def check_operands(subject: Loaded, memory: Memory) -> Stage:
    """Launch with operands between guards, and compare the result. Raises LaunchFailed."""
    types = subject.types
    shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    factors = product_factors(subject, shape, memory.rng)
    values = integer_operands(subject, shape, memory.rng)
    old = small_old_c(subject, shape, memory.rng)
    if types.epilogue:
        old = np.clip(old, -SMALL, SMALL)
    alpha = 3.0 if subject.domain.alpha else 1.0
    parts = parts_of(factors[0].astype(np.float64) @ factors[1], alpha, old, values, types.epilogue)
    names = " and ".join([*values, *filter(None, [types.epilogue])])
    launch = f"at {shape} with alpha = {alpha:g}, and {names}"
    result = launched(subject, Buffers(memory, *factors), alpha, old, values)
    if result.trespass:
        return failed(EPILOGUE, f"{launch}: {result.trespass}")
    wrong_count = int((~is_near(result.c, parts.result, types)).sum())
    if wrong_count:
        detail = f"{wrong_count} of {result.c.size} elements are wrong"
        detail += cause(result.c, parts, types)
        return failed(EPILOGUE, f"{launch}: {detail}", wrong_count)
    clause = ""
    if types.epilogue and not types.has_integers:
        mistake, clause = _nan(subject, memory, factors, values, parts)
        if mistake:
            return failed(EPILOGUE, f"{launch}, and NaN in a row of A: {mistake}")
    for tiles in _shapes_of_all_bits(subject):
        failure = _check_all_bits(subject, memory, tiles)
        if failure is not None:
            return failure
    return passed(EPILOGUE, f"right at {shape} with {names}", clause=clause)


def other_reading(subject: Loaded, memory: Memory) -> str:
    """Return what to state of a kernel that reads behind an operand; "" for nothing.

    It is right if the bias is along the other dimension, or the scale is a vector.
    """
    kernel = subject.kernel
    names = [operand.name for operand in kernel.operands if operand.name in READINGS]
    for count in range(1, len(names) + 1):
        for chosen in combinations(names, count):
            read = [READINGS[name] if name in chosen else name for name in kernel.arguments]
            if len({*read}) < len({*kernel.arguments}):
                continue
            other = Loaded(replace(kernel, arguments=tuple(read)), memory.device)
            try:
                stage = check_operands(other, memory)
            except LaunchFailed:
                continue
            if stage.passed:
                return "; ".join(ADVICE[name] for name in chosen)
    return ""


def _shapes_of_all_bits(subject: Loaded) -> list[Shape]:
    """Return the shapes at which operands have all bits of their formats."""
    if subject.types.c.is_integer:
        return []
    if any(operand.name in OF_EACH_ROW for operand in subject.kernel.operands):
        return [WIDE_TILES, TALL_TILES]
    return [WIDE_TILES]


def _check_all_bits(subject: Loaded, memory: Memory, tiles: Shape) -> Stage | None:
    """Launch with operands of all bits of their formats, and return the stage if it failed.

    There are several tiles. Scales are negative and have fractions, so that a kernel that rounds an
    operand, cuts a fraction off or takes a magnitude is wrong.
    """
    types = subject.types
    shape = subject.domain.padded(tiles)
    a, b = _small_factors(types, shape, memory.rng)
    values = drawn_operands(subject, shape, memory.rng)
    alpha = 3.0 if subject.domain.alpha else 1.0
    old = np.zeros((shape.m, shape.n), np.float32)
    parts = parts_of(a.astype(np.float64) @ b, alpha, old, values, types.epilogue)
    sizes = {name: np.abs(numbers) for name, numbers in values.items()}
    magnitudes = parts_of(np.abs(a).astype(np.float64) @ np.abs(b), alpha, old, sizes, "").sums
    result = launched(subject, Buffers(memory, a, b), alpha, old, values)
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
        length = operand.length(shape)
        if operand.is_added:
            numbers = rng.uniform(-SMALL, SMALL, length).astype(np.float32)
        elif operand.is_vector:
            signs = rng.choice((-1, 1), length)
            numbers = (signs * rng.uniform(0.5, 1.5, length)).astype(np.float32)
        else:
            numbers = np.array([SIGNED_SCALES[operand.name]], np.float32)
        values[operand.name] = (operand.format or FLOAT32).rounded(numbers)
    return values


def _tolerance(parts: Parts, magnitudes: Float64, types: Types) -> Float64:
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


def product_factors(
    subject: Loaded, shape: Shape, rng: np.random.Generator
) -> tuple[Float32, Float32]:
    """Return A and B of integers, with few small terms before an activation."""
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


def integer_operands(subject: Loaded, shape: Shape, rng: np.random.Generator) -> dict[str, Float32]:
    """Return small integers to add, and powers of two as scales, by operand."""
    is_small = bool(subject.types.epilogue)
    return {
        operand.name: _drawn_operand(operand, shape, rng, is_small=is_small)
        for operand in subject.kernel.operands
    }


def _drawn_operand(
    operand: Operand, shape: Shape, rng: np.random.Generator, *, is_small: bool
) -> Float32:
    """Return small integers for what is added, and powers of two for a scale.

    is_small: whether an activation follows
    """
    if operand.is_added:
        sizes = rng.integers(1, (SMALL if is_small else LARGEST) + 1, operand.length(shape))
        numbers = sizes * rng.choice((-1, 1), sizes.shape)
    elif operand.is_vector:
        scales = SMALL_VECTOR_SCALES if is_small else VECTOR_SCALES
        numbers = rng.choice(scales, operand.length(shape))
    else:
        numbers = np.array([(SMALL_SCALES if is_small else SCALES)[operand.name]])
    drawn_numbers: Float32 = numbers.astype(np.float32)
    return drawn_numbers


def _nan(
    subject: Loaded,
    memory: Memory,
    factors: tuple[Float32, Float32],
    values: Mapping[str, Float32],
    parts: Parts,
) -> tuple[str, str]:
    """Launch with NaN in a row of A, and return a mistake and a clause, or "".

    NaN stays NaN, or becomes 0: fmaxf(NaN, 0) is 0, and NaN > 0 is false.
    """
    a, b = factors
    row = int(memory.rng.integers(len(a)))
    with_nan = a.copy()
    with_nan[row] = np.nan
    buffers = Buffers(memory, with_nan, b)
    result = launched(subject, buffers, parts.alpha, parts.old.astype(np.float32), values)
    is_other = np.arange(len(a)) != row
    if not is_near(result.c, parts.result, subject.types)[is_other].all():
        return "another row is wrong", ""
    if np.isnan(result.c[row]).all():
        return "", ""
    if (result.c[row] == 0).all():
        return "", f"{parts.epilogue} {NAN_TO_ZERO}"
    return "its row of C is neither NaN nor 0", ""


def launched(
    subject: Loaded, buffers: Buffers, alpha: float, old: Float32, values: Mapping[str, Float32]
) -> LaunchResult:
    """Return the result of one launch, with NaN around operands behind addresses."""
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
