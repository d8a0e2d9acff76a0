"""The ladder page: choose a rung and a size; see what changed against the rung before, its costs and its speed."""

from __future__ import annotations

from contextlib import suppress
from html import escape

import ipywidgets as widgets

from worklog.errors import NothingToDraw
from worklog.lab.controls import BESIDE, Checkbox, Page, Shown, box, image, message
from worklog.lab.diff import diff
from worklog.lab.ladder_step import Climb, Step
from worklog.plots import ladder
from worklog.plots.figure import Chart

LEFT = widgets.Layout(min_width="27em", flex="0 1 auto")
CODE = "max-height:32em;overflow:auto;white-space:pre;line-height:1.35;font-size:0.9em;margin:0.3em 2px"


class Ladder(Page):
    """The page as a notebook shows it."""

    def __init__(self, climb: Climb) -> None:
        super().__init__(climb)
        self.climb = climb
        layout = widgets.Layout(width="auto")
        self.down = widgets.Button(description="rung before", icon="arrow-left", layout=layout)
        self.up = widgets.Button(description="next rung", icon="arrow-right", layout=layout)
        self.comments = Checkbox(description="whole file, with comments", indent=False)
        self.on(self.comments, "value", lambda _: None)
        self.down.on_click(lambda _: self.take(lambda: climb.climb(-1)))
        self.up.on_click(lambda _: self.take(lambda: climb.climb(1)))
        buttons = widgets.HBox([self.down, self.up])
        left = widgets.VBox([self.kernel, self.size, buttons, self.words, self.table], layout=LEFT)
        wrap = widgets.Layout(flex_flow="row wrap", grid_gap="0 1.5em")
        self.picture.layout = BESIDE
        self.box = box([widgets.HBox([left, self.picture], layout=wrap), self.comments, self.details])
        self.show()

    def set_controls(self) -> None:
        """Set every control to what is chosen; the buttons end with the ladder."""
        super().set_controls()
        self.down.disabled = self.climb.place == 0
        self.up.disabled = self.climb.place == len(self.climb.known_kernels()) - 1

    def result(self) -> Shown:
        """The step in words, its costs in tables, the ladder as a chart, and the changed lines."""
        step = self.climb.step()
        picture = message("nothing was timed at this size")
        with suppress(NothingToDraw):
            picture = image(self.chart())
        text = "\n".join([*step.sentences, *(table.text() for table in step.tables)])
        details = changed_lines(step, comments=self.comments.value)
        return Shown(text, words(step), "".join(table.html() for table in step.tables), picture, details)

    def chart(self) -> Chart:
        """The ladder at the chosen size with the rung in the accent colour; its facts are in the alt text. Raises
        NothingToDraw where nothing was timed at the size.
        """
        step = self.climb.step()
        drawn = ladder(step.run, step.shape, rung=step.rung.name)
        facts = [
            "; ".join(" ".join(map(str, row)) for row in table.rows) + f" ({table.title})" for table in step.tables
        ]
        drawn.alt = ". ".join([*step.sentences, *facts, drawn.alt])
        return drawn


def words(step: Step) -> str:
    """The number large; below it the idea, the change, the gain and the notes."""
    number, *lines = step.sentences
    head = f'<div style="font-size:1.2em;font-weight:600;line-height:1.5">{escape(number)}</div>'
    return head + "".join(map(message, lines))


def changed_lines(step: Step, *, comments: bool) -> str:
    """The diff against the rung before in a box that the keyboard can scroll."""
    now, before = step.rung, step.before
    files = f"{now.file} against {before.file}" if before else now.file
    code = diff(before.name if before else None, now.name, comments=comments, around=2)
    lines = f'<span style="display:inline-block;min-width:100%">{code.html()}</span>'  # as wide as its longest line
    return (
        f'<div style="font-weight:600;line-height:1.4">{escape(f"{files} · {step.changed}")}</div>'
        f'<pre tabindex="0" role="region" aria-label="{escape(files)}" style="{CODE}">{lines}</pre>'
    )
