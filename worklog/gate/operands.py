"""The stage for operands beyond a product's: a bias, and the scales of A and B.

Elsewhere the gate passes zeros and ones. A kernel that ignores a bias, adds it along the other
dimension or multiplies it by alpha is right there, and so is one that ignores a scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.gate import exact
from worklog.gate.edges import SPECIAL, small_old_c
from worklog.gate.guarded_buffer import Buffers, GuardedBuffers, LaunchResult, Memory
from worklog.kernel import Loaded, Operand
from worklog.problem import Float32, Float64, Shape
from worklog.runs import Stage, failed, passed

OPERANDS = "bias and scales"
LARGEST = 8  # of the bias's integers
SCALES = {"scale of A": 2.0, "scale of B": 8.0, "scale": 4.0}


def check_operands(subject: Loaded, memory: Memory) -> Stage:
    """Launch with operands between guards, and compare C = alpha s A B + beta C + bias.

    s is the product of the scales. Raises LaunchFailed.
    """
    rng = memory.rng
    shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    factors = exact.family("E1", shape, rng, subject.claim, headroom=exact.HEADROOM)
    values = {operand.name: _drawn(operand, shape, rng) for operand in subject.kernel.operands}
    old = small_old_c(subject, shape, rng)
    alpha = 2.0 if subject.domain.alpha else 1.0
    names = " and ".join(values)
    launch = f"at {shape} with alpha = {alpha:g}, and {names}"
    result = _launched(subject, Buffers(memory, *factors), alpha, old, values)
    if result.trespass:
        return failed(OPERANDS, f"{launch}: {result.trespass}")
    product = factors[0].astype(np.float64) @ factors[1]
    expected = _expected(product, alpha, values) + old
    wrong_count = int((result.c != expected).sum())
    if not wrong_count:
        return passed(OPERANDS, f"right at {shape} with {names}")
    detail = f"{wrong_count} of {result.c.size} elements are wrong"
    detail += _cause(result.c - old, product, alpha, values)
    return failed(OPERANDS, f"{launch}: {detail}", wrong_count)


def _drawn(operand: Operand, shape: Shape, rng: np.random.Generator) -> Float32:
    """Return a bias of small integers, or a scale that is a power of two."""
    if operand.is_bias:
        return rng.integers(1, LARGEST + 1, operand.length(shape)).astype(np.float32)
    return np.array([SCALES[operand.name]], np.float32)


def _cause(c: Float64 | Float32, product: Float64, alpha: float, values: dict[str, Float32]) -> str:
    """Return the usual mistake that gives C, after a colon; "" for another one.

    product: A B
    """
    for name in values:
        remaining = {other: value for other, value in values.items() if other != name}
        if (c == _expected(product, alpha, remaining)).all():
            return f": {name} is ignored"
        if "bias" in name:
            twice = _expected(product, alpha, values) + (alpha - 1) * _along(name, values)
            if (c == twice).all():
                return ": alpha multiplies the bias, too"
    return ""


def _expected(product: Float64, alpha: float, values: dict[str, Float32]) -> Float64:
    """Return alpha s A B + bias. product: A B"""
    expected = alpha * product
    for name, value in values.items():
        if "bias" not in name:
            expected = expected * float(value[0])
    for name in values:
        if "bias" in name:
            expected = expected + _along(name, values)
    return expected


def _along(name: str, values: dict[str, Float32]) -> Float32:
    """Return a bias along the dimension to which it is added."""
    return values[name] if name == "bias" else values[name][:, None]


def _launched(
    subject: Loaded, buffers: Buffers, alpha: float, old: Float32, values: dict[str, Float32]
) -> LaunchResult:
    """Return the result of one launch with operands; those behind addresses have NaN around."""
    memory = buffers.memory
    guarded = list[GuardedBuffers]()  # kept until the launch is over
    arguments = dict[str, Any]()
    for operand in subject.kernel.operands:
        name = operand.name
        arguments[name] = values[name][0]
        if operand.format is not None:
            formats = {name: operand.format}
            guarded.append(GuardedBuffers(memory, [(name, values[name])], formats=formats))
            inner = guarded[-1].arrays[0].inner
            arguments[name] = memory.device.view(inner, 0, values[name].size)
    subject.use_operands(arguments)
    has_beta = subject.domain.beta
    try:
        return buffers.run(subject, alpha, 1.0 if has_beta else 0.0, old if has_beta else None)
    finally:
        subject.use_operands({})
