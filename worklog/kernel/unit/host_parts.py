"""The parts of a source that are for the host: device code can't use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Any

from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit.declarations import function_declarator, names_in, records_in, untemplated

_DEVICE = re.compile(
    r"__(?:global|device|constant|shared)__|\bconstexpr\b|\b[A-Z_]*DEVICE[A-Z_]*\b"
)
# What NVRTC lacks: types and functions of the host's libraries. libcu++ has the rest of std.
_HOST = re.compile(
    r"\bstd::(?:\w*(?:string|stream|map|set|list|queue|error|exception|thread|mutex|atomic|chrono|distribution)\w*"
    r"|\w+_ptr|vector|stack|function|filesystem|future|promise|any|random_device|mt19937\w*|default_random_engine)\b"
    r"|\bcuda[A-Z]\w*|\bcu(?:blas|rand|fft|sparse|solver|dnn)\w+|\bnccl[A-Z]\w+|\bMPI_\w+|\bglob_t\b|\bFILE\b"
    r"|\b(?:torch|at|pybind11)::|\bpthread_\w+|\btime(?:val|spec)\b"
)


def is_host_code(node: Any, host_types: Set[str]) -> bool:
    """Return whether device code can't use what a node defines."""
    if node.type == "template_instantiation":  # the entry instantiates what it needs
        return True
    bodies = [record.child_by_field_name("body") for record in records_in(node)]
    body = bodies[0] if bodies else node.child_by_field_name("body")
    head = node.text[: body.start_byte - node.start_byte if body else None].decode()
    if node.type in ("function_definition", "declaration", "field_declaration"):
        if _DEVICE.search(head.partition("=")[0]):
            return False
        if function_declarator(node) is not None:
            # `= default` needs no mark.
            return node.type != "function_definition" or body is not None
    if node.type == "declaration" and not bodies:
        is_constant = any(text_of(child) == "const" for child in node.named_children)
        has_pointers = any(nodes(node, "pointer_declarator", "array_declarator"))
        if not head.startswith("extern") and (not is_constant or (has_pointers and "=" in head)):
            return True
    return bool(_HOST.search(head)) or not host_types.isdisjoint(names_in(head))


def host_members(record: Any, host_types: Set[str]) -> Iterator[Any]:
    """Yield the members of a structure that device code can't use."""
    for child in record.child_by_field_name("body").named_children:
        member, _ = untemplated(child)
        if member.type == "friend_declaration":
            member = member.named_children[-1]
        if is_host_code(member, host_types):
            yield child
            continue
        for inner in records_in(member):
            yield from host_members(inner, host_types)
