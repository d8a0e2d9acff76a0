"""Each notebook runs from top to bottom on the recording and has the stored outputs.

Here and on other machines.
"""

import os
import re
from pathlib import Path

import jupytext
import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.notebooks.cells import text_of
from tests.record.notebooks import (
    FOLDER,
    OPTIONS,
    SEEDED,
    STILL,
    execute,
    folded,
    install_cell,
    notebook_of,
    prepared,
    public_address,
    sources,
)
from tests.stale import changes

ROOT = Path(__file__).parents[2]
OF_THE_GATE = ("02", "14", "17")  # what they print depends on each of its shapes; the first ones
IN_ORDER = sorted(sources(), key=lambda path: path.name[:2] not in OF_THE_GATE)
ALWAYS_RUN = [source for source in IN_ORDER if source.name[:2] in ("00", "12", "17")]
NOTEBOOKS = pytest.mark.parametrize("source", IN_ORDER, ids=lambda path: path.stem)
PAGES = [
    ROOT / "README.md",
    ROOT / "figures" / "README.md",
    *(notebook_of(source) for source in sources()),
]

# Notebooks are stored with the defaults. Tests execute them as another machine would: with the BLAS
# kernels of a CPU without AVX, which every x86 CPU runs, and with one thread.
ANOTHER_MACHINE = {
    "WORKLOG_SOURCE": "recorded",
    "OPENBLAS_CORETYPE": "Prescott",
    **dict.fromkeys(["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"], "1"),
}


# Before each notebook: no names of the one before. Only texts are compared, so charts are not
# drawn.
FRESH = """%reset -f
get_ipython().extension_manager.loaded.discard("worklog")
from worklog.plots.drawing import Drawing
Drawing._repr_mimebundle_ = lambda chart, **_: {"text/plain": chart.alt}
%reset -f
"""
EVERY_SHAPE = (
    "import sys, pytest; sys.few = getattr(sys, 'few', pytest.MonkeyPatch()); sys.few.undo()\n"
)
FEW_SHAPES = "from tests.conftest import take_few_shapes; take_few_shapes(sys.few.setattr)\n"


def of_cell(code: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])


@pytest.fixture(scope="module")
def kernel():
    """One process for all notebooks: libraries are imported once."""
    manager = KernelManager(kernel_name="python3")
    arguments = [
        SEEDED,
        "--HistoryManager.enabled=False",
    ]  # whose thread would print where its file is locked
    other = {**os.environ, **ANOTHER_MACHINE, "PYTHONPATH": str(ROOT)}
    manager.start_kernel(env=other, cwd=str(FOLDER), extra_arguments=arguments)
    client = NotebookClient(of_cell(""), km=manager, **OPTIONS)
    yield client
    client.kc.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the text output of each code cell.

    A cell tagged "varies" has random inputs or seconds: its numbers are left out.
    """
    seen = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # A picture isn't compared.
            shown = re.sub("<Figure size .*?>", "", "".join(map(text_of, cell.outputs)))
            seen.append(
                re.sub(r"\d[\d.,]*", "#", shown)
                if "varies" in cell.metadata.get("tags", [])
                else shown
            )
    return seen


@pytest.mark.parametrize("source", ALWAYS_RUN, ids=lambda path: path.stem)
def test_it_gives_the_stored_outputs_without_a_gpu_on_another_cpu_with_one_thread(source, kernel):
    require_stored(source, kernel)


@pytest.mark.timeout(900)
def test_the_others_were_stored_by_the_code_and_the_data_of_now_or_give_the_same(kernel):
    """`make notebooks` ran them if tests/made/notebooks.txt says so.

    Running them takes a minute.
    """
    for source in IN_ORDER if changes("notebooks") else ():
        if source not in ALWAYS_RUN:
            require_stored(source, kernel)


def require_stored(source: Path, kernel: NotebookClient) -> None:
    kernel.nb = of_cell(
        EVERY_SHAPE + FRESH if source.name[:2] in OF_THE_GATE else EVERY_SHAPE + FEW_SHAPES + FRESH
    )
    kernel.execute()
    fresh = execute(source, kernel)
    stored = nbformat.read(notebook_of(source), as_version=4)
    assert outputs(fresh) == outputs(stored), "outputs are out of date: make notebooks"
    labels = ("recorded · NVIDIA H200", "emulated · sm_90 PTX")
    assert any(label in text for text in outputs(fresh) for label in labels), (
        "no output has a label"
    )


@NOTEBOOKS
def test_the_stored_notebook_has_the_cells_of_its_source_and_what_github_can_show(source):
    stored = nbformat.read(notebook_of(source), as_version=4)
    pairs = zip(map(folded, prepared(source).cells), stored.cells, strict=True)
    assert all(a.source == b.source and a.cell_type == b.cell_type for a, b in pairs)
    assert set(stored.metadata) == {"kernelspec", "language_info"}, (
        "jupytext pairs no files that differ"
    )
    assert "formats" not in jupytext.read(source).metadata["jupytext"]
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        kinds = [set(output.get("data", {})) for output in cell.outputs]
        assert not any(output.output_type == "error" for output in cell.outputs)
        assert not any(kind >= {"image/png", "text/html"} for kind in kinds), (
            "HTML would be shown without styles"
        )
        for output in cell.outputs:
            text = output.get("data", {}).get("text/plain", "")
            if re.match(r"[ +-]*sgemm_\w+<", text):
                changed = [
                    line
                    for line in text.splitlines()
                    if not re.match(r"[ +-]*(\.\.\.|sgemm_\w+<.*)$", line)
                ]
                assert len(changed) <= 15, "a step is shown in few lines"
            assert "image/png" not in output.get("data", {}) or output.metadata["image/png"]["alt"]
        if page := re.search(r"^lab\.(panel|ladder|access)\(.*\)$", cell.source, re.MULTILINE):
            has_still = any(tag.startswith(STILL) for tag in cell.metadata.get("tags", ()))
            shown = "image/png" if has_still else "text/html"
            assert kinds[-1] == {shown, "text/plain"}, f"nothing of {page[0]} would be shown"


def test_a_notebook_that_is_made_again_has_the_seed_of_before_and_no_seconds():
    stored = notebook_of(
        next(source for source in IN_ORDER if source.stem.startswith("02"))
    ).read_text("utf-8")
    ends = re.findall(r"(?:passed as|failed)\b[^\n\"]*?\(seed (\d+)\)", stored)
    assert len(ends) > 3 and len({*ends}) == 1 and not re.search(r"time: \d+\.\d s", stored)


@NOTEBOOKS
def test_a_graded_exercise_has_a_folded_solution(source):
    own = jupytext.read(source).cells
    stored = nbformat.read(notebook_of(source), as_version=4).cells
    graded = [number for number, cell in enumerate(own) if "check_answer(" in cell.source]
    asked, solved = (own[number] for number in graded)
    assert re.search(
        r"^answer = None  # .*\nlab.check_answer\(.*, answer\)$", asked.source, re.MULTILINE
    )
    assert graded[1] == graded[0] + 1 and solved.metadata["tags"] == ["solution"]
    shown = stored[
        graded[1] + source.name.startswith("00")
    ]  # after the cell that installs the package
    assert shown.cell_type == "markdown" and shown.source.startswith(
        "<details><summary>Solution</summary>"
    )
    assert solved.source in shown.source


def test_a_solution_that_is_not_right_is_not_stored():
    output = nbformat.v4.new_output("execute_result", {"text/plain": "not yet: 3 is too small"})
    wrong = nbformat.v4.new_code_cell(
        "x", metadata={"tags": ["solution"]}, outputs=[output], execution_count=1
    )
    with pytest.raises(SystemExit, match="this solution is not right"):
        folded(wrong)


def test_the_first_code_cell_installs_the_package_where_it_is_missing():
    assert prepared(sources()[0]).cells[1].source == install_cell(public_address()).source
    assert re.search(
        r"%pip .*'gemm-worklog @ git\+https://a.b/c'", install_cell("https://a.b/c").source
    )


@pytest.mark.parametrize("name", ["worklog", "worklog_is_missing"])
def test_without_an_address_the_first_cell_installs_the_checkout_of_the_notebook(
    name, tmp_path, monkeypatch
):
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    installed: list[str] = []
    shell = InteractiveShell()
    shell.register_magic_function(installed.append, magic_name="pip")
    cell = install_cell("").source.replace('"worklog"', f'"{name}"')
    shell.run_cell(cell).raise_error()
    wanted = [f"install --quiet '{tmp_path}'"] if name == "worklog_is_missing" else []
    assert installed == wanted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_exist_and_pictures_have_an_alt_text(page):
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = nbformat.read(page, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    links = re.findall(r'\]\(([^)#]+)\)|(?:href|src|srcset)="([^"#]+)"', text)
    here = [re.sub(r"\s", "", marked or written) for marked, written in links]
    assert [
        link
        for link in here
        if not link.startswith("https://") and not (page.parent / link).exists()
    ] == []
    assert text.count("<img ") == len(re.findall(r'<img [^>]*alt="[^"]+"', text))
