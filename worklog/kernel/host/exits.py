"""Statements that leave host code before a launch, and whether sizes decide that they do.

A guard such as `if (M % 16) return;` states at which sizes a kernel is launched. A test of an
allocation doesn't.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

from worklog.kernel.host.calls import base_name, last_name, launch_at
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Definition, Unit

ASSERT = "assert"
JUMPS = ("return_statement", "throw_statement", "goto_statement")
INNER_JUMPS = ("break_statement", "continue_statement")
_EXITS = ("exit", "abort", "_exit", "quick_exit", "terminate")
_OF_NUMBERS = ("min", "max", "abs", "gcd", "__gcd")
_MESSAGES = ("printf", "fprintf", "puts", "fputs", "perror", "cout", "cerr", "clog")


def is_exit(node: Any) -> bool:
    """Return whether a call ends the program."""
    return node.type == "call_expression" and called_name(node) in _EXITS


def is_message(node: Any) -> bool:
    """Return whether a statement only prints."""
    if node.type != "expression_statement" or not node.named_children:
        return False
    return last_name(base_name(node.named_children[0])) in _MESSAGES


def is_assert(unit: Unit, node: Any) -> bool:
    """Return whether a call is an assert that isn't switched off."""
    return called_name(node) == ASSERT and "NDEBUG" not in unit.macros


def may_leave(unit: Unit, node: Any) -> bool:
    """Return whether a statement may leave its function or end the program."""
    if next(nodes(node, *JUMPS, *INNER_JUMPS), None) is not None:
        return True
    ending = _ending_functions(unit)
    return any(
        is_exit(call) or is_assert(unit, call) or called_name(call) in ending
        for call in nodes(node, "call_expression")
    )


def has_remainder(unit: Unit, node: Any) -> bool:
    """Return whether a statement computes a remainder, also by a host function."""
    names = {called_name(call) for call in nodes(node, "call_expression")}
    bodies = [node]
    for function in unit.functions:
        if not function.is_kernel and last_name(function.name) in names:
            bodies.append(function.body)
    for body in bodies:
        for operation in nodes(body, "binary_expression"):
            if text_of(operation.child_by_field_name("operator")) == "%":
                return True
    return False


@lru_cache(maxsize=64)
def _ending_functions(unit: Unit) -> Set[str]:
    """Return the names of host functions that may end the program.

    A function may also end it by a call of another one.
    """
    ending = set[str]()
    callees = dict[str, set[str]]()
    for function in unit.functions:
        if function.is_kernel:
            continue
        name = last_name(function.name)
        calls = [*nodes(function.body, "call_expression")]
        callees.setdefault(name, set()).update(called_name(call) for call in calls)
        throws = next(nodes(function.body, "throw_statement"), None) is not None
        if throws or any(is_exit(call) or is_assert(unit, call) for call in calls):
            ending.add(name)
    while True:
        callers = {name for name, names in callees.items() if not names.isdisjoint(ending)}
        if callers <= ending:
            return ending
        ending |= callers


def is_of_sizes(
    node: Any, names: Set[str], values: Mapping[str, Sequence[Any]], functions: Set[str]
) -> bool:
    """Return whether an expression depends on sizes and constants only.

    names: of sizes, constants and the template's parameters
    values: the values_in the function that contains the expression
    functions: the plain_functions of the unit
    """
    names_here = names | _declared_in_expression(node)
    parts = [*_without_messages(node)]
    callees = {called_name(part) for part in parts if part.type == "call_expression"}
    lambdas = {name for name in callees if _is_lambda(values.get(name, ()))}
    functions_here = callees - lambdas
    if not functions_here <= {*functions, *_OF_NUMBERS, *_EXITS}:
        return False
    for part in parts:
        name = text_of(part) if part.type == "identifier" else ""
        if not name or name in names_here or name == "std" or name in functions_here:
            continue
        assigned = values.get(name, ())
        if not assigned:
            return False
        inner_names = names_here | {name}
        if not all(is_of_sizes(value, inner_names, values, functions) for value in assigned):
            return False
    return True


def _declared_in_expression(node: Any) -> set[str]:
    """Return the names that a lambda or a loop in an expression declares."""
    names = set[str]()
    for declaration in nodes(node, "parameter_declaration", "declaration", "for_range_loop"):
        for declarator in declaration.children_by_field_name("declarator"):
            names.add(base_name(declarator))
    return names


def _is_lambda(values: Sequence[Any]) -> bool:
    """Return whether each value of a variable is a lambda."""
    return bool(values) and all(value.type == "lambda_expression" for value in values)


def _without_messages(node: Any) -> Iterator[Any]:
    """Yield a node and the nodes in it, without statements that only print."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if not is_message(part):
            yield part
            waiting += part.named_children


def values_in(function: Definition) -> dict[str, list[Any]]:
    """Return the expressions that a function assigns to each of its variables.

    Variables that may change otherwise are left out.
    """
    values = dict[str, list[Any]]()
    for node in nodes(function.body, "declaration"):
        for declarator in node.children_by_field_name("declarator"):
            assigned = values.setdefault(base_name(declarator), [])
            value = declarator.child_by_field_name("value")
            if value is not None:
                assigned.append(value)
    for node in nodes(function.body, "assignment_expression"):
        name = base_name(node.child_by_field_name("left"))
        if name in values:
            values[name].append(node.child_by_field_name("right"))
    for name in _referenced(function):
        values.pop(name, None)
    return values


def plain_functions(unit: Unit) -> set[str]:
    """Return the names of host functions that take numbers by value and launch nothing."""
    return {last_name(function.name) for function in unit.functions if _is_plain(function)}


def _referenced(function: Definition) -> set[str]:
    """Return the variables in a function that a pointer or a reference may mean."""
    names = set[str]()
    for node in nodes(function.body, "pointer_expression"):
        if text_of(node).startswith("&"):
            names.add(base_name(node))
    for node in nodes(function.body, "init_declarator"):
        if node.child_by_field_name("declarator").type == "reference_declarator":
            names |= {text_of(name) for name in nodes(node, "identifier")}
    return names


def _is_plain(function: Definition) -> bool:
    """Return whether a function takes numbers by value and launches nothing."""
    if function.is_kernel or any(p.pointer or not p.dtype for p in function.parameters):
        return False
    calls = nodes(function.body, "call_expression")
    return all(launch_at(call, function) is None for call in calls)


def called_name(call: Any) -> str:
    """Return the name of the function that a call calls; "" for none."""
    callee = call.child_by_field_name("function")
    return last_name(text_of(callee).partition("<")[0]) if callee is not None else ""
