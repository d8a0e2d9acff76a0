"""A CUDA source as the compiler reads it: one pass over its tree gives functions with their parameters, launches with
the values of names at their place, constants, and what a kernel needs.

pcpp expands macros and evaluates conditions, and what is left is parsed by tree-sitter's grammar of CUDA, which reads
on behind what it doesn't know. Places in this text are mapped to those of the source.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
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
_TYPES = {
    "uint": "unsigned",
    "ushort": "unsigned short",
    "ulong": "unsigned long",
    "ptrdiff_t": "long",
}  # of headers
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
    """A function's definition. name: with its namespaces. template: names and default values of its parameters. bounds:
    threads of __launch_bounds__, "" if it has none. body: its node between braces. constants: expressions of the names
    that its body declares. line: of the source, from 1, where a byte of the tree is; of a header, 0. header: the
    text of the header that has it; "" for the source.
    """

    name: str
    is_kernel: bool
    template: Mapping[str, str]
    bounds: str
    parameters: tuple[Parameter, ...]
    body: Any
    constants: Mapping[str, str]
    line: Callable[[int], int]
    header: str

    @property
    def is_own(self) -> bool:
        """Whether it is in the source, and not in a header."""
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
        """Return whether it is an operator of types that are needed.

        names: what is needed
        defined: what any piece defines
        """
        return self.operands is not None and (self.operands & defined) <= names


@dataclass(frozen=True, eq=False)
class Unit:
    """What a source and its headers define.

    word_at: the name in the source at a byte of the tree, of what a macro expands to the macro's
    given: the source, macros and headers, as for read()
    """

    functions: tuple[Definition, ...]  # in order
    constants: Mapping[str, str]  # expressions of names that have one value each
    defined: frozenset[str]  # names of macros, types and functions
    pieces: tuple[Piece, ...]  # in order, of the headers and then of the source
    macros: Mapping[str, frozenset[str]]  # words of what each stands for
    instances: tuple[str, ...]  # explicit instantiations
    texts: tuple[bool, ...]  # of each header and of the source, whether it stays as it is
    root: Any  # of the tree of all texts, as macros expand them
    word_at: Callable[[int], str]
    given: tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]

    def without(self, macros: Set[str]) -> Unit:
        """Return the unit as if it didn't define these macros."""
        source, define, headers = self.given
        names = "|".join(map(re.escape, macros))
        defined = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+(?:{names})\b[^\n]*", re.MULTILINE)
        bare = tuple((name, defined.sub("", text)) for name, text in headers)
        return read(defined.sub("", source), define, bare)

    def unneeded(self, entry: str) -> list[Spans]:
        """Return what a kernel doesn't need, for each header and the source.

        entry: the kernel, with its template arguments
        """
        needed, _ = self._needed(entry)
        spans = [list[tuple[int, int, str]]() for _ in self.texts]
        for (text, start), group in groupby(self.pieces, lambda piece: (piece.text, piece.start)):
            pieces = [*group]
            kept = [piece for piece in pieces if piece in needed]
            is_cut = any((start, start) == place for piece in kept for place in piece.left_out)
            if self.texts[text]:
                continue
            if len(kept) < len(pieces) or is_cut:  # several are of one macro
                code = " ".join(piece.code for piece in kept)
                spans[text].append((start, max(piece.end for piece in pieces), code))
            else:
                spans[text] += [(*place, "") for piece in kept for place in piece.left_out]
        return [*spans]

    def lacks(self, entry: str, other: Unit) -> bool:
        """Return whether a kernel may need what another unit defines and this one doesn't.

        entry: the kernel
        """
        _, names = self._needed(entry)
        own = {*self.macros}.union(*(piece.names for piece in self._of_device()))
        others = {*other.macros}.union(*(piece.names for piece in other._of_device()))
        # Operators of types that both know, such as float4.
        has_operators = any(piece.is_for(frozenset(), others) for piece in other.pieces)
        return has_operators or not others.isdisjoint(names - own)

    def _of_device(self) -> Iterator[Piece]:
        """Yield the pieces that device code can use."""
        return (piece for piece in self.pieces if not piece.is_for_host)

    def _needed(self, entry: str) -> tuple[set[Piece], set[str]]:
        """Return the pieces that a kernel needs: each that defines a name which it mentions; and these names."""
        defining = defaultdict[str, list[Piece]](list)
        for piece in self._of_device():
            for name in piece.names:
                defining[name].append(piece)
        needed = {piece for piece in self.pieces if self.texts[piece.text]}
        waiting = {*_words(entry)}.union(*(piece.mentions for piece in needed))
        names = set[str]()
        while waiting:
            name = waiting.pop()
            names.add(name)
            found = {*defining.get(name, ())}
            if not waiting:
                found |= {piece for piece in self.pieces if piece.is_for(names, defining.keys())}
            for piece in found - needed:
                waiting |= piece.mentions - names
            waiting |= self.macros.get(name, frozenset()) - names
            needed |= found
        return needed, names

    @property
    def kernels(self) -> list[str]:
        """Names of the __global__ functions of the source, in order; where it has none, of its headers."""
        kernels = [function for function in self.functions if function.is_kernel]
        own = [kernel for kernel in kernels if kernel.is_own] or kernels
        return list(dict.fromkeys(kernel.name for kernel in own))

    def definition(self, name: str, *, of_host: bool = False) -> Definition | None:
        """The definition of a kernel, or a host function; its namespaces may be left out. None where there is none."""
        named = [
            f
            for f in self.functions
            if f.is_kernel != of_host and f"::{f.name}".endswith(f"::{name}")
        ]
        return named[0] if named else None


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
    """Reads the tree of a source, which is the last of the texts, and its headers."""

    def __init__(
        self, source: str, define: Sequence[str], headers: Sequence[tuple[str, str]]
    ) -> None:
        texts = [*(text for _, text in headers), source]
        self.headers = headers
        self.whole = "\n".join(texts)
        self.starts = [0]
        for text in texts[:-1]:
            self.starts.append(self.starts[-1] + len(text) + 1)
        self.code = preprocessed(self.whole, define)
        self.functions: list[Definition] = []
        self.types = dict[str, str]()  # by typedef and using; of a structure, ""
        self.host_types = set[str]()  # names of types for the host
        self.namespaces = {*NAMESPACES}
        self.pieces: list[Piece] = []
        self.constants = {name: value for name, value in self.code.macros.items() if value}
        tree = tree_of(self.code.text)
        self.instances = [text_of(node) for node in nodes(tree, "template_instantiation")]
        self._outside(tree, ())
        known = frozenset(
            (*self.code.macros, *self.types, *(function.name for function in self.functions))
        )
        macros = defaultdict[str, frozenset[str]](frozenset)
        for macro in _DEFINE.finditer(self.whole):
            macros[macro[1]] |= _words(macro[2])
        inner = {name for piece in self.pieces for name in included(self._text(piece))}
        stay = (FOR_NVRTC in text or name in inner for name, text in headers)
        self.unit = Unit(
            tuple(self.functions),
            self.constants,
            known,
            tuple(self.pieces),
            macros,
            tuple(self.instances),
            (*stay, False),
            tree,
            self._word,
            (source, tuple(define), tuple(headers)),
        )

    def _text(self, piece: Piece) -> str:
        """The code of a piece as it is in its text."""
        start = self.starts[piece.text]
        return self.whole[start + piece.start : start + piece.end]

    def _word(self, at: int) -> str:
        """The name at a place in the text, in the source; "" for none."""
        found = re.compile(r"[A-Za-z_]\w*").match(self.whole, self.code.place(at))
        return found[0] if found else ""

    def _line(self, at: int) -> int:
        """The line of the source of a place in the text; of a header, 0."""
        place = self.code.place(at)
        start = self.starts[-1]
        return self.whole.count("\n", start, place) + 1 if place >= start else 0

    def _header(self, at: int) -> str:
        """The text of the header that has a place in the text; "" for the source."""
        number = bisect_right(self.starts, self.code.place(at)) - 1
        return self.headers[number][1] if number < len(self.headers) else ""

    def _outside(self, node: Any, scope: tuple[str, ...]) -> None:
        """What a node outside of functions defines."""
        for child in node.named_children:
            inner, template = _untemplated(child)
            if inner.type == "namespace_definition":
                is_inline = inner.children[0].type == "inline"  # its name may be left out
                name = re.sub(r"::inline \w+", "", text_of(inner.child_by_field_name("name")))
                self.namespaces |= _words(name)
                self._outside(
                    inner.child_by_field_name("body"),
                    scope if is_inline or not name else (*scope, name),
                )
                continue
            if inner.type in ("declaration_list", "ERROR"):
                self._outside(inner, scope)
                continue
            if node.type == "ERROR" and inner.type not in _DEFINITIONS:
                continue  # part of what the grammar doesn't know
            for record in _records(inner):
                self._record(record, scope)
            if inner.type in ("type_definition", "alias_declaration"):
                kind = inner.child_by_field_name("type")
                for own in inner.children_by_field_name("declarator") or [
                    inner.child_by_field_name("name")
                ]:
                    name = (
                        text_of(own)
                        .rpartition(" " if own.type == "pointer_declarator" else "\n")[2]
                        .lstrip("* ")
                    )
                    stars = "*" * (own.type == "pointer_declarator")
                    self.types[name] = "" if kind.type in RECORDS else text_of(kind) + stars
            if inner.type == "function_definition":
                self._function(inner, scope, template)
            elif inner.type == "declaration":
                declare(inner, self.constants)
            self._piece(child, inner, template)

    def _record(self, node: Any, scope: tuple[str, ...]) -> None:
        """A structure or an enumeration with its constants and functions."""
        name = text_of(node.child_by_field_name("name"))
        self.types[name] = ""
        members = map(_untemplated, node.child_by_field_name("body").named_children)
        for member, template in sorted(
            members, key=lambda pair: pair[0].type == "function_definition"
        ):
            if member.type == "function_definition":
                self._function(member, (*scope, name), template)
            elif member.type == "enumerator":
                own, value = (
                    text_of(member.child_by_field_name(field)) for field in ("name", "value")
                )
                if value:
                    self.constants[own] = value
            fields = (
                member.children_by_field_name(field) for field in ("declarator", "default_value")
            )
            for declared, given in zip(*fields, strict=False):
                self.constants[f"{name}::{text_of(declared)}"] = text_of(given)

    def _place(self, node: Any) -> tuple[int, int]:
        """Return where a node is in the texts; of a macro's code, the place of the whole macro."""
        start = self.code.place(node.start_byte)
        behind = bisect_left(self.code.starts, node.end_byte)
        while behind < len(self.code.places) - 1 and self.code.places[behind] <= start:
            behind += 1
        return start, self.code.places[behind]

    def _piece(self, whole: Any, inner: Any, template: str) -> None:
        """Add what a node at the scope of the file or a namespace defines.

        whole: the node
        inner: the same without `template <…>` and `extern "C"`
        template: its parameters
        """
        start, end = self._place(whole)
        text = bisect_right(self.starts, start) - 1
        origin = self.starts[text]
        if text + 1 < len(self.starts):
            end = min(end, self.starts[text + 1])
        members = [own for record in _records(inner) for own in self._host_members(record)]
        places = [self._place(own) for own in members]
        code = _without(whole.text.decode(), whole.start_byte, [own.byte_range for own in members])
        mentions = _words(code) | _words(
            uncommented(_without(self.whole[start:end], start, places))
        )
        is_for_host = self._is_for_the_host(inner)
        names = _defined(inner)
        if is_for_host and inner.type in ("alias_declaration", "type_definition", *RECORDS):
            self.host_types |= _defined(inner)
        function = _function_declarator(inner)
        operands = None
        if function is not None:
            own = {*_template_names(template), *map(_name, _parameters(function))}
            mentions -= own
            if not is_for_host and next(nodes(function, "operator_name", "operator_cast"), None):
                operands = _words(text_of(function)) - own
        elif inner.type == "using_declaration" and inner.children[1].type == "namespace":
            is_known = re.split(r"\W+", text_of(inner))[2] in self.namespaces
            operands = frozenset[str]() if is_known else None
            names = frozenset[str]()
        left_out = tuple((first - origin, last - origin) for first, last in places)
        self.pieces.append(
            Piece(
                text=text,
                start=start - origin,
                end=end - origin,
                span=whole.byte_range,
                names=names,
                is_for_host=is_for_host,
                mentions=mentions,
                operands=operands,
                code=code,
                left_out=left_out,
                host_members=tuple(own.byte_range for own in members),
            )
        )

    def _host_members(self, record: Any) -> Iterator[Any]:
        """The members of a structure that device code can't use."""
        for whole in record.child_by_field_name("body").named_children:
            member, _ = _untemplated(whole)
            if member.type == "friend_declaration":
                member = member.named_children[-1]
            if self._is_for_the_host(member):
                yield whole
                continue
            for inner in _records(member):
                yield from self._host_members(inner)

    def _is_for_the_host(self, node: Any) -> bool:
        """Whether device code can't use what a node defines."""
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
        return bool(_HOST.search(head)) or not self.host_types.isdisjoint(_words(head))

    def _function(self, node: Any, scope: tuple[str, ...], template: str) -> None:
        declarator = node.child_by_field_name("declarator")
        body = node.child_by_field_name("body")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        if declarator is None or body is None:
            return
        name = text_of(declarator.child_by_field_name("declarator"))
        before = node.text[: declarator.start_byte - node.start_byte].decode()
        bounds = next(
            (child for child in node.named_children if child.type == "launch_bounds"), None
        )
        listed = [
            p
            for p in declarator.child_by_field_name("parameters").named_children
            if "parameter" in p.type
        ]
        parameters = [p for p in map(self._parameter, listed) if (p.type, p.name) != ("void", "")]
        declared = (part.partition("=") for part in parts(template))
        defaults = {
            words[-1]: value.strip()
            for left, _, value in declared
            if (words := re.findall(r"\w+", left))
        }
        outer = f"{scope[-1]}::" if scope else "::"
        names = {
            own.removeprefix(outer): text
            for own, text in self.constants.items()
            if own.startswith(outer)
        }
        if "__global__" in before:
            for declaration in nodes(body, "declaration"):
                declare(declaration, names)
        for parameter in parameters:
            names.pop(parameter.name, None)
        self.functions.append(
            Definition(
                "::".join((*scope, name)),
                "__global__" in before
                and "<" not in name,  # a specialisation is an instance of its template
                defaults,
                text_of(bounds.named_children[0])
                if bounds is not None and bounds.named_children
                else "",
                tuple(parameters),
                body,
                names,
                self._line,
                self._header(body.start_byte),
            )
        )

    def _parameter(self, node: Any) -> Parameter:
        """A parameter, with its type by typedef and using as the compiler has it: an array is a pointer."""
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
        for _ in range(4):  # names of names
            kind = self.types.get(kind) or _TYPES.get(kind) or kind
            derived += ["*"] * kind.count("*")
            words = [word for word in kind.replace("*", " ").split() if word not in _NO_TYPES]
            kind = " ".join(words or ["int"]).removeprefix("std::")
        kind += reference
        is_const = any(text_of(child) == "const" for child in node.named_children)
        element = kind + "".join(derived[1:])
        return Parameter(text_of(declarator), element, TYPES.get(kind, ""), bool(derived), is_const)


def _untemplated(node: Any) -> tuple[Any, str]:
    """What is declared, without `template <…>` and `extern "C"`; and the template's parameters."""
    template = ""
    while node.type in ("template_declaration", "linkage_specification"):
        template = text_of(node.child_by_field_name("parameters"))[1:-1]
        node = node.named_children[-1]
    return node, template


def _words(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))


def _without(text: str, start: int, places: Sequence[tuple[int, int]]) -> str:
    """A text without what is at these places.

    start: the place of the text
    """
    for first, last in reversed(places):
        text = text[: first - start] + text[last - start :]
    return text


def _records(node: Any) -> list[Any]:
    """The structures and enumerations that a declaration has the members of."""
    found = [child for child in (node, *node.named_children) if child.type in RECORDS]
    return [record for record in found if record.child_by_field_name("body") is not None]


def _function_declarator(node: Any) -> Any:
    """The name and the parameters of the function that a node declares; None if it declares none."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type not in (
        "function_declarator",
        "operator_cast",
    ):
        inner = declarator.named_children[-1:] if "reference" in declarator.type else [None]
        declarator = declarator.child_by_field_name("declarator") or inner[0]
    return declarator


def _parameters(function: Any) -> list[Any]:
    """The declarators of a function's parameters."""
    listed = function.child_by_field_name("parameters")
    declared = listed.named_children if listed is not None else []
    found = (parameter.child_by_field_name("declarator") for parameter in declared)
    return [declarator for declarator in found if declarator is not None]


def _template_names(template: str) -> list[str]:
    """The names of a template's parameters."""
    declared = (re.findall(r"\w+", part.partition("=")[0]) for part in parts(template))
    return [words[-1] for words in declared if words]


def _name(node: Any) -> str:
    """The name that a declarator declares, without its scope and template arguments; "" for none."""
    while node is not None and node.type not in _NAMES:
        inner = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        node = inner or next(reversed(node.named_children), None)
    return text_of(node).lstrip("~ ")


def _defined(node: Any) -> frozenset[str]:
    """The names that a node defines outside of functions."""
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
        names += [
            _name(member.child_by_field_name("name"))
            for member in members
            if member.type == "enumerator"
        ]
    return frozenset(filter(None, names))
