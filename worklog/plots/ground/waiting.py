"""A model of latency: how busy a unit is if some warps use it in turn and wait between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import Rows, annotate, fill, scale
from worklog.plots.page import Chart, Texts, page
from worklog.plots.style import ACCENT, FAINT, INK, WIDTH_IN

# inches
PITCH = 0.26
HIGH = 0.16
BELOW = 0.4
RIGHT = 0.9  # for the share
SHADE = 0.3  # of all warps but the first
PERIODS = 2.2  # of one warp alone, that are drawn


@dataclass(frozen=True)
class Turns:
    """Warps that use a unit in turn: each uses it, then waits for its load, again and again."""

    warps: int
    used_cycles: float  # of the unit, by a warp in its turn
    latency_cycles: float  # from the end of a turn, until the warp can go on

    @property
    def period_cycles(self) -> float:
        """The cycles from a warp's turn to its next turn."""
        return max(self.used_cycles + self.latency_cycles, self.warps * self.used_cycles)

    @property
    def busy(self) -> float:
        """The share of the time in which the unit is used."""
        return self.warps * self.used_cycles / self.period_cycles

    def starts(self, warp: int, until_cycles: float) -> list[float]:
        """Return the start of each turn of a warp, up to a time."""
        starts = []
        start = warp * self.used_cycles
        while start < until_cycles:
            starts.append(start)
            start += self.period_cycles
        return starts


@style.chart
def waiting(
    used_cycles: Mapping[str, float],
    latency_cycles: float,
    source: str,
    *,
    warps: Sequence[int] = (1, 8, 64),
) -> Chart:
    """Draw when a unit is busy, if warps use it in turn and wait for loads between.

    It is a model: each turn is equally long, and each wait lasts the latency.

    used_cycles: how long a turn uses the unit, by the kernel's name
    source: the label of these numbers
    warps: how many are resident, a row for each
    Raises NothingToDraw without a kernel, or a kernel that doesn't use the unit.
    """
    if not used_cycles or not warps or min(used_cycles.values()) <= 0:
        raise NothingToDraw("no warp uses the unit: give cycles above 0, and at least one warp")
    kernels = {
        name: [Turns(count, cycles, latency_cycles) for count in warps]
        for name, cycles in used_cycles.items()
    }
    by_row = dict[str, Turns]()
    for name, rows_of_kernel in kernels.items():
        by_row |= {f"{name}, {_counted(turns.warps)}": turns for turns in rows_of_kernel}
    rows = Rows([*by_row], PITCH)
    until_cycles = PERIODS * latency_cycles
    texts = Texts(
        "waiting",
        finding=_finding(kernels),
        subtitle=(
            f"A model: a warp uses the unit (dark: warp 0, pale: the others), then waits "
            f"{latency_cycles:.0f} cycles for its load. Grey: no warp is ready, and the unit idles."
        ),
        footer=[source],
        alt=["When a unit is busy, by kernel and number of warps"]
        + [
            f"{name}: {turns.used_cycles:.3g} cycles a turn, busy {_percent(turns.busy)}"
            for name, turns in by_row.items()
        ],
    )
    chart = page(texts, rows.height + BELOW)
    width = WIDTH_IN - rows.left - RIGHT
    axes = chart.axes_at(rows.left, chart.body_bottom + BELOW, width, rows.height)
    step = _round_step(until_cycles)
    ticks = [step * number for number in range(int(until_cycles / step) + 1)]
    scale(axes.xaxis, ticks, "cycles", (0, until_cycles))
    rows.draw_names(axes)
    for row_y, turns in zip(rows.ys, by_row.values(), strict=True):
        _draw_turns(axes, row_y, turns, until_cycles)
    return chart


def _finding(kernels: Mapping[str, Sequence[Turns]]) -> str:
    """Return how busy each kernel keeps the unit in its first row and in its last row."""
    by_kernel = [
        f"{name} {_percent(turns[0].busy)} with {_counted(turns[0].warps)}, "
        f"{_percent(turns[-1].busy)} with {turns[-1].warps}"
        for name, turns in kernels.items()
    ]
    return f"Other warps fill the wait: {'; '.join(by_kernel)}"


def _draw_turns(axes: Axes, row_y: float, turns: Turns, until_cycles: float) -> None:
    """Draw the turns of all warps in a row, and the share of the time that they fill."""
    top = row_y - HIGH / 2
    fill(axes, [Rectangle((0, top), until_cycles, HIGH)], FAINT)
    boxes = list[Rectangle]()
    for warp in range(1, turns.warps):
        boxes += _boxes(turns, warp, top, until_cycles)
    fill(axes, boxes, ACCENT, SHADE)
    fill(axes, _boxes(turns, 0, top, until_cycles), ACCENT)
    annotate(
        axes,
        f"busy {_percent(turns.busy)}",
        (until_cycles, row_y),
        color=INK,
        annotation_clip=False,
    )


def _boxes(turns: Turns, warp: int, top: float, until_cycles: float) -> list[Rectangle]:
    """Return the turns of a warp as boxes. top: their upper edge."""
    return [
        Rectangle((start, top), min(turns.used_cycles, until_cycles - start), HIGH)
        for start in turns.starts(warp, until_cycles)
    ]


def _round_step(until_cycles: float) -> float:
    """Return a round distance of ticks, of which two to five fit."""
    step = 1.0
    while until_cycles / step > 5:
        step *= 2.5 if f"{step:g}".startswith("2") else 2
    return step


def _percent(share: float) -> str:
    """Return a share in percent, with a digit behind the point below 10."""
    percent = 100 * share
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def _counted(count: int) -> str:
    """Return a number of warps."""
    return f"{count} warp" if count == 1 else f"{count} warps"
