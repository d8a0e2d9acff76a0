"""The program that runs host code up to a launch, on the emulator's device.

It has slices (worklog.kernel.host.slices) of the functions in the chain of calls to the launch. The
body of each kernel is replaced by code that records the launch. The sizes that the kernel takes are
inputs: variables of the chain's first function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from worklog.errors import BadSetting
from worklog.kernel.host.calls import CallChain, HostCall, base_name, last_name, launch_at, uncast
from worklog.kernel.host.doubts import declared_in, is_instantiated, is_passed
from worklog.kernel.host.slices import Slice, SliceOptions, Slicer
from worklog.kernel.host.text import assembled, head_of, is_type_parameter
from worklog.kernel.signature import MAP_TYPE
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import RECORDS, Definition, Unit
from worklog.problem import Parameter

FIRST = "worklog_first"  # the first function of the chain, which launcher.cuh calls
ENTRY = "worklog_host"  # the kernel of launcher.cuh
STAND_INS = 1 << 60  # addresses of no memory
SPACING = 1 << 40  # between them
_FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class HostProgram:
    """Code to compile and run."""

    text: str  # defines the function FIRST, behind launcher.cuh
    # For each input: the kernel's parameters that get it.
    places: tuple[tuple[int, ...], ...] = ()
    # Lines of statements that may leave at some sizes and aren't in the text.
    unread_guards: tuple[int, ...] = ()


def program(unit: Unit, chain: CallChain, target: Definition, options: SliceOptions) -> HostProgram:
    """Return the program that follows a chain of calls to a launch.

    target: the kernel that is launched
    Raises BadSetting if the launch depends on something that the program can't compute.
    """
    first = chain.calls[0].function
    bodies = dict[int, str]()
    needed = set[str]()
    unread_guards = set[int]()
    first_body = ""
    for place, call in enumerate(chain.calls):
        callee = target if call is chain.launch else chain.calls[place + 1].function
        codes = _codes(call.function, chain.inputs[place])
        stand_ins = _stand_ins(unit, call, callee)
        part = Slicer(unit, call, codes, options, is_first=place == 0, replaced=stand_ins).sliced()
        if part.doubt:
            raise BadSetting(part.doubt)
        if place == 0:
            first_body = _first_body(unit, first, part, chain)
        else:
            bodies[call.function.body.start_byte] = part.text
        needed |= part.needed
        unread_guards |= part.unread_guards
    first_code, first_names = _first_function(first, first_body)
    text = assembled(unit, needed | first_names, bodies, _codes_of_globals(chain))
    guards = tuple(sorted(line for line in unread_guards if line))
    return HostProgram(f"{text}\n{first_code}\n", chain.places, guards)


def _codes(function: Definition, inputs: Mapping[str, int]) -> dict[str, str]:
    """Return the code that stands for each input of a function.

    inputs: variables of the function, each with the number of its input
    """
    return {name: f"worklog::input<{_type(function, name)}>({n})" for name, n in inputs.items()}


def _codes_of_globals(chain: CallChain) -> dict[str, str]:
    """Return the code in place of each input that the launch's function doesn't declare."""
    function = chain.launch.function
    variables = declared_in(function)
    codes = dict[str, str]()
    for name, code in _codes(function, chain.inputs[-1]).items():
        if name.partition(".")[0] not in variables:
            codes[name] = code
    return codes


def free_variables(
    unit: Unit, launch: HostCall, target: Definition, names: Sequence[str]
) -> list[str]:
    """Return the integer parameters of a function that its launch depends on.

    Fields of parameters are also returned.

    target: the kernel that is launched
    names: variables that are left out
    """
    function = launch.function
    codes = _codes(function, {name: number for number, name in enumerate(names)})
    options = SliceOptions(has_conditions=False)
    stand_ins = _stand_ins(unit, launch, target)
    part = Slicer(unit, launch, codes, options, is_first=True, replaced=stand_ins).sliced()
    free = list[str]()
    for parameter in function.parameters:
        if parameter.name not in part.needed or parameter.name in names or parameter.pointer:
            continue
        if "int" in parameter.dtype:
            free.append(parameter.name)
        elif not parameter.dtype:
            free += sorted(text for text in part.fields if text.startswith(f"{parameter.name}."))
    return free


def whole_program(unit: Unit, function: Definition) -> HostProgram:
    """Return the program that runs a complete function, with its arguments as inputs.

    The input for a pointer is a number that stands for its memory. The input for a float is its
    bits as a double.
    """
    passed = list[str]()
    for number, parameter in enumerate(function.parameters):
        bits = f"worklog::input<long long>({number})"
        if parameter.pointer:
            passed.append(f"({'const ' * parameter.const}{parameter.type}*){bits}")
        elif parameter.dtype in _FLOATS:
            passed.append(f"({parameter.type})__longlong_as_double({bits})")
        else:
            passed.append(f"({parameter.type}){bits}")
    text = assembled(unit, {last_name(function.name)}, {}, {})
    call = f"void {FIRST}() {{ {function.name}({', '.join(passed)}); }}"
    return HostProgram(f"{text}\n{call}\n")


def _default(function: Definition, name: str) -> str:
    """Return the default value of a parameter; 1 for the argc of main, "" for none."""
    if (function.name, name) == ("main", "argc"):
        return "1"
    for node in nodes(head_of(function), "optional_parameter_declaration"):
        if base_name(node.child_by_field_name("declarator")) == name:
            return text_of(node.child_by_field_name("default_value"))
    return ""


def _first_body(unit: Unit, function: Definition, part: Slice, chain: CallChain) -> str:
    """Return the body of a chain's first function without parameters.

    part: the slice of the function
    Raises BadSetting for a parameter that the launch depends on and whose value is unknown.
    """
    template = dict(function.template)
    template |= dict(zip(template, chain.instance, strict=False))
    template |= {name: "float" for name, text in template.items() if text == "double"}
    declarations = [
        *_template_declarations(unit, function, part, template, has_instance=bool(chain.instance)),
        *_parameter_declarations(unit, function, part, template, inputs=chain.inputs[0]),
    ]
    return f"{{\n{' '.join(declarations)}\n{part.text}\n}}"


def _template_declarations(
    unit: Unit,
    function: Definition,
    part: Slice,
    template: Mapping[str, str],
    *,
    has_instance: bool,
) -> Iterator[str]:
    """Yield declarations in place of the parameters of a first function's template.

    template: the parameters' arguments or default values
    has_instance: whether the arguments are known
    Raises BadSetting, as _first_body.
    """
    needed = {*part.needed}
    for parameter in function.parameters:
        if parameter.name in part.needed:
            needed |= {*re.findall(r"\w+", parameter.type)}
    pointed = {parameter.type for parameter in function.parameters if parameter.pointer}
    has_unknown_arguments = not has_instance and is_instantiated(unit, function)
    for name, value in template.items():
        if name not in needed:
            continue
        if has_unknown_arguments:
            raise BadSetting(f"the launch depends on {name}, of the template {function.name}")
        if not has_instance and name in pointed:
            yield f"using {name} = float;"
        elif value and is_type_parameter(function, name):
            yield f"using {name} = {value};"
        elif value:
            yield f"constexpr auto {name} = {value};"
        else:
            raise BadSetting(f"the launch depends on {name}, of the template {function.name}")


def _parameter_declarations(
    unit: Unit,
    function: Definition,
    part: Slice,
    template: Mapping[str, str],
    *,
    inputs: Mapping[str, int],
) -> Iterator[str]:
    """Yield declarations in place of the parameters of a first function.

    template: the parameters of its template
    inputs: names of parameters that aren't declared, because code stands for them
    Raises BadSetting, as _first_body.
    """
    launched = _launched_by(function)
    for place, parameter in enumerate(function.parameters):
        name = parameter.name
        if name not in part.needed or name in inputs:
            continue
        unknown = f"the launch depends on {parameter.declaration}, of {function.name}"
        if name in launched:
            raise BadSetting(unknown)
        default = _default(function, name)
        if parameter.pointer:
            yield f"auto {name} = {_address(parameter, template, place)};"
        elif default and not is_passed(unit, function, place):
            yield f"auto {name} = {default};"
        elif parameter.dtype in _FLOATS:
            yield f"{parameter.type.rstrip('&')} {name} = 1;"
        else:
            raise BadSetting(unknown)


def _first_function(function: Definition, body: str) -> tuple[str, set[str]]:
    """Return the code that defines FIRST, and the names that this code needs.

    FIRST is in the namespace of the function that it stands for, and in a class. For a method, this
    class inherits from the method's class, so that static members can be used.
    """
    namespaces = list[str]()
    record = ""
    outer = head_of(function)
    while outer is not None:
        name = text_of(outer.child_by_field_name("name"))
        if outer.type == "namespace_definition":
            namespaces.insert(0, name)
        elif outer.type in RECORDS:
            record = f"{name}::{record}" if record else name
        outer = outer.parent
    outer_class = f" : {record}" if record else ""
    code = f"struct {FIRST}_scope{outer_class} {{ static void {FIRST}_body() {body} }};"
    for name in reversed(namespaces):
        code = f"namespace {name} {{\n{code}\n}}"
    scope = "".join(f"{name}::" for name in namespaces if name)
    needed = {*record.split("::")} - {""}
    return f"{code}\nvoid {FIRST}() {{ {scope}{FIRST}_scope::{FIRST}_body(); }}", needed


def _type(function: Definition, name: str) -> str:
    """Return the type of a function's variable, for code."""
    for parameter in function.parameters:
        if parameter.name == name and parameter.dtype:
            return parameter.type
    for node in nodes(function.body, "declaration"):
        for declarator in node.children_by_field_name("declarator"):
            kind = text_of(node.child_by_field_name("type"))
            if base_name(declarator) == name and kind not in ("auto", ""):
                return kind
    return "int"


def _stand_ins(unit: Unit, call: HostCall, callee: Definition) -> dict[int, str]:
    """Return code in place of the addresses and floats that a call passes, by their place.

    A launch doesn't depend on these.
    """
    if call.form not in ("", "<<<", "cudaLaunchKernelEx"):
        return {}
    parameters = {parameter.name for parameter in call.function.parameters}
    functions = {last_name(function.name) for function in unit.functions}
    launched = _launched_by(callee)
    codes = dict[int, str]()
    for place, parameter in enumerate(callee.parameters):
        if place >= len(call.arguments) or text_of(call.arguments[place]) in parameters:
            continue
        if parameter.name in launched or base_name(uncast(call.arguments[place])) in functions:
            continue
        if parameter.pointer and parameter.type != MAP_TYPE:
            named_types = dict(zip(callee.template, call.template, strict=False))
            type_ = named_types.get(parameter.type, "float")
            codes[place] = _address(parameter, callee.template, place, type_)
        elif parameter.dtype in _FLOATS:
            codes[place] = "1.0f"
    return codes


def _launched_by(function: Definition) -> set[str]:
    """Return the names that a host function launches or passes on, without numbers.

    A parameter may be the kernel.
    """
    if function.is_kernel:
        return set()
    names = set[str]()
    for node in nodes(function.body, "call_expression"):
        launch = launch_at(node, function)
        if launch is not None:
            names.add(launch.name)
            continue
        arguments = node.child_by_field_name("arguments")
        if arguments is not None:
            names |= {text_of(uncast(argument)) for argument in arguments.named_children}
    numbers = {p.name for p in function.parameters if p.dtype}
    return names - numbers


def _address(
    parameter: Parameter, template: Mapping[str, str], place: int, template_type: str = ""
) -> str:
    """Return code for an address that a function may get.

    Floats, such as alpha, can be read there.

    template: parameters of the function's template
    template_type: the type in place of a parameter of the template; "" for no other type
    """
    kind = parameter.type.rstrip("&")
    is_of_template = not template.keys().isdisjoint(re.findall(r"\w+", kind))
    if is_of_template and template_type:
        kind = template_type
    if is_of_template or parameter.dtype in _FLOATS:
        return f"({kind}*)&worklog::memory"
    return f"({kind}*){stand_in(place)}ull"


def stand_in(place: int) -> int:
    """Return the address in place of a parameter's memory. Host code can't read it."""
    return STAND_INS + place * SPACING
