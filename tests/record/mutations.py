"""Edits of a kernel's source, each of which makes a mutant.

The rules are this project's, and ideas of published sets: the GPU-specific operators of Zhu and
Zaidman (ICST 2020: a thread index that is replaced, incremented or decremented, a barrier or an
atomic that is removed), and the barrier and loop operators of Peng and Rajan (CLTestCheck, 2019).
Each rule is written for the mistakes that people make in an SGEMM kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from zlib import crc32

from worklog.kernel.source import blank, uncommented

# What stays: preprocessor lines, heads of templates and functions, static_asserts, launch bounds;
# and casts to 64 bits, which matter beyond 2^31 elements only, where no check of a small shape
# looks.
KEPT = (
    r"^[ \t]*#[^\n]*",
    r"\btemplate\s*<[^{;()]*>",
    r"\b__(?:global|device)__[^{;=]*(?=[{;=])",
    r"\b(?:static_assert|__launch_bounds__|__align__)\s*\([^;{]*?\)(?=[;\s])",
    r"^.*\"\+f\"\(.*\"\+f\"\(.*$",  # operands of a tensor instruction
    r"\(size_t\)|\(long long\)",
)
OPERATORS = {
    "+": ("-",),
    "-": ("+",),
    "*": ("+", "/"),
    "/": ("*", "%"),
    "%": ("/",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    "|": ("&",),
    "^": ("|",),
    "+=": ("=", "-="),
    "-=": ("+=",),
    "*=": ("=",),
    "/=": ("*=",),
    "max": ("min",),
    "min": ("max",),
    "fmaxf": ("fminf",),
    "atomicAdd": ("atomicMax",),
    "atomicMax": ("atomicMin",),
}
BOUNDS = {
    "<": ("<=", ">"),
    "<=": ("<",),
    ">": (">=", "<"),
    ">=": (">",),
    "==": ("!=",),
    "!=": ("==",),
    "&&": ("||",),
    "||": ("&&",),
}
NAMES = {
    "M": ("N", "K"),
    "N": ("M", "K"),
    "K": ("N", "M"),
    "A": ("B",),
    "B": ("A",),
    "row": ("col",),
    "col": ("row",),
    "BM": ("BN", "BK"),
    "BN": ("BM", "BK"),
    "BK": ("BM",),
    "TM": ("TN",),
    "TN": ("TM",),
    "WM": ("WN",),
    "WN": ("WM",),
    "threadIdx.x": ("threadIdx.y", "blockIdx.x"),
    "blockIdx.x": ("blockIdx.y",),
    "blockIdx.y": ("blockIdx.x",),
    "hi": ("lo",),
    "lo": ("hi",),
    "full": ("empty",),
    "empty": ("full",),
    "lane": ("warp",),
    "warp": ("lane",),
    "i": ("j",),
    "j": ("i",),
}
SCALARS = {"alpha": ("1.0f", "-alpha", "beta"), "beta": ("1.0f", "0.0f", "alpha")}
WAITS = re.compile(
    r"__sync|__threadfence|wait|arrive|commit|fence|expect|init|hand_over|bar\.|setmaxnreg|atomic",
    re.IGNORECASE,
)
CALL = re.compile(
    r"(?<=[;{})\n])\s*(?P<call>(?:asm "
    r"volatile|(?!if|for|while|switch|return)[A-Za-z_]\w*(?:<\d+>)?)\()"
)
ASSIGNMENT = re.compile(
    r"^\s*(?!(?:const|int|float|unsigned|auto|bool|constexpr|extern|return|size_t|char|struct|for|if|while|else|else"
    r"|Line|long|float2|float4|asm|__shared__)\b)(?P<it>\*?[\w(][^;{}=]*? [-+*/^|&]?= [^;{}]*;)",
    re.MULTILINE,
)
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
OPERAND = r"\w+(?:\[[^\]]*\])*"
PRODUCT = rf"\b(?P<sum>acc(?:\[[^\]]*\])*) \+= (?P<a>{OPERAND}) \* (?P<b>{OPERAND});"


@dataclass(frozen=True)
class Rewrite:
    """A rule as a regular expression and the texts that replace its matches."""

    kind: str
    pattern: str
    texts: tuple[str, ...]  # as for re.Match.expand


def narrowed(before: str, value: str, after: str) -> tuple[str, ...]:
    """Return a text with a value cut to 11 bits, as in TF32, and to 8, as in BF16."""
    masks = ("0xffffe000u", "0xffff0000u")
    return tuple(
        f"{before}__uint_as_float(__float_as_uint({value}) & {mask}){after}" for mask in masks
    )


# Each on one line of the source, without comments and literals.
REWRITES = (
    Rewrite(
        "thread index",
        r"\b(?P<index>threadIdx\.x|blockIdx\.[xy])\b",
        (r"(\g<index> + 1)", r"(\g<index> - 1)", r"(\g<index> ^ 1)"),
    ),
    Rewrite(
        "trip count",
        r"(?<=; )(?P<left>\w+) < (?P<bound>K|tiles)(?=;)",
        (
            r"\g<left> + 1 < \g<bound>",
            r"\g<left> < \g<bound> - 1",
            r"\g<left> < \g<bound> / 2",
        ),
    ),
    Rewrite(
        "trip count",
        r"(?<=; )(?P<left>k0) < K(?=; k0 \+= BK)",
        (
            r"\g<left> + BK < K",
            r"\g<left> < K + BK",
        ),
    ),
    Rewrite(
        "trip count",
        r"(?<=int )(?P<name>k0|k|tile|stage) = 0(?=[;,])",
        (r"\g<name> = 1",),
    ),
    Rewrite("trip count", r"(?<=; )\+\+(?P<name>\w+)(?=\))", (r"\g<name> += 2",)),
    Rewrite(
        "trip count",
        r"\b(?P<name>\w+) \+= (?P<step>[A-Z_]+|4 \* THREADS)(?=[,)])",
        (
            r"\g<name> += 2 * \g<step>",
            r"\g<name> += \g<step> / 2",
        ),
    ),
    Rewrite(
        "trip count",
        r"(?<=; )(?P<left>\w+) < (?P<bound>BK|BM|BN|TM|TN)(?=;)",
        (
            r"\g<left> + 1 < \g<bound>",
            r"\g<left> < \g<bound> / 2",
        ),
    ),
    Rewrite(
        "part of the sum",
        r"for \(int (?P<name>k0|tile|k) = [^{]*\{",
        (
            r"\g<0> if (\g<name> > 0) break;",
            r"\g<0> if (\g<name> % 2) continue;",
        ),
    ),
    Rewrite(
        "initial value",
        r"(?P<before>\b(?:acc|a|b)(?:\[[^\]]*\])*) = (?:\{\}|0\.0f)(?=[,;])",
        (r"\g<before>",),
    ),
    Rewrite(
        "initial value",
        r"(?P<before>\bacc(?:\[[^\]]*\])*) = \{\}(?=[,;])",
        (r"\g<before> = {1.0f}",),
    ),
    Rewrite(
        "weaker barrier",
        r"__syncthreads\(\);",
        (
            "__syncwarp();",
            "if (threadIdx.x < 32) __syncthreads();",
            "if (blockIdx.x > 0) __syncthreads();",
        ),
    ),
    Rewrite(
        "vector width",
        r"\*\(float4\*\)(?P<to>[^;]*?) = \*\(const float4\*\)(?P<of>[^;]*);",
        (
            r"*(float2*)\g<to> = *(const float2*)\g<of>;",
            r"*(float*)\g<to> = *(const float*)\g<of>;",
        ),
    ),
    Rewrite("vector width", r"copy<16>\(", ("copy<4>(",)),
    Rewrite(
        "vector width",
        r"\bcopy_16_bytes\(&(?P<to>[^;]*?), &(?P<of>[^;]*)\);(?= *$)",
        (r"*(float2*)&\g<to> = *(const float2*)&\g<of>;",),
    ),
    Rewrite("narrow operand", PRODUCT, narrowed(r"\g<sum> += ", r"\g<a>", r" * \g<b>;")),
    Rewrite("narrow operand", PRODUCT, narrowed(r"\g<sum> += \g<a> * ", r"\g<b>", ";")),
    Rewrite("narrow sum", PRODUCT, narrowed(r"\g<sum> = ", r"\g<sum> + \g<a> * \g<b>", ";")),
    Rewrite("narrow sum", r"\bfloat (?=(?:acc|a|b)\b)", ("int ",)),
    Rewrite(
        "narrow sum",
        r"\balpha \* (?P<sum>acc(?:\[[^\]]*\])*)",
        narrowed("alpha * ", r"\g<sum>", ""),
    ),
    Rewrite("narrow index", r"(?<=for \()int(?= (?:k0|tile)\b)", ("signed char", "short")),
    Rewrite(
        "narrow index",
        r"(?<=\bconst )int(?= (?:tiles|c_row|row|a_row|b_row)\b)",
        ("signed char",),
    ),
    Rewrite("stale buffer", r"\[(?P<of>buffer|stage)\]", (r"[0]", r"[1]")),
    Rewrite("stale buffer", r"\[buffer\]", ("[buffer ^ 1]",)),
    Rewrite("stale buffer", r"\bbuffer \^ 1\b", ("buffer",)),
    Rewrite("stale buffer", r"\bbuffer \^= 1\b", ("buffer ^= 0", "buffer = 1")),
    Rewrite("stale buffer", r"\[(?P<of>\w+) % 2\]", (r"[0]", r"[(\g<of> + 1) % 2]")),
    Rewrite("stale buffer", r"\(stage \+ STAGES - 1\) % STAGES", ("stage",)),
    Rewrite("stale buffer", r"\(stage \+ 1\) % STAGES", ("stage", "(stage + 2) % STAGES")),
    Rewrite("stale buffer", r"\btile % STAGES", ("(tile + 1) % STAGES", "0")),
    Rewrite("stale buffer", r" % 2 \^ 1\b", (" % 2",)),
    Rewrite("stale buffer", r"\btile / STAGES % 2", ("tile / STAGES", "(tile + 1) / STAGES % 2")),
    Rewrite("guard", r"\bbeta == 0\.0f(?= \?)", ("true", "false")),
    Rewrite("guard", r"(?<=\()k0 \+ BK < K(?=\))", ("k0 + BK <= K", "k0 + 2 * BK < K")),
    Rewrite(
        "order of alpha and beta",
        r"\balpha \* (?P<sum>[\w\[\] +]+?) \+ beta \* (?P<old>\*?[\w.]+)",
        (
            r"alpha * (\g<sum> + beta * \g<old>)",
            r"beta * (alpha * \g<sum> + \g<old>)",
            r"\g<sum> + beta * \g<old>",
            r"alpha * \g<sum> + \g<old>",
        ),
    ),
    Rewrite(
        "stride",
        r"(?<= \* )(?P<size>K|N)\b(?= \+|\]|\)|;)",
        (
            r"(\g<size> + 4)",
            r"(\g<size> - 1)",
            "64",
        ),
    ),
    Rewrite("stride", r"(?<= \* )(?P<size>ROWS|COLS|BM|BN|WM|WN)\b", (r"(\g<size> + 4)",)),
    Rewrite("padding", r"(?P<size>B[MNK]) \+ (?:4|8)(?=[\])])", (r"\g<size>", r"\g<size> + 12")),
    Rewrite(
        "early return",
        r"(?:\bfor \((?:int|signed char) (?:k0|i|tile) = 0)",
        (
            r"if (threadIdx.x >= 32) return; \g<0>",
            r"if (threadIdx.x % 32 == 31) return; \g<0>",
            r"if (blockIdx.x > 0 && blockIdx.y > 0) return; \g<0>",
        ),
    ),
    Rewrite("store", r"(?<!\w)\*c = ", ("*c += ", "if (blockIdx.y % 2 == 0) *c = ")),
    Rewrite("store", r"= &C\[|= \(float[24]\*\)&C\[", (r"\g<0>4 + ", r"\g<0>(size_t)N + ")),
)


@dataclass(frozen=True)
class Edit:
    """A text in place of another one.

    start: its place in the source
    line: the text of its line
    column: the place in that text, from 1
    nth: which of the lines with this text, from 1
    """

    kind: str
    start: int
    line: str
    column: int
    nth: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """Return the mutant, with as many lines as the source."""
        lost = "\n" * (self.old.count("\n") - self.new.count("\n"))
        return source[: self.start] + self.new + lost + source[self.start + len(self.old) :]

    def __str__(self) -> str:
        old, new = (re.sub(r"\s+", " ", text) for text in (self.old, self.new))
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.line}{nth}:{self.column}: {old} → {new or 'nothing'}"


def edits(source: str) -> list[Edit]:
    """Return every edit of a source, each mutant once."""
    bare = LITERAL.sub(lambda match: blank(match[0]), uncommented(source))
    for pattern in KEPT:
        bare = re.sub(pattern, lambda match: blank(match[0]), bare, flags=re.MULTILINE)
    listed: dict[str, Edit] = {}
    for kind, start, old, new in _replacements(source, bare):
        edit = _edit(source, kind, start, old, new)
        listed.setdefault(edit.applied(source), edit)
    listed.pop(source, None)
    return [*listed.values()]


def _edit(source: str, kind: str, start: int, old: str, new: str) -> Edit:
    """Return an edit with its line, column and number."""
    lines = [" ".join(line.split()) for line in source.split("\n")]
    number = source.count("\n", 0, start)
    before = source[source.rfind("\n", 0, start) + 1 : start]
    nth = lines[: number + 1].count(lines[number])
    return Edit(kind, start, lines[number], len(before.lstrip()) + 1, nth, old, new)


Replacement = tuple[str, int, str, str]  # a kind, a place in the source, and its texts


def _replacements(source: str, bare: str) -> Iterator[Replacement]:
    """Yield what every rule replaces.

    bare: the source, as long, with blanks instead of comments, literals and what is kept
    """
    yield from _rewritten(source, bare)
    words = r"(?<= )(?:[-+*/%&|^]|[-+*/]=|<<|>>)(?= )|\b(?:f?max|f?min)f?(?=\()"
    yield from _swapped("operator", words, OPERATORS, bare)
    yield from _swapped("operator", r"\batomic(?:Add|Max)(?=\()", OPERATORS, bare)
    yield from _swapped("bound", r"(?<= )(?:[<>]=?|[=!]=|&&|\|\|)(?= )", BOUNDS, bare)
    yield from _constants(source, bare)
    for match in re.finditer(r"\[([^\[\]]+)\]\[([^\[\]]+)\]", bare):
        yield "index", match.start(), match[0], f"[{match[2]}][{match[1]}]"
    names = r"\b(?:threadIdx\.x|blockIdx\.[xy]|[A-Za-z_]+)\b"
    yield from _swapped("name", names, NAMES, bare)
    yield from _swapped("alpha, beta", r"\b(?:alpha|beta)\b", SCALARS, bare)
    for match in re.finditer(r"\bif (\()", bare):
        condition = bare[match.start(1) : closing(bare, match.start(1))]
        yield "guard", match.start(1), condition, "(true)"
        yield "guard", match.start(1), condition, "(false)"
    yield from _removed(source, bare)
    yield from _moved(source, bare)


def _rewritten(source: str, bare: str) -> Iterator[Replacement]:
    """Yield the replacements of REWRITES."""
    for rewrite in REWRITES:
        for match in re.finditer(rewrite.pattern, bare, re.MULTILINE):
            old = source[match.start() : match.end()]
            is_whole = old == match[0] and "\n" not in old
            if not is_whole:
                continue
            for text in rewrite.texts:
                yield rewrite.kind, match.start(), old, match.expand(text)


def _swapped(
    kind: str, pattern: str, words: Mapping[str, Sequence[str]], bare: str
) -> Iterator[Replacement]:
    """Yield the replacements of words by others."""
    for match in re.finditer(pattern, bare):
        for text in words.get(match[0], ()):
            yield kind, match.start(), match[0], text


def _constants(source: str, bare: str) -> Iterator[Replacement]:
    """Yield the neighbours of each number, also in inline assembly."""
    for match in re.finditer(r"(?<![\w.])(\d+)((?:\.\d+)?f?)(?![\w.])", bare):
        for number in neighbours(match[1]):
            yield "constant", match.start(), match[0], number + match[2]
    uncommented_lines = re.sub(r"//[^\n]*", lambda match: blank(match[0]), source)
    for literal in LITERAL.finditer(uncommented_lines):
        for match in re.finditer(r"(?<=[ ,])\d+(?=[;,])", literal[0]):
            for number in neighbours(match[0]):
                yield "constant", literal.start() + match.start(), match[0], number


def _removed(source: str, bare: str) -> Iterator[Replacement]:
    """Yield each call and each assignment, which a mutant lacks."""
    for match in CALL.finditer(bare):
        end = closing(bare, match.end("call") - 1)
        if bare[end : end + 1] == ";":
            old = source[match.start("call") : end + 1]
            kind = "synchronisation" if WAITS.search(old) else "statement"
            yield kind, match.start("call"), old, ";"
    for match in ASSIGNMENT.finditer(bare):
        yield "statement", match.start("it"), source[match.start("it") : match.end("it")], ";"


def _moved(source: str, bare: str) -> Iterator[Replacement]:
    """Yield each pair of neighbouring statements, one of which synchronises, in the other order."""
    statement = re.compile(r"^[ \t]*(?![ \t})])(?!.*\b(?:int|float|auto|const)\b)[^\n]*[;}][ \t]*$")
    lines = source.splitlines(keepends=True)
    bare_lines = bare.splitlines()
    start = 0
    for number in range(len(lines) - 1):
        pair = lines[number : number + 2]
        old = "".join(pair)
        is_pair = all(statement.match(line) for line in bare_lines[number : number + 2])
        is_balanced = all(line.count("{") == line.count("}") for line in pair)
        if is_pair and is_balanced and WAITS.search(old):
            yield "moved barrier", start, old, pair[1] + pair[0]
        start += len(lines[number])


def neighbours(number: str) -> list[str]:
    """Return a number one larger, and one smaller if that isn't negative."""
    return [str(int(number) + step) for step in (1, -1) if int(number) + step >= 0]


def in_turn(every: Sequence[Edit], seed: int) -> Iterator[Edit]:
    """Yield the edits at random, one of each kind in turn."""
    rng = Random(seed)
    by_kind: dict[str, list[Edit]] = {}
    for edit in rng.sample(every, len(every)):
        by_kind.setdefault(edit.kind, []).append(edit)
    while by_kind:
        for kind in sorted(by_kind):
            yield by_kind[kind].pop()
            if not by_kind[kind]:
                del by_kind[kind]


def drawn(sources: Mapping[str, str], count: int, seed: int) -> list[tuple[str, Edit]]:
    """Return up to `count` edits of several sources, one of each source in turn."""
    turns = {
        name: in_turn(edits(source), seed + crc32(name.encode()))
        for name, source in sources.items()
    }
    taken: list[tuple[str, Edit]] = []
    while turns and len(taken) < count:
        for name in [*turns]:
            edit = next(turns[name], None)
            if edit is None:
                del turns[name]
            elif len(taken) < count:
                taken.append((name, edit))
    return taken


def closing(text: str, start: int) -> int:
    """Return the place behind the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return len(text)
