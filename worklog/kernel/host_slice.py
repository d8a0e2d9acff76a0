"""The backward slice of a call in host code: the statements that the call depends on.

Files, allocations and messages of a `main` don't matter for a launch. So each function in the chain
of calls to the launch is cut down to these statements, as code that records launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from worklog.kernel.host_calls import BY_CONFIG, USED, Call, base_name, last_name, launch_at
from worklog.kernel.host_doubts import LOOPS, doubt
from worklog.kernel.host_exits import (
    INNER_JUMPS,
    JUMPS,
    has_remainder,
    is_exit,
    is_message,
    is_of_sizes,
    may_leave,
    plain_functions,
    values_in,
)
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Definition, Unit

_BODIES = ("compound_statement", "else_clause")
_CHANGES = (
    "declaration",
    "assignment_expression",
    "update_expression",
    "call_expression",
    "for_range_loop",
    "binary_expression",
)
# Functions of the standard library that may change any of their arguments.
_MUTATORS = ("swap", "tie", "exchange", "memcpy")
_VARIABLES = ("identifier", "field_expression")
_NAMES = ("using_declaration", "alias_declaration", "type_definition", "namespace_alias_definition")


@dataclass(frozen=True)
class SliceOptions:
    """The parts of a function that its slice has in addition to the call."""

    has_conditions: bool = True  # branches around the call
    has_shared: bool = True  # the bytes of the launch's dynamic shared memory


@dataclass(frozen=True)
class Slice:
    """The part of a function that a call in it depends on."""

    text: str  # of the function's body, with code in place of inputs
    needed: set[str]  # names that the text uses
    fields: set[str]  # the fields of structures that the text uses, such as dims.y
    doubt: str  # why the text may lack a change; "" for no reason
    unread_guards: set[
        int
    ]  # lines of statements that may leave at some sizes and aren't in the text


@dataclass
class Slicer:
    """Cuts a function down to the statements that a call depends on."""

    unit: Unit
    call: Call
    inputs: Mapping[str, str]  # names, each with the code that stands for it
    options: SliceOptions
    is_first: bool  # whether the call's function begins the chain of calls
    replaced: Mapping[int, str]  # code of arguments that a launch doesn't depend on, by place
    # Filled while slicing:
    needed: set[str] = field(default_factory=set)  # as in Slice
    fields: set[str] = field(default_factory=set)  # as in Slice
    needed_by_call: set[str] = field(default_factory=set)  # names that are needed without branches
    used_at: dict[str, int] = field(
        default_factory=dict
    )  # of each input, the place of its first use
    unread_guards: set[int] = field(default_factory=set)  # as in Slice
    changed: dict[tuple[int, int], Set[str]] = field(default_factory=dict)  # by a statement's place

    def sliced(self) -> Slice:
        """Return the slice of the function that contains the call."""
        if not self.options.has_conditions:
            self._body()
            self.needed_by_call = {*self.needed}
        text = self._body()
        reason = doubt(self.unit, self.call, self.needed, self.used_at)
        return Slice(text, self.needed, self.fields, reason, self.unread_guards)

    def _body(self) -> str:
        """Return the slice of the function's body.

        It has the changes that the next turn of a loop needs.
        """
        while True:
            count = len(self.needed)
            text = self._block(self.call.function.body)
            if len(self.needed) == count:
                return text

    def _block(self, block: Any) -> str:
        """Return the statements of a block that the call depends on."""
        statements = [node for node in block.named_children if node.type != "comment"]
        place = next(n for n, node in enumerate(statements) if contains(node, self.call.node))
        codes = [self._statement_of_call(statements[place])]
        for statement in reversed(statements[:place]):
            if self._is_needed(statement):
                codes.insert(0, self._change(statement))
                continue
            exits = self._exits(statement)
            codes.insert(0, exits)
            if not exits:
                self._note_unread(statement)
        return _braced(codes)

    def _note_unread(self, statement: Any) -> None:
        """Note the line of a statement that may leave at some sizes and isn't in the slice."""
        names = {text_of(name) for name in nodes(statement, "identifier")}
        is_about_sizes = not names.isdisjoint(self.inputs) and has_remainder(self.unit, statement)
        if is_about_sizes and may_leave(self.unit, statement):
            self.unread_guards.add(self.call.function.line(statement.start_byte))

    def _is_needed(self, statement: Any) -> bool:
        """Return whether a statement declares or changes a name that the call depends on."""
        if statement.type == "using_declaration":
            return True
        if statement.type in _NAMES:
            names = {text_of(node) for node in nodes(statement, "type_identifier", "identifier")}
            return not names.isdisjoint(self.needed)
        return not (self._changed(statement) - {*self.inputs}).isdisjoint(self.needed)

    def _exits(self, statement: Any) -> str:
        """Return code that leaves when a statement leaves.

        "" if the statement never leaves, or if sizes don't decide whether it leaves.
        """
        if not self.options.has_conditions:
            return ""
        # A case without an exit is also kept: the case before it may fall through.
        if statement.type == "case_statement":
            return self._exits_of_block(statement)
        if not may_leave(self.unit, statement):
            return ""
        if statement.type == "goto_statement":
            return self._leave() if self._is_behind_the_call(statement) else ""
        if statement.type in JUMPS:
            return self._leave()
        if statement.type in INNER_JUMPS:
            return text_of(statement)
        if statement.type == "compound_statement":
            return self._exits_of_block(statement)
        if statement.type == "expression_statement":
            return self._exit_by_call(statement.named_children[0])
        if statement.type == "do_statement":  # of a macro
            runs_once = text_of(statement.child_by_field_name("condition")) in ("(0)", "(false)")
            exits = self._exits(statement.child_by_field_name("body")) if runs_once else ""
            return f"do {exits} while (0);" if exits else ""
        if statement.type in LOOPS:
            return self._exits_of_loop(statement)
        if statement.type in ("if_statement", "switch_statement"):
            return self._exits_of_branch(statement)
        return ""

    def _exits_of_branch(self, statement: Any) -> str:
        """Return an if or a switch with code that leaves, if sizes decide its condition."""
        condition = statement.child_by_field_name("condition")
        if not self._is_of_sizes(condition):
            return ""
        self._use(condition)
        edits = [(condition.start_byte, condition.end_byte, self.rendered(condition))]
        for name in ("consequence", "alternative", "body"):
            part = statement.child_by_field_name(name)
            if part is not None and part.type == "else_clause":
                part = part.named_children[-1]
            if part is not None:
                edits.append((part.start_byte, part.end_byte, self._exits(part) or "{}"))
        return edited(statement.text.decode(), statement.start_byte, edits)

    def _is_behind_the_call(self, goto: Any) -> bool:
        """Return whether a goto skips the call."""
        label = text_of(goto.child_by_field_name("label"))
        for labeled in nodes(self.call.function.body, "labeled_statement"):
            if text_of(labeled.child_by_field_name("label")) == label:
                return bool(labeled.start_byte > self.call.node.start_byte)
        return False

    def _exits_of_loop(self, loop: Any) -> str:
        """Return a loop that leaves, if it depends on sizes only."""
        if not self._is_of_sizes(loop):
            return ""
        self._use(loop)
        return rendered(loop, self.call.function, self.inputs, self._leave())

    def _exits_of_block(self, block: Any) -> str:
        """Return code that leaves when the statements of a block or of a case leave."""
        value = block.child_by_field_name("value")
        codes = list[str]()
        for statement in reversed(block.named_children):
            if statement == value:
                self._use(value)
                continue
            if self._is_needed(statement):
                codes.insert(0, self._change(statement))
            else:
                codes.insert(0, self._exits(statement))
        code = _braced(codes)
        if block.type == "compound_statement":
            return code
        label = "default" if value is None else f"case {self.rendered(value)}"
        return f"{label}: {code}"

    def _exit_by_call(self, node: Any) -> str:
        """Return code that leaves when a call ends the program."""
        if node.type != "call_expression":
            return ""
        if is_exit(node):
            return self._leave()
        if not self._is_of_sizes(node.child_by_field_name("arguments")):
            return ""
        self._use(node)
        return self.rendered(node) + ";"

    def _is_of_sizes(self, node: Any) -> bool:
        """Return whether an expression depends on sizes and constants only."""
        names = {*self.inputs, *self.needed, *self.unit.constants, *self.call.function.template}
        return is_of_sizes(node, names, self._values, self._plain_functions)

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        """The expressions that the function assigns to its variables."""
        return values_in(self.call.function)

    @cached_property
    def _plain_functions(self) -> set[str]:
        """The names of functions that take numbers by value and launch nothing."""
        return plain_functions(self.unit)

    def _leave(self) -> str:
        """Return the statement that leaves the function."""
        kind = text_of(self.call.function.body.parent.child_by_field_name("type"))
        return "return;" if self.is_first or kind == "void" else "return {};"

    def _change(self, statement: Any) -> str:
        """Return the slice of a statement that changes a needed name."""
        if statement.type == "compound_statement":
            codes = list[str]()
            for inner in reversed(statement.named_children):
                jump = next(nodes(inner, *JUMPS, *INNER_JUMPS), None)
                if self._is_needed(inner) or jump is not None:
                    codes.insert(0, self._change(inner))
            return _braced(codes)
        if statement.type in JUMPS:
            return self._leave()
        bodies = [child for child in statement.named_children if child.type in _BODIES]
        if statement.type not in (*LOOPS, "if_statement", "else_clause") or not bodies:
            self._use(statement)
            return self.rendered(statement)
        edits = [(body.start_byte, body.end_byte, self._change(body)) for body in bodies]
        for child in statement.named_children:
            if child not in bodies:
                self._use(child)
                edits.append((child.start_byte, child.end_byte, self.rendered(child)))
        return edited(statement.text.decode(), statement.start_byte, edits)

    def _statement_of_call(self, node: Any) -> str:
        """Return the slice of the statement that contains the call."""
        if contains(self.call.node, node):
            return self._code_of_call()
        inner = next(child for child in node.named_children if contains(child, self.call.node))
        if node.type == "compound_statement":
            return self._block(node)
        if node.type == "lambda_expression" and inner.type == "compound_statement":
            return self._block(inner)
        if node.type == "if_statement":
            return self._branch(node, inner)
        if node.type in LOOPS:
            return self._loop(node, inner)
        if node.type == "case_statement":
            return f"do {self._block(node)} while (0);"  # which `break` leaves
        return self._statement_of_call(inner)

    def _branch(self, node: Any, inner: Any) -> str:
        """Return the slice of an if statement around the call.

        inner: the child that contains the call
        """
        condition = node.child_by_field_name("condition")
        code = self._statement_of_call(inner)
        if contains(condition, inner):
            return code
        names = {text_of(name) for name in nodes(condition, "identifier")}
        # A condition stays if it shares a name with the launch, such as a tile.
        if not self.options.has_conditions and names.isdisjoint(self.needed_by_call):
            return code
        self._use(condition)
        is_constexpr = any(child.type == "constexpr" for child in node.children)
        keyword = "if constexpr" if is_constexpr else "if"
        head = f"{keyword} {self.rendered(condition)}"
        if inner == node.child_by_field_name("consequence"):
            return f"{head} {{ {code} }}"
        return f"{head} {{ }} else {{ {code} }}"

    def _loop(self, node: Any, inner: Any) -> str:
        """Return the slice of a loop around the call.

        One turn is enough, unless the call depends on the turn.

        inner: the child that contains the call
        """
        body = node.child_by_field_name("body")
        code = self._statement_of_call(inner)
        if not contains(body, inner):
            return code
        one_turn = f"do {{ {code} }} while (0);"  # which `continue` and `break` leave
        if node.type == "do_statement":
            return one_turn
        declared = set[str]()
        for child in node.named_children:
            if child != body:
                declared |= self._changed(child)
        if node.type == "for_range_loop":
            declared.add(base_name(node.child_by_field_name("declarator")))
        if declared.isdisjoint(self.needed) or not declared.isdisjoint(self.inputs):
            return one_turn
        for child in node.named_children:
            if child != body:
                self._use(child)
        head = node.text[: body.start_byte - node.start_byte].decode()
        return f"{head}{{ {code} }}"

    def _code_of_call(self) -> str:
        """Return the call as code that records a launch."""
        call = self.call
        if call.form == "<<<" and not self.options.has_shared:
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
        """Add the names in a node to the names that the call depends on."""
        waiting = [node]
        while waiting:
            inner = waiting.pop()
            if inner.type in _VARIABLES and text_of(inner) in self.inputs:
                first = self.used_at.get(text_of(inner), inner.start_byte)
                self.used_at[text_of(inner)] = min(first, inner.start_byte)
                continue
            if inner.type == "field_expression":
                self.fields.add(text_of(inner))
            if inner.type in USED:
                self.needed.add(text_of(inner))
            waiting += inner.named_children

    def _changed(self, statement: Any) -> Set[str]:
        """Return the names that a statement declares or may change.

        Names that it declares in an inner statement are left out.
        """
        place = (statement.start_byte, statement.end_byte)
        if place not in self.changed:
            self.changed[place] = self._find_changed(statement)
        return self.changed[place]

    def _find_changed(self, statement: Any) -> set[str]:
        """Return the same as _changed, which stores it."""
        names = self._changed_inside(statement)
        if statement.type != "declaration":
            for node in nodes(statement, "declaration"):
                declarators = node.children_by_field_name("declarator")
                names -= {base_name(declarator) for declarator in declarators}
        return names

    def _changed_inside(self, statement: Any) -> set[str]:
        """Return the names that a statement declares or may change."""
        names = set[str]()
        for node in nodes(statement, *_CHANGES):
            if node.type == "declaration":
                declarators = node.children_by_field_name("declarator")
                names |= {base_name(declarator) for declarator in declarators}
            elif node.type == "call_expression":
                names |= self._changed_by_call(node)
            elif node.type == "binary_expression":
                if text_of(node).startswith(("std::cin", "cin")):
                    names |= {text_of(name) for name in nodes(node, "identifier")}
            else:
                target = node.child_by_field_name("left") or node.child_by_field_name("argument")
                if text_of(target) not in self.inputs:
                    names.add(base_name(target))
        return names - {""}

    def _changed_by_call(self, node: Any) -> set[str]:
        """Return the names that a call may change.

        These are arguments by address or by reference, and the object of a method.
        """
        callee = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if callee is None or arguments is None:
            return set()
        names = set[str]()
        if callee.type == "field_expression":
            names.add(base_name(callee))
        name = last_name(text_of(callee.child_by_field_name("field") or callee)).partition("<")[0]
        functions = [f for f in self.unit.functions if last_name(f.name) == name]
        for place, argument in enumerate(arguments.named_children):
            parameters = [f.parameters[place] for f in functions if place < len(f.parameters)]
            is_reference = any(p.pointer or p.type.endswith("&") for p in parameters)
            is_by_name = argument.type in _VARIABLES
            may_change = name in _MUTATORS or not (functions or self._is_passed_by_value(argument))
            is_address = text_of(argument).startswith("&")
            if is_address or is_reference or (is_by_name and may_change):
                names.add(base_name(argument))
        return names

    def _is_passed_by_value(self, variable: Any) -> bool:
        """Return whether a variable is a number or a pointer."""
        return text_of(variable) not in self._passed_by_reference

    @cached_property
    def _passed_by_reference(self) -> set[str]:
        """The function's parameters and variables that are neither numbers nor pointers."""
        names = set[str]()
        for node in nodes(self.call.function.body, "declaration"):
            kind = node.child_by_field_name("type")
            is_number = kind.type in ("primitive_type", "sized_type_specifier")
            for declarator in node.children_by_field_name("declarator"):
                is_array = next(nodes(declarator, "array_declarator"), None) is not None
                is_pointer = next(nodes(declarator, "pointer_declarator"), None) is not None
                if is_array or not (is_number or is_pointer):
                    names.add(base_name(declarator))
        for parameter in self.call.function.parameters:
            if parameter.dtype or parameter.pointer:
                names.discard(parameter.name)
            else:
                names.add(parameter.name)
        return names

    def rendered(self, node: Any) -> str:
        """Return a node's text with code for inputs, and for the launches in it."""
        return rendered(node, self.call.function, self.inputs)


def rendered(node: Any, function: Definition, inputs: Mapping[str, str], leave: str = "") -> str:
    """Return a node's text, in a function, with code in place of inputs and launches.

    inputs: names, each with the code that stands for it
    leave: code in place of each return
    """
    edits = list[tuple[int, int, str]]()
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        if inner.type == "qualified_identifier" and not [*nodes(inner, "template_argument_list")]:
            continue  # a name in a class or a namespace is no variable of the function
        text = text_of(inner) if inner.type in _VARIABLES else ""
        if text in inputs and not _is_declared(inner):
            edits.append((inner.start_byte, inner.end_byte, inputs[text]))
            continue
        launch = launch_at(inner, function) if inner.type == "call_expression" else None
        if launch is not None:
            passed = [rendered(argument, function, inputs) for argument in launch.arguments]
            code = _code(launch, lambda part: rendered(part, function, inputs), passed)
            edits.append((inner.start_byte, inner.end_byte, code))
            continue
        if inner.type == "return_statement" and leave:
            edits.append((inner.start_byte, inner.end_byte, leave))
            continue
        if inner.type == "throw_statement":
            edits.append((inner.start_byte, inner.end_byte, "exit(1);"))
            continue
        if is_message(inner):
            edits.append((inner.start_byte, inner.end_byte, ";"))
            continue
        waiting += inner.named_children
    return edited(node.text.decode(), node.start_byte, edits)


def _braced(codes: Sequence[str]) -> str:
    """Return a block of statements."""
    return "{\n" + "\n".join(codes) + "\n}"


def _is_declared(node: Any) -> bool:
    """Return whether a name is the one that a declaration declares."""
    outer = node.parent
    return bool(
        outer.type in ("init_declarator", "declaration", "pointer_declarator")
        and outer.child_by_field_name("declarator") == node
    )


def edited(text: str, start: int, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a text with other code at some places.

    start: the place of the text
    """
    for first, last, code in sorted(edits, reverse=True):
        text = text[: first - start] + code + text[last - start :]
    return text


def _code(call: Call, text: Callable[[Any], str], passed: Sequence[str]) -> str:
    """Return code that records a launch, or that calls a function which leads to a launch.

    text: returns the code of a node
    passed: code of the arguments
    """
    kernel = text(call.kernel)
    if call.form == "":
        return f"{kernel}({', '.join(passed)})"
    configuration = [text(node) for node in call.configuration]
    if call.form == "<<<":
        return f"(worklog::configure({', '.join(configuration)}), {kernel}({', '.join(passed)}))"
    if call.form in BY_CONFIG:
        arguments = ", ".join([configuration[0], kernel, *passed])
        return f"worklog::{BY_CONFIG[call.form]}({arguments})"
    return f"worklog::by_addresses({', '.join([kernel, *configuration, *passed])})"


def contains(outer: Any, inner: Any) -> bool:
    """Return whether a node is the other node or contains it."""
    return bool(outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte)
