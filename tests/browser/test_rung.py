"""`%%rung` in JupyterLab without a GPU: errors name the cell's own line, a wrong kernel fails with an error map, a
right one stands on the ladder; an interrupt and a restart of the kernel leave no process behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import psutil
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import RESTART, Opened, cell, of_cells
from tests.lab.cells import CELL, SLIP, SLOW, WRONG
from tests.lab.waiting import gone, until

LOAD = "import os\n%load_ext worklog\nos.getpid()"
SLIPS, FAILS, RIGHT, ENDLESS, LAST = range(1, 6)  # the cells after LOAD
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
    with opened("rung", of_cells(LOAD, SLIP, WRONG, CELL, SLOW, 'print("as before")')) as shown:
        yield shown


def run(page: Page, number: int) -> Locator:
    """Run a cell; its output."""
    page.evaluate(RUN, number)
    return cell(page, number)


def row(said: Locator, name: str) -> Locator:
    """A kernel's row in the first table."""
    return said.locator("tr").filter(has=said.page.get_by_role("rowheader", name=name, exact=True)).first


def drawn(said: Locator) -> bool:
    """Whether the output has one picture, as wide as a chart."""
    expect(said.locator("img")).to_have_count(1)
    width = said.locator("img").evaluate("async image => { await image.decode(); return image.naturalWidth; }")
    return int(width) > 500


def children(page: Page) -> list[psutil.Process]:
    """What the kernel has started."""
    kernel = int(cell(page, 0).locator("pre").last.inner_text())
    return psutil.Process(kernel).children(recursive=True)


def test_run_all_stops_at_a_slip_and_says_where_it_is(page: Page) -> None:
    said = cell(page, SLIPS).locator("pre")
    expect(said).to_have_text('%%rung: cell line 6: expected a ";"\n    ' + SLIP.splitlines()[5].strip() + "\n")
    expect(cell(page, FAILS)).to_be_empty()


def test_a_wrong_kernel_fails_with_an_error_map(page: Page) -> None:
    said = run(page, FAILS)
    expect(said.get_by_role("status")).to_contain_text("plain at 130x190x70")
    expect(said.get_by_role("status")).to_contain_text("emulated · sm_90 PTX")
    expect(said.get_by_role("status")).to_contain_text("Only the last column")
    assert drawn(said) and said.get_by_role("table").count() == 0  # a map, and no ladder


def test_the_next_cells_right_kernel_stands_on_the_ladder(page: Page) -> None:
    said = run(page, RIGHT)
    expect(said.get_by_role("status")).to_contain_text("plain at 130x190x70")
    expect(said.get_by_role("status")).to_contain_text("emulated · sm_90 PTX")
    expect(row(said, "mine")).to_contain_text("skipped")
    expect(said).to_contain_text("the emulator gives no time")
    for name in ("naive", "warptiled", "cuBLAS"):
        expect(row(said, name)).to_contain_text(re.compile(r"\d [µm]s"))
    expect(said.get_by_text("recorded · NVIDIA H200 · clocks as found").first).to_be_visible()
    assert drawn(said)


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
