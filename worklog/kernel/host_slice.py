"""The part of a source's host code that leads to a launch, as a program that records the launch when it runs.

Files, allocations and messages of a `main` don't matter for a launch. So of each function on the way to it, only the
statements are kept on which the launch depends (a backward slice), and each kernel's body records what it got. Sizes
that the kernel takes are inputs of the program: variables of the function that begins the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from worklog.kernel.source import blank, nodes, parts, text_of
from worklog.kernel.unit import NAMESPACES, RECORDS, Definition, Unit
from worklog.problem import Parameter

LINES = "source"  # the name in messages of what is in the source, and no header
FIRST = "worklog_first"  # the name of the function that begins the way
ENTRY = "worklog_host"
ENTRY_CODE = f"""extern "C" __global__ void {ENTRY}(
    const long long* inputs, int count, worklog::Record* records, unsigned* launches, int most) {{
  worklog::begin(inputs, count, records, launches, most);
  {FIRST}();
}}
"""
STAND_INS = 1 << 60  # addresses of no memory
SPACING = 1 << 40  # between them
MOST_CALLERS = 4  # of each other, on the way to a launch
MOST_WAYS = 8  # to the launches of one kernel
BY_ADDRESSES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
BY_CONFIG = {"cudaLaunchKernelEx": "by_config", "cudaLaunchKernelExC": "by_config_and_addresses"}
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_BODIES = ("compound_statement", "else_clause")
_CHANGES = (
    "declaration", "assignment_expression", "update_expression", "call_expression", "for_range_loop",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_USED = ("identifier", "type_identifier", "namespace_identifier")
_VARIABLES = ("identifier", "field_expression")
_CASTS = ("static_cast", "reinterpret_cast", "const_cast")
_NAMES = ("using_declaration", "alias_declaration", "type_definition", "namespace_alias_definition")
_TYPES = ("float", "double", "int", "unsigned", "half", "__half")
_FLOATS = ("float32", "float64")


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
    """A function that begins a way to a launch, the calls on the way, and the launch.

    inputs: names in the first function, with the places of the kernel's parameters that take each.
    """

    calls: tuple[Call, ...]
    inputs: Mapping[str, tuple[int, ...]]
    instance: tuple[str, ...] = ()  # arguments of the first function's template

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
            call = _launch(function, node)
            if call is not None:
                found.append(call)
    return found


def _launch(function: Definition, node: Any) -> Call | None:
    """Return a launch; None for another call."""
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
        return Call(function, node, _uncast(passed[1]), (passed[0],), passed[2:], name)
    if name in BY_ADDRESSES and len(passed) > 3:
        configuration = (*passed[1:3], *passed[4:5])
        variables = _variables(function, passed[3])
        if variables:
            return Call(function, node, _uncast(passed[0]), configuration, variables, "<<<")
        rest = (passed[3], *passed[4:5])
        return Call(function, node, _uncast(passed[0]), passed[1:3], rest, name)
    return None


def _variables(function: Definition | None, array: Any) -> tuple[Any, ...]:
    """Return the variables whose addresses are in an array; none if that isn't clear."""
    for node in nodes(function.body, "init_declarator") if function is not None else ():
        value = node.child_by_field_name("value")
        if _base(node) == text_of(array) and value.type == "initializer_list":
            return tuple(_uncast(address) for address in value.named_children)
    return ()


def _uncast(node: Any) -> Any:
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


def contains(outer: Any, inner: Any) -> bool:
    """Return whether a node is another one or around it."""
    return bool(outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte)


def _last(name: str) -> str:
    return name.rpartition("::")[2]


@dataclass
class Slice:
    """What is kept of a function for one call in it.

    text: of its body, without what stands for inputs
    needed: names that the text uses and doesn't define
    """

    text: str
    needed: set[str]


@dataclass(frozen=True)
class How:
    """What is kept of the way to a launch: branches on it, and its dynamic shared memory."""

    has_conditions: bool = True
    has_shared: bool = True


@dataclass
class _Slicer:
    """Keeps what a call depends on.

    inputs: names, each with the code that stands for it
    arguments: of the call, those that are kept as they are, and the others' code
    """

    unit: Unit
    call: Call
    inputs: Mapping[str, str]
    how: How
    replaced: Mapping[int, str] = field(default_factory=dict)  # code of arguments, by their place
    needed: set[str] = field(default_factory=set)

    def sliced(self) -> Slice:
        text = self._block(self.call.function.body)
        return Slice(text, self.needed)

    def _block(self, block: Any) -> str:
        """Return the statements of a block that the call depends on."""
        statements = [node for node in block.named_children if node.type != "comment"]
        place = next(n for n, node in enumerate(statements) if contains(node, self.call.node))
        kept = [self._around(statements[place])]
        for statement in reversed(statements[:place]):
            if self._is_needed(statement):
                kept.insert(0, self._kept(statement))
        return "{\n" + "\n".join(kept) + "\n}"

    def _is_needed(self, statement: Any) -> bool:
        if statement.type == "using_declaration":
            return True
        if statement.type in _NAMES:
            names = {text_of(node) for node in nodes(statement, "type_identifier", "identifier")}
            return not names.isdisjoint(self.needed)
        return not (self._changed(statement) - {*self.inputs}).isdisjoint(self.needed)

    def _kept(self, statement: Any) -> str:
        """Return what is kept of a statement that changes what is needed."""
        if statement.type == "compound_statement":
            kept = list[str]()
            for inner in reversed(statement.named_children):
                if self._is_needed(inner):
                    kept.insert(0, self._kept(inner))
            return "{\n" + "\n".join(kept) + "\n}"
        bodies = [child for child in statement.named_children if child.type in _BODIES]
        if statement.type not in (*_LOOPS, "if_statement", "else_clause") or not bodies:
            self._use(statement)
            return self.rendered(statement)
        edits = [(body.start_byte, body.end_byte, self._kept(body)) for body in bodies]
        for child in statement.named_children:
            if child not in bodies:
                self._use(child)
                edits.append((child.start_byte, child.end_byte, self.rendered(child)))
        return edited(statement.text.decode(), statement.start_byte, edits)

    def _around(self, node: Any) -> str:
        """Return what is kept of the statement that has the call."""
        if contains(self.call.node, node):
            return self._called()
        own = next(child for child in node.named_children if contains(child, self.call.node))
        if node.type == "compound_statement":
            return self._block(node)
        if node.type == "lambda_expression" and own.type == "compound_statement":
            return self._block(own)
        if node.type == "if_statement":
            return self._branch(node, own)
        if node.type in _LOOPS:
            return self._loop(node, own)
        if node.type == "case_statement":
            return self._block(node)
        return self._around(own)

    def _branch(self, node: Any, own: Any) -> str:
        condition = node.child_by_field_name("condition")
        if contains(condition, own):
            return self._around(own)
        kept = self._around(own)
        if not self.how.has_conditions:
            return kept
        self._use(condition)
        word = "if constexpr" if any(c.type == "constexpr" for c in node.children) else "if"
        text = self.rendered(condition)
        if own == node.child_by_field_name("consequence"):
            return f"{word} {text} {{ {kept} }}"
        return f"{word} {text} {{ }} else {{ {kept} }}"

    def _loop(self, node: Any, own: Any) -> str:
        body = node.child_by_field_name("body")
        kept = self._around(own)
        if not contains(body, own) or node.type == "do_statement":
            return kept
        head = node.text[: body.start_byte - node.start_byte].decode()
        declared = set[str]()
        for child in node.named_children:
            if child != body:
                declared |= self._changed(child)
        if node.type == "for_range_loop":
            declared.add(_base(node.child_by_field_name("declarator")))
        if declared.isdisjoint(self.needed) or not declared.isdisjoint(self.inputs):
            return kept
        for child in node.named_children:
            if child != body:
                self._use(child)
        return f"{head}{{ {kept} }}"

    def _called(self) -> str:
        """Return the call, as code that records a launch."""
        call = self.call
        if call.form == "<<<" and not self.how.has_shared:
            call = replace(call, configuration=call.configuration[:2])
        self._use(call.kernel)
        for node in call.configuration:
            self._use(node)
        passed = list[str]()
        for place, node in enumerate(call.arguments):
            if place in self.replaced:
                passed.append(self.replaced[place])
            else:
                self._use(node)
                passed.append(self.rendered(node))
        return _code(call, self.rendered, passed) + ";"

    def _use(self, node: Any) -> None:
        waiting = [node]
        while waiting:
            inner = waiting.pop()
            if inner.type in _VARIABLES and text_of(inner) in self.inputs:
                continue
            if inner.type in _USED:
                self.needed.add(text_of(inner))
            waiting += inner.named_children

    def _changed(self, statement: Any) -> set[str]:
        """Return the names that a statement declares or may change, without those that it declares inside."""
        names = self._changed_inside(statement)
        if statement.type != "declaration":
            for node in nodes(statement, "declaration"):
                declarators = node.children_by_field_name("declarator")
                names -= {_base(declarator) for declarator in declarators}
        return names

    def _changed_inside(self, statement: Any) -> set[str]:
        names = set[str]()
        for node in nodes(statement, *_CHANGES):
            if node.type == "declaration":
                declarators = node.children_by_field_name("declarator")
                names |= {_base(declarator) for declarator in declarators}
            elif node.type == "call_expression":
                names |= self._changed_by_call(node)
            else:
                target = node.child_by_field_name("left") or node.child_by_field_name("argument")
                names.add(_base(target))
        return names - {""}

    def _changed_by_call(self, node: Any) -> set[str]:
        """Return what a call may change: by an address, by a reference, or its object."""
        called = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if called is None or arguments is None:
            return set()
        names = set[str]()
        if called.type == "field_expression":
            names.add(_base(called))
        functions = [f for f in self.unit.functions if _last(f.name) == _last(text_of(called))]
        for place, argument in enumerate(arguments.named_children):
            is_reference = any(
                f.parameters[place].type.endswith("&")
                for f in functions
                if place < len(f.parameters)
            )
            if text_of(argument).startswith("&") or is_reference:
                names.add(_base(argument))
        return names

    def rendered(self, node: Any) -> str:
        """Return a node's text with code for inputs, and for the launches in it."""
        return rendered(node, self.inputs)


def rendered(node: Any, inputs: Mapping[str, str]) -> str:
    """Return a node's text with code in place of inputs and launches.

    inputs: names, each with the code that stands for it
    """
    edits = list[tuple[int, int, str]]()
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        text = text_of(inner) if inner.type in _VARIABLES else ""
        if text in inputs:
            edits.append((inner.start_byte, inner.end_byte, inputs[text]))
            continue
        launch = _launch(None, inner) if inner.type == "call_expression" else None  # type: ignore[arg-type]
        if launch is not None:
            passed = [rendered(argument, inputs) for argument in launch.arguments]
            code = _code(launch, lambda part: rendered(part, inputs), passed)
            edits.append((inner.start_byte, inner.end_byte, code))
            continue
        waiting += inner.named_children
    return edited(node.text.decode(), node.start_byte, edits)


def edited(text: str, start: int, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a text with other code at some places.

    start: the place of the text
    """
    for first, last, code in sorted(edits, reverse=True):
        text = text[: first - start] + code + text[last - start :]
    return text


def _code(call: Call, text: Any, passed: Sequence[str]) -> str:
    """Return code that records a launch, or calls a function that leads to one."""
    kernel = text(call.kernel)
    if call.form == "":
        return f"{kernel}({', '.join(passed)})"
    configuration = [text(node) for node in call.configuration]
    if call.form == "<<<":
        return f"(worklog::configure({', '.join(configuration)}), {kernel}({', '.join(passed)}))"
    if call.form in BY_CONFIG:
        given = ", ".join([configuration[0], kernel, *passed])
        return f"worklog::{BY_CONFIG[call.form]}({given})"
    return f"worklog::by_addresses({', '.join([kernel, *configuration, *passed])})"


def _base(node: Any) -> str:
    """Return the name of the variable that an expression or a declarator begins with."""
    while node is not None and node.type not in ("identifier", "qualified_identifier"):
        inner = None
        for name in ("declarator", "argument", "left", "function"):
            inner = inner or node.child_by_field_name(name)
        node = inner or next(iter(node.named_children), None)
    return text_of(node)


def ways_to(unit: Unit, launch: Call, places: Sequence[int]) -> list[Way]:
    """Return the ways to a launch, the shortest first: the functions that may begin it.

    places: of the kernel's parameters that are sizes
    """
    inputs = dict[str, tuple[int, ...]]()
    for place, argument in _sizes_passed(launch, places):
        name = text_of(argument)
        if _NAME.fullmatch(name):
            inputs[name] = (*inputs.get(name, ()), place)
    ways = [Way((launch,), inputs)]
    for way in ways:  # which grows
        if len(way.calls) < MOST_CALLERS and len(ways) < MOST_WAYS:
            ways += _longer(unit, way)
    found = list[Way]()
    for way in ways:
        instances = _instances(unit, way.calls[0].function)
        found += [replace(way, instance=given) for given in instances] or [way]
    return found


def _instances(unit: Unit, function: Definition) -> list[tuple[str, ...]]:
    """Return the arguments that a source gives to the template of a function."""
    if not function.template:
        return []
    name = _last(function.name)
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
            words = {text_of(word) for argument in given for word in nodes(argument, *_USED)}
            if _last(named) == name and words <= known - {*other.template}:
                found.append(tuple(text_of(argument) for argument in given))
    of_floats = [given for given in found if "float" in given]
    return list(dict.fromkeys(of_floats or found))


def _longer(unit: Unit, way: Way) -> Iterator[Way]:
    """Yield the ways that begin with a call of a way's first function."""
    first = way.calls[0].function
    local = {parameter.name for parameter in first.parameters}
    for node in nodes(first.body, "declaration"):
        declared = {_base(declarator) for declarator in node.children_by_field_name("declarator")}
        if not declared.isdisjoint(way.inputs):
            return  # what calls the function passes other things
    for function in unit.functions:
        if function.is_kernel or function is first:
            continue
        for node in nodes(function.body, "call_expression"):
            called = node.child_by_field_name("function")
            arguments = node.child_by_field_name("arguments")
            if called is None or arguments is None or _launch(function, node) is not None:
                continue
            if _last(text_of(called).partition("<")[0]) != _last(first.name):
                continue
            passed = tuple(arguments.named_children)
            call = Call(function, node, called, (), passed, "")
            inputs = {name: given for name, given in way.inputs.items() if name not in local}
            for argument, parameter in zip(passed, first.parameters, strict=False):
                name = text_of(_uncast(argument))
                if parameter.name in way.inputs and _NAME.fullmatch(name):
                    inputs[name] = (*inputs.get(name, ()), *way.inputs[parameter.name])
            yield Way((call, *way.calls), inputs)


def _sizes_passed(launch: Call, places: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield the places of a kernel's sizes, and what a launch passes there, without casts."""
    if launch.form in ("<<<", "cudaLaunchKernelEx"):
        for place in places:
            if place < len(launch.arguments):
                yield place, _uncast(launch.arguments[place])


def size_macros(unit: Unit, launch: Call, places: Sequence[int]) -> set[str]:
    """Return the macros that a launch passes for sizes: `#define N 1024`."""
    names = set[str]()
    for _, argument in _sizes_passed(launch, places):
        if argument.type == "number_literal":
            name = unit.word_at(argument.start_byte)
            if unit.constants.get(name) == text_of(argument):
                names.add(name)
    return names


@dataclass(frozen=True)
class HostProgram:
    """Code to compile and run.

    text: defines the kernel ENTRY
    inputs: names in the first function, in the order of the inputs' numbers
    """

    text: str
    inputs: tuple[str, ...]


def program(unit: Unit, way: Way, target: Definition, how: How) -> tuple[HostProgram | None, str]:
    """Return the program that follows a way to a launch; or None, and why it can't be made.

    target: the kernel that is launched
    """
    numbers = {name: number for number, name in enumerate(way.inputs)}
    first = way.calls[0].function
    codes = {name: f"worklog::input<{_type(first, name)}>({n})" for name, n in numbers.items()}
    bodies = dict[int, str]()
    needed = set[str]()
    beginning = ""
    for place, call in enumerate(way.calls):
        callee = target if call is way.launch else way.calls[place + 1].function
        own = {parameter.name for parameter in call.function.parameters} if place else set()
        inputs = {name: code for name, code in codes.items() if name not in own}
        slicer = _Slicer(unit, call, inputs, how, _stand_ins(unit, call, callee))
        kept = slicer.sliced()
        if place == 0:
            beginning, why = _beginning(first, kept, way)
            if why:
                return None, why
        else:
            bodies[call.function.body.start_byte] = kept.text
        needed |= kept.needed
    code, own = _first_function(first, beginning)
    text = _assembled(unit, needed | own, bodies, codes)
    return HostProgram("\n".join((text, code, ENTRY_CODE)), tuple(numbers)), ""


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
    text = _assembled(unit, {_last(function.name)}, {}, {})
    call = f"inline void {FIRST}() {{ {function.name}({', '.join(passed)}); }}"
    inputs = tuple(parameter.name for parameter in function.parameters)
    return HostProgram("\n".join((text, call, ENTRY_CODE)), inputs)


def _beginning(function: Definition, kept: Slice, way: Way) -> tuple[str, str]:
    """Return the code of a way's first function without parameters; or why it can't be the first."""
    declared = list[str]()
    template = dict(function.template)
    template |= dict(zip(template, way.instance, strict=False))
    template |= {name: "float" for name, text in template.items() if text == "double"}
    needed = {*kept.needed}
    for parameter in function.parameters:
        if parameter.name in kept.needed:
            needed |= {*re.findall(r"\w+", parameter.type)}
    for name, default in template.items():
        if name not in needed:
            continue
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
        if parameter.name not in kept.needed or parameter.name in way.inputs:
            continue
        if parameter.name in _launched_by(function):
            return "", f"the launch depends on {parameter.declaration}, of {function.name}"
        if parameter.pointer:
            kind = parameter.type.rstrip("&")
            declared.append(f"auto {parameter.name} = ({kind}*){stand_in(place)}ull;")
        elif parameter.dtype in _FLOATS:
            declared.append(f"{parameter.type.rstrip('&')} {parameter.name} = 1;")
        else:
            return "", f"the launch depends on {parameter.declaration}, of {function.name}"
    body = f"{{\n{' '.join(declared)}\n{kept.text}\n}}"
    return body, ""


def _first_function(function: Definition, body: str) -> tuple[str, set[str]]:
    """Return the code that defines FIRST where the function is that it stands for, and names that it needs.

    A method's stands in a class that inherits from the method's: it can use what is static.
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
    code = f"inline void {FIRST}() {body}"
    if record:
        method = f"struct {FIRST}_scope : {record} {{ static void run() {body} }};"
        code = f"{method}\ninline void {FIRST}() {{ {FIRST}_scope::run(); }}"
    for name in reversed(namespaces):
        code = f"namespace {name} {{\n{code}\n}}"
    named = "::".join(filter(None, namespaces))
    needed = {*record.split("::")} - {""}
    return code + (f"\nusing {named}::{FIRST};" if named else ""), needed


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
            if _base(declarator) == name and kind not in ("auto", ""):
                return kind
    return "int"


def _stand_ins(unit: Unit, call: Call, callee: Definition) -> dict[int, str]:
    """Return code for addresses of memory and for floats, which a launch doesn't depend on, by their place."""
    if call.form not in ("", "<<<", "cudaLaunchKernelEx"):
        return {}
    own = {parameter.name for parameter in call.function.parameters}
    functions = {_last(function.name) for function in unit.functions}
    launched = _launched_by(callee)
    codes = dict[int, str]()
    for place, parameter in enumerate(callee.parameters):
        if place >= len(call.arguments) or text_of(call.arguments[place]) in own:
            continue
        if parameter.name in launched or _base(_uncast(call.arguments[place])) in functions:
            continue
        if parameter.pointer:
            codes[place] = _address(parameter, callee, place)
        elif parameter.dtype in _FLOATS:
            codes[place] = "1.0f"
    return codes


def _launched_by(function: Definition) -> set[str]:
    """Return the names that a function launches, or passes on with a call: a parameter may be the kernel."""
    names = set[str]()
    for node in nodes(function.body, "call_expression"):
        launch = None if function.is_kernel else _launch(function, node)
        if launch is not None:
            names.add(launch.name)
        elif not function.is_kernel:
            arguments = node.child_by_field_name("arguments")
            named = arguments.named_children if arguments is not None else []
            names |= {text_of(_uncast(argument)) for argument in named}
    numbers = {p.name for p in function.parameters if p.dtype}
    return names - numbers


def _address(parameter: Parameter, function: Definition, place: int) -> str:
    """Return code for an address that a function may get."""
    words = {*re.findall(r"\w+", parameter.type)}
    kind = "float" if not words.isdisjoint(function.template) else parameter.type.rstrip("&")
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
    codes: of global names that are inputs
    """
    text = " " * unit.root.start_byte + unit.root.text.decode()
    kernels = {
        function.body.start_byte: (number, function)
        for number, function in enumerate(unit.functions)
        if function.is_kernel
    }
    functions = {function.body.start_byte: function for function in unit.functions}
    edits = list[tuple[int, int, str]]()
    own_words = dict[int, set[str]]()
    pieces = dict[int, Any]()
    for piece in unit.pieces:
        inner = [start for start in functions if piece.span[0] <= start < piece.span[1]]
        pieces[piece.span[0]] = piece
        words = {*piece.mentions}
        if (len(inner) == 1 and inner[0] in kernels) or (len(inner) == 1 and inner[0] in bodies):
            words = {*re.findall(r"\w+", text[piece.span[0] : inner[0]])}
        own_words[piece.span[0]] = words
    kept = set[int]()
    waiting = {*needed}
    names = set[str]()
    while waiting:
        name = waiting.pop()
        names.add(name)
        for start, piece in pieces.items():
            is_using = piece.operands is not None and not piece.names
            is_of_device = not piece.mentions.isdisjoint(NAMESPACES)
            if start not in kept and (name in piece.names or (is_using and not is_of_device)):
                kept.add(start)
                waiting |= own_words[start] - names
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
        if start in kernels:
            number, _ = kernels[start]
            edits.append((start, body.end_byte, _recording(function, number)))
            edits += _without_bounds(function)
        elif start in bodies:
            edits.append((start, body.end_byte, _returning(function, bodies[start])))
        else:
            edits.append((start, body.end_byte, _with_lines(function, codes)))
    return re.sub(r"\b__global__\b", "__device__", edited(text, 0, edits))


def _with_lines(function: Definition, codes: Mapping[str, str]) -> str:
    """Return a function's body in which each statement has its line in the source, for messages."""
    statements = list[str]()
    for node in function.body.named_children:
        line = function.line(node.start_byte)
        place = f'\n#line {line} "{LINES}"\n' if line else "\n"
        statements.append(place + rendered(node, codes))
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
