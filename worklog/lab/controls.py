"""What the lab's pages have in common besides ipywidgets' own controls: a slider that a screen reader can name, words
that it speaks when they change, and the box around a page that knows the palettes.

ipywidgets' sliders give their handle no accessible name and say an index instead of the word, and nothing but script
can tell them; so this one is the browser's native control with a label.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets

from worklog.lab.theme import SHEET

# With JupyterLab's subshells the kernel hears a user on two threads, a widget's first message on one and its others on
# the other. What comes while a choice is being shown waits for it.
ONE_AT_A_TIME = threading.RLock()


class OneAtATime(widgets.Widget):
    """Takes what a user says in turn. While a widget takes a message, traitlets makes one change of several: set by the
    page on another thread just then, it would tell its observers of the page's value and never of the user's.
    """

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take a message of the user's, echo and observers included."""
        with ONE_AT_A_TIME:
            super().set_state(sync_data)


class Checkbox(OneAtATime, widgets.Checkbox):
    """ipywidgets' own, in turn."""


class Dropdown(OneAtATime, widgets.Dropdown):
    """ipywidgets' own, in turn."""


class ToggleButton(OneAtATime, widgets.ToggleButton):
    """ipywidgets' own, in turn."""


class Choices:
    """What a user does to a page's widgets, told apart from what they say while they are being set. show: makes the
    page show what was chosen.
    """

    def __init__(self, show: Callable[[], None]) -> None:
        self._show, self._setting = show, False

    def take(self, choose: Callable[[], None]) -> None:
        """Choose, and show it; nothing while the widgets are being set."""
        with ONE_AT_A_TIME:
            if not self._setting:
                choose()
                self._show()

    @contextmanager
    def setting(self) -> Iterator[None]:
        """While open, what the widgets say is no choice."""
        self._setting = True
        try:
            yield
        finally:
            self._setting = False


ESM = """
function render({ model, el }) {
    const label = document.createElement("label");
    const name = document.createElement("span");
    const range = document.createElement("input");
    const said = document.createElement("span");  // for the eye; a reader says aria-valuetext
    name.textContent = model.get("name");
    said.ariaHidden = "true";
    range.type = "range";
    range.min = 0;
    range.setAttribute("aria-label", model.get("name"));
    const show = () => {
        range.max = model.get("words").length - 1;
        range.value = model.get("index");
        say();
    };
    const say = () => {
        said.textContent = model.get("words")[range.value];
        range.setAttribute("aria-valuetext", said.textContent);
    };
    range.addEventListener("input", say);
    range.addEventListener("change", () => { model.set("index", Number(range.value)); model.save_changes(); });
    model.on("change:index", show);
    model.on("change:words", show);
    label.append(name, range, said);
    el.append(label);
    show();
}
export default { render };
"""
# Words where ipywidgets' own stand, long lines that scroll in their own box, a tick beside its words, and an arrow that
# can be seen on a dark page: theirs is a picture in black.
MENDED = """
.worklog .widget-html-content { min-width: 0; }
.worklog [role=status] { margin: 2px; }
.worklog .widget-checkbox input[type=checkbox] { align-self: center; vertical-align: middle; margin-top: -2px; }
[data-jp-theme-light=false] .worklog .widget-dropdown > select { background-image: none; appearance: auto; }
"""
# As wide and as high as ipywidgets' own controls, in their font and colours.
CSS = """
.worklog-slider label {
    display: flex; gap: 4px; width: 22em; height: 28px; align-items: center;
    font-size: var(--jp-widgets-font-size, 13px); color: var(--jp-widgets-label-color, inherit);
}
.worklog-slider span { min-width: 3.2em; text-align: right; }
.worklog-slider input { flex: 1; accent-color: var(--jp-brand-color1, auto); }
"""


# A reader speaks what changes in an element that it knows already, and not an element that comes with its words.
STATUS_ESM = """
function render({ model, el }) {
    const said = document.createElement("div");
    const show = () => { said.innerHTML = model.get("value"); };
    said.setAttribute("role", "status");
    el.append(said);
    model.on("change:value", show);
    show();
}
export default { render };
"""

# JupyterLab goes from cell to cell and folds headings by arrows, even where a control has the focus that they move.
KEYS_ESM = """
function render() {
    const keep = (event) => {
        const moves = /^(Arrow|Page|Home|End)/.test(event.key);
        if (moves && event.target.closest?.(".worklog")) event.stopPropagation();
    };
    window.addEventListener("keydown", keep, true);
    return () => window.removeEventListener("keydown", keep, true);
}
export default { render };
"""


class Keys(anywidget.AnyWidget):
    """Nothing to be seen; as long as it is shown, the keys that move a control are the control's."""

    _esm = KEYS_ESM


class Status(anywidget.AnyWidget):
    """HTML that is read aloud when it changes."""

    _esm = STATUS_ESM
    value = traitlets.Unicode().tag(sync=True)


class Slider(OneAtATime, anywidget.AnyWidget):
    """words: what can be chosen, left to right. index: of the one that is. name: what it is a choice of."""

    _esm = ESM
    _css = CSS
    name = traitlets.Unicode().tag(sync=True)
    words = traitlets.List(traitlets.Unicode()).tag(sync=True)
    index = traitlets.Int(0).tag(sync=True)


def slider(name: str, words: Sequence[Any], chosen: Callable[[int], None]) -> Slider:
    """A slider over these words that calls `chosen` with the index of the one chosen."""
    made = Slider(name=name, words=[str(word) for word in words])
    made.add_class("worklog-slider")
    made.observe(lambda change: chosen(change["new"]), "index")
    return made


def box(
    parts: Sequence[widgets.Widget], kind: type[widgets.Box] = widgets.VBox, layout: Mapping[str, str] | None = None
) -> widgets.Box:
    """Widgets on a page that knows the palettes and keeps its keys."""
    style = widgets.HTML(f"<style>{SHEET}{MENDED}</style>", layout=widgets.Layout(display="none"))
    keys = Keys(layout=widgets.Layout(display="none"))
    made = kind([*parts, style, keys], layout=widgets.Layout(**(layout or {})))
    made.add_class("worklog")
    return made
