"""Memory traffic by rung: how much global memory a multiply-add moves, in sectors and by request, and how often it
passes through shared memory. Counted on the emulator, so there is no time in it, and nothing of it depends on a run.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from worklog.analysis.traffic import RungTraffic, Traffic
from worklog.analysis.traffic import traffic as shipped
from worklog.plots.figure import Chart
from worklog.plots.page import page
from worklog.plots.selection import dimensions
from worklog.plots.style import (
    ACCENT,
    BODY_PT,
    FAINT,
    INK,
    LIE,
    MARGIN_IN,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
    styled,
    text_width,
)

ROW, BAR = 0.3, 0.2  # inches
ABOVE, BELOW, GAP, RIGHT = 0.1, 0.4, 0.25, 0.15
LABEL_ROOM = 1.0  # inches beside the longest bar
FLOAT4 = 16


@styled()
def traffic(counted: Traffic | None = None) -> Chart:
    """By rung: global sectors for each multiply-add of a warp (dots, on a logarithmic scale, with the sectors that one
    load costs), and shared-memory wavefronts for each (bars).

    counted: the counts to draw (default: those that come with the package). Raises WorklogError if those are missing.
    """
    counted = counted or shipped()
    rungs = dict(counted.rungs)
    left = MARGIN_IN + max(text_width(name, BODY_PT) for name in rungs) + 0.12
    wide = (WIDTH_IN - left - GAP - RIGHT) / 2
    height = ROW * len(rungs)
    new = page("traffic", _finding(rungs), _subtitle(counted), [counted.label], _alt(counted), ABOVE + height + BELOW)
    sectors = new.axes(left, new.body_bottom + BELOW, wide, height)
    _dots(sectors, rungs, wide)
    sectors.set_yticks(_places(rungs), list(rungs))
    sectors.set_xlabel("global sectors per warp multiply-add, log scale")
    passes = new.axes(left + wide + GAP, new.body_bottom + BELOW, wide, height)
    _bars(passes, rungs, wide)
    _conflicts(passes, rungs)
    passes.set_yticks([])
    passes.set_xlabel("shared-memory wavefronts per warp multiply-add")
    return new.figure


def _places(rungs: dict[str, RungTraffic]) -> list[float]:
    return [ROW * (index + 0.5) for index in range(len(rungs))]


def _dots(axes: Axes, rungs: dict[str, RungTraffic], wide: float) -> None:
    """A dot a rung; a bar has no length on a logarithmic scale."""
    values = [rung.sectors_per_fma for rung in rungs.values()]
    least, most = min(values) / 1.5, max(values) * 1.5
    axes.set_xscale("log")
    axes.set_xlim(least, most ** (wide / (wide - LABEL_ROOM)) / least ** (LABEL_ROOM / (wide - LABEL_ROOM)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _rows(axes, rungs)
    for y, rung in zip(_places(rungs), rungs.values(), strict=True):
        axes.plot([least, rung.sectors_per_fma], [y, y], color=FAINT, linewidth=1.0, zorder=0.5)
        axes.plot([rung.sectors_per_fma], [y], "o", color=ACCENT, markersize=5)
        _say(axes, _sector_words(rung), rung.sectors_per_fma, y)


def _bars(axes: Axes, rungs: dict[str, RungTraffic], wide: float) -> None:
    most = max(rung.wavefronts_per_fma for rung in rungs.values()) or 1.0
    axes.set_xlim(0, most * wide / (wide - LABEL_ROOM))
    _rows(axes, rungs)
    for y, rung in zip(_places(rungs), rungs.values(), strict=True):
        axes.barh(y, rung.wavefronts_per_fma, BAR, color=ACCENT)
        _say(axes, _wavefront_words(rung), rung.wavefronts_per_fma, y)


def _rows(axes: Axes, rungs: dict[str, RungTraffic]) -> None:
    """y is inches from the top."""
    axes.set_ylim(ROW * len(rungs), 0)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _say(axes: Axes, words: str, x: float, y: float) -> None:
    where: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline"}
    axes.annotate(words, (x, y), (6, 0), fontsize=SMALL_PT, color=INK, **where)


def _conflicts(axes: Axes, rungs: dict[str, RungTraffic]) -> None:
    """The part of a bar that bank conflicts added, at its end; hatched, so that it shows in grey too."""
    for y, rung in zip(_places(rungs), rungs.values(), strict=True):
        extra = rung.wavefronts_per_fma * rung.conflict_share
        if extra:
            start = rung.wavefronts_per_fma - extra
            axes.barh(y, extra, BAR, start, color=LIE, edgecolor=PAPER, hatch="////", linewidth=0)


def _sector_words(rung: RungTraffic) -> str:
    wide = " (float4)" if rung.load_width == FLOAT4 else ""
    return f"{rung.sectors_per_fma:.2g} · {rung.sectors_per_request:.1f} a load{wide}"


def _wavefront_words(rung: RungTraffic) -> str:
    if not rung.wavefronts:
        return "no shared memory"
    share = rung.conflict_share
    return f"{rung.wavefronts_per_fma:.2f}" + (f" · {100 * share:.0f} % conflicts" if share else "")


def _finding(rungs: dict[str, RungTraffic]) -> str:
    names = list(rungs)
    first, last = names[0], names[-1]
    times = rungs[first].sectors_per_fma / rungs[last].sectors_per_fma
    return f"From {first} to {last}, the same work takes {times:.0f} times less global traffic"


def _subtitle(counted: Traffic) -> str:
    return (
        f"C = A·B in FP32, {dimensions(counted.shape)}. Left: 32-byte sectors of global memory for each multiply-add "
        "of a warp, and for each of its loads, where 4 hold 32 neighbouring floats and 16 hold 32 float4. "
        "Right: passes through shared memory, hatched what bank conflicts add."
    )


def _alt(counted: Traffic) -> str:
    parts = [
        f"{name} {rung.sectors_per_request:.1f} sectors per global load, {rung.sectors_per_fma:.3f} per multiply-add, "
        f"{rung.wavefronts_per_fma:.2f} shared wavefronts per multiply-add of which {100 * rung.conflict_share:.0f} % "
        "conflicts"
        for name, rung in counted.rungs.items()
    ]
    what = "Memory traffic by rung: dots for global memory, bars for shared memory"
    return f"{what}. {'; '.join(parts)}. Source: {counted.label}."
