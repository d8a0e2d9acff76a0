"""The panel: a row for each pitfall, generated from the table in worklog/settings.py, beside the reading that the
choices lead to. With a GPU, a button measures what is chosen in a child process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path

import ipywidgets as widgets

from worklog.errors import Interrupted, WorklogError
from worklog.lab.choice import new_file, why_not_live
from worklog.lab.controls import ONE_AT_A_TIME, Page, Status, button, offer, one_at_a_time
from worklog.lab.panel_answer import PanelChoice
from worklog.lab.readings import word
from worklog.runner.job import Job
from worklog.runner.measure import carry_out
from worklog.runs import Run
from worklog.settings import PITFALLS, Harness, Pitfall


class Row:
    """One pitfall: a box that is ticked while it is avoided, the setting's value, and what goes wrong otherwise."""

    def __init__(self, pitfall: Pitfall, panel: Panel) -> None:
        self.pitfall, self.choice = pitfall, panel.choice
        self.box = widgets.Checkbox(
            tooltip=f"{pitfall.title}: {pitfall.what}",
            indent=False,
            layout=widgets.Layout(width="8.5em", flex="0 0 auto"),
        )
        self.value = widgets.Dropdown(
            description=f"value of {pitfall.setting}",
            style={"description_width": "0px"},  # invisible, but read out: a tooltip is not a name
            layout=widgets.Layout(min_width="0", max_width="12.5em", flex="1 1 10.5em"),
        )
        self.what = widgets.HTML(layout=widgets.Layout(flex="1 1 9em"))
        self.widget = widgets.HBox([self.box, self.value, self.what])
        panel.on(self.box, "value", self.fix)
        panel.on(self.value, "value", lambda value: panel.choice.choose(pitfall.setting, value))

    def fix(self, fixed: bool) -> None:
        """Avoid the pitfall or not; a value that already does so stays."""
        if fixed == self.pitfall.is_biased(self.choice.settings[self.pitfall.setting]):
            self.choice.choose(self.pitfall.setting, self.choice.toggled(self.pitfall))

    def show(self) -> bool:
        """Show the chosen value, and in words as well as in colour whether it is biased. Mark the box and the values
        that lead to no reading. Returns whether the box leads to one.
        """
        pitfall, value = self.pitfall, self.choice.settings[self.pitfall.setting]
        biased = pitfall.is_biased(value)
        there = {other: self.choice.available(changed={pitfall.setting: other}) for other in pitfall.values}
        offer(self.value, [(word(other), other, there[other]) for other in pitfall.values], value)
        leads_on = there[self.choice.toggled(pitfall)]
        self.box.value, name = not biased, f"{pitfall.article or ''} {pitfall.setting}".strip()
        self.box.description = name if leads_on else f"{name} *"
        (self.box.remove_class if leads_on else self.box.add_class)("worklog-unavailable")
        words, role = (f"← {pitfall.title}", "alert") if biased else (pitfall.title, "muted")
        style = "display:inline-block;font-size:0.85em;line-height:1.2;vertical-align:middle"
        self.what.value = f'<span style="{style};color:var(--worklog-{role})">{words}</span>'
        return leads_on


class Panel(Page[PanelChoice]):
    """The panel as a notebook shows it. job: the command that measures (default: worklog.runner.job)."""

    def __init__(self, choice: PanelChoice, job: Sequence[str] | None = None) -> None:
        super().__init__(choice)
        self._job = job
        self._stop: threading.Event | None = None  # of the measurement that is running
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # outside a notebook there is no loop
            self._loop = asyncio.get_running_loop()
        self.rows = [Row(pitfall, self) for pitfall in PITFALLS]
        four = [row.widget for row in self.rows if row.pitfall.article]
        self.rest = widgets.VBox([row.widget for row in self.rows if not row.pitfall.article])
        self.more = widgets.ToggleButton(
            description=f"pitfalls that the article doesn't name ({len(self.rest.children)})",
            tooltip="show or hide the other settings",
            layout=widgets.Layout(width="auto"),
        )
        one_at_a_time(self.more).observe(lambda change: self.unfold(change["new"]), "value")
        self.unfold(False)
        self.legend = widgets.HTML("<small>* a change that leads to no recorded reading</small>")
        self.unbiased = button("all unbiased", lambda: self.take(choice.all_unbiased), "avoid every pitfall")
        self.naive = button("all naive", lambda: self.take(choice.all_naive), "bias every setting")
        self.nearest = button("take the nearest", self.take_nearest, "choose the nearest combination with a reading")
        reason = why_not_live()
        self.measure_button = button("measure", self.measure, reason or "measure what is chosen, in a child process")
        self.cancel_button = button("cancel", self.cancel, "stop measuring")
        self.bar = widgets.IntProgress(max=1, layout=widgets.Layout(width="25em"))
        self.status = Status()
        self._idle("" if reason is None else f"measure: {reason}")
        buttons = widgets.HBox([self.unbiased, self.naive, self.measure_button, self.cancel_button])
        left = [self.kernel, self.size, *four, self.more, self.rest, self.legend, buttons, self.bar, self.status]
        words = widgets.VBox([self.words, self.nearest])
        words.add_class("worklog-words")
        right = widgets.VBox([words, self.picture, self.details])
        right.add_class("worklog-reading")
        self.fill(left, right, width="min(34em, 100%)", flex="0 0 auto")

    def unfold(self, shown: bool) -> None:
        """Show or hide the pitfalls that the article doesn't name. ipywidgets' accordion needs a mouse."""
        self.rest.layout.display = "" if shown else "none"
        self.more.icon = "caret-down" if shown else "caret-right"

    def set_controls(self) -> None:
        """Set every control to what is chosen; a biased setting is never folded away."""
        super().set_controls()
        there = [row.show() for row in self.rows]
        self.legend.layout.display = "none" if all(there) else ""
        if not all(row.box.value for row in self.rows if not row.pitfall.article):
            self.more.value = True
        no_other = self.choice.available() or self.choice.nearest() is None
        self.nearest.layout.display = "none" if no_other else ""

    def take_nearest(self) -> None:
        """Choose the nearest combination with a reading."""
        nearest = self.choice.nearest()
        if nearest is not None:
            self.take(lambda: self.choice.take(nearest))

    def measure(self) -> None:
        """Measure the unbiased and the chosen reading in a child process."""
        with ONE_AT_A_TIME:
            if self._stop is not None:
                return
            self._stop = threading.Event()
        self.measure_button.disabled, self.cancel_button.disabled = True, False
        self.bar.layout.display = ""
        threading.Thread(target=self._work, args=(self.choice.tasks(), new_file(), self._stop), daemon=True).start()

    def cancel(self) -> None:
        """Stop measuring and keep what is finished."""
        if self._stop is not None:
            self._stop.set()

    def _work(self, tasks: Sequence[Job], out: Path, stop: threading.Event) -> None:
        """Runs on its own thread, which may set widgets' traits but must not draw with pyplot."""
        started, how = time.monotonic(), "failed"

        def progress(done: int, total: int, doing: str) -> None:
            elapsed_s = time.monotonic() - started
            left = f", about {elapsed_s / done * (total - done):.0f} s left" if done else ""
            self.bar.max, self.bar.value = total, done
            self.status.value = escape(f"{doing} · {elapsed_s:.0f} s{left}")

        try:
            carry_out(tasks, Harness(), progress=progress, out=out, stop=stop, command=self._job)
            how = "measured"
        except Interrupted:
            how = "cancelled"
        except WorklogError as error:
            how = f"failed: {error}"
        finally:
            if self._loop is None:
                self._ended(how, out)
            else:
                self._loop.call_soon_threadsafe(self._ended, how, out)

    def _ended(self, how: str, out: Path) -> None:
        """Answer from the new run first, complete or not, and say what happened."""
        with ONE_AT_A_TIME:
            self._stop = None
            kept = "nothing was finished"
            if out.exists():
                self.choice.add(Run.load(out))
                kept = f"finished measurements are in {out}"
            self.show()
            self._idle(f"{how}; {kept}")  # last: it says that the answer is shown

    def _idle(self, text: str) -> None:
        self.measure_button.disabled, self.cancel_button.disabled = why_not_live() is not None, True
        self.bar.layout.display = "none"
        self.status.value = escape(text)
