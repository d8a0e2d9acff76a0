"""The names that a statement of host code declares or may change."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from worklog.kernel.host.calls import VARIABLES, base_name, last_name
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Definition, Unit

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


@dataclass
class ChangedNames:
    """The names that each statement of a function may change."""

    unit: Unit
    function: Definition
    inputs: Mapping[str, str]  # names that stand for one value
    _cache: dict[tuple[int, int], Set[str]] = field(default_factory=dict)  # by a statement's place

    def names(self, statement: Any) -> Set[str]:
        """Return the names that a statement declares or may change.

        Names that it declares in an inner statement are left out.
        """
        place = (statement.start_byte, statement.end_byte)
        if place not in self._cache:
            self._cache[place] = self._outer_names(statement)
        return self._cache[place]

    def _outer_names(self, statement: Any) -> set[str]:
        """Return the same as `names`, without the cache."""
        names = self._all_names(statement)
        if statement.type != "declaration":
            for node in nodes(statement, "declaration"):
                declarators = node.children_by_field_name("declarator")
                names -= {base_name(declarator) for declarator in declarators}
        return names

    def _all_names(self, statement: Any) -> set[str]:
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
            is_by_name = argument.type in VARIABLES
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
        for node in nodes(self.function.body, "declaration"):
            kind = node.child_by_field_name("type")
            is_number = kind.type in ("primitive_type", "sized_type_specifier")
            for declarator in node.children_by_field_name("declarator"):
                is_array = next(nodes(declarator, "array_declarator"), None) is not None
                is_pointer = next(nodes(declarator, "pointer_declarator"), None) is not None
                if is_array or not (is_number or is_pointer):
                    names.add(base_name(declarator))
        for parameter in self.function.parameters:
            if parameter.dtype or parameter.pointer:
                names.discard(parameter.name)
            else:
                names.add(parameter.name)
        return names
