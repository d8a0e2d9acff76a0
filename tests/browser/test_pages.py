"""The notebook pages in a real JupyterLab: mouse, keyboard, screen reader, dark theme, and a child process that ends
with the kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Lab, of_cells
from tests.lab.grid import small_grid
from tests.lab.waiting import gone, until
from tests.plots.conftest import full_run
from worklog.settings import PITFALLS

Opened = Callable[..., AbstractContextManager[Page]]

LOAD = """
from pathlib import Path
from worklog import lab
from worklog.runs.run import Run
grid, run = (Run.load(Path(name), origin="recorded") for name in ("grid.json", "run.json"))
"""
PANEL = 'lab.panel("warptiled", 1024, run=grid)'
LADDER = 'lab.ladder("tiles_2d", 4096, run=run)'
ABLATION = 'lab.ablation("warptiled", 512, run=run)'

# The panel as on a machine with a GPU; its job is a stand-in that takes as long as a file says.
LIVE = """
import sys
from worklog.lab import panel_page
from worklog.lab.panel_answer import PanelChoice
panel_page.why_not_live = lambda: None
panel_page.Panel(PanelChoice([grid], "warptiled", 1024, l2="warm"), (sys.executable, {job!r}, "seconds", "pid"))
"""
# A page that takes its time from row to row.
SLOW = """
import time
from worklog.lab.panel_page import Row
show = Row.show
def slowly(*how):
    time.sleep(0.05)
    show(*how)
Row.show = slowly
"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
THEME = "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})"
# Every visible control without a name for a screen reader.
UNNAMED = """() => [...document.querySelectorAll('.worklog :is(input, select, button, [role=slider], [tabindex="0"])')]
    .filter(control => control.checkVisibility() && !(control.ariaLabel || control.labels?.[0]?.textContent.trim()
        || control.textContent.trim()))
    .map(control => control.outerHTML)"""
UNBIASED = "this is the unbiased reading"
OTHERS = "pitfalls that the article doesn't name"


@pytest.fixture(scope="module")
def runs(lab: Lab) -> None:
    small_grid().save(lab.folder / "grid.json")
    full_run().save(lab.folder / "run.json")


@pytest.fixture(scope="module")
def page(opened: Opened, runs: None) -> Iterator[Page]:
    """A notebook with two panels, the ladder and the ablation, on runs made by hand."""
    with opened("pages", of_cells(LOAD, PANEL, PANEL, LADDER, ABLATION)) as shown:
        expect(cell(shown, 4).get_by_role("slider", name="size")).to_be_visible()
        yield shown


@pytest.fixture
def panel(page: Page) -> Iterator[Locator]:
    """The first panel, unbiased and folded, before and after each test."""
    shown = cell(page, 1)
    expect(reading(shown)).to_contain_text(UNBIASED)
    yield shown
    shown.get_by_role("combobox", name="rung").select_option("warptiled")
    shown.get_by_role("button", name="all unbiased").click()
    shown.get_by_role("slider", name="size").press("End")
    expect(reading(shown)).to_contain_text("140 µs → ")
    if box(shown, "queue").is_visible():
        shown.get_by_role("button", name=OTHERS).click()


def cell(page: Page, number: int) -> Locator:
    """The output of one cell, from 0."""
    return page.locator(".jp-CodeCell").nth(number).locator(".jp-Cell-outputWrapper")


def reading(panel: Locator) -> Locator:
    """The words of the answer."""
    return panel.get_by_role("status").filter(has_text="→")


def box(panel: Locator, setting: str) -> Locator:
    """The check box of one setting."""
    [number] = [f"{g.article} " if g.article else "" for g in PITFALLS if g.setting == setting]
    return panel.get_by_role("checkbox", name=number + setting)


def shot(page: Page, name: str) -> None:
    """A screenshot to look at, where WORKLOG_SCREENSHOTS names a folder."""
    folder = os.environ.get("WORKLOG_SCREENSHOTS")
    if folder:
        page.wait_for_timeout(300)
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_each_fix_turned_off_moves_the_reading(panel: Locator, page: Page) -> None:
    shot(page, "1-unbiased")
    element = reading(panel).element_handle()
    expect(reading(panel)).to_contain_text("140 µs → 15.3 TFLOP/s")
    box(panel, "l2").uncheck()
    expect(reading(panel)).to_contain_text("112 µs")
    expect(reading(panel)).to_contain_text("unbiased 140 µs · this reading is 20.0 % lower")
    assert element is not None
    read_out = element.evaluate("element => element.isConnected ? element.textContent : ''")
    assert "112 µs" in read_out, "a screen reader reads changes only in an element that it knows"
    shot(page, "2-l2")
    panel.get_by_role("button", name=OTHERS).click()
    box(panel, "queue").uncheck()
    expect(reading(panel)).to_contain_text("132 µs")
    box(panel, "timer").uncheck()
    expect(reading(panel)).to_contain_text("25 µs")
    expect(reading(panel)).to_contain_text("5.6 times too short")
    shot(page, "3-timer")
    expect(panel.get_by_text("recorded · NVIDIA H200 · clocks as found · 2026-11-21").first).to_be_visible()
    expect(panel.get_by_role("img", name="warptiled at 1024, timer = host, l2 = warm, queue = off")).to_be_visible()
    panel.get_by_role("button", name="all unbiased").click()
    expect(reading(panel)).to_contain_text("140 µs")
    expect(box(panel, "l2")).to_be_checked()


def test_every_fix_of_the_table_can_be_turned_off_and_on(panel: Locator) -> None:
    panel.get_by_role("button", name=OTHERS).click()
    status = panel.get_by_role("status").last  # the first one is about measuring
    for pitfall in PITFALLS:
        fix, value = box(panel, pitfall.setting), panel.get_by_role("combobox", name=f"value of {pitfall.setting}")
        fix.click()
        expect(value).not_to_have_value("0")
        expect(fix).not_to_be_checked()
        expect(status).not_to_contain_text(UNBIASED)
        fix.click()
        expect(fix).to_be_checked()
        expect(value.locator("option:checked")).to_have_text({True: "on"}.get(pitfall.unbiased, str(pitfall.unbiased)))
        expect(status).to_contain_text(UNBIASED)


def test_a_click_while_another_one_is_being_shown_counts(opened: Opened, runs: None) -> None:
    """On the same box, and on another one, whose first message arrives on another thread of the kernel."""
    with opened("slow", of_cells(LOAD + SLOW, PANEL)) as page:
        panel, setting = cell(page, 1), PITFALLS[-1].setting
        first, last = box(panel, "clocks"), box(panel, setting)
        panel.get_by_role("button", name=OTHERS).click()
        first.click()
        page.wait_for_timeout(200)  # some rows are shown, the last one is not
        first.click()
        expect(first).to_be_checked()
        expect(reading(panel)).not_to_contain_text(UNBIASED)  # of the first click
        page.wait_for_timeout(200)
        last.click()
        expect(reading(panel)).to_contain_text(UNBIASED)  # of the second
        expect(first).to_be_checked()
        expect(panel.get_by_role("combobox", name=f"value of {setting}")).not_to_have_value("0")
        expect(last).not_to_be_checked()


def test_a_value_a_rung_and_a_size_are_chosen(panel: Locator, page: Page) -> None:
    panel.get_by_role("combobox", name="rung").select_option("naive")
    expect(reading(panel)).to_contain_text("4 ms")
    size = panel.get_by_role("slider", name="size")
    expect(size).to_have_attribute("aria-valuetext", "1024")
    size.press("ArrowLeft")
    expect(reading(panel)).to_contain_text("100 µs")
    expect(size).to_have_attribute("aria-valuetext", "256")
    panel.get_by_role("combobox", name="value of timer").select_option("host")
    expect(reading(panel)).to_contain_text("25 µs")
    expect(box(panel, "timer")).not_to_be_checked()
    panel.get_by_role("combobox", name="value of l2").select_option("rotate")
    expect(panel.get_by_role("status").filter(has_text="is not in this recorded run")).to_be_visible()
    shot(page, "4-not-recorded")


def tab_to(page: Page, control: Locator) -> None:
    """Press Tab until the control has the focus, at most 10 times."""
    for _ in range(10):
        page.keyboard.press("Tab")
        if control.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{control} is not reached by Tab")


def test_the_keyboard_alone_is_enough(panel: Locator, page: Page) -> None:
    panel.get_by_role("combobox", name="rung").focus()
    page.keyboard.press("ArrowUp")
    expect(reading(panel)).to_contain_text("4 ms")
    page.keyboard.press("ArrowDown")
    expect(reading(panel)).to_contain_text("140 µs")
    tab_to(page, panel.get_by_role("slider", name="size"))
    page.keyboard.press("ArrowLeft")
    expect(reading(panel)).to_contain_text(re.compile(r"(?<!\d)40 µs → "))
    tab_to(page, box(panel, "l2"))
    page.keyboard.press("Space")
    expect(reading(panel)).to_contain_text("32 µs")
    tab_to(page, panel.get_by_role("button", name=OTHERS))
    page.keyboard.press("Enter")
    expect(box(panel, "queue")).to_be_visible()
    tab_to(page, box(panel, "queue"))
    page.keyboard.press("Space")
    expect(reading(panel)).to_contain_text("52 µs")


def test_all_naive(panel: Locator, page: Page) -> None:
    panel.get_by_role("button", name="all naive").click()
    expect(box(panel, "warmup")).not_to_be_checked()
    shot(page, "5-naive")


def test_two_panels_are_independent(panel: Locator, page: Page) -> None:
    box(panel, "l2").uncheck()
    expect(reading(panel)).to_contain_text("112 µs")
    other = cell(page, 2)
    other.get_by_role("slider", name="size").press("ArrowLeft")
    expect(reading(other)).to_contain_text(re.compile(r"(?<!\d)40 µs → "))
    expect(reading(panel)).to_contain_text("112 µs")


def test_the_ladder_is_climbed_by_keyboard(page: Page) -> None:
    shown = cell(page, 3)
    words = shown.get_by_role("status")
    expect(words).to_contain_text("tiles_2d at 4096: 5.610 ms")
    shown.get_by_role("combobox", name="rung").focus()
    tab_to(page, shown.get_by_role("button", name="next rung"))
    page.keyboard.press("Enter")
    expect(words).to_contain_text("vectorized at 4096: 3.890 ms")
    expect(shown.get_by_role("img", name="vectorized at 4096")).to_be_visible()
    expect(shown.get_by_role("row", name="of cuBLAS")).to_contain_text("68.5 %")
    diff = shown.get_by_role("region", name="06_vectorized.cu against 05_tiles_2d.cu")
    expect(diff).not_to_contain_text("//")
    tab_to(page, shown.get_by_role("checkbox", name="whole file, with comments"))
    page.keyboard.press("Space")
    expect(diff).to_contain_text("//")
    tab_to(page, diff)
    page.keyboard.press("ArrowDown")  # a long file scrolls in its box
    page.wait_for_function("() => document.activeElement.scrollTop > 0")
    shot(page, "6-ladder")
    shown.get_by_role("slider", name="size").press("Home")
    expect(words).to_contain_text("vectorized at 256")


def test_the_ablation_follows_rung_and_size(page: Page) -> None:
    shown = cell(page, 4)
    expect(shown.get_by_role("row", name="3 L2 stays warm")).to_contain_text("+31.0 %")
    shown.get_by_role("combobox", name="rung").select_option("naive")
    shown.get_by_role("slider", name="size").press("End")
    expect(shown.get_by_role("table", name="naive at 4096")).to_be_visible()
    expect(shown.get_by_role("img").first).to_be_visible()
    shot(page, "7-ablation")


def test_every_control_has_a_name(page: Page) -> None:
    folds = page.get_by_role("button", name=OTHERS).all()
    for fold in folds:
        fold.click()
    assert page.locator(".worklog :is(input, select, button)").count() > 2 * 2 * len(PITFALLS)
    assert page.evaluate(UNNAMED) == []
    for fold in folds:
        fold.click()


def test_pictures_and_words_follow_a_dark_page(page: Page, panel: Locator) -> None:
    box(panel, "l2").uncheck()
    comparison, picture = panel.get_by_text("% lower"), panel.get_by_role("img")
    expect(comparison).to_have_css("color", "rgb(213, 94, 0)")
    light = picture.get_attribute("src")
    page.evaluate(THEME, "JupyterLab Dark")
    expect(comparison).to_have_css("color", "rgb(242, 138, 75)")
    expect(picture).to_have_count(1)
    assert picture.get_attribute("src") != light
    shot(page, "8-dark")
    page.evaluate(THEME, "JupyterLab Light")
    expect(comparison).to_have_css("color", "rgb(213, 94, 0)")


def test_measuring_can_be_cancelled_and_ends_with_the_kernel(opened: Opened, lab: Lab, runs: None) -> None:
    def child() -> int:
        return int((lab.folder / "pid").read_text())

    (lab.folder / "seconds").write_text("60")
    job = str(Path(__file__).parents[1] / "lab" / "stand_in_job.py")
    with opened("live", of_cells(LOAD + LIVE.format(job=job))) as page:
        status, measure = page.get_by_role("status"), page.get_by_role("button", name="measure")
        measure.click()
        expect(status.filter(has_text="with l2=warm")).to_be_visible()
        expect(measure).to_be_disabled()
        box(page.locator(".worklog"), "l2").click()  # the page answers while it measures
        expect(reading(page.locator(".worklog").first)).to_contain_text(UNBIASED)
        box(page.locator(".worklog"), "l2").click()
        expect(status.filter(has_text=re.compile(r"with l2=warm · \d+ s, about \d+ s left"))).to_be_visible()
        page.get_by_role("button", name="cancel").click()
        expect(status.filter(has_text="cancelled; finished measurements are in")).to_be_visible()
        assert gone(child())
        (lab.folder / "seconds").write_text("0")
        measure.click()
        expect(page.get_by_text("live · NVIDIA H200 · clocks as found · 2026-11-21").first).to_be_visible()
        (lab.folder / "seconds").write_text("60")
        measure.click()
        expect(status.filter(has_text="with l2=warm")).to_be_visible()
        pid = child()
        assert not gone(pid)
        page.evaluate(RESTART)
        until(lambda: gone(pid))


def test_without_a_gpu_measure_is_disabled_with_the_reason(panel: Locator) -> None:
    expect(panel.get_by_role("button", name="measure")).to_be_disabled()
    expect(panel.get_by_role("status").filter(has_text="measure: WORKLOG_SOURCE=recorded")).to_be_visible()


def settled(page: Page) -> Any:
    """Wait until every cell has run; the errors of all cells."""
    return page.evaluate(
        """async () => {
            const cells = [...window.jupyterapp.shell.currentWidget.content.model.cells].filter(c => c.type === 'code');
            while (cells.some(c => c.executionState !== 'idle' || !c.executionCount))
                await new Promise(done => setTimeout(done, 100));
            return cells.flatMap(c => c.outputs.toJSON().filter(o => o.output_type === 'error').map(o => o.evalue));
        }"""
    )
