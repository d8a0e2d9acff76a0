"""A CUDA source as the compiler reads it: one pass over its tree gives functions with their parameters, launches,
constants, and what is for the host.

The preprocessor's conditions are evaluated by pcpp, and what they keep is parsed by tree-sitter's grammar of CUDA,
which reads on behind what it doesn't know. Macros are not expanded: their names stay readable.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from worklog.kernel.source import DIRECTIVE, LINE, blank, filled, nodes, parts, text_of, tree_of, uncommented
from worklog.problem import TYPES, Parameter

_CONDITIONS = ("if", "ifdef", "ifndef", "elif", "else", "endif")
_OF_NVCC = ("__CUDACC__ 1", "__NVCC__ 1", "__cplusplus 201703L")
_FOR_THE_DEVICE = "__CUDA_ARCH__ 900"
# What the grammar doesn't know, and what says nothing of a definition.
_ATTRIBUTES = re.compile(r"\b__(?:cluster_dims|maxnreg|align|block_size)__\s*\((?:[^()]|\([^()]*\))*\)")
_DEVICE = re.compile(r"__(?:global|device|constant|shared)__|\bconstexpr\b|\b[A-Z_]*DEVICE[A-Z_]*\b")
_HOST = re.compile(
    r"\bstd\b|\bcuda[A-Z]\w*|\bcu(?:blas|rand|fft|sparse|solver|dnn)\w+|\bnccl[A-Z]\w+|\bMPI_\w+|\bglob_t\b|\bFILE\b|"
    r"\b(?:torch|at|pybind11)::|\bpthread_\w+|"
    r"\busing\s+namespace\s+(?!(?:nvcuda|cooperative_groups|cub|cuda|cute|cutlass)\b)"
)
_TYPES = {"uint": "unsigned", "ushort": "unsigned short", "ulong": "unsigned long", "ptrdiff_t": "long"}  # of headers
UNCLEAR = "?"  # the expression of a name that is assigned, or has several
_RECORDS = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")


@dataclass(frozen=True)
class Call:
    """A launch as a source writes it: function<template><<<configuration>>>(arguments), or cudaLaunchKernel with the
    variables in its array of addresses. node: of the tree.
    """

    function: str
    template: tuple[str, ...]
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    node: Any


@dataclass(frozen=True)
class Definition:
    """A function's definition. name: with its namespaces. template: names of its parameters. bounds: threads of
    __launch_bounds__, "" if it has none. body: its node between braces. constants: as in Unit, of the body. first: the
    line of the tree where the source begins, behind its headers.
    """

    name: str
    is_kernel: bool
    template: tuple[str, ...]
    bounds: str
    parameters: tuple[Parameter, ...]
    body: Any
    constants: Mapping[str, str]
    calls: tuple[Call, ...]
    first: int

    @property
    def is_own(self) -> bool:
        """Whether it is in the source, and not in a header."""
        return self.line(self.body) > 0

    def line(self, node: Any) -> int:
        """The line of the source where a node of the body begins, from 1."""
        return int(node.start_point[0]) + 1 - self.first


@dataclass(frozen=True)
class Unit:
    """functions: in order. constants: expressions of the integers, dim3 and their members that have one value each, by
    #define or a declaration outside of functions. records: names of structures, classes and unions. defined: names of
    macros, types and functions. host: starts and ends of what is for the host.
    """

    functions: tuple[Definition, ...]
    constants: Mapping[str, str]
    records: frozenset[str]
    defined: frozenset[str]
    host: tuple[tuple[int, int], ...]

    @property
    def kernels(self) -> list[str]:
        """Names of the __global__ functions of the source, in order; where it has none, of its headers."""
        kernels = [function for function in self.functions if function.is_kernel]
        own = [kernel for kernel in kernels if kernel.is_own] or kernels
        return list(dict.fromkeys(kernel.name for kernel in own))

    def definition(self, name: str, *, of_host: bool = False) -> Definition | None:
        """The definition of a kernel, or a host function; its namespaces may be left out. None where it can't be found,
        such as in a macro.
        """
        named = [f for f in self.functions if f.is_kernel != of_host and f"::{f.name}".endswith(f"::{name}")]
        return named[0] if named else None

    def names(self, function: Definition) -> dict[str, str]:
        """The constants with one expression that a function sees: its own, and those outside of functions."""
        return {name: text for name, text in {**self.constants, **function.constants}.items() if text != UNCLEAR}


@lru_cache(maxsize=128)
def read(source: str, define: tuple[str, ...] = (), headers: tuple[str, ...] = ()) -> Unit:
    """The unit. define: macros of the command line, as "NAME=VALUE". headers: texts that it includes."""
    before = "".join(f"{text}\n" for text in headers)
    device = _Reader(before + source, define, len(before), _FOR_THE_DEVICE).unit
    if "__CUDA_ARCH__" not in before + source:
        return device
    host = _Reader(before + source, define, len(before)).unit
    kernels = [function for function in device.functions if function.is_kernel]
    others = [function for function in host.functions if not function.is_kernel]
    functions = sorted((*kernels, *others), key=lambda function: function.body.start_byte)
    constants, records = {**host.constants, **device.constants}, host.records | device.records
    return Unit(tuple(functions), constants, records, host.defined | device.defined, device.host)


def live(source: str, define: Sequence[str] = (), *defined: str) -> str:
    """The source without comments, with spaces in place of the lines that the preprocessor leaves out."""
    text = uncommented(source)
    pieces, marked, conditions = list[str](), list[str](), False
    for match in LINE.finditer(text):  # of other lines, a mark with their number goes through the preprocessor
        word = match["word"] or ""
        directive = re.sub(r"\b__has_include\s*\([^)]*\)", "0", f"{match[0]}\n")
        conditions |= word in _CONDITIONS
        marked += [f"__line_{len(pieces)}__\n"] if word not in _CONDITIONS else []
        marked += [directive] if word in (*_CONDITIONS, "define", "undef") else []
        pieces.append(match[0])
    if not conditions:
        return text
    import pcpp  # type: ignore[import-untyped]  # it makes its tables when it is imported

    class Conditions(pcpp.Preprocessor):  # type: ignore[misc]
        def on_error(self, file: str, line: int, message: str) -> None:
            """A condition that can't be evaluated is false, as one with unknown names."""

    preprocessor, out = Conditions(), io.StringIO()
    preprocessor.line_directive = None
    given = [macro.replace("=", " ", 1) if "=" in macro else f"{macro} 1" for macro in define]
    for macro in (*_OF_NVCC, *defined, *given):
        preprocessor.define(macro)
    preprocessor.parse("".join(marked))
    preprocessor.write(out)
    kept = {int(number) for number in re.findall(r"__line_(\d+)__", out.getvalue())}
    return "".join(piece if number in kept else blank(piece) for number, piece in enumerate(pieces))


class _Reader:
    """Reads the tree of a text. start: of the source in it, behind its headers."""

    def __init__(self, whole: str, define: Sequence[str], start: int, *defined: str) -> None:
        text = live(whole, define, *defined)
        self.start, self.first = start, whole.count("\n", 0, start)
        self.functions: list[Definition] = []
        self.types = dict[str, str]()  # by typedef and using
        self.records = set[str]()
        self.host: list[tuple[int, int]] = []
        self.constants, self.macros = defaultdict[str, set[str]](set), dict[str, str]()
        for name, listed, value in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(.*?\))?((?:\\\n|.)*)", text, re.M):
            self.macros[name] = value.replace("\\\n", " ")
            if value.strip() and not listed:
                self.constants[name].add(" ".join(self.macros[name].split()))
        for macro in define:
            name, _, value = macro.partition("=")
            self.constants[name] = {value or "1"}
        for unread in (DIRECTIVE, _ATTRIBUTES):
            text = unread.sub(lambda match: blank(match[0]), text)
        self._outside(tree_of(text), ())
        known = {*self.macros, *self.types, *self.records, *(function.name for function in self.functions)}
        functions, constants, host = tuple(self.functions), _single(self.constants), tuple(self.host)
        self.unit = Unit(functions, constants, frozenset(self.records), frozenset(known), host)

    def _outside(self, node: Any, scope: tuple[str, ...]) -> None:
        """What a node outside of functions defines."""
        for child in node.named_children:
            inner, template = child, ""
            while inner.type in ("template_declaration", "linkage_specification"):
                template = text_of(inner.child_by_field_name("parameters"))[1:-1]
                inner = inner.named_children[-1]
            if inner.type == "namespace_definition":
                name = text_of(inner.child_by_field_name("name"))
                self._outside(inner.child_by_field_name("body"), (*scope, name) if name else scope)
                continue
            if inner.type in ("declaration_list", "ERROR"):
                self._outside(inner, scope)
                continue
            for record in (inner, *inner.named_children):
                if record.type in _RECORDS and record.child_by_field_name("body") is not None:
                    self.records.add(text_of(record.child_by_field_name("name")))
            if inner.type in ("type_definition", "alias_declaration"):
                kind = inner.child_by_field_name("type")
                name = text_of(inner.child_by_field_name("declarator") or inner.child_by_field_name("name"))
                if kind.type in _RECORDS:
                    self.records.add(name)
                else:
                    self.types[name] = text_of(kind)
            if inner.type == "function_definition":
                self._function(inner, scope, template)
            elif inner.type == "declaration":
                self._declared(inner, self.constants)
            if self._is_for_the_host(child, inner):
                self.host += [(child.start_byte - self.start, child.end_byte - self.start)] * (
                    child.start_byte >= self.start
                )

    def _is_for_the_host(self, whole: Any, inner: Any) -> bool:
        text, body = whole.text.decode(), inner.child_by_field_name("body")
        head = text[: body.start_byte - whole.start_byte] if inner.type == "function_definition" and body else text
        if inner.type in ("function_definition", "declaration"):
            declared = head[inner.start_byte - whole.start_byte :].partition("=")[0]
            if _DEVICE.search(filled(declared, self.macros)):
                return False
            if inner.type == "function_definition" or next(nodes(inner, "function_declarator"), None):
                return True
            constant = any(text_of(child) == "const" for child in inner.named_children)
            pointers = next(nodes(inner, "pointer_declarator", "array_declarator"), None) is not None
            plain = inner.child_by_field_name("type").type not in _RECORDS and not declared.startswith("extern")
            if plain and (not constant or (pointers and "=" in text)):
                return True
        words = " ".join((text, *(self.macros.get(word, "") for word in re.findall(r"\w+", text))))
        return bool(_HOST.search(words)) and "__device__" not in text

    def _function(self, node: Any, scope: tuple[str, ...], template: str) -> None:
        declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        if declarator is None or body is None:
            return
        before = node.text[: declarator.start_byte - node.start_byte].decode()
        bounds = next((child for child in node.named_children if child.type == "launch_bounds"), None)
        listed = [p for p in declarator.child_by_field_name("parameters").named_children if "parameter" in p.type]
        parameters = [self._parameter(p) for p in listed]
        names = (re.findall(r"\w+", part.partition("=")[0])[-1:] for part in parts(template))
        constants = defaultdict[str, set[str]](set)
        calls = list(self._inside(body, constants))
        self.functions.append(
            Definition(
                "::".join((*scope, text_of(declarator.child_by_field_name("declarator")))),
                "__global__" in filled(before, self.macros),
                tuple(word for last in names for word in last),
                text_of(bounds.named_children[0]) if bounds is not None and bounds.named_children else "",
                tuple(p for p in parameters if (p.type, p.name) != ("void", "")),
                body,
                _single(constants),
                tuple(calls),
                self.first,
            )
        )

    def _parameter(self, node: Any) -> Parameter:
        """A parameter, with its type by typedef, using and #define."""
        kind, declarator, depth = text_of(node.child_by_field_name("type")), node.child_by_field_name("declarator"), 0
        arrays = 0
        while declarator is not None and declarator.named_children and declarator.type != "identifier":
            depth += declarator.type in ("pointer_declarator", "abstract_pointer_declarator", "array_declarator")
            arrays += declarator.type == "array_declarator"
            declarator = declarator.child_by_field_name("declarator") or declarator.named_children[-1]
        for _ in range(4):  # names of names
            kind = self.types.get(kind) or _TYPES.get(kind) or min(self.constants.get(kind, {kind}), key=len)
            depth += kind.count("*")
            words = [w for w in kind.replace("*", " ").split() if w not in ("struct", "const", "volatile", "int")]
            kind = " ".join(words or ["int"]).removeprefix("std::")
        element = f"{kind}[]" if arrays > 1 else kind + "*" * (depth - 1)
        is_const = any(text_of(child) == "const" for child in node.named_children)
        return Parameter(text_of(declarator), element, TYPES.get(kind, ""), depth > 0, is_const)

    def _inside(self, body: Any, constants: dict[str, set[str]]) -> Iterator[Call]:
        """The launches in a function's code. What is assigned, or declared twice, is no constant."""
        for node in nodes(body, "declaration", "assignment_expression", "update_expression", "call_expression"):
            if node.type == "declaration":
                self._declared(node, constants)
            elif node.type != "call_expression":
                target = node.child_by_field_name("left") or node.child_by_field_name("argument")
                constants[text_of(target)] |= {UNCLEAR, ""}
            elif (call := self._call(node, constants)) is not None:
                yield call

    def _call(self, node: Any, constants: Mapping[str, set[str]]) -> Call | None:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        passed = tuple(map(text_of, arguments.named_children)) if arguments is not None else ()
        configured = next((child for child in node.named_children if child.type == "kernel_call_syntax"), None)
        if configured is not None:
            configuration = tuple(map(text_of, configured.named_children))
        elif text_of(function) in _LAUNCHES and len(passed) >= 4:
            function, configuration = arguments.named_children[0], (*passed[1:3], *passed[4:5])
            while function.type in ("cast_expression", "pointer_expression", "parenthesized_expression"):
                function = function.named_children[-1]
            if function.type == "call_expression":  # a cast of C++
                function = function.child_by_field_name("arguments").named_children[0]
            addresses = min(constants.get(passed[3], {""}))
            passed = tuple(part.strip("& ") for part in parts(addresses.strip("{ }")))
        else:
            return None
        written = text_of(function)
        pointed = constants.get(written, {written})  # auto kernel = f<32>;
        name, _, template = (min(pointed) if len(pointed) == 1 else written).partition("<")
        listed = tuple(parts(template.rpartition(">")[0])) if template else ()
        return Call(name.strip("& "), listed, configuration, passed, node)

    def _declared(self, node: Any, constants: dict[str, set[str]]) -> None:
        """The names that a declaration gives a value."""
        kind = text_of(node.child_by_field_name("type"))
        if re.search(r"\b(?:float|double|half)", kind):
            return
        for declarator in node.children_by_field_name("declarator"):
            value, name = (declarator.child_by_field_name(field) for field in ("value", "declarator"))
            if declarator.type == "function_declarator" and kind == "dim3":  # dim3 grid(n, m) may look like one
                value = declarator.child_by_field_name("parameters")
            while name is not None and name.type in ("pointer_declarator", "array_declarator"):
                name = name.child_by_field_name("declarator")
            if value is None or name is None or name.type != "identifier":
                continue
            text = text_of(value)
            written = re.fullmatch(r"(?:dim3\s*)?[({](.*)[)}]", text, re.DOTALL)
            if kind != "dim3":
                is_list = value.type == "initializer_list" and declarator.named_children[0].type == "identifier"
                text = written[1] if written and (is_list or value.type == "argument_list") else text
                constants[text_of(name)].add(text)
                continue
            sizes = parts(written[1]) if written else [text]
            constants[text_of(name)].add(f"dim3({', '.join(sizes)})" if written else text)
            for axis, size in zip("xyz", sizes if written else (), strict=False):
                constants[f"{text_of(name)}.{axis}"].add(size)


def _single(values: Mapping[str, set[str]]) -> dict[str, str]:
    """The expression of each name, UNCLEAR where there are several."""
    return {name: min(texts) if len(texts) == 1 else UNCLEAR for name, texts in values.items()}
