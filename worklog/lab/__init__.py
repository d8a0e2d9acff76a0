"""The notebook layer: a panel to switch each fix of the harness on and off, the ladder rung by rung, and the effect of
each pitfall. Each page is followed by a chart for readers without a running kernel, which is hidden where the page is
drawn.

check_answer grades the exercises of the notebooks.

The pages read runs, and start a child process for new ones; they never use CUDA themselves.
"""

from __future__ import annotations

from pathlib import Path

from worklog.lab.ablation_page import Ablation, AblationChoice
from worklog.lab.choice import Size, grid_run, grid_runs, ladder_runs
from worklog.lab.exercises import check_answer
from worklog.lab.ladder_page import Climb, Ladder
from worklog.lab.panel_answer import PanelChoice
from worklog.lab.panel_page import Panel
from worklog.lab.readings import contents
from worklog.plots import Chart
from worklog.runs import Run, Table
from worklog.settings import Value

__all__ = [
    "ablation",
    "ablation_static",
    "check_answer",
    "ladder",
    "ladder_static",
    "panel",
    "panel_static",
    "recorded",
]


def panel(kernel: str | None = None, size: Size = None, *, run: Run | Path | None = None, **biased: Value) -> Panel:
    """The panel, as the last line of a cell: a row for each pitfall, and the reading that the choices lead to.

    kernel, size and biased settings (such as l2="warm") are chosen at first. run: where the readings come from
    (default: the recording that recorded() describes). With a GPU, a button measures what is chosen in a child process.
    Raises BadRunFile without a recording, and BadSetting.
    """
    return Panel(PanelChoice(grid_runs(run), kernel, size, **biased))


def panel_static(
    kernel: str | None = None, size: Size = None, *, run: Run | Path | None = None, **biased: Value
) -> Chart:
    """The panel's picture as a chart. Raises like panel(), and NotRecorded for what the run doesn't hold."""
    return PanelChoice(grid_runs(run), kernel, size, **biased).chart()


def recorded(run: Run | Path | None = None) -> Table:
    """The rungs, sizes and combinations of settings that the panel shows without a GPU. Raises BadRunFile."""
    return contents(grid_run(run))


def ladder(rung: str | None = None, size: Size = None, *, run: Run | Path | None = None) -> Ladder:
    """The ladder rung by rung, as the last line of a cell: idea, changed source lines, memory counts, registers,
    occupancy and time of a rung, and its place on the ladder.

    rung and size are chosen at first. run: where the numbers come from (default: this machine's latest run, and the
    recording for what that does not hold). Raises BadSetting, and BadRunFile without any run.
    """
    return Ladder(Climb(ladder_runs(run), rung, size))


def ladder_static(rung: str | None = None, size: Size = None, *, run: Run | Path | None = None) -> Chart:
    """The ladder page's picture as a chart, with the tables of costs below it in a notebook. Raises like ladder(), and
    NothingToDraw where nothing was timed at the size.
    """
    return Climb(ladder_runs(run), rung, size).chart()


def ablation(kernel: str | None = None, size: Size = None, *, run: Run | Path | None = None) -> Ablation:
    """The effect of each pitfall alone on a rung's result at a size, as the last line of a cell.

    run: as for ladder(). Raises NothingToDraw where no run has an ablation, BadSetting, BadRunFile.
    """
    return Ablation(AblationChoice(ladder_runs(run), kernel, size))


def ablation_static(kernel: str | None = None, size: Size = None, *, run: Run | Path | None = None) -> Chart:
    """The ablation page's picture as a chart. Raises like ablation(), and NotRecorded for a missing rung or size."""
    return AblationChoice(ladder_runs(run), kernel, size).chart()
