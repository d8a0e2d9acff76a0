"""The ablation's page: choose a rung and a size, see what each lie alone does to the reading. Every handler is one
call of a method of Ablation.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from worklog.errors import WorklogError
from worklog.lab.controls import Choices, Dropdown, Status, box, slider
from worklog.lab.lies import Lies, html, picture, said_html, text
from worklog.lab.theme import image
from worklog.lab.words import html_trouble, in_lines

NAME = {"description_width": "3.2em"}
WIDE = widgets.Layout(min_width="min(34em, 100%)", max_width="46em", flex="1 1 24em")


class Ablation:
    """The page as a notebook shows it. `lies` holds what is chosen; `box` is the widget around all others."""

    def __init__(self, biased: Lies) -> None:
        self.biased, self._choices = biased, Choices(self.show)
        layout = widgets.Layout(width="22em")
        self.rung = Dropdown(options=biased.kernels, description="rung", style=NAME, layout=layout)
        self.size = slider("size", biased.shapes, lambda index: self._choices.take(lambda: self._choose_shape(index)))
        self.words, self.table, self.picture = Status(), widgets.HTML(), widgets.HTML(layout=WIDE)
        self.rung.observe(lambda change: self._choices.take(lambda: biased.choose(change["new"])), "value")
        left = widgets.VBox([self.rung, self.size, self.words, self.table], layout=widgets.Layout(flex="0 1 auto"))
        self.box = box([left, self.picture], widgets.HBox, dict(flex_flow="row wrap", grid_gap="0 1.5em"))
        self.show()

    def _choose_shape(self, index: int) -> None:
        self.biased.choose_shape(self.biased.shapes[index])

    def show(self) -> None:
        """Make the widgets show what is chosen."""
        with self._choices.setting():
            self.rung.options, self.rung.value = self.biased.kernels, self.biased.kernel
            self.size.words = [str(shape) for shape in self.biased.shapes]
            self.size.index = self.biased.shapes.index(self.biased.shape)
        try:
            told = self.biased.told()
        except WorklogError as error:
            self.words.value, self.table.value, self.picture.value = html_trouble(str(error)), "", ""
            return
        self.words.value, self.table.value, self.picture.value = said_html(told), html(told), image(picture(told))

    def _repr_mimebundle_(self, **how: Any) -> Any:
        """The widgets, and for a page without a kernel the effects in words."""
        bundle = self.box._repr_mimebundle_(**how)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": in_lines(self.told())}

    def told(self) -> str:
        """What the page shows, as text."""
        try:
            return text(self.biased.told())
        except WorklogError as error:
            return str(error)
