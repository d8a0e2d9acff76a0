"""The notebook layer: a panel to switch each fix of the harness on and off, the ladder rung by rung, the magics, and
the exercises of the notebooks.

The pages read runs, and start a child process for new ones; they never use CUDA themselves.
"""

from __future__ import annotations

from pathlib import Path

from worklog import analysis, plots
from worklog.errors import BadSetting
from worklog.kernel import LADDER, Kernel
from worklog.kernel import rung as find_rung
from worklog.lab.exercises import check_answer
from worklog.lab.readings import Answers, Size, grid_runs
from worklog.lab.rungs import (
    SIZE,
    Climb,
    climb,
    counts,
    diff,
    effect,
    fetched_ahead,
    power_cap,
    register_reads,
    source,
    step,
    steps,
)
from worklog.lab.widgets import AccessView, Panel
from worklog.plots import Chart, shape_to_draw
from worklog.problem import Shape
from worklog.runs import Run, newest_run, open_run
from worklog.settings import Value

__all__ = [
    "access", "check_answer", "climb", "counts", "diff", "effect", "fetched_ahead", "ladder",
    "panel", "power_cap", "register_reads", "source", "step", "steps", "timeline",
]  # fmt: skip


def panel(kernel: str | None = None, shape: Size = None, *, run: Run | Path | None = None, **biased: Value) -> Panel:
    """The panel, as the last line of a cell: a row for each pitfall, and the reading that the choices lead to.

    kernel, shape and biased settings (such as l2="warm") are chosen at first. run: where the readings come from
    (default: the recorded grid). With a GPU, a button measures what is chosen in a child process.
    Raises BadRunFile without a recording, and BadSetting.
    """
    return Panel(Answers(grid_runs(run)), kernel, shape, biased)


def ladder(rung: str = LADDER[-1].name, shape: Size = None, *, run: Run | Path | None = None) -> Climb:
    """A rung of the ladder, as the last line of a cell: idea, changed source lines, memory counts, registers, occupancy
    and time, beside the rung before.

    shape: default 4096, or the largest of a given run without it. run: where the numbers come from (default: this
    machine's newest run that holds the rung at the shape, else a recording). Raises BadSetting, BadRunFile, and
    NothingToDraw for a given run without a time.
    """
    name, at = find_rung(rung).name, Shape.of(SIZE if shape is None else shape)
    if run is None:
        return Climb(newest_run(lambda run: run.select(name, at)), name, at)
    given = run if isinstance(run, Run) else open_run(run)
    return Climb(given, name, shape_to_draw(given, None) if shape is None else at)


def timeline(kernel: Kernel | str, shape: Size = None, block: int = 0) -> Chart:
    """What the warps of a block do one after the other, from what the emulator executed: an order, not a time. shape:
    default, 2 x 2 tiles and four tiles along K more than its stages. Raises what access raises, BadSetting for a kernel
    that states no tile, and NothingToDraw.
    """
    kernel = find_rung(kernel) if isinstance(kernel, str) else kernel
    tile = kernel.template
    if not {"BM", "BN", "BK"} <= tile.keys():
        raise BadSetting(f"{kernel.name} states no tile with BM, BN and BK, which a timeline numbers along K")
    if shape is None:
        shape = kernel.domain.padded(Shape(2 * tile["BM"], 2 * tile["BN"], tile["BK"] * (tile.get("STAGES", 2) + 4)))
    return plots.timeline(analysis.access(kernel, shape, block))


def access(kernel: Kernel | str, shape: Size = None, block: int = 0) -> AccessView:
    """What each warp of a block touches, step by step, as the last line of a cell: as worklog.analysis.access, whose
    errors it raises.
    """
    return AccessView(kernel, shape, block)
