"""The check that a kernel of a file computes a matrix product.

Files also have kernels that convert, fill, add or transpose.
The answer comes from the parameters and the body, without a launch. It decides only which kernels
of a file are checked without being named: a named kernel is checked in any case.
"""

from __future__ import annotations

import re
from typing import Any

from worklog.kernel.signature import MATRICES, WORKSPACE
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Definition, Unit

LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
MULTIPLY_ADDS = ("fma", "mma", "gemm", "dot")  # in names of functions
NO_SUM = "no sum in a loop"
_BY_VECTOR = re.compile(r"gemv|mat(?:rix)?_?(?:by_?)?vec(?:tor)?|spmv", re.IGNORECASE)  # in a name
BY_VALUE = ("float32", "float64", "int32", "uint32", "int64", "uint64", "bool")
OTHER_NUMBERS = (
    "half",
    "__half",
    "half2",
    "__half2",
    "__nv_bfloat16",
    "nv_bfloat16",
    "double",
    "char",
)


def why_no_product(defined: Definition, unit: Unit) -> str:
    """Return why a kernel computes no product of float matrices; "" if it may.

    An example is "takes 2 pointers".
    """
    parameters = list(defined.parameters)
    has_workspace = takes_workspace(defined)
    if has_workspace:
        parameters.pop()
    pointers = [parameter for parameter in parameters if parameter.pointer]
    values = [parameter for parameter in parameters if not parameter.pointer]
    if any(parameter.dtype not in BY_VALUE for parameter in values):
        return ""  # a structure may have pointers
    if len(pointers) != len(MATRICES):
        return f"takes {len(pointers)} pointer{'s' * (len(pointers) != 1)}"
    for parameter in pointers:
        if parameter.dtype not in ("", "float32") or parameter.type in OTHER_NUMBERS:
            return f"takes {parameter.declaration}"
    if _BY_VECTOR.search(defined.name.rpartition("::")[2]):
        return "by its name, multiplies by a vector"
    if not _adds_up(defined, unit):
        return NO_SUM
    if has_workspace and not defined.body.has_error:
        return _part_of_a_product(defined)
    return ""


def takes_workspace(defined: Definition) -> bool:
    """Return whether the last parameter of a kernel is the address of a workspace."""
    last = defined.parameters[-1:]
    return [(parameter.type, parameter.name) for parameter in last] == [("void", WORKSPACE)]


def _part_of_a_product(defined: Definition) -> str:
    """Return what a kernel with a workspace does for another kernel.

    "" if it may compute a product alone.
    """
    *factors, result = [parameter.name for parameter in defined.parameters if parameter.pointer][:3]
    used_names = {text_of(name) for name in nodes(defined.body, "identifier")}
    if result not in used_names:
        return "prepares the factors for another kernel"
    if used_names.isdisjoint(factors):
        return "adds parts for another kernel"
    return ""


def _adds_up(defined: Definition, unit: Unit) -> bool:
    """Return whether a kernel, or a function that it calls, adds up in a loop.

    A body with an error may.
    """
    if defined.body.has_error:
        return True
    called_names = {_name(call) for call in nodes(defined.body, "call_expression")}
    bodies = [defined.body]
    for function in unit.functions:
        if not function.is_kernel and function.name.rpartition("::")[2] in called_names:
            bodies.append(function.body)
    return any(_body_adds_up(body) for body in bodies)


def _body_adds_up(body: Any) -> bool:
    """Return whether a loop in a body has a sum, or a multiply-add by its name or in assembly."""
    for loop in nodes(body, *LOOPS):
        inner = loop.child_by_field_name("body")
        if next(nodes(inner, "gnu_asm_expression"), None) is not None:
            return True
        if any(_is_sum(assignment) for assignment in nodes(inner, "assignment_expression")):
            return True
        for call in nodes(inner, "call_expression"):
            if any(part in _name(call).lower() for part in MULTIPLY_ADDS):
                return True
    return False


def _is_sum(assignment: Any) -> bool:
    """Return whether an assignment adds to a variable: x += y, or x = x + y."""
    if text_of(assignment.child_by_field_name("operator")) in ("+=", "-="):
        return True
    target = text_of(assignment.child_by_field_name("left"))
    right = assignment.child_by_field_name("right")
    terms = nodes(right, "identifier", "subscript_expression", "field_expression")
    return any(text_of(term) == target for term in terms)


def _name(call: Any) -> str:
    """Return a called function's name without object, namespace and template arguments."""
    name = text_of(call.child_by_field_name("function")).partition("<")[0]
    return name.rpartition("::")[2].rpartition(".")[2].strip()
