"""Statements that leave host code before a launch, and whether sizes decide that they do.

A guard such as `if (M % 16) return;` tells at which sizes a kernel is launched. A test of an allocation tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from worklog.kernel.host_calls import base_name, last_name, launch_at
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


def may_leave(unit: Unit, node: Any) -> bool:
    """Return whether a statement may leave its function, or end the program, at the place where it is."""
    if next(nodes(node, *JUMPS, *INNER_JUMPS), None) is not None:
        return True
    return any(
        is_exit(call) or called_name(call) == ASSERT or ends_program(unit, call)
        for call in nodes(node, "call_expression")
    )


def ends_program(unit: Unit, call: Any) -> bool:
    """Return whether a call is of a function that may end the program."""
    name = called_name(call)
    for function in unit.functions:
        if function.is_kernel or last_name(function.name) != name:
            continue
        if next(nodes(function.body, "throw_statement"), None) is not None:
            return True
        inner = [*nodes(function.body, "call_expression")]
        if any(is_exit(other) or called_name(other) == ASSERT for other in inner):
            return True
    return False


def is_of_sizes(
    node: Any, known: Set[str], values: Mapping[str, Sequence[Any]], functions: Set[str]
) -> bool:
    """Return whether an expression depends on what is known, and on nothing else.

    known: names of sizes, constants and the template's parameters
    values: as of values_in, of the function that it is in
    functions: as of plain_functions
    """
    called = {called_name(call) for call in nodes(node, "call_expression")}
    if not called <= {*functions, *_OF_NUMBERS}:
        return False
    for variable in nodes(node, "identifier"):
        name = text_of(variable)
        if name in known or name in called or name == "std":
            continue
        own = values.get(name, ())
        rest = known | {name}
        if not own or not all(is_of_sizes(value, rest, values, functions) for value in own):
            return False
    return True


def values_in(function: Definition) -> dict[str, list[Any]]:
    """Return the expressions that a function gives to its variables, but to those that may change otherwise."""
    values = dict[str, list[Any]]()
    for node in nodes(function.body, "declaration"):
        for declarator in node.children_by_field_name("declarator"):
            given = values.setdefault(base_name(declarator), [])
            value = declarator.child_by_field_name("value")
            if value is not None:
                given.append(value)
    for node in nodes(function.body, "assignment_expression"):
        name = base_name(node.child_by_field_name("left"))
        if name in values:
            values[name].append(node.child_by_field_name("right"))
    for taken in _addresses(function):
        for name in taken:
            values.pop(name, None)
    return values


def plain_functions(unit: Unit) -> set[str]:
    """Return the names of host functions that take numbers by value and launch nothing."""
    return {last_name(function.name) for function in unit.functions if _is_plain(function)}


def _addresses(function: Definition) -> Iterator[set[str]]:
    """Yield the variables whose address, or whose reference, a function takes."""
    for node in nodes(function.body, "pointer_expression"):
        if text_of(node).startswith("&"):
            yield {base_name(node)}
    for node in nodes(function.body, "init_declarator"):
        if node.child_by_field_name("declarator").type == "reference_declarator":
            yield {text_of(name) for name in nodes(node, "identifier")}


def _is_plain(function: Definition) -> bool:
    """Return whether a function takes numbers by value and launches nothing."""
    if function.is_kernel or any(p.pointer or not p.dtype for p in function.parameters):
        return False
    calls = nodes(function.body, "call_expression")
    return all(launch_at(call, function) is None for call in calls)


def called_name(call: Any) -> str:
    """Return the name of what is called."""
    called = call.child_by_field_name("function")
    return last_name(text_of(called).partition("<")[0]) if called is not None else ""
