"""A CUDA source as the compiler reads it: the lines that its preprocessor keeps; functions, constants and launches.

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

import tree_sitter
import tree_sitter_cuda

from worklog.kernel.source import blank, code, parts, uncommented
from worklog.problem import TYPES, Parameter

_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:\\\n|[^\n])*", re.MULTILINE)
_CONDITIONS = ("if", "ifdef", "ifndef", "elif", "else", "endif")
_OF_NVCC = ("__CUDACC__ 1", "__NVCC__ 1", "__cplusplus 201703L")
_FOR_THE_DEVICE = "__CUDA_ARCH__ 900"
# What the grammar doesn't know, and what says nothing of a definition.
_ATTRIBUTES = re.compile(
    r"\b(?:__cluster_dims__|__maxnreg__|__align__|__block_size__)\s*\((?:[^()]|\([^()]*\))*\)|"
    r"\b(?:__grid_constant__|__forceinline__|__noinline__|__restrict__|__restrict)\b"
)
UNCLEAR = "?"  # the expression of a name that is assigned, or has several
_RECORDS = ("struct_specifier", "class_specifier", "union_specifier")
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")


@dataclass(frozen=True)
class Call:
    """A launch as a source writes it: function<template><<<configuration>>>(arguments), or cudaLaunchKernel with the
    variables in its array of addresses. place: in the source.
    """

    function: str
    template: tuple[str, ...]
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    place: int


@dataclass(frozen=True)
class Statement:
    """Of a function's body. call: the launch that it is. declares: whether it only declares names."""

    text: str
    place: int
    declares: bool
    call: Call | None


@dataclass(frozen=True)
class Definition:
    """A function's definition. name: with its namespaces. template: names of its parameters. bounds: threads of
    __launch_bounds__, "" if it has none. body: its code between braces, without comments and literals. start: the
    body's place. constants: as in Unit, of the body.
    """

    name: str
    is_kernel: bool
    template: tuple[str, ...]
    bounds: str
    parameters: tuple[Parameter, ...]
    body: str
    start: int
    statements: tuple[Statement, ...]
    constants: Mapping[str, str]


@dataclass(frozen=True)
class Unit:
    """calls: in order. constants: expressions of the integers, dim3 and their members that have one value each, by
    #define or a declaration outside of functions. records: names of structures, classes and unions.
    """

    functions: tuple[Definition, ...]
    calls: tuple[Call, ...]
    constants: Mapping[str, str]
    records: frozenset[str]

    @property
    def kernels(self) -> list[str]:
        """Names of the __global__ functions, in order."""
        return list(dict.fromkeys(function.name for function in self.functions if function.is_kernel))

    def definition(self, name: str, *, of_host: bool = False) -> Definition | None:
        """The definition of a kernel, or a host function; its namespaces may be left out. None where it can't be found,
        such as in a macro.
        """
        named = [f for f in self.functions if f.is_kernel != of_host and f"::{f.name}".endswith(f"::{name}")]
        return named[0] if named else None

    def around(self, call: Call) -> Mapping[str, str]:
        """The constants that a launch sees: those of its function, and those outside of functions."""
        own = [f.constants for f in self.functions if f.start <= call.place < f.start + len(f.body)]
        return known({**self.constants, **(own[0] if own else {})})


def known(constants: Mapping[str, str]) -> dict[str, str]:
    """Those with one expression."""
    return {name: text for name, text in constants.items() if text != UNCLEAR}


@lru_cache(maxsize=128)
def read(source: str, define: tuple[str, ...] = ()) -> Unit:
    """The unit. define: macros of the command line, as "NAME=VALUE"."""
    device = _parsed(source, define, _FOR_THE_DEVICE)
    host = _parsed(source, define) if "__CUDA_ARCH__" in source else device
    kernels = [function for function in device.functions if function.is_kernel]
    others = [function for function in host.functions if not function.is_kernel]
    functions = sorted((*kernels, *others), key=lambda function: function.start)
    constants = {**host.constants, **device.constants}
    return Unit(tuple(functions), host.calls, constants, host.records | device.records)


def live(source: str, define: Sequence[str] = (), *defined: str) -> str:
    """The source without comments, with spaces in place of the lines that the preprocessor leaves out."""
    text = uncommented(source)
    directives = [(match.start(), match.end(), match[1]) for match in _DIRECTIVE.finditer(text)]
    if not any(word in _CONDITIONS for _, _, word in directives):
        return text
    # Of other lines, a mark with their number goes through the preprocessor.
    pieces, marked, end = list[str](), list[str](), 0
    for start, stop, word in (*directives, (len(text), len(text), "")):
        for line in text[end:start].splitlines(keepends=True):
            marked.append(f"__line_{len(pieces)}__\n")
            pieces.append(line)
        if word in (*_CONDITIONS, "define", "undef"):
            directive = re.sub(r"\b__has_include\s*\([^)]*\)", "0", text[start:stop])
            marked.append(f"{directive}\n" if word in _CONDITIONS else f"__line_{len(pieces)}__\n{directive}\n")
        pieces.append(blank(text[start:stop]) if word in _CONDITIONS else text[start:stop])
        end = stop
    import pcpp  # type: ignore[import-untyped]  # it makes its tables when it is imported

    class Conditions(pcpp.Preprocessor):  # type: ignore[misc]
        def on_error(self, file: str, line: int, message: str) -> None:
            """A condition that can't be evaluated is false, as one with unknown names."""

    conditions, out = Conditions(), io.StringIO()
    conditions.line_directive = None
    for macro in (
        *_OF_NVCC,
        *defined,
        *(macro.replace("=", " ", 1) if "=" in macro else f"{macro} 1" for macro in define),
    ):
        conditions.define(macro)
    conditions.parse("".join(marked))
    conditions.write(out)
    kept = {int(number) for number in re.findall(r"__line_(\d+)__", out.getvalue())}
    asked = {int(number) for line in marked for number in re.findall(r"__line_(\d+)__", line)}
    return "".join(blank(piece) if number in asked - kept else piece for number, piece in enumerate(pieces))


def _parsed(source: str, define: Sequence[str], *defined: str) -> Unit:
    text = live(source, define, *defined)
    constants = _Constants()
    for match in _DIRECTIVE.finditer(text):
        if defines := re.fullmatch(r"\s*#\s*define[ \t]+(\w+)[ \t]+(.+)", code(match[0]), re.DOTALL):
            constants.add(defines[1], defines[2].replace("\\\n", " "))
    for macro in define:
        name, _, value = macro.partition("=")
        constants.values[name] = {value or "1"}
    text = _DIRECTIVE.sub(lambda match: blank(match[0]), text)
    text = _ATTRIBUTES.sub(lambda match: blank(match[0]), text)
    text = re.sub(r"[^\x00-\x7f]", "?", text)  # so that places in bytes are places in the text
    return _Reader(text).unit(_PARSER.parse(text.encode()).root_node, constants)


class _Constants:
    """Names with the expressions that they are given."""

    def __init__(self) -> None:
        self.values: dict[str, set[str]] = defaultdict(set)

    def add(self, name: str, expression: str) -> None:
        self.values[name].add(" ".join(expression.split()))

    def single(self) -> dict[str, str]:
        """The expression of each, UNCLEAR where there are several."""
        return {name: min(values) if len(values) == 1 else UNCLEAR for name, values in self.values.items()}


class _Reader:
    """Reads the tree of a text."""

    def __init__(self, text: str) -> None:
        self.text, self.bare = text, code(text)
        self.functions: list[Definition] = []
        self.calls: list[Call] = []
        self.types: dict[str, str] = {}  # of typedef and using
        self.records: set[str] = set()

    def unit(self, root: Any, constants: _Constants) -> Unit:
        self._walk(root, (), (), constants)
        return Unit(tuple(self.functions), tuple(self.calls), constants.single(), frozenset(self.records))

    def of(self, node: Any) -> str:
        """The text of a node."""
        return self.bare[node.start_byte : node.end_byte] if node is not None else ""

    def _walk(self, node: Any, scope: tuple[str, ...], template: tuple[str, ...], constants: _Constants) -> None:
        """Of a node outside of functions: its definitions and constants."""
        for child in node.children:
            name = child.child_by_field_name("name")
            if child.type in _RECORDS and name is not None and child.child_by_field_name("body") is not None:
                self.records.add(self.of(name))
            if child.type in ("type_definition", "alias_declaration"):
                self._alias(child)
            if child.type == "function_definition":
                self._function(child, scope, template)
            elif child.type == "template_declaration":
                listed = child.child_by_field_name("parameters")
                self._walk(child, scope, tuple(_names(self.of(listed)[1:-1])), constants)
            elif child.type in ("namespace_definition", "struct_specifier", "class_specifier") and name is not None:
                self._walk(child, (*scope, self.of(name)), (), constants)
            elif child.type == "declaration":
                self._declared(child, constants)
            elif child.type not in ("parameter_list", "compound_statement"):
                self._walk(child, scope, (), constants)

    def _alias(self, node: Any) -> None:
        """typedef and using."""
        kind = node.child_by_field_name("type")
        name = self.of(node.child_by_field_name("declarator") or node.child_by_field_name("name"))
        if kind is not None and kind.type in _RECORDS:
            self.records.add(name)
        else:
            self.types[name] = self.of(kind)

    def _function(self, node: Any, scope: tuple[str, ...], template: tuple[str, ...]) -> None:
        declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        if declarator is None or body is None or body.type != "compound_statement":
            return
        before = self.bare[node.start_byte : declarator.start_byte]
        bounds = next((child for child in node.children if child.type == "launch_bounds"), None)
        listed = [p for p in declarator.child_by_field_name("parameters").named_children if p.type != "comment"]
        parameters = [_parameter(self.of(p), self.types) for p in listed]
        constants, statements = _Constants(), []
        for child in body.named_children:
            calls = list(self._inside(child, constants))
            self.calls += calls
            whole = len(calls) == 1 and calls[0].place == child.start_byte
            declares = child.type == "declaration"
            statements.append(Statement(self.of(child), child.start_byte, declares, calls[0] if whole else None))
        name = self.of(declarator.child_by_field_name("declarator"))
        self.functions.append(
            Definition(
                "::".join((*scope, name)),
                "__global__" in before,
                template,
                self.of(bounds.named_children[0]) if bounds is not None and bounds.named_children else "",
                tuple(p for p in parameters if (p.type, p.name) != ("", "void")),
                self.of(body),
                body.start_byte,
                tuple(statements),
                constants.single(),
            )
        )

    def _inside(self, node: Any, constants: _Constants) -> Iterator[Call]:
        """The launches in a function's code. What is assigned, or declared twice, is no constant."""
        if node.type == "declaration":
            self._declared(node, constants)
        elif node.type in ("assignment_expression", "update_expression"):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            constants.values[self.of(target)] |= {UNCLEAR, ""}
        elif node.type == "call_expression" and (call := self._call(node)) is not None:
            yield call
        for child in node.children:
            yield from self._inside(child, constants)

    def _call(self, node: Any) -> Call | None:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        configured = next((child for child in node.children if child.type == "kernel_call_syntax"), None)
        passed = tuple(map(self.of, arguments.named_children)) if arguments is not None else ()
        if configured is not None:
            configuration = tuple(map(self.of, configured.named_children))
            return Call(*self._name(function), configuration, passed, node.start_byte)
        if self.of(function) in _LAUNCHES and len(passed) >= 4:
            kernel = re.sub(r"^\(.*?\)\s*|^&|^reinterpret_cast<.*?>", "", passed[0]).strip("() &")
            name, _, template = kernel.partition("<")
            listed = tuple(parts(template.rpartition(">")[0])) if template else ()
            addresses = re.findall(
                rf"\b{re.escape(passed[3])}\s*\[\s*\]\s*=\s*\{{(.*?)\}}", self.bare[: node.start_byte]
            )
            values = tuple(part.strip("& ") for part in parts(addresses[-1])) if addresses else ()
            return Call(name, listed, (*passed[1:3], *passed[4:5]), values, node.start_byte)
        return None

    def _name(self, function: Any) -> tuple[str, tuple[str, ...]]:
        """A function's name, and the arguments of its template."""
        name, _, template = " ".join(self.of(function).split()).partition("<")
        return name.strip(), tuple(parts(template.rpartition(">")[0])) if template else ()

    def _declared(self, node: Any, constants: _Constants) -> None:
        """The names that a declaration gives a value."""
        kind = self.of(node.child_by_field_name("type"))
        if re.search(r"\b(?:float|double|half)", kind):
            return
        for declarator in node.children_by_field_name("declarator"):
            value = declarator.child_by_field_name("value")
            name = self.of(declarator.child_by_field_name("declarator"))
            if declarator.type == "function_declarator" and kind == "dim3":  # dim3 grid(n, m) may look like one
                name, value = name, declarator.child_by_field_name("parameters")
            if value is None or not re.fullmatch(r"\w+", name):
                continue
            text = self.of(value).strip()
            if kind == "dim3":
                written = re.fullmatch(r"(?:dim3\s*)?[({](.*)[)}]", text, re.DOTALL)
                sizes = parts(written[1]) if written else [text]
                constants.add(name, f"dim3({', '.join(sizes)})" if written else text)
                for axis, size in zip("xyz", sizes if written else (), strict=False):
                    constants.add(f"{name}.{axis}", size)
            else:
                constants.add(name, re.sub(r"^[({](.*)[)}]$", r"\1", text, flags=re.DOTALL))


def _names(template: str) -> list[str]:
    """Names of a template's parameters."""
    words = [re.findall(r"\w+", part.partition("=")[0])[-1:] for part in parts(template)]
    return [word for last in words for word in last]


def _parameter(text: str, types: Mapping[str, str]) -> Parameter:
    declared = text.partition("=")[0]
    words = re.findall(r"\w+", declared.partition("[")[0])
    kept = [word for word in words[:-1] if word not in ("const", "volatile", "__restrict__", "restrict", "__restrict")]
    kind = " ".join(kept).removeprefix("struct ")
    kind = types.get(kind, kind)
    name = words[-1] if words else ""
    stars, sizes = declared.count("*"), declared.count("[")
    element = f"{kind}[]" if sizes > 1 else kind + "*" * (stars + sizes - 1)
    return Parameter(name, element, TYPES.get(kind, ""), stars + sizes > 0, "const" in words)
