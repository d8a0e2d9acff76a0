"""A CUDA source as the compiler reads it.

One pass over the source's tree yields functions with their parameters, launches with the
values of names at their place, constants, and what a kernel needs.

pcpp expands macros and evaluates conditions. tree-sitter's grammar of CUDA parses the
result, and continues after what it doesn't know. Places in this text are mapped to places
in the source.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from typing import Any

from worklog.kernel.preprocessor import preprocessed
from worklog.kernel.source import (
    declare,
    included,
    nodes,
    parts,
    text_of,
    tree_of,
    uncommented,
)
from worklog.problem import TYPES, Parameter

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
_DEFINITIONS = (
    *RECORDS, "function_definition", "declaration", "type_definition", "alias_declaration", "using_declaration",
    "namespace_alias_definition", "template_instantiation", "expression_statement", "static_assert_declaration",
)  # fmt: skip


Spans = Sequence[tuple[int, int, str]]  # starts, ends and what is there instead


@dataclass(frozen=True)
class Definition:
    """A function's definition."""

    name: str  # with its namespaces
    is_kernel: bool
    template: Mapping[str, str]  # names and default values of the template's parameters
    bounds: str  # threads of __launch_bounds__, "" without __launch_bounds__
    parameters: tuple[Parameter, ...]
    body: Any  # the node between braces
    constants: Mapping[str, str]  # expressions of the names that the body declares
    line: Callable[[int], int]  # of the source, from 1, for a byte of the tree; in a header, 0
    header: str  # the text of the header that defines it; "" for the source

    @property
    def is_own(self) -> bool:
        """True for a function of the source, False for a header's."""
        return self.line(self.body.start_byte) > 0


@dataclass(frozen=True, eq=False)
class Piece:
    """What a text defines at the scope of the file or of a namespace."""

    text: int  # number of the text
    start: int  # place in the text
    end: int
    span: tuple[int, int]  # place in the text that macros expand to
    names: frozenset[str]  # that it defines
    is_for_host: bool  # device code can't use it
    mentions: frozenset[str]  # words of its code
    operands: frozenset[str] | None  # words of an operator's parameters; None for another piece
    code: str  # as macros expand it, without left_out
    left_out: tuple[tuple[int, int], ...]  # places of a structure's members that are for the host
    host_members: tuple[tuple[int, int], ...]  # the same in the text that macros expand to

    def is_for(self, names: Set[str], defined: Set[str]) -> bool:
        """Return whether this is an operator of types that are needed.

        names: the needed names
        defined: the names that any piece defines
        """
        return self.operands is not None and (self.operands & defined) <= names


@dataclass(frozen=True, eq=False)
class Unit:
    """What a source and its headers define."""

    functions: tuple[Definition, ...]  # in order
    constants: Mapping[str, str]  # expressions of names that have one value each
    defined: frozenset[str]  # names of macros, types and functions
    pieces: tuple[Piece, ...]  # in order, of the headers and then of the source
    macros: Mapping[str, frozenset[str]]  # words of what each stands for
    instances: tuple[str, ...]  # explicit instantiations
    texts: tuple[bool, ...]  # of each header and of the source, whether it stays as it is
    root: Any  # of the tree of all texts, as macros expand them
    # The name in the source at a byte of the tree; for what a macro expands to, the macro's name.
    word_at: Callable[[int], str]
    given: tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]  # the arguments of read()

    def without(self, macros: Set[str]) -> Unit:
        """Return the unit as if it didn't define these macros."""
        source, define, headers = self.given
        names = "|".join(map(re.escape, macros))
        definition = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+(?:{names})\b[^\n]*", re.MULTILINE)
        bare_headers = tuple((name, definition.sub("", text)) for name, text in headers)
        return read(definition.sub("", source), define, bare_headers)

    def unneeded(self, entry: str) -> list[Spans]:
        """Return what a kernel doesn't need, for each header and the source.

        entry: the kernel, with its template arguments
        """
        needed, _ = self._needed(entry)
        spans = [list[tuple[int, int, str]]() for _ in self.texts]
        # Several pieces with the same start come from one macro.
        for (text, start), group in groupby(self.pieces, lambda piece: (piece.text, piece.start)):
            if self.texts[text]:
                continue
            pieces = [*group]
            needed_pieces = [piece for piece in pieces if piece in needed]
            places = [*chain.from_iterable(piece.left_out for piece in needed_pieces)]
            if len(needed_pieces) < len(pieces) or (start, start) in places:
                code = " ".join(piece.code for piece in needed_pieces)
                spans[text].append((start, max(piece.end for piece in pieces), code))
            else:
                spans[text] += [(first, last, "") for first, last in places]
        return [*spans]

    def lacks(self, entry: str, other: Unit) -> bool:
        """Return whether a kernel may need what only another unit defines.

        entry: the kernel
        """
        _, mentioned_names = self._needed(entry)
        defined_here = self._device_names()
        defined_there = other._device_names()
        # Operators of types that both units know, such as float4.
        has_operators = any(piece.is_for(frozenset(), defined_there) for piece in other.pieces)
        return has_operators or not defined_there.isdisjoint(mentioned_names - defined_here)

    def _device_names(self) -> set[str]:
        """Return the macros, and the names that the pieces for device code define."""
        return {*self.macros}.union(*(piece.names for piece in self._device_pieces()))

    def _device_pieces(self) -> Iterator[Piece]:
        """Yield the pieces that device code can use."""
        return (piece for piece in self.pieces if not piece.is_for_host)

    def _needed(self, entry: str) -> tuple[set[Piece], set[str]]:
        """Return the pieces that a kernel needs, and the names that it mentions.

        Each piece that defines a mentioned name is needed, and mentions further names.
        """
        pieces_by_name = defaultdict[str, list[Piece]](list)
        for piece in self._device_pieces():
            for name in piece.names:
                pieces_by_name[name].append(piece)
        needed = {piece for piece in self.pieces if self.texts[piece.text]}
        waiting = {*_names_in(entry)}.union(*(piece.mentions for piece in needed))
        names = set[str]()
        while waiting:
            name = waiting.pop()
            names.add(name)
            pieces = {*pieces_by_name.get(name, ())}
            if not waiting:
                pieces |= {
                    piece for piece in self.pieces if piece.is_for(names, pieces_by_name.keys())
                }
            for piece in pieces - needed:
                waiting |= piece.mentions - names
            waiting |= self.macros.get(name, frozenset()) - names
            needed |= pieces
        return needed, names

    @property
    def kernels(self) -> list[str]:
        """The names of the source's __global__ functions, in order.

        If the source has none, the names of its headers' __global__ functions.
        """
        kernels = [function for function in self.functions if function.is_kernel]
        from_source = [kernel for kernel in kernels if kernel.is_own]
        return list(dict.fromkeys(kernel.name for kernel in from_source or kernels))

    def definition(self, name: str, *, of_host: bool = False) -> Definition | None:
        """Return the definition of a kernel or a host function; None if there is none.

        name: the function's name; namespaces may be left out
        of_host: whether to look for a host function
        """
        for function in self.functions:
            if function.is_kernel == of_host:
                continue
            if f"::{function.name}".endswith(f"::{name}"):
                return function
        return None


@lru_cache(maxsize=128)
def read(
    source: str, define: tuple[str, ...] = (), headers: tuple[tuple[str, str], ...] = ()
) -> Unit:
    """Read a source.

    define: macros of the command line, as "NAME=VALUE"
    headers: names and texts of what it includes
    """
    return _Reader(source, define, headers).unit


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
            macros[macro[1]] |= _names_in(macro[2])
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
            given=(source, tuple(define), tuple(headers)),
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
            inner, template = _untemplated(child)
            if inner.type == "namespace_definition":
                self._read_namespace(inner, scope)
                continue
            if inner.type in ("declaration_list", "ERROR"):
                self._read_scope(inner, scope)
                continue
            if node.type == "ERROR" and inner.type not in _DEFINITIONS:
                continue  # part of what the grammar doesn't know
            for record in _records(inner):
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
        self.namespaces |= _names_in(name)
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
        members = map(_untemplated, node.child_by_field_name("body").named_children)
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
        for record in _records(inner):
            members += self._host_members(record)
        places = [self._place(member) for member in members]
        member_spans = [member.byte_range for member in members]
        code = _cut(outer.text.decode(), outer.start_byte, member_spans)
        source = uncommented(_cut(self.joined_texts[start:end], start, places))
        is_for_host = self._is_for_the_host(inner)
        if is_for_host and inner.type in ("alias_declaration", "type_definition", *RECORDS):
            self.host_types |= _defined(inner)
        function = _function_declarator(inner)
        parameters = set[str]()
        if function is not None:
            parameters = {*_template_names(template), *map(_name, _parameters(function))}
        names = _defined(inner)
        operands = None
        if function is not None:
            if not is_for_host:
                operands = _operands(function, parameters)
        elif _is_using_namespace(inner):
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
                mentions=(_names_in(code) | _names_in(source)) - parameters,
                operands=operands,
                code=code,
                left_out=tuple((first - origin, last - origin) for first, last in places),
                host_members=tuple(member_spans),
            )
        )

    def _host_members(self, record: Any) -> Iterator[Any]:
        """Yield the members of a structure that device code can't use."""
        for child in record.child_by_field_name("body").named_children:
            member, _ = _untemplated(child)
            if member.type == "friend_declaration":
                member = member.named_children[-1]
            if self._is_for_the_host(member):
                yield child
                continue
            for inner in _records(member):
                yield from self._host_members(inner)

    def _is_for_the_host(self, node: Any) -> bool:
        """Return whether device code can't use what a node defines."""
        if node.type == "template_instantiation":  # the entry instantiates what it needs
            return True
        bodies = [record.child_by_field_name("body") for record in _records(node)]
        body = bodies[0] if bodies else node.child_by_field_name("body")
        head = node.text[: body.start_byte - node.start_byte if body else None].decode()
        if node.type in ("function_definition", "declaration", "field_declaration"):
            if _DEVICE.search(head.partition("=")[0]):
                return False
            if _function_declarator(node) is not None:
                # `= default` needs no mark.
                return node.type != "function_definition" or body is not None
        if node.type == "declaration" and not bodies:
            is_constant = any(text_of(child) == "const" for child in node.named_children)
            has_pointers = any(nodes(node, "pointer_declarator", "array_declarator"))
            if not head.startswith("extern") and (
                not is_constant or (has_pointers and "=" in head)
            ):
                return True
        return bool(_HOST.search(head)) or not self.host_types.isdisjoint(_names_in(head))

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
                template=_template_defaults(template),
                bounds=_launch_bounds(node),
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
            kind = _bare_type(kind)
        kind += reference
        is_const = any(text_of(child) == "const" for child in node.named_children)
        element = kind + "".join(derived[1:])
        return Parameter(text_of(declarator), element, TYPES.get(kind, ""), bool(derived), is_const)

    def _definition_of(self, kind: str) -> str:
        """Return the type that a typedef or using stands for; another type stays."""
        if self.types.get(kind):
            return self.types[kind]
        return _TYPES.get(kind, kind)


def _bare_type(kind: str) -> str:
    """Return a type's name without qualifiers, stars and std::."""
    names = [name for name in kind.replace("*", " ").split() if name not in _NO_TYPES]
    return " ".join(names or ["int"]).removeprefix("std::")


def _launch_bounds(node: Any) -> str:
    """Return the threads of a function's __launch_bounds__; "" if it has none."""
    for child in node.named_children:
        if child.type == "launch_bounds":
            return text_of(child.named_children[0]) if child.named_children else ""
    return ""


def _template_defaults(template: str) -> dict[str, str]:
    """Return the default values of a template's parameters by name; "" for none."""
    defaults = {}
    for part in parts(template):
        declaration, _, value = part.partition("=")
        names = re.findall(r"\w+", declaration)
        if names:
            defaults[names[-1]] = value.strip()
    return defaults


def _operands(function: Any, parameters: Set[str]) -> frozenset[str] | None:
    """Return the names in an operator's declarator; None for another function.

    parameters: the names of its parameters and its template's, which are left out
    """
    if next(nodes(function, "operator_name", "operator_cast"), None) is None:
        return None
    return _names_in(text_of(function)) - parameters


def _is_using_namespace(node: Any) -> bool:
    """Return whether a node is `using namespace …`."""
    return bool(node.type == "using_declaration" and node.children[1].type == "namespace")


def _untemplated(node: Any) -> tuple[Any, str]:
    """Return what a node declares, and its template's parameters.

    `template <…>` and `extern "C"` are left out.
    """
    template = ""
    while node.type in ("template_declaration", "linkage_specification"):
        template = text_of(node.child_by_field_name("parameters"))[1:-1]
        node = node.named_children[-1]
    return node, template


def _names_in(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))


def _cut(text: str, start: int, places: Sequence[tuple[int, int]]) -> str:
    """Return a text without the code at these places.

    start: the place of the text
    """
    for first, last in reversed(places):
        text = text[: first - start] + text[last - start :]
    return text


def _records(node: Any) -> list[Any]:
    """Return the structures and enumerations whose members a declaration lists."""
    records = [child for child in (node, *node.named_children) if child.type in RECORDS]
    return [record for record in records if record.child_by_field_name("body") is not None]


def _function_declarator(node: Any) -> Any:
    """Return the declarator of the function that a node declares: its name and parameters.

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


def _parameters(function: Any) -> list[Any]:
    """Return the declarators of a function's parameters."""
    parameters = function.child_by_field_name("parameters")
    if parameters is None:
        return []
    declarators = (child.child_by_field_name("declarator") for child in parameters.named_children)
    return [declarator for declarator in declarators if declarator is not None]


def _template_names(template: str) -> list[str]:
    """Return the names of a template's parameters."""
    return [*_template_defaults(template)]


def _name(node: Any) -> str:
    """Return the name that a declarator declares; "" for none.

    The scope and template arguments are left out.
    """
    while node is not None and node.type not in _NAMES:
        inner = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        node = inner or next(reversed(node.named_children), None)
    return text_of(node).lstrip("~ ")


def _defined(node: Any) -> frozenset[str]:
    """Return the names that a node defines outside of functions."""
    names = [_name(declarator) for declarator in node.children_by_field_name("declarator")]
    if node.type in RECORDS or node.type in ("alias_declaration", "concept_definition"):
        names.append(_name(node.child_by_field_name("name")))
    elif node.type == "namespace_alias_definition":
        names.append(text_of(node.named_children[0]))
    elif node.type == "using_declaration":
        names.append(_name(node.named_children[-1]))
    for record in _records(node):
        names.append(_name(record.child_by_field_name("name")))
        members = record.child_by_field_name("body").named_children
        for member in members:
            if member.type == "enumerator":
                names.append(_name(member.child_by_field_name("name")))
    return frozenset(filter(None, names))
