"""The panel's widgets: one row a gremlin, made from the table, and beside them the reading that the choices lead to.

Every handler is one call of a method of Panel, and every such method a call of the model and a redraw, since a widget
swallows what a handler raises.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from worklog.bench import worker
from worklog.bench.tasks import Task
from worklog.errors import Interrupted, WorklogError
from worklog.lab.controls import ONE_AT_A_TIME, Checkbox, Choices, Dropdown, Status, ToggleButton, box, slider
from worklog.lab.model import Model
from worklog.lab.picture import alt, body
from worklog.lab.readings import word
from worklog.lab.sources import new_file, why_not_live
from worklog.lab.theme import colour, image
from worklog.lab.words import html, html_trouble
from worklog.problem.gemm import Shape
from worklog.runs.run import Run
from worklog.settings import PITFALLS, Harness, Pitfall, Value

LEFT = widgets.Layout(width="31em", flex="0 0 auto")
RIGHT = widgets.Layout(min_width="min(34em, 100%)", max_width="46em", flex="1 1 24em")
WIDE = {"description_width": "3.2em"}


class Row:
    """One gremlin: a box that is ticked while its fix is on, the setting's value, and what goes wrong without."""

    def __init__(self, pitfall: Pitfall, panel: Panel) -> None:
        self.pitfall = pitfall
        number = f"{pitfall.article} " if pitfall.article else ""
        what = f"{pitfall.title}: {pitfall.what}"
        self.box = Checkbox(
            description=f"{number}{pitfall.setting}",
            tooltip=what,
            indent=False,
            layout=widgets.Layout(width="7.5em", flex="0 0 auto"),
        )
        self.value = Dropdown(
            options=[(word(value), value) for value in pitfall.values],
            description=f"value of {pitfall.setting}",
            style={"description_width": "0px"},  # not seen, but read aloud: a tooltip is no name
            layout=widgets.Layout(width="10em", flex="0 0 auto"),
        )
        self.what = widgets.HTML(layout=widgets.Layout(flex="1 1 auto"))
        self.widget = widgets.HBox([self.box, self.value, self.what])
        self.box.observe(lambda change: panel.fix(pitfall, change["new"]), "value")
        self.value.observe(lambda change: panel.choose(pitfall, change["new"]), "value")

    def show(self, value: Value, lying: bool) -> None:
        """Show a value, and whether it lies in words as well as in colour."""
        self.box.value = not lying
        self.value.value = value
        said, role = (f"← {self.pitfall.title}", "lie") if lying else (self.pitfall.title, "muted")
        style = f"display:inline-block;font-size:0.85em;line-height:1.2;vertical-align:middle;color:{colour(role)}"
        self.what.value = f'<span style="{style}">{said}</span>'


class Panel:
    """The panel as a notebook shows it. `model` holds what is chosen; `box` is the widget around all others. job: what
    measures (default: worklog.bench.job).
    """

    def __init__(self, model: Model, job: Sequence[str] | None = None) -> None:
        self.model, self._job = model, job
        self._stop: worker.Stop | None = None  # of what is being measured
        self._choices = Choices(self.show)
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # outside a notebook nobody else draws, and there is no loop
            self._loop = asyncio.get_running_loop()
        self._make_choices()
        self._make_reading()
        self._make_buttons()
        four, rest = ([row for row in self.rows if bool(row.pitfall.article) is named] for named in (True, False))
        self.rest = widgets.VBox([row.widget for row in rest], layout=widgets.Layout(display="none"))
        self.more = ToggleButton(
            description=f"gremlins that the article does not name ({len(rest)})",
            tooltip="show or hide the other settings",
            icon="caret-right",
            layout=widgets.Layout(width="auto"),
        )
        self.more.observe(lambda change: self.unfold(change["new"]), "value")
        buttons = widgets.HBox([self.unbiased, self.naive, self.measure_button, self.cancel_button])
        rows = [row.widget for row in four]
        parts = [self.kernel, self.size, *rows, self.more, self.rest, buttons, self.bar, self.status]
        left = widgets.VBox(parts, layout=LEFT)
        right = widgets.VBox([self.reading, self.picture, self.source], layout=RIGHT)
        self.box = box([left, right], widgets.HBox, dict(flex_flow="row wrap", grid_gap="0 1.5em"))
        self.show()

    def _make_choices(self) -> None:
        layout = widgets.Layout(width="22em")
        self.kernel = Dropdown(options=self.model.kernels, description="rung", style=WIDE, layout=layout)
        self.size = slider("size", self.model.shapes, lambda index: self.choose_shape(self.model.shapes[index]))
        self.rows = [Row(pitfall, self) for pitfall in PITFALLS]
        self.kernel.observe(lambda change: self.choose_kernel(change["new"]), "value")

    def _make_reading(self) -> None:
        self.reading, self.picture, self.source = Status(), widgets.HTML(), widgets.HTML()

    def _make_buttons(self) -> None:
        layout = widgets.Layout(width="auto")
        self.unbiased = widgets.Button(description="all honest", tooltip="turn every fix on", layout=layout)
        self.naive = widgets.Button(description="all naive", tooltip="let every gremlin loose", layout=layout)
        self.measure_button = widgets.Button(description="measure", layout=layout)
        self.cancel_button = widgets.Button(description="cancel", tooltip="stop measuring", layout=layout)
        self.bar = widgets.IntProgress(description="", max=1, layout=widgets.Layout(width="25em"))
        self.status = Status()
        self.unbiased.on_click(lambda _: self.all_honest())
        self.naive.on_click(lambda _: self.all_naive())
        self.measure_button.on_click(lambda _: self.measure())
        self.cancel_button.on_click(lambda _: self.cancel())
        reason = why_not_live()
        self.measure_button.tooltip = reason or "measure what is chosen, in a process of its own"
        self._idle("" if reason is None else f"measure: {reason}")

    # ------------------------------------------------------------------------------------------------------- choices

    def choose_kernel(self, kernel: str) -> None:
        """Take another rung."""
        self._choices.take(lambda: self.model.choose_kernel(kernel))

    def choose_shape(self, shape: Shape) -> None:
        """Take another size."""
        self._choices.take(lambda: self.model.choose_shape(shape))

    def fix(self, pitfall: Pitfall, fixed: bool) -> None:
        """Turn one fix on or off."""
        self._choices.take(lambda: self.model.fix(pitfall, fixed))

    def choose(self, pitfall: Pitfall, value: Value) -> None:
        """Take one value of one setting."""
        self._choices.take(lambda: self.model.choose(pitfall.setting, value))

    def all_honest(self) -> None:
        """Turn every fix on."""
        self._choices.take(self.model.all_honest)

    def all_naive(self) -> None:
        """Let every gremlin loose."""
        self._choices.take(self.model.all_naive)

    def unfold(self, shown: bool) -> None:
        """Show or hide the gremlins that the article does not name. An accordion would do it by mouse only."""
        self.rest.layout.display = "" if shown else "none"
        self.more.icon = "caret-down" if shown else "caret-right"

    # ------------------------------------------------------------------------------------------------------- showing

    def show(self) -> None:
        """Make the widgets show the model."""
        with self._choices.setting():
            self.kernel.options, self.kernel.value = self.model.kernels, self.model.kernel
            self.size.words = [str(shape) for shape in self.model.shapes]
            self.size.index = self.model.shapes.index(self.model.shape)
            for row in self.rows:
                row.show(self.model.settings[row.pitfall.setting], self.model.is_lying(row.pitfall))
            if any(pitfall.article is None for pitfall in self.model.lying):
                self.more.value = True  # no lie is told behind a fold
        self._show_answer()

    def _show_answer(self) -> None:
        try:
            answer = self.model.answer()
        except WorklogError as error:
            self.reading.value, self.picture.value, self.source.value = html_trouble(str(error)), "", ""
            return
        self.reading.value = html(answer)
        self.source.value = f"<small>{answer.reading.measurement.label}</small>"
        self.picture.value = image(body(answer))

    def _repr_mimebundle_(self, **how: Any) -> Any:
        """The widgets, and for a page without a kernel the answer in words."""
        bundle = self.box._repr_mimebundle_(**how)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": self.words()}

    def words(self) -> str:
        """What the panel shows, as text."""
        try:
            return alt(self.model.answer())
        except WorklogError as error:
            return str(error)

    # ----------------------------------------------------------------------------------------------------- measuring

    def measure(self) -> None:
        """Measure what is chosen, honestly and as chosen, in a process of its own."""
        with ONE_AT_A_TIME:
            if self._stop is not None:
                return
            self._stop = worker.Stop()
        self.measure_button.disabled, self.cancel_button.disabled = True, False
        self.bar.layout.display = ""
        threading.Thread(target=self._work, args=(self.model.tasks(), new_file(), self._stop), daemon=True).start()

    def cancel(self) -> None:
        """Stop measuring; what is finished stays. The driver may take its time, and the page does not wait for it."""
        if self._stop is not None:
            threading.Thread(target=self._stop.press, daemon=True).start()

    def _work(self, tasks: Sequence[Task], out: Path, stop: worker.Stop) -> None:
        """On a thread of its own, which may set widgets' traits and must not draw with pyplot."""
        started, how = time.monotonic(), "failed"

        def tell(done: int, total: int, doing: str) -> None:
            self._progress(done, total, doing, time.monotonic() - started)

        try:
            worker.carry_out(tasks, Harness(), progress=tell, out=out, stop=stop, command=self._job)
            how = "measured"
        except Interrupted:
            how = "cancelled"
        except WorklogError as error:
            how = f"failed: {error}"
        finally:
            self._later(self._ended, how, out)

    def _progress(self, done: int, total: int, doing: str, elapsed_s: float) -> None:
        left = f", about {elapsed_s / done * (total - done):.0f} s left" if done else ""
        self.bar.max, self.bar.value = total, done
        self.status.value = html_trouble(f"{doing} · {elapsed_s:.0f} s{left}")

    def _later(self, act: Callable[..., None], *what: Any) -> None:
        """Do something from the working thread on the thread that draws, when that is free."""
        if self._loop is None:
            act(*what)
        else:
            self._loop.call_soon_threadsafe(act, *what)

    def _ended(self, how: str, out: Path) -> None:
        """Take the run in, cut short or not, and say what happened."""
        with ONE_AT_A_TIME:
            self._stop = None
            self._idle(f"{how}; {self._take_in(out)}")
            self.show()

    def _take_in(self, out: Path) -> str:
        if not out.exists():
            return "nothing was finished"
        try:
            run = Run.load(out)
        except WorklogError as error:
            return str(error)
        self.model.add(run)
        return f"what was finished is in {out}"

    def _idle(self, said: str) -> None:
        self.measure_button.disabled, self.cancel_button.disabled = why_not_live() is not None, True
        self.bar.layout.display = "none"
        self.status.value = html_trouble(said)
