"""Timed launches of kernels that do more than a product: their operands, and the check of elements.

A projection of C on signs shows every element of a product (worklog.gate.checker). Behind an
activation, C isn't a product. So one element of each row is compared with its FP64 value, in a
column that is drawn after each launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog.gate.checker import BLOCK, ROWS_PER_BLOCK, LaunchProbe, programs_for
from worklog.gate.operands import ROUNDING, drawn_operands
from worklog.gate.parts import GELU_ERROR
from worklog.gate.precision import UNIT_ROUNDOFF, projected_limits
from worklog.kernel import Buffer, Device, Loaded, Program, Runnable
from worklog.kernel.operands import BIAS, RESIDUAL, ROW_BIAS
from worklog.problem import Float32, Shape
from worklog.problem.epilogues import EPILOGUES
from worklog.problem.formats import FLOAT32, Types
from worklog.runs import Stage

_SOURCE = Path(__file__).with_name("elements.cu")
ENTRIES = ("pick", "compare_elements")
NULL = np.uint64(0)


@dataclass(frozen=True)
class TimedOperands:
    """Operands of timed launches beyond a product's: random numbers of all bits, on the device.

    Residuals and biases are added to each product of a batch alike.
    """

    arguments: Mapping[str, Any]  # of the kernel, by name
    scale: float  # the product of the scales
    added: Mapping[str, Buffer]  # in float32, by name
    nbytes: int  # that a launch reads


def beyond_product(subject: Runnable) -> tuple[str, ...]:
    """Return the names of the operands and the activation beyond a product."""
    names: list[str] = []
    if isinstance(subject, Loaded):
        names += [operand.name for operand in subject.kernel.operands]
    if subject.types.epilogue:
        names.append(subject.types.epilogue)
    return tuple(names)


def timed_operands(
    subject: Loaded, device: Device, shape: Shape, rng: np.random.Generator
) -> TimedOperands:
    """Return new operands for launches of a kernel at a shape. Raises OutOfMemory."""
    values = drawn_operands(subject, shape, rng)
    arguments = dict[str, Any]()
    added = dict[str, Buffer]()
    scale = 1.0
    nbytes = 0
    for operand in subject.kernel.operands:
        numbers: Float32 = values[operand.name]
        arguments[operand.name] = numbers[0]
        if operand.format is not None:
            arguments[operand.name] = device.upload(numbers, operand.format)
            nbytes += operand.format.nbytes(numbers.size)
        if operand.is_added:
            added[operand.name] = device.upload(numbers)
        else:
            scale *= float(numbers[0])
    return TimedOperands(arguments, scale, added, nbytes)


class ElementProbe(LaunchProbe):
    """Checks an element of each row after each launch, as LaunchProbe checks each row's sum.

    kernels: as programs_for returns them, compiled
    element_kernels: as element_programs returns them, compiled
    types: the formats of A, B and C
    """

    checked = "elements"
    unit = "of the tolerance"

    def __init__(
        self,
        device: Device,
        kernels: tuple[Any, ...],
        element_kernels: tuple[Any, ...],
        shape: Shape,
        types: Types,
        *,
        subject: Runnable,
        operands: TimedOperands,
        alpha: float = 1.0,
    ) -> None:
        super().__init__(device, kernels, shape, types.c, claimed=subject.claimed, alpha=alpha)
        self._pick, self._compare_elements = element_kernels
        self._columns = np.uint64(0)
        self._operands = operands
        epilogue = subject.types.epilogue
        self._activation = EPILOGUES.index(epilogue) + 1 if epilogue else 0
        # C may be rounded to its format after each operand.
        roundings = 2 + len(operands.arguments)
        half_unit = 0.0
        self._smallest = 0.0  # of C's subnormal numbers
        if types.c != FLOAT32 and not types.c.is_integer:
            half_unit = roundings * 2.0**-types.c.significand
            self._smallest = half_unit * types.c.tiny
        self._rounding = ROUNDING + half_unit
        self._limit_of_product, rms, _ = projected_limits(subject.claimed, shape)
        self.limit = 1.0
        rms_limit = rms + self._rounding / UNIT_ROUNDOFF
        if subject.types.has_gelu:  # whose own error is larger
            rms_limit = float("inf")
        self.rms_limits = [rms_limit, rms_limit]

    def observe(self, c: Buffer) -> None:
        """Draw a column for each row, and enqueue copies of these elements of C.

        Call it directly after the launch.
        """
        self._columns = np.uint64(self._bits(64))
        rows = np.int32(self._rows)
        blocks = -(-self._rows // BLOCK)
        self._launch(
            self._pick, blocks, self._columns, rows, self._sizes[1], c, self._cx, self._sums
        )

    def check(self, a: Buffer, b: Buffer) -> None:
        """Enqueue the comparison of the elements, on the contents that `prepare` wrote."""
        self._enqueue_comparison(a, b, is_known=True)

    def check_on(self, a: Buffer, b: Buffer, c: Buffer) -> Stage:
        """Return the stage of one launch on other contents than those of `prepare`.

        Raises LaunchFailed.
        """
        self.launches = 1
        self.observe(c)
        self._enqueue_comparison(a, b, is_known=False)
        stage = self.stage()
        if stage.passed:
            detail = f"an element of each row within {stage.measured:.3g} of the tolerance"
            stage = replace(stage, detail=detail)
        return stage

    def _enqueue_comparison(self, a: Buffer, b: Buffer, *, is_known: bool) -> None:
        f32 = np.float32
        added = self._operands.added
        vectors = [added.get(name, NULL) for name in (BIAS, ROW_BIAS, RESIDUAL)]
        limits = (self._limit_of_product, self._rounding, self._smallest, GELU_ERROR)
        blocks = -(-self._rows // ROWS_PER_BLOCK)
        self._launch(
            self._compare_elements,
            blocks,
            self._key,
            self._columns,
            np.int32(is_known),
            self._products,
            *self._sizes,
            a,
            b,
            self._cx,
            f32(self.alpha),
            f32(self._operands.scale),
            *vectors,
            np.int32(self._activation),
            *map(f32, limits),
            np.uint32(self.launches),
            self._sums,
        )
        self._add_up()


def element_programs(types: Types) -> tuple[Program, ...]:
    """Return the programs of an ElementProbe for matrices of these formats."""
    first, *_ = programs_for(types)
    source = f"{first.source}\n{_SOURCE.read_text(encoding='utf-8')}"
    return tuple(replace(first, name=_SOURCE.name, source=source, entry=entry) for entry in ENTRIES)
