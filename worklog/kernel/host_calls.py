"""Launches in a source's host code, and the functions that lead to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from worklog.kernel.source import nodes, parts, text_of
from worklog.kernel.unit import Definition, Unit

MOST_CALLERS = 4  # of each other, on the way to a launch
MOST_WAYS = 8  # to one launch
BY_ADDRESSES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
BY_CONFIG = {"cudaLaunchKernelEx": "by_config", "cudaLaunchKernelExC": "by_config_and_addresses"}
USED = ("identifier", "type_identifier", "namespace_identifier")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_CASTS = ("static_cast", "reinterpret_cast", "const_cast")
_TYPES = ("float", "double", "int", "unsigned", "half", "__half")


@dataclass(frozen=True)
class Call:
    """A launch in host code, or a call of a function that leads to one.

    kernel: what is called, an expression.
    configuration: of a launch, the expressions between <<< and >>>.
    """

    function: Definition  # that it is in
    node: Any
    kernel: Any
    configuration: tuple[Any, ...]
    arguments: tuple[Any, ...]
    form: str  # "<<<", "" for a call of a function, or the function of the runtime

    @property
    def name(self) -> str:
        """The name of what is called, without template arguments."""
        return text_of(self.kernel).partition("<")[0].strip("& ")

    @property
    def line(self) -> int:
        """The line of the source; of a header, 0."""
        return self.function.line(self.node.start_byte)


@dataclass(frozen=True)
class Way:
    """The calls on a way to a launch, the last of which is the launch.

    inputs: of the function of each call, variables with the number of the input that they are
    places: of each input, those of the kernel's parameters that take it; none for a size that only the grid takes
    instance: arguments of the first function's template
    """

    calls: tuple[Call, ...]
    inputs: tuple[Mapping[str, int], ...]
    places: tuple[tuple[int, ...], ...]
    instance: tuple[str, ...] = ()

    @property
    def launch(self) -> Call:
        """The launch at its end."""
        return self.calls[-1]


def launches_in(unit: Unit) -> list[Call]:
    """Return the launches in a unit's host code, in order."""
    found = list[Call]()
    for function in unit.functions:
        if function.is_kernel:
            continue
        for node in nodes(function.body, "call_expression"):
            call = launch_at(node, function)
            if call is not None:
                found.append(call)
    return found


def launch_at(node: Any, function: Definition) -> Call | None:
    """Return the launch that a call in a function is; None if it is no launch."""
    called = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if called is None or arguments is None:
        return None
    passed = tuple(arguments.named_children)
    for child in node.named_children:
        if child.type == "kernel_call_syntax":
            configuration = tuple(child.named_children)[:3]  # without a stream
            return Call(function, node, called, configuration, passed, "<<<")
    name = text_of(called)
    if name in BY_CONFIG and len(passed) > 1:
        return Call(function, node, uncast(passed[1]), (passed[0],), passed[2:], name)
    if name in BY_ADDRESSES and len(passed) > 3:
        configuration = (*passed[1:3], *passed[4:5])
        variables = _variables(function, passed[3])
        if variables:
            return Call(function, node, uncast(passed[0]), configuration, variables, "<<<")
        rest = (passed[3], *passed[4:5])
        return Call(function, node, uncast(passed[0]), passed[1:3], rest, name)
    return None


def _variables(function: Definition, array: Any) -> tuple[Any, ...]:
    """Return the variables whose addresses are in an array; none if that isn't clear."""
    for node in nodes(function.body, "init_declarator"):
        value = node.child_by_field_name("value")
        if base_name(node) == text_of(array) and value.type == "initializer_list":
            return tuple(uncast(address) for address in value.named_children)
    return ()


def uncast(node: Any) -> Any:
    """Return an expression without casts, brackets and &."""
    while True:
        if node.type in ("cast_expression", "pointer_expression", "parenthesized_expression"):
            node = node.named_children[-1]
        elif node.type == "call_expression" and _is_cast(node):
            node = node.child_by_field_name("arguments").named_children[0]
        else:
            return node


def _is_cast(node: Any) -> bool:
    """Return whether a call is static_cast<int>(n) or int(n)."""
    called = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if called is None or arguments is None or len(arguments.named_children) != 1:
        return False
    return called.type == "primitive_type" or text_of(called).startswith(_CASTS)


def base_name(node: Any) -> str:
    """Return the name of the variable that an expression or a declarator begins with."""
    while node is not None and node.type not in ("identifier", "qualified_identifier"):
        inner = None
        for name in ("declarator", "argument", "left", "function"):
            inner = inner or node.child_by_field_name(name)
        node = inner or next(iter(node.named_children), None)
    return text_of(node)


def last_name(name: str) -> str:
    """Return a name without its namespaces."""
    return name.rpartition("::")[2]


def ways_to(unit: Unit, launch: Call, places: Sequence[int], extra: str = "") -> list[Way]:
    """Return the ways to a launch, the shortest first: the functions that may begin it.

    places: of the kernel's parameters that are sizes
    extra: a variable of the launch's function that is an input, too
    """
    taken = dict[str, tuple[int, ...]]()
    for place, argument in _sizes_passed(launch, places):
        name = text_of(argument)
        if _NAME.fullmatch(name):
            taken[name] = (*taken.get(name, ()), place)
    if extra:
        taken[extra] = ()
    numbers = {name: number for number, name in enumerate(taken)}
    ways = [Way((launch,), (numbers,), tuple(taken.values()))]
    for way in ways:  # which grows
        if len(way.calls) < MOST_CALLERS and len(ways) < MOST_WAYS:
            ways += [_begun_by(call, way) for call in calls_of(unit, way.calls[0].function)]
    found = list[Way]()
    for way in ways:
        instances = _instances(unit, way.calls[0].function)
        found += [replace(way, instance=given) for given in instances] or [way]
    return found


def calls_of(unit: Unit, called: Definition) -> Iterator[Call]:
    """Yield the calls of a host function in others."""
    name = last_name(called.name)
    for function in unit.functions:
        if function.is_kernel or function is called:
            continue
        for node in nodes(function.body, "call_expression"):
            named = node.child_by_field_name("function")
            arguments = node.child_by_field_name("arguments")
            if named is None or arguments is None or launch_at(node, function) is not None:
                continue
            if last_name(text_of(named).partition("<")[0]) == name:
                yield Call(function, node, named, (), tuple(arguments.named_children), "")


def unused_functions(unit: Unit) -> set[str]:
    """Return the names of host functions that nothing mentions, but other functions that nothing mentions."""
    mentions = Counter(_mentions(unit.root))
    inside = {function.name: Counter(_mentions(function.body)) for function in unit.functions}
    unused = set[str]()
    while True:
        found = set[str]()
        for function in unit.functions:
            name = last_name(function.name)
            is_operator = name.startswith("operator")
            if function.is_kernel or is_operator or name == "main" or function.name in unused:
                continue
            if mentions[name] == inside[function.name][name]:
                found.add(function.name)
        if not found:
            return unused
        unused |= found
        for name in found:
            mentions -= inside[name]


def is_only_called(unit: Unit, function: Definition) -> bool:
    """Return whether a function is mentioned only where it is called."""
    name = last_name(function.name)
    calls = [call for call in calls_of(unit, function) if call.name.endswith(name)]
    return Counter(_mentions(unit.root))[name] == len(calls)


def _mentions(node: Any) -> Iterator[str]:
    """Yield the names in a node's code, but those that it declares functions by."""
    for name in nodes(node, *USED, "field_identifier"):
        if not _declares(name):
            yield text_of(name)


def _declares(name: Any) -> bool:
    """Return whether a name is where its function is declared."""
    node = name
    while node.parent is not None and node.parent.type == "qualified_identifier":
        node = node.parent
    outer = node.parent
    is_declarator = outer is not None and outer.type == "function_declarator"
    return bool(is_declarator and outer.child_by_field_name("declarator") == node)


def _begun_by(call: Call, way: Way) -> Way:
    """Return the way that begins with a call of a way's first function."""
    first = way.calls[0].function
    arguments = dict(zip((p.name for p in first.parameters), call.arguments, strict=False))
    local = {parameter.name for parameter in first.parameters}
    for node in nodes(first.body, "declaration"):
        local |= {base_name(declarator) for declarator in node.children_by_field_name("declarator")}
    inputs = dict[str, int]()
    same = dict[int, int]()  # inputs that are one variable of the caller
    for name, number in way.inputs[0].items():
        base, dot, member = name.partition(".")
        if base in arguments:
            variable = text_of(uncast(arguments[base])) + dot + member
        elif base in local:
            continue
        else:
            variable = name
        if _NAME.fullmatch(variable):
            same[number] = inputs.setdefault(variable, number)
    places = list(way.places)
    for number, other in same.items():
        if number != other:
            places[other] = (*places[other], *places[number])
    callees = [
        {name: same.get(number, number) for name, number in names.items()} for names in way.inputs
    ]
    return Way((call, *way.calls), (inputs, *callees), tuple(places))


def _instances(unit: Unit, function: Definition) -> list[tuple[str, ...]]:
    """Return the arguments that a source gives to the template of a function."""
    if not function.template:
        return []
    name = last_name(function.name)
    found = list[tuple[str, ...]]()
    for text in unit.instances:
        match = re.search(rf"\b{re.escape(name)}\s*<(.+)>\s*\(", text)
        if match:
            found.append(tuple(parts(match[1])))
    known = {*unit.defined, *unit.constants, *_TYPES}
    for other in unit.functions:
        for node in nodes(other.body, "template_function"):
            named = text_of(node.child_by_field_name("name"))
            given = node.child_by_field_name("arguments").named_children
            words = {text_of(word) for argument in given for word in nodes(argument, *USED)}
            if last_name(named) == name and words <= known - {*other.template}:
                found.append(tuple(text_of(argument) for argument in given))
    of_floats = [given for given in found if "float" in given]
    return list(dict.fromkeys(of_floats or found))


def _sizes_passed(launch: Call, places: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield the places of a kernel's sizes, and what a launch passes there, without casts."""
    if launch.form in ("<<<", "cudaLaunchKernelEx"):
        for place in places:
            if place < len(launch.arguments):
                yield place, uncast(launch.arguments[place])


def size_macros(unit: Unit, launch: Call, places: Sequence[int]) -> set[str]:
    """Return the macros that a launch passes for sizes: `#define N 1024`."""
    names = set[str]()
    for _, argument in _sizes_passed(launch, places):
        if argument.type == "number_literal":
            name = unit.word_at(argument.start_byte)
            if unit.constants.get(name) == text_of(argument):
                names.add(name)
    return names
