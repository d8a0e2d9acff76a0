"""CUDA C++ as text and as a tree: files, comments and integer expressions.

Also where the package keeps kernels, notebooks and other files that it ships."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_cuda

from worklog.errors import BadSetting, WorklogError, meant
from worklog.problem import TYPES, Parameter
from worklog.runs.files import require_file

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # as in CUDA C++
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: lambda value, bits: value << bits % 64,  # more is undefined in C++
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
_OF_SM_90A = re.compile(r"setmaxnreg|wgmma\.|tensormap\.replace|FEAT_SM90")
_CASTS = ("static_cast", "reinterpret_cast", "const_cast", *TYPES)
_OF_FLOATS = re.compile(r"\d\.|\b(?:float|double)\b")
_INTEGER = re.compile(
    r"(?:std::)?(?:unsigned|signed|long|short|int|size_t|u?int\d+_t|auto|bool|char|\s)+"
)
_CEILING = re.compile(r"ceil|cdiv|div_?up", re.IGNORECASE)
_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](.+?)[>"]', re.MULTILINE)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?P<word>\w*)(?:\\\n|[^\n])*", re.MULTILINE)
LINE = re.compile(rf"(?P<directive>{DIRECTIVE.pattern}\n?)|[^\n]*\n|[^\n]+", re.MULTILINE)
DEPTH = 8  # of constants that name others


def source_folder(packaged: str, checkout: str) -> Path:
    """Return a folder of data.

    packaged: its name in an installed package
    checkout: its name in the checkout
    Raises WorklogError if neither exists.
    """
    package = Path(__file__).resolve().parents[1]
    folders = package / packaged, package.parent / checkout
    for folder in filter(Path.is_dir, folders):
        return folder
    missing = f"neither {folders[0]} nor {folders[1]} exists"
    raise WorklogError(f"the folder {checkout} is missing: {missing}; install gemm-worklog again")


def kernels_dir() -> Path:
    """Return the folder of the ladder's .cu files. Raises WorklogError."""
    return source_folder("_kernels", "kernels")


def read_source(path: Path) -> str:
    """Return the text of a .cu file.

    A file that isn't UTF-8 is read as Latin-1, with a warning: most likely, only its comments have
    other characters.

    Raises WorklogError if the file can't be read.
    """
    try:
        require_file(path)
        content = path.read_bytes()
    except OSError as error:
        raise WorklogError(f"cannot read {path}: {error.strerror}; {_another(path)}") from error
    if b"\0" in content:
        raise WorklogError(f"cannot read {path}: it isn't text; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig")  # NVRTC rejects the byte order mark of some editors
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        warnings.warn(f"{path}:{line} isn't UTF-8: the file is read as Latin-1", stacklevel=2)
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _another(path: Path) -> str:
    """Return the advice for a file that can't be read."""
    if path.is_dir():
        return "name a .cu file in it"
    suggestion = ""
    with suppress(OSError):
        names = {file.name for file in path.parent.glob("*.cu")} - {path.name}
        suggestion = meant(path.name, names)
    return f"name another file{suggestion}, or write one with: worklog new mine.cu"


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an integer expression of Python.

    It has + - * / // % << >>, min, max, comparisons, not, and x if y else z. "/" rounds down.

    names: values of the names in the expression, which may be arrays
    Raises BadSetting.
    """
    advice = f"use {', '.join(['integers', *names])} and + - * / %"

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
            return _OPERATORS[type(node.ops[0])](value(node.left), value(node.comparators[0])) * 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return (value(node.operand) == 0) * 1
        if isinstance(node, ast.IfExp):
            holds = (value(node.test) != 0) * 1
            return holds * value(node.body) + (1 - holds) * value(node.orelse)
        if isinstance(node, ast.Call) and node.args and not node.keywords:
            function = ast.unparse(node.func)
            if function in ("min", "max"):
                values = map(value, node.args)
                return reduce(_smaller if function == "min" else _larger, values)
        unread = ast.unparse(node)
        place = "" if unread == expression.strip() else f" in {expression.strip()!r}"
        raise BadSetting(f"cannot read {unread!r}{place}: {advice}")

    try:
        return value(_parsed(expression.strip()))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        reason = "not an integer expression"
        if isinstance(error, ZeroDivisionError):
            reason = "division by zero"
        raise BadSetting(f"cannot read {expression!r}: {advice} ({reason})") from error


def _smaller(first: Any, second: Any) -> Any:
    """Return the smaller number; of arrays, element by element."""
    return first + (second - first) * (second < first)


def _larger(first: Any, second: Any) -> Any:
    """Return the larger number; of arrays, element by element."""
    return first + (second - first) * (second >= first)


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return the text with a value in place of each of these names, all at once."""
    name = r"(?<![\w.])[A-Za-z_][\w.]*(?![\w.]|\s*\()"
    return re.sub(name, lambda match: str(values.get(match[0], match[0])), text)


def tree_of(text: str) -> Any:
    """Return the root of a text's tree.

    Each character outside of ASCII becomes one byte, so that places in the tree are places in the
    text.
    """
    return _PARSER.parse(re.sub(r"[^\x00-\x7f]", "?", text).encode()).root_node


def nodes(node: Any, *types: str) -> Iterator[Any]:
    """Yield the nodes of these types in a tree, in order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.type in types:
            yield node
        waiting += reversed(node.named_children)


def text_of(node: Any) -> str:
    """Return the source of a node on one line; "" for None."""
    return " ".join(node.text.decode().split()) if node is not None else ""


def expression(text: str) -> Any:
    """Return the tree of an expression; None for a text that isn't an expression."""
    root = tree_of(f"auto x = {text};")
    if root.has_error or len(root.named_children) > 1:  # x; y
        return None
    return next(nodes(root, "init_declarator")).child_by_field_name("value")


def reduced(text: str, names: Mapping[str, str]) -> str:
    """Return an expression with the names' values, as Python.

    C++'s casts, suffixes, sizeof and divisions that round up are replaced. The result is a number
    if every name has a value.
    """
    with suppress(RecursionError):
        text = _folded(_of_text(text, names, DEPTH))
        with suppress(SyntaxError):
            return ast.unparse(ast.parse(text, mode="eval"))  # without needless brackets
    return " ".join(text.split())


def _folded(text: str) -> str:
    """Return the value of an expression without names; another expression as it is."""
    with suppress(BadSetting):
        return str(evaluate(text, {}))
    return text


def _of_text(text: str, names: Mapping[str, str], depth: int) -> str:
    """Return an expression with the names' values.

    depth: of names in the values of names
    """
    tree = expression(text)
    return text if tree is None else _plain(tree, names, depth)


def _plain(node: Any, names: Mapping[str, str], depth: int) -> str:
    """Return the expression of a node in Python, as _of_text."""

    def plain(child: Any) -> str:
        return _plain(child, names, depth)

    kind = node.type
    children = node.named_children
    if kind == "cast_expression":
        return plain(children[-1])
    if kind == "parenthesized_expression":
        return f"({plain(children[0])})"
    if kind == "unary_expression" and node.children[0].type == "!":
        return f"(not {plain(children[0])})"
    if kind == "binary_expression":
        return f"{plain(children[0])} {node.children[1].type} {plain(children[1])}"
    if kind == "conditional_expression":
        condition, true, false = map(plain, children)
        return f"({true} if {condition} else {false})"
    if kind == "number_literal":
        return re.sub(r"\.0*[fF]?$", "", text_of(node).rstrip("uUlL"))
    if kind == "sizeof_expression":
        element, *lengths = re.split(r"\s*[\[\]]+", text_of(children[0]).strip("() "))
        if dtype := TYPES.get(element):
            factors = [str(Parameter("", "", dtype, False).itemsize)]
            for length in filter(None, lengths):
                factors.append(f"({_of_text(length, names, depth)})")
            return " * ".join(factors)
    if kind == "call_expression" and len(children) == 2:
        return _plain_call(text_of(children[0]).removeprefix("std::"), children[1], names, depth)
    text = text_of(node)
    if text not in names or not depth:
        return text
    return f"({_folded(_of_text(names[text], names, depth - 1))})"


def _plain_call(name: str, arguments: Any, names: Mapping[str, str], depth: int) -> str:
    """Return a call in Python. Casts and divisions that round up are found by name."""
    values = [_plain(argument, names, depth) for argument in arguments.named_children]
    if name.partition("<")[0] in _CASTS and len(values) == 1:
        return f"({values[0]})"
    if len(values) == 1 and name in ("ceil", "ceilf"):
        quotient = next(nodes(arguments, "binary_expression"), None)
        if quotient is None or not _is_exact_division(quotient):
            return values[0]  # of a division of integers, which has rounded down
        values = [_plain(part, names, depth) for part in quotient.named_children]
        name = "ceil_div"
    if len(values) == 2 and _CEILING.search(name):
        return f"(({values[0]} + {values[1]} - 1) / {values[1]})"
    return f"{name}({', '.join(values)})"


def _is_exact_division(quotient: Any) -> bool:
    """Return whether a binary expression divides floating-point numbers."""
    if quotient.children[1].type != "/":
        return False
    return _OF_FLOATS.search(text_of(quotient)) is not None


def sizes_in(text: str) -> list[str]:
    """Return the sizes of a grid or a block: dim3(a, b), {a, b}, (a, b), or a, b."""
    written = re.fullmatch(r"\s*(?:dim3\s*[({]|\{)(.*)[)}]\s*", text, re.DOTALL)
    if written is not None:
        return split_list(written[1])
    tree = expression(text)
    if tree is None or tree.type != "parenthesized_expression":
        return split_list(text)
    if tree.named_children[0].type.startswith("comma"):
        return split_list(text_of(tree)[1:-1])
    return split_list(text)


@lru_cache(maxsize=256)  # a check evaluates the same grid at thousands of shapes
def _parsed(expression: str) -> ast.expr:
    """Return the tree of an expression of Python. Raises what ast.parse raises."""
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # of 1in or 0x1for
        return ast.parse(expression, mode="eval").body


def sizes(text: str, names: Mapping[str, str]) -> list[str]:
    """Return the reduced sizes of a grid or a block.

    text: numbers, or a dim3 by its name or written out
    names: expressions of names
    """
    name = text.strip()
    return [reduced(size, names) for size in sizes_in(names.get(name, name))]


def split_list(expressions: str) -> list[str]:
    """Return the expressions of a text, split at the commas outside of brackets.

    expressions: such as "f(N, 32), (M + 31) / 32"
    """
    pieces = [""]
    depth = 0
    for character in expressions:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [part.strip() for part in pieces]


def blank(text: str) -> str:
    """Return spaces in place of a text. The code behind it keeps its line and column."""
    return re.sub(r"[^\n]", " ", text)


def needs_sm_90a(source: str) -> bool:
    """Return whether the code has instructions that ptxas accepts for sm_90a only.

    Comments don't count.
    """
    if not _OF_SM_90A.search(source):  # most sources are searched once
        return False
    return _OF_SM_90A.search(code_lines(source)) is not None


def uncommented(source: str) -> str:
    """Return the source with spaces in place of comments."""

    def replacement(match: re.Match[str]) -> str:
        return blank(match[0]) if match[0].startswith("/") else match[0]

    return _NOT_CODE.sub(replacement, source)


def comments(source: str) -> str:
    """Return the source's comments, one or more lines each."""
    return "\n".join(text for text in _NOT_CODE.findall(source) if text.startswith("/"))


def included(source: str) -> list[str]:
    """Return the names of the headers that a source includes."""
    return INCLUDE.findall(source)


def code_lines(source: str) -> str:
    """Return the source without comments and empty lines."""
    bare = uncommented(source)
    return "\n".join(line.rstrip() for line in bare.splitlines() if line.strip())


def declare(node: Any, names: dict[str, str]) -> None:
    """Add the integers that a declaration gives a value, with the expression of each.

    A name that is declared again has no value any more.
    """
    kind = text_of(node.child_by_field_name("type"))
    for declarator in node.children_by_field_name("declarator"):
        name = _declared_name(declarator)
        if name is None:
            continue
        value = declarator.child_by_field_name("value")
        is_again = name in names
        names.pop(name, None)
        if value is None or is_again or not _INTEGER.fullmatch(kind):
            continue
        text = text_of(value)
        if value.type in ("initializer_list", "argument_list"):
            text = text[1:-1]
        names[name] = text


def _declared_name(declarator: Any) -> str | None:
    """Return the name in a declarator; None if it has none."""
    node = declarator
    while node is not None and node.type != "identifier":
        child = node.child_by_field_name("declarator")
        if child is None and node.type == "parenthesized_declarator":
            child = node.named_children[0]
        node = child
    return None if node is None else text_of(node)
