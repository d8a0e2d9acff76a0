"""Orders of parameters by other conventions for their names, which a launch confirms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from worklog.errors import BadSetting, OutOfMemory
from worklog.kernel.kernel import Kernel
from worklog.kernel.signature import SIZE_NAMES, WIDE, is_ladders, is_leading_dimension, size_of
from worklog.kernel.source import evaluate, split_list
from worklog.kernel.trial.launches import LENGTHS, LONGEST, TrialLaunch, sides
from worklog.kernel.trial.of_source import values_passed
from worklog.kernel.trial.orders import MATRICES
from worklog.kernel.trial.search import filled_in, has_launch, states_leading
from worklog.problem import Shape

# The value of a parameter by its name in another convention, or by its value in the usual one.
INNER_IS_N = {"n": "K", "k": "N"}
LEADING_BY_COLUMNS = {"lda": "N", "ldb": "K", "ldc": "N"}
EXCHANGED_BY_COLUMNS = {"M": "N", "N": "M", "A": "B", "B": "A"}  # C^T = B^T A^T


def conventions_of(kernel: Kernel) -> dict[str, str]:
    """Return the orders by other conventions for names, and what each convention means.

    A kernel for square matrices has none: a kernel that is written for columns gives B·A, as a
    mistake does.
    """
    values = _plain(kernel.arguments)
    is_stated = kernel.stated["args"] or kernel.types.by_columns
    if is_stated or is_ladders(values) or not {*SIZE_NAMES} <= {*values}:
        return {}
    declared = kernel.definition.parameters
    stated_places = _stated_leading_dimensions(kernel, values)
    inner_is_n = list[str]()
    by_columns = list[str]()
    for place, (parameter, value) in enumerate(zip(declared, values, strict=True)):
        name = parameter.name.lower().replace("_", "")
        inner_is_n.append(INNER_IS_N.get(name, value))
        exchanged = EXCHANGED_BY_COLUMNS.get(value, value)
        is_stated = place in stated_places
        by_columns.append(exchanged if is_stated else LEADING_BY_COLUMNS.get(name, exchanged))
    conventions = {",".join(by_columns): "column-major"}
    if inner_is_n != values:
        conventions[",".join(inner_is_n)] = "A is M x N, B is N x K"
    return conventions


def _stated_leading_dimensions(kernel: Kernel, values: Sequence[str]) -> Mapping[int, str]:
    """Return the leading dimensions that host code passes, by place.

    These are stated, whatever the order of the matrices.

    values: of each parameter
    """
    labels = list[str]()
    for parameter, value in zip(kernel.definition.parameters, values, strict=True):
        labels.append("" if is_leading_dimension(parameter) else size_of(value))
    if labels == [size_of(value) for value in values]:
        return {}
    return values_passed(kernel, labels)


def _plain(arguments: Sequence[str]) -> list[str]:
    """Return values without their widths."""
    return [value.removeprefix(WIDE) for value in arguments]


def by_convention(
    kernel: Kernel, conventions: Mapping[str, str], *, is_launched: bool = False
) -> Kernel | None:
    """Return the kernel with the order that gives the product, if it is the only one.

    conventions: the orders to try, with a description of each
    is_launched: whether to try only orders with which the file states a launch
    """
    as_stated = Kernel.from_source(**kernel.stated)
    if (as_stated.code, as_stated.launches) != (kernel.code, kernel.launches):
        return None  # a program has changed its text or launch, which would be lost
    products = dict[str, tuple[Kernel, Shape]]()
    for order in conventions:
        reordered = Kernel.from_source(**{**kernel.stated, "args": order})
        if is_launched and not has_launch(reordered):
            continue
        try:
            complete = filled_in(reordered, is_quick=True)
            shape = shape_of_product(complete)
        except (BadSetting, OutOfMemory):  # no launch gives a product
            continue
        if shape:
            products[order] = (complete, shape)
    if len(products) != 1:
        return None
    [(order, (complete, shape))] = products.items()
    line = (
        f"order: by trial, the names say {','.join(_plain(kernel.arguments))}, and only {order} "
        f"({conventions[order]}) gives A·B at {shape}; --args '{order}' states it"
    )
    # The source's own lines are written again for this order; lines about files stay.
    lines_about_files = [text for text in kernel.adapted if text not in as_stated.adapted]
    return replace(
        complete,
        name=kernel.name,
        adapted=(*complete.adapted, *lines_about_files, line),
        states_leading=states_leading(kernel, complete),
        found={**complete.found, "order": "by trial"},
    )


def shape_of_product(kernel: Kernel) -> Shape | None:
    """Return the shape at which a kernel's launch gives the product; None for no shape."""
    for lengths in LENGTHS:
        shape = Shape(*lengths)
        if _is_whole(kernel, shape):
            return shape if _gives_product(kernel, shape) else None
    return None


def _gives_product(kernel: Kernel, shape: Shape) -> bool:
    """Return whether one launch at a shape gives the product of matrices that lie as stated."""
    values = _plain(kernel.arguments)
    matrices = tuple(value for value in values if value in MATRICES)
    scalars = tuple(value for value in values if value in ("alpha", "beta"))
    for order in TrialLaunch(kernel).orders(shape):
        is_of_kernel = order.matrices == matrices and order.scalars == scalars
        by_columns = tuple(matrix in kernel.types.by_columns for matrix in "AB")
        if is_of_kernel and order.share == 1 and order.by_columns == by_columns:
            return True
    return False


def _is_whole(kernel: Kernel, shape: Shape) -> bool:
    """Return whether a shape is in the domain and a multiple of the grid's tile."""
    if shape not in kernel.domain:
        return False
    lengths = np.arange(1, max(LONGEST) + 1)
    for part in split_list(kernel.grid):
        axes = [size for size in SIZE_NAMES if re.search(rf"\b{size}\b", part)]
        if len(axes) == 1:
            [size] = axes
            blocks = evaluate(part, {**kernel.template, size: lengths})
            tile = np.count_nonzero(blocks == 1)  # whether the grid rounds up or down
            if tile and sides(shape)[size] % tile:
                return False
    return True
