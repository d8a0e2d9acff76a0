"""Launches in a source's host code, and the functions that lead to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from worklog.kernel.source import nodes, split_list, text_of
from worklog.kernel.unit import Definition, Unit

MAX_CALLS = 4  # in a chain of calls
MAX_CHAINS = 8  # to one launch
BY_ADDRESSES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
BY_CONFIG = {"cudaLaunchKernelEx": "by_config", "cudaLaunchKernelExC": "by_config_and_addresses"}
USED = ("identifier", "type_identifier", "namespace_identifier")
VARIABLES = ("identifier", "field_expression")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_CASTS = ("static_cast", "reinterpret_cast", "const_cast")
_TYPES = ("float", "double", "int", "unsigned", "half", "__half")


@dataclass(frozen=True)
class HostCall:
    """A launch in host code, or a call of a function that leads to a launch."""

    function: Definition  # the function that contains the call
    node: Any
    kernel: Any  # the expression of the kernel or of the called function
    configuration: tuple[Any, ...]  # of a launch, the expressions between <<< and >>>
    arguments: tuple[Any, ...]
    form: str  # "<<<", "" for a call of a function, or the function of the runtime

    @property
    def name(self) -> str:
        """The name of the kernel or the called function, without template arguments."""
        return text_of(self.kernel).partition("<")[0].strip("& ")

    @property
    def template(self) -> list[str]:
        """The template arguments that the call names."""
        arguments = text_of(self.kernel).partition("<")[2].rpartition(">")[0]
        return split_list(arguments) if arguments else []

    @property
    def line(self) -> int:
        """The line of the source; of a header, 0."""
        return self.function.line(self.node.start_byte)


@dataclass(frozen=True)
class CallChain:
    """The calls that lead to a launch. The last call is the launch."""

    calls: tuple[HostCall, ...]
    # For the function of each call: the number of the input that a variable stands for.
    inputs: tuple[Mapping[str, int], ...]
    # For each input: the kernel's parameters that get it; none for a size that only the grid uses.
    places: tuple[tuple[int, ...], ...]
    instance: tuple[str, ...] = ()  # arguments of the first function's template

    @property
    def launch(self) -> HostCall:
        """The launch at the end."""
        return self.calls[-1]


def launches_in(unit: Unit) -> list[HostCall]:
    """Return the launches in a unit's host code, in order."""
    launches = list[HostCall]()
    for function in unit.functions:
        if function.is_kernel:
            continue
        for node in nodes(function.body, "call_expression"):
            launch = launch_at(node, function)
            if launch is not None:
                launches.append(launch)
    return launches


def launch_at(node: Any, function: Definition) -> HostCall | None:
    """Return a call in a function as a launch; None if it launches nothing."""
    callee = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if callee is None or arguments is None:
        return None
    passed = tuple(arguments.named_children)
    for child in node.named_children:
        if child.type == "kernel_call_syntax":
            configuration = tuple(child.named_children)[:3]  # without a stream
            return HostCall(function, node, callee, configuration, passed, "<<<")
    name = text_of(callee)
    if name in BY_CONFIG and len(passed) > 1:
        return HostCall(function, node, uncast(passed[1]), (passed[0],), passed[2:], name)
    if name in BY_ADDRESSES and len(passed) > 3:
        configuration = (*passed[1:3], *passed[4:5])
        variables = _variables(function, passed[3])
        if variables:
            return HostCall(function, node, uncast(passed[0]), configuration, variables, "<<<")
        addresses = (passed[3], *passed[4:5])
        return HostCall(function, node, uncast(passed[0]), passed[1:3], addresses, name)
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
    callee = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if callee is None or arguments is None or len(arguments.named_children) != 1:
        return False
    return callee.type == "primitive_type" or text_of(callee).startswith(_CASTS)


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


def chains_to(
    unit: Unit,
    launch: HostCall,
    places: Sequence[int],
    extra: str = "",
    plain_places: Sequence[int] = (),
) -> list[CallChain]:
    """Return the chains of calls that lead to a launch, the shortest first.

    places: of the kernel's parameters that are sizes
    extra: a further variable of the launch's function that is an input
    plain_places: places of the kernel's parameters whose variables are inputs, but no sizes
    """
    places_of_variable = dict[str, tuple[int, ...]]()
    for place, argument in _sizes_passed(launch, places):
        name = text_of(argument)
        if _NAME.fullmatch(name):
            places_of_variable[name] = (*places_of_variable.get(name, ()), place)
    if extra:
        places_of_variable[extra] = ()
    for place, argument in _sizes_passed(launch, plain_places):
        name = text_of(argument)
        if _NAME.fullmatch(name):
            places_of_variable.setdefault(name, (place,))
    numbers = {name: number for number, name in enumerate(places_of_variable)}
    chains = [CallChain((launch,), (numbers,), tuple(places_of_variable.values()))]
    for chain in chains:  # which grows
        if len(chain.calls) < MAX_CALLS and len(chains) < MAX_CHAINS:
            callers = calls_of(unit, chain.calls[0].function)
            chains += [_with_caller(chain, call) for call in callers]
    instantiated = list[CallChain]()
    for chain in chains:
        instances = _instances(unit, chain.calls[0].function)
        instantiated += [replace(chain, instance=arguments) for arguments in instances] or [chain]
    return instantiated


def calls_of(unit: Unit, target: Definition) -> Iterator[HostCall]:
    """Yield the calls of a host function in the other host functions."""
    name = last_name(target.name)
    for function in unit.functions:
        if function.is_kernel or function is target:
            continue
        for node in nodes(function.body, "call_expression"):
            callee = node.child_by_field_name("function")
            arguments = node.child_by_field_name("arguments")
            if callee is None or arguments is None or launch_at(node, function) is not None:
                continue
            if last_name(text_of(callee).partition("<")[0]) == name:
                yield HostCall(function, node, callee, (), tuple(arguments.named_children), "")


def unused_functions(unit: Unit) -> set[str]:
    """Return the names of host functions that no function in use mentions."""
    mentions = Counter(_mentions(unit.root))
    inner_mentions = {
        function.name: Counter(_mentions(function.body)) for function in unit.functions
    }
    unused = set[str]()
    while True:
        names = _unmentioned(unit, mentions, inner_mentions) - unused
        if not names:
            return unused
        unused |= names
        for name in names:
            mentions -= inner_mentions[name]


def _unmentioned(
    unit: Unit, mentions: Counter[str], inner_mentions: Mapping[str, Counter[str]]
) -> set[str]:
    """Return the names of host functions that nothing outside of the function mentions.

    mentions: how often the code in use mentions each name
    inner_mentions: the same of each function's body
    """
    names = set[str]()
    for function in unit.functions:
        name = last_name(function.name)
        if function.is_kernel or name.startswith("operator") or name == "main":
            continue
        if mentions[name] == inner_mentions[function.name][name]:
            names.add(function.name)
    return names


def is_only_called(unit: Unit, function: Definition) -> bool:
    """Return whether a function is mentioned only where it is called."""
    name = last_name(function.name)
    calls = [call for call in calls_of(unit, function) if call.name.endswith(name)]
    return Counter(_mentions(unit.root))[name] == len(calls)


def _mentions(node: Any) -> Iterator[str]:
    """Yield the names in a node's code. Names of functions that it declares are left out."""
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


def _with_caller(chain: CallChain, call: HostCall) -> CallChain:
    """Return a chain behind a call of the chain's first function."""
    first = chain.calls[0].function
    arguments = dict(zip((p.name for p in first.parameters), call.arguments, strict=False))
    local = {parameter.name for parameter in first.parameters}
    for node in nodes(first.body, "declaration"):
        local |= {base_name(declarator) for declarator in node.children_by_field_name("declarator")}
    inputs = dict[str, int]()
    number_in_caller = dict[int, int]()  # of inputs: several may be one variable of the caller
    for name, number in chain.inputs[0].items():
        base, dot, member = name.partition(".")
        if base in arguments:
            variable = text_of(uncast(arguments[base])) + dot + member
        elif base in local:
            continue
        else:
            variable = name
        if _NAME.fullmatch(variable):
            number_in_caller[number] = inputs.setdefault(variable, number)
    places = list(chain.places)
    for number, joined in number_in_caller.items():
        if number != joined:
            places[joined] = (*places[joined], *places[number])
    callees = list[Mapping[str, int]]()
    for numbers in chain.inputs:
        callees.append(
            {name: number_in_caller.get(number, number) for name, number in numbers.items()}
        )
    return CallChain((call, *chain.calls), (inputs, *callees), tuple(places))


def _instances(unit: Unit, function: Definition) -> list[tuple[str, ...]]:
    """Return the arguments that a source passes to the template of a function.

    If some have a float, only these.
    """
    if not function.template:
        return []
    name = last_name(function.name)
    instances = list[tuple[str, ...]]()
    for text in unit.instances:
        match = re.search(rf"\b{re.escape(name)}\s*<(.+)>\s*\(", text)
        if match:
            instances.append(tuple(split_list(match[1])))
    constants = {*unit.defined, *unit.constants, *_TYPES}
    for other in unit.functions:
        for node in nodes(other.body, "template_function"):
            if last_name(text_of(node.child_by_field_name("name"))) != name:
                continue
            arguments = node.child_by_field_name("arguments").named_children
            if _names_in(arguments) <= constants - {*other.template}:
                instances.append(tuple(text_of(argument) for argument in arguments))
    of_floats = [arguments for arguments in instances if "float" in arguments]
    return list(dict.fromkeys(of_floats or instances))


def _names_in(expressions: Sequence[Any]) -> set[str]:
    """Return the names in some expressions."""
    names = set[str]()
    for expression in expressions:
        names |= {text_of(name) for name in nodes(expression, *USED)}
    return names


def _sizes_passed(launch: HostCall, places: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield the places of a kernel's sizes, and what a launch passes there, without casts."""
    if launch.form in ("<<<", "cudaLaunchKernelEx"):
        for place in places:
            if place < len(launch.arguments):
                yield place, uncast(launch.arguments[place])


def size_macros(unit: Unit, launch: HostCall, places: Sequence[int]) -> set[str]:
    """Return the macros that a launch passes for sizes: `#define N 1024`."""
    names = set[str]()
    for _, argument in _sizes_passed(launch, places):
        if argument.type == "number_literal":
            name = unit.word_at(argument.start_byte)
            if unit.constants.get(name) == text_of(argument):
                names.add(name)
    return names


def passed_to(unit: Unit, target: Definition) -> Iterator[list[str]]:
    """Yield the arguments of each launch of a kernel, without casts."""
    for launch in launches_in(unit):
        if unit.definition(launch.name) is target:
            yield [text_of(uncast(argument)) for argument in launch.arguments]
