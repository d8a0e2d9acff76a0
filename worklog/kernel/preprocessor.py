"""C++'s preprocessor, by pcpp: a source as the compiler's parser gets it.

Each token has its place in the source.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worklog.kernel.source import uncommented

# Qualifiers that the grammar of CUDA doesn't know are removed: they don't change a definition.
_BUILT_IN = (
    "__CUDACC__ 1",
    "__NVCC__ 1",
    "__CUDA_ARCH__ 900",
    "__cplusplus 201703L",
    "__linux__ 1",
    "__unix__ 1",
    "__grid_constant__ ",
    "__maxnreg__(n) ",
    "__cluster_dims__(...) ",
    "__block_size__(...) ",
    "__align__(n) ",
    "__DRIVER_TYPES_H__ 1",
    "__CUDA_RUNTIME_H__ 1",
)
_LINE_DIRECTIVE = re.compile(r'^[ \t]*#[ \t]*(?:line\b|\d+[ \t]+")[^\n]*', re.MULTILINE)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(ifdef|ifndef|if|elif|elifdef|elifndef|else|endif)\b")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(\s*(global|device|host|shared|constant)\s*\)\)")


@dataclass(frozen=True)
class PreprocessedSource:
    """The text of a source after the preprocessor."""

    text: str
    starts: Sequence[int]  # of the tokens in the text
    places: Sequence[int]  # of the tokens in the source; for what a macro expands to, the macro's
    macros: Mapping[
        str, str
    ]  # what each name stands for at the end; "" for a macro with parameters

    def place(self, start: int) -> int:
        """Return the source's place of the first token at `start` or after it."""
        return self.places[bisect_left(self.starts, start)]


def preprocessed(source: str, define: Sequence[str]) -> PreprocessedSource:
    """Return the source without comments and directives, with macros expanded.

    define: further macros, as "NAME=VALUE"
    """
    import pcpp  # type: ignore[import-untyped]  # it makes its tables when it is imported

    class Preprocessor(pcpp.Preprocessor):  # type: ignore[misc]
        def on_error(self, *error: object) -> None:
            """Ignore it: a condition that can't be evaluated is false.

            So is a condition with unknown names.
            """

        def on_directive_unknown(self, *directive: object) -> bool:
            return True  # and left out

        def include(self, *header: object) -> list[Any]:
            return []

        def group_lines(self, text: str, file: str) -> Iterator[list[Any]]:
            lexer = self.lexer.clone()
            line = []
            lexer.input(text)
            while token := lexer.token():
                # what a macro expands to gets the line of the macro
                token.source = file
                token.lineno = token.lexpos
                line.append(token)
                if token.value == "\n":
                    yield line
                    line = []

    preprocessor = Preprocessor()
    for macro in _BUILT_IN:
        preprocessor.define(macro)
    for macro in define:
        preprocessor.define(macro.replace("=", " ", 1) if "=" in macro else f"{macro} 1")
    text = list[str]()
    starts = list[int]()
    places = list[int]()
    length = 0
    for token in preprocessor.parsegen(_simplified(source) + "\n"):
        starts.append(length)
        places.append(token.lineno)
        text.append(str(token.value))
        length += len(text[-1])
    macros = dict[str, str]()
    for name, macro in preprocessor.macros.items():
        macros[name] = ""
        if macro.arglist is None and not name.startswith("__"):
            macros[name] = "".join(str(token.value) for token in macro.value).strip()
    return PreprocessedSource("".join(text), (*starts, length), (*places, len(source)), macros)


def without_line_directives(source: str) -> str:
    """Return a source without #line, so that each line keeps its number in the file."""
    return _LINE_DIRECTIVE.sub(lambda match: " " * len(match[0]), source)


def left_out(source: str, define: Sequence[str]) -> list[range]:
    """Return the lines with code that #if leaves out, from 1 on.

    define: macros, as for preprocessed()
    """
    kept_lines = set[int]()
    breaks = [match.end() for match in re.finditer("\n", source)]
    code = preprocessed(source, define)
    for start, stop, place in zip(code.starts, code.starts[1:], code.places, strict=False):
        if code.text[start:stop].strip():
            kept_lines.add(bisect_right(breaks, place) + 1)
    groups = list[range]()
    for lines in _groups(source):
        if lines and kept_lines.isdisjoint(lines):
            if groups and groups[-1].stop == lines[0]:
                groups[-1] = range(groups[-1].start, lines[-1] + 1)
            else:
                groups.append(range(lines[0], lines[-1] + 1))
    return groups


def _groups(source: str) -> Iterator[list[int]]:
    """Yield the lines with code between two directives of conditions."""
    lines = list[int]()
    depth = 0
    is_continued = False
    for number, line in enumerate(uncommented(source).splitlines(), 1):
        is_directive = is_continued or line.lstrip().startswith("#")
        is_continued = is_directive and line.rstrip().endswith("\\")
        condition = _CONDITION.match(line)
        if condition:
            yield lines
            lines = []
            if condition[1].startswith("if"):
                depth += 1
            elif condition[1] == "endif":
                depth -= 1
        elif depth and line.strip() and not is_directive:
            lines.append(number)
    yield lines


def _simplified(source: str) -> str:
    """Return a source in the dialect that pcpp and the grammar know, with the same places.

    __has_include is 0, and attributes such as __attribute__((global)) are __global__.
    """
    text = re.sub(r"\b__has_include\s*\([^)]*\)", lambda match: "0".ljust(len(match[0])), source)
    text = _ATTRIBUTE.sub(lambda match: f"__{match[1]}__".ljust(len(match[0])), text)
    return without_line_directives(text.replace("\r", " "))
