"""The sizes that a kernel's guards compare with.

A kernel with a guard on M also computes incomplete tiles along M.
"""

from __future__ import annotations

from typing import Any

from worklog.kernel.kernel import Kernel
from worklog.kernel.signature import size_of
from worklog.kernel.source import nodes, text_of

COMPARISONS = ("<", "<=", ">", ">=")


def guarded_sizes(kernel: Kernel) -> list[str]:
    """Return the sizes that a kernel compares with outside of the heads of loops."""
    declared = kernel.definition.parameters
    sizes = {
        parameter.name: size_of(value)
        for parameter, value in zip(declared, kernel.arguments, strict=True)
        if size_of(value)
    }
    guarded = set[str]()
    for comparison in nodes(kernel.definition.body, "binary_expression"):
        operator = text_of(comparison.child_by_field_name("operator"))
        if operator in COMPARISONS and not _is_of_a_loop(comparison):
            names = {text_of(name) for name in nodes(comparison, "identifier")}
            guarded |= {size for name, size in sizes.items() if name in names}
    return sorted(guarded, key="MNK".index)


def _is_of_a_loop(node: Any) -> bool:
    """Return whether an expression is in the head of a `for` loop."""
    while node.parent is not None:
        is_body = node.parent.child_by_field_name("body") == node
        if node.parent.type == "for_statement" and not is_body:
            return True
        node = node.parent
    return False
