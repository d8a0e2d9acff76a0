"""The first notebooks as a reader meets them: opened in JupyterLab, run from top to bottom, their panel answering."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_pages import reading, settled, shot
from worklog.lab.notebooks import FOLDER

MINUTES = 2 * 60_000


@pytest.mark.parametrize("name", ["00_start_here", "01_four_gremlins"])
def test_a_notebook_runs_from_top_to_bottom(name: str, opened: Callable[..., AbstractContextManager[Page]]) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with opened(name, notebook) as page:
        page.set_default_timeout(MINUTES)
        assert settled(page) == []
        assert page.get_by_role("img").count() >= 1
        if name == "01_four_gremlins":
            panel = page.locator(".worklog").first
            expect(reading(panel)).to_contain_text("µs →")
            before = reading(panel).inner_text()
            panel.get_by_role("checkbox", name="3 l2").click()
            expect(reading(panel)).not_to_have_text(before)
            expect(reading(panel)).to_contain_text("of cuBLAS")
        shot(page, name)
