"""Run a notebook's source from top to bottom, and store it with its outputs.

The source is a `.py` in notebooks/source/, the result `notebooks/*.ipynb`, in one canonical form.

`python -m tests.record.notebooks` runs all of them, `python -m tests.record.notebooks 12
07_roofline` only these two.
"""

import os
import re
import sys
import tomllib
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
OPTIONS: dict[str, Any] = {
    "timeout": 600,  # of a cell; what is read is traced, which takes three times as long
    "kernel_name": "python3",
    "record_timing": False,
    "store_widget_state": False,
    "coalesce_streams": True,
    "resources": {"metadata": {"path": str(FOLDER)}},
}
# A notebook that is made again stays the same: the gate's seed isn't drawn, and the seconds of a
# check aren't kept.
SEEDED = "--IPKernelApp.exec_lines=import secrets; secrets.randbits = lambda bits: 8"
SECONDS = re.compile(r"^time: \d+\.\d s(?:\n|$|(?=</pre>))", re.MULTILINE)
INSTALL = """\
# Install worklog where it is missing, as in Colab
import importlib.util

if importlib.util.find_spec("worklog") is None:
    %pip install --quiet 'PACKAGE'
"""
INSTALL_CHECKOUT = """\
# Install worklog where it is missing, from the checkout in which this notebook lies
import importlib.util
from pathlib import Path

if importlib.util.find_spec("worklog") is None:
    checkout = Path.cwd().parent
    %pip install --quiet 'PACKAGE'
"""
STILLS = FOLDER.parent / "figures" / "screens"
STILL = "still:"  # a cell's tag: this picture of what its widget shows is stored
STILL_PX = 560  # as wide as it is on a page
# Refers to a kernel that is gone; the text beside it stays.
WIDGET = "application/vnd.jupyter.widget-view+json"


def sources(names: Sequence[str] = ()) -> list[Path]:
    """All notebooks, or those whose names begin with one of `names`.

    Raises SystemExit if a name matches none.
    """
    every = sorted(FOLDER.glob("source/[0-9]*.py"))
    for name in names:
        if not any(path.name.startswith(name) for path in every):
            raise SystemExit(
                f"no notebook begins with {name!r}: choose from "
                f"{', '.join(path.stem for path in every)}"
            )
    return [path for path in every if not names or path.name.startswith(tuple(names))]


def notebook_of(source: Path) -> Path:
    """Where the notebook of a .py is stored with its outputs.

    Not beside it: JupyterLab would list both.
    """
    return FOLDER / f"{source.stem}.ipynb"


def public_address() -> str:
    """Return the project's repository in the checkout's pyproject.toml.

    Empty until there is one.
    """
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return str(project["urls"].get("Repository", ""))


def install_cell(address: str) -> nbformat.NotebookNode:
    """Return a cell that installs the package where it is missing.

    From its public address, as in Colab, else from the checkout in which the notebook lies. It is
    only in the .ipynb, since the .py is part of the checkout.
    """
    package = f"gemm-worklog @ git+{address}" if address else "{checkout}"
    code = INSTALL if address else INSTALL_CHECKOUT
    metadata = {"tags": ["install"], "jupyter": {"source_hidden": True}}
    return nbformat.v4.new_code_cell(code.replace("PACKAGE", package).strip(), metadata=metadata)


def prepared(source: Path) -> nbformat.NotebookNode:
    """Return the notebook of a .py, its cells numbered. Nothing is executed.

    The first page has the cell that installs the package.
    """
    notebook = jupytext.read(source)
    if source.name.startswith("00"):  # the page on which a reader begins
        notebook.cells.insert(1, install_cell(public_address()))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02}"
    return notebook


def folded(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the cell; for one tagged "solution", its source behind a line to click.

    Markdown, since only JupyterLab hides the source of a code cell. Raises SystemExit for a
    solution that was executed and is not right.
    """
    if "solution" not in cell.metadata.get("tags", ()):
        return cell
    shown = "".join(output.get("data", {}).get("text/plain", "") for output in cell.outputs)
    if cell.execution_count and not shown.startswith("right: "):
        raise SystemExit(f"this solution is not right ({shown}):\n{cell.source}")
    code = f"<details><summary>Solution</summary>\n\n```python\n{cell.source}\n```\n\n</details>"
    return nbformat.v4.new_markdown_cell(code, id=cell.id)


def show_still(cell: nbformat.NotebookNode) -> None:
    """Put a picture of the widget, as it is on a screen, into the output of a cell with a tag.

    The tag "still:panel" names figures/screens/panel.png. Where no kernel runs, as on GitHub, the
    picture stands in place of the widget.
    """
    for tag in cell.metadata.get("tags", ()):
        if not tag.startswith(STILL):
            continue
        file = STILLS / f"{tag.removeprefix(STILL)}.png"
        output = cell.outputs[-1]
        output.data["image/png"] = b64encode(file.read_bytes()).decode("ascii")
        alt = " ".join(output.data["text/plain"].split())
        output.metadata["image/png"] = {"width": STILL_PX, "alt": alt}
        output.data.pop("text/html", None)


def execute(source: Path, client: NotebookClient | None = None) -> nbformat.NotebookNode:
    """Return the notebook of a .py with its outputs, its solution folded.

    Without timings and widget state.

    client: of a running kernel to execute it in, made with OPTIONS (default: a new kernel)
    """
    notebook = prepared(source)
    client = client or NotebookClient(notebook, extra_arguments=[SEEDED], **OPTIONS)
    client.nb = notebook
    client.execute()
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        data = output.get("data", {})
        data.pop(WIDGET, None)
        for held in (output, data):
            held |= {
                kind: SECONDS.sub("", held[kind])
                for kind in ("text", "text/plain", "text/html")
                if kind in held
            }
        if "image/png" in data:  # a chart: GitHub would show its HTML without styles
            data.pop("text/html", None)
    for cell in notebook.cells:
        show_still(cell)
    notebook.cells = [folded(cell) for cell in notebook.cells]
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = number  # without the folded ones
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    # No metadata of jupytext's: it would pair the file with the .py, and refuse to open it for the
    # cells that differ.
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    notebook.nbformat = 4
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    return notebook


def text(notebook: nbformat.NotebookNode) -> str:
    """Return the notebook as the text of its .ipynb file."""
    return f"{nbformat.writes(notebook, indent=1, sort_keys=True)}\n"


def make(source: Path) -> Path:
    """Execute a notebook and write its .ipynb, whose path is returned."""
    made = notebook_of(source)
    made.write_text(text(execute(source)), encoding="utf-8")
    return made


if __name__ == "__main__":
    # The solutions' answers don't belong in the journal of whoever runs this.
    with TemporaryDirectory() as home, ProcessPoolExecutor(os.cpu_count()) as pool:
        os.environ["WORKLOG_HOME"] = home
        for path in pool.map(make, sources(sys.argv[1:])):
            print(path, file=sys.stderr)
