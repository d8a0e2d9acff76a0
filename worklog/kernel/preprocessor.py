"""C++'s preprocessor, by pcpp: a source as the compiler's parser gets it, with the places that it comes from."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What the grammar of CUDA doesn't know, and what says nothing of a definition, is nothing.
_BUILT_IN = (
    "__CUDACC__ 1", "__NVCC__ 1", "__CUDA_ARCH__ 900", "__cplusplus 201703L", "__linux__ 1", "__unix__ 1",
    "__grid_constant__ ", "__maxnreg__(n) ", "__cluster_dims__(...) ", "__block_size__(...) ", "__align__(n) ",
    "__DRIVER_TYPES_H__ 1", "__CUDA_RUNTIME_H__ 1",
)  # fmt: skip
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(\s*(global|device|host|shared|constant)\s*\)\)")


@dataclass(frozen=True)
class Code:
    """The text of a source behind the preprocessor. starts, places: of its tokens, there and in the source; the place
    of what a macro expands to is the macro's. macros: names, with what each stands for at the end; "" for one
    with parameters.
    """

    text: str
    starts: Sequence[int]
    places: Sequence[int]
    macros: Mapping[str, str]

    def place(self, at: int) -> int:
        """The place in the source of the first token from here on."""
        return self.places[bisect_left(self.starts, at)]


def preprocessed(source: str, define: Sequence[str]) -> Code:
    """The source without comments and directives, with macros expanded. define: further macros, as "NAME=VALUE"."""
    import pcpp  # type: ignore[import-untyped]  # it makes its tables when it is imported

    class Preprocessor(pcpp.Preprocessor):  # type: ignore[misc]
        def on_error(self, *error: object) -> None:
            """A condition that can't be evaluated is false, as one with unknown names."""

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
    for macro in (
        *_BUILT_IN,
        *(macro.replace("=", " ", 1) if "=" in macro else f"{macro} 1" for macro in define),
    ):
        preprocessor.define(macro)
    text = list[str]()
    starts = list[int]()
    places = list[int]()
    length = 0
    lacking = re.sub(r"\b__has_include\s*\([^)]*\)", lambda match: "0".ljust(len(match[0])), source)
    lacking = _ATTRIBUTE.sub(lambda match: f"__{match[1]}__".ljust(len(match[0])), lacking)
    for token in preprocessor.parsegen(lacking.replace("\r", " ") + "\n"):
        starts.append(length)
        places.append(token.lineno)
        text.append(str(token.value))
        length += len(text[-1])
    macros = dict[str, str]()
    for name, macro in preprocessor.macros.items():
        value = "".join(str(token.value) for token in macro.value).strip()
        macros[name] = value if macro.arglist is None and not name.startswith("__") else ""
    return Code("".join(text), (*starts, length), (*places, len(source)), macros)
