"""Mutants of a CUDA source: copies with one edit each, as a mistake in typing or in thought would make it.

Comments, template heads, static_asserts, launch bounds and the heads of functions stay as they are. Casts to 64 bits
do, too: they matter beyond 2^31 elements only, which no check of a small shape can see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from worklog.kernel.source import blank, uncommented

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
    """Every edit of a source."""
    bare = LITERAL.sub(lambda match: blank(match[0]), uncommented(source))
    listed = list[Edit]()
    for pattern in KEPT:
        bare = re.sub(pattern, lambda match: blank(match[0]), bare, flags=re.MULTILINE)

    def add(kind: str, start: int, old: str, *new: str) -> None:
        line, column = source.count("\n", 0, start) + 1, start - source.rfind("\n", 0, start)
        listed.extend(Edit(kind, start, line, column, old, text) for text in new)

    def swap(kind: str, pattern: str, words: Mapping[str, Sequence[str]]) -> None:
        for match in re.finditer(pattern, bare):
            add(kind, match.start(), match[0], *words.get(match[0], ()))

    # With another order, a seed chooses other edits.
    swap("operator", r"(?<= )(?:[-+*/%&|^]|[-+*/]=|<<|>>)(?= )|\b(?:f?max|f?min)f?(?=\()", OPERATORS)
    swap("operator", r"\batomic(?:Add|Max)(?=\()", OPERATORS)
    swap("bound", r"(?<= )(?:[<>]=?|[=!]=|&&|\|\|)(?= )", BOUNDS)
    for match in re.finditer(r"(?<![\w.])(\d+)((?:\.\d+)?f?)(?![\w.])", bare):
        add("constant", match.start(), match[0], *(number + match[2] for number in neighbours(match[1])))
    for literal in LITERAL.finditer(re.sub(r"//[^\n]*", lambda match: blank(match[0]), source)):  # inline assembly
        for match in re.finditer(r"(?<=[ ,])\d+(?=[;,])", literal[0]):
            add("constant", literal.start() + match.start(), match[0], *neighbours(match[0]))
    for match in re.finditer(r"\[([^\[\]]+)\]\[([^\[\]]+)\]", bare):
        add("index", match.start(), match[0], f"[{match[2]}][{match[1]}]")
    swap("name", r"\b(?:threadIdx\.x|blockIdx\.[xy]|[A-Za-z_]+)\b", NAMES)
    swap("alpha, beta", r"\b(?:alpha|beta)\b", SCALARS)
    for match in re.finditer(r"\bif (\()", bare):
        add("guard", match.start(1), bare[match.start(1) : closing(bare, match.start(1))], "(true)")
    for match in CALL.finditer(bare):
        end = closing(bare, match.end("call") - 1)
        if bare[end : end + 1] == ";":
            old = source[match.start("call") : end + 1]
            add("synchronisation" if WAITS.search(old) else "statement", match.start("call"), old, ";")
    for match in ASSIGNMENT.finditer(bare):
        add("statement", match.start("it"), source[match.start("it") : match.end("it")], ";")
    return listed


def neighbours(number: str) -> list[str]:
    """A number one larger, and one smaller if that isn't negative."""
    return [str(int(number) + step) for step in (1, -1) if int(number) + step >= 0]


def chosen(every: Sequence[Edit], most: int, seed: int) -> list[Edit]:
    """Up to `most` edits at random, as many of each kind as there are, in the order of the source."""
    rng, by_kind = Random(seed), {}
    for edit in rng.sample(every, len(every)):
        by_kind.setdefault(edit.kind, []).append(edit)
    kept: list[Edit] = []
    while len(kept) < most and any(by_kind.values()):
        kept += [group.pop() for group in by_kind.values() if group]
    return sorted(kept[:most], key=lambda edit: (edit.start, edit.new))


def closing(text: str, start: int) -> int:
    """The place behind the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return len(text)
