"""A page of widgets for a choice: its rung, its size and its result; controls that work with a screen reader and on two
threads; and colours and pictures that follow the notebook's theme.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, Generic, TypeVar

import anywidget
import ipywidgets as widgets
import traitlets
from IPython.display import display

from worklog.errors import WorklogError
from worklog.lab.choice import Choice, Shown
from worklog.plots import DARK, DARK_PAGES, LIGHT

HERE = Path(__file__).parent
Chosen = TypeVar("Chosen", bound=Choice)

# With JupyterLab's subshells the kernel handles a user's events on two threads: a widget's first message on one, its
# other messages on the other. An event that arrives while a result is being shown waits on this lock.
ONE_AT_A_TIME = threading.RLock()


def one_at_a_time(control: widgets.Widget) -> widgets.Widget:
    """The control, which from now on handles the user's messages one at a time, echo and observers included.

    While a widget handles a message, traitlets merges changes: if the page set the widget on another thread at that
    moment, observers would see only the page's value, never the user's.
    """
    handle = control.set_state

    def set_state(message: dict[str, Any]) -> None:
        with ONE_AT_A_TIME:
            handle(message)

    control.set_state = set_state
    return control


class SizeSlider(anywidget.AnyWidget):
    """words: the sizes, left to right. index: of the chosen one. While it is on the page, the keys that move a control
    don't reach JupyterLab.
    """

    _esm = HERE / "slider.js"
    words = traitlets.List(traitlets.Unicode()).tag(sync=True)
    index = traitlets.Int(0).tag(sync=True)


class Status(anywidget.AnyWidget):
    """HTML that a screen reader reads out when it changes."""

    _esm = HERE / "status.js"
    value = traitlets.Unicode().tag(sync=True)


class Page(Generic[Chosen]):
    """A choice's rung, size and result as widgets; box is the outermost one. A page with more controls than these two
    extends set_controls().
    """

    box: widgets.Box

    def __init__(self, choice: Chosen) -> None:
        self.choice, self._setting, self.shown = choice, False, Shown(())
        layout = widgets.Layout(width="22em")
        self.kernel = widgets.Dropdown(
            options=choice.kernels, description="rung", style={"description_width": "3.2em"}, layout=layout
        )
        self.size = SizeSlider(words=[str(shape) for shape in choice.shapes])
        self.size.add_class("worklog-slider")
        self.words = Status()
        self.table, self.picture, self.details = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.on(self.kernel, "value", choice.choose_kernel)
        self.on(self.size, "index", lambda index: setattr(choice, "shape", choice.shapes[index]))

    def fill(
        self, left: Sequence[widgets.Widget], right: widgets.Widget, *below: widgets.Widget, **layout: str
    ) -> None:
        """Put the controls on the page, side by side where there is room, and show the result. layout: of the left."""
        column = widgets.VBox(left, layout=widgets.Layout(**layout))
        right.layout = widgets.Layout(min_width="min(34em, 100% - 4px)", max_width="46em", flex="1 1 24em")
        beside = widgets.HBox([column, right])
        beside.add_class("worklog-beside")
        style = widgets.HTML(f"<style>{SHEET}</style>", layout=widgets.Layout(display="none"))
        self.box = widgets.VBox([beside, *below, style])
        self.box.add_class("worklog")
        self.show()

    def on(self, control: widgets.Widget, trait: str, choose: Callable[[Any], object]) -> None:
        """Call choose with the new value when the user changes the control, then show the result."""
        one_at_a_time(control).observe(lambda change: self.take(lambda: choose(change["new"])), trait)

    def take(self, choose: Callable[[], object]) -> None:
        """Choose, then show the result. Does nothing while the page itself sets its controls."""
        with ONE_AT_A_TIME:
            if not self._setting:
                choose()
                self.show()

    def show(self) -> None:
        """Set the controls to what is chosen, and show the result or why there is none."""
        self._setting = True
        try:
            self.set_controls()
        finally:
            self._setting = False
        self.shown = shown = self.choice.shown()
        for widget in (self.picture, self.details):
            (widget.add_class if shown.dimmed else widget.remove_class)("worklog-dimmed")
        self.words.value = _words(shown.sentences, shown.colour, large=not shown.dimmed)
        self.table.value = "".join(_scrolling(table.html(), table.title) for table in shown.tables)
        picture = shown.picture and _scrolling(shown.picture.html(), shown.picture.headline)
        self.picture.value, self.details.value = picture or "", shown.details

    def set_controls(self) -> None:
        """Set every control to what is chosen, and mark the options that have no result."""
        choice, shapes = self.choice, self.choice.shapes
        offer(self.kernel, [(name, name, choice.available(kernel=name)) for name in choice.kernels], choice.kernel)
        there = {shape: shape == choice.shape or choice.available(shape=shape) for shape in shapes}
        self.size.words = [marked(str(shape), available) for shape, available in there.items()]
        self.size.index = shapes.index(choice.shape)

    def _ipython_display_(self) -> None:
        """The page, and its picture for readers without a kernel: where the widgets are drawn, page.css hides it."""
        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        with suppress(WorklogError):
            data, metadata = self.choice.chart()._repr_mimebundle_()
            del data["text/html"]  # page.css finds it as an image
            display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, **how: Any) -> Any:
        """The widgets, and for a page without a kernel the result as text and as HTML."""
        stored = self.shown.stored or self.shown.sentences
        text = "\n".join([*stored, *(table.text() for table in self.shown.tables)])
        html = _words(stored) + self.table.value + self.shown.details
        return {**self.box._repr_mimebundle_(**how), "text/plain": text, "text/html": html}


def _words(sentences: Sequence[str], second: str = "inherit", large: bool = True) -> str:
    """A line each: the first one bold, and large unless it is long; the second one in a colour."""
    styles = [f"font-size:{1.2 if large else 1}em;font-weight:600", f"color:{second}", *[""] * len(sentences)]
    return "".join(
        f'<div style="line-height:1.5;{style}">{escape(sentence).replace(" %", "&nbsp;%")}</div>'
        for sentence, style in zip(sentences, styles, strict=False)
    )


def _scrolling(html: str, name: str) -> str:
    """HTML in a box that scrolls where the page is narrower, by keyboard too."""
    return f'<div class="worklog-scrolls" tabindex="0" role="region" aria-label="{escape(name)}">{html}</div>'


def marked(word: str, available: bool) -> str:
    """A choice in words. ipywidgets can't disable one option of several."""
    return word if available else f"{word} (not recorded)"


def offer(control: widgets.Dropdown, choices: Sequence[tuple[str, Any, bool]], chosen: Any) -> None:
    """Set a drop-down list: the word and the value of each choice and whether it is available, and the chosen value."""
    options = [(marked(word, available or value == chosen), value) for word, value, available in choices]
    with control.hold_sync():  # one message: the first option must not show in between
        if tuple(options) != control.options:
            control.options = options
        control.value = chosen


def button(name: str, act: Callable[[], object], tooltip: str = "", icon: str = "") -> widgets.Button:
    """A button that is as wide as its name."""
    layout = widgets.Layout(width="auto", align_self="flex-start")
    made = widgets.Button(description=name, tooltip=tooltip, icon=icon, layout=layout)
    made.on_click(lambda _: act())
    return made


def _palette(where: str, palette: Mapping[str, str]) -> str:
    return f"{where}{{{''.join(f'--worklog-{role}:{value};' for role, value in palette.items())}}}"


SHEET = (HERE / "page.css").read_text(encoding="utf-8") + _palette(".worklog", LIGHT)
SHEET += "".join(_palette(f"{page} .worklog", DARK) for page in DARK_PAGES)
