"""The notebook layer: a panel to toggle each fix of the harness and see what that does to the number.

It reads runs, and asks a process of its own for new ones; CUDA is never touched here. The widgets are loaded when the
panel is made, so that its child process starts without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from worklog.gremlins import Value

if TYPE_CHECKING:
    from worklog.gemm import Shape
    from worklog.lab.model import Model
    from worklog.lab.view import Panel
    from worklog.plots.figure import Chart
    from worklog.runs import Run

__all__ = ["panel", "panel_static"]


def panel(
    kernel: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None, **lies: Value
) -> Panel:
    """The panel, as the last line of a cell: a choice for each gremlin, and the reading that it leads to.

    kernel, size and lies (such as l2="warm") are what is chosen at first. run: what to answer from; by default the
    recording of every combination of fixes. With a GPU, its button measures what is chosen in a process of its own.
    Raises BadRunFile without a recording, BadSetting, UnknownRung or BadShape for what there is not.
    """
    from worklog.lab.sources import runs
    from worklog.lab.view import Panel

    return Panel(_model(kernel, size, runs(run), lies))


def panel_static(
    kernel: str | None = None, size: Shape | int | None = None, *, run: Run | Path | None = None, **lies: Value
) -> Chart:
    """What the panel shows for these choices, as a chart that needs no kernel to be seen. Raises like panel(), and
    NotRecorded for a combination that the run does not hold.
    """
    from worklog.lab.picture import whole
    from worklog.lab.sources import runs

    return whole(_model(kernel, size, runs(run), lies).answer())


def _model(kernel: str | None, size: Shape | int | None, runs: list[Run], lies: dict[str, Value]) -> Model:
    from worklog.lab.model import Model

    return Model(runs, kernel, size, **lies)
