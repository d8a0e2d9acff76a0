"""The reader of a CUDA source: one pass over its tree finds functions, constants and names.

pcpp expands macros and evaluates conditions. tree-sitter's grammar of CUDA parses the
result, and continues after what it doesn't know. Places in this text are mapped to places
in the source.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Any

from worklog.kernel.preprocessor import preprocessed
from worklog.kernel.source import declare, included, nodes, text_of, tree_of, uncommented
from worklog.kernel.unit.declarations import (
    RECORDS,
    bare_type,
    cut,
    declared_name,
    defined_names,
    function_declarator,
    is_using_namespace,
    launch_bounds,
    names_in,
    operands_of,
    parameter_declarators,
    records_in,
    template_defaults,
    template_names,
    untemplated,
)
from worklog.kernel.unit.definitions import Definition, Piece, Unit
from worklog.kernel.unit.host_parts import host_members, is_host_code
from worklog.problem import TYPES, Parameter

NAMESPACES = ("nvcuda", "cooperative_groups", "cub", "cuda", "cute", "cutlass")  # of device code
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
FOR_NVRTC = "__CUDACC_RTC__"  # a header that has code for NVRTC needs no help
# Types that headers define.
_TYPES = {
    "uint": "unsigned",
    "ushort": "unsigned short",
    "ulong": "unsigned long",
    "ptrdiff_t": "long",
}
_DEFINITIONS = (
    *RECORDS,
    "function_definition",
    "declaration",
    "type_definition",
    "alias_declaration",
    "using_declaration",
    "namespace_alias_definition",
    "template_instantiation",
    "expression_statement",
    "static_assert_declaration",
)


@lru_cache(maxsize=128)
def read(
    source: str, define: tuple[str, ...] = (), headers: tuple[tuple[str, str], ...] = ()
) -> Unit:
    """Read a source.

    define: macros of the command line, as "NAME=VALUE"
    headers: names and texts of what it includes
    """
    return _Reader(source, define, headers).unit


def without_macros(unit: Unit, macros: Set[str]) -> Unit:
    """Return a unit as if its texts didn't define these macros."""
    source, define, headers = unit.arguments
    names = "|".join(map(re.escape, macros))
    definition = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+(?:{names})\b[^\n]*", re.MULTILINE)
    bare_headers = tuple((name, definition.sub("", text)) for name, text in headers)
    return read(definition.sub("", source), define, bare_headers)


class _Reader:
    """A reader of the tree of a source, which is the last of the texts, and its headers."""

    def __init__(
        self, source: str, define: Sequence[str], headers: Sequence[tuple[str, str]]
    ) -> None:
        texts = [*(text for _, text in headers), source]
        self.headers = headers
        self.joined_texts = "\n".join(texts)
        self.starts = [0]
        for text in texts[:-1]:
            self.starts.append(self.starts[-1] + len(text) + 1)
        self.code = preprocessed(self.joined_texts, define)
        self.functions: list[Definition] = []
        self.types = dict[str, str]()  # by typedef and using; of a structure, ""
        self.host_types = set[str]()  # names of types for the host
        self.namespaces = {*NAMESPACES}
        self.pieces: list[Piece] = []
        self.constants = {name: value for name, value in self.code.macros.items() if value}
        tree = tree_of(self.code.text)
        self.instances = [text_of(node) for node in nodes(tree, "template_instantiation")]
        self._read_scope(tree, ())
        macros = defaultdict[str, frozenset[str]](frozenset)
        for macro in _DEFINE.finditer(self.joined_texts):
            macros[macro[1]] |= names_in(macro[2])
        inner_headers = set[str]()
        for piece in self.pieces:
            inner_headers.update(included(self._text(piece)))
        stays = (FOR_NVRTC in text or name in inner_headers for name, text in headers)
        functions = (function.name for function in self.functions)
        self.unit = Unit(
            functions=tuple(self.functions),
            constants=self.constants,
            defined=frozenset((*self.code.macros, *self.types, *functions)),
            pieces=tuple(self.pieces),
            macros=macros,
            instances=tuple(self.instances),
            texts=(*stays, False),
            root=tree,
            word_at=self._word_at,
            arguments=(source, tuple(define), tuple(headers)),
        )

    def _text(self, piece: Piece) -> str:
        """Return the code of a piece as it is in the piece's text."""
        start = self.starts[piece.text]
        return self.joined_texts[start + piece.start : start + piece.end]

    def _word_at(self, byte: int) -> str:
        """Return the name in the source at a byte of the tree; "" if there is none."""
        match = re.compile(r"[A-Za-z_]\w*").match(self.joined_texts, self.code.place(byte))
        return match[0] if match else ""

    def _line(self, byte: int) -> int:
        """Return the line of the source at a byte of the tree; in a header, 0."""
        place = self.code.place(byte)
        start = self.starts[-1]
        return self.joined_texts.count("\n", start, place) + 1 if place >= start else 0

    def _header(self, byte: int) -> str:
        """Return the text of the header at a byte of the tree; "" for the source."""
        number = bisect_right(self.starts, self.code.place(byte)) - 1
        return self.headers[number][1] if number < len(self.headers) else ""

    def _read_scope(self, node: Any, scope: tuple[str, ...]) -> None:
        """Add what a node outside of functions defines.

        scope: the names of the namespaces around the node
        """
        for child in node.named_children:
            inner, template = untemplated(child)
            if inner.type == "namespace_definition":
                self._read_namespace(inner, scope)
                continue
            if inner.type in ("declaration_list", "ERROR"):
                self._read_scope(inner, scope)
                continue
            if node.type == "ERROR" and inner.type not in _DEFINITIONS:
                continue  # part of what the grammar doesn't know
            for record in records_in(inner):
                self._add_record(record, scope)
            if inner.type in ("type_definition", "alias_declaration"):
                self._add_types(inner)
            if inner.type == "function_definition":
                self._add_function(inner, scope, template)
            elif inner.type == "declaration":
                declare(inner, self.constants)
            self._add_piece(child, inner, template)

    def _read_namespace(self, node: Any, scope: tuple[str, ...]) -> None:
        """Add what a namespace defines. The name of an inline namespace may be left out."""
        is_inline = node.children[0].type == "inline"
        name = re.sub(r"::inline \w+", "", text_of(node.child_by_field_name("name")))
        self.namespaces |= names_in(name)
        if name and not is_inline:
            scope = (*scope, name)
        self._read_scope(node.child_by_field_name("body"), scope)

    def _add_types(self, node: Any) -> None:
        """Add the names that a typedef or a using declares."""
        kind = node.child_by_field_name("type")
        declarators = node.children_by_field_name("declarator")
        for declarator in declarators or [node.child_by_field_name("name")]:
            is_pointer = declarator.type == "pointer_declarator"
            separator = " " if is_pointer else "\n"
            name = text_of(declarator).rpartition(separator)[2].lstrip("* ")
            stars = "*" if is_pointer else ""
            self.types[name] = "" if kind.type in RECORDS else text_of(kind) + stars

    def _add_record(self, node: Any, scope: tuple[str, ...]) -> None:
        """Add a structure or an enumeration with its constants and functions."""
        name = text_of(node.child_by_field_name("name"))
        self.types[name] = ""
        members = map(untemplated, node.child_by_field_name("body").named_children)
        for member, template in sorted(
            members, key=lambda pair: pair[0].type == "function_definition"
        ):
            if member.type == "function_definition":
                self._add_function(member, (*scope, name), template)
            elif member.type == "enumerator":
                value = text_of(member.child_by_field_name("value"))
                if value:
                    self.constants[text_of(member.child_by_field_name("name"))] = value
            declarators = member.children_by_field_name("declarator")
            defaults = member.children_by_field_name("default_value")
            for declarator, default in zip(declarators, defaults, strict=False):
                self.constants[f"{name}::{text_of(declarator)}"] = text_of(default)

    def _place(self, node: Any) -> tuple[int, int]:
        """Return where a node is in the texts; of a macro's code, the place of the whole macro."""
        start = self.code.place(node.start_byte)
        end_token = bisect_left(self.code.starts, node.end_byte)
        while end_token < len(self.code.places) - 1 and self.code.places[end_token] <= start:
            end_token += 1
        return start, self.code.places[end_token]

    def _add_piece(self, outer: Any, inner: Any, template: str) -> None:
        """Add what a node at the scope of the file or a namespace defines.

        outer: the node
        inner: the same without `template <…>` and `extern "C"`
        template: the template's parameters
        """
        start, end = self._place(outer)
        text = bisect_right(self.starts, start) - 1
        origin = self.starts[text]
        if text + 1 < len(self.starts):
            end = min(end, self.starts[text + 1])
        members = list[Any]()
        for record in records_in(inner):
            members += host_members(record, self.host_types)
        places = [self._place(member) for member in members]
        member_spans = [member.byte_range for member in members]
        code = cut(outer.text.decode(), outer.start_byte, member_spans)
        source = uncommented(cut(self.joined_texts[start:end], start, places))
        is_for_host = is_host_code(inner, self.host_types)
        if is_for_host and inner.type in ("alias_declaration", "type_definition", *RECORDS):
            self.host_types |= defined_names(inner)
        names = defined_names(inner)
        parameters = set[str]()
        operands = None
        function = function_declarator(inner)
        if function is not None:
            parameters |= {*template_names(template)}
            parameters |= {*map(declared_name, parameter_declarators(function))}
            if not is_for_host:
                operands = operands_of(function, parameters)
        elif is_using_namespace(inner):
            names = frozenset[str]()
            is_known = re.split(r"\W+", text_of(inner))[2] in self.namespaces
            operands = frozenset[str]() if is_known else None
        self.pieces.append(
            Piece(
                text=text,
                start=start - origin,
                end=end - origin,
                span=outer.byte_range,
                names=names,
                is_for_host=is_for_host,
                mentions=(names_in(code) | names_in(source)) - parameters,
                operands=operands,
                code=code,
                left_out=tuple((first - origin, last - origin) for first, last in places),
                host_members=tuple(member_spans),
            )
        )

    def _add_function(self, node: Any, scope: tuple[str, ...], template: str) -> None:
        """Add a function's definition, if the function has a body.

        scope: the names of the namespaces and structures around the function
        template: the parameters of its template
        """
        declarator = node.child_by_field_name("declarator")
        body = node.child_by_field_name("body")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        if declarator is None or body is None:
            return
        name = text_of(declarator.child_by_field_name("declarator"))
        specifiers = node.text[: declarator.start_byte - node.start_byte].decode()
        is_global = "__global__" in specifiers
        parameters = list[Parameter]()
        for child in declarator.child_by_field_name("parameters").named_children:
            if "parameter" in child.type:
                parameter = self._parameter(child)
                if (parameter.type, parameter.name) != ("void", ""):
                    parameters.append(parameter)
        constants = self._constants_in(scope)
        if is_global:
            for declaration in nodes(body, "declaration"):
                declare(declaration, constants)
        for parameter in parameters:
            constants.pop(parameter.name, None)
        self.functions.append(
            Definition(
                name="::".join((*scope, name)),
                # A specialisation is an instance of its template.
                is_kernel=is_global and "<" not in name,
                template=template_defaults(template),
                bounds=launch_bounds(node),
                parameters=tuple(parameters),
                body=body,
                constants=constants,
                line=self._line,
                header=self._header(body.start_byte),
            )
        )

    def _constants_in(self, scope: tuple[str, ...]) -> dict[str, str]:
        """Return the constants of the innermost structure of a scope, by their names in it."""
        prefix = f"{scope[-1]}::" if scope else "::"
        constants = {}
        for name, text in self.constants.items():
            if name.startswith(prefix):
                constants[name.removeprefix(prefix)] = text
        return constants

    def _parameter(self, node: Any) -> Parameter:
        """Return a parameter with its type as the compiler has it.

        typedef and using are resolved, and an array is a pointer.
        """
        kind = text_of(node.child_by_field_name("type"))
        declarator = node.child_by_field_name("declarator")
        derived = list[str]()
        reference = ""
        while (
            declarator is not None and declarator.named_children and declarator.type != "identifier"
        ):
            if declarator.type in ("pointer_declarator", "abstract_pointer_declarator"):
                derived.insert(0, "*")
            elif declarator.type in ("array_declarator", "abstract_array_declarator"):
                derived.insert(0, f"[{text_of(declarator.child_by_field_name('size'))}]")
            elif declarator.type == "reference_declarator":
                reference = "&"
            declarator = (
                declarator.child_by_field_name("declarator") or declarator.named_children[-1]
            )
        for _ in range(4):  # a typedef may name another typedef
            kind = self._definition_of(kind)
            derived += ["*"] * kind.count("*")
            kind = bare_type(kind)
        kind += reference
        is_const = any(text_of(child) == "const" for child in node.named_children)
        element = kind + "".join(derived[1:])
        return Parameter(text_of(declarator), element, TYPES.get(kind, ""), bool(derived), is_const)

    def _definition_of(self, kind: str) -> str:
        """Return the type that a typedef or using stands for; another type stays."""
        if self.types.get(kind):
            return self.types[kind]
        return _TYPES.get(kind, kind)
