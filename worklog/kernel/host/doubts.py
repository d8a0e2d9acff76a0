"""Changes that the slice of a launch misses: a launch that may depend on them isn't read.

A slice finds the statements that change a variable by the variable's name. It misses a change by
another name, and a change in a function outside of the chain of calls to the launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import lru_cache
from typing import Any

from worklog.kernel.host.calls import HostCall, base_name, calls_of, last_name
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Definition, Unit

ARCH = "__CUDA_ARCH__"
LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_CHANGES = ("assignment_expression", "update_expression")


def doubt(unit: Unit, call: HostCall, needed: Set[str], used_at: Mapping[str, int]) -> str:
    """Describe a change that the slice of a call's function may miss; "" for none.

    needed: names that the call depends on
    used_at: of each input, the place of its first use in the slice
    """
    names = {*needed, *used_at}
    reasons = [
        _code_for_the_device(unit, call.function),
        _changed_input(call, used_at),
        _changed_by_another_name(call, names, needed),
        _changed_elsewhere(unit, call.function, needed),
        _changed_after(call, needed),
        _shadowed(call, names),
    ]
    return next(filter(None, reasons), "")


def is_passed(unit: Unit, function: Definition, place: int) -> bool:
    """Return whether any call passes a value for a function's parameter."""
    return any(len(call.arguments) > place for call in calls_of(unit, function))


def is_instantiated(unit: Unit, function: Definition) -> bool:
    """Return whether any call states arguments of a function's template."""
    name = last_name(function.name)
    for other in unit.functions:
        for node in nodes(other.body, "template_function"):
            if text_of(node.child_by_field_name("name")) == name:
                return True
    return False


def changes(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield target and node of each assignment, increment and decrement in a node."""
    for change in nodes(node, *_CHANGES):
        target = change.child_by_field_name("left") or change.child_by_field_name("argument")
        yield text_of(target), change


def declared_in(function: Definition) -> set[str]:
    """Return the parameters and the variables of a function."""
    names = {parameter.name for parameter in function.parameters}
    for node in nodes(function.body, "declaration"):
        names |= {base_name(declarator) for declarator in node.children_by_field_name("declarator")}
    for node in nodes(function.body, "for_range_loop"):
        names.add(base_name(node.child_by_field_name("declarator")))
    return names


def _code_for_the_device(unit: Unit, function: Definition) -> str:
    """Describe a condition on __CUDA_ARCH__; "" for none.

    A unit is read with this macro, and host code is compiled without it.
    """
    source, _, _ = unit.arguments
    first = function.line(function.body.start_byte)
    last = function.line(function.body.end_byte - 1)
    if first and ARCH in "".join(source.splitlines()[first - 1 : last]):
        return f"{function.name} has code that depends on {ARCH}"
    return ""


def _changed_input(call: HostCall, used_at: Mapping[str, int]) -> str:
    """Describe an input that changes behind its first use: an input stands for one value."""
    for target, change in changes(call.function.body):
        is_before = change.start_byte < call.node.start_byte
        if is_before and used_at.get(target, change.start_byte) < change.start_byte:
            return f"{target} changes before the launch{_line(call, change)}"
    return ""


def _changed_by_another_name(call: HostCall, names: Set[str], needed: Set[str]) -> str:
    """Describe a reference or a pointer to a variable by which it may change."""
    body = call.function.body
    end = call.node.start_byte
    touched = {_base_of(target) for target, change in changes(body) if change.start_byte < end}
    for node in nodes(body, "argument_list"):
        if node.start_byte < end:
            touched |= {base_name(argument) for argument in node.named_children}
    for alias, node, variables in _aliases(body):
        is_before = node.start_byte < end
        if is_before and alias in touched - needed and not variables.isdisjoint(names):
            return f"{alias} is another name of {min(variables & names)}{_line(call, node)}"
    return ""


def _aliases(body: Any) -> Iterator[tuple[str, Any, set[str]]]:
    """Yield each reference and pointer, its declaration, and the variables that it may mean."""
    for node in nodes(body, "declaration", "for_range_loop"):
        if any(text_of(child) == "const" for child in node.children):
            continue
        for declarator, value in _initialised(node):
            if declarator is not None and value is not None:
                yield base_name(declarator), node, _aliased(declarator, value)


def _initialised(declaration: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each declarator of a declaration, or of a loop over a range, with its value."""
    if declaration.type == "for_range_loop":
        declarator = declaration.child_by_field_name("declarator")
        yield declarator, declaration.child_by_field_name("right")
        return
    for part in declaration.children_by_field_name("declarator"):
        if part.type == "init_declarator":
            yield part.child_by_field_name("declarator"), part.child_by_field_name("value")


def _aliased(declarator: Any, value: Any) -> set[str]:
    """Return the variables that a reference or a pointer with this value may mean."""
    if declarator.type == "reference_declarator":
        return {text_of(name) for name in nodes(value, "identifier")}
    variables = set[str]()
    for address in nodes(value, "pointer_expression"):
        if text_of(address).startswith("&"):
            variables.add(base_name(address))
    return variables


def _changed_elsewhere(unit: Unit, function: Definition, needed: Set[str]) -> str:
    """Describe a variable outside of functions that another function changes."""
    for name in sorted(needed - declared_in(function)):
        functions = _functions_by_global(unit).get(name, set()) - {function.name}
        if functions:
            return f"{min(functions)} changes {name}"
    return ""


@lru_cache(maxsize=64)
def _functions_by_global(unit: Unit) -> Mapping[str, Set[str]]:
    """Return the names of the host functions that change each variable outside of functions."""
    functions_by_global = dict[str, set[str]]()
    for function in unit.functions:
        if function.is_kernel:
            continue
        local = declared_in(function)
        for target, _ in changes(function.body):
            name = _base_of(target)
            if name not in local:
                functions_by_global.setdefault(name, set()).add(function.name)
    return functions_by_global


def _changed_after(call: HostCall, needed: Set[str]) -> str:
    """Describe a change behind the launch that the next turn of a loop or a lambda sees."""
    outer = call.node.parent
    while outer is not None and outer != call.function.body:
        is_lambda = outer.type == "lambda_expression"
        if is_lambda or outer.type in LOOPS:
            scope = call.function.body if is_lambda else outer
            for target, change in changes(scope):
                is_after = change.start_byte > call.node.end_byte
                is_update = outer.type == "for_statement" and change.parent == outer
                if is_after and not is_update and _base_of(target) in needed:
                    kind = "lambda" if is_lambda else "loop"
                    return f"{target} changes after a launch in a {kind}{_line(call, change)}"
        outer = outer.parent
    return ""


def _shadowed(call: HostCall, names: Set[str]) -> str:
    """Describe a lambda's parameter that has the name of a variable outside."""
    outer = call.node.parent
    while outer is not None and outer != call.function.body:
        if outer.type == "lambda_expression":
            for parameter in nodes(outer, "parameter_declaration"):
                name = base_name(parameter.child_by_field_name("declarator"))
                if name in names:
                    return f"{name} is a parameter of a lambda{_line(call, parameter)}"
        outer = outer.parent
    return ""


def _base_of(target: str) -> str:
    """Return the variable that the text of an assignment's target begins with."""
    name = target.lstrip("*(& ")
    for mark in (".", "-", "[", ")", " "):
        name = name.partition(mark)[0]
    return name


def _line(call: HostCall, node: Any) -> str:
    """Return the place of a node for a message."""
    line = call.function.line(node.start_byte)
    return f", in line {line}" if line else ""
