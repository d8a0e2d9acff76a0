"""Where B lies, found by trial launches: a layer's weights, or a factor of 16 or 8 bits.

PyTorch's F.linear computes x w^T: w is N x K, so it lies by columns as B. Others name a K x N
matrix by the same names, and the code of a kernel rarely says which it is. Kernels for short
factors often take B by columns, too, as mma.sync does (`.row.col`, PTX ISA).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from worklog.errors import BadSetting, CompileFailed, LaunchFailed, NvrtcMissing, OutOfMemory
from worklog.kernel.device import Loaded
from worklog.kernel.kernel import Kernel
from worklog.kernel.signature import is_layer
from worklog.problem import Shape
from worklog.problem.epilogues import activated

SHAPES = (Shape(17, 29, 23), Shape(128, 256, 192))  # the second one is of whole tiles
LARGEST = 2  # of the factors' integers
CLOSE = 0.02  # relative to 1 or to the result: room for a gelu and for rounding to 16 bits
MAX_INSTRUCTIONS = 5e7
LAYOUTS = {
    "": "its rows have N elements",
    "B": "its rows have K elements, as those of F.linear's: B lies by columns",
}


def needs_layout(kernel: Kernel) -> bool:
    """Return whether a layer, or a kernel of short factors, leaves open where B lies."""
    is_stated = kernel.stated["args"] or kernel.types.by_columns
    if is_stated or not kernel.arguments:
        return False
    return kernel.types.has_short_factors or is_layer(kernel.definition.parameters)


def with_layout(kernel: Kernel) -> Kernel:
    """Return the kernel with the only layout of B that gives the result.

    Without such a layout, return the kernel as it is: the check reports why.
    """
    complete = replace(kernel, stated={})
    as_stated = Kernel.from_source(**kernel.stated)
    if (as_stated.code, as_stated.launches) != (kernel.code, kernel.launches):
        return complete  # a program has changed its text or launch, which would be lost
    right = dict[str, Kernel]()
    for by_columns in LAYOUTS:
        laid_out = Kernel.from_source(**{**kernel.stated, "by_columns": by_columns or None})
        if _gives_result(laid_out):
            right[by_columns] = laid_out
    if len(right) != 1:
        return complete
    [(by_columns, laid_out)] = right.items()
    option = f"; --by-columns {by_columns} states it" if by_columns else ""
    weights = kernel.definition.parameters[kernel.arguments.index("B")].name
    lines_about_files = [text for text in kernel.adapted if text not in as_stated.adapted]
    return replace(
        laid_out,
        name=kernel.name,
        adapted=(
            *laid_out.adapted,
            *lines_about_files,
            f"{weights}: by trial, {LAYOUTS[by_columns]}{option}",
        ),
        stated={},
        found={**kernel.found, "layout": "by trial"},
    )


def _gives_result(kernel: Kernel) -> bool:
    """Return whether one launch gives the product, with neutral operands and the activation."""
    shapes = dict.fromkeys(map(kernel.domain.padded, SHAPES))
    return any(_gives_result_at(kernel, shape) for shape in shapes)


def _gives_result_at(kernel: Kernel, shape: Shape) -> bool:
    """Return whether one launch gives the product at a shape."""
    from worklog.emulator.ptx import UnsupportedInstruction  # here: few commands need it
    from worklog.kernel.emulated import EmulatedDevice

    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(-LARGEST, LARGEST + 1, size).astype(np.float32)
        for size in ((shape.m, shape.k), (shape.k, shape.n))
    )
    expected = activated(kernel.types.epilogue, a.astype(np.float64) @ b)
    device = EmulatedDevice(races=False)
    device.most_instructions = MAX_INSTRUCTIONS
    types = kernel.types
    try:
        host_a, host_b = types.laid_out(a, b)
        device_a = device.upload(host_a, types.a)
        device_b = device.upload(host_b, types.b)
        c = device.upload(np.zeros(expected.shape, np.float32), types.c)
        Loaded(kernel, device).enqueue(shape, 1.0, device_a, device_b, 0.0, c)
        result = device.download(c).reshape(expected.shape)
    except (
        BadSetting, CompileFailed, LaunchFailed, NvrtcMissing, OutOfMemory, UnsupportedInstruction
    ):  # fmt: skip
        return False
    return bool(np.allclose(result, expected, rtol=CLOSE, atol=CLOSE))
