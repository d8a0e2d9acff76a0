"""A program that runs host code as far as its launches: compiled for the emulator's device, it records them.

The functions on the way to a launch are there as slices (worklog.kernel.host_slice), and each kernel's body records
what it got. Sizes that the kernel takes are inputs: variables of the function that begins the way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from worklog.kernel.host_calls import Call, Way, base_name, last_name, launch_at, uncast
from worklog.kernel.host_doubts import declared_in, is_instantiated, is_passed
from worklog.kernel.host_slice import How, Slice, Slicer, edited, rendered
from worklog.kernel.source import blank, nodes, text_of
from worklog.kernel.unit import NAMESPACES, RECORDS, Definition, Piece, Unit
from worklog.problem import Parameter

LINES = "source"  # the name in messages of what is in the source, and no header
FIRST = "worklog_first"  # the function that begins the way, which launcher.cuh calls
ENTRY = "worklog_host"  # the kernel of launcher.cuh
STAND_INS = 1 << 60  # addresses of no memory
SPACING = 1 << 40  # between them
_FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class HostProgram:
    """Code to compile and run.

    text: defines the function FIRST, behind launcher.cuh
    places: of each input, those of the kernel's parameters that take it
    unread_guards: lines of statements that may leave at some sizes, and aren't in the text
    """

    text: str
    places: tuple[tuple[int, ...], ...] = ()
    unread_guards: tuple[int, ...] = ()


def program(unit: Unit, way: Way, target: Definition, how: How) -> tuple[HostProgram | None, str]:
    """Return the program that follows a way to a launch; or None, and why it can't be made.

    target: the kernel that is launched
    """
    first = way.calls[0].function
    bodies = dict[int, str]()
    needed = set[str]()
    unread_guards = set[int]()
    beginning = ""
    for place, call in enumerate(way.calls):
        callee = target if call is way.launch else way.calls[place + 1].function
        kept = _sliced(unit, call, callee, way.inputs[place], how, is_first=place == 0)
        if kept.doubt:
            return None, kept.doubt
        if place == 0:
            beginning, why = _beginning(unit, first, kept, way)
            if why:
                return None, why
        else:
            bodies[call.function.body.start_byte] = kept.text
        needed |= kept.needed
        unread_guards |= kept.unread_guards
    code, own = _first_function(first, beginning)
    codes = _codes(way.launch.function, way.inputs[-1])
    variables = declared_in(way.launch.function)
    outside = {
        name: code for name, code in codes.items() if name.partition(".")[0] not in variables
    }
    text = _assembled(unit, needed | own, bodies, outside)
    guards = tuple(sorted(line for line in unread_guards if line))
    return HostProgram(f"{text}\n{code}\n", way.places, guards), ""


def _sliced(
    unit: Unit,
    call: Call,
    callee: Definition,
    inputs: Mapping[str, int],
    how: How,
    *,
    is_first: bool,
) -> Slice:
    """Return what is kept of the function of a call.

    inputs: variables of the function with the number of the input that they are
    """
    codes = _codes(call.function, inputs)
    return Slicer(unit, call, codes, how, is_first, _stand_ins(unit, call, callee)).sliced()


def _codes(function: Definition, inputs: Mapping[str, int]) -> dict[str, str]:
    """Return the code that stands for each input of a function."""
    return {name: f"worklog::input<{_type(function, name)}>({n})" for name, n in inputs.items()}


def free_variables(unit: Unit, launch: Call, target: Definition, names: Sequence[str]) -> list[str]:
    """Return what a launch depends on beside some names: integers that its function takes, or fields of these."""
    inputs = {name: number for number, name in enumerate(names)}
    kept = _sliced(unit, launch, target, inputs, How(has_conditions=False), is_first=True)
    free = list[str]()
    for parameter in launch.function.parameters:
        if parameter.name not in kept.needed or parameter.name in names or parameter.pointer:
            continue
        if "int" in parameter.dtype:
            free.append(parameter.name)
        elif not parameter.dtype:
            free += sorted(text for text in kept.fields if text.startswith(f"{parameter.name}."))
    return free


def whole_program(unit: Unit, function: Definition) -> HostProgram:
    """Return the program that runs a function as it is, with its arguments as inputs.

    A pointer's input is a number that stands for its memory; a float's are its bits as a double.
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
    text = _assembled(unit, {last_name(function.name)}, {}, {})
    call = f"void {FIRST}() {{ {function.name}({', '.join(passed)}); }}"
    return HostProgram(f"{text}\n{call}\n")


def _default(function: Definition, name: str) -> str:
    """Return the code of a parameter that nobody passes: its default value, and 1 for the argc of main."""
    if (function.name, name) == ("main", "argc"):
        return "1"
    for node in nodes(_head(function), "optional_parameter_declaration"):
        if base_name(node.child_by_field_name("declarator")) == name:
            return text_of(node.child_by_field_name("default_value"))
    return ""


def _beginning(unit: Unit, function: Definition, kept: Slice, way: Way) -> tuple[str, str]:
    """Return the code of a way's first function without parameters; or why it can't be the first."""
    declared = list[str]()
    template = dict(function.template)
    template |= dict(zip(template, way.instance, strict=False))
    template |= {name: "float" for name, text in template.items() if text == "double"}
    needed = {*kept.needed}
    for parameter in function.parameters:
        if parameter.name in kept.needed:
            needed |= {*re.findall(r"\w+", parameter.type)}
    is_given = not way.instance and is_instantiated(unit, function)
    for name, default in template.items():
        if name not in needed:
            continue
        if is_given:
            return "", f"the launch depends on {name}, of the template {function.name}"
        if not way.instance and any(
            parameter.type == name for parameter in function.parameters if parameter.pointer
        ):
            declared.append(f"using {name} = float;")
        elif default and _is_type(function, name):
            declared.append(f"using {name} = {default};")
        elif default:
            declared.append(f"constexpr auto {name} = {default};")
        else:
            return "", f"the launch depends on {name}, of the template {function.name}"
    for place, parameter in enumerate(function.parameters):
        if parameter.name not in kept.needed or parameter.name in way.inputs[0]:
            continue
        if parameter.name in _launched_by(function):
            return "", f"the launch depends on {parameter.declaration}, of {function.name}"
        if parameter.pointer:
            declared.append(f"auto {parameter.name} = {_address(parameter, template, place)};")
        elif _default(function, parameter.name) and not is_passed(unit, function, place):
            default = _default(function, parameter.name)
            declared.append(f"auto {parameter.name} = {default};")
        elif parameter.dtype in _FLOATS:
            declared.append(f"{parameter.type.rstrip('&')} {parameter.name} = 1;")
        else:
            return "", f"the launch depends on {parameter.declaration}, of {function.name}"
    body = f"{{\n{' '.join(declared)}\n{kept.text}\n}}"
    return body, ""


def _first_function(function: Definition, body: str) -> tuple[str, set[str]]:
    """Return the code that defines FIRST where the function is that it stands for, and names that it needs.

    The code stands in a class; that of a method in one that inherits from the method's, so that it can use what is
    static there.
    """
    namespaces = list[str]()
    record = ""
    outer = _head(function)
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


def _is_type(function: Definition, name: str) -> bool:
    """Return whether a template's parameter is a type."""
    return any(_declared(node) == name and "type" in node.type for node in _template(function))


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


def _stand_ins(unit: Unit, call: Call, callee: Definition) -> dict[int, str]:
    """Return code for addresses of memory and for floats, which a launch doesn't depend on, by their place."""
    if call.form not in ("", "<<<", "cudaLaunchKernelEx"):
        return {}
    own = {parameter.name for parameter in call.function.parameters}
    functions = {last_name(function.name) for function in unit.functions}
    launched = _launched_by(callee)
    codes = dict[int, str]()
    for place, parameter in enumerate(callee.parameters):
        if place >= len(call.arguments) or text_of(call.arguments[place]) in own:
            continue
        if parameter.name in launched or base_name(uncast(call.arguments[place])) in functions:
            continue
        if parameter.pointer:
            codes[place] = _address(parameter, callee.template, place, "float")
        elif parameter.dtype in _FLOATS:
            codes[place] = "1.0f"
    return codes


def _launched_by(function: Definition) -> set[str]:
    """Return the names that a function launches, or passes on with a call: a parameter may be the kernel."""
    names = set[str]()
    for node in nodes(function.body, "call_expression"):
        launch = None if function.is_kernel else launch_at(node, function)
        if launch is not None:
            names.add(launch.name)
        elif not function.is_kernel:
            arguments = node.child_by_field_name("arguments")
            named = arguments.named_children if arguments is not None else []
            names |= {text_of(uncast(argument)) for argument in named}
    numbers = {p.name for p in function.parameters if p.dtype}
    return names - numbers


def _address(parameter: Parameter, template: Mapping[str, str], place: int, other: str = "") -> str:
    """Return code for an address that a function may get. Floats, such as alpha, can be read there.

    template: parameters of the function's template
    other: the type that stands for one of these
    """
    kind = parameter.type.rstrip("&")
    is_of_template = not template.keys().isdisjoint(re.findall(r"\w+", kind))
    if is_of_template and other:
        kind = other
    if is_of_template or parameter.dtype in _FLOATS:
        return f"({kind}*)&worklog::memory"
    return f"({kind}*){stand_in(place)}ull"


def stand_in(place: int) -> int:
    """Return the address that stands for the memory of a function's parameter; host code can't read it."""
    return STAND_INS + place * SPACING


def _assembled(
    unit: Unit,
    needed: Set[str],
    bodies: Mapping[int, str],
    codes: Mapping[str, str],
) -> str:
    """Return the unit's text with what is needed, and with kernels that record their launch.

    bodies: code of functions, by the place of their body
    codes: of variables outside of functions that are inputs, and are no longer defined
    """
    text = " " * unit.root.start_byte + unit.root.text.decode()
    functions = {function.body.start_byte: function for function in unit.functions}
    numbers = {function.body.start_byte: n for n, function in enumerate(unit.functions)}
    # Of kernels and of sliced functions, only what is before the body.
    heads = {start for start in functions if functions[start].is_kernel or start in bodies}
    pieces = {piece.span[0]: piece for piece in unit.pieces}
    kept = _needed_pieces(text, pieces, needed, heads)
    edits = list[tuple[int, int, str]]()
    for start, piece in pieces.items():
        first, last = piece.span
        if start not in kept or (piece.names and piece.names <= {*codes}):
            edits.append((first, last, blank(text[first:last])))
            continue
        edits += [(*place, "") for place in piece.host_members]
    for start, function in functions.items():
        if any(first <= start < last for first, last, _ in edits):
            continue
        body = function.body
        if function.is_kernel:
            edits.append((start, body.end_byte, _recording(function, numbers[start])))
            edits += _without_bounds(function)
        elif start in bodies:
            edits.append((start, body.end_byte, _returning(function, bodies[start])))
        else:
            own = declared_in(function)
            others = {name: code for name, code in codes.items() if name not in own}
            edits.append((start, body.end_byte, _with_lines(function, others)))
    return re.sub(r"\b__global__\b", "__device__", edited(text, 0, edits))


def _needed_pieces(
    text: str, pieces: Mapping[int, Piece], needed: Set[str], heads: Set[int]
) -> set[int]:
    """Return the places of the pieces that define what is needed, and what these need in turn.

    pieces: by their place in the text
    needed: names
    heads: places of bodies that don't count
    """
    waiting = {*needed}
    defining = defaultdict[str, list[int]](list)
    for start, piece in pieces.items():
        for name in piece.names:
            defining[name].append(start)
    kept = set[int]()
    for start, piece in pieces.items():
        is_using = piece.operands is not None and not piece.names
        if is_using and piece.mentions.isdisjoint(NAMESPACES):
            kept.add(start)
            waiting |= piece.mentions
    names = set[str]()
    while waiting:
        name = waiting.pop()
        names.add(name)
        for start in defining[name]:
            if start in kept:
                continue
            kept.add(start)
            inside = [place for place in heads if start <= place < pieces[start].span[1]]
            words = {*pieces[start].mentions}
            if len(inside) == 1:
                words = {*re.findall(r"\w+", text[start : inside[0]])}
            waiting |= words - names
    return kept


def _with_lines(function: Definition, codes: Mapping[str, str]) -> str:
    """Return a function's body in which each statement has its line in the source, for messages."""
    statements = list[str]()
    for node in function.body.named_children:
        line = function.line(node.start_byte)
        place = f'\n#line {line} "{LINES}"\n' if line else "\n"
        statements.append(place + rendered(node, function, codes))
    return "{" + "".join(statements) + "\n}"


def _head(function: Definition) -> Any:
    """Return the node of a function's definition."""
    return function.body.parent


def _without_bounds(function: Definition) -> list[tuple[int, int, str]]:
    bounds = [node for node in _head(function).named_children if node.type == "launch_bounds"]
    return [(node.start_byte, node.end_byte, "") for node in bounds]


def _returning(function: Definition, body: str) -> str:
    """Return a function's body with a value to return, if it returns one."""
    kind = text_of(_head(function).child_by_field_name("type"))
    return body if kind in ("void", "auto") else body[:-1] + "return {};\n}"


def _recording(function: Definition, number: int) -> str:
    """Return the body of a kernel that records its launch."""
    values = list[str]()
    template = _template(function)
    for node in template:
        name = _declared(node)
        values.append(
            f"worklog::Kind<{name}>::number" if "type" in node.type else f"worklog::value({name})"
        )
    passed = [parameter.name or "0" for parameter in function.parameters]
    arguments = ", ".join([str(number), f"worklog::Values{{{{{', '.join(values)}}}}}", *passed])
    return f"{{ worklog::launched({arguments}); }}"


def _template(function: Definition) -> list[Any]:
    """Return the nodes of a template's parameters."""
    outer = _head(function).parent
    if outer is None or outer.type != "template_declaration":
        return []
    return list(outer.child_by_field_name("parameters").named_children)


def _declared(node: Any) -> str:
    """Return the name of a template's parameter."""
    words: list[str] = re.findall(r"\w+", text_of(node).partition("=")[0])
    return words[-1]


def template_types(function: Definition) -> list[str]:
    """Return the type of each parameter of a template; "typename" for one that is a type."""
    kinds = list[str]()
    for node in _template(function):
        text = text_of(node).partition("=")[0].strip()
        kind = text.rpartition(" ")[0]
        kinds.append("typename" if kind in ("typename", "class") else kind)
    return kinds
