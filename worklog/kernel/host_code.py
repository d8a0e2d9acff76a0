"""The launches of a host function, read from its source where they can be: so that CUDA source with an extern "C"
function that launches several kernels runs without nvcc, and on the emulator.

What is read: declarations of integers and dim3, launches `kernel<<<grid, block, shared>>>(arguments);`, and calls that
only wait. Expressions are evaluated, never executed; every other statement is an error that names its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.signature import CEILING, constants
from worklog.kernel.source import Definition, closing, definition, evaluate, parts

_INTEGER = re.compile(
    r"(?:(?:const|constexpr|static|unsigned|signed|long|short)\s+)*"
    r"(?:int|size_t|auto|uint|u?int\d+_t|long|unsigned|const)\s+(\w+\s*=.+)",
    re.DOTALL,
)
_DIM3 = re.compile(r"(?:const\s+)?dim3\s+(.+)", re.DOTALL)
_LAUNCH = re.compile(r"(\w+\s*(?:<[^<>;]*>)?)\s*<\s*<\s*<(.*?)>\s*>\s*>\s*\((.*)\)", re.DOTALL)
_WAITS = re.compile(r"(?:\w+\s*=\s*)?cuda(?:DeviceSynchronize|GetLastError|PeekAtLastError)\s*\(\s*\)|return")
_CAST = re.compile(
    r"\(\s*(?:const\s+)?(?:unsigned\s+|long\s+|signed\s+)*(?:int|size_t|long|unsigned|float|double|char|\w+_t|float[24]|"
    r"int[24]|__half2?|half2?)(?:\s+const)?\s*\**\s*\)\s*(?=[\w(])"
)
_NAMED_CAST = re.compile(r"\b(?:static_cast|reinterpret_cast|const_cast)\s*<[^<>]*>\s*(?=\()")
_SIZES = {"float": 4, "int": 4, "unsigned": 4, "unsigned int": 4, "double": 8, "size_t": 8, "half": 2, "__half": 2}
_FLOAT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eEfF]))(?:[eE][+-]?\d+)?[fF]?")
DEPTH = 16  # of constants that name others
ADVICE = "without nvcc, declare integers and dim3, and launch kernels: kernel<<<grid, block>>>(…)"


@dataclass(frozen=True)
class Launched:
    """One launch of a host function. entry: the kernel, with its template arguments. grid, block: along x, y and z.
    arguments: numbers, or names of the function's parameters. line: in the source.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Any, ...]
    line: int


def host_definition(source: str, function: str, file: str) -> Definition:
    """The host function's definition. Raises BadSetting where there is none."""
    found = definition(source, function, of_host=True)
    if found is None:
        raise BadSetting(f'{file} has no host function {function}: write extern "C" void {function}(…)')
    return found


def launches(source: str, function: str, values: Mapping[str, Any], file: str) -> list[Launched]:
    """The launches of a host function in their order. values: of its parameters, None for a pointer. Raises BadSetting,
    with the line, for a statement that isn't read.
    """
    found = host_definition(source, function, file)
    names = _Names(source, values)
    result = []
    for text, start in _statements(found):
        line = source[: found.start + start].count("\n") + 1
        try:
            if (launch := _statement(text, names, line)) is not None:
                result.append(launch)
        except BadSetting as error:
            shown = " ".join(text.split())
            raise BadSetting(f"{file}:{line}: cannot read {shown:.70}: {error}; {ADVICE}") from error
    if not result:
        raise BadSetting(f"{file}: {function} launches no kernel: {ADVICE}")
    return result


def _statements(found: Definition) -> Iterator[tuple[str, int]]:
    """Each statement of a body, and its place in it."""
    body, spans, start, place = found.body, [], 1, 1
    inside = len(body) - 1
    while place < inside:
        if body[place] in "({[":
            place = closing(body, place)
            if body[place - 1] == "}" and "=" not in body[start:place] and "dim3" not in body[start:place]:
                spans.append((start, place))
                start = place
            continue
        place += 1
        if body[place - 1] == ";":
            spans.append((start, place - 1))
            start = place
    for first, end in (*spans, (start, inside)):
        text = body[first:end]
        if text.strip():
            yield text.strip(), first + len(text) - len(text.lstrip())


def _statement(text: str, names: _Names, line: int) -> Launched | None:
    """Take a declaration, or read a launch."""
    if _WAITS.fullmatch(text):
        return None
    if found := _LAUNCH.fullmatch(text):
        configuration = parts(found[2])
        if not 2 <= len(configuration) <= 4:
            raise BadSetting("a launch has a grid and a block")
        grid, block = map(names.dimensions, configuration[:2])
        shared = names.number(configuration[2]) if len(configuration) > 2 else 0
        arguments = tuple(map(names.argument, parts(found[3]))) if found[3].strip() else ()
        return Launched(names.entry(found[1]), grid, block, shared, arguments, line)
    if found := _DIM3.fullmatch(text):
        for one in parts(found[1]):
            declared = re.fullmatch(r"(\w+)\s*(?:=\s*(?:dim3)?\s*)?[({](.*)[)}]|(\w+)\s*=\s*(.+)", one, re.DOTALL)
            if declared is None:
                raise BadSetting("a dim3 has one to three sizes")
            sizes = declared[2] or declared[4]
            written = sizes if sizes.strip() in names.triples else f"dim3({sizes})"
            names.triples[declared[1] or declared[3]] = names.dimensions(written)
        return None
    if found := _INTEGER.fullmatch(text):
        for one in parts(found[1]):
            name, equals, value = one.partition("=")
            if not (equals and name.strip().isidentifier()):
                raise BadSetting("an integer needs a value")
            names.integers[name.strip()] = names.number(value)
        return None
    raise BadSetting("it is none of the statements that are read")


class _Names:
    """What names stand for in a host function: its parameters, its declarations, and the file's constants."""

    def __init__(self, source: str, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self.integers = {name: value for name, value in values.items() if type(value) is int}
        self.triples: dict[str, tuple[int, int, int]] = {}
        self.constants = constants(source)

    def number(self, text: str, depth: int = DEPTH) -> int:
        """The value of an integer expression. Raises BadSetting."""
        plain = self._plain(text)
        known = {}
        for name in set(re.findall(r"[A-Za-z_]\w*", plain)):
            if name in self.integers:
                known[name] = self.integers[name]
            elif name in self.constants and depth and name not in self.values:
                known[name] = self.number(self.constants[name], depth - 1)
        return evaluate(plain, known)

    def _plain(self, text: str) -> str:
        """The expression without C++'s casts, suffixes, sizeof and members of dim3."""
        text = _NAMED_CAST.sub("", _CAST.sub("", text)).replace("std::", "")
        text = re.sub(r"\bsizeof\s*\(\s*([\w\s]+?)\s*\)", lambda found: str(_SIZES.get(found[1], found[0])), text)
        text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text)
        text = CEILING.sub(r"((\1 + \2 - 1) / \2)", text)

        def member(found: re.Match[str]) -> str:
            return str(self.triples[found[1]]["xyz".index(found[2])]) if found[1] in self.triples else found[0]

        return re.sub(r"\b(\w+)\s*\.\s*([xyz])\b", member, text).strip()

    def dimensions(self, text: str) -> tuple[int, int, int]:
        """A grid or a block: a dim3 by name or written out, or a number. Raises BadSetting."""
        text = text.strip()
        if text in self.triples:
            return self.triples[text]
        written = re.fullmatch(r"(?:dim3\s*)?[({](.*)[)}]", text, re.DOTALL) if text.startswith(("dim3", "{")) else None
        sizes = [self.number(one) for one in (parts(written[1]) if written else [text])]
        if len(sizes) > 3 or min(sizes) < 1:
            raise BadSetting(f"{text} is {sizes}: a grid and a block have one to three sizes of at least 1")
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z

    def entry(self, text: str) -> str:
        """A kernel with numbers and types for its template arguments."""
        name, bracket, rest = "".join(text.split()).partition("<")
        if not bracket:
            return name
        arguments = [
            one if one in ("float", "double", "int", "true", "false", "half", "__half") else str(self.number(one))
            for one in parts(rest.removesuffix(">"))
        ]
        return f"{name}<{', '.join(arguments)}>"

    def argument(self, text: str) -> Any:
        """A number, or the name of a parameter. Raises BadSetting."""
        plain = self._plain(text)
        bare = plain[1:-1].strip() if re.fullmatch(r"\(\s*\w+\s*\)", plain) else plain
        if bare in self.values and bare not in self.triples and type(self.values[bare]) is not int:
            return bare
        if _FLOAT.fullmatch(bare):
            return float(bare.rstrip("fF"))
        return self.number(plain)
