"""The notebook layer: a panel to switch each fix of the harness on and off, the ladder rung by rung, the magics, and
the exercises of the notebooks.

The pages read runs, and start a child process for new ones; they never use CUDA themselves.
"""

from __future__ import annotations

from pathlib import Path

from worklog.kernel import Kernel
from worklog.lab.access_view import AccessView
from worklog.lab.climb import climb, counted_changes, counts, effect, register_reads, same_tile, step, steps
from worklog.lab.exercises import check_answer
from worklog.lab.ladder_page import Ladder, diff, ladder_runs, source
from worklog.lab.panel_page import Panel
from worklog.lab.readings import Answers, Size, grid_runs
from worklog.runs import Run
from worklog.settings import Value

__all__ = [
    "access", "check_answer", "climb", "counted_changes", "counts", "diff", "effect", "ladder", "panel",
    "register_reads", "same_tile", "source", "step", "steps",
]  # fmt: skip


def panel(kernel: str | None = None, shape: Size = None, *, run: Run | Path | None = None, **biased: Value) -> Panel:
    """The panel, as the last line of a cell: a row for each pitfall, and the reading that the choices lead to.

    kernel, shape and biased settings (such as l2="warm") are chosen at first. run: where the readings come from
    (default: the recorded grid). With a GPU, a button measures what is chosen in a child process.
    Raises BadRunFile without a recording, and BadSetting.
    """
    return Panel(Answers(grid_runs(run)), kernel, shape, biased)


def ladder(rung: str | None = None, shape: Size = None, *, run: Run | Path | None = None) -> Ladder:
    """The ladder rung by rung, as the last line of a cell: idea, changed source lines, memory counts, registers,
    occupancy and time of a rung, and its place on the ladder.

    rung and shape are chosen at first. run: where the numbers come from (default: this machine's latest run, and the
    recording for what that does not hold). Raises BadSetting, and BadRunFile without any run.
    """
    return Ladder(ladder_runs(run), rung, shape)


def access(kernel: Kernel | str, shape: Size = None, block: int = 0) -> AccessView:
    """What each warp of a block touches, step by step, as the last line of a cell: as worklog.analysis.access, whose
    errors it raises.
    """
    return AccessView(kernel, shape, block)
