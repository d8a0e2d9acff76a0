"""What the three pages have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import pytest

from tests.lab.grid import small_grid
from tests.plots.conftest import full_run
from worklog import lab
from worklog.lab.controls import Page, SizeSlider

PAGES: dict[str, Callable[[], Page]] = {
    "panel": lambda: lab.panel("warptiled", 1024, run=small_grid()),
    "ladder": lambda: lab.ladder("warptiled", 1024, run=full_run()),
    "ablation": lambda: lab.ablation("warptiled", 1024, run=full_run()),
}


@pytest.fixture(params=PAGES)
def made(request: pytest.FixtureRequest) -> Callable[[], Page]:
    return PAGES[request.param]


def descendants(widget: Any) -> list[Any]:
    return [widget, *(found for child in getattr(widget, "children", ()) for found in descendants(child))]


def test_every_control_has_a_name_and_two_pages_share_nothing(made: Callable[[], Page]) -> None:
    one, other = made(), made()
    inside = descendants(one.box)
    controls = [w for w in inside if isinstance(w, (widgets.Checkbox, widgets.Dropdown, widgets.Button))]
    assert controls and all(w.description for w in controls)
    assert len([w for w in inside if isinstance(w, SizeSlider)]) == 1
    before = other.words.value
    one.kernel.value = "naive"
    assert one.words.value != before == other.words.value
    assert other.kernel.value == "warptiled"


def test_a_page_without_a_kernel_gets_text_and_html(made: Callable[[], Page]) -> None:
    shown = made()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"].startswith("warptiled at 1024")
    for kind in ("text/plain", "text/html"):
        assert "TFLOP/s" in shown[kind] and "recorded · NVIDIA H200" in shown[kind]
