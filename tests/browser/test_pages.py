"""The notebook pages in a real JupyterLab: mouse, keyboard, screen reader, dark theme, and a child process that ends
with the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import (
    OTHERS,
    RESTART,
    UNNAMED,
    Lab,
    Opened,
    axe_findings,
    cell,
    of_cells,
    reading,
    rgb,
    tab_to,
)
from tests.lab.grid import small_grid
from tests.lab.waiting import gone, until
from tests.plots.conftest import full_run
from worklog.plots.figure import DARK, LIGHT
from worklog.settings import PITFALLS

LOAD = """
from pathlib import Path
from worklog import lab
from worklog.runs.run import Run
grid, run = (Run.load(Path(name), origin="recorded") for name in ("grid.json", "run.json"))
"""
PANEL = 'lab.panel("warptiled", 1024, run=grid)'
LADDER = 'lab.ladder("tiles_2d", 4096, run=run)'
ABLATION = 'lab.ablation("warptiled", 512, run=run)'

# The panel as on a machine with a GPU. It takes its time from row to row, and its job as long as a file says.
LIVE = """
import sys, time
from worklog.lab import panel_page
from worklog.lab.panel_answer import PanelChoice
show = panel_page.Row.show
def slowly(*how):
    time.sleep(0.05)
    return show(*how)
panel_page.Row.show = slowly
panel_page.why_not_live = lambda: None
panel_page.Panel(PanelChoice([grid], "warptiled", 1024, l2="warm"), (sys.executable, {job!r}, "seconds", "pid"))
"""
THEME = "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})"
# Every drop-down list whose chosen word is wider than its place.
CUT_OFF = """panel => { const pen = document.createElement('canvas').getContext('2d');
    return [...panel.querySelectorAll('select')].filter(list => {
        const style = getComputedStyle(list); pen.font = style.font;
        const place = list.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        const wide = [...list.options].map(one => pen.measureText(one.text.replace(/.not.recorded.$/, '')).width);
        return list.checkVisibility() && Math.max(...wide) > place;
    }).map(list => list.value); }"""
# Everything that is wider than its box, but for what may be: tables, pictures and source scroll.
CLIPPED = """page => [...page.querySelectorAll('*')].filter(part => part.checkVisibility() && part.clientWidth > 0
    && part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX !== 'visible'
    && !part.matches('.worklog-scrolls, pre')).map(part => part.outerHTML)"""
# Until the kernel has handled every click: its messages may overtake each other.
SETTLED = """async () => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    for (let idle = 0; idle < 5; idle = kernel.status === 'idle' ? idle + 1 : 0)
        await new Promise(done => setTimeout(done, 100));
}"""
UNBIASED = "this is the unbiased reading"


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
def panel(page: Page) -> Locator:
    """The first panel, unbiased and folded."""
    shown = cell(page, 1)
    shown.get_by_role("combobox", name="rung").select_option("warptiled")
    shown.get_by_role("button", name="all unbiased").click()
    shown.get_by_role("slider", name="size").press("End")
    expect(reading(shown)).to_contain_text("140 µs → 15.3 TFLOP/s")
    if box(shown, "queue").is_visible():
        shown.get_by_role("button", name=OTHERS).click()
        expect(box(shown, "queue")).to_be_hidden()
    return shown


def box(panel: Locator, setting: str) -> Locator:
    """The check box of one setting."""
    [number] = [f"{g.article} " if g.article else "" for g in PITFALLS if g.setting == setting]
    return panel.get_by_role("checkbox", name=number + setting)


def side_by_side(one: Locator, other: Locator) -> bool:
    """Whether one is left of the other at the same height; not yet, while a picture is being replaced."""
    left, right = one.bounding_box(), other.bounding_box()
    if not (left and right):
        return False
    return left["x"] + left["width"] <= right["x"] and right["y"] < left["y"] + left["height"]


def test_each_fix_turned_off_moves_the_reading_of_this_panel_only(panel: Locator, page: Page) -> None:
    expect(panel.get_by_role("button", name="measure")).to_be_disabled()
    expect(panel.get_by_role("status").filter(has_text="measure: WORKLOG_SOURCE=recorded")).to_be_visible()
    element = reading(panel).element_handle()
    assert element is not None
    box(panel, "l2").uncheck()
    expect(reading(panel)).to_contain_text("unbiased 140 µs · this reading is 20.0 % lower")
    read_out = element.evaluate("element => element.isConnected ? element.textContent : ''")
    assert "112 µs" in read_out, "a screen reader reads changes only in an element that it knows"
    panel.get_by_role("button", name=OTHERS).click()
    box(panel, "queue").uncheck()
    expect(reading(panel)).to_contain_text("132 µs")
    expect(panel.get_by_role("img")).to_be_visible()
    until(lambda: side_by_side(box(panel, "queue"), panel.get_by_role("img")))
    panel.get_by_role("combobox", name="value of timer").select_option("host")
    expect(reading(panel)).to_contain_text("5.6 times too short")
    expect(box(panel, "timer")).not_to_be_checked()
    expect(panel.get_by_text("recorded · NVIDIA H200 · clocks as found · 2026-11-21").first).to_be_visible()
    expect(panel.get_by_role("img", name="warptiled at 1024, timer = host, l2 = warm, queue = off")).to_be_visible()
    panel.get_by_role("combobox", name="value of l2").select_option("rotate (not recorded)")
    expect(panel.get_by_role("status").filter(has_text="nearest: without l2 = rotate")).to_be_visible()
    expect(panel.get_by_role("img", name="warptiled at 1024, timer = host, l2 = warm, queue = off")).to_be_visible()
    expect(panel.locator(".worklog-dimmed").get_by_role("img")).to_be_visible()
    panel.get_by_role("button", name="take the nearest").click()
    expect(panel.locator(".worklog-dimmed")).to_have_count(0)
    expect(box(panel, "l2")).to_be_checked()
    expect(reading(cell(page, 2))).to_contain_text(UNBIASED)


def test_where_the_cell_is_narrow_the_reading_stands_above_the_controls_and_no_word_is_cut(
    panel: Locator, page: Page
) -> None:
    box(panel, "l2").uncheck()
    panel.get_by_role("button", name=OTHERS).click()
    assert panel.evaluate(CUT_OFF) == []
    controls, words = panel.get_by_role("combobox", name="rung"), reading(panel)
    before = page.viewport_size
    try:
        page.set_viewport_size({"width": 960, "height": 1000})
        until(lambda: (words.bounding_box() or {"y": 1e9})["y"] < (controls.bounding_box() or {"y": 0})["y"])
        place = controls.bounding_box()
        box(panel, "l2").check()
        expect(words).to_contain_text(UNBIASED)
        assert controls.bounding_box() == place, "a click moves no control"
        assert panel.evaluate(CUT_OFF) == []
        assert panel.locator(".worklog").evaluate("one => one.scrollWidth <= one.clientWidth")
    finally:
        page.set_viewport_size(before or {"width": 1400, "height": 1000})
    until(lambda: (words.bounding_box() or {"x": 0})["x"] > (controls.bounding_box() or {"x": 1e9})["x"])


@pytest.mark.parametrize("width", [390, 1280])
def test_at_any_width_axe_finds_nothing_and_nothing_is_clipped(panel: Locator, page: Page, width: int) -> None:
    before = page.viewport_size
    page.evaluate("() => { jupyterapp.shell.collapseLeft(); jupyterapp.shell.collapseRight(); }")
    panel.get_by_role("button", name="all naive").click()
    expect(reading(panel)).to_contain_text("the gate is off")
    box(panel, "gate").check()
    try:
        page.set_viewport_size({"width": width, "height": 1000})
        for number in (1, 3, 4):
            assert cell(page, number).locator(".worklog").evaluate(CLIPPED) == []
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            page.evaluate(THEME, theme)
            expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
            expect(page.locator("#jupyterlab-splash")).to_have_count(0)
            assert axe_findings(page, ".worklog") == []
        for title in panel.get_by_text("L2 stays warm"), panel.get_by_text("the launch is asynchronous"):
            inner, outer = title.bounding_box(), panel.locator(".worklog").bounding_box()
            assert inner and outer and inner["x"] + inner["width"] <= outer["x"] + outer["width"]
    finally:
        page.set_viewport_size(before or {"width": 1400, "height": 1000})
        page.evaluate("() => jupyterapp.shell.expandLeft()")


def test_the_stored_picture_is_hidden_where_the_page_is_drawn(page: Page) -> None:
    for number in (1, 3, 4):
        stored = cell(page, number).locator(".jp-RenderedImage img")
        expect(stored).to_have_count(1)
        expect(stored).to_be_hidden()
    drawn = cell(page, 1).locator(".worklog")
    drawn.evaluate("one => one.classList.replace('worklog', 'as-if-not-drawn')")
    try:
        expect(cell(page, 1).locator(".jp-RenderedImage img")).to_be_visible()
    finally:
        cell(page, 1).locator(".as-if-not-drawn").evaluate("one => one.classList.replace('as-if-not-drawn', 'worklog')")


def test_the_keyboard_alone_is_enough(panel: Locator, page: Page) -> None:
    panel.get_by_role("combobox", name="rung").focus()
    page.keyboard.press("ArrowUp")
    expect(reading(panel)).to_contain_text("4 ms")
    page.keyboard.press("ArrowDown")
    expect(reading(panel)).to_contain_text("140 µs")
    size = panel.get_by_role("slider", name="size")
    tab_to(page, size)
    page.keyboard.press("ArrowLeft")
    expect(reading(panel)).to_contain_text(re.compile(r"(?<!\d)40 µs → "))
    expect(size).to_have_attribute("aria-valuetext", "256")
    tab_to(page, box(panel, "l2"))
    page.keyboard.press("Space")
    expect(reading(panel)).to_contain_text("32 µs")
    tab_to(page, panel.get_by_role("button", name=OTHERS))
    page.keyboard.press("Enter")
    expect(box(panel, "queue")).to_be_visible()
    tab_to(page, box(panel, "queue"))
    page.keyboard.press("Space")
    expect(reading(panel)).to_contain_text("52 µs")


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
    until(lambda: side_by_side(shown.get_by_role("table").first, shown.get_by_role("img")))


def test_controls_have_names_and_pictures_and_words_follow_a_dark_page(page: Page, panel: Locator) -> None:
    panel.get_by_role("button", name=OTHERS).click()
    assert page.locator(".worklog :is(input, select, button)").count() > 2 * 2 * len(PITFALLS)
    assert page.locator(".worklog").evaluate_all(UNNAMED) == []
    box(panel, "l2").uncheck()
    comparison, picture = panel.get_by_text("% lower"), panel.get_by_role("img")
    expect(comparison).to_have_css("color", rgb(LIGHT["alert"]))
    expect(picture).to_have_css("opacity", "1")
    page.evaluate(THEME, "JupyterLab Dark")
    expect(comparison).to_have_css("color", rgb(DARK["alert"]))
    expect(picture).to_have_css("opacity", "0")
    expect(picture.locator("xpath=..")).to_have_css("background-image", re.compile(r'^url\("data:image/svg'))
    page.evaluate(THEME, "JupyterLab Light")
    expect(comparison).to_have_css("color", rgb(LIGHT["alert"]))
    expect(picture).to_have_css("opacity", "1")


def test_a_slow_page_takes_every_click_and_a_measurement_ends_with_cancel_or_kernel(
    opened: Opened, lab: Lab, runs: None
) -> None:
    seconds, pid, job = lab.folder / "seconds", lab.folder / "pid", Path(__file__).parents[1] / "lab/stand_in_job.py"
    seconds.write_text("60")
    with opened("live", of_cells(LOAD + LIVE.format(job=str(job)))) as page:
        panel, last = cell(page, 0), PITFALLS[-1].setting
        values = panel.get_by_role("combobox", name=f"value of {last}")
        panel.get_by_role("button", name=OTHERS).click()
        box(panel, "l2").click()
        page.wait_for_timeout(200)  # some rows are shown, the last one is not
        box(panel, "l2").click()
        expect(box(panel, "l2")).not_to_be_checked()
        page.wait_for_timeout(200)
        box(panel, last).click()  # its first message arrives on another thread of the kernel
        expect(values).to_have_value(str(PITFALLS[-1].biased[0]))
        expect(box(panel, last)).not_to_be_checked()
        expect(box(panel, "l2")).not_to_be_checked()
        expect(reading(panel)).to_contain_text("112 µs")
        box(panel, last).click()
        expect(values).to_have_value(str(PITFALLS[-1].unbiased))
        page.evaluate(SETTLED)

        status, measure = panel.get_by_role("status"), panel.get_by_role("button", name="measure")
        measure.click()
        expect(status.filter(has_text=re.compile(r"with l2=warm · \d+ s, about \d+ s left"))).to_be_visible()
        expect(measure).to_be_disabled()
        box(panel, "l2").click()  # the page answers while it measures
        expect(reading(panel)).to_contain_text(UNBIASED)
        box(panel, "l2").click()
        expect(reading(panel)).to_contain_text("112 µs")
        panel.get_by_role("button", name="cancel").click()
        expect(status.filter(has_text="cancelled; finished measurements are in")).to_be_visible()
        assert gone(int(pid.read_text()))
        seconds.write_text("0")
        measure.click()
        expect(panel.get_by_text("live · NVIDIA H200 · clocks as found").first).to_be_visible()
        seconds.write_text("60")
        measure.click()
        expect(status.filter(has_text="with l2=warm")).to_be_visible()
        child = int(pid.read_text())
        assert not gone(child)
        page.evaluate(RESTART)
        until(lambda: gone(child))
