"""The panel in a real JupyterLab.

Mouse, keyboard, screen reader, dark theme, and a child process that ends with the kernel.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import (
    COLLAPSE,
    OTHERS,
    RESTART,
    THEME,
    axe_findings,
    box,
    cell,
    of_cells,
    reading,
    rgb,
    tab_to,
)
from tests.lab.grid import small_grid
from tests.lab.waiting import gone, until
from worklog.plots.style import DARK, LIGHT

LOAD = """
from pathlib import Path
from worklog import lab
from worklog.runs.run import Run
grid = Run.load(Path("grid.jsonl"), origin="recorded")
"""
PANEL = 'lab.panel("warptiled", 1024, run=grid)'
# The panel as on a machine with a GPU. Its job takes as long as a file says.
LIVE = """
import sys
from worklog.lab import widgets
from worklog.lab.answers import Answers
widgets.why_not_live = lambda: None
job = (sys.executable, {job!r}, "seconds", "pid")
widgets.Panel(Answers([grid]), "warptiled", 1024, {{"l2": "warm"}}, job=job)
"""
# Everything that is wider than its box.
CLIPPED = """page => [...page.querySelectorAll('*')]
    .filter(part => part.checkVisibility() && part.clientWidth > 0
    && part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX !== 'visible')
    .map(part => part.outerHTML)"""

# Whether the outline of the part that has the focus is inside each box that cuts off its content.
OUTLINED = """part => {
    const style = getComputedStyle(part), inner = part.getBoundingClientRect();
    const room = parseFloat(style.outlineWidth) + parseFloat(style.outlineOffset);
    let box = part.parentElement;
    while (box && getComputedStyle(box).overflowX === 'visible') box = box.parentElement;
    const outer = box.getBoundingClientRect();
    return style.outlineStyle === 'solid' && part === document.activeElement
        && inner.left - room >= outer.left && inner.right + room <= outer.right
        && inner.top - room >= outer.top && inner.bottom + room <= outer.bottom;
}"""


@pytest.fixture(scope="module")
def page(opened, lab):
    """Yield a notebook with three panels, the last one live, on a run made by hand."""
    small_grid().save(lab.folder / "grid.jsonl")
    job = str(Path(__file__).parents[1] / "lab/stand_in_job.py")
    with opened("pages", of_cells(LOAD, PANEL, PANEL, LIVE.format(job=job))) as shown:
        expect(cell(shown, 3).get_by_role("combobox", name="size")).to_be_visible()
        yield shown


@pytest.fixture
def panel(page):
    """Return the first panel, unbiased and folded."""
    page.set_viewport_size({"width": 1400, "height": 1000})
    shown = cell(page, 1)
    shown.get_by_role("button", name="all unbiased").click()
    shown.get_by_role("combobox", name="rung").select_option("warptiled")
    shown.get_by_role("combobox", name="size").select_option("1024")
    expect(reading(shown)).to_contain_text("15.3 TFLOP/s")
    shown.locator("details").evaluate("folded => { folded.open = false; }")
    return shown


def test_each_fix_turned_off_moves_the_reading_of_this_panel_only(panel, page):
    expect(panel.get_by_role("button", name="measure")).to_be_disabled()
    expect(
        panel.get_by_role("status").filter(has_text="measure: WORKLOG_SOURCE=recorded")
    ).to_be_visible()
    element = reading(panel).element_handle()
    box(panel, "l2").uncheck()
    expect(reading(panel)).to_contain_text("this time is 20.0 % shorter")
    expect(panel.locator(".comparison")).to_have_css("color", rgb(LIGHT["alert"]))
    read_out = element.evaluate("element => element.isConnected ? element.textContent : ''")
    assert "112 µs" in read_out, "a screen reader reads changes only in an element that it knows"
    expect(panel.locator(".strip path")).to_have_count(2)
    expect(
        panel.get_by_role("combobox", name="value of l2").get_by_role("option", name="rotate")
    ).to_be_disabled()
    panel.get_by_text(OTHERS).click()
    box(panel, "queue").uncheck()
    expect(panel.locator(".body .row")).to_contain_text(
        ["unbiased", "3 l2", "queue", "this reading"]
    )
    expect(box(panel, "inputs")).to_be_disabled()
    expect(panel.locator(".pitfall", has_text="inputs")).to_contain_text("not recorded")
    panel.get_by_role("button", name="all naive").click()
    expect(reading(panel)).to_contain_text("recorded · NVIDIA H200 · clocks ignored · 2026-11-21")
    expect(panel.locator(".body li", has_text="with the gate off")).to_be_visible()
    expect(reading(cell(page, 2))).to_contain_text("this is the unbiased time")


@pytest.mark.parametrize("width", [390, 1280])
def test_at_any_width_axe_finds_nothing_and_nothing_is_clipped(panel, page, width):
    page.evaluate(COLLAPSE)
    panel.get_by_role("button", name="all naive").click()
    expect(panel.get_by_text("with the gate off")).to_be_visible()
    page.set_viewport_size({"width": width, "height": 1000})
    assert cell(page, 1).locator(".worklog").evaluate(CLIPPED) == []
    for theme, palette in (("JupyterLab Dark", DARK), ("JupyterLab Light", LIGHT)):
        page.evaluate(THEME, theme)
        expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        expect(page.locator("#jupyterlab-splash")).to_have_count(0)
        assert axe_findings(page, ".worklog") == []
        # A host clock's scatter is larger than this difference, so it isn't stressed.
        expect(panel.locator(".comparison")).to_have_css("color", rgb(palette["ink"]))
    words = reading(panel).bounding_box()
    controls = panel.get_by_role("combobox", name="rung").bounding_box()
    assert words and controls
    assert (words["y"] < controls["y"] - 50) == (width == 390), (
        "above the controls only where it is narrow"
    )


def test_a_chart_and_a_table_scroll_in_their_own_boxes_where_the_page_is_narrow(page, opened):
    shown = (
        "from worklog import plots, results",
        "run = results(None, 1024)",
        "run",
        "plots.ladder(run)",
    )
    with opened("narrow", of_cells(*shown)) as narrow:
        expect(cell(narrow, 3).locator("img")).to_be_visible()
        narrow.evaluate(
            "() => { jupyterapp.shell.collapseLeft(); jupyterapp.shell.collapseRight(); }"
        )
        narrow.set_viewport_size({"width": 390, "height": 1000})
        for number, part, least in ((2, "table", 400), (3, "img", 500)):
            output = cell(narrow, number).locator(".jp-OutputArea-output")
            assert output.evaluate("area => area.scrollWidth <= area.clientWidth"), (
                "the label and the notes stay"
            )
            assert output.locator(part).bounding_box()["width"] > least, (
                "as wide as its letters need"
            )
            assert output.locator(f"[tabindex='0']:has({part})").first.evaluate(
                "box => box.scrollWidth > box.clientWidth"
            )
            assert axe_findings(narrow, ".jp-OutputArea-output") == []


def test_an_inspection_is_tables_that_scroll_in_their_own_boxes(opened):
    code = "import worklog\nfrom worklog.kernel.inspection import inspect\n"
    with opened("inspection", of_cells(f"{code}inspect(worklog.rung('shared'))")) as narrow:
        output = cell(narrow, 0).locator(".jp-OutputArea-output")
        expect(output.get_by_text("wavefronts per shared request")).to_be_visible()
        narrow.evaluate(COLLAPSE)
        narrow.set_viewport_size({"width": 515, "height": 1000})
        assert output.evaluate("area => area.scrollWidth <= area.clientWidth")
        rows = output.get_by_role("row", name=re.compile("^(sm_90|LDS|FFMA)"))
        heights = rows.evaluate_all("all => all.map(row => row.offsetHeight)")
        assert len(heights) > 3
        assert max(heights) < 1.5 * min(heights), "a row of numbers doesn't wrap"
        line = output.locator("td", has_text="acc += As[row][k] * Bs[k][col];")
        assert line.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
        assert axe_findings(narrow, ".jp-OutputArea-output") == []


def test_jupyterlab_leaves_the_arrow_keys_to_the_controls(panel, page):
    panel.get_by_role("combobox", name="rung").focus()
    page.keyboard.press("ArrowUp")  # JupyterLab would go to another cell
    expect(reading(panel)).to_contain_text("4 ms")
    tab_to(page, panel.get_by_role("combobox", name="size"))
    page.keyboard.press("ArrowUp")
    expect(reading(panel)).to_contain_text("100 µs")


def test_escape_gives_the_keys_back_to_jupyterlab(panel, page):
    rung = panel.get_by_role("combobox", name="rung")
    rung.click()
    rung.press("Escape")  # closes the list
    rung.focus()
    shown = reading(panel).inner_text()
    active = "() => jupyterapp.shell.currentWidget.content.activeCellIndex"
    assert page.evaluate(active) == 1
    rung.press("Escape")
    expect(rung).not_to_be_focused()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(active) == 2
    assert reading(panel).inner_text() == shown


def test_the_cuda_of_a_cell_is_highlighted_and_the_python_of_others(opened):
    """A token of CUDA is one element of the editor: "// for" is a comment only there."""
    cells = ("%load_ext worklog", "%%puzzle none\nint next; // for", "next = 7 // for_")
    with opened("cuda", of_cells(*cells)) as shown:
        editors = shown.locator(".jp-CodeCell .cm-content")
        comment = re.compile("^// for$")
        expect(editors.nth(1).locator("span", has_text=comment)).to_be_visible()
        expect(editors.nth(2).locator("span", has_text=re.compile("^//$"))).to_be_visible()
        editors.nth(2).click()
        shown.keyboard.press("Control+a")
        shown.keyboard.type("%%rung mine\n// for")
        expect(editors.nth(2).locator("span", has_text=comment)).to_be_visible()
        shown.keyboard.press("Control+a")
        shown.keyboard.type("// for")
        expect(editors.nth(2).locator("span", has_text=comment)).to_have_count(0)


def test_a_measurement_shows_its_progress_and_ends_with_cancel_or_kernel(page, lab):
    """The last test: it restarts the kernel."""
    pid = lab.folder / "pid"
    panel = cell(page, 3)
    (lab.folder / "seconds").write_text("60")
    status = panel.get_by_role("status")
    measure = panel.get_by_role("button", name="measure")
    box(panel, "l2").check()
    box(panel, "l2").uncheck()
    panel.get_by_text(OTHERS).click()
    box(panel, "inputs").uncheck()
    box(panel, "order").uncheck()
    expect(panel.get_by_text("press measure")).to_be_visible()
    box(panel, "order").check()
    box(panel, "inputs").check()
    expect(reading(panel)).to_contain_text("112 µs")
    measure.click()
    expect(
        status.filter(has_text=re.compile(r"with l2=warm · \d+ s, about \d+ s left"))
    ).to_be_visible()
    expect(panel.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    expect(measure).to_be_disabled()
    box(panel, "l2").click()  # the page answers while it measures
    expect(reading(panel)).to_contain_text("this is the unbiased time")
    box(panel, "l2").click()
    expect(reading(panel)).to_contain_text("112 µs")
    panel.get_by_role("button", name="cancel").click()
    expect(status.filter(has_text="cancelled; finished measurements are in")).to_be_visible()
    assert gone(int(pid.read_text()))
    measure.click()
    expect(status.filter(has_text="with l2=warm")).to_be_visible()
    child = int(pid.read_text())
    assert not gone(child)
    page.evaluate(RESTART)
    until(lambda: gone(child))


def test_a_rung_and_a_size_of_the_ladder_can_be_chosen(opened):
    with opened("rung", of_cells('from worklog import lab\nlab.ladder("tiles_2d")')) as page:
        view = cell(page, 0).locator(".worklog").first
        shown = view.get_by_role("status")
        expect(shown).to_contain_text("tiles_2d at 4096")
        view.get_by_role("combobox", name="rung").select_option("vectorized")
        expect(shown).to_contain_text("vectorized at 4096")
        view.get_by_role("combobox", name="size").select_option("1024")
        expect(shown).to_contain_text("vectorized at 1024")
        tab_to(page, view.get_by_role("region", name="06_vectorized.cu against 05_tiles_2d.cu"))


def test_a_bet_is_placed_by_keyboard_and_only_then_shows_the_answer(opened):
    with opened("bet", of_cells('from worklog import lab\nlab.bet("coalesced")')) as page:
        view = cell(page, 0).locator(".worklog").first
        slider = view.get_by_role("slider", name="coalesced")
        expect(slider).to_have_attribute("aria-valuetext", "1 times as fast")
        expect(view.get_by_role("img")).to_have_count(0)
        tab_to(page, slider)
        assert slider.evaluate(OUTLINED)
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        expect(slider).to_have_attribute("aria-valuetext", "31.6 times as fast")
        tab_to(page, view.get_by_role("button", name="Bet"))
        page.keyboard.press("Enter")
        expect(view.get_by_role("img")).to_have_attribute("alt", re.compile("your bet: .* 31.6;"))
        expect(view.get_by_role("status")).to_contain_text("you said 31.6")
        assert view.locator("[tabindex='-1']").evaluate(OUTLINED)
        expect(slider).to_be_disabled()
        page.evaluate(COLLAPSE)
        page.set_viewport_size({"width": 390, "height": 800})
        clipped = view.evaluate(CLIPPED)
        assert all('role="group"' in part for part in clipped), "only a chart scrolls in its box"
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            page.evaluate(THEME, theme)
            expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
            expect(page.locator("#jupyterlab-splash")).to_have_count(0)
            assert axe_findings(page, ".worklog") == []
