"""The changes of kernels' times from one side to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import Rows, scale
from worklog.plots.page import Margins, Texts, on_axes
from worklog.plots.style import ACCENT, ALERT, FAINT, GREY, MUTED
from worklog.runs.changes import FAILED, FASTER, SLOWER, Changes, KernelChange

if TYPE_CHECKING:
    from worklog.plots.page import OnAxes


PITCH = 0.24  # inches
COLOURS = {SLOWER: ALERT, FASTER: ACCENT}


@style.chart
def changes(comparison: Changes, *, ax: OnAxes | None = None) -> OnAxes:
    """Draw each kernel and size with its change in percent and the 95 % interval.

    The band is half of the threshold; no change in it counts. Returns a Chart, or `ax`. Raises
    NothingToDraw without a change.
    """
    kernels = [
        row for row in comparison.rows if row.change.verdict != FAILED and row.old_us and row.new_us
    ]
    if not kernels:
        reason = comparison.headline or "no kernel has a time on both sides"
        raise NothingToDraw(f"there is no change to draw: {reason}")
    kernels.sort(key=lambda row: -row.change.share)
    rows = Rows([f"{row.kernel} {row.place}".strip() for row in kernels], PITCH)
    half_percent = 50 * comparison.threshold
    texts = Texts(
        "changes",
        finding=comparison.headline,
        subtitle=(
            "Change of the time, with its 95 % interval; in the band, within "
            f"±{half_percent:g} %, no change counts."
        ),
        footer=[f"old: {comparison.old}", f"new: {comparison.new}", *comparison.versions],
        alt=_alt(rows, kernels),
    )

    def draw(axes: Axes) -> None:
        rows.draw_names(axes)
        for row_y, row in zip(rows.ys, kernels, strict=True):
            _draw_change(axes, row_y, row)
        axes.axvspan(-half_percent, half_percent, color=FAINT, linewidth=0, zorder=0)
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=1)
        scale(axes.xaxis, MaxNLocator(7), "% longer than before (right: slower)", written="{x:+g}")

    return on_axes(ax, draw, texts, height=rows.height, margins=Margins(left=rows.left))


def _alt(rows: Rows, kernels: Sequence[KernelChange]) -> list[str]:
    """Return the alt text: each change with its verdict."""
    alt = ["Changes of the time with their 95 % intervals"]
    for name, row in zip(rows.names, kernels, strict=True):
        alt.append(f"{name}: {row.change}, {row.change.verdict}")
    return alt


def _draw_change(axes: Axes, row_y: float, row: KernelChange) -> None:
    """Draw a change in percent as a dot on its interval."""
    colour = COLOURS.get(row.change.verdict, GREY)
    ends = [100 * row.change.low, 100 * row.change.high]
    axes.plot(ends, [row_y, row_y], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2)
    axes.plot([100 * row.change.share], [row_y], "o", color=colour, markersize=4, zorder=3)
