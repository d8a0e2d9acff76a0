"""The names, parameters and members in the tree of a declaration in CUDA C++."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Any

from worklog.kernel.source import nodes, split_list, text_of

# Words of a type that don't change it; a type without another word is int.
_NO_TYPES = ("struct", "const", "volatile", "int", "typename", "__restrict__", "__restrict")
RECORDS = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_NAMES = (
    "identifier",
    "type_identifier",
    "field_identifier",
    "namespace_identifier",
    "operator_name",
    "primitive_type",
)


def bare_type(kind: str) -> str:
    """Return a type's name without qualifiers, stars and std::."""
    names = [name for name in kind.replace("*", " ").split() if name not in _NO_TYPES]
    return " ".join(names or ["int"]).removeprefix("std::")


def launch_bounds(node: Any) -> str:
    """Return the threads of a function's __launch_bounds__; "" if it has none."""
    for child in node.named_children:
        if child.type == "launch_bounds":
            return text_of(child.named_children[0]) if child.named_children else ""
    return ""


def template_defaults(template: str) -> dict[str, str]:
    """Return the default values of a template's parameters by name; "" for none."""
    defaults = {}
    for part in split_list(template):
        declaration, _, value = part.partition("=")
        names = re.findall(r"\w+", declaration)
        if names:
            defaults[names[-1]] = value.strip()
    return defaults


def operands_of(function: Any, parameters: Set[str]) -> frozenset[str] | None:
    """Return the names in an operator's declarator; None for another function.

    parameters: the names of its parameters and its template's, which are left out
    """
    if next(nodes(function, "operator_name", "operator_cast"), None) is None:
        return None
    return names_in(text_of(function)) - parameters


def is_using_namespace(node: Any) -> bool:
    """Return whether a node is `using namespace …`."""
    return bool(node.type == "using_declaration" and node.children[1].type == "namespace")


def untemplated(node: Any) -> tuple[Any, str]:
    """Return what a node declares, and its template's parameters.

    `template <…>` and `extern "C"` are left out.
    """
    template = ""
    while node.type in ("template_declaration", "linkage_specification"):
        template = text_of(node.child_by_field_name("parameters"))[1:-1]
        node = node.named_children[-1]
    return node, template


def names_in(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))


def cut(text: str, start: int, places: Sequence[tuple[int, int]]) -> str:
    """Return a text without the code at these places.

    start: the place of the text
    """
    for first, last in reversed(places):
        text = text[: first - start] + text[last - start :]
    return text


def records_in(node: Any) -> list[Any]:
    """Return the structures and enumerations whose members a declaration lists."""
    records = [child for child in (node, *node.named_children) if child.type in RECORDS]
    return [record for record in records if record.child_by_field_name("body") is not None]


def function_declarator(node: Any) -> Any:
    """Return the declarator, name and parameters, of the function that a node declares.

    None if the node declares no function.
    """
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type not in (
        "function_declarator",
        "operator_cast",
    ):
        inner = declarator.named_children[-1:] if "reference" in declarator.type else [None]
        declarator = declarator.child_by_field_name("declarator") or inner[0]
    return declarator


def parameter_declarators(function: Any) -> list[Any]:
    """Return the declarators of a function's parameters."""
    parameters = function.child_by_field_name("parameters")
    if parameters is None:
        return []
    declarators = (child.child_by_field_name("declarator") for child in parameters.named_children)
    return [declarator for declarator in declarators if declarator is not None]


def template_names(template: str) -> list[str]:
    """Return the names of a template's parameters."""
    return [*template_defaults(template)]


def declared_name(node: Any) -> str:
    """Return the name that a declarator declares; "" for none.

    The scope and template arguments are left out.
    """
    while node is not None and node.type not in _NAMES:
        inner = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        node = inner or next(reversed(node.named_children), None)
    return text_of(node).lstrip("~ ")


def defined_names(node: Any) -> frozenset[str]:
    """Return the names that a node defines outside of functions."""
    names = [declared_name(declarator) for declarator in node.children_by_field_name("declarator")]
    if node.type in RECORDS or node.type in ("alias_declaration", "concept_definition"):
        names.append(declared_name(node.child_by_field_name("name")))
    elif node.type == "namespace_alias_definition":
        names.append(text_of(node.named_children[0]))
    elif node.type == "using_declaration":
        names.append(declared_name(node.named_children[-1]))
    for record in records_in(node):
        names.append(declared_name(record.child_by_field_name("name")))
        members = record.child_by_field_name("body").named_children
        for member in members:
            if member.type == "enumerator":
                names.append(declared_name(member.child_by_field_name("name")))
    return frozenset(filter(None, names))
