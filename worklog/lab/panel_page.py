"""The panel in a notebook: a row for each pitfall, beside the reading that the choices lead to. With a GPU, a button
measures what is chosen in a child process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import traitlets

from worklog.errors import Interrupted, WorklogError
from worklog.lab.choice import new_file, why_not_live
from worklog.lab.page import ONE_AT_A_TIME, Page
from worklog.lab.panel_answer import PanelChoice
from worklog.lab.readings import Settings, word
from worklog.runner.job import Job
from worklog.runner.measure import carry_out
from worklog.runs import Run
from worklog.settings import PITFALLS, Harness, rule


def places(settings: Settings) -> list[int]:
    """The place of each setting's value among the values of its pitfall, in the table's order."""
    return [g.values.index(rule(settings[g.setting])) for g in PITFALLS]


def panel_table(choice: PanelChoice) -> dict[str, Any]:
    """What can be chosen, for panel.js."""
    pitfalls = []
    for g in PITFALLS:
        values = {
            "values": [word(value) for value in g.values],
            "biased": [g.values.index(value) for value in g.biased],
        }
        pitfalls.append({"setting": g.setting, "title": g.title, "what": g.what, "article": g.article, **values})
    return {
        "kernels": choice.kernels,
        "sizes": [str(shape) for shape in choice.shapes],
        "pitfalls": pitfalls,
        "unbiased": places(choice.unbiased),
        "naive": places(choice.naive),
    }


def chosen_places(choice: PanelChoice) -> dict[str, Any]:
    """What is chosen, for panel.js: places in the lists of the table."""
    kernel, size = choice.kernels.index(choice.kernel), choice.shapes.index(choice.shape)
    return {"kernel": kernel, "size": size, "values": places(choice.settings)}


class Panel(Page):
    """The panel as a notebook shows it. progress: whether it is measuring, the share done, and words. job: the command
    that measures (default: worklog.runner.worker).
    """

    progress = traitlets.Dict().tag(sync=True)

    def __init__(self, choice: PanelChoice, job: Sequence[str] | None = None) -> None:
        self.choice, self._job, self.reason = choice, job, why_not_live()
        self._stop: threading.Event | None = None  # of the measurement that is running
        super().__init__("panel", panel_table(choice) | {"live": self.reason is None}, chosen_places(choice))
        self._say(f"measure: {self.reason}" if self.reason else "")
        self.on_msg(lambda _, message, __: self.measure() if message == "measure" else self.cancel())

    def answered(self) -> dict[str, Any]:
        """The answer, or why there is none. Without a GPU, also the places of what has none if chosen next."""
        choice, chosen = self.choice, self.chosen
        choice.kernel, choice.shape = choice.kernels[chosen["kernel"]], choice.shapes[chosen["size"]]
        for g, place, before in zip(PITFALLS, chosen["values"], places(choice.settings), strict=True):
            if place != before:  # "locked:1395" stays
                choice.settings[g.setting] = g.values[place]
        try:
            answer = choice.answer().as_json()
        except WorklogError as error:
            answer = {"missing": str(error) if self.reason else f"{error}; press measure"}
        if self.reason:
            answer["absent"] = {
                "kernels": [i for i, kernel in enumerate(choice.kernels) if not choice.available({}, kernel)],
                "sizes": [i for i, shape in enumerate(choice.shapes) if not choice.available({}, shape=shape)],
                "values": [
                    [i for i, value in enumerate(g.values) if not choice.available({g.setting: value})]
                    for g in PITFALLS
                ],
            }
        return answer

    def text(self) -> list[str]:
        """The answer in sentences, or why there is none."""
        try:
            return self.choice.answer().text
        except WorklogError as error:
            return [str(error)]

    def measure(self) -> None:
        """Measure the unbiased and the chosen reading in a child process."""
        with ONE_AT_A_TIME:
            if self._stop is None and self.reason is None:
                self._stop = threading.Event()
                self._say("starting", running=True)
                work = self.choice.tasks(), new_file(), self._stop
                threading.Thread(target=self._work, args=work, daemon=True).start()

    def cancel(self) -> None:
        """Stop measuring and keep what is finished."""
        if self._stop is not None:
            self._stop.set()

    def _say(self, words: str, share: float = 0.0, *, running: bool = False) -> None:
        self.progress = {"running": running, "share": share, "words": words}

    def _work(self, tasks: Sequence[Job], out: Path, stop: threading.Event) -> None:
        """Runs on its own thread. Then the new run, complete or not, answers first."""
        started, how = time.monotonic(), "failed"

        def progress(done: int, total: int, doing: str) -> None:
            elapsed_s = time.monotonic() - started
            left = f", about {elapsed_s / done * (total - done):.0f} s left" if done else ""
            self._say(f"{doing} · {elapsed_s:.0f} s{left}", done / total if total else 0.0, running=True)

        try:
            carry_out(tasks, Harness(), progress=progress, out=out, stop=stop, command=self._job)
            how = "measured"
        except Interrupted:
            how = "cancelled"
        except WorklogError as error:
            how = f"failed: {error}"
        finally:
            with ONE_AT_A_TIME:
                kept = "nothing was finished"
                if out.exists():
                    self.choice.add(Run.load(out))
                    kept = f"finished measurements are in {out}"
                self._stop = None
                self.show()
                self._say(f"{how}; {kept}")  # last: it says that the answer is shown
