"""Memory traffic by rung: how many sectors of global memory a multiply-add moves, and how often it passes through
shared memory. Counted on the emulator, so it holds no time and does not depend on a run.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from worklog.analysis.memory_counts import LadderCounts, MemoryCounts
from worklog.analysis.memory_counts import memory_counts as shipped
from worklog.plots.figure import ACCENT, ALERT, FAINT, PAPER, WIDTH_IN, Chart, styled
from worklog.plots.page import beside, page, right_of, ticks
from worklog.plots.selection import dimensions

ROW, BAR = 0.3, 0.2  # inches
ABOVE, BELOW, GAP, RIGHT = 0.1, 0.4, 0.25, 0.15
LABEL_ROOM = 1.0  # inches beside the longest bar
FLOAT4 = 16


@styled()
def traffic(counted: LadderCounts | None = None) -> Chart:
    """By rung: global sectors per multiply-add of a warp (dots, log scale, with the sectors per load), and
    shared-memory wavefronts per multiply-add (bars).

    counted: the counts to draw (default: those that come with the package). Raises WorklogError if those are missing.
    """
    counted = counted or shipped()
    rungs = counted.rungs
    first, *_, last = (*rungs, *rungs)
    times = rungs[first].sectors_per_fma / rungs[last].sectors_per_fma
    subtitle = (
        f"C = A·B in FP32, {dimensions(counted.shape)}. Left: 32-byte sectors of global memory per multiply-add of a "
        "warp, and per load, where 4 hold 32 neighbouring floats and 16 hold 32 float4. Right: passes through shared "
        "memory; hatched: added by bank conflicts."
    )
    alt = ["Memory traffic by rung: dots for global memory, bars for shared memory"] + [
        f"{name} {rung.sectors_per_request:.1f} sectors per global load, {rung.sectors_per_fma:.3f} per multiply-add, "
        f"{rung.wavefronts_per_fma:.2f} shared wavefronts per multiply-add of which {100 * rung.conflict_share:.0f} % "
        "conflicts"
        for name, rung in rungs.items()
    ]
    finding = f"From {first} to {last}, the same work takes {times:.0f} times less global traffic"
    new = page("traffic", finding, subtitle, [counted.label], alt, ABOVE + ROW * len(rungs) + BELOW)
    left, bottom = right_of(rungs), new.body_bottom + BELOW
    wide = (WIDTH_IN - left - GAP - RIGHT) / 2
    _dots(new.rows(left, bottom, wide, ROW, list(rungs)), list(rungs.values()), LABEL_ROOM / wide)
    _bars(new.rows(left + wide + GAP, bottom, wide, ROW, [""] * len(rungs)), list(rungs.values()), LABEL_ROOM / wide)
    return new.figure


def _dots(axes: Axes, rungs: list[MemoryCounts], labels: float) -> None:
    """One dot per rung, since a bar has no length on a log scale. labels: the share of the axis kept for words."""
    values = [rung.sectors_per_fma for rung in rungs]
    least, most = min(values) / 1.5, max(values) * 1.5
    axes.set_xscale("log")
    axes.set_xlim(least, least * (most / least) ** (1 / (1 - labels)))
    ticks(axes.xaxis, LogLocator())
    axes.set_xlabel("global sectors per warp multiply-add, log scale")
    for y, value, rung in zip(axes.get_yticks(), values, rungs, strict=True):
        float4 = " (float4)" if rung.load_width == FLOAT4 else ""
        axes.plot([least, value], [y, y], color=FAINT, linewidth=1.0, zorder=0.5)
        axes.plot([value], [y], "o", color=ACCENT, markersize=5)
        beside(axes, f"{value:.2g} · {rung.sectors_per_request:.1f} per load{float4}", (value, y), 6)


def _bars(axes: Axes, rungs: list[MemoryCounts], labels: float) -> None:
    """Wavefronts; the part that bank conflicts added is at a bar's end, hatched, so that it shows in grey too."""
    axes.set_xlim(0, (max(rung.wavefronts_per_fma for rung in rungs) or 1.0) / (1 - labels))
    axes.set_xlabel("shared-memory wavefronts per warp multiply-add")
    for y, rung in zip(axes.get_yticks(), rungs, strict=True):
        passes, added = rung.wavefronts_per_fma, rung.wavefronts_per_fma * rung.conflict_share
        axes.barh(y, passes, BAR, color=ACCENT)
        axes.barh(y, added, BAR, passes - added, color=ALERT, edgecolor=PAPER, hatch="////", linewidth=0)
        conflicts = f" · {100 * rung.conflict_share:.0f} % conflicts" if added else ""
        beside(axes, f"{passes:.2f}{conflicts}" if rung.wavefronts else "no shared memory", (passes, y), 6)
