"""The cells of a percent script, run without Jupyter; the texts of stored ones."""

import ast
import re
from typing import Any

import pytest


def run_cells(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Everything that the cells of a percent script print and show."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in re.split(r"^# %%.*$", text, flags=re.MULTILINE):
        body = ast.parse(cell).body
        last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is not None:
            shown.append(as_in_a_notebook(eval(compile(last, "cell", "eval"), names)))
    return capsys.readouterr().out + "".join(shown)


def text_of(output: Any) -> str:
    """Return the text of a stored output."""
    return output.get("text") or str(output.get("data", {}).get("text/plain"))


def as_in_a_notebook(value: Any) -> str:
    """Return what a notebook shows for a cell's last value."""
    if hasattr(value, "_repr_mimebundle_"):
        shown = value._repr_mimebundle_()  # a chart gives its metadata too
        return str((shown[0] if isinstance(shown, tuple) else shown)["text/plain"])
    return str(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
