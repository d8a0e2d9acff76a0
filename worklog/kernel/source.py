"""A kernel's text: where the ladder's files are, the kernels that a source defines, and the integer expressions of a
launch, such as "BM * BN / (TM * TN)".
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from pathlib import Path

from worklog.errors import BadSetting, WorklogError

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # as in CUDA C++
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def kernels_dir() -> Path:
    """The folder of the ladder's .cu files: in an installed package, else in the checkout."""
    packaged = Path(__file__).parents[1] / "_kernels"
    folder = packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "kernels"
    if not folder.is_dir():
        raise WorklogError(
            f"the kernels are missing: neither {packaged} nor {folder} exists; install gemm-worklog again"
        )
    return folder


def kernel_names(source: str) -> list[str]:
    """Names of the __global__ functions that a source defines, in order."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    bare = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", " ", bare)
    return list(dict.fromkeys(re.findall(r"__global__\s+(?:\w+\s+)*?void\s+(\w+)\s*\(", bare)))


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
