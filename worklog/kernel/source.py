"""CUDA C++ as text: files, comments, brackets and integer expressions."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from worklog.errors import BadSetting, WorklogError
from worklog.runs import read_text

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # as in CUDA C++
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
_OF_SM_90A = re.compile(r"setmaxnreg|wgmma\.|tensormap\.replace|FEAT_SM90")
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_CEILING = re.compile(r"\b\w*(?:ceil|cdiv|div_?up)\w*\s*\(([^(),]+),([^(),]+)\)", re.IGNORECASE)
_CAST = re.compile(
    r"\(\s*(?:const\s+)?(?:unsigned\s+|long\s+|signed\s+)*(?:int|size_t|long|unsigned|float|double|char|\w+_t|float[24]|"
    r"int[24]|__half2?|half2?)(?:\s+const)?\s*\**\s*\)\s*(?=[\w(])|"
    r"\b(?:static_cast|reinterpret_cast|const_cast)\s*<[^<>]*>\s*(?=\()"
)
_SIZES = {"float": 4, "int": 4, "unsigned": 4, "unsigned int": 4, "double": 8, "size_t": 8, "half": 2, "__half": 2}
DEPTH = 8  # of constants that name others


def source_folder(packaged: str, checkout: str) -> Path:
    """A folder of data: `packaged` in an installed package, else `checkout` in the checkout. Raises WorklogError."""
    package = Path(__file__).resolve().parents[1]
    folders = package / packaged, package.parent / checkout
    for folder in filter(Path.is_dir, folders):
        return folder
    missing = f"neither {folders[0]} nor {folders[1]} exists"
    raise WorklogError(f"the folder {checkout} is missing: {missing}; install gemm-worklog again")


def kernels_dir() -> Path:
    """The folder of the ladder's .cu files. Raises WorklogError."""
    return source_folder("_kernels", "kernels")


def read_source(path: Path) -> str:
    """The text of a .cu file. Raises WorklogError where it can't be read."""
    try:
        return read_text(path, "utf-8-sig")  # some editors write a byte order mark, which NVRTC rejects
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't UTF-8 text"
        raise WorklogError(f"cannot read {path}: {why}") from error


def evaluate(expression: str, names: Mapping[str, int]) -> int:
    """Value of an integer expression with + - * / // %, min, max and names; "/" rounds down. Raises BadSetting."""
    advice = f"use {', '.join(['integers', *names])} and + - * / %"

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("min", "max") and node.args and not node.keywords:
            return (min if ast.unparse(node.func) == "min" else max)(map(value, node.args))
        raise BadSetting(f"cannot read {ast.unparse(node)!r} in {expression!r}: {advice}")

    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # of 1in or 0x1for
            return value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        reason = "division by zero" if isinstance(error, ZeroDivisionError) else "not an integer expression"
        raise BadSetting(f"cannot read {expression!r}: {advice} ({reason})") from error


def filled(text: str, values: Mapping[str, object]) -> str:
    """The text with a value in place of each of these names, all at once."""
    name = r"(?<![\w.])[A-Za-z_][\w.]*(?![\w.]|\s*\()"
    return re.sub(name, lambda match: str(values.get(match[0], match[0])), text)


def reduced(text: str, names: Mapping[str, str]) -> str:
    """The expression with the names' values, without casts and sizeof; as a number if that is all that is left."""
    values = {name: value if re.fullmatch(r"\w+|\(\w+\)", value) else f"({value})" for name, value in names.items()}
    for _ in range(DEPTH):
        text = filled(plain(text), values)
    text = plain(text)
    with suppress(BadSetting):
        return str(evaluate(text, {}))
    return " ".join(text.split())


def plain(text: str) -> str:
    """An expression without C++'s casts, suffixes, sizeof and divisions that round up."""
    text = _CAST.sub("", text).replace("std::", "")
    text = re.sub(r"\bsizeof\s*\(\s*([\w\s]+?)\s*\)", lambda match: str(_SIZES.get(match[1], match[0])), text)
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text)
    return _CEILING.sub(r"((\1 + \2 - 1) / \2)", text).strip()


def sizes(words: str, names: Mapping[str, str]) -> list[str]:
    """The reduced sizes of a grid or a block: of a dim3 by its name or written out, or of a number."""
    text = names.get(words.strip(), words).strip()
    written = re.fullmatch(r"(?:dim3\s*[({]|\{)(.*)[)}]", text, re.DOTALL)
    return [reduced(size, names) for size in parts(written[1] if written else text)]


def parts(expressions: str) -> list[str]:
    """The expressions of "f(N, 32), (M + 31) / 32": split at the commas outside of brackets."""
    pieces, depth = [""], 0
    for character in expressions:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [part.strip() for part in pieces]


def closing(text: str, start: int) -> int:
    """The place behind the bracket that closes the one at `start`; brackets of other kinds don't count."""
    ends, depth = {"(": ")", "{": "}"}[text[start]], 0
    for place in range(start, len(text)):
        depth += (text[place] == text[start]) - (text[place] == ends)
        if depth == 0:
            return place + 1
    return len(text)


def blank(text: str) -> str:
    """Spaces in place of a text, so that what is behind it keeps its line and column."""
    return re.sub(r"[^\n]", " ", text)


def code(source: str) -> str:
    """The source with spaces in place of comments and literals."""
    return _NOT_CODE.sub(lambda match: blank(match[0]), source)


def needs_sm_90a(source: str) -> bool:
    """Whether the source, and not a comment in it, names what ptxas takes for sm_90a only."""
    return bool(_OF_SM_90A.search(source) and _OF_SM_90A.search(code_lines(source)))  # most are searched once


def uncommented(source: str) -> str:
    """The source with spaces in place of comments."""
    return _NOT_CODE.sub(lambda match: blank(match[0]) if match[0].startswith("/") else match[0], source)


def code_lines(source: str) -> str:
    """The source without comments and empty lines."""
    bare = uncommented(source)
    return "\n".join(line.rstrip() for line in bare.splitlines() if line.strip())


def loop_line(source: str, first: int, last: int) -> int:
    """The line where the innermost loop around these lines begins; 0 where there is none."""
    bare, line = code(source), 0
    for word in re.finditer(r"\b(?:for|while|do)\b", bare):
        begin, end = bare.count("\n", 0, word.start()) + 1, word.end()
        if word[0] != "do" and "(" in bare[end:]:
            end = closing(bare, bare.index("(", end))
        braces = re.compile(r"\s*(?=\{)").match(bare, end)
        end = closing(bare, braces.end()) if braces else bare.find(";", end)
        if begin <= first and last <= bare.count("\n", 0, end) + 1:
            line = begin
    return line


def demangled(text: str) -> str:
    """A text with functions' names in place of the compiler's symbols: lab::gemm of _ZN3lab4gemmEPf."""

    def name(symbol: re.Match[str]) -> str:
        names, rest = list[str](), symbol[1]
        while length := re.match(r"\d+", rest):
            names.append(rest[length.end() :][: int(length[0])])
            rest = rest[length.end() + int(length[0]) :]
        return "::".join(names)

    return re.sub(r"\b_ZN?K?(\d[\w$]*)", name, text)
