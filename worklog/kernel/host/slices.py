"""The backward slice of a call in host code: the statements that the call depends on.

Files, allocations and messages of a `main` don't matter for a launch. So each function in the chain
of calls to the launch is cut down to these statements, as code that records launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from worklog.kernel.host.calls import USED, VARIABLES, HostCall, base_name
from worklog.kernel.host.changed_names import ChangedNames
from worklog.kernel.host.doubts import LOOPS, doubt
from worklog.kernel.host.exits import (
    INNER_JUMPS,
    JUMPS,
    has_remainder,
    is_exit,
    is_of_sizes,
    may_leave,
    plain_functions,
    values_in,
)
from worklog.kernel.host.rendering import edited, launch_code, rendered
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Unit

_BODIES = ("compound_statement", "else_clause")
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
    # Lines of statements that may leave at some sizes and aren't in the text.
    unread_guards: set[int]


@dataclass
class Slicer:
    """Cuts a function down to the statements that a call depends on."""

    unit: Unit
    call: HostCall
    inputs: Mapping[str, str]  # names, each with the code that stands for it
    options: SliceOptions
    is_first: bool  # whether the call's function begins the chain of calls
    replaced: Mapping[int, str]  # code of arguments that a launch doesn't depend on, by place
    # Filled while slicing:
    needed: set[str] = field(default_factory=set)  # as in Slice
    fields: set[str] = field(default_factory=set)  # as in Slice
    needed_by_call: set[str] = field(default_factory=set)  # names that are needed without branches
    used_at: dict[str, int] = field(default_factory=dict)  # places of the inputs' first uses
    unread_guards: set[int] = field(default_factory=set)  # as in Slice

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
        return not (self._changes.names(statement) - {*self.inputs}).isdisjoint(self.needed)

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
    def _changes(self) -> ChangedNames:
        """The names that the function's statements may change."""
        return ChangedNames(self.unit, self.call.function, self.inputs)

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
                declared |= self._changes.names(child)
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
        return launch_code(call, self.rendered, passed) + ";"

    def _use(self, node: Any) -> None:
        """Add the names in a node to the names that the call depends on."""
        waiting = [node]
        while waiting:
            inner = waiting.pop()
            if inner.type in VARIABLES and text_of(inner) in self.inputs:
                first = self.used_at.get(text_of(inner), inner.start_byte)
                self.used_at[text_of(inner)] = min(first, inner.start_byte)
                continue
            if inner.type == "field_expression":
                self.fields.add(text_of(inner))
            if inner.type in USED:
                self.needed.add(text_of(inner))
            waiting += inner.named_children

    def rendered(self, node: Any) -> str:
        """Return a node's text with code for inputs, and for the launches in it."""
        return rendered(node, self.call.function, self.inputs)


def _braced(codes: Sequence[str]) -> str:
    """Return a block of statements."""
    return "{\n" + "\n".join(codes) + "\n}"


def contains(outer: Any, inner: Any) -> bool:
    """Return whether a node is the other node or contains it."""
    return bool(outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte)
