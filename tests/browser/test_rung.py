"""`%%rung` in JupyterLab without a GPU: an error names the cell's own line, a wrong kernel fails with an error map; an
interrupt and a restart of the kernel leave no process behind. tests/lab/test_magic.py holds what a right kernel shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import RESTART, Opened, cell, of_cells
from tests.lab.cells import SLIP, SLOW, WRONG
from tests.lab.waiting import gone, until

SLIPS, FAILS, ENDLESS, LAST = range(1, 5)  # the cells after the first
# Without waiting for its end, which a cell that is to be interrupted would not have.
RUN = """number => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.deselectAll();
    notebook.activeCellIndex = number;
    void window.jupyterapp.commands.execute('notebook:run-cell');
}"""
INTERRUPT = "() => window.jupyterapp.commands.execute('notebook:interrupt-kernel')"


@pytest.fixture(scope="module")
def page(opened: Opened) -> Iterator[Page]:
    """A notebook whose first cell with a kernel has a slip, at which Run All stops."""
    load = "import os\n%load_ext worklog\nos.getpid()"
    with opened("rung", of_cells(load, SLIP, WRONG, SLOW, 'print("as before")')) as shown:
        yield shown


def run(page: Page, number: int) -> Locator:
    """Run a cell; its output."""
    page.evaluate(RUN, number)
    return cell(page, number)


def children(page: Page) -> list[psutil.Process]:
    """What the kernel has started."""
    kernel = int(cell(page, 0).locator("pre").last.inner_text())
    return psutil.Process(kernel).children(recursive=True)


def test_run_all_stops_at_a_slip_and_a_wrong_kernel_fails_with_an_error_map(page: Page) -> None:
    said = cell(page, SLIPS).locator("pre")
    expect(said).to_have_text('%%rung: cell line 6: expected a ";"\n    ' + SLIP.splitlines()[5].strip() + "\n")
    expect(cell(page, FAILS)).to_be_empty()
    said = run(page, FAILS)
    for words in ("plain at 130x190x70", "emulated · sm_90 PTX", "Only the last column"):
        expect(said.get_by_role("status")).to_contain_text(words)
    expect(said.locator("img")).to_have_count(1)
    width = said.locator("img").evaluate("async image => { await image.decode(); return image.naturalWidth; }")
    assert width > 500, "as wide as a chart"
    assert said.get_by_role("table").count() == 0, "a map, and no ladder"


def test_an_interrupt_and_a_restart_of_the_kernel_leave_no_process(page: Page) -> None:
    said = run(page, ENDLESS)
    until(lambda: children(page))
    expect(said).to_contain_text("launch")  # how far it is
    page.evaluate(INTERRUPT)
    expect(said).to_contain_text("%%rung: interrupted")
    until(lambda: not children(page))
    expect(run(page, LAST).get_by_text("as before")).to_be_visible()
    run(page, ENDLESS)
    until(lambda: children(page))
    [child] = children(page)
    page.evaluate(RESTART)
    until(lambda: gone(child.pid))
