"""The kernel with its order of parameters and its launch, by trial if not stated.

A trial only adds what isn't stated. What a file states is used, also if it is wrong. Matrices of
small integers have exact products, and M, N and K differ, so one launch decides: the buffer that
changed is C, and it is compared with each product of the other two buffers.

An order by names is verified. If it doesn't give the product, the names may follow another
convention, such as that of column-major matrices, or B may lie by columns, where its numbers have
16 or 8 bits. Any other order that fits is a mistake of the kernel, which the check reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from worklog.errors import BadSetting, CompileFailed, NvrtcMissing, OutOfMemory
from worklog.kernel.by_name import kernel_of as kernel_as_stated
from worklog.kernel.kernel import Kernel
from worklog.kernel.signature import goes_beyond_product, is_layer
from worklog.kernel.trial.conventions import by_convention, conventions_of, shape_of_product
from worklog.kernel.trial.layout import needs_layout, with_layout
from worklog.kernel.trial.search import filled_in, has_launch


def kernel_of(name: str, options: Mapping[str, Any]) -> Kernel:
    """Return the kernel that a user names, completed by trial.

    name, options: as for worklog.kernel.kernel_of
    Raises the errors of worklog.kernel.kernel_of and of `completed`.
    """
    kernel = completed(kernel_as_stated(name, options))
    kernel.require_launch()
    return kernel


def completed(kernel: Kernel) -> Kernel:
    """Return the kernel with its order and its launch, by trial if not stated.

    An order by names is verified by one launch. A kernel that lacks nothing stays as it is, and so
    does a kernel of which no trial can be made: its require_launch says what to state.

    Raises BadSetting if no order gives a product. For a kernel that lacks something, raises
    CompileFailed and UnsupportedInstruction.
    """
    return _completed(kernel) if kernel.stated else kernel


@lru_cache(maxsize=64)
def _completed(kernel: Kernel) -> Kernel:
    """Return a kernel whose file doesn't state everything, as `completed`."""
    from worklog.emulator.ptx import UnsupportedInstruction  # here: few commands need it

    if needs_layout(kernel) and has_launch(kernel):
        laid_out = with_layout(kernel)
        if laid_out.types.by_columns or is_layer(kernel.definition.parameters):
            return laid_out
    if goes_beyond_product(kernel.arguments):
        return replace(kernel, stated={})
    conventions = conventions_of(kernel)
    if not conventions:
        return filled_in(kernel)
    if not has_launch(kernel):
        # A host's `lda = m` states a launch for columns. For rows, m stands for two sizes.
        by_columns = by_convention(kernel, conventions, is_launched=True)
        if by_columns is not None:
            return by_columns
    try:
        by_names = filled_in(kernel)
    except BadSetting:
        otherwise = by_convention(kernel, conventions)
        if otherwise is None:
            raise
        return otherwise
    try:
        if shape_of_product(by_names):
            return by_names
        return by_convention(kernel, conventions) or by_names
    except (CompileFailed, NvrtcMissing, OutOfMemory, UnsupportedInstruction):
        return by_names  # the check reports it
