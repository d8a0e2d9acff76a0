"""The notebooks' cells on a GPU: they run live from top to bottom, and what a cell ends in can be shown. No Jupyter is
needed for it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("source", sorted(FOLDER.glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_it_runs_live(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = source.read_text(encoding="utf-8")
    if re.search(r"^# %%\w", text, re.MULTILINE):
        pytest.skip("cell magic needs IPython")
    if re.search(r"\blab\b", text):
        pytest.importorskip("ipywidgets", reason="this notebook shows the panel")
    monkeypatch.setenv("WORKLOG_SOURCE", "live")
    monkeypatch.setenv("WORKLOG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    shown = run_cells(text, capsys)
    assert "live · " in shown


def run_cells(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Everything that the cells of a percent script print and show."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in re.split(r"^# %%.*$", text, flags=re.MULTILINE):
        body = ast.parse(cell).body
        last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is not None:
            shown.append(as_notebooks_do(eval(compile(last, "cell", "eval"), names)))
    return capsys.readouterr().out + "".join(shown)


def as_notebooks_do(value: Any) -> str:
    """What a notebook would ask a cell's last value for."""
    if hasattr(value, "_repr_mimebundle_"):
        return str(value._repr_mimebundle_()[0]["text/plain"])
    return str(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
