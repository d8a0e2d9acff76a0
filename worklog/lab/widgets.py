"""What a notebook shows as the last line of a cell: the panel, whose button measures what is chosen in a child process
if there is a GPU, the access viewer, the timeline, and a rung of the ladder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from worklog import plots
from worklog.analysis import accesses
from worklog.errors import BadSetting, Interrupted, WorklogError
from worklog.kernel import LADDER, Kernel
from worklog.kernel import rung as rung_of
from worklog.lab.pages import palette, part
from worklog.lab.readings import (
    LAUNCHES,
    Answers,
    Held,
    Settings,
    Size,
    changes,
    format_value,
    grid_runs,
    unbiased_settings,
)
from worklog.lab.rungs import SIZE, Climb
from worklog.plots import DARK, DARK_PAGES, LIGHT, Chart, shape_to_draw
from worklog.problem import Shape
from worklog.runner.measure import ABLATION_SAMPLING, Job, carry_out, why_not_live
from worklog.runs import Run, new_path, newest_run, open_run
from worklog.settings import PITFALLS, Harness, Value, rule


def places(settings: Settings) -> list[int]:
    """The place of each setting's value among the values of its pitfall, in the table's order."""
    return [g.values.index(rule(settings[g.setting])) for g in PITFALLS]


# With JupyterLab's subshells the kernel handles a user's events on two threads: a widget's first message on one, its
# other messages on the other. An event that arrives while another one is being answered waits on this lock.
ONE_AT_A_TIME = threading.RLock()

COLOURS = palette(".worklog", LIGHT, "light") + "".join(
    palette(f"{page} .worklog", DARK, "dark") for page in DARK_PAGES
)


class Widget(anywidget.AnyWidget):
    """A widget that without a running kernel is the lines of text()."""

    def _repr_mimebundle_(self, **how: Any) -> Any:
        html = "".join(f"<p>{escape(line)}</p>" for line in self.text())
        words = {"text/plain": "\n".join(self.text()), "text/html": html}
        data, metadata = super()._repr_mimebundle_(**how) or ({}, {})
        return data | words, metadata

    def text(self) -> list[str]:
        """What it shows, in lines."""
        raise NotImplementedError


class AccessView(Widget):
    """What a warp touches: access.js draws the document of worklog.analysis.accesses."""

    _esm = part("dom.js") + part("access.js")
    _css = COLOURS + part("panel.css") + part("access.css")
    documents = traitlets.Dict().tag(sync=True)
    of_page = traitlets.Bool(False).tag(sync=True)

    def __init__(self, kernel: Kernel | str, shape: Size = None, block: int = 0) -> None:
        document = accesses.access(kernel, shape, block).document
        super().__init__(documents={document["kernel"]: document})

    def text(self) -> list[str]:
        """The first sentence about each access."""
        [document] = self.documents.values()
        lines = (f"{kind['text']}: {kind['cost']}" for kind in document["kinds"] if "pill" in kind)
        return [document["about"], *dict.fromkeys(lines)]


class Panel(Widget):
    """A row for each pitfall, beside the reading that the choices lead to: panel.js draws it, Python answers.

    table: what can be chosen. chosen: places in the table's lists. answer: what is shown for it. progress: whether it
    is measuring, the share done, and words.

    At first: the last kernel at the middle size without a pitfall, or what is given. job: the command that measures
    (default: worklog.runner.child). Raises BadSetting.
    """

    _esm = part("dom.js") + part("panel.js")
    _css = COLOURS + part("panel.css")
    table = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Dict().tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)
    progress = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        answers: Answers,
        kernel: str | None = None,
        shape: Size = None,
        biased: Settings | None = None,
        job: Sequence[str] | None = None,
    ) -> None:
        if kernel is not None and kernel not in answers.kernels:
            answers.kernels.append(rung_of(kernel).name)
        first = answers.shapes[len(answers.shapes) // 2] if shape is None else Shape.of(shape)
        answers.shapes = sorted({*answers.shapes, first}, key=lambda shape: shape.flops)
        settings = answers.settings(biased or {})
        self.answers = answers
        self.job = job
        self.reason = why_not_live()
        self._stop: threading.Event | None = None  # of the measurement that is running
        chosen = {
            "kernel": answers.kernels.index(kernel or answers.kernels[-1]),
            "size": answers.shapes.index(first),
            "values": places(settings),
        }
        pitfalls = []
        for g in PITFALLS:
            about = {"setting": g.setting, "title": g.title, "what": g.what, "article": g.article}
            biased_at = [g.values.index(value) for value in g.biased]
            pitfalls.append(
                {**about, "values": [*map(format_value, g.values)], "biased": biased_at}
            )
        table = {
            "kernels": answers.kernels,
            "sizes": [*map(str, answers.shapes)],
            "pitfalls": pitfalls,
        }
        table |= {
            "unbiased": places(answers.unbiased),
            "naive": places(answers.naive),
            "live": self.reason is None,
        }
        super().__init__(table=table, chosen=chosen)
        self.show()
        self.observe(self.show, "chosen")
        self._say(f"measure: {self.reason}" if self.reason else "")
        self.on_msg(self._told)

    def show(self, _: object = None) -> None:
        """Answer what is chosen."""
        with ONE_AT_A_TIME:
            self.answer = self.answered()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the user chose, one message at a time."""
        with ONE_AT_A_TIME:
            super().set_state(sync_data)

    def where(self) -> tuple[str, Shape, dict[str, Value]]:
        """The kernel, the shape and the settings that are chosen. A run's own clock, such as locked:1395, stays."""
        chosen = self.chosen
        answers = self.answers
        settings = dict(answers.unbiased)
        for g, place in zip(PITFALLS, chosen["values"], strict=True):
            if g.values[place] != rule(settings[g.setting]):
                settings[g.setting] = g.values[place]
        return answers.kernels[chosen["kernel"]], answers.shapes[chosen["size"]], settings

    def answered(self) -> dict[str, Any]:
        """The answer, or why there is none. Without a GPU, also the places of what has none if chosen next."""
        (kernel, shape, settings) = self.where()
        has = self.answers.has
        try:
            answer = self.answers.answer(kernel, shape, **settings).as_json()
        except WorklogError as error:
            answer = {"missing": str(error) if self.reason else f"{error}; press measure"}
        if self.reason:
            answer["absent"] = {
                "kernels": [
                    i
                    for i, name in enumerate(self.answers.kernels)
                    if not has(name, shape, settings)
                ],
                "sizes": [
                    i
                    for i, other in enumerate(self.answers.shapes)
                    if not has(kernel, other, settings)
                ],
                "values": [
                    [
                        i
                        for i, value in enumerate(g.values)
                        if not has(kernel, shape, settings | {g.setting: value})
                    ]
                    for g in PITFALLS
                ],
            }
        return answer

    def text(self) -> list[str]:
        """The answer in sentences, or why there is none."""
        kernel, shape, settings = self.where()
        try:
            return self.answers.answer(kernel, shape, **settings).text
        except WorklogError as error:
            return [str(error)]

    def _told(self, _: object, message: str, __: object) -> None:
        if message == "measure":
            self.measure()
        elif self._stop is not None:
            self._stop.set()

    def measure(self) -> None:
        """Measure the unbiased reading, and this one if its launches differ, in a child process."""
        with ONE_AT_A_TIME:
            if self._stop is None and self.reason is None:
                self._stop = threading.Event()
                self._say("starting", running=True)
                threading.Thread(
                    target=self._work, args=(self.jobs(), self._stop), daemon=True
                ).start()

    def jobs(self) -> list[Job]:
        """What measure() measures."""
        kernel, shape, settings = self.where()
        biased = [g.setting for g in changes(settings, unbiased_settings()) if g in LAUNCHES]
        launches = [(), tuple((name, settings[name]) for name in biased)]
        return [
            Job(kernel, shape, changed + ABLATION_SAMPLING) for changed in dict.fromkeys(launches)
        ]

    def _say(self, words: str, share: float = 0.0, *, running: bool = False) -> None:
        self.progress = {"running": running, "share": share, "words": words}

    def _work(self, jobs: Sequence[Job], stop: threading.Event) -> None:
        """Runs on its own thread. Then the new run, complete or not, answers first."""
        started = time.monotonic()
        how = "failed"
        path = new_path(datetime.now(UTC).isoformat())
        out: Path = (
            path.parent / "panel" / path.name
        )  # in a folder that no command opens by default

        def progress(done: int, total: int, doing: str) -> None:
            elapsed_s = time.monotonic() - started
            left = f", about {elapsed_s / done * (total - done):.0f} s left" if done else ""
            self._say(f"{doing} · {elapsed_s:.0f} s{left}", done / total, running=True)

        try:
            carry_out(jobs, Harness(), progress=progress, out=out, stop=stop, command=self.job)
            how = "measured"
        except Interrupted:
            how = "cancelled"
        except WorklogError as error:
            how = f"failed: {error}"
        finally:
            with ONE_AT_A_TIME:
                kept = "nothing was finished"
                if out.exists():
                    self.answers.held.insert(0, Held(Run.load(out)))
                    kept = f"finished measurements are in {out}"
                self._stop = None
                self.show()
                self._say(f"{how}; {kept}")  # last: it says that the answer is shown


def panel(
    kernel: str | None = None, shape: Size = None, *, run: Run | Path | None = None, **biased: Value
) -> Panel:
    """The panel, as the last line of a cell: a row for each pitfall, and the reading that the choices lead to.

    kernel, shape and biased settings (such as l2="warm") are chosen at first. run: where the readings come from
    (default: the recorded grid). With a GPU, a button measures what is chosen in a child process.
    Raises BadRunFile without a recording, and BadSetting.
    """
    return Panel(Answers(grid_runs(run)), kernel, shape, biased)


def ladder(
    rung: str = LADDER[-1].name, shape: Size = None, *, run: Run | Path | None = None
) -> Climb:
    """A rung of the ladder, as the last line of a cell: idea, changed source lines, memory counts, registers, occupancy
    and time, beside the rung before.

    shape: default 4096, or the largest of a given run without it. run: where the numbers come from (default: this
    machine's newest run that holds the rung at the shape, else a recording). Raises BadSetting, BadRunFile, and
    NothingToDraw for a given run without a time.
    """
    name = rung_of(rung).name
    at = Shape.of(SIZE if shape is None else shape)
    if run is None:
        return Climb(newest_run(lambda run: run.select(name, at)), name, at)
    given = run if isinstance(run, Run) else open_run(run)
    return Climb(given, name, shape_to_draw(given, None) if shape is None else at)


def timeline(kernel: Kernel | str, shape: Size = None, block: int = 0) -> Chart:
    """What the warps of a block do one after the other, from what the emulator executed: an order, not a time. shape:
    default, 2 x 2 tiles and four tiles along K more than its stages. Raises what access raises, BadSetting for a kernel
    that states no tile, and NothingToDraw.
    """
    kernel = rung_of(kernel) if isinstance(kernel, str) else kernel
    tile = kernel.template
    if not {"BM", "BN", "BK"} <= tile.keys():
        raise BadSetting(
            f"{kernel.name} states no tile with BM, BN and BK, which a timeline numbers along K"
        )
    if shape is None:
        shape = kernel.domain.padded(
            Shape(2 * tile["BM"], 2 * tile["BN"], tile["BK"] * (tile.get("STAGES", 2) + 4))
        )
    return plots.timeline(accesses.access(kernel, shape, block))


def access(kernel: Kernel | str, shape: Size = None, block: int = 0) -> AccessView:
    """What each warp of a block touches, step by step, as the last line of a cell: as worklog.analysis.accesses.access,
    whose errors it raises.
    """
    return AccessView(kernel, shape, block)
