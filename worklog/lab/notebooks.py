"""Runs a notebook's `.py` from top to bottom and stores the outputs beside it as `.ipynb`, in one canonical form.

`python -m worklog.lab.notebooks` does it for every notebook, `python -m worklog.lab.notebooks 02 06_roofline` for those whose names
begin so; the tests do the same and compare.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
CELL_S = 120
WIDGET = "application/vnd.jupyter.widget-view+json"  # names what is gone with its kernel; the words beside it stay


def sources(names: Sequence[str] = ()) -> list[Path]:
    """All notebooks, or those whose names begin with one of these. Raises SystemExit for a name that none has."""
    every = sorted(FOLDER.glob("[0-9]*.py"))
    for name in names:
        if not any(path.name.startswith(name) for path in every):
            raise SystemExit(f"no notebook begins with {name!r}: there are {', '.join(path.stem for path in every)}")
    return [path for path in every if not names or path.name.startswith(tuple(names))]


def execute(source: Path) -> nbformat.NotebookNode:
    """The notebook of a .py, with outputs and nothing else: no timings, no widget state, cells numbered."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02}"
    client = NotebookClient(
        notebook,
        timeout=CELL_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)
    notebook.metadata = {key: notebook.metadata[key] for key in ("jupytext", "kernelspec")}
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return notebook


def text(notebook: nbformat.NotebookNode) -> str:
    return nbformat.writes(notebook, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for path in sources(sys.argv[1:]):
        path.with_suffix(".ipynb").write_text(text(execute(path)), encoding="utf-8")
        print(path.with_suffix(".ipynb"), file=sys.stderr)
