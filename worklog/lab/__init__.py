"""The notebook layer: a panel to toggle each fix of the harness and see what that does to the number, a page to climb
the ladder rung by rung, and one to see what each lie does to a rung. Each has a static twin, a chart, for where no
kernel runs.

It reads runs, and asks a process of its own for new ones; CUDA is never touched here. The widgets are loaded when a
page is made, so that the panel's child process starts without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from worklog.settings import Value

if TYPE_CHECKING:
    from worklog.lab.lies_view import Ablation
    from worklog.lab.model import Model
    from worklog.lab.step_view import Ladder
    from worklog.lab.steps import Climb
    from worklog.lab.view import Panel
    from worklog.plots.figure import Chart
    from worklog.problem.gemm import Shape
    from worklog.runs.run import Run

__all__ = ["ablation", "ablation_static", "ladder", "ladder_static", "panel", "panel_static"]


def panel(
    kernel: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None, **biased: Value
) -> Panel:
    """The panel, as the last line of a cell: a choice for each gremlin, and the reading that it leads to.

    kernel, size and lies (such as l2="warm") are what is chosen at first. run: what to answer from; by default the
    recording of every combination of fixes. With a GPU, its button measures what is chosen in a process of its own.
    Raises BadRunFile without a recording, BadSetting, UnknownRung or BadShape for what there is not.
    """
    from worklog.lab.sources import runs
    from worklog.lab.view import Panel

    return Panel(_model(kernel, size, runs(run), biased))


def panel_static(
    kernel: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None, **biased: Value
) -> Chart:
    """What the panel shows for these choices, as a chart that needs no kernel to be seen. Raises like panel(), and
    NotRecorded for a combination that the run does not hold.
    """
    from worklog.lab.picture import whole
    from worklog.lab.sources import runs

    return whole(_model(kernel, size, runs(run), biased).answer())


def _model(kernel: str | None, size: Shape | int | None, runs: list[Run], biased: dict[str, Value]) -> Model:
    from worklog.lab.model import Model

    return Model(runs, kernel, size, **biased)


def ladder(rung: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None) -> Ladder:
    """The ladder, rung by rung, as the last line of a cell: what each changed in the source, the idea, traffic,
    registers, occupancy, time, and its place among the others.

    rung, size: what is shown at first. run: what to answer from; by default this machine's latest run, and the
    recording for what that does not hold. Raises UnknownRung or BadShape for what there is not, BadRunFile without any
    run.
    """
    from worklog.lab.step_view import Ladder

    return Ladder(_climb(rung, size, run))


def ladder_static(rung: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None) -> Chart:
    """What the ladder's page shows for a rung and a size, but for the changed lines, as a chart. Raises like
    ladder().
    """
    from worklog.lab.step_picture import whole

    return whole(_climb(rung, size, run).step())


def ablation(kernel: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None) -> Ablation:
    """What each lie alone does to a rung's reading at a size, as the last line of a cell.

    run: what to answer from, as for ladder(). Raises NothingToDraw where no run has an ablation, BadShape, BadRunFile.
    """
    from worklog.lab.lies import Lies
    from worklog.lab.lies_view import Ablation
    from worklog.lab.sources import ladder_runs

    return Ablation(Lies(ladder_runs(run), kernel, size))


def ablation_static(
    kernel: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None
) -> Chart:
    """The ablation's page as a chart. Raises like ablation(), and NotRecorded where the runs lack the rung or size."""
    from worklog.lab.lies import Lies, picture
    from worklog.lab.sources import ladder_runs

    return picture(Lies(ladder_runs(run), kernel, size).told())


def _climb(rung: str | None, size: Shape | int | None, run: Run | Path | None) -> Climb:
    from worklog.analysis.traffic import traffic
    from worklog.lab.sources import ladder_runs
    from worklog.lab.steps import Climb

    return Climb(ladder_runs(run), traffic(), rung, size)
