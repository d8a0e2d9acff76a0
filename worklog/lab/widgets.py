"""What a cell shows as its last line.

That is the panel and the access viewer, which are widgets, a timeline, or a rung of the ladder. The
panel's button measures what is chosen in a child process if there is a GPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Unpack, cast

import anywidget
import traitlets

from worklog import plots
from worklog.errors import BadSetting, Interrupted, WorklogError, hinted
from worklog.kernel import LADDER, RUNGS, Kernel
from worklog.kernel import rung as rung_of
from worklog.lab.answers import Answers
from worklog.lab.assets import (
    ACCESS_SCRIPTS,
    PANEL_SCRIPTS,
    RUNG_SCRIPTS,
    assets,
    palette,
    widget_module,
)
from worklog.lab.readings import (
    LAUNCHES,
    RunReadings,
    Settings,
    changes,
    format_value,
    grid_runs,
    unbiased_settings,
)
from worklog.lab.rung_pages import SIZE, RungPage
from worklog.plots import Chart
from worklog.plots.drawing import DARK_PAGES
from worklog.plots.selection import shape_to_draw
from worklog.plots.style import DARK, LIGHT
from worklog.problem import Shape, Size
from worklog.runner.execute import carry_out, order_of
from worklog.runner.job import ABLATION_SAMPLING, Job, product_job
from worklog.runner.sources import why_not_live
from worklog.runs import Run, open_run
from worklog.runs.sources import new_path, newest_run
from worklog.settings import PITFALLS, Harness, Pitfall, PitfallSettings, Value, rule
from worklog.viewer import accesses


def places(settings: Settings) -> list[int]:
    """Return the place of each setting's value among its pitfall's values.

    The places are in the order of the table of pitfalls.
    """
    return [pitfall.values.index(rule(settings[pitfall.setting])) for pitfall in PITFALLS]


# With JupyterLab's subshells, the kernel handles a user's events on two threads: a widget's first
# message on one, its other messages on the other. An event that arrives while another one is being
# answered waits for this lock.
ONE_AT_A_TIME = threading.RLock()

COLOURS = palette(".worklog", LIGHT, "light") + "".join(
    palette(f"{page} .worklog", DARK, "dark") for page in DARK_PAGES
)


class Widget(anywidget.AnyWidget):
    """A widget that is shown as the lines of text() if no kernel runs."""

    def _repr_mimebundle_(self, **options: Any) -> Any:
        text = {"text/plain": "\n".join(self.text()), "text/html": self.html()}
        data, metadata = super()._repr_mimebundle_(**options) or ({}, {})
        return data | text, metadata

    def text(self) -> list[str]:
        """Return the widget as lines of text."""
        raise NotImplementedError

    def html(self) -> str:
        """Return the widget as HTML that no kernel changes."""
        return "".join(f"<p>{escape(line)}</p>" for line in self.text())


class AccessView(Widget):
    """The accesses of a warp: access.js draws the document of worklog.viewer.accesses.

    versus: a second kernel, at the same size, in the same step of its work
    """

    _esm = widget_module(*ACCESS_SCRIPTS)
    _css = COLOURS + assets("panel.css", "access.css")
    documents = traitlets.Dict().tag(sync=True)
    of_page = traitlets.Bool(False).tag(sync=True)
    of_pair = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        kernel: Kernel | str,
        shape: Size | None = None,
        block: int = 0,
        versus: Kernel | str | None = None,
    ) -> None:
        kernels = [kernel] if versus is None else [kernel, versus]
        if versus is not None and shape is None:
            shape = accesses.common_shape(kernels)
        documents = dict[str, Any]()
        for compared in kernels:
            document = accesses.access(compared, shape, block).document
            name = document["kernel"]
            # A kernel and the same kernel with another tile have the same name.
            documents[f"{name} (2)" if name in documents else name] = document
        super().__init__(documents=documents, of_pair=versus is not None)

    def text(self) -> list[str]:
        """Return the first sentence about each access of each kernel."""
        lines = list[str]()
        for document in self.documents.values():
            if self.of_pair:
                lines.append(document["kernel"])
            kinds = [kind for kind in document["kinds"] if "pill" in kind]
            sentences = [f"{kind['text']}: {kind['cost']}" for kind in kinds]
            lines += [document["about"], *dict.fromkeys(sentences)]
        return lines


class RungView(Widget):
    """A rung of the ladder at a size, both of which can be chosen. rung.js draws it.

    page_of: returns the page of a rung at a shape
    rungs, shapes: to choose from
    Raises what `page_of` raises.
    """

    _esm = widget_module(*RUNG_SCRIPTS)
    _css = COLOURS + assets("panel.css")
    table = traitlets.Dict().tag(sync=True)  # what can be chosen
    chosen = traitlets.Dict().tag(sync=True)  # places in the table's lists
    page = traitlets.Unicode().tag(sync=True)  # as HTML

    def __init__(
        self,
        page_of: Callable[[str, Shape], RungPage],
        rungs: Sequence[str],
        shapes: Sequence[Shape],
        rung: str,
        shape: Shape,
    ) -> None:
        self.page_of = page_of
        self.rungs = rungs
        self.shapes = sorted({*shapes, shape}, key=lambda shape: shape.flops)
        table = {"rungs": [*rungs], "sizes": [*map(str, self.shapes)]}
        chosen = {"rung": rungs.index(rung), "size": self.shapes.index(shape)}
        super().__init__(table=table, chosen=chosen)
        self.show()
        self.observe(self.show, "chosen")

    def rung_page(self) -> RungPage:
        """Return the page of what is chosen."""
        return self.page_of(self.rungs[self.chosen["rung"]], self.shapes[self.chosen["size"]])

    def show(self, _: object = None) -> None:
        """Show the page of what is chosen."""
        self.page = self.rung_page()._repr_html_()

    def text(self) -> list[str]:
        """Return the page as lines of text."""
        return repr(self.rung_page()).splitlines()

    def html(self) -> str:
        """Return the page as HTML."""
        return str(self.page)

    def __repr__(self) -> str:
        return "\n".join(self.text())


class Panel(Widget):
    """A row for each pitfall, next to the reading for these choices.

    panel.js draws it, Python answers. It begins with the last kernel at the middle size without a
    pitfall.

    kernel, shape, biased: other choices to begin with
    job: the command that measures (default: worklog.runner.child)
    Raises BadSetting.
    """

    _esm = widget_module(*PANEL_SCRIPTS)
    _css = COLOURS + assets("panel.css")
    table = traitlets.Dict().tag(sync=True)  # everything that can be chosen
    chosen = traitlets.Dict().tag(sync=True)  # places in the table's lists
    answer = traitlets.Dict().tag(sync=True)  # what is shown for these choices
    # whether the panel is measuring, the share that is finished, and a sentence
    progress = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        answers: Answers,
        kernel: str | None = None,
        shape: Size | None = None,
        biased: Settings | None = None,
        *,
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
        table = {
            "kernels": answers.kernels,
            "sizes": [*map(str, answers.shapes)],
            "pitfalls": [_pitfall_row(pitfall) for pitfall in PITFALLS],
            "unbiased": places(answers.unbiased),
            "naive": places(answers.naive),
            "live": self.reason is None,
        }
        super().__init__(table=table, chosen=chosen)
        self.show()
        self.observe(self.show, "chosen")
        self._report(f"measure: {self.reason}" if self.reason else "")
        self.on_msg(self._on_message)

    def show(self, _: object = None) -> None:
        """Show the answer to what is chosen."""
        with ONE_AT_A_TIME:
            self.answer = self.answered()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Set what the user chose, one message at a time."""
        with ONE_AT_A_TIME:
            super().set_state(sync_data)

    def selection(self) -> tuple[str, Shape, dict[str, Value]]:
        """Return the kernel, the shape and the settings that are chosen.

        A run's own clock, such as locked:1395, stays.
        """
        chosen = self.chosen
        answers = self.answers
        settings = dict(answers.unbiased)
        for pitfall, place in zip(PITFALLS, chosen["values"], strict=True):
            value = pitfall.values[place]
            if value != rule(settings[pitfall.setting]):
                settings[pitfall.setting] = value
        return answers.kernels[chosen["kernel"]], answers.shapes[chosen["size"]], settings

    def answered(self) -> dict[str, Any]:
        """Return the answer to what is chosen, or the reason why there is none.

        Without a GPU, it also has the places of the choices that would have no answer.
        """
        kernel, shape, settings = self.selection()
        try:
            answer = self.answers.answer(kernel, shape, **settings).as_json()
        except WorklogError as error:
            answer = {"missing": str(error) if self.reason else f"{error}; press measure"}
        if self.reason:
            answer["absent"] = self._absent(kernel, shape, settings)
        return answer

    def _absent(self, kernel: str, shape: Shape, settings: Settings) -> dict[str, Any]:
        """Return the places of the kernels, sizes and values that have no answer if chosen next."""
        has_time = self.answers.has
        kernels = [has_time(name, shape, settings) for name in self.answers.kernels]
        sizes = [has_time(kernel, size, settings) for size in self.answers.shapes]
        values = []
        for pitfall in PITFALLS:
            changed = [{**settings, pitfall.setting: value} for value in pitfall.values]
            values.append(_false_places([has_time(kernel, shape, change) for change in changed]))
        return {
            "kernels": _false_places(kernels),
            "sizes": _false_places(sizes),
            "values": values,
        }

    def text(self) -> list[str]:
        """Return the answer in sentences, or the reason why there is none."""
        kernel, shape, settings = self.selection()
        try:
            return self.answers.answer(kernel, shape, **settings).text
        except WorklogError as error:
            return [str(error)]

    def _on_message(self, _: object, message: str, __: object) -> None:
        """Measure, or cancel the measurement."""
        if message == "measure":
            self.measure()
        elif self._stop is not None:
            self._stop.set()

    def measure(self) -> None:
        """Measure what is chosen in a child process.

        The jobs are the unbiased reading, and the chosen one if its launches differ.
        """
        with ONE_AT_A_TIME:
            if self._stop is not None or self.reason is not None:
                return
            self._stop = threading.Event()
            self._report("starting", is_running=True)
            arguments = (self.jobs(), self._stop)
            threading.Thread(target=self._measure, args=arguments, daemon=True).start()

    def jobs(self) -> list[Job]:
        """Return the jobs of measure()."""
        kernel, shape, settings = self.selection()
        biased = []
        for pitfall in changes(settings, unbiased_settings()):
            if pitfall in LAUNCHES:
                biased.append((pitfall.setting, settings[pitfall.setting]))
        jobs = [product_job(kernel, shape, ABLATION_SAMPLING)]
        if biased:
            jobs.append(product_job(kernel, shape, tuple(biased) + ABLATION_SAMPLING))
        return jobs

    def _report(self, sentence: str, share: float = 0.0, *, is_running: bool = False) -> None:
        self.progress = {"running": is_running, "share": share, "words": sentence}

    def _measure(self, jobs: Sequence[Job], stop: threading.Event) -> None:
        """Measure jobs, on a thread. Then the new run, complete or not, answers first."""
        started_s = time.monotonic()
        outcome = "failed"
        path = new_path(datetime.now(UTC).isoformat())
        out: Path = path.parent / "panel" / path.name  # no command opens this folder by default

        def progress(finished: int, total: int, step: str) -> None:
            elapsed_s = time.monotonic() - started_s
            sentence = f"{step} · {elapsed_s:.0f} s"
            if finished:
                sentence += f", about {elapsed_s / finished * (total - finished):.0f} s left"
            self._report(sentence, finished / total, is_running=True)

        try:
            order = order_of(jobs, Harness())
            carry_out(order, progress=progress, out=out, stop=stop, command=self.job)
            outcome = "measured"
        except Interrupted:
            outcome = "cancelled"
        except WorklogError as error:
            outcome = f"failed: {error}"
        finally:
            with ONE_AT_A_TIME:
                result = "nothing was finished"
                if out.exists():
                    self.answers.sources.insert(0, RunReadings(Run.load(out)))
                    result = f"finished measurements are in {out}"
                self._stop = None
                self.show()
                self._report(f"{outcome}; {result}")  # last: it means that the answer is shown


def _pitfall_row(pitfall: Pitfall) -> dict[str, Any]:
    """Return a pitfall's row of the panel's table."""
    return {
        "setting": pitfall.setting,
        "title": pitfall.title,
        "what": pitfall.what,
        "article": pitfall.article,
        "values": [format_value(value) for value in pitfall.values],
        "biased": [pitfall.values.index(value) for value in pitfall.biased],
    }


def _false_places(truths: Sequence[bool]) -> list[int]:
    """Return the places of the false elements."""
    return [place for place, is_true in enumerate(truths) if not is_true]


def panel(
    kernel: str | None = None,
    shape: Size | None = None,
    *,
    run: Run | Path | None = None,
    **biased: Unpack[PitfallSettings],
) -> Panel:
    """Return the panel, for the last line of a cell.

    It has a row for each pitfall, and the reading for the choices in them. With a GPU, a button
    measures what is chosen in a child process.

    kernel, shape, biased: the first choices; biased settings are such as l2="warm"
    run: the source of the readings (default: the recorded grid)
    Raises BadRunFile without a recording, and BadSetting.
    """
    return Panel(Answers(grid_runs(run)), kernel, shape, cast("Settings", biased))


@hinted
def ladder(
    rung: str = LADDER[-1].name, shape: Size | None = None, *, run: Run | Path | None = None
) -> RungView:
    """Return a rung of the ladder, compared with the rung before.

    It is for the last line of a cell. It has the idea, changed source lines, memory counts,
    registers, occupancy and time, and lists to choose another rung and another size.

    shape: default 4096, or the largest shape of `run` if that lacks 4096
    run: the source of the numbers (default: this machine's newest run with the rung at the shape,
        else a recording)
    Raises BadSetting, BadRunFile, and NothingToDraw for a `run` without a time.
    """
    name = rung_of(rung).name
    at_shape = Shape.of(SIZE if shape is None else shape)
    if run is None:
        offered = newest_run(lambda run: run.select(name, at_shape))
        page_of = _newest_page
    else:
        offered = run if isinstance(run, Run) else open_run(run)
        page_of = partial(RungPage, offered)
        if shape is None:
            at_shape = shape_to_draw(offered, None)
    rungs = [record.name for record in RUNGS]
    return RungView(page_of, rungs, offered.shapes(), name, at_shape)


def _newest_page(rung: str, shape: Shape) -> RungPage:
    """Return the page of a rung from the newest run that holds it."""
    return RungPage(newest_run(lambda run: run.select(rung, shape)), rung, shape)


@hinted
def timeline(kernel: Kernel | str, shape: Size | None = None, block: int = 0) -> Chart:
    """Draw what the warps of a block do one after the other.

    It is the order in which the emulator executed it, not a time.
    shape: default, 2 x 2 tiles, and four tiles more along K than the kernel has stages
    Raises what access raises, BadSetting for a kernel that states no tile, and NothingToDraw.
    """
    kernel = rung_of(kernel) if isinstance(kernel, str) else kernel
    tile = kernel.template
    if not {"BM", "BN", "BK"} <= tile.keys():
        raise BadSetting(
            f"{kernel.name} states no tile with BM, BN and BK, which a timeline numbers along K"
        )
    if shape is None:
        depth = tile["BK"] * (tile.get("STAGES", 2) + 4)
        shape = kernel.domain.padded(Shape(2 * tile["BM"], 2 * tile["BN"], depth))
    return plots.timeline(accesses.access(kernel, shape, block))


@hinted
def access(
    kernel: Kernel | str,
    shape: Size | None = None,
    block: int = 0,
    *,
    versus: Kernel | str | None = None,
) -> AccessView:
    """Return the accesses of a block, step by step, from the grid down to a lane.

    It is for the last line of a cell. The other arguments and the errors are those of
    worklog.viewer.accesses.access.

    versus: a second kernel, which is shown next to the first one at the same size; its access is
        always of the same kind (default shape: the smallest that has both kernels' default shapes)
    """
    return AccessView(kernel, shape, block, versus)
