"""The panel in a real JupyterLab: a fix turned off moves the number, by mouse and by keyboard; its source is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Lab
from tests.lab.grid import small_grid
from tests.lab.waiting import gone, until

RUN = """
from pathlib import Path
from worklog import lab
from worklog.runs import Run
lab.panel("warptiled", 1024, run=Run.load(Path("grid.json"), origin="recorded"))
"""

# The panel as on a machine with a GPU; its job is a stand-in that takes as long as a file says.
LIVE = """
import sys
from pathlib import Path
from worklog.lab import view
from worklog.lab.model import Model
from worklog.runs import Run
view.why_not_live = lambda: None
run = Run.load(Path("grid.json"), origin="recorded")
panel = view.Panel(Model([run], "warptiled", 1024, l2="warm"), (sys.executable, {job!r}, "seconds", "pid"))
panel
"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"


@pytest.fixture
def panel(lab: Lab, notebook: Callable[..., Page]) -> Page:
    """The page of a notebook whose only cell shows a panel on the grid made by hand."""
    small_grid().save(lab.folder / "grid.json")
    page = notebook(RUN)
    expect(page.get_by_role("status").filter(has_text="this is the honest reading")).to_be_visible()
    return page


def reading(page: Page) -> Locator:
    """The words of the answer."""
    return page.get_by_role("status").filter(has_text="→")


def shot(page: Page, name: str) -> None:
    """A picture for the eye, where somebody asked for them."""
    folder = os.environ.get("WORKLOG_SCREENSHOTS")
    if folder:
        page.wait_for_timeout(300)
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_each_fix_turned_off_moves_the_reading(panel: Page) -> None:
    shot(panel, "1-honest")
    expect(reading(panel)).to_contain_text("140 µs → 15.3 TFLOP/s")
    panel.get_by_role("checkbox", name="3 l2").uncheck()
    expect(reading(panel)).to_contain_text("112 µs")
    expect(reading(panel)).to_contain_text("honest: 140 µs; this reading lies by −20.0 %")
    shot(panel, "2-l2")
    panel.get_by_role("button", name="gremlins that the article does not name").click()
    panel.get_by_role("checkbox", name="queue").uncheck()
    expect(reading(panel)).to_contain_text("132 µs")
    shot(panel, "3-queue")
    panel.get_by_role("checkbox", name="2 timer").uncheck()
    expect(reading(panel)).to_contain_text("25 µs")
    expect(reading(panel)).to_contain_text("5.6 times too short")
    shot(panel, "4-timer")
    expect(panel.get_by_text("recorded · NVIDIA H200 · clocks as found · 2026-11-21").first).to_be_visible()
    expect(panel.get_by_role("img", name="warptiled at 1024, timer = host, l2 = warm, queue = off")).to_be_visible()
    panel.get_by_role("button", name="all honest").click()
    expect(reading(panel)).to_contain_text("140 µs")
    expect(panel.get_by_role("checkbox", name="3 l2")).to_be_checked()


def test_a_value_a_rung_and_a_size_are_chosen(panel: Page) -> None:
    panel.get_by_role("combobox", name="rung").select_option("naive")
    expect(reading(panel)).to_contain_text("4 ms")
    panel.get_by_role("slider", name="size").press("ArrowLeft")
    expect(reading(panel)).to_contain_text("100 µs")
    panel.get_by_role("combobox", name="value of timer").select_option("host")
    expect(reading(panel)).to_contain_text("25 µs")
    expect(panel.get_by_role("checkbox", name="2 timer")).not_to_be_checked()
    panel.get_by_role("combobox", name="value of l2").select_option("rotate")
    expect(panel.get_by_role("status").filter(has_text="is not in this recorded run")).to_be_visible()
    shot(panel, "5-not-recorded")


def tab_to(page: Page, role: Any, name: str | None = None) -> None:
    """Press Tab until the control has the focus, a few times at most: a widget may have two stops."""
    control = page.get_by_role(role) if name is None else page.get_by_role(role, name=name)
    for _ in range(10):
        page.keyboard.press("Tab")
        if control.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{role} {name} is not reached by Tab")


def test_the_keyboard_alone_is_enough(panel: Page) -> None:
    panel.get_by_role("combobox", name="rung").focus()
    tab_to(panel, "slider", "size")
    panel.keyboard.press("ArrowLeft")
    expect(reading(panel)).to_contain_text("40 µs → ")
    expect(reading(panel)).not_to_contain_text("140 µs")
    tab_to(panel, "checkbox", "1 clocks")
    tab_to(panel, "checkbox", "3 l2")
    panel.keyboard.press("Space")
    expect(reading(panel)).to_contain_text("32 µs")
    tab_to(panel, "button", "gremlins that the article does not name")
    panel.keyboard.press("Enter")
    expect(panel.get_by_role("checkbox", name="queue")).to_be_visible()
    tab_to(panel, "checkbox", "queue")
    panel.keyboard.press("Space")
    expect(reading(panel)).to_contain_text("52 µs")


def test_without_a_gpu_measure_is_off_and_says_why(panel: Page) -> None:
    if panel.get_by_role("button", name="measure").is_enabled():
        pytest.skip("there is a GPU here")
    expect(panel.get_by_role("status").filter(has_text="measure: ")).to_be_visible()


def test_all_naive(panel: Page) -> None:
    panel.get_by_role("button", name="all naive").click()
    expect(panel.get_by_role("checkbox", name="4 warmup")).not_to_be_checked()
    expect(reading(panel)).to_contain_text("the gate is off")
    shot(panel, "6-naive")


@pytest.fixture
def live(lab: Lab, notebook: Callable[..., Page]) -> Page:
    """The page of a notebook with a panel that measures by a stand-in, started."""
    small_grid().save(lab.folder / "grid.json")
    (lab.folder / "seconds").write_text("60")
    page = notebook(LIVE.format(job=str(Path(__file__).parents[1] / "lab" / "stand_in_job.py")))
    page.get_by_role("button", name="measure").click()
    expect(page.get_by_role("status").filter(has_text="with l2=warm")).to_be_visible()
    return page


def test_cancel_ends_a_measurement_and_a_second_one_is_taken(live: Page, lab: Lab) -> None:
    shot(live, "7-measuring")
    expect(live.get_by_role("button", name="measure")).to_be_disabled()
    live.get_by_role("button", name="cancel").click()
    expect(live.get_by_role("status").filter(has_text="cancelled; what was finished is in")).to_be_visible()
    assert gone(int((lab.folder / "pid").read_text()))
    (lab.folder / "seconds").write_text("0")
    live.get_by_role("button", name="measure").click()
    expect(live.get_by_text("live · NVIDIA H200 · clocks as found · 2026-11-21").first).to_be_visible()
    shot(live, "8-measured")


def test_a_kernel_restarted_while_it_measures_leaves_no_process(live: Page, lab: Lab) -> None:
    pid = int((lab.folder / "pid").read_text())
    assert not gone(pid)
    live.evaluate(RESTART)
    until(lambda: gone(pid))
