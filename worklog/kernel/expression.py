"""Integer expressions for grids and blocks, such as "BM * BN / (TM * TN)"."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping

from worklog.errors import BadSetting

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # as in CUDA C++
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(expression: str, names: Mapping[str, int]) -> int:
    """Value of an integer expression with + - * / % and the given names. "/" rounds down, and "//" means the same.

    Raises BadSetting for anything else.
    """
    advice = f"use {', '.join(['integers', *names])} and + - * / %"

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise BadSetting(f"cannot read {ast.unparse(node)!r} in {expression!r}: {advice}")

    try:
        return value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        reason = "division by zero" if isinstance(error, ZeroDivisionError) else "not an integer expression"
        raise BadSetting(f"cannot read {expression!r}: {advice} ({reason})") from error


def parts(expressions: str) -> list[str]:
    """The expressions of "(N + 31) / 32, (M + 31) / 32"."""
    return [part.strip() for part in expressions.split(",")]
