"""A page in a notebook: panel.js draws it, Python answers what is chosen there."""

from __future__ import annotations

import threading
from html import escape
from typing import Any

import anywidget
import traitlets

from worklog.analysis.html import LAB, palette, part
from worklog.plots import DARK, DARK_PAGES, LIGHT

# With JupyterLab's subshells the kernel handles a user's events on two threads: a widget's first message on one, its
# other messages on the other. An event that arrives while another one is being answered waits on this lock.
ONE_AT_A_TIME = threading.RLock()


class Page(anywidget.AnyWidget):
    """page: which one to draw. table: what can be chosen. chosen: places in the table's lists, which the page sets.
    answer: what is shown for it. A page defines answered(), and text(), the same in lines without a running kernel.
    """

    _esm = LAB / "panel.js"
    _css: str = (
        palette(".worklog", LIGHT, "light")
        + "".join(palette(f"{page} .worklog", DARK, "dark") for page in DARK_PAGES)
        + part("panel.css")
    )
    page = traitlets.Unicode().tag(sync=True)
    table = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Dict().tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.show()
        self.observe(self.show, "chosen")

    def show(self, _: object = None) -> None:
        """Answer what is chosen."""
        with ONE_AT_A_TIME:
            self.answer = self.answered()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the user chose, one message at a time."""
        with ONE_AT_A_TIME:
            super().set_state(sync_data)

    def _repr_mimebundle_(self, **how: Any) -> Any:
        lines = [(line, "pre" if "\n" in line else "p") for line in self.text()]  # a table has several
        html = "".join(f"<{tag}>{escape(line)}</{tag}>" for line, tag in lines)
        words = {"text/plain": "\n".join(line for line, _ in lines), "text/html": html}
        data, metadata = super()._repr_mimebundle_(**how) or ({}, {})
        return data | words, metadata
