"""The ladder's page: choose a rung and a size, see what changed against the rung before, what it costs and where it
stands. Every handler is one call of a method of Ladder.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from worklog.errors import WorklogError
from worklog.lab.controls import Checkbox, Choices, Dropdown, Status, box, slider
from worklog.lab.step_picture import body
from worklog.lab.step_words import diff_html, said_html, table_html, text
from worklog.lab.steps import Climb
from worklog.lab.theme import image
from worklog.lab.words import html_trouble, in_lines

LEFT = widgets.Layout(min_width="27em", flex="0 1 auto")
RIGHT = widgets.Layout(min_width="min(34em, 100%)", max_width="46em", flex="1 1 24em")
NAME = {"description_width": "3.2em"}


class Ladder:
    """The page as a notebook shows it. `climb` holds what is chosen; `box` is the widget around all others."""

    def __init__(self, climb: Climb) -> None:
        self.climb, self._choices = climb, Choices(self.show)
        self.rung = Dropdown(options=climb.names, description="rung", style=NAME, layout=widgets.Layout(width="22em"))
        self.size = slider("size", climb.shapes, lambda index: self._choices.take(lambda: self._choose_shape(index)))
        layout = widgets.Layout(width="auto")
        self.down = widgets.Button(description="rung before", icon="arrow-left", layout=layout)
        self.up = widgets.Button(description="next rung", icon="arrow-right", layout=layout)
        self.comments = Checkbox(description="whole file, comments too", indent=False)
        self.words = Status()
        self.table, self.picture, self.diff = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.rung.observe(lambda change: self._choices.take(lambda: climb.choose(change["new"])), "value")
        self.comments.observe(lambda _: self._choices.take(lambda: None), "value")
        self.down.on_click(lambda _: self._choices.take(lambda: climb.climb(-1)))
        self.up.on_click(lambda _: self._choices.take(lambda: climb.climb(1)))
        choices = [self.rung, self.size, widgets.HBox([self.down, self.up]), self.words, self.table]
        left = widgets.VBox(choices, layout=LEFT)
        right = widgets.VBox([self.picture], layout=RIGHT)
        upper = widgets.HBox([left, right], layout=widgets.Layout(flex_flow="row wrap", grid_gap="0 1.5em"))
        self.box = box([upper, self.comments, self.diff])
        self.show()

    def _choose_shape(self, index: int) -> None:
        self.climb.choose_shape(self.climb.shapes[index])

    def show(self) -> None:
        """Make the widgets show what is chosen."""
        with self._choices.setting():
            self.rung.value = self.climb.rung.name
            self.size.words = [str(shape) for shape in self.climb.shapes]
            self.size.index = self.climb.shapes.index(self.climb.shape)
            self.down.disabled = self.climb.place == 0
            self.up.disabled = self.climb.place == len(self.climb.names) - 1
        try:
            step = self.climb.step()
        except WorklogError as error:
            self.words.value = html_trouble(str(error))
            self.table.value = self.picture.value = self.diff.value = ""
            return
        self.words.value, self.table.value = said_html(step), table_html(step)
        self.diff.value = diff_html(step, comments=self.comments.value)
        self.picture.value = image(body(step))

    def _repr_mimebundle_(self, **how: Any) -> Any:
        """The widgets, and for a page without a kernel the step in words."""
        bundle = self.box._repr_mimebundle_(**how)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": in_lines(self.told())}

    def told(self) -> str:
        """What the page shows, as text."""
        try:
            return text(self.climb.step())
        except WorklogError as error:
            return str(error)
