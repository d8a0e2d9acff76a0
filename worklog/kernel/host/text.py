"""The text of a source for the emulator's device, with kernels that record their launches."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Set
from typing import Any

from worklog.kernel.host.doubts import declared_in
from worklog.kernel.host.rendering import edited, rendered
from worklog.kernel.source import blank, text_of
from worklog.kernel.unit import NAMESPACES, Definition, Piece, Unit

LINES = "source"  # the source's name in messages of the compiler


def assembled(
    unit: Unit,
    needed: Set[str],
    bodies: Mapping[int, str],
    codes: Mapping[str, str],
) -> str:
    """Return a unit's text with the needed names, and kernels that record launches.

    bodies: code of functions, by the place of their body
    codes: code in place of variables outside of functions, which are no longer defined
    """
    text = " " * unit.root.start_byte + unit.root.text.decode()
    functions = {function.body.start_byte: function for function in unit.functions}
    numbers = {function.body.start_byte: n for n, function in enumerate(unit.functions)}
    # The bodies of kernels and of sliced functions are replaced: only the heads need other names.
    heads = {start for start in functions if functions[start].is_kernel or start in bodies}
    pieces = {piece.span[0]: piece for piece in unit.pieces}
    needed_starts = _needed_pieces(text, pieces, needed, heads)
    edits = list[tuple[int, int, str]]()
    for start, piece in pieces.items():
        first, last = piece.span
        if start not in needed_starts or (piece.names and piece.names <= {*codes}):
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
            local = declared_in(function)
            codes_here = {name: code for name, code in codes.items() if name not in local}
            edits.append((start, body.end_byte, _with_lines(function, codes_here)))
    text = re.sub(r"\b__host__\b", "", edited(text, 0, edits))
    return re.sub(r"\b__global__\b", "__device__", text)


def _needed_pieces(
    text: str, pieces: Mapping[int, Piece], needed: Set[str], heads: Set[int]
) -> set[int]:
    """Return the places of the pieces that define needed names.

    The names that a needed piece mentions are also needed.

    pieces: by their place in the text
    needed: names
    heads: places of the bodies that are replaced
    """
    waiting = {*needed}
    defining = defaultdict[str, list[int]](list)
    for start, piece in pieces.items():
        for name in piece.names:
            defining[name].append(start)
    starts = set[int]()
    for start, piece in pieces.items():
        is_using = piece.operands is not None and not piece.names
        if is_using and piece.mentions.isdisjoint(NAMESPACES):
            starts.add(start)
            waiting |= piece.mentions
    names = set[str]()
    while waiting:
        name = waiting.pop()
        names.add(name)
        for start in defining[name]:
            if start in starts:
                continue
            starts.add(start)
            inner_heads = [place for place in heads if start <= place < pieces[start].span[1]]
            mentions = {*pieces[start].mentions}
            if len(inner_heads) == 1:
                mentions = {*re.findall(r"\w+", text[start : inner_heads[0]])}
            waiting |= mentions - names
    return starts


def _with_lines(function: Definition, codes: Mapping[str, str]) -> str:
    """Return a function's body with the source's line of each statement, for messages."""
    statements = list[str]()
    for node in function.body.named_children:
        line = function.line(node.start_byte)
        place = f'\n#line {line} "{LINES}"\n' if line else "\n"
        statements.append(place + rendered(node, function, codes))
    return "{" + "".join(statements) + "\n}"


def head_of(function: Definition) -> Any:
    """Return the node of a function's definition."""
    return function.body.parent


def _without_bounds(function: Definition) -> list[tuple[int, int, str]]:
    """Return the edits that remove a kernel's __launch_bounds__."""
    bounds = [node for node in head_of(function).named_children if node.type == "launch_bounds"]
    return [(node.start_byte, node.end_byte, "") for node in bounds]


def _returning(function: Definition, body: str) -> str:
    """Return a function's body, with a value to return if the function returns any."""
    kind = text_of(head_of(function).child_by_field_name("type"))
    return body if kind in ("void", "auto") else body[:-1] + "return {};\n}"


def _recording(function: Definition, number: int) -> str:
    """Return the body of a kernel that records its launch."""
    values = list[str]()
    for node in _template(function):
        name = _declared(node)
        if "type" in node.type:
            values.append(f"worklog::Kind<{name}>::number")
        else:
            values.append(f"worklog::value({name})")
    passed = [parameter.name or "0" for parameter in function.parameters]
    arguments = ", ".join([str(number), f"worklog::Values{{{{{', '.join(values)}}}}}", *passed])
    return f"{{ worklog::launched({arguments}); }}"


def _template(function: Definition) -> list[Any]:
    """Return the nodes of a template's parameters."""
    outer = head_of(function).parent
    if outer is None or outer.type != "template_declaration":
        return []
    return list(outer.child_by_field_name("parameters").named_children)


def _declared(node: Any) -> str:
    """Return the name of a template's parameter."""
    names: list[str] = re.findall(r"\w+", text_of(node).partition("=")[0])
    return names[-1]


def is_type_parameter(function: Definition, name: str) -> bool:
    """Return whether a parameter of a function's template is a type."""
    nodes_of_name = [node for node in _template(function) if _declared(node) == name]
    return any("type" in node.type for node in nodes_of_name)


def template_types(function: Definition) -> list[str]:
    """Return the type of each parameter of a template; "typename" for a type."""
    kinds = list[str]()
    for node in _template(function):
        text = text_of(node).partition("=")[0].strip()
        kind = text.rpartition(" ")[0]
        kinds.append("typename" if kind in ("typename", "class") else kind)
    return kinds
