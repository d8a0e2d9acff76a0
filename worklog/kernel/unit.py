"""A CUDA source as the compiler reads it: one pass over its tree gives functions with their parameters, launches with
the values of names at their place, constants, and what is for the host.

pcpp expands macros and evaluates conditions, and what is left is parsed by tree-sitter's grammar of CUDA, which reads
on behind what it doesn't know. Places in this text are mapped to those of the source.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from worklog.kernel.preprocessor import preprocessed
from worklog.kernel.source import (
    BY_ADDRESSES,
    BY_CONFIG,
    CONFIGURED,
    UNCLEAR,
    assign,
    declare,
    filled,
    forget,
    members,
    nodes,
    parts,
    targets,
    text_of,
    tree_of,
)
from worklog.problem import TYPES, Parameter

_DEVICE = re.compile(
    r"__(?:global|device|constant|shared)__|\bconstexpr\b|\b[A-Z_]*DEVICE[A-Z_]*\b"
)
_HOST = re.compile(
    r"<<<|\bstd\b|\bcuda[A-Z]\w*|\bcu(?:blas|rand|fft|sparse|solver|dnn)\w+|\bnccl[A-Z]\w+|\bMPI_\w+|\bglob_t\b|\bFILE\b|"
    r"\b(?:torch|at|pybind11)::|\bpthread_\w+|\btime(?:val|spec)\b|"
    r"\busing\s+namespace\s+(?!(?:nvcuda|cooperative_groups|cub|cuda|cute|cutlass)\b)"
)
_TYPES = {
    "uint": "unsigned",
    "ushort": "unsigned short",
    "ulong": "unsigned long",
    "ptrdiff_t": "long",
}  # of headers
_NO_TYPES = ("struct", "const", "volatile", "int", "typename", "__restrict__", "__restrict")
_RECORDS = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_SCOPES = (
    *_LOOPS, "if_statement", "else_clause", "switch_statement", "case_statement", "compound_statement",
    "lambda_expression", "try_statement", "conditional_expression",
)  # fmt: skip
_CHANGES = ("assignment_expression", "update_expression", "call_expression")


Spans = Sequence[tuple[int, int, str]]  # starts, ends and what is there instead


@dataclass(frozen=True)
class Call:
    """A launch as a source writes it: function<template><<<configuration>>>(arguments), or by the runtime with the
    variables in its array of addresses; or without a configuration, a call of a function that launches. names: values
    of the function's names there. line: of the source. node: of the tree.
    """

    function: str
    template: tuple[str, ...]
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    names: Mapping[str, str]
    line: int
    node: Any

    def by(self, caller: Definition, outer: Call) -> Call:
        """The launch where another function calls its own, whose parameters have values then. Names of the other
        function get an underscore.
        """
        local = {
            name: name.replace(".", "_.", 1) if "." in name else f"{name}_" for name in outer.names
        }
        parameters = (*caller.template, *(parameter.name for parameter in caller.parameters))
        # Of template arguments, those may be missing that the compiler finds by itself.
        values = outer.template if len(outer.template) == len(caller.template) else caller.template
        given = {
            name: filled(text, local)
            for name, text in zip(parameters, (*values, *outer.arguments), strict=False)
        }
        names = {local[name]: filled(text, local) for name, text in outer.names.items()}
        called = filled(self.function, given).removeprefix(
            "&"
        )  # a parameter may point to the kernel
        name, _, template = names.get(called, called).partition("<")
        return replace(
            self,
            function=name,
            template=(*parts(template.rpartition(">")[0]),) if template else self.template,
            arguments=tuple(filled(text, given) for text in self.arguments),
            names={**self.names, **names, **given},
        )


@dataclass(frozen=True)
class Definition:
    """A function's definition. name: with its namespaces. template: names and default values of its parameters. bounds:
    threads of __launch_bounds__, "" if it has none. body: its node between braces. names: values of the body's names at
    its end. line: of the source, from 1, where a byte of the tree is; of a header, 0.
    """

    name: str
    is_kernel: bool
    template: Mapping[str, str]
    bounds: str
    parameters: tuple[Parameter, ...]
    body: Any
    names: Mapping[str, str]
    calls: tuple[Call, ...]
    line: Callable[[int], int]

    @property
    def is_own(self) -> bool:
        """Whether it is in the source, and not in a header."""
        return self.line(self.body.start_byte) > 0


@dataclass(frozen=True)
class Unit:
    """functions: in order. constants: expressions of names that have one value each outside of functions, and by
    #define; of a function that returns one, a lambda. defined: names of macros, types and functions. host: in each
    header, and in the source, what is for the host; a macro that defines something for the device too is expanded.
    """

    functions: tuple[Definition, ...]
    constants: Mapping[str, str]
    defined: frozenset[str]
    host: tuple[Spans, ...]

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

    def names(self, scope: Definition | Call) -> dict[str, str]:
        """The values of the names that a function or a call sees."""
        return {
            name: text
            for name, text in {**self.constants, **scope.names}.items()
            if text != UNCLEAR
        }


@lru_cache(maxsize=128)
def read(source: str, define: tuple[str, ...] = (), headers: tuple[str, ...] = ()) -> Unit:
    """The unit. define: macros of the command line, as "NAME=VALUE". headers: texts that it includes."""
    return _Reader((*headers, source), define).unit


class _Reader:
    """Reads the tree of a source, which is the last of the texts, and its headers."""

    def __init__(self, texts: Sequence[str], define: Sequence[str]) -> None:
        self.whole, self.starts = "\n".join(texts), [0]
        for text in texts[:-1]:
            self.starts.append(self.starts[-1] + len(text) + 1)
        self.code = preprocessed(self.whole, define)
        self.functions: list[Definition] = []
        self.types = dict[str, str]()  # by typedef and using; of a structure, ""
        self.host_types = set[str]()  # names of structures for the host
        self.outer = defaultdict[int, list[tuple[Any, bool]]](
            list
        )  # by place: nodes, and whether for the host
        self.constants = {name: value for name, value in self.code.macros.items() if value}
        tree = tree_of(self.code.text)
        self.instances = [text_of(node) for node in nodes(tree, "template_instantiation")]
        self._outside(tree, ())
        known = frozenset(
            (*self.code.macros, *self.types, *(function.name for function in self.functions))
        )
        host = [list[tuple[int, int, str]]() for _ in texts]
        for start, defined in self.outer.items():
            if any(is_host for _, is_host in defined):
                number = bisect_right(self.starts, start) - 1
                kept = " ".join(text_of(node) for node, is_host in defined if not is_host)
                end = self.code.place(defined[-1][0].end_byte)
                host[number].append((start - self.starts[number], end - self.starts[number], kept))
        self.unit = Unit(tuple(self.functions), self.constants, known, tuple(host))

    def _line(self, at: int) -> int:
        """The line of the source of a place in the text; of a header, 0."""
        place, start = self.code.place(at), self.starts[-1]
        return self.whole.count("\n", start, place) + 1 if place >= start else 0

    def _outside(self, node: Any, scope: tuple[str, ...]) -> None:
        """What a node outside of functions defines."""
        for child in node.named_children:
            inner, template = _untemplated(child)
            if inner.type == "namespace_definition":
                is_inline = inner.children[0].type == "inline"  # its name may be left out
                name = re.sub(r"::inline \w+", "", text_of(inner.child_by_field_name("name")))
                self._outside(
                    inner.child_by_field_name("body"),
                    scope if is_inline or not name else (*scope, name),
                )
                continue
            if inner.type in ("declaration_list", "ERROR"):
                self._outside(inner, scope)
                continue
            for record in (inner, *inner.named_children):
                if record.type in _RECORDS and record.child_by_field_name("body") is not None:
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
                    self.types[name] = "" if kind.type in _RECORDS else text_of(kind) + stars
            if inner.type == "function_definition":
                self._function(inner, scope, template)
            elif inner.type == "declaration":
                declare(inner, self.constants)
            self.outer[self.code.place(child.start_byte)].append(
                (child, self._is_for_the_host(child, inner))
            )

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
                self.constants[own] = value or UNCLEAR
            fields = (
                member.children_by_field_name(field) for field in ("declarator", "default_value")
            )
            for declared, given in zip(*fields, strict=False):
                self.constants[f"{name}::{text_of(declared)}"] = text_of(given)

    def _is_for_the_host(self, whole: Any, inner: Any) -> bool:
        text, body = whole.text.decode(), inner.child_by_field_name("body")
        if (
            inner.type == "template_instantiation"
        ):  # mostly of host functions; of a kernel, the entry is one
            return True
        if inner.type in ("function_definition", "declaration"):
            head = (
                text[: body.start_byte - whole.start_byte]
                if inner.type == "function_definition" and body
                else text
            )
            declared = head[inner.start_byte - whole.start_byte :].partition("=")[0]
            if _DEVICE.search(declared):
                return False
            if inner.type == "function_definition" or next(
                nodes(inner, "function_declarator"), None
            ):
                return True
            constant = any(text_of(child) == "const" for child in inner.named_children)
            pointers = (
                next(nodes(inner, "pointer_declarator", "array_declarator"), None) is not None
            )
            plain = inner.child_by_field_name(
                "type"
            ).type not in _RECORDS and not declared.startswith("extern")
            if plain and (not constant or (pointers and "=" in text)):
                return True
        name = text_of(inner.child_by_field_name("name")) if inner.type in _RECORDS else ""
        # Code for the device has it, takes it, or is derived of it: then only its functions for the host are left out.
        taken = (
            rf"(?:__(?:global|device)__|\b(?:struct|class)\s+\w+\s*:)[^{{;]*\b{re.escape(name)}\b"
        )
        if name and body is not None and ("__device__" in text or re.search(taken, self.code.text)):
            defined = [
                own
                for own in body.named_children
                if _untemplated(own)[0].type == "function_definition"
            ]
            of_host, left_out = list[Any](), set[str]()
            for _ in defined:  # those that call one, too
                of_host = [
                    own for own in defined if self._names_host(own.text.decode(), left_out - {name})
                ]
                declared = filter(
                    None, (next(nodes(own, "function_declarator"), None) for own in of_host)
                )
                left_out = {text_of(own.child_by_field_name("declarator")) for own in declared}
            for own in of_host:
                text = text.replace(own.text.decode(), "")
            if not self._names_host(text):
                for own in of_host:
                    self.outer[self.code.place(own.start_byte)].append((own, True))
                return False
        if named := self._names_host(text):
            self.host_types.add(name)
        return named

    def _names_host(self, text: str, functions: Set[str] = frozenset()) -> bool:
        """Whether code without a mark for the device names something of the host, such as one of these functions."""
        named = bool(_HOST.search(text)) or not (self.host_types | functions).isdisjoint(
            re.findall(r"\w+", text)
        )
        return named and "__device__" not in text

    def _function(self, node: Any, scope: tuple[str, ...], template: str) -> None:
        declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
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
        names |= dict.fromkeys((p.name for p in parameters), UNCLEAR)
        if (
            "__global__" not in before
        ):  # a function that launches for elements of any type is taken for floats
            elements = {p.type for p in parameters if p.pointer} & {*defaults}
            names |= {
                element: self._element(name, [*defaults].index(element)) for element in elements
            }
        calls = list[Call]()
        self._changes = [(change.start_byte, targets(change)) for change in nodes(body, *_CHANGES)]
        with suppress(RecursionError):  # of hundreds of scopes in each other
            calls += self._inside(body, names)
        if [child.type for child in body.named_children] == ["return_statement"] and parameters:
            lambda_ = f"[]({', '.join(p.name for p in parameters)}) {text_of(body)}"
            self.constants[name] = (
                lambda_ if self.constants.get(name, lambda_) == lambda_ else UNCLEAR
            )
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
                tuple(calls),
                self._line,
            )
        )

    def _element(self, function: str, position: int) -> str:
        """What a host function's template is for there: float, unless it is instantiated for other types only."""
        written = (
            re.search(rf"\b{re.escape(function)}\s*<(.+?)>\s*\(", text) for text in self.instances
        )
        kinds = {
            kind for match in written if match for kind in parts(match[1])[position : position + 1]
        }
        return "float" if not kinds or kinds & {"float", "double"} else min(kinds)

    def _parameter(self, node: Any) -> Parameter:
        """A parameter, with its type by typedef and using as the compiler has it: an array is a pointer."""
        kind, declarator = (
            text_of(node.child_by_field_name("type")),
            node.child_by_field_name("declarator"),
        )
        derived, reference = list[str](), ""
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

    def _inside(self, node: Any, names: dict[str, str]) -> Iterator[Call]:
        """The launches in a function's code, in order. names: values before it, then those behind it."""
        for child in nodes(node, "declaration", *_CHANGES, inside=_SCOPES):
            if child.type in _SCOPES:
                inside = range(child.start_byte, child.end_byte)
                changed = {target for byte, of in self._changes if byte in inside for target in of}
                inner = dict(names)
                if child.type in _LOOPS:
                    forget(inner, changed)
                for part in child.named_children if child.type == "if_statement" else [child]:
                    yield from self._inside(part, dict(inner))
                forget(names, changed)
            elif child.type == "declaration":
                declare(child, names)
            else:
                if (call := self._call(child, names)) is not None:
                    yield call
                left, right = (
                    text_of(child.child_by_field_name(side)) for side in ("left", "right")
                )
                own = {name: f"({names[name]})" for name in (left, *members(left)) if name in names}
                forget(names, targets(child))
                if child.type == "assignment_expression" and child.children[1].type == "=":
                    assign(names, left, filled(right, own))

    def _call(self, node: Any, names: Mapping[str, str]) -> Call | None:
        """A launch, or a call of a function that launches."""
        function, arguments = (
            node.child_by_field_name(field) for field in ("function", "arguments")
        )
        if function is None:
            return None
        passed, by = arguments.named_children if arguments is not None else [], text_of(function)
        configured = next(
            (child for child in node.named_children if child.type == "kernel_call_syntax"), None
        )
        if configured is not None:
            configuration = [*map(text_of, configured.named_children)]
        elif by in BY_CONFIG and len(passed) > 1:
            config = text_of(passed[0]).strip("& ")
            fields = (
                names.get(f"{config}.{field}", default) for field, default in CONFIGURED.items()
            )
            function, configuration, passed = passed[1], [*fields], passed[2:]
        elif by in BY_ADDRESSES and len(passed) > 3:
            function, passed, configuration = (
                passed[0],
                passed[3:4],
                [text_of(passed[n]) for n in (1, 2, 4)],
            )
        elif any(
            f.calls and f.name.rpartition("::")[2] == by.partition("<")[0] for f in self.functions
        ):
            configuration = []
        else:
            return None
        values = [*map(text_of, passed)]
        if by in (
            *BY_ADDRESSES,
            "cudaLaunchKernelExC",
        ):  # an array with the addresses of the arguments
            values = [
                part.strip("& ") for part in parts(names.get("".join(values), "").strip("{ }"))
            ]
        while function.type in (
            "cast_expression",
            "pointer_expression",
            "parenthesized_expression",
        ):
            function = function.named_children[-1]
        if function.type == "call_expression":  # a cast of C++
            function = function.child_by_field_name("arguments").named_children[0]
        written = text_of(function)
        pointed = names.get(written, UNCLEAR)  # auto kernel = f<32>;
        name, _, template = (written if pointed == UNCLEAR else pointed).partition("<")
        given = tuple(parts(template.rpartition(">")[0])) if template else ()
        function, at = name.strip("& "), self._line(node.start_byte)
        return Call(function, given, tuple(configuration), tuple(values), dict(names), at, node)


def _untemplated(node: Any) -> tuple[Any, str]:
    """What is declared, without `template <…>` and `extern "C"`; and the template's parameters."""
    template = ""
    while node.type in ("template_declaration", "linkage_specification"):
        template = text_of(node.child_by_field_name("parameters"))[1:-1]
        node = node.named_children[-1]
    return node, template
