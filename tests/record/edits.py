"""Mutants of a CUDA source: copies with one edit each, as a mistake in typing or in thought would make it.

Comments, template heads, static_asserts, launch bounds and the heads of functions stay as they are. Casts to 64 bits
do, too: they matter beyond 2^31 elements only, which no check of a small shape can see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from worklog.kernel.source import closing, code

KEPT = (
    r"^[ \t]*#[^\n]*",
    r"\btemplate\s*<[^{;()]*>",
    r"\b__(?:global|device)__[^{;=]*(?=[{;=])",
    r"\b(?:static_assert|__launch_bounds__|__align__)\s*\([^;{]*?\)(?=[;\s])",
    r"^.*\"\+f\"\(.*\"\+f\"\(.*$",  # operands of a tensor instruction
    r"\(size_t\)|\(long long\)",
)
OPERATORS = {
    **{"+": ("-",), "-": ("+",), "*": ("+", "/"), "/": ("*", "%"), "%": ("/",), "<<": (">>",), ">>": ("<<",)},
    **{"&": ("|",), "|": ("&",), "^": ("|",), "+=": ("=", "-="), "-=": ("+=",), "*=": ("=",), "/=": ("*=",)},
    **{"max": ("min",), "min": ("max",), "fmaxf": ("fminf",), "atomicAdd": ("atomicMax",), "atomicMax": ("atomicMin",)},
}
BOUNDS = {
    **{"<": ("<=", ">"), "<=": ("<",), ">": (">=", "<"), ">=": (">",), "==": ("!=",), "!=": ("==",)},
    **{"&&": ("||",), "||": ("&&",)},
}
NAMES = {
    **{"M": ("N", "K"), "N": ("M", "K"), "K": ("N", "M"), "A": ("B",), "B": ("A",), "row": ("col",), "col": ("row",)},
    **{"BM": ("BN", "BK"), "BN": ("BM", "BK"), "BK": ("BM",), "TM": ("TN",), "TN": ("TM",), "WM": ("WN",)},
    **{"WN": ("WM",), "threadIdx.x": ("threadIdx.y", "blockIdx.x"), "blockIdx.x": ("blockIdx.y",)},
    **{"blockIdx.y": ("blockIdx.x",), "hi": ("lo",), "lo": ("hi",), "full": ("empty",), "empty": ("full",)},
    **{"lane": ("warp",), "warp": ("lane",), "i": ("j",), "j": ("i",)},
}
SCALARS = {"alpha": ("1.0f", "-alpha", "beta"), "beta": ("1.0f", "0.0f", "alpha")}
WAITS = re.compile(
    r"__sync|__threadfence|wait|arrive|commit|fence|expect|init|hand_over|bar\.|setmaxnreg|atomic",
    re.IGNORECASE,
)
CALL = re.compile(r"(?<=[;{})\n])\s*(?P<call>(?:asm volatile|(?!if|for|while|switch|return)[A-Za-z_]\w*(?:<\d+>)?)\()")
ASSIGNMENT = re.compile(
    r"^\s*(?!(?:const|int|float|unsigned|auto|bool|constexpr|extern|return|size_t|char|struct|for|if|while|else|else"
    r"|Line|long|float2|float4|asm|__shared__)\b)(?P<it>\*?[\w(][^;{}=]*? [-+*/^|&]?= [^;{}]*;)",
    re.MULTILINE,
)
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')


@dataclass(frozen=True)
class Edit:
    """A text in place of another one. start: its place in the source. line, column: the same, from 1."""

    kind: str
    start: int
    line: int
    column: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The mutant, with as many lines as the source."""
        lost = "\n" * (self.old.count("\n") - self.new.count("\n"))
        return source[: self.start] + self.new + lost + source[self.start + len(self.old) :]

    def __str__(self) -> str:
        old, new = (re.sub(r"\s+", " ", text) for text in (self.old, self.new))
        return f"{self.line}:{self.column}: {old} → {new or 'nothing'}"


def edits(source: str) -> list[Edit]:
    """Every edit, in the order of the kinds."""
    bare = code(source)
    for pattern in KEPT:
        bare = re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found[0]), bare, flags=re.MULTILINE)
    found = (
        *_table("operator", r"(?<= )(?:[-+*/%&|^]|[-+*/]=|<<|>>)(?= )|\b(?:f?max|f?min)f?(?=\()", OPERATORS, bare),
        *_table("operator", r"\batomic(?:Add|Max)(?=\()", OPERATORS, bare),
        *_table("bound", r"(?<= )(?:[<>]=?|[=!]=|&&|\|\|)(?= )", BOUNDS, bare),
        *_constants(bare, source),
        *_indices(bare),
        *_table("name", r"\b(?:threadIdx\.x|blockIdx\.[xy]|[A-Za-z_]+)\b", NAMES, bare),
        *_table("alpha, beta", r"\b(?:alpha|beta)\b", SCALARS, bare),
        *(("guard", one.start(1), bare[one.start(1) : closing(bare, one.start(1))], "(true)") for one in IF(bare)),
        *_removed(bare, source),
    )
    return [
        Edit(kind, start, source.count("\n", 0, start) + 1, start - source.rfind("\n", 0, start), old, new)
        for kind, start, old, new in found
    ]


IF = re.compile(r"\bif (\()").finditer
Found = tuple[str, int, str, str]


def _table(kind: str, pattern: str, words: Mapping[str, Sequence[str]], bare: str) -> Iterator[Found]:
    for one in re.finditer(pattern, bare):
        for new in words.get(one[0], ()):
            yield kind, one.start(), one[0], new


def _constants(bare: str, source: str) -> Iterator[Found]:
    """Numbers one larger and one smaller, in the code and in inline assembly."""
    for one in re.finditer(r"(?<![\w.])(\d+)(\.\d+)?(f?)(?![\w.])", bare):
        for step in (1, -1)[: 1 + (one[1] != "0")]:
            yield "constant", one.start(), one[0], f"{int(one[1]) + step}{one[2] or ''}{one[3]}"
    for literal in LITERAL.finditer(re.sub(r"//[^\n]*", lambda found: " " * len(found[0]), source)):
        for one in re.finditer(r"(?<=[ ,])\d+(?=[;,])", literal[0]):
            for step in (1, -1)[: 1 + (one[0] != "0")]:
                yield "constant", literal.start() + one.start(), one[0], str(int(one[0]) + step)


def _indices(bare: str) -> Iterator[Found]:
    for one in re.finditer(r"\[([^\[\]]+)\]\[([^\[\]]+)\]", bare):
        yield "index", one.start(), one[0], f"[{one[2]}][{one[1]}]"


def _removed(bare: str, source: str) -> Iterator[Found]:
    """Calls and assignments left out; those that synchronise are a kind of their own."""
    for one in CALL.finditer(bare):
        end = closing(bare, one.end("call") - 1)
        if bare[end : end + 1] == ";":
            old = source[one.start("call") : end + 1]
            yield "synchronisation" if WAITS.search(old) else "statement", one.start("call"), old, ";"
    for one in ASSIGNMENT.finditer(bare):
        yield "statement", one.start("it"), source[one.start("it") : one.end("it")], ";"


def chosen(every: Sequence[Edit], most: int, seed: int) -> list[Edit]:
    """Up to `most` edits at random, as many of each kind as there are, in the order of the source."""
    rng, by_kind = Random(seed), {}
    for one in rng.sample(every, len(every)):
        by_kind.setdefault(one.kind, []).append(one)
    kept: list[Edit] = []
    while len(kept) < most and any(by_kind.values()):
        kept += [group.pop() for group in by_kind.values() if group]
    return sorted(kept[:most], key=lambda one: (one.start, one.new))
