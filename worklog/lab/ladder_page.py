"""The ladder page: choose a rung and a size; see what changed against the rung before, its costs and its speed."""

from __future__ import annotations

from contextlib import suppress
from html import escape

import ipywidgets as widgets

from worklog.errors import NothingToDraw
from worklog.lab.controls import BESIDE, Checkbox, Page, Shown, box, button, side_by_side
from worklog.lab.diff import diff
from worklog.lab.ladder_step import Climb, Step
from worklog.plots import ladder
from worklog.plots.figure import Chart

LEFT = widgets.Layout(flex="0 1 33em")  # long sentences and captions are wrapped, so that the picture fits beside it
CODE = "max-height:32em;overflow:auto;white-space:pre;line-height:1.35;font-size:0.9em;margin:0.3em 2px"


class Ladder(Page[Climb]):
    """The page as a notebook shows it."""

    def __init__(self, climb: Climb) -> None:
        super().__init__(climb)
        self.down = button("rung before", lambda: self.take(lambda: climb.climb(-1)), icon="arrow-left")
        self.up = button("next rung", lambda: self.take(lambda: climb.climb(1)), icon="arrow-right")
        self.comments = Checkbox(description="whole file, with comments", indent=False)
        self.on(self.comments, "value", lambda _: None)
        buttons = widgets.HBox([self.down, self.up])
        left = widgets.VBox([self.kernel, self.size, buttons, self.words, self.table], layout=LEFT)
        self.picture.layout = BESIDE
        self.box = box(side_by_side(left, self.picture), self.comments, self.details)
        self.show()

    def set_controls(self) -> None:
        """Set every control to what is chosen; the buttons end with the ladder."""
        super().set_controls()
        self.down.disabled = self.choice.place == 0
        self.up.disabled = self.choice.place == len(self.choice.known_kernels()) - 1

    def result(self) -> Shown:
        """The step in words, its costs in tables, the ladder as a chart, and the changed lines."""
        step, picture = self.choice.step(), None
        with suppress(NothingToDraw):
            picture = self.chart()
        said, details = step.sentences, changed_lines(step, comments=self.comments.value)
        return Shown(said, said, step.tables, picture, details)

    def chart(self) -> Chart:
        """The ladder at the chosen size with the rung in the accent colour; a notebook shows its costs in tables below.
        Raises NothingToDraw where nothing was timed at the size.
        """
        step = self.choice.step()
        drawn = ladder(step.run, step.shape, rung=step.rung.name)
        drawn.alt, drawn.tables = ". ".join([*step.sentences, drawn.alt]), step.tables
        return drawn


def changed_lines(step: Step, *, comments: bool) -> str:
    """The diff against the rung before in a box that the keyboard can scroll."""
    now, before = step.rung, step.before
    files = f"{now.file} against {before.file}" if before else now.file
    code = diff(before.name if before else None, now.name, comments=comments, around=2)
    lines = f'<span style="display:inline-block;min-width:100%">{code.html()}</span>'  # as wide as its longest line
    return (
        f'<div style="font-weight:600;line-height:1.4">{escape(files)}</div>'
        f'<pre tabindex="0" role="region" aria-label="{escape(files)}" style="{CODE}">{lines}</pre>'
    )
